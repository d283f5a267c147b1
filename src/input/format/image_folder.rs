//! A folder with one subfolder per class, like torchvision's ImageFolder. Classes are the top-level folders, numbered
//! in the order of their names. Images are the files below them with an image extension, ordered by folder and name.
//! Links are followed, and a class contains each folder once.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Image extensions in lower case: torchvision's `IMG_EXTENSIONS`.
pub const ENDINGS: [&str; 9] = ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

/// Contents of a folder.
#[derive(Debug)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    /// Concatenated paths below the root: one allocation per path is too expensive for millions of files.
    names: Vec<u8>,
    /// End of each path in `names`.
    ends: Vec<u64>,
    labels: Vec<u32>,
    left_out: u64,
    /// Number of links to folders that the class already contains.
    repeated: u64,
}

/// Visited folders of a class, by device and inode.
#[derive(Default)]
struct VisitedFolders {
    /// Folders from the class down to the current one.
    above: Vec<(u64, u64)>,
    all: HashSet<(u64, u64)>,
}

/// Returns true if the name has an image extension.
fn is_image(name: &OsStr) -> bool {
    let ending = Path::new(name).extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

impl ImageFolder {
    /// Scans all of `root`.
    pub fn open(root: &Path) -> Result<ImageFolder> {
        let mut folder = ImageFolder {
            root: root.to_owned(),
            classes: Vec::new(),
            names: Vec::new(),
            ends: Vec::new(),
            labels: Vec::new(),
            left_out: 0,
            repeated: 0,
        };
        let FolderContents { folders, files } = list(root)?;
        folder.left_out = files.len() as u64;
        ensure!(
            !folders.is_empty(),
            "{} has no folders: put the images of each class into a folder, or use a list of images",
            root.display()
        );
        let mut empty = Vec::new();
        for class in folders {
            let before = folder.ends.len();
            folder.add_class(&class)?;
            if folder.ends.len() == before {
                empty.push(root.join(&class).display().to_string());
            }
        }
        ensure!(
            empty.is_empty(),
            "no images in {}: image names end with .{}: add some, or pass another folder",
            empty.join(", "),
            ENDINGS.join(", .")
        );
        Ok(folder)
    }

    /// Adds the files of every folder, sorted by the whole folder path and then by name, as torchvision does.
    fn add_class(&mut self, class: &OsStr) -> Result<()> {
        let label = u32::try_from(self.classes.len()).context("more classes than a label can hold")?;
        let mut found = Vec::new();
        self.walk(Path::new(class), &mut VisitedFolders::default(), &mut found)?;
        found.sort_by(|a, b| a.0.as_os_str().as_bytes().cmp(b.0.as_os_str().as_bytes()));
        for (folder, files) in found {
            for file in files {
                if is_image(&file) {
                    self.names.extend(folder.join(file).as_os_str().as_bytes());
                    self.ends.push(self.names.len() as u64);
                    self.labels.push(label);
                } else {
                    self.left_out += 1;
                }
            }
        }
        self.classes.push(class.to_string_lossy().into_owned());
        Ok(())
    }

    /// Visits each folder once, however many links lead to it; fails on a link cycle.
    fn walk(
        &mut self,
        folder: &Path,
        visited: &mut VisitedFolders,
        found: &mut Vec<(PathBuf, Vec<OsString>)>,
    ) -> Result<()> {
        let path = self.root.join(folder);
        let facts = fs::metadata(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let itself = (facts.dev(), facts.ino());
        ensure!(
            !visited.above.contains(&itself),
            "{} leads back to a folder above it: remove the link",
            path.display()
        );
        if !visited.all.insert(itself) {
            self.repeated += 1;
            return Ok(());
        }
        visited.above.push(itself);
        let FolderContents { folders, files } = list(&path)?;
        found.push((folder.to_owned(), files));
        for inner in folders {
            self.walk(&folder.join(inner), visited, found)?;
        }
        visited.above.pop();
        Ok(())
    }

    /// Returns the parent folder of the classes.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the names of the classes; the index is the label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Returns the number of images.
    pub fn length(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Returns the number of files that do not have an image extension or are not in a class folder.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the number of links to folders that the class already contains; their images count once.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Returns the path below the root and the label of an image; `None` beyond the last.
    pub fn image(&self, index: u64) -> Option<(&Path, u32)> {
        let index = usize::try_from(index).ok()?;
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let name = &self.names[begin as usize..end as usize];
        Some((Path::new(OsStr::from_bytes(name)), self.labels[index]))
    }
}

/// Contents of one folder, by name.
struct FolderContents {
    folders: Vec<OsString>,
    files: Vec<OsString>,
}

fn list(folder: &Path) -> Result<FolderContents> {
    let read = || {
        let mut listed = FolderContents { folders: Vec::new(), files: Vec::new() };
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // A dangling link is not a folder. Reading it reports an error if it has the name of an image.
            let is_folder = fs::metadata(entry.path()).is_ok_and(|facts| facts.is_dir());
            if is_folder { &mut listed.folders } else { &mut listed.files }.push(entry.file_name());
        }
        listed.folders.sort();
        listed.files.sort();
        Ok::<_, std::io::Error>(listed)
    };
    read().with_context(|| format!("the folder {} cannot be read", folder.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use expect_test::expect;

    use super::*;
    use crate::testing::temporary_folder::without_folder;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, file).expect("written");
        }
        folder
    }

    fn images(folder: &ImageFolder) -> Vec<(String, u32)> {
        let image = |index| folder.image(index).map(|(path, label)| (path.display().to_string(), label));
        (0..).map_while(image).collect()
    }

    #[test]
    fn classes_and_images_are_numbered_as_in_torchvision() {
        let folder = folder(&[
            "dog/b.JPEG",
            "dog/a.jpg",
            "Cat/2/x.png",
            "Cat/2-1/x.png",
            "Cat/10.webp",
            "Cat/9.webp",
            "Cat/notes.txt",
            "readme.jpg",
        ]);
        symlink(folder.path().join("dog"), folder.path().join("wolf")).expect("linked");
        let found = ImageFolder::open(folder.path()).expect("read");
        assert_eq!(found.classes(), ["Cat", "dog", "wolf"]);
        let expected = [
            ("Cat/10.webp", 0),
            ("Cat/9.webp", 0),
            ("Cat/2/x.png", 0),
            ("Cat/2-1/x.png", 0),
            ("dog/a.jpg", 1),
            ("dog/b.JPEG", 1),
            ("wolf/a.jpg", 2),
            ("wolf/b.JPEG", 2),
        ];
        let mut expected: Vec<(String, u32)> = expected.map(|(path, label)| (path.to_owned(), label)).into();
        // '-' sorts before the '/' of a longer path, but not before the end of a path.
        expected.sort_by_key(|(path, label)| {
            let (folder, name) = path.rsplit_once('/').expect("a folder");
            (*label, folder.to_owned(), name.to_owned())
        });
        assert_eq!(images(&found), expected);
        assert_eq!((found.length(), found.left_out()), (8, 2));
    }

    #[test]
    fn empty_class_is_reported() {
        let folder = folder(&["a/1.jpg", "b/notes.txt"]);
        let error = ImageFolder::open(folder.path()).expect_err("empty").to_string();
        expect![
            "no images in DIR/b: image names end with .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp: \
                 add some, or pass another folder"
        ]
        .assert_eq(&without_folder(&error));
    }

    #[test]
    fn linked_folder_is_counted_once_per_class() {
        // Creates 20 levels with two links to the next: 2^20 paths lead to the last.
        let folder = folder(&["a/0.jpg", "20/1.jpg", "b/2.jpg"]);
        for level in (0..20).rev() {
            let here = folder.path().join(if level == 0 { "a".to_owned() } else { level.to_string() });
            fs::create_dir_all(&here).expect("made");
            for link in ["left", "right"] {
                symlink(folder.path().join((level + 1).to_string()), here.join(link)).expect("linked");
            }
        }
        let root = tempfile::tempdir().expect("a folder");
        for class in ["a", "b"] {
            symlink(folder.path().join(class), root.path().join(class)).expect("linked");
        }
        let found = ImageFolder::open(root.path()).expect("read");
        let deepest = format!("a/{}1.jpg", "left/".repeat(20));
        let expected = [("a/0.jpg", 0), (deepest.as_str(), 0), ("b/2.jpg", 1)];
        assert_eq!(images(&found), expected.map(|(path, label)| (path.to_owned(), label)));
        assert_eq!(found.repeated(), 20);
    }

    #[test]
    fn missing_classes_and_link_cycles_are_rejected() {
        let without = folder(&["1.jpg"]);
        let error = ImageFolder::open(without.path()).expect_err("no classes").to_string();
        expect!["DIR has no folders: put the images of each class into a folder, or use a list of images"]
            .assert_eq(&without_folder(&error));
        let circle = folder(&["a/1.jpg"]);
        symlink(circle.path().join("a"), circle.path().join("a/again")).expect("linked");
        let error = ImageFolder::open(circle.path()).expect_err("a circle").to_string();
        expect!["DIR/a/again leads back to a folder above it: remove the link"].assert_eq(&without_folder(&error));
        let error = format!("{:#}", ImageFolder::open(Path::new("none")).expect_err("not there"));
        expect!["the folder none cannot be read: No such file or directory (os error 2)"].assert_eq(&error);
    }
}

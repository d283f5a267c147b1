//! Packs a folder of images into a RecordIO file with index and list, as MXNet's tools/im2rec.py does. The files are
//! byte-identical for the same list if image files are stored unchanged; see [`convert`](crate::convert) for
//! conversions.
//!
//! Each thread reads and converts the next image that no other thread has started, and the results are written in list
//! order. The files therefore do not depend on the number of threads, and no thread is more than a few images ahead.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringmark_core::dimension::ImageLimits;
use ringmark_core::file::atomic_file::{self, PreparedFile};
use ringmark_core::options::usage::usage;

use crate::byte_source::{check_not_empty, read_image};
use crate::convert::{Conversion, Converter};
use crate::format::image_folder::ImageFolder;
use crate::format::index_file::Entry;
use crate::format::list_file::ListedImage;
use crate::format::{image_record, index_file, list_file, record_io};
use crate::python_random::PythonRandom;

/// Shuffle seed of im2rec.py.
pub const SEED: u64 = 100;

/// Maximum number of finished images per thread that wait to be written.
const QUEUE_LENGTH: usize = 4;

/// Input and output of packing.
#[derive(Debug, Clone)]
pub struct PackConfig {
    /// Folder with one subfolder per class; with a list, the root of its relative paths.
    pub folder: PathBuf,
    /// Path that ends with `.rec`; index and list are written next to it.
    pub output: PathBuf,
    /// List of images in order; `None` packs all images of the folder.
    pub list: Option<PathBuf>,
    /// Shuffle seed; `None` keeps the order of the folder.
    pub shuffle: Option<u64>,
    /// Conversion of images; `None` stores the files unchanged.
    pub conversion: Option<Conversion>,
    /// Limits of an image.
    pub limits: ImageLimits,
    /// Number of threads that read and convert. The files do not depend on it.
    pub threads: usize,
    /// True if existing files are replaced.
    pub force: bool,
}

/// Progress of packing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Images written so far.
    pub images: u64,
    /// Total number of images.
    pub of: u64,
    /// Bytes written so far.
    pub bytes: u64,
}

/// Result of packing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Number of images.
    pub images: u64,
    /// Number of different labels; the first one of images with several.
    pub classes: u64,
    /// Size of the `.rec` file.
    pub bytes: u64,
    /// Files of the folder that do not have an image extension or are not in a class folder.
    pub left_out: u64,
    /// Links to folders that the class already contains.
    pub repeated: u64,
    /// Time from the first scan of the folder until all files had their final names.
    pub took: Duration,
    /// Paths of record file, index and list.
    pub files: [PathBuf; 3],
}

/// Packs the images. `watch` is called before each image and stops packing by returning an error. Files get their final
/// names after everything is written; on failure the existing files are unchanged.
pub fn pack(config: &PackConfig, watch: &mut dyn FnMut(Progress) -> Result<()>) -> Result<Packed> {
    let start = Instant::now();
    let files = ["rec", "idx", "lst"].map(|extension| config.output.with_extension(extension));
    let keeps_list = config.list.as_ref().is_some_and(|list| is_same(list, &files[2]));
    check(config, &files[..if keeps_list { 2 } else { 3 }]).map_err(usage)?;

    let Images { images, left_out, repeated } = images(config)?;
    let classes: BTreeSet<u32> = images.iter().filter_map(|image| Some(image.labels.first()?.to_bits())).collect();
    let mut entries = Vec::with_capacity(images.len());
    let mut bytes = 0;
    let [record_file, index, list] = &files;
    let records = PreparedFile::new(record_file, |output| {
        for_each_record(config, &images, |image, next_record| {
            watch(Progress { images: entries.len() as u64, of: images.len() as u64, bytes })?;
            entries.push(Entry { key: image.id, offset: bytes });
            let size = next_record().and_then(|record| record_io::write_record(&record, output));
            bytes += size.with_context(|| image_name(config, image))?;
            Ok(())
        })
    })?;
    let mut prepared = vec![records, PreparedFile::new(index, |output| index_file::write(&entries, output))?];
    if !keeps_list {
        prepared.push(PreparedFile::new(list, |output| list_file::write(&images, output))?);
    }
    atomic_file::publish_together(&prepared)?;
    Ok(Packed {
        images: images.len() as u64,
        classes: classes.len() as u64,
        bytes,
        left_out,
        repeated,
        took: start.elapsed(),
        files,
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Checks everything that can be checked before reading.
fn check(config: &PackConfig, files: &[PathBuf]) -> Result<()> {
    ensure!(
        config.output.extension().is_some_and(|extension| extension == "rec"),
        "{} does not end with .rec: use a name that does, because index and list are named after it",
        config.output.display()
    );
    ensure!(
        config.folder.is_dir(),
        "folder not found: {}: use one that contains a folder of images per class",
        config.folder.display()
    );
    if let Some(there) = files.iter().find(|file| file.exists() && !config.force) {
        anyhow::bail!("{} already exists: use another name, or --force to replace it", there.display());
    }
    Ok(())
}

/// Images in write order, and counts of skipped files and links.
struct Images {
    images: Vec<ListedImage>,
    left_out: u64,
    repeated: u64,
}

fn images(config: &PackConfig) -> Result<Images> {
    if let Some(list) = &config.list {
        return Ok(Images { images: list_file::read(list)?, left_out: 0, repeated: 0 });
    }
    let folder = ImageFolder::open(&config.folder)?;
    ensure!(
        folder.length() < u64::from(u32::MAX),
        "{} images are too many to shuffle: pack them into several files with --list",
        folder.length()
    );
    let listed = |id| {
        let (path, label) = folder.image(id)?;
        Some(ListedImage { id, labels: vec![label as f32], path: path.to_owned() })
    };
    let mut images: Vec<ListedImage> = (0..folder.length()).filter_map(listed).collect();
    if let Some(seed) = config.shuffle {
        PythonRandom::new(seed).shuffle(&mut images);
    }
    Ok(Images { images, left_out: folder.left_out(), repeated: folder.repeated() })
}

/// Returns the name of an image for messages: by its list if the user passed one.
fn image_name(config: &PackConfig, image: &ListedImage) -> String {
    match &config.list {
        Some(list) => format!("image {} of {}", image.id, list.display()),
        None => format!("image {}", image.path.display()),
    }
}

/// Passes every image with the receiver of its record to `take`, in order. An error ends all threads.
fn for_each_record(
    config: &PackConfig,
    images: &[ListedImage],
    mut take: impl FnMut(&ListedImage, &dyn Fn() -> Result<Vec<u8>>) -> Result<()>,
) -> Result<()> {
    let threads = config.threads.clamp(1, images.len());
    thread::scope(|scope| {
        let start = |number: usize| {
            let (sender, receiver) = mpsc::sync_channel(QUEUE_LENGTH);
            let mut maker = RecordMaker::new(config)?;
            let mut every = images.iter().skip(number).step_by(threads);
            // Sending fails after an error, because the receiver has been dropped.
            let make_all = move || every.all(|image| sender.send(maker.make(image)).is_ok());
            let thread = thread::Builder::new().name(format!("pack {number}")).spawn_scoped(scope, make_all);
            thread.with_context(|| format!("thread {number} of {threads} cannot be started: use fewer --threads"))?;
            Ok(receiver)
        };
        let threads: Vec<_> = (0..threads).map(start).collect::<Result<_>>()?;
        for (image, thread) in images.iter().zip(threads.iter().cycle()) {
            take(image, &|| thread.recv().context("a packing thread panicked")?)?;
        }
        Ok(())
    })
}

/// Converter from images to records; one per thread.
struct RecordMaker<'a> {
    folder: &'a Path,
    converter: Option<Converter>,
    limits: ImageLimits,
    file: Vec<u8>,
    converted: Vec<u8>,
}

impl RecordMaker<'_> {
    fn new(config: &PackConfig) -> Result<RecordMaker<'_>> {
        let converter = config.conversion.map(|conversion| Converter::new(conversion, config.limits)).transpose()?;
        let limits = config.limits;
        Ok(RecordMaker { folder: &config.folder, converter, limits, file: Vec::new(), converted: Vec::new() })
    }

    fn make(&mut self, image: &ListedImage) -> Result<Vec<u8>> {
        let path = self.folder.join(&image.path);
        let length = read_image(&path, &self.limits, &mut self.file)?;
        check_not_empty(&path, length as u64)?;
        let stored = match &mut self.converter {
            None => &self.file[..length],
            Some(converter) => {
                let converted = converter.convert(&self.file[..length], &mut self.converted);
                converted.with_context(|| path.display().to_string())?;
                &self.converted
            }
        };
        let mut record = Vec::new();
        image_record::write(image.id, &image.labels, stored, &mut record);
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anyhow::bail;
    use expect_test::expect;

    use super::*;
    use crate::convert::Encoding;
    use crate::dataset::Dataset;
    use crate::dataset::item::Item;
    use crate::testing::golden;
    use crate::testing::temporary_folder::without_folder;

    /// Creates three classes of 1, 2 and 3 images whose bytes are their names.
    fn folder() -> (tempfile::TempDir, PackConfig) {
        let root = tempfile::tempdir().expect("a folder");
        for (class, count) in [("a", 1), ("b", 2), ("c", 3)] {
            fs::create_dir_all(root.path().join("images").join(class)).expect("made");
            for number in 0..count {
                let name = format!("{class}/{number}.jpg");
                fs::write(root.path().join("images").join(&name), &name).expect("written");
            }
        }
        let config = PackConfig {
            folder: root.path().join("images"),
            output: root.path().join("out.rec"),
            list: None,
            shuffle: Some(SEED),
            conversion: None,
            limits: ImageLimits::default(),
            threads: 2,
            force: false,
        };
        (root, config)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn continue_packing(_: Progress) -> Result<()> {
        Ok(())
    }

    #[test]
    fn packed_images_are_read_in_list_order() {
        let (root, config) = folder();
        let packed = pack(&config, &mut continue_packing).expect("packed");
        assert_eq!((packed.images, packed.classes, packed.left_out), (6, 3, 0));
        assert_eq!(packed.bytes, fs::metadata(&config.output).expect("written").len());
        let list = list_file::read(&root.path().join("out.lst")).expect("read");
        // random.seed(100); random.shuffle(list(range(6)))
        assert_eq!(list.iter().map(|image| image.id).collect::<Vec<_>>(), [2, 5, 0, 4, 3, 1]);
        let dataset = Dataset::open(std::slice::from_ref(&config.output)).expect("read");
        let mut item = Item::default();
        for (index, image) in (0..).zip(&list) {
            dataset.read(index, &mut item).expect("read");
            assert_eq!(item.bytes(), image.path.as_os_str().as_encoded_bytes());
            assert_eq!((item.id, &item.labels), (image.id, &image.labels));
        }
        assert_eq!(names(root.path()), ["images", "out.idx", "out.lst", "out.rec"]);
    }

    #[test]
    fn listed_images_are_converted_and_stored() {
        let (root, mut config) = folder();
        for (name, image) in [("c/2.jpg", "baseline.jpg"), ("a/0.jpg", "source.png")] {
            fs::write(config.folder.join(name), golden(image)).expect("written");
        }
        let list = root.path().join("mine.lst");
        fs::write(&list, "5\t2\t7.5\tc/2.jpg\n9\t0\ta/0.jpg\n").expect("written");
        config.list = Some(list);
        let conversion = Conversion { is_cropped: true, shorter_edge: Some(20), encoding: Encoding::Jpeg(90) };
        config.conversion = Some(conversion);
        assert_eq!(pack(&config, &mut continue_packing).expect("packed").images, 2);
        let dataset = Dataset::open(std::slice::from_ref(&config.output)).expect("read");
        let mut item = Item::default();
        for (index, id, labels, image) in [(0, 5, &[2.0, 7.5][..], "baseline.jpg"), (1, 9, &[0.0], "source.png")] {
            dataset.read(index, &mut item).expect("read");
            let mut expected = Vec::new();
            Converter::new(conversion, config.limits)
                .expect("a decoder")
                .convert(&golden(image), &mut expected)
                .expect("an image");
            assert_eq!((item.id, item.labels.as_slice(), item.bytes()), (id, labels, expected.as_slice()));
        }
        let text = fs::read_to_string(root.path().join("out.lst")).expect("written");
        assert_eq!(text, "5\t2.000000\t7.500000\tc/2.jpg\n9\t0.000000\ta/0.jpg\n");
        // The list above contains none of the folder's other images.
        config.list = None;
        config.force = true;
        let error = format!("{:#}", pack(&config, &mut continue_packing).expect_err("text"));
        expect!["DIR/out.rec cannot be written: image b/1.jpg: DIR/images/b/1.jpg: neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the 7 bytes begin with 62 2f 31 2e 6a 70 67"].assert_eq(&without_folder(&error));
    }

    #[test]
    fn thread_count_does_not_change_bytes() {
        let (root, mut config) = folder();
        let images = ["baseline.jpg", "progressive.jpg", "full.jpg", "png_alpha.png", "inks.jpg"];
        for number in 0..40 {
            let image = golden(images[number % images.len()]);
            fs::write(config.folder.join(format!("a/{number:02}.jpg")), image).expect("written");
        }
        for class in ["b", "c"] {
            fs::remove_dir_all(config.folder.join(class)).expect("removed");
        }
        fs::remove_file(config.folder.join("a/0.jpg")).expect("removed");
        let encoding = Encoding::Jpeg(95);
        for conversion in [None, Some(Conversion { is_cropped: false, shorter_edge: Some(30), encoding })] {
            let files = [1, 2, 7, 100].map(|threads| {
                config = PackConfig { threads, conversion, force: true, ..config.clone() };
                assert_eq!(pack(&config, &mut continue_packing).expect("packed").images, 40);
                ["rec", "idx", "lst"]
                    .map(|ending| fs::read(root.path().join("out").with_extension(ending)).expect("there"))
            });
            assert!(files.iter().all(|others| *others == files[0]), "{conversion:?}");
        }
    }

    #[test]
    fn input_list_next_to_output_is_kept() {
        let (root, mut config) = folder();
        let list = root.path().join("out.lst");
        fs::write(&list, "5 \t2\tc/2.jpg\n").expect("written");
        config.list = Some(list.clone());
        pack(&config, &mut continue_packing).expect("packed");
        assert_eq!(fs::read_to_string(list).expect("there"), "5 \t2\tc/2.jpg\n");
    }

    #[test]
    fn failed_or_stopped_packing_keeps_old_files() {
        let (root, mut config) = folder();
        pack(&config, &mut continue_packing).expect("packed");
        let before = fs::read(&config.output).expect("written");
        config.force = true;
        config.shuffle = None;
        let mut stop = |progress: Progress| if progress.images == 3 { bail!("interrupted") } else { Ok(()) };
        let error = format!("{:#}", pack(&config, &mut stop).expect_err("stopped"));
        assert_eq!(error, format!("{} cannot be written: interrupted", config.output.display()));
        fs::write(config.folder.join("c/1.jpg"), "").expect("written");
        let error = format!("{:#}", pack(&config, &mut continue_packing).expect_err("empty"));
        expect![
            "DIR/out.rec cannot be written: image c/1.jpg: DIR/images/c/1.jpg is empty (0 bytes): recreate or remove it"
        ]
        .assert_eq(&without_folder(&error));
        assert_eq!(fs::read(&config.output).expect("written"), before);
        assert_eq!(names(root.path()), ["images", "out.idx", "out.lst", "out.rec"]);
    }

    #[test]
    fn unwritable_file_keeps_all_three_files() {
        let (root, config) = folder();
        pack(&config, &mut continue_packing).expect("packed");
        let list = root.path().join("out.lst");
        fs::remove_file(&list).expect("there");
        fs::create_dir(&list).expect("made");
        let read = || ["rec", "idx"].map(|ending| fs::read(config.output.with_extension(ending)).ok());
        let before = read();
        let forced = PackConfig { force: true, shuffle: None, ..config.clone() };
        let error = format!("{:#}", pack(&forced, &mut continue_packing).expect_err("a folder"));
        assert_eq!(error, format!("{} cannot be written: path exists and is not a regular file", list.display()));
        assert!(before == read() && before.iter().all(Option::is_some));
        assert_eq!(names(root.path()), ["images", "out.idx", "out.lst", "out.rec"]);
    }

    #[test]
    fn files_are_replaced_only_with_force() {
        let (root, mut config) = folder();
        fs::write(root.path().join("out.idx"), "old").expect("written");
        let error = pack(&config, &mut continue_packing).expect_err("there").to_string();
        expect!["DIR/out.idx already exists: use another name, or --force to replace it"]
            .assert_eq(&without_folder(&error));
        config.force = true;
        pack(&config, &mut continue_packing).expect("packed");
        config.output = root.path().join("out.bin");
        expect!["DIR/out.bin does not end with .rec: use a name that does, because index and list are named after it"]
            .assert_eq(&without_folder(&pack(&config, &mut continue_packing).expect_err("a name").to_string()));
    }
}

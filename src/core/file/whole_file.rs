//! A file that is there whole or not at all: no reader ever sees half of it, not even where the writer is killed. And how
//! a reader opens a file.
//!
//! Not for writing logs, which are read while they grow.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IntoInnerError};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result, ensure};

/// Lets `content` write into a part file beside `path`, then renames it to `path`, over a file that was there. When
/// anything fails the part file goes, the old file stays, and the error names `path`.
pub fn write(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    write_by_name(path, |part| {
        let mut output = BufWriter::new(File::create(part)?);
        content(&mut output)?;
        output.into_inner().map_err(IntoInnerError::into_error)?;
        Ok(())
    })
}

/// Refuses a `path` that [`write()`] could not write now; leaves no file there.
pub fn check(path: &Path) -> Result<()> {
    let check = || {
        if let Ok(found) = path.metadata()
            && !found.is_file()
        {
            ensure!(!found.is_dir(), "it is a folder");
            return Ok(());
        }
        let part = part_of(path).context("this is no name of a file")?;
        File::create(&part)?;
        Ok(fs::remove_file(&part)?)
    };
    check().with_context(|| format!("{} cannot be written", path.display()))
}

/// As [`write()`] of a small file that is written again and again and may be lost in a power cut: nothing is asked of the
/// disk, which others are writing to.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let part = part_of(path).ok_or(ErrorKind::InvalidInput)?;
    let replaced = fs::write(&part, content).and_then(|()| fs::rename(&part, path));
    if replaced.is_err() {
        // There is none where it could not be made.
        let _ = fs::remove_file(&part);
    }
    replaced
}

/// Opens a file to read it. Not a folder, nor a pipe, socket or device: where a file is due, reading one of those says
/// nothing, or waits for ever.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    if !kind.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is a pipe, socket or device, and no file"));
    }
    File::open(path)
}

/// As [`write()`], for a library that opens files itself: `content` gets the name of the part file.
pub fn write_by_name(path: &Path, content: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let write = || {
        // Neither a device nor a pipe may be replaced by a file: what is no file is written as it is.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return content(path);
        }
        let part = part_of(path).context("this is no name of a file")?;
        // A disk that is full or far away may say so only when it is asked.
        let synchronized = || File::open(&part)?.sync_all();
        let written = content(&part).and_then(|()| Ok(synchronized().and_then(|()| publish(&part, path))?));
        if written.is_err() {
            // There is none where it could not be made.
            let _ = fs::remove_file(&part);
        }
        written
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// A file that is complete and on the disk, under another name: removed unless [`publish_together`] names it.
#[derive(Debug)]
pub struct PreparedFile {
    part: PathBuf,
    path: PathBuf,
}

impl PreparedFile {
    /// Lets `content` write what is to become `path`, over a file that may be there.
    pub fn new(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<PreparedFile> {
        let write = || -> Result<PreparedFile> {
            ensure!(!path.metadata().is_ok_and(|found| !found.is_file()), "it is there, and no file");
            let part = part_of(path).context("this is no name of a file")?;
            let prepared = PreparedFile { part, path: path.to_owned() };
            let mut output = BufWriter::new(File::create(&prepared.part)?);
            content(&mut output)?;
            output.into_inner().map_err(IntoInnerError::into_error)?.sync_all()?;
            Ok(prepared)
        };
        write().with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Name of the replaced file until all new files have theirs.
    fn old(&self) -> PathBuf {
        self.part.with_extension("old")
    }

    /// Gives the file its name, and keeps one that was there.
    fn publish(&self) -> io::Result<()> {
        match fs::rename(&self.path, self.old()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => fs::rename(&self.part, &self.path),
        }
    }

    /// Undoes [`publish`](Self::publish), however far it got.
    fn take_back(&self) {
        // Each of the two may never have been done.
        let _ = fs::rename(&self.path, &self.part);
        let _ = fs::rename(self.old(), &self.path);
    }
}

impl Drop for PreparedFile {
    fn drop(&mut self) {
        // There is none once it has its name.
        let _ = fs::remove_file(&self.part);
    }
}

/// Gives all `files` of one folder their names, or, when one fails, none: the files that were there stay.
pub fn publish_together(files: &[PreparedFile]) -> Result<()> {
    for (index, file) in files.iter().enumerate() {
        if let Err(error) = file.publish() {
            file.take_back();
            files[..index].iter().rev().for_each(PreparedFile::take_back);
            return Err(error).with_context(|| format!("{} cannot be written", file.path.display()));
        }
    }
    for file in files {
        // There is none where the name was new.
        let _ = fs::remove_file(file.old());
    }
    if let Some(file) = files.first() {
        synchronize_folder(&file.path);
    }
    Ok(())
}

/// Gives `part`, which is complete, its name `path` in the same folder. After it not even a power cut takes it back,
/// where the file system can promise that.
pub fn publish(part: &Path, path: &Path) -> io::Result<()> {
    fs::rename(part, path)?;
    synchronize_folder(path);
    Ok(())
}

fn synchronize_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file is there whole by now or was before: a folder that cannot be synchronized takes nothing from it.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// Whether this is the name of a part file, which only a writer that was killed leaves.
pub fn is_part(path: &Path) -> bool {
    let parts = || {
        let (name, process) = path.file_name()?.to_str()?.strip_prefix('.')?.strip_suffix(".part")?.rsplit_once('.')?;
        Some(!name.is_empty() && process.parse::<u32>().is_ok())
    };
    parts().unwrap_or(false)
}

/// `.<name>.<process>.part` in the same folder: on the same file system, and no other process's.
fn part_of(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}.part", process::id()));
    Some(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::bail;

    use super::*;

    /// An empty folder, gone with the value.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let folder = env::temp_dir().join(format!("ringmark-whole-file-{}-{number}", process::id()));
            fs::create_dir(&folder).expect("made");
            Folder(folder)
        }

        fn path(&self) -> PathBuf {
            self.0.join("result.json")
        }

        fn names(&self) -> Vec<OsString> {
            fs::read_dir(&self.0).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn text(path: &Path, text: &str) -> Result<()> {
        write(path, |output| Ok(output.write_all(text.as_bytes())?))
    }

    #[test]
    fn a_file_is_made_and_replaced() {
        let folder = Folder::new();
        for content in ["first", "second, longer"] {
            text(&folder.path(), content).expect("written");
            assert_eq!(fs::read_to_string(folder.path()).expect("read"), content);
            assert_eq!(folder.names(), ["result.json"]);
        }
    }

    #[test]
    fn a_small_file_is_replaced_or_stays() {
        let folder = Folder::new();
        for content in ["first", "second, longer"] {
            replace(&folder.path(), content.as_bytes()).expect("written");
            assert_eq!(fs::read_to_string(folder.path()).expect("read"), content);
        }
        let inner = folder.0.join("inner");
        fs::create_dir(&inner).expect("made");
        replace(&inner, b"text").expect_err("a folder");
        assert_eq!(folder.names().len(), 2);
    }

    #[test]
    fn nobody_sees_the_file_before_it_is_whole() {
        let folder = Folder::new();
        write(&folder.path(), |output| {
            output.write_all(b"half")?;
            output.flush()?;
            assert!(!folder.path().exists());
            assert!(matches!(&folder.names()[..], [part] if is_part(Path::new(part))));
            Ok(())
        })
        .expect("written");
    }

    #[test]
    fn part_files_are_told_from_others() {
        assert!(is_part(Path::new("results/1n1g/.rn50_b128_fp32_1.jsonl.4711.part")));
        for name in ["result.json", ".result.json.part", ".result.json.x.part", "rn50_b128_fp32_1.log.part", ".4.part"]
        {
            assert!(!is_part(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn what_fails_leaves_the_old_file_and_no_part() {
        let folder = Folder::new();
        text(&folder.path(), "old").expect("written");
        let failed = write(&folder.path(), |output| {
            output.write_all(b"new")?;
            bail!("no number")
        });
        let error = format!("{:#}", failed.expect_err("it failed"));
        assert_eq!(error, format!("{} cannot be written: no number", folder.path().display()));
        assert_eq!(fs::read_to_string(folder.path()).expect("read"), "old");
        assert_eq!(folder.names(), ["result.json"]);
    }

    #[test]
    fn a_place_that_takes_no_file_is_named() {
        let folder = Folder::new();
        let unfit = [folder.0.join("none/result.json"), folder.0.clone(), PathBuf::from("/dev/full")];
        let named = |path: &Path, refused: anyhow::Error| {
            let error = format!("{refused:#}");
            assert!(error.starts_with(&format!("{} cannot be written: ", path.display())), "{error}");
        };
        for path in &unfit {
            named(path, text(path, "text").expect_err("refused"));
        }
        for path in &unfit[..2] {
            named(path, check(path).expect_err("refused"));
        }
        for path in [folder.path(), PathBuf::from("/dev/null")] {
            check(&path).expect("it can be written");
        }
        assert_eq!(folder.names(), Vec::<OsString>::new());
    }

    #[test]
    fn files_get_their_names_together_or_not_at_all() {
        let folder = Folder::new();
        let paths = ["a", "b", "c"].map(|name| folder.0.join(name));
        let prepare = |content: &str| {
            paths.each_ref().map(|path| {
                PreparedFile::new(path, |output| Ok(output.write_all(content.as_bytes())?)).expect("prepared")
            })
        };
        let read = || paths.each_ref().map(|path| fs::read_to_string(path).ok());
        let all = |content: &str| [(); 3].map(|()| Some(content.to_owned()));
        for content in ["first", "second"] {
            publish_together(&prepare(content)).expect("published");
            assert_eq!(read(), all(content));
            assert_eq!(folder.names().len(), 3);
        }
        // The third lost its content, after the first two have their names.
        let third = prepare("third");
        fs::remove_file(&third[2].part).expect("there");
        let error = format!("{:#}", publish_together(&third).expect_err("it fails"));
        assert!(error.starts_with(&format!("{} cannot be written: ", paths[2].display())), "{error}");
        drop(third);
        assert_eq!(read(), all("second"));
        assert_eq!(folder.names().len(), 3);
        for (index, path) in paths.iter().enumerate() {
            fs::remove_file(path).expect("there");
            let new = prepare("new");
            fs::remove_file(&new[index].part).expect("there");
            publish_together(&new).expect_err("it fails");
            drop(new);
            assert_eq!(folder.names().len(), 2 - index, "what was not there is not there afterwards");
        }
        let failed = PreparedFile::new(&paths[0], |_| bail!("no number")).expect_err("it failed");
        assert_eq!(format!("{failed:#}"), format!("{} cannot be written: no number", paths[0].display()));
        assert_eq!(folder.names(), Vec::<OsString>::new());
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let folder = Folder::new();
        let link = folder.0.join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("linked");
        let (_reader, writer) = std::io::pipe().expect("a pipe");
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer)));
        for path in [&pipe, &link, Path::new("/dev/null")] {
            let error = open(path).expect_err("no file").to_string();
            assert_eq!(error, "it is a pipe, socket or device, and no file", "{}", path.display());
        }
        assert_eq!(open(&folder.0).expect_err("a folder").to_string(), "it is a folder");
    }

    #[test]
    fn a_device_is_written_and_not_replaced() {
        text(Path::new("/dev/null"), "text").expect("written");
        assert!(!Path::new("/dev/null").metadata().expect("it is there").is_file());
        // A file behind a link in /proc is one that is open already.
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        text(Path::new(&name), "text").expect("written");
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("read");
        assert_eq!(read, "text");
    }

    #[test]
    fn a_library_gets_the_part_s_name() {
        let folder = Folder::new();
        write_by_name(&folder.path(), |part| Ok(fs::write(part, "text")?)).expect("written");
        assert_eq!(fs::read_to_string(folder.path()).expect("read"), "text");
        assert_eq!(folder.names(), ["result.json"]);
    }
}

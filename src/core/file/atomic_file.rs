//! Atomic file writes: readers see the whole file or none, even if the writer is killed. Also the function that opens a
//! file to read.
//!
//! Logs are not written in this way, because they are read while they grow.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IntoInnerError};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::dimension::{Bytes, Seconds};

/// Writes `path` atomically: `content` writes to a part file in the same folder, which then replaces `path`. If
/// anything fails, the part file is removed, the old file stays, and the error names `path`.
pub fn write(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    write_by_name(path, |part| {
        let mut output = BufWriter::new(File::create(part)?);
        content(&mut output)?;
        output.into_inner().map_err(IntoInnerError::into_error)?;
        Ok(())
    })
    .map(drop)
}

/// Size of a file that was written, and the time that it took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WrittenFile {
    /// Size of the file; 0 for a device or pipe.
    pub bytes: Bytes,
    /// Time to write the content, without the sync.
    pub write: Seconds,
    /// Time to sync the file, rename it and sync the folder.
    pub sync: Seconds,
}

/// Refuses a `path` that [`write()`] could not write now; leaves no file behind.
pub fn check(path: &Path) -> Result<()> {
    let check = || {
        if let Ok(found) = path.metadata()
            && !found.is_file()
        {
            ensure!(!found.is_dir(), "path is a folder");
            return Ok(());
        }
        let part = part_path(path).context("not a file name")?;
        File::create(&part)?;
        Ok(fs::remove_file(&part)?)
    };
    check().with_context(|| format!("{} cannot be written", path.display()))
}

/// Replaces a small file that is rewritten often and may be lost in a power cut. Unlike [`write()`] it does not sync,
/// which would slow down other writers to the disk.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let part = part_path(path).ok_or(ErrorKind::InvalidInput)?;
    let replaced = fs::write(&part, content).and_then(|()| fs::rename(&part, path));
    if replaced.is_err() {
        // The part file is missing if it could not be created.
        let _ = fs::remove_file(&part);
    }
    replaced
}

/// Opens a regular file to read it. Refuses a folder, pipe, socket or device: reading one of those in place of a file
/// is meaningless or blocks forever.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "path is a folder"));
    }
    if !kind.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file (a pipe, socket or device)"));
    }
    File::open(path)
}

/// Same as [`write()`], for a library that opens files itself: `content` receives the path of the part file.
pub fn write_by_name(path: &Path, content: impl FnOnce(&Path) -> Result<()>) -> Result<WrittenFile> {
    let write = || {
        let started = Instant::now();
        // A device or pipe must not be replaced by a file: anything but a regular file is written directly.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return content(path).map(|()| WrittenFile::default());
        }
        let part = part_path(path).context("not a file name")?;
        let published = || -> Result<WrittenFile> {
            let write = started.elapsed();
            let file = File::open(&part)?;
            // A full or remote disk may report its errors only on sync.
            file.sync_all()?;
            publish(&part, path)?;
            let [write, sync] = [write, started.elapsed() - write].map(|time| Seconds(time.as_secs_f64()));
            Ok(WrittenFile { bytes: Bytes(file.metadata()?.len()), write, sync })
        };
        let written = content(&part).and_then(|()| published());
        if written.is_err() {
            // The part file is missing if it could not be created.
            let _ = fs::remove_file(&part);
        }
        written
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// File that is complete and synced under a temporary name; removed unless [`publish_together`] renames it.
#[derive(Debug)]
pub struct PreparedFile {
    part: PathBuf,
    path: PathBuf,
}

impl PreparedFile {
    /// Writes the content of `path` to a part file; `path` may exist.
    pub fn new(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<PreparedFile> {
        let write = || -> Result<PreparedFile> {
            ensure!(!path.metadata().is_ok_and(|found| !found.is_file()), "path exists and is not a regular file");
            let part = part_path(path).context("not a file name")?;
            let prepared = PreparedFile { part, path: path.to_owned() };
            let mut output = BufWriter::new(File::create(&prepared.part)?);
            content(&mut output)?;
            output.into_inner().map_err(IntoInnerError::into_error)?.sync_all()?;
            Ok(prepared)
        };
        write().with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Returns the temporary name of the replaced file.
    fn old(&self) -> PathBuf {
        self.part.with_extension("old")
    }

    /// Renames the file to its final name, and a previous one to [`old`](Self::old).
    fn publish(&self) -> io::Result<()> {
        match fs::rename(&self.path, self.old()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => fs::rename(&self.part, &self.path),
        }
    }

    /// Undoes [`publish`](Self::publish), however far it got.
    fn revert(&self) {
        // Either rename may not have been done.
        let _ = fs::rename(&self.path, &self.part);
        let _ = fs::rename(self.old(), &self.path);
    }
}

impl Drop for PreparedFile {
    fn drop(&mut self) {
        // The part file no longer exists once it is published.
        let _ = fs::remove_file(&self.part);
    }
}

/// Renames all `files` of one folder to their final names, or none if one fails: then the previous files stay.
pub fn publish_together(files: &[PreparedFile]) -> Result<()> {
    for (index, file) in files.iter().enumerate() {
        if let Err(error) = file.publish() {
            file.revert();
            files[..index].iter().rev().for_each(PreparedFile::revert);
            return Err(error).with_context(|| format!("{} cannot be written", file.path.display()));
        }
    }
    for file in files {
        // There is no previous file if the name was new.
        let _ = fs::remove_file(file.old());
    }
    if let Some(file) = files.first() {
        synchronize_folder(&file.path);
    }
    Ok(())
}

/// Renames the complete file `part` to `path` in the same folder. Afterwards it survives a power cut, if the file
/// system supports that.
pub fn publish(part: &Path, path: &Path) -> io::Result<()> {
    fs::rename(part, path)?;
    synchronize_folder(path);
    Ok(())
}

fn synchronize_folder(path: &Path) {
    // The new file is complete already: failing to sync the folder does not damage it.
    let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
}

/// Returns true for the name of a part file, which only a killed writer leaves behind.
pub fn is_part(path: &Path) -> bool {
    let parts = || {
        let (name, process) = path.file_name()?.to_str()?.strip_prefix('.')?.strip_suffix(".part")?.rsplit_once('.')?;
        Some(!name.is_empty() && process.parse::<u32>().is_ok())
    };
    parts().unwrap_or(false)
}

/// Removes the part files of `path` that killed writers left behind. No other process may be writing it.
pub fn remove_parts(path: &Path) {
    let Some(prefix) = path.file_name().map(|name| format!(".{}.", name.to_string_lossy())) else { return };
    for file in fs::read_dir(folder_of(path)).into_iter().flatten().flatten() {
        let is_of_path = file.file_name().to_string_lossy().starts_with(&prefix);
        if is_of_path && is_part(&file.path()) {
            // A part file that cannot be removed only takes disk space.
            let _ = fs::remove_file(file.path());
        }
    }
}

/// Returns the folder of a file, `.` for a name alone.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns `.<name>.<process>.part` in the same folder: on the same file system, and unique to this process.
fn part_path(path: &Path) -> Option<PathBuf> {
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

    /// Empty folder, removed on drop.
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
    fn file_is_created_and_replaced() {
        let folder = Folder::new();
        for content in ["first", "second, longer"] {
            text(&folder.path(), content).expect("written");
            assert_eq!(fs::read_to_string(folder.path()).expect("read"), content);
            assert_eq!(folder.names(), ["result.json"]);
        }
    }

    #[test]
    fn small_file_is_replaced_or_kept() {
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
    fn incomplete_file_is_not_visible() {
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
    fn part_files_are_recognized() {
        assert!(is_part(Path::new("results/1n1g/.rn50_b128_fp32_1.jsonl.4711.part")));
        for name in ["result.json", ".result.json.part", ".result.json.x.part", "rn50_b128_fp32_1.log.part", ".4.part"]
        {
            assert!(!is_part(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn only_the_parts_of_a_file_are_removed() {
        let folder = Folder::new();
        for name in [".result.json.4711.part", ".result.json.12.part", ".result.json.x.part", ".other.json.4711.part"] {
            fs::write(folder.0.join(name), "half").expect("written");
        }
        remove_parts(&folder.path());
        let mut left = folder.names();
        left.sort();
        assert_eq!(left, [".other.json.4711.part", ".result.json.x.part"]);
    }

    #[test]
    fn failed_write_keeps_old_file_and_removes_part() {
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
    fn unwritable_path_is_named() {
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
    fn files_are_published_together_or_not_at_all() {
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
        // Publishing the third file fails, after the first two have been renamed.
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
    fn non_regular_file_is_rejected_without_blocking() {
        let folder = Folder::new();
        let link = folder.0.join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("linked");
        let (_reader, writer) = std::io::pipe().expect("a pipe");
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer)));
        for path in [&pipe, &link, Path::new("/dev/null")] {
            let error = open(path).expect_err("no file").to_string();
            assert_eq!(error, "not a regular file (a pipe, socket or device)", "{}", path.display());
        }
        assert_eq!(open(&folder.0).expect_err("a folder").to_string(), "path is a folder");
    }

    #[test]
    fn device_is_written_and_not_replaced() {
        text(Path::new("/dev/null"), "text").expect("written");
        assert!(!Path::new("/dev/null").metadata().expect("it is there").is_file());
        // A link in /proc refers to a file that is already open.
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        text(Path::new(&name), "text").expect("written");
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).expect("read");
        assert_eq!(read, "text");
    }

    #[test]
    fn library_receives_part_file_path() {
        let folder = Folder::new();
        let written = write_by_name(&folder.path(), |part| Ok(fs::write(part, "text")?)).expect("written");
        assert_eq!(written.bytes, Bytes(4));
        assert!(written.sync.0 > 0.0 && written.write.0 > 0.0, "{written:?}");
        assert_eq!(fs::read_to_string(folder.path()).expect("read"), "text");
        assert_eq!(folder.names(), ["result.json"]);
    }
}

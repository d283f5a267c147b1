//! Random access to the bytes of a file, or of memory in its place; every error contains the location. Reads use
//! `pread` instead of mmap: if the file shrinks or the disk fails, the result is an error rather than a fatal signal.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ringmark_core::dimension::{ImageLimit, ImageLimits};
use ringmark_core::file::atomic_file;

/// A file or memory, readable from any thread at any offset.
#[derive(Debug)]
pub struct ByteSource {
    name: PathBuf,
    bytes: Bytes,
    length: u64,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

impl ByteSource {
    /// Opens a regular file; fails for folders, pipes and devices, and for empty files.
    pub fn open(path: &Path) -> Result<ByteSource> {
        let (bytes, length) = open(path)?;
        check_not_empty(path, length)?;
        Ok(ByteSource { name: path.to_owned(), bytes, length })
    }

    /// Creates a source from memory, with the name of the file that the bytes came from.
    pub fn from_memory(name: &Path, bytes: Vec<u8>) -> ByteSource {
        ByteSource { name: name.to_owned(), length: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }

    /// Returns the file's path as passed.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Returns the size in bytes when the file was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns a location for messages.
    pub fn location(&self, offset: u64) -> Location {
        Location::byte(&self.name, offset)
    }

    /// Fills `buffer` with the bytes starting at `offset`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        fill(buffer, offset, &self.bytes, &self.name, self.length)
    }

    /// Returns a sequential reader from the first byte.
    pub fn reader(&self) -> impl Read {
        SequentialReader { source: self, offset: 0 }
    }

    /// Fails if the file has become shorter since it was opened, so that buffered data of it are rejected too.
    pub fn ensure_not_shortened(&self) -> Result<()> {
        let Bytes::File(file) = &self.bytes else { return Ok(()) };
        let length = file.metadata().with_context(|| format!("{} cannot be read", self.name.display()))?.len();
        ensure!(length >= self.length, "{}", shortened(&self.name, length, self.length));
        Ok(())
    }
}

/// Sequential reader of a source.
struct SequentialReader<'a> {
    source: &'a ByteSource,
    offset: u64,
}

impl Read for SequentialReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = (self.source.length - self.offset).min(buffer.len() as u64) as usize;
        self.source.read_at(&mut buffer[..size], self.offset).map_err(std::io::Error::other)?;
        self.offset += size as u64;
        Ok(size)
    }
}

/// Reads a file like [`ByteSource::open`] to the start of `buffer`, without allocating memory for its name.
pub fn read_file(path: &Path, buffer: &mut Vec<u8>) -> Result<usize> {
    let (bytes, length) = open(path)?;
    check_not_empty(path, length)?;
    fill_all(buffer, &bytes, path, length)
}

/// Reads an image file, which may be empty, within its limit.
pub fn read_image(path: &Path, limits: &ImageLimits, buffer: &mut Vec<u8>) -> Result<usize> {
    let (bytes, length) = open(path)?;
    limits.check(ImageLimit::Bytes, length, || format!("{} has {length} bytes", path.display()))?;
    fill_all(buffer, &bytes, path, length)
}

fn open(path: &Path) -> Result<(Bytes, u64)> {
    let open = || {
        let file = atomic_file::open(path)?;
        let length = file.metadata()?.len();
        Ok::<_, std::io::Error>((Bytes::File(file), length))
    };
    open().with_context(|| format!("{} cannot be opened", path.display()))
}

/// Fails if a file is empty.
pub fn check_not_empty(path: &Path, length: u64) -> Result<()> {
    ensure!(length > 0, "{} is empty (0 bytes): recreate or remove it", path.display());
    Ok(())
}

fn fill_all(buffer: &mut Vec<u8>, bytes: &Bytes, name: &Path, length: u64) -> Result<usize> {
    let size = usize::try_from(length)?;
    grow(buffer, size).with_context(|| name.display().to_string())?;
    fill(&mut buffer[..size], 0, bytes, name, length)?;
    Ok(size)
}

fn fill(buffer: &mut [u8], offset: u64, bytes: &Bytes, name: &Path, length: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let here = offset + done as u64;
        let rest = &mut buffer[done..];
        let count = match bytes {
            Bytes::File(file) => match file.read_at(rest, here) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome.with_context(|| {
                    format!(
                        "{}: {} bytes cannot be read: check the disk (dmesg), or copy the file again",
                        Location::byte(name, here),
                        rest.len()
                    )
                })?,
            },
            Bytes::Memory(bytes) => {
                let found = usize::try_from(here).ok().and_then(|here| bytes.get(here..)).unwrap_or_default();
                let count = found.len().min(rest.len());
                rest[..count].copy_from_slice(&found[..count]);
                count
            }
        };
        if count == 0 {
            bail!(shortened(name, here, length));
        }
        done += count;
    }
    Ok(())
}

fn shortened(name: &Path, end: u64, length: u64) -> String {
    format!(
        "{}: the file was truncated while being read (it had {length} bytes when opened): use a file that is not being written",
        Location::byte(name, end)
    )
}

/// Extends `buffer` to at least `length` bytes; fails if there is not enough memory.
pub fn grow(buffer: &mut Vec<u8>, length: usize) -> Result<()> {
    if buffer.len() < length {
        let more = length - buffer.len();
        buffer.try_reserve(more).with_context(|| format!("not enough memory for {length} bytes"))?;
        buffer.resize(length, 0);
    }
    Ok(())
}

/// A file and a position in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// Path as given, or found below a folder that was given.
    pub file: PathBuf,
    /// Position in the file.
    pub position: Position,
}

/// Position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Position {
    /// The whole file.
    #[default]
    Whole,
    /// Byte offset.
    Byte(u64),
    /// Byte offset in the decompressed contents.
    DecompressedByte(u64),
    /// Line number, from 1.
    Line(u64),
}

impl Location {
    /// Creates the location of a byte of `file`.
    pub fn byte(file: &Path, offset: u64) -> Location {
        Location { file: file.to_owned(), position: Position::Byte(offset) }
    }

    /// Creates the location of a line of `file`, from 1.
    pub fn line(file: &Path, line: u64) -> Location {
        Location { file: file.to_owned(), position: Position::Line(line) }
    }

    /// Replaces the location, reusing its memory.
    pub fn set(&mut self, file: &Path, position: Position) {
        self.file.as_mut_os_string().clear();
        self.file.as_mut_os_string().push(file);
        self.position = position;
    }
}

impl fmt::Display for Location {
    /// Formats as `train.rec, byte 1024`, `train.lst, line 7` or `cats/1.jpg`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.display().fmt(formatter)?;
        match self.position {
            Position::Whole => Ok(()),
            Position::Byte(offset) => write!(formatter, ", byte {offset}"),
            Position::DecompressedByte(offset) => write!(formatter, ", byte {offset} of its decompressed content"),
            Position::Line(line) => write!(formatter, ", line {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect;

    use super::*;
    use crate::testing::temporary_folder::without_folder;

    #[test]
    fn shrinking_file_is_reported_with_position() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rec");
        fs::write(&path, [7; 100]).expect("written");
        let source = ByteSource::open(&path).expect("opened");
        let mut buffer = [0; 60];
        source.read_at(&mut buffer, 40).expect("read");
        fs::write(&path, [7; 50]).expect("written");
        let error = format!("{:#}", source.read_at(&mut buffer, 40).expect_err("too short"));
        expect![
            "DIR/a.rec, byte 50: the file was truncated while being read (it had 100 bytes when opened): use a file that is not being written"
        ]
        .assert_eq(&without_folder(&error));
    }

    #[test]
    fn system_error_is_reported_with_position() {
        // The kernel fails a read of address 0 with EIO and a read of a folder with EISDIR.
        let errors = ["/proc/self/mem", "/proc/self"].map(|path| {
            let file = File::open(path).expect("opened");
            let source = ByteSource { name: path.into(), bytes: Bytes::File(file), length: 4096 };
            format!("{:#}", source.read_at(&mut [0; 16], 8).expect_err("no bytes"))
        });
        expect![[r#"
            /proc/self/mem, byte 8: 16 bytes cannot be read: check the disk (dmesg), or copy the file again: Input/output error (os error 5)
            /proc/self, byte 8: 16 bytes cannot be read: check the disk (dmesg), or copy the file again: Is a directory (os error 21)"#]].assert_eq(&errors.join("\n"));
    }

    #[test]
    fn disk_error_is_reported_with_its_byte() {
        // Beyond the end of the stack the kernel returns EIO; the bytes before it are read.
        let maps = fs::read_to_string("/proc/self/maps").expect("readable");
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).expect("one");
        let end = stack.split(['-', ' ']).nth(1).expect("its end");
        let end = u64::from_str_radix(end, 16).expect("a number");
        let file = File::open("/proc/self/mem").expect("opened");
        let source = ByteSource { name: "a.rec".into(), bytes: Bytes::File(file), length: end + 4096 };
        source.read_at(&mut [0; 100], end - 100).expect("all of it is there");
        let error = format!("{:#}", source.read_at(&mut [0; 300], end - 100).expect_err("200 bytes are not"));
        expect![
            "a.rec, byte END: 200 bytes cannot be read: check the disk (dmesg), or copy the file again: \
                 Input/output error (os error 5)"
        ]
        .assert_eq(&error.replace(&end.to_string(), "END"));
    }

    #[test]
    fn only_nonempty_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rec");
        fs::write(&path, "").expect("written");
        let error = ByteSource::open(&path).expect_err("empty").to_string();
        expect!["DIR/a.rec is empty (0 bytes): recreate or remove it"].assert_eq(&without_folder(&error));
        let errors = [folder.path(), Path::new("/dev/zero"), Path::new("none")]
            .map(|path| without_folder(&format!("{:#}", ByteSource::open(path).expect_err("no file"))));
        expect![[r#"
            DIR cannot be opened: path is a folder
            /dev/zero cannot be opened: not a regular file (a pipe, socket or device)
            none cannot be opened: No such file or directory (os error 2)"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn location_is_readable() {
        let mut place = Location::byte(Path::new("a/train.rec"), 1024);
        expect!["a/train.rec, byte 1024"].assert_eq(&place.to_string());
        place.set(Path::new("cats/1.jpg"), Position::Whole);
        assert_eq!(place.to_string(), "cats/1.jpg");
        expect!["a.lst, line 7"].assert_eq(&Location::line(Path::new("a.lst"), 7).to_string());
    }
}

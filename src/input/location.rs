//! Positions in input files, for messages.

use std::fmt;
use std::path::{Path, PathBuf};

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
    use expect_test::expect;

    use super::*;

    #[test]
    fn location_is_readable() {
        let mut place = Location::byte(Path::new("a/train.rec"), 1024);
        expect!["a/train.rec, byte 1024"].assert_eq(&place.to_string());
        place.set(Path::new("cats/1.jpg"), Position::Whole);
        assert_eq!(place.to_string(), "cats/1.jpg");
        expect!["a.lst, line 7"].assert_eq(&Location::line(Path::new("a.lst"), 7).to_string());
    }
}

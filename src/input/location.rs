//! Where in the input something stands, for messages. Not for reading there.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file, and what in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Location {
    /// As it was given, or found below a folder that was given.
    pub file: PathBuf,
    /// What in it.
    pub position: Position,
}

/// What in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Position {
    /// All of it.
    #[default]
    Whole,
    /// So many bytes from its beginning.
    Byte(u64),
    /// So many bytes from the beginning of what a compressed file holds.
    DecompressedByte(u64),
    /// A line, from 1.
    Line(u64),
}

impl Location {
    /// A byte of `file`.
    pub fn byte(file: &Path, offset: u64) -> Location {
        Location { file: file.to_owned(), position: Position::Byte(offset) }
    }

    /// A line of `file`, from 1.
    pub fn line(file: &Path, line: u64) -> Location {
        Location { file: file.to_owned(), position: Position::Line(line) }
    }

    /// Another place, in the memory that this one has.
    pub fn set(&mut self, file: &Path, position: Position) {
        self.file.as_mut_os_string().clear();
        self.file.as_mut_os_string().push(file);
        self.position = position;
    }
}

impl fmt::Display for Location {
    /// `train.rec, byte 1024`, `train.lst, line 7` or `cats/1.jpg`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.display().fmt(formatter)?;
        match self.position {
            Position::Whole => Ok(()),
            Position::Byte(offset) => write!(formatter, ", byte {offset}"),
            Position::DecompressedByte(offset) => write!(formatter, ", byte {offset} of what is compressed in it"),
            Position::Line(line) => write!(formatter, ", line {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_place_is_written_for_people() {
        let mut place = Location::byte(Path::new("a/train.rec"), 1024);
        expect!["a/train.rec, byte 1024"].assert_eq(&place.to_string());
        place.set(Path::new("cats/1.jpg"), Position::Whole);
        assert_eq!(place.to_string(), "cats/1.jpg");
        expect!["a.lst, line 7"].assert_eq(&Location::line(Path::new("a.lst"), 7).to_string());
    }
}

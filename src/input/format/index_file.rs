//! Index of a `.rec` file, `.idx`, with one record per line in write order: `key<TAB>byte offset of its magic`. The key
//! is the number of the image in the `.lst`.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::byte_source::Location;
use crate::format::record_io::ALIGNMENT;
use crate::format::text_lines;

/// Maximum length of a line in bytes, line ending included.
const MAX_LINE_LENGTH: u64 = 44;

/// A line of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The image's number in the `.lst`.
    pub key: u64,
    /// Offset of the record's magic number.
    pub offset: u64,
}

/// Reads the index `path` of a `.rec` file of `length` bytes; sorts by offset, as MXNet does.
pub fn read(path: &Path, length: u64) -> Result<Vec<Entry>> {
    // A record has at least 8 bytes, and a line contains two numbers of at most 20 digits.
    let most = (length / 8 + 1) * MAX_LINE_LENGTH;
    parse(&text_lines::read_within(path, most)?, path, length)
}

/// Parses the bytes of `path` like [`read`]. Does not check that a record begins at an offset.
pub fn parse(text: &[u8], path: &Path, length: u64) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (number, line) in text_lines::lines(text) {
        let entry = entry(line, length).with_context(|| Location::line(path, number).to_string())?;
        entries.push(entry);
    }
    ensure!(!entries.is_empty(), "{} is empty, because writing was interrupted: create it again", path.display());
    entries.sort_by_key(|entry| entry.offset);
    for pair in entries.windows(2) {
        ensure!(
            pair[0].offset != pair[1].offset,
            "{}: keys {} and {} have the same offset {}, so a record would occur twice: create it again",
            path.display(),
            pair[0].key,
            pair[1].key,
            pair[0].offset
        );
    }
    Ok(entries)
}

fn entry(line: &[u8], length: u64) -> Result<Entry> {
    let mut fields = line.split(|byte| *byte == b'\t');
    let (Some(key), Some(offset), None) = (fields.next(), fields.next(), fields.next()) else {
        anyhow::bail!(
            "{:?} is not of the form key, tab, byte offset: create the .idx again",
            text_lines::display_text(line)
        );
    };
    let entry = Entry { key: text_lines::number(key, "key")?, offset: text_lines::number(offset, "byte offset")? };
    ensure!(
        entry.offset < length,
        "offset {} is beyond the end of the .rec file ({length} bytes): the index is for another file, or the .rec is \
         truncated: create both again",
        entry.offset
    );
    ensure!(
        entry.offset.is_multiple_of(ALIGNMENT),
        "offset {} is not a multiple of {ALIGNMENT}, so it is not the start of a record: create the .idx again",
        entry.offset
    );
    Ok(entry)
}

/// Writes the lines, in the order of the entries.
pub fn write(entries: &[Entry], output: &mut impl Write) -> Result<()> {
    for Entry { key, offset } in entries {
        writeln!(output, "{key}\t{offset}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::temporary_folder::without_folder;

    fn parsed(text: &str) -> Result<Vec<Entry>> {
        parse(text.as_bytes(), Path::new("a.idx"), 100)
    }

    #[test]
    fn index_is_sorted_by_offset_and_round_trips() {
        let entries = [(3, 0), (0, 16), (1, 64)].map(|(key, offset)| Entry { key, offset });
        let mut text = Vec::new();
        write(&entries, &mut text).expect("an in-memory write succeeds");
        assert_eq!(String::from_utf8_lossy(&text), "3\t0\n0\t16\n1\t64\n");
        assert_eq!(parsed("3\t0\n0\t16\n1\t64\n").expect("read"), entries);
        assert_eq!(parsed("1\t64\r\n\n0\t16\n3\t0").expect("read"), entries);
    }

    #[test]
    fn oversized_index_is_rejected() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "0\t0\n").expect("written");
        assert_eq!(read(file.path(), 8).expect("an index"), [Entry { key: 0, offset: 0 }]);
        // A sparse file.
        file.as_file().set_len(1 << 40).expect("a sparse file");
        let error = read(file.path(), 8).expect_err("too long").to_string();
        expect![
            "DIR has 1099511627776 bytes, more than the 88 of an index of every record; it is not the index of this file: create it again"
        ]
        .assert_eq(&without_folder(&error));
    }

    #[test]
    fn every_fault_is_reported_with_its_line() {
        let errors = [
            "0\t0\n1\n",
            "0\t0\t1\n",
            "0\t0\nx\t16\n",
            "0\t-4\n",
            "0\t0\n1\t100\n",
            "0\t0\n1\t18\n",
            "0\t0\n1\t16\n2\t0\n",
            "\n",
        ]
        .map(|text| format!("{:#}", parsed(text).expect_err(text)));
        expect![[r#"
            a.idx, line 2: "1" is not of the form key, tab, byte offset: create the .idx again
            a.idx, line 1: "0\t0\t1" is not of the form key, tab, byte offset: create the .idx again
            a.idx, line 2: the key "x" is not a whole number of at least 0
            a.idx, line 1: the byte offset "-4" is not a whole number of at least 0
            a.idx, line 2: offset 100 is beyond the end of the .rec file (100 bytes): the index is for another file, or the .rec is truncated: create both again
            a.idx, line 2: offset 18 is not a multiple of 4, so it is not the start of a record: create the .idx again
            a.idx: keys 0 and 2 have the same offset 0, so a record would occur twice: create it again
            a.idx is empty, because writing was interrupted: create it again"#]].assert_eq(&errors.join("\n"));
    }
}

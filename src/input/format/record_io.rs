//! RecordIO of dmlc-core (include/dmlc/recordio.h, src/coreio.cc), the container format of MXNet's `.rec` files. The
//! contents of a record are parsed by [`image_record`](crate::format::image_record).
//!
//! A part consists of a magic number, a flag (3 bits) and length (29 bits), data, and zero padding to a multiple of 4
//! bytes; all little-endian. A record is one part, or several if its data contain the magic number at a multiple of 4:
//! the writer splits the record there and omits the four bytes, and the reader restores them. The magic number at a
//! multiple of 4 is therefore always the header of a part. The format has no checksum and no file header: truncation is
//! detected because the last record extends beyond the end of the file.

use std::io::Write;
use std::ops::{Deref, Range};

use anyhow::{Context, Result, bail, ensure};
use ringmark_core::dimension::{ImageLimit, ImageLimits};

use crate::byte_source::{ByteSource, grow};

/// First bytes of every part.
pub const MAGIC: [u8; 4] = 0xced7_230a_u32.to_le_bytes();

/// Maximum length of a record in bytes.
pub const MAX_RECORD_LENGTH: usize = (1 << 29) - 1;

/// Alignment of part offsets and file sizes in bytes.
pub const ALIGNMENT: u64 = 4;

const HEAD: usize = 8;

/// Size in bytes of a sequential read.
const BUFFER: usize = 4 << 20;

/// Size in bytes of the first read of a record of unknown length.
const FIRST_READ: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    Whole,
    First,
    Middle,
    Last,
}

impl Flag {
    fn begins(self) -> bool {
        matches!(self, Flag::Whole | Flag::First)
    }

    fn ends(self) -> bool {
        matches!(self, Flag::Whole | Flag::Last)
    }
}

struct PartHeader {
    flag: Flag,
    /// Length of the data without padding, in bytes.
    length: usize,
}

impl PartHeader {
    fn parse(bytes: &[u8]) -> Result<PartHeader> {
        ensure!(
            bytes[..4] == MAGIC,
            "found {:02x}{:02x}{:02x}{:02x} instead of the start of a record, 0a23d7ce: the file is damaged or not a \
             RecordIO file: create it again",
            bytes[0],
            bytes[1],
            bytes[2],
            bytes[3]
        );
        let word = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let flag = match word >> 29 {
            0 => Flag::Whole,
            1 => Flag::First,
            2 => Flag::Middle,
            3 => Flag::Last,
            other => bail!("invalid part flag {other} (valid: 0 to 3), so the file is damaged: create it again"),
        };
        Ok(PartHeader { flag, length: (word & 0x1fff_ffff) as usize })
    }

    fn bytes(&self) -> [u8; HEAD] {
        let word = (self.flag as u32) << 29 | self.length as u32;
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..].copy_from_slice(&word.to_le_bytes());
        bytes
    }

    /// Returns the size of header, data and padding in bytes.
    fn size(&self) -> usize {
        HEAD + self.length.next_multiple_of(ALIGNMENT as usize)
    }
}

/// Writes a record as dmlc-core does and returns the number of bytes written.
pub fn write_record(record: &[u8], output: &mut impl Write) -> Result<u64> {
    ensure!(
        record.len() <= MAX_RECORD_LENGTH,
        "{} bytes exceed the limit of a record, {MAX_RECORD_LENGTH}: use a smaller image",
        record.len()
    );
    let mut written = 0;
    let mut part = |flag, data: &[u8]| {
        let head = PartHeader { flag, length: data.len() };
        output.write_all(&head.bytes())?;
        output.write_all(data)?;
        output.write_all(&[0; ALIGNMENT as usize][..head.size() - HEAD - data.len()])?;
        written += head.size() as u64;
        Ok::<_, std::io::Error>(())
    };
    let mut begin = 0;
    for (word, bytes) in record.chunks_exact(4).enumerate() {
        if bytes == MAGIC {
            let end = 4 * word;
            part(if begin == 0 { Flag::First } else { Flag::Middle }, &record[begin..end])?;
            begin = end + 4;
        }
    }
    part(if begin == 0 { Flag::Whole } else { Flag::Last }, &record[begin..])?;
    Ok(written)
}

/// Extent of a record.
enum Extent {
    /// Size in bytes, headers and padding included.
    Known(usize),
    /// Lower bound in bytes; the record continues after the available bytes.
    AtLeast(usize),
}

/// Returns the extent of the record at `offset` of `source`, which begins with `bytes`.
fn extent(bytes: &[u8], source: &ByteSource, offset: u64) -> Result<Extent> {
    let mut at = 0;
    loop {
        let Some(head) = bytes.get(at..at + HEAD) else { return Ok(Extent::AtLeast(at + HEAD)) };
        let head = parse_part_header(head, source, offset, at)?;
        at += head.size();
        match head.flag.ends() {
            _ if at > bytes.len() => return Ok(Extent::AtLeast(at)),
            true => return Ok(Extent::Known(at)),
            false => {}
        }
    }
}

/// Parses the part header `at` bytes after the start of the record at `offset`; fails if it is not valid there.
fn parse_part_header(head: &[u8], source: &ByteSource, offset: u64, at: usize) -> Result<PartHeader> {
    let place = || source.location(offset + at as u64);
    let head = PartHeader::parse(head).map_err(|error| error.context(place().to_string()))?;
    if at == 0 {
        ensure!(
            head.flag.begins(),
            "{}: a record begins with a middle part (flag {}); the file is damaged or its .idx is for another file: create both again",
            place(),
            head.flag as u32
        );
    } else {
        ensure!(
            !head.flag.begins(),
            "{}: another record begins (flag {}), but that of byte {offset} is incomplete; the file is damaged: create it again",
            place(),
            head.flag as u32
        );
    }
    ensure!(
        head.flag.ends() || head.length.is_multiple_of(ALIGNMENT as usize),
        "{}: a part of {} bytes is neither its record's last nor a multiple of {ALIGNMENT}; the file is damaged: create it again",
        place(),
        head.length
    );
    Ok(head)
}

/// Returns the range of the record's data in `raw`, which contains all its parts. The parts of a split record are moved
/// together and the magic number is restored between them.
fn join(raw: &mut [u8]) -> Result<Range<usize>> {
    let first = PartHeader::parse(raw)?;
    let mut end = HEAD + first.length;
    let mut at = first.size();
    while at < raw.len() {
        let PartHeader { length, .. } = PartHeader::parse(&raw[at..])?;
        let data = at + HEAD;
        at = data + length.next_multiple_of(ALIGNMENT as usize);
        raw[end..end + 4].copy_from_slice(&MAGIC);
        raw.copy_within(data..data + length, end + 4);
        end += 4 + length;
    }
    Ok(HEAD..end)
}

/// Fails if a record needs more bytes than the limit, before memory is allocated for it.
fn ensure_in_limits(needed: usize, limits: &ImageLimits, source: &ByteSource, offset: u64) -> Result<()> {
    let named = || format!("the record has at least {needed} bytes");
    limits.check(ImageLimit::Bytes, needed as u64, named).with_context(|| source.location(offset).to_string())
}

/// Fails if a record extends beyond the end of the file.
fn ensure_in_file(needed: usize, source: &ByteSource, offset: u64) -> Result<()> {
    let remaining = source.length() - offset;
    ensure!(
        needed as u64 <= remaining,
        "{}: the record has at least {needed} bytes, but the file ends after {remaining}: the file is truncated, or \
         the record is incomplete: create or copy it again",
        source.location(offset)
    );
    Ok(())
}

/// Reads the record at `offset` into `buffer`, which grows to the largest record, and returns the range of the record's
/// data. `expected` is the size of the first read: the distance to the next record, if known.
pub fn read_record(
    source: &ByteSource,
    offset: u64,
    expected: u64,
    limits: &ImageLimits,
    buffer: &mut Vec<u8>,
) -> Result<Range<usize>> {
    let remaining = source.length().saturating_sub(offset);
    ensure!(
        remaining >= HEAD as u64,
        "{}: no record can begin here, because the file has {} bytes: create its .idx again",
        source.location(offset),
        source.length()
    );
    let mut have = 0;
    let mut wanted = expected.clamp(HEAD as u64, FIRST_READ as u64).min(remaining) as usize;
    loop {
        grow(buffer, wanted)?;
        source.read_at(&mut buffer[have..wanted], offset + have as u64)?;
        have = wanted;
        match extent(&buffer[..have], source, offset)? {
            Extent::Known(size) => {
                ensure_in_limits(size, limits, source, offset)?;
                return join(&mut buffer[..size]);
            }
            Extent::AtLeast(needed) => {
                ensure_in_file(needed, source, offset)?;
                ensure_in_limits(needed, limits, source, offset)?;
                // Reads more than needed, so that a record with many parts does not take one read per part.
                wanted = (needed.max(have + have / 2) as u64).min(remaining) as usize;
            }
        }
    }
}

/// A record in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset of its magic number.
    pub offset: u64,
    /// Data without headers and padding.
    pub bytes: &'a [u8],
}

/// Sequential reader of records that reads large blocks.
#[derive(Debug)]
pub struct RecordReader<Source> {
    source: Source,
    limits: ImageLimits,
    /// End of the range in which records begin.
    end: u64,
    buffer: Vec<u8>,
    /// File offset of the first byte of the buffer.
    offset: u64,
    /// Position in the buffer at which the next record begins.
    at: usize,
}

impl<Source: Deref<Target = ByteSource>> RecordReader<Source> {
    /// Reads the records that begin in `range`, which starts with a record.
    pub fn new(source: Source, range: Range<u64>, limits: ImageLimits) -> RecordReader<Source> {
        let end = range.end.min(source.length());
        RecordReader { source, limits, end, buffer: Vec::new(), offset: range.start, at: 0 }
    }

    /// Continues with another file and reuses the buffer.
    pub fn on(self, source: Source, range: Range<u64>) -> RecordReader<Source> {
        let RecordReader { mut buffer, limits, .. } = self;
        buffer.clear();
        RecordReader { buffer, ..RecordReader::new(source, range, limits) }
    }

    /// Reads all records of a file, within the default limits.
    pub fn from_source(source: Source) -> RecordReader<Source> {
        let length = source.length();
        RecordReader::new(source, 0..length, ImageLimits::default())
    }

    /// Returns the source of the records.
    pub fn source(&self) -> &ByteSource {
        &self.source
    }

    /// Discards the remaining records; [`on`](Self::on) reuses the memory.
    pub fn end(&mut self) {
        self.end = 0;
    }

    /// Reads the next record; returns `None` at the end. A record that exceeds the limits is an error and is skipped.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        let offset = self.offset + self.at as u64;
        if offset >= self.end {
            return Ok(None);
        }
        let size = loop {
            match extent(&self.buffer[self.at..], &self.source, offset)? {
                Extent::Known(size) => {
                    self.ensure_in_limits(size)?;
                    break size;
                }
                Extent::AtLeast(needed) => self.fill(needed)?,
            }
        };
        let raw = &mut self.buffer[self.at..self.at + size];
        self.at += size;
        let bytes = join(raw)?;
        Ok(Some(Record { offset, bytes: &raw[bytes] }))
    }

    /// Fails if the current record exceeds the limits, after skipping it.
    fn ensure_in_limits(&mut self, needed: usize) -> Result<()> {
        let offset = self.offset + self.at as u64;
        let outcome = ensure_in_limits(needed, &self.limits, &self.source, offset);
        if outcome.is_err() {
            let mut heads = RecordHeads::new(&self.source, offset..self.end);
            heads.pass()?;
            (self.offset, self.at) = (heads.offset(), 0);
            self.buffer.clear();
        }
        outcome
    }

    /// Reads until the buffer contains at least `needed` bytes of the record.
    fn fill(&mut self, needed: usize) -> Result<()> {
        let offset = self.offset + self.at as u64;
        ensure_in_file(needed, &self.source, offset)?;
        self.ensure_in_limits(needed)?;
        let have = self.buffer.len() - self.at;
        self.buffer.copy_within(self.at.., 0);
        (self.offset, self.at) = (offset, 0);
        let ahead = (self.end - offset).min(BUFFER as u64) as usize;
        let most = self.source.length() - offset;
        let wanted = if needed <= ahead { ahead } else { (needed.max(have + have / 2) as u64).min(most) as usize };
        grow(&mut self.buffer, wanted)?;
        self.buffer.truncate(wanted);
        let read = self.source.read_at(&mut self.buffer[have..], offset + have as u64);
        if read.is_err() {
            // The buffer still contains older bytes, which are not part of this record.
            self.buffer.truncate(have);
        }
        read
    }
}

/// Cursor over the record headers of a file that does not read the data.
pub struct RecordHeads<'a> {
    source: &'a ByteSource,
    end: u64,
    offset: u64,
}

impl<'a> RecordHeads<'a> {
    /// Visits the records that begin in `range`, which starts with a record.
    pub fn new(source: &'a ByteSource, range: Range<u64>) -> RecordHeads<'a> {
        RecordHeads { source, end: range.end.min(source.length()), offset: range.start }
    }

    /// Returns the offset of the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Skips the next record, which is complete according to its headers; returns false after the last.
    pub fn pass(&mut self) -> Result<bool> {
        if self.offset >= self.end {
            return Ok(false);
        }
        let (mut head, mut size) = ([0; HEAD], 0);
        loop {
            ensure_in_file(size + HEAD, self.source, self.offset)?;
            self.source.read_at(&mut head, self.offset + size as u64)?;
            let head = parse_part_header(&head, self.source, self.offset, size)?;
            size += head.size();
            if head.flag.ends() {
                break;
            }
        }
        ensure_in_file(size, self.source, self.offset)?;
        self.offset += size as u64;
        Ok(true)
    }
}

/// Returns the offset of the first record at or after `offset`, or the size of the file. The magic number is
/// sufficient, because it occurs nowhere else at a multiple of 4.
pub fn next_record_start(source: &ByteSource, offset: u64) -> Result<u64> {
    const WINDOW: usize = 1 << 16;
    let mut window = vec![0; source.length().saturating_sub(offset).min(WINDOW as u64) as usize];
    let mut begin = offset.next_multiple_of(ALIGNMENT);
    while begin + HEAD as u64 <= source.length() {
        let size = (source.length() - begin).min(WINDOW as u64) as usize;
        source.read_at(&mut window[..size], begin)?;
        // The last word is checked in the next window, together with the word after it.
        for at in (0..=size - HEAD).step_by(ALIGNMENT as usize) {
            if window[at..at + 4] == MAGIC {
                let here = begin + at as u64;
                let head = PartHeader::parse(&window[at..])
                    .map_err(|error| error.context(source.location(here).to_string()))?;
                if head.flag.begins() {
                    return Ok(here);
                }
            }
        }
        begin += (size - HEAD) as u64 + ALIGNMENT;
    }
    Ok(source.length())
}

/// Opens a `.rec` file; its size must be a multiple of 4, as dmlc-core requires.
pub fn open(path: &std::path::Path) -> Result<ByteSource> {
    let source = ByteSource::open(path)?;
    ensure!(
        source.length().is_multiple_of(ALIGNMENT),
        "{} has {} bytes, which is not a multiple of {ALIGNMENT}: the RecordIO file is truncated: create or copy it \
         again",
        path.display(),
        source.length()
    );
    Ok(source)
}

#[cfg(test)]
mod tests;

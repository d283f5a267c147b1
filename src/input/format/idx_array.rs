//! Arrays of MNIST, such as `train-images-idx3-ubyte`, optionally compressed as `.gz`: `00 00 type dimensions`, a
//! big-endian u32 per dimension, then the values in row-major order. Only u8 (type 08) is supported, which all data
//! sets in this format use.

use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;

use crate::byte_source::{ByteSource, Position, grow};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Maximum number of dimensions: images, height, width, channels.
const MAX_DIMENSIONS: usize = 4;

/// Maximum decompressed size of a `.gz` in bytes: it is decompressed into memory, and all of EMNIST takes 0.6 GB.
const MAX_DECOMPRESSED: u64 = 2_000_000_000;

/// An array of u8, whose first dimension counts items.
#[derive(Debug)]
pub struct IdxArray {
    data: ByteSource,
    /// Offset of the values in `data`.
    begin: u64,
    /// Size of the header in bytes; for a `.gz`, `data` does not contain the header.
    header_size: u64,
    shape: Vec<u32>,
    item_size: usize,
}

/// Returns true if a file with these first bytes is such an array, or a `.gz` that may contain one.
pub fn is_idx(first: &[u8]) -> bool {
    first.starts_with(&GZIP) || first.starts_with(&[0, 0])
}

/// Returns the shape from the header; of a `.gz`, only the header is decompressed.
pub fn shape(path: &Path) -> Result<Vec<u32>> {
    let source = ByteSource::open(path)?;
    let mut first = [0; 2];
    let size = source.length().min(2) as usize;
    source.read_at(&mut first[..size], 0)?;
    let read = if first == GZIP { header(&mut decompressed(&source)) } else { header(&mut source.reader()) };
    Ok(read.with_context(|| path.display().to_string())?.shape)
}

impl IdxArray {
    /// Opens a file; a `.gz` is decompressed into memory.
    pub fn open(path: &Path) -> Result<IdxArray> {
        IdxArray::from_source(ByteSource::open(path)?)
    }

    /// Creates the array like [`open`](IdxArray::open), from an open source.
    pub fn from_source(source: ByteSource) -> Result<IdxArray> {
        let path = source.name().to_owned();
        let mut first = [0; 2];
        if source.length() >= 2 {
            source.read_at(&mut first, 0)?;
        }
        let array = if first == GZIP { read_gzip(&source) } else { read_plain(source) };
        array.with_context(|| path.display().to_string())
    }

    /// Returns the path of the file as passed.
    pub fn name(&self) -> &Path {
        self.data.name()
    }

    /// Returns the number of items, then the dimensions of an item.
    pub fn shape(&self) -> &[u32] {
        &self.shape
    }

    /// Returns the number of items.
    pub fn length(&self) -> u64 {
        u64::from(self.shape[0])
    }

    /// Returns the position of item `index` in its file.
    pub fn position(&self, index: u64) -> Position {
        let byte = self.header_size + index * self.item_size as u64;
        if self.begin == self.header_size { Position::Byte(byte) } else { Position::DecompressedByte(byte) }
    }

    /// Reads item `index` to the start of `buffer`, which grows if necessary; returns its size in bytes.
    pub fn read(&self, index: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        ensure!(index < self.length(), "{} has no item {index}: it has {}", self.name().display(), self.length());
        grow(buffer, self.item_size)?;
        self.data.read_at(&mut buffer[..self.item_size], self.begin + index * self.item_size as u64)?;
        Ok(self.item_size)
    }
}

/// Shape, size of an item, and total size with header in bytes, parsed from the first bytes of `data`.
struct Header {
    shape: Vec<u32>,
    item_size: usize,
    begin: u64,
    values: u64,
}

fn header(data: &mut impl Read) -> Result<Header> {
    let mut word = [0; 4];
    let cut = "the header of an idx array is cut off: copy the file again";
    data.read_exact(&mut word).context(cut)?;
    let [zero, again, kind, dimensions] = word;
    ensure!(
        zero == 0 && again == 0,
        "the file begins with {zero:02x}{again:02x}{kind:02x}{dimensions:02x}, but an idx array with 0000, its type \
         and its dimensions (00000803 for images, 00000801 for labels): use another file"
    );
    let type_name = match kind {
        0x08 => "u8",
        0x09 => "i8",
        0x0b => "i16",
        0x0c => "i32",
        0x0d => "f32",
        0x0e => "f64",
        _ => "unknown",
    };
    ensure!(
        kind == 0x08,
        "an idx array of type {kind:02x} ({type_name}), but only u8 (08) is supported: store it as \
                           u8"
    );
    let dimensions = usize::from(dimensions);
    ensure!(
        (1..=MAX_DIMENSIONS).contains(&dimensions),
        "an idx array of {dimensions} dimensions, but only 1 (labels) and 3 (images) are supported: the file is \
         damaged or another array"
    );
    let mut shape = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        data.read_exact(&mut word).context(cut)?;
        shape.push(u32::from_be_bytes(word));
    }
    ensure!(!shape.contains(&0), "an idx array of {} is empty: create it again", dimensions_text(&shape));
    let sizes = shape[1..].iter().try_fold(1_u64, |product, size| product.checked_mul(u64::from(*size)));
    let item_size = sizes.and_then(|size| usize::try_from(size).ok());
    let values = sizes.and_then(|size| size.checked_mul(u64::from(shape[0])));
    let (Some(item_size), Some(values)) = (item_size, values) else {
        anyhow::bail!("an idx array of {} bytes is too large: the file is damaged", dimensions_text(&shape));
    };
    Ok(Header { begin: 4 + 4 * dimensions as u64, shape, item_size, values })
}

fn dimensions_text(shape: &[u32]) -> String {
    shape.iter().map(u32::to_string).collect::<Vec<_>>().join(" x ")
}

fn ensure_values(header: &Header, found: u64, more: &str) -> Result<()> {
    ensure!(
        found == header.values,
        "an idx array of {} has {} bytes of values, but the file {more}{found}, so the file is truncated or \
         contains another array: copy it again",
        dimensions_text(&header.shape),
        header.values
    );
    Ok(())
}

fn read_plain(data: ByteSource) -> Result<IdxArray> {
    let mut first = vec![0; data.length().min(4 + 4 * MAX_DIMENSIONS as u64) as usize];
    data.read_at(&mut first, 0)?;
    let header = header(&mut first.as_slice())?;
    ensure_values(&header, data.length() - header.begin, "")?;
    let Header { shape, item_size, begin, .. } = header;
    Ok(IdxArray { data, begin, header_size: begin, shape, item_size })
}

fn read_gzip(source: &ByteSource) -> Result<IdxArray> {
    let mut decoder = decompressed(source);
    let header = header(&mut decoder)?;
    ensure!(
        header.values <= MAX_DECOMPRESSED,
        "an idx array of {} has {} bytes, but a .gz is decompressed in memory up to {MAX_DECOMPRESSED}: decompress \
         the file with gunzip",
        dimensions_text(&header.shape),
        header.values
    );
    // Allocates for the actual bytes, not for the size in the header. One byte more than expected shows that the file
    // is too long.
    let mut values = Vec::new();
    let cut = "decompression failed: the file is truncated or damaged: copy it again";
    decoder.by_ref().take(header.values.saturating_add(1)).read_to_end(&mut values).context(cut)?;
    let more = if values.len() as u64 > header.values { "at least " } else { "" };
    ensure_values(&header, values.len() as u64, more)?;
    let Header { shape, item_size, begin: header_size, .. } = header;
    Ok(IdxArray { data: ByteSource::from_memory(source.name(), values), begin: 0, header_size, shape, item_size })
}

/// Returns a reader that decompresses a file.
fn decompressed(source: &ByteSource) -> impl Read {
    MultiGzDecoder::new(BufReader::with_capacity(1 << 16, source.reader()))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::{gzip, idx_array as array};

    fn parsed(bytes: Vec<u8>) -> Result<IdxArray> {
        IdxArray::from_source(ByteSource::from_memory(Path::new("a-ubyte"), bytes))
    }

    #[test]
    fn items_are_read_from_plain_and_gz_files() {
        let values: Vec<u8> = (0..24).collect();
        let plain = array(8, &[4, 2, 3], &values);
        assert_eq!(plain[..4], 0x0000_0803_u32.to_be_bytes());
        let (head, tail) = plain.split_at(20);
        let members = [gzip(head), gzip(tail)].concat();
        let mut errors = Vec::new();
        for bytes in [plain.clone(), gzip(&plain), members] {
            let array = parsed(bytes).expect("read");
            assert_eq!((array.shape(), array.length()), (&[4, 2, 3][..], 4));
            let mut buffer = vec![99; 9];
            assert_eq!(array.read(2, &mut buffer).expect("read"), 6);
            assert_eq!(buffer, [12, 13, 14, 15, 16, 17, 99, 99, 99]);
            errors.push(array.read(4, &mut buffer).expect_err("beyond").to_string());
        }
        errors.dedup();
        expect!["a-ubyte has no item 4: it has 4"].assert_eq(&errors.join("\n"));
        assert_eq!(parsed(gzip(&plain)).expect("read").position(2), Position::DecompressedByte(28));
        assert_eq!(parsed(plain).expect("read").position(2), Position::Byte(28));
    }

    #[test]
    fn every_fault_is_reported() {
        let sound = array(8, &[2, 2], &[1, 2, 3, 4]);
        let mut damaged = gzip(&sound);
        let last = damaged.len() - 5;
        damaged[last] ^= 1;
        let errors = [
            b"\x89PNG".to_vec(),
            array(0x0d, &[1], &[0; 4]),
            array(8, &[], &[]),
            array(8, &[1; 5], &[0]),
            array(8, &[0, 28, 28], &[]),
            array(8, &[u32::MAX; 4], &[]),
            sound[..11].to_vec(),
            sound[..15].to_vec(),
            [&sound[..], b"x"].concat(),
            gzip(&sound[..15]),
            gzip(&[&sound[..], b"xyz"].concat()),
            gzip(&sound)[..20].to_vec(),
            damaged,
            array(8, &[u32::MAX, 4096], &[]),
            gzip(&array(8, &[u32::MAX, 4096], &[])),
        ]
        .map(|bytes| format!("{:#}", parsed(bytes).expect_err("a fault")));
        expect![[r#"
            a-ubyte: the file begins with 89504e47, but an idx array with 0000, its type and its dimensions (00000803 for images, 00000801 for labels): use another file
            a-ubyte: an idx array of type 0d (f32), but only u8 (08) is supported: store it as u8
            a-ubyte: an idx array of 0 dimensions, but only 1 (labels) and 3 (images) are supported: the file is damaged or another array
            a-ubyte: an idx array of 5 dimensions, but only 1 (labels) and 3 (images) are supported: the file is damaged or another array
            a-ubyte: an idx array of 0 x 28 x 28 is empty: create it again
            a-ubyte: an idx array of 4294967295 x 4294967295 x 4294967295 x 4294967295 bytes is too large: the file is damaged
            a-ubyte: the header of an idx array is cut off: copy the file again: failed to fill whole buffer
            a-ubyte: an idx array of 2 x 2 has 4 bytes of values, but the file 3, so the file is truncated or contains another array: copy it again
            a-ubyte: an idx array of 2 x 2 has 4 bytes of values, but the file 5, so the file is truncated or contains another array: copy it again
            a-ubyte: an idx array of 2 x 2 has 4 bytes of values, but the file 3, so the file is truncated or contains another array: copy it again
            a-ubyte: an idx array of 2 x 2 has 4 bytes of values, but the file at least 5, so the file is truncated or contains another array: copy it again
            a-ubyte: decompression failed: the file is truncated or damaged: copy it again: incomplete deflate stream
            a-ubyte: decompression failed: the file is truncated or damaged: copy it again: corrupt gzip stream does not have a matching checksum
            a-ubyte: an idx array of 4294967295 x 4096 has 17592186040320 bytes of values, but the file 0, so the file is truncated or contains another array: copy it again
            a-ubyte: an idx array of 4294967295 x 4096 has 17592186040320 bytes, but a .gz is decompressed in memory up to 2000000000: decompress the file with gunzip"#]].assert_eq(&errors.join("\n"));
    }
}

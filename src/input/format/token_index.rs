//! Index of a token file of Megatron-LM, `.idx` (indexed_dataset.py, version 1): `MMIDIDX`, two zeros, version, type of
//! the tokens, numbers of sequences and of document bounds; then the length of each sequence, its offset, and the bounds.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};

use crate::byte_source::ByteSource;

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
const VERSION: u64 = 1;
const HEADER_BYTES: u64 = 34;
/// Bytes of a sequence: its length (int32) and its offset (int64).
const SEQUENCE_BYTES: u64 = 12;
/// Bytes of a bound between documents (int64).
const DOCUMENT_BYTES: u64 = 8;
/// Elements read at a time.
const CHUNK: u64 = 1 << 13;

/// Integer type of the tokens, named as in NumPy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenType {
    /// Size in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// True if the highest bit is a sign.
    pub is_signed: bool,
}

impl TokenType {
    /// Type of files without an index.
    pub const UINT16: TokenType = TokenType { bytes: 2, is_signed: false };

    /// Returns the value of the token in `bytes`, which are as many as the type has.
    pub fn value(self, bytes: &[u8]) -> i64 {
        let mut wide = [if self.is_signed && bytes.last().is_some_and(|byte| *byte > 127) { 0xff } else { 0 }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    }
}

impl fmt::Display for TokenType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}int{}", if self.is_signed { "" } else { "u" }, 8 * u32::from(self.bytes))
    }
}

/// Contents of an index whose sequences follow one another without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenIndex {
    /// Type of the tokens.
    pub kind: TokenType,
    /// Size of all sequences.
    pub bytes: u64,
}

impl TokenIndex {
    /// Reads and checks an index.
    pub fn from_source(source: &ByteSource) -> Result<TokenIndex> {
        let name = source.name().display();
        let length = source.length();
        ensure!(length >= HEADER_BYTES, "{name} has {length} bytes, less than the header of an index: copy it again");
        let mut header = [0; HEADER_BYTES as usize];
        source.read_at(&mut header, 0)?;
        ensure!(
            header.starts_with(MAGIC),
            "{name} is not an index of Megatron-LM (it does not begin with MMIDIDX): move it away if the .bin file next \
             to it contains uint16 tokens"
        );
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[at + byte]));
        let [version, sequences, documents] = [9, 18, 26].map(number);
        ensure!(
            version == VERSION,
            "{name}: version {version} of the index is not supported: write version {VERSION}, as Megatron-LM does"
        );
        let kind = token_type(header[17]).with_context(|| source.location(17).to_string())?;
        let expected = u128::from(sequences) * u128::from(SEQUENCE_BYTES)
            + u128::from(documents) * u128::from(DOCUMENT_BYTES)
            + u128::from(HEADER_BYTES);
        ensure!(
            u128::from(length) == expected,
            "{name} has {length} bytes, but an index of {sequences} sequences and {documents} document bounds has \
             {expected}: copy the file again"
        );
        let bytes = check_sequences(source, kind, sequences)?;
        check_documents(source, sequences, documents)?;
        Ok(TokenIndex { kind, bytes })
    }
}

/// Returns the type of a code of Megatron-LM's `DType`.
fn token_type(code: u8) -> Result<TokenType> {
    let (bytes, is_signed) = match code {
        1 => (1, false),
        2 => (1, true),
        3 => (2, true),
        4 => (4, true),
        5 => (8, true),
        8 => (2, false),
        6 | 7 => bail!("type {code} is a floating-point type: write tokens as uint16 or int32"),
        _ => bail!("type {code} is not one of 1 to 8: copy the file again"),
    };
    Ok(TokenType { bytes, is_signed })
}

/// Calls `check` with the number and the offset of each of `count` elements of `WIDTH` bytes after `start`.
fn for_each<const WIDTH: usize>(
    source: &ByteSource,
    start: u64,
    count: u64,
    mut check: impl FnMut(u64, [u8; WIDTH]) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; WIDTH * count.min(CHUNK) as usize];
    let mut done = 0;
    while done < count {
        let chunk = (count - done).min(CHUNK) as usize;
        source.read_at(&mut buffer[..WIDTH * chunk], start + done * WIDTH as u64)?;
        for element in buffer[..WIDTH * chunk].as_chunks::<WIDTH>().0 {
            check(done, *element)?;
            done += 1;
        }
    }
    Ok(())
}

/// Returns the size of all sequences.
fn check_sequences(source: &ByteSource, kind: TokenType, sequences: u64) -> Result<u64> {
    let pointers = HEADER_BYTES + 4 * sequences;
    let (mut bytes, mut first_pointer, mut pointer_bytes) = (0_u64, 0, vec![0; 8 * CHUNK as usize]);
    for_each(source, HEADER_BYTES, sequences, |sequence, length| {
        if sequence.is_multiple_of(CHUNK) {
            first_pointer = sequence;
            let count = (sequences - sequence).min(CHUNK) as usize;
            source.read_at(&mut pointer_bytes[..8 * count], pointers + 8 * sequence)?;
        }
        let length = i32::from_le_bytes(length);
        ensure!(
            length >= 0,
            "{}: sequence {sequence} has {length} tokens: copy the file again",
            source.location(HEADER_BYTES + 4 * sequence)
        );
        let (chunks, _) = pointer_bytes.as_chunks::<8>();
        let pointer = u64::from_le_bytes(chunks[(sequence - first_pointer) as usize]);
        ensure!(
            pointer == bytes,
            "{}: sequence {sequence} starts at byte {pointer}, but the sequences before it end at {bytes}: write the \
             file again",
            source.location(pointers + 8 * sequence)
        );
        bytes += u64::from(length.unsigned_abs()) * u64::from(kind.bytes);
        Ok(())
    })?;
    Ok(bytes)
}

fn check_documents(source: &ByteSource, sequences: u64, documents: u64) -> Result<()> {
    let (start, mut last) = (HEADER_BYTES + SEQUENCE_BYTES * sequences, 0);
    for_each(source, start, documents, |document, bound| {
        let bound = u64::from_le_bytes(bound);
        ensure!(
            (last..=sequences).contains(&bound),
            "{}: document bound {bound} is not one of {last} to {sequences}: copy the file again",
            source.location(start + DOCUMENT_BYTES * document)
        );
        last = bound;
        Ok(())
    })?;
    ensure!(
        last == sequences,
        "{}: the documents end at sequence {last} of {sequences}: write the file again",
        source.name().display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect;

    use super::*;
    use crate::testing::token_index;

    fn read(bytes: Vec<u8>) -> Result<TokenIndex> {
        TokenIndex::from_source(&ByteSource::from_memory(Path::new("a.idx"), bytes))
    }

    #[test]
    fn index_gives_type_and_size() {
        for (code, name, width) in
            [(1, "uint8", 1), (3, "int16", 2), (4, "int32", 4), (5, "int64", 8), (8, "uint16", 2)]
        {
            let index = read(token_index(code, width, &[3, 0, 70_000])).expect("an index");
            assert_eq!((index.kind.to_string().as_str(), index.bytes), (name, 70_003 * u64::from(width)));
        }
        let many = vec![2; 2 * CHUNK as usize + 5];
        assert_eq!(read(token_index(8, 2, &many)).expect("an index").bytes, 4 * many.len() as u64);
        assert_eq!(read(token_index(4, 4, &[])).expect("an index").bytes, 0);
    }

    #[test]
    fn every_fault_is_reported() {
        let sound = token_index(8, 2, &[3, 5, 4]);
        let changed = |at: usize, value: u8| {
            let mut bytes = sound.clone();
            bytes[at] = value;
            bytes
        };
        let errors = [
            sound[..20].to_vec(),
            changed(0, b'm'),
            changed(9, 2),
            changed(17, 7),
            changed(17, 9),
            changed(18, 4),
            sound[..sound.len() - 1].to_vec(),
            [&sound[..], &[0]].concat(),
            changed(25, 0xff),
            changed(41, 0x80),
            changed(62, 9),
            changed(70, 4),
            changed(sound.len() - 8, 2),
        ]
        .map(|bytes| format!("{:#}", read(bytes).expect_err("damaged")));
        expect![[r#"
            a.idx has 20 bytes, less than the header of an index: copy it again
            a.idx is not an index of Megatron-LM (it does not begin with MMIDIDX): move it away if the .bin file next to it contains uint16 tokens
            a.idx: version 2 of the index is not supported: write version 1, as Megatron-LM does
            a.idx, byte 17: type 7 is a floating-point type: write tokens as uint16 or int32
            a.idx, byte 17: type 9 is not one of 1 to 8: copy the file again
            a.idx has 102 bytes, but an index of 4 sequences and 4 document bounds has 114: copy the file again
            a.idx has 101 bytes, but an index of 3 sequences and 4 document bounds has 102: copy the file again
            a.idx has 103 bytes, but an index of 3 sequences and 4 document bounds has 102: copy the file again
            a.idx has 102 bytes, but an index of 18374686479671623683 sequences and 4 document bounds has 220496237756059484262: copy the file again
            a.idx, byte 38: sequence 1 has -2147483643 tokens: copy the file again
            a.idx, byte 62: sequence 2 starts at byte 9, but the sequences before it end at 16: write the file again
            a.idx, byte 70: document bound 4 is not one of 0 to 3: copy the file again
            a.idx: the documents end at sequence 2 of 3: write the file again"#]].assert_eq(&errors.join("\n"));
    }
}

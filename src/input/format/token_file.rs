//! Token files, `.bin`: little-endian integers without a header, for language models. Those of nanoGPT are uint16. Those
//! of Megatron-LM have an [index](super::token_index) next to them, which contains the type.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ringmark_core::file::atomic_file;

use crate::byte_source::ByteSource;
use crate::format::token_index::{TokenIndex, TokenType};

/// A file of at least one token.
#[derive(Debug)]
pub struct TokenFile {
    source: ByteSource,
    kind: TokenType,
}

/// Returns true if the file has the extension of token files.
pub fn is_named(file: &Path) -> bool {
    file.extension() == Some(OsStr::new("bin"))
}

impl TokenFile {
    /// Opens a file, and its index if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the size of the file is not that of whole tokens, or not the size in the index.
    pub fn open(path: &Path) -> Result<TokenFile> {
        let source = ByteSource::open(path)?;
        let index = path.with_extension("idx");
        let kind = match atomic_file::open(&index) {
            Ok(_) => {
                let TokenIndex { kind, bytes } = TokenIndex::from_source(&ByteSource::open(&index)?)?;
                ensure!(
                    bytes == source.length(),
                    "{} has {} bytes, but the sequences in {} have {bytes}: copy both files again",
                    path.display(),
                    source.length(),
                    index.display()
                );
                kind
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => TokenType::UINT16,
            Err(error) => return Err(error).with_context(|| format!("{} cannot be opened", index.display())),
        };
        let width = u64::from(kind.bytes);
        if !source.length().is_multiple_of(width) {
            bail!(
                "{} has {} bytes, not a multiple of the {width} of a token ({kind}): copy the file again, or write \
                 tokens as uint16",
                path.display(),
                source.length()
            );
        }
        Ok(TokenFile { source, kind })
    }

    /// Returns the file's path as passed.
    pub fn name(&self) -> &Path {
        self.source.name()
    }

    /// Returns the type of the tokens.
    pub fn kind(&self) -> TokenType {
        self.kind
    }

    /// Returns the number of tokens.
    pub fn length(&self) -> u64 {
        self.source.length() / u64::from(self.kind.bytes)
    }

    /// Returns the offset of token `index` in bytes.
    pub fn offset(&self, index: u64) -> u64 {
        index * u64::from(self.kind.bytes)
    }

    /// Fills `buffer` with tokens from token `first` on, as int64 in the byte order of the machine.
    pub fn read(&self, first: u64, buffer: &mut [u8]) -> Result<()> {
        const WIDE: usize = size_of::<i64>();
        let (width, count) = (usize::from(self.kind.bytes), buffer.len() / WIDE);
        // The end of the buffer takes the bytes of the file: a token is read before wider ones overwrite it.
        let start = (WIDE - width) * count;
        self.source.read_at(&mut buffer[start..], self.offset(first))?;
        for index in 0..count {
            let stored = start + index * width;
            let value = self.kind.value(&buffer[stored..stored + width]);
            buffer[index * WIDE..][..WIDE].copy_from_slice(&value.to_ne_bytes());
        }
        Ok(())
    }
}

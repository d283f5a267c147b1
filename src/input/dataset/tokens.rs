//! Token files as windows of the tokens of a sequence and the next token. Windows of a file overlap by one token, so
//! that every token except the first is a target once per epoch, as in Megatron-LM.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use ringmark_core::number_text::count;

use crate::byte_source::{Position, grow};
use crate::dataset::item::{Item, ItemFormat};
use crate::format::token_file::{self, TokenFile};
use crate::format::token_index::TokenType;

/// Windows of one or several files of one type. No window is part of two files.
#[derive(Debug)]
pub struct Tokens {
    kind: TokenType,
    /// Tokens of a sequence.
    sequence: u32,
    /// Each file with the number of windows in the files before it.
    files: Vec<(u64, TokenFile)>,
    length: u64,
}

impl Tokens {
    /// Opens files; windows are numbered in the order of `paths`.
    pub fn open(paths: &[PathBuf], sequence: u32) -> Result<Tokens> {
        let mut tokens = Tokens { kind: TokenType::UINT16, sequence, files: Vec::new(), length: 0 };
        for path in paths {
            ensure!(
                token_file::is_named(path),
                "{} is not a token file, whose name ends with .bin: use files of nanoGPT or Megatron-LM, or a network \
                 of images",
                path.display()
            );
            let file = TokenFile::open(path)?;
            if let Some((_, first)) = tokens.files.first() {
                ensure!(
                    first.kind() == file.kind(),
                    "{} contains {} tokens and {} {}: use files of one type",
                    path.display(),
                    file.kind(),
                    first.name().display(),
                    first.kind()
                );
            }
            let windows = (file.length() - 1) / u64::from(sequence);
            ensure!(
                windows > 0,
                "{} has {}, fewer than the {} of a window (--sequence-length {sequence} and the next token): use a \
                 shorter --sequence-length or a longer file",
                path.display(),
                count(file.length(), "token"),
                u64::from(sequence) + 1
            );
            tokens.kind = file.kind();
            tokens.files.push((tokens.length, file));
            tokens.length += windows;
        }
        if tokens.files.is_empty() {
            bail!("no token file given");
        }
        Ok(tokens)
    }

    /// Returns the form of every window.
    pub fn item_format(&self) -> ItemFormat {
        ItemFormat::Tokens { stored_bytes: self.kind.bytes }
    }

    /// Returns the number of windows.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the files in the order of the windows.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(_, file)| file.name())
    }

    /// Describes the data for users: `2 token files of uint16`.
    pub fn description(&self) -> String {
        match self.files.len() {
            1 => format!("a token file of {}", self.kind),
            files => format!("{files} token files of {}", self.kind),
        }
    }

    /// Reads window `index`.
    pub fn read(&self, index: u64, item: &mut Item) -> Result<()> {
        ensure!(index < self.length, "no window {index} in {} ({} windows)", self.description(), self.length);
        let (first, file) = &self.files[self.files.partition_point(|(first, _)| *first <= index) - 1];
        let token = (index - first) * u64::from(self.sequence);
        let bytes = size_of::<i64>() * (self.sequence as usize + 1);
        grow(&mut item.buffer, bytes)?;
        file.read(token, &mut item.buffer[..bytes])?;
        item.location.set(file.name(), Position::Byte(file.offset(token)));
        item.content = 0..bytes;
        item.form = self.item_format();
        item.id = index;
        item.labels.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect;
    use ringmark_core::dimension::{ImageLimits, SampleSize};

    use super::*;
    use crate::dataset::Dataset;
    use crate::testing::temporary_folder::without_folder;
    use crate::testing::token_index;

    fn tokens(dataset: &Dataset, index: u64) -> Vec<i64> {
        let mut item = Item::default();
        dataset.read(index, &mut item).expect("a window");
        item.bytes().as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect()
    }

    fn open(paths: &[PathBuf], sequence: u32) -> Result<Dataset> {
        Dataset::open_samples(paths, SampleSize::Tokens(sequence), ImageLimits::default())
    }

    #[test]
    fn windows_overlap_by_one_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two] = ["train.bin", "data_2.bin"].map(|name| folder.path().join(name));
        let bytes = |range: std::ops::Range<u16>| range.flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        fs::write(&one, bytes(0..10)).expect("written");
        fs::write(&two, bytes(65_530..65_535)).expect("written");
        let dataset = open(&[one, two], 3).expect("token files");
        assert_eq!((dataset.length(), dataset.description().as_str()), (Some(4), "2 token files of uint16"));
        let windows: Vec<_> = (0..4).map(|index| tokens(&dataset, index)).collect();
        assert_eq!(windows, [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [65_530, 65_531, 65_532, 65_533]]);
        assert!(dataset.read(4, &mut Item::default()).is_err());
    }

    #[test]
    fn index_determines_the_type() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.bin");
        let values = [0, 5, -1, i64::from(i32::MAX), i64::from(i16::MIN), 200, -128];
        for (code, width) in [(1, 1), (2, 1), (3, 2), (4, 4), (5, 8), (8, 2)] {
            let stored: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()[..width].to_vec()).collect();
            fs::write(&path, stored).expect("written");
            fs::write(path.with_extension("idx"), token_index(code, width as u32, &[3, 4])).expect("written");
            let dataset = open(std::slice::from_ref(&path), 6).expect("token files");
            let expected = values.map(|value| match code {
                1 => (value as u8).into(),
                2 => (value as i8).into(),
                3 => (value as i16).into(),
                4 => (value as i32).into(),
                8 => (value as u16).into(),
                _ => value,
            });
            assert_eq!(tokens(&dataset, 0), expected, "type {code}");
        }
    }

    #[test]
    fn unsuitable_files_are_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).expect("written");
            path
        };
        let sound = write("a.bin", &[0; 20]);
        let wide = write("wide.bin", &[0; 40]);
        write("wide.idx", &token_index(4, 4, &[10]));
        let short = write("short.bin", &[0; 36]);
        write("short.idx", &token_index(4, 4, &[10]));
        let foreign = write("foreign.bin", &[0; 20]);
        write("foreign.idx", b"0\t0\n0\t0\n0\t0\n0\t0\n0\t0\n0\t0\n0\t0\n0\t0\n0\t0\n");
        let several = [
            vec![folder.path().to_owned()],
            vec![write("a.rec", &[0; 20])],
            vec![write("odd.bin", &[0; 21])],
            vec![write("empty.bin", &[])],
            vec![write("one.bin", &[0; 2])],
            vec![write("few.bin", &[0; 8])],
            vec![sound.clone(), wide],
            vec![short],
            vec![foreign],
            vec![folder.path().join("none.bin")],
        ];
        let errors = several.map(|paths| without_folder(&format!("{:#}", open(&paths, 4).expect_err("unsuitable"))));
        expect![[r#"
            DIR is not a token file, whose name ends with .bin: use files of nanoGPT or Megatron-LM, or a network of images
            DIR/a.rec is not a token file, whose name ends with .bin: use files of nanoGPT or Megatron-LM, or a network of images
            DIR/odd.bin has 21 bytes, not a multiple of the 2 of a token (uint16): copy the file again, or write tokens as uint16
            DIR/empty.bin is empty (0 bytes): recreate or remove it
            DIR/one.bin has 1 token, fewer than the 5 of a window (--sequence-length 4 and the next token): use a shorter --sequence-length or a longer file
            DIR/few.bin has 4 tokens, fewer than the 5 of a window (--sequence-length 4 and the next token): use a shorter --sequence-length or a longer file
            DIR/wide.bin contains int32 tokens and DIR/a.bin uint16: use files of one type
            DIR/short.bin has 36 bytes, but the sequences in DIR/short.idx have 40: copy both files again
            DIR/foreign.idx is not an index of Megatron-LM (it does not begin with MMIDIDX): move it away if the .bin file next to it contains uint16 tokens
            DIR/none.bin cannot be opened: No such file or directory (os error 2)"#]].assert_eq(&errors.join("\n"));
        let mut item = Item::default();
        let dataset = open(&[write("b.bin", &[0, 0, 1, 0, 255, 0, 0, 1, 0, 0])], 4).expect("a window");
        dataset.read(0, &mut item).expect("read");
        item.check_tokens(257).expect("all are in the vocabulary");
        let error = without_folder(&item.check_tokens(256).expect_err("256").to_string());
        expect!["DIR/b.bin, byte 6: token 256 is not one of the vocabulary, 0 to 255: use the tokenizer of the network, or a network with a larger vocabulary"].assert_eq(&error);
        let errors = [sound.clone(), write("train.bin", &[0; 20])]
            .map(|path| without_folder(&Dataset::open(&[path]).expect_err("no images").to_string()));
        expect![[r#"
            DIR/a.bin is not one of CIFAR's files, and token files (.bin) need a language model, such as --model gpt2-124m
            DIR/train.bin has 20 bytes, not a multiple of 3073 (CIFAR-10) or 3074 (CIFAR-100): copy the file again, or use a language model for token files"#]].assert_eq(&errors.join("\n"));
        // A file that becomes shorter after it was opened.
        let dataset = open(std::slice::from_ref(&sound), 4).expect("windows");
        fs::write(&sound, [0; 12]).expect("written");
        let error = without_folder(&format!("{:#}", dataset.read(1, &mut item).expect_err("truncated")));
        expect!["DIR/a.bin, byte 12: the file was truncated while being read (it had 20 bytes when opened): use a file that is not being written"].assert_eq(&error);
    }
}

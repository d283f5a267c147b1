//! CIFAR-10 and CIFAR-100 in their binary version: records of a label (CIFAR-100: superclass and class) and three
//! planes of 32 x 32 pixels, <https://www.cs.toronto.edu/~kriz/cifar.html>. The files have no header: a
//! file is checked by its size and its labels.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::byte_source::{ByteSource, Position, grow};
use crate::dataset::item::{Item, ItemFormat};

const EDGE: u32 = 32;
const CHANNELS: usize = 3;
const PLANE: usize = (EDGE * EDGE) as usize;
const PIXELS: usize = CHANNELS * PLANE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    /// Labels of a record; the last one is the class.
    labels: usize,
    classes: u8,
    /// File with one class name per line, in the folder of the records.
    names_file: &'static str,
}

const CIFAR_10: Kind = Kind { name: "CIFAR-10", labels: 1, classes: 10, names_file: "batches.meta.txt" };
const CIFAR_100: Kind = Kind { name: "CIFAR-100", labels: 2, classes: 100, names_file: "fine_label_names.txt" };

impl Kind {
    /// Returns the kind of which a file of this size consists of whole records.
    fn from_size(bytes: u64) -> Option<Kind> {
        [CIFAR_10, CIFAR_100].into_iter().find(|kind| bytes.is_multiple_of(kind.record() as u64))
    }

    /// Size of a record in bytes.
    fn record(self) -> usize {
        self.labels + PIXELS
    }
}

/// Images with one class each, from one or several files.
#[derive(Debug)]
pub struct Cifar {
    kind: Kind,
    /// Each file with the number of images in the files before it.
    files: Vec<(u64, ByteSource)>,
    length: u64,
    /// Class names, or empty if the file with names is missing.
    names: Vec<String>,
}

/// Returns true if the file name is that of binary CIFAR records for training or validation.
pub fn is_records(file: &Path) -> bool {
    is_training(file) || matches!(name(file), "test_batch.bin" | "test.bin")
}

/// Returns true if the file name is that of binary CIFAR records for training.
pub fn is_training(file: &Path) -> bool {
    name(file) == "train.bin" || name(file).starts_with("data_batch_") && name(file).ends_with(".bin")
}

fn name(file: &Path) -> &str {
    file.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

impl Cifar {
    /// Opens files of one kind; images are numbered in the order of `paths`.
    pub fn open(paths: &[PathBuf]) -> Result<Cifar> {
        let mut cifar: Option<Cifar> = None;
        for path in paths {
            let source = ByteSource::open(path)?;
            let bytes = source.length();
            let Some(kind) = Kind::from_size(bytes) else {
                bail!(
                    "{} has {bytes} bytes, not a multiple of {} (CIFAR-10) or {} (CIFAR-100): copy the file \
                     again, or use a language model for token files",
                    path.display(),
                    CIFAR_10.record(),
                    CIFAR_100.record()
                );
            };
            let all = cifar.get_or_insert_with(|| Cifar { kind, files: Vec::new(), length: 0, names: Vec::new() });
            ensure!(
                all.kind == kind,
                "{} is {}, the files before it are {}: use files of one data set",
                path.display(),
                kind.name,
                all.kind.name
            );
            all.files.push((all.length, source));
            all.length += bytes / kind.record() as u64;
        }
        let mut cifar = cifar.context("no CIFAR file given")?;
        // The names are informative only: records can be read without them.
        let names = fs::read_to_string(paths[0].with_file_name(cifar.kind.names_file)).unwrap_or_default();
        cifar.names = names.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Ok(cifar)
    }

    /// Returns the form of every image.
    pub fn item_format(&self) -> ItemFormat {
        ItemFormat::Pixels { height: EDGE, width: EDGE, channels: CHANNELS as u32 }
    }

    /// Returns the number of images.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the class names by label; empty if the data set's file of names is missing.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the files in the order of the images.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(_, source)| source.name())
    }

    /// Describes the data for users: `5 files of CIFAR-10`.
    pub fn description(&self) -> String {
        match self.files.len() {
            1 => format!("a file of {}", self.kind.name),
            files => format!("{files} files of {}", self.kind.name),
        }
    }

    /// Reads image `index`, with the channels of a pixel adjacent.
    pub fn read(&self, index: u64, item: &mut Item) -> Result<()> {
        ensure!(index < self.length, "no image {index} in {} ({} images)", self.description(), self.length);
        let file = self.files.partition_point(|(first, _)| *first <= index) - 1;
        let (first, source) = &self.files[file];
        let (record, labels) = (self.kind.record(), self.kind.labels);
        let offset = (index - first) * record as u64;
        // The record is read behind the place of the pixels, so that one buffer serves both.
        grow(&mut item.buffer, PIXELS + record)?;
        let (pixels, stored) = item.buffer[..PIXELS + record].split_at_mut(PIXELS);
        source.read_at(stored, offset)?;
        item.location.set(source.name(), Position::Byte(offset));
        let (label, planes) = (stored[labels - 1], &stored[labels..]);
        ensure!(
            label < self.kind.classes,
            "{}: label {label} is not a class of {} (0 to {}): the file is damaged or of another format",
            item.location,
            self.kind.name,
            self.kind.classes - 1
        );
        for (place, pixel) in pixels.chunks_exact_mut(CHANNELS).enumerate() {
            for (channel, value) in pixel.iter_mut().enumerate() {
                *value = planes[channel * PLANE + place];
            }
        }
        item.content = 0..PIXELS;
        item.form = self.item_format();
        item.id = index;
        item.labels.clear();
        item.labels.push(f32::from(label));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// A record whose value at each place is (image + 3 * place + channel) modulo 256.
    fn record(image: usize, labels: &[u8]) -> Vec<u8> {
        let value = |at: usize| ((image + 3 * (at % PLANE) + at / PLANE) % 256) as u8;
        labels.iter().copied().chain((0..PIXELS).map(value)).collect()
    }

    fn write(folder: &Path, name: &str, images: &[(usize, &[u8])]) -> PathBuf {
        let path = folder.join(name);
        let records: Vec<u8> = images.iter().flat_map(|(image, labels)| record(*image, labels)).collect();
        fs::write(&path, records).expect("written");
        path
    }

    fn error(paths: &[PathBuf], folder: &Path) -> String {
        let read_all = || {
            let cifar = Cifar::open(paths)?;
            let mut item = Item::default();
            (0..=cifar.length()).try_for_each(|index| cifar.read(index, &mut item))
        };
        let error: anyhow::Error = read_all().expect_err("an error");
        format!("{error:#}").replace(&folder.display().to_string(), "DIR")
    }

    #[test]
    fn files_are_one_data_set_with_interleaved_pixels() {
        let folder = tempfile::tempdir().expect("created");
        let one = write(folder.path(), "data_batch_1.bin", &[(0, &[6]), (1, &[9])]);
        let two = write(folder.path(), "data_batch_2.bin", &[(2, &[0])]);
        fs::write(folder.path().join("batches.meta.txt"), "airplane\nautomobile\n\n").expect("written");
        let cifar = Cifar::open(&[one, two.clone()]).expect("opened");
        assert_eq!((cifar.length(), cifar.description().as_str()), (3, "2 files of CIFAR-10"));
        assert_eq!(cifar.names(), ["airplane", "automobile"]);
        let mut item = Item::default();
        for (index, class) in [(2, 0), (0, 6), (1, 9)] {
            cifar.read(index, &mut item).expect("read");
            let expected: Vec<u8> = (0..PIXELS).map(|at| ((index as usize + at) % 256) as u8).collect();
            assert_eq!((item.bytes(), item.class(10).expect("a class"), item.id), (&expected[..], class, index));
        }
        cifar.read(2, &mut item).expect("read");
        assert_eq!(item.location.to_string(), format!("{}, byte 0", two.display()));
    }

    #[test]
    fn cifar_100_labels_are_fine_classes() {
        let folder = tempfile::tempdir().expect("created");
        let cifar = Cifar::open(&[write(folder.path(), "train.bin", &[(5, &[11, 99])])]).expect("opened");
        let mut item = Item::default();
        cifar.read(0, &mut item).expect("read");
        assert_eq!((cifar.description().as_str(), item.class(100).expect("a class")), ("a file of CIFAR-100", 99));
        assert_eq!(item.bytes()[..4], [5, 6, 7, 8]);
    }

    #[test]
    fn damaged_and_mixed_files_are_rejected() {
        let folder = tempfile::tempdir().expect("created");
        let ten = write(folder.path(), "data_batch_1.bin", &[(0, &[6])]);
        let hundred = write(folder.path(), "train.bin", &[(0, &[1, 2])]);
        let other = write(folder.path(), "data_batch_2.bin", &[(0, &[3]), (0, &[10])]);
        let cut = folder.path().join("test_batch.bin");
        fs::write(&cut, &record(0, &[1])[1..]).expect("written");
        let errors =
            [vec![ten.clone(), hundred], vec![cut], vec![other], vec![ten]].map(|paths| error(&paths, folder.path()));
        expect![[r#"
            DIR/train.bin is CIFAR-100, the files before it are CIFAR-10: use files of one data set
            DIR/test_batch.bin has 3072 bytes, not a multiple of 3073 (CIFAR-10) or 3074 (CIFAR-100): copy the file again, or use a language model for token files
            DIR/data_batch_2.bin, byte 3073: label 10 is not a class of CIFAR-10 (0 to 9): the file is damaged or of another format
            no image 1 in a file of CIFAR-10 (1 images)"#]].assert_eq(&errors.join("\n"));
    }
}

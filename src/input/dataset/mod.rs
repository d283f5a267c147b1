//! Data sets: files or folders as items, independent of their format: images with labels, or windows of tokens. Items
//! are not decoded.
//!
//! The format of images is detected from its content: RecordIO by its magic number, an array of MNIST by its first
//! bytes, CIFAR by its file names, and a folder by its files.

mod cifar;
pub mod item;
mod mnist;
pub(crate) mod record_files;
mod tokens;

use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ringmark_core::dimension::{ImageLimits, Model, SampleSize};
use ringmark_core::number_text::count;

use crate::byte_source::{ByteSource, Position, read_image};
use crate::dataset::cifar::Cifar;
use crate::dataset::item::{Item, ItemFormat};
use crate::dataset::mnist::Mnist;
use crate::dataset::record_files::{RecordFiles, RecordStream};
use crate::dataset::tokens::Tokens;
use crate::format::idx_array::is_idx;
use crate::format::image_folder::ImageFolder;
use crate::format::record_io::MAGIC;
use crate::format::token_file;
use crate::shard::Shard;

/// Items that any thread can read.
#[derive(Debug)]
pub struct Dataset {
    kind: DatasetKind,
    limits: ImageLimits,
}

#[derive(Debug)]
enum DatasetKind {
    Records(RecordFiles),
    Folder(ImageFolder),
    Mnist(Mnist),
    Cifar(Cifar),
    Tokens(Tokens),
}

impl Dataset {
    /// Opens the data at one path, or at several paths of `.rec` files or of CIFAR, with the default image limits.
    pub fn open(paths: &[PathBuf]) -> Result<Dataset> {
        Dataset::open_within(paths, ImageLimits::default())
    }

    /// Opens the data like [`open`](Dataset::open), with other limits.
    pub fn open_within(paths: &[PathBuf], limits: ImageLimits) -> Result<Dataset> {
        let kind = match paths {
            [] => bail!("no data file or folder given"),
            [folder] if folder.is_dir() => open_folder(folder, limits)?,
            [file] => open_file(file, limits)?,
            several if several.iter().all(|file| cifar::is_records(file)) => DatasetKind::Cifar(Cifar::open(several)?),
            several => {
                for file in several {
                    ensure!(
                        first_bytes(file)? == MAGIC,
                        "{} is neither a RecordIO nor a CIFAR file, and only those can be listed: use one file or \
                         folder",
                        file.display()
                    );
                }
                DatasetKind::Records(RecordFiles::open(several, limits)?)
            }
        };
        Ok(Dataset { kind, limits })
    }

    /// Opens images like [`open_within`](Dataset::open_within), or token files as windows of a sequence and its next
    /// token. Token files have no magic number, so the network determines which of them `paths` are.
    pub fn open_samples(paths: &[PathBuf], size: SampleSize, limits: ImageLimits) -> Result<Dataset> {
        match size {
            SampleSize::Pixels(_) => Dataset::open_within(paths, limits),
            SampleSize::Tokens(sequence) => {
                Ok(Dataset { kind: DatasetKind::Tokens(Tokens::open(paths, sequence)?), limits })
            }
        }
    }

    /// Returns the number of items, if known: RecordIO files without an index do not contain it.
    pub fn length(&self) -> Option<u64> {
        match &self.kind {
            DatasetKind::Records(files) => files.length(),
            DatasetKind::Folder(folder) => Some(folder.length()),
            DatasetKind::Mnist(arrays) => Some(arrays.length()),
            DatasetKind::Cifar(files) => Some(files.length()),
            DatasetKind::Tokens(files) => Some(files.length()),
        }
    }

    /// Returns the encoding of the items; image files differ in size.
    pub fn item_format(&self) -> ItemFormat {
        match &self.kind {
            DatasetKind::Records(_) | DatasetKind::Folder(_) => ItemFormat::Encoded,
            DatasetKind::Mnist(arrays) => arrays.item_format(),
            DatasetKind::Cifar(files) => files.item_format(),
            DatasetKind::Tokens(files) => files.item_format(),
        }
    }

    /// Returns the class names by label; empty if only numbers are known.
    pub fn classes(&self) -> &[String] {
        match &self.kind {
            DatasetKind::Folder(folder) => folder.classes(),
            DatasetKind::Cifar(files) => files.names(),
            DatasetKind::Records(_) | DatasetKind::Mnist(_) | DatasetKind::Tokens(_) => &[],
        }
    }

    /// Describes the data for users: `2 RecordIO files without index`.
    pub fn description(&self) -> String {
        match &self.kind {
            DatasetKind::Records(files) => {
                let index = if files.length().is_some() { "with" } else { "without" };
                format!("{} {index} index", count(files.files(), "RecordIO file"))
            }
            DatasetKind::Folder(folder) => format!("a folder of {} classes", folder.classes().len()),
            DatasetKind::Mnist(arrays) => format!("an idx array with labels in {}", arrays.labels().display()),
            DatasetKind::Cifar(files) => files.description(),
            DatasetKind::Tokens(files) => files.description(),
        }
    }

    /// Describes the data like [`description`](Dataset::description), with skipped files, which may differ from host to host.
    pub fn description_with_ignored(&self) -> String {
        let DatasetKind::Folder(folder) = &self.kind else { return self.description() };
        let left_out = match folder.left_out() {
            0 => String::new(),
            1 => ", ignoring 1 file that is not an image or not in a class".to_owned(),
            files => format!(", ignoring {files} files that are not images or not in a class"),
        };
        let repeated = match folder.repeated() {
            0 => "",
            _ => ", each folder once although several links lead to one",
        };
        format!("{}{left_out}{repeated}", self.description())
    }

    /// Returns the files that contain the items.
    pub fn paths(&self) -> Box<dyn Iterator<Item = PathBuf> + '_> {
        match &self.kind {
            DatasetKind::Records(files) => Box::new(files.paths().map(Path::to_owned)),
            DatasetKind::Folder(folder) => {
                let images = (0..folder.length()).filter_map(|index| folder.image(index));
                Box::new(images.map(|(name, _)| folder.root().join(name)))
            }
            DatasetKind::Mnist(arrays) => Box::new(std::iter::once(arrays.images().to_owned())),
            DatasetKind::Cifar(files) => Box::new(files.paths().map(Path::to_owned)),
            DatasetKind::Tokens(files) => Box::new(files.paths().map(Path::to_owned)),
        }
    }

    /// Reads item `index` into `item`, reusing its memory.
    pub fn read(&self, index: u64, item: &mut Item) -> Result<()> {
        match &self.kind {
            DatasetKind::Records(files) => files.read(index, item),
            DatasetKind::Mnist(arrays) => arrays.read(index, item),
            DatasetKind::Cifar(files) => files.read(index, item),
            DatasetKind::Tokens(files) => files.read(index, item),
            DatasetKind::Folder(folder) => read_item(folder, index, &self.limits, item),
        }
    }

    /// Returns the records of a part, for data that can only be read sequentially.
    ///
    /// # Errors
    ///
    /// Fails for data with random access, and if a record header at the start or end of the part is invalid.
    pub fn records(&self, part: Shard) -> Result<RecordStream> {
        match &self.kind {
            DatasetKind::Records(files) if files.length().is_none() => files.stream(part),
            _ => bail!("{} can be read by number: use an order of training", self.description()),
        }
    }

    /// Returns the items of a part in storage order.
    pub fn stream(&self, part: Shard) -> Result<Stream<'_>> {
        let way = match (&self.kind, self.length()) {
            (DatasetKind::Records(files), None) => StreamSource::ByBytes(files.stream(part)?),
            (_, length) => StreamSource::ByNumber(self, part.item_range(length.unwrap_or_default())),
        };
        Ok(Stream(way))
    }
}

/// Items of a part, in order.
pub struct Stream<'a>(StreamSource<'a>);

enum StreamSource<'a> {
    ByNumber(&'a Dataset, Range<u64>),
    ByBytes(RecordStream),
}

impl Stream<'_> {
    /// Reads the next item into `item`; returns false after the last.
    pub fn next(&mut self, item: &mut Item) -> Result<bool> {
        match &mut self.0 {
            StreamSource::ByBytes(records) => Ok(records.next(item)?.is_some()),
            StreamSource::ByNumber(dataset, range) => match range.next() {
                Some(index) => dataset.read(index, item).map(|()| true),
                None => Ok(false),
            },
        }
    }
}

fn read_item(folder: &ImageFolder, index: u64, limits: &ImageLimits, item: &mut Item) -> Result<()> {
    let image = folder.image(index);
    let (name, label) =
        image.with_context(|| format!("image {index} does not exist: there are {}", folder.length()))?;
    item.location.set(folder.root(), Position::Whole);
    item.location.file.push(name);
    // An empty file is an image that cannot be decoded, like an empty record.
    let length = read_image(&item.location.file, limits, &mut item.buffer)?;
    item.content = 0..length;
    item.form = ItemFormat::Encoded;
    item.id = index;
    item.labels.clear();
    item.labels.push(label as f32);
    Ok(())
}

fn first_bytes(file: &Path) -> Result<[u8; 4]> {
    let source = ByteSource::open(file)?;
    let mut first = [0; 4];
    let length = source.length().min(4) as usize;
    source.read_at(&mut first[..length], 0)?;
    Ok(first)
}

fn open_file(file: &Path, limits: ImageLimits) -> Result<DatasetKind> {
    if cifar::is_records(file) {
        return Ok(DatasetKind::Cifar(Cifar::open(&[file.to_owned()])?));
    }
    let first = first_bytes(file)?;
    if first == MAGIC {
        return Ok(DatasetKind::Records(RecordFiles::open(&[file.to_owned()], limits)?));
    }
    ensure!(
        !token_file::is_named(file),
        "{} is not one of CIFAR's files, and token files (.bin) need a language model, such as --model {}",
        file.display(),
        Model::Gpt2Small
    );
    ensure!(
        is_idx(&first),
        "{} (first bytes {:02x}{:02x}{:02x}{:02x}) contains no training data: pass .rec files (`ringmark pack` writes \
         them), a folder of images by class, or files of MNIST or CIFAR",
        file.display(),
        first[0],
        first[1],
        first[2],
        first[3]
    );
    Ok(DatasetKind::Mnist(Mnist::open(file)?))
}

/// Opens a folder of `.rec` files, MNIST arrays, CIFAR records for training or classes.
fn open_folder(folder: &Path, limits: ImageLimits) -> Result<DatasetKind> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>();
    let mut found = list().with_context(|| format!("the folder {} cannot be read", folder.display()))?;
    found.sort();
    let is_records = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rec");
    let records: Vec<PathBuf> = found.iter().filter(is_records).cloned().collect();
    let images: Vec<&PathBuf> = found.iter().filter(|path| mnist::is_images(path)).collect();
    let has_folders = found.iter().any(|path| path.is_dir());
    ensure!(
        records.is_empty() || (images.is_empty() && !has_folders),
        "{} contains RecordIO files ({}) and other data: list the files, or move one kind",
        folder.display(),
        records[0].display()
    );
    // Lists of class names in the Python version of the data set.
    ensure!(
        !["batches.meta", "meta"].iter().any(|name| folder.join(name).is_file()),
        "{} has CIFAR in the Python version, which is not supported: download the binary version",
        folder.display()
    );
    let cifar: Vec<PathBuf> = found.iter().filter(|path| cifar::is_training(path)).cloned().collect();
    if !cifar.is_empty() && records.is_empty() && images.is_empty() {
        return Ok(DatasetKind::Cifar(Cifar::open(&cifar)?));
    }
    match (records.as_slice(), images.as_slice()) {
        ([_, ..], _) => Ok(DatasetKind::Records(RecordFiles::open(&records, limits)?)),
        ([], []) => Ok(DatasetKind::Folder(ImageFolder::open(folder)?)),
        ([], [one]) => Ok(DatasetKind::Mnist(Mnist::open(one)?)),
        ([], several) => {
            let is_for_training = |path: &&&PathBuf| {
                path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("train-"))
            };
            let training: Vec<&&PathBuf> = several.iter().filter(is_for_training).collect();
            let [one] = training.as_slice() else {
                bail!(
                    "{} contains {} arrays of images, {} of them named train-..: name one of them, such as {}",
                    folder.display(),
                    several.len(),
                    training.len(),
                    several[0].display()
                );
            };
            Ok(DatasetKind::Mnist(Mnist::open(one)?))
        }
    }
}

#[cfg(test)]
mod tests;

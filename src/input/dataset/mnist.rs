//! MNIST data sets: two idx arrays of images and labels, in files with the same name apart from `images` and
//! `labels`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::dataset::item::{Item, ItemFormat};
use crate::format::idx_array::{self, IdxArray};

/// Images with one label each.
#[derive(Debug)]
pub struct Mnist {
    images: IdxArray,
    labels: IdxArray,
    form: ItemFormat,
    /// One label per image.
    classes: Vec<u8>,
}

/// Returns true if the file name is that of MNIST images.
pub fn is_images(file: &Path) -> bool {
    let name = file.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.contains("images") && name.contains("idx3"))
}

/// Returns the path of the labels: `train-labels-idx1-ubyte.gz` for `train-images-idx3-ubyte.gz`, compressed or not.
fn labels_path(images: &Path) -> Result<PathBuf> {
    let name = images.file_name().and_then(OsStr::to_str).filter(|_| is_images(images)).with_context(|| {
        format!(
            "{}: labels not found, because the name is not of the form train-images-idx3-ubyte: rename the file",
            images.display()
        )
    })?;
    let name = name.replace("images", "labels").replace("idx3", "idx1");
    let other = name.strip_suffix(".gz").map_or(format!("{name}.gz"), str::to_owned);
    let found = [&name, &other].map(|name| images.with_file_name(name)).into_iter().find(|path| path.exists());
    found.with_context(|| format!("{} has no labels: put {name} into the same folder", images.display()))
}

impl Mnist {
    /// Opens the images and the labels next to them.
    pub fn open(images: &Path) -> Result<Mnist> {
        let labels = labels_path(images)?;
        // Compared before either file is read into memory.
        let (shape, labels_shape) = (idx_array::shape(images)?, idx_array::shape(&labels)?);
        let &[count, height, width] = shape.as_slice() else {
            anyhow::bail!(
                "{} has {} dimensions, but images have 3: use the file of images",
                images.display(),
                shape.len()
            );
        };
        let &[label_count] = labels_shape.as_slice() else {
            anyhow::bail!(
                "{} has {} dimensions, but labels have 1: replace it with the labels",
                labels.display(),
                labels_shape.len()
            );
        };
        ensure!(
            count == label_count,
            "{} has {count} images but {} has {label_count} labels: copy both again",
            images.display(),
            labels.display()
        );
        let (images, labels) = (IdxArray::open(images)?, IdxArray::open(&labels)?);
        let (mut classes, mut label) = (Vec::new(), Vec::new());
        for index in 0..labels.length() {
            labels.read(index, &mut label)?;
            classes.push(label[0]);
        }
        Ok(Mnist { form: ItemFormat::Pixels { height, width, channels: 1 }, images, labels, classes })
    }

    /// Returns the form of every image.
    pub fn item_format(&self) -> ItemFormat {
        self.form
    }

    /// Returns the number of images.
    pub fn length(&self) -> u64 {
        self.images.length()
    }

    /// Returns the path of the images.
    pub fn images(&self) -> &Path {
        self.images.name()
    }

    /// Returns the path of the labels.
    pub fn labels(&self) -> &Path {
        self.labels.name()
    }

    /// Reads image `index`.
    pub fn read(&self, index: u64, item: &mut Item) -> Result<()> {
        let size = self.images.read(index, &mut item.buffer)?;
        item.content = 0..size;
        item.form = self.form;
        item.id = index;
        item.labels.clear();
        item.labels.push(f32::from(self.classes[index as usize]));
        item.location.set(self.images.name(), self.images.position(index));
        item.label_location.get_or_insert_default().set(self.labels.name(), self.labels.position(index));
        Ok(())
    }
}

//! MNIST's pairs of arrays as a dataset: images and their labels, in two files of one name but for `images` and `labels`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::dataset::item::{Form, Item};
use crate::format::idx_array::IdxArray;

/// Images, and a label each.
#[derive(Debug)]
pub struct Mnist {
    images: IdxArray,
    labels: IdxArray,
    form: Form,
    /// A byte an image.
    classes: Vec<u8>,
}

/// Whether a file of this name holds images in MNIST's form.
pub fn is_images(file: &Path) -> bool {
    let name = file.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.contains("images") && name.contains("idx3"))
}

/// The labels of these images: `train-labels-idx1-ubyte.gz` of `train-images-idx3-ubyte.gz`, compressed or not.
fn labels_of(images: &Path) -> Result<PathBuf> {
    let name = images.file_name().and_then(OsStr::to_str).filter(|_| is_images(images)).with_context(|| {
        format!(
            "{}: the labels are found by the images' name, which must be as train-images-idx3-ubyte: give it such a name",
            images.display()
        )
    })?;
    let name = name.replace("images", "labels").replace("idx3", "idx1");
    let other = name.strip_suffix(".gz").map_or(format!("{name}.gz"), str::to_owned);
    let found = [&name, &other].map(|name| images.with_file_name(name)).into_iter().find(|path| path.exists());
    found
        .with_context(|| format!("{} has no labels beside it: put {name} there, which belongs to it", images.display()))
}

impl Mnist {
    /// Opens the images, and the labels beside them.
    pub fn open(images: &Path) -> Result<Mnist> {
        let labels = IdxArray::open(&labels_of(images)?)?;
        let images = IdxArray::open(images)?;
        let &[_, height, width] = images.shape() else {
            anyhow::bail!(
                "{} has {} dimensions, where images have 3: name the file of images",
                images.name().display(),
                images.shape().len()
            );
        };
        ensure!(
            labels.shape().len() == 1,
            "{} has {} dimensions, where labels have 1: put the labels there",
            labels.name().display(),
            labels.shape().len()
        );
        ensure!(
            images.length() == labels.length(),
            "{} has {} images, {} has {} labels: they do not belong together; copy both anew",
            images.name().display(),
            images.length(),
            labels.name().display(),
            labels.length()
        );
        let (mut classes, mut label) = (Vec::new(), Vec::new());
        for index in 0..labels.length() {
            labels.read(index, &mut label)?;
            classes.push(label[0]);
        }
        Ok(Mnist { form: Form::Pixels { height, width, channels: 1 }, images, labels, classes })
    }

    /// Of every image.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Images.
    pub fn length(&self) -> u64 {
        self.images.length()
    }

    /// Where the images are.
    pub fn images(&self) -> &Path {
        self.images.name()
    }

    /// Where the labels are.
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
        item.place.set(self.images.name(), self.images.position(index));
        item.label_place.get_or_insert_default().set(self.labels.name(), self.labels.position(index));
        Ok(())
    }
}

//! MNIST's pairs of arrays as a dataset: images and their labels, in two files of one name but for `images` and `labels`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::dataset::item::{Form, Item};
use crate::format::idx_array::{self, IdxArray};

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
        let labels = labels_of(images)?;
        // Compared before either file takes memory.
        let (shape, shape_of_labels) = (idx_array::shape(images)?, idx_array::shape(&labels)?);
        let &[count, height, width] = shape.as_slice() else {
            anyhow::bail!(
                "{} has {} dimensions, where images have 3: name the file of images",
                images.display(),
                shape.len()
            );
        };
        let &[count_of_labels] = shape_of_labels.as_slice() else {
            anyhow::bail!(
                "{} has {} dimensions, where labels have 1: put the labels there",
                labels.display(),
                shape_of_labels.len()
            );
        };
        ensure!(
            count == count_of_labels,
            "{} has {count} images, {} has {count_of_labels} labels: they do not belong together; copy both anew",
            images.display(),
            labels.display()
        );
        let (images, labels) = (IdxArray::open(images)?, IdxArray::open(&labels)?);
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
        item.location.set(self.images.name(), self.images.position(index));
        item.label_location.get_or_insert_default().set(self.labels.name(), self.labels.position(index));
        Ok(())
    }
}

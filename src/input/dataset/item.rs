//! One item of a dataset: an image, encoded or as pixels, with its labels. One value is read into again and again, so that
//! nothing is allocated once the largest item was in it.

use std::ops::Range;

use anyhow::{Result, ensure};

use crate::location::Location;

/// What the bytes of an item are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// An image file, JPEG or PNG or another, as it is.
    #[default]
    Encoded,
    /// A byte a channel and pixel: rows from top to bottom, pixels of a row from left to right, channels of a pixel together.
    Pixels {
        /// In pixels.
        height: u32,
        /// In pixels.
        width: u32,
        /// 1 is gray.
        channels: u32,
    },
}

/// An item that was read, or an empty one to read into.
#[derive(Debug, Default)]
pub struct Item {
    /// What [`bytes`](Item::bytes) are.
    pub form: Form,
    /// One or several; whole numbers are classes.
    pub labels: Vec<f32>,
    /// The number in the `.lst` that was packed; elsewhere the place in the dataset, from 0.
    pub id: u64,
    /// Where it came from, for messages.
    pub location: Location,
    /// Where its labels came from, if that is somewhere else.
    pub label_location: Option<Location>,
    pub(super) buffer: Vec<u8>,
    pub(super) content: Range<usize>,
}

impl Item {
    /// The image, in its [`form`](Item::form).
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.content.clone()]
    }

    /// The class, where the only label is one of 0 to `classes` - 1.
    pub fn class(&self, classes: u32) -> Result<u32> {
        let location = self.label_location.as_ref().unwrap_or(&self.location);
        let &[label] = self.labels.as_slice() else {
            anyhow::bail!("{location}: {} labels, where a class is one: choose data with one label", self.labels.len());
        };
        ensure!(label.fract() == 0.0, "{location}: label {label} is no whole number, so no class: choose other data");
        ensure!(
            label >= 0.0 && f64::from(label) < f64::from(classes),
            "{location}: label {label} is none of the classes 0 to {}: choose a network with more classes, or mend the label",
            i64::from(classes) - 1
        );
        Ok(label as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect;

    use super::*;

    #[test]
    fn a_label_is_a_class_or_said_to_be_none() {
        let item = |labels: &[f32]| Item {
            labels: labels.to_vec(),
            location: Location::byte(Path::new("a.rec"), 16),
            ..Item::default()
        };
        assert_eq!(item(&[9.0]).class(10).expect("a class"), 9);
        let errors = [&[10.0][..], &[-1.0], &[0.5], &[f32::NAN], &[f32::INFINITY], &[1.0, 2.0]]
            .map(|labels| item(labels).class(10).expect_err("no class").to_string());
        expect![[r#"
            a.rec, byte 16: label 10 is none of the classes 0 to 9: choose a network with more classes, or mend the label
            a.rec, byte 16: label -1 is none of the classes 0 to 9: choose a network with more classes, or mend the label
            a.rec, byte 16: label 0.5 is no whole number, so no class: choose other data
            a.rec, byte 16: label NaN is no whole number, so no class: choose other data
            a.rec, byte 16: label inf is no whole number, so no class: choose other data
            a.rec, byte 16: 2 labels, where a class is one: choose data with one label"#]].assert_eq(&errors.join("\n"));
    }
}

//! An item of a dataset: an image, encoded or as pixels, with its labels, or a window of tokens. Items are reused, so
//! that reading allocates nothing once the buffer fits the largest item.

use std::ops::Range;

use anyhow::{Result, ensure};

use crate::byte_source::{Location, Position};

/// Encoding of an item's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ItemFormat {
    /// Image file, such as JPEG or PNG.
    #[default]
    Encoded,
    /// One byte per channel: rows from top to bottom, pixels from left to right, channels of a pixel adjacent.
    Pixels {
        /// Height in pixels.
        height: u32,
        /// Width in pixels.
        width: u32,
        /// Number of channels; 1 is gray.
        channels: u32,
    },
    /// Tokens of a sequence and the next one, as int64 in the byte order of the machine.
    Tokens {
        /// Bytes of a token in the file.
        stored_bytes: u8,
    },
}

/// An item that was read, or an empty one to read into.
#[derive(Debug, Default)]
pub struct Item {
    /// Encoding of [`bytes`](Item::bytes).
    pub form: ItemFormat,
    /// One or more labels; whole numbers are classes.
    pub labels: Vec<f32>,
    /// Number in the packed `.lst`, otherwise index in the dataset, from 0.
    pub id: u64,
    /// Origin, for messages.
    pub location: Location,
    /// Origin of the labels, if different.
    pub label_location: Option<Location>,
    pub(super) buffer: Vec<u8>,
    pub(super) content: Range<usize>,
}

impl Item {
    /// Returns the bytes of the item, encoded as [`form`](Item::form).
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.content.clone()]
    }

    /// Checks that the tokens are 0 to `vocabulary` - 1.
    pub fn check_tokens(&self, vocabulary: u32) -> Result<()> {
        let ItemFormat::Tokens { stored_bytes } = self.form else { return Ok(()) };
        let tokens = self.bytes().as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes));
        if let Some((index, token)) = (0..).zip(tokens).find(|(_, token)| !(0..i64::from(vocabulary)).contains(token)) {
            let mut location = self.location.clone();
            if let Position::Byte(first) = location.position {
                location.position = Position::Byte(first + index * u64::from(stored_bytes));
            }
            anyhow::bail!(
                "{location}: token {token} is not one of the vocabulary, 0 to {}: use the tokenizer of the network, or \
                 a network with a larger vocabulary",
                i64::from(vocabulary) - 1
            );
        }
        Ok(())
    }

    /// Returns the class; fails unless the only label is one of 0 to `classes` - 1.
    pub fn class(&self, classes: u32) -> Result<u32> {
        let location = self.label_location.as_ref().unwrap_or(&self.location);
        let &[label] = self.labels.as_slice() else {
            anyhow::bail!("{location}: {} labels instead of one class: use data with one label", self.labels.len());
        };
        ensure!(
            label.fract() == 0.0,
            "{location}: label {label} is not a whole number, so it is not a class: use data with class labels"
        );
        ensure!(
            label >= 0.0 && f64::from(label) < f64::from(classes),
            "{location}: label {label} is not one of the classes 0 to {}: use a network with more classes, or fix the \
             label",
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
    fn label_is_a_class_or_rejected() {
        let item = |labels: &[f32]| Item {
            labels: labels.to_vec(),
            location: Location::byte(Path::new("a.rec"), 16),
            ..Item::default()
        };
        assert_eq!(item(&[9.0]).class(10).expect("a class"), 9);
        let errors = [&[10.0][..], &[-1.0], &[0.5], &[f32::NAN], &[f32::INFINITY], &[1.0, 2.0]]
            .map(|labels| item(labels).class(10).expect_err("no class").to_string());
        expect![[r#"
            a.rec, byte 16: label 10 is not one of the classes 0 to 9: use a network with more classes, or fix the label
            a.rec, byte 16: label -1 is not one of the classes 0 to 9: use a network with more classes, or fix the label
            a.rec, byte 16: label 0.5 is not a whole number, so it is not a class: use data with class labels
            a.rec, byte 16: label NaN is not a whole number, so it is not a class: use data with class labels
            a.rec, byte 16: label inf is not a whole number, so it is not a class: use data with class labels
            a.rec, byte 16: 2 labels instead of one class: use data with one label"#]]
        .assert_eq(&errors.join("\n"));
    }
}

//! MXNet's image record: labels and an image file (src/io/image_recordio.h; python/mxnet/recordio.py, `IfQQ`). Little
//! endian: `u32 flag, f32 label, u64 id, u64 id2`; then, if `flag` is not 0, `flag` labels as f32 (and the label in
//! the header is 0); then the bytes of the image file, unchanged.

use anyhow::{Result, ensure};

/// Size of the header, in bytes.
const HEADER: usize = 24;

/// A parsed record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ImageRecord<'a> {
    /// Number of the image in the `.lst`.
    pub id: u64,
    /// Bytes of the image file.
    pub image: &'a [u8],
    labels: Labels<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Labels<'a> {
    InHeader(f32),
    AfterHeader(&'a [u8]),
}

impl<'a> ImageRecord<'a> {
    /// Parses the bytes of a record.
    pub fn parse(bytes: &'a [u8]) -> Result<ImageRecord<'a>> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            anyhow::bail!(
                "a record of {} bytes, but an image record has a header of {HEADER} bytes: pack images with `ringmark \
                 pack` or MXNet's im2rec.py",
                bytes.len()
            );
        };
        let flag = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let label = f32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let id = u64::from_le_bytes([
            header[8], header[9], header[10], header[11], header[12], header[13], header[14], header[15],
        ]);
        let size = 4 * flag as usize;
        ensure!(
            size <= rest.len(),
            "a record of {} bytes with {flag} labels in its header, which take {size}: the record is damaged or not \
             of an image: pack it again",
            bytes.len()
        );
        let (labels, image) = rest.split_at(size);
        let labels = if flag == 0 { Labels::InHeader(label) } else { Labels::AfterHeader(labels) };
        Ok(ImageRecord { id, image, labels })
    }

    /// Replaces the contents of `labels` with the record's labels.
    pub fn labels_into(&self, labels: &mut Vec<f32>) {
        labels.clear();
        match self.labels {
            Labels::InHeader(label) => labels.push(label),
            Labels::AfterHeader(bytes) => {
                labels
                    .extend(bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])));
            }
        }
    }
}

/// Replaces the contents of `record` with the bytes of a record. A single label is stored in the header.
pub fn write(id: u64, labels: &[f32], image: &[u8], record: &mut Vec<u8>) {
    let (flag, label, after_header) = match labels {
        [label] => (0, *label, &[][..]),
        several => (several.len() as u32, 0.0, several),
    };
    record.clear();
    record.reserve(HEADER + 4 * after_header.len() + image.len());
    record.extend(flag.to_le_bytes());
    record.extend(label.to_le_bytes());
    record.extend(id.to_le_bytes());
    record.extend(0_u64.to_le_bytes());
    record.extend(after_header.iter().flat_map(|label| label.to_le_bytes()));
    record.extend(image);
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::format::record_io::write_record;

    #[test]
    fn bytes_match_mxnet() {
        for (labels, image, bytes) in [
            (
                &[7.0][..],
                &[0xff, 0xd8, 0xff][..],
                "0a23d7ce 1b000000 00000000 0000e040 2a00000000000000 0000000000000000 ffd8ff 00",
            ),
            (
                &[1.0, 3.0],
                &[0xff, 0xd8],
                "0a23d7ce 22000000 02000000 00000000 2a00000000000000 0000000000000000 0000803f 00004040 ffd8 0000",
            ),
        ] {
            let mut record = vec![b'x'; 99];
            write(42, labels, image, &mut record);
            let mut file = Vec::new();
            write_record(&record, &mut file).expect("an in-memory write succeeds");
            let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, bytes.replace(' ', ""));
            let read = ImageRecord::parse(&record).expect("read");
            let mut found = vec![9.0];
            read.labels_into(&mut found);
            assert_eq!((read.id, read.image, found.as_slice()), (42, image, labels));
        }
    }

    #[test]
    fn non_image_records_are_rejected() {
        let error = ImageRecord::parse(b"record_0").expect_err("too short").to_string();
        expect![
            "a record of 8 bytes, but an image record has a header of 24 bytes: pack images with `ringmark pack` \
                 or MXNet's im2rec.py"
        ]
        .assert_eq(&error);
        let mut record = Vec::new();
        write(1, &[1.0, 2.0], b"", &mut record);
        record[0] = 3;
        let error = ImageRecord::parse(&record).expect_err("too short").to_string();
        expect![
            "a record of 32 bytes with 3 labels in its header, which take 12: the record is damaged or not of an \
             image: pack it again"
        ]
        .assert_eq(&error);
    }
}

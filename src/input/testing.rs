//! What tests of this package share: the files of tests/golden/pixels, and how far pixels differ.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use ringmark_core::dimension::{DecoderChoice, ImageLimits, Scaling};
use serde_json::Value;

use crate::decode::{self, Decoder, Pixels, Size};
use crate::format::{image_record, record_io};

#[path = "../../tests/support/temporary_folder.rs"]
pub mod temporary_folder;

/// A file of tests/golden/pixels, which tests/golden/pixels.py made.
pub fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/pixels").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The arguments that its pictures were made with.
pub fn cases(name: &str) -> Vec<Value> {
    let cases: Value = serde_json::from_slice(&golden("cases.json")).expect("JSON");
    cases[name].as_array().expect("an array of cases").clone()
}

/// The numbers of one argument.
pub fn numbers<const N: usize>(value: &Value) -> [f64; N] {
    let numbers: Vec<f64> = value.as_array().expect("numbers").iter().map(|one| one.as_f64().expect("one")).collect();
    numbers.try_into().expect("so many of them")
}

/// Pixels of a PNG of RGB, by the png crate alone.
pub fn png(name: &str) -> (Vec<u8>, Size) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(golden(name))).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("its pixels");
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight), "{name}");
    (pixels, Size { width: info.width as usize, height: info.height as usize })
}

/// Every decoder that is here: turbojpeg only where it is installed.
pub fn decoders() -> Vec<Decoder> {
    let zune = Decoder::new(DecoderChoice::Zune, Scaling::Off).expect("it is part of the program");
    let turbojpeg = Decoder::new(DecoderChoice::Turbojpeg, Scaling::Off);
    [Ok(zune), turbojpeg].into_iter().filter_map(Result::ok).collect()
}

/// Decodes a whole file, or says why not.
pub fn decode(decoder: &mut Decoder, file: &[u8]) -> Result<Pixels, String> {
    let mut pixels = Pixels::default();
    let header = decode::header(file, &ImageLimits::default()).map_err(|error| format!("{error:#}"))?;
    decoder.decode(file, &header, None, &mut pixels).map_err(|error| format!("{error:#}"))?;
    Ok(pixels)
}

/// The largest difference between bytes of the same place.
pub fn difference(left: &[u8], right: &[u8]) -> u8 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| left.abs_diff(*right)).max().expect("bytes")
}

/// An idx array of this type.
pub fn idx_array(kind: u8, shape: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, shape.len() as u8];
    bytes.extend(shape.iter().flat_map(|size| size.to_be_bytes()));
    bytes.extend(values);
    bytes
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

/// A `.rec` of images, each labelled by its number, with its index where asked; where each record begins.
pub fn write_records(path: &Path, images: impl Iterator<Item = (u64, Vec<u8>)>, with_index: bool) -> Vec<u64> {
    let (mut bytes, mut record, mut offsets, mut index) = (Vec::new(), Vec::new(), Vec::new(), String::new());
    for (id, image) in images {
        offsets.push(bytes.len() as u64);
        index += &format!("{id}\t{}\n", bytes.len());
        image_record::write(id, &[id as f32], &image, &mut record);
        record_io::write_record(&record, &mut bytes).expect("memory takes it");
    }
    fs::write(path, bytes).expect("written");
    if with_index {
        fs::write(path.with_extension("idx"), index).expect("written");
    }
    offsets
}

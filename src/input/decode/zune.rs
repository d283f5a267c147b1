//! JPEG by zune-jpeg, which is part of the program. It cannot decode at a fraction of the size.

use anyhow::{Result, anyhow};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::jpeg::JpegHeader;
use super::pixels::Pixels;

/// As Cargo.toml pins it, which a test holds against Cargo.lock.
pub const NAME: &str = "zune-jpeg 0.5.15";

/// Zeros instead of the end of the image: more than zune-jpeg reads ahead.
const AHEAD: [u8; 16] = [0; 16];

/// Decodes a JPEG whose markers were followed. `scan` is memory for it.
pub fn decode(file: &[u8], header: &JpegHeader, scan: &mut Vec<u8>, pixels: &mut Pixels) -> Result<()> {
    let mut file = &file[..header.end];
    // Data that end before the last rows are gray to zune-jpeg where an end of the image follows them, and an error where
    // nothing does. Progressive scans have to be ended by a marker.
    if header.scans == 1 && !header.is_progressive {
        scan.clear();
        scan.extend_from_slice(&file[..file.len() - 2]);
        scan.extend_from_slice(&AHEAD);
        file = scan;
    }
    // Sizes are checked before.
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    let room = pixels.reset(header.size);
    decoder.decode_into(room).map_err(|error| anyhow!("{NAME}: {error}"))
}

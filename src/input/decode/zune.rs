//! JPEG decoding with zune-jpeg, which is linked statically. It cannot decode at a reduced size.

use anyhow::{Result, anyhow};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::jpeg::JpegHeader;
use super::pixels::Pixels;

/// Version pinned in Cargo.toml; a test compares it with Cargo.lock.
pub const NAME: &str = "zune-jpeg 0.5.15";

/// Zeros in place of the end-of-image marker: more than zune-jpeg reads ahead.
const PADDING: [u8; 16] = [0; 16];

/// Decodes a JPEG whose markers were checked. `scan` is a reusable buffer.
pub fn decode(file: &[u8], header: &JpegHeader, scan: &mut Vec<u8>, pixels: &mut Pixels) -> Result<()> {
    let mut file = &file[..header.end];
    // If the data ends before the last rows, zune-jpeg fills them with gray if an end-of-image marker follows, and
    // fails if nothing follows. Progressive scans must be terminated by a marker.
    if header.scans == 1 && !header.is_progressive {
        scan.clear();
        scan.extend_from_slice(&file[..file.len() - 2]);
        scan.extend_from_slice(&PADDING);
        file = scan;
    }
    // Sizes are already checked.
    let options = DecoderOptions::default()
        .jpeg_set_out_colorspace(ColorSpace::RGB)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .set_strict_mode(true);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    let buffer = pixels.reset(header.size);
    decoder.decode_into(buffer).map_err(|error| anyhow!("{NAME}: {error}"))
}

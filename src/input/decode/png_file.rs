//! PNG decoding with the png crate: every color type and depth is converted to RGB.

use std::io::Cursor;

use anyhow::{Context, Result, bail, ensure};
use png::{ColorType, DecodeOptions, Decoder, Limits, Reader, Transformations};
use ringmark_core::dimension::ImageLimits;

use super::pixels::{Pixels, Size};

pub const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];

/// Memory limit for the png crate's data other than rows.
const TABLE_BYTES: usize = 64 << 20;

/// Reads the size from IHDR, the first chunk of every PNG.
pub fn size(file: &[u8], limits: &ImageLimits) -> Result<Size> {
    let Some(&[w3, w2, w1, w0, h3, h2, h1, h0]) = file.get(16..24).and_then(|edges| edges.first_chunk()) else {
        bail!("PNG ends in its header, at byte {}: the file is truncated", file.len())
    };
    ensure!(&file[12..16] == b"IHDR", "PNG does not begin with IHDR: the file is damaged");
    let [width, height] = [[w3, w2, w1, w0], [h3, h2, h1, h0]].map(|edge| u32::from_be_bytes(edge) as usize);
    let size = Size { width, height };
    size.check(limits, "the header declares")?;
    // DEFLATE compresses at most 1,032 bytes into one, and a byte has at most 8 pixels.
    ensure!(
        size.pixels() / (1_032 * 8) <= file.len(),
        "PNG's header declares {width} x {height} pixels, which {} bytes cannot hold: the file is truncated",
        file.len()
    );
    Ok(size)
}

/// Decodes to RGB: palettes are expanded, grayscale is repeated, 16 bits lose their low byte, alpha is dropped.
pub fn decode(file: &[u8], size: Size, pixels: &mut Pixels) -> Result<()> {
    let mut options = DecodeOptions::default();
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = Decoder::new_with_options(Cursor::new(file), options);
    // Tables and two rows of at most 8 bytes per pixel; the image itself goes to `pixels`.
    decoder.set_limits(Limits { bytes: TABLE_BYTES + 16 * size.width });
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().with_context(|| damage_message(file))?;
    if reader.info().color_type == ColorType::Indexed {
        // The png crate panics when it expands a pixel with this kind of palette. It rejects a missing palette and more
        // than 256 colors itself.
        let bytes = reader.info().palette.as_ref().map_or(0, |palette| palette.len());
        ensure!(
            bytes > 0 && bytes.is_multiple_of(3),
            "PNG's palette has {bytes} bytes, not 3 per color: the file is damaged"
        );
    }
    let channels = match reader.output_color_type().0 {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
        ColorType::Indexed => bail!("PNG's palette was not looked up"),
    };
    let buffer = pixels.reserve(size, channels.max(3));
    let bytes = channels * size.pixels();
    ensure!(reader.output_buffer_size() == Some(bytes), "PNG's rows do not have {} pixels", size.width);
    reader.next_frame(&mut buffer[..bytes]).with_context(|| damage_message(file))?;
    finish(&mut reader).with_context(|| damage_message(file))?;
    to_rgb(buffer, size.pixels(), channels);
    Ok(())
}

fn damage_message(file: &[u8]) -> String {
    format!("PNG of {} bytes is damaged or truncated", file.len())
}

/// Reads up to IEND, so that a PNG without its end is rejected like a JPEG without its end.
fn finish(reader: &mut Reader<Cursor<&[u8]>>) -> Result<()> {
    Ok(reader.finish()?)
}

/// Converts in place: from the front if pixels shrink, from the back if they grow.
fn to_rgb(buffer: &mut [u8], pixels: usize, channels: usize) {
    match channels {
        1 | 2 => {
            for pixel in (0..pixels).rev() {
                let gray = buffer[channels * pixel];
                buffer[3 * pixel..3 * pixel + 3].fill(gray);
            }
        }
        4 => {
            for pixel in 0..pixels {
                buffer.copy_within(4 * pixel..4 * pixel + 3, 3 * pixel);
            }
        }
        _ => {}
    }
}

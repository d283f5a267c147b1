//! JPEG markers (ITU-T T.81, annex B). All of them are followed up to the end of the image, so that both decoders
//! accept the same files: complete ones, of a kind and size that both support.

use anyhow::{Context, Result, bail, ensure};
use memchr::memchr;
use ringmark_core::dimension::{ImageLimit, ImageLimits};

use super::pixels::Size;

/// SOI, and the first byte of the next marker.
pub const START: [u8; 3] = [0xff, 0xd8, 0xff];

/// Color components of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    /// One component.
    Grayscale,
    /// Three components, YCbCr or RGB.
    Color,
    /// Four components: inverted CMYK or YCCK, according to Adobe's marker.
    Inks,
}

/// Properties of a JPEG, from its markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JpegHeader {
    /// Size of the stored image.
    pub size: Size,
    /// Components of the stored image.
    pub colors: Colors,
    /// True if several scans refine the image.
    pub is_progressive: bool,
    /// Number of scans; one, or one for each component, if not progressive.
    pub scans: usize,
    /// Offset of the end of the image, after EOI. Trailing data is ignored.
    pub end: usize,
}

/// Follows every marker of `file`.
///
/// # Errors
///
/// Fails if the file is truncated (with the offset), of an unsupported kind, or beyond the limits, or if its header
/// states more pixels than its bytes can hold.
pub fn header(file: &[u8], limits: &ImageLimits) -> Result<JpegHeader> {
    let mut frame: Option<Frame> = None;
    let mut adobe = None;
    let mut scans = 0;
    // After SOI.
    let mut place = 2;
    loop {
        let (marker, after) = next_marker(file, place).with_context(|| match scans {
            0 => format!("JPEG ends in its header, at byte {}: the file has no image", file.len()),
            scans => format!(
                "JPEG ends in the middle of its {}, at byte {}: the file is truncated",
                if frame.is_some_and(|frame| frame.is_progressive) {
                    format!("scan {scans}")
                } else {
                    "scan".to_owned()
                },
                file.len()
            ),
        })?;
        match marker {
            0xd9 => {
                let Some(Frame { size, colors, is_progressive }) = frame else {
                    bail!("JPEG ends at byte {after} without a frame: the file has no image")
                };
                ensure!(scans > 0, "JPEG ends at byte {after} without a scan: the file has no image");
                let colors = colors_of(colors, adobe)?;
                return Ok(JpegHeader { size, colors, is_progressive, scans, end: after });
            }
            // RST and TEM have no length.
            0xd0..=0xd7 | 0x01 => place = after,
            0xd8 => bail!("JPEG begins again at byte {}: the file is damaged", after - 2),
            _ => {
                let segment = segment(file, marker, after)?;
                match marker {
                    0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                        ensure!(
                            frame.is_none(),
                            "JPEG has a second frame at byte {}: only one is \
                                                  supported",
                            after - 2
                        );
                        frame = Some(Frame::read(marker, segment, file.len(), limits)?);
                    }
                    0xda => {
                        ensure!(frame.is_some(), "JPEG has a scan at byte {} before its frame", after - 2);
                        scans += 1;
                        limits.check(ImageLimit::Scans, scans as u64, || format!("JPEG has at least {scans} scans"))?;
                    }
                    0xee if segment.starts_with(b"Adobe") => adobe = segment.get(11).copied(),
                    _ => {}
                }
                place = after + 2 + segment.len();
            }
        }
    }
}

/// Returns the second byte of the next marker and the offset of its end. Skips everything before the marker, such as
/// the data of a scan.
fn next_marker(file: &[u8], mut place: usize) -> Option<(u8, usize)> {
    loop {
        place += memchr(0xff, file.get(place..)?)? + 1;
        // Fill bytes.
        while *file.get(place)? == 0xff {
            place += 1;
        }
        match file[place] {
            // An escaped data byte ff.
            0 => place += 1,
            marker => return Some((marker, place + 1)),
        }
    }
}

/// Returns the contents of a marker's segment, without its length.
fn segment(file: &[u8], marker: u8, after: usize) -> Result<&[u8]> {
    let rest = &file[after..];
    let length = match rest {
        [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => bail!("JPEG ends at byte {}, after its marker ff{marker:02x}: the file is truncated", file.len()),
    };
    ensure!(
        length >= 2,
        "JPEG's segment ff{marker:02x} at byte {} has length {length}: the file is \
                          damaged",
        after - 2
    );
    rest.get(2..length).with_context(|| {
        format!(
            "JPEG ends at byte {}, inside its segment ff{marker:02x} of {length} bytes: the file is \
                 truncated",
            file.len()
        )
    })
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    size: Size,
    /// Number of components.
    colors: u8,
    is_progressive: bool,
}

impl Frame {
    /// Parses a frame header. `bytes` is the size of the file.
    fn read(marker: u8, segment: &[u8], bytes: usize, limits: &ImageLimits) -> Result<Frame> {
        let process = match marker {
            0xc0..=0xc2 => None,
            0xc3 | 0xc7 | 0xcb | 0xcf => Some("lossless"),
            0xc5 | 0xc6 | 0xcd | 0xce => Some("hierarchical"),
            _ => Some("arithmetic-coded"),
        };
        if let Some(process) = process {
            bail!("JPEG is {process} (ff{marker:02x}): only baseline and progressive are supported");
        }
        let &[precision, h1, h0, w1, w0, colors, ..] = segment else {
            bail!("JPEG's frame has {} bytes: the file is damaged", segment.len())
        };
        ensure!(precision == 8, "JPEG has {precision} bits per sample: only 8 are supported");
        let [width, height] = [[w1, w0], [h1, h0]].map(|edge| usize::from(u16::from_be_bytes(edge)));
        let size = Size { width, height };
        size.check(limits, "the header declares")?;
        // At least one bit for the first coefficient of each 8 x 8 pixels.
        ensure!(
            size.pixels() / 512 <= bytes,
            "JPEG's header declares {width} x {height} pixels, which {bytes} bytes cannot hold: the file is truncated"
        );
        Ok(Frame { size, colors, is_progressive: marker == 0xc2 })
    }
}

/// Determines the color components. `adobe` is the transform in Adobe's marker.
fn colors_of(components: u8, adobe: Option<u8>) -> Result<Colors> {
    match (components, adobe) {
        (1, _) => Ok(Colors::Grayscale),
        (3, _) => Ok(Colors::Color),
        (4, Some(0 | 2)) => Ok(Colors::Inks),
        (4, _) => bail!(
            "JPEG has four components without Adobe's marker, so it is unknown whether its inks are inverted: save it \
             as RGB"
        ),
        _ => bail!("JPEG has {components} components: only 1, 3 and 4 are supported"),
    }
}

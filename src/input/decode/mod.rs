//! From a file's bytes to RGB: JPEG and PNG. Not for files, nor for what is done to the pixels.
//!
//! | file | becomes |
//! |---|---|
//! | JPEG, baseline or progressive, 8 bits | RGB, by the decoder that was chosen |
//! | JPEG, grayscale | RGB, three times the same |
//! | JPEG, CMYK or YCCK with Adobe's marker | RGB = ink x black / 255 of the inverted inks that Adobe's files hold, as Pillow |
//! | JPEG, CMYK without that marker; lossless, arithmetic coding, 12 bits | refused, by both decoders in the same words |
//! | PNG | RGB; the high byte of 16 bits and no alpha, as OpenCV's `imread` and Pillow's `convert("RGB")` |
//!
//! Orientation in Exif is not looked at: neither torchvision's ImageFolder nor MXNet's decoder does.
//!
//! An image is whole or an error, whatever the decoder: before it starts, every marker up to the end of the image is
//! followed ([`jpeg`]). What libjpeg-turbo only warns of is an error, but for bytes too many before the end of the image,
//! which change no pixel.
//!
//! A scan whose data end early although the end of the image follows is an error by libjpeg-turbo, which warns of it, and by
//! zune-jpeg where it has one scan and rows of 8 or 16 pixels are missing; in a progressive file zune-jpeg does not see it.
//! Where chroma has fewer samples than pixels, the two interpolate it differently: pixels differ by up to 8 of 255.
//!
//! Memory: the pixels go to a [`Pixels`] that only grows. zune-jpeg allocates rows and tables anew for every image, the
//! png crate its window; libjpeg-turbo has pools of its own.

mod cmyk;
pub mod jpeg;
mod pixels;
mod png_file;
mod scaling;
mod turbojpeg;
mod zune;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use ringmark_core::dimension::{DecoderChoice, ImageLimits, Scaling};

pub use self::jpeg::JpegHeader;
pub use self::pixels::{ImageView, ImageViewMut, Pixels, Size};
pub use self::scaling::Wanted;

/// What the beginning of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A JPEG, whole up to its last marker.
    Jpeg(JpegHeader),
    /// A PNG.
    Png(Size),
}

impl Header {
    /// Of the image as it is stored.
    pub fn size(&self) -> Size {
        match self {
            Header::Jpeg(header) => header.size,
            Header::Png(size) => *size,
        }
    }
}

/// Reads what `file` says of itself, without decoding it.
///
/// # Errors
///
/// Where it is neither JPEG nor PNG, is cut, beyond the limits, or of a kind that is not decoded.
pub fn header(file: &[u8], limits: &ImageLimits) -> Result<Header> {
    if file.starts_with(&jpeg::START) {
        return jpeg::header(file, limits).map(Header::Jpeg).context("not a JPEG that can be decoded");
    }
    if file.starts_with(&png_file::SIGNATURE) {
        return png_file::size(file, limits).map(Header::Png).context("not a PNG that can be decoded");
    }
    if file.is_empty() {
        bail!("no image: the file is empty");
    }
    bail!(
        "neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the {} bytes begin with {}",
        file.len(),
        file.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    );
}

/// Decodes images, one at a time. A thread has its own.
pub struct Decoder {
    jpeg: JpegDecoder,
    scaling: Scaling,
}

enum JpegDecoder {
    /// With memory for a scan.
    Zune(Vec<u8>),
    Turbojpeg(turbojpeg::Turbojpeg),
}

impl Decoder {
    /// The decoder that was asked for.
    ///
    /// # Errors
    ///
    /// Where turbojpeg was asked for and is missing: the package that has it.
    pub fn new(choice: DecoderChoice, scaling: Scaling) -> Result<Decoder> {
        let jpeg = match choice {
            DecoderChoice::Zune => JpegDecoder::Zune(Vec::new()),
            DecoderChoice::Turbojpeg => JpegDecoder::Turbojpeg(turbojpeg::Turbojpeg::new()?),
            DecoderChoice::Auto => match turbojpeg::Turbojpeg::new() {
                Ok(turbojpeg) => JpegDecoder::Turbojpeg(turbojpeg),
                Err(_) => JpegDecoder::Zune(Vec::new()),
            },
        };
        Ok(Decoder { jpeg, scaling })
    }

    /// Which library decodes JPEG, with its version: for the record.
    pub fn name(&self) -> String {
        match &self.jpeg {
            JpegDecoder::Zune(_) => zune::NAME.to_owned(),
            JpegDecoder::Turbojpeg(_) => turbojpeg::name(),
        }
    }

    /// Whether JPEG files come smaller where [`Wanted`] allows it: turbojpeg can, zune cannot.
    pub fn scales(&self) -> bool {
        self.scaling == Scaling::Allowed && matches!(self.jpeg, JpegDecoder::Turbojpeg(_))
    }

    /// Decodes `file`, whose header was read, to `pixels`; smaller than it is only where `wanted` names what is needed of it
    /// and scaling is allowed.
    ///
    /// # Errors
    ///
    /// Where the file is damaged, in the library's words.
    pub fn decode(&mut self, file: &[u8], header: &Header, wanted: Option<Wanted>, pixels: &mut Pixels) -> Result<()> {
        match (header, &mut self.jpeg) {
            (Header::Png(size), _) => png_file::decode(file, *size, pixels).context("PNG cannot be decoded"),
            (Header::Jpeg(header), JpegDecoder::Zune(scan)) => {
                zune::decode(file, header, scan, pixels).context("JPEG cannot be decoded")
            }
            (Header::Jpeg(header), JpegDecoder::Turbojpeg(decoder)) => {
                let wanted = wanted.filter(|_| self.scaling == Scaling::Allowed);
                decoder.decode(file, header, wanted, pixels).context("JPEG cannot be decoded")
            }
        }
    }
}

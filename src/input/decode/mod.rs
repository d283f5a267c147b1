//! Decoding of JPEG and PNG to RGB.
//!
//! | file | result |
//! |---|---|
//! | JPEG, baseline or progressive, 8 bits | RGB, by the chosen decoder |
//! | JPEG, grayscale | RGB with three equal channels |
//! | JPEG, CMYK or YCCK with Adobe's marker | RGB = ink x black / 255 of the inverted inks in Adobe's files, as in Pillow |
//! | JPEG, CMYK without that marker; lossless, arithmetic coding, 12 bits | rejected, with the same message by both decoders |
//! | PNG | RGB; the high byte of 16 bits, alpha dropped, as in OpenCV's `imread` and Pillow's `convert("RGB")` |
//!
//! The Exif orientation is ignored, as in torchvision's ImageFolder and MXNet's decoder.
//!
//! An incomplete image is an error with either decoder: before decoding, every marker up to the end of the image is
//! followed ([`jpeg`]). libjpeg-turbo's warnings are errors, except extraneous bytes before the end of the image,
//! which change no pixel.
//!
//! If the data of a scan ends early but the end-of-image marker follows, libjpeg-turbo warns, which is an error.
//! zune-jpeg fails if there is one scan and rows of 8 or 16 pixels are missing; in a progressive file it does not
//! detect it. The two decoders interpolate subsampled chroma differently: pixels differ by up to 8 of 255.
//!
//! Memory: pixels go to a [`Pixels`] buffer that only grows. zune-jpeg allocates rows and tables for every image, the
//! png crate its window; libjpeg-turbo has its own pools.

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
pub use self::scaling::RequiredSize;

/// Properties from the beginning of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A JPEG, complete up to its last marker.
    Jpeg(JpegHeader),
    /// A PNG of this size.
    Png(Size),
}

impl Header {
    /// Returns the size of the stored image.
    pub fn size(&self) -> Size {
        match self {
            Header::Jpeg(header) => header.size,
            Header::Png(size) => *size,
        }
    }
}

/// Reads the properties of `file` without decoding it.
///
/// # Errors
///
/// Fails if the file is neither JPEG nor PNG, is truncated, exceeds the limits, or is of an unsupported kind.
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

/// Decodes images, one at a time. Each thread has its own.
pub struct Decoder {
    jpeg: JpegDecoder,
    scaling: Scaling,
}

enum JpegDecoder {
    /// Holds a reusable buffer for a scan.
    Zune(Vec<u8>),
    Turbojpeg(turbojpeg::Turbojpeg),
}

impl Decoder {
    /// Creates the chosen decoder.
    ///
    /// # Errors
    ///
    /// Fails if turbojpeg was chosen and is missing; the message names the package.
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

    /// Returns the name and version of the JPEG library, for the record.
    pub fn name(&self) -> String {
        match &self.jpeg {
            JpegDecoder::Zune(_) => zune::NAME.to_owned(),
            JpegDecoder::Turbojpeg(_) => turbojpeg::name(),
        }
    }

    /// Returns true if JPEG files may be decoded at a smaller size (see [`RequiredSize`]): turbojpeg supports it, zune does
    /// not.
    pub fn scales(&self) -> bool {
        self.scaling == Scaling::Allowed && matches!(self.jpeg, JpegDecoder::Turbojpeg(_))
    }

    /// Decodes `file`, whose header was read, to `pixels`. If scaling is allowed and `wanted` is given, the result
    /// may be smaller than the stored image.
    ///
    /// # Errors
    ///
    /// Fails if the file is damaged, with the library's message.
    pub fn decode(
        &mut self,
        file: &[u8],
        header: &Header,
        wanted: Option<RequiredSize>,
        pixels: &mut Pixels,
    ) -> Result<()> {
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

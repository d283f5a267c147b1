//! Conversion of an image file: crops the center square, resizes, and encodes as JPEG or PNG. The rules are those of
//! MXNet's im2rec.py, which uses OpenCV. All libraries are compiled in, so that the bytes are the same on every
//! machine.
//!
//! | step | rule |
//! |---|---|
//! | decode | zune-jpeg and the png crate, RGB: see [`decode`](mod@crate::decode) |
//! | crop | before resizing; an odd margin is one pixel smaller on the left or top |
//! | resize | shorter edge to the given number of pixels, larger or smaller; longer edge in proportion, rounded down;
//! `bilinear` |
//! | JPEG | baseline, the tables of T.81 annex K scaled by libjpeg's quality, chroma averaged over 2 x 2 pixels as in
//! OpenCV |
//! | PNG | 8-bit RGB |
//!
//! Other contents of the file are dropped. The Exif orientation is not applied: training uses the stored pixels whether
//! the file was packed unchanged or converted. (im2rec.py applies the orientation only if it re-encodes.)

use anyhow::{Context, Result, ensure};
use jpeg_encoder::{ChromaSubsamplingMethod, ColorType, Encoder, SamplingFactor};
use png::{BitDepth, DeflateCompression, Filter};
use ringmark_core::dimension::{DecoderChoice, ImageFormat, ImageLimits, Interpolation, Scaling};

use crate::decode::{self, Decoder, ImageViewMut, Pixels, Size};
use crate::resize::{self, Region, Resizer};

/// Output encoding of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Quality from 0 to 100; 0 means 1, as in libjpeg.
    Jpeg(u8),
    /// Compression level from 0 to 9; the pixels do not depend on it.
    Png(u8),
}

impl Encoding {
    /// Returns the encoding of a format, with im2rec.py's quality or level by default.
    ///
    /// # Errors
    ///
    /// Fails for a quality that the format does not have.
    pub fn new(format: ImageFormat, quality: Option<u8>) -> Result<Encoding> {
        let (encoding, most) = match format {
            ImageFormat::Jpeg => (Encoding::Jpeg(quality.unwrap_or(95)), 100),
            ImageFormat::Png => (Encoding::Png(quality.unwrap_or(9)), 9),
        };
        if let Some(quality) = quality {
            ensure!(quality <= most, "quality {quality} is out of range for {format} images: choose 0 to {most}");
        }
        Ok(encoding)
    }

    fn write(self, rgb: &[u8], size: Size, file: &mut Vec<u8>) -> Result<()> {
        file.clear();
        match self {
            Encoding::Jpeg(quality) => {
                let edge = |edge: usize| {
                    u16::try_from(edge).with_context(|| format!("an edge of {edge} pixels exceeds the 65535 of a JPEG"))
                };
                let (width, height) = (edge(size.width)?, edge(size.height)?);
                let mut encoder = Encoder::new(file, quality);
                encoder.set_sampling_factor(SamplingFactor::F_2_2);
                encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
                Ok(encoder.encode(rgb, width, height, ColorType::Rgb)?)
            }
            Encoding::Png(level) => {
                let mut encoder = png::Encoder::new(file, u32::try_from(size.width)?, u32::try_from(size.height)?);
                encoder.set_color(png::ColorType::Rgb);
                encoder.set_depth(BitDepth::Eight);
                encoder.set_deflate_compression(match level {
                    0 => DeflateCompression::NoCompression,
                    level => DeflateCompression::Level(level),
                });
                encoder.set_filter(Filter::Adaptive);
                let mut writer = encoder.write_header()?;
                writer.write_image_data(rgb)?;
                Ok(writer.finish()?)
            }
        }
    }
}

/// Conversion applied to every image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    /// True if only the center square is kept.
    pub is_cropped: bool,
    /// Pixels of the shorter edge; `None` keeps the size.
    pub shorter_edge: Option<u16>,
    /// Output encoding.
    pub encoding: Encoding,
}

impl Conversion {
    /// Returns the region of an image that is kept and its size after resizing.
    fn plan(&self, image: Size) -> (Region, Size) {
        let (part, size) = if self.is_cropped {
            let edge = image.shorter();
            let [left, top] = [image.width, image.height].map(|length| ((length - edge) / 2) as f64);
            let [width, height] = [edge as f64; 2];
            (Region { left, top, width, height, is_cut_out: true }, Size { width: edge, height: edge })
        } else {
            (Region::whole(image), image)
        };
        let resized = self.shorter_edge.map(|shorter| {
            let edge = |edge: usize| edge * usize::from(shorter) / size.shorter();
            Size { width: edge(size.width), height: edge(size.height) }
        });
        (part, resized.unwrap_or(size))
    }
}

/// Converter that reuses its memory from image to image; one per thread.
pub struct Converter {
    conversion: Conversion,
    decoder: Decoder,
    pixels: Pixels,
    resizer: Resizer,
    resized: Vec<u8>,
    limits: ImageLimits,
}

impl Converter {
    /// # Errors
    ///
    /// Never fails: the decoder is part of the program.
    pub fn new(conversion: Conversion, limits: ImageLimits) -> Result<Converter> {
        Ok(Converter {
            conversion,
            decoder: Decoder::new(DecoderChoice::Zune, Scaling::Off)?,
            pixels: Pixels::default(),
            resizer: Resizer::default(),
            resized: Vec::new(),
            limits,
        })
    }

    /// Replaces the contents of `converted` with the new file.
    ///
    /// # Errors
    ///
    /// Fails if `file` is not an image that can be decoded completely, or if the result would exceed the limits.
    pub fn convert(&mut self, file: &[u8], converted: &mut Vec<u8>) -> Result<()> {
        let header = decode::header(file, &self.limits)?;
        self.decoder.decode(file, &header, None, &mut self.pixels)?;
        let image = self.pixels.size();
        let (part, size) = self.conversion.plan(image);
        let encoding = self.conversion.encoding;
        if size == image {
            return encoding.write(self.pixels.rgb(), size, converted);
        }
        resize::check(part, size, &self.limits)?;
        let bytes = 3 * size.pixels();
        if self.resized.len() < bytes {
            self.resized.resize(bytes, 0);
        }
        let resized = &mut self.resized[..bytes];
        let output = ImageViewMut { rgb: &mut *resized, size };
        self.resizer.resize(self.pixels.view(), part, Interpolation::Bilinear, output)?;
        encoding.write(resized, size, converted)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use fast_image_resize::images::{TypedImage, TypedImageRef};
    use fast_image_resize::pixels::U8x3;
    use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
    use ringmark_core::dimension::ImageLimit;
    use zune_core::bytestream::ZCursor;
    use zune_core::colorspace::ColorSpace;
    use zune_core::options::DecoderOptions;

    use super::*;
    use crate::decode::ImageView;
    use crate::ffi::plain_resizer;
    use crate::testing::{decode, decoders, difference, golden, png};

    const JPEG: Encoding = Encoding::Jpeg(95);

    fn converted(file: &[u8], conversion: Conversion) -> Vec<u8> {
        let mut output = b"before".to_vec();
        Converter::new(conversion, ImageLimits::default())
            .expect("a decoder")
            .convert(file, &mut output)
            .expect("an image");
        output
    }

    fn conversion(is_cropped: bool, shorter_edge: Option<u16>, encoding: Encoding) -> Conversion {
        Conversion { is_cropped, shorter_edge, encoding }
    }

    /// Returns the peak signal-to-noise ratio over all bytes in decibels.
    fn psnr(left: &[u8], right: &[u8]) -> f64 {
        assert_eq!(left.len(), right.len());
        let squares: f64 = left.iter().zip(right).map(|(left, right)| f64::from(left.abs_diff(*right)).powi(2)).sum();
        10.0 * (255.0 * 255.0 * left.len() as f64 / squares).log10()
    }

    #[test]
    fn size_matches_im2rec() {
        let size = |width, height| Size { width, height };
        for (cropped, shorter, image, expected) in [
            (false, None, size(500, 375), size(500, 375)),
            (false, Some(256), size(500, 375), size(341, 256)),
            (false, Some(256), size(375, 500), size(256, 341)),
            // Smaller images are enlarged.
            (false, Some(480), size(100, 37), size(1297, 480)),
            (true, None, size(500, 375), size(375, 375)),
            (true, Some(256), size(37, 100), size(256, 256)),
        ] {
            let (part, found) = conversion(cropped, shorter, JPEG).plan(image);
            assert_eq!(found, expected, "{image:?}");
            assert_eq!(part.is_cut_out, cropped);
        }
        let (part, _) = conversion(true, Some(8), JPEG).plan(size(500, 375));
        assert_eq!([part.left, part.top, part.width, part.height], [62.0, 0.0, 375.0, 375.0]);
    }

    #[test]
    fn pixels_are_kept_according_to_quality() {
        let (source, size) = png("source.png");
        let mut before = 0;
        // Results of cv2.imencode and cv2.imdecode of OpenCV 4.9.0; chroma causes most of the loss.
        for (quality, opencv) in [(50, 24.63), (90, 28.41), (95, 29.12), (100, 29.45)] {
            let file = converted(&golden("source.png"), conversion(false, None, Encoding::Jpeg(quality)));
            for mut decoder in decoders() {
                let image = decode(&mut decoder, &file).expect("it is a JPEG");
                let found = psnr(image.rgb(), &source);
                assert_eq!(image.size(), size);
                assert!((found - opencv).abs() < 0.2, "{}, quality {quality}: {found:.2} dB", decoder.name());
            }
            assert!(file.len() > before, "quality {quality}: {} bytes after {before}", file.len());
            before = file.len();
        }
        let lowest =
            [0, 1].map(|quality| converted(&golden("full.jpg"), conversion(false, None, Encoding::Jpeg(quality))));
        assert_eq!(lowest[0], lowest[1]);
    }

    #[test]
    fn png_keeps_pixels_at_every_level() {
        let (source, _) = png("source.png");
        let files =
            [0, 1, 9].map(|level| converted(&golden("source.png"), conversion(false, None, Encoding::Png(level))));
        for file in &files {
            assert_eq!(decode(&mut decoders()[0], file).expect("a PNG").rgb(), source);
        }
        assert!(files[0].len() > files[1].len() && files[1].len() >= files[2].len());
    }

    #[test]
    fn center_is_cropped_before_resizing() {
        let (source, Size { width, height }) = png("source.png");
        let file = converted(&golden("source.png"), conversion(true, None, Encoding::Png(1)));
        let center = decode(&mut decoders()[0], &file).expect("a PNG");
        let left = (width - height) / 2;
        for (row, pixels) in center.rgb().chunks(3 * height).enumerate() {
            let start = 3 * (row * width + left);
            assert_eq!(pixels, &source[start..start + 3 * height]);
        }
        let half =
            |conversion| decode(&mut decoders()[0], &converted(&golden("source.png"), conversion)).expect("a PNG");
        let cut = half(conversion(true, Some(13), Encoding::Png(1)));
        let mut expected = vec![0; 3 * 13 * 13];
        let output = Size { width: 13, height: 13 };
        let square = Size { width: height, height };
        let resize = ImageView { rgb: center.rgb(), size: square };
        Resizer::default()
            .resize(
                resize,
                Region::whole(square),
                Interpolation::Bilinear,
                ImageViewMut { rgb: &mut expected, size: output },
            )
            .expect("inside");
        assert_eq!((cut.size(), cut.rgb()), (output, &expected[..]));
    }

    #[test]
    fn image_variants_become_rgb() {
        for name in ["progressive.jpg", "grayscale.jpg", "inks.jpg", "png_palette.png", "png_alpha.png"] {
            let file = converted(&golden(name), conversion(true, Some(20), Encoding::Png(1)));
            let info = png::Decoder::new(std::io::Cursor::new(&file)).read_info().expect("a PNG").info().clone();
            assert_eq!((info.width, info.height, info.color_type), (20, 20, png::ColorType::Rgb), "{name}");
        }
    }

    /// Creates waves with added noise.
    fn picture(size: Size) -> Vec<u8> {
        let mut noise = 1_u32;
        let pixel = |place: usize| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [x, y] = [place % size.width, place / size.width].map(|edge| edge as f64);
            let channel = |wave: f64| (128.0 + 90.0 * (x / wave + y / 9.0).sin()) as u8 ^ (noise >> 28) as u8;
            [channel(3.0), channel(7.0), channel(40.0)]
        };
        (0..size.pixels()).flat_map(pixel).collect()
    }

    #[test]
    fn vector_instructions_give_identical_bytes() {
        let size = Size { width: 203, height: 151 };
        let rgb = picture(size);
        for quality in [50, 95] {
            let mut file = Vec::new();
            Encoding::Jpeg(quality).write(&rgb, size, &mut file).expect("a JPEG");
            let decoded = [true, false].map(|has_vectors| {
                let options =
                    DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB).set_use_unsafe(has_vectors);
                let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(&file), options);
                decoder.decode().expect("a JPEG")
            });
            assert_eq!(difference(&decoded[0], &decoded[1]), 0, "zune-jpeg, quality {quality}");
        }
        for (width, height) in [(60, 44), (202, 150), (300, 223)] {
            let image = TypedImageRef::<U8x3>::from_buffer(203, 151, &rgb).expect("an image");
            let resized = [fast_image_resize::Resizer::new(), plain_resizer()].map(|mut resizer| {
                let mut output = vec![0; 3 * (width * height) as usize];
                let mut target = TypedImage::<U8x3>::from_buffer(width, height, &mut output).expect("an image");
                let options = ResizeOptions::new().resize_alg(ResizeAlg::Interpolation(FilterType::Bilinear));
                resizer.resize_typed(&image, &mut target, &options).expect("it fits");
                output
            });
            assert_eq!(difference(&resized[0], &resized[1]), 0, "fast_image_resize to {width} x {height}");
        }
    }

    #[test]
    fn failed_conversion_is_reported() {
        let refused = |file: &[u8], conversion| {
            let limits = ImageLimits::default().with(ImageLimit::Aspect, 3000);
            let converted = Converter::new(conversion, limits).expect("a decoder").convert(file, &mut Vec::new());
            format!("{:#}", converted.expect_err("refused"))
        };
        let plain = conversion(false, None, JPEG);
        expect!["neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the 4 bytes begin with 74 65 78 74"]
            .assert_eq(&refused(b"text", plain));
        let cut = &golden("baseline.jpg")[..900];
        expect![
            "not a JPEG that can be decoded: JPEG ends in the middle of its scan, at byte 900: the file is \
                 truncated"
        ]
        .assert_eq(&refused(cut, plain));
        let large = refused(&golden("source.png"), conversion(false, Some(65_000), JPEG));
        expect!["resizing 36 x 27 pixels to 86666 x 65000 makes 5633290000 pixels; the limit is 50000000: raise it with --image-limits pixels=5633290000"].assert_eq(&large);
        // One pixel high, so that the edge exceeds the limit of JPEG before the number of pixels exceeds its own.
        let mut flat = Vec::new();
        let mut encoder = png::Encoder::new(&mut flat, 3000, 1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().expect("a header").write_image_data(&[7; 9000]).expect("its pixels");
        let long = refused(&flat, conversion(false, Some(30), JPEG));
        expect!["an edge of 90000 pixels exceeds the 65535 of a JPEG: out of range integral type conversion attempted"]
            .assert_eq(&long);
        let error = |format, quality| Encoding::new(format, Some(quality)).expect_err("beyond").to_string();
        expect!["quality 101 is out of range for .jpg images: choose 0 to 100"]
            .assert_eq(&error(ImageFormat::Jpeg, 101));
        expect!["quality 10 is out of range for .png images: choose 0 to 9"].assert_eq(&error(ImageFormat::Png, 10));
        let defaults =
            [ImageFormat::Jpeg, ImageFormat::Png].map(|format| Encoding::new(format, None).expect("a default"));
        assert_eq!(defaults, [Encoding::Jpeg(95), Encoding::Png(9)]);
    }
}

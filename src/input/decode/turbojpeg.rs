//! JPEG decoding with the system's libjpeg-turbo, if installed. It can decode at a reduced size.

use std::fs;
use std::sync::OnceLock;

use anyhow::{Result, anyhow, bail, ensure};
use memchr::memmem;

use super::cmyk;
use super::jpeg::{Colors, JpegHeader};
use super::pixels::{Pixels, Size};
use super::scaling::{self, RequiredSize};
use crate::ffi::turbojpeg::{Decompressor, JpegSize, LIBRARY, PixelFormat};

/// A libjpeg-turbo decompressor.
pub struct Turbojpeg {
    decompressor: Decompressor,
    /// Scales that the library decodes fast.
    factors: Vec<scaling::Fraction>,
}

impl Turbojpeg {
    pub fn new() -> Result<Turbojpeg> {
        let decompressor = Decompressor::new().map_err(|error| {
            anyhow!("libjpeg-turbo not found: {error}: install Debian's package libturbojpeg0, or use the decoder zune")
        })?;
        // 1, 1/2, 1/4 and 1/8: libjpeg-turbo vectorizes only these. 5/8 takes longer than the full size.
        let fast = decompressor.factors().iter().filter(|factor| factor.numerator == 1);
        let fractions = fast.filter_map(|factor| {
            let [numerator, denominator] = [factor.numerator, factor.denominator].map(usize::try_from);
            scaling::Fraction::new(numerator.ok()?, denominator.ok()?)
        });
        let factors = fractions.collect();
        Ok(Turbojpeg { decompressor, factors })
    }

    /// Decodes a JPEG whose markers were checked.
    pub fn decode(
        &mut self,
        file: &[u8],
        header: &JpegHeader,
        wanted: Option<RequiredSize>,
        pixels: &mut Pixels,
    ) -> Result<()> {
        let file = &file[..header.end];
        let library = |text: String| anyhow!("libjpeg-turbo: {text}");
        let size = self.decompressor.size(file).map_err(library)?;
        let Size { width, height } = header.size;
        ensure!(
            size == JpegSize { width, height },
            "libjpeg-turbo finds {} x {}, but the header declares {width} x {height} pixels",
            size.width,
            size.height
        );
        let size = wanted.map_or(header.size, |wanted| scaling::smallest(header.size, wanted, &self.factors));
        let format = if header.colors == Colors::Inks { PixelFormat::Cmyk } else { PixelFormat::Rgb };
        let buffer = pixels.reserve(size, format.channels());
        let Size { width, height } = size;
        if let Err(text) = self.decompressor.decompress(file, JpegSize { width, height }, format, buffer) {
            // This is the first warning: the scan before it was decoded completely.
            if !text.contains("extraneous bytes before marker 0xd9") {
                bail!(library(text));
            }
        }
        if format == PixelFormat::Cmyk {
            cmyk::to_rgb(buffer);
        }
        Ok(())
    }
}

/// Returns `libjpeg-turbo 2.1.5 (build 20230203)`, from a string in the library file: no function returns the
/// version.
pub fn name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let find = || {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let path =
            maps.lines().find_map(|line| line.find('/').map(|start| &line[start..]).filter(|path| is_library(path)))?;
        let library = fs::read(path).ok()?;
        const VERSION_PREFIX: &[u8] = b"libjpeg-turbo version ";
        let start = memmem::find(&library, VERSION_PREFIX)? + VERSION_PREFIX.len();
        let text = library[start..].split(|byte| *byte == 0).next()?;
        Some(format!("libjpeg-turbo {}", String::from_utf8_lossy(text)))
    };
    NAME.get_or_init(|| find().unwrap_or_else(|| format!("libjpeg-turbo ({LIBRARY})"))).clone()
}

fn is_library(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|file| file.starts_with("libturbojpeg.so"))
}

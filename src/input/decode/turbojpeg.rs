//! JPEG by the system's libjpeg-turbo, where it is installed: decodes at a fraction of the size too.

use std::fs;
use std::sync::OnceLock;

use anyhow::{Result, anyhow, bail, ensure};
use memchr::memmem;

use super::cmyk;
use super::jpeg::{Colours, JpegHeader};
use super::pixels::{Pixels, Size};
use super::scaling::{self, Wanted};
use crate::ffi::turbojpeg::{Decompressor, JpegSize, LIBRARY, PixelFormat};

/// A decompressor of libjpeg-turbo.
pub struct Turbojpeg {
    decompressor: Decompressor,
    /// What an image can be decoded to: at the fractions that the library is fast at.
    factors: Vec<scaling::Fraction>,
}

impl Turbojpeg {
    pub fn new() -> Result<Turbojpeg> {
        let decompressor = Decompressor::new().map_err(|error| {
            anyhow!("no libjpeg-turbo: {error}; install Debian's package libturbojpeg0, or take the decoder zune")
        })?;
        // 1, 1/2, 1/4 and 1/8: libjpeg-turbo has vector code for these alone. At 5/8 of the size it takes longer than at 1.
        let fast = decompressor.factors().iter().filter(|factor| factor.numerator == 1);
        let fractions = fast.filter_map(|factor| {
            let [numerator, denominator] = [factor.numerator, factor.denominator].map(usize::try_from);
            scaling::Fraction::new(numerator.ok()?, denominator.ok()?)
        });
        let factors = fractions.collect();
        Ok(Turbojpeg { decompressor, factors })
    }

    /// Decodes a JPEG whose markers were followed.
    pub fn decode(
        &mut self,
        file: &[u8],
        header: &JpegHeader,
        wanted: Option<Wanted>,
        pixels: &mut Pixels,
    ) -> Result<()> {
        let file = &file[..header.end];
        let library = |text: String| anyhow!("libjpeg-turbo: {text}");
        let size = self.decompressor.size(file).map_err(library)?;
        let Size { width, height } = header.size;
        ensure!(
            size == JpegSize { width, height },
            "libjpeg-turbo sees {} x {} where its header names {width} x {height} pixels",
            size.width,
            size.height
        );
        let size = wanted.map_or(header.size, |wanted| scaling::smallest(header.size, wanted, &self.factors));
        let format = if header.colours == Colours::Inks { PixelFormat::Cmyk } else { PixelFormat::Rgb };
        let room = pixels.room(size, format.channels());
        let Size { width, height } = size;
        if let Err(text) = self.decompressor.decompress(file, JpegSize { width, height }, format, room) {
            // A warning, and the first: the scan was decoded to its end before it.
            if !text.contains("extraneous bytes before marker 0xd9") {
                bail!(library(text));
            }
        }
        if format == PixelFormat::Cmyk {
            cmyk::to_rgb(room);
        }
        Ok(())
    }
}

/// `libjpeg-turbo 2.1.5 (build 20230203)`, from a text in the library, which has no function that says it.
pub fn name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let find = || {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let path =
            maps.lines().find_map(|line| line.find('/').map(|start| &line[start..]).filter(|path| is_library(path)))?;
        let library = fs::read(path).ok()?;
        const BEFORE: &[u8] = b"libjpeg-turbo version ";
        let start = memmem::find(&library, BEFORE)? + BEFORE.len();
        let text = library[start..].split(|byte| *byte == 0).next()?;
        Some(format!("libjpeg-turbo {}", String::from_utf8_lossy(text)))
    };
    NAME.get_or_init(|| find().unwrap_or_else(|| format!("libjpeg-turbo ({LIBRARY})"))).clone()
}

fn is_library(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|file| file.starts_with("libturbojpeg.so"))
}

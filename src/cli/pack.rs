//! Options of `ringmark pack`.

use std::path::PathBuf;
use std::thread;

use clap::{Args, ValueHint};
use ringmark_core::dimension::{ImageFormat, ImageLimits};
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::number;
use ringmark_input::convert::{Conversion, Encoding};
use ringmark_input::pack::{PackConfig, SEED};

const EXAMPLES: &str = "\
Examples:
  ringmark pack imagenet/train train.rec
      train.rec with train.idx and train.lst: classes in the order of folder names, images shuffled as by im2rec.py
  ringmark pack imagenet val.rec --list val.lst
      the images of a list, in its order; its paths are relative to FOLDER
  ringmark pack imagenet/train small.rec --resize 256 --quality 90
      every image as JPEG of quality 90 whose shorter edge has 256 pixels
  ringmark pack photos photos.rec --no-shuffle --force
      in the order of folders and names, replacing existing files

Files are stored unchanged unless one of --resize, --center-crop, --quality and --encoding is given. im2rec.py does so \
only with --pass-through and otherwise re-encodes every image; use --quality 95 for the same effect.

MXNet reads these files, and ringmark those of MXNet's im2rec.py.";

/// Options of `ringmark pack`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PackOptions {
    /// Folder of images, with a folder for each class
    ///
    /// With --list, its paths are relative to this folder.
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// File to write, with OUT.idx and OUT.lst next to it
    #[arg(value_name = "OUT.rec")]
    output: PathBuf,
    /// Pack the images of this list, in its order
    ///
    /// Lines of number, label or labels, and path, separated by tabs.
    #[arg(long, value_name = "FILE.lst", conflicts_with_all = ["shuffle", "no_shuffle"], value_hint = ValueHint::FilePath)]
    list: Option<PathBuf>,
    /// Shuffle with this seed, as Python does
    #[arg(long, value_name = "SEED", default_value_t = SEED, conflicts_with = "no_shuffle")]
    shuffle: u64,
    /// Leave the images in the order of folders and names
    #[arg(long)]
    no_shuffle: bool,
    /// Store the image files unchanged, which is the default
    #[arg(long, conflicts_with_all = ["resize", "center_crop", "quality", "encoding"])]
    pass_through: bool,
    /// Resize the shorter edge to this [default: unchanged]
    ///
    /// Enlarges or reduces with OpenCV's bilinear interpolation.
    #[arg(long, value_name = "PIXELS", value_parser = number(1..=u16::MAX))]
    resize: Option<u16>,
    /// Keep only the center square, cut before --resize
    #[arg(long)]
    center_crop: bool,
    /// Quality of JPEG images, 0 to 100 [default: 95]
    ///
    /// For PNG: compression level, 0 to 9 [default: 9].
    #[arg(long, value_name = "Q", value_parser = number(0..=100_u8))]
    quality: Option<u8>,
    /// Encode images in this format [default: .jpg]
    #[arg(long, value_name = "FORMAT", value_parser = keyword::<ImageFormat>())]
    encoding: Option<ImageFormat>,
    /// Reject images beyond these limits
    ///
    /// Pixels, aspect (ratio of longer to shorter edge), scans of a JPEG, bytes
    #[arg(long, value_name = "LIMITS", default_value_t)]
    image_limits: ImageLimits,
    /// Threads that read and encode [default: one per core]
    ///
    /// The files do not depend on it.
    #[arg(long, alias = "num-thread", value_name = "N", value_parser = number(1..=u16::MAX))]
    threads: Option<u16>,
    /// Replace existing files
    #[arg(long)]
    force: bool,
}

impl PackOptions {
    /// Fills in defaults.
    pub fn into_config(self) -> anyhow::Result<PackConfig> {
        let conversion = self.conversion().map_err(usage)?;
        let PackOptions { folder, output, list, shuffle, no_shuffle, image_limits: limits, threads, force, .. } = self;
        let shuffle = (!no_shuffle && list.is_none()).then_some(shuffle);
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        let threads = threads.map_or_else(cores, usize::from);
        Ok(PackConfig { folder, output, list, shuffle, conversion, limits, threads, force })
    }

    /// Returns `None` if files are stored unchanged.
    fn conversion(&self) -> anyhow::Result<Option<Conversion>> {
        let PackOptions { resize, center_crop, quality, encoding, .. } = self;
        if resize.is_none() && !center_crop && quality.is_none() && encoding.is_none() {
            return Ok(None);
        }
        let encoding = Encoding::new(encoding.unwrap_or(ImageFormat::Jpeg), *quality)?;
        Ok(Some(Conversion { is_cropped: *center_crop, shorter_edge: *resize, encoding }))
    }
}

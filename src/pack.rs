//! `ringmark pack`: packs a folder of images and prints a summary.

use std::time::{Duration, Instant};

use anyhow::bail;
use ringmark_input::convert::{Conversion, Encoding};
use ringmark_input::pack::{PackConfig, Packed, Progress, pack};

use crate::launch::local::interrupt::Interrupt;
use crate::output;
use crate::output::message::print_error;

/// Time between two lines of progress.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Packs, and prints a summary.
pub fn run(config: &PackConfig) -> anyhow::Result<()> {
    let interrupt = Interrupt::install()?;
    let start = Instant::now();
    let mut reported = start;
    let mut watch = |progress: Progress| {
        if interrupt.is_set() {
            bail!("interrupted");
        }
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            print_error(&progress_line(progress, start.elapsed()));
        }
        Ok(())
    };
    let packed = pack(config, &mut watch)?;
    output::print(&summary(config, &packed))
}

fn rate(bytes: u64, took: Duration) -> String {
    let megabytes = bytes as f64 / 1e6;
    let (seconds, per_second) = (took.as_secs_f64(), megabytes / took.as_secs_f64().max(1e-9));
    format!("{megabytes:.1} MB in {seconds:.2} s, {per_second:.1} MB/s")
}

fn progress_line(Progress { images, of, bytes }: Progress, took: Duration) -> String {
    format!("{images} of {of} images, {}", rate(bytes, took))
}

fn summary(config: &PackConfig, packed: &Packed) -> String {
    let Packed { images, classes, bytes, left_out, repeated, took, files: [record_file, index, list] } = packed;
    let plural = |count: &u64, one: &str, many: &str| format!("{count} {}", if *count == 1 { one } else { many });
    let order = match (&config.list, config.shuffle) {
        (Some(list), _) => format!("in the order of {}", list.display()),
        (None, Some(seed)) => format!("shuffled with seed {seed}"),
        (None, None) => "in the order of folders and names".to_owned(),
    };
    let stored = config.conversion.map_or_else(|| "stored unchanged".to_owned(), converted);
    let mut text = format!(
        "{} of {}, {order}, {stored}: {}\n{}, with {} and {}\n",
        plural(images, "image", "images"),
        plural(classes, "class", "classes"),
        rate(*bytes, *took),
        record_file.display(),
        index.display(),
        list.display()
    );
    if *left_out > 0 {
        let files = plural(left_out, "file", "files");
        text += &format!("ignored: {files} outside of a class or without an image extension\n");
    }
    if *repeated > 0 {
        text += &format!(
            "ignored: {}\n",
            plural(repeated, "link to a folder that is", "links to folders that are") + " already in the class"
        );
    }
    text
}

fn converted(Conversion { is_cropped, shorter_edge, encoding }: Conversion) -> String {
    let format = match encoding {
        Encoding::Jpeg(quality) => format!("as JPEG of quality {quality}"),
        Encoding::Png(level) => format!("as PNG of level {level}"),
    };
    let size = match (is_cropped, shorter_edge) {
        (true, Some(edge)) => format!(", the center square at {edge} x {edge} pixels"),
        (true, None) => ", the center square".to_owned(),
        (false, Some(edge)) => format!(", shorter edge {edge} pixels"),
        (false, None) => String::new(),
    };
    format + &size
}

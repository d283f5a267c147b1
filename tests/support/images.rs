//! Image data sets for training in tests.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use crate::support::safetensors;

/// Writes MNIST's arrays with `count` images; class and pixels are derived from the image's number.
pub fn digits(folder: &Path, count: u32) -> (Vec<u8>, Vec<u8>) {
    let pixels: Vec<u8> =
        (0..u64::from(count) * 28 * 28).map(|number| (255.0 * safetensors::unit(number).abs()) as u8).collect();
    let labels: Vec<u8> = (0..count).map(|number| (7 * number % 10) as u8).collect();
    write_digits(folder, &pixels, &labels);
    (pixels, labels)
}

pub fn write_digits(folder: &Path, pixels: &[u8], labels: &[u8]) {
    let count = labels.len() as u32;
    let head = |shape: &[u32]| -> Vec<u8> {
        [0, 0, 8, shape.len() as u8].into_iter().chain(shape.iter().flat_map(|size| size.to_be_bytes())).collect()
    };
    let write = |name: &str, head: Vec<u8>, values: &[u8]| {
        fs::write(folder.join(name), [&head, values].concat()).expect("written");
    };
    write("train-images-idx3-ubyte", head(&[count, 28, 28]), pixels);
    write("train-labels-idx1-ubyte", head(&[count]), labels);
}

/// Creates a folder of two classes with photographs of several kinds.
pub fn photographs(folder: &Path) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pixels");
    let root = folder.join("photographs");
    for (number, name) in
        ["full.jpg", "progressive.jpg", "rgb.jpg", "grayscale.jpg", "png_alpha.png"].iter().enumerate()
    {
        let class = root.join(["cat", "dog"][number % 2]);
        fs::create_dir_all(&class).expect("made");
        fs::copy(golden.join(name), class.join(name)).expect("copied");
    }
    root
}

/// Writes a PNG of `edge` x `edge` pixels that does not compress.
pub fn noise(path: &Path, edge: u32) {
    let pixels: Vec<u8> =
        (0..3 * edge * edge).map(|number| (255.0 * safetensors::unit(number.into()).abs()) as u8).collect();
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path).expect("created")), edge, edge);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels)).expect("written");
}

//! Rotation, shear and aspect ratio in one step: the affine transformation of ImageRecordIter, with OpenCV's bilinear
//! warpAffine.

use super::generator::Generator;
use crate::decode::{ImageView, Size};

/// Value of pixels outside the image: train_imagenet.py's `fill_value`.
const FILL: u8 = 127;

/// Largest rotation (degrees), shear and change of the aspect ratio in either direction, at MXNet's level 3.
const MAX_ANGLE: usize = 10;
const MAX_SHEAR: f64 = 0.1;
const MAX_ASPECT_RATIO: f64 = 0.25;

/// OpenCV's warpAffine has a resolution of 1/32 pixel, which it computes from 1/1024.
const PLACE_BITS: i32 = 10;
const FRACTION_BITS: i32 = 5;
const FRACTIONS: i32 = 1 << FRACTION_BITS;

/// Distortion of an image around its center.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distortion {
    /// Rotation in whole degrees.
    pub angle: i32,
    /// Horizontal shift of a row in pixels, per pixel of its vertical position.
    pub shear: f64,
    /// Factor of the width divided by that of the height.
    pub aspect_ratio: f64,
}

impl Distortion {
    pub(super) fn draw(generator: &mut Generator) -> Distortion {
        let shear = generator.between(-MAX_SHEAR, MAX_SHEAR);
        let angle = generator.up_to(2 * MAX_ANGLE) as i32 - MAX_ANGLE as i32;
        let aspect_ratio = generator.between(1.0 - MAX_ASPECT_RATIO, 1.0 + MAX_ASPECT_RATIO);
        Distortion { angle, shear, aspect_ratio }
    }

    /// Returns the matrix that maps `[x, y, 1]` in the image to the distorted image, by rows; the center is fixed.
    pub fn matrix(&self, size: Size) -> [[f64; 3]; 2] {
        let (sine, cosine) = f64::from(self.angle).to_radians().sin_cos();
        let height = 2.0 / (1.0 + self.aspect_ratio);
        let width = self.aspect_ratio * height;
        let rows = [
            [height * cosine - self.shear * sine * width, height * sine + self.shear * cosine * width],
            [-sine * width, cosine * width],
        ];
        let edges = [size.width as f64, size.height as f64];
        let edge = |row: usize| (edges[row] - rows[row][0] * edges[0] - rows[row][1] * edges[1]) / 2.0;
        [[rows[0][0], rows[0][1], edge(0)], [rows[1][0], rows[1][1], edge(1)]]
    }
}

fn inverse([[a, b, x], [c, d, y]]: [[f64; 3]; 2]) -> [[f64; 3]; 2] {
    let determinant = a * d - b * c;
    let [a, b, c, d] = [d / determinant, -b / determinant, -c / determinant, a / determinant];
    [[a, b, -a * x - b * y], [c, d, -c * x - d * y]]
}

/// Fills `output`, a square of `edge` x `edge` pixels at `left` and `top` of the distorted image. `columns` is a
/// reusable buffer.
pub(super) fn warp(
    ImageView { rgb, size }: ImageView,
    distortion: &Distortion,
    [left, top]: [usize; 2],
    output: &mut [u8],
    edge: usize,
    columns: &mut Vec<[i32; 2]>,
) {
    let [x, y] = inverse(distortion.matrix(size));
    let place = |value: f64| (value * f64::from(1 << PLACE_BITS)).round_ties_even() as i32;
    columns.clear();
    columns.extend((left..left + edge).map(|column| [x, y].map(|row| place(row[0] * column as f64))));
    // Rounds to the nearest 1/32.
    let half = 1 << (PLACE_BITS - FRACTION_BITS - 1);
    for (row, output) in (top..).zip(output.chunks_exact_mut(3 * edge)) {
        let start = [x, y].map(|line| place(line[1] * row as f64 + line[2]) + half);
        for (column, pixel) in columns.iter().zip(output.chunks_exact_mut(3)) {
            let place = [0, 1].map(|axis| (start[axis] + column[axis]) >> (PLACE_BITS - FRACTION_BITS));
            pixel.copy_from_slice(&interpolate(rgb, size, place));
        }
    }
}

/// Interpolates between the 2 x 2 pixels around a position in units of 1/32 pixel.
fn interpolate(rgb: &[u8], size: Size, place: [i32; 2]) -> [u8; 3] {
    let [x, y] = place.map(|place| place >> FRACTION_BITS);
    let [right, down] = place.map(|place| place & (FRACTIONS - 1));
    let weights = [
        (FRACTIONS - right) * (FRACTIONS - down),
        right * (FRACTIONS - down),
        (FRACTIONS - right) * down,
        right * down,
    ];
    let (width, height) = (size.width as i32, size.height as i32);
    let at = |x: i32, y: i32| 3 * (y as usize * size.width + x as usize);
    let is_inside = x >= 0 && y >= 0 && x + 1 < width && y + 1 < height;
    let round = |sum: i32| ((sum + (1 << (2 * FRACTION_BITS - 1))) >> (2 * FRACTION_BITS)) as u8;
    if is_inside {
        let (upper, lower) = (&rgb[at(x, y)..][..6], &rgb[at(x, y + 1)..][..6]);
        return [0, 1, 2].map(|channel| {
            round(
                weights[0] * i32::from(upper[channel])
                    + weights[1] * i32::from(upper[3 + channel])
                    + weights[2] * i32::from(lower[channel])
                    + weights[3] * i32::from(lower[3 + channel]),
            )
        });
    }
    let neighbors = [(x, y), (x + 1, y), (x, y + 1), (x + 1, y + 1)].map(|(x, y)| {
        let is_there = (0..width).contains(&x) && (0..height).contains(&y);
        is_there.then(|| at(x, y))
    });
    [0, 1, 2].map(|channel| {
        let value = |place: Option<usize>| place.map_or(FILL, |place| rgb[place + channel]);
        round(weights.iter().zip(neighbors).map(|(weight, place)| weight * i32::from(value(place))).sum())
    })
}

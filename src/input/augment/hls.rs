//! Hue, lightness and saturation: ImageRecordIter's jitter, in OpenCV's HLS of 8 bits (hue 0 to 180).

use super::generator::Generator;

/// MXNet's level 2: `max_random_h`, `_l`, `_s`, each up to so much either way.
const MAX: [f64; 3] = [36.0, 50.0, 50.0];

/// Limits of hue, lightness and saturation. MXNet cuts hue off at its ends, although it is a circle.
const LIMITS: [i32; 3] = [180, 255, 255];

/// What is added to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HlsShift {
    /// Of 180, half degrees.
    pub hue: i32,
    /// Of 255.
    pub lightness: i32,
    /// Of 255.
    pub saturation: i32,
}

impl HlsShift {
    pub(super) fn draw(generator: &mut Generator) -> HlsShift {
        // MXNet's order: h, s, l; towards zero, as its conversion to an integer.
        let mut shift = |max: f64| generator.between(-max, max) as i32;
        let hue = shift(MAX[0]);
        let saturation = shift(MAX[2]);
        HlsShift { hue, lightness: shift(MAX[1]), saturation }
    }

    /// Changes every pixel of `rgb`.
    pub(super) fn apply(&self, rgb: &mut [u8]) {
        let shift = [self.hue, self.lightness, self.saturation];
        for pixel in rgb.as_chunks_mut::<3>().0 {
            let mut hls = to_hls(*pixel);
            for (value, (shift, limit)) in hls.iter_mut().zip(shift.iter().zip(LIMITS)) {
                *value = (*value + shift).clamp(0, limit);
            }
            *pixel = to_rgb(hls);
        }
    }
}

/// A byte's part of 1, as OpenCV has it.
const UNIT: f32 = 1.0 / 255.0;

/// To the nearest integer, and the even one of two, of what is below 2^22: without a call of a function, which processors
/// without an instruction for it need. The sum has no bits for what is behind the point.
fn round(value: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}

/// OpenCV's RGB2HLS of 8 bits.
fn to_hls(rgb: [u8; 3]) -> [i32; 3] {
    let [red, green, blue] = rgb.map(|value| f32::from(value) * UNIT);
    let max = red.max(green).max(blue);
    let min = red.min(green).min(blue);
    let (sum, difference) = (max + min, max - min);
    let lightness = sum * 0.5;
    let (mut hue, mut saturation) = (0.0, 0.0);
    if difference > f32::EPSILON {
        saturation = if lightness < 0.5 { difference / sum } else { difference / (2.0 - sum) };
        let sixth = 60.0 / difference;
        hue = if max == red {
            (green - blue) * sixth
        } else if max == green {
            (blue - red) * sixth + 120.0
        } else {
            (red - green) * sixth + 240.0
        };
        if hue < 0.0 {
            hue += 360.0;
        }
    }
    [hue * 0.5, lightness * 255.0, saturation * 255.0].map(round)
}

/// OpenCV's HLS2RGB of 8 bits.
fn to_rgb([hue, lightness, saturation]: [i32; 3]) -> [u8; 3] {
    let byte = |value: f32| round(value * 255.0).clamp(0, 255) as u8;
    let [lightness, saturation] = [lightness, saturation].map(|value| value as f32 * UNIT);
    if saturation == 0.0 {
        return [byte(lightness); 3];
    }
    let high =
        if lightness <= 0.5 { lightness * (1.0 + saturation) } else { lightness + saturation - lightness * saturation };
    let low = 2.0 * lightness - high;
    // Six sectors of the circle, and the place in one.
    let hue = (hue % 180) as f32 * (6.0 / 180.0);
    let sector = hue as i32;
    let place = hue - sector as f32;
    let falling = low + (high - low) * (1.0 - place);
    let rising = low + (high - low) * place;
    let rgb = match sector {
        0 => [high, rising, low],
        1 => [falling, high, low],
        2 => [low, high, rising],
        3 => [low, falling, high],
        4 => [rising, low, high],
        _ => [high, low, falling],
    };
    rgb.map(byte)
}

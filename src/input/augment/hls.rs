//! Hue, lightness and saturation jitter of ImageRecordIter, in OpenCV's 8-bit HLS (hue from 0 to 180).

use super::generator::Generator;

/// Largest shift in either direction at MXNet's level 2: `max_random_h`, `_l`, `_s`.
const MAX: [f64; 3] = [36.0, 50.0, 50.0];

/// Upper limits of hue, lightness and saturation. MXNet clamps hue although it is cyclic.
const LIMITS: [i32; 3] = [180, 255, 255];

/// Shift of hue, lightness and saturation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HlsShift {
    /// Units of two degrees, from 0 to 180.
    pub hue: i32,
    /// Units of 1/255.
    pub lightness: i32,
    /// Units of 1/255.
    pub saturation: i32,
}

impl HlsShift {
    pub(super) fn draw(generator: &mut Generator) -> HlsShift {
        // MXNet's order: h, s, l. Truncated toward zero, as in its conversion to an integer.
        let mut shift = |max: f64| generator.between(-max, max) as i32;
        let hue = shift(MAX[0]);
        let saturation = shift(MAX[2]);
        HlsShift { hue, lightness: shift(MAX[1]), saturation }
    }

    /// Shifts every pixel of `rgb`.
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

/// Scale of a byte to the range 0 to 1, as in OpenCV.
const UNIT: f32 = 1.0 / 255.0;

/// Rounds a value below 2^22 to the nearest integer, ties to even. Processors without a rounding instruction would
/// need a function call; adding the constant shifts out the fractional bits instead.
fn round(value: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}

/// OpenCV's 8-bit RGB2HLS.
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

/// OpenCV's 8-bit HLS2RGB.
fn to_rgb([hue, lightness, saturation]: [i32; 3]) -> [u8; 3] {
    let byte = |value: f32| round(value * 255.0).clamp(0, 255) as u8;
    let [lightness, saturation] = [lightness, saturation].map(|value| value as f32 * UNIT);
    if saturation == 0.0 {
        return [byte(lightness); 3];
    }
    let high =
        if lightness <= 0.5 { lightness * (1.0 + saturation) } else { lightness + saturation - lightness * saturation };
    let low = 2.0 * lightness - high;
    // Sector of the color circle (0 to 5), and the position in it.
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

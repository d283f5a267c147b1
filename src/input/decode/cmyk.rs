//! Conversion of the inverted inks in Adobe's JPEG files to RGB.

/// Converts `pixels` in place from four bytes per pixel to three, without gaps.
///
/// Pillow's formula, 255 - K - C x (255 - K) / 255, equals C' x K' / 255 for the stored, inverted C' = 255 - C.
pub fn to_rgb(pixels: &mut [u8]) {
    for pixel in 0..pixels.len() / 4 {
        let black = pixels[4 * pixel + 3];
        for channel in 0..3 {
            pixels[3 * pixel + channel] = product(pixels[4 * pixel + channel], black);
        }
    }
}

/// Returns `a x b / 255`, rounded.
fn product(a: u8, b: u8) -> u8 {
    ((u32::from(a) * u32::from(b) + 127) / 255) as u8
}

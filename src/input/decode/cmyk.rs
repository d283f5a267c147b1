//! Inverted inks, as Adobe's JPEG files hold them, to RGB.

/// `pixels` holds four bytes a pixel, and three a pixel, without gaps, afterwards.
///
/// Pillow's formula for what it reads inverted: 255 - K - C x (255 - K) / 255, which is C' x K' / 255 of the stored C' = 255 - C.
pub fn to_rgb(pixels: &mut [u8]) {
    for pixel in 0..pixels.len() / 4 {
        let black = pixels[4 * pixel + 3];
        for channel in 0..3 {
            pixels[3 * pixel + channel] = product(pixels[4 * pixel + channel], black);
        }
    }
}

/// `a x b / 255`, rounded.
fn product(a: u8, b: u8) -> u8 {
    ((u32::from(a) * u32::from(b) + 127) / 255) as u8
}

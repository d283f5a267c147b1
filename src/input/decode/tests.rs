//! Both decoders on the same files: valid and damaged ones, written by Pillow.

use std::fs;
use std::path::Path;

use expect_test::expect;
use png::{BitDepth, ColorType};
use ringmark_core::dimension::{DecoderChoice, ImageLimit, ImageLimits, Scaling};

use super::*;
use crate::testing::{decode, decoders, difference, golden, png};

/// Kinds of JPEG, each with its start of frame.
const JPEGS: [(&str, u8); 7] = [
    ("baseline.jpg", 0xc0),
    ("progressive.jpg", 0xc2),
    ("full.jpg", 0xc0),
    ("grayscale.jpg", 0xc0),
    ("inks.jpg", 0xc0),
    ("rgb.jpg", 0xc0),
    ("restart.jpg", 0xc0),
];

fn refusal(file: &[u8]) -> String {
    let refusals: Vec<String> = decoders()
        .iter_mut()
        .map(|decoder| decode(decoder, file).map(|pixels| pixels.size()).expect_err(&decoder.name()))
        .collect();
    refusals.join("\n")
}

#[test]
fn jpeg_variants_match_pillow() {
    for mut decoder in decoders() {
        for (name, frame) in JPEGS {
            let file = golden(name);
            assert!(file.windows(2).any(|marker| marker == [0xff, frame]), "{name}");
            let pixels = decode(&mut decoder, &file).unwrap_or_else(|error| panic!("{name}: {error}"));
            let (expected, size) = png(&format!("{name}.png"));
            assert_eq!(pixels.size(), size);
            let difference = difference(pixels.rgb(), &expected);
            println!("{}: {name} differs by {difference}", decoder.name());
            // The inverse DCT differs by one here and there, the interpolation of chroma by some.
            let is_subsampled = ["baseline.jpg", "progressive.jpg", "restart.jpg"].contains(&name);
            let allowed = match (decoder.name().starts_with("zune"), is_subsampled) {
                (true, true) => 8,
                (true, false) => 3,
                (false, _) => 1,
            };
            assert!(difference <= allowed, "{}: {name} differs by {difference}", decoder.name());
        }
    }
}

#[test]
fn ycck_is_decoded_identically() {
    // The inks' bytes, with Adobe's marker saying that the first three are YCbCr.
    let mut file = golden("inks.jpg");
    let adobe = memchr::memmem::find(&file, b"Adobe").expect("its marker");
    assert_eq!(std::mem::replace(&mut file[adobe + 11], 2), 0);
    let images: Vec<Pixels> = decoders().iter_mut().map(|decoder| decode(decoder, &file).expect("inks")).collect();
    for image in &images[1..] {
        let difference = difference(image.rgb(), images[0].rgb());
        assert!(difference <= 6, "{difference}");
    }
    file[adobe] = b'a';
    expect![
        "not a JPEG that can be decoded: JPEG has four components without Adobe's marker, so it is unknown whether its \
             inks are inverted: save it as RGB"
    ]
    .assert_eq(&refusal(&file));
}

#[test]
fn cmyk_inks_are_multiplied_by_black() {
    let mut pixels = [255, 0, 100, 255, 255, 200, 1, 128, 10, 20, 30, 0];
    cmyk::to_rgb(&mut pixels);
    assert_eq!(pixels[..9], [255, 0, 100, 128, 100, 1, 0, 0, 0]);
}

#[test]
fn png_variants_become_rgb() {
    let mut decoder = decoders().swap_remove(0);
    for name in ["png_palette.png", "png_gray.png", "png_gray_alpha.png", "png_alpha.png", "source.png"] {
        let pixels = decode(&mut decoder, &golden(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (expected, size) = png(&if name == "source.png" { name.to_owned() } else { format!("{name}.png") });
        assert_eq!((pixels.size(), pixels.rgb()), (size, &expected[..]), "{name}");
    }
}

fn encoded(color: ColorType, depth: BitDepth, data: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    encoder.write_header().expect("a header").write_image_data(data).expect("its pixels");
    file
}

#[test]
fn png_bit_depths_are_scaled_to_8_bits() {
    let mut decoder = decoders().swap_remove(0);
    let bytes: Vec<u8> = (0..48).map(|byte| byte * 5).collect();
    let high = |step: usize| bytes.iter().step_by(step).copied().collect::<Vec<u8>>();
    let rgb = decode(&mut decoder, &encoded(ColorType::Rgb, BitDepth::Sixteen, &bytes, (4, 2))).expect("a PNG");
    assert_eq!(rgb.rgb(), high(2));
    let gray = decode(&mut decoder, &encoded(ColorType::Grayscale, BitDepth::Sixteen, &bytes, (8, 3))).expect("a PNG");
    assert_eq!(gray.rgb(), high(2).iter().flat_map(|gray| [*gray; 3]).collect::<Vec<u8>>());
    let bits =
        decode(&mut decoder, &encoded(ColorType::Grayscale, BitDepth::One, &[0b1010_0000], (4, 1))).expect("one");
    assert_eq!(bits.rgb(), [255, 255, 255, 0, 0, 0, 255, 255, 255, 0, 0, 0]);
}

#[test]
fn invalid_png_palettes_are_rejected() {
    let indexed = |palette: usize| {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 2, 1);
        encoder.set_color(ColorType::Indexed);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_palette((0..palette).map(|byte| byte as u8).collect::<Vec<u8>>());
        encoder.write_header().expect("a header").write_image_data(&[0, 1]).expect("its pixels");
        file
    };
    let mut decoder = decoders().swap_remove(0);
    for palette in [6, 768] {
        assert_eq!(decode(&mut decoder, &indexed(palette)).expect("a PNG").rgb(), [0, 1, 2, 3, 4, 5]);
    }
    let refused = [4, 5, 49, 767, 1, 2, 769, 771, 3000].map(|palette| refusal(&indexed(palette)));
    expect![[r#"
        PNG cannot be decoded: PNG's palette has 4 bytes, not 3 per color: the file is damaged
        PNG cannot be decoded: PNG's palette has 5 bytes, not 3 per color: the file is damaged
        PNG cannot be decoded: PNG's palette has 49 bytes, not 3 per color: the file is damaged
        PNG cannot be decoded: PNG's palette has 767 bytes, not 3 per color: the file is damaged
        PNG cannot be decoded: PNG of 81 bytes is damaged or truncated: Chunk length wrong: ChunkType { type: PLTE, critical: true, private: false, reserved: false, safecopy: false }
        PNG cannot be decoded: PNG of 82 bytes is damaged or truncated: Chunk length wrong: ChunkType { type: PLTE, critical: true, private: false, reserved: false, safecopy: false }
        PNG cannot be decoded: PNG of 849 bytes is damaged or truncated: Chunk length wrong: ChunkType { type: PLTE, critical: true, private: false, reserved: false, safecopy: false }
        PNG cannot be decoded: PNG of 851 bytes is damaged or truncated: Chunk length wrong: ChunkType { type: PLTE, critical: true, private: false, reserved: false, safecopy: false }
        PNG cannot be decoded: PNG of 3080 bytes is damaged or truncated: Chunk length wrong: ChunkType { type: PLTE, critical: true, private: false, reserved: false, safecopy: false }"#]].assert_eq(&refused.join("\n"));
}

#[test]
fn truncated_file_is_an_error_at_every_length() {
    for name in JPEGS.map(|(name, _)| name).into_iter().chain(["source.png", "png_palette.png"]) {
        let file = golden(name);
        for part in 1..=10 {
            let cut = &file[..file.len() * part / 11];
            let refusal = refusal(cut);
            assert!(
                refusal.contains("truncated") || refusal.contains("the file has no image"),
                "{name}, {} bytes: {refusal}",
                cut.len()
            );
        }
        for bytes in 0..file.len() {
            header(&file[..bytes], &ImageLimits::default())
                .and_then(|header| {
                    let mut pixels = Pixels::default();
                    decoders().swap_remove(0).decode(&file[..bytes], &header, None, &mut pixels)
                })
                .expect_err("it is cut");
        }
    }
}

#[test]
fn truncation_is_reported_with_its_byte() {
    let file = golden("baseline.jpg");
    let refused = refusal(&file[..900]);
    expect!["not a JPEG that can be decoded: JPEG ends in the middle of its scan, at byte 900: the file is truncated"]
        .assert_eq(&refused);
    let file_of_scans = golden("progressive.jpg");
    let last = memchr::memmem::rfind(&file_of_scans, &[0xff, 0xda]).expect("a scan");
    let refused = refusal(&file_of_scans[..last + 15]);
    expect![
        "not a JPEG that can be decoded: JPEG ends in the middle of its scan 10, at byte 908: the file is \
             truncated"
    ]
    .assert_eq(&refused);
    let refused = refusal(&file[..300]);
    expect![
        "not a JPEG that can be decoded: JPEG ends at byte 300, inside its segment ffc4 of 181 bytes: the file is \
             truncated"
    ]
    .assert_eq(&refused);
}

#[test]
fn trailing_bytes_are_ignored() {
    let mut file = golden("baseline.jpg");
    let expected = decode(&mut decoders()[0], &file).expect("whole");
    file.extend(b"\0\0camera's own notes\xff\xd8\xff");
    assert_eq!(decode(&mut decoders()[0], &file).expect("whole").rgb(), expected.rgb());
}

#[test]
fn extra_bytes_before_the_end_are_ignored() {
    let file = golden("baseline.jpg");
    let mut padded = file[..file.len() - 2].to_vec();
    padded.extend([0; 40]);
    padded.extend([0xff, 0xd9]);
    for mut decoder in decoders() {
        let expected = decode(&mut decoder, &file).expect("whole");
        assert_eq!(decode(&mut decoder, &padded).expect("whole").rgb(), expected.rgb(), "{}", decoder.name());
    }
}

#[test]
fn end_inside_a_scan_is_an_error() {
    let file = golden("full.jpg");
    let mut cut = file[..file.len() * 7 / 10].to_vec();
    cut.extend([0xff, 0xd9]);
    for mut decoder in decoders() {
        let name = decoder.name();
        decode(&mut decoder, &cut).map(|pixels| pixels.size()).expect_err(&name);
    }
}

#[test]
fn non_images_are_rejected() {
    expect!["no image: the file is empty"].assert_eq(&refusal(b""));
    let text = refusal(b"Once upon a time");
    expect!["neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the 16 bytes begin with 4f 6e 63 65 20 75 70 6f"]
        .assert_eq(&text);
    expect!["not a JPEG that can be decoded: JPEG ends in its header, at byte 3: the file has no image"]
        .assert_eq(&refusal(&[0xff, 0xd8, 0xff]));
}

fn with_frame(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut file = golden("baseline.jpg");
    let frame = file.windows(2).position(|marker| marker == [0xff, 0xc0]).expect("a frame");
    change(&mut file[frame..]);
    file
}

#[test]
fn header_cannot_request_excess_memory() {
    let sized = |width: u16, height: u16| {
        with_frame(|frame| {
            frame[5..7].copy_from_slice(&height.to_be_bytes());
            frame[7..9].copy_from_slice(&width.to_be_bytes());
        })
    };
    let refused = refusal(&sized(65535, 65535));
    expect![
        "not a JPEG that can be decoded: the header declares 65535 x 65535 pixels; the limit is 50000000: raise \
             it with --image-limits pixels=4294836225"
    ]
    .assert_eq(&refused);
    let refused = refusal(&sized(5000, 5000));
    expect![
        "not a JPEG that can be decoded: JPEG's header declares 5000 x 5000 pixels, which 1075 bytes cannot hold: \
             the file is truncated"
    ]
    .assert_eq(&refused);
    expect!["not a JPEG that can be decoded: the header declares 0 x 7 pixels"].assert_eq(&refusal(&sized(0, 7)));
    let mut png = golden("source.png");
    png[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    expect![
        "not a PNG that can be decoded: the header declares 65536 x 65536 pixels; the limit is 50000000: raise it \
             with --image-limits pixels=4294967296"
    ]
    .assert_eq(&refusal(&png));
}

#[test]
fn unsupported_jpegs_have_uniform_errors() {
    // Lossless, with arithmetic coding, hierarchical; 12 bits a sample; 2 components.
    let refused = [(1, 0xc3), (1, 0xc9), (1, 0xc5), (4, 12), (9, 2)]
        .map(|(place, byte)| refusal(&with_frame(|frame| frame[place] = byte)));
    expect![[r#"
        not a JPEG that can be decoded: JPEG is lossless (ffc3): only baseline and progressive are supported
        not a JPEG that can be decoded: JPEG is arithmetic-coded (ffc9): only baseline and progressive are supported
        not a JPEG that can be decoded: JPEG is hierarchical (ffc5): only baseline and progressive are supported
        not a JPEG that can be decoded: JPEG has 12 bits per sample: only 8 are supported
        not a JPEG that can be decoded: JPEG has 2 components: only 1, 3 and 4 are supported"#]]
    .assert_eq(&refused.join("\n"));
}

#[test]
fn damaged_bytes_neither_panic_nor_change_size() {
    for (name, _) in JPEGS {
        let file = golden(name);
        for place in (2..file.len()).step_by(7) {
            let mut file = file.clone();
            file[place] ^= 0x55;
            for mut decoder in decoders() {
                let Ok(header) = header(&file, &ImageLimits::default()) else { continue };
                let mut pixels = Pixels::default();
                if decoder.decode(&file, &header, None, &mut pixels).is_ok() {
                    assert_eq!(pixels.size(), header.size());
                }
            }
        }
    }
}

#[test]
fn scaled_decoding_keeps_enough_pixels() {
    let fractions: Vec<scaling::Fraction> =
        (1..=16).filter_map(|numerator| scaling::Fraction::new(numerator, 8)).collect();
    assert_eq!(fractions.len(), 8);
    let size = Size { width: 500, height: 375 };
    let wanted = |part, output| RequiredSize { part, output };
    let smallest = |part, output| {
        let Size { width, height } = scaling::smallest(size, wanted(part, output), &fractions);
        (width, height)
    };
    assert_eq!(smallest([500.0, 375.0], [224, 224]), (313, 235));
    assert_eq!(smallest([500.0, 375.0], [32, 32]), (63, 47));
    assert_eq!(smallest([300.0, 300.0], [224, 224]), (375, 282));
    assert_eq!(smallest([224.0, 224.0], [224, 224]), (500, 375));
    assert_eq!(smallest([100.0, 300.0], [224, 224]), (500, 375));
}

#[test]
fn scaled_image_resembles_the_original() {
    let Ok(mut decoder) = Decoder::new(DecoderChoice::Turbojpeg, Scaling::Allowed) else { return };
    assert!(decoder.scales());
    let file = golden("full.jpg");
    let header = header(&file, &ImageLimits::default()).expect("a JPEG");
    let mut pixels = Pixels::default();
    let wanted = RequiredSize { part: [36.0, 27.0], output: [18, 13] };
    decoder.decode(&file, &header, Some(wanted), &mut pixels).expect("a smaller one");
    assert_eq!(pixels.size(), Size { width: 18, height: 14 });
    let mean = |bytes: &[u8]| bytes.iter().map(|byte| f64::from(*byte)).sum::<f64>() / bytes.len() as f64;
    let whole = decode(&mut decoder, &file).expect("a JPEG");
    assert!((mean(pixels.rgb()) - mean(whole.rgb())).abs() < 2.0);
}

#[test]
fn decoders_have_names_with_versions() {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock")).expect("Cargo.lock");
    let (name, version) = zune::NAME.split_once(' ').expect("two words");
    assert!(lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"")), "{}", zune::NAME);
    assert_eq!(decoders()[0].name(), zune::NAME);
    let auto = Decoder::new(DecoderChoice::Auto, Scaling::Off).expect("one of them").name();
    match Decoder::new(DecoderChoice::Turbojpeg, Scaling::Off) {
        Ok(turbojpeg) => {
            assert_eq!(auto, turbojpeg.name());
            assert!(auto.starts_with("libjpeg-turbo ") && auto.contains("(build "), "{auto}");
        }
        Err(error) => {
            assert_eq!(auto, zune::NAME);
            assert!(error.to_string().contains("install Debian's package libturbojpeg0"), "{error}");
        }
    }
}

#[test]
fn image_above_a_limit_is_rejected_by_header() {
    let limits = ImageLimits::default();
    let refused =
        |file: &[u8], limits: &ImageLimits| format!("{:#}", header(file, limits).expect_err("beyond a limit"));
    let strip = png_of(89_000_000, 1);
    expect![
        "not a PNG that can be decoded: the header declares 89000000 x 1 pixels; the limit is 50000000: raise it \
             with --image-limits pixels=89000000"
    ]
    .assert_eq(&refused(&strip, &limits));
    let raised = limits.with(ImageLimit::Pixels, 89_000_000);
    expect![
        "not a PNG that can be decoded: the header declares 89000000 x 1 pixels, an aspect ratio of 89000000; the \
             limit is 100: raise it with --image-limits aspect=89000000"
    ]
    .assert_eq(&refused(&strip, &raised));
    header(&strip, &raised.with(ImageLimit::Aspect, 89_000_000)).expect("within these limits");

    let progressive = golden("progressive.jpg");
    let Header::Jpeg(JpegHeader { scans, .. }) = header(&progressive, &limits).expect("a JPEG") else {
        panic!("it is a JPEG")
    };
    header(&progressive, &limits.with(ImageLimit::Scans, scans as u64)).expect("at its limit");
    let refused = refused(&progressive, &limits.with(ImageLimit::Scans, scans as u64 - 1));
    assert!(refused.contains(&format!("at least {scans} scans; the limit is {}", scans - 1)), "{refused}");
}

/// The header of a PNG of one bit a pixel, and bytes enough for it.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_depth(BitDepth::One);
    drop(encoder.write_header().expect("a header"));
    file.resize((width as usize * height as usize).div_ceil(1_032 * 8), 0);
    file
}

//! Tests of plans by their distributions, and of the resulting pixels against OpenCV's.

use expect_test::expect;
use ringmark_core::dimension::{Augmentation, DecoderChoice, ImageLimits, Scaling};
use ringmark_core::options::keyword_enum::KeywordEnum;

use super::*;
use crate::decode::{ImageView, Pixels, Size};
use crate::image::ImagePipeline;
use crate::resize::Region;
use crate::testing::{cases, difference, golden, numbers, png};

const IMAGE: Size = Size { width: 500, height: 375 };
const DRAWS: u64 = 10_000;

fn plans(recipe: &Recipe, image: Size) -> Vec<Plan> {
    (0..DRAWS).map(|index| recipe.plan(image, &mut Generator::for_image(1, 2, index))).collect()
}

fn part(plan: &Plan) -> crate::resize::Region {
    match plan.geometry {
        Geometry::Region(part) => part,
        Geometry::Warp { .. } => panic!("{plan:?} is no part"),
    }
}

/// Returns minimum, mean and maximum.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let values: Vec<f64> = values.collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    [values.iter().copied().fold(f64::MAX, f64::min), mean, values.iter().copied().fold(f64::MIN, f64::max)]
}

fn assert_near(found: [f64; 3], expected: [f64; 3], tolerance: f64) {
    let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= tolerance);
    assert!(is_near, "least, mean and largest are {found:?}, not {expected:?} within {tolerance}");
}

#[test]
fn plan_depends_only_on_its_image() {
    for augmentation in Augmentation::ALL {
        let recipe = Recipe::training(*augmentation, 224);
        let draw = |seed, epoch, index| recipe.plan(IMAGE, &mut Generator::for_image(seed, epoch, index));
        assert_eq!(draw(3, 1, 99), draw(3, 1, 99));
        let others = [draw(4, 1, 99), draw(3, 2, 99), draw(3, 1, 98)];
        let is_drawn = !matches!(augmentation, Augmentation::None | Augmentation::Mirror);
        if is_drawn {
            assert!(others.iter().all(|other| *other != draw(3, 1, 99)), "{augmentation}");
        }
        assert_eq!(Recipe::validation(*augmentation, 224).plan(IMAGE, &mut Generator::for_image(5, 6, 7)), {
            Recipe::validation(*augmentation, 224).plan(IMAGE, &mut Generator::for_image(1, 2, 3))
        });
    }
}

#[test]
fn half_of_the_images_are_mirrored() {
    for augmentation in Augmentation::ALL {
        let mirrored =
            plans(&Recipe::training(*augmentation, 224), IMAGE).iter().filter(|plan| plan.is_mirrored).count();
        let is_half = (4_750..5_250).contains(&mirrored);
        let expected = !matches!(augmentation, Augmentation::None | Augmentation::Crop);
        assert!(is_half == expected && (expected || mirrored == 0), "{augmentation}: {mirrored} of 10,000");
    }
}

#[test]
fn crop_position_is_uniform() {
    for augmentation in [Augmentation::Crop, Augmentation::Mxnet1, Augmentation::Mxnet2] {
        let plans = plans(&Recipe::training(augmentation, 224), IMAGE);
        assert!(plans.iter().map(part).all(|part| (part.width, part.height) == (224.0, 224.0)));
        assert_near(spread(plans.iter().map(|plan| part(plan).left)), [0.0, 138.0, 276.0], 3.0);
        assert_near(spread(plans.iter().map(|plan| part(plan).top)), [0.0, 75.5, 151.0], 2.0);
    }
}

#[test]
fn center_crop_matches_each_framework() {
    let corner = |recipe: Recipe, image| {
        let part = part(&recipe.plan(image, &mut Generator::for_image(0, 0, 0)));
        [part.left, part.top, part.width, part.height]
    };
    let packed = Size { width: 259, height: 256 };
    // MXNet rounds 17.5 down; torchvision's CenterCrop rounds 59.5 to the even number.
    assert_eq!(corner(Recipe::validation(Augmentation::Mxnet3, 224), packed), [17.0, 16.0, 224.0, 224.0]);
    assert_eq!(corner(Recipe::validation(Augmentation::Mirror, 224), packed), [17.0, 16.0, 224.0, 224.0]);
    assert_eq!(corner(Recipe::training(Augmentation::Mirror, 223), packed), [18.0, 16.0, 223.0, 223.0]);
    assert_eq!(
        corner(Recipe::training(Augmentation::None, 28), Size { width: 28, height: 28 }),
        [0.0, 0.0, 28.0, 28.0]
    );
    let resized = Size { width: 343, height: 256 };
    assert_eq!(corner(Recipe::validation(Augmentation::Imagenet, 224), resized), [60.0, 16.0, 224.0, 224.0]);
    // Resize(256) turns 500 x 375 into 341 x 256; the crop starts at 58.5, which Python rounds to 58, and 16.
    let recipe = Recipe::validation(Augmentation::Imagenet, 224);
    assert_eq!((recipe.resize, recipe.normalization), (Resize::ShorterEdge(256), Normalization::TORCHVISION));
    let [left, top, width, height] = corner(recipe, IMAGE);
    let expected = [58.0 * 500.0 / 341.0, 16.0 * 375.0 / 256.0, 224.0 * 500.0 / 341.0, 224.0 * 375.0 / 256.0];
    assert!([left, top, width, height].iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9));
}

#[test]
fn small_image_is_enlarged_to_fit_shorter_edge() {
    for augmentation in Augmentation::ALL {
        let recipe = Recipe::training(*augmentation, 224);
        for image in [Size { width: 1, height: 1 }, Size { width: 100, height: 50 }, Size { width: 3, height: 2_000 }] {
            let plan = recipe.plan(image, &mut Generator::for_image(0, 0, 1));
            match plan.geometry {
                Geometry::Region(part) => {
                    assert!(part.width > 0.0 && part.left + part.width <= image.width as f64 + 1e-6, "{plan:?}");
                    assert!(part.height > 0.0 && part.top + part.height <= image.height as f64 + 1e-6, "{plan:?}");
                }
                Geometry::Warp { resized, .. } => assert_eq!(resized.shorter(), 224),
            }
        }
    }
}

#[test]
fn imagenet_draws_areas_and_ratios_as_torchvision() {
    let recipe = Recipe::training(Augmentation::Imagenet, 224);
    let plans = plans(&recipe, IMAGE);
    let area = plans.iter().map(part).map(|part| part.width * part.height / IMAGE.pixels() as f64);
    let ratio = plans.iter().map(part).map(|part| (part.width / part.height).ln());
    // Means of 100,000 draws of torchvision 0.26.0's get_params.
    assert_near(spread(area), [0.08, 0.4338, 1.0], 0.012);
    assert_near(spread(ratio), [-0.29, 0.0310, 0.29], 0.02);
    for part in plans.iter().map(part) {
        assert!(part.left + part.width <= 500.0 && part.top + part.height <= 375.0 && part.is_cut_out);
        assert!([part.left, part.top, part.width, part.height].iter().all(|edge| edge.fract() == 0.0));
    }
}

#[test]
fn imagenet_falls_back_to_nearest_ratio() {
    let fallback = |width, height| {
        let recipe = Recipe::training(Augmentation::Imagenet, 224);
        let part = part(&recipe.plan(Size { width, height }, &mut Generator::for_image(0, 0, 0)));
        [part.left, part.top, part.width, part.height]
    };
    // An area of at least 8 % never fits into an image with ratio 1 to 100: get_params of (100, 1) and (1, 100).
    assert_eq!(fallback(1_000, 10), [493.0, 0.0, 13.0, 10.0]);
    assert_eq!(fallback(10, 1_000), [0.0, 493.0, 10.0, 13.0]);
}

#[test]
fn mxnet_levels_draw_their_parameters() {
    for augmentation in [Augmentation::Mxnet2, Augmentation::Mxnet3] {
        let shifts: Vec<HlsShift> =
            plans(&Recipe::training(augmentation, 224), IMAGE).iter().filter_map(|plan| plan.colors).collect();
        assert_eq!(shifts.len(), DRAWS as usize);
        assert_near(spread(shifts.iter().map(|shift| f64::from(shift.hue))), [-35.0, 0.0, 35.0], 1.0);
        assert_near(spread(shifts.iter().map(|shift| f64::from(shift.lightness))), [-49.0, 0.0, 49.0], 1.5);
        assert_near(spread(shifts.iter().map(|shift| f64::from(shift.saturation))), [-49.0, 0.0, 49.0], 1.5);
    }
    let plans = plans(&Recipe::training(Augmentation::Mxnet3, 224), IMAGE);
    let warps: Vec<(Distortion, usize, usize)> = plans
        .iter()
        .filter_map(|plan| match plan.geometry {
            Geometry::Warp { resized, distortion, left, top } if resized == IMAGE => Some((distortion, left, top)),
            _ => None,
        })
        .collect();
    assert_eq!(warps.len(), DRAWS as usize);
    assert_near(spread(warps.iter().map(|warp| f64::from(warp.0.angle))), [-10.0, 0.0, 10.0], 0.3);
    assert_near(spread(warps.iter().map(|warp| warp.0.shear)), [-0.1, 0.0, 0.1], 0.003);
    assert_near(spread(warps.iter().map(|warp| warp.0.aspect_ratio)), [0.75, 1.0, 1.25], 0.008);
    assert_near(spread(warps.iter().map(|warp| warp.1 as f64)), [0.0, 138.0, 276.0], 3.0);
    assert_near(spread(warps.iter().map(|warp| warp.2 as f64)), [0.0, 75.5, 151.0], 2.0);
}

#[test]
fn colors_change_as_in_opencv() {
    for (number, shift) in cases("shifts").iter().enumerate() {
        let [hue, lightness, saturation] = numbers(shift).map(|value| value as i32);
        let (mut pixels, _) = png("source.png");
        HlsShift { hue, lightness, saturation }.apply(&mut pixels);
        let difference = difference(&pixels, &png(&format!("hls_{number}.png")).0);
        assert!(difference <= 2, "hls_{number} differs by {difference}");
    }
}

#[test]
fn image_is_distorted_as_in_opencv() {
    let (source, size) = png("source.png");
    for (number, case) in cases("warps").iter().enumerate() {
        let [angle, shear, aspect_ratio] = numbers(&case[0]);
        let corner = numbers(&case[1]).map(|edge| edge as usize);
        let distortion = Distortion { angle: angle as i32, shear, aspect_ratio };
        let mut output = vec![0; 3 * 16 * 16];
        warp::warp(ImageView { rgb: &source, size }, &distortion, corner, &mut output, 16, &mut Vec::new());
        let difference = difference(&output, &png(&format!("warp_{number}.png")).0);
        assert!(difference <= 1, "warp_{number} differs by {difference}");
    }
}

#[test]
fn plan_is_applied_in_order() {
    let (source, size) = png("source.png");
    let mut pixels = Pixels::default();
    pixels.reset(size).copy_from_slice(&source);
    let recipe = Recipe::training(Augmentation::Mirror, 20);
    let plan = Plan { is_mirrored: true, ..recipe.plan(size, &mut Generator::for_image(0, 0, 0)) };
    let mut slot = vec![0; recipe.bytes()];
    Augmenter::default().apply(&plan, &pixels, &mut slot).expect("room for it");
    let part = part(&plan);
    for (row, line) in slot.chunks(60).enumerate() {
        for (column, pixel) in line.chunks(3).enumerate() {
            let place = 3 * ((row + part.top as usize) * size.width + part.left as usize + 19 - column);
            assert_eq!(pixel, &source[place..place + 3]);
        }
    }
    let refused = Augmenter::default().apply(&plan, &pixels, &mut slot[1..]).expect_err("too small").to_string();
    expect!["an image of 20 x 20 pixels does not fill 1199 bytes"].assert_eq(&refused);
}

#[test]
fn every_recipe_fills_the_batch_slot() {
    for decoder in [DecoderChoice::Zune, DecoderChoice::Auto] {
        for scaling in [Scaling::Off, Scaling::Allowed] {
            let mut pipeline = ImagePipeline::new(decoder, scaling, ImageLimits::default()).expect("one of them");
            for augmentation in Augmentation::ALL {
                let training = Recipe::training(*augmentation, 8);
                let shorter = Recipe { resize: Resize::ShorterEdge(11), ..training };
                let large = Recipe::training(*augmentation, 40);
                for recipe in [training, shorter, large, Recipe::validation(*augmentation, 8)] {
                    for (index, name) in ["baseline.jpg", "inks.jpg", "png_gray.png"].iter().enumerate() {
                        let mut slot = vec![0; recipe.bytes()];
                        let mut generator = Generator::for_image(0, 0, index as u64);
                        let plan = pipeline.decode(&golden(name), &recipe, &mut generator).expect("an image");
                        pipeline.augment(&plan, &mut slot).expect("room for it");
                        assert!(slot.iter().any(|byte| *byte != slot[0]), "{augmentation}: {name}");
                    }
                }
            }
        }
    }
}

/// This package allocates nothing per image after the largest one; allocations of libraries are bounded here.
#[test]
fn only_libraries_allocate() {
    let file = golden("baseline.jpg");
    let count = |decoder, augmentation, stage: fn(&mut ImagePipeline, &[u8], &Recipe, &mut [u8])| {
        let mut pipeline = ImagePipeline::new(decoder, Scaling::Off, ImageLimits::default()).ok()?;
        let recipe = Recipe::training(augmentation, 16);
        let mut slot = vec![0; recipe.bytes()];
        stage(&mut pipeline, &file, &recipe, &mut slot);
        Some(allocation_counter::measure(|| stage(&mut pipeline, &file, &recipe, &mut slot)).count_total)
    };
    let decode = |pipeline: &mut ImagePipeline, file: &[u8], recipe: &Recipe, _: &mut [u8]| {
        pipeline.decode(file, recipe, &mut Generator::for_image(0, 0, 0)).expect("an image");
    };
    let all = |pipeline: &mut ImagePipeline, file: &[u8], recipe: &Recipe, slot: &mut [u8]| {
        let plan = pipeline.decode(file, recipe, &mut Generator::for_image(0, 0, 0)).expect("an image");
        pipeline.augment(&plan, slot).expect("room for it");
    };
    // libjpeg-turbo calls malloc directly, so its pools are not counted.
    let turbojpeg = |augmentation| count(DecoderChoice::Turbojpeg, augmentation, all);
    if let Some(decoding) = count(DecoderChoice::Turbojpeg, Augmentation::None, decode) {
        assert_eq!(decoding, 0);
        // Whole pixels are copied, and the affine step uses no library.
        assert_eq!([Augmentation::Crop, Augmentation::Mxnet2, Augmentation::Mxnet3].map(turbojpeg), [Some(0); 3]);
        // Weights and bounds in fast_image_resize, for columns and rows.
        let resizing = turbojpeg(Augmentation::Imagenet).expect("it is here");
        println!("fast_image_resize allocates {resizing} times");
        assert!((1..=RESIZE_ALLOCATIONS).contains(&resizing), "{resizing}");
    }
    let zune = count(DecoderChoice::Zune, Augmentation::None, decode).expect("always there");
    println!("zune-jpeg allocates {zune} times");
    assert!((1..=ZUNE_ALLOCATIONS).contains(&zune), "{zune}");
}

// For an output of 16 x 16. The number of allocations for weights grows with the edges.
const RESIZE_ALLOCATIONS: u64 = 60;
const ZUNE_ALLOCATIONS: u64 = 30;

#[test]
fn recipes_respect_the_pixel_limit() {
    let limits = ImageLimits::default();
    // Within every limit as stored; with 224 rows it has 15.7 million pixels, with 2,240 rows 157 million.
    let strip = Size { width: 70_000, height: 700 };
    strip.check(&limits, "it has").expect("within the limits");
    for augmentation in Augmentation::ALL {
        let plan = |size, resize| {
            let recipe = Recipe { resize, ..Recipe::training(*augmentation, size) };
            recipe.plan(strip, &mut Generator::for_image(0, 0, 0)).check(&limits).map_err(|error| error.to_string())
        };
        assert_eq!(plan(224, Resize::OnlyIfSmaller), Ok(()), "{augmentation}");
        // RandomResizedCrop crops the stored image; no other recipe produces more than its output.
        let enlarged = plan(224, Resize::ShorterEdge(2240));
        if *augmentation == Augmentation::Mxnet3 {
            let expected = "resizing 70000 x 700 pixels to 224000 x 2240 makes 501760000 pixels; the limit is 50000000: raise \
                            it with --image-limits pixels=501760000";
            assert_eq!(enlarged, Err(expected.to_owned()));
        } else {
            assert_eq!(enlarged, Ok(()), "{augmentation}");
        }
    }
    let thin = Region::whole(Size { width: 1_000_000, height: 10 });
    let rows = crate::resize::check(thin, Size { width: 224, height: 224 }, &limits).expect_err("rows in between");
    expect!["resizing 1000000 x 10 pixels to 224 x 224 makes 224000000 pixels; the limit is 50000000: raise it with --image-limits pixels=224000000"].assert_eq(&rows.to_string());
}

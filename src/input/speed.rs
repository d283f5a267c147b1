//! How fast one thread is, on photographs by scripts/make_photographs.py; in release, and by hand:
//!
//! `cargo test --release -p ringmark-input -- --ignored speed --nocapture`

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ringmark_record::dimension::image_input::{Augmentation, DecoderChoice, Scaling};
use ringmark_record::dimension::image_limits::ImageLimits;

use crate::augment::{Generator, Recipe};
use crate::image::ImagePipeline;

const ROUNDS: u64 = 5;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "measures: needs target/photographs, an optimized build and a quiet machine"]
fn speed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/photographs");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files: Vec<Vec<u8>> = entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a file")).collect();
    let bytes: usize = files.iter().map(Vec::len).sum();
    println!("{} files of {} KB on average", files.len(), bytes / files.len() / 1_000);

    let sides: Vec<(DecoderChoice, Scaling, Augmentation)> = [
        (DecoderChoice::Zune, Scaling::Off),
        (DecoderChoice::Turbojpeg, Scaling::Off),
        (DecoderChoice::Turbojpeg, Scaling::Allowed),
    ]
    .into_iter()
    .flat_map(|(decoder, scaling)| {
        let all = [Augmentation::None, Augmentation::Imagenet, Augmentation::Mxnet1, Augmentation::Mxnet3];
        all.map(|augmentation| (decoder, scaling, augmentation))
    })
    .collect();
    let mut rates = vec![[const { Vec::new() }; 3]; sides.len()];
    let mut allocations = vec![0; sides.len()];
    for round in 0..ROUNDS {
        // The sides take turns within a round.
        for (side, &(decoder, scaling, augmentation)) in sides.iter().enumerate() {
            let Ok(mut pipeline) = ImagePipeline::new(decoder, scaling, ImageLimits::default()) else { continue };
            let recipe = match augmentation {
                Augmentation::None => Recipe::validation(Augmentation::Imagenet, 224),
                _ => Recipe::training(augmentation, 224),
            };
            let mut slot = vec![0; recipe.bytes()];
            let (mut decoding, mut augmenting) = (Duration::ZERO, Duration::ZERO);
            let mut one = |index: usize, file: &[u8]| {
                let start = Instant::now();
                let mut generator = Generator::of_image(1, round, index as u64);
                let plan = pipeline.decode(file, &recipe, &mut generator).expect("an image");
                let decoded = Instant::now();
                pipeline.augment(&plan, &mut slot).expect("room for it");
                decoding += decoded - start;
                augmenting += decoded.elapsed();
            };
            files.iter().enumerate().for_each(|(index, file)| one(index, file));
            allocations[side] = allocation_counter::measure(|| one(0, &files[0])).count_total;
            // One was made twice.
            let rate = |time: Duration| (files.len() + 1) as f64 / time.as_secs_f64();
            for (rates, time) in rates[side].iter_mut().zip([decoding, augmenting, decoding + augmenting]) {
                rates.push(rate(time));
            }
        }
    }
    println!("decoder     scaling   augmentation   decode  augment     both images/s   allocations an image");
    for ((side, rates), allocations) in sides.iter().zip(rates).zip(allocations) {
        let (decoder, scaling, augmentation) = side;
        let [decode, augment, both] = rates.map(median);
        println!("{decoder:11} {scaling:9} {augmentation:12} {decode:8.0} {augment:8.0} {both:8.0} {allocations:22}");
    }
}

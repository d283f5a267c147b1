//! Tests of the contents of batches, which do not depend on the thread that made them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use expect_test::expect;
use ringmark_core::dimension::{
    Augmentation, BadImage, DecoderChoice, ImageLimit, ImageLimits, Interpolation, Scaling,
};

use super::*;
use crate::augment::Recipe;
use crate::loader::order::Share;
use crate::shard::Shard;
use crate::testing::temporary_folder::without_folder;
use crate::testing::{self, golden, idx_array};

/// Writes `count` records with an index, cycling through the image files; the label is the number of the record.
fn records(folder: &Path, count: u64, files: &[Vec<u8>]) -> Arc<Dataset> {
    let path = folder.join("train.rec");
    testing::write_records(&path, (0..count).map(|id| (id, files[id as usize % files.len()].clone())), true);
    Arc::new(Dataset::open(&[path]).expect("records"))
}

pub(super) fn config(augmentation: Augmentation, samples: u64, threads: usize) -> LoaderConfig {
    LoaderConfig {
        recipe: Recipe { interpolation: Interpolation::Antialias, ..Recipe::training(augmentation, 16) },
        seed: 7,
        tokens: None,
        channels: 3,
        classes: 1000,
        samples,
        decoder: DecoderChoice::Zune,
        scaling: Scaling::Off,
        threads,
        ahead: 2,
        on_bad_image: BadImage::Fail,
        limits: ImageLimits::default(),
    }
}

fn order(items: u64, global_batch: u64, first: u64, samples: u64) -> Order {
    Order::new(items, Some(7), Share { global_batch, first, samples }).expect("a share")
}

/// Returns pixels and labels of the steps from `first` to `end`.
fn batches(
    dataset: &Arc<Dataset>,
    order: Order,
    config: LoaderConfig,
    first: u64,
    end: u64,
) -> Vec<(Vec<u8>, Vec<i64>)> {
    let mut loader = Loader::start(dataset.clone(), order, config, first).expect("it starts");
    let next = |step| {
        let batch = loader.next_batch().expect("sound images");
        assert_eq!((batch.step, batch.skipped.len()), (step, 0));
        let content = (batch.pixels.to_vec(), batch.labels.clone());
        loader.recycle(batch);
        content
    };
    (first..end).map(next).collect()
}

pub(super) fn samples() -> Vec<Vec<u8>> {
    ["baseline.jpg", "progressive.jpg", "grayscale.jpg", "png_palette.png"].map(golden).to_vec()
}

#[test]
fn threads_and_start_do_not_change_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = records(folder.path(), 20, &samples());
    // With three steps per epoch, steps 0 to 7 cover three epochs.
    let made =
        |threads, first| batches(&dataset, order(20, 8, 0, 8), config(Augmentation::Imagenet, 8, threads), first, 8);
    let alone = made(1, 0);
    for threads in [2, 5] {
        assert_eq!(made(threads, 0), alone, "{threads} threads");
    }
    assert_eq!(made(3, 5), alone[5..], "as if it had gone on");
    assert_ne!(alone[0].0, alone[3].0, "another epoch");
}

#[test]
fn ranks_share_records_once_per_epoch() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = records(folder.path(), 50, &samples());
    let of_rank = |ranks, rank| {
        let samples = 12 / ranks;
        batches(&dataset, order(50, 12, rank * samples, samples), config(Augmentation::Mxnet2, samples, 2), 0, 5)
    };
    let alone = of_rank(1, 0);
    for ranks in [3, 4] {
        let of_all: Vec<_> = (0..ranks).map(|rank| of_rank(ranks, rank)).collect();
        for step in 0..5 {
            let labels: Vec<i64> = of_all.iter().flat_map(|of_rank| of_rank[step].1.clone()).collect();
            assert_eq!(labels, alone[step].1, "{ranks} ranks, step {step}");
            let pixels: Vec<u8> = of_all.iter().flat_map(|of_rank| of_rank[step].0.clone()).collect();
            assert_eq!(pixels, alone[step].0, "{ranks} ranks, step {step}");
        }
    }
    let mut times: BTreeMap<i64, usize> = BTreeMap::new();
    let labels = alone.iter().flat_map(|(_, labels)| labels).take(50);
    labels.for_each(|label| *times.entry(*label).or_default() += 1);
    assert!(times.len() == 50 && times.values().all(|times| *times == 1), "{times:?}");
}

#[test]
fn only_the_record_above_the_limit_is_skipped() {
    let folder = tempfile::tempdir().expect("a folder");
    let large = vec![7; 5 << 20];
    let files = [golden("baseline.jpg"), large, golden("grayscale.jpg")];
    drop(records(folder.path(), 3, &files));
    let path = folder.path().join("train.rec");
    let limits = ImageLimits::default().with(ImageLimit::Bytes, 1 << 20);
    let open = || Dataset::open_within(std::slice::from_ref(&path), limits).expect("records");
    let skipping = LoaderConfig { on_bad_image: BadImage::Skip, ..config(Augmentation::None, 3, 2) };
    let in_order = Order::new(3, None, Share { global_batch: 3, first: 0, samples: 3 }).expect("a share");
    let by_number = Loader::start(Arc::new(open()), in_order, skipping, 0).expect("it starts");
    fs::remove_file(path.with_extension("idx")).expect("removed");
    let dataset = open();
    let order = SequentialOrder::new(&dataset, Shard::new(0, 1).expect("a part"), 3).expect("records");
    let in_turn = Loader::start_sequential(&dataset, order, skipping, 0).expect("it starts");
    for mut loader in [by_number, in_turn] {
        let batch = loader.next_batch().expect("two are sound");
        assert_eq!(batch.labels, [0, 2, 2]);
        let [error] = batch.skipped.as_slice() else { panic!("{:?}", batch.skipped) };
        assert!(
            format!("{error:#}").contains("; the limit is 1048576: raise it with --image-limits bytes="),
            "{error:#}"
        );
    }
}

#[test]
fn bad_image_is_reported_or_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = golden("baseline.jpg")[..500].to_vec();
    let dataset = records(folder.path(), 12, &[golden("baseline.jpg"), cut.clone(), golden("grayscale.jpg")]);
    let in_order = || Order::new(12, None, Share { global_batch: 6, first: 0, samples: 6 }).expect("a share");
    let mut loader =
        Loader::start(dataset.clone(), in_order(), config(Augmentation::None, 6, 3), 0).expect("it starts");
    let error = format!("{:#}", loader.next_batch().expect_err("images 1 and 4 are cut"));
    expect![
        "DIR/train.rec, byte 1108: not a JPEG that can be decoded: JPEG ends at byte 500, inside its segment ffc4 \
             of 181 bytes: the file is truncated"
    ]
    .assert_eq(&without_folder(&error));

    let skipping = LoaderConfig { on_bad_image: BadImage::Skip, ..config(Augmentation::None, 6, 3) };
    let mut loader = Loader::start(dataset, in_order(), skipping, 0).expect("it starts");
    let batch = loader.next_batch().expect("the others are sound");
    assert_eq!((batch.labels.as_slice(), batch.skipped.len()), (&[0, 2, 2, 3, 5, 5][..], 2));
    let image = |number: usize| &batch.pixels[number * 16 * 16 * 3..(number + 1) * 16 * 16 * 3];
    assert!(image(1) == image(2) && image(4) == image(5) && image(0) != image(2));

    let other = tempfile::tempdir().expect("a folder");
    let all_bad = records(other.path(), 12, &[cut]);
    let mut loader = Loader::start(all_bad, in_order(), skipping, 0).expect("it starts");
    let error = format!("{:#}", loader.next_batch().expect_err("none is sound"));
    expect![
        "none of the 6 images of step 0 can be decoded; the first: DIR/train.rec, byte 0: not a JPEG that can be \
             decoded: JPEG ends at byte 500, inside its segment ffc4 of 181 bytes: the file is \
             truncated"
    ]
    .assert_eq(&without_folder(&error));
}

#[test]
fn prefetch_limits_prepared_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = records(folder.path(), 40, &samples());
    let mut loader =
        Loader::start(dataset, order(40, 4, 0, 4), config(Augmentation::None, 4, 2), 0).expect("it starts");
    let first = loader.next_batch().expect("sound");
    let made = |loader: &Loader| loader.times().samples;
    // One batch is in use and two are ahead; a thread that had started a fourth would have counted it by now.
    while made(&loader) < 12 {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(200));
    assert_eq!(made(&loader), 12);
    loader.recycle(first);
    while made(&loader) < 16 {
        thread::sleep(Duration::from_millis(1));
    }
    let times = loader.times();
    assert!(times.bytes > 16 * 100 && times.decode > Duration::ZERO && times.read > Duration::ZERO, "{times:?}");
}

#[test]
fn pixel_arrays_are_copied_if_they_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, array: Vec<u8>| fs::write(folder.path().join(name), array).expect("written");
    let pixels: Vec<u8> = (0..5 * 4).collect();
    write("train-images-idx3-ubyte", idx_array(8, &[5, 2, 2], &pixels));
    write("train-labels-idx1-ubyte", idx_array(8, &[5], &[3, 1, 4, 1, 5]));
    let dataset = Arc::new(Dataset::open(&[folder.path().to_owned()]).expect("MNIST's arrays"));
    let in_order = || Order::new(5, None, Share { global_batch: 5, first: 0, samples: 5 }).expect("a share");
    let gray = LoaderConfig {
        channels: 1,
        classes: 10,
        recipe: Recipe::training(Augmentation::None, 2),
        ..config(Augmentation::None, 5, 2)
    };
    assert_eq!(batches(&dataset, in_order(), gray, 0, 1), [(pixels, vec![3, 1, 4, 1, 5])]);
    let errors = [LoaderConfig { classes: 5, ..gray }, LoaderConfig { channels: 3, ..gray }].map(|wrong| {
        let mut loader = Loader::start(dataset.clone(), in_order(), wrong, 0).expect("it starts");
        without_folder(&format!("{:#}", loader.next_batch().expect_err("another network's")))
    });
    expect![[r#"
        DIR/train-labels-idx1-ubyte, byte 12: label 5 is not one of the classes 0 to 4: use a network with more classes, or fix the label
        DIR/train-images-idx3-ubyte, byte 16: 2 x 2 pixels of 1 channel, but the network takes 2 x 2 of 3: use another --image-size or network"#]].assert_eq(&errors.join("\n"));
}

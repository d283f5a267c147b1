//! Tests of batches from files that can only be read sequentially.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use expect_test::expect;
use ringmark_core::dimension::{Augmentation, BadImage};

use super::tests::{config, samples};
use super::*;
use crate::shard::Shard;
use crate::testing::temporary_folder::without_folder;
use crate::testing::{self, golden};

/// Writes 61 records in three files without an index; the label of each is its number.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = samples();
    let image = |id: u64| (id, files[id as usize % files.len()].clone());
    let write = |name: &str, ids: std::ops::Range<u64>| {
        let path = folder.join(name);
        testing::write_records(&path, ids.map(image), false);
        path
    };
    vec![write("a.rec", 0..25), write("b.rec", 25..26), write("c.rec", 26..61)]
}

/// Labels and pixels of all images of one rank's step, and the number of images that count.
type Step = (Vec<i64>, Vec<Vec<u8>>, u64);

/// Returns the orders of all ranks, with the number of steps of the longest part.
fn orders(dataset: &Dataset, ranks: u32, samples: u64) -> Vec<SequentialOrder> {
    let order =
        |rank| SequentialOrder::new(dataset, Shard::new(rank, ranks).expect("a part"), samples).expect("records");
    let orders: Vec<SequentialOrder> = (0..ranks).map(order).collect();
    let steps = orders.iter().map(SequentialOrder::steps).max().expect("a rank");
    orders.into_iter().map(|order| order.with_steps(steps).expect("the most")).collect()
}

fn batches(dataset: &Dataset, order: SequentialOrder, threads: usize, first: u64, end: u64) -> Vec<Step> {
    let config = config(Augmentation::Imagenet, order.samples(), threads);
    let mut loader = Loader::start_sequential(dataset, order, config, first).expect("it starts");
    let next = |step| {
        let batch = loader.next_batch().expect("sound images");
        assert_eq!((batch.step, batch.skipped.len()), (step, 0));
        let pixels = batch.pixels.chunks(16 * 16 * 3).map(<[u8]>::to_vec).collect();
        let made = (batch.labels.clone(), pixels, batch.counted);
        loader.recycle(batch);
        made
    };
    (first..end).map(next).collect()
}

#[test]
fn every_record_is_read_once_per_epoch() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = Dataset::open(&files(folder.path())).expect("records");
    let mut alone: Option<Vec<BTreeMap<i64, Vec<u8>>>> = None;
    for ranks in [1, 3, 4] {
        let orders = orders(&dataset, ranks, 5);
        let steps = orders[0].steps();
        assert!(orders.iter().all(|order| order.steps() == steps));
        // Images by label, in each of three epochs.
        let mut epochs = vec![BTreeMap::new(); 3];
        for order in &orders {
            for (step, (labels, pixels, counted)) in (0..).zip(batches(&dataset, *order, 3, 0, 3 * steps)) {
                assert_eq!(labels.len(), 5);
                for (label, pixels) in labels.into_iter().zip(pixels).take(counted as usize) {
                    let before = epochs[(step / steps) as usize].insert(label, pixels);
                    assert!(before.is_none(), "{ranks} ranks: label {label} twice in epoch {}", step / steps);
                }
            }
        }
        assert!(epochs.iter().all(|epoch| epoch.keys().copied().eq(0..61)), "{ranks} ranks");
        assert!(epochs[0] != epochs[1], "another epoch draws again");
        // Augmentation of an image does not depend on the number of ranks.
        assert!(*alone.get_or_insert_with(|| epochs.clone()) == epochs, "{ranks} ranks");
    }
}

#[test]
fn records_keep_file_order_and_short_parts_wrap() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = Dataset::open(&files(folder.path())).expect("records");
    let orders = orders(&dataset, 4, 5);
    let steps = orders[0].steps();
    let mut first = 0;
    for order in &orders {
        let made = batches(&dataset, *order, 2, 0, 2 * steps);
        let records = order.records();
        for epoch in made.chunks(steps as usize) {
            let labels: Vec<i64> = epoch.iter().flat_map(|(labels, ..)| labels).copied().collect();
            let expected = (0..5 * steps).map(|place| (first + place % records) as i64);
            assert!(labels.iter().copied().eq(expected), "{labels:?}");
            assert_eq!(epoch.iter().map(|(.., counted)| counted).sum::<u64>(), records);
        }
        first += records;
    }
    assert_eq!(first, 61);
    assert!(orders.iter().any(|order| order.records() < 5 * steps), "one is filled up");
}

#[test]
fn threads_and_start_do_not_change_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = Dataset::open(&files(folder.path())).expect("records");
    let order = orders(&dataset, 3, 4)[1];
    let end = 2 * order.steps() + 3;
    let alone = batches(&dataset, order, 1, 0, end);
    for threads in [2, 6] {
        assert!(batches(&dataset, order, threads, 0, end) == alone, "{threads} threads");
    }
    for first in 1..end {
        assert!(batches(&dataset, order, 3, first, end) == alone[first as usize..], "from step {first}");
    }
}

#[test]
fn bad_image_is_skipped_and_damaged_file_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.rec");
    let images = [golden("baseline.jpg"), b"text".to_vec(), golden("full.jpg")];
    let offsets = testing::write_records(&path, (0..6).map(|id| (id, images[id as usize % 3].clone())), false);
    let dataset = Dataset::open(std::slice::from_ref(&path)).expect("records");
    let order = SequentialOrder::new(&dataset, Shard::WHOLE, 3).expect("records");
    let mut loader = Loader::start_sequential(&dataset, order, config(Augmentation::None, 3, 2), 0).expect("it starts");
    let error = format!("{:#}", loader.next_batch().expect_err("record 1 is text"));
    let begin = format!("{}, byte {}: neither JPEG", path.display(), offsets[1]);
    assert!(error.starts_with(&begin), "{error}");
    let skipping = LoaderConfig { on_bad_image: BadImage::Skip, ..config(Augmentation::None, 3, 2) };
    let mut loader = Loader::start_sequential(&dataset, order, skipping, 0).expect("it starts");
    for labels in [[0, 2, 2], [3, 5, 5], [0, 2, 2]] {
        let batch = loader.next_batch().expect("the others are sound");
        assert_eq!((batch.labels.as_slice(), batch.skipped.len()), (&labels[..], 1));
        loader.recycle(batch);
    }
    let wrong = LoaderConfig { samples: 4, ..skipping };
    let error = Loader::start_sequential(&dataset, order, wrong, 0).err().expect("another number").to_string();
    expect!["order of 3 images for batches of 4: use the same batch size"].assert_eq(&error);

    let mut bytes = fs::read(&path).expect("records");
    bytes[offsets[4] as usize] = b'!';
    fs::write(&path, bytes).expect("written");
    let dataset = Dataset::open(std::slice::from_ref(&path)).expect("its first bytes are sound");
    let error = format!("{:#}", SequentialOrder::new(&dataset, Shard::WHOLE, 3).expect_err("damaged"));
    let begin = format!("{}, byte {}: found 2123d7ce instead of the start of a record", path.display(), offsets[4]);
    assert!(error.starts_with(&begin), "{error}");
}

#[test]
fn shrinking_file_is_an_error_with_skipping() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.rec");
    // Larger than the read buffer, so that later records are read later.
    let noise = vec![0; 600_000];
    let image = [golden("baseline.jpg"), noise].concat();
    let offsets = testing::write_records(&path, (0..20).map(|id| (id, image.clone())), false);
    let dataset = Dataset::open(std::slice::from_ref(&path)).expect("records");
    let order = SequentialOrder::new(&dataset, Shard::WHOLE, 4).expect("records");
    let skipping = LoaderConfig { on_bad_image: BadImage::Skip, ..config(Augmentation::None, 4, 2) };
    let mut loader = Loader::start_sequential(&dataset, order, skipping, 0).expect("it starts");
    let first = loader.next_batch().expect("sound");
    fs::OpenOptions::new().write(true).open(&path).expect("opened").set_len(offsets[15] + 5000).expect("cut");
    loader.recycle(first);
    let error = (0..20).find_map(|_| loader.next_batch().map(|batch| loader.recycle(batch)).err());
    let error = format!("{:#}", error.expect("the last step of the epoch has none"));
    expect![
        "DIR/a.rec, byte 9021620: the file was truncated while being read (it had 12022160 bytes when opened): use a file that is not being written"
    ]
    .assert_eq(&without_folder(&error));
}

#[test]
fn dropped_loader_stops_its_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset = Dataset::open(&files(folder.path())).expect("records");
    let order = orders(&dataset, 1, 5)[0];
    let mut loader = Loader::start_sequential(&dataset, order, config(Augmentation::None, 5, 4), 0).expect("it starts");
    let first = loader.next_batch().expect("sound");
    // One batch is in use and two are prepared: all threads wait, for memory or for each other.
    while loader.times().samples < 15 {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(loader.times().samples, 15);
    drop(first);
    let (gone, is_gone) = mpsc::channel();
    thread::spawn(move || {
        drop(loader);
        gone.send(()).expect("awaited");
    });
    is_gone.recv_timeout(Duration::from_secs(30)).expect("its threads end");
}

//! Tests of errors in data as a step reports them, with file and byte offset, and of valid data that look like errors.

use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect;
use png::{BitDepth, ColorType};
use ringmark_core::dimension::{Augmentation, BadImage};

use super::tests::config;
use super::*;
use crate::format::record_io::MAGIC;
use crate::format::{image_record, record_io};
use crate::loader::order::Share;
use crate::shard::Shard;
use crate::testing::temporary_folder::without_folder;
use crate::testing::{self, golden};

const RECORDS: u64 = 3;

/// Writes a file of these images and returns its path and the offset of each record.
fn records(folder: &Path, samples: [Vec<u8>; RECORDS as usize], with_index: bool) -> (PathBuf, Vec<u64>) {
    let path = folder.join("a.rec");
    let offsets = testing::write_records(&path, (0..).zip(samples), with_index);
    (path, offsets)
}

/// Returns the labels of one epoch with one image per step, or the first error. Without an index records are read
/// sequentially.
fn outcome(path: &Path, classes: u32) -> Result<Vec<i64>> {
    let dataset = Arc::new(Dataset::open(&[path.to_owned()])?);
    let config = LoaderConfig { classes, ..config(Augmentation::None, 1, 1) };
    let (mut loader, steps) = match dataset.length() {
        Some(items) => {
            let order = Order::new(items, None, Share { global_batch: 1, first: 0, samples: 1 })?;
            (Loader::start(dataset, order, config, 0)?, items)
        }
        None => {
            let order = SequentialOrder::new(&dataset, Shard::WHOLE, 1)?;
            (Loader::start_sequential(&dataset, order, config, 0)?, order.steps())
        }
    };
    let next = |_| {
        let batch = loader.next_batch()?;
        let label = batch.labels[0];
        loader.recycle(batch);
        Ok(label)
    };
    (0..steps).map(next).collect()
}

fn refused(path: &Path, classes: u32) -> String {
    format!("{:#}", outcome(path, classes).expect_err("refused"))
}

fn good() -> Vec<u8> {
    golden("baseline.jpg")
}

fn inks_without_adobe() -> Vec<u8> {
    let mut file = golden("inks.jpg");
    let adobe = memchr::memmem::find(&file, b"Adobe").expect("its marker");
    file[adobe] = b'a';
    file
}

fn png_of_16_bits() -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 5, 4);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Sixteen);
    encoder.write_header().expect("a header").write_image_data(&[7; 120]).expect("its pixels");
    file
}

#[test]
fn every_supported_kind_is_loaded() {
    let kinds = ["baseline.jpg", "progressive.jpg", "grayscale.jpg", "inks.jpg", "png_gray.png"].map(golden);
    for image in kinds.into_iter().chain([png_of_16_bits()]) {
        for with_index in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, _) = records(folder.path(), [good(), image.clone(), good()], with_index);
            assert_eq!(outcome(&path, 3).expect("sound"), [0, 1, 2]);
        }
    }
}

#[test]
fn non_image_is_reported_with_file_and_byte() {
    let cut = |name: &str, length: usize| golden(name)[..length].to_vec();
    let samples = [
        b"Once upon a time".to_vec(),
        Vec::new(),
        cut("baseline.jpg", 900),
        cut("progressive.jpg", 900),
        cut("source.png", 700),
        inks_without_adobe(),
    ];
    let errors = samples.map(|image| {
        let errors = [true, false].map(|with_index| {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, offsets) = records(folder.path(), [good(), image.clone(), good()], with_index);
            without_folder(&refused(&path, 3)).replacen(&offsets[1].to_string(), "BYTE", 1)
        });
        errors.join("\n")
    });
    expect![[r#"
        DIR/a.rec, byte BYTE: neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the 16 bytes begin with 4f 6e 63 65 20 75 70 6f
        DIR/a.rec, byte BYTE: neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the 16 bytes begin with 4f 6e 63 65 20 75 70 6f
        DIR/a.rec, byte BYTE: no image: the file is empty
        DIR/a.rec, byte BYTE: no image: the file is empty
        DIR/a.rec, byte BYTE: not a JPEG that can be decoded: JPEG ends in the middle of its scan, at byte 900: the file is truncated
        DIR/a.rec, byte BYTE: not a JPEG that can be decoded: JPEG ends in the middle of its scan, at byte 900: the file is truncated
        DIR/a.rec, byte BYTE: not a JPEG that can be decoded: JPEG ends at byte 900, inside its segment ffda of 8 bytes: the file is truncated
        DIR/a.rec, byte BYTE: not a JPEG that can be decoded: JPEG ends at byte 900, inside its segment ffda of 8 bytes: the file is truncated
        DIR/a.rec, byte BYTE: PNG cannot be decoded: PNG of 700 bytes is damaged or truncated: unexpected end of file
        DIR/a.rec, byte BYTE: PNG cannot be decoded: PNG of 700 bytes is damaged or truncated: unexpected end of file
        DIR/a.rec, byte BYTE: not a JPEG that can be decoded: JPEG has four components without Adobe's marker, so it is unknown whether its inks are inverted: save it as RGB
        DIR/a.rec, byte BYTE: not a JPEG that can be decoded: JPEG has four components without Adobe's marker, so it is unknown whether its inks are inverted: save it as RGB"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn damaged_record_is_reported_with_file_and_byte() {
    type Damage = fn(&mut Vec<u8>, usize);
    let damages: [Damage; 4] = [
        |file, at| file.truncate(at + 40),
        |file, at| file[at + 1] = b'!',
        // The first part is marked as one of several, and the next record follows.
        |file, at| file[at + 7] |= 0x20,
        |file, at| file[at + 7] |= 0x60,
    ];
    let errors = damages.map(|damage| {
        let errors = [true, false].map(|with_index| {
            let folder = tempfile::tempdir().expect("a folder");
            let (path, offsets) = records(folder.path(), [good(), good(), good()], with_index);
            let mut bytes = fs::read(&path).expect("records");
            damage(&mut bytes, offsets[2] as usize);
            fs::write(&path, bytes).expect("written");
            without_folder(&refused(&path, 3))
        });
        errors.join("\n")
    });
    expect![[r#"
        key 2 of DIR/a.idx: DIR/a.rec, byte 2216: the record has at least 1108 bytes, but the file ends after 40: the file is truncated, or the record is incomplete: create or copy it again
        DIR/a.rec, byte 2216: the record has at least 1108 bytes, but the file ends after 40: the file is truncated, or the record is incomplete: create or copy it again
        key 2 of DIR/a.idx: DIR/a.rec, byte 2216: found 0a21d7ce instead of the start of a record, 0a23d7ce: the file is damaged or not a RecordIO file: create it again
        DIR/a.rec, byte 2216: found 0a21d7ce instead of the start of a record, 0a23d7ce: the file is damaged or not a RecordIO file: create it again
        key 2 of DIR/a.idx: DIR/a.rec, byte 2216: a part of 1099 bytes is neither its record's last nor a multiple of 4; the file is damaged: create it again
        DIR/a.rec, byte 2216: a part of 1099 bytes is neither its record's last nor a multiple of 4; the file is damaged: create it again
        key 2 of DIR/a.idx: DIR/a.rec, byte 2216: a record begins with a middle part (flag 3); the file is damaged or its .idx is for another file: create both again
        DIR/a.rec, byte 2216: a record begins with a middle part (flag 3); the file is damaged or its .idx is for another file: create both again"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn incomplete_split_record_is_reported_with_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.rec");
    let (mut record, mut bytes) = (Vec::new(), Vec::new());
    // The magic number is at a multiple of 4 of the record and splits it.
    image_record::write(0, &[0.0], &[&good()[..64], &MAGIC[..], &good()[64..]].concat(), &mut record);
    record_io::write_record(&record, &mut bytes).expect("an in-memory write succeeds");
    let first_part = bytes[8..].windows(4).position(|word| word == MAGIC).expect("a second part") + 8;
    let whole = bytes.clone();
    bytes.truncate(first_part);
    let errors = [Vec::new(), whole].map(|rest| {
        let errors = [None, Some("0\t0\n")].map(|index| {
            fs::write(&path, [&bytes[..], &rest].concat()).expect("written");
            match index {
                Some(text) => fs::write(path.with_extension("idx"), text).expect("written"),
                None => drop(fs::remove_file(path.with_extension("idx"))),
            }
            without_folder(&refused(&path, 3))
        });
        errors.join("\n")
    });
    expect![[r#"
        DIR/a.rec, byte 0: the record has at least 104 bytes, but the file ends after 96: the file is truncated, or the record is incomplete: create or copy it again
        key 0 of DIR/a.idx: DIR/a.rec, byte 0: the record has at least 104 bytes, but the file ends after 96: the file is truncated, or the record is incomplete: create or copy it again
        DIR/a.rec, byte 96: another record begins (flag 1), but that of byte 0 is incomplete; the file is damaged: create it again
        key 0 of DIR/a.idx: DIR/a.rec, byte 96: another record begins (flag 1), but that of byte 0 is incomplete; the file is damaged: create it again"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn invalid_label_is_reported_with_file_and_byte() {
    let errors = [true, false].map(|with_index| {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, _) = records(folder.path(), [good(), good(), good()], with_index);
        without_folder(&refused(&path, 2))
    });
    expect![[r#"
        DIR/a.rec, byte 2216: label 2 is not one of the classes 0 to 1: use a network with more classes, or fix the label
        DIR/a.rec, byte 2216: label 2 is not one of the classes 0 to 1: use a network with more classes, or fix the label"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn bad_file_of_a_folder_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, bytes).expect("written");
        path
    };
    file("a/1.jpg", &good());
    let bad = file("b/1.jpg", &good());
    assert_eq!(outcome(folder.path(), 2).expect("sound"), [0, 1]);
    let errors = [&b"text"[..], &good()[..500], b""].map(|bytes| {
        fs::write(&bad, bytes).expect("written");
        without_folder(&refused(folder.path(), 2))
    });
    expect![[r#"
        DIR/b/1.jpg: neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the 4 bytes begin with 74 65 78 74
        DIR/b/1.jpg: not a JPEG that can be decoded: JPEG ends at byte 500, inside its segment ffc4 of 181 bytes: the file is truncated
        DIR/b/1.jpg: no image: the file is empty"#]].assert_eq(&errors.join("\n"));
    fs::write(&bad, good()).expect("written");
    expect!["DIR/b/1.jpg: label 1 is not one of the classes 0 to 0: use a network with more classes, or fix the label"]
        .assert_eq(&without_folder(&refused(folder.path(), 1)));
    fs::remove_file(&bad).expect("removed");
    expect![
        "no images in DIR/b: image names end with .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp: add \
             some, or pass another folder"
    ]
    .assert_eq(&without_folder(&refused(folder.path(), 2)));
}

/// Data that are not an image are skipped; unreadable data and invalid classes are errors even if other images of the
/// batch are valid.
#[test]
fn only_images_are_skipped() {
    let folder = tempfile::tempdir().expect("a folder");
    let batch = |samples: [Vec<u8>; RECORDS as usize], classes: u32, damage: &dyn Fn(&Path, &[u64])| {
        let (path, offsets) = records(folder.path(), samples, true);
        let dataset = Arc::new(Dataset::open(std::slice::from_ref(&path)).expect("records"));
        damage(&path, &offsets);
        let order =
            Order::new(RECORDS, None, Share { global_batch: RECORDS, first: 0, samples: RECORDS }).expect("a share");
        let config = LoaderConfig { on_bad_image: BadImage::Skip, classes, ..config(Augmentation::None, RECORDS, 1) };
        Loader::start(dataset, order, config, 0).expect("it starts").next_batch().map_err(|error| format!("{error:#}"))
    };
    let unharmed = |_: &Path, _: &[u64]| {};
    let skipped = batch([good(), b"text".to_vec(), Vec::new()], 3, &unharmed).expect("one is sound");
    assert_eq!((skipped.labels, skipped.skipped.len()), (vec![0, 0, 0], 2));
    let shrink = |path: &Path, offsets: &[u64]| {
        fs::OpenOptions::new().write(true).open(path).expect("opened").set_len(offsets[2] + 16).expect("cut");
    };
    let error = batch([good(), good(), good()], 3, &shrink).expect_err("cut");
    expect![
        "DIR/a.rec, byte 2232: the file was truncated while being read (it had 3324 bytes when opened): use a file that is not being written"
    ]
    .assert_eq(&without_folder(&error));
    let spoil = |path: &Path, offsets: &[u64]| {
        let mut bytes = fs::read(path).expect("records");
        bytes[offsets[1] as usize] = b'!';
        fs::write(path, bytes).expect("written");
    };
    let error = batch([good(), good(), good()], 3, &spoil).expect_err("spoilt");
    expect![
        "key 1 of DIR/a.idx: DIR/a.rec, byte 1108: found 2123d7ce instead of the start of a record, 0a23d7ce: the \
             file is damaged or not a RecordIO file: create it again"
    ]
    .assert_eq(&without_folder(&error));
    let error = batch([good(), good(), good()], 2, &unharmed).expect_err("no class");
    expect![
        "DIR/a.rec, byte 2216: label 2 is not one of the classes 0 to 1: use a network with more classes, or fix \
             the label"
    ]
    .assert_eq(&without_folder(&error));
}

#[test]
fn shrinking_or_removed_file_is_reported_with_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, offsets) = records(folder.path(), [good(), good(), good()], true);
    let dataset = Arc::new(Dataset::open(std::slice::from_ref(&path)).expect("records"));
    fs::OpenOptions::new().write(true).open(&path).expect("opened").set_len(offsets[1] + 16).expect("cut");
    let order = Order::new(RECORDS, None, Share { global_batch: 1, first: 0, samples: 1 }).expect("a share");
    let mut loader = Loader::start(dataset, order, config(Augmentation::None, 1, 1), 0).expect("it starts");
    let error = format!("{:#}", loader.next_batch().expect_err("of a file that was cut"));
    let place = format!("{}, byte {}: the file was truncated while being read", path.display(), offsets[1] + 16);
    assert!(error.contains(&place), "{error}, and not {place}");

    let classes = tempfile::tempdir().expect("a folder");
    let image = classes.path().join("a/1.jpg");
    fs::create_dir_all(image.parent().expect("a folder")).expect("made");
    fs::write(&image, good()).expect("written");
    let dataset = Arc::new(Dataset::open(&[classes.path().to_owned()]).expect("a class"));
    fs::remove_file(&image).expect("removed");
    let order = Order::new(1, None, Share { global_batch: 1, first: 0, samples: 1 }).expect("a share");
    let mut loader = Loader::start(dataset, order, config(Augmentation::None, 1, 1), 0).expect("it starts");
    let error = format!("{:#}", loader.next_batch().expect_err("it is gone"));
    assert!(error.starts_with(&format!("{} cannot be opened: No such file", image.display())), "{error}");
}

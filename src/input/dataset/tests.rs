//! Tests of every kind of data set on disk, valid and damaged.

use expect_test::expect;
use ringmark_core::dimension::{ImageLimit, OverLimit};

use super::*;
use crate::testing::temporary_folder::without_folder;
use crate::testing::{self, gzip};

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Writes records of images whose bytes contain their numbers.
fn write_records(path: &Path, ids: Range<u64>, with_index: bool) -> Vec<u64> {
    testing::write_records(path, ids.map(|id| (id, format!("image {id}").into_bytes())), with_index)
}

fn array(shape: &[u32], values: &[u8]) -> Vec<u8> {
    testing::idx_array(8, shape, values)
}

fn open(path: &Path) -> Result<Dataset> {
    Dataset::open(&[path.to_owned()])
}

fn refused(path: &Path) -> String {
    format!("{:#}", open(path).expect_err("refused"))
}

fn labels(dataset: &Dataset, part: Shard) -> Vec<f32> {
    let mut stream = dataset.stream(part).expect("a part");
    let (mut item, mut labels) = (Item::default(), Vec::new());
    while stream.next(&mut item).expect("read") {
        labels.push(item.labels[0]);
    }
    labels
}

/// Checks that the parts together contain every item exactly once, in storage order.
fn assert_partitions(dataset: &Dataset, expected: &[f32]) {
    for count in [1, 3, 4] {
        let parts = (0..count).map(|index| labels(dataset, Shard::new(index, count).expect("a part")));
        let parts: Vec<Vec<f32>> = parts.collect();
        assert_eq!(parts.concat(), expected, "{count} parts");
    }
}

#[test]
fn indexed_record_file_is_read_by_number() {
    let folder = temporary();
    let path = folder.path().join("a.rec");
    let offsets = write_records(&path, 0..10, true);
    let dataset = open(&path).expect("opened");
    assert_eq!((dataset.length(), dataset.description()), (Some(10), "1 RecordIO file with index".to_owned()));
    let mut item = Item::default();
    for index in [7, 0, 9] {
        dataset.read(index, &mut item).expect("read");
        assert_eq!(item.bytes(), format!("image {index}").as_bytes());
        assert_eq!((item.id, item.form), (index, ItemFormat::Encoded));
        assert_eq!(item.location.to_string(), format!("{}, byte {}", path.display(), offsets[index as usize]));
    }
    expect!["record 10 does not exist: there are 10"]
        .assert_eq(&dataset.read(10, &mut item).expect_err("beyond").to_string());
    assert_partitions(&dataset, &(0..10).map(|id| id as f32).collect::<Vec<_>>());
    assert_eq!(labels(&dataset, Shard::new(3, 4).expect("a part")), [9.0]);
}

#[test]
fn several_record_files_are_one_stream() {
    let folder = temporary();
    let paths = ["a.rec", "b.rec"].map(|name| folder.path().join(name));
    write_records(&paths[0], 0..5, false);
    write_records(&paths[1], 5..30, false);
    let expected: Vec<f32> = (0..30).map(|id| id as f32).collect();
    let errors = [&paths[..], &[folder.path().to_owned()]].map(|paths| {
        let dataset = Dataset::open(paths).expect("opened");
        assert_eq!((dataset.length(), dataset.description()), (None, "2 RecordIO files without index".to_owned()));
        assert_partitions(&dataset, &expected);
        without_folder(&dataset.read(0, &mut Item::default()).expect_err("no index").to_string())
    });
    expect![[r#"
        DIR/a.rec has no index, so records cannot be read by number: create DIR/a.idx
        DIR/a.rec has no index, so records cannot be read by number: create DIR/a.idx"#]]
    .assert_eq(&errors.join("\n"));
    write_records(&paths[1], 5..30, true);
    let error = refused(folder.path());
    expect!["DIR/b.rec has an index (DIR/b.idx), but DIR/a.rec has none: create DIR/a.idx, or remove the others"]
        .assert_eq(&without_folder(&error));
    write_records(&paths[0], 0..5, true);
    let dataset = open(folder.path()).expect("opened");
    assert_eq!(dataset.length(), Some(30));
    assert_partitions(&dataset, &expected);
}

#[test]
fn class_folder_is_read_file_by_file() {
    let folder = temporary();
    for (name, content) in [("cat/1.jpg", "one"), ("cat/2.png", "three"), ("dog/1.jpg", "dog"), ("dog/notes.txt", "x")]
    {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }
    let dataset = open(folder.path()).expect("opened");
    assert_eq!((dataset.length(), dataset.classes()), (Some(3), &["cat".to_owned(), "dog".to_owned()][..]));
    let mut item = Item::default();
    dataset.read(1, &mut item).expect("read");
    assert_eq!(item.bytes(), b"three");
    dataset.read(0, &mut item).expect("read");
    assert_eq!((item.bytes(), item.class(2).expect("a class")), (&b"one"[..], 0));
    assert_eq!(item.location.file, folder.path().join("cat/1.jpg"));
    assert_partitions(&dataset, &[0.0, 0.0, 1.0]);
    expect!["image 3 does not exist: there are 3"]
        .assert_eq(&dataset.read(3, &mut item).expect_err("beyond").to_string());
    fs::write(folder.path().join("cat/2.png"), "").expect("written");
    dataset.read(1, &mut item).expect("as an empty record");
    assert_eq!(item.bytes(), b"");
    fs::write(folder.path().join("a.rec"), "x").expect("written");
    expect!["DIR contains RecordIO files (DIR/a.rec) and other data: list the files, or move one kind"]
        .assert_eq(&without_folder(&refused(folder.path())));
}

#[test]
fn mnist_is_found_by_name_plain_or_compressed() {
    let folder = temporary();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("written");
    let pixels: Vec<u8> = (0..30).collect();
    write("train-images-idx3-ubyte.gz", &gzip(&array(&[5, 2, 3], &pixels)));
    write("train-labels-idx1-ubyte", &array(&[5], &[3, 1, 4, 1, 5]));
    write("t10k-images-idx3-ubyte", &array(&[2, 2, 3], &pixels[..12]));
    write("t10k-labels-idx1-ubyte.gz", &gzip(&array(&[2], &[9, 8])));
    let dataset = open(folder.path()).expect("opened");
    assert_eq!(dataset.length(), Some(5));
    let mut item = Item::default();
    dataset.read(2, &mut item).expect("read");
    assert_eq!(item.form, ItemFormat::Pixels { height: 2, width: 3, channels: 1 });
    assert_eq!((item.bytes(), item.class(10).expect("a class")), (&[12, 13, 14, 15, 16, 17][..], 4));
    expect![
        "DIR/train-labels-idx1-ubyte, byte 10: label 4 is not one of the classes 0 to 3: use a network with more \
             classes, or fix the label"
    ]
    .assert_eq(&without_folder(&item.class(4).expect_err("too large").to_string()));
    assert_partitions(&dataset, &[3.0, 1.0, 4.0, 1.0, 5.0]);
    let test = open(&folder.path().join("t10k-images-idx3-ubyte")).expect("opened");
    assert_partitions(&test, &[9.0, 8.0]);

    write("t10k-labels-idx1-ubyte.gz", &gzip(&array(&[3], &[9, 8, 7])));
    let error = refused(&folder.path().join("t10k-images-idx3-ubyte"));
    expect!["DIR/t10k-images-idx3-ubyte has 2 images but DIR/t10k-labels-idx1-ubyte.gz has 3 labels: copy both again"]
        .assert_eq(&without_folder(&error));
    let labels = folder.path().join("train-labels-idx1-ubyte");
    expect![
        "DIR/train-labels-idx1-ubyte: labels not found, because the name is not of the form \
             train-images-idx3-ubyte: rename the file"
    ]
    .assert_eq(&without_folder(&refused(&labels)));
    fs::remove_file(&labels).expect("removed");
    expect![
        "DIR/train-images-idx3-ubyte.gz has no labels: put train-labels-idx1-ubyte.gz into the same \
             folder"
    ]
    .assert_eq(&without_folder(&refused(folder.path())));
    for name in ["train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte"] {
        fs::rename(folder.path().join(name), folder.path().join(format!("my-{name}"))).expect("renamed");
    }
    expect![
        "DIR contains 2 arrays of images, 0 of them named train-..: name one of them, such as \
         DIR/my-t10k-images-idx3-ubyte"
    ]
    .assert_eq(&without_folder(&refused(folder.path())));
}

#[test]
fn a_folder_of_cifar_is_its_training_files() {
    let folder = temporary();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("written");
    let record = |label: u8| [&[label][..], &[label; 3072]].concat();
    write("data_batch_1.bin", &[record(3), record(1)].concat());
    write("data_batch_2.bin", &record(4));
    write("test_batch.bin", &record(9));
    write("readme.html", b"<html>");
    let dataset = open(folder.path()).expect("opened");
    assert_eq!(
        (dataset.length(), dataset.item_format()),
        (Some(3), ItemFormat::Pixels { height: 32, width: 32, channels: 3 })
    );
    assert_partitions(&dataset, &[3.0, 1.0, 4.0]);
    assert_partitions(&open(&folder.path().join("test_batch.bin")).expect("opened"), &[9.0]);
    let several = ["test_batch.bin", "data_batch_2.bin"].map(|name| folder.path().join(name));
    assert_partitions(&Dataset::open(&several).expect("opened"), &[9.0, 4.0]);
    write("batches.meta", b"(dp1");
    expect!["DIR has CIFAR in the Python version, which is not supported: download the binary version"]
        .assert_eq(&without_folder(&refused(folder.path())));
}

#[test]
fn non_data_is_rejected_with_first_bytes() {
    let folder = temporary();
    let path = folder.path().join("a");
    let errors = [&b"\x89PNG...."[..], b"x", b"", b"\x0a\x23\xd7\xce\0\0\0\0\0"].map(|bytes| {
        fs::write(&path, bytes).expect("written");
        without_folder(&refused(&path))
    });
    expect![[r#"
        DIR/a (first bytes 89504e47) contains no training data: pass .rec files (`ringmark pack` writes them), a folder of images by class, or files of MNIST or CIFAR
        DIR/a (first bytes 78000000) contains no training data: pass .rec files (`ringmark pack` writes them), a folder of images by class, or files of MNIST or CIFAR
        DIR/a is empty (0 bytes): recreate or remove it
        DIR/a has 9 bytes, which is not a multiple of 4: the RecordIO file is truncated: create or copy it again"#]].assert_eq(&errors.join("\n"));
    expect!["DIR/none cannot be opened: No such file or directory (os error 2)"]
        .assert_eq(&without_folder(&refused(&folder.path().join("none"))));
    expect!["no data file or folder given"].assert_eq(&Dataset::open(&[]).expect_err("none").to_string());
    let error = Dataset::open(&[path.clone(), path]).expect_err("the same twice is no data").to_string();
    expect![
        "DIR/a has 9 bytes, which is not a multiple of 4: the RecordIO file is truncated: create or copy it \
             again"
    ]
    .assert_eq(&without_folder(&error));
}

#[test]
fn index_of_another_file_is_detected() {
    let folder = temporary();
    let path = folder.path().join("a.rec");
    write_records(&path, 0..3, false);
    let index = |text: &str| fs::write(path.with_extension("idx"), text).expect("written");
    let mut item = Item::default();
    index("0\t0\n1\t4\n");
    let error = format!("{:#}", open(&path).expect("opened").read(1, &mut item).expect_err("no record"));
    expect![
        "key 1 of DIR/a.idx: DIR/a.rec, byte 4: found 1f000000 instead of the start of a record, 0a23d7ce: the \
             file is damaged or not a RecordIO file: create it again"
    ]
    .assert_eq(&without_folder(&error));
    index("0\t0\n1\t4000\n");
    expect![
        "DIR/a.idx, line 2: offset 4000 is beyond the end of the .rec file (120 bytes): the index is for another \
             file, or the .rec is truncated: create both again"
    ]
    .assert_eq(&without_folder(&refused(&path)));
    index("");
    expect!["DIR/a.idx is empty (0 bytes): recreate or remove it"].assert_eq(&without_folder(&refused(&path)));
    index("0\t0\nx\n");
    expect![[r#"DIR/a.idx, line 2: "x" is not of the form key, tab, byte offset: create the .idx again"#]]
        .assert_eq(&without_folder(&refused(&path)));
}

#[test]
fn file_changed_during_reading_is_reported() {
    let folder = temporary();
    let path = folder.path().join("a.rec");
    let offsets = write_records(&path, 0..100, true);
    let dataset = open(&path).expect("opened");
    let mut item = Item::default();
    dataset.read(99, &mut item).expect("read");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.set_len(offsets[99] + 12).expect("cut");
    let error = format!("{:#}", dataset.read(99, &mut item).expect_err("cut"));
    expect![
        "DIR/a.rec, byte 3972: the file was truncated while being read (it had 4000 bytes when opened): use a file that is not being written"
    ]
    .assert_eq(&without_folder(&error));
    // The other records may have changed as well.
    dataset.read(98, &mut item).expect_err("of a file that was cut");
    fs::remove_file(path.with_extension("idx")).expect("removed");
    let dataset = open(&path).expect("opened");
    file.set_len(offsets[50]).expect("cut");
    let mut stream = dataset.stream(Shard::WHOLE).expect("a part");
    let error = (0..101).find_map(|_| stream.next(&mut item).err()).expect("cut").to_string();
    expect![
        "DIR/a.rec, byte 2000: the file was truncated while being read (it had 3972 bytes when opened): use a file that is not being written"
    ]
    .assert_eq(&without_folder(&error));
}

#[test]
fn reading_does_not_allocate_after_largest_item() {
    let folder = temporary();
    let records = folder.path().join("a.rec");
    write_records(&records, 0..200, true);
    let stream = folder.path().join("stream.rec");
    write_records(&stream, 0..200, false);
    let classes = folder.path().join("classes");
    fs::create_dir_all(classes.join("a")).expect("made");
    for number in 0..50 {
        fs::write(classes.join(format!("a/{number:02}.jpg")), format!("image {number}")).expect("written");
    }
    let images = folder.path().join("train-images-idx3-ubyte");
    fs::write(&images, array(&[50, 2, 3], &[7; 300])).expect("written");
    fs::write(folder.path().join("train-labels-idx1-ubyte"), array(&[50], &[1; 50])).expect("written");
    for path in [records, stream, classes, images] {
        let dataset = open(&path).expect("opened");
        let mut items = dataset.stream(Shard::WHOLE).expect("a part");
        let mut item = Item::default();
        for _ in 0..20 {
            assert!(items.next(&mut item).expect("read"));
        }
        let allocated = allocation_counter::measure(|| {
            for _ in 0..30 {
                assert!(items.next(&mut item).expect("read"));
            }
        });
        assert_eq!(allocated.count_total, 0, "{}: {allocated:?}", path.display());
    }
}

#[test]
fn counts_are_compared_before_decompression() {
    let folder = temporary();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("written");
    // Damages everything after the header.
    let mut damaged = gzip(&array(&[5, 28, 28], &vec![7; 5 * 28 * 28]));
    damaged.truncate(damaged.len() - 8);
    write("train-images-idx3-ubyte.gz", &damaged);
    write("train-labels-idx1-ubyte", &array(&[16], &[1; 16]));
    let error = refused(folder.path());
    expect![
        "DIR/train-images-idx3-ubyte.gz has 5 images but DIR/train-labels-idx1-ubyte has 16 labels: copy both again"
    ]
    .assert_eq(&without_folder(&error));
    write("train-labels-idx1-ubyte", &array(&[5], &[1; 5]));
    expect![
        "DIR/train-images-idx3-ubyte.gz: decompression failed: the file is truncated or damaged: copy it again: \
             unexpected end of file"
    ]
    .assert_eq(&without_folder(&refused(folder.path())));
    write("train-images-idx3-ubyte.gz", &gzip(&array(&[5, 28_000, 28_000], &[])));
    let error = refused(folder.path());
    expect![
        "DIR/train-images-idx3-ubyte.gz: an idx array of 5 x 28000 x 28000 has 3920000000 bytes, but a .gz is \
             decompressed in memory up to 2000000000: decompress the file with \
             gunzip"
    ]
    .assert_eq(&without_folder(&error));
}

#[test]
fn truncated_file_is_rejected_at_the_next_read() {
    let folder = temporary();
    let path = folder.path().join("a.rec");
    let errors = [false, true].map(|with_index| {
        write_records(&path, 0..10, with_index);
        let dataset = open(&path).expect("opened");
        let mut items = dataset.stream(Shard::new(0, 1).expect("a part")).expect("records");
        let mut item = Item::default();
        assert!(items.next(&mut item).expect("read"));
        // The next records are in the stream's buffer or before the truncation.
        let length = fs::metadata(&path).expect("there").len();
        fs::OpenOptions::new().write(true).open(&path).expect("opened").set_len(length - 4).expect("cut");
        without_folder(&format!("{:#}", items.next(&mut item).expect_err("cut")))
    });
    expect![[r#"
        DIR/a.rec, byte 396: the file was truncated while being read (it had 400 bytes when opened): use a file that is not being written
        DIR/a.rec, byte 396: the file was truncated while being read (it had 400 bytes when opened): use a file that is not being written"#]].assert_eq(&errors.join("\n"));
}

#[test]
fn image_file_above_its_limit_is_rejected() {
    let folder = temporary();
    fs::create_dir(folder.path().join("a")).expect("made");
    fs::write(folder.path().join("a/1.jpg"), [7; 40]).expect("written");
    fs::write(folder.path().join("a/2.jpg"), [7; 41]).expect("written");
    let limits = ImageLimits::default().with(ImageLimit::Bytes, 40);
    let dataset = Dataset::open_within(&[folder.path().to_owned()], limits).expect("opened");
    let mut item = Item::default();
    dataset.read(0, &mut item).expect("at its limit");
    let error = dataset.read(1, &mut item).expect_err("beyond it");
    assert!(error.is::<OverLimit>());
    expect!["DIR/a/2.jpg has 41 bytes; the limit is 40: raise it with --image-limits bytes=41"]
        .assert_eq(&without_folder(&error.to_string()));
}

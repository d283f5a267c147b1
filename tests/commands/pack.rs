//! `ringmark pack`: the files byte by byte, the output, and the state left after an error.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::dimension::ImageLimits;
use ringmark_input::dataset::Dataset;
use ringmark_input::dataset::item::Item;
use ringmark_input::decode;
use ringmark_input::shard::Shard;

use crate::support::sandbox::{SmallDisk, refused, ringmark, run, succeeds, wait_until};

/// Creates a folder with files in `images`; each contains its own name.
fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in names {
        let path = folder.path().join("images").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, name).expect("written");
    }
    folder
}

fn pack(folder: &tempfile::TempDir, options: &str) -> Command {
    let mut command = ringmark("pack images out.rec");
    command.args(options.split_whitespace()).current_dir(folder.path());
    command
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns number, label and bytes of every image, from all parts.
fn items(files: &[PathBuf], parts: u32) -> Vec<(u64, f32, String)> {
    let dataset = Dataset::open(files).expect("opened");
    let (mut item, mut items) = (Item::default(), Vec::new());
    for index in 0..parts {
        let mut stream = dataset.stream(Shard::new(index, parts).expect("a part")).expect("a part");
        while stream.next(&mut item).expect("read") {
            items.push((item.id, item.labels[0], String::from_utf8_lossy(item.bytes()).into_owned()));
        }
    }
    items
}

#[test]
fn packed_folder_matches_mxnet_bytes() {
    let folder = folder(&["cat/a.jpg", "dog/b.PNG", "dog/c.jpeg", "dog/notes.txt", "readme.jpg"]);
    let (status, stdout, stderr) = run(&mut pack(&folder, "--no-shuffle --pass-through"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(
        lines[0].starts_with("3 images of 2 classes, in the order of folders and names, stored unchanged: 0.0 MB in ")
    );
    assert_eq!(
        lines[1..],
        ["out.rec, with out.idx and out.lst", "ignored: 2 files outside of a class or without an image extension"]
    );
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).expect("written");
    assert_eq!(text("out.idx"), "0\t0\n1\t44\n2\t88\n");
    assert_eq!(text("out.lst"), "0\t0.000000\tcat/a.jpg\n1\t1.000000\tdog/b.PNG\n2\t1.000000\tdog/c.jpeg\n");
    // Magic number, length, flag, label, two numbers, the file, padding to 4 bytes.
    let record = |label: f32, id: u64, file: &str| {
        let length = u32::try_from(24 + file.len()).expect("short");
        let mut bytes = [0xced7_230a_u32.to_le_bytes(), length.to_le_bytes(), [0; 4], label.to_le_bytes()].concat();
        bytes.extend([id.to_le_bytes(), [0; 8]].concat());
        bytes.extend(file.bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let expected = [record(0.0, 0, "cat/a.jpg"), record(1.0, 1, "dog/b.PNG"), record(1.0, 2, "dog/c.jpeg")].concat();
    assert_eq!(fs::read(folder.path().join("out.rec")).expect("written"), expected);
}

#[test]
fn order_matches_im2rec_and_images_round_trip() {
    let images: Vec<String> = (0..10).map(|number| format!("{}/{number}.jpg", number / 4)).collect();
    let folder = folder(&images.iter().map(String::as_str).collect::<Vec<_>>());
    let stdout = succeeds(&mut pack(&folder, ""));
    assert!(stdout.starts_with("10 images of 3 classes, shuffled with seed 100, stored unchanged: "), "{stdout}");
    // python3 -c 'import random; a = list(range(10)); random.seed(100); random.shuffle(a); print(a)'
    let order: [u64; 10] = [4, 0, 5, 9, 3, 1, 6, 8, 7, 2];
    let expected = order.map(|id| (id, (id / 4) as f32, images[id as usize].clone()));
    let record_file = [folder.path().join("out.rec")];
    assert_eq!(items(&record_file, 1), expected);
    assert_eq!(items(&record_file, 3), expected);
    fs::remove_file(folder.path().join("out.idx")).expect("removed");
    for parts in [1, 3, 4] {
        assert_eq!(items(&record_file, parts), expected);
    }
    // The list just written produces the same file again.
    let before = fs::read(&record_file[0]).expect("written");
    let stdout = succeeds(&mut pack(&folder, "--list out.lst --force"));
    assert!(stdout.starts_with("10 images of 3 classes, in the order of out.lst, "), "{stdout}");
    assert_eq!(fs::read(&record_file[0]).expect("written"), before);
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pixels").join(name)).expect("a picture")
}

#[test]
fn thread_count_does_not_change_encoded_images() {
    let folder = folder(&["a/1.jpg", "a/2.png", "b/3.jpg"]);
    for (name, picture) in [("a/1.jpg", "progressive.jpg"), ("a/2.png", "source.png"), ("b/3.jpg", "inks.jpg")] {
        fs::write(folder.path().join("images").join(name), golden(picture)).expect("written");
    }
    let record_file = [folder.path().join("out.rec")];
    let size = |item: &Item| decode::header(item.bytes(), &ImageLimits::default()).expect("an image").size();
    for (options, output_text, width, first) in [
        ("--resize 18 --quality 90", "as JPEG of quality 90, shorter edge 18 pixels", 24, &[0xff, 0xd8][..]),
        ("--center-crop --resize 18", "as JPEG of quality 95, the center square at 18 x 18 pixels", 18, &[0xff, 0xd8]),
        ("--center-crop", "as JPEG of quality 95, the center square", 27, &[0xff, 0xd8]),
        ("--encoding .png", "as PNG of level 9", 36, b"\x89PNG"),
    ] {
        let made = ["1", "5"].map(|threads| {
            let (status, stdout, stderr) = run(&mut pack(&folder, &format!("{options} --threads {threads} --force")));
            assert_eq!((status, stderr.as_str()), (Some(0), ""));
            let begin = format!("3 images of 2 classes, shuffled with seed 100, {output_text}: ");
            assert!(stdout.starts_with(&begin), "{options}: {stdout}");
            fs::read(&record_file[0]).expect("written")
        });
        assert!(made[0] == made[1], "{options}");
        let dataset = Dataset::open(&record_file).expect("opened");
        let mut item = Item::default();
        for index in 0..3 {
            dataset.read(index, &mut item).expect("read");
            assert_eq!(size(&item).width, width, "{options}");
            assert!(item.bytes().starts_with(first), "{options}");
        }
    }
    let before = fs::read(&record_file[0]).expect("written");
    fs::write(folder.path().join("images/b/3.jpg"), &golden("inks.jpg")[..1000]).expect("written");
    let error = refused(&mut pack(&folder, "--resize 18 --force"), 1);
    expect![[r"
        error: out.rec cannot be written: image b/3.jpg: images/b/3.jpg: not a JPEG that can be decoded: JPEG ends in the middle of its scan, at byte 1000: the file is truncated
    "]].assert_eq(&error);
    assert_eq!(fs::read(&record_file[0]).expect("there"), before);
    for (options, reason) in [
        ("--pass-through --resize 18", "cannot be used with"),
        ("--resize 0", "must be a whole number from 1 to 65535"),
        ("--quality 101", "must be a whole number from 0 to 100"),
        ("--encoding .png --quality 10", "quality 10 is out of range for .png images: choose 0 to 9"),
        ("--encoding .webp", "[possible values: .jpg, .png]"),
        ("--threads 0", "must be a whole number from 1 to 65535"),
    ] {
        let error = refused(&mut pack(&folder, options), 2);
        assert!(error.contains(reason), "{options}: {error}");
    }
}

#[test]
fn errors_are_reported_and_leave_no_files() {
    let sound = ["a/1.jpg", "b/2.jpg"];
    let list = |text: &'static str| {
        let folder = folder(&sound);
        fs::write(folder.path().join("my.lst"), text).expect("written");
        folder
    };
    for (folder, options, code, reason) in [
        (folder(&["a/1.jpg", "b/notes.txt"]), "", 1, "no images in images/b: image names end with .jpg, "),
        (folder(&["1.jpg"]), "", 1, "images has no folders: put the images of each class into a folder"),
        (list("0\t1\n"), "--list my.lst", 1, "my.lst, line 1: \"0\\t1\" has 2 fields, but needs at least 3"),
        (
            list("0\t1\ta/1.jpg\n7\t1\ta/9.jpg\n"),
            "--list my.lst",
            1,
            "image 7 of my.lst: images/a/9.jpg cannot be opened",
        ),
        (list("0\t1\ta\n"), "--list my.lst", 1, "image 0 of my.lst: images/a cannot be opened: path is a folder"),
        (folder(&sound), "--list none.lst", 1, "none.lst cannot be opened: No such file"),
        (folder(&sound), "--list a.lst --shuffle 7", 2, "cannot be used with"),
        (folder(&sound), "--no-shuffle --shuffle 7", 2, "cannot be used with"),
        (folder(&sound), "--recursive", 2, "tip: --recursive: not needed: every folder in FOLDER is a class"),
    ] {
        let before = names(folder.path());
        let error = refused(&mut pack(&folder, options), code);
        assert!(error.contains(reason), "{options}: {error}");
        assert_eq!(names(folder.path()), before, "{options}");
    }
    let folder = folder(&sound);
    for (typed, reason) in [
        ("pack none out.rec", "folder not found: none: use one that contains a folder of images per class"),
        ("pack images out", "out does not end with .rec"),
    ] {
        let error = refused(ringmark(typed).current_dir(folder.path()), 2);
        assert!(error.contains(reason), "{error}");
    }
    fs::write(folder.path().join("out.idx"), "mine").expect("written");
    let error = refused(&mut pack(&folder, ""), 2);
    expect![[r"
        error: out.idx already exists: use another name, or --force to replace it
    "]]
    .assert_eq(&error);
    assert_eq!(names(folder.path()), ["images", "out.idx"]);
    let error = refused(ringmark("pack images none/out.rec").current_dir(folder.path()), 1);
    expect![[r"
        error: none/out.rec cannot be written: No such file or directory (os error 2)
    "]]
    .assert_eq(&error);
}

#[test]
fn full_disk_gets_all_files_or_none() {
    let folder = folder(&["a/0.jpg", "a/1.jpg"]);
    let out = folder.path().join("out");
    let Some(disk) = SmallDisk::mount(&out) else { return };
    let pack = || {
        let mut command = ringmark("pack images out/out.rec --force --no-shuffle --pass-through");
        command.current_dir(folder.path());
        command
    };
    let files = || ["rec", "idx", "lst"].map(|name| fs::read(out.join("out").with_extension(name)).expect(name));
    assert_eq!(run(&mut pack()).0, Some(0));
    let old = files();
    // Two blocks for the records, and one each for index and list.
    fs::write(folder.path().join("images/a/2.jpg"), [7; 6000]).expect("written");
    let mut without_room = Vec::new();
    for blocks in 0.. {
        disk.fill_except(blocks * 4096);
        let (status, _, stderr) = run(&mut pack());
        disk.make_room();
        assert_eq!(names(&out), ["out.idx", "out.lst", "out.rec"], "{stderr}");
        if status == Some(0) {
            break;
        }
        assert_eq!((status, files() == old), (Some(1), true), "{blocks} blocks: {stderr}");
        let file = stderr.split_once(" cannot be written: No space left on device (os error 28)").expect(&stderr).0;
        without_room.push(file.to_owned());
    }
    let new = files();
    assert!(new.iter().zip(&old).all(|(new, old)| new != old), "all three are new");
    without_room.dedup();
    assert_eq!(without_room, ["rec", "idx", "lst"].map(|name| format!("error: out/out.{name}")));
}

#[test]
fn ctrl_c_keeps_old_files_and_no_partial_ones() {
    let folder = folder(&["a/0.jpg"]);
    let (status, _, stderr) = run(&mut pack(&folder, ""));
    assert_eq!(status, Some(0), "{stderr}");
    let before = fs::read(folder.path().join("out.rec")).expect("written");
    // A file of 1.6 GB: more than is written before the signal arrives.
    let image = folder.path().join("image");
    fs::write(&image, vec![7; 400_000]).expect("written");
    for number in 1..4000 {
        symlink(&image, folder.path().join(format!("images/a/{number}.jpg"))).expect("linked");
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut command = pack(&folder, "--force");
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        wait_until("the file is being written", || names(folder.path()).iter().any(|name| name.ends_with(".part")));
        kill(Pid::from_raw(command.id().cast_signed()), signal).expect("it runs");
        let output = command.wait_with_output().expect("ended");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), error.as_ref()),
            (Some(128 + signal as i32), "error: out.rec cannot be written: interrupted\n")
        );
        assert_eq!(names(folder.path()), ["image", "images", "out.idx", "out.lst", "out.rec"]);
        assert_eq!(fs::read(folder.path().join("out.rec")).expect("there"), before);
    }
}

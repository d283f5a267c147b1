//! `--data` of images that are read while the steps go on: real files, real training, what record and messages say.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use ringmark_record::benchmark::image_input::RankImageInput;
use ringmark_record::benchmark::train::record::RunRecord;
use ringmark_record::dimension::image_input::Augmentation;
use ringmark_record::dimension::phase::Phase;

use crate::safetensors::{self, Stored, Tensors};
use crate::sandbox::{ringmark, run};
use crate::worker::{AT_ONCE, Run, apart, checksum, losses};

/// MNIST's arrays of so many images, each of one class, whose pixels follow from their number.
pub fn digits(folder: &Path, count: u32) -> (Vec<u8>, Vec<u8>) {
    let pixels: Vec<u8> =
        (0..u64::from(count) * 28 * 28).map(|number| (255.0 * safetensors::unit(number).abs()) as u8).collect();
    let labels: Vec<u8> = (0..count).map(|number| (7 * number % 10) as u8).collect();
    let head = |shape: &[u32]| -> Vec<u8> {
        [0, 0, 8, shape.len() as u8].into_iter().chain(shape.iter().flat_map(|size| size.to_be_bytes())).collect()
    };
    let write = |name: &str, head: Vec<u8>, values: &[u8]| {
        fs::write(folder.join(name), [&head, values].concat()).expect("written");
    };
    write("train-images-idx3-ubyte", head(&[count, 28, 28]), &pixels);
    write("train-labels-idx1-ubyte", head(&[count]), &labels);
    (pixels, labels)
}

/// A folder of two classes with photographs of several kinds.
pub fn photographs(folder: &Path) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pixels");
    let root = folder.join("photographs");
    for (number, name) in
        ["full.jpg", "progressive.jpg", "rgb.jpg", "grayscale.jpg", "png_alpha.png"].iter().enumerate()
    {
        let class = root.join(["cat", "dog"][number % 2]);
        fs::create_dir_all(&class).expect("made");
        fs::copy(golden.join(name), class.join(name)).expect("copied");
    }
    root
}

/// A PNG of so many pixels each way, which does not compress.
pub fn noise(path: &Path, edge: u32) {
    let pixels: Vec<u8> =
        (0..3 * edge * edge).map(|number| (255.0 * safetensors::unit(number.into()).abs()) as u8).collect();
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path).expect("created")), edge, edge);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels)).expect("written");
}

fn mlp(ranks: u32, data: &Path, options: &str) -> Run {
    Run::ranks(ranks, &format!("--model mxnet-mlp --image-size 28 {AT_ONCE} {options}")).file("--data", data)
}

fn resnet(ranks: u32, data: &Path, options: &str) -> Run {
    Run::ranks(ranks, &format!("--model resnet18 {AT_ONCE} {options}")).file("--data", data)
}

fn joined_losses(record: &RunRecord) -> Vec<f64> {
    record.iterations.iter().map(|one| record.header.joined_loss(&one.loss).expect("ranks")).collect()
}

#[track_caller]
fn close(one: &[f64], other: &[f64], tolerance: f64) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert!((one - other).abs() <= tolerance * other.abs(), "{one}, {other}");
    }
}

fn of_ranks(record: &RunRecord) -> &[RankImageInput] {
    &record.end.as_ref().expect("an end").input.as_ref().expect("images were read").ranks
}

/// Bytes, labels, normalization and their order are those of a batch that was made beside.
#[test]
fn images_that_are_read_train_as_the_same_batch_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pixels, labels) = digits(folder.path(), 6);
    let batch = folder.path().join("batch.safetensors");
    let labels: Vec<i64> = labels.into_iter().map(i64::from).collect();
    let tensors = Tensors::from([
        ("images".to_owned(), Stored::floats(&[6, 1, 28, 28], pixels.iter().map(|pixel| f32::from(*pixel) / 255.0))),
        ("labels".to_owned(), Stored::integers(&[6], &labels)),
    ]);
    safetensors::write(&batch, &tensors);
    let options = "--iters 4 --batch-size 6 --lr 0.03125";
    let fixed = mlp(1, &batch, options).finish().sound();
    let read = mlp(1, folder.path(), &format!("{options} --shuffle off")).finish().sound();
    assert_eq!(losses(&read), losses(&fixed));
    assert_eq!(checksum(&read), checksum(&fixed));
    assert_eq!(fixed.end.expect("an end").input, None);
}

/// Seven epochs of ten images in steps of six, of which each rank has its part, even or not.
#[test]
fn ranks_have_together_what_one_has() {
    let folder = tempfile::tempdir().expect("a folder");
    digits(folder.path(), 10);
    let train = |ranks: u32, images: u32, options: &str| {
        let rate = 0.03125 / f64::from(ranks);
        let run = mlp(ranks, folder.path(), &format!("--iters 7 --batch-size {images} --lr {rate} {options}"))
            .save()
            .finish();
        let weights = run.weights();
        (run.sound(), weights)
    };
    let (alone, weights) = train(1, 6, "");
    let start = mlp(1, folder.path(), "--iters 1 --batch-size 6 --lr 0").save().finish().weights();
    for (ranks, images, options) in [(2, 3, ""), (3, 2, ""), (2, 3, "--work-load 2,1")] {
        let (record, own) = train(ranks, images, options);
        close(&joined_losses(&record), &joined_losses(&alone), 1e-5);
        assert!(apart(&own, &weights, &start) < 1e-4, "{ranks} ranks {options}");
    }
    let (other_order, _) = train(1, 6, "--seed 1 --shuffle off");
    assert_ne!(joined_losses(&other_order), joined_losses(&alone));
}

/// Whoever decodes, and whatever the search before the first iteration takes.
#[test]
fn batches_follow_from_the_seed_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    let train =
        |ranks: u32, options: &str| resnet(ranks, &data, &format!("--iters 3 --batch-size 2 {options}")).finish();
    let finished = train(1, "--decode-threads 1");
    let output = finished.stdout.clone();
    let record = finished.sound();
    for options in ["--decode-threads 3", "--decode-threads 2 --prefetch 1"] {
        assert_eq!(checksum(&train(1, options).sound()), checksum(&record), "{options}");
    }
    assert_ne!(checksum(&train(1, "--decode-threads 1 --augmentation mxnet-3").sound()), checksum(&record));
    let searched = train(2, "--decode-threads 1 --autotune").sound();
    assert_eq!(checksum(&searched), checksum(&train(2, "--decode-threads 1").sound()));

    let input = record.end.as_ref().expect("an end").input.as_ref().expect("images were read");
    assert_eq!(
        (input.what.as_str(), input.items, input.augmentation),
        ("a folder of 2 classes", Some(5), Augmentation::Imagenet)
    );
    let [rank] = input.ranks.as_slice() else { panic!("{input:?}") };
    // Three steps were trained, and some batches lie ready.
    assert!((6..=16).contains(&rank.images) && rank.bytes.0 > 1000 && rank.decode.0 > 0.0, "{rank:?}");
    assert_eq!((rank.threads, rank.skipped), (1, 0));
    assert!(output.contains("# input: 5 images of a folder of 2 classes, augmentation imagenet; rank 0: "), "{output}");
    assert!(record.iterations.iter().all(|iteration| iteration.phases[Phase::Input][0].0 > 0.0));
}

#[test]
fn an_image_that_is_none_ends_the_run_or_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    fs::write(data.join("dog/broken.jpg"), "no image").expect("written");
    let options = "--iters 3 --batch-size 6 --decode-threads 1";
    let error = resnet(1, &data, options).refused(1);
    assert!(error.contains("dog/broken.jpg"), "{error}");
    let record = resnet(2, &data, "--iters 3 --batch-size 3 --decode-threads 1 --on-bad-image skip").finish().sound();
    let skipped: u64 = of_ranks(&record).iter().map(|rank| rank.skipped).sum();
    assert_eq!(skipped, 3);
    let input = record.end.as_ref().expect("an end").input.as_ref().expect("images were read");
    assert!(input.skipped[0].contains("dog/broken.jpg"), "{input:?}");
}

#[test]
fn data_that_do_not_suit_are_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    digits(folder.path(), 4);
    let data = photographs(folder.path());
    let of_digits = folder.path().join("train-images-idx3-ubyte");
    for (run, message) in [
        (resnet(1, &of_digits, ""), "28 x 28 pixels of 1 channel, and the network takes 32 x 32 of 3"),
        (
            mlp(1, &of_digits, "--augmentation crop"),
            "which are taken as they are: leave out --augmentation and --resize",
        ),
        (mlp(1, &data, ""), "image files become RGB, and the network takes 1 channel"),
        (mlp(1, &folder.path().join("nothing"), ""), "nothing"),
    ] {
        let error = run.refused(1);
        assert!(error.contains(message), "{error}");
    }
    let error = Run::alone("--augmentation crop").refused(2);
    assert!(
        error.contains("--augmentation crop is of images that are read: add --data FILE, or leave it out"),
        "{error}"
    );
}

/// One thread decodes large images for a small network: everybody waits for it, and is told so.
#[test]
fn waiting_for_input_is_a_phase_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("large");
    fs::create_dir_all(data.join("one")).expect("made");
    noise(&data.join("one/noise.png"), 1000);
    let result = folder.path().join("result");
    let options = format!(
        "sweep --cases 1n1g,1n2g --runs 1 --iters 7 --warmup 2 --batch-size 4 --model resnet18 --image-size 32 --device cpu \
         --threads 1 --decode-threads 1 --no-doctor --out {} --data {}",
        result.display(),
        data.display()
    );
    let (status, stdout, stderr) = run(&mut ringmark(&options));
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("the ranks waited for images in "), "{stdout}{stderr}");
    let (status, table, _) = run(ringmark("extract --format csv").arg(&result));
    assert_eq!(status, Some(0));
    let mut rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = rows.next().expect("a header");
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 2, "{table}");
    for row in rows {
        let figure = |name: &str| -> f64 {
            let column = names.iter().position(|column| *column == name).expect(name);
            row[column].parse().expect(name)
        };
        assert!(figure("input_s") > 0.1 * figure("step_s"), "{table}");
    }
    let (_, table, _) = run(ringmark("extract").arg(&result));
    assert!(table.contains("input") && table.contains("forward"), "{table}");
}

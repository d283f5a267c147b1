//! Tests of `--data` with images that are read during training: real files, real training, records and messages.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use expect_test::expect;
use ringmark_core::benchmark::data_input::RankDataInput;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::{Augmentation, Phase};
use ringmark_core::untrusted_text::is_unprintable;
use serde_json::Value;

use crate::support::images::{digits, noise, photographs, write_digits};
use crate::support::safetensors::{self, Stored, Tensors};
use crate::support::sandbox::{compile_library, ringmark, run, succeeds, write_program};
use crate::support::worker_run::{AT_ONCE, Finished, Run, apart, checksum, losses};

fn mlp(ranks: u32, data: &Path, options: &str) -> Run {
    Run::ranks(ranks, &format!("--model mxnet-mlp --image-size 28 {AT_ONCE} {options}")).file("--data", data)
}

fn resnet(ranks: u32, data: &Path, options: &str) -> Run {
    Run::ranks(ranks, &format!("--model resnet18 {AT_ONCE} {options}")).file("--data", data)
}

fn global_losses(record: &RunRecord) -> Vec<f64> {
    record.iterations.iter().map(|one| record.header.global_loss(&one.loss).expect("ranks")).collect()
}

#[track_caller]
fn close(one: &[f64], other: &[f64], tolerance: f64) {
    assert_eq!(one.len(), other.len());
    for (one, other) in one.iter().zip(other) {
        assert!((one - other).abs() <= tolerance * other.abs(), "{one}, {other}");
    }
}

fn rank_inputs(record: &RunRecord) -> &[RankDataInput] {
    &record.end.as_ref().expect("an end").input.as_ref().expect("images were read").ranks
}

/// Compares bytes, labels, normalization and order with a batch that was made separately.
#[test]
fn image_files_train_like_the_same_batch_file() {
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
    let fixed = mlp(1, &batch, options).finish().valid_record();
    let read = mlp(1, folder.path(), &format!("{options} --shuffle off")).finish().valid_record();
    assert_eq!(losses(&read), losses(&fixed));
    assert_eq!(checksum(&read), checksum(&fixed));
    assert_eq!(fixed.end.expect("an end").input, None);
}

/// Trains seven epochs of ten images in steps of six, divided among the ranks evenly or not.
#[test]
fn ranks_split_the_batch_of_one_rank() {
    let folder = tempfile::tempdir().expect("a folder");
    digits(folder.path(), 10);
    let train = |ranks: u32, images: u32, options: &str| {
        let rate = 0.03125 / f64::from(ranks);
        let run = mlp(ranks, folder.path(), &format!("--iters 7 --batch-size {images} --lr {rate} {options}"))
            .save()
            .finish();
        let weights = run.weights();
        (run.valid_record(), weights)
    };
    let (alone, weights) = train(1, 6, "");
    let start = mlp(1, folder.path(), "--iters 1 --batch-size 6 --lr 0").save().finish().weights();
    for (ranks, images, options) in [(2, 3, ""), (3, 2, ""), (2, 3, "--work-load 2,1")] {
        let (record, own) = train(ranks, images, options);
        close(&global_losses(&record), &global_losses(&alone), 1e-5);
        assert!(apart(&own, &weights, &start) < 1e-4, "{ranks} ranks {options}");
    }
    let (other_order, _) = train(1, 6, "--seed 1 --shuffle off");
    assert_ne!(global_losses(&other_order), global_losses(&alone));
}

/// Tests epochs, validation and learning-rate schedule with images that are easy to classify: each class has a bright
/// bar.
#[test]
fn accuracy_is_reported_after_every_epoch() {
    let folder = tempfile::tempdir().expect("a folder");
    let [train, test] = ["train", "test"].map(|name| folder.path().join(name));
    for (path, count, seed) in [(&train, 600, 0), (&test, 101, 1 << 40)] {
        fs::create_dir(path).expect("made");
        let label = |number: u64| (7 * number + number / 10) % 10;
        let pixel = |number: u64| {
            let (image, column) = (number / 784, number % 28);
            let bar = if column / 2 == label(image) + 2 { 120.0 } else { 0.0 };
            (bar + 60.0 * (1.0 + safetensors::unit(seed + number))) as u8
        };
        let pixels: Vec<u8> = (0..count * 784).map(pixel).collect();
        let labels: Vec<u8> = (0..count).map(|image| label(image) as u8).collect();
        write_digits(path, &pixels, &labels);
    }
    let run = |ranks: u32, images: u32, options: &str| {
        let rate = 0.05 / f64::from(ranks);
        let options =
            format!("--epochs 4 --batch-size {images} --lr {rate} --momentum 0.9 --lr-warmup-iters 0 {options}");
        Run::ranks(ranks, &format!("--model mxnet-mlp --image-size 28 {options}"))
            .file("--data", &train)
            .file("--validate", &test)
            .finish()
    };
    let one = run(1, 32, "--lr-schedule cosine");
    let (output, record) = (one.stdout.clone(), one.valid_record());
    let epochs = |record: &RunRecord| record.end.as_ref().expect("an end").epochs.clone();
    let ends = epochs(&record);
    assert_eq!(
        ends.iter().map(|end| (end.epoch, end.iteration)).collect::<Vec<_>>(),
        [(1, 19), (2, 38), (3, 57), (4, 76)]
    );
    assert_eq!((record.iterations.len(), record.header.config.iterations), (76, 76));
    let last = ends[3].validation.expect("predicted");
    assert!(
        last.samples == 101 && last.top_1 > Some(0.95) && last.top_5 >= last.top_1 && last.top_5 <= Some(1.0),
        "{last:?}"
    );
    assert!(ends[3].loss.expect("finite") < 0.5 * ends[0].loss.expect("finite"), "{ends:?}");
    assert!(
        output.contains("# epoch 4: loss 0.") && output.contains("; validation of 101 images: loss 0."),
        "{output}"
    );

    // Two ranks have 64 of 101 images in two steps of 32, and the last rank has none in the fourth.
    let two = epochs(&run(2, 16, "--lr-schedule cosine").valid_record());
    for (one, two) in ends.iter().zip(&two) {
        let (one, two) = (one.validation.expect("predicted"), two.validation.expect("predicted"));
        assert_eq!((one.samples, one.top_5), (two.samples, two.top_5));
        let [one_top_1, two_top_1] = [one, two].map(|of| of.top_1.expect("a share"));
        assert!((one_top_1 - two_top_1).abs() < 0.011, "{one:?} {two:?}");
        close(&[two.loss.expect("finite")], &[one.loss.expect("finite")], 1e-3);
    }
    // The learning rate is 0 from the second epoch on.
    let stopped = epochs(&run(1, 32, "--lr-step-epochs 1 --lr-factor 0 --label-smoothing 0.1").valid_record());
    let losses: Vec<f64> = stopped.iter().map(|end| end.validation.expect("predicted").loss.expect("finite")).collect();
    assert!(losses[1..].iter().all(|loss| *loss == losses[0]), "{losses:?}");
}

/// The loss is the weighted mean of the loss of the labels and the loss of all classes.
#[test]
fn label_smoothing_spreads_loss_over_all_classes() {
    let folder = tempfile::tempdir().expect("a folder");
    digits(folder.path(), 20);
    let first_loss = |share: f64| {
        let options = format!("--iters 1 --batch-size 20 --lr 0 --label-smoothing {share}");
        losses(&mlp(1, folder.path(), &options).finish().valid_record())[0]
    };
    let (plain, tenth, half) = (first_loss(0.0), first_loss(0.1), first_loss(0.5));
    let of_all = plain + (half - plain) / 0.5;
    assert!((of_all - plain).abs() > 1e-3, "{plain}, {half}");
    close(&[tenth], &[0.9 * plain + 0.1 * of_all], 1e-5);
}

/// Cases of a sweep have different numbers of iterations for the same epochs, but form one result.
#[test]
fn sweep_by_epochs_is_one_result() {
    // The launcher uses the worker in its own folder.
    crate::support::worker();
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("digits");
    fs::create_dir(&data).expect("made");
    digits(&data, 40);
    let result = folder.path().join("result");
    let sweep = |more: &str| {
        let options = format!(
            "sweep --cases 1n1g,1n2g --runs 1 --epochs 3 --warmup 2 --batch-size 4 --model mxnet-mlp --image-size 28 --device cpu \
             --threads 1 --no-doctor --out {} --data {} --validate {} {more}",
            result.display(),
            data.display(),
            data.display()
        );
        run(&mut ringmark(&options))
    };
    let (status, stdout, stderr) = sweep("");
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("3 epochs of 40 images, the first 2 iterations warm-up"), "{stdout}");
    let of_runs: Vec<&str> = stdout.lines().filter(|line| line.contains(" images/s, top-1 ")).collect();
    assert!(of_runs.len() == 2 && of_runs[1].starts_with("1n2g run 1 of 1: "), "{stdout}");
    let log = fs::read_to_string(result.join("1n2g/mxnet-mlp_b4_fp32_1.log")).expect("a log");
    // 40 images make five steps of two ranks with 4 images each.
    for batch in ["Epoch[0] Batch[5]\t", "Epoch[1] Batch[1]\t", "Epoch[2] Batch[5]\t"] {
        assert_eq!(log.matches(batch).count(), 1, "{batch}: {log}");
    }
    let (status, stdout, stderr) = sweep("--resume");
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let (_, table, _) = run(ringmark("extract --format csv").arg(&result));
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert!(rows.len() == 2 && rows[0].split(',').next() == rows[1].split(',').next(), "{table}");
    let (_, table, _) = run(ringmark("extract").arg(&result));
    let (_, json, _) = run(ringmark("extract --json").arg(&result));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let accuracy = &json["rows"][1]["accuracy"];
    let top_1 = accuracy["top_1"].as_f64().expect("a share");
    let of_case = format!("{:.2}", top_1 * 100.0);
    assert!(table.contains("after the last epoch") && table.lines().any(|line| line.contains(&of_case)), "{table}");
    assert_eq!(accuracy["epochs"], 3);
    // The reliability of figures of a few milliseconds depends on the machine.
    let (_, stdout, stderr) = run(ringmark("check").arg(&result));
    for check in ["complete", "unedited", "rules"] {
        assert!(
            stdout.lines().any(|line| line.starts_with("PASS") && line.contains(check)),
            "{check}: {stdout}{stderr}"
        );
    }
    let (status, _, stderr) = sweep("--warmup 30 --resume");
    assert_eq!(status, Some(2), "{stderr}");
    let page = folder.path().join("report.html");
    succeeds(ringmark("report").arg(&result).arg("-o").arg(&page));
    let page = fs::read_to_string(page).expect("a page");
    for text in [
        "Loss and accuracy",
        "Training loss",
        "Validation loss",
        "Top-1",
        "1n2g run 1, iteration 7: training loss",
        "1n2g run 1, epoch 3: top-1",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

/// A run that was killed and resumed from its last checkpoint is identical to an uninterrupted one, including dropout,
/// loss scale and position in the data.
#[test]
fn resumed_training_is_bit_identical() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("digits");
    fs::create_dir(&data).expect("made");
    digits(&data, 10);
    let checkpoint = folder.path().join("checkpoint.safetensors");
    let run = |ranks: u32, options: &str| {
        let options = format!(
            "--model mxnet-mlp --image-size 28 --epochs 6 --lr 0.03125 --lr-warmup-iters 0 --lr-schedule cosine {options}"
        );
        Run::ranks(ranks, &options).file("--data", &data)
    };
    // Record and log are those of the whole run.
    let goes_on = |resumed: Run, whole: &RunRecord, before: u32| {
        let again = folder.path().join("again.safetensors");
        let finished = resumed.file("--from-checkpoint", &checkpoint).file("--checkpoint", &again).finish();
        let output = finished.stdout.clone();
        let resumed = finished.valid_record();
        assert_eq!((resumed.header.iterations_before(), resumed.iterations.len()), (before, 30), "{output}");
        assert_eq!(output.matches("] Batch[").count(), 30, "{output}");
        assert!(output.contains(&format!("# resumed from its checkpoint after iteration {before}\n")), "{output}");
        assert_eq!(checksum(&resumed), checksum(whole));
        assert_eq!(global_losses(&resumed), global_losses(whole));
        let scales = |record: &RunRecord| record.iterations.iter().map(|one| one.loss_scale).collect::<Vec<_>>();
        assert_eq!(scales(&resumed), scales(whole));
        let [part] = resumed.header.resumptions.as_slice() else { panic!("{:?}", resumed.header.resumptions) };
        let wall = resumed.end.as_ref().expect("an end").wall;
        assert!(part.wall_before.0 > 0.0 && wall.0 > part.wall_before.0 && part.changes.is_empty(), "{part:?}, {wall}");
        assert!(part.started.0 > resumed.header.started.0);
        let epochs = |record: &RunRecord| record.end.as_ref().expect("an end").epochs.clone();
        assert_eq!(epochs(&resumed), epochs(whole));
        assert_eq!(epochs(whole).len(), 6);
    };
    // Five steps per epoch. An overflow halves the scale before the last checkpoint, which is that of step 28.
    let half = "--batch-size 2 --dtype fp16 --loss-scale 1024 --checkpoint-every 4";
    let overflow = run(1, &format!("{half} --inject overflow:7"));
    let whole = overflow.file("--checkpoint", &checkpoint).finish().valid_record();
    goes_on(run(1, half), &whole, 28);
    // Resumes to the last bit.
    let again = run(1, half).file("--from-checkpoint", &checkpoint).file("--checkpoint", &folder.path().join("third"));
    let again = again.finish().valid_record();
    assert_eq!((&again.iterations[..28], again.header.started), (&whole.iterations[..28], whole.header.started));
    // The moments of Adam, and the number of updates, which an overflow does not increase.
    let adam = format!("{half} --optimizer adamw --adam-eps 0.0625");
    let overflow = run(1, &format!("{adam} --inject overflow:7"));
    let whole = overflow.file("--checkpoint", &checkpoint).finish().valid_record();
    goes_on(run(1, &adam), &whole, 28);
    // The same with two ranks, which are killed in step 11.
    let two = "--batch-size 1 --checkpoint-every 4";
    let whole = run(2, two).file("--checkpoint", &checkpoint).finish().valid_record();
    fs::remove_file(&checkpoint).expect("written");
    let killed = run(2, &format!("{two} --inject fail:11:0")).file("--checkpoint", &checkpoint).refused(1);
    assert!(killed.contains("failure injected in iteration 11"), "{killed}");
    goes_on(run(2, two), &whole, 8);
    // Dropout.
    let dropping =
        || Run::single_rank(&format!("--model inception_v3 --image-size 75 --iters 3 --checkpoint-every 2 {AT_ONCE}"));
    let [before, again] = ["before.safetensors", "again.safetensors"].map(|name| folder.path().join(name));
    let whole = dropping().file("--checkpoint", &before).finish().valid_record();
    let resumed = dropping().file("--checkpoint", &again).file("--from-checkpoint", &before).finish().valid_record();
    assert_eq!((resumed.header.iterations_before(), checksum(&resumed)), (2, checksum(&whole)));
    assert_eq!(losses(&resumed), losses(&whole));
    // Killed after the last step, before there was a record.
    let four = || mlp(1, &data, "--iters 4 --checkpoint-every 2").file("--checkpoint", &before);
    let whole = four().finish().valid_record();
    let resumed = four().file("--from-checkpoint", &before).finish().valid_record();
    assert_eq!((&resumed.iterations, checksum(&resumed)), (&whole.iterations, checksum(&whole)));
    let error = mlp(1, &data, "--iters 4 --checkpoint-every 2").refusal(2);
    expect![[r#"
        error: --checkpoint-every 2 needs a file: add --checkpoint FILE
    "#]]
    .assert_eq(&error);
    let refused = |ranks: u32, options: &str| {
        run(ranks, &format!("--batch-size 1 {options}")).file("--from-checkpoint", &checkpoint).refusal(1)
    };
    expect![[r#"
        error: --from-checkpoint DIR/checkpoint.safetensors: saved by 2 ranks, but this run has 1: use the same number of ranks
    "#]]
    .assert_eq(&refused(1, ""));
    let error = refused(2, "--momentum 0.5 --checkpoint-every 4 --checkpoint no.safetensors");
    expect!["--from-checkpoint DIR/checkpoint.safetensors: saved with --momentum 0.875, but this run has 0.5: use the options of the run that saved it"].assert_eq(&error);
    let error =
        run(2, "--batch-size 1 --checkpoint-every 4 --strategy dist_sync").file("--checkpoint", &checkpoint).refused(2);
    assert!(
        error.contains("--checkpoint is not supported with --strategy dist_sync and --gradient-compression none"),
        "{error}"
    );
    let weights = folder.path().join("weights.safetensors");
    safetensors::write(&weights, &mlp(1, &data, "--iters 1").save().finish().weights());
    let error = run(1, "").file("--from-checkpoint", &weights).refusal(1);
    expect![[r#"
        error: DIR/weights.safetensors contains only weights, no training state: use --init
    "#]]
    .assert_eq(&error);
    // As many steps per epoch, but other images.
    digits(&data, 9);
    let other = run(2, two).file("--checkpoint", &weights).file("--from-checkpoint", &checkpoint).refusal(1);
    expect![
        "--from-checkpoint DIR/checkpoint.safetensors: saved with 10 images, but --data has 9 images: use the same data"
    ]
    .assert_eq(&other);
}

/// Every record is read once per epoch for any number of ranks: validation is the same.
#[test]
fn records_without_index_are_read_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = photographs(folder.path());
    let (status, _, stderr) = run(ringmark("pack").arg(&images).arg(folder.path().join("all.rec")));
    assert_eq!(status, Some(0), "{stderr}");
    let by_number = folder.path().join("by_number.rec");
    fs::copy(folder.path().join("all.rec"), &by_number).expect("copied");
    fs::copy(folder.path().join("all.idx"), by_number.with_extension("idx")).expect("copied");
    let in_turn = folder.path().join("in_turn.rec");
    fs::rename(folder.path().join("all.rec"), &in_turn).expect("renamed");
    let learn = |ranks: u32, data: &Path, options: &str| {
        let options = format!("--epochs 2 --lr 0 --freeze-batch-norm --batch-size 2 --augmentation none {options}");
        resnet(ranks, data, &options).file("--validate", data).finish()
    };
    let predicted = |ranks: u32, data: &Path| {
        let record = learn(ranks, data, "").valid_record();
        let end = record.end.expect("an end");
        let validation = end.epochs.last().and_then(|epoch| epoch.validation).expect("predicted");
        assert_eq!((end.epochs.len(), validation.samples), (2, 5));
        (validation.loss.expect("finite"), end.input.expect("images were read").items)
    };
    let (expected, items) = predicted(1, &by_number);
    assert_eq!(items, Some(5));
    for ranks in [1, 2] {
        let (loss, items) = predicted(ranks, &in_turn);
        close(&[loss], &[expected], 1e-5);
        assert_eq!(items, None);
    }
    // Validation images have the requested size.
    let large = learn(1, &by_number, "--resize 64").valid_record().end.expect("an end");
    let large = large.epochs[1].validation.and_then(|validation| validation.loss).expect("finite");
    assert!((large - expected).abs() > 1e-4 * expected, "{large} and {expected}");
    let Finished { stderr, .. } = learn(2, &in_turn, "--work-load 1,3");
    assert!(stderr.contains("--work-load is not possible with 1 RecordIO file without index"), "{stderr}");
}

/// Batches do not depend on the decoder, nor on the search before the first iteration.
#[test]
fn batches_depend_only_on_the_seed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    fs::write(data.join("cat/notes.txt"), "no image").expect("written");
    let train = |options: &str| resnet(1, &data, &format!("--iters 3 --batch-size 2 {options}")).finish();
    let finished = train("--decode-threads 1");
    let output = finished.stdout.clone();
    let record = finished.valid_record();
    for options in ["--decode-threads 3", "--decode-threads 2 --prefetch 1"] {
        assert_eq!(checksum(&train(options).valid_record()), checksum(&record), "{options}");
    }
    assert_ne!(checksum(&train("--decode-threads 1 --augmentation mxnet-3").valid_record()), checksum(&record));
    let pixels = folder.path().join("pixels");
    fs::create_dir(&pixels).expect("made");
    digits(&pixels, 12);
    let train_digits =
        |options: &str| mlp(2, &pixels, &format!("--iters 3 --batch-size 2 {options}")).finish().valid_record();
    assert_eq!(checksum(&train_digits("--autotune")), checksum(&train_digits("")));

    let input = record.end.as_ref().expect("an end").input.as_ref().expect("images were read");
    assert_eq!(
        (input.what.as_str(), input.items, input.augmentation),
        (
            "a folder of 2 classes, ignoring 1 file that is not an image or not in a \
          class",
            Some(5),
            Augmentation::Imagenet
        )
    );
    let [rank] = input.ranks.as_slice() else { panic!("{input:?}") };
    // Three steps were trained, and some batches are prefetched.
    assert!((6..=16).contains(&rank.samples) && rank.bytes.0 > 1000 && rank.decode.0 > 0.0, "{rank:?}");
    assert_eq!((rank.threads, rank.skipped), (1, 0));
    let line = "# input: 5 images of a folder of 2 classes, ignoring 1 file that is not an image or not in a class, \
                augmentation imagenet; rank 0: ";
    assert!(output.contains(line), "{output}");
    assert!(record.iterations.iter().all(|iteration| iteration.phases[Phase::Input][0].0 > 0.0));
}

/// Tests an image of one row, and names with terminal control sequences or bidirectional characters.
#[test]
fn oversized_image_is_named_in_printable_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let class = folder.path().join("\u{1b}[31mcat");
    fs::create_dir(&class).expect("made");
    let path = class.join("\u{202e}gnp.png");
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path).expect("created")), 2_000_000, 1);
    encoder.set_depth(png::BitDepth::One);
    let row = vec![0; 250_000];
    encoder.write_header().and_then(|mut writer| writer.write_image_data(&row)).expect("written");
    let refused = |options: &str| {
        let options =
            format!("--iters 1 --batch-size 1 --freeze-batch-norm --decode-threads 1 --augmentation mxnet-3 {options}");
        let error = resnet(1, folder.path(), &options).refusal(1);
        assert!(error.chars().all(|letter| letter == '\n' || !is_unprintable(letter)), "{error:?}");
        error
    };
    expect![[r#"
        error: DIR/�[31mcat/�gnp.png: not a PNG that can be decoded: the header declares 2000000 x 1 pixels, an aspect ratio of 2000000; the limit is 100: raise it with --image-limits aspect=2000000
    "#]].assert_eq(&refused(""));
    expect![[r#"
        error: DIR/�[31mcat/�gnp.png: resizing 2000000 x 1 pixels to 64000000 x 32 makes 2048000000 pixels; the limit is 50000000: raise it with --image-limits pixels=2048000000
    "#]].assert_eq(&refused("--image-limits aspect=2000000"));
}

#[test]
fn invalid_image_fails_the_run_or_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    fs::write(data.join("dog/broken.jpg"), "no image").expect("written");
    let options = "--iters 3 --batch-size 6 --decode-threads 1";
    let error = resnet(1, &data, options).refusal(1);
    expect![[r#"
        error: DIR/photographs/dog/broken.jpg: neither JPEG (ff d8 ff) nor PNG (89 50 4e 47): the 8 bytes begin with 6e 6f 20 69 6d 61 67 65
    "#]].assert_eq(&error);
    let record =
        resnet(2, &data, "--iters 3 --batch-size 3 --decode-threads 1 --on-bad-image skip").finish().valid_record();
    let skipped: u64 = rank_inputs(&record).iter().map(|rank| rank.skipped).sum();
    assert_eq!(skipped, 3);
    let input = record.end.as_ref().expect("an end").input.as_ref().expect("images were read");
    assert!(input.skipped[0].contains("dog/broken.jpg"), "{input:?}");
    // A resumed run counts the images of all its parts.
    let checkpoint = folder.path().join("checkpoint.safetensors");
    let run = |options: &str| {
        let options = format!(
            "--batch-size 3 --decode-threads 1 --prefetch 1 --on-bad-image skip --iters 8 --checkpoint-every 6 {options}"
        );
        resnet(2, &data, &options).file("--checkpoint", &checkpoint)
    };
    run("--inject fail:7:0").refused(1);
    let record = run("").file("--from-checkpoint", &checkpoint).finish().valid_record();
    assert_eq!((record.header.iterations_before(), record.iterations.len()), (6, 8));
    let used = rank_inputs(&record);
    assert_eq!(used.iter().map(|rank| rank.skipped).sum::<u64>(), 8);
    // The last part alone makes two batches, and prefetches at most two.
    assert!(used.iter().all(|rank| rank.samples >= 8 * 3), "{used:?}");
}

#[test]
fn unsuitable_data_is_rejected_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    digits(folder.path(), 4);
    let data = photographs(folder.path());
    let of_digits = folder.path().join("train-images-idx3-ubyte");
    let errors = [
        resnet(1, &of_digits, ""),
        mlp(1, &of_digits, "--augmentation crop"),
        mlp(1, &data, ""),
        resnet(1, &data, "--resize 64"),
        mlp(1, &folder.path().join("nothing"), ""),
    ]
    .map(|run| run.refusal(1));
    expect![[r#"
        error: DIR/train-images-idx3-ubyte, byte 800: 28 x 28 pixels of 1 channel, but the network takes 32 x 32 of 3: use another --image-size or network
        error: --data has an idx array with labels in DIR/train-labels-idx1-ubyte, which are used unchanged: omit --augmentation and --resize, or use image files
        error: DIR/photographs/cat/rgb.jpg: image files are decoded to RGB, but the network takes 1 channel: use another network, or MNIST
        error: --resize 64 has no effect with --augmentation imagenet, which crops the stored image: omit --resize, or use another --augmentation
        error: --data: DIR/nothing cannot be opened: No such file or directory (os error 2)
    "#]].assert_eq(&errors.concat());
    let error = Run::single_rank("--augmentation crop").refusal(2);
    expect![[r#"
        error: --augmentation crop needs input images: add --data FILE, or omit the option
    "#]]
    .assert_eq(&error);
}

/// One of two ranks has a disk that takes 30 ms per image and is reported; the other waits and is not.
#[test]
fn slow_disk_of_a_rank_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("digits");
    fs::create_dir(&data).expect("made");
    digits(&data, 40);
    let library = folder.path().join("slow_disk.so");
    compile_library("slow_disk.c", &library, &[]);
    let script = folder.path().join("worker.sh");
    let text = format!(
        "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 0 ] || export LD_PRELOAD={}\nexec {} \"$@\"\n",
        library.display(),
        crate::support::worker().display()
    );
    write_program(&script, &text);
    let run = mlp(2, &data, "--iters 24 --warmup 4 --batch-size 4 --decode-threads 1");
    let record = run.program(&script).finish().valid_record();
    let warnings = &record.end.as_ref().expect("an end").warnings;
    let stragglers: Vec<_> = warnings.iter().filter(|warning| warning.kind == WarningKind::Straggler).collect();
    let [straggler] = stragglers.as_slice() else { panic!("{warnings:?}") };
    assert_eq!(straggler.about, format!("rank 1 on host {}", record.header.ranks[1].host));
    let read = straggler.text.split("of it waiting for images (a thread read one in ").nth(1);
    let milliseconds = read.and_then(|text| text.split_once(" ms, elsewhere in ")).expect(&straggler.text).0;
    assert!(milliseconds.parse::<f64>().expect("a time") >= 30.0, "{}", straggler.text);
    assert!(straggler.text.contains("check the disk of its data, or exclude it"), "{}", straggler.text);
}

/// One thread decodes large images for a small network: all ranks wait for it, which is reported.
#[test]
fn input_wait_is_a_separate_phase() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("large");
    fs::create_dir_all(data.join("one")).expect("made");
    // One prefetched batch: those decoded before the first iteration do not hide the wait.
    noise(&data.join("one/noise.png"), 3000);
    let result = folder.path().join("result");
    let options = format!(
        "sweep --cases 1n1g,1n2g --runs 1 --iters 5 --warmup 2 --batch-size 4 --model resnet18 --image-size 32 --device cpu \
         --threads 1 --decode-threads 1 --prefetch 1 --no-doctor --out {} --data {}",
        result.display(),
        data.display()
    );
    let (status, stdout, stderr) = run(&mut ringmark(&options));
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("the ranks waited for images in "), "{stdout}{stderr}");
    let table = succeeds(ringmark("extract --format csv").arg(&result));
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

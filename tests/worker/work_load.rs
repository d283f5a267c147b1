//! Tests of parts of a batch under real mpirun: uneven ones by `--work-load` and their report by `extract`, and those of
//! `--accumulate`.

use std::path::Path;

use expect_test::expect;
use ringmark_core::benchmark::train::{RunRecord, WorkDivision};
use ringmark_core::dimension::{Model, Phase, Seconds};

use crate::support::runs::{Folder, record, rows_by_case};
use crate::support::safetensors::{self, Stored, Tensors};
use crate::support::sandbox::{self, ringmark, run, succeeds};
use crate::support::worker_run::{AT_ONCE, Finished, Run, apart, checksum};

/// Creates `count` different images for the small networks, in ten classes.
fn small_batch(count: usize) -> Tensors {
    let images = (0..count as u64 * 28 * 28).map(|number| 1.7 * safetensors::unit(number));
    let labels: Vec<i64> = (0..count as i64).map(|number| 7 * number % 10).collect();
    Tensors::from([
        ("images".to_owned(), Stored::floats(&[count, 1, 28, 28], images)),
        ("labels".to_owned(), Stored::integers(&[count], &labels)),
    ])
}

/// Creates a run of a small network, which has no batch normalization.
fn small(ranks: u32, data: &Path, options: &str) -> Run {
    Run::ranks(ranks, &format!("--image-size 28 {options}")).file("--data", data)
}

fn division(record: &RunRecord) -> &WorkDivision {
    record.header.work_division.as_ref().expect("uneven parts")
}

fn global_losses(record: &RunRecord) -> Vec<f64> {
    record.iterations.iter().map(|one| record.header.global_loss(&one.loss).expect("ranks")).collect()
}

#[test]
fn uneven_shares_match_the_global_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("batch.safetensors");
    safetensors::write(&data, &small_batch(12));
    // The rate is multiplied by the number of ranks; dividing it makes every run take the same step.
    let run = |model: &str, (ranks, images): (u32, u32), options: &str| -> (Finished, Tensors) {
        let rate = 2f64.powi(-5) / f64::from(ranks);
        let options = format!("--model {model} --iters 3 --batch-size {images} --lr {rate} {AT_ONCE} {options}");
        let finished = small(ranks, &data, &options).save().finish();
        let weights = finished.weights();
        (finished, weights)
    };
    for (model, dtype, tolerance) in
        [("mxnet-mlp", "fp32", 1e-5), ("mxnet-lenet", "fp32", 1e-5), ("mxnet-mlp", "fp16", 2e-3)]
    {
        let options = |more: &str| format!("--dtype {dtype} --loss-scale 128 {more}");
        let (start, first) =
            (small(1, &data, &format!("--model {model} --iters 1 --batch-size 12 --lr 0 {AT_ONCE}")), 12);
        let start = start.save().finish().weights();
        let (joined, one) = run(model, (1, first), &options(""));
        let joined = joined.valid_record();
        for (ranks, images, weights, parts) in
            [(2, first / 2, "3,1", vec![9, 3]), (3, first / 3, "1,2,5", vec![2, 3, 7])]
        {
            let (uneven, several) = run(model, (ranks, images), &options(&format!("--work-load {weights}")));
            let uneven = uneven.valid_record();
            assert_eq!(division(&uneven).samples, parts);
            let difference = apart(&several, &one, &start);
            assert!(difference < tolerance, "{model}, {dtype}, {weights}: {difference}");
            for (one, several) in global_losses(&joined).iter().zip(global_losses(&uneven)) {
                assert!((one - several).abs() < tolerance * one, "{model}, {dtype}: {one}, {weights}: {several}");
            }
            // Without weighting the parts the gradient would differ: here the ranks have different losses.
            let first = &uneven.iterations[0].loss;
            assert!((first[0] - first[1]).abs() > 10.0 * tolerance * first[0], "{first:?}");
        }
        if (model, dtype) == ("mxnet-mlp", "fp32") {
            // Independent of the strategy that sums and updates.
            for (processes, strategy) in [(2, "device"), (2, "local"), (3, "dist_sync --servers 1")] {
                let rate = 2f64.powi(-6);
                let options = format!(
                    "--model {model} --iters 3 --batch-size 6 --lr {rate} {AT_ONCE} --work-load 3,1 --strategy {strategy}"
                );
                let finished = small(processes, &data, &options).save().finish();
                let difference = apart(&finished.weights(), &one, &start);
                assert!(difference < tolerance, "{strategy}: {difference}");
                assert_eq!(division(&finished.valid_record()).samples, [9, 3]);
            }
            // Part of the batch gives a different gradient.
            let part = apart(&run(model, (1, 9), &options("")).1, &one, &start);
            assert!(part > 0.05, "{part}");
        }
    }
}

#[test]
fn accumulated_parts_match_the_whole_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("batch.safetensors");
    safetensors::write(&data, &small_batch(12));
    let weights = |ranks: u32, images: u32, options: &str| -> Tensors {
        let options = format!("--iters 3 --batch-size {images} --loss-scale 128 {AT_ONCE} {options}");
        small(ranks, &data, &options).save().finish().weights()
    };
    for (model, dtype, tolerance) in
        [("mxnet-lenet", "fp32", 1e-5), ("mxnet-mlp", "fp32", 1e-5), ("mxnet-mlp", "fp16", 2e-3)]
    {
        let with = |ranks: u32, images: u32, options: &str| {
            let rate = 2f64.powi(-5) / f64::from(ranks);
            weights(ranks, images, &format!("--model {model} --dtype {dtype} --lr {rate} {options}"))
        };
        let start = weights(1, 12, &format!("--model {model} --lr 0"));
        let whole = with(1, 12, "");
        assert!(apart(&with(1, 4, ""), &whole, &start) > 0.05, "{model}: a part alone trains differently");
        for (ranks, images, options) in [
            (1, 12, "--accumulate 4"),
            (1, 12, "--accumulate 5"),
            (2, 6, "--accumulate 3"),
            (2, 6, "--accumulate 2 --overlap off --backend mpi"),
            (2, 6, "--accumulate 2 --work-load 3,1"),
        ] {
            let difference = apart(&with(ranks, images, options), &whole, &start);
            assert!(difference < tolerance, "{model}, {dtype}, {ranks} ranks, {options}: {difference}");
        }
        // Owners and servers of weights do not support fp16.
        for (processes, strategy) in [(2, "device"), (3, "dist_sync --servers 1")].iter().filter(|_| dtype == "fp32") {
            let rate = 2f64.powi(-6);
            let options = format!("--model {model} --lr {rate} --accumulate 2 --strategy {strategy}");
            let difference = apart(&weights(*processes, 6, &options), &whole, &start);
            assert!(difference < tolerance, "{model}, {strategy}: {difference}");
        }
    }
}

#[test]
fn accumulation_exchanges_once_per_batch() {
    // Four parts send as much as a single one, so that each image costs a quarter of the bytes.
    let run = |options: &str| {
        let options = format!("--model mxnet-mlp --image-size 28 --iters 4 --strategy dist_sync --servers 1 {options}");
        Run::ranks(3, &options).finish()
    };
    let [one, four] = ["--batch-size 8", "--batch-size 32 --accumulate 4"].map(|options| run(options).valid_record());
    let sent =
        |record: &RunRecord| record.end.as_ref().and_then(|end| end.strategy.clone()).expect("servers").sent_by_rank;
    let bytes = 4 * Model::MxnetMlp.facts().parameters;
    assert_eq!(sent(&one), sent(&four));
    assert!(sent(&four).iter().map(|sent| sent.0).max().expect("ranks") > bytes, "{:?}", sent(&four));
    assert_eq!((one.header.config.accumulate, four.header.config.accumulate), (1, 4));
    // A step has four forward and backward passes, which are one phase each.
    let phases = |record: &RunRecord| -> f64 {
        let iteration = record.iterations.last().expect("four");
        iteration.phases.iter().map(|(_, times)| times[0].0).sum::<f64>() / iteration.step[0].0
    };
    assert!((0.5..1.001).contains(&phases(&four)), "{}", phases(&four));

    // Every part updates the running statistics.
    let counted = |options: &str| {
        let options = format!("--model resnet18 --image-size 32 --batch-size 4 --iters 3 {options}");
        let run = Run::single_rank(&options).save().finish();
        run.weights()["bn1.num_batches_tracked"].to_integers()[0]
    };
    assert_eq!((counted(""), counted("--accumulate 2")), (3, 6));

    // The title of a table contains the number of parts.
    let folder = Folder::new();
    let mut parts = record("1n2g", 1, 0.5);
    parts.header.config.accumulate = 2;
    folder.run(&parts);
    let (_, stdout, stderr) = sandbox::run(ringmark("extract").arg(folder.path()).arg("--out").arg(folder.path()));
    assert!(stdout.contains(" per rank in 2 parts\n"), "{stdout}{stderr}");
}

#[test]
fn record_contains_shares_and_total_speed() {
    let finished =
        Run::ranks(2, "--model mxnet-mlp --image-size 28 --batch-size 16 --iters 4 --work-load 3,1").finish();
    let log = finished.stdout.clone();
    let record = finished.valid_record();
    assert_eq!(*division(&record), WorkDivision { weights: vec![3.0, 1.0], samples: vec![24, 8] });
    assert!(log.contains("\n# work load: 24, 8 images by rank (weights 3, 1)\n"), "{log}");
    let joined = global_losses(&record)[3];
    assert!(log.contains(&format!("\n# loss of the global batch in the last iteration: {joined:.6}\n")), "{log}");
    let loss = &record.iterations[3].loss;
    assert!((joined - (24.0 * loss[0] + 8.0 * loss[1]) / 32.0).abs() < 1e-9, "{joined} of {loss:?}");
    let steps: f64 = record.iterations.iter().flat_map(|one| &one.step).map(|step| step.0).sum::<f64>() / 2.0;
    let speed = record.speed(0).expect("iterations").0;
    assert!((speed / (4.0 * 32.0 / steps) - 1.0).abs() < 1e-9, "{speed}");

    // The sum of two numbers does not depend on the order, and a rank with an even share is not weighted.
    let same = |options: &str| {
        let options = format!("--model mxnet-mlp --image-size 28 --batch-size 16 --iters 4 {options}");
        Run::ranks(2, &options).finish().valid_record()
    };
    assert_eq!(checksum(&same("--work-load 3,1 --backend mpi --overlap off")), checksum(&record));
    let even = same("");
    assert_eq!(checksum(&same("--work-load 2,2")), checksum(&even));
    assert_ne!(checksum(&even), checksum(&record));
}

#[test]
fn auto_gives_the_slower_rank_less() {
    // A rank whose forward takes a hundred times as long: other ranks' waiting for a core compensates only part of
    // that.
    let options =
        "--model mxnet-lenet --image-size 28 --batch-size 64 --iters 4 --inject slow:0:10000 --work-load auto";
    let record = Run::ranks(2, options).finish().valid_record();
    let WorkDivision { weights, samples: images } = division(&record);
    assert_eq!(images.iter().sum::<u32>(), 128);
    assert!(2 * images[0] < images[1] && 2.0 * weights[0] < weights[1], "{images:?} of {weights:?}");
}

#[test]
fn invalid_work_load_is_rejected_with_a_reason() {
    let refused = |options: &str| Run::ranks(2, &format!("--model mxnet-mlp --image-size 28 {options}")).refusal(1);
    let errors = ["--batch-size 4 --work-load 100,1", "--work-load 3", "--work-load elsewhere=3"].map(refused);
    expect![[r#"
        the weights 100, 1 leave rank 1 on host HOST none of the 8 images (4 per rank): use a larger --batch-size, a larger weight in --work-load, or omit --work-load
        --work-load 3 has 1 weights for 2 ranks: use one per rank (3,1), one per host (a=3,b=1), or auto
        --work-load elsewhere=3 has no weight for host HOST (rank 0): add HOST=1"#]].assert_eq(&errors.join("\n"));
    let error = Run::single_rank("--work-load 3,zero").refusal(2);
    expect![[r#"
        error: invalid value '3,zero' for '--work-load <WEIGHTS>': "zero" is not a weight: use numbers above 0

        For more information, try '--help'.
    "#]]
    .assert_eq(&error);
    // A sweep fails before anything starts.
    let errors = [
        "--cases 1n1g,1n2g --work-load 3",
        "--cases 1n2g --batch-size 4 --work-load 100,1",
        "--suite ddp --work-load auto",
    ]
    .map(|options| {
        let (status, _, stderr) =
            run(&mut ringmark(&format!("sweep --hosts localhost:2 --device cpu --dry-run {options}")));
        assert_eq!(status, Some(2), "{stderr}");
        stderr
    });
    expect![[r#"
        error: --work-load 3 has 1 weights for 2 ranks: use one per rank (3,1), one per host (a=3,b=1), or auto
        error: the weights 100, 1 leave rank 1 none of the 8 images (4 per rank): use a larger --batch-size, a larger weight in --work-load, or omit --work-load
        error: --suite ddp gives all ranks the same work, as PyTorch does: omit --work-load
    "#]].assert_eq(&errors.concat());
}

/// Creates a record with 6 and 2 images on ranks of which the second takes four times as long per image.
fn uneven() -> RunRecord {
    let mut uneven = record("1n2g", 1, 0.5);
    uneven.header.config.work_load = Some("3,1".parse().expect("weights"));
    uneven.header.work_division = Some(WorkDivision { weights: vec![3.0, 1.0], samples: vec![6, 2] });
    for iteration in &mut uneven.iterations {
        iteration.phases[Phase::Forward] = vec![Seconds(0.060), Seconds(0.080)];
        iteration.phases[Phase::Backward] = vec![Seconds(0.120), Seconds(0.160)];
        iteration.phases[Phase::ExposedAllreduce] = vec![Seconds(0.080), Seconds(0.020)];
        iteration.loss = vec![2.0, 4.0];
    }
    uneven
}

#[test]
fn extract_prints_cost_of_the_division() {
    let folder = Folder::new();
    folder.run(&uneven());
    let mut alone = record("1n1g", 1, 0.5);
    alone.header.config.work_load = uneven().header.config.work_load;
    folder.run(&alone);
    let stdout = succeeds(ringmark("extract").arg(folder.path()).arg("--out").arg(folder.path()));
    // 30 and 120 ms per image: even parts of 4 take 480 ms, balanced parts 8 / (1 / 30 + 1 / 120) = 192 ms.
    let expected = "
case    images  per image  slowest  waited  even  balanced  saved  left
      per rank         ms       ms      ms    ms        ms      %     %
-----------------------------------------------------------------------
1n2g       6 2   30.0 120      240    30.0   480       192   50.0  20.0
";
    assert!(stdout.contains(expected), "{stdout}");
    assert!(stdout.contains("work load 3,1\n"), "{stdout}");
    let report = succeeds(ringmark("report").arg(folder.path()));
    let title = "Uneven work: effect of the batch division";
    assert!(report.contains(title) && report.contains("30.0 120"), "{report}");
    let text = std::fs::read_to_string(folder.path().join("first_result.json")).expect("written");
    let rows = rows_by_case(&serde_json::from_str(&text).expect("JSON"));
    let row = &rows["rn50"]["1n2g"];
    let cost = &row["work_load"];
    let expected = serde_json::json!([[6, 2], [0.03, 0.12]]);
    assert_eq!(cost["images"], expected[0]);
    let close = |value: &serde_json::Value, expected: f64| {
        assert!(value.as_f64().is_some_and(|value| (value - expected).abs() < 1e-9), "{value}, expected {expected}");
    };
    close(&cost["seconds_per_image"][1], 0.12);
    close(&cost["even_seconds"], 0.48);
    close(&cost["balanced_seconds"], 0.192);
    close(&cost["saved_of_even"], 0.5);
    close(&row["runs"][0]["last_loss"], 2.5);
    // One rank divides nothing.
    assert!(rows["rn50"]["1n1g"].get("work_load").is_none());

    // A record that contradicts itself is skipped, with the line number.
    for images in [vec![6, 3], vec![8], vec![8, 0]] {
        let broken = Folder::new();
        let mut record = uneven();
        record.header.work_division = Some(WorkDivision { weights: vec![3.0, 1.0], samples: images });
        broken.run(&record);
        let (_, _, stderr) = run(ringmark("extract").arg(broken.path()));
        assert!(stderr.contains("line 1") && stderr.contains("work_division has"), "{stderr}");
    }
}

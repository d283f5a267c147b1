//! Tests `ringmark-worker train --graphs` on virtual GPUs: results with and without CUDA graphs, exclusions and
//! fallbacks.

use std::fs;

use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::dimension::{GraphChoice, Phase};

use crate::support::images::photographs;
use crate::support::virtual_gpu::{RATE, SMALL, Virtual};
use crate::support::worker_run::{AT_ONCE, Run, checksum, losses};

/// Options of runs that need no time, for tests of messages.
const TINY: &str = "--layout nchw --model mxnet-lenet --image-size 28";

/// Iterations before the capture.
const EAGER: usize = 3;

/// Output of a successful run.
struct Trained {
    log: String,
    record: RunRecord,
    /// Number of kernels in each replay, on the GPU that wrote the list.
    replays: Vec<u32>,
}

/// Returns six iterations with the option `--graphs`, of which four warm up.
fn virtual_gpus(ranks: u32, graphs: &str, options: &str) -> Virtual {
    let warmup = if options.contains("--warmup") { "" } else { "--warmup 4" };
    let model = if options.contains("--model") { "" } else { SMALL };
    let options = format!("{model} {RATE} --iters 6 {warmup} {AT_ONCE} --graphs {graphs} {options}");
    Virtual::ranks(ranks, &options)
}

/// Asserts that the run is valid and free of races.
fn run_successfully(run: Virtual) -> Trained {
    let calls = run.path("calls");
    let (finished, reports) = run.set("CALLS", calls.display()).finish();
    assert!(!reports.is_empty() && reports.iter().all(|report| report.races == 0), "{}", finished.stderr);
    let log = finished.stdout.clone();
    let calls = fs::read_to_string(calls).unwrap_or_default();
    let count = |call: &str| call.strip_prefix("replay of ")?.split(' ').next()?.parse().ok();
    Trained { log, replays: calls.lines().filter_map(count).collect(), record: finished.valid_record() }
}

fn train(ranks: u32, graphs: &str, options: &str) -> Trained {
    run_successfully(virtual_gpus(ranks, graphs, options))
}

fn assert_same(actual: &Trained, expected: &Trained, what: &str) {
    let all = |trained: &Trained| -> Vec<Vec<f64>> {
        trained.record.iterations.iter().map(|iteration| iteration.loss.clone()).collect()
    };
    assert_eq!(all(actual), all(expected), "{what}");
    assert!(losses(&actual.record).windows(2).all(|pair| pair[0] != pair[1]), "{what}: {:?}", losses(&actual.record));
    assert_eq!(checksum(&actual.record), checksum(&expected.record), "{what}");
}

fn assert_uses_graphs(trained: &Trained, what: &str) {
    let header = &trained.record.header;
    assert_eq!((header.config.graphs, &header.no_graph), (GraphChoice::On, &None), "{what}: {}", trained.log);
    assert!(trained.log.contains("# graphs: forward and backward are replayed from the next iteration on"), "{what}");
}

#[test]
fn graphs_match_separate_launches() {
    for (ranks, options) in [
        (1, "--dtype bf16 --layout nhwc --kernels libtorch"),
        (1, "--dtype fp16 --layout nhwc --loss-scale 128"),
        (2, "--dtype tf32 --layout nhwc"),
        (2, "--layout nchw --model mxnet-lenet --image-size 28 --overlap off --bucket-mb 0.5"),
    ] {
        let (graphs, launches) = (train(ranks, "auto", options), train(ranks, "off", options));
        assert_same(&graphs, &launches, options);
        assert_uses_graphs(&graphs, options);
        assert_eq!(launches.record.header.config.graphs, GraphChoice::Off);
        for record in [&graphs.record, &launches.record] {
            assert!(record.iterations.iter().all(|iteration| !iteration.skipped), "{options}");
        }
        if ranks > 1 {
            continue;
        }
        // Forward and backward of each iteration after the capture.
        let iterations = graphs.record.iterations.len();
        assert_eq!((graphs.replays.len(), launches.replays.len()), (2 * (iterations - EAGER), 0), "{options}");
        assert!(graphs.replays.iter().all(|kernels| *kernels > 20), "{options}: {:?}", graphs.replays);
    }
}

#[test]
fn replay_phases_are_those_measurable_by_events() {
    let trained = train(2, "on", "--layout nchw");
    let (eager, replayed) = trained.record.iterations.split_at(EAGER);
    let forward_and_more = |iteration: &Iteration, rank: usize| {
        let ends_forward = iteration.phases[Phase::Input][rank].0 + iteration.phases[Phase::Forward][rank].0;
        (ends_forward, iteration.before_allreduce[rank].0)
    };
    for rank in 0..2 {
        for iteration in eager {
            let (forward, before) = forward_and_more(iteration, rank);
            assert!(before > forward, "{iteration:?}");
        }
        for iteration in replayed {
            let (forward, before) = forward_and_more(iteration, rank);
            assert!((before - forward).abs() < 1e-9 && before > 0.0, "{iteration:?}");
            assert_eq!(iteration.phases[Phase::ExposedAllreduce][rank].0, 0.0, "{iteration:?}");
            assert!(iteration.phases[Phase::Backward][rank].0 > forward, "{iteration:?}");
        }
    }
    assert!(trained.log.contains("backward's time includes the exchange, and exposed_allreduce is 0"));
}

#[test]
fn capture_memory_is_counted() {
    let peak = |graphs: &str| train(1, graphs, "--layout nchw").record.end.expect("an end").peak_memory[0].0 as f64;
    let (graphs, launches) = (peak("on"), peak("off"));
    assert!(graphs > 0.9 * launches, "{graphs} bytes, and {launches} without graphs");
}

#[test]
fn read_images_reach_the_graphs() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    let run = |graphs: &str| run_successfully(virtual_gpus(1, graphs, "--layout nchw").file("--data", &data));
    let (graphs, launches) = (run("on"), run("off"));
    assert_same(&graphs, &launches, "read images");
    assert_uses_graphs(&graphs, "read images");
    // Each iteration has other images.
    assert!(graphs.record.iterations.iter().all(|iteration| iteration.phases[Phase::Input][0].0 > 0.0));
}

#[test]
fn graphs_keep_results_of_epochs_and_resumed_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    let run = |graphs: &str, more: &str, name: &str| {
        let options = format!("--layout nchw --checkpoint-every 5 {more}");
        let checkpoint = folder.path().join(name);
        let run = virtual_gpus(1, graphs, &options).file("--checkpoint", &checkpoint).file("--data", &data);
        run.file("--validate", &data)
    };
    let (graphs, launches) = (
        run_successfully(run("on", "", "graphs")),
        run_successfully(run("off", "--checkpoint-mode async", "launches")),
    );
    assert_same(&graphs, &launches, "epochs");
    assert_uses_graphs(&graphs, "epochs");
    let validations = |trained: &Trained| -> Vec<Option<f64>> {
        let end = trained.record.end.as_ref().expect("an end");
        end.epochs.iter().map(|epoch| epoch.validation.as_ref().and_then(|validation| validation.loss)).collect()
    };
    // Five images in batches of two take three iterations.
    assert_eq!(validations(&graphs).len(), 2);
    assert_eq!(validations(&graphs), validations(&launches));

    // Starts at iteration 5; the warm-up is repeated before the capture.
    let resumed = run_successfully(run("on", "", "resumed").file("--from-checkpoint", &folder.path().join("launches")));
    assert_same(&resumed, &launches, "resumed");
    assert_uses_graphs(&resumed, "resumed");
    assert_eq!(resumed.replays.len(), 2);
}

#[test]
fn tuned_exchange_is_captured() {
    let options = format!("{TINY} --autotune");
    let trained = train(2, "on", &options);
    assert_uses_graphs(&trained, &options);
    assert!(trained.record.header.tuning.is_some());
    checksum(&trained.record);
}

#[test]
fn uncapturable_step_runs_kernel_by_kernel() {
    let off = |trained: &Trained, reason: &str| {
        let header = &trained.record.header;
        assert_eq!((header.config.graphs, trained.replays.len()), (GraphChoice::Off, 0), "{reason}");
        let recorded = header.no_graph.as_deref().unwrap_or_default();
        assert!(recorded.contains(reason), "{recorded}");
        assert!(trained.log.contains(&format!("graphs off: {recorded}")), "{}", trained.log);
    };
    for (ranks, options, reason) in [
        (1, "--warmup 3", "--warmup is 3, but a capture needs 4 warm-up iterations"),
        (1, "--profile-layers", "layers are traced, which a replay cannot do"),
        (1, "--inject slow:0:10", "--inject slow:0:10 changes a step"),
        (1, "--inject overflow:5 --dtype fp16 --loss-scale 128", "--inject overflow:5 changes a step"),
        (2, "--strategy device", "--strategy device cannot be captured, only all-reduce"),
        (2, "--backend mpi", "--backend mpi exchanges through the host"),
    ] {
        off(&train(ranks, "auto", &format!("{TINY} {options}")), reason);
    }
    let error = virtual_gpus(1, "on", &format!("{TINY} --warmup 3")).refused(2);
    assert!(error.contains("--graphs on: --warmup is 3, but a capture needs 4 warm-up iterations"), "{error}");
    let error = Run::single_rank(&format!("{TINY} --device cpu --graphs on --iters 6 --warmup 4")).refused(2);
    assert!(error.contains("--graphs on: CUDA graphs need a GPU"), "{error}");

    // Failed capture of forward, of backward, and of backward on one rank of two.
    let expected = [1, 2].map(|ranks| train(ranks, "off", TINY));
    for (ranks, settings, rank) in [
        (1, &[("BROKEN_CAPTURE", 1)][..], 0),
        (1, &[("BROKEN_CAPTURE", 2)], 0),
        (2, &[("BROKEN_CAPTURE", 2), ("FAULTY_DEVICE", 1)], 1),
    ] {
        let broken = |graphs| {
            let run = virtual_gpus(ranks, graphs, TINY);
            settings.iter().fold(run, |run, (name, value)| run.set(name, value))
        };
        let reason = format!("rank {rank} cannot capture a CUDA graph: libtorch: CUDA error");
        let trained = run_successfully(broken("auto"));
        off(&trained, &reason);
        assert_same(&trained, &expected[ranks as usize - 1], &reason);
        let error = broken("on").refused(1);
        assert!(error.contains(&format!("--graphs on: {reason}")), "{error}");
    }
}

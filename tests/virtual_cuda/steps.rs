//! `ringmark-worker --device cuda` on virtual GPUs: the unmodified worker with stand-ins for the driver, libtorch's
//! CUDA library and NCCL that need no GPU. Tests the order of streams and the results; `time` tests measurements,
//! `hosts` the launcher on several hosts. Speed, cuDNN, NCCL's algorithms and real drivers are not covered.

use std::fs;
use std::path::Path;

use ringmark_core::benchmark::exchange::Switch;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::{BackendName, DeviceKind};
use ringmark_core::host::processors;

use crate::support::built_worker;
use crate::support::images::photographs;
use crate::support::prerequisite::not_tested;
use crate::support::virtual_gpu::{
    RATE, SAME_KERNELS, SMALL, Virtual, assert_near, assert_near_for_a_seed, difference,
};
use crate::support::worker_run::{AT_ONCE, Run, apart, checksum, losses};

// --- computation
// ---------------------------------------------------------------------------------------------------

#[test]
fn flipped_bit_is_found_on_gpus() {
    for (more, expected) in [("", None), ("--inject flip:3:1:20", Some((3, vec![1])))] {
        let run = Virtual::ranks(3, &format!("{SMALL} --iters 4 --fingerprint --overlap off {more}"));
        let (finished, reports) = run.finish();
        assert!(reports.iter().all(|report| report.races == 0), "{reports:?}");
        let fingerprints = finished.valid_record().end.expect("an end").fingerprints.expect("recorded");
        assert_eq!((fingerprints.gradients.len(), fingerprints.weights.len()), (4, 4));
        assert_ne!(fingerprints.weights[0], fingerprints.weights[1]);
        let difference = fingerprints.difference.map(|difference| (difference.iteration, difference.ranks));
        assert_eq!(difference, expected, "{more}");
    }
}

#[test]
fn virtual_gpus_match_cpus() {
    let cpu = |ranks, options: &str| {
        let run = Run::ranks(ranks, &format!("--device cpu {options}"));
        run.variable(SAME_KERNELS.0, SAME_KERNELS.1).save().finish()
    };
    // With nhwc the CPU's batch normalization is not libtorch's.
    for (ranks, more) in [(1, "--layout nchw"), (2, "--layout nchw"), (2, "--overlap off"), (4, "--bucket-mb 4")] {
        let frozen = if more.contains("nchw") { "" } else { "--freeze-batch-norm --layout nhwc" };
        let options = format!("{SMALL} {RATE} --iters 3 --batch-size 4 {AT_ONCE} {frozen} {more}");
        let is_near = |seed| {
            let options = format!("{options} --seed {seed}");
            let start = cpu(1, &format!("{SMALL} --iters 1 --lr 0 {AT_ONCE} --seed {seed}")).weights();
            let expected = cpu(ranks, &options);
            let actual = Virtual::ranks(ranks, &options).variable(SAME_KERNELS.0, SAME_KERNELS.1);
            let (actual, reports) = actual.save().finish();
            let distance = apart(&actual.weights(), &expected.weights(), &start);
            let (actual, expected) = (actual.valid_record(), expected.valid_record());
            // Panics if the ranks' weights differ.
            checksum(&actual);
            assert_eq!(actual.header.backend, if ranks == 1 { BackendName::Solo } else { BackendName::Nccl });
            assert!(
                actual.header.ranks.iter().all(|rank| rank.device == DeviceKind::Cuda),
                "{:?}",
                actual.header.ranks
            );
            let mut devices: Vec<u64> = reports.iter().map(|report| report.device).collect();
            devices.sort_unstable();
            assert_eq!(devices, (0..u64::from(ranks)).collect::<Vec<_>>());
            assert!(reports.iter().all(|report| report.races == 0), "{reports:?}");
            distance <= 1e-5 && difference(&actual, &expected) <= 1e-5
        };
        assert_near_for_a_seed(is_near, &format!("{ranks} ranks, {more}"));
    }
}

/// Parts, recomputation, a limited norm and sharded weights of language models: weights, order of streams, and memory.
#[test]
fn language_models_match_cpus() {
    for model in ["gpt2-tiny", "llama-tiny"] {
        let options = format!("--model {model} --sequence-length 32 --batch-size 4 --iters 3 --warmup 1 {AT_ONCE}");
        let start = Run::ranks(1, &format!("--device cpu {options} --lr 0")).save().finish().weights();
        for (ranks, more) in [
            (1, "--micro-batch 2"),
            (2, "--clip-norm 0.5 --recompute block"),
            (2, "--bucket-mb 1 --strategy fsdp"),
            (2, "--bucket-mb 1 --strategy fsdp --recompute block"),
        ] {
            let options = format!("{options} --lr 0.05 {more}");
            let expected = Run::ranks(ranks, &format!("--device cpu {options}")).save().finish();
            let (actual, reports) = Virtual::ranks(ranks, &options).save().finish();
            assert!(reports.iter().all(|report| report.races == 0), "{model} {more}: {reports:?}\n{}", actual.stderr);
            let distance = apart(&actual.weights(), &expected.weights(), &start);
            assert!(distance <= 1e-4, "{model} {more}: {distance}");
            let end = actual.valid_record().end.expect("an end");
            let is_repeated = more.contains("recompute");
            assert_eq!(end.recompute.len(), if is_repeated { ranks as usize } else { 0 }, "{more}");
            assert!(end.recompute.iter().all(|time| time.0 > 0.0), "{:?}", end.recompute);
        }
    }
    let peak = |recompute: &str| {
        let options =
            format!("--model llama-tiny --sequence-length 128 --batch-size 8 --iters 2 --recompute {recompute}");
        Virtual::ranks(1, &options).valid_record().end.expect("an end").peak_memory[0].0
    };
    let [kept, recomputed] = ["none", "block"].map(peak);
    assert!(recomputed < kept * 3 / 4, "{recomputed} of {kept} bytes");
}

/// Compares the weights of `ranks` with a strategy on virtual GPUs with those on CPUs.
fn assert_near_with(strategy: &str, ranks: u32, servers: u32, tolerance: f64) {
    let is_near = |seed| {
        let start =
            Run::single_rank(&format!("{SMALL} --iters 1 --lr 0 {AT_ONCE} --seed {seed}")).save().finish().weights();
        let options = format!("{} --seed {seed}", with_strategy(strategy));
        let expected = Run::ranks(ranks + servers, &options).save().finish().weights();
        let (actual, reports) = Virtual::ranks(ranks + servers, &options).save().finish();
        let distance = apart(&actual.weights(), &expected, &start);
        let is_clean = reports.len() >= ranks as usize && reports.iter().all(|report| report.races == 0);
        assert!(is_clean, "{reports:?}\n{}", actual.stderr);
        actual.valid_record();
        distance <= tolerance
    };
    assert_near_for_a_seed(is_near, strategy);
}

fn with_strategy(strategy: &str) -> String {
    format!("{SMALL} {RATE} --iters 3 --batch-size 4 {AT_ONCE} --freeze-batch-norm --layout nchw --strategy {strategy}")
}

/// Gradients are copied on a separate stream, by threads bound to their rank's GPU.
#[test]
fn virtual_gpus_match_cpus_with_a_server() {
    assert_near_with("dist_sync --servers 1", 2, 1, 1e-5);
    // A single rank is in step with itself.
    assert_near_with("dist_async --servers 1", 1, 1, 1e-5);
    Virtual::ranks(3, &with_strategy("dist_async --servers 1")).valid_record();
}

/// Servers return weights, or sums with which a rank updates on its GPU. Two ranks of a host send two codes on GPUs,
/// and one code of their sum on CPUs.
#[test]
fn virtual_gpus_push_the_same_codes_as_cpus() {
    assert_near_with("dist_sync --servers 1 --gradient-compression topk:1", 1, 1, 1e-5);
    // Rounding determines if a gradient at the threshold is sent.
    assert_near_with("dist_sync --servers 1 --gradient-compression 2bit:0.001", 1, 1, 0.02);
    let record =
        Virtual::ranks(3, &with_strategy("dist_sync --servers 1 --gradient-compression 2bit:0.001")).valid_record();
    checksum(&record);
    let used = record.end.expect("an end").compression.expect("codes");
    assert!(used.residual_norm.iter().all(|norm| *norm > 0.0), "{used:?}");
}

/// One owner for each bucket, rank 0 for all buckets, and one shard in host memory for each rank.
#[test]
fn sharded_updates_match_cpus() {
    ["zero1", "zero2", "fsdp --bucket-mb 1", "hsdp", "device", "nccl", "local"]
        .into_iter()
        .for_each(|strategy| assert_near_with(strategy, 2, 0, 1e-5));
}

/// The installed worker, which is optimized and built separately from that of the tests.
#[test]
fn release_worker_matches_test_worker() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release/ringmark-worker");
    if let Err(error) = built_worker::check(&program) {
        not_tested(&format!("{error}: cargo build --release"));
        return;
    }
    let run = || Virtual::ranks(2, &format!("{SMALL} {RATE} --iters 3 --batch-size 4 {AT_ONCE}"));
    let release = run();
    let release = Virtual { run: release.run.program(&program), ..release }.valid_record();
    assert_eq!(checksum(&release), checksum(&run().valid_record()));
}

#[test]
fn overflow_skips_one_step_on_all_ranks() {
    let options = format!("{SMALL} {RATE} --dtype fp16 --loss-scale 128 --iters 4 --batch-size 4 {AT_ONCE}");
    let record = Virtual::ranks(2, &format!("{options} --inject overflow:2")).valid_record();
    let skipped: Vec<bool> = record.iterations.iter().map(|iteration| iteration.skipped).collect();
    assert_eq!(skipped, [false, true, false, false]);
    let scales: Vec<f64> = record.iterations.iter().map(|iteration| iteration.loss_scale).collect();
    assert_eq!(scales, [128.0, 128.0, 64.0, 64.0]);
    // No weight changed.
    assert_eq!(record.iterations[2].loss, record.iterations[1].loss);
    assert_ne!(record.iterations[3].loss, record.iterations[2].loss);
    checksum(&record);

    let exact = Virtual::ranks(2, &format!("{SMALL} {RATE} --iters 1 --batch-size 4 {AT_ONCE}")).valid_record();
    assert_near(record.iterations[0].loss[0], exact.iterations[0].loss[0], 0.01, "loss of fp16");
}

/// The loss scale and its history are on the device; rank 1 receives them from rank 0, which alone reads the file.
#[test]
fn resumed_run_on_virtual_gpus_is_bit_identical() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = folder.path().join("checkpoint.safetensors");
    let options = format!(
        "{SMALL} {RATE} --dtype fp16 --kernels libtorch --loss-scale 128 --iters 5 --warmup 2 --batch-size 4 {AT_ONCE}"
    );
    let run = |more: &str| {
        Virtual::ranks(2, &format!("{options} --checkpoint-every 3 {more}")).file("--checkpoint", &checkpoint)
    };
    let whole = run("--inject overflow:2").valid_record();
    let resumed = run("").file("--from-checkpoint", &checkpoint).valid_record();
    assert_eq!((resumed.header.iterations_before(), losses(&resumed)), (3, losses(&whole)));
    assert_eq!(checksum(&resumed), checksum(&whole));
    assert_eq!(resumed.iterations[4].loss_scale, 64.0);
    let warnings = &resumed.end.as_ref().expect("an end").warnings;
    assert!(warnings.iter().all(|warning| warning.kind != WarningKind::Resumed), "{warnings:?}");
}

// --- order
// --------------------------------------------------------------------------------------------------------------

/// Gathers and sums share a stream; places are used again only behind the waits.
#[test]
fn every_wait_of_sharded_weights_is_needed() {
    let options = format!("{SMALL} {RATE} --iters 2 --freeze-batch-norm --bucket-mb 16 {AT_ONCE} --strategy fsdp");
    let run = || Virtual::ranks(2, &options);
    let (finished, reports) = run().finish();
    assert!(reports.len() == 2 && reports.iter().all(|report| report.races == 0), "{}", finished.stderr);
    for ignored in 1..=reports[0].waits / 2 {
        let (_, reports) = run().set("IGNORED_WAIT", ignored).finish();
        assert!(reports.iter().any(|report| report.races > 0), "wait {ignored} can be left out");
    }
}

#[test]
fn missing_stream_wait_is_detected_as_race() {
    let options = format!("{SMALL} {RATE} --iters 2 --freeze-batch-norm {AT_ONCE}");
    for more in ["--overlap on", "--overlap off", "--dtype fp16 --loss-scale 128 --wire fp16 --kernels libtorch"] {
        let run = || Virtual::single_rank(&format!("{options} {more}"));
        let (finished, reports) = run().finish();
        assert_eq!((reports.len(), reports[0].races), (1, 0), "{}", finished.stderr);
        let buckets = finished.valid_record().header.buckets.len() as u64;
        // The all-reduce stream waits once for every bucket, the optimizer's stream once.
        let waits = buckets + 1;
        assert_eq!(reports[0].waits, 2 * waits, "{more}");

        // Without overlap the wait of the first all-reduce covers all of backward.
        let needed: Vec<u64> =
            (1..=waits).filter(|wait| more != "--overlap off" || [1, waits].contains(wait)).collect();
        for ignored in needed {
            let (finished, reports) = run().set("IGNORED_WAIT", ignored).finish();
            assert!(reports[0].races > 0, "{more}: wait {ignored} of {waits} can be left out");
            let message = finished.stderr.lines().find(|line| line.starts_with("virtual CUDA: race on device 0"));
            let message = message.unwrap_or_else(|| panic!("{}", finished.stderr));
            let (later, earlier) = match (ignored == waits, more.contains("wire fp16")) {
                (true, true) => ("aten::copy_ on stream 0", "by ncclAllReduce on stream 1"),
                (true, false) => ("aten::_fused_sgd_ on stream 0", "by ncclAllReduce on stream 1"),
                _ => ("ncclAllReduce on stream 1", "by aten::_foreach_copy_ on stream 0"),
            };
            assert!(message.contains(later) && message.contains(earlier), "{more}, wait {ignored}: {message}");
        }
    }
}

/// A step's pixels are copied on a separate stream: after the readers of the pixels of two steps ago, and before
/// their own readers. No copy makes the host wait for the device.
#[test]
fn images_reach_virtual_gpus_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    let options = format!("{SMALL} {RATE} --iters 4 --batch-size 2 --layout nchw {AT_ONCE}");
    let run = || Virtual::single_rank(&options).file("--data", &data);
    let is_near = |seed: u32| {
        let on_gpu = Virtual::single_rank(&format!("{options} --seed {seed}")).file("--data", &data).valid_record();
        // The rank's share of the cores, regardless of `--threads`: the GPU computes.
        let cores = processors::cores();
        assert_eq!(on_gpu.end.as_ref().and_then(|end| end.input.as_ref()).expect("images").ranks[0].threads, cores);
        let on_cpu =
            Run::single_rank(&format!("{options} --seed {seed}")).file("--data", &data).finish().valid_record();
        difference(&on_gpu, &on_cpu) <= 1e-5
    };
    assert_near_for_a_seed(is_near, "images that are read");
    let (finished, reports) = run().finish();
    assert_eq!(reports[0].races, 0, "{}", finished.stderr);
    let (finished, of_one_batch) = Virtual::single_rank(&options).finish();
    // Mean and deviation, before the first step.
    assert_eq!(reports[0].synchronizations, of_one_batch[0].synchronizations + 2, "{}", finished.stderr);

    let of_sums = of_one_batch[0].waits / 4;
    assert_eq!(reports[0].waits, 4 * (of_sums + 2));
    // The compute stream waits for the first copy; the fourth copy waits for the second step.
    for (ignored, later, earlier) in [
        (2, "aten::copy_ on stream 0 reads", "by aten::copy_ on stream 2"),
        (3 * (of_sums + 2) + 1, "aten::copy_ on stream 2 writes", "by aten::copy_ on stream 0"),
    ] {
        let (finished, reports) = run().set("IGNORED_WAIT", ignored).set("QUERIES_ORDER", 0).finish();
        assert!(reports[0].races > 0, "wait {ignored} can be left out");
        let message = finished.stderr.lines().find(|line| line.starts_with("virtual CUDA: race on device 0"));
        let message = message.unwrap_or_else(|| panic!("{}", finished.stderr));
        assert!(message.contains(later) && message.contains(earlier), "wait {ignored}: {message}");
    }
}

#[test]
fn loss_is_not_read_before_the_device_is_done() {
    let run = || Virtual::single_rank(&format!("{SMALL} {RATE} --iters 1 {AT_ONCE}"));
    // Regardless of the device's delay.
    let patient = run().set("LATE_ANSWERS", 5).valid_record();
    assert!(patient.iterations.iter().all(|iteration| iteration.loss[0].is_finite()));
    // A host that does not check for completion.
    let (hasty, _) = run().set("EARLY_ANSWERS", 1).finish();
    assert!(hasty.stderr.contains("the loss of rank 0 is NaN in iteration 1"), "{}", hasty.stderr);
}

// --- calls
// --------------------------------------------------------------------------------------------------------------

/// Returns the calls of a step, without the kernels of forward and backward. Checks that each wait is for the last
/// event recorded on the other stream.
fn calls(options: &str) -> (Vec<String>, RunRecord) {
    let run = Virtual::single_rank(&format!("{SMALL} --iters 1 {AT_ONCE} {options}"));
    let file = run.run.path("calls");
    let (finished, reports) = run.set("CALLS", file.display()).finish();
    assert_eq!(reports[0].races, 0, "{}", finished.stderr);
    let text = fs::read_to_string(&file).expect("calls");
    let mut recorded = String::new();
    let mut calls = Vec::new();
    let from_the_first_mark = text.lines().skip_while(|line| !line.starts_with("record time"));
    for line in from_the_first_mark {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields[..] {
            ["record", "time", _, "on", "stream", stream] => calls.push(format!("time on {stream}")),
            ["record", "event", number, "on", "stream", stream] => {
                recorded = number.to_owned();
                calls.push(format!("event on {stream}"));
            }
            ["stream", stream, "waits", "for", "event", number] => {
                assert_eq!(number, recorded, "{text}");
                calls.push(format!("{stream} waits"));
            }
            ["sum", elements, "elements", "of", "type", element, ..] => calls.push(format!("{elements} of {element}")),
            ["ncclAllReduce" | "aten::_foreach_copy_" | "aten::_fused_sgd_" | "copy", ..] | ["abort"] => {
                calls.push(fields[0].trim_start_matches("aten::").to_owned());
            }
            // Kernels of the network, and conversions after the all-reduce.
            _ => {}
        }
    }
    (calls, finished.valid_record())
}

/// Returns the calls for an all-reduce of `bytes` of fp32, in elements of NCCL's type.
fn sum(bytes: u64, element: u32) -> Vec<String> {
    let elements = format!("{} of {element}", bytes / 4);
    ["event on 0", "1 waits", &elements, "ncclAllReduce", "event on 1"].map(str::to_owned).to_vec()
}

#[test]
fn step_makes_exactly_the_expected_calls() {
    const FLOAT: u32 = 7;
    const HALF: u32 = 6;
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    for (options, element, copies) in [
        ("--overlap on", FLOAT, 1),
        ("--overlap on --bucket-mb 5 --tail-mb 0", FLOAT, 1),
        ("--overlap on --wire fp16", HALF, 1),
        // Weights of convolutions have gradients in half precision, those of normalizations in fp32.
        ("--overlap on --dtype fp16 --loss-scale 128", FLOAT, 2),
        ("--overlap off", FLOAT, 1),
        ("--overlap off --wire fp16", HALF, 1),
    ] {
        let (actual, record) = calls(options);
        let buckets: Vec<u64> = record.header.buckets.iter().map(|bytes| bytes.0).collect();
        let copied = || texts(&vec!["_foreach_copy_"; copies]);
        // Start and end of forward.
        let mut expected = texts(&["time on 0", "time on 0"]);
        if options.contains("--overlap on") {
            for (number, bytes) in buckets.iter().enumerate() {
                expected.extend(copied());
                // Time just before the first all-reduce.
                expected.extend(texts(&["time on 0"]).into_iter().filter(|_| number == 0));
                expected.extend(sum(*bytes, element));
            }
            expected.extend(texts(&["time on 0"]));
        } else {
            expected.extend(buckets.iter().flat_map(|_| copied()));
            expected.extend(texts(&["time on 0"]));
            expected.extend(buckets.iter().flat_map(|bytes| sum(*bytes, element)));
        }
        let end = ["event on 1", "0 waits", "time on 0", "_fused_sgd_", "time on 0", "copy", "time on 0"];
        expected.extend(texts(&end));
        assert_eq!(actual[..expected.len().min(actual.len())], expected, "{options}");
    }
}

#[test]
fn nccl_errors_end_the_run_with_nccl_message() {
    let run = Virtual::single_rank(&format!("{SMALL} --iters 50 {AT_ONCE}")).set("FAILING_SUM", 3);
    let (finished, _) = run.finish();
    let message = "a sum in flight: remote process exited or there was a network error: a rank closed its connection";
    assert!(finished.stderr.contains(message), "{}", finished.stderr);
    assert!(finished.record.is_none_or(|record| record.end.is_none()), "it counts");
}

#[test]
fn thermally_throttled_gpu_is_named() {
    let record = Virtual::ranks(2, &format!("{SMALL} --iters 2 {AT_ONCE}"))
        .set("FAULTY_DEVICE", 1)
        .set("CLOCK_MHZ", 1200)
        .set("CLOCK_REASONS", "0x0000000000000040")
        .valid_record();
    let environment = &record.header.environment;
    assert_eq!(environment.driver_version.as_deref(), Some("580.95.05"));
    assert!(environment.topology[1].starts_with("GPU0") && environment.topology.len() == 9, "{environment:?}");
    let end = record.end.expect("an end");
    let clocks = end.rank_use.iter().map(|rank| rank.gpu.as_ref().expect("seen").clock_mhz);
    assert_eq!(clocks.collect::<Vec<_>>(), [[1980.0; 2], [1200.0; 2]]);
    let heat: Vec<&str> =
        end.warnings.iter().filter(|it| it.kind == WarningKind::Heat).map(|it| it.text.as_str()).collect();
    assert!(heat.len() == 1 && heat[0].contains("rank 1 on host "), "{:?}", end.warnings);
}

// --- rejected options
// ----------------------------------------------------------------------------------------------------

#[test]
fn too_few_gpus_are_rejected() {
    let refused = |ranks, name: &str, value: &str| {
        Virtual::ranks(ranks, "--model resnet18 --iters 1").run.variable(name, value).refused(1)
    };
    let error = refused(2, "VIRTUAL_CUDA_DEVICES", "1");
    assert!(error.contains("has 1 GPUs, but 2 ranks were started on it: start at most one rank per GPU"), "{error}");
    let error = refused(1, "VIRTUAL_CUDA_DEVICES", "0");
    assert!(error.contains("cannot use --device cuda"), "{error}");
    // A launcher that shows the same GPU to all ranks: NCCL's own error.
    let error = refused(2, "CUDA_VISIBLE_DEVICES", "3");
    assert!(error.contains("Duplicate GPU detected"), "{error}");
}

#[test]
fn hierarchical_is_rejected_if_auto_selects_a_gpu() {
    let run = |options: &str| Virtual::new(Run::ranks(2, &format!("{SMALL} --iters 1 --device auto {options}")));
    let error = run("--hierarchical on").run.refused(1);
    assert!(error.contains("--hierarchical on does not apply to NCCL"), "{error}");
    let header = run("--hierarchical off").valid_record().header;
    assert_eq!((header.backend, header.config.exchange.hierarchical), (BackendName::Nccl, Some(Switch::Off)));
    assert_eq!(run("").valid_record().header.config.exchange.hierarchical, None, "NCCL decides");
}

#[test]
fn out_of_memory_batch_is_reported() {
    let run = Virtual::ranks(2, &format!("{SMALL} --batch-size 8 --iters 2")).set("MEMORY_MIB", 150);
    let stderr = run.finish().0.stderr;
    assert!(stderr.contains(" on host ") && stderr.contains(": out of memory: 0."), "{stderr}");
    assert!(stderr.contains(" of 0.2 GB in use, "), "{stderr}");
    assert!(stderr.contains(" more requested: use a smaller --batch-size"), "{stderr}");
}

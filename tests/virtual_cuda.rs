//! `ringmark-worker --device cuda` on virtual GPUs: the worker as it is, with a driver, a CUDA half of libtorch and an
//! NCCL of our own ([`libraries`]) that need no GPU. Whether its streams are in order, what it measures where every time
//! is known beforehand, what it makes the host wait for. Not for speed, cuDNN, NCCL's algorithms or drivers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ringmark_record::benchmark::Record;
use ringmark_record::benchmark::train::record::RunRecord;
use ringmark_record::dimension::device::DeviceKind;
use ringmark_record::dimension::phase::Phase;
use serde_json::Value;

use crate::cluster::{Cluster, host, succeed};
use crate::sandbox::{run, words};
use crate::worker::{AT_ONCE, Finished, Run, apart, checksum};
use crate::{turn, worker};

/// A network, and images that leave batch normalization more than two values a channel.
const SMALL: &str = "--model resnet18 --image-size 64";

/// What its weights move by.
const RATE: &str = "--lr 0.001";

/// What a kernel takes in the tests that know all times.
const KERNEL_NS: u64 = 1000;

/// libcuda.so.1, libtorch_cuda.so and libnccl.so.2 in one folder, built once.
pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("virtual_cuda");
        let mut build = Command::new(root.join("tests/virtual_cuda/build.sh"));
        let output = build.arg(root.join(".libtorch/torch")).arg(&folder).output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    })
}

/// A run on virtual GPUs.
struct Virtual {
    run: Run,
    report: PathBuf,
}

/// What one rank's virtual GPU saw.
#[derive(Debug)]
struct Report {
    device: u64,
    waits: u64,
    synchronizations: u64,
    races: u64,
    peak_resident_kb: u64,
}

impl Virtual {
    fn new(run: Run) -> Virtual {
        let report = run.path("report.jsonl");
        let run = run.variable("LD_LIBRARY_PATH", libraries()).variable("VIRTUAL_CUDA_REPORT", &report);
        Virtual { run, report }
    }

    fn ranks(ranks: u32, options: &str) -> Virtual {
        Virtual::new(Run::ranks(ranks, &format!("--device cuda {options}")))
    }

    /// One rank, with NCCL.
    fn alone(options: &str) -> Virtual {
        Virtual::new(Run::alone(&format!("--device cuda --backend nccl {options}")))
    }

    fn set(self, name: &str, value: impl ToString) -> Virtual {
        let run = self.run.variable(&format!("VIRTUAL_CUDA_{name}"), value.to_string());
        Virtual { run, ..self }
    }

    fn save(self) -> Virtual {
        Virtual { run: self.run.save(), ..self }
    }

    /// What the run left, and a report of every rank.
    fn finish(self) -> (Finished, Vec<Report>) {
        let finished = self.run.finish();
        let text = fs::read_to_string(&self.report).unwrap_or_default();
        (finished, text.lines().map(Report::parse).collect())
    }

    /// The record of a run that is sound, and in which nothing raced.
    fn sound(self) -> RunRecord {
        let (finished, reports) = self.finish();
        assert!(!reports.is_empty() && reports.iter().all(|report| report.races == 0), "{}", finished.stderr);
        finished.sound()
    }
}

impl Report {
    fn parse(line: &str) -> Report {
        let values: Value = serde_json::from_str(line).expect("JSON");
        let number = |name: &str| values[name].as_u64().expect("a number");
        Report {
            device: number("device"),
            waits: number("waits"),
            synchronizations: number("synchronizations"),
            races: number("races"),
            peak_resident_kb: number("peak_resident_kb"),
        }
    }
}

fn assert_near(actual: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((actual - expected).abs() <= tolerance * expected.abs(), "{what}: {actual}, not {expected}");
}

// --- what it computes ---------------------------------------------------------------------------------------------------

#[test]
fn virtual_gpus_compute_what_cpus_compute() {
    let cpu = |ranks, options: &str| Run::ranks(ranks, &format!("--device cpu {options}")).save().finish();
    let start = cpu(1, &format!("{SMALL} --iters 1 --lr 0 {AT_ONCE}")).weights();
    // In nhwc the CPU's batch normalization is not libtorch's, and rounding decides on which side of ReLU's corner values
    // fall.
    for (ranks, more) in
        [(1, "--layout nchw"), (2, "--layout nchw"), (2, "--overlap off"), (4, ""), (8, "--bucket-mb 4")]
    {
        let frozen = if more.contains("nchw") { "" } else { "--freeze-batch-norm --layout nhwc" };
        let options = format!("{SMALL} {RATE} --iters 3 --batch-size 4 {AT_ONCE} {frozen} {more}");
        let expected = cpu(ranks, &options);
        let (actual, reports) = Virtual::ranks(ranks, &options).save().finish();

        let distance = apart(&actual.weights(), &expected.weights(), &start);
        assert!(distance <= 1e-5, "{ranks} ranks, {more}: {distance}");
        let (actual, expected) = (actual.sound(), expected.sound());
        for (actual, expected) in actual.iterations.iter().zip(&expected.iterations) {
            for (actual, expected) in actual.loss.iter().zip(&expected.loss) {
                assert_near(*actual, *expected, 1e-5, "loss");
            }
        }
        // Panics where the ranks' weights are not equal.
        checksum(&actual);
        assert_eq!(actual.header.backend, if ranks == 1 { "solo" } else { "nccl" });
        assert!(actual.header.ranks.iter().all(|rank| rank.device == DeviceKind::Cuda), "{:?}", actual.header.ranks);
        let mut devices: Vec<u64> = reports.iter().map(|report| report.device).collect();
        devices.sort_unstable();
        assert_eq!(devices, (0..u64::from(ranks)).collect::<Vec<_>>());
        assert!(reports.iter().all(|report| report.races == 0), "{reports:?}");
    }
}

#[test]
fn an_overflow_on_virtual_gpus_skips_exactly_one_step_on_all_ranks() {
    let options = format!("{SMALL} {RATE} --dtype fp16 --loss-scale 128 --iters 4 --batch-size 4 {AT_ONCE}");
    let record = Virtual::ranks(2, &format!("{options} --inject overflow:2")).sound();
    let skipped: Vec<bool> = record.iterations.iter().map(|iteration| iteration.skipped).collect();
    assert_eq!(skipped, [false, true, false, false]);
    let scales: Vec<f64> = record.iterations.iter().map(|iteration| iteration.loss_scale).collect();
    assert_eq!(scales, [128.0, 128.0, 64.0, 64.0]);
    // No weight moved.
    assert_eq!(record.iterations[2].loss, record.iterations[1].loss);
    assert_ne!(record.iterations[3].loss, record.iterations[2].loss);
    checksum(&record);

    let exact = Virtual::ranks(2, &format!("{SMALL} {RATE} --iters 1 --batch-size 4 {AT_ONCE}")).sound();
    assert_near(record.iterations[0].loss[0], exact.iterations[0].loss[0], 0.01, "loss of fp16");
}

// --- order --------------------------------------------------------------------------------------------------------------

#[test]
fn every_wait_between_streams_is_needed_and_its_absence_is_found() {
    let options = format!("{SMALL} {RATE} --iters 2 --freeze-batch-norm {AT_ONCE}");
    for more in ["--overlap on", "--overlap off", "--dtype fp16 --loss-scale 128 --wire fp16"] {
        let run = || Virtual::alone(&format!("{options} {more}"));
        let (finished, reports) = run().finish();
        assert_eq!((reports.len(), reports[0].races), (1, 0), "{}", finished.stderr);
        let buckets = finished.sound().header.buckets.len() as u64;
        // The sums' stream for every bucket, the optimizer's stream once.
        let waits = buckets + 1;
        assert_eq!(reports[0].waits, 2 * waits, "{more}");

        // Without overlap the first sum's wait is for all of backward.
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

#[test]
fn a_host_that_reads_before_the_device_is_done_reads_no_loss() {
    let run = || Virtual::alone(&format!("{SMALL} {RATE} --iters 1 {AT_ONCE}"));
    // However late the device is.
    let patient = run().set("LATE_ANSWERS", 5).sound();
    assert!(patient.iterations.iter().all(|iteration| iteration.loss[0].is_finite()));
    // As a host would that does not ask.
    let (hasty, _) = run().set("EARLY_ANSWERS", 1).finish();
    assert!(hasty.stderr.contains("the loss of rank 0 is NaN in iteration 1"), "{}", hasty.stderr);
}

// --- calls --------------------------------------------------------------------------------------------------------------

/// What a run's step enqueues and orders, without the kernels of forward and backward. A wait is for what was recorded last
/// in the other stream.
fn calls(options: &str) -> (Vec<String>, RunRecord) {
    let run = Virtual::alone(&format!("{SMALL} --iters 1 {AT_ONCE} {options}"));
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
            // Kernels of the network, and the sums' way from the wire.
            _ => {}
        }
    }
    (calls, finished.sound())
}

/// Bytes of fp32 in elements of NCCL's type.
fn sum(bytes: u64, element: u32) -> Vec<String> {
    let elements = format!("{} of {element}", bytes / 4);
    ["event on 0", "1 waits", &elements, "ncclAllReduce", "event on 1"].map(str::to_owned).to_vec()
}

#[test]
fn a_step_makes_these_calls_and_no_others() {
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
        // Start, end of forward.
        let mut expected = texts(&["time on 0", "time on 0"]);
        if options.contains("--overlap on") {
            for (number, bytes) in buckets.iter().enumerate() {
                expected.extend(copied());
                // When the first sum was about to start.
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
fn what_nccl_finds_by_itself_ends_the_run_in_its_words() {
    let run = Virtual::alone(&format!("{SMALL} --iters 50 {AT_ONCE}")).set("FAILING_SUM", 3);
    let (finished, _) = run.finish();
    let message = "a sum in flight: remote process exited or there was a network error: rank 1 closed its connection";
    assert!(finished.stderr.contains(message), "{}", finished.stderr);
    assert!(finished.record.is_none_or(|record| record.end.is_none()), "it counts");
}

// --- time ---------------------------------------------------------------------------------------------------------------

#[test]
fn phases_are_those_worked_out_by_hand() {
    // ResNet-18: 20 convolutions and normalizations, 17 ReLUs, 8 sums with a shortcut, maximum and mean of pixels, the
    // linear layer, logarithm of softmax, loss.
    let forward = 20 + 20 + 17 + 8 + 2 + 1 + 2;
    // One each, but none for a sum; the linear layer has three gradients; the loss's own is filled with 1; at every
    // shortcut two gradients meet; every bucket's gradients are copied by one kernel.
    let backward = |buckets: usize| 20 + 20 + 17 + 2 + 3 + 2 + 1 + 8 + buckets as u64;
    // Before the last gradient is there the first bucket is on the wire, and ends long before or long after.
    let slow = ("100", "0.1");
    let fast = ("500", "0");
    for (overlap, (wire_ns, wire_ns_per_byte)) in [("off", slow), ("off", fast), ("on", slow), ("on", fast)] {
        let record =
            Virtual::ranks(2, &format!("{SMALL} {RATE} --layout nchw --iters 3 --overlap {overlap} {AT_ONCE}"))
                .set("KERNEL_NS", KERNEL_NS)
                .set("WIRE_NS", wire_ns)
                .set("WIRE_NS_PER_BYTE", wire_ns_per_byte)
                .sound();
        let number = |text: &str| text.parse::<f64>().expect("a number");
        let wire = |bytes: u64| (number(wire_ns) + (bytes as f64 * number(wire_ns_per_byte)).round()) / 1e9;
        let buckets: Vec<u64> = record.header.buckets.iter().map(|bytes| bytes.0).collect();
        let all: f64 = buckets.iter().copied().map(wire).sum();
        let kernels = |count: u64| (count * KERNEL_NS) as f64 / 1e9;
        assert!(buckets.len() > 1);
        for iteration in &record.iterations {
            for rank in 0..2 {
                let time = |phase: Phase| iteration.phases[phase][rank].0;
                let before = iteration.before_allreduce[rank].0;
                let compute = kernels(forward + backward(buckets.len()));
                let exposed = match (overlap, wire_ns) {
                    ("off", _) => all,
                    // One sum after the other from the first on.
                    (_, "100") => before + all - compute,
                    _ => wire(buckets[buckets.len() - 1]),
                };
                let case = |phase: &str| format!("{phase}, overlap {overlap}, {wire_ns_per_byte} ns a byte");
                assert_near(time(Phase::Forward), kernels(forward), 1e-9, &case("forward"));
                assert_near(time(Phase::Backward), kernels(backward(buckets.len())), 1e-9, &case("backward"));
                assert_near(time(Phase::ExposedAllreduce), exposed, 1e-9, &case("exposed"));
                assert_near(time(Phase::Optimizer), kernels(1), 1e-9, &case("optimizer"));
                // The update, and two for what goes to the host.
                assert_near(iteration.step[rank].0, compute + exposed + kernels(3), 1e-9, &case("step"));
                assert!(before > kernels(forward) && before <= compute, "{before}");
            }
        }
    }
}

#[test]
fn a_thousand_steps_wait_for_nothing_warn_of_nothing_and_keep_no_memory() {
    let run = |iterations: u32| {
        let options = format!("--model resnet18 --batch-size 1 --freeze-batch-norm --iters {iterations} --lr 1e-9");
        let (finished, mut reports) = Virtual::alone(&options).finish();
        assert_eq!(finished.stderr, "");
        let peak = finished.record.as_ref().and_then(|record| record.end.as_ref()).expect("an end").peak_memory[0];
        (reports.remove(0), peak)
    };
    let (few, few_peak) = run(10);
    let (many, many_peak) = run(1000);
    assert_eq!((few.races, many.races), (0, 0));
    // What waits is before the first step and after the last.
    assert_eq!(many.synchronizations, few.synchronizations);
    assert_eq!(many_peak, few_peak);
    let grown = many.peak_resident_kb.saturating_sub(few.peak_resident_kb);
    assert!(grown < 4000, "{grown} kB of the host more after 1000 steps than after 10");
}

// --- hosts --------------------------------------------------------------------------------------------------------------

#[test]
fn a_sweep_over_two_hosts_of_virtual_gpus_has_its_figures() {
    let _turn = turn();
    let Some(cluster) = Cluster::up(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut sweep = cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark"), "sweep", "--no-doctor"]);
    sweep.arg("--hosts").arg(format!("{}:2,{}:2", host(1), host(2))).arg("--worker").arg(worker());
    sweep.args(words("--cases 1n1g,1n2g,2n1g,2n2g --runs 1 --device cuda"));
    sweep.args(words("--model resnet18 --batch-size 2 --image-size 32 --iters 4 --warmup 1 --threads 1"));
    succeed(&sweep.arg("--out").arg(&out).env("LD_LIBRARY_PATH", libraries()).output().expect("starts"));
    for (case, ranks) in [("1n1g", 1), ("1n2g", 2), ("2n1g", 2), ("2n2g", 4)] {
        let text = fs::read(out.join(case).join("resnet18_b2_fp32_1.jsonl")).expect(case);
        let record = RunRecord::read(&text[..]).expect("a record");
        assert_eq!((record.failure(), record.header.ranks.len()), (None, ranks), "{case}");
        assert!(record.header.ranks.iter().all(|rank| rank.device == DeviceKind::Cuda), "{:?}", record.header.ranks);
        assert_eq!(record.header.backend, if ranks == 1 { "solo" } else { "nccl" });
        checksum(&record);
    }
    let (status, table, problems) = run(Command::new(env!("CARGO_BIN_EXE_ringmark")).arg("extract").arg(&out));
    assert_eq!(status, Some(0), "{problems}");
    assert!(["1n1g", "1n2g", "2n1g", "2n2g"].iter().all(|case| table.contains(case)), "{table}");
}

// --- what is refused ----------------------------------------------------------------------------------------------------

#[test]
fn gpus_that_are_too_few_are_refused() {
    let refused = |ranks, name: &str, value: &str| {
        Virtual::ranks(ranks, "--model resnet18 --iters 1").run.variable(name, value).refused(1)
    };
    let error = refused(2, "VIRTUAL_CUDA_DEVICES", "1");
    assert!(error.contains("shows 1 GPUs, 2 ranks were started on it: start at most one rank a GPU"), "{error}");
    let error = refused(1, "VIRTUAL_CUDA_DEVICES", "0");
    assert!(error.contains("--device cuda cannot be met"), "{error}");
    // A launcher that shows all ranks the same GPU: NCCL's own words.
    let error = refused(2, "CUDA_VISIBLE_DEVICES", "3");
    assert!(error.contains("Duplicate GPU detected"), "{error}");
}

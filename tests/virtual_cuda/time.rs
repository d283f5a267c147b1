//! Measurements of `ringmark-worker` on virtual GPUs with known times: phases, stragglers, bandwidth, and the memory
//! after a thousand steps.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, MessageResult};
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::{BackendName, Bytes, Phase};
use ringmark_core::number_text::three_digits;

use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{mpirun, ringmark, run, succeeds, words};
use crate::support::virtual_gpu::{RATE, SMALL, Virtual, assert_near, variables};
use crate::support::virtual_time::{AFTER_SUMS, FORWARD, backward, compute, wire};
use crate::support::worker;
use crate::support::worker_run::AT_ONCE;

/// Duration of a kernel, in ns.
const KERNEL_NS: u64 = 1000;

fn kernels(count: u64) -> f64 {
    (count * KERNEL_NS) as f64 / 1e9
}

// --- training
// -----------------------------------------------------------------------------------------------------------

#[test]
fn phases_match_hand_computed_times() {
    // The first bucket is sent before the last gradient is ready, and its transfer ends long before or long after it.
    let (slow, fast) = ((100, 0.1), (500, 0.0));
    for (overlap, (wire_ns, wire_ns_per_byte)) in [("off", slow), ("off", fast), ("on", slow), ("on", fast)] {
        let record =
            Virtual::ranks(2, &format!("{SMALL} {RATE} --layout nchw --iters 3 --overlap {overlap} {AT_ONCE}"))
                .set("KERNEL_NS", KERNEL_NS)
                .set("WIRE_NS", wire_ns)
                .set("WIRE_NS_PER_BYTE", wire_ns_per_byte)
                .valid_record();
        let buckets = &record.header.buckets;
        let wire = |bytes: &Bytes| wire(*bytes, wire_ns, wire_ns_per_byte);
        let all: f64 = buckets.iter().map(wire).sum();
        assert!(buckets.len() > 1);
        for iteration in &record.iterations {
            for rank in 0..2 {
                let time = |phase: Phase| iteration.phases[phase][rank].0;
                let before = iteration.before_allreduce[rank].0;
                let compute = kernels(compute(&record));
                let exposed = match (overlap, wire_ns) {
                    ("off", _) => all,
                    // From the first all-reduce on, they run back to back.
                    (_, 100) => before + all - compute,
                    _ => wire(&buckets[buckets.len() - 1]),
                };
                let case = |phase: &str| format!("{phase}, overlap {overlap}, {wire_ns_per_byte} ns a byte");
                assert_near(time(Phase::Forward), kernels(FORWARD), 1e-9, &case("forward"));
                assert_near(time(Phase::Backward), kernels(backward(buckets.len())), 1e-9, &case("backward"));
                assert_near(time(Phase::ExposedAllreduce), exposed, 1e-9, &case("exposed"));
                assert_near(time(Phase::Optimizer), kernels(1), 1e-9, &case("optimizer"));
                assert_near(iteration.step[rank].0, compute + exposed + kernels(AFTER_SUMS), 1e-9, &case("step"));
                assert!(before > kernels(FORWARD) && before <= compute, "{before}");
            }
        }
    }
}

#[test]
fn slow_gpu_is_a_straggler() {
    const SLOW: usize = 2;
    let options = format!("{SMALL} {RATE} --layout nchw --iters 16 --warmup 2 --overlap off {AT_ONCE}");
    let (finished, _) = Virtual::ranks(4, &options)
        .set("FAULTY_DEVICE", SLOW)
        .set("SLOW_FACTOR", 1.5)
        .set("KERNEL_NS", 200 * KERNEL_NS)
        .set("WIRE_NS_PER_BYTE", 0.01)
        .finish();
    let log = finished.stdout.clone();
    let record = finished.valid_record();
    let (compute, after) = (200.0 * kernels(compute(&record)), 200.0 * kernels(AFTER_SUMS));
    let wire: f64 = record.header.buckets.iter().map(|bytes| wire(*bytes, 0, 0.01)).sum();
    // All ranks leave the all-reduce together; then the slow one takes 1.5 times as long.
    let waited = 0.5 * (compute + after);
    for iteration in &record.iterations[2..] {
        for rank in 0..4 {
            let (factor, exposed) = if rank == SLOW { (1.5, wire) } else { (1.0, wire + waited) };
            let case = |what: &str| format!("{what} of rank {rank}");
            assert_near(iteration.before_allreduce[rank].0, factor * compute, 1e-9, &case("own compute time"));
            assert_near(iteration.phases[Phase::ExposedAllreduce][rank].0, exposed, 1e-9, &case("exposed"));
            assert_near(iteration.step[rank].0, 1.5 * (compute + after) + wire, 1e-9, &case("step"));
        }
    }
    let warnings = &record.end.as_ref().expect("an end").warnings;
    let named: Vec<&str> =
        warnings.iter().filter(|it| it.kind == WarningKind::Straggler).map(|it| it.text.as_str()).collect();
    let words = format!(
        "rank {SLOW} on host {} is a straggler: in 100.0 % of the iterations, 1.50 times the others' compute time; \
         the others waited {} ms for it in each: ",
        record.header.ranks[SLOW].host,
        three_digits(1e3 * waited)
    );
    assert!(named.len() == 1 && named[0].starts_with(&words), "{words}\n{warnings:?}");
    assert!(log.lines().any(|line| line == format!("# warning: {}", named[0])), "{log}");
}

#[test]
fn thousand_steps_have_no_stalls_warnings_or_leaks() {
    let run = |network: &str, iterations: u32| {
        let options = format!("{network} --batch-size 1 --iters {iterations} --lr 1e-9");
        let (finished, mut reports) = Virtual::single_rank(&options).finish();
        assert_eq!(finished.stderr, "");
        let peak = finished.record.as_ref().and_then(|record| record.end.as_ref()).expect("an end").peak_memory[0];
        (reports.remove(0), peak)
    };
    // A hundred steps with many kernels, and a thousand short ones, in which small leaks add up.
    for (network, steps) in
        [("--model resnet18 --freeze-batch-norm", 100), ("--model mxnet-lenet --image-size 28", 1000)]
    {
        // Both runs have the threads of heartbeat and telemetry; they differ in the number of steps.
        let growth = || {
            let (few, few_peak) = run(network, steps / 2);
            let (many, many_peak) = run(network, steps);
            assert_eq!((few.races, many.races), (0, 0), "{network}");
            // Synchronizations occur only before the first step and after the last.
            assert_eq!(many.synchronizations, few.synchronizations, "{network}");
            assert_eq!(many_peak, few_peak, "{network}");
            many.peak_resident_kb.saturating_sub(few.peak_resident_kb)
        };
        // A loaded machine can only increase it: the allocator returns freed memory late.
        let mut grown = 0;
        let is_always_large = (0..3).all(|_| {
            grown = growth();
            grown >= 2000
        });
        assert!(!is_always_large, "{network}: {grown} kB of the host more after {steps} steps than after half of them");
    }
}

// --- bandwidth
// ----------------------------------------------------------------------------------------------------------

/// Runs `ringmark-worker bandwidth` on virtual GPUs; returns its output, and the record that it wrote to `json`.
fn bandwidth(ranks: u32, options: &str, settings: &[(&str, &str)], json: &Path) -> (String, BandwidthRecord) {
    let _tokens = take_all_cores();
    let mut command = mpirun(ranks);
    command.arg(worker()).args(words("bandwidth --device cuda --threads 1")).args(words(options));
    command.arg("--json").arg(json).envs(variables()).env("OMP_NUM_THREADS", "1");
    command.envs(settings.iter().map(|(name, value)| (format!("VIRTUAL_CUDA_{name}"), *value)));
    let stdout = succeeds(&mut command);
    let record = BandwidthRecord::read(BufReader::new(File::open(json).expect("written"))).expect("a record");
    assert_eq!((record.failure.as_ref(), record.backend), (None, BackendName::Nccl));
    (stdout, record)
}

#[test]
fn bandwidth_matches_the_link_in_table_and_record() {
    /// One of this many all-reduces takes ten times as long.
    const LONG: u64 = 7;
    const CALLS: u64 = 20;
    const WARMUP: u64 = 3;
    let folder = tempfile::tempdir().expect("a folder");
    let settings = [("WIRE_NS", "5000"), ("WIRE_NS_PER_BYTE", "0.5"), ("LONG_SUM", "7")];
    for (ranks, bus) in [(2, 1.0), (4, 1.5)] {
        let json = folder.path().join(format!("{ranks}.json"));
        let (table, record) = bandwidth(ranks, "-b 8 -e 256K -f 32 -n 20 -w 3", &settings, &json);
        let sizes: Vec<u64> = record.results.iter().map(|result| result.bytes.0).collect();
        assert_eq!(sizes, [8, 256, 8192, 262_144]);
        let mut sums = 0;
        for result in &record.results {
            let each = wire(result.bytes, 5000, 0.5);
            let mut next_duration = || {
                sums += 1;
                if sums % LONG == 0 { 10.0 * each } else { each }
            };
            let mut cells = vec![result.bytes.0.to_string(), result.count.to_string()];
            cells.extend(words("float sum -1").map(str::to_owned));
            for (side, timing) in result.sides() {
                let timing = timing.expect("both sides");
                let _warmup: Vec<f64> = (0..WARMUP).map(|_| next_duration()).collect();
                let mut calls: Vec<f64> = (0..CALLS).map(|_| next_duration()).collect();
                let back_to_back = (0..CALLS).map(|_| next_duration()).sum::<f64>() / CALLS as f64;
                let what = |what: &str| format!("{what} of {} bytes, {side}, {ranks} ranks", result.bytes.0);
                for rank in 0..ranks as usize {
                    for (actual, expected) in timing.seconds[rank].iter().zip(&calls) {
                        assert_near(actual.0, *expected, 1e-9, &what("a call"));
                    }
                    assert_near(timing.back_to_back[rank].0, back_to_back, 1e-9, &what("a back-to-back call"));
                }
                assert_eq!((timing.wrong, timing.seconds[0].len() as u64), (Some(0), CALLS));
                let rate = result.bytes.0 as f64 / back_to_back / 1e9;
                cells.extend([
                    format_microseconds(1e6 * back_to_back),
                    format!("{rate:.2}"),
                    format!("{:.2}", bus * rate),
                    "0".to_owned(),
                ]);
                calls.sort_by(f64::total_cmp);
                assert_percentiles(&table, result, side, &calls);
            }
            let row: Vec<&str> = row_of(&table, &format!(" {} ", result.bytes.0)).collect();
            assert_eq!(row, cells, "{table}");
        }
    }
}

/// Every operation on a wire that takes 5 us and half a nanosecond per byte of the array; two thirds of the bytes
/// count if each of three ranks has a part. Two ranks are used for operations where a third adds nothing. sendrecv
/// needs three: a ring of two has only one direction.
#[test]
fn nccl_operations_are_correct_at_link_speed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, settings) = (folder.path().join("record.json"), [("WIRE_NS", "5000"), ("WIRE_NS_PER_BYTE", "0.5")]);
    for (options, ranks, share) in [
        ("all_reduce --redop avg", 3, 4.0 / 3.0),
        ("all_gather", 3, 2.0 / 3.0),
        ("reduce_scatter --redop max", 3, 2.0 / 3.0),
        ("reduce --root 1", 2, 1.0),
        ("reduce --redop avg --wire bf16", 2, 1.0),
        ("broadcast --root 1", 2, 1.0),
        ("alltoall --wire fp16", 3, 2.0 / 3.0),
        ("sendrecv", 3, 1.0),
    ] {
        // More than virtual NCCL transfers at once, and no multiple of the ranks' shares.
        let all = format!("--op {options} -b 1000 -e 3M -f 3000 -n 3 -w 1");
        let (table, record) = bandwidth(ranks, &all, &settings, &json);
        assert_eq!(record.results.len(), 2, "{options}");
        for result in &record.results {
            let each = wire(result.bytes, 5000, 0.5);
            for (side, timing) in result.sides() {
                assert_eq!(timing.expect("both sides").wrong, Some(0), "{options}: {side} of {}", result.bytes);
            }
            let timing = result.out_of_place.as_ref().expect("measured");
            // Ranks that check more results are later on their virtual clocks, which barriers do not synchronize; the
            // last of them waits for no other rank.
            for (what, times) in [("a call", &timing.seconds.concat()), ("a back-to-back call", &timing.back_to_back)] {
                let shortest = times.iter().map(|time| time.0).fold(f64::INFINITY, f64::min);
                assert_near(shortest, each, 1e-9, &format!("{options}: {what} of {} bytes", result.bytes.0));
            }
            let time = timing.mean().expect("samples").0;
            let rate = format!("{:.2}", share * result.bytes.0 as f64 / time / 1e9);
            let row: Vec<&str> = row_of(&table, &format!(" {} ", result.bytes.0)).collect();
            assert_eq!(row[7], rate, "{options}: {table}");
        }
    }
}

/// One bit of one element is wrong on one of two ranks, in one of six calls.
#[test]
fn one_wrong_element_is_detected_in_any_operation() {
    for operation in
        ["all_reduce", "all_gather", "reduce_scatter", "reduce --root 1", "broadcast", "alltoall", "sendrecv"]
    {
        let _tokens = take_all_cores();
        let mut command = mpirun(2);
        command.arg(worker()).args(words("bandwidth --device cuda --threads 1 -b 48K -e 48K -n 2 -w 1 --op"));
        command.args(words(operation)).envs(variables());
        command.env("VIRTUAL_CUDA_WRONG_SUM", "2").env("VIRTUAL_CUDA_FAULTY_DEVICE", "1");
        let (status, stdout, stderr) = run(&mut command);
        let described = "the run failed: 1 wrong elements in results of 49152 bytes, out-of-place";
        assert!(status == Some(1) && stderr.contains(described), "{operation}: {stderr}");
        assert!(stdout.contains("# Out of bounds values : 1 FAILED"), "{operation}: {stdout}");
    }
}

/// Formats a time in microseconds as nccl-tests does.
fn format_microseconds(microseconds: f64) -> String {
    if microseconds < 10_000.0 { format!("{microseconds:.2}") } else { format!("{microseconds:.1}") }
}

/// Returns the words of the first line with this text that is not a comment.
fn row_of<'a>(table: &'a str, text: &str) -> impl Iterator<Item = &'a str> {
    let line = table.lines().find(|line| !line.starts_with('#') && line.contains(text)).expect(text);
    words(line)
}

/// Checks the line of p50, p95, p99, minimum and maximum for sorted calls that are the same on every rank.
fn assert_percentiles(table: &str, result: &MessageResult, side: &str, calls: &[f64]) {
    let start = [result.bytes.0.to_string(), side.replace('-', "_")];
    let line = table.lines().filter_map(|line| line.strip_prefix('#')).map(|line| words(line).collect::<Vec<_>>());
    let line = line.into_iter().find(|cells| cells.len() > 2 && cells[..2] == start).expect("a line of percentiles");
    // Linear interpolation, over the calls of all ranks.
    let ranks = result.out_of_place.as_ref().expect("measured").seconds.len();
    let pooled: Vec<f64> = calls.iter().flat_map(|call| vec![*call; ranks]).collect();
    let at = |part: f64| {
        let place = part * (pooled.len() - 1) as f64;
        let (low, high) = (pooled[place.floor() as usize], pooled[place.ceil() as usize]);
        low + (high - low) * place.fract()
    };
    let expected = [at(0.5), at(0.95), at(0.99), at(0.0), at(1.0)].map(|seconds| format_microseconds(1e6 * seconds));
    assert_eq!(line[2..7], expected, "{side} of {} bytes", result.bytes.0);
}

#[test]
fn nccl_algorithm_choice_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let run_with = |algorithm: &str| {
        let json = folder.path().join(format!("{algorithm}.json"));
        let options = format!("-b 1K -e 1K -n 2 -w 0 --nccl-algo {algorithm}");
        let (output_text, record) = bandwidth(2, &options, &[], &json);
        (json, output_text, record.nccl)
    };
    let (ring, output_text, choices) = run_with("ring");
    assert_eq!(choices, ["AllReduce of 1024 bytes: Ring, LL, 1 channel"]);
    assert!(output_text.contains("\n# NCCL: AllReduce of 1024 bytes: Ring, LL, 1 channel\n"), "{output_text}");
    let (auto, _, choices) = run_with("auto");
    assert_eq!(choices, ["AllReduce of 1024 bytes: Tree, LL, 1 channel"]);
    let (_, described, problems) = run(ringmark("diff").arg(ring).arg(auto));
    for words in ["nccl_algo: ring -> auto", "NCCL chose: Ring, LL, 1 channel -> Tree, LL, 1 channel"] {
        assert!(described.contains(words), "{words}: {described}{problems}");
    }
}

//! `--op` of `ringmark bandwidth`: every operation of nccl-tests on real ranks, its element counts and results, and
//! what parsers extract from its output. The bandwidth formulas are tested on virtual GPUs, where every time is known
//! (`virtual_cuda::time`).

use std::fs;
use std::process::Command;

use expect_test::expect;
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::dimension::Operation;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::busbw::busbw;

use crate::support::bandwidth::{number, read, rows};
use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::other_readers::{cloudai, superbenchmark};
use crate::support::sandbox::{Sandbox, check_refusals, lines_with, refused, run, succeeds, words};

/// Runs the operation and returns the record and output. Fails if a result is wrong, out of place or in place.
fn run_successfully(sandbox: &Sandbox, ranks: u32, options: &str) -> (BandwidthRecord, String) {
    let path = sandbox.path("record.json");
    let mut command = sandbox.worker_ranks(ranks, options);
    let stdout = succeeds(command.arg("--json").arg(&path));
    let record = read(&path);
    assert_eq!((record.failure.as_deref(), record.ranks.len()), (None, ranks as usize), "{options}");
    for result in &record.results {
        for (side, timing) in result.sides() {
            let wrong = timing.unwrap_or_else(|| panic!("{options}: no {side}")).wrong;
            assert_eq!(wrong, Some(0), "{options}: {side} of {}", result.bytes);
        }
    }
    fs::remove_file(path).expect("removed");
    (record, stdout)
}

/// Sizes from one element, or 16 bytes per rank, to more than one chunk; no size is a multiple of the ranks' shares.
const SIZES: &str = "-b 100 -e 700100 -i 350000 -n 3 -w 1 --chunk-kb 100";

/// Checks that known parsers of nccl-tests' output read it like an all-reduce.
fn assert_readable(stdout: &str) {
    let rows = rows(stdout);
    let column = |index: usize| rows.iter().map(|row| row[index]).collect::<Vec<_>>();
    assert_eq!(superbenchmark(stdout), column(7), "{stdout}");
    assert_eq!(cloudai(stdout), column(11), "{stdout}");
    assert!(column(7).iter().chain(&column(11)).all(|rate| rate.parse::<f64>().is_ok()), "{stdout}");
    expect!["# Out of bounds values : 0 OK"].assert_eq(&lines_with(stdout, "# Out of"));
    assert_eq!(stdout.lines().filter(|line| !line.starts_with('#')).count(), rows.len(), "{stdout}");
}

/// Option for the wire, nccl-tests' name of its elements, and their size in bytes.
type OnTheWire = (&'static str, &'static str, u64);

const FP32: OnTheWire = ("", "float", 4);

#[test]
fn every_pair_of_ranks_is_measured_alone() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for backend in ["shared-memory", "mpi"] {
        let path = sandbox.path("record.json");
        let options = format!("--op sendrecv --pairs --backend {backend} -b 8 -e 1M -n 3 -w 1 --chunk-kb 100");
        let stdout = succeeds(sandbox.worker_ranks(3, &options).arg("--json").arg(&path));
        let record = read(&path);
        assert_eq!(record.results.iter().map(|result| result.bytes.0).collect::<Vec<_>>(), [8, 1 << 20]);
        for result in &record.results {
            assert_eq!(result.out_of_place.as_ref().and_then(|timing| timing.wrong), Some(0), "{options}");
            let times = record.pair_times(result).expect("pairs");
            let has_time: Vec<Vec<bool>> = times.iter().map(|row| row.iter().map(Option::is_some).collect()).collect();
            assert_eq!(has_time, [[false, true, true], [true, false, true], [true, true, false]]);
        }
        let heads: Vec<&str> = stdout.lines().filter(|line| line.contains("from the rank of a row")).collect();
        assert_eq!(
            heads,
            [
                "# us of 8 bytes from the rank of a row to that of a column",
                "# GB/s of 1048576 bytes from the rank of a row to that of a column"
            ]
        );
    }
}

#[test]
fn operations_are_correct_with_any_rank_count() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for operation in Operation::ALL {
        let mut of_backends = Vec::new();
        // Moved data must be identical bit by bit, whatever its type; the next test reduces on every wire.
        let [through_memory, by_mpi]: [OnTheWire; 2] = match operation.reduces() {
            true => [FP32; 2],
            false => [("--dtype bf16", "bfloat16", 2), ("--wire fp16", "half", 2)],
        };
        for (ranks, backend, (wire, element, width)) in
            [(1, "auto", FP32), (3, "shared-memory", through_memory), (3, "mpi", by_mpi)]
        {
            let root = if operation.has_root() { format!("--root {}", ranks - 1) } else { String::new() };
            let options = format!("--op {operation} {root} --backend {backend} {wire} {SIZES}");
            let (record, stdout) = run_successfully(&sandbox, ranks, &options);
            assert_eq!(record.config.operation, *operation);
            let sizes: Vec<(u64, u64)> = record.results.iter().map(|result| (result.bytes.0, result.count)).collect();
            // nccl-tests' parts are multiples of 16 bytes; its size is that of all parts, its count that of one part.
            let expected = [100, 350_100, 700_100].map(|bytes: u64| match operation.is_divided() {
                true => {
                    let parts_of_16 = bytes / width / u64::from(ranks) / (16 / width);
                    (parts_of_16 * 16 * u64::from(ranks), parts_of_16 * 16 / width)
                }
                false => (bytes, bytes / width),
            });
            assert_eq!(sizes, expected, "{options}");
            if ranks == 3 {
                of_backends.push(sizes);
                assert_readable(&stdout);
            }
            let rows = rows(&stdout);
            assert_eq!(rows.len(), 3, "{stdout}");
            let (reduction, root) = (record.config.operands().reduction_name(), record.config.operands().root_number());
            for (row, result) in rows.iter().zip(&record.results) {
                let cells = [result.bytes.0.to_string(), result.count.to_string(), element.to_owned()];
                assert_eq!(row[..3], cells, "{stdout}");
                assert_eq!(row[3..5], [reduction.as_str(), &root.to_string()], "{stdout}");
                let time = result.out_of_place.as_ref().and_then(|timing| timing.mean()).expect("samples");
                let rate = busbw(result.bytes, time, record.bus()).0;
                assert!((number(row[7]) - rate).abs() <= 0.0051 + 1e-3 * rate, "{row:?}, {rate}");
            }
        }
        assert_eq!(of_backends[0], of_backends[1], "{operation}");
    }
}

#[test]
fn reductions_are_correct_for_every_wire_type() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = [
        "--redop avg --backend shared-memory --wire bf16",
        "-o max --backend mpi -d half",
        "--redop max --backend shared-memory",
        "-o avg --backend mpi",
    ];
    for (operation, options) in
        [("all_reduce", &options[..]), ("reduce", &options[..2]), ("reduce_scatter", &options[..2])]
    {
        for options in options {
            run_successfully(&sandbox, 3, &format!("--op {operation} {options} -b 8 -e 200008 -i 100000 -n 2 -w 1"));
        }
    }
}

#[test]
fn each_operation_is_a_separate_job() {
    let sandbox = Sandbox::real();
    let options =
        "--hosts localhost:2 --op all_reduce,all_gather,reduce --redop max --root 1 -b 64 -e 1K -f 16 -n 2 -w 0";
    let (status, stdout, stderr) = {
        let _tokens = take_all_cores();
        run(&mut sandbox.bandwidth(options))
    };
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    for (file, operation) in [
        ("bandwidth.json", Operation::AllReduce),
        ("bandwidth_all_gather.json", Operation::AllGather),
        ("bandwidth_reduce.json", Operation::Reduce),
    ] {
        let record = read(&sandbox.path("out/1n2g").join(file));
        assert_eq!((record.config.operation, record.failure), (operation, None));
    }
    for part in ["all-reduce (max) over 2 ranks", "all-gather over 2 ranks", "reduce (max) to rank 1 over 2 ranks"] {
        assert!(stdout.contains(part), "{stdout}");
    }
    // Only an all-reduce has rates that memory and network allow.
    assert_eq!(stdout.matches(" GB/s read + written (").count(), 1, "{stdout}");
    // Its arrays are larger than these messages.
    assert!(stdout.contains("; measured with arrays of 16777216 bytes, so smaller messages have no share"), "{stdout}");
    assert!(stdout.contains("\n# 1n2g  reduce          2 "), "{stdout}");
    let out = sandbox.path("out");
    let report = sandbox.path("report.html");
    succeeds(crate::support::sandbox::ringmark("report").arg(&out).arg("-o").arg(&report));
    let page = fs::read_to_string(report).expect("written");
    for part in [
        "Bandwidth of collective operations",
        "Bus bandwidth of all-gather by size",
        "Bus bandwidth of reduce (max) to rank 1",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    // All-gather and reduce are compared only with themselves.
    let (status, stdout, stderr) = run(crate::support::sandbox::ringmark("diff").arg(&out).arg(&out));
    assert!(status == Some(0) || status == Some(1), "{stderr}");
    for name in [
        "all_reduce max, 2 ranks on one host",
        "all_gather, 2 ranks on one host",
        "reduce max, 2 ranks on one host, root 1",
    ] {
        assert!(stdout.contains(name), "no {name}: {stdout}{stderr}");
    }
}

#[test]
fn options_unsupported_by_operation_are_rejected() {
    let sandbox = Sandbox::new("exit 1");
    let refuse = |options: &str| {
        let error = refused(&mut sandbox.bandwidth(&format!("--hosts localhost:2 {options}")), 2);
        assert!(!sandbox.path("out").exists(), "{options}");
        error
    };
    check_refusals(
        &expect![[r#"
            --op all_to_one
                error: invalid value 'all_to_one' for '--op <NAME,..>': "all_to_one" is not one of all_reduce, all_gather, reduce_scatter, reduce, broadcast, alltoall, sendrecv
            --op reduce,reduce
                error: --op lists reduce twice: list it once
            --op all_gather --redop max
                error: --redop max does not apply to --op all_gather, which does not reduce: omit --redop, or use --op all_reduce, reduce_scatter or reduce
            --redop prod
                error: invalid value 'prod' for '--redop <NAME>'
                [possible values: sum, max, avg]
            --op sendrecv --root 1
                error: --root 1 does not apply to --op sendrecv: omit --root, or use --op reduce or broadcast
            --pairs
                error: --pairs needs --op sendrecv and a backend: omit --pairs, or add --op sendrecv
            --op reduce --root 2
                error: --root 2 is out of range for 2 ranks: choose 0 to 1
            --op broadcast,all_gather --root 2
                error: --root 2 is out of range for 2 ranks: choose 0 to 1
            --op all_gather -b 8 -e 16
                error: --op all_gather needs at least 16 bytes for each of 2 ranks: choose --end 32 or more
            --op reduce --model resnet50_v1b
                error: --model sums gradients with all-reduce, as training does: omit --op and --redop, or use sizes (-b, -e) instead of --model
            --redop avg --model resnet50_v1b
                error: --model sums gradients with all-reduce, as training does: omit --op and --redop, or use sizes (-b, -e) instead of --model
        "#]],
        refuse,
    );
    let sandbox = Sandbox::real();
    let mut command = Command::new(sandbox.worker());
    let error = {
        let _tokens = take_cores(1);
        refused(command.args(words("bandwidth --device cpu --op all_gather --redop max")), 2)
    };
    expect!["error: --redop max does not apply to --op all_gather, which does not reduce: omit --redop, or use --op all_reduce, reduce_scatter or reduce"].assert_eq(&lines_with(&error, "does not apply"));
    let _tokens = take_cores(2);
    let (status, _, stderr) = run(&mut sandbox.worker_ranks(2, "--op reduce --root 2 -b 8 -e 8"));
    assert!(status == Some(1) && stderr.contains("--root 2 is out of range for 2 ranks"), "{stderr}");
}

//! `ringmark bandwidth` and `ringmark-worker bandwidth` under real mpirun: first with a shell script in place of the
//! worker, then with the real worker at sizes that take moments.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, FailureKind, lines};
use ringmark_core::dimension::{Bytes, GigabytesPerSecond};
use ringmark_core::host::InitialLoad;
use ringmark_core::stats::busbw::Bus;

use crate::support::bandwidth::{self, number, read, result, rows};
use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::other_readers::{cloudai, superbenchmark};
use crate::support::processes_of;
use crate::support::runs;
use crate::support::sandbox::{
    HANGING, Sandbox, check_refusals, fails, lines_with, refused, ringmark, run, succeeds, wait_until, words,
};
use crate::support::temporary_folder::without_folder;

/// Script in which rank 0 copies a prepared record: that of its case, or else `any.json`.
const RECORDING: &str = "
[ $rank = 0 ] || exit 0
echo \"words: $words\"
echo 'a warning' >&2
case=$(basename \"$(dirname \"$record\")\")
[ -f \"$folder/$case.json\" ] || case=any
cp \"$folder/$case.json\" \"$record\"
";

impl Sandbox {
    fn write_bandwidth_record(&self, name: &str, record: &BandwidthRecord) {
        record.write(File::create(self.path(name)).expect("created")).expect("written");
    }

    fn bandwidth_record(&self, case: &str) -> BandwidthRecord {
        read(&self.path("out").join(case).join("bandwidth.json"))
    }
}

/// Returns a record of 1 GB between two ranks in 0.1 s: 10 GB/s.
fn record(failure: Option<String>) -> BandwidthRecord {
    let results = vec![result(1_000_000_000, 2, 1, [Some(0.1); 2])];
    BandwidthRecord { failure, ..bandwidth::record(&runs::record("1n2g", 1, 0.5), results) }
}

// --- the command, with a script for a worker ----------------------------------------------------------------------------

#[test]
fn dry_run_prints_every_command_and_starts_nothing() {
    let sandbox = Sandbox::new("exit 1");
    let options = "--dry-run --verbose --hosts a:2,b:2 -b 1M -e 1G -n 7 --wire bf16 --min-busbw 2.5 --interface ib0";
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth(options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let out = sandbox.path("out").display().to_string();
    let (plan, lines): (Vec<&str>, Vec<&str>) = stdout.lines().partition(|line| line.starts_with("# "));
    let sizes = "# bandwidth, 1n2g 2n2g; all_reduce: 11 sizes from 1 MiB to 1 GiB, 7 measured + 5 warm-up iterations";
    assert_eq!((plan.len(), lines.len(), plan[0]), (3, 2, format!("{sizes}, device cpu").as_str()), "{stdout}");
    expect!["# messages: at most 1 GiB, 103 GB in all for each rank; time: about 2 min at a bus bandwidth of 1 GB/s"]
        .assert_eq(plan[1]);
    for (line, (case, hosts)) in lines.iter().zip([("1n2g", "-np 2 -H a:2 "), ("2n2g", "-np 4 -H a:2,b:2 ")]) {
        assert!(line.contains(hosts) && line.contains("NCCL_SOCKET_IFNAME==ib0"), "{line}");
        let arguments = format!(
            "/worker bandwidth --begin 1048576 --end 1073741824 --iters 7 --device cpu --min-busbw 2.5 \
             --json {out}/{case}/bandwidth.json --wire bf16"
        );
        assert!(line.ends_with(&arguments), "{line}");
    }
    assert!(!sandbox.path("out").exists());
}

#[test]
fn invalid_options_exit_with_status_2() {
    let sandbox = Sandbox::new(RECORDING);
    let refuse = |options: &str| {
        let error = refused(&mut sandbox.bandwidth(options), 2);
        assert!(!sandbox.path("out").exists(), "{options}");
        error
    };
    check_refusals(
        &expect![[r#"
            -b x
                error: invalid value 'x' for '--begin <SIZE>': "x" is not a size: use bytes, or a number with K, M or G (steps of 1024), such as 64K
            -e 8Q
                error: invalid value '8Q' for '--end <SIZE>': "8Q" is not a size: use bytes, or a number with K, M or G (steps of 1024), such as 64K
            -b 64 -e 8
                error: --end 8 bytes is below --begin 64 bytes: use the smaller size for --begin (-b)
            -b 0
                error: --begin 0 is out of range: choose 4 to 1099511627776 bytes
            -f 1
                error: --factor 1 is out of range: choose 2 to 1099511627776
            --cases 1n2g,1n1g
                error: case 1n1g has one rank, which exchanges nothing: choose 2n1g or 1n2g (on a host with one slot, add --hosts localhost:2)
            --hosts localhost:1
                error: case 1n1g has one rank, which exchanges nothing: choose 2n1g or 1n2g (on a host with one slot, add --hosts localhost:2)
            -np 2
                error: unexpected argument '-np' found
                tip: -np: use `--cases 1n2g` for 1 node with 2 ranks, one per GPU; `2n8g` is 2 nodes with 8 ranks each
            -g 4
                error: unexpected argument '-g' found
                tip: -g: there is one rank per GPU; `--cases 1n4g` selects 4 ranks
            -i 0
                error: --increment 0 is out of range: choose 4 to 1099511627776 bytes
            -f 2 -i 8
                error: the argument '--factor <N>' cannot be used with '--increment <SIZE>'
            -n 0
                error: --iters 0 is out of range: choose 1 to 10000000
            -c 2
                error: invalid value '2' for '--check <0|1>': choose 0 or 1
            --model vgg
                error: invalid value 'vgg' for '--model <NAME>'
                tip: use vgg11, vgg11_bn, vgg16 or vgg16_bn
            --num-layers 50
                error: the following required arguments were not provided:
                --network <NAME>
            --network vgg --num-layers 12
                error: --num-layers 12: vgg12 does not exist: choose 11, 16
            --network resnet -b 8
                error: the argument '--network <NAME>' cannot be used with '--begin <SIZE>'
            --model resnet50_v1b -b 8
                error: the argument '--model <NAME>' cannot be used with '--begin <SIZE>'
            --optimizer sgd
                error: --optimizer sgd needs weights to update: add --model resnet50_v1b
            --min-busbw NaN
                error: --min-busbw NaN is out of range: choose 0 to 1000000
            --min-busbw=-1
                error: --min-busbw -1 is out of range: choose 0 to 1000000
            --backend nccl
                error: --backend nccl needs a GPU, but --device is cpu: use --backend shared-memory, mpi or auto
            --cases 8g
                error: invalid value '8g' for '--cases <CASE,..>': case "8g" is unknown: write 1n2g for 1 node with 2 GPUs or ranks
                tip: did you mean `--cases 1n8g`?
            --cases 1n2g,1n2g
                error: --cases lists 1n2g twice: list it once
            --hosts a:2 --cases 2n2g
                error: case 2n2g needs 2 hosts, --hosts has 1: use --hosts a:2,HOST2:2
            --hosts a:2 --hostfile nodes
                error: the argument '--hosts <HOST:SLOTS,..>' cannot be used with '--hostfile <FILE>'
        "#]],
        refuse,
    );
}

#[test]
fn job_output_is_shown_kept_and_summarized() {
    let sandbox = Sandbox::new(RECORDING);
    sandbox.write_bandwidth_record("any.json", &record(None));
    let command = "--hosts localhost:4 --cases 1n2g,1n4g -b 8 -e 1K";
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth(command));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let out = sandbox.path("out").display().to_string();
    for case in ["1n2g", "1n4g"] {
        let log = sandbox.log(&format!("{case}/bandwidth.log"));
        let (command, output) = log.split_once('\n').expect("lines");
        assert!(command.starts_with("+ mpirun --allow-run-as-root "), "{log}");
        assert!(output.contains(&format!(" --json {out}/{case}/bandwidth.json\n")), "{log}");
        assert!(output.contains("a warning\n"), "{log}");
        assert!(stdout.contains(output), "{stdout}");
        assert_eq!(sandbox.bandwidth_record(case), record(None));
    }
    assert!(stdout.starts_with(&format!("# 1n2g, ranks: 2, log: {out}/1n2g/bandwidth.log\n")), "{stdout}");
    let table = "\
#
# case  ranks  avg busbw  best busbw     of size  other load  failure
#                   GB/s        GB/s           B           %
# -------------------------------------------------------------------
# 1n2g      2      10.00       10.00  1000000000           -  -
# 1n4g      4      15.00       15.00  1000000000           -  -
";
    assert!(stdout.ends_with(&format!("{table}# logs and records are in {out}\n")), "{stdout}");

    let error = refused(&mut sandbox.bandwidth(command), 2);
    expect![[r#"
        error: --out DIR/out already contains DIR/out/1n2g/bandwidth.log: choose another folder, or move this one away
    "#]]
    .assert_eq(&without_folder(&error));
    // A leftover record would be mistaken for the new one.
    fs::remove_file(sandbox.path("out/1n2g/bandwidth.log")).expect("removed");
    let error = refused(&mut sandbox.bandwidth("--hosts localhost:4 --cases 1n2g"), 2);
    expect![[r#"
        error: --out DIR/out already contains DIR/out/1n2g/bandwidth.json: choose another folder, or move this one away
    "#]]
    .assert_eq(&without_folder(&error));
}

#[test]
fn failed_case_stops_later_cases() {
    let sandbox = Sandbox::new(&format!("[ $OMPI_COMM_WORLD_SIZE = 2 ] && echo 'no memory' && exit 3\n{RECORDING}"));
    sandbox.write_bandwidth_record("any.json", &record(None));
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth("--hosts localhost:4 --cases 1n3g,1n2g,1n4g"));
    assert_eq!(status, Some(1), "{stderr}");
    let log = sandbox.path("out/1n2g/bandwidth.log");
    // mpirun names the first of the two ranks that it notices, or none if both have exited before.
    let reason = sandbox.failure("1n2g/bandwidth.log");
    let named = ["rank 0 of 2", "rank 1 of 2", "mpirun"].map(|process| format!("{process} exited with status 3"));
    assert!(named.contains(&reason), "{reason}");
    assert_eq!(stderr, format!("error: 1n2g failed: {reason}\nlog: {}\n", log.display()));
    assert!(stdout.contains("no memory\n"), "{stdout}");
    assert!(stdout.contains(&format!("\n# 1n2g      2          -           -           -           -  {reason}\n")));
    assert!(stdout.contains("\n# 1n3g      3 "), "{stdout}");
    assert!(!stdout.contains("1n4g"), "{stdout}");
    assert!(!sandbox.path("out/1n4g/bandwidth.log").exists());
}

#[test]
fn slow_case_does_not_stop_others() {
    let sandbox = Sandbox::new(&format!("{RECORDING}\n[ $OMPI_COMM_WORLD_SIZE = 2 ] && exit 1; exit 0"));
    let miss =
        lines::below_minimum(&record(None).results, Bus::all_reduce(2), GigabytesPerSecond(12.0)).expect("a miss");
    let failure_kind = Some(FailureKind::BelowMinimum);
    sandbox.write_bandwidth_record("1n2g.json", &BandwidthRecord { failure_kind, ..record(Some(miss.clone())) });
    sandbox.write_bandwidth_record("any.json", &record(None));
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth("--hosts localhost:4 --cases 1n2g,1n4g --min-busbw 12"));
    assert_eq!((status, stderr), (Some(1), format!("error: 1n2g: {miss}\n")), "{stdout}");
    assert_eq!(sandbox.failure("1n2g/bandwidth.log"), miss);
    assert!(
        stdout.contains(&format!("\n# 1n2g      2      10.00       10.00  1000000000           -  {miss}\n")),
        "{stdout}"
    );
    assert!(stdout.contains("\n# 1n4g      4      15.00       15.00  1000000000           -  -\n"), "{stdout}");
}

#[test]
fn json_replaces_tables_or_is_written_to_a_file() {
    let sandbox = Sandbox::new(&format!("[ $OMPI_COMM_WORLD_SIZE = 4 ] && exit 3\n{RECORDING}"));
    sandbox.write_bandwidth_record("any.json", &record(None));
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth("--hosts localhost:4 --cases 1n2g,1n4g --json"));
    assert_eq!(status, Some(1), "{stderr}");
    let answer: serde_json::Value = serde_json::from_str(&stdout).expect("JSON and nothing else");
    let [two, four] = &answer["cases"].as_array().expect("a list")[..] else { panic!("{answer}") };
    let side = &two["sizes"][0]["in_place"];
    assert_eq!((&two["case"], &two["ranks"], &two["failure"]), (&"1n2g".into(), &2.into(), &serde_json::Value::Null));
    assert_eq!((&two["average_busbw"], &side["busbw"], &side["p95"]), (&10.0.into(), &10.0.into(), &0.1.into()));
    // On a busy machine mpirun also names a rank that exited.
    assert!(four["failure"].as_str().is_some_and(|failure| failure.contains("exited with status 3")), "{four}");
    assert_eq!((&four["average_busbw"], &four["sizes"]), (&serde_json::Value::Null, &serde_json::json!([])));
    assert!(stderr.contains("# 1n2g, ranks: 2"), "messages go there: {stderr}");

    let sandbox = Sandbox::new(RECORDING);
    sandbox.write_bandwidth_record("any.json", &record(None));
    let file = sandbox.path("figures.json");
    let stdout = succeeds(sandbox.bandwidth("--hosts localhost:4 --cases 1n2g --json").arg(&file));
    assert!(stdout.contains("avg busbw"), "{stdout}");
    let answer: serde_json::Value = serde_json::from_slice(&fs::read(file).expect("written")).expect("JSON");
    assert_eq!(answer["cases"][0]["case"], "1n2g");
}

#[test]
fn job_without_a_valid_record_fails() {
    let sandbox = Sandbox::new("echo nothing");
    let (status, _, stderr) = run(&mut sandbox.bandwidth("--hosts localhost:2 --cases 1n2g"));
    assert_eq!(status, Some(1), "{stderr}");
    let reason = sandbox.failure("1n2g/bandwidth.log");
    expect!["mpirun exited with status 0, but rank 0 on localhost wrote no record DIR/out/1n2g/bandwidth.json here"]
        .assert_eq(&without_folder(&reason));

    let sandbox = Sandbox::new(&format!("{RECORDING}\nexit 1"));
    sandbox.write_bandwidth_record("any.json", &record(Some("3 elements are wrong".to_owned())));
    fails(&mut sandbox.bandwidth("--hosts localhost:2 --cases 1n2g --min-busbw 1000"));
    expect!["3 elements are wrong"].assert_eq(&sandbox.failure("1n2g/bandwidth.log"));
}

#[test]
fn hanging_job_is_ended_with_all_processes() {
    // The timeout grows until a rank has written output before it expires.
    let has_output = |seconds: u32| {
        let sandbox = Sandbox::new(HANGING);
        let options = format!("bandwidth --no-doctor --device cpu --hosts localhost:2 --timeout {seconds}");
        let mut command = ringmark(&options);
        command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        let (status, stdout, stderr) = run(&mut command);
        assert_eq!(status, Some(1), "{stderr}");
        let words = format!("timed out after {seconds} s; no rank has reported");
        assert_eq!(sandbox.failure("1n2g/bandwidth.log"), words);
        assert_eq!(sandbox.left(), Vec::<String>::new());
        stdout.contains("\nbefore\n")
    };
    assert!([2, 8, 32, 128].into_iter().any(has_output));
}

#[test]
fn folder_can_contain_a_sweep_as_well() {
    let sandbox = Sandbox::new(RECORDING);
    sandbox.write_bandwidth_record("any.json", &record(None));
    let (status, ..) = run(&mut sandbox.bandwidth("--hosts localhost:2 --cases 1n2g"));
    assert_eq!(status, Some(0));
    // Without runs, the records are shown and checked.
    let (status, stdout, stderr) = run(ringmark("extract").arg(sandbox.path("out")));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("1n2g"), "{stdout}");
    let stdout = succeeds(ringmark("check").arg(sandbox.path("out")));
    expect![[r#"
        PASS    complete  valid: 1 of 1 record
        PASS    rules     options, hosts, devices and software of 1 record
        PASS    reliable  load, spread and source of the bytes of 1 record
    "#]]
    .assert_eq(&stdout);
    // With runs, a bandwidth log is not one of them.
    fs::write(sandbox.path("out/1n2g/rn50_b8_fp32_1.log"), "").expect("written");
    let (_, _, stderr) = run(ringmark("extract").arg(sandbox.path("out")));
    assert!(stderr.contains("rn50_b8_fp32_1.log: ") && !stderr.contains("bandwidth.log"), "{stderr}");
}

// --- the real worker ----------------------------------------------------------------------------------------------------

#[test]
fn two_ranks_sum_exactly_at_every_size() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth("--hosts localhost:2 -b 8 -e 64K -f 8 -n 6 -w 1"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");

    let record = sandbox.bandwidth_record("1n2g");
    assert_eq!((record.failure.as_deref(), record.ranks.len()), (None, 2));
    let sizes: Vec<u64> = record.results.iter().map(|result| result.bytes.0).collect();
    assert_eq!(sizes, [8, 64, 512, 4096, 32_768]);

    let rows = rows(&stdout);
    assert_eq!(rows.len(), sizes.len(), "{stdout}");
    for (row, result) in rows.iter().zip(&record.results) {
        assert_eq!(row.len(), 13, "{row:?}");
        assert_eq!(row[..5], [&result.bytes.0.to_string(), &(result.bytes.0 / 4).to_string(), "float", "sum", "-1"]);
        for ((_, timing), columns) in result.sides().into_iter().zip([&row[5..9], &row[9..13]]) {
            let timing = timing.expect("fp32 goes both ways");
            assert_eq!((timing.wrong, columns[3]), (Some(0), "0"));
            assert!(timing.seconds.iter().all(|rank| rank.len() == 6), "{timing:?}");
            assert!(timing.pooled().iter().all(|seconds| *seconds > 0.0), "{timing:?}");
            let microseconds = timing.mean().expect("samples").0 * 1e6;
            assert!((number(columns[0]) - microseconds).abs() <= 0.005 + 1e-3 * microseconds, "{columns:?}");
            // With two ranks, algorithm and bus bandwidth are equal.
            assert_eq!(columns[1], columns[2]);
            let rate = result.bytes.0 as f64 / 1e3 / microseconds;
            assert!((number(columns[1]) - rate).abs() <= 0.0051, "{columns:?}, {rate}");
        }
    }
    for part in ["# Out of bounds values : 0 OK\n", "# Avg bus bandwidth    : ", "side      p50      p95      p99 "] {
        assert!(stdout.contains(part), "{stdout}");
    }
    // Every line outside the table starts with the mark that parsers skip.
    assert_eq!(stdout.lines().filter(|line| !line.starts_with('#')).count(), sizes.len(), "{stdout}");
}

#[test]
fn all_reduction_methods_are_exact_with_four_ranks() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for options in [
        "--backend mpi",
        "--collective mpi --piece-kb 100",
        "--backend shared-memory",
        "--backend shared-memory --wire fp16",
        "--backend mpi --wire bf16",
    ] {
        // From one element to more than one chunk; never a multiple of the ranks' shares.
        let sizes = "-b 4 -e 900004 -i 300000 -n 3 -w 1";
        let path = sandbox.path("record.json");
        let mut command = sandbox.worker_ranks(4, &format!("{sizes} {options}"));
        succeeds(command.arg("--json").arg(&path));
        let record = read(&path);
        assert_eq!((record.failure.as_deref(), record.ranks.len(), record.results.len()), (None, 4, 4), "{options}");
        for result in &record.results {
            let mut sides = result.sides().into_iter().filter_map(|(_, timing)| timing);
            assert!(sides.next().is_some(), "{options}: {result:?}");
            assert!(result.sides().iter().all(|(_, timing)| timing.is_none_or(|timing| timing.wrong == Some(0))));
        }
        assert!(options.contains(&record.backend.to_string()), "{options}: {}", record.backend);
        fs::remove_file(path).expect("removed");
    }
}

#[test]
fn gradient_output_matches_measure_py() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = "--hosts localhost:2 --model resnet50_v1b --arrays all -n 2 -w 1";
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth(options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let arrays = "\nnum of arrays = 161, total size = 102.228128 MB\n# training exchanges 161 arrays, 102.228128 MB\n";
    assert!(stdout.contains(arrays), "{stdout}");
    let record = sandbox.bandwidth_record("1n2g");
    assert_eq!((record.failure.as_deref(), record.results.len()), (None, 1));
    let result = &record.results[0];
    assert_eq!((result.bytes, result.count), (Bytes(102_228_128), 25_557_032));
    // 25 MB per bucket make four; the last one is split before its last MB.
    assert_eq!(result.buckets, [26_046_368, 26_255_360, 25_747_456, 23_277_568, 901_376].map(Bytes));
    // The backend of the wire determines if the sums have separate memory, as in training.
    let mut sides = result.sides().into_iter().filter_map(|(_, timing)| timing);
    let timing = sides.next().expect("one side");
    assert!(sides.next().is_none());
    let printed: Vec<&str> = stdout.lines().filter(|line| line.starts_with("iter ")).collect();
    assert_eq!(printed, lines::iterations(result, 2, 1));
    assert_eq!(printed.len(), 2);
    assert!(timing.error.iter().all(|error| *error < 1e-6), "{:?}", timing.error);
}

#[test]
fn measure_format_is_the_whole_output_of_measure_py() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options =
        "--hosts localhost:2 --network lenet --strategy device --num-batches 4 -w 1 --disp-batches 2 --format measure";
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth(options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let lines: Vec<&str> = stdout.lines().filter(|line| line.starts_with("INFO:root:")).collect();
    let starts = [
        "INFO:root:Namespace(disp_batches=2, gpus='0,1', image_shape='3,28,28', kv_store='device', network='lenet', num_batches=4,",
        "INFO:root:num of arrays = 8, total size = 1.724320 MB",
        "INFO:root:iter 2, ",
        "INFO:root:iter 4, ",
    ];
    assert_eq!(lines.len(), starts.len(), "{stdout}");
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{stdout}");
    let (status, _, stderr) = run(&mut sandbox.bandwidth("--hosts localhost:2 --format measure"));
    assert!(status == Some(2) && stderr.contains("--format and --disp-batches apply to the gradients"), "{stderr}");
}

#[test]
fn gradients_are_exchanged_singly_and_with_update() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = "--hosts localhost:2 --model resnet50_v1b --arrays all -n 1 -w 0 --bucket-mb 0 --optimizer sgd";
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth(options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let record = sandbox.bandwidth_record("1n2g");
    assert_eq!(record.results[0].buckets.len(), 161);
    assert_eq!(record.failure, None);
}

#[test]
fn missed_minimum_fails_and_keeps_the_record() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = "--hosts localhost:2 --cases 1n2g -b 1K -e 1K -n 2 -w 0 --min-busbw";
    let stderr = fails(sandbox.bandwidth(options).arg("1000"));
    assert!(
        stderr.contains("error: 1n2g: average bus bandwidth ") && stderr.contains(" is below --min-busbw 1000"),
        "{stderr}"
    );
    let record = sandbox.bandwidth_record("1n2g");
    assert_eq!(record.failure, lines::below_minimum(&record.results, Bus::all_reduce(2), GigabytesPerSecond(1000.0)));
    assert_eq!(record.results.len(), 1);

    fs::remove_dir_all(sandbox.path("out")).expect("removed");
    let (status, stdout, stderr) =
        run(sandbox.bandwidth("--cases 1n2g --hosts localhost:2 -b 1K -e 1K -n 2").args(["--min-busbw", "0"]));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
}

#[test]
fn unchecked_results_are_marked() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let stdout = succeeds(&mut sandbox.worker_ranks(2, "-b 8 -e 8 -n 2 -w 0 -c 0"));
    let rows = rows(&stdout);
    assert_eq!((rows.len(), rows[0][8], rows[0][12]), (1, "N/A", "N/A"), "{stdout}");
    expect!["# Out of bounds values : 0 OK"].assert_eq(&lines_with(&stdout, "# Out of"));
}

/// Checks the values that known parsers of nccl-tests' output extract, each by its own rule.
#[test]
fn nccl_tests_parsers_read_the_output() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let by_hand = |options: &str| sandbox.worker_ranks(2, options);
    let launched = |options: &str| sandbox.bandwidth(&format!("--hosts localhost:2 --cases 1n2g {options}"));
    let starts: [&dyn Fn(&str) -> Command; 2] = [&by_hand, &launched];
    for (start, checked) in starts.into_iter().flat_map(|start| ["", "-c 0"].map(|checked| (start, checked))) {
        let _ = fs::remove_dir_all(sandbox.path("out"));
        let stdout = succeeds(&mut start(&format!("-b 1K -e 16K -f 4 -n 4 -w 1 {checked}")));
        let rows = rows(&stdout);
        let busbw: Vec<&str> = rows.iter().map(|row| row[11]).collect();
        assert_eq!(busbw.len(), 3, "{stdout}");
        let out_of_place: Vec<&str> = rows.iter().map(|row| row[7]).collect();
        assert_eq!(superbenchmark(&stdout), out_of_place, "{stdout}");
        assert_eq!(cloudai(&stdout), busbw, "{stdout}");
        let columns: Vec<String> = rows.iter().map(|row| format!("{} {}", row[7], row[11])).collect();
        assert_eq!(awk("$1 ~ /^[0-9]+$/ { print $8, $12 }", &stdout), columns, "{stdout}");
        // grep 'Avg bus bandwidth' | awk '{print $NF}', as in FlagPerf and many scripts.
        let average = stdout.lines().find(|line| line.contains("# Avg bus bandwidth")).expect("nccl-tests' foot");
        let average = average.split_whitespace().next_back().expect("a word");
        assert!(average.parse::<f64>().is_ok_and(|rate| rate > 0.0), "{average}");
        expect!["# Out of bounds values : 0 OK"].assert_eq(&lines_with(&stdout, "# Out of"));
    }
}

/// Returns the lines that the awk program prints.
fn awk(program: &str, input: &str) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), input).expect("written");
    let stdout = succeeds(Command::new("awk").arg(program).arg(file.path()));
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn single_worker_is_one_rank() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    let mut command = Command::new(sandbox.worker());
    let (status, stdout, stderr) = run(command.args(words("bandwidth --device cpu -b 8 -e 64 -f 8 -n 2 -w 0")));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let rows = rows(&stdout);
    assert_eq!(rows.len(), 2, "{stdout}");
    assert!(rows.iter().all(|row| (row[7], row[8]) == ("0.00", "0")), "{stdout}");
}

#[test]
fn load_before_the_first_run_is_recorded() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    let record = sandbox.path("bandwidth.json");
    let mut command = Command::new(sandbox.worker());
    command.args(words("bandwidth --device cpu -b 8 -e 8 -n 1 -w 0 --json")).arg(&record);
    succeeds(command.env("RINGMARK_LOAD_BEFORE", "7.5@2@a,b"));
    let load = InitialLoad { hosts: "a,b".to_owned(), load: 7.5, cores: 2 };
    assert_eq!(read(&record).environment.load_before, Some(load));
    let (status, _, stderr) = run(command.env("RINGMARK_LOAD_BEFORE", "much"));
    assert_eq!(status, Some(2));
    expect![[r#"
        error: RINGMARK_LOAD_BEFORE=much is not a load: unset it
    "#]]
    .assert_eq(&stderr);
}

#[test]
fn killed_rank_ends_all_ranks() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for backend in ["mpi", "shared-memory"] {
        let mut command = sandbox.bandwidth("--hosts localhost:2 --cases 1n2g -b 4M -e 4M -n 10000000 --backend");
        let output = File::create(sandbox.path("output")).expect("created");
        command.arg(backend).stdout(Stdio::null()).stderr(output);
        let mut command = command.spawn().expect("starts");
        let log = sandbox.path("out/1n2g/bandwidth.log.part");
        wait_until("the table begins", || fs::read_to_string(&log).is_ok_and(|log| log.contains("#wrong")));
        let program = sandbox.worker().display().to_string();
        let processes = processes_of(sandbox.folder.path());
        let (rank, _) = processes.iter().rfind(|(_, line)| line.starts_with(&program)).expect("a rank");
        kill(*rank, Signal::SIGKILL).expect("it runs");
        assert_eq!(command.wait().expect("ended").code(), Some(1), "{backend}");
        let stderr = fs::read_to_string(sandbox.path("output")).expect("read");
        assert!(stderr.starts_with("error: 1n2g failed: rank "), "{stderr}");
        assert!(stderr.contains(" was killed by signal 9 (SIGKILL) in "), "{stderr}");
        assert!(!sandbox.path("out/1n2g/bandwidth.json").exists());
        assert_eq!(sandbox.left(), Vec::<String>::new(), "{backend}");
        fs::remove_dir_all(sandbox.path("out")).expect("removed");
    }
}

#[test]
fn unsupported_worker_options_are_rejected_at_start() {
    let sandbox = Sandbox::real();
    let tokens = take_cores(1);
    let alone = |options: &str, code: i32| {
        let mut command = Command::new(sandbox.worker());
        refused(command.arg("bandwidth").args(words(options)), code)
    };
    check_refusals(
        &expect![[r#"
            -b x
                error: invalid value 'x' for '--begin <SIZE>': "x" is not a size: use bytes, or a number with K, M or G (steps of 1024), such as 64K
            -b 64 -e 8
                error: --end 8 bytes is below --begin 64 bytes: use the smaller size for --begin (-b)
            --min-busbw NaN
                error: --min-busbw NaN is out of range: choose 0 to 1000000
            --optimizer sgd
                error: --optimizer sgd needs weights to update: add --model resnet50_v1b
        "#]],
        |options| alone(options, 2),
    );
    drop(tokens);

    // More memory than any machine has.
    let _tokens = take_cores(2);
    let mut command = sandbox.worker_ranks(2, "-b 1000G -e 1000G -n 1 -w 0");
    let stderr = fails(&mut command);
    assert!(stderr.contains("memory") && stderr.contains("--end"), "{stderr}");
    assert_eq!(sandbox.left(), Vec::<String>::new());

    let mut command = sandbox.worker_ranks(2, "-b 8 -e 8 -n 1 --json /nowhere/record.json");
    let stderr = fails(&mut command);
    assert!(stderr.contains("/nowhere/record.json cannot be written"), "{stderr}");
    assert_eq!(sandbox.left(), Vec::<String>::new());
}

//! `ringmark diff` of bandwidth records and of files of nccl-tests and PyTorch.

use expect_test::expect;
use ringmark_core::dimension::DeviceKind;
use serde_json::{Value, json};

use crate::support::diff::{bandwidth, diff, sweep};
use crate::support::runs::Folder;
use crate::support::sandbox::lines_with;

/// Creates a file of PyTorch's benchmark with one model from (ranks, seconds per iteration) pairs.
fn pytorch(batch_size: u32, bucket_size: u32, groups: &[(usize, f64)]) -> String {
    let group = |(ranks, time): &(usize, f64)| {
        let measurements: Vec<f64> = (0..10 * ranks).map(|place| time * (1.0 + 0.001 * (place % 7) as f64)).collect();
        json!({"ranks": (0..*ranks).collect::<Vec<_>>(), "measurements": measurements})
    };
    let groups: Vec<Value> = groups.iter().map(group).collect();
    json!({"pytorch_version": "2.11.0", "cuda_version": "13.0", "distributed_backend": "nccl", "bucket_size": bucket_size,
        "benchmark_results": [{"model": "resnet50", "batch_size": batch_size, "result": groups}]})
    .to_string()
}

#[test]
fn pytorch_ddp_files_are_paired_by_ranks() {
    let (base, test) = (Folder::new(), Folder::new());
    for (run, factor) in [(1, 1.0), (2, 1.003), (3, 0.998)] {
        let name = format!("run{run}.json");
        base.write(&name, pytorch(32, 25, &[(1, 0.1), (1, 0.11 * factor), (2, 0.12 * factor), (4, 0.13)]));
        // One result with DistributedDataParallel is missing, and the others are in a different order.
        test.write(&name, pytorch(32, 50, &[(1, 0.1 * factor), (8, 0.2), (4, 0.13 * factor), (2, 0.13 * factor)]));
    }
    let output = diff(base.path(), test.path(), &["--json"]);
    let verdict = |name: &str, verdict: &str| (name.to_owned(), verdict.to_owned());
    let expected =
        [verdict("1 rank, no DDP", "no_difference"), verdict("2 ranks", "slower"), verdict("4 ranks", "no_difference")];
    assert_eq!(output.verdicts(), expected);
    let json = output.json();
    assert_eq!((&json["only_in_base"], &json["only_in_test"]), (&json!(["1 rank"]), &json!(["8 ranks"])));
    assert_eq!(json["differences"], json!([{"name": "bucket_size", "base": "25", "test": "50"}]));
    // Two ranks process 64 images in about 0.12 s.
    let throughput = json["tables"][0]["cases"][1]["throughput"]["base"].as_f64().expect("a number");
    assert!((throughput - 64.0 / 0.12).abs() < 5.0, "{throughput}");
    diff(base.path(), test.path(), &[]).is_ok_with(&["p95 ms", "bucket_size: 25 -> 50"]);

    // One file is one run.
    let output = diff(base.path().join("run1.json"), test.path().join("run2.json"), &[]);
    output.is_ok_with(&["Too few runs", "1 run each"]);
    base.write("larger.json", pytorch(64, 25, &[(1, 0.2)]));
    diff(base.path().join("larger.json"), base.path().join("run1.json"), &[])
        .is_refused(&["batch size: 64 in BASE, 32 in TEST"]);
    base.write("twice.json", pytorch(32, 25, &[(1, 0.2), (2, 0.2), (2, 0.2)]));
    let twice = diff(base.path().join("twice.json"), base.path().join("run1.json"), &[]);
    assert!(twice.status == 1 && twice.stderr.contains("two results of resnet50 with 2 ranks"), "{}", twice.stderr);
}

#[test]
fn invalid_pytorch_ddp_times_are_reported() {
    let base = Folder::new();
    base.write("base.json", pytorch(32, 25, &[(1, 0.1), (2, 0.12)]));
    let base = base.path().join("base.json");
    let described = |second: Value, words: &str| {
        let mut file: Value = serde_json::from_str(&pytorch(32, 25, &[(1, 0.1), (2, 0.12)])).expect("JSON");
        let result = &mut file["benchmark_results"][0];
        let own = second.as_object().expect("fields").clone();
        let place = if own.contains_key("label") { &mut result["ringmark"] } else { &mut result["result"][1] };
        *place = second;
        let test = Folder::new();
        test.write("test.json", file.to_string());
        let output = diff(&base, test.path().join("test.json"), &["--force"]);
        assert!(output.status == 1 && output.stderr.contains(words), "{}{}", output.stdout, output.stderr);
    };
    let two = |measurements: &[f64]| json!({"ranks": [0, 1], "measurements": measurements});
    described(two(&[0.12, -0.5]), "test.json: resnet50 with 2 ranks has an invalid iteration time: -0.5 s");
    described(two(&[0.0]), "resnet50 with 2 ranks has an invalid iteration time: 0 s");
    described(two(&[]), "resnet50 with 2 ranks has no measurements");
    described(json!({"ranks": [], "measurements": [0.1]}), "resnet50 with 0 ranks has no ranks, or images");
    let silent = json!({"label": "", "dtype": "fp32", "without_communication": [two(&[0.12, 0.0])]});
    described(silent, "resnet50 with 2 ranks has an invalid iteration time: 0 s");
}

/// Creates a file of nccl-tests from bytes and out-of-place microseconds; in place takes a little longer.
fn nccl_tests(program: &str, variables: &[&str], messages: &[(u64, f64)], wrong: f64) -> String {
    // The bus bandwidth factor for two ranks is 1 for all-reduce and 0.5 otherwise.
    let share = if program.contains("all_reduce") { 1.0 } else { 0.5 };
    let timing = |bytes: &u64, time: f64| {
        let rate = *bytes as f64 / time / 1e3;
        json!({"time": time, "alg_bw": rate, "bus_bw": share * rate, "nwrong": wrong})
    };
    let message = |(bytes, time): &(u64, f64)| {
        json!({"size": bytes, "count": bytes / 4, "type": "float", "redop": "sum", "root": "    -1",
            "out_of_place": timing(bytes, *time), "in_place": timing(bytes, 1.01 * time), "actual_iterations": 20,
            "experiment_name": ""})
    };
    let device = |rank: u32| {
        json!({"rank": rank, "group": 0, "pid": rank, "hostname": "a", "device": rank, "device_hex": "0000:01:00",
            "device_info": "V100"})
    };
    json!({"version": 2, "start_time": "2026-07-09 10:00:00", "args": [program, "-J", "x.json"], "env": variables,
        "nccl_version": 22809, "config": {"nthreads": 1, "ngpus": 1, "minimum_bytes": 8, "iterations": 20,
        "devices": [device(0), device(1)]}, "results": messages.iter().map(message).collect::<Vec<_>>(),
        "out_of_bounds": {"count": 0, "okay": "true"}, "errors": [""], "end_time": "2026-07-09 10:01:00"})
    .to_string()
}

const ALL_REDUCE: &str = "build/all_reduce_perf";

#[test]
fn nccl_tests_files_are_paired_by_message() {
    let (base, test) = (Folder::new(), Folder::new());
    // nccl-tests names a second file all.json.0.
    for (name, factor) in [("all.json", 1.0), ("all.json.0", 1.002), ("all.json.1", 0.997)] {
        base.write(
            name,
            nccl_tests(ALL_REDUCE, &["NCCL_ALGO=Ring", "HOME=/root"], &[(8, 10.0), (1 << 20, 100.0 * factor)], 0.0),
        );
        let slower = [(1 << 20, 110.0 * factor), (16, 10.0), (8, 10.0 * factor)];
        test.write(name, nccl_tests(ALL_REDUCE, &["NCCL_ALGO=Tree", "HOME=/home"], &slower, 0.0));
    }
    let output = diff(base.path(), test.path(), &["--json"]);
    let names: Vec<(String, String)> = output.verdicts();
    let expected =
        [("8 B out", "no_difference"), ("8 B in", "no_difference"), ("1 MiB out", "slower"), ("1 MiB in", "slower")];
    assert_eq!(names, expected.map(|(name, verdict)| (name.to_owned(), verdict.to_owned())));
    let json = output.json();
    assert_eq!(json["tables"][0]["title"], "all_reduce sum, 2 ranks on one host, float, cuda");
    assert_eq!(json["differences"], json!([{"name": "NCCL_ALGO", "base": "Ring", "test": "Tree"}]), "nothing of HOME");
    assert_eq!(json["only_in_test"], json!(["16 B out", "16 B in"]));
    diff(base.path(), test.path(), &["--explain"]).is_ok_with(&["GB/s", "-9.09", "reciprocal"]);

    // Different collectives cannot be compared.
    base.write("all.json", nccl_tests("all_gather_perf", &[], &[(8, 10.0)], 0.0));
    diff(base.path().join("all.json"), test.path(), &[])
        .is_refused(&["nothing in common: BASE has all_gather sum, 2 ranks"]);
    // Wrong sums have no speed.
    test.write("all.json.1", nccl_tests(ALL_REDUCE, &["NCCL_ALGO=Tree"], &[(1 << 20, 50.0)], 3.0));
    let output = diff(base.path().join("all.json.0"), test.path(), &[]);
    assert_eq!(output.status, 1);
    expect![[r#"
        not compared, TEST: DIR/first/all.json.1: 1 MiB out: 3 wrong elements: speed is not reported for incorrect sums
        not compared, TEST: DIR/first/all.json.1: 1 MiB in: 3 wrong elements: speed is not reported for incorrect sums"#]].assert_eq(&lines_with(&output.stderr, "all.json.1: 1 MiB"));
    assert!(output.stderr.ends_with("the comparison is not complete: see the 2 messages above\n"), "{}", output.stderr);
    test.write("all.json.2", "{\"version\": 2, \"args\": [\"x\"], \"nccl_version\": 1,\n");
    let output = diff(base.path().join("all.json.0"), test.path(), &[]);
    expect!["not compared, TEST: DIR/first/all.json.2: not JSON: EOF while parsing a value at line 2 column 0"]
        .assert_eq(&lines_with(&output.stderr, "all.json.2: not JSON:"));
}

/// Writes three runs of 1 MiB, and a fourth with a change.
fn nccl_tests_with_a_changed_run(program: &str, change: impl Fn(String) -> String) -> Folder {
    let folder = Folder::new();
    for (run, factor) in [(1, 1.0), (2, 1.002), (3, 0.997), (4, 1.001)] {
        let text = nccl_tests(program, &[], &[(1 << 20, 100.0 * factor)], 0.0);
        folder.write(&format!("{run}.json"), if run == 4 { change(text) } else { text });
    }
    folder
}

#[test]
fn invalid_count_of_wrong_elements_excludes_the_file() {
    let base = nccl_tests_with_a_changed_run(ALL_REDUCE, |text| text);
    for (written, shown) in [("\"nan\"", "NaN"), ("-1.0", "-1"), ("\"?\"", "NaN")] {
        let change = |text: String| text.replace("\"nwrong\":0.0", &format!("\"nwrong\":{written}"));
        let test = nccl_tests_with_a_changed_run(ALL_REDUCE, change);
        let output = diff(base.path(), test.path(), &["--json"]);
        let words = format!("4.json: 1 MiB out: invalid number of wrong elements: {shown}");
        assert!(output.status == 1 && output.stderr.contains(&words), "{}", output.stderr);
        assert_eq!(output.json()["test"]["runs"], 3);
    }
}

#[test]
fn inconsistent_nccl_tests_rates_are_excluded() {
    let base = nccl_tests_with_a_changed_run(ALL_REDUCE, |text| text);
    diff(base.path(), base.path(), &[]).is_ok_with(&["10.4", "No difference"]);
    // Only the time is ten times as long, or a rate is that of another message.
    let changed = |field: &'static str, factor: f64| {
        move |text: String| {
            let mut file: Value = serde_json::from_str(&text).expect("JSON");
            let figure = &mut file["results"][0]["out_of_place"][field];
            *figure = json!(figure.as_f64().expect("a number") * factor);
            file.to_string()
        }
    };
    for (field, factor, words) in [
        ("time", 10.0, "alg_bw is 10.475284715284715 GB/s, but its time of 1001 us gives 1.047528"),
        ("bus_bw", 1.03, "bus_bw is 10.7"),
        ("alg_bw", 0.5, "alg_bw is 5.2"),
    ] {
        let test = nccl_tests_with_a_changed_run(ALL_REDUCE, changed(field, factor));
        let output = diff(base.path(), test.path(), &["--json"]);
        let words = format!("4.json: 1 MiB out: {words}");
        assert!(output.status == 1 && output.stderr.contains(&words), "{}", output.stderr);
        assert_eq!(output.stderr.matches("4.json").count(), 1, "in place is sound: {}", output.stderr);
    }
    // Deviations within rounding are not contradictions, and other collectives have a smaller factor.
    let test = nccl_tests_with_a_changed_run(ALL_REDUCE, changed("bus_bw", 1.01));
    diff(base.path(), test.path(), &["--json"]).is_ok_with(&["no_difference"]);
    let gather = nccl_tests_with_a_changed_run("alltoall_perf", |text| text);
    diff(gather.path(), gather.path(), &[]).is_ok_with(&["5.2", "No difference"]);
}

#[test]
fn newer_nccl_tests_format_is_read_without_empty_messages() {
    let (base, test) = (Folder::new(), Folder::new());
    for run in 1..=3 {
        // -b 1 with floats: two messages of zero bytes.
        let text = nccl_tests(ALL_REDUCE, &[], &[(0, 5.0), (0, 5.5), (1 << 20, 100.0 + 0.1 * f64::from(run))], 0.0);
        base.write(&format!("{run}.json"), text.clone());
        let later = text.replace("\"version\":2", "\"version\":4,\"added\":{\"later\":[1]}");
        test.write(&format!("{run}.json"), later);
    }
    let output = diff(base.path(), test.path(), &["--json"]);
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
    let cases = output.json()["tables"][0]["cases"].clone();
    let names: Vec<&str> =
        cases.as_array().expect("a list").iter().map(|case| case["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["1 MiB out", "1 MiB in"]);
    diff(base.path(), test.path(), &[]).is_ok_with(&[
        "nccl-tests format 4; this ringmark reads only the fields of format 3",
        "messages of 0 bytes are not compared: they have no bandwidth",
        "No difference",
    ]);
}

#[test]
fn many_verdicts_have_a_note_on_chance() {
    let (base, test) = (Folder::new(), Folder::new());
    let messages = |factor: f64| (0..10).map(|power| (8 << power, 10.0 * factor)).collect::<Vec<(u64, f64)>>();
    for (run, factor) in [(1, 1.0), (2, 1.001)] {
        base.write(&format!("{run}.json"), nccl_tests(ALL_REDUCE, &[], &messages(factor), 0.0));
        test.write(&format!("{run}.json"), nccl_tests(ALL_REDUCE, &[], &messages(factor), 0.0));
    }
    diff(base.path(), test.path(), &[])
        .is_ok_with(&["20 verdicts: if nothing has changed, up to 1 of them", "--significance 0.25%"]);
}

#[test]
fn bandwidth_records_are_compared_with_nccl_tests() {
    let (base, test) = (Folder::new(), Folder::new());
    for (run, factor) in [(1, 1.0), (2, 1.001), (3, 0.999)] {
        base.write(&format!("run{run}/1n2g/bandwidth.json"), bandwidth(1e-3 * factor, DeviceKind::Cuda, None));
        test.write(&format!("run{run}.json"), nccl_tests(ALL_REDUCE, &[], &[(1 << 20, 900.0 * factor)], 0.0));
    }
    let same = diff(base.path(), base.path(), &[]);
    same.is_ok_with(&["all_reduce sum, 2 ranks on one host, float, cuda", "1 MiB out", "No difference"]);
    // 2^20 bytes in 1 ms over two ranks: 1.049 GB/s.
    same.is_ok_with(&["1.049"]);
    let across = diff(base.path(), test.path(), &[]);
    across.is_ok_with(&["program: ringmark bandwidth -> nccl-tests", "Faster", "+11.1"]);
    assert!(!across.stdout.contains("p50"), "percentiles of different things: {}", across.stdout);

    test.write("cpu.json", bandwidth(1e-3, DeviceKind::Cpu, None));
    diff(base.path(), test.path().join("cpu.json"), &[]).is_refused(&["device: cuda in BASE, cpu in TEST"]);
    diff(base.path(), test.path(), &[]).is_refused(&[
        "mixes file types",
        "record of ringmark bandwidth",
        "3 JSON files of nccl-tests (",
    ]);
    base.write("run4/1n2g/bandwidth.json", bandwidth(1e-3, DeviceKind::Cuda, Some("4 wrong elements")));
    let failed = diff(base.path(), base.path().join("run1/1n2g/bandwidth.json"), &[]);
    assert!(
        failed.status == 1 && failed.stderr.contains("the run failed: 4 wrong elements: repeat it"),
        "{}",
        failed.stderr
    );
}

/// Other operations are compared by nccl-tests' names; two different operations are not compared.
#[test]
fn only_equal_operations_are_compared() {
    let (base, test) = (Folder::new(), Folder::new());
    let of = |operation: &str, root: u32| {
        let record = bandwidth(1e-3, DeviceKind::Cuda, None);
        let record = record.replace("\"operation\":\"all_reduce\"", &format!("\"operation\":\"{operation}\""));
        record.replace("\"root\":0", &format!("\"root\":{root}"))
    };
    base.write("1.json", of("all_gather", 0));
    let gathered = nccl_tests("all_gather_perf", &[], &[(1 << 20, 900.0)], 0.0).replace("\"sum\"", "\"none\"");
    test.write("1.json", gathered);
    let across = diff(base.path(), test.path(), &[]);
    // 2^20 bytes in 1 ms, of which each of two ranks must receive half: 0.52429 GB/s.
    across.is_ok_with(&["all_gather, 2 ranks on one host, float, cuda", "0.524", "1 MiB out", "1 MiB in"]);
    test.write("1.json", of("broadcast", 1));
    diff(base.path(), test.path(), &[])
        .is_refused(&["BASE has all_gather, 2 ranks", "broadcast, 2 ranks on one host, root 1"]);
    // If the output cannot be in place, nccl-tests measures something else there.
    base.write("1.json", of("sendrecv", 0));
    test.write("1.json", nccl_tests("sendrecv_perf", &[], &[(1 << 20, 900.0)], 0.0).replace("0.58", "1.16"));
    diff(base.path(), base.path(), &[]).is_ok_with(&["sendrecv sum, 2 ranks on one host", "1 MiB in, by a copy"]);
}

#[test]
fn different_benchmarks_are_not_compared() {
    let training = sweep(&["1n1g"], 0.5, |_| {});
    let files = Folder::new();
    files.write("ddp.json", pytorch(32, 25, &[(1, 0.1)]));
    let output = diff(training.path(), files.path(), &["--force"]);
    output.is_refused(&[
        "training runs of ringmark or DLPerf",
        "PyTorch's DDP benchmark",
        "not comparable, even with --force",
    ]);
    training.write("ddp.json", pytorch(32, 25, &[(1, 0.1)]));
    diff(training.path(), training.path().join("none"), &[]).is_refused(&["error: folder not found: "]);
    diff(training.path(), training.path(), &[])
        .is_refused(&["BASE", "mixes file types: 3 training runs with logs; 1 JSON file of PyTorch's DDP benchmark"]);
}

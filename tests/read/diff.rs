//! Tests of `ringmark diff`: formats, conditions, verdicts.

use std::fs;
use std::path::Path;

use expect_test::expect;
use ringmark::read::analyze::training::result_json::JsonResult;
use ringmark::read::results;
use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::exchange::{BackendChoice, NcclAlgorithm};
use ringmark_core::benchmark::train::{Fault, RunRecord};
use ringmark_core::dimension::{BackendName, DeviceKind, Dtype, LayoutChoice, Model, TeraflopsPerSecond};
use serde_json::{Value, json};

use crate::support::diff::{Output, bandwidth, diff, sweep};
use crate::support::golden::assert_golden;
use crate::support::runs::{Folder, record};
use crate::support::sandbox::{ringmark, run, succeeds};
use crate::support::temporary_folder::without_folder;

#[test]
fn sweeps_are_compared_in_every_format() {
    let base = sweep(&["1n1g", "1n2g", "1n4g"], 0.5, |_| {});
    let test = sweep(&["1n1g", "1n2g", "2n2g"], 0.5, |run| {
        let environment = &mut run.header.environment;
        environment.libtorch_version = "2.12.0".to_owned();
        environment.variables.insert("NCCL_ALGO".to_owned(), "Tree".to_owned());
        run.header.config.exchange.bucket_mb = 10.0;
        // 1n1g is unchanged, 1n2g is slower.
        if run.header.case.ranks() == 2 {
            run.iterations.iter_mut().flat_map(|iteration| &mut iteration.step).for_each(|step| step.0 *= 1.05);
            run.end.as_mut().expect("sound").wall.0 *= 1.05;
        }
    });
    let mut failed = record("1n2g", 4, 0.5);
    failed.end = None;
    test.run(&failed);
    let named = |text: &str| {
        let name = |folder: &Folder| folder.path().display().to_string();
        text.replace(&name(&base), "before").replace(&name(&test), "after")
    };
    for (file, options) in
        [("table.txt", &[][..]), ("comment.md", &["--format", "markdown"]), ("diff.json", &["--json"])]
    {
        let output = diff(base.path(), test.path(), options);
        assert_eq!(output.status, 1);
        assert!(
            named(&output.stderr).starts_with("not compared, TEST: after/1n2g/rn50_b4_fp32_4.jsonl: the run failed: ")
        );
        assert!(output.stderr.ends_with("error: the comparison is not complete: see the message above\n"));
        assert_golden(&format!("diff/{file}"), &named(&output.stdout));
    }
    let table = diff(base.path(), test.path(), &[]).stdout;
    let body = table.lines().skip_while(|line| !line.starts_with("Differences"));
    body.for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
}

#[test]
fn unreadable_file_is_named_once() {
    let (base, test) = (sweep(&["1n1g"], 0.5, |_| {}), sweep(&["1n1g"], 0.5, |_| {}));
    // The second is the record of a run, which the run's problem names.
    let files = ["other.jsonl", "1n1g/rn50_b4_fp32_3.jsonl"].map(|name| test.path().join(name));
    files.iter().for_each(|file| fs::write(file, "{broken").expect("written"));
    let output = diff(base.path(), test.path(), &[]);
    assert_eq!(output.status, 1);
    for file in files {
        let name = format!("not compared, TEST: {}: ", file.display());
        assert_eq!(output.stderr.matches(&name).count(), 1, "{name}\n{}", output.stderr);
    }
}

#[test]
fn folder_and_its_json_give_the_same_comparison() {
    let (base, test) = (sweep(&["1n1g", "1n2g"], 0.5, |_| {}), sweep(&["1n1g", "1n2g"], 0.53, |_| {}));
    let result = |folder: &Folder| {
        let out = folder.parent.path().join("out");
        succeeds(ringmark("extract").arg(folder.path()).arg("--out").arg(&out));
        out.join("first_result.json")
    };
    let pathless = |output: Output| {
        let mut json = output.json();
        for side in ["base", "test"] {
            json[side]["path"] = Value::Null;
        }
        json
    };
    let folders = pathless(diff(base.path(), test.path(), &["--json"]));
    assert_eq!(folders["tables"][0]["cases"][1]["verdict"], "slower");
    assert_eq!(pathless(diff(result(&base), test.path(), &["--json"])), folders);
    assert_eq!(pathless(diff(result(&base), result(&test), &["--json"])), folders);
    // A folder to which extract has written its result is not a mixture.
    fs::copy(result(&base), base.path().join("first_result.json")).expect("copied");
    assert_eq!(pathless(diff(base.path(), test.path(), &["--json"])), folders);
}

#[test]
fn baselines_and_pytorch_ddp_exports_are_compared() {
    let suite = |step: f64, exchange: f64| {
        let folder = sweep(&["1n1g"], step, |_| {});
        for run in 1..=3 {
            let factor = 1.0 + f64::from(run) / 1000.0;
            let mut silent = record("1n2g", run, step * factor);
            silent.header.config.exchange.backend = BackendChoice::None;
            silent.header.backend = BackendName::None;
            folder.run(&silent);
            folder.run(&record("1n2g", run, (step + exchange) * factor));
        }
        folder
    };
    let (base, test) = (suite(0.5, 0.05), suite(0.5, 0.1));
    let verdicts = |expected: &[(&str, &str)]| {
        expected.iter().map(|(name, verdict)| ((*name).to_owned(), (*verdict).to_owned())).collect::<Vec<_>>()
    };
    // Only the communication became slower.
    let expected = verdicts(&[("1n1g", "no_difference"), ("1n2g", "slower"), ("1n2g baseline", "no_difference")]);
    assert_eq!(diff(base.path(), test.path(), &["--json"]).verdicts(), expected);

    let files = Folder::new();
    for (name, folder) in [("base.json", &base), ("test.json", &test)] {
        let (_, json, _) = run(ringmark("extract --format pytorch-ddp").arg(folder.path()));
        files.write(name, json);
    }
    let output = diff(files.path().join("base.json"), files.path().join("test.json"), &["--json"]);
    let names = ["1 rank, no DDP", "1 rank", "2 ranks", "2 ranks, baseline"];
    assert_eq!(output.verdicts(), verdicts(&names.map(|name| (name, "too_noisy"))), "one file is one run");
    let json = output.json();
    assert_eq!(json["tables"][0]["title"], "resnet50, fp32, batch size 4, image size 64, cpu");
    let change =
        |case: usize| json["tables"][0]["cases"][case]["mean_seconds"]["difference"].as_f64().expect("a number");
    assert!((change(2) - 0.05 / 0.55).abs() < 1e-3 && change(3).abs() < 1e-9, "{json}");
}

/// Reads the result of an older ringmark for a committed folder, with other names.
#[test]
fn result_of_version_1_equals_its_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("tests/golden/old_results/suite-2-cores");
    let old = root.join("tests/golden/diff/result_version_1.json");
    assert!(fs::read_to_string(&old).expect("committed").contains("\"surroundings\""), "of version 1");
    let runs = Folder::new();
    for case in ["1n1g", "1n2g", "no-communication/1n1g", "no-communication/1n2g"] {
        for file in fs::read_dir(folder.join(case)).into_iter().flatten().flatten() {
            let name = format!("{case}/{}", file.file_name().to_string_lossy());
            runs.write(&name, fs::read(file.path()).expect("committed"));
        }
    }
    let output = diff(&old, runs.path(), &[]);
    output.is_ok_with(&["No recorded setting differs."]);
    let compared = diff(old, runs.path(), &["--json"]).json();
    let cases = compared["tables"][0]["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), 3, "with and without communication: {compared}");
    for case in cases {
        let difference = case["throughput"]["difference"].as_f64().expect("a number");
        assert!(difference.abs() < 1e-9, "{case}");
    }
    // A file of a newer ringmark must not be interpreted.
    let mut newer: Value = serde_json::from_str(
        &JsonResult::new(&results::read_training(&runs.path(), None).expect("runs"), None).text().expect("numbers"),
    )
    .expect("JSON");
    newer["schema"] = json!(7);
    let files = Folder::new();
    files.write("newer.json", newer.to_string());
    let refused = diff(files.path().join("newer.json"), runs.path(), &[]);
    expect![[r"
        error: BASE: DIR/first/newer.json: result of ringmark extract format 7 is not readable by this ringmark (up to 6): use the ringmark that wrote it
    "]].assert_eq(&without_folder(&refused.stderr));
}

#[test]
fn result_of_version_5_has_the_same_strategy() {
    let runs = sweep(&["1n1g"], 0.5, |_| {});
    let read = |path: &Path| JsonResult::new(&results::read_training(path, None).expect("runs"), None);
    let today = read(&runs.path()).text().expect("numbers");
    let earlier = today.replace("\"strategy\": \"all-reduce\"", "\"kv_store\": \"ring\"");
    assert!(earlier.contains("kv_store"), "{today}");
    let files = Folder::new();
    files.write("earlier.json", earlier.replacen("\"schema\": 6", "\"schema\": 5", 1));
    let compared = diff(files.path().join("earlier.json"), runs.path(), &[]);
    assert!(!compared.stdout.contains("strategy") && !compared.stdout.contains("ring"), "{}", compared.stdout);
}

#[test]
fn result_of_version_3_keeps_its_warnings() {
    let quick = sweep(&["1n1g"], 0.5, |record| record.header.profile = RunProfile::Quick);
    let text =
        JsonResult::new(&results::read_training(&quick.path(), None).expect("runs"), None).text().expect("numbers");
    let old = text.replace("\"reliability_warnings\"", "\"objections\"").replace("\"is_reliable\"", "\"is_quotable\"");
    let old = old.replacen("\"schema\": 6", "\"schema\": 3", 1);
    assert!(old.contains("\"objections\"") && old.contains("\"schema\": 3"), "{old}");
    let files = Folder::new();
    files.write("old.json", old);
    let compared = diff(files.path().join("old.json"), quick.path(), &["--fail-on", "unquotable"]);
    let output_text = "warning: unreliable: BASE: 1n1g: quick profile, a first look";
    assert!(compared.status == 1 && compared.stdout.contains(output_text), "{}{}", compared.stdout, compared.stderr);
    expect![[r"
        error: unreliable: 1n1g
    "]]
    .assert_eq(&compared.stderr);
}

#[test]
fn different_networks_need_force() {
    let base = sweep(&["1n1g"], 0.5, |_| {});
    let test = sweep(&["1n1g"], 0.25, |record| record.header.config.model = Model::Resnet18);
    diff(base.path(), test.path(), &[]).is_refused(&["model: ResNet50-v1b in BASE, ResNet-18 in TEST"]);
    let forced = diff(base.path(), test.path(), &["--force"]);
    forced.is_ok_with(&["not comparable; compared because of --force\n\n  model: ResNet50-v1b -> ResNet-18", "Faster"]);
}

#[test]
fn older_result_has_only_speeds_and_dlperf_json_is_rejected() {
    let base = sweep(&["1n1g"], 0.5, |_| {});
    let extraction = results::read_training(&base.path(), None).expect("runs");
    let result = JsonResult::new(&extraction, None).text().expect("numbers");
    let mut old: Value = serde_json::from_str(&result).expect("JSON");
    let case = old["rows"][0].as_object_mut().expect("a case");
    case.remove("environment");
    for run in case["runs"].as_array_mut().expect("runs") {
        run.as_object_mut().expect("a run").remove("iteration_seconds");
    }
    let files = Folder::new();
    files.write("old.json", old.to_string());
    let output = diff(files.path().join("old.json"), base.path(), &[]);
    output.is_ok_with(&["No difference", "BASE: devices and environment are unknown: written by an older ringmark"]);
    assert!(!output.stdout.contains("p50"), "rounded speeds hold no percentiles");
    output.is_ok_with(&["  runs "]);
    assert!(!output.stdout.contains("GB/s"), "that is of collectives: {}", output.stdout);

    files.write(
        "dlperf.json",
        r#"{"rn50": {"1n1g": {"average_speed": 384.1, "batch_size_per_device": 128,
        "median_speed": 384.19, "speedup": 1.0}}}"#,
    );
    let output = diff(files.path().join("dlperf.json"), base.path(), &[]);
    assert_eq!(output.status, 1);
    expect![[r"
        error: BASE: DIR/first/dlperf.json: 1n1g has no single runs: this is DLPerf's own result, which contains only medians: pass the folder of its logs
    "]].assert_eq(&without_folder(&output.stderr));
}

#[test]
fn dlperf_logs_are_compared() {
    let folder = |speed: f64| {
        let folder = Folder::new();
        for (run, offset) in [(1, 0.0), (2, 0.4), (3, -0.3)] {
            folder.log(&format!("1n8g/rn50_b128_fp32_{run}.log"), &[vec![1.0; 20], vec![speed + offset; 100]].concat());
        }
        folder
    };
    let output = diff(folder(2556.0).path(), folder(2400.0).path(), &[]);
    output.is_ok_with(&[
        "fp32, batch size 128",
        "Slower",
        "BASE: options, devices and environment are unknown: no records",
    ]);
    assert!(!output.stdout.contains("no run of 1n1g"), "no speedup is shown: {}", output.stdout);

    // The device is unknown, so they are compared with a record only if forced.
    let mut recorded = record("1n8g", 1, 0.4);
    recorded.header.config.batch_size = 128;
    let records = Folder::new();
    records.run(&recorded);
    let base = folder(2556.0);
    diff(base.path(), records.path(), &[]).is_refused(&["not comparable", "device: not known in BASE, cpu in TEST"]);
    diff(base.path(), records.path(), &["--force"]).is_ok_with(&["device: not known", "1n8g"]);
}

#[test]
fn unreadable_files_next_to_the_runs_are_reported() {
    let (base, test) = (sweep(&["1n1g"], 0.5, |_| {}), sweep(&["1n1g"], 0.5, |_| {}));
    // The folder may also contain a bandwidth result: the runs are compared.
    test.write("1n2g/bandwidth.json", bandwidth(0.5, DeviceKind::Cpu, None));
    diff(base.path(), test.path(), &[]).is_ok_with(&["No difference"]);
    test.write("nccl.json", "{\"version\": 1, \"results\": [");
    let output = diff(base.path(), test.path(), &[]);
    assert_eq!(output.status, 1, "{}", output.stdout);
    expect![[r"
        not compared, TEST: DIR/first/nccl.json: not JSON: EOF while parsing a list at line 1 column 27
        error: the comparison is not complete: see the message above
    "]]
    .assert_eq(&without_folder(&output.stderr));
}

#[test]
fn different_conditions_are_rejected_with_both_values() {
    let base = sweep(&["1n1g"], 0.5, |_| {});
    type Change = fn(&mut RunRecord);
    let changes: [(&str, Change); 4] = [
        ("device: cpu in BASE, cuda in TEST", |run| run.header.ranks[0].device = DeviceKind::Cuda),
        ("batch size: 4 in BASE, 8 in TEST", |run| run.header.config.batch_size = 8),
        ("precision: fp32 in BASE, bf16 in TEST", |run| run.header.config.dtype = Dtype::Bf16),
        ("image size: 64 in BASE, 224 in TEST", |run| run.header.config.image_size = Some(224)),
    ];
    for (words, change) in changes {
        let test = sweep(&["1n1g"], 0.25, change);
        diff(base.path(), test.path(), &[]).is_refused(&["not comparable", words, "--force"]);
        let (what, values) = words.split_once(": ").expect("two parts");
        let values = values.replace(" in BASE,", " ->").replace(" in TEST", "");
        let forced = diff(base.path(), test.path(), &["--force"]);
        forced.is_ok_with(&[
            "warning: not comparable; compared because of --force",
            &format!("  {what}: {values}"),
            "1n1g",
        ]);
    }
}

#[test]
fn tables_are_paired_by_their_conditions() {
    let both = |first: Dtype, second: Dtype, step: f64| {
        let folder = sweep(&["1n1g"], step, |run| run.header.config.dtype = first);
        for run in 1..=3 {
            let mut record = record("1n1g", run, 2.0 * step * (1.0 + f64::from(run) / 1000.0));
            record.header.config.dtype = second;
            folder.run(&record);
        }
        folder
    };
    // The sides have them in different order, and each has one that the other lacks.
    let output = diff(both(Dtype::Fp32, Dtype::Bf16, 0.5).path(), both(Dtype::Fp16, Dtype::Fp32, 0.25).path(), &[]);
    output.is_ok_with(&[
        "ResNet50-v1b, fp32, batch size 4",
        "Only in BASE, not compared: ResNet50-v1b, bf16, batch size 4",
        "Only in TEST, not compared: ResNet50-v1b, fp16",
    ]);
    assert_eq!(output.stdout.matches("\n1n1g ").count(), 1, "{}", output.stdout);

    // If there are two, options select one of them, or the choice is ambiguous.
    let two = |first: f64, second: f64| {
        let folder = sweep(&["1n1g"], 0.5, |run| run.header.config.exchange.bucket_mb = first);
        for run in 4..=6 {
            let mut record = record("1n1g", run, 1.0 + f64::from(run) / 1000.0);
            record.header.config.exchange.bucket_mb = second;
            folder.run(&record);
        }
        folder
    };
    let output = diff(two(25.0, 10.0).path(), two(10.0, 4.0).path(), &["--json"]);
    let json = output.json();
    let [second, first] = &json["tables"].as_array().expect("tables")[..] else { panic!("two tables: {json}") };
    assert_eq!(
        (&first["title"], &first["differences"]),
        (&json!("ResNet50-v1b, fp32, batch size 4, image size 64, cpu, bucket_mb 10"), &json!([]))
    );
    assert_eq!(second["differences"], json!([{"name": "bucket_mb", "base": "25", "test": "4"}]));
    let unclear = diff(two(25.0, 10.0).path(), two(8.0, 4.0).path(), &[]);
    unclear
        .is_refused(&["several tables of ResNet50-v1b, fp32, batch size 4", "their options do not show which match"]);
}

#[test]
fn sides_without_common_cases_are_rejected() {
    let (base, test) = (sweep(&["1n1g"], 0.5, |_| {}), sweep(&["1n2g"], 0.5, |_| {}));
    diff(base.path(), test.path(), &[]).is_refused(&["no case in common: BASE has 1n1g; TEST has 1n2g"]);
    diff("/nowhere", test.path(), &[]).is_refused(&["folder not found: /nowhere"]);
    let empty = Folder::new();
    let output = diff(empty.path(), test.path(), &[]);
    assert_eq!(output.status, 2);
    expect![[r#"
        error: BASE: DIR/first contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log, for example 1n1g/rn50_b128_fp32_1.log; it contains no results of ringmark; it contains no benchmark JSON either
    "#]].assert_eq(&without_folder(&output.stderr));
    let failed = sweep(&["1n1g"], 0.5, |run| run.end = None);
    let output = diff(failed.path(), test.path(), &[]);
    assert_eq!(output.status, 1);
    expect![[r"
        error: BASE: DIR/first contains no run that counts
          DIR/first/1n1g/rn50_b4_fp32_1.jsonl: the run failed: stopped after iteration 6, without an end line: repeat it
          DIR/first/1n1g/rn50_b4_fp32_2.jsonl: the run failed: stopped after iteration 6, without an end line: repeat it
          DIR/first/1n1g/rn50_b4_fp32_3.jsonl: the run failed: stopped after iteration 6, without an end line: repeat it
    "]]
    .assert_eq(&without_folder(&output.stderr));
    empty.write("notes.json", "{\"a\": 1}");
    diff(empty.path().join("notes.json"), test.path(), &[])
        .is_refused(&["notes.json is not a result of ringmark extract"]);
    empty.write("broken.json", "{\"benchmark_results\":\n [");
    let output = diff(empty.path().join("broken.json"), test.path(), &[]);
    assert_eq!(output.status, 1);
    expect![[r"
        error: BASE: DIR/first/broken.json: not JSON: EOF while parsing a list at line 2 column 2
    "]]
    .assert_eq(&without_folder(&output.stderr));
}

/// A record omits a part of the batch that is the whole.
#[test]
fn omitted_option_has_its_default() {
    let base = sweep(&["1n1g"], 0.5, |_| {});
    let test = sweep(&["1n1g"], 0.5, |run| run.header.config.accumulate = 2);
    diff(base.path(), test.path(), &[]).is_ok_with(&["  accumulate: 1 -> 2\n"]);
}

#[test]
fn unreliable_runs_are_reported() {
    let base = sweep(&["1n1g"], 0.5, |run| run.header.profile = RunProfile::Quick);
    let test = sweep(&["1n1g"], 0.5, |run| run.header.config.inject = Some(Fault::Slow { rank: 0, percent: 50 }));
    let words = [
        "warning: unreliable: BASE: 1n1g: quick profile, a first look: measure again without --quick, with another --out",
        "warning: unreliable: TEST: 1n1g: a fault was injected on purpose: slow:0:50: sweep again without --inject",
        "1 case: 1 unreliable",
        "(No difference)",
        "  profile: quick -> full",
        "  inject: not set -> slow:0:50",
    ];
    let output = diff(base.path(), test.path(), &[]);
    output.is_ok_with(&words);
    // Every figure of both sides, in percentiles too.
    for name in ["1n1g", "  mean ms", "  p50 ms", "  p95 ms"] {
        let row = output.stdout.lines().find(|line| line.starts_with(&format!("{name} "))).expect(name);
        let cells: Vec<&str> = row[name.len()..].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert!(cells[..3].iter().all(|cell| cell.starts_with('(') && cell.ends_with(')')), "{row}");
    }
    diff(base.path(), test.path(), &["--format", "markdown"])
        .is_ok_with(&["**Warning (unreliable):** BASE: 1n1g: quick profile"]);
    let gated = diff(base.path(), test.path(), &["--fail-on", "unreliable"]);
    assert!(gated.status == 1 && gated.stderr.contains("unreliable: 1n1g"), "{}", gated.stderr);
}

#[test]
fn different_nccl_algorithms_are_reported() {
    let with = |algorithm: NcclAlgorithm, chosen: &str| {
        sweep(&["1n2g"], 0.5, |run| {
            run.header.config.exchange.nccl_algo = algorithm;
            let output_text =
                ["AllReduce of 4000 bytes", "AllReduce of 8000 bytes"].map(|call| format!("{call}: {chosen}"));
            run.end.as_mut().expect("an end").nccl =
                [&output_text[..], &["network: Socket over eth0".to_owned()]].concat();
        })
    };
    let (ring, auto) = (with(NcclAlgorithm::Ring, "Ring, Simple, 24 channels"), with(NcclAlgorithm::Auto, "Tree, LL"));
    diff(ring.path(), auto.path(), &[])
        .is_ok_with(&["nccl_algo: ring -> auto", "NCCL chose: Ring, Simple, 24 channels -> Tree, LL"]);
}

#[test]
fn machines_with_other_matmul_rates_are_reported() {
    let with = |rate: f64| {
        sweep(&["1n2g"], 0.5, |run| {
            run.end.as_mut().expect("an end").matrix_product.fill(TeraflopsPerSecond(rate));
        })
    };
    let (slow, same, fast) = (with(0.2), with(0.21), with(0.45));
    diff(slow.path(), fast.path(), &[]).is_ok_with(&["measured matmul rate (1n2g): 0.400 TFLOP/s -> 0.900 TFLOP/s"]);
    let alike = diff(slow.path(), same.path(), &[]);
    assert!(!alike.stdout.contains("matmul"), "{}", alike.stdout);
    // The JSON of extract contains the rate as well.
    let json = slow.path().join("result.json");
    run(ringmark("extract --format json -o").arg(&json).arg(slow.path()));
    diff(&json, fast.path(), &[]).is_ok_with(&["0.400 TFLOP/s -> 0.900 TFLOP/s"]);
}

#[test]
fn all_keys_lists_equal_settings_once() {
    let of_layout = |layout: LayoutChoice| {
        sweep(&["1n1g"], 0.5, |run| {
            run.header.config.layout = layout;
            run.header.environment.topology =
                ["Machine (16GB total)", "Package L#0", "Core L#0"].map(str::to_owned).into();
        })
    };
    let (base, test) = (of_layout(LayoutChoice::Nhwc), of_layout(LayoutChoice::Nchw));
    let lines = |options: &[&str]| {
        let output = diff(base.path(), test.path(), options);
        assert_eq!(output.status, 0, "{}", output.stderr);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        output.stdout.lines().map(words).collect::<Vec<String>>()
    };
    let has = |lines: &[String], line: &str| lines.iter().any(|found| found == line);
    let all = lines(&["--all-keys"]);
    for line in [
        "All settings",
        "layout nhwc nchw",
        "momentum 0.875",
        "libtorch 2.11.0",
        "topology: Machine (16GB total) | Package L#0 | Core L#0",
    ] {
        assert!(has(&all, line), "{line}: {all:#?}");
    }
    assert!(!has(&all, "Differences"), "{all:#?}");
    let markdown = lines(&["--all-keys", "--format", "markdown"]);
    for line in ["| layout | nhwc | nchw |", "| momentum | 0.875 | |"] {
        assert!(has(&markdown, line), "{line}: {markdown:#?}");
    }
    let few = lines(&[]);
    assert!(has(&few, "layout: nhwc -> nchw") && !has(&few, "momentum 0.875"), "{few:#?}");
    let json = |options: &[&str]| diff(base.path(), test.path(), options).json()["conditions"].clone();
    let all = json(&["--all-keys", "--json"]);
    let equal = all.as_array().expect("a list").iter().find(|one| one["name"] == "momentum").expect("there");
    assert_eq!((&equal["base"], &equal["test"]), (&"0.875".into(), &"0.875".into()));
    assert_eq!(json(&["--json"]), Value::Null);
}

#[test]
fn sides_measured_in_sequence_are_named_once() {
    let base = sweep(&["1n1g", "1n2g"], 0.5, |_| {});
    let printed = |seconds: f64| {
        let test = sweep(&["1n1g", "1n2g"], 0.5, |run| run.header.started.0 += seconds);
        diff(base.path(), test.path(), &[]).stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let sentence = "started after those of";
    let after = printed(3600.0);
    assert!(after.contains("Every run of TEST started after those of BASE: the intervals do not include"), "{after}");
    assert_eq!(after.matches(sentence).count(), 1, "{after}");
    assert!(printed(-3600.0).contains("Every run of BASE started after those of TEST"));
    assert!(!printed(0.0).contains(sentence));
}

#[test]
fn one_run_per_side_gives_no_verdict() {
    let (base, test) = (Folder::new(), Folder::new());
    base.run(&record("1n1g", 1, 0.5));
    test.run(&record("1n1g", 1, 1.0));
    let output = diff(base.path(), test.path(), &[]);
    output.is_ok_with(&["-50.0", "Too few runs", "BASE and TEST have 1 run each: too few for an interval"]);
    assert!(!output.stdout.contains('['), "no interval: {}", output.stdout);
    // Copies of one run do not count as several.
    for run in 2..=3 {
        base.run(&record("1n1g", run, 0.5));
        test.run(&record("1n1g", run, 1.0));
    }
    diff(base.path(), test.path(), &[])
        .is_ok_with(&["Slower", "the runs of each side are identical to the last digit: check for copies"]);
}

#[test]
fn fail_on_sets_the_exit_status() {
    let base = sweep(&["1n1g", "1n2g", "1n4g"], 0.5, |_| {});
    let test = sweep(&["1n1g", "1n2g"], 0.5, |run| {
        let factor = if run.header.case.ranks() == 1 { 1.05 } else { 1.0 + 0.2 * f64::from(run.header.run) };
        run.iterations.iter_mut().flat_map(|iteration| &mut iteration.step).for_each(|step| step.0 *= factor);
    });
    let end = |what: &str| {
        let output = diff(base.path(), test.path(), &["--fail-on", what]);
        assert!(output.stdout.contains("Slower") && output.stdout.contains("Too noisy"), "all the same");
        assert_eq!(output.status, 1);
        output.stderr
    };
    expect![[r"
        error: slower: 1n1g
    "]]
    .assert_eq(&end("slower"));
    expect![[r"
        error: too noisy: 1n2g
    "]]
    .assert_eq(&end("noisy"));
    expect![[r"
        error: not in TEST: 1n4g
    "]]
    .assert_eq(&end("missing"));
    expect![[r"
        error: slower: 1n1g; not in TEST: 1n4g
    "]]
    .assert_eq(&end("slower,missing"));
    diff(base.path(), base.path(), &["--fail-on", "slower,noisy,missing"])
        .is_ok_with(&["No difference", "BASE and TEST are the same runs"]);
    // Runs that differ much, and a copy of them.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/diff/result_version_1.json");
    let copy = base.path().join("copy.json");
    fs::copy(&file, &copy).expect("copied");
    let output = diff(&file, &copy, &["--noise", "0.1%", "--fail-on", "noisy"]);
    output.is_ok_with(&["No difference"]);
    let last = output.stdout.lines().last().expect("a summary");
    expect!["3 cases: no difference"].assert_eq(last);
    // Both sides have the same warnings, so neither is repeated.
    let noisy = Folder::new();
    noisy.run(&record("1n1g", 1, 0.1));
    noisy.run(&record("1n1g", 2, 0.2));
    let same = diff(noisy.path(), noisy.path(), &[]);
    same.is_ok_with(&["The same runs have the same warnings, which `ringmark extract` and `ringmark report` print: "]);
    assert!(!same.stdout.contains("warning: "), "{}", same.stdout);
    let other = diff(test.path(), base.path(), &["--fail-on", "slower"]);
    other.is_ok_with(&["Faster"]);
    assert!(!other.stdout.contains("the same runs"), "{}", other.stdout);
}

#[test]
fn thresholds_are_percentages() {
    let (base, test) = (sweep(&["1n1g"], 0.5, |_| {}), sweep(&["1n1g"], 0.51, |_| {}));
    let verdict =
        |options: &[&str]| diff(base.path(), test.path(), &[&["--json"], options].concat()).verdicts()[0].1.clone();
    assert_eq!(verdict(&[]), "slower");
    assert_eq!(verdict(&["--noise", "3%"]), "no_difference");
    assert_eq!(verdict(&["--noise", "2%"]), "too_noisy");
    assert_eq!(verdict(&["--significance", "0.01%"]), "too_noisy");
    for (option, wrong) in [("--noise", "0.01"), ("--noise", "-1%"), ("--significance", "0%"), ("--fail-on", "faster")]
    {
        diff(base.path(), test.path(), &[&format!("{option}={wrong}")]).is_refused(&[option]);
    }
}

#[test]
fn markup_in_names_does_not_break_tables() {
    let evil = |run: &mut RunRecord| run.header.ranks[0].host = "a|b<script>\u{1b}[2J".to_owned();
    let (base, test) = (sweep(&["1n1g"], 0.5, evil), sweep(&["1n1g"], 0.5, |_| {}));
    let table = diff(base.path(), test.path(), &[]);
    table.is_ok_with(&["  host: a|b<script>\u{fffd}[2J -> a"]);
    diff(base.path(), test.path(), &["--format", "markdown"]).is_ok_with(&["a\u{2502}b&lt;script>\u{fffd}\\[2J"]);
}

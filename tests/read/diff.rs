//! Tests of `ringmark diff`: comparisons, rejected input, and the rate of wrong verdicts on real runs.

use std::fs;
use std::path::Path;

use expect_test::expect;
use ringmark::read::analyze::training::result_json::JsonResult;
use ringmark::read::results;
use ringmark_core::benchmark::bandwidth::{BandwidthConfig, BandwidthRecord, MessageResult, Timing};
use ringmark_core::benchmark::exchange::{BackendChoice, NcclAlgorithm};
use ringmark_core::benchmark::train::{Fault, RunRecord};
use ringmark_core::benchmark::{Record, RunProfile};
use ringmark_core::dimension::{BackendName, Bytes, DeviceKind, Dtype, LayoutChoice, Model, Seconds};
use ringmark_core::host::{Environment, RankPlace};
use ringmark_core::stats::comparison::{Thresholds, Verdict, compare};
use ringmark_core::stats::summary;
use serde_json::{Value, json};

use crate::support::golden::assert_golden;
use crate::support::random::Random;
use crate::support::runs::{self, Folder, record};
use crate::support::sandbox::{ringmark, run};
use crate::support::temporary_folder::without_folder;

struct Output {
    status: i32,
    stdout: String,
    stderr: String,
}

impl Output {
    /// Checks for status 2, no comparison, and these words.
    fn is_refused(&self, words: &[&str]) {
        assert_eq!((self.status, self.stdout.as_str()), (2, ""), "{}", self.stderr);
        words.iter().for_each(|word| assert!(self.stderr.contains(word), "{word}: {}", self.stderr));
    }

    /// Checks for status 0 and these words.
    fn is_ok_with(&self, words: &[&str]) {
        assert_eq!(self.status, 0, "{}", self.stderr);
        words.iter().for_each(|word| assert!(self.stdout.contains(word), "{word}: {}", self.stdout));
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{}{}", self.stdout, self.stderr))
    }

    /// Returns the verdicts with the names of the cases.
    fn verdicts(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let of_table = |table: &Value| table["cases"].as_array().expect("cases").clone();
        let cases = self.json()["tables"].as_array().expect("tables").iter().flat_map(of_table).collect::<Vec<_>>();
        cases.iter().map(|case| (text(&case["name"]), text(&case["verdict"]))).collect()
    }
}

fn diff(base: impl AsRef<Path>, test: impl AsRef<Path>, options: &[&str]) -> Output {
    let (status, stdout, stderr) = run(ringmark("diff").args([base.as_ref(), test.as_ref()]).args(options));
    Output { status: status.expect("no signal"), stdout, stderr }
}

/// Writes three runs of each case that differ slightly.
fn sweep(cases: &[&str], step: f64, change: impl Fn(&mut RunRecord)) -> Folder {
    let folder = Folder::new();
    for case in cases {
        for (run, factor) in [(1, 1.0), (2, 1.002), (3, 0.997)] {
            let mut run = record(case, run, step * factor);
            change(&mut run);
            folder.run(&run);
        }
    }
    folder
}

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
fn folder_and_its_json_give_the_same_comparison() {
    let (base, test) = (sweep(&["1n1g", "1n2g"], 0.5, |_| {}), sweep(&["1n1g", "1n2g"], 0.53, |_| {}));
    let result = |folder: &Folder| {
        let out = folder.parent.path().join("out");
        let (status, _, stderr) = run(ringmark("extract").arg(folder.path()).arg("--out").arg(&out));
        assert_eq!(status, Some(0), "{stderr}");
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
    newer["schema"] = json!(5);
    let files = Folder::new();
    files.write("newer.json", newer.to_string());
    let refused = diff(files.path().join("newer.json"), runs.path(), &[]);
    expect![[r"
        error: BASE: DIR/first/newer.json: result of ringmark extract format 5 is not readable by this ringmark (up to 4): use the ringmark that wrote it
    "]].assert_eq(&without_folder(&refused.stderr));
}

#[test]
fn result_of_version_3_keeps_its_warnings() {
    let quick = sweep(&["1n1g"], 0.5, |record| record.header.profile = RunProfile::Quick);
    let text =
        JsonResult::new(&results::read_training(&quick.path(), None).expect("runs"), None).text().expect("numbers");
    let old = text.replace("\"reliability_warnings\"", "\"objections\"").replace("\"is_reliable\"", "\"is_quotable\"");
    let old = old.replacen("\"schema\": 4", "\"schema\": 3", 1);
    assert!(old.contains("\"objections\"") && old.contains("\"schema\": 3"), "{old}");
    let files = Folder::new();
    files.write("old.json", old);
    let compared = diff(files.path().join("old.json"), quick.path(), &["--fail-on", "unquotable"]);
    let said = "warning: unreliable: BASE: 1n1g: quick profile, a first look";
    assert!(compared.status == 1 && compared.stdout.contains(said), "{}{}", compared.stdout, compared.stderr);
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
    assert_eq!(output.stdout.matches("1n1g").count(), 1, "{}", output.stdout);

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
    diff("/nowhere", test.path(), &[]).is_refused(&["BASE: /nowhere cannot be read: pass a folder of results"]);
    let empty = Folder::new();
    let output = diff(empty.path(), test.path(), &[]);
    assert_eq!(output.status, 2);
    expect![[r"
        error: BASE: DIR/first contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log, for example 1n1g/rn50_b128_fp32_1.log; it contains no benchmark JSON either
    "]].assert_eq(&without_folder(&output.stderr));
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

#[test]
fn unreliable_runs_are_reported() {
    let base = sweep(&["1n1g"], 0.5, |run| run.header.profile = RunProfile::Quick);
    let test = sweep(&["1n1g"], 0.5, |run| run.header.config.inject = Some(Fault::Slow { rank: 0, percent: 50 }));
    let words = [
        "warning: unreliable: BASE: 1n1g: quick profile, a first look: measure again without --quick, with another --out",
        "warning: unreliable: TEST: 1n1g: a fault was injected on purpose: slow:0:50: sweep again without --inject",
        "1 case: 1 without a difference; 1 unreliable",
        "(No difference)",
        "  profile: quick -> full",
        "  inject: not set -> slow:0:50",
    ];
    diff(base.path(), test.path(), &[]).is_ok_with(&words);
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
            let said = ["AllReduce of 4000 bytes", "AllReduce of 8000 bytes"].map(|call| format!("{call}: {chosen}"));
            run.end.as_mut().expect("an end").nccl = [&said[..], &["network: Socket over eth0".to_owned()]].concat();
        })
    };
    let (ring, auto) = (with(NcclAlgorithm::Ring, "Ring, Simple, 24 channels"), with(NcclAlgorithm::Auto, "Tree, LL"));
    diff(ring.path(), auto.path(), &[])
        .is_ok_with(&["nccl_algo: ring -> auto", "NCCL chose: Ring, Simple, 24 channels -> Tree, LL"]);
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
    output.is_ok_with(&["-50.0", "Too noisy", "BASE and TEST have one run each: the spread of runs is unknown"]);
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
    expect!["BASE and TEST are the same runs; 3 cases: 3 without a difference"].assert_eq(last);
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
    output.is_ok_with(&["Too noisy", "one run each"]);
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
    let told = |second: Value, words: &str| {
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
    told(two(&[0.12, -0.5]), "test.json: resnet50 with 2 ranks has an invalid iteration time: -0.5 s");
    told(two(&[0.0]), "resnet50 with 2 ranks has an invalid iteration time: 0 s");
    told(two(&[]), "resnet50 with 2 ranks has no measurements");
    told(json!({"ranks": [], "measurements": [0.1]}), "resnet50 with 0 ranks has no ranks, or images");
    let silent = json!({"label": "", "dtype": "fp32", "without_communication": [two(&[0.12, 0.0])]});
    told(silent, "resnet50 with 2 ranks has an invalid iteration time: 0 s");
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
    assert!(output.stderr.contains("all.json.1: 1 MiB out: 3 wrong elements"), "{}", output.stderr);
    assert!(output.stderr.ends_with("the comparison is not complete: see the 2 messages above\n"), "{}", output.stderr);
    test.write("all.json.2", "{\"version\": 2, \"args\": [\"x\"], \"nccl_version\": 1,\n");
    let output = diff(base.path().join("all.json.0"), test.path(), &[]);
    assert!(output.stderr.contains("all.json.2: not JSON: EOF while parsing a value at line 2"), "{}", output.stderr);
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

/// Creates a record of `ringmark bandwidth` with two ranks: 1 MiB in `seconds`.
fn bandwidth(seconds: f64, device: DeviceKind, failure: Option<&str>) -> String {
    let place = |place| RankPlace { device, device_name: "V100".to_owned(), ..place };
    let timing = Timing {
        seconds: vec![vec![Seconds(seconds); 20]; 2],
        in_a_row: Vec::new(),
        wrong: Some(0),
        error: Vec::new(),
    };
    let mut record = BandwidthRecord::new(
        Seconds(1.7e9),
        BandwidthConfig::default(),
        Environment::default(),
        runs::places(2).into_iter().map(place).collect(),
    );
    record.failure = failure.map(str::to_owned);
    record.results.push(MessageResult {
        bytes: Bytes(1 << 20),
        count: 1 << 18,
        element: "float".to_owned(),
        buckets: vec![Bytes(1 << 20)],
        out_of_place: Some(timing.clone()),
        in_place: Some(timing),
    });
    let mut text = Vec::new();
    record.write(&mut text).expect("memory takes it");
    String::from_utf8(text).expect("JSON")
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
        "3 times a JSON of nccl-tests",
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
    diff(training.path(), training.path(), &[])
        .is_refused(&["BASE", "mixes file types: 3 training runs with logs; a JSON of PyTorch's DDP benchmark"]);
}

#[test]
fn markup_in_names_does_not_break_tables() {
    let evil = |run: &mut RunRecord| run.header.ranks[0].host = "a|b<script>\u{1b}[2J".to_owned();
    let (base, test) = (sweep(&["1n1g"], 0.5, evil), sweep(&["1n1g"], 0.5, |_| {}));
    let table = diff(base.path(), test.path(), &[]);
    table.is_ok_with(&["  host: a|b<script>\u{fffd}[2J -> a"]);
    diff(base.path(), test.path(), &["--format", "markdown"]).is_ok_with(&["a\u{2502}b&lt;script>\u{fffd}\\[2J"]);
}

/// Forty consecutive runs of one real configuration, on a machine with other load (`results/README.md`).
const SAME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/results/same-40-times");

/// Returns the images per second of each of these runs.
fn real_speeds() -> Vec<f64> {
    let extraction = results::read_training(Path::new(SAME), None).expect("it is committed");
    let speeds: Vec<f64> = extraction.groups[0].cases[0].counted().map(|run| run.speed.0).collect();
    assert_eq!(speeds.len(), 40);
    speeds
}

/// Draws two disjoint samples of five.
fn pair<T: Clone>(random: &mut Random, all: &[T]) -> [Vec<T>; 2] {
    let mut left = all.to_vec();
    let mut draw = || left.swap_remove((random.uniform() * left.len() as f64) as usize);
    [(); 2].map(|()| (0..5).map(|_| draw()).collect())
}

fn verdict(base: &[f64], test: &[f64], noise: f64) -> Verdict {
    compare(base, test, Thresholds { noise, ..Thresholds::default() }).expect("speeds").verdict(noise)
}

fn is_difference(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}

/// Uses only real runs. At most 5 % may differ: 2 of 40 pairs of five runs, drawn without replacement.
#[test]
fn equal_configurations_rarely_differ() {
    let speeds = real_speeds();
    let wrong = |seed: u64, pairs: usize, noise: f64| {
        let mut random = Random(seed);
        let is_wrong = |_: &usize| {
            let [base, test] = pair(&mut random, &speeds);
            is_difference(verdict(&base, &test, noise))
        };
        (0..pairs).filter(is_wrong).count()
    };
    for seed in 1..=5 {
        let (default, none) = (wrong(seed, 40, 0.01), wrong(seed, 40, 0.0));
        assert!(default <= 2 && none <= 2, "seed {seed}: {default} with noise, {none} without");
    }
    // Many more pairs: without noise the rate is below the significance level, because an occasional disturbed run
    // widens its interval; with noise it is a tenth of that.
    let (default, none) = (wrong(6, 10_000, 0.01), wrong(6, 10_000, 0.0));
    assert!(default < 100 && (100..500).contains(&none), "of 10,000: {default} with noise, {none} without");
    // Consecutive runs, as users make them: all pairs of the eight groups of five.
    let fives: Vec<&[f64]> = speeds.chunks(5).collect();
    let pairs =
        || fives.iter().enumerate().flat_map(|(place, one)| fives[place + 1..].iter().map(move |other| (one, other)));
    assert_eq!(pairs().filter(|(one, other)| is_difference(verdict(one, other, 0.0))).count(), 0);
}

/// Scales real runs to a variation of 0.5 % around their mean, which keeps the shape of their distribution, and slows
/// TEST down by 3 %.
#[test]
fn three_percent_slowdown_is_detected_in_five_runs() {
    let speeds = real_speeds();
    let (mean, narrower) = narrowed(&speeds);
    let speeds: Vec<f64> = speeds.iter().map(|speed| mean + narrower * (speed - mean)).collect();
    let found = |seed: u64, longer: f64, what: Verdict| {
        let mut random = Random(seed);
        let is_found = |_: &usize| {
            let [base, test] = pair(&mut random, &speeds);
            verdict(&base, &test.iter().map(|speed| speed / longer).collect::<Vec<f64>>(), 0.01) == what
        };
        (0..200).filter(is_found).count()
    };
    for seed in 1..=3 {
        assert!(found(seed, 1.03, Verdict::Slower) >= 190);
        assert!(found(seed, 1.0 / 1.03, Verdict::Faster) >= 190);
        assert_eq!(found(seed, 1.0, Verdict::Slower), 0);
        // These runs can resolve about 2 %: a difference of 1 % is not reported.
        assert!(found(seed, 1.01, Verdict::Slower) <= 10);
    }
}

/// Repeats both tests with the program, on folders made from the real logs and records.
#[test]
fn program_agrees_with_the_statistics() {
    let folder = |numbers: &[u32]| {
        let folder = Folder::new();
        for number in numbers {
            for extension in ["log", "jsonl"] {
                let name = format!("1n1g/rn50_b8_bf16_{number}.{extension}");
                folder.write(&name, fs::read(Path::new(SAME).join(&name)).expect("it is committed"));
            }
        }
        folder
    };
    let numbers: Vec<u32> = (1..=40).collect();
    let mut random = Random(7);
    for _ in 0..4 {
        let [base, test] = pair(&mut random, &numbers);
        let output = diff(folder(&base).path(), folder(&test).path(), &["--json", "--fail-on", "slower,missing"]);
        assert_eq!((output.status, output.verdicts()[0].1.as_str()), (0, "too_noisy"), "{base:?} {test:?}");
    }

    let speeds = real_speeds();
    let (mean, narrower) = narrowed(&speeds);
    let changed = |numbers: &[u32], longer: f64| {
        let folder = Folder::new();
        for number in numbers {
            let path = Path::new(SAME).join(format!("1n1g/rn50_b8_bf16_{number}.jsonl"));
            let mut record = RunRecord::read(fs::read(path).expect("committed").as_slice()).expect("sound");
            let steps: Vec<f64> = record.iterations[5..].iter().map(|iteration| iteration.step[0].0).collect();
            let speed = 8.0 / summary::mean(&steps).expect("steps");
            let factor = longer * speed / (mean + narrower * (speed - mean));
            for time in record.iterations.iter_mut().flat_map(|iteration| &mut iteration.step) {
                time.0 *= factor;
            }
            record.end.as_mut().expect("sound").wall.0 *= factor;
            folder.run(&record);
        }
        folder
    };
    for _ in 0..3 {
        let [base, test] = pair(&mut random, &numbers);
        let output = diff(changed(&base, 1.0).path(), changed(&test, 1.03).path(), &["--fail-on", "slower"]);
        assert_eq!((output.status, output.stderr.as_str()), (1, "error: slower: 1n1g\n"), "{}", output.stdout);
    }
}

/// Returns the mean speed and the factor that scales deviations to a variation of 0.5 %.
fn narrowed(speeds: &[f64]) -> (f64, f64) {
    let variation = summary::coefficient_of_variation(speeds).expect("speeds");
    (summary::mean(speeds).expect("speeds"), 0.005 / variation)
}

//! `ringmark extract --format` for other programs: Prometheus (checked with promtool), InfluxDB (with InfluxData's
//! own parser), MLflow and MLPerf (scripts/dev/check_exports.py uses their own packages), and inputs that each format
//! rejects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::expect;
use influxdb_line_protocol::{FieldValue, ParsedLine, parse_lines};
use ringmark::read::show::export::time_line::TimeLine;
use ringmark_core::benchmark::train::{EpochEnd, LearningConfig, Resumption, RunRecord, Validation};
use ringmark_core::dimension::{BackendName, Seconds};
use serde_json::Value;

use crate::support::prerequisite::not_tested;
use crate::support::runs::{Folder, committed, record};
use crate::support::sandbox::{refused, ringmark, run, succeeds};
use crate::support::scores;
use crate::support::temporary_folder::without_folder;

fn export(folder: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    run(ringmark("extract").arg(folder).arg("--format").args(options))
}

fn exported(folder: &Path, options: &[&str]) -> String {
    let (status, stdout, stderr) = export(folder, options);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{options:?}");
    stdout
}

fn json(folder: &Path) -> Value {
    let out = tempfile::tempdir().expect("a folder");
    let stdout = succeeds(ringmark("extract --json --out").arg(out.path()).arg(folder));
    serde_json::from_str(&stdout).expect("JSON")
}

/// Returns a folder of two cases, one of them also without communication.
fn small_folder() -> Folder {
    let folder = Folder::new();
    for (case, step) in [("1n1g", 0.25), ("1n2g", 0.3125)] {
        for number in [1, 2] {
            folder.run(&record(case, number, step));
        }
    }
    let mut baseline = record("1n2g", 1, 0.28125);
    baseline.header.config.exchange.backend = "none".parse().expect("a backend");
    baseline.header.backend = BackendName::None;
    folder.run(&baseline);
    folder
}

/// Checks `text` with promtool, if it is installed; prints a message otherwise.
fn promtool(text: &str) {
    let mut command = Command::new("promtool");
    let command =
        command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut tool) = command.spawn() else {
        return not_tested("there is no promtool, which scripts/dev/promtool.sh installs");
    };
    tool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = tool.wait_with_output().expect("it ends");
    let output_text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output_text.is_empty(), "{output_text}");
}

/// Returns the samples by name and labels. Checks that the lines of each family are contiguous with a header, and
/// that every sample occurs once.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("OpenMetrics ends so");
    let (mut samples, mut seen, mut family) = (BTreeMap::new(), BTreeSet::new(), String::new());
    for line in body.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            family = head.split(' ').next().expect("a name").to_owned();
            assert!(seen.insert(family.clone()), "{family} stands in two places");
        } else if let Some(head) = line.strip_prefix("# TYPE ") {
            assert_eq!(head, format!("{family} gauge"));
        } else if let Some(head) = line.strip_prefix("# UNIT ") {
            let unit = head.strip_prefix(&format!("{family} ")).expect("of the same family");
            assert!(family.ends_with(&format!("_{unit}")), "{line}");
        } else {
            // No timestamp after the value: the textfile collector rejects it.
            let (name, value) = line.rsplit_once("} ").expect("labels and a value");
            assert_eq!(name.split('{').next(), Some(family.as_str()), "{line}");
            assert_eq!(samples.insert(format!("{name}}}"), value.parse().expect("a number")), None, "{line}");
        }
    }
    samples
}

/// Returns the only sample of this family with all these labels.
fn sample(samples: &BTreeMap<String, f64>, family: &str, labels: &[&str]) -> f64 {
    let is_selected =
        |name: &&String| name.starts_with(&format!("{family}{{")) && labels.iter().all(|label| name.contains(label));
    let found: Vec<&String> = samples.keys().filter(is_selected).collect();
    assert_eq!(found.len(), 1, "{family} {labels:?}: {found:?}");
    samples[found[0]]
}

#[test]
fn prometheus_figures_equal_the_json() {
    for name in ["suite-2-cores", "score-2-cores", "same-40-times"] {
        let folder = committed(name);
        let text = exported(&folder, &["prometheus"]);
        promtool(&text);
        let (samples, json) = (samples(&text), json(&folder));
        for row in json["rows"].as_array().expect("rows") {
            let word = |key: &str| row[key].as_str().expect("a text").to_owned();
            let number = |key: &str| row[key].as_f64().expect("a number");
            let batch_size = if row["batch_size"].is_null() { "batch_size_per_device" } else { "batch_size" };
            let mut labels: Vec<String> =
                ["model", "dtype", "case"].iter().map(|key| format!("{key}=\"{}\"", word(key))).collect();
            labels.push(format!("batch_size=\"{}\"", row[batch_size]));
            labels.push(format!("result=\"{name}\""));
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let trained = !row["efficiency"].is_null();
            let labels = if trained { [labels, vec!["communication=\"on\""]].concat() } else { labels };
            let figure = |family: &str| sample(&samples, family, &labels);
            assert_eq!(figure("ringmark_images_per_second"), number("units_per_second"));
            assert_eq!(figure("ringmark_runs_counted"), number("runs_counted"));
            assert_eq!(figure("ringmark_reliable") == 1.0, row["is_reliable"] == true);
            if trained {
                assert_eq!(figure("ringmark_efficiency_ratio"), number("efficiency"));
                let optimizer = [labels.clone(), vec!["phase=\"optimizer\""]].concat();
                let json = row["seconds_per_iteration"]["optimizer"].as_f64().expect("a time");
                assert_eq!(sample(&samples, "ringmark_phase_seconds", &optimizer), json);
            }
        }
    }
}

#[test]
fn prometheus_loss_parts_add_up_and_baseline_is_separate() {
    let folder = small_folder();
    let text = exported(&folder.path(), &["prometheus"]);
    promtool(&text);
    let samples = samples(&text);
    let lost = sample(&samples, "ringmark_lost_seconds", &["case=\"1n2g\""]);
    let parts: f64 = samples
        .iter()
        .filter(|(name, _)| name.starts_with("ringmark_scaling_loss_seconds{"))
        .map(|(_, part)| part)
        .sum();
    assert!(lost > 0.0 && (lost - parts).abs() < 1e-12, "{lost} {parts}");
    let speed = |communication: &str| {
        let label = format!("communication=\"{communication}\"");
        sample(&samples, "ringmark_images_per_second", &["case=\"1n2g\"", &label])
    };
    assert!((speed("off") / speed("on") - 0.3125 / 0.28125).abs() < 1e-9);
    let started = sample(&samples, "ringmark_run_started_timestamp_seconds", &["case=\"1n1g\"", "run=\"2\""]);
    assert_eq!(started, 1.7e9);
}

#[test]
fn special_characters_in_labels_are_escaped() {
    let folder = small_folder();
    let odd = folder.parent.path().join("rack \"7\", row=a\\b");
    fs::rename(folder.path(), &odd).expect("renamed");
    let text = exported(&odd, &["prometheus"]);
    promtool(&text);
    assert!(text.contains(r#"result="rack \"7\", row=a\\b","#), "{text}");
    for line in lines(&exported(&odd, &["influx"])) {
        assert_eq!(tag(&line, "result").as_deref(), Some("rack \"7\", row=a/b"));
    }
}

fn lines(text: &str) -> Vec<ParsedLine<'_>> {
    parse_lines(text).collect::<Result<Vec<_>, _>>().expect("InfluxData's parser reads every line")
}

fn tag(line: &ParsedLine, wanted: &str) -> Option<String> {
    line.tag_value(wanted).map(|value| value.to_string())
}

#[test]
fn influx_has_a_line_per_case_run_and_message() {
    let text = exported(&committed("suite-2-cores"), &["influx"]);
    let lines = lines(&text);
    let count = |measurement: &str| lines.iter().filter(|line| line.series.measurement == measurement).count();
    let json = json(&committed("suite-2-cores"));
    let rows = json["rows"].as_array().expect("rows");
    // 1n1g and 1n2g, and 1n2g without communication, with three runs each.
    assert_eq!((rows.len(), count("ringmark_case"), count("ringmark_run")), (2, 3, 9));
    assert!(count("ringmark_bandwidth") > 0);
    let run = lines.iter().find(|line| {
        let is = |name: &str, value: &str| tag(line, name).as_deref() == Some(value);
        is("case", "1n2g") && is("run", "2") && is("communication", "on")
    });
    let run = run.expect("a line of that run");
    let of_json = &rows[1]["runs"][1];
    let started = of_json["started_unix_seconds"].as_f64().expect("a time");
    assert_eq!(run.timestamp, Some((started * 1e9).round() as i64));
    let field = |name: &str| run.field_value(name).cloned().expect(name);
    let is_float =
        |name: &str, json: &Value| matches!(field(name), FieldValue::F64(value) if Some(value) == json.as_f64());
    assert!(is_float("images_per_second", &of_json["units_per_second"]));
    assert!(is_float("iteration_p95_seconds", &of_json["iteration_seconds"]["p95"]));
    assert!(matches!(field("iterations"), FieldValue::I64(25)));
    assert!(matches!(field("device_name"), FieldValue::String(name) if name.as_str() == "AMD EPYC"));
    let case = lines.iter().find(|line| line.series.measurement == "ringmark_case").expect("a case");
    assert!(matches!(case.field_value("reliable"), Some(FieldValue::Boolean(true))));
}

#[test]
fn influx_omits_runs_without_a_start_time() {
    let folder = Folder::new();
    folder.log("1n1g/rn50_b128_fp32_1.log", &[384.0; 40]);
    let (status, stdout, stderr) = export(&folder.path(), &["influx"]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""), "{stderr}");
    expect![[r"
        not in the export: first train rn50 resnet50_v1b fp32 128 1n1g on all-reduce: start time unknown, and a line without a timestamp would get the current time: not exported
        not in the export: first train rn50 resnet50_v1b fp32 128 1n1g on all-reduce 1: start time unknown, and a line without a timestamp would get the current time: not exported
        error: the export of DIR/first is not complete: see the 2 messages above
    "]].assert_eq(&without_folder(&stderr));
    // Prometheus uses the time of the scrape.
    let samples = samples(&exported(&folder.path(), &["prometheus"]));
    assert!((sample(&samples, "ringmark_images_per_second", &[]) - 384.0).abs() < 1e-9);
}

#[test]
fn export_writes_only_its_own_file() {
    let folder = small_folder();
    let before = files(&folder.path());
    let file = folder.parent.path().join("first.prom");
    let (status, stdout, stderr) = export(&folder.path(), &["prometheus", "-o", file.to_str().expect("ASCII")]);
    assert_eq!((status, stdout.as_str()), (Some(0), ""), "{stderr}");
    assert_eq!(fs::read_to_string(&file).expect("written"), exported(&folder.path(), &["prometheus"]));
    assert_eq!(files(&folder.path()), before);
}

/// Returns every file below a folder with its contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let text = fs::read_to_string(&path).expect("a text");
                    found.insert(path.strip_prefix(folder).expect("below").to_owned(), text);
                }
            }
        }
    }
    found
}

/// Returns a run of two epochs of two iterations, the first of which is warm-up; 3 of 4 images are predicted
/// correctly.
fn run_with_epochs(run: u32) -> RunRecord {
    let mut learned = record("1n2g", run, 0.25);
    learned.iterations.truncate(4);
    learned.header.config.iterations = 4;
    learned.header.config.learning =
        LearningConfig { epochs: Some(2), epoch_iterations: Some(2), ..LearningConfig::default() };
    let epoch = |epoch: u32| EpochEnd {
        epoch,
        iteration: 2 * epoch,
        loss: Some(6.5),
        validation: Some(Validation {
            samples: 4,
            loss: Some(6.0),
            top_1: Some(0.75),
            top_5: Some(1.0),
            skipped: 0,
            time: Seconds(0.5),
        }),
    };
    let end = learned.end.as_mut().expect("an end");
    (end.iterations, end.epochs) = (4, vec![epoch(1), epoch(2)]);
    learned
}

#[test]
fn mlflow_has_a_run_for_each_run() {
    let folder = Folder::new();
    folder.run(&run_with_epochs(1));
    folder.run(&record("1n1g", 1, 0.25));
    let store = folder.parent.path().join("a store");
    let write = || {
        let (status, stdout, stderr) = export(&folder.path(), &["mlflow", "--out", store.to_str().expect("ASCII")]);
        assert_eq!((status, stdout.as_str()), (Some(0), ""), "{stderr}");
        assert!(stderr.starts_with("wrote 2 runs for MLflow into "), "{stderr}");
        files(&store)
    };
    let all = write();
    assert_eq!(write(), all, "again, it takes its own place");
    let metas: Vec<&PathBuf> = all.keys().filter(|path| path.ends_with("meta.yaml")).collect();
    assert_eq!(metas.iter().map(|path| path.components().count()).collect::<Vec<_>>().iter().sum::<usize>(), 2 + 3 + 3);
    let name = all.iter().find(|(path, text)| path.ends_with("tags/mlflow.runName") && *text == "1n2g/rn50_b4_fp32_1");
    let run = name.expect("the run").0.parent().and_then(Path::parent).expect("its folder");
    let text = |path: &str| all.get(&run.join(path)).cloned().unwrap_or_else(|| panic!("no {path}"));
    assert_eq!((text("params/model").as_str(), text("params/batch_size").as_str()), ("resnet50_v1b", "4"));
    // Start, a warm-up of two iterations of 1 s each, half a second of validation, 0.2575 s and 0.26 s.
    expect![[r"
        1700000002500 0.75 2
        1700000003518 0.75 4
    "]]
    .assert_eq(&text("metrics/validation_top_1_ratio"));
    expect![[r"
        1700000001000 6.875 1
        1700000002000 6.75 2
        1700000002758 6.625 3
        1700000003018 6.5 4
    "]]
    .assert_eq(&text("metrics/loss"));
    let meta = text("meta.yaml");
    for line in ["start_time: 1700000000000", "end_time: 1700000003518", "status: 3", "lifecycle_stage: active"] {
        assert!(meta.lines().any(|found| found == line), "{meta}");
    }
    let artifacts =
        format!("file://{}", store.join(run).join("artifacts").to_str().expect("ASCII").replace(' ', "%20"));
    assert!(meta.contains(&format!("artifact_uri: '{artifacts}'")), "{meta}");
    assert!(text("artifacts/rn50_b4_fp32_1.jsonl").starts_with("{\"kind\":\"run\""));
    // A scoring result with the same name is added next to it.
    let scored = scores::small_folder();
    let (status, _, stderr) = export(&scored.path(), &["mlflow", "--out", store.to_str().expect("ASCII")]);
    assert_eq!(status, Some(0), "{stderr}");
    let speeds =
        |all: BTreeMap<PathBuf, String>| all.keys().filter(|path| path.ends_with("metrics/images_per_second")).count();
    let scored = files(&scored.path()).keys().filter(|path| path.extension().is_some_and(|it| it == "log")).count();
    assert!(scored > 2 && speeds(files(&store)) == 2 + scored, "{scored}");
}

#[test]
fn resumed_run_contains_its_break() {
    let mut learned = run_with_epochs(1);
    let part = Resumption {
        behind: 3,
        started: Seconds(1.7e9 + 600.0),
        wall_before: Seconds(2.2575),
        changes: Vec::new(),
        interruption: None,
    };
    learned.header.resumptions = vec![part];
    let times = TimeLine::from_record(&learned);
    let since = |time: Seconds| time.0 - 1.7e9;
    let ends: Vec<f64> = times.iterations.iter().map(|iteration| since(iteration.end)).collect();
    let expected = [1.0, 2.0, 2.7575, 600.26];
    assert!(ends.iter().zip(expected).all(|(end, expected)| (end - expected).abs() < 1e-5), "{ends:?}");
    // The second epoch started before the break.
    assert!((since(times.epochs[1].training.start) - 2.5).abs() < 1e-5);
    assert!((since(times.run.end) - 600.76).abs() < 1e-5);
}

/// Returns key, event, milliseconds, value and metadata of each line.
fn events(text: &str) -> Vec<(String, String, i64, Value, Value)> {
    let event = |line: &str| {
        let json: Value = serde_json::from_str(line.strip_prefix(":::MLLOG ").expect("the token")).expect("JSON");
        assert_eq!(json["namespace"], "");
        let word = |key: &str| json[key].as_str().expect("a text").to_owned();
        let time = json["time_ms"].as_i64().expect("whole milliseconds");
        (word("key"), word("event_type"), time, json["value"].clone(), json["metadata"].clone())
    };
    text.lines().map(event).collect()
}

#[test]
fn mlperf_log_contains_only_measured_values() {
    let folder = Folder::new();
    folder.run(&run_with_epochs(1));
    let events = events(&exported(&folder.path(), &["mllog"]));
    let value = |wanted: &str| {
        let found: Vec<&Value> =
            events.iter().filter(|(key, ..)| key == wanted).map(|(_, _, _, value, _)| value).collect();
        assert_eq!(found.len(), 1, "{wanted}");
        found[0].clone()
    };
    // Network and image size differ from MLPerf's ResNet, whatever the network's name.
    assert_eq!(value("submission_benchmark"), "resnet50_v1b");
    assert_eq!((value("global_batch_size"), value("seed"), value("opt_name")), (8.into(), 1.into(), "sgd".into()));
    assert_eq!((value("sgd_opt_base_learning_rate"), value("sgd_opt_momentum")), (0.002.into(), 0.875.into()));
    assert_eq!((value("model_bn_span"), value("eval_samples")), (4.into(), 4.into()));
    let times: Vec<(&str, i64, Option<i64>)> = events
        .iter()
        .filter(|(_, event, ..)| event != "POINT_IN_TIME")
        .map(|(key, _, time, _, metadata)| (key.as_str(), time - 1_700_000_000_000, metadata["epoch_num"].as_i64()))
        .collect();
    let expected = [
        ("run_start", 0, None),
        ("epoch_start", 0, Some(1)),
        ("epoch_stop", 2000, Some(1)),
        ("eval_start", 2000, Some(1)),
        ("eval_stop", 2500, Some(1)),
        ("epoch_start", 2500, Some(2)),
        ("epoch_stop", 3018, Some(2)),
        ("eval_start", 3018, Some(2)),
        ("eval_stop", 3518, Some(2)),
        ("run_stop", 3518, None),
    ];
    assert_eq!(times, expected);
    assert!(events.iter().filter(|(key, ..)| key == "eval_accuracy").all(|(_, _, _, value, _)| *value == 0.75));
    assert_eq!(events.last().expect("an event").4["status"], "success");
    let made_up = ["submission_org", "submission_division", "submission_status", "cache_clear", "init_start"];
    assert!(events.iter().all(|(key, ..)| !made_up.contains(&key.as_str())));
}

#[test]
fn mlperf_resnet_needs_the_target_accuracy() {
    let folder = Folder::new();
    let mut learned = run_with_epochs(1);
    learned.header.config.image_size = Some(224);
    let end = learned.end.as_mut().expect("an end");
    end.epochs.iter_mut().for_each(|epoch| epoch.validation.as_mut().expect("predicted").samples = 50_000);
    end.input = serde_json::from_value(serde_json::json!({
        "what": "1 RecordIO file with index", "items": 1_281_167, "augmentation": "imagenet", "ranks": []
    }))
    .expect("what was read");
    folder.run(&learned);
    let status = || {
        let events = events(&exported(&folder.path(), &["mllog"]));
        assert!(events.iter().any(|(key, _, _, value, _)| key == "submission_benchmark" && *value == "resnet"));
        events.last().expect("an event").4["status"].clone()
    };
    assert_eq!(status(), "aborted");
    let last = &mut learned.end.as_mut().expect("an end").epochs[1];
    last.validation.as_mut().expect("predicted").top_1 = Some(0.759);
    folder.run(&learned);
    assert_eq!(status(), "success");
}

#[test]
fn several_mlperf_logs_need_a_folder() {
    let folder = Folder::new();
    folder.run(&run_with_epochs(1));
    let mut failed = run_with_epochs(2);
    failed.end.as_mut().expect("an end").failure = Some("ranks disagree".to_owned());
    folder.run(&failed);
    let output_text = refused(ringmark("extract --format mllog").arg(folder.path()), 2);
    expect![[r"
        error: DIR/first contains 2 runs with epochs, but MLPerf's log contains one: add --out FOLDER for one file per run
    "]]
    .assert_eq(&without_folder(&output_text));
    let out = folder.parent.path().join("logs");
    let (status, stdout, stderr) = export(&folder.path(), &["mllog", "-o", out.to_str().expect("ASCII")]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""), "{stderr}");
    expect![[r"
        wrote 2 logs into DIR/logs
        not in the export: 1n2g/rn50_b4_fp32_2.jsonl: the run failed: ranks disagree: repeat it
        error: the export of DIR/first is not complete: see the message above
    "]]
    .assert_eq(&without_folder(&stderr));
    let status = |run: u32| {
        let text = fs::read_to_string(out.join(format!("1n2g/rn50_b4_fp32_{run}.mllog"))).expect("written");
        events(&text).last().expect("an event").4["status"].clone()
    };
    assert_eq!((status(1), status(2)), ("success".into(), "aborted".into()));
}

#[test]
fn invalid_export_options_are_rejected() {
    let folder = small_folder();
    let path = folder.path();
    let refused = |options: &str, words: &[&str]| {
        let output_text = refused(ringmark("extract").arg(&path).args(options.split(' ')), 2);
        assert!(words.iter().all(|word| output_text.contains(word)), "{options}: {output_text}");
    };
    refused("--format mllog", &["no run that trained a whole epoch", "--epochs N"]);
    refused("--format mlflow", &["add --out FOLDER"]);
    refused("--format prometheus --published", &["--published", "omit --published"]);
    refused("--format influx --out /", &["--out / is a folder"]);
    refused("--format graphite", &["prometheus", "pytorch-ddp"]);
    refused("--format influx --json", &["cannot be used with"]);

    let bandwidth = Folder::new();
    let record = fs::read(committed("suite-2-cores/1n2g/bandwidth.json")).expect("committed");
    bandwidth.write("1n2g/bandwidth.json", record);
    promtool(&exported(&bandwidth.path(), &["prometheus"]));
    let output_text =
        crate::support::sandbox::refused(ringmark("extract --format mlflow -o /nowhere").arg(bandwidth.path()), 2);
    expect![[r"
        error: DIR/first contains no training or inference run that counts: nothing to export to MLflow
    "]]
    .assert_eq(&without_folder(&output_text));
}

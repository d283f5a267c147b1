//! Tests of `ringmark check`: a valid sweep passes, and each defect is reported.

use std::fs;
use std::path::Path;

use expect_test::expect;
use ringmark_core::benchmark::{BenchmarkKind, RunProfile};
use ringmark_core::dimension::Bytes;
use ringmark_core::host::MemoryShortage;
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use serde_json::{Value, json};

use crate::support::runs::{Folder, record};
use crate::support::sandbox::{Sandbox, fails, lines_with, refused, ringmark, run, succeeds};
use crate::support::temporary_folder::without_folder;

const OPTIONS: &str = "--cases 1n1g,1n2g --runs 2";

/// Creates a finished sweep and its extracted figures.
fn sweep_folder() -> Sandbox {
    let sandbox = Sandbox::with_valid_worker();
    succeeds(&mut sandbox.short_sweep(OPTIONS));
    extract(&sandbox);
    sandbox
}

fn extract(sandbox: &Sandbox) {
    succeeds(ringmark("extract").arg(sandbox.path("out")));
}

/// Returns the failed checks, which are the same by exit status, message and JSON, and the findings.
fn failed(sandbox: &Sandbox) -> (Vec<String>, String) {
    let (status, stdout, stderr) = run(ringmark("check").arg(sandbox.path("out")).arg("--json"));
    let answer: Value = serde_json::from_str(&stdout).expect("JSON");
    let checks = answer["checks"].as_array().expect("checks");
    let failed: Vec<&Value> = checks.iter().filter(|check| check["state"] != "passed").collect();
    let names: Vec<String> = failed.iter().map(|check| check["name"].as_str().expect("a name").to_owned()).collect();
    assert_eq!(answer["is_passed"] == true, names.is_empty());
    assert_eq!(status, Some(if names.is_empty() { 0 } else { 1 }), "{stderr}");
    for (name, failed, unknown) in [
        ("complete", " is not complete", " is not known to be complete"),
        ("unedited", " is not unedited", " is not known to be unedited"),
        ("rules", " does not follow the rules", " is not known to follow the rules"),
        ("reliable", " is not reliable", " is not known to be reliable"),
    ] {
        let has_state = |state: &str| checks.iter().any(|check| check["name"] == name && check["state"] == state);
        assert_eq!(
            [failed, unknown].map(|text| stderr.contains(text)),
            ["failed", "unknown"].map(has_state),
            "{stderr}"
        );
    }
    let findings = failed.iter().flat_map(|check| check["findings"].as_array().expect("findings"));
    let findings: Vec<&str> = findings.map(|finding| finding.as_str().expect("a text")).collect();
    (names, without_folder(&findings.join("\n").replace(env!("CARGO_BIN_EXE_ringmark"), "ringmark")))
}

/// Returns the finding of one check, the only one that fails.
fn only(sandbox: &Sandbox, check: &str) -> String {
    let (names, findings) = failed(sandbox);
    assert_eq!(names, [check], "{findings}");
    findings
}

fn change(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("read");
    assert!(text.contains(from), "{from}: {text}");
    fs::write(file, text.replacen(from, to, 1)).expect("written");
}

#[test]
fn valid_sweep_passes_every_check() {
    let sandbox = sweep_folder();
    let (status, stdout, stderr) = run(ringmark("check").arg(sandbox.path("out")));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_eq!(stdout, include_str!("../golden/check.txt"));
    assert_eq!(failed(&sandbox), (Vec::new(), String::new()));
}

/// Figures with another warm-up are not those that `check` compares.
#[test]
fn other_warmup_leaves_the_files_unchanged() {
    let sandbox = sweep_folder();
    let out = sandbox.path("out");
    let (status, table, stderr) = run(ringmark("extract --warmup 2").arg(&out));
    assert_eq!(status, Some(0), "{table}{stderr}");
    expect!["2 measured + 2 warm-up iterations"].assert_eq(&lines_with(&table, "warm-up"));
    expect![[r#"
        no files written: --warmup changes the figures: choose a folder with --out
    "#]]
    .assert_eq(&stderr);
    assert_eq!(failed(&sandbox), (Vec::new(), String::new()));
    let (status, _, stderr) = run(ringmark("extract --warmup 2").arg(&out).arg("--out").arg(sandbox.path("other")));
    assert!(status == Some(0) && stderr.starts_with("wrote "), "{stderr}");
}

#[test]
fn spread_of_one_run_is_not_tested() {
    let line = |options: &str| {
        let sandbox = Sandbox::with_valid_worker();
        succeeds(&mut sandbox.short_sweep(options));
        let stdout = succeeds(ringmark("check").arg(sandbox.path("out")));
        stdout.lines().find(|line| line.contains(" reliable ")).expect("a check").to_owned()
    };
    expect!["PASS    reliable  load, efficiency and profile of every case; spread not tested: 1n1g has one run"]
        .assert_eq(&line("--cases 1n1g --runs 1"));
    expect![
        "PASS    reliable  load, efficiency and profile of every case; spread not tested: 2 cases have one run each"
    ]
    .assert_eq(&line("--cases 1n1g,1n2g --runs 1"));
}

/// Check and report name the same reasons to use a valid result with caution.
#[test]
fn caution_of_a_report_is_noted() {
    let of_suite = "1 warning; runs vary by 3.3 % (CV, more than 3.0 %)";
    for (folder, reasons, runs) in
        [("suite-2-cores", of_suite, 9), ("h200/score", "a single run of a point has no spread", 3)]
    {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(folder);
        let (status, stdout, stderr) = run(ringmark("check").arg(&folder));
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
        let (_, notes) = stdout.split_once("\n        note: use with caution: ").expect("a note");
        assert!(notes.starts_with(&format!("{reasons}\n")), "{stdout}");
        assert_eq!(notes.contains("\n        note: 1n1g, run 2: other processes "), reasons == of_suite, "{notes}");
        let (status, stdout, stderr) = run(ringmark("report").arg(&folder));
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
        assert!(stdout.contains(&format!("\n- Use with caution: {reasons}; all {runs} runs count\n")), "{stdout}");
    }
}

/// Damaged files of another benchmark in the folder, and of runs.
#[test]
fn damaged_files_are_named_with_the_fix() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("llm");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/llm-2-cores");
    copy_folder(&committed, &folder);
    fs::write(folder.join("1n2g/bandwidth.json"), r#"{"kind":"ringmark-bandwidth","sch"#).expect("written");
    let record = folder.join("1n1g/gpt2-124m_b4_s128_fp32_1.jsonl");
    let text = fs::read_to_string(&record).expect("a record");
    let (status, stdout, _) = run(ringmark("check").arg(&folder));
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains("FAIL    complete  ") && stdout.contains("1n2g/bandwidth.json: "), "{stdout}");
    fs::write(&record, &text[..text.len() / 2]).expect("written");
    let (_, stdout, _) = run(ringmark("check").arg(&folder));
    assert!(stdout.contains("_1.jsonl: the file was changed or damaged after the run"), "{stdout}");
    assert!(
        stdout.contains("_result.json: its figures do not match these runs: restore the files of the runs"),
        "{stdout}"
    );
    assert!(stdout.contains("ringmark sweep --suite llm "), "{stdout}");
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        let target = to.join(entry.file_name().expect("a name"));
        if entry.is_dir() { copy_folder(&entry, &target) } else { fs::copy(&entry, &target).map(drop).expect("copied") }
    }
}

/// After a change of the figures or files of extract, `ringmark extract FOLDER` updates these results.
#[test]
fn committed_files_are_those_that_extract_writes() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    for name in ["cpu-2-cores", "suite-2-cores", "score-2-cores", "score-language-models", "llm-2-cores"] {
        let folder = tempfile::tempdir().expect("a folder");
        succeeds(ringmark("extract").arg(results.join(name)).arg("--out").arg(folder.path()));
        let written: Vec<_> = fs::read_dir(folder.path()).expect("files").map(|file| file.expect("a file")).collect();
        assert!(written.len() > 1, "{name}: {written:?}");
        for file in written {
            let committed = fs::read_to_string(results.join(name).join(file.file_name())).expect("a committed file");
            assert!(fs::read_to_string(file.path()).expect("written") == committed, "{name}: {:?}", file.file_name());
        }
    }
}

#[test]
fn results_that_only_report_shows_are_named() {
    let result = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/goodput-4-hosts");
    for command in ["check", "extract", "predict"] {
        let refusal = refused(ringmark(command).arg(&result), 2);
        assert!(
            refusal.contains("goodput-4-hosts is a result of `ringmark goodput`: use `ringmark report "),
            "{refusal}"
        );
    }
}

/// The command that was typed is suggested for the results that it reads.
#[test]
fn folder_of_results_gets_the_typed_command() {
    let sandbox = Sandbox::with_valid_worker();
    let folder = sandbox.path("h200");
    let copy = |from: &str, to: &str| {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/h200").join(from);
        fs::create_dir_all(folder.join(to)).expect("made");
        for entry in fs::read_dir(from).expect("committed") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), folder.join(to).join(entry.file_name())).expect("copied");
        }
    };
    copy("dlperf-fp16/1n1g", "dlperf-fp16/1n1g");
    copy("score/1n1g", "score/1n1g");
    copy("input", "input");
    copy("../goodput-4-hosts", "goodput");
    // Files with the names of results.
    copy("../../docs/schema", "schema");
    for (command, of_training, of_scoring, of_input) in [
        ("check", "check", "check", "check"),
        ("report", "report", "report", "report"),
        ("extract", "extract", "extract", "extract"),
        ("predict", "predict", "extract", "report"),
    ] {
        let error = refused(ringmark(command).arg(&folder), 1);
        let (_, suggested) = error.split_once("; results are in its subfolders:\n").expect(&error);
        assert_eq!(
            without_folder(suggested),
            format!(
                "  ringmark {of_training} DIR/h200/dlperf-fp16\n  ringmark report DIR/h200/goodput\n  ringmark {of_input} \
                 DIR/h200/input\n  ringmark {of_scoring} DIR/h200/score\n"
            )
        );
    }
}

#[test]
fn folder_without_results_lists_its_files() {
    let folder = Folder::new();
    folder.write("README.md", "Other results.\n");
    let error = || without_folder(&refused(ringmark("predict").arg(folder.path()), 1));
    expect![[r#"
        error: DIR/first contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log, for example 1n1g/rn50_b128_fp32_1.log; it contains no results of ringmark
    "#]].assert_eq(&error());
    folder.write("diff.json", r#"{"kind": "ringmark-diff", "schema": 1}"#);
    folder.write("times.json", "[1, 2]\n");
    expect![[r#"
        error: DIR/first contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log, for example 1n1g/rn50_b128_fp32_1.log; its JSON files are no runs:
          diff.json: kind ringmark-diff
          times.json: no file of ringmark
    "#]].assert_eq(&error());
}

#[test]
fn finished_run_without_log_is_counted_apart() {
    let sandbox = sweep_folder();
    fs::remove_file(sandbox.path("out/1n1g/rn50_b8_fp32_1.log")).expect("removed");
    let (_, stdout, _) = run(ringmark("check").arg(sandbox.path("out")));
    let all = lines_with(&stdout, "finished");
    let (findings, _) = all.split_once(": resume with: ").expect(&all);
    expect![[r#"
        FAIL    complete  2 findings; 4 of 4 runs are finished, 1 of them without usable files
        sweep.json: 1 run is missing (finished, but its log is missing: 1n1g/rn50_b8_fp32_1.log)"#]]
    .assert_eq(findings);
}

#[test]
fn edited_files_are_named_and_resume_repeats_their_runs() {
    let sandbox = sweep_folder();
    let log = sandbox.path("out/1n1g/rn50_b8_fp32_1.log");
    // No figure changes: a comment in the log, a space in the record.
    change(&log, "\n", "\n# a remark\n");
    change(&sandbox.path("out/1n2g/rn50_b8_fp32_2.jsonl"), ",\"run\":", ", \"run\":");
    let (names, findings) = failed(&sandbox);
    assert_eq!(names, ["complete", "unedited"], "{findings}");
    for file in ["1n1g/rn50_b8_fp32_1.log", "1n2g/rn50_b8_fp32_2.jsonl"] {
        let output_text =
            format!("{file}: the file was changed or damaged after the run (SHA-256 differs from the manifest)");
        // Neither run counts, and both are named.
        assert_eq!(findings.matches(&output_text).count(), 2, "{findings}");
    }
    // Every command reports it and excludes their figures.
    let stderr = fails(ringmark("extract").arg(sandbox.path("out")).arg("--out").arg(sandbox.path("again")));
    expect![[r#"
        not in the figures: 1n1g/rn50_b8_fp32_1.log: the file was changed or damaged after the run (SHA-256 differs from the manifest)
        not in the figures: 1n2g/rn50_b8_fp32_2.jsonl: the file was changed or damaged after the run (SHA-256 differs from the manifest)"#]].assert_eq(&lines_with(&stderr, "not in the figures: 1n"));
    succeeds(&mut sandbox.short_sweep(&format!("{OPTIONS} --resume")));
    assert_eq!(sandbox.ran().len(), 6);
    extract(&sandbox);
    assert_eq!(failed(&sandbox).0, Vec::<String>::new());
    let (_, stdout, _) = run(ringmark("check").arg(sandbox.path("out")));
    expect![[r#"
        note: 1n1g/rn50_b8_fp32_1.log: 1 attempt before this one, with files next to it
        note: 1n2g/rn50_b8_fp32_2.log: 1 attempt before this one, with files next to it"#]]
    .assert_eq(&lines_with(&stdout, "attempt"));
}

#[test]
fn figures_that_differ_from_the_logs_are_reported() {
    let sandbox = sweep_folder();
    change(&sandbox.path("out/out_result.md"), "16.0", "19.0");
    let findings = only(&sandbox, "unedited");
    expect!["out_result.md: it was changed after `ringmark extract` wrote it: extract again"].assert_eq(&findings);
    extract(&sandbox);
    let name = "\"out_result.md\":";
    change(&sandbox.path("out/out_result.json"), name, "\"other.md\":");
    expect!["out_result.md: its hash is missing from out_result.json: extract again"]
        .assert_eq(&only(&sandbox, "unedited"));
    extract(&sandbox);
    assert_eq!(failed(&sandbox).0, Vec::<String>::new());

    // Another version may use other sentences, but must not change any figure.
    let json = sandbox.path("out/out_result.json");
    let mut result: Value = serde_json::from_slice(&fs::read(&json).expect("read")).expect("JSON");
    for row in result["rows"].as_array_mut().expect("rows") {
        for sentence in row["reliability_warnings"].as_array_mut().expect("sentences") {
            *sentence = json!("reworded");
        }
    }
    fs::write(&json, result.to_string()).expect("written");
    assert_eq!(failed(&sandbox).0, Vec::<String>::new());
    result["rows"][0]["is_reliable"] = json!(!result["rows"][0]["is_reliable"].as_bool().expect("a boolean"));
    fs::write(&json, result.to_string()).expect("written");
    expect!["out_result.json: its figures do not match these runs: extract again"]
        .assert_eq(&only(&sandbox, "unedited"));
    extract(&sandbox);

    // An earlier version had fewer keys and no hashes.
    let mut result: Value = serde_json::from_slice(&fs::read(&json).expect("read")).expect("JSON");
    result["rows"][0].as_object_mut().expect("a row").remove("is_reliable").expect("a key");
    result.as_object_mut().expect("a result").remove("files_sha256").expect("a key");
    // Other keys were renamed.
    result["rows"].as_array_mut().expect("rows").iter_mut().for_each(|row| {
        let row = row.as_object_mut().expect("a row");
        let warnings = row.remove("reliability_warnings").expect("a key");
        row.insert("objections".to_owned(), warnings);
    });
    result["schema"] = 3.into();
    fs::write(&json, result.to_string()).expect("written");
    change(&sandbox.path("out/out_result.md"), "speedup", "faster by");
    assert_eq!(failed(&sandbox).0, Vec::<String>::new());
    let (_, stdout, _) = run(ringmark("check").arg(sandbox.path("out")));
    expect![[r#"
        PASS    complete  4 of 4 runs are finished
        PASS    unedited  8 files compared with their SHA-256, 4 files written by extract with the runs
                note: extract's files were written by an earlier version without hashes: only the result's JSON was compared
        PASS    rules     options, hosts, devices, software and times of 4 runs
        PASS    reliable  load, spread, efficiency and profile of every case
                note: use with caution: 1 warning
                note: different devices in one table: DEVICE / processor
    "#]].assert_eq(&stdout);
    result["rows"][0]["units_per_second"] = 29.0.into();
    fs::write(&json, result.to_string()).expect("written");
    expect!["out_result.json: its figures do not match these runs: extract again"]
        .assert_eq(&only(&sandbox, "unedited"));
}

#[test]
fn committed_results_in_the_documents_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = fs::read_dir(root.join("docs")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let texts = documents.filter(|path| path.is_file()).chain([root.join("README.md")]);
    let text: String = texts.map(|path| fs::read_to_string(path).expect("read")).collect();
    let shown = text.split("ringmark check results/").skip(1);
    let is_end = |letter: char| letter.is_whitespace() || letter == '`';
    let shown = shown.map(|rest| root.join("results").join(rest.split(is_end).next().unwrap_or_default()));
    let committed: Vec<_> = shown.filter(|folder| folder.exists()).collect();
    assert!(!committed.is_empty());
    // Sweeps of this version, which documents show in other forms.
    let others = ["cpu-2-cores", "suite-2-cores", "score-2-cores", "layouts/nhwc", "layouts/nchw"];
    let committed = committed.into_iter().chain(others.map(|name| root.join("results").join(name)));
    for folder in committed {
        let (status, stdout, stderr) = run(ringmark("check").arg(&folder));
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    }
}

#[test]
fn result_of_an_earlier_version_has_unknown_hashes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/old_results/suite-2-cores");
    let (status, stdout, stderr) = run(ringmark("check").arg(folder));
    assert_eq!(status, Some(1), "{stderr}");
    let states: Vec<&str> = stdout.lines().filter(|line| !line.starts_with(' ')).map(|line| &line[..17]).collect();
    assert_eq!(
        states,
        ["PASS    complete ", "UNKNOWN unedited ", "PASS    rules    ", "PASS    reliable "],
        "{stdout}"
    );
}

#[test]
fn finding_of_several_points_is_reported_once() {
    let folder = Folder::new();
    let mut manifest = Manifest::new(BenchmarkKind::Train, Vec::new(), Conditions::default());
    for (batch_size, profile) in [(8, RunProfile::Quick), (16, RunProfile::Quick), (32, RunProfile::Full)] {
        for case in ["1n1g", "1n2g", "2n1g"] {
            let mut record = record(case, 1, 0.5);
            (record.header.config.batch_size, record.header.profile) = (batch_size, profile);
            folder.run(&record);
            let run = format!("{case}/rn50_b{batch_size}_fp32_1.log");
            manifest.run(run.parse().expect("a name")).state = RunState::Finished;
        }
    }
    manifest.write(&folder.path()).expect("written");
    let (_, stdout, stderr) = run(ringmark("check --json -").arg(folder.path()));
    let answer: Value = serde_json::from_str(&stdout).expect(&stderr);
    let checks = answer["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == "reliable").expect("a check");
    let quick = "quick profile, a first look: measure again without --quick, with another --out";
    let names = "rn50_b8_fp32_cpu_quick, rn50_b16_fp32_cpu_quick";
    assert_eq!(check["findings"], serde_json::json!([format!("batch size 8, batch size 16: {quick}")]), "{check}");
    // A prediction has a table for each of them, and one warning.
    let (_, stdout, stderr) = run(ringmark("predict").arg(folder.path()));
    let text = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text.matches(&format!("warning: {names}: unreliable: {quick}")).count(), 1, "{stdout}{stderr}");
    assert_eq!(text.matches("a first look").count(), 1, "{stdout}");
}

#[test]
fn stale_json_is_removed_if_the_check_is_refused() {
    let sandbox = sweep_folder();
    let answer = sandbox.path("check.json");
    let (status, ..) = run(ringmark("check").arg(sandbox.path("out")).arg("--json").arg(&answer));
    assert_eq!((status, answer.exists()), (Some(0), true));
    refused(ringmark("check").arg(sandbox.path("nothing")).arg("--json").arg(&answer), 2);
    assert!(!answer.exists());
}

#[test]
fn missing_and_foreign_files_are_named() {
    let sandbox = sweep_folder();
    fs::remove_file(sandbox.path("out/1n2g/rn50_b8_fp32_2.jsonl")).expect("removed");
    for ending in ["log", "jsonl"] {
        let [from, to] = [1, 3].map(|run| sandbox.path(&format!("out/1n1g/rn50_b8_fp32_{run}.{ending}")));
        fs::copy(from, to).expect("copied");
    }
    let (names, findings) = failed(&sandbox);
    assert!(names.starts_with(&["complete".to_owned(), "unedited".to_owned()]), "{names:?}");
    expect![[r#"
        1n2g/rn50_b8_fp32_2.jsonl: the file is missing
        1n1g/rn50_b8_fp32_3.log: not written by the sweep in this folder: move it to another folder
        sweep.json: 1 run is missing: resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g,1n2g --runs 2 --resume
        1n2g/rn50_b8_fp32_2.jsonl: the file is missing
        1n1g/rn50_b8_fp32_3.log: not written by the sweep in this folder: move it to another folder
        out_result.json: its figures do not match these runs: restore the files of the runs"#]].assert_eq(&findings);

    // A run that was removed from the manifest, or was never run.
    let sandbox = sweep_folder();
    let mut manifest = Manifest::find(&sandbox.path("out")).expect("readable").expect("there");
    manifest.runs.remove(0);
    manifest.runs.last_mut().expect("a run").state = RunState::Planned;
    manifest.write(&sandbox.path("out")).expect("written");
    let (names, findings) = failed(&sandbox);
    assert_eq!(names, ["complete", "unedited"], "{findings}");
    expect![[r#"
        1n1g/rn50_b8_fp32_1.log: not written by the sweep in this folder: move it to another folder
        sweep.json: 1 run is missing (not yet run: 1n2g/rn50_b8_fp32_2.log): resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g,1n2g --runs 2 --resume
        1n1g/rn50_b8_fp32_1.log: missing from the manifest, which has later runs of its case
        1n1g/rn50_b8_fp32_1.log: not written by the sweep in this folder: move it to another folder
        out_result.json: its figures do not match these runs: extract again"#]].assert_eq(&findings);
}

#[test]
fn check_without_finished_run_is_unknown() {
    let folder = Folder::new();
    let log = "1n1g/rn50_b4_fp32_1.log";
    folder.write(log, "ringmark: run failed: rank 1 on host a was killed by signal 9\n");
    let failed = RunState::Failed { reason: "rank 1 on host a was killed by signal 9".to_owned() };
    let command = ["ringmark", "sweep", "--resume"].map(str::to_owned).into();
    let mut manifest = Manifest::new(BenchmarkKind::Train, command, Conditions::default());
    manifest.run(log.parse().expect("the name of a run")).state = failed;
    manifest.write(&folder.path()).expect("a writable folder");
    let (status, stdout, _) = run(ringmark("check").arg(folder.path()));
    assert_eq!(status, Some(1));
    expect![[r#"
        FAIL    complete  2 findings; 0 of 1 runs are finished
                sweep.json: 1 run is missing: resume with: ringmark sweep --resume
                1n1g/rn50_b4_fp32_1.log:1: the run failed: rank 1 on host a was killed by signal 9: repeat it
        UNKNOWN unedited  0 files compared with their SHA-256, 0 files written by extract with the runs
                no run has a record, so there is nothing to check
        UNKNOWN rules     options, hosts, devices, software and times of 0 runs
                no run has a record, so there is nothing to check
        UNKNOWN reliable  load, spread, efficiency and profile of every case
                no run has a record, so there is nothing to check
    "#]]
    .assert_eq(&stdout);
    let (_, stdout, stderr) = run(ringmark("extract --format table").arg(folder.path()));
    expect![[r#"
        ResNet50-v1b, fp32, batch size 4 per GPU
        device unknown: no run wrote a record
        no run counts: the run failed: rank 1 on host a was killed by signal 9: repeat it
        Unreliable: no run counts"#]]
    .assert_eq(stdout.split("\n\n").next().unwrap_or_default());
    expect![[r#"
        not in the figures: sweep.json: 1 run is missing: resume with: ringmark sweep --resume
        not in the figures: 1n1g/rn50_b4_fp32_1.log:1: the run failed: rank 1 on host a was killed by signal 9: repeat it
        error: the figures of DIR/first are not complete: see the 2 messages above
    "#]].assert_eq(&without_folder(&stderr));
}

#[test]
fn different_options_and_overlapping_runs_break_the_rules() {
    let sandbox = sweep_folder();
    let manifest = sandbox.path("out/sweep.json");
    change(&manifest, "\"--lr\": \"0.001\"", "\"--lr\": \"0.002\"");
    change(&manifest, "\"--wire\": \"fp32\"", "\"--wire\": \"float\"");
    let findings = only(&sandbox, "rules");
    let line = |run| format!("1n{run}.log: it ran with --lr 0.001, but the sweep requested 0.002");
    let runs = ["1g/rn50_b8_fp32_1", "1g/rn50_b8_fp32_2", "2g/rn50_b8_fp32_1", "2g/rn50_b8_fp32_2"];
    assert_eq!(findings, runs.map(line).join("\n"), "float is another word for fp32");

    let sandbox = sweep_folder();
    change(&sandbox.path("out/1n1g/rn50_b8_fp32_2.jsonl"), "\"started\":20.0", "\"started\":11.0");
    let (names, findings) = failed(&sandbox);
    assert_eq!(names, ["complete", "unedited", "rules"], "{findings}");
    expect![[r#"
        1n1g/rn50_b8_fp32_2.jsonl: the file was changed or damaged after the run (SHA-256 differs from the manifest)
        sweep.json: 1 run is missing: resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g,1n2g --runs 2 --resume
        1n1g/rn50_b8_fp32_2.jsonl: the file was changed or damaged after the run (SHA-256 differs from the manifest)
        out_result.json: its figures do not match these runs: restore the files of the runs
        1n1g/rn50_b8_fp32_2.log: it started 1 s before 1n1g/rn50_b8_fp32_1.log ended: they shared the hosts"#]].assert_eq(&findings);
}

#[test]
fn server_options_apply_only_to_strategies_with_servers() {
    let sandbox = Sandbox::with_valid_worker();
    // Two of the processes are servers.
    sandbox.hook(
        r#"case $record in *dist-sync*)
            from=$folder/ranks_$((OMPI_COMM_WORLD_SIZE - 2)).jsonl
            OMPI_COMM_WORLD_SIZE=served
            sed 's/"strategy":"all-reduce"/"strategy":"all-reduce","servers":2,"key_placement":"hash"/' "$from" >"$folder/ranks_served.jsonl";;
        esac"#,
    );
    let options = "--cases 1n2g --runs 1 --strategies all-reduce,dist_sync --servers 2 --key-placement hash";
    succeeds(&mut sandbox.short_sweep(options));
    let rules = |sandbox: &Sandbox| {
        let (_, findings) = failed(sandbox);
        findings.lines().filter(|line| line.contains("the sweep requested")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(rules(&sandbox), Vec::<String>::new());
    change(&sandbox.path("out/sweep.json"), "\"--servers\": \"2\"", "\"--servers\": \"3\"");
    expect!["1n2g/rn50_b8_fp32_dist-sync_1.log: it ran with --servers 2, but the sweep requested 3"]
        .assert_eq(&rules(&sandbox).join("\n"));

    // The baselines of a suite have no strategy.
    let sandbox = Sandbox::with_valid_worker();
    succeeds(&mut sandbox.short_sweep("--cases 1n2g --runs 1 --suite ddp --model resnet50_v1b --strategy device"));
    assert_eq!(sandbox.ran(), ["1n2g_1", "none_1n2g_1"]);
    assert_eq!(rules(&sandbox), Vec::<String>::new());
    change(&sandbox.path("out/sweep.json"), "\"--strategy\": \"device\"", "\"--strategy\": \"nccl\"");
    expect!["1n2g/rn50_b8_fp32_device_1.log: it ran with --strategy device, but the sweep requested nccl"]
        .assert_eq(&rules(&sandbox).join("\n"));
}

#[test]
fn quick_sweep_and_old_manifest_do_not_pass() {
    let sandbox = Sandbox::with_valid_worker();
    let quick = "if [ $name = 1n1g_1 ]; then sed -i 's/\"full\"/\"quick\"/' \"$folder\"/ranks_*.jsonl; fi";
    sandbox.hook(quick);
    succeeds(&mut sandbox.short_sweep("--cases 1n1g --quick"));
    let findings = only(&sandbox, "reliable");
    expect!["quick profile, a first look: measure again without --quick, with another --out"].assert_eq(&findings);

    let sandbox = sweep_folder();
    let mut manifest = Manifest::find(&sandbox.path("out")).expect("readable").expect("there");
    manifest.runs.iter_mut().for_each(|run| run.sha256 = None);
    manifest.write(&sandbox.path("out")).expect("written");
    expect!["no hashes of 4 finished runs: an earlier ringmark wrote the manifest, so edits cannot be detected"]
        .assert_eq(&only(&sandbox, "unedited"));
    let (_, stdout, stderr) = run(ringmark("check").arg(sandbox.path("out")));
    expect![[r#"
        PASS    complete  4 of 4 runs are finished
        UNKNOWN unedited  0 files compared with their SHA-256, 4 files written by extract with the runs
                no hashes of 4 finished runs: an earlier ringmark wrote the manifest, so edits cannot be detected
        PASS    rules     options, hosts, devices, software and times of 4 runs
        PASS    reliable  load, spread, efficiency and profile of every case
                note: use with caution: 1 warning
                note: different devices in one table: DEVICE / processor
    "#]]
    .assert_eq(&stdout);
    expect![[r#"
        error: DIR/out is not known to be unedited: no hashes of 4 finished runs
    "#]]
    .assert_eq(&without_folder(&stderr));
}

#[test]
fn committed_result_that_check_rejects_says_why() {
    let stderr = fails(ringmark("check").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("results/same-40-times")));
    expect![[r#"
        error: ./results/same-40-times is not reliable: busy machine; is not known to be unedited: no hashes of 40 finished runs
    "#]].assert_eq(&stderr.replace(env!("CARGO_MANIFEST_DIR"), "."));
}

#[test]
fn folder_without_a_run_fails_with_the_reason() {
    let folder = Folder::new();
    let mut manifest = Manifest::new(BenchmarkKind::Train, Vec::new(), Conditions::default());
    let check = |manifest: &Manifest| {
        manifest.write(&folder.path()).expect("written");
        without_folder(&refused(ringmark("check").arg(folder.path()), 1))
    };
    expect![[r"
        error: DIR/first contains no run that counts: its sweep.json lists none
    "]]
    .assert_eq(&check(&manifest));
    let memory = MemoryShortage { taken: Bytes(15_000_000_000), total: Bytes(16_000_000_000) };
    manifest.run("1n1g/rn50_b512_fp32_1.log".parse().expect("a name")).state = RunState::OutOfMemory { memory };
    expect![[r"
        error: DIR/first contains no run that counts:
          ResNet50-v1b, fp32, 1n1g: out of memory at batch 512: 15.0 of 16.0 GB
    "]]
    .assert_eq(&check(&manifest));
}

#[test]
fn folder_without_a_sweep_is_rejected() {
    let sandbox = sweep_folder();
    fs::remove_file(sandbox.path("out/sweep.json")).expect("removed");
    let error = refused(ringmark("check").arg(sandbox.path("out")), 2);
    expect![[r"
        error: DIR/out contains no sweep.json: pass a folder of `ringmark sweep` or `ringmark score`
    "]]
    .assert_eq(&without_folder(&error));
    let error = refused(ringmark("check").arg(sandbox.path("nothing")), 2);
    expect![[r"
        error: folder not found: DIR/nothing: pass the folder that a sweep wrote
    "]]
    .assert_eq(&without_folder(&error));
}

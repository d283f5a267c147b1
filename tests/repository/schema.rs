//! JSON Schema files in docs/schema: they match the types, and every kind of file and answer is valid.

mod pages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringmark::cli::schema;
use ringmark_core::accept::JOURNAL;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::manifest::Manifest;

use crate::support::sandbox::{Sandbox, ringmark};
use crate::support::schema::{check, folder};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Writes the files instead if `RINGMARK_WRITE_SCHEMA` is set.
#[test]
fn committed_schemas_match_the_types() {
    let mut names = Vec::new();
    for (name, schema) in schema::schemas() {
        let (path, text) = (folder().join(format!("{name}.json")), schema::text(&schema).expect("JSON"));
        if std::env::var_os("RINGMARK_WRITE_SCHEMA").is_some() {
            fs::create_dir_all(folder()).expect("a folder");
            fs::write(&path, &text).expect("written");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} differs: RINGMARK_WRITE_SCHEMA=1 cargo test schema", path.display());
        names.push(format!("{name}.json"));
    }
    for entry in fs::read_dir(folder()).expect("the folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        assert!(names.contains(&name), "docs/schema/{name} is of no type");
    }
}

/// Returns the files below results/ with this ending.
fn committed(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(ROOT).join("results")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.to_string_lossy().ends_with(ending) => found.push(path),
                false => {}
            }
        }
    }
    assert!(!found.is_empty(), "no {ending} below results");
    found
}

/// Older versions use other names for a few keys: such files are read, rewritten, and then valid.
#[test]
fn committed_records_are_valid_when_rewritten() {
    let of_scoring = |path: &PathBuf| {
        let kind = format!(r#"{{"kind":"{}""#, ScoreRecord::KIND);
        fs::read(path).expect("readable").starts_with(kind.as_bytes())
    };
    let records = committed(".jsonl").into_iter().filter(|path| !path.ends_with(JOURNAL));
    let (scored, trained): (Vec<PathBuf>, Vec<PathBuf>) = records.partition(of_scoring);
    for path in scored.iter().step_by(5) {
        let record = ScoreRecord::read(&fs::read(path).expect("readable")[..]).expect("a record");
        check("score_record", &serde_json::to_value(record).expect("JSON"), &path.display().to_string());
    }
    for path in trained.iter().step_by(5) {
        let record = RunRecord::read(&fs::read(path).expect("readable")[..]).expect("a record");
        let mut text = Vec::new();
        record.write(&mut text).expect("an in-memory write succeeds");
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        for line in [lines[0], lines[1], lines[lines.len() - 1]] {
            check("run_record", &serde_json::from_slice(line).expect("JSON"), &path.display().to_string());
        }
    }
    for path in committed("sweep.json") {
        let manifest = Manifest::read(&fs::read(&path).expect("readable")[..]).expect("a manifest");
        check("manifest", &serde_json::to_value(manifest).expect("JSON"), &path.display().to_string());
    }
    let seed = Path::new(ROOT).join("tests/fuzz/seeds/bandwidth/two_sizes.json");
    let record = BandwidthRecord::read(&fs::read(&seed).expect("readable")[..]).expect("a record");
    check("bandwidth_record", &serde_json::to_value(record).expect("JSON"), &seed.display().to_string());
}

#[test]
fn extract_output_is_valid() {
    let out = tempfile::tempdir().expect("a folder");
    for folder in ["results/suite-2-cores", "results/cpu-2-cores"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringmark"));
        command.args(["extract", folder, "--json", "--out"]).arg(out.path()).current_dir(ROOT);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        check("result", &serde_json::from_slice(&output.stdout).expect("JSON"), folder);
    }
    // Scoring results, with published figures.
    let words = ["results/score-2-cores", "--published", "--json"];
    let extract = [&["extract"], &words[..], &["--out", out.path().to_str().expect("ASCII")]].concat();
    for (words, schema) in [(extract, "score_result"), ([&["report"], &words[..]].concat(), "report")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringmark"));
        let output = command.args(&words).current_dir(ROOT).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        check(schema, &serde_json::from_slice(&output.stdout).expect("JSON"), &words.join(" "));
    }
}

#[test]
fn doctor_output_is_valid() {
    let sandbox = Sandbox::new("exit 1");
    let mut command = ringmark("doctor --quick --device cpu --hosts localhost:1 --json --worker");
    command.arg(sandbox.worker());
    let output = command.output().expect("it starts");
    check("doctor", &serde_json::from_slice(&output.stdout).expect("JSON"), "the doctor's answer");
}

#[test]
fn schema_is_printed_by_name() {
    let print =
        |name: &str| Command::new(env!("CARGO_BIN_EXE_ringmark")).args(["schema", name]).output().expect("it starts");
    let output = print("manifest");
    assert_eq!(output.stdout, fs::read(folder().join("manifest.json")).expect("committed"));
    let output = print("nothing");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("run_record"));
}

#[test]
fn wrong_document_is_rejected() {
    let path = committed("sweep.json").remove(0);
    let manifest = Manifest::read(&fs::read(&path).expect("readable")[..]).expect("a manifest");
    let mut document = serde_json::to_value(manifest).expect("JSON");
    document.as_object_mut().expect("an object").remove("runs");
    let refused = std::panic::catch_unwind(|| check("manifest", &document, "a manifest without runs"));
    assert!(refused.is_err());
}

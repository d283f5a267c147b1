//! Output files: commands never replace an input or a file of a sweep, write none unless requested, and on a faulty
//! disk leave either the complete new file or the old one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::file::safetensors::HASHES;
use ringmark_core::manifest::{Conditions, Manifest, RunOfSweep, RunState};
use ringmark_core::progress::Progress;
use ringmark_core::trace::chrome;

use crate::support::faulty_disk::FaultyDisk;
use crate::support::runs::{Folder, record};
use crate::support::safetensors::{self, Tensors};
use crate::support::sandbox::{Sandbox, refused, ringmark, run, succeeds, words};
use crate::support::worker_run::{Finished, Run};

/// Returns a folder of two cases with one run each.
fn measured() -> Folder {
    let folder = Folder::new();
    folder.run(&record("1n1g", 1, 0.5));
    folder.run(&record("1n2g", 1, 0.5));
    folder
}

/// Returns the same with the manifest of a sweep.
fn sweep_folder() -> Folder {
    let folder = measured();
    let mut manifest = Manifest::new(BenchmarkKind::Train, Vec::new(), Conditions::default());
    for run in ["1n1g/rn50_b4_fp32_1.log", "1n2g/rn50_b4_fp32_1.log"] {
        manifest.run(run.parse().expect("a name")).state = RunState::Finished;
    }
    manifest.write(&folder.path()).expect("written");
    folder
}

/// Returns every file below a folder with its contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("read"));
        }
    }
    found
}

#[test]
fn commands_do_not_overwrite_inputs_or_sweep_files() {
    let folder = sweep_folder();
    let other = sweep_folder();
    let path = |name: &str| folder.path().join(name).to_str().expect("ASCII").to_owned();
    std::os::unix::fs::symlink(path("sweep.json"), path("link.json")).expect("linked");
    std::os::unix::fs::symlink("../link.json", path("1n1g/linked.json")).expect("linked");
    let before = files(&folder.path());
    let (first, second) = (path(""), other.path().to_str().expect("ASCII").to_owned());
    let targets =
        ["1n1g/rn50_b4_fp32_1.log", "1n2g/rn50_b4_fp32_1.jsonl", "sweep.json", "link.json", "1n1g/linked.json"];
    for target in targets.map(path) {
        for (command, option) in [
            (format!("report {first} --format markdown --out {target}"), "--out"),
            (format!("report {first} --json {target}"), "--json"),
            (format!("extract {first} --json {target}"), "--json"),
            (format!("extract {first} --format csv --out {target}"), "--out"),
            (format!("extract {first} --format prometheus --out {target}"), "--out"),
            (format!("extract {first} --format influx --out {target}"), "--out"),
            (format!("diff {first} {second} --json {target}"), "--json"),
            (format!("diff {second} {second} --json {target}"), "--json"),
            (format!("predict {first} --json {target}"), "--json"),
            (format!("check {first} --json {target}"), "--json"),
            (format!("doctor --hosts localhost:1 --json {target}"), "--json"),
            (format!("watch {first} --json {target}"), "--json"),
        ] {
            let error = refused(&mut ringmark(&command), 2);
            let what = format!("{option} {target} belongs to a sweep and is not overwritten: use another file");
            assert!(error.contains(&what), "{command}: {error}");
            assert!(files(&folder.path()) == before, "{command}");
        }
    }
    let others = tempfile::tempdir().expect("a folder");
    for name in ["accept.jsonl", "accept.json", "goodput.json"] {
        let target = others.path().join(name);
        fs::write(&target, "{}").expect("written");
        let error = refused(ringmark(&format!("extract {first} --json")).arg(&target), 2);
        assert!(error.contains("is not overwritten") && fs::read(&target).expect("kept") == b"{}", "{error}");
    }
}

#[test]
fn compared_file_is_kept_and_old_output_replaced() {
    let (folder, out) = (sweep_folder(), tempfile::tempdir().expect("a folder"));
    let result = out.path().join("first_result.json");
    succeeds(ringmark("extract").arg(folder.path()).arg("--out").arg(out.path()));
    let before = fs::read(&result).expect("read");
    // Passed by name, and found in a folder.
    fs::create_dir(out.path().join("results")).expect("made");
    let inside = out.path().join("results/result.json");
    fs::copy(&result, &inside).expect("copied");
    for (base, target) in [(&result, &result), (&out.path().join("results"), &inside)] {
        let error = refused(ringmark("diff").arg(base).arg(folder.path()).arg("--json").arg(target), 2);
        assert!(error.contains(&format!("--json {} is an input of this command", target.display())), "{error}");
        assert_eq!(fs::read(target).expect("read"), before);
    }
    // A file that no command reads as a result may be replaced, even in a folder of results.
    for _ in 0..2 {
        let answer = folder.path().join("diff.json");
        let (status, _, stderr) = run(ringmark("diff").arg(&result).arg(folder.path()).arg("--json").arg(&answer));
        assert_eq!((status, answer.exists()), (Some(0), true), "{stderr}");
    }
}

#[test]
fn extract_writes_to_sweep_folder_or_given_folder() {
    let [sweep, logs] = [sweep_folder(), measured()];
    for folder in [&sweep, &logs] {
        let before = files(&folder.path());
        for options in [
            "--format table",
            "--format csv",
            "--format json",
            "--format markdown",
            "--format dlperf",
            "--format pytorch-ddp-lines",
            "--json",
        ] {
            let (status, stdout, stderr) = run(ringmark("extract").arg(folder.path()).args(words(options)));
            assert_eq!((status, stderr.as_str(), stdout.is_empty()), (Some(0), "", false), "{options}");
            assert!(files(&folder.path()) == before, "{options}");
        }
        let answer = tempfile::tempdir().expect("a folder");
        let answer = answer.path().join("answer.json");
        let (status, ..) = run(ringmark("extract").arg(folder.path()).arg("--json").arg(&answer));
        assert!(status == Some(0) && answer.exists() && files(&folder.path()) == before);
    }
    let (status, _, stderr) = run(ringmark("extract").arg(logs.path()));
    let output_text =
        format!("no files written: {} is not a sweep folder: choose one with --out\n", logs.path().display());
    assert_eq!((status, stderr), (Some(0), output_text));
    let more =
        |folder: &Folder| files(&folder.path()).keys().filter(|path| path.ends_with("first_result.json")).count();
    let (status, _, stderr) = run(ringmark("extract").arg(sweep.path()));
    let first = sweep.path().join("first_result.json").display().to_string();
    assert_eq!((status, stderr), (Some(0), format!("wrote {first}, _result.csv, _result.md, _dlperf.json\n")));
    assert_eq!([more(&sweep), more(&logs)], [1, 0]);
    let (status, ..) = run(ringmark("extract --format csv").arg(logs.path()).arg("--out").arg(logs.path()));
    assert_eq!((status, more(&logs)), (Some(0), 1));
    let file = logs.path().join("figures.csv");
    let (status, stdout, stderr) = run(ringmark("extract --format csv").arg(logs.path()).arg("--out").arg(&file));
    assert_eq!((status, stdout, stderr), (Some(0), String::new(), format!("wrote {}\n", file.display())));
    assert!(fs::read_to_string(&file).expect("written").starts_with("group,"), "one format in one file");
}

/// Disk errors by number, with their messages.
const ERRORS: [(&str, &str); 4] = [
    ("5", "Input/output error"),
    ("28", "No space left on device"),
    ("122", "Disk quota exceeded"),
    ("116", "Stale file handle"),
];

/// Write calls, each with a fault that cannot be recovered, and its message.
fn failures() -> impl Iterator<Item = (&'static str, (&'static str, &'static str))> {
    let writes = ERRORS.into_iter().chain([("zero", "failed to write")]).map(|fault| ("write", fault));
    writes.chain([("fsync", ERRORS[0]), ("fsync", ERRORS[1])])
}

#[test]
fn interrupted_writes_finish_and_failed_writes_keep_old_file() {
    let (disk, folder, out) = (FaultyDisk::new(), measured(), tempfile::tempdir().expect("a folder"));
    let page = out.path().join("report.html");
    let extract = || {
        let mut command = ringmark("extract --out");
        command.arg(out.path()).arg(folder.path());
        command
    };
    let report = || {
        let mut command = ringmark("report --out");
        command.arg(&page).arg(folder.path());
        command
    };
    for command in [&extract as &dyn Fn() -> Command, &report] {
        succeeds(&mut command());
        let whole = files(out.path());
        let old: Vec<PathBuf> = whole.keys().cloned().collect();
        for fault in ["EINTR", "short"] {
            old.iter().for_each(|file| fs::write(file, "old").expect("written"));
            let (status, _, stderr) = disk.run(command(), "write", ".part", fault);
            assert_eq!(status, Some(0), "{fault}: {stderr}");
            let written = files(out.path()).into_iter().filter(|(_, content)| content != b"old");
            let mut count = 0;
            for (file, content) in written {
                assert!(whole.get(&file) == Some(&content), "{fault}: {}", file.display());
                count += 1;
            }
            assert!(count > 0, "{fault}");
        }
        for (call, (fault, text)) in failures() {
            old.iter().for_each(|file| fs::write(file, "old").expect("written"));
            let (status, _, stderr) = disk.run(command(), call, ".part", fault);
            assert_eq!(status, Some(1), "{call} {fault}: {stderr}");
            assert!(stderr.contains("cannot be written: ") && stderr.contains(text), "{call} {fault}: {stderr}");
            let left = files(out.path());
            assert!(left.keys().eq(&old) && left.values().all(|content| content == b"old"), "{call} {fault}");
        }
    }
}

#[test]
fn interrupted_reads_finish_and_failed_reads_are_named() {
    let (disk, folder) = (FaultyDisk::new(), measured());
    let command = |options: &str| {
        let mut command = ringmark(options);
        command.arg(folder.path());
        command
    };
    for options in ["extract --format json", "report --format markdown"] {
        let whole = run(&mut command(options));
        assert_eq!(whole.0, Some(0), "{}", whole.2);
        for (name, fault) in [(".jsonl", "EINTR"), (".jsonl", "short"), (".log", "EINTR"), (".log", "short")] {
            assert_eq!(disk.run(command(options), "read", name, fault), whole, "{options}: {name} {fault}");
        }
        let zero = [("zero", "")];
        for (fault, text) in [ERRORS[0], ERRORS[3]].into_iter().chain(zero) {
            let (status, _, stderr) = disk.run(command(options), "read", "1n2g/rn50_b4_fp32_1.jsonl", fault);
            assert_eq!(status, Some(1), "{options}: {fault}: {stderr}");
            assert!(stderr.contains("1n2g/rn50_b4_fp32_1.jsonl") && stderr.contains(text), "{fault}: {stderr}");
        }
    }
}

#[test]
fn pack_replaces_all_files_or_names_the_failed_one() {
    let (disk, folder) = (FaultyDisk::new(), tempfile::tempdir().expect("a folder"));
    fs::create_dir_all(folder.path().join("images/a")).expect("made");
    for image in ["images/a/0.jpg", "images/a/1.jpg"] {
        fs::write(folder.path().join(image), image).expect("written");
    }
    let pack = || {
        let mut command = ringmark("pack images out.rec --force --pass-through");
        command.current_dir(folder.path());
        command
    };
    succeeds(&mut pack());
    let whole = files(folder.path());
    let parts = ["rec", "idx", "lst"];
    let make_old =
        || parts.map(|part| fs::write(folder.path().join("out").with_extension(part), "old").expect("written"));
    for part in parts {
        let name = format!("out.{part}.");
        for fault in ["EINTR", "short"] {
            make_old();
            let (status, _, stderr) = disk.run(pack(), "write", &name, fault);
            assert!(status == Some(0) && files(folder.path()) == whole, "{part} {fault}: {stderr}");
        }
        for (call, (fault, text)) in failures() {
            make_old();
            let before = files(folder.path());
            let (status, _, stderr) = disk.run(pack(), call, &name, fault);
            assert_eq!(status, Some(1), "{part} {call} {fault}: {stderr}");
            assert!(stderr.starts_with(&format!("error: out.{part} cannot be written: ")), "{stderr}");
            assert!(stderr.contains(text) && files(folder.path()) == before, "{part} {call} {fault}: {stderr}");
        }
    }
}

#[test]
fn sweep_files_are_complete_or_the_failed_one_is_named() {
    let (disk, sandbox) = (FaultyDisk::new(), Sandbox::with_valid_worker());
    let (out, log) = (sandbox.path("out"), "1n1g/rn50_b8_fp32_1.log");
    let sweep = |options: &str| sandbox.short_sweep(&format!("--cases 1n1g {options}"));
    succeeds(&mut sweep("--runs 1"));
    let whole = sandbox.log(log);
    // The launcher writes every file under another name until it is complete.
    for fault in ["EINTR", "short"] {
        fs::remove_dir_all(&out).expect("removed");
        let (status, _, stderr) = disk.run(sweep("--runs 1"), "write", ".part", fault);
        assert_eq!(status, Some(0), "{fault}: {stderr}");
        assert_eq!(sandbox.log(log), whole, "{fault}");
        let manifest = Manifest::find(&out).expect("readable").expect("there is one");
        assert!(manifest.runs.iter().all(|run| run.change(&out).is_none() && run.state == RunState::Finished));
        assert!(Progress::read_in(&out).expect("readable").end.is_some(), "{fault}");
    }

    let finished = files(&out.join("1n1g"));
    let manifest = || fs::read(out.join("sweep.json")).expect("readable");
    for (call, (fault, text)) in failures() {
        let before = manifest();
        let (status, _, stderr) = disk.run(sweep("--runs 2 --resume"), call, "sweep.json.", fault);
        assert!(status == Some(1) && manifest() == before, "{call} {fault}: {stderr}");
        let named = format!("{} cannot be written: ", out.join("sweep.json").display());
        assert!(stderr.contains(&named) && stderr.contains(text), "{call} {fault}: {stderr}");
    }
    for (call, (fault, text)) in failures() {
        let (status, _, stderr) = disk.run(sweep("--runs 2 --resume"), call, "_2.log.part", fault);
        assert_eq!(status, Some(1), "{call} {fault}: {stderr}");
        let named = format!("cannot write log {}: ", out.join("1n1g/rn50_b8_fp32_2.log").display());
        assert!(stderr.contains(&named) && stderr.contains(text), "{call} {fault}: {stderr}");
        let states = Manifest::find(&out).expect("readable").expect("there is one").runs;
        let failed = |run: &RunOfSweep| matches!(&run.state, RunState::Failed { reason } if reason.contains(text));
        assert!(failed(&states[1]) && states[0].state == RunState::Finished, "{call} {fault}: {states:?}");
    }
    // The progress file is for watchers: a sweep does not fail without it.
    for (fault, _) in ERRORS.into_iter().take(2) {
        let (status, _, stderr) = disk.run(sweep("--runs 2 --resume"), "write", "progress.json", fault);
        assert_eq!(status, Some(0), "{fault}: {stderr}");
    }
    let now = files(&out.join("1n1g"));
    assert!(finished.iter().all(|(file, content)| now.get(file) == Some(content)), "run 1 is as it was");
    let parts = files(&out).into_keys().filter(|path| path.extension().is_some_and(|end| end == "part"));
    assert_eq!(parts.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}

#[test]
fn worker_files_are_complete_or_the_failed_one_is_named() {
    let disk = FaultyDisk::new();
    let run_with = |call: &str, name: &str, fault: &str| {
        let options = "--model mxnet-mlp --image-size 28 --iters 3 --checkpoint-every 2 --trace-iterations 2-3";
        let run = Run::single_rank(options);
        let (trace, checkpoint) = (run.path("trace.json"), run.path("checkpoint.st"));
        fs::write(&checkpoint, "old").expect("written");
        let run = run.file("--trace", &trace).file("--checkpoint", &checkpoint);
        disk.variables(call, name, fault).into_iter().fold(run, |run, (name, value)| run.variable(name, value)).finish()
    };
    // Excludes the training progress, which contains times, and the hashes.
    let saved = |finished: &Finished| -> Tensors {
        let tensors = safetensors::read(&finished.folder.path().join("checkpoint.st"));
        tensors.into_iter().filter(|(name, _)| !name.ends_with("place") && name != HASHES).collect()
    };
    let whole = run_with("write", "no such file", "EINTR");
    let tensors = saved(&whole);
    let sums = whole.valid_record().end.expect("a whole record").parameter_checksums;
    for fault in ["EINTR", "short"] {
        let finished = run_with("write", ".part", fault);
        let trace = File::open(finished.folder.path().join("trace.json")).expect("written");
        assert_eq!(chrome::read(BufReader::new(trace)).expect("a trace").ranks.len(), 1, "{fault}");
        assert!(saved(&finished) == tensors, "{fault}");
        assert_eq!(finished.valid_record().end.expect("a whole record").parameter_checksums, sums, "{fault}");
    }

    for (call, (fault, text)) in failures() {
        let finished = run_with(call, "record.jsonl.", fault);
        assert!(finished.status == Some(1) && finished.record.is_none(), "{call} {fault}: {}", finished.stderr);
        let record = finished.folder.path().join("record.jsonl");
        let named = format!("{} cannot be written: ", record.display());
        assert!(finished.stderr.contains(&named) && finished.stderr.contains(text), "{}", finished.stderr);
    }
    for (call, (fault, text)) in failures() {
        let finished = run_with(call, "checkpoint.st.", fault);
        assert_eq!(finished.status, Some(1), "{call} {fault}: {}", finished.stderr);
        let named = format!("{} cannot be written: ", finished.folder.path().join("checkpoint.st").display());
        assert!(finished.stderr.contains(&named) && finished.stderr.contains(text), "{}", finished.stderr);
        assert_eq!(fs::read(finished.folder.path().join("checkpoint.st")).expect("the old one"), b"old");
    }
    // A failure to write the trace does not lose the measurements.
    for (call, (fault, text)) in failures() {
        let finished = run_with(call, "trace.json.", fault);
        let trace = finished.folder.path().join("trace.json");
        let warning = format!("# warning: no trace: {} cannot be written: ", trace.display());
        let line = finished.stdout.lines().find(|line| line.starts_with(&warning)).expect(&finished.stdout);
        assert!(line.contains(text) && !trace.exists(), "{call} {fault}: {line}");
        finished.valid_record();
    }
}

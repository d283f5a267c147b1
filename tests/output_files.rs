//! Output files: commands replace neither an input nor a file of a sweep, write none without a request, and on a disk with
//! faults either the whole file or the one from before.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringmark_record::benchmark::BenchmarkKind;
use ringmark_record::manifest::{Conditions, Manifest, RunState};

use crate::runs::{Folder, record};
use crate::sandbox::{compile_library, refused, ringmark, run, words};

/// Folder of two cases, one run each.
fn measured() -> Folder {
    let folder = Folder::new();
    folder.run(&record("1n1g", 1, 0.5));
    folder.run(&record("1n2g", 1, 0.5));
    folder
}

/// The same as the folder of a sweep.
fn swept() -> Folder {
    let folder = measured();
    let mut manifest = Manifest::new(BenchmarkKind::Train, Vec::new(), Conditions::default());
    for run in ["1n1g/rn50_b4_fp32_1.log", "1n2g/rn50_b4_fp32_1.log"] {
        manifest.run(run.parse().expect("a name")).state = RunState::Finished;
    }
    manifest.write(&folder.path()).expect("written");
    folder
}

/// Every file below a folder with its content.
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
fn no_command_writes_over_an_input_or_a_file_of_a_sweep() {
    let folder = swept();
    let other = swept();
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
            let what = format!("{option} {target} belongs to a sweep and is not overwritten: choose another file");
            assert!(error.contains(&what), "{command}: {error}");
            assert!(files(&folder.path()) == before, "{command}");
        }
    }
}

#[test]
fn a_file_that_is_compared_is_not_replaced_and_an_earlier_answer_is() {
    let (folder, out) = (swept(), tempfile::tempdir().expect("a folder"));
    let result = out.path().join("first_result.json");
    let (status, _, stderr) = run(ringmark("extract").arg(folder.path()).arg("--out").arg(out.path()));
    assert_eq!(status, Some(0), "{stderr}");
    let before = fs::read(&result).expect("read");
    // Given by its name, and found in its folder.
    fs::create_dir(out.path().join("results")).expect("made");
    let inside = out.path().join("results/result.json");
    fs::copy(&result, &inside).expect("copied");
    for (base, target) in [(&result, &result), (&out.path().join("results"), &inside)] {
        let error = refused(ringmark("diff").arg(base).arg(folder.path()).arg("--json").arg(target), 2);
        assert!(error.contains(&format!("--json {} is an input of this command", target.display())), "{error}");
        assert_eq!(fs::read(target).expect("read"), before);
    }
    // What no command reads as a result may be replaced, where it lies in a folder of results too.
    for _ in 0..2 {
        let answer = folder.path().join("diff.json");
        let (status, _, stderr) = run(ringmark("diff").arg(&result).arg(folder.path()).arg("--json").arg(&answer));
        assert_eq!((status, answer.exists()), (Some(0), true), "{stderr}");
    }
}

#[test]
fn extract_writes_into_the_folder_of_a_sweep_or_where_it_is_told() {
    let [sweep, logs] = [swept(), measured()];
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
    let said =
        format!("no files written, for {} is no folder of a sweep: choose one by --out\n", logs.path().display());
    assert_eq!((status, stderr), (Some(0), said));
    let more =
        |folder: &Folder| files(&folder.path()).keys().filter(|path| path.ends_with("first_result.json")).count();
    let (status, _, stderr) = run(ringmark("extract").arg(sweep.path()));
    assert!(status == Some(0) && stderr.starts_with("wrote "), "{stderr}");
    assert_eq!([more(&sweep), more(&logs)], [1, 0]);
    let (status, ..) = run(ringmark("extract --format csv").arg(logs.path()).arg("--out").arg(logs.path()));
    assert_eq!((status, more(&logs)), (Some(0), 1));
}

/// A command on a disk with a fault.
struct Disk {
    library: PathBuf,
    _folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Disk {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("faulty_files.so");
        compile_library("faulty_files/faulty_files.c", &library, &[]);
        Disk { library, _folder: folder }
    }

    /// Has `fault` happen when `command` makes this `call` on files with `name` in their paths.
    fn run(&self, mut command: Command, call: &str, name: &str, fault: &str) -> (Option<i32>, String, String) {
        command.env("LD_PRELOAD", &self.library).env("FAULTY_CALL", call).env("FAULTY_NAME", name).env("FAULT", fault);
        run(&mut command)
    }
}

/// Errors of a disk by number, with the text of each.
const ERRORS: [(&str, &str); 4] = [
    ("5", "Input/output error"),
    ("28", "No space left on device"),
    ("122", "Disk quota exceeded"),
    ("116", "Stale file handle"),
];

#[test]
fn an_interrupted_or_short_write_loses_nothing_and_a_failed_one_leaves_the_old_file() {
    let (disk, folder, out) = (Disk::new(), measured(), tempfile::tempdir().expect("a folder"));
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
        let (status, _, stderr) = run(&mut command());
        assert_eq!(status, Some(0), "{stderr}");
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
        let zero = [("zero", "failed to write")];
        let writes = ERRORS.into_iter().chain(zero).map(|fault| ("write", fault));
        for (call, (fault, text)) in writes.chain([("fsync", ERRORS[0]), ("fsync", ERRORS[1])]) {
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
fn an_interrupted_or_short_read_loses_nothing_and_a_failed_one_is_named() {
    let (disk, folder) = (Disk::new(), measured());
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

//! Sweeps whose output folder is full, read-only or removed.

use std::fs::{self};
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::file::run_name;
use ringmark_core::manifest::RunState;

use crate::support::interrupted_sweep::{OPTIONS, THREE_RUNS, names, resume_command, succeeds_silently};
use crate::support::prerequisite::not_tested;
use crate::support::sandbox::{Sandbox, SmallDisk, fails, refused, ringmark};
use crate::support::temporary_folder::without_folder;

/// Rank 0 fills the disk in its second run, and then prints more than fits into a partly used block.
const FILL_IN_SECOND: &str = "
if [ $name = 1n1g_2 ] && [ ! -e \"$folder/filled\" ]; then
    touch \"$folder/filled\"
    cat /dev/zero >\"$folder/out/filling\" 2>/dev/null
    for word in 1 2 3 4 5 6 7 8; do printf '%01000d\\n' 0; done
fi
";

#[test]
fn full_disk_is_reported_and_keeps_finished_runs() {
    let sandbox = Sandbox::with_valid_worker();
    let Some(disk) = SmallDisk::mount(&sandbox.path("out")) else { return };
    sandbox.hook(FILL_IN_SECOND);
    let error = fails(&mut sandbox.short_sweep(OPTIONS));
    let log = sandbox.path("out/1n1g/rn50_b8_fp32_2.log").display().to_string();
    let reason = format!("cannot write log {log}: No space left on device (os error 28): free some space, or choose");
    assert!(error.contains(&format!("\nerror: 1n1g run 2 of 3 failed: {reason}")), "{error}");
    // There was no space to record the reason in the log or the manifest.
    assert!(error.contains("sweep.json cannot be written: No space left on device"), "{error}");
    assert_eq!(sandbox.left(), Vec::<String>::new());
    assert!(!Path::new(&log).exists());

    // No run starts while the disk is full, including the blocks freed by the failed run and those that the next run
    // would free, and the results can still be read.
    let _ = fs::remove_file(sandbox.path("out").join(run_name::PROGRESS));
    disk.fill_except(0);
    let resume = format!("{OPTIONS} --resume");
    let still = fails(&mut sandbox.short_sweep(&resume));
    expect![[r"
        error: DIR/out/sweep.json cannot be written: No space left on device (os error 28): free some space, or choose another --out
    "]].assert_eq(&without_folder(&still));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2"]);
    let (status, stderr) = sandbox.extract();
    assert_eq!(status, Some(1));
    assert!(!stderr.contains("rn50_b8_fp32_1"), "{stderr}");

    disk.make_room();
    succeeds_silently(&mut resume_command(&error));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2", "1n1g_2", "1n1g_3"]);
    assert!(sandbox.files("1n1g").is_superset(&names(THREE_RUNS)));
    assert_eq!(sandbox.extract().0, Some(0));
}

/// Rank 0 of the second run fills the disk after its record was written.
const FILL_BEHIND_RECORD: &str = "
if [ $name = 1n1g_2 ]; then
    trap 'cat /dev/zero >\"$folder/out/filling\" 2>/dev/null; exit 0' EXIT
fi
";

#[test]
fn finished_run_missing_in_the_manifest_is_not_repeated() {
    let sandbox = Sandbox::with_valid_worker();
    let Some(disk) = SmallDisk::mount(&sandbox.path("out")) else { return };
    sandbox.hook(FILL_BEHIND_RECORD);
    let error = fails(&mut sandbox.short_sweep(OPTIONS));
    let manifest = sandbox.path("out/sweep.json").display().to_string();
    let words = format!("1n1g run 2 of 3 is finished, but {manifest} cannot be written: No space left on device");
    assert!(error.starts_with(&format!("error: {words}")), "{error}");
    assert!(matches!(sandbox.states()[1], RunState::Running { .. }));
    disk.make_room();
    let stdout = succeeds_silently(&mut resume_command(&error));
    assert!(stdout.contains("\n2 of 3 runs are finished\n") && !stdout.contains("the run is repeated"), "{stdout}");
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2", "1n1g_3"]);
}

#[test]
fn read_only_folder_is_reported_and_keeps_finished_runs() {
    let sandbox = Sandbox::with_valid_worker();
    let Some(disk) = SmallDisk::mount(&sandbox.path("out")) else { return };
    disk.remount("ro");
    let advice = ": Read-only file system (os error 30): make it writable, or choose another --out";
    let error = refused(&mut sandbox.short_sweep("--cases 1n1g --runs 1"), 1);
    assert!(error.contains(advice), "{error}");
    disk.remount("rw");
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 1"));
    disk.remount("ro");
    let error = refused(&mut sandbox.short_sweep("--cases 1n1g --runs 2 --resume"), 1);
    assert!(error.contains(advice), "{error}");
    assert_eq!(sandbox.extract().0, Some(0));
    disk.remount("rw");
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 2 --resume"));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2"]);
}

/// Runs `script` once, in the middle of the second run.
fn change_in_second(script: &str) -> String {
    format!(
        "if [ $name = 1n1g_2 ] && [ ! -e \"$folder/changed\" ]; then touch \"$folder/changed\"; cd \"$folder\"; {script}; fi\n"
    )
}

#[test]
fn removed_results_folder_ends_the_sweep() {
    for (script, kept) in [
        ("rm -r out", None),
        ("mv out moved", Some("moved")),
        ("mv out moved; touch out", Some("moved")),
        ("mv out moved; mkdir other; ln -s other out", Some("moved")),
    ] {
        let sandbox = Sandbox::with_valid_worker();
        sandbox.hook(&change_in_second(script));
        let error = fails(&mut sandbox.short_sweep(OPTIONS));
        println!("{script}\n{error}");
        let folder = sandbox.path("out").display().to_string();
        let words = format!("\nerror: results folder {folder} was removed, renamed or replaced during the sweep: ");
        assert!(error.contains(&words), "{script}: {error}");
        assert_eq!(sandbox.left(), Vec::<String>::new());
        assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2"], "{script}");
        let Some(kept) = kept else { continue };
        // The finished run is in the moved folder; the sweep can be resumed once the folder is back.
        let record = sandbox.path(kept).join("1n1g/rn50_b8_fp32_1.jsonl");
        let record = RunRecord::read(&fs::read(record).expect("kept")[..]).expect("whole");
        assert_eq!(record.failure(), None);
        let _ = fs::remove_file(sandbox.path("out"));
        fs::rename(sandbox.path(kept), sandbox.path("out")).expect("moved back");
        succeeds_silently(&mut resume_command(&error));
        assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2", "1n1g_2", "1n1g_3"], "{script}");
        assert_eq!(sandbox.extract().0, Some(0));
    }
    // If the folder is only renamed and still reachable under its path, nothing changes.
    let sandbox = Sandbox::with_valid_worker();
    sandbox.hook(&change_in_second("mv out moved; ln -s moved out"));
    succeeds_silently(&mut sandbox.short_sweep(OPTIONS));
    assert_eq!(sandbox.extract().0, Some(0));
}

#[test]
fn read_only_results_end_the_sweep() {
    let sandbox = Sandbox::with_valid_worker();
    sandbox.hook(&change_in_second("chattr +i out/1n1g out"));
    let may_change = |how: &str| {
        let folders = ["out/1n1g", "out"].map(|folder| sandbox.path(folder));
        Command::new("chattr").arg(how).args(folders).output().is_ok_and(|output| output.status.success())
    };
    fs::create_dir_all(sandbox.path("out/1n1g")).expect("made");
    if !may_change("+i") || !may_change("-i") {
        not_tested("no file can be made unchangeable here");
        return;
    }
    let error = fails(&mut sandbox.short_sweep(OPTIONS));
    assert!(may_change("-i"));
    println!("{error}");
    assert!(error.contains("\nerror: 1n1g run 2 of 3 failed: "), "{error}");
    assert!(error.contains("Operation not permitted (os error 1)"), "{error}");
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2"]);
    succeeds_silently(&mut resume_command(&error));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2", "1n1g_2", "1n1g_3"]);
}

#[test]
fn bandwidth_keeps_the_log_of_a_killed_command() {
    let sandbox = Sandbox::new("exit 1");
    fs::create_dir_all(sandbox.path("out/1n2g")).expect("made");
    let part = sandbox.path("out/1n2g/bandwidth.log.part");
    fs::write(&part, "what was measured\n").expect("written");
    let mut command = ringmark("bandwidth --device cpu --hosts localhost:2 --cases 1n2g");
    let error = refused(command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")), 2);
    assert!(error.contains(&format!("already contains {}", part.display())), "{error}");
}

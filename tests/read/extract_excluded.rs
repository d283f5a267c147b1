//! Runs and folders that `ringmark extract` leaves out, with the message for each defect.

use std::fs;
use std::path::Path;

use expect_test::expect;
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::DeviceKind;
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use serde_json::Value;

use crate::support::extract::{Extract, SECOND, expect_left_out, extract, small_folder, speeds};
use crate::support::runs::{Folder, dlperf_log, record};
use crate::support::temporary_folder::without_folder;

#[test]
fn damaged_logs_are_excluded_with_file_and_line() {
    let sound = || dlperf_log(&speeds(740.0, 120));
    // Line 1 is a header, line 52 follows the line of the 50th iteration.
    let changes: [(&str, &str, &str); 6] = [
        (
            "Batch[57]\tSpeed: 739.50",
            "Batch[57]\tSpeed: nan",
            ":59: no iteration number or valid speed in \"INFO:root:Epoch[0] Batch[57]",
        ),
        ("Batch[57]\tSpeed: 739.50 samples/sec\n", "", ":59: expected Batch[57], found Batch[58]: lines are missing"),
        ("Epoch[0] Batch[3]", "Epoch[0] Batch[2]", ":4: expected Batch[3], found Batch[2]: two outputs in one log"),
        (
            "INFO:root:Epoch[0] Batch[1]\t",
            "[1,0]<stdout>:\u{fffd} INFO:root:Epoch[0] Batch[1",
            ":2: no iteration number or valid speed in",
        ),
        (
            "Speed: 740.50 samples/sec\nINFO:root:Epoch[0] Time cost=12.3",
            "Speed: 740.50 samples/sec\tloss=nan",
            ":51: the loss of Batch[50] is NaN",
        ),
        (
            "INFO:root:Epoch[0] Time cost=12.3",
            "ringmark: run failed: mpirun ended with status 1",
            ":52: the run failed: mpirun ended with status 1",
        ),
    ];
    for (part, replacement, message) in changes {
        let log = sound().replacen(part, replacement, 1);
        assert_ne!(log, sound(), "{part}");
        expect_left_out(&format!("{SECOND}{message}"), |folder| folder.write(SECOND, log));
    }
}

#[test]
fn truncated_logs_are_excluded() {
    let sound = dlperf_log(&speeds(740.0, 120));
    let middle_of_a_speed = sound.find("Batch[90]\tSpeed: 7").expect("line 90") + "Batch[90]\tSpeed: 7".len();
    let after_warmup = sound.find("INFO:root:Epoch[0] Batch[21]").expect("line 21");
    let cuts: [(&[u8], &str); 4] = [
        (b"", ": the log is empty: "),
        (b"\xff\xfe\x00 binary", ": no iteration in the log: "),
        (&sound.as_bytes()[..middle_of_a_speed], ":92: no iteration number or valid speed in "),
        (&sound.as_bytes()[..after_warmup], ": 20 iterations, all of them warm-up (20): "),
    ];
    for (content, message) in cuts {
        expect_left_out(&format!("{SECOND}{message}"), |folder| folder.write(SECOND, content));
    }
    expect_left_out(
        &format!("{SECOND}: 57 iterations, but most logs of the case have 120, so it is truncated"),
        |folder| {
            folder.log(SECOND, &speeds(740.0, 57));
        },
    );
}

#[test]
fn noise_between_and_inside_lines_is_ignored() {
    let folder = Folder::new();
    let mut log = Vec::new();
    for line in dlperf_log(&speeds(384.19, 120)).lines() {
        log.extend_from_slice(b"[1,0]<stderr>:\xff\xfe ");
        log.extend_from_slice(line.as_bytes());
        log.extend_from_slice(b"  epoch=0\r\n\x00\x01 NCCL INFO Ring 00 : 0 -> 1\n");
    }
    log.extend(std::iter::repeat_n(b'x', 3 << 20));
    folder.write("1n1g/rn50_b128_fp32_1.log", log);
    let (status, _, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(folder.dlperf()["rn50"]["1n1g"]["median_speed"], 384.19);
}

#[test]
fn runs_with_invalid_records_are_excluded() {
    type Change = fn(&mut RunRecord);
    let changes: [(&str, Change); 8] = [
        ("jsonl: the run failed: stopped after iteration 6, without an end line", |record| record.end = None),
        ("jsonl: the run failed: rank 1 of 2 on host a: out of memory", |record| {
            record.end.as_mut().expect("an end").failure = Some("rank 1 of 2 on host a: out of memory".to_owned());
        }),
        ("jsonl: the loss of rank 0 is not finite in iteration 2: ", |record| {
            record.iterations[1].loss[0] = f64::INFINITY
        }),
        ("jsonl: 5 iterations of 6: ", |record| record.iterations.truncate(5)),
        ("jsonl: some ranks ran on the CPU and some on GPUs: ", |record| {
            record.header.ranks[1].device = DeviceKind::Cuda
        }),
        ("jsonl: 1 ranks ran in case 1n2g: ", |record| {
            record.header.ranks.truncate(1);
            for iteration in &mut record.iterations {
                iteration.step.truncate(1);
                iteration.before_allreduce.truncate(1);
                iteration.phases.iter_mut().for_each(|(_, list)| list.truncate(1));
                iteration.loss.truncate(1);
            }
        }),
        ("log: 6 iterations, all of them warm-up (6): ", |record| record.header.config.warmup = 6),
        (
            "jsonl: the record cannot be used: line 1: run record format 9 is not readable by this ringmark (up to \
             3): ",
            |record| {
                record.header.schema = 9;
            },
        ),
    ];
    for (message, change) in changes {
        let folder = small_folder();
        let mut changed = record("1n2g", 4, 0.5);
        change(&mut changed);
        folder.run(&changed);
        let (status, _, stderr) = folder.extract(&[]);
        assert_eq!(status, Some(1));
        let expected = format!("not in the figures: 1n2g/rn50_b4_fp32_4.{message}");
        assert!(stderr.contains(&expected), "{expected}\n{stderr}");
    }
}

#[test]
fn mismatched_record_and_log_are_excluded() {
    let moved = |from: &str, to: &str, expected: &str| {
        let folder = small_folder();
        folder.run(&record("1n2g", 4, 0.5));
        fs::rename(folder.path().join(from), folder.path().join(to)).expect("was there");
        let (status, _, stderr) = folder.extract(&[]);
        assert_eq!(status, Some(1));
        assert!(stderr.contains(&format!("not in the figures: {expected}")), "{stderr}");
    };
    moved("1n1g/rn50_b4_fp32_1.jsonl", "1n2g/rn50_b4_fp32_4.jsonl", "1n2g/rn50_b4_fp32_4.jsonl: contains case 1n1g, ");
    moved("1n2g/rn50_b4_fp32_4.log", "1n2g/kept.txt", "1n2g/rn50_b4_fp32_4.jsonl: record without a log");
    let folder = small_folder();
    folder.run(&record("1n2g", 4, 0.5));
    let path = folder.path().join("1n2g/rn50_b4_fp32_4.log");
    let log = fs::read_to_string(&path).expect("was there");
    folder.write("1n2g/rn50_b4_fp32_4.log", &log[..log.find("INFO:root:Epoch[0] Batch[6]").expect("six lines")]);
    let (_, _, stderr) = folder.extract(&[]);
    expect![[r"
        not in the figures: 1n2g/rn50_b4_fp32_3.jsonl: the loss of rank 1 is not finite in iteration 5: repeat the run, with a smaller --lr if this recurs
        not in the figures: 1n2g/rn50_b4_fp32_4.log: 5 of 6 iteration lines, so the log is truncated or edited: repeat the run
        wrote DIR/first/first_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/first are not complete: see the 2 messages above
    "]].assert_eq(&without_folder(&stderr));
}

#[test]
fn unrecognized_run_names_are_reported() {
    expect_left_out("1n2g/rn50_b128_fp32_02.log: names the same run as 1n2g/rn50_b128_fp32_2.log: ", |folder| {
        folder.log("1n2g/rn50_b128_fp32_02.log", &speeds(740.0, 120));
        folder.log("1n2g/rn50_b128_fp32_2.log", &speeds(749.04, 120));
    });
    for path in ["1n2g/notes.log", "1n2g/rn50_b128_fp8_1.log", "2nodes/rn50_b128_fp32_1.log", "rn50_b128_fp32_1.log"] {
        expect_left_out(&format!("{path}: not a run name: expected "), |folder| folder.write(path, "x"));
    }
    expect_left_out("1n2g/rn50_b128_fp32_7.log: the log cannot be read: ", |folder| {
        fs::create_dir(folder.path().join("1n2g/rn50_b128_fp32_7.log")).expect("a folder");
    });
}

#[test]
fn run_that_failed_early_stays_with_its_case() {
    let folder = small_folder();
    folder.write("1n2g/rn50_b4_fp32_4.jsonl", "");
    folder.write("1n2g/rn50_b4_fp32_4.log", "mpirun: no such host\nringmark: run failed: mpirun ended with status 1\n");
    folder.extract(&[]);
    let result = folder.result();
    let runs = result["rn50"]["1n2g"]["runs"].as_array().expect("one table, as before");
    assert_eq!((runs.len(), &runs[3]["status"]), (4, &Value::from("left_out")));
    let reason = runs[3]["left_out"].as_str().expect("a reason");
    expect!["1n2g/rn50_b4_fp32_4.log:2: the run failed: mpirun ended with status 1: repeat it"].assert_eq(reason);
}

#[test]
fn unfinished_run_takes_its_device_from_the_manifest() {
    let folder = Folder::new();
    folder.write("1n1g/resnet18_b4_bf16_1.log", "ringmark: run failed: interrupted\n");
    let options = [("--device".to_owned(), "cpu".to_owned())].into();
    let conditions = Conditions { options, ..Conditions::default() };
    let mut manifest = Manifest::new(BenchmarkKind::Train, vec!["ringmark".to_owned()], conditions);
    let failed = RunState::Failed { reason: "interrupted".to_owned() };
    manifest.run("1n1g/resnet18_b4_bf16_1.log".parse().expect("a name")).state = failed;
    manifest.write(&folder.path()).expect("written");
    let (status, table, _) = folder.extract(&[]);
    assert_eq!(status, Some(1));
    let title = "ResNet-18, bf16, batch size 4 per rank\ndevice cpu (from the manifest): ";
    assert!(table.starts_with(title), "{table}");
}

#[test]
fn case_without_a_valid_run_keeps_its_row() {
    let folder = small_folder();
    folder.write("1n4g/rn50_b4_fp32_1.log", "");
    let (_, stdout, _) = folder.extract(&[]);
    let row = stdout.lines().find(|line| line.starts_with("1n4g")).expect("a row");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[..4], ["1n4g", "4", "0/1", "-"]);
    assert_eq!(folder.dlperf()["rn50"]["1n4g"]["median_speed"], Value::Null);
    assert_eq!(folder.result()["rn50"]["1n4g"]["units_per_second"], Value::Null);
}

#[test]
fn invalid_folder_is_reported() {
    let folder = Folder::new();
    let expect = |path: &Path, code: i32, message: &str| {
        let (status, stdout, stderr) = extract(path, &[]);
        assert_eq!(status, Some(code));
        assert!(stdout.is_empty() && stderr.contains(message), "{message}\n{stderr}");
        assert_eq!(stderr.lines().filter(|line| line.starts_with("error: ")).count(), 1);
    };
    expect(&folder.path().join("missing"), 2, "folder not found: ");
    expect(&folder.path(), 1, "first contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log");
    folder.log("second/1n1g/rn50_b128_fp32_1.log", &speeds(384.19, 120));
    expect(&folder.path(), 1, "first/second\n");
    let case = folder.path().join("second/1n1g");
    expect(&case, 1, "1n1g contains no runs");
    expect(&case, 1, "this is the folder of one case: pass its parent folder");
    expect(&case.join("rn50_b128_fp32_1.log"), 2, "rn50_b128_fp32_1.log is a file: pass the folder");
}

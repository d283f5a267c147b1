//! `ringmark extract` on the logs of other tools, and DLPerf's extractor on the logs of ringmark.

use std::collections::BTreeMap;
use std::fs;

use expect_test::expect;
use ringmark_core::benchmark::train::{Iteration, TrainConfig};
use ringmark_core::dimension::Seconds;
use serde_json::Value;

use crate::support::extract::{Extract, SECOND, assert_close, expect_left_out, small_folder, speeds};
use crate::support::other_readers::dlperf_speeds;
use crate::support::runs::{Folder, dlperf_log, record};
use crate::support::sandbox::{lines_with, ringmark, succeeds};
use crate::support::temporary_folder::without_folder;

/// Returns the speed that DLPerf's extractor prints for a log with exactly 120 speeds: the mean of the last 100, with 2
/// decimals.
fn dlperf_speed(log: &str) -> Option<f64> {
    let speeds = dlperf_speeds(log)?;
    (speeds.len() == 120).then(|| (speeds[20..].iter().sum::<f64>() / 100.0 * 100.0).round() / 100.0)
}

#[test]
fn dlperf_extractor_reads_the_same_speed() {
    let folder = Folder::new();
    let mut sound = record("1n1g", 1, 0.5);
    let steps = (1..=120u32).map(|number| (number, 0.3 + 0.001 * f64::from(number % 17)));
    sound.header.config = TrainConfig { batch_size: 128, ..TrainConfig::default() };
    sound.iterations = steps
        .map(|(number, step)| Iteration { iteration: number, step: vec![Seconds(step)], ..sound.iterations[0].clone() })
        .collect();
    folder.run(&sound);
    assert_eq!(folder.extract(&[]).0, Some(0));
    let log = fs::read_to_string(folder.path().join("1n1g/rn50_b128_fp32_1.log")).expect("written");
    assert_eq!(dlperf_speed(&log), folder.dlperf()["rn50"]["1n1g"]["median_speed"].as_f64());
    assert!(dlperf_speed(&log).is_some());
}

#[test]
fn dlperf_json_has_only_dlperf_fields() {
    let folder = small_folder();
    folder.extract(&[]);
    let text = fs::read_to_string(folder.path().join("first_dlperf.json")).expect("written");
    assert_eq!(folder.printed(&["--format", "dlperf"]), text);
    let result: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(&text).expect("models, cases");
    assert_eq!(result["rn50"].keys().collect::<Vec<_>>(), ["1n1g", "1n2g"]);
    let cases = result["rn50"].values().map(|case| case.as_object().expect("a case").keys().collect::<Vec<_>>());
    for fields in cases {
        assert_eq!(fields, ["average_speed", "batch_size_per_device", "median_speed", "speedup"]);
    }
}

/// Creates the log of another tool for `ranks` ranks with 32 images each, in the tool's format.
fn speedometer_log(ranks: u32, rates: &[f64]) -> String {
    let mut log = String::new();
    for (window, rate) in rates.iter().enumerate() {
        let (from, to) = (20 * window, 20 * window + 20);
        for rank in 0..ranks {
            log += &format!("[1,{rank}]<stderr>:INFO:root:Epoch[0] Batch [{from}-{to}]\tSpeed: {rate:.2} samples/sec");
            log += "\taccuracy=0.001563\n";
        }
    }
    log + "[1,0]<stderr>:INFO:root:Epoch[0] Time cost=12.345\n"
}

fn horovod_log(ranks: u32, rates: &[f64]) -> String {
    let mut log =
        format!("Model: resnet50\nBatch size: 32\nNumber of GPUs: {ranks}\nRunning warmup...\nRunning benchmark...\n");
    for (index, rate) in rates.iter().enumerate() {
        log += &format!("Iter #{index}: {rate:.1} img/sec per GPU\n");
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let total = f64::from(ranks) * mean;
    log + &format!("Img/sec per GPU: {mean:.1} +-3.2\nTotal img/sec on {ranks} GPU(s): {total:.1} +-12.8\n")
}

fn tf_cnn_benchmarks_log(ranks: u32, total: f64) -> String {
    let global = 32 * ranks;
    let line = "-".repeat(64);
    format!(
        "Mode:        training\nBatch size:  {global} global\n             32 per device\nStep\tImg/sec\ttotal_loss\n\
         1\timages/sec: 999.9 +/- 0.0 (jitter = 0.0)\t7.821\n10\timages/sec: 888.8 +/- 0.3 (jitter = 0.9)\t7.775\n\
         {line}\ntotal images/sec: {total:.2}\n{line}\n"
    )
}

#[test]
fn speedometer_windows_cover_iterations_of_all_ranks() {
    let folder = Folder::new();
    folder.write("1n1g/rn50_b32_fp32_1.log", speedometer_log(1, &[50.0, 100.0, 150.0]));
    folder.write("1n2g/rn50_b32_fp32_1.log", speedometer_log(2, &[50.0, 90.0, 110.0]));
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    for line in ["logs of MXNet's Speedometer: no times of single iterations", "windows of iterations: 3, omitted: 1"] {
        assert!(stdout.lines().any(|other| other == line), "{stdout}");
    }
    let result = &folder.result()["rn50"];
    let single = &result["1n1g"];
    // Second and third window: (100 + 150) / 2, and 2 / (1/100 + 1/150).
    assert_eq!(single["dlperf"]["median_speed"].as_f64(), Some(125.0));
    assert_close(&single["units_per_second"], 120.0);
    assert_eq!(single["settings"], serde_json::json!({"log": "speedometer"}));
    let run = &single["runs"][0];
    assert_eq!((run["iterations"].as_u64(), run["warmup"].as_u64()), (Some(60), Some(20)));
    assert_eq!(run["iteration_seconds"], Value::Null, "no single iteration was timed");
    // Two ranks of (90 + 110) / 2 each: 200 images/s.
    let two = &result["1n2g"];
    assert_eq!((two["dlperf"]["median_speed"].as_f64(), two["dlperf"]["speedup"].as_f64()), (Some(200.0), Some(1.6)));

    // A window that contains an iteration of the warm-up is skipped.
    for (warmup, left_out, speed) in [("0", 0, 100.0), ("1", 20, 125.0), ("20", 20, 125.0), ("21", 40, 150.0)] {
        assert_eq!(folder.extract(&["--warmup", warmup]).0, Some(0));
        let run = &folder.result()["rn50"]["1n1g"]["runs"][0];
        assert_eq!((run["warmup"].as_u64(), run["dlperf_speed"].as_f64()), (Some(left_out), Some(speed)), "{warmup}");
    }
    let (status, _, stderr) = folder.extract(&["--warmup", "41"]);
    assert_eq!(status, Some(1));
    expect![[r"
        not in the figures: 1n1g/rn50_b32_fp32_1.log: 3 windows of iterations, all of them warm-up (3): repeat the run with more, or reduce --warmup
        not in the figures: 1n2g/rn50_b32_fp32_1.log: 3 windows of iterations, all of them warm-up (3): repeat the run with more, or reduce --warmup
        wrote DIR/first/first_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/first are not complete: see the 2 messages above
    "]].assert_eq(&without_folder(&stderr));
}

#[test]
fn horovod_speed_is_its_total() {
    let folder = Folder::new();
    folder.write("1n1g/rn50_b32_fp32_1.log", horovod_log(1, &[120.0, 124.0, 122.0]));
    folder.write("1n4g/rn50_b32_fp32_1.log", horovod_log(4, &[110.0, 112.5, 115.5]));
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    expect!["logs of Horovod's synthetic benchmark: no times of single iterations"]
        .assert_eq(&lines_with(&stdout, "logs of Horovod's"));
    expect!["windows of iterations: 3, omitted: 0"].assert_eq(&lines_with(&stdout, "windows of iterations:"));
    let result = &folder.result()["rn50"];
    assert_eq!(result["1n1g"]["dlperf"]["median_speed"], 122.0);
    // 4 x (110 + 112.5 + 115.5) / 3, and 4 x 3 / (1/110 + 1/112.5 + 1/115.5) = 450.49.
    let four = &result["1n4g"];
    let dlperf = &four["dlperf"];
    assert_eq!((dlperf["median_speed"].as_f64(), dlperf["speedup"].as_f64()), (Some(450.67), Some(3.69)));
    let over_time = 12.0 / (1.0 / 110.0 + 1.0 / 112.5 + 1.0 / 115.5);
    assert_close(&four["units_per_second"], over_time);
    assert_close(&four["units_per_second_per_rank"], over_time / 4.0);
    let run = &four["runs"][0];
    assert_eq!([&run["iterations"], &run["warmup"], &run["iteration_seconds"]], [&Value::Null; 3]);

    let (status, _, stderr) = folder.extract(&["--warmup", "5"]);
    assert_eq!(status, Some(1));
    expect![[r"
        not in the figures: 1n1g/rn50_b32_fp32_1.log: Horovod's synthetic benchmark excludes its own warm-up from these rates, but their number of iterations is unknown: omit --warmup
        not in the figures: 1n4g/rn50_b32_fp32_1.log: Horovod's synthetic benchmark excludes its own warm-up from these rates, but their number of iterations is unknown: omit --warmup
        wrote DIR/first/first_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/first are not complete: see the 2 messages above
    "]].assert_eq(&without_folder(&stderr));
    assert_eq!(folder.extract(&["--warmup", "0"]).0, Some(0));
}

#[test]
fn only_the_total_of_tf_cnn_benchmarks_is_read() {
    let folder = Folder::new();
    folder.write("1n1g/rn50_b32_fp32_1.log", tf_cnn_benchmarks_log(1, 101.5));
    folder.write("1n4g/rn50_b32_fp32_1.log", tf_cnn_benchmarks_log(4, 365.4));
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    expect!["logs of tf_cnn_benchmarks: no times of single iterations"]
        .assert_eq(&lines_with(&stdout, "logs of tf_cnn_benchmarks:"));
    let four = &folder.result()["rn50"]["1n4g"];
    assert_eq!(four["dlperf"]["median_speed"], 365.4);
    assert_close(&four["units_per_second"], 365.4);
    assert_close(&four["speedup_over_base"], 365.4 / 101.5);
}

#[test]
fn ambiguous_logs_of_other_tools_are_excluded() {
    let sound = horovod_log(2, &[370.0, 375.0]).replace("Batch size: 32", "Batch size: 128");
    let speedometer = speedometer_log(1, &[370.0, 375.0]);
    for (log, message) in [
        (
            speedometer.clone(),
            ": MXNet's Speedometer computes the rate of its process from its script's batch size, but 1 of \
             the 2 ranks of 1n2g printed one: ",
        ),
        (
            speedometer_log(4, &[370.0, 375.0]),
            ": MXNet's Speedometer computes the rate of its process from its script's batch size, but 4 of the 2 ",
        ),
        (
            sound.replace("on 2 GPU", "on 4 GPU").replace("745.0", "1490.0"),
            ": Horovod's synthetic benchmark on 4 ranks, but its name contains case 1n2g: move",
        ),
        (
            sound.replace("size: 128", "size: 64"),
            ": Horovod's synthetic benchmark, batch size 64, but its name contains batch size 128: rename",
        ),
        (sound.replace("Iter #1", "Iter #2"), ":7: expected Iter #1, found Iter #2: lines are missing: repeat the run"),
        (sound.replace("Total", ""), ": output of Horovod's synthetic benchmark without its last line"),
        (
            tf_cnn_benchmarks_log(2, 740.0),
            ": tf_cnn_benchmarks, batch size 32, but its name contains batch size 128: rename",
        ),
        (
            tf_cnn_benchmarks_log(2, 740.0).replace("total images", ""),
            ": output of tf_cnn_benchmarks is truncated ('total images/sec' occurs 0 times",
        ),
        (
            format!("{speedometer}{sound}"),
            ":9: a line of Horovod's synthetic benchmark in a log of MXNet's Speedometer: ",
        ),
        (
            format!("{sound}{}", dlperf_log(&[740.0])),
            ":11: a line of DLPerf in a log of Horovod's synthetic benchmark: ",
        ),
    ] {
        expect_left_out(&format!("{SECOND}{message}"), |folder| folder.write(SECOND, &log));
    }
    // A log of another tool is also rejected next to a record.
    let folder = small_folder();
    folder.run(&record("1n2g", 4, 0.5));
    folder.write("1n2g/rn50_b4_fp32_4.log", horovod_log(2, &[8.0; 6]));
    let (_, _, stderr) = folder.extract(&[]);
    expect![[r"
        not in the figures: 1n2g/rn50_b4_fp32_3.jsonl: the loss of rank 1 is not finite in iteration 5: repeat the run, with a smaller --lr if this recurs
        not in the figures: 1n2g/rn50_b4_fp32_4.log: 0 of 6 iteration lines, so the log is truncated or edited: repeat the run
        wrote DIR/first/first_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/first are not complete: see the 2 messages above
    "]].assert_eq(&without_folder(&stderr));
}

#[test]
fn each_tool_has_its_own_table() {
    let folder = Folder::new();
    folder.log("1n1g/rn50_b32_fp32_1.log", &speeds(122.0, 120));
    folder.write("1n1g/rn50_b32_fp32_2.log", horovod_log(1, &[120.0, 124.0, 122.0]));
    folder.write("1n1g/rn50_b32_fp32_3.log", tf_cnn_benchmarks_log(1, 101.5));
    let (status, _, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    let result = folder.result();
    let labels: Vec<&str> = result.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(labels, ["rn50_b32_fp32", "rn50_b32_fp32_log=horovod", "rn50_b32_fp32_log=tf_cnn_benchmarks"]);
    assert_eq!(result["rn50_b32_fp32_log=horovod"]["1n1g"]["dlperf"]["median_speed"], 122.0);
}

#[test]
fn every_command_reads_logs_of_other_tools() {
    let folder = Folder::new();
    for (side, faster) in [("base", 1.0), ("test", 1.5)] {
        for (case, ranks) in [("1n1g", 1), ("1n2g", 2), ("2n2g", 4)] {
            for run in 1..=3 {
                let rates = [100.0, 102.0, f64::from(100 + run)].map(|rate| faster * rate);
                folder.write(&format!("{side}/{case}/rn50_b32_fp32_{run}.log"), horovod_log(ranks, &rates));
            }
        }
    }
    let sides = ["base", "test"].map(|side| folder.path().join(side));
    let stdout = succeeds(ringmark("diff").args(&sides).arg("--force"));
    let row = stdout.lines().find(|line| line.starts_with("2n2g")).expect("a row");
    assert!(row.contains("+50.0") && row.contains("Faster"), "{stdout}");
    assert!(!stdout.contains("p95"), "{stdout}");
    let stdout = succeeds(ringmark("report").arg(&sides[0]));
    expect!["no records next to the logs; logs of Horovod's synthetic benchmark: no times of single iterations; 2n2g: 2 nodes of 2 GPUs"].assert_eq(&lines_with(&stdout, "logs of Horovod's"));
    assert!(!stdout.contains("Every iteration"), "{stdout}");
    let stdout = succeeds(ringmark("predict").arg(&sides[0]).args(["--cases", "4n2g"]));
    assert!(stdout.contains("4n2g"), "{stdout}");
}

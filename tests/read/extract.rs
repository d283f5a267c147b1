//! Tests of `ringmark extract`: DLPerf's published figures, golden output, and the message for each defect.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use expect_test::expect;
use ringmark::read::analyze::training::figures::TrainedCase;
use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::benchmark::train::{Iteration, RunRecord, TrainConfig};
use ringmark_core::benchmark::{BenchmarkKind, RunProfile};
use ringmark_core::dimension::{DeviceKind, Dtype, Model, Phase, Seconds};
use ringmark_core::host::{HostUse, RankUse};
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use serde_json::Value;

use crate::support::golden::assert_golden;
use crate::support::other_readers::dlperf_speeds;
use crate::support::runs::{Folder, dlperf_log, long_record, record, rows_by_case};
use crate::support::sandbox::{ringmark, run};
use crate::support::temporary_folder::without_folder;

trait Extract {
    /// Returns exit status, standard output and standard error.
    fn extract(&self, options: &[&str]) -> (Option<i32>, String, String);
    /// Returns the rows of the result by group, then by case.
    fn result(&self) -> Value;
    fn dlperf(&self) -> Value;

    fn printed(&self, options: &[&str]) -> String {
        self.extract(options).1
    }
}

impl Extract for Folder {
    fn extract(&self, options: &[&str]) -> (Option<i32>, String, String) {
        extract(&self.path(), options)
    }

    fn result(&self) -> Value {
        let text = fs::read_to_string(self.path().join("first_result.json")).expect("the result was written");
        rows_by_case(&serde_json::from_str(&text).expect("JSON"))
    }

    fn dlperf(&self) -> Value {
        let text = fs::read_to_string(self.path().join("first_dlperf.json")).expect("the file was written");
        serde_json::from_str(&text).expect("JSON")
    }
}

fn extract(folder: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    // Outside of a sweep's folder, files are written only with --out.
    let is_told = options.iter().any(|option| ["--out", "-o"].contains(option));
    let out = (!is_told).then(|| [Path::new("--out"), folder]);
    run(ringmark("extract").arg(folder).args(options).args(out.into_iter().flatten()))
}

/// Returns `count` speeds: 20 slow ones, then pairs around `mean`.
fn speeds(mean: f64, count: usize) -> Vec<f64> {
    (0..count)
        .map(|index| match index {
            0..20 => mean / 3.0,
            _ if index % 2 == 0 => mean - 0.5,
            _ => mean + 0.5,
        })
        .collect()
}

fn assert_close(value: &Value, expected: f64) {
    assert!(value.as_f64().is_some_and(|value| (value / expected - 1.0).abs() < 1e-9), "{value}, expected {expected}");
}

const CASES: [&str; 6] = ["1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g"];

/// DLPerf's published results for V100-16G, 8 per node: precision, batch size, medians, speedups.
const PUBLISHED: [(Dtype, u32, [f64; 6], [f64; 6]); 2] = [
    (Dtype::Fp32, 128, [384.19, 749.04, 1494.58, 2556.03, 4855.34, 9579.74], [1.0, 1.95, 3.89, 6.65, 12.64, 24.93]),
    (Dtype::Fp16, 256, [833.65, 1373.55, 2331.91, 2908.88, 5451.27, 10565.55], [1.0, 1.65, 2.8, 3.49, 6.54, 12.67]),
];

/// Writes five logs per case with the published median speed.
fn write_published(folder: &Folder, (dtype, batch_size, medians, _): &(Dtype, u32, [f64; 6], [f64; 6])) {
    for (case, median) in CASES.iter().zip(medians) {
        for (run, offset) in [(1, 1.25), (2, -3.0), (3, 0.0), (4, 7.5), (5, -0.75)] {
            folder.log(&format!("{case}/rn50_b{batch_size}_{dtype}_{run}.log"), &speeds(median + offset, 120));
        }
    }
}

#[test]
fn published_dlperf_medians_are_reproduced_from_logs() {
    for published in &PUBLISHED {
        let folder = Folder::new();
        write_published(&folder, published);
        let (status, _, stderr) = folder.extract(&[]);
        assert_eq!((status, stderr.lines().count()), (Some(0), 1), "{stderr}");
        let result = folder.dlperf();
        assert_eq!(result.as_object().expect("an object").keys().collect::<Vec<_>>(), ["rn50"]);
        let (_, batch_size, medians, speedups) = published;
        for ((case, median), speedup) in CASES.iter().zip(medians).zip(speedups) {
            let case = &result["rn50"][case];
            assert_eq!(case["median_speed"], *median);
            assert_eq!(case["speedup"], *speedup);
            assert_eq!(case["batch_size_per_device"], *batch_size);
            // The offsets of the five runs have a mean of 1.
            assert_eq!(case["average_speed"], ((median + 1.0) * 100.0).round() / 100.0);
        }
    }
}

#[test]
fn dlperf_lines_are_those_of_its_extractor() {
    let folder = Folder::new();
    write_published(&folder, &PUBLISHED[0]);
    let (status, stdout, stderr) = folder.extract(&["--format", "dlperf-lines"]);
    assert_eq!(status, Some(0), "{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    expect![[r"
        1n1g/rn50_b128_fp32_1.log {1: 385.44}
        1n1g/rn50_b128_fp32_2.log {1: 385.44, 2: 381.19}
        | node_num | gpu_num | samples/s | speedup |
        |---|---|---|---|
        | 1 | 1 | 384.19 | 1 |
        | 1 | 2 | 749.04 | 1.95 |
        | 4 | 32 | 9579.74 | 24.93 |"]]
    .assert_eq(&[&lines[..2], &lines[33..37], &lines[lines.len() - 1..]].concat().join("\n"));
}

#[test]
fn published_training_figures_are_printed_below() {
    let folder = Folder::new();
    let mut trained = record("1n1g", 1, 0.5);
    trained.header.config.model = Model::MxnetAlexnet;
    folder.run(&trained);
    folder.run(&record("1n1g", 1, 0.5));
    let (status, stdout, stderr) = folder.extract(&["--published"]);
    assert_eq!(status, Some(0), "{stderr}");
    let published: Vec<&str> = stdout.lines().filter(|line| line.starts_with("Published: ")).collect();
    expect![[r#"
        Published: DLPerf V100 FP32 b128, batch size 128
        Published: DLPerf V100 FP16 b256, batch size 256
        Published: PyTorch DDP V100 resnet50, batch size 32
        Published: images/s on Tesla K80, one of its two GPUs
        Published: images/s on Tesla M40
        Published: images/s on Tesla P100"#]]
    .assert_eq(&published.join("\n"));
    let row = |start: &str| stdout.lines().rfind(|line| line.starts_with(start)).unwrap_or_default();
    assert!(
        row("MXNet AlexNet, batch x 8").ends_with("809.94  1202.93  1631.37  1882.74  2012.04  1869.69"),
        "{stdout}"
    );
    // The row of DLPerf for 4 nodes, and that of PyTorch DDP for 2.
    let words = |start: &str| row(start).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!([words("4n8g"), words("2n8g")], ["4n8g 32 10,566 12.67", "2n8g 16 4,896 15.35"]);
    let (_, json, _) = folder.extract(&["--published", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["published"].as_array().expect("rates").len(), 3 * 6 + 2 * 6 + 5);
    let (status, _, stderr) = folder.extract(&["--published", "--format", "csv"]);
    assert!(status == Some(2) && stderr.contains("--format csv cannot include published figures"), "{stderr}");
}

#[test]
fn each_precision_has_its_own_table_and_key() {
    let folder = Folder::new();
    PUBLISHED.iter().for_each(|published| write_published(&folder, published));
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("fp32, batch size 128 per GPU") && stdout.contains("fp16, batch size 256"));
    let result = folder.dlperf();
    assert_eq!(result["rn50_b128_fp32"]["4n8g"]["speedup"], 24.93);
    assert_eq!(result["rn50_b256_fp16"]["4n8g"]["speedup"], 12.67);
    assert_eq!(result["rn50"], Value::Null);
}

#[test]
fn devices_profiles_and_options_are_never_mixed() {
    let folder = Folder::new();
    folder.run(&record("1n1g", 1, 0.5));
    let mut cuda = record("1n1g", 2, 0.25);
    cuda.header.ranks[0].device = DeviceKind::Cuda;
    folder.run(&cuda);
    let mut larger = record("1n1g", 3, 0.75);
    larger.header.config.image_size = Some(224);
    folder.run(&larger);
    let mut quick = record("1n1g", 4, 0.5);
    quick.header.profile = RunProfile::Quick;
    folder.run(&quick);
    let (status, _, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    let labels: Vec<String> = folder.result().as_object().expect("an object").keys().cloned().collect();
    let expected = [
        "rn50_b4_fp32_cpu_image_size=224",
        "rn50_b4_fp32_cpu_image_size=64",
        "rn50_b4_fp32_cpu_quick",
        "rn50_b4_fp32_cuda",
    ];
    assert_eq!(labels, expected);
}

/// Converts the record to another network.
fn of_resnet18(mut record: RunRecord) -> RunRecord {
    record.header.config.model = Model::Resnet18;
    record
}

#[test]
fn each_network_has_its_own_table_and_key() {
    let folder = Folder::new();
    for case in ["1n1g", "1n2g"] {
        folder.run(&record(case, 1, 0.5));
        folder.run(&of_resnet18(record(case, 1, 0.125)));
    }
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    let title = |model: &str| stdout.find(&format!("{model}, fp32, batch size 4 per rank\n")).expect("its table");
    assert!(title("ResNet50-v1b") < title("ResNet-18"), "{stdout}");
    let result = folder.result();
    assert_eq!(
        result.as_object().expect("an object").keys().collect::<Vec<_>>(),
        ["resnet18_b4_fp32_cpu", "rn50_b4_fp32_cpu"]
    );
    assert_eq!(result["resnet18_b4_fp32_cpu"]["1n2g"]["model"], "resnet18");
    let csv = folder.printed(&["--format", "csv"]);
    assert!(csv.contains("\nresnet18_b4_fp32_cpu,resnet18,fp32,4,cpu,full,1n2g,"), "{csv}");

    let alone = Folder::new();
    alone.run(&of_resnet18(record("1n1g", 1, 0.125)));
    assert_eq!(alone.extract(&[]).0, Some(0));
    assert_eq!(alone.result().as_object().expect("an object").keys().collect::<Vec<_>>(), ["resnet18"]);
    // A record of one network under the name of the other.
    let path = |name: &str| alone.path().join("1n1g").join(name);
    for extension in ["log", "jsonl"] {
        let moved =
            fs::rename(path(&format!("resnet18_b4_fp32_1.{extension}")), path(&format!("rn50_b4_fp32_1.{extension}")));
        moved.expect("was there");
    }
    let (status, _, stderr) = alone.extract(&[]);
    assert_eq!(status, Some(1));
    expect![[r"
        not in the figures: 1n1g/rn50_b4_fp32_1.jsonl: contains case 1n1g, ResNet-18, batch size 4, fp32, but has another file name: restore the original name
        wrote DIR/first/first_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/first are not complete: see the message above
    "]].assert_eq(&without_folder(&stderr));
}

#[test]
fn baseline_belongs_to_its_case() {
    let folder = Folder::new();
    folder.run(&record("1n1g", 1, 0.5));
    folder.run(&record("1n2g", 1, 0.625));
    let mut baseline = record("1n2g", 1, 0.5);
    baseline.header.config.exchange.backend = BackendChoice::None;
    folder.run(&baseline);
    let extraction = ringmark::read::results::read_training(&folder.path(), None).expect("a folder of runs");
    assert_eq!(extraction.problems, []);
    let labels: Vec<&str> = extraction.groups.iter().map(|group| group.label.as_str()).collect();
    assert_eq!(labels, ["rn50"], "DLPerf's key holds the runs with communication");
    let [single, two] = &extraction.groups[0].cases[..] else { panic!("two cases: {:?}", extraction.groups[0].cases) };
    assert_eq!((single.baseline.is_none(), two.runs.len()), (true, 1));
    let baseline = two.baseline.as_ref().expect("the same ranks without communication");
    let efficiency = |case: &TrainedCase| case.figures.as_ref().expect("figures").efficiency;
    assert!((efficiency(two) - 0.8).abs() < 1e-3 && (efficiency(baseline) - 1.0).abs() < 1e-3);

    // Read separately, they are ordinary runs.
    fs::remove_dir_all(folder.path().join("1n1g")).expect("removed");
    fs::remove_dir_all(folder.path().join("1n2g")).expect("removed");
    let extraction = ringmark::read::results::read_training(&folder.path(), None).expect("a folder of runs");
    assert_eq!(extraction.groups[0].cases[0].runs.len(), 1);
}

/// Creates two cases with two runs each, and a failed run.
fn small_folder() -> Folder {
    let folder = Folder::new();
    for (run, slower) in [(1, 1.0), (2, 1.02)] {
        folder.run(&record("1n1g", run, 0.5 * slower));
        folder.run(&record("1n2g", run, 0.5625 * slower));
    }
    let mut failed = record("1n2g", 3, 0.5);
    failed.iterations[4].loss[1] = f64::NAN;
    folder.run(&failed);
    folder
}

#[test]
fn result_is_written_in_every_format() {
    let folder = small_folder();
    for (format, file) in
        [("table", "table.txt"), ("markdown", "result.md"), ("json", "result.json"), ("csv", "result.csv")]
    {
        let (status, stdout, stderr) = folder.extract(&["--format", format]);
        assert_eq!(status, Some(1));
        assert_golden(&format!("extract/{file}"), &stdout);
        if let Some(extension) = file.strip_prefix("result.") {
            let file = folder.path().join(format!("first_result.{extension}"));
            let mut written = fs::read_to_string(file).expect("written");
            if extension == "json" {
                // The file also contains the hashes of the others.
                let begin = written.find(",\n  \"files_sha256\"").expect("hashes");
                written.replace_range(begin.., "\n}\n");
            }
            assert_eq!(written, stdout);
        }
        assert!(
            stderr.starts_with(
                "not in the figures: 1n2g/rn50_b4_fp32_3.jsonl: the loss of rank 1 is not finite in iteration 5: "
            ),
            "{stderr}"
        );
    }
    assert_eq!(folder.printed(&["--format", "md"]), folder.printed(&["--format", "markdown"]));
    let files: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    assert_eq!(files.len(), 6, "two cases, four results, nothing temporary: {files:?}");
}

#[test]
fn json_is_printed_or_written_to_a_file() {
    let folder = small_folder();
    let json = folder.printed(&["--format", "json"]);
    assert_eq!(folder.printed(&["--json"]), json);
    let file = folder.path().join("any.json");
    let (_, stdout, _) = folder.extract(&["--json", file.to_str().expect("a plain name")]);
    assert!(stdout.starts_with("ResNet50-v1b"), "{stdout}");
    assert_eq!(fs::read_to_string(file).expect("written"), json);
    let (status, _, stderr) = folder.extract(&["--json", "--format", "csv"]);
    assert_eq!(status, Some(2));
    expect![[r#"
        error: the argument '--json [<FILE>]' cannot be used with '--format <FORMAT>'

        For more information, try '--help'.
    "#]]
    .assert_eq(&stderr);
    let (status, stdout, stderr) = folder.extract(&["--json", "/no/such/folder/any.json"]);
    assert_eq!((status, stdout.as_str()), (Some(2), ""));
    expect![[r"
        error: --json /no/such/folder/any.json cannot be written: folder not found: /no/such/folder: create it, or use another
    "]].assert_eq(&stderr);
}

#[test]
fn json_contains_every_number_of_the_table() {
    let folder = small_folder();
    let (_, stdout, _) = folder.extract(&[]);
    let mut numbers = Vec::new();
    collect_numbers(&folder.result(), &mut numbers);
    let rows: Vec<&str> = stdout.lines().filter(|line| line.starts_with("1n")).collect();
    assert_eq!(rows.len(), 7, "two cases in three tables, and what one loses");
    for word in rows.iter().flat_map(|row| row.split_whitespace().skip(1)).filter(|word| word.parse::<f64>().is_ok()) {
        let decimals = word.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        // Unchanged, as a percentage, or in milliseconds.
        let shown = |number: &f64| [1.0, 100.0, 1000.0].map(|unit| format!("{:.decimals$}", number * unit));
        assert!(numbers.iter().any(|number| shown(number).contains(&word.to_owned())), "{word}");
    }
}

fn collect_numbers(value: &Value, numbers: &mut Vec<f64>) {
    match value {
        Value::Number(number) => numbers.extend(number.as_f64()),
        Value::Array(values) => values.iter().for_each(|value| collect_numbers(value, numbers)),
        Value::Object(fields) => fields.values().for_each(|value| collect_numbers(value, numbers)),
        _ => {}
    }
}

/// Uses 1n1g, and two ranks with and without an exchange, which show the costs of crowding and of the exchange.
#[test]
fn scaling_loss_parts_add_up_in_every_format() {
    let folder = Folder::new();
    for run in 1..=3 {
        let noise = 1.0 + 0.01 * f64::from(run);
        folder.run(&record("1n1g", run, 0.5 * noise));
        folder.run(&record("1n2g", run, 0.75 * noise));
        let mut alone = record("1n2g", run, 0.625 * noise);
        alone.header.config.exchange.backend = BackendChoice::None;
        folder.run(&alone);
    }
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    stdout.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
    let halves = stdout.lines().any(|line| line.split_whitespace().eq(["crowded", "overlap"]));
    assert!(halves, "{stdout}");
    let loss = &folder.result()["rn50"]["1n2g"]["scaling_loss"];
    let seconds = |part: &Value| part["seconds"].as_f64().expect("a number");
    let (parts, compute) = (loss["parts"].as_array().expect("parts"), loss["compute"].as_array().expect("halves"));
    let sum = |parts: &[Value]| parts.iter().map(seconds).sum::<f64>();
    assert!((sum(parts) - seconds(&loss["total"])).abs() < 1e-12 && (sum(compute) - seconds(&parts[0])).abs() < 1e-12);
    // Forward and backward take three quarters of a step; the mean step is 1.045 x 1.02 times the requested one.
    let step = 0.75 * 1.045 * 1.02;
    for (half, name, expected) in [(0, "compute_crowded", 0.125 * step), (1, "compute_overlapped", 0.125 * step)] {
        assert_eq!(compute[half]["part"], name);
        assert!((seconds(&compute[half]) - expected).abs() < 1e-9, "{}", compute[half]);
        assert!(compute[half]["margin_seconds"].as_f64().is_some_and(|margin| margin > 0.0 && margin < expected));
    }
    let efficiency = loss["efficiency"].as_f64().expect("a number");
    assert!((efficiency - 2.0 / 3.0).abs() < 1e-9, "{efficiency}");
    let points: f64 = parts.iter().flat_map(|part| part["efficiency"].as_f64()).sum();
    assert!((1.0 - points - efficiency).abs() < 1e-9, "what the parts cost is what the efficiency lacks");

    // Logs contain only the total, and no table of parts.
    let folder = Folder::new();
    write_published(&folder, &PUBLISHED[0]);
    assert!(!folder.printed(&[]).contains("Where the scaling loss goes"));
    let loss = &folder.result()["rn50"]["4n8g"]["scaling_loss"];
    assert_eq!((loss["parts"].as_array().map(Vec::len), loss["base"].as_str()), (Some(0), Some("1n1g")));
    // DLPerf's row: 128 images in 1 / 384.19, and in 32 / 9579.74 s. The logs alternate two speeds around five means.
    assert!((seconds(&loss["total"]) - (4096.0 / 9579.74 - 128.0 / 384.19)).abs() < 1e-3, "{loss}");
}

#[test]
fn loss_without_1n1g_names_its_base() {
    let folder = Folder::new();
    folder.run(&record("1n2g", 1, 0.5));
    folder.run(&record("1n4g", 1, 0.625));
    let (_, stdout, _) = folder.extract(&[]);
    assert!(stdout.contains("minus the step of 1n2g (no 1n1g)"), "{stdout}");
    assert_eq!(folder.result()["rn50"]["1n4g"]["scaling_loss"]["base"], "1n2g");
    assert_eq!(folder.result()["rn50"]["1n2g"]["scaling_loss"], Value::Null);
}

#[test]
fn different_thread_counts_are_noted() {
    let folder = Folder::new();
    for (case, threads) in [("1n1g", 2), ("1n2g", 1)] {
        let mut run = record(case, 1, 0.5);
        run.header.ranks.iter_mut().for_each(|rank| rank.threads = threads);
        folder.run(&run);
    }
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("cpu: Processor of a laptop, 1 to 2 threads per rank\n"), "{stdout}");
    let note =
        "cases have different numbers of threads per rank: efficiency compares\nunequal devices (1n1g: 2, 1n2g: 1)";
    assert!(stdout.contains(&format!("\nnote: {note}\n")), "{stdout}");
    stdout.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
    let markdown = folder.printed(&["--format", "markdown"]);
    assert!(markdown.contains(&format!("**Note:** {}", note.replace('\n', " "))), "{markdown}");
    assert_eq!(folder.result()["rn50"]["1n1g"]["threads_per_rank"], serde_json::json!([2]));

    let alike = small_folder().printed(&[]);
    assert!(alike.contains(", 1 thread per rank\n") && !alike.contains("NOTE"), "{alike}");
    // The device is a GPU for any driver.
    let folder = Folder::new();
    for (case, threads) in [("1n1g", 2), ("1n2g", 1)] {
        let mut run = record(case, 1, 0.5);
        run.header.ranks.iter_mut().for_each(|rank| (rank.threads, rank.device) = (threads, DeviceKind::Cuda));
        folder.run(&run);
    }
    let stdout = folder.printed(&[]);
    assert!(!stdout.contains("thread"), "{stdout}");
}

#[test]
fn table_fits_80_columns() {
    let folder = Folder::new();
    write_published(&folder, &PUBLISHED[0]);
    for line in folder.printed(&[]).lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn both_mean_speeds_follow_their_formulas() {
    let folder = Folder::new();
    folder.log("1n1g/rn50_b4_fp32_1.log", &[1.0, 100.0, 300.0]);
    assert_eq!(folder.extract(&["--warmup", "1"]).0, Some(0));
    let case = &folder.result()["rn50"]["1n1g"];
    // Mean of rates (100 + 300) / 2; images divided by time 2 / (1/100 + 1/300).
    assert_eq!(
        (case["dlperf"]["median_speed"].as_f64(), case["images_per_second"].as_f64()),
        (Some(200.0), Some(150.0))
    );

    let folder = Folder::new();
    let mut uneven = record("1n2g", 1, 0.5);
    for (iteration, [fast, slow]) in
        uneven.iterations[2..].iter_mut().zip([[1.0, 3.0], [1.0, 3.0], [2.0, 6.0], [2.0, 6.0]])
    {
        iteration.step = vec![Seconds(fast), Seconds(slow)];
    }
    folder.run(&uneven);
    folder.extract(&[]);
    // 4 images x 2 ranks x 4 iterations / mean over ranks of (6 s, 18 s).
    assert_close(&folder.result()["rn50"]["1n2g"]["images_per_second"], 32.0 / 12.0);
}

#[test]
fn warmup_is_from_the_option_then_the_record_then_20() {
    let folder = Folder::new();
    let mut rising: Vec<f64> = (1..=120).map(f64::from).collect();
    folder.log("1n1g/rn50_b128_fp32_1.log", &rising);
    folder.run(&record("1n1g", 1, 0.5));
    let warmup = |options: &[&str]| {
        folder.extract(options);
        let result = folder.result();
        let of = |label: &str| {
            let run = &result[label]["1n1g"]["runs"][0];
            (run["warmup"].as_u64().expect("a number"), run["dlperf_speed"].as_f64().expect("a number"))
        };
        (of("rn50_b128_fp32"), of("rn50_b4_fp32_cpu").0)
    };
    // Mean of 21..=120, then of 41..=120 and 6..=120.
    assert_eq!(warmup(&[]), ((20, 70.5), 2));
    assert_eq!(warmup(&["--warmup", "5"]), ((5, 63.0), 5));
    fs::remove_file(folder.path().join("1n1g/rn50_b4_fp32_1.log")).expect("was there");
    fs::remove_file(folder.path().join("1n1g/rn50_b4_fp32_1.jsonl")).expect("was there");
    folder.extract(&["--warmup", "40"]);
    assert_eq!(folder.result()["rn50"]["1n1g"]["runs"][0]["dlperf_speed"], 80.5);
    // Any number of lines is accepted, unlike by DLPerf's extractor, which crashes.
    rising.push(121.0);
    folder.log("1n1g/rn50_b128_fp32_1.log", &rising);
    assert_eq!(folder.extract(&[]).0, Some(0));
    assert_eq!(folder.result()["rn50"]["1n1g"]["runs"][0]["dlperf_speed"], 71.0);
}

#[test]
fn cases_are_sorted_by_ranks() {
    let folder = Folder::new();
    for case in ["16n8g", "2n8g", "1n16g", "1n1g", "128n8g"] {
        folder.log(&format!("{case}/rn50_b128_bf16_1.log"), &speeds(400.0, 120));
    }
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    let cases: Vec<&str> = stdout
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|word| word.ends_with('g') && word.starts_with(char::is_numeric))
        .collect();
    assert_eq!(cases, ["1n1g", "1n16g", "2n8g", "16n8g", "128n8g"]);
    // A single run has no spread, rather than a spread of zero.
    assert_eq!(folder.result()["rn50"]["1n1g"]["cv"], Value::Null);
}

#[test]
fn missing_1n1g_is_reported() {
    let folder = Folder::new();
    folder.log("1n2g/rn50_b128_fp32_1.log", &speeds(700.0, 120));
    folder.log("1n8g/rn50_b128_fp32_1.log", &speeds(2100.0, 120));
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(1));
    let warning = "no run of 1n1g counts: speedup and efficiency are relative to 1n2g";
    assert!(stdout.contains(warning) && stderr.contains(warning), "{stderr}");
    let case = &folder.result()["rn50"]["1n8g"];
    assert_eq!((&case["dlperf"]["speedup"], &case["base"]), (&Value::Null, &Value::from("1n2g")));
    assert_eq!(folder.dlperf()["rn50"]["1n8g"]["speedup"], Value::Null);
    assert_eq!(
        (
            &case["speedup_over_base"].as_f64().map(f64::round),
            &case["efficiency"].as_f64().map(|share| (share * 1e4).round())
        ),
        (&Some(3.0), &Some(7500.0))
    );
}

/// Sets the share of the host's two cores that other programs used.
fn disturbed(mut record: RunRecord, share: f64) -> RunRecord {
    let end = record.end.as_mut().expect("sound");
    let used = HostUse { host: "a".to_owned(), cores: 2, elapsed: Seconds(10.0), ..HostUse::default() };
    end.host_use = vec![HostUse { busy: Seconds(20.0 * share), ..used }];
    end.rank_use = record.header.ranks.iter().map(|_| RankUse::default()).collect();
    record
}

#[test]
fn disturbed_and_impossible_figures_are_unreliable() {
    let folder = Folder::new();
    for run in 1..=3 {
        folder.run(&disturbed(record("1n1g", run, 1.0), 0.1 + 0.2 * f64::from(run)));
        folder.run(&disturbed(record("1n2g", run, 0.45), 0.2));
        folder.run(&disturbed(record("1n4g", run, 1.5 + 0.6 * f64::from(run)), 0.25));
    }
    let sweep = ["ringmark", "sweep", "--out", "first", "--resume"].map(str::to_owned).to_vec();
    let mut manifest = Manifest::new(BenchmarkKind::Train, sweep, Conditions::default());
    for name in ["1n1g", "1n2g", "1n4g"]
        .iter()
        .flat_map(|case| (1..=3).map(move |run| format!("{case}/rn50_b4_fp32_{run}.log")))
    {
        manifest.run(name.parse().expect("a name")).state = RunState::Finished;
    }
    manifest.write(&folder.path()).expect("written");
    let (status, table, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    let row = |case: &str| -> Vec<&str> {
        let line = table.lines().find(|line| line.starts_with(case)).expect("a row");
        line.split_whitespace().collect()
    };
    // All figures of 1n1g and 1n4g, and those of 1n2g that are relative to 1n1g.
    assert!(row("1n1g")[3..8].iter().all(|figure| figure.starts_with('(') && figure.ends_with(')')), "{table}");
    let [speed, dlperf, per_rank, speedup, efficiency, margin] = row("1n2g")[3..9] else { panic!("{table}") };
    assert!([speed, dlperf, per_rank].iter().all(|speed| !speed.starts_with('(')), "{table}");
    assert_eq!((&speedup[..1], efficiency, margin), ("(", "(222.2)", "(0.0)"), "{table}");
    assert!(row("1n4g")[3].starts_with('('), "{table}");
    let times = table.lines().filter(|line| line.starts_with("1n1g")).nth(1).expect("its times");
    assert!(times.split_whitespace().skip(1).all(|time| time.starts_with('(')), "{table}");
    // The current location of the folder, which may have been moved.
    let resume = format!("ringmark sweep --out {} --resume", folder.path().display());
    let again = format!("repeat 1n1g: {resume} --repeat 1n1g");
    let reliability_warnings = [
        "other programs used the hosts' cores: 1n1g 70.0 % of a".to_owned(),
        "efficiency above 105.0 %: 1n2g 222.2 %: the base was disturbed".to_owned(),
        "runs vary by more than 10.0 % (CV): 1n4g 22.8 %".to_owned(),
        format!("stop other programs, then repeat: {resume} --repeat 1n1g,1n4g"),
    ];
    let markdown = folder.printed(&["--format", "markdown"]);
    for warning in &reliability_warnings {
        assert!(table.contains(&format!("\nwarning: unreliable: {warning}\n")), "{warning}\n{table}");
        assert!(markdown.contains(&format!("\n**Warning (unreliable):** {warning}\n")), "{warning}\n{markdown}");
    }
    assert!(table.contains("\nIn parentheses: unreliable; the warnings above contain reason and fix.\n"), "{table}");
    // A base with a warning needs no second one, and the load is listed once.
    assert!(
        !table.contains("its base 1n1g is unreliable") && !table.contains("1n1g, 3 of 3 runs, here run 1: other"),
        "{table}"
    );

    let result = &folder.result()["rn50"];
    assert_eq!((&result["1n2g"]["is_reliable"], &result["1n1g"]["is_reliable"]), (&false.into(), &false.into()));
    // The third warning: two ranks have more threads than the two cores.
    assert_eq!(result["1n2g"]["reliability_warnings"].as_array().map(Vec::len), Some(3));
    let third = result["1n2g"]["reliability_warnings"][2]["reason"].as_str().expect("a reason");
    assert!(third.starts_with("its ranks share too few cores on a host"), "{third}");
    assert_eq!(result["1n2g"]["reliability_warnings"][0]["fix"], again);
    assert!((result["1n1g"]["runs"][2]["foreign_load"].as_f64().expect("a share") - 0.7).abs() < 1e-9);
    let csv = folder.printed(&["--format", "csv"]);
    assert!(csv.lines().skip(1).all(|line| line.contains(",false,")), "{csv}");

    // Exactly a quarter of the core time is not above the limit, and a valid folder has no figures in parentheses.
    let sound = Folder::new();
    (1..=3).for_each(|run| sound.run(&disturbed(record("1n1g", run, 1.0), 0.25)));
    let (_, table, _) = sound.extract(&[]);
    assert!(!table.contains("QUOTED") && !table.contains("(1"), "{table}");
    assert_eq!(sound.result()["rn50"]["1n1g"]["is_reliable"], true);
}

#[test]
fn quick_profile_is_marked_in_every_format() {
    let folder = Folder::new();
    let mut quick = record("1n1g", 1, 0.5);
    quick.header.profile = RunProfile::Quick;
    folder.run(&quick);
    assert!(folder.printed(&[]).starts_with("ResNet50-v1b, fp32, batch size 4 per rank - QUICK PROFILE"));
    assert!(folder.printed(&["--format", "markdown"]).contains("QUICK PROFILE"));
    assert!(folder.printed(&["--format", "csv"]).contains(",quick,"));
    assert_eq!(folder.result()["rn50"]["1n1g"]["profile"], "quick");
}

/// Rank 1 takes twice as long to compute in the first and third of three runs of 24 iterations, and the second run is
/// dominated by outliers.
#[test]
fn repeated_warnings_are_merged_in_every_format() {
    let folder = small_folder();
    for run in 1..=3 {
        folder.run(&long_record("1n1g", run, 0.5, |_| ()));
        folder.run(&long_record("1n2g", run, 0.5, |iteration| {
            if run != 2 {
                iteration.before_allreduce[1].0 *= 2.0;
                iteration.phases[Phase::ExposedAllreduce][0].0 += 0.0625;
            } else if iteration.iteration == 21 {
                iteration.step = vec![Seconds(3.0); 2];
            }
        }));
    }
    let straggler = "1n2g, 2 of 3 runs, here run 1: rank 1 on host a is a straggler: in 100.0 % of the iterations, \
                     2.00 times the others' compute time; the others waited 62.5 ms for it in each: ";
    let outlier = "1n2g, run 2: 1 of 22 iterations took up to ";
    let (status, table, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(table.contains(&format!("\nwarning: {straggler}")), "{table}");
    assert!(table.contains(&format!("\nwarning: {outlier}")), "{table}");
    assert_eq!(table.matches("warning: 1n").count(), 2, "{table}");
    let runs = |case: &str| {
        let row = table.lines().find(|line| line.starts_with(case)).expect("a row");
        row.split_whitespace().nth(2).map(str::to_owned)
    };
    assert_eq!((runs("1n1g").as_deref(), runs("1n2g").as_deref()), (Some("3/3"), Some("3/3!")));
    assert!(table.contains("\n!: these runs count, but read the lines that begin with warning.\n"), "{table}");
    assert!(folder.printed(&["--format", "markdown"]).contains(&format!("\n**Warning:** {straggler}")));

    let result = &folder.result()["rn50"];
    let warnings = result["1n2g"]["warnings"].as_array().expect("a list");
    assert!(warnings[0].as_str().is_some_and(|text| text.starts_with(straggler)), "{warnings:?}");
    assert_eq!((warnings.len(), result["1n1g"]["warnings"].as_array().map(Vec::len)), (2, Some(0)));
    let of_run = |run: usize| &result["1n2g"]["runs"][run]["warnings"];
    for (run, kind, about) in [(0, "straggler", "rank 1 on host a"), (1, "outliers", "the run")] {
        let Some([warning]) = of_run(run).as_array().map(Vec::as_slice) else { panic!("{result}") };
        assert_eq!((&warning["kind"], &warning["about"]), (&Value::from(kind), &Value::from(about)));
    }
    let csv = folder.printed(&["--format", "csv"]);
    let ends: Vec<Vec<&str>> = csv.lines().map(|line| line.rsplit(',').take(2).collect()).collect();
    let counts: Vec<&str> = ends.iter().map(|end| end[1]).collect();
    assert_eq!(counts, ["run_warnings", "0", "2"]);
    assert_eq!([ends[0][0], ends[1][0]], ["efficiency_margin", ""]);
    let margin = folder.result()["rn50"]["1n2g"]["efficiency_margin"].as_f64().expect("a margin");
    assert_eq!(ends[2][0].parse(), Ok(margin));

    // Analyzed again with another warm-up, and without fields that older workers did not write.
    let (_, warmup, _) = folder.extract(&["--warmup", "22"]);
    assert!(!warmup.contains("warning: 1n"), "{warmup}");
}

/// Adds one defect to a folder with two valid logs; expects the message, exit status 1, and the figures of the other
/// runs.
fn expect_left_out(expected: &str, damage: impl FnOnce(&Folder)) {
    let folder = Folder::new();
    folder.log("1n1g/rn50_b128_fp32_1.log", &speeds(384.19, 120));
    folder.log("1n2g/rn50_b128_fp32_1.log", &speeds(749.04, 120));
    damage(&folder);
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(1), "{expected}");
    assert!(stderr.contains(&format!("not in the figures: {expected}")), "{expected}\n{stderr}");
    assert!(stderr.contains("are not complete: see the message above"), "{expected}\n{stderr}");
    assert!(stdout.contains(" 749.0 "), "{expected}\n{stdout}");
    let markdown = fs::read_to_string(folder.path().join("first_result.md")).expect("written");
    assert!(markdown.contains(expected), "{expected}\n{markdown}");
    assert_eq!(folder.dlperf()["rn50"]["1n2g"]["median_speed"], 749.04, "{expected}");
}

/// Path of a third log, in case 1n2g.
const SECOND: &str = "1n2g/rn50_b128_fp32_2.log";

#[test]
fn damaged_logs_are_excluded_with_file_and_line() {
    let sound = || dlperf_log(&speeds(740.0, 120));
    // Line 1 is a header, line 52 follows the line of the 50th iteration.
    let changes: [(&str, &str, &str); 6] = [
        (
            "Batch[57]\tSpeed: 739.50",
            "Batch[57]\tSpeed: nan",
            ":59: an iteration without a speed, \"INFO:root:Epoch[0] Batch[57]",
        ),
        ("Batch[57]\tSpeed: 739.50 samples/sec\n", "", ":59: expected Batch[57], found Batch[58]: lines are missing"),
        ("Epoch[0] Batch[3]", "Epoch[0] Batch[2]", ":4: expected Batch[3], found Batch[2]: two outputs in one log"),
        (
            "INFO:root:Epoch[0] Batch[1]\t",
            "[1,0]<stdout>:\u{fffd} INFO:root:Epoch[0] Batch[1",
            ":2: an iteration without",
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
        (&sound.as_bytes()[..middle_of_a_speed], ":92: an iteration without a speed"),
        (&sound.as_bytes()[..after_warmup], ": 20 iterations, all of them warm-up (20): "),
    ];
    for (content, message) in cuts {
        expect_left_out(&format!("{SECOND}{message}"), |folder| folder.write(SECOND, content));
    }
    expect_left_out(&format!("{SECOND}: 57 iterations, but most logs of the case have 120: cut off"), |folder| {
        folder.log(SECOND, &speeds(740.0, 57));
    });
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
             2): ",
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
        not in the figures: 1n2g/rn50_b4_fp32_4.log: 5 iteration lines of 6: the log was cut off or edited, repeat the run
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
    assert_eq!(folder.result()["rn50"]["1n4g"]["images_per_second"], Value::Null);
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
    expect(
        &folder.path().join("missing"),
        2,
        "missing cannot be read: pass the folder that a sweep wrote: No such file",
    );
    expect(&folder.path(), 1, "first contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log");
    folder.log("second/1n1g/rn50_b128_fp32_1.log", &speeds(384.19, 120));
    expect(&folder.path(), 1, "first/second\n");
    let case = folder.path().join("second/1n1g");
    expect(&case, 1, "1n1g contains no runs");
    expect(&case, 1, "this is the folder of one case: pass its parent folder");
    expect(&case.join("rn50_b128_fp32_1.log"), 2, "rn50_b128_fp32_1.log is a file: pass the folder");
}

#[test]
fn out_selects_the_result_folder() {
    let folder = small_folder();
    let out = folder.parent.path().join("new/result");
    folder.extract(&["--out", out.to_str().expect("ASCII")]);
    assert!(out.join("first_result.json").is_file() && !folder.path().join("first_result.json").exists());
    let file = folder.path().join("1n1g/rn50_b4_fp32_1.log");
    let (status, stdout, stderr) = folder.extract(&["--out", file.to_str().expect("ASCII")]);
    assert_eq!(status, Some(1));
    expect![[r"
        not in the figures: 1n2g/rn50_b4_fp32_3.jsonl: the loss of rank 1 is not finite in iteration 5: repeat the run, with a smaller --lr if this recurs
        error: cannot write the result into DIR/first/1n1g/rn50_b4_fp32_1.log: choose another folder with --out: File exists (os error 17)
    "]].assert_eq(&without_folder(&stderr));
    assert!(stdout.contains("1n2g"), "the table is printed all the same");
}

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
    assert_close(&single["images_per_second"], 120.0);
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
    assert!(stdout.contains("\nlogs of Horovod's synthetic benchmark: no times of single iterations\n"), "{stdout}");
    assert!(stdout.contains("\nwindows of iterations: 3, omitted: 0\n"), "{stdout}");
    let result = &folder.result()["rn50"];
    assert_eq!(result["1n1g"]["dlperf"]["median_speed"], 122.0);
    // 4 x (110 + 112.5 + 115.5) / 3, and 4 x 3 / (1/110 + 1/112.5 + 1/115.5) = 450.49.
    let four = &result["1n4g"];
    let dlperf = &four["dlperf"];
    assert_eq!((dlperf["median_speed"].as_f64(), dlperf["speedup"].as_f64()), (Some(450.67), Some(3.69)));
    let over_time = 12.0 / (1.0 / 110.0 + 1.0 / 112.5 + 1.0 / 115.5);
    assert_close(&four["images_per_second"], over_time);
    assert_close(&four["images_per_second_per_rank"], over_time / 4.0);
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
    assert!(stdout.contains("\nlogs of tf_cnn_benchmarks: no times of single iterations\n"), "{stdout}");
    let four = &folder.result()["rn50"]["1n4g"];
    assert_eq!(four["dlperf"]["median_speed"], 365.4);
    assert_close(&four["images_per_second"], 365.4);
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
            ": Horovod's synthetic benchmark on 4 ranks, but its name says 1n2g: move",
        ),
        (
            sound.replace("size: 128", "size: 64"),
            ": Horovod's synthetic benchmark, batch size 64, but its name says 128: rename",
        ),
        (sound.replace("Iter #1", "Iter #2"), ":7: expected Iter #1, found Iter #2: lines are missing: repeat the run"),
        (sound.replace("Total", ""), ": output of Horovod's synthetic benchmark without its last line"),
        (tf_cnn_benchmarks_log(2, 740.0), ": tf_cnn_benchmarks, batch size 32, but its name says 128: rename"),
        (
            tf_cnn_benchmarks_log(2, 740.0).replace("total images", ""),
            ": 'total images/sec' of tf_cnn_benchmarks occurs 0 times",
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
        not in the figures: 1n2g/rn50_b4_fp32_4.log: 0 iteration lines of 6: the log was cut off or edited, repeat the run
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
    let (status, stdout, stderr) = run(ringmark("diff").args(&sides).arg("--force"));
    assert_eq!(status, Some(0), "{stderr}");
    let row = stdout.lines().find(|line| line.starts_with("2n2g")).expect("a row");
    assert!(row.contains("+50.0") && row.contains("Faster"), "{stdout}");
    assert!(!stdout.contains("p95"), "{stdout}");
    let (status, stdout, stderr) = run(ringmark("report").arg(&sides[0]));
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("logs of Horovod's synthetic benchmark"), "{stdout}");
    assert!(!stdout.contains("Every iteration"), "{stdout}");
    let (status, stdout, stderr) = run(ringmark("predict").arg(&sides[0]).args(["--cases", "4n2g"]));
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("4n2g"), "{stdout}");
}

//! Tests of `ringmark extract`: DLPerf's published figures, tables, formats.

use std::collections::BTreeSet;
use std::fs;

use expect_test::expect;
use ringmark::read::analyze::training::figures::TrainingCase;
use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{DeviceKind, Dtype, Model, Seconds};
use serde_json::Value;

use crate::support::extract::{Extract, assert_close, small_folder, speeds};
use crate::support::golden::assert_golden;
use crate::support::runs::{Folder, committed, record};
use crate::support::sandbox::{lines_with, ringmark, run};
use crate::support::temporary_folder::without_folder;

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
    let result = ringmark::read::results::read_training(&folder.path(), None).expect("a folder of runs");
    assert_eq!(result.problems, []);
    let labels: Vec<&str> = result.training().iter().map(|group| group.label.as_str()).collect();
    assert_eq!(labels, ["rn50"], "DLPerf's key holds the runs with communication");
    let [single, two] = &result.training()[0].cases[..] else { panic!("two cases: {:?}", result.training()[0].cases) };
    assert_eq!((single.baseline.is_none(), two.runs.len()), (true, 1));
    let baseline = two.baseline.as_ref().expect("the same ranks without communication");
    let efficiency = |case: &TrainingCase| case.figures.as_ref().expect("figures").efficiency;
    assert!((efficiency(two) - 0.8).abs() < 1e-3 && (efficiency(baseline) - 1.0).abs() < 1e-3);

    // Read separately, they are ordinary runs.
    fs::remove_dir_all(folder.path().join("1n1g")).expect("removed");
    fs::remove_dir_all(folder.path().join("1n2g")).expect("removed");
    let result = ringmark::read::results::read_training(&folder.path(), None).expect("a folder of runs");
    assert_eq!(result.training()[0].cases[0].runs.len(), 1);
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
    assert_eq!(rows.len(), 6, "two cases in three tables");
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
    let halves = stdout.lines().any(|line| line.split_whitespace().eq(["sharing", "overlap"]));
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
    for run in 1..=3 {
        folder.run(&record("1n2g", run, 0.5 + 0.001 * f64::from(run)));
        folder.run(&record("1n4g", run, 0.625 + 0.001 * f64::from(run)));
    }
    let (_, stdout, _) = folder.extract(&[]);
    expect!["Where the scaling loss goes: step of each case minus that of 1n2g (no 1n1g)"]
        .assert_eq(&lines_with(&stdout, "of each case minus"));
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
    expect!["cpu: Processor of a laptop, 1 to 2 threads per rank"].assert_eq(&lines_with(&stdout, "cpu: Processor of"));
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

/// `--explain` explains every column of every table.
#[test]
fn every_column_is_explained() {
    let (suite, score) = (committed("suite-2-cores"), committed("score-2-cores"));
    for (command, folders) in [
        ("extract --format table --price 2/host-hour", vec![&suite]),
        ("extract --format table", vec![&score]),
        ("diff", vec![&suite, &suite]),
    ] {
        let (_, stdout, stderr) = run(ringmark(&format!("{command} --explain")).args(folders));
        let lines: Vec<&str> = stdout.lines().collect();
        let is_rule = |line: &str| line.len() > 10 && line.chars().all(|letter| letter == '-');
        let rules = (0..lines.len()).filter(|number| is_rule(lines[*number]));
        let names = rules.flat_map(|rule| {
            let first = lines[..rule].iter().rposition(|line| line.is_empty()).map_or(0, |empty| empty + 1);
            lines[first].split("  ").map(str::trim).filter(|name| !name.is_empty()).collect::<Vec<_>>()
        });
        let names: BTreeSet<&str> = names.filter(|name| name.parse::<u32>().is_err()).collect();
        assert!(names.len() > 1, "{names:?} {stdout}{stderr}");
        let text = stdout.to_lowercase();
        let is_explained =
            |name: &&str| [":", ",", " and "].iter().any(|end| text.contains(&(name.to_lowercase() + end)));
        let others: Vec<&str> = names.into_iter().filter(|name| !is_explained(name)).collect();
        assert_eq!(others, Vec::<&str>::new(), "{command}: {stdout}");
    }
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
        (case["dlperf"]["median_speed"].as_f64(), case["units_per_second"].as_f64()),
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
    assert_close(&folder.result()["rn50"]["1n2g"]["units_per_second"], 32.0 / 12.0);
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

//! Tests of scoring sweeps in `ringmark extract` and `ringmark diff`, and of commands that reject them.

use std::fs;
use std::path::Path;

use expect_test::expect;
use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::dimension::{Bytes, DeviceKind, Dtype, GraphChoice, Model, Seconds};
use ringmark_core::host::{HostUse, MemoryShortage};
use ringmark_core::manifest::RunState;
use ringmark_core::number_text::{four_digits, share_of_limit};
use serde_json::Value;

use crate::support::golden::assert_golden;
use crate::support::runs::{self, Folder};
use crate::support::sandbox::{check_refusals, lines_with, refused, ringmark, run};
use crate::support::scores::{Score, record, small_folder};
use crate::support::temporary_folder::without_folder;

#[test]
fn sweep_over_all_axes_is_one_table_in_every_format() {
    let folder = small_folder();
    for (format, file) in [("table", "table.txt"), ("markdown", "result.md"), ("csv", "result.csv")] {
        let (status, stdout, stderr) = folder.ringmark("extract", &["--format", format]);
        assert_eq!((status, stderr.lines().count()), (Some(0), 1), "{stderr}");
        assert_golden(&format!("score/{file}"), &stdout);
        stdout.lines().for_each(|line| assert!(format != "table" || line.chars().count() <= 80, "{line}"));
        if let Some(extension) = file.strip_prefix("result.") {
            let written = fs::read_to_string(folder.path().join(format!("first_result.{extension}")));
            assert_eq!(written.expect("written"), stdout);
        }
    }
    let (_, json, _) = folder.ringmark("extract", &["--json"]);
    let mut written = folder.result();
    written.as_object_mut().expect("a result").remove("files_sha256").expect("hashes");
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON"), written);
    let files: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().collect();
    assert_eq!(files.len(), 5, "two cases, three results, nothing temporary: {files:?}");
}

#[test]
fn columns_with_one_value_are_omitted() {
    let folder = Folder::new();
    for batch_size in [1, 2, 4, 8, 16, 32, 64] {
        folder.score(&record(&format!("1n1g/rn50_b{batch_size}_fp32"), 1, 0.125 * f64::from(batch_size)));
    }
    let (status, stdout, stderr) = folder.ringmark("extract", &[]);
    assert_eq!(status, Some(0), "{stderr}");
    let words: Vec<Vec<&str>> = stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(stdout.starts_with("Inference, fp32, 1n1g: images/s by network and batch size per rank\n"), "{stdout}");
    assert!(words.contains(&vec!["network", "1", "2", "4", "8", "16", "32"]), "{stdout}");
    assert!(words.contains(&vec!["network", "64"]), "more than six batch sizes are a second table: {stdout}");
    // 1 image in 0.125 s x 1.045, the mean of passes that get longer by 1 % each.
    assert!(words.contains(&vec!["ResNet50-v1b"].into_iter().chain(["7.656"; 6]).collect()), "{stdout}");
    assert!(stdout.contains(", 1 run per figure\n") && !stdout.contains("CV %"), "{stdout}");
}

#[test]
fn speed_uses_the_slowest_rank_and_the_median_run() {
    let folder = Folder::new();
    for (number, pass) in [(1, 0.5), (2, 0.25), (3, 1.0)] {
        let mut uneven = record("1n2g/rn50_b4_fp32", number, pass);
        uneven.seconds = vec![vec![Seconds(pass); 10], vec![Seconds(pass / 2.0); 10]];
        folder.score(&uneven);
    }
    assert_eq!(folder.ringmark("extract", &[]).0, Some(0));
    let result = folder.result();
    assert_eq!((&result["kind"], &result["schema"]), (&Value::from("ringmark-score-result"), &Value::from(5)));
    let row = &result["rows"][0];
    assert_eq!((&row["units_per_second"], &row["runs_counted"]), (&Value::from(16.0), &Value::from(3)));
    assert_eq!((&row["model"], &row["case"], &row["ranks"]), (&"resnet50_v1b".into(), &"1n2g".into(), &2.into()));
    let runs: Vec<f64> = (0..3).filter_map(|run| row["runs"][run]["units_per_second"].as_f64()).collect();
    assert_eq!(runs, [16.0, 32.0, 8.0]);
    assert_eq!(row["runs"][0]["pass_seconds"]["mean"], 0.5);
}

#[test]
fn json_contains_every_figure_of_the_table() {
    let folder = small_folder();
    let (_, stdout, _) = folder.ringmark("extract", &[]);
    let result = folder.result();
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 18);
    let shown: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            let number = |key: &str| row[key].as_f64().expect("a number");
            [four_digits(number("units_per_second")), format!("{:.2}", 100.0 * number("cv"))]
        })
        .chain(rows.iter().flat_map(|row| {
            let number = |key: &str| row["arithmetic"][key].as_f64().expect("a number");
            let share = share_of_limit(number("share_of_matrix_product"));
            [format!("{:.3}", number("teraflops_per_second")), share]
        }))
        .collect();
    let cells: Vec<&str> = stdout
        .lines()
        .filter(|line| !line.starts_with("Sound: "))
        .flat_map(str::split_whitespace)
        .filter(|word| *word == ">100" || (word.contains('.') && word.parse::<f64>().is_ok()))
        .collect();
    assert_eq!(cells.len(), 4 * rows.len(), "{stdout}");
    cells.iter().for_each(|cell| assert!(shown.contains(&(*cell).to_owned()), "{cell}"));
}

#[test]
fn devices_profiles_and_options_are_never_mixed() {
    let folder = Folder::new();
    folder.score(&record("1n1g/rn50_b4_fp32", 1, 0.5));
    let mut cuda = record("1n1g/rn50_b8_fp32", 1, 0.25);
    cuda.ranks[0].device = DeviceKind::Cuda;
    folder.score(&cuda);
    let mut quick = record("1n1g/rn50_b4_fp32", 2, 0.5);
    quick.profile = RunProfile::Quick;
    folder.score(&quick);
    let mut small = record("1n1g/rn50_b4_fp32", 3, 0.5);
    small.config.image_size = Some(64);
    folder.score(&small);
    let mut elsewhere = record("1n1g/rn50_b4_fp32", 4, 0.5);
    elsewhere.ranks[0].device_name = "Another".to_owned();
    folder.score(&elsewhere);
    let mut graph = record("1n1g/rn50_b8_fp32", 2, 0.25);
    graph.ranks[0].device = DeviceKind::Cuda;
    graph.config.graphs = GraphChoice::On;
    folder.score(&graph);
    let (status, stdout, stderr) = folder.ringmark("extract", &[]);
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(stdout.matches("\nnetwork").count(), 5, "{stdout}");
    assert_eq!(stdout.matches("nhwc, folded, CUDA graph, 10 measured").count(), 1, "{stdout}");
    assert!(
        stdout.contains("- QUICK PROFILE\n") && stdout.contains("warning: unreliable: quick profile, "),
        "{stdout}"
    );
    expect!["warning: different devices in one table: Another / Processor of a laptop"]
        .assert_eq(&lines_with(&stdout, "warning: different devices"));
}

#[test]
fn figures_with_warnings_are_marked_once() {
    let folder = Folder::new();
    for number in [1, 2] {
        let mut crowded = record("1n2g/rn50_b4_fp32", number, 0.5);
        crowded.host_use = vec![HostUse {
            host: "a".to_owned(),
            machine: "m".to_owned(),
            cores: 1,
            cores_of_ranks: 1,
            elapsed: Seconds(5.0),
            busy: Seconds(5.0),
            steal: Seconds(0.0),
            swapped_in: Bytes(0),
            heat_events: None,
            clock_mhz: None,
            telemetry: None,
        }];
        folder.score(&crowded);
    }
    folder.score(&record("1n2g/rn50_b8_fp32", 1, 0.5));
    let (status, stdout, stderr) = folder.ringmark("extract", &[]);
    assert_eq!(status, Some(0), "{stderr}");
    let row: Vec<&str> = stdout
        .lines()
        .find(|line| line.starts_with("ResNet50"))
        .map(|line| line.split_whitespace().skip(1).collect())
        .expect("a row");
    assert_eq!(row, ["15.31!", "30.62"], "{stdout}");
    let warning =
        "warning: ResNet50-v1b, fp32, 1n2g, batch size 4, 2 of 2 runs, for example run 1: the ranks of host a have 2";
    assert_eq!((stdout.matches("warning: R").count(), stdout.matches(warning).count()), (1, 1), "{stdout}");
    expect!["!: these runs count but have warnings: see the lines that begin with warning."]
        .assert_eq(&lines_with(&stdout, "!: these runs"));
    assert_eq!(folder.result()["rows"][0]["runs"][1]["warnings"][0]["kind"], "oversubscribed");
}

/// Adds one defect to a valid folder; expects the message, exit status 1, and the figures of the other runs.
fn expect_left_out(expected: &str, damage: impl FnOnce(&Folder)) {
    let folder = small_folder();
    damage(&folder);
    let (status, stdout, stderr) = folder.ringmark("extract", &[]);
    assert_eq!(status, Some(1), "{expected}\n{stderr}");
    assert!(stderr.contains(&format!("not in the figures: {expected}")), "{expected}\n{stderr}");
    expect!["error: the figures of DIR/first are not complete: see the message above"]
        .assert_eq(&lines_with(&stderr, "are not complete:"));
    assert!(stdout.contains("ResNet-18") && stdout.matches("\nnetwork").count() == 1, "{stdout}");
    let markdown = fs::read_to_string(folder.path().join("first_result.md")).expect("written");
    assert!(markdown.contains(expected), "{expected}\n{markdown}");
    let left_out = folder.result()["left_out"][0].as_str().map(str::to_owned).expect("a message");
    assert!(left_out.starts_with(expected), "{left_out}");
}

#[test]
fn invalid_runs_are_named_and_the_others_shown() {
    type Change = fn(&mut ScoreRecord);
    let changes: [(&str, Change); 5] = [
        ("jsonl: the run failed: the scores of rank 0 are not finite: repeat it", |record| {
            record.failure = Some("the scores of rank 0 are not finite".to_owned());
        }),
        ("jsonl: the record cannot be used: rank 0 does not have 10 times", |record| record.seconds[0].truncate(3)),
        ("jsonl: the record cannot be used: inference record format 9", |record| record.schema = 9),
        ("jsonl: no timed passes, or all of them took 0 s", |record| record.seconds[0] = vec![Seconds(0.0); 10]),
        ("jsonl: invalid speed: 3.00e16 images/s", |record| record.seconds[0] = vec![Seconds(1e-16 / 3.0); 10]),
    ];
    for (message, change) in changes {
        let mut changed = record("1n1g/rn50_b1_fp32", 3, 0.5);
        change(&mut changed);
        expect_left_out(&format!("1n1g/rn50_b1_fp32_3.{message}"), |folder| folder.score(&changed));
    }
    let log = "1n1g/rn50_b1_fp32_3.log";
    expect_left_out(&format!("{log}:2: the run failed: mpirun ended with status 1: repeat it"), |folder| {
        folder.write(log, "mpirun: no such host\nringmark: run failed: mpirun ended with status 1\n");
    });
    expect_left_out(&format!("{log}: record missing"), |folder| folder.write(log, "x\n"));
    let cut_off = |folder: &Folder| {
        folder.score(&record("1n1g/rn50_b1_fp32", 3, 0.5));
        let path = folder.path().join("1n1g/rn50_b1_fp32_3.jsonl");
        let whole = fs::read(&path).expect("written");
        fs::write(&path, &whole[..whole.len() / 2]).expect("cut off");
    };
    expect_left_out("1n1g/rn50_b1_fp32_3.jsonl: the record cannot be used: the inference record is damaged", cut_off);
    expect_left_out(
        "1n1g/rn50_b1_fp32_3.jsonl: contains case 1n1g, ResNet-18, batch size 1, fp32, but has another file name",
        |folder| {
            folder.score(&record("1n1g/rn50_b1_fp32", 3, 0.5));
            let path = |name: &str| folder.path().join("1n1g").join(name);
            fs::copy(path("resnet18_b1_fp32_1.jsonl"), path("rn50_b1_fp32_3.jsonl")).expect("was there");
        },
    );
}

#[test]
fn points_without_valid_runs_show_the_reason() {
    let folder = Folder::new();
    let memory = MemoryShortage { taken: Bytes(15_100_000_000), total: Bytes(16_000_000_000) };
    folder.score(&record("1n1g/rn50_b1_fp32", 1, 0.5));
    folder.write("1n1g/rn50_b2_fp32_1.log", "ringmark: run failed: a rank died\n");
    folder.write("1n1g/rn50_b64_fp32_1.log", "ringmark: run failed: out of memory at batch 64: 15.1 of 16.0 GB\n");
    folder.manifest(&[
        ("1n1g/rn50_b1_fp32_1.log", RunState::Finished),
        ("1n1g/rn50_b2_fp32_1.log", RunState::Failed { reason: "a rank died".to_owned() }),
        ("1n1g/rn50_b4_fp32_1.log", RunState::Planned),
        ("1n1g/rn50_b64_fp32_1.log", RunState::OutOfMemory { memory }),
        ("1n1g/rn50_b64_fp32_2.log", RunState::Planned),
        ("1n1g/rn50_b128_fp32_1.log", RunState::Planned),
    ]);
    let (status, stdout, stderr) = folder.ringmark("extract", &[]);
    assert_eq!(status, Some(1));
    // A batch that runs out of memory is a result, as are larger ones; a run that has not been made has no column.
    let cells = ["ResNet50-v1b", "1.914", "-", "out", "of", "memory", "out", "of", "memory"];
    assert!(stdout.lines().any(|line| line.split_whitespace().eq(cells)), "{stdout}");
    expect!["note: ResNet50-v1b, fp32, 1n1g: out of memory at batch 64: 15.1 of 16.0 GB"]
        .assert_eq(&lines_with(&stdout, "note: ResNet50-v1b, fp32,"));
    expect![[r#"
        not in the figures: sweep.json: 2 runs are missing (not yet run: 1n1g/rn50_b4_fp32_1.log): resume with: ringmark score --resume
        not in the figures: 1n1g/rn50_b2_fp32_1.log:1: the run failed: a rank died: repeat it
        wrote DIR/first/first_result.json, _result.csv, _result.md
        error: the figures of DIR/first are not complete: see the 2 messages above
    "#]].assert_eq(&without_folder(&stderr));
    let rows = &folder.result()["rows"];
    assert_eq!((&rows[1]["units_per_second"], &rows[1]["runs_counted"]), (&Value::Null, &Value::from(0)));
}

#[test]
fn scoring_sweep_without_valid_runs_has_a_table() {
    let folder = Folder::new();
    folder.write("1n1g/rn50_b2_fp32_1.log", "ringmark: run failed: out of memory\n");
    folder.manifest(&[("1n1g/rn50_b2_fp32_1.log", RunState::Failed { reason: "out of memory".to_owned() })]);
    let (status, stdout, stderr) = folder.ringmark("extract", &[]);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stdout.contains("device unknown") && stdout.contains("no run counts"), "{stdout}");
}

#[test]
fn training_options_are_rejected_for_scoring() {
    let folder = small_folder();
    let path = folder.path().display().to_string();
    check_refusals(
        &expect![[r#"
            extract FOLDER --format pytorch-ddp
                error: --format pytorch-ddp applies to training, but first contains an inference sweep: choose table, markdown, json or csv
            extract FOLDER --format dlperf
                error: --format dlperf applies to training, but first contains an inference sweep: choose table, markdown, json or csv
            extract FOLDER --warmup 2
                error: --warmup: the inference records in DIR/first contain no warm-up passes: omit --warmup
            report FOLDER --warmup 2
                error: --warmup: the inference records in DIR/first contain no warm-up passes: omit --warmup
            extract FOLDER --published --format csv
                error: --published: --format csv cannot include published figures: choose table, markdown or json
            predict FOLDER
                error: DIR/first contains a score sweep, but this command reads training: `ringmark extract DIR/first` reads it, `ringmark report DIR/first` shows it, `ringmark diff` compares two
        "#]],
        |command| refused(&mut ringmark(&command.replace("FOLDER", &path)), 2),
    );
    assert!(!folder.path().join("first_result.json").exists());
}

#[test]
fn folder_with_two_benchmarks_is_rejected() {
    let folder = small_folder();
    folder.run(&runs::record("1n1g", 9, 0.5));
    let path = folder.path().display().to_string();
    check_refusals(
        &expect![[r#"
            extract FOLDER
                error: DIR/first mixes benchmarks: runs of train (1n1g/rn50_b4_fp32_9.jsonl), runs of score (1n1g/rn50_b1_bf16_1.jsonl): use one folder per benchmark
            report FOLDER
                error: DIR/first mixes benchmarks: runs of train (1n1g/rn50_b4_fp32_9.jsonl), runs of score (1n1g/rn50_b1_bf16_1.jsonl): use one folder per benchmark
            predict FOLDER
                error: DIR/first mixes benchmarks: runs of train (1n1g/rn50_b4_fp32_9.jsonl), runs of score (1n1g/rn50_b1_bf16_1.jsonl): use one folder per benchmark
        "#]],
        |command| refused(&mut ringmark(&command.replace("FOLDER", &path)), 2),
    );
}

/// Runs `ringmark diff` on two folders or files.
fn diff(base: &Path, test: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    run(ringmark("diff").args([base, test]).args(options))
}

#[test]
fn diff_compares_scoring_sweeps_point_by_point() {
    let sweep = |pass: f64, layout| {
        let folder = Folder::new();
        for batch_size in [1, 4] {
            for number in 1..=3 {
                let pass = pass * f64::from(batch_size) * (1.0 + 0.001 * f64::from(number));
                let mut record = record(&format!("1n1g/rn50_b{batch_size}_fp32"), number, pass);
                record.config.layout = layout;
                folder.score(&record);
            }
        }
        folder
    };
    use ringmark_core::dimension::LayoutChoice::{Nchw, Nhwc};
    let (base, test) = (sweep(0.5, Nhwc), sweep(0.25, Nchw));
    let (status, stdout, stderr) = diff(&base.path(), &test.path(), &["--fail-on", "slower"]);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("layout: nhwc -> nchw"), "{stdout}");
    assert!(stdout.contains("\nResNet50-v1b, fp32, image size 224, cpu\n"), "{stdout}");
    for case in ["1n1g b1", "1n1g b4"] {
        let line = stdout.lines().find(|line| line.starts_with(case)).expect("a case");
        assert!(line.contains("Faster") && line.contains("+100"), "{line}");
    }
    assert!(stdout.find("layout").expect("first") < stdout.find("Faster").expect("second"));

    // Comparing with extract's JSON gives the same result; other kinds of results have nothing in common with it.
    assert_eq!(base.ringmark("extract", &[]).0, Some(0));
    let file = base.path().join("first_result.json");
    let (status, by_file, stderr) = diff(&file, &test.path(), &[]);
    assert_eq!(status, Some(0), "{stderr}");
    let body = |text: &str| text.split_once("\nTEST").expect("the sides").1.to_owned();
    assert_eq!(body(&by_file), body(&stdout));
    let training = Folder::new();
    training.run(&runs::record("1n1g", 1, 0.5));
    let (status, _, stderr) = diff(&base.path(), &training.path(), &["--force"]);
    assert_eq!(status, Some(2));
    expect![[r#"
        error: DIR/first contains inference runs of ringmark, DIR/first contains training runs of ringmark or DLPerf: not comparable, even with --force
    "#]].assert_eq(&without_folder(&stderr));
}

#[test]
fn different_networks_and_precisions_need_force() {
    let one = |record: ScoreRecord| {
        let folder = Folder::new();
        folder.score(&record);
        folder
    };
    let base = one(record("1n1g/rn50_b4_fp32", 1, 0.5));
    let mut other = record("1n1g/rn50_b4_fp32", 1, 0.5);
    (other.config.model, other.config.dtype) = (Model::Resnet18, Dtype::Bf16);
    let other = one(other);
    let (status, _, stderr) = diff(&base.path(), &other.path(), &[]);
    assert_eq!(status, Some(2));
    expect![[r"
        error: BASE and TEST are not comparable:
          model: ResNet50-v1b in BASE, ResNet-18 in TEST
          precision: fp32 in BASE, bf16 in TEST
        compare results with the same settings; to compare these anyway: ringmark diff DIR/first DIR/first --force
    "]]
    .assert_eq(&without_folder(&stderr));
    assert_eq!(diff(&base.path(), &other.path(), &["--force"]).0, Some(0));
    let larger = one(record("1n1g/rn50_b8_fp32", 1, 0.5));
    let (status, _, stderr) = diff(&base.path(), &larger.path(), &[]);
    assert_eq!(status, Some(2));
    expect![[r"
        error: no case in common: BASE has 1n1g b4; TEST has 1n1g b8
    "]]
    .assert_eq(&stderr);
}

/// Networks of MXNet's page are in one table, regardless of their image size, with the published results below it.
#[test]
fn published_mxnet_figures_are_printed_below() {
    let folder = Folder::new();
    folder.score(&record("1n1g/mxnet-resnet-152_b32_fp32", 1, 0.5));
    folder.score(&record("1n1g/mxnet-inception-v3_b32_fp32", 1, 0.25));
    let (status, stdout, stderr) = folder.ringmark("extract", &["--published"]);
    assert_eq!(status, Some(0), "{stderr}");
    assert_eq!(stdout.matches("Inference, fp32").count(), 1, "{stdout}");
    expect![
        "224 to 299 pixels, depending on the network, nhwc, folded, 10 measured + 5 warm-up passes, 1 run per figure"
    ]
    .assert_eq(&lines_with(&stdout, "224 to 299"));
    assert_eq!(stdout.matches("Published: images/s on ").count(), 4, "{stdout}");
    let rows: Vec<&str> = stdout.lines().filter(|line| line.starts_with("MXNet ResNet-152 v2")).collect();
    assert!(rows.last().is_some_and(|row| row.ends_with("58.99  102.95  168.91  210.10  270.07  294.17")), "{rows:?}");
    assert!(!stdout.contains("VGG"), "{stdout}");
    // The printed JSON contains them with their source; the file contains only measurements.
    let (_, json, _) = folder.ringmark("extract", &["--published", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let published = json["published"].as_array().expect("rates");
    assert_eq!(published.len(), 2 * 4 * 6);
    let last = &published[published.len() - 1];
    assert_eq!((&last["model"], &last["batch_size"]), (&"mxnet-resnet-152".into(), &32.into()));
    assert_eq!((&last["units_per_second"], &last["hardware"]), (&294.17.into(), &"Tesla P100".into()));
    assert!(last["source"].as_str().is_some_and(|source| source.contains("perf.md")), "{last}");
    let (_, markdown, _) = folder.ringmark("extract", &["--published", "--format", "markdown"]);
    assert_eq!(markdown.matches("## Published: images/s on ").count(), 4, "{markdown}");
    let result = folder.result();
    assert_eq!(result["published"], Value::Null);
    let rows = result["rows"].as_array().expect("rows");
    let sizes: Vec<&Value> = rows.iter().map(|row| &row["settings"]["image_size"]).collect();
    assert_eq!(sizes, [224, 299]);
}

//! Tests of speed and memory by batch size, for training and scoring: output of `ringmark report` and `ringmark
//! extract`, and appearance in a real browser.

use std::fs;

use expect_test::expect;
use ringmark::read::report::{ReportFormat, document, read, render};
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::{BenchmarkKind, RunProfile};
use ringmark_core::dimension::{BatchShape, Bytes, Dtype, Model, Seconds};
use ringmark_core::host::MemoryShortage;
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use serde_json::Value;

use crate::support::browser::Browser;
use crate::support::golden::assert_golden;
use crate::support::report::{DESKTOP, LOOK, PHONE, assert_well_formed, count_drawn, page, path, report, shown};
use crate::support::runs::{self, Folder};
use crate::support::sandbox::{ringmark, run, succeeds};
use crate::support::scores::{self, Score};

/// Creates a valid training run whose memory grows with its batch.
fn trained(model: Model, batch_size: u32, case: &str, number: u32) -> RunRecord {
    let slower = if model == Model::Resnet18 { 0.25 } else { 1.0 };
    let step = 0.1 * slower * f64::from(batch_size).powf(0.75) * (1.0 + 0.01 * f64::from(number));
    let mut run = runs::record(case, number, step);
    (run.header.config.model, run.header.config.batch_size) = (model, batch_size);
    let end = run.end.as_mut().expect("an end");
    let peak = Bytes(500_000_000 + 40_000_000 * u64::from(batch_size));
    end.peak_memory.iter_mut().enumerate().for_each(|(rank, it)| *it = Bytes(peak.0 - 1_000_000 * rank as u64));
    run
}

/// Creates two networks with three batch sizes and two runs each on one rank; the largest batch of one ran out of
/// memory.
fn training_folder() -> Folder {
    let folder = Folder::new();
    for number in [1, 2] {
        for batch_size in [4, 8, 16] {
            folder.run(&trained(Model::Resnet18, batch_size, "1n1g", number));
            if batch_size < 16 {
                folder.run(&trained(Model::Resnet50V1b, batch_size, "1n1g", number));
            }
        }
    }
    let memory = MemoryShortage { taken: Bytes(15_100_000_000), total: Bytes(16_000_000_000) };
    folder.write(
        "1n1g/rn50_b16_fp32_1.log",
        format!("ringmark: run failed: {}\n", memory.at_batch(BatchShape::per_rank(16))),
    );
    let command = ["ringmark", "sweep", "--resume"].map(str::to_owned).into();
    let mut manifest = Manifest::new(BenchmarkKind::Train, command, Conditions::default());
    for (network, batch_size) in [("resnet18", 4), ("resnet18", 8), ("resnet18", 16), ("rn50", 4), ("rn50", 8)] {
        for number in [1, 2] {
            let name = format!("1n1g/{network}_b{batch_size}_fp32_{number}.log");
            manifest.run(name.parse().expect("the name of a run")).state = RunState::Finished;
        }
    }
    let too_large = "1n1g/rn50_b16_fp32_1.log".parse().expect("the name of a run");
    manifest.run(too_large).state = RunState::OutOfMemory { memory };
    manifest.write(&folder.path()).expect("a writable folder");
    folder
}

/// Returns the text from this word on.
fn from<'a>(text: &'a str, word: &str) -> &'a str {
    &text[text.find(word).unwrap_or_else(|| panic!("no {word:?} in {text}"))..]
}

#[test]
fn extract_adds_a_table_if_a_network_has_several_batch_sizes() {
    let folder = training_folder();
    let stdout = succeeds(ringmark("extract").arg(folder.path()).arg("--out").arg(folder.path()));
    assert_golden("batch_sizes/training.txt", from(&stdout, "Training by batch size"));
    let markdown = fs::read_to_string(folder.path().join("first_result.md")).expect("written");
    assert_golden("batch_sizes/training.md", from(&markdown, "## Training by batch size"));
    stdout.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));

    // The maximum over ranks and runs, in bytes.
    let json = fs::read_to_string(folder.path().join("first_result.json")).expect("written");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let peaks: Vec<&Value> =
        json["rows"].as_array().expect("rows").iter().map(|row| &row["peak_memory_bytes"]).collect();
    let expected = [660_000_000_u64, 820_000_000].map(Value::from);
    assert_eq!(peaks[..2], [&expected[0], &expected[1]], "{peaks:?}");
    let shortage = &json["out_of_memory"][0];
    assert_eq!((&shortage["model"], &shortage["batch_size"]), (&"resnet50_v1b".into(), &16.into()), "{shortage}");
    assert_eq!(shortage["memory"]["total"], 16_000_000_000_u64, "{shortage}");

    let one_each = Folder::new();
    one_each.run(&trained(Model::Resnet18, 4, "1n1g", 1));
    one_each.run(&trained(Model::Resnet50V1b, 8, "1n1g", 1));
    let (_, stdout, _) = run(ringmark("extract").arg(one_each.path()));
    assert!(!stdout.contains("by batch size"), "{stdout}");
}

#[test]
fn scoring_and_training_reports_contain_the_batch_size_table() {
    let scored = scores::small_folder();
    let trained = training_folder();
    for (name, folder) in [("scored", &scored), ("trained", &trained)] {
        for format in ["table", "markdown"] {
            let (code, stdout, stderr) = report(&[path(&folder.path()), "--format", format, "--published"]);
            assert_eq!(code, 0, "{stderr}");
            let (end, ending) = if format == "table" { ("\nEnvironment\n", "txt") } else { ("\n## Environment", "md") };
            let body = &stdout[..stdout.find(end).expect("the last section")];
            assert_golden(&format!("batch_sizes/{name}.{ending}"), body);
        }
    }
}

#[test]
fn chart_lines_are_labeled_and_omit_batches_out_of_memory() {
    let page = page(&training_folder().path());
    let charts = from(&page, "<h3>Speed by batch size, 1n1g").split("</article>").next().expect("its block");
    // Speed and memory of two networks, with different markers.
    for (style, points) in [("s0", 2), ("s1", 3)] {
        assert_eq!(count_drawn(charts, &format!("<path class=\"line {style} ")), 2, "{charts}");
        assert_eq!(count_drawn(charts, &format!("<path class=\"dot {style}\"")), 2 * points, "{charts}");
        assert_eq!(
            count_drawn(charts, &format!("<circle class=\"run {style}\"")),
            2 * points,
            "runs have a speed each"
        );
    }
    for name in ["ResNet50-v1b", "ResNet-18"] {
        assert_eq!(count_drawn(charts, &format!(">{name}</text>")), 2, "{charts}");
        assert!(!charts.contains(&format!("</svg> {name}</li>")), "a name stands at its line or in the key");
    }
    for text in [
        "ResNet-18, fp32, 1n1g, batch size 16, median of 2 runs: ",
        "ResNet50-v1b, fp32, 1n1g, batch size 8, run 2: ",
        "batch size 16: 1.14 GB",
        ">out of memory</td>",
    ] {
        assert!(charts.contains(text), "no {text:?} in {charts}");
    }
    assert!(!charts.contains("NaN") && !charts.contains("inf"), "{charts}");
}

#[test]
fn up_to_two_batch_sizes_are_drawn_as_bars() {
    for (sizes, bars, lines) in [(&[8][..], 2, 0), (&[4, 8], 4, 0), (&[4, 8, 16], 0, 2)] {
        let folder = Folder::new();
        for size in sizes {
            folder.score(&scores::record(&format!("1n1g/resnet18_b{size}_fp32"), 1, 0.01 * f64::from(*size)));
            folder.score(&scores::record(&format!("1n1g/resnet18_b{size}_bf16"), 1, 0.02 * f64::from(*size)));
        }
        let page = page(&folder.path());
        let svg = shown(&folder.path(), ReportFormat::Svg);
        assert_well_formed(&svg);
        // The page shows speed and memory; the picture shows speed.
        let of = |text: &str, tag: &str| count_drawn(text, tag);
        assert_eq!(of(&page, "<rect class=\"bar s0\""), 2 * bars, "{sizes:?}");
        assert_eq!(of(&page, "<path class=\"line s0 "), 2 * lines, "{sizes:?}");
        let in_picture =
            [svg.matches("<rect class=\"bar s0\"").count(), svg.matches("<path class=\"line s0 d").count()];
        // Legend samples in the picture are drawn like the bars and lines.
        assert!(in_picture[0] >= bars && in_picture[1] >= lines && svg.contains("Speed by batch size: first"));
        assert!(!svg.contains(">GB<") && !svg.contains("GB</text>"), "{svg}");
    }
}

#[test]
fn many_lines_are_split_into_a_chart_per_precision() {
    let folder = Folder::new();
    for model in ["alexnet", "vgg11", "resnet18", "resnet34", "rn50"] {
        for dtype in ["fp32", "bf16"] {
            for size in [1, 2, 4] {
                let point = format!("1n1g/{model}_b{size}_{dtype}");
                folder.score(&scores::record(&point, 1, 0.1 * f64::from(size)));
            }
        }
    }
    let page = page(&folder.path());
    for title in ["Speed by batch size", "Peak memory by batch size"] {
        for dtype in ["fp32", "bf16"] {
            assert_eq!(page.matches(&format!("<figcaption>{title}, {dtype}<")).count(), 1, "{title}, {dtype}");
        }
    }
    assert_eq!(count_drawn(&page, ">AlexNet</text>"), 4, "the title says the precision");
}

#[test]
fn quick_profile_is_gray_in_speed_charts() {
    let folder = Folder::new();
    for size in [1, 2, 4] {
        let mut first_look = scores::record(&format!("1n1g/rn50_b{size}_fp32"), 1, 0.1);
        first_look.profile = RunProfile::Quick;
        folder.score(&first_look);
    }
    let page = page(&folder.path());
    let [gray, colored] = ["doubtful", "s0"].map(|class| count_drawn(&page, &format!("<path class=\"dot {class}\"")));
    assert_eq!((gray, colored), (3, 3), "speed is gray, memory is not");
    for text in ["Unreliable", "quick profile, a first look", "images/s, unreliable<", "<td>(", "(quick)"] {
        assert!(page.contains(text), "no {text:?} in {page}");
    }
}

#[test]
fn report_shows_training_before_scoring() {
    let trained = training_folder();
    let scored = scores::small_folder();
    let results = read(&[trained.path(), scored.path()], None).expect("they can be read");
    let document = document(&results, false, &[]);
    let titles: Vec<&str> = document.sections.iter().map(|section| section.title.as_str()).collect();
    let run = |model: &str, size: u32| format!("{model}, fp32, batch size {size} per rank, 64 pixels, CPU");
    expect!["Training by batch size, 64 pixels, CPU"].assert_eq(titles[0]);
    assert_eq!(titles[1], run("ResNet50-v1b", 4));
    assert_eq!(titles[titles.len() - 2..], ["Inference, CPU", "Environment"], "{titles:?}");
    // One summary for all batch sizes of a result.
    let names: Vec<&str> = document.headlines.iter().map(|headline| headline.what.as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].starts_with("Training by batch size, CPU: ") && names[1].starts_with("Inference, CPU: "));
    let conclusion = document.headlines[0].conclusion.as_deref().expect("a sentence");
    expect!["batch size 16 compared with 4: 1.41x the speed (ResNet-18, fp32, 1n1g)"].assert_eq(conclusion);
    let json = |published: &[&str]| -> Value {
        let (_, json, _) = report(&[&[path(&scored.path()), "--json"], published].concat());
        serde_json::from_str(&json).expect("JSON")
    };
    let rows = &json(&[])["results"][0];
    assert_eq!(rows["scoring"].as_array().map(Vec::len), Some(18));
    assert_eq!((&rows["rows"], &rows["published_scores"]), (&serde_json::json!([]), &Value::Null));
    assert_eq!(rows["scoring"][2]["peak_memory_bytes"], 1_160_000_000);
}

#[test]
fn contents_are_folded_if_there_are_many_sections() {
    for (sizes, is_folded) in [(&[4, 8][..], false), (&[1, 2, 4, 8, 16, 32, 64], true)] {
        let folder = Folder::new();
        sizes.iter().for_each(|size| folder.run(&trained(Model::Resnet18, *size, "1n1g", 1)));
        let page = page(&folder.path());
        assert_eq!(page.contains("<summary>Contents, "), is_folded, "{sizes:?}");
        assert_eq!(page.matches("<a href=\"#section-1\"").count(), 1, "{sizes:?}");
    }
}

#[test]
fn scaling_sections_precede_batch_sizes() {
    let folder = Folder::new();
    for case in ["1n1g", "1n2g"] {
        for size in [4, 8] {
            folder.run(&trained(Model::Resnet18, size, case, 1));
        }
    }
    let results = read(&[folder.path()], None).expect("it can be read");
    let document = document(&results, false, &[]);
    let titles: Vec<&str> = document.sections.iter().map(|section| section.title.as_str()).collect();
    assert!(titles[0].starts_with("ResNet-18, fp32, batch size 4") && titles[2].starts_with("Training by batch size"));
    let blocks: Vec<&str> = document.sections[2].blocks.iter().map(|block| block.title.as_str()).collect();
    assert_eq!(blocks, ["Speed by batch size, 1n1g", "Speed by batch size, 1n2g"]);
    assert_eq!(document.headlines.len(), 2, "one a batch size");
    assert!(render(&document, ReportFormat::Svg, 100).contains("Throughput: first"));
}

#[test]
fn conditions_and_results_have_separate_lines() {
    let folder = Folder::new();
    let other = Folder::new();
    for size in [1, 2, 4] {
        let mut record = scores::record(&format!("1n1g/rn50_b{size}_fp32"), 1, 0.1);
        folder.score(&record);
        record.config.fold = ringmark_core::benchmark::exchange::Switch::Off;
        (record.run, record.config.dtype) = (2, Dtype::Fp32);
        record.seconds.iter_mut().flatten().for_each(|pass| *pass = Seconds(2.0 * pass.0));
        folder.score(&record);
        other.score(&scores::record(&format!("1n1g/rn50_b{size}_fp32"), 1, 0.3));
    }
    let page = page(&folder.path());
    for text in ["first (fold=on)", "first (fold=off)"] {
        assert!(page.contains(text), "no {text:?} in {page}");
    }
    assert_eq!(count_drawn(&page, "<path class=\"line "), 4, "two lines of speed, two of memory");
    let results = read(&[folder.path(), other.path()], None).expect("they can be read");
    let page = render(&document(&results, false, &[]), ReportFormat::Html, 100);
    let of = |color: &str| count_drawn(&page, &format!("<path class=\"line {color} "));
    assert_eq!((of("s0"), of("s1"), of("s2")), (4, 2, 0), "a result has one color");
}

#[test]
fn batch_size_charts_fit_desktop_and_phone() {
    let Some(browser) = Browser::find() else { return };
    // The longest names, and two of MXNet's page with published results.
    let scored = Folder::new();
    for (model, pass) in [("mxnet-resnet-152", 0.5), ("mxnet-inception-v3", 0.25), ("resnext101-32x8d", 0.6)] {
        for size in [1, 2, 4, 8, 16, 32] {
            let pass = pass * f64::from(size).powf(0.75);
            (1..=2).for_each(|run| scored.score(&scores::record(&format!("1n1g/{model}_b{size}_fp32"), run, pass)));
        }
    }
    fs::write(browser.folder.path().join("scored.html"), page(&scored.path())).expect("written");
    fs::write(browser.folder.path().join("trained.html"), page(&training_folder().path())).expect("written");
    let widths = [("scored.html", DESKTOP), ("trained.html", DESKTOP), ("scored.html", PHONE), ("trained.html", PHONE)];
    browser.frames("frames.html", &widths, LOOK);
    let output_text = browser.evaluate("frames.html", widths.iter().map(|(_, width)| width).sum());
    for (frame, name) in output_text.as_array().expect("a list").iter().zip(widths) {
        assert_eq!((&frame["width"], &frame["room"]), (&name.1.into(), &name.1.into()), "{name:?}: {frame}");
        assert_eq!(frame["clipped"], serde_json::json!([]), "{name:?}");
        assert_eq!((&frame["shown"], &frame["empty"]), (&true.into(), &0.into()), "{name:?}: {frame}");
        assert!(frame["tip"].as_str().is_some_and(|tip| tip.contains("images/s")), "{name:?}: {frame}");
    }
}

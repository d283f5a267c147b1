//! Tests of `ringmark report`: its contents, its robustness, and its appearance in a real browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect;
use ringmark::read::report::{ReportFormat, read, render};
use ringmark::read::show::page::content;
use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::bandwidth::{BandwidthConfig, BandwidthRecord, MemoryLimit, MessageResult, Timing};
use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::benchmark::kv_store::KvStoreConfig;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::{BenchmarkKind, RunProfile};
use ringmark_core::dimension::{BackendName, Bytes, GigabytesPerSecond, KvStore, Model, Phase, Seconds};
use ringmark_core::host::{HostUse, RankUse};
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use ringmark_core::trace::clock::{ClockMethod, ClockReading, RankClock};
use ringmark_core::trace::{Lane, RankTrace, Span, Timeline, chrome};
use ringmark_core::untrusted_text::is_unprintable;
use serde_json::Value;

use crate::support::browser::{Browser, HEIGHT, Picture};
use crate::support::report::{DESKTOP, LOOK, PHONE, assert_well_formed, count_drawn, page, path, report, shown};
use crate::support::runs::{Folder, record, rows_by_case};
use crate::support::temporary_folder::without_folder;

fn committed(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(folder)
}

/// Creates two cases of two runs, one of which waits for a slow rank.
fn small_folder() -> Folder {
    let folder = Folder::new();
    for (case, step) in [("1n1g", 0.5), ("1n2g", 0.625)] {
        folder.run(&record(case, 1, step));
        folder.run(&record(case, 2, 1.01 * step));
    }
    folder
}

/// Creates two runs of each of these cases.
fn folder_of(cases: &[&str]) -> Folder {
    let folder = Folder::new();
    for case in cases {
        folder.run(&record(case, 1, 0.5));
        folder.run(&record(case, 2, 0.505));
    }
    folder
}

/// Creates a bandwidth record of two ranks.
fn bandwidth(device: &RunRecord) -> Vec<u8> {
    bandwidth_of(device, &[(8, 1e-6), (1 << 20, 1e-3)], None)
}

/// Creates the record from sizes and out-of-place seconds; in-place calls take half as long. `limit` is the memory
/// limit in GB/s.
fn bandwidth_of(device: &RunRecord, messages: &[(u64, f64)], limit: Option<f64>) -> Vec<u8> {
    let timing = |seconds: f64| Timing {
        seconds: vec![vec![Seconds(seconds)]; 2],
        in_a_row: Vec::new(),
        wrong: Some(0),
        error: vec![0.0],
    };
    let message = |(bytes, seconds): (u64, f64)| MessageResult {
        bytes: Bytes(bytes),
        count: bytes / 4,
        element: "float".to_owned(),
        buckets: vec![Bytes(bytes)],
        out_of_place: Some(timing(seconds)),
        in_place: Some(timing(seconds / 2.0)),
    };
    let header = &device.header;
    let mut record = BandwidthRecord::new(
        Seconds(1.7e9),
        BandwidthConfig::default(),
        header.environment.clone(),
        header.ranks.clone(),
    );
    record.backend = BackendName::Mpi;
    record.results = messages.iter().copied().map(message).collect();
    let memory = |busbw| MemoryLimit {
        rate: GigabytesPerSecond(4.0 * busbw),
        by: "copy".to_owned(),
        busbw: GigabytesPerSecond(busbw),
        array: Bytes(0),
        is_in_cache: false,
    };
    record.memory = limit.map(memory);
    let mut bytes = Vec::new();
    record.write(&mut bytes).expect("memory takes it");
    bytes
}

#[test]
fn file_name_selects_the_format() {
    let folder = small_folder();
    let out = |name: &str| folder.parent.path().join(name);
    for (name, begins) in [("a.html", "<!DOCTYPE html>"), ("a.md", "# first\n"), ("a.txt", "ResNet50-v1b, fp32")] {
        let (status, stdout, stderr) = report(&[path(&folder.path()), "-o", path(&out(name))]);
        assert_eq!((status, stdout.as_str()), (0, ""), "{stderr}");
        let text = fs::read_to_string(out(name)).expect("it was written");
        assert!(text.starts_with(begins), "{text}");
        for figure in
            ["1n2g", "12.19", "1.60", "80.0", "1n2g: 1 node of 2 ranks", "Scaling loss of 1n2g", "all 4 runs count"]
        {
            assert!(text.contains(figure), "{name} lacks {figure}: {text}");
        }
    }
    let (status, stdout, _) = report(&[path(&folder.path())]);
    assert_eq!(status, 0);
    assert!(stdout.contains("█") && stdout.starts_with("ResNet50-v1b, fp32"), "{stdout}");
    let (_, stdout, _) = report(&[path(&folder.path()), "--format", "md"]);
    assert!(stdout.contains("| 1n2g |"), "{stdout}");
}

#[test]
fn networks_never_share_a_chart() {
    let folder = small_folder();
    for (case, step) in [("1n1g", 0.125), ("1n2g", 0.25)] {
        let mut other = record(case, 1, step);
        other.header.config.model = Model::Resnet18;
        folder.run(&other);
    }
    let results = read(&[folder.path()], None).expect("it can be read");
    let document = content::document(&results, false, &[]);
    let titles: Vec<&str> = document.sections.iter().map(|section| section.title.as_str()).collect();
    let title = |model: &str| format!("{model}, fp32, batch size 4 per rank, 64 pixels, CPU");
    assert_eq!(titles, [&title("ResNet50-v1b"), &title("ResNet-18"), "Environment"]);
    let svg = render(&document, ReportFormat::Svg, 100);
    assert_well_formed(&svg);
    assert!(svg.contains("ResNet-18, fp32") && svg.contains("ResNet50-v1b, fp32"), "{svg}");
}

#[test]
fn svg_is_self_contained() {
    let folder = small_folder();
    folder.write("1n2g/bandwidth.json", bandwidth(&record("1n2g", 1, 0.5)));
    let out = folder.parent.path().join("scaling.svg");
    let (status, stdout, stderr) = report(&[path(&folder.path()), "-o", path(&out)]);
    assert_eq!((status, stdout.as_str()), (0, ""), "{stderr}");
    let svg = fs::read_to_string(&out).expect("it was written");
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.contains("prefers-color-scheme: dark"));
    assert!(!svg.contains("<script") && !svg.contains("href") && !svg.contains("url(http"), "{svg}");
    assert_well_formed(&svg);
    for figure in ["Throughput: first", "images/s", "1n2g", "Efficiency of 1n2g: 80.0 %", "ideal"] {
        assert!(svg.contains(figure), "lacks {figure}: {svg}");
    }
    assert!(!svg.contains("GB/s"), "all-reduce alone is not what a sweep is about");
    let (_, printed, _) = report(&[path(&folder.path()), "--format", "svg"]);
    assert_eq!(printed, svg);
    // The page contains the same drawing.
    let page = page(&folder.path());
    let drawing = svg.split_once("<rect class=\"bar s0\"").and_then(|(_, rest)| rest.split_once("</g>"));
    assert!(page.contains(drawing.expect("a bar").0));

    assert!(!svg.contains("Unreliable"), "{svg}");
    let quick = Folder::new();
    for case in ["1n1g", "1n2g"] {
        let mut run = record(case, 1, 0.5);
        run.header.profile = RunProfile::Quick;
        quick.run(&run);
    }
    let svg = shown(&quick.path(), ReportFormat::Svg);
    for text in [">Unreliable: quick profile", "Efficiency of 1n2g: (100.0) %"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }

    let bandwidth_alone = Folder::new();
    bandwidth_alone.write("1n2g/bandwidth.json", bandwidth(&record("1n2g", 1, 0.5)));
    let (status, svg, stderr) = report(&[path(&bandwidth_alone.path()), "--format", "svg"]);
    assert_eq!(status, 0, "{stderr}");
    assert!(svg.contains("GB/s"), "{svg}");
    assert_well_formed(&svg);
}

#[test]
fn first_screen_shows_judgment_summary_and_source() {
    let folder = Folder::new();
    for run in 1..=3 {
        folder.run(&record("1n1g", run, 0.5));
        folder.run(&record("1n2g", run, 0.6));
    }
    let out = folder.parent.path().join("page.html");
    let link = ["--link", "job log=https://cluster/job/7?a=1&b", "--link", "notes=notes.html"];
    let (status, _, stderr) = report(&[&[path(&folder.path()), "-o", path(&out)], &link[..]].concat());
    assert_eq!(status, 0, "{stderr}");
    let page = fs::read_to_string(&out).expect("written");
    let place = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}: {page}"));
    let in_order = [
        "started 2023-11-14 22:13:20 UTC \u{b7} host a",
        "<a href=\"https://cluster/job/7?a=1&amp;b\" rel=\"noreferrer\">job log</a>",
        "<strong>Sound</strong>",
        "<p class=\"conclusion\">1n2g: speedup 1.67 of 2, efficiency 83 %; most of the loss is compute",
        "Speed of 1n2g",
        "<a href=\"#section-1-1\">Throughput, speedup and efficiency</a>",
        "<article id=\"section-1-1\">",
        "<summary>How to read</summary>",
    ];
    let places: Vec<usize> = in_order.iter().map(|what| place(what)).collect();
    assert!(places.is_sorted(), "{places:?}");
    for bad in ["x", "=https://a", "log=javascript:alert(1)", "log=data:text/html,x", "log="] {
        assert_eq!(report(&[path(&folder.path()), "--link", bad]).0, 2, "{bad}");
    }
}

#[test]
fn two_cases_are_bars_and_more_are_lines() {
    // Charts of throughput, speedup and efficiency; a single case has only throughput, and its runs in order as a line.
    for (cases, bars, lines) in [(&["1n1g", "1n2g"][..], 6, 0), (&["1n2g"], 1, 1), (&["1n1g", "1n2g", "1n4g"], 0, 3)] {
        let folder = folder_of(cases);
        // An invalid run has no dot.
        folder.write("1n2g/rn50_b4_fp32_3.log", "nothing of a run\n");
        let page = page(&folder.path());
        let of = |tag: &str| count_drawn(&page, tag);
        assert_eq!((of("<rect class=\"bar s0\""), of("<path class=\"line s0 d0\"")), (bars, lines), "{cases:?}");
        assert_eq!(of("<circle class=\"run s0\""), if bars > 0 { 2 * bars } else { 2 * 3 * lines }, "{cases:?}");
        assert_eq!(of("class=\"ideal across s0\""), bars / 2, "the base is its own ideal: {cases:?}");
        let svg = shown(&folder.path(), ReportFormat::Svg);
        assert_well_formed(&svg);
        assert_eq!(svg.contains("<rect class=\"bar s0\""), bars > 0, "{cases:?}");
        for text in ["1n2g, median of 2 runs", "1n2g, run 2: "] {
            assert!(page.contains(text) && svg.contains(text), "{text}: {cases:?}");
        }
    }
}

#[test]
fn several_results_have_bars_side_by_side() {
    let folders = [folder_of(&["1n1g", "1n2g"]), folder_of(&["1n1g", "1n4g"])];
    let results = read(&folders.each_ref().map(Folder::path), None).expect("they can be read");
    let page = render(&content::document(&results, false, &[]), ReportFormat::Html, 100);
    let [one, other] = ["s0", "s1"].map(|color| count_drawn(&page, &format!("<rect class=\"bar {color}\"")));
    assert_eq!((one, other, count_drawn(&page, "<path class=\"line ")), (6, 6, 0));
    for case in ["1n1g", "1n2g", "1n4g"] {
        assert_eq!(count_drawn(&page, &format!(">{case}</text><text class=\"tick middle faint\"")), 3, "{case}");
    }
}

#[test]
fn unreliable_figures_are_gray_in_bars_and_lines() {
    for (cases, marks) in
        [(&["1n1g", "1n2g"][..], "<rect class=\"bar "), (&["1n1g", "1n2g", "1n4g"], "<path class=\"dot ")]
    {
        let folder = Folder::new();
        for case in cases {
            let mut first_look = record(case, 1, 0.5);
            first_look.header.profile = RunProfile::Quick;
            folder.run(&first_look);
        }
        let page = page(&folder.path());
        let [gray, colored] = ["doubtful\"", "s0\""].map(|class| count_drawn(&page, &format!("{marks}{class}")));
        assert_eq!((gray, colored), (3 * cases.len(), 0), "{cases:?}");
        assert!(page.contains("</svg> unreliable") && page.contains("images/s, unreliable<"), "{cases:?}");
    }
}

/// Creates two networks with two cases of a sweep, on hosts with other load and with different runs.
fn disturbed_folder() -> Folder {
    let folder = Folder::new();
    let sweep = ["ringmark", "sweep", "--out", "first", "--resume"].map(str::to_owned).to_vec();
    let mut manifest = Manifest::new(BenchmarkKind::Train, sweep, Conditions::default());
    for (model, short) in [(Model::Resnet50V1b, "rn50"), (Model::Resnet18, "resnet18")] {
        for (case, run, step) in [("1n1g", 1, 0.5), ("1n1g", 2, 0.8), ("1n2g", 1, 0.6), ("1n2g", 2, 0.9)] {
            let mut disturbed = record(case, run, step);
            disturbed.header.config.model = model;
            let used = HostUse { host: "a".to_owned(), cores: 2, elapsed: Seconds(10.0), ..HostUse::default() };
            let end = disturbed.end.as_mut().expect("sound");
            end.host_use = vec![HostUse { busy: Seconds(16.0), ..used }];
            end.rank_use = disturbed.header.ranks.iter().map(|_| RankUse::default()).collect();
            folder.run(&disturbed);
            let name = format!("{case}/{short}_b4_fp32_{run}.log").parse().expect("a name");
            manifest.run(name).state = RunState::Finished;
        }
    }
    manifest.write(&folder.path()).expect("written");
    folder
}

#[test]
fn unreliable_result_shows_one_cause_and_folded_lists() {
    let page = page(&disturbed_folder().path());
    let cards: Vec<&str> =
        page.split("<p class=\"trust not\">").skip(1).map(|rest| rest.split("</p>").next().expect("its end")).collect();
    assert_eq!(cards.len(), 2, "a network each");
    let head = page.split("host a \u{b7} ").nth(1).and_then(|rest| rest.split('<').next()).expect("a head");
    assert!(head.ends_with(" \u{b7} ringmark sweep"), "the folder depends on the reader: {head}");
    for card in cards {
        assert!(card.ends_with("<strong>Unreliable</strong><span>: busy machine</span>"), "{card}");
    }
    let list = page.split("<details class=\"findings grave\">").nth(1).expect("a folded list");
    let list = list.split("</details>").next().expect("its end");
    assert!(list.starts_with("<summary>Unreliable figures (3)</summary>"), "{list}");
    assert_eq!(list.matches("<li>").count(), 3, "a line for each reason, whatever the number of cases: {list}");
    assert_eq!(page.matches("--repeat 1n1g,1n2g").count(), 1, "{list}");
    assert!(!page.contains("<details class=\"findings\" open"), "{page}");
}

#[test]
fn bars_of_unreliable_figures_are_pale() {
    let page = page(&disturbed_folder().path());
    assert_eq!(count_drawn(&page, "<rect class=\"bar s0\""), 0);
    assert!(
        count_drawn(&page, "<rect class=\"bar doubtful\"") > 0 && count_drawn(&page, "<g class=\"unreliable\">") > 0,
        "{page}"
    );
    let rows = page.split("<tr").skip(1).filter(|row| row.contains("<td class=\"bar\"><i"));
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() > 8 && rows.iter().all(|row| row.starts_with(" class=\"doubtful\"")), "{rows:?}");
}

#[test]
fn missing_published_figures_are_noted() {
    let folder = small_folder();
    let line = "<p class=\"note\">No published figures match. Published figures for GPUs: resnet50_v1b fp32 b128, resnet50_v1b fp16 b256";
    let page = page(&folder.path());
    let block = page.split("<h3>Throughput, speedup and efficiency</h3>").nth(1).expect("the block");
    assert!(block.starts_with(line), "{block}");
    let out = folder.parent.path().join("page.html");
    assert_eq!(report(&[path(&folder.path()), "-o", path(&out)]).0, 0);
    assert!(!fs::read_to_string(&out).expect("written").contains("No published figures"));
}

#[test]
fn bandwidth_of_a_busy_host_is_gray() {
    for (share_of_others, is_gray) in [(0.05, false), (0.6, true)] {
        let folder = small_folder();
        let mut busy: BandwidthRecord =
            serde_json::from_slice(&bandwidth(&record("1n2g", 1, 0.5))).expect("it was written");
        let host = busy.ranks[0].host.clone();
        let used = HostUse { host, cores: 2, elapsed: Seconds(10.0), ..HostUse::default() };
        busy.host_use = vec![HostUse { busy: Seconds(20.0 * share_of_others), ..used }];
        busy.rank_use = vec![RankUse::default(); 2];
        let mut bytes = Vec::new();
        busy.write(&mut bytes).expect("memory takes it");
        folder.write("1n2g/bandwidth.json", bytes);
        let page = page(&folder.path());
        // Two charts with two lines of two sizes, and the table rows.
        assert_eq!(
            count_drawn(&page, "<path class=\"dot doubtful\""),
            if is_gray { 8 } else { 0 },
            "{share_of_others}"
        );
        assert_eq!(page.matches("<tr class=\"doubtful\"").count(), if is_gray { 4 } else { 0 }, "{share_of_others}");
    }
}

#[test]
fn only_sizes_in_cache_are_shaded() {
    // Out of place 0.8, 8.0, 8.0, 2.0 GB/s; in place twice as much.
    let messages = [(8 << 10, 1.024e-5), (64 << 10, 8.192e-6), (1 << 20, 1.31072e-4), (16 << 20, 8.388608e-3)];
    for (limit, expected) in [
        (None, &[][..]),
        (Some(0.0), &[]),
        (Some(1000.0), &[]),
        (Some(10.0), &[("64 KiB", "1n2g, in-place"), ("1 MiB", "1n2g, in-place")]),
        (
            Some(3.0),
            &[
                ("64 KiB", "1n2g, out-of-place; 1n2g, in-place"),
                ("1 MiB", "1n2g, out-of-place; 1n2g, in-place"),
                ("16 MiB", "1n2g, in-place"),
            ],
        ),
    ] {
        let folder = small_folder();
        folder.write("1n2g/bandwidth.json", bandwidth_of(&record("1n2g", 1, 0.5), &messages, limit));
        let page = page(&folder.path());
        let tips = page.split("<rect class=\"shade\"").skip(1).map(|rest| {
            let title = rest.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
            title.expect("what is shown under the pointer").0.to_owned()
        });
        let tip = |(size, lines): &(&str, &str)| format!("{size} is in cache: above the memory limit ({lines})");
        assert_eq!(tips.collect::<Vec<_>>(), expected.iter().map(tip).collect::<Vec<_>>(), "{limit:?}");
        let label = "</svg> in cache: above the memory limit</li>";
        assert_eq!(page.matches(label).count(), usize::from(!expected.is_empty()), "{limit:?}");
    }
}

#[test]
fn json_equals_extract() {
    let folder = small_folder();
    folder.write("1n2g/bandwidth.json", bandwidth(&record("1n2g", 1, 0.5)));
    let (status, stdout, _) = report(&[path(&folder.path()), "--json"]);
    assert_eq!(status, 0);
    let json: Value = serde_json::from_str(&stdout).expect("JSON alone");
    let result = &json["results"][0];
    assert_eq!(result["name"], "first");
    assert_eq!(rows_by_case(result)["rn50"]["1n2g"]["dlperf"]["median_speed"], 12.19);
    let message = &result["bandwidth"][0]["messages"][2];
    assert_eq!((&message["bytes"], &message["side"]), (&Value::from(1 << 20), &Value::from("out-of-place")));
    assert!((message["busbw_gb_per_s"].as_f64().expect("a rate") - 1.048576).abs() < 1e-9);
    let file = folder.parent.path().join("a.json");
    let out = folder.parent.path().join("a.html");
    assert_eq!(report(&[path(&folder.path()), "-o", path(&out), "--json", path(&file)]).0, 0);
    assert_eq!(fs::read_to_string(file).expect("written"), stdout);
    assert!(out.is_file());
}

/// Bandwidth of a kv-store is not that of an all-reduce, and is not drawn as such.
#[test]
fn bandwidth_of_a_kv_store_is_labeled() {
    let folder = Folder::new();
    for (name, kv_store, servers) in [("1n2g", KvStore::DistSync, Some(2)), ("2n1g", KvStore::Ring, None)] {
        let mut made: BandwidthRecord =
            serde_json::from_slice(&bandwidth(&record(name, 1, 0.5))).expect("it was written");
        made.config.messages = Messages::Gradients(Model::Resnet50V1b);
        made.config.kv_store = KvStoreConfig { kv_store, servers, ..KvStoreConfig::default() };
        let mut bytes = Vec::new();
        made.write(&mut bytes).expect("memory takes it");
        folder.write(&format!("{name}/bandwidth.json"), bytes);
    }
    let page = page(&folder.path());
    for words in [
        "Exchange bandwidth",
        "Bandwidth of kv-store dist_sync on CPUs",
        "Bus bandwidth of kv-store dist_sync by size",
        "1n2g, 2 servers, in-place",
        "Bandwidth of all-reduce on CPUs",
        "2n1g, in-place",
    ] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    let (_, stdout, _) = report(&[path(&folder.path()), "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON alone");
    let told = |index: usize| ["kv_store", "servers"].map(|key| json["results"][0]["bandwidth"][index][key].clone());
    assert_eq!(told(0), [Value::from("dist_sync"), Value::from(2)]);
    assert_eq!(told(1), [Value::Null, Value::Null]);
    fs::remove_dir_all(folder.path().join("2n1g")).expect("removed");
    let alone = self::page(&folder.path());
    assert!(alone.contains("Exchange bandwidth of kv-store dist_sync"), "{alone}");
    assert!(alone.contains("kv-store dist_sync, backend mpi: "), "the headline: {alone}");
}

#[test]
fn baselines_are_shown_with_their_cases() {
    let folder = small_folder();
    for run in [1, 2] {
        let mut alone = record("1n2g", run, 0.55);
        alone.header.config.exchange.backend = BackendChoice::None;
        folder.run(&alone);
    }
    let page = page(&folder.path());
    for word in ["1n2g baseline", "compute, crowded", "compute, overlap", "the same ranks without communication"] {
        assert!(page.contains(word), "no {word:?} in {page}");
    }
    // Their runs are not listed with the runs of the case.
    assert_eq!(page.matches("<figcaption>1n2g, run 1: ").count(), 1);
}

#[test]
fn excluded_runs_are_reported_and_the_rest_is_shown() {
    let folder = small_folder();
    folder.write("1n2g/rn50_b4_fp32_3.log", "nothing of a run\n");
    let out = folder.parent.path().join("a.html");
    let (status, _, stderr) = report(&[path(&folder.path()), "-o", path(&out)]);
    assert_eq!(status, 1);
    expect![[r"
        wrote DIR/a.html
        not in the figures: first: 1n2g/rn50_b4_fp32_3.log: no iteration in the log: the run ended before its first one, repeat it
        error: the figures are not complete: see the message above
    "]].assert_eq(&without_folder(&stderr));
    let page = fs::read_to_string(out).expect("written all the same");
    assert!(page.contains("Not in the figures (1)") && page.contains("1 run excluded") && page.contains("12.19"));
    let (status, _, stderr) = report(&[path(&folder.parent.path().join("none"))]);
    assert_eq!(status, 2);
    expect![[r"
        error: DIR/none cannot be read: pass the folder that a sweep wrote: No such file or directory (os error 2)
    "]]
    .assert_eq(&without_folder(&stderr));
    let (status, _, stderr) = report(&[path(&folder.parent.path().join("a.html"))]);
    assert_eq!(status, 2);
    expect![[r"
        error: DIR/a.html is a file: pass the folder with the result
    "]]
    .assert_eq(&without_folder(&stderr));
    let (status, _, stderr) = report(&[path(folder.parent.path())]);
    assert_eq!(status, 1);
    expect![[r"
        error: DIR contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log, for example 1n1g/rn50_b128_fp32_1.log; results are in its subfolders:
          ringmark extract DIR/first
    "]].assert_eq(&without_folder(&stderr));
}

#[test]
fn results_that_diff_refuses_to_compare_are_marked() {
    let (one, other) = (small_folder(), Folder::new());
    for (run, batch_size) in [(1, 8), (2, 8)] {
        let mut larger = record("1n1g", run, 0.5);
        larger.header.config.batch_size = batch_size;
        other.run(&larger);
    }
    let findings = |folders: &[&Folder]| {
        let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.path()).collect();
        let results = read(&folders, None).expect("they can be read");
        let findings = content::document(&results, false, &[]).findings;
        findings.into_iter().find(|findings| findings.title == "Not comparable").map(|findings| findings.lines)
    };
    assert_eq!(findings(&[&one, &small_folder()]), None);
    let lines = findings(&[&one, &other]).expect("marked");
    assert!(lines.len() == 1 && lines[0].ends_with(": batch size 4 and 8"), "{lines:?}");
}

#[test]
fn devices_never_share_a_chart() {
    let (one, other, third) = (small_folder(), small_folder(), Folder::new());
    for (case, step) in [("1n1g", 0.1), ("1n2g", 0.11)] {
        let mut on_gpu = record(case, 1, step);
        on_gpu.header.ranks.iter_mut().for_each(|rank| rank.device = ringmark_core::dimension::DeviceKind::Cuda);
        third.run(&on_gpu);
    }
    let folders = [&one, &other, &third].map(Folder::path);
    let results = read(&folders, None).expect("they can be read");
    let document = content::document(&results, false, &[]);
    let titles: Vec<&str> = document.sections.iter().map(|section| section.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "ResNet50-v1b, fp32, batch size 4 per rank, 64 pixels, CPU",
            "ResNet50-v1b, fp32, batch size 4 per GPU, 64 pixels, GPU",
            "Environment"
        ]
    );
    assert_eq!(document.headlines.len(), 3);
    let names: Vec<&str> = document.headlines.iter().map(|headline| headline.name.as_str()).collect();
    let parent = |folder: &Folder| path(folder.parent.path().file_name().expect("a name").as_ref()).to_owned();
    assert_eq!(names, [&one, &other, &third].map(|folder| format!("{}/first", parent(folder))));
    let page = render(&document, ReportFormat::Html, 100);
    assert!(page.contains("<rect class=\"bar s0\"") && page.contains("<rect class=\"bar s1\""));
    for mark in ["middle-line s0", "middle-line s1", "band s1", "rank s0", "rank s1"] {
        assert!(page.contains(&format!("class=\"{mark}\"")), "{mark}: a result has one color everywhere");
    }
    // The explanation of a chart appears once per section, not once per result.
    for (title, reading) in
        [("Every iteration", "One drawing per run"), ("Every rank", "Own compute time of every rank")]
    {
        let [titles, readings] =
            [format!("<h3>{title}"), format!("<p class=\"note\">{reading}")].map(|text| page.matches(&text).count());
        assert_eq!((titles, readings), (3, 2), "{title}");
    }
    let (status, _, stderr) = report(&[path(&folders[0]), path(&folders[0])]);
    assert!(status == 2 && stderr.contains("is given twice"), "{stderr}");
}

#[test]
fn nccl_choice_is_shown() {
    let folder = Folder::new();
    let mut run = record("1n2g", 1, 0.5);
    let said = ["AllReduce of 4000 bytes: Tree, LL, 1 channel", "AllReduce of 8000 bytes: Ring, Simple, 24 channels"];
    run.end.as_mut().expect("an end").nccl = said.map(str::to_owned).to_vec();
    folder.run(&run);
    let markdown = shown(&folder.path(), ReportFormat::Markdown);
    let line = markdown.lines().find(|line| line.contains("NCCL chose")).expect(&markdown);
    expect!["| NCCL chose         | Ring, Simple, 24 channels / Tree, LL, 1 channel |"].assert_eq(line);
}

#[test]
fn unknown_file_extension_needs_a_format() {
    let folder = small_folder();
    for name in ["a.json", "a.HTML", "a", "a.md.gz"] {
        let out = folder.parent.path().join(name);
        let (status, _, stderr) = report(&[path(&folder.path()), "-o", path(&out)]);
        assert!(status == 2 && stderr.contains(name) && stderr.contains("or give --format"), "{name}: {stderr}");
        assert!(!out.exists(), "{name}");
        assert_eq!(report(&[path(&folder.path()), "-o", path(&out), "--format", "html"]).0, 0);
        assert!(fs::read_to_string(&out).expect("written").starts_with("<!DOCTYPE html>"), "{name}");
    }
    for (name, begins) in [("b.htm", "<!DOCTYPE html>"), ("b.markdown", "# first\n")] {
        let out = folder.parent.path().join(name);
        assert_eq!(report(&[path(&folder.path()), "-o", path(&out)]).0, 0);
        assert!(fs::read_to_string(&out).expect("written").starts_with(begins), "{name}");
    }
}

#[test]
fn only_ranks_with_a_warning_are_marked_slow() {
    // Rank 0 takes `factor` times as long as the other three: below the limit, and far above.
    for (factor, is_slow) in [(1.04, false), (1.5, true)] {
        let folder = Folder::new();
        for run in [1, 2] {
            let mut uneven = record("1n4g", run, 0.5);
            uneven.header.config.iterations = 40;
            let template = uneven.iterations[2].clone();
            uneven.iterations.extend((uneven.iterations.len() as u32 + 1..=40).map(|iteration| {
                let mut next = template.clone();
                next.iteration = iteration;
                next
            }));
            for iteration in &mut uneven.iterations {
                iteration.before_allreduce = [factor, 1.0, 1.0, 1.0].map(|times| Seconds(0.1 * times)).to_vec();
            }
            folder.run(&uneven);
        }
        let page = page(&folder.path());
        let host = record("1n4g", 1, 0.5).header.ranks[0].host.clone();
        let warning = format!("rank 0 on host {host} is a straggler: in 100.0 % of the iterations");
        assert_eq!(page.contains(&warning), is_slow, "{page}");
        assert_eq!(page.contains(&format!("Slow: rank 0 on host {host} is a straggler (1n4g).")), is_slow, "{page}");
        assert_eq!(page.contains("No warning names a rank as slow."), !is_slow);
        let [marks, rows] = ["<path class=\"slow\"", "<tr class=\"marked\""].map(|mark| page.matches(mark).count());
        assert_eq!((marks, rows), if is_slow { (2, 1) } else { (0, 0) }, "the key and one rank; its row");
    }
}

#[test]
fn script_matches_the_content_security_policy() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/read/show/page").join(name);
    let said = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().expect("every Linux has it");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let sum = said("sha256sum", &[path(&file("script.js"))]);
    let allowed = said("base64", &["--decode", path(&file("script.sha256"))]);
    let allowed: String = allowed.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(allowed.len(), 64);
    assert!(sum.starts_with(allowed.as_bytes()), "script.sha256 is of another script.js: see read/show/page/html.rs");
}

/// Hostile name of a host.
const HOSTILE: &str =
    "\"'><script>document.hacked=1</script><img src=x onerror=document.hacked=1>&amp;`|\u{1b}[31m\0\u{202e}\u{2066}\n";

/// Creates a folder in which every string from a file is [`HOSTILE`].
fn hostile_folder() -> Folder {
    let folder = Folder::new();
    for case in ["1n1g", "1n2g", "2n2g"] {
        for run in [1, 2] {
            let mut hostile = record(case, run, 0.5);
            let header = &mut hostile.header;
            for (number, rank) in header.ranks.iter_mut().enumerate() {
                rank.host = format!("{HOSTILE}{}", number / 2);
                rank.device_name = format!("{HOSTILE}{number}");
            }
            let environment = &mut header.environment;
            for word in [
                &mut environment.processor,
                &mut environment.system,
                &mut environment.mpi_version,
                &mut environment.libtorch_version,
                &mut environment.ringmark_version,
            ] {
                *word = HOSTILE.to_owned();
            }
            environment.topology = vec![HOSTILE.to_owned(), "```".to_owned()];
            environment.variables.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
            if case == "1n2g" {
                folder.write("1n2g/bandwidth.json", bandwidth(&hostile));
            }
            folder.run(&hostile);
        }
    }
    folder.write("1n1g/rn50_<script>document.hacked=1<script>.log", "");
    folder
}

#[test]
fn names_from_files_are_escaped() {
    let folder = hostile_folder();
    let page = page(&folder.path());
    // The page's script; the word occurs in a name as well.
    assert_eq!(page.matches("<script").count(), 1, "a name became a script");
    assert_eq!(page.matches("</script").count(), 1);
    assert!(!page.contains("<img") && page.contains("&lt;script&gt;document.hacked=1"));
    let shown_by_browsers = |letter: char| matches!(letter, '\n' | '\t') || !is_unprintable(letter);
    assert!(page.chars().all(shown_by_browsers), "{:?}", page.chars().find(|letter| !shown_by_browsers(*letter)));
    // A quote within a title or a label would end it.
    assert!(!page.contains("=\"\"'>") && page.contains("&quot;'&gt;"));
    let markdown = shown(&folder.path(), ReportFormat::Markdown);
    // Text between two fences is not markup, and names must not create a fence.
    let parts: Vec<&str> = markdown.split("```").collect();
    assert_eq!(parts.len(), 3, "{markdown}");
    assert!(parts[1].contains("<script>") && !parts[0].contains("<script") && !parts[2].contains("<script"));
    assert!(!parts[0].contains("<img") && !parts[2].contains("<img"));
    let table = shown(&folder.path(), ReportFormat::Table);
    assert!(table.contains("<script>") && table.chars().all(shown_by_browsers));
}

#[test]
fn page_loads_no_external_resources() {
    for folder in [committed("cpu-2-cores"), committed("same-40-times")] {
        let page = page(&folder);
        for word in ["http:", "https:", "src=", "@import", "<link", "url(//", "fetch(", "XMLHttpRequest"] {
            assert!(!page.contains(word), "{word} in the page of {}", folder.display());
        }
        let others = page.matches("url(").count() - page.matches("url(#hatch)").count();
        assert_eq!(others, 0, "a drawing refers to something outside of the page");
        assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none'"));
    }
}

#[test]
fn small_and_unusual_results_have_a_page() {
    let logs = Folder::new();
    let speeds: Vec<f64> = (0..30).map(|index| 384.0 + f64::from(index % 3)).collect();
    logs.log("1n1g/rn50_b128_fp32_1.log", &speeds);
    logs.log("1n2g/rn50_b128_fp32_1.log", &speeds);
    let one_run = Folder::new();
    one_run.run(&record("1n2g", 1, 0.5));
    let nothing_counts = Folder::new();
    nothing_counts.write("1n1g/rn50_b4_fp32_1.log", "");
    let quick = Folder::new();
    let mut first_look = record("1n1g", 1, 0.5);
    first_look.header.profile = RunProfile::Quick;
    quick.run(&first_look);
    let instant = Folder::new();
    let mut at_once = record("1n2g", 1, 0.5);
    for iteration in &mut at_once.iterations {
        for phase in [Phase::Forward, Phase::Backward] {
            iteration.phases[phase].iter_mut().for_each(|time| *time = Seconds(0.0));
        }
    }
    at_once.iterations.iter_mut().for_each(|iteration| iteration.before_allreduce.clear());
    instant.run(&at_once);
    let bandwidth_alone = Folder::new();
    bandwidth_alone.write("1n2g/bandwidth.json", bandwidth(&record("1n2g", 1, 0.5)));
    bandwidth_alone.write("1n4g/bandwidth.json", "{}");
    for (folder, words) in [
        (&logs, &["device unknown", "DLPerf V100 FP32 b128 (published)", "a single run of a case has no spread"][..]),
        (&one_run, &["With a single case", "no run of 1n1g counts", "Every rank"]),
        (&nothing_counts, &["no run counts", "Unreliable"]),
        (&quick, &["quick profile, a first look", "Unreliable"]),
        (&instant, &["Where the time of a step goes"]),
        (&bandwidth_alone, &["Bus bandwidth of all-reduce by size", "every result is correct", "1n4g/bandwidth.json"]),
    ] {
        let page = page(&folder.path());
        for word in words {
            assert!(page.contains(word), "no {word:?} in {page}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
        for format in [ReportFormat::Markdown, ReportFormat::Table] {
            assert!(!shown(&folder.path(), format).contains("NaN"));
        }
    }
}

#[test]
fn page_of_many_ranks_and_iterations_is_small() {
    let folder = Folder::new();
    for run in 1..=5 {
        let mut large = record("8n8g", run, 0.5);
        large.header.config.iterations = 400;
        let template = large.iterations[2].clone();
        large.iterations.extend((7..=400).map(|iteration| {
            let mut next = template.clone();
            next.iteration = iteration;
            // One iteration of one rank is an outlier.
            if (iteration, run) == (333, 3) {
                next.step[63] = Seconds(77.5);
            }
            next
        }));
        folder.run(&large);
    }
    let page = page(&folder.path());
    assert!(page.len() < 700_000, "{} bytes", page.len());
    assert!(page.contains("longest 77500.00 (rank 63 in iteration 333)"), "the outlier is lost");
}

#[test]
fn blocks_are_in_columns_on_desktop_and_stacked_on_phone() {
    let Some(browser) = Browser::find() else { return };
    let many = folder_of(&["1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g"]);
    fs::write(browser.folder.path().join("two.html"), page(&committed("../tests/golden/old_results/suite-2-cores")))
        .expect("written");
    fs::write(browser.folder.path().join("six.html"), page(&many.path())).expect("written");
    let widths = [("two.html", DESKTOP), ("six.html", DESKTOP), ("two.html", PHONE), ("six.html", PHONE)];
    browser.frames("frames.html", &widths, LOOK);
    let said = browser.evaluate("frames.html", widths.iter().map(|(_, width)| width).sum());
    let of_machine = ["Machine and libraries", "Options"];
    let of_step = ["Where the time of a step goes", "Where the scaling loss goes"];
    let expected = [
        (serde_json::json!([of_step, of_machine, ["Variables", "Hosts"]]), 1),
        (serde_json::json!([of_machine]), 0),
        (serde_json::json!([]), 0),
        (serde_json::json!([]), 0),
    ];
    for ((frame, name), (pairs, beside)) in said.as_array().expect("a list").iter().zip(widths).zip(expected) {
        assert_eq!((&frame["pairs"], &frame["beside"]), (&pairs, &beside.into()), "{name:?}: {frame}");
        assert_eq!((&frame["width"], &frame["room"]), (&name.1.into(), &name.1.into()), "{name:?}: {frame}");
        assert_eq!(frame["clipped"], serde_json::json!([]), "{name:?}");
    }
}

#[test]
fn two_cases_print_on_few_pages() {
    let Some(browser) = Browser::find() else { return };
    fs::write(browser.folder.path().join("page.html"), page(&committed("cpu-2-cores"))).expect("written");
    let pages = browser.printed_pages("page.html");
    assert!((2..=5).contains(&pages), "{pages} pages");
}

/// Creates two cases, the larger of which has a trace of two ranks.
fn traced_folder() -> Folder {
    let folder = small_folder();
    let reading = ClockReading { at_ns: 0, ahead_ns: 0, residual_ns: 0 };
    let rank = |rank: u32| {
        let span = |lane, name: &str, begin_ns: i64, end_ns: i64, bucket| Span {
            lane,
            name: name.to_owned(),
            iteration: 3,
            begin_ns,
            length_ns: end_ns - begin_ns,
            layer: None,
            bucket,
        };
        let spans = vec![
            span(Lane::Step, "forward", 0, 4_000_000, None),
            span(Lane::Step, "backward", 4_000_000, 7_000_000, None),
            span(Lane::Step, "exposed all-reduce", 7_000_000, 9_000_000, None),
            span(Lane::Step, "optimizer", 9_000_000, 10_000_000, None),
            span(Lane::Exchange, "all-reduce", 5_000_000, 9_000_000, Some(0)),
            span(Lane::Bucket(0), "bucket 0", 5_000_000, 9_000_000, Some(0)),
        ];
        let clock = RankClock { method: ClockMethod::SameHost, first: reading, last: reading };
        RankTrace { rank, host: "a".to_owned(), clock, spans, gradients: Vec::new() }
    };
    let timeline = Timeline {
        title: String::new(),
        began_unix_seconds: 0.0,
        kv_store: Some(KvStore::Ring),
        exchange: "mpi".to_owned(),
        arrays: Vec::new(),
        ranks: vec![rank(0), rank(1)],
    };
    let mut trace = Vec::new();
    chrome::write(&timeline, &mut trace).expect("memory takes it");
    folder.write("1n2g/rn50_b4_fp32_1.trace.json", trace);
    folder
}

/// Script that returns the size of a frame's drawing of a traced iteration, and of its smallest text, in screen pixels.
const TRACE_SIZES: &str = "(frame) => { const page = frame.contentDocument, svg = page.querySelector('.zoom figure > svg'); \
    const width = svg.getBoundingClientRect().width, scale = width / svg.viewBox.baseVal.width; \
    const sizes = [...svg.querySelectorAll('text')].map((text) => scale * parseFloat(frame.contentWindow.getComputedStyle(text).fontSize)); \
    const main = page.querySelector('main').getBoundingClientRect().width; \
    return { page: page.documentElement.scrollWidth, drawing: width / main, type: Math.min(...sizes) }; }";

#[test]
fn traced_iteration_fills_the_page_width_legibly() {
    let Some(browser) = Browser::find() else { return };
    fs::write(browser.folder.path().join("page.html"), page(&traced_folder().path())).expect("written");
    let widths = [("page.html", DESKTOP), ("page.html", PHONE)];
    browser.frames("frames.html", &widths, TRACE_SIZES);
    let said = browser.evaluate("frames.html", DESKTOP + PHONE);
    for (frame, (_, width)) in said.as_array().expect("a list").iter().zip(widths) {
        assert_eq!(frame["page"], width, "the page is wider than its screen: {frame}");
        assert!(frame["type"].as_f64().is_some_and(|size| size >= 11.0), "{width}: {frame}");
        assert!(frame["drawing"].as_f64().is_some_and(|share| share >= 0.99), "{width}: {frame}");
    }
}

#[test]
fn page_renders_on_desktop_and_phone_in_light_and_dark() {
    let Some(browser) = Browser::find() else { return };
    let folders = ["cpu-2-cores", "same-40-times"].map(committed);
    let results = read(&folders, None).expect("they are committed");
    let page = render(&content::document(&results, true, &[]), ReportFormat::Html, 100);
    fs::write(browser.folder.path().join("page.html"), page).expect("written");
    fs::write(browser.folder.path().join("hostile.html"), self::page(&hostile_folder().path())).expect("written");

    let widths = [("page.html", DESKTOP), ("page.html", PHONE), ("hostile.html", PHONE)];
    let all: u32 = widths.iter().map(|(_, width)| width).sum();
    browser.frames("frames.html", &widths, LOOK);
    let said = browser.evaluate("frames.html", all);
    for (frame, (page, width)) in said.as_array().expect("a list").iter().zip(widths) {
        assert_eq!(frame["room"], width, "{page}: {frame}");
        assert_eq!(frame["width"], width, "{page} is wider than {width}: {frame}");
        assert!(frame["ready"].as_u64().is_some_and(|marks| marks > 50), "{page}: its script did not run: {frame}");
        assert!(frame["tip"].as_str().is_some_and(|tip| tip.contains("images/s")), "{page}: {frame}");
        assert_eq!(
            (&frame["shown"], &frame["hacked"], &frame["empty"]),
            (&true.into(), &false.into(), &0.into()),
            "{page}: {frame}"
        );
        assert!(frame["drawings"].as_u64().is_some_and(|drawings| drawings > 5), "{page}: {frame}");
    }

    let desk = 0..DESKTOP;
    let phone = DESKTOP..DESKTOP + PHONE;
    let paper = |picture: &Picture, columns: &std::ops::Range<u32>, color: u32| {
        let area = f64::from((columns.end - columns.start) * HEIGHT);
        picture.count(columns.clone(), color) as f64 / area
    };
    // Colors of the style sheet: page and panels, text, the two results, and the parts of a step.
    let light = ([0xffffff, 0xf6f8fa], 0x1b1f24, [0x0072b2, 0xd55e00, 0x56b4e9, 0xe69f00, 0x009e73]);
    let dark = ([0x13171c, 0x1b2128], 0xe6eaef, [0x4db2ec, 0xff8a3d, 0x6fc0ee, 0xe9ab23, 0x1fb58a]);
    for (is_dark, (background, ink, colors), other) in [(false, light, dark.0), (true, dark, light.0)] {
        let picture = browser.picture("frames.html", all, is_dark);
        for columns in [&desk, &phone] {
            let share: f64 = background.iter().map(|color| paper(&picture, columns, *color)).sum();
            assert!((0.5..0.97).contains(&share), "{share} of the picture is paper, dark: {is_dark}");
            assert!(
                other.iter().all(|other| paper(&picture, columns, *other) < 0.02),
                "the other paper shows, dark: {is_dark}"
            );
            let ink = picture.count(columns.clone(), ink);
            assert!(ink > 2000, "{ink} pixels of ink, dark: {is_dark}");
        }
        for color in colors {
            let seen = picture.count(desk.clone(), color);
            let most = (DESKTOP * HEIGHT / 10) as usize;
            assert!((60..most).contains(&seen), "{seen} pixels of #{color:06x}, dark: {is_dark}");
        }
    }
}

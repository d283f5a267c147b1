//! Tests of `ringmark report`: figures, charts and warnings on the page.

use std::fs;
use std::path::PathBuf;

use expect_test::expect;
use ringmark::read::report::{ReportFormat, document, read, render};
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::benchmark::strategy::StrategyConfig;
use ringmark_core::benchmark::{BenchmarkKind, RunProfile};
use ringmark_core::dimension::{Model, Phase, Seconds, Strategy};
use ringmark_core::host::{HostUse, RankUse};
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use serde_json::Value;

use crate::support::report::{
    assert_well_formed, bandwidth, bandwidth_of, count_drawn, folder_of, page, path, report, shown, small_folder,
};
use crate::support::runs::{Folder, committed, record, rows_by_case};
use crate::support::sandbox::lines_with;
use crate::support::temporary_folder::without_folder;

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
fn title_is_shown_once() {
    for (folder, title) in [
        ("cpu-2-cores", "ResNet50-v1b, bf16, batch size 8 per rank, 224 pixels, CPU"),
        ("cpu-2-cores", "cpu-2-cores"),
        ("score-2-cores", "score-2-cores"),
    ] {
        let page = page(&committed(folder));
        let headings: Vec<&str> = page.split("<h").filter(|text| text.starts_with(['1', '2', '3'])).collect();
        let headings = headings.iter().map(|text| text.split("</h").next().expect("its end"));
        assert_eq!(headings.filter(|text| text.ends_with(title)).count(), 1, "{title}");
    }
}

#[test]
fn legend_has_the_parts_that_are_drawn() {
    let entry = |name: &str| format!("</svg> {name}</li>");
    let alone = Folder::new();
    alone.run(&record("1n1g", 1, 0.5));
    let (alone, two) = (page(&alone.path()), page(&committed("cpu-2-cores")));
    for name in ["waiting", "transfer"] {
        assert!(!alone.contains(&entry(name)) && two.contains(&entry(name)), "{name}");
    }
    assert!(two.contains(".area.waiting, .waiting > .area { fill: url(#hatch); }"), "one fill for bars and samples");
}

#[test]
fn warmup_does_not_scale_the_charts() {
    let page = page(&committed("cpu-2-cores"));
    let chart = page.split("<figcaption>Time of an iteration</figcaption>").nth(1).expect("the chart");
    let chart = chart.split("</figure>").next().expect("its end");
    assert!(chart.contains("</svg> warm-up, cut off at the longest measured time</li>"), "{chart}");
    // The first iteration took longer than the axis shows.
    let ticks: Vec<&str> =
        chart.split("class=\"tick end\"").skip(1).map(|text| text.split(['>', '<']).nth(1).expect("a tick")).collect();
    expect![[r#"["1,100", "1,150", "1,200"] all ranks, up to iteration 1: 1420.7 ms"#]].assert_eq(&format!(
        "{ticks:?} {}",
        chart.split("<title>").nth(3).expect("a tip").split('<').next().expect("its end")
    ));
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
    let document = document(&results, false, &[]);
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
        "<a href=\"#section-1-1\">Throughput, speedup and efficiency: weak scaling</a>",
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
    let page = render(&document(&results, false, &[]), ReportFormat::Html, 100);
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
    let legend = "<p class=\"note\">In parentheses: unreliable; the lines below &quot;Unreliable figures&quot; give";
    assert!(page.contains(legend) && page.contains("<p class=\"value\">("), "{page}");
    for card in cards {
        assert!(card.ends_with("<strong>Unreliable</strong><span>: busy machine</span>"), "{card}");
    }
    let list = page.split("<details class=\"findings grave\" open>").nth(1).expect("a list");
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
    let block = page.split("<h3>Throughput, speedup and efficiency: weak scaling</h3>").nth(1).expect("the block");
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
            serde_json::from_str(&bandwidth(&record("1n2g", 1, 0.5))).expect("it was written");
        let host = busy.ranks[0].host.clone();
        let used = HostUse { host, cores: 2, elapsed: Seconds(10.0), ..HostUse::default() };
        busy.host_use = vec![HostUse { busy: Seconds(20.0 * share_of_others), ..used }];
        busy.rank_use = vec![RankUse::default(); 2];
        let mut bytes = Vec::new();
        busy.write(&mut bytes).expect("an in-memory write succeeds");
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

/// Bandwidth of a strategy is not that of an all-reduce, and is not drawn as such.
#[test]
fn bandwidth_of_a_strategy_is_labeled() {
    let folder = Folder::new();
    for (name, strategy, servers) in [("1n2g", Strategy::DistSync, Some(2)), ("2n1g", Strategy::AllReduce, None)] {
        let mut made: BandwidthRecord =
            serde_json::from_str(&bandwidth(&record(name, 1, 0.5))).expect("it was written");
        made.config.messages = Messages::Gradients(Model::Resnet50V1b);
        made.config.strategy = StrategyConfig { strategy, servers, ..StrategyConfig::default() };
        let mut bytes = Vec::new();
        made.write(&mut bytes).expect("an in-memory write succeeds");
        folder.write(&format!("{name}/bandwidth.json"), bytes);
    }
    let page = page(&folder.path());
    for words in [
        "Exchange bandwidth",
        "Bandwidth of strategy dist_sync on CPUs",
        "Bus bandwidth of strategy dist_sync by size",
        "1n2g, 2 servers, in-place",
        "Bandwidth of all-reduce on CPUs",
        "2n1g, in-place",
    ] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    let (_, stdout, _) = report(&[path(&folder.path()), "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON alone");
    let described =
        |index: usize| ["strategy", "servers"].map(|key| json["results"][0]["bandwidth"][index][key].clone());
    assert_eq!(described(0), [Value::from("dist_sync"), Value::from(2)]);
    assert_eq!(described(1), [Value::Null, Value::Null]);
    fs::remove_dir_all(folder.path().join("2n1g")).expect("removed");
    let alone = self::page(&folder.path());
    assert!(alone.contains("Exchange bandwidth of strategy dist_sync"), "{alone}");
    assert!(alone.contains("strategy dist_sync, backend mpi: "), "the headline: {alone}");
}

#[test]
fn baselines_are_shown_with_their_cases() {
    let folder = Folder::new();
    for run in [1, 2, 3] {
        let noise = 1.0 + f64::from(run) / 100.0;
        folder.run(&record("1n1g", run, 0.5 * noise));
        folder.run(&record("1n2g", run, 0.5625 * noise));
        let mut alone = record("1n2g", run, 0.55 * noise);
        alone.header.config.exchange.backend = BackendChoice::None;
        folder.run(&alone);
    }
    let page = page(&folder.path());
    for word in ["1n2g baseline", "compute, sharing", "compute, overlap", "the same ranks without communication"] {
        assert!(page.contains(word), "no {word:?} in {page}");
    }
    // Their runs are not listed with the runs of the case.
    assert_eq!(page.matches("<figcaption>1n2g, run 1: ").count(), 1);
}

#[test]
fn terminal_explains_the_columns_that_it_shows() {
    let folder = committed("suite-2-cores");
    let document = document(&read(&[folder], None).expect("it can be read"), false, &[]);
    let text = |width| {
        let text = render(&document, ReportFormat::Table, width);
        // A note is broken into lines.
        (text.contains("  DLPerf  "), text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    for (width, has_minor_columns) in [(60, false), (160, true)] {
        let (has_column, words) = text(width);
        assert_eq!(has_column, has_minor_columns, "{width}: {words}");
        for note in ["DLPerf is DLPerf's figure", "\u{b1} is half of the", "Sharing: cost of sharing a host"] {
            assert_eq!(words.contains(note), has_minor_columns, "{width}: {note}");
        }
        assert!(words.contains(" 3/3! ") && words.contains(" !: these runs count but have warnings: "), "{words}");
    }
}

/// Two runs have a loss, but no confidence interval.
#[test]
fn loss_of_two_runs_has_a_caveat() {
    let folder = Folder::new();
    for run in 1..=2 {
        folder.run(&record("1n1g", run, 0.5));
        folder.run(&record("1n2g", run, 0.625));
    }
    let text = shown(&folder.path(), ReportFormat::Table);
    let line = text.lines().find(|line| line.starts_with("- Scaling loss of 1n2g: ")).expect("a figure");
    expect![""].assert_eq(&lines_with(line, " (2 runs:"));
}

/// Parentheses, bandwidth above the memory limit, and the share that is not a time.
#[test]
fn tables_explain_unusual_cells() {
    let text = shown(&committed("suite-2-cores"), ReportFormat::Table);
    assert_eq!(lines_with(&text, "In parentheses"), "", "all runs are reliable");
    expect!["A loss below its \u{b1} is not significant, nor are its parts: use more --runs."]
        .assert_eq(&lines_with(&text, "is not significant"));
    expect![[r#"
        1n2g, in-place      128 KiB  float     3.17     3.52  41.388         in cache      0  ██████████▉
        1n2g, in-place      512 KiB  float    10.11    11.47  51.843         in cache      0  █████████████▋
        1n2g, in-place        2 MiB  float    39.26    53.70  53.414         in cache      0  ██████████████"#]]
    .assert_eq(&lines_with(&text, "in cache"));
    expect!["case           step  forward  backward  waiting  transfer  optimizer  other  exposed share"]
        .assert_eq(&lines_with(&text, "exposed share"));
    expect!["Telemetry of 1n2g, run 2 (slowest run): clock and utilization"]
        .assert_eq(&lines_with(&text, "Telemetry of"));
    let unreliable = shown(&disturbed_folder().path(), ReportFormat::Table);
    expect![[r#"In parentheses: unreliable; the lines below "Unreliable figures" give the reason and the fix."#]]
        .assert_eq(&lines_with(&unreliable, "In parentheses"));
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
        error: folder not found: DIR/none: pass the folder that a sweep wrote
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
          ringmark report DIR/first
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
        let findings = document(&results, false, &[]).findings;
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
    let document = document(&results, false, &[]);
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
    let output_text =
        ["AllReduce of 4000 bytes: Tree, LL, 1 channel", "AllReduce of 8000 bytes: Ring, Simple, 24 channels"];
    run.end.as_mut().expect("an end").nccl = output_text.map(str::to_owned).to_vec();
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
                let waited = 0.1 * (factor - 1.0);
                iteration.phases[Phase::ExposedAllreduce] = [0.0, waited, waited, waited].map(Seconds).to_vec();
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
fn bandwidth_record_outside_a_case_is_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let moved = folder.path().join("moved");
    fs::create_dir(&moved).expect("made");
    fs::write(moved.join("bandwidth.json"), "{}").expect("written");
    for root in [moved.as_path(), folder.path()] {
        let (status, _, error) = report(&[path(root)]);
        assert_eq!(status, 1);
        let what = "; it contains results of `ringmark bandwidth`, which `ringmark extract` and `ringmark report` show and `ringmark \
             diff` compares";
        assert!(error.contains(what), "{error}");
    }
}

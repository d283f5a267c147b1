//! Pages of `ringmark report`: hostile and unusual content, security policy, layout in a browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use ringmark::read::report::{ReportFormat, document, read, render};
use ringmark_core::benchmark::RunProfile;
use ringmark_core::dimension::{Phase, Seconds, Strategy};
use ringmark_core::trace::clock::{ClockMethod, ClockReading, RankClock};
use ringmark_core::trace::{Lane, RankTrace, Span, Timeline, chrome};
use ringmark_core::untrusted_text::is_unprintable;

use crate::support::browser::{Browser, HEIGHT, Picture};
use crate::support::report::{DESKTOP, LOOK, PHONE, bandwidth, folder_of, page, path, shown, small_folder};
use crate::support::runs::{Folder, committed, record};

#[test]
fn script_matches_the_content_security_policy() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/read/show/page").join(name);
    let output_text = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output().expect("every Linux has it");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let sum = output_text("sha256sum", &[path(&file("script.js"))]);
    let allowed = output_text("base64", &["--decode", path(&file("script.sha256"))]);
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
    let output_text = browser.evaluate("frames.html", widths.iter().map(|(_, width)| width).sum());
    let of_machine = ["Machine and libraries", "Options"];
    let of_step = ["Where the time of a step goes", "Where the scaling loss goes"];
    let expected = [
        (serde_json::json!([of_step, of_machine, ["Variables", "Hosts"]]), 1),
        (serde_json::json!([of_machine]), 0),
        (serde_json::json!([]), 0),
        (serde_json::json!([]), 0),
    ];
    for ((frame, name), (pairs, beside)) in output_text.as_array().expect("a list").iter().zip(widths).zip(expected) {
        assert_eq!((&frame["pairs"], &frame["beside"]), (&pairs, &beside.into()), "{name:?}: {frame}");
        assert_eq!((&frame["width"], &frame["room"]), (&name.1.into(), &name.1.into()), "{name:?}: {frame}");
        assert_eq!((&frame["clipped"], &frame["narrow"]), (&serde_json::json!([]), &0.into()), "{name:?}");
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
        strategy: Some(Strategy::AllReduce),
        exchange: "mpi".to_owned(),
        arrays: Vec::new(),
        ranks: vec![rank(0), rank(1)],
    };
    let mut trace = Vec::new();
    chrome::write(&timeline, &mut trace).expect("an in-memory write succeeds");
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
    let output_text = browser.evaluate("frames.html", DESKTOP + PHONE);
    for (frame, (_, width)) in output_text.as_array().expect("a list").iter().zip(widths) {
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
    let page = render(&document(&results, true, &[]), ReportFormat::Html, 100);
    fs::write(browser.folder.path().join("page.html"), page).expect("written");
    fs::write(browser.folder.path().join("hostile.html"), self::page(&hostile_folder().path())).expect("written");

    let widths = [("page.html", DESKTOP), ("page.html", PHONE), ("hostile.html", PHONE)];
    let all: u32 = widths.iter().map(|(_, width)| width).sum();
    browser.frames("frames.html", &widths, LOOK);
    let output_text = browser.evaluate("frames.html", all);
    for (frame, (page, width)) in output_text.as_array().expect("a list").iter().zip(widths) {
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

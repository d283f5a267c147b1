//! Tests of every reader with damaged or truncated files: the result is a message with file and line, or figures with a
//! list of the skipped runs. Readers never panic, never hang, and never use memory out of proportion to the file's
//! size.
//!
//! Damage to whole runs is tested in [`crate::extract`]; the fuzzer's seeds and findings are replayed here.

use expect_test::expect;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use ringmark::read::analyze::comparison::side::{Side, SideKind};
use ringmark::read::analyze::comparison::training;
use ringmark::read::analyze::results::ResultFolder;
use ringmark::read::analyze::training::result_json;
use ringmark::read::load::formats::nccl_tests::NcclTests;
use ringmark::read::load::formats::pytorch_ddp::DdpFile;
use ringmark::read::results;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::line::log;
use ringmark_core::manifest::Manifest;

use crate::support::fuzz_targets::TARGETS;
use crate::support::runs::{Folder, dlperf_log, record};
use crate::support::sandbox::{lines_with, ringmark, run};

const RECORD: &str = "1n1g/rn50_b4_fp32_2.jsonl";
const LOG: &str = "1n1g/rn50_b4_fp32_2.log";

/// Creates two valid runs of one case; each test breaks the second one.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.run(&record("1n1g", 1, 0.5));
    folder.run(&record("1n1g", 2, 0.5));
    folder
}

fn read(folder: &Folder) -> ResultFolder {
    results::read_training(&folder.path(), None).expect("the first run is sound")
}

/// Returns the only message, which is about the second run; the figures of the first run are available.
#[track_caller]
fn only_problem(folder: &Folder) -> String {
    let result = read(folder);
    assert_eq!(result.training().len(), 1, "{:?}", result.problems);
    assert_eq!(result.training()[0].cases[0].counted().count(), 1, "{:?}", result.problems);
    let [problem] = result.problems.as_slice() else { panic!("{:?}", result.problems) };
    problem.to_string()
}

fn text_of(record: &RunRecord) -> String {
    let mut bytes = Vec::new();
    record.write(&mut bytes).expect("an in-memory write succeeds");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// A string of 2 MB is reported without parsing the line.
#[test]
fn oversized_string_is_reported_with_its_line() {
    let long = format!("{{\"note\":\"{}\",", "x".repeat(2_000_000));
    let lines = text_of(&record("1n1g", 2, 0.5)).lines().count();
    for (number, line) in [(0, 1), (1, 2), (lines - 1, lines)] {
        let folder = folder();
        let sound = text_of(&record("1n1g", 2, 0.5));
        let with_text = |(at, text): (usize, &str)| match at == number {
            true => format!("{long}{}\n", &text[1..]),
            false => format!("{text}\n"),
        };
        let broken: String = sound.lines().enumerate().map(with_text).collect();
        fs::write(folder.path().join(RECORD), broken).expect("written");
        let reason = "string of 2000000 bytes at byte 9: the limit is 1048576";
        let whole = format!("{RECORD}: the record cannot be used: line {line}: {reason}");
        assert_eq!(only_problem(&folder), whole);
        let stderr = extract_error(&folder);
        assert!(stderr.contains(&format!("not in the figures: {whole}\n")), "{stderr}");
    }
}

/// The error for an unreadable file names the cause and is immediate.
#[test]
fn unreadable_paths_are_reported_without_blocking() {
    type Put = fn(&Path);
    let cases: [(&str, Put); 6] = [
        ("path is a folder", |path| fs::create_dir(path).expect("an empty place")),
        ("not a regular file (a pipe, socket or device)", |path| mkfifo(path, Mode::S_IRWXU).expect("an empty place")),
        ("not a regular file (a pipe, socket or device)", |path| symlink("/dev/zero", path).expect("an empty place")),
        ("Too many levels of symbolic links", |path| symlink(path.file_name().expect("one"), path).expect("empty")),
        ("No such file or directory", |path| symlink("nowhere", path).expect("an empty place")),
        // Unreadable for root as well.
        ("Input/output error", |path| symlink("/proc/self/mem", path).expect("an empty place")),
    ];
    for (message, put) in cases {
        for (file, what) in [(LOG, "the log cannot be read: "), (RECORD, "the record cannot be ")] {
            let folder = folder();
            let path = folder.path().join(file);
            fs::remove_file(&path).expect("was there");
            put(&path);
            let stderr = extract_error(&folder);
            let line = stderr.lines().find(|line| line.starts_with(&format!("not in the figures: {file}: {what}")));
            assert!(line.is_some_and(|line| line.contains(message)), "{file}, {message}:\n{stderr}");
        }
        // A missing manifest is not an error, and neither is a dangling link.
        let folder = folder();
        put(&folder.path().join("sweep.json"));
        let stderr = extract_error(&folder);
        let is_named = stderr.contains(&format!("sweep.json: the manifest cannot be read: {message}"));
        assert_eq!(is_named, message != "No such file or directory", "{message}:\n{stderr}");
    }
}

/// Returns the standard error of `ringmark extract`.
fn extract_error(folder: &Folder) -> String {
    let (_, _, stderr) = run(ringmark("extract").arg(folder.path()));
    stderr
}

#[test]
fn logs_with_impossible_numbers_are_excluded_with_their_line() {
    let lines = |batches: &[&str]| -> String {
        batches.iter().map(|rest| format!("INFO:root:Epoch[0] Batch[{rest} samples/sec\n")).collect()
    };
    let cases: [(String, &str); 12] = [
        (
            lines(&["1]\tSpeed: 8.00", "2]\tSpeed: -8.00"]),
            ":2: no iteration number or valid speed in \"INFO:root:Epoch[0] Batch[2]",
        ),
        (lines(&["1]\tSpeed: 0.00"]), ":1: no iteration number or valid speed in "),
        (lines(&["1]\tSpeed: inf"]), ":1: no iteration number or valid speed in "),
        (lines(&["1]\tSpeed: 1e999"]), ":1: no iteration number or valid speed in "),
        (lines(&["1]\tSpeed: 8,00"]), ":1: no iteration number or valid speed in "),
        (lines(&["-1]\tSpeed: 8.00"]), ":1: no iteration number or valid speed in "),
        (lines(&["4294967296]\tSpeed: 8.00"]), ":1: no iteration number or valid speed in "),
        (lines(&["4294967295]\tSpeed: 8.00"]), ":1: expected Batch[1], found Batch[4294967295]: lines are missing"),
        (
            lines(&["0]\tSpeed: 8.00", "4294967295]\tSpeed: 8.00", "4294967295]\tSpeed: 8.00"]),
            ":2: expected Batch[1], found Batch[4294967295]",
        ),
        (dlperf_log(&[1e307; 22]), ":2: no iteration number or valid speed in "),
        (dlperf_log(&[7.0; 22]).replace("7.00", "0.004"), ": invalid speed: 4.00e-3 images/s: "),
        // The line number is correct after a long line.
        (format!("{}\nINFO:root:Epoch[0] Batch[", "x".repeat(5 << 20)), ":2: no iteration number or valid speed in "),
    ];
    for (log, message) in cases {
        let folder = folder();
        let second = "1n1g/rn50_b128_fp32_1.log";
        folder.write(second, &log);
        let problems = read(&folder).problems;
        let shown = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(shown.starts_with(&format!("{second}{message}")), "{message}\n{shown}");
    }
}

#[test]
fn log_of_a_million_iterations_is_read() {
    let folder = Folder::new();
    let mut text = String::new();
    for batch in 1..=1_000_000 {
        text += &format!("INFO:root:Epoch[0] Batch[{batch}]\tSpeed: 384.19 samples/sec\n");
    }
    folder.write("1n1g/rn50_b128_fp32_1.log", text);
    let result = read(&folder);
    let figures = &result.training()[0].cases[0].counted().next().expect("it counts").figures;
    assert_eq!((figures.timed, figures.dlperf_speed.0, figures.steps[0].len()), (1_000_000, 384.19, 1_000_000));
}

#[test]
fn binary_bytes_do_not_hide_iterations() {
    let mut bytes = Vec::new();
    for line in dlperf_log(&[384.19; 30]).lines() {
        bytes.extend_from_slice(b"\xff\xfe\x00[1,0]<stderr>:");
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\xc3\r\n\x00\x00\n");
    }
    let log = log::read(&mut &bytes[..]).expect("memory can be read");
    assert_eq!((log.speeds.len(), log.damage), (30, None));
}

/// Each case is a replacement in a valid record's text, and the message.
#[test]
fn damaged_records_are_excluded_with_file_and_line() {
    let sound = text_of(&record("1n1g", 2, 0.5));
    let deep = format!("\"schema\":3,\"x\":{}{},", "[".repeat(100_000), "]".repeat(100_000));
    let cases: [(&str, &str, &str); 22] = [
        (&sound, "", "the file is empty"),
        (&sound, "[]\n", "line 1: expected a run record of kind \"run\", found \"\""),
        (
            &sound,
            "{\"kind\":\"ringmark-sweep\",\"schema\":1}\n",
            "line 1: expected a run record of kind \"run\", found \"ringmark-sweep\"",
        ),
        (
            "\"schema\":3,",
            "\"schema\":4,",
            "line 1: run record format 4 is not readable by this ringmark (up to 3): use the ringmark that",
        ),
        ("\"case\":\"1n1g\"", "\"case\":\"0n1g\"", "line 1: not a line of a run record: case \"0n1g\" has no ranks"),
        (
            "\"case\":\"1n1g\"",
            "\"case\":\"99999n99g\"",
            "line 1: not a line of a run record: case \"99999n99g\" has more than",
        ),
        ("\"ranks\":[{", "\"ranks\":4294967295,\"x\":[{", "line 1: not a line of a run record: invalid type: integer"),
        ("\"iteration\":3", "\"iteration\":4", "line 4: iteration 4, expected 3"),
        ("\"iteration\":3", "\"iteration\":4294967296", "line 4: not a line of a run record: invalid value"),
        (
            "\"iteration\":3,\"step\":[",
            "\"iteration\":3,\"step\":[NaN,",
            "line 4: not a line of a run record: expected value",
        ),
        (
            "\"iteration\":3,\"step\":[",
            "\"iteration\":3,\"step\":[null,",
            "line 4: not a line of a run record: invalid type: null",
        ),
        (
            "\"iteration\":3,\"step\":[",
            "\"iteration\":3,\"step\":[1e999,",
            "line 4: not a line of a run record: number out of",
        ),
        ("\"iteration\":3,\"step\":[", "\"iteration\":3,\"step\":[-", "line 4: step has an invalid time: -"),
        ("\"iteration\":3,\"step\":[", "\"iteration\":3,\"step\":[1,", "line 4: step has 2 values for 1 ranks"),
        ("\"optimizer\"", "\"optimizer_\"", "line 2: not a line of a run record: missing field `optimizer`"),
        ("\"schema\":3,", &deep, "line 1: not a line of a run record: recursion limit exceeded at column"),
        ("\"forward\":[", &deep, "line 2: not a line of a run record: "),
        ("{\"kind\":\"iteration\",\"iteration\":2", "\0\0\0\0{\"iteration\":2", "line 3: not a line of a run record"),
        (
            "{\"kind\":\"iteration\",\"iteration\":2",
            "{\"kind\":\"other\",\"iteration\":2",
            "line 3: not a line of a run record: unknown",
        ),
        ("{\"kind\":\"end\"", "{\"kind\":\"run\"", "line 8: not a line of a run record"),
        (
            "\"parameter_checksums\":[\"00ff\"]",
            "\"parameter_checksums\":\"00ff\"",
            "line 8: not a line of a run record",
        ),
        ("\"peak_memory\":", "\"peak_memory\":-1,\"x\":", "line 8: not a line of a run record"),
    ];
    for (part, replacement, message) in cases {
        let text = sound.replacen(part, replacement, 1);
        assert_ne!(text, sound, "{part}");
        let folder = folder();
        folder.write(RECORD, &text);
        let problem = only_problem(&folder);
        assert!(
            problem.starts_with(&format!("{RECORD}: the record cannot be used: {message}")),
            "{message}\n{problem}"
        );
    }
    let mut bytes = sound.into_bytes();
    let host = bytes.windows(9).position(|window| window == b"\"host\":\"a").expect("a host");
    bytes[host + 8] = 0xff;
    let folder = folder();
    folder.write(RECORD, bytes);
    let problem = only_problem(&folder);
    expect!["1n1g/rn50_b4_fp32_2.jsonl: the record cannot be used: line 1: not a line of a run record: invalid unicode code point at column 950"].assert_eq(&lines_with(&problem, "line 1: not"));
}

/// A record truncated at any position is a failed run or no record. The complete record is valid, also with reordered
/// keys or another system's line endings.
#[test]
fn truncated_record_never_counts() {
    let sound = text_of(&record("1n1g", 2, 0.5));
    for cut in (0..sound.len() - 1).step_by(7).chain([sound.len() - 2]) {
        let outcome = RunRecord::read(&sound.as_bytes()[..cut]);
        assert!(outcome.is_err() || outcome.is_ok_and(|record| record.failure().is_some()), "cut at {cut}");
    }
    // A file system that lost the last block leaves zeros.
    let lost = format!("{}{}", &sound[..sound.len() - 100], "\0".repeat(100));
    assert!(RunRecord::read(lost.as_bytes()).expect("a record").failure().is_some());
    for same in
        [sound.replace('\n', "\r\n"), sound.replace("{\"kind\":\"iteration\",", "{ \"kind\" : \"iteration\" , ")]
    {
        assert_ne!(same, sound);
        assert_eq!(RunRecord::read(same.as_bytes()).expect("sound"), record("1n1g", 2, 0.5));
    }
}

#[test]
fn inconsistent_headers_are_detected() {
    type Change = fn(&mut RunRecord);
    let cases: [(&str, Change); 10] = [
        ("contains case 1024n1024g, ResNet50-v1b, batch size 4, fp32, but has another file name", |record| {
            record.header.case = "1024n1024g".parse().expect("the largest case");
        }),
        ("contains case 1n1g, ResNet50-v1b, batch size 0, ", |record| record.header.config.batch_size = 0),
        ("6 iterations of 4294967295: repeat", |record| record.header.config.iterations = u32::MAX),
        ("6 iterations of 0: repeat", |record| record.header.config.iterations = 0),
        ("6 iterations, all of them warm-up (4294967295)", |record| record.header.config.warmup = u32::MAX),
        ("expected rank 0, found rank 7", |record| record.header.ranks[0].rank = 7),
        ("the record cannot be used: line 8: host_use has 2 hosts for 1 ranks", |record| {
            record.end.as_mut().expect("an end").host_use = vec![Default::default(); 2];
        }),
        ("invalid speed: 4.00e300 images/s: the clock of the run is broken", |record| {
            record.iterations.iter_mut().for_each(|iteration| iteration.step[0].0 = 1e-300);
        }),
        ("line 4: step has an invalid time: 1000000000 s", |record| record.iterations[2].step[0].0 = 1e9),
        ("all step times are 0 s: the clock of the run is broken", |record| {
            record.iterations.iter_mut().for_each(|iteration| iteration.step[0].0 = 0.0);
        }),
    ];
    for (message, change) in cases {
        let mut lying = record("1n1g", 2, 0.5);
        change(&mut lying);
        let folder = folder();
        folder.write(RECORD, text_of(&lying));
        let problem = only_problem(&folder);
        assert!(problem.contains(message), "{message}\n{problem}");
    }
    // Numbers whose sum would overflow.
    let mut huge = record("1n2g", 1, 0.5);
    huge.header.ranks.iter_mut().for_each(|place| (place.threads, place.process) = (u32::MAX, u32::MAX));
    let end = huge.end.as_mut().expect("an end");
    (end.iterations, end.skipped_steps) = (1, u32::MAX);
    end.rank_use = vec![Default::default(); 2];
    end.rank_use.iter_mut().for_each(|used| used.major_faults = u64::MAX);
    end.host_use = vec![Default::default(); 1];
    let host = &mut end.host_use[0];
    (host.host, host.cores, host.cores_of_ranks) = ("a".to_owned(), u32::MAX - 1, u32::MAX - 1);
    host.swapped_in.0 = u64::MAX;
    let folder = folder();
    folder.run(&huge);
    assert_eq!(read(&folder).problems, []);
}

/// Names are printed unchanged: the HTML writer escapes them, and control characters are not passed to a terminal.
#[test]
fn names_with_markup_and_control_characters_are_printable() {
    let mut named = record("1n1g", 2, 0.5);
    named.header.ranks[0].device_name = "<script>alert(1)</script>\u{1b}[2J | `x`".to_owned();
    named.header.ranks[0].host = "<b>a</b>".to_owned();
    named.end.as_mut().expect("an end").failure = Some("two\nlines\u{1b}[2J".to_owned());
    let folder = folder();
    folder.write(RECORD, text_of(&named));
    let problem = only_problem(&folder);
    assert_eq!(problem, format!("{RECORD}: the run failed: two lines\u{fffd}[2J: repeat it"));
    named.end.as_mut().expect("an end").failure = None;
    folder.write(RECORD, text_of(&named));
    let output =
        Command::new(env!("CARGO_BIN_EXE_ringmark")).arg("extract").arg(folder.path()).output().expect("it starts");
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(stdout.contains("<script>alert(1)</script>\u{fffd}[2J | `x`"), "{stdout}");
}

#[test]
fn non_unicode_file_names_are_reported() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    let name = OsStr::from_bytes(b"rn50_b4_fp32_\xff.log");
    fs::write(folder.path().join("1n1g").join(name), dlperf_log(&[8.0; 30]))
        .expect("a file system that takes any name");
    let problems = read(&folder).problems;
    assert!(problems[0].to_string().starts_with("1n1g/rn50_b4_fp32_\u{fffd}.log: not a run name: expected "));
}

/// Tests documents with a single JSON value, damaged in the same ways.
#[test]
fn damaged_documents_are_rejected_with_their_line() {
    type Read = fn(&[u8]) -> anyhow::Result<()>;
    let seed = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds").join(path);
        fs::read_to_string(path).expect("a seed").trim_end().to_owned()
    };
    let result = |bytes: &[u8]| {
        training::add_rows(&mut Side::new(Path::new("result"), SideKind::Training), result_json::read_rows(bytes)?)
    };
    let readers: [(&str, Read, &str, &str); 6] = [
        ("manifest", |bytes| Manifest::read(bytes).map(drop), "under_way.json", "\"options\": {"),
        ("score", |bytes| ScoreRecord::read(bytes).map(drop), "two_ranks.json", "\"seconds\":["),
        ("bandwidth", |bytes| BandwidthRecord::read(bytes).map(drop), "two_sizes.json", "\"seconds\":["),
        ("pytorch_ddp", |bytes| DdpFile::read(bytes).map(drop), "resnet50.json", "\"measurements\": ["),
        ("nccl_tests", |bytes| NcclTests::read(bytes).map(drop), "format_3.json", "\"results\":["),
        ("result", result, "small.json", "\"1n1g\": {"),
    ];
    for (name, read, file, place) in readers {
        let sound = seed(&format!("{name}/{file}"));
        read(sound.as_bytes()).expect(name);
        let line = 1 + sound[..sound.find(place).expect(place)].matches('\n').count();
        let error = |bytes: &[u8]| format!("{:#}", read(bytes).expect_err(name));
        for cut in (0..sound.len()).step_by(11) {
            let error = error(&sound.as_bytes()[..cut]);
            assert!(error.contains(" at line "), "{name} cut at {cut}: {error}");
        }
        for junk in ["NaN", "--", "\0", "{\"a\":\u{1}"] {
            let error = error(sound.replacen(place, &format!("{place}{junk}"), 1).as_bytes());
            assert!(error.contains(&format!(" at line {line} ")), "{name} with {junk:?}: {error}");
        }
        assert!(error("[".repeat(1 << 20).as_bytes()).contains("at line 1 column"), "{name}");
        assert!(error(&[0xff; 20]).contains("at line 1 column 1"), "{name}");
        assert!(error(&[0; 20]).contains("at line 1 column 1"), "{name}");
    }
}

/// Replays seeds of the fuzzer, its findings, and the committed results: unchanged, truncated, and with damaged bytes.
#[test]
fn fuzzer_seeds_and_findings_are_replayed() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    for (name, target) in TARGETS {
        let files: Vec<_> =
            fs::read_dir(seeds.join(name)).expect("seeds").map(|entry| entry.expect("one").path()).collect();
        assert!(!files.is_empty(), "{name}");
        for file in files {
            let bytes = fs::read(&file).expect("a seed");
            target(&bytes);
            for place in (0..bytes.len()).step_by(bytes.len() / 20 + 1) {
                target(&bytes[..place]);
                let mut changed = bytes.clone();
                for byte in [0, 0xff, b'9', b'-'] {
                    changed[place] = byte;
                    target(&changed);
                }
            }
        }
    }
}

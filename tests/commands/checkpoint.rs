//! `ringmark checkpoint` and `ringmark-worker checkpoint`: real files on a disk, printed and written results, rejected options,
//! failing disks, and nothing that is left behind.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::checkpoint::{
    CheckpointConfig, CheckpointRecord, CheckpointResult, Combination, FileIo, ProductTimes, RankCheckpoint, Storage,
    WriteMode, Writers, lines,
};
use ringmark_core::dimension::{Bytes, Seconds};
use ringmark_core::host::Environment;
use ringmark_core::options::value::ValueList;
use ringmark_core::validity::disturbance;
use tempfile::TempDir;

use crate::support::core_tokens::take_cores;
use crate::support::faulty_disk::FaultyDisk;
use crate::support::golden::assert_golden;
use crate::support::prerequisite::not_tested;
use crate::support::runs;
use crate::support::sandbox::{
    check_refusals, lines_with, mpirun, refused, ringmark, run, succeeds, wait_until, words,
};
use crate::support::schema;
use crate::support::temporary_folder::without_folder;
use crate::support::{processes_of, worker};

/// Size of a checkpoint: several calls that write, and not a multiple of their size.
const SIZE: u64 = 40_000_000;

/// Folder for checkpoints next to cargo's build output; prints a message and returns `None` if that is in memory.
fn on_a_disk() -> Option<TempDir> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    fs::create_dir(folder.path().join("ckpt")).expect("made");
    let (_, _, stderr) = run(&mut by_hand(1, folder.path(), "--size 4096 --iters 1 --warmup 0"));
    if stderr.contains("is in memory") {
        not_tested("the build is on a file system in memory");
        return None;
    }
    fs::remove_file(folder.path().join("record.json")).expect("written");
    Some(folder)
}

/// Returns the worker with two ranks or one, without the launcher.
fn by_hand(ranks: u32, folder: &Path, options: &str) -> Command {
    let mut command = if ranks == 1 { Command::new(worker()) } else { mpirun(ranks) };
    if ranks > 1 {
        command.arg(worker());
    }
    command.arg("checkpoint").arg("--folder").arg(folder.join("ckpt")).args(words("--device cpu --threads 1"));
    command.args(words(options)).arg("--record").arg(folder.join("record.json")).env("OMP_NUM_THREADS", "1");
    command
}

/// Returns `ringmark checkpoint` with results in the folder `out`.
fn checkpoint(folder: &Path, options: &str) -> Command {
    let mut command = ringmark("checkpoint --no-doctor --timeout 300 --device cpu --hosts localhost:2 --worker");
    command.arg(worker()).arg("--out").arg(folder.join("out")).arg("--folder").arg(folder.join("ckpt"));
    command.args(words(options));
    command
}

fn record(file: &Path) -> CheckpointRecord {
    let file = File::open(file).expect("there is a record");
    CheckpointRecord::read(BufReader::new(file)).expect("a record")
}

fn names(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}

fn total(result: &CheckpointResult) -> u64 {
    result.checkpoints[0].iter().map(|rank| rank.bytes.0).sum()
}

#[test]
fn all_writers_write_and_read_real_files() {
    let Some(folder) = on_a_disk() else { return };
    let _tokens = take_cores(2);
    let options = format!(
        "--size {SIZE} --writers rank-0,host,ranks,shards --files 1,3 --mode blocking,beside --iters 2 --warmup 1"
    );
    let stdout = succeeds(&mut checkpoint(folder.path(), &options));
    let text = fs::read_to_string(folder.path().join("out/1n2g/checkpoint.json")).expect("written");
    schema::check("checkpoint_record", &serde_json::from_str(&text).expect("JSON"), "the record");
    let record = record(&folder.path().join("out/1n2g/checkpoint.json"));
    let pages = SIZE.div_ceil(4096) * 4096;
    assert_eq!((record.bytes.0, record.ranks.len(), record.storage.len()), (pages, 2, 1));
    assert!(record.storage[0].free.0 > pages && record.storage[0].is_shared, "{:?}", record.storage);
    let combinations: Vec<Combination> = record.results.iter().map(|result| result.combination).collect();
    assert_eq!(combinations, record.config.combinations());
    assert_eq!(combinations.len(), 16);
    for result in &record.results {
        let copies = if result.combination.writers == Writers::Ranks { 2 } else { 1 };
        assert_eq!((total(result), result.checkpoints.len()), (copies * pages, 2), "{}", result.combination);
        for ranks in &result.checkpoints {
            check_ranks(ranks, result.combination);
        }
        // Nothing else reads these files, so that the kernel drops all of their pages.
        if result.storage_share().is_some() {
            assert!(result.is_cold(), "{result:?}");
        }
    }
    let is_busy = disturbance(&record).is_some();
    for line in lines::table(&record, is_busy) {
        assert!(stdout.contains(line.as_str()), "{line}\n{stdout}");
    }
    assert_eq!(names(&folder.path().join("ckpt")), Vec::<PathBuf>::new(), "files are removed");

    let report = succeeds(ringmark("report --format markdown").arg(folder.path().join("out")));
    assert!(report.contains("| shards ") && report.contains("Fastest write: "), "{report}");
    let table = succeeds(ringmark("extract").arg(folder.path().join("out")));
    assert!(table.contains("\nrank-0 ") && table.contains("\nshards "), "{table}");
    // Only the load of this machine and its disk are unknown.
    let (_, checks, stderr) = run(ringmark("check").arg(folder.path().join("out")));
    for check in ["complete", "unedited", "rules"] {
        assert!(checks.contains(&format!("PASS    {check} ")), "{checks}{stderr}");
    }
    let same = folder.path().join("out");
    let (status, compared, stderr) = run(ringmark("diff").args([&same, &same]));
    assert!(status == Some(0) && compared.contains("BASE and TEST are the same runs: "), "{compared}{stderr}");
    let error = refused(&mut checkpoint(folder.path(), &options), 2);
    assert!(error.contains("already contains"), "{error}");
}

/// Checks the times of both ranks for one checkpoint.
fn check_ranks(ranks: &[RankCheckpoint], Combination { writers, mode, .. }: Combination) {
    for (number, rank) in ranks.iter().enumerate() {
        let is_writer = number == 0 || matches!(writers, Writers::Ranks | Writers::Shards);
        let RankCheckpoint { bytes, copy, write, fsync, total, products, read, restore, .. } = *rank;
        if is_writer {
            assert!(bytes.0 > 0 && write.0 > 0.0 && fsync.0 > 0.0 && read.0 > 0.0, "{rank:?}");
            assert!(total.0 >= copy.0 + write.0 + fsync.0 && restore.0 >= read.0, "{rank:?}");
        } else {
            assert_eq!((bytes, write, total, read), (Bytes(0), Seconds(0.0), Seconds(0.0), Seconds(0.0)));
        }
        match (mode, products) {
            (WriteMode::Blocking, None) => assert_eq!(copy, Seconds(0.0), "the memory of the CPU is written itself"),
            (WriteMode::Beside, Some(ProductTimes { count, elapsed, alone })) => {
                assert!(count > 0 && elapsed.0 > 0.0 && alone.0 > 0.0 && (copy.0 > 0.0) == is_writer, "{rank:?}");
            }
            _ => panic!("{mode}: {products:?}"),
        }
    }
}

#[test]
fn direct_files_bypass_the_page_cache_or_are_refused() {
    let Some(folder) = on_a_disk() else { return };
    let _tokens = take_cores(1);
    let (status, stdout, stderr) =
        run(&mut by_hand(1, folder.path(), "--size 17M --io direct --iters 1 --writers shards"));
    if stderr.contains("does not support O_DIRECT: use --io buffered") {
        assert_eq!(status, Some(1));
        return not_tested("the file system of the build does not support O_DIRECT");
    }
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let record = record(&folder.path().join("record.json"));
    let [CheckpointResult { combination, checkpoints }] = &record.results[..] else { panic!("{record:?}") };
    assert_eq!((combination.io, checkpoints[0][0].bytes), (FileIo::Direct, Bytes(17 << 20)));
    assert!(checkpoints[0][0].from_storage.is_none_or(|bytes| bytes.0 >= 17 << 20), "{checkpoints:?}");
}

#[test]
fn unsupported_measurements_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let usage = |command: &str| refused(ringmark(command).current_dir(folder.path()), 2);
    check_refusals(
        &expect![[r#"
            checkpoint
                error: --folder is missing: use a folder on the storage to measure, such as --folder /scratch
            checkpoint --folder ckpt --size 0
                error: --size 0 is out of range: choose at least 4096 bytes
            checkpoint --folder ckpt --size 1X
                error: invalid value '1X' for '--size <SIZE>': "1X" is not a size: use bytes, or a number with K, M or G (steps of 1024), such as 64K
            checkpoint --folder ckpt --size 1G --model resnet18
                error: the argument '--size <SIZE>' cannot be used with '--model <NAME>'
            checkpoint --folder ckpt --writers rank-1
                error: invalid value 'rank-1' for '--writers <WHO,..>': "rank-1" is not one of rank-0, host, ranks, shards
            checkpoint --folder ckpt --writers shards,shards
                error: invalid value 'shards,shards' for '--writers <WHO,..>': shards is listed twice: list it once
            checkpoint --folder ckpt --io mapped
                error: invalid value 'mapped' for '--io <KIND,..>': "mapped" is not one of buffered, direct
            checkpoint --folder ckpt --mode lazy
                error: invalid value 'lazy' for '--mode <NAME,..>': "lazy" is not one of blocking, beside
            checkpoint --folder ckpt --size 8K --cases 1n4g --hosts localhost:4
                error: --writers shards: with 4 ranks, a writer has 0 pages of 4096 bytes, too few for 1 file: choose fewer --files or a larger --size
            checkpoint --folder ckpt --cases 1n1g,1n1g
                error: --cases lists 1n1g twice: list it once
            checkpoint ckpt
                error: unexpected argument 'ckpt' found
                tip: `--out ckpt` if this is the folder for the results
        "#]],
        usage,
    );
    let missing = usage("checkpoint --folder ckpt");
    expect![[r#"
        error: --folder DIR/ckpt is not a folder on this machine: create it, or choose another
    "#]]
    .assert_eq(&without_folder(&missing));
    assert!(!folder.path().join("results").exists());
    let missing = refused(&mut by_hand(1, folder.path(), "--size 4096"), 1);
    expect!["error: --folder DIR/ckpt is not a folder on this host: create it on every host"]
        .assert_eq(&lines_with(&without_folder(&missing), "--folder"));
}

/// A full disk, a broken one and a failing fsync end the run with the file and the cause, and leave no file.
#[test]
fn failing_disk_is_named_and_leaves_nothing() {
    let Some(folder) = on_a_disk() else { return };
    let _tokens = take_cores(2);
    let disk = FaultyDisk::new();
    for (ranks, call, fault, text) in [
        (1, "write", "28", "rank-0-0.part cannot be written: No space left on device"),
        (2, "write", "28", "rank-1-0.part cannot be written: No space left on device"),
        (1, "fsync", "5", "rank-0-0.part cannot be written: Input/output error"),
        (1, "read", "5", "rank-0-0 cannot be read: Input/output error"),
        (1, "read", "zero", "rank-0-0 cannot be read: failed to fill whole buffer"),
    ] {
        for mode in ["blocking", "beside"] {
            let name = if ranks == 2 { "rank-1-0" } else { "rank-0-0" };
            let options = format!("--size {SIZE} --writers shards --mode {mode}");
            let (status, stdout, stderr) = disk.run(by_hand(ranks, folder.path(), &options), call, name, fault);
            assert!(status != Some(0) && stderr.contains(text), "{call} {fault} {mode}: {stdout}{stderr}");
            assert_eq!(names(&folder.path().join("ckpt")), Vec::<PathBuf>::new(), "{call} {fault} {mode}");
            assert!(!folder.path().join("record.json").exists(), "{call} {fault}");
        }
    }
    let (status, _, stderr) = run(&mut by_hand(2, folder.path(), "--size 100000G"));
    assert!(status == Some(1) && stderr.contains("free some space, or choose another folder"), "{stderr}");
    assert_eq!(names(&folder.path().join("ckpt")), Vec::<PathBuf>::new());
    // A short or interrupted call is no failure.
    for (call, fault) in [("write", "short"), ("write", "EINTR"), ("read", "short"), ("read", "EINTR")] {
        let command = by_hand(1, folder.path(), "--size 4M --iters 1 --warmup 0 --writers rank-0");
        let (status, stdout, stderr) = disk.run(command, call, "rank-0-0", fault);
        assert_eq!(status, Some(0), "{call} {fault}: {stdout}{stderr}");
    }
}

#[test]
fn interrupted_run_leaves_nothing() {
    let Some(folder) = on_a_disk() else { return };
    let _tokens = take_cores(2);
    for (mode, signal) in [("blocking", Signal::SIGINT), ("beside", Signal::SIGTERM)] {
        let out = folder.path().join("out");
        let options = format!("--size {SIZE} --writers shards --iters 100000 --mode {mode}");
        let mut command = checkpoint(folder.path(), &options);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        let has_file = |rank: u32| {
            let ranks =
                names(&folder.path().join("ckpt")).into_iter().flat_map(|run| fs::read_dir(run).into_iter().flatten());
            let prefix = format!("rank-{rank}-");
            ranks.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        };
        wait_until("both ranks write", || has_file(0) && has_file(1));
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("running process");
        let status = child.wait().expect("ended");
        assert_eq!(status.code(), Some(128 + signal as i32), "{mode}");
        wait_until("the ranks end", || processes_of(&out).is_empty());
        thread::sleep(Duration::from_millis(100));
        assert_eq!(names(&folder.path().join("ckpt")), Vec::<PathBuf>::new(), "{mode}");
        fs::remove_dir_all(out).expect("removed");
    }
}

#[test]
fn every_case_has_its_own_job() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command =
        ringmark("checkpoint --dry-run --verbose --hosts a:8,b:8 --interface ib0 --cases 1n1g,2n8g --worker /bin/true");
    command.args(words("--folder scratch --model resnet18 --optimizer adam --writers shards --io direct"));
    let (status, stdout, stderr) = run(command.current_dir(folder.path()));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let (plan, lines): (Vec<&str>, Vec<&str>) = stdout.lines().partition(|line| line.starts_with('#'));
    expect![[r#"
        # checkpoint, 1n1g 2n8g; resnet18 with the state of adam, 0.140 GB in a checkpoint; 1 combination of 5 measured + 1 warm-up checkpoints, device auto
        # folder: FOLDER/scratch, which needs 0.140 GB if the hosts share it; 1.68 GB are written in all, and read again
        # time: about 6 s at 2 GB/s for all ranks together"#]].assert_eq(&plan[..3].join("\n").replace(&folder.path().display().to_string(), "FOLDER"));
    assert!(lines.len() == 2 && lines[1].contains(" -np 16 -H a:8,b:8 "), "{stdout}");
    let scratch = folder.path().join("scratch").display().to_string();
    let options =
        format!(" checkpoint --folder {scratch} --model resnet18 --optimizer adam --writers shards --io direct ");
    assert!(lines.iter().all(|line| line.contains(&options)), "{stdout}");
    assert!(lines[1].contains("/2n8g/checkpoint.json"), "{stdout}");
}

/// Returns a record of two hosts: rank 0 alone at 0.5 GB/s, and shards at 1 GB/s beside products.
fn made_up() -> CheckpointRecord {
    let rank = |gigabytes: f64, seconds: f64| RankCheckpoint {
        bytes: Bytes((gigabytes * 1e9) as u64),
        copy: Seconds(0.02),
        write: Seconds(0.7 * seconds),
        fsync: Seconds(0.3 * seconds - 0.02),
        total: Seconds(seconds),
        products: None,
        read: Seconds(0.5 * seconds),
        restore: Seconds(0.6 * seconds),
        from_storage: Some(Bytes((gigabytes * 1e9) as u64)),
    };
    let none = RankCheckpoint { from_storage: Some(Bytes(0)), ..RankCheckpoint::default() };
    let combination = |writers, mode| Combination { writers, files: 1, io: FileIo::Buffered, mode };
    let products = |elapsed: f64| Some(ProductTimes { count: 100, elapsed: Seconds(elapsed), alone: Seconds(0.01) });
    let beside = |factor: f64| RankCheckpoint { products: products(1.1 * factor), ..rank(0.5, factor) };
    let storage = |host: &str, is_shared| Storage {
        host: host.to_owned(),
        file_system: "nfs4".to_owned(),
        source: "server:/export".to_owned(),
        free: Bytes(1_000_000_000_000),
        is_shared,
    };
    let mut places = runs::places(2);
    places[1].host = "b".to_owned();
    CheckpointRecord {
        bytes: Bytes(1_000_000_000),
        storage: vec![storage("a", true), storage("b", true)],
        results: vec![
            CheckpointResult {
                combination: combination(Writers::Rank0, WriteMode::Blocking),
                checkpoints: [2.0, 1.9, 2.1].into_iter().map(|seconds| vec![rank(1.0, seconds), none]).collect(),
            },
            CheckpointResult {
                combination: combination(Writers::Shards, WriteMode::Beside),
                checkpoints: [1.0, 0.95, 1.05].into_iter().map(|factor| vec![beside(factor), beside(factor)]).collect(),
            },
        ],
        ..CheckpointRecord::new(
            Seconds(1.7e9),
            CheckpointConfig {
                folder: "/share/ckpt".into(),
                size: Some(Bytes(1_000_000_000)),
                ..CheckpointConfig::default()
            },
            Environment::default(),
            places,
        )
    }
}

#[test]
fn output_and_report_match_golden_lines() {
    let mut record = made_up();
    let folder = tempfile::tempdir().expect("a folder");
    let result = folder.path().join("rack");
    fs::create_dir_all(result.join("2n1g")).expect("made");
    let report = |record: &CheckpointRecord, options: &str| {
        record.write(File::create(result.join("2n1g/checkpoint.json")).expect("a file")).expect("written");
        succeeds(ringmark("report").arg(&result).args(words(options)))
    };
    let printed = lines::table(&record, false).join("\n");
    assert_golden("checkpoint/report.txt", &format!("{printed}\n\n{}", report(&record, "--format table")));
    let json: serde_json::Value = serde_json::from_str(&report(&record, "--json -")).expect("JSON");
    schema::check("report", &json, "the report");
    let case = &json["results"][0]["checkpoint"][0];
    assert_eq!((&case["case"], &case["bytes"]), (&"2n1g".into(), &1_000_000_000_u64.into()));
    assert_eq!(case["rows"][0]["write"]["median"], 0.5);
    assert_eq!(
        (&case["rows"][1]["write_by_host"][1]["host"], &case["rows"][1]["is_cold"]),
        (&"b".into(), &true.into())
    );
    let html = report(&record, "--format html");
    assert!(html.contains("Checkpoints") && html.contains("server:/export"));

    // Reads from memory are in parentheses, and the result is to be used with caution.
    record.results[0].checkpoints[1][0].from_storage = Some(Bytes(0));
    let text = report(&record, "--format markdown");
    expect![[r#"
        - Use with caution: 1 of 2 reads did not come from the storage
        rank-0, 1 file, buffered, blocking: not cold, 0 % of the bytes of a rank came from the storage: the kernel kept pages of the files, or the folder is in memory"#]].assert_eq(&lines_with(&text, "not "));
    // A record of another case.
    fs::rename(result.join("2n1g"), result.join("1n1g")).expect("renamed");
    let (status, _, stderr) = run(ringmark("report").arg(&result));
    assert_eq!(status, Some(1));
    expect!["not in the figures: rack: 1n1g/checkpoint.json: contains 2 ranks, but its folder name states another number: restore the original name"].assert_eq(&lines_with(&stderr, "ranks"));
}

/// Writes the result of one case: its record, and the log with the figures.
fn write_result(root: &Path, case: &str, record: &CheckpointRecord) {
    let folder = root.join(case);
    fs::create_dir_all(&folder).expect("made");
    record.write(File::create(folder.join("checkpoint.json")).expect("a file")).expect("written");
    fs::write(folder.join("checkpoint.log"), lines::table(record, false).join("\n") + "\n").expect("written");
}

/// Returns a complete record whose times are `factor` times those of [`made_up`].
fn complete(factor: f64) -> CheckpointRecord {
    let mut record = made_up();
    record.config.iterations = 3;
    record.config.mode = ValueList(vec![WriteMode::Beside]);
    record.config.writers = ValueList(vec![Writers::Shards]);
    record.results.remove(0);
    for rank in record.results.iter_mut().flat_map(|result| result.checkpoints.iter_mut().flatten()) {
        for time in
            [&mut rank.copy, &mut rank.write, &mut rank.fsync, &mut rank.total, &mut rank.read, &mut rank.restore]
        {
            time.0 *= factor;
        }
    }
    record
}

#[test]
fn extract_prints_records_without_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let rack = folder.path().join("rack");
    write_result(&rack, "2n1g", &made_up());
    let extract = |options: &str| run(ringmark("extract").arg(&rack).args(words(options)));
    let (status, table, stderr) = extract("");
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert_golden("checkpoint/extract.txt", &table);
    let (_, markdown, _) = extract("--format markdown");
    assert!(markdown.contains("| rank-0 "), "{markdown}");
    let (_, json, _) = extract("--json -");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    schema::check("report", &json, "the result");
    assert_eq!(json["results"][0]["checkpoint"][0]["rows"][0]["write"]["median"], 0.5);
    assert_eq!(names(&rack), [rack.join("2n1g")]);
    let refusals = ["--format csv", "--warmup 2", "--price 2/gpu-hour", "--out ."].map(|options| {
        let (status, _, stderr) = extract(options);
        assert_eq!(status, Some(2), "{stderr}");
        without_folder(&stderr)
    });
    expect![[r#"
        error: --format csv applies to sweeps, but rack contains a result of ringmark checkpoint: choose table, markdown or json
        error: --warmup applies to sweeps, but DIR/rack contains a result of ringmark checkpoint: omit it
        error: --price applies to sweeps, but DIR/rack contains a result of ringmark checkpoint: omit it
        error: --out FOLDER applies to sweeps, but DIR/rack contains a result of ringmark checkpoint: omit it
    "#]].assert_eq(&refusals.concat());
    // A damaged record of another case is named, and the others are shown.
    fs::create_dir(rack.join("1n1g")).expect("made");
    fs::write(rack.join("1n1g/checkpoint.json"), "{").expect("written");
    let (status, again, stderr) = extract("");
    let figures = |text: &str| text.split_once("\nCheckpoints\n").map(|(_, figures)| figures.to_owned());
    assert_eq!((status, figures(&again)), (Some(1), figures(&table)));
    assert!(again.contains("1 problem in the folder"), "{again}");
    assert!(stderr.starts_with("not in the figures: 1n1g/checkpoint.json: the record cannot be used"), "{stderr}");
    fs::remove_dir_all(rack.join("2n1g")).expect("there");
    let (status, _, stderr) = extract("");
    assert_eq!(status, Some(1));
    assert!(stderr.contains(" contains no valid record:\n  1n1g/checkpoint.json: "), "{stderr}");
}

#[test]
fn check_names_each_defect_of_records() {
    let folder = tempfile::tempdir().expect("a folder");
    let sound = folder.path().join("sound");
    write_result(&sound, "2n1g", &complete(1.0));
    let (status, stdout, stderr) = run(ringmark("check").arg(&sound));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    expect![[r#"
        PASS    complete  valid: 1 of 1 record
        PASS    unedited  figures of 1 record compared with the logs
        PASS    rules     options, hosts, devices and software of 1 record
        PASS    reliable  load, spread and source of the bytes of 1 record
    "#]]
    .assert_eq(&stdout);
    let bad = folder.path().join("bad");
    let mut record = complete(1.0);
    record.config.writers = ValueList(vec![Writers::Shards, Writers::Host]);
    record.storage[1].file_system.clear();
    let checkpoints = &mut record.results[0].checkpoints;
    checkpoints[0][0].from_storage = Some(Bytes(0));
    checkpoints[1][1].total = Seconds(2.0);
    write_result(&bad, "2n1g", &record);
    // The record of the second case is edited, and is that of another storage.
    let mut edited = complete(1.0);
    edited.ranks.truncate(1);
    edited.storage.truncate(1);
    edited.storage[0].source = "server:/other".to_owned();
    edited.results[0].checkpoints.iter_mut().for_each(|ranks| ranks.truncate(1));
    write_result(&bad, "1n1g", &edited);
    let file = bad.join("1n1g/checkpoint.json");
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, text.replace("0.95", "0.5")).expect("written");
    let (status, stdout, stderr) = run(ringmark("check").arg(&bad));
    assert_eq!(status, Some(1), "{stderr}");
    expect![[r#"
        FAIL    complete  1 finding; valid: 2 of 2 records
                2n1g/checkpoint.json: host, 1 file, buffered, beside: 0 of 3 checkpoints: repeat the run
        FAIL    unedited  1 finding; figures of 2 records compared with the logs
                1n1g/checkpoint.json: its figures are not in 1n1g/checkpoint.log, which has no line `shards       1  buffered  beside    0.500  0.500  0.735     0.500       0.500  0.280  0.120  0.137    10.0  1.00   100    0.600`: repeat the run
        FAIL    rules     2 findings; options, hosts, devices and software of 2 records
                2n1g/checkpoint.json: --writers is shards,host, but shards before
                2n1g/checkpoint.json: the storage of host a is nfs4 of server:/export, but nfs4 of server:/other before
        FAIL    reliable  4 findings; load, spread and source of the bytes of 2 records
                1n1g/checkpoint.json: shards, 1 file, buffered, beside: checkpoints vary by more than 10.0 % (CV): write 35.8 %: raise --iters, and keep other users off the storage
                2n1g/checkpoint.json: shards, 1 file, buffered, beside: not cold, 0 % of the bytes of a rank came from the storage: the kernel kept pages of the files, or the folder is in memory
                2n1g/checkpoint.json: shards, 1 file, buffered, beside: checkpoints vary by more than 10.0 % (CV): write 41.7 %: raise --iters, and keep other users off the storage
                2n1g/checkpoint.json: the file system of host b is unknown: repeat the run
    "#]].assert_eq(&stdout);
    let (_, json, _) = run(ringmark("check --json -").arg(&bad));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    schema::check("check", &json, "the checks");
    assert_eq!((&json["benchmark"], &json["is_passed"]), (&"checkpoint".into(), &false.into()));
}

/// Twice the time of every figure in the other result: each is slower, by 50 % in GB/s.
#[test]
fn diff_compares_each_figure_of_a_point() {
    let folder = tempfile::tempdir().expect("a folder");
    let [base, test] = ["base", "test"].map(|name| folder.path().join(name));
    write_result(&base, "2n1g", &complete(1.0));
    let mut other = complete(2.0);
    other.started.0 += 60.0;
    other.config.folder = "/scratch".into();
    other.storage.iter_mut().for_each(|storage| storage.file_system = "ext4".to_owned());
    other.results[0].checkpoints[0][1].from_storage = Some(Bytes(0));
    write_result(&test, "2n1g", &other);
    let (status, stdout, stderr) = run(ringmark("diff").args([&base, &test]));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_golden("checkpoint/diff.txt", &without_folder(&stdout));
    let (status, _, stderr) = run(ringmark("diff --fail-on slower").args([&base, &test]));
    assert!(status == Some(1) && stderr.contains("slower: write, 2 ranks on 2 hosts"), "{stderr}");
    // Checkpoints of another size are another measurement.
    other.bytes = Bytes(2_000_000_000);
    write_result(&test, "2n1g", &other);
    let refusal = refused(ringmark("diff").args([&base, &test]), 2);
    expect![[r#"
        error: BASE and TEST are not comparable:
          checkpoint of: 1,000,000,000 bytes in BASE, 2,000,000,000 bytes in TEST
        compare results with the same settings; to compare these anyway: ringmark diff DIR/base DIR/test --force
    "#]]
    .assert_eq(&without_folder(&refusal));
}

//! `ringmark input` and `ringmark-worker input`: real files and passes, printed and written results, rejected
//! options, and the verdict against a sweep.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect;
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use ringmark::cli;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::input::{
    HostPass, InputConfig, InputPass, InputRecord, PageCache, StoredImages, ThreadCounts, lines,
};
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{Augmentation, Bytes, Seconds};
use ringmark_core::host::{Environment, InitialLoad};
use ringmark_core::validity::{disturbance, host_warnings};
use tempfile::TempDir;

use crate::support::cluster::{Cluster, succeed};
use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::golden::assert_golden;
use crate::support::images::{digits, noise};
use crate::support::prerequisite::not_tested;
use crate::support::runs::{self, Folder};
use crate::support::sandbox::{Sandbox, check_refusals, fails, lines_with, refused, ringmark, run, succeeds, words};
use crate::support::schema;
use crate::support::temporary_folder::without_folder;
use crate::support::worker;

const IMAGES: u64 = 80;

/// Writes [`IMAGES`] files of 12 kB in two classes. Each is read completely, and no page contains parts of two files.
fn images(folder: &Path) -> PathBuf {
    images_of(folder, 64)
}

/// The same with squares of this edge length.
fn images_of(folder: &Path, pixels: u32) -> PathBuf {
    let data = folder.join("images");
    for class in ["one", "two"] {
        fs::create_dir_all(data.join(class)).expect("made");
    }
    let first = data.join("one/0.png");
    noise(&first, pixels);
    for number in 1..IMAGES {
        fs::copy(&first, data.join(["one", "two"][number as usize % 2]).join(format!("{number}.png"))).expect("copied");
    }
    data
}

/// Returns a folder next to cargo's build output, which is on a disk on most machines.
fn on_a_disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Returns `ringmark input` for small images, with results in the folder `out`.
fn input(folder: &Path, data: &Path, options: &str) -> Command {
    let mut command = ringmark("input --no-doctor --timeout 300 --model resnet18 --image-size 32 --prefetch 1");
    if !options.contains("--batch-size") {
        command.args(["--batch-size", "2"]);
    }
    command
        .arg("--worker")
        .arg(worker())
        .arg("--out")
        .arg(folder.join("out"))
        .arg("--data")
        .arg(data)
        .args(words(options));
    command
}

fn record(folder: &Path) -> InputRecord {
    let file = File::open(folder.join("out/input.json")).expect("there is a record");
    InputRecord::read(BufReader::new(file)).expect("a record")
}

#[test]
fn all_thread_counts_read_from_disk_and_memory() {
    let _tokens = take_all_cores();
    let folder = on_a_disk();
    let data = images(folder.path());
    let options = "--decode-threads 1,2 --batches 30 --warmup 1 --disp-batches 10";
    let (status, stdout, stderr) = run(&mut input(folder.path(), &data, options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let record = record(folder.path());
    let text = fs::read_to_string(folder.path().join("out/input.json")).expect("written");
    schema::check("input_record", &serde_json::from_str(&text).expect("JSON"), "the record");

    let passes: Vec<_> = record.passes.iter().map(|pass| (pass.cache, pass.threads)).collect();
    let (cold, warm) = (PageCache::Cold, PageCache::Warm);
    assert_eq!(passes, [(cold, 1), (cold, 2), (warm, 1), (warm, 2)]);
    assert_eq!((record.items, record.ranks.len(), record.augmentation), (IMAGES, 1, Augmentation::Imagenet));
    let stored = record.stored.expect("image files");
    assert_eq!((stored.sampled, stored.pixels, stored.shorter_edge, stored.aspect), (IMAGES, 4096.0, 64.0, 1.0));
    let is_on_disk = statfs(folder.path()).expect("it is there").filesystem_type() != TMPFS_MAGIC;
    for InputPass { cache, threads, hosts } in &record.passes {
        let [host] = hosts.as_slice() else { panic!("{hosts:?}") };
        assert_eq!(host.batches.len(), 30);
        // Images prefetched at the end may be more or fewer than at the start.
        assert!((52..=68).contains(&host.images), "{host:?}");
        assert_eq!(host.bytes.0, host.images * stored.bytes as u64);
        assert!(host.decode.0 > 0.0 && host.read.0 > 0.0 && host.augment.0 > 0.0 && host.collate.0 > 0.0, "{host:?}");
        assert!(
            host.read.0 + host.decode.0 + host.augment.0 < f64::from(*threads) * host.elapsed() * 1.5 + 0.1,
            "{host:?}"
        );
        if is_on_disk && host.from_disk.is_some() {
            assert_eq!(host.cache(), Some(*cache), "{host:?}");
        }
    }

    // The output is generated from the record, and parsers of MXNet's logs find their line.
    let printed: Vec<&str> = stdout.lines().filter(|line| line.starts_with("INFO:root:")).collect();
    let own = record.passes.iter().flat_map(|pass| lines::test_io(&pass.hosts[0], 2, 10));
    assert_eq!(printed, own.collect::<Vec<String>>());
    assert_eq!(printed.len(), 12);
    assert!(
        printed[1].starts_with("INFO:root:Batch [19]\tSpeed: ") && printed[1].ends_with(" samples/sec"),
        "{stdout}"
    );
    let is_busy = disturbance(&record).is_some();
    for line in lines::table(&record, is_busy).iter().chain(&lines::ceilings(&record, is_busy)) {
        assert!(stdout.contains(line.as_str()), "{line}\n{stdout}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("out/input.log")).expect("a log").matches("Speed: ").count(), 12);

    let table = succeeds(ringmark("extract").arg(folder.path().join("out")));
    assert!(table.contains("Images/s by decode threads"), "{table}");
    let (_, checks, stderr) = run(ringmark("check").arg(folder.path().join("out")));
    assert!(checks.starts_with("PASS    complete  valid: 1 of 1 record\nPASS    rules "), "{checks}{stderr}");
    let error = refused(&mut input(folder.path(), &data, options), 2);
    assert!(error.contains("already contains"), "{error}");
}

/// Records without an index are read sequentially: the same images, and a warm pass repeats the first of them.
#[test]
fn sequential_records_are_read_from_disk_and_memory() {
    let _tokens = take_all_cores();
    let folder = on_a_disk();
    let packed = folder.path().join("packed.rec");
    // 16 MB: the kernel's read-ahead after the first record is a small part of it.
    succeeds(ringmark("pack").arg(images_of(folder.path(), 256)).arg(&packed));
    fs::remove_file(packed.with_extension("idx")).expect("packed");
    let options = "--decode-threads 1,2 --batches 50 --warmup 1";
    let (status, stdout, stderr) = run(&mut input(folder.path(), &packed, options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let record = record(folder.path());
    assert_eq!((record.what.as_str(), record.items), ("1 RecordIO file without index", IMAGES));
    let stored = record.stored.expect("image files");
    // Samples are evenly spaced by bytes, so every record of equal size is sampled except at the edges of parts.
    assert!(
        stored.sampled * 10 > IMAGES * 9 && (stored.pixels, stored.shorter_edge) == (65_536.0, 256.0),
        "{stored:?}"
    );
    let batches: Vec<_> = record.passes.iter().map(|pass| (pass.cache, pass.hosts[0].batches.len())).collect();
    // An epoch has 40 batches of 2, of which one is warm-up.
    let (cold, warm) = (PageCache::Cold, PageCache::Warm);
    let once = (IMAGES / 2 - 1).min(50) as usize;
    assert_eq!(batches, [(cold, once), (cold, once), (warm, 50), (warm, 50)]);
    let is_on_disk = statfs(folder.path()).expect("it is there").filesystem_type() != TMPFS_MAGIC;
    for InputPass { cache, hosts, .. } in &record.passes {
        let host = &hosts[0];
        assert!(host.bytes.0 > 0 && host.decode.0 > 0.0 && host.read.0 > 0.0, "{host:?}");
        if is_on_disk && host.from_disk.is_some() {
            assert_eq!(host.cache(), Some(*cache), "{host:?}");
        }
    }
}

/// Files in memory cannot be read from a disk, even if `--cache cold` is requested.
#[test]
fn files_in_memory_are_never_cold() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return not_tested("no file can be made in /dev/shm") };
    let _tokens = take_cores(1);
    let data = images(folder.path());
    let (status, stdout, stderr) =
        run(&mut input(folder.path(), &data, "--decode-threads 1 --batches 5 --warmup 0 --cache cold"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let record = record(folder.path());
    let [InputPass { cache: PageCache::Cold, hosts, .. }] = record.passes.as_slice() else { panic!("{record:?}") };
    assert_ne!(hosts[0].cache(), Some(PageCache::Cold));
    assert_eq!(record.ceiling(0, PageCache::Cold), None);
    assert!(
        stdout.contains(": not cold, 0 % of the bytes came from disk: ") || hosts[0].from_disk.is_none(),
        "{stdout}"
    );
}

#[test]
fn short_epoch_ends_cold_pass_and_excess_threads_are_reported() {
    let _tokens = take_all_cores();
    let folder = on_a_disk();
    let data = images(folder.path());
    let options = "--decode-threads 1000 --batch-size 30 --warmup 9 --augmentation crop --cache cold";
    let (status, stdout, stderr) = run(&mut input(folder.path(), &data, options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    // One of the two complete batches remains to be measured.
    assert_eq!(record(folder.path()).passes[0].hosts[0].batches.len(), 1);
    assert!(stdout.contains(": 1000 threads share "), "{stdout}");
}

#[test]
fn bad_image_is_an_error_or_is_counted() {
    let _tokens = take_all_cores();
    let folder = on_a_disk();
    let data = images(folder.path());
    fs::write(data.join("two/broken.png"), "no image").expect("written");
    let options = "--decode-threads 2 --batch-size 81 --batches 1 --warmup 0 --cache warm";
    let stderr = fails(&mut input(folder.path(), &data, options));
    assert!(stderr.contains("two/broken.png"), "{stderr}");
    fs::remove_dir_all(folder.path().join("out")).expect("removed");
    let (status, stdout, stderr) = run(&mut input(folder.path(), &data, &format!("{options} --on-bad-image skip")));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_eq!(record(folder.path()).passes[0].hosts[0].skipped, 1);
}

#[test]
fn unsupported_measurements_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    // An empty record: magic number and length.
    fs::write(folder.path().join("a.rec"), [0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0]).expect("written");
    let usage = |command: &str| refused(ringmark(command).current_dir(folder.path()), 2);
    check_refusals(
        &expect![[r#"
            input
                error: --data is missing: use .rec files, a folder of them or of classes, MNIST's arrays, or CIFAR's files
            input --data synthetic
                error: --data is missing: use .rec files, a folder of them or of classes, MNIST's arrays, or CIFAR's files
            input --data a.rec --decode-threads 0
                error: invalid value '0' for '--decode-threads <N,..>': 0 is out of range: choose 1 to 1024
            input --data a.rec --decode-threads 1,x
                error: invalid value '1,x' for '--decode-threads <N,..>': "x" is not a number of threads: use comma-separated whole numbers, such as 1,2,4
            input --data a.rec --seconds 0
                error: --seconds 0 is out of range: choose 1 to 86400
            input --data a.rec --seconds 3 --batches 4
                error: the argument '--seconds <N>' cannot be used with '--batches <N>'
            input --data a.rec --against nowhere
                error: --against nowhere: folder not found: nowhere: pass the folder that a sweep wrote
        "#]],
        usage,
    );

    fs::create_dir(&data).expect("made");
    digits(&data, 4);
    let tokens = take_cores(1);
    let absent = folder.path().join("absent.rec");
    let foreign = folder.path().join("foreign.rec");
    fs::write(&foreign, "root:x:0:0").expect("written");
    let (status, _, stderr) = run(&mut input(folder.path(), &foreign, ""));
    assert!(
        status == Some(2) && stderr.contains("foreign.rec (first bytes 726f6f74) contains no training"),
        "{stderr}"
    );
    let (status, _, stderr) = run(input(folder.path(), &absent, "").arg("--dry-run"));
    let warning = "absent.rec does not exist on this machine: correct the path\n";
    assert!(status == Some(0) && stderr.starts_with("warning: --data: ") && stderr.ends_with(warning), "{stderr}");
    let error = refused(&mut input(folder.path(), &absent, ""), 2);
    assert!(error.ends_with(warning) && !folder.path().join("out").exists(), "{error}");
    for (data, options, message) in [
        (&data, "", "28 x 28 pixels of 1 channel, but the network takes 32 x 32 of 3"),
        (&data, "--augmentation crop", "which are used unchanged: omit --augmentation and --resize"),
    ] {
        let (status, _, stderr) = run(&mut input(folder.path(), data, &format!("--batches 1 --warmup 0 {options}")));
        assert!(status == Some(1) && stderr.contains(message), "{stderr}");
        fs::remove_dir_all(folder.path().join("out")).expect("removed");
    }
    drop(tokens);

    // Without the launcher: each of the two processes would use all cores.
    let _tokens = take_cores(2);
    let mut command = Command::new("mpirun");
    command.args(words("--allow-run-as-root --oversubscribe --bind-to none -np 2")).arg(worker());
    let (status, _, stderr) = run(command.arg("input").arg("--data").arg(&data));
    assert!(status != Some(0) && stderr.contains("2 processes on host "), "{stderr}");
}

#[test]
fn each_host_runs_one_process() {
    let sandbox = Sandbox::new("exit 1");
    let mut command =
        ringmark("input --dry-run --hosts a:8,b:4 --interface ib0 --data data/train.rec --decode-threads 2,4 --seed 3");
    let (status, stdout, stderr) =
        run(command.arg("--worker").arg(sandbox.worker()).current_dir(sandbox.folder.path()));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let (plan, lines): (Vec<&str>, Vec<&str>) = stdout.lines().partition(|line| line.starts_with('#'));
    expect![[r#"
        # input, hosts: 2; passes: 4 of 10 s, cold,warm with 2,4 threads
        # time: about 40 s"#]]
    .assert_eq(&plan[..2].join("\n"));
    let [line] = lines[..] else { panic!("{stdout}") };
    assert!(line.starts_with("mpirun ") && line.contains(" -np 2 -H a:1,b:1 "), "{line}");
    let data = sandbox.path("data/train.rec").display().to_string();
    assert!(line.contains(&format!(" input --data {data} --decode-threads 2,4 --seed 3 --record ")), "{line}");
}

/// Returns the record of a host with 8 cores that decodes 400 x 500 px at 150 images/s per core from memory, and at
/// half of this from the disk.
fn input_record(speeds: [f64; 3]) -> InputRecord {
    let pass = |cache: PageCache, threads: u32, speed: f64| {
        let bytes = Bytes(128 * 100_000);
        let host = HostPass {
            batches: vec![Seconds(64.0 / speed); 2],
            images: 128,
            bytes,
            from_disk: Some(if cache == PageCache::Cold { bytes } else { Bytes(0) }),
            read: Seconds(0.0128),
            decode: Seconds(0.768),
            augment: Seconds(0.0256),
            collate: Seconds(0.000_128),
            ..HostPass::default()
        };
        InputPass { cache, threads, hosts: vec![host] }
    };
    InputRecord {
        cores: vec![8],
        what: "1 RecordIO file with index".to_owned(),
        items: 10_000,
        stored: Some(StoredImages { sampled: 128, bytes: 1e5, pixels: 200_000.0, shorter_edge: 400.0, aspect: 1.25 }),
        augmentation: Augmentation::Imagenet,
        decoder: Some("zune-jpeg 0.5.15".to_owned()),
        passes: vec![
            pass(PageCache::Cold, 8, speeds[0]),
            pass(PageCache::Warm, 1, speeds[1]),
            pass(PageCache::Warm, 8, speeds[2]),
        ],
        ..InputRecord::new(
            Seconds(1.7e9),
            InputConfig {
                data: Some("/data/train.rec".to_owned()).into(),
                batch_size: 64,
                decode_threads: ThreadCounts(vec![1, 8]),
                ..InputConfig::default()
            },
            Environment::default(),
            runs::places(1),
        )
    }
}

/// Returns a sweep of 1n1g and 1n2g on CPU ranks with images of 224 px: 4 images per rank in 2.09 ms, or 1,914 and
/// 3,828 images/s.
fn sweep(change: impl Fn(&mut TrainConfig)) -> Folder {
    let folder = Folder::new();
    for case in ["1n1g", "1n2g"] {
        let mut record = runs::record(case, 1, 0.002);
        record.header.config.image_size = Some(224);
        change(&mut record.header.config);
        folder.run(&record);
    }
    folder
}

#[test]
fn output_matches_golden_lines() {
    let (record, folder) = (input_record([600.0, 160.0, 1200.0]), sweep(|_| {}));
    let judge = cli::launch::input::judge(&folder.path()).expect("a sweep");
    let mxnet = record.passes.iter().flat_map(|pass| lines::test_io(&pass.hosts[0], 64, 1));
    let text = mxnet.chain(lines::table(&record, false)).chain(lines::ceilings(&record, false)).chain(judge(&record));
    assert_golden("input/lines.txt", &(text.collect::<Vec<String>>().join("\n") + "\n"));
}

#[test]
fn report_lists_foreign_load_once_as_unreliable() {
    let mut record = input_record([600.0, 160.0, 1200.0]);
    record.environment.load_before = Some(InitialLoad { hosts: "a".to_owned(), load: 4.0, cores: 8 });
    record.warnings = host_warnings(&record);
    assert_eq!(record.warnings.len(), 1);
    let (folder, mut text) = (Folder::new(), Vec::new());
    record.write(&mut text).expect("an in-memory write succeeds");
    folder.write("input.json", text);
    let report = succeeds(ringmark("report").arg(folder.path()));
    let (findings, _) = report.split_once("\nReading and decoding\n").expect(&report);
    expect![[r#"
        Reading and decoding, 1 host: 1 RecordIO file with index

        - Unreliable: busy machine
        - From memory: (1,200 images/s); (with 8 threads)
        - Per core: (150.0 images/s); (with 8 threads)
        - From the disk: (600.0 images/s); (with 8 threads)

        In parentheses: unreliable; the lines below "Unreliable figures" give the reason and the fix.

        started 2023-11-14 22:13:20 UTC · host a

        Unreliable figures

        - other processes used the hosts' cores: input 50.0 % of a (load average before the first run)
        - fix: stop other processes, then repeat 1n1g
    "#]]
    .assert_eq(&without_folder(findings));
}

#[test]
fn demand_is_compared_with_host_ceiling() {
    let folder = sweep(|_| {});
    let judge = cli::launch::input::judge(&folder.path()).expect("a sweep");
    // (1914 - 1200) / 150 = 4.8 cores. Of 6.67 ms per image and core 4.18 are available, so 3.51 of 6.00 for
    // decoding: 117,000 px.
    let lines = judge(&input_record([600.0, 160.0, 1200.0]));
    for line in [
        "1n1g: input ceiling 1,200 images/s per host: 1 CPU rank needs 1,914; 5 more cores or images stored at 304 px",
        "1n2g: input ceiling 1,200 images/s per host: 2 CPU ranks need 3,828; 18 more cores",
    ] {
        assert!(lines.iter().any(|output_text| output_text == line), "{lines:?}");
    }

    let empty = tempfile::tempdir().expect("a folder");
    let error = format!("{:#}", cli::launch::input::judge(empty.path()).err().expect("refused"));
    expect!["--against DIR: DIR contains no runs: looked for <case>/<model>_b<batch>_<dtype>_<run>.log, for example 1n1g/rn50_b128_fp32_1.log; it contains no results of ringmark"].assert_eq(&without_folder(&error));
}

/// Runs that read images show the demand of a single device if it did not wait for them.
#[test]
fn image_sweep_is_judged_by_its_smallest_case() {
    let folder = sweep(|config| config.data = Some("a.rec".to_owned()).into());
    let judge = cli::launch::input::judge(&folder.path()).expect("a sweep");
    let output_text = |speeds: [f64; 3], line: &str| {
        let lines = judge(&input_record(speeds));
        assert!(lines.iter().any(|output_text| output_text == line), "{lines:?}");
    };
    output_text(
        [600.0, 400.0, 3000.0],
        "1n1g: input ceiling 3,000 images/s per host: 1 CPU rank needs 1,914; enough: 6 of 8 cores",
    );
    output_text(
        [600.0, 400.0, 3000.0],
        "1n2g: input ceiling 3,000 images/s per host: 2 CPU ranks need 3,828 (1,914 each, as in 1n1g); 3 more cores or images \
         stored at 376 px; they trained at 3,828, above the input rate: they used other hosts or images",
    );
    output_text(
        [600.0, 160.0, 1200.0],
        "1n2g: 1n1g itself trained at 1,914 images/s per device, the same as the input rate (1,200): the demand of a \
         device is unknown; repeat 1n1g with synthetic images",
    );
}

/// DLPerf's published FP16 row (batch size 256, V100): hosts of 8 GPUs reach 2.6 to 2.9 thousand images/s regardless
/// of their number, while one GPU has 834. The input of hosts that decode 2,950 images/s explains this.
#[test]
fn input_limit_of_dlperf_fp16_is_reported() {
    let folder = Folder::new();
    for (case, speed) in [
        ("1n1g", 833.65),
        ("1n2g", 1373.55),
        ("1n4g", 2331.91),
        ("1n8g", 2908.88),
        ("2n8g", 5451.27),
        ("4n8g", 10565.55),
    ] {
        folder.write(&format!("{case}/rn50_b256_fp16_1.log"), runs::dlperf_log(&[speed; 120]));
    }
    let lines =
        cli::launch::input::judge(&folder.path()).expect("DLPerf's logs")(&input_record([2950.0, 368.75, 2950.0]));
    // Four hosts train less than their input allows: the network between them is a limit too.
    let was_limit = "equal to the input rate: the input was the limit";
    for (case, need, end) in [
        ("1n2g", "2 GPUs need 1,667 (834 each, as in 1n1g); enough: 5 of 8 cores", "not limited by the input"),
        ("1n8g", "8 GPUs need 6,669 (834 each, as in 1n1g); 11 more cores", was_limit),
        ("2n8g", "8 GPUs need 6,669 (834 each, as in 1n1g); 11 more cores", was_limit),
        ("4n8g", "8 GPUs need 6,669 (834 each, as in 1n1g); 11 more cores", "another bottleneck also limited them"),
    ] {
        let begin = format!("{case}: input ceiling 2,950 images/s per host: {need}");
        let is_said = |output_text: &String| output_text.starts_with(&begin) && output_text.ends_with(end);
        assert!(lines.iter().any(is_said), "{begin} .. {end}\n{lines:#?}");
    }
}

/// A report shows an input result next to the sweep that it feeds: one chart with both, and a verdict for every case.
#[test]
fn report_shows_ceiling_and_demand() {
    let (folder, sweep) = (tempfile::tempdir().expect("a folder"), sweep(|_| {}));
    let own = folder.path().join("rack");
    fs::create_dir(&own).expect("made");
    input_record([600.0, 160.0, 1200.0]).write(File::create(own.join("input.json")).expect("a file")).expect("written");
    let report = |options: &str| {
        let (status, stdout, stderr) = run(ringmark("report").arg(&own).arg(sweep.path()).args(words(options)));
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
        stdout
    };
    let text = report("--format markdown").split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    for line in [
        "host a: from memory 1,200 images/s with 8 threads; 150 images/s per core with 8 of 8; from disk 600 images/s",
        "| 1n1g | 1,914 | 1,200 | 5 more cores or images stored at 304 px | 600 | a faster disk,",
        "| 1n2g | 3,828 | 1,200 | 18 more cores | 600 | a faster disk,",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let html = report("--format html");
    for words in ["decode threads", "1 CPU rank needs 1,914 images/s", "2 CPU ranks need 3,828 images/s"] {
        assert!(html.contains(words), "{words}");
    }
    let json: serde_json::Value = serde_json::from_str(&report("--json -")).expect("JSON");
    schema::check("report", &json, "the report");
    let input = &json["results"][0]["input"];
    assert_eq!(input["hosts"][0]["from_memory"], 1200.0);
    let verdict = &input["verdicts"][1];
    assert_eq!((&verdict["label"], &verdict["memory"]["more_cores"]), (&"1n2g".into(), &18.into()));
    assert_eq!(input["verdicts"][0]["memory"]["stored_edge"], 304);
    assert!(verdict["trained"].is_null() && verdict["disk"]["is_enough"] == false, "{verdict}");

    // Without a sweep, the input result is on the first screen.
    let (status, alone, stderr) = run(ringmark("report").arg(&own));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{alone}");
    expect!["Reading and decoding, 1 host: 1 RecordIO file with index"]
        .assert_eq(&lines_with(&alone, "Reading and decoding,"));
}

/// The complete command: the lines after its table are the verdict computed from the record and the sweep.
#[test]
fn run_against_a_result_ends_with_verdict() {
    let _tokens = take_cores(1);
    let (folder, result) = (on_a_disk(), sweep(|config| config.image_size = Some(32)));
    let data = images(folder.path());
    let mut command = input(folder.path(), &data, "--decode-threads 1 --batches 5 --warmup 1 --cache warm");
    let (status, stdout, stderr) = run(command.arg("--against").arg(result.path()));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let judge = cli::launch::input::judge(&result.path()).expect("a sweep");
    let lines = judge(&record(folder.path()));
    assert!(lines.len() >= 2, "{lines:?}");
    for line in lines {
        assert!(stdout.contains(&format!("\n# {line}\n")), "{line}\n{stdout}");
    }
}

#[test]
fn hosts_read_concurrently_in_separate_rows() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let folder = on_a_disk();
    let data = images(folder.path());
    let out = folder.path().join("out");
    let mut command = cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark"), "input", "--no-doctor", "--hosts"]);
    command.arg(format!("{}:2,{}:2", cluster.host(1), cluster.host(2))).arg("--worker").arg(worker());
    command.args(words("--interface 10.77.0.0/24 --model resnet18 --image-size 32 --batch-size 2 --decode-threads 1"));
    command.args(words("--batches 5 --warmup 1")).arg("--out").arg(&out).arg("--data").arg(&data);
    let output = command.output().expect("starts");
    succeed(&output);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let record = record(folder.path());
    let hosts: Vec<&str> = record.ranks.iter().map(|place| place.host.as_str()).collect();
    assert!(hosts.len() == 2 && hosts[0] != hosts[1], "{hosts:?}");
    assert!(record.passes.iter().all(|pass| pass.hosts.len() == 2), "{record:?}");
    for line in lines::table(&record, disturbance(&record).is_some()) {
        assert!(stdout.contains(line.as_str()), "{line}\n{stdout}");
    }
}

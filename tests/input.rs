//! `ringmark input` and `ringmark-worker input`: real files, real passes, what is printed, written and refused; and the verdict
//! against a sweep.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use ringmark::read;
use ringmark_record::benchmark::Record;
use ringmark_record::benchmark::input::config::{InputConfig, PageCache, ThreadCounts};
use ringmark_record::benchmark::input::lines;
use ringmark_record::benchmark::input::pass::{HostPass, InputPass};
use ringmark_record::benchmark::input::record::{InputRecord, SCHEMA, StoredImages};
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::dimension::image_input::Augmentation;
use ringmark_record::dimension::units::{Bytes, Seconds};
use ringmark_record::host::environment::Environment;
use tempfile::TempDir;

use crate::cluster::{Cluster, succeed};
use crate::golden::assert_golden;
use crate::images::{digits, noise};
use crate::runs::{self, Folder};
use crate::sandbox::{Sandbox, refused, ringmark, run, words};
use crate::{schema, turn, worker};

const IMAGES: u64 = 80;

/// So many files of 12 kB in two classes: each is read whole, and none in the pages of another.
fn images(folder: &Path) -> PathBuf {
    let data = folder.join("images");
    for class in ["one", "two"] {
        fs::create_dir_all(data.join(class)).expect("made");
    }
    let first = data.join("one/0.png");
    noise(&first, 64);
    for number in 1..IMAGES {
        fs::copy(&first, data.join(["one", "two"][number as usize % 2]).join(format!("{number}.png"))).expect("copied");
    }
    data
}

/// Beside what cargo builds, which lies on a disk on most machines.
fn on_a_disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// `ringmark input` of small images, into the folder `out`.
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
fn every_number_of_threads_reads_from_the_disk_and_from_memory() {
    let _turn = turn();
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
    assert_eq!((stored.looked_at, stored.pixels, stored.shorter_edge, stored.aspect), (IMAGES, 4096.0, 64.0, 1.0));
    let is_on_disk = statfs(folder.path()).expect("it is there").filesystem_type() != TMPFS_MAGIC;
    for InputPass { cache, threads, hosts } in &record.passes {
        let [host] = hosts.as_slice() else { panic!("{hosts:?}") };
        assert_eq!(host.batches.len(), 30);
        // Those ahead at the end are more than those at the start, or fewer.
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

    // What is printed is made of the record, and readers of MXNet's logs find their line.
    let printed: Vec<&str> = stdout.lines().filter(|line| line.starts_with("INFO:root:")).collect();
    let own = record.passes.iter().flat_map(|pass| lines::test_io(&pass.hosts[0], 2, 10));
    assert_eq!(printed, own.collect::<Vec<String>>());
    assert_eq!(printed.len(), 12);
    assert!(
        printed[1].starts_with("INFO:root:Batch [19]\tSpeed: ") && printed[1].ends_with(" samples/sec"),
        "{stdout}"
    );
    for line in lines::table(&record).iter().chain(&lines::ceilings(&record)) {
        assert!(stdout.contains(line.as_str()), "{line}\n{stdout}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("out/input.log")).expect("a log").matches("Speed: ").count(), 12);

    let error = refused(ringmark("extract").arg(folder.path().join("out")), 1);
    assert!(error.contains("it holds a result of `ringmark input`, whose table is in its input.log"), "{error}");
    let error = refused(&mut input(folder.path(), &data, options), 2);
    assert!(error.contains("already holds"), "{error}");
}

/// What lies in memory cannot be read from a disk, whoever asks for it.
#[test]
fn files_in_memory_are_never_called_cold() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
    let _turn = turn();
    let data = images(folder.path());
    let (status, stdout, stderr) =
        run(&mut input(folder.path(), &data, "--decode-threads 1 --batches 5 --warmup 0 --cache cold"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let record = record(folder.path());
    let [InputPass { cache: PageCache::Cold, hosts, .. }] = record.passes.as_slice() else { panic!("{record:?}") };
    assert_ne!(hosts[0].cache(), Some(PageCache::Cold));
    assert_eq!(record.ceiling(0, PageCache::Cold), None);
    assert!(
        stdout.contains(": not cold, 0 % of the bytes came from the disk: ") || hosts[0].from_disk.is_none(),
        "{stdout}"
    );
}

#[test]
fn a_short_epoch_ends_a_cold_pass_and_a_number_of_threads_beyond_the_cores_is_said() {
    let _turn = turn();
    let folder = on_a_disk();
    let data = images(folder.path());
    let options = "--decode-threads 1000 --batch-size 30 --warmup 9 --augmentation crop --cache cold";
    let (status, stdout, stderr) = run(&mut input(folder.path(), &data, options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    // Of two whole batches one is left to be measured.
    assert_eq!(record(folder.path()).passes[0].hosts[0].batches.len(), 1);
    assert!(stdout.contains(": 1000 threads take turns on its "), "{stdout}");
}

#[test]
fn a_bad_image_ends_it_or_is_counted() {
    let _turn = turn();
    let folder = on_a_disk();
    let data = images(folder.path());
    fs::write(data.join("two/broken.png"), "no image").expect("written");
    let options = "--decode-threads 2 --batch-size 81 --batches 1 --warmup 0 --cache warm";
    let (status, stdout, stderr) = run(&mut input(folder.path(), &data, options));
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains("two/broken.png"), "{stderr}");
    fs::remove_dir_all(folder.path().join("out")).expect("removed");
    let (status, stdout, stderr) = run(&mut input(folder.path(), &data, &format!("{options} --on-bad-image skip")));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert_eq!(record(folder.path()).passes[0].hosts[0].skipped, 1);
}

#[test]
fn what_cannot_be_measured_is_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let usage = |options: &str| refused(ringmark(&format!("input {options}")).current_dir(folder.path()), 2);
    for (options, message) in [
        ("", "--data is missing: name .rec files, a folder of them or of classes, or MNIST's arrays"),
        ("--data synthetic", "--data is missing"),
        ("--data a.safetensors", "--data a.safetensors is one batch, of which nothing is read or decoded"),
        ("--data a.rec --decode-threads 0", "'--decode-threads <N,..>': 0 is out of range: choose 1 to 1024"),
        ("--data a.rec --decode-threads 1,x", "\"x\" is no number of threads"),
        ("--data a.rec --seconds 0", "--seconds 0 is out of range"),
        ("--data a.rec --image-size 5 --model resnet18", "--image-size 5 is not for resnet18"),
        ("--data a.rec --seconds 3 --batches 4", "cannot be used with"),
        ("--data a.rec --against nowhere", "--against nowhere: "),
    ] {
        let error = usage(options);
        assert!(error.contains(message), "{options}: {error}");
    }

    let _turn = turn();
    fs::create_dir(&data).expect("made");
    digits(&data, 4);
    let [absent, without_index] = ["absent.rec", "packed.rec"].map(|name| folder.path().join(name));
    let (status, _, stderr) = run(ringmark("pack").arg(images(folder.path())).arg(&without_index));
    assert_eq!(status, Some(0), "{stderr}");
    fs::remove_file(without_index.with_extension("idx")).expect("packed");
    for (data, options, message) in [
        (
            &without_index,
            "",
            "1 RecordIO file without index, and what is read twice is read by number: make the .idx by",
        ),
        (&absent, "", "absent.rec cannot be opened"),
        (&data, "", "28 x 28 pixels of 1 channel, and the network takes 32 x 32 of 3"),
        (&data, "--augmentation crop", "which are taken as they are: leave out --augmentation and --resize"),
    ] {
        let (status, _, stderr) = run(&mut input(folder.path(), data, &format!("--batches 1 --warmup 0 {options}")));
        assert!(status == Some(1) && stderr.contains(message), "{stderr}");
        fs::remove_dir_all(folder.path().join("out")).expect("removed");
    }

    // Without the launcher: two processes would share the cores that each believes to have.
    let mut command = Command::new("mpirun");
    command.args(words("--allow-run-as-root --oversubscribe --bind-to none -np 2")).arg(worker());
    let (status, _, stderr) = run(command.arg("input").arg("--data").arg(&data));
    assert!(status != Some(0) && stderr.contains("2 processes on host "), "{stderr}");
}

#[test]
fn one_process_a_host_whatever_its_slots() {
    let sandbox = Sandbox::new("exit 1");
    let mut command =
        ringmark("input --dry-run --hosts a:8,b:4 --interface ib0 --data data/train.rec --decode-threads 2,4 --seed 3");
    let (status, stdout, stderr) =
        run(command.arg("--worker").arg(sandbox.worker()).current_dir(sandbox.folder.path()));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let [line] = stdout.lines().collect::<Vec<_>>()[..] else { panic!("{stdout}") };
    assert!(line.starts_with("mpirun ") && line.contains(" -np 2 -H a:1,b:1 "), "{line}");
    let data = sandbox.path("data/train.rec").display().to_string();
    assert!(line.contains(&format!(" input --data {data} --decode-threads 2,4 --seed 3 --record ")), "{line}");
}

/// One host of 8 cores that decodes 400 x 500 px at 150 images/s of a core from memory, and half as much from the disk.
fn made(speeds: [f64; 3]) -> InputRecord {
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
        kind: InputRecord::KIND.to_owned(),
        schema: SCHEMA,
        started: Seconds(1.7e9),
        config: InputConfig {
            data: Some("/data/train.rec".to_owned()).into(),
            batch_size: 64,
            decode_threads: ThreadCounts(vec![1, 8]),
            ..InputConfig::default()
        },
        environment: Environment::default(),
        ranks: runs::places(1),
        cores: vec![8],
        what: "1 RecordIO file with index".to_owned(),
        items: 10_000,
        stored: Some(StoredImages { looked_at: 128, bytes: 1e5, pixels: 200_000.0, shorter_edge: 400.0, aspect: 1.25 }),
        augmentation: Augmentation::Imagenet,
        decoder: "zune-jpeg 0.5.15".to_owned(),
        passes: vec![
            pass(PageCache::Cold, 8, speeds[0]),
            pass(PageCache::Warm, 1, speeds[1]),
            pass(PageCache::Warm, 8, speeds[2]),
        ],
        host_use: Vec::new(),
        rank_use: Vec::new(),
        warnings: Vec::new(),
        failure: None,
    }
}

/// A sweep of 1n1g and 1n2g on CPU ranks with images of 224 px: 4 images a rank in 2.09 ms, which is 1,914 and 3,828 images/s.
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
fn the_lines_are_as_they_were() {
    let (record, folder) = (made([600.0, 160.0, 1200.0]), sweep(|_| {}));
    let judge = read::input::judge(&folder.path()).expect("a sweep");
    let mxnet = record.passes.iter().flat_map(|pass| lines::test_io(&pass.hosts[0], 64, 1));
    let text = mxnet.chain(lines::table(&record)).chain(lines::ceilings(&record)).chain(judge(&record));
    assert_golden("input/lines.txt", &(text.collect::<Vec<String>>().join("\n") + "\n"));
}

#[test]
fn what_each_case_needs_lies_beside_what_the_host_has() {
    let folder = sweep(|_| {});
    let judge = read::input::judge(&folder.path()).expect("a sweep");
    // (1914 - 1200) / 150 = 4.8 cores; of 6.67 ms of a core 4.18 may be taken, so 3.51 of 6.00 for decoding: 117,000 px.
    let lines = judge(&made([600.0, 160.0, 1200.0]));
    for line in [
        "1n1g: input ceiling 1,200 images/s per host: 1 CPU rank needs 1,914; 5 more cores or images stored at 304 px",
        "1n2g: input ceiling 1,200 images/s per host: 2 CPU ranks need 3,828; 18 more cores",
    ] {
        assert!(lines.iter().any(|said| said == line), "{lines:?}");
    }

    let refusal = |folder: &Path| format!("{:#}", read::input::judge(folder).err().expect("refused"));
    let error = refusal(&sweep(|config| config.data = Some("a.rec".to_owned()).into()).path());
    assert!(error.contains("read images (--data a.rec), so that its speed may be its input's"), "{error}");
    let error = refusal(tempfile::tempdir().expect("a folder").path());
    assert!(error.contains("holds no runs"), "{error}");
}

/// The command, whole: what it prints behind its table is what the record says of the sweep.
#[test]
fn a_run_against_a_result_ends_in_its_verdict() {
    let _turn = turn();
    let (folder, result) = (on_a_disk(), sweep(|config| config.image_size = Some(32)));
    let data = images(folder.path());
    let mut command = input(folder.path(), &data, "--decode-threads 1 --batches 5 --warmup 1 --cache warm");
    let (status, stdout, stderr) = run(command.arg("--against").arg(result.path()));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let judge = read::input::judge(&result.path()).expect("a sweep");
    let lines = judge(&record(folder.path()));
    assert!(lines.len() >= 2, "{lines:?}");
    for line in lines {
        assert!(stdout.contains(&format!("\n# {line}\n")), "{line}\n{stdout}");
    }
}

#[test]
fn all_hosts_read_at_once_and_each_has_its_row() {
    let Some(cluster) = Cluster::up(2) else { return };
    let _turn = turn();
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
    for line in lines::table(&record) {
        assert!(stdout.contains(line.as_str()), "{line}\n{stdout}");
    }
}

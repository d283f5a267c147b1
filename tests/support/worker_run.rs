//! Runs of the real worker and their results: `ringmark-worker train` under real mpirun at sizes that take seconds.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{self, Pid};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use tempfile::TempDir;

use crate::support::core_tokens::take_cores;
use crate::support::safetensors::{self, Stored, Tensors};
use crate::support::sandbox::{PATIENCE, mpirun, wait_until, words};
use crate::support::temporary_folder::without_folder;
use crate::support::{processes_of, worker};

/// Options of a run unless a test sets them.
const DEFAULTS: [(&str, &str); 5] =
    [("--device", "cpu"), ("--threads", "1"), ("--batch-size", "2"), ("--image-size", "32"), ("--warmup", "0")];

/// Options for an update of full size in the first iteration, without DLPerf's learning-rate warm-up.
pub const AT_ONCE: &str = "--lr-warmup-iters 0 --momentum 0 --weight-decay 0";

/// Polling interval. The timeout counts these instead of wall time, which continues while a machine is suspended.
const NAP: Duration = Duration::from_millis(10);

/// A call of the worker, in its own temporary folder.
pub struct Run {
    pub command: Command,
    pub folder: TempDir,
    /// Number of ranks, each with one thread.
    pub ranks: u32,
}

/// Results of a run.
pub struct Finished {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// Record of the run, if it wrote one.
    pub record: Option<RunRecord>,
    pub took: Duration,
    pub folder: TempDir,
}

impl Run {
    /// Starts the worker without mpirun.
    pub fn single_rank(options: &str) -> Run {
        let folder = tempfile::tempdir().expect("a folder");
        let mut run = Run { command: Command::new(in_folder(&folder)), folder, ranks: 1 };
        run.train(options);
        run
    }

    /// Runs `ranks` ranks, under mpirun if there are several.
    pub fn ranks(ranks: u32, options: &str) -> Run {
        if ranks == 1 { Run::single_rank(options) } else { Run::processes(ranks, "", options) }
    }

    /// Runs this number of processes under mpirun with additional options of mpirun.
    pub fn processes(number: u32, of_mpirun: &str, options: &str) -> Run {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = mpirun(number);
        command.args(words(of_mpirun)).arg(in_folder(&folder));
        let mut run = Run { command, folder, ranks: number };
        run.train(options);
        run
    }

    fn train(&mut self, options: &str) {
        let record = self.path("record.jsonl");
        self.command.arg("train").args(words(options)).arg("--record").arg(record);
        for (option, value) in DEFAULTS {
            let other = match option {
                "--batch-size" => "--global-batch",
                "--image-size" => "--sequence-length",
                option => option,
            };
            if !words(options).any(|word| word == option || word == other) {
                self.command.args([option, value]);
            }
        }
        self.command.env("OMP_NUM_THREADS", "1");
    }

    /// Uses another worker than the default one.
    pub fn program(self, path: &Path) -> Run {
        let link = self.path("worker");
        fs::remove_file(&link).and_then(|()| std::os::unix::fs::symlink(path, &link)).expect("linked");
        self
    }

    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    pub fn file(mut self, option: &str, path: &Path) -> Run {
        self.command.arg(option).arg(path);
        self
    }

    /// Saves the final weights; [`Finished::weights`] reads them.
    pub fn save(self) -> Run {
        let path = self.path("saved.safetensors");
        self.file("--save", &path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs to completion. Output goes to files, so that a full pipe cannot block a rank.
    pub fn finish(self) -> Finished {
        self.finish_after(|_, _| ())
    }

    /// Runs to completion; `meanwhile` gets the path of standard output and the folder.
    pub fn finish_after(mut self, meanwhile: impl FnOnce(&Path, &Path)) -> Finished {
        let _tokens = take_cores(self.ranks);
        let (stdout, stderr) = (self.path("stdout"), self.path("stderr"));
        let file = |path: &Path| File::create(path).expect("created");
        self.command.stdin(Stdio::null()).stdout(file(&stdout)).stderr(file(&stderr));
        let started = Instant::now();
        let mut child = self.command.spawn().expect("starts");
        meanwhile(&stdout, self.folder.path());
        let mut naps = 0;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            if NAP * naps > PATIENCE {
                for (process, _) in processes_of(self.folder.path()) {
                    // A process that has just ended needs no signal.
                    let _ = kill(process, Signal::SIGKILL);
                }
                panic!("still running after {PATIENCE:?}: {:?}", self.command);
            }
            naps += 1;
            thread::sleep(NAP);
        };
        let took = started.elapsed();
        let text = |path: &Path| fs::read_to_string(path).expect("UTF-8");
        let record = File::open(self.path("record.jsonl")).ok();
        Finished {
            status: status.code(),
            stdout: text(&stdout),
            stderr: text(&stderr),
            record: record.map(|file| RunRecord::read(BufReader::new(file)).expect("a record")),
            took,
            folder: self.folder,
        }
    }

    /// Returns the record of a run that must be valid.
    pub fn valid_record(self) -> RunRecord {
        self.finish().valid_record()
    }

    /// Returns the standard error of a run that must fail with exit status `status` and write no record.
    pub fn refused(self, status: i32) -> String {
        let Finished { status: actual, stdout, stderr, record, .. } = self.finish();
        assert_eq!(actual, Some(status), "{stdout}{stderr}");
        assert_eq!(record, None, "{stderr}");
        stderr
    }

    /// Returns the message of a run that must be [`refused`](Run::refused) by one rank or by all, without MPI's own
    /// lines, host name and folder.
    pub fn refusal(self, status: i32) -> String {
        let stderr = self.refused(status);
        let host = unistd::gethostname().expect("a name").into_string().expect("UTF-8");
        let text = without_folder(&stderr).replace(&format!("host {host}"), "host HOST");
        let text = text.replace(&format!("{host}=1"), "HOST=1");
        let of_rank = |line: &str| Some(line.strip_prefix("error: rank ")?.split_once(" on host HOST: ")?.1.to_owned());
        let of_ranks: BTreeSet<String> = text.lines().filter_map(of_rank).collect();
        match of_ranks.is_empty() {
            true => text.split("-----").next().unwrap_or_default().to_owned(),
            false => Vec::from_iter(of_ranks).join("\n"),
        }
    }
}

impl Finished {
    pub fn valid_record(self) -> RunRecord {
        assert_eq!(self.status, Some(0), "{}", self.stderr);
        let record = self.record.expect("a successful run leaves a record");
        assert_eq!(record.failure(), None);
        record
    }

    pub fn weights(&self) -> Tensors {
        assert_eq!(self.status, Some(0), "{}", self.stderr);
        safetensors::read(&self.saved())
    }

    pub fn saved(&self) -> PathBuf {
        self.folder.path().join("saved.safetensors")
    }
}

/// Links the worker into `folder`, which distinguishes its processes from those of other tests.
pub fn in_folder(folder: &TempDir) -> PathBuf {
    let link = folder.path().join("worker");
    std::os::unix::fs::symlink(worker(), &link).expect("linked");
    link
}

pub fn checksums(record: &RunRecord) -> &[String] {
    &record.end.as_ref().expect("an end").parameter_checksums
}

/// Returns the one checksum that all ranks of a valid run have.
pub fn checksum(record: &RunRecord) -> &str {
    let checksums = checksums(record);
    assert_eq!(checksums.len(), record.header.ranks.len());
    assert!(checksums.iter().all(|checksum| checksum == &checksums[0]), "{checksums:?}");
    &checksums[0]
}

/// Returns rank 0's losses.
pub fn losses(record: &RunRecord) -> Vec<f64> {
    record.iterations.iter().map(|iteration| iteration.loss[0]).collect()
}

/// Creates a file that every test of this process reads. It is not in a temporary folder, because statics are never
/// dropped and 100 MB per call would be left. Created atomically, for tests that run in parallel.
pub fn kept(name: &str, write: impl FnOnce(&Path)) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let part = path.with_extension(std::process::id().to_string());
    write(&part);
    fs::rename(&part, &path).expect("renamed");
    path
}

/// Returns weights of ResNet-18 that do not depend on the seed of the run that reads them.
pub fn small_init() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let options = format!("--model resnet18 --iters 1 --lr 0 --freeze-batch-norm {AT_ONCE}");
        let saved = Run::single_rank(&options).save().finish();
        kept("resnet18.safetensors", |path| fs::copy(saved.saved(), path).map(drop).expect("copied"))
    })
}

/// Returns the distance between `one` and `other` relative to the distance of `other` from `start`, over a sample of
/// every tensor.
pub fn apart(one: &Tensors, other: &Tensors, start: &Tensors) -> f64 {
    let (mut difference, mut way) = (0.0, 0.0);
    for (name, other) in other.iter().filter(|(name, _)| !name.contains("running") && !name.contains("tracked")) {
        let step = other.bytes.len() / 4 / 2000 + 1;
        for ((one, other), start) in one[name].every(step).zip(other.every(step)).zip(start[name].every(step)) {
            difference += f64::from(one - other).powi(2);
            way += f64::from(other - start).powi(2);
        }
    }
    assert!(way > 0.0, "nothing moved");
    (difference / way).sqrt()
}

/// Creates a batch of `count` different images of 32 pixels.
pub fn batch(count: usize) -> Tensors {
    let images = (0..count as u64 * 3 * 32 * 32).map(|number| 1.7 * safetensors::unit(number));
    let labels: Vec<i64> = (0..count as i64).map(|number| 7 + 251 * number % 1000).collect();
    Tensors::from([
        ("images".to_owned(), Stored::floats(&[count, 3, 32, 32], images)),
        ("labels".to_owned(), Stored::integers(&[count], &labels)),
    ])
}

/// Trains ResNet-18 for one step that is far larger than the rounding of its weights, for any number of ranks with
/// `images` images of `data` each.
pub fn gradient_step(data: &Path, ranks: u32, servers: u32, images: u32, options: &str) -> Tensors {
    // The learning rate is multiplied by the number of ranks.
    let rate = 1.0 / f64::from(ranks);
    let step = format!("--model resnet18 --iters 1 --batch-size {images} --lr {rate} --freeze-batch-norm {AT_ONCE}");
    let run = Run::ranks(ranks + servers, &format!("{step} {options}"));
    run.file("--init", small_init()).file("--data", data).save().finish().weights()
}

/// Returns the process with rank `rank` under mpirun among those whose program is in `folder`.
pub fn process_of_rank(folder: &Path, rank: u32) -> Pid {
    // Set by mpirun and by srun.
    let wanted = format!("PMIX_RANK={rank}");
    let is_wanted = |(process, _): &(Pid, String)| {
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    processes_of(folder).into_iter().find(is_wanted).expect("it runs").0
}

/// Waits until no rank is left: a rank stopped by mpirun may need a moment.
pub fn assert_no_rank_left(folder: &Path) {
    wait_until("no rank is left", || processes_of(folder).is_empty());
}

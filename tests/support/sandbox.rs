//! A folder with a worker, and helpers to run `ringmark` in it and check for leftover processes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::Expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use ringmark_core::line::dlperf::{self, LogLine};
use ringmark_core::progress::Progress;

use super::prerequisite::not_tested;
use super::temporary_folder::without_folder;

/// Time after which a command is considered hung.
pub const PATIENCE: Duration = Duration::from_secs(900);

/// First lines of a worker script; they set `$record`, `$rank` and `$folder`.
const PREAMBLE: &str = "#!/bin/sh
words=$*
while [ $# -gt 0 ]; do case \"$1\" in --record|--json) record=$2;; esac; shift; done
rank=${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}
folder=$(dirname \"$0\")
";

/// Options of mpirun for tests, up to the number of ranks.
pub const MPIRUN: &str = "--allow-run-as-root --oversubscribe --bind-to none -np";

/// Ranks that wait forever and ignore SIGTERM.
pub const HANGING: &str = "
trap '' TERM
echo before
touch \"$folder/started.$rank\"
while true; do sleep 1; done
";

/// A separate folder for one test.
pub struct Sandbox {
    pub folder: tempfile::TempDir,
}

impl Sandbox {
    /// Creates a sandbox with `script` as its worker.
    pub fn new(script: &str) -> Sandbox {
        let sandbox = Sandbox::empty();
        sandbox.write_program("worker", &format!("{PREAMBLE}{script}"));
        sandbox
    }

    /// Creates a sandbox with a link to the real worker. The link's path distinguishes its processes from those of
    /// other tests.
    pub fn real() -> Sandbox {
        let sandbox = Sandbox::empty();
        symlink(crate::support::worker(), sandbox.worker()).expect("linked");
        sandbox
    }

    fn empty() -> Sandbox {
        Sandbox { folder: tempfile::tempdir().expect("a folder") }
    }

    pub fn write_program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path(name);
        write_program(&path, script);
        path
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn worker(&self) -> PathBuf {
        self.path("worker")
    }

    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path("out").join(name)).expect(name)
    }

    /// Returns the reason of the failed run in the log.
    pub fn failure(&self, name: &str) -> String {
        match dlperf::parse(self.log(name).lines().last().expect("a line")) {
            LogLine::Failed(reason) => reason,
            other => panic!("the last line is {other:?}"),
        }
    }

    /// Returns the command lines of processes that still run this sandbox's worker, or mpirun for it.
    pub fn left(&self) -> Vec<String> {
        crate::support::processes_of(self.folder.path()).into_iter().map(|(_, line)| line).collect()
    }

    /// Waits until this many ranks of [`HANGING`] run.
    pub fn wait_for_ranks(&self, count: usize) {
        wait_until("the ranks start", || (0..count).all(|rank| self.path(&format!("started.{rank}")).exists()));
    }
}

/// A small disk, mounted for one test.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of 256 kB at `path`, which must not exist. Prints a message and returns `None` without the necessary
    /// privileges.
    pub fn mount(path: &Path) -> Option<SmallDisk> {
        SmallDisk::with_size(path, "256k")
    }

    /// Mounts a disk of another size.
    pub fn with_size(path: &Path, size: &str) -> Option<SmallDisk> {
        fs::create_dir(path).expect("made");
        let mut mount = Command::new("mount");
        mount.args(words(&format!("-t tmpfs -o size={size} ringmark-test"))).arg(path);
        if !Uid::effective().is_root() || !mount.output().is_ok_and(|output| output.status.success()) {
            not_tested("only root can mount a disk");
            return None;
        }
        Some(SmallDisk { path: path.to_owned() })
    }

    /// Fills the disk, leaving `free` bytes.
    pub fn fill_except(&self, free: u64) {
        let mut file = File::create(self.path.join("filling")).expect("created");
        while file.write_all(&[0; 512]).is_ok() {}
        let length = file.metadata().expect("it is there").len();
        file.set_len(length - free).expect("shortened");
    }

    pub fn make_room(&self) {
        fs::remove_file(self.path.join("filling")).expect("removed");
    }

    pub fn remount(&self, how: &str) {
        let mount = Command::new("mount").arg("-o").arg(format!("remount,{how}")).arg(&self.path).output();
        let mount = mount.expect("it starts");
        assert!(mount.status.success(), "{}", String::from_utf8_lossy(&mount.stderr));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The folder is removed next.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).output();
    }
}

/// Prints the command's standard error, which would otherwise be removed with the folder of a failing test.
impl Drop for Sandbox {
    fn drop(&mut self) {
        if thread::panicking()
            && let Ok(stderr) = fs::read_to_string(self.path("stderr"))
        {
            println!("standard error of {}:\n{stderr}", self.folder.path().display());
        }
    }
}

/// Writes an executable file from a separate process. If this process wrote it, a child forked by another test at
/// that moment would keep it open for writing until its exec, and the kernel would refuse to execute the file ("Text
/// file busy").
pub fn write_program(path: &Path, script: &str) {
    let text = path.with_extension("text");
    fs::write(&text, script).expect("written");
    let installed = Command::new("install").arg("--mode=755").arg(&text).arg(path).status().expect("coreutils");
    assert!(installed.success(), "{} is written", path.display());
    fs::remove_file(text).expect("removed");
}

/// Copies a program, from a separate process as in [`write_program`].
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = Command::new("cp").args([from.as_ref(), to.as_ref()]).status().expect("coreutils");
    assert!(status.success(), "{} is copied", from.as_ref().display());
}

/// Compiles `source`, a file in `tests/programs`, to a shared library at `path`.
pub fn compile_library(source: &str, path: &Path, options: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]).args(options).arg("-o").arg(path);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source)).arg("-ldl");
    assert!(compiler.status().expect("there is a C compiler").success());
}

/// Polls until `has_happened` returns true, and fails with `what` after five minutes: everything is slow on a busy
/// machine.
pub fn wait_until(what: &str, mut has_happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !has_happened() {
        assert!(Instant::now() < end, "timed out: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns true if the command with results in `out` has received an iteration from each of `processes` ranks and
/// servers. They report once a second, and messages use these positions.
pub fn all_have_reported(out: &Path, processes: usize) -> bool {
    let job = Progress::read_in(out).ok().and_then(|state| state.job);
    job.is_some_and(|job| job.ranks.len() == processes && job.ranks.iter().all(|rank| rank.iteration > 0))
}

/// Returns true if this rank has reported an iteration after its first one to the command with results in `out`. It
/// has then left the barrier before the first iteration, and its pushes have arrived at the servers.
pub fn has_pushed(out: &Path, rank: u32) -> bool {
    let job = Progress::read_in(out).ok().and_then(|state| state.job);
    job.is_some_and(|job| job.ranks.iter().any(|at| at.rank == rank && !at.is_server && at.iteration > 1))
}

/// Returns the lines of a plan without free memory and time, which depend on the load of this machine.
pub fn without_estimates(plan: &str) -> String {
    let varies = |line: &&str| line.starts_with("# memory: ") || line.starts_with("# time: ");
    plan.lines().filter(|line| !varies(line)).map(|line| format!("{line}\n")).collect()
}

pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

pub fn ringmark(options: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmark"));
    command.args(words(options)).stdin(Stdio::null());
    command
}

/// Runs a command; returns exit status, standard output and standard error. Fails if the command is hung.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let pid = Pid::from_raw(child.id().try_into().expect("a process identifier"));
    let (ended, watch) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let is_late = watch.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        is_late && kill(pid, Signal::SIGTERM).is_ok()
    });
    let Output { status, stdout, stderr } = child.wait_with_output().expect("a child");
    drop(ended);
    assert!(!watchdog.join().expect("no panic"), "still running after {PATIENCE:?}: {command:?}");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// Returns the lines that contain `part`, without indentation, for a snapshot.
pub fn lines_with(text: &str, part: &str) -> String {
    let lines = text.lines().filter(|line| line.contains(part)).map(str::trim_start);
    without_folder(&lines.collect::<Vec<_>>().join("\n"))
}

/// Runs a command that must end with exit status 0; returns its standard output.
pub fn succeeds(command: &mut Command) -> String {
    let (status, stdout, stderr) = run(command);
    assert_eq!(status, Some(0), "{command:?}: {stdout}{stderr}");
    stdout
}

/// Runs a command that must end with exit status 1; returns its standard error.
pub fn fails(command: &mut Command) -> String {
    let (status, stdout, stderr) = run(command);
    assert_eq!(status, Some(1), "{command:?}: {stdout}{stderr}");
    stderr
}

/// Returns mpirun with options for any number of ranks on this machine; the program follows.
pub fn mpirun(ranks: u32) -> Command {
    let mut command = Command::new("mpirun");
    command.args(words(MPIRUN)).arg(ranks.to_string()).stdin(Stdio::null());
    command
}

/// Calls `refuse` for the options in the snapshot and compares its messages, which are indented, without clap's usage
/// notes. A line with other options and `UPDATE_EXPECT=1` add a case.
pub fn check_refusals(expected: &Expect, refuse: impl Fn(&str) -> String) {
    let lines = || expected.data().lines().filter(|line| !line.trim().is_empty());
    let indent = |line: &str| line.len() - line.trim_start().len();
    let outermost = lines().map(indent).min();
    let refusal = |line: &str| {
        let error = refuse(line.trim());
        let message = ["\n\nUsage: ", "\n\nFor more information"]
            .iter()
            .fold(error.as_str(), |text, note| text.split(note).next().unwrap_or_default());
        let message = message.lines().map(str::trim).filter(|line| !line.is_empty());
        format!("{}\n{}", line.trim(), message.map(|line| format!("    {line}\n")).collect::<String>())
    };
    let options = lines().filter(|line| Some(indent(line)) == outermost);
    expected.assert_eq(&without_folder(&options.map(refusal).collect::<String>()));
}

/// Runs a command that must fail with exit status `code` and an empty standard output; returns its standard error.
pub fn refused(command: &mut Command, code: i32) -> String {
    let (status, stdout, stderr) = run(command);
    assert_eq!((status, stdout.as_str()), (Some(code), ""), "{stderr}");
    stderr
}

//! A folder with a worker in it, and what it takes to run `ringmark` there and look at what is left.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use ringmark_core::line::dlperf::{self, Line};
use ringmark_core::progress::Progress;

/// What a worker script begins with: `$record`, `$rank` and `$folder`.
const PREAMBLE: &str = "#!/bin/sh
words=$*
while [ $# -gt 0 ]; do case \"$1\" in --record|--json) record=$2;; esac; shift; done
rank=${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}
folder=$(dirname \"$0\")
";

/// Ranks that wait for ever and do not mind SIGTERM.
pub const HANGING: &str = "
trap '' TERM
echo before
touch \"$folder/started.$rank\"
while true; do sleep 1; done
";

/// A folder of its own for one test.
pub struct Sandbox {
    /// Gone with the value.
    pub folder: tempfile::TempDir,
}

impl Sandbox {
    /// With a worker made of `script`.
    pub fn new(script: &str) -> Sandbox {
        let sandbox = Sandbox::empty();
        sandbox.write_program("worker", &format!("{PREAMBLE}{script}"));
        sandbox
    }

    /// With the real worker, under a name in the folder, which is how its processes are told from those of other tests.
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

    /// A log below the folder `out`.
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path("out").join(name)).expect(name)
    }

    /// Why the log says that the run failed.
    pub fn failure(&self, name: &str) -> String {
        match dlperf::parse(self.log(name).lines().last().expect("a line")) {
            Line::Failed(reason) => reason,
            other => panic!("the last line is {other:?}"),
        }
    }

    /// Command lines of the processes that still run this sandbox's worker, or mpirun for it.
    pub fn left(&self) -> Vec<String> {
        crate::support::processes_of(self.folder.path()).into_iter().map(|(_, line)| line).collect()
    }

    /// Waits until so many ranks of [`HANGING`] run.
    pub fn wait_for_ranks(&self, count: usize) {
        wait_until("the ranks start", || (0..count).all(|rank| self.path(&format!("started.{rank}")).exists()));
    }
}

/// A disk of 256 kB, mounted for one test.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts one at `path`, which must not exist. Returns `None`, with a note on standard error, without the right to.
    pub fn mount(path: &Path) -> Option<SmallDisk> {
        fs::create_dir(path).expect("made");
        let mut mount = Command::new("mount");
        mount.args(words("-t tmpfs -o size=256k ringmark-test")).arg(path);
        if !Uid::effective().is_root() || !mount.output().is_ok_and(|output| output.status.success()) {
            eprintln!("not tested: a disk is mounted by root alone");
            return None;
        }
        Some(SmallDisk { path: path.to_owned() })
    }

    /// Writes until no more than so many bytes go onto it.
    pub fn fill_but(&self, free: u64) {
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

/// What a failing test leaves goes with its folder: it shows what the command said.
impl Drop for Sandbox {
    fn drop(&mut self) {
        if thread::panicking()
            && let Ok(stderr) = fs::read_to_string(self.path("stderr"))
        {
            println!("standard error of {}:\n{stderr}", self.folder.path().display());
        }
    }
}

/// Written by a process of its own: a file that this one writes stays open for writing in whatever another test forks at
/// that moment, and until that has become its program the kernel starts no process from the file ("Text file busy").
pub fn write_program(path: &Path, script: &str) {
    let text = path.with_extension("text");
    fs::write(&text, script).expect("written");
    let installed = Command::new("install").arg("--mode=755").arg(&text).arg(path).status().expect("coreutils");
    assert!(installed.success(), "{} is written", path.display());
    fs::remove_file(text).expect("removed");
}

/// Copies a program; by a process of its own, like [`write_program`].
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let status = Command::new("cp").args([from.as_ref(), to.as_ref()]).status().expect("coreutils");
    assert!(status.success(), "{} is copied", from.as_ref().display());
}

/// Compiles `source`, a file in `tests/programs`, into a shared library at `path`.
pub fn compile_library(source: &str, path: &Path, options: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]).args(options).arg("-o").arg(path);
    compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source)).arg("-ldl");
    assert!(compiler.status().expect("there is a C compiler").success());
}

/// Looks again and again; `what` is said where it does not happen. On a busy machine much takes long that is sound.
pub fn wait_until(what: &str, mut has_happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(300);
    while !has_happened() {
        assert!(Instant::now() < end, "it does not happen that {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the command that writes into `out` has heard of an iteration from each of so many ranks and servers: they
/// say once a second where they are, and messages have their places from that.
pub fn all_are_heard(out: &Path, processes: usize) -> bool {
    let job = Progress::read_in(out).ok().and_then(|state| state.job);
    job.is_some_and(|job| job.ranks.len() == processes && job.ranks.iter().all(|rank| rank.iteration > 0))
}

/// Whether the command that writes into `out` has heard from this rank that it is beyond its first iteration: it has left the
/// barrier before it, and what it pushes to servers has come.
pub fn has_pushed(out: &Path, rank: u32) -> bool {
    let job = Progress::read_in(out).ok().and_then(|state| state.job);
    job.is_some_and(|job| job.ranks.iter().any(|at| at.rank == rank && !at.is_server && at.iteration > 1))
}

pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

pub fn ringmark(options: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringmark"));
    command.args(words(options)).stdin(Stdio::null());
    command
}

/// Exit status, standard output and standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// Standard error of a command that must end with exit status `code` and have printed nothing.
pub fn refused(command: &mut Command, code: i32) -> String {
    let (status, stdout, stderr) = run(command);
    assert_eq!((status, stdout.as_str()), (Some(code), ""), "{stderr}");
    stderr
}

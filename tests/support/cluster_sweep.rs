//! Sweeps over the hosts of a cluster that run while a test injects a fault.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::dimension::Case;

use crate::support::cluster::Cluster;
use crate::support::sandbox::{all_have_reported, words};
use crate::support::{virtual_gpu, worker};

/// Longest time without observed progress.
const PATIENCE: Duration = Duration::from_secs(300);

/// A sweep that runs while a test injects a fault.
pub struct Sweep {
    /// `ringmark` itself: the script executes it with `exec`.
    pub launcher: Child,
    pub out: PathBuf,
    /// Last case, in which the fault is injected.
    case: Case,
    /// Number of ranks and servers of that case.
    processes: usize,
    /// Log of an earlier attempt at that case, which exists until this sweep moves it aside.
    earlier_log: String,
    errors: PathBuf,
}

#[derive(Debug)]
pub struct FaultOutcome {
    pub status: Option<i32>,
    /// End of the standard error: the reason, and how to resume.
    pub last_line: String,
    /// Time from the fault to the end of the launcher.
    pub time: Duration,
    pub log: String,
}

impl Sweep {
    /// Starts one run of each of `cases`, small enough for four ranks on two cores.
    pub fn start(cluster: &Cluster, folder: &Path, cases: &str, options: &str) -> Sweep {
        let (out, errors) = (folder.join("out"), folder.join("stderr"));
        let case: Case = cases.rsplit(',').next().expect("a case").parse().expect("a case");
        let servers = words(options).skip_while(|word| *word != "--servers").nth(1);
        let servers: usize = servers.map_or(0, |number| number.parse().expect("a number"));
        let earlier_log = log_of(&out, case);
        let stderr = fs::File::create(&errors).expect("created");
        let mut command = command(cluster, cases, &out, options);
        let launcher = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().expect("starts");
        Sweep { launcher, out, case, processes: case.ranks() as usize + servers, earlier_log, errors }
    }

    /// Returns the log so far of the last case's first run, finished or not.
    pub fn log(&self) -> String {
        let log = log_of(&self.out, self.case);
        if log == self.earlier_log { String::new() } else { log }
    }

    /// Returns true if the last case has completed a few iterations.
    pub fn has_trained(&self) -> bool {
        self.log().matches("Epoch[0] Batch[").count() >= 3
    }

    /// Waits until the last case has trained and every process has reported to the launcher.
    pub fn reach(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !(self.has_trained() && all_have_reported(&self.out, self.processes)) {
            let is_over = self.launcher.try_wait().expect("a child").is_some() || Instant::now() > end;
            assert!(!is_over, "{}\n{}", self.errors(), self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.launcher.id().cast_signed()), signal).expect("it runs");
    }

    /// Waits for the launcher to exit, as long as the run makes progress.
    pub fn end(&mut self, since: Instant) -> FaultOutcome {
        let (mut written, mut last_line_at) = (0, since);
        loop {
            let now = self.log().len();
            if now != written {
                (written, last_line_at) = (now, Instant::now());
            }
            if let Some(status) = self.launcher.try_wait().expect("a child") {
                let errors = self.errors();
                let reason = errors.lines().rev().take_while(|line| !line.starts_with("    ")).collect::<Vec<_>>();
                let last_line = reason.into_iter().rev().collect::<Vec<_>>().join(" | ");
                let log = self.log();
                return FaultOutcome { status: status.code(), last_line, time: since.elapsed(), log };
            }
            assert!(last_line_at.elapsed() < PATIENCE, "the launcher goes on: {}\n{}", self.errors(), self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Sweep {
    /// Ends the launcher of a test that failed half-way.
    fn drop(&mut self) {
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

/// Returns the log of a case's first run in `out`, finished or not. Logs that were moved aside have another ending.
fn log_of(out: &Path, case: Case) -> String {
    let files = fs::read_dir(out.join(case.to_string())).into_iter().flatten().flatten();
    let is_log = |path: &PathBuf| ["_1.log", "_1.log.part"].iter().any(|end| path.to_string_lossy().ends_with(end));
    let log = files.map(|file| file.path()).find(is_log);
    log.map_or_else(String::new, |log| fs::read_to_string(log).unwrap_or_default())
}

pub fn command(cluster: &Cluster, cases: &str, out: &Path, options: &str) -> Command {
    let mut command = cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark"), "sweep", "--cases", cases]);
    if !options.contains("--hosts") {
        let hosts: Vec<String> = (1..=4).map(|number| format!("{}:1", cluster.host(number))).collect();
        command.args(["--hosts", &hosts.join(",")]);
    }
    if !options.contains("--worker") {
        command.arg("--worker").arg(worker());
    }
    command
        .arg("--out")
        .arg(out)
        .args(words("--no-doctor --interface eth0 --runs 1 --model resnet18 --batch-size 2 --threads 1"));
    if options.contains("--device cuda") {
        command.envs(virtual_gpu::variables());
    } else {
        command.args(["--device", "cpu"]);
    }
    if !options.contains("--image-size") {
        command.args(words("--image-size 32"));
    }
    if !options.contains("--stall-timeout") {
        command.args(words("--stall-timeout 10"));
    }
    if !options.contains("--iters") {
        command.args(words("--iters 60 --warmup 4"));
    }
    command.args(words(options));
    command
}

/// Returns the processes of a host except its sshd, which keeps a session open until it detects that a link is down.
fn processes_on(cluster: &Cluster, number: usize) -> Vec<(Pid, String)> {
    let output = Command::new("ip").args(["netns", "pids", &cluster.host(number)]).output().expect("ip starts");
    let numbers = String::from_utf8_lossy(&output.stdout).into_owned();
    let process = |number: &str| {
        let line = fs::read(format!("/proc/{number}/cmdline")).ok().filter(|line| !line.is_empty())?;
        Some((Pid::from_raw(number.parse().ok()?), String::from_utf8_lossy(&line).replace('\0', " ")))
    };
    numbers.lines().filter_map(process).filter(|(_, line)| !line.contains("sshd")).collect()
}

pub fn rank_on(cluster: &Cluster, number: usize) -> Pid {
    let program = worker().display().to_string();
    let ranks = processes_on(cluster, number).into_iter().filter(|(_, line)| line.starts_with(&program));
    let rank = |(process, _): &(Pid, String)| -> u32 {
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let variables = String::from_utf8_lossy(&variables).into_owned();
        let number = variables.split('\0').find_map(|variable| variable.strip_prefix("OMPI_COMM_WORLD_RANK="));
        number.expect("a rank of mpirun's").parse().expect("a number")
    };
    ranks.max_by_key(rank).expect("a rank").0
}

/// Waits until none of our processes is left on any host.
pub fn until_empty(cluster: &Cluster) {
    let processes = || (1..=4).flat_map(|number| processes_on(cluster, number)).collect::<Vec<_>>();
    let end = Instant::now() + PATIENCE;
    while !processes().is_empty() {
        assert!(Instant::now() < end, "left: {:?}", processes());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Prints a line for readers of the test's output.
pub fn print(fault: &str, outcome: &FaultOutcome) {
    println!("{fault:<34} {:>5.1} s  {}", outcome.time.as_secs_f64(), outcome.last_line);
}

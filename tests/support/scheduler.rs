//! Tests shared by the schedulers Slurm and Grid Engine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::accept::{Cause, Fitness, VERDICT, Verdict};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;

use crate::support::cluster::{Cluster, succeed};
use crate::support::sandbox::{HANGING, Sandbox, run, wait_until, words};
use crate::support::{processes_of, worker};

pub const RINGMARK: &str = env!("CARGO_BIN_EXE_ringmark");
/// Options for the real worker, over the network of the hosts.
pub const SMALL: &str = "--model mxnet-lenet --batch-size 2 --warmup 1 --dtype fp32 --threads 1 --interface eth0";
/// Log of the case that uses all hosts.
pub const LOG: &str = "2n2g/rn50_b128_fp32_1.log";

/// Criteria of `accept` for which no host is slow: all hosts share the cores of this machine.
const CRITERIA: &str =
    "smallest_defect = 0.95\nmissed = 0.1\nmax_repeats = 2\nstages = [\"alone\", \"pairs\", \"whole\"]\n";

/// A scheduler under test.
pub struct Scheduler<'a> {
    /// Hosts with two slots or GPUs each.
    pub cluster: &'a Cluster,
    /// Value of `--launcher`.
    pub name: &'static str,
    /// Command that runs a program in a job on both hosts, and waits for its end.
    pub run: &'static str,
    pub starter: &'static str,
}

impl Scheduler<'_> {
    /// Returns `ringmark sweep` with this sandbox's worker, in a job on both hosts.
    pub fn sweep(&self, sandbox: &Sandbox, options: &str) -> Command {
        let mut command = self.in_a_job(RINGMARK);
        command.args(["sweep", "--launcher", self.name, "--runs", "1", "--worker"]).arg(sandbox.worker());
        command.arg("--out").arg(sandbox.path("out")).args(words(options));
        command
    }

    /// Runs `ringmark accept` in a job, with `script` as the worker, which finds the real one as `$folder/real`. Checks that
    /// no process is left. Returns the output, and the verdict.
    pub fn accept(&self, script: &str, options: &[&str]) -> (String, Verdict) {
        let sandbox = Sandbox::new(script);
        symlink(worker(), sandbox.path("real")).expect("linked");
        fs::write(sandbox.path("criteria.toml"), CRITERIA).expect("written");
        let mut command = self.in_a_job(RINGMARK);
        command.args(["accept", "--launcher", self.name, "--worker"]).arg(sandbox.worker());
        command.arg("--out").arg(sandbox.path("out")).arg("--criteria").arg(sandbox.path("criteria.toml"));
        command.args(words("--device cpu --interface eth0 --drain-list -")).args(options);
        let (status, stdout, stderr) = run(&mut command);
        let text = format!("{stdout}{stderr}");
        println!("{text}");
        assert_eq!(status, Some(1), "{text}");
        wait_until("no process is left", || sandbox.left().is_empty());
        let verdict = fs::read(sandbox.path("out").join(VERDICT)).expect("written");
        (text, serde_json::from_slice(&verdict).expect("a verdict"))
    }

    /// Returns `program` in a job on all hosts.
    pub fn in_a_job(&self, program: &str) -> Command {
        let mut command = self.cluster.command(&["run"]);
        command.args(words(self.run)).arg(program).stdin(Stdio::null());
        command
    }

    /// Returns the command that submits a batch script (`scripts/...`) with `submit` in the sandbox's folder, which
    /// contains ringmark at the same path as the repository.
    pub fn submit(&self, sandbox: &Sandbox, submit: &str, script: &str, options: &str) -> Command {
        let programs = worker().parent().expect("a program lies in a folder").to_owned();
        fs::create_dir_all(sandbox.path("target")).expect("made");
        symlink(programs, sandbox.path("target/release")).expect("linked");
        let mut command = self.cluster.command(&["run"]);
        command.args(words(submit)).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
        command.args(words(options)).args(["--runs", "1", "--worker"]).arg(sandbox.worker());
        command.current_dir(sandbox.folder.path());
        command
    }

    /// Checks that a rank's exit status is reported as the sweep's failure, and that a case that does not fit the job
    /// is rejected. Returns the log.
    pub fn failures_are_named(&self) -> String {
        // mpirun does not report a rank that exits before the others run.
        let sandbox = Sandbox::new(
            "touch \"$folder/started.$rank\"
            for other in 0 1 2; do until [ -e \"$folder/started.$other\" ]; do sleep 0.1; done; done
            [ $rank = 3 ] && exit 7
            while true; do sleep 1; done",
        );
        let output = self.sweep(&sandbox, "--cases 2n2g").output().expect("starts");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let log = sandbox.log(LOG);
        assert_eq!(sandbox.failure(LOG), "rank 3 of 4 exited with status 7", "{log}");
        wait_until("no rank is left", || sandbox.left().is_empty());

        let output = self.sweep(&Sandbox::new("exit 1"), "--cases 2n4g").output().expect("starts");
        let output_text = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&output_text);
        assert_eq!(output.status.code(), Some(2), "{output_text}");
        let slots = format!("case 2n4g needs 4 slots per host, but {} has 2: request more ", self.cluster.host(1));
        assert!(output_text.contains(&slots), "{output_text}");
        log
    }

    /// Checks that `ringmark run` starts a program for every rank, with its place and the address of the first host, and
    /// leaves no process of it.
    pub fn programs_know_their_place(&self) {
        let sandbox = Sandbox::real();
        // A file, because qrsh passes words to a shell.
        let program = sandbox.write_program(
            "train",
            "#!/bin/sh
            echo \"place $RANK of $WORLD_SIZE: $(hostname), $MASTER_ADDR\"
            sleep 1000 &
            for step in 1 2 3 4 5 6; do echo \"iter $step: loss 2.0, time 10.00ms\"; sleep 0.05; done
            env >&2",
        );
        let mut command = self.in_a_job(RINGMARK);
        command.args(["run", "--launcher", self.name, "--worker"]).arg(sandbox.worker());
        command.arg("--out").arg(sandbox.path("out")).args(words("--runs 1 --cases 2n2g --batch-size 2 --warmup 1"));
        command.args(words("--interface eth0 --model images --lines nanogpt --")).arg(program);
        succeed(&command.output().expect("starts"));
        let record = self.record(&sandbox, "out/2n2g/images_b2_fp32_1.jsonl", &[1, 1, 2, 2]);
        assert_eq!(record.iterations.len(), 6);
        let log = sandbox.log("2n2g/images_b2_fp32_1.log");
        let [first, second] = [1, 2].map(|number| self.cluster.host(number));
        for (rank, host) in [&first, &first, &second, &second].into_iter().enumerate() {
            let place = format!("> {rank}: place {rank} of 4: {host}, ");
            let line = log.lines().find(|line| line.starts_with(&place)).unwrap_or_else(|| panic!("{place}: {log}"));
            assert!(line.ends_with(".1") || line.ends_with(first.as_str()), "{line}");
        }
        let is_foreign = |line: &&str| line.contains(": OMPI_") || line.contains(": PMIX_");
        assert_eq!(log.lines().find(is_foreign), None);
        wait_until("no program is left", || processes_of(sandbox.folder.path()).is_empty());
    }

    /// Checks that no rank remains, using ranks on two hosts that ignore SIGTERM; only the scheduler can reach those
    /// on the other host.
    pub fn no_rank_outlives_its_sweep(&self) {
        let killed = format!("{} was killed by signal 9", self.starter);
        for (ending, reason, status) in [
            ("time", "timed out after 4 s; no rank has reported", 1),
            ("interrupt", "interrupted", 130),
            ("starter stopped", "interrupted", 143),
            ("starter killed", killed.as_str(), 1),
        ] {
            let sandbox = Sandbox::new(HANGING);
            let options = if ending == "time" { "--cases 2n2g --timeout 4" } else { "--cases 2n2g" };
            let mut command = self.sweep(&sandbox, options);
            let mut sweep = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
            if ending != "time" {
                sandbox.wait_for_ranks(4);
            }
            match ending {
                "interrupt" => signal(&sandbox, RINGMARK, Signal::SIGINT),
                "starter stopped" => {
                    // It must be killed in the end, and its ranks by another process.
                    signal(&sandbox, self.starter, Signal::SIGSTOP);
                    signal(&sandbox, RINGMARK, Signal::SIGTERM);
                }
                "starter killed" => signal(&sandbox, self.starter, Signal::SIGKILL),
                _ => {}
            }
            assert_eq!(sweep.wait().expect("ended").code(), Some(status), "{ending}");
            assert_eq!(sandbox.failure(LOG), reason, "{ending}");
            wait_until("no rank is left", || sandbox.left().is_empty());
        }
    }

    /// Returns the record at `path`. Checks that the run succeeded and that its ranks ran on hosts with these
    /// numbers.
    pub fn record(&self, sandbox: &Sandbox, path: &str, hosts: &[usize]) -> RunRecord {
        let record = RunRecord::read(&fs::read(sandbox.path(path)).expect(path)[..]).expect("a record");
        assert_eq!(record.failure(), None);
        let places: Vec<&str> = record.header.ranks.iter().map(|place| place.host.as_str()).collect();
        assert_eq!(places, hosts.iter().map(|number| self.cluster.host(*number)).collect::<Vec<_>>());
        record
    }
}

/// Returns name, fitness and cause of each host.
pub fn judged(verdict: &Verdict) -> Vec<(&str, Fitness, Option<Cause>)> {
    verdict.hosts.iter().map(|host| (&host.name[..], host.fitness, host.cause)).collect()
}

/// Returns the processes whose command line starts with `program` and contains the sandbox's path.
pub fn processes(sandbox: &Sandbox, program: &str) -> Vec<Pid> {
    let all = processes_of(sandbox.folder.path()).into_iter();
    all.filter(|(_, line)| line.starts_with(&format!("{program}\0"))).map(|(process, _)| process).collect()
}

/// Signals the first of these processes: srun has a child with the same name and a higher PID.
fn signal(sandbox: &Sandbox, program: &str, signal: Signal) {
    let first = *processes(sandbox, program).first().expect(program);
    kill(first, signal).expect("it runs");
}

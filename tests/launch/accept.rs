//! `ringmark accept` on this machine under two names: first with a shell script in place of the worker, then with the real
//! worker. `cluster::accept` finds faults on several hosts.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gethostname};
use ringmark_core::accept::{Cause, Fitness, JOURNAL, Journal, Metric, Outcome, Stage, Test, VERDICT, Verdict};

use crate::support::core_tokens::take_all_cores;
use crate::support::images::photographs;
use crate::support::runs;
use crate::support::sandbox::{
    HANGING, Sandbox, check_refusals, fails, refused, ringmark, run, succeeds, wait_until, words,
};
use crate::support::temporary_folder::without_folder;
use crate::support::worker;

/// This machine under two names.
const HOSTS: &str = "--hosts localhost:1,127.0.0.1:1";

impl Sandbox {
    /// Returns `accept` on both names of this machine, without the doctor, which would inspect the script.
    fn accept(&self, options: &str) -> Command {
        let mut command = self.accept_on(HOSTS, options);
        command.arg("--no-doctor");
        command
    }

    fn accept_on(&self, hosts: &str, options: &str) -> Command {
        let mut command = ringmark("accept --device cpu");
        command.args(words(hosts)).args(words(options)).arg("--worker").arg(self.worker());
        command.arg("--out").arg(self.path("out"));
        command
    }

    fn journal(&self) -> Journal {
        let file = fs::File::open(self.path("out").join(JOURNAL)).expect("written");
        Journal::read(BufReader::new(file)).expect("a journal")
    }

    fn verdict(&self) -> Verdict {
        let text = fs::read_to_string(self.path("out").join(VERDICT)).expect("written");
        serde_json::from_str(&text).expect("a verdict")
    }
}

#[test]
fn usage_error_names_the_option() {
    let sandbox = Sandbox::new("exit 1");
    fs::write(sandbox.path("typo.toml"), "smallest_defekt = 0.1\n").expect("written");
    let folder = sandbox.folder.path().display().to_string();
    check_refusals(
        &expect![[r#"
            --hosts a:1
                error: accept compares hosts, but there is only one: list several with --hosts or --hostfile, or use --launcher slurm in a job of several nodes
            --hosts a:1,b:1 --resume
                error: the following required arguments were not provided:
                --out <FOLDER>
                tip: `--out FOLDER --resume` continues in FOLDER, which the interrupted command printed
            --hosts a:1,b:1 --max-minutes 0
                error: invalid value '0' for '--max-minutes <MINUTES>': choose a time from 1m to 100000m, such as 90s, 5m or 2h; a number alone is minutes
            --hosts a:1,b:1 --max-minutes 5x
                error: invalid value '5x' for '--max-minutes <MINUTES>': choose a time from 1m to 100000m, such as 90s, 5m or 2h; a number alone is minutes
            --hosts a:1,b:1 --resume --out DIR/none
                error: --resume: DIR/none contains no accept.jsonl: omit --resume to start there
            --hosts a:1,b:1 --resume --out results/goodput-4-hosts
                error: --resume: results/goodput-4-hosts holds a result of `ringmark goodput`, not of `ringmark accept`: pass the --out of accept's first command
        "#]],
        |options| {
            let options = options.replace("DIR", &folder);
            refused(ringmark(&format!("accept {options} --worker")).arg(sandbox.worker()), 2)
        },
    );
    let criteria = sandbox.path("typo.toml").display().to_string();
    let error = refused(&mut sandbox.accept(&format!("--criteria {criteria}")), 2);
    assert!(error.contains("typo.toml: ") && error.contains("smallest_defekt"), "{error}");
    let error = refused(&mut sandbox.accept("--criteria none.toml"), 2);
    assert!(error.contains("--criteria none.toml: No such file"), "{error}");
    fs::write(sandbox.path("percent.toml"), "smallest_defect = 5\n").expect("written");
    let criteria = sandbox.path("percent.toml").display().to_string();
    let error = refused(&mut sandbox.accept(&format!("--criteria {criteria}")), 2);
    assert!(error.contains("percent.toml: smallest_defect = 5: write a share"), "{error}");
    assert!(!sandbox.path("out").exists());
}

#[test]
fn dry_run_prints_the_rounds_and_starts_nothing() {
    let sandbox = Sandbox::new("exit 1");
    let text = succeeds(&mut sandbox.accept_on("--hosts n[1-4]:2", "--dry-run"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "# facts: the checks of `ringmark doctor --quick`");
    assert!(lines[1].starts_with("# 12 rounds, about 3 min to 12 min, and more rounds"), "{text}");
    assert_eq!(lines[2], "# criteria: defects of 5.0 % or more, a false alarm once in 1000 fleets");
    assert_eq!(lines[3], "# rounds 1 to 2, alone: training, 4 jobs on 4 hosts", "{text}");
    assert!(lines[8].starts_with("# the first command of each of these lines, "), "{text}");
    assert!(lines[9].starts_with("mpirun ") && lines[9].contains(" -np 2 -H n"), "{text}");
    assert!(lines[9].contains(" train --model "), "{text}");
    assert_eq!(lines[10..], ["# and 4 more commands: --verbose prints them"], "{text}");
    let all = succeeds(&mut sandbox.accept_on("--hosts n[1-4]:2", "--dry-run --verbose"));
    for part in ["pairs: all-reduce", " bandwidth --begin ", "whole: "] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert_eq!(all.lines().filter(|line| line.starts_with("mpirun ")).count(), 5, "{all}");
    let limited = succeeds(&mut sandbox.accept_on("--hosts n[1-4]:2", "--dry-run --soak 24h --max-minutes 20"));
    assert!(limited.contains("\n# soak: 24.0 h after ") && limited.contains("\n# time limit: 20 min; "), "{limited}");
    let units = succeeds(&mut sandbox.accept_on("--hosts n[1-4]:2", "--dry-run --soak 24 --max-minutes 5m"));
    assert!(units.contains("\n# soak: 24 s after ") && units.contains("\n# time limit: 5 min; "), "{units}");
    assert!(
        units.contains("\n# 5 to 12 of the 12 rounds fit the time limit: the last stages may not run\n"),
        "{units}"
    );
    assert!(!limited.contains(" fit the time limit"), "{limited}");
    assert!(!sandbox.path("out").exists());
    let missing = refused(&mut sandbox.accept_on("--hosts n[1-4]:2", "--resume"), 2);
    assert!(missing.contains("/out contains no accept.jsonl: omit --resume to start there"), "{missing}");
    assert!(!sandbox.path("out").exists());
}

/// Outside of a job of Slurm, the GPUs of its hosts are unknown.
#[test]
fn dry_run_outside_of_a_job_assumes_gpus() {
    let plan = |options: &str| succeeds(&mut ringmark(&format!("accept --dry-run --hosts n[1-4]:8 {options}")));
    for launcher in ["mpirun", "slurm", "gridengine"] {
        let text = plan(&format!("--launcher {launcher}"));
        assert!(text.contains("# GPUs are assumed, ") && text.contains(" --dtype fp16 "), "{launcher}: {text}");
        assert!(!plan(&format!("--launcher {launcher} --device cpu")).contains("GPUs are assumed"), "{launcher}");
    }
}

#[test]
fn failing_job_is_measured_as_a_failure_and_leaves_the_others_alone() {
    // The first job leaves a process behind and fails. The second one ends after the journal contains that.
    let script = "
case $record in
    *_001_*) sleep 1000 & exit 3;;
    *_002_*) while ! grep -q '\"failed\"' \"$folder/out/accept.jsonl\"; do sleep 0.1; done; cp \"$folder/record\" \"$record\"; exit 0;;
esac
exit 3
";
    let sandbox = Sandbox::new(script);
    let record = runs::record("1n1g", 1, 0.5);
    record.write(fs::File::create(sandbox.path("record")).expect("created")).expect("written");
    let (status, stdout, stderr) = run(&mut sandbox.accept("--timeout 600"));
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    let journal = sandbox.journal();
    let first: Vec<_> = journal.measurements.iter().filter(|measurement| measurement.round == 1).collect();
    let [failed, measured] = first[..] else { panic!("{first:?}") };
    assert_eq!((failed.stage, failed.job.test), (Stage::Alone, Test::Training));
    let Outcome::Failed { host, reason } = &failed.outcome else { panic!("{failed:?}") };
    assert_eq!((*host, failed.job.hosts.len()), (Some(failed.job.hosts[0]), 1), "{reason}");
    let Outcome::Measured(readings) = &measured.outcome else { panic!("{measured:?}") };
    assert!(readings.iter().any(|reading| reading.metric == Metric::TrainingSpeed), "{readings:?}");
    assert!(stdout.contains("round 1, alone: training, 2 jobs on 2 hosts"), "{stdout}");
    assert!(sandbox.log("jobs/01_alone_001_training.log").contains("error: run failed: "), "the log has the reason");
    assert_ne!(sandbox.verdict().fitness, Fitness::Fit);
    assert_eq!(sandbox.left(), [] as [String; 0]);
}

#[test]
fn interrupted_run_is_resumed_on_the_same_hosts_only() {
    let sandbox = Sandbox::new(&HANGING.replace("started.$rank", "started.$$"));
    let mut command = sandbox.accept("--stall-timeout 0");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let has_started = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("started.");
    wait_until("both jobs start", || {
        fs::read_dir(sandbox.folder.path()).expect("a folder").flatten().filter(has_started).count() == 2
    });
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("running process");
    let output = child.wait_with_output().expect("a child");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    expect!["error: interrupted in round 1 (alone); 0 measurements kept"].assert_eq(lines[0]);
    assert!(lines[1].starts_with("resume with: ") && lines[1].ends_with(" --resume"), "{stderr}");
    assert_eq!(sandbox.left(), [] as [String; 0]);
    assert_eq!(sandbox.journal().measurements, []);

    let again = refused(&mut sandbox.accept(""), 2);
    expect!["error: --out DIR/out already contains accept.jsonl: add --resume to continue, choose another folder, or move this one away"]
        .assert_eq(without_folder(&again).trim_end());
    let others = refused(sandbox.accept_on("--hosts localhost:2,127.0.0.1:2", "--resume").arg("--no-doctor"), 2);
    expect!["error: --resume: DIR/out is of --hosts localhost:1,127.0.0.1:1, not of --hosts localhost:2,127.0.0.1:2: use the same hosts in the same order, or another --out"]
        .assert_eq(without_folder(&others).trim_end());
    fs::write(sandbox.path("other.toml"), "smallest_defect = 0.1\n").expect("written");
    let criteria = format!("--resume --criteria {}", sandbox.path("other.toml").display());
    let others = refused(&mut sandbox.accept(&criteria), 2);
    assert!(others.contains("has other criteria"), "{others}");

    // Without other options, those of the first command are used.
    sandbox.write_program("worker", "#!/bin/sh\nexit 3\n");
    let out = sandbox.path("out");
    let error = fails(ringmark("accept --resume --out").arg(&out));
    assert!(sandbox.journal().measurements.len() > 1, "{error}");
    assert!(has_file(&out.join("jobs"), "01_alone_001_training.log"));
}

fn has_file(folder: &Path, name: &str) -> bool {
    folder.join(name).exists()
}

/// The jobs of the third host alone flip a bit in iteration 3. Short jobs on small images are enough.
#[test]
fn host_that_flips_a_bit_is_unfit() {
    let script = "
words=$(echo \"$words\" | sed 's/--iters 25 --warmup 5 --image-size 64/--iters 5 --warmup 1 --image-size 32/')
case $record in
    *_alone_003_training*) exec \"$folder/real\" $words --inject flip:3:0:20;;
esac
exec \"$folder/real\" $words
";
    let sandbox = Sandbox::new(script);
    symlink(worker(), sandbox.path("real")).expect("linked");
    fs::write(sandbox.path("criteria.toml"), "stages = [\"alone\"]\nsmallest_defect = 0.5\nmax_repeats = 2\n")
        .expect("written");
    let criteria = sandbox.path("criteria.toml").display().to_string();
    let name = gethostname().expect("a name").into_string().expect("UTF-8");
    let hosts = format!("--hosts localhost:1,127.0.0.1:1,{name}:1");
    let tokens = take_all_cores();
    let mut command = sandbox.accept_on(&hosts, &format!("--no-doctor --timeout 600 --criteria {criteria}"));
    let (status, stdout, stderr) = run(&mut command);
    drop(tokens);
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    let hosts = sandbox.verdict().hosts;
    let [one, other, flipped] = &hosts[..] else { panic!("{hosts:?}") };
    assert_eq!((flipped.fitness, flipped.cause), (Fitness::Unfit, Some(Cause::Corruption)), "{stdout}");
    let text = &flipped.evidence[0].text;
    assert!(text.starts_with("gradients differ from those of 2 of 2 other hosts, first in iteration 3, in "), "{text}");
    assert!([one, other].iter().all(|host| host.cause != Some(Cause::Corruption)), "{stdout}");
    assert!(stdout.contains(&format!("{name}: unfit (corruption): gradients differ")), "{stdout}");
}

#[test]
fn real_jobs_on_one_machine_are_measured() {
    let sandbox = Sandbox::real();
    let criteria = sandbox.path("accept.toml");
    fs::write(&criteria, "stages = [\"alone\", \"pairs\"]\npair_rounds = 1\nmax_repeats = 2\nsmallest_defect = 0.5\n")
        .expect("written");
    let tokens = take_all_cores();
    let mut accept = sandbox.accept("--timeout 600 --drain-list -");
    accept.arg("--data").arg(photographs(&sandbox.path("")));
    let (status, stdout, stderr) = run(accept.arg("--criteria").arg(&criteria));
    drop(tokens);
    // Speeds of a shared machine may differ.
    assert!([Some(0), Some(1)].contains(&status), "{stdout}{stderr}");
    let journal = sandbox.journal();
    let metrics = |test: Test| {
        let of_test = journal.measurements.iter().filter(move |measurement| measurement.job.test == test);
        of_test.flat_map(|measurement| match &measurement.outcome {
            Outcome::Measured(readings) => readings.clone(),
            Outcome::Failed { reason, .. } => panic!("{reason}"),
        })
    };
    for (test, metric) in [
        (Test::Training, Metric::TrainingSpeed),
        (Test::Training, Metric::MatrixRate),
        (Test::Exchange, Metric::SmallBandwidth),
        (Test::Exchange, Metric::LargeBandwidth),
        (Test::Input, Metric::InputSpeed),
    ] {
        assert!(metrics(test).any(|reading| reading.metric == metric && reading.value > 0.0), "{metric}: {stdout}");
    }
    let training = journal.measurements.iter().find(|done| done.job.test == Test::Training).expect("a job");
    let time = training.time.expect("a time");
    assert!(time.end.0 > time.start.0 && training.state.is_some(), "{training:?}");
    let verdict = sandbox.verdict();
    let stages: Vec<Stage> = verdict.stages.iter().map(|of| of.stage).collect();
    assert_eq!((verdict.hosts.len(), stages), (2, vec![Stage::Alone, Stage::Pairs]));
    assert!(verdict.stages.iter().all(|of| of.time.is_some_and(|time| time.0 > 0.0)), "{stdout}");
    assert!(stdout.contains("stages: alone ") && stdout.contains(" min; pairs "), "{stdout}");
    assert!(stdout.contains("fleet: "), "{stdout}");
}

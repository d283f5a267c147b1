//! Interrupted sweeps: `--resume` and `--repeat`.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::Stdio;

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::host::processors;
use ringmark_core::manifest::{self, Manifest, RunState};
use ringmark_core::number_text::count;

use crate::support::interrupted_sweep::{
    HANG_IN_SECOND, OPTIONS, THREE_RUNS, names, resume_command, succeeds_silently,
};
use crate::support::processes_of;
use crate::support::sandbox::{Sandbox, fails, lines_with, refused, ringmark, run, wait_until, words};
use crate::support::temporary_folder::without_folder;

/// Returns a message without temporary folders and the path of the program.
fn without_paths(text: &str) -> String {
    without_folder(&text.replace(env!("CARGO_BIN_EXE_ringmark"), "ringmark"))
}

/// Returns the lines about earlier runs in the output of a resumed sweep, without its title and without the lines that
/// depend on the machine.
fn earlier_runs(stdout: &str) -> String {
    let (text, _) = stdout.split_once(" runs are finished\n").expect(stdout);
    let of_machine = ["each rank has ", "memory: ", "time: "];
    let lines = text.lines().skip(1).filter(|line| !of_machine.iter().any(|start| line.starts_with(start)));
    without_paths(&lines.collect::<Vec<_>>().join("\n")) + " runs are finished"
}

#[test]
fn interrupted_sweep_prints_the_resume_command() {
    let sandbox = Sandbox::with_valid_worker();
    let mut sweep = sandbox.start_hanging();
    assert!(matches!(sandbox.states()[..], [RunState::Finished, RunState::Running { .. }, RunState::Planned]));
    assert!(sandbox.files("1n1g").contains("rn50_b8_fp32_2.log.part"));
    kill(Pid::from_raw(sweep.id().cast_signed()), Signal::SIGINT).expect("running process");
    assert_eq!(sweep.wait().expect("ended").code(), Some(130));
    assert_eq!(sandbox.failure("1n1g/rn50_b8_fp32_2.log"), "interrupted");
    let interrupted = RunState::Failed { reason: "interrupted".to_owned() };
    assert_eq!(sandbox.states(), [RunState::Finished, interrupted, RunState::Planned]);

    let (status, stderr) = sandbox.extract();
    assert_eq!(status, Some(1));
    expect![[r#"
        not in the figures: sweep.json: 2 runs are missing (not yet run: 1n1g/rn50_b8_fp32_3.log): resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g --runs 3 --resume
        not in the figures: 1n1g/rn50_b8_fp32_2.log:3: the run failed: interrupted: repeat it
        wrote DIR/extracted/out_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/out are not complete: see the 2 messages above
    "#]].assert_eq(&without_paths(&stderr));

    let stderr = fs::read_to_string(sandbox.path("stderr")).expect("read");
    expect![[r#"
        error: interrupted in 1n1g run 2 of 3; 1 of 3 runs are complete
        resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g --runs 3 --resume
    "#]].assert_eq(&without_paths(&stderr));
    expect![[r#"
        logs and records: DIR/out
        1n1g/rn50_b8_fp32_2.log: the run is repeated: interrupted
        1 of 3 runs are finished"#]]
    .assert_eq(&earlier_runs(&succeeds_silently(&mut resume_command(&stderr))));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2", "1n1g_2", "1n1g_3"]);
    assert_eq!(sandbox.states(), vec![RunState::Finished; 3]);
    // The files of the interrupted run are kept; apart from them the folder is that of a complete sweep.
    let mut expected = names(THREE_RUNS);
    expected.insert("rn50_b8_fp32_2.log.1".to_owned());
    assert_eq!(sandbox.files("1n1g"), expected);
    assert!(sandbox.log("1n1g/rn50_b8_fp32_2.log.1").ends_with("error: run failed: interrupted\n"));
    assert_eq!(sandbox.extract().0, Some(0));
}

#[test]
fn killed_sweep_leaves_no_log_that_counts() {
    let sandbox = Sandbox::with_valid_worker();
    let mut sweep = sandbox.start_hanging();
    sweep.kill().expect("running process");
    sweep.wait().expect("ended");
    for (process, _) in processes_of(sandbox.folder.path()) {
        // It may have exited by itself.
        let _ = kill(process, Signal::SIGKILL);
    }
    wait_until("the job has ended", || sandbox.left().is_empty());
    let stale = sandbox.path("out/1n1g/.rn50_b8_fp32_2.jsonl.77.part");
    fs::write(&stale, "half").expect("written");

    assert_eq!(sandbox.files("1n1g").iter().filter(|name| name.ends_with(".log")).count(), 1);
    let (status, stderr) = sandbox.extract();
    assert_eq!(status, Some(1));
    expect![[r#"
        not in the figures: sweep.json: 2 runs are missing (running or interrupted: 1n1g/rn50_b8_fp32_2.log; not yet run: 1n1g/rn50_b8_fp32_3.log): resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g --runs 3 --resume
        wrote DIR/extracted/out_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/out are not complete: see the message above
    "#]].assert_eq(&without_paths(&stderr));

    let stdout = succeeds_silently(&mut sandbox.short_sweep(&format!("{OPTIONS} --resume")));
    expect![[r#"
        logs and records: DIR/out
        1n1g/rn50_b8_fp32_2.log: the run is repeated: ringmark was killed during the run
        1 of 3 runs are finished"#]]
    .assert_eq(&earlier_runs(&stdout));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2", "1n1g_2", "1n1g_3"]);
    let mut expected = names(THREE_RUNS);
    expected.insert("rn50_b8_fp32_2.log.part.1".to_owned());
    assert_eq!(sandbox.files("1n1g"), expected);
    assert_eq!(sandbox.extract().0, Some(0));
}

#[test]
fn resume_with_other_settings_is_rejected() {
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(sandbox.short_sweep("--cases 1n1g --runs 1").env("NCCL_ALGO", "Ring"));
    let before = fs::read_to_string(sandbox.path("out/sweep.json")).expect("read");
    let resume = "--cases 1n1g --runs 2 --resume";
    let mut changed = sandbox.short_sweep(&format!("{resume} --batch-size 64 --interface lo --wire bf16"));
    let error = refused(changed.env("NCCL_ALGO", "Tree"), 2);
    expect![[r#"
        error: --resume: the sweep in DIR/out has other settings, so new runs would not be comparable:
        --batch-size: 8 then, 64 now
        --interface: not set then, lo now
        --wire: fp32 then, bf16 now
        NCCL_ALGO: Ring then, Tree now
        use the same settings (ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --cases 1n1g --runs 1 --resume --out DIR/out), or choose another --out
    "#]].assert_eq(&without_paths(&error));

    let mut worker = OpenOptions::new().append(true).open(sandbox.worker()).expect("opened");
    worker.write_all(b"# another\n").expect("written");
    drop(worker);
    let error = refused(sandbox.short_sweep(resume).env("NCCL_ALGO", "Ring"), 2);
    assert!(error.contains("\nringmark-worker (sha256): ") && error.lines().count() == 3, "{error}");
    assert_eq!(fs::read_to_string(sandbox.path("out/sweep.json")).expect("read"), before);
    assert_eq!(sandbox.ran(), ["1n1g_1"]);
}

#[test]
fn resume_alone_takes_the_options_of_the_manifest() {
    let sandbox = Sandbox::with_valid_worker();
    let options = "--cases 1n1g --runs 2 --cooldown 1 --wire bf16";
    succeeds_silently(&mut sandbox.short_sweep(options));
    let resume = |options: &str| {
        let mut command = ringmark("sweep --resume");
        command.arg("--out").arg(sandbox.path("out")).args(words(options));
        command
    };
    let all_finished = earlier_runs(&succeeds_silently(&mut resume("")));
    expect![[r#"
        logs and records: DIR/out
        options: --wire bf16
        2 of 2 runs are finished"#]]
    .assert_eq(&all_finished);
    let plan = succeeds_silently(&mut resume("--dry-run"));
    assert!(plan.contains("# nothing to run: all 2 runs are finished\n"), "{plan}");
    // A run without its files counts as missing in the table.
    let files = ["log", "jsonl"].map(|kind| sandbox.path(&format!("out/1n1g/rn50_b8_fp32_2.{kind}")));
    let kept: Vec<_> = files.iter().map(|file| (file, fs::read(file).expect("a file"))).collect();
    files.iter().for_each(|file| fs::remove_file(file).expect("removed"));
    let (_, table, _) = run(ringmark("extract --format table").arg(sandbox.path("out")));
    assert!(table.contains("  1/2 ") && table.contains("Use with caution: 1 run excluded; "), "{table}");
    kept.iter().for_each(|(file, content)| fs::write(file, content).expect("written"));
    // The manifest keeps the options.
    let stdout = succeeds_silently(&mut resume("--repeat 1n1g --dry-run --verbose"));
    assert_eq!(stdout.lines().filter(|line| line.contains(" --wire bf16 ")).count(), 2, "{stdout}");
    // Typed options replace those of the manifest.
    let more = succeeds_silently(&mut resume("--runs 3 --dry-run --verbose"));
    let commands: Vec<&str> = more.lines().filter(|line| line.contains(" --run ")).collect();
    assert!(
        matches!(commands[..], [third] if third.contains(" --wire bf16 ") && third.ends_with(" --run 3")),
        "{more}"
    );
    let error = refused(&mut resume("--wire fp32"), 2);
    assert!(error.contains("\n--wire: bf16 then, fp32 now\n"), "{error}");
    // Both names of this machine are equal.
    let name = nix::unistd::gethostname().expect("a name").into_string().expect("a plain name");
    let own = format!("--no-doctor --iters 4 --warmup 1 --device cpu --hosts {name}:2 {options}");
    assert_eq!(earlier_runs(&succeeds_silently(resume(&own).arg("--worker").arg(sandbox.worker()))), all_finished);
}

#[test]
fn sweep_without_finished_run_resumes_with_other_options() {
    let sandbox = Sandbox::with_valid_worker();
    sandbox.hook("if [ ! -e \"$folder/failed\" ]; then touch \"$folder/failed\"; exit 2; fi");
    let stderr = fails(&mut sandbox.short_sweep("--cases 1n1g --runs 1 --wire bf16"));
    // The last lines of the log precede the error.
    let (_, error) = stderr.split_once("\nerror: ").expect(&stderr);
    expect![[r#"
        1n1g run 1 of 1 failed: rank 0 of 1 exited with status 2
        log: DIR/out/1n1g/rn50_b8_fp32_1.log
        no run is finished: fix this, or change the options, then resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g --runs 1 --wire bf16 --resume
    "#]].assert_eq(&without_paths(error));
    let stdout =
        succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 1 --wire fp32 --batch-size 16 --resume"));
    expect![[r#"
        logs and records: DIR/out
        note: settings changed (--batch-size: 8 then, 16 now; --wire: bf16 then, fp32 now); no run was complete
        0 of 1 runs are finished"#]]
    .assert_eq(&earlier_runs(&stdout));
    expect!["note: settings changed (--batch-size: 8 then, 16 now; --wire: bf16 then, fp32 now); no run was complete"]
        .assert_eq(&lines_with(&stdout, "settings changed"));
    assert_eq!(sandbox.states(), [RunState::Finished]);
    // The files of the failed run are kept, and do not count.
    assert!(sandbox.files("1n1g").contains("rn50_b8_fp32_1.log.1"), "{:?}", sandbox.files("1n1g"));
    assert_eq!(sandbox.extract(), (Some(0), sandbox.extract().1));
}

#[test]
fn resumed_run_on_another_device_fails() {
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 1"));
    fs::write(sandbox.path("device"), "other").expect("written");
    let resume = "--cases 1n1g --runs 2 --resume";
    let error = fails(&mut sandbox.short_sweep(resume));
    expect![[r#"
        error: 1n1g run 2 of 2 failed: environment differs from that of the finished runs: device 0 of a: processor then, other now
        log: DIR/out/1n1g/rn50_b8_fp32_2.log
        completed runs are kept; resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g --runs 2 --resume
    "#]].assert_eq(&without_paths(&error));
    expect!["environment differs from that of the finished runs: device 0 of a: processor then, other now"]
        .assert_eq(&sandbox.failure("1n1g/rn50_b8_fp32_2.log"));
    fs::write(sandbox.path("device"), "processor").expect("written");
    succeeds_silently(&mut sandbox.short_sweep(resume));
    assert!(sandbox.files("1n1g").contains("rn50_b8_fp32_2.jsonl.1"));
}

#[test]
fn resume_accepts_more_or_fewer_runs() {
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 1 --threads 1"));
    // Tracing does not affect the measured configuration.
    let resume = "--cases 1n2g,1n1g --runs 2 --threads 1 --profile-layers --trace-runs 1 --resume";
    let stdout = succeeds_silently(&mut sandbox.short_sweep(&format!("{resume} --dry-run --verbose")));
    let commands = stdout.lines().filter(|line| !line.starts_with("# "));
    let names: Vec<&str> = commands.map(|line| line.split_once(" --case ").expect("a run").1).collect();
    assert_eq!(names, ["1n2g --run 1", "1n2g --run 2", "1n1g --run 2"]);
    assert_eq!(sandbox.ran(), ["1n1g_1"]);
    expect![[r#"
        logs and records: DIR/out
        1 of 4 runs are finished"#]]
    .assert_eq(&earlier_runs(&succeeds_silently(&mut sandbox.short_sweep(resume))));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n2g_1", "1n2g_2", "1n1g_2"]);
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--cases 1n2g --runs 1 --threads 1 --resume"));
    expect![[r#"
        sweep of ResNet50-v1b, 1n2g, 1 run each: batch 8, fp32, 3 measured + 1 warm-up iterations, device cpu, profile cpu
        logs and records: DIR/out
        1 of 1 runs are finished

        ResNet50-v1b, fp32, batch size 8 per rank
        Use with caution: 1 warning; runs vary by 0.0 % (CV); all 4 runs count

        case  ranks  runs     speed  per rank  speedup  efficiency    CV
                           images/s  images/s                    %     %
        ----------------------------------------------------------------
        1n1g      1   2/2     16.00     16.00     1.00       100.0  0.00
        1n2g      2   2/2     32.00     16.00     2.00       100.0  0.00

        1n2g: speedup 2.00 of 2, efficiency 100 %; fewer than 3 runs per case are too few to break down the loss

        all tables and warnings: ringmark extract DIR/out
        all runs are in DIR/out; next: ringmark report DIR/out -o DIR/out/report.html
    "#]].assert_eq(&without_paths(&stdout));
    assert_eq!((sandbox.ran().len(), sandbox.states()), (4, vec![RunState::Finished; 4]));
}

#[test]
fn resume_keeps_the_core_share_per_rank() {
    let cores = processors::cores();
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g,1n2g --runs 1"));
    // A single rank would otherwise use all cores.
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 2 --resume"));
    let threads = (cores / 2).max(1);
    let share = format!("\neach rank has {} in every case; its host has {cores} cores\n", count(threads, "thread"));
    assert!(stdout.contains(&share), "{stdout}");

    // More ranks need smaller shares of the cores, so their runs would not be comparable.
    let more = cores + 1;
    let error = refused(&mut sandbox.short_sweep(&format!("--hosts localhost:{more} --cases 1n{more}g --resume")), 2);
    if threads > 1 {
        assert!(error.contains(&format!("\nthreads of a rank: {threads} then, 1 now\n")), "{error}");
    }
}

#[test]
fn resume_accepts_more_axis_values_but_not_fewer() {
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 1 --batch-size 8"));
    let resume = "--cases 1n1g --runs 1 --resume";
    let more = format!("{resume} --batch-sizes 8,16 --dtypes fp32,bf16");
    let stdout = succeeds_silently(&mut sandbox.short_sweep(&more));
    expect!["sweep of ResNet50-v1b, 1n1g, 1 run each: batch 8,16, fp32,bf16, 3 measured + 1 warm-up iterations, device cpu, profile cpu"].assert_eq(&without_paths(stdout.lines().next().expect("a title")));
    expect![[r#"
        logs and records: DIR/out
        1 of 4 runs are finished"#]]
    .assert_eq(&earlier_runs(&stdout));
    for (title, speed) in [("b16 fp32", "32.00"), ("b8 bf16", "16.00"), ("b16 bf16", "32.00")] {
        assert!(stdout.contains(&format!("\n1n1g {title} run 1 of 1: {speed} images/s")), "{stdout}");
    }
    assert_eq!(sandbox.states(), vec![RunState::Finished; 4]);
    for name in ["rn50_b8_fp32_1.jsonl", "rn50_b16_fp32_1.jsonl", "rn50_b8_bf16_1.jsonl", "rn50_b16_bf16_1.jsonl"] {
        assert!(sandbox.files("1n1g").contains(name), "{name}");
    }
    expect![[r#"
        logs and records: DIR/out
        4 of 4 runs are finished"#]]
    .assert_eq(&earlier_runs(&succeeds_silently(&mut sandbox.short_sweep(&more))));
    let manifest = fs::read_to_string(sandbox.path("out/sweep.json")).expect("read");
    assert!(
        manifest.contains(r#""--batch-size": "8,16""#) && manifest.contains(r#""--dtype": "fp32,bf16""#),
        "{manifest}"
    );

    let error = refused(&mut sandbox.short_sweep(&format!("{resume} --batch-size 8 --dtypes fp32,bf16")), 2);
    expect![[r#"
        error: --resume: the sweep in DIR/out has other settings, so new runs would not be comparable:
        --batch-size: 8,16 then, 8 now
        use the same settings (ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --cases 1n1g --runs 1 --resume --batch-sizes 8,16 --dtypes fp32,bf16 --out DIR/out), or choose another --out
    "#]].assert_eq(&without_paths(&error));
    let of_factor = "--cases 1n1g --runs 1 --batch-size 8 --batch-factor resnet50_v1b=2";
    let stdout = succeeds_silently(&mut Sandbox::with_valid_worker().short_sweep(of_factor));
    assert!(stdout.contains(": batch 8 (resnet50_v1b: x 2), fp32"), "{stdout}");
    assert!(stdout.contains("\n1n1g run 1 of 1: 32.00 images/s"), "{stdout}");
    // A factor is a condition: without it, the same sizes would mean other batches.
    let factor = format!("{more} --batch-factor resnet50_v1b=2");
    let error = refused(&mut sandbox.short_sweep(&factor), 2);
    expect![[r#"
        error: --resume: the sweep in DIR/out has other settings, so new runs would not be comparable:
        --batch-factor: not set then, resnet50_v1b=2 now
        use the same settings (ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --cases 1n1g --runs 1 --resume --batch-sizes 8,16 --dtypes fp32,bf16 --out DIR/out), or choose another --out
    "#]].assert_eq(&without_paths(&error));
    // A record of another point does not count for this one.
    let file = |name: &str| sandbox.path("out/1n1g").join(name);
    fs::copy(file("rn50_b8_fp32_1.jsonl"), file("rn50_b16_fp32_1.jsonl")).expect("copied");
    expect![[r#"
        logs and records: DIR/out
        1n1g/rn50_b16_fp32_1.log: the run is repeated: finished earlier, but record DIR/out/1n1g/rn50_b16_fp32_1.jsonl cannot be used: contains case 1n1g, ResNet50-v1b, batch size 8, fp32, but has another file name: restore the original name
        3 of 4 runs are finished"#]].assert_eq(&earlier_runs(&succeeds_silently(&mut sandbox.short_sweep(&more))));
}

#[test]
fn resume_with_more_strategies_shares_the_baseline_of_all_reduce() {
    let sandbox = Sandbox::with_valid_worker();
    let sweep = |options: &str| sandbox.short_sweep(&format!("--cases 1n1g,1n2g --runs 1 --batch-size 8 {options}"));
    succeeds_silently(&mut sweep(""));
    let more = "--strategies all-reduce,device,dist_sync --resume --dry-run --verbose";
    let stdout = succeeds_silently(&mut sweep(more));
    let commands: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("# ")).collect();
    assert_eq!(commands.len(), 2, "{stdout}");
    assert!(commands[0].contains(" --strategy device ") && commands[0].contains("/1n2g/rn50_b8_fp32_device_1.jsonl"));
    assert!(commands[1].contains(" --strategy dist_sync --servers 1 "), "{stdout}");
    // No finished run has servers, so any number of them is new work.
    let stdout = succeeds_silently(&mut sweep(&format!("{more} --servers 2 --key-placement hash")));
    assert!(stdout.contains(" --strategy dist_sync --servers 2 --key-placement hash "), "{stdout}");

    let stdout = succeeds_silently(&mut sweep("--strategies all-reduce,device --resume"));
    expect!["sweep of ResNet50-v1b, 1n1g 1n2g, 1 run each: batch 8, fp32, strategy all-reduce,device, 3 measured + 1 warm-up iterations, device cpu, profile cpu"].assert_eq(&without_paths(stdout.lines().next().expect("a title")));
    expect![[r#"
        logs and records: DIR/out
        1n1g is measured once, with all-reduce, and is the base of all strategies
        2 of 3 runs are finished"#]]
    .assert_eq(&earlier_runs(&stdout));
    assert!(stdout.contains("\n1n2g device run 1 of 1: 32.00 images/s"), "{stdout}");
    assert_eq!(sandbox.states(), vec![RunState::Finished; 3]);
    let manifest = fs::read_to_string(sandbox.path("out/sweep.json")).expect("read");
    assert!(manifest.contains(r#""--strategy": "all-reduce,device""#), "{manifest}");
    expect![[r#"
        logs and records: DIR/out
        1n1g is measured once, with all-reduce, and is the base of all strategies
        3 of 3 runs are finished"#]]
    .assert_eq(&earlier_runs(&succeeds_silently(&mut sweep("--strategies all-reduce,device --resume"))));

    let error = refused(&mut sweep("--resume --strategy device"), 2);
    expect![[r#"
        error: --resume: the sweep in DIR/out has other settings, so new runs would not be comparable:
        --strategy: all-reduce,device then, device now
        use the same settings (ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --cases 1n1g,1n2g --runs 1 --batch-size 8 --strategies all-reduce,device --resume --out DIR/out), or choose another --out
    "#]]
    .assert_eq(&without_paths(&error));
    // A record of another strategy does not count for this one.
    let file = |name: &str| sandbox.path("out/1n2g").join(name);
    fs::copy(file("rn50_b8_fp32_1.jsonl"), file("rn50_b8_fp32_device_1.jsonl")).expect("copied");
    expect![[r#"
        logs and records: DIR/out
        1n1g is measured once, with all-reduce, and is the base of all strategies
        1n2g/rn50_b8_fp32_device_1.log: the run is repeated: finished earlier, but record DIR/out/1n2g/rn50_b8_fp32_device_1.jsonl cannot be used: contains case 1n2g, ResNet50-v1b, batch size 8, fp32, but has another file name: restore the original name
        2 of 3 runs are finished"#]].assert_eq(&earlier_runs(&succeeds_silently(&mut sweep("--strategies all-reduce,device --resume"))));
}

#[test]
fn resume_checks_the_files_of_finished_runs() {
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 4"));
    let file = |name: &str| sandbox.path("out/1n1g").join(name);
    fs::remove_file(file("rn50_b8_fp32_1.log")).expect("removed");
    let record = fs::read(file("rn50_b8_fp32_2.jsonl")).expect("read");
    fs::write(file("rn50_b8_fp32_2.jsonl"), &record[..record.len() - 20]).expect("written");
    fs::copy(file("rn50_b8_fp32_4.jsonl"), file("rn50_b8_fp32_3.jsonl")).expect("copied");
    // The last run ended, but ringmark was killed before it could record this.
    let manifest = fs::read_to_string(sandbox.path("out/sweep.json")).expect("read");
    let (before, after) = manifest.rsplit_once("\"finished\"").expect("the last run");
    fs::write(sandbox.path("out/sweep.json"), format!("{before}\"running\", \"since\": 1.0{after}")).expect("written");

    let (_, stderr) = sandbox.extract();
    expect![[r#"
        not in the figures: 1n1g/rn50_b8_fp32_1.jsonl: record without a log: restore the log, or remove the record
        not in the figures: 1n1g/rn50_b8_fp32_2.jsonl: the file was changed or damaged after the run (SHA-256 differs from the manifest)
        not in the figures: 1n1g/rn50_b8_fp32_3.jsonl: the file was changed or damaged after the run (SHA-256 differs from the manifest)
        not in the figures: sweep.json: 4 runs are missing (finished, but its log is missing: 1n1g/rn50_b8_fp32_1.log; running or interrupted: 1n1g/rn50_b8_fp32_4.log): resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --cases 1n1g --runs 4 --resume
        wrote DIR/extracted/out_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/out are not complete: see the 4 messages above
    "#]].assert_eq(&without_paths(&stderr));
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 4 --resume"));
    expect![[r#"
        logs and records: DIR/out
        1n1g/rn50_b8_fp32_1.log: the run is repeated: finished earlier, but log DIR/out/1n1g/rn50_b8_fp32_1.log cannot be read: No such file or directory (os error 2)
        1n1g/rn50_b8_fp32_2.log: the run is repeated: finished earlier, but record DIR/out/1n1g/rn50_b8_fp32_2.jsonl cannot be used: the run failed: stopped after iteration 4, without an end line: repeat it
        1n1g/rn50_b8_fp32_3.log: the run is repeated: finished earlier, but record DIR/out/1n1g/rn50_b8_fp32_3.jsonl cannot be used: contains run 4, unlike its file name: restore the original name
        1 of 4 runs are finished"#]].assert_eq(&earlier_runs(&stdout));
    assert_eq!(sandbox.ran()[4..], ["1n1g_1", "1n1g_2", "1n1g_3"]);
    assert_eq!(sandbox.states(), vec![RunState::Finished; 4]);
    assert_eq!(sandbox.extract().0, Some(0));
}

/// Uses a script in place of the worker. Tests which checkpoint is passed to which run, and which are removed.
#[test]
fn checkpoint_is_used_by_its_run_and_removed_afterwards() {
    let sandbox = Sandbox::with_valid_worker();
    let options = "--cases 1n1g --runs 3 --checkpoint-every 2";
    sandbox.hook(HANG_IN_SECOND);
    let mut sweep = sandbox.short_sweep(options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_until("the second run begins", || sandbox.path("hung").exists());
    let checkpoints = [1, 2, 3].map(|run| sandbox.path(&format!("out/1n1g/rn50_b8_fp32_{run}.safetensors")));
    checkpoints.iter().take(2).for_each(|checkpoint| fs::write(checkpoint, "of this run").expect("written"));
    kill(Pid::from_raw(sweep.id().cast_signed()), Signal::SIGINT).expect("running process");
    assert_eq!(sweep.wait().expect("ended").code(), Some(130));
    // Checkpoints do not disturb readers.
    let (_, left_out) = sandbox.extract();
    assert!(left_out.contains("1n1g/rn50_b8_fp32_2.log:") && !left_out.contains("safetensors"), "{left_out}");

    let stdout = succeeds_silently(&mut sandbox.short_sweep(&format!("{options} --resume --dry-run --verbose")));
    let commands: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("# ")).collect();
    let [second, third] = commands[..] else { panic!("{stdout}") };
    let path = checkpoints[1].display();
    assert!(
        second.contains(&format!(" --checkpoint {path} --checkpoint-every 2 --from-checkpoint {path} ")),
        "{second}"
    );
    assert!(third.contains(&format!(" --checkpoint {} ", checkpoints[2].display())), "{third}");
    assert!(!third.contains("--from-checkpoint"), "{third}");
    let stdout =
        succeeds_silently(&mut sandbox.short_sweep(&format!("{options} --resume --repeat 1n1g --dry-run --verbose")));
    assert!(!stdout.contains("--from-checkpoint"), "{stdout}");
    let error = refused(&mut sandbox.short_sweep("--cases 1n1g --runs 3 --checkpoint-every 3 --resume"), 2);
    expect![[r#"
        error: --resume: the sweep in DIR/out has other settings, so new runs would not be comparable:
        --checkpoint-every: 2 then, 3 now
        use the same settings (ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --cases 1n1g --runs 3 --checkpoint-every 2 --resume --out DIR/out), or choose another --out
    "#]]
    .assert_eq(&without_paths(&error));

    let stdout = succeeds_silently(&mut sandbox.short_sweep(&format!("{options} --resume")));
    assert!(stdout.contains(&format!("\n1n1g run 2 of 3: resuming from checkpoint {path}\n")), "{stdout}");
    assert_eq!(sandbox.states(), vec![RunState::Finished; 3]);
    assert!(checkpoints.iter().all(|checkpoint| !checkpoint.exists()));
    let error = refused(&mut sandbox.short_sweep("--strategy dist_sync --checkpoint-every 2"), 2);
    expect![[r#"
        error: --checkpoint-every is not supported with --strategy dist_sync and --gradient-compression none, which keep state on servers or ranks outside the checkpoint: omit one of them
    "#]].assert_eq(&error);
}

const SUITE: &str = "--suite ddp --model resnet50_v1b --runs 2";

#[test]
fn repeat_runs_a_case_again_and_keeps_earlier_files() {
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g,1n2g --runs 2"));
    let first = fs::read_to_string(sandbox.path("out/1n1g/rn50_b8_fp32_2.log")).expect("written");
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g,1n2g --runs 2 --resume --repeat 1n1g"));
    expect![[r#"
        logs and records: DIR/out
        1n1g/rn50_b8_fp32_1.log: the run is repeated: finished earlier, but repeat requested
        1n1g/rn50_b8_fp32_2.log: the run is repeated: finished earlier, but repeat requested
        2 of 4 runs are finished"#]]
    .assert_eq(&earlier_runs(&stdout));
    assert_eq!(sandbox.ran()[4..], ["1n1g_1", "1n1g_2"]);
    assert_eq!(sandbox.states(), vec![RunState::Finished; 4]);
    let kept = fs::read_to_string(sandbox.path("out/1n1g/rn50_b8_fp32_2.log.1")).expect("kept");
    assert_eq!(kept, first);
    // Once: the command in the manifest does not repeat them again.
    let manifest = Manifest::find(&sandbox.path("out")).expect("readable").expect("there");
    assert!(manifest.command.iter().all(|argument| argument != "--repeat" && argument != "1n1g"), "{manifest:?}");
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g,1n2g --runs 2 --resume"));
    expect![[r#"
        logs and records: DIR/out
        4 of 4 runs are finished"#]]
    .assert_eq(&earlier_runs(&stdout));

    // The last command may have had other cases.
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 2 --resume --repeat 1n2g"));
    assert_eq!(sandbox.ran()[6..], ["1n2g_1", "1n2g_2"], "{stdout}");
    let error = refused(&mut sandbox.short_sweep("--cases 1n1g --runs 2 --resume --repeat 2n1g"), 2);
    expect![[r"
        error: case 2n1g needs 2 hosts, --hosts has 1: use --hosts localhost:2,HOST2:1, or choose --cases 1n1g
    "]]
    .assert_eq(&error);
}

#[test]
fn earlier_sweep_is_extended_to_the_ddp_suite() {
    let sandbox = Sandbox::with_valid_worker();
    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g,1n2g --runs 2"));
    // With its own network and batch size instead of the suite's.
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--suite ddp --runs 2 --resume"));
    expect![[r#"
        logs and records: DIR/out
        each run is followed by its baseline, a run without communication, except for 1n1g, where one rank has no communication
        4 of 6 runs are finished"#]].assert_eq(&earlier_runs(&stdout));
    assert!(stdout.contains("\n1n2g baseline, run 2 of 2: 32.00 images/s"), "{stdout}");
    assert_eq!(sandbox.ran()[4..], ["none_1n2g_1", "none_1n2g_2"]);
    assert_eq!(sandbox.states(), vec![RunState::Finished; 6]);
    // 8 images in 0.5 s, as in the record.
    let line = |label: &str| {
        let figures = [50, 75, 90, 95].map(|percent| format!("  p{percent}:  0.500s      16/s"));
        format!("{label}:{}\n", figures.concat())
    };
    let lines = ["   1 GPUs --   no ddp", "   2 GPUs --   no ddp", "   2 GPUs --    1M/2G"].map(line).concat();
    assert!(stdout.contains(&lines), "{stdout}");
    assert!(stdout.ends_with(" --format pytorch-ddp > FILE.json\n"), "{stdout}");

    // The suite is an option of the last command.
    let stdout = succeeds_silently(&mut sandbox.short_sweep("--cases 1n2g --runs 3 --resume"));
    expect![[r#"
        logs and records: DIR/out
        each run is followed by its baseline, a run without communication
        4 of 6 runs are finished"#]]
    .assert_eq(&earlier_runs(&stdout));
    assert_eq!(sandbox.ran()[6..], ["1n2g_3", "none_1n2g_3"]);
    assert_eq!(sandbox.states(), vec![RunState::Finished; 8]);
}

#[test]
fn suite_over_axes_has_a_block_per_point() {
    let sandbox = Sandbox::with_valid_worker();
    let options = "--suite ddp --model resnet50_v1b --cases 1n2g --runs 1 --batch-sizes 8,16";
    let stdout = succeeds_silently(&mut sandbox.short_sweep(options));
    assert_eq!(sandbox.ran(), ["1n2g_1", "none_1n2g_1", "1n2g_1", "none_1n2g_1"]);
    assert!(stdout.contains("\n1n2g b16 baseline, run 1 of 1: 64.00 images/s"), "{stdout}");
    for (batch, rate) in [(8, 16), (16, 32)] {
        let block = stdout.split("\nBenchmark: ").find(|block| block.starts_with(&title(batch))).expect(&stdout);
        let lines: Vec<&str> = block.lines().filter(|line| line.contains("GPUs --")).collect();
        assert_eq!(lines.len(), 2, "{block}");
        assert!(lines.iter().all(|line| line.ends_with(&format!("p95:  0.500s  {rate:>6}/s"))), "{block}");
    }
    fn title(batch: u32) -> String {
        format!("resnet50 with batch size {batch}\n")
    }
}

#[test]
fn interrupted_baseline_runs_again_with_its_case() {
    let sandbox = Sandbox::with_valid_worker();
    let hang = HANG_IN_SECOND.replace("1n1g_2", "none_1n2g_1");
    sandbox.hook(&hang);
    let error = File::create(sandbox.path("stderr")).expect("created");
    let mut sweep = sandbox.short_sweep(SUITE).stdout(Stdio::null()).stderr(error).spawn().expect("starts");
    wait_until("the baseline begins", || sandbox.path("hung").exists());
    let error = refused(&mut sandbox.short_sweep(&format!("{SUITE} --resume")), 2);
    assert!(error.contains(" is in use by ringmark (process "), "{error}");
    assert!(sandbox.files("no-communication/1n2g").contains("rn50_b8_fp32_1.log.part"));
    kill(Pid::from_raw(sweep.id().cast_signed()), Signal::SIGINT).expect("running process");
    assert_eq!(sweep.wait().expect("ended").code(), Some(130));
    let stderr = fs::read_to_string(sandbox.path("stderr")).expect("read");
    expect![[r#"
        error: interrupted in 1n2g baseline, run 1 of 2; 3 of 6 runs are complete
        resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --suite ddp --model resnet50_v1b --runs 2 --resume
    "#]].assert_eq(&without_paths(&stderr));
    let (status, left_out) = sandbox.extract();
    assert_eq!(status, Some(1));
    expect![[r#"
        not in the figures: sweep.json: 3 runs are missing (not yet run: 1n2g/rn50_b8_fp32_2.log, no-communication/1n2g/rn50_b8_fp32_2.log): resume with: ringmark sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2 --worker DIR/worker --out DIR/out --suite ddp --model resnet50_v1b --runs 2 --resume
        not in the figures: no-communication/1n2g/rn50_b8_fp32_1.log:3: the run failed: interrupted: repeat it
        wrote DIR/extracted/out_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/out are not complete: see the 2 messages above
    "#]].assert_eq(&without_paths(&left_out));
    // A partial record, as left by a killed worker, is removed.
    fs::write(sandbox.path("out/no-communication/1n2g/.rn50_b8_fp32_1.jsonl.77.part"), "half").expect("written");

    expect![[r#"
        logs and records: DIR/out
        each run is followed by its baseline, a run without communication, except for 1n1g, where one rank has no communication
        no-communication/1n2g/rn50_b8_fp32_1.log: the run is repeated: interrupted
        3 of 6 runs are finished"#]].assert_eq(&earlier_runs(&succeeds_silently(&mut resume_command(&stderr))));
    let order = "1n1g_1 1n1g_2 1n2g_1 none_1n2g_1 none_1n2g_1 1n2g_2 none_1n2g_2";
    assert_eq!(sandbox.ran(), words(order).collect::<Vec<_>>());
    let expected = "rn50_b8_fp32_1.jsonl rn50_b8_fp32_1.log rn50_b8_fp32_1.log.1 rn50_b8_fp32_2.jsonl \
                    rn50_b8_fp32_2.log";
    assert_eq!(sandbox.files("no-communication/1n2g"), names(expected));

    // A run with communication does not count as a baseline, and a folder that contains only baselines is not empty.
    let record = sandbox.path("out/1n2g/rn50_b8_fp32_2.jsonl");
    fs::copy(record, sandbox.path("out/no-communication/1n2g/rn50_b8_fp32_2.jsonl")).expect("copied");
    expect![[r#"
        logs and records: DIR/out
        each run is followed by its baseline, a run without communication, except for 1n1g, where one rank has no communication
        no-communication/1n2g/rn50_b8_fp32_2.log: the run is repeated: finished earlier, but record DIR/out/no-communication/1n2g/rn50_b8_fp32_2.jsonl cannot be used: contains a run with communication (solo), but is in a folder of runs without it: move it back
        5 of 6 runs are finished"#]].assert_eq(&earlier_runs(&succeeds_silently(&mut sandbox.short_sweep(&format!("{SUITE} --resume")))));
    assert_eq!(sandbox.ran().len(), 8);
    for name in ["sweep.json", "1n1g", "1n2g"] {
        let path = sandbox.path("out").join(name);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("removed");
    }
    let error = refused(&mut sandbox.short_sweep(SUITE), 2);
    expect![[r"
        error: --out DIR/out already contains runs (DIR/out/no-communication/1n2g/rn50_b8_fp32_1.log): choose another folder, or move this one away
    "]].assert_eq(&without_paths(&error));
}

#[test]
fn resume_requires_a_readable_manifest() {
    let sandbox = Sandbox::with_valid_worker();
    let mut resume = sandbox.short_sweep("--cases 1n1g --resume");
    let error = refused(&mut resume, 2);
    expect![[r"
        error: --out DIR/out contains no sweep to resume (no sweep.json): omit --resume, or choose another --out
    "]]
    .assert_eq(&without_paths(&error));
    assert!(!sandbox.path("out").exists());
    let error = refused(ringmark("sweep --resume --cases 1n1g --worker").arg(sandbox.worker()), 2);
    assert!(error.contains("--out <FOLDER>"), "{error}");

    succeeds_silently(&mut sandbox.short_sweep("--cases 1n1g --runs 1"));
    let manifest = fs::read_to_string(sandbox.path("out/sweep.json")).expect("read");
    let line = 1 + manifest.lines().position(|line| line.contains("\"--dtype\"")).expect("present");
    fs::write(sandbox.path("out/sweep.json"), manifest.replace("\"fp32\"", "32")).expect("written");
    let error = refused(&mut resume, 1);
    let place = format!("{}: the manifest is damaged: ", sandbox.path("out/sweep.json").display());
    assert!(error.contains(&place) && error.contains(&format!("at line {line} ")), "{error}");
    let (status, stderr) = sandbox.extract();
    assert_eq!(status, Some(1));
    expect![[r#"
        not in the figures: sweep.json: the manifest is damaged: invalid type: integer `32`, expected a string at line 46 column 19: restore the file from a copy; without it runs cannot be checked, and the sweep cannot be resumed
        wrote DIR/extracted/out_result.json, _result.csv, _result.md, _dlperf.json
        error: the figures of DIR/out are not complete: see the message above
    "#]].assert_eq(&without_paths(&stderr));
    assert!(sandbox.path("extracted/out_result.json").exists());

    let mut refuse = |text: &str| {
        fs::write(sandbox.path("out/sweep.json"), text).expect("written");
        let error = refused(&mut resume, 1);
        assert_eq!(fs::read_to_string(sandbox.path("out/sweep.json")).expect("still there"), text);
        error
    };
    for cut in (0..manifest.trim_end().len()).step_by(manifest.len() / 20) {
        let error = refuse(&manifest[..cut]);
        assert!(error.contains(&place) && error.contains(" at line "), "cut at {cut}: {error}");
    }
    let later = manifest.replacen(&format!("\"schema\": {}", manifest::SCHEMA), "\"schema\": 99", 1);
    assert_ne!(later, manifest);
    let error = refuse(&later);
    expect![[r"
        error: DIR/out/sweep.json: manifest format 99 is not readable by this ringmark (up to 2): use the ringmark that wrote it: restore it from a copy, or choose another --out (`ringmark extract` reads the runs without it)
    "]].assert_eq(&without_paths(&error));
    // No run was started because of any of these manifests.
    assert_eq!(sandbox.ran(), ["1n1g_1"]);
}

#[test]
fn two_commands_never_share_an_output_folder() {
    let sandbox = Sandbox::with_valid_worker();
    let mut sweep = sandbox.start_hanging();
    let process = format!("is in use by ringmark (process {} on host ", sweep.id());
    for options in ["--cases 1n1g", "--cases 1n1g --runs 3 --resume", "--cases 1n1g --batch-size 64"] {
        let error = refused(&mut sandbox.short_sweep(options), 2);
        assert!(error.contains(&process) && error.contains("wait for it to exit"), "{error}");
    }
    let mut bandwidth = ringmark("bandwidth --device cpu --hosts localhost:2 --cases 1n2g");
    let error = refused(bandwidth.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")), 2);
    assert!(error.contains(&process), "{error}");
    kill(Pid::from_raw(sweep.id().cast_signed()), Signal::SIGTERM).expect("running process");
    assert_eq!(sweep.wait().expect("ended").code(), Some(143));
    succeeds_silently(&mut sandbox.short_sweep(&format!("{OPTIONS} --resume")));
}

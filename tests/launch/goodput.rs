//! Tests of `ringmark goodput` with real workers that are killed.

use std::fs;
use std::process::Command;

use expect_test::expect;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::{LossKind, RunRecord};
use ringmark_core::goodput::{GOODPUT, Goodput};

use crate::support::core_tokens::take_all_cores;
use crate::support::processes_of;
use crate::support::sandbox::{Sandbox, fails, refused, ringmark, run, succeeds};
use crate::support::worker_run::checksum;

/// Returns `ringmark goodput` of two slow ranks.
fn goodput(sandbox: &Sandbox, options: &str) -> Command {
    let mut command = ringmark(
        "goodput --no-doctor --device cpu --model mxnet-lenet --batch-size 4 --image-size 28 --threads 1 --lr 0.03 \
         --lr-warmup-iters 0 --hosts localhost:2 --cases 1n2g --runs 2 --iters 40 --warmup 4 --failures kill",
    );
    command.args(options.split(' ')).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    command
}

fn read(sandbox: &Sandbox) -> Goodput {
    Goodput::find(&sandbox.path("out")).expect("valid").expect("a result")
}

fn record(sandbox: &Sandbox, folder: &str) -> RunRecord {
    let path = sandbox.path("out").join(folder).join("1n2g/mxnet-lenet_b4_fp32_1.jsonl");
    RunRecord::read(&fs::read(path).expect("a record")[..]).expect("whole")
}

#[test]
fn lost_time_is_measured_and_predicted() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = "--mtbf 3 --duration 8 --checkpoint-intervals 1s,auto --predict-hosts 1,4 --failure-seed 9399";
    let stdout = succeeds(&mut goodput(&sandbox, options));
    let result = read(&sandbox);
    assert!(stdout.contains("checkpoints every 1s: ") && stdout.contains("; predicted goodput "), "{stdout}");
    assert!(stdout.contains("Lost time by cause") && stdout.contains("Other numbers of hosts"), "{stdout}");
    let [failure] = &result.failures[..] else { panic!("{result:?}") };
    assert_eq!((failure.kind, failure.failures), (LossKind::Kill, 2));
    let restart = failure.restart;
    assert!(restart.start.mean > 0.0 && restart.load.mean > 0.0 && result.checkpoint.stall.mean > 0.0, "{result:?}");
    assert_eq!(result.intervals.len(), 2);
    for interval in &result.intervals {
        let (measured, length) = (&interval.measured, interval.length);
        let record = record(&sandbox, &interval.folder);
        assert_eq!(record.iterations.len() as u32, length.iterations);
        assert_eq!(length.iterations % length.checkpoint_every, 0);
        // With this seed, failures come after 0.75 s, after another 2.29 s, and after another 16 s.
        assert!(measured.failures >= 1, "{measured:?}");
        let resumptions = &record.header.resumptions;
        assert_eq!(measured.failures as usize, resumptions.len());
        for one in resumptions.iter().filter_map(|resumption| resumption.interruption.as_ref()) {
            assert!(one.cause.contains("SIGKILL"), "{}", one.cause);
        }
        // Not below 1 in every test: the short runs without failures can be slower on a loaded machine.
        assert!(measured.goodput > 0.0, "{measured:?}");
        let sum = measured.useful.0 + measured.slower.0 + measured.lost.total();
        assert!((sum - measured.wall.0).abs() < 1e-6, "{measured:?}");
        // From the start of the first attempt to the end of the last one; without that start and the end of the job.
        let last = resumptions.last().expect("at least one");
        let written: f64 = record.end.iter().flat_map(|end| &end.checkpoints).map(|write| write.stall.0).sum();
        let after = record.end.as_ref().expect("complete").wall.0 - last.wall_before.0 + written;
        let elapsed = last.started.0 + after - record.header.started.0;
        assert!(measured.wall.0 < elapsed + 0.5 && measured.wall.0 > 0.5 * elapsed, "{} of {elapsed}", measured.wall);
        assert!((measured.useful.0 - length.work.0).abs() < 1e-6, "{measured:?}");
        let by_speed = measured.speed.0 / result.undisturbed_speed.0;
        assert!((measured.goodput - by_speed).abs() < 1e-6, "{measured:?}, {by_speed}");
        let band = interval.predicted.expect("a prediction");
        assert!(0.0 < band.low && band.low <= band.mid && band.mid <= band.high && band.high < 1.0, "{band:?}");
    }
    let hosts: Vec<(u32, f64)> = result.predictions.iter().map(|one| (one.hosts, one.mtbf.0)).collect();
    assert_eq!(hosts, [(1, 3.0), (4, 0.75)]);
    assert_eq!(processes_of(sandbox.folder.path()), []);

    // A finished result is complete; a report shows it again.
    let again = succeeds(&mut goodput(&sandbox, &format!("{options} --resume")));
    assert!(!again.contains("restart 1 of"), "{again}");
    assert_eq!(read(&sandbox).intervals, result.intervals);
    let other = options.replace("--mtbf 3", "--mtbf 4");
    let (status, _, other) = run(&mut goodput(&sandbox, &format!("{other} --resume")));
    assert_eq!(status, Some(2), "{other}");
    assert!(other.contains("every_1s are random:3:9399:kill, not random:4:9399:kill: use the same --mtbf"), "{other}");
    let table = succeeds(ringmark("report").arg(sandbox.path("out")));
    assert!(table.contains("Interval between checkpoints"), "{table}");
    let page = sandbox.path("page.html");
    succeeds(ringmark("report").arg(sandbox.path("out")).arg("-o").arg(&page));
    let page = fs::read_to_string(page).expect("written");
    assert!(page.contains("time line of each run") && page.contains("redo: "), "no time line");
    let json = succeeds(ringmark("report --json").arg(sandbox.path("out")));
    assert_eq!(serde_json::from_str::<Goodput>(&json).expect("a result").intervals, result.intervals);

    // An unfinished part begins again. Failures do not change the weights.
    let folder = sandbox.path("out");
    let first = record(&sandbox, "every_auto");
    fs::remove_file(folder.join("every_auto/1n2g/mxnet-lenet_b4_fp32_1.jsonl")).expect("removed");
    fs::remove_file(folder.join(GOODPUT)).expect("removed");
    succeeds(&mut goodput(&sandbox, &format!("{options} --resume")));
    assert!(folder.join("every_auto.1").is_dir());
    assert_eq!(read(&sandbox).intervals[0], result.intervals[0]);
    assert_eq!(checksum(&record(&sandbox, "every_auto")), checksum(&first));
}

#[test]
fn options_are_checked() {
    let sandbox = Sandbox::real();
    let refusal = |options: &str| refused(&mut goodput(&sandbox, &format!("--mtbf 60 {options}")), 2);
    let errors = [
        refusal("--restarts 1"),
        refusal("--checkpoint-every 5"),
        refusal("--inject fail:3:1"),
        refusal("--epochs 1"),
        refusal("--runs 1"),
        refusal("--dtypes fp32,bf16"),
        refusal("--failures link"),
        refusal("--failures kill,kill"),
        refusal("--checkpoint-intervals 60s,1m"),
    ];
    expect![[r#"
        error: --restarts is set by this command: omit it
        error: --checkpoint-every is set by this command: use --checkpoint-intervals
        error: --inject is set by this command: omit it
        error: --epochs 1 needs a data set: add --data FILE
        error: the argument '--runs <N>' cannot be used multiple times

        For more information, try '--help'.
        error: goodput trains one network in one case, but these options have 2 combinations: choose one with --cases, --model, --dtype, --batch-size and --strategy
        error: --failures link needs several hosts: ranks of one host have no network between them
        error: --failures lists kill twice: list it once
        error: --checkpoint-intervals lists 60s twice: list it once
    "#]].assert_eq(&errors.concat());
    let plan = succeeds(&mut goodput(&sandbox, "--mtbf 600 --duration 30m --checkpoint-intervals 1m,auto --dry-run"));
    let begin: Vec<&str> = plan.lines().filter(|line| !line.contains("time: ")).skip(2).take(5).collect();
    expect![[r#"
        # 1. 2 runs without failures
        # 2. 2 runs of 10 iterations with one failure each (kill)
        # 3. 2 runs of 30.0 min with a failure every 10.0 min: 60.0 min of training, about 6 failures, and a restart after each
        # checkpoint: 0.003 GB beside the record of each run; the next one replaces it
        # the first part, runs without failures, for the speed and the cost of a checkpoint:"#]].assert_eq(&begin.join("\n"));
    assert!(plan.contains("\n# time: about "), "{plan}");
    assert!(plan.lines().last().is_some_and(|line| line.ends_with(": --verbose prints it")), "{plan}");
    // The costs show that no run would end.
    let error = fails(&mut goodput(&sandbox, "--mtbf 1 --duration 100000 --checkpoint-intervals 1h"));
    assert!(
        error.contains("--checkpoint-intervals 3600s: with --mtbf 1 s, training would take more than 20 times"),
        "{error}"
    );
}

//! Strategies over several hosts: results of servers and sharded updates; dedicated server hosts, which are examined
//! before a job, receive the copy of the worker, and lose their links.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use ringmark::launch::job::mpirun::TRANSPORTS;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;

use crate::support::cluster::{Cluster, succeed};
use crate::support::cluster_sweep::{Sweep, print, until_empty};
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{MPIRUN, Sandbox, wait_until, words};
use crate::support::worker_run::{checksum, process_of_rank};
use crate::support::{processes_of, worker};

/// Each host pushes separately, so servers add the pushes of several hosts; with owners, ranks are on different
/// hosts.
#[test]
fn every_strategy_matches_all_reduce_on_two_hosts() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("record.jsonl");
    // Three iterations with momentum, with one array that is split and some that are not.
    let weights = |ranks: [u32; 2], options: &str| {
        let all = format!(
            "train --device cpu --model resnet18 --batch-size 2 --image-size 32 --iters 3 --warmup 0 --threads 1 --lr 0.0005 \
             --lr-warmup-iters 0 {options} --record"
        );
        let path = path.to_str().expect("UTF-8");
        succeed(&cluster.worker(&ranks, &words(&all).chain([path]).collect::<Vec<_>>()));
        checksum(&RunRecord::read(&fs::read(path).expect("written")[..]).expect("a record")).to_owned()
    };
    // The last processes are the servers, all on the second host.
    let of_servers = [(1, "dist_sync --servers 1"), (2, "dist_sync --servers 2")];
    let all = [&of_servers[..], &[(0, "zero1"), (0, "device"), (0, "nccl")]].concat();
    let all = [&all[..], &[(0, "zero2"), (0, "fsdp --bucket-mb 4")]].concat();
    for (code, strategies) in [("none", &all[..]), ("2bit:0.001", &of_servers)] {
        let code = format!("--gradient-compression {code}");
        let all_reduce = weights([1, 1], &code);
        for (servers, strategy) in strategies {
            let options = format!("{code} --strategy {strategy}");
            assert_eq!(weights([1, 1 + servers], &options), all_reduce, "{options}");
        }
    }
}

/// Two ranks of each host divide weights and gradients, and the owners of a part add over the hosts.
#[test]
fn hybrid_shards_match_all_reduce_on_two_hosts() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let record_of = |ranks: [u32; 2], options: &str| {
        let all = format!(
            "train --device cpu --model gpt2-tiny --batch-size 4 --sequence-length 16 --iters 4 --warmup 0 --threads 1 \
             --lr-warmup-iters 0 --bucket-mb 0.05 {options} --record {}",
            path("record.jsonl")
        );
        succeed(&cluster.worker(&ranks, &words(&all).collect::<Vec<_>>()));
        RunRecord::read(&fs::read(path("record.jsonl")).expect("written")[..]).expect("a record")
    };
    let record = |options: &str| record_of([2, 2], options);
    // Hosts with one rank have copies of all weights, as with all-reduce.
    let [all_reduce, hybrid] =
        ["all-reduce", "hsdp"].map(|strategy| record_of([1, 1], &format!("--strategy {strategy}")));
    assert_eq!((checksum(&hybrid), hybrid.header.backend), (checksum(&all_reduce), all_reduce.header.backend));
    for rule in ["--optimizer sgd --momentum 0.9 --lr 0.05", "--optimizer adamw --clip-norm 0.5"] {
        let all_reduce = record(rule);
        for exchange in ["", "--backend mpi", "--accumulate 2"] {
            let hybrid = record(&format!("{rule} --strategy hsdp {exchange}"));
            let of_both = [&all_reduce, &hybrid].map(|record| record.iterations.iter().map(|one| one.loss.clone()));
            for (all_reduce, hybrid) in of_both[0].clone().zip(of_both[1].clone()) {
                let sums = [all_reduce, hybrid].map(|loss| loss.iter().sum::<f64>());
                assert!((sums[0] - sums[1]).abs() < 1e-5 * sums[0].abs(), "{rule} {exchange}: {sums:?}");
            }
            // The ranks of both hosts have the same weights.
            checksum(&hybrid);
        }
    }
    // Each rank sends and receives half of two gathers and a sum within the host, and its half of the sums between hosts.
    let options = "--optimizer adamw --strategy hsdp --checkpoint-every 2";
    let whole = record(&format!("{options} --checkpoint {}", path("checkpoint")));
    let sent: u64 = whole.end.as_ref().and_then(|end| end.strategy.as_ref()).expect("bytes").sent_by_rank[0].0;
    let weights = whole.header.buckets.iter().map(|bucket| bucket.0).sum::<u64>();
    assert!((weights..2 * weights + weights / 2).contains(&sent), "{sent} bytes for {weights} of weights");
    let again = record(&format!("{options} --checkpoint {} --from-checkpoint {}", path("again"), path("checkpoint")));
    assert_eq!((again.header.iterations_before(), checksum(&again)), (4, checksum(&whole)));
}

#[test]
fn server_host_with_a_failed_link_is_reported() {
    let Some(cluster) = Cluster::start(3) else { return };
    let tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let [first, second, third] = [1, 2, 3].map(|number| cluster.host(number));
    let servers = format!("--strategy dist_sync --servers 1 --server-hosts {third}");
    let options = format!("--hosts {first}:1,{second}:1 {servers} --iters 100000");
    let mut sweep = Sweep::start(&cluster, folder.path(), "2n1g", &options);
    sweep.reach();
    // From here on the test only waits for the fault to be detected.
    drop(tokens);
    let since = Instant::now();
    succeed(&cluster.call(&["on", "3", "ip", "link", "set", "eth0", "down"]));
    let outcome = sweep.end(since);
    print("link of a server's host down", &outcome);
    until_empty(&cluster);
    let server = format!("server 0 of 1 on host {third}");
    // Detected by the launcher if it happens between two frames, and by the reading rank within a frame.
    let (hang, failure) =
        (format!("failed: no progress for 10 s: {server} (process "), format!("lost the connection to {server} ("));
    let line = &outcome.last_line;
    let (found, cause) = match line.contains(&failure) {
        true => (failure, format!("; {server} has not reported for ")),
        false => (
            hang,
            "the process is stopped, or its host or link is down; ranks 0-1 wait for it in iteration ".to_owned(),
        ),
    };
    assert!(line.contains(&found) && line.contains(&cause) && line.contains("link"), "{line}");
    assert_eq!(outcome.status, Some(1));
}

/// Started without the launcher because mpirun continues without the lost ranks. On the second host two ranks add
/// their gradients before one of them pushes; both are killed, or only one.
#[test]
fn lost_aggregating_ranks_end_an_asynchronous_job() {
    let Some(cluster) = Cluster::start(2) else { return };
    let lose = |lost: &[u32], name: &str| {
        let tokens = take_all_cores();
        let folder = tempfile::tempdir().expect("a folder");
        let (program, path) = (folder.path().join("worker"), |name: &str| folder.path().join(name));
        symlink(worker(), &program).expect("linked");
        let mut command = cluster.command(&["run", "mpirun"]);
        command.args(words(MPIRUN)).args(words("5 --continuous -H"));
        command.arg(format!("{}:2,{}:3", cluster.host(1), cluster.host(2)));
        command.args(words("-x OMP_NUM_THREADS=1 -mca btl")).args([TRANSPORTS]).arg(&program);
        command
            .args(words("train --model resnet18 --device cpu --threads 1 --batch-size 2 --image-size 32 --warmup 0"));
        command.args(words("--iters 100000 --strategy dist_device_async --servers 1 --record")).arg(path("record"));
        let file = |name: &str| fs::File::create(path(name)).expect("created");
        let output = command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr"));
        let mut mpirun = output.spawn().expect("starts");
        let output_text = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
        wait_until("the second iteration comes", || output_text("stdout").contains("Batch[2]"));
        for rank in lost {
            kill(process_of_rank(folder.path(), *rank), Signal::SIGKILL).expect("running process");
        }
        // No core is needed: a rank that waits in shared memory detects the end of another after a while.
        drop(tokens);
        let own = program.display().to_string();
        let is_worker = |(_, line): &(_, String)| line.starts_with(&own);
        wait_until("no rank is left", || !processes_of(folder.path()).iter().any(is_worker));
        // Open MPI 4.1's mpirun may keep running after all processes on other hosts have ended.
        mpirun.kill().expect("a child");
        mpirun.wait().expect("a child");
        let errors = output_text("stderr");
        assert!(errors.contains(name), "{lost:?}: {errors}");
        let reason = "sum their gradients first";
        assert!(errors.lines().any(|line| line.contains(reason)), "{lost:?}: {errors}");
        assert!(!path("record").exists(), "{lost:?}: {errors}");
    };
    let cases: [(&[u32], &str); 3] = [(&[2, 3], "rank 2"), (&[2], "rank 2"), (&[3], "rank 3")];
    // In parallel: most of the time is spent waiting for the end.
    thread::scope(|scope| {
        for (lost, name) in cases {
            scope.spawn(move || lose(lost, name));
        }
    });
}

#[test]
fn server_only_host_is_checked_and_synced() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let [first, second] = [1, 2].map(|number| cluster.host(number));
    let on = |host: &str, command: &str| succeed(&cluster.call(&["run", "ssh", host, command]));
    // The hosts share a disk: the second host has no worker, and each gets its own folder for the copy.
    on(&second, &format!("mount --bind /dev/null {}", worker().display()));
    let copy = sandbox.path("copy");
    std::fs::create_dir(&copy).expect("made");
    [&first, &second].into_iter().for_each(|host| on(host, &format!("mount -t tmpfs none {}", copy.display())));
    let ringmark = |options: &str, worker: &Path| {
        let mut command = cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark")]);
        command.args(words(options)).args(words("--device cpu --hosts")).arg(format!("{first}:2"));
        command.args(["--server-hosts", &second, "--worker"]).arg(worker);
        command.output().expect("starts")
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    let out = sandbox.path("out").display().to_string();
    let training = "--cases 1n2g --runs 1 --model mxnet-lenet --batch-size 2 --iters 2 --warmup 1 --threads 1";
    let sweep = format!("sweep {training} --strategy dist_sync --servers 1 --out {out}");
    let missing = format!("error: {second}, worker: ");
    for (options, end) in [("doctor --quick", "a job on these hosts would fail"), (&sweep, "no job was started")] {
        let output = ringmark(options, &worker());
        let output_text = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output_text}");
        assert!(output_text.contains(&missing) && output_text.contains(end), "{output_text}");
        // It runs no ranks, so it needs neither a device nor a results folder.
        assert!(!output_text.contains(&format!("error: {second}, GPUs")), "{output_text}");
    }

    let output = ringmark(&format!("doctor --quick --sync {}", copy.display()), &worker());
    succeed(&output);
    let (table, copied) = (text(&output.stdout), text(&output.stderr));
    for host in [&first, &second] {
        assert!(copied.contains(&format!("sync to {host}:{}: ", copy.display())), "{copied}");
        assert!(table.lines().any(|line| line.starts_with(&**host)), "{table}");
    }
    let output = ringmark(&format!("{sweep} --sync {}", copy.display()), &worker());
    succeed(&output);
    assert!(text(&output.stdout).contains("interface: eth0, "), "the network of both: {}", text(&output.stdout));
}

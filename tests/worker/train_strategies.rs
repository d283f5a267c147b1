//! Tests of `ringmark-worker train --strategy` with real servers: ranks and servers are processes of one mpirun, and
//! their results are compared with all-reduce.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::iter;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::strategy::StrategyUse;
use ringmark_core::benchmark::strategy::gathers::GatherUse;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{Bytes, Phase, Seconds, Strategy};
use ringmark_core::host::heartbeat::{LAUNCHER_VARIABLE, WELCOME};
use ringmark_core::host::{Heartbeat, LauncherAddress, Message, Stage};
use ringmark_core::trace::chrome;

use crate::support::safetensors;
use crate::support::sandbox::write_program;
use crate::support::worker as worker_program;
use crate::support::worker_run::{
    Finished, Run, apart, assert_no_rank_left, batch, checksum, gradient_step, losses, process_of_rank, small_init,
};

/// A small network, with an update of full size and momentum.
const TRAIN: &str = "--model resnet18 --iters 2 --lr 0.0005 --lr-warmup-iters 0";

fn used(record: &RunRecord) -> &StrategyUse {
    record.end.as_ref().expect("an end").strategy.as_ref().expect("what the strategy did")
}

/// Bytes of ResNet-18's weights.
const WEIGHTS: u64 = 4 * 11_689_512;

#[test]
fn synchronous_strategies_match_all_reduce() {
    let all_reduce = Run::ranks(2, TRAIN).finish().valid_record();
    assert!(all_reduce.end.as_ref().expect("an end").strategy.is_none());
    for (servers, strategy) in [
        (0, "zero1"),
        (0, "zero1 --backend mpi"),
        (0, "zero2"),
        (0, "fsdp"),
        (0, "fsdp --backend mpi --bucket-mb 4"),
        (0, "hsdp"),
        (0, "local"),
        (0, "device"),
        (0, "nccl"),
        (1, "dist_sync"),
        (2, "dist_device_sync"),
        (3, "dist_sync --key-placement hash"),
    ] {
        let servers_option = if servers > 0 { format!("--servers {servers}") } else { String::new() };
        let record =
            Run::ranks(2 + servers, &format!("{TRAIN} --strategy {strategy} {servers_option}")).finish().valid_record();
        // The sum of two gradients does not depend on the order.
        assert_eq!((losses(&record), checksum(&record)), (losses(&all_reduce), checksum(&all_reduce)), "{strategy}");
        assert_eq!((record.header.ranks.len(), record.header.case.to_string().as_str()), (2, "1n2g"), "{strategy}");
        let used = used(&record);
        assert_eq!((used.servers.len() as u32, used.staleness), (servers, None), "{strategy}");
        let held: Vec<u64> = match servers {
            0 => used.owned.iter().map(|bytes| bytes.0).collect(),
            _ => used.servers.iter().map(|server| server.weights.0).collect(),
        };
        assert_eq!(held.iter().sum::<u64>(), WEIGHTS, "{strategy}");
        match strategy {
            "nccl" => assert_eq!(held[1], 0),
            "dist_sync --key-placement hash" => {}
            // ResNet-18 has few buckets: 25 MB, the rest, and the tail.
            "device" => assert!(held.iter().all(|held| *held > WEIGHTS / 4), "{held:?}"),
            _ => assert!(used.imbalance().expect("something is held") < 1.01, "{strategy}: {held:?}"),
        }
        if servers > 0 {
            // The ranks of a host push once; the bytes beyond the weights are the headers of about 150 parts.
            let (sent, received) = (&used.sent_by_rank, &used.received_by_rank);
            assert_eq!((sent[1].0, received[1].0), (0, 0), "{strategy}");
            assert!((WEIGHTS..WEIGHTS + 5000).contains(&sent[0].0) && sent == received, "{strategy}: {used:?}");
            let of_servers = |bytes: fn(&ringmark_core::benchmark::strategy::ServerUse) -> u64| {
                used.servers.iter().map(bytes).sum::<u64>()
            };
            assert!(of_servers(|server| server.received.0).abs_diff(sent[0].0) <= 3, "{used:?}");
            assert!(of_servers(|server| server.sent.0).abs_diff(received[0].0) <= 3, "{used:?}");
        }
    }
}

#[test]
fn every_update_rule_matches_all_reduce() {
    for rule in ["sgd", "adam", "adamw --weight-decay 0.25"] {
        let options = |strategy: &str| {
            format!(
                "--model gpt2-tiny --sequence-length 16 --iters 3 --warmup 1 --lr-warmup-iters 0 --optimizer {rule} \
                 {strategy}"
            )
        };
        let all_reduce = Run::ranks(2, &options("")).finish().valid_record();
        for (servers, strategy) in [
            (0, "--strategy zero1"),
            (0, "--strategy zero2"),
            (0, "--strategy fsdp --bucket-mb 0.05"),
            (0, "--strategy local"),
            (0, "--strategy device"),
            (2, "--strategy dist_sync --servers 2"),
        ] {
            let record = Run::ranks(2 + servers, &options(strategy)).finish().valid_record();
            assert_eq!(
                (losses(&record), checksum(&record)),
                (losses(&all_reduce), checksum(&all_reduce)),
                "{rule} {strategy}"
            );
        }
    }
}

/// Weights and gradients have temporary places, whose sizes follow from the buckets. One rank, and an odd number of ranks
/// whose last parts are shorter; a tied and an untied output layer; a network that is one unit.
#[test]
fn buckets_of_shards_do_not_change_the_result() {
    const GPT: &str = "--model gpt2-tiny --batch-size 2 --sequence-length 16 --optimizer adamw";
    const LLAMA: &str = "--model llama-tiny --batch-size 2 --sequence-length 16 --dtype bf16 --recompute block";
    const LENET: &str = "--model mxnet-lenet --image-size 28 --batch-size 2";
    for (ranks, options, buckets) in [
        (2, GPT, &["0", "0.05", "1000"][..]),
        (3, GPT, &["0.05"]),
        (1, GPT, &["0.05"]),
        (2, LLAMA, &["0.02"]),
        (2, "--model gpt2-tiny --batch-size 2 --sequence-length 16 --wire bf16 --backend mpi", &["0.05"]),
        (2, LENET, &["0.5"]),
    ] {
        for bucket in buckets {
            let run = |strategy: &str| {
                let options = format!(
                    "{options} --bucket-mb {bucket} --iters 3 --warmup 1 --lr-warmup-iters 0 --device cpu \
                     --strategy {strategy}"
                );
                let record = Run::ranks(ranks, &options).finish().valid_record();
                (losses(&record), checksum(&record).to_owned())
            };
            let whole = run("all-reduce");
            for strategy in ["zero2", "fsdp"] {
                assert_eq!(run(strategy), whole, "{ranks} ranks, {options}, buckets of {bucket} MB, {strategy}");
            }
        }
    }
}

/// Each pass exchanges its gradients, so that their sums over the ranks are added instead of the sums over the passes.
#[test]
fn sharded_gradients_of_passes_are_added() {
    let weights = |options: &str| {
        let options = format!(
            "--model gpt2-tiny --iters 3 --batch-size 6 --sequence-length 16 --lr-warmup-iters 0 --optimizer sgd \
             --momentum 0.9 --bucket-mb 0.05 --device cpu {options}"
        );
        Run::ranks(2, &options).save().finish().weights()
    };
    let start = weights("--lr 0");
    let all_reduce = weights("--lr 0.1 --accumulate 3");
    for strategy in ["zero2", "fsdp"] {
        let difference =
            apart(&weights(&format!("--lr 0.1 --accumulate 3 --strategy {strategy}")), &all_reduce, &start);
        assert!(difference < 1e-5, "{strategy}: {difference}");
    }
}

/// Rank 0 writes the parts of all ranks, and each rank continues with its own.
#[test]
fn resumed_sharded_training_is_bit_identical() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = folder.path().join("checkpoint.safetensors");
    for strategy in ["zero1", "zero2", "fsdp", "device", "nccl"] {
        let run = || {
            let options = format!(
                "--model gpt2-tiny --batch-size 2 --sequence-length 16 --optimizer adamw --bucket-mb 0.05 --iters 5 \
                 --warmup 1 --lr-warmup-iters 0 --device cpu --strategy {strategy} --checkpoint-every 3"
            );
            Run::ranks(3, &options).file("--checkpoint", &checkpoint)
        };
        let whole = run().finish().valid_record();
        let resumed = run().file("--from-checkpoint", &checkpoint).finish().valid_record();
        assert_eq!(resumed.header.iterations_before(), 3, "{strategy}");
        assert_eq!((losses(&resumed), checksum(&resumed)), (losses(&whole), checksum(&whole)), "{strategy}");
    }
}

/// ResNet-18 in three buckets. Forward gathers all of them; the place of the first one is then taken by the last one, so
/// that backward gathers the first one again.
#[test]
fn shards_send_the_expected_bytes() {
    let sent = |strategy: &str| {
        let options = format!("{TRAIN} --bucket-mb 16 --tail-mb 0 --strategy {strategy}");
        let record = Run::ranks(2, &options).finish().valid_record();
        check_gathers(&record, strategy == "fsdp");
        let (used, buckets) = (used(&record).clone(), record.header.buckets.clone());
        let sum = |bytes: &[Bytes]| bytes.iter().map(|bytes| bytes.0).sum::<u64>();
        assert_eq!(sum(&used.sent_by_rank), sum(&used.received_by_rank), "{strategy}");
        (used.sent_by_rank[0].0, buckets)
    };
    // (n-1)/n (g + S) with two ranks, whose parts of a bucket are even and a multiple of 256 bytes.
    let even = |buckets: &[Bytes]| buckets.iter().map(|bucket| bucket.0.next_multiple_of(2 * 256)).sum::<u64>();
    let (of_gradients, buckets) = sent("zero2");
    assert_eq!((of_gradients, even(&buckets) / 1000), (even(&buckets), WEIGHTS / 1000));
    let (of_weights, buckets) = sent("fsdp");
    let [_, _, first] = buckets[..] else { panic!("{buckets:?}") };
    assert_eq!(of_weights, even(&buckets) + even(&[first]) / 2, "the first bucket is gathered twice");
}

/// Buckets of weights are named and gathered in forward and backward, and waits for them are part of the exposed
/// communication. The second of two iterations has gathered the first bucket since its update.
fn check_gathers(record: &RunRecord, are_sharded: bool) {
    let gathers = &used(record).gathers;
    assert_eq!(gathers.len(), if are_sharded { 2 * record.header.buckets.len() } else { 0 }, "{gathers:?}");
    let gathered = |gather: &&GatherUse| gather.gathers > 0.0;
    let places: Vec<(Phase, u32)> =
        gathers.iter().filter(gathered).map(|gather| (gather.phase, gather.bucket)).collect();
    let expected = [(Phase::Forward, 0), (Phase::Forward, 1), (Phase::Forward, 2), (Phase::Backward, 2)];
    assert_eq!(places, if are_sharded { &expected[..] } else { &[] });
    for gather in gathers.iter().filter(gathered) {
        let bucket = record.header.buckets[gather.bucket as usize];
        assert!(gather.received.0.abs_diff(bucket.0 / 2) <= 512 && gather.transfer <= gather.gather, "{gather:?}");
        assert!(
            gather.wait.0 > 0.0 && gather.weights.iter().all(|name| name.ends_with("weight") || name.ends_with("bias")),
            "{gather:?}"
        );
    }
    let counted = &record.iterations[record.header.config.warmup as usize..];
    let exposed: f64 =
        counted.iter().flat_map(|iteration| &iteration.phases[Phase::ExposedAllreduce]).map(|time| time.0).sum();
    let exposed = exposed / (2 * counted.len()) as f64;
    let waits: f64 = gathers.iter().map(|gather| gather.wait.0).sum();
    assert!(waits <= exposed * (1.0 + 1e-9), "{waits} of {exposed}");
}

/// Owners of parts need the norm of all gradients, and know which of their weights decay.
#[test]
fn owners_clip_and_decay_like_all_reduce() {
    let weights = |options: &str| {
        let options = format!(
            "--model gpt2-tiny --iters 3 --batch-size 2 --sequence-length 16 --lr-warmup-iters 0 --optimizer sgd \
             --momentum 0 --bucket-mb 0.1 --device cpu {options}"
        );
        Run::ranks(2, &options).save().finish().weights()
    };
    let rule = "--lr 0.1 --weight-decay 0.25 --weight-decay-on matrices --clip-norm 0.01";
    let start = weights("--lr 0");
    let all_reduce = weights(rule);
    for strategy in ["zero1", "zero2", "fsdp", "local", "device", "nccl"] {
        let owned = weights(&format!("{rule} --strategy {strategy}"));
        let difference = apart(&owned, &all_reduce, &start);
        assert!(difference < 1e-5, "{strategy}: {difference}");
    }
    for other in [
        "--lr 0.1 --weight-decay 0.25 --weight-decay-on matrices",
        "--lr 0.1 --weight-decay 0.25 --clip-norm 0.01",
        "--lr 0.1 --weight-decay 0.25 --weight-decay-on matrices --clip-norm 0.02",
    ] {
        let difference = apart(&weights(other), &all_reduce, &start);
        assert!(difference > 1e-3, "{other}: {difference}");
    }
}

#[test]
fn servers_match_gradient_of_global_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("batch.safetensors");
    safetensors::write(&data, &batch(3));
    let start = safetensors::read(small_init());
    let joined = gradient_step(&data, 1, 0, 3, "");
    let of_servers = |servers: u32, options: &str| {
        gradient_step(&data, 3, servers, 1, &format!("--strategy dist_sync --servers {servers} {options}"))
    };
    let difference = apart(&of_servers(2, ""), &joined, &start);
    assert!(difference < 1e-4, "{difference}");
    let halves = apart(&of_servers(1, "--wire bf16"), &joined, &start);
    assert!((1e-5..2e-2).contains(&halves), "{halves}");
}

#[test]
fn asynchronous_workers_train_without_waiting() {
    let options =
        "--model resnet18 --iters 8 --warmup 2 --lr 0.0005 --lr-warmup-iters 0 --strategy dist_async --servers 2";
    // Rank 1 is slower: rank 0's weights advance without it.
    let record = Run::ranks(4, &format!("{options} --inject slow:1:100")).finish().valid_record();
    // At the end all ranks have the same weights.
    checksum(&record);
    let losses = losses(&record);
    assert!(losses[7] < 0.9 * losses[0], "{losses:?}");
    let used = used(&record);
    let staleness = used.staleness.expect("pushes");
    // The parts of two servers, each pushed in six iterations by two workers.
    let parts: u64 = used.servers.iter().map(|server| u64::from(server.parts)).sum();
    assert_eq!(staleness.pushes, 12 * parts);
    assert!(staleness.maximum >= 1 && staleness.median <= staleness.p95 && staleness.p95 <= staleness.maximum);
    assert!(used.sent_by_rank.iter().all(|sent| (WEIGHTS..WEIGHTS + 5000).contains(&sent.0)), "{used:?}");
    assert!(used.lost.is_empty());
}

/// Runs until `rank` has pushed, then sends `signal` to process `process`, and waits for the end.
fn disturbed(run: Run, rank: u32, (process, signal): (u32, Signal)) -> Finished {
    let (launcher, reports) = launcher();
    run.variable(LAUNCHER_VARIABLE, launcher).finish_after(|_, folder| {
        reach(&reports, |sender_rank, at| sender_rank == rank && at.iteration > 1);
        kill(process_of_rank(folder, process), signal).expect("it runs");
    })
}

#[test]
fn asynchronous_workers_continue_after_one_is_killed() {
    // Rank 1 does not finish before it is killed.
    let options = "--model mxnet-lenet --image-size 28 --iters 300 --strategy dist_async --servers 1 --inject slow:1:500 \
                   --trace-iterations 290-300";
    let run = Run::processes(4, "--continuous", options);
    let trace = run.path("trace.json");
    let finished = disturbed(run.file("--trace", &trace), 1, (1, Signal::SIGKILL));
    assert!(finished.stdout.contains("Batch[300]"), "{}{}", finished.stdout, finished.stderr);
    assert_no_rank_left(finished.folder.path());
    let record = finished.record.expect("a record of those that are left");
    let failure = record.failure().expect("the figures are not those of all ranks");
    assert!(failure.starts_with("rank 1 on host ") && failure.contains("the others continued without it"), "{failure}");
    let ranks: Vec<u32> = record.header.ranks.iter().map(|place| place.rank).collect();
    assert_eq!((ranks, record.iterations.len()), (vec![0, 2], 300));
    let lost = &used(&record).lost;
    assert_eq!((lost.len(), lost[0].rank), (1, 1));
    assert!((1..300).contains(&lost[0].iteration), "{lost:?}");
    assert!(finished.stderr.contains(&format!("the run failed: {failure}")), "{}", finished.stderr);
    // No rank waits for the clock of the killed one, and the others complete the step.
    let trace = chrome::read(fs::File::open(trace).expect("a trace")).expect("whole");
    assert_eq!(trace.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(trace.strategy, Some(Strategy::DistAsync));
}

#[test]
fn worker_failure_before_first_push_ends_asynchronous_job() {
    let scripts = tempfile::tempdir().expect("a folder");
    let script = scripts.path().join("worker.sh");
    // The rank without a batch fails after connecting and before the first iteration.
    let text = format!(
        "#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 1 ] && missing='--data /nowhere.safetensors'\nexec {} \"$@\" $missing\n",
        worker_program().display()
    );
    write_program(&script, &text);
    let run = Run::processes(4, "--continuous", "--model resnet18 --iters 3 --strategy dist_async --servers 1");
    let finished = run.program(&script).finish();
    assert_no_rank_left(finished.folder.path());
    assert_eq!(finished.record, None, "{}", finished.stdout);
    let says = |words: &str| finished.stderr.lines().any(|line| line.contains(words));
    assert!(says("/nowhere"), "{}", finished.stderr);
    assert!(
        says(" after its pushes of iteration 0 ") && says("until every worker has pushed once"),
        "{}",
        finished.stderr
    );
}

/// Listens like the launcher for the heartbeats of each process of a job; returns the address and the heartbeats.
fn launcher() -> (String, Receiver<(u32, Heartbeat)>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addresses = vec![listener.local_addr().expect("bound")];
    let (sender, reports) = mpsc::channel();
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || report(connection, &sender));
        }
    });
    (
        LauncherAddress { token: "known".to_owned(), patience: Seconds(60.0), interval: Seconds(1.0), addresses }
            .to_string(),
        reports,
    )
}

/// Timeout for the next heartbeat of a job.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(300);

/// Waits until a heartbeat satisfies `is_reached`.
fn reach(reports: &Receiver<(u32, Heartbeat)>, is_reached: impl Fn(u32, Heartbeat) -> bool) {
    // Heartbeats are sent every second.
    let mut heartbeats = iter::from_fn(|| reports.recv_timeout(HEARTBEAT_TIMEOUT).ok());
    assert!(heartbeats.any(|(process, at)| is_reached(process, at)), "the job has ended");
}

fn report(mut connection: TcpStream, sender: &Sender<(u32, Heartbeat)>) {
    let lines = BufReader::new(connection.try_clone().expect("a socket")).lines().map_while(Result::ok);
    let mut sender_rank = None;
    for line in lines {
        match Message::parse(&line).expect("a report") {
            Message::Hello { rank, .. } => {
                sender_rank = Some(rank);
                connection.write_all(format!("{WELCOME}\n").as_bytes()).expect("sent");
            }
            // The receiver may be gone.
            Message::At(at) => drop(sender_rank.map(|rank| sender.send((rank, at)))),
            Message::Failed { .. } | Message::Done => {}
        }
    }
}

#[test]
fn worker_killed_while_gathering_is_named_by_others() {
    let (launcher, reports) = launcher();
    let run = Run::processes(5, "--continuous", "--model resnet18 --iters 3 --strategy dist_async --servers 2");
    // Rank 0 saves to this pipe before it gathers, and blocks until it is read.
    let weights = run.path("weights");
    mkfifo(&weights, Mode::S_IRWXU).expect("made");
    let run = run.file("--save", &weights);
    let finished = run.variable(LAUNCHER_VARIABLE, launcher).finish_after(|_, folder| {
        reach(&reports, |process, at| process == 2 && at.stage >= Stage::Preparing);
        let process = process_of_rank(folder, 2);
        // The servers' reports have arrived, and no loss has been detected.
        reach(&reports, |process, at| process < 3 && at.stage == Stage::Finishing);
        kill(process, Signal::SIGKILL).expect("it runs");
    });
    assert_no_rank_left(finished.folder.path());
    assert_eq!(finished.record, None, "{}", finished.stdout);
    let named = finished.stderr.lines().filter(|line| {
        line.contains(": lost rank 2 on host ") && line.contains(" while results were gathered: the process exited")
    });
    assert_eq!(named.count(), 2, "by both that are left: {}", finished.stderr);
}

#[test]
fn synchronous_job_ends_if_worker_or_server_is_killed() {
    // A rank, then the server.
    for process in [1, 2] {
        let run = Run::ranks(3, "--model mxnet-lenet --image-size 28 --iters 100000 --strategy dist_sync --servers 1");
        let finished = disturbed(run, 1, (process, Signal::SIGKILL));
        assert_ne!(finished.status, Some(0), "{}", finished.stderr);
        assert_eq!(finished.record, None);
        let by_mpirun = finished.stderr.contains(&format!("process rank {process} with PID"));
        let by_peer =
            finished.stderr.contains("lost the connection to ") && finished.stderr.contains("the process exited");
        assert!(by_mpirun || by_peer, "{}", finished.stderr);
        assert_no_rank_left(finished.folder.path());
    }
}

#[test]
fn contradicting_strategy_options_are_rejected() {
    // Detected before MPI shows the number of processes.
    let errors = [
        "--servers 1",
        "--strategy dist_sync",
        "--strategy device --backend none",
        "--strategy dist_sync --servers 1 --dtype fp16",
        "--strategy zero2 --overlap off",
        "--strategy fsdp --validate missing.rec",
        "--strategy dist_sync --servers 1 --clip-norm 1",
        "--strategy dist_sync --servers 1 --weight-decay-on matrices",
        "--strategy distributed",
    ]
    .map(|options| Run::single_rank(options).refusal(2));
    expect![[r#"
        error: --servers 1 does not apply to --strategy all-reduce: omit --servers, or use --strategy dist_sync, dist_device_sync, dist_async or dist_device_async
        error: --strategy dist_sync needs --servers N: the last N processes that mpirun starts are servers, the others ranks
        error: --strategy device conflicts with --backend none, which exchanges nothing: use only one of them
        error: --dtype fp16 is not supported with --strategy dist_sync, which updates parts of the weights apart from the loss scaler: use --dtype bf16, or --strategy all-reduce, zero1, zero2, fsdp, hsdp, device or nccl
        error: --overlap off exchanges gradients after backward, but --strategy zero2 keeps only those of two buckets: omit --overlap
        error: --validate missing.rec needs a data set: add --data FILE
        error: --clip-norm is not supported with --strategy dist_sync, whose servers update each part of an array alone: omit it, or use --strategy all-reduce, zero1, zero2, fsdp, hsdp, local, device or nccl
        error: --weight-decay-on is not supported with --strategy dist_sync, whose servers update each part of an array alone: omit it, or use --strategy all-reduce, zero1, zero2, fsdp, hsdp, local, device or nccl
        error: invalid value 'distributed' for '--strategy <NAME>'
          [possible values: all-reduce, zero1, zero2, fsdp, hsdp, local, device, nccl, dist_sync, dist_device_sync, dist_async, dist_device_async]

        For more information, try '--help'.
    "#]].assert_eq(&errors.concat());
    let error = Run::processes(1, "", "--strategy dist_sync --servers 1").refusal(1);
    expect![[r#"
        error: --servers 1 leaves no rank to train: mpirun started 1 processes: start 1 more than the number of ranks
    "#]]
    .assert_eq(&error);
    // The perceptron has 6 arrays.
    let error = Run::ranks(8, "--model mlp --image-size 28 --strategy dist_sync --servers 7").refusal(1);
    // mpirun adds lines if several processes end at once.
    let reason = "--servers 7: the network has only 6 arrays: use at most one server per array";
    assert!(error.contains(reason), "{error}");
}

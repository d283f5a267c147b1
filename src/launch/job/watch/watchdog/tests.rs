use std::collections::BTreeSet;

use expect_test::expect;
use ringmark_core::dimension::{Bytes, Seconds};
use ringmark_core::host::heartbeat::{Heartbeat, INTERVAL};

use super::*;
use crate::launch::job::watch::listener::RankFailure;

fn failed(reason: &str) -> Event {
    Event::Failed(RankFailure { reason: reason.to_owned(), shortage: None })
}

/// Process 100 on a host whose kernel had killed 4 processes before, 1 of them in the rank's control group.
fn joined(connection: u64, host: &str) -> Event {
    let count = |file: &str, kills| Some(OutOfMemoryCount { file: file.to_owned(), kills });
    let out_of_memory =
        OutOfMemory { host: count("/proc/vmstat", 4), group: count("/g", 1), limit: Some(Bytes(3_000_000_000)) };
    Event::Joined(Joined { connection, host: host.to_owned(), process: 100, out_of_memory })
}

/// A simulated job, driven second by second.
struct Simulation {
    watchdog: Watchdog,
    start: Instant,
    second: u64,
}

impl Simulation {
    fn new(hosts: &[&str]) -> Simulation {
        let start = Instant::now();
        let watchdog =
            Watchdog::new(hosts.len() as u32, &ServerRanks::default(), Some(Duration::from_secs(60)), INTERVAL, start);
        let mut simulation = Simulation { watchdog, start, second: 0 };
        for (rank, host) in hosts.iter().enumerate() {
            simulation.send(rank as u32, joined(0, host));
        }
        simulation
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_secs(self.second)
    }

    fn send(&mut self, rank: u32, event: Event) {
        let now = self.now();
        self.watchdog.record_event(rank, event, now);
    }

    /// Advances by `seconds`, in which each of these ranks reports its position and uses `load` of a processor.
    fn advance(&mut self, seconds: u64, places: &[(u32, u32, Stage, f64)]) {
        for _ in 0..seconds {
            self.second += 1;
            for (rank, iteration, stage, load) in places {
                let processor_time = Seconds(self.second as f64 * load);
                let memory = Bytes(8_000_000_000);
                let waiting = [Stage::Joining, Stage::Ready, Stage::Finishing];
                let heartbeat = Heartbeat {
                    iteration: *iteration,
                    stage: *stage,
                    is_waiting: stage.waits() || waiting.contains(stage),
                    chunks: 0,
                    processor_time,
                    available_memory: memory,
                    step: None,
                    before_allreduce: None,
                };
                self.send(*rank, Event::Heartbeat(heartbeat));
            }
        }
    }

    fn verdict(&self) -> Option<String> {
        self.watchdog.verdict(self.now())
    }

    fn culprits(&self) -> Vec<u32> {
        self.watchdog.culprits(self.now())
    }
}

const BUCKET: Stage = Stage::all_reduce(2);

#[test]
fn job_position_is_that_of_the_slowest_rank() {
    let mut simulation = Simulation::new(&["a", "b"]);
    assert_eq!(simulation.watchdog.slowest_position(), None);
    simulation.advance(1, &[(0, 3, Stage::Forward, 1.0), (1, 2, Stage::Backward, 1.0)]);
    assert_eq!(simulation.watchdog.slowest_position(), Some((2, Stage::Backward)));
    simulation.advance(1, &[(1, 3, Stage::Optimizer, 1.0)]);
    assert_eq!(simulation.watchdog.slowest_position(), Some((3, Stage::Forward)));
}

#[test]
fn stopped_rank_is_blamed_instead_of_waiting_ranks() {
    let mut simulation = Simulation::new(&["a", "b", "a", "b"]);
    simulation.advance(
        10,
        &[(0, 7, Stage::Forward, 1.0), (1, 7, Stage::Forward, 1.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)],
    );
    simulation.advance(59, &[(0, 7, BUCKET, 0.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)]);
    assert_eq!(simulation.verdict(), None);
    simulation.advance(2, &[(0, 7, BUCKET, 0.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)]);
    expect!["no progress for 60 s: rank 1 of 4 on host b (process 100) has not reported for 61 s, last in iteration 7, forward: the process is stopped, or its host or link is down; ranks 0, 2-3 wait for it in iteration 7, all-reduce of bucket 2 (if the job is only slow, raise --stall-timeout)"].assert_eq(&simulation.verdict().expect("job hangs"));
    assert_eq!(simulation.culprits(), [1]);
}

#[test]
fn silent_host_is_reported_as_a_host() {
    let mut simulation = Simulation::new(&["a", "a", "b", "b"]);
    simulation.advance(5, &[(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0), (2, 3, BUCKET, 0.0), (3, 3, BUCKET, 0.0)]);
    simulation.advance(60, &[(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0)]);
    let verdict = simulation.verdict().expect("job hangs");
    expect!["no progress for 64 s: host b with ranks 2-3 has not reported for 60 s, last in iteration 3, all-reduce of bucket 2: the host or its link is down; ranks 0-1 wait for them in iteration 3, all-reduce of bucket 2 (if the job is only slow, raise --stall-timeout)"].assert_eq(&verdict);
}

#[test]
fn rank_failure_takes_precedence_over_hang() {
    let mut simulation = Simulation::new(&["a", "b", "c"]);
    let all = [(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0), (2, 3, BUCKET, 0.0)];
    simulation.advance(2, &all);
    simulation.advance(56, &all[..2]);
    simulation.send(0, failed("the connection to rank 2 broke"));
    simulation.advance(2, &all[1..2]);
    assert_eq!(simulation.verdict(), None);
    // Before the grace period after the failure ends, the stall limit is exceeded.
    simulation.advance(1, &all[1..2]);
    expect!["rank 0 of 3 on host a: the connection to rank 2 broke; rank 2 of 3 on host c has not reported for 59 s: its host or link may be down"].assert_eq(&simulation.verdict().expect("job hangs"));
    assert_eq!(simulation.culprits(), [2]);
}

#[test]
fn mutual_waiting_is_attributed_to_the_network() {
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.advance(62, &[(0, 3, BUCKET, 1.0), (1, 3, BUCKET, 1.0)]);
    let verdict = simulation.verdict().expect("job hangs");
    expect!["no progress for 61 s: all 2 ranks wait for each other in iteration 3, all-reduce of bucket 2: messages do not arrive: check the network between a, b (ringmark doctor measures it), or choose another with --interface (if the job is only slow, raise --stall-timeout)"].assert_eq(&verdict);
    assert_eq!(simulation.culprits(), [0_u32; 0]);
}

#[test]
fn rank_behind_the_others_is_reported_as_stuck() {
    let mut simulation = Simulation::new(&["a", "b", "c"]);
    let early = Stage::all_reduce(0);
    simulation.advance(62, &[(0, 3, BUCKET, 0.0), (1, 3, early, 0.0), (2, 3, BUCKET, 0.0)]);
    let verdict = simulation.verdict().expect("job hangs");
    // It may be a victim of the network like the others: all of them wait.
    expect!["no progress for 61 s: all 3 ranks wait for each other in iteration 3, all-reduce of bucket 0, rank 1 of 3 on host b furthest behind: messages do not arrive: check that rank's device and link first (dmesg on b), then check the network between a, b, c (ringmark doctor measures it), or choose another with --interface; ranks 0, 2 wait for it in iteration 3, all-reduce of bucket 2 (if the job is only slow, raise --stall-timeout)"].assert_eq(&verdict);
}

#[test]
fn long_computation_is_not_a_hang() {
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.advance(600, &[(0, 1, BUCKET, 1.0), (1, 1, Stage::Forward, 0.9)]);
    assert_eq!(simulation.verdict(), None);
    // The same phase without processor time.
    simulation.advance(62, &[(0, 1, BUCKET, 1.0), (1, 1, Stage::Forward, 0.0)]);
    let verdict = simulation.verdict().expect("job hangs");
    expect!["no progress for 62 s: rank 1 of 2 on host b (process 100) makes no progress in iteration 1, forward: inspect the process (py-spy, gdb -p, dmesg); rank 0 waits for it in iteration 1, all-reduce of bucket 2 (if the job is only slow, raise --stall-timeout)"].assert_eq(&verdict);
}

#[test]
fn slow_network_is_not_a_hang() {
    let mut simulation = Simulation::new(&["a", "b"]);
    for chunks in 0..300 {
        simulation.second += 1;
        for rank in [0, 1] {
            let (processor_time, available_memory) = (Seconds(0.0), Bytes(1 << 33));
            let (stage, is_waiting) = (BUCKET, true);
            let at = Heartbeat {
                iteration: 1,
                stage,
                is_waiting,
                chunks,
                processor_time,
                available_memory,
                step: None,
                before_allreduce: None,
            };
            simulation.send(rank, Event::Heartbeat(at));
        }
    }
    assert_eq!(simulation.verdict(), None);
}

#[test]
fn missing_rank_is_reported_after_a_longer_timeout() {
    let mut simulation = Simulation::new(&["a"]);
    simulation.watchdog.ranks = 2;
    simulation.advance(170, &[(0, 0, Stage::Joining, 1.0)]);
    assert_eq!(simulation.verdict(), None);
    simulation.advance(15, &[(0, 0, Stage::Joining, 1.0)]);
    let verdict = simulation.verdict().expect("job hangs");
    expect!["no progress for 184 s: rank 1 has never reported: it was not started, or cannot reach this machine's addresses; rank 0 waits for it in MPI's initialization (if the job is only slow, raise --stall-timeout)"].assert_eq(&verdict);
    assert_eq!(simulation.culprits(), [1]);
}

#[test]
fn job_output_counts_as_progress_without_reports() {
    let mut simulation = Simulation::new(&[]);
    simulation.watchdog.ranks = 2;
    for _ in 0..400 {
        simulation.second += 1;
        let now = simulation.now();
        simulation.watchdog.record_output("Epoch[0] Batch[1]", now);
    }
    simulation.second += 1000;
    assert_eq!(simulation.verdict(), None);
    // A rank that is silent from the start may never have been started.
    let mut simulation = Simulation::new(&[]);
    simulation.watchdog.ranks = 2;
    simulation.second += 181;
    expect!["no progress for 181 s: ranks 0-1 have never reported: they were not started, or cannot reach this machine's addresses (if the job is only slow, raise --stall-timeout)"].assert_eq(&simulation.verdict().expect("job hangs"));
}

#[test]
fn stopped_rank_is_found_without_communication() {
    let mut simulation = Simulation::new(&["a", "b"]);
    for iteration in 1..=70 {
        simulation.advance(1, &[(0, iteration, Stage::Forward, 1.0)]);
    }
    expect!["no progress for 60 s: rank 1 of 2 on host b (process 100) has not reported for 70 s, last in its first second: the process is stopped, or its host or link is down (if the job is only slow, raise --stall-timeout)"].assert_eq(&simulation.verdict().expect("job hangs"));
}

#[test]
fn host_of_a_rank_that_never_reported_is_that_of_the_starter() {
    let explained = |line: &str| {
        let mut simulation = Simulation::new(&["a", "b"]);
        let now = simulation.now();
        simulation.watchdog.record_output(line, now);
        simulation.watchdog.explanation(now).expect("failure is explained")
    };
    let texts = [
        "mpirun noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed).",
        "srun: error: b: task 1: Segmentation fault",
    ]
    .map(explained);
    expect![[r#"
        rank 1 of 2 on host b was killed by signal 9 (SIGKILL): sent by a user, a job limit or the out-of-memory killer (see dmesg on b)
        rank 1 of 2 on host b was killed by signal 11 (SIGSEGV)"#]]
    .assert_eq(&texts.join("\n"));
}

#[test]
fn killed_rank_is_reported_with_signal_and_position() {
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.advance(3, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0)]);
    simulation.send(1, Event::Disconnected(0));
    // Its neighbor fails because of it, and reports first.
    simulation.send(0, failed("MPI_Allreduce returned 17"));
    assert_eq!(simulation.verdict(), None);
    let now = simulation.now();
    simulation
        .watchdog
        .record_output("mpirun noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed).", now);
    let explanation = simulation.watchdog.explanation(simulation.now()).expect("failure is explained");
    expect!["rank 1 of 2 on host b was killed by signal 9 (SIGKILL) in iteration 2, forward: sent by a user, a job limit or the out-of-memory killer (see dmesg on b)"].assert_eq(&explanation);
    assert_eq!(simulation.culprits(), [1]);
    simulation.second += 5;
    assert_eq!(simulation.verdict(), Some(explanation));
}

#[test]
fn late_mpirun_message_counts_only_for_the_lost_rank() {
    let described = |line: &str| {
        let mut simulation = Simulation::new(&["a", "b"]);
        simulation.advance(3, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0)]);
        assert_eq!(simulation.watchdog.first_disconnected(), None);
        simulation.send(1, Event::Disconnected(0));
        simulation.advance(6, &[(0, 2, BUCKET, 0.0)]);
        let verdict = simulation.verdict().expect("overdue");
        assert_eq!(verdict, "rank 1 of 2 on host b exited without an error message in iteration 2, forward");
        simulation.send(0, Event::Disconnected(0));
        let now = simulation.now();
        simulation.watchdog.record_output(line, now);
        simulation.watchdog.describe_death(simulation.watchdog.first_disconnected().expect("rank 1"))
    };
    let late =
        described("mpirun noticed that process rank 1 with PID 7 on node b exited on signal 11 (Segmentation fault).");
    let words = "rank 1 of 2 on host b was killed by signal 11 (SIGSEGV) in iteration 2, forward";
    assert_eq!(late.as_deref(), Some(words));
    assert_eq!(
        described("mpirun noticed that process rank 0 with PID 6 on node a exited on signal 15 (Terminated)."),
        None
    );
}

#[test]
fn asynchronous_job_survives_lost_ranks_but_not_servers() {
    let story_of = |may_lose_ranks| {
        let mut simulation = Simulation::new(&["a", "b", "c"]);
        let servers = ServerRanks { number: 1, may_lose_ranks, ..ServerRanks::default() };
        simulation.watchdog = Watchdog::new(2, &servers, Some(Duration::from_secs(60)), INTERVAL, simulation.now());
        for (rank, host) in [(0, "a"), (1, "b"), (2, "c")] {
            simulation.send(rank, joined(0, host));
        }
        simulation.advance(3, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0), (2, 2, Stage::Serving, 0.1)]);
        simulation
    };
    let mut simulation = story_of(true);
    simulation.send(1, Event::Disconnected(0));
    simulation.advance(6, &[(0, 3, Stage::Forward, 1.0), (2, 3, Stage::Serving, 0.1)]);
    assert_eq!(simulation.verdict(), None);
    simulation.send(2, Event::Disconnected(0));
    simulation.advance(6, &[(0, 3, Stage::Forward, 1.0)]);
    assert!(simulation.verdict().is_some(), "without its server no rank continues");
    let mut simulation = story_of(true);
    let gathering = Stage::Finishing;
    simulation.advance(1, &[(0, 9, gathering, 0.1), (1, 9, gathering, 0.1), (2, 9, Stage::Serving, 0.1)]);
    simulation.send(1, Event::Disconnected(0));
    simulation.advance(6, &[(0, 9, gathering, 0.0)]);
    let words = "rank 1 of 2 on host b exited without an error message in iteration 9, gathering the results";
    assert_eq!(simulation.verdict().as_deref(), Some(words), "whose results are missing");
    let mut simulation = story_of(false);
    simulation.send(2, Event::Disconnected(0));
    simulation.advance(6, &[(0, 2, BUCKET, 0.0), (1, 2, BUCKET, 0.0)]);
    let words =
        "server 0 of 1 on host c exited without an error message in iteration 2, waiting for pushes from workers";
    assert_eq!(simulation.verdict().as_deref(), Some(words));
}

#[test]
fn out_of_memory_kill_is_explained() {
    let killed = |available: u64, counted: Option<&str>| {
        let mut simulation = Simulation::new(&["a"]);
        simulation.advance(1, &[(0, 2, Stage::Forward, 1.0)]);
        if let Some(at) = simulation.watchdog.known.get_mut(&0).and_then(|rank| rank.at.as_mut()) {
            at.available_memory = Bytes(available);
        }
        assert_eq!(simulation.watchdog.killed_rank(), None);
        let now = simulation.now();
        let line = "mpirun noticed that process rank 0 with PID 7 on node a exited on signal 9 (Killed).";
        simulation.watchdog.record_output(line, now);
        let files = vec!["/proc/vmstat".to_owned(), "/g".to_owned()];
        assert_eq!(simulation.watchdog.killed_rank(), Some((0, files)));
        if let Some(text) = counted {
            simulation.watchdog.record_kills(text);
            assert_eq!(simulation.watchdog.killed_rank(), None);
        }
        let explanation = simulation.watchdog.explanation(simulation.now()).expect("failure is explained");
        let start = "rank 0 of 1 on host a was killed by signal 9 (SIGKILL) in iteration 2, forward: ";
        explanation.strip_prefix(start).expect(&explanation).to_owned()
    };
    let plenty = 8_000_000_000;
    let in_group = killed(plenty, Some("/proc/vmstat:oom_kill 5\n/g:oom_kill 2\n"));
    expect!["memory limit of 3000 MB of the control group on host a exceeded: choose a smaller --batch-size or fewer ranks per host, or raise the limit"].assert_eq(&in_group);
    let on_host = killed(plenty, Some("/proc/vmstat:oom_kill 5\n/g:oom_kill 1\n"));
    expect!["host a ran out of memory: choose a smaller --batch-size or fewer ranks per host"].assert_eq(&on_host);
    // Nothing was counted, or the host could not be queried.
    let counts = [None, Some(""), Some("/proc/vmstat:oom_kill 4\n/g:oom_kill 1\n")];
    let explanations =
        counts.into_iter().flat_map(|counted| [plenty, 120_000_000].map(|available| killed(available, counted)));
    let explanations: BTreeSet<String> = explanations.collect();
    expect![[r#"
            host a had 120 MB of memory left: choose a smaller --batch-size or fewer ranks per host
            sent by a user, a job limit or the out-of-memory killer (see dmesg on a)"#]]
    .assert_eq(&Vec::from_iter(explanations).join("\n"));

    let mut simulation = Simulation::new(&["a"]);
    simulation.advance(1, &[(0, 2, Stage::Forward, 1.0)]);
    let now = simulation.now();
    simulation.watchdog.record_output("srun: error: a: task 0: Out Of Memory", now);
    let explanation = simulation.watchdog.explanation(simulation.now()).expect("failure is explained");
    expect!["rank 0 of 1 on host a was killed by signal 9 (SIGKILL) in iteration 2, forward: memory limit of the Slurm job exceeded: choose a smaller --batch-size or fewer ranks per host, or request more memory (--mem)"].assert_eq(&explanation);
}

#[test]
fn message_of_the_rank_takes_precedence_over_mpirun() {
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.send(1, failed("no memory"));
    simulation.send(1, Event::Disconnected(0));
    simulation.send(0, Event::Disconnected(0));
    let now = simulation.now();
    simulation.watchdog.record_output("srun: error: b: task 1: Exited with exit code 1", now);
    assert_eq!(
        simulation.watchdog.explanation(simulation.now()).as_deref(),
        Some(
            "rank 1 of 2 on host b: no \
                 memory"
        )
    );
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.advance(1, &[(1, 4, Stage::Optimizer, 1.0)]);
    simulation.send(1, Event::Disconnected(0));
    let words = "rank 1 of 2 on host b exited without an error message in iteration 4, optimizer";
    assert_eq!(simulation.watchdog.explanation(simulation.now()).as_deref(), Some(words));
}

#[test]
fn finished_ranks_are_not_silent() {
    let mut simulation = Simulation::new(&["a", "b"]);
    for rank in [0, 1] {
        simulation.send(rank, Event::Done);
        simulation.send(rank, Event::Disconnected(0));
    }
    simulation.second += 59;
    assert_eq!((simulation.verdict(), simulation.watchdog.explanation(simulation.now())), (None, None));
    simulation.second += 1;
    expect![
        "no progress for 60 s: all ranks are done, but mpirun or srun does not exit: a host or its link may be down"
    ]
    .assert_eq(&simulation.verdict().expect("mpirun hangs"));
}

#[test]
fn startup_of_all_ranks_has_a_longer_timeout() {
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.advance(170, &[(0, 0, Stage::Joining, 1.0), (1, 0, Stage::Joining, 1.0)]);
    assert_eq!(simulation.verdict(), None);
    simulation.advance(15, &[(0, 0, Stage::Joining, 1.0), (1, 0, Stage::Joining, 1.0)]);
    expect!["no progress for 184 s: all 2 ranks wait for each other in MPI's initialization: messages do not arrive: check the network between a, b (ringmark doctor measures it), or choose another with --interface (if the job is only slow, raise --stall-timeout)"].assert_eq(&simulation.verdict().expect("job hangs"));
}

#[test]
fn stopped_launcher_resets_its_timers() {
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.advance(5, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0)]);
    simulation.second += 500;
    simulation.watchdog.reset_timers(simulation.now());
    assert_eq!(simulation.verdict(), None);
}

#[test]
fn reconnected_rank_is_not_lost() {
    let mut simulation = Simulation::new(&["a"]);
    simulation.advance(5, &[(0, 2, Stage::Forward, 1.0)]);
    simulation.send(0, Event::Disconnected(0));
    simulation.send(0, joined(1, "a"));
    simulation.advance(6, &[(0, 3, Stage::Forward, 1.0)]);
    assert_eq!(simulation.verdict(), None);
    // The end of the first connection may be reported late.
    simulation.send(0, Event::Disconnected(0));
    simulation.advance(6, &[(0, 4, Stage::Forward, 1.0)]);
    assert_eq!(simulation.verdict(), None);
    simulation.send(0, Event::Disconnected(1));
    simulation.second += 6;
    expect!["rank 0 of 1 on host a exited without an error message in iteration 4, forward"]
        .assert_eq(&simulation.verdict().expect("dead rank"));
}

#[test]
fn first_failure_is_distinguished_from_later_ones() {
    // Slurm ends the other ranks when one fails, and reports one of those.
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.send(1, failed("no memory"));
    simulation.second += 1;
    simulation.send(0, Event::Disconnected(0));
    let now = simulation.now();
    simulation.watchdog.record_output("srun: error: a: task 0: Killed", now);
    assert_eq!(simulation.watchdog.explanation(now).as_deref(), Some("rank 1 of 2 on host b: no memory"));
    assert_eq!(simulation.watchdog.shortage(), None);
    // If several ranks lack memory, the first one counts, regardless of errors that follow from it.
    let memory = MemoryShortage { taken: Bytes(15), total: Bytes(16) };
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.send(1, Event::Failed(RankFailure { reason: "no memory".to_owned(), shortage: Some(memory) }));
    simulation.second += 1;
    simulation.send(0, failed("remote error"));
    assert_eq!(simulation.watchdog.shortage(), Some(memory));
    // A host became silent before others failed.
    let mut simulation = Simulation::new(&["a", "b"]);
    simulation.advance(1, &[(0, 2, BUCKET, 0.0), (1, 2, BUCKET, 0.0)]);
    simulation.advance(20, &[(0, 2, BUCKET, 0.0)]);
    simulation.send(0, failed("remote error"));
    let words = simulation.watchdog.explanation(simulation.now()).expect("failure");
    expect!["rank 0 of 2 on host a: remote error; rank 1 of 2 on host b has not reported for 20 s: its host or link may be down"].assert_eq(&words);
    // The record of a run that does not count contains the reason.
    let mut simulation = Simulation::new(&["a"]);
    simulation.send(0, Event::Done);
    let now = simulation.now();
    simulation.watchdog.record_output("srun: error: a: task 0: Exited with exit code 1", now);
    assert_eq!(simulation.watchdog.explanation(now), None);
}

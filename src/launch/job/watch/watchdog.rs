//! Detects failed ranks and hangs from the ranks' reports. Reads no clock and no socket: every call receives the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringmark_core::dimension::Seconds;
use ringmark_core::host::{MemoryShortage, OutOfMemory, OutOfMemoryCount, Stage};
use ringmark_core::progress::RankProgress;

use crate::launch::job::request::ServerRanks;
use crate::launch::job::watch::hang::{Hang, NAMED, name};
use crate::launch::job::watch::listener::{Event, Joined};
use crate::launch::job::watch::rank::{Rank, RankEnd};
use crate::launch::job::watch::starter_output::{Cause, Death, StarterOutput};

/// Time that mpirun or srun has to report a rank's end and to end the other ranks before ringmark does.
const GRACE: Duration = Duration::from_secs(5);

/// Factor for the stall limit outside the timed loop, which reads and writes files, perhaps on a slow disk.
const OUTSIDE_FACTOR: u32 = 3;

/// Prefix of a SIGKILL in a starter's messages.
const KILL: &str = "9 ";

/// Available memory, in bytes, below which the out-of-memory killer is a plausible cause.
const SCARCE_MEMORY: u64 = 500_000_000;

/// Observed state of one job's ranks.
pub struct Watchdog {
    /// Number of processes, including servers.
    ranks: u32,
    /// Number of servers; they have the highest rank numbers.
    servers: u32,
    /// True if the other ranks continue after a rank that is not a server fails.
    may_lose_ranks: bool,
    limit: Option<Duration>,
    /// Time between two reports of a rank.
    interval: Seconds,
    started: Instant,
    known: BTreeMap<u32, Rank>,
    /// Time of the latest line of the job's output.
    last_line: Instant,
    has_printed: bool,
    starter_output: StarterOutput,
    /// First death of a rank that mpirun or srun reported.
    first_death: Option<Death>,
    /// Out-of-memory kills on that rank's host since the rank started, as counted by the kernel.
    out_of_memory: Option<OutOfMemory>,
}

impl Watchdog {
    /// Watches `ranks` ranks and the servers that follow them, which are being started and report every `interval`.
    /// They hang if there is no progress for longer than `limit`.
    pub fn new(
        ranks: u32,
        servers: &ServerRanks,
        limit: Option<Duration>,
        interval: Seconds,
        now: Instant,
    ) -> Watchdog {
        Watchdog {
            ranks: ranks + servers.number,
            servers: servers.number,
            may_lose_ranks: servers.may_lose_ranks,
            limit,
            interval,
            started: now,
            known: BTreeMap::new(),
            last_line: now,
            has_printed: false,
            starter_output: StarterOutput::default(),
            first_death: None,
            out_of_memory: None,
        }
    }

    /// Restarts all silence timers, because nothing was read in the meantime.
    pub fn restart_silences(&mut self, now: Instant) {
        (self.started, self.last_line) = (now, now);
        for rank in self.known.values_mut() {
            (rank.heard, rank.moved) = (now, now);
        }
    }

    /// Records a rank's event.
    pub fn hear(&mut self, rank: u32, event: Event, now: Instant) {
        if let Event::Joined(Joined { connection, host, process, out_of_memory }) = event.clone() {
            let interval = self.interval;
            let (at, heard, moved, end) = (None, now, now, None);
            let new = Rank { host, process, out_of_memory, interval, connection, at, heard, moved, end };
            let known = self.known.entry(rank).or_insert(new);
            known.connection = connection;
            // The network dropped the earlier connection; the rank is still alive.
            known.end.take_if(|(_, end)| matches!(end, RankEnd::Left));
        }
        let Some(rank) = self.known.get_mut(&rank) else { return };
        match event {
            Event::Joined(..) => {}
            Event::At(heartbeat) => rank.hear(heartbeat, now),
            Event::Failed(failure) => rank.end(RankEnd::Failed(failure), now),
            Event::Done => rank.end(RankEnd::Done, now),
            Event::Left(connection) if connection == rank.connection => rank.end(RankEnd::Left, now),
            Event::Left(_) => {}
        }
    }

    /// Records a line of the job's output.
    pub fn output(&mut self, line: &str, now: Instant) {
        (self.last_line, self.has_printed) = (now, true);
        if let Some(death) = self.starter_output.death_in(line) {
            self.first_death.get_or_insert(death);
        }
    }

    /// Returns a killed rank and the files in which its host's kernel may have counted the kill, until
    /// [`counted`](Watchdog::counted) is called.
    pub fn killed_rank(&self) -> Option<(u32, Vec<String>)> {
        let Some(Death { rank, cause: Cause::Signal(signal) }) = &self.first_death else { return None };
        let OutOfMemory { host, group, .. } = &self.known.get(rank)?.out_of_memory;
        let files: Vec<String> = [host, group].into_iter().flatten().map(|count| count.file.clone()).collect();
        (signal.starts_with(KILL) && self.out_of_memory.is_none() && !files.is_empty()).then_some((*rank, files))
    }

    /// Records the current content of those files, in lines `FILE:oom_kill N`.
    pub fn counted(&mut self, text: &str) {
        let Some(rank) = self.first_death.as_ref().and_then(|death| self.known.get(&death.rank)) else { return };
        let more = |before: &Option<OutOfMemoryCount>| {
            let OutOfMemoryCount { file, kills } = before.clone()?;
            let line = text.lines().find_map(|line| line.strip_prefix(&file)?.strip_prefix(":oom_kill "));
            let kills = line?.trim().parse::<u64>().ok()?.saturating_sub(kills);
            Some(OutOfMemoryCount { file, kills })
        };
        let OutOfMemory { host, group, limit } = &rank.out_of_memory;
        self.out_of_memory = Some(OutOfMemory { host: more(host), group: more(group), limit: *limit });
    }

    /// Returns why the job must be ended: a rank died and mpirun or srun does nothing, or there is no progress.
    pub fn verdict(&self, now: Instant) -> Option<String> {
        let is_overdue = |rank: &Rank| match &rank.end {
            Some((time, RankEnd::Failed(_) | RankEnd::Left)) => now - *time >= GRACE,
            _ => false,
        };
        // Once ranks gather the results, each of them waits for every other.
        let is_needed = |number: u32, rank: &Rank| {
            !self.may_lose_ranks || number >= self.ranks - self.servers || rank.gathers_results()
        };
        if self.known.iter().any(|(number, rank)| is_needed(*number, rank) && is_overdue(rank)) {
            return self.explanation(now);
        }
        let hang = self.hang(now)?;
        // The failure of a rank is the better explanation: the ranks that still wait may wait for it.
        let has_failed = |(number, rank): (&u32, &Rank)| {
            is_needed(*number, rank) && matches!(rank.end, Some((_, RankEnd::Failed(_))))
        };
        if self.known.iter().any(has_failed) { self.explanation(now) } else { Some(hang) }
    }

    /// Returns the first rank whose connection ended without a message.
    pub fn first_lost(&self) -> Option<u32> {
        self.first(|end| matches!(end, RankEnd::Left)).map(|(_, number)| number)
    }

    /// Returns the first end that `wanted` accepts, and its rank.
    fn first(&self, wanted: fn(&RankEnd) -> bool) -> Option<(&(Instant, RankEnd), u32)> {
        let ends = self.known.iter().filter_map(|(number, rank)| Some((rank.end.as_ref()?, *number)));
        ends.filter(|((_, end), _)| wanted(end)).min_by_key(|((time, _), number)| (*time, *number))
    }

    /// Returns the cause of death of `rank` if mpirun or srun reported it as the first.
    pub fn death_of(&self, rank: u32) -> Option<String> {
        match &self.first_death {
            Some(Death { rank: first, cause: Cause::Signal(signal) }) if *first == rank => {
                Some(self.killed(rank, signal))
            }
            _ => None,
        }
    }

    /// Describes the first failure or death for the user.
    pub fn explanation(&self, now: Instant) -> Option<String> {
        // A rank's own report of its failure is more precise than that of mpirun or srun, which only sees the exit
        // status. A rank ended by a signal sends no report; ranks that report a failure later failed because of it, and
        // ranks that reported one earlier caused it.
        let failed = self.first(|end| matches!(end, RankEnd::Failed(_)));
        let ended = |number: &u32| self.known.get(number).and_then(|rank| rank.end.as_ref());
        let is_first = |number: &u32| match (ended(number), failed) {
            (Some((time, RankEnd::Left)), Some(((failed, _), _))) => time <= failed,
            (_, failed) => failed.is_none(),
        };
        match (&self.first_death, failed) {
            (Some(Death { rank, cause: Cause::Signal(signal) }), _) if is_first(rank) => {
                Some(self.killed(*rank, signal))
            }
            (Some(Death { rank, cause: Cause::OutOfMemory }), _) if is_first(rank) => {
                let (name, place) = (self.name(*rank), self.last_place(*rank));
                Some(format!(
                    "{name} was killed by signal 9 (SIGKILL){place}: it went beyond the memory of its Slurm job, choose a \
                     smaller --batch-size or fewer ranks on a host, or ask for more (--mem)"
                ))
            }
            (_, Some(((_, RankEnd::Failed(failure)), number))) => {
                let silent = self.silent_ranks(now).map(|text| format!("; {text}")).unwrap_or_default();
                Some(format!("{}: {}{silent}", self.name(number), failure.reason))
            }
            // After a run that does not count, all ranks are done, and the record contains the reason.
            (Some(Death { rank, cause: Cause::Exit(status) }), _)
                if !matches!(ended(rank), Some((_, RankEnd::Done))) =>
            {
                Some(format!("{} ended with exit status {status}{}", self.name(*rank), self.last_place(*rank)))
            }
            _ => {
                let Some(number) = self.first_lost() else { return self.starter_output.session_failure() };
                Some(format!("{} exited without an error message{}", self.name(number), self.last_place(number)))
            }
        }
    }

    /// Returns true if a rank reported why it failed, or was killed.
    pub fn has_reason(&self) -> bool {
        let is_killed = matches!(&self.first_death, Some(Death { cause: Cause::Signal(_) | Cause::OutOfMemory, .. }));
        is_killed || self.first(|end| matches!(end, RankEnd::Failed(_))).is_some()
    }

    /// Returns the memory shortage of the first rank that failed, if its device ran out of memory.
    pub fn shortage(&self) -> Option<MemoryShortage> {
        match self.first(|end| matches!(end, RankEnd::Failed(_)))? {
            ((_, RankEnd::Failed(failure)), _) => failure.shortage,
            _ => None,
        }
    }

    /// Describes a rank that has gone silent after others failed: its host may have caused their failure.
    fn silent_ranks(&self, now: Instant) -> Option<String> {
        let is_silent = |rank: &&Rank| rank.end.is_none() && rank.is_silent(now);
        let (number, rank) = self.known.iter().find(|(_, rank)| is_silent(rank))?;
        let silence = (now - rank.heard).as_secs();
        Some(format!("{} has not reported for {silence} s: its host or link may be down", self.name(*number)))
    }

    fn killed(&self, number: u32, signal: &str) -> String {
        let mut text = format!("{} was killed by signal {signal}{}", self.name(number), self.last_place(number));
        if let (true, Some(Rank { host, at, .. })) = (signal.starts_with(KILL), self.known.get(&number)) {
            let left = at.map_or(u64::MAX, |at| at.available_memory.0);
            let has_grown = |count: Option<&OutOfMemoryCount>| count.is_some_and(|count| count.kills > 0);
            let OutOfMemory { host: of_host, group, limit } = self.out_of_memory.clone().unwrap_or_default();
            text += &if has_grown(group.as_ref()) {
                let limit = limit.map_or_else(String::new, |limit| format!(" of {} MB", limit.0 / 1_000_000));
                format!(
                    ": the kernel ended it because the memory{limit} of its control group on host {host} was used up, \
                     choose a smaller --batch-size or fewer ranks on it, or raise the limit"
                )
            } else if has_grown(of_host.as_ref()) {
                format!(
                    ": the kernel ended processes because the memory of host {host} was used up, choose a smaller \
                     --batch-size or fewer ranks on it"
                )
            } else if left < SCARCE_MEMORY {
                let left = left / 1_000_000;
                format!(
                    ": host {host} had {left} MB of memory left, choose a smaller --batch-size or fewer ranks on it"
                )
            } else {
                format!(": by a user, a job limit, or the out-of-memory killer (see dmesg on {host})")
            };
        }
        text
    }

    /// Returns the position of the rank that is furthest behind.
    pub fn place(&self) -> Option<(u32, Stage)> {
        self.known.values().filter_map(Rank::position).min()
    }

    /// Returns the progress of each rank that has reported, servers last.
    pub fn ranks(&self, now: Instant) -> Vec<RankProgress> {
        let first_server = self.ranks - self.servers;
        let of = |(number, rank): (&u32, &Rank)| rank.progress(*number, first_server, now);
        self.known.iter().map(of).collect()
    }

    /// Describes the position of every rank, up to a limit.
    pub fn whereabouts(&self) -> String {
        if self.known.is_empty() {
            return "no rank has reported".to_owned();
        }
        let mut places: Vec<String> = self
            .known
            .iter()
            .take(NAMED)
            .map(|(number, rank)| format!("rank {number} on host {} is in {}", rank.host, rank.place()))
            .collect();
        if self.known.len() > NAMED {
            places.push(format!("and {} more", self.known.len() - NAMED));
        }
        places.join("; ")
    }

    /// Describes which ranks hang and which wait for them, if there has been no progress for too long.
    fn hang(&self, now: Instant) -> Option<String> {
        let limit = self.limit?;
        let live = || self.known.iter().filter(|(_, rank)| rank.end.is_none());
        let is_complete = self.known.len() == self.ranks as usize;
        if is_complete && live().next().is_none() {
            let last = self.known.values().filter_map(|rank| Some(rank.end.as_ref()?.0)).max()?;
            let who = "all ranks are done, and what started them does not end: a host or its link may be down";
            return (now - last >= limit).then(|| format!("no progress for {} s: {who}", (now - last).as_secs()));
        }
        if self.known.is_empty() && self.has_printed {
            // No rank can connect, so that the output is all that is known of them.
            return None;
        }
        // A rank that cannot connect may still make progress, and then the job prints something.
        let printed = if is_complete { self.started } else { self.last_line };
        let moved = live().map(|(_, rank)| rank.moved).fold(self.started.max(printed), Instant::max);
        let is_outside = |rank: &Rank| rank.at.is_none_or(|at| at.is_outside_loop());
        let patience = if live().all(|(_, rank)| is_outside(rank)) { limit * OUTSIDE_FACTOR } else { limit };
        // Without communication, no rank waits for one that has stopped, so each rank is checked on its own.
        let is_lost = |rank: &Rank| now - rank.heard >= patience;
        if now - moved < patience && !live().any(|(_, rank)| is_lost(rank)) {
            return None;
        }
        let live: BTreeMap<u32, &Rank> = live().map(|(number, rank)| (*number, rank)).collect();
        let unheard: Vec<u32> = (0..self.ranks).filter(|number| !self.known.contains_key(number)).collect();
        let time = (now - moved).max(patience).as_secs();
        let who = Hang { ranks: self.ranks, servers: self.servers, live, unheard, patience, now }.describe();
        Some(format!("no progress for {time} s: {who} (if it is only slow, raise --stall-timeout)"))
    }

    /// Returns the name of a process: `rank 3 of 8 on host b`.
    fn name(&self, number: u32) -> String {
        name(number, self.ranks, self.servers, self.known.get(&number))
    }

    fn last_place(&self, number: u32) -> String {
        let place = self.known.get(&number).filter(|rank| rank.at.is_some()).map(Rank::place);
        place.map_or_else(String::new, |place| format!(" in {place}"))
    }
}

#[cfg(test)]
mod tests {
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
    struct Story {
        watchdog: Watchdog,
        start: Instant,
        second: u64,
    }

    impl Story {
        fn new(hosts: &[&str]) -> Story {
            let start = Instant::now();
            let watchdog = Watchdog::new(
                hosts.len() as u32,
                &ServerRanks::default(),
                Some(Duration::from_secs(60)),
                INTERVAL,
                start,
            );
            let mut story = Story { watchdog, start, second: 0 };
            for (rank, host) in hosts.iter().enumerate() {
                story.say(rank as u32, joined(0, host));
            }
            story
        }

        fn now(&self) -> Instant {
            self.start + Duration::from_secs(self.second)
        }

        fn say(&mut self, rank: u32, event: Event) {
            let now = self.now();
            self.watchdog.hear(rank, event, now);
        }

        /// Advances by `seconds`, in which each of these ranks reports its position and uses `load` of a processor.
        fn pass(&mut self, seconds: u64, places: &[(u32, u32, Stage, f64)]) {
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
                    self.say(*rank, Event::At(heartbeat));
                }
            }
        }

        fn verdict(&self) -> Option<String> {
            self.watchdog.verdict(self.now())
        }
    }

    const BUCKET: Stage = Stage::all_reduce(2);

    #[test]
    fn the_place_of_a_job_is_that_of_the_rank_furthest_behind() {
        let mut story = Story::new(&["a", "b"]);
        assert_eq!(story.watchdog.place(), None);
        story.pass(1, &[(0, 3, Stage::Forward, 1.0), (1, 2, Stage::Backward, 1.0)]);
        assert_eq!(story.watchdog.place(), Some((2, Stage::Backward)));
        story.pass(1, &[(1, 3, Stage::Optimizer, 1.0)]);
        assert_eq!(story.watchdog.place(), Some((3, Stage::Forward)));
    }

    #[test]
    fn a_rank_that_is_stopped_is_named_and_those_that_wait_are_not() {
        let mut story = Story::new(&["a", "b", "a", "b"]);
        story.pass(
            10,
            &[(0, 7, Stage::Forward, 1.0), (1, 7, Stage::Forward, 1.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)],
        );
        story.pass(59, &[(0, 7, BUCKET, 0.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)]);
        assert_eq!(story.verdict(), None);
        story.pass(2, &[(0, 7, BUCKET, 0.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)]);
        expect!["no progress for 60 s: rank 1 of 4 on host b (process 100) has not reported for 61 s, last in iteration 7, forward: it is stopped, or its host or link is down; ranks 0, 2-3 wait for it in iteration 7, all-reduce of bucket 2 (if it is only slow, raise --stall-timeout)"].assert_eq(&story.verdict().expect("it hangs"));
    }

    #[test]
    fn a_host_that_falls_silent_is_named_as_a_host() {
        let mut story = Story::new(&["a", "a", "b", "b"]);
        story.pass(5, &[(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0), (2, 3, BUCKET, 0.0), (3, 3, BUCKET, 0.0)]);
        story.pass(60, &[(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0)]);
        let verdict = story.verdict().expect("it hangs");
        expect!["no progress for 64 s: host b with ranks 2-3 has not reported for 60 s, last in iteration 3, all-reduce of bucket 2: it or its link is down; ranks 0-1 wait for them in iteration 3, all-reduce of bucket 2 (if it is only slow, raise --stall-timeout)"].assert_eq(&verdict);
    }

    #[test]
    fn a_rank_that_fails_before_the_job_hangs_says_why() {
        let mut story = Story::new(&["a", "b", "c"]);
        let all = [(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0), (2, 3, BUCKET, 0.0)];
        story.pass(2, &all);
        story.pass(56, &all[..2]);
        story.say(0, failed("the connection to rank 2 broke"));
        story.pass(2, &all[1..2]);
        assert_eq!(story.verdict(), None);
        // Before the grace period after the failure ends, the stall limit is exceeded.
        story.pass(1, &all[1..2]);
        expect!["rank 0 of 3 on host a: the connection to rank 2 broke; rank 2 of 3 on host c has not reported for 59 s: its host or link may be down"].assert_eq(&story.verdict().expect("it hangs"));
    }

    #[test]
    fn ranks_that_all_wait_for_each_other_point_at_the_network() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(62, &[(0, 3, BUCKET, 1.0), (1, 3, BUCKET, 1.0)]);
        let verdict = story.verdict().expect("it hangs");
        expect!["no progress for 61 s: all 2 ranks wait for each other in iteration 3, all-reduce of bucket 2: what they send does not arrive: look at the network between a, b (ringmark doctor measures it), or choose another by --interface (if it is only slow, raise --stall-timeout)"].assert_eq(&verdict);
    }

    #[test]
    fn a_rank_behind_the_others_is_the_one_that_hangs() {
        let mut story = Story::new(&["a", "b", "c"]);
        let early = Stage::all_reduce(0);
        story.pass(62, &[(0, 3, BUCKET, 0.0), (1, 3, early, 0.0), (2, 3, BUCKET, 0.0)]);
        let verdict = story.verdict().expect("it hangs");
        // It may be a victim of the network like the others: all of them wait.
        expect!["no progress for 61 s: all 3 ranks wait for each other in iteration 3, all-reduce of bucket 0, rank 1 of 3 on host b furthest behind: what they send does not arrive: look first at that rank's device and link (dmesg on b), then: look at the network between a, b, c (ringmark doctor measures it), or choose another by --interface; ranks 0, 2 wait for it in iteration 3, all-reduce of bucket 2 (if it is only slow, raise --stall-timeout)"].assert_eq(&verdict);
    }

    #[test]
    fn a_long_phase_at_work_is_no_hang() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(600, &[(0, 1, BUCKET, 1.0), (1, 1, Stage::Forward, 0.9)]);
        assert_eq!(story.verdict(), None);
        // The same phase without processor time.
        story.pass(62, &[(0, 1, BUCKET, 1.0), (1, 1, Stage::Forward, 0.0)]);
        let verdict = story.verdict().expect("it hangs");
        expect!["no progress for 62 s: rank 1 of 2 on host b (process 100) makes no progress in iteration 1, forward: see what it does there (py-spy, gdb -p, dmesg); rank 0 waits for it in iteration 1, all-reduce of bucket 2 (if it is only slow, raise --stall-timeout)"].assert_eq(&verdict);
    }

    #[test]
    fn a_slow_network_is_no_hang() {
        let mut story = Story::new(&["a", "b"]);
        for chunks in 0..300 {
            story.second += 1;
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
                story.say(rank, Event::At(at));
            }
        }
        assert_eq!(story.verdict(), None);
    }

    #[test]
    fn a_slow_start_gets_more_time_and_then_is_named() {
        let mut story = Story::new(&["a"]);
        story.watchdog.ranks = 2;
        story.pass(170, &[(0, 0, Stage::Joining, 1.0)]);
        assert_eq!(story.verdict(), None);
        story.pass(15, &[(0, 0, Stage::Joining, 1.0)]);
        let verdict = story.verdict().expect("it hangs");
        expect!["no progress for 184 s: rank 1 has never reported: it was not started, or cannot reach this machine's addresses; rank 0 waits for it in MPI's initialization (if it is only slow, raise --stall-timeout)"].assert_eq(&verdict);
    }

    #[test]
    fn ranks_that_cannot_report_are_alive_while_the_job_prints() {
        let mut story = Story::new(&[]);
        story.watchdog.ranks = 2;
        for _ in 0..400 {
            story.second += 1;
            let now = story.now();
            story.watchdog.output("Epoch[0] Batch[1]", now);
        }
        story.second += 1000;
        assert_eq!(story.verdict(), None);
        // A rank that is silent from the start may never have been started.
        let mut story = Story::new(&[]);
        story.watchdog.ranks = 2;
        story.second += 181;
        expect!["no progress for 181 s: rank 0 has never reported: it was not started, or cannot reach this machine's addresses; rank 1 has never reported: it was not started, or cannot reach this machine's addresses (if it is only slow, raise --stall-timeout)"].assert_eq(&story.verdict().expect("it hangs"));
    }

    #[test]
    fn a_stopped_rank_is_found_where_nobody_waits_for_it() {
        let mut story = Story::new(&["a", "b"]);
        for iteration in 1..=70 {
            story.pass(1, &[(0, iteration, Stage::Forward, 1.0)]);
        }
        expect!["no progress for 60 s: rank 1 of 2 on host b (process 100) has not reported for 70 s, last in its first second: it is stopped, or its host or link is down (if it is only slow, raise --stall-timeout)"].assert_eq(&story.verdict().expect("it hangs"));
    }

    #[test]
    fn a_killed_rank_is_named_with_its_signal_and_place() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(3, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0)]);
        story.say(1, Event::Left(0));
        // Its neighbor fails because of it, and reports first.
        story.say(0, failed("MPI_Allreduce returned 17"));
        assert_eq!(story.verdict(), None);
        let now = story.now();
        story
            .watchdog
            .output("mpirun noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed).", now);
        let explanation = story.watchdog.explanation(story.now()).expect("it was told");
        expect!["rank 1 of 2 on host b was killed by signal 9 (SIGKILL) in iteration 2, forward: by a user, a job limit, or the out-of-memory killer (see dmesg on b)"].assert_eq(&explanation);
        story.second += 5;
        assert_eq!(story.verdict(), Some(explanation));
    }

    #[test]
    fn what_mpirun_says_late_of_the_lost_rank_counts_and_of_others_does_not() {
        let told = |line: &str| {
            let mut story = Story::new(&["a", "b"]);
            story.pass(3, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0)]);
            assert_eq!(story.watchdog.first_lost(), None);
            story.say(1, Event::Left(0));
            story.pass(6, &[(0, 2, BUCKET, 0.0)]);
            let verdict = story.verdict().expect("it is overdue");
            assert_eq!(verdict, "rank 1 of 2 on host b exited without an error message in iteration 2, forward");
            story.say(0, Event::Left(0));
            let now = story.now();
            story.watchdog.output(line, now);
            story.watchdog.death_of(story.watchdog.first_lost().expect("rank 1"))
        };
        let late =
            told("mpirun noticed that process rank 1 with PID 7 on node b exited on signal 11 (Segmentation fault).");
        let words = "rank 1 of 2 on host b was killed by signal 11 (SIGSEGV) in iteration 2, forward";
        assert_eq!(late.as_deref(), Some(words));
        assert_eq!(
            told("mpirun noticed that process rank 0 with PID 6 on node a exited on signal 15 (Terminated)."),
            None
        );
    }

    #[test]
    fn servers_are_named_as_such_and_ranks_may_be_lost_where_others_go_on() {
        let story_of = |may_lose_ranks| {
            let mut story = Story::new(&["a", "b", "c"]);
            let servers = ServerRanks { number: 1, may_lose_ranks, ..ServerRanks::default() };
            story.watchdog = Watchdog::new(2, &servers, Some(Duration::from_secs(60)), INTERVAL, story.now());
            for (rank, host) in [(0, "a"), (1, "b"), (2, "c")] {
                story.say(rank, joined(0, host));
            }
            story.pass(3, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0), (2, 2, Stage::Serving, 0.1)]);
            story
        };
        let mut story = story_of(true);
        story.say(1, Event::Left(0));
        story.pass(6, &[(0, 3, Stage::Forward, 1.0), (2, 3, Stage::Serving, 0.1)]);
        assert_eq!(story.verdict(), None);
        story.say(2, Event::Left(0));
        story.pass(6, &[(0, 3, Stage::Forward, 1.0)]);
        assert!(story.verdict().is_some(), "without its server no rank continues");
        let mut story = story_of(true);
        let gathering = Stage::Finishing;
        story.pass(1, &[(0, 9, gathering, 0.1), (1, 9, gathering, 0.1), (2, 9, Stage::Serving, 0.1)]);
        story.say(1, Event::Left(0));
        story.pass(6, &[(0, 9, gathering, 0.0)]);
        let words = "rank 1 of 2 on host b exited without an error message in iteration 9, gathering the results";
        assert_eq!(story.verdict().as_deref(), Some(words), "whose results are missing");
        let mut story = story_of(false);
        story.say(2, Event::Left(0));
        story.pass(6, &[(0, 2, BUCKET, 0.0), (1, 2, BUCKET, 0.0)]);
        let words =
            "server 0 of 1 on host c exited without an error message in iteration 2, waiting for pushes from workers";
        assert_eq!(story.verdict().as_deref(), Some(words));
    }

    #[test]
    fn want_of_memory_is_said() {
        let killed = |available: u64, counted: Option<&str>| {
            let mut story = Story::new(&["a"]);
            story.pass(1, &[(0, 2, Stage::Forward, 1.0)]);
            if let Some(at) = story.watchdog.known.get_mut(&0).and_then(|rank| rank.at.as_mut()) {
                at.available_memory = Bytes(available);
            }
            assert_eq!(story.watchdog.killed_rank(), None);
            let now = story.now();
            let line = "mpirun noticed that process rank 0 with PID 7 on node a exited on signal 9 (Killed).";
            story.watchdog.output(line, now);
            let files = vec!["/proc/vmstat".to_owned(), "/g".to_owned()];
            assert_eq!(story.watchdog.killed_rank(), Some((0, files)));
            if let Some(text) = counted {
                story.watchdog.counted(text);
                assert_eq!(story.watchdog.killed_rank(), None);
            }
            let explanation = story.watchdog.explanation(story.now()).expect("it was told");
            let start = "rank 0 of 1 on host a was killed by signal 9 (SIGKILL) in iteration 2, forward: ";
            explanation.strip_prefix(start).expect(&explanation).to_owned()
        };
        let plenty = 8_000_000_000;
        let in_group = killed(plenty, Some("/proc/vmstat:oom_kill 5\n/g:oom_kill 2\n"));
        expect!["the kernel ended it because the memory of 3000 MB of its control group on host a was used up, choose a smaller --batch-size or fewer ranks on it, or raise the limit"].assert_eq(&in_group);
        let on_host = killed(plenty, Some("/proc/vmstat:oom_kill 5\n/g:oom_kill 1\n"));
        expect!["the kernel ended processes because the memory of host a was used up, choose a smaller --batch-size or fewer ranks on it"].assert_eq(&on_host);
        // Nothing was counted, or the host could not be queried.
        let counts = [None, Some(""), Some("/proc/vmstat:oom_kill 4\n/g:oom_kill 1\n")];
        let explanations =
            counts.into_iter().flat_map(|counted| [plenty, 120_000_000].map(|available| killed(available, counted)));
        let explanations: BTreeSet<String> = explanations.collect();
        expect![[r#"
            by a user, a job limit, or the out-of-memory killer (see dmesg on a)
            host a had 120 MB of memory left, choose a smaller --batch-size or fewer ranks on it"#]]
        .assert_eq(&Vec::from_iter(explanations).join("\n"));

        let mut story = Story::new(&["a"]);
        story.pass(1, &[(0, 2, Stage::Forward, 1.0)]);
        let now = story.now();
        story.watchdog.output("srun: error: a: task 0: Out Of Memory", now);
        let explanation = story.watchdog.explanation(story.now()).expect("it was told");
        expect!["rank 0 of 1 on host a was killed by signal 9 (SIGKILL) in iteration 2, forward: it went beyond the memory of its Slurm job, choose a smaller --batch-size or fewer ranks on a host, or ask for more (--mem)"].assert_eq(&explanation);
    }

    #[test]
    fn a_rank_s_own_words_go_before_mpirun_s() {
        let mut story = Story::new(&["a", "b"]);
        story.say(1, failed("no memory"));
        story.say(1, Event::Left(0));
        story.say(0, Event::Left(0));
        let now = story.now();
        story.watchdog.output("srun: error: b: task 1: Exited with exit code 1", now);
        assert_eq!(story.watchdog.explanation(story.now()).as_deref(), Some("rank 1 of 2 on host b: no memory"));
        let mut story = Story::new(&["a", "b"]);
        story.pass(1, &[(1, 4, Stage::Optimizer, 1.0)]);
        story.say(1, Event::Left(0));
        let words = "rank 1 of 2 on host b exited without an error message in iteration 4, optimizer";
        assert_eq!(story.watchdog.explanation(story.now()).as_deref(), Some(words));
    }

    #[test]
    fn ranks_that_are_done_are_not_missed() {
        let mut story = Story::new(&["a", "b"]);
        for rank in [0, 1] {
            story.say(rank, Event::Done);
            story.say(rank, Event::Left(0));
        }
        story.second += 59;
        assert_eq!((story.verdict(), story.watchdog.explanation(story.now())), (None, None));
        story.second += 1;
        expect!["no progress for 60 s: all ranks are done, and what started them does not end: a host or its link may be down"].assert_eq(&story.verdict().expect("mpirun hangs"));
    }

    #[test]
    fn a_slow_start_of_all_gets_more_time_whatever_they_wait_in() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(170, &[(0, 0, Stage::Joining, 1.0), (1, 0, Stage::Joining, 1.0)]);
        assert_eq!(story.verdict(), None);
        story.pass(15, &[(0, 0, Stage::Joining, 1.0), (1, 0, Stage::Joining, 1.0)]);
        expect!["no progress for 184 s: all 2 ranks wait for each other in MPI's initialization: what they send does not arrive: look at the network between a, b (ringmark doctor measures it), or choose another by --interface (if it is only slow, raise --stall-timeout)"].assert_eq(&story.verdict().expect("it hangs"));
    }

    #[test]
    fn a_launcher_that_was_stopped_blames_nobody_for_it() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(5, &[(0, 2, BUCKET, 0.0), (1, 2, Stage::Forward, 1.0)]);
        story.second += 500;
        story.watchdog.restart_silences(story.now());
        assert_eq!(story.verdict(), None);
    }

    #[test]
    fn a_rank_that_comes_back_on_another_connection_has_not_left() {
        let mut story = Story::new(&["a"]);
        story.pass(5, &[(0, 2, Stage::Forward, 1.0)]);
        story.say(0, Event::Left(0));
        story.say(0, joined(1, "a"));
        story.pass(6, &[(0, 3, Stage::Forward, 1.0)]);
        assert_eq!(story.verdict(), None);
        // The end of the first connection may be reported late.
        story.say(0, Event::Left(0));
        story.pass(6, &[(0, 4, Stage::Forward, 1.0)]);
        assert_eq!(story.verdict(), None);
        story.say(0, Event::Left(1));
        story.second += 6;
        expect!["rank 0 of 1 on host a exited without an error message in iteration 4, forward"]
            .assert_eq(&story.verdict().expect("it died"));
    }

    #[test]
    fn who_caused_the_end_is_told_from_who_was_ended() {
        // Slurm ends the other ranks when one fails, and reports one of those.
        let mut story = Story::new(&["a", "b"]);
        story.say(1, failed("no memory"));
        story.second += 1;
        story.say(0, Event::Left(0));
        let now = story.now();
        story.watchdog.output("srun: error: a: task 0: Killed", now);
        assert_eq!(story.watchdog.explanation(now).as_deref(), Some("rank 1 of 2 on host b: no memory"));
        assert_eq!(story.watchdog.shortage(), None);
        // If several ranks lack memory, the first one counts, regardless of errors that follow from it.
        let memory = MemoryShortage { taken: Bytes(15), total: Bytes(16) };
        let mut story = Story::new(&["a", "b"]);
        story.say(1, Event::Failed(RankFailure { reason: "no memory".to_owned(), shortage: Some(memory) }));
        story.second += 1;
        story.say(0, failed("remote error"));
        assert_eq!(story.watchdog.shortage(), Some(memory));
        // A host became silent before others failed.
        let mut story = Story::new(&["a", "b"]);
        story.pass(1, &[(0, 2, BUCKET, 0.0), (1, 2, BUCKET, 0.0)]);
        story.pass(20, &[(0, 2, BUCKET, 0.0)]);
        story.say(0, failed("remote error"));
        let words = story.watchdog.explanation(story.now()).expect("it failed");
        expect!["rank 0 of 2 on host a: remote error; rank 1 of 2 on host b has not reported for 20 s: its host or link may be down"].assert_eq(&words);
        // The record of a run that does not count contains the reason.
        let mut story = Story::new(&["a"]);
        story.say(0, Event::Done);
        let now = story.now();
        story.watchdog.output("srun: error: a: task 0: Exited with exit code 1", now);
        assert_eq!(story.watchdog.explanation(now), None);
    }
}

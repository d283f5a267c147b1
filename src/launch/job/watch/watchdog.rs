//! From what is heard of the ranks: which one died, which ones are stuck, and who only waits for them. Reads no clock and
//! no socket: every call is told the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ringmark_record::heartbeat::{Heartbeat, INTERVAL, Phase};

use crate::launch::job::watch::listener::Event;
use crate::launch::job::watch::starter_output::{Cause, Words};

/// What the launcher gets to say of a rank's end, and to end the others, before we do.
const GRACE: Duration = Duration::from_secs(5);

/// A rank that has missed so many reports is silent.
const MISSED_REPORTS: f64 = 5.0;

/// What lies before and after the timed loop reads and writes files, perhaps on a slow disk: it may take so many times longer.
const OUTSIDE_FACTOR: u32 = 3;

/// Share of a processor that a rank uses at least while it works: on the CPU a phase may be longer than any patience, and
/// many ranks may share a core. One that is stopped or waits for its device uses less.
const WORKING: f64 = 0.05;

/// A host with less memory left, in bytes, is about to end a process for it.
const SCARCE_MEMORY: u64 = 500_000_000;

/// Ranks that a message names one by one.
const NAMED: usize = 8;

/// All that is known of one job's ranks.
pub struct Judge {
    ranks: u32,
    limit: Option<Duration>,
    started: Instant,
    known: BTreeMap<u32, Rank>,
    /// A line of the job's output came.
    last_line: Instant,
    has_printed: bool,
    words: Words,
    /// The first end that the launcher told.
    told: Option<(u32, Cause)>,
}

struct Rank {
    host: String,
    process: u32,
    /// Number of its last connection.
    connection: u64,
    at: Option<Heartbeat>,
    heard: Instant,
    /// When it last came on: another place, another piece, or work on the processor.
    moved: Instant,
    end: Option<(Instant, End)>,
}

enum End {
    Failed(String),
    Done,
    Left,
}

impl Judge {
    /// Of `ranks` ranks that are being started; `limit` is the time without progress after which they hang.
    pub fn new(ranks: u32, limit: Option<Duration>, now: Instant) -> Judge {
        let (known, words) = (BTreeMap::new(), Words::default());
        Judge { ranks, limit, started: now, known, last_line: now, has_printed: false, words, told: None }
    }

    /// Forgets how long nothing was heard: nobody listened.
    pub fn excuse(&mut self, now: Instant) {
        (self.started, self.last_line) = (now, now);
        for rank in self.known.values_mut() {
            (rank.heard, rank.moved) = (now, now);
        }
    }

    /// Takes what a rank said.
    pub fn hear(&mut self, rank: u32, event: Event, now: Instant) {
        if let Event::Joined(connection, host, process) = &event {
            let (host, process, connection) = (host.clone(), *process, *connection);
            let new = Rank { host, process, connection, at: None, heard: now, moved: now, end: None };
            let known = self.known.entry(rank).or_insert(new);
            known.connection = connection;
            // The network had lost it.
            known.end.take_if(|(_, end)| matches!(end, End::Left));
        }
        let Some(rank) = self.known.get_mut(&rank) else { return };
        match event {
            Event::Joined(..) => {}
            Event::At(heartbeat) => rank.hear(heartbeat, now),
            Event::Failed(reason) => rank.end(End::Failed(reason), now),
            Event::Done => rank.end(End::Done, now),
            Event::Left(connection) if connection == rank.connection => rank.end(End::Left, now),
            Event::Left(_) => {}
        }
    }

    /// Takes a line of the job's output.
    pub fn output(&mut self, line: &str, now: Instant) {
        (self.last_line, self.has_printed) = (now, true);
        if let Some(death) = self.words.death_in(line) {
            self.told.get_or_insert(death);
        }
    }

    /// Why the job must be ended: a rank died and the launcher does nothing, or nobody comes on any more.
    pub fn verdict(&self, now: Instant) -> Option<String> {
        let is_overdue = |rank: &Rank| match &rank.end {
            Some((time, End::Failed(_) | End::Left)) => now - *time >= GRACE,
            _ => false,
        };
        if self.known.values().any(is_overdue) {
            return self.explanation(now);
        }
        self.hang(now)
    }

    /// The first failure or death, in words.
    pub fn explanation(&self, now: Instant) -> Option<String> {
        let first = |wanted: fn(&End) -> bool| {
            let ends = self.known.iter().filter_map(|(number, rank)| Some((rank.end.as_ref()?, *number)));
            ends.filter(|((_, end), _)| wanted(end)).min_by_key(|((time, _), number)| (*time, *number))
        };
        // A rank that speaks of its failure knows more than its launcher, which sees how it ended. One that was ended by a
        // signal did not speak; those that did so later failed because of it, and those that did so earlier caused it.
        let failed = first(|end| matches!(end, End::Failed(_)));
        let ended = |number: &u32| self.known.get(number).and_then(|rank| rank.end.as_ref());
        let is_first = |number: &u32| match (ended(number), failed) {
            (Some((time, End::Left)), Some(((failed, _), _))) => time <= failed,
            (_, failed) => failed.is_none(),
        };
        match (&self.told, failed) {
            (Some((number, Cause::Signal(signal))), _) if is_first(number) => Some(self.killed(*number, signal)),
            (_, Some(((_, End::Failed(reason)), number))) => {
                let silent = self.silent_words(now).map(|words| format!("; {words}")).unwrap_or_default();
                Some(format!("{}: {reason}{silent}", self.name(number)))
            }
            // Of a run that does not count all ranks are done, and the record tells why.
            (Some((number, Cause::Exit(status))), _) if !matches!(ended(number), Some((_, End::Done))) => {
                Some(format!("{} ended with exit status {status}{}", self.name(*number), self.last_place(*number)))
            }
            _ => {
                let (_, number) = first(|end| matches!(end, End::Left))?;
                Some(format!("{} died without a word{}", self.name(number), self.last_place(number)))
            }
        }
    }

    /// Ranks of which nothing is heard any more, where others have failed: perhaps because of them.
    fn silent_words(&self, now: Instant) -> Option<String> {
        let is_silent = |rank: &&Rank| rank.end.is_none() && rank.is_silent(now);
        let (number, rank) = self.known.iter().find(|(_, rank)| is_silent(rank))?;
        let silence = (now - rank.heard).as_secs();
        Some(format!("{} has not been heard for {silence} s: its host or link may be down", self.name(*number)))
    }

    fn killed(&self, number: u32, signal: &str) -> String {
        let mut text = format!("{} was killed by signal {signal}{}", self.name(number), self.last_place(number));
        if let (true, Some(Rank { host, at, .. })) = (signal.starts_with("9 "), self.known.get(&number)) {
            let left = at.map_or(u64::MAX, |at| at.available_memory.0);
            text += &if left < SCARCE_MEMORY {
                let left = left / 1_000_000;
                format!(
                    ": host {host} had {left} MB of memory left, choose a smaller --batch-size or fewer ranks on it"
                )
            } else {
                format!(": by a person, a limit of the job, or the kernel for want of memory (dmesg on {host} tells)")
            };
        }
        text
    }

    /// Every rank's place, as far as they can be named.
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

    /// Who hangs and who waits for it, where nobody has come on for too long.
    fn hang(&self, now: Instant) -> Option<String> {
        let limit = self.limit?;
        let live: BTreeMap<u32, &Rank> =
            self.known.iter().filter(|(_, rank)| rank.end.is_none()).map(|(number, rank)| (*number, rank)).collect();
        let unheard: Vec<u32> = (0..self.ranks).filter(|number| !self.known.contains_key(number)).collect();
        if live.is_empty() && unheard.is_empty() {
            let last = self.known.values().filter_map(|rank| Some(rank.end.as_ref()?.0)).max()?;
            let words = "all ranks are done, and what started them does not end: a host or its link may be down";
            return (now - last >= limit).then(|| format!("no progress for {} s: {words}", (now - last).as_secs()));
        }
        if self.known.is_empty() && self.has_printed {
            // None can reach us, and of those that print nothing else is known.
            return None;
        }
        // A rank that cannot reach us may work all the same, and then something is printed.
        let printed = if unheard.is_empty() { self.started } else { self.last_line };
        let moved = live.values().map(|rank| rank.moved).fold(self.started.max(printed), Instant::max);
        let is_outside = |rank: &Rank| rank.at.is_none_or(|at| at.is_outside_loop());
        let patience = if live.values().all(|rank| is_outside(rank)) { limit * OUTSIDE_FACTOR } else { limit };
        // Without an exchange nobody waits for a rank that has stopped.
        let is_lost = |rank: &&Rank| now - rank.heard >= patience;
        if now - moved < patience && !live.values().any(is_lost) {
            return None;
        }
        let stuck = self.stuck(&live, &unheard, patience, now);
        let is_waiting = |number: &u32, rank: &Rank| !stuck.contains(number) && rank.waits_audibly(now);
        let waiting: Vec<u32> =
            live.iter().filter(|(number, rank)| is_waiting(number, rank)).map(|(number, _)| *number).collect();
        let mut parts = self.describe(&live, &stuck, now);
        parts.extend(self.describe_waiting(&live, &waiting, stuck.len()));
        let time = (now - moved).max(patience).as_secs();
        Some(format!("no progress for {time} s: {} (if it is only slow, raise --stall-timeout)", parts.join("; ")))
    }

    /// Those that the others wait for: silent, never heard, or not waiting and without progress; else those that are
    /// furthest behind; all of them where all are at one place.
    fn stuck(&self, live: &BTreeMap<u32, &Rank>, unheard: &[u32], patience: Duration, now: Instant) -> BTreeSet<u32> {
        let does_not_move = |rank: &Rank| now - rank.moved >= patience && rank.at.is_none_or(|at| !at.is_waiting);
        let mut stuck: BTreeSet<u32> = unheard.iter().copied().collect();
        let is_stuck = |rank: &Rank| rank.is_silent(now) || does_not_move(rank);
        stuck.extend(live.iter().filter(|(_, rank)| is_stuck(rank)).map(|(number, _)| *number));
        if stuck.is_empty() {
            let last = live.values().filter_map(|rank| rank.position()).min();
            stuck.extend(live.iter().filter(|(_, rank)| rank.position() == last).map(|(number, _)| *number));
        }
        stuck
    }

    fn describe(&self, live: &BTreeMap<u32, &Rank>, stuck: &BTreeSet<u32>, now: Instant) -> Vec<String> {
        if live.len() > 1
            && live.values().all(|rank| rank.waits_audibly(now))
            && stuck.iter().all(|it| live.contains_key(it))
        {
            return vec![self.describe_all_waiting(live, stuck)];
        }
        let mut parts = self.silent_hosts(live, stuck, now);
        for number in stuck {
            let Some(rank) = live.get(number) else {
                parts.push(format!(
                    "rank {number} has never reported: it was not started, or cannot reach this machine's addresses"
                ));
                continue;
            };
            let name = format!("{} (process {})", self.name(*number), rank.process);
            if !rank.is_silent(now) {
                let place = rank.place();
                parts.push(format!(
                    "{name} does not come on in {place}: see what it does there (py-spy, gdb -p, dmesg)"
                ));
            } else if !self.is_silent_host(live, &rank.host, now) {
                let silence = (now - rank.heard).as_secs();
                parts.push(format!(
                    "{name} has not been heard for {silence} s, last in {}: it is stopped, or its host or link is down",
                    rank.place()
                ));
            }
        }
        if parts.len() > NAMED {
            let more = parts.len() - NAMED;
            parts.truncate(NAMED);
            parts.push(format!("{more} more likewise"));
        }
        parts
    }

    /// Nobody is at fault that could be named: what they send does not arrive.
    fn describe_all_waiting(&self, live: &BTreeMap<u32, &Rank>, stuck: &BTreeSet<u32>) -> String {
        let hosts: BTreeSet<&str> = live.values().map(|rank| rank.host.as_str()).collect();
        let hosts: Vec<&str> = hosts.into_iter().collect();
        let place = stuck.first().and_then(|number| live.get(number)).map_or_else(String::new, |rank| rank.place());
        let behind = match stuck.len() == live.len() {
            true => String::new(),
            false => format!(", {} furthest behind", ranks(&stuck.iter().copied().collect::<Vec<_>>())),
        };
        let advice = match hosts[..] {
            [host] => {
                format!("NCCL_DEBUG=INFO tells what they do on {host}, --collective mpi does without shared memory")
            }
            _ => format!(
                "look at the network between {} (ringmark doctor measures it), or choose another by --interface",
                hosts.join(", ")
            ),
        };
        format!(
            "all {} ranks wait for each other in {place}{behind}: what they send does not arrive: {advice}",
            live.len()
        )
    }

    /// Hosts of several ranks that all fell silent: one cause, and not the ranks'.
    fn silent_hosts(&self, live: &BTreeMap<u32, &Rank>, stuck: &BTreeSet<u32>, now: Instant) -> Vec<String> {
        let hosts: BTreeSet<&str> =
            stuck.iter().filter_map(|number| live.get(number)).map(|rank| rank.host.as_str()).collect();
        let silent = hosts.into_iter().filter(|host| self.is_silent_host(live, host, now));
        silent
            .map(|host| {
                let of_host: Vec<(u32, &Rank)> =
                    live.iter().filter(|(_, rank)| rank.host == host).map(|(number, rank)| (*number, *rank)).collect();
                let silence = of_host.iter().map(|(_, rank)| (now - rank.heard).as_secs()).min().unwrap_or(0);
                let numbers: Vec<u32> = of_host.iter().map(|(number, _)| *number).collect();
                let place = of_host.first().map_or_else(String::new, |(_, rank)| rank.place());
                format!(
                    "host {host} with {} has not been heard for {silence} s, last in {place}: it or its link is down",
                    ranks(&numbers)
                )
            })
            .collect()
    }

    fn is_silent_host(&self, live: &BTreeMap<u32, &Rank>, host: &str, now: Instant) -> bool {
        let of_host: Vec<&&Rank> = live.values().filter(|rank| rank.host == host).collect();
        let hosts: BTreeSet<&str> = live.values().map(|rank| rank.host.as_str()).collect();
        hosts.len() > 1 && of_host.len() > 1 && of_host.iter().all(|rank| rank.is_silent(now))
    }

    fn describe_waiting(&self, live: &BTreeMap<u32, &Rank>, waiting: &[u32], stuck: usize) -> Option<String> {
        let whom = if stuck == 1 { "it" } else { "them" };
        let verb = if waiting.len() == 1 { "waits" } else { "wait" };
        // Most of them are at one place; the furthest is the one that all come to.
        let place = waiting.iter().filter_map(|number| live.get(number)).max_by_key(|rank| rank.position())?.place();
        Some(format!("{} {verb} for {whom} in {place}", ranks(waiting)))
    }

    /// `rank 3 of 8 on host b`.
    fn name(&self, number: u32) -> String {
        let host = self.known.get(&number).map_or_else(String::new, |rank| format!(" on host {}", rank.host));
        format!("rank {number} of {}{host}", self.ranks)
    }

    fn last_place(&self, number: u32) -> String {
        let place = self.known.get(&number).filter(|rank| rank.at.is_some()).map(Rank::place);
        place.map_or_else(String::new, |place| format!(" in {place}"))
    }
}

impl Rank {
    fn hear(&mut self, next: Heartbeat, now: Instant) {
        let has_moved = self.at.is_none_or(|last| {
            let work = next.processor_time.0 - last.processor_time.0;
            let time = (now - self.heard).as_secs_f64();
            let works = !next.is_waiting && work >= WORKING * time.max(INTERVAL.0 / 2.0);
            works || (next.iteration, next.phase, next.pieces) != (last.iteration, last.phase, last.pieces)
        });
        if has_moved {
            self.moved = now;
        }
        self.heard = now;
        self.at = Some(next);
    }

    /// What comes first counts: a rank that failed leaves as well.
    fn end(&mut self, end: End, now: Instant) {
        self.end.get_or_insert((now, end));
    }

    fn is_silent(&self, now: Instant) -> bool {
        (now - self.heard).as_secs_f64() > MISSED_REPORTS * INTERVAL.0
    }

    fn waits_audibly(&self, now: Instant) -> bool {
        !self.is_silent(now) && self.at.is_some_and(|at| at.is_waiting)
    }

    fn position(&self) -> Option<(u32, Phase)> {
        self.at.map(|at| (at.iteration, at.phase))
    }

    fn place(&self) -> String {
        match self.at {
            None => "its first second".to_owned(),
            Some(at) if at.iteration == 0 => at.phase.to_string(),
            Some(at) => format!("iteration {}, {}", at.iteration, at.phase),
        }
    }
}

/// `rank 3`, `ranks 0, 2-5`.
fn ranks(numbers: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => spans.push((*number, *number)),
        }
    }
    let spans: Vec<String> = spans
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    format!("{} {}", if numbers.len() == 1 { "rank" } else { "ranks" }, spans.join(", "))
}

#[cfg(test)]
mod tests {
    use ringmark_record::units::{Bytes, Seconds};

    use super::*;

    /// A job of which a test tells the story, second by second.
    struct Story {
        judge: Judge,
        start: Instant,
        second: u64,
    }

    impl Story {
        fn new(hosts: &[&str]) -> Story {
            let start = Instant::now();
            let judge = Judge::new(hosts.len() as u32, Some(Duration::from_secs(60)), start);
            let mut story = Story { judge, start, second: 0 };
            for (rank, host) in hosts.iter().enumerate() {
                story.say(rank as u32, Event::Joined(0, (*host).to_owned(), 100));
            }
            story
        }

        fn now(&self) -> Instant {
            self.start + Duration::from_secs(self.second)
        }

        fn say(&mut self, rank: u32, event: Event) {
            let now = self.now();
            self.judge.hear(rank, event, now);
        }

        /// `seconds` pass, in which each of these ranks reports its place and uses so much of a processor.
        fn pass(&mut self, seconds: u64, places: &[(u32, u32, Phase, f64)]) {
            for _ in 0..seconds {
                self.second += 1;
                for (rank, iteration, phase, load) in places {
                    let processor_time = Seconds(self.second as f64 * load);
                    let memory = Bytes(8_000_000_000);
                    let waiting = [Phase::Joining, Phase::Ready, Phase::Finishing];
                    let heartbeat = Heartbeat {
                        iteration: *iteration,
                        phase: *phase,
                        is_waiting: matches!(phase, Phase::AllReduce { .. }) || waiting.contains(phase),
                        pieces: 0,
                        processor_time,
                        available_memory: memory,
                    };
                    self.say(*rank, Event::At(heartbeat));
                }
            }
        }

        fn verdict(&self) -> Option<String> {
            self.judge.verdict(self.now())
        }
    }

    const BUCKET: Phase = Phase::AllReduce { bucket: 2 };

    #[test]
    fn a_rank_that_is_stopped_is_named_and_those_that_wait_are_not() {
        let mut story = Story::new(&["a", "b", "a", "b"]);
        story.pass(
            10,
            &[(0, 7, Phase::Forward, 1.0), (1, 7, Phase::Forward, 1.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)],
        );
        story.pass(59, &[(0, 7, BUCKET, 0.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)]);
        assert_eq!(story.verdict(), None);
        story.pass(2, &[(0, 7, BUCKET, 0.0), (2, 7, BUCKET, 0.0), (3, 7, BUCKET, 0.0)]);
        assert_eq!(
            story.verdict().expect("it hangs"),
            "no progress for 60 s: rank 1 of 4 on host b (process 100) has not been heard for 61 s, last in iteration 7, \
             forward: it is stopped, or its host or link is down; ranks 0, 2-3 wait for it in iteration 7, all-reduce of \
             bucket 2 (if it is only slow, raise --stall-timeout)"
        );
    }

    #[test]
    fn a_host_that_falls_silent_is_named_as_a_host() {
        let mut story = Story::new(&["a", "a", "b", "b"]);
        story.pass(5, &[(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0), (2, 3, BUCKET, 0.0), (3, 3, BUCKET, 0.0)]);
        story.pass(60, &[(0, 3, BUCKET, 0.0), (1, 3, BUCKET, 0.0)]);
        let verdict = story.verdict().expect("it hangs");
        assert!(verdict.contains("host b with ranks 2-3 has not been heard for 60 s"), "{verdict}");
        assert!(verdict.contains("; ranks 0-1 wait for them in iteration 3, all-reduce of bucket 2 ("), "{verdict}");
    }

    #[test]
    fn ranks_that_all_wait_for_each_other_point_at_the_network() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(62, &[(0, 3, BUCKET, 1.0), (1, 3, BUCKET, 1.0)]);
        let verdict = story.verdict().expect("it hangs");
        assert!(
            verdict.contains("all 2 ranks wait for each other in iteration 3, all-reduce of bucket 2"),
            "{verdict}"
        );
        assert!(verdict.contains("between a, b"), "{verdict}");
    }

    #[test]
    fn a_rank_behind_the_others_is_the_one_that_hangs() {
        let mut story = Story::new(&["a", "b", "c"]);
        let early = Phase::AllReduce { bucket: 0 };
        story.pass(62, &[(0, 3, BUCKET, 0.0), (1, 3, early, 0.0), (2, 3, BUCKET, 0.0)]);
        let verdict = story.verdict().expect("it hangs");
        // It may be a victim of the network like the others: all of them wait.
        let words = "all 3 ranks wait for each other in iteration 3, all-reduce of bucket 0, rank 1 furthest behind: ";
        assert!(verdict.contains(words) && verdict.contains("the network between a, b, c"), "{verdict}");
    }

    #[test]
    fn a_long_phase_at_work_is_no_hang() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(600, &[(0, 1, BUCKET, 1.0), (1, 1, Phase::Forward, 0.9)]);
        assert_eq!(story.verdict(), None);
        // The same without work.
        story.pass(62, &[(0, 1, BUCKET, 1.0), (1, 1, Phase::Forward, 0.0)]);
        let verdict = story.verdict().expect("it hangs");
        assert!(
            verdict.contains("rank 1 of 2 on host b (process 100) does not come on in iteration 1, forward"),
            "{verdict}"
        );
    }

    #[test]
    fn a_slow_network_is_no_hang() {
        let mut story = Story::new(&["a", "b"]);
        for pieces in 0..300 {
            story.second += 1;
            for rank in [0, 1] {
                let (processor_time, available_memory) = (Seconds(0.0), Bytes(1 << 33));
                let (phase, is_waiting) = (BUCKET, true);
                let at = Heartbeat { iteration: 1, phase, is_waiting, pieces, processor_time, available_memory };
                story.say(rank, Event::At(at));
            }
        }
        assert_eq!(story.verdict(), None);
    }

    #[test]
    fn a_slow_start_gets_more_time_and_then_is_named() {
        let mut story = Story::new(&["a"]);
        story.judge.ranks = 2;
        story.pass(170, &[(0, 0, Phase::Joining, 1.0)]);
        assert_eq!(story.verdict(), None);
        story.pass(15, &[(0, 0, Phase::Joining, 1.0)]);
        let verdict = story.verdict().expect("it hangs");
        assert!(verdict.contains("rank 1 has never reported"), "{verdict}");
        assert!(verdict.contains("rank 0 waits for it in MPI's initialization"), "{verdict}");
    }

    #[test]
    fn ranks_that_cannot_report_are_alive_while_the_job_prints() {
        let mut story = Story::new(&[]);
        story.judge.ranks = 2;
        for _ in 0..400 {
            story.second += 1;
            let now = story.now();
            story.judge.output("Epoch[0] Batch[1]", now);
        }
        story.second += 1000;
        assert_eq!(story.verdict(), None);
        // One that is silent from the first line on was perhaps never started.
        let mut story = Story::new(&[]);
        story.judge.ranks = 2;
        story.second += 181;
        assert!(story.verdict().expect("it hangs").contains("rank 0 has never reported"));
    }

    #[test]
    fn a_stopped_rank_is_found_where_nobody_waits_for_it() {
        let mut story = Story::new(&["a", "b"]);
        for iteration in 1..=70 {
            story.pass(1, &[(0, iteration, Phase::Forward, 1.0)]);
        }
        assert_eq!(
            story.verdict().expect("it hangs"),
            "no progress for 60 s: rank 1 of 2 on host b (process 100) has not been heard for 70 s, last in its first \
             second: it is stopped, or its host or link is down (if it is only slow, raise --stall-timeout)"
        );
    }

    #[test]
    fn a_killed_rank_is_named_with_its_signal_and_place() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(3, &[(0, 2, BUCKET, 0.0), (1, 2, Phase::Forward, 1.0)]);
        story.say(1, Event::Left(0));
        // Its neighbour fails because of it, and says so first.
        story.say(0, Event::Failed("MPI_Allreduce returned 17".to_owned()));
        assert_eq!(story.verdict(), None);
        let now = story.now();
        story.judge.output("mpirun noticed that process rank 1 with PID 7 on node b exited on signal 9 (Killed).", now);
        let explanation = story.judge.explanation(story.now()).expect("it was told");
        assert!(
            explanation
                .starts_with("rank 1 of 2 on host b was killed by signal 9 (SIGKILL) in iteration 2, forward: by a"),
            "{explanation}"
        );
        story.second += 5;
        assert_eq!(story.verdict(), Some(explanation));
    }

    #[test]
    fn want_of_memory_is_said() {
        let mut story = Story::new(&["a"]);
        story.pass(1, &[(0, 2, Phase::Forward, 1.0)]);
        if let Some(at) = story.judge.known.get_mut(&0).and_then(|rank| rank.at.as_mut()) {
            at.available_memory = Bytes(120_000_000);
        }
        let now = story.now();
        story.judge.output("srun: error: a: task 0: Out Of Memory", now);
        let explanation = story.judge.explanation(story.now()).expect("it was told");
        assert!(
            explanation.contains("host a had 120 MB of memory left, choose a smaller --batch-size"),
            "{explanation}"
        );
    }

    #[test]
    fn a_rank_s_own_words_go_before_the_launcher_s() {
        let mut story = Story::new(&["a", "b"]);
        story.say(1, Event::Failed("no memory".to_owned()));
        story.say(1, Event::Left(0));
        story.say(0, Event::Left(0));
        let now = story.now();
        story.judge.output("srun: error: b: task 1: Exited with exit code 1", now);
        assert_eq!(story.judge.explanation(story.now()).as_deref(), Some("rank 1 of 2 on host b: no memory"));
        let mut story = Story::new(&["a", "b"]);
        story.pass(1, &[(1, 4, Phase::Optimizer, 1.0)]);
        story.say(1, Event::Left(0));
        let words = "rank 1 of 2 on host b died without a word in iteration 4, optimizer";
        assert_eq!(story.judge.explanation(story.now()).as_deref(), Some(words));
    }

    #[test]
    fn ranks_that_are_done_are_not_missed() {
        let mut story = Story::new(&["a", "b"]);
        for rank in [0, 1] {
            story.say(rank, Event::Done);
            story.say(rank, Event::Left(0));
        }
        story.second += 59;
        assert_eq!((story.verdict(), story.judge.explanation(story.now())), (None, None));
        story.second += 1;
        assert!(story.verdict().expect("mpirun hangs").contains("all ranks are done"));
    }

    #[test]
    fn a_slow_start_of_all_gets_more_time_whatever_they_wait_in() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(170, &[(0, 0, Phase::Joining, 1.0), (1, 0, Phase::Joining, 1.0)]);
        assert_eq!(story.verdict(), None);
        story.pass(15, &[(0, 0, Phase::Joining, 1.0), (1, 0, Phase::Joining, 1.0)]);
        assert!(story.verdict().expect("it hangs").contains("all 2 ranks wait for each other in MPI's initialization"));
    }

    #[test]
    fn a_driver_that_was_stopped_blames_nobody_for_it() {
        let mut story = Story::new(&["a", "b"]);
        story.pass(5, &[(0, 2, BUCKET, 0.0), (1, 2, Phase::Forward, 1.0)]);
        story.second += 500;
        story.judge.excuse(story.now());
        assert_eq!(story.verdict(), None);
    }

    #[test]
    fn a_rank_that_comes_back_on_another_connection_has_not_left() {
        let mut story = Story::new(&["a"]);
        story.pass(5, &[(0, 2, Phase::Forward, 1.0)]);
        story.say(0, Event::Left(0));
        story.say(0, Event::Joined(1, "a".to_owned(), 100));
        story.pass(6, &[(0, 3, Phase::Forward, 1.0)]);
        assert_eq!(story.verdict(), None);
        // The end of the first connection may be heard late.
        story.say(0, Event::Left(0));
        story.pass(6, &[(0, 4, Phase::Forward, 1.0)]);
        assert_eq!(story.verdict(), None);
        story.say(0, Event::Left(1));
        story.second += 6;
        assert!(story.verdict().expect("it died").contains("died without a word in iteration 4, forward"));
    }

    #[test]
    fn who_caused_the_end_is_told_from_who_was_ended() {
        // Slurm ends the others when one fails, and says so of one of them.
        let mut story = Story::new(&["a", "b"]);
        story.say(1, Event::Failed("no memory".to_owned()));
        story.second += 1;
        story.say(0, Event::Left(0));
        let now = story.now();
        story.judge.output("srun: error: a: task 0: Killed", now);
        assert_eq!(story.judge.explanation(now).as_deref(), Some("rank 1 of 2 on host b: no memory"));
        // A host that fell silent before others failed.
        let mut story = Story::new(&["a", "b"]);
        story.pass(1, &[(0, 2, BUCKET, 0.0), (1, 2, BUCKET, 0.0)]);
        story.pass(20, &[(0, 2, BUCKET, 0.0)]);
        story.say(0, Event::Failed("remote error".to_owned()));
        let words = story.judge.explanation(story.now()).expect("it failed");
        assert!(words.contains("remote error; rank 1 of 2 on host b has not been heard for 20 s"), "{words}");
        // A run that does not count: its record knows why.
        let mut story = Story::new(&["a"]);
        story.say(0, Event::Done);
        let now = story.now();
        story.judge.output("srun: error: a: task 0: Exited with exit code 1", now);
        assert_eq!(story.judge.explanation(now), None);
    }

    #[test]
    fn lists_of_ranks_are_short() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[0, 2, 3, 4, 9]), "ranks 0, 2-4, 9");
    }
}

//! Detects failed ranks and hangs from the ranks' reports. Reads no clock and no socket: every call receives the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::libc::SIGKILL;
use nix::sys::signal::Signal;
use ringmark_core::dimension::Seconds;
use ringmark_core::host::{MemoryShortage, OutOfMemory, OutOfMemoryCount, Stage};
use ringmark_core::progress::RankProgress;

use crate::launch::job::job_launch::ServerRanks;
use crate::launch::job::watch::hang::{Hang, MAX_NAMED, process_name};
use crate::launch::job::watch::listener::{Event, Joined};
use crate::launch::job::watch::rank::{Rank, RankEnd};
use crate::launch::job::watch::starter_output::{Cause, ProcessExit, StarterOutput, UnstartedHost};

/// Time that mpirun or srun has to report a rank's end and to end the other ranks before ringmark does.
const REPORT_GRACE: Duration = Duration::from_secs(5);

/// Factor for the stall limit outside the timed loop, which reads and writes files, perhaps on a slow disk.
const OUTSIDE_FACTOR: u32 = 3;

/// Available memory, in bytes, below which the out-of-memory killer is a plausible cause.
const LOW_MEMORY: u64 = 500_000_000;

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
    first_death: Option<ProcessExit>,
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
    pub fn reset_timers(&mut self, now: Instant) {
        (self.started, self.last_line) = (now, now);
        for rank in self.known.values_mut() {
            (rank.last_report, rank.last_progress) = (now, now);
        }
    }

    /// Records a rank's event.
    pub fn record_event(&mut self, rank: u32, event: Event, now: Instant) {
        if let Event::Joined(Joined { connection, host, process, out_of_memory }) = event.clone() {
            let interval = self.interval;
            let (at, last_report, last_progress, end) = (None, now, now, None);
            let new = Rank { host, process, out_of_memory, interval, connection, at, last_report, last_progress, end };
            let known = self.known.entry(rank).or_insert(new);
            known.connection = connection;
            // The network dropped the earlier connection; the rank is still alive.
            known.end.take_if(|(_, end)| matches!(end, RankEnd::Disconnected));
        }
        let Some(rank) = self.known.get_mut(&rank) else { return };
        match event {
            Event::Joined(..) => {}
            Event::Heartbeat(heartbeat) => rank.record_report(heartbeat, now),
            Event::Failed(failure) => rank.end(RankEnd::Failed(failure), now),
            Event::Done => rank.end(RankEnd::Done, now),
            Event::Disconnected(connection) if connection == rank.connection => rank.end(RankEnd::Disconnected, now),
            Event::Disconnected(_) => {}
        }
    }

    /// Records a line of the job's output.
    pub fn record_output(&mut self, line: &str, now: Instant) {
        (self.last_line, self.has_printed) = (now, true);
        if let Some(death) = self.starter_output.parse_line(line) {
            self.first_death.get_or_insert(death);
        }
    }

    /// Returns a killed rank and the files in which its host's kernel may have counted the kill, until
    /// [`record_kills`](Watchdog::record_kills) is called.
    pub fn killed_rank(&self) -> Option<(u32, Vec<String>)> {
        let Some(ProcessExit { rank, cause: Cause::Signal(SIGKILL) }) = &self.first_death else { return None };
        let OutOfMemory { host, group, .. } = &self.known.get(rank)?.out_of_memory;
        let files: Vec<String> = [host, group].into_iter().flatten().map(|count| count.file.clone()).collect();
        (self.out_of_memory.is_none() && !files.is_empty()).then_some((*rank, files))
    }

    /// Records the current content of those files, in lines `FILE:oom_kill N`.
    pub fn record_kills(&mut self, text: &str) {
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

    /// Returns why the job must be ended: a rank exited and mpirun or srun does nothing, or there is no progress.
    pub fn verdict(&self, now: Instant) -> Option<String> {
        let is_overdue = |rank: &Rank| match &rank.end {
            Some((time, RankEnd::Failed(_) | RankEnd::Disconnected)) => now - *time >= REPORT_GRACE,
            _ => false,
        };
        // Once ranks gather the results, each of them waits for every other.
        let is_needed = |number: u32, rank: &Rank| {
            !self.may_lose_ranks || number >= self.ranks - self.servers || rank.is_gathering_results()
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
    pub fn first_disconnected(&self) -> Option<u32> {
        self.first_end(|end| matches!(end, RankEnd::Disconnected)).map(|(_, number)| number)
    }

    /// Returns the first end that `wanted` accepts, and its rank.
    fn first_end(&self, wanted: fn(&RankEnd) -> bool) -> Option<(&(Instant, RankEnd), u32)> {
        let ends = self.known.iter().filter_map(|(number, rank)| Some((rank.end.as_ref()?, *number)));
        ends.filter(|((_, end), _)| wanted(end)).min_by_key(|((time, _), number)| (*time, *number))
    }

    /// Returns the cause of death of `rank` if mpirun or srun reported it as the first.
    pub fn describe_death(&self, rank: u32) -> Option<String> {
        match &self.first_death {
            Some(ProcessExit { rank: first, cause: Cause::Signal(signal) }) if *first == rank => {
                Some(self.killed(rank, *signal))
            }
            _ => None,
        }
    }

    /// Returns the processes that caused the failure or the hang, as far as the reports show it.
    pub fn culprits(&self, now: Instant) -> Vec<u32> {
        match self.failure(now) {
            // A rank that fails because it lost another one reports it; the other is silent.
            Some((Some(number), _)) if self.has_failed(number) => {
                vec![self.silent_rank(now).map_or(number, |(silent, _)| silent)]
            }
            Some((number, _)) => number.into_iter().collect(),
            None => self.find_hang(now).map(|hang| hang.culprits()).unwrap_or_default(),
        }
    }

    /// Returns true if the process reported an error before it exited.
    pub fn has_failed(&self, number: u32) -> bool {
        let end = self.known.get(&number).and_then(|rank| rank.end.as_ref());
        matches!(end, Some((_, RankEnd::Failed(_))))
    }

    /// Describes the first failure or death for the user.
    pub fn explanation(&self, now: Instant) -> Option<String> {
        self.failure(now).map(|(_, text)| text)
    }

    /// Returns the process that failed or died first, if known, and a description for the user.
    fn failure(&self, now: Instant) -> Option<(Option<u32>, String)> {
        // The ranks on the other hosts are ended because of it.
        if let Some(host) = self.unstarted_host() {
            return Some((None, host.description().to_owned()));
        }
        // A rank's own report of its failure is more precise than that of mpirun or srun, which only sees the exit
        // status. A rank ended by a signal sends no report; ranks that report a failure later failed because of it, and
        // ranks that reported one earlier caused it.
        let failed = self.first_end(|end| matches!(end, RankEnd::Failed(_)));
        let ended = |number: &u32| self.known.get(number).and_then(|rank| rank.end.as_ref());
        let is_first = |number: &u32| match (ended(number), failed) {
            (Some((time, RankEnd::Disconnected)), Some(((failed, _), _))) => time <= failed,
            (_, failed) => failed.is_none(),
        };
        match (&self.first_death, failed) {
            (Some(ProcessExit { rank, cause: Cause::Signal(signal) }), _) if is_first(rank) => {
                Some((Some(*rank), self.killed(*rank, *signal)))
            }
            (Some(ProcessExit { rank, cause: Cause::OutOfMemory }), _) if is_first(rank) => {
                let (name, place) = (self.name(*rank), self.last_position(*rank));
                let text = format!(
                    "{name} was killed by signal 9 (SIGKILL){place}: memory limit of the Slurm job exceeded: choose \
                     a smaller --batch-size or fewer ranks per host, or request more memory (--mem)"
                );
                Some((Some(*rank), text))
            }
            (_, Some(((_, RankEnd::Failed(failure)), number))) => {
                let silent = self.silent_ranks(now).map(|text| format!("; {text}")).unwrap_or_default();
                Some((Some(number), format!("{}: {}{silent}", self.name(number), failure.reason)))
            }
            // After a run that does not count, all ranks are done, and the record contains the reason.
            (Some(ProcessExit { rank, cause: Cause::Exit(status) }), _)
                if !matches!(ended(rank), Some((_, RankEnd::Done))) =>
            {
                let text = format!("{} exited with status {status}{}", self.name(*rank), self.last_position(*rank));
                Some((Some(*rank), text))
            }
            _ => {
                let Some(number) = self.first_disconnected() else {
                    return self.starter_output.session_failure().map(|text| (None, text));
                };
                let place = self.last_position(number);
                Some((Some(number), format!("{} exited without an error message{place}", self.name(number))))
            }
        }
    }

    /// Returns the host on which the scheduler could not start the job.
    pub fn unstarted_host(&self) -> Option<&UnstartedHost> {
        self.starter_output.unstarted()
    }

    /// Returns true if a rank reported why it failed, or was killed.
    pub fn has_reason(&self) -> bool {
        let is_killed =
            matches!(&self.first_death, Some(ProcessExit { cause: Cause::Signal(_) | Cause::OutOfMemory, .. }));
        is_killed || self.first_end(|end| matches!(end, RankEnd::Failed(_))).is_some()
    }

    /// Returns the memory shortage of the first rank that failed, if its device ran out of memory.
    pub fn shortage(&self) -> Option<MemoryShortage> {
        match self.first_end(|end| matches!(end, RankEnd::Failed(_)))? {
            ((_, RankEnd::Failed(failure)), _) => failure.shortage,
            _ => None,
        }
    }

    /// Describes a rank that has gone silent after others failed: its host may have caused their failure.
    fn silent_ranks(&self, now: Instant) -> Option<String> {
        let (number, rank) = self.silent_rank(now)?;
        let silence = (now - rank.last_report).as_secs();
        Some(format!("{} has not reported for {silence} s: its host or link may be down", self.name(number)))
    }

    fn silent_rank(&self, now: Instant) -> Option<(u32, &Rank)> {
        let is_silent = |rank: &&Rank| rank.end.is_none() && rank.is_silent(now);
        self.known.iter().map(|(number, rank)| (*number, rank)).find(|(_, rank)| is_silent(rank))
    }

    fn killed(&self, number: u32, signal: i32) -> String {
        let (name, place) = (self.name(number), self.last_position(number));
        let signal_name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
        let mut text = format!("{name} was killed by signal {signal} ({signal_name}){place}");
        if let (SIGKILL, Some(Rank { host, at, .. })) = (signal, self.known.get(&number)) {
            let left = at.map_or(u64::MAX, |at| at.available_memory.0);
            let has_grown = |count: Option<&OutOfMemoryCount>| count.is_some_and(|count| count.kills > 0);
            let OutOfMemory { host: of_host, group, limit } = self.out_of_memory.clone().unwrap_or_default();
            text += &if has_grown(group.as_ref()) {
                let limit = limit.map_or_else(String::new, |limit| format!(" of {} MB", limit.0 / 1_000_000));
                format!(
                    ": memory limit{limit} of the control group on host {host} exceeded: choose a smaller \
                     --batch-size or fewer ranks per host, or raise the limit"
                )
            } else if has_grown(of_host.as_ref()) {
                format!(": host {host} ran out of memory: choose a smaller --batch-size or fewer ranks per host")
            } else if left < LOW_MEMORY {
                let left = left / 1_000_000;
                format!(
                    ": host {host} had {left} MB of memory left: choose a smaller --batch-size or fewer ranks per host"
                )
            } else {
                format!(": sent by a user, a job limit or the out-of-memory killer (see dmesg on {host})")
            };
        }
        text
    }

    /// Returns the position of the rank that is furthest behind.
    pub fn slowest_position(&self) -> Option<(u32, Stage)> {
        self.known.values().filter_map(Rank::position).min()
    }

    /// Returns the progress of each rank that has reported, servers last.
    pub fn ranks(&self, now: Instant) -> Vec<RankProgress> {
        let first_server = self.ranks - self.servers;
        let progress = |(number, rank): (&u32, &Rank)| rank.progress(*number, first_server, now);
        self.known.iter().map(progress).collect()
    }

    /// Describes the position of every rank, up to a limit.
    pub fn describe_positions(&self) -> String {
        if self.known.is_empty() {
            return "no rank has reported".to_owned();
        }
        let mut places: Vec<String> = self
            .known
            .iter()
            .take(MAX_NAMED)
            .map(|(number, rank)| format!("rank {number} on host {} is in {}", rank.host, rank.describe_position()))
            .collect();
        if self.known.len() > MAX_NAMED {
            places.push(format!("and {} more", self.known.len() - MAX_NAMED));
        }
        places.join("; ")
    }

    /// Describes which ranks hang and which wait for them, if there has been no progress for too long.
    fn hang(&self, now: Instant) -> Option<String> {
        let limit = self.limit?;
        if self.known.len() == self.ranks as usize && self.live().next().is_none() {
            let last = self.known.values().filter_map(|rank| Some(rank.end.as_ref()?.0)).max()?;
            let reason = "all ranks are done, but mpirun or srun does not exit: a host or its link may be down";
            return (now - last >= limit).then(|| format!("no progress for {} s: {reason}", (now - last).as_secs()));
        }
        let hang = self.find_hang(now)?;
        let (time, description) = (hang.time.as_secs(), hang.describe());
        Some(format!("no progress for {time} s: {description} (if the job is only slow, raise --stall-timeout)"))
    }

    /// Returns the processes that have not ended.
    fn live(&self) -> impl Iterator<Item = (&u32, &Rank)> {
        self.known.iter().filter(|(_, rank)| rank.end.is_none())
    }

    /// Returns the state of the ranks if there has been no progress for too long.
    fn find_hang(&self, now: Instant) -> Option<Hang<'_>> {
        let limit = self.limit?;
        let live = || self.live();
        let is_complete = self.known.len() == self.ranks as usize;
        if self.known.is_empty() && self.has_printed {
            // No rank can connect, so that the output is all that is known of them.
            return None;
        }
        // A rank that cannot connect may still make progress, and then the job prints something.
        let printed = if is_complete { self.started } else { self.last_line };
        let moved = live().map(|(_, rank)| rank.last_progress).fold(self.started.max(printed), Instant::max);
        let is_outside = |rank: &Rank| rank.at.is_none_or(|at| at.is_outside_loop());
        let stall_limit = if live().all(|(_, rank)| is_outside(rank)) { limit * OUTSIDE_FACTOR } else { limit };
        // Without communication, no rank waits for one that has stopped, so each rank is checked on its own.
        let is_lost = |rank: &Rank| now - rank.last_report >= stall_limit;
        if now - moved < stall_limit && !live().any(|(_, rank)| is_lost(rank)) {
            return None;
        }
        let live: BTreeMap<u32, &Rank> = live().map(|(number, rank)| (*number, rank)).collect();
        let unconnected: Vec<u32> = (0..self.ranks).filter(|number| !self.known.contains_key(number)).collect();
        let time = (now - moved).max(stall_limit);
        Some(Hang { ranks: self.ranks, servers: self.servers, live, unconnected, stall_limit, time, now })
    }

    /// Returns the name of a process: `rank 3 of 8 on host b`. If it has not reported, mpirun or srun may have named its
    /// host.
    fn name(&self, number: u32) -> String {
        let reported = self.known.get(&number).map(|rank| rank.host.as_str());
        process_name(number, self.ranks, self.servers, reported.or_else(|| self.starter_output.host_of(number)))
    }

    fn last_position(&self, number: u32) -> String {
        let place = self.known.get(&number).filter(|rank| rank.at.is_some()).map(Rank::describe_position);
        place.map_or_else(String::new, |place| format!(" in {place}"))
    }
}

#[cfg(test)]
mod tests;

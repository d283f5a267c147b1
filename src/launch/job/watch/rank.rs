//! State of one rank: its last report, its last progress, and how it ended. Does not read the clock: every call is
//! given the time.

use std::time::{Duration, Instant};

use ringmark_core::dimension::Seconds;
use ringmark_core::host::heartbeat;
use ringmark_core::host::{Heartbeat, OutOfMemory, Stage};
use ringmark_core::progress::RankProgress;

use crate::launch::job::watch::listener::RankFailure;

/// Share of a processor that a working rank uses at least. On the CPU a phase may last longer than any timeout, and
/// many ranks may share a core. A rank that is stopped or waits for its device uses less.
const MIN_WORKING_LOAD: f64 = 0.05;

pub struct Rank {
    pub host: String,
    /// Process ID on its host.
    pub process: u32,
    /// Number of out-of-memory events before the rank started.
    pub out_of_memory: OutOfMemory,
    /// Interval between two of its reports.
    pub interval: Seconds,
    /// Number of its last connection.
    pub connection: u64,
    pub at: Option<Heartbeat>,
    /// Time of its last report.
    pub last_report: Instant,
    /// Time of its last progress: another position, another chunk, or work on the processor.
    pub last_progress: Instant,
    /// When and how it ended.
    pub end: Option<(Instant, RankEnd)>,
}

/// Outcome of a rank.
pub enum RankEnd {
    /// It reported that it ends the job, and why.
    Failed(RankFailure),
    /// It completed its work.
    Done,
    /// Its connection closed.
    Disconnected,
}

impl Rank {
    /// Records its next report.
    pub fn record_report(&mut self, next: Heartbeat, now: Instant) {
        let has_moved = self.at.is_none_or(|last| {
            let work = next.processor_time.0 - last.processor_time.0;
            let time = (now - self.last_report).as_secs_f64();
            let works = !next.is_waiting && work >= MIN_WORKING_LOAD * time.max(self.interval.0 / 2.0);
            works || (next.iteration, next.stage, next.chunks) != (last.iteration, last.stage, last.chunks)
        });
        if has_moved {
            self.last_progress = now;
        }
        self.last_report = now;
        self.at = Some(next);
    }

    /// Records how it ended. Only the first call counts: a rank that failed disconnects as well.
    pub fn end(&mut self, end: RankEnd, now: Instant) {
        self.end.get_or_insert((now, end));
    }

    /// Returns true if it has missed its reports.
    pub fn is_silent(&self, now: Instant) -> bool {
        (now - self.last_report).as_secs_f64() > heartbeat::silence(self.interval).0
    }

    /// Returns true if it reports that it waits for other ranks.
    pub fn reports_waiting(&self, now: Instant) -> bool {
        !self.is_silent(now) && self.at.is_some_and(|at| at.is_waiting)
    }

    /// Returns true if its last report was from the exchange of results at the end.
    pub fn is_gathering_results(&self) -> bool {
        self.at.is_some_and(|at| at.stage == Stage::Finishing)
    }

    /// Returns its iteration and stage.
    pub fn position(&self) -> Option<(u32, Stage)> {
        self.at.map(|at| (at.iteration, at.stage))
    }

    /// Returns its progress as process `number`; processes from `first_server` on are servers.
    pub fn progress(&self, number: u32, first_server: u32, now: Instant) -> RankProgress {
        let stage = match &self.end {
            Some((_, RankEnd::Failed(_))) => "failed".to_owned(),
            Some((_, RankEnd::Done)) => "done".to_owned(),
            Some((_, RankEnd::Disconnected)) => "gone".to_owned(),
            None => self.at.map_or_else(|| "started".to_owned(), |at| at.stage.name()),
        };
        let since_report = if self.end.is_some() { Duration::ZERO } else { now - self.last_report };
        RankProgress {
            rank: number.checked_sub(first_server).unwrap_or(number),
            is_server: number >= first_server,
            host: self.host.clone(),
            iteration: self.at.map_or(0, |at| at.iteration),
            stage,
            is_waiting: self.end.is_none() && self.at.is_some_and(|at| at.is_waiting),
            step: self.at.and_then(|at| at.step),
            before_allreduce: self.at.and_then(|at| at.before_allreduce),
            since_report: Seconds(since_report.as_secs_f64()),
            available_memory: self.at.map(|at| at.available_memory),
        }
    }

    /// Describes its position for messages.
    pub fn describe_position(&self) -> String {
        match self.at {
            None => "its first second".to_owned(),
            Some(at) if at.iteration == 0 => at.stage.to_string(),
            Some(at) => format!("iteration {}, {}", at.iteration, at.stage),
        }
    }
}

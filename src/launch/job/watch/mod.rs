//! Watches a job while it runs: the position of each rank, crashed ranks and their errors, and hangs.
//! [`process`](crate::launch::job::process) ends the job.
//!
//! | module | purpose |
//! |---|---|
//! | `listener` | connections of the ranks |
//! | `starter_output` | messages of mpirun or srun about a rank's end |
//! | `rank` | state of one rank |
//! | `watchdog` | detection of failed ranks and hangs; pure, the time is passed in |
//! | `hang` | description of a hang: stuck and waiting ranks |

mod hang;
mod listener;
mod rank;
mod starter_output;
mod watchdog;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ringmark_core::dimension::Seconds;
use ringmark_core::host::heartbeat::INTERVAL;
use ringmark_core::host::{LauncherAddress, MemoryShortage, Stage};
use ringmark_core::progress::RankProgress;

use crate::launch::job::job_launch::ServerRanks;
use crate::launch::job::watch::listener::{EVENT_CAPACITY, HeartbeatListener, raise_descriptor_limit};
pub use crate::launch::job::watch::starter_output::UnstartedHost;
use crate::launch::job::watch::watchdog::Watchdog;

/// Time for which a rank tries to reach the launcher if there is no stall timeout.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Gap between two checks after which this program is assumed to have been stopped; normally only the writing of a line
/// lies between them.
const MAX_CHECK_GAP: Duration = Duration::from_secs(2);

/// Interval between two checks of every rank, as a fraction of the time by which the reporting interval exceeds that of
/// a small job.
const CHECK_FRACTION: f64 = 1.0 / 16.0;

/// Runs a command on the host of a rank and returns its output; `None` if that is not possible.
pub type HostQuery<'a> = &'a dyn Fn(u32, &[&str]) -> Option<String>;

/// Positions of the ranks of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedRanks {
    /// Position of the rank that is furthest behind; `None` before any has reported.
    pub place: Option<(u32, Stage)>,
    /// Time between two reports of a rank.
    pub interval: Seconds,
    /// Each rank that has reported, servers last.
    pub ranks: Vec<RankProgress>,
}

impl WatchedRanks {
    /// Returns the state before any rank has reported.
    pub fn none() -> WatchedRanks {
        WatchedRanks { place: None, interval: INTERVAL, ranks: Vec::new() }
    }
}

/// Monitor of one job.
pub struct Watch<'a> {
    query: HostQuery<'a>,
    listener: HeartbeatListener,
    watchdog: Watchdog,
    /// Time of the latest check.
    last_check: Instant,
    /// Time of the latest check of every rank.
    last_full_check: Option<Instant>,
    /// Rank for which the job has to be ended, if its cause of death was still unknown.
    lost_rank: Option<u32>,
    /// Processes that caused the end of the job.
    culprits: Vec<u32>,
    /// Reason why not all ranks can be watched.
    limitation: Option<String>,
}

impl<'a> Watch<'a> {
    /// Listens for `ranks` ranks and their servers, which reach this machine at `addresses`; empty if all of them run
    /// on this machine. A job without any progress for `stall_timeout` hangs. `query` queries their hosts for the cause
    /// of a failure.
    pub fn open(
        ranks: u32,
        servers: &ServerRanks,
        addresses: &[IpAddr],
        stall_timeout: Option<Duration>,
        query: HostQuery<'a>,
    ) -> anyhow::Result<Watch<'a>> {
        let patience = Seconds(stall_timeout.unwrap_or(DEFAULT_CONNECT_TIMEOUT).as_secs_f64());
        let now = Instant::now();
        let limitation = raise_descriptor_limit(ranks + servers.number).map(|limit| {
            format!(
                "limit of {limit} open files is too low for connections to {} ranks, so some ranks are not \
                 monitored: raise the limit (ulimit -Hn, LimitNOFILE=)",
                ranks + servers.number
            )
        });
        let listener = HeartbeatListener::open(ranks + servers.number, addresses, patience)?;
        let interval = listener.address().interval;
        let watchdog = Watchdog::new(ranks, servers, stall_timeout, interval, now);
        let (culprits, lost_rank) = (Vec::new(), None);
        Ok(Watch { query, listener, watchdog, last_check: now, last_full_check: None, lost_rank, culprits, limitation })
    }

    /// Returns the address and token that the ranks need to connect.
    pub fn address(&self) -> &LauncherAddress {
        self.listener.address()
    }

    /// Returns the interval between checks of every rank: 0 for a job whose ranks report every second, and 0.9 s for
    /// one whose ranks report every 16 s.
    pub fn check_interval(&self) -> Duration {
        Duration::from_secs_f64((self.address().interval.0 - INTERVAL.0) * CHECK_FRACTION)
    }

    /// Returns the reason why not all ranks can be watched, if there is one.
    pub fn limitation(&self) -> Option<&str> {
        self.limitation.as_deref()
    }

    /// Records the next line of the job's output.
    pub fn line(&mut self, line: &str) {
        self.watchdog.record_output(line, Instant::now());
    }

    /// Returns the reason if the job has to be ended now.
    pub fn verdict(&mut self) -> Option<String> {
        let now = Instant::now();
        if now - self.last_check > MAX_CHECK_GAP {
            // This program was stopped: reports that arrived in the meantime are still unread.
            self.watchdog.reset_timers(now);
        }
        self.last_check = now;
        self.receive_events();
        // A large job, whose ranks report less often, is not checked for every line that it prints.
        if self.last_full_check.is_some_and(|judged| now - judged < self.check_interval()) {
            return None;
        }
        self.last_full_check = Some(now);
        self.watchdog.verdict(now)?;
        self.check_out_of_memory();
        self.lost_rank = self.watchdog.first_disconnected();
        // Once the job is being ended, its ranks are no longer at fault.
        self.culprits = self.watchdog.culprits(now);
        self.watchdog.verdict(now)
    }

    /// Returns the final reason for ending the job, given the `verdict`: on a busy host, mpirun may report the cause of
    /// a rank's death only while it ends the others.
    pub fn final_reason(&mut self, verdict: String) -> String {
        let Some(lost) = self.lost_rank else { return verdict };
        self.check_out_of_memory();
        self.watchdog.describe_death(lost).unwrap_or(verdict)
    }

    /// Returns which rank failed first and why, for a job that failed by itself; `None` if no rank reported a failure
    /// and none was seen.
    pub fn explanation(&mut self) -> Option<String> {
        self.receive_events();
        self.check_out_of_memory();
        let now = Instant::now();
        self.culprits = self.watchdog.culprits(now);
        self.watchdog.explanation(now)
    }

    /// Returns the processes that caused a failure, after [`verdict`](Watch::verdict) or
    /// [`explanation`](Watch::explanation) has returned one; empty if none can be named.
    pub fn culprits(&self) -> &[u32] {
        &self.culprits
    }

    /// Returns true if one of the [`culprits`](Watch::culprits) reported an error before it exited.
    pub fn is_own_error(&self) -> bool {
        self.culprits.iter().any(|process| self.watchdog.has_failed(*process))
    }

    /// Returns the name of the host on which the scheduler could not start the job.
    pub fn unstarted_host(&self) -> Option<&str> {
        self.watchdog.unstarted_host().map(|host| &host.name[..])
    }

    /// Returns true if a rank reported why it failed, or was killed.
    pub fn has_reason(&self) -> bool {
        self.watchdog.has_reason()
    }

    /// Returns the memory shortage of the rank that failed first, if its device ran out of memory.
    pub fn shortage(&self) -> Option<MemoryShortage> {
        self.watchdog.shortage()
    }

    /// Queries the host of a killed rank for the kernel's counts, because mpirun reports only the signal.
    fn check_out_of_memory(&mut self) {
        if let Some((rank, files)) = self.watchdog.killed_rank() {
            let mut line = vec!["grep", "-sH", "^oom_kill "];
            line.extend(files.iter().map(String::as_str));
            self.watchdog.record_kills(&(self.query)(rank, &line).unwrap_or_default());
        }
    }

    /// Returns the positions of the ranks.
    pub fn ranks(&self) -> WatchedRanks {
        let interval = self.address().interval;
        WatchedRanks { place: self.watchdog.slowest_position(), interval, ranks: self.watchdog.ranks(Instant::now()) }
    }

    /// Describes where the ranks are, for a job that takes too long.
    pub fn describe_positions(&mut self) -> String {
        self.receive_events();
        self.watchdog.describe_positions()
    }

    fn receive_events(&mut self) {
        // Bounded, so that a flood of events cannot keep the job from being checked.
        for (rank, event) in std::iter::from_fn(|| self.listener.next_event()).take(EVENT_CAPACITY) {
            self.watchdog.record_event(rank, event, Instant::now());
        }
    }
}

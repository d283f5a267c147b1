//! Watches a job while it runs: where each rank is, which rank died and of what, and whether the job hangs. Not for
//! ending it: that is [`process`](crate::launch::job::process)'s.
//!
//! | module | what it is for |
//! |---|---|
//! | `listener` | the ranks' connections |
//! | `starter_output` | what mpirun or srun says of a rank's end |
//! | `rank` | what is known of one rank |
//! | `watchdog` | which rank died, and whether the job hangs; pure, but for the clock that it is given |
//! | `hang` | who hangs, and who waits for them |

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

use crate::launch::job::request::ServerRanks;
use crate::launch::job::watch::listener::{Listener, WAITING_EVENTS, raise_descriptor_limit};
use crate::launch::job::watch::watchdog::Watchdog;

/// How long a rank looks for a launcher that never gives up on it.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Between two looks there is no more than the writing of a line; after so long something else was between them.
const ABSENCE: Duration = Duration::from_secs(2);

/// Looks at every rank, as a part of the time by which its reports are further apart than of a small job.
const LOOKS_IN_INTERVAL: f64 = 1.0 / 16.0;

/// What a command prints on the host of a rank; `None` where it cannot be asked.
pub type Ask<'a> = &'a dyn Fn(u32, &[&str]) -> Option<String>;

/// Places of the ranks of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedRanks {
    /// Place of the rank that is furthest behind; `None` before any has reported.
    pub place: Option<(u32, Stage)>,
    /// Between two reports of a rank.
    pub interval: Seconds,
    /// Each rank that has reported, servers last.
    pub ranks: Vec<RankProgress>,
}

impl WatchedRanks {
    /// Before any has reported.
    pub fn none() -> WatchedRanks {
        WatchedRanks { place: None, interval: INTERVAL, ranks: Vec::new() }
    }
}

/// The eyes on one job.
pub struct Watch<'a> {
    ask: Ask<'a>,
    listener: Listener,
    watchdog: Watchdog,
    /// When it was last looked.
    looked: Instant,
    /// When every rank was last judged.
    judged: Option<Instant>,
    /// The rank that the job has to be ended for, of whose death nothing was known yet.
    lost: Option<u32>,
    /// Why not all ranks can be watched.
    lack: Option<String>,
}

impl<'a> Watch<'a> {
    /// Listens for `ranks` ranks and their servers, which reach this machine at `addresses`; none where all of them run on it. A job without
    /// any progress for `stall_timeout` hangs. `ask` is how their hosts are asked of what has happened to them.
    pub fn open(
        ranks: u32,
        servers: &ServerRanks,
        addresses: &[IpAddr],
        stall_timeout: Option<Duration>,
        ask: Ask<'a>,
    ) -> anyhow::Result<Watch<'a>> {
        let patience = Seconds(stall_timeout.unwrap_or(PATIENCE).as_secs_f64());
        let now = Instant::now();
        let lack = raise_descriptor_limit(ranks + servers.number).map(|limit| {
            format!(
                "this machine lets a program open {limit} files, and each of {} ranks has a connection: a hang of the \
                 others will not be named: raise the limit (ulimit -Hn, LimitNOFILE=)",
                ranks + servers.number
            )
        });
        let listener = Listener::open(ranks + servers.number, addresses, patience)?;
        let interval = listener.address().interval;
        let watchdog = Watchdog::new(ranks, servers, stall_timeout, interval, now);
        Ok(Watch { ask, listener, watchdog, looked: now, judged: None, lost: None, lack })
    }

    /// What the ranks need to reach us.
    pub fn address(&self) -> &LauncherAddress {
        self.listener.address()
    }

    /// Time after which every rank is looked at again: nothing of a job whose ranks report every second, and 0.9 s of one
    /// whose ranks report every 16 s.
    pub fn interval_of_looks(&self) -> Duration {
        Duration::from_secs_f64((self.address().interval.0 - INTERVAL.0) * LOOKS_IN_INTERVAL)
    }

    /// Why not all ranks can be watched, if so.
    pub fn lack(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// Takes the next line of the job's output.
    pub fn line(&mut self, line: &str) {
        self.watchdog.output(line, Instant::now());
    }

    /// Why the job has to be ended now, where it has.
    pub fn verdict(&mut self) -> Option<String> {
        let now = Instant::now();
        if now - self.looked > ABSENCE {
            // This program was stopped: reports that came meanwhile are not read yet.
            self.watchdog.restart_silences(now);
        }
        self.looked = now;
        self.hear();
        // Of a large job, whose ranks report less often, not with every line that it prints.
        if self.judged.is_some_and(|judged| now - judged < self.interval_of_looks()) {
            return None;
        }
        self.judged = Some(now);
        self.watchdog.verdict(now)?;
        self.check_out_of_memory();
        self.lost = self.watchdog.first_lost();
        self.watchdog.verdict(now)
    }

    /// Why the job was ended, for the `verdict` that it was ended for: on a busy host mpirun may say of what a rank died only
    /// while it ends the others.
    pub fn last_word(&mut self, verdict: String) -> String {
        let Some(lost) = self.lost else { return verdict };
        self.check_out_of_memory();
        self.watchdog.death_of(lost).unwrap_or(verdict)
    }

    /// Which rank failed first and why, of a job that failed by itself; `None` where no rank said and none was seen.
    pub fn explanation(&mut self) -> Option<String> {
        self.hear();
        self.check_out_of_memory();
        self.watchdog.explanation(Instant::now())
    }

    /// Returns true if a rank reported why it failed, or was killed.
    pub fn has_reason(&self) -> bool {
        self.watchdog.has_reason()
    }

    /// What the rank that failed first had of its device's memory, where it failed because that is not enough.
    pub fn shortage(&self) -> Option<MemoryShortage> {
        self.watchdog.shortage()
    }

    /// Asks the host of a killed rank for the kernel's counts: mpirun reports no more than the signal.
    fn check_out_of_memory(&mut self) {
        if let Some((rank, files)) = self.watchdog.killed_rank() {
            let mut line = vec!["grep", "-sH", "^oom_kill "];
            line.extend(files.iter().map(String::as_str));
            self.watchdog.counted(&(self.ask)(rank, &line).unwrap_or_default());
        }
    }

    /// Returns the places of the ranks.
    pub fn ranks(&self) -> WatchedRanks {
        let interval = self.address().interval;
        WatchedRanks { place: self.watchdog.place(), interval, ranks: self.watchdog.ranks(Instant::now()) }
    }

    /// Where the ranks are, for a job that takes too long.
    pub fn whereabouts(&mut self) -> String {
        self.hear();
        self.watchdog.whereabouts()
    }

    fn hear(&mut self) {
        // Not without end: there is a job to look after.
        for (rank, event) in std::iter::from_fn(|| self.listener.heard()).take(WAITING_EVENTS) {
            self.watchdog.hear(rank, event, Instant::now());
        }
    }
}

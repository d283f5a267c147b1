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

use ringmark_record::dimension::units::Seconds;
use ringmark_record::host::heartbeat::{LauncherAddress, Stage};
use ringmark_record::host::memory_shortage::MemoryShortage;
use ringmark_record::progress::RankProgress;

use crate::launch::job::request::ServerRanks;
use crate::launch::job::watch::listener::{Listener, WAITING_EVENTS};
use crate::launch::job::watch::watchdog::Watchdog;

/// How long a rank looks for a launcher that never gives up on it.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Between two looks there is no more than the writing of a line; after so long something else was between them.
const ABSENCE: Duration = Duration::from_secs(2);

/// What a command prints on the host of a rank; `None` where it cannot be asked.
pub type Ask<'a> = &'a dyn Fn(u32, &[&str]) -> Option<String>;

/// The eyes on one job.
pub struct Watch<'a> {
    ask: Ask<'a>,
    listener: Listener,
    watchdog: Watchdog,
    /// When it was last looked.
    looked: Instant,
    /// The rank that the job has to be ended for, of whose death nothing was known yet.
    lost: Option<u32>,
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
        let listener = Listener::open(ranks + servers.number, addresses, patience)?;
        let watchdog = Watchdog::with_servers(ranks, servers, stall_timeout, now);
        Ok(Watch { ask, listener, watchdog, looked: now, lost: None })
    }

    /// What the ranks need to reach us.
    pub fn address(&self) -> &LauncherAddress {
        self.listener.address()
    }

    /// Takes the next line of the job's output.
    pub fn line(&mut self, line: &str) {
        self.watchdog.output(line, Instant::now());
    }

    /// Why the job has to be ended now, where it has.
    pub fn verdict(&mut self) -> Option<String> {
        let now = Instant::now();
        if now - self.looked > ABSENCE {
            // This program was stopped: what was said meanwhile is not heard yet.
            self.watchdog.excuse(now);
        }
        self.looked = now;
        self.hear();
        self.watchdog.verdict(now)?;
        self.look_for_want_of_memory();
        self.lost = self.watchdog.first_lost();
        self.watchdog.verdict(now)
    }

    /// Why the job was ended, for the `verdict` that it was ended for: on a busy host mpirun may say of what a rank died only
    /// while it ends the others.
    pub fn last_word(&mut self, verdict: String) -> String {
        let Some(lost) = self.lost else { return verdict };
        self.look_for_want_of_memory();
        self.watchdog.death_of(lost).unwrap_or(verdict)
    }

    /// Which rank failed first and why, of a job that failed by itself; `None` where no rank said and none was seen.
    pub fn explanation(&mut self) -> Option<String> {
        self.hear();
        self.look_for_want_of_memory();
        self.watchdog.explanation(Instant::now())
    }

    /// What the rank that failed first had of its device's memory, where it failed because that is not enough.
    pub fn shortage(&self) -> Option<MemoryShortage> {
        self.watchdog.shortage()
    }

    /// A rank that the kernel ends cannot say so, and mpirun knows no more than the signal.
    fn look_for_want_of_memory(&mut self) {
        if let Some((rank, files)) = self.watchdog.killed_rank() {
            let mut line = vec!["grep", "-sH", "^oom_kill "];
            line.extend(files.iter().map(String::as_str));
            self.watchdog.counted(&(self.ask)(rank, &line).unwrap_or_default());
        }
    }

    /// Where the rank is that is furthest behind, for whom the others wait; `None` before any has said.
    pub fn place(&self) -> Option<(u32, Stage)> {
        self.watchdog.place()
    }

    /// Each rank that has reported, servers last.
    pub fn ranks(&self) -> Vec<RankProgress> {
        self.watchdog.ranks(Instant::now())
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

//! Watches a job while it runs: where each rank is, which rank died and of what, and whether the job hangs. Not for
//! ending it: that is [`process`](crate::launch::process)'s.
//!
//! | room | what it is for |
//! |---|---|
//! | `listener` | the ranks' connections |
//! | `launcher_words` | what mpirun or srun says of a rank's end |
//! | `judge` | from all of it, what is wrong and with whom; pure, but for the clock that it is given |

mod judge;
mod launcher_words;
mod listener;

use std::time::{Duration, Instant};

use ringmark_record::heartbeat::Driver;

use crate::launch::watch::judge::Judge;
use crate::launch::watch::listener::Listener;

/// The eyes on one job.
pub struct Watch {
    listener: Listener,
    judge: Judge,
}

impl Watch {
    /// Listens for `ranks` ranks; `is_local` where all of them run on this machine. A job without any progress for
    /// `stall_timeout` hangs.
    pub fn open(ranks: u32, is_local: bool, stall_timeout: Option<Duration>) -> anyhow::Result<Watch> {
        Ok(Watch { listener: Listener::open(is_local)?, judge: Judge::new(ranks, stall_timeout, Instant::now()) })
    }

    /// What the ranks need to reach us.
    pub fn driver(&self) -> &Driver {
        self.listener.driver()
    }

    /// Takes the next line of the job's output.
    pub fn line(&mut self, line: &str) {
        self.judge.output(line, Instant::now());
    }

    /// Why the job has to be ended now, where it has.
    pub fn verdict(&mut self) -> Option<String> {
        self.hear();
        self.judge.verdict(Instant::now())
    }

    /// Which rank failed first and why, of a job that failed by itself; `None` where no rank said and none was seen.
    pub fn explanation(&mut self) -> Option<String> {
        self.hear();
        self.judge.explanation()
    }

    /// Where the ranks are, for a job that takes too long.
    pub fn whereabouts(&mut self) -> String {
        self.hear();
        self.judge.whereabouts()
    }

    fn hear(&mut self) {
        while let Some((rank, event)) = self.listener.heard() {
            self.judge.hear(rank, event, Instant::now());
        }
    }
}

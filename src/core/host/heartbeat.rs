//! Reports of a running rank to the launcher: JSON lines over TCP. A separate thread sends them, so that they arrive
//! even while the rank is stuck in a collective.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, Operation, Seconds};
use crate::host::memory_shortage::MemoryShortage;

/// Minimum time between two reports of a rank.
pub const INTERVAL: Seconds = Seconds(1.0);

/// Maximum number of reports that the launcher receives per second: ranks of a larger job report less often.
const MAX_REPORTS_PER_SECOND: f64 = 4096.0;

/// Minimum number of reports that are due before a job counts as hung.
const MIN_REPORTS_BEFORE_TIMEOUT: f64 = 4.0;

/// Number of missed reports after which a rank is silent, but not before [`MIN_SILENCE`].
const MISSED_REPORTS: f64 = 3.0;

/// Minimum silence: a report may be this late on a busy host.
const MIN_SILENCE: Seconds = Seconds(5.0);

/// Returns the time without a report after which a rank that reports every `interval` is silent.
///
/// 5 s with an interval of 1 s, 45 s with one of 15 s.
pub fn silence(interval: Seconds) -> Seconds {
    Seconds((MISSED_REPORTS * interval.0).max(MIN_SILENCE.0))
}

/// Returns the time between two reports of each rank, in a job of `ranks` ranks that counts as hung after `patience`
/// without progress.
///
/// 65,536 ranks report every 16 s, or every 15 s with a patience of 60 s.
pub fn interval(ranks: u32, patience: Seconds) -> Seconds {
    Seconds((f64::from(ranks) / MAX_REPORTS_PER_SECOND).min(patience.0 / MIN_REPORTS_BEFORE_TIMEOUT).max(INTERVAL.0))
}

/// Environment variable that contains a rank's [`LauncherAddress`]; command lines are visible to every user of a host.
pub const LAUNCHER_VARIABLE: &str = "RINGMARK_LAUNCHER";

/// Launcher's reply to the first line of a rank that it expects.
pub const WELCOME: &str = "welcome";

/// Addresses of a job's launcher: `token@seconds@seconds@address:port,address:port`.
#[derive(Debug, Clone, PartialEq)]
pub struct LauncherAddress {
    /// Secret of this job, so that no other process is accepted as one of its ranks.
    pub token: String,
    /// Time for which a rank tries to reconnect to an unreachable launcher before it exits. It exits at once if the
    /// launcher has closed the connection.
    pub patience: Seconds,
    /// Time between two reports of a rank.
    pub interval: Seconds,
    /// Addresses in the order in which a rank tries them; not all may be reachable from another host.
    pub addresses: Vec<SocketAddr>,
}

impl fmt::Display for LauncherAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        write!(formatter, "{}@{}@{}@{}", self.token, self.patience.0, self.interval.0, addresses.join(","))
    }
}

impl FromStr for LauncherAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<LauncherAddress> {
        let parts: Vec<&str> = text.splitn(4, '@').collect();
        let [token, patience, interval, addresses] = parts[..] else {
            bail!("{text:?} is not of the form token@seconds@seconds@address:port");
        };
        let seconds = |text: &str| match text.parse() {
            Ok(seconds) if (0.0..=f64::from(u32::MAX)).contains(&seconds) => Ok(Seconds(seconds)),
            _ => bail!("{text:?} is not a number of seconds"),
        };
        let address = |text: &str| text.parse().with_context(|| format!("{text:?} is not an address:port"));
        Ok(LauncherAddress {
            token: token.to_owned(),
            patience: seconds(patience)?,
            interval: seconds(interval)?,
            addresses: addresses.split(',').map(address).collect::<anyhow::Result<_>>()?,
        })
    }
}

/// A line from a rank to the launcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Message {
    /// First message, which identifies the rank.
    Hello {
        /// [`LauncherAddress::token`].
        token: String,
        /// Global rank, from 0.
        rank: u32,
        /// Name of the rank's host.
        host: String,
        /// Process ID on that host.
        process: u32,
        /// Out-of-memory kills before the rank started.
        #[serde(default)]
        out_of_memory: OutOfMemory,
    },
    /// Current state of the rank.
    At(Heartbeat),
    /// The rank aborts the job for this reason.
    Failed {
        /// Reason in one line.
        reason: String,
        /// Present if the rank requested more memory than is available.
        #[serde(default)]
        shortage: Option<MemoryShortage>,
    },
    /// The rank has finished all of its work.
    Done,
}

/// Processes that the kernel has killed for lack of memory since boot, and the files to count them again: a rank that
/// is killed in this way cannot report it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Kills on the rank's host.
    pub host: Option<OutOfMemoryCount>,
    /// Kills in the rank's control group.
    pub group: Option<OutOfMemoryCount>,
    /// Memory limit of the rank's control groups, if they have one.
    pub limit: Option<Bytes>,
}

/// One of the kernel's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemoryCount {
    /// File that contains it, in a line `oom_kill N`.
    pub file: String,
    /// Value of the counter.
    pub kills: u64,
}

/// State of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Iteration of the timed loop, from 1; 0 before it.
    pub iteration: u32,
    /// Stage within the iteration.
    #[serde(rename = "phase")]
    pub stage: Stage,
    /// True if it waits for other ranks.
    pub is_waiting: bool,
    /// Gradients that became ready and chunks that were summed since the start: progress within a phase.
    pub chunks: u64,
    /// Processor time that the process has used.
    pub processor_time: Seconds,
    /// Memory that is available on its host.
    pub available_memory: Bytes,
    /// Duration of the last iteration, once one is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Seconds>,
    /// Part of `step` before the first all-reduce, in which the rank waits for no other rank. All of it if nothing is
    /// exchanged, and `None` if nothing is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_allreduce: Option<Seconds>,
}

impl Heartbeat {
    /// Returns true before or after the timed loop, where a slow disk may delay a rank and those that wait for it.
    pub fn is_outside_loop(&self) -> bool {
        self.iteration == 0 || self.stage == Stage::Finishing
    }
}

/// Stages of a rank, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Loading libraries.
    Starting,
    /// MPI initialization.
    Joining,
    /// Building the model and allocating memory.
    Preparing,
    /// Connecting the backend that sums gradients, and receiving rank 0's weights.
    Connecting,
    /// Generating or reading the batch.
    Data,
    /// Waiting for the other ranks before the first iteration.
    Ready,
    /// Inside another program.
    Program,
    /// Forward pass and loss.
    Forward,
    /// Backward pass.
    Backward,
    /// Waiting for other ranks in a collective operation.
    Exchange {
        /// Collective operation.
        operation: Operation,
        /// Bucket of gradients in backward order, from 0; `None` in a bandwidth run by sizes.
        bucket: Option<u32>,
    },
    /// Waiting for weights that servers have updated.
    Pulling,
    /// Weight update.
    Optimizer,
    /// Waiting for weights that other ranks have updated.
    Sharing,
    /// Waiting for pushes of workers, on a server.
    Serving,
    /// Writing or reading the files of a checkpoint.
    Storage,
    /// Gathering the results of all ranks.
    Finishing,
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Starting => formatter.write_str("loading libraries"),
            Stage::Joining => formatter.write_str("MPI's initialization"),
            Stage::Preparing => formatter.write_str("preparation"),
            Stage::Connecting => formatter.write_str("connecting the ranks"),
            Stage::Data => formatter.write_str("input"),
            Stage::Ready => formatter.write_str("the barrier before the first iteration"),
            Stage::Program => formatter.write_str("the program"),
            Stage::Forward => formatter.write_str("forward"),
            Stage::Backward => formatter.write_str("backward"),
            Stage::Exchange { operation, bucket: Some(bucket) } => {
                write!(formatter, "{} of bucket {bucket}", operation.text())
            }
            Stage::Exchange { operation, bucket: None } => formatter.write_str(operation.text()),
            Stage::Pulling => formatter.write_str("waiting for weights from servers"),
            Stage::Optimizer => formatter.write_str("optimizer"),
            Stage::Sharing => formatter.write_str("waiting for weights from other ranks"),
            Stage::Serving => formatter.write_str("waiting for pushes from workers"),
            Stage::Storage => formatter.write_str("writing or reading files"),
            Stage::Finishing => formatter.write_str("gathering the results"),
        }
    }
}

impl Stage {
    /// Returns the stage of an all-reduce of a bucket of gradients.
    pub const fn all_reduce(bucket: u32) -> Stage {
        Stage::Exchange { operation: Operation::AllReduce, bucket: Some(bucket) }
    }

    /// Returns the text without the number of a bucket, which changes too fast to be read.
    pub fn name(self) -> String {
        match self {
            Stage::Exchange { operation, .. } => operation.text().to_owned(),
            stage => stage.to_string(),
        }
    }

    /// Returns true if a rank in this stage waits for others.
    pub fn waits(self) -> bool {
        matches!(self, Stage::Exchange { .. } | Stage::Pulling | Stage::Sharing | Stage::Serving)
    }
}

impl Message {
    /// Returns the line, including its newline.
    pub fn line(&self) -> String {
        // Plain data, which JSON can always represent.
        let text = serde_json::to_string(self).expect("a message is JSON");
        format!("{text}\n")
    }

    /// Parses a line.
    pub fn parse(line: &str) -> anyhow::Result<Message> {
        // Fast path for nearly all lines: serde has to buffer a line before it can select the kind.
        match line.starts_with(r#"{"kind":"at","#) {
            true => Ok(Message::At(serde_json::from_str(line)?)),
            false => Ok(serde_json::from_str(line)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_round_trips() {
        let heartbeat = Heartbeat {
            iteration: 7,
            stage: Stage::all_reduce(2),
            is_waiting: true,
            chunks: 12,
            processor_time: Seconds(1.5),
            available_memory: Bytes(1 << 30),
            step: Some(Seconds(0.25)),
            before_allreduce: None,
        };
        let hello = Message::Hello {
            token: "t".to_owned(),
            rank: 1,
            host: "b".to_owned(),
            process: 77,
            out_of_memory: OutOfMemory::default(),
        };
        let shortage = Some(MemoryShortage { taken: Bytes(1 << 30), total: Bytes(1 << 31) });
        let failed = Message::Failed { reason: "two\nlines".to_owned(), shortage };
        for message in [hello, Message::At(heartbeat), failed, Message::Done] {
            let line = message.line();
            assert_eq!((line.matches('\n').count(), line.ends_with('\n')), (1, true), "{line}");
            assert_eq!(Message::parse(&line).expect("one of ours"), message);
        }
        assert!(Message::parse("GET / HTTP/1.1").is_err());
    }

    #[test]
    fn ranks_of_large_jobs_report_less_often() {
        let interval = |ranks, patience| interval(ranks, Seconds(patience)).0;
        assert_eq!([interval(8, 300.0), interval(4096, 300.0), interval(65_536, 300.0)], [1.0, 1.0, 16.0]);
        // Ranks of a job with a short patience report often enough that it does not count as hung.
        assert_eq!([interval(65_536, 60.0), interval(65_536, 1.0)], [15.0, 1.0]);
        assert_eq!([1.0, 15.0].map(|interval| silence(Seconds(interval)).0), [5.0, 45.0]);
    }

    #[test]
    fn launcher_address_round_trips() {
        let text = "12ab@60@1.5@10.77.0.1:4000,[::1]:4000";
        let launcher: LauncherAddress = text.parse().expect("one of ours");
        assert_eq!((launcher.addresses.len(), launcher.to_string().as_str()), (2, text));
        for text in
            ["10.77.0.1:4000", "t@60@1@host:1", "t@60@1@", "t@1@10.0.0.1:1", "t@x@1@10.0.0.1:1", "t@60@-1@10.0.0.1:1"]
        {
            assert!(text.parse::<LauncherAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn stages_are_in_order() {
        assert!(Stage::all_reduce(0) < Stage::all_reduce(1));
    }

    #[test]
    fn stage_names_the_operation() {
        let of = |operation, bucket| Stage::Exchange { operation, bucket }.to_string();
        assert_eq!(Stage::all_reduce(3).to_string(), "all-reduce of bucket 3");
        assert_eq!(of(Operation::Reduce, Some(0)), "reduce of bucket 0");
        assert_eq!(of(Operation::AllGather, None), "all-gather");
    }
}

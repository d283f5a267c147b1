//! What a rank reports to the launcher while it runs: one JSON line each over TCP, from a thread of its own, so that it comes
//! through while the rank is stuck in a collective. Not for results: those are in the record.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, Operation, Seconds};
use crate::host::memory_shortage::MemoryShortage;

/// Between two reports of a rank, at least.
pub const INTERVAL: Seconds = Seconds(1.0);

/// Reports that the launcher takes in a second: ranks of a larger job report less often.
const REPORTS_A_SECOND: f64 = 4096.0;

/// Reports that are due until a job hangs.
const REPORTS_IN_PATIENCE: f64 = 4.0;

/// A rank that has missed so many reports is silent, but not before [`SHORTEST_SILENCE`].
const MISSED_REPORTS: f64 = 3.0;

/// A report may be late by as much on a busy host.
const SHORTEST_SILENCE: Seconds = Seconds(5.0);

/// Time without a report after which a rank that reports every `interval` is silent.
///
/// 5 s with an interval of 1 s, 45 s with one of 15 s.
pub fn silence(interval: Seconds) -> Seconds {
    Seconds((MISSED_REPORTS * interval.0).max(SHORTEST_SILENCE.0))
}

/// Time between two reports of each of `ranks` ranks of a job that hangs after `patience` without progress.
///
/// 65,536 ranks report every 16 s, with a patience of 60 s every 15 s.
pub fn interval(ranks: u32, patience: Seconds) -> Seconds {
    Seconds((f64::from(ranks) / REPORTS_A_SECOND).min(patience.0 / REPORTS_IN_PATIENCE).max(INTERVAL.0))
}

/// The environment variable that gives a rank its [`LauncherAddress`]: command lines are seen by every user of a host.
pub const LAUNCHER_VARIABLE: &str = "RINGMARK_LAUNCHER";

/// What the launcher answers to the first line of a rank that it expects.
pub const WELCOME: &str = "welcome";

/// Addresses of a job's launcher: `token@seconds@seconds@address:port,address:port`.
#[derive(Debug, Clone, PartialEq)]
pub struct LauncherAddress {
    /// Known to this job alone, so that no other process is taken for one of its ranks.
    pub token: String,
    /// How long a rank looks for a launcher that its network has lost before it ends; one that has closed is gone at once.
    pub patience: Seconds,
    /// Between two reports of a rank.
    pub interval: Seconds,
    /// In the order in which a rank tries them: from another host not each may lead here.
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
            _ => bail!("{text:?} are no seconds"),
        };
        let address = |text: &str| text.parse().with_context(|| format!("{text:?} is no address:port"));
        Ok(LauncherAddress {
            token: token.to_owned(),
            patience: seconds(patience)?,
            interval: seconds(interval)?,
            addresses: addresses.split(',').map(address).collect::<anyhow::Result<_>>()?,
        })
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Message {
    /// The first: who speaks.
    Hello {
        /// [`LauncherAddress::token`].
        token: String,
        /// From 0.
        rank: u32,
        /// Name of its host.
        host: String,
        /// Process number there.
        process: u32,
        /// How often memory was short before it began.
        #[serde(default)]
        out_of_memory: OutOfMemory,
    },
    /// Where the rank is.
    At(Heartbeat),
    /// The rank ends the job, for this reason.
    Failed {
        /// In one line.
        reason: String,
        /// Of one that asked for more memory than there is.
        #[serde(default)]
        shortage: Option<MemoryShortage>,
    },
    /// The rank has done all it was asked to do.
    Done,
}

/// How many processes the kernel ended for want of memory since it started, and who may count them again: a rank that is
/// ended so cannot say it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// On the rank's host.
    pub host: Option<OutOfMemoryCount>,
    /// In the rank's control group.
    pub group: Option<OutOfMemoryCount>,
    /// What the rank's control groups allow, where they have a limit.
    pub limit: Option<Bytes>,
}

/// One of the kernel's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemoryCount {
    /// The file that has it, in a line `oom_kill N`.
    pub file: String,
    /// Its value.
    pub kills: u64,
}

/// Where a rank is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Of the timed loop, from 1; 0 before it.
    pub iteration: u32,
    /// What the rank does in it.
    #[serde(rename = "phase")]
    pub stage: Stage,
    /// Whether it waits for other ranks there.
    pub is_waiting: bool,
    /// Gradients that were ready and chunks of sums that went through since the start: what goes on inside a phase.
    pub chunks: u64,
    /// Processor time that the process has used.
    pub processor_time: Seconds,
    /// Memory that its host has left.
    pub available_memory: Bytes,
    /// What its last iteration took, once one is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Seconds>,
    /// Of that, what came before its first all-reduce, in which it waits for no other rank; all of it where nothing is
    /// exchanged, and `None` where nothing else is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_allreduce: Option<Seconds>,
}

impl Heartbeat {
    /// Before or after the timed loop, where a slow disk may keep a rank, and all that wait for it, for long.
    pub fn is_outside_loop(&self) -> bool {
        self.iteration == 0 || self.stage == Stage::Finishing
    }
}

/// What a rank does, in the order in which it comes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Loading libraries.
    Starting,
    /// In MPI's initialization.
    Joining,
    /// Making model and memory.
    Preparing,
    /// Connecting the backend that sums gradients; taking rank 0's weights.
    Connecting,
    /// Making or reading the batch.
    Data,
    /// Waiting for the other ranks before the first iteration.
    Ready,
    /// Forward and loss.
    Forward,
    /// Backward.
    Backward,
    /// Waiting for other ranks in an operation of all of them.
    Exchange {
        /// Which.
        operation: Operation,
        /// Of the gradients, in the order of backward, from 0; `None` of a bandwidth run by sizes.
        bucket: Option<u32>,
    },
    /// Waiting for the weights that servers have updated.
    Pulling,
    /// Weight update.
    Optimizer,
    /// Waiting for the weights that other ranks have updated.
    Sharing,
    /// Of a server: waiting for workers' pushes.
    Serving,
    /// Bringing all ranks' results together.
    Finishing,
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Starting => formatter.write_str("loading libraries"),
            Stage::Joining => formatter.write_str("MPI's initialization"),
            Stage::Preparing => formatter.write_str("preparation"),
            Stage::Connecting => formatter.write_str("connecting the ranks"),
            Stage::Data => formatter.write_str("data"),
            Stage::Ready => formatter.write_str("the barrier before the first iteration"),
            Stage::Forward => formatter.write_str("forward"),
            Stage::Backward => formatter.write_str("backward"),
            Stage::Exchange { operation, bucket: Some(bucket) } => {
                write!(formatter, "{} of bucket {bucket}", operation.text())
            }
            Stage::Exchange { operation, bucket: None } => formatter.write_str(operation.text()),
            Stage::Pulling => formatter.write_str("waiting for weights of servers"),
            Stage::Optimizer => formatter.write_str("optimizer"),
            Stage::Sharing => formatter.write_str("waiting for weights of other ranks"),
            Stage::Serving => formatter.write_str("waiting for pushes of workers"),
            Stage::Finishing => formatter.write_str("gathering the results"),
        }
    }
}

impl Stage {
    /// All-reduce of a bucket of gradients.
    pub const fn all_reduce(bucket: u32) -> Stage {
        Stage::Exchange { operation: Operation::AllReduce, bucket: Some(bucket) }
    }

    /// Without the number of a bucket, which changes faster than it can be read.
    pub fn name(self) -> String {
        match self {
            Stage::Exchange { operation, .. } => operation.text().to_owned(),
            stage => stage.to_string(),
        }
    }

    /// Whether whoever is there waits for others.
    pub fn waits(self) -> bool {
        matches!(self, Stage::Exchange { .. } | Stage::Pulling | Stage::Sharing | Stage::Serving)
    }
}

impl Message {
    /// The line, with its newline.
    pub fn line(&self) -> String {
        // Plain data: there is nothing in it that JSON cannot hold.
        let text = serde_json::to_string(self).expect("a message is JSON");
        format!("{text}\n")
    }

    /// Reads a line.
    pub fn parse(line: &str) -> anyhow::Result<Message> {
        // Nearly all lines: which kind a line is serde knows only when it has taken it apart once.
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
    fn a_message_is_read_as_it_was_written() {
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
        // A job that may be silent for little longer is not taken for one that hangs.
        assert_eq!([interval(65_536, 60.0), interval(65_536, 1.0)], [15.0, 1.0]);
        assert_eq!([1.0, 15.0].map(|interval| silence(Seconds(interval)).0), [5.0, 45.0]);
    }

    #[test]
    fn the_launcher_s_addresses_are_read_as_they_were_written() {
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
    fn phases_are_in_their_order() {
        assert!(Stage::all_reduce(0) < Stage::all_reduce(1));
    }

    #[test]
    fn an_operation_is_called_by_its_name() {
        let of = |operation, bucket| Stage::Exchange { operation, bucket }.to_string();
        assert_eq!(Stage::all_reduce(3).to_string(), "all-reduce of bucket 3");
        assert_eq!(of(Operation::Reduce, Some(0)), "reduce of bucket 0");
        assert_eq!(of(Operation::AllGather, None), "all-gather");
    }
}

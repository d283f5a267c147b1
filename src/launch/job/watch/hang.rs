//! Describes a hang: which ranks are stuck, and which wait for them. Reads no clock: the time is passed in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ringmark_core::host::host_list::compact;
use ringmark_core::number_text::ranges;

use crate::launch::job::watch::rank::Rank;

/// Maximum number of ranks that a message names individually.
pub const MAX_NAMED: usize = 8;

/// Maximum number of ranges in a list of ranks.
const MAX_RANGES: usize = 32;

/// A job without progress.
pub struct Hang<'a> {
    /// Number of processes, including servers.
    pub ranks: u32,
    /// Number of servers; they have the highest rank numbers.
    pub servers: u32,
    /// Ranks that have reported and have not ended.
    pub live: BTreeMap<u32, &'a Rank>,
    /// Ranks that have never reported.
    pub unconnected: Vec<u32>,
    /// Limit of the time without progress.
    pub stall_limit: Duration,
    /// Time without progress.
    pub time: Duration,
    /// Current time.
    pub now: Instant,
}

impl Hang<'_> {
    /// Describes which ranks are stuck, and which wait for them.
    pub fn describe(&self) -> String {
        let stuck = self.stuck();
        let is_waiting = |number: &u32, rank: &Rank| !stuck.contains(number) && rank.reports_waiting(self.now);
        let waiting: Vec<u32> =
            self.live.iter().filter(|(number, rank)| is_waiting(number, rank)).map(|(number, _)| *number).collect();
        let mut parts = self.describe_stuck(&stuck);
        parts.extend(self.describe_waiting(&waiting, stuck.len()));
        parts.join("; ")
    }

    /// Returns the processes at which the others wait; none if all of them wait for messages.
    pub fn culprits(&self) -> Vec<u32> {
        let stuck = self.stuck();
        if self.all_wait(&stuck) { Vec::new() } else { stuck.into_iter().collect() }
    }

    /// Returns true if every process reports that it waits, so that no single one is at fault.
    fn all_wait(&self, stuck: &BTreeSet<u32>) -> bool {
        self.live.len() > 1
            && self.live.values().all(|rank| rank.reports_waiting(self.now))
            && stuck.iter().all(|it| self.live.contains_key(it))
    }

    /// Returns the ranks that the others wait for: those that are silent, have never reported, or make no progress
    /// without waiting; otherwise those that are furthest behind, or all of them if all are at one position.
    fn stuck(&self) -> BTreeSet<u32> {
        let makes_no_progress =
            |rank: &Rank| self.now - rank.last_progress >= self.stall_limit && rank.at.is_none_or(|at| !at.is_waiting);
        let mut stuck: BTreeSet<u32> = self.unconnected.iter().copied().collect();
        let is_stuck = |rank: &Rank| rank.is_silent(self.now) || makes_no_progress(rank);
        stuck.extend(self.live.iter().filter(|(_, rank)| is_stuck(rank)).map(|(number, _)| *number));
        if stuck.is_empty() {
            let last = self.live.values().filter_map(|rank| rank.position()).min();
            stuck.extend(self.live.iter().filter(|(_, rank)| rank.position() == last).map(|(number, _)| *number));
        }
        stuck
    }

    fn describe_stuck(&self, stuck: &BTreeSet<u32>) -> Vec<String> {
        if self.all_wait(stuck) {
            return vec![self.describe_all_waiting(stuck)];
        }
        let silent_hosts = self.silent_hosts(stuck);
        let mut parts: Vec<String> =
            silent_hosts.iter().map(|(host, ranks)| self.describe_silent_host(host, ranks)).collect();
        parts.extend(self.describe_unconnected());
        for (number, rank) in stuck.iter().filter_map(|number| Some((number, self.live.get(number)?))) {
            let name = format!(
                "{} (process \
                 {})",
                process_name(*number, self.ranks, self.servers, Some(&rank.host)),
                rank.process
            );
            if !rank.is_silent(self.now) {
                let place = rank.describe_position();
                parts.push(format!("{name} makes no progress in {place}: inspect the process (py-spy, gdb -p, dmesg)"));
            } else if !silent_hosts.contains_key(rank.host.as_str()) {
                let silence = (self.now - rank.last_report).as_secs();
                parts.push(format!(
                    "{name} has not reported for {silence} s, last in {}: the process is stopped, or its host or \
                     link is down",
                    rank.describe_position()
                ));
            }
        }
        if parts.len() > MAX_NAMED {
            let more = parts.len() - MAX_NAMED;
            parts.truncate(MAX_NAMED);
            parts.push(format!("{more} more in the same state"));
        }
        parts
    }

    fn describe_unconnected(&self) -> Option<String> {
        let processes = self.describe_processes(&self.unconnected);
        let cause = match self.unconnected.len() {
            0 => return None,
            1 => "has never reported: it was not started, or cannot reach this machine's addresses",
            _ => "have never reported: they were not started, or cannot reach this machine's addresses",
        };
        Some(format!("{processes} {cause}"))
    }

    /// Describes a hang in which all ranks wait, so that no single rank can be named: their messages do not arrive.
    fn describe_all_waiting(&self, stuck: &BTreeSet<u32>) -> String {
        let hosts: BTreeSet<&str> = self.live.values().map(|rank| rank.host.as_str()).collect();
        let hosts: Vec<&str> = hosts.into_iter().collect();
        let place = stuck
            .first()
            .and_then(|number| self.live.get(number))
            .map_or_else(String::new, |rank| rank.describe_position());
        let stuck: Vec<u32> = stuck.iter().copied().collect();
        let (behind, first) = match stuck[..] {
            _ if stuck.len() == self.live.len() => (String::new(), String::new()),
            [one] => {
                let host = self.live.get(&one).map(|rank| rank.host.as_str());
                let dmesg = host.unwrap_or("its host");
                let first = format!("check that rank's device and link first (dmesg on {dmesg}), then ");
                (format!(", {} furthest behind", process_name(one, self.ranks, self.servers, host)), first)
            }
            _ => (format!(", {} furthest behind", self.describe_processes(&stuck)), String::new()),
        };
        let advice = match hosts[..] {
            [host] => {
                format!(
                    "set NCCL_DEBUG=INFO to trace the exchange on {host}, or use --backend mpi, which needs no \
                     shared memory"
                )
            }
            _ => format!(
                "check the network between {} (ringmark doctor measures it), or choose another with --interface",
                if hosts.len() > MAX_NAMED { compact(hosts.iter().copied()) } else { hosts.join(", ") }
            ),
        };
        let noun = if self.servers > 0 { "processes" } else { "ranks" };
        format!(
            "all {} {noun} wait for each other in {place}{behind}: messages do not arrive: {first}{advice}",
            self.live.len()
        )
    }

    /// Returns the hosts whose ranks, two or more, have all gone silent: this points to the host rather than its ranks.
    fn silent_hosts(&self, stuck: &BTreeSet<u32>) -> BTreeMap<&str, Vec<u32>> {
        let mut hosts: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for (number, rank) in &self.live {
            hosts.entry(&rank.host).or_default().push(*number);
        }
        let several = hosts.len() > 1;
        let is_silent = |number: &u32| stuck.contains(number) && self.live[number].is_silent(self.now);
        hosts.retain(|_, ranks| several && ranks.len() > 1 && ranks.iter().all(is_silent));
        hosts
    }

    fn describe_silent_host(&self, host: &str, ranks: &[u32]) -> String {
        let host_ranks = || ranks.iter().filter_map(|number| self.live.get(number));
        let silence = host_ranks().map(|rank| (self.now - rank.last_report).as_secs()).min().unwrap_or(0);
        let place = host_ranks().next().map_or_else(String::new, |rank| rank.describe_position());
        format!(
            "host {host} with {} has not reported for {silence} s, last in {place}: the host or its link is down",
            self.describe_processes(ranks)
        )
    }

    fn describe_waiting(&self, waiting: &[u32], stuck: usize) -> Option<String> {
        let pronoun = if stuck == 1 { "it" } else { "them" };
        let verb = if waiting.len() == 1 { "waits" } else { "wait" };
        // Most of them are at one position; the furthest is the one that all reach.
        let place = waiting
            .iter()
            .filter_map(|number| self.live.get(number))
            .max_by_key(|rank| rank.position())?
            .describe_position();
        Some(format!("{} {verb} for {pronoun} in {place}", self.describe_processes(waiting)))
    }

    /// Formats processes as `ranks 0, 2-5 and server 1`.
    fn describe_processes(&self, numbers: &[u32]) -> String {
        let first_server = self.ranks - self.servers;
        let (ranks, servers): (Vec<u32>, Vec<u32>) = numbers.iter().partition(|number| **number < first_server);
        let servers: Vec<u32> = servers.into_iter().map(|number| number - first_server).collect();
        let named = [("rank", ranks), ("server", servers)].into_iter().filter(|(_, numbers)| !numbers.is_empty());
        named.map(|(what, numbers)| format_numbers(what, &numbers)).collect::<Vec<_>>().join(" and ")
    }
}

/// Returns `rank 3 of 8 on host b`, or for a server `server 0 of 2 on host b`.
pub fn process_name(number: u32, count: u32, servers: u32, host: Option<&str>) -> String {
    let host = host.map_or_else(String::new, |host| format!(" on host {host}"));
    let ranks = count - servers;
    match number.checked_sub(ranks) {
        Some(server) if servers > 0 => format!("server {server} of {servers}{host}"),
        _ => format!("rank {number} of {ranks}{host}"),
    }
}

/// Formats numbers as `rank 3` or `ranks 0, 2-5`.
fn format_numbers(what: &str, numbers: &[u32]) -> String {
    let spans = ranges(numbers.iter().copied());
    let more = spans.len().saturating_sub(MAX_RANGES);
    let spans = spans[..spans.len() - more].join(", ");
    let more = if more > 0 { format!(" and {more} more ranges") } else { String::new() };
    format!("{what}{} {spans}{more}", if numbers.len() == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn rank_lists_use_ranges() {
        assert_eq!(format_numbers("rank", &[3]), "rank 3");
        expect!["ranks 0, 2-4, 9"].assert_eq(&format_numbers("rank", &[0, 2, 3, 4, 9]));
        let odd: Vec<u32> = (0..65_536).filter(|rank| rank % 2 == 1).collect();
        let text = format_numbers("rank", &odd);
        expect!["ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63 and 32736 more ranges"].assert_eq(&text);
    }

    #[test]
    fn servers_are_numbered_from_zero() {
        let now = Instant::now();
        let hang = Hang {
            ranks: 6,
            servers: 2,
            live: BTreeMap::new(),
            unconnected: vec![2, 5],
            stall_limit: Duration::ZERO,
            time: Duration::ZERO,
            now,
        };
        expect!["ranks 0-1, 3 and servers 0-1"].assert_eq(&hang.describe_processes(&[0, 1, 3, 4, 5]));
        assert_eq!(hang.describe_processes(&[5]), "server 1");
        let expected =
            "rank 2 and server 1 have never reported: they were not started, or cannot reach this machine's addresses";
        assert_eq!(hang.describe(), expected);
    }
}

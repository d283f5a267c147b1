//! Resumptions of a run from its checkpoint, and the interruptions after which the launcher started it again
//! (`sweep --restarts`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::Seconds;

/// Environment variable with the [`RestartHistory`] of a job as JSON.
pub const RESTARTS_VARIABLE: &str = "RINGMARK_RESTARTS";

/// Largest difference between two texts of the same time.
const SAME_TIME: f64 = 1e-3;

/// One resumption of a run from its checkpoint, or from the start after an interruption without one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resumption {
    /// Iterations covered by the checkpoint; the record contains them as measured before the resumption.
    pub behind: u32,
    /// Time of the resumption, seconds since 1970 UTC.
    pub started: Seconds,
    /// Wall-clock time of the iterations before, on rank 0.
    pub wall_before: Seconds,
    /// Hosts, devices and software that changed, each with the old and the new name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Interruption after which `--restarts` started the run again; `None` for a run that was resumed by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Interruption>,
}

/// An interruption, and the time that it cost. Between the last progress and the next one, training lost
/// `detection + stop + start + load`, and then the time of the iterations that it repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interruption {
    /// Cause, with rank, host and signal or status as far as the launcher knows them.
    pub cause: String,
    /// Hosts that spare hosts replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<ReplacedHost>,
    /// Last completed iteration that rank 0 had printed.
    pub iteration: u32,
    /// Iterations that were computed again: `iteration` minus those in the checkpoint.
    pub redone: u32,
    /// Time at which all processes had ended, seconds since 1970 UTC.
    pub stopped: Seconds,
    /// Time from the last iteration that rank 0 had printed until the launcher knew of the failure.
    pub detection: Seconds,
    /// Time from then until all processes had ended.
    pub stop: Seconds,
    /// Time from then until training continued, without `load`: check of spare hosts, start of the processes, warm-up.
    /// `None` if the run was interrupted again before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Seconds>,
    /// Time to read the checkpoint and to restore the state; 0 without a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Seconds>,
}

/// A host that did not answer, and the spare host in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplacedHost {
    /// Name of the lost host.
    pub host: String,
    /// Name of the host in its place.
    pub spare: String,
}

/// Earlier attempts of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RestartHistory {
    /// Start of the first attempt, seconds since 1970 UTC.
    pub started: Seconds,
    /// Interruptions in order. `start`, `load` and `redone` of the last one are still unknown.
    pub interruptions: Vec<Interruption>,
}

/// Start of the line in the log of a restarted run.
const RESTARTED: &str = "# restarted: start ";

impl RestartHistory {
    /// Returns the resumptions of a run that continues with `last` after `load`: the `earlier` ones in its checkpoint,
    /// then one for each interruption that the checkpoint does not contain, or `last` alone if there is none. Those that
    /// were interrupted again before the next checkpoint continued from the same one as `last`.
    pub fn resumptions(self, earlier: &[Resumption], last: Resumption, load: Seconds) -> Vec<Resumption> {
        let is_known = |interruption: &Interruption| {
            let mut known = earlier.iter().filter_map(|resumption| resumption.interruption.as_ref());
            known.any(|known| (known.stopped.0 - interruption.stopped.0).abs() < SAME_TIME)
        };
        let mut new: Vec<Interruption> = self.interruptions.into_iter().filter(|one| !is_known(one)).collect();
        let current = new.pop().map(|interruption| Interruption {
            start: Some(Seconds((last.started.0 - interruption.stopped.0 - load.0).max(0.0))),
            load: Some(load),
            ..interruption
        });
        let resumption = |interruption: Interruption| {
            let redone = interruption.iteration.saturating_sub(last.behind);
            let again = interruption.start.map_or(0.0, |start| start.0) + interruption.load.map_or(0.0, |load| load.0);
            let started = Seconds(interruption.stopped.0 + again);
            let interruption = Some(Interruption { redone, ..interruption });
            Resumption { started, interruption, changes: Vec::new(), ..last.clone() }
        };
        let mut all = earlier.to_vec();
        all.extend(new.into_iter().map(resumption));
        all.push(match current {
            Some(current) => Resumption { started: last.started, changes: last.changes.clone(), ..resumption(current) },
            None => last,
        });
        all
    }
}

impl Interruption {
    /// Formats the log line of a run that continues after this interruption; [`parse_times`] reads it.
    pub fn line(&self) -> Option<String> {
        let (start, load) = (self.start?, self.load?);
        Some(format!("{RESTARTED}{start:.3}, load {load:.3}, {} iterations are repeated", self.redone))
    }
}

/// Returns the start and load times of a line of [`Interruption::line`].
pub fn parse_times(line: &[u8]) -> Option<[Seconds; 2]> {
    let times = std::str::from_utf8(line.strip_prefix(RESTARTED.as_bytes())?).ok()?;
    let (start, rest) = times.split_once(" s, load ")?;
    let (load, _) = rest.split_once(" s,")?;
    Some([Seconds(start.parse().ok()?), Seconds(load.parse().ok()?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interruption(stopped: f64, iteration: u32) -> Interruption {
        Interruption {
            cause: "rank 1 of 2 on host a was killed".to_owned(),
            replaced: Vec::new(),
            iteration,
            redone: 0,
            stopped: Seconds(stopped),
            detection: Seconds(0.5),
            stop: Seconds(0.25),
            start: None,
            load: None,
        }
    }

    fn last(behind: u32, started: f64) -> Resumption {
        let changes = vec!["name of host 2: b then, c now".to_owned()];
        Resumption { behind, started: Seconds(started), wall_before: Seconds(9.0), changes, interruption: None }
    }

    #[test]
    fn interruptions_without_a_checkpoint_are_kept() {
        // The first one is in the checkpoint. The run was interrupted twice after it, the first time while it started.
        let known = Resumption { interruption: Some(interruption(100.0001, 5)), ..last(4, 103.0) };
        let again = Interruption { start: Some(Seconds(2.0)), load: Some(Seconds(0.5)), ..interruption(200.0, 14) };
        let interruptions = vec![interruption(100.0, 5), again, interruption(300.0, 11)];
        let history = RestartHistory { started: Seconds(50.0), interruptions };
        let all = history.resumptions(std::slice::from_ref(&known), last(8, 304.0), Seconds(1.0));
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], known);
        let facts = |resumption: &Resumption| {
            let one = resumption.interruption.clone().expect("an interruption");
            (
                resumption.behind,
                resumption.started.0,
                one.redone,
                one.start.map(|time| time.0),
                one.load.map(|time| time.0),
            )
        };
        assert_eq!(facts(&all[1]), (8, 202.5, 6, Some(2.0), Some(0.5)));
        assert_eq!(facts(&all[2]), (8, 304.0, 3, Some(3.0), Some(1.0)));
        assert_eq!([&all[1], &all[2]].map(|one| one.changes.len()), [0, 1]);
        let line = all[2].interruption.as_ref().and_then(Interruption::line).expect("known times");
        assert_eq!(line, "# restarted: start 3.000 s, load 1.000 s, 3 iterations are repeated");
        assert_eq!(parse_times(format!("{line}\n").as_bytes()), Some([Seconds(3.0), Seconds(1.0)]));
        assert_eq!(parse_times(b"# restarted\n"), None);
    }

    #[test]
    fn resumption_by_hand_has_no_interruption() {
        let all = RestartHistory::default().resumptions(&[last(4, 103.0)], last(8, 304.0), Seconds(1.0));
        assert_eq!(all, [last(4, 103.0), last(8, 304.0)]);
    }
}

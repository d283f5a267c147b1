//! Division of the time of a run with interruptions by cause, from its record alone.
//!
//! ```text
//! wall    = useful + slower + checkpoint + detect + stop + start + load + redo
//! goodput = useful / wall
//! ```
//!
//! `useful` is the time that the iterations would take at the speed without failures, so that the goodput is also the speed
//! over the wall time divided by that speed. `slower` is what the iterations in the record, each counted once, took beyond
//! it, and negative if they were faster. `checkpoint` is the sum of the stalls. The record of a restarted run lacks the
//! checkpoint that it continued from, which counts with the median stall of the others. `detect` to `load` are those of the [`Interruption`]s, and `redo` is the number of repeated iterations, each
//! with the mean time of an iteration. An iteration that was not completed is part of `detect`. The first start is not
//! part of `wall`.
//!
//! Example: 100 iterations in 50 s, where those without failures take 0.48 s each, four checkpoints of 1 s, and one
//! failure that was detected after 2 s, took 1 s to stop, 6 s to start and 1 s to load, with 20 iterations done again:
//! `wall = 48 + 2 + 4 + 2 + 1 + 6 + 1 + 10 = 74 s`, a goodput of 0.649.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::train::{CheckpointWrite, Interruption, Resumption, RunRecord};
use crate::dimension::{Seconds, UnitsPerSecond};
use crate::keyword_enum;
use crate::stats::goodput::{LostTime, Restart};
use crate::stats::summary::median;

keyword_enum!(
    /// Use of a span of time.
    TimeUse {
        /// Iterations that count.
        Train = "train",
        /// Iterations that were done again.
        Redo = "redo",
        /// Stall of a checkpoint.
        Checkpoint = "checkpoint",
        /// Time from the last iteration until the failure is known.
        Detect = "detect",
        /// Until all processes have ended.
        Stop = "stop",
        /// Start of the processes.
        Start = "start",
        /// Reading of the checkpoint.
        Load = "load",
    }
);

/// A span of time, from the start of the first iteration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Training that counts, or the cause of the loss.
    pub time_use: TimeUse,
    /// Seconds since the first iteration began.
    pub begin: Seconds,
    /// Seconds since then, larger than `begin`.
    pub end: Seconds,
}

/// Times of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Number of failures.
    pub failures: u32,
    /// Time from the first iteration to the end of the last one.
    pub wall: Seconds,
    /// Time of the iterations at the speed without failures, each counted once.
    pub useful: Seconds,
    /// Time that the iterations took beyond `useful`; negative if they were faster.
    #[serde(default)]
    pub slower: Seconds,
    /// Lost time by cause.
    pub lost: LostTime,
    /// `useful / wall`.
    pub goodput: f64,
    /// Speed over the whole wall time.
    pub speed: UnitsPerSecond,
    /// All spans in the order of time.
    pub activities: Vec<Activity>,
}

impl Account {
    /// Returns the times of a run; `None` if the record is not complete. `undisturbed` is the time of an iteration without
    /// failures.
    pub fn of(record: &RunRecord, undisturbed: Seconds) -> Option<Account> {
        let end = record.end.as_ref().filter(|end| end.iterations > 0)?;
        let timeline = Timeline {
            iteration: end.wall.0 / f64::from(end.iterations),
            checkpoints: checkpoints(record),
            now: 0.0,
            activities: Vec::new(),
        };
        let activities = timeline.fill(&record.header.resumptions, end.iterations, end.wall);
        let of = |time_use| -> f64 {
            let spans = activities.iter().filter(|activity| activity.time_use == time_use);
            spans.fold(0.0, |sum, activity| sum + (activity.end.0 - activity.begin.0))
        };
        let lost = LostTime {
            checkpoint: of(TimeUse::Checkpoint),
            restart: Restart {
                detect: of(TimeUse::Detect),
                stop: of(TimeUse::Stop),
                start: of(TimeUse::Start),
                load: of(TimeUse::Load),
            },
            redo: of(TimeUse::Redo),
        };
        let failures = interruptions(&record.header.resumptions).count() as u32;
        let wall = end.wall.0 + lost.total();
        let units = record.header.units_per_iteration() * f64::from(end.iterations);
        let account = Account {
            failures,
            wall: Seconds(wall),
            useful: end.wall,
            slower: Seconds(0.0),
            lost,
            goodput: 0.0,
            speed: UnitsPerSecond(units / wall),
            activities,
        };
        Some(account.with_useful(Seconds(undisturbed.0 * f64::from(end.iterations))))
    }

    /// Divides the time of the iterations into a useful part and the rest.
    pub(super) fn with_useful(self, useful: Seconds) -> Account {
        let slower = Seconds(self.useful.0 + self.slower.0 - useful.0);
        Account { useful, slower, goodput: useful.0 / self.wall.0, ..self }
    }
}

fn interruptions(resumptions: &[Resumption]) -> impl Iterator<Item = &Interruption> {
    resumptions.iter().filter_map(|resumption| resumption.interruption.as_ref())
}

/// Returns the iteration and stall of every checkpoint, with those that the run continued from.
fn checkpoints(record: &RunRecord) -> Vec<(u32, f64)> {
    let written = record.end.iter().flat_map(|end| &end.checkpoints);
    let mut all: Vec<(u32, f64)> =
        written.map(|CheckpointWrite { iteration, stall, .. }| (*iteration, stall.0)).collect();
    let typical = median(&all.iter().map(|(_, stall)| *stall).collect::<Vec<f64>>()).unwrap_or(0.0);
    for Resumption { behind, .. } in &record.header.resumptions {
        if *behind > 0 && all.iter().all(|(iteration, _)| iteration != behind) {
            all.push((*behind, typical));
        }
    }
    all.sort_by_key(|(iteration, _)| *iteration);
    all
}

struct Timeline {
    /// Mean time of an iteration.
    iteration: f64,
    checkpoints: Vec<(u32, f64)>,
    now: f64,
    activities: Vec<Activity>,
}

impl Timeline {
    fn fill(mut self, resumptions: &[Resumption], iterations: u32, wall: Seconds) -> Vec<Activity> {
        let mut done = (0, 0.0);
        for resumption in resumptions {
            let kept = (resumption.behind, resumption.wall_before.0);
            self.train(done, kept);
            done = kept;
            let Some(interruption) = &resumption.interruption else { continue };
            self.add(TimeUse::Redo, f64::from(interruption.redone) * self.iteration);
            self.add(TimeUse::Detect, interruption.detection.0);
            self.add(TimeUse::Stop, interruption.stop.0);
            self.add(TimeUse::Start, interruption.start.unwrap_or_default().0);
            self.add(TimeUse::Load, interruption.load.unwrap_or_default().0);
        }
        self.train(done, (iterations, wall.0));
        self.activities
    }

    /// Adds the iterations between two pairs of an iteration and the time of all iterations up to it, with their
    /// checkpoints.
    fn train(&mut self, (first, from): (u32, f64), (last, to): (u32, f64)) {
        let each = (to - from).max(0.0) / f64::from(last.saturating_sub(first)).max(1.0);
        let mut done = first;
        let due: Vec<(u32, f64)> =
            self.checkpoints.iter().copied().filter(|(iteration, _)| (first + 1..=last).contains(iteration)).collect();
        for (iteration, stall) in due {
            self.add(TimeUse::Train, f64::from(iteration - done) * each);
            self.add(TimeUse::Checkpoint, stall);
            done = iteration;
        }
        self.add(TimeUse::Train, f64::from(last.saturating_sub(done)) * each);
    }

    fn add(&mut self, time_use: TimeUse, seconds: f64) {
        if seconds > 0.0 {
            let begin = self.now;
            self.now += seconds;
            self.activities.push(Activity { time_use, begin: Seconds(begin), end: Seconds(self.now) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::train::{RunEnd, RunHeader, TrainConfig};
    use crate::benchmark::{RunLabel, RunProfile};
    use crate::host::{Environment, RankPlace};

    /// Returns a run of 100 iterations of 0.5 s with checkpoints of 1 s after every 25. It was interrupted in iteration 46,
    /// and again in the start of the second attempt, before it had printed an iteration.
    fn record() -> RunRecord {
        let label = RunLabel { case: "1n2g".parse().expect("a case"), run: 1, profile: RunProfile::Full };
        let ranks = (0..2).map(|rank| RankPlace::on_cpu(rank, rank, "a")).collect();
        let config = TrainConfig { batch_size: 8, ..TrainConfig::default() };
        let interruption = |iteration, redone, start: Option<f64>| Interruption {
            cause: "killed".to_owned(),
            replaced: Vec::new(),
            iteration,
            redone,
            stopped: Seconds(0.0),
            detection: Seconds(2.0),
            stop: Seconds(1.0),
            start: start.map(Seconds),
            load: start.map(|_| Seconds(1.0)),
        };
        let resumption = |interruption| Resumption {
            behind: 25,
            started: Seconds(0.0),
            wall_before: Seconds(12.5),
            changes: Vec::new(),
            interruption: Some(interruption),
        };
        // The checkpoint does not contain its own times.
        let written = [50, 75, 100].map(|iteration| CheckpointWrite {
            iteration,
            stall: Seconds(1.0),
            ..CheckpointWrite::default()
        });
        RunRecord {
            header: RunHeader {
                resumptions: vec![resumption(interruption(45, 20, None)), resumption(interruption(0, 0, Some(6.0)))],
                ..RunHeader::new(label, Seconds(0.0), config, Environment::default(), ranks)
            },
            iterations: Vec::new(),
            end: Some(RunEnd {
                iterations: 100,
                wall: Seconds(50.0),
                checkpoints: written.to_vec(),
                ..RunEnd::default()
            }),
        }
    }

    #[test]
    fn time_is_divided_by_cause() {
        let account = Account::of(&record(), Seconds(0.48)).expect("complete");
        let restart = Restart { detect: 4.0, stop: 2.0, start: 6.0, load: 1.0 };
        assert_eq!(account.lost, LostTime { checkpoint: 4.0, restart, redo: 10.0 });
        assert_eq!((account.failures, account.useful, account.wall), (2, Seconds(48.0), Seconds(77.0)));
        assert_eq!(account.slower, Seconds(2.0));
        assert!((account.goodput - 48.0 / 77.0).abs() < 1e-12);
        assert!((account.speed.0 - 1600.0 / 77.0).abs() < 1e-9);
        // Also the ratio of the speeds.
        assert!((account.goodput - account.speed.0 / (16.0 / 0.48)).abs() < 1e-12);
        let spans: Vec<(TimeUse, f64)> =
            account.activities.iter().map(|one| (one.time_use, one.end.0 - one.begin.0)).collect();
        let down = [(TimeUse::Detect, 2.0), (TimeUse::Stop, 1.0)];
        let expected = [
            vec![(TimeUse::Train, 12.5), (TimeUse::Checkpoint, 1.0), (TimeUse::Redo, 10.0)],
            down.to_vec(),
            down.to_vec(),
            vec![(TimeUse::Start, 6.0), (TimeUse::Load, 1.0)],
            [(TimeUse::Train, 12.5), (TimeUse::Checkpoint, 1.0)].repeat(3),
        ];
        assert_eq!(spans, expected.concat());
        let mut end = 0.0;
        for activity in &account.activities {
            assert_eq!(activity.begin.0, end);
            end = activity.end.0;
        }
    }

    #[test]
    fn run_without_an_end_has_no_account() {
        assert_eq!(Account::of(&RunRecord { end: None, ..record() }, Seconds(0.5)), None);
    }
}

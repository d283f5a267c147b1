//! Costs of checkpoints and failures, measured in short runs, and the predictions that follow from them.

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::train::{CheckpointMode, CheckpointWrite, Interruption, LossKind, RunRecord};
use crate::dimension::{Bytes, Seconds, UnitsPerSecond};
use crate::stats::allreduce_model::Band;
use crate::stats::goodput::{Conditions, MeasuredCosts, MeasuredTime, Restart, goodput_band, young_interval};
use crate::stats::mtbf::cluster_mtbf;
use crate::stats::summary::mean;

/// Training time of the prediction for other numbers of hosts: one day.
const PREDICTED_WORK: f64 = 86_400.0;

/// Cost of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointTimes {
    /// Relation of a checkpoint to the steps.
    pub mode: CheckpointMode,
    /// Size of a file.
    pub bytes: Bytes,
    /// Number of measured checkpoints.
    pub checkpoints: u32,
    /// Time that training stood still.
    pub stall: MeasuredTime,
    /// Time from the start of a checkpoint until it is safe.
    pub write: MeasuredTime,
}

/// Cost of one kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureTimes {
    /// One of the injected kinds.
    pub kind: LossKind,
    /// Number of measured failures.
    pub failures: u32,
    /// Steps of a restart. `start` and `load` are those of all kinds together.
    pub restart: Restart<MeasuredTime>,
}

/// Length of a run in iterations and seconds of useful work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunLength {
    /// Iterations between two checkpoints.
    pub checkpoint_every: u32,
    /// Iterations of the run, a multiple of `checkpoint_every`.
    pub iterations: u32,
    /// Time of the iterations between two checkpoints.
    pub interval: Seconds,
    /// Time of all iterations.
    pub work: Seconds,
}

/// Predicted goodput of a number of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostPrediction {
    /// Number of hosts.
    pub hosts: u32,
    /// Mean time between failures of all of them: that of one host divided by their number.
    pub mtbf: Seconds,
    /// Best time between checkpoints.
    pub interval: Seconds,
    /// Predicted goodput in a day of training, percentiles 2.5, 50 and 97.5 of simulated runs. Absent if the run would hardly end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Band>,
}

/// Short runs without failures, and with one failure each.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRuns {
    /// Time of an iteration, `units of an iteration / speed`.
    pub iteration: Seconds,
    /// Speed without checkpoints and failures.
    pub speed: UnitsPerSecond,
    /// Cost of a checkpoint.
    pub checkpoint: CheckpointTimes,
    /// Cost of each kind of failure.
    pub failures: Vec<FailureTimes>,
}

impl MeasuredRuns {
    /// Returns the costs. `trials` are the runs with a failure of each kind.
    ///
    /// # Errors
    ///
    /// Returns an error if a run has no checkpoint, or if one of `trials` was not interrupted.
    pub fn new(undisturbed: &[RunRecord], trials: &[(LossKind, Vec<RunRecord>)]) -> anyhow::Result<MeasuredRuns> {
        let speeds: Option<Vec<f64>> =
            undisturbed.iter().map(|run| Some(run.speed(run.header.config.warmup as usize)?.0)).collect();
        let speed = speeds.as_deref().and_then(mean).context("an undisturbed run has no iterations after warm-up")?;
        let header = &undisturbed[0].header;
        let records = undisturbed.iter().chain(trials.iter().flat_map(|(_, runs)| runs));
        let writes: Vec<CheckpointWrite> =
            records.filter_map(|run| run.end.as_ref()).flat_map(|end| end.checkpoints.iter().copied()).collect();
        Ok(MeasuredRuns {
            iteration: Seconds(header.units_per_iteration() / speed),
            speed: UnitsPerSecond(speed),
            checkpoint: checkpoint(header.config.learning.checkpoint_mode, &writes)?,
            failures: failures(trials)?,
        })
    }

    /// Returns the costs of the model.
    pub fn costs(&self) -> MeasuredCosts {
        let CheckpointTimes { stall, write, .. } = self.checkpoint;
        MeasuredCosts { stall, write, restarts: self.failures.iter().map(|kind| kind.restart).collect() }
    }

    /// Returns the best time between checkpoints for an MTBF of the whole job: that of Young, and that of
    /// [`Conditions::with_best_interval`].
    pub fn best_intervals(&self, mtbf: Seconds) -> Option<[Seconds; 2]> {
        let costs = self.costs().means()?;
        let best = Conditions::with_best_interval(mtbf.0, costs).interval.max(self.iteration.0);
        Some([young_interval(costs.stall, mtbf.0), best].map(Seconds))
    }

    /// Returns the length of a run of about `duration` with this time between checkpoints: whole iterations and whole
    /// intervals, at least one.
    pub fn length(&self, interval: Seconds, duration: Seconds) -> RunLength {
        let whole = |seconds: f64, unit: f64| (seconds / unit).round().clamp(1.0, 1e7);
        let checkpoint_every = whole(interval.0.min(duration.0), self.iteration.0);
        let iterations = checkpoint_every * whole(duration.0, checkpoint_every * self.iteration.0);
        RunLength {
            checkpoint_every: checkpoint_every as u32,
            iterations: iterations as u32,
            interval: Seconds(checkpoint_every * self.iteration.0),
            work: Seconds(iterations * self.iteration.0),
        }
    }

    /// Returns the expected wall time of a run under failures; `None` if it would hardly end.
    pub fn expected_wall(&self, mtbf: Seconds, length: &RunLength) -> Option<Seconds> {
        let conditions = Conditions { mtbf: mtbf.0, interval: length.interval.0, costs: self.costs().means()? };
        conditions.expected_wall(length.work.0).map(Seconds)
    }

    /// Returns the predicted goodput of a run; `None` if it would hardly end.
    pub fn predict(&self, mtbf: Seconds, length: &RunLength, seed: u32) -> Option<Band> {
        goodput_band(mtbf.0, length.interval.0, &self.costs(), length.work.0, seed.into())
    }

    /// Predicts the goodput of `hosts` hosts, each with this MTBF. Checkpoints and restarts are assumed to take as long as
    /// measured.
    pub fn predict_hosts(&self, host_mtbf: Seconds, hosts: u32, seed: u32) -> Option<HostPrediction> {
        let mtbf = Seconds(cluster_mtbf(host_mtbf.0, hosts));
        let [_, interval] = self.best_intervals(mtbf)?;
        let goodput = goodput_band(mtbf.0, interval.0, &self.costs(), PREDICTED_WORK, seed.into());
        Some(HostPrediction { hosts, mtbf, interval, goodput })
    }
}

fn checkpoint(mode: CheckpointMode, writes: &[CheckpointWrite]) -> anyhow::Result<CheckpointTimes> {
    let last = writes.last().context("the short runs wrote no checkpoint")?;
    let written = |write: &CheckpointWrite| match mode {
        CheckpointMode::Sync => write.stall.0,
        CheckpointMode::Async => write.collect.0 + write.write.0 + write.sync.0,
    };
    Ok(CheckpointTimes {
        mode,
        bytes: last.bytes,
        checkpoints: writes.len() as u32,
        stall: measured(writes.iter().map(|write| write.stall.0)),
        write: measured(writes.iter().map(written)),
    })
}

fn failures(trials: &[(LossKind, Vec<RunRecord>)]) -> anyhow::Result<Vec<FailureTimes>> {
    let mut all: Vec<(LossKind, Vec<Interruption>)> = Vec::new();
    for (kind, runs) in trials {
        let each = runs.iter().flat_map(|run| &run.header.resumptions);
        let interruptions: Vec<Interruption> = each.filter_map(|one| one.interruption.clone()).collect();
        ensure!(
            interruptions.len() >= runs.len(),
            "a run with the failure {kind} was not interrupted: this kind has no effect here, omit it from --failures"
        );
        all.push((*kind, interruptions));
    }
    let of_all = |time: fn(&Interruption) -> Option<Seconds>| {
        measured(all.iter().flat_map(|(_, each)| each).filter_map(time).map(|time| time.0))
    };
    let (start, load) = (of_all(|one| one.start), of_all(|one| one.load));
    let times = |(kind, each): &(LossKind, Vec<Interruption>)| FailureTimes {
        kind: *kind,
        failures: each.len() as u32,
        restart: Restart {
            detect: measured(each.iter().map(|one| one.detection.0)),
            stop: measured(each.iter().map(|one| one.stop.0)),
            start,
            load,
        },
    };
    Ok(all.iter().map(times).collect())
}

fn measured(values: impl Iterator<Item = f64>) -> MeasuredTime {
    MeasuredTime::of(&values.collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(mean: f64) -> MeasuredTime {
        MeasuredTime { mean, error: 0.1 * mean }
    }

    /// Returns iterations of 0.5 s, checkpoints of 2 s, and a failure that costs a minute and one that costs two.
    fn runs() -> MeasuredRuns {
        let failure = |kind, detect| FailureTimes {
            kind,
            failures: 3,
            restart: Restart { detect, stop: 10.0, start: 15.0, load: 5.0 }.map(time),
        };
        MeasuredRuns {
            iteration: Seconds(0.5),
            speed: UnitsPerSecond(100.0),
            checkpoint: CheckpointTimes {
                mode: CheckpointMode::Sync,
                bytes: Bytes(1_000_000),
                checkpoints: 10,
                stall: time(2.0),
                write: time(2.0),
            },
            failures: vec![failure(LossKind::Kill, 30.0), failure(LossKind::Stop, 90.0)],
        }
    }

    #[test]
    fn runs_have_whole_intervals() {
        let runs = runs();
        let length = |interval, duration| {
            let RunLength { checkpoint_every, iterations, interval, work } =
                runs.length(Seconds(interval), Seconds(duration));
            (checkpoint_every, iterations, interval.0, work.0)
        };
        assert_eq!(length(60.0, 1800.0), (120, 3600, 60.0, 1800.0));
        assert_eq!(length(70.0, 200.0), (140, 420, 70.0, 210.0));
        assert_eq!(length(0.1, 2.0), (1, 4, 0.5, 2.0));
        // Longer than the run.
        assert_eq!(length(3600.0, 60.0), (120, 120, 60.0, 60.0));
    }

    #[test]
    fn predictions_follow_from_the_mean_costs() {
        let runs = runs();
        let mean = runs.costs().means().expect("two kinds").restart;
        assert_eq!([mean.detect, mean.stop, mean.start, mean.load], [60.0, 10.0, 15.0, 5.0]);
        let [young, best] = runs.best_intervals(Seconds(3600.0)).expect("two kinds");
        assert!((young.0 - 120.0).abs() < 1e-9 && (best.0 - 118.7).abs() < 0.1, "{young} {best}");
        let length = runs.length(best, Seconds(36_000.0));
        let band = runs.predict(Seconds(3600.0), &length, 1).expect("ends");
        let expected = length.work.0 / runs.expected_wall(Seconds(3600.0), &length).expect("ends").0;
        assert!(
            band.low < expected && expected < band.high && (band.mid - expected).abs() < 0.01,
            "{band:?} {expected}"
        );
        // Eight times as many hosts fail eight times as often, and sixteen thousand hardly train.
        let predict = |hosts| runs.predict_hosts(Seconds(14_400.0), hosts, 1).expect("two kinds");
        assert_eq!((predict(32).mtbf, predict(32).hosts), (Seconds(450.0), 32));
        let goodput = |hosts| predict(hosts).goodput.expect("ends").mid;
        assert!(predict(32).interval < best && goodput(4) > goodput(32));
        assert_eq!(predict(65_536).goodput, None);
    }
}

//! Start and end of each iteration and epoch of a run, derived from its record: the start time plus the durations of
//! iterations and validations, restarting at each resumption. Records contain neither the time between the start and
//! the first iteration nor the time of checkpoints, so results may be early by that.

use ringmark_core::benchmark::train::{EpochEnd, RunRecord};
use ringmark_core::dimension::Seconds;

/// A period, in seconds since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    pub start: Seconds,
    pub end: Seconds,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TimeLine<'a> {
    /// The whole run, including its last validation.
    pub run: Period,
    pub iterations: Vec<Period>,
    /// Completed epochs.
    pub epochs: Vec<EpochTimes<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochTimes<'a> {
    pub epoch: &'a EpochEnd,
    /// First iteration of the epoch, counted from 1.
    pub first_iteration: u32,
    pub training: Period,
    /// Validation after them; empty if there was none.
    pub validation: Period,
}

impl TimeLine<'_> {
    pub fn from_record(record: &RunRecord) -> TimeLine<'_> {
        let ends = record.end.as_ref().map(|end| end.epochs.as_slice()).unwrap_or_default();
        let mut ends = ends.iter().peekable();
        let start = record.header.started;
        let mut now = start.0;
        let (mut iterations, mut epochs) = (Vec::with_capacity(record.iterations.len()), Vec::new());
        let mut first_iteration = 1;
        let mut epoch_start = start;
        for iteration in &record.iterations {
            let resumption = record.header.resumptions.iter().rev().find(|part| part.behind + 1 == iteration.iteration);
            now = resumption.map_or(now, |part| part.started.0.max(now));
            if iteration.iteration == first_iteration {
                epoch_start = Seconds(now);
            }
            let ranks = iteration.step.len().max(1) as f64;
            let begun = Seconds(now);
            now += iteration.step.iter().map(|step| step.0).sum::<f64>() / ranks;
            iterations.push(Period { start: begun, end: Seconds(now) });
            if let Some(epoch) = ends.next_if(|epoch| epoch.iteration == iteration.iteration) {
                let trained = Seconds(now);
                now += epoch.validation.map_or(0.0, |validation| validation.time.0);
                epochs.push(EpochTimes {
                    epoch,
                    first_iteration,
                    training: Period { start: epoch_start, end: trained },
                    validation: Period { start: trained, end: Seconds(now) },
                });
                first_iteration = iteration.iteration + 1;
            }
        }
        TimeLine { run: Period { start, end: Seconds(now) }, iterations, epochs }
    }
}

/// Converts to milliseconds, the unit of MLflow and MLPerf.
pub fn milliseconds(time: Seconds) -> i64 {
    (1e3 * time.0).round() as i64
}

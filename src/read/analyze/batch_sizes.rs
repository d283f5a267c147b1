//! Speed and memory by batch size: one series of points per network, precision and case. Modules of the same name in
//! [`crate::read::analyze::training`] and [`crate::read::analyze::score`] convert runs. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::dimension::{Bytes, Case, DeviceKind, Dtype, Model, Strategy, UnitsPerSecond, WorkUnit};
use serde_json::Value;

use crate::read::analyze::case_runs::CaseRuns;
use crate::read::analyze::utilization::Utilization;
use crate::read::load::folder::Shortage;
use crate::read::load::run::Readable;

/// Series with equal conditions, which differ only in network, precision and case.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchTable {
    /// Kind of every rank's device; `None` if no record contains it.
    pub device: Option<DeviceKind>,
    /// Names of the devices, with their thread counts.
    pub devices: String,
    /// Height and width of all images in pixels; `None` for each network's own size.
    pub image_size: Option<u32>,
    /// Strategy, which sums gradients and updates weights; `all-reduce` for inference.
    pub strategy: Strategy,
    /// True if the runs used the quick profile, which is not a measurement.
    pub is_quick: bool,
    /// Options that the runs share.
    pub settings: BTreeMap<String, Value>,
    /// Series, by network, precision, ranks, then nodes.
    pub series: Vec<BatchSeries>,
    /// Batch sizes that were tried and did not fit into memory.
    pub shortages: Vec<Shortage>,
}

/// Points of one network, precision and case.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchSeries {
    /// Network.
    pub model: Model,
    /// Tokens of a sequence; `None` for images.
    pub sequence_length: Option<u32>,
    /// Precision.
    pub dtype: Dtype,
    /// Nodes and ranks per node.
    pub case: Case,
    /// Points in the order of their batch sizes.
    pub points: Vec<BatchPoint>,
}

/// One batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPoint {
    /// Images or sequences per rank.
    pub batch_size: u32,
    /// Figures, or the reason why there are none.
    pub outcome: Result<BatchFigures, Missing>,
    /// True if the runs have warnings.
    pub is_warned: bool,
    /// True if its speed is unreliable.
    pub is_doubtful: bool,
}

/// Figures of a point over its counted runs.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchFigures {
    /// Throughput of all ranks, median over runs.
    pub speed: UnitsPerSecond,
    /// Coefficient of variation of the runs' speeds; `None` for a single run.
    pub cv: Option<f64>,
    /// Number and speed of every counted run.
    pub runs: Vec<(u32, f64)>,
    /// Peak memory of the rank that used most, in any run; `None` if no record contains it.
    pub peak_memory: Option<Bytes>,
    /// Utilization of the devices; `None` without records.
    pub utilization: Option<Utilization>,
}

/// Reason why a point has no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The batch does not fit into memory, which is also a result.
    OutOfMemory,
    /// No run counts, or there is none.
    NoRun,
}

impl Missing {
    /// Returns the text for a table cell.
    pub fn text(self) -> &'static str {
        match self {
            Missing::OutOfMemory => "out of memory",
            Missing::NoRun => "-",
        }
    }
}

impl BatchSeries {
    /// Returns the points that have figures.
    pub fn measured(&self) -> impl Iterator<Item = (&BatchPoint, &BatchFigures)> {
        self.points.iter().filter_map(|point| Some((point, point.outcome.as_ref().ok()?)))
    }
}

impl BatchTable {
    /// Returns all batch sizes of the table in ascending order.
    pub fn batch_sizes(&self) -> Vec<u32> {
        batch_sizes(self.series.iter())
    }

    /// Returns the unit of the speed.
    pub fn unit(&self) -> WorkUnit {
        self.series.first().map(|series| series.model.unit()).unwrap_or_default()
    }

    /// Returns the size of the samples: `224 pixels`, or `224 to 299 pixels, depending on the network`; `None` for
    /// sequences, whose series contain their length.
    pub fn pixels(&self) -> Option<String> {
        let size = |series: &BatchSeries| series.model.image_size(self.image_size);
        let sizes: BTreeSet<u32> = self.series.iter().filter_map(size).collect();
        let (least, most) = (sizes.first()?, sizes.last()?);
        Some(match least == most {
            true => format!("{least} pixels"),
            false => format!("{least} to {most} pixels, depending on the network"),
        })
    }
}

/// Returns all batch sizes of these series in ascending order.
pub fn batch_sizes<'a>(series: impl Iterator<Item = &'a BatchSeries>) -> Vec<u32> {
    let sizes: BTreeSet<u32> = series.flat_map(|series| &series.points).map(|point| point.batch_size).collect();
    sizes.into_iter().collect()
}

/// Adds batch sizes that did not fit into memory as points to the table with their series, or to the first table. Those
/// of baselines are skipped because no table contains baseline speeds.
pub fn add_shortages(tables: &mut [BatchTable], shortages: &[Shortage]) {
    for shortage in shortages.iter().filter(|shortage| !shortage.is_baseline && !shortage.is_global) {
        let Shortage { model, sequence_length, dtype, case, batch_size, tried_batch_size, .. } = *shortage;
        let is_line = |series: &BatchSeries| {
            (series.model, series.sequence_length, series.dtype, series.case) == (model, sequence_length, dtype, case)
        };
        let has_line = |table: &BatchTable| table.series.iter().any(is_line);
        let is_alike = |table: &BatchTable| table.strategy == shortage.strategy;
        let index = tables.iter().position(|table| is_alike(table) && has_line(table));
        let index = index.or_else(|| tables.iter().position(is_alike)).or_else(|| tables.iter().position(has_line));
        let index = index.unwrap_or(0);
        let Some(table) = tables.get_mut(index) else { return };
        let line = table.series.iter().position(is_line).unwrap_or_else(|| {
            table.series.push(BatchSeries { model, sequence_length, dtype, case, points: Vec::new() });
            table.series.sort_by_key(|series| {
                (series.model, series.sequence_length, series.dtype, series.case.ranks(), series.case)
            });
            table.series.iter().position(is_line).unwrap_or_default()
        });
        let points = &mut table.series[line].points;
        let outcome = Err(Missing::OutOfMemory);
        match points.iter_mut().find(|point| point.batch_size == batch_size) {
            // Some of its runs fit into memory and count.
            Some(point) if point.outcome.is_ok() => continue,
            Some(point) => point.outcome = outcome,
            None => points.push(BatchPoint { batch_size, outcome, is_warned: false, is_doubtful: false }),
        }
        points.sort_by_key(|point| point.batch_size);
        if batch_size == tried_batch_size {
            table.shortages.push(*shortage);
        }
    }
}

impl BatchPoint {
    /// Makes a point of the runs of a case.
    pub fn new<R: Readable, F>(
        case: &CaseRuns<R, F>,
        batch_size: u32,
        utilization: Option<Utilization>,
        is_doubtful: bool,
    ) -> BatchPoint {
        let figures = case.speed().map(|speed| BatchFigures {
            speed,
            cv: case.speeds().cv(),
            runs: case.numbered_speeds(),
            peak_memory: case.peak_memory(),
            utilization,
        });
        let outcome = figures.ok_or(Missing::NoRun);
        BatchPoint { batch_size, outcome, is_warned: !case.warnings.is_empty(), is_doubtful }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmark_core::host::memory_shortage::MemoryShortage;

    #[test]
    fn out_of_memory_batch_is_added_to_its_series() {
        let point =
            |batch_size| BatchPoint { batch_size, outcome: Err(Missing::NoRun), is_warned: false, is_doubtful: false };
        let series = BatchSeries {
            model: Model::Resnet18,
            sequence_length: None,
            dtype: Dtype::Fp32,
            case: Case::SINGLE,
            points: vec![point(8)],
        };
        let table = |series| BatchTable {
            device: None,
            devices: String::new(),
            image_size: None,
            strategy: Strategy::AllReduce,
            is_quick: false,
            settings: BTreeMap::new(),
            series,
            shortages: Vec::new(),
        };
        let memory = MemoryShortage { taken: Bytes(15), total: Bytes(16) };
        let shortage = |model, batch_size| Shortage {
            model,
            dtype: Dtype::Fp32,
            strategy: Strategy::AllReduce,
            case: Case::SINGLE,
            is_baseline: false,
            batch_size,
            tried_batch_size: 64,
            is_global: false,
            sequence_length: None,
            memory,
        };
        let mut tables = [table(Vec::new()), table(vec![series])];
        let baseline = Shortage { is_baseline: true, ..shortage(Model::Resnet18, 32) };
        let shortages =
            [shortage(Model::Resnet18, 128), shortage(Model::Resnet18, 64), shortage(Model::Resnet50V1b, 64), baseline];
        add_shortages(&mut tables, &shortages);
        let sizes: Vec<u32> = tables[1].series[0].points.iter().map(|point| point.batch_size).collect();
        assert_eq!(sizes, [8, 64, 128]);
        assert_eq!(tables[1].series[0].points[2].outcome, Err(Missing::OutOfMemory));
        assert_eq!(tables[1].shortages, [shortage(Model::Resnet18, 64)], "128 was not tried");
        // Network that does not fit at any batch size.
        assert_eq!((tables[0].series.len(), tables[0].series[0].model), (1, Model::Resnet50V1b));
    }
}

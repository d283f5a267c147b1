//! Figures with unit and meaning, and the case, run or message they describe. Names and units are those of the result
//! JSON, in Prometheus's base units: seconds, bytes, ratios from 0 to 1.

use ringmark_core::dimension::{Seconds, WorkUnit};
use ringmark_core::host::host_list::compact;

use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::load::environment::{self, EnvironmentText, NONE};

/// Number of host names from which a compact list is used, because InfluxDB limits strings to 64 KB.
const MOST_HOSTS: usize = 65;

/// Detail with the reasons why figures are unreliable.
pub const RELIABILITY_WARNINGS: &str = "reliability_warnings";

/// Kind of a figure: `phase` in `seconds`.
#[derive(Debug, PartialEq, Eq)]
pub struct FigureKind {
    /// Name without the unit; empty if the unit is the whole name.
    stem: &'static str,
    /// Last part of the name, and the figure's unit; empty for a plain number.
    pub unit: &'static str,
    /// Help text: one sentence without a full stop, and without quotation marks, which one format would have to escape.
    pub meaning: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub kind: &'static FigureKind,
    /// Label that distinguishes figures of one kind, for example `("phase", "forward")`.
    pub part: Option<(&'static str, &'static str)>,
    pub value: Value,
}

/// A number with its type, for formats that distinguish types.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Finite number.
    Float(f64),
    Integer(u64),
    Flag(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Case,
    Run,
    Message,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExportedSeries {
    pub scope: Scope,
    /// Labels that identify it within its scope; no value is empty.
    pub labels: Vec<(&'static str, String)>,
    /// Devices and software; they do not identify the series.
    pub details: Vec<(&'static str, String)>,
    /// Start time, of a case that of its first run; `None` if no record contains it.
    pub started: Option<Seconds>,
    /// Figures that exist; missing ones are left out.
    pub figures: Vec<Figure>,
}

macro_rules! figures {
    ($($name:ident = ($stem:literal, $unit:literal), $meaning:literal;)+) => {
        $(#[doc = $meaning] pub static $name: FigureKind = FigureKind { stem: $stem, unit: $unit, meaning: $meaning };)+
    };
}

figures! {
    INFO = ("info", ""), "Environment as labels; the value is 1";
    IMAGES_PER_SECOND = ("", "images_per_second"), "Images per second of all ranks, median over the runs of a case";
    IMAGES_PER_SECOND_PER_RANK = ("", "images_per_second_per_rank"), "Images per second per rank";
    TOKENS_PER_SECOND = ("", "tokens_per_second"), "Tokens per second of all ranks, median over the runs of a case";
    TOKENS_PER_SECOND_PER_RANK = ("", "tokens_per_second_per_rank"), "Tokens per second per rank";
    RANKS = ("ranks", ""), "Ranks, one per GPU";
    CV_OF_IMAGES = ("images_per_second_cv", "ratio"), "Coefficient of variation of images per second over runs";
    CV_OF_TOKENS = ("tokens_per_second_cv", "ratio"), "Coefficient of variation of tokens per second over runs";
    SPEEDUP = ("speedup", "ratio"), "Speed relative to the base, which is 1n1g if measured";
    EFFICIENCY = ("efficiency", "ratio"), "Speedup divided by the ratio of ranks to those of the base; 1 is perfect";
    STEP = ("step", "seconds"), "Mean time of a training iteration";
    PHASE = ("phase", "seconds"), "Mean time of a phase";
    EXPOSED = ("exposed_allreduce", "ratio"), "Share of the step spent in all-reduce not hidden by backward";
    COMMUNICATION_COST = ("communication_cost", "ratio"), "Step / step of the same ranks without communication - 1";
    LOST = ("lost", "seconds"), "Step minus the step of the base";
    SCALING_LOSS = ("scaling_loss", "seconds"), "Part of the scaling loss; the parts add up to it";
    PEAK_MEMORY = ("peak_memory", "bytes"), "Largest memory use of a rank: tensors on a GPU, resident memory on a \
        CPU";
    FLOP_RATE = ("", "floating_point_operations_per_second"), "FLOP rate of the network on all ranks";
    PRODUCT_SHARE = ("matrix_product_share", "ratio"), "FLOP rate of the network / measured rate of matrix \
        products on the same devices";
    PEAK_SHARE = ("published_peak_share", "ratio"), "Model FLOPs utilization: FLOP rate / published peak";
    POWER = ("power", "watts"), "Mean reported power of devices, processors and memory on all hosts after warm-up";
    ENERGY_OF_IMAGE = ("", "joules_per_image"), "Energy per image: mean power / images per second";
    ENERGY_OF_TOKEN = ("", "joules_per_token"), "Energy per token: mean power / tokens per second";
    RELIABLE = ("reliable", ""), "1 if the figures are reliable, 0 if a warning marks them as unreliable";
    RUNS_COUNTED = ("runs_counted", ""), "Runs included in the figures";
    RUNS_FOUND = ("runs_found", ""), "Runs found, including those that do not count";
    WARNINGS = ("warnings", ""), "Number of warnings, which extract prints";
    ITERATION = ("iteration", "seconds"), "Time of an iteration after warm-up over all ranks";
    PASS = ("pass", "seconds"), "Time of an inference pass: mean of the slowest rank, percentiles over all ranks";
    FOREIGN_LOAD = ("foreign_load", "ratio"), "Largest share of a host's core time used by other processes";
    LAST_LOSS = ("last_loss", ""), "Mean cross entropy of the last iteration over all ranks";
    SKIPPED_STEPS = ("skipped_steps", ""), "Updates skipped because a gradient was not finite";
    ITERATIONS = ("iterations", ""), "Iterations, including warm-up";
    WARMUP = ("warmup_iterations", ""), "Warm-up iterations, excluded from the figures";
    STARTED = ("started_timestamp", "seconds"), "Start time in seconds since 1970 UTC";
    MESSAGE = ("message", "bytes"), "Size of the array, including the parts of all ranks";
    CALL = ("call", "seconds"), "Mean time of a call over ranks and iterations";
    ALGORITHM_BANDWIDTH = ("algorithm", "bytes_per_second"), "Size / time (algbw of nccl-tests)";
    BUS_BANDWIDTH = ("bus", "bytes_per_second"), "Algorithm bandwidth times the factor of the operation (busbw of \
        nccl-tests)";
    WRONG = ("wrong_elements", ""), "Elements that differ from the exact result";
}

macro_rules! of_units {
    ($($function:ident = $images:ident, $tokens:ident;)+) => {
        $(pub const fn $function(unit: WorkUnit) -> &'static FigureKind {
            match unit {
                WorkUnit::Image => &$images,
                WorkUnit::Token => &$tokens,
            }
        })+
    };
}

of_units! {
    speed = IMAGES_PER_SECOND, TOKENS_PER_SECOND;
    speed_per_rank = IMAGES_PER_SECOND_PER_RANK, TOKENS_PER_SECOND_PER_RANK;
    cv = CV_OF_IMAGES, CV_OF_TOKENS;
    energy = ENERGY_OF_IMAGE, ENERGY_OF_TOKEN;
}

impl FigureKind {
    /// Returns the name with its unit: `phase_seconds`.
    pub fn name(&self) -> String {
        join([self.stem, self.unit])
    }
}

impl Figure {
    /// Returns the name of the kind, including the part: `phase_forward_seconds`.
    pub fn name(&self) -> String {
        join([self.kind.stem, self.part.map_or("", |(_, part)| part), self.kind.unit])
    }
}

fn join<const COUNT: usize>(parts: [&str; COUNT]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("_")
}

impl Scope {
    pub fn prefix(self) -> &'static str {
        match self {
            Scope::Case => "ringmark",
            Scope::Run => "ringmark_run",
            Scope::Message => "ringmark_bandwidth",
        }
    }
}

impl ExportedSeries {
    /// Creates a series without figures; empty labels are left out.
    pub fn new(scope: Scope, labels: Vec<(&'static str, String)>, started: Option<Seconds>) -> ExportedSeries {
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        ExportedSeries { scope, labels, details: Vec::new(), started, figures: Vec::new() }
    }

    /// Adds a figure, unless it is missing or not finite.
    pub fn add(&mut self, kind: &'static FigureKind, value: Option<impl Into<Value>>) {
        self.add_part(kind, None, value);
    }

    /// Adds a figure that has several parts, such as phases.
    pub fn add_part(
        &mut self,
        kind: &'static FigureKind,
        part: Option<(&'static str, &'static str)>,
        value: Option<impl Into<Value>>,
    ) {
        let value = value.map(Into::into).filter(|value| !matches!(value, Value::Float(number) if !number.is_finite()));
        self.figures.extend(value.map(|value| Figure { kind, part, value }));
    }

    /// Adds the mean and percentiles 50, 75, 90 and 95 of times, in seconds.
    pub fn add_times(&mut self, kind: &'static FigureKind, mean: Option<f64>, percentiles: Option<[f64; 4]>) {
        self.add_part(kind, Some(("statistic", "mean")), mean);
        for (name, value) in ["p50", "p75", "p90", "p95"].into_iter().zip(percentiles.into_iter().flatten()) {
            self.add_part(kind, Some(("statistic", name)), Some(value));
        }
    }

    /// Adds whether the figures are reliable, and the reasons if they are not.
    pub fn add_reliability(&mut self, warnings: &[ReliabilityWarning]) {
        self.add(&RELIABLE, Some(warnings.is_empty()));
        let reasons = reliability::reasons(warnings).join("; ");
        self.details.extend(Some((RELIABILITY_WARNINGS, reasons)).filter(|(_, reasons)| !reasons.is_empty()));
    }

    /// Returns the text of a detail; `None` if it is missing.
    pub fn detail(&self, name: &str) -> Option<&str> {
        self.details.iter().find(|(own, _)| *own == name).map(|(_, text)| text.as_str())
    }

    /// Adds the devices and software found in the environment.
    pub fn describe(&mut self, found: &EnvironmentText) {
        const DETAILS: [(&str, &str); 8] = [
            ("device_name", environment::DEVICE_NAME),
            ("host", environment::HOST),
            ("ringmark_worker", environment::WORKER),
            ("libtorch", environment::LIBTORCH),
            ("mpi", environment::MPI),
            ("nccl", environment::NCCL),
            ("nvidia_driver", environment::DRIVER),
            ("nccl_chose", environment::NCCL_CHOSE),
        ];
        for (label, name) in DETAILS {
            let mut words: Vec<&str> =
                found.get(name).into_iter().flatten().map(String::as_str).filter(|word| *word != NONE).collect();
            let text = match words.len() {
                MOST_HOSTS.. if name == environment::HOST => {
                    words.sort_by_key(|word| (word.len(), *word));
                    compact(words)
                }
                _ => words.join(", "),
            };
            self.details.extend(Some((label, text)).filter(|(_, text)| !text.is_empty()));
        }
    }
}

impl Value {
    /// Returns the number. Counts and bytes stay below 2^53, so they are exact as floats.
    pub fn number(self) -> f64 {
        match self {
            Value::Float(number) => number,
            Value::Integer(number) => number as f64,
            Value::Flag(flag) => f64::from(u8::from(flag)),
        }
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Integer(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::Integer(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Value {
        Value::Integer(value as u64)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Flag(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_unit() {
        let of = |kind, part| Figure { kind, part, value: Value::Flag(true) }.name();
        assert_eq!((PHASE.name().as_str(), RANKS.name().as_str()), ("phase_seconds", "ranks"));
        assert_eq!(of(&PHASE, Some(("phase", "forward"))), "phase_forward_seconds");
        assert_eq!(of(&IMAGES_PER_SECOND, None), "images_per_second");
    }

    #[test]
    fn reasons_of_unreliable_figures_are_a_detail() {
        let mut series = ExportedSeries::new(Scope::Run, Vec::new(), None);
        series.add_reliability(&[]);
        assert_eq!(series.detail(RELIABILITY_WARNINGS), None);
        series.add_reliability(&[reliability::quick_profile_warning()]);
        let values: Vec<Value> = series.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [Value::Flag(true), Value::Flag(false)]);
        assert!(
            series.detail(RELIABILITY_WARNINGS).is_some_and(|text| text.starts_with("quick profile")),
            "{series:?}"
        );
    }

    #[test]
    fn missing_values_are_omitted() {
        let mut series =
            ExportedSeries::new(Scope::Run, vec![("case", "1n1g".to_owned()), ("device", String::new())], None);
        series.add(&STEP, Some(f64::NAN));
        series.add(&STEP, None::<f64>);
        series.add(&RANKS, Some(2_u32));
        assert_eq!(series.labels, [("case", "1n1g".to_owned())]);
        assert_eq!(series.figures, [Figure { kind: &RANKS, part: None, value: Value::Integer(2) }]);
    }
}

//! Input of the prediction model: the steps of every measured case, from a folder or a published row, and the latency
//! and bandwidth of each level, from a bandwidth result.

use std::collections::BTreeSet;

use anyhow::{Context, bail, ensure};
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, MessageResult};
use ringmark_core::benchmark::optimizer::OptimizerChoice;
use ringmark_core::dimension::{
    BackendName, BatchShape, Bytes, Case, DeviceKind, Operation, Phase, Strategy, UnitsPerSecond, Wire,
};
use ringmark_core::file::run_name::Point;
use ringmark_core::options::usage::usage;
use ringmark_core::shell::CommandWords;
use ringmark_core::stats::allreduce_model::{Algorithm, Cost, Exchange, LatencyModel};
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::scaling_loss::{RunStep, StepTimes};

use crate::read::analyze::prediction::exchange_pattern::{ExchangePart, ExchangePattern};
use crate::read::analyze::published::scaling::{Published, PublishedCase};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::conclusion;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::scaling_loss;
use crate::read::analyze::training::title::title;

/// Share of the step that backward takes if the log does not contain it: about two thirds.
const BACKWARD: f64 = 2.0 / 3.0;

/// Measured cases of equal conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Description of the measurement and its hardware, one entry per line.
    pub title: Vec<String>,
    /// Key of the group in the JSON of `ringmark extract`.
    pub label: String,
    /// Network, precision, batch size and strategy.
    pub point: Point,
    /// Communication pattern of the strategy.
    pub pattern: ExchangePattern,
    /// Case that efficiency is relative to: 1n1g, or the smallest measured case.
    pub base: Case,
    /// Measured cases by number of ranks; each has at least one run.
    pub cases: Vec<CaseEvidence>,
    /// True if figures of the runs are unreliable, which makes predictions unreliable.
    pub is_unreliable: bool,
    /// Warnings about the runs, starting with those about reliability.
    pub warnings: Vec<String>,
    /// Command that resumes the sweep; `None` without a manifest.
    pub resume_command: Option<CommandWords>,
    /// Straggler of the largest case, as named in its warning; `None` if there is none.
    pub straggler: Option<String>,
    /// Backend that summed the gradients; `None` without records of several ranks.
    pub backend: Option<BackendName>,
    /// Device kind and the wire format of the gradients; `None` without records.
    pub conditions: Option<(DeviceKind, Wire)>,
    /// Cores of the first host, if the ranks used them; `None` on GPUs and without records.
    pub cores: Option<u32>,
    /// Algorithm that reduces the gradients.
    pub exchange: Exchange,
    /// Sizes of the buckets as fp32.
    pub buckets: Vec<Bytes>,
    /// Samples of the strategy's collectives alone, by case.
    pub bandwidth: Vec<(Case, Vec<Sample>)>,
}

/// One measured case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseEvidence {
    /// Nodes and ranks per node.
    pub case: Case,
    /// Runs of the case, at least one.
    pub runs: Vec<RunStep>,
    /// Time that can hide the exchange, in seconds: backward, and also forward if weights are gathered for it. Without
    /// records, a fixed share of the step.
    pub hiding: f64,
    /// True if the single run is a published median of runs that were not published.
    pub is_median: bool,
    /// True if this is the single rank of `all-reduce`, which a sweep runs once for all strategies.
    pub is_of_all_reduce: bool,
}

/// Measured time of one message size.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Cost of the messages in this case, sent one after another.
    pub cost: Cost,
    /// Total time of the messages in seconds.
    pub time: f64,
}

impl CaseEvidence {
    fn new(case: Case, runs: Vec<RunStep>, hiding: Option<f64>) -> Option<CaseEvidence> {
        let mut case = CaseEvidence { case, runs, hiding: f64::NAN, is_median: false, is_of_all_reduce: false };
        case.hiding = hiding.or_else(|| Some(BACKWARD * case.steps().median_by_rate()?))?;
        Some(case)
    }

    /// Returns the step time of every run in seconds.
    pub fn steps(&self) -> RunValues {
        self.runs.iter().map(|run| run.step).collect()
    }

    /// Returns the median step time over runs in seconds, which corresponds to the speed of the case.
    pub fn step(&self) -> f64 {
        self.steps().median_by_rate().unwrap_or(f64::NAN)
    }

    /// Returns the step times with their parts; `None` if a run does not have them.
    pub fn phases(&self) -> Option<Steps> {
        self.runs.iter().map(|run| Some((run.step, run.times?))).collect::<Option<_>>().map(Steps)
    }
}

/// Accessor for one part of a step.
pub type Part = fn(&(f64, StepTimes)) -> f64;

/// Step times of the runs of a case in seconds, and their parts.
pub struct Steps(Vec<(f64, StepTimes)>);

impl Steps {
    /// Returns one part of the step for every run.
    pub fn values(&self, part: impl Fn(&(f64, StepTimes)) -> f64) -> RunValues {
        self.0.iter().map(part).collect()
    }

    /// Returns the mean of a part over the runs.
    pub fn mean(&self, part: Part) -> f64 {
        self.values(part).mean()
    }
}

impl Evidence {
    /// Returns the evidence of one group with this strategy; `None` if no run counts.
    pub fn from_group(group: &TrainingGroup, pattern: ExchangePattern) -> Option<Evidence> {
        let case = |case| case_evidence(group, case, pattern.hiding_phases());
        let of_all_reduce = group.common_base.as_deref().and_then(case);
        let of_all_reduce = of_all_reduce.map(|single| CaseEvidence { is_of_all_reduce: true, ..single });
        let own = group.cases.iter().filter_map(case);
        let cases: Vec<CaseEvidence> = of_all_reduce.into_iter().chain(own).collect();
        // The largest case: a single rank reduces nothing.
        let recorded = group.cases.iter().rev().flat_map(|case| &case.runs).find_map(|run| run.recorded.as_ref());
        let buckets = recorded.map_or_else(Vec::new, |recorded| recorded.facts.buckets.clone());
        let exchange = recorded.map_or(Exchange { algorithm: Algorithm::Ring, chunk: None }, |recorded| {
            let chunk = Bytes(u64::from(recorded.conditions.config.exchange.chunk_kb) * 1000);
            Exchange::for_backend(recorded.facts.backend, chunk)
        });
        let backend = recorded.map(|recorded| recorded.facts.backend).filter(|backend| *backend != BackendName::Solo);
        let conditions = group.conditions.recorded.as_ref();
        let conditions = conditions.map(|recorded| (recorded.device, recorded.config.exchange.wire));
        let on_cpu = recorded.filter(|recorded| recorded.conditions.device == DeviceKind::Cpu);
        Some(Evidence {
            title: title(group),
            label: group.label.clone(),
            point: group.conditions.point,
            pattern,
            base: group.base?,
            cases,
            is_unreliable: !group.assessment().is_reliable(),
            warnings: warnings(group),
            resume_command: None,
            straggler: group.cases.iter().rev().find(|case| case.figures.is_some()).and_then(conclusion::straggler),
            backend,
            conditions,
            cores: on_cpu.map(|recorded| recorded.environment.cores),
            exchange,
            buckets,
            bandwidth: Vec::new(),
        })
    }

    /// Returns the evidence of a published row.
    pub fn from_published(row: &Published) -> Evidence {
        let case = |case: &PublishedCase| {
            let work = BatchShape::per_rank(row.batch_size).work(case.case);
            let speeds = if case.runs.is_empty() { std::slice::from_ref(&case.median.0) } else { case.runs };
            let runs = speeds.iter().map(|speed| RunStep { step: work / speed, times: None }).collect();
            let evidence = CaseEvidence::new(case.case, runs, None)?;
            Some(CaseEvidence { is_median: case.runs.is_empty(), ..evidence })
        };
        Evidence {
            title: [row.name, row.source, row.setup].map(str::to_owned).into(),
            label: row.name.to_owned(),
            point: Point {
                model: row.model,
                batch: BatchShape::per_rank(row.batch_size),
                dtype: row.dtype,
                strategy: Strategy::AllReduce,
            },
            pattern: ExchangePattern::AllReduce,
            base: Case::SINGLE,
            cases: row.cases.iter().filter_map(case).collect(),
            is_unreliable: false,
            warnings: Vec::new(),
            resume_command: None,
            straggler: None,
            backend: None,
            conditions: None,
            cores: None,
            exchange: Exchange { algorithm: Algorithm::Ring, chunk: None },
            buckets: Vec::new(),
            bandwidth: Vec::new(),
        }
    }

    /// Adds the times of the strategy's collectives from a bandwidth result; an error if their conditions differ from
    /// those of the runs.
    pub fn with_bandwidth(mut self, records: &[(Case, BandwidthRecord)]) -> anyhow::Result<Evidence> {
        for (case, record) in
            records.iter().filter(|(_, record)| self.pattern.operations().contains(&record.config.operation))
        {
            self.check(record)
                .with_context(|| format!("the bandwidth of {case} does not apply to {}", self.label))
                .map_err(usage)?;
            self.bandwidth.push((*case, samples(*case, record)));
        }
        Ok(self)
    }

    /// Rejects a record of another backend, device or wire format, or with more than the collective.
    fn check(&self, record: &BandwidthRecord) -> anyhow::Result<()> {
        let device = record.ranks.first().map(|rank| rank.device);
        if let (Some((expected, _)), Some(found)) = (self.conditions, device) {
            ensure!(expected == found, "it was measured on {found}, but the runs used {expected}: use the same device");
        }
        let wire = record.config.exchange.wire;
        if self.conditions.is_some() {
            let (expected, level) = (self.wire(), if self.pattern.is_hybrid() { " between hosts" } else { "" });
            ensure!(
                wire == expected,
                "it sent {wire}, but the runs sent {expected}{level}: measure with --wire {expected}"
            );
        }
        ensure!(
            record.config.optimizer == OptimizerChoice::None,
            "its times include the weight update: measure without --optimizer"
        );
        let compression = record.config.gradient_compression;
        ensure!(
            compression.is_none(),
            "it used --gradient-compression {compression}, but predictions assume uncompressed sums: measure without it"
        );
        let strategy = record.config.strategy.strategy;
        ensure!(
            strategy == Strategy::AllReduce,
            "it used --strategy {strategy}, but predictions need the time of a collective: measure without --strategy"
        );
        match self.backend {
            Some(backend) if backend != record.backend => bail!(
                "it was measured with {}, but the runs used {backend}: measure both with the same --backend",
                record.backend
            ),
            _ => Ok(()),
        }
    }

    /// Returns the evidence of a case.
    pub fn case(&self, case: Case) -> Option<&CaseEvidence> {
        self.cases.iter().find(|measured| measured.case == case)
    }

    /// Returns the step time of the base.
    pub fn base_step(&self) -> f64 {
        self.case(self.base).map_or(f64::NAN, CaseEvidence::step)
    }

    /// Returns the mean of a part of the base's step; 0 without records.
    pub fn base_mean(&self, part: Part) -> f64 {
        self.case(self.base).and_then(CaseEvidence::phases).map_or(0.0, |base| base.mean(part))
    }

    /// Returns the number of servers of a case; `None` if it has none, as the single rank of `all-reduce`.
    pub fn servers(&self, case: Case) -> Option<u32> {
        let is_own = self.case(case).is_none_or(|measured| !measured.is_of_all_reduce);
        self.pattern.server_number(case).filter(|_| is_own)
    }

    /// Returns the strategy of the base.
    pub fn base_strategy(&self) -> Strategy {
        match self.case(self.base) {
            Some(base) if base.is_of_all_reduce => Strategy::AllReduce,
            _ => self.point.strategy,
        }
    }

    /// Returns a copy without one case.
    pub fn without(&self, case: Case) -> Evidence {
        let mut rest = self.clone();
        rest.cases.retain(|measured| measured.case != case);
        rest.bandwidth.retain(|(measured, _)| *measured != case);
        rest
    }

    /// Returns a copy in which no rank waits for a straggler; `None` if no straggler was named, or if no record
    /// contains the waiting time.
    pub fn without_straggler(&self) -> Option<Evidence> {
        self.straggler.as_ref()?;
        let mut rest = self.clone();
        for run in rest.cases.iter_mut().flat_map(|case| &mut case.runs) {
            let times = run.times.as_mut()?;
            run.step -= times.waiting;
            times.phases[Phase::ExposedAllreduce] -= times.waiting;
            times.waiting = 0.0;
        }
        Some(Evidence { straggler: None, ..rest })
    }

    /// Returns the wire format of the gradients between hosts. Those of `hsdp` are sums of parts, which keep fp32.
    fn wire(&self) -> Wire {
        self.conditions.filter(|_| !self.pattern.is_hybrid()).map_or(Wire::Fp32, |(_, wire)| wire)
    }

    /// Returns the cost of these parts of the exchange in a case.
    pub fn cost(&self, case: Case, parts: &[ExchangePart]) -> Cost {
        let whole = [self.point.model.facts().gradient_bytes()];
        let buckets = if self.buckets.is_empty() { &whole[..] } else { &self.buckets };
        let messages = parts.iter().flat_map(|part| self.pattern.messages(*part, buckets, self.wire()));
        let messages: Vec<Bytes> = messages.collect();
        if !self.pattern.is_hybrid() {
            return self.exchange.half_cost(case, &messages);
        }
        // The ranks of a host share its link: each sends its parts to the same rank of the other hosts.
        let sharing = case.gpus_per_node;
        let parts: Vec<Bytes> = messages.iter().map(|message| Bytes(message.0.div_ceil(u64::from(sharing)))).collect();
        let Cost { steps, bytes } = self.exchange.half_cost(Case { gpus_per_node: 1, ..case }, &parts);
        Cost { steps, bytes: f64::from(sharing) * bytes }
    }

    /// Returns the cost of the whole exchange in a case.
    pub fn whole_cost(&self, case: Case) -> Cost {
        match self.pattern {
            // The gather that follows the update is the first of the next forward.
            ExchangePattern::Shards { gathers: 1.., .. } => self.cost(case, &[ExchangePart::Transfer]),
            _ => self.cost(case, self.pattern.exchange_parts()),
        }
    }

    /// Returns latency and bandwidth within a host.
    pub fn inside(&self) -> Option<LatencyModel> {
        self.line(|case| case.nodes == 1)
    }

    /// Returns latency and bandwidth between hosts with this many ranks each: the number of ranks that share a network
    /// card affects both.
    pub fn between(&self, gpus_per_node: u32) -> Option<LatencyModel> {
        self.line(|case| case.nodes > 1 && case.gpus_per_node == gpus_per_node)
    }

    /// Returns true if the bandwidth result shows how the cost between hosts with this many ranks grows with the number
    /// of hosts. A result for a single number of hosts does not.
    pub fn shows_growth(&self, gpus_per_node: u32) -> bool {
        let is_level = |case: &Case| case.nodes > 1 && case.gpus_per_node == gpus_per_node;
        let hosts = self.bandwidth.iter().map(|(case, _)| *case).filter(is_level).map(|case| case.nodes);
        hosts.collect::<BTreeSet<u32>>().len() > 1
    }

    fn line(&self, of_level: impl Fn(Case) -> bool) -> Option<LatencyModel> {
        let cases = self.bandwidth.iter().filter(|(case, _)| of_level(*case) && case.ranks() > 1);
        let samples = cases.flat_map(|(_, samples)| samples).map(|sample| (sample.cost, sample.time));
        LatencyModel::fit(&samples.collect::<Vec<_>>())
    }

    /// Returns the speed of a case with this step time.
    pub fn speed(&self, case: Case, step: f64) -> UnitsPerSecond {
        UnitsPerSecond(self.point.batch.work(case) / step)
    }
}

fn warnings(group: &TrainingGroup) -> Vec<String> {
    let assessment = group.assessment();
    let unreliable = assessment.unreliable_sentences().into_iter().map(|sentence| format!("unreliable: {sentence}"));
    unreliable.chain(assessment.warnings).collect()
}

fn case_evidence(group: &TrainingGroup, case: &TrainingCase, hiding: &[Phase]) -> Option<CaseEvidence> {
    let times = case.figures.as_ref()?.times;
    let hiding = times.map(|times| hiding.iter().map(|phase| times.phases[*phase].0).sum());
    CaseEvidence::new(case.case, scaling_loss::runs(case, group.conditions.point.batch), hiding)
}

/// Returns the samples of a record, in-place ones if available because gradients are reduced in place. The cost of a
/// message follows from the backend and chunk size of the record itself.
fn samples(case: Case, record: &BandwidthRecord) -> Vec<Sample> {
    let chunk = Bytes(u64::from(record.config.exchange.chunk_kb) * 1000);
    let exchange = Exchange::for_backend(record.backend, chunk);
    let operation = record.config.operation;
    let sample = |result: &MessageResult| {
        let time = result.in_place.as_ref().or(result.out_of_place.as_ref())?.mean()?.0;
        // Gradients are counted as fp32, whatever the wire format.
        let element = result.element.parse::<Wire>().ok()?.bytes() as f64;
        let parts = if operation.is_divided() { f64::from(case.ranks()) } else { 1.0 };
        let share = parts * result.count as f64 * element / result.bytes.0.max(1) as f64;
        let on_the_wire = |bucket: &Bytes| Bytes((bucket.0 as f64 * share) as u64);
        let messages: Vec<Bytes> = result.buckets.iter().map(on_the_wire).collect();
        let cost = match operation {
            Operation::AllReduce => exchange.cost(case, &messages),
            _ => exchange.half_cost(case, &messages),
        };
        (time > 0.0).then_some(Sample { cost, time })
    };
    record.results.iter().filter_map(sample).collect()
}

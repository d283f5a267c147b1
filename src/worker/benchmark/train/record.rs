//! The record of a run: rank 0 gathers the samples and checksums of all ranks, checks and writes them.

use anyhow::Result;
use ringmark_core::benchmark::data_input::DataInputUse;
use ringmark_core::benchmark::measured_and_warmup;
use ringmark_core::benchmark::strategy::gathers::{self, GatherUse};
use ringmark_core::benchmark::strategy::{ServerUse, Staleness, StrategyUse};
use ringmark_core::benchmark::train::{
    CheckpointCost, CheckpointWrite, EpochEnd, Fingerprints, Iteration, RankFingerprints, RunEnd, RunHeader, RunRecord,
    TrainConfig,
};
use ringmark_core::benchmark::warning;
use ringmark_core::dimension::{Bytes, Phase, Phases, Seconds, Strategy, TeraflopsPerSecond};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::summary;
use ringmark_core::trace::{GradientArray, OperatorProfile};
use ringmark_core::untrusted_text::printable_lines;
use ringmark_core::validity;

use crate::benchmark::train::graphs::GraphUse;
use crate::data::Batches;
use crate::data::reader::ReadUse;
use crate::exchange::compression::facts::CompressionFacts;
use crate::job::host_watch::CountersOfRun;
use crate::job::session::Session;
use crate::job::world::World;
use crate::measure::step_timer::{Sample, StepTimer, WeightWaits};
use crate::measure::trace::Profiles;
use crate::measure::{matrix_product, memory_copy};
use crate::model;

/// Measurements of this rank.
pub struct RankMeasurements {
    /// One sample for each iteration since the run was last resumed.
    pub samples: Vec<Sample>,
    /// Iterations gathered so far, earlier parts of the run included.
    pub recorded: GatheredIterations,
    /// Counters of all hosts and ranks.
    pub counters: CountersOfRun,
    /// Time from the start of the first iteration to the end of the last one.
    pub wall: Seconds,
    /// Peak memory of every rank.
    pub peak_memory: Vec<Bytes>,
    /// Use of servers or owners of weights.
    pub strategy: Option<StrategyUse>,
    /// Sizes and residual of the code, if gradients were compressed.
    pub compression: Option<CompressionFacts>,
    pub input: Option<DataInputUse>,
    /// Epochs that were trained completely.
    pub epochs: Vec<EpochEnd>,
    pub checkpoints: Vec<CheckpointWrite>,
    /// Time of the computations that backward repeated, per iteration, in seconds.
    pub recompute: Option<f64>,
    pub profiles: Profiles,
    pub fingerprints: Option<RankFingerprints>,
    pub graphs: GraphUse,
}

/// Iterations of all ranks gathered so far on rank 0; empty on other ranks.
pub struct GatheredIterations {
    /// All iterations of the run.
    pub iterations: Vec<Iteration>,
    /// Samples that are contained in `iterations`.
    gathered_samples: usize,
}

impl GatheredIterations {
    /// Continues after `iterations`.
    pub fn new(iterations: Vec<Iteration>) -> GatheredIterations {
        GatheredIterations { iterations, gathered_samples: 0 }
    }

    /// Gathers the rest of `samples`. All ranks call this together.
    pub fn take(&mut self, world: &World, samples: &[Sample]) {
        let rest = iterations(world, &samples[self.gathered_samples..], self.iterations.len() as u32);
        self.iterations.extend(rest);
        self.gathered_samples = samples.len();
    }
}

/// Gathers the results of all ranks; rank 0 writes the record, valid or not. Returns the reason why the run is invalid,
/// if any.
pub fn gather(
    session: &Session,
    header: RunHeader,
    checksum: &str,
    measured: RankMeasurements,
) -> Result<Option<String>> {
    let RankMeasurements {
        samples,
        mut recorded,
        counters,
        wall,
        peak_memory,
        strategy,
        compression,
        input,
        epochs,
        checkpoints,
        recompute,
        profiles,
        fingerprints,
        graphs,
    } = measured;
    let world = session.world;
    let GraphUse { choice, no_graph } = graphs;
    let config = TrainConfig { graphs: choice, ..header.config.clone() };
    let header = RunHeader { ranks: remaining_ranks(&header, strategy.as_ref()), config, no_graph, ..header };
    recorded.take(world, &samples);
    let iterations = recorded.iterations;
    let checksums = world.gather_text(checksum);
    let recompute: Vec<Seconds> = world.gather_values(&recompute)?.into_iter().flatten().map(Seconds).collect();
    let fingerprints = fingerprints.map(|own| world.gather_values_on_rank_0(&own)).transpose()?;
    let matrix_product = matrix_product::rates(world, session.device(), header.config.dtype, wall);
    // Finds defects together with the fingerprints; other runs do not spend the time. Ranks on CPUs share the memory:
    // their rates depend on other copies at the same time.
    let memory_copy = match header.config.fingerprint && session.device().is_cuda() {
        true => memory_copy::rates(world, session.device(), wall),
        false => Vec::new(),
    };
    let end = RunEnd {
        failure: None,
        iterations: iterations.len() as u32,
        skipped_steps: iterations.iter().filter(|iteration| iteration.skipped).count() as u32,
        wall,
        parameter_checksums: checksums,
        fingerprints: fingerprints.map(|ranks| Fingerprints::from_ranks(&ranks)),
        peak_memory,
        matrix_product,
        memory_copy,
        attention: model::attention_kernel(),
        strategy,
        compression: compression.map(|compression| compression.used(world)),
        epochs,
        checkpoints,
        recompute,
        layers: profiles.layers,
        operators: profiles.operators,
        input,
        program: None,
        nccl: session.nccl_lines(),
        host_use: counters.hosts,
        rank_use: counters.ranks,
        warnings: Vec::new(),
    };
    let mut record = RunRecord { header, iterations, end: Some(end) };
    // Only rank 0 has the times and losses of all ranks.
    let own = if world.rank() == 0 { validity::invalidity(&record) } else { None };
    let own = own.map(|reason| reason.to_string()).unwrap_or_default();
    let failure = Some(world.broadcast_text(own)).filter(|failure| !failure.is_empty());
    if world.rank() == 0 {
        let warnings = validity::warnings(&record, record.header.config.warmup as usize);
        if let Some(end) = &mut record.end {
            (end.failure, end.warnings) = (failure.clone(), warnings);
        }
        summary_lines(&record).iter().for_each(|line| println!("# {}", printable_lines(line)));
        session.write(record.header.config.record.as_deref(), |output| record.write(output))?;
    }
    world.barrier();
    Ok(failure)
}

/// Returns the ranks that were not lost, whose samples are available.
fn remaining_ranks(header: &RunHeader, strategy: Option<&StrategyUse>) -> Vec<RankPlace> {
    let lost = |place: &&RankPlace| strategy.is_some_and(|used| used.lost.iter().any(|lost| lost.rank == place.rank));
    header.ranks.iter().filter(|place| !lost(place)).cloned().collect()
}

/// Numbers of a sample in addition to its phases, and in total.
const OTHERS: usize = 3;
const NUMBERS: usize = OTHERS + Phase::COUNT;

/// Memory in bytes for numbers that rank 0 gathers at a time: it does not grow with ranks and iterations.
const GATHERED_BYTES: usize = 1 << 24;

/// Returns the number of iterations to gather at a time from this number of ranks.
///
/// 65,536 ranks of 8 numbers of 8 bytes are 4 MB: four iterations.
fn iterations_per_gather(ranks: usize) -> usize {
    (GATHERED_BYTES / (NUMBERS * size_of::<f64>() * ranks.max(1))).max(1)
}

fn iterations(world: &World, samples: &[Sample], before: u32) -> Vec<Iteration> {
    let parts = samples.chunks(iterations_per_gather(world.ranks() as usize)).scan(before, |before, part| {
        let gathered = gathered(world, part, *before);
        *before += part.len() as u32;
        Some(gathered)
    });
    parts.flatten().collect()
}

fn gathered(world: &World, samples: &[Sample], before: u32) -> Vec<Iteration> {
    let sample_values = |sample: &Sample| -> Vec<f64> {
        let phases = sample.phases.iter().map(|(_, time)| *time);
        [sample.step, sample.before_allreduce, sample.loss].into_iter().chain(phases).collect()
    };
    let own: Vec<f64> = samples.iter().flat_map(sample_values).collect();
    let all = world.gather_on_rank_0(&own);
    let iteration = |(index, sample): (usize, &Sample)| {
        let by_rank = |number: usize| all.chunks_exact(own.len()).map(move |rank| rank[NUMBERS * index + number]);
        let seconds = |number: usize| by_rank(number).map(Seconds).collect();
        Iteration {
            iteration: before + index as u32 + 1,
            step: seconds(0),
            before_allreduce: seconds(1),
            loss: by_rank(2).collect(),
            phases: Phases::from_fn(|phase| seconds(OTHERS + phase as usize)),
            loss_scale: sample.loss_scale,
            skipped: sample.skipped,
        }
    };
    samples.iter().enumerate().map(iteration).collect()
}

/// Returns the input of all ranks, including the input `before` the run was resumed. All ranks call this together.
pub fn input(world: &World, batches: &Batches, before: Option<&DataInputUse>) -> Result<Option<DataInputUse>> {
    let Some(ReadUse { what, items, augmentation, own, skipped }) = batches.used() else { return Ok(None) };
    let ranks = world.gather_values(&own)?;
    let skipped = world.gather_values(&skipped)?.concat();
    let used = DataInputUse { what, items, augmentation, ranks, skipped };
    Ok(Some(match before {
        Some(before) => used.merge_earlier(before),
        None => used,
    }))
}

/// Returns the gathers of weights of all ranks, by phase and bucket; empty on other ranks than 0. `arrays` are in backward
/// order. All ranks call this together.
pub fn gathers(world: &World, timer: &StepTimer, arrays: &[GradientArray]) -> Result<Vec<GatherUse>> {
    let own: Vec<((Phase, usize), WeightWaits)> =
        timer.weight_waits().iter().map(|(place, waits)| (*place, *waits)).collect();
    let all = world.gather_values_on_rank_0(&own)?;
    let iterations = f64::from(timer.measured());
    let mut gathers = Vec::new();
    for (number, ((phase, bucket), _)) in all.first().into_iter().flatten().enumerate() {
        let of_bucket = || arrays.iter().filter(|array| array.bucket as usize == *bucket);
        let name = |array: Option<&GradientArray>| array.map(|array| array.name.clone()).unwrap_or_default();
        let ranks: Vec<WeightWaits> = all.iter().map(|rank| rank[number].1).collect();
        let of_ranks = |value: fn(&WeightWaits) -> f64| -> Vec<f64> { ranks.iter().map(value).collect() };
        let mean = |value: fn(&WeightWaits) -> f64| summary::mean(&of_ranks(value)).unwrap_or(0.0);
        let each = of_ranks(|waits| waits.gather / f64::from(waits.gathers.max(1)));
        gathers.push(GatherUse {
            bucket: *bucket as u32,
            weights: [name(of_bucket().next_back()), name(of_bucket().next())],
            phase: *phase,
            gathers: mean(|waits| waits.gathers.into()) / iterations,
            received: Bytes(ranks.iter().map(|waits| waits.received).max().unwrap_or(0)),
            gather: Seconds(summary::mean(&each).unwrap_or(0.0)),
            transfer: Seconds(each.iter().copied().fold(f64::INFINITY, f64::min)),
            wait: Seconds(mean(|waits| waits.wait) / iterations),
            host: Seconds(mean(|waits| waits.host) / iterations),
        });
    }
    Ok(gathers)
}

/// Returns the last lines of the log: length and speed of the run, DLPerf's speed, and warnings.
fn summary_lines(record: &RunRecord) -> Vec<String> {
    let Some(end) = &record.end else { return Vec::new() };
    let config = &record.header.config;
    let length = format!(
        "{} iterations in {:.3}, {} skipped, weights {}",
        measured_and_warmup(end.iterations.saturating_sub(config.warmup), config.warmup),
        end.wall,
        end.skipped_steps,
        end.parameter_checksums[0]
    );
    // The iteration lines show the values of rank 0.
    let global_loss = record.header.work_division.as_ref().and(record.iterations.last());
    let global_loss = global_loss.and_then(|last| record.header.global_loss(&last.loss));
    let global_loss = global_loss.map(|loss| format!("loss of the global batch in the last iteration: {loss:.6}"));
    let speed = record.speed(config.warmup as usize);
    let speed =
        speed.map(|speed| format!("speed: {:.2} {}{}", speed.0, config.model.unit().per_second(), rates(record)));
    let strategy = end.strategy.iter().flat_map(|used| strategy_lines(record.header.config.strategy.strategy, used));
    let compression = end.compression.as_ref().map(|used| format!("{}: {}", config.gradient_compression, used.text()));
    let input = end.input.as_ref().map(|input| format!("input: {}", input.text(config.sample_size())));
    let checkpoints = CheckpointCost::new(&end.checkpoints, end.wall).map(|cost| cost.text());
    let attention = end.attention.map(|kernel| format!("attention: {kernel}"));
    let recompute = end.recompute_time().map(|time| format!("recompute: {time:.3} of an iteration"));
    let rates_of_products: Vec<f64> = end.matrix_product.iter().map(|rate| rate.0).collect();
    let rate = summary::mean(&rates_of_products).map(TeraflopsPerSecond);
    let layers = end.layers.iter().flat_map(|layers| layers.lines(rate));
    let operators = end.operators.iter().flat_map(OperatorProfile::lines);
    let nccl = end.nccl.iter().map(|line| format!("NCCL: {line}"));
    [length]
        .into_iter()
        .chain(global_loss)
        .chain(speed)
        .chain(attention)
        .chain(recompute)
        .chain(strategy)
        .chain(compression)
        .chain(input)
        .chain(checkpoints)
        .chain(layers)
        .chain(operators)
        .chain(nccl)
        .chain(warning::lines(&end.warnings))
        .collect()
}

/// Formats the spread of the iteration rates: images of all ranks divided by rank 0's time. Empty for a single
/// iteration.
fn rates(record: &RunRecord) -> String {
    let RunRecord { header, iterations, .. } = record;
    let work = header.config.batch().work(header.case);
    let counted = iterations.iter().skip(header.config.warmup as usize);
    let rates: Vec<f64> = counted.map(|iteration| work / iteration.step[0].0).collect();
    let text = |(mean, cv)| format!("; rates by iteration: mean {mean:.2}, CV {:.2} %", 100.0 * cv);
    summary::mean(&rates).zip(summary::coefficient_of_variation(&rates)).map(text).unwrap_or_default()
}

/// Describes the memory and traffic of each server and rank, and the staleness of weights.
fn strategy_lines(store: Strategy, used: &StrategyUse) -> Vec<String> {
    let megabytes = |bytes: &Bytes| format!("{:.2} MB", bytes.megabytes());
    let each = |all: &[Bytes]| all.iter().map(megabytes).collect::<Vec<_>>().join(", ");
    let mut lines = Vec::new();
    for (number, server) in used.servers.iter().enumerate() {
        let ServerUse { host, parts, weights, received, sent } = server;
        lines.push(format!(
            "server {number}: host {host}, {} of weights in {parts} parts; receives {} and sends {} per step",
            megabytes(weights),
            megabytes(received),
            megabytes(sent)
        ));
    }
    if !used.owned.is_empty() {
        lines.push(format!("{store}: ranks update {}", each(&used.owned)));
    }
    if let Some(imbalance) = used.imbalance() {
        lines.push(format!("{store}: the largest holds {imbalance:.3} times the mean"));
    }
    if !used.sent_by_rank.is_empty() {
        let (sent, received) = (each(&used.sent_by_rank), each(&used.received_by_rank));
        lines.push(format!("{store}: ranks send {sent} and receive {received} per step"));
    }
    let longest_wait = gathers::longest_wait(&used.gathers);
    lines.extend(longest_wait.map(|(longest, cause)| format!("{store}: {}", longest.text(cause))));
    if let Some(Staleness { pushes, median, p95, maximum }) = used.staleness {
        lines.push(format!(
            "{store}: staleness of {pushes} pushes: median {median}, 95 % {p95}, maximum {maximum} updates by others"
        ));
    }
    lines
}

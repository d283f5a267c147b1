//! Bandwidth benchmark: all-reduce or another operation without training, with increasing sizes like nccl-tests, or
//! with the gradients of a model like MXNet's measure.py. The backends are those of training.

mod copied_weights;
mod gradients;
mod memory_limit;
mod messages;
mod source_values;
mod task;
mod timing;
mod values;

use anyhow::Result;
use ringmark_core::benchmark::bandwidth::config::{LineFormat, Messages};
use ringmark_core::benchmark::bandwidth::{BandwidthConfig, BandwidthRecord, FailureKind, lines};
use ringmark_core::benchmark::measured_and_warmup;
use ringmark_core::benchmark::warning;
use ringmark_core::dimension::{Model, Operation, Strategy};
use ringmark_core::host::{LauncherAddress, unix_time};
use ringmark_core::validity;

use crate::benchmark::bandwidth::gradients::GradientBench;
use crate::exchange::kv_store::server;
use crate::job::cores::CoreRequest;
use crate::job::environment;
use crate::job::host_watch::CountersOfRun;
use crate::job::session::{ServerBody, Servers, Session, SessionRequest};

/// Runs one rank from start to end.
pub fn run(config: &BandwidthConfig, launcher: Option<LauncherAddress>) -> Result<()> {
    let cores = CoreRequest { threads: config.threads, cores_divided_by: None, bind: config.bind };
    let nccl = Some(config.exchange.nccl_algo);
    let server_request = gradients::request(config);
    let body: ServerBody = Box::new(move |world| server::run(&server_request, world));
    let servers = Some(Servers { number: config.strategy.server_ranks(), body });
    let request =
        SessionRequest { device: config.device, cores, nccl, with_nccl_log: true, computes: true, launcher, servers };
    Session::run(request, |session| measure(config, session))
}

/// Measures, prints and writes; returns the reason why the run is invalid, if any.
fn measure(config: &BandwidthConfig, session: &Session) -> Result<Option<String>> {
    let world = session.world;
    let config = &config.on(session.own.kind);
    config.validate_for(world.ranks())?;
    let ranks = session.places()?;
    let config =
        &BandwidthConfig { bind: config.bind.resolve(ranks.iter().map(|rank| &rank.binding)), ..config.clone() };
    let mut record = BandwidthRecord::new(unix_time(), config.clone(), session.environment()?, ranks);
    let (counters, bench) = match config.messages {
        Messages::Sizes { .. } => (sizes(config, session, &mut record)?, None),
        Messages::Gradients(model) => network(config, model, session, &mut record)?,
    };
    (record.host_use, record.rank_use) = (counters.hosts, counters.ranks);
    record.warnings = validity::host_warnings(&record);
    // The limit by memory bandwidth is known only for all-reduce.
    if session.device() == tch::Device::Cpu && world.ranks() > 1 && is_all_reduce(config) {
        record.memory = Some(memory_limit::measure(&record.results, world));
    }
    record.nccl = session.nccl_lines();
    bench.map_or(Ok(()), GradientBench::leave)?;
    (record.failure, record.failure_kind) = failure(&record).unzip();
    session.print(&closing(&record));

    session.write(config.json.as_deref(), |output| record.write(output))?;
    Ok(record.failure)
}

/// Measures increasing sizes; returns the counters of hosts and ranks.
fn sizes<'a>(
    config: &'a BandwidthConfig,
    session: &'a Session<'a>,
    record: &mut BandwidthRecord,
) -> Result<CountersOfRun> {
    let world = session.world;
    let mut bench = messages::Bench::new(config, session)?;
    record.backend = bench.backend().name();
    record.sum_dtype = bench.backend().sum_dtype(config.exchange.wire);
    session.print(&header(record));
    let watch = session.start_counters()?;
    session.print(&[lines::table_header()]);
    for size in bench.sizes() {
        let result = bench.size(size, world)?;
        session.print(&[lines::row(&result, config.operands(), world.ranks())]);
        record.results.push(result);
    }
    session.print(&[lines::footer(&record.results, record.bus())]);
    let counters = session.end_counters(watch)?;
    bench.end()?;
    Ok(counters)
}

/// Measures the gradients of a network. The returned exchange is still connected.
fn network<'a>(
    config: &'a BandwidthConfig,
    model: Model,
    session: &'a Session<'a>,
    record: &mut BandwidthRecord,
) -> Result<(CountersOfRun, Option<GradientBench<'a>>)> {
    let mut bench = GradientBench::new(config, model, session)?;
    let exchange = bench.exchange().facts();
    (record.backend, record.sum_dtype) = (exchange.backend, exchange.sum_dtype);
    session.print(&header(record));
    let (arrays, facts) = (bench.arrays(), model.facts());
    let watch = session.start_counters()?;
    let (result, used) = bench.measure()?;
    let printed = |lines: Vec<String>| match config.format {
        LineFormat::Plain => lines,
        LineFormat::Measure => lines.iter().map(|line| format!("INFO:root:{line}")).collect(),
    };
    if config.format == LineFormat::Measure {
        session.print(&printed(vec![lines::namespace(config, model, session.world.local_ranks())]));
    }
    session.print(&printed(vec![lines::arrays(arrays, result.bytes)]));
    session.print(&[lines::trained_arrays(facts.arrays, facts.gradient_bytes(), config.arrays)]);
    session.print(&printed(lines::iterations(&result, session.world.ranks(), config.disp_batches)));
    session.print(&lines::unchecked(&result).into_iter().collect::<Vec<_>>());
    session.print(&used.lines(config.strategy.strategy));
    record.results.push(result);
    record.gradients = Some(used);
    session.print(&[lines::average(&record.results, record.bus())]);
    Ok((session.end_counters(watch)?, Some(bench)))
}

/// Returns true if the benchmark is a plain all-reduce.
fn is_all_reduce(config: &BandwidthConfig) -> bool {
    config.operation == Operation::AllReduce && config.strategy.strategy == Strategy::AllReduce
}

fn header(record: &BandwidthRecord) -> Vec<String> {
    let BandwidthRecord { config, backend, sum_dtype, environment, ranks, .. } = record;
    let check = if config.check { "checked" } else { "not checked" };
    let mut lines = vec![
        format!(
            "ringmark {} {} over {} ranks by {backend}",
            environment.ringmark_version,
            config.operands().text(),
            ranks.len()
        ),
        format!(
            "{} iterations, wire {}, results {check}, optimizer {}",
            measured_and_warmup(config.iterations, config.warmup),
            config.gradient_compression.with_sum(config.exchange.wire, *sum_dtype),
            config.optimizer
        ),
    ];
    lines.extend(config.strategy.line());
    lines.extend(environment::lines(environment, ranks));
    lines.iter().map(|line| format!("# {line}")).collect()
}

fn closing(record: &BandwidthRecord) -> Vec<String> {
    let ranks = record.ranks.len() as u32;
    let nodes = record.ranks.iter().filter(|place| place.local_rank == 0).count() as u32;
    let mut closing = lines::pairs(record);
    closing.push(lines::spread(&record.results));
    closing.extend(record.memory.as_ref().map(|limit| lines::memory(limit, &record.results, ranks)));
    if is_all_reduce(&record.config) {
        closing.extend(lines::network_card(&record.results, nodes, ranks));
    }
    closing.extend(record.nccl.iter().map(|line| format!("# NCCL: {line}")));
    closing.extend(warning::lines(&record.warnings).map(|line| format!("# {line}")));
    closing
}

/// Returns the first reason why the run is invalid.
fn failure(record: &BandwidthRecord) -> Option<(String, FailureKind)> {
    let wrong = record.results.iter().find_map(values::failure);
    let below = || lines::below_minimum(&record.results, record.bus(), record.config.min_busbw?);
    let wrong = wrong.map(|text| (text, FailureKind::WrongResults));
    wrong.or_else(|| below().map(|text| (text, FailureKind::BelowMinimum)))
}

//! All-reduce alone, or another operation, under mpirun: growing sizes as nccl-tests has them, or a model's gradients as MXNet's measure.py
//! has them. Reads top to bottom; not for the backends, which are training's own.

mod memory_limit;
mod messages;
mod moved;
mod task;
mod values;

use anyhow::Result;
use ringmark_record::benchmark::bandwidth::config::{BandwidthConfig, Messages};
use ringmark_record::benchmark::bandwidth::lines;
use ringmark_record::benchmark::bandwidth::record::BandwidthRecord;
use ringmark_record::benchmark::measured_and_warmup;
use ringmark_record::dimension::operation::Operation;
use ringmark_record::host::heartbeat::LauncherAddress;
use ringmark_record::validity;

use crate::host::facts;
use crate::job::cores::AskedThreads;
use crate::job::environment;
use crate::job::session::{Request, Session};

/// Runs one rank from start to end.
pub fn run(config: &BandwidthConfig, launcher: Option<LauncherAddress>) -> Result<()> {
    let threads = AskedThreads { number: config.threads, cores_divided_by: None };
    let nccl = Some(config.exchange.nccl_algo);
    let request = Request { device: config.device, threads, nccl, with_nccl_log: true, launcher };
    Session::run(request, |session| measure(config, session))
}

/// Measures, prints and writes; why the run does not count, if it does not.
fn measure(config: &BandwidthConfig, session: &Session) -> Result<Option<String>> {
    let world = session.world;
    config.validate_for(world.ranks())?;
    let ranks = session.places();
    let mut record = BandwidthRecord::new(facts::now(), config.clone(), session.environment()?, ranks);
    let mut bench = messages::Bench::new(config, session)?;
    record.backend = bench.backend().name().to_owned();
    record.sum_dtype = bench.backend().sum_dtype(config.exchange.wire);
    session.print(&header(&record));

    let watch = session.start_counters();
    match config.messages {
        Messages::Sizes { .. } => {
            session.print(&[lines::table_header()]);
            for size in bench.sizes() {
                let result = bench.size(size, world)?;
                session.print(&[lines::row(&result, config.operands(), world.ranks())]);
                record.results.push(result);
            }
            session.print(&[lines::footer(&record.results, record.bus())]);
        }
        Messages::Gradients(model) => {
            let result = bench.gradients(world)?;
            let facts = model.facts();
            session.print(&[
                lines::arrays(bench.arrays(), result.bytes),
                lines::trained_arrays(facts.arrays, facts.gradient_bytes(), config.arrays),
            ]);
            session.print(&lines::iterations(&result, world.ranks()));
            record.results.push(result);
            session.print(&[lines::average(&record.results, record.bus())]);
        }
    }
    let counters = session.end_counters(watch)?;
    (record.host_use, record.rank_use) = (counters.hosts, counters.ranks);
    record.warnings = validity::host_warnings(&record.observed());
    // What the memory allows is known of an all-reduce alone.
    if session.device() == tch::Device::Cpu && world.ranks() > 1 && config.operation == Operation::AllReduce {
        record.memory = Some(memory_limit::measure(&record.results, world));
    }
    record.nccl = session.nccl_lines();
    record.failure = failure(&record);
    session.print(&closing(&record));

    session.write(config.json.as_deref(), |output| record.write(output))?;
    Ok(record.failure)
}

fn header(record: &BandwidthRecord) -> Vec<String> {
    let BandwidthRecord { config, backend, sum_dtype, environment, ranks, .. } = record;
    let exchange = &config.exchange;
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
            exchange.wire.with_sum(*sum_dtype),
            config.optimizer
        ),
    ];
    lines.extend(environment::lines(environment, ranks));
    lines.iter().map(|line| format!("# {line}")).collect()
}

fn closing(record: &BandwidthRecord) -> Vec<String> {
    let ranks = record.ranks.len() as u32;
    let nodes = record.ranks.iter().filter(|place| place.local_rank == 0).count() as u32;
    let mut closing = vec![lines::spread(&record.results)];
    closing.extend(record.memory.as_ref().map(|limit| lines::memory(limit, &record.results, ranks)));
    if record.config.operation == Operation::AllReduce {
        closing.extend(lines::network_card(&record.results, nodes, ranks));
    }
    closing.extend(record.nccl.iter().map(|line| format!("# NCCL: {line}")));
    closing.extend(record.warnings.iter().map(|warning| format!("# warning: {}", warning.text)));
    closing
}

/// The first reason why the run does not count.
fn failure(record: &BandwidthRecord) -> Option<String> {
    let below = || lines::below_minimum(&record.results, record.bus(), record.config.min_busbw?);
    record.results.iter().find_map(values::failure).or_else(below)
}

//! All-reduce alone, under mpirun: growing sizes as nccl-tests has them, or a model's gradients as MXNet's measure.py
//! has them. Reads top to bottom; not for the engines, which are training's own.

mod memory_limit;
mod messages;
mod values;

use anyhow::Result;
use ringmark_record::bandwidth::config::{BandwidthConfig, Messages};
use ringmark_record::bandwidth::lines;
use ringmark_record::bandwidth::record::{BandwidthRecord, MessageResult};
use ringmark_record::heartbeat::Driver;
use ringmark_record::whole_file;

use crate::exchange::backend::nccl_log;
use crate::ffi::libraries::{self, NcclLog};
use crate::host::facts;
use crate::job::device::DeviceOfRank;
use crate::job::environment;
use crate::job::heartbeat;
use crate::job::world::World;

/// Runs one rank from start to end.
pub fn live(config: &BandwidthConfig, driver: Option<Driver>) -> Result<()> {
    // Before anything else: NCCL and libtorch look at their surroundings only once.
    let log = NcclLog::ask_for(config.device);
    heartbeat::begin(driver);
    let cuda = libraries::load_cuda(config.device);
    World::run(|world| measure(config, world, cuda, &log))
}

/// Measures, prints and writes; why the run does not count, if it does not.
fn measure(
    config: &BandwidthConfig,
    world: &World,
    cuda: Result<libraries::CudaLibraries, String>,
    log: &NcclLog,
) -> Result<Option<String>> {
    let own = DeviceOfRank::choose(config.device, config.threads, world, cuda.as_ref())?;
    let nccl = own.nccl(cuda.as_ref())?;
    let ranks = environment::places(world, &own);
    let environment = environment::environment(&own, nccl.as_deref())?;
    let mut record = BandwidthRecord::new(facts::now(), config.clone(), environment, ranks);
    let mut bench = messages::Bench::new(config, world, own.device, nccl.as_ref())?;
    record.collective = bench.engine_name().to_owned();
    say(world, &header(&record));

    match config.messages {
        Messages::Sizes { .. } => {
            say(world, &[lines::table_header()]);
            for size in config.sizes() {
                let result = bench.size(size, world)?;
                say(world, &[lines::row(&result, world.ranks())]);
                record.results.push(result);
            }
            say(world, &[lines::footer(&record.results, world.ranks())]);
        }
        Messages::Gradients(_) => {
            let result = bench.gradients(world)?;
            say(world, &[lines::arrays(bench.arrays(), result.bytes)]);
            say(world, &lines::iterations(&result, world.ranks()));
            record.results.push(result);
            say(world, &[lines::average(&record.results, world.ranks())]);
        }
    }
    if own.device == tch::Device::Cpu && world.ranks() > 1 {
        record.memory = Some(memory_limit::measure(&record.results, world));
    }
    record.nccl = said_by_any(world, nccl_log::parse(&log.read()).lines());
    record.failure = failure(config, &record.results, world.ranks());
    say(world, &closing(&record));

    if let (Some(path), 0) = (&config.json, world.rank()) {
        whole_file::write(path, |output| record.write(output))?;
    }
    Ok(record.failure)
}

/// Every line that a rank has, once: rank 0 knows the choices, and each rank its own connections.
fn said_by_any(world: &World, lines: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in world.gather_text(&lines.join("\n")) {
        for line in text.lines() {
            if !all.iter().any(|known| known == line) {
                all.push(line.to_owned());
            }
        }
    }
    all
}

/// Rank 0 speaks for all.
fn say(world: &World, lines: &[String]) {
    if world.rank() == 0 {
        lines.iter().for_each(|line| println!("{line}"));
    }
}

fn header(record: &BandwidthRecord) -> Vec<String> {
    let BandwidthRecord { config, collective, environment, ranks, .. } = record;
    let exchange = &config.exchange;
    let check = if config.check { "checked" } else { "not checked" };
    let mut lines = vec![
        format!("ringmark {} all-reduce over {} ranks by {collective}", environment.ringmark_version, ranks.len()),
        format!(
            "{} iterations after {} of warm-up, wire {}, results {check}, optimizer {}",
            config.iterations, config.warmup, exchange.wire, config.optimizer
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
    closing.extend(lines::network_card(&record.results, nodes, ranks));
    closing.extend(record.nccl.iter().map(|line| format!("# NCCL: {line}")));
    closing
}

/// The first reason why the run does not count.
fn failure(config: &BandwidthConfig, results: &[MessageResult], ranks: u32) -> Option<String> {
    results.iter().find_map(values::failure).or_else(|| lines::below_minimum(results, ranks, config.min_busbw?))
}

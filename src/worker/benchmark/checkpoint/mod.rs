//! Checkpoint benchmark: all ranks start a checkpoint together, write their files, and read them back from the storage.
//! One combination of writers, files, input and output, and work of the ranks after the other.

mod files;
mod state;
mod storage;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ringmark_core::benchmark::checkpoint::{
    CheckpointConfig, CheckpointRecord, CheckpointResult, Combination, ProductTimes, RankCheckpoint, WriteMode, lines,
    parts, slow_hosts,
};
use ringmark_core::benchmark::{measured_and_warmup, warning};
use ringmark_core::dimension::{Bytes, Dtype, Seconds};
use ringmark_core::host::{LauncherAddress, Stage, unix_time};
use ringmark_core::validity;

use crate::benchmark::checkpoint::files::{FileCleaner, RankFiles, TemporaryFiles, WrittenFiles, seconds_since};
use crate::benchmark::checkpoint::state::CheckpointState;
use crate::job::cores::CoreRequest;
use crate::job::session::{Session, SessionRequest};
use crate::job::{environment, heartbeat};
use crate::measure::matrix_product::MatrixProduct;
use crate::measure::page_cache;

/// Time for which products are measured before each checkpoint.
const ALONE: Duration = Duration::from_millis(500);

/// Runs the benchmark on one rank from start to end.
pub fn run(config: &CheckpointConfig, launcher: Option<LauncherAddress>) -> Result<()> {
    // Before any other thread starts, which would end this process on a signal.
    let cleaner = FileCleaner::start()?;
    let cores = CoreRequest { threads: config.threads, cores_divided_by: None, bind: config.bind };
    let request = SessionRequest::without_sums(config.device, cores, launcher);
    Session::run(request, |session| measure(config, session, &cleaner))
}

/// Measures, prints and writes; returns the reason why the run is invalid, if any.
fn measure(config: &CheckpointConfig, session: &Session, cleaner: &FileCleaner) -> Result<Option<String>> {
    let world = session.world;
    config.validate_for(world.ranks())?;
    heartbeat::enter(Stage::Storage);
    let ranks = session.places()?;
    let bind = config.bind.resolve(ranks.iter().map(|rank| &rank.binding));
    let config = &CheckpointConfig { bind, ..config.clone() };
    let files = cleaner.protect(RankFiles::new(storage::folder_of_run(config, world), world.rank()));
    let storage = storage::prepare(config, files.folder(), &ranks, world)?;
    storage::check_direct(config, &files, world)?;
    let mut record = CheckpointRecord {
        bytes: config.bytes(),
        storage,
        ..CheckpointRecord::new(unix_time(), config.clone(), session.environment()?, ranks)
    };
    session.print(&header(&record));
    let mut bench = Bench { config, session, files, state: None, product: None };
    let watch = session.start_counters()?;
    for combination in config.combinations() {
        session.print(&[format!("# {combination}")]);
        record.results.push(bench.measure(combination)?);
    }
    drop(bench);
    heartbeat::enter(Stage::Finishing);
    let counters = session.end_counters(watch)?;
    (record.host_use, record.rank_use) = (counters.hosts, counters.ranks);
    record.warnings = [validity::host_warnings(&record), slow_hosts(&record)].concat();
    record.warnings.sort_by_key(|warning| warning.kind);
    session.print(&lines::table(&record, validity::disturbance(&record).is_some()));
    session.print(&closing(&record));
    session.write(config.record.as_deref(), |output| record.write(output))?;
    Ok(record.failure)
}

/// A rank with what it keeps from one checkpoint to the next.
struct Bench<'a> {
    config: &'a CheckpointConfig,
    session: &'a Session<'a>,
    files: TemporaryFiles,
    /// Memory of the checkpoint; empty until the first one, and of a rank that writes nothing.
    state: Option<CheckpointState>,
    /// Created for the first checkpoint beside products.
    product: Option<MatrixProduct>,
}

impl Bench<'_> {
    /// Measures all checkpoints of one combination. All ranks call this together.
    fn measure(&mut self, combination: Combination) -> Result<CheckpointResult> {
        let Bench { config, session, .. } = *self;
        let world = session.world;
        let pages = config.bytes().0 / parts::PAGE;
        let own = combination.writers.pages(pages, world.rank(), world.ranks(), world.local_rank());
        if self.state.as_ref().map_or(0, CheckpointState::pages) != own {
            // Freed before the next one is allocated.
            self.state = None;
            self.state = (own > 0).then(|| CheckpointState::new(own, session.device())).transpose()?;
        }
        if combination.mode == WriteMode::Beside && self.product.is_none() {
            self.product = Some(MatrixProduct::measurable(session.device(), Dtype::Fp32)?);
        }
        let mut checkpoints = Vec::new();
        for number in 0..config.warmup + config.iterations {
            let measured = self.checkpoint(combination, number)?;
            if number >= config.warmup {
                checkpoints.push(world.gather_values(&measured)?);
            }
        }
        Ok(CheckpointResult { combination, checkpoints })
    }

    /// Writes a checkpoint of new data, and reads it back from the storage.
    fn checkpoint(&mut self, combination: Combination, number: u32) -> Result<RankCheckpoint> {
        let world = self.session.world;
        self.files.remove()?;
        if let Some(state) = &mut self.state {
            state.change(u64::from(world.rank()) << 32 | u64::from(number))?;
        }
        world.sleeping_barrier();
        let mut measured = match combination.mode {
            WriteMode::Blocking => self.write_blocking(combination)?,
            WriteMode::Beside => self.write_beside(combination)?,
        };
        // Waiting ranks leave their cores to the writers.
        world.sleeping_barrier();
        page_cache::drop_pages(self.files.paths(combination.files).into_iter().filter(|path| path.exists()))?;
        world.sleeping_barrier();
        self.read(combination, &mut measured)?;
        world.sleeping_barrier();
        Ok(measured)
    }

    fn write_blocking(&self, combination: Combination) -> Result<RankCheckpoint> {
        self.session.world.barrier();
        let start = Instant::now();
        let Some(state) = &self.state else { return Ok(RankCheckpoint::default()) };
        let copy = if state.is_on_device() { state.stage()? } else { Seconds::default() };
        let written = self.files.write(state.to_write(), combination, start)?;
        Ok(written.with_copy(state.bytes(), copy))
    }

    /// Writes a copy of the checkpoint by a thread while this rank computes products, until every rank has written.
    fn write_beside(&self, combination: Combination) -> Result<RankCheckpoint> {
        let (world, product) = (self.session.world, self.product.as_ref().context("no matrix for products")?);
        world.barrier();
        let alone = mean_seconds(product)?;
        world.barrier();
        let start = Instant::now();
        let copy = self.state.as_ref().map(CheckpointState::stage).transpose()?.unwrap_or_default();
        let begun = Instant::now();
        let mut count = 0;
        let written = thread::scope(|scope| -> Result<Option<WrittenFiles>> {
            let (files, staging): (&RankFiles, _) = (&self.files, self.state.as_ref().map(CheckpointState::staging));
            let writer = staging.map(|bytes| scope.spawn(move || files.write(bytes, combination, start)));
            let is_done = || writer.as_ref().is_none_or(thread::ScopedJoinHandle::is_finished);
            world.work_until_all(is_done, || {
                product.seconds()?;
                count += 1;
                heartbeat::count_progress();
                Ok(())
            })?;
            writer.map(|writer| writer.join().map_err(|_| anyhow!("the writing thread panicked"))?).transpose()
        })?;
        let products = ProductTimes { count, elapsed: seconds_since(begun), alone: Seconds(alone) };
        let bytes = self.state.as_ref().map(CheckpointState::bytes).unwrap_or_default();
        let measured = written.map(|written| written.with_copy(bytes, copy)).unwrap_or_default();
        Ok(RankCheckpoint { products: Some(products), ..measured })
    }

    /// Reads the files of this rank from the storage, copies them to the device and compares them with what was written.
    fn read(&self, combination: Combination, measured: &mut RankCheckpoint) -> Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        state.clear_staging()?;
        let fetched = page_cache::fetched();
        let start = Instant::now();
        self.files.read(state.staging(), combination)?;
        measured.read = seconds_since(start);
        state.restore()?;
        measured.restore = seconds_since(start);
        let difference = fetched.zip(page_cache::fetched()).map(|(before, now)| Bytes(now.0.saturating_sub(before.0)));
        measured.from_storage = difference;
        ensure!(
            state.is_restored()?,
            "the bytes that were read from {} differ from those that were written: check the storage",
            self.files.folder().display()
        );
        Ok(())
    }
}

/// Returns the mean time of a product over [`ALONE`].
fn mean_seconds(product: &MatrixProduct) -> Result<f64> {
    let (begun, mut count) = (Instant::now(), 0.0);
    while count == 0.0 || begun.elapsed() < ALONE {
        product.seconds()?;
        count += 1.0;
    }
    Ok(begun.elapsed().as_secs_f64() / count)
}

fn header(record: &CheckpointRecord) -> Vec<String> {
    let CheckpointRecord { config, environment, ranks, bytes, storage, .. } = record;
    let mut lines = vec![
        format!(
            "ringmark {} checkpoints of {:.3} GB by {} ranks: {}",
            environment.ringmark_version,
            bytes.gigabytes(),
            ranks.len(),
            config.content()
        ),
        format!(
            "{} checkpoints of each combination in {}, each read back",
            measured_and_warmup(config.iterations, config.warmup),
            config.folder.display()
        ),
    ];
    lines.extend(storage.iter().map(|storage| {
        format!(
            "host {}: {} of {}, {:.1} GB free",
            storage.host,
            storage.file_system,
            storage.source,
            storage.free.gigabytes()
        )
    }));
    lines.extend(environment::lines(environment, ranks));
    lines.iter().map(|line| format!("# {line}")).collect()
}

fn closing(record: &CheckpointRecord) -> Vec<String> {
    let load = validity::disturbance(record);
    lines::warm_reads(record)
        .chain(load.map(|load| load.legend()))
        .chain(warning::lines(&record.warnings))
        .map(|line| format!("# {line}"))
        .collect()
}

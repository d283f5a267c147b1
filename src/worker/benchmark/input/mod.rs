//! Input benchmark: one process per host, all hosts at the same time. Runs training's loader with an increasing number
//! of threads, from disk and from memory, without a network or a device. Like MXNet's `--test-io 1`, with stages, cores
//! and the page cache in addition.

mod pass;
mod source;

use anyhow::{Result, ensure};
use ringmark_core::benchmark::input::{
    HostPass, InputConfig, InputPass, InputRecord, PageCache, ThreadCounts, lines, slow_hosts,
};
use ringmark_core::benchmark::warning;
use ringmark_core::dimension::{BackendName, DeviceChoice};
use ringmark_core::host::{BindChoice, LauncherAddress, Stage, unix_time};
use ringmark_core::number_text::count;
use ringmark_core::validity;

use crate::benchmark::input::pass::Limits;
use crate::benchmark::input::source::Source;
use crate::host::facts;
use crate::job::cores::CoreRequest;
use crate::job::session::{Session, SessionRequest};
use crate::job::{environment, heartbeat};
use crate::measure::page_cache;
use crate::measure::trace::{TracedRun, Tracer};

/// Runs the benchmark on one host from start to end.
pub fn run(config: &InputConfig, launcher: Option<LauncherAddress>) -> Result<()> {
    // libtorch computes nothing here.
    let cores = CoreRequest { threads: Some(1), cores_divided_by: None, bind: BindChoice::None };
    let request = SessionRequest::without_sums(DeviceChoice::Cpu, cores, launcher);
    Session::run(request, |session| measure(config, session))
}

/// Measures, prints and writes; returns the reason why the run is invalid, if any.
fn measure(config: &InputConfig, session: &Session) -> Result<Option<String>> {
    let world = session.world;
    ensure!(
        world.local_ranks() == 1,
        "{} processes on host {}, but each uses all cores: start one per host (mpirun --map-by node)",
        world.local_ranks(),
        world.host()
    );
    heartbeat::enter(Stage::Data);
    let source = Source::open(config)?;
    let mut record = empty_record(config, &source, session)?;
    session.print(&header(&record));
    source.warm_up()?;
    let traced = config.trace.traced(0, config.batches.unwrap_or(u32::MAX));
    let mut tracer = Tracer::start(&config.trace, traced, session)?;
    let watch = session.start_counters()?;
    for cache in config.cache.caches() {
        for &threads in &record.config.decode_threads.0 {
            let own = run_pass(*cache, threads, &record.config, &source, session, tracer.as_mut())?;
            session.print(&[format!("# {}, {}", pass_name(*cache), count(threads, "thread"))]);
            session.print(&lines::test_io(&own, config.batch_size, config.display));
            record.passes.push(InputPass { cache: *cache, threads, hosts: world.gather_values(&own)? });
        }
    }
    heartbeat::enter(Stage::Finishing);
    let counters = session.end_counters(watch)?;
    if let Some(tracer) = tracer {
        let title = format!("reading and decoding {}", record.what);
        tracer.end(TracedRun { title, strategy: None, backend: BackendName::None, arrays: Vec::new() })?;
    }
    (record.host_use, record.rank_use) = (counters.hosts, counters.ranks);
    record.warnings = [validity::host_warnings(&record), slow_hosts(&record)].concat();
    record.warnings.sort_by_key(|warning| warning.kind);
    session.print(&lines::table(&record, validity::disturbance(&record).is_some()));
    session.print(&closing(&record));
    session.write(config.record.as_deref(), |output| record.write(output))?;
    Ok(record.failure)
}

/// Runs one pass on this host. All hosts start it together.
fn run_pass(
    cache: PageCache,
    threads: u32,
    config: &InputConfig,
    source: &Source,
    session: &Session,
    tracer: Option<&mut Tracer>,
) -> Result<HostPass> {
    let limits = Limits::new(cache, config, source);
    match cache {
        PageCache::Cold => page_cache::drop_pages(source.dataset().paths())?,
        PageCache::Warm => source.read_once(config.decode_threads.0.iter().copied().max().unwrap_or(1))?,
    }
    heartbeat::enter(Stage::Ready);
    // Hosts that are still evicting or filling the page cache are not ready. Waiting hosts leave their cores idle.
    session.world.sleeping_barrier();
    let measured = pass::measure(|| source.loader(threads, cache), limits, tracer);
    session.world.sleeping_barrier();
    measured
}

fn empty_record(config: &InputConfig, source: &Source, session: &Session) -> Result<InputRecord> {
    let cores: Vec<u32> =
        session.world.gather(&[f64::from(facts::cores())]).concat().into_iter().map(|cores| cores as u32).collect();
    let decode_threads = ThreadCounts(config.decode_threads.resolve(&cores));
    let config = InputConfig { decode_threads, image_size: Some(config.image_size()), ..config.clone() };
    Ok(InputRecord {
        cores,
        what: source.dataset().description_with_ignored(),
        items: source.assignment.items(),
        stored: source.stored()?,
        augmentation: source.loader.recipe.augmentation,
        decoder: source.decoder()?,
        ..InputRecord::new(unix_time(), config, session.environment()?, session.places()?)
    })
}

fn header(record: &InputRecord) -> Vec<String> {
    let InputRecord { config, environment, ranks, cores, what, items, augmentation, decoder, stored, .. } = record;
    let length = match config.batches {
        Some(batches) => format!("{batches} measured"),
        None => format!("{} s measured", config.seconds),
    };
    let mut lines = vec![
        format!("ringmark {} reading and decoding only: {items} images of {what}", environment.ringmark_version),
        format!(
            "batches of {}, {} px, augmentation {augmentation}{}, shuffle {}",
            config.batch_size,
            config.image_size(),
            decoder.as_ref().map_or_else(String::new, |decoder| {
                format!(", JPEG by {decoder}, scaling {}", config.images.decode_scaling)
            }),
            config.images.shuffle
        ),
        format!(
            "each pass: {length} + {} warm-up batches, {} batches read ahead",
            config.warmup, config.images.prefetch
        ),
    ];
    lines.extend(stored.map(|stored| {
        format!(
            "stored: {:.1} kB, {:.0} px shorter edge, {:.2} Mpx (means of {} images)",
            stored.bytes / 1e3,
            stored.shorter_edge,
            stored.pixels / 1e6,
            stored.sampled
        )
    }));
    lines.extend(environment::lines(environment, &[]));
    let hosts = ranks.iter().zip(cores);
    lines.extend(hosts.map(|(place, cores)| format!("host {}: {}, {cores} cores", place.host, place.device_name)));
    lines.iter().map(|line| format!("# {line}")).collect()
}

/// Returns the name of a pass before it starts.
fn pass_name(cache: PageCache) -> &'static str {
    match cache {
        PageCache::Cold => "after dropping the files from the page cache",
        PageCache::Warm => "after reading the images once",
    }
}

fn closing(record: &InputRecord) -> Vec<String> {
    let load = validity::disturbance(record);
    let ceilings = lines::ceilings(record, load.is_some());
    ceilings
        .into_iter()
        .chain(load.map(|load| load.legend()))
        .chain(warning::lines(&record.warnings))
        .map(|line| format!("# {line}"))
        .collect()
}

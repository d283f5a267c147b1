//! Inference benchmark, like MXNet's benchmark_score.py: warm-up passes, then timed ones, waiting for the outputs of
//! each pass. Normalization uses running statistics, there are no gradients, softmax is the last layer, and one
//! synthetic batch stays on the device. Nothing is exchanged: each rank of a case computes its own batch.
//!
//! On GPUs a timed pass replays a CUDA graph, because launching each kernel takes longer than running it at small batch
//! sizes.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use ringmark_core::benchmark::data_input::DataSource;
use ringmark_core::benchmark::exchange::Switch;
use ringmark_core::benchmark::score::{RectifiedConvolutions, ScoreConfig, ScoreRecord};
use ringmark_core::benchmark::warning;
use ringmark_core::benchmark::{SweepRecord, measured_and_warmup};
use ringmark_core::dimension::{
    BackendName, DeviceKind, Dtype, GraphChoice, Phase, Seconds, TeraflopsPerSecond, UnitsPerSecond,
};
use ringmark_core::host::{LauncherAddress, Stage, unix_time};
use ringmark_core::stats::summary;
use ringmark_core::trace::{Lane, OperatorProfile};
use ringmark_core::validity;
use tch::{Device, Kind, Tensor};

use crate::data;
use crate::data::batch::{Batch, BatchRequest};
use crate::ffi::torch::graph::{Graph, GraphPool};
use crate::ffi::torch::shim::InferenceMode;
use crate::ffi::torch::stream::Stream;
use crate::job::cores::CoreRequest;
use crate::job::session::{RequestedLabel, Session, SessionRequest};
use crate::job::{environment, heartbeat};
use crate::measure::mark::Mark;
use crate::measure::matrix_product;
use crate::measure::trace::recorder::{self, OpenSpan};
use crate::measure::trace::{Profiles, TracedRun, Tracer};
use crate::model;
use crate::model::flat_parameters::WeightMemory;
use crate::model::network::Mode;
use crate::model::networks::NetworkOptions;
use crate::model::prepared::{ModelRequest, PreparedModel};

/// Runs one rank from start to end.
pub fn run(config: &ScoreConfig, label: RequestedLabel, launcher: Option<LauncherAddress>) -> Result<()> {
    let cores = CoreRequest { threads: config.threads, cores_divided_by: config.cores_divided_by, bind: config.bind };
    let request = SessionRequest::without_sums(config.device, cores, launcher);
    Session::run(request, |session| score(config, label, session))
}

/// Measures, prints and writes the record. Returns the reason if the run is invalid.
fn score(config: &ScoreConfig, label: RequestedLabel, session: &Session) -> Result<Option<String>> {
    session.own.check_dtype(config.dtype)?;
    let _no_gradients = tch::no_grad_guard();
    let config = &config.on(session.own.kind);
    let mut inference = Inference::new(config, session)?;
    let _mode = InferenceMode::begin();
    let ranks = session.places()?;
    let config = &ScoreConfig { bind: config.bind.resolve(ranks.iter().map(|rank| &rank.binding)), ..config.clone() };
    let label = session.label(label, &ranks)?;
    let mut record = ScoreRecord::new(label, unix_time(), config.clone(), session.environment()?, ranks);
    session.print(&header(&record));
    let mut run = || {
        measure(&mut inference, &mut record, session)?;
        record.peak_memory = session.peak_memory()?;
        judge(&inference, &mut record, session)
    };
    match session.device() {
        // CUDA cannot capture the default stream.
        Device::Cuda(index) if config.graphs != GraphChoice::Off => Stream::run_on_side_stream(index, run)?,
        _ => run()?,
    }
    record.matrix_product = matrix_product::rates(session.world, session.device(), config.dtype, record.elapsed());
    record.warnings = validity::host_warnings(&record);
    session.print(&result(&record));
    session.write(config.record.as_deref(), |output| record.write(output))?;
    Ok(record.failure)
}

struct Inference {
    model: PreparedModel,
    batch: Batch,
    mode: Mode,
    /// Replayed instead of running the layers.
    captured: Option<CapturedPass>,
}

struct CapturedPass {
    probabilities: Tensor,
    graph: Graph,
}

impl Inference {
    fn new(config: &ScoreConfig, session: &Session) -> Result<Inference> {
        let layout = config.layout.resolve(config.dtype, session.own.kind);
        let request = ModelRequest {
            model: config.model,
            options: NetworkOptions::default(),
            seed: config.seed,
            init: config.init.as_deref(),
            dtype: config.dtype,
            layout,
            memory: WeightMemory::Whole,
        };
        let model = PreparedModel::new(&request, session.device())?;
        model.round()?;
        heartbeat::enter(Stage::Data);
        let request = BatchRequest {
            source: DataSource::Synthetic,
            seed: config.seed,
            samples: config.batch_size,
            first: session.world.rank() * config.batch_size,
            size: config.sample_size(),
            model: config.model,
            layout,
        };
        let batch = data::batch(&request, session.world.rank(), session.device())?;
        let mode = if config.fold == Switch::On { Mode::Folded } else { Mode::Inference };
        Ok(Inference { model, batch, mode, captured: None })
    }

    /// Computes the probabilities of the network's outputs and waits for them.
    fn pass(&self) -> Result<Tensor> {
        let probabilities = match &self.captured {
            Some(CapturedPass { probabilities, graph }) => {
                graph.replay()?;
                probabilities.shallow_clone()
            }
            None => self.compute()?,
        };
        Mark::set(self.model.device())?.wait(|| Ok(()))?;
        Ok(probabilities)
    }

    fn compute(&self) -> Result<Tensor> {
        self.model.probabilities(&self.batch.inputs, &self.batch.targets, self.mode)
    }

    /// Captures a pass, which later passes replay. Fails if the replay computes other probabilities than the layers.
    fn capture(&mut self) -> Result<()> {
        const MAX_DIFFERENCE: f64 = 1e-3;
        let before = self.pass()?;
        let (graph, probabilities) = Graph::capture(GraphPool::new()?, || self.compute())?;
        self.captured = Some(CapturedPass { probabilities, graph });
        let replayed = self.pass()?;
        let is_same = replayed.f_allclose(&before, 0.0, MAX_DIFFERENCE, /* NaN equals NaN */ true)?;
        ensure!(is_same, "the replayed graph and the layers compute different probabilities");
        Ok(())
    }
}

/// Runs all passes; a barrier precedes the warm-up passes and the timed ones.
fn measure(inference: &mut Inference, record: &mut ScoreRecord, session: &Session) -> Result<()> {
    let config = record.config.clone();
    let pass = |inference: &Inference, number: u32| -> Result<Seconds> {
        heartbeat::enter_in(number, Stage::Forward);
        let started = Instant::now();
        let _ = inference.pass()?;
        heartbeat::count_progress();
        let seconds = Seconds(started.elapsed().as_secs_f64());
        heartbeat::time_iteration(seconds, Some(seconds));
        Ok(seconds)
    };
    heartbeat::enter(Stage::Ready);
    session.world.barrier();
    (1..=config.warmup).try_for_each(|number| pass(inference, number).map(drop))?;
    session.reset_peak_memory()?;
    capture(inference, record, session)?;
    let traced = config.trace.traced(0, config.iterations);
    let mut tracer = Tracer::start(&config.trace, traced, session)?;
    let watch = session.start_counters()?;
    session.world.barrier();
    let timed = |number: u32| -> Result<f64> {
        if let Some(tracer) = &mut tracer {
            tracer.begin_iteration(number)?;
        }
        let span = recorder::begin(Lane::Step, Phase::Forward.description(), None);
        let seconds = pass(inference, config.warmup + number)?;
        span.into_iter().for_each(OpenSpan::end);
        recorder::end_iteration();
        Ok(seconds.0)
    };
    let own = (1..=config.iterations).map(timed).collect::<Result<Vec<f64>>>()?;
    heartbeat::enter(Stage::Finishing);
    let counters = session.end_counters(watch)?;
    if let Some(tracer) = tracer {
        let title = format!(
            "{} inference, {}, {}",
            config.model.facts().title,
            config.batch().per_process("rank"),
            config.dtype
        );
        let run = TracedRun { title, strategy: None, backend: BackendName::None, arrays: Vec::new() };
        Profiles { layers: record.layers, operators: record.operators } = tracer.end(run)?;
    }
    record.seconds =
        session.world.gather(&own).into_iter().map(|rank| rank.into_iter().map(Seconds).collect()).collect();
    (record.host_use, record.rank_use) = (counters.hosts, counters.ranks);
    Ok(())
}

/// Captures the pass if requested and possible, on all ranks or on none.
fn capture(inference: &mut Inference, record: &mut ScoreRecord, session: &Session) -> Result<()> {
    let ScoreConfig { graphs, warmup, ref trace, .. } = record.config;
    if graphs == GraphChoice::Off {
        return Ok(());
    }
    let own = match (session.device(), trace.traced(0, record.config.iterations)) {
        (Device::Cuda(_), None) if warmup > 0 => inference.capture().map_err(|error| format!("{error:#}")),
        (Device::Cuda(_), None) => Err("--warmup is 0, but a capture needs a warm-up pass".to_owned()),
        (Device::Cuda(_), Some(_)) => Err("layers are traced, which a replay cannot do".to_owned()),
        _ => Err("CUDA graphs need a GPU".to_owned()),
    };
    let reasons = session.world.gather_text(own.as_ref().err().map_or("", |reason| reason));
    let Some((rank, reason)) = reasons.iter().enumerate().find(|(_, reason)| !reason.is_empty()) else {
        record.config.graphs = GraphChoice::On;
        return Ok(());
    };
    let reason = format!("rank {rank} cannot capture a CUDA graph: {}", reason.lines().next().unwrap_or_default());
    if graphs == GraphChoice::On {
        bail!("--graphs on: {reason}");
    }
    inference.captured = None;
    (record.config.graphs, record.no_graph) = (GraphChoice::Off, Some(reason));
    Ok(())
}

/// Checks the output of a pass. The run is invalid if the probabilities of an image's classes do not add up to 1, the
/// probability of a token is outside of 0 to 1, or one is NaN.
fn judge(inference: &Inference, record: &mut ScoreRecord, session: &Session) -> Result<()> {
    const TOLERANCE: f64 = 1e-3;
    let probabilities = inference.pass()?;
    // Of every class of an image, or of one token.
    let (checked, least) = match probabilities.dim() > inference.batch.targets.dim() {
        true => (probabilities.f_sum_dim_intlist([-1].as_slice(), false, Kind::Float)?, 1.0 - TOLERANCE),
        false => (probabilities.shallow_clone(), 0.0),
    };
    // NaN is not within the range.
    let valid = checked.f_ge(least)?.f_logical_and(&checked.f_le(1.0 + TOLERANCE)?)?;
    let valid = valid.f_all()?.f_int64_value(&[])? == 1;
    let all = session.world.gather(&[f64::from(u8::from(valid))]).concat();
    record.failure = all.iter().position(|valid| *valid != 1.0).map(|rank| {
        format!(
            "the scores of rank {rank} are not finite: use a --dtype with a larger range, or trained weights \
                 (--init)"
        )
    });
    if record.failure.is_none() {
        let confidence = probabilities.f_amax([-1].as_slice(), false)?.f_mean(Kind::Double)?.f_double_value(&[])?;
        record.confidence = session.world.gather(&[confidence]).concat();
    }
    record.attention = model::attention_kernel();
    record.rectified_convolutions = inference.model.rectified_convolutions();
    Ok(())
}

fn header(record: &ScoreRecord) -> Vec<String> {
    let ScoreRecord { config, environment, ranks, .. } = record;
    let title = format!("{} inference", config.model.facts().title);
    let mut lines = environment::title_lines(environment, &title, record.label());
    let pixels = config.model.image_size(config.image_size);
    lines.push(format!(
        "{}{}, {}, {}, {} passes",
        config.batch().per_process("rank"),
        pixels.map(|size| format!(", {size} px")).unwrap_or_default(),
        config.dtype,
        config.arrangement(),
        measured_and_warmup(config.iterations, config.warmup)
    ));
    let unit = config.model.unit();
    lines.push(format!(
        "{unit}/sec counts the {unit} of {}; every pass waits for its outputs",
        match ranks.len() {
            1 => "this one rank".to_owned(),
            count => format!("all {count} ranks, over the time of the slowest"),
        }
    ));
    lines.extend(environment::lines(environment, ranks));
    lines.iter().map(|line| format!("# {line}")).collect()
}

/// Returns the output lines of benchmark_score.py, then warnings.
fn result(record: &ScoreRecord) -> Vec<String> {
    let config = &record.config;
    let is_on_gpu = record.ranks[0].device != DeviceKind::Cpu;
    let device = if is_on_gpu { "gpu" } else { "cpu" };
    let UnitsPerSecond(speed) = record.speed().unwrap_or(UnitsPerSecond(0.0));
    let mut lines = vec![
        format!("INFO:root:network: {}", config.model.facts().source_name),
        format!("INFO:root:device: {device}(0)"),
        format!(
            "INFO:root:batch size {:2}, dtype {}, {}/sec: {speed:.6}",
            config.batch_size,
            numpy(config.dtype),
            config.model.unit()
        ),
    ];
    let rates: Vec<f64> = record.matrix_product.iter().map(|rate| rate.0).collect();
    let layers = record.layers.iter().flat_map(|layers| layers.lines(summary::mean(&rates).map(TeraflopsPerSecond)));
    let operators = record.operators.iter().flat_map(OperatorProfile::lines);
    lines.extend(layers.chain(operators).map(|line| format!("# {line}")));
    let arrangement = if config.graphs == GraphChoice::On { "replayed CUDA graph" } else { "separate kernel launches" };
    if is_on_gpu {
        lines.push(format!("# timed passes: {arrangement}"));
    }
    lines.extend(record.attention.map(|kernel| format!("# attention: {kernel}")));
    if let Some(RectifiedConvolutions { all, fused }) = record.rectified_convolutions {
        lines.push(format!("# convolutions with fused bias, sum and ReLU (cuDNN): {fused} of {all}"));
    }
    lines.extend(record.no_graph.iter().map(|reason| format!("# warning: {reason}")));
    lines.extend(warning::lines(&record.warnings).map(|line| format!("# {line}")));
    lines
}

/// Returns MXNet's name of the type, which is numpy's.
fn numpy(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Fp32 | Dtype::Tf32 => "float32",
        Dtype::Fp16 => "float16",
        Dtype::Bf16 => "bfloat16",
    }
}

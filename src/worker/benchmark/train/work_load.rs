//! `--work-load`: the division of the global batch among ranks. `auto` first measures the speed of each rank alone:
//! forward and backward without exchange, on all ranks at once, so that ranks on one host share its resources as they
//! will later.

use anyhow::Result;
use ringmark_core::benchmark::data_input::DataSource;
use ringmark_core::benchmark::train::{TrainConfig, WorkDivision};
use ringmark_core::dimension::Layout;
use ringmark_core::stats::summary;
use tch::Tensor;

use crate::benchmark::train::step::{Faults, backward, loss, mode};
use crate::data;
use crate::data::batch::BatchRequest;
use crate::ffi::torch::shim;
use crate::job::session::Session;
use crate::measure::step_timer::StepTimer;
use crate::measure::timed::Timed;
use crate::model::prepared::PreparedModel;

/// Measured steps, after one warm-up step.
const STEPS: usize = 5;

/// Returns the division of an iteration's images; `None` if all ranks have the same number. All ranks call this
/// together and get the same result.
pub fn divide(config: &TrainConfig, session: &Session, model: &PreparedModel) -> Result<Option<WorkDivision>> {
    let Some(work_load) = &config.work_load else { return Ok(None) };
    let places = session.places()?;
    let weights = match work_load.weights(&places)? {
        Some(weights) => weights,
        None => session.world.gather(&[speed_alone(config, session, model)?]).concat(),
    };
    let name = |rank: usize| format!("rank {rank} on host {}", places[rank].host);
    let division = WorkDivision::new(weights, config.batch_size, name)?;
    let fewest = division.samples.iter().min().copied().unwrap_or_default();
    config.check_parts(fewest)?;
    Ok(Some(division))
}

/// A rank's images in the global batch of all ranks.
#[derive(Debug, Clone, Copy)]
pub struct SampleShare {
    pub samples: u32,
    /// Index of the first image in the global batch.
    pub first: u32,
}

pub fn share(config: &TrainConfig, division: Option<&WorkDivision>, rank: u32) -> SampleShare {
    match division {
        None => SampleShare { samples: config.batch_size, first: rank * config.batch_size },
        Some(WorkDivision { samples, .. }) => {
            let rank = rank as usize;
            SampleShare { samples: samples[rank], first: samples[..rank].iter().sum() }
        }
    }
}

/// Returns this rank's training speed with an even share of a synthetic batch, in samples/s: the median over a few steps.
fn speed_alone(config: &TrainConfig, session: &Session, model: &PreparedModel) -> Result<f64> {
    let (world, device) = (session.world, session.device());
    let SampleShare { samples, first } = share(config, None, world.rank());
    let share = SampleShare { samples: samples.div_ceil(config.accumulate), first };
    let layout = config.layout.resolve(config.dtype, session.own.kind);
    let request = request(config, DataSource::Synthetic, layout, share);
    let batch = data::batch(&request, world.rank(), device)?;
    let (mode, faults) = (mode(config), Faults::for_rank(world.rank(), config.inject));
    let statistics = model.copy_of_statistics();
    let dropped: Vec<Tensor> = model.flat.parameters.iter().map(Tensor::f_empty_like).collect::<Result<_, _>>()?;
    let mut times = Vec::new();
    for number in 0..=STEPS {
        let timed = Timed::begin(device, world)?;
        let marks = StepTimer::new(device, 0, 0, 1.0).begin()?;
        let loss = loss(model, &batch, mode, config.learning.label_smoothing)?;
        faults.slow_down(&marks)?;
        backward(&loss, None, None)?;
        let own = timed.end(|| Ok(()))?;
        shim::take_gradients(&model.flat.parameters, &dropped, false)?;
        if number > 0 {
            times.push(own.0);
        }
    }
    model.restore(&statistics)?;
    Ok(f64::from(share.samples) / summary::median(&times).unwrap_or(f64::INFINITY))
}

pub fn request<'a>(
    config: &TrainConfig,
    source: DataSource<'a>,
    layout: Layout,
    SampleShare { samples, first }: SampleShare,
) -> BatchRequest<'a> {
    BatchRequest { source, seed: config.seed, samples, first, size: config.sample_size(), model: config.model, layout }
}

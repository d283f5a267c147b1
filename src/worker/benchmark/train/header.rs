//! First line of a training run's record: the requested configuration, the environment and the exchange of gradients.

use anyhow::Result;
use ringmark_core::benchmark::train::{Resumption, RunHeader, TrainConfig, Tuning, WorkDivision};
use ringmark_core::manifest::ObservedEnvironment;

use crate::benchmark::train::checkpoint::SavedProgress;
use crate::benchmark::train::graphs::GraphUse;
use crate::exchange::{ExchangeFacts, GradientExchange};
use crate::host::facts;
use crate::job::kernels::ChosenKernels;
use crate::job::session::{RequestedLabel, Session};

/// Decisions made before the first iteration.
pub struct Prepared {
    pub division: Option<WorkDivision>,
    pub tuning: Option<Tuning>,
    pub kernels: ChosenKernels,
    pub graphs: GraphUse,
}

/// Returns the record's first line. All ranks call this together, because it gathers their locations.
pub fn header(
    config: &TrainConfig,
    label: RequestedLabel,
    session: &Session,
    exchange: &dyn GradientExchange,
    prepared: Prepared,
    saved: Option<&SavedProgress>,
) -> Result<RunHeader> {
    let ranks = session.places()?;
    let config = TrainConfig { bind: config.bind.resolve(ranks.iter().map(|rank| &rank.binding)), ..config.clone() };
    let label = session.label(label, &ranks)?;
    let (mut environment, now) = (session.environment()?, facts::now());
    environment.cuda_remarks.extend(prepared.kernels.remark);
    let resumptions = |saved: &SavedProgress| {
        let changes = saved.ran_on.mismatches(&ObservedEnvironment::from_record(&environment, &ranks));
        let changes = changes.iter().map(ToString::to_string).collect();
        let last = Resumption { behind: saved.iteration(), started: now, wall_before: saved.wall, changes };
        saved.resumptions.iter().cloned().chain([last]).collect()
    };
    let ExchangeFacts { backend, sum_dtype, .. } = exchange.facts();
    Ok(RunHeader {
        backend,
        sum_dtype,
        buckets: exchange.reducer().bucket_sizes(),
        resumptions: saved.map(resumptions).unwrap_or_default(),
        work_division: prepared.division,
        tuning: prepared.tuning,
        no_graph: prepared.graphs.no_graph,
        ..RunHeader::new(label, saved.map_or(now, |saved| saved.started), config, environment, ranks)
    })
}

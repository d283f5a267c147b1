//! First line of a training run's record: the requested configuration, the environment and the exchange of gradients.

use anyhow::{Context, Result};
use ringmark_core::benchmark::train::interruption::RESTARTS_VARIABLE;
use ringmark_core::benchmark::train::{RestartHistory, Resumption, RunHeader, TrainConfig, Tuning, WorkDivision};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::unix_time;
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
    let (mut environment, now) = (session.environment()?, unix_time());
    environment.cuda_remarks.extend(prepared.kernels.remark);
    let history = restart_history()?;
    let started = [saved.map(|saved| saved.started), (!history.interruptions.is_empty()).then_some(history.started)];
    let started = started.into_iter().flatten().next().unwrap_or(now);
    let resumptions = match saved {
        None if history.interruptions.is_empty() => Vec::new(),
        saved => resumptions(history, saved, &ObservedEnvironment::from_record(&environment, &ranks), now),
    };
    let ExchangeFacts { backend, sum_dtype, .. } = exchange.facts();
    Ok(RunHeader {
        backend,
        sum_dtype,
        buckets: exchange.reducer().bucket_sizes(),
        resumptions,
        work_division: prepared.division,
        tuning: prepared.tuning,
        no_graph: prepared.graphs.no_graph,
        ..RunHeader::new(label, started, config, environment, ranks)
    })
}

/// Returns the earlier attempts of this run.
pub fn restart_history() -> Result<RestartHistory> {
    let history = facts::variable(RESTARTS_VARIABLE).map(|text| serde_json::from_str(&text)).transpose();
    Ok(history.with_context(|| format!("{RESTARTS_VARIABLE} is not a history"))?.unwrap_or_default())
}

/// Returns the resumptions of a run that continues now from `saved`, or from the start, on other hosts perhaps.
fn resumptions(
    history: RestartHistory,
    saved: Option<&SavedProgress>,
    ran_on: &ObservedEnvironment,
    now: Seconds,
) -> Vec<Resumption> {
    let changes = saved.map(|saved| saved.ran_on.mismatches(ran_on)).unwrap_or_default();
    let last = Resumption {
        behind: saved.map_or(0, SavedProgress::iteration),
        started: now,
        wall_before: saved.map_or(Seconds::default(), |saved| saved.wall),
        changes: changes.iter().map(ToString::to_string).collect(),
        interruption: None,
    };
    let earlier = saved.map(|saved| saved.resumptions.as_slice()).unwrap_or_default();
    history.resumptions(earlier, last, saved.map_or(Seconds::default(), |saved| saved.load))
}

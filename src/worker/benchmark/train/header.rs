//! The first line of a training run's record: what was asked, what it runs on, how gradients are exchanged.

use anyhow::Result;
use ringmark_record::benchmark::RunLabel;
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::benchmark::train::record::{RunHeader, SCHEMA, Tuning};
use ringmark_record::benchmark::train::work_load::WorkDivision;

use crate::exchange::GradientExchange;
use crate::host::facts;
use crate::job::session::{AskedLabel, Session};

/// The record's first line; every rank calls it, because it gathers where all of them are.
pub fn header(
    config: &TrainConfig,
    label: AskedLabel,
    session: &Session,
    exchange: &dyn GradientExchange,
    work_division: Option<WorkDivision>,
    tuning: Option<Tuning>,
    iterations_before: u32,
) -> Result<RunHeader> {
    let ranks = session.places();
    let RunLabel { case, run, profile } = session.label(label, &ranks)?;
    Ok(RunHeader {
        schema: SCHEMA,
        case,
        run,
        profile,
        started: facts::now(),
        config: config.clone(),
        backend: exchange.name().to_owned(),
        sum_dtype: exchange.sum_dtype(),
        buckets: exchange.bucket_sizes(),
        iterations_before,
        work_division,
        tuning,
        environment: session.environment()?,
        ranks,
    })
}

//! The first line of a training run's record: what was asked, what it runs on, how gradients are exchanged.

use anyhow::Result;
use ringmark_record::config::TrainConfig;
use ringmark_record::run::{RunHeader, SCHEMA, Tuning};

use crate::cli::RunLabel;
use crate::exchange::GradientExchange;
use crate::host::facts;
use crate::job::session::Session;

/// The record's first line; every rank calls it, because it gathers where all of them are.
pub fn header(
    config: &TrainConfig,
    label: RunLabel,
    session: &Session,
    exchange: &dyn GradientExchange,
    tuning: Option<Tuning>,
) -> Result<RunHeader> {
    let ranks = session.places();
    Ok(RunHeader {
        schema: SCHEMA,
        case: session.case(label.case, &ranks)?,
        run: label.run,
        profile: label.profile,
        started: facts::now(),
        config: config.clone(),
        collective: exchange.name().to_owned(),
        buckets: exchange.bucket_sizes(),
        tuning,
        environment: session.environment()?,
        ranks,
    })
}

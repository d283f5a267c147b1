//! The first line of a training run's record: what was asked, what it runs on, how gradients are exchanged.

use anyhow::Result;
use ringmark_record::config::TrainConfig;
use ringmark_record::run::{RunHeader, SCHEMA, Tuning};
use ringmark_record::units::Bytes;

use crate::cli::RunLabel;
use crate::host::facts;
use crate::job::session::Session;

/// How gradients are exchanged, as it came out.
pub struct ExchangeFacts {
    /// What sums them.
    pub backend: &'static str,
    /// Sizes of the buckets as fp32, in the order of backward.
    pub buckets: Vec<Bytes>,
    /// What `--autotune` tried and chose.
    pub tuning: Option<Tuning>,
}

/// The record's first line; every rank calls it, because it gathers where all of them are.
pub fn header(config: &TrainConfig, label: RunLabel, session: &Session, exchange: ExchangeFacts) -> Result<RunHeader> {
    let ranks = session.places();
    Ok(RunHeader {
        schema: SCHEMA,
        case: session.case(label.case, &ranks)?,
        run: label.run,
        profile: label.profile,
        started: facts::now(),
        config: config.clone(),
        collective: exchange.backend.to_owned(),
        buckets: exchange.buckets,
        tuning: exchange.tuning,
        environment: session.environment()?,
        ranks,
    })
}

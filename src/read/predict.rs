//! `ringmark predict`: larger cases from a sweep and a bandwidth result.

use std::path::PathBuf;

use anyhow::{anyhow, bail, ensure};
use ringmark_record::benchmark::bandwidth::record::BandwidthRecord;
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::operation::Operation;
use ringmark_record::options::usage::usage;

use crate::output::{self, Json};
use crate::read::analyse::figures::Group;
use crate::read::analyse::prediction::evidence::Evidence;
use crate::read::analyse::prediction::outlook::Outlook;
use crate::read::analyse::prediction::{model, search};
use crate::read::analyse::published;
use crate::read::extract;
use crate::read::load::bandwidth;
use crate::read::show::prediction::{json, text};

/// What `ringmark predict` is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictConfig {
    /// Folder of a sweep; `None` takes the published rows.
    pub sweep: Option<PathBuf>,
    /// Folder of a bandwidth command.
    pub bandwidth: Option<PathBuf>,
    /// Cases; `None` doubles the hosts of the largest measured case three times, unless something else is asked.
    pub cases: Option<Vec<Case>>,
    /// Finds where the efficiency falls under this.
    pub efficiency_below: Option<f64>,
    /// Predicts the largest measured case from the others.
    pub backtest: bool,
    /// First iterations to leave out, instead of what records (or DLPerf) say.
    pub warmup: Option<u32>,
    /// Where JSON goes.
    pub json: Json,
}

/// Reads, predicts, prints; an error where something that was asked cannot be predicted.
pub fn run(config: &PredictConfig) -> anyhow::Result<()> {
    config.json.check()?;
    let outlooks: Vec<Outlook> =
        evidence(config)?.into_iter().map(|(evidence, caveat)| outlook(config, evidence, caveat)).collect();
    if !config.json.write(&json::json(&outlooks))? {
        output::print(&text::text(&outlooks))?;
    }
    let refused: Vec<String> = outlooks.iter().flat_map(Outlook::refused).collect();
    match refused.as_slice() {
        [] => Ok(()),
        [one] => bail!("{one}"),
        several => {
            several.iter().for_each(|refused| eprintln!("{refused}"));
            bail!("not all that was asked can be predicted: see the {} messages above", several.len())
        }
    }
}

/// Of every group in the folder, or of every published row.
fn evidence(config: &PredictConfig) -> anyhow::Result<Vec<(Evidence, Option<&'static str>)>> {
    let Some(sweep) = &config.sweep else {
        return Ok(published::DLPERF.iter().map(|row| (Evidence::of_published(row), row.caveat)).collect());
    };
    let extraction = extract::read(sweep, config.warmup)?;
    let mut problems = extraction.problems;
    let bandwidth = config.bandwidth.as_deref().map(bandwidth::read).transpose()?;
    let (mut records, unsound) = bandwidth.map_or_else(Default::default, |result| (result.cases, result.problems));
    problems.extend(unsound);
    // Training exchanges by it: of other operations alone nothing follows, which is said below.
    let is_all_reduce = |(_, record): &(Case, BandwidthRecord)| record.config.operation == Operation::AllReduce;
    if records.iter().any(is_all_reduce) {
        records.retain(is_all_reduce);
    }
    problems.iter().for_each(|problem| eprintln!("not used: {problem}"));
    let (of_ring, others): (Vec<&Group>, Vec<&Group>) =
        extraction.groups.iter().partition(|group| group.conditions.kv_store.is_ring());
    let unread = |group: &Group| {
        let kv_store = group.conditions.kv_store;
        format!("{}: predict reads kv-store ring alone, and these runs are {kv_store}", group.label)
    };
    if of_ring.is_empty()
        && let Some(group) = others.first()
    {
        let what =
            format!("{}: what its bytes cost on larger clusters the model of all-reduce does not say", unread(group));
        bail!(usage(anyhow!(
            "{what}: sweep these cases with --kv-store {}, or predict a sweep of ring",
            group.conditions.kv_store
        )));
    }
    others.iter().for_each(|group| eprintln!("not used: {}", unread(group)));
    let evidence: Vec<Evidence> = of_ring.into_iter().filter_map(Evidence::of_group).collect();
    ensure!(!evidence.is_empty(), "no run of {} counts: see the messages above", sweep.display());
    evidence.into_iter().map(|evidence| Ok((evidence.with_bandwidth(&records)?, None))).collect()
}

fn outlook(config: &PredictConfig, evidence: Evidence, caveat: Option<&'static str>) -> Outlook {
    let asks_otherwise = config.efficiency_below.is_some() || config.backtest;
    let cases = match &config.cases {
        Some(cases) => cases.clone(),
        None if asks_otherwise => Vec::new(),
        None => doubled(&evidence),
    };
    let without_straggler = evidence.without_straggler().map_or_else(Vec::new, |evidence| {
        let grown = cases.iter().filter(|case| evidence.case(**case).is_none());
        grown.filter_map(|case| model::predict(&evidence, *case).ok()).collect()
    });
    Outlook {
        without_straggler,
        predictions: cases.into_iter().map(|case| model::predict(&evidence, case)).collect(),
        under: config.efficiency_below.map(|efficiency| search::under(&evidence, efficiency)),
        backtest: config.backtest.then(|| search::backtest(&evidence)),
        evidence,
        caveat,
    }
}

/// Twice, four and eight times the hosts of the largest measured case.
fn doubled(evidence: &Evidence) -> Vec<Case> {
    let largest = evidence.cases.last().map_or(evidence.base, |measured| measured.case);
    [2, 4, 8].map(|times| Case { nodes: times * largest.nodes, ..largest }).into()
}

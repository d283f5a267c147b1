//! Content of a report: each module creates a block or section of the document.
//!
//! | module | contents |
//! |---|---|
//! | [`series`] | grouping of runs that may share a chart |
//! | [`headline`] | headline figures |
//! | [`scaling`] | throughput, speedup, efficiency |
//! | [`scaling_charts`] | charts of the scaling: lines over ranks, or bars for one or two cases |
//! | [`batch_sizes`] | speed and memory by batch size, for training and scoring |
//! | [`batch_size_charts`] | charts by batch size: lines or bars |
//! | [`published_rates`] | MXNet's published rates of the same networks |
//! | [`split`] | breakdown of the step time |
//! | [`extra_tables`] | uneven batch sizes per rank; waits for sharded weights |
//! | [`scaling_loss`] | breakdown of the scaling loss |
//! | [`learning`] | loss and accuracy over epochs |
//! | [`economy`] | power, energy and cost |
//! | [`telemetry`] | clocks, temperature, power and network traffic over the iterations |
//! | [`traced_step`] | time line of a traced iteration |
//! | [`iterations`] | times of all iterations |
//! | [`ranks`] | spread of the step time of each rank |
//! | [`fleet`] | hosts and links that `ringmark accept` tested |
//! | [`goodput`] | training under failures: lost time by cause, costs, predictions |
//! | [`environment`] | hosts, devices and software, with differences between hosts |

pub mod batch_size_charts;
pub mod batch_sizes;
pub mod economy;
pub mod environment;
pub mod extra_tables;
pub mod fleet;
pub mod goodput;
pub mod headline;
pub mod iterations;
pub mod learning;
pub mod published_rates;
pub mod ranks;
pub mod scaling;
pub mod scaling_charts;
pub mod scaling_loss;
pub mod series;
pub mod split;
pub mod telemetry;
pub mod traced_step;

use std::collections::BTreeSet;

use crate::read::analyze::assessment::Assessment;
use crate::read::analyze::published::Workload;
use crate::read::analyze::reliability;
use crate::read::analyze::results::ResultFolder;
use crate::read::load::environment::moment;
use crate::read::show::numbers::doubtful_legend;
use crate::read::show::page::content::batch_sizes::PageTable;
use crate::read::show::page::content::series::Setting;
use crate::read::show::page::document::{Document, Findings, Headline, Link, Section, Subject};

/// Content about the records of benchmarks without sweeps.
#[derive(Debug, Default)]
pub struct RecordContent {
    pub headlines: Vec<Headline>,
    pub sections: Vec<Section>,
}

/// Returns the whole report, including the content about `records`.
pub fn document(results: &[ResultFolder], published: bool, links: &[Link], records: RecordContent) -> Document {
    let settings = series::settings(results);
    let by_size = batch_sizes::tables(results);
    let trained = batch_sizes::sections(Workload::Training, &by_size, published);
    let scored = batch_sizes::sections(Workload::Inference, &by_size, published);
    let title = results.iter().map(|result| result.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut headlines = headline::headlines(results, &settings, &by_size);
    headlines.extend(records.headlines);
    // The page's title is not repeated.
    for headline in headlines.iter_mut().filter(|headline| headline.name == title) {
        headline.name = std::mem::take(&mut headline.what);
    }
    let is_titled =
        |setting: &Setting| settings.len() == 1 && headlines.iter().any(|it| it.name.starts_with(&setting.title));
    let of_settings = settings.iter().map(|setting| section(setting, published, is_titled(setting)));
    // The parameter that a sweep varies comes first.
    let is_scaling = by_size.iter().any(PageTable::is_scaling);
    let mut sections: Vec<Section> = match is_scaling {
        true => of_settings.chain(trained).collect(),
        false => trained.into_iter().chain(of_settings).collect(),
    };
    sections.extend(scored);
    sections.extend(records.sections);
    sections.extend(environment::section(results));
    let is_reliable = results.iter().all(|result| result.assessment().is_reliable());
    let legend = if is_reliable { String::new() } else { doubtful_legend("the lines below \"Unreliable figures\"") };
    Document {
        title,
        provenance: results.iter().filter_map(|result| provenance(result, results.len() > 1)).collect(),
        links: links.to_vec(),
        headlines,
        legend,
        findings: not_comparable(results).into_iter().chain(findings(results)).collect(),
        sections,
    }
}

/// Returns time, hosts, version and command of a measurement; prefixed with the result's name if there are `several`.
fn provenance(result: &ResultFolder, several: bool) -> Option<String> {
    let moments: BTreeSet<String> = result.heads().filter_map(|head| moment(head.started)).collect();
    let begun = match (moments.first(), moments.last()) {
        (Some(first), Some(last)) if first == last => format!("started {first} UTC"),
        (Some(first), Some(last)) => format!("started {first} to {last} UTC"),
        _ => return None,
    };
    let hosts: BTreeSet<&str> = result.heads().flat_map(|head| head.ranks).map(|rank| rank.host.as_str()).collect();
    let hosts = match hosts.len() {
        0 => None,
        1 => Some(format!("host {}", hosts.first().copied().unwrap_or_default())),
        _ => Some(format!("hosts {}", hosts.into_iter().collect::<Vec<_>>().join(", "))),
    };
    let versions = result.heads().map(|head| head.environment.ringmark_version.as_str());
    let versions: BTreeSet<&str> = versions.filter(|version| !version.is_empty()).collect();
    let version = versions.into_iter().map(|version| format!("ringmark {version}"));
    let name = several.then(|| result.name.clone());
    let parts = name.into_iter().chain([begun]).chain(hosts).chain(version).chain(result.command());
    Some(parts.collect::<Vec<_>>().join(" \u{b7} "))
}

/// Returns the section of a setting; `is_titled` if a headline has its conditions.
fn section(setting: &Setting, published: bool, is_titled: bool) -> Section {
    let mut blocks = scaling::strategies(setting);
    blocks.push(scaling::block(setting, published));
    blocks.extend(split::block(setting));
    blocks.extend(scaling_loss::block(setting));
    blocks.extend(extra_tables::blocks(setting));
    blocks.extend(economy::blocks(setting));
    blocks.extend(traced_step::blocks(setting));
    blocks.extend(learning::block(setting));
    blocks.extend(iterations::blocks(setting));
    blocks.extend(telemetry::blocks(setting));
    blocks.extend(ranks::blocks(setting));
    let [title, note] = match is_titled {
        true => ["Training".to_owned(), String::new()],
        false => [&setting.title, &setting.note].map(String::clone),
    };
    Section { subject: Subject::Runs, title, note, blocks }
}

/// Returns a finding if results are shown together that `ringmark diff` refuses to compare.
fn not_comparable(results: &[ResultFolder]) -> Option<Findings> {
    let lines = series::not_comparable(results);
    let fix = Some("compare results with the same settings; `ringmark diff --force` compares them anyway".to_owned());
    (!lines.is_empty()).then(|| Findings { title: "Not comparable".to_owned(), lines, fix, is_grave: true })
}

/// Returns the findings of each result: unreliable figures, problems, then warnings.
fn findings(results: &[ResultFolder]) -> Vec<Findings> {
    let mut findings = Vec::new();
    for result in results {
        let of_result = |what: &str| match results.len() {
            1 => what.to_owned(),
            _ => format!("{what}: {}", result.name),
        };
        let Assessment { warnings, reliability_warnings, .. } = result.assessment();
        let of_kind = |title: &str, lines: Vec<String>, fix, is_grave| {
            let title = of_result(title);
            Findings { title, lines, fix, is_grave }
        };
        let fix = reliability::repetition(&reliability_warnings);
        findings.push(of_kind("Unreliable figures", reliability::reasons(&reliability_warnings), fix, true));
        findings.push(of_kind("Not in the figures", result.left_out(), None, true));
        findings.push(of_kind("Warnings", warnings, None, false));
    }
    findings.retain(|findings| !findings.lines.is_empty());
    findings
}

//! Assumptions and warnings of predictions, as sentences.

use ringmark_core::dimension::Case;
use ringmark_core::stats::allreduce_model::{Algorithm, LatencyModel};

use crate::read::analyze::prediction::evidence::{CaseEvidence, Evidence};
use crate::read::analyze::prediction::model::FAR;
use crate::read::analyze::prediction::outlook::Outlook;
use crate::read::show::prediction::kv_store_notes;

/// Relative residual of a fitted line above which there is a warning.
const POOR: f64 = 0.3;

/// Requirement of a prediction, shown if there is none.
const NEEDED: &str = "a case of several hosts is predicted from a measured case of several hosts with as many ranks each; how \
     ranks on one host slow each other is measured, never predicted";

/// Returns the assumptions, one line each.
pub fn assumptions(outlook: &Outlook) -> Vec<String> {
    let evidence = &outlook.evidence;
    let mut lines = vec![measured(evidence)];
    let mut grown = outlook.grown().filter(|prediction| prediction.reference.is_some());
    let searched = outlook.under.iter().flatten().next().map(|under| under.last);
    if !evidence.kv_store.is_ring() {
        let first = grown.next().and_then(|prediction| Some((prediction.reference?, prediction.case)));
        let of_search = |last: Case| {
            let alike = |measured: &&CaseEvidence| measured.case.nodes > 1 && measured.case.nodes <= last.nodes;
            Some((evidence.cases.iter().rev().find(alike)?.case, last))
        };
        let example = first.or_else(|| of_search(searched?));
        lines.extend(example.into_iter().flat_map(|(from, to)| kv_store_notes::assumptions(evidence, from, to)));
        return lines;
    }
    let Some(example) = grown.next().map(|prediction| prediction.case).or(searched) else {
        lines.push(NEEDED.to_owned());
        return lines;
    };
    let line = evidence.between(example.gpus_per_node);
    lines.extend(evidence.inside().map(|line| line_text("inside a host (nothing is predicted from it)", &line)));
    match &line {
        Some(line) => lines.push(line_text("between hosts", line)),
        None if evidence.bandwidth.is_empty() => {
            let case = Case { nodes: 2, ..example };
            let advice = format!("; measure it: ringmark bandwidth --cases {case}, then --bandwidth FOLDER");
            lines.push(format!(
                "no bandwidth result: the share of latency and the part that backward hides are unknown, so the band is \
                 wider{}",
                // Not useful for published rows, which other programs measured.
                if evidence.buckets.is_empty() { "" } else { &advice }
            ));
        }
        None => lines.push(format!(
            "the bandwidth result has fewer than three message sizes of several hosts with {} ranks each: measure {}",
            example.gpus_per_node,
            Case { nodes: 2, ..example }
        )),
    }
    let has_records = evidence.cases.iter().all(|case| case.runs.iter().all(|run| run.times.is_some()));
    lines.push(match (has_records, &line) {
        (true, Some(_)) => {
            "extremes: backward hides the same share of the all-reduce, or the same number of seconds; the wait for the \
             slowest rank stays the same, or grows as the expected maximum over more ranks"
        }
        (true, None) => {
            "extremes: the exposed all-reduce is limited by bandwidth alone, or by latency alone (or by bandwidth that backward \
             just hid; latency that it hides is not visible); the wait for the slowest rank stays the same, or grows as the \
             expected maximum over more ranks"
        }
        (false, _) => {
            "no records: the time that several hosts add to a step counts as all-reduce; extremes: bandwidth alone, or latency \
             alone (the wait for the slowest rank grows less)"
        }
    }
    .to_owned());
    lines.push(format!(
        "compute, optimizer and the rest take as long as with fewer hosts; {}; every host keeps its bandwidth; band: both \
         extremes, 95 % of the runs' spread and the residual of the fit; mid: half way between the extremes",
        match evidence.exchange.algorithm {
            Algorithm::Ring => "one ring over all ranks",
            Algorithm::Hosts => "shared memory inside hosts, a ring over the hosts",
        }
    ));
    lines
}

fn measured(evidence: &Evidence) -> String {
    let case = |case: &CaseEvidence| match case.runs.len() {
        runs if case.is_of_ring => format!("{} of ring ({runs} run{})", case.case, if runs == 1 { "" } else { "s" }),
        _ if case.is_median => format!("{} (published median)", case.case),
        1 => format!("{} (1 run)", case.case),
        runs => format!("{} ({runs} runs)", case.case),
    };
    let cases: Vec<String> = evidence.cases.iter().map(case).collect();
    let of_ring = if evidence.base_kv_store() == evidence.kv_store { "" } else { " of ring" };
    format!("measured: {}; efficiency over {}{of_ring}", cases.join(", "), evidence.base)
}

fn line_text(level: &str, line: &LatencyModel) -> String {
    let bandwidth = if line.per_byte > 0.0 { format!("{:.2}", 1e-9 / line.per_byte) } else { "unlimited".to_owned() };
    format!(
        "all-reduce {level}: {:.1} us per step, {bandwidth} GB/s, residual {:.0} %",
        line.latency * 1e6,
        line.residual * 100.0
    )
}

pub fn warnings(outlook: &Outlook) -> Vec<String> {
    let evidence = &outlook.evidence;
    let mut warnings = evidence.warnings.clone();
    warnings.extend(outlook.caveat.map(str::to_owned));
    let most = evidence.cases.iter().map(|case| case.case.ranks()).max().unwrap_or(1);
    let far = |case: &Case| case.ranks() > FAR * most;
    let cases = outlook.predictions.iter().flatten().map(|prediction| prediction.case);
    let found = outlook.under.iter().flatten().filter_map(|under| under.mid);
    let far: Vec<String> = cases.chain(found).filter(far).map(|case| case.to_string()).collect();
    if !far.is_empty() {
        warnings.push(format!(
            "{}: more than {FAR} times the {most} ranks that were measured: effects that only more hosts show, such as links \
             between switches, are not included",
            far.join(", ")
        ));
    }
    let mut references = outlook.grown().filter_map(|prediction| evidence.case(prediction.reference?));
    let single = references.find(|case| case.runs.len() == 1);
    warnings.extend(single.map(|case| {
        let what = if case.is_median { "the median alone" } else { "one run" };
        format!("{what} of {}: the spread of runs is not in the band", case.case)
    }));
    if !evidence.bandwidth.is_empty() && evidence.conditions.is_none() {
        warnings.push(
            "the runs have no records: it is unknown whether the bandwidth result is of the backend that summed their gradients"
                .to_owned(),
        );
    }
    let one_number = |case: &Case| case.nodes > 1 && !evidence.shows_growth(case.gpus_per_node);
    if let Some((case, _)) = evidence.bandwidth.iter().find(|(case, _)| one_number(case)) {
        let second = Case { nodes: if case.nodes == 2 { 4 } else { 2 }, ..*case };
        warnings.push(format!(
            "between hosts the bandwidth of {case} alone was measured, which does not show how it grows with hosts, and the \
             band is as wide as without it: measure a second: ringmark bandwidth --cases {case},{second} --hosts .."
        ));
    }
    let poor = evidence.bandwidth.iter().filter_map(|(case, _)| evidence.between(case.gpus_per_node));
    if let Some(line) =
        poor.max_by(|one, other| one.residual.total_cmp(&other.residual)).filter(|line| line.residual > POOR)
    {
        warnings.push(format!(
            "latency and bandwidth between hosts explain the measured sizes only to {:.0} %: the middle of the band is \
             unreliable",
            line.residual * 100.0
        ));
    }
    warnings
}

//! Assumptions and warnings of predictions, as sentences.

use ringmark_core::dimension::{Case, Operation, Phase};
use ringmark_core::number_text::count;
use ringmark_core::stats::allreduce_model::{Algorithm, LatencyModel};

use crate::read::analyze::prediction::evidence::{CaseEvidence, Evidence};
use crate::read::analyze::prediction::exchange_pattern::ExchangePattern;
use crate::read::analyze::prediction::model::FAR;
use crate::read::analyze::prediction::outlook::Outlook;
use crate::read::show::prediction::strategy_notes;

/// Relative residual of a fitted line above which there is a warning.
const POOR: f64 = 0.3;

/// Requirement of a prediction, shown if there is none.
const NEEDED: &str = "a multi-host case is predicted from a measured multi-host case with as many ranks per host; contention \
     between ranks of one host is measured, not predicted";

/// Returns the assumptions, one line each.
pub fn assumptions(outlook: &Outlook) -> Vec<String> {
    let evidence = &outlook.evidence;
    let mut lines = vec![measured(evidence)];
    let mut grown = outlook.grown().filter(|prediction| prediction.reference.is_some());
    let searched = outlook.under.iter().flatten().next().map(|under| under.last);
    if !evidence.pattern.has_collectives() {
        let first = grown.next().and_then(|prediction| Some((prediction.reference?, prediction.case)));
        let of_search = |last: Case| {
            let alike = |measured: &&CaseEvidence| measured.case.nodes > 1 && measured.case.nodes <= last.nodes;
            Some((evidence.cases.iter().rev().find(alike)?.case, last))
        };
        let example = first.or_else(|| of_search(searched?));
        lines.extend(example.into_iter().flat_map(|(from, to)| strategy_notes::assumptions(evidence, from, to)));
        return lines;
    }
    let first = grown.next();
    let Some(example) = first.map(|prediction| prediction.case).or(searched) else {
        lines.push(NEEDED.to_owned());
        return lines;
    };
    let reference = first.and_then(|prediction| prediction.reference);
    lines.extend(strategy_notes::shards(evidence, reference, example));
    let what = if evidence.pattern.has_shards() { "exchange" } else { "all-reduce" };
    let hidden_by = if evidence.pattern.hiding_phases().contains(&Phase::Forward) { "compute" } else { "backward" };
    let line = evidence.between(example.gpus_per_node);
    lines.extend(evidence.inside().map(|line| line_text(what, "inside a host (not used for predictions)", &line)));
    match &line {
        Some(line) => lines.push(line_text(what, "between hosts", line)),
        None if evidence.bandwidth.is_empty() => {
            let case = Case { nodes: 2, ..example };
            let command = bandwidth_command(evidence, &case.to_string());
            let advice = format!("; measure it: {command}, then --bandwidth FOLDER");
            lines.push(format!(
                "no bandwidth result: the share of latency and the part that {hidden_by} hides are unknown, so the range is \
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
    let lower = match &line {
        Some(_) => format!("{hidden_by} hides the same share of the {what}"),
        None if evidence.pattern.divides_buckets() => {
            format!("the exposed {what} is unchanged, as if all of it were copies inside a host")
        }
        None => format!("bandwidth alone limits the exposed {what}"),
    };
    let upper = match &line {
        Some(_) => format!("{hidden_by} hides the same number of seconds"),
        None => format!("latency alone limits it, or bandwidth of which {hidden_by} already hides the maximum"),
    };
    lines.extend(match has_records {
        true => vec![
            format!("lower limit of the step: {lower}; the wait for the slowest rank is unchanged"),
            format!("upper limit of the step: {upper}; the wait grows as the expected maximum over more ranks"),
        ],
        false => [
            "no records: the time that several hosts add to a step counts as all-reduce",
            "lower limit of the step: bandwidth alone limits this time",
            "upper limit of the step: latency alone limits it; the wait for the slowest rank grows less",
        ]
        .map(str::to_owned)
        .into(),
    });
    let algorithm = match evidence.exchange.algorithm {
        _ if evidence.pattern.is_hybrid() => "a ring over the hosts for each rank of a host, at the same time",
        Algorithm::Ring => "one ring over all ranks",
        Algorithm::Hosts => "shared memory inside hosts, a ring over the hosts",
    };
    let unchanged = match &evidence.pattern {
        ExchangePattern::Shards { .. } => "compute",
        ExchangePattern::HybridShards => "compute, exchange inside a host, optimizer",
        _ => "compute, optimizer",
    };
    lines.extend([
        format!("{what} algorithm: {algorithm}"),
        format!("unchanged: {unchanged} and the rest of the step; the bandwidth of each host"),
        "range: both limits plus the 95 % spread of the runs and the residual of the fit; mid: the step halfway \
         between the limits"
            .to_owned(),
    ]);
    lines
}

/// Returns the command that measures the collectives of the runs in these cases.
fn bandwidth_command(evidence: &Evidence, cases: &str) -> String {
    let operations = evidence.pattern.operations();
    // The default is left out.
    let op = match operations {
        [Operation::AllReduce] => String::new(),
        _ => format!("--op {} ", operations.iter().map(Operation::to_string).collect::<Vec<_>>().join(",")),
    };
    format!("ringmark bandwidth {op}--cases {cases}")
}

fn measured(evidence: &Evidence) -> String {
    let case = |case: &CaseEvidence| match case.runs.len() {
        runs if case.is_of_all_reduce => format!("{} of all-reduce ({})", case.case, count(runs, "run")),
        _ if case.is_median => format!("{} (published median)", case.case),
        runs => format!("{} ({})", case.case, count(runs, "run")),
    };
    let cases: Vec<String> = evidence.cases.iter().map(case).collect();
    let of_all_reduce = if evidence.base_strategy() == evidence.point.strategy { "" } else { " of all-reduce" };
    format!("measured: {}; efficiency over {}{of_all_reduce}", cases.join(", "), evidence.base)
}

fn line_text(what: &str, level: &str, line: &LatencyModel) -> String {
    let bandwidth = if line.per_byte > 0.0 { format!("{:.2}", 1e-9 / line.per_byte) } else { "unlimited".to_owned() };
    format!(
        "{what} {level}: {:.1} us per step, {bandwidth} GB/s, residual {:.0} %",
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
            "{}: more than {FAR} times the {most} measured ranks: effects of larger networks, such as links between \
             switches, are not included",
            far.join(", ")
        ));
    }
    let mut references =
        outlook.grown().filter_map(|prediction| evidence.case(prediction.reference.unwrap_or(prediction.case)));
    let single = references.find(|case| case.runs.len() == 1);
    warnings.extend(single.map(|case| {
        let what = if case.is_median { "only the median" } else { "one run" };
        format!("{what} of {}: the range does not include the spread of runs", case.case)
    }));
    if !evidence.bandwidth.is_empty() && evidence.conditions.is_none() {
        warnings.push(
            "the runs have no records, so their backend is unknown: the bandwidth result may be of another one"
                .to_owned(),
        );
    }
    let used = outlook.grown().find(|prediction| prediction.reference.is_some()).map(|prediction| prediction.case);
    let is_unused =
        |case: &Case| evidence.bandwidth.iter().all(|(of, _)| of.nodes == 1 || of.gpus_per_node != case.gpus_per_node);
    if let Some(case) = used.filter(is_unused).filter(|_| !evidence.bandwidth.is_empty()) {
        let cases = [2, 4].map(|nodes| Case { nodes, ..case }.to_string()).join(",");
        warnings.push(format!(
            "--bandwidth does not apply to {case}: it has no case of several hosts with {} each: measure: {} --hosts ..",
            count(case.gpus_per_node, "rank"),
            bandwidth_command(evidence, &cases)
        ));
    }
    let one_number = |case: &Case| case.nodes > 1 && !evidence.shows_growth(case.gpus_per_node);
    if let Some((case, _)) = evidence.bandwidth.iter().find(|(case, _)| one_number(case)) {
        let second = Case { nodes: if case.nodes == 2 { 4 } else { 2 }, ..*case };
        warnings.push(format!(
            "bandwidth between hosts was measured for {case} only, which does not narrow the range: measure a second \
             case: {} --hosts ..",
            bandwidth_command(evidence, &format!("{case},{second}"))
        ));
    }
    let poor = evidence.bandwidth.iter().filter_map(|(case, _)| evidence.between(case.gpus_per_node));
    if let Some(line) =
        poor.max_by(|one, other| one.residual.total_cmp(&other.residual)).filter(|line| line.residual > POOR)
    {
        warnings.push(format!(
            "latency and bandwidth between hosts fit the measured times with a residual of {:.0} %: the middle of the \
             range is unreliable",
            line.residual * 100.0
        ));
    }
    warnings
}

//! Comparison of two results as text.

use ringmark_core::number_text::{count, four_digits, without_trailing_zeros};
use ringmark_core::stats::comparison::{POWER, Verdict, for_all};

use crate::output::table::Table;
use crate::read::analyze::comparison::side::{ConditionDifference, SideKind};
use crate::read::analyze::comparison::verdicts::{ComparedCase, ComparedResults, ComparedSide, ComparedTable, Row};
use crate::read::show::numbers::{MARK, doubtful_legend, marked};
use crate::read::show::text::{self, Medium, Paragraph};

/// First line if both sides are the same runs.
const SAME: &str = "BASE and TEST are the same runs: every difference is 0";

/// Expected number of wrong verdicts from which a note mentions them.
const EXPECTED_WRONG: f64 = 0.5;

/// Returns the differing settings, a table for each measurement, and a legend for the verdicts.
pub fn text(outcome: &ComparedResults, medium: Medium) -> String {
    let sides = [("BASE", &outcome.base), ("TEST", &outcome.test)];
    let same = outcome.are_same_runs().then(|| Paragraph::Lines(vec![SAME.to_owned()]));
    let mut text: Vec<Paragraph> = same.into_iter().collect();
    text.push(Paragraph::Lines(sides.map(|(name, side)| self::side(name, side)).into()));
    for table in outcome.tables.iter().filter(|table| !table.forced.is_empty()) {
        text.push(Paragraph::Warnings(vec!["not comparable; compared because of --force".to_owned()]));
        text.push(differences(&table.forced, medium));
    }
    let is_like = |table: &ComparedTable| table.differences.is_empty() && table.forced.is_empty();
    if outcome.differences.is_empty() && outcome.tables.iter().all(is_like) {
        text.push(Paragraph::Text("No recorded setting differs.".to_owned()));
    } else if !outcome.differences.is_empty() && outcome.conditions.is_empty() {
        text.push(Paragraph::Heading(vec!["Differences".to_owned()]));
        text.push(differences(&outcome.differences, medium));
    }
    if !outcome.conditions.is_empty() {
        text.push(Paragraph::Heading(vec!["All settings".to_owned()]));
        text.extend(conditions(&outcome.conditions, medium));
    }
    for table in &outcome.tables {
        text.push(Paragraph::Heading(vec![table.title.clone()]));
        match table.conditions.is_empty() {
            true if table.differences.is_empty() => {}
            true => text.push(differences(&table.differences, medium)),
            false => text.extend(conditions(&table.conditions, medium)),
        }
        text.push(Paragraph::Table(figures(table, medium)));
        let notes = table.cases.iter().filter_map(|case| Some(format!("{}: {}", case.name, case.note.as_ref()?)));
        text.push(Paragraph::Lines(once_for_all(notes.collect(), table)));
    }
    text.push(Paragraph::Explanation(legend(outcome)));
    text.push(Paragraph::Lines(signs(outcome)));
    text.extend(by_chance(outcome).map(Paragraph::Text));
    text.extend(in_sequence(outcome).map(Paragraph::Text));
    for (name, only) in [("BASE", &outcome.only_in_base), ("TEST", &outcome.only_in_test)] {
        let only = (!only.is_empty()).then(|| format!("Only in {name}, not compared: {}", only.join("; ")));
        text.push(Paragraph::Lines(only.into_iter().collect()));
    }
    for (name, side) in sides.into_iter().filter(|_| !outcome.is_one_result()) {
        let named = |lines: &[String]| {
            let lines = lines.iter().filter(|line| side.fix.as_ref() != Some(line));
            lines.map(|line| format!("{name}: {line}")).collect()
        };
        text.extend([
            Paragraph::Unreliable(named(&side.reliability_warnings), side.fix.clone()),
            Paragraph::Warnings(named(&side.warnings)),
        ]);
    }
    if medium == Medium::Markdown {
        let left_out = |(name, side): (&str, &ComparedSide)| {
            side.left_out.iter().map(|what| format!("Not compared, {name}: {what}")).collect::<Vec<_>>()
        };
        text.push(Paragraph::Lines(sides.into_iter().flat_map(left_out).collect()));
    }
    text.push(Paragraph::Lines(vec![conclusion(outcome)]));
    text::render(&text, medium)
}

/// Returns the common result of all cases, or the number of cases with each result.
fn conclusion(outcome: &ComparedResults) -> String {
    let cases: Vec<&ComparedCase> = outcome.cases().map(|(_, case)| case).collect();
    let result = |case: &ComparedCase| (case.verdict, case.is_reliable(), case.has_too_few_runs());
    let Some((first, verdict)) = cases.first().and_then(|first| match result(first) {
        (verdict, true, false) if cases.iter().all(|case| result(case) == result(first)) => Some((first, verdict)),
        _ => None,
    }) else {
        return outcome.summary();
    };
    let subject = match cases.len() {
        1 => first.name.clone(),
        several => count(several, "case"),
    };
    let range = |value: fn(&Row) -> f64| {
        let mut values: Vec<f64> = cases.iter().map(|case| value(&case.throughput).abs()).collect();
        values.sort_by(f64::total_cmp);
        let mut ends: Vec<String> =
            [values.first(), values.last()].into_iter().flatten().map(|it| percent(*it).replace('+', "")).collect();
        ends.dedup();
        format!("{} %", ends.join(" to "))
    };
    match verdict {
        Verdict::Faster => format!("{subject}: TEST is {} faster", range(|row| row.difference)),
        Verdict::Slower => format!("{subject}: TEST is {} slower", range(|row| row.difference)),
        Verdict::NoDifference => format!("{subject}: no difference"),
        Verdict::TooNoisy => {
            let interval = if cases.len() == 1 { format!(" {};", interval(&first.throughput)) } else { String::new() };
            let detectable = range(|row| row.smallest.unwrap_or(f64::INFINITY));
            format!(
                "{subject}: no conclusion:{interval} these runs detect {detectable} or more: make more runs on an idle machine"
            )
        }
    }
}

fn side(name: &str, side: &ComparedSide) -> String {
    let runs = count(side.runs, "run");
    let started = match &side.started {
        None => String::new(),
        Some((first, last)) if first == last => format!(", started {first}"),
        Some((first, last)) => {
            // The second date is redundant on the same day.
            let same_day = first.split_once(' ').zip(last.split_once(' ')).filter(|(first, last)| first.0 == last.0);
            format!(", started {first} to {}", same_day.map_or(last.as_str(), |(_, (_, time))| time))
        }
    };
    format!("{name}  {}, {runs}{started}", side.path)
}

/// Longest value in a column on a terminal.
const LONGEST_VALUE: usize = 36;

/// Lists conditions, a value that both sides have once. On a terminal, long values follow the table.
fn conditions(conditions: &[ConditionDifference], medium: Medium) -> Vec<Paragraph> {
    let is_short = |it: &&ConditionDifference| {
        medium == Medium::Markdown || [&it.base, &it.test].iter().all(|value| value.chars().count() <= LONGEST_VALUE)
    };
    let (short, long): (Vec<_>, Vec<_>) = conditions.iter().partition(is_short);
    let row = |it: &ConditionDifference| {
        vec![it.name.clone(), it.base.clone(), if it.is_equal() { String::new() } else { it.test.clone() }]
    };
    let headers = [("", ""), ("BASE", ""), ("TEST, if it differs", "")];
    let rows: Vec<_> = short.into_iter().map(row).collect();
    let table = (!rows.is_empty()).then(|| Paragraph::Table(Table::new(&headers, rows).with_text(3)));
    let lines = |it: &ConditionDifference| match it.is_equal() {
        true => vec![format!("  {}: {}", it.name, it.base)],
        false => vec![format!("  {}:", it.name), format!("    BASE {}", it.base), format!("    TEST {}", it.test)],
    };
    let lines: Vec<String> = long.into_iter().flat_map(lines).collect();
    table.into_iter().chain((!lines.is_empty()).then_some(Paragraph::Lines(lines))).collect()
}

/// Lists differences. On a terminal each takes one line, or three if one would be too long.
fn differences(differences: &[ConditionDifference], medium: Medium) -> Paragraph {
    let Medium::Terminal { width, .. } = medium else {
        let row = |it: &ConditionDifference| vec![it.name.clone(), it.base.clone(), it.test.clone()];
        let headers = [("", ""), ("BASE", ""), ("TEST", "")];
        return Paragraph::Table(Table::new(&headers, differences.iter().map(row).collect()).with_text(3));
    };
    let lines = |ConditionDifference { name, base, test }: &ConditionDifference| {
        let line = format!("  {name}: {base} -> {test}");
        match line.chars().count() <= width {
            true => vec![line],
            false => vec![format!("  {name}:"), format!("    BASE {base}"), format!("    TEST {test}")],
        }
    };
    Paragraph::Lines(differences.iter().flat_map(lines).collect())
}

/// Returns a row for each case, followed by its iteration times for training.
fn figures(table: &ComparedTable, medium: Medium) -> Table {
    let headers = [
        ("", ""),
        ("BASE", table.unit),
        ("TEST", table.unit),
        ("difference", "%"),
        ("verdict", ""),
        ("detectable", "%"),
    ];
    Table::new(&headers, table.cases.iter().flat_map(|case| rows(table, case, medium)).collect())
}

fn rows(table: &ComparedTable, case: &ComparedCase, medium: Medium) -> Vec<Vec<String>> {
    let row = |name: String, row: &Row, unit: f64, verdict: String, smallest: String| {
        let figure = |figure: f64, is_reliable: bool| marked(four_digits(figure * unit), !is_reliable);
        let (base, test) = (figure(row.base, case.base_is_reliable), figure(row.test, case.test_is_reliable));
        vec![name, base, test, marked(interval(row), !case.is_reliable()), verdict, smallest]
    };
    let smallest = case.throughput.smallest.map_or_else(|| "-".to_owned(), |share| percent(share).replace('+', ""));
    let verdict = marked(verdict_text(case).to_owned(), !case.is_reliable());
    let is_strong = medium == Medium::Markdown && matches!(case.verdict, Verdict::Faster | Verdict::Slower);
    let verdict = if is_strong { format!("**{verdict}**") } else { verdict };
    let mut rows = vec![row(case.name.clone(), &case.throughput, 1.0, verdict, smallest)];
    if has_iterations(table) {
        let below = |name: &str, figures: &Row, unit: f64| {
            row(format!("  {name}"), figures, unit, String::new(), String::new())
        };
        let [base, test] =
            [(&case.throughput.base_runs, case.base_is_warned), (&case.throughput.test_runs, case.test_is_warned)]
                .map(|(runs, is_warned)| format!("{}{}", runs.len(), if is_warned { MARK } else { "" }));
        rows.push(["  runs".to_owned(), base, test].into_iter().chain([const { String::new() }; 3]).collect());
        rows.push(below("mean ms", &case.mean_seconds, 1e3));
        let percentiles = case.percentiles_seconds.iter();
        rows.extend(percentiles.map(|of| below(&format!("p{} ms", of.percent), &of.row, 1e3)));
        let energy = format!("J/{}", table.work_unit.singular());
        let others = [(energy.as_str(), &case.joules_per_unit), ("epoch cost", &case.epoch_cost)];
        rows.extend(others.into_iter().filter_map(|(name, of)| Some(below(name, of.as_ref()?, 1.0))));
    }
    rows
}

/// Returns true if rows of times follow each case. Collectives have too many message sizes for that.
fn has_iterations(table: &ComparedTable) -> bool {
    table.kind != SideKind::Collectives
}

fn verdict_text(case: &ComparedCase) -> &'static str {
    match case.verdict {
        _ if case.has_too_few_runs() => "Too few runs",
        Verdict::Faster => "Faster",
        Verdict::Slower => "Slower",
        Verdict::NoDifference => "No difference",
        Verdict::TooNoisy => "Too noisy",
    }
}

/// Formats a difference and its interval in percent: `-2.90 [-14.1, +8.31]`.
fn interval(row: &Row) -> String {
    match (row.low, row.high) {
        (Some(low), Some(high)) => format!("{} [{}, {}]", percent(row.difference), percent(low), percent(high)),
        _ => percent(row.difference),
    }
}

/// Formats a percentage with three digits, so that three numbers fit twenty columns.
fn percent(share: f64) -> String {
    match share * 100.0 {
        huge if huge >= 1000.0 => "> +999".to_owned(),
        percent => {
            let decimals = if percent.abs() < 9.995 { 2 } else { usize::from(percent.abs() < 99.95) };
            format!("{percent:+.decimals$}")
        }
    }
}

/// Explains the columns, the signs of differences and the verdicts.
fn legend(outcome: &ComparedResults) -> Vec<String> {
    let percent = |share: f64| trimmed(share * 100.0);
    let confidence = percent(1.0 - outcome.significance);
    let signs = match outcome.cases().any(|(table, _)| has_iterations(table)) {
        true => "Positive: TEST is faster in the first line of a case, and slower in the lines of times (ms).",
        false => "Positive: TEST is faster; times change by the reciprocal. GB/s: bus bandwidth.",
    };
    let verdict = match outcome.noise {
        0.0 => "Faster or Slower if the whole interval is above or below 0".to_owned(),
        noise => format!(
            "Faster or Slower if the whole interval is beyond the noise ({} to +{} %), No difference if it is within the noise",
            percent(1.0 / (1.0 + noise) - 1.0),
            percent(noise)
        ),
    };
    vec![
        "BASE and TEST: median over the runs of each side; mean: the step of the median speed, as in extract and report; \
         runs: those that count; p50 to p95: percentiles of the iteration times."
            .to_owned(),
        format!(
            "Difference: TEST minus BASE in % of BASE, and in brackets the {confidence} % confidence interval of the difference \
             of the geometric means (Welch's t-test, one value per run). {signs}"
        ),
        format!("Verdict: {verdict}, otherwise Too noisy: make more runs, or repeat them on a quieter machine. Too few runs: a side has no interval."),
        format!("Detectable: smallest difference that this number of runs detects in {:.0} % of measurements.", POWER * 100.0),
    ]
}

/// Explains the marks in the cells that are present.
fn signs(outcome: &ComparedResults) -> Vec<String> {
    let is_marked = |(table, case): (&ComparedTable, &ComparedCase)| {
        has_iterations(table) && (case.base_is_warned || case.test_is_warned)
    };
    let mark = outcome
        .cases()
        .any(is_marked)
        .then(|| format!("{MARK}: these runs count but have warnings: see the warnings below."));
    let is_doubtful = !outcome.cases().all(|(_, case)| case.is_reliable());
    if outcome.is_one_result() && (is_doubtful || outcome.cases().any(is_marked)) {
        return vec![format!(
            "The same runs have the same warnings, which `ringmark extract` and `ringmark report` print: {}",
            outcome.base.path
        )];
    }
    mark.into_iter().chain(is_doubtful.then(|| doubtful_legend("the warnings below"))).collect()
}

/// Warns that with many cases some verdicts are wrong by chance.
fn by_chance(outcome: &ComparedResults) -> Option<String> {
    let count = outcome.cases().count();
    let expected = outcome.significance * count as f64;
    (expected >= EXPECTED_WRONG).then(|| {
        let strict = trimmed(for_all(outcome.significance, count) * 100.0);
        format!(
            "{count} verdicts: if nothing has changed, up to {} of them may be wrong by chance; --significance \
             {strict}% keeps the chance of any to {} %.",
            trimmed(expected),
            trimmed(outcome.significance * 100.0)
        )
    })
}

/// Explains the interval of two sides that were measured one after the other.
fn in_sequence(outcome: &ComparedResults) -> Option<String> {
    let later = outcome.later_side()?;
    let earlier = if later == "TEST" { "BASE" } else { "TEST" };
    Some(format!(
        "Every run of {later} started after those of {earlier}: the intervals do not include changes on the hosts in \
         between (temperature, other load); alternate the runs of both sides to include them."
    ))
}

/// Merges the notes into one if every case has the same.
fn once_for_all(notes: Vec<String>, table: &ComparedTable) -> Vec<String> {
    let texts: Vec<&String> = table.cases.iter().filter_map(|case| case.note.as_ref()).collect();
    match texts.split_first() {
        Some((first, rest)) if texts.len() == table.cases.len() && rest.iter().all(|note| note == first) => {
            vec![(*first).clone()]
        }
        _ => notes,
    }
}

/// Formats three significant digits, without trailing zeros.
fn trimmed(number: f64) -> String {
    let decimals = (2.0 - number.abs().max(1e-9).log10().floor()).max(0.0) as usize;
    without_trailing_zeros(&format!("{number:.decimals$}")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_fit_their_columns() {
        for (share, text) in
            [(-0.029, "-2.90"), (0.099949, "+9.99"), (0.09996, "+10.0"), (-0.99951, "-100"), (12.0, "> +999")]
        {
            assert_eq!(percent(share), text);
        }
        for (number, text) in
            [(1.0, "1"), (0.25, "0.25"), (-0.990099, "-0.99"), (95.0, "95"), (99.9, "99.9"), (0.0125, "0.0125")]
        {
            assert_eq!(trimmed(number), text);
        }
    }
}

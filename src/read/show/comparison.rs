//! A comparison for people: what differs, then a line for each case, in a terminal or in Markdown. Not for arithmetic.

use ringmark_record::stats::comparison::{POWER, Verdict, for_all};
use ringmark_record::untrusted_text::printable;

use crate::read::analyse::comparison::side::{ConditionDifference, SideKind};
use crate::read::analyse::comparison::verdicts::{ComparedCase, ComparedResults, ComparedSide, ComparedTable, Row};
use crate::read::show::columns::{Columns, aligned, piped};
use crate::read::show::sections::{self, UNRELIABLE, marked};

/// Columns of a terminal that everything is made for.
const WIDTH: usize = 80;

/// Behind the number of runs of a side with warnings.
const MARK: &str = "!";

/// From this number of wrong verdicts by chance on, a note mentions them.
const EXPECTED_WRONG: f64 = 0.5;

/// Where it is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Terminal,
    Markdown,
}

/// Made for 80 columns.
pub fn terminal(outcome: &ComparedResults) -> String {
    show(outcome, Look::Terminal)
}

/// To be posted.
pub fn markdown(outcome: &ComparedResults) -> String {
    show(outcome, Look::Markdown)
}

fn show(outcome: &ComparedResults, look: Look) -> String {
    let mut paragraphs =
        vec![look.lines([side("BASE", &outcome.base), side("TEST", &outcome.test)].map(|side| look.foreign(&side)))];
    for table in outcome.tables.iter().filter(|table| !table.forced.is_empty()) {
        let forced = look.warning("not comparable, and compared because of --force");
        paragraphs.push(look.under(&forced, differences(&table.forced, look)));
    }
    let is_like = |table: &ComparedTable| table.differences.is_empty() && table.forced.is_empty();
    if outcome.differences.is_empty() && outcome.tables.iter().all(is_like) {
        paragraphs.push("What differs: no setting that both sides record.".to_owned());
    } else if !outcome.differences.is_empty() {
        paragraphs.push(look.under(&look.heading("What differs"), differences(&outcome.differences, look)));
    }
    for table in &outcome.tables {
        paragraphs.push(look.heading(&look.foreign(&table.title)));
        if !table.differences.is_empty() {
            paragraphs.push(differences(&table.differences, look));
        }
        paragraphs.push(look.table(&columns(table, look)));
        let notes = table.cases.iter().filter_map(|case| Some(format!("{}: {}", case.name, case.note.as_ref()?)));
        let notes = once_for_all(notes.collect(), table);
        if !notes.is_empty() {
            paragraphs.push(look.lines(notes.iter().map(|note| look.foreign(note))));
        }
    }
    paragraphs.push(legend(outcome, look));
    paragraphs.extend(by_chance(outcome, look));
    for (name, only) in [("BASE", &outcome.only_in_base), ("TEST", &outcome.only_in_test)] {
        if !only.is_empty() {
            paragraphs.push(look.foreign(&format!("Only in {name}, not compared: {}", only.join("; "))));
        }
    }
    for (name, side) in [("BASE", &outcome.base), ("TEST", &outcome.test)] {
        let reliability_warnings = side
            .reliability_warnings
            .iter()
            .map(|it| look.reliability_warning(&look.foreign(&format!("{name}: {it}"))));
        paragraphs.extend(reliability_warnings);
        paragraphs
            .extend(side.warnings.iter().map(|warning| look.warning(&look.foreign(&format!("{name}: {warning}")))));
    }
    if look == Look::Markdown {
        for (name, side) in [("BASE", &outcome.base), ("TEST", &outcome.test)] {
            let left_out = side.left_out.iter().map(|what| look.foreign(&format!("Not compared, {name}: {what}")));
            paragraphs.extend(left_out);
        }
    }
    paragraphs.push(outcome.summary());
    paragraphs.join("\n\n") + "\n"
}

fn side(name: &str, side: &ComparedSide) -> String {
    let runs = if side.runs == 1 { "1 run".to_owned() } else { format!("{} runs", side.runs) };
    let started = match &side.started {
        None => String::new(),
        Some((first, last)) if first == last => format!(", begun {first}"),
        Some((first, last)) => {
            // On one day the second date says nothing.
            let same_day = first.split_once(' ').zip(last.split_once(' ')).filter(|(first, last)| first.0 == last.0);
            format!(", begun {first} to {}", same_day.map_or(last.as_str(), |(_, (_, time))| time))
        }
    };
    format!("{name}  {}, {runs}{started}", side.path)
}

/// One below the other, in three lines where one would be too long.
fn differences(differences: &[ConditionDifference], look: Look) -> String {
    match look {
        Look::Markdown => {
            let row = |difference: &ConditionDifference| {
                [&difference.name, &difference.base, &difference.test].map(|word| look.foreign(word)).to_vec()
            };
            let headers = [("", ""), ("BASE", ""), ("TEST", "")];
            piped(&Columns::new(&headers, differences.iter().map(row).collect()))
        }
        Look::Terminal => {
            let line = |ConditionDifference { name, base, test }: &ConditionDifference| {
                let line = look.foreign(&format!("  {name}: {base} -> {test}"));
                match line.chars().count() <= WIDTH {
                    true => line,
                    false => [format!("  {name}:"), format!("    BASE {base}"), format!("    TEST {test}")]
                        .map(|line| look.foreign(&line))
                        .join("\n"),
                }
            };
            differences.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    }
}

/// A line a case, and below it, where single iterations are known, their times.
fn columns(table: &ComparedTable, look: Look) -> Columns {
    let headers =
        [("", ""), ("BASE", table.unit), ("TEST", table.unit), ("difference", "%"), ("verdict", ""), ("smallest", "%")];
    Columns::new(&headers, table.cases.iter().flat_map(|case| rows(table, case, look)).collect())
}

fn rows(table: &ComparedTable, case: &ComparedCase, look: Look) -> Vec<Vec<String>> {
    let row = |name: String, row: &Row, unit: f64, verdict: String, smallest: String| {
        let figure = |figure: f64| significant(figure * unit);
        vec![name, figure(row.base), figure(row.test), interval(row), verdict, smallest]
    };
    let smallest = case.throughput.smallest.map_or_else(|| "-".to_owned(), |share| percent(share).replace('+', ""));
    let verdict = marked(verdict_text(case.verdict).to_owned(), !case.is_reliable());
    let verdict = look.strong(&verdict, case.verdict);
    let mut first = row(look.foreign(&case.name), &case.throughput, 1.0, verdict, smallest);
    for (place, is_reliable) in [(1, case.base_is_reliable), (2, case.test_is_reliable)] {
        first[place] = marked(std::mem::take(&mut first[place]), !is_reliable);
    }
    let mut rows = vec![first];
    if has_iterations(table) {
        let time = |name: String, times: &Row| row(look.indented(&name), times, 1e3, String::new(), String::new());
        let [base, test] =
            [(&case.throughput.base_runs, case.base_is_warned), (&case.throughput.test_runs, case.test_is_warned)]
                .map(|(runs, is_warned)| format!("{}{}", runs.len(), if is_warned { MARK } else { "" }));
        rows.push([look.indented("runs"), base, test].into_iter().chain([const { String::new() }; 3]).collect());
        rows.push(time("mean ms".to_owned(), &case.mean_seconds));
        rows.extend(case.percentiles_seconds.iter().map(|of| time(format!("p{} ms", of.percent), &of.row)));
        let beside = [("J/image", &case.joules_per_image), ("epoch cost", &case.epoch_cost)];
        let beside = beside.into_iter().filter_map(|(name, of)| Some((name, of.as_ref()?)));
        rows.extend(beside.map(|(name, of)| row(look.indented(name), of, 1.0, String::new(), String::new())));
    }
    rows
}

/// Whether the times of iterations are shown: of training, where they are what is waited for. Messages are many.
fn has_iterations(table: &ComparedTable) -> bool {
    table.kind != SideKind::Collectives
}

fn verdict_text(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "Faster",
        Verdict::Slower => "Slower",
        Verdict::NoDifference => "No difference",
        Verdict::TooNoisy => "Too noisy to tell",
    }
}

/// `-2.90 [-14.1, +8.31]`, in percent.
fn interval(row: &Row) -> String {
    match (row.low, row.high) {
        (Some(low), Some(high)) => format!("{} [{}, {}]", percent(row.difference), percent(low), percent(high)),
        _ => percent(row.difference),
    }
}

/// Three digits of a percentage, so that three numbers fit twenty columns.
fn percent(share: f64) -> String {
    match share * 100.0 {
        huge if huge >= 1000.0 => "> +999".to_owned(),
        percent => {
            let decimals = if percent.abs() < 9.995 { 2 } else { usize::from(percent.abs() < 99.95) };
            format!("{percent:+.decimals$}")
        }
    }
}

/// Five digits, fewer of what is small, so that it fits eight columns.
fn significant(figure: f64) -> String {
    let decimals = match figure {
        small if small < 0.1 => 6,
        _ => 4_usize.saturating_sub(figure.log10().max(0.0) as usize),
    };
    format!("{figure:.decimals$}")
}

/// What verdicts and signs mean.
fn legend(outcome: &ComparedResults, look: Look) -> String {
    let percent = |share: f64| trimmed(share * 100.0);
    let confidence = percent(1.0 - outcome.significance);
    let signs = match outcome.cases().any(|(table, _)| has_iterations(table)) {
        true => "above 0 TEST is faster in the first line of a case, and slower in the lines of times (ms)",
        false => "above 0 TEST is faster; times differ by the reciprocal; GB/s are of bus bandwidth",
    };
    let verdict = match outcome.noise {
        0.0 => "above 0, below it, or neither".to_owned(),
        noise => {
            let low = percent(1.0 / (1.0 + noise) - 1.0);
            format!("beyond the noise of {low} to +{} %, within it, or neither", percent(noise))
        }
    };
    let legend = format!(
        "BASE and TEST are medians over runs. The difference is in % of BASE, and behind it the {confidence} % interval of the \
         geometric means (Welch's t-test, one figure a run): {signs}. The verdict says where the whole interval lies: \
         {verdict}. Smallest: what these runs would have shown, in {:.0} % of such measurements.",
        POWER * 100.0
    );
    let is_marked = |(table, case): (&ComparedTable, &ComparedCase)| {
        has_iterations(table) && (case.base_is_warned || case.test_is_warned)
    };
    let mark = match outcome.cases().any(is_marked) {
        true => format!(" {MARK}: these runs count, but read the warnings."),
        false => String::new(),
    };
    let doubtful = match outcome.cases().all(|(_, case)| case.is_reliable()) {
        true => String::new(),
        false => format!(" {}", sections::doubtful_legend("below")),
    };
    look.wrapped(&(legend + &mark + &doubtful))
}

/// Many cases are many chances.
fn by_chance(outcome: &ComparedResults, look: Look) -> Option<String> {
    let count = outcome.cases().count();
    let expected = outcome.significance * count as f64;
    (expected >= EXPECTED_WRONG).then(|| {
        let strict = trimmed(for_all(outcome.significance, count) * 100.0);
        look.wrapped(&format!(
            "{count} verdicts: where nothing has changed, up to {} of them may be wrong by chance; --significance \
             {strict}% keeps the chance of any to {} %.",
            trimmed(expected),
            trimmed(outcome.significance * 100.0)
        ))
    })
}

/// The same note for every case is one.
fn once_for_all(notes: Vec<String>, table: &ComparedTable) -> Vec<String> {
    let texts: Vec<&String> = table.cases.iter().filter_map(|case| case.note.as_ref()).collect();
    match texts.split_first() {
        Some((first, rest)) if texts.len() == table.cases.len() && rest.iter().all(|note| note == first) => {
            vec![(*first).clone()]
        }
        _ => notes,
    }
}

/// Three significant digits, without zeros behind them.
fn trimmed(number: f64) -> String {
    let decimals = (2.0 - number.abs().max(1e-9).log10().floor()).max(0.0) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        match line.chars().count() + 1 + word.chars().count() {
            _ if line.is_empty() => line.push_str(word),
            length if length <= WIDTH => line.extend([" ", word]),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

impl Look {
    /// Text that others wrote: nothing in it may move the cursor, break a table or be taken for HTML.
    fn foreign(self, text: &str) -> String {
        let seen = printable(text);
        match self {
            Look::Terminal => seen.into_owned(),
            Look::Markdown => seen.chars().fold(String::new(), |mut escaped, sign| {
                if matches!(sign, '|' | '<' | '>' | '`' | '*' | '[' | '\\') {
                    escaped.push('\\');
                }
                escaped.push(sign);
                escaped
            }),
        }
    }

    fn heading(self, text: &str) -> String {
        if self == Look::Markdown { format!("### {text}") } else { text.to_owned() }
    }

    fn under(self, heading: &str, text: String) -> String {
        format!("{heading}{}{text}", if self == Look::Markdown { "\n\n" } else { "\n" })
    }

    fn warning(self, text: &str) -> String {
        if self == Look::Markdown { format!("**Warning:** {text}") } else { format!("WARNING: {text}") }
    }

    fn reliability_warning(self, text: &str) -> String {
        if self == Look::Markdown {
            format!("**Warning (unreliable):** {text}")
        } else {
            format!("{UNRELIABLE}: {text}")
        }
    }

    fn lines(self, lines: impl IntoIterator<Item = String>) -> String {
        // Two blanks at the end of a line break it in Markdown.
        lines.into_iter().collect::<Vec<_>>().join(if self == Look::Markdown { "  \n" } else { "\n" })
    }

    fn wrapped(self, text: &str) -> String {
        if self == Look::Markdown { text.to_owned() } else { wrapped(text) }
    }

    fn table(self, columns: &Columns) -> String {
        if self == Look::Markdown { piped(columns) } else { aligned(columns) }
    }

    fn indented(self, name: &str) -> String {
        if self == Look::Markdown { name.to_owned() } else { format!("  {name}") }
    }

    fn strong(self, text: &str, verdict: Verdict) -> String {
        let tells = matches!(verdict, Verdict::Faster | Verdict::Slower);
        if self == Look::Markdown && tells { format!("**{text}**") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        let expected = [
            (0.0, "0.000000"),
            (0.0008, "0.000800"),
            (0.5, "0.5000"),
            (9.5325, "9.5325"),
            (12.3154, "12.315"),
            (9579.74, "9579.7"),
            (123456.7, "123457"),
        ];
        for (figure, text) in expected {
            assert_eq!(significant(figure), text);
            assert!(text.len() <= 8);
        }
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

    #[test]
    fn long_words_have_a_line_of_their_own() {
        let word = "x".repeat(100);
        assert_eq!(wrapped(&format!("a {word} b c")), format!("a\n{word}\nb c"));
    }
}

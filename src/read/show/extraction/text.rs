//! Figures for people: aligned columns for a terminal, and the same tables in Markdown.

use std::collections::BTreeSet;

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, LineStyle, Table};
use ringmark_record::case::Case;
use ringmark_record::config::CollectiveChoice;
use ringmark_record::environment::DeviceKind;
use ringmark_record::units::Seconds;

use crate::read::analyse::figures::{CaseRuns, Extraction, Group};
use crate::read::analyse::scaling_loss;

/// A column's name, and its unit where it has one (a speedup's is its base, where that is not 1n1g).
type Header = (String, String);

/// A table before it is known where it is shown.
pub struct Columns {
    headers: Vec<Header>,
    rows: Vec<Vec<String>>,
    /// Columns of words, which stand on the left; numbers stand on the right.
    words: BTreeSet<usize>,
}

impl Columns {
    /// Words in the first column, numbers in the others.
    pub fn new(headers: &[(&str, &str)], rows: Vec<Vec<String>>) -> Columns {
        let headers = headers.iter().map(|(name, unit)| ((*name).to_owned(), (*unit).to_owned())).collect();
        Columns { headers, rows, words: BTreeSet::from([0]) }
    }

    /// The same with words in these columns.
    pub fn with_words(self, columns: impl IntoIterator<Item = usize>) -> Columns {
        Columns { words: columns.into_iter().collect(), ..self }
    }
}

const LEGEND: [&str; 3] = [
    "speed: the mean of a run's rates, as DLPerf; images/time: all images over all",
    "time; both medians over runs. efficiency: speedup / (ranks / ranks of its base);",
    "CV: standard deviation of the speed over runs / its mean.",
];

/// Behind the number of runs of a case with warnings.
const MARK: &str = "!";

/// A table below that of the speeds, with what is said above it.
struct Part {
    title: String,
    legend: Vec<&'static str>,
    columns: Columns,
}

/// Those for which there are figures.
fn parts(group: &Group) -> impl Iterator<Item = Part> {
    let part = |title: &str, legend: &[&'static str], columns: Option<Columns>| {
        columns.map(|columns| Part { title: title.to_owned(), legend: legend.to_vec(), columns })
    };
    let parts = [
        part(
            "Time of an iteration, mean over ranks and runs",
            &["exposed: all-reduce that backward did not hide; share: of the step"],
            times(group),
        ),
        part(
            "Time of an iteration of the same ranks, with communication and without",
            &["cost: how much longer it is with it, waiting for each other included"],
            costs(group),
        ),
        part(&scaling_loss::title(group), &scaling_loss::LEGEND, scaling_loss::columns(group)),
    ];
    parts.into_iter().flatten()
}

/// Every group as aligned columns, made for 80 of them.
pub fn terminal(extraction: &Extraction) -> String {
    let mut paragraphs = Vec::new();
    for group in &extraction.groups {
        paragraphs.push(title(group).join("\n"));
        paragraphs.push(aligned(&speeds(group)));
        for Part { title, legend, columns } in parts(group) {
            paragraphs.push(format!("{title}\n({})", legend.join("\n")));
            paragraphs.push(aligned(&columns));
        }
        let warnings: Vec<String> = warnings(group).map(|warning| format!("WARNING: {warning}")).collect();
        if !warnings.is_empty() {
            paragraphs.push(warnings.join("\n"));
        }
    }
    paragraphs.push(legend(extraction, "WARNING"));
    paragraphs.join("\n\n") + "\n"
}

/// Every group as a section, then what was left out.
pub fn markdown(extraction: &Extraction) -> String {
    let mut paragraphs = vec![format!("# {}", escaped(&extraction.name))];
    for group in &extraction.groups {
        let title: Vec<String> = title(group).iter().map(|line| escaped(line)).collect();
        paragraphs.push(format!("## {}", title[0]));
        paragraphs.push(title[1..].join("; "));
        paragraphs.extend(warnings(group).map(|warning| format!("**Warning:** {}", escaped(warning))));
        paragraphs.push(piped(&speeds(group)));
        for Part { title, legend, columns } in parts(group) {
            paragraphs.push(format!("{title} ({}):", legend.join(" ")));
            paragraphs.push(piped(&columns));
        }
    }
    paragraphs.push(legend(extraction, "Warning"));
    if !extraction.problems.is_empty() {
        let problems: Vec<String> = extraction
            .problems
            .iter()
            .map(|problem| format!("- `{}`", problem.to_string().replace('`', "'")))
            .collect();
        paragraphs.push("## Not in the figures".to_owned());
        paragraphs.push(problems.join("\n"));
    }
    paragraphs.join("\n\n") + "\n"
}

/// For Markdown, as text and nothing else: names come from files, and may be made to look like a picture or like HTML.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '\\' | '`' | '*' | '[' | '|' => escaped.extend(['\\', letter]),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Of the table, then of its cases, each with its baseline.
fn warnings(group: &Group) -> impl Iterator<Item = &String> {
    let cases = group.cases.iter().flat_map(|case| std::iter::once(case).chain(case.baseline.as_deref()));
    group.warnings.iter().chain(cases.flat_map(|case| &case.warnings))
}

/// `word` is what the warnings of the runs begin with.
fn legend(extraction: &Extraction, word: &str) -> String {
    let mut lines: Vec<String> = LEGEND.map(str::to_owned).into();
    let is_marked = |group: &Group| warnings(group).count() > group.warnings.len();
    if extraction.groups.iter().any(is_marked) {
        lines.push(format!("{MARK}: these runs count, but read the lines that begin with {word}."));
    }
    lines.join("\n")
}

/// What was measured, on what, and how.
pub fn title(group: &Group) -> Vec<String> {
    let conditions = &group.conditions;
    let quick = if group.is_quick() { " - QUICK PROFILE" } else { "" };
    let (dtype, batch_size) = (conditions.dtype, conditions.batch_size);
    let counts = |values: &BTreeSet<usize>| values.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
    let length = match group.iterations.is_empty() {
        true => "no run counts".to_owned(),
        false => format!("{} iterations, the first {} left out", counts(&group.iterations), counts(&group.warmup)),
    };
    let what = format!("ResNet50-v1b, {dtype}, batch size {batch_size} per {}{quick}", process(group));
    match &conditions.recorded {
        None => vec![what, "device unknown: there are no records beside the logs".to_owned(), length],
        Some(recorded) => {
            let names: Vec<&str> = group.device_names.iter().map(String::as_str).collect();
            let config = &recorded.config;
            let collective = match config.exchange.collective {
                CollectiveChoice::Auto => String::new(),
                chosen => format!(", collective {chosen}"),
            };
            let options = format!(
                "{} pixels, {}, overlap {}, {} on the wire{collective}",
                config.image_size, config.layout, config.overlap, config.exchange.wire
            );
            vec![what, format!("{}: {}", recorded.device, names.join(" / ")), options, length]
        }
    }
}

/// What a rank drives.
pub fn process(group: &Group) -> &'static str {
    match &group.conditions.recorded {
        Some(recorded) if recorded.device == DeviceKind::Cpu => "rank",
        _ => "GPU",
    }
}

fn speeds(group: &Group) -> Columns {
    let base = group.base.filter(|base| *base != Case::SINGLE);
    let over = base.map_or(String::new(), |base| format!("over {base}"));
    let headers = [
        ("case", ""),
        ("ranks", ""),
        ("runs", ""),
        ("speed", "images/s"),
        ("images/time", "images/s"),
        (if process(group) == "GPU" { "per GPU" } else { "per rank" }, "images/s"),
        ("speedup", &over),
        ("efficiency", "%"),
        ("CV", "%"),
    ];
    Columns::new(&headers, group.cases.iter().map(speed_row).collect())
}

fn speed_row(case: &CaseRuns) -> Vec<String> {
    let name = [case.case.to_string(), case.case.ranks().to_string(), runs(case)];
    let figures = match &case.figures {
        None => vec!["-".to_owned(); 6],
        Some(figures) => vec![
            format!("{:.2}", figures.median_speed.0),
            format!("{:.2}", figures.images_over_time.0),
            format!("{:.2}", figures.per_gpu.0),
            format!("{:.2}", figures.speedup),
            format!("{:.1}", figures.efficiency * 100.0),
            figures.cv.map_or("-".to_owned(), |cv| format!("{:.2}", cv * 100.0)),
        ],
    };
    name.into_iter().chain(figures).collect()
}

/// Those that count of those that were found.
fn runs(case: &CaseRuns) -> String {
    format!("{}/{}{}", case.counted().count(), case.runs.len(), if case.warnings.is_empty() { "" } else { MARK })
}

/// `None` where no case has a baseline.
fn costs(group: &Group) -> Option<Columns> {
    let step = |case: &CaseRuns| Some(format!("{:.2}", case.figures.as_ref()?.times?.step.0 * 1e3));
    let row = |case: &CaseRuns| {
        let baseline = case.baseline.as_ref()?;
        let cost = case.communication_cost().map(|cost| format!("{:.1}", cost * 100.0));
        let figures = [step(case), step(baseline), cost].map(|figure| figure.unwrap_or("-".to_owned()));
        Some([case.case.to_string(), runs(baseline)].into_iter().chain(figures).collect())
    };
    let rows: Vec<Vec<String>> = group.cases.iter().filter_map(row).collect();
    let headers = [("case", ""), ("runs without", ""), ("step with", "ms"), ("without", "ms"), ("cost", "%")];
    (!rows.is_empty()).then(|| Columns::new(&headers, rows))
}

/// `None` where no case has records.
fn times(group: &Group) -> Option<Columns> {
    let rows: Vec<Vec<String>> = group.cases.iter().filter_map(time_row).collect();
    let headers = [
        ("case", ""),
        ("step", "ms"),
        ("forward", "ms"),
        ("backward", "ms"),
        ("exposed", "ms"),
        ("share", "%"),
        ("optimizer", "ms"),
    ];
    (!rows.is_empty()).then(|| Columns::new(&headers, rows))
}

fn time_row(case: &CaseRuns) -> Option<Vec<String>> {
    let times = case.figures.as_ref()?.times?;
    let milliseconds = |time: Seconds| format!("{:.2}", time.0 * 1e3);
    Some(vec![
        case.case.to_string(),
        milliseconds(times.step),
        milliseconds(times.forward),
        milliseconds(times.backward),
        milliseconds(times.exposed_allreduce),
        format!("{:.1}", times.exposed_share() * 100.0),
        milliseconds(times.optimizer),
    ])
}

/// For a terminal: units below the names, numbers to the right.
pub fn aligned(columns: &Columns) -> String {
    let has_units = columns.headers.iter().any(|(_, unit)| !unit.is_empty());
    let header = |(name, unit): &Header| if has_units { format!("{name}\n{unit}") } else { name.clone() };
    let headers = columns.headers.iter().map(header);
    let mut table = Table::new();
    table.load_style(NOTHING.header_separator(LineStyle::none().fill('-')));
    table.set_header(headers).add_rows(&columns.rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 2 }, 0));
        if !columns.words.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// For Markdown: one line of headers, numbers to the right.
pub fn piped(columns: &Columns) -> String {
    let headers = columns.headers.iter().map(|(name, unit)| match unit.as_str() {
        "" => name.clone(),
        unit => format!("{name} ({unit})"),
    });
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(headers).add_rows(&columns.rows);
    let is_number = |index: &usize| !columns.words.contains(index);
    for (_, column) in table.column_iter_mut().enumerate().filter(|(index, _)| is_number(index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut lines: Vec<String> = table.lines().collect();
    if let Some(line) = lines.get_mut(1) {
        let rules = line.trim_matches('|').split('|').enumerate();
        let rules =
            rules.map(|(index, rule)| if is_number(&index) { rule[1..].to_owned() + ":" } else { rule.to_owned() });
        *line = format!("|{}|", rules.collect::<Vec<_>>().join("|"));
    }
    lines.join("\n")
}

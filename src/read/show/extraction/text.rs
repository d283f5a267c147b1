//! Figures of training as text.

use ringmark_core::dimension::{Case, ImagesPerSecond, Phase, Seconds};
use ringmark_core::number_text::four_digits;

use crate::output::table::Table;
use crate::read::analyze::batch_sizes::BatchTable;
use crate::read::analyze::reliability;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::accuracy::{self, Accuracy};
use crate::read::analyze::training::batch_sizes;
use crate::read::analyze::training::conclusion;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::{Extraction, Group, TrainedCase};
use crate::read::analyze::training::title::{process, title, unlike_devices};
use crate::read::load::iteration_times::phases_to_show;
use crate::read::load::problem::Problem;
use crate::read::show;
use crate::read::show::batch_sizes::{ExtraRows, tables};
use crate::read::show::extraction::{kv_stores, scaling_loss};
use crate::read::show::numbers::{MARK, doubtful_legend, mark_legend, marked, milliseconds, percent_number};
use crate::read::show::text::{self, Medium, Paragraph, WIDTH};

const LEGEND: [&str; 4] = [
    "speed: images / time of a run; median over runs.",
    "DLPerf: mean of the logged rates of a run, median over runs; used in no other figure.",
    "efficiency: speedup / (ranks / ranks of the base).",
    "CV: standard deviation / mean of the runs' speeds.",
];

const MARGIN_LEGEND: &str = "+-: half of the 95 % confidence interval of the efficiency.";

/// Printed instead of the omitted tables of a quick profile.
const LEFT_OUT: &str = "--explain adds iteration times, arithmetic and scaling loss";

const BY_BATCH_SIZE: &str = "Training by batch size per rank: images/s, and peak memory of any rank";

const PEAK_LEGEND: &str = "peak GB: memory of tensors on a GPU, resident memory on a CPU; 1 GB is 1e9 bytes.";

/// Returns the comparison of kv-stores, a section for each group, the tables by batch size, the `published` sections, and
/// the exclusions.
pub fn text(extraction: &Extraction, price: Option<&Price>, published: Vec<Paragraph>, medium: Medium) -> String {
    let by_size = batch_sizes::tables(&extraction.groups, &extraction.shortages);
    let mut text = vec![Paragraph::Title(extraction.name.clone())];
    text.extend(kv_stores::sections(&extraction.groups));
    text.extend(extraction.groups.iter().flat_map(|group| section(group, price, medium)));
    text.extend(by_size.iter().flat_map(|(table, _)| section_by_batch_size(table, medium)));
    text.extend(published);
    let warnings = [&format!("the lines that begin with {}", medium.warning()), "the warnings above"];
    text.push(Paragraph::Legend(legend(extraction, !by_size.is_empty(), warnings)));
    text.extend(left_out(&extraction.problems, medium));
    text::render(&text, medium)
}

/// Returns the speeds of each group and its conclusion, for the end of a sweep.
pub fn summary(extraction: &Extraction) -> String {
    let section = |group: &Group| {
        let heading = title(group).into_iter().take(1).collect();
        let conclusion = conclusion::group_conclusion(group).into_iter().collect();
        [Paragraph::Heading(heading), Paragraph::Table(speeds(group)), Paragraph::Lines(conclusion)]
    };
    let mut text: Vec<Paragraph> = extraction.groups.iter().flat_map(section).collect();
    // Those of runs that an earlier session finished are not in the output of this one.
    let [_, signs] = legend(extraction, false, ["the warnings that `ringmark extract` prints"; 2]);
    text.push(Paragraph::Lines(signs));
    text::render(&text, Medium::Terminal { width: WIDTH, is_explained: false })
}

/// Lists files and runs excluded from the figures. Only for Markdown: on a terminal they are printed as messages.
pub fn left_out(problems: &[Problem], medium: Medium) -> Vec<Paragraph> {
    let problems: Vec<String> = problems.iter().map(Problem::to_string).collect();
    match medium {
        Medium::Markdown if !problems.is_empty() => {
            vec![Paragraph::Heading(vec!["Not in the figures".to_owned()]), Paragraph::Quotes(problems)]
        }
        _ => Vec::new(),
    }
}

/// Returns a table by batch size, without warnings: the sections of its groups contain them.
fn section_by_batch_size(table: &BatchTable, medium: Medium) -> Vec<Paragraph> {
    let quick = if table.is_quick { " - QUICK PROFILE" } else { "" };
    let device = table.device.map_or("device unknown".to_owned(), |device| format!("{device}: {}", table.devices));
    let kv_store = if table.kv_store.is_ring() { String::new() } else { format!(", kv-store {}", table.kv_store) };
    let title = vec![format!("{BY_BATCH_SIZE}{quick}"), device, table.pixels() + &kv_store];
    let tables = tables(table, ExtraRows::SpreadAndMemory, medium);
    std::iter::once(Paragraph::Heading(title)).chain(tables).collect()
}

/// Returns the speeds, followed by every table that has figures. Those of a quick profile are omitted on a terminal
/// unless `--explain` is given.
fn section(group: &Group, price: Option<&Price>, medium: Medium) -> Vec<Paragraph> {
    let is_short = group.is_quick() && matches!(medium, Medium::Terminal { is_explained: false, .. });
    let mut figures = vec![Paragraph::Table(speeds(group))];
    figures.extend(unlike_devices(group).map(|note| Paragraph::Note(vec![note])));
    let mut below = |title: &str, legend: &[&'static str], table: Option<Table>| {
        let caption = Paragraph::Caption(title.to_owned(), legend.to_vec());
        let table = table.filter(|_| !is_short);
        figures.extend(table.into_iter().flat_map(|table| [caption.clone(), Paragraph::Table(table)]));
    };
    below(
        "Time of an iteration: mean over ranks in the median run",
        &["exposed: all-reduce not hidden by backward; share: exposed / step"],
        times(group),
    );
    below("Validation (--validate) after the last epoch, median over runs", &[], accuracies(group));
    below(
        "Step with communication, and of the same ranks without it (baseline)",
        &["cost: additional step time, including the wait for the slowest rank"],
        costs(group),
    );
    below(
        "Arithmetic rate of the network, all ranks",
        &[
            "products: measured rate of matrix products in the same precision, on all ranks at",
            "once, after the last iteration; peak: published peak of the GPU (its share is the MFU)",
        ],
        show::utilization::table(group),
    );
    let over_limit = show::utilization::over_limit(group.cases.iter().filter_map(|case| group.utilization(case)));
    let over_limit = over_limit.filter(|_| !is_short);
    let (economy, economy_legend) = show::economy::table(group, price).unzip();
    below(show::economy::TITLE, &economy_legend.unwrap_or_default(), economy);
    below(show::work_load::TITLE, &show::work_load::LEGEND, show::work_load::table(group));
    below(&scaling_loss::title(group), &scaling_loss::LEGEND, scaling_loss::table(group));
    figures.extend(over_limit.map(|note| Paragraph::Note(vec![note])));
    let unclear = scaling_loss::unclear(group).into_iter().filter(|_| !is_short);
    figures.extend(unclear.map(|sentence| Paragraph::Note(vec![sentence])));
    figures.extend(is_short.then(|| Paragraph::Note(vec![LEFT_OUT.to_owned()])));
    let unreliable = reliability::sentences(&group.all_reliability_warnings());
    let other = group.with_baselines().flat_map(TrainedCase::other_warnings);
    text::section(medium, title(group), figures, [unreliable, group.warnings.iter().cloned().chain(other).collect()])
}

/// Returns the warnings of the table, then those of its cases and baselines.
fn warnings(group: &Group) -> impl Iterator<Item = &String> {
    group.warnings.iter().chain(group.with_baselines().flat_map(|case| &case.warnings))
}

/// Returns the lines that explain columns, and those that explain signs in cells: first those of `marked` runs, then
/// those of `doubtful` figures, both with the place of the warnings.
fn legend(extraction: &Extraction, has_sizes: bool, [marked, doubtful]: [&str; 2]) -> [Vec<String>; 2] {
    let is_marked = |group: &Group| warnings(group).count() > group.warnings.len();
    let mark = extraction.groups.iter().any(is_marked).then(|| mark_legend(marked));
    let is_doubtful = extraction.groups.iter().any(|group| !group.all_reliability_warnings().is_empty());
    let doubtful = is_doubtful.then(|| doubtful_legend(doubtful));
    let peak = has_sizes.then(|| PEAK_LEGEND.to_owned());
    let margin = extraction.groups.iter().any(has_margins).then(|| MARGIN_LEGEND.to_owned());
    let columns = LEGEND.map(str::to_owned).into_iter().chain(margin).chain(peak).collect();
    [columns, mark.into_iter().chain(doubtful).collect()]
}

fn speeds(group: &Group) -> Table {
    let base = group.base.filter(|base| *base != Case::SINGLE);
    let over = base.map_or(String::new(), |base| format!("over {base}"));
    let headers = [
        ("case", ""),
        ("ranks", ""),
        ("runs", ""),
        ("speed", "images/s"),
        ("DLPerf", "images/s"),
        (if process(group) == "GPU" { "per GPU" } else { "per rank" }, "images/s"),
        ("speedup", &over),
        ("efficiency", "%"),
        ("+-", "%"),
        ("CV", "%"),
    ];
    let rows = group.cases.iter().map(|case| speed_row(group, case)).collect::<Vec<_>>();
    Table::new(&headers, rows).without_empty("+-")
}

/// Returns true if the efficiency of any case has a confidence interval.
fn has_margins(group: &Group) -> bool {
    group.cases.iter().filter_map(|case| case.figures.as_ref()).any(|figures| figures.efficiency_margin.is_some())
}

fn speed_row(group: &Group, case: &TrainedCase) -> Vec<String> {
    let speed_is_doubtful = group.speed_reliability_warnings(case).next().is_some();
    let scaling_is_doubtful = group.reliability_warnings_of(case).next().is_some();
    let speed = |speed: ImagesPerSecond| marked(four_digits(speed.0), speed_is_doubtful);
    let name = [case.case.to_string(), case.case.ranks().to_string(), runs(case)];
    let scaling = |figure: String| marked(figure, scaling_is_doubtful);
    let Some(figures) = &case.figures else {
        return name.into_iter().chain(vec!["-".to_owned(); 7]).collect();
    };
    let margin = figures.efficiency_margin.map_or("-".to_owned(), |margin| scaling(percent_number(margin)));
    let mut row = Vec::from(name);
    row.extend([figures.speed, figures.dlperf.median_speed, figures.per_rank].map(speed));
    row.extend([format!("{:.2}", figures.speedup), percent_number(figures.efficiency)].map(scaling));
    row.push(margin);
    row.push(figures.cv.map_or("-".to_owned(), |cv| format!("{:.2}", cv * 100.0)));
    row
}

/// Formats the runs that count and those found, as `2/3`, with a mark for warnings.
fn runs(case: &TrainedCase) -> String {
    format!("{}/{}{}", case.counted().count(), case.runs.len(), if case.warnings.is_empty() { "" } else { MARK })
}

/// Returns `None` if no case has a baseline.
fn costs(group: &Group) -> Option<Table> {
    let is_doubtful = |case: &TrainedCase| group.speed_reliability_warnings(case).next().is_some();
    let step = |case: &TrainedCase| {
        let step = case.figures.as_ref()?.times?.step;
        Some(marked(milliseconds(step), is_doubtful(case)))
    };
    let row = |case: &TrainedCase| {
        let baseline = case.baseline.as_ref()?;
        let cost = case.communication_cost().map(|cost| format!("{:.1}", cost * 100.0));
        let cost = cost.map(|cost| marked(cost, is_doubtful(case) || is_doubtful(baseline)));
        let figures = [step(case), step(baseline), cost].map(|figure| figure.unwrap_or("-".to_owned()));
        Some([case.case.to_string(), runs(baseline)].into_iter().chain(figures).collect())
    };
    let rows: Vec<Vec<String>> = group.cases.iter().filter_map(row).collect();
    let headers = [("case", ""), ("runs", "baseline"), ("step", "ms"), ("baseline", "ms"), ("cost", "%")];
    (!rows.is_empty()).then(|| Table::new(&headers, rows))
}

/// Returns `None` if no case has predictions.
fn accuracies(group: &Group) -> Option<Table> {
    let row = |case: &TrainedCase| {
        let Accuracy { epochs, loss, top_1, top_5 } = accuracy::case_accuracy(case)?;
        let percent = |share: f64| format!("{:.2}", share * 100.0);
        let loss = loss.map_or("-".to_owned(), |loss| format!("{loss:.4}"));
        Some(vec![case.case.to_string(), epochs.to_string(), loss, percent(top_1), percent(top_5)])
    };
    let rows: Vec<Vec<String>> = group.cases.iter().filter_map(row).collect();
    let headers = [("case", ""), ("epochs", ""), ("loss", ""), ("top-1", "%"), ("top-5", "%")];
    (!rows.is_empty()).then(|| Table::new(&headers, rows))
}

/// Returns `None` if no case has records.
fn times(group: &Group) -> Option<Table> {
    let phases = phases_to_show(group.cases.iter().filter_map(|case| case.figures.as_ref()?.times.as_ref()));
    let rows: Vec<Vec<String>> = group.cases.iter().filter_map(|case| time_row(group, case, &phases)).collect();
    let phase = |phase: &Phase| -> Vec<(&str, &str)> {
        let share = (*phase == Phase::ExposedAllreduce).then_some(("share", "%"));
        [(phase.title(), "ms")].into_iter().chain(share).collect()
    };
    let first = [("case", ""), ("step", "ms")];
    let headers: Vec<(&str, &str)> = first.into_iter().chain(phases.iter().flat_map(phase)).collect();
    (!rows.is_empty()).then(|| Table::new(&headers, rows))
}

fn time_row(group: &Group, case: &TrainedCase, phases: &[Phase]) -> Option<Vec<String>> {
    let times = case.figures.as_ref()?.times?;
    let is_doubtful = group.speed_reliability_warnings(case).next().is_some();
    let milliseconds = |time: Seconds| marked(milliseconds(time), is_doubtful);
    let mut row = vec![case.case.to_string(), milliseconds(times.step)];
    for phase in phases {
        row.push(milliseconds(times.phases[*phase]));
        row.extend(
            (*phase == Phase::ExposedAllreduce)
                .then(|| marked(format!("{:.1}", times.exposed_share() * 100.0), is_doubtful)),
        );
    }
    Some(row)
}

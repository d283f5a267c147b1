//! Figures of training as text.

use ringmark_core::dimension::{Case, Phase, WorkUnit};

use crate::output::table::Table;
use crate::read::analyze::batch_sizes::BatchTable;
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::accuracy;
use crate::read::analyze::training::batch_sizes;
use crate::read::analyze::training::conclusion;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::title::{process, title, unlike_devices};
use crate::read::load::folder::Shortage;
use crate::read::load::iteration_times::phases_to_show;
use crate::read::load::problem::Problem;
use crate::read::show;
use crate::read::show::batch_sizes::{ExtraRows, PEAK_LEGEND, ROW_LEGEND, tables};
use crate::read::show::columns;
use crate::read::show::numbers::{doubtful_legend, mark_legend};
use crate::read::show::text::{self, Medium, Paragraph, WIDTH};
use crate::read::show::training::columns::{self as training, Column};
use crate::read::show::training::{scaling_loss, strategies};

const LEGEND: [&str; 7] = [
    "case: nodes and ranks per node, 2n8g for 2 nodes with 8 ranks each; ranks: of all nodes.",
    "runs: those that count / those found or planned.",
    "speed: images or tokens / time of a run; median over runs. per rank, per GPU: speed / ranks.",
    "DLPerf (--published): mean of the logged rates of a run, median over runs; used in no other figure.",
    "speedup: speed / speed of the base.",
    "efficiency: speedup / (ranks / ranks of the base).",
    "CV: standard deviation / mean of the runs' speeds.",
];

const MARGIN_LEGEND: &str = "\u{b1}: half of the 95 % confidence interval of the efficiency.";

/// Printed instead of the omitted tables of a quick profile.
const LEFT_OUT: &str = "--explain adds iteration times, FLOP rate and scaling loss";

const BY_BATCH_SIZE: &str = "Training by batch size per rank";

/// Returns the comparison of strategies, a section for each group, the tables by batch size, the `published` sections, and
/// the exclusions.
pub fn text(result: &ResultFolder, price: Option<&Price>, published: Option<Vec<Paragraph>>, medium: Medium) -> String {
    let with_dlperf = published.is_some();
    let by_size = batch_sizes::tables(result.training(), &result.shortages);
    let mut text = vec![Paragraph::Title(result.name.clone())];
    text.extend(strategies::sections(result.training()));
    let shown: Vec<&Shortage> = by_size.iter().flat_map(|(table, _)| &table.shortages).collect();
    let others = result.shortages.iter().filter(|shortage| !shown.contains(shortage));
    let others: Vec<String> = others.map(Shortage::to_string).collect();
    text.extend((!others.is_empty()).then_some(Paragraph::Note(others)));
    text.extend(
        result.training().iter().flat_map(|group| section((group, result.problems.len()), price, with_dlperf, medium)),
    );
    text.extend(by_size.iter().flat_map(|(table, _)| section_by_batch_size(table, medium)));
    text.extend(published.into_iter().flatten());
    let warnings = [&format!("the lines that begin with {}", medium.warning()), "the warnings above"];
    text.push(Paragraph::Legend(legend(result, !by_size.is_empty(), warnings)));
    text.extend(left_out(&result.problems, medium));
    text::render(&text, medium)
}

/// Returns the speeds of each group and its conclusion, for the end of a sweep.
pub fn summary(result: &ResultFolder) -> String {
    let section = |group: &TrainingGroup| {
        let heading = text::summary_heading(title(group), &group.assessment(), result.problems.len());
        let conclusion = conclusion::group_conclusion(group).into_iter().collect();
        [heading, Paragraph::Table(speeds(group, false)), Paragraph::Lines(conclusion)]
    };
    let mut text: Vec<Paragraph> = result.training().iter().flat_map(section).collect();
    // Those of runs that an earlier session finished are not in the output of this one.
    let [_, signs] =
        legend(result, false, ["the warnings above, or those of `ringmark extract`", "the warnings above"]);
    text.push(text::unreliable(&result.assessment()));
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
    let strategy = (!table.strategy.is_all_reduce()).then(|| format!("strategy {}", table.strategy));
    let options = table.pixels().into_iter().chain(strategy).collect::<Vec<_>>().join(", ");
    let unit = table.unit().per_second();
    let what = format!("{BY_BATCH_SIZE}: {unit}, and peak memory of any rank{quick}");
    let title = [what, device, options].into_iter().filter(|line| !line.is_empty()).collect();
    let tables = tables(table, ExtraRows::SpreadAndMemory, medium);
    std::iter::once(Paragraph::Heading(title)).chain(tables).collect()
}

/// Returns the speeds, followed by every table that has figures. Those of a quick profile are omitted on a terminal
/// unless `--explain` is given.
fn section(
    (group, problems): (&TrainingGroup, usize),
    price: Option<&Price>,
    with_dlperf: bool,
    medium: Medium,
) -> Vec<Paragraph> {
    let is_short = group.is_quick() && matches!(medium, Medium::Terminal { is_explained: false, .. });
    let mut figures = vec![Paragraph::Table(speeds(group, with_dlperf))];
    figures.extend(unlike_devices(group).map(|note| Paragraph::Note(vec![note])));
    let mut below = |title: &str, legend: &[&'static str], table: Option<Table>| {
        let caption = Paragraph::Caption(title.to_owned(), legend.to_vec());
        let table = table.filter(|_| !is_short);
        figures.extend(table.into_iter().flat_map(|table| [caption.clone(), Paragraph::Table(table)]));
    };
    below(
        "Time of an iteration: mean over ranks in the median run",
        &[
            match group.unit() {
                WorkUnit::Image => {
                    "step: one iteration; input: wait for images, if they are read; forward: with the loss;"
                }
                WorkUnit::Token => {
                    "step: one iteration; input: wait for tokens, if they are read; forward: with the loss;"
                }
            },
            "backward: without time blocked by communication; optimizer: weight update;",
            "exposed: all-reduce not hidden by backward; exposed share: exposed / step;",
            "median run: of an even number of runs, the mean of the two in the middle",
        ],
        times(group),
    );
    below(
        "Validation (--validate) after the last epoch, median over runs",
        &[
            "epochs: trained; loss: mean over the images or tokens; perplexity: exp(loss);",
            "top-1, top-5: share with the label among the first guesses",
        ],
        accuracies(group),
    );
    below(
        "Step with communication, and of the same ranks without it (baseline)",
        &[
            "runs: of the baseline; step: with communication; baseline: step without it;",
            "cost: additional step time, including the wait for the slowest rank",
        ],
        costs(group),
    );
    for (title, legend, table) in show::utilization::tables(group) {
        below(title, &legend, Some(table));
    }
    let over_limit = show::utilization::over_limit(group.cases.iter().filter_map(|case| group.utilization(case)));
    let over_limit = over_limit.filter(|_| !is_short);
    let (economy, economy_legend) = show::economy::table(group, price).unzip();
    below(show::economy::title(group.unit(), price.is_some()), &economy_legend.unwrap_or_default(), economy);
    below(show::work_load::TITLE, &show::work_load::LEGEND, show::work_load::table(group));
    below(show::weight_waits::TITLE, &show::weight_waits::LEGEND, show::weight_waits::table(group));
    below(show::checkpoints::TITLE, &show::checkpoints::LEGEND, show::checkpoints::table(group));
    below(&scaling_loss::title(group), &scaling_loss::LEGEND, scaling_loss::table(group));
    let notes = over_limit.into_iter().chain(show::utilization::recompute_cost(group));
    figures.extend(notes.map(|note| Paragraph::Note(vec![note])));
    let unclear = show::weight_waits::notes(group).into_iter().chain(scaling_loss::unclear(group));
    let unclear = unclear.filter(|_| !is_short);
    figures.extend(unclear.map(|sentence| Paragraph::Note(vec![sentence])));
    figures.extend(is_short.then(|| Paragraph::Note(vec![LEFT_OUT.to_owned()])));
    text::section(medium, title(group), figures, (group.assessment(), problems))
}

/// Returns the lines that explain columns, and those that explain signs in cells: first those of `marked` runs, then
/// those of `doubtful` figures, both with the place of the warnings.
fn legend(result: &ResultFolder, has_sizes: bool, [marked, doubtful]: [&str; 2]) -> [Vec<String>; 2] {
    let is_marked = |group: &TrainingGroup| group.with_baselines().any(|case| !case.warnings.is_empty());
    let mark = result.training().iter().any(is_marked).then(|| mark_legend(marked));
    let is_doubtful = !result.assessment().is_reliable();
    let doubtful = is_doubtful.then(|| doubtful_legend(doubtful));
    let by_size = has_sizes.then_some([ROW_LEGEND, PEAK_LEGEND]).into_iter().flatten().map(str::to_owned);
    let margin = result.training().iter().any(has_margins).then(|| MARGIN_LEGEND.to_owned());
    let columns = LEGEND.map(str::to_owned).into_iter().chain(margin).chain(by_size).collect();
    [columns, mark.into_iter().chain(doubtful).collect()]
}

/// DLPerf's speed is shown on request, and for logs without records, of which it is the only figure.
fn speeds(group: &TrainingGroup, with_dlperf: bool) -> Table {
    let with_dlperf = with_dlperf || group.recorded_conditions().is_none();
    let base = group.base.filter(|base| *base != Case::SINGLE);
    let over = base.map_or(String::new(), |base| format!("over {base}"));
    let mut shown = vec![columns::case(), columns::ranks(), columns::marked_runs(), training::speed(group.unit())];
    shown.extend(with_dlperf.then(|| training::dlperf_speed(group.unit())));
    shown.extend([
        training::speed_per_rank(if process(group) == "GPU" { "GPU" } else { "rank" }, group.unit()),
        training::speedup().with_unit(&over),
        training::efficiency(),
        training::efficiency_margin(),
        columns::cv(),
    ]);
    columns::table(group, &group.cases, shown).without_empty("\u{b1}")
}

/// Returns true if the efficiency of any case has a confidence interval.
fn has_margins(group: &TrainingGroup) -> bool {
    group.cases.iter().filter_map(|case| case.figures.as_ref()).any(|figures| figures.efficiency_margin.is_some())
}

/// Returns `None` if no case has a baseline.
fn costs(group: &TrainingGroup) -> Option<Table> {
    let runs_of_baseline = columns::numbers_of_text("runs", |group: &TrainingGroup, case: &TrainingCase| {
        case.baseline.as_ref().map(|baseline| columns::marked_runs().cell(group, baseline)).unwrap_or_default()
    });
    let shown = vec![
        columns::case(),
        runs_of_baseline.with_unit("baseline"),
        training::step(),
        training::baseline_step(),
        training::communication_cost(),
    ];
    some_cases(group, |case| case.baseline.is_some(), shown)
}

/// Returns `None` if no case has predictions.
fn accuracies(group: &TrainingGroup) -> Option<Table> {
    let shown = [columns::case(), training::epochs()].into_iter().chain(training::accuracy()).collect();
    let table = some_cases(group, |case| accuracy::case_accuracy(case).is_some(), shown)?;
    // Images have no perplexity, tokens no classes.
    Some(["top-1", "top-5", "perplexity"].into_iter().fold(table, Table::without_empty))
}

/// Returns `None` if no case has records.
fn times(group: &TrainingGroup) -> Option<Table> {
    let phases = phases_to_show(group.cases.iter().filter_map(|case| case.figures.as_ref()?.times.as_ref()));
    let mut shown = vec![columns::case(), training::step()];
    for phase in phases {
        shown.push(training::phase(phase));
        shown.extend((phase == Phase::ExposedAllreduce).then(training::exposed_share));
    }
    some_cases(group, |case| case.figures.as_ref().is_some_and(|figures| figures.times.is_some()), shown)
}

/// Returns a table of the cases with `is_shown`; `None` if there are none.
fn some_cases(group: &TrainingGroup, is_shown: fn(&&TrainingCase) -> bool, shown: Vec<Column>) -> Option<Table> {
    let cases: Vec<&TrainingCase> = group.cases.iter().filter(is_shown).collect();
    (!cases.is_empty()).then(|| columns::table(group, cases, shown))
}

//! Figures of training, by case and by run, each with and without communication.

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::dimension::{Phase, Seconds};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::summary::step_percentiles;

use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::energy;
use crate::read::analyze::training::figures::{Group, TrainedCase};
use crate::read::analyze::training::scaling_loss;
use crate::read::analyze::utilization::Utilization;
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::run::{self, Measured, Run};
use crate::read::show::export::figure::{self, ExportedSeries, Scope};

/// Returns the figures of every case of the result `name` that has a counted run, with and without communication.
pub fn cases(name: &str, groups: &[Group]) -> Vec<ExportedSeries> {
    let of_case = |(group, case): (&Group, &TrainedCase)| {
        let baseline = case.baseline.as_ref().and_then(|baseline| case_series(name, group, baseline, false));
        case_series(name, group, case, true).into_iter().chain(baseline).collect::<Vec<_>>()
    };
    let all = groups.iter().flat_map(|group| group.cases.iter().map(move |case| (group, case)));
    all.flat_map(of_case).collect()
}

pub fn runs<'a>(name: &str, groups: &'a [Group]) -> Vec<(&'a Run, ExportedSeries)> {
    let of_group = |group: &'a Group| {
        let runs = group.with_baselines().flat_map(|case| case.runs.iter().map(move |run| (case, run)));
        runs.filter_map(|(case, run)| Some((run, run_series(name, group, case, run)?))).collect::<Vec<_>>()
    };
    groups.iter().flat_map(of_group).collect()
}

fn labels(name: &str, group: &Group, case: String, communicates: bool) -> Vec<(&'static str, String)> {
    let conditions = &group.conditions;
    let recorded = conditions.recorded.as_ref();
    let text = |value: Option<String>| value.unwrap_or_default();
    vec![
        ("result", name.to_owned()),
        ("benchmark", BenchmarkKind::Train.to_string()),
        ("group", group.label.clone()),
        ("model", conditions.model.to_string()),
        ("dtype", conditions.dtype.to_string()),
        ("batch_size", conditions.batch_size.to_string()),
        ("case", case),
        ("communication", if communicates { "on" } else { "off" }.to_owned()),
        ("kv_store", conditions.kv_store.to_string()),
        ("device", text(recorded.map(|recorded| recorded.device.to_string()))),
        ("profile", text(recorded.map(|recorded| recorded.profile.to_string()))),
    ]
}

/// Returns the figures over all counted runs. Communication cost belongs to the runs with communication.
fn case_series(name: &str, group: &Group, case: &TrainedCase, communicates: bool) -> Option<ExportedSeries> {
    let figures = case.figures.as_ref()?;
    let started = |run: &Run| run.outcome.is_ok().then(|| run.recorded.as_ref().map(|it| it.started.0)).flatten();
    let started = case.runs.iter().filter_map(started).reduce(f64::min).map(Seconds);
    let labels = labels(name, group, case.case.to_string(), communicates);
    let mut series = ExportedSeries::new(Scope::Case, labels, started);
    series.describe(&run::environment(&case.runs));
    series.add(&figure::IMAGES_PER_SECOND, Some(figures.speed.0));
    series.add(&figure::IMAGES_PER_SECOND_PER_RANK, Some(figures.per_rank.0));
    series.add(&figure::RANKS, Some(case.case.ranks()));
    series.add(&figure::CV, figures.cv);
    series.add(&figure::SPEEDUP, Some(figures.speedup));
    series.add(&figure::EFFICIENCY, Some(figures.efficiency));
    add_times(&mut series, figures.times);
    if communicates {
        series.add(&figure::COMMUNICATION_COST, case.communication_cost());
        if let Some(loss) = scaling_loss::case_loss(group, case) {
            series.add(&figure::LOST, Some(loss.loss.total.seconds));
            for (part, lost) in &loss.loss.parts {
                series.add_part(&figure::SCALING_LOSS, Some(("part", part.key())), Some(lost.seconds));
            }
        }
        let warnings = group.reliability_warnings_of(case).map(|warning| warning.to(case.case));
        series.add_reliability(&warnings.collect::<Vec<_>>());
        add_arithmetic(&mut series, group.utilization(case));
        let energy = energy::case_energy(case);
        series.add(&figure::POWER, energy.as_ref().map(|energy| energy.watts));
        series.add(&figure::ENERGY, energy.map(|energy| energy.joules_per_image));
    }
    series.add(&figure::PEAK_MEMORY, case.peak_memory().map(|peak| peak.0));
    series.add(&figure::RUNS_COUNTED, Some(case.counted().count()));
    series.add(&figure::RUNS_FOUND, Some(case.runs.len()));
    series.add(&figure::WARNINGS, Some(case.warnings.len()));
    Some(series)
}

/// Returns the figures of a run, or `None` if it does not count.
fn run_series(name: &str, group: &Group, case: &TrainedCase, run: &Run) -> Option<ExportedSeries> {
    let measured = run.outcome.as_ref().ok()?;
    let mut labels = labels(name, group, run.found.name.case.to_string(), !run.found.name.baseline);
    labels.push(("run", run.found.name.run.to_string()));
    let mut series = ExportedSeries::new(Scope::Run, labels, run.recorded.as_ref().map(|recorded| recorded.started));
    series.describe(&run::environment([run]));
    series.add(&figure::STARTED, series.started.map(|started| started.0));
    series.add(&figure::IMAGES_PER_SECOND, Some(measured.speed.0));
    series.add(&figure::RANKS, Some(run.found.name.case.ranks()));
    add_times(&mut series, measured.figures.times);
    let percentiles = step_percentiles(measured.figures.pooled_steps());
    series.add_times(&figure::ITERATION, percentiles.and(run.mean_iteration()).map(|mean| mean.0), percentiles);
    series.add(&figure::ITERATIONS, measured.figures.iterations().map(|[all, _]| all));
    series.add(&figure::WARMUP, measured.figures.iterations().map(|[_, warmup]| warmup));
    add_outcome(&mut series, measured);
    let warnings = group.speed_reliability_warnings(case).map(|warning| warning.to(case.case));
    series.add_reliability(&warnings.collect::<Vec<_>>());
    Some(series)
}

fn add_outcome(series: &mut ExportedSeries, measured: &Measured) {
    series.add(&figure::PEAK_MEMORY, measured.peak_memory.map(|peak| peak.0));
    series.add(&figure::LAST_LOSS, measured.figures.last_loss);
    series.add(&figure::SKIPPED_STEPS, measured.figures.skipped_steps);
    series.add(&figure::ENERGY, energy::joules_per_image(measured));
    series.add(&figure::FOREIGN_LOAD, measured.foreign_load.as_ref().map(|load| load.share));
    series.add(&figure::WARNINGS, Some(measured.warnings.len()));
}

fn add_times(series: &mut ExportedSeries, times: Option<IterationTimes>) {
    let Some(times) = times else { return };
    series.add(&figure::STEP, Some(times.step.0));
    for (phase, time) in times.phases.iter().filter(|(phase, time)| phase.is_always() || time.0 != 0.0) {
        series.add_part(&figure::PHASE, Some(("phase", Phase::keyword(phase))), Some(time.0));
    }
    series.add(&figure::EXPOSED, Some(times.exposed_share()));
}

/// Adds the arithmetic rate of the network and its shares of the devices' rates.
pub fn add_arithmetic(series: &mut ExportedSeries, arithmetic: Option<Utilization>) {
    series.add(&figure::FLOP_RATE, arithmetic.map(|it| 1e12 * it.teraflops_per_second.0));
    series.add(&figure::PRODUCT_SHARE, arithmetic.and_then(|it| it.share_of_matrix_product));
    series.add(&figure::PEAK_SHARE, arithmetic.and_then(|it| it.share_of_published_peak));
}

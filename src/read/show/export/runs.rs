//! Figures of training and inference, by case and by run.

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::dimension::{BatchSize, Case, Phase, Seconds};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::summary::step_percentiles;

use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::run_group::{CaseOf, RunGroup};
use crate::read::analyze::score::figures::{ScoreCase, ScoreGroup};
use crate::read::analyze::training::energy;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::scaling_loss;
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::run::{self, Measured, Run};
use crate::read::show::export::figure::{self, ExportedSeries, Scope};

/// Labels of a series.
type Labels = Vec<(&'static str, String)>;

/// A group with the labels and figures that only its benchmark has.
pub trait ExportedGroup: RunGroup + Sized {
    const BENCHMARK: BenchmarkKind;

    /// Returns the name of a group within all groups; empty for a single one without a name.
    fn label(groups: &[Self], index: usize) -> String;

    /// Returns the labels of the gradient exchange, if there is one.
    fn exchange_labels(&self, _communicates: bool) -> Labels {
        Vec::new()
    }

    /// Adds figures over all counted runs of a case.
    fn add_case(&self, series: &mut ExportedSeries, case: &CaseOf<Self>, communicates: bool);

    /// Adds figures of a run, up to its peak memory and what follows from it.
    fn add_run(series: &mut ExportedSeries, run: &Run<Self::Record>, measured: &Measured<Self::Record>);

    /// Returns the reasons why the speed of a case is unreliable, with its name.
    fn speed_warnings(&self, case: &CaseOf<Self>) -> Vec<ReliabilityWarning>;
}

/// A case of the result `name`, with or without communication.
struct Source<'a, G: RunGroup> {
    name: &'a str,
    label: String,
    group: &'a G,
    case: &'a CaseOf<G>,
    communicates: bool,
}

/// A run that counts.
pub struct ExportedRun<'a, G: RunGroup> {
    /// Runs with the same conditions.
    pub group: &'a G,
    /// Runs of the same case.
    pub case: &'a CaseOf<G>,
    pub run: &'a Run<G::Record>,
    pub series: ExportedSeries,
}

fn sources<'a, G: ExportedGroup>(name: &'a str, groups: &'a [G]) -> impl Iterator<Item = Source<'a, G>> {
    let of_group = move |(index, group): (usize, &'a G)| {
        let source =
            move |case, communicates| Source { name, label: G::label(groups, index), group, case, communicates };
        let baseline = move |case: &'a CaseOf<G>| case.baseline.as_deref().map(|baseline| source(baseline, false));
        group.cases().iter().flat_map(move |case| std::iter::once(source(case, true)).chain(baseline(case)))
    };
    groups.iter().enumerate().flat_map(of_group)
}

/// Returns the figures of every case of the result `name` that has a counted run, with and without communication.
pub fn cases<G: ExportedGroup>(name: &str, groups: &[G]) -> Vec<ExportedSeries> {
    sources(name, groups).filter_map(|source| source.case_series()).collect()
}

/// Returns every run of the result `name` that counts.
pub fn runs<'a, G: ExportedGroup>(name: &'a str, groups: &'a [G]) -> Vec<ExportedRun<'a, G>> {
    let of_source = |source: Source<'a, G>| {
        let Source { group, case, .. } = source;
        let run = |run| Some(ExportedRun { group, case, run, series: source.run_series(run)? });
        case.runs.iter().filter_map(run).collect::<Vec<_>>()
    };
    sources(name, groups).flat_map(of_source).collect()
}

impl<G: ExportedGroup> Source<'_, G> {
    fn labels(&self, communicates: bool) -> Labels {
        let (point, text) = (self.group.point(self.case), |value: Option<String>| value.unwrap_or_default());
        let mut labels = vec![
            ("result", self.name.to_owned()),
            ("benchmark", G::BENCHMARK.to_string()),
            ("group", self.label.clone()),
            ("model", point.model.to_string()),
            ("dtype", point.dtype.to_string()),
            ("batch_size", point.batch.size.number().to_string()),
            ("case", self.case.case.to_string()),
        ];
        labels.extend(point.batch.sequence_length.map(|tokens| ("sequence_length", tokens.to_string())));
        if let BatchSize::Global(samples) = point.batch.size {
            labels.push(("global_batch_size", samples.to_string()));
        }
        labels.extend(self.group.exchange_labels(communicates));
        labels.push(("device", text(self.group.device().map(|device| device.to_string()))));
        labels.push(("profile", text(self.group.profile().map(|profile| profile.to_string()))));
        labels
    }

    /// Returns the figures over all counted runs; `None` without one.
    fn case_series(&self) -> Option<ExportedSeries> {
        let Source { group, case, communicates, .. } = *self;
        let speed = case.speed()?.0;
        let started = case.recorded().map(|recorded| recorded.started.0).reduce(f64::min).map(Seconds);
        let mut series = ExportedSeries::new(Scope::Case, self.labels(communicates), started);
        series.describe(&run::environment(&case.runs));
        let unit = group.unit();
        series.add(figure::speed(unit), Some(speed));
        series.add(figure::speed_per_rank(unit), Some(speed / f64::from(case.case.ranks())));
        series.add(&figure::RANKS, Some(case.case.ranks()));
        series.add(figure::cv(unit), case.speeds().cv());
        group.add_case(&mut series, case, communicates);
        series.add(&figure::PEAK_MEMORY, case.peak_memory().map(|peak| peak.0));
        series.add(&figure::RUNS_COUNTED, Some(case.counted().count()));
        series.add(&figure::RUNS_FOUND, Some(case.runs.len()));
        series.add(&figure::WARNINGS, Some(case.warnings.len()));
        Some(series)
    }

    /// Returns the figures of a run; `None` if it does not count.
    fn run_series(&self, run: &Run<G::Record>) -> Option<ExportedSeries> {
        let measured = run.outcome.as_ref().ok()?;
        let mut labels = self.labels(!run.found.name.baseline);
        labels.push(("run", run.found.name.run.to_string()));
        let started = run.recorded.as_ref().map(|recorded| recorded.started);
        let mut series = ExportedSeries::new(Scope::Run, labels, started);
        series.describe(&run::environment([run]));
        series.add(&figure::STARTED, started.map(|started| started.0));
        series.add(figure::speed(self.group.unit()), Some(measured.speed.0));
        series.add(&figure::RANKS, Some(self.case.case.ranks()));
        G::add_run(&mut series, run, measured);
        series.add(&figure::FOREIGN_LOAD, measured.foreign_load.as_ref().map(|load| load.share));
        series.add(&figure::WARNINGS, Some(measured.warnings.len()));
        series.add_reliability(&self.group.speed_warnings(self.case));
        Some(series)
    }
}

/// Adds the arithmetic rate of the network and its shares of the devices' rates.
fn add_arithmetic<G: RunGroup>(series: &mut ExportedSeries, group: &G, case: &CaseOf<G>) {
    let arithmetic = group.utilization(case);
    series.add(&figure::FLOP_RATE, arithmetic.map(|it| 1e12 * it.teraflops_per_second.0));
    series.add(&figure::PRODUCT_SHARE, arithmetic.and_then(|it| it.share_of_matrix_product));
    series.add(&figure::PEAK_SHARE, arithmetic.and_then(|it| it.share_of_published_peak));
}

fn add_times(series: &mut ExportedSeries, times: Option<IterationTimes>) {
    let Some(times) = times else { return };
    series.add(&figure::STEP, Some(times.step.0));
    for (phase, time) in times.phases.iter().filter(|(phase, time)| phase.is_always() || time.0 != 0.0) {
        series.add_part(&figure::PHASE, Some(("phase", Phase::keyword(phase))), Some(time.0));
    }
    series.add(&figure::EXPOSED, Some(times.exposed_share()));
}

/// Returns the warnings, each with its case.
fn named<'a>(case: Case, warnings: impl Iterator<Item = &'a ReliabilityWarning>) -> Vec<ReliabilityWarning> {
    warnings.map(|warning| warning.to(case)).collect()
}

impl ExportedGroup for TrainingGroup {
    const BENCHMARK: BenchmarkKind = BenchmarkKind::Train;

    fn label(groups: &[TrainingGroup], index: usize) -> String {
        groups[index].label.clone()
    }

    fn exchange_labels(&self, communicates: bool) -> Labels {
        let communication = if communicates { "on" } else { "off" };
        vec![("communication", communication.to_owned()), ("strategy", self.conditions.point.strategy.to_string())]
    }

    /// Adds scaling, times and energy. Communication cost belongs to the runs with communication.
    fn add_case(&self, series: &mut ExportedSeries, case: &TrainingCase, communicates: bool) {
        let Some(figures) = &case.figures else { return };
        series.add(&figure::SPEEDUP, Some(figures.speedup));
        series.add(&figure::EFFICIENCY, Some(figures.efficiency));
        add_times(series, figures.times);
        if !communicates {
            return;
        }
        series.add(&figure::COMMUNICATION_COST, case.communication_cost());
        if let Some(loss) = scaling_loss::case_loss(self, case) {
            series.add(&figure::LOST, Some(loss.loss.total.seconds));
            for (part, lost) in &loss.loss.parts {
                series.add_part(&figure::SCALING_LOSS, Some(("part", part.key())), Some(lost.seconds));
            }
        }
        series.add_reliability(&named(case.case, self.reliability_warnings_of(case)));
        add_arithmetic(series, self, case);
        let energy = energy::case_energy(case);
        series.add(&figure::POWER, energy.as_ref().map(|energy| energy.watts));
        series.add(figure::energy(self.unit()), energy.map(|energy| energy.joules_per_unit));
    }

    fn add_run(series: &mut ExportedSeries, run: &Run, measured: &Measured) {
        add_times(series, measured.figures.times);
        let percentiles = step_percentiles(measured.figures.pooled_steps());
        series.add_times(&figure::ITERATION, percentiles.and(run.mean_iteration()).map(|mean| mean.0), percentiles);
        series.add(&figure::ITERATIONS, measured.figures.iterations().map(|[all, _]| all));
        series.add(&figure::WARMUP, measured.figures.iterations().map(|[_, warmup]| warmup));
        series.add(&figure::PEAK_MEMORY, measured.peak_memory.map(|peak| peak.0));
        series.add(&figure::LAST_LOSS, measured.figures.last_loss);
        series.add(&figure::SKIPPED_STEPS, measured.figures.skipped_steps);
        series.add(figure::energy(run.found.name.batch.unit()), energy::joules_per_unit(measured));
    }

    fn speed_warnings(&self, case: &TrainingCase) -> Vec<ReliabilityWarning> {
        named(case.case, self.speed_reliability_warnings(case))
    }
}

impl ExportedGroup for ScoreGroup {
    const BENCHMARK: BenchmarkKind = BenchmarkKind::Score;

    /// Returns the number of the table, because tables may differ by any option.
    fn label(groups: &[ScoreGroup], index: usize) -> String {
        if groups.len() > 1 { format!("table {}", index + 1) } else { String::new() }
    }

    fn add_case(&self, series: &mut ExportedSeries, case: &ScoreCase, _: bool) {
        series.add_reliability(&self.reliability_of(case));
        add_arithmetic(series, self, case);
    }

    fn add_run(series: &mut ExportedSeries, run: &Run<Self::Record>, measured: &Measured<Self::Record>) {
        let percentiles = step_percentiles(measured.figures.seconds.as_slice());
        series.add_times(&figure::PASS, run.mean_iteration().map(|mean| mean.0), percentiles);
        series.add(&figure::PEAK_MEMORY, measured.peak_memory.map(|peak| peak.0));
    }

    fn speed_warnings(&self, case: &ScoreCase) -> Vec<ReliabilityWarning> {
        self.reliability_of(case)
    }
}

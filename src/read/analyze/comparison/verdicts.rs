//! Comparison of two results: differences with confidence intervals, and verdicts. Serialized by `diff --json`.

use ringmark_core::dimension::{Case, UnitsPerSecond, WorkUnit};
use ringmark_core::number_text;
use ringmark_core::stats::comparison::{Comparison, Thresholds, Verdict, compare};
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::summary::STEP_PERCENTS;
use ringmark_core::stats::welch::RUNS_OF_INTERVAL;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::read::analyze::comparison::pairing::{Pair, Pairing};
use crate::read::analyze::comparison::side::{ConditionDifference, RunFigures, Side, SideCase, SideKind};
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::training::cost::Price;

/// Value of the first field of the JSON.
const KIND: &str = "ringmark-diff";

/// Version of the JSON. Version 1 had no kind and no version, and its `base`, `test` and `difference` were geometric
/// means. Version 2 had `base_is_quotable` for `base_is_reliable`, and `objections` for `reliability_warnings`.
const SCHEMA: u32 = 4;

/// Complete comparison.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedResults {
    /// Always `ringmark-diff`.
    pub kind: &'static str,
    /// Version of the format.
    pub schema: u32,
    /// Side to compare with.
    pub base: ComparedSide,
    /// Side to compare.
    pub test: ComparedSide,
    /// Probability that an interval does not contain the true value, 0 to 1.
    pub significance: f64,
    /// Largest relative difference that is ignored.
    pub noise: f64,
    /// Options and environment that differ in every table.
    pub differences: Vec<ConditionDifference>,
    /// Options and environment of every table, equal ones included; only with `--all-keys`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionDifference>,
    /// Tables in the order of BASE.
    pub tables: Vec<ComparedTable>,
    /// Cases that are missing in TEST.
    pub only_in_base: Vec<String>,
    /// Cases that are missing in BASE.
    pub only_in_test: Vec<String>,
}

/// One side of the comparison.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedSide {
    /// Path as given on the command line.
    pub path: String,
    /// Largest number of runs in a case.
    pub runs: usize,
    /// Start times of the first and the last run, if known: UTC, but local time for nccl-tests.
    pub started: Option<(String, String)>,
    /// Reasons why figures of this side are unreliable, and the fix.
    pub reliability_warnings: Vec<String>,
    /// The last of these reasons if it is the command that repeats the runs.
    #[serde(skip)]
    pub fix: Option<String>,
    /// Warnings about the figures of this side.
    pub warnings: Vec<String>,
    /// Runs that are excluded, with the reason.
    pub left_out: Vec<String>,
}

/// Cases of equal conditions.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedTable {
    /// Title of the table in BASE.
    pub title: String,
    /// Conditions that differ although they should be equal; compared because that was forced.
    pub forced: Vec<ConditionDifference>,
    /// Options and environment that differ in this table but not in every table.
    pub differences: Vec<ConditionDifference>,
    /// Options and environment of this table but not of every table, equal ones included; only with `--all-keys`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionDifference>,
    /// Kind of measurement.
    #[serde(skip)]
    pub kind: SideKind,
    /// Unit of the throughput.
    pub unit: &'static str,
    /// Unit of the work of the network.
    #[serde(skip)]
    pub work_unit: WorkUnit,
    /// Cases in the order of BASE.
    pub cases: Vec<ComparedCase>,
}

/// One case.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedCase {
    /// Name, such as `1n2g`, `2 ranks` or `1 MiB in`.
    pub name: String,
    /// Verdict about the throughput.
    #[serde(serialize_with = "word")]
    #[schemars(with = "String")]
    pub verdict: Verdict,
    /// True if the runs in BASE have warnings, which the side lists.
    pub base_is_warned: bool,
    /// True if the runs in TEST have warnings, which the side lists.
    pub test_is_warned: bool,
    /// True if the figures in BASE are reliable; the side lists the reasons if not.
    pub base_is_reliable: bool,
    /// True if the figures in TEST are reliable; the side lists the reasons if not.
    pub test_is_reliable: bool,
    /// Reason why no other verdict is possible, or why this one is doubtful.
    pub note: Option<String>,
    /// Throughput of the runs; a positive difference is an improvement.
    pub throughput: Row,
    /// Mean time of an iteration; a positive difference is a regression.
    pub mean_seconds: Row,
    /// Percentiles of the iteration times; empty if a run has none. A positive difference is a regression.
    pub percentiles_seconds: Vec<Percentile>,
    /// Electric energy per image or token, if the power is known for every run; a positive difference is a regression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_unit: Option<Row>,
    /// Cost of an ImageNet epoch, if a price is given; a positive difference is a regression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_cost: Option<Row>,
}

/// One of the percentiles that PyTorch's DDP benchmark prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Percentile {
    /// Percentage of iterations that are faster.
    pub percent: u32,
    /// Value in seconds.
    #[serde(flatten)]
    pub row: Row,
}

/// One figure over the runs of both sides. Differences are relative to BASE.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Median over the runs of BASE, as printed by every other command; the mean time is that of the median speed.
    pub base: f64,
    /// Median over the runs of TEST.
    pub test: f64,
    /// Difference of the medians.
    pub difference: f64,
    /// Lower end of the confidence interval for the difference of the geometric means over runs, which decides the
    /// verdict; `None` if a side has fewer than three runs.
    pub low: Option<f64>,
    /// Upper end of that interval.
    pub high: Option<f64>,
    /// Smallest difference that these runs would detect with 80 % probability.
    pub smallest: Option<f64>,
    /// Values of the runs of BASE.
    pub base_runs: Vec<f64>,
    /// Values of the runs of TEST.
    pub test_runs: Vec<f64>,
}

/// Serializes a verdict as one lower-case word.
fn word<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::NoDifference => "no_difference",
        Verdict::TooNoisy => "too_noisy",
    })
}

impl ComparedResults {
    /// Compares all paired tables.
    pub fn new(
        [base, test]: [&Side; 2],
        pairing: Pairing,
        thresholds: Thresholds,
        price: Option<&Price>,
    ) -> ComparedResults {
        let mut tables: Vec<ComparedTable> =
            pairing.pairs.iter().map(|pair| ComparedTable::new(pair, thresholds, price)).collect();
        let differences = split_off_common(&mut tables, |table| &mut table.differences);
        let conditions = split_off_common(&mut tables, |table| &mut table.conditions);
        let [only_in_base, only_in_test] = pairing.only;
        let mut results = ComparedResults {
            kind: KIND,
            schema: SCHEMA,
            base: ComparedSide::new(base, &pairing.pairs, 0),
            test: ComparedSide::new(test, &pairing.pairs, 1),
            significance: thresholds.significance,
            noise: thresholds.noise,
            differences,
            conditions,
            tables,
            only_in_base,
            only_in_test,
        };
        if results.are_same_runs() {
            let cases = results.tables.iter_mut().flat_map(|table| &mut table.cases);
            cases.for_each(ComparedCase::declare_same);
        }
        results
    }

    /// Drops the equal conditions, which only `--all-keys` requests.
    pub fn without_conditions(mut self) -> ComparedResults {
        self.conditions.clear();
        self.tables.iter_mut().for_each(|table| table.conditions.clear());
        self
    }

    /// Returns true if both sides contain the same runs: one folder twice, or a folder and a copy of it.
    pub fn are_same_runs(&self) -> bool {
        let [base, test] =
            [&self.base, &self.test].map(|side| (&side.started, side.started.is_none().then_some(&side.path)));
        base == test && self.cases().all(|(_, case)| case.throughput.base_runs == case.throughput.test_runs)
    }

    /// Returns the name of the side whose runs all started after those of the other; `None` if they alternated, and if a
    /// side has no times or the comparison no interval.
    pub fn later_side(&self) -> Option<&'static str> {
        let has_interval = self.cases().any(|(_, case)| case.throughput.low.is_some());
        let ((base_first, base_last), (test_first, test_last)) =
            self.base.started.as_ref().zip(self.test.started.as_ref()).filter(|_| has_interval)?;
        match (base_last < test_first, test_last < base_first) {
            (true, _) => Some("TEST"),
            (_, true) => Some("BASE"),
            _ => None,
        }
    }

    /// Returns true if both sides are the same path, so that their warnings are the same.
    pub fn is_one_result(&self) -> bool {
        self.base.path == self.test.path && self.are_same_runs()
    }

    /// Returns the name of a case, prefixed with the title of its table if there are several tables.
    pub fn name(&self, table: &ComparedTable, case: &ComparedCase) -> String {
        if self.tables.len() > 1 { format!("{}: {}", table.title, case.name) } else { case.name.clone() }
    }

    /// Returns a summary such as `3 cases: 1 slower, 1 without a difference, 1 unreliable`.
    pub fn summary(&self) -> String {
        let count = |what: &dyn Fn(&ComparedCase) -> bool| self.cases().filter(|(_, case)| what(case)).count();
        let verdicts = [
            (Verdict::Faster, "faster"),
            (Verdict::Slower, "slower"),
            (Verdict::NoDifference, "without a difference"),
            (Verdict::TooNoisy, "too noisy"),
        ];
        let is_decided = |case: &ComparedCase| case.is_reliable() && !case.has_too_few_runs();
        let has = |case: &ComparedCase, verdict| case.verdict == verdict && is_decided(case);
        let verdicts = verdicts.map(|(verdict, text)| (count(&|case| has(case, verdict)), text));
        let few = count(&|case| case.is_reliable() && case.has_too_few_runs());
        let counts = verdicts.into_iter();
        let counts = counts.chain([(few, "with too few runs"), (count(&|case| !case.is_reliable()), "unreliable")]);
        let counts = counts.filter(|(count, _)| *count > 0).map(|(count, text)| format!("{count} {text}"));
        format!("{}: {}", number_text::count(count(&|_| true), "case"), counts.collect::<Vec<_>>().join(", "))
    }

    /// Returns every case with its table.
    pub fn cases(&self) -> impl Iterator<Item = (&ComparedTable, &ComparedCase)> {
        self.tables.iter().flat_map(|table| table.cases.iter().map(move |case| (table, case)))
    }
}

impl ComparedSide {
    fn new(side: &Side, pairs: &[Pair], place: usize) -> ComparedSide {
        let mut unreliable: Vec<ReliabilityWarning> = Vec::new();
        let mut warnings: Vec<String> = Vec::new();
        for pair in pairs {
            let of_cases = pair.cases.iter().flat_map(|case| case[place].warnings.clone());
            for warning in pair.unknown()[place].map(str::to_owned).into_iter().chain(of_cases) {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        for case in pairs.iter().flat_map(|pair| &pair.cases).map(|case| case[place]) {
            for warning in &case.reliability_warnings {
                let named = warning.to(&case.name);
                let is_known = unreliable.contains(&named) || unreliable.contains(warning);
                unreliable.extend((!is_known).then_some(named));
            }
        }
        ComparedSide {
            reliability_warnings: reliability::sentences(&unreliable),
            fix: reliability::repetition(&unreliable),
            path: side.path.display().to_string(),
            runs: side.runs(),
            started: side.started.first().cloned().zip(side.started.last().cloned()),
            warnings,
            left_out: side.left_out.clone(),
        }
    }
}

/// Moves the conditions that every table has out of the tables.
fn split_off_common(
    tables: &mut [ComparedTable],
    of: impl Fn(&mut ComparedTable) -> &mut Vec<ConditionDifference>,
) -> Vec<ConditionDifference> {
    let mut common = tables.first_mut().map(|table| of(table).clone()).unwrap_or_default();
    common.retain(|condition| tables.iter_mut().all(|table| of(table).contains(condition)));
    tables.iter_mut().for_each(|table| of(table).retain(|condition| !common.contains(condition)));
    common
}

impl ComparedTable {
    fn new(pair: &Pair, thresholds: Thresholds, price: Option<&Price>) -> ComparedTable {
        let conditions = pair.conditions();
        ComparedTable {
            title: pair.title(),
            forced: pair.forced.clone(),
            differences: conditions.iter().filter(|condition| !condition.is_equal()).cloned().collect(),
            conditions,
            kind: pair.kind,
            unit: pair.kind.unit(pair.groups[0].unit),
            work_unit: pair.groups[0].unit,
            cases: pair.cases.iter().filter_map(|case| ComparedCase::new(case, pair, thresholds, price)).collect(),
        }
    }
}

impl ComparedCase {
    /// Returns true if both sides are reliable.
    pub fn is_reliable(&self) -> bool {
        self.base_is_reliable && self.test_is_reliable
    }

    /// Returns true if a side has too few runs for an interval, and so for a verdict.
    pub fn has_too_few_runs(&self) -> bool {
        self.verdict == Verdict::TooNoisy && self.throughput.low.is_none()
    }

    /// Removes the intervals, because both sides are the same runs.
    fn declare_same(&mut self) {
        self.verdict = Verdict::NoDifference;
        self.note = None;
        let percentiles = self.percentiles_seconds.iter_mut().map(|percentile| &mut percentile.row);
        let others = [&mut self.joules_per_unit, &mut self.epoch_cost].into_iter().flatten();
        for row in [&mut self.throughput, &mut self.mean_seconds].into_iter().chain(percentiles).chain(others) {
            (row.low, row.high, row.smallest) = (None, None, None);
        }
    }

    /// Compares one case; returns `None` if a side has no runs, which no reader produces.
    fn new(
        [base, test]: &[&SideCase; 2],
        pair: &Pair,
        thresholds: Thresholds,
        price: Option<&Price>,
    ) -> Option<ComparedCase> {
        let figures = |figure: &dyn Fn(&RunFigures) -> Option<f64>| Some([base.values(figure)?, test.values(figure)?]);
        let compared = |[base, test]: &[RunValues; 2]| compare(base.values(), test.values(), thresholds);
        let mean = figures(&|run| Some(run.mean.0))?;
        let throughput = figures(&|run| Some(run.throughput))?;
        let times = compared(&mean)?;
        // A bandwidth that was rounded to 0 has no ratio, but its time has one.
        let speeds = compared(&throughput).unwrap_or_else(|| times.reciprocal());
        let row = |figure: &dyn Fn(&RunFigures) -> Option<f64>| {
            let values = figures(figure)?;
            Row::new(&values, compared(&values)?)
        };
        // Training cases are named after their ranks.
        let price = price.zip(base.name.parse::<Case>().ok()).filter(|_| pair.kind == SideKind::Training);
        let percentile = |(place, percent): (usize, u32)| {
            Some(Percentile { percent, row: row(&|run| Some(run.percentiles?[place]))? })
        };
        // The two programs compute percentiles over different quantities.
        let percents = STEP_PERCENTS.into_iter().enumerate().filter(|_| !pair.is_of_two_programs());
        let throughput = Row::new(&throughput, speeds)?;
        Some(ComparedCase {
            name: base.name.clone(),
            verdict: speeds.verdict(thresholds.noise),
            base_is_warned: !base.warnings.is_empty(),
            test_is_warned: !test.warnings.is_empty(),
            base_is_reliable: base.reliability_warnings.is_empty(),
            test_is_reliable: test.reliability_warnings.is_empty(),
            note: note(base.runs.len(), test.runs.len(), &times).or_else(|| throughput.skew()),
            throughput,
            // The step that other commands show: its speed is the median speed.
            mean_seconds: Row::from_centers(&mean, RunValues::median_by_rate, times)?,
            percentiles_seconds: percents.filter_map(percentile).collect(),
            joules_per_unit: row(&|run| run.joules_per_unit),
            epoch_cost: price.and_then(|(price, case)| {
                row(&|run| Some(price.epoch_cost(case, UnitsPerSecond(run.throughput), pair.groups[0].unit)))
            }),
        })
    }
}

fn note(base: usize, test: usize, comparison: &Comparison) -> Option<String> {
    let is_few = |runs: usize| runs < RUNS_OF_INTERVAL;
    let few = match (is_few(base), is_few(test)) {
        (true, true) if base == test => Some(format!("BASE and TEST have {} each", number_text::count(base, "run"))),
        (true, true) => Some(format!("BASE has {}, TEST has {test}", number_text::count(base, "run"))),
        (true, false) => Some(format!("BASE has {}", number_text::count(base, "run"))),
        (false, true) => Some(format!("TEST has {}", number_text::count(test, "run"))),
        (false, false) => None,
    };
    match few {
        Some(few) => Some(format!("{few}: too few for an interval: make {RUNS_OF_INTERVAL} or more of each")),
        None if comparison.is_copy => Some(
            "the runs of each side are identical to the last digit: check for \
            copies"
                .to_owned(),
        ),
        None => None,
    }
}

impl Row {
    /// Returns a note if the difference of the medians lies outside the interval for the means: single runs were
    /// disturbed.
    fn skew(&self) -> Option<String> {
        let is_outside = self.low.zip(self.high).is_some_and(|(low, high)| !(low..=high).contains(&self.difference));
        is_outside.then(|| {
            "the difference of the medians is outside the interval of the means: look for disturbed runs".to_owned()
        })
    }

    fn new(runs: &[RunValues; 2], comparison: Comparison) -> Option<Row> {
        Row::from_centers(runs, RunValues::median, comparison)
    }

    fn from_centers(
        [base_runs, test_runs]: &[RunValues; 2],
        center: fn(&RunValues) -> Option<f64>,
        comparison: Comparison,
    ) -> Option<Row> {
        let (base, test) = (center(base_runs)?, center(test_runs)?);
        Some(Row {
            base,
            test,
            difference: test / base - 1.0,
            low: comparison.interval.map(|interval| interval.low - 1.0),
            high: comparison.interval.map(|interval| interval.high - 1.0),
            smallest: comparison.smallest.map(|smallest| smallest - 1.0),
            base_runs: base_runs.values().to_vec(),
            test_runs: test_runs.values().to_vec(),
        })
    }
}

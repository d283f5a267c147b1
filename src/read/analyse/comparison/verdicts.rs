//! What a comparison comes to: differences with their intervals, and verdicts. Its JSON is what `--json` writes.

use ringmark_core::dimension::{Case, ImagesPerSecond};
use ringmark_core::stats::comparison::{Comparison, Thresholds, Verdict, compare};
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::summary::STEP_PERCENTS;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::read::analyse::comparison::pairing::{Pair, Pairing};
use crate::read::analyse::comparison::side::{ConditionDifference, RunFigures, Side, SideCase, SideKind};
use crate::read::analyse::cost::Price;
use crate::read::analyse::reliability::{self, ReliabilityWarning};

/// What the JSON is, in its first field.
const KIND: &str = "ringmark-diff";

/// Version of the JSON. Version 1 had neither kind nor version, and `base`, `test` and `difference` were of geometric means.
/// Version 2 called `base_is_reliable` `base_is_quotable`, and `reliability_warnings` `objections`.
const SCHEMA: u32 = 3;

/// All of it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedResults {
    /// Always `ringmark-diff`.
    pub kind: &'static str,
    /// Version of the format.
    pub schema: u32,
    /// What is compared with.
    pub base: ComparedSide,
    /// What is compared.
    pub test: ComparedSide,
    /// Chance of an interval that misses the truth, 0 to 1.
    pub significance: f64,
    /// Differences up to this share do not matter.
    pub noise: f64,
    /// What differs in options and environment of every table.
    pub differences: Vec<ConditionDifference>,
    /// In the order of BASE.
    pub tables: Vec<ComparedTable>,
    /// What TEST has not.
    pub only_in_base: Vec<String>,
    /// What BASE has not.
    pub only_in_test: Vec<String>,
}

/// One side.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedSide {
    /// As it was typed.
    pub path: String,
    /// Of the case that has most.
    pub runs: usize,
    /// When the first and the last run began, where that is known: UTC, of nccl-tests local time.
    pub started: Option<(String, String)>,
    /// Why figures of it are unreliable.
    pub reliability_warnings: Vec<String>,
    /// What a reader of its figures must know.
    pub warnings: Vec<String>,
    /// What is not in its figures, and why.
    pub left_out: Vec<String>,
}

/// Cases of equal conditions.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedTable {
    /// Of BASE.
    pub title: String,
    /// What should have been equal and was compared all the same.
    pub forced: Vec<ConditionDifference>,
    /// What differs in options and environment, beyond what differs in all tables.
    pub differences: Vec<ConditionDifference>,
    /// What was measured.
    #[serde(skip)]
    pub kind: SideKind,
    /// Of the throughput.
    pub unit: &'static str,
    /// In the order of BASE.
    pub cases: Vec<ComparedCase>,
}

/// One case.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparedCase {
    /// `1n2g`, `2 ranks`, `1 MiB in`.
    pub name: String,
    /// What the throughput comes to.
    #[serde(serialize_with = "word")]
    #[schemars(with = "String")]
    pub verdict: Verdict,
    /// Whether something is to be known of its runs: see the warnings of the side.
    pub base_is_warned: bool,
    /// As of BASE.
    pub test_is_warned: bool,
    /// True if its figures are reliable: see the warnings of the side.
    pub base_is_reliable: bool,
    /// As of BASE.
    pub test_is_reliable: bool,
    /// Why there could be no other verdict, or why it is not to be trusted.
    pub note: Option<String>,
    /// Of the runs; positive differences are better.
    pub throughput: Row,
    /// Mean time of an iteration; positive differences are worse.
    pub mean_seconds: Row,
    /// Of the iteration times, none where a run does not hold them; positive differences are worse.
    pub percentiles_seconds: Vec<Percentile>,
    /// Of electric energy, where every run knows its power; positive differences are worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_image: Option<Row>,
    /// Of ImageNet, where there is a price; positive differences are worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_cost: Option<Row>,
}

/// One of the percentiles that PyTorch's DDP benchmark has.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Percentile {
    /// Of iterations that take less.
    pub percent: u32,
    /// Seconds.
    #[serde(flatten)]
    pub row: Row,
}

/// One figure of every run on both sides. Differences are shares of BASE.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Median over runs, as every command has it.
    pub base: f64,
    /// Median over runs.
    pub test: f64,
    /// Of the medians.
    pub difference: f64,
    /// Lower end of the interval of the difference of the geometric means over runs, which the verdict is by; `None` where a
    /// side has one run.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Smallest difference that these runs would have shown in four of five such measurements.
    pub smallest: Option<f64>,
    /// Of every run.
    pub base_runs: Vec<f64>,
    /// Of every run.
    pub test_runs: Vec<f64>,
}

/// As a word of the JSON.
fn word<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::NoDifference => "no_difference",
        Verdict::TooNoisy => "too_noisy",
    })
}

impl ComparedResults {
    /// Works out everything that is paired.
    pub fn of(
        [base, test]: [&Side; 2],
        pairing: Pairing,
        thresholds: Thresholds,
        price: Option<&Price>,
    ) -> ComparedResults {
        let mut tables: Vec<ComparedTable> =
            pairing.pairs.iter().map(|pair| ComparedTable::of(pair, thresholds, price)).collect();
        let mut differences = tables.first().map(|table| table.differences.clone()).unwrap_or_default();
        differences.retain(|difference| tables.iter().all(|table| table.differences.contains(difference)));
        for table in &mut tables {
            table.differences.retain(|difference| !differences.contains(difference));
        }
        let [only_in_base, only_in_test] = pairing.only;
        ComparedResults {
            kind: KIND,
            schema: SCHEMA,
            base: ComparedSide::of(base, &pairing.pairs, 0),
            test: ComparedSide::of(test, &pairing.pairs, 1),
            significance: thresholds.significance,
            noise: thresholds.noise,
            differences,
            tables,
            only_in_base,
            only_in_test,
        }
    }

    /// A case, with its table's title where there are several.
    pub fn name(&self, table: &ComparedTable, case: &ComparedCase) -> String {
        if self.tables.len() > 1 { format!("{}: {}", table.title, case.name) } else { case.name.clone() }
    }

    /// `3 cases: 1 slower, 2 too noisy to tell; 1 of them unreliable`.
    pub fn summary(&self) -> String {
        let count = |what: &dyn Fn(&ComparedCase) -> bool| self.cases().filter(|(_, case)| what(case)).count();
        let verdicts = [
            (Verdict::Faster, "faster"),
            (Verdict::Slower, "slower"),
            (Verdict::NoDifference, "without a difference"),
            (Verdict::TooNoisy, "too noisy to tell"),
        ];
        let verdicts = verdicts.map(|(verdict, text)| (count(&|case| case.verdict == verdict), text));
        let verdicts = verdicts.iter().filter(|(count, _)| *count > 0).map(|(count, text)| format!("{count} {text}"));
        let verdicts = verdicts.collect::<Vec<_>>().join(", ");
        let doubtful = match count(&|case| !case.is_reliable()) {
            0 => String::new(),
            doubtful => format!("; {doubtful} unreliable"),
        };
        let cases = if count(&|_| true) == 1 { "case" } else { "cases" };
        format!("{} {cases}: {verdicts}{doubtful}", count(&|_| true))
    }

    /// Every case with its table.
    pub fn cases(&self) -> impl Iterator<Item = (&ComparedTable, &ComparedCase)> {
        self.tables.iter().flat_map(|table| table.cases.iter().map(move |case| (table, case)))
    }
}

impl ComparedSide {
    fn of(side: &Side, pairs: &[Pair], place: usize) -> ComparedSide {
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
            path: side.path.display().to_string(),
            runs: side.runs(),
            started: side.started.first().cloned().zip(side.started.last().cloned()),
            warnings,
            left_out: side.left_out.clone(),
        }
    }
}

impl ComparedTable {
    fn of(pair: &Pair, thresholds: Thresholds, price: Option<&Price>) -> ComparedTable {
        ComparedTable {
            title: pair.title(),
            forced: pair.forced.clone(),
            differences: pair.differences(),
            kind: pair.kind,
            unit: pair.kind.unit(),
            cases: pair.cases.iter().filter_map(|case| ComparedCase::of(case, pair, thresholds, price)).collect(),
        }
    }
}

impl ComparedCase {
    /// True unless either side is unreliable.
    pub fn is_reliable(&self) -> bool {
        self.base_is_reliable && self.test_is_reliable
    }

    /// `None` without runs, which no reader lets through.
    fn of(
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
        // Bandwidths that were rounded to 0 have no ratio, and their times have.
        let speeds = compared(&throughput).unwrap_or_else(|| times.reciprocal());
        let row = |figure: &dyn Fn(&RunFigures) -> Option<f64>| {
            let values = figures(figure)?;
            Row::of(&values, compared(&values)?)
        };
        // A case of training is named after its ranks.
        let price = price.zip(base.name.parse::<Case>().ok()).filter(|_| pair.kind == SideKind::Training);
        let percentile = |(place, percent): (usize, u32)| {
            Some(Percentile { percent, row: row(&|run| Some(run.percentiles?[place]))? })
        };
        // Two programs take them of different things.
        let percents = STEP_PERCENTS.into_iter().enumerate().filter(|_| !pair.is_of_two_programs());
        let throughput = Row::of(&throughput, speeds)?;
        Some(ComparedCase {
            name: base.name.clone(),
            verdict: speeds.verdict(thresholds.noise),
            base_is_warned: !base.warnings.is_empty(),
            test_is_warned: !test.warnings.is_empty(),
            base_is_reliable: base.reliability_warnings.is_empty(),
            test_is_reliable: test.reliability_warnings.is_empty(),
            note: note(base.runs.len(), test.runs.len(), &times).or_else(|| throughput.skew()),
            throughput,
            mean_seconds: Row::of(&mean, times)?,
            percentiles_seconds: percents.filter_map(percentile).collect(),
            joules_per_image: row(&|run| run.joules_per_image),
            epoch_cost: price
                .and_then(|(price, case)| row(&|run| Some(price.of_epoch(case, ImagesPerSecond(run.throughput))))),
        })
    }
}

fn note(base: usize, test: usize, comparison: &Comparison) -> Option<String> {
    let single = match (base, test) {
        (1, 1) => Some("BASE and TEST have one run each"),
        (1, _) => Some("BASE has one run"),
        (_, 1) => Some("TEST has one run"),
        _ => None,
    };
    match single {
        Some(single) => Some(format!("{single}: how much runs differ is not known, make 3 or more of each")),
        None if comparison.is_copy => Some("the runs of each side are equal to the last digit: copies?".to_owned()),
        None => None,
    }
}

impl Row {
    /// Medians that differ by what the means do not: single runs were disturbed.
    fn skew(&self) -> Option<String> {
        let is_outside = self.low.zip(self.high).is_some_and(|(low, high)| !(low..=high).contains(&self.difference));
        is_outside.then(|| {
            "the medians differ by what lies outside the interval of the means: look for disturbed runs".to_owned()
        })
    }

    fn of([base_runs, test_runs]: &[RunValues; 2], comparison: Comparison) -> Option<Row> {
        let (base, test) = (base_runs.median()?, test_runs.median()?);
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

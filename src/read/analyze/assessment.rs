//! Assessment of figures: their warnings, the reasons why some are unreliable, and the resulting level of trust. All
//! commands and benchmarks use the same rules.

use ringmark_core::benchmark::{Record, warning};
use ringmark_core::dimension::Case;
use ringmark_core::number_text::{count, percent};
use ringmark_core::validity::thresholds::WIDE_SPREAD;

use crate::read::analyze::once::once;
use crate::read::analyze::reliability::{self, ReliabilityWarning};

/// Level of trust in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// No warnings.
    Sound,
    /// Minor warnings: see the reasons.
    WithCare,
    /// Unreliable: a quick look, a test, or no result at all.
    Unreliable,
}

impl Trust {
    /// Returns the text for a report.
    pub fn text(self) -> &'static str {
        match self {
            Trust::Sound => "Sound",
            Trust::WithCare => "Use with caution",
            Trust::Unreliable => "Unreliable",
        }
    }

    /// Returns the text with its reasons: `Sound: runs vary by 0.1 % (CV); all 3 runs count`.
    pub fn with_reasons(self, reasons: &[String]) -> String {
        format!("{}: {}", self.text(), reasons.join("; "))
    }
}

/// Warnings about figures, and the facts that determine the trust in them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assessment {
    /// Number of runs, counted or not.
    pub runs: usize,
    /// Number of runs that count.
    pub counted: usize,
    /// True if counted runs have no records.
    pub lacks_records: bool,
    /// Warnings that leave figures reliable, without those that a reliability warning repeats.
    pub warnings: Vec<String>,
    /// Reasons why figures are unreliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
    /// Titles of the cases with one run that counts.
    pub single_runs: Vec<String>,
    /// Noun for a case: `case` or `point`.
    pub case_noun: &'static str,
    /// Coefficients of variation of the cases.
    pub spreads: Vec<f64>,
    /// Outcome of the benchmark's own checks.
    pub checks: Vec<(Trust, String)>,
}

impl Assessment {
    /// Returns the assessment of a record; `title` precedes its warnings.
    pub fn from_record(title: &str, case: Case, record: &impl Record) -> Assessment {
        let reliability_warnings = reliability::record_warnings(title, case, record);
        let others = reliability::other_warnings(record.warnings(), &reliability_warnings);
        let warnings = warning::texts(&others).into_iter().map(|text| format!("{title}: {text}")).collect();
        Assessment { runs: 1, counted: 1, warnings, reliability_warnings, ..Assessment::default() }
    }

    /// Merges the assessments of several groups or records.
    pub fn merge(parts: impl IntoIterator<Item = Assessment>) -> Assessment {
        parts.into_iter().fold(Assessment::default(), |mut all, part| {
            all.runs += part.runs;
            all.counted += part.counted;
            all.lacks_records |= part.lacks_records;
            all.warnings.extend(part.warnings);
            all.reliability_warnings.extend(part.reliability_warnings);
            all.single_runs.extend(part.single_runs);
            all.case_noun = if part.case_noun.is_empty() { all.case_noun } else { part.case_noun };
            all.spreads.extend(part.spreads);
            all.checks.extend(part.checks);
            all
        })
    }

    /// Merges the assessments of groups. If there are several, each warning names its group.
    pub fn merge_named(groups: Vec<(String, Assessment)>) -> Assessment {
        let warnings: Vec<_> = groups.iter().map(|(name, group)| (name.clone(), group.warnings.clone())).collect();
        let is_single = groups.len() == 1;
        let named = groups.into_iter().map(|(name, group)| match is_single {
            true => group,
            false => Assessment {
                reliability_warnings: group.reliability_warnings.iter().map(|warning| warning.to(&name)).collect(),
                ..group
            },
        });
        Assessment { warnings: once(&warnings), ..Assessment::merge(named) }
    }

    /// Returns true if all figures are reliable.
    pub fn is_reliable(&self) -> bool {
        self.reliability_warnings.is_empty()
    }

    /// Returns a sentence for each kind of reliability warning, then the command that repeats the affected cases.
    pub fn unreliable_sentences(&self) -> Vec<String> {
        reliability::sentences(&self.reliability_warnings)
    }

    fn spread(&self) -> f64 {
        self.spreads.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Returns the reasons to use reliable figures with caution: cases with a single run, warnings, and a wide spread of
    /// the runs of a case.
    pub fn cautions(&self) -> Vec<String> {
        let (single, warnings, spread) = (!self.single_runs.is_empty(), self.warnings.len(), self.spread());
        let single = single.then(|| format!("a single run of a {} has no spread", self.case_noun));
        let wide = (spread > WIDE_SPREAD)
            .then(|| format!("runs vary by {} (CV, more than {})", percent(spread), percent(WIDE_SPREAD)));
        single.into_iter().chain((warnings > 0).then(|| count(warnings, "warning"))).chain(wide).collect()
    }

    /// Returns the level of trust with its reasons, given the number of problems of the folder.
    pub fn sentence(&self, problems: usize) -> String {
        let (trust, reasons) = self.trust(problems);
        trust.with_reasons(&reasons)
    }

    /// Returns the level of trust and its reasons, given the number of problems of the folder.
    pub fn trust(&self, problems: usize) -> (Trust, Vec<String>) {
        let (counted, excluded) = (self.counted, self.runs - self.counted);
        // Excluded runs are problems too.
        let others = problems.saturating_sub(excluded);
        let mut reasons: Vec<(Trust, String)> = Vec::new();
        let mut add = |trust, reason: Option<String>| reasons.extend(reason.map(|reason| (trust, reason)));
        add(Trust::Unreliable, (counted == 0).then(|| "no run counts".to_owned()));
        add(Trust::Unreliable, reliability::cause(&self.reliability_warnings).map(str::to_owned));
        self.checks.iter().for_each(|(trust, check)| add(*trust, Some(check.clone())));
        let lacking = || "logs without records: only the speed can be assessed".to_owned();
        add(Trust::WithCare, self.lacks_records.then(lacking));
        add(Trust::WithCare, (excluded > 0).then(|| format!("{} excluded", count(excluded, "run"))));
        let problem = if excluded > 0 || self.checks.is_empty() { "other problem" } else { "problem" };
        add(Trust::WithCare, (others > 0).then(|| format!("{} in the folder", count(others, problem))));
        self.cautions().into_iter().for_each(|caution| add(Trust::WithCare, Some(caution)));
        let spread = self.spread();
        add(Trust::Sound, (spread <= WIDE_SPREAD).then(|| format!("runs vary by {} (CV)", percent(spread))));
        if counted > 0 && self.checks.is_empty() {
            let text = match (counted, self.runs) {
                (1, 1) => "the only run counts".to_owned(),
                (counted, runs) if counted == runs => format!("all {runs} runs count"),
                (counted, runs) => format!("{counted} of {runs} runs count"),
            };
            add(Trust::Sound, Some(text));
        }
        let trust = reasons.iter().map(|(trust, _)| *trust).max().unwrap_or(Trust::Sound);
        // The most severe reason is sufficient: the findings of a report contain all.
        let is_enough = |(level, _): &(Trust, String)| trust != Trust::Unreliable || *level == trust;
        let most = if trust == Trust::Unreliable { 1 } else { reasons.len() };
        (trust, reasons.into_iter().filter(is_enough).map(|(_, reason)| reason).take(most).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(runs: usize, counted: usize) -> Assessment {
        Assessment { runs, counted, case_noun: "case", ..Assessment::default() }
    }

    fn trust(assessment: &Assessment, problems: usize) -> String {
        assessment.sentence(problems)
    }

    #[test]
    fn most_severe_reason_determines_the_trust() {
        let quick = reliability::quick_profile_warning();
        let sound = Assessment { spreads: vec![0.001], ..counted(3, 3) };
        let cautious =
            Assessment { single_runs: vec!["1n1g".to_owned()], warnings: vec![String::new()], ..counted(3, 2) };
        let checked = Assessment { checks: vec![(Trust::WithCare, "unchecked".to_owned())], ..counted(2, 2) };
        let unreliable = Assessment { reliability_warnings: vec![quick], ..checked.clone() };
        let wrong =
            Assessment { checks: vec![(Trust::Unreliable, "3 elements are wrong".to_owned())], ..counted(1, 1) };
        let of_all = [
            trust(&sound, 0),
            trust(&cautious, 2),
            trust(&checked, 1),
            trust(&unreliable, 1),
            trust(&Assessment { lacks_records: true, ..wrong }, 0),
            trust(&counted(2, 0), 2),
        ];
        expect_test::expect![[r#"
            Sound: runs vary by 0.1 % (CV); all 3 runs count
            Use with caution: 1 run excluded; 1 other problem in the folder; a single run of a case has no spread; 1 warning; 2 of 3 runs count
            Use with caution: unchecked; 1 problem in the folder
            Unreliable: quick profile
            Unreliable: 3 elements are wrong
            Unreliable: no run counts"#]]
        .assert_eq(&of_all.join("\n"));
    }

    #[test]
    fn warnings_of_several_groups_name_their_group() {
        let group = |warning: &str| Assessment {
            warnings: vec![warning.to_owned(), "hot".to_owned()],
            reliability_warnings: vec![reliability::quick_profile_warning()],
            ..counted(1, 1)
        };
        let alone = Assessment::merge_named(vec![(String::new(), group("slow"))]);
        assert_eq!(alone, group("slow"));
        let both = Assessment::merge_named(vec![("fp32".to_owned(), group("slow")), ("bf16".to_owned(), group("hot"))]);
        assert_eq!((both.runs, both.warnings), (2, vec!["fp32: slow".to_owned(), "all of 2: hot".to_owned()]));
        let reasons: Vec<String> = both.reliability_warnings.iter().map(ReliabilityWarning::named_reason).collect();
        assert_eq!(reasons, ["fp32: quick profile, a first look", "bf16: quick profile, a first look"]);
    }
}

//! Reliability warnings: causes of unreliable figures, with fixes. Thresholds and their reasons are in
//! [`ringmark_core::validity::thresholds`]. Warnings that leave figures reliable are ordinary warnings.

use std::fmt;

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::warning::{Warning, WarningKind};
use ringmark_core::dimension::{Case, Seconds};
use ringmark_core::number_text::percent;
use ringmark_core::shell::CommandWords;
use ringmark_core::validity::thresholds::{EXTREME_SPREAD, HEAVY_FOREIGN_LOAD, MIN_CASE_TIME};
use ringmark_core::validity::{self, ForeignLoad};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::load::folder::SweepFacts;

/// Kind of a reliability warning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReliabilityKind {
    /// Other programs used cores of the hosts.
    OtherLoad,
    /// Runs of a case vary too much.
    Spread,
    /// Runs that are too short.
    Short,
    /// Ranks share cores.
    SharedCores,
    /// Efficiency above the plausible maximum.
    ImpossibleEfficiency,
    /// The base of speedup and efficiency is unreliable.
    UnreliableBase,
    /// Runs of the quick profile.
    QuickProfile,
    /// A fault was injected.
    Fault,
    /// Ranks computed different values.
    Corruption,
    /// A read did not come from the storage.
    WarmRead,
    /// Unknown, because an older ringmark wrote the file.
    #[default]
    Unknown,
}

/// Cause of an unreliable figure, with a fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReliabilityWarning {
    /// Kind of the warning; absent in files of older versions.
    #[serde(default)]
    pub kind: ReliabilityKind,
    /// Observation, with its value.
    pub reason: String,
    /// Recommended action.
    pub fix: String,
    /// True if only speedup and efficiency are unreliable, not the speed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_scaling_alone: bool,
    /// Case or table with the unreliable figures.
    #[serde(skip)]
    subject: Option<String>,
    /// Short form of the value; may be empty.
    #[serde(skip)]
    value: String,
    /// Case to repeat, and the command to append it to.
    #[serde(skip)]
    repeat: Option<(Case, Option<CommandWords>)>,
}

impl ReliabilityWarning {
    fn new(kind: ReliabilityKind, reason: String, fix: String) -> ReliabilityWarning {
        let (subject, value, repeat) = (None, String::new(), None);
        ReliabilityWarning { kind, reason, fix, is_of_scaling_alone: false, subject, value, repeat }
    }

    /// Returns the warning with `subject` in front of its subject.
    pub fn to(&self, subject: impl fmt::Display) -> ReliabilityWarning {
        let subject = match &self.subject {
            Some(own) => format!("{subject}: {own}"),
            None => subject.to_string(),
        };
        ReliabilityWarning { subject: Some(subject), ..self.clone() }
    }

    /// Returns the reason, prefixed with the subject.
    pub fn named_reason(&self) -> String {
        self.subject.iter().map(|subject| format!("{subject}: ")).collect::<String>() + &self.reason
    }

    fn repeating(self, case: Case, sweep_facts: &SweepFacts) -> ReliabilityWarning {
        ReliabilityWarning { repeat: Some((case, sweep_facts.resume_command.clone())), ..self }
    }
}

impl fmt::Display for ReliabilityWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.named_reason(), self.fix)
    }
}

/// Returns the most severe cause in a few words; `None` without a warning.
pub fn cause(warnings: &[ReliabilityWarning]) -> Option<&str> {
    let known = known_causes(warnings).next().map(|(_, text)| text);
    let unknown = || warnings.iter().find(|warning| warning.kind == ReliabilityKind::Unknown);
    known.or_else(|| unknown().map(|warning| warning.reason.as_str()))
}

/// Returns every cause in a few words, the most severe one first; a spread with its value if there is only one.
pub fn causes(warnings: &[ReliabilityWarning]) -> Vec<String> {
    let text = |(kind, text): (ReliabilityKind, &str)| {
        let values: Vec<&str> =
            warnings.iter().filter(|warning| warning.kind == kind).map(|warning| warning.value.as_str()).collect();
        match (kind, &values[..]) {
            (ReliabilityKind::Spread, [value]) if !value.is_empty() => format!("CV {value}"),
            _ => text.to_owned(),
        }
    };
    let known: Vec<String> = known_causes(warnings).map(text).collect();
    if known.is_empty() { cause(warnings).map(str::to_owned).into_iter().collect() } else { known }
}

/// Returns the known kinds of `warnings`, each in a few words; those that explain others come first.
fn known_causes(warnings: &[ReliabilityWarning]) -> impl Iterator<Item = (ReliabilityKind, &'static str)> {
    use ReliabilityKind::{
        Corruption, Fault, ImpossibleEfficiency, OtherLoad, QuickProfile, SharedCores, Short, Spread, UnreliableBase,
        WarmRead,
    };
    let order = [
        (Fault, "injected fault"),
        (Corruption, "wrong values"),
        (OtherLoad, "busy machine"),
        (QuickProfile, "quick profile"),
        (Short, "runs are too short"),
        (SharedCores, "oversubscribed cores"),
        (Spread, "runs vary too much"),
        (ImpossibleEfficiency, "impossible efficiency"),
        (UnreliableBase, "unreliable base"),
        (WarmRead, "reads from memory"),
    ];
    order.into_iter().filter(|(kind, _)| warnings.iter().any(|warning| warning.kind == *kind))
}

/// Returns a sentence for each kind of warning, then the command that repeats all affected cases.
pub fn sentences(warnings: &[ReliabilityWarning]) -> Vec<String> {
    reasons(warnings).into_iter().chain(repetition(warnings)).collect()
}

/// Returns one sentence for each kind of warning.
pub fn reasons(warnings: &[ReliabilityWarning]) -> Vec<String> {
    let mut kinds: Vec<ReliabilityKind> = Vec::new();
    for warning in warnings {
        if !kinds.contains(&warning.kind) {
            kinds.push(warning.kind);
        }
    }
    // A base with its own warning needs no second one from the cases relative to it.
    let is_said = |warning: &&ReliabilityWarning| {
        let (ReliabilityKind::UnreliableBase, Some((base, _))) = (warning.kind, &warning.repeat) else { return false };
        // The base belongs to the same table as the case.
        let table = warning.subject.as_deref().and_then(|subject| subject.rsplit_once(": "));
        let base = table.map_or_else(|| base.to_string(), |(table, _)| format!("{table}: {base}"));
        warnings.iter().any(|other| other.subject.as_deref() == Some(&base))
    };
    let of_kind = |kind: ReliabilityKind| warnings.iter().filter(move |it| it.kind == kind).filter(|it| !is_said(it));
    kinds.iter().flat_map(|kind| sentence(&of_kind(*kind).collect::<Vec<_>>())).collect()
}

/// Returns the command that repeats the affected cases; `None` if there are none, or if a repetition would have the quick
/// profile or runs that are too short as well.
pub fn repetition(warnings: &[ReliabilityWarning]) -> Option<String> {
    let remains =
        |warning: &ReliabilityWarning| matches!(warning.kind, ReliabilityKind::QuickProfile | ReliabilityKind::Short);
    if warnings.iter().any(remains) {
        return None;
    }
    let repeats: Vec<&(Case, Option<CommandWords>)> =
        warnings.iter().filter_map(|warning| warning.repeat.as_ref()).collect();
    // Bandwidth runs have no command.
    let command = &repeats.iter().find(|(_, command)| command.is_some()).or(repeats.first())?.1;
    let mut cases: Vec<String> = Vec::new();
    for case in repeats.iter().filter(|(_, own)| own == command).map(|(case, _)| case.to_string()) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    let first = if is_loaded(warnings) { "stop other processes, then repeat" } else { "repeat" };
    let cases = cases.join(",");
    Some(match command {
        Some(command) => format!("{first}: {}", command.clone().with("--repeat", cases)),
        None => format!("{first} {cases}"),
    })
}

/// Fix for a spread of the runs, besides a repetition.
const SPREAD_FIX: &str = "end other programs, or measure longer: raise --iters and --runs";

/// Merges all warnings of one kind into one sentence, or into one for each distinct reason.
fn sentence(warnings: &[&ReliabilityWarning]) -> Vec<String> {
    let Some(first) = warnings.first() else { return Vec::new() };
    let mut by_value: Vec<(&str, Vec<&str>)> = Vec::new();
    for ReliabilityWarning { subject, value, .. } in warnings {
        match by_value.iter_mut().find(|(known, _)| known == value) {
            Some((_, subjects)) => subjects.extend(subject.as_deref()),
            None => by_value.push((value.as_str(), subject.iter().map(String::as_str).collect())),
        }
    }
    let subjects = by_value.iter().map(|(value, subjects)| match (&subjects[..], *value) {
        ([], value) => value.to_owned(),
        (subjects, "") => subjects.join(", "),
        (subjects, value) => format!("{} {value}", subjects.join(" and ")),
    });
    let subjects = subjects.collect::<Vec<_>>().join(", ");
    match first.kind {
        ReliabilityKind::OtherLoad => vec![format!("other processes used the hosts' cores: {subjects}")],
        ReliabilityKind::Spread => {
            vec![format!("runs vary by more than {} (CV): {subjects}: {SPREAD_FIX}", percent(EXTREME_SPREAD))]
        }
        ReliabilityKind::SharedCores => vec![format!("{subjects}: {}: {}", first.reason, first.fix)],
        ReliabilityKind::ImpossibleEfficiency => {
            vec![format!("impossible efficiency: {subjects}: the base was disturbed")]
        }
        ReliabilityKind::UnreliableBase => vec![format!("{subjects}: {}", first.reason)],
        ReliabilityKind::QuickProfile
        | ReliabilityKind::Fault
        | ReliabilityKind::Corruption
        | ReliabilityKind::Short
        | ReliabilityKind::WarmRead
        | ReliabilityKind::Unknown => {
            let mut texts: Vec<(String, Vec<&str>)> = Vec::new();
            for warning in warnings {
                let text = format!("{}: {}", warning.reason, warning.fix);
                let subject = warning.subject.as_deref();
                match texts.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, subjects)) => subjects.extend(subject),
                    None => texts.push((text, subject.into_iter().collect())),
                }
            }
            let named = |(text, subjects): (String, Vec<&str>)| match subjects.is_empty() {
                true => text,
                false => format!("{}: {text}", subjects.join(", ")),
            };
            texts.into_iter().map(named).collect()
        }
    }
}

/// Returns the fix that repeats a case: `repeat 1n1g: ringmark sweep .. --resume --repeat 1n1g`.
fn repeat(sweep_facts: &SweepFacts, case: Case) -> String {
    match &sweep_facts.resume_command {
        Some(command) => format!("repeat {case}: {}", command.clone().with("--repeat", case.to_string())),
        None => format!("repeat the runs of {case}"),
    }
}

/// Returns warnings about the speed of a case, from the spread of its runs and from `loads`, the foreign load by run
/// number.
pub fn speed_warnings(
    case: Case,
    cv: Option<f64>,
    loads: &[(u32, Option<&ForeignLoad>)],
    sweep_facts: &SweepFacts,
) -> Vec<ReliabilityWarning> {
    let share = |load: &&ForeignLoad| load.share;
    let heavy = |load: &&ForeignLoad| load.is_heavy();
    let loaded: Vec<(u32, &ForeignLoad)> =
        loads.iter().filter_map(|(run, load)| Some((*run, load.filter(heavy)?))).collect();
    let worst = loaded.iter().max_by(|one, other| share(&one.1).total_cmp(&share(&other.1)));
    let load = worst.map(|(run, load)| {
        let (share, host) = (percent(load.share), &load.host);
        let (reason, value) = if load.is_before {
            let reason = format!(
                "other processes ran on {host} before the first run (load of {share} of its cores), and run {run} is too \
                 short to measure them"
            );
            (reason, format!("{share} of {host} (load average before the first run)"))
        } else {
            let reason = format!(
                "other processes and virtual machines took {share} of the core time of host {host} in run {run}, and \
                 more than {} in {} of {} runs",
                percent(HEAVY_FOREIGN_LOAD),
                loaded.len(),
                loads.len()
            );
            let rare = match (loaded.len(), loads.len()) {
                (heavy, all) if heavy == all => String::new(),
                (1, all) => format!(" in run {run}, the only busy one of {all}"),
                (heavy, all) => format!(" in run {run}, the worst of {heavy} busy runs of {all}"),
            };
            (reason, format!("{share} of {host}{rare}"))
        };
        let fix = format!("stop them, then {}", repeat(sweep_facts, case));
        let warning = ReliabilityWarning::new(ReliabilityKind::OtherLoad, reason, fix).repeating(case, sweep_facts);
        ReliabilityWarning { value, ..warning }
    });
    let spread = cv.filter(|cv| *cv > EXTREME_SPREAD).map(|cv| {
        let reason = format!("its runs vary by {} (CV, more than {})", percent(cv), percent(EXTREME_SPREAD));
        let warning = ReliabilityWarning::new(ReliabilityKind::Spread, reason, repeat(sweep_facts, case));
        ReliabilityWarning { value: percent(cv), ..warning.repeating(case, sweep_facts) }
    });
    load.into_iter().chain(spread).collect()
}

/// Returns a warning if the runs of a case, which took `total`, are too short.
pub fn short_runs_warning(total: Seconds) -> Option<ReliabilityWarning> {
    (total < MIN_CASE_TIME).then(|| {
        let reason =
            format!("all runs together measure less than {MIN_CASE_TIME}, so one disturbance changes the speed");
        let fix = "raise --iters, with another --out".to_owned();
        ReliabilityWarning::new(ReliabilityKind::Short, reason, fix)
    })
}

/// Returns warnings about the figures of a record, from the foreign load.
pub fn record_warnings(subject: impl fmt::Display, case: Case, record: &impl Record) -> Vec<ReliabilityWarning> {
    let load = validity::foreign_load(record);
    let reliability_warnings = speed_warnings(case, None, &[(1, load.as_ref())], &SweepFacts::default());
    reliability_warnings.iter().map(|warning| warning.to(&subject)).collect()
}

/// Returns true if one of the warnings is about foreign load.
pub fn is_loaded(warnings: &[ReliabilityWarning]) -> bool {
    warnings.iter().any(|warning| warning.kind == ReliabilityKind::OtherLoad)
}

/// Returns the warnings that none of the reliability warnings repeats.
pub fn other_warnings(warnings: &[Warning], reliability_warnings: &[ReliabilityWarning]) -> Vec<Warning> {
    let is_load = |warning: &Warning| matches!(warning.kind, WarningKind::OtherLoad | WarningKind::Steal);
    let is_repeated = |warning: &Warning| is_loaded(reliability_warnings) && is_load(warning);
    warnings.iter().filter(|warning| !is_repeated(warning)).cloned().collect()
}

/// Returns the warning about the efficiency of ranks that have fewer cores each than the ranks of their base.
pub fn oversubscribed_warning() -> ReliabilityWarning {
    let reason = "its ranks share too few cores on a host, which lowers its efficiency";
    let fix = "choose cases with fewer ranks per host, or fewer --threads for all";
    let warning = ReliabilityWarning::new(ReliabilityKind::SharedCores, reason.to_owned(), fix.to_owned());
    ReliabilityWarning { is_of_scaling_alone: true, ..warning }
}

/// Returns a warning if the efficiency is above the plausible `limit`.
pub fn efficiency_warning(
    efficiency: f64,
    limit: f64,
    base: Case,
    sweep_facts: &SweepFacts,
) -> Option<ReliabilityWarning> {
    (efficiency > limit).then(|| {
        let reason = format!(
            "an efficiency of {} (more than {}): its base {base} was disturbed, or had fewer resources per rank",
            percent(efficiency),
            percent(limit)
        );
        let warning = ReliabilityWarning::new(ReliabilityKind::ImpossibleEfficiency, reason, repeat(sweep_facts, base));
        let value = percent(efficiency);
        ReliabilityWarning { is_of_scaling_alone: true, value, ..warning.repeating(base, sweep_facts) }
    })
}

/// Returns the warning about a read of which this share of the bytes came from the storage, if the kernel reports it.
pub fn warm_read_warning(storage_share: Option<f64>) -> ReliabilityWarning {
    let reason = match storage_share {
        Some(share) => format!("{} of the read bytes of a rank came from the storage", percent(share)),
        None => "the kernel does not count the bytes that a read fetches from the storage (/proc/self/io)".to_owned(),
    };
    let fix = "compare the writes alone, or repeat with --io direct".to_owned();
    ReliabilityWarning::new(ReliabilityKind::WarmRead, reason, fix)
}

/// Returns the warning about figures relative to an unreliable base.
pub fn base_warning(base: Case, sweep_facts: &SweepFacts) -> ReliabilityWarning {
    let reason = format!("its base {base} is unreliable");
    let warning = ReliabilityWarning::new(ReliabilityKind::UnreliableBase, reason, repeat(sweep_facts, base));
    ReliabilityWarning { is_of_scaling_alone: true, ..warning.repeating(base, sweep_facts) }
}

/// Returns the warning about figures of the quick profile.
pub fn quick_profile_warning() -> ReliabilityWarning {
    let (reason, fix) = ("quick profile, a first look", "measure again without --quick, with another --out");
    ReliabilityWarning::new(ReliabilityKind::QuickProfile, reason.to_owned(), fix.to_owned())
}

/// Returns the warning about a run in which `ranks` computed other values than the others.
pub fn corruption_warning(run: u32, ranks: &str) -> ReliabilityWarning {
    ReliabilityWarning::new(
        ReliabilityKind::Corruption,
        format!("ranks computed different values in run {run} ({ranks})"),
        "test the hardware, and repeat the sweep without it".to_owned(),
    )
}

/// Returns the warning about figures of runs with an injected fault.
pub fn injected_fault_warning(fault: impl fmt::Display) -> ReliabilityWarning {
    ReliabilityWarning::new(
        ReliabilityKind::Fault,
        format!("a fault was injected on purpose: {fault}"),
        "sweep again without --inject".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::benchmark::bandwidth::{BandwidthConfig, BandwidthRecord};
    use ringmark_core::host::{Environment, InitialLoad};

    use super::*;

    fn load(share: f64) -> ForeignLoad {
        ForeignLoad { host: "a".to_owned(), share, is_before: false }
    }

    #[test]
    fn load_before_a_short_bandwidth_run_is_a_warning() {
        let ranks = Vec::new();
        let environment = Environment {
            load_before: Some(InitialLoad { hosts: "a,b".to_owned(), load: 1.2, cores: 2 }),
            ..Environment::default()
        };
        let record = BandwidthRecord::new(Seconds(0.0), BandwidthConfig::default(), environment, ranks);
        let warnings = record_warnings(Case::SINGLE, Case::SINGLE, &record);
        expect![[r#"
            other processes used the hosts' cores: 1n1g 60.0 % of a,b (load average before the first run)
            stop other processes, then repeat 1n1g"#]]
        .assert_eq(&sentences(&warnings).join("\n"));
        assert_eq!(cause(&warnings), Some("busy machine"));
        let idle = BandwidthRecord::new(Seconds(0.0), BandwidthConfig::default(), Environment::default(), Vec::new());
        assert_eq!(record_warnings(Case::SINGLE, Case::SINGLE, &idle), []);
    }

    #[test]
    fn warnings_of_one_kind_are_merged() {
        let sweep_facts = SweepFacts {
            resume_command: Some("ringmark sweep --resume".split(' ').collect()),
            ..SweepFacts::default()
        };
        let heavy = load(0.53);
        let cases = [Case::SINGLE, Case { nodes: 1, gpus_per_node: 2 }];
        let mut warnings: Vec<ReliabilityWarning> = Vec::new();
        for case in cases {
            warnings.extend(
                speed_warnings(case, Some(0.35), &[(1, Some(&heavy))], &sweep_facts).iter().map(|it| it.to(case)),
            );
        }
        warnings.push(base_warning(Case::SINGLE, &sweep_facts).to(cases[1]));
        assert_eq!(
            sentences(&warnings),
            [
                "other processes used the hosts' cores: 1n1g and 1n2g 53.0 % of a",
                "runs vary by more than 10.0 % (CV): 1n1g and 1n2g 35.0 %: end other programs, or measure longer: raise \
                 --iters and --runs",
                "stop other processes, then repeat: ringmark sweep --resume --repeat 1n1g,1n2g",
            ]
        );
        assert_eq!(cause(&warnings), Some("busy machine"));
        let of_table: Vec<ReliabilityWarning> = warnings.iter().map(|warning| warning.to("fp32")).collect();
        assert_eq!(reasons(&of_table).len(), 2, "the base of a table is named in it: {of_table:?}");
        assert_eq!(cause(&[]), None);
        assert_eq!(causes(&warnings), ["busy machine", "runs vary too much", "unreliable base"]);
        assert_eq!(causes(&[]), Vec::<String>::new());
        // A base without its own warning is named.
        let of_base = [base_warning(Case::SINGLE, &sweep_facts).to(cases[1])];
        let expected = ["1n2g: its base 1n1g is unreliable", "repeat: ringmark sweep --resume --repeat 1n1g"];
        assert_eq!(sentences(&of_base), expected);
    }

    #[test]
    fn warnings_start_above_each_threshold() {
        let sweep_facts = SweepFacts {
            resume_command: Some("ringmark sweep --resume".split(' ').collect()),
            ..SweepFacts::default()
        };
        let (heavy, light) = (load(0.53), load(HEAVY_FOREIGN_LOAD));
        let runs = [(1, Some(&light)), (2, Some(&heavy)), (3, None)];
        let found: Vec<String> =
            speed_warnings(Case::SINGLE, Some(0.35), &runs, &sweep_facts).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "other processes and virtual machines took 53.0 % of the core time of host a in run 2, and more than \
                 25.0 % in 1 of 3 runs: stop them, then repeat 1n1g: ringmark sweep --resume --repeat 1n1g",
                "its runs vary by 35.0 % (CV, more than 10.0 %): repeat 1n1g: ringmark sweep --resume --repeat 1n1g",
            ]
        );
        assert_eq!(speed_warnings(Case::SINGLE, Some(EXTREME_SPREAD), &runs[..1], &sweep_facts), []);
        assert_eq!(speed_warnings(Case::SINGLE, None, &[], &sweep_facts), []);
        assert_eq!(short_runs_warning(MIN_CASE_TIME), None);
        let impossible = efficiency_warning(2.105, 1.05, Case::SINGLE, &SweepFacts::default()).expect("impossible");
        assert!(impossible.to_string().starts_with("an efficiency of 210.5 % (more than 105.0 %)"), "{impossible}");
        assert!(impossible.fix == "repeat the runs of 1n1g", "{impossible}");
        assert_eq!(efficiency_warning(1.05, 1.05, Case::SINGLE, &sweep_facts), None);
    }
}

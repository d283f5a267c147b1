//! Pairing of tables and cases of two results by their conditions, never by their position. Incomparable tables are
//! refused; those without a partner are listed by name.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anyhow::anyhow;
use ringmark_core::benchmark::bandwidth::BandwidthConfig;
use ringmark_core::benchmark::checkpoint::CheckpointConfig;
use ringmark_core::benchmark::score::ScoreConfig;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::Strategy;
use ringmark_core::number_text::three_digits;
use ringmark_core::options::usage::usage;
use ringmark_core::shell;

use crate::read::analyze::comparison::side::{
    ConditionDifference, PROGRAM, RequiredCondition, Side, SideCase, SideGroup, SideKind,
};
use crate::read::analyze::settings;
use crate::read::load::environment::EnvironmentText;

/// Largest relative difference of two measured rates of matrix products that is not listed: those of equal devices differ
/// by their clocks.
const MATRIX_RATE_NOISE: f64 = 0.1;

/// Tables and cases that both sides have, and those that only one has.
#[derive(Debug)]
pub struct Pairing<'a> {
    /// Pairs of tables, in the order of BASE.
    pub pairs: Vec<Pair<'a>>,
    /// Titles of unmatched tables and names of unmatched cases: of BASE, of TEST.
    pub only: [Vec<String>; 2],
}

/// Two tables and the cases that both contain.
#[derive(Debug)]
pub struct Pair<'a> {
    /// BASE, then TEST.
    pub groups: [&'a SideGroup; 2],
    /// Pairs of cases, in the order of BASE.
    pub cases: Vec<[&'a SideCase; 2]>,
    /// Benchmark of both sides.
    pub kind: SideKind,
    /// Required conditions that differ; empty unless `--force` was given.
    pub forced: Vec<ConditionDifference>,
}

/// Pairs two sides. Returns a usage error with the differing conditions if nothing can be compared.
pub fn pair<'a>([base, test]: [&'a Side; 2], force: bool) -> anyhow::Result<Pairing<'a>> {
    if base.kind != test.kind {
        return Err(usage(anyhow!(
            "{} contains {}, {} contains {}: not comparable, even with --force",
            base.path.display(),
            base.kind.text(),
            test.path.display(),
            test.kind.text()
        )));
    }
    let mut tables =
        Tables { base: base.groups.iter().collect(), test: test.groups.iter().collect(), pairs: Vec::new() };
    tables.pair_matching(|base, test| {
        base.name == test.name && blocking_differences(base, test).is_empty() && base.settings == test.settings
    });
    // If each side has one strategy, the strategy may be the subject of the comparison; otherwise only equal ones are
    // paired.
    let is_one_each = [base, test].iter().all(|side| strategies(side).len() <= 1);
    let is_of_one = |base: &SideGroup, test: &SideGroup| is_one_each || strategy(base) == strategy(test);
    tables.pair_matching(|base, test| {
        base.name == test.name && blocking_differences(base, test).is_empty() && is_of_one(base, test)
    });
    if force {
        tables.pair_nearest();
    }
    if tables.pairs.is_empty() {
        return Err(usage(tables.refusal(force, [&base.path, &test.path])));
    }
    tables.pairs.sort_by_key(|(one, _)| base.groups.iter().position(|group| std::ptr::eq(group, *one)));
    let titles = |groups: &[&SideGroup]| groups.iter().map(|group| group.title()).collect();
    let mut pairing = Pairing { only: [titles(&tables.base), titles(&tables.test)], pairs: Vec::new() };
    let several = base.groups.len() > 1 || test.groups.len() > 1;
    let named = |group: &SideGroup, case: &SideCase| match several {
        true => format!("{}: {}", group.title(), case.name),
        false => case.name.clone(),
    };
    for (one, other) in tables.pairs {
        let [of_base, of_test] = [one, other].map(|group| {
            group.cases.iter().map(|case| (case.name.as_str(), case)).collect::<HashMap<&str, &SideCase>>()
        });
        let partner = |case: &'a SideCase| Some([case, *of_test.get(case.name.as_str())?]);
        let cases: Vec<[&SideCase; 2]> = one.cases.iter().filter_map(partner).collect();
        for (only, (group, others)) in pairing.only.iter_mut().zip([(one, &of_test), (other, &of_base)]) {
            let without = group.cases.iter().filter(|case| !others.contains_key(case.name.as_str()));
            only.extend(without.map(|case| named(group, case)));
        }
        if !cases.is_empty() {
            pairing.pairs.push(Pair {
                kind: base.kind,
                groups: [one, other],
                cases,
                forced: blocking_differences(one, other),
            });
        }
    }
    if pairing.pairs.is_empty() {
        let [base, test] = pairing.only.map(|names| names.join(", "));
        return Err(usage(anyhow!("no case in common: BASE has {base}; TEST has {test}")));
    }
    Ok(pairing)
}

/// Returns the strategy, or `None` if the result does not record it.
fn strategy(table: &SideGroup) -> Option<&str> {
    table.settings.get("strategy").map(String::as_str)
}

fn strategies(side: &Side) -> BTreeSet<Option<&str>> {
    side.groups.iter().map(strategy).collect()
}

/// Returns the required conditions that differ; a condition that either side does not record is ignored.
fn blocking_differences(base: &SideGroup, test: &SideGroup) -> Vec<ConditionDifference> {
    let differs = |((what, base), (_, test)): (&RequiredCondition, &RequiredCondition)| {
        let (base, test) = (base.as_ref()?, test.as_ref()?);
        (base != test).then(|| ConditionDifference { name: (*what).to_owned(), base: base.clone(), test: test.clone() })
    };
    base.must.iter().zip(&test.must).filter_map(differs).collect()
}

/// Tables without a partner, and the pairs made so far.
struct Tables<'a> {
    base: Vec<&'a SideGroup>,
    test: Vec<&'a SideGroup>,
    pairs: Vec<(&'a SideGroup, &'a SideGroup)>,
}

impl<'a> Tables<'a> {
    /// Pairs tables that match each other and no other table.
    fn pair_matching(&mut self, belong: impl Fn(&SideGroup, &SideGroup) -> bool) {
        let only = |list: &[&'a SideGroup], belongs: &dyn Fn(&SideGroup) -> bool| {
            let mut found = list.iter().filter(|group| belongs(group));
            found.next().copied().filter(|_| found.next().is_none())
        };
        for one in self.base.clone() {
            let Some(other) = only(&self.test, &|test| belong(one, test)) else { continue };
            if only(&self.base, &|base| belong(base, other)).is_some() {
                self.join(one, other);
            }
        }
    }

    /// Pairs the tables with the fewest differing conditions, as long as the choice is unambiguous.
    fn pair_nearest(&mut self) {
        for count in 0..=self.base.first().map_or(0, |group| group.must.len()) {
            self.pair_matching(|base, test| base.name == test.name && blocking_differences(base, test).len() == count);
        }
    }

    fn join(&mut self, one: &'a SideGroup, other: &'a SideGroup) {
        self.base.retain(|group| !std::ptr::eq(*group, one));
        self.test.retain(|group| !std::ptr::eq(*group, other));
        self.pairs.push((one, other));
    }

    /// Explains why no tables could be paired.
    fn refusal(&self, force: bool, paths: [&Path; 2]) -> anyhow::Error {
        let titles = |groups: &[&SideGroup]| groups.iter().map(|group| group.title()).collect::<Vec<_>>().join("; ");
        let mut lines = Vec::new();
        let mut can_be_forced = false;
        for one in &self.base {
            let alike = self.test.iter().filter(|other| other.name == one.name);
            let Some(nearest) = alike.min_by_key(|other| blocking_differences(one, other).len()) else { continue };
            let differences = blocking_differences(one, nearest);
            can_be_forced |= !differences.is_empty();
            lines.extend(
                differences.iter().map(|ConditionDifference { name, base, test }| {
                    format!("\n  {name}: {base} in BASE, {test} in TEST")
                }),
            );
            if differences.is_empty() {
                lines.push(format!("\n  several tables of {}: their options do not show which match", one.title()));
            }
        }
        // Two pairs of tables may differ in the same condition.
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert(line.clone()));
        if lines.is_empty() {
            return anyhow!("nothing in common: BASE has {}; TEST has {}", titles(&self.base), titles(&self.test));
        }
        let advice = match can_be_forced && !force {
            true => {
                let [base, test] = paths.map(|path| shell::quote(&path.display().to_string()).into_owned());
                format!(
                    "\ncompare results with the same settings; to compare these anyway: ringmark diff {base} {test} --force"
                )
            }
            false => "\ngive two sides of one table each".to_owned(),
        };
        anyhow!("BASE and TEST are not comparable:{}{advice}", lines.concat())
    }
}

impl Pair<'_> {
    /// Returns the heading of the comparison, with both values of each condition that differs.
    pub fn title(&self) -> String {
        let both = |((what, base), (_, test)): (&RequiredCondition, &RequiredCondition)| {
            let value = match (base, test) {
                (Some(base), Some(test)) if base != test => Some(format!("{base} -> {test}")),
                _ => base.clone(),
            };
            (*what, value)
        };
        let [base, test] = self.groups;
        let must = base.must.iter().zip(&test.must).map(both).collect();
        SideGroup { name: base.name.clone(), must, apart: base.apart.clone(), ..SideGroup::default() }.title()
    }

    /// Returns all options and environment values, by name. For results of two programs only values that both record
    /// are compared.
    pub fn conditions(&self) -> Vec<ConditionDifference> {
        let options_known = self.groups.iter().all(|group| !group.settings.is_empty());
        let all_known = self.unknown().iter().all(Option::is_none);
        let [base, test] = [0, 1].map(|side| {
            let settings = self.groups[side].settings.iter().filter(|_| options_known);
            let mut all: EnvironmentText =
                settings.map(|(name, value)| (name.clone(), BTreeSet::from([value.clone()]))).collect();
            all.extend(self.servers(side).map(|servers| ("servers".to_owned(), servers)));
            for (name, values) in self.cases.iter().flat_map(|case| &case[side].environment).filter(|_| all_known) {
                all.entry(name.clone()).or_default().extend(values.iter().cloned());
            }
            all
        });
        let names: BTreeSet<&String> = base.keys().chain(test.keys()).collect();
        let is_of_both = |name: &String| base.contains_key(name) && test.contains_key(name);
        let is_compared = |name: &&String| !self.is_of_two_programs() || *name == PROGRAM || is_of_both(name);
        let condition = |name: &String| ConditionDifference {
            name: name.clone(),
            base: self.joined(&base, name),
            test: self.joined(&test, name),
        };
        names.into_iter().filter(is_compared).map(condition).chain(self.matrix_rates()).collect()
    }

    /// Returns the measured rates of matrix products of the first case that has both, if they differ: the devices, their
    /// clocks or the math library then explain a part of the other differences.
    fn matrix_rates(&self) -> Option<ConditionDifference> {
        let rates = |[base, test]: &[&SideCase; 2]| Some((base.name.clone(), base.matrix_rate?.0, test.matrix_rate?.0));
        let (case, base, test) = self.cases.iter().find_map(rates)?;
        ((test / base - 1.0).abs() > MATRIX_RATE_NOISE).then(|| ConditionDifference {
            name: format!("measured matmul rate ({case})"),
            base: format!("{} TFLOP/s", three_digits(base)),
            test: format!("{} TFLOP/s", three_digits(test)),
        })
    }

    /// Returns the values of a setting; without one, the value that a record omits.
    fn joined(&self, all: &EnvironmentText, name: &str) -> String {
        let omitted = || match self.kind {
            SideKind::Training => settings::omitted::<TrainConfig>(name),
            SideKind::Score => settings::omitted::<ScoreConfig>(name),
            SideKind::Collectives => settings::omitted::<BandwidthConfig>(name),
            SideKind::Checkpoints => settings::omitted::<CheckpointConfig>(name),
            SideKind::PytorchDdp => None,
        };
        match all.get(name) {
            None if name == PROGRAM => "ringmark".to_owned(),
            None => omitted().unwrap_or_else(|| "not set".to_owned()),
            Some(values) => values.iter().cloned().collect::<Vec<_>>().join(" / "),
        }
    }

    /// Returns the server counts of the compared cases; without `--servers` there is one server per host. The option
    /// itself cannot be compared: for the same runs, a result of one case records a number and a result of several
    /// cases does not.
    fn servers(&self, side: usize) -> Option<BTreeSet<String>> {
        let table = self.groups[side];
        strategy(table)?.parse().is_ok_and(Strategy::has_servers).then_some(())?;
        let number = table.settings.get("servers");
        let hosts = |case: &SideCase| case.hosts.map(|hosts| hosts.to_string());
        self.cases.iter().map(|case| number.cloned().or_else(|| hosts(case[side]))).collect()
    }

    /// Returns for BASE and TEST why conditions are unknown, if they are; `differences` cannot include those.
    pub fn unknown(&self) -> [Option<&'static str>; 2] {
        [0, 1].map(|side| {
            let has_environment = self.cases.iter().any(|case| !case[side].environment.is_empty());
            match (self.groups[side].settings.is_empty(), has_environment, self.kind) {
                (_, true, _) | (_, _, SideKind::PytorchDdp) => None,
                (true, false, _) => Some("options, devices and environment are unknown: no records"),
                (false, false, _) => Some("devices and environment are unknown: written by an older ringmark"),
            }
        })
    }

    /// Returns true if different programs measured the sides; their percentiles are defined differently.
    pub fn is_of_two_programs(&self) -> bool {
        let [base, test] = self.groups.map(|group| group.settings.get(PROGRAM));
        base != test
    }
}

//! Two results against each other: what differs in how they were made, and how sure it is that one is faster. The test is in
//! [`ringmark_record::stats::comparison`].
//!
//! | room | what it is for |
//! |---|---|
//! | [`side`] | BASE or TEST, whatever it was read from, told by its content |
//! | [`training`] | training runs as a side: a folder of logs and records, or the JSON that extract made of it |
//! | [`pytorch`] | files of PyTorch's DDP benchmark as a side |
//! | [`collectives`] | records of `ringmark bandwidth` and files of nccl-tests as a side |
//! | [`pairing`] | which is compared with which, and what must not be |
//! | [`outcome`] | differences, intervals, verdicts; the JSON |
//! | [`table`] | the same for people: terminal and Markdown |

use std::path::PathBuf;

use anyhow::{Context, ensure};
use ringmark_record::stats::comparison::{Thresholds, Verdict};
use ringmark_record::words;

use crate::output::{self, Json};
use crate::read::analyse::comparison::verdicts::Outcome;
use crate::read::analyse::comparison::{pairing, side};
use crate::read::load::problem;
use crate::read::show::comparison;

/// What `ringmark diff` is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffConfig {
    /// What is compared with.
    pub base: PathBuf,
    /// What is compared.
    pub test: PathBuf,
    /// When a difference counts.
    pub thresholds: Thresholds,
    /// Whether what must be equal may differ.
    pub force: bool,
    /// What else makes the exit status 1.
    pub fail_on: Vec<FailOn>,
    /// What is printed.
    pub format: Format,
    /// Where everything goes as JSON.
    pub json: Json,
}

words!(
    /// What makes the exit status 1 though everything was compared.
    FailOn {
        /// A case is slower.
        Slower = "slower",
        /// A case is too noisy to tell.
        Noisy = "noisy",
        /// BASE has a case that TEST has not.
        Missing = "missing",
    }
);

words!(
    /// What is printed.
    Format {
        /// Aligned columns for a terminal.
        Table = "table",
        /// Markdown, to be posted to a pull request.
        Markdown = "markdown" | "md",
    }
);

/// Compares and prints. An error after everything else was printed where either side is not complete, or where that was
/// found which the exit status is to tell.
pub fn run(config: &DiffConfig) -> anyhow::Result<()> {
    config.json.check()?;
    let base = side::read(&config.base).context("BASE")?;
    let test = side::read(&config.test).context("TEST")?;
    let pairing = pairing::pair([&base, &test], config.force)?;
    let outcome = Outcome::of([&base, &test], pairing, config.thresholds);

    if !config.json.give(&outcome)? {
        output::print(&match config.format {
            Format::Table => comparison::terminal(&outcome),
            Format::Markdown => comparison::markdown(&outcome),
        })?;
    }
    let sides = [("BASE", &outcome.base), ("TEST", &outcome.test)];
    let left_out = sides.into_iter().flat_map(|(name, side)| side.left_out.iter().map(move |what| (name, what)));
    let left_out = left_out.map(|(name, what)| format!("not compared, {name}: {what}"));
    let incomplete = problem::check_complete("the comparison is", left_out).err();
    let mut failures = failures(&outcome, &config.fail_on);
    failures.extend(incomplete.map(|error| error.to_string()));
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// What was to be told of by the exit status, and was found.
fn failures(outcome: &Outcome, fail_on: &[FailOn]) -> Vec<String> {
    let of = |verdict: Verdict| {
        let cases =
            outcome.cases().filter(|(_, case)| case.verdict == verdict).map(|(table, case)| outcome.name(table, case));
        cases.collect::<Vec<_>>().join(", ")
    };
    let asked = |what: FailOn| {
        let (what, cases) = match what {
            FailOn::Slower => ("slower", of(Verdict::Slower)),
            FailOn::Noisy => ("too noisy to tell", of(Verdict::TooNoisy)),
            FailOn::Missing => ("not in TEST", outcome.only_in_base.join(", ")),
        };
        (!cases.is_empty()).then(|| format!("{what}: {cases}"))
    };
    fail_on.iter().filter_map(|what| asked(*what)).collect()
}

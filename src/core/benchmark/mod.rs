//! The benchmarks, each a configuration in and a record out.
//!
//! | module | what it measures |
//! |---|---|
//! | [`train`] | training: forward, backward, exchange of gradients, update |
//! | [`score`] | inference alone |
//! | [`bandwidth`] | the exchange alone |
//! | [`input`] | reading and decoding alone |
//!
//! What they share: [`cores`], what a rank gets of its host; [`exchange`], how gradients are exchanged; [`kv_store`], where
//! they are summed and weights updated; [`image_input`], which images are read and how; [`warning`], what a reader of a record
//! is warned of.

pub mod bandwidth;
pub mod compression;
mod compression_options;
pub mod cores;
pub mod exchange;
mod hierarchical;
pub mod image_input;
pub mod input;
pub mod kv_store;
pub mod score;
pub mod train;
pub mod warning;

use std::fmt::Display;
use std::io::BufRead;

use crate::benchmark::warning::Warning;
use crate::dimension::{Case, Seconds};
use crate::file::run_name::{Point, RunName};
use crate::host::{Environment, RankPlace};
use crate::keyword_enum;
use crate::options::option_table::Options;

keyword_enum!(
    /// A benchmark, by the command of the worker that runs it.
    BenchmarkKind {
        /// Training.
        Train = "train",
        /// Inference.
        Score = "score",
        /// The exchange alone.
        Bandwidth = "bandwidth",
        /// Reading and decoding alone.
        Input = "input",
    }
);

keyword_enum!(
    /// What a sweep does where nothing is typed. What is typed takes the place of any of it.
    SweepProfile {
        /// DLPerf's protocol: 120 iterations of 128 images.
        Dlperf = "dlperf",
        /// A measurement that a CPU makes in minutes.
        Cpu = "cpu",
        /// A first look: too short to be quoted.
        Quick = "quick",
    }
);

impl SweepProfile {
    /// Runs of each point.
    pub fn runs(self) -> u32 {
        match self {
            SweepProfile::Dlperf => 5,
            SweepProfile::Cpu => 3,
            SweepProfile::Quick => 2,
        }
    }

    /// How its runs are meant, as their records say.
    pub fn of_runs(self) -> Profile {
        match self {
            SweepProfile::Quick => Profile::Quick,
            SweepProfile::Dlperf | SweepProfile::Cpu => Profile::Full,
        }
    }
}

keyword_enum!(
    /// How a run was meant.
    Profile {
        /// A measurement: of any profile but the quick one.
        Full = "full",
        /// A first look: too short to be quoted.
        Quick = "quick",
    }
);

/// How long a run is, as every command and log says it, because `--iters` counts warm-up in training and not elsewhere:
/// `100 measured + 20 warm-up`.
pub fn measured_and_warmup(measured: impl Display, warmup: impl Display) -> String {
    format!("{measured} measured + {warmup} warm-up")
}

/// What one run is called in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLabel {
    /// Nodes and ranks a node as launched.
    pub case: Case,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// How it is meant.
    pub profile: Profile,
}

/// What every record says, whatever was measured.
pub trait Record: Sized {
    /// What the file is, in its first field.
    const KIND: &'static str;

    /// Reads and checks a record.
    fn read(input: impl BufRead) -> anyhow::Result<Self>;

    /// Where rank 0 ran.
    fn environment(&self) -> &Environment;

    /// Every rank.
    fn ranks(&self) -> &[RankPlace];

    /// Why the run does not count; `None` for a sound one.
    fn failure(&self) -> Option<String>;

    /// Returns true if it fails only because its figures miss a minimum that the user set.
    fn is_miss(&self) -> bool {
        false
    }
}

/// The record of one run of a sweep over axes.
pub trait SweepRecord: Record {
    /// What a run of it is asked.
    type Config: Options;

    /// What it was asked.
    fn config(&self) -> &Self::Config;

    /// When it started and when its last iteration had ended, seconds since 1970 UTC; what came before the first iteration
    /// is not counted.
    fn period(&self) -> [Seconds; 2];

    /// Which run it is of.
    fn label(&self) -> RunLabel;

    /// What it was asked, as far as its name repeats it.
    fn point(&self) -> Point;

    /// What a reader of its figures should know, though the run counts.
    fn warnings(&self) -> &[Warning];

    /// Why the run of this name does not count by its record: it failed, the record is of another run, or its ranks are not
    /// those of its case.
    fn check(&self, name: &RunName) -> Result<(), String> {
        if let Some(failure) = self.failure() {
            return Err(format!("the run failed: {failure}: repeat it"));
        }
        let (case, point) = (self.label().case, self.point());
        if case != name.case || !point.is_named(name.point()) {
            return Err(format!(
                "is of case {case}, {point}, but its file name says otherwise: restore the original name"
            ));
        }
        let ranks = self.ranks();
        if ranks.len() != case.ranks() as usize {
            return Err(format!("{} ranks ran in case {case}: repeat the run", ranks.len()));
        }
        if let Some((place, rank)) = (0..).zip(ranks).find(|(place, rank)| rank.rank != *place) {
            return Err(format!("expected rank {place}, found rank {}: repeat the run", rank.rank));
        }
        if ranks.iter().any(|rank| rank.device != ranks[0].device) {
            return Err(
                "some ranks ran on the CPU and some on GPUs: repeat the run with --device cpu or cuda".to_owned()
            );
        }
        self.check_place(name)
    }

    /// Why a run of this name cannot be this benchmark's.
    fn check_place(&self, name: &RunName) -> Result<(), String>;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    use clap::{Args, Command, FromArgMatches};
    use schemars::JsonSchema;
    use serde::Serialize;
    use serde_json::Value;

    use super::*;
    use crate::benchmark::bandwidth::config::BandwidthConfig;
    use crate::benchmark::input::config::InputConfig;
    use crate::benchmark::score::config::ScoreConfig;
    use crate::benchmark::train::config::TrainConfig;
    use crate::options::option_table::{Worker, arguments, set, settings};

    /// Every option without keywords takes one of them that is not its default.
    const VALUES: [&str; 12] =
        ["2", "3", "0.25", "yes", "a b.json", "3-5", "2bit", "pixels=7", "a=3,b=0.5", "fail:2:1", "30,60", "0"];

    fn command<C: Options>() -> Command {
        Worker::<C>::augment_args(Command::new("worker").no_binary_name(true))
    }

    /// The same configuration, started with as a worker and read by it.
    fn on_the_worker<C: Options>(config: &C) -> anyhow::Result<C> {
        let matches = command::<C>().try_get_matches_from(arguments(config))?;
        Worker::<C>::from_arg_matches(&matches)?.apply(C::default())
    }

    /// The path of every field in a schema, and in the structs of which its fields are.
    fn fields(schema: &Value, root: &Value, path: &str) -> Vec<String> {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let schema = reference.map_or(schema, |name| root.pointer(&name[1..]).expect("a definition"));
        match schema.get("properties").and_then(Value::as_object) {
            Some(inner) => inner.iter().flat_map(|(name, of)| fields(of, root, &format!("{path}/{name}"))).collect(),
            None => vec![path.to_owned()],
        }
    }

    /// Changes every option, alone and together with those before it. `without` are the fields that no option changes.
    fn check_options<C: Options + Serialize + JsonSchema + PartialEq + Debug>(without: &[&str]) {
        let default = C::default();
        assert_eq!(arguments(&default), Vec::<String>::new());
        assert_eq!(on_the_worker(&default).expect("no arguments"), default);
        let schema = schemars::schema_for!(C).to_value();
        let mut unchanged: BTreeSet<String> = fields(&schema, &schema, "").into_iter().collect();
        let json = |config: &C| serde_json::to_value(config).expect("JSON");
        let value = |config: &C, name: &str| settings(config).into_iter().find(|(other, _)| *other == name);
        let mut together = default.clone();
        for argument in command::<C>().get_arguments().filter(|argument| !argument.is_hide_set()) {
            let name = argument.get_id().as_str();
            let keywords = argument.get_possible_values().into_iter().map(|value| value.get_name().to_owned());
            let change = |text: String| {
                let mut config = default.clone();
                let is_changed = set(&mut config, name, &text).is_ok() && value(&config, name) != value(&default, name);
                is_changed.then_some((config, text))
            };
            let Some((config, text)) = keywords.chain(VALUES.map(str::to_owned)).find_map(change) else {
                assert!(value(&default, name).is_some_and(|(_, text)| text.is_empty()), "--{name} takes no value");
                continue;
            };
            unchanged.retain(|path| json(&config).pointer(path) == json(&default).pointer(path));
            let mut more = together.clone();
            set(&mut more, name, &text).expect("it was set alone");
            for config in [&config, &more] {
                match on_the_worker(config) {
                    Ok(read) => assert_eq!(read, *config, "--{name} {text}"),
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.contains("cannot be used with") || error.contains("required"), "{error}");
                    }
                }
            }
            if on_the_worker(&more).is_ok() {
                together = more;
            }
        }
        assert_eq!(unchanged.into_iter().collect::<Vec<_>>(), without);
    }

    #[test]
    fn every_field_survives_the_way_to_the_worker() {
        check_options::<TrainConfig>(&["/learning/epoch_iterations"]);
        check_options::<ScoreConfig>(&[]);
        check_options::<BandwidthConfig>(&[]);
        check_options::<InputConfig>(&["/images/decode_threads"]);
    }
}

//! Another program that trains in a run (`ringmark run`): its command, and what was measured of it.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::is_default;
use crate::dimension::Seconds;
use crate::line::program::LineFormat;
use crate::{config_options, keyword_enum, text_value};

keyword_enum!(
    /// Number of copies of a program that a run starts.
    #[derive(Default)]
    ProgramStart {
        /// One per rank, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
        #[default]
        Rank = "rank",
        /// One per host, which starts that host's ranks: torchrun, accelerate.
        Host = "host",
        /// One on the first host, which starts all ranks: deepspeed, horovodrun, mpirun.
        Job = "job",
    }
);

impl ProgramStart {
    /// Returns the number of copies that a known launcher needs, and one per rank for any other program.
    pub fn usual(command: &CommandLine) -> ProgramStart {
        let name = command.0.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
        match name {
            "torchrun" | "accelerate" => ProgramStart::Host,
            "deepspeed" | "horovodrun" | "mpirun" | "mpiexec" | "srun" => ProgramStart::Job,
            _ => ProgramStart::Rank,
        }
    }
}

/// Words of a command line, as a JSON list in text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct CommandLine(pub Vec<String>);

impl fmt::Display for CommandLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An option without a value is empty.
        if self.0.is_empty() { Ok(()) } else { formatter.write_str(&serde_json::json!(self.0).to_string()) }
    }
}

impl FromStr for CommandLine {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<CommandLine> {
        let words: Vec<String> = serde_json::from_str(text)
            .with_context(|| format!("{text:?} is not a JSON list of words, such as [\"python\",\"train.py\"]"))?;
        ensure!(!words.is_empty(), "the list has no program");
        Ok(CommandLine(words))
    }
}

text_value!(CommandLine);

config_options! {
    /// A program that trains instead of ringmark's own step.
    ProgramConfig {
        /// Command line with placeholders; empty for ringmark's own step.
        #[serde(default, skip_serializing_if = "is_default")]
        command: CommandLine = CommandLine::default() => option("program", "WORDS",
            "Run this program and measure its iterations from its output, instead of training: a JSON list of words")
            .for_worker(),
        /// Number of copies.
        #[serde(default, skip_serializing_if = "is_default")]
        start: ProgramStart = ProgramStart::Rank => option("program-start", "PER",
            "Copies of the program: one per rank, one per host, or one for the job").for_worker(),
        /// Lines of the program that describe iterations.
        #[serde(default)]
        lines: LineFormat = LineFormat::default() => option("program-lines", "FORMAT",
            "Lines of the program's iterations").for_worker(),
        /// True if the warm-up is found from the times of the iterations.
        #[serde(default)]
        finds_warmup: bool = false => option("program-finds-warmup", "",
            "Find the number of warm-up iterations from the times of the program's iterations").for_worker(),
    }
}

/// Placeholders of a program's words.
pub const PLACEHOLDERS: [&str; 17] = [
    "ranks",
    "rank",
    "local_rank",
    "ranks_per_host",
    "nodes",
    "node",
    "hosts",
    "master",
    "port",
    "batch",
    "global_batch",
    "sequence_length",
    "dtype",
    "model",
    "case",
    "run",
    "out",
];

impl CommandLine {
    /// Replaces each `{name}` by its value; `{{` and `}}` are braces.
    ///
    /// # Errors
    ///
    /// Fails if a name has no value.
    pub fn filled_in(&self, value: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<Vec<String>> {
        self.0.iter().map(|word| filled_in(word, value)).collect()
    }

    /// Rejects unknown placeholders.
    pub fn check(&self) -> anyhow::Result<()> {
        self.filled_in(&|name| PLACEHOLDERS.contains(&name).then(String::new)).map(drop)
    }
}

fn filled_in(word: &str, value: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut rest = word;
    while let Some(place) = rest.find(['{', '}']) {
        text += &rest[..place];
        let brace = &rest[place..=place];
        rest = &rest[place + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            text += brace;
            rest = after;
            continue;
        }
        let named = rest.split_once('}').filter(|_| brace == "{");
        let Some((value, after)) = named.and_then(|(name, after)| Some((value(name)?, after))) else {
            bail!(
                "{word:?} contains a brace that is no placeholder: write {{{{ or }}}} for a brace, or one of {{{}}}",
                PLACEHOLDERS.join("} {")
            );
        };
        text += &value;
        rest = after;
    }
    Ok(text + rest)
}

impl ProgramConfig {
    /// Returns true if a program trains.
    pub fn is_used(&self) -> bool {
        !self.command.0.is_empty()
    }
}

/// Iterations of a program without a limit: it runs to its end.
pub const TO_THE_END: u32 = 10_000_000;

keyword_enum!(
    /// Source of the iteration times of a program.
    TimeSource {
        /// Times in its lines.
        Times = "times",
        /// Rates in its lines: work of an iteration / rate.
        Rates = "rates",
        /// Times at which its lines arrived.
        Arrival = "arrival",
    }
);

/// Observations of a program's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramUse {
    /// Source of the iteration times.
    pub source: TimeSource,
    /// Iterations of the program per line, on average. Above 1, an iteration of the record is the mean of those of a line.
    pub iterations_per_line: f64,
    /// True if the program was ended after the requested number of iterations.
    pub is_ended: bool,
    /// Time between the first and the last line, from their arrival.
    pub arrival: Seconds,
    /// Time of the same iterations by the program's lines.
    pub claimed: Seconds,
    /// Time from the start of the program to its first line.
    pub first_line: Seconds,
    /// Number of ranks that wrote lines of their own; the times of the others are those of the first.
    pub ranks_with_lines: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_round_trips() {
        let line = CommandLine(["python", "a b.py", "--lr=1", ""].map(str::to_owned).to_vec());
        assert_eq!(line.to_string(), r#"["python","a b.py","--lr=1",""]"#);
        assert_eq!(line.to_string().parse::<CommandLine>().expect("words"), line);
        assert_eq!(CommandLine::default().to_string(), "");
        let line = CommandLine(["--nproc={ranks}", r#"{{"port": {port}}}"#].map(str::to_owned).to_vec());
        let filled = line.filled_in(&|name| Some(format!("<{name}>"))).expect("known names");
        assert_eq!(filled, ["--nproc=<ranks>", r#"{"port": <port>}"#]);
        assert!(line.check().is_ok());
        let check = |word: &str| CommandLine(vec![word.to_owned()]).check();
        let errors = ["{gpus}", "a}", "{ranks"].map(|word| check(word).expect_err(word).to_string());
        assert!(
            errors[0].starts_with("\"{gpus}\" contains a brace that is no placeholder: write {{ or }}"),
            "{errors:?}"
        );
        assert!("[]".parse::<CommandLine>().is_err() && "python a.py".parse::<CommandLine>().is_err());
    }
}

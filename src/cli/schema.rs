//! `ringmark schema`: the JSON Schema of every file and answer of ringmark, made from the types that write it.

use clap::Args;
use clap::builder::PossibleValuesParser;
use schemars::{Schema, schema_for};

use crate::launch::doctor::examination::Examination;
use crate::launch::sweep::benchmarks::bandwidth::Answer;
use crate::output;
use crate::read::analyse::comparison::verdicts::ComparedResults;
use crate::read::analyse::result_json::JsonResult;
use crate::read::analyse::score::json::ScoreResult;
use crate::read::show::check::CheckedResult;
use crate::read::show::page::json::Report;
use crate::read::show::prediction;

const EXAMPLES: &str = "\
Examples:
  ringmark schema run_record > run_record.json
      what every line of a training run's record is
  ringmark schema result | jq '.properties'
      what extract writes";

/// Options of `ringmark schema`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SchemaOptions {
    /// Whose schema
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(schemas().into_iter().map(|(name, _)| name)))]
    name: String,
}

/// Each under its name.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let mut schemas = ringmark_record::schemas::schemas();
    schemas.push(("result", schema_for!(JsonResult)));
    schemas.push(("score_result", schema_for!(ScoreResult)));
    schemas.push(("check", schema_for!(CheckedResult)));
    schemas.push(("report", schema_for!(Report)));
    schemas.push(("diff", schema_for!(ComparedResults)));
    schemas.push(("prediction", schema_for!(prediction::json::Json)));
    schemas.push(("bandwidth_figures", schema_for!(Answer)));
    schemas.push(("doctor", schema_for!(Examination)));
    schemas
}

/// As a file holds it.
pub fn text(schema: &Schema) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(schema)? + "\n")
}

impl SchemaOptions {
    /// Prints it.
    pub fn print(&self) -> anyhow::Result<()> {
        match schemas().iter().find(|(name, _)| *name == self.name) {
            Some((_, schema)) => output::print(&text(schema)?),
            None => Ok(()),
        }
    }
}

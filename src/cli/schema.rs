//! `ringmark schema`: JSON Schemas of all files and results of ringmark, generated from the types that write them.

use clap::Args;
use clap::builder::PossibleValuesParser;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::launch::doctor::examination::Examination;
use crate::launch::sweep::benchmarks::bandwidth::Answer;
use crate::output;
use crate::read::analyze::comparison::verdicts::ComparedResults;
use crate::read::analyze::score::result_json::ScoreResult;
use crate::read::analyze::training::result_json::JsonResult;
use crate::read::report_json::Report;
use crate::read::show::check::CheckedResult;
use crate::read::show::prediction;

const EXAMPLES: &str = "\
Examples:
  ringmark schema run_record > run_record.json
      schema of the lines of a training run's record
  ringmark schema result | jq '.properties'
      schema of the JSON result of extract";

/// Options of `ringmark schema`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SchemaOptions {
    /// File or output to describe
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(schemas().into_iter().map(|(name, _)| name)))]
    name: String,
}

/// Returns the schemas with their names.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    // Schemas describe what is written: readers also accept files of older versions, which lack some keys.
    fn written<T: JsonSchema>() -> Schema {
        SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>()
    }
    let mut schemas = ringmark_core::schemas::schemas();
    schemas.push(("result", written::<JsonResult>()));
    schemas.push(("score_result", written::<ScoreResult>()));
    schemas.push(("check", written::<CheckedResult>()));
    schemas.push(("report", written::<Report>()));
    schemas.push(("diff", written::<ComparedResults>()));
    schemas.push(("prediction", written::<prediction::json::Json>()));
    schemas.push(("bandwidth_figures", written::<Answer>()));
    schemas.push(("doctor", written::<Examination>()));
    schemas
}

/// Returns the text of a schema file.
pub fn text(schema: &Schema) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(schema)? + "\n")
}

impl SchemaOptions {
    /// Prints the schema called `self.name`.
    pub fn print(&self) -> anyhow::Result<()> {
        match schemas().iter().find(|(name, _)| *name == self.name) {
            Some((_, schema)) => output::print(&text(schema)?),
            None => Ok(()),
        }
    }
}

//! Options of `ringmark extract`.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use ringmark_core::options::clap_binding::keyword_of_either;
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::number;

use crate::cli::json::JsonOption;
use crate::cli::read::price::PriceOption;
use crate::read::export::ExportConfig;
use crate::read::extract::{ExtractConfig, ExtractFormat};
use crate::read::show::export::ExportFormat;

const EXAMPLES: &str = "\
Examples:
  ringmark extract results/first
      the table, and results/first/first_result.json, .csv, .md and first_dlperf.json
  ringmark extract logs/ngc/mxnet/resnet50 --out result
      DLPerf's own logs
  ringmark extract results/first --format csv > first.csv
      one format, without the files
  ringmark extract results/rack7 --price 2.49/gpu-hour
      adds the cost of 90 epochs of ImageNet in each case
  ringmark extract results/first --format pytorch-ddp > first.json
      for diff.py of PyTorch's DDP benchmark; --format pytorch-ddp-lines prints its lines
  ringmark extract results/first --format prometheus -o /var/lib/prometheus/node-exporter/first.prom
      for node_exporter's textfile collector; --format influx for InfluxDB
  ringmark extract results/first --format mlflow --out mlruns
      as runs of MLflow; --format mllog as MLPerf's log lines

Exit status 1: figures are incomplete; standard error lists what is omitted and why.";

/// Options of `ringmark extract`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExtractOptions {
    /// Folder of a sweep, of `ringmark score`, `bandwidth`, `input` or `checkpoint`, or of other logs
    ///
    /// It contains CASE/MODEL_bBATCH_DTYPE_RUN.log, with or without a record (.jsonl) next to each.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Folder for the files; with some formats a file [default: FOLDER of a sweep]
    ///
    /// Folder for NAME_result.json, .csv, .md and NAME_dlperf.json; NAME is the last part of FOLDER. By default FOLDER if
    /// it is a sweep; nothing is written with --format, --json or --warmup. With --format prometheus and influx a file, with mlflow
    /// and mllog a folder, for that format alone.
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// First iterations to omit from each run [default: from the record]
    ///
    /// Without a record, the default is 20.
    #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX))]
    warmup: Option<u32>,
    /// Add published figures: MXNet's, DLPerf's, PyTorch DDP's
    ///
    /// Adds figures of the same networks below the result or to its JSON: MXNet's by batch size; for training also
    /// DLPerf's and PyTorch DDP's by number of GPUs, whatever the conditions of the result.
    #[arg(long)]
    published: bool,
    /// Price option.
    #[command(flatten)]
    price: PriceOption,
    /// Explain the columns and figures
    #[arg(long)]
    explain: bool,
    /// Print one format only: csv, json, markdown, prometheus, ..
    ///
    /// Replaces the table and the files.
    #[arg(long, conflicts_with = "json", value_parser = keyword_of_either::<ExtractFormat, ExportFormat, FormatOption>())]
    format: Option<FormatOption>,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

/// Value of `--format`.
#[derive(Debug, Clone, Copy)]
enum FormatOption {
    Figures(ExtractFormat),
    Export(ExportFormat),
}

impl From<ExtractFormat> for FormatOption {
    fn from(format: ExtractFormat) -> FormatOption {
        FormatOption::Figures(format)
    }
}

impl From<ExportFormat> for FormatOption {
    fn from(format: ExportFormat) -> FormatOption {
        FormatOption::Export(format)
    }
}

/// Work to be done by `ringmark extract`.
pub enum ExtractRequest {
    /// Prints the figures and writes ringmark's files.
    Figures(ExtractConfig),
    /// Prints or writes the format of another program.
    Export(ExportConfig),
}

impl ExtractOptions {
    /// Converts the parsed options. Does not check that the folder exists; reading it does.
    pub fn into_request(self) -> anyhow::Result<ExtractRequest> {
        let ExtractOptions { folder, out, warmup, published, price: PriceOption { price }, explain, format, json } =
            self;
        let (format, export) = match format {
            None => (None, None),
            Some(FormatOption::Figures(format)) => (Some(format), None),
            Some(FormatOption::Export(format)) => (None, Some(format)),
        };
        match export {
            None => {
                let json = json.into_json();
                let is_explained = explain;
                let config = ExtractConfig { folder, out, warmup, published, price, is_explained, format, json };
                Ok(ExtractRequest::Figures(config))
            }
            Some(format) if published => {
                Err(usage(anyhow!("--published: --format {format} cannot include published figures: omit --published")))
            }
            Some(format) if price.is_some() => Err(usage(anyhow!(
                "--price does not apply to --format {format}, which exports only measurements: omit --price"
            ))),
            Some(format) => Ok(ExtractRequest::Export(ExportConfig { folder, out, warmup, format })),
        }
    }
}

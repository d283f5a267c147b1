//! Options of the commands that read what was written.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use ringmark_core::dimension::{Case, KvStore};
use ringmark_core::options::option_table::{keyword, keyword_of_either, number};
use ringmark_core::options::usage::usage;
use ringmark_core::text::parse_percent;

use crate::cli::json::JsonOption;
use crate::read::analyse::cost::Price;
use crate::read::check::CheckConfig;
use crate::read::export::ExportConfig;
use crate::read::extract::{ExtractConfig, Format};
use crate::read::predict::PredictConfig;
use crate::read::report::{self, ReportConfig};
use crate::read::show::export::ExportFormat;
use crate::read::show::page::document::Link;

const EXTRACT_EXAMPLES: &str = "\
Examples:
  ringmark extract results/first
      the table, and results/first/first_result.json, .csv, .md and first_dlperf.json
  ringmark extract logs/ngc/mxnet/resnet50 --out result
      DLPerf's own logs
  ringmark extract results/first --format csv > first.csv
  ringmark extract results/rack7 --price 2.49/gpu-hour
      what 90 epochs of ImageNet cost on each case
  ringmark extract results/first --format pytorch-ddp > first.json
      for diff.py of PyTorch's DDP benchmark; --format pytorch-ddp-lines prints its lines
  ringmark extract results/first --format prometheus -o /var/lib/prometheus/node-exporter/first.prom
      for node_exporter's textfile collector; --format influx for InfluxDB
  ringmark extract results/first --format mlflow --out mlruns
      as runs of MLflow; --format mllog as MLPerf's log lines

Exit status 1 says that figures are not complete: what is not in them, and why, is on the standard error.";

/// Options of `ringmark extract`.
#[derive(Debug, Args)]
#[command(after_help = EXTRACT_EXAMPLES)]
pub struct ExtractOptions {
    /// Folder that holds CASE/MODEL_bBATCH_DTYPE_RUN.log, with or without a record (.jsonl) beside each
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Folder for NAME_result.json, .csv, .md and NAME_dlperf.json, NAME being the last part of FOLDER [default: FOLDER of a sweep;
    /// none with --format or --json]; with --format prometheus and influx a file, with mlflow and mllog a folder, for that alone
    #[arg(short, long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// First iterations of a run to leave out [default: as its record says, 20 without one]
    #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX))]
    warmup: Option<u32>,
    /// Print what MXNet's performance page published of the same networks below a scoring result, or in its JSON
    #[arg(long)]
    published: bool,
    /// Print what an epoch of ImageNet and 90 of them cost at the speed of each case: AMOUNT/gpu-hour or AMOUNT/host-hour, as
    /// '$2.49/gpu-hour'
    #[arg(long, value_name = "PRICE")]
    price: Option<Price>,
    /// Explain the columns and figures
    #[arg(long)]
    explain: bool,
    /// Format to print, instead of the table and the files
    #[arg(long, conflicts_with = "json", value_parser = keyword_of_either::<Format, ExportFormat, FormatOption>())]
    format: Option<FormatOption>,
    /// For programs.
    #[command(flatten)]
    json: JsonOption,
}

/// What `--format` says.
#[derive(Debug, Clone, Copy)]
enum FormatOption {
    Figures(Format),
    Export(ExportFormat),
}

impl From<Format> for FormatOption {
    fn from(format: Format) -> FormatOption {
        FormatOption::Figures(format)
    }
}

impl From<ExportFormat> for FormatOption {
    fn from(format: ExportFormat) -> FormatOption {
        FormatOption::Export(format)
    }
}

/// What is to be done.
pub enum ExtractRequest {
    /// Print the figures and write ringmark's files.
    Figures(ExtractConfig),
    /// Print or write another program's.
    Export(ExportConfig),
}

impl ExtractOptions {
    /// Takes what was typed as it is; whether the folder is there is found out by reading it.
    pub fn into_request(self) -> anyhow::Result<ExtractRequest> {
        let ExtractOptions { folder, out, warmup, published, price, explain, format, json } = self;
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
            Some(format) if published => Err(usage(anyhow!(
                "--published: --format {format} has no place for what others measured: leave it out"
            ))),
            Some(format) if price.is_some() => {
                Err(usage(anyhow!("--price: --format {format} exports what was measured: leave it out")))
            }
            Some(format) => Ok(ExtractRequest::Export(ExportConfig { folder, out, warmup, format })),
        }
    }
}

const CHECK_EXAMPLES: &str = "\
Examples:
  ringmark check results/rack7
      is this result complete, unedited, within its own rules, reliable?
  ringmark check results/rack7 --json check.json
      the same for CI

Exit status 1: a check failed or is unknown.";

/// Options of `ringmark check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct CheckOptions {
    /// Folder that `ringmark sweep` or `ringmark score` wrote
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// For programs.
    #[command(flatten)]
    json: JsonOption,
}

impl CheckOptions {
    /// Takes what was typed as it is.
    pub fn into_config(self) -> CheckConfig {
        CheckConfig { folder: self.folder, json: self.json.into_json() }
    }
}

const REPORT_EXAMPLES: &str = "\
Examples:
  ringmark report results/rack7 -o report.html
      one page that needs no network: charts, tables, warnings, what it ran on
  ringmark report results/rack7 -o scaling.svg
      speed by case against the ideal as one picture, for a README
  ringmark report results/rack7 results/rack9 --published -o report.html
      two results side by side, with DLPerf's published row where it was measured alike
  ringmark report results/rack7 --link 'job log=https://cluster/job/7' -o report.html
      with a link under the title
  ringmark report results/rack7
      the same in tables with bars, for a terminal; --format markdown for a wiki
  ringmark report results/rack7 results/rack7_bandwidth -o report.html --json report.json
      sweep and bandwidth on one page, and the figures for a program
  ringmark report results/rack7_score --published -o report.html
      inference by network and batch size, beside what MXNet published

Exit status 1 says that figures are not complete: what is not in them, and why, is in the report and on the standard error.";

/// Options of `ringmark report`.
#[derive(Debug, Args)]
#[command(after_help = REPORT_EXAMPLES)]
pub struct ReportOptions {
    /// Folders that `ringmark sweep`, `score`, `bandwidth` or `input` wrote, or of DLPerf's logs
    #[arg(value_name = "FOLDER", required = true)]
    folders: Vec<PathBuf>,
    /// File for the report [default: the standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How it is shown [default: what FILE ends in, .html, .svg, .md or .txt; table without one]
    #[arg(long, value_parser = keyword::<report::Format>())]
    format: Option<report::Format>,
    /// Add published figures: of training, DLPerf's of the same network, precision and batch size on GPUs; of scoring, MXNet's of
    /// the same networks
    #[arg(long)]
    published: bool,
    /// What an hour costs, AMOUNT/gpu-hour or AMOUNT/host-hour, as '$2.49/gpu-hour': adds what an epoch of ImageNet and 90 of them
    /// cost
    #[arg(long, value_name = "PRICE")]
    price: Option<Price>,
    /// A link under the title: `--link "job log=https://.."`, or to a file beside the page; may be repeated
    #[arg(long, value_name = "TEXT=URL", value_parser = link)]
    link: Vec<Link>,
    /// First iterations of a run to leave out [default: as its record says, 20 without one]
    #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX))]
    warmup: Option<u32>,
    /// For programs.
    #[command(flatten)]
    json: JsonOption,
}

/// A page runs no script, and neither does a link in it.
fn link(text: &str) -> Result<Link, String> {
    let (text, address) = text.split_once('=').ok_or("give it as TEXT=URL, as \"job log=https://..\"")?;
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_plain =
        scheme.as_deref().is_none_or(|scheme| ["http", "https", "mailto"].contains(&scheme) || scheme.contains('/'));
    if text.is_empty() || address.is_empty() || !is_plain {
        return Err("choose a text, and an address of http, https or mailto, or a path beside the page".to_owned());
    }
    Ok(Link { text: text.to_owned(), address: address.to_owned() })
}

impl ReportOptions {
    /// What is to be done.
    pub fn into_config(self) -> ReportConfig {
        ReportConfig {
            format: self.format,
            folders: self.folders,
            out: self.out,
            warmup: self.warmup,
            published: self.published,
            price: self.price,
            links: self.link,
            json: self.json.into_json(),
        }
    }
}

const PREDICT_EXAMPLES: &str = "\
Examples:
  ringmark predict results/rack7 --bandwidth results/rack7_bandwidth --cases 8n8g,16n8g
      throughput and efficiency of larger cases, each as a band
  ringmark predict results/stores --kv-store dist_sync --servers 4
      runs of a kv-store with servers, as if four of them served every case
  ringmark predict results/rack7 --efficiency-below 80%
      the case where the efficiency falls under 80 %
  ringmark predict results/rack7 --backtest
      the largest measured case from the others, and how far that is off
  ringmark predict --backtest
      the same for the rows that DLPerf published

Exit status 1 says that something was asked for which a measurement is missing, and which; 2 a usage error.";

/// Options of `ringmark predict`.
#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub struct PredictOptions {
    /// Folder of a sweep, or of DLPerf's logs
    #[arg(value_name = "SWEEP", required_unless_present = "backtest")]
    sweep: Option<PathBuf>,
    /// Folder of ringmark bandwidth on the same hosts, with two or more hosts: narrows the band of kv-store ring
    #[arg(long, value_name = "FOLDER", requires = "sweep")]
    bandwidth: Option<PathBuf>,
    /// Cases to predict [default: 2, 4 and 8 times the hosts of the largest measured case]
    #[arg(long, value_name = "CASE,..", value_delimiter = ',', requires = "sweep")]
    cases: Option<Vec<Case>>,
    /// Of a sweep over several kv-stores this one alone [default: all that can be predicted]
    #[arg(long, value_name = "NAME", requires = "sweep", value_parser = keyword::<KvStore>())]
    kv_store: Option<KvStore>,
    /// Servers of the predicted clusters, of runs of --kv-store dist_sync or dist_device_sync [default: as measured, one for each
    /// host or always the same number]
    #[arg(long, value_name = "N", requires = "sweep", conflicts_with = "backtest", value_parser = number(1..=65_536_u32))]
    servers: Option<u32>,
    /// Look for the case where the efficiency falls under this, as 80% (or 0.8)
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    efficiency_below: Option<f64>,
    /// Predict the largest measured case from the others and compare; without SWEEP for DLPerf's published rows
    #[arg(long)]
    backtest: bool,
    /// First iterations of a run to leave out [default: as its record says, 20 without one]
    #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX))]
    warmup: Option<u32>,
    /// Say what the predictions rest on
    #[arg(long)]
    explain: bool,
    /// For programs.
    #[command(flatten)]
    json: JsonOption,
}

fn share(text: &str) -> Result<f64, String> {
    let share = parse_percent(text).or_else(|| text.parse().ok());
    share.filter(|share| *share > 0.0 && *share < 1.0).ok_or_else(|| "choose 1% to 99%, as 80%".to_owned())
}

impl PredictOptions {
    /// Takes what was typed as it is; what can be predicted is found out by reading.
    pub fn into_config(self) -> PredictConfig {
        let PredictOptions { sweep, bandwidth, cases, kv_store, servers, efficiency_below, backtest, warmup, .. } =
            self;
        let (is_explained, json) = (self.explain, self.json.into_json());
        PredictConfig {
            sweep,
            bandwidth,
            cases,
            kv_store,
            servers,
            efficiency_below,
            backtest,
            warmup,
            is_explained,
            json,
        }
    }
}

//! Options of `ringmark predict`.

use std::path::PathBuf;

use clap::Args;
use ringmark_core::dimension::{Case, Strategy};
use ringmark_core::number_text::parse_percent;
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::value::number;

use crate::cli::json::JsonOption;
use crate::read::predict::PredictConfig;

const EXAMPLES: &str = "\
Examples:
  ringmark predict results/rack7 --bandwidth results/rack7_bandwidth --cases 8n8g,16n8g
      throughput and efficiency of larger cases, each as a range
  ringmark predict results/rack7 --efficiency-below 80%
      the first case whose efficiency is below 80 %
  ringmark predict results/rack7 --backtest
      the largest measured case, predicted from the others, and the error
  ringmark predict results/stores --strategy dist_sync --servers 4
      runs of a strategy with servers, as if four of them served every case
  ringmark predict --backtest
      the same for the rows that DLPerf published

Exit status 1: a measurement for a requested prediction is missing; the message names it; 2: a usage error.";

/// Options of `ringmark predict`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PredictOptions {
    /// Folder of a sweep, or of DLPerf's logs
    #[arg(value_name = "SWEEP", required_unless_present = "backtest")]
    sweep: Option<PathBuf>,
    /// Bandwidth result of the same hosts, for a narrower range
    ///
    /// Needs cases with two different numbers of hosts, such as 2n8g,4n8g. Strategies all-reduce and hsdp use all_reduce,
    /// shard-* all_gather and reduce_scatter; others use none.
    #[arg(long, value_name = "FOLDER", requires = "sweep")]
    bandwidth: Option<PathBuf>,
    /// Cases to predict, such as 8n8g
    ///
    /// Default: 2, 4 and 8 times the hosts of the largest measured case.
    #[arg(long, value_name = "CASE,..", value_delimiter = ',', requires = "sweep")]
    cases: Option<Vec<Case>>,
    /// Strategy to predict, if the sweep has several [default: all]
    ///
    /// Some cannot be predicted; the output names them. A case of 8 ranks per host needs a measured case of several hosts,
    /// such as 2n8g. hsdp also needs 1n8g; zero*, fsdp, device and nccl also 1n1g.
    #[arg(long, alias = "kv-store", value_name = "NAME", requires = "sweep", value_parser = keyword::<Strategy>())]
    strategy: Option<Strategy>,
    /// Servers to predict for, with --strategy dist_*
    ///
    /// Applies to --strategy dist_sync and dist_device_sync [default: as measured, one for each host or always the same
    /// number]
    #[arg(long, value_name = "N", requires = "sweep", conflicts_with = "backtest", value_parser = number(1..=65_536_u32))]
    servers: Option<u32>,
    /// Find the first case whose efficiency is below this, such as 80%
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    efficiency_below: Option<f64>,
    /// Predict the largest measured case from the others, and compare
    ///
    /// Without SWEEP, uses DLPerf's published rows.
    #[arg(long)]
    backtest: bool,
    /// First iterations to omit from each run [default: from the record]
    ///
    /// Without a record, the default is 20.
    #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX))]
    warmup: Option<u32>,
    /// Explain what the predictions are based on
    #[arg(long)]
    explain: bool,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

fn share(text: &str) -> Result<f64, String> {
    let share = parse_percent(text).or_else(|| text.parse().ok());
    share.filter(|share| *share > 0.0 && *share < 1.0).ok_or_else(|| match text.parse::<f64>() {
        Ok(percent) if percent > 1.0 && percent < 100.0 => format!("add the percent sign: {text}%"),
        _ => "choose 1% to 99%, such as 80%".to_owned(),
    })
}

impl PredictOptions {
    /// Converts the parsed options without further checks; reading the folder shows which cases can be predicted.
    pub fn into_config(self) -> PredictConfig {
        let PredictOptions { sweep, bandwidth, cases, strategy, servers, efficiency_below, backtest, warmup, .. } =
            self;
        let (is_explained, json) = (self.explain, self.json.into_json());
        PredictConfig {
            sweep,
            bandwidth,
            cases,
            strategy,
            servers,
            efficiency_below,
            backtest,
            warmup,
            is_explained,
            json,
        }
    }
}

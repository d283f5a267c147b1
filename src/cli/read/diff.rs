//! Options of `ringmark diff`.

use std::path::PathBuf;

use clap::Args;
use ringmark_core::number_text::parse_percent;
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::stats::comparison::Thresholds;

use crate::cli::json::JsonOption;
use crate::cli::read::price::PriceOption;
use crate::read::diff::{DiffConfig, DiffFormat, FailOn};

const EXAMPLES: &str = "\
Examples:
  ringmark diff results/before results/after
      two sweeps, case by case
  ringmark diff results/before results/after --fail-on slower,missing --json diff.json
      in CI: exit status 1 if a case is slower or missing
  ringmark diff results/old_result.json results/new --noise 3% --format markdown
      a JSON result and a folder, as Markdown for a pull request
  ringmark diff runs/nccl-2.27 runs/nccl-2.28
      folders of JSON files of nccl-tests (-J) or of PyTorch's DDP benchmark, each file a run

The verdict depends on where the whole 95 % interval lies: beyond the noise, within it, or neither. \
One run is one value: make 3 to 10 per side, alternating if the machine is shared.

Exit status 1: --fail-on found something, or runs were omitted; 2: the sides are not comparable, or a usage error.";

/// Options of `ringmark diff`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DiffOptions {
    /// Baseline: a folder of a sweep, score, bandwidth or checkpoint, or its NAME_result.json
    ///
    /// Also a folder of DLPerf's logs, of JSON files of nccl-tests or of PyTorch's DDP benchmark, or one such file.
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// Result to compare, of the same kind
    #[arg(value_name = "TEST")]
    test: PathBuf,
    /// Largest difference that counts as noise
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = noise)]
    noise: f64,
    /// Chance that an interval misses the true difference
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = significance)]
    significance: f64,
    /// Fail for these cases
    ///
    /// Exit status 1 if a case is slower, too noisy to decide, missing in TEST, or unreliable on either side.
    #[arg(
        long,
        value_name = "WHAT,..",
        value_delimiter = ',',
        value_parser = keyword::<FailOn>()
    )]
    fail_on: Vec<FailOn>,
    /// Compare results of different networks, devices or settings
    ///
    /// Otherwise different networks, devices, batch sizes, precisions and image sizes are refused.
    #[arg(long)]
    force: bool,
    /// List all settings: equal ones once, others with both values
    #[arg(long)]
    all_keys: bool,
    /// Price option.
    #[command(flatten)]
    price: PriceOption,
    /// Output format
    #[arg(long, default_value = "table", value_parser = keyword::<DiffFormat>())]
    format: DiffFormat,
    /// Explain the columns and verdicts
    #[arg(long)]
    explain: bool,
    /// JSON output option.
    #[command(flatten)]
    json: JsonOption,
}

impl DiffOptions {
    /// Converts the options without accessing the paths; their kind is detected from the content later.
    pub fn into_config(self) -> DiffConfig {
        let DiffOptions { base, test, noise, significance, fail_on, force, all_keys, price, format, explain, json } =
            self;
        DiffConfig {
            base,
            test,
            thresholds: Thresholds { significance, noise },
            force,
            all_keys,
            price: price.price,
            fail_on,
            format,
            is_explained: explain,
            json: json.into_json(),
        }
    }
}

fn noise(text: &str) -> Result<f64, String> {
    parse_percent(text)
        .filter(|noise| (0.0..=1.0).contains(noise))
        .ok_or_else(|| "choose 0% to 100%, such as 1.5%".to_owned())
}

fn significance(text: &str) -> Result<f64, String> {
    let chosen = parse_percent(text).filter(|significance| (1e-6..=0.5).contains(significance));
    chosen.ok_or_else(|| "choose 0.0001% to 50%, such as 1%".to_owned())
}

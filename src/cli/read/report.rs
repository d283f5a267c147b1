//! Options of `ringmark report`.

use std::path::PathBuf;

use clap::Args;
use ringmark_core::dimension::Seconds;
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::value::{number, seconds};

use crate::cli::json::JsonOption;
use crate::cli::launch::goodput::LONGEST_MTBF;
use crate::cli::read::price::PriceOption;
use crate::output::Destination;
use crate::read::report::{ReportConfig, ReportFormat};
use crate::read::show::page::document::Link;

const EXAMPLES: &str = "\
Examples:
  ringmark report results/rack7 -o report.html
      a self-contained page: charts, tables, warnings and environment
  ringmark report results/rack7 -o scaling.svg
      a chart of speed by case and the ideal, for a README
  ringmark report results/rack7
      tables with bars, for a terminal; --format markdown for a wiki
  ringmark report results/rack7 results/rack9 --published -o report.html
      two results side by side, with DLPerf's published row if its settings are the same
  ringmark report results/rack7 --link 'job log=https://cluster/job/7' -o report.html
      with a link under the title
  ringmark report results/rack7 results/rack7_bandwidth -o report.html --json report.json
      sweep and bandwidth on one page, and the figures as JSON
  ringmark report results/rack7_score --published -o report.html
      inference by network and batch size, next to MXNet's published figures
  ringmark report results/accept -o fleet.html
      hosts by speed and a matrix of the pairs, after ringmark accept
  ringmark report results/accept --drain-list
      the hosts to drain; FOLDER comes first
  ringmark report results/goodput --host-mtbf 200d --predict-hosts 64,1024
      goodput and best interval between checkpoints of hosts that fail every 200 days, after ringmark goodput

Exit status 1: figures are incomplete; the report and standard error list what is omitted and why.";

/// Options of `ringmark report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReportOptions {
    /// Folders of sweep, score, bandwidth, input, checkpoint or DLPerf's logs, or one of accept or goodput
    #[arg(value_name = "FOLDER", required = true)]
    folders: Vec<PathBuf>,
    /// File for the report [default: the standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Output format [default: by the name of FILE]
    ///
    /// .html, .svg, .md or .txt; without FILE a table.
    #[arg(long, value_parser = keyword::<ReportFormat>())]
    format: Option<ReportFormat>,
    /// Add published figures: DLPerf's of training, MXNet's of inference
    ///
    /// DLPerf's of the same network, precision and batch size on GPUs; MXNet's of the same networks.
    #[arg(long)]
    published: bool,
    /// Price option.
    #[command(flatten)]
    price: PriceOption,
    /// Link under the title, such as 'job log=https://..'; may be repeated
    ///
    /// URL may also be a file next to the page.
    #[arg(long, value_name = "TEXT=URL", value_parser = link)]
    link: Vec<Link>,
    /// First iterations to omit from each run [default: from the record]
    ///
    /// Without a record, the default is 20.
    #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX))]
    warmup: Option<u32>,
    /// Numbers of hosts to predict from a result of goodput
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = number(1..=1_000_000_u32))]
    predict_hosts: Option<Vec<u32>>,
    /// Mean time between failures of one host in these predictions, such as 200d
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=LONGEST_MTBF))]
    host_mtbf: Option<u64>,
    /// List the hosts to drain, from a result of accept, in FILE, or on the standard output instead of the report
    ///
    /// After a job of Slurm the lines are scontrol's commands that drain them, otherwise their names.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    drain_list: Option<PathBuf>,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

/// Parses `TEXT=URL`. Rejects `javascript:` and other schemes, because a page must not run scripts.
fn link(text: &str) -> Result<Link, String> {
    let (text, address) = text.split_once('=').ok_or("expected TEXT=URL, for example \"job log=https://..\"")?;
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_plain =
        scheme.as_deref().is_none_or(|scheme| ["http", "https", "mailto"].contains(&scheme) || scheme.contains('/'));
    if text.is_empty() || address.is_empty() || !is_plain {
        return Err("choose TEXT=URL with an http, https or mailto URL, or a path next to the page".to_owned());
    }
    Ok(Link { text: text.to_owned(), address: address.to_owned() })
}

impl ReportOptions {
    /// Converts the parsed options.
    pub fn into_config(self) -> ReportConfig {
        ReportConfig {
            format: self.format,
            folders: self.folders,
            out: self.out,
            warmup: self.warmup,
            published: self.published,
            price: self.price.price,
            links: self.link,
            predict_hosts: self.predict_hosts,
            host_mtbf: self.host_mtbf.map(|time| Seconds(time as f64)),
            drain_list: self.drain_list.map(Destination::from),
            json: self.json.into_json(),
        }
    }
}

//! Options of `ringmark bandwidth`.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::bail;
use clap::Args;
use ringmark_core::benchmark::bandwidth::BandwidthConfig;
use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::strategy;
use ringmark_core::dimension::{Case, Operation};
use ringmark_core::options::clap_binding::LauncherOptions;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::options::option_table::{self, Setting};
use ringmark_core::options::usage::usage;

use crate::cli::json::JsonOption;
use crate::cli::launch::axes::{CASES, cases_help, texts};
use crate::cli::launch::config_file::ConfigFileOptions;
use crate::cli::launch::hosts::{LaunchOptions, Machine};
use crate::cli::launch::servers::ServerOptions;
use crate::cli::launch::trace::TraceOption;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmarks::bandwidth::{self, BandwidthSweep};
use crate::launch::sweep::plan::reject_duplicates;

const BANDWIDTH_EXAMPLES: &str = "\
Examples:
  ringmark bandwidth
      8 bytes to 128 MB on this machine, nccl-tests' table
  ringmark bandwidth --hosts a:8,b:8 --interface ib0 -b 1M -e 1G -f 4 --min-busbw 40
      1n2g to 2n8g; exit status 1 if a case's average is below 40 GB/s
  ringmark bandwidth --op all_gather,reduce_scatter -b 1M -e 1G --cases 1n8g
      the tables of all_gather_perf and reduce_scatter_perf
  ringmark bandwidth --cases 1n8g --json | jq '.cases[0].average_busbw'
      prints one figure
  ringmark bandwidth --model resnet50_v1b --cases 1n2g --optimizer sgd
      the gradients of ResNet50-v1b in training's buckets, and the update: MXNet's measure.py
  ringmark bandwidth --network resnet --num-layers 200 --hosts a:8,b:8 --strategy dist_sync --servers 2
      the same with key-value servers: bytes on every link, errors by rank

Exit status 1: a case failed or was too slow, or the doctor found an error; 2: a usage error; 130: Ctrl-C.";

/// Options of `ringmark bandwidth`.
#[derive(Debug, Args)]
#[command(after_help = BANDWIDTH_EXAMPLES)]
pub struct BandwidthOptions {
    /// Options file. Must be the first field, because other fields consume the values that they parse.
    #[command(flatten)]
    config_file: ConfigFileOptions,
    /// Cases in the order in which they run.
    #[arg(long, value_name = "CASE,..", value_delimiter = ',', help = CASES, long_help = cases_help(DEFAULT_CASES))]
    cases: Option<Vec<Case>>,
    /// Operations to measure.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', help = OPERATIONS, long_help = operations_help())]
    op: Option<Vec<Operation>>,
    /// Launch options.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Folder for logs and records: CASE/bandwidth.log and CASE/bandwidth.json [default: results/TIME_bandwidth]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Options for servers.
    #[command(flatten)]
    servers: ServerOptions,
    /// JSON output option.
    #[command(flatten)]
    json: JsonOption,
    /// Trace option.
    #[command(flatten)]
    trace: TraceOption,
    /// Options passed to every rank.
    #[command(flatten)]
    bandwidth: LauncherOptions<BandwidthConfig>,
}

const DEFAULT_CASES: &str = "the default cases of `ringmark sweep` that have several ranks";

const OPERATIONS: &str = "Operations, such as all_reduce,all_gather [default: all_reduce]";

fn operations_help() -> String {
    let names = Operation::KEYWORDS.join(", ");
    format!("{OPERATIONS}\n\nNames of nccl-tests' programs, in the order of measurement: {names}")
}

impl BandwidthOptions {
    /// Fills in defaults and checks the options; inspects this machine only if its size determines a default.
    pub fn into_config(self) -> anyhow::Result<BandwidthSweep> {
        let config = self.bandwidth.apply(BandwidthConfig::default())?;
        let machine = Machine::read(config.device, self.launch.gpus());
        let mut launch = self.launch.into_config(&machine)?;
        let cases = self.cases.unwrap_or_else(|| bandwidth::default_cases(&launch.hosts, machine.kind(&launch)));
        reject_duplicates("--cases", &cases, "").map_err(usage)?;
        let operations = self.op.unwrap_or_else(|| vec![config.operation]);
        reject_duplicates("--op", &operations, "").map_err(usage)?;
        if !config.strategy.strategy.has_servers() {
            reject_single_ranks(&cases).map_err(usage)?;
        }
        let strategies = [config.strategy.strategy];
        self.servers.check(&strategies).and_then(|()| strategy::check_cases(&strategies, &cases)).map_err(usage)?;
        if let Messages::Gradients(model) = config.messages {
            // With `--arrays` there are fewer weights, which only the ranks can count.
            let of_case = |case: &Case| config.strategy.for_case(*case).check_model(model);
            cases.iter().try_for_each(of_case).map_err(usage)?;
        }
        for config in config.for_operations(&operations) {
            config.validate().map_err(usage)?;
            cases.iter().try_for_each(|case| config.validate_for(case.ranks())).map_err(usage)?;
        }
        machine.check_backend(&launch, &config.exchange)?;
        machine.check_binding(&launch, config.bind)?;
        let mut filled_in = vec![Setting::derived("cases", texts(&cases)), Setting::derived("op", texts(&operations))];
        filled_in.extend(option_table::filled_in(&config));
        launch.save_config = self.config_file.into_saved::<BandwidthConfig>("bandwidth", &launch.hosts, filled_in);
        launch.server_hosts = self.servers.server_hosts;
        let out = self.out.unwrap_or_else(|| results_folder::default_path("bandwidth", SystemTime::now()));
        let json = self.json.into_json();
        let is_traced = self.trace.into_is_traced(&config.trace)?;
        let device = machine.kind(&launch);
        Ok(BandwidthSweep { cases, operations, launch, out, json, is_traced, device, bandwidth: config })
    }
}

/// Rejects cases with a single rank, which would transfer nothing.
fn reject_single_ranks(cases: &[Case]) -> anyhow::Result<()> {
    match cases.iter().find(|case| case.ranks() == 1) {
        Some(case) => bail!(
            "case {case} has one rank, which exchanges nothing: choose 2n1g or 1n2g (on a host with one slot, add \
             --hosts localhost:2)"
        ),
        None => Ok(()),
    }
}

//! Options of `ringmark checkpoint`.

use std::path::{self, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;
use ringmark_core::benchmark::checkpoint::CheckpointConfig;
use ringmark_core::dimension::Case;
use ringmark_core::options::clap_binding::LauncherOptions;
use ringmark_core::options::option_table::{self, Setting};
use ringmark_core::options::usage::usage;

use crate::cli::launch::axes::texts;
use crate::cli::launch::axes::{CASES, cases_help};
use crate::cli::launch::config_file::ConfigFileOptions;
use crate::cli::launch::data;
use crate::cli::launch::hosts::{LaunchOptions, Machine};
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmarks::checkpoint::CheckpointRun;
use crate::launch::sweep::plan::reject_duplicates;

const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  ringmark checkpoint --folder /scratch
      GB/s, stall and restore time of ResNet50's checkpoint, written by rank 0 and in shards
  ringmark checkpoint --folder /share/ckpt --hosts a:8,b:8 --model gpt2 --optimizer adamw --writers rank-0,host,shards
      a language model with the state of AdamW, by writers
  ringmark checkpoint --folder /scratch --size 8G --writers shards --files 1,8 --io buffered,direct --cases 1n1g,1n8g
      one file or several, through the page cache or past it, on 1 and 8 GPUs
  ringmark checkpoint --folder /scratch --mode blocking,beside
      how long training would stall: waiting for the write, or computing during it

Exit status 1: it failed, or the doctor found an error; 2: a usage error, or --out is in use; 130: Ctrl-C.";

/// Options of `ringmark checkpoint`.
#[derive(Debug, Args)]
#[command(after_help = CHECKPOINT_EXAMPLES)]
pub struct CheckpointOptions {
    /// Options file. Must be the first field, because other fields consume the values that they parse.
    #[command(flatten)]
    config_file: ConfigFileOptions,
    /// Cases in the order in which they run.
    #[arg(long, value_name = "CASE,..", value_delimiter = ',', help = CASES)]
    #[arg(long_help = cases_help("all slots of all hosts"))]
    cases: Option<Vec<Case>>,
    /// Launch options.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Folder for logs and records: CASE/checkpoint.log and CASE/checkpoint.json [default: results/TIME_checkpoint]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Options passed to every rank.
    #[command(flatten)]
    checkpoint: LauncherOptions<CheckpointConfig>,
}

impl CheckpointOptions {
    /// Fills in defaults and checks the options.
    pub fn into_config(self) -> anyhow::Result<CheckpointRun> {
        let config = self.checkpoint.apply(CheckpointConfig::default())?;
        config.validate().map_err(usage)?;
        // Ranks on other hosts start in another folder.
        let folder = path::absolute(&config.folder).context("--folder").map_err(usage)?;
        let config = CheckpointConfig { folder, ..config };
        let machine = Machine::read(config.device, self.launch.gpus());
        let mut launch = self.launch.into_config(&machine)?;
        let cases = self.cases.unwrap_or_else(|| vec![launch.hosts.full_case()]);
        reject_duplicates("--cases", &cases, "").map_err(usage)?;
        cases.iter().try_for_each(|case| config.validate_for(case.ranks())).map_err(usage)?;
        machine.check_binding(&launch, config.bind)?;
        if !config.folder.is_dir() {
            let missing = format!(
                "--folder {} is not a folder on this machine: create it, or choose another",
                config.folder.display()
            );
            data::check_here(&machine, &launch, missing)?;
        }
        let mut filled_in = vec![Setting::derived("cases", texts(&cases))];
        filled_in.extend(option_table::filled_in(&config));
        launch.save_config = self.config_file.into_saved::<CheckpointConfig>("checkpoint", &launch.hosts, filled_in);
        let out = self.out.unwrap_or_else(|| results_folder::default_path("checkpoint", SystemTime::now()));
        Ok(CheckpointRun { cases, launch, out, checkpoint: config })
    }
}

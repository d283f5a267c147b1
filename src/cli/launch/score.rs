//! Options of `ringmark score`.

use std::path;

use clap::Args;
use ringmark_core::benchmark::score::ScoreConfig;
use ringmark_core::benchmark::{BenchmarkKind, SweepProfile};
use ringmark_core::dimension::{Case, Strategy};
use ringmark_core::file::run_name::Point;
use ringmark_core::options::clap_binding::LauncherOptions;
use ringmark_core::options::option_table;
use ringmark_core::options::usage::usage;

use crate::cli::launch::axes::{self, AxesOptions, AxisDefaults};
use crate::cli::launch::config_file::ConfigFileOptions;
use crate::cli::launch::hosts::{LaunchOptions, Machine};
use crate::cli::launch::trace;
use crate::launch::sweep::benchmarks::score::ScoreSweep;
use crate::launch::sweep::plan::BatchSizes;

const SCORE_EXAMPLES: &str = "\
Examples:
  ringmark score
      images/s of inference on this machine, batch 1 to 32, as MXNet's benchmark_score.py
  ringmark score --models resnet50_v1b,resnet18 --dtypes fp32,bf16 --batch-sizes 1,8,32
      two networks in two precisions
  ringmark score --batch-size 32 --cases 1n1g,1n8g --hosts a:8
      one GPU, then eight at the same time

Exit status 1: a run failed, or the doctor found an error; 2: a usage error, or --out is in use; 130: Ctrl-C.";

/// Batch sizes of MXNet's benchmark_score.py.
pub(super) const MXNET_BATCH_SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Options of `ringmark score`.
#[derive(Debug, Args)]
#[command(after_help = SCORE_EXAMPLES)]
pub struct ScoreOptions {
    /// Options from a file. The first field, because another field removes the values that it reads.
    #[command(flatten)]
    config_file: ConfigFileOptions,
    /// Axes of the sweep.
    #[command(flatten)]
    axes: AxesOptions,
    /// Hosts and launch options.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Options of every rank.
    #[command(flatten)]
    score: LauncherOptions<ScoreConfig>,
}

impl ScoreOptions {
    /// Fills in defaults and validates the options; inspects this machine only if a default depends on it.
    pub fn into_config(self) -> anyhow::Result<ScoreSweep> {
        let machine = Machine::read(self.score.apply(ScoreConfig::default())?.device, self.launch.gpus());
        let mut launch = self.launch.into_config(&machine)?;
        machine.query_first_host(&mut launch);
        let profile = self.axes.profile(&machine, &launch);
        let score = self.score.apply(ScoreConfig::for_profile(profile))?;
        machine.check_binding(&launch, score.bind)?;
        let score = ScoreConfig { init: score.init.map(path::absolute).transpose()?, ..score };
        let typed = self.score.typed("batch-size");
        let is_one_size = profile == SweepProfile::Quick || typed.is_some();
        let defaults = AxisDefaults {
            cases: |_, _| vec![Case::SINGLE],
            models: vec![score.model],
            dtype: score.dtype,
            sequence_length: (score.sequence_length, self.score.typed("sequence-length").is_some()),
            batch_sizes: match is_one_size {
                true => axes::one_batch_size(typed, score.batch_size),
                false => BatchSizes::Each(MXNET_BATCH_SIZES.to_vec()),
            },
            strategies: vec![Strategy::AllReduce],
            threads: score.threads,
            profile,
        };
        let mut sweep = self.axes.into_sweep(BenchmarkKind::Score, &machine, launch, defaults)?;
        // The length belongs to the axis, which networks of images do not have.
        let score = ScoreConfig { sequence_length: None, ..score };
        for Point { model, dtype, batch, .. } in sweep.axes.points() {
            ScoreConfig { model, dtype, ..score.with_batch(batch) }.validate().map_err(usage)?;
        }
        trace::check(sweep.trace_runs > 0, "--trace-runs 1", &score.trace).map_err(usage)?;
        let filled_in = axes::filled_in(&sweep, &machine, option_table::filled_in(&score));
        sweep.launch.save_config = self.config_file.into_saved::<ScoreConfig>("score", &sweep.launch.hosts, filled_in);
        Ok(ScoreSweep { sweep, score })
    }
}

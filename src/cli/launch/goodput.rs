//! Options of `ringmark goodput`.

use anyhow::{anyhow, ensure};
use clap::Args;
use ringmark_core::benchmark::train::{LearningConfig, LossKind, TrainConfig};
use ringmark_core::dimension::Seconds;
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::{number, seconds};

use crate::cli::json::JsonOption;
use crate::cli::launch::sweep::SweepOptions;
use crate::launch::local::environment::{set_command, typed_command};
use crate::launch::sweep::benchmarks::train::TrainSweep;
use crate::launch::sweep::goodput::{GoodputConfig, Interval};
use crate::launch::sweep::plan::{BatchSizes, reject_duplicates};
use crate::output::message::print_error;

const EXAMPLES: &str = "\
Examples:
  ringmark goodput --mtbf 10m --duration 30m --checkpoint-intervals 1m,5m,auto --hosts a:8,b:8
      one failure every 10 minutes on average: three runs of about half an hour, and the time that each loses
  ringmark goodput --mtbf 10m --duration 30m --checkpoint-mode async --hosts a:8,b:8
      the same with checkpoints that are written beside training, at the best interval
  ringmark goodput --mtbf 2m --duration 5m --failures kill --runs 2 --host-mtbf 200d --predict-hosts 64,1024
      on this machine, with killed processes only; also predicts 64 and 1024 hosts, each of which fails every 200 days

Exit status 1: a run failed; 2: a usage error; 130: Ctrl-C.";

/// Longest MTBF of a host: 100 years.
pub const LONGEST_MTBF: u64 = 100 * 365 * 86_400;

/// Time in seconds that finding a failure and restarting may take.
const LIKELY_RESTART: u64 = 30;

/// Default time between checkpoints: the best one.
const AUTO: &str = "auto";

/// Options of `ringmark goodput`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct GoodputOptions {
    /// Training. Must be the first field: see its first field.
    #[command(flatten)]
    sweep: SweepOptions,
    /// Mean time between failures of the whole job, such as 10m or 2h; failures are injected
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=31_536_000))]
    mtbf: u64,
    /// Training time of each interval, without the lost time
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = seconds(1..=31_536_000))]
    duration: u64,
    /// Times between checkpoints; auto is the best one for the measured costs (Daly)
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = AUTO, value_parser = interval)]
    checkpoint_intervals: Vec<Interval>,
    /// Kinds of failures, each as often as the others: kill (a process is killed), stop (it hangs), link (its connections
    /// are closed) [default: kill,stop; on several hosts also link]
    #[arg(long, value_name = "KIND,..", value_delimiter = ',', value_parser = keyword::<LossKind>())]
    failures: Option<Vec<LossKind>>,
    /// Seed of the times, ranks and kinds of failures: the same for all intervals
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(0..=u32::MAX))]
    failure_seed: u32,
    /// Numbers of hosts whose goodput is predicted
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [8, 64, 512])]
    #[arg(value_parser = number(1..=1_000_000_u32))]
    predict_hosts: Vec<u32>,
    /// Mean time between failures of one host in these predictions, such as 200d [default: --mtbf times the hosts]
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=LONGEST_MTBF))]
    host_mtbf: Option<u64>,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

impl GoodputOptions {
    /// Fills in defaults and checks the options.
    pub fn into_config(self) -> anyhow::Result<GoodputConfig> {
        let has_cases = self.sweep.has_cases();
        let mut train = self.sweep.into_config_with(with_checkpoints)?;
        if !has_cases {
            let axes = &mut train.sweep.axes;
            axes.cases = axes.cases.split_off(axes.cases.len() - 1);
        }
        check(&train).map_err(usage)?;
        let nodes = train.sweep.axes.cases[0].nodes;
        let usual = || LossKind::ALL.iter().copied().filter(|kind| nodes > 1 || *kind != LossKind::Link).collect();
        let kinds: Vec<LossKind> = self.failures.unwrap_or_else(usual);
        ensure!(
            nodes > 1 || !kinds.contains(&LossKind::Link),
            usage(anyhow!("--failures link needs several hosts: ranks of one host have no network between them"))
        );
        reject_duplicates("--failures", &kinds, "").map_err(usage)?;
        reject_duplicates("--checkpoint-intervals", &self.checkpoint_intervals, "").map_err(usage)?;
        if self.mtbf < LIKELY_RESTART {
            print_error(&format!(
                "warning: --mtbf {mtbf} s is shorter than many restarts take: most of the time is lost; --mtbf {mtbf}m is \
                 {mtbf} minutes",
                mtbf = self.mtbf
            ));
        }
        if self.duration < self.mtbf {
            print_error(&format!(
                "note: --duration {} s is shorter than --mtbf {} s: most runs will have no failure",
                self.duration, self.mtbf
            ));
        }
        if !typed_command().has("--out") {
            // For the command that resumes.
            set_command(typed_command().with("--out", &train.sweep.out));
        }
        Ok(GoodputConfig {
            train,
            mtbf: self.mtbf as u32,
            duration: Seconds(self.duration as f64),
            intervals: self.checkpoint_intervals,
            kinds,
            seed: self.failure_seed,
            hosts: self.predict_hosts,
            host_mtbf: self.host_mtbf.map(|time| Seconds(time as f64)),
            json: self.json.into_json(),
        })
    }
}

/// Turns checkpoints on, whose interval follows from their cost.
fn with_checkpoints(train: TrainConfig) -> anyhow::Result<TrainConfig> {
    ensure!(
        train.learning.checkpoint_every.is_none(),
        usage(anyhow!("--checkpoint-every is set by this command: use --checkpoint-intervals"))
    );
    let learning = LearningConfig { checkpoint_every: Some(1), ..train.learning };
    Ok(TrainConfig { learning, ..train })
}

/// Rejects settings of a sweep that this command sets, and more than one point.
fn check(TrainSweep { sweep, train, search, ddp_suite, .. }: &TrainSweep) -> anyhow::Result<()> {
    let own = [("--restarts", sweep.restarts.number > 0), ("--inject", train.inject.is_some())];
    let refused = own.iter().find(|(_, is_set)| *is_set);
    ensure!(refused.is_none(), "{} is set by this command: omit it", refused.map_or("", |(option, _)| option));
    let others = [
        ("--suite", *ddp_suite),
        ("--epochs", train.learning.epochs.is_some()),
        ("--autotune-over", !search.over.is_empty()),
        ("--trace-runs", sweep.trace_runs > 0),
        ("--repeat", !sweep.repeat.is_empty()),
        ("--save-config", sweep.launch.save_config.is_some()),
        ("--batch-size auto", matches!(sweep.axes.batch_sizes, BatchSizes::Largest { .. })),
    ];
    let refused = others.iter().find(|(_, is_set)| *is_set);
    ensure!(refused.is_none(), "goodput does not support {}: omit it", refused.map_or("", |(option, _)| option));
    let points = sweep.axes.points().len() * sweep.axes.cases.len();
    ensure!(
        points == 1,
        "goodput trains one network in one case, but these options have {points} combinations: choose one with --cases, \
         --model, --dtype, --batch-size and --strategy"
    );
    ensure!(sweep.axes.runs >= 2, "--runs 1 gives no interval of the costs: use at least 2");
    Ok(())
}

/// Parses a time between checkpoints.
fn interval(text: &str) -> Result<Interval, String> {
    if text == AUTO {
        return Ok(Interval::Best);
    }
    let parsed = seconds(1..=31_536_000)(text).map(|time| Interval::Time(Seconds(time as f64)));
    parsed.map_err(|error| format!("{error}, or auto"))
}

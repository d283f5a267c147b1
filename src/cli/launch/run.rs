//! Options of `ringmark run`.

use anyhow::{anyhow, ensure};
use clap::Args;
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::train::program::ProgramStart;
use ringmark_core::benchmark::train::{CommandLine, ProgramRun, TrainConfig};
use ringmark_core::dimension::{Case, DeviceKind, Model, Strategy, WorkUnit};
use ringmark_core::line::program::LineFormat;
use ringmark_core::options::clap_binding::LauncherOptions;
use ringmark_core::options::usage::usage;

use crate::cli::launch::axes::{AxesOptions, AxisDefaults};
use crate::cli::launch::hosts::{LaunchOptions, Machine};
use crate::launch::cluster::hosts::Hosts;
use crate::launch::sweep::benchmarks::train::TrainSweep;
use crate::launch::sweep::benchmarks::train_checks;
use crate::launch::sweep::plan::BatchSizes;
use crate::launch::sweep::trials::strategy_search::StrategySearch;
use crate::output::message::print_error;

const RUN_EXAMPLES: &str = "\
Examples:
  ringmark run --model gpt2-124m --global-batch 480 --sequence-length 1024 --lines nanogpt -- torchrun --nproc-per-node={ranks_per_host} train.py
      nanoGPT on one GPU and on all of this machine, several runs each; then extract, diff, report and predict
  ringmark run --hosts a:8,b:8 --cases 1n8g,2n8g --batch-size 64 --lines '(?P<ms>[0-9.]+) ms' -- python train.py --batch={batch}
      one process per GPU, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
  ringmark run --cases 1n4g --batch-size 32 --lines horovod -- horovodrun -np {ranks} python synthetic.py
      a program that starts the ranks itself

Exit status 1: a run failed, or the doctor found an error; 2: a usage error, or --out is in use; 130: Ctrl-C.";

/// Options of `ringmark run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunOptions {
    /// Axes of the sweep.
    #[command(flatten)]
    axes: AxesOptions,
    /// Launch options.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Options of the program's runs.
    #[command(flatten)]
    run: LauncherOptions<ProgramRun>,
    /// Program and its arguments; {ranks}, {rank}, {local_rank}, {ranks_per_host}, {nodes}, {node}, {hosts}, {master},
    /// {port}, {batch}, {global_batch}, {sequence_length}, {dtype}, {model}, {case}, {run} and {out} are replaced
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Returns one rank, and all slots of all hosts.
fn default_cases(hosts: &Hosts, _: DeviceKind) -> Vec<Case> {
    let mut cases = vec![Case::SINGLE, hosts.full_case()];
    cases.dedup();
    cases
}

/// Launchers that start one program per host, each with the options that connect several hosts.
const CONNECTED: [(&str, &str, &[&str]); 2] = [
    (
        "torchrun",
        "--nnodes={nodes} --node-rank={node} --master-addr={master} --master-port={port}",
        &["--nnodes", "--rdzv", "--master"],
    ),
    (
        "accelerate",
        "--num_machines={nodes} --machine_rank={node} --num_processes={ranks} --main_process_ip={master} \
         --main_process_port={port}",
        &["--num-machines", "--machine-rank", "--main-process", "--config-file"],
    ),
];

/// Rejects a program that starts all ranks itself with the same command in several cases, and a launcher of
/// [`CONNECTED`] on several hosts without their connection.
fn check_placeholders(command: &CommandLine, start: ProgramStart, cases: &[Case]) -> anyhow::Result<()> {
    let nodes = cases.iter().map(|case| case.nodes).max().unwrap_or(1);
    let cases = cases.len();
    let needed = match start {
        ProgramStart::Rank => return Ok(()),
        ProgramStart::Host => "{ranks_per_host}",
        ProgramStart::Job => "{ranks}",
    };
    let program = command.0.first().and_then(|program| program.rsplit('/').next());
    let launcher = CONNECTED.iter().find(|(launcher, ..)| nodes > 1 && program == Some(launcher));
    if let Some((launcher, connection, options)) = launcher {
        let is_typed = |option: &&str| command.0.iter().any(|word| word.replace('_', "-").starts_with(option));
        ensure!(
            options.iter().any(is_typed),
            "{launcher} connects several hosts only with {connection}: add them before the script"
        );
    }
    let has_ranks = ["{ranks", "{hosts}", "{case}"].iter().any(|name| command.0.iter().any(|word| word.contains(name)));
    ensure!(
        cases < 2 || has_ranks,
        "the command is the same in all {cases} cases, although one program per {start} starts their ranks: write \
         {needed} for their number, or choose one case with --cases"
    );
    Ok(())
}

impl RunOptions {
    /// Fills in defaults and checks the options; inspects this machine only if its size determines a default.
    pub fn into_config(self) -> anyhow::Result<TrainSweep> {
        let run = self.run.apply(ProgramRun::default())?;
        let typed = |name| self.run.typed(name).is_some();
        ensure!(
            typed("lines"),
            usage(anyhow!(
                "--lines is missing: the trainer that prints them ({}), or a regular expression such as '(?P<ms>[\\d.]+) ms'",
                LineFormat::names().join(", ")
            ))
        );
        let is_batch_given = typed("batch-size") || run.global_batch.is_some() || self.axes.has_batch_sizes();
        ensure!(
            is_batch_given,
            usage(anyhow!(
                "--batch-size is missing: give the images or sequences that the program computes per rank and iteration, \
                 or --global-batch"
            ))
        );
        let command = CommandLine(self.command);
        command.check().map_err(usage)?;
        let model = match (self.run.typed("model"), run.sequence_length) {
            (None, Some(_)) => Model::OtherTokens,
            _ => run.model,
        };
        let tokens = match (self.run.typed("model"), run.lines.unit()) {
            (None, Some(WorkUnit::Token)) => Some(format!("--lines {}", run.lines)),
            _ => (model.unit() == WorkUnit::Token).then(|| format!("--model {model}")),
        };
        let is_length_given = run.sequence_length.is_some() || self.axes.has_sequence_lengths();
        // The program has its own length, which the network's default need not be.
        if let Some(option) = tokens.filter(|_| !is_length_given) {
            return Err(usage(anyhow!("{option} needs --sequence-length: the tokens of a sequence")));
        }
        let machine = Machine::read(run.device, self.launch.gpus());
        let mut launch = self.launch.into_config(&machine)?;
        machine.query_first_host(&mut launch);
        machine.check_binding(&launch, run.bind)?;
        let profile = self.axes.profile(&machine, &launch);
        let defaults = AxisDefaults {
            cases: default_cases,
            models: vec![model],
            dtype: run.dtype,
            batch_sizes: match run.global_batch {
                Some(samples) => BatchSizes::Global(samples),
                None => BatchSizes::Each(vec![run.batch_size]),
            },
            sequence_length: (run.sequence_length, run.sequence_length.is_some()),
            strategies: vec![Strategy::AllReduce],
            threads: run.threads,
            profile,
        };
        let sweep = self.axes.into_sweep(BenchmarkKind::Train, &machine, launch, defaults)?;
        ensure!(sweep.trace_runs == 0, usage(anyhow!("--trace-runs needs ringmark's own step: omit it")));
        let start = if typed("start") { run.start } else { ProgramStart::usual(&command) };
        check_placeholders(&command, start, &sweep.axes.cases).map_err(usage)?;
        if !typed("dtype") {
            print_error(&format!("note: no --dtype is given: the program's precision is recorded as {}", run.dtype));
        }
        let train = ProgramRun { start, ..run }.into_train(command, typed("warmup"));
        // The length belongs to the axis, which networks of images do not have.
        let train = TrainConfig { sequence_length: None, ..train };
        let search = StrategySearch { over: Vec::new(), log: None };
        train_checks::check(&sweep, &train, &search, false)?;
        Ok(TrainSweep { sweep, ddp_suite: false, items: None, epoch_samples: None, train, search, part_of: None })
    }
}

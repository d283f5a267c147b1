//! Checks of a `ringmark sweep` before anything starts: combinations of axes and settings of which a run would fail, or
//! that have no run.

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_core::benchmark::strategy::{self, StrategyConfig};
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{DeviceChoice, Strategy};
use ringmark_core::file::run_name::{Point, RunName};
use ringmark_core::host::is_loopback;
use ringmark_core::options::usage::usage;

use crate::launch::sweep::axes_sweep::AxesSweep;
use crate::launch::sweep::plan::{Axes, BatchSizes, joined, reject_duplicates};
use crate::launch::sweep::suite;
use crate::launch::sweep::trials::strategy_search::{self, StrategySearch};

/// Checks the runs of a sweep; `ddp_suite` adds those of PyTorch's DDP suite.
pub fn check(sweep: &AxesSweep, train: &TrainConfig, search: &StrategySearch, ddp_suite: bool) -> anyhow::Result<()> {
    let strategies = strategy_search::all_strategies(&sweep.axes.strategies, &search.over);
    let device = if sweep.is_known_to_use_cpu { DeviceChoice::Cpu } else { train.device };
    for Point { model, dtype, batch, strategy } in sweep.axes.points() {
        let strategy = point_strategy(train, &strategies, strategy);
        TrainConfig { model, dtype, device, strategy, ..train.with_batch(batch) }.validate().map_err(usage)?;
    }
    let ranks = sweep.axes.cases.iter().map(|case| case.ranks()).max().unwrap_or_default();
    train.inject.map_or(Ok(()), |fault| fault.check(ranks)).map_err(usage)?;
    strategy::check_cases(&strategies, &sweep.axes.cases).map_err(usage)?;
    check_axes(sweep, train).map_err(usage)?;
    // Other hosts may have a file that this machine lacks.
    let is_here = sweep.launch.hosts.all().iter().all(|host| is_loopback(&host.name));
    if let Some(init) = train.init.as_ref().filter(|init| is_here && !init.exists()) {
        bail!(usage(anyhow!("--init {}: file not found: correct the path", init.display())));
    }
    for RunName { case, model, batch, strategy, .. } in sweep.axes.runs() {
        let is_searched = |other: &&Strategy| !sweep.axes.strategies.contains(other);
        for strategy in strategies.iter().filter(is_searched).chain([&strategy]) {
            let strategy = point_strategy(train, &strategies, *strategy).for_case(case);
            strategy.check_model(model).with_context(|| format!("{case} of {model}")).map_err(usage)?;
        }
        let of_case = TrainConfig { model, ..train.with_batch(batch) }.on_ranks(case.ranks());
        let of_case = of_case.with_context(|| format!("{case}")).map_err(usage)?;
        of_case.check_parts(of_case.batch_size).with_context(|| format!("{case}")).map_err(usage)?;
        if let Some(work_load) = &train.work_load {
            work_load.check(case.ranks(), of_case.batch_size).map_err(usage)?;
        }
    }
    check_search(sweep, train, search, ddp_suite).map_err(usage)?;
    if ddp_suite {
        suite::check(train).map_err(usage)?;
        let strategies = &sweep.axes.strategies;
        let what = "--suite ddp supports one strategy";
        let joined = joined(strategies, ",");
        let advice = format!("{what}, but --strategies has {joined}: choose one with --strategy");
        ensure!(strategies.len() <= 1, usage(anyhow!(advice)));
    }
    Ok(())
}

/// Rejects a warm-up that an epoch of `items` images does not contain; `None` without epochs.
pub fn check_epochs(sweep: &AxesSweep, train: &TrainConfig, items: Option<u64>) -> anyhow::Result<()> {
    let Some(items) = items else { return Ok(()) };
    let of_case = |ranks| train.with_epochs(train.epoch_steps(items, ranks)).check_warmup();
    sweep.axes.cases.iter().try_for_each(|case| of_case(case.ranks())).map_err(usage)
}

/// Returns the strategy options to check for a point. If none of `all` strategies has servers, server options are kept
/// so that they are rejected.
fn point_strategy(train: &TrainConfig, all: &[Strategy], strategy: Strategy) -> StrategyConfig {
    match all.iter().any(|strategy| strategy.has_servers()) {
        true => train.strategy.for_axis(strategy),
        false => StrategyConfig { strategy, ..train.strategy },
    }
}

/// Rejects a search over several points, and a search log that would contain one search per run.
fn check_search(
    sweep: &AxesSweep,
    train: &TrainConfig,
    search: &StrategySearch,
    ddp_suite: bool,
) -> anyhow::Result<()> {
    if let (Some(log), true) = (&search.log, search.over.is_empty()) {
        bail!(
            "--autotune-log {} records one search, but in a sweep with --autotune every run has its own, in its \
             record: add --autotune-over, or log one run with ringmark-worker train --autotune --autotune-log FILE",
            log.display()
        );
    }
    if search.over.is_empty() {
        return Ok(());
    }
    let Axes { models, dtypes, batch_sizes, strategies, .. } = &sweep.axes;
    strategy_search::reject_several_values(&[
        ("--suite ddp", ddp_suite),
        ("all --models but one", models.len() > 1),
        ("all --dtypes but one", dtypes.len() > 1),
        ("all --batch-sizes but one", batch_sizes.has_several()),
        ("--batch-size auto", matches!(batch_sizes, BatchSizes::Largest { .. })),
        ("--strategies, and name those to be tried by --autotune-over strategy=..,", strategies.len() > 1),
    ])?;
    search.check(train, &sweep.axes.cases)
}

/// Rejects several strategies if only one is possible, a strategy without runs, and a batch size that no trial can find.
fn check_axes(sweep: &AxesSweep, train: &TrainConfig) -> anyhow::Result<()> {
    let Axes { strategies, cases, batch_sizes, .. } = &sweep.axes;
    reject_duplicates("--strategies", strategies, "")?;
    let has_runs = |strategy: &Strategy| cases.iter().any(|case| !sweep.axes.is_left_to_all_reduce(*strategy, *case));
    if let Some(strategy) = strategies.iter().find(|strategy| !has_runs(strategy)) {
        bail!(
            "--strategies {} with --cases {}: one rank exchanges nothing and runs as all-reduce, so {strategy} would \
             have no run: add a case of several ranks, or omit all-reduce",
            joined(strategies, ","),
            joined(cases, ",")
        );
    }
    ensure!(
        train.micro_batch.is_none() || !matches!(batch_sizes, BatchSizes::Largest { .. }),
        "--batch-size auto finds the largest batch whose activations fit into memory, but with --micro-batch those of \
         any batch do: give --batch-size a number, or omit --micro-batch"
    );
    ensure!(
        strategies.len() == 1 || !matches!(batch_sizes, BatchSizes::Largest { .. }),
        "--batch-size auto finds the largest batch of one strategy, but --strategies has {}: choose one with \
         --strategy, or give --batch-size a number",
        joined(strategies, ",")
    );
    Ok(())
}

//! Checks of a `ringmark sweep` before anything starts: combinations of axes and settings of which a run would fail, or
//! that have no run.

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_core::benchmark::kv_store::{self, KvStoreConfig};
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{DeviceChoice, KvStore};
use ringmark_core::file::run_name::{Point, RunName};
use ringmark_core::options::usage::usage;

use crate::launch::sweep::axes_sweep::AxesSweep;
use crate::launch::sweep::plan::{Axes, BatchSizes, joined, reject_duplicates};
use crate::launch::sweep::suite;
use crate::launch::sweep::trials::strategy_search::{self, StrategySearch};

/// Checks the runs of a sweep; `ddp_suite` adds those of PyTorch's DDP suite.
pub fn check(sweep: &AxesSweep, train: &TrainConfig, search: &StrategySearch, ddp_suite: bool) -> anyhow::Result<()> {
    let kv_stores = strategy_search::all_kv_stores(&sweep.axes.kv_stores, &search.over);
    let device = if sweep.is_known_to_use_cpu { DeviceChoice::Cpu } else { train.device };
    for Point { model, dtype, batch, kv_store } in sweep.axes.points() {
        let kv_store = point_kv_store(train, &kv_stores, kv_store);
        TrainConfig { model, dtype, device, kv_store, ..train.with_batch(batch) }.validate().map_err(usage)?;
    }
    let ranks = sweep.axes.cases.iter().map(|case| case.ranks()).max().unwrap_or_default();
    train.inject.map_or(Ok(()), |fault| fault.check(ranks)).map_err(usage)?;
    kv_store::check_cases(&kv_stores, &sweep.axes.cases).map_err(usage)?;
    check_axes(sweep, train).map_err(usage)?;
    // Other hosts may have a file that this machine lacks.
    let is_here = sweep.launch.hosts.all().iter().all(|host| host.name == "localhost");
    if let Some(init) = train.init.as_ref().filter(|init| is_here && !init.exists()) {
        bail!(usage(anyhow!("--init {}: file not found: correct the path", init.display())));
    }
    for RunName { case, model, batch, kv_store, .. } in sweep.axes.runs() {
        let is_searched = |other: &&KvStore| !sweep.axes.kv_stores.contains(other);
        for kv_store in kv_stores.iter().filter(is_searched).chain([&kv_store]) {
            let kv_store = point_kv_store(train, &kv_stores, *kv_store).for_case(case);
            kv_store.check_model(model).with_context(|| format!("{case} of {model}")).map_err(usage)?;
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
        let kv_stores = &sweep.axes.kv_stores;
        let what = "--suite ddp supports one strategy";
        let joined = joined(kv_stores, ",");
        let advice = format!("{what}, but --strategies has {joined}: choose one with --strategy");
        ensure!(kv_stores.len() <= 1, usage(anyhow!(advice)));
    }
    Ok(())
}

/// Rejects a warm-up that an epoch of `items` images does not contain; `None` without epochs.
pub fn check_epochs(sweep: &AxesSweep, train: &TrainConfig, items: Option<u64>) -> anyhow::Result<()> {
    let Some(items) = items else { return Ok(()) };
    let of_case = |ranks| train.with_epochs(train.epoch_steps(items, ranks)).check_warmup();
    sweep.axes.cases.iter().try_for_each(|case| of_case(case.ranks())).map_err(usage)
}

/// Returns the kv-store options to check for a point. If none of `all` kv-stores has servers, server options are kept
/// so that they are rejected.
fn point_kv_store(train: &TrainConfig, all: &[KvStore], kv_store: KvStore) -> KvStoreConfig {
    match all.iter().any(|kv_store| kv_store.has_servers()) {
        true => train.kv_store.for_axis(kv_store),
        false => KvStoreConfig { kv_store, ..train.kv_store },
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
    let Axes { models, dtypes, batch_sizes, kv_stores, .. } = &sweep.axes;
    strategy_search::reject_several_values(&[
        ("--suite ddp", ddp_suite),
        ("all --models but one", models.len() > 1),
        ("all --dtypes but one", dtypes.len() > 1),
        ("all --batch-sizes but one", batch_sizes.has_several()),
        ("--batch-size auto", matches!(batch_sizes, BatchSizes::Largest { .. })),
        ("--strategies, and name those to be tried by --autotune-over strategy=..,", kv_stores.len() > 1),
    ])?;
    search.check(train, &sweep.axes.cases)
}

/// Rejects several kv-stores if only one is possible, a kv-store without runs, and a batch size that no trial can find.
fn check_axes(sweep: &AxesSweep, train: &TrainConfig) -> anyhow::Result<()> {
    let Axes { kv_stores, cases, batch_sizes, .. } = &sweep.axes;
    reject_duplicates("--strategies", kv_stores, "")?;
    let has_runs = |kv_store: &KvStore| cases.iter().any(|case| !sweep.axes.is_left_to_ring(*kv_store, *case));
    if let Some(kv_store) = kv_stores.iter().find(|kv_store| !has_runs(kv_store)) {
        bail!(
            "--strategies {} with --cases {}: one rank exchanges nothing and runs as ring, so {kv_store} would have no \
             run: add a case of several ranks, or omit ring",
            joined(kv_stores, ","),
            joined(cases, ",")
        );
    }
    ensure!(
        train.micro_batch.is_none() || !matches!(batch_sizes, BatchSizes::Largest { .. }),
        "--batch-size auto finds the largest batch whose activations fit into memory, but with --micro-batch those of \
         any batch do: give --batch-size a number, or omit --micro-batch"
    );
    ensure!(
        kv_stores.len() == 1 || !matches!(batch_sizes, BatchSizes::Largest { .. }),
        "--batch-size auto finds the largest batch of one strategy, but --strategies has {}: choose one with \
         --strategy, or give --batch-size a number",
        joined(kv_stores, ",")
    );
    Ok(())
}

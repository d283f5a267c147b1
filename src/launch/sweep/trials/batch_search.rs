//! `--batch-size auto`: finds the largest batch size that fits into the memory of a device, for each network and
//! precision, by trial jobs. It is doubled until a trial runs out of memory, then bisected.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;

use anyhow::bail;
use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::{BatchShape, BatchSize, Bytes, Case, Dtype, Model, Strategy};
use ringmark_core::file::run_name::{BATCH_SIZE_TRIALS, RunName};

use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::sweep::axes_sweep::{AxesSweep, files_in};
use crate::launch::sweep::benchmark::PlanContext;
use crate::launch::sweep::ledger;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::plan::{BATCH_SIZES_THAT_FIT, BatchSizes};
use crate::launch::sweep::trials::{PlanTrial, TrialJob};
use crate::output::message::Printer;

/// Largest batch size that is tried.
const MAX_BATCH_SIZE: u32 = 65_536;

/// The search ends when the largest batch size that fits is known to one part in this many.
const SEARCH_PRECISION: u32 = 32;

/// Memory of a host that the chosen batch size leaves free compared with its trial. The allocator requests memory in
/// pieces of 32 MiB, and no two runs request exactly the same number.
const MEMORY_RESERVE: Bytes = Bytes(64 << 20);

/// Iterations of a trial, including one of warm-up: the second uses all memory of a step, including the momentum.
pub const ITERATIONS: u32 = 2;

/// Replaces `--batch-size auto` in the sweep by the batch sizes found by an earlier session, or by trials now. A dry
/// run tries nothing.
pub fn resolved<R: Record>(
    sweep: &AxesSweep,
    kind: BenchmarkKind,
    job: PlanTrial,
    live: &Live,
) -> anyhow::Result<AxesSweep> {
    let BatchSizes::Largest { first, .. } = sweep.axes.batch_sizes else { return Ok(sweep.clone()) };
    let printer = Printer { mark: "", to_error: false };
    if sweep.launch.dry_run {
        let first = BatchSizes::Default(first).texts(&sweep.axes.models).join(" or ");
        printer.line(&format!("# --batch-size auto: commands with batch size {first}, the first to be tried"));
        return Ok(sweep.clone());
    }
    let mut found = match sweep.resume {
        false => {
            ledger::reject_used_folder(&sweep.out, true)?;
            BTreeMap::new()
        }
        true => match ledger::find(&sweep.out)?.conditions.options.get(BATCH_SIZES_THAT_FIT) {
            Some(text) => BatchSizes::parse_found(text)?,
            // It was started with other batch sizes, which the session reports.
            None => return Ok(sweep.clone()),
        },
    };
    let points = sweep.axes.points();
    let points = points.iter().map(|point| ((point.model, point.dtype), point.batch.size.number()));
    // `ringmark sweep` requires exactly one strategy here.
    let strategy = sweep.axes.strategies.first().copied().unwrap_or(Strategy::AllReduce);
    let mut is_first = true;
    for ((model, dtype), first) in points.collect::<BTreeMap<_, u32>>() {
        if found.contains_key(&(model, dtype)) {
            continue;
        }
        let case = densest_case(&sweep.axes.cases);
        let search = BatchSearch::<R> { sweep, kind, job, live, model, dtype, strategy, case, record: PhantomData };
        let batch_size = search.run(first, &mut is_first, printer)?;
        found.insert((model, dtype), batch_size);
    }
    let mut sweep = sweep.clone();
    sweep.axes.batch_sizes = BatchSizes::Largest { found, first };
    Ok(sweep)
}

/// Returns the case with the least memory per rank: the most ranks on a host, and no more hosts than necessary.
fn densest_case(cases: &[Case]) -> Case {
    let densest = cases.iter().max_by_key(|case| (case.gpus_per_node, std::cmp::Reverse(case.nodes)));
    densest.copied().unwrap_or(Case::SINGLE)
}

/// Search for one network and precision.
struct BatchSearch<'a, R> {
    sweep: &'a AxesSweep,
    kind: BenchmarkKind,
    job: PlanTrial<'a>,
    live: &'a Live,
    model: Model,
    dtype: Dtype,
    strategy: Strategy,
    case: Case,
    record: PhantomData<R>,
}

impl<R: Record> BatchSearch<'_, R> {
    fn run(&self, first: u32, is_first: &mut bool, printer: Printer) -> anyhow::Result<u32> {
        let title = format!("{} {} {}", self.case, self.model, self.dtype);
        printer.line(&format!("{title}: searching for the largest batch size that fits"));
        let mut bisection = Bisection::default();
        while let Some(batch_size) = bisection.next(first) {
            // The network that joins the hosts is determined by the doctor, again for each session.
            let doctor = self.sweep.launch.doctor && (*is_first || self.case.nodes > 1);
            *is_first = false;
            bisection.record(batch_size, self.fits(batch_size, doctor)?);
        }
        let (Some(fits), Some(batch_size)) = (bisection.fits, bisection.answer(self.image_memory(first)?)) else {
            bail!(
                "{title}: batch size 1 does not fit in memory: choose a smaller network or --image-size, or fewer \
                 ranks per host"
            )
        };
        let above = bisection.too_large.map(|too_large| format!(" and {too_large} does not")).unwrap_or_default();
        let why = if batch_size < fits { "; reduced, because runs may need slightly more memory" } else { "" };
        printer.line(&format!("{title}: batch size {batch_size}: {fits} fits{above}{why}"));
        Ok(batch_size)
    }

    fn folder(&self) -> PathBuf {
        self.sweep.out.join(BATCH_SIZE_TRIALS)
    }

    fn name(&self, batch_size: u32) -> RunName {
        let BatchSearch { case, model, dtype, strategy, .. } = *self;
        let sequence_length = self.sweep.axes.lengths_of(model).into_iter().flatten().next();
        let batch = BatchShape { size: BatchSize::PerRank(batch_size), sequence_length };
        RunName { baseline: false, case, model, batch, dtype, strategy, run: 1 }
    }

    /// Returns the memory of a host that one image needs, independent of the batch size; `None` on GPUs.
    fn image_memory(&self, batch_size: u32) -> anyhow::Result<Option<Bytes>> {
        let (run, environment) = (self.name(batch_size), LaunchEnvironment::read());
        let context = PlanContext { environment: &environment, resumed: None, is_restart: false };
        let plan = (self.job)(run, files_in(&self.folder(), run)?, context);
        Ok(plan.cost.on_cpu.map(|cost| cost.memory.of_sample))
    }

    fn fits(&self, batch_size: u32, doctor: bool) -> anyhow::Result<bool> {
        let trial = TrialJob::<R, ()> {
            kind: self.kind,
            title: format!("trial of batch size {batch_size}"),
            run: self.name(batch_size),
            out: &self.folder(),
            job: self.job,
            figures: &|_| Ok(()),
            sentence: |()| "fits".to_owned(),
            live: self.live,
        };
        let launch = LaunchConfig { doctor, ..self.sweep.launch.clone() };
        Ok(trial.run(&launch)?.is_some())
    }
}

/// State of the search for the largest batch size that fits.
#[derive(Debug, Default)]
struct Bisection {
    /// Largest batch size that fit.
    fits: Option<u32>,
    /// Smallest batch size that ran out of memory.
    too_large: Option<u32>,
}

impl Bisection {
    /// Returns the batch size to try next, starting with `first`; `None` if the answer is known.
    fn next(&self, first: u32) -> Option<u32> {
        match (self.fits, self.too_large) {
            (None, None) => Some(first),
            (Some(fits), None) => (fits < MAX_BATCH_SIZE).then(|| fits.saturating_mul(2).min(MAX_BATCH_SIZE)),
            (None, Some(too_large)) => (too_large > 1).then_some(too_large / 2),
            (Some(fits), Some(too_large)) => {
                (too_large - fits > (fits / SEARCH_PRECISION).max(1)).then(|| fits + (too_large - fits) / 2)
            }
        }
    }

    fn record(&mut self, batch_size: u32, fits: bool) {
        *if fits { &mut self.fits } else { &mut self.too_large } = Some(batch_size);
    }

    /// Returns the batch size of the runs. `image_memory` is the memory of a host that one image needs.
    ///
    /// A batch size that just fit may not fit again. The result is therefore lower than the largest that fit by a
    /// multiple of the search's last step: enough of them to leave [`MEMORY_RESERVE`] free, at least one if a step is no
    /// more than a part, and never below half of it.
    fn answer(&self, image_memory: Option<Bytes>) -> Option<u32> {
        let fits = self.fits?;
        let Some(step) = self.too_large.map(|too_large| too_large - fits) else { return Some(fits) };
        let one_step = if step <= fits / SEARCH_PRECISION { step } else { 0 };
        let spare = image_memory.map_or(0, |image_memory| MEMORY_RESERVE.0.div_ceil(image_memory.0.max(1)));
        let spare = u32::try_from(spare).unwrap_or(u32::MAX).max(one_step);
        Some(fits - step * spare.div_ceil(step).min(fits / 2 / step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the batch sizes tried if `capacity` images fit, and the answer.
    fn tried(first: u32, capacity: u32) -> (Vec<u32>, Option<u32>) {
        let (mut bisection, mut tried) = (Bisection::default(), Vec::new());
        while let Some(batch_size) = bisection.next(first) {
            tried.push(batch_size);
            bisection.record(batch_size, batch_size <= capacity);
        }
        (tried, bisection.answer(None))
    }

    #[test]
    fn search_doubles_then_bisects() {
        assert_eq!(tried(8, 50), (vec![8, 16, 32, 64, 48, 56, 52, 50, 51], Some(49)));
        assert_eq!(tried(8, 3), (vec![8, 4, 2, 3], Some(3)));
        assert_eq!(tried(8, 0), (vec![8, 4, 2, 1], None));
        assert_eq!(tried(60_000, MAX_BATCH_SIZE), (vec![60_000, 65_536], Some(65_536)));
        for capacity in 1..3000 {
            let (tried, found) = tried(128, capacity);
            let found = found.expect("one fits");
            // One step below the largest that fits, which is known to within a step.
            assert!(
                found <= capacity && capacity - found <= (2 * capacity / SEARCH_PRECISION).max(1),
                "{capacity}: \
                 {found}"
            );
            assert!(tried.len() <= 15, "{capacity}: {tried:?}");
            assert!(capacity < SEARCH_PRECISION || found < capacity, "{capacity}: {found}");
        }
    }

    #[test]
    fn search_leaves_a_memory_reserve() {
        let answer =
            |fits, too_large, image_memory: u64| Bisection { fits, too_large }.answer(Some(Bytes(image_memory)));
        // 20 images need slightly more than 64 MiB.
        assert_eq!(answer(Some(376), Some(384), 3_400_000), Some(352));
        // Images that are very large, and so small that no number of them suffices.
        assert_eq!(answer(Some(3), Some(4), 100_000_000), Some(2));
        assert_eq!(answer(Some(1), Some(2), 100_000_000), Some(1));
        assert_eq!(answer(Some(728), Some(744), 10_000), Some(376));
        assert_eq!(answer(Some(MAX_BATCH_SIZE), None, 10_000), Some(MAX_BATCH_SIZE));
        assert_eq!(answer(None, Some(1), 10_000), None);
    }

    #[test]
    fn trials_use_the_densest_case() {
        let case = |list: &str| {
            let cases: Vec<Case> = list.split(',').map(|case| case.parse().expect("a case")).collect();
            densest_case(&cases).to_string()
        };
        assert_eq!(case("1n1g,1n8g,2n8g,4n8g"), "1n8g");
        assert_eq!(case("2n4g,1n2g"), "2n4g");
    }
}

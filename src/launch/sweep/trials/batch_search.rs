//! `--batch-size auto`: the largest batch that the memory of a device holds, of each network and precision, by trial jobs:
//! doubled until one has no memory, then by bisection. Not for a sweep's own runs.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::path::PathBuf;

use anyhow::bail;
use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::{Bytes, Case, Dtype, KvStore, Model};
use ringmark_core::file::run_name::{BATCH_SIZE_TRIALS, RunName};

use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::print::Printer;
use crate::launch::sweep::axes_sweep::{AxesSweep, files_in};
use crate::launch::sweep::benchmark::PlanContext;
use crate::launch::sweep::ledger;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::plan::{BATCH_SIZES_THAT_FIT, BatchSizes};
use crate::launch::sweep::trials::{JobOfTrial, TrialJob};

/// Largest batch size that there is.
const LARGEST: u32 = 65_536;

/// The search ends when the largest batch that fits is known to one part in so many.
const PARTS: u32 = 32;

/// What the runs of a batch size leave of a host's memory that its trial took: the allocator takes it in pieces of 32 MiB, and
/// no run takes exactly as many as another.
const SPARE: Bytes = Bytes(64 << 20);

/// Iterations of a trial, the first of which warms up: the second has all memory of a step, the momentum's included.
pub const ITERATIONS: u32 = 2;

/// The same sweep with the batch sizes that were found, by an earlier session or by trials now, where it asks for them. A
/// dry run tries nothing.
pub fn resolved<R: Record>(
    sweep: &AxesSweep,
    kind: BenchmarkKind,
    job: JobOfTrial,
    live: &Live,
) -> anyhow::Result<AxesSweep> {
    let BatchSizes::Largest { first, .. } = sweep.axes.batch_sizes else { return Ok(sweep.clone()) };
    let printer = Printer { mark: "", to_error: false };
    if sweep.launch.dry_run {
        printer.line(&format!("# --batch-size auto: these are of batch size {first}, where the trials begin"));
        return Ok(sweep.clone());
    }
    let mut found = match sweep.resume {
        false => {
            ledger::refuse_used_folder(&sweep.out)?;
            BTreeMap::new()
        }
        true => match ledger::find(&sweep.out)?.conditions.options.get(BATCH_SIZES_THAT_FIT) {
            Some(text) => BatchSizes::parse_found(text)?,
            // It was begun with other batch sizes, which the session says.
            None => return Ok(sweep.clone()),
        },
    };
    let points: BTreeSet<(Model, Dtype)> = sweep.axes.points().iter().map(|point| (point.model, point.dtype)).collect();
    // Of one alone, which `ringmark sweep` demands here.
    let kv_store = sweep.axes.kv_stores.first().copied().unwrap_or(KvStore::Ring);
    let mut is_first = true;
    for (model, dtype) in points {
        if found.contains_key(&(model, dtype)) {
            continue;
        }
        let case = case_of(&sweep.axes.cases);
        let search = BatchSearch::<R> { sweep, kind, job, live, model, dtype, kv_store, case, record: PhantomData };
        let batch_size = search.run(first, &mut is_first, printer)?;
        found.insert((model, dtype), batch_size);
    }
    let mut sweep = sweep.clone();
    sweep.axes.batch_sizes = BatchSizes::Largest { found, first };
    Ok(sweep)
}

/// Where ranks have the least memory: most of them on a host, and no more hosts than that needs.
fn case_of(cases: &[Case]) -> Case {
    let densest = cases.iter().max_by_key(|case| (case.gpus_per_node, std::cmp::Reverse(case.nodes)));
    densest.copied().unwrap_or(Case::SINGLE)
}

/// Of one network and precision.
struct BatchSearch<'a, R> {
    sweep: &'a AxesSweep,
    kind: BenchmarkKind,
    job: JobOfTrial<'a>,
    live: &'a Live,
    model: Model,
    dtype: Dtype,
    kv_store: KvStore,
    case: Case,
    record: PhantomData<R>,
}

impl<R: Record> BatchSearch<'_, R> {
    fn run(&self, first: u32, is_first: &mut bool, printer: Printer) -> anyhow::Result<u32> {
        let title = format!("{} {} {}", self.case, self.model, self.dtype);
        printer.line(&format!("{title}: looking for the largest batch size that fits"));
        let mut bisection = Bisection::default();
        while let Some(batch_size) = bisection.next(first) {
            // Which network joins the hosts the doctor finds for each session anew.
            let doctor = self.sweep.launch.doctor && (*is_first || self.case.nodes > 1);
            *is_first = false;
            bisection.take(batch_size, self.fits(batch_size, doctor)?);
        }
        let (Some(fits), Some(batch_size)) = (bisection.fits, bisection.answer(self.of_image(first)?)) else {
            bail!(
                "{title}: batch size 1 has no memory: choose a smaller network or --image-size, or fewer ranks on a host"
            )
        };
        let above = bisection.lacks.map(|lacks| format!(" and {lacks} does not")).unwrap_or_default();
        let why = if batch_size < fits { ", and a run may take a little more memory than its trial" } else { "" };
        printer.line(&format!("{title}: batch size {batch_size}: {fits} fits{above}{why}"));
        Ok(batch_size)
    }

    fn folder(&self) -> PathBuf {
        self.sweep.out.join(BATCH_SIZE_TRIALS)
    }

    fn name(&self, batch_size: u32) -> RunName {
        let BatchSearch { case, model, dtype, kv_store, .. } = *self;
        RunName { baseline: false, case, model, batch_size, dtype, kv_store, run: 1 }
    }

    /// What an image takes of a host's memory, whatever the batch size; `None` on GPUs.
    fn of_image(&self, batch_size: u32) -> anyhow::Result<Option<Bytes>> {
        let (run, environment) = (self.name(batch_size), LaunchEnvironment::read());
        let context = PlanContext { environment: &environment, begun: None };
        let plan = (self.job)(run, files_in(&self.folder(), run)?, context);
        Ok(plan.cost.on_cpu.map(|cost| cost.memory.of_image))
    }

    /// Whether a job with this batch size has enough memory.
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

/// What is known of the largest batch that fits.
#[derive(Debug, Default)]
struct Bisection {
    /// The largest that fitted.
    fits: Option<u32>,
    /// The smallest that had no memory.
    lacks: Option<u32>,
}

impl Bisection {
    /// The batch size to try next, of which `first` is the first; `None` where the answer is known.
    fn next(&self, first: u32) -> Option<u32> {
        match (self.fits, self.lacks) {
            (None, None) => Some(first),
            (Some(fits), None) => (fits < LARGEST).then(|| fits.saturating_mul(2).min(LARGEST)),
            (None, Some(lacks)) => (lacks > 1).then_some(lacks / 2),
            (Some(fits), Some(lacks)) => (lacks - fits > (fits / PARTS).max(1)).then(|| fits + (lacks - fits) / 2),
        }
    }

    fn take(&mut self, batch_size: u32, fits: bool) {
        *if fits { &mut self.fits } else { &mut self.lacks } = Some(batch_size);
    }

    /// The batch size of the runs, where an image takes so much of a host's memory: what fitted by a hair may not fit again.
    /// So many of the search's last steps below the largest that fitted that [`SPARE`] is left, and one where that costs no
    /// more than a part, but no less than half of it.
    fn answer(&self, of_image: Option<Bytes>) -> Option<u32> {
        let fits = self.fits?;
        let Some(step) = self.lacks.map(|lacks| lacks - fits) else { return Some(fits) };
        let one_step = if step <= fits / PARTS { step } else { 0 };
        let spare = of_image.map_or(0, |of_image| SPARE.0.div_ceil(of_image.0.max(1)));
        let spare = u32::try_from(spare).unwrap_or(u32::MAX).max(one_step);
        Some(fits - step * spare.div_ceil(step).min(fits / 2 / step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batch sizes that are tried where `room` images fit, and what comes of it.
    fn tried(first: u32, room: u32) -> (Vec<u32>, Option<u32>) {
        let (mut bisection, mut tried) = (Bisection::default(), Vec::new());
        while let Some(batch_size) = bisection.next(first) {
            tried.push(batch_size);
            bisection.take(batch_size, batch_size <= room);
        }
        (tried, bisection.answer(None))
    }

    #[test]
    fn the_search_doubles_and_then_halves() {
        assert_eq!(tried(8, 50), (vec![8, 16, 32, 64, 48, 56, 52, 50, 51], Some(49)));
        assert_eq!(tried(8, 3), (vec![8, 4, 2, 3], Some(3)));
        assert_eq!(tried(8, 0), (vec![8, 4, 2, 1], None));
        assert_eq!(tried(60_000, LARGEST), (vec![60_000, 65_536], Some(65_536)));
        for room in 1..3000 {
            let (tried, found) = tried(128, room);
            let found = found.expect("one fits");
            // A step below the largest that fits, which is known to a step.
            assert!(found <= room && room - found <= (2 * room / PARTS).max(1), "{room}: {found}");
            assert!(tried.len() <= 15, "{room}: {tried:?}");
            assert!(room < PARTS || found < room, "{room}: {found}");
        }
    }

    #[test]
    fn the_runs_leave_what_another_run_may_take() {
        let answer = |fits, lacks, of_image: u64| Bisection { fits, lacks }.answer(Some(Bytes(of_image)));
        // 20 images are 64 MiB and more.
        assert_eq!(answer(Some(376), Some(384), 3_400_000), Some(352));
        // Images that are large, and so small that no number of them is enough.
        assert_eq!(answer(Some(3), Some(4), 100_000_000), Some(2));
        assert_eq!(answer(Some(1), Some(2), 100_000_000), Some(1));
        assert_eq!(answer(Some(728), Some(744), 10_000), Some(376));
        assert_eq!(answer(Some(LARGEST), None, 10_000), Some(LARGEST));
        assert_eq!(answer(None, Some(1), 10_000), None);
    }

    #[test]
    fn trials_run_where_most_ranks_share_a_host() {
        let case = |list: &str| {
            let cases: Vec<Case> = list.split(',').map(|case| case.parse().expect("a case")).collect();
            case_of(&cases).to_string()
        };
        assert_eq!(case("1n1g,1n8g,2n8g,4n8g"), "1n8g");
        assert_eq!(case("2n4g,1n2g"), "2n4g");
    }
}

//! Detection of stragglers by own compute time.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use crate::benchmark::data_input::{DataInputUse, RankDataInput};
use crate::benchmark::train::{Iteration, RunRecord};
use crate::benchmark::warning::{SHOWN, Warning, WarningKind};
use crate::dimension::{DeviceKind, Phase, Seconds};
use crate::host::{Observed, RankPlace};
use crate::number_text::{milliseconds, percent, ranges};
use crate::stats::straggler::{self, LOSS, Straggler, StragglerKind};
use crate::stats::summary::mean;
use crate::validity::hosts::is_loaded;
use crate::validity::iterations::steps;
use crate::validity::subject::{name, subjects, warning};
use crate::validity::thresholds::{LATE_FOR_INPUT, LONGER_STAGE};

/// Warns about stragglers, judged by own compute time alone, among the ranks on hosts that are not oversubscribed. If
/// the ranks do not exchange anything, no rank waits for them. With uneven work the time per image is compared, and
/// only ranks that the others also wait for are reported: a slow rank with a smaller share delays no other rank.
pub(super) fn slow_ranks(
    record: &RunRecord,
    counted: &[Iteration],
    seen: &Observed,
    is_oversubscribed: impl Fn(&str) -> bool,
) -> Vec<Warning> {
    let ranks = seen.ranks;
    let is_judged = |place: &RankPlace| place.device == DeviceKind::Cuda || !is_oversubscribed(&place.host);
    let judged: Vec<usize> = (0..ranks.len()).filter(|rank| is_judged(&ranks[*rank])).collect();
    if counted.iter().any(|iteration| iteration.before_allreduce.len() != ranks.len()) {
        return Vec::new();
    }
    let of_judged = |list: fn(&Iteration) -> &[Seconds]| -> Vec<Vec<f64>> {
        judged.iter().map(|rank| counted.iter().map(|iteration| list(iteration)[*rank].0).collect()).collect()
    };
    let own = of_judged(|iteration| &iteration.before_allreduce);
    let exposed = of_judged(|iteration| &iteration.phases[Phase::ExposedAllreduce]);
    let steps = steps(counted);
    let mut found = match &record.header.work_division {
        None => straggler::stragglers(&own, &exposed, &steps),
        Some(division) => {
            let even = f64::from(record.header.config.batch_size);
            let of_even_part = |(rank, times): (&usize, &Vec<f64>)| -> Vec<f64> {
                times.iter().map(|time| time * even / f64::from(division.samples[*rank])).collect()
            };
            let of_even_parts: Vec<Vec<f64>> = judged.iter().zip(&own).map(of_even_part).collect();
            let waited_for = straggler::stragglers(&own, &exposed, &steps);
            let waited_for: BTreeSet<usize> = waited_for.iter().map(|straggler| straggler.rank).collect();
            let mut found = straggler::stragglers(&of_even_parts, &exposed, &steps);
            found.retain(|straggler| waited_for.contains(&straggler.rank));
            found
        }
    };
    found.iter_mut().for_each(|straggler| straggler.rank = judged[straggler.rank]);
    // Single slow iterations on a host with other load are caused by that load, which has a warning of its own.
    found.retain(|straggler| straggler.kind == StragglerKind::Chronic || !is_loaded(&ranks[straggler.rank], seen));
    // A slow rank that delays no other rank costs nothing.
    let run: f64 = steps.iter().sum();
    // With CUDA graphs, the exchange is part of backward, and all its times are 0.
    let has_waits = record.header.exchanges() && exposed.iter().flatten().any(|time| *time > 0.0);
    let costs = |straggler: &Straggler| straggler.wait * straggler.iterations.len() as f64 >= LOSS * run;
    found.retain(|straggler| !has_waits || costs(straggler));
    // The entries are sorted by rank, one per rank.
    let of_kind = |kind: StragglerKind, rank: usize| {
        let place = found.binary_search_by_key(&rank, |found| found.rank).ok()?;
        Some(&found[place]).filter(|found| found.kind == kind)
    };

    let totals = LazyCell::new(|| Totals::new(record, counted));
    let mut warnings = Vec::new();
    for kind in [StragglerKind::Chronic, StragglerKind::Occasional, StragglerKind::Once] {
        let named = subjects(ranks, |rank| of_kind(kind, rank).is_some()).into_iter().map(|(about, members)| {
            let members: Vec<&Straggler> = members.into_iter().filter_map(|rank| of_kind(kind, rank)).collect();
            (about, members)
        });
        // A host is one subject if its ranks were slow together, compared with ranks of other hosts.
        let is_one = |members: &[&Straggler]| {
            members.len() < ranks.len()
                && (kind == StragglerKind::Chronic
                    || members.windows(2).all(|two| two[0].iterations == two[1].iterations))
        };
        let split = named.flat_map(|(about, members)| match is_one(&members) {
            true => vec![(about, members)],
            false => members.into_iter().map(|member| (name(&ranks[member.rank]), vec![member])).collect(),
        });
        let mut named: Vec<(String, Vec<&Straggler>)> = split.collect();
        // A long list shows only its first entries, so sort by the longest wait.
        let longest = |members: &[&Straggler]| members.iter().map(|one| one.wait).fold(0.0, f64::max);
        if named.len() > SHOWN {
            named.sort_by(|one, other| longest(&other.1).total_cmp(&longest(&one.1)));
        }
        for (about, members) in named {
            warnings.push(slow(record, kind, about, &members, has_waits, counted, &totals));
        }
    }
    warnings
}

/// Sums over all ranks. The sum over the other ranks is obtained by subtracting the slow ranks, instead of adding up
/// all others for each slow rank.
struct Totals {
    /// Input time of every iteration.
    input: Vec<f64>,
    own: Vec<f64>,
    /// Reading and decoding times and number of images; `None` if no images were read.
    stages: Option<StageTimes>,
}

impl Totals {
    fn new(record: &RunRecord, counted: &[Iteration]) -> Totals {
        let sums = |times: fn(&Iteration) -> &[Seconds]| -> Vec<f64> {
            counted.iter().map(|iteration| times(iteration).iter().map(|time| time.0).sum()).collect()
        };
        let input = record.end.as_ref().and_then(|end| end.input.as_ref());
        Totals {
            input: sums(input_times),
            own: sums(own_times),
            stages: input.map(|input| StageTimes::from_ranks(input.ranks.iter())),
        }
    }
}

fn input_times(iteration: &Iteration) -> &[Seconds] {
    &iteration.phases[Phase::Input]
}

fn own_times(iteration: &Iteration) -> &[Seconds] {
    &iteration.before_allreduce
}

/// Returns one warning for a rank, or for all ranks of a host.
fn slow(
    record: &RunRecord,
    kind: StragglerKind,
    about: String,
    members: &[&Straggler],
    has_waits: bool,
    counted: &[Iteration],
    totals: &Totals,
) -> Warning {
    let unit = record.header.config.model.unit();
    let (compared, instead) = match record.header.work_division {
        Some(_) => (format!("compute time per {}", unit.singular()), "give it less work (--work-load)"),
        None => ("compute time".to_owned(), "exclude it"),
    };
    let late = late_for_input(members, counted, totals);
    // Stage times are means over the run and do not describe single iterations.
    let is_chronic = kind == StragglerKind::Chronic && late.is_some();
    let stage = is_chronic.then(|| late_stage(record.end.as_ref()?.input.as_ref()?, members, totals.stages?)).flatten();
    let waits = late.map(|more| {
        let stage = stage.map(|stage| stage.text()).unwrap_or_default();
        format!(", {} of it waiting for {unit}{stage}", milliseconds(more))
    });
    let waits = waits.unwrap_or_default();
    let look = match (late, stage) {
        (None, _) => "check for other processes, a CPU quota, heat or a low clock",
        (Some(_), None) => "check the disk of its data, or raise --decode-threads",
        (Some(_), Some(LateStage { is_reading: true, .. })) => "check the disk of its data",
        (Some(_), Some(_)) => "raise --decode-threads, or stop other processes on its cores",
    };
    let average = |part: fn(&Straggler) -> f64| {
        mean(&members.iter().map(|straggler| part(straggler)).collect::<Vec<f64>>()).unwrap_or_default()
    };
    let (share, factor, wait) = (average(|one| one.share), average(|one| one.factor), Seconds(average(|one| one.wait)));
    let several = match members {
        [_] => String::new(),
        _ => {
            let numbers: Vec<String> = members.iter().map(|straggler| straggler.rank.to_string()).collect();
            format!(" (ranks {})", numbers.join(", "))
        }
    };
    let iterations = members.first().map(|first| iteration_ranges(&first.iterations, counted)).unwrap_or_default();
    let times = format!("{factor:.2} times the others' {compared}");
    let waited = |times: &str, wait: Seconds| match has_waits {
        true => format!("; the others waited {} for it{times}", milliseconds(wait)),
        false => String::new(),
    };
    let often = if share > 0.5 { "often slow" } else { "slow at times" };
    let (kind, text) = match kind {
        StragglerKind::Chronic => (
            WarningKind::Straggler,
            format!(
                "{about} is a straggler{several}: in {} of the iterations, {times}{waits}{}: {look}, or {instead}",
                percent(share),
                waited(" in each", wait)
            ),
        ),
        StragglerKind::Occasional => (
            WarningKind::SlowAtTimes,
            format!(
                "{about} is {often}{several}: in {} of the iterations ({iterations}), {times}{waits}{}: check \
                 for other processes that run intermittently",
                percent(share),
                waited(" in each", wait)
            ),
        ),
        StragglerKind::Once => (
            WarningKind::SlowOnce,
            format!(
                "{about} was slow once{several}: in iteration {iterations}, {times}{waits}{}: repeat the run; if this does not recur, the rank is not at fault",
                waited("", Seconds(average(|one| one.wait * one.iterations.len() as f64)))
            ),
        ),
    };
    warning(kind, about, text)
}

/// Returns the additional time that these ranks waited for images compared to the others, averaged over the iterations
/// in which they were slow. Returns `None` if it is not the larger part of their additional time before the exchange,
/// or if there are no other ranks.
fn late_for_input(members: &[&Straggler], counted: &[Iteration], totals: &Totals) -> Option<Seconds> {
    let slow: BTreeSet<usize> = members.iter().flat_map(|member| member.iterations.iter().copied()).collect();
    let others = own_times(counted.first()?).len().checked_sub(members.len()).filter(|others| *others > 0)?;
    let longer = |times: fn(&Iteration) -> &[Seconds], totals: &[f64]| -> Option<f64> {
        let of_iteration =
            |place: &usize| -> f64 { members.iter().map(|member| times(&counted[*place])[member.rank].0).sum() };
        let there: f64 = slow.iter().map(of_iteration).sum();
        let all: f64 = slow.iter().map(|place| totals[*place]).sum();
        let iterations = slow.len() as f64;
        (!slow.is_empty())
            .then(|| there / (iterations * members.len() as f64) - (all - there) / (iterations * others as f64))
    };
    let (input, all) = (longer(input_times, &totals.input)?, longer(own_times, &totals.own)?);
    (input > 0.0 && input > LATE_FOR_INPUT * all).then_some(Seconds(input))
}

/// The input stage in which slow ranks take longer per image, with its time there and on the other ranks.
#[derive(Debug, Clone, Copy)]
struct LateStage {
    /// True for reading; false for decoding and all later stages.
    is_reading: bool,
    there: Seconds,
    elsewhere: Seconds,
}

impl LateStage {
    fn text(&self) -> String {
        let (does, there) = (if self.is_reading { "read" } else { "decoded" }, milliseconds(self.there));
        format!(" (a thread {does} one in {there}, elsewhere in {})", milliseconds(self.elsewhere))
    }
}

/// Seconds spent by the input threads of some ranks, by stage.
#[derive(Debug, Clone, Copy)]
struct StageTimes {
    read: f64,
    /// Decoding and all later stages.
    decode: f64,
    samples: u64,
}

impl StageTimes {
    fn from_ranks<'a>(ranks: impl Iterator<Item = &'a RankDataInput>) -> StageTimes {
        ranks.fold(StageTimes { read: 0.0, decode: 0.0, samples: 0 }, |sum, rank| StageTimes {
            read: sum.read + rank.read.0,
            decode: sum.decode + rank.decode.0 + rank.augment.0,
            samples: sum.samples.saturating_add(rank.samples),
        })
    }

    fn without(self, part: StageTimes) -> StageTimes {
        StageTimes {
            read: self.read - part.read,
            decode: self.decode - part.decode,
            samples: self.samples.saturating_sub(part.samples),
        }
    }
}

/// Returns the stage in which these ranks lose more time than the others; `None` if the loss is small or there are no
/// other ranks.
fn late_stage(input: &DataInputUse, members: &[&Straggler], total: StageTimes) -> Option<LateStage> {
    let there = StageTimes::from_ranks(members.iter().filter_map(|member| input.ranks.get(member.rank)));
    let elsewhere = total.without(there);
    let stage = |is_reading: bool, time: fn(StageTimes) -> f64| -> Option<LateStage> {
        let of_sample = |times: StageTimes| (times.samples > 0).then(|| Seconds(time(times) / times.samples as f64));
        Some(LateStage { is_reading, there: of_sample(there)?, elsewhere: of_sample(elsewhere)? })
    };
    let reading = stage(true, |times| times.read)?;
    let decoding = stage(false, |times| times.decode)?;
    let longer = |stage: &LateStage| stage.there.0 - stage.elsewhere.0;
    let worst = if longer(&reading) > longer(&decoding) { reading } else { decoding };
    (longer(&worst) > LONGER_STAGE * worst.elsewhere.0).then_some(worst)
}

/// Formats the iterations at these indices of `counted`: `3-5, 9, 12, ...`.
fn iteration_ranges(places: &[usize], counted: &[Iteration]) -> String {
    const SHOWN: usize = 5;
    let mut ranges = ranges(places.iter().map(|place| counted[*place].iteration));
    if ranges.len() > SHOWN {
        ranges.truncate(SHOWN);
        ranges.push("...".to_owned());
    }
    ranges.join(", ")
}

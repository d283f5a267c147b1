//! Critical path of a traced iteration, followed backward from its end: each span started only when the one before it
//! ended.
//!
//! The update of the last rank waits for the last bucket. The sum of a bucket waits for the rank whose gradient was
//! last, or for the sum of the bucket before it, or (without overlap) for all of backward. The gradient waits for the
//! layers of that rank's backward pass, and these for its forward pass, which may both wait for weights of other ranks.
//! With an asynchronous strategy, no rank waits for another.

use ringmark_core::dimension::Strategy;
use ringmark_core::number_text::three_digits;
use ringmark_core::trace::span::WAIT_FOR_WEIGHTS;
use ringmark_core::trace::{Lane, RankTrace, Span, Timeline, iteration_ranges};

/// Longest gap, as a share of the iteration, between two spans of which the second starts immediately.
const AT_ONCE: f64 = 0.002;

/// A section of the path, in nanoseconds of the timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct CriticalSpan {
    /// Rank that runs this section.
    pub rank: u32,
    /// Name of the activity.
    pub name: String,
    /// Start of the section.
    pub begin_ns: i64,
    /// End of the section.
    pub end_ns: i64,
    /// True for sums of gradients.
    pub is_exchange: bool,
}

/// Critical path of an iteration, and the rank that limits it.
#[derive(Debug, Clone, PartialEq)]
pub struct CriticalPath {
    /// Number of the iteration.
    pub iteration: u32,
    /// Sections from the start to the end of the iteration.
    pub spans: Vec<CriticalSpan>,
    /// Cause of the delay, such as `bucket 4 of rank 1 on a, whose gradients layer1.0.conv1 completed`; `None` if no
    /// rank waited for another.
    pub limited_by: Option<String>,
}

/// Returns the iterations that every rank has, in order.
pub fn iterations(timeline: &Timeline) -> Vec<u32> {
    let of_rank = |rank: &RankTrace| iteration_ranges(&rank.spans).into_keys().collect::<Vec<u32>>();
    let mut ranks = timeline.ranks.iter().map(of_rank);
    let first = ranks.next().unwrap_or_default();
    ranks.fold(first, |common, rank| common.into_iter().filter(|iteration| rank.contains(iteration)).collect())
}

/// Returns the critical path of `iteration`; `None` if a rank has no phases for it.
pub fn find(timeline: &Timeline, iteration: u32) -> Option<CriticalPath> {
    let steps = |rank: &RankTrace| -> Vec<Span> {
        rank.spans.iter().filter(|span| span.lane == Lane::Step && span.iteration == iteration).cloned().collect()
    };
    let last = timeline.ranks.iter().max_by_key(|rank| steps(rank).iter().map(Span::end_ns).max())?;
    let update = steps(last).into_iter().max_by_key(Span::end_ns)?;
    let span = |rank: &RankTrace, name: &str, begin_ns: i64, end_ns: i64| CriticalSpan {
        rank: rank.rank,
        name: name.to_owned(),
        begin_ns,
        end_ns,
        is_exchange: false,
    };
    let begin = |rank: &RankTrace| steps(rank).iter().map(|span| span.begin_ns).min();
    let length = (update.end_ns() - begin(last)?) as f64;
    let soon = (AT_ONCE * length) as i64;
    let buckets = Buckets::new(timeline, iteration);
    // Asynchronous ranks do not delay each other.
    let waits = !timeline.strategy.is_some_and(Strategy::is_asynchronous);
    let Some((number, end)) = buckets.last_before(last, update.begin_ns + soon).filter(|_| waits) else {
        let phases = steps(last).iter().map(|phase| span(last, &phase.name, phase.begin_ns, phase.end_ns())).collect();
        return Some(CriticalPath { iteration, spans: phases, limited_by: None });
    };
    // Follows the sums that waited for the one before them.
    let mut first = number;
    let (holder, start) = loop {
        let (holder, start) = buckets.start(first)?;
        if first == 0 || buckets.is_at_once(holder, first, start, soon) {
            break (holder, start);
        }
        match buckets.sum_end(holder, first - 1) {
            Some(end) if (end - start).abs() <= soon => first -= 1,
            _ => break (holder, start),
        }
    };
    let is_at_once = buckets.is_at_once(holder, first, start, soon);
    // A sum that started neither immediately nor after another sum waited for the whole backward pass.
    let ready = if is_at_once { buckets.filled(holder, first)? } else { start };
    let mut spans = Vec::new();
    let waits = waits_for_weights(holder, iteration, soon);
    for phase in steps(holder).iter().filter(|phase| phase.begin_ns < ready) {
        let range = phase.begin_ns..phase.end_ns().min(ready);
        let (mut begin, phase_end) = (range.start, range.end);
        for (bucket, wait) in waits.iter().filter(|(_, wait)| range.contains(&wait.begin_ns)) {
            spans.push(span(holder, &phase.name, begin, wait.begin_ns));
            begin = wait.end_ns().min(phase_end);
            spans.push(span(holder, &format!("{WAIT_FOR_WEIGHTS} of bucket {bucket}"), wait.begin_ns, begin));
        }
        spans.push(span(holder, &phase.name, begin, phase_end));
    }
    spans.retain(|span| span.begin_ns < span.end_ns);
    let what = if first == number {
        format!("sum of bucket {number}")
    } else {
        format!("sums of buckets {first} to {number}")
    };
    spans.push(CriticalSpan { is_exchange: true, ..span(last, &what, ready, end.max(ready)) });
    if update.begin_ns > end {
        spans.push(span(last, "until the update", end, update.begin_ns));
    }
    spans.push(span(last, &update.name, update.begin_ns, update.end_ns()));
    let layers = holder.spans.iter().filter(|span| span.lane == Lane::Layers && span.layer.is_some());
    let layer =
        layers.filter(|span| span.iteration == iteration && span.end_ns() <= ready).max_by_key(|span| span.end_ns());
    let of_rank = format!("of rank {} on {}", holder.rank, holder.host);
    let limited_by = match layer {
        _ if !is_at_once => format!("the backward pass {of_rank}, after which its sums started"),
        Some(layer) => format!("bucket {first} {of_rank}, whose gradients {} completed", layer.name),
        None => format!("bucket {first} {of_rank}"),
    };
    let longest = waits.iter().max_by_key(|(_, wait)| wait.length_ns);
    let waited = longest.map(|(bucket, longest)| {
        let all: i64 = waits.iter().map(|(_, wait)| wait.length_ns).sum();
        let [all, longest] = [all, longest.length_ns].map(|time| three_digits(time as f64 / 1e6));
        format!(", and by {all} ms of waits for weights, of which {longest} ms for bucket {bucket}")
    });
    Some(CriticalPath { iteration, spans, limited_by: Some(limited_by + &waited.unwrap_or_default()) })
}

/// Returns the buckets of weights for which `rank` waits noticeably, and the waits, in order of time.
fn waits_for_weights(rank: &RankTrace, iteration: u32, soon: i64) -> Vec<(u32, &Span)> {
    let is_wait = |span: &&Span| span.name == WAIT_FOR_WEIGHTS && span.iteration == iteration && span.length_ns > soon;
    let mut waits: Vec<(u32, &Span)> =
        rank.spans.iter().filter(is_wait).filter_map(|span| Some((span.bucket?, span))).collect();
    waits.sort_by_key(|(_, wait)| wait.begin_ns);
    waits
}

/// Buckets of an iteration.
struct Buckets<'a> {
    /// Rank, bucket number, and span from its last gradient to its sum.
    spans: Vec<(&'a RankTrace, u32, &'a Span)>,
    /// Spans of the sums, by rank and bucket.
    sums: Vec<(u32, u32, &'a Span)>,
    /// Spans of copying gradients to the wire format, by rank and bucket.
    copies: Vec<(u32, u32, &'a Span)>,
}

impl<'a> Buckets<'a> {
    fn new(timeline: &'a Timeline, iteration: u32) -> Buckets<'a> {
        let of_iteration = |rank: &'a RankTrace| {
            rank.spans.iter().filter(move |span| span.iteration == iteration).map(move |span| (rank, span))
        };
        let all = || timeline.ranks.iter().flat_map(of_iteration);
        // Includes the concurrent transfer between hosts.
        let bucket = |(rank, span): (&'a RankTrace, &'a Span)| match span.lane {
            Lane::Bucket(number) if span.name == span.lane.title() => Some((rank, number, span)),
            _ => None,
        };
        let in_lane = |lane: Lane| {
            let is_own = move |span: &Span| span.lane == lane && span.name != WAIT_FOR_WEIGHTS;
            let own = move |(rank, span): (&'a RankTrace, &'a Span)| {
                Some((rank.rank, span.bucket.filter(|_| is_own(span))?, span))
            };
            all().filter_map(own).collect()
        };
        Buckets {
            spans: all().filter_map(bucket).collect(),
            sums: in_lane(Lane::Exchange),
            copies: in_lane(Lane::Layers),
        }
    }

    /// Returns the bucket of `rank` that ended last before `limit`, and its end.
    fn last_before(&self, rank: &RankTrace, limit: i64) -> Option<(u32, i64)> {
        let own = self.spans.iter().filter(|(of, _, _)| of.rank == rank.rank);
        own.map(|(_, number, span)| (*number, span.end_ns()))
            .filter(|(_, end)| *end <= limit)
            .max_by_key(|(_, end)| *end)
    }

    /// Returns the time at which the last gradient of a bucket was ready on `rank`.
    fn filled(&self, rank: &RankTrace, number: u32) -> Option<i64> {
        let own = self.spans.iter().find(|(of, other, _)| of.rank == rank.rank && *other == number);
        own.map(|(_, _, span)| span.begin_ns)
    }

    /// Returns the rank on which the sum of a bucket started last, which delayed all others, and the start. If the
    /// trace has no sum, uses the time of the last gradient.
    fn start(&self, number: u32) -> Option<(&'a RankTrace, i64)> {
        let all = self.spans.iter().filter(|(_, other, _)| *other == number);
        let start = |(rank, _, span): &(&'a RankTrace, u32, &'a Span)| {
            let sums = of_bucket(&self.sums, rank, number).map(|sum| sum.begin_ns);
            (*rank, sums.min().unwrap_or(span.begin_ns))
        };
        all.map(start).max_by_key(|(_, start)| *start)
    }

    /// Returns true if the sum of a bucket on `rank`, starting at `start`, began as soon as its gradients were copied.
    fn is_at_once(&self, rank: &RankTrace, number: u32, start: i64, soon: i64) -> bool {
        let copied = of_bucket(&self.copies, rank, number).map(Span::end_ns).max();
        copied.or_else(|| self.filled(rank, number)).is_none_or(|ready| start - ready <= soon)
    }

    /// Returns the end of the sum of a bucket on `rank`.
    fn sum_end(&self, rank: &RankTrace, number: u32) -> Option<i64> {
        of_bucket(&self.sums, rank, number).map(Span::end_ns).max()
    }
}

/// Returns the spans of a rank and bucket.
fn of_bucket<'a>(spans: &[(u32, u32, &'a Span)], rank: &RankTrace, number: u32) -> impl Iterator<Item = &'a Span> {
    spans.iter().filter(move |(of, other, _)| *of == rank.rank && *other == number).map(|(_, _, span)| *span)
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Bytes;
    use ringmark_core::trace::clock::{ClockMethod, ClockReading, RankClock};
    use ringmark_core::trace::span::{Direction, LayerKind, LayerPass};

    use super::*;

    fn span(lane: Lane, name: &str, begin_ns: i64, end_ns: i64) -> Span {
        let bucket = match lane {
            Lane::Bucket(number) => Some(number),
            _ => None,
        };
        let layer = (lane == Lane::Layers).then_some(LayerPass {
            layer: 0,
            kind: LayerKind::Convolution,
            direction: Direction::Backward,
            multiply_adds: 0,
            bytes: Bytes(0),
        });
        Span { lane, name: name.to_owned(), iteration: 3, begin_ns, length_ns: end_ns - begin_ns, layer, bucket }
    }

    /// Timeline in which rank 1 is late with bucket 1; the second sum of rank 0 starts at `second`.
    fn timeline(second: i64) -> Timeline {
        let reading = ClockReading { at_ns: 0, ahead_ns: 0, residual_ns: 0 };
        let clock = RankClock { method: ClockMethod::SameHost, first: reading, last: reading };
        let rank = |rank: u32| {
            let late = 1000 * i64::from(rank);
            let sum =
                |number, begin, end| Span { bucket: Some(number), ..span(Lane::Exchange, "all-reduce", begin, end) };
            let spans = vec![
                span(Lane::Step, "forward", 0, 4000),
                span(Lane::Step, "backward", 4000, 9000 + late),
                span(Lane::Step, "exposed all-reduce", 9000 + late, 12_000),
                span(Lane::Step, "optimizer", 12_000, 13_000 - late / 10),
                span(Lane::Layers, "layer2", 4000, 6000),
                span(Lane::Layers, "layer1", 6000, 8900 + late),
                span(Lane::Bucket(0), "bucket 0", 6000, second),
                span(Lane::Bucket(1), "bucket 1", 9000 + late, 12_000),
                sum(0, 6000, second),
                sum(1, second, 12_000),
            ];
            RankTrace { rank, host: "a".to_owned(), clock, spans, gradients: Vec::new() }
        };
        Timeline {
            title: String::new(),
            began_unix_seconds: 0.0,
            strategy: Some(Strategy::AllReduce),
            exchange: "nccl".to_owned(),
            arrays: Vec::new(),
            ranks: vec![rank(0), rank(1)],
        }
    }

    fn rows(path: &CriticalPath) -> Vec<(u32, &str, i64, i64)> {
        path.spans.iter().map(|span| (span.rank, span.name.as_str(), span.begin_ns, span.end_ns)).collect()
    }

    #[test]
    fn path_leads_to_the_rank_with_the_last_gradient() {
        let timeline = timeline(10_000);
        assert_eq!(iterations(&timeline), [3]);
        let path = find(&timeline, 3).expect("a path");
        let expected = [
            (1, "forward", 0, 4000),
            (1, "backward", 4000, 10_000),
            (0, "sum of bucket 1", 10_000, 12_000),
            (0, "optimizer", 12_000, 13_000),
        ];
        assert_eq!(rows(&path), expected);
        let held = "bucket 1 of rank 1 on a, whose gradients layer1 completed";
        assert_eq!(path.limited_by.as_deref(), Some(held));
        assert_eq!(find(&timeline, 4), None);
    }

    #[test]
    fn path_follows_a_queued_sum_to_the_previous_one() {
        let path = find(&timeline(11_500), 3).expect("a path");
        let expected = [
            (1, "forward", 0, 4000),
            (1, "backward", 4000, 6000),
            (0, "sums of buckets 0 to 1", 6000, 12_000),
            (0, "optimizer", 12_000, 13_000),
        ];
        assert_eq!(rows(&path), expected);
    }

    /// Sums follow each other, but none starts before backward ends.
    #[test]
    fn path_without_overlap_follows_the_longest_backward() {
        let mut timeline = timeline(10_900);
        for rank in &mut timeline.ranks {
            for span in rank.spans.iter_mut().filter(|span| span.lane == Lane::Exchange && span.bucket == Some(0)) {
                let end = span.end_ns();
                span.begin_ns = 9000 + 1000 * i64::from(rank.rank);
                span.length_ns = end - span.begin_ns;
            }
        }
        let path = find(&timeline, 3).expect("a path");
        let expected = [
            (1, "forward", 0, 4000),
            (1, "backward", 4000, 10_000),
            (0, "sums of buckets 0 to 1", 10_000, 12_000),
            (0, "optimizer", 12_000, 13_000),
        ];
        assert_eq!(rows(&path), expected);
        let held = "the backward pass of rank 1 on a, after which its sums started";
        assert_eq!(path.limited_by.as_deref(), Some(held));
    }

    /// The sum of the last bucket starts long after the end of the one before, and after its own copy to the wire
    /// format.
    #[test]
    fn path_follows_a_copied_bucket_to_its_gradients() {
        let mut timeline = timeline(7000);
        for rank in &mut timeline.ranks {
            let late = 1000 * i64::from(rank.rank);
            rank.spans.retain(|span| span.lane != Lane::Exchange || span.bucket != Some(1));
            let of_bucket = |span: Span| Span { bucket: Some(1), layer: None, ..span };
            rank.spans.push(of_bucket(span(Lane::Layers, "copy gradients", 9000 + late, 9600 + late)));
            rank.spans.push(of_bucket(span(Lane::Exchange, "exchange", 9600 + late, 12_000)));
            // The concurrent transfer to another host is not a bucket of its own.
            rank.spans.push(of_bucket(span(Lane::Bucket(1), "between hosts", 11_000, 11_500)));
        }
        let path = find(&timeline, 3).expect("a path");
        assert_eq!(rows(&path)[2], (0, "sum of bucket 1", 10_000, 12_000));
        assert_eq!(path.limited_by.as_deref(), Some("bucket 1 of rank 1 on a, whose gradients layer1 completed"));
    }

    #[test]
    fn path_contains_waits_for_weights() {
        let mut timeline = timeline(10_000);
        let wait = |bucket: u32, begin, end| Span {
            bucket: Some(bucket),
            layer: None,
            ..span(Lane::Layers, WAIT_FOR_WEIGHTS, begin, end)
        };
        timeline.ranks[1].spans.extend([wait(1, 1000, 1500), wait(0, 4000, 4010), wait(0, 8000, 9000)]);
        let path = find(&timeline, 3).expect("a path");
        let expected = [
            (1, "forward", 0, 1000),
            (1, "wait for weights of bucket 1", 1000, 1500),
            (1, "forward", 1500, 4000),
            (1, "backward", 4000, 8000),
            (1, "wait for weights of bucket 0", 8000, 9000),
            (1, "backward", 9000, 10_000),
            (0, "sum of bucket 1", 10_000, 12_000),
            (0, "optimizer", 12_000, 13_000),
        ];
        assert_eq!(rows(&path), expected);
        let limited_by = "bucket 1 of rank 1 on a, whose gradients layer1 completed, and by 0.002 ms of waits for weights, \
                          of which 0.001 ms for bucket 0";
        assert_eq!(path.limited_by.as_deref(), Some(limited_by));
    }

    #[test]
    fn asynchronous_ranks_have_no_critical_rank() {
        let timeline = Timeline { strategy: Some(Strategy::DistAsync), ..timeline(10_000) };
        let path = find(&timeline, 3).expect("a path");
        assert_eq!((path.spans.len(), path.limited_by), (4, None));
    }

    #[test]
    fn path_of_a_single_rank_is_its_phases() {
        let mut timeline = timeline(10_000);
        timeline.ranks.truncate(1);
        timeline.ranks[0].spans.retain(|span| span.lane == Lane::Step);
        let path = find(&timeline, 3).expect("a path");
        assert_eq!(path.spans.len(), 4);
        assert_eq!(path.limited_by, None);
    }
}

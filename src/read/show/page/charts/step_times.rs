//! Step time over all iterations of a run: a line through medians in a band from the minimum to the maximum, with
//! shaded warm-up and marked outliers. Long runs are downsampled to ranges of iterations that keep minimum and maximum,
//! so that no outlier is lost.

use maud::{Markup, html};
use ringmark_core::dimension::Seconds;

use crate::output::table::Style;
use crate::read::show::page::charts::frame::{Drawing, Frame, path, px};
use crate::read::show::page::charts::scale::{Scale, number};
use crate::read::show::page::charts::style::color;

/// Maximum number of outlier marks in one drawing: the longest are marked, the band includes the others.
const MARKS: usize = 60;

#[derive(Debug, Clone, PartialEq)]
pub struct StepTimes {
    pub title: String,
    pub description: String,
    pub style: Style,
    pub ranges: Vec<IterationRange>,
    pub iterations: usize,
    /// Number of warm-up iterations, which are excluded from the figures.
    pub warmup: usize,
    /// Median after warm-up, in milliseconds.
    pub usual: f64,
    /// Outliers after warm-up: iteration, counted from 1, and milliseconds.
    pub outliers: Vec<(usize, f64)>,
    /// Ends of the axis in milliseconds, from the measured iterations of all runs of a case; longer steps are marked at
    /// the upper end.
    pub domain: [f64; 2],
}

/// Consecutive iterations of all ranks; times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IterationRange {
    /// First iteration, counted from 1.
    pub first: usize,
    pub last: usize,
    /// Shortest step of any rank.
    pub shortest: f64,
    /// Median over ranks and iterations.
    pub middle: f64,
    /// Longest step of any rank.
    pub longest: f64,
    /// Rank of the longest step.
    pub rank: usize,
    /// Iteration of the longest step.
    pub iteration: usize,
}

/// Divides the iterations of `steps` (by rank, then by iteration) into at most `count` ranges, or one more if warm-up
/// ends within a range: no range contains both warm-up and other iterations.
pub fn iteration_ranges(steps: &[Vec<Seconds>], warmup: usize, count: usize) -> Vec<IterationRange> {
    let iterations = steps.iter().map(Vec::len).min().unwrap_or(0);
    let length = iterations.div_ceil(count.max(2) - 1).max(1);
    let warmup = warmup.min(iterations);
    let starts = (0..warmup).step_by(length).map(|start| (start, warmup));
    let starts = starts.chain((warmup..iterations).step_by(length).map(|start| (start, iterations)));
    let mut pool = Vec::new();
    starts
        .filter_map(|(start, limit)| {
            let end = (start + length).min(limit);
            pool.clear();
            let (mut longest, mut place) = (f64::NEG_INFINITY, (0, start));
            for (rank, steps) in steps.iter().enumerate() {
                for (index, step) in steps[start..end].iter().enumerate() {
                    let time = step.0 * 1e3;
                    if !time.is_finite() {
                        continue;
                    }
                    if time > longest {
                        (longest, place) = (time, (rank, start + index));
                    }
                    pool.push(time);
                }
            }
            let half = pool.len() / 2;
            let shortest = pool.iter().copied().reduce(f64::min)?;
            let (_, middle, _) = pool.select_nth_unstable_by(half, f64::total_cmp);
            let middle = *middle;
            let (rank, iteration) = (place.0, place.1 + 1);
            Some(IterationRange { first: start + 1, last: end, shortest, middle, longest, rank, iteration })
        })
        .collect()
}

impl StepTimes {
    pub fn drawing(&self) -> Drawing<'_> {
        let frame = Frame::new(300.0, 150.0, [44.0, 6.0, 20.0, 20.0]);
        let y = Scale::new(super::scale::ScaleKind::Linear, self.domain, frame.y_range());
        let width = (frame.right - frame.left) / self.iterations.max(1) as f64;
        // Iteration n fills the n-th of equal slots.
        let start = |iteration: usize| frame.left + (iteration as f64 - 1.0) * width;
        let middle = |range: &IterationRange| (start(range.first) + start(range.last + 1)) / 2.0;
        let warmup = self.ranges.partition_point(|range| range.first <= self.warmup);
        let (before, measured) = self.ranges.split_at(warmup);
        let draw = |class: &str, ranges: &[IterationRange]| {
            let upper = ranges.iter().map(|range| (middle(range), y.at(range.longest)));
            let lower = ranges.iter().rev().map(|range| (middle(range), y.at(range.shortest)));
            let line = ranges.iter().map(|range| (middle(range), y.at(range.middle)));
            html! {
                path class={ "band " (class) } d=(path(upper.chain(lower))) {}
                path class={ "middle-line " (class) } d=(path(line)) {}
            }
        };
        let axis = if self.warmup > 0 { "iteration (gray: warm-up)" } else { "iteration" };
        let content = html! {
            @if self.warmup > 0 {
                rect class="warmup" x=(px(frame.left)) y=(px(frame.top)) width=(px(start(self.warmup + 1) - frame.left)) height=(px(frame.bottom - frame.top)) {}
            }
            (frame.y_axis(&y, "ms", number))
            (frame.x_axis(&[], axis))
            text class="tick" x=(px(frame.left)) y=(px(frame.bottom + 15.0)) { "1" }
            text class="tick end" x=(px(frame.right)) y=(px(frame.bottom + 15.0)) { (self.iterations) }
            (draw("reference", before))
            (draw(&color(self.style), measured))
            path class="usual" d=(path([(start(self.warmup + 1), y.at(self.usual)), (frame.right, y.at(self.usual))])) {}
            @for (iteration, time) in self.outliers.iter().take(MARKS) {
                (outlier(start(*iteration) + width / 2.0, y.at(*time), *time > self.domain[1]))
            }
            @for range in before.iter().filter(|range| range.longest > self.domain[1]) {
                path class="beyond" d=(triangle(middle(range), frame.top)) {}
            }
            @for range in &self.ranges {
                rect class="hit" x=(px(start(range.first))) y=(px(frame.top - 8.0)) width=(px((start(range.last + 1) - start(range.first)).max(0.3)))
                    height=(px(frame.bottom - frame.top + 8.0)) { title { (range.tip(self.warmup)) } }
            }
        };
        Drawing { title: &self.title, description: &self.description, legend: Vec::new(), frame, content }
    }
}

impl IterationRange {
    fn tip(&self, warmup: usize) -> String {
        let IterationRange { first, last, shortest, middle, longest, rank, iteration } = *self;
        let which = if first == last { format!("iteration {first}") } else { format!("iterations {first} to {last}") };
        let warmup = if first <= warmup { ", warm-up" } else { "" };
        match (longest - shortest).abs() < 0.005 {
            true => format!("{which}{warmup}: {middle:.2} ms"),
            false => {
                let where_ = if first == last { String::new() } else { format!(" in iteration {iteration}") };
                format!(
                    "{which}{warmup}: median {middle:.2} ms, shortest {shortest:.2}, longest {longest:.2} (rank {rank}{where_})"
                )
            }
        }
    }
}

/// Draws a diamond, or a triangle for a value beyond the end of the axis.
fn outlier(x: f64, y: f64, is_beyond: bool) -> Markup {
    let diamond = || path([(x, y - 4.0), (x + 3.5, y), (x, y + 4.0), (x - 3.5, y)]) + "Z";
    html! { path class="outlier" d=(if is_beyond { triangle(x, y) } else { diamond() }) {} }
}

fn triangle(x: f64, top: f64) -> String {
    path([(x, top - 5.0), (x + 4.0, top + 2.0), (x - 4.0, top + 2.0)]) + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(ranks: usize, iterations: usize) -> Vec<Vec<Seconds>> {
        let step = |rank: usize, iteration: usize| {
            Seconds(0.1 + 0.001 * rank as f64 + if iteration == 777 { 5.0 } else { 0.0 })
        };
        (0..ranks).map(|rank| (0..iterations).map(|iteration| step(rank, iteration)).collect()).collect()
    }

    #[test]
    fn downsampling_keeps_outliers() {
        for count in [2, 50, 150, 5000] {
            let thin = iteration_ranges(&steps(4, 1000), 20, count);
            assert!(thin.len() <= count + 1, "{} of {count}", thin.len());
            let longest = thin.iter().max_by(|one, other| one.longest.total_cmp(&other.longest)).expect("some");
            assert_eq!((longest.rank, longest.iteration), (3, 778));
            assert!((longest.longest - 5103.0).abs() < 1e-6);
            let covered: Vec<usize> = thin.iter().flat_map(|range| range.first..=range.last).collect();
            assert_eq!(covered, (1..=1000).collect::<Vec<_>>());
            assert!(thin.iter().all(|range| range.last <= 20 || range.first > 20));
        }
    }

    #[test]
    fn short_run_is_not_downsampled() {
        let thin = iteration_ranges(&steps(2, 3), 1, 150);
        assert_eq!(thin.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>(), [(1, 1), (2, 2), (3, 3)]);
        assert_eq!((thin[0].shortest, thin[0].middle, thin[0].longest), (100.0, 101.0, 101.0));
        assert_eq!(iteration_ranges(&[], 5, 150), []);
        assert_eq!(iteration_ranges(&[vec![Seconds(f64::INFINITY)]], 0, 150), []);
    }

    #[test]
    fn drawing_of_a_million_iterations_is_small() {
        let steps = steps(1, 1_000_000);
        let chart = StepTimes {
            title: "run 1".to_owned(),
            description: String::new(),
            style: Style { color: 1, shape: 0 },
            ranges: iteration_ranges(&steps, 20, 150),
            iterations: 1_000_000,
            warmup: 20,
            usual: 100.0,
            outliers: (1..100_000).map(|iteration| (iteration, 9e9)).collect(),
            domain: [90.0, 120.0],
        };
        let drawn = chart.drawing().figure().into_string();
        assert!(drawn.len() < 40_000 && !drawn.contains("NaN"), "{}", drawn.len());
        assert!(drawn.contains("\"middle-line s1\"") && drawn.contains("\"band s1\""), "the color is its result's");
        assert!(drawn.contains("\"middle-line reference\"") && drawn.contains(">iteration (gray: warm-up)<"));
        let empty = StepTimes { ranges: Vec::new(), iterations: 0, domain: [f64::NAN; 2], usual: f64::NAN, ..chart };
        assert!(!empty.drawing().figure().into_string().contains("=\"NaN"));
    }
}

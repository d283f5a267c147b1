//! Time by operator of libtorch and by kernel of the GPU in the traced iterations.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::Seconds;
use crate::stats::summary;
use crate::trace::span::{Lane, RankTrace, Span, iteration_ranges};

/// Number of rows of a printed table; the record contains every operator.
const PRINTED: usize = 20;

/// An operator of libtorch, or a kernel of the GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperatorTime {
    /// Name in libtorch's dispatcher, `aten::convolution_backward`, or of the kernel.
    pub name: String,
    /// Calls in an iteration, median over ranks and traced iterations.
    pub calls: u32,
    /// Time in an iteration without the operators that it calls, median over ranks and traced iterations.
    pub time: Seconds,
}

/// Times of all operators, the slowest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperatorProfile {
    /// Number of iterations in each median: ranks times traced iterations.
    pub passes: u32,
    /// Median length of an iteration.
    pub step: Seconds,
    /// Operators on the host. On a GPU their time is that of launching kernels.
    pub host: Vec<OperatorTime>,
    /// Kernels and copies on the GPU; empty on CPUs.
    pub device: Vec<OperatorTime>,
}

/// Rank and iteration.
type Pass = (u32, u32);

impl OperatorProfile {
    /// Computes the profile of the traced ranks.
    pub fn new(ranks: &[RankTrace]) -> OperatorProfile {
        let mut steps: BTreeMap<Pass, Range<i64>> = BTreeMap::new();
        let (mut host, mut device) = (Calls::default(), Calls::default());
        for rank in ranks {
            let ranges = iteration_ranges(&rank.spans);
            steps.extend(ranges.into_iter().map(|(iteration, range)| ((rank.rank, iteration), range)));
            let lanes: BTreeSet<Lane> = rank.spans.iter().map(|span| span.lane).collect();
            for lane in lanes {
                let calls = match lane {
                    Lane::Operators(_) => &mut host,
                    Lane::Kernels(_) => &mut device,
                    _ => continue,
                };
                calls.add(rank.rank, rank.spans.iter().filter(|span| span.lane == lane).collect());
            }
        }
        let passes: Vec<Pass> = steps.keys().copied().collect();
        let lengths: Vec<f64> = steps.values().map(|range| (range.end - range.start) as f64 / 1e9).collect();
        OperatorProfile {
            passes: passes.len() as u32,
            step: Seconds(summary::median(&lengths).unwrap_or(0.0)),
            host: host.medians(&passes),
            device: device.medians(&passes),
        }
    }

    /// Formats a table of the slowest operators, and one of the slowest kernels if there are any.
    pub fn lines(&self) -> Vec<String> {
        let what = format!("per rank and iteration: medians of {} iterations", self.passes);
        let mut lines = vec![format!("self time by operator {what}")];
        lines.extend(self.table("operator", &self.host));
        if !self.device.is_empty() {
            lines.push(format!("time by kernel {what}"));
            lines.extend(self.table("kernel", &self.device));
        }
        lines
    }

    fn table(&self, head: &str, operators: &[OperatorTime]) -> Vec<String> {
        /// Names of templated kernels have hundreds of characters.
        const WIDTH: usize = 60;
        let (printed, others) = operators.split_at(operators.len().min(PRINTED));
        let cut = |name: &str| name.chars().take(WIDTH).collect::<String>();
        let width = printed.iter().map(|operator| cut(&operator.name).len()).max().unwrap_or(0).max(24);
        let row = |name: &str, calls: u32, Seconds(time): Seconds| {
            let share = if self.step.0 > 0.0 { format!("{:.1} %", 100.0 * time / self.step.0) } else { "-".to_owned() };
            format!("{:width$} {calls:>7} {:>10.3} {share:>8}", cut(name), 1e3 * time)
        };
        let mut lines = vec![format!("{head:width$} {:>7} {:>10} {:>8}", "calls", "ms", "of step")];
        lines.extend(printed.iter().map(|operator| row(&operator.name, operator.calls, operator.time)));
        if !others.is_empty() {
            let time = Seconds(others.iter().map(|operator| operator.time.0).sum());
            let calls = others.iter().map(|operator| operator.calls).sum();
            lines.push(row(&format!("{} others", others.len()), calls, time));
        }
        lines
    }
}

/// Calls and self time in nanoseconds of each operator in each pass.
#[derive(Default)]
struct Calls<'a>(BTreeMap<&'a str, BTreeMap<Pass, (u32, i64)>>);

impl<'a> Calls<'a> {
    /// Adds the spans of one lane, which follow or contain each other.
    fn add(&mut self, rank: u32, mut spans: Vec<&'a Span>) {
        spans.sort_by_key(|span| (span.begin_ns, Reverse(span.length_ns)));
        let mut open: Vec<&Span> = Vec::new();
        for span in spans {
            while open.pop_if(|outer| outer.end_ns() <= span.begin_ns).is_some() {}
            if let Some(outer) = open.last() {
                self.entry(outer, rank).1 -= span.length_ns;
            }
            let (calls, time) = self.entry(span, rank);
            (*calls, *time) = (*calls + 1, *time + span.length_ns);
            open.push(span);
        }
    }

    fn entry(&mut self, span: &'a Span, rank: u32) -> &mut (u32, i64) {
        self.0.entry(&span.name).or_default().entry((rank, span.iteration)).or_default()
    }

    /// Returns the medians over all passes, also those without the operator.
    fn medians(self, passes: &[Pass]) -> Vec<OperatorTime> {
        let median = |values: Vec<f64>| summary::median(&values).unwrap_or(0.0);
        let times = self.0.into_iter().map(|(name, by_pass)| {
            let of_passes = || passes.iter().map(|pass| by_pass.get(pass).copied().unwrap_or_default());
            OperatorTime {
                name: name.to_owned(),
                calls: median(of_passes().map(|(calls, _)| f64::from(calls)).collect()).round() as u32,
                time: Seconds(median(of_passes().map(|(_, time)| time as f64 / 1e9).collect())),
            }
        });
        let mut times: Vec<OperatorTime> = times.collect();
        times.sort_by(|one, other| other.time.0.total_cmp(&one.time.0));
        times
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::trace::timeline::tests::timeline;

    /// The timeline of two ranks with one iteration each, with operators of 8 and kernels of 2 microseconds.
    fn profile() -> OperatorProfile {
        let mut ranks = timeline().ranks;
        for (rank, factor) in ranks.iter_mut().zip([1, 3]) {
            let first = rank.spans.iter().find(|span| span.lane == Lane::Step).expect("a step").clone();
            let span = |lane, name: &str, begin: i64, length: i64| Span {
                lane,
                name: name.to_owned(),
                begin_ns: first.begin_ns + begin,
                length_ns: length,
                ..first.clone()
            };
            rank.spans.extend([
                span(Lane::Operators(0), "aten::mm", 1000, 2000),
                span(Lane::Operators(0), "aten::linear", 0, 4000 * factor),
                span(Lane::Operators(0), "aten::mm", 3000, 500),
                // Another thread: at the same time, and not inside the first.
                span(Lane::Operators(1), "aten::mm", 1000, 1000),
                span(Lane::Kernels(7), "gemm<float, 128>", 5000, 2000),
            ]);
        }
        OperatorProfile::new(&ranks)
    }

    #[test]
    fn time_excludes_nested_operators() {
        let profile = profile();
        let figures = |operators: &[OperatorTime]| -> Vec<(String, u32, u32)> {
            let figures = |it: &OperatorTime| (it.name.clone(), it.calls, (it.time.0 * 1e9).round() as u32);
            operators.iter().map(figures).collect()
        };
        assert_eq!(profile.passes, 2);
        // 4,000 and 12,000 ns, of which 2,500 are those of the products.
        assert_eq!(figures(&profile.host), [("aten::linear".to_owned(), 1, 5500), ("aten::mm".to_owned(), 3, 3500)]);
        assert_eq!(figures(&profile.device), [("gemm<float, 128>".to_owned(), 1, 2000)]);
    }

    #[test]
    fn only_the_slowest_operators_are_printed() {
        let mut profile = OperatorProfile { step: Seconds(20e-6), ..profile() };
        let small = |number| OperatorTime { name: format!("aten::op{number}"), calls: 2, time: Seconds(1e-7) };
        profile.host.extend((0..20).map(small));
        let lines = profile.lines();
        expect![[r#"
            self time by operator per rank and iteration: medians of 2 iterations
            operator                   calls         ms  of step
            aten::linear                   1      0.005   27.5 %
            aten::mm                       3      0.004   17.5 %
            aten::op17                     2      0.000    0.5 %
            2 others                       4      0.000    1.0 %
            time by kernel per rank and iteration: medians of 2 iterations
            kernel                     calls         ms  of step
            gemm<float, 128>               1      0.002   10.0 %"#]]
        .assert_eq(&[&lines[..4], &lines[21..]].concat().join("\n"));
    }
}

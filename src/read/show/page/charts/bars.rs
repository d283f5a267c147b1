//! Bar chart for one or two cases, or for batch sizes, for which a line would be misleading: each bar is a median, with
//! a dot for each run and a line across for the ideal value. More cases are drawn by `lines`.

use maud::{Markup, html};
use ringmark_core::number_text::three_digits;

use crate::output::table::Style;
use crate::read::show::page::charts::frame::{Drawing, Frame, LegendEntry, doubtful_entry, path, px, run_entry};
use crate::read::show::page::charts::scale::{Scale, number};
use crate::read::show::page::charts::style::{color, marker};

/// Maximum width of a bar.
const WIDEST: f64 = 80.0;

/// Width of a bar relative to its slot.
const FILLED: f64 = 0.8;

/// Space between two cases relative to a slot.
const GAP: f64 = 0.5;

/// Width of a letter at the scale of a phone.
const LETTER: f64 = 8.2;

/// Heights of the value and the marker at the foot of a bar.
const VALUE: f64 = 22.0;
const MARKER: f64 = 18.0;

#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    pub title: String,
    pub description: String,
    /// Name of the vertical axis, with its unit; the axis starts at 0.
    pub axis: String,
    /// Minimum end of the vertical axis.
    pub end: Option<f64>,
    /// Name of the horizontal axis.
    pub across: String,
    /// Names of the cases from left to right, each with a second line below it.
    pub cases: Vec<(String, String)>,
    pub series: Vec<BarSeries>,
    /// Legend text for the lines across bars.
    pub ideal_name: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BarSeries {
    pub name: String,
    pub style: Style,
    pub bars: Vec<Bar>,
    /// True for published values, drawn as gray outlines.
    pub is_reference: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Index of the case in the chart.
    pub case: usize,
    /// Median.
    pub value: f64,
    /// Value without scaling loss; `None` if it is the same.
    pub ideal: Option<f64>,
    /// Value and tooltip of each run.
    pub runs: Vec<(f64, String)>,
    pub tip: String,
    /// True if the value is unreliable; the bar is gray.
    pub is_doubtful: bool,
}

struct BarPosition<'a> {
    series: &'a BarSeries,
    bar: &'a Bar,
    /// Center of the bar.
    x: f64,
}

impl BarChart {
    fn bars(&self) -> impl Iterator<Item = (&BarSeries, &Bar)> {
        let bars = self.series.iter().flat_map(|series| series.bars.iter().map(move |bar| (series, bar)));
        bars.filter(|(_, bar)| bar.value.is_finite())
    }

    pub fn drawing(&self) -> Drawing<'_> {
        let below = if self.cases.iter().any(|(_, below)| !below.is_empty()) { 56.0 } else { 42.0 };
        let frame = Frame::new(440.0, 290.0, [52.0, 16.0, 26.0, below]);
        let values = self.bars().flat_map(|(_, bar)| bar.runs.iter().map(|(value, _)| *value).chain([bar.value]));
        let values = values.chain(self.bars().filter_map(|(_, bar)| bar.ideal));
        let y = Scale::linear(values, [Some(0.0), self.end], frame.y_range());
        let (slot, positions) = self.positions(&frame);
        let content = html! {
            (frame.y_axis(&y, &self.axis, number))
            (frame.x_axis(&self.marks(&positions), &self.across))
            @for position in &positions { (self.draw_bar(position, slot, &y, &frame)) }
        };
        Drawing { title: &self.title, description: &self.description, legend: self.legend(), frame, content }
    }

    /// Returns the legend: the series if there are several, and the marks that occur.
    fn legend(&self) -> Vec<LegendEntry> {
        let several = self.series.len() > 1;
        let sample = |series: &BarSeries| {
            let sample = html! {
                svg class="sample" viewBox="0 0 14 14" aria-hidden="true" {
                    rect class=(bar_class(series, false)) x="1" y="1" width="12" height="12" {}
                    path class={ "dot " (series_class(series)) } d=(marker(series.style, 7.0, 7.0, 3.5)) {}
                }
            };
            (sample, series.name.clone())
        };
        let ideal = html! {
            svg class="sample" viewBox="0 0 30 14" aria-hidden="true" { path class="ideal across" d="M1 7L29 7" {} }
        };
        let entries = self.series.iter().filter(|_| several).map(sample);
        entries
            .chain(self.bars().any(|(_, bar)| !bar.runs.is_empty()).then(run_entry))
            .chain(self.bars().any(|(_, bar)| bar.ideal.is_some()).then(|| (ideal, self.ideal_name.to_owned())))
            .chain(self.bars().any(|(_, bar)| bar.is_doubtful).then(doubtful_entry))
            .collect()
    }

    /// Returns the width of a slot, and the bars from left to right: case by case, with the series that have the case.
    fn positions(&self, frame: &Frame) -> (f64, Vec<BarPosition<'_>>) {
        let of_case = |case: usize| self.bars().filter(move |(_, bar)| bar.case == case);
        let count = self.bars().count() as f64 + GAP * self.cases.len() as f64;
        let slot = (frame.right - frame.left) / count.max(1.0);
        let mut x = frame.left + slot * GAP / 2.0;
        let mut positions = Vec::new();
        for case in 0..self.cases.len() {
            for (series, bar) in of_case(case) {
                positions.push(BarPosition { series, bar, x: x + slot / 2.0 });
                x += slot;
            }
            x += slot * GAP;
        }
        (slot, positions)
    }

    /// Returns the axis marks, each centered below the bars of its case.
    fn marks(&self, positions: &[BarPosition]) -> Vec<(f64, String, String)> {
        let mark = |(case, (name, below)): (usize, &(String, String))| {
            let bars: Vec<f64> =
                positions.iter().filter(|position| position.bar.case == case).map(|position| position.x).collect();
            Some(((bars.first()? + bars.last()?) / 2.0, name.clone(), below.clone()))
        };
        self.cases.iter().enumerate().filter_map(mark).collect()
    }

    fn draw_bar(&self, position: &BarPosition, slot: f64, y: &Scale, frame: &Frame) -> Markup {
        let BarPosition { series, bar, x } = *position;
        let width = (FILLED * slot).min(WIDEST);
        let (left, top) = (x - width / 2.0, y.at(bar.value));
        let height = frame.bottom - top;
        let value = three_digits(bar.value);
        let foot = if self.series.len() > 1 { MARKER } else { 0.0 };
        let has_value = height > foot + VALUE && LETTER * value.chars().count() as f64 <= width;
        let runs = bar.runs.iter().enumerate().filter(|(_, (value, _))| value.is_finite());
        let run_width = width / bar.runs.len().max(1) as f64;
        html! {
            g {
                title { (bar.tip) }
                rect class="hit" x=(px(x - slot / 2.0)) y=(px(frame.top)) width=(px(slot)) height=(px(frame.bottom - frame.top)) {}
                rect class=(bar_class(series, bar.is_doubtful)) x=(px(left)) y=(px(top)) width=(px(width)) height=(px(height)) {}
                @if foot > 0.0 && height > foot {
                    path class={ "dot " (series_class(series)) } d=(marker(series.style, x, frame.bottom - foot / 2.0, 5.0)) {}
                }
                @if has_value { text class="middle" x=(px(x)) y=(px(frame.bottom - foot - 7.0)) { (value) } }
                @if let Some(ideal) = bar.ideal {
                    @let at = y.at(ideal);
                    path class={ "ideal across " (run_class(series, bar)) } d=(path([(x - width / 2.0 - 5.0, at), (x + width / 2.0 + 5.0, at)])) {}
                }
            }
            @for (index, (value, tip)) in runs {
                circle class={ "run " (run_class(series, bar)) } cx=(px(left + run_width * (index as f64 + 0.5))) cy=(px(y.at(*value)))
                    r=(px((run_width / 2.0).clamp(1.6, 3.5))) { title { (tip) } }
            }
        }
    }
}

fn series_class(series: &BarSeries) -> String {
    if series.is_reference { "reference".to_owned() } else { color(series.style) }
}

fn bar_class(series: &BarSeries, is_doubtful: bool) -> String {
    if is_doubtful { "bar doubtful".to_owned() } else { format!("bar {}", series_class(series)) }
}

fn run_class(series: &BarSeries, bar: &Bar) -> String {
    if bar.is_doubtful { "doubtful".to_owned() } else { series_class(series) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(case: usize, value: f64, runs: &[f64]) -> Bar {
        let runs = runs.iter().map(|value| (*value, "<i>run</i>".to_owned())).collect();
        Bar { case, value, ideal: (case > 0).then_some(2.0), runs, tip: "<i>tip</i>".to_owned(), is_doubtful: false }
    }

    fn chart(series: Vec<Vec<Bar>>) -> BarChart {
        let series = series.into_iter().enumerate().map(|(number, bars)| BarSeries {
            name: "<u>name</u>".to_owned(),
            style: Style { color: number, shape: number },
            bars,
            is_reference: false,
        });
        BarChart {
            title: "<b>title</b>".to_owned(),
            description: "text".to_owned(),
            axis: "images/s".to_owned(),
            end: None,
            across: "case".to_owned(),
            cases: ["1n1g", "1n2g"].map(|case| (case.to_owned(), "ranks".to_owned())).into(),
            series: series.collect(),
            ideal_name: "ideal",
        }
    }

    #[test]
    fn bar_height_is_its_value_with_a_dot_per_run() {
        let chart = chart(vec![vec![bar(0, 1.0, &[0.9, 1.0, 1.1]), bar(1, 1.5, &[1.5])]]);
        let drawn = chart.drawing().figure().into_string();
        // The plot is 208 high and ends at 2.
        assert!(drawn.contains("height=\"104\"") && drawn.contains("height=\"156\""), "{drawn}");
        assert_eq!(drawn.matches("<circle class=\"run s0\"").count(), 4);
        assert_eq!(drawn.matches("<path class=\"ideal across s0\"").count(), 1, "the base is its own ideal");
        assert!(["<i>", "<b>", "<u>"].iter().all(|tag| !drawn.contains(tag)), "{drawn}");
    }

    #[test]
    fn a_value_is_written_as_in_tables() {
        let drawn = chart(vec![vec![bar(0, 5673.4, &[]), bar(1, 27.25, &[])]]).drawing().figure().into_string();
        assert!(drawn.contains(">5,673</text>"), "{drawn}");
    }

    #[test]
    fn bars_of_a_case_are_adjacent_without_gaps() {
        let chart = chart(vec![vec![bar(0, 1.0, &[]), bar(1, 1.5, &[])], vec![bar(1, 2.0, &[])]]);
        let frame = Frame::new(440.0, 290.0, [52.0, 16.0, 26.0, 56.0]);
        let (slot, positions) = chart.positions(&frame);
        let order: Vec<(usize, usize)> =
            positions.iter().map(|position| (position.bar.case, position.series.style.color)).collect();
        assert_eq!(order, [(0, 0), (1, 0), (1, 1)]);
        assert!((positions[2].x - positions[1].x - slot).abs() < 1e-9);
        assert!((positions[1].x - positions[0].x - (1.0 + GAP) * slot).abs() < 1e-9);
        assert!(positions[2].x + slot / 2.0 <= frame.right);
    }

    #[test]
    fn bars_without_numbers_draw_no_nan() {
        for bars in [vec![], vec![bar(0, f64::NAN, &[1.0])], vec![bar(0, 1.0, &[f64::INFINITY]), bar(1, 0.0, &[])]] {
            let drawn = chart(vec![bars]).drawing().figure().into_string();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
        let doubtful = Bar { is_doubtful: true, ..bar(0, 1.0, &[1.0]) };
        let drawn = chart(vec![vec![doubtful]]).drawing().figure().into_string();
        assert!(drawn.contains("bar doubtful") && drawn.contains("unreliable") && !drawn.contains("bar s0"));
    }
}

//! One case or two, or batch sizes, as bars: the median as a bar, a dot on it for each run, and a line across it for what would be ideal. A
//! line between two points says little. Not for more cases: see `lines`.

use maud::{Markup, html};

use crate::read::show::page::charts::frame::{Drawing, Frame, KeyEntry, doubtful_entry, path, px, run_entry};
use crate::read::show::page::charts::scale::{Scale, number};
use crate::read::show::page::charts::stack::short;
use crate::read::show::page::charts::style::{colour, marker};
use crate::read::show::table::Style;

/// Widest bar.
const WIDEST: f64 = 80.0;

/// Width of a bar by that of its place.
const FILLED: f64 = 0.8;

/// Space between two cases by that of a bar's place.
const GAP: f64 = 0.5;

/// Width of a letter where the drawing is as narrow as a phone.
const LETTER: f64 = 8.2;

/// Heights of a value and of a marker in the foot of a bar.
const VALUE: f64 = 22.0;
const MARKER: f64 = 18.0;

/// The whole chart.
#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    /// Above it.
    pub title: String,
    /// What it shows, for those who do not see it.
    pub description: String,
    /// Name of the upward axis, with its unit; it begins at 0.
    pub axis: String,
    /// Where it ends at the earliest.
    pub end: Option<f64>,
    /// Name of the axis below.
    pub across: String,
    /// Names of the cases from left to right, and what stands below each.
    pub cases: Vec<(String, String)>,
    /// Series in the order of the key.
    pub series: Vec<BarSeries>,
    /// What the lines across bars are.
    pub ideal_name: &'static str,
}

/// Bars of one colour.
#[derive(Debug, Clone, PartialEq)]
pub struct BarSeries {
    /// In the key.
    pub name: String,
    /// Colour and marker.
    pub style: Style,
    /// From left to right.
    pub bars: Vec<Bar>,
    /// Whether it was measured by others: in grey, and empty.
    pub is_reference: bool,
}

/// One case of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Its number among the chart's cases.
    pub case: usize,
    /// Median.
    pub value: f64,
    /// What it would be without loss, where that is another.
    pub ideal: Option<f64>,
    /// Every run in turn, with what is shown under the pointer.
    pub runs: Vec<(f64, String)>,
    /// What is shown under the pointer.
    pub tip: String,
    /// True if it is unreliable: in grey.
    pub is_doubtful: bool,
}

/// Where a bar stands.
struct BarPosition<'a> {
    series: &'a BarSeries,
    bar: &'a Bar,
    /// Its middle.
    x: f64,
}

impl BarChart {
    fn bars(&self) -> impl Iterator<Item = (&BarSeries, &Bar)> {
        let bars = self.series.iter().flat_map(|series| series.bars.iter().map(move |bar| (series, bar)));
        bars.filter(|(_, bar)| bar.value.is_finite())
    }

    /// The drawing with its key.
    pub fn drawing(&self) -> Drawing<'_> {
        let below = if self.cases.iter().any(|(_, below)| !below.is_empty()) { 56.0 } else { 42.0 };
        let frame = Frame::new(440.0, 290.0, [52.0, 16.0, 26.0, below]);
        let values = self.bars().flat_map(|(_, bar)| bar.runs.iter().map(|(value, _)| *value).chain([bar.value]));
        let values = values.chain(self.bars().filter_map(|(_, bar)| bar.ideal));
        let y = Scale::linear(values, [Some(0.0), self.end], frame.up());
        let (slot, places) = self.places(&frame);
        let content = html! {
            (frame.values(&y, &self.axis, number))
            (frame.marks(&self.marks(&places), &self.across))
            @for place in &places { (self.draw_bar(place, slot, &y, &frame)) }
        };
        Drawing { title: &self.title, description: &self.description, key: self.key(), frame, content }
    }

    /// Samples of every series where there are several, and of what else is drawn.
    fn key(&self) -> Vec<KeyEntry> {
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

    /// Width of a bar's place, and the bars from left to right: case by case, in each those series that have it.
    fn places(&self, frame: &Frame) -> (f64, Vec<BarPosition<'_>>) {
        let of_case = |case: usize| self.bars().filter(move |(_, bar)| bar.case == case);
        let count = self.bars().count() as f64 + GAP * self.cases.len() as f64;
        let slot = (frame.right - frame.left) / count.max(1.0);
        let mut x = frame.left + slot * GAP / 2.0;
        let mut places = Vec::new();
        for case in 0..self.cases.len() {
            for (series, bar) in of_case(case) {
                places.push(BarPosition { series, bar, x: x + slot / 2.0 });
                x += slot;
            }
            x += slot * GAP;
        }
        (slot, places)
    }

    /// Each case in the middle of its bars.
    fn marks(&self, places: &[BarPosition]) -> Vec<(f64, String, String)> {
        let mark = |(case, (name, below)): (usize, &(String, String))| {
            let bars: Vec<f64> = places.iter().filter(|place| place.bar.case == case).map(|place| place.x).collect();
            Some(((bars.first()? + bars.last()?) / 2.0, name.clone(), below.clone()))
        };
        self.cases.iter().enumerate().filter_map(mark).collect()
    }

    fn draw_bar(&self, place: &BarPosition, slot: f64, y: &Scale, frame: &Frame) -> Markup {
        let BarPosition { series, bar, x } = *place;
        let width = (FILLED * slot).min(WIDEST);
        let (left, top) = (x - width / 2.0, y.at(bar.value));
        let height = frame.bottom - top;
        let value = short(bar.value);
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
    if series.is_reference { "reference".to_owned() } else { colour(series.style) }
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
            style: Style { colour: number, shape: number },
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
    fn a_bar_is_as_high_as_its_value_and_has_a_dot_a_run() {
        let chart = chart(vec![vec![bar(0, 1.0, &[0.9, 1.0, 1.1]), bar(1, 1.5, &[1.5])]]);
        let drawn = chart.drawing().figure().into_string();
        // The plot is 208 high, and 2 ends it.
        assert!(drawn.contains("height=\"104\"") && drawn.contains("height=\"156\""), "{drawn}");
        assert_eq!(drawn.matches("<circle class=\"run s0\"").count(), 4);
        assert_eq!(drawn.matches("<path class=\"ideal across s0\"").count(), 1, "the base is its own ideal");
        assert!(["<i>", "<b>", "<u>"].iter().all(|tag| !drawn.contains(tag)), "{drawn}");
    }

    #[test]
    fn bars_of_a_case_stand_side_by_side_and_leave_no_place_empty() {
        let chart = chart(vec![vec![bar(0, 1.0, &[]), bar(1, 1.5, &[])], vec![bar(1, 2.0, &[])]]);
        let frame = Frame::new(440.0, 290.0, [52.0, 16.0, 26.0, 56.0]);
        let (slot, places) = chart.places(&frame);
        let order: Vec<(usize, usize)> =
            places.iter().map(|place| (place.bar.case, place.series.style.colour)).collect();
        assert_eq!(order, [(0, 0), (1, 0), (1, 1)]);
        assert!((places[2].x - places[1].x - slot).abs() < 1e-9);
        assert!((places[1].x - places[0].x - (1.0 + GAP) * slot).abs() < 1e-9);
        assert!(places[2].x + slot / 2.0 <= frame.right);
    }

    #[test]
    fn nothing_and_what_is_no_number_leave_no_nan() {
        for bars in [vec![], vec![bar(0, f64::NAN, &[1.0])], vec![bar(0, 1.0, &[f64::INFINITY]), bar(1, 0.0, &[])]] {
            let drawn = chart(vec![bars]).drawing().figure().into_string();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
        let doubtful = Bar { is_doubtful: true, ..bar(0, 1.0, &[1.0]) };
        let drawn = chart(vec![vec![doubtful]]).drawing().figure().into_string();
        assert!(drawn.contains("bar doubtful") && drawn.contains("unreliable") && !drawn.contains("bar s0"));
    }
}

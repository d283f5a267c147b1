//! Line chart over ranks, runs or sizes: a line through medians, a dot for each run, and a thin line for the ideal
//! value.

use maud::{Markup, html};

use crate::output::table::Style;
use crate::read::show::page::charts::frame::{
    Drawing, Frame, LegendEntry, area_sample, doubtful_entry, path, px, run_entry,
};
use crate::read::show::page::charts::labels::{self, Label};
use crate::read::show::page::charts::scale::{Scale, ScaleKind, number};
use crate::read::show::page::charts::style::{color, line_class, line_sample, marker};

#[derive(Debug, Clone, PartialEq)]
pub struct LineChart {
    pub title: String,
    pub description: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<LineSeries>,
    /// Maximum start and minimum end of the vertical axis; values beyond them extend it to the next round number.
    pub y_ends: [Option<f64>; 2],
    /// Legend text for the thin lines.
    pub ideal_name: &'static str,
    /// Ranges of the horizontal axis whose values have a different meaning, for example messages that fit into a cache.
    pub shades: Vec<Shade>,
    /// Legend text for the shades: the reason for them.
    pub shade_name: &'static str,
    /// True to name series at the ends of their lines instead of in the legend, if there is space.
    pub are_named_at_their_ends: bool,
}

/// A shaded range of the horizontal axis, behind the lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Shade {
    /// Start and end; clipped to the axis.
    pub ends: [f64; 2],
    pub tip: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Name with unit.
    pub name: String,
    pub kind: ScaleKind,
    /// Marks: value, label, second line of the label. Empty for round numbers.
    pub marks: Vec<(f64, String, String)>,
}

impl Axis {
    /// Creates an axis with marks at round numbers.
    pub fn new(name: impl Into<String>, kind: ScaleKind) -> Axis {
        Axis { name: name.into(), kind, marks: Vec::new() }
    }

    /// Returns the name, with `(log)` for a logarithmic axis.
    fn label(&self) -> String {
        match self.kind {
            ScaleKind::Linear => self.name.clone(),
            ScaleKind::Logarithmic => format!("{} (log)", self.name),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct LineSeries {
    pub name: String,
    pub style: Style,
    /// Medians from left to right.
    pub points: Vec<ChartPoint>,
    pub dots: Vec<ChartPoint>,
    /// Values without scaling loss; may be empty.
    pub ideal: Vec<(f64, f64)>,
    /// True for published values, drawn paler and in gray.
    pub is_reference: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChartPoint {
    pub x: f64,
    pub y: f64,
    pub tip: String,
    /// True if the value is unreliable; the marker is gray.
    pub is_doubtful: bool,
}

impl ChartPoint {
    fn is_finite(&self) -> bool {
        self.x.is_finite() && self.y.is_finite()
    }
}

impl LineChart {
    /// Creates a chart that starts at 0, without ideal lines and shades; the last point of each line describes it.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<LineSeries>) -> LineChart {
        let last = |series: &LineSeries| Some(series.points.last()?.tip.clone());
        LineChart {
            title: title.into(),
            description: series.iter().filter_map(last).collect::<Vec<_>>().join("; "),
            x,
            y,
            series,
            y_ends: [Some(0.0), None],
            ideal_name: "",
            shades: Vec::new(),
            shade_name: "",
            are_named_at_their_ends: true,
        }
    }

    /// Returns the space for names at the ends of the lines; `None` if names are in the legend.
    fn margin(&self) -> Option<f64> {
        let several = self.series.len() > 1 && self.are_named_at_their_ends;
        several.then(|| labels::margin(self.series.iter().map(|series| series.name.as_str()))).flatten()
    }

    fn points(&self) -> impl Iterator<Item = &ChartPoint> {
        self.series.iter().flat_map(|series| series.points.iter().chain(&series.dots)).filter(|point| point.is_finite())
    }

    /// Returns the legend: the lines if there are several, and the marks that occur.
    fn legend(&self) -> Vec<LegendEntry> {
        let several = self.series.len() > 1 && self.margin().is_none();
        let entries = self.series.iter().filter(|_| several).map(|series| (sample(series), series.name.clone()));
        let has_dots = self.series.iter().any(|series| !series.dots.is_empty());
        let has_ideal = self.series.iter().any(|series| !series.ideal.is_empty());
        let ideal = html! {
            svg class="sample" viewBox="0 0 30 14" aria-hidden="true" { path class="ideal" d="M1 7L29 7" {} }
        };
        let shade = (area_sample("shade"), self.shade_name.to_owned());
        entries
            .chain(has_dots.then(run_entry))
            .chain(has_ideal.then(|| (ideal, self.ideal_name.to_owned())))
            .chain((!self.shades.is_empty()).then_some(shade))
            .chain(self.points().any(|point| point.is_doubtful).then(doubtful_entry))
            .collect()
    }

    pub fn drawing(&self) -> Drawing<'_> {
        let below = if self.x.marks.iter().any(|(_, _, below)| !below.is_empty()) { 56.0 } else { 42.0 };
        let margin = self.margin();
        let frame = Frame::new(440.0, 290.0, [52.0, margin.unwrap_or(16.0), 26.0, below]);
        let of_x = || self.points().map(|point| point.x);
        let of_y = self.points().map(|point| point.y);
        let x = match self.x.kind {
            ScaleKind::Logarithmic => Scale::logarithmic(of_x(), frame.x_range()),
            ScaleKind::Linear => Scale::linear(of_x(), [None; 2], frame.x_range()),
        };
        let of_y = of_y.chain(self.series.iter().flat_map(|series| series.ideal.iter().map(|(_, y)| *y)));
        let y = match self.y.kind {
            ScaleKind::Logarithmic => Scale::logarithmic(of_y, frame.y_range()),
            ScaleKind::Linear => Scale::linear(of_y, self.y_ends, frame.y_range()),
        };
        let marks = match self.x.marks.is_empty() {
            false => self.x.marks.iter().map(|(at, label, below)| (x.at(*at), label.clone(), below.clone())).collect(),
            true => x.ticks(8).into_iter().map(|tick| (x.at(tick), number(tick), String::new())).collect::<Vec<_>>(),
        };
        let place = |point: &ChartPoint| (x.at(point.x), y.at(point.y));
        let named = self.series.iter().filter(|_| margin.is_some());
        let labels = named.filter_map(|LineSeries { name, points, .. }| {
            let last = points.iter().rev().find(|point| point.is_finite())?;
            Some(Label { name, end: place(last) })
        });
        let labels: Vec<Label> = labels.collect();
        let content = html! {
            @for shade in &self.shades {
                @let [left, right] = shade.ends.map(|end| x.at(end));
                rect class="shade" x=(px(left)) y=(px(frame.top)) width=(px(right - left)) height=(px(frame.bottom - frame.top)) {
                    title { (shade.tip) }
                }
            }
            (frame.y_axis(&y, &self.y.label(), number))
            (frame.x_axis(&marks, &self.x.label()))
            @for series in &self.series {
                @if !series.ideal.is_empty() {
                    path class={ "ideal " (class(series)) } d=(path(series.ideal.iter().map(|(at, value)| (x.at(*at), y.at(*value))))) {}
                }
            }
            // In reverse order, so that published values are below measured ones.
            @for series in self.series.iter().rev() {
                @let shown = series.points.iter().filter(|point| point.is_finite());
                path class=(if series.is_reference { "line reference".to_owned() } else { line_class(series.style) }) d=(path(shown.clone().map(place))) {}
                @for dot in series.dots.iter().filter(|dot| dot.is_finite()) {
                    circle class={ "run " (point_class(series, dot)) } cx=(px(place(dot).0)) cy=(px(place(dot).1)) r="3.5" { title { (dot.tip) } }
                }
                @for point in shown {
                    @let (x, y) = place(point);
                    g {
                        title { (point.tip) }
                        circle class="hit" cx=(px(x)) cy=(px(y)) r="13" {}
                        path class={ "dot " (point_class(series, point)) } d=(marker(series.style, x, y, 5.0)) {}
                    }
                }
            }
            (labels::draw(&labels, &frame))
        };
        Drawing { title: &self.title, description: &self.description, legend: self.legend(), frame, content }
    }
}

fn class(series: &LineSeries) -> String {
    if series.is_reference { "reference".to_owned() } else { color(series.style) }
}

fn point_class(series: &LineSeries, point: &ChartPoint) -> String {
    if point.is_doubtful { "doubtful".to_owned() } else { class(series) }
}

fn sample(series: &LineSeries) -> Markup {
    if !series.is_reference {
        return line_sample(series.style);
    }
    html! {
        svg class="sample" viewBox="0 0 30 14" aria-hidden="true" {
            path class="line reference" d="M1 7L29 7" {}
            path class="dot reference" d=(marker(series.style, 15.0, 7.0, 4.5)) {}
        }
    }
}

/// Returns some of these values (ascending, above 0), at most `most` + 1, such that their labels do not overlap on a
/// logarithmic axis.
pub fn far_apart(values: &[f64], most: usize) -> Vec<f64> {
    let [Some(low), Some(high)] = [values.first(), values.last()] else { return Vec::new() };
    let step = ((high / low).ln() / most as f64).max(f64::MIN_POSITIVE);
    let mut last = f64::NEG_INFINITY;
    let is_far = |value: &f64| {
        let is_far = value.ln() - last >= 0.999 * step;
        if is_far {
            last = value.ln();
        }
        is_far
    };
    values.iter().copied().filter(is_far).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> LineChart {
        let point = |(x, y): &(f64, f64)| ChartPoint { x: *x, y: *y, tip: "<i>tip</i>".to_owned(), is_doubtful: false };
        let points: Vec<ChartPoint> = points.iter().map(point).collect();
        LineChart {
            title: "<b>title</b>".to_owned(),
            description: "text".to_owned(),
            x: Axis::new("ranks", ScaleKind::Logarithmic),
            y: Axis::new("images/s", ScaleKind::Linear),
            series: vec![LineSeries {
                name: "<u>name</u>".to_owned(),
                style: Style { color: 9, shape: 9 },
                dots: points.clone(),
                points,
                ideal: vec![(1.0, 1.0), (2.0, f64::NAN)],
                is_reference: false,
            }],
            y_ends: [None; 2],
            ideal_name: "ideal",
            shades: vec![Shade { ends: [0.0, f64::INFINITY], tip: "<s>".to_owned() }],
            shade_name: "in cache",
            are_named_at_their_ends: false,
        }
    }

    #[test]
    fn lines_without_numbers_draw_no_nan() {
        for points in [&[][..], &[(1.0, f64::NAN)], &[(f64::INFINITY, 2.0)], &[(1.0, 5.0)], &[(1.0, 0.0), (2.0, 0.0)]] {
            let drawn = chart(points).drawing().figure().into_string();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }

    #[test]
    fn logarithmic_axis_is_labeled() {
        let drawn = chart(&[(1.0, 2.0), (2.0, 3.0)]).drawing().figure().into_string();
        assert!(drawn.contains(">ranks (log)<") && drawn.contains(">images/s<"), "{drawn}");
    }

    #[test]
    fn several_lines_are_labeled_at_their_ends() {
        let mut named = chart(&[(1.0, 2.0), (2.0, 3.0)]);
        named.are_named_at_their_ends = true;
        let alone = named.drawing().figure().into_string();
        assert!(!alone.contains("name</text>"), "{alone}");
        named.series.push(LineSeries { name: "other".to_owned(), points: Vec::new(), ..named.series[0].clone() });
        let drawn = named.drawing().figure().into_string();
        // A series without points has no line to name.
        assert!(drawn.contains("&lt;u&gt;name&lt;/u&gt;</text>") && !drawn.contains("other"), "{drawn}");
        named.series[1].name = "a name that is far too long".to_owned();
        let drawn = named.drawing().figure().into_string();
        assert!(!drawn.contains("</u&gt;</text>") && drawn.contains("far too long</li>"), "{drawn}");
    }

    #[test]
    fn close_marks_are_omitted() {
        let sizes = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 24.0, 32.0];
        assert_eq!(far_apart(&sizes, 5), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
        assert_eq!(far_apart(&[8.0], 5), [8.0]);
        assert_eq!(far_apart(&[], 5), [0.0; 0]);
    }

    #[test]
    fn text_of_the_chart_is_escaped() {
        let drawn = chart(&[(1.0, 2.0)]).drawing().figure().into_string();
        assert!(
            drawn.contains("&lt;i&gt;tip") && !["<i>", "<b>", "<u>", "<s>"].iter().any(|tag| drawn.contains(tag)),
            "{drawn}"
        );
    }
}

//! Lines over ranks, runs or sizes: the median as a line, a dot for each run, and a thin line for what would be ideal.

use maud::{Markup, html};

use crate::read::show::page::charts::frame::{
    Drawing, Frame, KeyEntry, area_sample, doubtful_entry, path, px, run_entry,
};
use crate::read::show::page::charts::labels::{self, Label};
use crate::read::show::page::charts::scale::{Scale, ScaleKind, number};
use crate::read::show::page::charts::style::{colour, line_class, line_sample, marker};
use crate::read::show::table::Style;

/// The whole chart.
#[derive(Debug, Clone, PartialEq)]
pub struct LineChart {
    /// Above it.
    pub title: String,
    /// What it shows, for those who do not see it.
    pub description: String,
    /// From left to right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Series in the order of the key.
    pub series: Vec<LineSeries>,
    /// Where the upward axis begins at the latest, and ends at the earliest; values beyond widen it to the next round number.
    pub y_ends: [Option<f64>; 2],
    /// What the thin lines are.
    pub ideal_name: &'static str,
    /// Parts of the axis whose values do not mean what the others mean.
    pub shades: Vec<Shade>,
    /// Why.
    pub shade_name: &'static str,
    /// Whether series are named where their lines end, and not in the key, if there is space.
    pub are_named_at_their_ends: bool,
}

/// A part of the axis from left to right, behind the lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Shade {
    /// Where it begins and ends; beyond the axis it is cut off.
    pub ends: [f64; 2],
    /// What is shown under the pointer.
    pub tip: String,
}

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Name with unit.
    pub name: String,
    /// How places follow values.
    pub kind: ScaleKind,
    /// Marks: value, label, second line of the label. Empty for round numbers.
    pub marks: Vec<(f64, String, String)>,
}

impl Axis {
    /// With round marks.
    pub fn new(name: impl Into<String>, kind: ScaleKind) -> Axis {
        Axis { name: name.into(), kind, marks: Vec::new() }
    }

    /// Returns the name, marked if equal distances are equal factors.
    fn label(&self) -> String {
        match self.kind {
            ScaleKind::Linear => self.name.clone(),
            ScaleKind::Logarithmic => format!("{} (log)", self.name),
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct LineSeries {
    /// In the key.
    pub name: String,
    /// Colour, marker, dashes.
    pub style: Style,
    /// Medians, from left to right, with what is shown at each.
    pub points: Vec<Point>,
    /// Single runs.
    pub dots: Vec<Point>,
    /// What it would be without loss; may be empty.
    pub ideal: Vec<(f64, f64)>,
    /// Whether it was measured by others: paler, in grey.
    pub is_reference: bool,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Place from left to right.
    pub x: f64,
    /// Place upwards.
    pub y: f64,
    /// What is shown under the pointer.
    pub tip: String,
    /// True if it is unreliable: in grey.
    pub is_doubtful: bool,
}

impl Point {
    fn is_finite(&self) -> bool {
        self.x.is_finite() && self.y.is_finite()
    }
}

impl LineChart {
    /// From 0 upwards, without ideals and shades; each line is described by its last point.
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

    /// Space for the names at the ends of the lines, where they stand there.
    fn margin(&self) -> Option<f64> {
        let several = self.series.len() > 1 && self.are_named_at_their_ends;
        several.then(|| labels::margin(self.series.iter().map(|series| series.name.as_str()))).flatten()
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|series| series.points.iter().chain(&series.dots)).filter(|point| point.is_finite())
    }

    /// Samples of every line where there are several, and of what else is drawn.
    fn key(&self) -> Vec<KeyEntry> {
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

    /// The drawing with its key.
    pub fn drawing(&self) -> Drawing<'_> {
        let below = if self.x.marks.iter().any(|(_, _, below)| !below.is_empty()) { 56.0 } else { 42.0 };
        let margin = self.margin();
        let frame = Frame::new(440.0, 290.0, [52.0, margin.unwrap_or(16.0), 26.0, below]);
        let of_x = || self.points().map(|point| point.x);
        let of_y = self.points().map(|point| point.y);
        let x = match self.x.kind {
            ScaleKind::Logarithmic => Scale::logarithmic(of_x(), frame.across()),
            ScaleKind::Linear => Scale::linear(of_x(), [None; 2], frame.across()),
        };
        let of_y = of_y.chain(self.series.iter().flat_map(|series| series.ideal.iter().map(|(_, y)| *y)));
        let y = match self.y.kind {
            ScaleKind::Logarithmic => Scale::logarithmic(of_y, frame.up()),
            ScaleKind::Linear => Scale::linear(of_y, self.y_ends, frame.up()),
        };
        let marks = match self.x.marks.is_empty() {
            false => self.x.marks.iter().map(|(at, label, below)| (x.at(*at), label.clone(), below.clone())).collect(),
            true => x.ticks(8).into_iter().map(|tick| (x.at(tick), number(tick), String::new())).collect::<Vec<_>>(),
        };
        let place = |point: &Point| (x.at(point.x), y.at(point.y));
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
            (frame.values(&y, &self.y.label(), number))
            (frame.marks(&marks, &self.x.label()))
            @for series in &self.series {
                @if !series.ideal.is_empty() {
                    path class={ "ideal " (class(series)) } d=(path(series.ideal.iter().map(|(at, value)| (x.at(*at), y.at(*value))))) {}
                }
            }
            // What others measured lies below what was measured here.
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
        Drawing { title: &self.title, description: &self.description, key: self.key(), frame, content }
    }
}

fn class(series: &LineSeries) -> String {
    if series.is_reference { "reference".to_owned() } else { colour(series.style) }
}

fn point_class(series: &LineSeries, point: &Point) -> String {
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

/// Some of these values, upwards and above 0, of which a logarithmic axis has space for so many marks, and one: each far
/// enough from the one before it.
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
        let point = |(x, y): &(f64, f64)| Point { x: *x, y: *y, tip: "<i>tip</i>".to_owned(), is_doubtful: false };
        let points: Vec<Point> = points.iter().map(point).collect();
        LineChart {
            title: "<b>title</b>".to_owned(),
            description: "text".to_owned(),
            x: Axis::new("ranks", ScaleKind::Logarithmic),
            y: Axis::new("images/s", ScaleKind::Linear),
            series: vec![LineSeries {
                name: "<u>name</u>".to_owned(),
                style: Style { colour: 9, shape: 9 },
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
    fn nothing_to_draw_and_what_is_no_number_leave_no_nan() {
        for points in [&[][..], &[(1.0, f64::NAN)], &[(f64::INFINITY, 2.0)], &[(1.0, 5.0)], &[(1.0, 0.0), (2.0, 0.0)]] {
            let drawn = chart(points).drawing().figure().into_string();
            assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }

    #[test]
    fn a_logarithmic_axis_is_labelled_as_one() {
        let drawn = chart(&[(1.0, 2.0), (2.0, 3.0)]).drawing().figure().into_string();
        assert!(drawn.contains(">ranks (log)<") && drawn.contains(">images/s<"), "{drawn}");
    }

    #[test]
    fn lines_are_named_at_their_ends_where_there_are_several_and_space() {
        let mut named = chart(&[(1.0, 2.0), (2.0, 3.0)]);
        named.are_named_at_their_ends = true;
        let alone = named.drawing().figure().into_string();
        assert!(!alone.contains("name</text>"), "{alone}");
        named.series.push(LineSeries { name: "other".to_owned(), points: Vec::new(), ..named.series[0].clone() });
        let drawn = named.drawing().figure().into_string();
        // What has no line has no name.
        assert!(drawn.contains("&lt;u&gt;name&lt;/u&gt;</text>") && !drawn.contains("other"), "{drawn}");
        named.series[1].name = "a name that is far too long".to_owned();
        let drawn = named.drawing().figure().into_string();
        assert!(!drawn.contains("</u&gt;</text>") && drawn.contains("far too long</li>"), "{drawn}");
    }

    #[test]
    fn marks_are_so_far_apart_that_there_are_few() {
        let sizes = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 24.0, 32.0];
        assert_eq!(far_apart(&sizes, 5), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
        assert_eq!(far_apart(&[8.0], 5), [8.0]);
        assert_eq!(far_apart(&[], 5), [0.0; 0]);
    }

    #[test]
    fn words_are_escaped() {
        let drawn = chart(&[(1.0, 2.0)]).drawing().figure().into_string();
        assert!(
            drawn.contains("&lt;i&gt;tip") && !["<i>", "<b>", "<u>", "<s>"].iter().any(|tag| drawn.contains(tag)),
            "{drawn}"
        );
    }
}

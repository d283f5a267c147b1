//! Parts shared by all charts: drawings with accessible descriptions, axes, markers, and number formatting for SVG.

use std::fmt::Write;

use maud::{Markup, html};

use crate::read::show::page::charts::scale::{Scale, number};

/// Size of a drawing, which the page scales, and edges of its plot area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    /// Creates a frame with these margins around the plot: left, right, top, bottom.
    pub fn new(width: f64, height: f64, [left, right, top, bottom]: [f64; 4]) -> Frame {
        Frame { width, height, left, right: width - right, top, bottom: height - bottom }
    }

    /// Returns the horizontal extent of the plot, left to right.
    pub fn x_range(&self) -> [f64; 2] {
        [self.left, self.right]
    }

    /// Returns the vertical extent of the plot, bottom to top.
    pub fn y_range(&self) -> [f64; 2] {
        [self.bottom, self.top]
    }

    /// Returns the SVG element; `title` and `description` are for screen readers.
    pub fn svg(&self, title: &str, description: &str, content: Markup) -> Markup {
        html! {
            svg viewBox={ "0 0 " (px(self.width)) " " (px(self.height)) } role="img" aria-label={ (title) ": " (description) } {
                title { (title) }
                desc { (description) }
                (content)
            }
        }
    }

    /// Draws horizontal grid lines with their values on the left, and the name of the axis above them.
    pub fn y_axis(&self, scale: &Scale, name: &str, label: impl Fn(f64) -> String) -> Markup {
        html! {
            @for tick in scale.ticks(5) {
                @let y = px(scale.at(tick));
                line class="grid" x1=(px(self.left)) x2=(px(self.right)) y1=(y) y2=(y) {}
                text class="tick end" x=(px(self.left - 7.0)) y=(px(scale.at(tick) + 4.0)) { (label(tick)) }
            }
            text class="axis" x="2" y="13" { (name) }
        }
    }

    /// Draws vertical grid lines at about `count` round values, and the axis below the plot.
    pub fn x_axis_with_grid(&self, scale: &Scale, count: usize, name: &str) -> Markup {
        let marks: Vec<_> =
            scale.ticks(count).into_iter().map(|tick| (scale.at(tick), number(tick), String::new())).collect();
        html! {
            @for (x, ..) in &marks {
                line class="grid" x1=(px(*x)) x2=(px(*x)) y1=(px(self.top)) y2=(px(self.bottom)) {}
            }
            (self.x_axis(&marks, name))
        }
    }

    /// Draws the axis below the plot with its name and marks (position, label, second label below it).
    pub fn x_axis(&self, marks: &[(f64, String, String)], name: &str) -> Markup {
        html! {
            line class="base" x1=(px(self.left)) x2=(px(self.right)) y1=(px(self.bottom)) y2=(px(self.bottom)) {}
            @for (x, label, below) in marks {
                line class="base" x1=(px(*x)) x2=(px(*x)) y1=(px(self.bottom)) y2=(px(self.bottom + 4.0)) {}
                text class="tick middle" x=(px(*x)) y=(px(self.bottom + 18.0)) { (label) }
                @if !below.is_empty() {
                    text class="tick middle faint" x=(px(*x)) y=(px(self.bottom + 33.0)) { (below) }
                }
            }
            text class="axis middle" x=(px((self.left + self.right) / 2.0)) y=(px(self.height - 4.0)) { (name) }
        }
    }
}

/// Returns legend entries for the areas whose class is `drawn`, given the classes and names of all kinds.
pub fn area_entries(kinds: &[(&str, impl AsRef<str>)], drawn: &[&str]) -> Vec<LegendEntry> {
    let drawn = kinds.iter().filter(|(class, _)| drawn.contains(class));
    drawn.map(|(class, name)| (area_sample(class), name.as_ref().to_owned())).collect()
}

pub type LegendEntry = (Markup, String);

/// A drawn chart, before it is placed on a page or written as a separate picture.
pub struct Drawing<'a> {
    pub title: &'a str,
    /// Accessible description.
    pub description: &'a str,
    pub legend: Vec<LegendEntry>,
    pub frame: Frame,
    pub content: Markup,
}

impl Drawing<'_> {
    /// Returns the figure element: caption, legend and drawing.
    pub fn figure(self) -> Markup {
        html! {
            figure {
                figcaption { (self.title) }
                @if !self.legend.is_empty() {
                    ul class="key" { @for (sample, name) in &self.legend { li { (sample) " " (name) } } }
                }
                (self.frame.svg(self.title, self.description, self.content))
            }
        }
    }
}

/// Formats a coordinate with at most one decimal.
pub fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// Returns the path data of a line through these points.
pub fn path(places: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (index, (x, y)) in places.into_iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        // Writing to a String cannot fail.
        let _ = write!(path, "{step}{} {}", px(x), px(y));
    }
    path
}

pub fn area_sample(class: &str) -> Markup {
    html! {
        svg class="sample" viewBox="0 0 14 14" aria-hidden="true" {
            rect class={ "area " (class) } x="1" y="1" width="12" height="12" {}
        }
    }
}

pub fn mark_sample(class: &str, outline: &str) -> Markup {
    html! {
        svg class="sample" viewBox="0 0 14 14" aria-hidden="true" { path class=(class) d=(outline) {} }
    }
}

/// Returns the legend entry for the circles of single runs.
pub fn run_entry() -> LegendEntry {
    let sample = html! {
        svg class="sample" viewBox="0 0 14 14" aria-hidden="true" { circle class="run" cx="7" cy="7" r="3.5" {} }
    };
    (sample, "one run".to_owned())
}

/// Returns the legend entry for the gray bars of unreliable figures.
pub fn doubtful_entry() -> LegendEntry {
    (area_sample("doubtful"), "unreliable".to_owned())
}

/// Returns the legend entry for the pale stacked bars of unreliable figures.
pub fn pale_entry() -> LegendEntry {
    (area_sample("compute pale"), "unreliable".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short() {
        assert_eq!([px(1.0), px(1.26), px(-0.02), px(100.04)], ["1", "1.3", "0", "100"]);
        assert_eq!(path([(1.0, 2.0), (3.25, 4.0)]), "M1 2L3.2 4");
    }

    #[test]
    fn text_of_a_drawing_is_escaped() {
        let svg = Frame::new(10.0, 10.0, [0.0; 4]).svg("<b>", "\"><script>", html! {}).into_string();
        assert!(!svg.contains("<b>") && !svg.contains("<script>") && !svg.contains("\"\">"), "{svg}");
    }
}

//! What charts share: a drawing with its description for those who do not see it, axes, markers, and numbers as SVG writes them.

use std::fmt::Write;

use maud::{Markup, html};

use crate::read::show::page::charts::scale::{Scale, number};

/// Size of a drawing and of its plot area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Of the drawing; the page scales it.
    pub width: f64,
    /// Of the drawing.
    pub height: f64,
    /// Left end of the plot.
    pub left: f64,
    /// Right end of the plot.
    pub right: f64,
    /// Upper end of the plot.
    pub top: f64,
    /// Lower end of the plot.
    pub bottom: f64,
}

impl Frame {
    /// With these margins around the plot: left, right, top, bottom.
    pub fn new(width: f64, height: f64, [left, right, top, bottom]: [f64; 4]) -> Frame {
        Frame { width, height, left, right: width - right, top, bottom: height - bottom }
    }

    /// Places from left to right.
    pub fn across(&self) -> [f64; 2] {
        [self.left, self.right]
    }

    /// Places from the lower end to the upper.
    pub fn up(&self) -> [f64; 2] {
        [self.bottom, self.top]
    }

    /// The drawing: `title` and `description` for those who do not see it.
    pub fn svg(&self, title: &str, description: &str, content: Markup) -> Markup {
        html! {
            svg viewBox={ "0 0 " (px(self.width)) " " (px(self.height)) } role="img" aria-label={ (title) ": " (description) } {
                title { (title) }
                desc { (description) }
                (content)
            }
        }
    }

    /// Lines across the plot with their values on the left, and the axis' name above them.
    pub fn values(&self, scale: &Scale, name: &str, label: impl Fn(f64) -> String) -> Markup {
        html! {
            @for tick in scale.ticks(5) {
                @let y = px(scale.at(tick));
                line class="grid" x1=(px(self.left)) x2=(px(self.right)) y1=(y) y2=(y) {}
                text class="tick end" x=(px(self.left - 7.0)) y=(px(scale.at(tick) + 4.0)) { (label(tick)) }
            }
            text class="axis" x="2" y="13" { (name) }
        }
    }

    /// Lines up the plot at about `count` round values, and the axis below it.
    pub fn columns(&self, scale: &Scale, count: usize, name: &str) -> Markup {
        let marks: Vec<_> =
            scale.ticks(count).into_iter().map(|tick| (scale.at(tick), number(tick), String::new())).collect();
        html! {
            @for (x, ..) in &marks {
                line class="grid" x1=(px(*x)) x2=(px(*x)) y1=(px(self.top)) y2=(px(self.bottom)) {}
            }
            (self.marks(&marks, name))
        }
    }

    /// The axis below the plot with these marks (place, label, label below it), and its name.
    pub fn marks(&self, marks: &[(f64, String, String)], name: &str) -> Markup {
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

/// Entries of a key for areas of these classes and names.
pub fn area_entries(parts: &[(&str, &str)]) -> Vec<KeyEntry> {
    parts.iter().map(|(class, name)| (area_sample(class), (*name).to_owned())).collect()
}

/// A sample, and what it is of.
pub type KeyEntry = (Markup, String);

/// A chart that is drawn, before it is known whether it stands on a page or alone.
pub struct Drawing<'a> {
    /// Above it.
    pub title: &'a str,
    /// What it shows, for those who do not see it.
    pub description: &'a str,
    /// What its marks mean.
    pub key: Vec<KeyEntry>,
    /// Its size.
    pub frame: Frame,
    /// What is in it.
    pub content: Markup,
}

impl Drawing<'_> {
    /// On a page: caption, key, drawing.
    pub fn figure(self) -> Markup {
        html! {
            figure {
                figcaption { (self.title) }
                @if !self.key.is_empty() {
                    ul class="key" { @for (sample, name) in &self.key { li { (sample) " " (name) } } }
                }
                (self.frame.svg(self.title, self.description, self.content))
            }
        }
    }
}

/// A place, to a tenth.
pub fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// A path through these places.
pub fn path(places: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (index, (x, y)) in places.into_iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        // A string takes everything.
        let _ = write!(path, "{step}{} {}", px(x), px(y));
    }
    path
}

/// Sample of a filled area of this class.
pub fn area_sample(class: &str) -> Markup {
    html! {
        svg class="sample" viewBox="0 0 14 14" aria-hidden="true" {
            rect class={ "area " (class) } x="1" y="1" width="12" height="12" {}
        }
    }
}

/// Sample of a mark of this class and outline.
pub fn mark_sample(class: &str, outline: &str) -> Markup {
    html! {
        svg class="sample" viewBox="0 0 14 14" aria-hidden="true" { path class=(class) d=(outline) {} }
    }
}

/// Of the small circles.
pub fn run_entry() -> KeyEntry {
    let sample = html! {
        svg class="sample" viewBox="0 0 14 14" aria-hidden="true" { circle class="run" cx="7" cy="7" r="3.5" {} }
    };
    (sample, "one run".to_owned())
}

/// Legend entry of the bars that are grey because their figures are unreliable.
pub fn doubtful_entry() -> KeyEntry {
    (area_sample("doubtful"), "unreliable".to_owned())
}

/// The entry for unreliable bars of parts.
pub fn pale_entry() -> KeyEntry {
    (area_sample("compute pale"), "unreliable".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_short() {
        assert_eq!([px(1.0), px(1.26), px(-0.02), px(100.04)], ["1", "1.3", "0", "100"]);
        assert_eq!(path([(1.0, 2.0), (3.25, 4.0)]), "M1 2L3.2 4");
    }

    #[test]
    fn words_of_a_drawing_are_escaped() {
        let svg = Frame::new(10.0, 10.0, [0.0; 4]).svg("<b>", "\"><script>", html! {}).into_string();
        assert!(!svg.contains("<b>") && !svg.contains("<script>") && !svg.contains("\"\">"), "{svg}");
    }
}

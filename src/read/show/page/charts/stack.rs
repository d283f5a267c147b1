//! Stacked bar chart: breakdown of the step time, one bar per case.

use maud::{Markup, html};
use ringmark_core::number_text::three_digits;

use crate::output::table::Style;
use crate::read::show::page::charts::frame::{Drawing, Frame, area_entries, pale_entry, px};
use crate::read::show::page::charts::scale::Scale;
use crate::read::show::page::charts::style::color;

const ROW: f64 = 30.0;
const BAR: f64 = 20.0;
/// Minimum width of a segment that contains its value as text.
const LABELED: f64 = 36.0;
/// Minimum width of a segment that is drawn.
const VISIBLE: f64 = 0.5;

#[derive(Debug, Clone, PartialEq)]
pub struct StackChart {
    pub title: String,
    pub description: String,
    pub axis: String,
    /// Minimum end of the axis.
    pub end: Option<f64>,
    /// CSS class (for the color) and name of each part, from left to right.
    pub parts: Vec<(&'static str, String)>,
    pub groups: Vec<StackGroup>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StackGroup {
    /// Heading above the bars, if there are several series.
    pub name: String,
    pub style: Style,
    pub bars: Vec<StackBar>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StackBar {
    pub label: String,
    pub total: String,
    /// Value, not below 0, and tooltip of each part.
    pub values: Vec<(f64, String)>,
    /// True if the values are unreliable; the bar is pale.
    pub is_doubtful: bool,
}

struct Segment<'a> {
    class: &'static str,
    value: f64,
    tip: &'a str,
    left: f64,
    width: f64,
}

impl StackBar {
    fn length(&self) -> f64 {
        self.values.iter().map(|(value, _)| drawable(*value)).sum()
    }
}

/// Width of a letter of a label at the scale of a phone.
const LETTER: f64 = 8.2;

/// Replaces values that have no length by 0.
fn drawable(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

impl StackChart {
    pub fn drawing(&self) -> Drawing<'_> {
        let several = self.groups.len() > 1;
        let rows = self.groups.iter().map(|group| group.bars.len() + usize::from(several)).sum::<usize>();
        let frame = Frame::new(520.0, 10.0 + rows as f64 * ROW + 42.0, [self.label_width(), 62.0, 10.0, 42.0]);
        let lengths = self.groups.iter().flat_map(|group| group.bars.iter().map(StackBar::length));
        let x = Scale::linear(lengths, [Some(0.0), self.end], frame.x_range());
        let mut row = 0.0;
        let mut next_row = || {
            row += 1.0;
            frame.top + (row - 1.0) * ROW
        };
        let content = html! {
            (frame.x_axis_with_grid(&x, 5, &self.axis))
            @for group in &self.groups {
                @if several {
                    @let top = next_row();
                    rect class={ "swatch " (color(group.style)) } x="4" y=(px(top + 11.0)) width="10" height="10" {}
                    text class="label" x="20" y=(px(top + 20.0)) { (group.name) }
                }
                @for bar in &group.bars {
                    (self.draw_bar(bar, next_row() + (ROW - BAR) / 2.0, &x))
                }
            }
        };
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let drawn: Vec<&str> = bars().flat_map(|bar| self.segments(bar, &x)).map(|segment| segment.class).collect();
        let is_doubtful = bars().any(|bar| bar.is_doubtful);
        let legend = area_entries(&self.parts, &drawn).into_iter().chain(is_doubtful.then(pale_entry)).collect();
        Drawing { title: &self.title, description: &self.description, legend, frame, content }
    }

    /// Returns the space for the longest label at the scale of a phone.
    fn label_width(&self) -> f64 {
        let labels = self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.label.chars().count());
        (labels.max().unwrap_or(0) as f64 * LETTER + 14.0).clamp(104.0, 260.0)
    }

    /// Returns the visible segments of a bar.
    fn segments<'a>(&'a self, bar: &'a StackBar, x: &Scale) -> Vec<Segment<'a>> {
        let mut end = 0.0;
        let segments = self.parts.iter().zip(&bar.values).filter_map(|((class, _), (value, tip))| {
            let start = end;
            end += drawable(*value);
            let width = x.at(end) - x.at(start);
            (width >= VISIBLE).then(|| Segment { class, value: *value, tip, left: x.at(start), width })
        });
        segments.collect()
    }

    fn draw_bar(&self, bar: &StackBar, top: f64, x: &Scale) -> Markup {
        html! {
            text class="label end" x=(px(x.at(0.0) - 8.0)) y=(px(top + 15.0)) { (bar.label) }
            @for Segment { class, value, tip, left, width } in self.segments(bar, x) {
                g class=[bar.is_doubtful.then_some("unreliable")] {
                    title { (tip) }
                    rect class={ "area " (class) } x=(px(left)) y=(px(top)) width=(px(width)) height=(px(BAR)) {}
                    @if width > LABELED {
                        text class={ "inside " (if bar.is_doubtful { "pale" } else { class }) } x=(px(left + width / 2.0)) y=(px(top + 14.5)) { (three_digits(value)) }
                    }
                }
            }
            text class="label" x=(px(x.at(bar.length()) + 6.0)) y=(px(top + 15.0)) { (bar.total) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_length_and_invalid_ones_are_omitted() {
        let bar = StackBar {
            label: "<1n1g>".to_owned(),
            total: "100".to_owned(),
            values: vec![
                (75.0, "a".to_owned()),
                (f64::NAN, "b".to_owned()),
                (-1.0, "c".to_owned()),
                (25.0, "d".to_owned()),
            ],
            is_doubtful: false,
        };
        let group = StackGroup { name: "name".to_owned(), style: Style { color: 0, shape: 0 }, bars: vec![bar] };
        let chart = StackChart {
            title: String::new(),
            description: String::new(),
            axis: "ms".to_owned(),
            end: None,
            parts: [("forward", "a"), ("backward", "b"), ("waiting", "c"), ("other", "d")]
                .map(|(class, name)| (class, name.to_owned()))
                .into(),
            groups: vec![group],
        };
        let drawn = chart.drawing().figure().into_string();
        assert_eq!(drawn.matches("<rect class=\"area").count(), 2 + 2, "one sample for each part that is drawn");
        // The plot is 520 - 104 - 62 = 354 wide, for a value of 100.
        assert!(drawn.contains("width=\"265.5\"") && drawn.contains("width=\"88.5\""), "{drawn}");
        assert!(!drawn.contains("NaN") && drawn.contains("&lt;1n1g&gt;"), "{drawn}");
        assert!(!drawn.contains("unreliable"), "{drawn}");
        let mut doubtful = chart.clone();
        doubtful.groups[0].bars[0].is_doubtful = true;
        let drawn = doubtful.drawing().figure().into_string();
        assert_eq!(drawn.matches("<g class=\"unreliable\">").count(), 2, "{drawn}");
        assert!(drawn.contains("</svg> unreliable</li>"), "{drawn}");
        let empty = StackChart { groups: Vec::new(), ..chart };
        assert!(!empty.drawing().figure().into_string().contains("NaN"));
    }
}

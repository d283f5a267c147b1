//! Waterfall chart: breakdown of the difference between two step times.

use maud::{Markup, html};
use ringmark_core::number_text::three_digits;

use crate::read::show::page::charts::frame::{Drawing, Frame, LegendEntry, pale_entry, path, px};
use crate::read::show::page::charts::scale::{Scale, ScaleKind, extent};

const ROW: f64 = 26.0;
const BAR: f64 = 18.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Waterfall {
    pub title: String,
    pub description: String,
    pub axis: String,
    /// Label and value of the first bar.
    pub from: (String, f64),
    pub parts: Vec<WaterfallStep>,
    /// Label and value of the last bar.
    pub to: (String, f64),
    /// True if the values are unreliable; the bars are pale.
    pub is_doubtful: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct WaterfallStep {
    pub label: String,
    /// CSS class of the color.
    pub class: &'static str,
    /// Difference; negative if it makes the step shorter.
    pub value: f64,
    /// Margin of error of the difference, if known.
    pub margin: Option<f64>,
    pub tip: String,
}

impl Waterfall {
    pub fn drawing(&self) -> Drawing<'_> {
        let rows = self.parts.len() + 2;
        let frame = Frame::new(520.0, 10.0 + rows as f64 * ROW + 42.0, [170.0, 66.0, 10.0, 42.0]);
        let steps: Vec<(&WaterfallStep, f64, f64)> = self
            .parts
            .iter()
            .scan(self.from.1, |sum, part| {
                let start = *sum;
                *sum += if part.value.is_finite() { part.value } else { 0.0 };
                Some((part, start, *sum))
            })
            .collect();
        let ends =
            |part: &WaterfallStep, end: f64| [end - part.margin.unwrap_or(0.0), end + part.margin.unwrap_or(0.0)];
        let corners = steps.iter().flat_map(|(_, start, end)| [*start, *end]).chain([self.from.1, self.to.1]);
        let [low, high] = extent(corners).unwrap_or([0.0, 1.0]);
        // The chart is about the differences: the axis starts at 0 only if they are still visible.
        let from_zero = low <= 0.0 || high - low > 0.4 * high;
        let air = 0.12 * (high - low).max(0.02 * high.abs());
        // Whiskers are limited, so that large margins of error do not squeeze the bars.
        let whiskers = extent(steps.iter().flat_map(|(part, _, end)| ends(part, *end))).unwrap_or([low, high]);
        let room = 0.5 * (high - low);
        let low = low.min(whiskers[0].max(low - room));
        let high = high.max(whiskers[1].min(high + room));
        let x = Scale::new(
            ScaleKind::Linear,
            [if from_zero { low.min(0.0) } else { low - 2.0 * air }, high + air],
            frame.x_range(),
        );
        let top = |row: usize| frame.top + row as f64 * ROW + (ROW - BAR) / 2.0;
        let content = html! {
            (frame.x_axis_with_grid(&x, 5, &self.axis))
            (whole(&self.from, top(0), &x, from_zero))
            @for (row, (part, start, end)) in steps.iter().enumerate() {
                @let (left, right) = (x.at(start.min(*end)), x.at(start.max(*end)));
                @let top = top(row + 1);
                path class="link" d=(path([(x.at(*start), top - (ROW - BAR)), (x.at(*start), top + BAR)])) {}
                g {
                    title { (part.tip) }
                    rect class="hit" x=(px(left - 4.0)) y=(px(top)) width=(px(right - left + 8.0)) height=(px(BAR)) {}
                    rect class={ "area " (part.class) } x=(px(left)) y=(px(top)) width=(px((right - left).max(1.0))) height=(px(BAR)) {}
                }
                @let [low, high] = ends(part, *end).map(|end| x.at(end));
                @if part.margin.is_some() { path class="whisker" d=(path([(low, top + BAR / 2.0), (high, top + BAR / 2.0)])) {} }
                text class="label end" x=(px(frame.left - 8.0)) y=(px(top + 13.5)) { (part.label) }
                text class="label" x=(px(right.max(high) + 6.0)) y=(px(top + 13.5)) { (signed(part.value)) }
            }
            @if let Some((_, _, end)) = steps.last() {
                @let top = top(rows - 1);
                path class="link" d=(path([(x.at(*end), top - (ROW - BAR)), (x.at(*end), top)])) {}
            }
            (whole(&self.to, top(rows - 1), &x, from_zero))
        };
        let legend: Vec<LegendEntry> = self.is_doubtful.then(pale_entry).into_iter().collect();
        let content = html! { g class=[self.is_doubtful.then_some("unreliable")] { (content) } };
        Drawing { title: &self.title, description: &self.description, legend, frame, content }
    }
}

fn whole((label, value): &(String, f64), top: f64, x: &Scale, from_zero: bool) -> Markup {
    let left = if from_zero { x.at(0.0) } else { x.at(x.domain()[0]) };
    let width = (x.at(*value) - left).max(0.0);
    html! {
        text class="label end" x=(px(x.at(x.domain()[0]) - 8.0)) y=(px(top + 13.5)) { (label) }
        g {
            title { (label) ": " (three_digits(*value)) " ms" }
            rect class="area whole" x=(px(left)) y=(px(top)) width=(px(width)) height=(px(BAR)) {}
        }
        @if !from_zero {
            // Marks the bar as cut off: it starts at 0.
            path class="break" d=(path([(left + 9.0, top - 2.0), (left + 5.0, top + BAR / 2.0), (left + 9.0, top + BAR / 2.0), (left + 5.0, top + BAR + 2.0)])) {}
        }
        text class="label strong" x=(px(left + width + 6.0)) y=(px(top + 13.5)) { (three_digits(*value)) }
    }
}

/// Formats a number with its sign, using a true minus; numbers rounded to zero have no sign.
pub fn signed(value: f64) -> String {
    let text = three_digits(value.abs());
    match value {
        _ if text == "0.000" => text,
        ..0.0 => format!("\u{2212}{text}"),
        _ => format!("+{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(from: f64, parts: &[f64], to: f64) -> String {
        let part = |value: &f64| WaterfallStep {
            label: "<i>".to_owned(),
            class: "forward",
            value: *value,
            margin: Some(0.5),
            tip: "<u>".to_owned(),
        };
        let chart = Waterfall {
            title: String::new(),
            description: String::new(),
            axis: "ms".to_owned(),
            from: ("one".to_owned(), from),
            parts: parts.iter().map(part).collect(),
            to: ("many".to_owned(), to),
            is_doubtful: false,
        };
        chart.drawing().figure().into_string()
    }

    #[test]
    fn gains_and_losses_are_drawn() {
        let drawn = chart(100.0, &[5.0, -2.0, 7.0], 110.0);
        for value in ["+5.00", "\u{2212}2.00", "+7.00", ">100<", ">110<"] {
            assert!(drawn.contains(value), "{value} {drawn}");
        }
        assert!(drawn.contains("class=\"break\""), "the axis does not begin at 0");
        assert!(!chart(1.0, &[5.0], 6.0).contains("class=\"break\""));
    }

    #[test]
    fn rounded_zero_has_no_sign() {
        assert_eq!([1.5, -1.5, -0.0001, 0.0].map(signed), ["+1.50", "\u{2212}1.50", "0.000", "0.000"]);
    }

    #[test]
    fn waterfall_without_numbers_draws_no_nan() {
        for drawn in [chart(f64::NAN, &[f64::NAN, 1.0], f64::INFINITY), chart(0.0, &[], 0.0), chart(5.0, &[-9.0], -4.0)]
        {
            assert!(!drawn.contains("=\"NaN") && !drawn.contains("=\"inf") && !drawn.contains("<i>"), "{drawn}");
        }
    }
}

//! Time line of one iteration, with lanes for each rank on a common time axis, or of several runs. The page's script adds zooming.

use maud::{Markup, html};

use crate::read::show::page::charts::frame::{Drawing, Frame, area_entries, px};
use crate::read::show::page::charts::scale::Scale;

/// Width of the drawing: that of the page, with one unit per pixel. Narrower screens scroll.
const WIDTH: f64 = 1184.0;
/// Heights of a lane and of the bars in it.
const LANE: f64 = 15.0;
const BAR: f64 = 11.0;
/// Space above the lanes of a rank.
const GAP: f64 = 9.0;
/// Width per letter that a bar needs to contain its name.
const LETTER: f64 = 6.4;
/// Bars shorter than this, in units of the drawing, are merged with their neighbors.
const SHORTEST: f64 = 0.03;

#[derive(Debug, Clone, PartialEq)]
pub struct SpanChart {
    pub title: String,
    pub description: String,
    /// CSS class (for the color) and name of each kind; the legend has those that occur.
    pub kinds: Vec<(&'static str, &'static str)>,
    pub rows: Vec<SpanRow>,
    /// End of the axis; it starts at 0.
    pub end: f64,
    /// Unit of all times: `ms`.
    pub unit: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SpanRow {
    pub label: String,
    pub lanes: Vec<Vec<SpanBar>>,
}

/// An activity of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanBar {
    pub begin: f64,
    pub end: f64,
    pub class: &'static str,
    /// Text inside the bar if there is enough space; may be empty.
    pub name: String,
    pub tip: String,
    /// True if the bar is on the critical path of the iteration.
    pub is_critical: bool,
}

impl SpanChart {
    pub fn drawing(&self) -> Drawing<'_> {
        let lanes: usize = self.rows.iter().map(|row| row.lanes.len()).sum();
        let height = 18.0 + lanes as f64 * LANE + self.rows.len() as f64 * GAP + 40.0;
        let frame = Frame::new(WIDTH, height, [78.0, 12.0, 6.0, 40.0]);
        let x = Scale::linear([0.0, self.end], [Some(0.0), Some(self.end)], frame.x_range());
        let mut top = frame.top;
        let mut next = |space: f64| {
            top += space;
            top - space
        };
        let content = html! {
            (frame.x_axis_with_grid(&x, 8, self.unit))
            @for row in &self.rows {
                @let first = next(GAP) + GAP;
                text class="label" x="2" y=(px(first + GAP + BAR - 1.0)) { (row.label) }
                @for lane in &row.lanes {
                    @let place = next(LANE);
                    @for bar in merge_short_bars(lane, &x) { (draw(&bar, &x, place + GAP)) }
                }
            }
        };
        let bars = self.rows.iter().flat_map(|row| row.lanes.iter().flatten());
        let legend = area_entries(&self.kinds, &bars.map(|bar| bar.class).collect::<Vec<_>>());
        Drawing { title: &self.title, description: &self.description, legend, frame, content }
    }
}

/// Merges neighbors of one kind that are too short to be visible.
fn merge_short_bars(lane: &[SpanBar], x: &Scale) -> Vec<SpanBar> {
    let mut all: Vec<SpanBar> = Vec::new();
    for bar in lane.iter().filter(|bar| bar.end >= bar.begin && (bar.end - bar.begin).is_finite()) {
        let is_short = |bar: &SpanBar| x.at(bar.end) - x.at(bar.begin) < SHORTEST;
        match all.last_mut() {
            Some(last)
                if is_short(last)
                    && is_short(bar)
                    && last.class == bar.class
                    && x.at(bar.end) - x.at(last.begin) < 4.0 * SHORTEST =>
            {
                last.end = last.end.max(bar.end);
            }
            _ => all.push(bar.clone()),
        }
    }
    all
}

fn draw(bar: &SpanBar, x: &Scale, top: f64) -> Markup {
    let (left, width) = (x.at(bar.begin), x.at(bar.end) - x.at(bar.begin));
    let is_named = !bar.name.is_empty() && width > LETTER * bar.name.chars().count() as f64;
    let class = if bar.is_critical { "area critical " } else { "area " };
    html! {
        g class=(bar.class) {
            rect class=(class) x=(fine(left)) y=(px(top)) width=(fine(width.max(SHORTEST))) height=(px(BAR)) { title { (bar.tip) } }
            @if is_named {
                text class="inside" x=(px(left + width / 2.0)) y=(px(top + BAR - 2.0)) { (bar.name) }
            }
        }
    }
}

/// Formats a coordinate with two decimals, because readers can zoom.
fn fine(value: f64) -> String {
    format!("{value:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(begin: f64, end: f64) -> SpanBar {
        SpanBar {
            begin,
            end,
            class: "p0",
            name: "forward".to_owned(),
            tip: "tip".to_owned(),
            is_critical: begin == 0.0,
        }
    }

    #[test]
    fn names_need_space_and_tiny_spans_are_merged() {
        let crumbs =
            (0..4000).map(|number| bar(60.0 + 0.001 * f64::from(number), 60.0 + 0.001 * f64::from(number + 1)));
        let lanes = vec![vec![bar(0.0, 50.0), bar(50.0, 50.5)], crumbs.collect()];
        let chart = SpanChart {
            title: "iteration 3".to_owned(),
            description: String::new(),
            kinds: vec![("p0", "forward")],
            rows: vec![SpanRow { label: "rank 0".to_owned(), lanes }],
            end: 100.0,
            unit: "ms",
        };
        let drawn = chart.drawing().figure().into_string();
        assert_eq!(drawn.matches(">forward<").count(), 1, "{drawn}");
        assert_eq!(drawn.matches("critical").count(), 1);
        let bars = drawn.matches("<rect").count();
        assert!((300..1500).contains(&bars), "{bars}");
        assert!(!drawn.contains("NaN"));
    }
}

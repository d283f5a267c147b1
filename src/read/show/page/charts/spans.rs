//! What ranks did within one iteration: a row of lanes a rank, on one axis of time. The page's script lets the reader zoom.

use maud::{Markup, html};

use crate::read::show::page::charts::frame::{Drawing, Frame, area_entries, px};
use crate::read::show::page::charts::scale::Scale;

/// Width of the drawing: that of the page, where a unit is a pixel. Narrower screens scroll it.
const WIDTH: f64 = 1184.0;
/// Height of a lane, and of what is drawn in it.
const LANE: f64 = 15.0;
const BAR: f64 = 11.0;
/// Space above the lanes of a rank.
const GAP: f64 = 9.0;
/// Shortest bar that has its name in it, for each letter.
const LETTER: f64 = 6.4;
/// Shorter bars than this, in the drawing's units, are joined with those beside them.
const SHORTEST: f64 = 0.03;

/// The whole chart.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanChart {
    /// Above it.
    pub title: String,
    /// What it shows, for those who do not see it.
    pub description: String,
    /// Class (that of its colour) and name, for the key.
    pub kinds: Vec<(&'static str, &'static str)>,
    /// From top to bottom.
    pub rows: Vec<SpanRow>,
    /// End of the axis, in milliseconds; it begins at 0.
    pub end: f64,
}

/// A rank.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanRow {
    /// On its left.
    pub label: String,
    /// From top to bottom.
    pub lanes: Vec<Vec<SpanBar>>,
}

/// From a time to another, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanBar {
    /// From.
    pub begin: f64,
    /// To.
    pub end: f64,
    /// Of its colour.
    pub class: &'static str,
    /// Written in it, where there is space; may be empty.
    pub name: String,
    /// Shown at it.
    pub tip: String,
    /// Whether the iteration waited for it.
    pub is_critical: bool,
}

impl SpanChart {
    /// The drawing, with a sample of every kind.
    pub fn drawing(&self) -> Drawing<'_> {
        let lanes: usize = self.rows.iter().map(|row| row.lanes.len()).sum();
        let height = 18.0 + lanes as f64 * LANE + self.rows.len() as f64 * GAP + 40.0;
        let frame = Frame::new(WIDTH, height, [78.0, 12.0, 6.0, 40.0]);
        let x = Scale::linear([0.0, self.end], [Some(0.0), Some(self.end)], frame.across());
        let mut top = frame.top;
        let mut next = |space: f64| {
            top += space;
            top - space
        };
        let content = html! {
            (frame.columns(&x, 8, "ms"))
            @for row in &self.rows {
                @let first = next(GAP) + GAP;
                text class="label" x="2" y=(px(first + BAR)) { (row.label) }
                @for lane in &row.lanes {
                    @let place = next(LANE);
                    @for bar in joined(lane, &x) { (draw(&bar, &x, place + GAP)) }
                }
            }
        };
        let key = area_entries(&self.kinds);
        Drawing { title: &self.title, description: &self.description, key, frame, content }
    }
}

/// Neighbours of one kind that are too short to be seen become one.
fn joined(lane: &[SpanBar], x: &Scale) -> Vec<SpanBar> {
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

/// To a hundredth: a reader who zooms sees it.
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
    fn a_name_is_written_where_it_has_space_and_crumbs_are_swept_together() {
        let crumbs =
            (0..4000).map(|number| bar(60.0 + 0.001 * f64::from(number), 60.0 + 0.001 * f64::from(number + 1)));
        let lanes = vec![vec![bar(0.0, 50.0), bar(50.0, 50.5)], crumbs.collect()];
        let chart = SpanChart {
            title: "iteration 3".to_owned(),
            description: String::new(),
            kinds: vec![("p0", "forward")],
            rows: vec![SpanRow { label: "rank 0".to_owned(), lanes }],
            end: 100.0,
        };
        let drawn = chart.drawing().figure().into_string();
        assert_eq!(drawn.matches(">forward<").count(), 1, "{drawn}");
        assert_eq!(drawn.matches("critical").count(), 1);
        let bars = drawn.matches("<rect").count();
        assert!((300..1500).contains(&bars), "{bars}");
        assert!(!drawn.contains("NaN"));
    }
}

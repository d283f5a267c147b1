//! Charts as data, and as SVG that needs only the page's style sheet. Every mark has its values in a `title` element,
//! which browsers show even without scripts; the page's script shows it sooner. The charts are chosen in `content`.
//!
//! | module | contents |
//! |---|---|
//! | [`scale`] | mapping of values to coordinates, with round ticks |
//! | [`frame`] | plot area, axes, markers, number formatting for SVG |
//! | [`style`] | color, marker and dashes of a series |
//! | [`labels`] | names at the ends of lines, placed without overlap |
//! | [`lines`] | line charts: throughput, speedup, efficiency, bus bandwidth, speed by batch size |
//! | [`bars`] | bar charts of the same values for at most two cases |
//! | [`stack`] | stacked bars: breakdown of the step time |
//! | [`spans`] | time line of one iteration, with lanes for each rank |
//! | [`step_times`] | step time over all iterations of a run, downsampled without losing outliers |
//! | [`ranks`] | spread of the step time of each rank, grouped by host |
//! | [`matrix`] | pairs of hosts, colored by class |
//! | [`waterfall`] | breakdown of the difference between two step times |

pub mod bars;
pub mod frame;
pub mod labels;
pub mod lines;
pub mod matrix;
pub mod ranks;
pub mod scale;
pub mod spans;
pub mod stack;
pub mod step_times;
pub mod style;
pub mod waterfall;

use maud::{Markup, html};

use crate::read::show::page::charts::bars::BarChart;
use crate::read::show::page::charts::frame::Drawing;
use crate::read::show::page::charts::lines::LineChart;
use crate::read::show::page::charts::matrix::MatrixChart;
use crate::read::show::page::charts::ranks::RankChart;
use crate::read::show::page::charts::spans::SpanChart;
use crate::read::show::page::charts::stack::StackChart;
use crate::read::show::page::charts::step_times::StepTimes;
use crate::read::show::page::charts::waterfall::Waterfall;

#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    Lines(LineChart),
    Bars(BarChart),
    Stack(StackChart),
    StepTimes(StepTimes),
    Ranks(RankChart),
    Waterfall(Waterfall),
    Spans(SpanChart),
    Matrix(MatrixChart),
}

impl Chart {
    /// Returns the figure element: caption, legend and drawing.
    pub fn draw(&self) -> Markup {
        match self {
            Chart::Spans(_) => html! { div class="zoom" { (self.drawing().figure()) } },
            _ => self.drawing().figure(),
        }
    }

    /// Returns the chart as a separate picture; `None` for charts that make sense only next to others.
    pub fn picture(&self) -> Option<Drawing<'_>> {
        matches!(self, Chart::Lines(_) | Chart::Bars(_) | Chart::Matrix(_)).then(|| self.drawing())
    }

    fn drawing(&self) -> Drawing<'_> {
        match self {
            Chart::Lines(chart) => chart.drawing(),
            Chart::Bars(chart) => chart.drawing(),
            Chart::Stack(chart) => chart.drawing(),
            Chart::StepTimes(chart) => chart.drawing(),
            Chart::Ranks(chart) => chart.drawing(),
            Chart::Waterfall(chart) => chart.drawing(),
            Chart::Spans(chart) => chart.drawing(),
            Chart::Matrix(chart) => chart.drawing(),
        }
    }

    /// Returns the CSS class of a row of such charts, which determines their width.
    pub fn row_class(&self) -> &'static str {
        match self {
            Chart::Lines(_) | Chart::Bars(_) => "charts",
            Chart::StepTimes(_) => "charts small",
            Chart::Spans(_) => "charts full",
            Chart::Stack(_) | Chart::Ranks(_) | Chart::Waterfall(_) | Chart::Matrix(_) => "charts large",
        }
    }
}

//! Charts as data, and as SVG that needs nothing but the page's style sheet. Every mark has its values as a title, which a
//! browser shows without a script and the page's script shows sooner. Not for what is drawn: see `content`.
//!
//! | module | what it is for |
//! |---|---|
//! | [`scale`] | from values to places, with round ticks |
//! | [`frame`] | plot area, axes, markers, numbers as SVG writes them |
//! | [`style`] | what distinguishes a series from the others: colour, marker, dashes |
//! | [`labels`] | names at the ends of lines, where none lies on another |
//! | [`lines`] | lines with a dot a run: throughput, speedup, efficiency, bus bandwidth, speed by batch size |
//! | [`bars`] | the same of at most two cases, a bar each |
//! | [`stack`] | bars of parts: where a step's time goes |
//! | [`spans`] | what ranks did within one iteration, lane by lane |
//! | [`timeline`] | every iteration of a run, thinned out so that no outlier is lost |
//! | [`ranks`] | the spread of every rank, hosts side by side |
//! | [`waterfall`] | from one time to another by parts that add up |

pub mod bars;
pub mod frame;
pub mod labels;
pub mod lines;
pub mod ranks;
pub mod scale;
pub mod spans;
pub mod stack;
pub mod style;
pub mod timeline;
pub mod waterfall;

use maud::{Markup, html};

use crate::read::show::page::charts::bars::BarChart;
use crate::read::show::page::charts::frame::Drawing;
use crate::read::show::page::charts::lines::LineChart;
use crate::read::show::page::charts::ranks::RankChart;
use crate::read::show::page::charts::spans::SpanChart;
use crate::read::show::page::charts::stack::StackChart;
use crate::read::show::page::charts::timeline::Timeline;
use crate::read::show::page::charts::waterfall::Waterfall;

/// Any chart.
#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    /// Values over ranks, runs or sizes.
    Lines(LineChart),
    /// Values of one case or two, or of batch sizes.
    Bars(BarChart),
    /// Parts of a whole.
    Stack(StackChart),
    /// Iterations of one run.
    Timeline(Timeline),
    /// Every rank of a case.
    Ranks(RankChart),
    /// From one whole to another.
    Waterfall(Waterfall),
    /// Within one iteration.
    Spans(SpanChart),
}

impl Chart {
    /// A figure: caption, key, drawing.
    pub fn draw(&self) -> Markup {
        match self {
            Chart::Spans(_) => html! { div class="zoom" { (self.drawing().figure()) } },
            _ => self.drawing().figure(),
        }
    }

    /// A picture of its own; `None` of charts that are read beside others.
    pub fn picture(&self) -> Option<Drawing<'_>> {
        matches!(self, Chart::Lines(_) | Chart::Bars(_)).then(|| self.drawing())
    }

    fn drawing(&self) -> Drawing<'_> {
        match self {
            Chart::Lines(chart) => chart.drawing(),
            Chart::Bars(chart) => chart.drawing(),
            Chart::Stack(chart) => chart.drawing(),
            Chart::Timeline(chart) => chart.drawing(),
            Chart::Ranks(chart) => chart.drawing(),
            Chart::Waterfall(chart) => chart.drawing(),
            Chart::Spans(chart) => chart.drawing(),
        }
    }

    /// Class of a row of such charts: how much space each needs.
    pub fn row_class(&self) -> &'static str {
        match self {
            Chart::Lines(_) | Chart::Bars(_) => "charts",
            Chart::Timeline(_) => "charts small",
            Chart::Spans(_) => "charts full",
            Chart::Stack(_) | Chart::Ranks(_) | Chart::Waterfall(_) => "charts large",
        }
    }
}

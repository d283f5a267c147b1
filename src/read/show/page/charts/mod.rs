//! Charts as data, and as SVG that needs nothing but the page's style sheet. Every mark has its values as a title, which a
//! browser shows without a script and the page's script shows sooner. Not for what is drawn: see `content`.
//!
//! | module | what it is for |
//! |---|---|
//! | [`scale`] | from values to places, with round ticks |
//! | [`frame`] | plot area, axes, markers, numbers as SVG writes them |
//! | [`style`] | what distinguishes a series from the others: colour, marker, dashes |
//! | [`lines`] | lines with a dot a run: throughput, speedup, efficiency, bus bandwidth |
//! | [`stack`] | bars of parts: where a step's time goes |
//! | [`timeline`] | every iteration of a run, thinned out so that no outlier is lost |
//! | [`ranks`] | the spread of every rank, hosts side by side |
//! | [`waterfall`] | from one time to another by parts that add up |

pub mod frame;
pub mod lines;
pub mod ranks;
pub mod scale;
pub mod stack;
pub mod style;
pub mod timeline;
pub mod waterfall;

use maud::{Markup, html};

use crate::read::show::page::charts::lines::LineChart;
use crate::read::show::page::charts::ranks::RankChart;
use crate::read::show::page::charts::stack::StackChart;
use crate::read::show::page::charts::timeline::Timeline;
use crate::read::show::page::charts::waterfall::Waterfall;

/// Any chart.
#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    /// Values over ranks, runs or sizes.
    Lines(LineChart),
    /// Parts of a whole.
    Stack(StackChart),
    /// Iterations of one run.
    Timeline(Timeline),
    /// Every rank of a case.
    Ranks(RankChart),
    /// From one whole to another.
    Waterfall(Waterfall),
}

impl Chart {
    /// A figure: caption, key, drawing.
    pub fn draw(&self) -> Markup {
        let (title, key, drawing) = match self {
            Chart::Lines(chart) => (&chart.title, chart.key(), chart.draw()),
            Chart::Stack(chart) => (&chart.title, chart.key(), chart.draw()),
            Chart::Timeline(chart) => (&chart.title, html! {}, chart.draw()),
            Chart::Ranks(chart) => (&chart.title, chart.key(), chart.draw()),
            Chart::Waterfall(chart) => (&chart.title, html! {}, chart.draw()),
        };
        html! {
            figure {
                figcaption { (title) }
                (key)
                (drawing)
            }
        }
    }

    /// Class of a row of such charts: how much space each needs.
    pub fn row_class(&self) -> &'static str {
        match self {
            Chart::Lines(_) => "charts",
            Chart::Timeline(_) => "charts small",
            Chart::Stack(_) | Chart::Ranks(_) | Chart::Waterfall(_) => "charts large",
        }
    }
}

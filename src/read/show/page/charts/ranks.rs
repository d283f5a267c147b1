//! Spread of each rank: a line from the 5th to the 95th percentile with a mark at the median, grouped by host.

use maud::{Markup, html};
use ringmark_core::stats::summary::Spread;

use crate::output::table::Style;
use crate::read::show::page::charts::frame::{Drawing, Frame, LegendEntry, mark_sample, path, px};
use crate::read::show::page::charts::scale::{Scale, number};
use crate::read::show::page::charts::style::color;

/// Approximate width of a letter.
const LETTER: f64 = 6.4;

#[derive(Debug, Clone, PartialEq)]
pub struct RankChart {
    pub title: String,
    pub description: String,
    /// Name of the vertical axis, with its unit.
    pub axis: String,
    pub style: Style,
    pub hosts: Vec<HostOfRanks>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct HostOfRanks {
    pub name: String,
    pub ranks: Vec<RankSpread>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RankSpread {
    pub rank: u32,
    /// Median, 5th and 95th percentile.
    pub spread: Spread,
    /// True if a warning reports the rank as slow.
    pub is_slow: bool,
    pub tip: String,
}

impl RankChart {
    fn legend(&self) -> Vec<LegendEntry> {
        let has_slow = self.hosts.iter().flat_map(|host| &host.ranks).any(|rank| rank.is_slow);
        let class = format!("rank {}", color(self.style));
        let usual = (mark_sample(&class, "M7 1V13M3.5 7H10.5"), "5th, 50th and 95th percentile of a rank".to_owned());
        let slow = (mark_sample("slow", &diamond(7.0, 7.0)), "slow (see the warnings)".to_owned());
        [usual].into_iter().chain(has_slow.then_some(slow)).collect()
    }

    pub fn drawing(&self) -> Drawing<'_> {
        let frame = Frame::new(520.0, 300.0, [56.0, 10.0, 26.0, 56.0]);
        let ranks = || self.hosts.iter().flat_map(|host| &host.ranks);
        let y = Scale::linear(ranks().flat_map(|rank| [rank.spread.low, rank.spread.high]), [None; 2], frame.y_range());
        let slot = (frame.right - frame.left) / ranks().count().max(1) as f64;
        let starts = self.hosts.iter().scan(frame.left, |next, host| {
            let start = *next;
            *next += slot * host.ranks.len() as f64;
            Some((start, *next))
        });
        let starts: Vec<(f64, f64)> = starts.collect();
        // Numbers only every n-th rank if there is not enough space for all.
        let every = (26.0 / slot).ceil().max(1.0) as usize;
        let content = html! {
            @for (index, (host, (start, end))) in self.hosts.iter().zip(&starts).enumerate() {
                g {
                    title { (host.name) }
                    rect class=(if index % 2 == 0 { "host even" } else { "host" })
                        x=(px(*start)) y=(px(frame.top)) width=(px(end - start)) height=(px(frame.bottom - frame.top)) {}
                    @if let Some(name) = fitting(&host.name, end - start) {
                        text class="tick middle faint" x=(px((start + end) / 2.0)) y=(px(frame.bottom + 33.0)) { (name) }
                    }
                }
            }
            (frame.y_axis(&y, &self.axis, number))
            @for (host, (start, _)) in self.hosts.iter().zip(&starts) {
                @for (number, rank) in host.ranks.iter().enumerate() {
                    @let x = start + slot * (number as f64 + 0.5);
                    (draw_rank(rank, self.style, x, slot, &y))
                    @if number % every == 0 {
                        text class="tick middle" x=(px(x)) y=(px(frame.bottom + 18.0)) { (rank.rank) }
                    }
                }
            }
            (frame.x_axis(&[], "rank, by host"))
        };
        Drawing { title: &self.title, description: &self.description, legend: self.legend(), frame, content }
    }
}

fn draw_rank(rank: &RankSpread, style: Style, x: f64, slot: f64, y: &Scale) -> Markup {
    let Spread { low, middle, high } = rank.spread;
    let (arm, at) = ((slot * 0.38).clamp(0.4, 7.0), y.at(middle));
    let arms = path([(x - arm, at), (x + arm, at)]);
    html! {
        g {
            title { (rank.tip) }
            rect class="hit" x=(px(x - slot / 2.0)) y=(px(y.at(high) - 6.0)) width=(px(slot)) height=(px(y.at(low) - y.at(high) + 12.0)) {}
            path class={ "rank " (color(style)) } d={ (path([(x, y.at(low)), (x, y.at(high))])) (arms) } {}
            @if rank.is_slow { path class="slow" d=(diamond(x, at)) {} }
        }
    }
}

/// Returns a mark that no series uses in this chart.
fn diamond(x: f64, y: f64) -> String {
    path([(x, y - 6.0), (x + 5.0, y), (x, y + 6.0), (x - 5.0, y)]) + "Z"
}

/// Shortens a name to the width; returns `None` if too little of it would be left.
fn fitting(name: &str, width: f64) -> Option<String> {
    let letters = (width / LETTER) as usize;
    match name.chars().count() {
        count if count <= letters => Some(name.to_owned()),
        _ if letters < 4 => None,
        // Host names differ at the end.
        count => Some(format!("\u{2026}{}", name.chars().skip(count - letters + 1).collect::<String>())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(hosts: usize, ranks: usize, spread: Spread) -> RankChart {
        let rank = |rank| RankSpread { rank, spread, is_slow: rank == 3, tip: format!("<i>{rank}") };
        let host = |host: usize| HostOfRanks {
            name: format!("<b>node-{host}"),
            ranks: (host * ranks..(host + 1) * ranks).map(|number| rank(number as u32)).collect(),
        };
        RankChart {
            title: String::new(),
            description: String::new(),
            axis: "ms".to_owned(),
            style: Style { color: 1, shape: 0 },
            hosts: (0..hosts).map(host).collect(),
        }
    }

    #[test]
    fn every_rank_is_drawn_with_escaped_names() {
        for (hosts, ranks) in [(0, 0), (1, 1), (1, 2), (8, 8), (128, 8)] {
            let chart = chart(hosts, ranks, Spread { low: 1.0, middle: 2.0, high: 3.0 });
            let drawn = chart.drawing().figure().into_string();
            assert_eq!(drawn.matches("class=\"hit\"").count(), hosts * ranks);
            assert!(hosts == 0 || drawn.contains("\"rank s1\"") && !drawn.contains("\"rank s0\""), "{drawn}");
            let slow = if hosts * ranks > 3 { 2 } else { 0 };
            assert_eq!(drawn.matches("class=\"slow\"").count(), slow, "the rank and the legend");
            assert!(!drawn.contains("NaN") && !drawn.contains("<b>") && !drawn.contains("<i>"), "{drawn}");
        }
        let drawn =
            chart(1, 4, Spread { low: f64::NAN, middle: f64::NAN, high: f64::NAN }).drawing().figure().into_string();
        assert!(!drawn.contains("NaN"), "{drawn}");
    }

    #[test]
    fn long_names_are_shortened() {
        assert_eq!(fitting("node-1", 100.0).as_deref(), Some("node-1"));
        assert_eq!(fitting("rack7-node-12", 40.0).as_deref(), Some("\u{2026}de-12"));
        assert_eq!(fitting("rack7-node-12", 20.0), None);
    }
}

//! Matrix of pairs: a square for each measured pair of hosts, colored by its class.

use maud::{Markup, html};

use crate::read::show::page::charts::frame::{Drawing, Frame, area_entries, area_sample, px};

/// Width and height of the area of the squares, in pixels.
const SIDE: f64 = 1000.0;
/// Largest width of a square.
const LARGEST: f64 = 44.0;
/// Smallest distance between two names.
const NAME_SPACE: f64 = 15.0;
/// Width of the longest name, of at most so many letters.
const LETTER: f64 = 6.8;
const MAX_LETTERS: usize = 18;

/// CSS class of pairs without a measurement.
const UNMEASURED: &str = "host even";

#[derive(Debug, Clone, PartialEq)]
pub struct MatrixChart {
    pub title: String,
    pub description: String,
    /// Names of rows and columns.
    pub names: Vec<String>,
    /// CSS class (for the color) and name of each kind; the legend has those that occur.
    pub kinds: Vec<(&'static str, &'static str)>,
    pub cells: Vec<MatrixCell>,
}

/// A pair, drawn on both sides of the diagonal.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixCell {
    pub row: usize,
    pub column: usize,
    pub class: &'static str,
    pub tip: String,
    /// True if it has an outline.
    pub is_marked: bool,
}

impl MatrixChart {
    pub fn drawing(&self) -> Drawing<'_> {
        let count = self.names.len().max(1) as f64;
        let size = (SIDE / count).min(LARGEST);
        let letters = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(MAX_LETTERS);
        let names = 8.0 + LETTER * letters as f64;
        let side = size * count;
        let frame = Frame::new(names + side + 2.0, names + side + 2.0, [names, 2.0, names, 2.0]);
        // Names only at every n-th host if there is not enough space for all.
        let every = (NAME_SPACE / size).ceil().max(1.0) as usize;
        let content = html! {
            rect class=(UNMEASURED) x=(px(names)) y=(px(names)) width=(px(side)) height=(px(side)) {}
            @for (index, name) in self.names.iter().enumerate().step_by(every) {
                @let middle = names + size * (index as f64 + 0.5);
                @let name = shortened(name);
                text class="tick end" x=(px(names - 5.0)) y=(px(middle + 4.0)) { (name) }
                text class="tick" x="0" y="0" transform={ "translate(" (px(middle + 4.0)) " " (px(names - 5.0)) ") rotate(-90)" } { (name) }
            }
            @for cell in &self.cells { (self.draw(cell, names, size)) }
        };
        let mut legend = area_entries(&self.kinds, &self.cells.iter().map(|cell| cell.class).collect::<Vec<_>>());
        let is_complete = self.cells.len() >= self.names.len() * self.names.len().saturating_sub(1) / 2;
        legend.extend((!is_complete).then(|| (area_sample(UNMEASURED), "not measured".to_owned())));
        Drawing { title: &self.title, description: &self.description, legend, frame, content }
    }

    fn draw(&self, cell: &MatrixCell, start: f64, size: f64) -> Markup {
        let gap = if size > 6.0 { 1.0 } else { 0.0 };
        let class = if cell.is_marked { "area critical" } else { "area" };
        html! {
            @for (row, column) in [(cell.row, cell.column), (cell.column, cell.row)] {
                g class=(cell.class) {
                    rect class=(class) x=(px(start + size * column as f64)) y=(px(start + size * row as f64))
                        width=(px(size - gap)) height=(px(size - gap)) { title { (cell.tip) } }
                }
            }
        }
    }
}

fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= MAX_LETTERS {
        return name.to_owned();
    }
    // The numbers at the end distinguish hosts.
    format!("\u{2026}{}", name.chars().skip(count + 1 - MAX_LETTERS).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(hosts: usize) -> MatrixChart {
        let cell =
            |row| MatrixCell { row, column: row + 1, class: "transfer", tip: "tip".to_owned(), is_marked: row == 0 };
        MatrixChart {
            title: "pairs".to_owned(),
            description: String::new(),
            names: (0..hosts).map(|host| format!("a-long-name-of-a-host-{host:04}")).collect(),
            kinds: vec![("transfer", "slow")],
            cells: (0..hosts - 1).map(cell).collect(),
        }
    }

    #[test]
    fn pairs_are_drawn_twice_and_names_have_space() {
        let drawn = chart(4).drawing().figure().into_string();
        assert_eq!(drawn.matches("<title>tip</title>").count(), 6, "{drawn}");
        assert_eq!(drawn.matches("area critical").count(), 2);
        assert_eq!(drawn.matches("of-a-host-0003</text>").count(), 2, "{drawn}");
        assert!(drawn.contains("</svg> not measured</li>"), "three of six pairs: {drawn}");
        let drawn = chart(1024).drawing().figure().into_string();
        let names = drawn.matches("</text>").count() / 2;
        assert!((50..80).contains(&names), "{names}");
        assert!(!drawn.contains("NaN"));
        assert!(!chart(2).drawing().figure().into_string().contains("not measured"));
    }
}

//! What distinguishes a series from the others in every chart: colour, marker, dashes. The colours themselves are in
//! the style sheet.

use maud::{Markup, html};
use ringmark_core::dimension::Phase;

use crate::read::show::page::charts::frame::{path, px};
use crate::read::show::table::Style;

/// Colours of results; then they come again, with other markers. The style sheet has as many.
pub const COLOURS: usize = 7;

/// Kinds of marker, and of dashes.
const SHAPES: usize = 6;

/// Classes of the phases' colours; the style sheet has as many. Input has the fifth, so that the others keep the colours that
/// they had before it.
const PHASES: [&str; 8] = ["p4", "p0", "p1", "p2", "p3", "p5", "p6", "p7"];

/// Class that gives a phase its colour.
pub fn phase_class(phase: Phase) -> &'static str {
    PHASES[phase as usize % PHASES.len()]
}

/// Class that gives a series its colour.
pub fn colour(style: Style) -> String {
    format!("s{}", style.colour % COLOURS)
}

/// Class that gives a series its colour and its dashes.
pub fn line_class(style: Style) -> String {
    format!("line {} d{}", colour(style), style.shape % SHAPES)
}

/// Outline of a series' marker around a place, `r` from its middle to its edge.
pub fn marker(style: Style, x: f64, y: f64, r: f64) -> String {
    let polygon = |corners: &[(f64, f64)]| path(corners.iter().map(|(dx, dy)| (x + dx * r, y + dy * r))) + "Z";
    match style.shape % SHAPES {
        0 => {
            let (r, left, right) = (px(r), px(x - r), px(x + r));
            format!("M{left} {}A{r} {r} 0 1 1 {right} {}A{r} {r} 0 1 1 {left} {}Z", px(y), px(y), px(y))
        }
        1 => polygon(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => polygon(&[(0.0, -1.2), (1.15, 0.9), (-1.15, 0.9)]),
        3 => polygon(&[(0.0, -1.3), (1.2, 0.0), (0.0, 1.3), (-1.2, 0.0)]),
        4 => polygon(&[(0.0, 1.2), (1.15, -0.9), (-1.15, -0.9)]),
        _ => polygon(&[
            (-1.2, -0.4),
            (-0.4, -0.4),
            (-0.4, -1.2),
            (0.4, -1.2),
            (0.4, -0.4),
            (1.2, -0.4),
            (1.2, 0.4),
            (0.4, 0.4),
            (0.4, 1.2),
            (-0.4, 1.2),
            (-0.4, 0.4),
            (-1.2, 0.4),
        ]),
    }
}

/// Sample of a series' line.
pub fn line_sample(style: Style) -> Markup {
    html! {
        svg class="sample" viewBox="0 0 30 14" aria-hidden="true" {
            path class=(line_class(style)) d="M1 7L29 7" {}
            path class={ "dot " (colour(style)) } d=(marker(style, 15.0, 7.0, 4.5)) {}
        }
    }
}

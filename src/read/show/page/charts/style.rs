//! Color, marker and dashes that distinguish a series in every chart. The style sheet defines the colors.

use maud::{Markup, html};
use ringmark_core::dimension::Phase;

use crate::output::table::Style;
use crate::read::show::page::charts::frame::{path, px};

/// Number of colors in the style sheet; further results reuse them with other markers.
pub const COLORS: usize = 7;

/// Number of markers, and of dash patterns.
const SHAPES: usize = 6;

/// CSS classes of the phases' colors, as defined in the style sheet. Input has the fifth, so that the older phases keep
/// their colors.
const PHASES: [&str; 8] = ["p4", "p0", "p1", "p2", "p3", "p5", "p6", "p7"];

pub fn phase_class(phase: Phase) -> &'static str {
    PHASES[phase as usize % PHASES.len()]
}

/// Returns the CSS class of a series' color.
pub fn color(style: Style) -> String {
    format!("s{}", style.color % COLORS)
}

/// Returns the CSS classes of a series' color and dashes.
pub fn line_class(style: Style) -> String {
    format!("line {} d{}", color(style), style.shape % SHAPES)
}

/// Returns the outline of a series' marker with center (`x`, `y`) and radius `r`.
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

pub fn line_sample(style: Style) -> Markup {
    html! {
        svg class="sample" viewBox="0 0 30 14" aria-hidden="true" {
            path class=(line_class(style)) d="M1 7L29 7" {}
            path class={ "dot " (color(style)) } d=(marker(style, 15.0, 7.0, 4.5)) {}
        }
    }
}

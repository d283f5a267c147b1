//! Names at the ends of lines, placed so that they do not overlap.

use maud::{Markup, html};

use crate::read::show::page::charts::frame::{Frame, path, px};

/// Width of a letter at the scale of a phone, which shows larger letters than a desktop.
const LETTER: f64 = 8.1;

/// Space between the plot and the names, and between the names and the edge of the drawing.
const SPACE: [f64; 2] = [16.0, 4.0];

/// Minimum distance between two names.
const LINE: f64 = 16.0;

/// Maximum margin, so that enough of the drawing is left for the lines.
const WIDEST: f64 = 176.0;

pub struct Label<'a> {
    pub name: &'a str,
    /// End of the line that it names.
    pub end: (f64, f64),
}

/// Returns the margin needed for the names, or `None` if it would leave too little space for the plot.
pub fn margin<'a>(names: impl Iterator<Item = &'a str>) -> Option<f64> {
    let letters = names.map(|name| name.chars().count()).max()?;
    Some(SPACE[0] + SPACE[1] + LETTER * letters as f64).filter(|margin| *margin <= WIDEST)
}

/// Draws each name next to the plot, as close as possible to the end of its line.
pub fn draw(labels: &[Label], frame: &Frame) -> Markup {
    let wanted: Vec<f64> = labels.iter().map(|label| label.end.1).collect();
    let heights = spread_out(&wanted, LINE, [frame.top, frame.bottom]);
    html! {
        @for (label, height) in labels.iter().zip(heights) {
            @let (x, y) = label.end;
            @let left = frame.right + SPACE[0];
            @if (height - y).abs() > 2.0 || x < frame.right - LINE {
                path class="link" d=(path([(x + 6.0, y), (left - 3.0, height)])) {}
            }
            text class="tick" x=(px(left)) y=(px(height + 4.0)) { (label.name) }
        }
    }
}

/// Returns heights near the wanted ones, at least `gap` apart, and between the two limits if there is enough space.
fn spread_out(wanted: &[f64], gap: f64, [low, high]: [f64; 2]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut heights = vec![low; wanted.len()];
    let mut least = low;
    for place in &order {
        heights[*place] = wanted[*place].max(least);
        least = heights[*place] + gap;
    }
    let mut most = high;
    for place in order.iter().rev() {
        heights[*place] = heights[*place].min(most);
        most = heights[*place] - gap;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap_and_stay_near_their_lines() {
        assert_eq!(spread_out(&[10.0, 50.0, 90.0], 16.0, [0.0, 100.0]), [10.0, 50.0, 90.0]);
        assert_eq!(spread_out(&[50.0, 50.0], 16.0, [0.0, 100.0]), [50.0, 66.0]);
        assert_eq!(spread_out(&[95.0, 98.0, 10.0], 16.0, [0.0, 100.0]), [84.0, 100.0, 10.0]);
        assert_eq!(spread_out(&[-5.0, 2.0], 16.0, [0.0, 100.0]), [0.0, 16.0]);
        assert_eq!(spread_out(&[], 16.0, [0.0, 100.0]), [0.0; 0]);
    }

    #[test]
    fn too_long_names_have_no_margin() {
        assert_eq!(margin(["fp32", "bf16"].into_iter()), Some(16.0 + 4.0 + 4.0 * LETTER));
        assert_eq!(margin(["a".repeat(40).as_str()].into_iter()), None);
        assert_eq!(margin([].into_iter()), None);
    }
}

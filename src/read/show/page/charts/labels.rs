//! Names at the ends of lines: where each stands so that none lies on another, and the drawing of them.

use maud::{Markup, html};

use crate::read::show::page::charts::frame::{Frame, path, px};

/// Width of a letter, where a phone shows letters larger than a desk does.
const LETTER: f64 = 8.1;

/// Space between the plot and the names, and from the drawing's edge.
const SPACE: [f64; 2] = [16.0, 4.0];

/// Between two names.
const LINE: f64 = 16.0;

/// Widest margin that leaves enough of the drawing for the lines.
const WIDEST: f64 = 176.0;

/// A name to be placed.
pub struct Label<'a> {
    /// What it says.
    pub name: &'a str,
    /// Where its line ends.
    pub end: (f64, f64),
}

/// Margin that the names need; `None` where they would leave too little space.
pub fn margin<'a>(names: impl Iterator<Item = &'a str>) -> Option<f64> {
    let letters = names.map(|name| name.chars().count()).max()?;
    Some(SPACE[0] + SPACE[1] + LETTER * letters as f64).filter(|margin| *margin <= WIDEST)
}

/// Each beside the plot, at the height of its line's end or as near to it as the others let it be.
pub fn draw(labels: &[Label], frame: &Frame) -> Markup {
    let wanted: Vec<f64> = labels.iter().map(|label| label.end.1).collect();
    let heights = apart(&wanted, LINE, [frame.top, frame.bottom]);
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

/// Heights in the order of those that are wanted, none nearer to another than `gap`, all between the two ends where there is
/// space for all.
fn apart(wanted: &[f64], gap: f64, [low, high]: [f64; 2]) -> Vec<f64> {
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
    fn names_are_apart_and_as_near_to_their_lines_as_that_lets_them() {
        assert_eq!(apart(&[10.0, 50.0, 90.0], 16.0, [0.0, 100.0]), [10.0, 50.0, 90.0]);
        assert_eq!(apart(&[50.0, 50.0], 16.0, [0.0, 100.0]), [50.0, 66.0]);
        assert_eq!(apart(&[95.0, 98.0, 10.0], 16.0, [0.0, 100.0]), [84.0, 100.0, 10.0]);
        assert_eq!(apart(&[-5.0, 2.0], 16.0, [0.0, 100.0]), [0.0, 16.0]);
        assert_eq!(apart(&[], 16.0, [0.0, 100.0]), [0.0; 0]);
    }

    #[test]
    fn names_that_are_too_long_have_no_place() {
        assert_eq!(margin(["fp32", "bf16"].into_iter()), Some(16.0 + 4.0 + 4.0 * LETTER));
        assert_eq!(margin(["a".repeat(40).as_str()].into_iter()), None);
        assert_eq!(margin([].into_iter()), None);
    }
}

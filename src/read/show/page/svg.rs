//! Self-contained SVG picture for a README: the first charts of the report, with their own style, light and dark, and
//! no script.

use maud::{Markup, PreEscaped, html};
use ringmark_core::untrusted_text::printable;

use crate::read::analyze::assessment::Trust;
use crate::read::show::numbers::marked;
use crate::read::show::page::charts::frame::{Drawing, LegendEntry, px};
use crate::read::show::page::document::{Document, Figure, Headline, Section, Subject};

const STYLE: &str = concat!(
    include_str!("charts/colors.css"),
    include_str!("charts/charts.css"),
    ".card { fill: var(--paper); stroke: var(--line); }\n\
     svg .heading { font-size: 15px; font-weight: 650; }\n\
     svg .note { fill: var(--muted); font-size: 12px; }\n"
);

/// Width of the picture in its own units, and in pixels of a browser.
const WIDTH: f64 = 480.0;
const PIXELS: u32 = 720;

const MARGIN: f64 = 20.0;

const LINE: f64 = 17.0;

/// Approximate width of a letter of a note.
const LETTER: f64 = 6.3;

/// Size of a legend sample.
const SAMPLE: [f64; 2] = [30.0, 14.0];

/// Returns the whole picture. If there is no chart to draw, it contains a note instead.
pub fn svg(document: &Document) -> String {
    let drawn = || document.sections.iter().filter_map(|section| Some((section, headline_chart(section)?)));
    let first = drawn().next().map(|(section, _)| section.subject);
    let panels: Vec<(&Section, Drawing)> = drawn().filter(|(section, _)| Some(section.subject) == first).collect();
    let mut canvas = Canvas { y: MARGIN, content: Vec::new() };
    let first = panels.first().map(|(_, drawing)| format!("{}: ", drawing.title)).unwrap_or_default();
    canvas.line("heading", &format!("{first}{}", document.title));
    let (is_empty, description) = (panels.is_empty(), describe(document, &panels));
    for (section, drawing) in panels {
        heading(document, section).iter().for_each(|text| canvas.notes(text));
        canvas.drawing(drawing);
    }
    if let [headline] = &document.headlines[..] {
        canvas.notes(&figures(headline));
    }
    caveats(&document.headlines).iter().for_each(|caveat| canvas.notes(caveat));
    if is_empty {
        canvas.notes("Nothing to draw: no run counts.");
    }
    let height = canvas.y + MARGIN / 2.0;
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(PIXELS) viewBox={ "0 0 " (px(WIDTH)) " " (px(height)) } role="img" {
            title { (printable(&document.title)) ": " (printable(&description)) }
            style { (PreEscaped(STYLE)) }
            rect class="card" x="0.5" y="0.5" width=(px(WIDTH - 1.0)) height=(px(height - 1.0)) rx="8" {}
            @for part in &canvas.content { (part) }
        }
    };
    picture.into_string() + "\n"
}

/// Returns the first chart of a section, if it makes sense as a separate picture.
fn headline_chart(section: &Section) -> Option<Drawing<'_>> {
    section.blocks.first()?.charts.first()?.first()?.picture()
}

/// Returns the main figures: `Speed of 1n2g: 22.0 images/s; Efficiency of 1n2g: 94.2 %`. Omits the step, which follows
/// from the speed.
fn figures(headline: &Headline) -> String {
    let figure = |figure: &Figure| {
        format!("{}: {} {}", figure.label, marked(figure.value.clone(), figure.is_doubtful), figure.unit)
    };
    headline
        .figures
        .iter()
        .filter(|figure| figure.parts.is_empty() && figure.unit != "ms")
        .map(figure)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Returns the reasons why figures are unreliable; each names its result if there are several.
fn caveats(headlines: &[Headline]) -> Vec<String> {
    let name = |headline: &Headline| if headlines.len() > 1 { format!("{}: ", headline.name) } else { String::new() };
    let unreliable = headlines.iter().filter(|headline| headline.trust == Some(Trust::Unreliable));
    unreliable.map(|it| name(it) + &Trust::Unreliable.with_reasons(&it.reasons)).collect()
}

/// Returns the title and note of a section, or those of the headline that it does not repeat.
fn heading<'a>(document: &'a Document, section: &'a Section) -> [&'a str; 2] {
    match document.headlines.first() {
        Some(headline) if section.subject == Subject::Runs && section.note.is_empty() => {
            [&headline.name, &headline.what]
        }
        _ => [&section.title, &section.note],
    }
}

fn describe(document: &Document, panels: &[(&Section, Drawing)]) -> String {
    let panel = |(section, drawing): &(&Section, Drawing)| {
        format!("{}: {}", heading(document, section)[0], drawing.description)
    };
    panels.iter().map(panel).collect::<Vec<_>>().join("; ")
}

/// Drawn elements, and the vertical position of the next one.
struct Canvas {
    y: f64,
    content: Vec<Markup>,
}

impl Canvas {
    fn line(&mut self, class: &str, text: &str) {
        let y = self.y + LINE * 0.8;
        self.content.push(html! { text class=(class) x=(px(MARGIN)) y=(px(y)) { (printable(text)) } });
        self.y += LINE;
    }

    /// Draws text, wrapped into lines.
    fn notes(&mut self, text: &str) {
        let letters = ((WIDTH - 2.0 * MARGIN) / LETTER) as usize;
        wrap(text, letters).iter().for_each(|line| self.line("note", line));
    }

    /// Draws legend entries from left to right, wrapped into rows.
    fn legend(&mut self, entries: Vec<LegendEntry>) {
        let [width, height] = SAMPLE;
        let mut x = MARGIN;
        for (sample, name) in entries {
            let name = printable(&name);
            let length = width + 6.0 + LETTER * name.chars().count() as f64 + 16.0;
            if x > MARGIN && x + length > WIDTH - MARGIN {
                (x, self.y) = (MARGIN, self.y + LINE);
            }
            let top = self.y + 3.0;
            self.content.push(html! {
                svg x=(px(x)) y=(px(top)) width=(px(width)) height=(px(height)) { (sample) }
                text class="note" x=(px(x + width + 6.0)) y=(px(top + 11.0)) { (name) }
            });
            x += length;
        }
        self.y += if x > MARGIN { LINE + 6.0 } else { 0.0 };
    }

    fn drawing(&mut self, Drawing { legend, frame, content, .. }: Drawing) {
        self.legend(legend);
        let place = format!("translate({} {})", px((WIDTH - frame.width) / 2.0), px(self.y));
        self.content.push(html! { g transform=(place) { (content) } });
        self.y += frame.height + LINE;
    }
}

/// Wraps text at `letters` per line, between words; words longer than a line are split.
fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word: Vec<char> = word.chars().collect();
        for part in word.chunks(letters.max(1)) {
            let part: String = part.iter().collect();
            match lines.last_mut().filter(|line| line.chars().count() + 1 + part.chars().count() <= letters) {
                Some(line) => *line = format!("{line} {part}"),
                None => lines.push(part),
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_split() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh i", 5), ["abcde", "fgh i"]);
        assert_eq!(wrap("", 5), [""; 0]);
    }

    #[test]
    fn names_in_svg_are_escaped() {
        let document = Document { title: "<b>\u{1b}\u{ffff}".to_owned(), ..Document::default() };
        let drawn = svg(&document);
        assert!(drawn.contains("&lt;b&gt;\u{fffd}\u{fffd}") && drawn.contains("Nothing to draw"), "{drawn}");
    }
}

//! Text version of a report, without charts.

use crate::read::analyze::assessment::Assessment;
use crate::read::show::numbers::marked;
use crate::read::show::page::document::{Block, Document, Figure, Headline, Link, Section};
use crate::read::show::text::{self, Medium, Paragraph};

pub fn text(document: &Document, medium: Medium) -> String {
    let mut text = vec![Paragraph::Title(document.title.clone())];
    text.extend(document.headlines.iter().flat_map(headline));
    text.push(Paragraph::Text(document.legend.clone()));
    text.extend(document.provenance.iter().cloned().map(Paragraph::Text));
    let link = |Link { text, address }: &Link| (text.clone(), address.clone());
    text.push(Paragraph::Links(document.links.iter().map(link).collect()));
    for findings in &document.findings {
        let title = Paragraph::Name(findings.title.clone(), String::new());
        let fix = findings.fix.iter().map(|fix| format!("fix: {fix}"));
        text.extend([title, Paragraph::Items(findings.lines.iter().cloned().chain(fix).collect())]);
    }
    text.extend(document.sections.iter().flat_map(|section| self::section(section, medium)));
    text::render(&text, medium)
}

/// Renders sections without the rest of a report; `assessment` is that of the result, which has this number of problems.
pub fn sections(name: &str, sections: &[Section], assessment: (Assessment, usize), medium: Medium) -> String {
    let figures: Vec<Paragraph> = sections.iter().flat_map(|section| self::section(section, medium)).collect();
    text::render(&text::section(medium, vec![name.to_owned()], figures, assessment), medium)
}

fn section(section: &Section, medium: Medium) -> Vec<Paragraph> {
    let head = [Paragraph::Chapter(section.title.clone()), Paragraph::Text(section.note.clone())];
    head.into_iter().chain(section.blocks.iter().flat_map(|block| self::block(block, medium))).collect()
}

fn headline(headline: &Headline) -> [Paragraph; 2] {
    let trust = headline.trust.map(|trust| trust.with_reasons(&headline.reasons));
    let lines = trust.into_iter().chain(headline.conclusion.clone()).chain(headline.figures.iter().map(figure));
    [Paragraph::Name(headline.name.clone(), headline.what.clone()), Paragraph::Items(lines.collect())]
}

fn figure(figure: &Figure) -> String {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    let parts: Vec<String> = figure.large_parts().into_iter().map(|(_, text)| text).collect();
    let parts = (!parts.is_empty()).then(|| format!("of it {}", parts.join(", ")));
    let notes = parts.into_iter().chain(Some(figure.note.clone()).filter(|note| !note.is_empty()));
    let notes: String = notes.map(|note| format!("; {}", marked(note, figure.is_doubtful))).collect();
    format!("{}: {}{notes}", figure.label, marked(format!("{}{unit}", figure.value), figure.is_doubtful))
}

fn block(block: &Block, medium: Medium) -> Vec<Paragraph> {
    if block.table.is_none() && block.lines.is_empty() && !block.charts.is_empty() {
        return Vec::new();
    }
    let width = match medium {
        Medium::Terminal { width, .. } => Some(width),
        Medium::Markdown => None,
    };
    let notes = [block.full_note(width), block.remark.clone()].map(Paragraph::Text);
    let mut text: Vec<Paragraph> = [Paragraph::Subchapter(block.title.clone())].into_iter().chain(notes).collect();
    text.extend(block.table.clone().map(Paragraph::Table));
    text.extend((!block.lines.is_empty()).then(|| Paragraph::Code(block.lines.clone())));
    text
}

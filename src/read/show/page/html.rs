//! Self-contained HTML page of a report: no network access, no fonts, no libraries. It is printable, has a light and a
//! dark color scheme, and fits a phone. Text from files is never markup, because maud escapes it.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use ringmark_core::untrusted_text::printable_lines;

use crate::output::table::{Column, Row, Table};
use crate::read::show::page::charts::{Chart, frame, style};
use crate::read::show::page::document::{Block, Document, Findings, Headline, Section, Trust};
use crate::read::show::page::layout::{BlockLayout, LONG, is_turned, layouts};

/// Style sheets; those of colors and charts are shared with `svg`.
const STYLE: &str =
    concat!(include_str!("charts/colors.css"), include_str!("charts/charts.css"), include_str!("style.css"));
const SCRIPT: &str = include_str!("script.js");

/// Policy that forbids the page to load anything or to run other scripts, in case a name gets into the markup. The
/// script's hash is `openssl dgst -sha256 -binary src/read/show/page/script.js | base64`.
const POLICY: &str = concat!(
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-",
    include_str!("script.sha256"),
    "'; base-uri 'none'; form-action 'none'"
);

/// Maximum number of rows of a table that is unfolded and printed.
const SHORT: usize = 36;

/// Maximum number of sections for which the table of contents is unfolded.
const MANY: usize = 8;

pub fn html(document: &Document) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "ringmark " (env!("CARGO_PKG_VERSION")) };
                title { (document.title) " \u{2013} ringmark" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (patterns())
                header {
                    p class="eyebrow" { "ringmark report" }
                    h1 { "Report of " (document.title) }
                    @for line in &document.provenance { p class="what" { (line) } }
                    @if !document.links.is_empty() {
                        p class="links" { @for link in &document.links { a href=(link.address) rel="noreferrer" { (link.text) } " " } }
                    }
                }
                main {
                    @for headline in &document.headlines { (self::headline(headline)) }
                    @for findings in &document.findings { (self::findings(findings)) }
                    (contents(document))
                    @for (number, section) in document.sections.iter().enumerate() { (self::section(number, section)) }
                }
                footer { p { "Made by ringmark " (env!("CARGO_PKG_VERSION")) " from logs and records alone: every figure can be recomputed." } }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    // Applied to the whole page: maud escapes markup, but neither control characters nor bidirectional overrides.
    printable_lines(&page.into_string()).into_owned()
}

/// Returns the patterns that drawings refer to.
fn patterns() -> Markup {
    html! {
        svg class="patterns" width="0" height="0" aria-hidden="true" {
            defs {
                pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect width="2" height="6" {}
                }
            }
        }
    }
}

fn headline(headline: &Headline) -> Markup {
    let trust = match headline.trust {
        Trust::Sound => ("sound", "\u{2713}"),
        Trust::WithCare => ("care", "!"),
        Trust::Unreliable => ("not", "\u{2715}"),
    };
    html! {
        section class={ "headline " (style::color(headline.style)) } aria-label=(headline.name) {
            h2 { (headline.name) }
            p class="what" { (headline.what) }
            p class={ "trust " (trust.0) } {
                b aria-hidden="true" { (trust.1) } " " strong { (headline.trust.text()) }
                @if !headline.reasons.is_empty() { span { ": " (headline.reasons.join("; ")) } }
            }
            @if let Some(conclusion) = &headline.conclusion { p class="conclusion" { (conclusion) } }
            div class="figures" {
                @for figure in &headline.figures {
                    div class={ "figure" @if figure.is_doubtful { " doubtful" } } {
                        p class="name" { (figure.label) }
                        p class="value" { (figure.value) @if !figure.unit.is_empty() { " " span { (figure.unit) } } }
                        @if !figure.parts.is_empty() {
                            div class="parts" aria-hidden="true" {
                                @for part in figure.parts.iter().filter(|part| part.share > 0.0) { i class=(part.class) style={ "flex-grow:" (frame::px(100.0 * part.share)) } {} }
                            }
                            ul class="note of-parts" {
                                @for (part, text) in figure.large_parts() { li { i class=(part.class) aria-hidden="true" {} " " (text) } }
                            }
                        }
                        @if !figure.note.is_empty() { p class="note" { (figure.note) } }
                    }
                }
            }
        }
    }
}

fn findings(findings: &Findings) -> Markup {
    let class = if findings.is_grave { "findings grave" } else { "findings" };
    html! {
        details class=(class) {
            summary { (findings.title) " (" (findings.lines.len()) ")" }
            ul { @for line in &findings.lines { li { (line) } } }
            @if let Some(fix) = &findings.fix { p { strong { "Fix: " } (fix) } }
        }
    }
}

/// Returns the table of contents, folded if it is so long that the headlines would not be on the first screen.
fn contents(document: &Document) -> Markup {
    html! {
        @if document.sections.len() > MANY {
            details class="contents" {
                summary { "Contents, " (document.sections.len()) " sections" }
                (links(document))
            }
        } @else if document.sections.len() > 1 {
            (links(document))
        }
    }
}

fn links(document: &Document) -> Markup {
    html! {
            nav aria-label="Contents" {
                @for (number, section) in document.sections.iter().enumerate() {
                    span {
                        a href={ "#section-" (number + 1) } { (section.title) }
                        @for (index, block) in section.blocks.iter().enumerate() {
                            " \u{b7} " a href={ "#section-" (number + 1) "-" (index + 1) } { (block.title) }
                        }
                    }
                }
            }
    }
}

fn section(number: usize, section: &Section) -> Markup {
    html! {
        section id={ "section-" (number + 1) } {
            h2 { (section.title) }
            @if !section.note.is_empty() { p class="note" { (section.note) } }
            @for (index, (block, layout)) in section.blocks.iter().zip(layouts(&section.blocks)).enumerate() {
                (self::block(&format!("section-{}-{}", number + 1, index + 1), block, layout))
            }
        }
    }
}

fn block(id: &str, block: &Block, layout: BlockLayout) -> Markup {
    let notes = || [&block.note, &block.reading].into_iter().filter(|note| !note.is_empty());
    html! {
        article id=(id) class=[layout.class()] {
            h3 { (block.title) }
            @if !block.remark.is_empty() { p class="note" { (block.remark) } }
            @if notes().next().is_some() {
                details class="reading" {
                    summary { "How to read" }
                    @for note in notes() { p class="note" { (note) } }
                }
            }
            @for charts in &block.charts {
                div class=(charts.first().map_or("charts", Chart::row_class)) { @for chart in charts { (chart.draw()) } }
            }
            @if let Some(table) = &block.table { (self::table(table, layout)) }
            @if !block.lines.is_empty() { pre { (block.lines.join("\n")) } }
        }
    }
}

fn table(table: &Table, layout: BlockLayout) -> Markup {
    let is_short = table.rows.len() <= SHORT;
    html! {
        details class=(if is_short { "table short" } else { "table" }) open[is_short] {
            summary { "Table" @if !is_short { ", " (table.rows.len()) " rows" } }
            div class="wide" tabindex="0" role="region" aria-label="Table" {
                @if is_turned(table, layout) { (turned(table)) } @else { (upright(table)) }
            }
        }
    }
}

/// Returns the table with one line per row, and bars.
fn upright(table: &Table) -> Markup {
    let longest = table.longest_bar();
    let bars = table.bars.filter(|_| longest > 0.0);
    html! {
        table {
            thead {
                tr {
                    @for column in &table.columns { (head(column, "col")) }
                    @if let Some(bars) = bars { th scope="col" class="text bar" { span { (bars) } } }
                }
            }
            tbody { @for row in &table.rows { (self::row(table, row, bars.map(|_| longest))) } }
        }
    }
}

/// Returns the transposed table: one line per column; the first contains the names of the rows.
fn turned(table: &Table) -> Markup {
    let line = |index: usize, column: &Column| {
        html! {
            tr {
                (head(column, "row"))
                @for row in &table.rows {
                    @let text = row.cells.get(index).map_or("", String::as_str);
                    @if index == 0 { th scope="col" { (text) } } @else { td class=[mark(row)] { (text) } }
                }
            }
        }
    };
    html! {
        table class="turned" {
            @for (index, column) in table.columns.iter().enumerate() { (line(index, column)) }
        }
    }
}

fn head(column: &Column, scope: &str) -> Markup {
    html! {
        th scope=(scope) class=[(column.is_text || scope == "row").then_some("text")] {
            (column.name) @if !column.unit.is_empty() { " " span { (column.unit) } }
        }
    }
}

/// Returns the CSS class of a marked or unreliable row.
fn mark(row: &Row) -> Option<&'static str> {
    row.is_marked.then_some("marked").or(row.is_doubtful.then_some("doubtful"))
}

fn row(table: &Table, row: &Row, longest: Option<f64>) -> Markup {
    let length = longest.zip(row.bar).map(|(longest, bar)| 100.0 * bar / longest).filter(|length| length.is_finite());
    html! {
        tr class=[mark(row)] {
            @for (cell, column) in row.cells.iter().zip(&table.columns) {
                td class=[column.is_text.then(|| if cell.len() > LONG { "text long" } else { "text" })] { (cell) }
            }
            @if longest.is_some() {
                td class="bar" {
                    @if let Some(length) = length {
                        i class=[row.style.map(style::color)] style={ "width:" (frame::px(length.clamp(0.0, 100.0))) "%" } {}
                    }
                }
            }
        }
    }
}

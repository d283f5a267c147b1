//! Report of training under failures that `ringmark goodput` measured.

use std::path::Path;

use ringmark_core::goodput::Goodput;
use ringmark_core::shell;

use crate::read::load::folder::name_of;
use crate::read::show::page::content::goodput;
use crate::read::show::page::document::{Document, Link};
use crate::read::show::page::text;
use crate::read::show::text::{Medium, WIDTH};

/// Returns the report.
pub fn document(folder: &Path, goodput: &Goodput, links: &[Link]) -> anyhow::Result<Document> {
    let Goodput { program, command, .. } = goodput;
    Ok(Document {
        title: name_of(folder)?,
        provenance: vec![format!("ringmark {program} \u{b7} {}", shell::join(command))],
        links: links.to_vec(),
        ..plain(goodput)
    })
}

/// Returns the tables for a terminal.
pub fn tables(goodput: &Goodput) -> String {
    text::text(&plain(goodput), Medium::Terminal { width: WIDTH, is_explained: false })
}

fn plain(goodput: &Goodput) -> Document {
    Document {
        title: goodput.what.clone(),
        headlines: goodput::headline(goodput).into_iter().collect(),
        sections: vec![goodput::section(goodput)],
        ..Document::default()
    }
}

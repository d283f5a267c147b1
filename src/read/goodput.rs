//! Report of training under failures that `ringmark goodput` measured.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use ringmark_core::goodput::Goodput;
use ringmark_core::options::usage::usage;
use ringmark_core::shell;

use crate::read::load::folder::name_of;
use crate::read::show::page::content::goodput;
use crate::read::show::page::document::{Document, Link};
use crate::read::show::page::text;
use crate::read::show::text::{Medium, WIDTH};

/// Returns the folder among `folders` with a result of `ringmark goodput`; `None` if none has one. Rejects several
/// folders.
pub fn find(folders: &[PathBuf]) -> anyhow::Result<Option<(&Path, Goodput)>> {
    for folder in folders {
        let Some(goodput) = Goodput::find(folder)? else { continue };
        if folders.len() > 1 {
            bail!(usage(anyhow!("{} contains a result of goodput: report it alone", folder.display())));
        }
        return Ok(Some((folder, goodput)));
    }
    Ok(None)
}

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
        provenance: Vec::new(),
        links: Vec::new(),
        headlines: Vec::new(),
        findings: Vec::new(),
        sections: vec![goodput::section(goodput)],
    }
}

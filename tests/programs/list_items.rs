//! Lists the items of a part of a data set, one per line: number, labels, bytes, and the CRC-32 of the bytes.
//! scripts/dev/compare_recordio.py compares the output with MXNet's reading of the same files.
//!
//!     cargo run -p ringmark-input --example list_items -- PART/PARTS FILE...

#![allow(clippy::disallowed_methods, reason = "reads its command line")]

use std::env;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use flate2::Crc;
use ringmark_input::dataset::Dataset;
use ringmark_input::dataset::item::Item;
use ringmark_input::shard::Shard;

fn main() -> Result<()> {
    let mut arguments = env::args_os().skip(1);
    let part = arguments.next().and_then(|text| text.into_string().ok()).context("PART/PARTS is missing")?;
    let (index, count) = part.split_once('/').context("PART/PARTS, as 0/4")?;
    let dataset = Dataset::open(&arguments.map(PathBuf::from).collect::<Vec<_>>())?;
    let mut items = dataset.stream(Shard::new(index.parse()?, count.parse()?)?)?;
    let mut item = Item::default();
    let mut output = BufWriter::new(io::stdout().lock());
    while items.next(&mut item)? {
        let mut crc = Crc::new();
        crc.update(item.bytes());
        let labels: Vec<String> = item.labels.iter().map(f32::to_string).collect();
        writeln!(output, "{}\t{}\t{}\t{:08x}", item.id, labels.join(","), item.bytes().len(), crc.sum())?;
    }
    Ok(output.flush()?)
}

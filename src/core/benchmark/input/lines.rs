//! Output lines of an input run: MXNet's line of `--test-io 1` for rank 0's host, a table of all hosts, and the best
//! pass of each host.

use crate::benchmark::input::config::PageCache;
use crate::benchmark::input::pass::{HostPass, InputPass};
use crate::benchmark::input::record::{Ceiling, InputRecord};
use crate::dimension::UnitsPerSecond;
use crate::number_text::{count, marked, thousands};

/// Formats the lines that train_imagenet.py (example/image-classification/common/fit.py) prints with `--test-io 1`
/// through Python's logging: the last batch of every `display`, counted from 0, and the images per second over them.
/// Prints one line for all batches if there are fewer.
pub fn test_io(pass: &HostPass, batch_size: u32, display: u32) -> Vec<String> {
    let display = (display as usize).min(pass.batches.len()).max(1);
    let line = |(number, window): (usize, &[_])| {
        let own = HostPass { batches: window.to_vec(), ..HostPass::default() };
        let UnitsPerSecond(speed) = own.speed(batch_size)?;
        let last = (number + 1) * display - 1;
        Some(format!("INFO:root:Batch [{last}]\tSpeed: {speed:.2} samples/sec"))
    };
    pass.batches.chunks_exact(display).enumerate().filter_map(line).collect()
}

/// Columns of the table: names, and units unless the name includes them. The first two are text.
pub const COLUMNS: [(&str, &str); 11] = [
    ("host", ""),
    ("cache", ""),
    ("threads", ""),
    ("images/s", ""),
    ("per core", ""),
    ("MB/s", ""),
    ("from disk", "%"),
    ("read", "ms"),
    ("decode", "ms"),
    ("augment", "ms"),
    ("collate", "ms"),
];

fn text(
    [host, cache, threads, speed, of_a_core, rate, disk, read, decode, augment, collate]: &[String; 11],
    host_width: usize,
) -> String {
    let text = format!(
        "{host:host_width$}  {cache:<8}  {threads:>7}  {speed:>9}  {of_a_core:>8}  {rate:>7}  {disk:>9}  {read:>7}  {decode:>7}  \
         {augment:>7}  {collate:>7}"
    );
    text.trim_end().to_owned()
}

/// Formats a table with one row per host and pass: speed, time per image and thread in each stage, and source of the
/// bytes.
pub fn table(record: &InputRecord, is_unreliable: bool) -> Vec<String> {
    let head = [COLUMNS.map(|(name, _)| name.to_owned()), COLUMNS.map(|(_, unit)| unit.to_owned())];
    let width = record.ranks.iter().map(|place| place.host.len()).max().unwrap_or_default().max(4);
    let mut lines: Vec<String> = head.iter().map(|cells| text(cells, width)).collect();
    lines.push("-".repeat(lines.iter().map(String::len).max().unwrap_or_default()));
    lines.extend(rows(record, is_unreliable).map(|cells| text(&cells, width)));
    lines
}

/// Returns the cells of every row.
pub fn rows(record: &InputRecord, is_unreliable: bool) -> impl Iterator<Item = [String; 11]> {
    let of_pass = move |pass: &InputPass| -> Vec<[String; 11]> {
        pass.hosts.iter().enumerate().map(|(rank, host)| cells(record, pass, rank, host, is_unreliable)).collect()
    };
    record.passes.iter().flat_map(of_pass)
}

fn cells(
    record: &InputRecord,
    InputPass { cache, threads, .. }: &InputPass,
    rank: usize,
    host: &HostPass,
    is_unreliable: bool,
) -> [String; 11] {
    let number =
        |value: Option<f64>, decimals: usize| value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"));
    let rate = |value: Option<f64>| marked(number(value, 1), is_unreliable && value.is_some());
    let speed = host.speed(record.config.batch_size).map(|speed| speed.0);
    let cores = record.cores.get(rank).copied().unwrap_or(1);
    let of_a_core = speed.map(|speed| speed / f64::from((*threads).min(cores).max(1)));
    let [read, decode, augment, collate] =
        host.stages().map(|stage| marked(format!("{:.3}", stage * 1e3), is_unreliable));
    [
        record.ranks.get(rank).map(|place| place.host.clone()).unwrap_or_default(),
        cache_text(*cache, host).to_owned(),
        threads.to_string(),
        rate(speed),
        rate(of_a_core),
        rate(host.megabytes_per_second()),
        number(host.disk_share().map(|share| share * 100.0), 0),
        read,
        decode,
        augment,
        collate,
    ]
}

/// Returns the page-cache state that was observed, judged by the source of the bytes, instead of the one that was
/// requested.
fn cache_text(requested: PageCache, host: &HostPass) -> &'static str {
    match (requested, host.cache()) {
        (PageCache::Cold, Some(PageCache::Cold)) => "cold",
        (PageCache::Warm, Some(PageCache::Warm)) => "warm",
        (_, None) if host.disk_share().is_none() => "unknown",
        (PageCache::Cold, _) => "not cold",
        (PageCache::Warm, _) => "not warm",
    }
}

/// Formats the best pass of each host, from memory and from disk, and the passes that did not run with the requested
/// page cache.
pub fn ceilings(record: &InputRecord, is_unreliable: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let shown = |figure: String| marked(figure, is_unreliable);
    for (rank, place) in record.ranks.iter().enumerate() {
        let cores = record.cores.get(rank).copied().unwrap_or(1);
        let with = |Ceiling { threads, speed, .. }: Ceiling| {
            format!("{} images/s with {}", shown(thousands(speed.0, ',')), count(threads, "thread"))
        };
        let warm = record.ceiling(rank, PageCache::Warm).map(|warm| format!("from memory {}", with(warm)));
        let of_a_core = record.busiest(rank).map(|(busiest, UnitsPerSecond(speed))| {
            let speed = shown(format!("{speed:.0}"));
            format!("{speed} images/s per core with {} of {cores}", busiest.threads.min(cores))
        });
        let cold = record.ceiling(rank, PageCache::Cold).map(|cold| {
            let rate = cold.pass.megabytes_per_second().unwrap_or_default();
            format!("from disk {}, {} MB/s", with(cold), shown(format!("{rate:.1}")))
        });
        let all: Vec<String> = [warm, of_a_core, cold].into_iter().flatten().collect();
        if !all.is_empty() {
            lines.push(format!("host {}: {}", place.host, all.join("; ")));
        }
        lines.extend(page_cache_problems(record, rank).map(|why| format!("host {}: {why}", place.host)));
        let most = record.passes.iter().map(|pass| pass.threads).max().unwrap_or_default();
        if most > cores {
            let cores = count(cores, "core");
            lines.push(format!("host {}: {most} threads share {cores}", place.host));
        }
    }
    lines
}

/// Explains why passes of host `rank` did not run with the requested page cache, once for cold and once for warm.
fn page_cache_problems(record: &InputRecord, rank: usize) -> impl Iterator<Item = String> {
    let of = move |cache: PageCache| {
        let passes = record.passes.iter().filter(move |pass| pass.cache == cache);
        let shares: Vec<Option<f64>> = passes
            .filter_map(|pass| pass.hosts.get(rank))
            .filter(|host| host.cache() != Some(cache))
            .map(HostPass::disk_share)
            .collect();
        let known: Vec<f64> = shares.iter().copied().flatten().collect();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let least = known.iter().copied().fold(f64::INFINITY, f64::min);
        let most = known.iter().copied().fold(0.0, f64::max);
        match (shares.is_empty(), known.is_empty(), cache) {
            (true, ..) => None,
            (_, true, _) => Some(
                "the source of the bytes is unknown because the kernel does not count them (/proc/self/io): no pass \
                 is known to be cold or warm"
                    .to_owned(),
            ),
            (.., PageCache::Cold) => Some(format!(
                "not cold, {} of the bytes came from disk: the files are in memory (tmpfs), or the kernel kept their \
                 pages, for example for another program",
                percent(least)
            )),
            (.., PageCache::Warm) => Some(format!(
                "not warm, {} of the bytes came from disk: memory is too small or used by other processes",
                percent(most)
            )),
        }
    };
    [PageCache::Cold, PageCache::Warm].into_iter().filter_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::input::record::tests::{host_pass, record};
    use crate::dimension::{Bytes, Seconds};

    #[test]
    fn line_matches_mxnet() {
        let pass = HostPass {
            batches: vec![Seconds(0.5), Seconds(1.5), Seconds(1.0), Seconds(1.0), Seconds(9.0)],
            ..HostPass::default()
        };
        // 2 x 32 images in 2 s; the last batch lacks a second one to complete its line, as in fit.py.
        let lines = ["INFO:root:Batch [1]\tSpeed: 32.00 samples/sec", "INFO:root:Batch [3]\tSpeed: 32.00 samples/sec"];
        assert_eq!(test_io(&pass, 32, 2), lines);
        assert_eq!(test_io(&pass, 130, 20), ["INFO:root:Batch [4]\tSpeed: 50.00 samples/sec"]);
        assert_eq!(test_io(&HostPass::default(), 32, 20), Vec::<String>::new());
    }

    #[test]
    fn row_contains_cache_state_and_rates() {
        let mut record = record(&[("a", &[250.0, 480.0], 300.0)]);
        record.passes[2].hosts[0].from_disk = Some(Bytes(6_400_000));
        let lines = table(&record, false);
        let cells: Vec<Vec<&str>> = lines[3..].iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["a", "cold", "4", "300.0", "75.0", "30.0", "100", "0.100", "2.000", "0.500", "0.001"]);
        assert_eq!(cells[1], ["a", "warm", "1", "250.0", "250.0", "25.0", "0", "0.100", "2.000", "0.500", "0.001"]);
        assert_eq!(cells[2][..4], ["a", "not", "warm", "2"]);
        assert_eq!(
            ceilings(&record, false),
            [
                "host a: from memory 250 images/s with 1 thread; 250 images/s per core with 1 of 4; from disk 300 \
                 images/s with 4 threads, 30.0 MB/s",
                "host a: not warm, 50 % of the bytes came from disk: memory is too small or used by other processes",
            ]
        );
        let row: Vec<String> = rows(&record, true).nth(1).expect("a pass").into();
        assert_eq!(row[3..7], ["(250.0)", "(250.0)", "(25.0)", "0"]);
        assert_eq!(
            ceilings(&record, true)[0],
            "host a: from memory (250) images/s with 1 thread; (250) images/s per core with 1 of 4; from disk (300) \
             images/s with 4 threads, (30.0) MB/s"
        );
        record.cores = vec![1];
        record.passes.truncate(1);
        record.passes[0].hosts[0] = host_pass(300.0, false);
        let lines = ceilings(&record, false);
        assert!(lines[0].starts_with("host a: not cold, 0 % of the bytes came from disk: "), "{lines:?}");
        assert_eq!(lines[1], "host a: 4 threads share 1 core");
        record.passes[0].hosts[0].from_disk = None;
        assert!(ceilings(&record, false)[0].contains("is unknown"), "{:?}", ceilings(&record, false));
        assert!(table(&record, false)[3].contains("unknown"));
    }
}

//! Output lines of a checkpoint run: a table with a row for each combination, and what limits the trust in it.

use crate::benchmark::checkpoint::config::Combination;
use crate::benchmark::checkpoint::figures::Direction;
use crate::benchmark::checkpoint::record::{CheckpointRecord, CheckpointResult};
use crate::host::RankPlace;
use crate::number_text::{marked, percent_number, three_digits};
use crate::stats::run_values::RunValues;
use crate::stats::summary::median;

/// Number of columns.
const WIDTH: usize = 16;

/// Columns of the table: names, and units unless the name includes them. The first four are the axes.
pub const COLUMNS: [(&str, &str); WIDTH] = [
    ("writers", ""),
    ("files", ""),
    ("io", ""),
    ("mode", ""),
    ("written", "GB"),
    ("write", "GB/s"),
    ("\u{b1}", "GB/s"),
    ("per host", "GB/s"),
    ("per writer", "GB/s"),
    ("fsync", "s"),
    ("stall", "s"),
    ("\u{b1}", "s"),
    ("slower", "%"),
    ("read", "GB/s"),
    ("cold", "%"),
    ("restore", "s"),
];

/// Returns true for a column of text, which is aligned on the left.
pub fn is_text(column: &str) -> bool {
    matches!(column, "writers" | "io" | "mode")
}

/// Formats a table with one row for each combination. In parentheses: figures of a busy host, and reads that did not come
/// from the storage.
pub fn table(record: &CheckpointRecord, is_unreliable: bool) -> Vec<String> {
    let head = [COLUMNS.map(|(name, _)| name.to_owned()), COLUMNS.map(|(_, unit)| unit.to_owned())];
    let rows: Vec<[String; WIDTH]> = head.into_iter().chain(rows(record, is_unreliable)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; WIDTH] = std::array::from_fn(width);
    let line = |row: &[String; WIDTH]| {
        let cells = row.iter().zip(COLUMNS).zip(widths).map(|((cell, (name, _)), width)| match is_text(name) {
            true => format!("{cell:width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(2, "-".repeat(lines.iter().map(|line| line.chars().count()).max().unwrap_or_default()));
    lines
}

/// Returns the cells of every row.
pub fn rows(record: &CheckpointRecord, is_unreliable: bool) -> impl Iterator<Item = [String; WIDTH]> {
    record.results.iter().map(move |result| cells(result, &record.ranks, is_unreliable))
}

fn cells(result: &CheckpointResult, places: &[RankPlace], is_unreliable: bool) -> [String; WIDTH] {
    let Combination { writers, files, io, mode } = result.combination;
    let number = |value: Option<f64>, is_unreliable: bool| {
        value.map_or_else(|| "-".to_owned(), |value| marked(three_digits(value), is_unreliable))
    };
    let middle = |values: Option<RunValues>| number(values.and_then(|values| values.median()), is_unreliable);
    let margin = |values: Option<RunValues>| {
        let margin = values.map(|values| values.margin_of_mean()).filter(|margin| margin.is_finite());
        number(margin, is_unreliable)
    };
    let is_warm = is_unreliable || !result.is_cold();
    let read = |values: Option<RunValues>| number(values.and_then(|values| values.median()), is_warm);
    let host_rates = result.host_rates(places, Direction::Write);
    let hosts: Vec<f64> = host_rates.values().filter_map(RunValues::median).collect();
    let share = |share: f64| percent_number(share);
    let slower = result.slowdown().and_then(|values| values.median());
    [
        writers.to_string(),
        files.to_string(),
        io.to_string(),
        mode.to_string(),
        three_digits(result.gigabytes()),
        middle(result.total_rate(Direction::Write)),
        margin(result.total_rate(Direction::Write)),
        number(median(&hosts), is_unreliable),
        middle(result.writer_rate(Direction::Write)),
        middle(result.fsync()),
        middle(result.stall()),
        margin(result.stall()),
        slower.map_or_else(|| "-".to_owned(), |slower| marked(share(slower), is_unreliable)),
        read(result.total_rate(Direction::Read)),
        result.storage_share().map_or_else(|| "-".to_owned(), |cold| format!("{:.0}", cold * 100.0)),
        read(result.restore()),
    ]
}

/// Explains why reads of combinations are not known to be cold, one line for each of them.
pub fn warm_reads(record: &CheckpointRecord) -> impl Iterator<Item = String> {
    record.results.iter().filter(|result| !result.is_cold() && !result.checkpoints.is_empty()).map(|result| {
        let Some(share) = result.storage_share() else {
            return format!(
                "{}: the source of the read bytes is unknown because the kernel does not count them (/proc/self/io)",
                result.combination
            );
        };
        format!(
            "{}: not cold, {:.0} % of the bytes of a rank came from the storage: the kernel kept pages of the files, or the \
             folder is in memory",
            result.combination,
            share * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::benchmark::checkpoint::config::{FileIo, WriteMode};
    use crate::benchmark::checkpoint::record::ProductTimes;
    use crate::benchmark::checkpoint::record::tests::record;
    use crate::dimension::{Bytes, Seconds};

    #[test]
    fn row_contains_axes_rates_and_times() {
        let mut record = record(&[("a", 1.0), ("b", 2.0)]);
        let beside = &mut record.results[1];
        beside.combination = Combination { io: FileIo::Direct, mode: WriteMode::Beside, ..beside.combination };
        for ranks in &mut beside.checkpoints {
            ranks.iter_mut().for_each(|rank| {
                rank.products = Some(ProductTimes { count: 20, elapsed: Seconds(1.2), alone: Seconds(0.05) });
            });
            ranks[0].from_storage = Some(Bytes(30_000_000));
        }
        expect![[r#"
            writers  files  io        mode      written  write      ±  per host  per writer  fsync  stall      ±  slower    read  cold  restore
                                                     GB   GB/s   GB/s      GB/s        GB/s      s      s      s       %    GB/s     %        s
            -----------------------------------------------------------------------------------------------------------------------------------
            rank-0       1  buffered  blocking     1.00   1.00  0.248      1.00        1.00  0.200   1.00  0.251       -    2.00   100    0.750
            ranks        1  direct    beside       2.00   2.00  0.497      1.50        1.50  0.200  0.200  0.000    20.0  (4.00)     3  (0.750)"#]].assert_eq(&table(&record, false).join("\n"));
        expect!["ranks, 1 file, direct, beside: not cold, 3 % of the bytes of a rank came from the storage: the kernel kept pages of the files, or the folder is in memory"].assert_eq(&warm_reads(&record).collect::<Vec<_>>().join("\n"));
        record.results.truncate(1);
        record.results[0].checkpoints.truncate(1);
        expect!["rank-0       1  buffered  blocking     1.00  (1.00)     -    (1.00)      (1.00)  (0.200)  (1.00)  -       -  (2.00)   100  (0.750)"].assert_eq(&table(&record, true)[3]);
        record.results[0].checkpoints[0][0].from_storage = None;
        assert!(warm_reads(&record).next().expect("a line").contains("is unknown"));
    }
}

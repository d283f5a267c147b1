//! Output lines of a bandwidth run: nccl-tests' table (as of 2.19.6), the spread of the times, and measure.py's lines.
//!
//! Every function returns its lines without the last newline. Lines that nccl-tests and measure.py do not print begin
//! with `#`, so that programs that parse their output skip them. Unlike theirs, no line has trailing blanks.

use crate::benchmark::bandwidth::config::{Arrays, BandwidthConfig};
use crate::benchmark::bandwidth::figures::{self, SideFigures, TimeSpread};
use crate::benchmark::bandwidth::record::{BandwidthRecord, MemoryLimit, MessageResult, Timing};
use crate::benchmark::optimizer::OptimizerChoice;
use crate::dimension::{Bytes, GigabytesPerSecond, Model, Operands, Seconds};
use crate::number_text::{cv_percent, without_trailing_zeros};
use crate::stats::busbw::{Bus, algbw, busbw, card_rate};

/// Placeholder for a missing figure, as in nccl-tests.
const NONE: &str = "N/A";

/// Returns the four header lines of nccl-tests' table.
pub fn table_header() -> String {
    let sides = format!("# {:61}out-of-place                       in-place", "");
    let side = ["time", "algbw", "busbw", "#wrong"];
    let units = ["(us)", "(GB/s)", "(GB/s)", ""];
    let message = ["size", "count", "type", "redop", "root"];
    let lines = [sides, header_line(message, side), header_line(["(B)", "(elements)", "", "", ""], units)];
    format!("#\n{}", lines.join("\n"))
}

fn header_line(message: [&str; 5], side: [&str; 4]) -> String {
    let [size, count, element, operation, root] = message;
    let side = side_columns(side);
    let line = format!("# {size:>10}  {count:>12}  {element:>8}  {operation:>6}  {root:>6}{side}{side}");
    line.trim_end().to_owned()
}

/// Formats one size as a row of nccl-tests' table; the time is the mean over ranks and iterations, in us.
pub fn row(result: &MessageResult, operands: Operands, ranks: u32) -> String {
    let MessageResult { bytes, count, element, .. } = result;
    let bus = Bus { operation: operands.operation, ranks };
    let sides = result.sides().map(|(_, timing)| side(*bytes, timing, bus)).concat();
    let (reduction, root) = (operands.reduction_name(), operands.root_number());
    format!("{:>12}  {count:>12}  {element:>8}  {reduction:>6}  {root:>6}{sides}", bytes.0)
}

fn side(bytes: Bytes, timing: Option<&Timing>, bus: Bus) -> String {
    let figures = timing.and_then(|timing| SideFigures::new(bytes, timing, bus));
    let Some(SideFigures { time, algbw, busbw, wrong, .. }) = figures else {
        return side_columns([NONE; 4]);
    };
    let wrong = wrong.map_or(NONE.to_owned(), |wrong| general(wrong as f64));
    side_columns([&fitted(time.0 * 1e6, 7), &fitted(algbw.0, 6), &fitted(busbw.0, 6), &wrong])
}

fn side_columns([time, algbw, busbw, wrong]: [&str; 4]) -> String {
    format!("  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}")
}

/// Formats the footer of nccl-tests' table: the number of wrong elements over all sizes, and the mean bus bandwidth.
pub fn footer(results: &[MessageResult], bus: Bus) -> String {
    // nccl-tests prints 0 for unchecked results as well; the column #wrong contains N/A then.
    let wrong = match figures::wrong(results) {
        None | Some(0) => "0 OK".to_owned(),
        Some(wrong) => format!("{wrong} FAILED"),
    };
    format!("# {:<20} : {wrong}\n{}", "Out of bounds values", average(results, bus))
}

/// Formats the mean bus bandwidth as nccl-tests does below its table.
pub fn average(results: &[MessageResult], bus: Bus) -> String {
    let average = figures::average_busbw(results, bus).map_or(NONE.to_owned(), |average| general(average.0));
    // Programs parse the last word of the line as the number: nothing may follow it.
    format!("# {:<20} : {average}", "Avg bus bandwidth")
}

/// Formats the matrices of `--pairs`: microseconds at the smallest size, GB/s at the largest; a row per sender, a column
/// per receiver. Empty without pairs.
pub fn pairs(record: &BandwidthRecord) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, result) in record.results.iter().enumerate() {
        let Some(times) = record.pair_times(result) else { return Vec::new() };
        let is_rate = index > 0 || record.results.len() == 1;
        let unit = if is_rate { "GB/s" } else { "us" };
        lines.push(format!("# {unit} of {} bytes from the rank of a row to that of a column", result.bytes.0));
        let row = |head: &str, cells: Vec<String>| {
            format!("# {head:>5}{}", cells.iter().map(|cell| format!("{cell:>9}")).collect::<String>())
        };
        lines.push(row("", (0..times.len()).map(|rank| rank.to_string()).collect()));
        for (sender, times) in times.iter().enumerate() {
            let cell = |time: &Option<Seconds>| match time {
                Some(time) if is_rate => fitted(algbw(result.bytes, *time).0, 7),
                Some(time) => fitted(time.0 * 1e6, 7),
                None => NONE.to_owned(),
            };
            lines.push(row(&sender.to_string(), times.iter().map(cell).collect()));
        }
    }
    lines
}

/// Formats the spread of the times of every size, one line per side: percentiles over all ranks and iterations, and the
/// coefficients of variation, over the iterations for the means over ranks and over the ranks for the means over
/// iterations. Sides are named as in the record: superbenchmark takes the last line that contains `out-of-place` as the
/// header of the table.
pub fn spread(results: &[MessageResult]) -> String {
    let head = |size, side, times: [&str; 5], over| format!("# {size:>10}  {side:>12}{}{over}", columns(times));
    let mut lines = vec![
        "#".to_owned(),
        head("size", "side", ["p50", "p95", "p99", "min", "max"], "  CV iterations  CV ranks"),
        head("(B)", "", ["(us)"; 5], "            (%)       (%)"),
    ];
    for result in results {
        for (side, timing) in [("out_of_place", &result.out_of_place), ("in_place", &result.in_place)] {
            lines.extend(timing.as_ref().and_then(|timing| spread_row(result.bytes, side, timing)));
        }
    }
    lines.join("\n")
}

/// Returns `None` without samples.
fn spread_row(bytes: Bytes, side: &str, timing: &Timing) -> Option<String> {
    let TimeSpread { p50, p95, p99, min, max, cv_iterations, cv_ranks } = TimeSpread::from_timing(timing)?;
    let times = [p50, p95, p99, min, max].map(|time| fitted(time.0 * 1e6, 7));
    let variation = |cv: Option<f64>| cv.map_or(NONE.to_owned(), cv_percent);
    let (iterations, ranks) = (variation(cv_iterations), variation(cv_ranks));
    let times = columns(times.each_ref().map(String::as_str));
    Some(format!("# {:>10}  {side:>12}{times}  {iterations:>13}  {ranks:>8}", bytes.0))
}

fn columns(times: [&str; 5]) -> String {
    times.map(|time| format!("  {time:>7}")).concat()
}

/// Formats measure.py's first line: the number of exchanged arrays and their total size.
pub fn arrays(count: usize, size: Bytes) -> String {
    format!("num of arrays = {count}, total size = {:.6} MB", size.megabytes())
}

/// Formats the options as measure.py does; `gpus` is the number of ranks per host.
pub fn namespace(config: &BandwidthConfig, model: Model, gpus: u32) -> String {
    let name = model.to_string();
    let name = name.strip_prefix("mxnet-").unwrap_or(&name);
    let layers = name.rsplit_once('-').and_then(|(network, layers)| Some((network, layers.parse::<u32>().ok()?)));
    // Its default, which the other networks ignore.
    let (network, layers) = layers.unwrap_or((name, 152));
    let gpus = (0..gpus).map(|gpu| gpu.to_string()).collect::<Vec<_>>().join(",");
    let size = model.image_size(None).unwrap_or_default();
    let optimizer =
        if config.optimizer == OptimizerChoice::None { "None".to_owned() } else { config.optimizer.to_string() };
    format!(
        "Namespace(disp_batches={}, gpus='{gpus}', image_shape='3,{size},{size}', kv_store='{}', network='{network}', \
         num_batches={}, num_classes=1000, num_layers={layers}, optimizer='{optimizer}', test_results={})",
        config.disp_batches,
        config.strategy.strategy,
        config.iterations,
        u8::from(config.check)
    )
}

/// Formats the arrays that training exchanges for the same network.
pub fn trained_arrays(count: u32, size: Bytes, exchanged: Arrays) -> String {
    let choice = match exchanged {
        Arrays::Weights => ", with normalization: use --arrays all",
        Arrays::All => "",
    };
    format!("# training exchanges {count} arrays, {:.6} MB{choice}", size.megabytes())
}

/// Formats measure.py's line for an iteration, counted from 1: `time` is the mean over ranks, `error` that of the worst
/// rank, printed as -1 if `None` (not checked). For one rank the rate is n/a; measure.py prints 0.
pub fn iteration(number: usize, size: Bytes, time: Seconds, ranks: u32, error: Option<f64>) -> String {
    let rate = match ranks {
        1 => "n/a".to_owned(),
        _ => format!("{:.6}", busbw(size, time, Bus::all_reduce(ranks)).0),
    };
    let error = error.unwrap_or(-1.0);
    format!("iter {number}, {:.6} sec, {rate} GB/sec per gpu, error {error:.6}", time.0)
}

/// Formats measure.py's lines for all iterations of one result: a line for each `batches` of them, with their mean time
/// and the last one's error.
pub fn iterations(result: &MessageResult, ranks: u32, batches: u32) -> Vec<String> {
    let batches = batches as usize;
    let of_side = |timing: &Timing| -> Vec<String> {
        let times = timing.by_iteration();
        let line = |(index, times): (usize, &[f64])| {
            let (last, mean) = ((index + 1) * batches, times.iter().sum::<f64>() / times.len() as f64);
            iteration(last, result.bytes, Seconds(mean), ranks, timing.error.get(last - 1).copied())
        };
        times.chunks_exact(batches).enumerate().map(line).collect()
    };
    result.sides().into_iter().filter_map(|(_, timing)| timing).flat_map(of_side).collect()
}

/// Explains an error of -1 in measure.py's lines; returns `None` if there is none.
pub fn unchecked(result: &MessageResult) -> Option<String> {
    let timing = result.sides().into_iter().find_map(|(_, timing)| timing).filter(|timing| timing.error.is_empty())?;
    let why = match timing.wrong {
        Some(_) => "ranks are not synchronized after an iteration; only the final weights are checked",
        None => "results were not checked",
    };
    Some(format!("# error of an iteration: n/a ({why})"))
}

/// Formats the limit set by the memory bandwidth, and the share of it that the largest size reached, which benefits
/// least from caches. States if the limit is that of the last-level cache.
pub fn memory(limit: &MemoryLimit, results: &[MessageResult], ranks: u32) -> String {
    let MemoryLimit { rate, by, busbw, array, is_in_cache } = limit;
    let place = if *is_in_cache { "last-level cache" } else { "memory" };
    let line = format!("# host {place}: {rate:.1} read + written ({by})");
    if busbw.0 <= 0.0 {
        return line;
    }
    let reached = |(size, rate): (Bytes, GigabytesPerSecond)| match limit.share(size, rate) {
        Some(share) => format!("; {size} reached {:.0} %", share * 100.0),
        None => format!("; measured with arrays of {array}, so smaller messages have no share"),
    };
    let reached = figures::largest_busbw(results, Bus::all_reduce(ranks)).map(reached).unwrap_or_default();
    format!("{line}, allows {busbw:.1} busbw{reached}")
}

/// Formats the rate of every node's network card at the best size of an all-reduce; `None` on one node, which uses no
/// card.
pub fn network_card(results: &[MessageResult], nodes: u32, ranks: u32) -> Option<String> {
    let (size, best) = figures::best_busbw(results, Bus::all_reduce(ranks)).filter(|_| nodes > 1)?;
    let rate = card_rate(best, nodes, ranks);
    Some(format!(
        "# network card per node: {rate:.2} at the best size, {size}, with {best:.2} busbw over {nodes} nodes"
    ))
}

/// Explains why a run misses `--min-busbw`; returns `None` if its average reaches the minimum.
pub fn below_minimum(results: &[MessageResult], bus: Bus, minimum: GigabytesPerSecond) -> Option<String> {
    if bus.ranks < 2 {
        return Some(format!("--min-busbw {}: one rank has no bus bandwidth: start two or more", minimum.0));
    }
    let Some(average) = figures::average_busbw(results, bus) else {
        return Some(format!("--min-busbw {}: nothing was measured", minimum.0));
    };
    // NaN must not pass.
    let is_enough = average >= minimum;
    (!is_enough).then(|| {
        format!(
            "average bus bandwidth {} GB/s is below --min-busbw {}: check the slow sizes above, or use a lower \
             --min-busbw",
            general(average.0),
            minimum.0
        )
    })
}

/// Formats with as many decimals as fit into `width` characters, at most two, or with an exponent if the integer does
/// not fit. This is nccl-tests' rule for its columns.
fn fitted(value: f64, width: usize) -> String {
    let fixed = (0..=2).rev().map(|decimals| format!("{value:.decimals$}")).find(|text| text.len() <= width);
    fixed.unwrap_or_else(|| scientific(value, usize::from(width >= 7)))
}

/// Formats like C's `%g`: six significant digits, without trailing zeros.
fn general(value: f64) -> String {
    let exponent = format!("{value:.5e}").split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match exponent {
        // The value is not finite.
        None => value.to_string(),
        Some(exponent @ -4..6) => {
            without_trailing_zeros(&format!("{value:.*}", exponent.abs_diff(5) as usize)).to_owned()
        }
        Some(_) => {
            let text = scientific(value, 5);
            let (number, exponent) = text.split_once('e').unwrap_or((&text, ""));
            format!("{}e{exponent}", without_trailing_zeros(number))
        }
    }
}

/// Formats like C's `%e`: the exponent has a sign and at least two digits.
fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    match text.split_once('e').and_then(|(number, exponent)| Some((number, exponent.parse::<i32>().ok()?))) {
        Some((number, exponent)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{number}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::benchmark::strategy::StrategyConfig;
    use crate::dimension::{Operation, Reduction, Strategy};

    fn timing(seconds: &[&[f64]], wrong: Option<u64>, error: &[f64]) -> Timing {
        let rank = |times: &&[f64]| times.iter().copied().map(Seconds).collect();
        Timing { seconds: seconds.iter().map(rank).collect(), back_to_back: Vec::new(), wrong, error: error.to_vec() }
    }

    fn result(bytes: u64, out_of_place: Option<Timing>, in_place: Option<Timing>) -> MessageResult {
        let element = "float".to_owned();
        MessageResult {
            bytes: Bytes(bytes),
            count: bytes / 4,
            element,
            buckets: vec![Bytes(bytes)],
            out_of_place,
            in_place,
        }
    }

    const SUM: Operands = Operands { operation: Operation::AllReduce, reduction: Reduction::Sum, root: 0 };

    /// Returns a timing of `seconds` on both of two ranks, checked and correct.
    fn sound(seconds: f64) -> Option<Timing> {
        Some(timing(&[&[seconds], &[seconds]], Some(0), &[0.0]))
    }

    /// Returns a result of 1 GB at 10 and 5 GB/s; on two ranks algbw equals busbw.
    fn gigabyte() -> MessageResult {
        result(1_000_000_000, sound(0.1), sound(0.2))
    }

    #[test]
    fn table_matches_nccl_tests() {
        let lines = [
            table_header(),
            row(&result(8, sound(0.000_012_344), sound(0.000_012)), SUM, 2),
            row(&result(134_217_728, sound(0.001_211_2), Some(timing(&[&[12.5]], None, &[]))), SUM, 4),
            row(&result(1_073_741_824, None, Some(timing(&[&[0.25], &[0.75]], Some(1_234_567), &[]))), SUM, 2),
        ];
        assert_eq!(
            lines.join("\n"),
            "\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    12.34    0.00    0.00       0    12.00    0.00    0.00       0
   134217728      33554432     float     sum      -1  1211.20  110.81  166.22       0  1.2e+07    0.01    0.02     N/A
  1073741824     268435456     float     sum      -1      N/A     N/A     N/A     N/A   500000    2.15    2.15  1.23457e+06"
        );
    }

    /// Reproduces rows of nccl-tests' all_gather_perf, reduce_perf -r 1 -o max and sendrecv_perf for 1 GB in 0.1 s.
    #[test]
    fn operations_have_nccl_tests_columns() {
        let row_of = |operation, reduction, root, ranks| {
            let row = row(&gigabyte(), Operands { operation, reduction, root }, ranks);
            row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()[3..8].join(" ")
        };
        assert_eq!(row_of(Operation::AllGather, Reduction::Sum, 0, 4), "none -1 100000 10.00 7.50");
        assert_eq!(row_of(Operation::Reduce, Reduction::Max, 1, 4), "max 1 100000 10.00 10.00");
        assert_eq!(row_of(Operation::Broadcast, Reduction::Sum, 0, 4), "none 0 100000 10.00 10.00");
        assert_eq!(row_of(Operation::SendReceive, Reduction::Sum, 0, 4), "sum -1 100000 10.00 10.00");
        assert_eq!(row_of(Operation::ReduceScatter, Reduction::Avg, 0, 2), "avg -1 100000 10.00 5.00");
    }

    #[test]
    fn footer_matches_nccl_tests() {
        assert_eq!(
            footer(&[gigabyte()], Bus::all_reduce(2)),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 7.5"
        );
        let wrong = result(8, Some(timing(&[&[1e-6]], Some(3), &[])), None);
        assert_eq!(
            footer(&[wrong], Bus::all_reduce(2)),
            "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 0.008"
        );
        let not_checked = result(1 << 30, None, Some(timing(&[&[0.03], &[0.03]], None, &[])));
        assert_eq!(
            footer(&[not_checked], Bus::all_reduce(2)),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 35.7914"
        );
    }

    #[test]
    fn spread_covers_ranks_and_iterations() {
        // The means by iteration are 20 and 40 us: 14.142 / 30. The means by rank are 25 and 35 us: 7.071 / 30.
        let slow = timing(&[&[10e-6, 40e-6], &[30e-6, 40e-6]], None, &[]);
        let results = [result(8, Some(slow), None), result(1 << 30, None, Some(timing(&[&[1.5]], None, &[])))];
        assert_eq!(
            spread(&results),
            "\
#
#       size          side      p50      p95      p99      min      max  CV iterations  CV ranks
#        (B)                   (us)     (us)     (us)     (us)     (us)            (%)       (%)
#          8  out_of_place    35.00    40.00    40.00    10.00    40.00             47        24
# 1073741824      in_place  1500000  1500000  1500000  1500000  1500000            N/A       N/A"
        );
    }

    /// Reproduces lines of MXNet's tools/bandwidth/README.md, except for the last digits of times that it rounds.
    #[test]
    fn lines_match_measure_py() {
        assert_eq!(arrays(205, Bytes(257_991_328)), "num of arrays = 205, total size = 257.991328 MB");
        assert_eq!(
            iteration(1, Bytes(257_991_328), Seconds(0.023_242), 2, Some(0.0)),
            "iter 1, 0.023242 sec, 11.100221 GB/sec per gpu, error 0.000000"
        );
        let config = BandwidthConfig { iterations: 5, ..BandwidthConfig::default() };
        let strategy = StrategyConfig { strategy: Strategy::Device, ..config.strategy };
        assert_eq!(
            namespace(&BandwidthConfig { strategy, ..config.clone() }, Model::MxnetResnet200, 2),
            "Namespace(disp_batches=1, gpus='0,1', image_shape='3,224,224', kv_store='device', network='resnet', \
             num_batches=5, num_classes=1000, num_layers=200, optimizer='None', test_results=1)"
        );
        let optimizer = OptimizerChoice::Sgd;
        let sample = namespace(&BandwidthConfig { strategy, optimizer, ..config }, Model::MxnetInceptionV3, 8);
        let words = "image_shape='3,299,299', kv_store='device', network='inception-v3', num_batches=5, \
                     num_classes=1000, num_layers=152, optimizer='sgd', test_results=1)";
        assert!(sample.ends_with(words), "{sample}");
        let four = timing(&[&[0.01, 0.03, 0.02, 0.04, 0.09]], None, &[1e-6, 2e-6, 3e-6, 4e-6, 5e-6]);
        assert_eq!(
            iterations(&result(100_000_000, None, Some(four)), 2, 2),
            [
                "iter 2, 0.020000 sec, 5.000000 GB/sec per gpu, error 0.000002",
                "iter 4, 0.030000 sec, 3.333333 GB/sec per gpu, error 0.000004"
            ]
        );
        let in_place = timing(&[&[0.01, 0.02], &[0.03, 0.02]], None, &[1e-6]);
        assert_eq!(
            iterations(&result(100_000_000, None, Some(in_place)), 2, 1),
            [
                "iter 1, 0.020000 sec, 5.000000 GB/sec per gpu, error 0.000001",
                "iter 2, 0.020000 sec, 5.000000 GB/sec per gpu, error -1.000000"
            ]
        );
    }

    #[test]
    fn unchecked_result_has_a_reason() {
        let of = |wrong, error: &[f64]| unchecked(&result(8, None, Some(timing(&[&[0.1]], wrong, error))));
        assert_eq!(of(Some(0), &[0.5]), None);
        let reasons = [Some(0), None].map(|wrong| of(wrong, &[]).expect("why"));
        expect![[r#"
            # error of an iteration: n/a (ranks are not synchronized after an iteration; only the final weights are checked)
            # error of an iteration: n/a (results were not checked)"#]].assert_eq(&reasons.join("\n"));
    }

    /// Reproduces the first line of each of its six samples. Their times are rounded; the rate gives the exact times.
    #[test]
    fn published_measure_py_lines_are_reproduced() {
        let (resnet_200, inception_v3) = (257_991_328, 95_200_544);
        for (bytes, ranks, rate, line) in [
            (resnet_200, 2, 11.100_222, "iter 1, 0.023242 sec, 11.100222 GB/sec per gpu, error 0.000000"),
            (resnet_200, 8, 4.412_429, "iter 1, 0.102321 sec, 4.412429 GB/sec per gpu, error 0.000000"),
            (resnet_200, 8, 1.555_964, "iter 1, 0.290164 sec, 1.555964 GB/sec per gpu, error 0.000000"),
            (inception_v3, 8, 1.925_424, "iter 1, 0.086527 sec, 1.925424 GB/sec per gpu, error 0.000000"),
            (resnet_200, 8, 1.528_395, "iter 1, 0.295398 sec, 1.528395 GB/sec per gpu, error 0.000000"),
            (resnet_200, 8, 1.935_137, "iter 1, 0.233309 sec, 1.935137 GB/sec per gpu, error 0.000000"),
        ] {
            let share = 2.0 * f64::from(ranks - 1) / f64::from(ranks);
            let seconds = Seconds(bytes as f64 * share / (rate * 1e9));
            assert_eq!(iteration(1, Bytes(bytes), seconds, ranks, Some(0.0)), line);
        }
        let alone = iteration(1, Bytes(resnet_200), Seconds(0.5), 1, Some(0.0));
        assert_eq!(alone, "iter 1, 0.500000 sec, n/a GB/sec per gpu, error 0.000000");
    }

    #[test]
    fn memory_limit_includes_reached_share() {
        let limit = |busbw| MemoryLimit {
            rate: GigabytesPerSecond(75.5),
            by: "in place".to_owned(),
            busbw: GigabytesPerSecond(busbw),
            array: Bytes(1 << 24),
            is_in_cache: false,
        };
        let small = [result(1 << 20, sound(0.1), None)];
        let lines = [
            memory(&limit(18.9), &[gigabyte()], 2),
            memory(&limit(18.9), &[], 2),
            memory(&limit(0.0), &[], 1),
            memory(&MemoryLimit { is_in_cache: true, ..limit(18.9) }, &small, 2),
        ];
        expect![[r#"
            # host memory: 75.5 GB/s read + written (in place), allows 18.9 GB/s busbw; 1000000000 bytes reached 53 %
            # host memory: 75.5 GB/s read + written (in place), allows 18.9 GB/s busbw
            # host memory: 75.5 GB/s read + written (in place)
            # host last-level cache: 75.5 GB/s read + written (in place), allows 18.9 GB/s busbw; measured with arrays of 16777216 bytes, so smaller messages have no share"#]].assert_eq(&lines.join("\n"));
    }

    #[test]
    fn network_card_rate_needs_several_nodes() {
        let results = [gigabyte()];
        assert_eq!(network_card(&results, 1, 8), None);
        expect![
            "# network card per node: 1.25 GB/s at the best size, 1000000000 bytes, with 18.75 GB/s busbw over 2 nodes"
        ]
        .assert_eq(&network_card(&results, 2, 16).expect("several nodes"));
    }

    #[test]
    fn missed_minimum_names_value_and_fix() {
        let results = [gigabyte()];
        let missed = |ranks, minimum| below_minimum(&results, Bus::all_reduce(ranks), GigabytesPerSecond(minimum));
        assert_eq!(missed(2, 7.5), None);
        let nothing = below_minimum(&[], Bus::all_reduce(2), GigabytesPerSecond(1.0));
        let messages = [missed(2, 1000.0), missed(1, 1.0), nothing].map(|message| message.expect("below"));
        expect![[r#"
            average bus bandwidth 7.5 GB/s is below --min-busbw 1000: check the slow sizes above, or use a lower --min-busbw
            --min-busbw 1: one rank has no bus bandwidth: start two or more
            --min-busbw 1: nothing was measured"#]].assert_eq(&messages.join("\n"));
    }

    #[test]
    fn numbers_are_formatted_as_in_c() {
        for (value, text) in [
            (0.0, "0"),
            (41.2, "41.2"),
            (100_000.0, "100000"),
            (999_999.5, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_123_456_7, "0.000123457"),
            (0.000_012_5, "1.25e-05"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(general(value), text);
        }
        for (value, width, text) in [
            (0.004, 7, "0.00"),
            (9999.999, 7, "10000.0"),
            (12_345.67, 7, "12345.7"),
            (1_234_567.8, 7, "1234568"),
            (12_345_678.0, 7, "1.2e+07"),
            (12_345_678.0, 6, "1e+07"),
        ] {
            assert_eq!(fitted(value, width), text);
        }
    }
}

//! DLPerf's line of an iteration, `INFO:root:Epoch[0] Batch[1]<TAB>Speed: 384.19 samples/sec`: writer and parser.
//!
//! DLPerf's extractor takes every line that contains `Epoch[0] Batch[` and searches it for
//! `Speed: (\d+\.\d+) samples/sec`; more text on the same line is accepted, so the loss follows. No other output line
//! may contain that marker. With `--epochs` the epoch is counted, as in MXNet. The speed of a language model is in
//! `tokens/sec`, which DLPerf's extractor does not find.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::dimension::{UnitsPerSecond, WorkUnit};

const EPOCH: &str = "Epoch[";
const BATCH: &str = "] Batch[";
const SPEED: &str = "Speed: ";
/// Ends a speed in images, which DLPerf calls samples.
const IMAGES: &str = " samples/sec";
/// Ends a speed in tokens.
const TOKENS: &str = " tokens/sec";
const LOSS: &str = "\tloss=";
/// Range of valid speeds. Others result from a time that is zero or infinite, and would make sums infinite.
const SPEEDS: Range<f64> = 1e-9..1e15;
const FAILURE: &str = "error: run failed: ";
/// The same in logs of earlier versions.
const OLD_FAILURE: &str = "ringmark: run failed: ";
/// Starts a line of another program, whose content has no meaning for readers.
const PROGRAM: &str = "> ";
const RESUMPTION: &str = "# resumed from its checkpoint after iteration ";

/// Number of an iteration in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Epoch, from 0; always 0 in a run that does not count epochs.
    pub epoch: u32,
    /// Number within the epoch, from 1; some writers count from 0.
    pub number: u32,
}

impl Batch {
    /// Returns the number of iteration `iteration` (from 1) with the given length of an epoch; `None` does not count
    /// epochs.
    pub fn at_iteration(iteration: u32, epoch_iterations: Option<u32>) -> Batch {
        match epoch_iterations {
            None | Some(0) => Batch { epoch: 0, number: iteration },
            Some(length) => Batch { epoch: (iteration - 1) / length, number: (iteration - 1) % length + 1 },
        }
    }

    /// Returns the number of iterations from `earlier` to this one, which may be in the next epoch.
    pub fn since(self, earlier: Batch) -> u32 {
        let first = if self.epoch == earlier.epoch { earlier.number } else { 0 };
        self.number.saturating_sub(first)
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Batch { epoch, number } = self;
        match epoch {
            0 => write!(formatter, "Batch[{number}]"),
            _ => write!(formatter, "{EPOCH}{epoch}{BATCH}{number}]"),
        }
    }
}

/// Formats the line of an iteration: speed over all ranks, then the loss of rank 0.
pub fn write(batch: Batch, speed: UnitsPerSecond, unit: WorkUnit, loss: f64) -> String {
    format!("{}{LOSS}{loss:.6}", write_speed(batch, speed, unit))
}

/// Formats the line of an iteration without a loss.
pub fn write_speed(Batch { epoch, number }: Batch, speed: UnitsPerSecond, unit: WorkUnit) -> String {
    let unit = match unit {
        WorkUnit::Image => IMAGES,
        WorkUnit::Token => TOKENS,
    };
    format!("INFO:root:{EPOCH}{epoch}{BATCH}{number}]\t{SPEED}{:.2}{unit}", speed.0)
}

/// Formats the line that the launcher appends to the log of a failed run, with `reason` on one line.
pub fn write_failure(reason: &str) -> String {
    format!("{FAILURE}{}", reason.replace('\n', " "))
}

/// Formats a line of another program.
pub fn write_program_line(line: &str) -> String {
    format!("{PROGRAM}{line}")
}

/// Returns true for a line of [`write_program_line`].
pub fn is_program_line(line: &[u8]) -> bool {
    line.starts_with(PROGRAM.as_bytes())
}

/// Formats the line between the iterations restored from a checkpoint, which are repeated above it, and the new ones.
pub fn write_resumption(behind: u32) -> String {
    format!("{RESUMPTION}{behind}")
}

/// Returns true for a line of [`write_resumption`].
pub fn is_resumption(line: &[u8]) -> bool {
    line.starts_with(RESUMPTION.as_bytes())
}

/// Content of one line of a log.
#[derive(Debug, Clone, PartialEq)]
pub enum LogLine {
    /// Speed of an iteration over all ranks.
    Iteration {
        /// Number as in the line.
        batch: Batch,
        /// Valid speed, above 0.
        speed: UnitsPerSecond,
        /// Loss, if it follows the speed as in [`write()`]; may be NaN or infinite.
        loss: Option<f64>,
    },
    /// Marked as an iteration, but lacks a number or a valid speed (`nan`, negative, cut off).
    Malformed,
    /// Launcher's statement that the run failed, and why.
    Failed(String),
    /// Anything else.
    Other,
}

/// Parses a line with any text before the marker (rank tags, time stamps) and after the speed. Most lines of a log are
/// discarded, so nothing is copied, and only the parsed parts have to be UTF-8.
pub fn parse(line: impl AsRef<[u8]>) -> LogLine {
    let line = line.as_ref();
    if is_program_line(line) {
        return LogLine::Other;
    }
    if let Some(reason) = [FAILURE, OLD_FAILURE].iter().find_map(|start| line.strip_prefix(start.as_bytes())) {
        return LogLine::Failed(String::from_utf8_lossy(reason).trim_end().to_owned());
    }
    match marked(line) {
        None => LogLine::Other,
        Some((epoch, rest)) => parse_marked(epoch, rest).unwrap_or(LogLine::Malformed),
    }
}

/// Returns the epoch of a line that is marked as an iteration, and the text after the mark.
fn marked(mut line: &[u8]) -> Option<(u32, &[u8])> {
    loop {
        (_, line) = split(line, EPOCH)?;
        let digits = line.iter().take_while(|letter| letter.is_ascii_digit()).count();
        let epoch = number(&line[..digits]).zip(line[digits..].strip_prefix(BATCH.as_bytes()));
        if epoch.is_some() {
            return epoch;
        }
    }
}

fn parse_marked(epoch: u32, rest: &[u8]) -> Option<LogLine> {
    let (batch, rest) = split(rest, "]")?;
    let (_, rest) = split(rest, SPEED)?;
    let (rate, rest) = split(rest, IMAGES).or_else(|| split(rest, TOKENS))?;
    let (batch, speed) = (Batch { epoch, number: number(batch)? }, speed(rate)?);
    let loss = rest.strip_prefix(LOSS.as_bytes()).and_then(|rest| {
        let mut numbers = rest.trim_ascii_start().split(u8::is_ascii_whitespace);
        number(numbers.next()?)
    });
    Some(LogLine::Iteration { batch, speed: UnitsPerSecond(speed), loss })
}

/// Parses a speed in a log; returns `None` if it is not valid.
pub fn speed(text: impl AsRef<[u8]>) -> Option<f64> {
    let text = text.as_ref();
    decimal(text).or_else(|| number(text)).filter(|speed| SPEEDS.contains(speed))
}

/// Returns the text before and after `mark`. The first letter of each mark of this grammar is rare in a log before the
/// mark itself: checking every place that starts with it is faster than a general search.
fn split<'a>(text: &'a [u8], mark: &str) -> Option<(&'a [u8], &'a [u8])> {
    let mark = mark.as_bytes();
    let start = memchr::memchr_iter(mark[0], text).find(|start| text[*start..].starts_with(mark))?;
    Some((&text[..start], &text[start + mark.len()..]))
}

/// Parses a plain decimal such as `384.19`, which every valid line has: its digits and the power of ten are exact
/// numbers, so that one division rounds in the same way as the standard library's parser, in a third of its time.
/// `None` for anything else.
fn decimal(text: &[u8]) -> Option<f64> {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let mut digits = 0u64;
    let mut decimals = None;
    for letter in text {
        match letter {
            b'0'..=b'9' => digits = digits.checked_mul(10)? + u64::from(letter - b'0'),
            b'.' if decimals.is_none() => decimals = Some(0),
            _ => return None,
        }
        decimals = decimals.map(|count| count + usize::from(*letter != b'.'));
    }
    let is_exact = digits < 1 << 53 && text.len() > 1;
    Some(digits as f64 / POWERS.get(decimals?)?).filter(|_| is_exact)
}

fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iteration(batch: u32, speed: f64, loss: Option<f64>) -> LogLine {
        LogLine::Iteration { batch: Batch::at_iteration(batch, None), speed: UnitsPerSecond(speed), loss }
    }

    #[test]
    fn record_round_trips() {
        let line = write(Batch::at_iteration(7, None), UnitsPerSecond(384.194), WorkUnit::Image, 6.9077);
        assert_eq!(line, "INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec\tloss=6.907700");
        assert_eq!(parse(&line), iteration(7, 384.19, Some(6.9077)));
        let batches = [1, 3, 4, 7].map(|iteration| Batch::at_iteration(iteration, Some(3)));
        let texts = batches.map(|batch| batch.to_string());
        assert_eq!(texts, ["Batch[1]", "Batch[3]", "Epoch[1] Batch[1]", "Epoch[2] Batch[1]"]);
        assert_eq!([batches[1].since(batches[0]), batches[2].since(batches[1])], [2, 1]);
        let line = write(batches[2], UnitsPerSecond(8.0), WorkUnit::Image, 1.0);
        assert_eq!(line, "INFO:root:Epoch[1] Batch[1]\tSpeed: 8.00 samples/sec\tloss=1.000000");
        assert_eq!(parse(&line), LogLine::Iteration { batch: batches[2], speed: UnitsPerSecond(8.0), loss: Some(1.0) });
    }

    #[test]
    fn speed_parses_as_in_the_standard_library() {
        let mut digits = 1u64;
        for round in 0..20_000u32 {
            digits = digits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let text = format!("{}.{}", (digits >> 44) >> (round % 20), (digits & 0xff_ffff) >> (round % 24));
            let read: f64 = text.parse().expect("a number");
            assert_eq!(decimal(text.as_bytes()).map(f64::to_bits), Some(read.to_bits()), "{text}");
        }
        for (text, read) in [("384.", Some(384.0)), (".5", Some(0.5)), ("0.1", Some(0.1)), ("384", None), (".", None)] {
            assert_eq!(decimal(text.as_bytes()), read, "{text}");
        }
        for unusual in
            ["1e3", "-1.5", "nan", "1.2.3", "9007199254740993.0", "99999999999999999999.5", "0.12345678901234567"]
        {
            assert_eq!(decimal(unusual.as_bytes()), None, "{unusual}");
        }
    }

    #[test]
    fn dlperf_line_is_read_after_rank_tag_or_binary() {
        let line = "[1,0]<stderr>:INFO:root:Epoch[0] Batch[120]\tSpeed: 9579.74 samples/sec";
        assert_eq!(parse(line), iteration(120, 9579.74, None));
        let twice = "INFO:root:Epoch[0] INFO:root:Epoch[0] Batch[120]\tSpeed: 9579.74 samples/sec";
        assert_eq!(parse(twice), iteration(120, 9579.74, None));
        assert_eq!(parse([b"\xff\x00 ", line.as_bytes(), b" \xfe\r\n"].concat()), iteration(120, 9579.74, None));
    }

    #[test]
    fn optional_loss_is_read() {
        let loss = |line: &str| match parse(line) {
            LogLine::Iteration { loss, .. } => loss,
            other => panic!("{line}: {other:?}"),
        };
        assert!(
            loss(&write(Batch::at_iteration(7, None), UnitsPerSecond(384.19), WorkUnit::Image, f64::NAN))
                .is_some_and(f64::is_nan)
        );
        assert_eq!(
            loss(&write(Batch::at_iteration(7, None), UnitsPerSecond(384.19), WorkUnit::Image, f64::INFINITY)),
            Some(f64::INFINITY)
        );
        assert_eq!(loss("INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec\tloss=6.5 lr=0.1\r\n"), Some(6.5));
        assert_eq!(loss("INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec\tloss="), None);
    }

    #[test]
    fn failure_is_one_line_and_round_trips() {
        let line = write_failure("mpirun ended\nwith status 1");
        assert_eq!(parse(&line), LogLine::Failed("mpirun ended with status 1".to_owned()));
        assert_eq!(line, "error: run failed: mpirun ended with status 1");
        assert_eq!(parse("ringmark: run failed: out of memory"), LogLine::Failed("out of memory".to_owned()));
    }

    #[test]
    fn marked_line_without_speed_is_malformed() {
        for line in [
            "INFO:root:Epoch[0] Batch[3]\tSpeed: nan samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: inf samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: -1.0 samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: 0.00 samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: 1e300 samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: 38",
            "INFO:root:Epoch[0] Batch[",
            "INFO:root:Epoch[0] Batch[x]\tSpeed: 1.0 samples/sec",
        ] {
            assert_eq!(parse(line), LogLine::Malformed, "{line}");
        }
        assert_eq!(parse("INFO:root:Epoch[0] Time cost=12.3"), LogLine::Other);
        assert_eq!(parse(""), LogLine::Other);
    }
}

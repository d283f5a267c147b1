//! DLPerf's line of an iteration, `INFO:root:Epoch[0] Batch[1]<TAB>Speed: 384.19 samples/sec`: writer and parser.
//!
//! DLPerf's extractor takes every line that holds `Epoch[0] Batch[` and looks for `Speed: (\d+\.\d+) samples/sec`
//! in it; more on the same line is accepted, so the loss follows. No other line of ours may hold that marker.

use crate::units::ImagesPerSecond;

const MARKER: &str = "Epoch[0] Batch[";
const FAILURE: &str = "ringmark: run failed: ";

/// The line of iteration `iteration` (from 1): speed over all ranks, then the loss of rank 0.
pub fn write(iteration: u32, speed: ImagesPerSecond, loss: f64) -> String {
    format!("INFO:root:{MARKER}{iteration}]\tSpeed: {:.2} samples/sec\tloss={loss:.6}", speed.0)
}

/// The line that the launcher puts under the log of a run that failed; `reason` is one line.
pub fn write_failure(reason: &str) -> String {
    format!("{FAILURE}{}", reason.replace('\n', " "))
}

/// What one line of a log is.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// An iteration's speed over all ranks.
    Iteration {
        /// As the line counts it.
        batch: u32,
        /// Positive and finite.
        speed: ImagesPerSecond,
    },
    /// Marked as an iteration, but without a number, or with one that is no speed (`nan`, negative, cut off).
    Malformed,
    /// The launcher's word that the run failed, and why.
    Failed(String),
    /// Anything else.
    Other,
}

/// Reads a line with whatever stands before the marker (rank tags, time stamps) and after the speed.
pub fn parse(line: &str) -> Line {
    if let Some(reason) = line.strip_prefix(FAILURE) {
        return Line::Failed(reason.to_owned());
    }
    let Some((_, rest)) = line.split_once(MARKER) else {
        return Line::Other;
    };
    parse_marked(rest).unwrap_or(Line::Malformed)
}

fn parse_marked(rest: &str) -> Option<Line> {
    let (batch, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once("Speed: ")?;
    let (speed, _) = rest.split_once(" samples/sec")?;
    let batch = batch.parse().ok()?;
    let speed: f64 = speed.parse().ok()?;
    (speed.is_finite() && speed > 0.0).then_some(Line::Iteration { batch, speed: ImagesPerSecond(speed) })
}

/// The loss that follows the speed, as [`write`] puts it there; may be NaN or infinite. `None` on a line without one.
pub fn loss(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once(" samples/sec\tloss=")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let line = write(7, ImagesPerSecond(384.194), 6.9077);
        assert_eq!(line, "INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec\tloss=6.907700");
        assert_eq!(parse(&line), Line::Iteration { batch: 7, speed: ImagesPerSecond(384.19) });
    }

    #[test]
    fn reads_dlperf_s_own_line_behind_a_rank_tag() {
        let line = "[1,0]<stderr>:INFO:root:Epoch[0] Batch[120]\tSpeed: 9579.74 samples/sec";
        assert_eq!(parse(line), Line::Iteration { batch: 120, speed: ImagesPerSecond(9579.74) });
    }

    #[test]
    fn the_loss_is_read_where_there_is_one() {
        assert_eq!(loss(&write(7, ImagesPerSecond(384.19), 6.5)), Some(6.5));
        assert!(loss(&write(7, ImagesPerSecond(384.19), f64::NAN)).is_some_and(f64::is_nan));
        assert_eq!(loss(&write(7, ImagesPerSecond(384.19), f64::INFINITY)), Some(f64::INFINITY));
        assert_eq!(loss("INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec"), None);
        assert_eq!(loss("INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec\tloss="), None);
    }

    #[test]
    fn a_failure_is_one_line_and_read_back() {
        let line = write_failure("mpirun ended\nwith status 1");
        assert_eq!(parse(&line), Line::Failed("mpirun ended with status 1".to_owned()));
    }

    #[test]
    fn a_marked_line_without_a_speed_is_malformed() {
        for line in [
            "INFO:root:Epoch[0] Batch[3]\tSpeed: nan samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: inf samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: -1.0 samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: 0.00 samples/sec",
            "INFO:root:Epoch[0] Batch[3]\tSpeed: 38",
            "INFO:root:Epoch[0] Batch[",
            "INFO:root:Epoch[0] Batch[x]\tSpeed: 1.0 samples/sec",
        ] {
            assert_eq!(parse(line), Line::Malformed, "{line}");
        }
        assert_eq!(parse("INFO:root:Epoch[0] Time cost=12.3"), Line::Other);
        assert_eq!(parse(""), Line::Other);
    }
}

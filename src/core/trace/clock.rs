//! Alignment of the clocks of several hosts. Each host counts its own nanoseconds (CLOCK_MONOTONIC); rank 0's count is
//! the reference. The offset of another host's clock is measured before and after the traced iterations, and
//! interpolated linearly in between.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keyword_enum;

keyword_enum!(
    /// Method of comparing a rank's clock with rank 0's.
    ClockMethod {
        /// Both ranks read the clock of one host.
        SameHost = "same-host",
        /// Fastest of several round trips over MPI: both clocks are assumed to be read at its midpoint.
        Ping = "mpi-ping",
    }
);

/// Offset of a host's clock from rank 0's at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReading {
    /// Time of the reading by the host's own clock, in nanoseconds.
    pub at_ns: i64,
    /// Offset from rank 0's clock, in nanoseconds; positive if ahead.
    pub ahead_ns: i64,
    /// Maximum error in nanoseconds: half of the round trip and, on a GPU, the error of its marks relative to the
    /// host's clock.
    pub residual_ns: i64,
}

impl ClockReading {
    /// Computes the reading from a message that left rank 0 at `sent`, was answered at `answered` by the other clock,
    /// and returned at `received`.
    pub fn from_ping(sent: i64, answered: i64, received: i64) -> ClockReading {
        let halfway = sent + (received - sent) / 2;
        ClockReading { at_ns: answered, ahead_ns: answered - halfway, residual_ns: (received - sent) / 2 }
    }

    /// Adds `residual_ns` to the maximum error, for times that are themselves inexact.
    pub fn and_residual(self, residual_ns: i64) -> ClockReading {
        ClockReading { residual_ns: self.residual_ns + residual_ns, ..self }
    }
}

/// A rank's clock relative to rank 0's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankClock {
    /// Method of the comparison.
    pub method: ClockMethod,
    /// Reading before the traced iterations; before all iterations if ranks do not wait for each other.
    pub first: ClockReading,
    /// Reading after the traced iterations; equal to `first` if ranks have exited in the meantime.
    pub last: ClockReading,
}

impl RankClock {
    /// Converts a time of this rank's clock to rank 0's, both in nanoseconds.
    pub fn to_rank_0(&self, own: i64) -> i64 {
        let RankClock { first, last, .. } = self;
        let between = last.at_ns - first.at_ns;
        let drift = match between {
            0 => 0.0,
            _ => (last.ahead_ns - first.ahead_ns) as f64 / between as f64,
        };
        own - first.ahead_ns - (drift * (own - first.at_ns) as f64).round() as i64
    }

    /// Returns the largest error of both readings, in nanoseconds.
    pub fn residual_ns(&self) -> i64 {
        self.first.residual_ns.max(self.last.residual_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_offset_and_drift_are_corrected() {
        // 1,000 ns ahead at first and 3,000 at last: 2,000 in 1,000,000.
        let reading = |at_ns, ahead_ns| ClockReading { at_ns, ahead_ns, residual_ns: 10 };
        let clock = RankClock { method: ClockMethod::Ping, first: reading(0, 1000), last: reading(1_000_000, 3000) };
        assert_eq!(clock.to_rank_0(0), -1000);
        assert_eq!(clock.to_rank_0(500_000), 498_000);
        assert_eq!(clock.to_rank_0(1_000_000), 997_000);
        let same = RankClock { last: clock.first, ..clock };
        assert_eq!(same.to_rank_0(5000), 4000);
    }

    #[test]
    fn ping_reads_clocks_at_half_time() {
        let reading = ClockReading::from_ping(100, 1150, 300);
        assert_eq!(reading, ClockReading { at_ns: 1150, ahead_ns: 950, residual_ns: 100 });
    }
}

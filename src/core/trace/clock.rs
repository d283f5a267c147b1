//! How the clocks of several hosts become one. Each host counts nanoseconds of its own (CLOCK_MONOTONIC); rank 0's count.
//! What another host's clock shows more is measured before and after the traced iterations, and between the two it goes on as
//! a line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keyword_enum;

keyword_enum!(
    /// How a rank's clock was compared with rank 0's.
    ClockMethod {
        /// Both read the clock of one host.
        SameHost = "same-host",
        /// By messages there and back over MPI, of which the fastest counts: halfway, both clocks are read at once.
        Ping = "mpi-ping",
    }
);

/// What a host's clock showed more than rank 0's at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReading {
    /// When, by the host's own clock, in nanoseconds.
    pub at_ns: i64,
    /// In nanoseconds.
    pub ahead_ns: i64,
    /// At most so far off, in nanoseconds: half of the time there and back, and on a GPU what its marks are off the host's clock.
    pub residual_ns: i64,
}

impl ClockReading {
    /// Of a message that left rank 0 at `sent`, was answered at `answered` by the other clock, and was back at `received`.
    pub fn of_ping(sent: i64, answered: i64, received: i64) -> ClockReading {
        let halfway = sent + (received - sent) / 2;
        ClockReading { at_ns: answered, ahead_ns: answered - halfway, residual_ns: (received - sent) / 2 }
    }

    /// The same for times that are themselves at most `residual_ns` off.
    pub fn and_residual(self, residual_ns: i64) -> ClockReading {
        ClockReading { residual_ns: self.residual_ns + residual_ns, ..self }
    }
}

/// A rank's clock against rank 0's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankClock {
    /// How it was measured.
    pub method: ClockMethod,
    /// Before the traced iterations; where ranks go on without each other, before all.
    pub first: ClockReading,
    /// After them; as before them where ranks have died meanwhile.
    pub last: ClockReading,
}

impl RankClock {
    /// Rank 0's time when this rank's clock shows `own`, both in nanoseconds.
    pub fn to_rank_0(&self, own: i64) -> i64 {
        let RankClock { first, last, .. } = self;
        let between = last.at_ns - first.at_ns;
        let drift = match between {
            0 => 0.0,
            _ => (last.ahead_ns - first.ahead_ns) as f64 / between as f64,
        };
        own - first.ahead_ns - (drift * (own - first.at_ns) as f64).round() as i64
    }

    /// Largest error that both readings leave, in nanoseconds.
    pub fn residual_ns(&self) -> i64 {
        self.first.residual_ns.max(self.last.residual_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_ahead_and_faster_is_taken_back() {
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
    fn a_ping_reads_both_clocks_halfway() {
        let reading = ClockReading::of_ping(100, 1150, 300);
        assert_eq!(reading, ClockReading { at_ns: 1150, ahead_ns: 950, residual_ns: 100 });
    }
}

//! Rates of collective operations. S = bytes of the array, t = seconds, n = ranks, k = nodes; GB = 1e9 bytes.
//!
//! S is the value in nccl-tests' column `size`: the larger of the bytes that a rank sends and receives. For a gather, a
//! reduce-scatter and an all-to-all these are the parts of all ranks together.

use crate::dimension::{Bytes, GigabytesPerSecond, Operation, Seconds};

/// Returns the algorithm bandwidth, `S / t`.
///
/// `algbw(102.4 MB, 0.02 s) = 5.12 GB/s`.
pub fn algbw(size: Bytes, time: Seconds) -> GigabytesPerSecond {
    GigabytesPerSecond(size.0 as f64 / time.0 / 1e9)
}

/// An operation with its number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct Bus {
    pub operation: Operation,
    pub ranks: u32,
}

impl Bus {
    /// Creates the value for an all-reduce.
    pub fn all_reduce(ranks: u32) -> Bus {
        Bus { operation: Operation::AllReduce, ranks }
    }

    /// Returns the bytes that every rank has to send, or one of them to receive, for each byte of the array
    /// (nccl-tests, doc/PERFORMANCE.md and `GetBw` of every program), and the formula for it: `2(n - 1) / n` for an
    /// all-reduce, `(n - 1) / n` if every rank has a part, 1 and no formula for the others.
    ///
    /// 1.5, 0.75 and 1 for 4 ranks.
    pub fn factor(self) -> (f64, &'static str) {
        let ranks = f64::from(self.ranks.max(1));
        let others = (ranks - 1.0) / ranks;
        match self.operation {
            Operation::AllReduce => (2.0 * others, " x 2(n \u{2212} 1) / n"),
            operation if operation.is_divided() => (others, " x (n \u{2212} 1) / n"),
            _ => (1.0, ""),
        }
    }

    /// Returns nccl-tests' factor from algorithm to bus bandwidth; 0 for one rank, which sends nothing.
    pub fn share(self) -> f64 {
        if self.ranks < 2 { 0.0 } else { self.factor().0 }
    }

    /// Returns [`share`](Bus::share) as a formula; empty if it is 1.
    pub fn formula(self) -> &'static str {
        self.factor().1
    }
}

/// Returns the bus bandwidth, `S / t` times the [share](Bus::share): comparable across rank counts, and the speed of
/// the wire if ranks form a ring. 0 for one rank.
///
/// `busbw(102.4 MB, 0.02 s, all-reduce of 4) = 5.12 x 1.5 = 7.68 GB/s`.
pub fn busbw(size: Bytes, time: Seconds, bus: Bus) -> GigabytesPerSecond {
    GigabytesPerSecond(algbw(size, time).0 * bus.share())
}

/// Returns the highest bus bandwidth of an all-reduce of n ranks, l of them on each host, whose memory moves `rate`
/// (reads and writes). Every rank's array is read once and written once, so that `t >= 2 l S / rate` and
/// `busbw <= rate / l x (n - 1) / n`.
///
/// `memory_bound(80 GB/s, 2, 2) = 20 GB/s`.
pub fn memory_bound(rate: GigabytesPerSecond, ranks_of_host: u32, ranks: u32) -> GigabytesPerSecond {
    let (local, ranks) = (f64::from(ranks_of_host.max(1)), f64::from(ranks.max(1)));
    GigabytesPerSecond(rate.0 / local * (ranks - 1.0) / ranks)
}

/// Returns the rate of every node's network card in a ring all-reduce over all ranks, with one card per node:
/// `busbw x (k - 1) / (n - 1)`.
///
/// `card_rate(30 GB/s, 2 nodes, 16 ranks) = 2 GB/s`.
pub fn card_rate(busbw: GigabytesPerSecond, nodes: u32, ranks: u32) -> GigabytesPerSecond {
    if ranks < 2 {
        return GigabytesPerSecond(0.0);
    }
    GigabytesPerSecond(busbw.0 * f64::from(nodes.saturating_sub(1)) / f64::from(ranks - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes(102_400_000);

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-9 * expected.abs().max(1.0), "{actual}, expected {expected}");
    }

    #[test]
    fn worked_numbers_are_reproduced() {
        close(algbw(SIZE, Seconds(0.02)).0, 5.12);
        close(busbw(SIZE, Seconds(0.02), Bus::all_reduce(4)).0, 7.68);
        close(busbw(SIZE, Seconds(0.02), Bus::all_reduce(1)).0, 0.0);
        close(memory_bound(GigabytesPerSecond(80.0), 2, 2).0, 20.0);
        close(memory_bound(GigabytesPerSecond(80.0), 2, 4).0, 30.0);
        close(card_rate(GigabytesPerSecond(30.0), 2, 16).0, 2.0);
    }

    /// 102.4 MB in 0.02 s, an algbw of 5.12 GB/s, among 4 ranks.
    #[test]
    fn operations_have_nccl_tests_factors() {
        for (operation, rate) in [
            (Operation::AllReduce, 7.68),
            (Operation::AllGather, 3.84),
            (Operation::ReduceScatter, 3.84),
            (Operation::AllToAll, 3.84),
            (Operation::Reduce, 5.12),
            (Operation::Broadcast, 5.12),
            (Operation::SendReceive, 5.12),
        ] {
            close(busbw(SIZE, Seconds(0.02), Bus { operation, ranks: 4 }).0, rate);
            close(busbw(SIZE, Seconds(0.02), Bus { operation, ranks: 1 }).0, 0.0);
        }
    }

    /// measure.py printed `iter 1, 0.023242 sec, 11.100222 GB/sec per gpu` for 257.991328 MB on two devices.
    #[test]
    fn published_measure_py_line_is_reproduced() {
        let rate = busbw(Bytes(257_991_328), Seconds(0.023242), Bus::all_reduce(2)).0;
        assert!((rate - 11.100222).abs() < 2e-4, "{rate}");
    }
}

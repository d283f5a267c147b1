//! Rates of an all-reduce. S = bytes of the reduced array, t = seconds, n = ranks, k = nodes; GB = 1e9 bytes.

use crate::dimension::units::{Bytes, GigabytesPerSecond, Seconds};

/// Algorithm bandwidth, `S / t`.
///
/// `algbw(102.4 MB, 0.02 s) = 5.12 GB/s`.
pub fn algbw(size: Bytes, time: Seconds) -> GigabytesPerSecond {
    GigabytesPerSecond(size.0 as f64 / time.0 / 1e9)
}

/// Bus bandwidth, `S / t x 2(n - 1) / n`: comparable over rank counts, and the speed of the wire where ranks form a
/// ring: each sends `2(n - 1) / n x S` (nccl-tests, doc/PERFORMANCE.md). 0 for one rank.
///
/// `busbw(102.4 MB, 0.02 s, 4) = 5.12 x 1.5 = 7.68 GB/s`.
pub fn busbw(size: Bytes, time: Seconds, ranks: u32) -> GigabytesPerSecond {
    if ranks < 2 {
        return GigabytesPerSecond(0.0);
    }
    let share = 2.0 * f64::from(ranks - 1) / f64::from(ranks);
    GigabytesPerSecond(algbw(size, time).0 * share)
}

/// Highest bus bandwidth of n ranks, l of them on each host, whose memory moves `rate`, read and written: every rank's
/// array is read once and written once, so that `t >= 2 l S / rate` and `busbw <= rate / l x (n - 1) / n`.
///
/// `memory_bound(80 GB/s, 2, 2) = 20 GB/s`.
pub fn memory_bound(rate: GigabytesPerSecond, ranks_of_host: u32, ranks: u32) -> GigabytesPerSecond {
    let (local, ranks) = (f64::from(ranks_of_host.max(1)), f64::from(ranks.max(1)));
    GigabytesPerSecond(rate.0 / local * (ranks - 1.0) / ranks)
}

/// What every node's network card carries of a ring over all ranks, `busbw x (k - 1) / (n - 1)`, one card a node.
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
    fn the_worked_numbers_hold() {
        close(algbw(SIZE, Seconds(0.02)).0, 5.12);
        close(busbw(SIZE, Seconds(0.02), 4).0, 7.68);
        close(busbw(SIZE, Seconds(0.02), 1).0, 0.0);
        close(memory_bound(GigabytesPerSecond(80.0), 2, 2).0, 20.0);
        close(memory_bound(GigabytesPerSecond(80.0), 2, 4).0, 30.0);
        close(card_rate(GigabytesPerSecond(30.0), 2, 16).0, 2.0);
    }

    /// `iter 1, 0.023242 sec, 11.100222 GB/sec per gpu` of 257.991328 MB: measure.py's printed line has two devices.
    #[test]
    fn measure_py_s_published_line_comes_out() {
        let rate = busbw(Bytes(257_991_328), Seconds(0.023242), 2).0;
        assert!((rate - 11.100222).abs() < 2e-4, "{rate}");
    }
}

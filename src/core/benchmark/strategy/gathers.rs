//! Gathers of sharded weights, and why computation waits for them.
//!
//! A rank requests a bucket's weights before it computes with the bucket before, and waits if they have not arrived when
//! the computation needs them:
//!
//! ```text
//! computed = gather - wait                     (what hid a part of the gather)
//! rate     = bytes received / transfer
//! ```
//!
//! `gather` is the mean over ranks of the time from request to arrival, `transfer` that of the rank with the shortest:
//! a gather starts only once all ranks have requested it, so that the others also waited for this rank. NCCL gathers
//! during the computation; the other backends gather in the wait, which is then both `gather` and a part of `wait`. The
//! bucket with the longest wait has a [`GatherCause`], tested in this order:
//!
//! | cause | condition |
//! |---|---|
//! | host | the host's own work in the hook is at least half of the wait |
//! | ranks | `gather - transfer` is at least half of the gather |
//! | small bucket | its rate is less than half of the best rate of larger buckets |
//! | transfer | otherwise: the transfer takes longer than the computation before it |
//!
//! Example: bucket 2 receives 8 MB. Its gather takes 5 ms on rank 0 and 4 ms on rank 1, and both wait 2.5 ms, of which the
//! host uses 0.1 ms. The transfer takes 4 ms, the rate is 2 GB/s, and the computation before it took 4.5 - 2.5 = 2 ms. If
//! the best rate of larger buckets is 2.2 GB/s, the cause is the transfer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, GigabytesPerSecond, Phase, Seconds};
use crate::keyword_enum;
use crate::number_text::{milliseconds, three_digits};

/// Share from which a part of a time is its cause.
const HALF: f64 = 0.5;

/// Gathers of a bucket's weights in one phase; times are means over the iterations after the warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatherUse {
    /// Number of the bucket, in backward order.
    pub bucket: u32,
    /// First and last weight of the bucket, in forward order.
    pub weights: [String; 2],
    /// Phase that needs the weights: `forward` or `backward`.
    pub phase: Phase,
    /// Gathers in an iteration; 0 if the weights of an earlier phase are still present.
    pub gathers: f64,
    /// Bytes that a rank receives in a gather.
    pub received: Bytes,
    /// Time from request to arrival, mean over ranks. If computation does not wait, the time until it needs the weights;
    /// with a backend other than NCCL, the time in the wait.
    pub gather: Seconds,
    /// The same time of the rank with the shortest.
    pub transfer: Seconds,
    /// Time in an iteration that computation waits, mean over ranks.
    pub wait: Seconds,
    /// Time in an iteration of the host's work in the hook, without waits for other ranks; mean over ranks.
    pub host: Seconds,
}

keyword_enum!(
    /// Cause of a wait for weights.
    GatherCause {
        /// Work of the host in the hook.
        Host = "host",
        /// Ranks that request the weights at different times.
        Ranks = "ranks",
        /// A bucket too small for the rate of the link.
        SmallBucket = "small-bucket",
        /// A transfer longer than the computation that could hide it.
        Transfer = "transfer",
    }
);

impl GatherUse {
    /// Returns the rate at which a rank receives the weights; `None` if nothing is gathered.
    pub fn rate(&self) -> Option<GigabytesPerSecond> {
        (self.gathers > 0.0 && self.transfer.0 > 0.0)
            .then(|| GigabytesPerSecond(self.received.0 as f64 / self.transfer.0 / 1e9))
    }

    /// Returns the time of one gather that computation hid.
    pub fn computed(&self) -> Seconds {
        Seconds((self.gather.0 - self.wait.0 / self.gathers.max(1.0)).max(0.0))
    }

    /// Describes the longest wait, its cause and a remedy.
    pub fn text(&self, cause: GatherCause) -> String {
        let GatherUse { bucket, weights: [first, last], phase, received, gather, transfer, wait, host, .. } = self;
        let rate = self.rate().map_or(0.0, |rate| rate.0);
        let [wait, host, gather, transfer] = [*wait, *host, *gather, *transfer].map(milliseconds);
        let why = match cause {
            GatherCause::Host => format!(
                "the host's own work in it takes {host}: on a CPU it copies weights; on a GPU, use larger buckets (--bucket-mb)"
            ),
            GatherCause::Ranks => {
                format!(
                    "ranks request it at different times ({gather} on average, at least {transfer}): look for a slow rank"
                )
            }
            GatherCause::SmallBucket => format!(
                "its {:.2} MB arrive at {} GB/s, less than half of the rate of larger buckets: use larger buckets (--bucket-mb)",
                received.megabytes(),
                three_digits(rate)
            ),
            GatherCause::Transfer => {
                let hidden = match self.computed() {
                    Seconds(0.0) => "no computation hides it".to_owned(),
                    computed => format!("the computation before it {}", milliseconds(computed)),
                };
                let rate = three_digits(rate);
                format!(
                    "its transfer takes {transfer} at {rate} GB/s, and {hidden}: use a larger batch or a faster link"
                )
            }
        };
        format!("the longest wait for weights, {wait} in {phase}, is for bucket {bucket} ({first} to {last}): {why}")
    }
}

/// Returns the time in an iteration that computation waits for weights in `phase`.
pub fn wait_in(phase: Phase, all: &[GatherUse]) -> Seconds {
    Seconds(all.iter().filter(|gather| gather.phase == phase).map(|gather| gather.wait.0).sum())
}

/// Returns the gather with the longest wait, and its cause; `None` if computation waited for no gather.
pub fn longest_wait(all: &[GatherUse]) -> Option<(&GatherUse, GatherCause)> {
    let gathered = || all.iter().filter(|gather| gather.gathers > 0.0);
    let longest = gathered().max_by(|one, other| one.wait.0.total_cmp(&other.wait.0))?;
    if longest.wait.0 <= 0.0 {
        return None;
    }
    let larger = gathered().filter(|other| other.received > longest.received);
    let best = larger.filter_map(GatherUse::rate).map(|rate| rate.0).fold(0.0, f64::max);
    let cause = if longest.host.0 >= HALF * longest.wait.0 {
        GatherCause::Host
    } else if longest.gather.0 - longest.transfer.0 >= HALF * longest.gather.0 {
        GatherCause::Ranks
    } else if longest.rate().is_some_and(|rate| rate.0 < HALF * best) {
        GatherCause::SmallBucket
    } else {
        GatherCause::Transfer
    };
    Some((longest, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(bucket: u32, megabytes: u64, [gather, transfer, wait, host]: [f64; 4]) -> GatherUse {
        let milliseconds = |time: f64| Seconds(time / 1e3);
        GatherUse {
            bucket,
            weights: ["first".to_owned(), "last".to_owned()],
            phase: if bucket == 0 { Phase::Backward } else { Phase::Forward },
            gathers: 1.0,
            received: Bytes(megabytes * 1_000_000),
            gather: milliseconds(gather),
            transfer: milliseconds(transfer),
            wait: milliseconds(wait),
            host: milliseconds(host),
        }
    }

    #[test]
    fn longest_wait_has_a_cause() {
        let example = gather(2, 8, [4.5, 4.0, 2.5, 0.1]);
        let cause = |longest: &GatherUse| {
            let all = [gather(1, 22, [10.0, 10.0, 0.5, 0.0]), longest.clone(), gather(3, 1, [0.1; 4])];
            let (found, cause) = longest_wait(&all).expect("a wait");
            assert_eq!(found.bucket, 2);
            cause
        };
        assert_eq!(cause(&example), GatherCause::Transfer);
        assert!((example.computed().0 - 0.002).abs() < 1e-12, "{:?}", example.computed());
        assert_eq!(cause(&gather(2, 8, [4.5, 4.0, 2.5, 1.25])), GatherCause::Host);
        assert_eq!(cause(&gather(2, 8, [9.0, 4.0, 2.5, 0.1])), GatherCause::Ranks);
        assert_eq!(cause(&gather(2, 4, [4.5, 4.0, 2.5, 0.1])), GatherCause::SmallBucket);
    }

    #[test]
    fn text_names_bucket_and_remedy() {
        let text = gather(2, 8, [4.5, 4.0, 2.5, 0.1]).text(GatherCause::Transfer);
        expect_test::expect!["the longest wait for weights, 2.50 ms in forward, is for bucket 2 (first to last): its transfer takes 4.00 ms at 2.00 GB/s, and the computation before it 2.00 ms: use a larger batch or a faster link"].assert_eq(&text);
    }

    #[test]
    fn waits_are_summed_by_phase() {
        let all = [gather(0, 1, [1.0; 4]), gather(1, 1, [1.0, 1.0, 2.0, 0.0]), gather(2, 1, [1.0, 1.0, 3.0, 0.0])];
        assert_eq!(wait_in(Phase::Backward, &all), Seconds(0.001));
        assert_eq!(wait_in(Phase::Forward, &all), Seconds(0.005));
        let present = GatherUse { gathers: 0.0, ..gather(0, 1, [0.0, 0.0, 1.0, 0.0]) };
        assert_eq!(longest_wait(&[present]), None);
    }
}

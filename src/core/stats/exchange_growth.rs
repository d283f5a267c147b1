//! Growth of a kv-store's exchange, if it is not an all-reduce, in cases that were not measured. It does not predict
//! absolute times, which were never measured apart from training.
//!
//! **Laws.** The time of an exchange is `A = sum over i of c_i x L_i` with unknown `c_i >= 0`, and the laws `L_i`
//! describe how each part scales with k hosts. So from one case to another A grows at least as much as the law that
//! grows least, and at most as much as the one that grows most. The same holds if the longest of the parts hides the
//! others.
//!
//! ```text
//! one owner per bucket
//!     to several balanced owners on all hosts at once          (k - 1) / k
//!   bucket after bucket
//!     forwarded from host to host, in pieces (chain)           1
//!     half of the hosts send to the other half (tree)          log2 k
//!     every host sends to the owner's (direct)                 k - 1
//! servers
//!     a round trip                                             1
//!     bytes of one direction of the busiest link               hosts of their own:
//!                                                                  p max(g, S) max(1, q k)
//!                                                              on hosts of ranks:
//!                                                                  p max(g (1 - q) + S q (k - 1), S (1 - q) + g q (k - 1))
//!     of these, bytes between the servers of a host and the others
//!                                                              p max(g, S) q k, or p max(g, S) q (k - 1)
//!     messages of a process that pushes                        all parts of arrays
//!     messages of a server                                     p k x its parts
//!     additions and updates of a server                        (p k + 2) s
//!     traffic of half of the hosts on the same uplinks         sqrt k
//! ```
//!
//! The servers of a host hold the share q of the weights, and one server the share s. p processes per host push g bytes
//! of gradients and pull S bytes of weights. An update of SGD with momentum moves as much memory as about two
//! additions.
//!
//! Example: 4 hosts with one process each, 4 servers on hosts of their own, g = S = 100 MB: `100 MB x max(1, 4 / 4)` =
//! 100 MB; with one server 400 MB; with 4 servers on the hosts of the ranks `75 MB + 25 MB x 3` = 150 MB, as much as a
//! ring moves.
//!
//! **The exposed part** follows [`allreduce_model`](crate::stats::allreduce_model): T(s) is convex, `T / s` never
//! decreases, and no slope is steeper than A, which is at most T plus the time h that backward can hide. So with A r
//! times as long `r T <= T' <= T + (r - 1) (T + h)` for `r >= 1`, and `T - (1 - r) (T + h) <= T' <= r T` below 1. The
//! band extends from the lower bound of the smallest r to the upper bound of the largest.
//!
//! Messages alone may be the whole exchange only at the lower end. At the upper end, each additional one adds at most
//! 1 ms.
//!
//! A smaller measured case narrows the band: the growth between the two measured cases continues in proportion to
//! `(L_i' - L_i) / (L_i - L_i0)`, at least by the smallest of these. If nothing is hidden and the parts add up, it
//! continues at most by the largest. If a law decreases, nothing follows.
//!
//! The middle is halfway. For servers it is halfway between the bounds of the bytes on the busiest link alone, which
//! determine their exchange if the network is slow.

use crate::stats::allreduce_model::Band;

/// Number of additions that cost as much memory traffic as an update.
const UPDATE: f64 = 2.0;

/// Maximum time of a message, in seconds, whatever its size.
const MESSAGE: f64 = 1e-3;

/// Index of the bytes on the busiest link among the parts of servers.
pub const BUSIEST_LINK: usize = 1;

/// Quantities that the parts of an exchange are proportional to; the same part has the same index in every case.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScalingLaws {
    /// Parts, any of which may be the whole exchange.
    pub parts: Vec<f64>,
    /// Messages per process.
    pub messages: Vec<f64>,
}

impl ScalingLaws {
    fn all(&self) -> impl Iterator<Item = f64> + '_ {
        self.parts.iter().chain(&self.messages).copied()
    }

    fn part(&self, place: usize) -> ScalingLaws {
        ScalingLaws { parts: vec![self.parts[place]], messages: Vec::new() }
    }
}

/// Returns the laws for owners on `hosts` hosts, at least two; with a single owner, buckets are never sent at the same
/// time.
pub fn owners(hosts: u32, are_several: bool) -> ScalingLaws {
    let hosts = f64::from(hosts);
    let at_once = are_several.then_some((hosts - 1.0) / hosts);
    ScalingLaws { parts: at_once.into_iter().chain([1.0, hosts.log2(), hosts - 1.0]).collect(), messages: Vec::new() }
}

/// Servers of one case, and the processes that push to them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Servers {
    /// Number of hosts with ranks.
    pub rank_hosts: u32,
    /// Processes per host that push: one if its ranks sum their gradients first.
    pub pushers_per_host: u32,
    /// Servers on the host that has most of them.
    pub on_one_host: u32,
    /// True if that host also has ranks.
    pub is_rank_host: bool,
    /// Largest share of the weights on one server, 0 to 1.
    pub share: f64,
    /// Number of parts of arrays, each of which is a message.
    pub parts: usize,
    /// Parts on the server that has most of them.
    pub parts_of_server: usize,
    /// Bytes that a process pushes per step.
    pub pushed: f64,
    /// Bytes that a process pulls per step.
    pub pulled: f64,
}

impl Servers {
    /// Returns the bytes per step in one direction of the busiest link.
    pub fn busiest_link(&self) -> f64 {
        let (pushers, hosts) = (f64::from(self.pushers_per_host), f64::from(self.rank_hosts));
        let held = (f64::from(self.on_one_host) * self.share).min(1.0);
        let (pushed, pulled) = (pushers * self.pushed, pushers * self.pulled);
        if !self.is_rank_host {
            return pushed.max(pulled) * (held * hosts).max(1.0);
        }
        let (others, own) = (held * (hosts - 1.0), 1.0 - held);
        (pushed * own + pulled * others).max(pulled * own + pushed * others)
    }

    /// Returns the bytes per step in one direction between the servers of a host and other hosts.
    fn served_link(&self) -> f64 {
        let others = self.rank_hosts - u32::from(self.is_rank_host);
        let held = (f64::from(self.on_one_host) * self.share).min(1.0);
        f64::from(self.pushers_per_host) * self.pushed.max(self.pulled) * held * f64::from(others)
    }

    /// Returns the laws in the module documentation.
    pub fn laws(&self) -> ScalingLaws {
        let pushers = f64::from(self.pushers_per_host) * f64::from(self.rank_hosts);
        ScalingLaws {
            parts: vec![
                1.0,
                self.busiest_link(),
                self.served_link(),
                (pushers + UPDATE) * self.share,
                f64::from(self.rank_hosts).sqrt(),
            ],
            messages: vec![self.parts as f64, pushers * self.parts_of_server as f64],
        }
    }
}

fn min_max(ratios: impl Iterator<Item = f64>) -> [f64; 2] {
    ratios.fold([f64::INFINITY, 0.0], |[least, most], ratio| [least.min(ratio), most.max(ratio)])
}

fn ratios(before: impl Iterator<Item = f64>, after: impl Iterator<Item = f64>) -> [f64; 2] {
    min_max(before.zip(after).map(|(before, after)| after / before))
}

/// Returns the growth from `before` to `after` in multiples of that from `smaller` to `before`, at least and at most.
/// `None` if a law decreases, or none increases.
fn rates(smaller: &ScalingLaws, before: &ScalingLaws, after: &ScalingLaws) -> Option<[f64; 2]> {
    let each = smaller.all().zip(before.all()).zip(after.all());
    let each: Vec<[f64; 3]> = each.map(|((smaller, before), after)| [smaller, before, after]).collect();
    // A difference by rounding is not a decrease.
    let falls = |[smaller, before, after]: &[f64; 3]| (before - smaller).min(after - before) < -1e-9 * before;
    let rising = || each.iter().filter(|[smaller, before, _]| before - smaller > 1e-9 * before);
    let rate = |[smaller, before, after]: &[f64; 3]| ((after - before) / (before - smaller)).max(0.0);
    (!each.iter().any(falls) && rising().next().is_some()).then(|| min_max(rising().map(rate)))
}

/// Laws of an exchange in up to three cases.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// Measured case.
    pub before: ScalingLaws,
    /// Smaller measured case, if there is one.
    pub smaller: Option<ScalingLaws>,
    /// Case to estimate.
    pub after: ScalingLaws,
    /// Index of the law that determines the middle; `None` places it halfway.
    pub main: Option<usize>,
}

impl Growth {
    /// Estimates the exposed part, of which `exposed` seconds are visible and at most `hidden` are not. `seen` is that
    /// of the smaller case and the 95 % margin of the difference, infinite if it is not known.
    pub fn estimate(&self, exposed: f64, hidden: f64, seen: Option<(f64, f64)>) -> Band {
        let band = self.extremes(exposed, hidden, seen);
        let Some(main) = self.main else { return band };
        let of_main = Growth {
            before: self.before.part(main),
            smaller: self.smaller.as_ref().map(|smaller| smaller.part(main)),
            after: self.after.part(main),
            main: None,
        };
        Band { mid: of_main.extremes(exposed, hidden, seen).mid.max(band.low).min(band.high), ..band }
    }

    /// Returns the largest growth of the exchange as a ratio, messages excluded.
    pub fn longer(&self) -> f64 {
        ratios(self.before.parts.iter().copied(), self.after.parts.iter().copied())[1]
    }

    fn extremes(&self, exposed: f64, hidden: f64, seen: Option<(f64, f64)>) -> Band {
        let [least, _] = ratios(self.before.all(), self.after.all());
        let most = self.longer();
        let scaled_with_hidden = |ratio: f64| (exposed + (ratio - 1.0) * (exposed + hidden)).max(0.0);
        let at_most = |ratio: f64| if ratio < 1.0 { exposed * ratio } else { scaled_with_hidden(ratio) };
        let mut low = if least < 1.0 { scaled_with_hidden(least) } else { exposed * least };
        let mut high = at_most(most);
        for (before, after) in self.before.messages.iter().zip(&self.after.messages) {
            high = high.max(at_most(after / before).min(high + MESSAGE * (after - before).max(0.0)));
        }
        let rates = self.smaller.as_ref().and_then(|smaller| rates(smaller, &self.before, &self.after));
        if let (Some([slowest, fastest]), Some((seen, margin))) = (rates, seen.filter(|(_, margin)| margin.is_finite()))
        {
            let extrapolated = |margin: f64, rate: f64| exposed + (exposed - seen + margin).max(0.0) * rate;
            low = low.max(extrapolated(-margin, slowest));
            high = match hidden > 0.0 {
                // The margin alone must not raise the bound above its value without a smaller case.
                true => high.max(extrapolated(margin, fastest).min((exposed * most).max(extrapolated(0.0, fastest)))),
                false => high.min(extrapolated(margin, fastest)),
            };
        }
        Band::between(low.min(high), high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    fn servers(rank_hosts: u32, number: u32, is_rank_host: bool) -> Servers {
        let on_one_host = if is_rank_host { number.div_ceil(rank_hosts) } else { 1 };
        Servers {
            rank_hosts,
            pushers_per_host: 1,
            on_one_host,
            is_rank_host,
            share: 1.0 / f64::from(number),
            parts: 12,
            parts_of_server: 12 / number as usize,
            pushed: 100.0 * MB,
            pulled: 100.0 * MB,
        }
    }

    fn several_owners(hosts: u32) -> ScalingLaws {
        super::owners(hosts, true)
    }

    fn between(before: ScalingLaws, after: ScalingLaws) -> Growth {
        Growth { before, smaller: None, after, main: None }
    }

    #[test]
    fn busiest_link_follows_placement() {
        for (rank_hosts, number, is_rank_host, megabytes) in [
            (4, 4, false, 100.0),
            (4, 2, false, 200.0),
            (4, 1, false, 400.0),
            (4, 4, true, 150.0),
            // Two servers on each host hold half.
            (4, 8, true, 150.0),
            // All other hosts push to the only server's.
            (4, 1, true, 300.0),
            (1, 1, true, 0.0),
        ] {
            let bytes = servers(rank_hosts, number, is_rank_host).busiest_link();
            assert!((bytes - megabytes * MB).abs() < 1.0, "{rank_hosts} hosts, {number} servers: {bytes}");
        }
        // Pushes of half the size: pulls dominate.
        let half = Servers { pushed: 50.0 * MB, ..servers(4, 4, true) };
        assert_eq!(half.busiest_link(), 0.75 * 50.0 * MB + 0.25 * 3.0 * 100.0 * MB);
        let each_for_itself = Servers { pushers_per_host: 8, ..servers(4, 4, false) };
        assert_eq!(each_for_itself.busiest_link(), 800.0 * MB);
    }

    #[test]
    fn owners_lie_between_chain_and_direct() {
        assert_eq!(between(several_owners(2), several_owners(8)).longer(), 7.0);
        // Nothing is hidden: 1 s for two hosts.
        assert_eq!(between(several_owners(2), several_owners(4)).estimate(1.0, 0.0, None), Band::between(1.0, 3.0));
        // Backward hid up to half a second.
        assert_eq!(between(several_owners(2), several_owners(4)).estimate(1.0, 0.5, None), Band::between(1.0, 4.0));
        // Fewer hosts than measured.
        assert_eq!(between(several_owners(4), several_owners(2)).estimate(3.0, 0.0, None), Band::between(1.0, 3.0));
    }

    #[test]
    fn smaller_case_separates_chain_tree_and_direct() {
        let growth = Growth { smaller: Some(several_owners(2)), ..between(several_owners(4), several_owners(8)) };
        let with = |seen: f64, exposed: f64, hidden: f64| growth.estimate(exposed, hidden, Some((seen, 0.0)));
        assert_eq!(with(1.0, 1.0, 0.0), Band::between(1.0, 1.0));
        let tree = with(1.0, 2.0, 0.0);
        // At least as much as with several owners at the same time: half of the growth from 1/2 to 3/4 occurs from 3/4
        // to 7/8.
        assert_eq!((tree.low, tree.high), (2.5, 4.0));
        let straight = with(1.0, 3.0, 0.0);
        assert_eq!((straight.low, straight.high), (4.0, 7.0));
        // Hidden time may become exposed.
        assert!(with(1.0, 2.0, 1.0).high > tree.high);
        assert_eq!(growth.estimate(2.0, 0.0, Some((1.0, f64::INFINITY))).high, 2.0 * 7.0 / 3.0);
        // With a single owner buckets are never sent at the same time, so that the growth is at least that of a tree.
        let [smaller, before, after] = [2, 4, 8].map(|hosts| super::owners(hosts, false));
        let growth = Growth { smaller: Some(smaller), ..between(before, after) };
        let with = |exposed: f64| growth.estimate(exposed, 0.0, Some((1.0, 0.0)));
        assert_eq!((with(2.0).low, with(2.0).high), (3.0, 4.0));
        assert_eq!((with(3.0).low, with(3.0).high), (5.0, 7.0));
    }

    #[test]
    fn server_speedup_is_bounded_by_bytes() {
        let growth = between(servers(4, 1, false).laws(), servers(4, 4, false).laws());
        let band = growth.estimate(4.0, 0.0, None);
        assert_eq!((band.low, band.mid, band.high), (1.0, 2.5, 4.0));
        let by_bytes = Growth { main: Some(BUSIEST_LINK), ..growth };
        assert_eq!(by_bytes.estimate(4.0, 0.0, None), Band { mid: 1.0, ..band });
    }

    #[test]
    fn message_cost_is_at_most_a_millisecond() {
        let laws = |messages| ScalingLaws { parts: vec![1.0], messages: vec![messages] };
        let band = |before, after| between(laws(before), laws(after)).estimate(4.0, 0.0, None);
        assert_eq!((band(10.0, 30.0).low, band(10.0, 30.0).high), (4.0, 4.02));
        assert_eq!((band(10.0, 5.0).low, band(10.0, 5.0).high), (2.0, 4.0));
    }

    /// Covers the assumptions of the bounds: any mixture of laws, as a sum or as the longest part, behind any backward.
    #[test]
    fn bounds_hold_for_random_mixtures() {
        let mut state: u64 = 11;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for _ in 0..5000 {
            let (has_owners, is_rank_host, are_several) = (uniform() < 0.5, uniform() < 0.5, uniform() < 0.5);
            let laws = [2, 4, 8].map(|hosts| match has_owners {
                true => super::owners(hosts, are_several),
                false => servers(hosts, 2, is_rank_host).laws(),
            });
            let of_parts = laws[0].parts.iter().map(|first| 1.0 / first);
            let most: Vec<f64> = of_parts.chain(laws[0].messages.iter().map(|_| MESSAGE)).collect();
            let weights: Vec<f64> = most.iter().map(|most| most * uniform()).collect();
            let is_sum = uniform() < 0.5;
            let length = |laws: &ScalingLaws| {
                let parts = laws.all().zip(&weights).map(|(law, weight)| law * weight);
                if is_sum { parts.sum::<f64>() } else { parts.fold(0.0, f64::max) }
            };
            let buckets: Vec<(f64, f64)> =
                (0..1 + (6.0 * uniform()) as usize).map(|_| (uniform(), uniform())).collect();
            let all: f64 = buckets.iter().map(|(time, _)| time).sum();
            let backward = 3.0 * uniform();
            let mut full: Vec<f64> = buckets.iter().map(|(_, at)| at * backward).collect();
            full.sort_by(f64::total_cmp);
            *full.last_mut().expect("one at least") = backward;
            let exposed = |laws: &ScalingLaws| {
                let scale = length(laws) / all;
                let each = buckets.iter().zip(&full);
                each.fold(0.0, |done: f64, ((time, _), full)| done.max(*full) + scale * time) - backward
            };
            let [smaller, before, truth] = [0, 1, 2].map(|index: usize| exposed(&laws[index]));
            let growth = Growth { smaller: Some(laws[0].clone()), ..between(laws[1].clone(), laws[2].clone()) };
            for seen in [None, Some((smaller, 0.0))] {
                let band = growth.estimate(before, backward, seen);
                assert!(
                    (band.low - 1e-9..=band.high + 1e-9).contains(&truth),
                    "{truth} in {band:?}: {laws:?}, {weights:?}"
                );
            }
        }
    }
}

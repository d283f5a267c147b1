//! Assignment of parts of a range to ranks and hosts; pure arithmetic.

use std::ops::Range;

use crate::job::world::RankLocation;

/// Alignment of shards, in elements: no two ranks write to the same cache line.
const ALIGNMENT: usize = 64;

/// A part of a range with an owner: the rank that receives its sums or that sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub elements: Range<usize>,
    pub owner: RankLocation,
    /// Local rank that, on every host, sums the piece or exchanges it with the other hosts.
    pub worker: usize,
}

/// Divides `elements`, owned by one rank, among the first `shards` ranks of every host.
pub fn for_one_owner(elements: &Range<usize>, owner: RankLocation, shards: usize) -> Vec<Piece> {
    let piece = |worker| Piece { elements: shard(elements, worker, shards), owner, worker };
    (0..shards).map(piece).filter(|piece| !piece.elements.is_empty()).collect()
}

/// Returns one piece for each rank's part, owned by that rank.
pub fn for_each_owner(parts: &[Range<usize>], locations: &[RankLocation], shards: usize) -> Vec<Piece> {
    let piece = |(part, location): (&Range<usize>, &RankLocation)| Piece {
        elements: part.clone(),
        owner: *location,
        worker: location.local_rank % shards,
    };
    parts.iter().zip(locations).map(piece).filter(|piece| !piece.elements.is_empty()).collect()
}

/// Returns shard `number` of `shards`; empty if there is no such shard.
pub fn shard(range: &Range<usize>, number: usize, shards: usize) -> Range<usize> {
    let border = |shard: usize| {
        let even = range.start + range.len() * shard / shards;
        if shard == shards { range.end } else { even.next_multiple_of(ALIGNMENT).min(range.end) }
    };
    if number >= shards {
        return range.end..range.end;
    }
    let start = if number == 0 { range.start } else { border(number) };
    start..border(number + 1)
}

/// Returns the index of `host` among the hosts with a local rank `worker`, which is its rank in the group of these
/// ranks.
pub fn rank_in_group(host: usize, worker: usize, locations: &[RankLocation]) -> usize {
    locations
        .iter()
        .filter(|location| location.local_rank == worker)
        .position(|location| location.host == host)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts, one with two ranks and one with one.
    const LOCATIONS: [RankLocation; 3] = [
        RankLocation { host: 0, local_rank: 0 },
        RankLocation { host: 0, local_rank: 1 },
        RankLocation { host: 1, local_rank: 0 },
    ];

    #[test]
    fn single_owner_is_split_among_shards() {
        let pieces = for_one_owner(&(10..300), LOCATIONS[2], 2);
        let ranges: Vec<_> = pieces.iter().map(|piece| (piece.elements.clone(), piece.worker)).collect();
        assert_eq!(ranges, [(10..192, 0), (192..300, 1)]);
        assert!(pieces.iter().all(|piece| piece.owner == LOCATIONS[2]));
        assert_eq!(for_one_owner(&(0..10), LOCATIONS[0], 2).len(), 1, "a shard may be empty");
    }

    #[test]
    fn pieces_go_to_local_ranks_present_on_all_hosts() {
        let pieces = for_each_owner(&[0..5, 5..10, 10..10], &LOCATIONS, 1);
        assert_eq!(pieces.iter().map(|piece| piece.worker).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(pieces[1].owner, LOCATIONS[1]);
        assert_eq!([0, 1].map(|host| rank_in_group(host, 0, &LOCATIONS)), [0, 1]);
    }
}

//! Assignment of parts of a range to ranks and hosts; pure arithmetic.

use std::ops::Range;

use crate::job::world::Seat;

/// Alignment of shards, in elements: no two ranks write to the same cache line.
const GRAIN: usize = 64;

/// A part of a range with an owner: the rank that receives its sums or that sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub elements: Range<usize>,
    pub owner: Seat,
    /// Local rank that, on every host, sums the piece or exchanges it with the other hosts.
    pub worker: usize,
}

/// Divides `elements`, owned by one rank, among the first `shards` ranks of every host.
pub fn for_one_owner(elements: &Range<usize>, owner: Seat, shards: usize) -> Vec<Piece> {
    let piece = |worker| Piece { elements: shard(elements, worker, shards), owner, worker };
    (0..shards).map(piece).filter(|piece| !piece.elements.is_empty()).collect()
}

/// Returns one piece for each rank's part, owned by that rank.
pub fn for_every_owner(parts: &[Range<usize>], seats: &[Seat], shards: usize) -> Vec<Piece> {
    let piece = |(part, seat): (&Range<usize>, &Seat)| Piece {
        elements: part.clone(),
        owner: *seat,
        worker: seat.local_rank % shards,
    };
    parts.iter().zip(seats).map(piece).filter(|piece| !piece.elements.is_empty()).collect()
}

/// Returns shard `number` of `shards`; empty if there is no such shard.
pub fn shard(range: &Range<usize>, number: usize, shards: usize) -> Range<usize> {
    let border = |shard: usize| {
        let even = range.start + range.len() * shard / shards;
        if shard == shards { range.end } else { even.next_multiple_of(GRAIN).min(range.end) }
    };
    if number >= shards {
        return range.end..range.end;
    }
    let start = if number == 0 { range.start } else { border(number) };
    start..border(number + 1)
}

/// Returns the index of `host` among the hosts with a local rank `worker`, which is its rank in the group of these
/// ranks.
pub fn rank_in_group(host: usize, worker: usize, seats: &[Seat]) -> usize {
    seats.iter().filter(|seat| seat.local_rank == worker).position(|seat| seat.host == host).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hosts, one with two ranks and one with one.
    const SEATS: [Seat; 3] =
        [Seat { host: 0, local_rank: 0 }, Seat { host: 0, local_rank: 1 }, Seat { host: 1, local_rank: 0 }];

    #[test]
    fn one_owner_s_pieces_are_divided_among_the_shards() {
        let pieces = for_one_owner(&(10..300), SEATS[2], 2);
        let ranges: Vec<_> = pieces.iter().map(|piece| (piece.elements.clone(), piece.worker)).collect();
        assert_eq!(ranges, [(10..192, 0), (192..300, 1)]);
        assert!(pieces.iter().all(|piece| piece.owner == SEATS[2]));
        assert_eq!(for_one_owner(&(0..10), SEATS[0], 2).len(), 1, "a shard may be empty");
    }

    #[test]
    fn every_owner_s_piece_is_done_where_all_hosts_have_a_rank_for_it() {
        let pieces = for_every_owner(&[0..5, 5..10, 10..10], &SEATS, 1);
        assert_eq!(pieces.iter().map(|piece| piece.worker).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(pieces[1].owner, SEATS[1]);
        assert_eq!([0, 1].map(|host| rank_in_group(host, 0, &SEATS)), [0, 1]);
    }
}

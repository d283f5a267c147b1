//! One operation on one array from the view of a rank: what starts, the values to fill in before, and the values
//! expected afterwards. Pure functions.

use std::ops::Range;

use ringmark_core::benchmark::bandwidth::ArraySize;
use ringmark_core::dimension::{Operands, Operation};

use crate::benchmark::bandwidth::source_values::Origin;
use crate::exchange::collective::{Collective, Route, Target, split_evenly};
use crate::ffi::group::{GroupRank, Neighbors};

/// Operation of a rank.
#[derive(Debug)]
pub struct Task {
    pub collective: Collective<'static>,
    pub elements: usize,
    /// Input elements of this rank.
    pub own: Range<usize>,
    pub expected: ExpectedResult,
}

/// Expected result on this rank.
#[derive(Debug, PartialEq, Eq)]
pub enum ExpectedResult {
    /// Reduced values of all ranks in this range.
    Reduced(Range<usize>),
    /// Values of other ranks.
    Moved(Vec<Origin>),
}

/// Returns the values of the previous rank, or none.
fn received(elements: usize, neighbors: Neighbors) -> ExpectedResult {
    let origin = |rank| Origin { place: 0..elements, rank, first: 0 };
    ExpectedResult::Moved(neighbors.previous.map(origin).into_iter().collect())
}

impl Task {
    /// Creates the operation on an array of this size, for rank `own_rank`.
    pub fn new(operands: Operands, size: ArraySize, own_rank: GroupRank) -> Task {
        let GroupRank { rank, ranks } = own_rank;
        let elements = size.elements as usize;
        let (all, root, target) = (0..elements, operands.root, Target::Memory);
        let parts = split_evenly(0..elements, ranks, 1);
        let part = parts[rank as usize].clone();
        let every_part = |first: fn(&Range<usize>, usize) -> usize| -> ExpectedResult {
            let origin = |(place, rank): (&Range<usize>, u32)| Origin {
                place: place.clone(),
                rank,
                first: first(place, part.start),
            };
            ExpectedResult::Moved(parts.iter().zip(0..).map(origin).collect())
        };
        let whole = |rank: u32| ExpectedResult::Moved(vec![Origin { place: 0..elements, rank, first: 0 }]);
        let nothing = 0..0;
        let (own, expected) = match operands.operation {
            Operation::AllReduce => (all.clone(), ExpectedResult::Reduced(all.clone())),
            Operation::Reduce if rank == root => (all.clone(), ExpectedResult::Reduced(all.clone())),
            Operation::Reduce => (all.clone(), ExpectedResult::Reduced(nothing)),
            Operation::ReduceScatter => (all.clone(), ExpectedResult::Reduced(part.clone())),
            Operation::Broadcast => (if rank == root { all.clone() } else { nothing }, whole(root)),
            Operation::AllGather => (part.clone(), every_part(|place, _| place.start)),
            Operation::AllToAll => (all.clone(), every_part(|_, own| own)),
            Operation::SendReceive => (all.clone(), received(elements, own_rank.in_ring())),
        };
        let collective = match operands.operation {
            Operation::AllReduce => Collective::AllReduce { elements: all },
            Operation::Reduce => Collective::Reduce { elements: all, root, route: Route::Chain },
            Operation::ReduceScatter => Collective::ReduceScatter { parts },
            Operation::Broadcast => Collective::Broadcast { elements: all, root, target },
            Operation::AllGather => Collective::AllGather { parts, target },
            Operation::AllToAll => Collective::AllToAll { parts },
            Operation::SendReceive => Collective::SendReceive { elements: all, neighbors: own_rank.in_ring() },
        };
        Task { collective, elements, own, expected }
    }

    /// Creates the transfer of an array from rank `from` to rank `to` alone.
    pub fn for_pair(size: ArraySize, own_rank: GroupRank, from: u32, to: u32) -> Task {
        let (elements, neighbors) = (size.elements as usize, own_rank.in_pair(from, to));
        let collective = Collective::SendReceive { elements: 0..elements, neighbors };
        Task { collective, elements, own: 0..elements, expected: received(elements, neighbors) }
    }
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::{Bytes, Reduction};

    use super::*;

    fn task(operation: Operation, rank: u32) -> Task {
        let operands = Operands { operation, reduction: Reduction::Sum, root: 2 };
        let count = if operation.is_divided() { 4 } else { 12 };
        Task::new(operands, ArraySize { bytes: Bytes(48), count, elements: 12 }, GroupRank { rank, ranks: 3 })
    }

    /// Checks rank 1 of three ranks, with root 2.
    #[test]
    fn inputs_and_results_match_each_operation() {
        let origin = |place, rank, first| Origin { place, rank, first };
        for (operation, own, expected) in [
            (Operation::AllReduce, 0..12, ExpectedResult::Reduced(0..12)),
            (Operation::Reduce, 0..12, ExpectedResult::Reduced(0..0)),
            (Operation::ReduceScatter, 0..12, ExpectedResult::Reduced(4..8)),
            (Operation::Broadcast, 0..0, ExpectedResult::Moved(vec![origin(0..12, 2, 0)])),
            (Operation::SendReceive, 0..12, ExpectedResult::Moved(vec![origin(0..12, 0, 0)])),
            (
                Operation::AllGather,
                4..8,
                ExpectedResult::Moved(vec![origin(0..4, 0, 0), origin(4..8, 1, 4), origin(8..12, 2, 8)]),
            ),
            (
                Operation::AllToAll,
                0..12,
                ExpectedResult::Moved(vec![origin(0..4, 0, 4), origin(4..8, 1, 4), origin(8..12, 2, 4)]),
            ),
        ] {
            let task = task(operation, 1);
            assert_eq!((task.own, task.expected, task.collective.span()), (own, expected, 0..12), "{operation}");
        }
        assert_eq!(task(Operation::Reduce, 2).expected, ExpectedResult::Reduced(0..12));
        assert_eq!(task(Operation::Broadcast, 2).own, 0..12);
        assert!(
            matches!(&task(Operation::SendReceive, 0).expected, ExpectedResult::Moved(from) if from[0].rank == 2),
            "a ring"
        );
        let size = ArraySize { bytes: Bytes(48), count: 12, elements: 12 };
        let pair = |rank| Task::for_pair(size, GroupRank { rank, ranks: 3 }, 2, 0).expected;
        let all = ExpectedResult::Moved(vec![origin(0..12, 2, 0)]);
        let nothing = || ExpectedResult::Moved(Vec::new());
        assert_eq!([pair(0), pair(1), pair(2)], [all, nothing(), nothing()]);
    }
}

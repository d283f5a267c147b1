//! What ranks do together with their arrays: the operation, and how one that reduces brings the ranks' values together.

use crate::keyword_enum;

keyword_enum!(
    /// A collective operation, by the name of the nccl-tests program that measures it.
    Operation {
        /// Every rank gets what all ranks' arrays come to.
        AllReduce = "all_reduce" | "all-reduce" | "allreduce",
        /// Every rank gets the parts of all ranks, one behind the other.
        AllGather = "all_gather" | "all-gather" | "allgather",
        /// Every rank gets its part of what all ranks' arrays come to.
        ReduceScatter = "reduce_scatter" | "reduce-scatter",
        /// One rank, the root, gets what all ranks' arrays come to.
        Reduce = "reduce",
        /// Every rank gets the root's array.
        Broadcast = "broadcast" | "bcast",
        /// Every rank gets its part of every rank's array.
        Alltoall = "alltoall" | "all_to_all" | "all-to-all",
        /// Every rank sends its array to the next one, the last to the first.
        Sendrecv = "sendrecv" | "send_recv",
    }
);

impl Default for Operation {
    /// What training does, and what records say that are older than the choice.
    fn default() -> Operation {
        Operation::AllReduce
    }
}

impl Operation {
    /// Whether values of several ranks become one.
    pub fn reduces(self) -> bool {
        matches!(self, Operation::AllReduce | Operation::ReduceScatter | Operation::Reduce)
    }

    /// Whether one rank is not like the others.
    pub fn has_root(self) -> bool {
        matches!(self, Operation::Reduce | Operation::Broadcast)
    }

    /// Whether the array has a part for every rank.
    pub fn is_divided(self) -> bool {
        matches!(self, Operation::AllGather | Operation::ReduceScatter | Operation::Alltoall)
    }

    /// Whether the output may lie where the input is: where parts only change places there would be nowhere to put them.
    pub fn goes_in_place(self) -> bool {
        !matches!(self, Operation::Alltoall | Operation::Sendrecv)
    }
}

keyword_enum!(
    /// How the values of several ranks become one.
    Reduction {
        /// Added.
        Sum = "sum",
        /// The largest.
        Max = "max",
        /// Added and divided by the number of ranks.
        Avg = "avg" | "average" | "mean",
    }
);

impl Default for Reduction {
    /// What training needs, and what records say that are older than the choice.
    fn default() -> Reduction {
        Reduction::Sum
    }
}

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
        AllToAll = "alltoall" | "all_to_all" | "all-to-all",
        /// Every rank sends its array to the next one, the last to the first.
        SendReceive = "sendrecv" | "send_recv",
    }
);

impl Default for Operation {
    /// What training does, and what records say that are older than the choice.
    fn default() -> Operation {
        Operation::AllReduce
    }
}

impl Operation {
    /// In a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Operation::AllReduce => "all-reduce",
            Operation::AllGather => "all-gather",
            Operation::ReduceScatter => "reduce-scatter",
            Operation::Reduce => "reduce",
            Operation::Broadcast => "broadcast",
            Operation::AllToAll => "all-to-all",
            Operation::SendReceive => "send and receive",
        }
    }

    /// [`text`](Operation::text) where a sentence or a title begins.
    pub fn title(self) -> String {
        let text = self.text();
        text[..1].to_uppercase() + &text[1..]
    }

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
        matches!(self, Operation::AllGather | Operation::ReduceScatter | Operation::AllToAll)
    }

    /// Whether the output may lie where the input is: where parts only change places there would be nowhere to put them.
    pub fn goes_in_place(self) -> bool {
        !matches!(self, Operation::AllToAll | Operation::SendReceive)
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

/// What is done, as nccl-tests' table has it in its columns `redop` and `root`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    /// What.
    pub operation: Operation,
    /// How values come together, where they do.
    pub reduction: Reduction,
    /// Rank, where there is one.
    pub root: u32,
}

impl Operands {
    /// `none` where nothing is reduced. nccl-tests' sendrecv reduces nothing and says what it was given, `sum`.
    pub fn reduction_name(self) -> String {
        match self.operation {
            operation if operation.reduces() || operation == Operation::SendReceive => self.reduction.to_string(),
            _ => "none".to_owned(),
        }
    }

    /// `all-reduce`, `broadcast from rank 1`, `reduce (max) to rank 0`.
    pub fn text(self) -> String {
        let Operands { operation, reduction, root } = self;
        let reduction = match reduction {
            Reduction::Sum => String::new(),
            other => format!(" ({other})"),
        };
        let root = match operation {
            Operation::Broadcast => format!(" from rank {root}"),
            Operation::Reduce => format!(" to rank {root}"),
            _ => String::new(),
        };
        operation.text().to_owned() + &reduction + &root
    }

    /// -1 where there is none.
    pub fn root_number(self) -> i64 {
        if self.operation.has_root() { i64::from(self.root) } else { -1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_told_in_words_and_in_nccl_tests_columns() {
        for (operation, reduction, text, columns) in [
            (Operation::AllReduce, Reduction::Sum, "all-reduce", ("sum", -1)),
            (Operation::Reduce, Reduction::Max, "reduce (max) to rank 1", ("max", 1)),
            (Operation::Broadcast, Reduction::Sum, "broadcast from rank 1", ("none", 1)),
            (Operation::SendReceive, Reduction::Sum, "send and receive", ("sum", -1)),
            (Operation::AllToAll, Reduction::Sum, "all-to-all", ("none", -1)),
        ] {
            let operands = Operands { operation, reduction, root: 1 };
            assert_eq!(operands.text(), text);
            assert_eq!((operands.reduction_name().as_str(), operands.root_number()), columns);
        }
        assert_eq!(Operation::AllGather.title(), "All-gather");
    }
}

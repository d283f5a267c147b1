//! Collective operations and reductions.

use crate::keyword_enum;

keyword_enum!(
    /// A collective operation, by the name of the nccl-tests program that measures it.
    #[derive(Default)]
    Operation {
        /// Every rank receives the reduction of all ranks' arrays.
        // The operation of training, and of records that predate the option.
        #[default]
        AllReduce = "all_reduce" | "all-reduce" | "allreduce",
        /// Every rank receives the parts of all ranks, concatenated.
        AllGather = "all_gather" | "all-gather" | "allgather",
        /// Every rank receives its part of the reduction of all ranks' arrays.
        ReduceScatter = "reduce_scatter" | "reduce-scatter",
        /// One rank, the root, receives the reduction of all ranks' arrays.
        Reduce = "reduce",
        /// Every rank receives the root's array.
        Broadcast = "broadcast" | "bcast",
        /// Every rank receives its part of every rank's array.
        AllToAll = "alltoall" | "all_to_all" | "all-to-all",
        /// Every rank sends its array to the next rank, the last to the first.
        SendReceive = "sendrecv" | "send_recv",
    }
);

/// Properties of an operation.
struct Properties {
    text: &'static str,
    reduces: bool,
    /// Preposition before the root, if there is one.
    root: Option<&'static str>,
    is_divided: bool,
    goes_in_place: bool,
}

impl Operation {
    fn properties(self) -> Properties {
        let (text, reduces, root, is_divided, goes_in_place) = match self {
            Operation::AllReduce => ("all-reduce", true, None, false, true),
            Operation::AllGather => ("all-gather", false, None, true, true),
            Operation::ReduceScatter => ("reduce-scatter", true, None, true, true),
            Operation::Reduce => ("reduce", true, Some("to"), false, true),
            Operation::Broadcast => ("broadcast", false, Some("from"), false, true),
            Operation::AllToAll => ("all-to-all", false, None, true, false),
            Operation::SendReceive => ("send and receive", false, None, false, false),
        };
        Properties { text, reduces, root, is_divided, goes_in_place }
    }

    /// Returns the name for sentences.
    pub fn text(self) -> &'static str {
        self.properties().text
    }

    /// Returns [`text`](Operation::text) capitalized, for the start of a sentence or title.
    pub fn title(self) -> String {
        let text = self.text();
        text[..1].to_uppercase() + &text[1..]
    }

    /// Returns true if values of several ranks are reduced to one.
    pub fn reduces(self) -> bool {
        self.properties().reduces
    }

    /// Returns true if one rank is the root.
    pub fn has_root(self) -> bool {
        self.properties().root.is_some()
    }

    /// Returns true if the array has one part per rank.
    pub fn is_divided(self) -> bool {
        self.properties().is_divided
    }

    /// Returns true if the operation can run in place. Operations that only move parts cannot: they would overwrite
    /// parts before these are sent.
    pub fn goes_in_place(self) -> bool {
        self.properties().goes_in_place
    }
}

keyword_enum!(
    /// Reduction of the values of several ranks to one.
    #[derive(Default)]
    Reduction {
        /// Sum of the values.
        // The reduction of training, and of records that predate the option.
        #[default]
        Sum = "sum",
        /// Largest value.
        Max = "max",
        /// Sum divided by the number of ranks.
        Avg = "avg" | "average" | "mean",
    }
);

/// Operation with its operands, as in the columns `redop` and `root` of nccl-tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    /// Collective operation.
    pub operation: Operation,
    /// Reduction, ignored if the operation does not reduce.
    pub reduction: Reduction,
    /// Root rank, ignored if the operation has none.
    pub root: u32,
}

impl Operands {
    /// Returns `none` if nothing is reduced, except for nccl-tests' sendrecv, which reduces nothing and prints the
    /// requested reduction.
    pub fn reduction_name(self) -> String {
        match self.operation {
            operation if operation.reduces() || operation == Operation::SendReceive => self.reduction.to_string(),
            _ => "none".to_owned(),
        }
    }

    /// Formats as `all-reduce`, `broadcast from rank 1` or `reduce (max) to rank 0`.
    pub fn text(self) -> String {
        let Operands { operation, reduction, root } = self;
        let reduction = match reduction {
            Reduction::Sum => String::new(),
            other => format!(" ({other})"),
        };
        let Properties { text, root: preposition, .. } = operation.properties();
        let root = preposition.map_or(String::new(), |preposition| format!(" {preposition} rank {root}"));
        text.to_owned() + &reduction + &root
    }

    /// Returns the root, or -1 if there is none.
    pub fn root_number(self) -> i64 {
        if self.operation.has_root() { i64::from(self.root) } else { -1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_have_text_and_nccl_tests_columns() {
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

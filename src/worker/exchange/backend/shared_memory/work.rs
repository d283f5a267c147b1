//! Pending work of a rank.

use std::ops::Range;

use tch::Tensor;

use crate::exchange::backend::shared_memory::piece::Piece;
use crate::exchange::collective::Route;
use crate::ffi::memory::shared_window::Array;

/// Work on a range once all ranks have reached its counter.
pub struct PendingRange {
    pub counter: usize,
    pub work: Work,
}

/// Action once all ranks of the host have reached a range's counter.
pub enum Work {
    /// This rank's shard of an all-reduce.
    Sum { elements: Range<usize>, small: Option<usize> },
    /// This rank's pieces of a reduction.
    Reduce { pieces: Vec<Piece>, route: Route },
    /// This rank's pieces go to the other hosts or come from there; it is counted at `received` when they have.
    Send { pieces: Vec<Piece>, from: Array, received: usize },
    /// Every piece is read; `None` is the sums.
    Read { pieces: Vec<Piece>, from: Array, output: Option<Tensor> },
    /// Elements of other ranks of this host are copied.
    Fetch { from: Vec<Fetch> },
}

/// A copy of elements of a rank of this host to this rank's sums.
pub struct Fetch {
    pub rank: usize,
    pub elements: Range<usize>,
    /// First element of the destination.
    pub start: usize,
}

impl Work {
    /// As a trace calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Sum { .. } | Work::Reduce { .. } => "sum",
            Work::Send { .. } | Work::Read { .. } | Work::Fetch { .. } => "move",
        }
    }

    /// Returns true if the work stays on this host.
    pub fn stays_here(&self) -> bool {
        matches!(self, Work::Read { .. } | Work::Fetch { .. })
    }
}

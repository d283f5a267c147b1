//! Pending work of a rank.

use std::ops::Range;

use tch::Tensor;

use crate::exchange::backend::shared_memory::piece::Piece;
use crate::exchange::collective::Route;
use crate::ffi::memory::shared_window::Array;

/// Work on a range that starts once all ranks of the host have reached its counter.
pub struct PendingRange {
    pub counter: usize,
    pub work: Work,
}

/// Action once all ranks of the host have reached a range's counter.
pub enum Work {
    Sum {
        elements: Range<usize>,
        small: Option<usize>,
    },
    Reduce {
        pieces: Vec<Piece>,
        route: Route,
    },
    /// Exchanges this rank's pieces with the other hosts; `received` is the counter of their arrival.
    Send {
        pieces: Vec<Piece>,
        from: Array,
        received: usize,
    },
    /// Reads every piece to `output`; `None` leaves the elements in the sums.
    Read {
        pieces: Vec<Piece>,
        from: Array,
        output: Option<Tensor>,
    },
    /// Copies elements of other ranks of this host.
    Fetch {
        from: Vec<Fetch>,
    },
}

/// A copy of elements of a rank of this host to this rank's sums.
pub struct Fetch {
    pub rank: usize,
    pub elements: Range<usize>,
    pub start: usize,
}

impl Work {
    pub fn name(&self) -> &'static str {
        match self {
            Work::Sum { .. } | Work::Reduce { .. } => "sum",
            Work::Send { .. } | Work::Read { .. } | Work::Fetch { .. } => "move",
        }
    }

    pub fn is_local(&self) -> bool {
        matches!(self, Work::Read { .. } | Work::Fetch { .. })
    }
}

//! Arguments shared by the collectives of MPI, NCCL and shared memory.

use tch::Tensor;

#[derive(Debug, Clone, Copy)]
pub struct Buffers<'a> {
    pub input: &'a Tensor,
    pub output: &'a Tensor,
}

impl<'a> Buffers<'a> {
    pub fn in_place(tensor: &'a Tensor) -> Buffers<'a> {
        Buffers { input: tensor, output: tensor }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRank {
    /// Number in the group, from 0.
    pub rank: u32,
    /// Size of the group.
    pub ranks: u32,
}

/// Partners of a rank in an exchange: it sends to one and receives from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbors {
    /// Receiver; `None` if this rank sends nothing.
    pub next: Option<u32>,
    /// Sender; `None` if this rank receives nothing.
    pub previous: Option<u32>,
}

impl GroupRank {
    /// Returns the partners if only rank `from` sends, to rank `to`.
    pub fn in_pair(self, from: u32, to: u32) -> Neighbors {
        Neighbors { next: (self.rank == from).then_some(to), previous: (self.rank == to).then_some(from) }
    }

    pub fn in_ring(self) -> Neighbors {
        let GroupRank { rank, ranks } = self;
        Neighbors { next: Some((rank + 1) % ranks), previous: Some((rank + ranks - 1) % ranks) }
    }
}

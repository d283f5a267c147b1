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
    pub next: u32,
    pub previous: u32,
}

impl GroupRank {
    pub fn in_ring(self) -> Neighbors {
        let GroupRank { rank, ranks } = self;
        Neighbors { next: (rank + 1) % ranks, previous: (rank + ranks - 1) % ranks }
    }
}

//! Sizes and residual norms of compressed gradients.

use ringmark_core::benchmark::compression::CompressionUse;
use ringmark_core::dimension::Bytes;

use crate::job::world::World;

/// Code sizes and residual norm on this rank; zero if another rank pushes for it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CompressionFacts {
    /// Euclidean norm of the residual.
    pub residual_norm: f64,
    pub code: Bytes,
    /// Size of the servers' answers; `None` without servers.
    pub received: Option<Bytes>,
    /// Number of gradient elements of a step.
    pub elements: usize,
}

impl CompressionFacts {
    /// Gathers the facts of all ranks for a record. All ranks call this together.
    pub fn used(self, world: &World) -> CompressionUse {
        let CompressionFacts { residual_norm, code, received, elements } = self;
        let residual_norm = world.gather(&[residual_norm]).concat();
        match received {
            Some(received) => CompressionUse::with_servers(residual_norm, code, received, elements),
            None => CompressionUse::new(residual_norm, code, elements),
        }
    }
}

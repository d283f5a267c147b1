//! How gradients are summed over the ranks: buckets, the reducer that starts them as backward fills them, and the
//! engines behind one trait. Knows nothing of models; shapes are static, so there is no negotiation and no coordinator.

pub mod backend;
pub mod bucket;
pub mod memory;
pub mod optimizer;
pub mod reducer;

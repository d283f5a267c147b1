//! Pure arithmetic on what was measured, each function with its formula and a worked number. Not for files or tables.

pub mod allreduce_model;
pub mod busbw;
pub mod comparison;
pub mod exchange_growth;
#[cfg(test)]
pub(crate) mod random;
pub mod run_values;
pub mod scaling;
pub mod scaling_loss;
pub mod straggler;
pub mod summary;
pub mod welch;
pub mod work_load;

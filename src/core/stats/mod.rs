//! Pure statistics, each with its formula and a worked example. Independent of files and tables.

pub mod allreduce_model;
pub mod busbw;
pub mod comparison;
pub mod counts;
pub mod exchange_growth;
pub mod goodput;
pub mod mtbf;
pub mod pairing;
pub mod random;
pub mod run_values;
pub mod scaling;
pub mod scaling_loss;
pub mod sequential;
pub mod straggler;
pub mod summary;
pub mod typical;
pub mod warm_up;
pub mod welch;
pub mod work_load;

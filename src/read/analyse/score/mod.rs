//! Figures of scoring sweeps.
//!
//! | module | content |
//! |---|---|
//! | [`figures`] | points and tables of runs: median and CV of the images/s |
//! | [`batch_sizes`] | points as lines by batch size, like those of training |
//! | [`json`] | the result file |
//! | [`published`] | MXNet's published rates of the same networks |
//! | [`side`] | the result as a side of a comparison |

pub mod batch_sizes;
pub mod figures;
pub mod json;
pub mod published;
pub mod side;

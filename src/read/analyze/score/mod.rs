//! Figures of scoring sweeps.
//!
//! | module | contents |
//! |---|---|
//! | [`figures`] | points and tables of runs: median and CV of the images/s |
//! | [`batch_sizes`] | points as series by batch size |
//! | [`result_json`] | the result file |
//! | [`side`] | the result as a side of a comparison |

pub mod batch_sizes;
pub mod figures;
pub mod result_json;
pub mod side;

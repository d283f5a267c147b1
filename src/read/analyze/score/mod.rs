//! Figures of scoring sweeps.
//!
//! | module | contents |
//! |---|---|
//! | [`figures`] | points and tables of runs: median and CV of the images/s |
//! | [`batch_sizes`] | points as series by batch size |
//! | [`result_json`] | the result file |
//! | [`published`] | MXNet's published rates of the same networks |
//! | [`side`] | the result as a side of a comparison |

pub mod batch_sizes;
pub mod figures;
pub mod published;
pub mod result_json;
pub mod side;

//! Scoring sweeps: what `ringmark extract` and `ringmark diff` make of the runs that `ringmark score` wrote. Over what
//! `load`, `analyse` and `show` have for every benchmark.
//!
//! | module | what it is for |
//! |---|---|
//! | [`run`] | one run, from its log and record, and whether it counts |
//! | [`figures`] | runs into points and tables: median and CV of the images/s |
//! | [`batch_sizes`] | points as lines by batch size, as those of training are |
//! | [`text`] | a table by network and batch size, for a terminal and in Markdown |
//! | [`json`] | the result for programs |
//! | [`published`] | what MXNet's page has of the same networks |
//! | [`csv`] | one line a point |
//! | [`side`] | the result as a side of a comparison |

pub mod batch_sizes;
pub mod csv;
pub mod figures;
pub mod json;
pub mod published;
pub mod run;
pub mod side;
pub mod text;

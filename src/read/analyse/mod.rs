//! Figures from what was loaded. Pure: no files, no printing.
//!
//! | module | what it is for |
//! |---|---|
//! | [`figures`] | runs into groups of equal conditions, cases, speedup and efficiency |
//! | [`scaling_loss`] | where the time of larger cases goes |
//! | [`comparison`] | two results against each other |
//! | [`prediction`] | larger cases from measured ones, as a band |
//! | [`results`] | the results that one report is about |
//! | [`published`] | rows that others published, with their sources |

pub mod comparison;
pub mod figures;
pub mod prediction;
pub mod published;
pub mod results;
pub mod scaling_loss;

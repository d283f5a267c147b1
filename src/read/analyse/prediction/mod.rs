//! Larger cases from a sweep and a bandwidth result, each as a band.
//!
//! | module | what it is for |
//! |---|---|
//! | [`evidence`] | what was measured: steps by case, from a folder or a published row; all-reduce alone by size |
//! | [`model`] | from measured cases to others, as a band |
//! | [`refusal`] | why a case cannot be predicted, and what to measure |
//! | [`search`] | where the efficiency falls under a value; the largest measured case from the others |
//! | [`outlook`] | the whole answer about one group of runs |

pub mod evidence;
pub mod model;
pub mod outlook;
pub mod refusal;
pub mod search;

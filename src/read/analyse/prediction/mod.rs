//! Larger cases from a sweep and a bandwidth result, each as a band.
//!
//! | module | what it is for |
//! |---|---|
//! | [`evidence`] | what was measured: steps by case, from a folder or a published row; all-reduce alone by size |
//! | [`strategy`] | who exchanges what: all-reduce, owners or servers |
//! | [`model`] | from measured cases to others, as a band |
//! | [`kv_store_model`] | the same where the exchange is no all-reduce |
//! | [`parts`] | what both work with: parts of steps, margins, losses |
//! | [`refusal`] | why a case cannot be predicted, and what to measure |
//! | [`search`] | where the efficiency falls under a value; the largest measured case from the others |
//! | [`outlook`] | the whole answer about one group of runs |

pub mod evidence;
pub mod kv_store_model;
pub mod model;
pub mod outlook;
pub mod parts;
pub mod refusal;
pub mod search;
pub mod strategy;

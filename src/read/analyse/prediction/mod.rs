//! Larger cases from a sweep and a bandwidth result, each as a band.
//!
//! | module | what it is for |
//! |---|---|
//! | [`evidence`] | what was measured: steps by case, from a folder or a published row; all-reduce alone by size |
//! | [`model`] | from measured cases to others, as a band; what is missing where there is none |

pub mod evidence;
pub mod model;

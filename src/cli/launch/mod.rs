//! Options of the commands that start something, with what is filled in where nothing was typed.
//!
//! | module | what it is for |
//! |---|---|
//! | [`hosts`] | where and how, the same in all of them |
//! | [`config_file`] | a sweep as a file: `--config`, `--save-config` |
//! | [`servers`] | `--server-hosts`, and what does not go with a kv-store |
//! | [`trace`] | `--trace`, and what its other options need |
//! | [`axes`] | what a sweep varies, the same in every benchmark over axes |
//! | [`sweep`], [`score`], [`bandwidth`], [`input`], [`doctor`] | the commands |

pub mod axes;
pub mod bandwidth;
pub mod config_file;
pub mod doctor;
pub mod hosts;
pub mod input;
pub mod score;
pub mod servers;
pub mod sweep;
pub mod trace;

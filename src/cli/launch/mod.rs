//! Options of the commands that start jobs, and their defaults.
//!
//! | module | contents |
//! |---|---|
//! | [`hosts`] | hosts and how to start ranks on them, shared by all commands |
//! | [`config_file`] | a sweep as a file: `--config`, `--save-config` |
//! | [`data`] | check of `--data` and `--validate` before anything starts |
//! | [`servers`] | `--server-hosts`, and conflicts with a kv-store |
//! | [`trace`] | `--trace`, and what its other options require |
//! | [`axes`] | the axes of a sweep, shared by every benchmark over axes |
//! | [`sweep`], [`score`], [`bandwidth`], [`input`], [`doctor`] | the commands |

pub mod axes;
pub mod bandwidth;
pub mod config_file;
pub mod data;
pub mod doctor;
pub mod hosts;
pub mod input;
pub mod score;
pub mod servers;
pub mod sweep;
pub mod trace;

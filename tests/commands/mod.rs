//! The other commands, and what all commands share: sweeps as files, output files, completions.

mod bandwidth;
mod bandwidth_kv_store;
mod bandwidth_operations;
mod config_file;
mod generate;
mod input;
mod output_files;
mod pack;

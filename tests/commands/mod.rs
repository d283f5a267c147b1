//! Other commands, and features shared by all of them: configuration files, output files, completions.

mod bandwidth;
mod bandwidth_operations;
mod bandwidth_strategies;
mod checkpoint;
mod config_file;
mod generate;
mod input;
mod output_files;
mod pack;

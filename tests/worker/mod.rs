//! The real worker: training and scoring under real mpirun.

mod autotune;
mod binding;
mod checkpoints;
mod compression;
mod hierarchical;
mod images;
mod language_models;
mod load_check;
mod telemetry;
mod token_files;
mod trace;
mod train;
mod train_strategies;
mod work_load;

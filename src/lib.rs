//! ringmark: launches training and all-reduce benchmarks on a cluster and analyzes their results.
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | command line to configuration; the only module that uses clap |
//! | [`output`] | output of a command: a table or JSON |
//! | [`pack`] | packs images and prints a summary |
//! | [`launch`] | plans, starts and monitors jobs through mpirun or srun |
//! | [`read`] | computes figures from files |
//!
//! Shared types are in `ringmark-core` (`src/core`), image files and packing in `ringmark-input` (`src/input`), and the
//! program of a rank in `ringmark-worker` (`src/worker`). `launch` and `read` do not import each other and communicate
//! only through files.

pub mod cli;
pub mod launch;
pub mod output;
pub mod pack;
pub mod read;
#[cfg(test)]
#[path = "../tests/support/temporary_folder.rs"]
mod temporary_folder;

//! ringmark: launch benchmarks of training and of its all-reduce on a cluster, and read what they wrote.
//!
//! | module | what it is for |
//! |---|---|
//! | [`cli`] | what was typed, turned into configuration; nothing below it sees clap |
//! | [`output`] | where a command's answer goes: a table, or JSON |
//! | [`pack`] | packs images and prints a summary |
//! | [`launch`] | what to run where; starts it through mpirun or srun, watches it, keeps what it wrote |
//! | [`read`] | turns what was written into figures |
//!
//! What they share is the package `ringmark-core` (`src/core`); what `pack` does is in `ringmark-input` (`src/input`); the process that they start is the
//! package `ringmark-worker` (`src/worker`). `launch` and `read` never import each other: they meet only in files.

pub mod cli;
pub mod launch;
pub mod output;
pub mod pack;
pub mod read;
#[cfg(test)]
#[path = "../tests/support/temporary_folder.rs"]
mod temporary_folder;

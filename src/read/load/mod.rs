//! What lies in a folder or a file, read and checked. Not for comparing runs with each other.
//!
//! | module | what it is for |
//! |---|---|
//! | [`content`] | which benchmark's file a file is |
//! | [`folder`] | which files are runs, and which were taken for something else |
//! | [`log`] | one log, line by line |
//! | [`record`] | the record beside a log, whatever was measured |
//! | [`run`] | one run, from its log and the record beside it, and whether it counts |
//! | [`training`] | figures of a run of training |
//! | [`scoring`] | figures of a run of scoring |
//! | [`sweep_run`] | one run by the rules of its sweep |
//! | [`integrity`] | whether the files of a sweep are as they were written |
//! | [`iteration_times`] | mean times of an iteration and of its phases, by rank |
//! | [`bandwidth`] | the folder of a bandwidth command |
//! | [`input`] | the folder of an input command |
//! | [`trace`] | the traces beside the logs of runs |
//! | [`environment`] | what runs ran on and with, as text |
//! | [`formats`] | result files of other benchmarks |
//! | [`problem`] | what keeps a file or a run out of the figures, with its place |

pub mod bandwidth;
pub mod content;
pub mod environment;
pub mod folder;
pub mod formats;
pub mod input;
pub mod integrity;
pub mod iteration_times;
pub mod log;
pub mod problem;
pub mod record;
pub mod run;
pub mod scoring;
pub mod sweep_run;
pub mod trace;
pub mod training;

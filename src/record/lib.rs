//! The hall: what a run is asked to do, what it writes down, and the arithmetic on what was written.
//!
//! Every wing (launch, run, read) imports this package and none of the others; they meet only in the
//! files described here. Not for anything that starts a process, opens a device or prints a table.
//!
//! | room | what it is for |
//! |---|---|
//! | [`case`] | `2n8g`: how many nodes, how many GPUs on each |
//! | [`config`] | what is meant: one training run, validated, every default and range in one place |
//! | [`words`] | closed sets of words, the same when typed, in file names and in records |
//! | [`options`] | what may be typed about training, shared by both programs |
//! | [`bandwidth`] | all-reduce alone: configuration, options, record and the lines that are printed |
//! | [`files`] | where a run's log and record lie, under DLPerf's names |
//! | [`manifest`] | what a sweep was asked, what it ran with, and how far each run is: writer, parser and comparison |
//! | [`log_line`] | DLPerf's line of an iteration, writer and parser |
//! | [`ddp_line`] | the lines of PyTorch's DDP benchmark: percentiles of the iteration time |
//! | [`run`] | the run record (JSON Lines), writer and parser |
//! | [`heartbeat`] | what a rank tells the driver while it runs |
//! | [`host_use`] | what hosts and ranks did while the iterations ran, by the counters of kernel and driver |
//! | [`validity`] | what a reader should be warned of, worked out from a record alone |
//! | [`environment`] | machine, libraries and the variables that matter |
//! | [`inspection`] | what one host says of itself to `ringmark doctor`, and the orders it takes |
//! | [`units`] | seconds, bytes and rates that cannot be mixed up |
//! | [`usage`] | the error that means: asked wrongly, nothing was started |
//! | [`whole_file`] | a file that is there whole or not at all |
//! | [`stats`] | summaries, speedup, scaling efficiency, stragglers: pure functions, each with its formula |

pub mod bandwidth;
pub mod case;
pub mod config;
pub mod ddp_line;
pub mod environment;
pub mod files;
pub mod heartbeat;
pub mod host_use;
pub mod inspection;
pub mod log_line;
pub mod manifest;
pub mod options;
pub mod run;
pub mod stats;
pub mod units;
pub mod usage;
pub mod validity;
pub mod whole_file;
pub mod words;

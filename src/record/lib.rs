//! What launcher, worker and reader share: what a run is asked to do, what it writes down, and the arithmetic on what was
//! written.
//!
//! Every other package imports this one, and they meet only in the files described here. Not for anything that starts a
//! process, opens a device or prints a table.
//!
//! | module | what it is for |
//! |---|---|
//! | [`model`], [`dtype`], [`device`], [`case`], [`phase`], [`units`] | the dimensions, each named once |
//! | [`keyword_enum`] | closed sets of keywords, the same when typed, in file names and in records |
//! | [`option_table`] | one line an option: clap, default, validation, a worker's arguments, settings |
//! | [`exchange`] | how gradients are exchanged: configuration and options of every benchmark that does |
//! | [`benchmark`] | each benchmark: configuration, options, record |
//! | [`run_name`] | where a run's log and record lie, under DLPerf's names |
//! | [`manifest`] | what a sweep was asked, what it ran with, and how far each run is |
//! | [`line`] | lines of other benchmarks, writers and parsers |
//! | [`heartbeat`] | what a rank reports to the launcher while it runs |
//! | [`resource_use`] | what hosts and ranks did while the iterations ran, by the counters of kernel and driver |
//! | [`validity`] | what a reader should be warned of, worked out from a record alone |
//! | [`warning`] | what a warning is |
//! | [`schema`] | the head of every file: what it is, in which version |
//! | [`environment`] | machine, libraries and the variables that matter |
//! | [`inspection`] | what one host says of itself to `ringmark doctor`, and the orders it takes |
//! | [`stats`] | summaries, speedup, scaling efficiency, stragglers: pure functions, each with its formula |
//! | [`usage`] | the error that means: asked wrongly, nothing was started |
//! | [`whole_file`] | a file that is there whole or not at all |

pub mod benchmark;
pub mod case;
pub mod device;
pub mod dtype;
pub mod environment;
pub mod exchange;
pub mod heartbeat;
pub mod inspection;
pub mod keyword_enum;
pub mod line;
pub mod manifest;
pub mod model;
pub mod option_table;
pub mod phase;
pub mod resource_use;
pub mod run_name;
pub mod schema;
pub mod stats;
pub mod units;
pub mod usage;
pub mod validity;
pub mod warning;
pub mod whole_file;

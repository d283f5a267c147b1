//! What launcher, worker and reader share: what a run is asked to do, what it writes down, and the arithmetic on what was
//! written.
//!
//! Every other package imports this one, and they meet only in the files described here. Not for anything that starts a
//! process, opens a device or prints a table.
//!
//! | module | what it is for |
//! |---|---|
//! | [`dimension`] | what a figure is given by: network, precision, device, case, phase, unit, each named once |
//! | [`options`] | one declaration an option: field, clap, default, validation, a worker's arguments, settings |
//! | [`benchmark`] | each benchmark: configuration, record; and what they have in common |
//! | [`file`] | every file: its head and version, its name, how it is written whole |
//! | [`manifest`] | what a sweep was asked, what it ran with, and how far each run is |
//! | [`progress`] | where a command is while it runs |
//! | [`schemas`] | the JSON Schema of each file |
//! | [`host`] | what a host and its ranks say of themselves: environment, inspection, heartbeats, resource use |
//! | [`listener`] | a listening socket with limits, for launcher and worker |
//! | [`line`] | lines of other benchmarks, writers and parsers |
//! | [`validity`] | what a reader should be warned of, worked out from a record alone |
//! | [`trace`] | what went on inside an iteration: spans of all ranks on one clock, and the files that show them |
//! | [`number_text`] | numbers in messages and tables |
//! | [`untrusted_text`] | text of others, made fit for a terminal, a log or a page |
//! | [`stats`] | summaries, speedup, scaling efficiency, stragglers: pure functions, each with its formula |

pub mod benchmark;
pub mod dimension;
pub mod file;
pub mod host;
pub mod line;
pub mod listener;
pub mod manifest;
pub mod number_text;
pub mod options;
pub mod progress;
pub mod schemas;
pub mod stats;
pub mod trace;
pub mod untrusted_text;
pub mod validity;

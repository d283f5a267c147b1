//! Types shared by the launcher, the worker and the readers: configurations, records, and the arithmetic on records.
//!
//! Every other package imports this one, and they communicate only through the files described here. Code that starts a
//! process, opens a device or prints a table belongs elsewhere.
//!
//! | module | contents |
//! |---|---|
//! | [`dimension`] | dimensions of figures: network, precision, device, case, phase, unit |
//! | [`options`] | options, each declared once: field, clap, default, validation, a worker's arguments, settings |
//! | [`accept`] | acceptance of a cluster: search for unfit hosts, GPUs and links |
//! | [`goodput`] | training under failures: lost time by cause, measured costs, predictions |
//! | [`benchmark`] | configuration and record of each benchmark, and shared parts |
//! | [`mod@file`] | file formats: header and version, names, atomic writes |
//! | [`manifest`] | manifest of a sweep: conditions, environment, state of each run |
//! | [`progress`] | progress of a running command |
//! | [`schemas`] | the JSON Schema of each file |
//! | [`host`] | hosts and their ranks: environment, inspection, heartbeats, resource use |
//! | [`listener`] | a listening socket with limits, for launcher and worker |
//! | [`mod@line`] | lines of other benchmarks, writers and parsers |
//! | [`validity`] | warnings for the reader, derived from a record alone |
//! | [`trace`] | traces within iterations: spans of all ranks on a common clock, and their files |
//! | [`number_text`] | numbers in messages and tables |
//! | [`shell`] | words of command lines, and their quoting |
//! | [`untrusted_text`] | untrusted text, sanitized for a terminal, a log or a page |
//! | [`stats`] | summaries, speedup, scaling efficiency, stragglers: pure functions, each with its formula |

pub mod accept;
pub mod benchmark;
pub mod dimension;
pub mod file;
pub mod goodput;
pub mod host;
pub mod line;
pub mod listener;
pub mod manifest;
pub mod number_text;
pub mod options;
pub mod progress;
pub mod schemas;
pub mod shell;
pub mod stats;
pub mod trace;
pub mod untrusted_text;
pub mod validity;

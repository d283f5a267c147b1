//! Options of the command line, declared once for both programs.
//!
//! | module | what it is for |
//! |---|---|
//! | [`option_table`] | one declaration an option: field, clap, default, validation, a worker's arguments, settings |
//! | [`keyword_enum`] | closed sets of keywords, the same when typed, in file names and in records |
//! | [`habits`] | words of other programs, each with ours for it |
//! | [`help`] | groups of options, and which of them `-h` lists |
//! | [`usage`] | the error that means: asked wrongly, nothing was started |

pub mod habits;
pub mod help;
pub mod keyword_enum;
pub mod option_table;
pub mod usage;

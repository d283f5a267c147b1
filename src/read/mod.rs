//! Turns what was written into figures. Needs no libtorch, no MPI and no GPU. Not for starting anything.
//!
//! | room | what it is for |
//! |---|---|
//! | [`extract`] | the way from a folder of runs to table, JSON, CSV and Markdown |
//! | [`folder`] | which files are runs, and which were taken for something else |
//! | [`log`] | one log, line by line |
//! | [`run`] | one run, from its log and the record beside it |
//! | [`figures`] | runs into groups of equal conditions, cases, speedup and efficiency |
//! | [`loss`] | where the time of larger cases goes: parts of the scaling loss |
//! | [`table`] | figures for people: terminal and Markdown |
//! | [`export`] | figures for programs: DLPerf's JSON with our fields, and CSV |
//! | [`ddp_suite`] | figures for users of PyTorch's DDP suite: the JSON for its diff.py, and its lines |
//! | [`diff`] | two results against each other |
//! | [`surroundings`] | what runs ran on and with, as words |
//! | [`predict`] | larger cases from measured ones, as a band |
//! | [`bandwidth`] | the folder of a bandwidth command |
//! | [`peers`] | result files of other benchmarks |
//! | [`published`] | rows that others published, with their sources |
//! | [`problem`] | what keeps a file or a run out of the figures, with its place |

pub mod bandwidth;
pub mod ddp_suite;
pub mod diff;
pub mod export;
pub mod extract;
pub mod figures;
pub mod folder;
pub mod log;
pub mod loss;
pub mod peers;
pub mod predict;
pub mod problem;
pub mod published;
pub mod run;
pub mod surroundings;
pub mod table;

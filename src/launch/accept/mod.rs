//! `ringmark accept`: finds the hosts, GPUs and links that are not fit, by rounds of short jobs on named hosts.
//! [`ringmark_core::accept`] plans the rounds and judges them.
//!
//! | module | contents |
//! |---|---|
//! | [`command`] | the command: facts, rounds, verdict |
//! | [`facts`] | the doctor's findings |
//! | [`rounds`] | rounds of jobs, several at once, up to a time limit |
//! | [`job`] | one job: its launch, and its outcome |
//! | [`measure`] | benchmark of a job |
//! | [`readings`] | readings from the records |
//! | [`journal`] | `accept.jsonl`: every finding and measurement, from which a run is resumed |
//! | [`switches`] | the switch of each host, from a file |

pub mod command;
pub mod facts;
pub mod job;
pub mod journal;
pub mod measure;
pub mod readings;
pub mod rounds;
pub mod switches;

//! Looks at every host before a job does: `ringmark doctor`, and its quick part before a sweep. Nothing on a host is
//! changed, and nothing is left there.
//!
//! | module | what it is for |
//! |---|---|
//! | [`host`] | one host visited: script, agent, clock |
//! | [`probe`] | the script that needs no worker, and its answers |
//! | [`agent`] | the launcher's end of `ringmark-worker agent` |
//! | [`network`] | which network the hosts use, and whether they reach each other on it |
//! | [`links`] | the links between the hosts, measured |
//! | [`checks`] | what is wrong, and the fix |
//! | [`examination`] | all of it in one look |
//! | [`report`] | the table and the lines below it |
//! | [`command`] | `ringmark doctor`, and its quick part |

pub mod agent;
pub mod checks;
pub mod command;
pub mod examination;
pub mod host;
pub mod links;
pub mod network;
pub mod probe;
pub mod report;

//! Examines every host before a job uses it: `ringmark doctor`, and its quick part before a sweep. Changes and leaves
//! nothing on the hosts.
//!
//! | module | contents |
//! |---|---|
//! | [`host`] | visits one host: script, agent, clock |
//! | [`probe`] | the script that needs no worker, and the parser of its output |
//! | [`agent`] | launcher side of `ringmark-worker agent` |
//! | [`network`] | the network that the hosts use, and their connections on it |
//! | [`links`] | measures the links between the hosts |
//! | [`checks`] | problems, each with its fix |
//! | [`examination`] | all hosts, links and findings |
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

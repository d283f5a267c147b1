//! Acceptance of a cluster: which host, GPU or link is unfit. Types, the search for the next measurements, the verdict,
//! and the files of `ringmark accept`. Independent of clocks and processes: the launcher runs the jobs.
//!
//! | module | contents |
//! |---|---|
//! | [`fleet`] | hosts, jobs, rounds and measurements |
//! | [`comparison`] | typical value of one kind of subject, and the test of each |
//! | [`criteria`] | error rates, limits and minimum values |
//! | `drain_list` | the hosts to drain |
//! | [`journal`] | the file of findings and measurements, one a line |
//! | [`search`] | the next round of jobs, a pure function of the measurements so far |
//! | [`verdict`] | the verdict on each host, GPU and link |
//! | [`verdict_text`] | the verdict as text |
//! | [`judgment`] | the verdict from the result of the search |
//! | [`limits`] | minimum values and the reference |
//! | `drift` | change of a host during the soak |
//! | `corruption` | hosts that compute other values than the others |
//! | [`simulation`] | fleets with known defects, for tests and benchmarks |

mod comparison;
mod corruption;
pub mod criteria;
mod drain_list;
mod drift;
pub mod fleet;
pub mod journal;
mod judgment;
pub mod limits;
pub mod search;
pub mod simulation;
pub mod verdict;
mod verdict_text;

pub use criteria::{Criteria, Minimum};
pub use fleet::{
    Finding, FleetHost, HostState, Job, JobFingerprints, JobTime, Measurement, Metric, Outcome, Reading, Round,
    Severity, Stage, Test,
};
pub use journal::{Header, JOURNAL, Journal, Line};
pub use search::Search;
pub use verdict::{Cause, Drift, Evidence, Fitness, Judged, StageUse, Subject, VERDICT, Verdict, Warning};

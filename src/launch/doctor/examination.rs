//! Complete examination of the hosts: visits them, measures the links between them, and checks both.

use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use ringmark_core::dimension::Seconds;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::hosts::Host;
use crate::launch::doctor::agent::Agent;
use crate::launch::doctor::checks::disk::ResultsFolder;
use crate::launch::doctor::checks::finding::{Finding, Severity};
use crate::launch::doctor::checks::{self, JobRequirements};
use crate::launch::doctor::host::{HostFacts, InspectionSettings};
use crate::launch::doctor::network::{self, NetworkFacts, NetworkTestScope};

/// Value of the JSON's `kind` field.
pub const KIND: &str = "ringmark-doctor";

/// Version of the JSON. Version 1 had no version field and no units in key names.
pub const SCHEMA: u32 = 2;

/// Result of an examination.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Examination {
    /// Always `ringmark-doctor`.
    pub kind: &'static str,
    /// Version of the format.
    pub schema: u32,
    /// All hosts, in the order in which they were given.
    pub hosts: Vec<HostFacts>,
    /// Network between the hosts.
    pub network: NetworkFacts,
    /// Problems found.
    pub findings: Vec<Finding>,
    /// Duration of the examination.
    #[serde(rename = "took_seconds")]
    pub took: Seconds,
}

impl Examination {
    /// Returns true if a job would fail.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Visits all hosts, measures the links between them, and checks both.
pub fn examine(visit: &InspectionSettings, hosts: &[Host], depth: NetworkTestScope) -> anyhow::Result<Examination> {
    let start = Instant::now();
    let (facts, agents): (Vec<HostFacts>, Vec<Option<Agent>>) = visit.visit_all(hosts).into_iter().unzip();
    let requirements = JobRequirements {
        worker: visit.worker,
        device: visit.device,
        results: visit.results.map(|path| ResultsFolder { path, exists: Path::is_dir(path) }),
        needed: visit.needed,
        data: visit.data,
    };
    let mut findings = checks::check_hosts(&facts, &requirements);
    let (network, more) = network::examine(visit, &facts, agents, depth);
    ensure!(!visit.interrupt.is_set(), "interrupted");
    findings.extend(more);
    Ok(Examination {
        kind: KIND,
        schema: SCHEMA,
        hosts: facts,
        network,
        findings,
        took: Seconds(start.elapsed().as_secs_f64()),
    })
}

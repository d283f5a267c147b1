//! Restarts of a job after the loss of a rank, a process or a host (`--restarts`, `--spare-hosts`): from its last
//! checkpoint, as `--resume` continues a run, or from the start.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_core::benchmark::train::interruption::ReplacedHost;
use ringmark_core::benchmark::train::{Interruption, RestartHistory};
use ringmark_core::file::safetensors;

use crate::launch::cluster::hosts::{Host, Hosts};
use crate::launch::doctor::command::check_spare_host;
use crate::launch::doctor::host::InspectionSettings;
use crate::launch::job::launcher::{LaunchConfig, Launcher};
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::results_folder;
use crate::launch::local::side_by_side::{MAX_PROGRAMS, in_parallel};
use crate::launch::sweep::benchmark::{Benchmark, JobCheckpoint, JobLoss, PlanContext, PlannedJob};
use crate::launch::sweep::ledger::Ledger;
use crate::output::message::{Printer, print_error};

/// Restarts of the jobs of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartConfig {
    /// Largest number of restarts of a job.
    pub number: u32,
    /// Hosts that may take the place of lost ones, in this order; 0 slots are those of the lost host.
    pub spare_hosts: Vec<Host>,
}

impl RestartConfig {
    /// No restarts.
    pub const NONE: RestartConfig = RestartConfig { number: 0, spare_hosts: Vec::new() };
}

/// Hosts of the jobs of a session.
#[derive(Debug)]
pub struct SessionHosts {
    /// Hosts of the ranks: those of the configuration, with spare hosts in the place of lost ones.
    pub used: Hosts,
    /// Spare hosts that are not used yet.
    spares: VecDeque<Host>,
}

impl SessionHosts {
    /// Starts with all spare hosts.
    pub fn new(used: &Hosts, restarts: &RestartConfig) -> SessionHosts {
        SessionHosts { used: used.clone(), spares: restarts.spare_hosts.clone().into() }
    }
}

/// Prepares the restarts of a session's jobs.
pub struct Restarter<'a> {
    /// Largest number of restarts of a job.
    pub limit: u32,
    pub launch: &'a LaunchConfig,
    pub launcher: &'a Launcher<'a>,
    /// Folder of the results.
    pub out: &'a Path,
    pub printer: Printer,
    pub interrupt: &'a Interrupt,
}

impl Restarter<'_> {
    /// Returns the job that continues `job` after `loss`.
    pub fn next_job<B: Benchmark>(
        &self,
        benchmark: &B,
        (job, loss): (&PlannedJob, &JobLoss),
        ledger: &Ledger,
        hosts: &mut SessionHosts,
    ) -> anyhow::Result<PlannedJob> {
        let new = || RestartHistory { started: loss.started, interruptions: Vec::new() };
        let mut history = job.restarts.clone().unwrap_or_else(new);
        let (number, limit) = (history.interruptions.len() + 1, self.limit);
        ensure!(number <= limit as usize, "--restarts {limit} are used up");
        if let (Some(last), Some([start, load])) = (history.interruptions.last_mut(), loss.continued) {
            (last.start, last.load) = (Some(start), Some(load));
        }
        let replaced = self.replace_lost_hosts(job, loss, hosts)?;
        let mut next = self.planned(benchmark, job, ledger)?;
        if let Some((checkpoint, warning)) = self.unusable_checkpoint(&next, &replaced, &hosts.used) {
            print_error(&format!("warning: {warning}"));
            checkpoint.remove()?;
            next = self.planned(benchmark, job, ledger)?;
        }
        let resumed = next.checkpoint.as_ref().filter(|checkpoint| checkpoint.is_resumed);
        let source = resumed.map_or("the start".to_owned(), |it| format!("checkpoint {}", it.file.display()));
        let spares: String = replaced.iter().map(|one| format!(", {} instead of {}", one.spare, one.host)).collect();
        let cause = &loss.interruption.cause;
        self.printer.line(&format!("{}: restart {number} of {limit} from {source}{spares}: {cause}", job.title));
        history.interruptions.push(Interruption { replaced, ..loss.interruption.clone() });
        Ok(PlannedJob { restarts: Some(history), ..next })
    }

    /// Plans `job` again, as `--resume` does: it continues from its checkpoint if there is one.
    fn planned<B: Benchmark>(&self, benchmark: &B, job: &PlannedJob, ledger: &Ledger) -> anyhow::Result<PlannedJob> {
        let environment = self.launcher.environment();
        let plan = benchmark.plan(PlanContext { environment, resumed: Some(ledger.conditions()), is_restart: true })?;
        plan.into_iter().find(|next| next.run == job.run).context("the job is no longer in the plan")
    }

    /// Returns the checkpoint and a warning if the next attempt cannot continue from it.
    fn unusable_checkpoint<'a>(
        &self,
        job: &'a PlannedJob,
        replaced: &[ReplacedHost],
        hosts: &Hosts,
    ) -> Option<(&'a JobCheckpoint, String)> {
        let checkpoint = job.checkpoint.as_ref().filter(|checkpoint| checkpoint.is_resumed)?;
        let first = &hosts.for_case(job.case)[0];
        let is_moved = replaced.iter().any(|one| one.spare == first.name);
        let is_seen = || !is_moved || self.launcher.has_file(first, &checkpoint.file, self.interrupt);
        Some((checkpoint, unusable(&checkpoint.file, &first.name, is_seen)?))
    }

    /// Puts spare hosts in the place of the job's hosts that do not answer, and of those that the watchdog names as long
    /// as there are spare hosts.
    fn replace_lost_hosts(
        &self,
        job: &PlannedJob,
        loss: &JobLoss,
        SessionHosts { used, spares }: &mut SessionHosts,
    ) -> anyhow::Result<Vec<ReplacedHost>> {
        let hosts = used.for_case(job.case).to_vec();
        let answers = in_parallel(MAX_PROGRAMS, &hosts, |host| self.launcher.answers(host, self.interrupt));
        let silent: Vec<&str> =
            hosts.iter().zip(&answers).filter(|(_, answers)| !**answers).map(|(host, _)| host.name.as_str()).collect();
        let is_lost = |host: &Host| silent.contains(&host.name.as_str()) || loss.suspects.contains(&host.name);
        let mut replaced = Vec::new();
        for (host, answers) in hosts.iter().zip(answers.iter().copied()) {
            let is_here = self.launcher.environment().is_here(&host.name);
            let is_suspect = loss.suspects.contains(&host.name) && !is_here && !spares.is_empty();
            if answers && !is_suspect {
                continue;
            }
            let is_used = |other: &Host| other.name != host.name && !is_lost(other);
            let others: Vec<Host> = used.for_case(job.case).iter().filter(|other| is_used(other)).cloned().collect();
            match self.next_spare(host, &others, job, spares) {
                Some(spare) => {
                    *used = used.with_spare(&host.name, &spare);
                    replaced.push(ReplacedHost { host: host.name.clone(), spare: spare.name });
                }
                None if answers => {}
                None => bail!("host {} does not answer and no spare host is left: add --spare-hosts", host.name),
            }
        }
        Ok(replaced)
    }

    /// Returns the next spare host that can take the place of `lost` beside the `others`; skips broken ones with their
    /// reason.
    fn next_spare(&self, lost: &Host, others: &[Host], job: &PlannedJob, spares: &mut VecDeque<Host>) -> Option<Host> {
        while let Some(spare) = spares.pop_front() {
            let slots = if spare.slots == 0 { lost.slots } else { spare.slots };
            let spare = Host { slots, ..spare };
            match self.check_spare(&spare, others, job) {
                Ok(()) => return Some(spare),
                Err(reason) => print_error(&format!("warning: spare host {} is skipped: {reason:#}", spare.name)),
            }
        }
        None
    }

    fn check_spare(&self, spare: &Host, others: &[Host], job: &PlannedJob) -> anyhow::Result<()> {
        let Restarter { launch, launcher, printer, interrupt, .. } = *self;
        let needed = job.case.gpus_per_node;
        ensure!(spare.slots >= needed, "it has {} slots, but {} needs {needed}", spare.slots, job.case);
        ensure!(launcher.answers(spare, interrupt), "it does not answer");
        launcher.copy_worker_to(std::slice::from_ref(spare), interrupt, |line| printer.line(line))?;
        if !launch.doctor {
            return Ok(());
        }
        let (results, memory) = (results_folder::absolute(self.out)?, BTreeMap::new());
        let visit = InspectionSettings::for_jobs(launcher, launch, &results, &memory, &job.data, interrupt);
        let hosts: Vec<Host> = others.iter().chain([spare]).cloned().collect();
        check_spare_host(&visit, &hosts).map_err(|reason| anyhow!(reason))
    }
}

/// Returns a warning if the file is damaged, or if the host of rank 0 does not see it.
fn unusable(checkpoint: &Path, host: &str, is_seen: impl FnOnce() -> bool) -> Option<String> {
    let file = checkpoint.display();
    if let Err(error) = safetensors::verify(checkpoint) {
        return Some(format!("the checkpoint {file} is damaged, so the run begins again: {error:#}"));
    }
    (!is_seen()).then(|| {
        format!(
            "{host} does not see the checkpoint {file}, so the run begins again: put --out on storage that all hosts share"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect;

    use super::*;

    #[test]
    fn damaged_or_invisible_checkpoint_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("run.safetensors");
        let warning = |content: &[u8], is_seen: bool| {
            fs::write(&file, content).expect("written");
            let text = unusable(&file, "spare-1", || is_seen)?;
            Some(text.replace(&folder.path().display().to_string(), "DIR"))
        };
        // A file without tensors.
        let whole = b"\x02\0\0\0\0\0\0\0{}";
        assert_eq!(warning(whole, true), None);
        let warnings = [warning(whole, false), warning(&whole[..9], true), warning(&[whole, &[0][..]].concat(), false)];
        expect![[r#"
            spare-1 does not see the checkpoint DIR/run.safetensors, so the run begins again: put --out on storage that all hosts share
            the checkpoint DIR/run.safetensors is damaged, so the run begins again: the first 8 bytes declare a header of 2 bytes, but the file has 9: it is damaged or not a safetensors file
            the checkpoint DIR/run.safetensors is damaged, so the run begins again: the header describes 0 bytes of tensors, but 1 follow, so the file is truncated or damaged"#]].assert_eq(&warnings.map(|text| text.expect("unusable")).join("\n"));
    }
}

//! Runs the jobs of any benchmark: finds the programs, rejects invalid settings, locks the folder, copies the worker,
//! checks the hosts, runs the missing jobs one after the other, and records how each ended. The first failure stops the
//! session; jobs finished before it are kept. The [`Benchmark`] defines the jobs and interprets their records.

mod execute;
mod restart;
mod table;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use ringmark_core::dimension::Case;
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::{self, RunName};
use ringmark_core::number_text::count;
use ringmark_core::options::usage::usage;

use crate::launch::doctor::command::check_before_jobs;
use crate::launch::doctor::host::InspectionSettings;
use crate::launch::doctor::report;
use crate::launch::job::job_launch::{JobFiles, NeededMemory};
use crate::launch::job::launcher::{LaunchConfig, Launcher, SavedConfig};
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::{
    Benchmark, EndedJob, Failure, JobCheckpoint, JobOutcome, PlanContext, PlannedJob,
};
use crate::launch::sweep::conditions::{conditions, resume_command};
use crate::launch::sweep::estimate::{self, ThisMachine};
use crate::launch::sweep::folder::{self, FolderLock};
use crate::launch::sweep::ledger::{self, Ledger, RequestedSweep};
use crate::launch::sweep::live::Live;
use crate::launch::sweep::live::session_progress::SessionProgress;
use crate::launch::sweep::schedule::Schedule;
use crate::launch::sweep::session::execute::{JobRunner, at_batch, ran_on};
pub use crate::launch::sweep::session::restart::RestartConfig;
use crate::launch::sweep::session::restart::{Restarter, SessionHosts};
use crate::launch::sweep::session::table::SessionTable;
use crate::output;
use crate::output::message::{Printer, print_commands, print_error, print_line};

/// Largest number of runs that the first line of a plan shows well enough.
const SHORT_PLAN: usize = 20;

/// Configuration of a session, independent of the benchmark.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig<'a> {
    /// All cases of the plan.
    pub cases: &'a [Case],
    /// Hosts and launch settings.
    pub launch: &'a LaunchConfig,
    /// Folder of the logs and records.
    pub out: &'a Path,
    /// True if the sweep in the folder is resumed.
    pub resume: bool,
    /// Cases whose finished runs are repeated.
    pub repeat: &'a [Case],
    /// Pause between two jobs.
    pub cooldown: Duration,
    /// Restarts of a job after a loss.
    pub restarts: &'a RestartConfig,
    /// Live output of the session.
    pub live: &'a Live,
}

/// Runs `benchmark`, or prints the commands that would run; returns the jobs that ran.
pub fn run<B: Benchmark>(config: SessionConfig, benchmark: &B) -> anyhow::Result<Vec<EndedJob<B::Figures>>> {
    let launcher = Launcher::new(config.launch, config.cases)?;
    let hosts = SessionHosts::new(&config.launch.hosts, config.restarts);
    let mut session = Session { config, benchmark, launcher, hosts, printer: benchmark.rules().printer };
    if config.launch.dry_run { session.print_commands().map(|()| Vec::new()) } else { session.run() }
}

struct Session<'a, B: Benchmark> {
    config: SessionConfig<'a>,
    benchmark: &'a B,
    launcher: Launcher<'a>,
    hosts: SessionHosts,
    printer: Printer,
}

impl<B: Benchmark> Session<'_, B> {
    fn print_commands(&self) -> anyhow::Result<()> {
        let (schedule, _) = self.schedule()?;
        self.check_memory(&schedule)?;
        let header = schedule.header.iter().cloned().chain(self.benchmark.plan_lines());
        let SessionConfig { launch, .. } = self.config;
        let missing: Vec<&PlannedJob> = schedule.missing().collect();
        let lines = header.chain(self.unused_hosts()).chain(launch.slots_line.clone());
        let lines = lines.chain((missing.len() > SHORT_PLAN).then(|| plan_line(&missing)));
        let is_finished = missing.is_empty() && !schedule.plan.is_empty();
        let nothing =
            is_finished.then(|| format!("nothing to run: all {} are finished", count(schedule.plan.len(), "run")));
        lines.chain(nothing).chain(schedule.estimate.iter().cloned()).for_each(|line| print_line(&format!("# {line}")));
        self.launcher.copy_commands().iter().for_each(|command| print_line(command));
        if launch.doctor && self.launcher.hosts().len() > 1 && launch.options.interface.is_none() {
            print_line("# plus arguments for the network that the doctor finds, unless --no-doctor is set");
        }
        let commands = missing.iter().map(|job| self.runner().job_for(job).command_line(launch.starter));
        print_commands(commands, launch.is_verbose);
        if let Some(SavedConfig { path, text }) = &launch.save_config {
            output::check_target("--save-config", path, &[])?;
            atomic_file::write(path, |file| Ok(file.write_all(text.as_bytes())?))?;
            print_line(&format!("# wrote the options to {}", path.display()));
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<Vec<EndedJob<B::Figures>>> {
        let out = self.config.out;
        let lock = FolderLock::acquire(out, &self.launcher.environment().host_name)?;
        self.config.live.remove_stale();
        let (mut schedule, mut ended) = self.schedule()?;
        self.check_memory(&schedule)?;
        let interrupt = Interrupt::install()?;
        self.unused_hosts().iter().for_each(|line| self.printer.line(line));
        self.launcher.copy_worker(&interrupt, |line| self.printer.line(line))?;
        let must_fit = schedule.must_fit(self.benchmark.rules().expects_shortage);
        let needed = estimate::memory_by_host(must_fit, &self.config.launch.hosts);
        self.check_hosts(&needed, &schedule.data(), &interrupt)?;
        folder::prepare(out, schedule.plan.iter().map(|job| job.files.log.as_path()))?;
        // An earlier session may have been killed before it removed them.
        let finished = schedule.plan.iter().filter(|job| schedule.is_finished(job));
        finished.filter_map(|job| job.checkpoint.as_ref()).try_for_each(JobCheckpoint::remove)?;
        if let Some(ledger) = &mut schedule.ledger {
            ledger.write(schedule.plan.iter().filter_map(|job| job.run))?;
        }
        schedule
            .header
            .iter()
            .chain(&schedule.estimate)
            .chain(&schedule.notes)
            .for_each(|line| self.printer.line(line));

        let printer = self.printer;
        let mut table = SessionTable::new(&schedule.plan, self.config.live, &printer);
        let outcome = self.run_missing(&mut schedule, &lock, &interrupt, (&mut ended, &mut table));
        table.end();
        self.benchmark.finish(&ended, outcome.is_ok())?;
        outcome.map(|()| ended).map_err(|error| match &schedule.ledger {
            Some(ledger) => {
                let command = ledger.command();
                let is_any_finished = schedule.plan.iter().any(|job| schedule.is_finished(job));
                let advice = match (interrupt.is_set(), is_any_finished) {
                    (true, _) => "resume with",
                    (false, true) => "completed runs are kept; resume with",
                    // Running the same again would fail again.
                    (false, false) => "no run is finished: fix this, or change the options, then resume with",
                };
                anyhow!("{error:#}\n{advice}: {command}")
            }
            None => error,
        })
    }

    /// Lists the given hosts that are not used; a trial uses only the hosts it needs.
    fn unused_hosts(&self) -> Option<String> {
        let LaunchConfig { hosts, server_hosts, .. } = self.config.launch;
        (!self.benchmark.rules().is_trial).then(|| hosts.unused_line(self.config.cases, server_hosts)).flatten()
    }

    /// Rejects a job that needs more memory than this machine has, if its ranks run here.
    fn check_memory(&self, schedule: &Schedule) -> anyhow::Result<()> {
        let must_fit = schedule.must_fit(self.benchmark.rules().expects_shortage);
        estimate::check_memory(must_fit, &self.this_machine()).map_err(usage)
    }

    fn this_machine(&self) -> ThisMachine<'_> {
        let (environment, hosts) = (self.launcher.environment(), &self.config.launch.hosts);
        ThisMachine::new(environment, hosts)
    }

    /// Returns the plan and the jobs that an earlier session finished; starts and writes nothing.
    fn schedule(&self) -> anyhow::Result<(Schedule, Vec<EndedJob<B::Figures>>)> {
        let SessionConfig { launch, out, resume, repeat, cooldown, restarts, .. } = self.config;
        let resumed = if resume { Some(ledger::find(out)?) } else { None };
        let environment = self.launcher.environment();
        let conditions_before = resumed.as_ref().map(|manifest| &manifest.conditions);
        let context = PlanContext { environment, resumed: conditions_before, is_restart: false };
        let plan = self.benchmark.plan(context)?;
        let Some(benchmark) = self.benchmark.resumable() else {
            reject_used_files(out, &plan)?;
            let schedule = Schedule { plan, ledger: None, header: Vec::new(), estimate: Vec::new(), notes: Vec::new() };
            return Ok((schedule, Vec::new()));
        };
        let mut header = benchmark.header_lines(context);
        header.extend(benchmark.warning().map(str::to_owned));
        let conditions = conditions(benchmark.conditions(context), launch, cooldown, &self.launcher)?;
        let command = resume_command(environment, out);
        let has_spare_hosts = !restarts.spare_hosts.is_empty();
        let sweep = RequestedSweep { benchmark: self.benchmark.kind(), out, command, conditions, has_spare_hosts };
        let figures = RefCell::new(BTreeMap::new());
        let (ledger, notes) = match resumed {
            None => (Ledger::begin(sweep)?, Vec::new()),
            Some(manifest) => {
                let is_repeated = |run: &RunName| repeat.contains(&run.case);
                let repeat: Vec<RunName> = plan.iter().filter_map(|job| job.run).filter(is_repeated).collect();
                let check = |run: RunName| {
                    let record = benchmark.check_finished(run)?;
                    let (ran_on, time) = (ran_on(&record), benchmark.time_of_iterations(&record));
                    figures.borrow_mut().insert(run, (time, self.benchmark.figures(record, None)?));
                    Ok(ran_on)
                };
                Ledger::resume(sweep, manifest, &repeat, check)?
            }
        };
        let mut schedule = Schedule { plan, ledger: Some(ledger), header, estimate: Vec::new(), notes };
        let mut figures = figures.into_inner();
        let finished = schedule.plan.iter().filter(|job| schedule.is_finished(job)).filter_map(|job| {
            let (time, figures) = figures.remove(&job.run?)?;
            let took = time.map(|time| estimate::with_start(job, time));
            Some(EndedJob::new(job.clone(), took, true, JobOutcome::Sound(figures)))
        });
        let finished: Vec<_> = finished.collect();
        let missing: Vec<PlannedJob> = schedule.missing().cloned().collect();
        let measured = SessionProgress::at(&missing, 0, cooldown, &finished).left(Duration::ZERO, None);
        schedule.estimate = estimate::lines(missing.iter(), &self.this_machine(), cooldown, measured);
        Ok((schedule, finished))
    }

    /// Runs the doctor's quick checks if requested, including the memory `needed` on each host and the `data`. Jobs use
    /// the network that it finds.
    fn check_hosts(
        &mut self,
        needed: &BTreeMap<String, NeededMemory>,
        data: &[PathBuf],
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let SessionConfig { launch, out, .. } = self.config;
        if !launch.doctor {
            return Ok(());
        }
        let results = results_folder::absolute(out)?;
        let hosts = self.launcher.hosts();
        let visit = InspectionSettings::for_jobs(&self.launcher, launch, &results, needed, data, interrupt);
        let examination = check_before_jobs(&visit, hosts)?;
        self.launcher.set_busy(report::busy(&examination.hosts));
        let network = examination.network;
        if let Some(line) = network.line() {
            self.printer.line(&line);
        }
        if let Some(interface) = network.interface {
            self.launcher.use_interface(interface);
        }
        Ok(())
    }

    fn runner(&self) -> JobRunner<'_, B> {
        let Session { config, benchmark, launcher, hosts, printer, .. } = self;
        let SessionConfig { launch, live, restarts, .. } = config;
        JobRunner { benchmark, launch, launcher, hosts: &hosts.used, printer, live, restarts: restarts.number }
    }

    /// Describes the job that was interrupted, and how much of the plan is finished.
    fn interrupted(&self, place: &str, job: &PlannedJob, schedule: &Schedule) -> String {
        let PlannedJob { title, .. } = job;
        match schedule.ledger {
            Some(_) => {
                let finished = schedule.plan.iter().filter(|job| schedule.is_finished(job)).count();
                format!("interrupted {place} {title}; {finished} of {} runs are complete", schedule.plan.len())
            }
            None => format!("interrupted {place} {title}; complete cases are in {}", self.config.out.display()),
        }
    }

    /// Runs a job, and again after each loss as often as requested.
    fn run_with_restarts(
        &mut self,
        job: &PlannedJob,
        progress: &SessionProgress,
        schedule: &mut Schedule,
        interrupt: &Interrupt,
    ) -> anyhow::Result<EndedJob<B::Figures>> {
        let SessionConfig { launch, out, restarts, .. } = self.config;
        let mut job = job.clone();
        loop {
            let ended = self.runner().execute(&job, progress, schedule.ledger.as_mut(), interrupt)?;
            let is_restarted = restarts.number > 0 && !interrupt.is_set();
            let (Some(loss), Some(ledger), true) = (&ended.loss, &schedule.ledger, is_restarted) else {
                return Ok(ended);
            };
            let Session { benchmark, launcher, hosts, printer, .. } = self;
            let restarter = Restarter { limit: restarts.number, launch, launcher, out, printer: *printer, interrupt };
            match restarter.next_job(*benchmark, (&ended.job, loss), ledger, hosts) {
                Ok(next) => job = next,
                Err(error) => {
                    print_error(&format!("{}: no restart: {error:#}", job.title));
                    return Ok(ended);
                }
            }
        }
    }

    /// Runs the jobs that are not finished. `ended` contains the jobs of an earlier session, and every job that runs is
    /// added.
    fn run_missing(
        &mut self,
        schedule: &mut Schedule,
        lock: &FolderLock,
        interrupt: &Interrupt,
        (ended, table): (&mut Vec<EndedJob<B::Figures>>, &mut SessionTable),
    ) -> anyhow::Result<()> {
        let SessionConfig { resume, cooldown, live, .. } = self.config;
        let missing: Vec<PlannedJob> = schedule.missing().cloned().collect();
        if resume {
            self.printer.line(&format!("{} of {} runs are finished", ended.len(), schedule.plan.len()));
        }
        for number in 1..=ended.len() {
            table.add_earlier(self.benchmark.report(&ended[..number]));
        }
        if missing.is_empty() {
            // No job publishes the counts of the earlier session.
            live.publish(SessionProgress::at(&missing, 0, cooldown, ended).counts, None, None);
        }
        for (index, job) in missing.iter().enumerate() {
            if schedule.lacks_memory(job) {
                continue;
            }
            if index > 0 {
                interrupt.sleep(cooldown);
            }
            if interrupt.is_set() {
                let (place, job) = match index.checked_sub(1) {
                    Some(previous) => ("after", &missing[previous]),
                    None => ("before", job),
                };
                bail!("{}", self.interrupted(place, job, schedule));
            }
            lock.check_folder()?;
            job.announcement.iter().for_each(|line| self.printer.line(line));
            let progress = SessionProgress::at(&missing, index, cooldown, ended);
            ended.push(self.run_with_restarts(job, &progress, schedule, interrupt)?);
            let next = SessionProgress::at(&missing, index + 1, cooldown, ended);
            live.publish(next.counts, next.left(Duration::ZERO, None), None);
            let Some(EndedJob { outcome, .. }) = ended.last() else { continue };
            match outcome {
                JobOutcome::Sound(_) => table.add(self.benchmark.report(ended)),
                JobOutcome::Missed(..) => {}
                JobOutcome::OutOfMemory(memory) => {
                    let skipped = if missing[index + 1..].iter().any(|job| schedule.lacks_memory(job)) {
                        "; its other runs and larger batches are skipped"
                    } else {
                        ""
                    };
                    self.printer.line(&format!("{}: {}{skipped}", job.title, at_batch(job, *memory)));
                }
                JobOutcome::Failed(Failure::Interrupted(_)) => {
                    lock.check_folder()?;
                    bail!("{}", self.interrupted("in", job, schedule));
                }
                JobOutcome::Failed(failure) => {
                    lock.check_folder()?;
                    let log = self.runner().job_for(job).log_now();
                    bail!("{} failed: {}\nlog: {}", job.title, failure.reason(), log.display());
                }
            }
        }
        let misses = ended.iter().filter_map(|ended| match &ended.outcome {
            JobOutcome::Missed(_, reason) => Some(format!("{}: {reason}", ended.job.title)),
            JobOutcome::Sound(_) | JobOutcome::OutOfMemory(_) | JobOutcome::Failed(_) => None,
        });
        let misses: Vec<String> = misses.collect();
        ensure!(misses.is_empty(), "{}", misses.join("\n"));
        let has_figures = schedule.ledger.is_none() || schedule.plan.iter().any(|job| schedule.is_finished(job));
        ensure!(
            has_figures,
            "nothing fits in the memory of the device: choose a smaller --batch-size, or a --strategy that shards the weights"
        );
        Ok(())
    }
}

/// Counts the jobs, and the combinations of network, precision, batch size, strategy and case: `60 runs at 12 points`.
fn plan_line(jobs: &[&PlannedJob]) -> String {
    let points: BTreeSet<RunName> = jobs.iter().filter_map(|job| job.run).map(|run| run.of_any_number()).collect();
    let points = if points.is_empty() { String::new() } else { format!(" at {}", count(points.len(), "point")) };
    format!("{} runs{points}", jobs.len())
}

/// Rejects a folder that contains files of a planned job: another run would replace them, or be mistaken for the first.
fn reject_used_files(out: &Path, plan: &[PlannedJob]) -> anyhow::Result<()> {
    let mut files = plan.iter().flat_map(|job| {
        let JobFiles { log, record } = &job.files;
        [run_name::unfinished_log_path(log), log.clone(), record.clone()]
    });
    let used = files.find(|file| file.exists());
    used.map_or(Ok(()), |file| Err(folder::used_error(out, file.display(), false)))
}

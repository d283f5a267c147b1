//! `ringmark accept`: collects the facts, runs the rounds that the search asks for, and reports the verdict.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use ringmark_core::accept::{
    Criteria, FleetHost, Header, JOURNAL, Journal, Measurement, Metric, Outcome, Reading, Search, Stage, Test, VERDICT,
};
use ringmark_core::benchmark::data_input::DataFiles;
use ringmark_core::dimension::DeviceKind;
use ringmark_core::file::schema::kind_of;
use ringmark_core::goodput::{self, GOODPUT};
use ringmark_core::host::unix_time;
use ringmark_core::manifest::Manifest;
use ringmark_core::number_text::count;
use ringmark_core::options::usage::usage;

use crate::launch::accept::facts::{self, Facts};
use crate::launch::accept::job::TestRunner;
use crate::launch::accept::journal::JournalFile;
use crate::launch::accept::measure::TestData;
use crate::launch::accept::rounds::{self, Budget, RoundsEnd};
use crate::launch::accept::switches::Switches;
use crate::launch::cluster::hosts::{Host, compact_with_slots};
use crate::launch::job::launcher::{LaunchConfig, Launcher};
use crate::launch::job::run_launch::JobLimits;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::open_mpi::SessionGuard;
use crate::launch::local::results_folder;
use crate::launch::sweep::conditions::resume_command;
use crate::launch::sweep::estimate::roughly;
use crate::launch::sweep::folder::{self, FolderLock};
use crate::launch::sweep::ledger;
use crate::output::message::{Printer, print_commands, print_line};
use crate::output::{Destination, Json};

/// Folder of the jobs' logs and records in the output folder.
const JOBS: &str = "jobs";

/// Time limit of a job unless the user sets one. Most take some seconds.
const JOB_TIMEOUT: Duration = Duration::from_secs(600);

/// Threads that decode if the cores of the hosts are unknown.
const THREADS: u32 = 4;

/// Seed of the search: the same hosts and measurements lead to the same rounds.
const SEED: u64 = 1;

/// Maximum number of rounds that a dry run lists.
const MAX_PLANNED: usize = 50;

/// A `ringmark accept` command.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptConfig {
    /// Hosts and launch settings.
    pub launch: LaunchConfig,
    /// Device that the ranks are expected to use.
    pub device: DeviceKind,
    /// True if this is a dry run that does not know whether the hosts have GPUs.
    pub assumes_gpus: bool,
    /// Folder of journal, verdict, logs and records.
    pub out: PathBuf,
    /// True if the journal in the folder is continued.
    pub resume: bool,
    /// Time limit of the whole command.
    pub limit: Option<Duration>,
    /// Time for which the last stage is repeated, if requested.
    pub soak: Option<Duration>,
    /// Error rates, limits and minimum values.
    pub criteria: Criteria,
    /// Images that each host reads alone, absolute; none to leave that out.
    pub data: DataFiles,
    /// Switches of the hosts, as far as they are known.
    pub switches: Switches,
    /// Destination of the verdict as JSON.
    pub json: Json,
    /// Destination of the list of hosts that are not fit.
    pub drain_list: Option<Destination>,
}

/// Runs the command. Fails if a host, GPU or link is not fit.
pub fn run(config: &AcceptConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    config.drain_list.as_ref().map_or(Ok(()), |list| list.check("--drain-list", &config.json))?;
    // A missing worker is reported later than a folder of other hosts.
    check_folder(config)?;
    let launcher = Launcher::new(&config.launch, &[config.launch.hosts.full_case()])?;
    if config.launch.dry_run { print_plan(config, &launcher) } else { Acceptance { config, launcher }.run() }
}

/// Rejects a folder that has a journal without `--resume` or another result, and a journal of other hosts or criteria.
fn check_folder(config: &AcceptConfig) -> anyhow::Result<()> {
    match (Header::find(&config.out)?, config.resume) {
        (Some(_), false) => Err(folder::used_error(&config.out, JOURNAL, true)),
        (Some(earlier), true) => check_same(config, &earlier),
        (None, _) => ledger::reject_used_folder(&config.out, false),
    }
}

/// Rejects a folder to resume that has no journal.
pub fn require_journal(out: &Path) -> anyhow::Result<()> {
    Header::find(out)?.map(|_| ()).ok_or_else(|| usage(without_journal(out)))
}

/// Returns the error for a folder to resume that has no journal, with the command that wrote the folder.
fn without_journal(out: &Path) -> anyhow::Error {
    let of_sweep = || Manifest::find(out).ok().flatten().and_then(|manifest| manifest.command.into_iter().nth(1));
    let is_goodput = kind_of(&out.join(GOODPUT)).as_deref() == Some(goodput::KIND);
    let command = if is_goodput { Some("goodput".to_owned()) } else { of_sweep() };
    match command {
        Some(command) => anyhow!(
            "--resume: {} holds a result of `ringmark {command}`, not of `ringmark accept`: pass the --out of accept's first \
             command",
            out.display()
        ),
        None => anyhow!("--resume: {} contains no {JOURNAL}: omit --resume to start there", out.display()),
    }
}

/// Rejects a journal of other hosts or criteria.
fn check_same(config: &AcceptConfig, earlier: &Header) -> anyhow::Result<()> {
    let AcceptConfig { out, criteria, .. } = config;
    let named = |fleet: &[FleetHost]| compact_with_slots(fleet.iter().map(|host| (host.name.as_str(), host.ranks)));
    let (before, now) = (named(&earlier.fleet), named(&fleet(config)));
    ensure!(
        before == now,
        usage(anyhow!(
            "--resume: {} is of --hosts {}, not of --hosts {}: use the same hosts in the same order, or another --out",
            out.display(),
            before,
            now
        ))
    );
    let switches =
        |fleet: &[FleetHost]| -> Vec<Option<String>> { fleet.iter().map(|host| host.switch.clone()).collect() };
    ensure!(
        earlier.criteria == *criteria && switches(&earlier.fleet) == switches(&fleet(config)),
        usage(anyhow!(
            "--resume: {} has other criteria: use the --criteria, --reference and --switches of its first command, or \
             another --out",
            out.display()
        ))
    );
    Ok(())
}

struct Acceptance<'a> {
    config: &'a AcceptConfig,
    launcher: Launcher<'a>,
}

impl Acceptance<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let AcceptConfig { launch, out, resume, limit, soak, json, .. } = self.config;
        let start = Instant::now();
        let printer = Printer { mark: "", to_error: json.is_instead() };
        let lock = FolderLock::acquire(out, &self.launcher.environment().host_name)?;
        let earlier = if *resume { Journal::find(out)? } else { None };
        time_lines(self.config).for_each(|line| printer.line(&line));
        let interrupt = Interrupt::install()?;
        let failed_copies =
            self.launcher.failed_copies(self.launcher.hosts(), &interrupt, |line| printer.line(line))?;
        failed_copies.iter().for_each(|failure| printer.line(&format!("sync to {failure}")));
        let mut facts = self.collect_facts(&interrupt, &printer)?;
        facts.add_failed_copies(&failed_copies, self.launcher.hosts());
        let mut journal = self.journal(earlier, &facts)?;
        for finding in &facts.findings {
            journal.add_finding(finding.clone())?;
        }
        let folder = results_folder::absolute(out)?.join(JOBS);
        folder::prepare(out, [folder.join(JOURNAL).as_path()])?;
        let environment = self.launcher.environment();
        // Many mpiruns start and end on this machine at once.
        let _session = SessionGuard::create(environment.open_mpi, &environment.temporary, &environment.host_name);
        let Header { fleet, criteria, seed, .. } = journal.journal().header.clone();
        let search = Search::new(fleet, criteria, seed);
        let runner = TestRunner {
            launcher: &self.launcher,
            config: launch,
            device: self.config.device,
            data: TestData { files: self.config.data.clone(), threads: facts.cores.unwrap_or(THREADS) },
            limits: JobLimits { timeout: launch.timeout.or(Some(JOB_TIMEOUT)), stall_timeout: launch.stall_timeout },
            folder: &folder,
            interrupt: &interrupt,
        };
        let mut budget = Budget { start, limit: *limit, soak: *soak, longest: Duration::ZERO, soak_start: None };
        let end = rounds::run(&search, &runner, &mut journal, &mut budget, &printer);
        lock.check_folder()?;
        let end = end.map_err(|error| self.with_advice(&error))?;
        self.report(&search, journal.journal(), end, &printer)
    }

    fn collect_facts(&mut self, interrupt: &Interrupt, printer: &Printer) -> anyhow::Result<Facts> {
        let AcceptConfig { launch, out, data, .. } = self.config;
        if !launch.doctor {
            printer.line("facts: not examined");
            return Ok(Facts::default());
        }
        let hosts = count(launch.hosts.all().len(), "host");
        printer.line(&format!("facts: examining {hosts}"));
        let mut facts =
            facts::collect(&self.launcher, launch, &results_folder::absolute(out)?, data.paths(), interrupt)?;
        facts.network.iter().for_each(|line| printer.line(line));
        self.launcher.set_busy(std::mem::take(&mut facts.busy));
        if let Some(interface) = facts.interface.take() {
            self.launcher.use_interface(interface);
        }
        Ok(facts)
    }

    /// Starts the journal, or continues `earlier`.
    fn journal(&self, earlier: Option<Journal>, facts: &Facts) -> anyhow::Result<JournalFile> {
        let AcceptConfig { out, criteria, .. } = self.config;
        let mut fleet: Vec<FleetHost> = fleet(self.config);
        let Some(earlier) = earlier else {
            for (host, hardware) in fleet.iter_mut().zip(&facts.hardware) {
                host.hardware.clone_from(hardware);
            }
            let (command, program) =
                (resume_command(self.launcher.environment(), out).texts(), env!("CARGO_PKG_VERSION").to_owned());
            let header = Header::new(command, program, fleet, criteria.clone(), SEED);
            let slurm = self.config.launch.starter.has_drain_command();
            return JournalFile::begin(out, Header { started: Some(unix_time()), slurm, ..header });
        };
        JournalFile::resume(out, earlier)
    }

    fn with_advice(&self, error: &anyhow::Error) -> anyhow::Error {
        let command = resume_command(self.launcher.environment(), &self.config.out);
        anyhow!("{error:#}\nresume with: {command}")
    }

    fn report(&self, search: &Search, journal: &Journal, end: RoundsEnd, printer: &Printer) -> anyhow::Result<()> {
        let AcceptConfig { out, json, drain_list, .. } = self.config;
        let verdict = search.verdict(&journal.findings, &journal.measurements);
        let file = out.join(VERDICT);
        Json::File(file.clone()).write(&verdict)?;
        if !json.write(&verdict)? {
            print_line(&verdict.text());
        }
        if let Some(list) = drain_list {
            list.write(&verdict.drain_list(journal.header.slurm))?;
        }
        printer.line(&format!("verdict: {}, logs and records: {}", file.display(), out.join(JOBS).display()));
        if end == RoundsEnd::OutOfTime {
            let command = resume_command(self.launcher.environment(), out);
            printer.line(&format!("stopped before --max-minutes; continue with: {command}"));
        }
        match verdict.failure() {
            Some(failure) => bail!(failure),
            None => Ok(()),
        }
    }
}

/// Returns the hosts without their hardware.
fn fleet(config: &AcceptConfig) -> Vec<FleetHost> {
    let host = |host: &Host| {
        let (name, ranks, switch) = (host.name.clone(), host.slots, config.switches.get(&host.name).cloned());
        FleetHost { name, ranks, hardware: String::new(), switch }
    };
    config.launch.hosts.all().iter().map(host).collect()
}

/// Returns a line for each option with a time, in its units: a typed number may lack its unit.
fn time_lines(config: &AcceptConfig) -> impl Iterator<Item = String> {
    let soak = config.soak.map(|soak| {
        let soak = roughly(soak);
        format!("soak: {soak} after the other stages, which repeats the jobs of hosts alone and of pairs (--soak)")
    });
    let limit = config.limit.map(|limit| {
        let limit = roughly(limit);
        format!("time limit: {limit}; no round starts that would end later (--max-minutes)")
    });
    soak.into_iter().chain(limit)
}

/// Shortest and longest time of a round, seconds: start and iterations of one job, whose round starts all at the same time.
/// Rounds of eight simulated hosts took 18 s (results/accept-8-hosts).
const ROUND_SECONDS: [u64; 2] = [15, 60];

/// Prints the rounds for hosts that are all fit, with the first command of each kind.
fn print_plan(config: &AcceptConfig, launcher: &Launcher) -> anyhow::Result<()> {
    launcher.copy_commands().iter().for_each(|command| print_line(command));
    let folder = results_folder::absolute(&config.out)?.join(JOBS);
    let runner = TestRunner {
        launcher,
        config: &config.launch,
        device: config.device,
        data: TestData { files: config.data.clone(), threads: THREADS },
        limits: JobLimits::default(),
        folder: &folder,
        interrupt: &Interrupt::never(),
    };
    if config.launch.doctor {
        print_line("# facts: the checks of `ringmark doctor --quick`");
    }
    if config.launch.hosts.all().len() < 3 && config.criteria.minimum.is_empty() && config.criteria.reference.is_empty()
    {
        print_line(
            "# two hosts are not compared with each other: only failures are found, without --reference and --criteria",
        );
    }
    if config.assumes_gpus {
        print_line("# GPUs are assumed, because a dry run does not query hosts; --device cpu plans for CPUs");
    }
    let search = Search::new(fleet(config), config.criteria.clone(), SEED);
    let mut done: Vec<Measurement> = Vec::new();
    let mut kinds: Vec<(String, RangeInclusive<u32>)> = Vec::new();
    let mut commands: Vec<String> = Vec::new();
    for number in 1..=MAX_PLANNED as u32 {
        let Some(round) = search.next(&[], &done).filter(|round| round.stage != Stage::Soak) else { break };
        let (job, name) = (&round.jobs[0], rounds::file_name(&round, number, 0));
        let hosts = runner.hosts(job);
        let what = rounds::describe(&round);
        match kinds.last_mut() {
            Some((last, numbers)) if *last == what => *numbers = *numbers.start()..=number,
            _ => {
                commands.push(runner.launch(job, &hosts, &name).command_line(config.launch.starter));
                kinds.push((what, number..=number));
            }
        }
        done.extend(round.jobs.iter().map(|job| Measurement {
            stage: round.stage,
            round: number,
            job: job.clone(),
            outcome: Outcome::Measured(equal_readings(job.test, &hosts)),
            fingerprints: None,
            time: None,
            state: None,
        }));
    }
    let rounds = kinds.last().map_or(0, |(_, numbers)| *numbers.end());
    let [shortest, longest] = ROUND_SECONDS.map(|each| roughly(Duration::from_secs(each * u64::from(rounds))));
    print_line(&format!(
        "# {rounds} rounds, about {shortest} to {longest}, and more rounds for hosts and links that look slow. The jobs of a \
         round run at the same time"
    ));
    print_line(&format!("# criteria: {}", config.criteria.text()));
    time_lines(config).for_each(|line| print_line(&format!("# {line}")));
    let rounds_in = |limit: Duration| ROUND_SECONDS.map(|each| rounds.min((limit.as_secs() / each) as u32));
    if let Some([most, fewest]) = config.limit.map(rounds_in).filter(|[_, fewest]| *fewest < rounds) {
        print_line(&format!(
            "# {fewest} to {most} of the {rounds} rounds fit the time limit: the last stages may not run"
        ));
    }
    for (what, numbers) in &kinds {
        let (first, last) = (numbers.start(), numbers.end());
        let numbers = if first == last { format!("round {first}") } else { format!("rounds {first} to {last}") };
        print_line(&format!("# {numbers}, {what}"));
    }
    print_line("# the first command of each of these lines, which differ in hosts, benchmark, options and files:");
    print_commands(commands.into_iter(), config.launch.is_verbose);
    Ok(())
}

/// Returns the readings of a job on hosts that are all alike.
fn equal_readings(test: Test, hosts: &[Host]) -> Vec<Reading> {
    let ranks = hosts.iter().map(|host| host.slots).min().unwrap_or(1) * hosts.len() as u32;
    let reading = |metric, rank| Reading { metric, value: 1.0, rank };
    match test {
        Test::Training => {
            let each = [Metric::TrainingSpeed, Metric::MatrixRate, Metric::MemoryRate].into_iter();
            let each = each.flat_map(|metric| (0..ranks).map(move |rank| reading(metric, Some(rank))));
            each.chain((ranks > 1).then(|| reading(Metric::TrainingSpeed, None))).collect()
        }
        Test::Exchange => Metric::BANDWIDTHS.map(|metric| reading(metric, None)).to_vec(),
        Test::Input => Metric::INPUTS.map(|metric| reading(metric, None)).to_vec(),
    }
}

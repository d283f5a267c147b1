//! Options of `ringmark accept`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use ringmark_core::accept::{Criteria, Journal};
use ringmark_core::benchmark::data_input::DataFiles;
use ringmark_core::benchmark::input::InputConfig;
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::number_text::count;
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::{minutes, seconds};

use crate::cli::json::JsonOption;
use crate::cli::launch::data;
use crate::cli::launch::hosts::{HostQuery, JobOptions, Machine};
use crate::launch::accept::command::{AcceptConfig, require_journal};
use crate::launch::accept::switches::{self, Switches};
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::results_folder;
use crate::output::Destination;
use crate::output::message::print_error;

const ACCEPT_EXAMPLES: &str = "\
Examples:
  ringmark accept --hosts node[01-64]:8 --out results/accept
      which hosts, GPUs and links are not fit: each with its cause, the evidence and a fix
  ringmark accept --hosts node[01-64]:8 --out results/accept --resume
      continues after Ctrl-C
  ringmark accept --hosts node[01-64]:8 --max-minutes 45 --drain-list
      stops in time, and prints the hosts to drain
  ringmark accept --launcher slurm --drain-list drain.sh
      the hosts of an allocation; the file has scontrol's commands
  ringmark accept --hosts node[01-64]:8 --reference results/march --criteria accept.toml
      also compares with the hosts of an earlier run, and with minimum values
  ringmark accept --hosts a:8,b:8 --dry-run
      prints the rounds and the first command of each

Exit status 0: every host is fit; 1: one is not fit, or the run was not completed; 2: a usage error; 130: Ctrl-C.";

/// Seconds of a soak below which its unit was probably forgotten.
const SHORT_SOAK: u64 = 100;

/// Options of `ringmark accept`.
#[derive(Debug, Args)]
#[command(after_help = ACCEPT_EXAMPLES)]
pub struct AcceptOptions {
    /// Launch options.
    #[command(flatten)]
    jobs: JobOptions,
    /// Folder for the journal, the verdict, and the logs and records of all jobs [default: results/TIME_accept]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Continue the run in --out
    ///
    /// Measurements in its journal are kept. The hosts and the criteria must be those of its first command.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Start no round that would not end within this time
    ///
    /// A round is expected to take as long as the longest one before it. The verdict lists what was not tested. A time with
    /// a unit, such as 2h, is also accepted.
    #[arg(long, value_name = "MINUTES", value_parser = minutes(1..=100_000))]
    max_minutes: Option<u64>,
    /// Repeat jobs on all hosts for this time after the other stages, such as 24h, to find faults that come and go; a
    /// number without a unit is seconds
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=31_536_000))]
    soak: Option<u64>,
    /// Folder of an earlier run of accept, whose typical values the hosts must reach
    #[arg(long, value_name = "FOLDER")]
    reference: Option<PathBuf>,
    /// File with minimum values and the limits of the test (TOML)
    #[arg(long, value_name = "FILE")]
    criteria: Option<PathBuf>,
    /// Also read and decode these images on each host, from the disk and from memory
    ///
    /// Comma-separated .rec files, a folder of them or of classes, as for `ringmark input`, at the same path on every host.
    #[arg(long, value_name = "FILES")]
    data: Option<String>,
    /// File with the switch of each host, such as Slurm's topology.conf
    ///
    /// Lines such as SwitchName=leaf01 Nodes=node[01-16], as `scontrol show topology` prints them. A switch that
    /// several hosts or links share that are not fit is named. Pairs on the same switch are compared with each other.
    #[arg(long, value_name = "FILE")]
    switches: Option<PathBuf>,
    /// Device of the ranks; cpu ignores the GPUs
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = keyword::<DeviceChoice>())]
    device: DeviceChoice,
    /// List the hosts that are not fit in FILE, or on the standard output
    ///
    /// With --launcher slurm the lines are scontrol's commands that drain them, otherwise their names.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    drain_list: Option<PathBuf>,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

impl AcceptOptions {
    /// Fills in defaults and checks the options.
    pub fn into_config(self) -> anyhow::Result<AcceptConfig> {
        // The hosts are those of the journal, so that a missing one is the first error.
        if let (true, Some(out)) = (self.resume, &self.out) {
            require_journal(out)?;
        }
        let machine = Machine::read(self.device, self.jobs.gpus());
        let allows_doctor = self.jobs.allows_doctor();
        let mut launch = self.jobs.into_config(&machine, HostQuery::Reachable)?;
        machine.query_first_host(&mut launch);
        // A measurement of a rank is that of its host in this order.
        launch.hosts = launch.starter.in_rank_order(launch.hosts, &machine.environment)?;
        // Tasks of a scheduler reach the hosts without ssh.
        launch.ssh.task = launch.starter.task_command(&machine.environment);
        launch.doctor = allows_doctor;
        ensure!(
            launch.hosts.all().len() > 1,
            usage(anyhow!(
                "accept compares hosts, but there is only one: list several with --hosts or --hostfile, or use --launcher slurm \
                 in a job of several nodes"
            ))
        );
        let criteria = self.criteria.as_deref().map_or_else(|| Ok(Criteria::default()), read_criteria)?;
        let criteria = match &self.reference {
            Some(folder) => with_reference(criteria, folder)?,
            None => criteria,
        };
        let data = self.data.map(|files| input_data(files, &machine, &launch)).transpose()?;
        let criteria = Criteria { input: data.is_some(), ..criteria };
        if let Some(soak) = self.soak.filter(|soak| *soak < SHORT_SOAK) {
            print_error(&format!("note: the soak lasts {soak} s; --soak {soak}h is {}", count(soak, "hour")));
        }
        let criteria = if self.soak.is_some() { criteria.with_endless_soak() } else { criteria };
        Ok(AcceptConfig {
            soak: self.soak.map(Duration::from_secs),
            device: machine.kind(&launch),
            assumes_gpus: machine.assumes_gpus(&launch),
            launch,
            out: self.out.unwrap_or_else(|| results_folder::default_path("accept", SystemTime::now())),
            resume: self.resume,
            limit: self.max_minutes.map(Duration::from_secs),
            criteria,
            data: data.unwrap_or_default(),
            switches: self.switches.as_deref().map_or_else(|| Ok(Switches::new()), switches::read)?,
            json: self.json.into_json(),
            drain_list: self.drain_list.map(Destination::from),
        })
    }
}

/// Returns the images to read, with absolute paths, after the checks of `ringmark input`.
fn input_data(files: String, machine: &Machine, launch: &LaunchConfig) -> anyhow::Result<DataFiles> {
    let data = data::absolute(DataFiles::from(Some(files))).map_err(usage)?;
    let input = InputConfig { data, ..InputConfig::default() };
    input.validate().map_err(usage)?;
    data::check("--data", &input.data, input.model.sample_size(input.image_size, None), machine, launch)?;
    Ok(input.data)
}

fn read_criteria(file: &Path) -> anyhow::Result<Criteria> {
    let read = || -> anyhow::Result<Criteria> {
        let text = fs::read_to_string(file)?;
        let criteria: Criteria =
            toml::from_str(&text).context("not a file of criteria (docs/accept.md#criteria lists the keys)")?;
        criteria.check().map_err(anyhow::Error::msg)?;
        Ok(criteria)
    };
    read().with_context(|| format!("--criteria {}", file.display())).map_err(usage)
}

fn with_reference(criteria: Criteria, folder: &Path) -> anyhow::Result<Criteria> {
    let earlier = Journal::find(folder).map_err(usage)?;
    let earlier =
        earlier.with_context(|| format!("--reference {}: not a folder of `ringmark accept`", folder.display()));
    Ok(criteria.with_reference(&earlier.map_err(usage)?))
}

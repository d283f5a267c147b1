//! The manifest of a sweep, `sweep.json` in its folder: conditions, environment and the state of every run. Writer,
//! parser, and the comparison that decides whether two runs may belong to one sweep.
//!
//! Figures come from logs and records alone. The manifest only repeats what those files contain, so losing it loses no
//! figure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::BenchmarkKind;
use crate::dimension::{BatchShape, Seconds, Strategy};
use crate::file::run_name::{MANIFEST, RunName};
use crate::file::{atomic_file, schema, sha256};
use crate::host::{Environment, MemoryShortage, RankPlace, is_loopback};

/// Version of this file format. Version 1, which predates the choice of a benchmark, is read as well; any other is
/// rejected.
pub const SCHEMA: u32 = 2;

/// Value of the first field, which identifies the file format.
pub const KIND: &str = "ringmark-sweep";

/// Manifest of a whole sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// Always `ringmark-sweep`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// The benchmark that is run.
    #[serde(default = "Manifest::default_benchmark")]
    pub benchmark: BenchmarkKind,
    /// The command line that resumes the sweep, program first.
    pub command: Vec<String>,
    /// Options, hosts, variables and programs of the sweep.
    pub conditions: Conditions,
    /// Software and hosts of the finished runs.
    #[serde(alias = "found")]
    pub ran_on: ObservedEnvironment,
    /// Runs in the requested order, without duplicates.
    pub runs: Vec<RunOfSweep>,
}

/// Conditions that affect the figures and are known before a run, by name; unset ones are absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Conditions {
    /// Hosts in the order they are used. A case takes the first of them, so that a longer list does not affect any run.
    pub hosts: Vec<String>,
    /// Options, defaults included.
    pub options: BTreeMap<String, String>,
    /// Environment variables that affect a run, such as those of MPI, NCCL and OpenMP.
    pub variables: BTreeMap<String, String>,
    /// Versions and hashes of ringmark's own programs.
    pub programs: BTreeMap<String, String>,
}

/// Software and hosts that the records of the runs contain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ObservedEnvironment {
    /// Versions of third-party software by name, and the network that MPI was configured with.
    pub software: BTreeMap<String, String>,
    /// Hosts in rank order.
    pub hosts: Vec<ObservedHost>,
}

/// One host of finished runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedHost {
    /// Host name as the host reports it.
    pub name: String,
    /// Name of the device of each local rank.
    pub devices: Vec<String>,
}

/// One run and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunOfSweep {
    /// Path of the log, relative to the folder.
    #[serde(rename = "log")]
    pub name: RunName,
    /// State of the run.
    #[serde(flatten)]
    pub state: RunState,
    /// Hashes of the files of a finished run when it ended; `None` if an earlier ringmark wrote the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<FileHashes>,
}

/// SHA-256 of the files of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileHashes {
    /// SHA-256 of the log.
    pub log: String,
    /// SHA-256 of the record.
    pub record: String,
}

impl RunOfSweep {
    /// Returns the first file of a finished run that changed after the run ended, with a description of the change.
    /// Returns `None` if the log and the record match the manifest, or if the manifest has no hashes and the record
    /// exists.
    pub fn change(&self, folder: &Path) -> Option<(PathBuf, String)> {
        let record = self.name.record(folder);
        match &self.sha256 {
            _ if self.state != RunState::Finished => None,
            Some(hashes) => hashes.changes(folder, self.name).into_iter().next(),
            None if record.exists() => None,
            None => Some((record, "the file is missing".to_owned())),
        }
    }
}

impl FileHashes {
    /// Hashes the current files of a run.
    pub fn from_files(folder: &Path, run: RunName) -> anyhow::Result<FileHashes> {
        let hash =
            |file: PathBuf| sha256::hash_file(&file).with_context(|| format!("{} cannot be read", file.display()));
        Ok(FileHashes { log: hash(run.log(folder))?, record: hash(run.record(folder))? })
    }

    /// Returns the files that changed, each with a description of the change.
    pub fn changes(&self, folder: &Path, run: RunName) -> Vec<(PathBuf, String)> {
        let files = [(run.log(folder), &self.log), (run.record(folder), &self.record)];
        files
            .into_iter()
            .filter_map(|(file, hash)| sha256::describe_change(&file, hash).map(|change| (file, change)))
            .collect()
    }
}

/// State of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum RunState {
    /// The run has not started.
    Planned,
    /// The run has started. It was interrupted if no process writes into the folder any more.
    Running {
        /// Start, seconds since 1970 UTC.
        since: Seconds,
    },
    /// The log and the record are complete and valid.
    Finished,
    /// The run is not valid.
    Failed {
        /// Reason for the failure.
        reason: String,
    },
    /// The device has too little memory for this batch size, which is a result in a sweep over batch sizes.
    #[serde(rename = "out-of-memory")]
    OutOfMemory {
        /// Memory of the device.
        memory: MemoryShortage,
    },
}

/// Kind of a value that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MismatchKind {
    /// Option of the command.
    Option,
    /// Name of a host on which the same ranks ran.
    HostName,
    /// Listed host, variable, program, device or software.
    Other,
}

/// A value that has changed; prints as `--batch-size: 128 then, 64 now`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Kind of the value.
    pub kind: MismatchKind,
    /// Name of the option, variable, program or device.
    pub what: String,
    /// Previous value; `None` if it was not set.
    pub then: Option<String>,
    /// Current value; `None` if it is not set.
    pub now: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        write!(formatter, "{}: {} then, {} now", self.what, text(&self.then), text(&self.now))
    }
}

impl Mismatch {
    fn new(kind: MismatchKind, what: &str, then: Option<&String>, now: Option<&String>) -> Option<Mismatch> {
        (then != now).then(|| Mismatch { kind, what: what.to_owned(), then: then.cloned(), now: now.cloned() })
    }
}

/// Condition with the strategies of a training sweep.
pub const STRATEGY: &str = "--strategy";

/// Name of [`STRATEGY`] in manifests of version 0.1.
const EARLIER_STRATEGY: &str = "--kv-store";

/// Condition with the name of the machine that started the sweep, if ranks run on it.
pub const STARTER: &str = "this machine";

impl Conditions {
    /// Returns true if `host` is a name of the machine that started the sweep.
    fn is_starter(&self, host: &str) -> bool {
        is_loopback(host) || self.options.get(STARTER).is_some_and(|starter| starter == host)
    }

    /// Returns every condition that differs; hosts are compared up to the length of the shorter list. Names of the machine
    /// that starts the sweep are equal: [`STARTER`] is compared as well.
    pub fn mismatches(&self, now: &Conditions) -> Vec<Mismatch> {
        let hosts = self.hosts.iter().zip(&now.hosts).enumerate();
        let hosts = hosts.filter(|(_, (then, host))| !(self.is_starter(then) && now.is_starter(host)));
        let mut found: Vec<Mismatch> = hosts
            .filter_map(|(index, (then, now))| {
                Mismatch::new(MismatchKind::Other, &format!("host {}", index + 1), Some(then), Some(now))
            })
            .collect();
        for (kind, then, now) in [
            (MismatchKind::Option, &self.options, &now.options),
            (MismatchKind::Other, &self.variables, &now.variables),
            (MismatchKind::Other, &self.programs, &now.programs),
        ] {
            let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
            let kind_of = |name: &str| if name == STARTER { MismatchKind::Other } else { kind };
            let mismatch = |name: &String| Mismatch::new(kind_of(name), name, then.get(name), now.get(name));
            found.extend(names.into_iter().filter_map(mismatch));
        }
        found
    }
}

impl ObservedEnvironment {
    /// Extracts the software and hosts from one run's record.
    pub fn from_record(environment: &Environment, ranks: &[RankPlace]) -> ObservedEnvironment {
        let versions = [
            ("ringmark-worker", Some(&environment.ringmark_version)),
            ("libtorch", Some(&environment.libtorch_version)),
            ("MPI", Some(&environment.mpi_version)),
            ("NCCL", environment.nccl_version.as_ref()),
            ("NVIDIA driver", environment.driver_version.as_ref()),
            ("network of MPI", environment.variables.get("OMPI_MCA_btl_tcp_if_include")),
        ];
        let version = |(name, version): (&str, Option<&String>)| {
            Some((name.to_owned(), version.filter(|version| !version.is_empty())?.clone()))
        };
        ObservedEnvironment { software: versions.into_iter().filter_map(version).collect(), hosts: hosts_of(ranks) }
    }

    /// Returns the differences, as far as both sides have a value: a case of one rank has no second device.
    pub fn mismatches(&self, now: &ObservedEnvironment) -> Vec<Mismatch> {
        let mut found: Vec<Mismatch> = Vec::new();
        for (index, (then, now)) in self.hosts.iter().zip(&now.hosts).enumerate() {
            let what = format!("name of host {}", index + 1);
            found.extend(Mismatch::new(MismatchKind::HostName, &what, Some(&then.name), Some(&now.name)));
            for (rank, (then, device)) in then.devices.iter().zip(&now.devices).enumerate() {
                let what = format!("device {rank} of {}", now.name);
                found.extend(Mismatch::new(MismatchKind::Other, &what, Some(then), Some(device)));
            }
        }
        for (name, then) in &self.software {
            let now = now.software.get(name);
            found.extend(now.and_then(|now| Mismatch::new(MismatchKind::Other, name, Some(then), Some(now))));
        }
        found
    }

    /// Adds hosts, devices and software of `more`, which must not differ from those that are known.
    pub fn add(&mut self, more: ObservedEnvironment) {
        for (index, host) in more.hosts.into_iter().enumerate() {
            match self.hosts.get_mut(index) {
                None => self.hosts.push(host),
                Some(known) if known.devices.len() < host.devices.len() => *known = host,
                Some(_) => {}
            }
        }
        self.software.extend(more.software);
    }
}

fn hosts_of(ranks: &[RankPlace]) -> Vec<ObservedHost> {
    let mut hosts: Vec<ObservedHost> = Vec::new();
    for place in ranks {
        let device = place.device_name.clone();
        match hosts.iter_mut().find(|host| host.name == place.host) {
            Some(host) => host.devices.push(device),
            None => hosts.push(ObservedHost { name: place.host.clone(), devices: vec![device] }),
        }
    }
    hosts
}

impl Manifest {
    /// Default for manifests that predate the choice of a benchmark.
    fn default_benchmark() -> BenchmarkKind {
        BenchmarkKind::Train
    }

    /// Creates the manifest of a sweep that has not started.
    pub fn new(benchmark: BenchmarkKind, command: Vec<String>, conditions: Conditions) -> Manifest {
        Manifest {
            kind: KIND.to_owned(),
            schema: SCHEMA,
            benchmark,
            command,
            conditions,
            ran_on: ObservedEnvironment::default(),
            runs: Vec::new(),
        }
    }

    /// Returns the run of this name, adding it if it is missing.
    pub fn run(&mut self, name: RunName) -> &mut RunOfSweep {
        let known = self.runs.iter().position(|run| run.name == name);
        let index = known.unwrap_or_else(|| {
            self.runs.push(RunOfSweep { name, state: RunState::Planned, sha256: None });
            self.runs.len() - 1
        });
        &mut self.runs[index]
    }

    /// Returns true if the manifest lists this run as finished.
    pub fn is_finished(&self, name: RunName) -> bool {
        self.runs.iter().any(|run| run.name == name && run.state == RunState::Finished)
    }

    /// Returns the smallest batch, up to that of this run, that ran out of memory with the same network, precision
    /// and ranks, and the memory of its device. This run would run out of memory as well.
    pub fn shortage(&self, name: RunName) -> Option<(BatchShape, MemoryShortage)> {
        let of_any_batch = |name: RunName| {
            let batch = BatchShape { size: name.batch.size.with_number(0), ..name.batch };
            RunName { batch, run: 0, ..name }
        };
        let shortages = self.runs.iter().filter_map(|run| match run.state {
            RunState::OutOfMemory { memory } => Some((run.name, memory)),
            _ => None,
        });
        let alike =
            shortages.filter(|(other, _)| of_any_batch(*other) == of_any_batch(name) && other.batch <= name.batch);
        alike.map(|(other, memory)| (other.batch, memory)).min_by_key(|(batch, _)| *batch)
    }

    /// Replaces the manifest of `folder` atomically.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        atomic_file::write(&folder.join(MANIFEST), |output| {
            serde_json::to_writer_pretty(&mut *output, self)?;
            Ok(output.write_all(b"\n")?)
        })
    }

    /// Reads the manifest of `folder`; returns `None` if there is none. Errors name the file, and the line if the JSON
    /// is invalid.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Manifest>> {
        let path = folder.join(MANIFEST);
        let read = match atomic_file::open(&path) {
            Ok(file) => Manifest::read(file),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => Err(error).context("the manifest cannot be read"),
        };
        read.map(Some).with_context(|| path.display().to_string())
    }

    /// Parses a manifest and rejects duplicate runs.
    pub fn read(mut input: impl Read) -> anyhow::Result<Manifest> {
        let mut text = Vec::new();
        input.read_to_end(&mut text).context("the manifest cannot be read")?;
        schema::check(&text, KIND, SCHEMA, "manifest")?;
        let mut manifest: Manifest = serde_json::from_slice(&text).context("the manifest is damaged")?;
        let options = &mut manifest.conditions.options;
        if let Some(strategies) = options.remove(EARLIER_STRATEGY).or_else(|| options.remove(STRATEGY)) {
            let of_today: Vec<String> = strategies.split(',').map(Strategy::name_of_today).collect();
            options.insert(STRATEGY.to_owned(), of_today.join(","));
        }
        let mut names = BTreeSet::new();
        if let Some(run) = manifest.runs.iter().find(|run| !names.insert(run.name)) {
            bail!("the manifest is damaged: {} occurs twice", run.name);
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::dimension::{Bytes, DeviceKind};

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn manifest() -> Manifest {
        let conditions = Conditions {
            hosts: vec!["a".to_owned(), "b".to_owned()],
            options: map(&[("--batch-size", "128"), ("--dtype", "fp32")]),
            variables: map(&[("NCCL_ALGO", "Ring")]),
            programs: map(&[("ringmark", "0.1.0")]),
        };
        let mut manifest =
            Manifest::new(BenchmarkKind::Train, vec!["ringmark".to_owned(), "sweep".to_owned()], conditions);
        let states = [
            RunState::Finished,
            RunState::Failed { reason: "interrupted".to_owned() },
            RunState::Running { since: Seconds(1.5) },
            RunState::Planned,
        ];
        for (run, state) in (1..).zip(states) {
            manifest.run(format!("1n2g/rn50_b128_fp32_{run}.log").parse().expect("a name")).state = state;
        }
        manifest
    }

    fn error(text: &str) -> String {
        format!("{:#}", Manifest::read(text.as_bytes()).expect_err("refused"))
    }

    fn lines(mismatches: &[Mismatch]) -> Vec<String> {
        mismatches.iter().map(Mismatch::to_string).collect()
    }

    #[test]
    fn earlier_names_of_strategies_are_read() {
        let mut manifest = manifest();
        manifest.conditions.options.insert(EARLIER_STRATEGY.to_owned(), "ring,shard-weights,dist_sync".to_owned());
        let text = serde_json::to_vec(&manifest).expect("written");
        let options = Manifest::read(&text[..]).expect("a manifest").conditions.options;
        assert_eq!(options.get(STRATEGY).map(String::as_str), Some("all-reduce,fsdp,dist_sync"));
        assert!(!options.contains_key(EARLIER_STRATEGY));
    }

    #[test]
    fn record_round_trips() {
        let text = serde_json::to_string_pretty(&manifest()).expect("it serializes");
        assert_eq!(Manifest::read(text.as_bytes()).expect("sound"), manifest());
        assert!(manifest().is_finished("1n2g/rn50_b128_fp32_1.log".parse().expect("a name")));
        assert!(!manifest().is_finished("1n2g/rn50_b128_fp32_2.log".parse().expect("a name")));
    }

    #[test]
    fn out_of_memory_batch_decides_larger_batches() {
        let mut manifest = manifest();
        let memory = MemoryShortage { taken: Bytes(15), total: Bytes(16) };
        let name = |text: &str| -> RunName { text.parse().expect("a name") };
        manifest.run(name("1n1g/rn50_b64_fp32_2.log")).state = RunState::OutOfMemory { memory };
        let shortage = |text: &str| manifest.shortage(name(text)).map(|(batch, _)| batch.size.number());
        for settled in ["1n1g/rn50_b64_fp32_1.log", "1n1g/rn50_b64_fp32_2.log", "1n1g/rn50_b65_fp32_9.log"] {
            assert_eq!(shortage(settled), Some(64), "{settled}");
        }
        for open in [
            "1n1g/rn50_b63_fp32_1.log",
            "1n2g/rn50_b64_fp32_1.log",
            "1n1g/rn50_b64_bf16_1.log",
            "1n1g/vgg11_b64_fp32_1.log",
            "no-communication/1n1g/rn50_b64_fp32_1.log",
        ] {
            assert_eq!(shortage(open), None, "{open}");
        }
        let text = serde_json::to_string(&manifest).expect("it serializes");
        assert!(text.contains(r#""state":"out-of-memory","memory":{"taken":15,"total":16}"#), "{text}");
        assert_eq!(Manifest::read(text.as_bytes()).expect("sound"), manifest);
    }

    #[test]
    fn damage_is_reported_with_its_position() {
        let whole = serde_json::to_string_pretty(&manifest()).expect("it serializes");
        let line = 1 + whole.lines().position(|line| line.contains("fp32_2.log")).expect("it is there");
        let damaged = |text: &str| {
            let error = error(text);
            assert!(error.starts_with("the manifest is damaged: "), "{error}");
            error
        };
        let error_of_name = damaged(&whole.replace("fp32_2.log", "fp99_2.log"));
        assert!(error_of_name.contains(&format!("at line {line}")), "{error_of_name}");
        let errors = [
            damaged(""),
            damaged(&whole[..whole.len() / 2]),
            error_of_name,
            damaged(&whole.replace("\"planned\"", "\"plan\"")),
            damaged(&whole.replace("\"hosts\"", "\"guests\"")),
            damaged(&whole.replace("fp32_2.log", "fp32_1.log")),
            error(&whole.replace("\"schema\": 2", "\"schema\": 9")),
            error(&whole.replace(KIND, "other")),
        ];
        expect![[r#"
            the manifest is damaged: EOF while parsing a value at line 1 column 0
            the manifest is damaged: EOF while parsing a string at line 27 column 6
            the manifest is damaged: "1n2g/rn50_b128_fp99_2.log" is not the log of a run, such as 1n1g/rn50_b128_fp32_1.log at line 35 column 40
            the manifest is damaged: unknown variant `plan`, expected one of `planned`, `running`, `finished`, `failed`, `out-of-memory` at line 47 column 5
            the manifest is damaged: missing field `hosts` at line 24 column 3
            the manifest is damaged: 1n2g/rn50_b128_fp32_1.log occurs twice
            manifest format 9 is not readable by this ringmark (up to 2): use the ringmark that wrote it
            expected a manifest of kind "ringmark-sweep", found "other""#]].assert_eq(&errors.join("\n"));
    }

    #[test]
    fn changed_conditions_are_named_with_both_values() {
        let then = manifest().conditions;
        assert_eq!(then.mismatches(&then), []);
        let now = Conditions {
            hosts: vec!["a".to_owned(), "c".to_owned()],
            options: map(&[("--batch-size", "64"), ("--dtype", "fp32"), ("--interface", "ib0")]),
            variables: BTreeMap::new(),
            programs: map(&[("ringmark", "0.2.0")]),
        };
        assert_eq!(
            lines(&then.mismatches(&now)),
            [
                "host 2: b then, c now",
                "--batch-size: 128 then, 64 now",
                "--interface: not set then, ib0 now",
                "NCCL_ALGO: Ring then, not set now",
                "ringmark: 0.1.0 then, 0.2.0 now",
            ]
        );
    }

    #[test]
    fn host_count_is_not_a_mismatch() {
        let then = manifest().conditions;
        for hosts in [&["a"][..], &["a", "b", "c"]] {
            let now = Conditions { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..then.clone() };
            assert_eq!(then.mismatches(&now), []);
        }
    }

    /// Returns the hosts and software of a record whose ranks ran on these hosts and devices.
    fn ran_on(places: &[(&str, &str)]) -> ObservedEnvironment {
        let place = |(rank, (host, device)): (u32, &(&str, &str))| RankPlace {
            device: DeviceKind::Cuda,
            device_name: (*device).to_owned(),
            ..RankPlace::on_cpu(rank, 0, host)
        };
        let environment = Environment { libtorch_version: "2.11.0".to_owned(), ..Environment::default() };
        let ranks: Vec<RankPlace> = (0..).zip(places).map(place).collect();
        ObservedEnvironment::from_record(&environment, &ranks)
    }

    #[test]
    fn devices_of_common_ranks_are_compared() {
        let mut known = ObservedEnvironment::default();
        for more in [&[("a", "H100")][..], &[("a", "H100"), ("a", "H100")], &[("a", "H100"), ("b", "H100")]] {
            assert_eq!(known.mismatches(&ran_on(more)), []);
            known.add(ran_on(more));
        }
        let devices: Vec<usize> = known.hosts.iter().map(|host| host.devices.len()).collect();
        assert_eq!(devices, [2, 1]);
        let other = ran_on(&[("a", "H100"), ("a", "A100"), ("c", "H100")]);
        assert_eq!(
            lines(&known.mismatches(&other)),
            ["device 1 of a: H100 then, A100 now", "name of host 2: b then, c now"]
        );
        let kinds: Vec<_> = known.mismatches(&other).iter().map(|mismatch| mismatch.kind).collect();
        assert_eq!(kinds, [MismatchKind::Other, MismatchKind::HostName]);
    }

    #[test]
    fn software_is_compared_if_both_runs_name_it() {
        let known = ran_on(&[]);
        assert_eq!(known.software, map(&[("libtorch", "2.11.0")]));
        let now =
            ObservedEnvironment { software: map(&[("NCCL", "2.28.9"), ("libtorch", "2.12.0")]), hosts: Vec::new() };
        assert_eq!(lines(&known.mismatches(&now)), ["libtorch: 2.11.0 then, 2.12.0 now"]);
    }
}

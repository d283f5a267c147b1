//! The verdict on each host, GPU and link, as `accept.json` contains it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accept::fleet::{JobTime, Measurement, Metric, Stage};
use crate::dimension::Seconds;
use crate::keyword_enum;
use crate::number_text::count;
use crate::stats::summary::median;

/// Name of the file.
pub const VERDICT: &str = "accept.json";

/// Version of this file format.
pub const SCHEMA: u32 = 1;

/// Kind of file, in its first field.
pub const KIND: &str = "ringmark-accept";

keyword_enum!(
    /// Fitness of a host, GPU or link.
    Fitness {
        /// All tests passed.
        Fit = "fit",
        /// No test could be run or decided, because too few measurements exist.
        NotTested = "not-tested",
        /// Slower than the others in some measurements, and undecided after the permitted repeats.
        Suspect = "suspect",
        /// Defective.
        Unfit = "unfit",
    }
);

keyword_enum!(
    /// Cause of a verdict.
    Cause {
        /// A finding of the examination.
        Facts = "facts",
        /// Jobs with the host fail.
        Failure = "failure",
        /// One GPU is slow.
        Gpu = "gpu",
        /// All GPUs of the host are slow, or the host itself.
        Host = "host",
        /// Slow with every partner.
        Network = "network",
        /// Slow with one partner.
        Link = "link",
        /// Slow at times.
        Intermittent = "intermittent",
        /// Several unfit hosts or links share a switch, and hardly a healthy one does.
        Switch = "switch",
        /// Slower at the end of the soak than at its beginning.
        Drift = "drift",
        /// Computes other gradients or weights than the other hosts, or than in another run.
        Corruption = "corruption",
        /// Below a minimum value.
        Minimum = "minimum",
        /// Below the value of the reference.
        Reference = "reference",
    }
);

/// Subject of a verdict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Index of a host.
    Host(usize),
    /// Host and index of the GPU on it.
    Gpu(usize, u32),
    /// Two hosts.
    Link(usize, usize),
    /// Name of a switch.
    Switch(String),
    /// The whole fleet.
    Fleet,
}

impl Verdict {
    /// Returns the fit hosts that no unfit link connects, and the other fit hosts, each with one of its unfit links. Hosts
    /// with the most unfit links are left out first; of these, the slowest one.
    pub fn usable_together(&self) -> (Vec<usize>, Vec<(usize, &Judged)>) {
        let has_unfit_gpu = |host: usize| {
            let mut unfit = self.gpus.iter().filter(|gpu| gpu.fitness == Fitness::Unfit);
            unfit.any(|gpu| matches!(gpu.subject, Subject::Gpu(of, _) if of == host))
        };
        let fit = self.hosts.iter().filter(|host| host.fitness == Fitness::Fit).filter_map(|host| host.subject.host());
        let mut usable: Vec<usize> = fit.filter(|host| !has_unfit_gpu(*host)).collect();
        let mut left_out = Vec::new();
        // Links between hosts that are still usable.
        let mut links: Vec<(usize, usize, &Judged)> = Vec::new();
        for link in self.links.iter().filter(|link| link.fitness == Fitness::Unfit) {
            if let Subject::Link(one, other) = link.subject {
                links.extend((usable.contains(&one) && usable.contains(&other)).then_some((one, other, link)));
            }
        }
        while !links.is_empty() {
            let is_of = |host: usize| move |(one, other, _): &&(usize, usize, &Judged)| [*one, *other].contains(&host);
            let count = |host: &usize| links.iter().filter(is_of(*host)).count();
            let share = |host: &usize| self.lowest_shares.get(*host).copied().flatten().unwrap_or(1.0);
            // Of equal hosts the last one.
            let worst = usable
                .iter()
                .copied()
                .max_by(|one, other| count(one).cmp(&count(other)).then(share(other).total_cmp(&share(one))));
            let Some((host, (.., link))) = worst.and_then(|host| Some((host, *links.iter().find(is_of(host))?))) else {
                break;
            };
            left_out.push((host, link));
            usable.retain(|other| *other != host);
            links.retain(|link| !is_of(host)(&link));
        }
        (usable, left_out)
    }
}

impl Subject {
    /// Returns the host, unless it is something else.
    pub fn host(&self) -> Option<usize> {
        match self {
            Subject::Host(host) => Some(*host),
            _ => None,
        }
    }
}

/// Measurements that support a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Stage of the measurements.
    pub stage: Stage,
    /// Measured quantity; `null` for findings and failures.
    pub metric: Option<Metric>,
    /// Values, in the order in which they were measured.
    pub values: Vec<f64>,
    /// Value of the others.
    pub typical: Option<f64>,
    /// Upper limit of the probability of these values for a subject without a defect.
    pub chance: Option<f64>,
    /// One sentence.
    pub text: String,
}

impl Evidence {
    /// Returns the median of the values.
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// Evidence without values.
    pub fn of_text(stage: Stage, text: String) -> Evidence {
        Evidence { stage, metric: None, values: Vec::new(), typical: None, chance: None, text }
    }

    /// Evidence of failed jobs, with the reason of the first.
    pub fn of_failure(stage: Stage, reason: &str, failures: usize) -> Evidence {
        Evidence::of_text(stage, format!("{} failed: {reason}", count(failures, "job")))
    }
}

/// Verdict on one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// Judged part of the fleet.
    pub subject: Subject,
    /// Its name in messages.
    pub name: String,
    /// Result of its tests.
    pub fitness: Fitness,
    /// Cause, unless it is fit or not tested.
    pub cause: Option<Cause>,
    /// Measurements that support the verdict, the most important first.
    pub evidence: Vec<Evidence>,
    /// Action that removes the defect.
    pub cure: Option<String>,
}

/// Rounds, jobs and time of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageUse {
    /// Stage of the rounds.
    pub stage: Stage,
    /// Number of rounds.
    pub rounds: u32,
    /// Number of jobs, including failed ones.
    pub jobs: u32,
    /// Sum over its rounds, each from the start of its first job to the end of its last; `null` if a job has no time, as
    /// in older journals.
    #[serde(rename = "time_seconds")]
    pub time: Option<Seconds>,
}

impl StageUse {
    /// Returns the stages of these measurements, in order.
    pub fn from_measurements(done: &[Measurement]) -> Vec<StageUse> {
        let mut rounds: BTreeMap<(Stage, u32), Vec<&Measurement>> = BTreeMap::new();
        for done in done {
            rounds.entry((done.stage, done.round)).or_default().push(done);
        }
        let mut stages: Vec<StageUse> = Vec::new();
        for ((stage, _), jobs) in rounds {
            let times: Option<Vec<JobTime>> = jobs.iter().map(|done| done.time).collect();
            let end = |times: &[JobTime]| times.iter().map(|time| time.end.0).fold(f64::MIN, f64::max);
            let start = |times: &[JobTime]| times.iter().map(|time| time.start.0).fold(f64::MAX, f64::min);
            let time = times.map(|times| Seconds(end(&times) - start(&times)));
            let round = StageUse { stage, rounds: 1, jobs: jobs.len() as u32, time };
            match stages.last_mut().filter(|last| last.stage == stage) {
                Some(last) => {
                    (last.rounds, last.jobs) = (last.rounds + 1, last.jobs + round.jobs);
                    last.time = last.time.zip(round.time).map(|(before, more)| Seconds(before.0 + more.0));
                }
                None => stages.push(round),
            }
        }
        stages
    }

    /// Returns the time in minutes with one decimal, if known.
    pub fn minutes(&self) -> Option<String> {
        self.time.map(|time| format!("{:.1}", time.0 / 60.0))
    }
}

/// Finding that does not make a host unfit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Indices of the hosts with it.
    pub hosts: Vec<usize>,
    /// Their names as a compact list: `node[01-16]`.
    pub names: String,
    /// Description.
    pub what: String,
    /// Action that removes the problem.
    pub fix: String,
}

/// Change of a host from the first to the last third of its training jobs in the soak.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Index of the host.
    pub host: usize,
    /// Name of the host.
    pub name: String,
    /// Number of its measurements.
    pub measurements: u32,
    /// Change of the training speed, as a share: -0.05 is 5 % slower.
    pub speed: f64,
    /// Lower end of the 95 % confidence interval of this change.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Change of the mean clock; `null` without readings.
    #[serde(rename = "clock_mhz")]
    pub clock: Option<f64>,
    /// Change of the highest temperature; `null` without readings.
    #[serde(rename = "temperature_celsius")]
    pub temperature: Option<f64>,
    /// Memory errors of the GPUs in all these jobs; `null` without readings.
    pub memory_errors: Option<u64>,
    /// True if the host is suspect for its drift.
    pub is_defect: bool,
}

/// Verdict on a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// Always `ringmark-accept`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// Fitness of the fleet: that of its worst part.
    pub fitness: Fitness,
    /// Every host, in the order of the fleet.
    pub hosts: Vec<Judged>,
    /// GPUs that are not fit.
    pub gpus: Vec<Judged>,
    /// Links that are not fit.
    pub links: Vec<Judged>,
    /// Switches that several unfit hosts or links share.
    pub switches: Vec<Judged>,
    /// Statements about the whole fleet: values below a minimum or a reference.
    pub fleet: Vec<Judged>,
    /// Number of rounds that were run.
    pub rounds: u32,
    /// Stages with jobs, in order; empty in older files.
    #[serde(default)]
    pub stages: Vec<StageUse>,
    /// Findings that do not make a host unfit; empty in older files.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// Change of each host during the soak; empty without one, with too few measurements, and in older files.
    #[serde(default)]
    pub drift: Vec<Drift>,
    /// Stages that were requested and are not complete.
    pub unfinished: Vec<Stage>,
    /// Smallest loss of speed of a single host that these measurements find, as a share; `null` without a comparison.
    pub smallest_defect: Option<f64>,
    /// Lowest median of each host alone and over its pairs, as a share of that of all hosts with its hardware: the slower
    /// end of an unfit link is left out. `null` without a measurement; empty in older files.
    #[serde(default)]
    pub lowest_shares: Vec<Option<f64>>,
}

//! Measurements by job.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::accept::fleet::{Job, Measurement, Metric, Outcome, Reading, Stage, Test};
use crate::options::keyword_enum::KeywordEnum;

/// Failures of a job, or of jobs that name a host, from which it counts as failing. Once may be an accident.
pub const FAILURES: usize = 2;

/// Hash of a job: its numbers are small and not chosen by an attacker, and every evaluation hashes all jobs.
#[derive(Default)]
struct JobHasher(u64);

impl Hasher for JobHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(size_of::<u64>()) {
            let mut number = [0; size_of::<u64>()];
            number[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

/// Measurements by job, in the order in which they were done.
pub struct Log<'a> {
    by_job: HashMap<(Test, &'a [usize]), Vec<Entry<'a>>, BuildHasherDefault<JobHasher>>,
    named: HashMap<(Stage, usize), Vec<&'a str>>,
}

/// Values of a whole job, by metric.
type JobValues = [Option<f64>; Metric::ALL.len()];

/// One measurement.
struct Entry<'a> {
    done: &'a Measurement,
    /// Found once, because jobs on many hosts have thousands of readings.
    values: JobValues,
}

/// Measurements of one job in some stages.
#[derive(Debug, Default)]
pub struct Attempts<'a> {
    /// Readings of those that ended as they should.
    pub measured: Vec<&'a [Reading]>,
    /// Values of the same measurements.
    values: Vec<JobValues>,
    /// Reasons of failures that name no host.
    pub failures: Vec<&'a str>,
    /// Hosts that failures name, with the reason.
    pub named: Vec<(usize, &'a str)>,
}

impl<'a> Log<'a> {
    /// Sorts the measurements.
    pub fn new(done: impl Iterator<Item = &'a Measurement>) -> Log<'a> {
        let mut log = Log { by_job: HashMap::default(), named: HashMap::new() };
        for done in done {
            log.by_job.entry((done.job.test, &done.job.hosts)).or_default().push(Entry::new(done));
            if let Outcome::Failed { host: Some(host), reason } = &done.outcome {
                log.named.entry((done.stage, *host)).or_default().push(reason);
            }
        }
        log
    }

    /// Returns the measurements of a job in a stage.
    pub fn measurements(&self, stage: Stage, job: &Job) -> Vec<&'a Measurement> {
        let all = self.by_job.get(&(job.test, &job.hosts[..])).into_iter().flatten();
        all.map(|entry| entry.done).filter(|done| done.stage == stage).collect()
    }

    /// Returns the results of a job in these stages.
    pub fn attempts(&self, stages: &[Stage], job: &Job) -> Attempts<'a> {
        let mut attempts = Attempts::default();
        for Entry { done, values } in self.by_job.get(&(job.test, &job.hosts[..])).into_iter().flatten() {
            match &done.outcome {
                _ if !stages.contains(&done.stage) => {}
                Outcome::Measured(readings) => {
                    attempts.measured.push(readings);
                    attempts.values.push(*values);
                }
                // A job on one host can only fail on that host.
                Outcome::Failed { host, reason } => match host.or((job.hosts.len() == 1).then(|| job.hosts[0])) {
                    Some(host) => attempts.named.push((host, reason)),
                    None => attempts.failures.push(reason),
                },
            }
        }
        attempts
    }

    /// Returns the reasons of the failures in a stage that name this host.
    pub fn failures_of(&self, stage: Stage, host: usize) -> &[&'a str] {
        self.named.get(&(stage, host)).map_or(&[], Vec::as_slice)
    }
}

impl Attempts<'_> {
    /// Returns the number of measurements.
    pub fn len(&self) -> usize {
        self.measured.len() + self.failures.len() + self.named.len()
    }

    /// Returns the logarithms of the job's own values of a metric; `ranks` is the number of ranks in the job. A speed of
    /// training is that of one rank, so that jobs of different sizes can be compared.
    pub fn values(&self, metric: Metric, ranks: u32) -> Vec<f64> {
        let share = if metric == Metric::TrainingSpeed { f64::from(ranks) } else { 1.0 };
        self.values.iter().filter_map(|values| Some((values[metric as usize]? / share).ln())).collect()
    }

    /// Returns the metrics of the job's own values.
    pub fn metrics(&self) -> Vec<Metric> {
        let has = |metric: &Metric| self.values.iter().any(|values| values[*metric as usize].is_some());
        Metric::ALL.iter().copied().filter(has).collect()
    }
}

impl<'a> Entry<'a> {
    fn new(done: &'a Measurement) -> Entry<'a> {
        let mut values = JobValues::default();
        if let Outcome::Measured(readings) = &done.outcome {
            for reading in readings.iter().filter(|reading| reading.rank.is_none()) {
                values[reading.metric as usize].get_or_insert(reading.value);
            }
        }
        Entry { done, values }
    }
}

/// Returns the jobs that can run at once, in order: each takes hosts that no earlier one takes.
pub fn disjoint(jobs: Vec<Job>, hosts: usize) -> Vec<Job> {
    let mut is_busy = vec![false; hosts];
    let mut taken = Vec::new();
    for job in jobs {
        if job.hosts.iter().all(|host| !is_busy[*host]) {
            job.hosts.iter().for_each(|host| is_busy[*host] = true);
            taken.push(job);
        }
    }
    taken
}

//! Simulated fleets with known defects, for tests, the benchmark of the search, and a table of rates.
//!
//! The speed of a GPU is `base x exp(spread x normal(GPU) + noise x normal(job))`; a job is as slow as its slowest rank,
//! and loses 3 % more for each doubling of its hosts. The bandwidth of a job is that of its slowest host or link. A job
//! with a defective network also trains slower: half of the step is exchange.

use crate::accept::fleet::{
    FleetHost, Job, JobFingerprints, JobTime, Measurement, Metric, Outcome, Reading, Round, Stage, Test,
};
use crate::accept::search::Search;
use crate::accept::verdict::Verdict;
use crate::benchmark::train::{Fingerprints, RankFingerprints};
use crate::dimension::Seconds;
use crate::stats::random::Random;

/// Seconds of each round.
const ROUND: f64 = 6.0;

/// A defect of a simulated fleet. A factor below 1 multiplies the speed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub enum Defect {
    /// The host fails in each job from this stage on; the failure names it if `is_named`.
    Dead { host: usize, from: Stage, is_named: bool },
    /// One GPU is slow.
    SlowGpu { host: usize, rank: u32, factor: f64 },
    /// All GPUs of a host are slow.
    SlowHost { host: usize, factor: f64 },
    /// The host's network is slow with every partner.
    SlowNetwork { host: usize, factor: f64 },
    /// Jobs that contain both hosts are slow.
    BadLink { hosts: [usize; 2], factor: f64 },
    /// Jobs that contain both hosts fail, and no host is named.
    BrokenLink { hosts: [usize; 2] },
    /// The host is slow in this share of its jobs.
    Intermittent { host: usize, share: f64, factor: f64 },
    /// The host loses this share of its speed in each round of the soak.
    Drift { host: usize, share: f64 },
    /// The host reads from its disk slowly.
    SlowDisk { host: usize, factor: f64 },
    /// The host computes other gradients in each training job from this stage on.
    Corrupt { host: usize, from: Stage },
}

/// A fleet to measure.
#[derive(Debug, Clone)]
pub struct SimulatedFleet {
    /// Hosts. The hardware `H200` is twice as fast as any other.
    pub hosts: Vec<FleetHost>,
    /// Standard deviation between healthy GPUs and networks.
    pub spread: f64,
    /// Standard deviation of repeats.
    pub noise: f64,
    /// Share of jobs that are 20 % slower by accident.
    pub accidents: f64,
    /// Known defects.
    pub defects: Vec<Defect>,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl SimulatedFleet {
    /// Creates a fleet of equal hosts with 8 GPUs, 16 hosts on each switch, a spread of 0.5 % and a noise of 1 %.
    pub fn new(hosts: usize, seed: u64) -> SimulatedFleet {
        let host = |index: usize| FleetHost {
            name: format!("n{:04}", index + 1),
            ranks: 8,
            hardware: "H100".to_owned(),
            switch: Some(format!("leaf{:02}", index / 16 + 1)),
        };
        SimulatedFleet {
            hosts: (0..hosts).map(host).collect(),
            spread: 0.005,
            noise: 0.01,
            accidents: 0.0,
            defects: Vec::new(),
            seed,
        }
    }

    /// Runs the search to its end; returns the verdict and the measurements.
    pub fn accept(&self, search: &Search) -> (Verdict, Vec<Measurement>) {
        let (mut done, mut number) = (Vec::new(), 0);
        while let Some(round) = search.next(&[], &done) {
            number += 1;
            done.extend(self.run(&round, number));
        }
        (search.verdict(&[], &done), done)
    }

    /// Measures the jobs of a round.
    pub fn run(&self, round: &Round, number: u32) -> Vec<Measurement> {
        let measured = |job: &Job| Measurement {
            stage: round.stage,
            round: number,
            outcome: self.outcome(round.stage, number, job),
            job: job.clone(),
            fingerprints: self.fingerprints(round.stage, job),
            time: Some(JobTime {
                start: Seconds(ROUND * f64::from(number - 1)),
                end: Seconds(ROUND * f64::from(number)),
            }),
            state: None,
        };
        round.jobs.iter().map(measured).collect()
    }

    fn outcome(&self, stage: Stage, number: u32, job: &Job) -> Outcome {
        let mut random = self.random(2, u64::from(number) << 32 | job.hosts[0] as u64);
        let (mut network, mut accident) = (1.0, if random.uniform() < self.accidents { 0.8 } else { 1.0 });
        let has = |host: &usize| job.hosts.contains(host);
        for defect in &self.defects {
            match defect {
                Defect::Dead { host, from, is_named } if has(host) && stage >= *from => {
                    return Outcome::Failed { host: is_named.then_some(*host), reason: "no answer".to_owned() };
                }
                Defect::BrokenLink { hosts } if hosts.iter().all(has) => {
                    return Outcome::Failed { host: None, reason: "timeout".to_owned() };
                }
                Defect::BadLink { hosts, factor } if hosts.iter().all(has) => network = f64::min(network, *factor),
                Defect::SlowNetwork { host, factor } if has(host) && job.hosts.len() > 1 => {
                    network = f64::min(network, *factor)
                }
                Defect::Intermittent { host, share, factor } if has(host) && random.uniform() < *share => {
                    accident *= factor;
                }
                Defect::Drift { host, share } if has(host) && stage == Stage::Soak => {
                    accident *= (1.0 - share).powi(number as i32);
                }
                _ => {}
            }
        }
        let doublings = (job.hosts.len() as f64).log2();
        match job.test {
            Test::Training => {
                self.training(&mut random, job, accident, (1.0 - 0.03 * doublings) * f64::midpoint(1.0, network))
            }
            Test::Input => {
                let own = job.hosts.iter().map(|host| self.spread * self.random(3, *host as u64).normal());
                let own = own.fold(f64::INFINITY, f64::min);
                let slow = self.defects.iter().filter_map(|defect| match defect {
                    Defect::SlowDisk { host, factor } if has(host) => Some(*factor),
                    _ => None,
                });
                let disk = slow.fold(1.0, f64::min);
                let reading = |(metric, base): (Metric, f64)| {
                    let value = base * accident * (own + self.noise * random.normal()).exp();
                    Reading { metric, value, rank: None }
                };
                Outcome::Measured(Metric::INPUTS.into_iter().zip([9000.0, 7000.0 * disk]).map(reading).collect())
            }
            Test::Exchange => {
                let own = |host: &usize| self.spread * self.random(1, *host as u64).normal();
                let slowest = job.hosts.iter().map(own).fold(f64::INFINITY, f64::min);
                let network = if job.hosts.len() > 1 { network * (1.0 - 0.01 * doublings) } else { 4.0 };
                let reading = |(metric, base): (Metric, f64)| {
                    let value = base * network * accident * (slowest + self.noise * random.normal()).exp();
                    Reading { metric, value, rank: None }
                };
                Outcome::Measured(Metric::BANDWIDTHS.into_iter().zip([2.0, 30.0, 90.0]).map(reading).collect())
            }
        }
    }

    fn training(&self, random: &mut Random, job: &Job, accident: f64, share: f64) -> Outcome {
        let (mut readings, mut slowest, mut rank) = (Vec::new(), f64::INFINITY, 0);
        for host in &job.hosts {
            let mut own = self.random(0, *host as u64);
            let base = if self.hosts[*host].hardware == "H200" { 2.0 } else { 1.0 };
            for gpu in 0..self.hosts[*host].ranks {
                let defects = self.defects.iter().map(|defect| match defect {
                    Defect::SlowGpu { host: of, rank, factor } if of == host && *rank == gpu => *factor,
                    Defect::SlowHost { host: of, factor } if of == host => *factor,
                    _ => 1.0,
                });
                let speed = base * defects.product::<f64>() * accident * (self.spread * own.normal()).exp();
                let rates =
                    [(Metric::MatrixRate, 600.0), (Metric::MemoryRate, 2500.0), (Metric::TrainingSpeed, 2000.0)];
                for (metric, scale) in rates {
                    let value = scale * speed * (self.noise * random.normal()).exp();
                    readings.push(Reading { metric, value, rank: Some(rank) });
                }
                slowest = f64::min(slowest, speed);
                rank += 1;
            }
        }
        let value = 2000.0 * f64::from(rank) * slowest * share * (self.noise * random.normal()).exp();
        readings.push(Reading { metric: Metric::TrainingSpeed, value, rank: None });
        Outcome::Measured(readings)
    }

    /// Returns the fingerprints of a training job if the fleet has a host with wrong values.
    fn fingerprints(&self, stage: Stage, job: &Job) -> Option<JobFingerprints> {
        let corrupt = self.defects.iter().filter_map(|defect| match defect {
            Defect::Corrupt { host, from } => Some((*host, *from)),
            _ => None,
        });
        let corrupt: Vec<(usize, Stage)> = corrupt.collect();
        if corrupt.is_empty() || job.test != Test::Training {
            return None;
        }
        let ranks = job.hosts.iter().flat_map(|host| {
            let is_corrupt = corrupt.iter().any(|(of, from)| of == host && stage >= *from);
            let own = RankFingerprints { gradients: vec![1, u64::from(is_corrupt)], weights: vec![1, 2] };
            vec![own; self.hosts[*host].ranks as usize]
        });
        let values = Fingerprints::from_ranks(&ranks.collect::<Vec<RankFingerprints>>());
        Some(JobFingerprints { platform: "simulated".to_owned(), values })
    }

    fn random(&self, purpose: u64, index: u64) -> Random {
        // Skips one number, so that neighboring seeds give unrelated sequences.
        let mut random = Random(
            self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ purpose << 60 ^ index.wrapping_mul(0x9e6c_63d0_876a_68ef),
        );
        random.uniform();
        random
    }
}

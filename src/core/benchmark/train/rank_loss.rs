//! Injected losses of ranks, for tests of restarts and for `ringmark goodput`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::ensure;

use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;
use crate::stats::random::Random;

keyword_enum!(
    /// Kind of the loss of a rank.
    LossKind {
        /// The process is killed, as by a crash or the loss of its host.
        Kill = "kill",
        /// The process stops, as if its GPU or host hangs.
        Stop = "stop",
        /// All TCP connections of the process are closed, as by a broken network.
        Link = "link",
    }
);

/// A set of kinds, written as `kill+stop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossKinds(u8);

impl LossKinds {
    /// Returns the kinds in their declared order.
    pub fn all(self) -> Vec<LossKind> {
        LossKind::ALL.iter().copied().filter(|kind| self.0 & bit(*kind) != 0).collect()
    }
}

fn bit(kind: LossKind) -> u8 {
    1 << kind as u8
}

impl FromIterator<LossKind> for LossKinds {
    fn from_iter<T: IntoIterator<Item = LossKind>>(kinds: T) -> LossKinds {
        LossKinds(kinds.into_iter().fold(0, |bits, kind| bits | bit(kind)))
    }
}

impl fmt::Display for LossKinds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<&str> = self.all().into_iter().map(KeywordEnum::keyword).collect();
        formatter.write_str(&kinds.join("+"))
    }
}

impl FromStr for LossKinds {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<LossKinds> {
        text.split('+').map(LossKind::from_str).collect()
    }
}

/// Losses at random times, of random ranks and kinds. They depend on the seed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomLosses {
    /// Mean time between two losses of the whole job, in seconds, exponentially distributed.
    pub mtbf: u32,
    /// Seed of the times, ranks and kinds.
    pub seed: u32,
    /// Kinds, each with the same probability.
    pub kinds: LossKinds,
}

/// One loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Time from the start of the attempt.
    pub after: Duration,
    /// Rank that is lost.
    pub rank: u32,
    /// Kind of the loss.
    pub kind: LossKind,
}

impl RandomLosses {
    /// Returns the loss that ends an attempt of a run with `ranks` ranks, unless the run ends before. Attempts are counted
    /// from 0.
    pub fn of_attempt(self, attempt: u32, ranks: u32) -> Loss {
        let mut random = Random((u64::from(self.seed) << 32) | u64::from(attempt));
        // The first number of neighboring seeds is not independent of them.
        random.uniform();
        let seconds = -f64::from(self.mtbf) * random.uniform().ln();
        let kinds = self.kinds.all();
        Loss {
            after: Duration::from_secs_f64(seconds),
            rank: random.below(ranks as usize) as u32,
            kind: kinds[random.below(kinds.len())],
        }
    }
}

impl fmt::Display for RandomLosses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RandomLosses { mtbf, seed, kinds } = self;
        write!(formatter, "random:{mtbf}:{seed}:{kinds}")
    }
}

impl RandomLosses {
    /// Parses the text after `random:`.
    pub fn parse(text: &str) -> anyhow::Result<RandomLosses> {
        let parts: Vec<&str> = text.split(':').collect();
        let [mtbf, seed, kinds] = parts[..] else { anyhow::bail!("write random:MTBF:SEED:KINDS") };
        let losses = RandomLosses { mtbf: mtbf.parse()?, seed: seed.parse()?, kinds: kinds.parse()? };
        ensure!(losses.mtbf > 0, "an MTBF of 0 s is out of range: choose at least 1");
        Ok(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::summary::mean;

    #[test]
    fn losses_are_written_and_read() {
        let losses =
            RandomLosses { mtbf: 7200, seed: 3, kinds: [LossKind::Link, LossKind::Kill].into_iter().collect() };
        assert_eq!(losses.to_string(), "random:7200:3:kill+link");
        assert_eq!(RandomLosses::parse("7200:3:link+kill").expect("valid"), losses);
        for text in ["", "7200:3", "0:3:kill", "7200:3:kill+", "7200:3:crash", "7200:3:kill:1", "x:3:kill"] {
            assert!(RandomLosses::parse(text).is_err(), "{text}");
        }
    }

    /// Over 3000 attempts the mean has a standard error of 1.8 %, each third one of 2.6 %.
    #[test]
    fn losses_are_random() {
        let losses = RandomLosses { mtbf: 100, seed: 1, kinds: LossKind::ALL.iter().copied().collect() };
        let all: Vec<Loss> = (0..3000).map(|attempt| losses.of_attempt(attempt, 4)).collect();
        let times: Vec<f64> = all.iter().map(|loss| loss.after.as_secs_f64()).collect();
        assert!((mean(&times).expect("many") - 100.0).abs() < 8.0);
        let late = times.iter().filter(|time| **time > 100.0).count();
        assert!(late.abs_diff(1104) < 110, "{late} of 3000, not 3000 / e");
        for kind in LossKind::ALL {
            assert!(all.iter().filter(|loss| loss.kind == *kind).count().abs_diff(1000) < 110);
        }
        for rank in 0..4 {
            assert!(all.iter().filter(|loss| loss.rank == rank).count().abs_diff(750) < 100);
        }
        assert_eq!(losses.of_attempt(5, 4), all[5]);
        assert_ne!(RandomLosses { seed: 2, ..losses }.of_attempt(5, 4), all[5]);
    }
}

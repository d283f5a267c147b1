//! Division of an iteration's images among ranks of different speed: MXNet's `work_load_list`
//! (python/mxnet/executor_manager.py, `_split_input_slice`), by rank or by host.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::RankPlace;
use crate::number_text::without_trailing_zeros;
use crate::text_value;

/// Each rank's share of the batch. Plain numbers apply to ranks, `name=number` to hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum WorkLoad {
    /// Proportional to the speed of each rank, measured before the first iteration.
    Auto,
    /// One weight per rank, in rank order; a run with fewer ranks uses the first ones.
    Ranks(Vec<f64>),
    /// One weight per host, which applies to each of its ranks.
    Hosts(Vec<(String, f64)>),
}

/// Division of an iteration's images among the ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkDivision {
    /// Values that each rank's share is proportional to: the requested weights, or the images/s measured for `auto`.
    pub weights: Vec<f64>,
    /// Images per iteration of each rank.
    #[serde(rename = "images")]
    pub samples: Vec<u32>,
}

impl WorkLoad {
    /// Returns the weight of every rank; `None` if they are to be measured.
    pub fn weights(&self, ranks: &[RankPlace]) -> anyhow::Result<Option<Vec<f64>>> {
        match self {
            WorkLoad::Auto => Ok(None),
            WorkLoad::Ranks(weights) => {
                self.check_ranks(ranks.len())?;
                Ok(Some(weights[..ranks.len()].to_vec()))
            }
            WorkLoad::Hosts(hosts) => {
                let weight = |place: &RankPlace| {
                    let found = hosts.iter().find(|(name, _)| is_name_of(name, &place.host));
                    found.map(|(_, weight)| *weight).with_context(|| {
                        format!(
                            "--work-load {self} has no weight for host {host} (rank {rank}): add {host}=1",
                            host = place.host,
                            rank = place.rank
                        )
                    })
                };
                ranks.iter().map(weight).collect::<anyhow::Result<Vec<f64>>>().map(Some)
            }
        }
    }

    /// Refuses fewer weights than `ranks`, and weights that leave a rank without any of the `batch_size` images per
    /// rank. Weights of hosts are not checked: the hosts are not known here.
    pub fn check(&self, ranks: u32, batch_size: u32) -> anyhow::Result<()> {
        self.check_ranks(ranks as usize)?;
        match self {
            WorkLoad::Ranks(weights) => {
                WorkDivision::new(weights[..ranks as usize].to_vec(), batch_size, |rank| format!("rank {rank}"))
                    .map(drop)
            }
            WorkLoad::Auto | WorkLoad::Hosts(_) => Ok(()),
        }
    }

    fn check_ranks(&self, ranks: usize) -> anyhow::Result<()> {
        match self {
            WorkLoad::Ranks(weights) => ensure!(
                weights.len() >= ranks,
                "--work-load {self} has {} weights for {ranks} ranks: use one per rank (3,1), one per host (a=3,b=1), \
                 or auto",
                weights.len()
            ),
            WorkLoad::Auto | WorkLoad::Hosts(_) => {}
        }
        Ok(())
    }
}

/// Returns true if `typed` names `host`, with or without its domain.
fn is_name_of(typed: &str, host: &str) -> bool {
    typed == host || host.split('.').next() == Some(typed)
}

impl WorkDivision {
    /// Divides `batch_size` images per rank by `weights`. A rank without images is an error, whose message uses `name`.
    pub fn new(weights: Vec<f64>, batch_size: u32, name: impl Fn(usize) -> String) -> anyhow::Result<WorkDivision> {
        let joined = batch_size * weights.len() as u32;
        let samples = divide(&weights, joined);
        if let Some(rank) = samples.iter().position(|samples| *samples == 0) {
            bail!(
                "the weights {} leave {} none of the {joined} images ({batch_size} per rank): use a larger \
                 --batch-size, a larger weight in --work-load, or omit --work-load",
                joined_text(&weights),
                name(rank)
            );
        }
        Ok(WorkDivision { weights, samples })
    }

    /// Formats as `24, 8 images by rank (weights 3, 1)`.
    pub fn text(&self) -> String {
        format!("{} images by rank (weights {})", joined_text(&self.samples), joined_text(&self.weights))
    }
}

fn joined_text(values: &[impl fmt::Display]) -> String {
    values
        .iter()
        .map(|value| format!("{value:.4}"))
        .map(|text| without_trailing_zeros(&text).to_owned())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Divides images by MXNet's rule: `round(weight x images / sum of weights)`, half to even, in rank order. The last
/// rank gets the remainder; if the rounded parts exceed `samples`, the last ones are cut.
///
/// `divide([3, 1], 32) = [24, 8]`, `divide([1, 1, 1], 32) = [11, 11, 10]`, `divide([1, 2], 10) = [3, 7]`.
pub fn divide(weights: &[f64], samples: u32) -> Vec<u32> {
    let total: f64 = weights.iter().sum();
    let rounded = weights.iter().map(|weight| (weight * f64::from(samples) / total).round_ties_even() as u32);
    let mut left = samples;
    let mut parts: Vec<u32> = rounded
        .map(|part| {
            let part = part.min(left);
            left -= part;
            part
        })
        .collect();
    if let Some(last) = parts.last_mut() {
        *last += left;
    }
    parts
}

impl fmt::Display for WorkLoad {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match self {
            WorkLoad::Auto => vec!["auto".to_owned()],
            WorkLoad::Ranks(weights) => weights.iter().map(f64::to_string).collect(),
            WorkLoad::Hosts(hosts) => hosts.iter().map(|(host, weight)| format!("{host}={weight}")).collect(),
        };
        formatter.write_str(&list.join(","))
    }
}

impl FromStr for WorkLoad {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<WorkLoad> {
        if text == "auto" {
            return Ok(WorkLoad::Auto);
        }
        let weight = |text: &str| -> anyhow::Result<f64> {
            let weight = text.trim().parse::<f64>().ok().filter(|weight| weight.is_finite() && *weight > 0.0);
            weight.with_context(|| format!("{text:?} is not a weight: use numbers above 0"))
        };
        let parts: Vec<&str> = text.split(',').collect();
        if !text.contains('=') {
            return Ok(WorkLoad::Ranks(parts.into_iter().map(weight).collect::<anyhow::Result<Vec<f64>>>()?));
        }
        let mut hosts: Vec<(String, f64)> = Vec::new();
        for part in parts {
            let (host, number) = part.split_once('=').with_context(|| {
                format!("{part:?} is not HOST=WEIGHT: use weights per rank (3,1) or per host (a=3,b=1), not both")
            })?;
            let host = host.trim();
            ensure!(!host.is_empty(), "{part:?} has no host name");
            ensure!(hosts.iter().all(|(known, _)| known != host), "host {host} has two weights");
            hosts.push((host.to_owned(), weight(number)?));
        }
        Ok(WorkLoad::Hosts(hosts))
    }
}

text_value!(WorkLoad);

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::stats::random::Random;

    fn ranks(hosts: &[&str]) -> Vec<RankPlace> {
        (0..).zip(hosts).map(|(rank, host)| RankPlace::on_cpu(rank, 0, host)).collect()
    }

    fn parse(text: &str) -> WorkLoad {
        text.parse().expect("a work load")
    }

    /// MXNet's own numbers. Halves are rounded to even: 2.5 becomes 2 and 3.5 becomes 4.
    #[test]
    fn batch_is_divided_as_in_mxnet() {
        assert_eq!(divide(&[3.0, 1.0], 32), [24, 8]);
        assert_eq!(divide(&[1.0, 1.0, 1.0], 32), [11, 11, 10]);
        assert_eq!(divide(&[1.0, 2.0], 10), [3, 7]);
        assert_eq!(divide(&[1.0, 3.0], 10), [2, 8]);
        assert_eq!(divide(&[7.0, 13.0], 10), [4, 6]);
        assert_eq!(divide(&[1.0, 1.0, 1.0, 1.0], 6), [2, 2, 2, 0], "1.5 is 2, and the last is cut");
        assert_eq!(divide(&[1.0, 1.0, 1.0], 4), [1, 1, 2], "the last has what is left");
        assert_eq!(divide(&[5.0], 7), [7]);
        assert_eq!(divide(&[], 0), [0_u32; 0]);
    }

    #[test]
    fn every_image_has_one_rank() {
        let mut random = Random(7);
        for _ in 0..10_000 {
            let weights: Vec<f64> =
                (0..1 + (random.uniform() * 40.0) as usize).map(|_| 10f64.powf(6.0 * random.uniform() - 3.0)).collect();
            let samples = (random.uniform() * 5000.0) as u32;
            let parts = divide(&weights, samples);
            assert_eq!((parts.len(), parts.iter().sum::<u32>()), (weights.len(), samples), "{weights:?}");
        }
    }

    #[test]
    fn weights_are_per_rank_or_per_host() {
        let places = ranks(&["a", "a", "b.cluster"]);
        assert_eq!(parse("3,1,2").weights(&places).expect("enough"), Some(vec![3.0, 1.0, 2.0]));
        assert_eq!(parse("b=1,a=3").weights(&places).expect("both"), Some(vec![3.0, 3.0, 1.0]));
        assert_eq!(parse("a=3,b.cluster=0.5").weights(&places).expect("both"), Some(vec![3.0, 3.0, 0.5]));
        assert_eq!(parse("auto").weights(&places).expect("measured"), None);
        // The smaller cases of a sweep use the first weights.
        assert_eq!(parse("3,1,2,9").weights(&places[..1]).expect("enough"), Some(vec![3.0]));
        let refusal = |text: &str| parse(text).weights(&places).expect_err("refused").to_string();
        assert!(refusal("3,1").contains("has 2 weights for 3 ranks"), "{}", refusal("3,1"));
        let message = "--work-load a=3 has no weight for host b.cluster (rank 2): add b.cluster=1";
        assert_eq!(refusal("a=3"), message);
        for text in ["3,1", "a=3,b=0.5", "auto"] {
            assert_eq!(parse(text).to_string(), text);
        }
        let texts = ["", "3,,1", "3,0", "3,-1", "NaN", "inf,1", "a=3,1", "=3", "a=3,a=1", "a=x"];
        let errors = texts.map(|text| text.parse::<WorkLoad>().expect_err(text).to_string());
        expect![[r#"
            "" is not a weight: use numbers above 0
            "" is not a weight: use numbers above 0
            "0" is not a weight: use numbers above 0
            "-1" is not a weight: use numbers above 0
            "NaN" is not a weight: use numbers above 0
            "inf" is not a weight: use numbers above 0
            "1" is not HOST=WEIGHT: use weights per rank (3,1) or per host (a=3,b=1), not both
            "=3" has no host name
            host a has two weights
            "x" is not a weight: use numbers above 0"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn rank_without_images_is_rejected_by_name() {
        let error = parse("100,1").check(2, 4).expect_err("refused").to_string();
        let expected = "the weights 100, 1 leave rank 1 none of the 8 images (4 per rank): use a larger --batch-size, \
                        a larger weight in --work-load, or omit --work-load";
        assert_eq!(error, expected);
        parse("100,1").check(1, 4).expect("one rank has all of it");
        parse("100,1").check(2, 100).expect("2 of 200");
        assert!(parse("3,1").check(4, 4).is_err());
        parse("auto").check(4, 4).expect("nothing is known yet");
        let division = WorkDivision::new(vec![3.0, 1.0], 16, |rank| rank.to_string()).expect("an image each");
        assert_eq!(division.text(), "24, 8 images by rank (weights 3, 1)");
        let measured = WorkDivision { weights: vec![30.123_456, 10.0], ..division };
        assert_eq!(measured.text(), "24, 8 images by rank (weights 30.1235, 10)");
    }
}

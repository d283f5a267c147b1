//! Fingerprints of gradients and weights, and their comparison between the ranks of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;
use crate::stats::counts::majority;

keyword_enum!(
    /// Values of a fingerprint.
    FingerprintedValues {
        /// Gradients of a rank, before the exchange.
        Gradients = "gradients",
        /// Weights of a rank, after the update.
        Weights = "weights",
    }
);

/// Fingerprints of one rank, an entry for each iteration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RankFingerprints {
    /// Fingerprints of [`FingerprintedValues::Gradients`].
    pub gradients: Vec<u64>,
    /// Fingerprints of [`FingerprintedValues::Weights`].
    pub weights: Vec<u64>,
}

/// Fingerprints of a run with `--fingerprint`: those of most ranks, or of rank 0 if no value has a majority.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprints {
    /// Fingerprint of the gradients before the exchange in each iteration, hexadecimal.
    pub gradients: Vec<String>,
    /// Fingerprint of the weights after the update in each iteration, hexadecimal.
    pub weights: Vec<String>,
    /// First difference between ranks; `None` if all are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<RankDifference>,
}

/// First difference between the fingerprints of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankDifference {
    /// Values that differ.
    pub values: FingerprintedValues,
    /// Iteration, from 1.
    pub iteration: u32,
    /// Ranks that differ from the majority; every rank if no value has a majority.
    pub ranks: Vec<u32>,
}

impl Fingerprints {
    /// Compares the fingerprints of all ranks, which have the same number of iterations.
    pub fn from_ranks(ranks: &[RankFingerprints]) -> Fingerprints {
        let Some(first) = ranks.first() else { return Fingerprints::default() };
        let (mut reference, mut difference) = (first, None);
        for (index, values) in places(first.gradients.len()) {
            let all: Vec<u64> = ranks.iter().map(|rank| rank.of(values)[index]).collect();
            if all.iter().all(|value| *value == all[0]) {
                continue;
            }
            let most = majority(&all);
            let differs = |(_, value): &(u32, &u64)| most != Some(*value);
            let ranks_that_differ = (0..).zip(&all).filter(differs).map(|(rank, _)| rank).collect();
            reference = all.iter().position(|value| Some(value) == most).map_or(first, |rank| &ranks[rank]);
            difference = Some(RankDifference { values, iteration: index as u32 + 1, ranks: ranks_that_differ });
            break;
        }
        let hexadecimal = |values: &[u64]| values.iter().map(|value| format!("{value:016x}")).collect();
        Fingerprints {
            gradients: hexadecimal(&reference.gradients),
            weights: hexadecimal(&reference.weights),
            difference,
        }
    }

    /// Returns the first values that differ from those of another run, with their iteration, from 1. A missing iteration
    /// is a difference.
    pub fn first_difference(&self, other: &Fingerprints) -> Option<(FingerprintedValues, u32)> {
        let mut places = places(self.gradients.len().max(other.gradients.len()));
        let (index, values) =
            places.find(|(index, values)| self.of(*values).get(*index) != other.of(*values).get(*index))?;
        Some((values, index as u32 + 1))
    }

    fn of(&self, values: FingerprintedValues) -> &[String] {
        match values {
            FingerprintedValues::Gradients => &self.gradients,
            FingerprintedValues::Weights => &self.weights,
        }
    }
}

impl RankFingerprints {
    fn of(&self, values: FingerprintedValues) -> &[u64] {
        match values {
            FingerprintedValues::Gradients => &self.gradients,
            FingerprintedValues::Weights => &self.weights,
        }
    }
}

/// Returns the index and values of every fingerprint of a run, in the order in which they are computed.
fn places(iterations: usize) -> impl Iterator<Item = (usize, FingerprintedValues)> {
    (0..iterations).flat_map(|index| FingerprintedValues::ALL.iter().map(move |values| (index, *values)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(gradients: [u64; 3], weights: [u64; 3]) -> RankFingerprints {
        RankFingerprints { gradients: gradients.to_vec(), weights: weights.to_vec() }
    }

    #[test]
    fn first_difference_names_the_minority() {
        let good = rank([1, 2, 3], [4, 5, 6]);
        let equal = Fingerprints::from_ranks(&[good.clone(), good.clone()]);
        assert_eq!(equal.difference, None);
        assert_eq!(equal.gradients[2], "0000000000000003");
        // Another rank's later difference, and this rank's, are not listed.
        let (flipped, late) = (rank([1, 9, 3], [4, 5, 7]), rank([1, 2, 8], [4, 5, 6]));
        let found = Fingerprints::from_ranks(&[flipped.clone(), good.clone(), late, good.clone()]);
        let difference = RankDifference { values: FingerprintedValues::Gradients, iteration: 2, ranks: vec![0] };
        assert_eq!(found.difference, Some(difference));
        assert_eq!((&found.gradients, &found.weights), (&equal.gradients, &equal.weights));
        let stale = rank([1, 2, 3], [0, 5, 6]);
        let found = Fingerprints::from_ranks(&[good.clone(), good.clone(), stale]);
        let difference = RankDifference { values: FingerprintedValues::Weights, iteration: 1, ranks: vec![2] };
        assert_eq!(found.difference, Some(difference));
        let found = Fingerprints::from_ranks(&[flipped, good]);
        assert_eq!(found.difference.expect("two values").ranks, [0, 1], "no majority");
    }

    #[test]
    fn runs_are_compared_from_the_first_iteration() {
        let [one, same, other, short] = [
            rank([1, 2, 3], [4, 5, 6]),
            rank([1, 2, 3], [4, 5, 6]),
            rank([1, 2, 3], [4, 5, 9]),
            RankFingerprints { gradients: vec![1, 2], weights: vec![4, 5] },
        ]
        .map(|rank| Fingerprints::from_ranks(&[rank]));
        assert_eq!(one.first_difference(&same), None);
        assert_eq!(one.first_difference(&other), Some((FingerprintedValues::Weights, 3)));
        assert_eq!(short.first_difference(&one), Some((FingerprintedValues::Gradients, 3)));
    }
}

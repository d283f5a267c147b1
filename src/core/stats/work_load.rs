//! Cost of dividing a batch among ranks of different speed: the actual step, the step with even parts, and the step if
//! all ranks finished together.
//!
//! With c(i) the compute time of rank i in a step (forward and backward, without waits), n(i) its images, b = sum of
//! n(i) and R ranks, the time per image is p(i) = c(i) / n(i), and
//!
//! ```text
//! slowest  = max of c(i)                time that the step waits for
//! even     = max of p(i) x b / R        every rank has b / R images: the slowest rank decides
//! balanced = b / sum of 1 / p(i)        all finish together: the global batch over the sum of the ranks' speeds
//! ```
//!
//! so that balanced <= slowest and balanced <= even. Even and balanced are estimates, which assume that the time of a
//! rank is proportional to its images; the fewer images a rank has, the less this holds.
//!
//! Example: 24 and 8 images take 264 ms and 240 ms: 11 and 30 ms per image. The step waits for 264 ms. Even parts of 16
//! would take 30 x 16 = 480 ms; balanced, 32 / (1 / 11 + 1 / 30) = 257.6 ms. The division saved 45 % of the even
//! compute time, and 2.4 % is left to gain.

/// Compute times of a step, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitTimes {
    /// Actual time: that of the slowest rank.
    pub slowest: f64,
    /// Estimate for even parts.
    pub even: f64,
    /// Estimate for parts in proportion to the ranks' speeds.
    pub balanced: f64,
}

impl SplitTimes {
    /// Returns the share of the even step's compute time that the division saves; negative if it costs time.
    pub fn saved(&self) -> f64 {
        1.0 - self.slowest / self.even
    }

    /// Returns the share of this step's compute time that a balanced division would save.
    pub fn left(&self) -> f64 {
        1.0 - self.balanced / self.slowest
    }
}

/// Computes the times from each rank's compute time and images. `None` without a rank, or if a time or a number of
/// images is 0.
pub fn split_times(compute: &[f64], samples: &[f64]) -> Option<SplitTimes> {
    let per_image: Vec<f64> = compute.iter().zip(samples).map(|(time, samples)| time / samples).collect();
    if per_image.is_empty() || per_image.iter().any(|time| !time.is_finite() || *time <= 0.0) {
        return None;
    }
    let largest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let joined: f64 = samples.iter().sum();
    Some(SplitTimes {
        slowest: largest(compute),
        even: largest(&per_image) * joined / samples.len() as f64,
        balanced: joined / per_image.iter().map(|time| 1.0 / time).sum::<f64>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    #[test]
    fn worked_numbers_are_reproduced() {
        let split = split_times(&[0.264, 0.240], &[24.0, 8.0]).expect("two ranks");
        assert!((split.slowest - 0.264).abs() < 1e-12 && (split.even - 0.480).abs() < 1e-12, "{split:?}");
        assert!((split.balanced - 0.257_561).abs() < 1e-6, "{split:?}");
        assert!((split.saved() - 0.45).abs() < 1e-12 && (split.left() - 0.024_390).abs() < 1e-6, "{split:?}");
        // Even parts of equal ranks cost nothing.
        let even = split_times(&[0.1, 0.1, 0.1], &[8.0; 3]).expect("three ranks");
        assert!(even.saved().abs() < 1e-12 && even.left().abs() < 1e-12, "{even:?}");
        assert_eq!(split_times(&[], &[]), None);
        assert_eq!(split_times(&[0.0, 0.1], &[1.0, 1.0]), None);
        assert_eq!(split_times(&[0.1, 0.1], &[1.0, 0.0]), None);
    }

    #[test]
    fn balanced_division_is_the_fastest() {
        let mut random = Random(3);
        for _ in 0..2000 {
            let ranks = 1 + (random.uniform() * 12.0) as usize;
            let mut list = |low: f64, high: f64| -> Vec<f64> {
                (0..ranks).map(|_| low + (high - low) * random.uniform()).collect()
            };
            let (compute, samples) = (list(0.01, 2.0), list(1.0, 100.0));
            let split = split_times(&compute, &samples).expect("times");
            assert!(split.balanced <= split.slowest * (1.0 + 1e-12), "{split:?}");
            assert!(split.balanced <= split.even * (1.0 + 1e-12), "{split:?}");
        }
    }
}

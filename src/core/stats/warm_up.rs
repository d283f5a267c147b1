//! Number of warm-up values at the start of a series.

/// Values that are averaged before the rule is applied, so that single outliers do not decide.
const BATCH: usize = 5;

/// Returns the number of values to leave out at the start of `values`, by MSER-5 (White, 1997: Simulation 69, 323): the d
/// that minimizes `sum over i >= d of (x_i - mean)^2 / (n - d)^2` over the means of 5 successive values, but at most half
/// of them. 0 for fewer than 20 values.
///
/// Of 10 values of 9 followed by 90 of 1 +- 0.1, the first 10 are left out.
pub fn warm_up(values: &[f64]) -> usize {
    let means: Vec<f64> = values.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    if means.len() < 4 {
        return 0;
    }
    let error = |first: usize| {
        let rest = &means[first..];
        let mean = rest.iter().sum::<f64>() / rest.len() as f64;
        rest.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
    };
    let errors: Vec<f64> = (0..=means.len() / 2).map(error).collect();
    // Equal values differ by rounding.
    let rounding = f64::EPSILON * means.iter().map(|value| value * value).sum::<f64>();
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min) + rounding;
    errors.iter().position(|error| *error <= least).unwrap_or(0) * BATCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_is_left_out() {
        let noise = |index: usize| 1.0 + 0.1 * ((index * 7919) % 13) as f64 / 13.0;
        let series =
            |slow: usize| (0..100).map(|index| if index < slow { 9.0 } else { noise(index) }).collect::<Vec<_>>();
        assert_eq!([3, 10, 40].map(|slow| warm_up(&series(slow))), [5, 10, 40]);
        assert!(warm_up(&series(0)) <= 10, "the rule leaves out some values of any series");
        // One slow value at the end is no warm-up.
        let mut late = series(0);
        late[80] = 9.0;
        assert!(warm_up(&late) <= 50, "{}", warm_up(&late));
        assert_eq!(warm_up(&[9.0, 1.0, 1.0, 1.0]), 0);
    }
}

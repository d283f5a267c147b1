//! Majorities, and probabilities of counts.

use statrs::distribution::{Binomial, DiscreteCDF, Hypergeometric};

/// Returns the value of more than half of `values`, if there is one (Boyer and Moore, 1981).
pub fn majority<T: PartialEq>(values: &[T]) -> Option<&T> {
    let (mut candidate, mut lead) = (values.first()?, 0);
    for value in values {
        match lead {
            0 => (candidate, lead) = (value, 1),
            _ if value == candidate => lead += 1,
            _ => lead -= 1,
        }
    }
    let votes = values.iter().filter(|value| *value == candidate).count();
    (2 * votes > values.len()).then_some(candidate)
}

/// Returns the probability of at least `count` successes in `trials` trials, each with this probability. 1 for
/// impossible arguments.
///
/// `binomial_tail(20, 0.5, 20) = 2^-20 = 9.54e-7`.
pub fn binomial_tail(trials: usize, probability: f64, count: usize) -> f64 {
    match (count, Binomial::new(probability, trials as u64)) {
        (1.., Ok(trials)) => trials.sf(count as u64 - 1),
        _ => 1.0,
    }
}

/// Returns the probability that a random group of `group` out of `all` contains at least `count` of the `marked` ones.
/// 1 for impossible arguments.
///
/// `hypergeometric_tail(8, 4, 4, 4) = 1 / 70 = 0.0143`.
pub fn hypergeometric_tail(all: usize, marked: usize, group: usize, count: usize) -> f64 {
    match (count, Hypergeometric::new(all as u64, marked as u64, group as u64)) {
        (1.., Ok(draws)) => draws.sf(count as u64 - 1),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majority_is_more_than_half() {
        assert_eq!(majority(&[3, 1, 3, 2, 3]), Some(&3));
        assert_eq!(majority(&[1, 2, 3, 3, 3]), Some(&3));
        assert_eq!(majority(&[1, 1, 2, 2]), None);
        assert_eq!(majority(&[1, 2, 3]), None);
        assert_eq!(majority::<u32>(&[]), None);
    }

    #[test]
    fn worked_numbers_are_reproduced() {
        assert!((binomial_tail(20, 0.5, 20) - 2f64.powi(-20)).abs() < 1e-12);
        assert!((hypergeometric_tail(8, 4, 4, 4) - 1.0 / 70.0).abs() < 1e-9);
        assert_eq!((binomial_tail(5, 0.1, 0), hypergeometric_tail(8, 4, 4, 0)), (1.0, 1.0));
    }
}

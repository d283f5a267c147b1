//! Rounds of pairs: a 1-factorization of the complete graph.

/// Returns every pair of hosts once, in rounds in which no host appears twice, as in a round-robin tournament (circle
/// method). If there are more than `max_rounds` rounds, returns `max_rounds` of them, evenly spaced.
pub fn rounds(hosts: usize, max_rounds: usize) -> Vec<Vec<(usize, usize)>> {
    // An odd number of hosts needs an empty seat.
    let seats = hosts + hosts % 2;
    let count = seats.saturating_sub(1);
    let round = |turn: usize| -> Vec<(usize, usize)> {
        let seat = |index: usize| if index == 0 { 0 } else { (index - 1 + turn) % count + 1 };
        let pairs = (0..seats / 2).map(|index| (seat(index), seat(seats - 1 - index)));
        pairs.filter(|(first, second)| *first < hosts && *second < hosts).collect()
    };
    let taken = count.min(max_rounds);
    (0..taken).map(|turn| round(turn * count / taken)).filter(|pairs| !pairs.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_pair_occurs_once_without_overlap() {
        for hosts in 2..=33 {
            let all = rounds(hosts, usize::MAX);
            let mut met = BTreeSet::new();
            for round in &all {
                let mut busy = BTreeSet::new();
                for (first, second) in round {
                    assert!(busy.insert(*first) && busy.insert(*second), "{hosts}: {round:?}");
                    assert!(met.insert((*first.min(second), *first.max(second))), "{hosts}: {first} and {second}");
                }
            }
            assert_eq!(met.len(), hosts * (hosts - 1) / 2, "{hosts}");
        }
        assert_eq!(rounds(1, 31), Vec::<Vec<(usize, usize)>>::new());
        assert_eq!((rounds(32, 31).len(), rounds(200, 31).len()), (31, 31));
    }
}

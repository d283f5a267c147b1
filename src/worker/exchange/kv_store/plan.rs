//! Which server holds which values of the flat weights: pure, and the same on every worker and server.

use std::ops::Range;

use anyhow::{Result, ensure};
use ringmark_record::benchmark::kv_store::KeyPlacement;
use ringmark_record::benchmark::kv_store::placement::{self, Part};

/// A part of one parameter, in the order of backward. Its place in this list is its number on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPart {
    /// From 0.
    pub server: usize,
    /// MXNet's number of its parameter.
    pub key: usize,
    /// Place of its first value in that.
    pub first: usize,
    /// Its place in the flat weights.
    pub elements: Range<usize>,
}

/// The parts of parameters of these `lengths`, in the order of backward. MXNet numbers arrays in the order in which the network
/// is written, which is the other way round.
pub fn plan(lengths: &[usize], servers: usize, placement: KeyPlacement) -> Result<Vec<PlannedPart>> {
    ensure!(
        (1..=lengths.len()).contains(&servers),
        "--servers {servers}: the network has {} arrays to share out, choose at most as many servers",
        lengths.len()
    );
    let written: Vec<usize> = lengths.iter().rev().copied().collect();
    let mut starts: Vec<usize> = Vec::new();
    let mut next = 0;
    for length in lengths {
        starts.push(next);
        next += length;
    }
    let planned = |Part { key, server, values }: Part| {
        let start = starts[lengths.len() - 1 - key];
        PlannedPart { server, key, first: values.start, elements: start + values.start..start + values.end }
    };
    let mut parts: Vec<PlannedPart> = placement::place(&written, servers, placement).into_iter().map(planned).collect();
    parts.sort_by_key(|part| part.elements.start);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_the_order_of_backward_and_leave_no_gap() {
        let lengths = [10, 1_000_001, 30];
        let parts = plan(&lengths, 2, KeyPlacement::Hash).expect("two servers for three arrays");
        let mut next = 0;
        for part in &parts {
            assert_eq!(part.elements.start, next);
            next = part.elements.end;
        }
        assert_eq!(next, lengths.iter().sum::<usize>());
        // Backward's last array is MXNet's key 0, its first one key 2: 2 * 9973 is even.
        assert_eq!(parts.iter().map(|part| part.server).collect::<Vec<_>>(), [0, 0, 1, 0]);
        assert_eq!(
            parts.iter().map(|part| (part.key, part.first)).collect::<Vec<_>>(),
            [(2, 0), (1, 0), (1, parts[1].elements.len()), (0, 0)]
        );
    }

    #[test]
    fn more_servers_than_arrays_are_refused() {
        let error = plan(&[4, 4], 3, KeyPlacement::Balanced).expect_err("refused").to_string();
        assert_eq!(error, "--servers 3: the network has 2 arrays to share out, choose at most as many servers");
    }
}

//! Placement of the flat weights on servers: pure functions with the same result on every worker and server.

use std::ops::Range;

use anyhow::Result;
use ringmark_core::benchmark::compression::GradientCompression;
use ringmark_core::benchmark::strategy::placement::{self, ArrayPart};
use ringmark_core::dimension::KeyPlacement;

use crate::exchange::request::ExchangeRequest;

/// A part of one parameter, in backward order. Its index in the plan is its number on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPart {
    /// Index of the server, from 0.
    pub server: usize,
    /// MXNet's number of its parameter.
    pub key: usize,
    /// Offset of its first value in the parameter.
    pub first: usize,
    /// Range in the flat weights.
    pub elements: Range<usize>,
}

/// Values of a part, if the parts of an array may be updated at different times during a step. A part is answered after
/// all workers have pushed all of it, so that long parts leave links idle at the start and at the end of an exchange. A
/// power of two: the remainder after the vector loop is rounded differently, and the results must be bit-identical to
/// those of whole arrays.
const MAX_PART_ELEMENTS: usize = 1 << 17;

/// Plans the parts of parameters of these `lengths` on the servers, in backward order. Arrays or slices are not cut if
/// updates are asynchronous, because an update covers one of them at once, and with `topk`, which selects among the
/// values of one.
pub fn for_request(request: &ExchangeRequest, lengths: &[usize], servers: usize) -> Result<Vec<PlannedPart>> {
    let is_whole =
        request.strategy.strategy.is_asynchronous() || matches!(request.compression, GradientCompression::TopK { .. });
    plan(lengths, servers, request.strategy.key_placement, if is_whole { usize::MAX } else { MAX_PART_ELEMENTS })
}

/// Plans parts of at most `max_elements` values. MXNet numbers arrays in the order in which the network is defined,
/// which is the reverse.
pub fn plan(
    lengths: &[usize],
    servers: usize,
    placement: KeyPlacement,
    max_elements: usize,
) -> Result<Vec<PlannedPart>> {
    placement::check_servers(servers, lengths.len())?;
    let definition_order: Vec<usize> = lengths.iter().rev().copied().collect();
    let mut starts: Vec<usize> = Vec::new();
    let mut next = 0;
    for length in lengths {
        starts.push(next);
        next += length;
    }
    let planned = |ArrayPart { key, server, values }: ArrayPart| {
        let start = starts[lengths.len() - 1 - key];
        values.clone().step_by(max_elements).map(move |first| {
            let end = values.end.min(first.saturating_add(max_elements));
            PlannedPart { server, key, first, elements: start + first..start + end }
        })
    };
    let mut parts: Vec<PlannedPart> =
        placement::place(&definition_order, servers, placement).into_iter().flat_map(planned).collect();
    parts.sort_by_key(|part| part.elements.start);
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn parts_are_contiguous_in_backward_order() {
        let lengths = [10, 1_000_001, 30];
        let parts = plan(&lengths, 2, KeyPlacement::Hash, usize::MAX).expect("two servers for three arrays");
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
    fn long_parts_are_split_on_their_server() {
        let parts =
            plan(&[10, 1_000_000], 2, KeyPlacement::Balanced, MAX_PART_ELEMENTS).expect("two servers for two arrays");
        assert_eq!(parts[0].elements, 0..10);
        parts.windows(2).for_each(|pair| assert_eq!(pair[0].elements.end, pair[1].elements.start));
        // Half a million values each.
        let half = [131_072, 131_072, 131_072, 106_784];
        assert_eq!(parts[1..].iter().map(|part| part.elements.len()).collect::<Vec<_>>(), [half, half].concat());
        assert_eq!(parts[1..].iter().map(|part| part.server).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn more_servers_than_arrays_are_rejected() {
        let error = plan(&[4, 4], 3, KeyPlacement::Balanced, MAX_PART_ELEMENTS).expect_err("refused").to_string();
        expect!["--servers 3: the network has only 2 arrays: use at most one server per array"].assert_eq(&error);
    }
}

//! Reasons why a training run is invalid although all ranks exited normally. The worker writes the reason to the
//! record; readers decide again, because records can be edited.

use std::fmt;

use crate::benchmark::strategy::LostRank;
use crate::benchmark::train::RunRecord;

/// Reason why a training run is invalid; [`Display`](fmt::Display) formats the worker's sentence.
#[derive(Debug, Clone, PartialEq)]
pub enum Invalidity {
    /// The run completed fewer iterations than requested.
    #[allow(missing_docs)]
    Iterations { completed: usize, requested: u32 },
    /// The loss of a rank is not finite in this iteration, numbered from 1.
    #[allow(missing_docs)]
    Loss { rank: usize, loss: f64, iteration: u32 },
    /// Any other reason, as a sentence.
    Other(String),
}

/// Returns the first reason why a run that ended is invalid.
pub fn invalidity(record: &RunRecord) -> Option<Invalidity> {
    let RunRecord { header, iterations, end } = record;
    let end = end.as_ref()?;
    let store = header.config.strategy.strategy;
    if let Some(LostRank { rank, host, iteration }) = end.strategy.as_ref().and_then(|used| used.lost.first()) {
        return Some(Invalidity::Other(format!(
            "rank {rank} on host {host} exited after iteration {iteration}, and the others continued without it \
             (--strategy {store}): the figures do not cover all ranks"
        )));
    }
    let (completed, requested) = (iterations.len(), header.config.iterations);
    if completed != requested as usize {
        return Some(Invalidity::Iterations { completed, requested });
    }
    // The lines of a program may have no loss; the worker rejects one that is not finite.
    for iteration in iterations.iter().filter(|_| end.program.is_none()) {
        if let Some(rank) = iteration.loss.iter().position(|loss| !loss.is_finite()) {
            let (loss, iteration) = (iteration.loss[rank], iteration.iteration);
            return Some(Invalidity::Loss { rank, loss, iteration });
        }
    }
    if completed > 0 && end.skipped_steps == requested {
        return Some(Invalidity::Other(format!(
            "all updates ({requested}) were skipped because of non-finite gradients: lower --loss-scale, or train longer"
        )));
    }
    let checksums = &end.parameter_checksums;
    let rank = checksums.iter().position(|checksum| checksum != &checksums[0]).filter(|_| header.exchanges())?;
    Some(Invalidity::Other(format!(
        "rank {rank} on host {} ended with different weights than rank 0 ({} and {}): gradients were not exchanged \
         correctly",
        header.ranks.get(rank)?.host,
        checksums[rank],
        checksums[0]
    )))
}

impl fmt::Display for Invalidity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalidity::Iterations { completed, requested } => {
                write!(formatter, "only {completed} of {requested} iterations were completed")
            }
            Invalidity::Loss { rank, loss, iteration } => write!(
                formatter,
                "the loss of rank {rank} is {loss} in iteration {iteration}: lower --lr or --loss-scale"
            ),
            Invalidity::Other(reason) => formatter.write_str(reason),
        }
    }
}

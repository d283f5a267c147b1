//! Collects the times and deviations of all ranks, for message sizes and for gradients.

use anyhow::Result;
use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::bandwidth::{BandwidthConfig, Timing};
use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::dimension::{BackendName, Seconds};
use tch::Kind;

use crate::benchmark::bandwidth::values::Deviation;
use crate::ffi::group::GroupRank;
use crate::job::session::Session;
use crate::job::world::World;
use crate::measure::trace::{TracedRun, Tracer};

/// Returns this rank in its group. If nothing is exchanged, each rank is a group of one.
pub fn rank_among(config: &BandwidthConfig, world: &World) -> GroupRank {
    match config.exchange.backend {
        BackendChoice::None => GroupRank { rank: 0, ranks: 1 },
        _ => GroupRank { rank: world.rank(), ranks: world.ranks() },
    }
}

/// Starts the tracer of measured iterations if a trace is requested. All ranks call this together.
pub fn tracer<'a>(config: &'a BandwidthConfig, session: &'a Session<'a>) -> Result<Option<Tracer<'a>>> {
    Tracer::start(&config.trace, config.trace.traced(0, config.iterations), session)
}

/// Starts measured iteration `number` of the trace; 0 is a warm-up iteration, which is not traced.
pub fn begin_iteration(tracer: Option<&mut Tracer>, number: u32) -> Result<()> {
    tracer.map_or(Ok(()), |tracer| tracer.begin_iteration(number))
}

/// Writes the trace on rank 0. All ranks call this together.
pub fn end(tracer: Option<Tracer>, config: &BandwidthConfig, backend: BackendName) -> Result<()> {
    let Some(tracer) = tracer else { return Ok(()) };
    let title = match config.messages {
        Messages::Sizes { .. } => config.operands().text(),
        Messages::Gradients(model) => format!("gradients of {}", model.facts().title),
    };
    let strategy = Some(config.strategy.strategy);
    tracer.end(TracedRun { title, strategy, backend, arrays: Vec::new() }).map(drop)
}

/// Returns nccl-tests' name of the type.
pub fn element(kind: Kind) -> &'static str {
    match kind {
        Kind::Half => "half",
        Kind::BFloat16 => "bfloat16",
        _ => "float",
    }
}

pub fn timing(times: &[Seconds], deviations: &[Deviation], is_checked: bool, world: &World) -> Timing {
    let own: Vec<f64> = times.iter().map(|time| time.0).collect();
    let seconds = world.gather(&own).into_iter().map(|rank| rank.into_iter().map(Seconds).collect()).collect();
    let wrong: u64 = deviations.iter().map(|deviation| deviation.wrong).sum();
    let all_wrong: f64 = world.gather(&[wrong as f64]).concat().iter().sum();
    let errors: Vec<f64> = deviations.iter().map(|deviation| deviation.error).collect();
    let by_rank = world.gather(&errors);
    let worst = |iteration: usize| by_rank.iter().map(|rank| rank[iteration]).fold(0.0, max_or_nan);
    Timing {
        seconds,
        back_to_back: Vec::new(),
        wrong: is_checked.then_some(all_wrong as u64),
        error: (0..errors.len()).map(worst).collect(),
    }
}

/// Returns the larger of two errors; NaN is larger than any number.
pub fn max_or_nan(one: f64, other: f64) -> f64 {
    if one.is_nan() || other <= one { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_error_is_not_masked() {
        for errors in [[f64::NAN, 1e-8, 0.0], [1e-8, f64::NAN, 0.0], [0.0, 1e-8, f64::NAN]] {
            assert!(errors.into_iter().fold(0.0, max_or_nan).is_nan());
        }
        assert_eq!([1e-8, 1e-3, 0.0].into_iter().fold(0.0, max_or_nan), 1e-3);
    }
}

//! The clock that a rank's spans are told by, and what it shows more than rank 0's.

use std::time::Instant;

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};
use ringmark_record::trace::clock::{ClockMethod, ClockReading};
use tch::Device;

use crate::job::world::World;
use crate::measure::mark::Mark;

/// Messages there and back: the fastest of them met no other traffic.
const PINGS: u32 = 64;

/// This host's time now, in nanoseconds.
pub fn now_ns() -> Result<i64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

/// Tells marks of host and device as this host's time.
pub struct SpanClock {
    host: (Instant, i64),
    /// A mark that the device has passed, and when it had.
    device: (Mark, i64),
}

impl SpanClock {
    /// Waits for the device.
    pub fn new(device: Device) -> Result<SpanClock> {
        let mark = Mark::set(device)?;
        mark.wait(|| Ok(()))?;
        let at = now_ns()?;
        Ok(SpanClock { host: (Instant::now(), at), device: (mark, at) })
    }

    /// In nanoseconds of this host; the device has passed the mark.
    pub fn time_of(&self, mark: &Mark) -> Result<i64> {
        match mark {
            Mark::Host(instant) => {
                let (then, at) = self.host;
                let after = instant.saturating_duration_since(then).as_nanos() as i64;
                Ok(at + after - then.saturating_duration_since(*instant).as_nanos() as i64)
            }
            Mark::Device(_) => {
                let (then, at) = &self.device;
                Ok(at + (mark.seconds_since(then)? * 1e9).round() as i64)
            }
        }
    }
}

/// What this rank's clock shows more than rank 0's; all ranks call it together.
pub fn read(world: &World) -> Result<(ClockMethod, ClockReading)> {
    let seats = world.seats();
    let own = seats[world.rank() as usize];
    let mut reading = ClockReading { at_ns: now_ns()?, ahead_ns: 0, residual_ns: 0 };
    // One rank of each other host, one after the other: none disturbs another's.
    for (other, seat) in (0u32..).zip(&seats) {
        if seat.host == seats[0].host || seat.local_rank != 0 {
            continue;
        }
        if world.rank() == 0 {
            ping(world, other)?;
        } else if world.rank() == other {
            reading = answer(world)?;
        }
    }
    let mut values = [reading.at_ns, reading.ahead_ns, reading.residual_ns];
    world.broadcast_on_host(&mut values);
    let method = if own.host == seats[0].host { ClockMethod::SameHost } else { ClockMethod::Ping };
    let [at_ns, ahead_ns, residual_ns] = values;
    Ok((method, ClockReading { at_ns, ahead_ns, residual_ns }))
}

/// Rank 0's side: after each answer it says when the message left and when the answer came.
fn ping(world: &World, other: u32) -> Result<()> {
    for _ in 0..PINGS {
        let sent = now_ns()?;
        world.send(other, sent);
        world.receive(other);
        let received = now_ns()?;
        world.send(other, received);
    }
    Ok(())
}

/// The other side: the reading of the fastest.
fn answer(world: &World) -> Result<ClockReading> {
    let mut best: Option<ClockReading> = None;
    for _ in 0..PINGS {
        let sent = world.receive(0);
        let answered = now_ns()?;
        world.send(0, answered);
        let reading = ClockReading::of_ping(sent, answered, world.receive(0));
        if best.is_none_or(|best| reading.residual_ns < best.residual_ns) {
            best = Some(reading);
        }
    }
    Ok(best.expect("there are pings"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn marks_of_the_host_are_told_by_its_clock() {
        let clock = SpanClock::new(Device::Cpu).expect("a clock");
        let before = now_ns().expect("a time");
        let mark = Mark::set(Device::Cpu).expect("a mark");
        let after = now_ns().expect("a time");
        let told = clock.time_of(&mark).expect("a time");
        // The two clocks are one; between the two readings of `new` a busy machine may stop for a while.
        let margin = Duration::from_millis(100).as_nanos() as i64;
        assert!((before - margin..=after + margin).contains(&told), "{before} {told} {after}");
        let earlier = Instant::now() - Duration::from_secs(1);
        let told = told - clock.time_of(&Mark::Host(earlier)).expect("a time");
        assert!((1_000_000_000..2_000_000_000).contains(&told), "{told}");
    }
}

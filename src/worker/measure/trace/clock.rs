//! Clock of a rank's spans, and its offset from rank 0's.

use std::time::Instant;

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};
use ringmark_core::trace::{ClockMethod, ClockReading};
use tch::Device;

use crate::job::world::World;
use crate::measure::mark::Mark;

/// Number of round trips; the fastest one had the least interference from other traffic.
const PINGS: u32 = 64;

/// Number of attempts for an anchor; the fastest one counts.
const ANCHORS: u32 = 16;

/// Returns this host's time in nanoseconds.
pub fn now_ns() -> Result<i64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() * 1_000_000_000 + now.tv_nsec())
}

/// Converts marks of host and device to this host's time.
pub struct SpanClock {
    device: Device,
    host: (Instant, i64),
    /// Anchors in order of time; empty if the device is the host.
    anchors: Vec<Anchor>,
}

struct Anchor {
    mark: Mark,
    at_ns: i64,
    /// Maximum error of `at_ns`.
    error_ns: i64,
}

impl SpanClock {
    /// Creates a clock without [anchors](SpanClock::anchor).
    pub fn new(device: Device) -> Result<SpanClock> {
        Ok(SpanClock { device, host: (Instant::now(), now_ns()?), anchors: Vec::new() })
    }

    /// Relates the device's clock to the host's. Call this before and after the marks to convert. Waits for the device,
    /// then sets several marks and keeps the one that was detected fastest.
    pub fn anchor(&mut self) -> Result<()> {
        if self.device == Device::Cpu {
            return Ok(());
        }
        Mark::set(self.device)?.wait(|| Ok(()))?;
        let mut best: Option<Anchor> = None;
        for _ in 0..ANCHORS {
            let before = now_ns()?;
            let mark = Mark::set(self.device)?;
            mark.wait(|| Ok(()))?;
            let half = (now_ns()? - before) / 2;
            if best.as_ref().is_none_or(|best| half < best.error_ns) {
                best = Some(Anchor { mark, at_ns: before + half, error_ns: half });
            }
        }
        self.anchors.extend(best);
        Ok(())
    }

    /// Returns the time of `mark` in nanoseconds of this host. The device must have passed the mark.
    pub fn time_of(&self, mark: &Mark) -> Result<i64> {
        match mark {
            Mark::Host(instant) => {
                let (then, at) = self.host;
                let after = instant.saturating_duration_since(then).as_nanos() as i64;
                Ok(at + after - then.saturating_duration_since(*instant).as_nanos() as i64)
            }
            Mark::Device(_) => self.time_between_anchors(mark),
        }
    }

    /// Interpolates linearly between two anchors.
    fn time_between_anchors(&self, mark: &Mark) -> Result<i64> {
        let (mut below, mut above) = (0, self.anchors.len());
        while above - below > 1 {
            let middle = (below + above) / 2;
            if mark.seconds_since(&self.anchors[middle].mark)? < 0.0 { above = middle } else { below = middle }
        }
        let Some(Anchor { mark: earlier, at_ns, .. }) = self.anchors.get(below) else {
            bail!("no clock anchor of the device")
        };
        let since = mark.seconds_since(earlier)?;
        let rate = match self.anchors.get(above) {
            Some(later) => (later.at_ns - at_ns) as f64 / later.mark.seconds_since(earlier)?,
            None => 1e9,
        };
        Ok(at_ns + (since * rate).round() as i64)
    }

    /// Returns the maximum error of converted marks in nanoseconds: the detection delay of an anchor, plus the
    /// resolution of the time between two anchors, which CUDA returns in milliseconds as `float`.
    pub fn residual_ns(&self) -> i64 {
        let error = self.anchors.iter().map(|anchor| anchor.error_ns).max().unwrap_or(0);
        let longest = self.anchors.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).max().unwrap_or(0);
        error + (longest as f64 * f64::from(f32::EPSILON)).ceil() as i64
    }
}

/// Reads the offset of this rank's clock from rank 0's. All ranks call this together.
pub fn read(world: &World) -> Result<(ClockMethod, ClockReading)> {
    let locations = world.locations();
    let own = locations[world.rank() as usize];
    let mut reading = ClockReading { at_ns: now_ns()?, ahead_ns: 0, residual_ns: 0 };
    // One rank of each other host, one after the other, so that they do not disturb each other.
    for (other, location) in (0u32..).zip(&locations) {
        if location.host == locations[0].host || location.local_rank != 0 {
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
    let method = if own.host == locations[0].host { ClockMethod::SameHost } else { ClockMethod::Ping };
    let [at_ns, ahead_ns, residual_ns] = values;
    Ok((method, ClockReading { at_ns, ahead_ns, residual_ns }))
}

/// Runs rank 0's side of the round trips: after each answer it sends the times of departure and return.
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

/// Runs the other side; returns the reading of the fastest round trip.
fn answer(world: &World) -> Result<ClockReading> {
    let mut best: Option<ClockReading> = None;
    for _ in 0..PINGS {
        let sent = world.receive(0);
        let answered = now_ns()?;
        world.send(0, answered);
        let reading = ClockReading::from_ping(sent, answered, world.receive(0));
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
    fn host_marks_use_the_host_clock() {
        let clock = SpanClock::new(Device::Cpu).expect("a clock");
        let before = now_ns().expect("a time");
        let mark = Mark::set(Device::Cpu).expect("a mark");
        let after = now_ns().expect("a time");
        let converted = clock.time_of(&mark).expect("a time");
        // The two clocks are the same; a busy machine may pause between the two reads in `new`.
        let margin = Duration::from_millis(100).as_nanos() as i64;
        assert!((before - margin..=after + margin).contains(&converted), "{before} {converted} {after}");
        let Mark::Host(instant) = mark else { panic!("the CPU's marks are the host's") };
        let earlier = clock.time_of(&Mark::Host(instant - Duration::from_secs(1))).expect("a time");
        assert_eq!((converted - earlier, clock.residual_ns()), (1_000_000_000, 0));
    }
}

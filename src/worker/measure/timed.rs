//! A time that all ranks begin together, with their devices idle. Not for the iterations of training, which never wait:
//! those are [`step_timer`](crate::measure::step_timer)'s.

use anyhow::Result;
use ringmark_core::dimension::Seconds;
use tch::Device;

use crate::job::world::World;
use crate::measure::mark::Mark;

/// A time that has begun.
pub struct Timed<'a> {
    device: Device,
    world: &'a World,
    start: Mark,
}

impl<'a> Timed<'a> {
    /// Called by all ranks together.
    pub fn begin(device: Device, world: &'a World) -> Result<Timed<'a>> {
        Mark::set(device)?.wait(|| Ok(()))?;
        world.barrier();
        Ok(Timed { device, world, start: Mark::set(device)? })
    }

    /// Returns the time that this rank took. Waits for its device, and looks with `check` for errors of sums under way.
    pub fn end(self, check: impl FnMut() -> Result<()>) -> Result<Seconds> {
        let end = Mark::set(self.device)?;
        end.wait(check)?;
        if !self.world.has_own_cores() {
            // What comes next on this rank would take time from the ranks that are not done.
            self.world.patient_barrier();
        }
        Ok(Seconds(end.seconds_since(&self.start)?))
    }
}

//! Times that start on all ranks together, with idle devices. The iterations of training, which never wait, use
//! [`step_timer`](crate::measure::step_timer).

use anyhow::Result;
use ringmark_core::dimension::Seconds;
use tch::Device;

use crate::job::world::World;
use crate::measure::mark::Mark;

pub struct Timed<'a> {
    device: Device,
    world: &'a World,
    start: Mark,
}

impl<'a> Timed<'a> {
    /// Waits for the device and all ranks, then starts. All ranks call this together.
    pub fn begin(device: Device, world: &'a World) -> Result<Timed<'a>> {
        Mark::set(device)?.wait(|| Ok(()))?;
        world.barrier();
        Ok(Timed { device, world, start: Mark::set(device)? })
    }

    /// Returns the time that this rank took. Waits for its device, calling `check` for errors of pending sums.
    pub fn end(self, check: impl FnMut() -> Result<()>) -> Result<Seconds> {
        let end = Mark::set(self.device)?;
        end.wait(check)?;
        if !self.world.has_own_cores() {
            // Later work on this rank would take time from ranks that are not done.
            self.world.sleeping_barrier();
        }
        Ok(Seconds(end.seconds_since(&self.start)?))
    }
}

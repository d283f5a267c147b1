//! Timestamps of the host or of a device stream.

use std::time::Instant;

use anyhow::Result;
use tch::Device;

use crate::ffi::torch::stream::{Event, Stream};

pub enum Mark {
    Host(Instant),
    /// Event on a stream of the device.
    Device(Event),
}

impl Mark {
    /// Records a mark after all work that this thread has enqueued on `device`.
    pub fn set(device: Device) -> Result<Mark> {
        let Device::Cuda(index) = device else {
            return Ok(Mark::Host(Instant::now()));
        };
        let mut event = Event::with_timing(index);
        event.record(Stream::current(index)?)?;
        Ok(Mark::Device(event))
    }

    pub fn is_done(&self) -> Result<bool> {
        match self {
            Mark::Host(_) => Ok(true),
            Mark::Device(event) => event.is_done(),
        }
    }

    /// Waits until the device has reached the mark. Calls `check` for errors occasionally, because each call takes time
    /// from the measurement.
    pub fn wait(&self, mut check: impl FnMut() -> Result<()>) -> Result<()> {
        let mut questions = 0u32;
        while !self.is_done()? {
            questions = questions.wrapping_add(1);
            if questions.is_multiple_of(1024) {
                check()?;
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Returns the time from `earlier` to this mark. Both are of the same device and complete.
    pub fn seconds_since(&self, earlier: &Mark) -> Result<f64> {
        match (self, earlier) {
            (Mark::Host(end), Mark::Host(start)) => Ok((*end - *start).as_secs_f64()),
            (Mark::Device(end), Mark::Device(start)) => end.seconds_since(start),
            _ => unreachable!("a run records one kind of time mark"),
        }
    }
}

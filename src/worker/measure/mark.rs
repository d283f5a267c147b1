//! A point in time of the host, or in a stream of the device.

use std::time::Instant;

use anyhow::Result;
use tch::Device;

use crate::ffi::torch::shim::{Event, Stream};

/// A point in time of host or device.
pub enum Mark {
    /// On the host.
    Host(Instant),
    /// In a stream of the device.
    Device(Event),
}

impl Mark {
    /// Sets the mark behind everything that this thread has given to `device`.
    pub fn set(device: Device) -> Result<Mark> {
        let Device::Cuda(index) = device else {
            return Ok(Mark::Host(Instant::now()));
        };
        let mut event = Event::with_timing(index);
        event.record(Stream::current(index)?)?;
        Ok(Mark::Device(event))
    }

    /// Whether host or device has passed it.
    pub fn is_done(&self) -> Result<bool> {
        match self {
            Mark::Host(_) => Ok(true),
            Mark::Device(event) => event.is_done(),
        }
    }

    /// Returns when the device has passed the mark. Meanwhile looks with `check` for errors, now and then: each look takes
    /// time from what is measured.
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

    /// Time from `earlier` to this mark, both of one device and passed.
    pub fn seconds_since(&self, earlier: &Mark) -> Result<f64> {
        match (self, earlier) {
            (Mark::Host(end), Mark::Host(start)) => Ok((*end - *start).as_secs_f64()),
            (Mark::Device(end), Mark::Device(start)) => end.seconds_since(start),
            _ => unreachable!("one run marks one kind of time"),
        }
    }
}

//! CUDA streams and events of libtorch.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use anyhow::Result;

use crate::ffi::torch::shim::check;

unsafe extern "C" {
    fn ringmark_new_stream(device: i64, priority: c_int, id: *mut i64, handle: *mut *mut c_void) -> *mut c_char;
    fn ringmark_current_stream(device: i64, id: *mut i64) -> *mut c_char;
    fn ringmark_exchange_stream(device: i64, stream: i64, before: *mut i64) -> *mut c_char;
    fn ringmark_core_event(event: *mut *mut c_void, stream: i64, device: i64, timing: c_int) -> *mut c_char;
    fn ringmark_stream_wait_event(event: *mut c_void, stream: i64, device: i64) -> *mut c_char;
    fn ringmark_query_event(event: *mut c_void, device: i64, done: *mut c_int) -> *mut c_char;
    fn ringmark_elapsed_milliseconds(
        start: *mut c_void,
        end: *mut c_void,
        device: i64,
        milliseconds: *mut f64,
    ) -> *mut c_char;
    fn ringmark_destroy_event(event: *mut c_void, device: i64);
}

#[derive(Debug, Clone, Copy)]
pub struct Stream {
    device: i64,
    id: i64,
}

impl Stream {
    /// Returns the stream of this thread's libtorch calls.
    pub fn current(device: usize) -> Result<Stream> {
        let mut stream = Stream { device: device as i64, id: 0 };
        // SAFETY: the pointer is to a live i64.
        check(unsafe { ringmark_current_stream(stream.device, &mut stream.id) })?;
        Ok(stream)
    }

    /// Creates a high-priority stream that does not synchronize with the default stream; also returns its
    /// `cudaStream_t`.
    pub fn new(device: usize) -> Result<(Stream, *mut c_void)> {
        Stream::with_priority(device, -1)
    }

    /// Creates a stream; CUDA runs kernels with a lower `priority` number first.
    fn with_priority(device: usize, priority: c_int) -> Result<(Stream, *mut c_void)> {
        let mut stream = Stream { device: device as i64, id: 0 };
        let mut handle = null_mut();
        // SAFETY: the pointers are to live variables.
        check(unsafe { ringmark_new_stream(stream.device, priority, &mut stream.id, &mut handle) })?;
        Ok((stream, handle))
    }

    pub fn run<R>(self, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let switch = |to: i64| {
            let mut before = 0;
            // SAFETY: the pointer is to a live i64.
            check(unsafe { ringmark_exchange_stream(self.device, to, &mut before) })?;
            anyhow::Ok(before)
        };
        let before = switch(self.id)?;
        let result = body();
        switch(before)?;
        result
    }

    /// Runs `body` on a new stream of `device`, after the earlier and before the later work of the current stream. The
    /// stream has the default stream's priority: NCCL's streams have a higher one.
    pub fn run_on_side_stream<R>(device: usize, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let current = Stream::current(device)?;
        let (own, _) = Stream::with_priority(device, 0)?;
        own.wait_for(&current.record_event()?)?;
        let result = own.run(body)?;
        current.wait_for(&own.record_event()?)?;
        Ok(result)
    }

    /// Records an event after all work enqueued so far.
    pub fn record_event(self) -> Result<Event> {
        let mut event = Event::new(self.device as usize);
        event.record(self)?;
        Ok(event)
    }

    /// Makes later work on this stream wait for `event`; the host does not wait.
    pub fn wait_for(self, event: &Event) -> Result<()> {
        // SAFETY: the event was recorded, or is null, which libtorch checks.
        check(unsafe { ringmark_stream_wait_event(event.handle, self.id, self.device) })
    }
}

#[derive(Debug)]
pub struct Event {
    handle: *mut c_void,
    device: i64,
    timing: bool,
}

// SAFETY: CUDA events may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event without timing, for synchronization.
    pub fn new(device: usize) -> Event {
        Event { handle: null_mut(), device: device as i64, timing: false }
    }

    pub fn with_timing(device: usize) -> Event {
        Event { timing: true, ..Event::new(device) }
    }

    /// Records the event after all work enqueued on `stream` so far.
    pub fn record(&mut self, stream: Stream) -> Result<()> {
        // SAFETY: null or an event of this device; the shim creates it at the first call.
        check(unsafe { ringmark_core_event(&mut self.handle, stream.id, self.device, self.timing.into()) })
    }

    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: a recorded event or null; the pointer is to a live int.
        check(unsafe { ringmark_query_event(self.handle, self.device, &mut done) })?;
        Ok(done != 0)
    }

    /// Returns the device time from `earlier` to this event. Both must be complete and created by
    /// [`with_timing`](Event::with_timing).
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: both handles are recorded events; the shim rejects null.
        check(unsafe { ringmark_elapsed_milliseconds(earlier.handle, self.handle, self.device, &mut milliseconds) })?;
        Ok(milliseconds / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: created by the shim, destroyed once.
            unsafe { ringmark_destroy_event(self.handle, self.device) };
        }
    }
}

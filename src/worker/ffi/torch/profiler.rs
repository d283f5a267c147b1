//! libtorch's profiler of operators and kernels.

use std::ffi::{c_char, c_int, c_void};

use anyhow::Result;

use crate::ffi::torch::shim::check;

type EventCallback = extern "C" fn(*mut c_void, *const u8, usize, u64, u64, u64, c_int);

unsafe extern "C" {
    fn ringmark_start_profiler(has_gpu: c_int) -> *mut c_char;
    fn ringmark_stop_profiler(event: EventCallback, context: *mut c_void) -> *mut c_char;
}

/// An operator on the host, or a kernel or copy on the GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfiledEvent {
    pub name: String,
    /// Start and end in nanoseconds since 1970, UTC.
    pub begin_ns: i64,
    pub end_ns: i64,
    /// Thread of the host, or stream of the GPU.
    pub thread: u64,
    pub is_on_device: bool,
}

/// A started profiler.
pub struct Profiler(());

impl Profiler {
    /// Starts profiling the operators of this thread and of its backward passes. Only one profiler may exist at a time.
    pub fn start(has_gpu: bool) -> Result<Profiler> {
        // SAFETY: takes no pointers.
        check(unsafe { ringmark_start_profiler(has_gpu.into()) })?;
        Ok(Profiler(()))
    }

    /// Stops profiling, on the thread that started it, and returns the events.
    pub fn stop(self) -> Result<Vec<ProfiledEvent>> {
        extern "C" fn add(
            events: *mut c_void,
            name: *const u8,
            length: usize,
            begin: u64,
            end: u64,
            thread: u64,
            device: c_int,
        ) {
            // SAFETY: the vector of `stop` below, and a string that lives during the call.
            let (events, name) =
                unsafe { (&mut *events.cast::<Vec<ProfiledEvent>>(), std::slice::from_raw_parts(name, length)) };
            let name = String::from_utf8_lossy(name);
            // Prefix of backward nodes, which are not operators but call them.
            let name = name.strip_prefix("autograd::engine::evaluate_function: ").unwrap_or(&name).to_owned();
            let (begin_ns, end_ns) = (begin as i64, end as i64);
            events.push(ProfiledEvent { name, begin_ns, end_ns, thread, is_on_device: device != 0 });
        }
        let mut events: Vec<ProfiledEvent> = Vec::new();
        // SAFETY: the callback receives the pointer to `events`, which outlives the call.
        check(unsafe { ringmark_stop_profiler(add, (&raw mut events).cast()) })?;
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    #[test]
    fn operators_of_forward_and_backward_are_recorded() {
        let weight = Tensor::ones([8, 8], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let profiler = Profiler::start(false).expect("started");
        weight.matmul(&weight).sum(Kind::Float).backward();
        let events = profiler.stop().expect("stopped");
        let count = |name: &str| events.iter().filter(|event| event.name == name).count();
        // Forward has one product, backward two.
        assert_eq!(count("aten::mm"), 3, "{events:?}");
        assert!(events.iter().all(|event| event.begin_ns <= event.end_ns && !event.is_on_device), "{events:?}");
        let _ = weight.matmul(&weight);
        assert!(Profiler::start(false).and_then(Profiler::stop).expect("profiled").is_empty(), "it was stopped");
    }
}

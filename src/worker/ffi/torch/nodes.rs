//! Observation of autograd nodes in backward, as in libtorch's profiler. A node is identified by its sequence number
//! from forward.

use std::ffi::c_int;

use anyhow::Result;

use crate::ffi::torch::shim::check;

unsafe extern "C" {
    fn ringmark_next_node() -> u64;
    fn ringmark_observe_nodes(callback: extern "C" fn(u64, c_int), handle: *mut u64) -> *mut std::ffi::c_char;
    fn ringmark_stop_observing_nodes(handle: u64) -> *mut std::ffi::c_char;
}

/// Observer of backward's nodes, called on the thread that runs them. Must not panic: libtorch's frames are below.
pub trait NodeObserver {
    /// Called at the start of node number `node`. Nodes that accumulate a finished gradient all have the number
    /// `u64::MAX`.
    fn node_begins(node: u64);
    /// Called at the end of the innermost node that has started on this thread.
    fn node_ends(node: u64);
}

/// Guard that notifies an observer of every node while it lives.
pub struct Observation(u64);

impl Observation {
    /// Starts the observation. Only one may exist at a time.
    pub fn begin<O: NodeObserver>() -> Result<Observation> {
        extern "C" fn forward<O: NodeObserver>(node: u64, is_end: c_int) {
            if is_end == 0 { O::node_begins(node) } else { O::node_ends(node) }
        }
        let mut handle = 0;
        // SAFETY: a function that lives as long as the process, and a pointer to a live u64.
        check(unsafe { ringmark_observe_nodes(forward::<O>, &mut handle) })?;
        Ok(Observation(handle))
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        // SAFETY: a handle from `begin`, returned once. After an error the observer stays registered, which is
        // harmless.
        let _ = check(unsafe { ringmark_stop_observing_nodes(self.0) });
    }
}

/// Returns the number of the next node that forward creates on this thread.
pub fn next_node() -> u64 {
    // SAFETY: reads a counter of this thread.
    unsafe { ringmark_next_node() }
}

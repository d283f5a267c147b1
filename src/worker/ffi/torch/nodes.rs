//! The nodes of backward, as libtorch's own profiler sees them: each knows by its number when forward made it.

use std::ffi::c_int;

use anyhow::Result;

use crate::ffi::torch::shim::check;

unsafe extern "C" {
    fn ringmark_next_node() -> u64;
    fn ringmark_observe_nodes(callback: extern "C" fn(u64, c_int), handle: *mut u64) -> *mut std::ffi::c_char;
    fn ringmark_stop_observing_nodes(handle: u64) -> *mut std::ffi::c_char;
}

/// Hears of the nodes of backward, on the thread that runs them. Must not panic: libtorch's frames are below.
pub trait NodeObserver {
    /// Node number `node` begins. Those that hand a finished gradient on are all number `u64::MAX`.
    fn node_begins(node: u64);
    /// The node that began last on this thread, and has not ended yet, ends.
    fn node_ends(node: u64);
}

/// While it lives, its observer hears of every node.
pub struct Observation(u64);

impl Observation {
    /// Begins now. One at a time.
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
        // SAFETY: a handle of `begin`, given back once. What fails leaves the observer where it is, which harms nothing.
        let _ = check(unsafe { ringmark_stop_observing_nodes(self.0) });
    }
}

/// Number of the next node that this thread's forward makes.
pub fn next_node() -> u64 {
    // SAFETY: reads a counter of this thread.
    unsafe { ringmark_next_node() }
}

//! CUDA graphs: captured stream work that one host call launches again. Implemented in `graph.cpp`.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use anyhow::Result;

use crate::ffi::torch::shim::check;

unsafe extern "C" {
    fn ringmark_graph_pool(first: *mut u64, second: *mut u64) -> *mut c_char;
    fn ringmark_begin_capture(first: u64, second: u64, graph: *mut *mut c_void) -> *mut c_char;
    fn ringmark_end_capture(graph: *mut c_void) -> *mut c_char;
    fn ringmark_replay(graph: *mut c_void) -> *mut c_char;
    fn ringmark_hold(cycles: i64) -> *mut c_char;
    fn ringmark_destroy_graph(graph: *mut c_void);
}

/// Blocks the current stream for about two milliseconds, so that the host can enqueue a batch of kernels ahead of the
/// device.
pub fn hold() -> Result<()> {
    const CYCLES: i64 = 4_000_000;
    // SAFETY: a plain number.
    check(unsafe { ringmark_hold(CYCLES) })
}

/// Memory pool shared by graphs that are replayed in the order of their capture.
#[derive(Debug, Clone, Copy)]
pub struct GraphPool {
    first: u64,
    second: u64,
}

impl GraphPool {
    pub fn new() -> Result<GraphPool> {
        let mut pool = GraphPool { first: 0, second: 0 };
        // SAFETY: the pointers are to live u64.
        check(unsafe { ringmark_graph_pool(&raw mut pool.first, &raw mut pool.second) })?;
        Ok(pool)
    }
}

/// A captured CUDA graph. Tensors that were allocated before the capture must outlive it.
#[derive(Debug)]
pub struct Graph(*mut c_void);

impl Graph {
    /// Captures the work that `body` enqueues on the current stream without running it. The stream must not be the
    /// default stream, and `body` must have run on it before: loading kernels and cuDNN's search cannot be captured.
    /// Fails if `body` synchronizes with the device.
    pub fn capture<R>(pool: GraphPool, body: impl FnOnce() -> Result<R>) -> Result<(Graph, R)> {
        let mut graph = null_mut();
        // SAFETY: the pointer is to a live variable.
        check(unsafe { ringmark_begin_capture(pool.first, pool.second, &raw mut graph) })?;
        let result = body();
        // SAFETY: the capture of this graph has started and ends once.
        let ended = check(unsafe { ringmark_end_capture(graph) });
        // The error of `body` has priority because it caused the other. If the capture did not end, the graph is
        // leaked: see `graph.cpp`.
        match (result, ended) {
            (Ok(result), Ok(())) => Ok((Graph(graph), result)),
            (Err(error), Ok(())) => {
                drop(Graph(graph));
                Err(error)
            }
            (Err(error), Err(_)) | (Ok(_), Err(error)) => Err(error),
        }
    }

    pub fn replay(&self) -> Result<()> {
        // SAFETY: a captured graph; its memory is in its pool or outlives it.
        check(unsafe { ringmark_replay(self.0) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: created by the shim and destroyed once.
        unsafe { ringmark_destroy_graph(self.0) };
    }
}

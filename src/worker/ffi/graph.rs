//! CUDA graphs, of `graph.cpp`: what a stream is given, kept and run again at once, which takes the host one call. And the
//! kernel that holds a stream up, so that what comes behind it is there before it begins.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use anyhow::Result;

use crate::ffi::shim::check;

unsafe extern "C" {
    fn ringmark_graph_pool(first: *mut u64, second: *mut u64) -> *mut c_char;
    fn ringmark_begin_capture(first: u64, second: u64, graph: *mut *mut c_void) -> *mut c_char;
    fn ringmark_end_capture(graph: *mut c_void) -> *mut c_char;
    fn ringmark_replay(graph: *mut c_void) -> *mut c_char;
    fn ringmark_hold(cycles: i64) -> *mut c_char;
    fn ringmark_destroy_graph(graph: *mut c_void);
}

/// Holds this thread's stream up for about two milliseconds.
pub fn hold() -> Result<()> {
    const CYCLES: i64 = 4_000_000;
    // SAFETY: a plain number.
    check(unsafe { ringmark_hold(CYCLES) })
}

/// Memory that several graphs use, which are replayed in the order in which they were captured.
#[derive(Debug, Clone, Copy)]
pub struct GraphPool {
    first: u64,
    second: u64,
}

impl GraphPool {
    /// A new one.
    pub fn new() -> Result<GraphPool> {
        let mut pool = GraphPool { first: 0, second: 0 };
        // SAFETY: the pointers are to live u64.
        check(unsafe { ringmark_graph_pool(&raw mut pool.first, &raw mut pool.second) })?;
        Ok(pool)
    }
}

/// Work of a stream that can be run again. What it reads and writes stays where it was: it belongs to the graph, or must
/// outlive it.
#[derive(Debug)]
pub struct Graph(*mut c_void);

impl Graph {
    /// Keeps what `body` gives to this thread's stream, which is not the default one, and runs none of it. `body` has run
    /// on that stream before, so that nothing is left to load or to search for. Where it waits for the device, or fails, there
    /// is no graph.
    pub fn capture<R>(pool: GraphPool, body: impl FnOnce() -> Result<R>) -> Result<(Graph, R)> {
        let mut graph = null_mut();
        // SAFETY: the pointer is to a live variable.
        check(unsafe { ringmark_begin_capture(pool.first, pool.second, &raw mut graph) })?;
        let result = body();
        // SAFETY: a graph whose capture has begun, and ends once.
        let ended = check(unsafe { ringmark_end_capture(graph) });
        // What failed first says more. A graph whose capture did not end is never freed: see `graph.cpp`.
        match (result, ended) {
            (Ok(result), Ok(())) => Ok((Graph(graph), result)),
            (Err(error), Ok(())) => {
                drop(Graph(graph));
                Err(error)
            }
            (Err(error), Err(_)) | (Ok(_), Err(error)) => Err(error),
        }
    }

    /// Runs it in this thread's stream.
    pub fn replay(&self) -> Result<()> {
        // SAFETY: a captured graph; what it touches is the graph's, or outlives it.
        check(unsafe { ringmark_replay(self.0) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by the shim, and destroyed once.
        unsafe { ringmark_destroy_graph(self.0) };
    }
}

//! The end of this process from any thread.

/// Ends this process, without what libraries have asked to be called at its end: that may wait for another thread of it.
pub fn at_once(status: i32) -> ! {
    // SAFETY: it may be called at any time from any thread, and nothing of this process is used after it.
    unsafe { libc::_exit(status) }
}

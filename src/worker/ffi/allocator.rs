//! The process's memory allocator: mimalloc for Rust and, in the place of `malloc`, for libtorch.
//!
//! glibc gives every large activation back to the kernel after use and takes it again page by page, which cost 40 % of
//! the CPU time of a training step. mimalloc asks for huge pages and, once told so, keeps what it has.

use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay` of mimalloc.h, in milliseconds.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// Lets the allocator keep memory that is freed, unless MIMALLOC_PURGE_DELAY says otherwise.
pub fn keep_freed_memory() {
    const NEVER: c_long = -1;
    // SAFETY: takes plain numbers, and the option is one that mimalloc has.
    unsafe { mi_option_set_default(PURGE_DELAY, NEVER) };
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    #[test]
    fn the_option_is_the_purge_delay() {
        // SAFETY: as above.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1000, "the default of mimalloc.h");
        keep_freed_memory();
        assert_eq!(delay(), -1);
    }
}

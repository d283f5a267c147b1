//! The process's memory allocator: mimalloc for Rust and, in the place of `malloc`, for libtorch.
//!
//! glibc gives every large activation back to the kernel after use and takes it again page by page, which cost 40 % of
//! the CPU time of a training step. mimalloc asks for huge pages and, once told so, keeps what it has.
//!
//! It is also told to take what is asked for and not, as by itself, 1 GiB each time: all that is taken counts against the
//! limit of a process's private memory (`RLIMIT_DATA`), used or not, and what is short then fails outside of the allocator,
//! in oneDNN or where a thread starts.

use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_arena_eager_commit` of mimalloc.h: whether memory is taken when its addresses are, by the GiB.
const ARENA_EAGER_COMMIT: c_int = 4;

/// `mi_option_purge_delay`, in milliseconds.
const PURGE_DELAY: c_int = 15;
const NEVER: c_long = -1;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// The loader calls it before it initializes any library, and so before anybody has allocated.
#[used]
#[unsafe(link_section = ".preinit_array")]
static BEFORE_ALL: extern "C" fn() = set_options;

/// Sets mimalloc's options, unless MIMALLOC_PURGE_DELAY and MIMALLOC_ARENA_EAGER_COMMIT say otherwise.
extern "C" fn set_options() {
    // SAFETY: takes plain numbers, and the options are ones that mimalloc has.
    unsafe {
        mi_option_set_default(PURGE_DELAY, NEVER);
        mi_option_set_default(ARENA_EAGER_COMMIT, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    #[test]
    fn the_options_are_set() {
        // SAFETY: as above.
        let option = |option| unsafe { mi_option_get(option) };
        assert_eq!((option(PURGE_DELAY), option(ARENA_EAGER_COMMIT)), (NEVER, 0));
    }
}

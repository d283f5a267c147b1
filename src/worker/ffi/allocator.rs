//! The process's memory allocator: mimalloc for Rust and, in the place of `malloc`, for libtorch.
//!
//! glibc gives every large activation back to the kernel after use and takes it again page by page, which cost 40 % of
//! the CPU time of a training step. mimalloc, once told so, keeps what it has.
//!
//! It is also told to take what is asked for and not, as by itself, 1 GiB each time: all that is taken counts against the
//! limit of a process's private memory (`RLIMIT_DATA`), used or not, and what is short then fails outside of the allocator,
//! in oneDNN or where a thread starts. With it goes its request for huge pages, which did not make a step faster.

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
    use std::ffi::{CStr, c_char, c_void};

    unsafe extern "C" {
        fn mi_options_print_out(out: extern "C" fn(*const c_char, *mut c_void), text: *mut c_void);
    }

    extern "C" fn append(part: *const c_char, text: *mut c_void) {
        // SAFETY: mimalloc hands over a string of C, and the test its own, which nobody else has.
        let (part, text) = unsafe { (CStr::from_ptr(part), &mut *text.cast::<String>()) };
        text.push_str(&part.to_string_lossy());
    }

    /// By their names: another version may number its options otherwise.
    #[test]
    fn the_options_are_set() {
        let mut text = String::new();
        // SAFETY: the text outlives the call.
        unsafe { mi_options_print_out(append, (&raw mut text).cast()) };
        for option in ["option 'purge_delay': -1 ", "option 'arena_eager_commit': 0 "] {
            assert!(text.contains(option), "{text}");
        }
    }
}

//! The process's memory allocator: mimalloc for Rust and, in the place of `malloc`, for libtorch.
//!
//! glibc gives every large activation back to the kernel after use and takes it again page by page, which cost 40 % of
//! the CPU time of a training step. mimalloc, once told so, keeps what it has.
//!
//! It is also told to take what is asked for and not, as by itself, 1 GiB each time: all that is taken counts against the
//! limit of a process's private memory (`RLIMIT_DATA`), used or not, and what is short then fails outside of the allocator,
//! in oneDNN or where a thread starts. With it goes its request for huge pages, which did not make a step faster.
//!
//! What libtorch's operators take is there before they ask. mimalloc has no arena before its own initializer, which runs after
//! libtorch's: until then it takes every page from the kernel, most of 64 KiB, in three system calls. In huge pages besides,
//! the start of a rank is a quarter shorter.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
#[cfg(test)]
use std::sync::atomic::Ordering;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_arena_eager_commit` of mimalloc.h: whether memory is taken when its addresses are, by the GiB.
const ARENA_EAGER_COMMIT: c_int = 4;

/// `mi_option_purge_delay`, in milliseconds.
const PURGE_DELAY: c_int = 15;
const NEVER: c_long = -1;

/// Bytes that libtorch's operators take, a little less: all of it is used. mimalloc takes multiples of 32 MiB.
const OF_OPERATORS: usize = 64 << 20;

/// Bytes of a transparent huge page of x86-64 and of ARM with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_manage_os_memory(
        start: *mut c_void,
        bytes: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
    ) -> bool;
}

/// The loader calls it before it initializes any library, and so before anybody has allocated.
#[used]
#[unsafe(link_section = ".preinit_array")]
static BEFORE_ALL: extern "C" fn() = prepare;

/// Sets mimalloc's options, unless MIMALLOC_PURGE_DELAY and MIMALLOC_ARENA_EAGER_COMMIT say otherwise, and gives it what
/// the operators take.
extern "C" fn prepare() {
    // SAFETY: takes plain numbers, and the options are ones that mimalloc has.
    unsafe {
        mi_option_set_default(PURGE_DELAY, NEVER);
        mi_option_set_default(ARENA_EAGER_COMMIT, 0);
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new addresses, where nothing else lies.
    let start = unsafe { libc::mmap(ptr::null_mut(), OF_OPERATORS + HUGE_PAGE, protection, flags, -1, 0) };
    // Whose limit is below that has the operators' memory by 64 KiB.
    if start == libc::MAP_FAILED {
        return;
    }
    // SAFETY: a huge page more than that was mapped. From here on it is mimalloc's, on whatever NUMA node, and zero.
    unsafe {
        let before = start.align_offset(HUGE_PAGE);
        let (first, start) = (start, start.add(before));
        libc::munmap(first, before);
        libc::munmap(start.add(OF_OPERATORS), HUGE_PAGE - before);
        libc::madvise(start, OF_OPERATORS, libc::MADV_HUGEPAGE);
        let _is_taken = mi_manage_os_memory(start, OF_OPERATORS, true, false, true, -1);
        #[cfg(test)]
        tests::START.store(if _is_taken { start.addr() } else { 0 }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Where the memory for operators begins.
    pub static START: AtomicUsize = AtomicUsize::new(0);

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

    /// Of another libtorch they may take less. Without huge pages there are four fifths.
    #[test]
    fn operators_take_what_is_there_for_them() {
        let start = START.load(Ordering::Relaxed);
        assert!(start > 0);
        // SAFETY: takes a plain number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a size");
        let mut resident = vec![0u8; OF_OPERATORS / page];
        // SAFETY: the range is mapped for as long as the process lives, and the vector has a byte for each page.
        let status = unsafe { libc::mincore(start as *mut c_void, OF_OPERATORS, resident.as_mut_ptr()) };
        assert_eq!(status, 0);
        let resident = resident.iter().filter(|page| **page & 1 == 1).count() * page;
        assert!(resident > OF_OPERATORS * 3 / 4, "{resident} bytes of {OF_OPERATORS}");
    }
}

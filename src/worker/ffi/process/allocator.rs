//! Memory allocator of the process: mimalloc for Rust and, replacing `malloc`, for libtorch.
//!
//! glibc returns every large activation to the kernel after use and faults it in again page by page, which cost 40 % of
//! the CPU time of a training step. With a purge delay of -1 mimalloc keeps its memory.
//!
//! Eager commit is off, so that mimalloc commits what is requested instead of 1 GiB at a time: committed memory counts
//! against the limit of a process's private memory (`RLIMIT_DATA`) even if unused, and the allocations that then fail
//! are outside of the allocator, in oneDNN or at the start of a thread. This also disables mimalloc's request for huge
//! pages, which did not make a step faster.
//!
//! The memory of libtorch's operators is allocated in advance. mimalloc has no arena before its own initializer, which
//! runs after libtorch's: until then it gets each page, most of them 64 KiB, from the kernel with three system calls.
//! With the advance allocation in huge pages, a rank starts in a quarter less time.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
#[cfg(test)]
use std::sync::atomic::Ordering;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_arena_eager_commit` of mimalloc.h: commit of memory when its addresses are reserved, by the GiB.
const ARENA_EAGER_COMMIT: c_int = 4;

/// `mi_option_purge_delay` in milliseconds.
const PURGE_DELAY: c_int = 15;
const NEVER: c_long = -1;

/// Size of the memory of libtorch's operators, rounded down so that all of it is used. mimalloc requires multiples of
/// 32 MiB.
const OPERATOR_BYTES: usize = 64 << 20;

/// Size of a transparent huge page on x86-64, and on ARM with 4 KiB pages.
const HUGE_PAGE: usize = 2 << 20;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_option_get(option: c_int) -> c_long;
    fn mi_manage_os_memory(
        start: *mut c_void,
        bytes: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
    ) -> bool;
}

/// The loader calls it before it initializes any library, and therefore before the first allocation.
#[used]
#[unsafe(link_section = ".preinit_array")]
static BEFORE_ALL: extern "C" fn() = prepare;

/// Sets mimalloc's options, unless MIMALLOC_PURGE_DELAY and MIMALLOC_ARENA_EAGER_COMMIT override them, and adds the
/// memory for libtorch's operators.
extern "C" fn prepare() {
    // SAFETY: takes plain numbers; mimalloc has these options.
    unsafe {
        mi_option_set_default(PURGE_DELAY, NEVER);
        mi_option_set_default(ARENA_EAGER_COMMIT, 0);
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping that overlaps with nothing.
    let start = unsafe { libc::mmap(ptr::null_mut(), OPERATOR_BYTES + HUGE_PAGE, protection, flags, -1, 0) };
    // If a limit is lower, the operators get their memory from the kernel page by page.
    if start == libc::MAP_FAILED {
        return;
    }
    // SAFETY: one huge page more than that was mapped. From here on mimalloc owns it, on any NUMA node, zeroed.
    unsafe {
        let before = start.align_offset(HUGE_PAGE);
        let (first, start) = (start, start.add(before));
        libc::munmap(first, before);
        libc::munmap(start.add(OPERATOR_BYTES), HUGE_PAGE - before);
        libc::madvise(start, OPERATOR_BYTES, libc::MADV_HUGEPAGE);
        let _is_taken = mi_manage_os_memory(start, OPERATOR_BYTES, true, false, true, -1);
        #[cfg(test)]
        tests::START.store(if _is_taken { start.addr() } else { 0 }, Ordering::Relaxed);
    }
}

/// Runs `body`, whose freed memory returns to the kernel at once: set-up frees more than training needs.
pub fn returning_memory<R>(body: impl FnOnce() -> R) -> R {
    // SAFETY: plain numbers; mimalloc has this option.
    let before = unsafe { mi_option_get(PURGE_DELAY) };
    // SAFETY: as above.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
    let result = body();
    // SAFETY: as above.
    unsafe { mi_option_set(PURGE_DELAY, before) };
    result
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_char};
    use std::sync::atomic::AtomicUsize;

    use super::*;

    pub static START: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" {
        fn mi_options_print_out(out: extern "C" fn(*const c_char, *mut c_void), text: *mut c_void);
    }

    extern "C" fn append(part: *const c_char, text: *mut c_void) {
        // SAFETY: mimalloc passes a C string, and the test its own text, which nothing else uses.
        let (part, text) = unsafe { (CStr::from_ptr(part), &mut *text.cast::<String>()) };
        text.push_str(&part.to_string_lossy());
    }

    /// Compares names: another version may number its options differently.
    #[test]
    fn mimalloc_options_are_set() {
        let mut text = String::new();
        // SAFETY: the text outlives the call.
        unsafe { mi_options_print_out(append, (&raw mut text).cast()) };
        for option in ["option 'purge_delay': -1 ", "option 'arena_eager_commit': 0 "] {
            assert!(text.contains(option), "{text}");
        }
    }

    /// Another libtorch may use less. Without huge pages four fifths of the memory are resident.
    #[test]
    fn operators_use_the_reserved_memory() {
        let start = START.load(Ordering::Relaxed);
        assert!(start > 0);
        // SAFETY: takes a plain number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a size");
        let mut resident = vec![0u8; OPERATOR_BYTES / page];
        // SAFETY: the range is mapped until the process ends, and the vector has a byte for each page.
        let status = unsafe { libc::mincore(start as *mut c_void, OPERATOR_BYTES, resident.as_mut_ptr()) };
        assert_eq!(status, 0);
        let resident = resident.iter().filter(|page| **page & 1 == 1).count() * page;
        assert!(resident > OPERATOR_BYTES * 3 / 4, "{resident} bytes of {OPERATOR_BYTES}");
    }
}

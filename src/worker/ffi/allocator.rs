//! The process's memory allocator: jemalloc for Rust and, by its unprefixed `malloc`, for libtorch.
//!
//! glibc gives every large activation back to the kernel after use and takes it again page by page, which cost 40 % of
//! the CPU time of a training step. jemalloc keeps the pages (`dirty_decay_ms:-1`) and asks for huge ones (`thp`).

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// A C string that jemalloc reads before `main`.
#[repr(transparent)]
pub struct Options(&'static [u8; 49]);

// SAFETY: jemalloc declares `const char *malloc_conf`; a reference to an array is that pointer, and the text ends in NUL.
#[unsafe(export_name = "malloc_conf")]
pub static OPTIONS: Options = Options(b"dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always\0\0\0");

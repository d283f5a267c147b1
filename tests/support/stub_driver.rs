//! A stub of the NVIDIA driver for machines without one: `programs/stub_driver.c`, compiled once.

use std::path::Path;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::support::sandbox::compile_library;

/// Returns the folder with the stub's `libcuda.so.1`, for LD_LIBRARY_PATH.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("libcuda.so.1");
        compile_library("stub_driver.c", &library, &["-Wl,-soname,libcuda.so.1"]);
        folder
    };
    FOLDER.get_or_init(build).path()
}

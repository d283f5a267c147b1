//! An NVIDIA driver for tests on machines without one: `libcuda.c`, compiled once.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The folder with the stub's `libcuda.so.1`, for LD_LIBRARY_PATH.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let build = || {
        let folder = tempfile::tempdir().expect("a folder");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libcuda.so.1", "-o"]);
        compiler.arg(folder.path().join("libcuda.so.1"));
        compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stub_driver/libcuda.c")).arg("-ldl");
        assert!(compiler.status().expect("there is a C compiler").success());
        folder
    };
    FOLDER.get_or_init(build).path()
}

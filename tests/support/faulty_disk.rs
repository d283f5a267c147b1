//! A disk with faults, simulated by a library that replaces the calls that write and read.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use super::sandbox::{compile_library, run};

/// Simulates a disk with a fault.
pub struct FaultyDisk {
    library: PathBuf,
    _folder: tempfile::TempDir,
}

impl FaultyDisk {
    pub fn new() -> FaultyDisk {
        let folder = tempfile::tempdir().expect("a folder");
        let library = folder.path().join("faulty_files.so");
        compile_library("faulty_files.c", &library, &[]);
        FaultyDisk { library, _folder: folder }
    }

    /// Returns the environment of a process in which `fault` happens on every such `call` on files with `name` in
    /// their paths.
    pub fn variables<'a>(&'a self, call: &'a str, name: &'a str, fault: &'a str) -> [(&'static str, &'a OsStr); 4] {
        let library = ("LD_PRELOAD", self.library.as_os_str());
        [library, ("FAULTY_CALL", call.as_ref()), ("FAULTY_NAME", name.as_ref()), ("FAULT", fault.as_ref())]
    }

    /// Runs `command` with these [`variables`](Self::variables).
    pub fn run(&self, mut command: Command, call: &str, name: &str, fault: &str) -> (Option<i32>, String, String) {
        run(command.envs(self.variables(call, name, fault)))
    }
}

//! Libraries loaded by this process, and the environment variables that they read once.

#![allow(clippy::disallowed_methods, reason = "sets variables of libraries")]

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;

use anyhow::anyhow;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Sets an environment variable unless it is set. This process must have only one thread.
pub fn set_default(name: &str, value: impl AsRef<OsStr>) {
    if std::env::var_os(name).is_none() {
        // SAFETY: this process has only one thread at this point.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Returns true if this host has a GPU driver.
pub fn has_driver() -> bool {
    open("libcuda.so.1").is_ok()
}

/// Calls `dlopen`. A library that is already loaded is returned again, whatever folder it came from.
pub fn open(name: &str) -> Result<&'static Library, String> {
    // SAFETY: the initializers of the driver, libtorch_cuda and NCCL may run at any time before there are threads that
    // use them. The heartbeat thread does not use them, and reads no variable that they may set.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
    Ok(Box::leak(Box::new(library)))
}

/// A library in which functions are looked up.
#[derive(Clone, Copy)]
pub struct Exports<'a> {
    pub library: &'a Library,
    pub name: &'static str,
    /// Advice if a function is missing.
    pub fix: &'static str,
}

impl Exports<'_> {
    /// Returns a function. The type of the caller's field must be the one in the library's header.
    pub fn find<F: Copy>(self, function: &str) -> anyhow::Result<F> {
        let Exports { library, name, fix } = self;
        // SAFETY: guaranteed by the caller.
        let symbol = unsafe { library.get::<F>(function) };
        symbol.map(|symbol| *symbol).map_err(|_| anyhow!("{name} does not export {function}: {fix}"))
    }
}

/// Declares functions that are looked up in a library: the name of each there, and its type in the library's header.
macro_rules! functions {
    ($(#[$meta:meta])* $visibility:vis struct $table:ident {
        $($field:ident = $name:literal: $type:ty,)+
    }) => {
        $(#[$meta])*
        $visibility struct $table {
            $(pub(super) $field: $type,)+
        }

        impl $table {
            /// Looks up all functions.
            $visibility fn find(library: $crate::ffi::process::libraries::Exports) -> anyhow::Result<$table> {
                Ok($table { $($field: library.find($name)?,)+ })
            }
        }
    };
}
pub(in crate::ffi) use functions;

/// Returns the paths of all files that this process has mapped.
pub fn loaded() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|start| line[start..].to_owned()));
    paths.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns true if `path` is any version of the library `name`, for example `libmpi.so`.
pub fn is_named(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns the first part of the MPI library's version text.
pub fn mpi_version() -> String {
    let version = mpi::environment::library_version().unwrap_or_default();
    let first = version.lines().next().unwrap_or_default();
    first.split(", ident").next().unwrap_or_default().to_owned()
}

//! Libraries that this process has loaded, and the variables that they read once.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Sets a variable that is not set, while this process has one thread.
pub fn set_default(name: &str, value: impl AsRef<OsStr>) {
    if std::env::var_os(name).is_none() {
        // SAFETY: this process has one thread yet.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Returns true if this host has a GPU driver.
pub fn has_driver() -> bool {
    open("libcuda.so.1").is_ok()
}

/// `dlopen`: a library that is loaded already is that one again, whatever folder it came from.
pub fn open(name: &str) -> Result<&'static Library, String> {
    // SAFETY: the initializers of the driver, libtorch_cuda and NCCL may run at any time before there are threads that
    // use them; the heartbeat's does not, and asks for no variable that they may set.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
    Ok(Box::leak(Box::new(library)))
}

/// Every file that this process has loaded.
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

//! Common parts of MPI calls: counts, status checks and nonblocking requests.

use crate::ffi::memory::element::Element;
use std::ffi::{c_int, c_void};

use anyhow::{Result, bail, ensure};
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;

#[derive(Clone, Copy)]
pub(super) struct Message {
    pub position: *mut c_void,
    pub count: c_int,
    pub kind: ffi::MPI_Datatype,
    pub operation: ffi::MPI_Op,
    pub element: Element,
}

/// Converts a number of elements to MPI's type.
pub fn count(elements: usize) -> Result<c_int> {
    let Ok(count) = c_int::try_from(elements) else {
        bail!("{elements} elements exceed the MPI limit of 2^31 per call: set --chunk-kb");
    };
    Ok(count)
}

/// Communicators of a group of ranks. There are two, because all ranks must start the operations on a communicator in
/// the same order, and the second halves of sums start as soon as they can.
pub struct Group {
    /// Communicator of operations that the caller starts.
    pub first: SimpleCommunicator,
    /// Communicator of the second halves of sums.
    pub second: SimpleCommunicator,
}

// SAFETY: MPI handles may be used from any thread.
unsafe impl Send for Group {}

impl Group {
    /// Returns the number of parts into which an all-reduce of fp32 is divided, each summed by one rank. Two ranks do
    /// not gain from a division: MPI's own all-reduce was 2 % faster with two, and 15 to 30 % slower with three and
    /// four (results/README.md).
    pub fn parts(&self) -> u32 {
        match self.first.size() {
            ..=2 => 1,
            ranks => ranks as u32,
        }
    }
}

/// Starts a nonblocking operation by `call`.
pub fn start(name: &str, call: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<ffi::MPI_Request> {
    // SAFETY: a null handle, overwritten by the call.
    let mut request = unsafe { std::mem::zeroed() };
    check(name, call(&mut request))?;
    Ok(request)
}

/// Returns true if the operation of `request` is complete. MPI moves data only inside its calls, so polling is what
/// makes progress.
pub fn is_complete(request: &mut ffi::MPI_Request) -> Result<bool> {
    let mut flag: c_int = 0;
    // SAFETY: a handle created by MPI; the status is ignored.
    let status = unsafe { ffi::MPI_Test(request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
    check("MPI_Test", status)?;
    Ok(flag != 0)
}

pub fn check(call: &str, status: c_int) -> Result<()> {
    ensure!(status == ffi::MPI_SUCCESS as c_int, "{call} returned {status}");
    Ok(())
}

/// Returns MPI_IN_PLACE, which is a cast in a C macro and therefore missing in the bindings. 1 is Open MPI's value.
/// Other MPI libraries use another value and lack the constant below, so compilation fails with them.
pub fn in_place() -> *const c_void {
    const _: u32 = ffi::OMPI_MAJOR_VERSION;
    std::ptr::without_provenance(1)
}

//! What every call of MPI needs: how it counts, whether it went well, and what was started without waiting.

use crate::ffi::memory::element::Element;
use std::ffi::{c_int, c_void};

use anyhow::{Result, bail, ensure};
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;

/// Data that one call of MPI sums or moves.
#[derive(Clone, Copy)]
pub(super) struct Message {
    pub position: *mut c_void,
    pub count: c_int,
    pub kind: ffi::MPI_Datatype,
    pub operation: ffi::MPI_Op,
    pub element: Element,
}

/// As MPI counts.
pub fn count(elements: usize) -> Result<c_int> {
    let Ok(count) = c_int::try_from(elements) else {
        bail!("one MPI call reaches fewer than 2^31 elements, not {elements}: set --chunk-kb");
    };
    Ok(count)
}

/// Some of the ranks, as MPI knows them: twice, because what starts on a communicator must start in the same order on
/// all of its ranks, and the second halves of sums begin when they can.
pub struct Group {
    /// For what is started.
    pub first: SimpleCommunicator,
    /// For what follows from it.
    pub second: SimpleCommunicator,
}

// SAFETY: MPI handles may be used from any thread.
unsafe impl Send for Group {}

impl Group {
    /// Into how many parts an all-reduce of fp32 is divided, each summed by its rank. Two ranks have nothing to gain from it:
    /// MPI's own was 2 % faster there, and among three and four 15 to 30 % slower (results/README.md).
    pub fn parts(&self) -> u32 {
        match self.first.size() {
            ..=2 => 1,
            ranks => ranks as u32,
        }
    }
}

/// What `call` starts without waiting.
pub fn start(name: &str, call: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<ffi::MPI_Request> {
    // SAFETY: a null handle, overwritten by the call.
    let mut request = unsafe { std::mem::zeroed() };
    check(name, call(&mut request))?;
    Ok(request)
}

/// Whether what `request` is of has ended. MPI moves data only inside its calls: asking is what brings it on.
pub fn is_complete(request: &mut ffi::MPI_Request) -> Result<bool> {
    let mut flag: c_int = 0;
    // SAFETY: a handle that MPI made; the status is not wanted.
    let status = unsafe { ffi::MPI_Test(request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
    check("MPI_Test", status)?;
    Ok(flag != 0)
}

pub fn check(call: &str, status: c_int) -> Result<()> {
    ensure!(status == ffi::MPI_SUCCESS as c_int, "{call} returned {status}");
    Ok(())
}

/// MPI_IN_PLACE is a cast in a C macro, which bindings do not carry over. 1 is Open MPI's value; another MPI library
/// has another, and no constant of the name below, so that it is refused by the compiler.
pub fn in_place() -> *const c_void {
    const _: u32 = ffi::OMPI_MAJOR_VERSION;
    std::ptr::without_provenance(1)
}

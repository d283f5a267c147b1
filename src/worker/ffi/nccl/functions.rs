//! Function pointers of NCCL's operations, with cudarc's types. Their wrappers are in [`collectives`].
//!
//! [`collectives`]: crate::ffi::nccl::collectives

use std::ffi::{CStr, c_int, c_void};

use anyhow::{Context, Result};
use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t};
use libloading::os::unix::Library;

/// `ncclResult_t` as an integer: a newer NCCL may return a code that cudarc's enum lacks, which would be undefined
/// behavior.
pub type Status = c_int;

/// Input, output, number of elements and type, then specific arguments, then communicator and stream.
type Reduce = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    ncclDataType_t,
    ncclRedOp_t,
    ncclComm_t,
    cudaStream_t,
) -> Status;
type ReduceToRoot = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    ncclDataType_t,
    ncclRedOp_t,
    c_int,
    ncclComm_t,
    cudaStream_t,
) -> Status;
type Gather =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, ncclDataType_t, ncclComm_t, cudaStream_t) -> Status;
type Broadcast =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t) -> Status;
type Send = unsafe extern "C" fn(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t) -> Status;
type Receive = unsafe extern "C" fn(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t) -> Status;

pub struct Collectives {
    pub all_reduce: Reduce,
    pub reduce: ReduceToRoot,
    pub reduce_scatter: Reduce,
    pub broadcast: Broadcast,
    pub all_gather: Gather,
    pub send: Send,
    pub receive: Receive,
    pub group_start: unsafe extern "C" fn() -> Status,
    pub group_end: unsafe extern "C" fn() -> Status,
}

impl Collectives {
    pub fn new(library: &'static Library) -> Result<Collectives> {
        Ok(Collectives {
            all_reduce: find(library, c"ncclAllReduce")?,
            reduce: find(library, c"ncclReduce")?,
            reduce_scatter: find(library, c"ncclReduceScatter")?,
            broadcast: find(library, c"ncclBroadcast")?,
            all_gather: find(library, c"ncclAllGather")?,
            send: find(library, c"ncclSend")?,
            receive: find(library, c"ncclRecv")?,
            group_start: find(library, c"ncclGroupStart")?,
            group_end: find(library, c"ncclGroupEnd")?,
        })
    }
}

/// Returns the function `name` of `library`. The type of the caller's field must be the one in nccl.h.
pub fn find<F: Copy>(library: &'static Library, name: &CStr) -> Result<F> {
    // SAFETY: guaranteed by the caller.
    let symbol = unsafe { library.get::<F>(name) };
    symbol.map(|symbol| *symbol).with_context(|| format!("NCCL does not export {name:?}: install NCCL 2.14 or later"))
}

//! Function pointers of NCCL, with cudarc's types.

use std::ffi::{c_char, c_int, c_void};

use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};

use crate::ffi::process::libraries::functions;

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

functions!(
    /// Functions of NCCL (nccl.h).
    pub struct Nccl {
        get_version = "ncclGetVersion": unsafe extern "C" fn(*mut c_int) -> Status,
        get_unique_id = "ncclGetUniqueId": unsafe extern "C" fn(*mut ncclUniqueId) -> Status,
        comm_init_rank = "ncclCommInitRank": unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> Status,
        comm_get_async_error = "ncclCommGetAsyncError": unsafe extern "C" fn(ncclComm_t, *mut Status) -> Status,
        comm_abort = "ncclCommAbort": unsafe extern "C" fn(ncclComm_t) -> Status,
        get_error_string = "ncclGetErrorString": unsafe extern "C" fn(Status) -> *const c_char,
        get_last_error = "ncclGetLastError": unsafe extern "C" fn(ncclComm_t) -> *const c_char,
        all_reduce = "ncclAllReduce": Reduce,
        reduce = "ncclReduce": ReduceToRoot,
        reduce_scatter = "ncclReduceScatter": Reduce,
        broadcast = "ncclBroadcast": Broadcast,
        all_gather = "ncclAllGather": Gather,
        send = "ncclSend": Send,
        receive = "ncclRecv": Receive,
        group_start = "ncclGroupStart": unsafe extern "C" fn() -> Status,
        group_end = "ncclGroupEnd": unsafe extern "C" fn() -> Status,
    }
);

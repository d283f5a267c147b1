//! NCCL through function pointers of the copy that libtorch_cuda has loaded, with cudarc's types.
//!
//! cudarc itself looks for other library names and panics if one is missing. A process must not load two copies of
//! NCCL.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};
use libloading::os::unix::Library;
use tch::{Kind, Tensor};

pub use crate::ffi::nccl::functions::Nccl;
use crate::ffi::nccl::functions::Status;
use crate::ffi::process::libraries::Exports;
use crate::ffi::torch::stream::Stream;

/// Length of NCCL's unique ID, which all ranks of a communicator share.
pub const UNIQUE_ID_BYTES: usize = size_of::<ncclUniqueId>();

const SUCCESS: Status = ncclResult_t::ncclSuccess as Status;
const IN_PROGRESS: Status = ncclResult_t::ncclInProgress as Status;

impl Nccl {
    pub fn new(library: &'static Library) -> Result<Nccl> {
        let nccl = Exports { library, name: "NCCL", fix: "install NCCL 2.14 or later" };
        Nccl::find(nccl)
    }

    /// Returns the version, such as `2.28.9`.
    pub fn version(&self) -> Result<String> {
        let mut version = 0;
        // SAFETY: the pointer is to a live int.
        self.check(unsafe { (self.get_version)(&mut version) }, "ncclGetVersion", std::ptr::null_mut())?;
        Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
    }

    /// Returns a new unique ID. Rank 0 calls this and sends the ID to the other ranks.
    pub fn unique_id(&self) -> Result<[u8; UNIQUE_ID_BYTES]> {
        let mut id = ncclUniqueId { internal: [0; UNIQUE_ID_BYTES] };
        // SAFETY: the pointer is to a live id.
        self.check(unsafe { (self.get_unique_id)(&mut id) }, "ncclGetUniqueId", std::ptr::null_mut())?;
        // C's char is signed on x86-64 and unsigned on aarch64.
        Ok(id.internal.map(|byte| byte.to_ne_bytes()[0]))
    }

    pub(super) fn check(&self, result: Status, call: &str, communicator: ncclComm_t) -> Result<()> {
        if result == SUCCESS {
            return Ok(());
        }
        // SAFETY: both return static strings or null; ncclGetLastError accepts a null communicator.
        let (error, last) =
            unsafe { (text((self.get_error_string)(result)), text((self.get_last_error)(communicator))) };
        bail!("{call}: {error}{}{last}", if last.is_empty() { "" } else { ": " })
    }
}

/// # Safety
/// `string` must be null or NUL-terminated.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: not null; the rest is guaranteed by the caller.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().trim().to_owned()
}

/// Communicator over the ranks of a job, and the stream of its operations.
pub struct Communicator {
    pub(super) nccl: Arc<Nccl>,
    pub(super) handle: ncclComm_t,
    stream: Stream,
    pub(super) stream_handle: cudaStream_t,
    device: usize,
    pub(super) rank: u32,
    pub(super) operation: ncclRedOp_t,
}

// SAFETY: NCCL allows a communicator on any thread, one call at a time, which `&mut self` enforces.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Joins the communicator as `rank` of `ranks` on the current CUDA device `device`; returns once all ranks have
    /// joined.
    pub fn new(
        nccl: Arc<Nccl>,
        device: usize,
        rank: u32,
        ranks: u32,
        id: [u8; UNIQUE_ID_BYTES],
    ) -> Result<Communicator> {
        let (stream, stream_handle) = Stream::new(device)?;
        let id = ncclUniqueId { internal: id.map(|byte| byte as c_char) };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the ID is rank 0's, rank < ranks by MPI, and the caller made the device current.
        let result = unsafe { (nccl.comm_init_rank)(&mut handle, ranks as c_int, id, rank as c_int) };
        nccl.check(result, "ncclCommInitRank", handle)?;
        let (stream_handle, operation) = (stream_handle.cast(), ncclRedOp_t::ncclSum);
        Ok(Communicator { nccl, handle, stream, stream_handle, device, rank, operation })
    }

    pub fn stream(&self) -> Stream {
        self.stream
    }

    pub(super) fn position(&self, tensor: &Tensor, elements: &Range<usize>) -> Result<(ncclDataType_t, *mut c_void)> {
        ensure!(tensor.is_contiguous(), "the tensor is not contiguous");
        ensure!(elements.start <= elements.end && elements.end <= tensor.numel(), "{elements:?} of {}", tensor.numel());
        ensure!(
            tensor.device() == tch::Device::Cuda(self.device),
            "the tensor is on {:?}, but NCCL uses device {}",
            tensor.device(),
            self.device
        );
        let (kind, size) = match tensor.kind() {
            Kind::Float => (ncclDataType_t::ncclFloat32, 4),
            Kind::Half => (ncclDataType_t::ncclFloat16, 2),
            Kind::BFloat16 => (ncclDataType_t::ncclBfloat16, 2),
            other => bail!("NCCL sums fp32, fp16 and bf16 here, not {other:?}"),
        };
        Ok((kind, tensor.data_ptr().wrapping_byte_add(elements.start * size)))
    }

    /// Returns an asynchronous error of the device or the network since the last call, with NCCL's message. Does not
    /// wait.
    pub fn check(&self) -> Result<()> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is alive and the pointer is to a live result.
        let result = unsafe { (self.nccl.comm_get_async_error)(self.handle, &mut state) };
        self.nccl.check(result, "ncclCommGetAsyncError", self.handle)?;
        if state == IN_PROGRESS {
            return Ok(());
        }
        self.nccl.check(state, "a sum in flight", self.handle)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // ncclCommDestroy waits for the other ranks, which may have failed; nothing is pending after the last step.
        // SAFETY: the handle is valid and not used again.
        unsafe { (self.nccl.comm_abort)(self.handle) };
    }
}

//! NCCL's operations on a communicator's stream. All only enqueue: the tensors must live until the stream is past them.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use anyhow::{Result, ensure};
use cudarc::nccl::sys::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t};
use libloading::os::unix::Library;
use tch::Tensor;

use crate::ffi::nccl::{Communicator, Status, find};

/// Input, output, elements, type: then what differs, and communicator and stream.
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

/// The functions used, by name.
pub struct Collectives {
    all_reduce: Reduce,
    reduce: ReduceToRoot,
    reduce_scatter: Reduce,
    broadcast: Broadcast,
    all_gather: Gather,
    send: Send,
    receive: Receive,
    group_start: unsafe extern "C" fn() -> Status,
    group_end: unsafe extern "C" fn() -> Status,
}

impl Collectives {
    /// Finds every function in `library`.
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

/// How values come together, as NCCL has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduced {
    /// Their sum.
    Sum,
    /// The largest.
    Largest,
    /// Their mean.
    Mean,
}

/// Every tensor is contiguous on the communicator's device, input and output of one type, fp32, fp16 or bf16. They may be
/// one tensor where nothing else is said. Every rank makes the same calls.
impl Communicator {
    /// From the next call on.
    pub fn set_reduced(&mut self, reduced: Reduced) {
        self.operation = match reduced {
            Reduced::Sum => ncclRedOp_t::ncclSum,
            Reduced::Largest => ncclRedOp_t::ncclMax,
            Reduced::Mean => ncclRedOp_t::ncclAvg,
        };
    }

    /// `elements` of `input` over all ranks into the same elements of every `output`.
    pub fn all_reduce(&mut self, (input, output): (&Tensor, &Tensor), elements: Range<usize>) -> Result<()> {
        let (kind, from, to) = self.between(input, output, &elements, &elements)?;
        let (all_reduce, count) = (self.nccl.collectives.all_reduce, elements.len());
        // SAFETY: as many contiguous elements of `kind` on this communicator's device, alive by the caller's promise.
        let status = unsafe { all_reduce(from, to, count, kind, self.operation, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclAllReduce", self.handle)
    }

    /// The same into the root's `output` alone.
    pub fn reduce(&mut self, (input, output): (&Tensor, &Tensor), elements: Range<usize>, root: u32) -> Result<()> {
        let (kind, from, to) = self.between(input, output, &elements, &elements)?;
        let (reduce, count, root) = (self.nccl.collectives.reduce, elements.len(), root as c_int);
        // SAFETY: as in `all_reduce`.
        let status = unsafe { reduce(from, to, count, kind, self.operation, root, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclReduce", self.handle)
    }

    /// `input` over all ranks, of which each gets its part: parts of one length, one behind the other.
    pub fn reduce_scatter(&mut self, (input, output): (&Tensor, &Tensor), parts: &[Range<usize>]) -> Result<()> {
        let own = &parts[self.rank as usize];
        let (kind, from, to) = self.between(input, output, &span(parts), own)?;
        let (reduce_scatter, count) = (self.nccl.collectives.reduce_scatter, own.len());
        // SAFETY: as in `all_reduce`; `input` holds `count` elements for every rank.
        let status = unsafe { reduce_scatter(from, to, count, kind, self.operation, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclReduceScatter", self.handle)
    }

    /// `elements` of the root's `input` into every `output`.
    pub fn broadcast(&mut self, (input, output): (&Tensor, &Tensor), elements: Range<usize>, root: u32) -> Result<()> {
        let (kind, from, to) = self.between(input, output, &elements, &elements)?;
        let (broadcast, count, root) = (self.nccl.collectives.broadcast, elements.len(), root as c_int);
        // SAFETY: as in `all_reduce`.
        let status = unsafe { broadcast(from, to, count, kind, root, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclBroadcast", self.handle)
    }

    /// Every rank's part of its `input` into every `output`: parts of one length, one behind the other.
    pub fn all_gather(&mut self, (input, output): (&Tensor, &Tensor), parts: &[Range<usize>]) -> Result<()> {
        let own = &parts[self.rank as usize];
        let (kind, from, to) = self.between(input, output, own, &span(parts))?;
        let (all_gather, count) = (self.nccl.collectives.all_gather, own.len());
        // SAFETY: as in `all_reduce`; `output` has room for `count` elements of every rank.
        let status = unsafe { all_gather(from, to, count, kind, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclAllGather", self.handle)
    }

    /// Sends each rank its part of `input`, and takes what comes from it to the same place of `output`, another tensor.
    pub fn all_to_all(&mut self, (input, output): (&Tensor, &Tensor), parts: &[Range<usize>]) -> Result<()> {
        self.in_group(|communicator| {
            parts
                .iter()
                .zip(0..)
                .try_for_each(|(part, rank)| communicator.send_and_receive((input, output), part.clone(), (rank, rank)))
        })
    }

    /// Sends `elements` of `input` to the next rank and receives as many from the one before into `output`, another tensor.
    pub fn send_receive(&mut self, arrays: (&Tensor, &Tensor), elements: Range<usize>) -> Result<()> {
        let (rank, ranks) = (self.rank, self.ranks);
        let neighbours = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        self.in_group(|communicator| communicator.send_and_receive(arrays, elements, neighbours))
    }

    /// Makes what `calls` enqueue one operation.
    pub fn in_group(&mut self, calls: impl FnOnce(&mut Communicator) -> Result<()>) -> Result<()> {
        let (start, end) = (self.nccl.collectives.group_start, self.nccl.collectives.group_end);
        // SAFETY: a group of this thread, ended below however the calls went.
        self.nccl.check(unsafe { start() }, "ncclGroupStart", self.handle)?;
        let called = calls(self);
        // SAFETY: as above.
        let ended = self.nccl.check(unsafe { end() }, "ncclGroupEnd", self.handle);
        called.and(ended)
    }

    fn send_and_receive(
        &mut self,
        (input, output): (&Tensor, &Tensor),
        elements: Range<usize>,
        (next, previous): (u32, u32),
    ) -> Result<()> {
        let (kind, from, to) = self.between(input, output, &elements, &elements)?;
        let (send, receive, count) = (self.nccl.collectives.send, self.nccl.collectives.receive, elements.len());
        // SAFETY: as in `all_reduce`.
        let status = unsafe { send(from, count, kind, next as c_int, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclSend", self.handle)?;
        // SAFETY: as in `all_reduce`.
        let status = unsafe { receive(to, count, kind, previous as c_int, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclRecv", self.handle)
    }

    /// Type, and where `read` begins in the input and `written` in the output.
    fn between(
        &self,
        input: &Tensor,
        output: &Tensor,
        read: &Range<usize>,
        written: &Range<usize>,
    ) -> Result<(ncclDataType_t, *const c_void, *mut c_void)> {
        let (kind, from) = self.position(input, read)?;
        let (other, to) = self.position(output, written)?;
        ensure!(kind == other, "NCCL has one type, not {:?} to {:?}", input.kind(), output.kind());
        Ok((kind, from.cast_const(), to))
    }
}

/// Of parts that lie one behind the other.
fn span(parts: &[Range<usize>]) -> Range<usize> {
    parts.first().map_or(0, |part| part.start)..parts.last().map_or(0, |part| part.end)
}

//! NCCL operations on a communicator's stream. All only enqueue: the tensors must live until the stream has passed
//! them.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use anyhow::{Result, ensure};
use cudarc::nccl::sys::{ncclDataType_t, ncclRedOp_t};
use ringmark_core::dimension::Reduction;

use crate::ffi::group::{Buffers, Neighbors};
use crate::ffi::nccl::communicator::Communicator;

/// Every tensor is contiguous on the communicator's device; input and output have the same type, fp32, fp16 or bf16.
/// They may be the same tensor unless stated otherwise. Every rank makes the same calls.
impl Communicator {
    pub fn set_reduction(&mut self, reduction: Reduction) {
        self.operation = match reduction {
            Reduction::Sum => ncclRedOp_t::ncclSum,
            Reduction::Max => ncclRedOp_t::ncclMax,
            Reduction::Avg => ncclRedOp_t::ncclAvg,
        };
    }

    /// Reduces `elements` of the input over all ranks into the same elements of every output.
    pub fn all_reduce(&mut self, buffers: Buffers, elements: Range<usize>) -> Result<()> {
        let (kind, from, to) = self.between(buffers, &elements, &elements)?;
        let (all_reduce, count) = (self.nccl.all_reduce, elements.len());
        // SAFETY: both pointers are to `count` contiguous elements of `kind` on this communicator's device; the caller
        // guarantees that they stay alive.
        let status = unsafe { all_reduce(from, to, count, kind, self.operation, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclAllReduce", self.handle)
    }

    /// Reduces `elements` of the input over all ranks into the same elements of the root's output.
    pub fn reduce(&mut self, buffers: Buffers, elements: Range<usize>, root: u32) -> Result<()> {
        let (kind, from, to) = self.between(buffers, &elements, &elements)?;
        let (reduce, count, root) = (self.nccl.reduce, elements.len(), root as c_int);
        // SAFETY: as in `all_reduce`.
        let status = unsafe { reduce(from, to, count, kind, self.operation, root, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclReduce", self.handle)
    }

    /// Reduces the input over all ranks; each rank gets its part. Parts are contiguous and of equal length.
    pub fn reduce_scatter(&mut self, buffers: Buffers, parts: &[Range<usize>]) -> Result<()> {
        let own = &parts[self.rank as usize];
        let (kind, from, to) = self.between(buffers, &span(parts), own)?;
        let (reduce_scatter, count) = (self.nccl.reduce_scatter, own.len());
        // SAFETY: as in `all_reduce`; `input` has `count` elements for every rank.
        let status = unsafe { reduce_scatter(from, to, count, kind, self.operation, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclReduceScatter", self.handle)
    }

    /// Copies `elements` of the root's input to every output.
    pub fn broadcast(&mut self, buffers: Buffers, elements: Range<usize>, root: u32) -> Result<()> {
        let (kind, from, to) = self.between(buffers, &elements, &elements)?;
        let (broadcast, count, root) = (self.nccl.broadcast, elements.len(), root as c_int);
        // SAFETY: as in `all_reduce`.
        let status = unsafe { broadcast(from, to, count, kind, root, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclBroadcast", self.handle)
    }

    /// Copies every rank's part of its input to every output. Parts are contiguous and of equal length.
    pub fn all_gather(&mut self, buffers: Buffers, parts: &[Range<usize>]) -> Result<()> {
        let own = &parts[self.rank as usize];
        let (kind, from, to) = self.between(buffers, own, &span(parts))?;
        let (all_gather, count) = (self.nccl.all_gather, own.len());
        // SAFETY: as in `all_reduce`; `output` is large enough for `count` elements of every rank.
        let status = unsafe { all_gather(from, to, count, kind, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclAllGather", self.handle)
    }

    /// Sends each rank its part of the input, and receives the data from each rank in the same part of the output,
    /// which is another tensor.
    pub fn all_to_all(&mut self, buffers: Buffers, parts: &[Range<usize>]) -> Result<()> {
        self.in_group(|communicator| {
            parts.iter().zip(0..).try_for_each(|(part, rank)| {
                communicator.send_and_receive(
                    buffers,
                    part.clone(),
                    Neighbors { next: Some(rank), previous: Some(rank) },
                )
            })
        })
    }

    /// Sends `elements` of the input to the next rank, if there is one, and receives those of the previous one in the
    /// output, which is another tensor.
    pub fn send_receive(&mut self, buffers: Buffers, elements: Range<usize>, neighbors: Neighbors) -> Result<()> {
        self.in_group(|communicator| communicator.send_and_receive(buffers, elements, neighbors))
    }

    /// Fuses the operations that `calls` enqueues into one NCCL group.
    pub fn in_group(&mut self, calls: impl FnOnce(&mut Communicator) -> Result<()>) -> Result<()> {
        let (start, end) = (self.nccl.group_start, self.nccl.group_end);
        // SAFETY: a group of this thread, which is ended below even after an error.
        self.nccl.check(unsafe { start() }, "ncclGroupStart", self.handle)?;
        let called = calls(self);
        // SAFETY: as above.
        let ended = self.nccl.check(unsafe { end() }, "ncclGroupEnd", self.handle);
        called.and(ended)
    }

    fn send_and_receive(
        &mut self,
        buffers: Buffers,
        elements: Range<usize>,
        Neighbors { next, previous }: Neighbors,
    ) -> Result<()> {
        let (kind, from, to) = self.between(buffers, &elements, &elements)?;
        let (send, receive, count) = (self.nccl.send, self.nccl.receive, elements.len());
        if let Some(next) = next {
            // SAFETY: as in `all_reduce`.
            let status = unsafe { send(from, count, kind, next as c_int, self.handle, self.stream_handle) };
            self.nccl.check(status, "ncclSend", self.handle)?;
        }
        let Some(previous) = previous else { return Ok(()) };
        // SAFETY: as in `all_reduce`.
        let status = unsafe { receive(to, count, kind, previous as c_int, self.handle, self.stream_handle) };
        self.nccl.check(status, "ncclRecv", self.handle)
    }

    /// Returns the type, the address of `read` in the input and the address of `written` in the output.
    fn between(
        &self,
        Buffers { input, output }: Buffers,
        read: &Range<usize>,
        written: &Range<usize>,
    ) -> Result<(ncclDataType_t, *const c_void, *mut c_void)> {
        let (kind, from) = self.position(input, read)?;
        let (other, to) = self.position(output, written)?;
        ensure!(kind == other, "NCCL cannot convert {:?} to {:?}", input.kind(), output.kind());
        Ok((kind, from.cast_const(), to))
    }
}

/// Returns the range that contiguous parts cover.
fn span(parts: &[Range<usize>]) -> Range<usize> {
    parts.first().map_or(0, |part| part.start)..parts.last().map_or(0, |part| part.end)
}

//! Blocking collectives of MPI over all ranks. The all-reduce and the common parts are in
//! [`communicator`](crate::ffi::mpi::communicator).

use std::ffi::c_int;
use std::ops::Range;

use anyhow::{Result, ensure};
use mpi::ffi;
use mpi::raw::AsRaw;
use tch::Tensor;

use crate::ffi::group::{Buffers, Neighbors};
use crate::ffi::mpi::calls::Message;
use crate::ffi::mpi::calls::{check, count, in_place};
use crate::ffi::mpi::communicator::Communicator;

/// Counts and displacements of the parts of an array, as MPI requires them, relative to the first element of all parts.
struct Parts {
    first: usize,
    counts: Vec<c_int>,
    starts: Vec<c_int>,
}

impl Parts {
    fn new(parts: &[Range<usize>]) -> Result<Parts> {
        let first = parts.iter().map(|part| part.start).min().unwrap_or(0);
        Ok(Parts {
            first,
            counts: parts.iter().map(|part| count(part.len())).collect::<Result<_>>()?,
            starts: parts.iter().map(|part| count(part.start - first)).collect::<Result<_>>()?,
        })
    }

    /// Returns the range from the first element of the parts to the last.
    fn span(&self, parts: &[Range<usize>]) -> Range<usize> {
        self.first..parts.iter().map(|part| part.end).max().unwrap_or(self.first)
    }
}

/// Every tensor is contiguous in host memory; input and output have the same type, fp32, fp16 or bf16. Every rank makes
/// the same calls with the same elements. Input and output may be the same tensor unless stated otherwise.
impl Communicator {
    /// Sums `elements` of every rank's input into the output of rank `root`.
    pub fn reduce(&self, buffers: Buffers, elements: Range<usize>, root: u32) -> Result<()> {
        let (from, to) = self.between(buffers, &elements)?;
        let is_in_place = self.rank() == root as usize && from.position == to.position;
        let source = if is_in_place { in_place() } else { from.position.cast_const() };
        let Message { position, count, kind, operation, .. } = to;
        // SAFETY: both tensors have `count` elements from these positions, and no other code accesses them during the
        // call.
        let status =
            unsafe { ffi::MPI_Reduce(source, position, count, kind, operation, root as c_int, self.ranks.as_raw()) };
        check("MPI_Reduce", status)
    }

    /// Sums every rank's input; each rank gets its part in its output. MPI requires the parts to be contiguous, so they
    /// are copied together first.
    pub fn reduce_scatter(&self, Buffers { input, output }: Buffers, parts: &[Range<usize>]) -> Result<()> {
        let pieces: Vec<Tensor> = parts
            .iter()
            .map(|part| Ok(input.f_narrow(0, part.start as i64, part.len() as i64)?))
            .collect::<Result<_>>()?;
        let together = Tensor::f_cat(&pieces, 0)?;
        let from = self.message(&together, &(0..together.numel()))?.position.cast_const();
        let Message { position, kind, operation, .. } = self.message(output, &parts[self.rank()])?;
        let counts = Parts::new(parts)?.counts;
        // SAFETY: `together` has the elements of all parts, `output` those of this rank's; there are as many parts as
        // ranks.
        let status =
            unsafe { ffi::MPI_Reduce_scatter(from, position, counts.as_ptr(), kind, operation, self.ranks.as_raw()) };
        check("MPI_Reduce_scatter", status)
    }

    /// Overwrites `elements` of every rank's `tensor` with those of rank `root`.
    pub fn broadcast(&self, tensor: &Tensor, elements: Range<usize>, root: u32) -> Result<()> {
        let Message { position, count, kind, .. } = self.message(tensor, &elements)?;
        // SAFETY: as in `reduce`.
        let status = unsafe { ffi::MPI_Bcast(position, count, kind, root as c_int, self.ranks.as_raw()) };
        check("MPI_Bcast", status)
    }

    /// Copies every rank's part of its input to every rank's output.
    pub fn all_gather(&self, buffers: Buffers, parts: &[Range<usize>]) -> Result<()> {
        let mpi_parts = Parts::new(parts)?;
        let (from, to) = self.between(buffers, &parts[self.rank()])?;
        let source = if from.position == to.position { in_place() } else { from.position.cast_const() };
        let Message { position, kind, .. } = self.message(buffers.output, &mpi_parts.span(parts))?;
        let Parts { counts, starts, .. } = &mpi_parts;
        // SAFETY: `output` contains every part at its start, relative to the span's first element.
        let status = unsafe {
            ffi::MPI_Allgatherv(
                source,
                from.count,
                kind,
                position,
                counts.as_ptr(),
                starts.as_ptr(),
                kind,
                self.ranks.as_raw(),
            )
        };
        check("MPI_Allgatherv", status)
    }

    /// Sends every rank its part of the input, and receives the data from each rank in that rank's part of the output,
    /// which is another tensor.
    pub fn all_to_all(&self, buffers: Buffers, parts: &[Range<usize>]) -> Result<()> {
        let mpi_parts = Parts::new(parts)?;
        let (from, to) = self.between(buffers, &mpi_parts.span(parts))?;
        let Parts { counts, starts, .. } = &mpi_parts;
        // SAFETY: as in `all_gather`, for both tensors; the caller guarantees that they do not overlap.
        let status = unsafe {
            ffi::MPI_Alltoallv(
                from.position.cast_const(),
                counts.as_ptr(),
                starts.as_ptr(),
                from.kind,
                to.position,
                counts.as_ptr(),
                starts.as_ptr(),
                to.kind,
                self.ranks.as_raw(),
            )
        };
        check("MPI_Alltoallv", status)
    }

    /// Sends `elements` of the input to the next rank, if there is one, and receives those of the previous one in the
    /// output, which is another tensor.
    pub fn send_receive(&self, buffers: Buffers, elements: Range<usize>, neighbors: Neighbors) -> Result<()> {
        const TAG: c_int = 0;
        // SAFETY: a constant of the library.
        let rank = |partner: Option<u32>| partner.map_or(unsafe { ffi::RSMPI_PROC_NULL }, |rank| rank as c_int);
        let (sent, received) = self.between(buffers, &elements)?;
        // SAFETY: as in `reduce`; the status is ignored.
        let status = unsafe {
            ffi::MPI_Sendrecv(
                sent.position.cast_const(),
                sent.count,
                sent.kind,
                rank(neighbors.next),
                TAG,
                received.position,
                received.count,
                received.kind,
                rank(neighbors.previous),
                TAG,
                self.ranks.as_raw(),
                ffi::RSMPI_STATUS_IGNORE,
            )
        };
        check("MPI_Sendrecv", status)
    }

    fn between(&self, Buffers { input, output }: Buffers, elements: &Range<usize>) -> Result<(Message, Message)> {
        ensure!(input.kind() == output.kind(), "MPI cannot convert {:?} to {:?}", input.kind(), output.kind());
        Ok((self.message(input, elements)?, self.message(output, elements)?))
    }
}

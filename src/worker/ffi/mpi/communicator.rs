//! MPI reductions that rsmpi lacks: in place, nonblocking and in half precision. The blocking collectives other than
//! the all-reduce are in `collectives`.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use anyhow::{Result, bail, ensure};
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as _;
use ringmark_core::dimension::Reduction;
use tch::{Device, Kind, Tensor};

use crate::ffi::group::Buffers;
use crate::ffi::memory::element::Element;
use crate::ffi::memory::sums::{self, Combination};
use crate::ffi::mpi::calls::{Group, Message, check, count, in_place, is_complete, start};
use crate::ffi::mpi::parts::{PartSums, Root};

/// Communicator with sums and maxima of fp16 and bfloat16, which MPI lacks: added in fp32 and rounded after every
/// addition.
pub struct Communicator {
    /// The ranks that add.
    pub(super) ranks: SimpleCommunicator,
    half: ffi::MPI_Op,
    bfloat: ffi::MPI_Op,
    largest_half: ffi::MPI_Op,
    largest_bfloat: ffi::MPI_Op,
    /// True for the maximum, false for the sum.
    is_largest: bool,
}

// SAFETY: MPI handles may be used from any thread.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Registers the operations for these ranks. MPI must be initialized.
    pub fn new(ranks: SimpleCommunicator) -> Result<Communicator> {
        let register = |function: ffi::MPI_User_function| -> Result<ffi::MPI_Op> {
            // SAFETY: a null handle, overwritten by MPI_Op_create.
            let mut operation = unsafe { std::mem::zeroed() };
            // SAFETY: `function` has the right signature and is commutative (1).
            check("MPI_Op_create", unsafe { ffi::MPI_Op_create(function, 1, &mut operation) })?;
            Ok(operation)
        };
        Ok(Communicator {
            ranks,
            half: register(Some(add_halves))?,
            bfloat: register(Some(add_bfloats))?,
            largest_half: register(Some(largest_halves))?,
            largest_bfloat: register(Some(largest_bfloats))?,
            is_largest: false,
        })
    }

    /// Sets the reduction of the following calls. MPI has no average: it is summed, and the caller divides.
    pub fn set_reduction(&mut self, reduction: Reduction) {
        self.is_largest = reduction == Reduction::Max;
    }

    pub(super) fn rank(&self) -> usize {
        self.ranks.rank() as usize
    }

    /// Sums `elements` of the input over all ranks into the output, which may be the input. Both are contiguous in host
    /// memory and of the same type, fp32, fp16 or bf16. Every rank calls this with the same elements.
    pub fn all_reduce(&self, Buffers { input, output }: Buffers, elements: Range<usize>) -> Result<()> {
        ensure!(input.kind() == output.kind(), "MPI cannot convert {:?} to {:?} in a sum", input.kind(), output.kind());
        let from = self.message(input, &elements)?.position.cast_const();
        let message = self.message(output, &elements)?;
        let from = if from == message.position.cast_const() { in_place() } else { from };
        let Message { position, count, kind, operation, .. } = message;
        // SAFETY: both tensors have `count` elements from these positions, and no other code accesses them during the
        // call.
        let status = unsafe { ffi::MPI_Allreduce(from, position, count, kind, operation, self.ranks.as_raw()) };
        check("MPI_Allreduce", status)
    }

    /// Starts the sum of `elements` of `tensor` over `ranks`, in place and added in fp32. The tensor must live until
    /// the request is complete.
    pub fn start_all_reduce(&self, tensor: &Tensor, elements: Range<usize>, ranks: &Group) -> Result<Request> {
        let message = self.message(tensor, &elements)?;
        let Message { position, count, kind, operation, element } = message;
        if element == Element::Float && ranks.parts() == 1 {
            let ranks = ranks.first.as_raw();
            // SAFETY: as in `all_reduce`; the caller guarantees that the memory stays until the request is complete.
            return Request::start("MPI_Iallreduce", |request| unsafe {
                ffi::MPI_Iallreduce(in_place(), position, count, kind, operation, ranks, request)
            });
        }
        self.start_parts(message, ranks, None)
    }

    /// Starts a sum like [`start_all_reduce`](Communicator::start_all_reduce) with the result on `root` alone; the elements of
    /// the other ranks are undefined afterwards.
    pub fn start_reduce(&self, tensor: &Tensor, elements: Range<usize>, ranks: &Group, root: Root) -> Result<Request> {
        let message = self.message(tensor, &elements)?;
        let Message { position, count, kind, operation, element } = message;
        if element == Element::Float && !root.direct {
            let is_root = ranks.first.rank() == root.rank;
            let ranks = ranks.first.as_raw();
            let from = if is_root { in_place() } else { position.cast_const() };
            // SAFETY: as in `start_all_reduce`; MPI writes only on the root.
            return Request::start("MPI_Ireduce", |request| unsafe {
                ffi::MPI_Ireduce(from, position, count, kind, operation, root.rank, ranks, request)
            });
        }
        self.start_parts(message, ranks, Some(root))
    }

    /// Starts to send `elements` of the root's `tensor` to all ranks of the group. The tensor must live until the
    /// request is complete.
    pub fn start_broadcast(
        &self,
        tensor: &Tensor,
        elements: Range<usize>,
        ranks: &Group,
        root: c_int,
    ) -> Result<Request> {
        let Message { position, count, kind, .. } = self.message(tensor, &elements)?;
        let ranks = ranks.first.as_raw();
        // SAFETY: the tensor has `count` elements from this position, and the caller guarantees that it stays.
        Request::start("MPI_Ibcast", |request| unsafe { ffi::MPI_Ibcast(position, count, kind, root, ranks, request) })
    }

    /// Starts to send `elements` of `tensor` to one of the ranks, which receives them with the same `tag`.
    pub fn start_send(&self, tensor: &Tensor, elements: Range<usize>, to: c_int, tag: c_int) -> Result<Request> {
        let Message { position, count, kind, .. } = self.message(tensor, &elements)?;
        // SAFETY: as in `start_broadcast`.
        Request::start("MPI_Isend", |request| unsafe {
            ffi::MPI_Isend(position.cast_const(), count, kind, to, tag, self.ranks.as_raw(), request)
        })
    }

    /// Starts to receive `elements` of `tensor` from one of the ranks.
    pub fn start_receive(&self, tensor: &Tensor, elements: Range<usize>, from: c_int, tag: c_int) -> Result<Request> {
        let Message { position, count, kind, .. } = self.message(tensor, &elements)?;
        // SAFETY: as in `start_broadcast`.
        Request::start("MPI_Irecv", |request| unsafe {
            ffi::MPI_Irecv(position, count, kind, from, tag, self.ranks.as_raw(), request)
        })
    }

    fn start_parts(&self, message: Message, ranks: &Group, root: Option<Root>) -> Result<Request> {
        let combination = Combination { is_largest: self.is_largest, ..Combination::SUM };
        let mut parts = Box::new(PartSums::new(message, combination, ranks, root)?);
        let handle = parts.exchange()?;
        Ok(Request { handle, parts: Some(parts), is_done: false })
    }

    pub(super) fn message(&self, tensor: &Tensor, elements: &Range<usize>) -> Result<Message> {
        ensure!(tensor.is_contiguous(), "the tensor is not contiguous");
        ensure!(tensor.device() == Device::Cpu, "MPI needs host memory, not {:?}", tensor.device());
        ensure!(elements.start <= elements.end && elements.end <= tensor.numel(), "{elements:?} of {}", tensor.numel());
        // SAFETY: MPI is initialized; these are its constants.
        let (kind, [sum, largest], element) = unsafe {
            match tensor.kind() {
                Kind::Float => (ffi::RSMPI_FLOAT, [ffi::RSMPI_SUM, ffi::RSMPI_MAX], Element::Float),
                Kind::Half => (ffi::RSMPI_UINT16_T, [self.half, self.largest_half], Element::Half),
                Kind::BFloat16 => (ffi::RSMPI_UINT16_T, [self.bfloat, self.largest_bfloat], Element::BFloat16),
                other => bail!("MPI sums fp32, fp16 and bf16, not {other:?}"),
            }
        };
        let position = tensor.data_ptr().wrapping_byte_add(elements.start * element.bytes());
        let operation = if self.is_largest { largest } else { sum };
        Ok(Message { position, count: count(elements.len())?, kind, operation, element })
    }
}

/// A pending nonblocking operation.
pub struct Request {
    handle: ffi::MPI_Request,
    /// Present for a sum to which this rank contributes a part.
    parts: Option<Box<PartSums>>,
    is_done: bool,
}

// SAFETY: MPI handles may be used from any thread, and nothing else uses the memory that they refer to until they are
// complete.
unsafe impl Send for Request {}

impl Request {
    fn start(name: &str, call: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<Request> {
        Ok(Request { handle: start(name, call)?, parts: None, is_done: false })
    }

    /// Returns true if this rank has added its part. Poll the requests of a group in the order in which they were
    /// started, each only after the previous one has returned true.
    pub fn is_added(&mut self) -> Result<bool> {
        let Some(parts) = self.parts.as_mut().filter(|parts| !parts.is_added) else { return Ok(true) };
        if !is_complete(&mut self.handle)? {
            return Ok(false);
        }
        parts.add();
        if let Some(request) = parts.gather()? {
            self.handle = request;
        }
        Ok(true)
    }

    /// Returns true if the operation is complete. MPI moves data only inside its calls, so polling is what makes
    /// progress.
    pub fn is_done(&mut self) -> Result<bool> {
        if !self.is_done && self.is_added()? {
            self.is_done = is_complete(&mut self.handle)?;
        }
        Ok(self.is_done)
    }
}

/// Defines the callback of a user-defined MPI operation.
macro_rules! operation {
    ($name:ident, $element:expr, $is_largest:literal) => {
        unsafe extern "C" fn $name(
            input: *mut c_void,
            inout: *mut c_void,
            length: *mut c_int,
            _: *mut ffi::MPI_Datatype,
        ) {
            let combination = Combination { is_largest: $is_largest, ..Combination::SUM };
            // SAFETY: MPI passes arrays of this type.
            unsafe { combine(combination, $element, input, inout, length) };
        }
    };
}

operation!(add_halves, Element::Half, false);
operation!(add_bfloats, Element::BFloat16, false);
operation!(largest_halves, Element::Half, true);
operation!(largest_bfloats, Element::BFloat16, true);

/// Combines `input[i]` into `inout[i]` for `*length` elements.
///
/// # Safety
/// Both arrays must have `*length` elements, as MPI passes them to an operation.
unsafe fn combine(
    combination: Combination,
    element: Element,
    input: *mut c_void,
    inout: *mut c_void,
    length: *mut c_int,
) {
    let (input, inout) = (input.cast(), inout.cast());
    // SAFETY: guaranteed by the caller; the receiver is one of the sources.
    unsafe {
        let length = usize::try_from(*length).unwrap_or(0);
        sums::combine(combination, &[inout, input], element, &[inout], element, length, false);
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn half_sums_cross_block_boundaries() {
        let mut input: Vec<f16> = (0..2500).map(|index| f16::from_f32((index % 2000) as f32)).collect();
        let mut inout = vec![f16::from_f32(1.0); 2500];
        let mut length = 2500;
        // SAFETY: both arrays have `length` halves.
        unsafe {
            add_halves(input.as_mut_ptr().cast(), inout.as_mut_ptr().cast(), &mut length, std::ptr::null_mut());
        }
        for (index, sum) in inout.iter().enumerate() {
            assert_eq!(sum.to_f32(), (index % 2000) as f32 + 1.0, "{index}");
        }
    }
}

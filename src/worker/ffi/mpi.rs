//! The MPI calls that rsmpi lacks: sums in place, without waiting, and of half precision.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use anyhow::{Result, bail, ensure};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::SimpleCommunicator;
use tch::{Device, Kind, Tensor};

/// The sums that MPI lacks: of fp16 and of bfloat16, added in fp32 and rounded after every addition.
pub struct Sums {
    half: ffi::MPI_Op,
    bfloat: ffi::MPI_Op,
}

// SAFETY: MPI handles may be used from any thread.
unsafe impl Send for Sums {}

/// What one call of MPI sums.
struct Message {
    position: *mut c_void,
    count: c_int,
    kind: ffi::MPI_Datatype,
    operation: ffi::MPI_Op,
}

impl Sums {
    /// Registers the operations; MPI must be initialized.
    pub fn new() -> Result<Sums> {
        let register = |function: ffi::MPI_User_function| -> Result<ffi::MPI_Op> {
            // SAFETY: a null handle, overwritten by MPI_Op_create.
            let mut operation = unsafe { std::mem::zeroed() };
            // SAFETY: `function` has the right signature; its sum is commutative (1).
            check("MPI_Op_create", unsafe { ffi::MPI_Op_create(function, 1, &mut operation) })?;
            Ok(operation)
        };
        Ok(Sums { half: register(Some(add_halves::<f16>))?, bfloat: register(Some(add_halves::<bf16>))? })
    }

    /// Sums `elements` of `input` over all ranks into `output`, which may be `input`. Both lie contiguous in host memory,
    /// of one type, fp32, fp16 or bf16, and every rank calls this with the same elements.
    pub fn all_reduce(&self, input: &Tensor, output: &Tensor, elements: Range<usize>) -> Result<()> {
        ensure!(input.kind() == output.kind(), "MPI sums one type, not {:?} to {:?}", input.kind(), output.kind());
        let from = self.message(input, &elements)?.position.cast_const();
        let message = self.message(output, &elements)?;
        let from = if from == message.position.cast_const() { in_place() } else { from };
        let Message { position, count, kind, operation } = message;
        // SAFETY: `count` elements from both positions on belong to the tensors, and nobody else touches them now.
        let status = unsafe { ffi::MPI_Allreduce(from, position, count, kind, operation, ffi::RSMPI_COMM_WORLD) };
        check("MPI_Allreduce", status)
    }

    /// Starts the sum of `elements` of `tensor` over `ranks`, in place. The tensor must live until the request is done.
    pub fn start_all_reduce(&self, tensor: &Tensor, elements: Range<usize>, ranks: &Group) -> Result<Request> {
        let Message { position, count, kind, operation } = self.message(tensor, &elements)?;
        // SAFETY: a null handle, overwritten by MPI_Iallreduce.
        let mut request = unsafe { std::mem::zeroed() };
        // SAFETY: as in `all_reduce`; the memory stays until the request is done by the caller's promise.
        let status = unsafe {
            ffi::MPI_Iallreduce(in_place(), position, count, kind, operation, ranks.0.as_raw(), &mut request)
        };
        check("MPI_Iallreduce", status)?;
        Ok(Request { handle: request, is_done: false })
    }

    fn message(&self, tensor: &Tensor, elements: &Range<usize>) -> Result<Message> {
        ensure!(tensor.is_contiguous(), "only contiguous memory is exchanged");
        ensure!(tensor.device() == Device::Cpu, "MPI sums host memory, not {:?}", tensor.device());
        ensure!(elements.start <= elements.end && elements.end <= tensor.numel(), "{elements:?} of {}", tensor.numel());
        // SAFETY: MPI is initialized; these are constants of it.
        let (kind, operation, size) = unsafe {
            match tensor.kind() {
                Kind::Float => (ffi::RSMPI_FLOAT, ffi::RSMPI_SUM, 4),
                Kind::Half => (ffi::RSMPI_UINT16_T, self.half, 2),
                Kind::BFloat16 => (ffi::RSMPI_UINT16_T, self.bfloat, 2),
                other => bail!("MPI sums fp32, fp16 and bf16, not {other:?}"),
            }
        };
        let Ok(count) = c_int::try_from(elements.len()) else {
            bail!("one MPI call sums fewer than 2^31 elements, not {}: set --chunk-kb", elements.len());
        };
        Ok(Message { position: tensor.data_ptr().wrapping_byte_add(elements.start * size), count, kind, operation })
    }
}

/// Some of the ranks, as MPI knows them.
pub struct Group(pub SimpleCommunicator);

// SAFETY: MPI handles may be used from any thread.
unsafe impl Send for Group {}

/// A sum on its way.
pub struct Request {
    handle: ffi::MPI_Request,
    is_done: bool,
}

// SAFETY: MPI handles may be used from any thread.
unsafe impl Send for Request {}

impl Request {
    /// Whether the sum is there. MPI moves data only inside its calls: asking is what brings it on.
    pub fn is_done(&mut self) -> Result<bool> {
        if !self.is_done {
            let mut flag: c_int = 0;
            // SAFETY: a handle that MPI_Iallreduce made; the status is not wanted.
            let status = unsafe { ffi::MPI_Test(&mut self.handle, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
            check("MPI_Test", status)?;
            self.is_done = flag != 0;
        }
        Ok(self.is_done)
    }
}

fn check(call: &str, status: c_int) -> Result<()> {
    ensure!(status == ffi::MPI_SUCCESS as c_int, "{call} returned {status}");
    Ok(())
}

/// MPI_IN_PLACE is a cast in a C macro, which bindings do not carry over. 1 is Open MPI's value; another MPI library
/// has another, and no constant of the name below, so that it is refused by the compiler.
fn in_place() -> *const c_void {
    const _: u32 = ffi::OMPI_MAJOR_VERSION;
    std::ptr::without_provenance(1)
}

/// `inout[i] += input[i]` for `*length` elements of `T`, 16 bits each.
unsafe extern "C" fn add_halves<T>(
    input: *mut c_void,
    inout: *mut c_void,
    length: *mut c_int,
    _datatype: *mut ffi::MPI_Datatype,
) where
    [T]: HalfFloatSliceExt,
{
    // SAFETY: MPI passes two arrays of `*length` elements of the datatype given to MPI_Allreduce, 16 bits each.
    let (input, inout) = unsafe {
        let length = usize::try_from(*length).unwrap_or(0);
        (
            std::slice::from_raw_parts(input.cast::<T>(), length),
            std::slice::from_raw_parts_mut(inout.cast::<T>(), length),
        )
    };
    const BLOCK: usize = 1024;
    let (mut left, mut right) = ([0f32; BLOCK], [0f32; BLOCK]);
    for (input, inout) in input.chunks(BLOCK).zip(inout.chunks_mut(BLOCK)) {
        let (left, right) = (&mut left[..input.len()], &mut right[..input.len()]);
        input.convert_to_f32_slice(left);
        inout.convert_to_f32_slice(right);
        for (right, left) in right.iter_mut().zip(left) {
            *right += *left;
        }
        inout.convert_from_f32_slice(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_added_over_block_borders() {
        let mut input: Vec<f16> = (0..2500).map(|index| f16::from_f32((index % 2000) as f32)).collect();
        let mut inout = vec![f16::from_f32(1.0); 2500];
        let mut length = 2500;
        // SAFETY: both arrays have `length` halves.
        unsafe {
            add_halves::<f16>(input.as_mut_ptr().cast(), inout.as_mut_ptr().cast(), &mut length, std::ptr::null_mut());
        }
        for (index, sum) in inout.iter().enumerate() {
            assert_eq!(sum.to_f32(), (index % 2000) as f32 + 1.0, "{index}");
        }
    }
}

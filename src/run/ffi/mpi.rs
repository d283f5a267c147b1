//! The MPI calls that rsmpi lacks: sums in place, of single and of half precision.

use std::ffi::{c_int, c_void};

use anyhow::{Result, ensure};
use half::f16;
use half::slice::HalfFloatSliceExt;
use mpi::ffi;
use tch::{Kind, Tensor};

/// Longest message of one MPI_Allreduce in bytes: longer ones fall out of the caches of Open MPI's shared memory
/// transport and run at half the speed.
const PIECE_BYTES: usize = 4 << 20;

/// Sums `tensor` over all ranks of the world, in place. It lies contiguous in host memory, fp32 or fp16, and has the
/// same length on every rank. fp16 is added in fp32 and rounded after every addition.
pub fn all_reduce_sum(tensor: &Tensor, half_sum: &HalfSum) -> Result<()> {
    ensure!(tensor.is_contiguous(), "only contiguous memory is exchanged");
    ensure!(tensor.device() == tch::Device::Cpu, "MPI sums host memory, not {:?}", tensor.device());
    // SAFETY: MPI is initialized; these are constants of it.
    let (kind, operation, size) = unsafe {
        match tensor.kind() {
            Kind::Float => (ffi::RSMPI_FLOAT, ffi::RSMPI_SUM, 4),
            Kind::Half => (ffi::RSMPI_UINT16_T, half_sum.operation, 2),
            other => anyhow::bail!("MPI sums fp32 and fp16, not {other:?}"),
        }
    };
    let mut rest = tensor.numel();
    let mut position: *mut c_void = tensor.data_ptr();
    while rest > 0 {
        let count = rest.min(PIECE_BYTES / size);
        // SAFETY: `count` elements from `position` on belong to the tensor, and nobody else touches them now.
        let status =
            unsafe { ffi::MPI_Allreduce(in_place(), position, count as c_int, kind, operation, ffi::RSMPI_COMM_WORLD) };
        ensure!(status == ffi::MPI_SUCCESS as c_int, "MPI_Allreduce of {count} elements returned {status}");
        rest -= count;
        position = position.wrapping_byte_add(count * size);
    }
    Ok(())
}

/// MPI_IN_PLACE is a cast in a C macro, which bindings do not carry over. 1 is Open MPI's value; another MPI library
/// has another, and no constant of the name below, so that it is refused by the compiler.
fn in_place() -> *const c_void {
    const _: u32 = ffi::OMPI_MAJOR_VERSION;
    std::ptr::without_provenance(1)
}

/// The sum of half-precision numbers, which MPI does not have.
pub struct HalfSum {
    operation: ffi::MPI_Op,
}

// SAFETY: an MPI handle may be used from any thread.
unsafe impl Send for HalfSum {}

impl HalfSum {
    /// Registers the operation; MPI must be initialized.
    pub fn new() -> Result<HalfSum> {
        // SAFETY: a null handle, overwritten by MPI_Op_create.
        let mut operation = unsafe { std::mem::zeroed() };
        // SAFETY: `add_halves` has the signature of MPI_User_function; the sum is commutative (1).
        let status = unsafe { ffi::MPI_Op_create(Some(add_halves), 1, &mut operation) };
        ensure!(status == ffi::MPI_SUCCESS as c_int, "MPI_Op_create returned {status}");
        Ok(HalfSum { operation })
    }
}

/// `inout[i] += input[i]` for `*length` halves.
unsafe extern "C" fn add_halves(
    input: *mut c_void,
    inout: *mut c_void,
    length: *mut c_int,
    _datatype: *mut ffi::MPI_Datatype,
) {
    // SAFETY: MPI passes two arrays of `*length` elements of the datatype given to MPI_Allreduce, 16 bits each.
    let (input, inout) = unsafe {
        let length = usize::try_from(*length).unwrap_or(0);
        (
            std::slice::from_raw_parts(input.cast::<f16>(), length),
            std::slice::from_raw_parts_mut(inout.cast::<f16>(), length),
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
            add_halves(input.as_mut_ptr().cast(), inout.as_mut_ptr().cast(), &mut length, std::ptr::null_mut());
        }
        for (index, sum) in inout.iter().enumerate() {
            assert_eq!(sum.to_f32(), (index % 2000) as f32 + 1.0, "{index}");
        }
    }
}

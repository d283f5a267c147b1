//! Tensors in host memory as slices, and arrays that libtorch accesses as tensors and sockets as bytes, from several threads. Callers
//! guarantee that accesses do not conflict, as in [`shared_window`](crate::ffi::memory::shared_window).

use std::io::{self, Read, Write};
use std::ops::Range;
use std::ptr::NonNull;

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::shim;

/// Bytes of a huge page on x86-64, and on aarch64 with pages of 4 kB.
const HUGE_PAGE: usize = 2 << 20;

/// A flat tensor of one type in host memory, shared by several threads.
pub struct HostArray {
    tensor: Tensor,
    base: NonNull<u8>,
    elements: usize,
    /// Size of an element in bytes.
    size: usize,
}

// SAFETY: the memory belongs to the tensor, which lives as long as this; its size and address never change, and callers
// guarantee that accesses to an element do not conflict.
unsafe impl Send for HostArray {}
// SAFETY: as above; `tensor` returns references to one storage, whose reference count is atomic.
unsafe impl Sync for HostArray {}

impl HostArray {
    /// Wraps the memory of `tensor`, which must be flat and in host memory.
    pub fn new(tensor: Tensor) -> Result<HostArray> {
        ensure!(tensor.device() == Device::Cpu, "expected host memory, got {:?}", tensor.device());
        ensure!(tensor.is_contiguous() && tensor.dim() == 1, "expected one contiguous row, got {:?}", tensor.size());
        let (elements, size) = (tensor.numel(), tensor.kind().elt_size_in_bytes());
        let base = NonNull::new(tensor.data_ptr().cast()).unwrap_or(NonNull::dangling());
        Ok(HostArray { tensor, base, elements, size })
    }

    pub fn zeros(elements: usize, kind: Kind) -> Result<HostArray> {
        HostArray::new(Tensor::f_zeros([elements as i64], (kind, Device::Cpu))?)
    }

    /// Allocates zeroed bytes that begin at a huge page, on huge pages if the kernel has them: direct I/O describes them
    /// to the device in fewer parts.
    pub fn on_huge_pages(bytes: usize) -> Result<HostArray> {
        let all = Tensor::f_empty([(bytes + HUGE_PAGE) as i64], (Kind::Uint8, Device::Cpu))?;
        let offset = all.data_ptr().cast::<u8>().align_offset(HUGE_PAGE);
        let tensor = all.f_narrow(0, offset as i64, bytes as i64)?;
        // SAFETY: the range belongs to the tensor, and its content does not change. An error leaves small pages.
        unsafe { libc::madvise(tensor.data_ptr(), bytes, libc::MADV_HUGEPAGE) };
        let _ = tensor.shallow_clone().f_zero_()?;
        HostArray::new(tensor)
    }

    /// Allocates pinned memory, zeroed.
    pub fn pinned(elements: usize, kind: Kind) -> Result<HostArray> {
        let floats = (elements * kind.elt_size_in_bytes()).div_ceil(size_of::<f32>());
        let tensor = shim::pinned_floats(floats)?;
        let _ = tensor.shallow_clone().f_zero_()?;
        HostArray::new(tensor.f_view_dtype(kind)?.f_narrow(0, 0, elements as i64)?)
    }

    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub fn bytes_of(&self, elements: usize) -> usize {
        elements * self.size
    }

    /// Writes the bytes of `elements` to `output`. They must not change during the call.
    pub fn send(&self, elements: Range<usize>, output: &mut impl Write) -> io::Result<()> {
        let (start, length) = self.address(&elements);
        // SAFETY: `place` checked the bounds; the caller excludes concurrent writers.
        output.write_all(unsafe { std::slice::from_raw_parts(start, length) })
    }

    /// Reads the bytes of `elements` from `input`. They must not be accessed during the call.
    pub fn receive(&self, elements: Range<usize>, input: &mut impl Read) -> io::Result<()> {
        let (start, length) = self.address(&elements);
        // SAFETY: `place` checked the bounds; the caller guarantees exclusive access.
        input.read_exact(unsafe { std::slice::from_raw_parts_mut(start, length) })
    }

    fn address(&self, elements: &Range<usize>) -> (*mut u8, usize) {
        assert!(elements.start <= elements.end && elements.end <= self.elements, "{elements:?} of {}", self.elements);
        (self.base.as_ptr().wrapping_add(elements.start * self.size), elements.len() * self.size)
    }
}

pub fn floats<'a>(tensor: &'a Tensor, elements: &Range<usize>) -> Result<&'a [f32]> {
    let start = address(tensor, elements)?;
    // SAFETY: `place` checked type and bounds; the tensor outlives the slice, and the caller excludes concurrent
    // writers.
    Ok(unsafe { std::slice::from_raw_parts(start, elements.len()) })
}

pub fn floats_mut<'a>(tensor: &'a mut Tensor, elements: &Range<usize>) -> Result<&'a mut [f32]> {
    let start = address(tensor, elements)?;
    // SAFETY: as in `floats`, and the caller excludes concurrent readers.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, elements.len()) })
}

pub fn bytes<'a>(tensor: &'a Tensor, elements: &Range<usize>) -> Result<&'a [u8]> {
    let floats = floats(tensor, elements)?;
    // SAFETY: u8 is valid for any bits.
    Ok(unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), size_of_val(floats)) })
}

pub fn bytes_mut<'a>(tensor: &'a mut Tensor, elements: &Range<usize>) -> Result<&'a mut [u8]> {
    let floats = floats_mut(tensor, elements)?;
    // SAFETY: u8 and f32 are valid for any bits.
    Ok(unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), size_of_val(floats)) })
}

fn address(tensor: &Tensor, elements: &Range<usize>) -> Result<*mut f32> {
    let is_flat = tensor.dim() == 1 && tensor.is_contiguous();
    ensure!(
        tensor.device() == Device::Cpu && tensor.kind() == Kind::Float && is_flat,
        "expected one contiguous row of fp32 in host memory, got {tensor:?}"
    );
    let count = tensor.numel();
    ensure!(elements.start <= elements.end && elements.end <= count, "elements {elements:?} exceed length {count}");
    Ok(tensor.data_ptr().cast::<f32>().wrapping_add(elements.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_array_round_trips_as_tensor() {
        let from = HostArray::new(Tensor::arange(6, (Kind::Float, Device::Cpu))).expect("flat");
        let to = HostArray::zeros(4, Kind::Float).expect("memory");
        let mut wire = Vec::new();
        from.send(2..5, &mut wire).expect("an in-memory write succeeds");
        assert_eq!(wire.len(), from.bytes_of(3));
        to.receive(1..4, &mut &wire[..]).expect("as many");
        assert_eq!(Vec::<f32>::try_from(to.tensor()).expect("fp32"), [0.0, 2.0, 3.0, 4.0]);
        assert!(to.receive(0..4, &mut &wire[..]).is_err(), "too few bytes");
        assert!(HostArray::new(Tensor::zeros([2, 2], (Kind::Float, Device::Cpu))).is_err());
        let halves = HostArray::zeros(3, Kind::Half).expect("memory");
        assert_eq!(halves.bytes_of(3), 6);
    }

    #[test]
    fn slice_shares_tensor_memory() {
        let mut tensor = Tensor::arange(6, (Kind::Float, Device::Cpu));
        assert_eq!(floats(&tensor, &(2..5)).expect("in it"), [2.0, 3.0, 4.0]);
        floats_mut(&mut tensor, &(2..4)).expect("in it").fill(7.5);
        bytes_mut(&mut tensor, &(0..1)).expect("in it").copy_from_slice(&1.5f32.to_ne_bytes());
        assert_eq!(Vec::<f32>::try_from(&tensor).expect("fp32"), [1.5, 1.0, 7.5, 7.5, 4.0, 5.0]);
        assert_eq!(bytes(&tensor, &(5..6)).expect("in it"), 5.0f32.to_ne_bytes());
        assert!(floats(&tensor, &(5..7)).is_err());
        assert!(floats(&Tensor::zeros([2, 2], (Kind::Float, Device::Cpu)), &(0..1)).is_err());
        assert!(floats(&Tensor::zeros([4], (Kind::Half, Device::Cpu)), &(0..1)).is_err());
    }
}

//! Slices of flat fp32 tensors in host memory, for loops that libtorch lacks. Tensors may share memory: the caller
//! guarantees that accesses to these elements do not conflict while the slice lives, as in
//! [`shared_window`](crate::ffi::memory::shared_window).

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

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

//! XXH3 of the values of tensors, for weights in records and in checkpoints.

use anyhow::Result;
use ringmark_core::file::safetensors;
use tch::{Device, Tensor};
use xxhash_rust::xxh3::Xxh3;

/// Number of values that are copied at once.
const HASHED_AT_ONCE: i64 = 1 << 22;

/// Hash of several tensors, one after the other.
#[derive(Default)]
pub struct TensorHash {
    hash: Xxh3,
    bytes: Vec<u8>,
}

impl TensorHash {
    /// Adds the values of a tensor of any type on any device.
    pub fn add(&mut self, tensor: &Tensor) -> Result<()> {
        let width = tensor.kind().elt_size_in_bytes();
        tensor.f_reshape([-1])?.f_split(HASHED_AT_ONCE, 0)?.iter().try_for_each(|part| {
            self.bytes.resize(part.numel() * width, 0);
            part.f_to_device(Device::Cpu)?.f_copy_data_u8(&mut self.bytes, part.numel())?;
            self.hash.update(&self.bytes);
            Ok(())
        })
    }

    /// Returns the hash in 16 hexadecimal digits.
    pub fn text(&self) -> String {
        safetensors::hash_text(&self.hash)
    }
}

//! XXH3 of the values of tensors, for weights in records and in checkpoints.

use anyhow::Result;
use ringmark_core::file::safetensors;
use tch::{Device, Kind, Tensor};
use xxhash_rust::xxh3::Xxh3;

use crate::ffi::torch::host_array;

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
        for part in tensor.f_reshape([-1])?.f_split(HASHED_AT_ONCE, 0)? {
            let (part, count) = (part.f_to_device(Device::Cpu)?, part.numel());
            match part.kind() {
                _ if count == 0 => {}
                Kind::Float => self.hash.update(host_array::bytes(&part, &(0..count))?),
                kind => {
                    self.bytes.resize(count * kind.elt_size_in_bytes(), 0);
                    part.f_copy_data_u8(&mut self.bytes, count)?;
                    self.hash.update(&self.bytes);
                }
            }
        }
        Ok(())
    }

    /// Returns the hash in 16 hexadecimal digits.
    pub fn text(&self) -> String {
        safetensors::hash_text(&self.hash)
    }
}

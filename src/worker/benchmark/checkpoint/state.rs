//! Memory of a rank's part of a checkpoint: on the device, and in host memory for writing and reading.

use anyhow::{Result, ensure};
use ringmark_core::benchmark::checkpoint::parts::PAGE;
use ringmark_core::dimension::{Bytes, Seconds};
use ringmark_core::host::memory;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::host_array::HostArray;
use crate::ffi::torch::shim;
use crate::job::memory::left_by_limits;
use crate::measure::mark::Mark;

/// Words of 8 bytes in a page.
const PAGE_WORDS: i64 = PAGE as i64 / 8;

/// Words of random bytes that the checkpoint repeats: 16 MiB, more than compression and deduplication look back.
const RANDOM_WORDS: i64 = 2 << 20;

/// A rank's part of a checkpoint. Its pages contain random bytes, and each begins with a number that no other page has, so
/// that neither compression nor deduplication of the storage reduces it.
pub struct CheckpointState {
    /// int64 `[pages, 512]` on the device; shares the memory of `source` on the CPU.
    pages: Tensor,
    /// The checkpoint as bytes, if the device is the CPU.
    source: Option<HostArray>,
    /// Copy in host memory, pinned for CUDA, that begins at a page, as `O_DIRECT` requires.
    staging: HostArray,
    /// The checkpoint after reading, like `pages`, if the device is not the CPU.
    restored: Option<Tensor>,
}

impl CheckpointState {
    /// Allocates and fills a part of `pages`, which is not 0.
    pub fn new(pages: u64, device: Device) -> Result<CheckpointState> {
        let bytes = (pages * PAGE) as usize;
        let is_cpu = device == Device::Cpu;
        check_memory(Bytes(pages * PAGE * if is_cpu { 2 } else { 1 }))?;
        let source = is_cpu.then(|| aligned(bytes, false)).transpose()?;
        let staging = aligned(bytes, !is_cpu)?;
        let shape = [pages as i64, PAGE_WORDS];
        let on_device = match &source {
            Some(source) => source.tensor().f_view_dtype(Kind::Int64)?.f_view(shape)?,
            None => Tensor::f_empty(shape, (Kind::Int64, device))?,
        };
        fill(&on_device.f_view([-1])?)?;
        let restored = if is_cpu { None } else { Some(on_device.f_empty_like()?) };
        Ok(CheckpointState { pages: on_device, source, staging, restored })
    }

    pub fn pages(&self) -> u64 {
        self.pages.size()[0] as u64
    }

    pub fn bytes(&self) -> Bytes {
        Bytes(self.pages() * PAGE)
    }

    /// Returns true if the checkpoint must be copied before it is written.
    pub fn is_on_device(&self) -> bool {
        self.source.is_none()
    }

    /// Returns the bytes to write without a copy, or the [staged](Self::stage) ones of another device.
    pub fn to_write(&self) -> &HostArray {
        self.source.as_ref().unwrap_or(&self.staging)
    }

    /// Returns the copy in host memory.
    pub fn staging(&self) -> &HostArray {
        &self.staging
    }

    /// Numbers the pages, so that their bytes differ from those of every other `number`.
    pub fn change(&mut self, number: u64) -> Result<()> {
        // An odd constant (Knuth, volume 3, 6.4) separates the ranges of neighboring numbers.
        let start = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64;
        let numbers = Tensor::f_arange(self.pages() as i64, (Kind::Int64, self.pages.device()))?.f_add_scalar(start)?;
        self.pages.f_select(1, 0)?.f_copy_(&numbers)?;
        Mark::set(self.pages.device())?.wait(|| Ok(()))
    }

    /// Copies the checkpoint to the staging memory; returns the time of the copy.
    pub fn stage(&self) -> Result<Seconds> {
        copy(self.staging.tensor(), &as_bytes(&self.pages)?, self.pages.device())
    }

    /// Overwrites the first word of every page of the staging memory, so that it differs from the checkpoint.
    pub fn clear_staging(&self) -> Result<()> {
        let words = self.staging.tensor().f_view_dtype(Kind::Int64)?.f_view([-1, PAGE_WORDS])?;
        let _ = words.f_select(1, 0)?.f_fill_(-1)?;
        Ok(())
    }

    /// Copies the staging memory to the device; does nothing on the CPU, which has the bytes.
    pub fn restore(&self) -> Result<()> {
        match &self.restored {
            Some(restored) => copy(&as_bytes(restored)?, self.staging.tensor(), restored.device()).map(drop),
            None => Ok(()),
        }
    }

    /// Returns true if the bytes that were read are those of the checkpoint.
    pub fn is_restored(&self) -> Result<bool> {
        Ok(match (&self.restored, &self.source) {
            (Some(restored), _) => restored.f_equal(&self.pages)?,
            (None, Some(source)) => source.tensor().f_equal(self.staging.tensor())?,
            (None, None) => false,
        })
    }
}

fn as_bytes(pages: &Tensor) -> Result<Tensor> {
    Ok(pages.f_view([-1])?.f_view_dtype(Kind::Uint8)?)
}

/// Copies bytes between host memory and `device`, and waits; returns the time.
fn copy(destination: &Tensor, source: &Tensor, device: Device) -> Result<Seconds> {
    let start = Mark::set(device)?;
    match device {
        Device::Cpu => destination.shallow_clone().f_copy_(source).map(drop)?,
        _ => shim::copy_without_waiting(destination, source)?,
    }
    let end = Mark::set(device)?;
    end.wait(|| Ok(()))?;
    Ok(Seconds(end.seconds_since(&start)?))
}

/// Fills a flat tensor of int64 with random words that repeat.
fn fill(words: &Tensor) -> Result<()> {
    let count = words.numel() as i64;
    let random = Tensor::f_randint_low(i64::MIN, i64::MAX, [RANDOM_WORDS.min(count)], (Kind::Int64, words.device()))?;
    for start in (0..count).step_by(RANDOM_WORDS as usize) {
        let length = RANDOM_WORDS.min(count - start);
        words.f_narrow(0, start, length)?.f_copy_(&random.f_narrow(0, 0, length)?)?;
    }
    Ok(())
}

/// Allocates `bytes` of host memory that begins at a page.
fn aligned(bytes: usize, is_pinned: bool) -> Result<HostArray> {
    if !is_pinned {
        return HostArray::on_huge_pages(bytes);
    }
    let array = HostArray::pinned(bytes + PAGE as usize, Kind::Uint8)?;
    let offset = array.tensor().data_ptr().cast::<u8>().align_offset(PAGE as usize);
    HostArray::new(array.tensor().f_narrow(0, offset as i64, bytes as i64)?)
}

/// Fails if this rank has less host memory left than it needs.
fn check_memory(needed: Bytes) -> Result<()> {
    let left = left_by_limits().unwrap_or(Bytes(u64::MAX)).0.min(memory::available().0);
    ensure!(
        needed.0 <= left,
        "a rank needs {:.1} GB of memory for its part of the checkpoint and a copy, but has {:.1} GB: choose a smaller \
         --size or --model, --writers shards, or fewer ranks per host",
        needed.gigabytes(),
        Bytes(left).gigabytes()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(array: &HostArray) -> Vec<u8> {
        Vec::try_from(array.tensor()).expect("bytes")
    }

    #[test]
    fn pages_differ_in_every_checkpoint() {
        let mut state = CheckpointState::new(3, Device::Cpu).expect("memory");
        assert_eq!((state.bytes(), state.is_on_device()), (Bytes(3 * PAGE), false));
        let mut first_words = Vec::new();
        for number in [0, 1, 1 << 32, (1 << 32) + 1] {
            state.change(number).expect("changed");
            let all = bytes(state.to_write());
            first_words.extend(all.chunks(PAGE as usize).map(|page| page[..8].to_vec()));
            assert!(all.chunks(PAGE as usize).all(|page| page[8..] != vec![page[8]; PAGE as usize - 8]));
        }
        let count = first_words.len();
        first_words.sort();
        first_words.dedup();
        assert_eq!((count, first_words.len()), (12, 12));
    }

    #[test]
    fn restored_bytes_are_compared() {
        let state = CheckpointState::new(2, Device::Cpu).expect("memory");
        assert!(!state.is_restored().expect("equal sizes"));
        assert!(state.stage().expect("copied").is_duration());
        assert!(state.is_restored().expect("equal sizes"));
        assert_eq!(bytes(state.staging()), bytes(state.to_write()));
        assert_eq!(state.staging().tensor().data_ptr() as usize % PAGE as usize, 0);
        state.clear_staging().expect("cleared");
        assert!(!state.is_restored().expect("equal sizes"));
    }

    #[test]
    fn missing_memory_is_named() {
        let error = CheckpointState::new(1 << 40, Device::Cpu).err().expect("more than any host").to_string();
        assert!(error.starts_with("a rank needs 9007199.3 GB of memory for its part"), "{error}");
    }
}

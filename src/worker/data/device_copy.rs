//! Copies of pixels and labels from the loader's memory to the device. The CPU reads the loader's memory directly. CUDA
//! copies through two pinned buffers on a separate stream, so that the copy of a step overlaps with the computation of
//! the previous one.
//!
//! A buffer is reused two steps later: the host waits until the buffer's last copy is complete, and the next copy waits
//! until the step that reads its pixels on the device is past them.

use std::time::Duration;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::host_array::HostArray;
use crate::ffi::torch::shim;
use crate::ffi::torch::stream::{Event, Stream};

/// Interval between polls of a copy, which is nearly always complete.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

pub enum DeviceCopy {
    /// No copy: the device is the CPU.
    Host,
    Cuda(Box<CudaCopy>),
}

pub struct CudaCopy {
    index: usize,
    stream: Stream,
    /// Filled alternately.
    buffers: [Option<Buffer>; 2],
    current: usize,
}

struct Buffer {
    /// Pinned; u8 and int64.
    pixels: HostArray,
    labels: HostArray,
    on_device: BatchOnDevice,
    /// Recorded after the copy, on the copy stream.
    copied: Event,
    /// Recorded after the last use on the device, on the stream of the steps.
    used: Event,
}

/// Pixels and labels as the loader produced them.
pub struct BatchOnDevice {
    /// u8 `[images, size, size, channels]`.
    pub pixels: Tensor,
    /// int64 `[images]`.
    pub labels: Tensor,
}

#[derive(Clone, Copy)]
pub struct HostBatch<'a> {
    pub pixels: &'a [u8],
    pub labels: &'a [i64],
}

impl DeviceCopy {
    pub fn new(device: Device) -> Result<DeviceCopy> {
        let Device::Cuda(index) = device else {
            return Ok(DeviceCopy::Host);
        };
        let (stream, _) = Stream::new(index)?;
        Ok(DeviceCopy::Cuda(Box::new(CudaCopy { index, stream, buffers: [None, None], current: 0 })))
    }

    /// Copies a batch with pixels of `shape` to the device and calls `read`, which enqueues the work that uses it. Its
    /// memory is reused two batches later.
    pub fn with<R>(
        &mut self,
        batch: HostBatch,
        shape: [i64; 4],
        read: impl FnOnce(&BatchOnDevice) -> Result<R>,
    ) -> Result<R> {
        match self {
            DeviceCopy::Host => read(&BatchOnDevice {
                pixels: Tensor::f_from_data_size(batch.pixels, &shape, Kind::Uint8)?,
                labels: Tensor::f_from_slice(batch.labels)?,
            }),
            DeviceCopy::Cuda(copy) => {
                let steps = Stream::current(copy.index)?;
                let buffer = copy.copy(batch, shape)?;
                let result = read(&buffer.on_device)?;
                buffer.used.record(steps)?;
                Ok(result)
            }
        }
    }
}

impl CudaCopy {
    /// Copies a batch to the device; work enqueued afterwards on the stream of the steps sees it.
    fn copy(&mut self, HostBatch { pixels, labels }: HostBatch, shape: [i64; 4]) -> Result<&mut Buffer> {
        self.current = 1 - self.current;
        let buffer = match &mut self.buffers[self.current] {
            Some(buffer) => buffer,
            none => none.insert(Buffer::new(self.index, shape)?),
        };
        let Buffer { pixels: host_pixels, labels: host_labels, on_device, copied, used } = &mut *buffer;
        while !copied.is_done()? {
            std::thread::sleep(POLL_INTERVAL);
        }
        host_pixels.receive(0..pixels.len(), &mut &*pixels)?;
        let labels: Vec<u8> = labels.iter().flat_map(|label| label.to_ne_bytes()).collect();
        host_labels.receive(0..shape[0] as usize, &mut labels.as_slice())?;
        self.stream.wait_for(used)?;
        self.stream.run(|| {
            shim::copy_without_waiting(&on_device.pixels.f_view([-1])?, host_pixels.tensor())?;
            shim::copy_without_waiting(&on_device.labels, host_labels.tensor())
        })?;
        copied.record(self.stream)?;
        Stream::current(self.index)?.wait_for(copied)?;
        Ok(buffer)
    }
}

impl Buffer {
    fn new(index: usize, shape: [i64; 4]) -> Result<Buffer> {
        let (bytes, samples) = (shape.iter().product::<i64>() as usize, shape[0] as usize);
        let device = Device::Cuda(index);
        let on_device = BatchOnDevice {
            pixels: Tensor::f_empty(shape, (Kind::Uint8, device))?,
            labels: Tensor::f_empty([shape[0]], (Kind::Int64, device))?,
        };
        // The memory may have belonged to another tensor that a kernel still reads.
        let used = Stream::current(index)?.record_event()?;
        let (pixels, labels) = (HostArray::pinned(bytes, Kind::Uint8)?, HostArray::pinned(samples, Kind::Int64)?);
        Ok(Buffer { pixels, labels, on_device, copied: Event::new(index), used })
    }
}

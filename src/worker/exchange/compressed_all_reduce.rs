//! Exchange of compressed gradients: every rank encodes a bucket of its gradients, all ranks gather the codes of all,
//! and each decodes and sums them in fp32 in rank order: the same bits on every rank. Codes themselves are never
//! summed.

use std::ops::Range;

use anyhow::{Result, bail};
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::dimension::{BackendName, Bytes, Operation, Wire};
use tch::{Device, Kind, Tensor};

use crate::exchange::backend::{Backend, select};
use crate::exchange::collective::{Collective, Target};
use crate::exchange::compression::facts::CompressionFacts;
use crate::exchange::compression::{Codec, norm};
use crate::exchange::memory::MemoryShape;
use crate::exchange::reducer::{GradientSink, SinkFacts};
use crate::ffi::torch::host_array::{bytes, bytes_mut, floats, floats_mut};
use crate::job::session::Session;

/// Size of an element of the backend's memory, which holds the codes: fp32 is transferred unchanged.
const WORD: usize = size_of::<f32>();

/// A bucket whose codes are in flight.
struct InFlightBucket {
    elements: Range<usize>,
    /// Ranges of every rank's codes, counted in [`WORD`]s.
    parts: Vec<Range<usize>>,
}

pub struct CompressedAllReduce {
    codec: Codec,
    /// Holds the codes of all ranks and moves them.
    backend: Box<dyn Backend>,
    rank: u32,
    ranks: u32,
    /// Gradients of this rank.
    wire: Tensor,
    sums: Tensor,
    /// Residual of every gradient.
    residual: Vec<f32>,
    /// Codes sent in this step, in start order.
    sent: Vec<InFlightBucket>,
    /// Number of completed steps.
    steps: u32,
    /// Bytes of this rank's codes in the last complete step.
    code: Bytes,
}

impl CompressedAllReduce {
    /// Creates the sums of `elements` gradients in `buckets`. All ranks call this together.
    pub fn new(
        codec: Codec,
        config: &ExchangeConfig,
        buckets: &[Range<usize>],
        elements: usize,
        session: &Session,
    ) -> Result<CompressedAllReduce> {
        let (rank, ranks) = (session.world.rank(), session.world.ranks());
        let words: usize = buckets.iter().map(|bucket| codec.code_bytes(bucket.len()) / WORD).sum();
        let shape = MemoryShape::gradients(words * ranks as usize, Wire::Fp32);
        let zeros = || Tensor::f_zeros([elements as i64], (Kind::Float, Device::Cpu));
        Ok(CompressedAllReduce {
            codec,
            backend: select::new(config, shape, session)?,
            rank,
            ranks,
            wire: zeros()?,
            sums: zeros()?,
            residual: vec![0.0; elements],
            sent: Vec::new(),
            steps: 0,
            code: Bytes(0),
        })
    }

    pub fn sums(&self) -> Tensor {
        self.sums.shallow_clone()
    }

    /// Returns the backend's name in the record.
    pub fn name(&self) -> BackendName {
        self.backend.name()
    }

    /// Returns the ranges of every rank's codes for the next bucket of this number of gradients, counted in [`WORD`]s.
    fn next_parts(&self, gradients: usize) -> Vec<Range<usize>> {
        let first = self.sent.last().and_then(|sent| sent.parts.last()).map_or(0, |part| part.end);
        let words = self.codec.code_bytes(gradients) / WORD;
        (0..self.ranks as usize).map(|rank| first + rank * words..first + (rank + 1) * words).collect()
    }
}

impl GradientSink for CompressedAllReduce {
    fn facts(&self) -> SinkFacts {
        SinkFacts::for_backend(&*self.backend, Operation::AllReduce)
    }

    fn wire(&mut self) -> Tensor {
        self.wire.shallow_clone()
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        let parts = self.next_parts(elements.len());
        let gradient = floats(&self.wire, &elements)?;
        let code = bytes_mut(&mut self.backend.memory().sums, &parts[self.rank as usize])?;
        if let Err(value) = self.codec.encode(&mut self.residual[elements.clone()], gradient, code) {
            bail!(
                "the gradient of rank {} is not finite in bucket {} of iteration {} (value {} of the bucket's {}): \
                 lower --lr, or rerun without --gradient-compression to find the cause",
                self.rank,
                self.sent.len(),
                self.steps + 1,
                value.index,
                elements.len()
            );
        }
        self.backend.start_collective(&Collective::AllGather { parts: parts.clone(), target: Target::Memory })?;
        self.sent.push(InFlightBucket { elements, parts });
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.backend.finish()?;
        let codes = self.backend.memory().sums.shallow_clone();
        let mut words = 0;
        for InFlightBucket { elements, parts } in std::mem::take(&mut self.sent) {
            let sum = floats_mut(&mut self.sums, &elements)?;
            let codes_by_rank = parts.iter().map(|part| bytes(&codes, part)).collect::<Result<Vec<_>>>()?;
            self.codec.sum(&codes_by_rank, sum);
            words += parts[self.rank as usize].len();
        }
        self.code = Bytes((words * WORD) as u64);
        self.steps += 1;
        Ok(())
    }

    fn with_backend(&mut self, action: &mut dyn FnMut(&mut dyn Backend)) {
        action(&mut *self.backend);
    }

    fn compression(&self) -> Option<CompressionFacts> {
        let elements = self.residual.len();
        Some(CompressionFacts { residual_norm: norm(&self.residual), code: self.code, received: None, elements })
    }
}

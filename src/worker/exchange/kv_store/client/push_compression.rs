//! Compression of pushes: each part is encoded on its own, and the residual of the code stays here for the next push.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use ringmark_core::dimension::Bytes;

use crate::exchange::compression::facts::CompressionFacts;
use crate::exchange::compression::{Codec, norm};
use crate::exchange::kv_store::formats::AnswerFormat;
use crate::exchange::kv_store::plan::PlannedPart;

/// Codec and residuals of one worker.
pub struct PushCompression {
    codec: Codec,
    /// Format of the answers.
    answer: AnswerFormat,
    /// Rank of this worker.
    rank: u32,
    /// Residual of each part, used by the thread that sends to its server.
    residuals: Vec<Mutex<Vec<f32>>>,
}

impl PushCompression {
    /// Creates residuals of zeros for `parts`.
    pub fn new(codec: Codec, answer: AnswerFormat, rank: u32, parts: &[PlannedPart]) -> PushCompression {
        let residuals = parts.iter().map(|part| Mutex::new(vec![0.0; part.elements.len()])).collect();
        PushCompression { codec, answer, rank, residuals }
    }

    /// Replaces `code` by the code of `gradient`, the values of part `number`.
    ///
    /// # Errors
    ///
    /// Fails if a value is not finite.
    pub fn encode(
        &self,
        number: u32,
        part: &PlannedPart,
        iteration: u32,
        gradient: &[f32],
        code: &mut Vec<u8>,
    ) -> Result<()> {
        code.resize(self.codec.code_bytes(gradient.len()), 0);
        let mut residual = lock(&self.residuals[number as usize]);
        if let Err(value) = self.codec.encode(&mut residual, gradient, code) {
            bail!(
                "the gradient of rank {} is not finite in key {} of iteration {iteration} (value {} of the array): \
                 lower --lr, or rerun without --gradient-compression to find the cause",
                self.rank,
                part.key,
                part.first + value.index
            );
        }
        Ok(())
    }

    /// Returns sizes and residual norm; no step is under way.
    pub fn compression(&self) -> CompressionFacts {
        let mut coded = CompressionFacts::default();
        let mut received = 0;
        for residual in &self.residuals {
            let residual = lock(residual);
            coded.residual_norm = coded.residual_norm.hypot(norm(&residual));
            coded.code.0 += self.codec.code_bytes(residual.len()) as u64;
            received += self.answer.bytes(residual.len()) as u64;
            coded.elements += residual.len();
        }
        CompressionFacts { received: Some(Bytes(received)), ..coded }
    }
}

fn lock(residual: &Mutex<Vec<f32>>) -> MutexGuard<'_, Vec<f32>> {
    residual.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::dimension::KeyPlacement;

    use super::*;
    use crate::exchange::compression::two_bit::TwoBit;
    use crate::exchange::kv_store::plan;

    #[test]
    fn each_part_has_its_own_residual() {
        let parts = plan::plan(&[17, 1], 1, KeyPlacement::Balanced, usize::MAX).expect("one server");
        let codes = PushCompression::new(Codec::TwoBit(TwoBit { threshold: 0.5 }), AnswerFormat::Weights, 3, &parts);
        let mut code = Vec::new();
        codes.encode(0, &parts[0], 1, &[0.75; 17], &mut code).expect("finite");
        assert_eq!(code, [0xff, 0xff, 0xff, 0xff, 0xc0, 0, 0, 0]);
        codes.encode(1, &parts[1], 1, &[-0.25], &mut code).expect("finite");
        assert_eq!(code, [0; 4], "in place of the one before");
        let coded = codes.compression();
        // A word for every 16 values of a part: two and one.
        assert_eq!((coded.code.0, coded.received, coded.elements), (12, Some(Bytes(72)), 18));
        assert!((coded.residual_norm - (18.0f64 / 16.0).sqrt()).abs() < 1e-12);
        codes.encode(1, &parts[1], 2, &[-0.25], &mut code).expect("finite");
        assert_eq!(code, [0x80, 0, 0, 0], "what was left out");
        let mut gradient = [0.0; 17];
        gradient[16] = f32::NAN;
        let error = codes.encode(0, &parts[0], 3, &gradient, &mut code).expect_err("not finite").to_string();
        expect!["the gradient of rank 3 is not finite in key 1 of iteration 3 (value 16 of the array): lower --lr, or rerun without --gradient-compression to find the cause"].assert_eq(&error);
    }
}

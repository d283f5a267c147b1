//! Choice of a gradient compression, and its statistics in a record.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::Bytes;
use crate::text_value;

/// A code that is exchanged instead of values. It keeps the part that it leaves out in a residual.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum GradientCompression {
    /// Uncompressed values, in the wire type.
    #[default]
    None,
    /// MXNet's two-bit code: each value becomes `+threshold`, `-threshold` or 0.
    TwoBit {
        /// Threshold above 0, in the units of a gradient.
        threshold: f32,
    },
    /// The values of largest magnitude in each bucket, with their indices.
    TopK {
        /// Share of a bucket's values, above 0 and at most 1.
        ratio: f64,
    },
}

/// MXNet's default threshold.
const THRESHOLD: f32 = 0.5;

impl GradientCompression {
    /// Returns true if values are exchanged without compression.
    pub fn is_none(&self) -> bool {
        *self == GradientCompression::None
    }
}

impl fmt::Display for GradientCompression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GradientCompression::None => formatter.write_str("none"),
            GradientCompression::TwoBit { threshold } => write!(formatter, "2bit:{threshold}"),
            GradientCompression::TopK { ratio } => write!(formatter, "topk:{ratio}"),
        }
    }
}

impl FromStr for GradientCompression {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<GradientCompression> {
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("none", None) => Ok(GradientCompression::None),
            ("2bit", None) => Ok(GradientCompression::TwoBit { threshold: THRESHOLD }),
            ("2bit", Some(value)) => {
                let threshold = value.parse::<f32>().ok().filter(|threshold| threshold.is_finite() && *threshold > 0.0);
                let threshold = threshold.with_context(|| {
                    format!("2bit threshold {value:?} is not a number above 0: use a threshold such as 0.5")
                })?;
                Ok(GradientCompression::TwoBit { threshold })
            }
            ("topk", Some(value)) => {
                let ratio = value.parse::<f64>().ok().filter(|ratio| *ratio > 0.0 && *ratio <= 1.0);
                let ratio = ratio.with_context(|| {
                    format!("topk ratio {value:?} is not above 0 and at most 1: use a ratio such as 0.01")
                })?;
                Ok(GradientCompression::TopK { ratio })
            }
            ("topk", None) => bail!("topk needs the ratio of values to send: use a ratio such as topk:0.01"),
            _ => bail!(
                "unknown gradient compression {text:?}: choose none, fp16, bf16, 2bit, 2bit:THRESHOLD or topk:RATIO"
            ),
        }
    }
}

text_value!(GradientCompression);

/// Returns the number of sums of `workers` 2-bit codes that fit into a word of 4 bytes, each a digit of base `2 workers
/// + 1`.
///
/// For 4 workers a sum is one of 9 multiples of the threshold, and `9^10 <= 2^32 < 9^11`: 10 sums.
pub fn sums_a_word(workers: u32) -> u32 {
    let base = 2 * u64::from(workers) + 1;
    let fits = |digits: &u32| base.checked_pow(*digits).is_some_and(|values| values <= 1 << 32);
    (1..=32).take_while(fits).last().unwrap_or(1)
}

/// Statistics of the compression in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompressionUse {
    /// Euclidean norm of the residual at the end, by rank.
    pub residual_norm: Vec<f64>,
    /// Size of one rank's codes per step.
    pub code: Bytes,
    /// Bytes that a rank receives per step: the codes of all others; from servers the weights, or the packed sums of
    /// codes.
    pub received: Bytes,
    /// Bytes that a rank would receive in fp32: in a ring `2 (ranks - 1) / ranks x bytes`; from servers the weights.
    pub received_fp32: Bytes,
    /// Bytes that a pushing rank would send in fp32 instead of the code; `None` without servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_fp32: Option<Bytes>,
}

impl CompressionUse {
    /// Returns the statistics for `elements` gradients, exchanged without servers, where one rank's codes take `code`
    /// bytes.
    ///
    /// With 4 ranks and 16 values each, 2 bits per value are 4 bytes: a rank receives 12 bytes instead of 2 x 3 / 4 x
    /// 64 = 96.
    pub fn new(residual_norm: Vec<f64>, code: Bytes, elements: usize) -> CompressionUse {
        let ranks = residual_norm.len() as u64;
        let others = ranks.saturating_sub(1);
        CompressionUse {
            residual_norm,
            code,
            received: Bytes(others * code.0),
            received_fp32: Bytes(2 * others * 4 * elements as u64 / ranks.max(1)),
            sent_fp32: None,
        }
    }

    /// Returns the statistics for `elements` gradients whose codes go to servers, which send back `received` bytes.
    /// Headers are not counted.
    pub fn with_servers(residual_norm: Vec<f64>, code: Bytes, received: Bytes, elements: usize) -> CompressionUse {
        let values = Bytes(4 * elements as u64);
        CompressionUse { residual_norm, code, received, received_fp32: values, sent_fp32: Some(values) }
    }

    /// Formats the statistics: `each rank receives 0.860 MB of codes per step instead of 1.720 MB in an fp32
    /// ring (50.0 % less); residual norm 0.2500 to 0.3100`.
    pub fn text(&self) -> String {
        let low = self.residual_norm.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.residual_norm.iter().copied().fold(0.0, f64::max);
        let norm = format!("residual norm {low:.4} to {high:.4}");
        if let Some(fp32) = self.sent_fp32 {
            let (code, fp32, received) = (self.code.megabytes(), fp32.megabytes(), self.received.megabytes());
            let (share, word) = (100.0 * (code / fp32 - 1.0).abs(), if code > fp32 { "more" } else { "less" });
            let what = if self.received == self.received_fp32 { "fp32 weights" } else { "packed sums" };
            return format!(
                "each pushing rank sends {code:.3} MB of codes per step instead of {fp32:.3} MB in fp32 ({share:.1} % \
                 {word}) and receives {received:.3} MB of {what}; {norm}"
            );
        }
        let (received, fp32) = (self.received.megabytes(), self.received_fp32.megabytes());
        let (share, word) = (100.0 * (received / fp32 - 1.0).abs(), if received > fp32 { "more" } else { "less" });
        format!(
            "each rank receives {received:.3} MB of codes per step instead of {fp32:.3} MB in an fp32 ring \
             ({share:.1} % {word}); {norm}"
        )
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn compression_round_trips() {
        for text in ["none", "2bit:0.25", "topk:0.01", "topk:1"] {
            assert_eq!(text.parse::<GradientCompression>().expect("a code").to_string(), text);
        }
        assert_eq!("2bit".parse::<GradientCompression>().expect("MXNet's").to_string(), "2bit:0.5");
        let texts = [
            "2bit:0",
            "2bit:-1",
            "2bit:NaN",
            "2bit:inf",
            "2bit:1e-60",
            "2bit:",
            "topk",
            "topk:0",
            "topk:1.5",
            "topk:NaN",
            "1bit",
            "none:1",
        ];
        let errors = texts.map(|text| text.parse::<GradientCompression>().expect_err(text).to_string());
        expect![[r#"
            2bit threshold "0" is not a number above 0: use a threshold such as 0.5
            2bit threshold "-1" is not a number above 0: use a threshold such as 0.5
            2bit threshold "NaN" is not a number above 0: use a threshold such as 0.5
            2bit threshold "inf" is not a number above 0: use a threshold such as 0.5
            2bit threshold "1e-60" is not a number above 0: use a threshold such as 0.5
            2bit threshold "" is not a number above 0: use a threshold such as 0.5
            topk needs the ratio of values to send: use a ratio such as topk:0.01
            topk ratio "0" is not above 0 and at most 1: use a ratio such as 0.01
            topk ratio "1.5" is not above 0 and at most 1: use a ratio such as 0.01
            topk ratio "NaN" is not above 0 and at most 1: use a ratio such as 0.01
            unknown gradient compression "1bit": choose none, fp16, bf16, 2bit, 2bit:THRESHOLD or topk:RATIO
            unknown gradient compression "none:1": choose none, fp16, bf16, 2bit, 2bit:THRESHOLD or topk:RATIO"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn packed_sums_fill_32_bits() {
        assert_eq!([1, 2, 4, 8, 100, 40_000, 2_000_000_000].map(sums_a_word), [20, 13, 10, 7, 4, 1, 1]);
    }

    #[test]
    fn saved_bytes_follow_the_formula() {
        let of = CompressionUse::new(vec![0.25; 4], Bytes(4), 16);
        assert_eq!((of.received, of.received_fp32), (Bytes(12), Bytes(96)));
        // Every rank receives the codes of all others, which for many ranks exceeds the two passes of a ring.
        let many = CompressionUse::new(vec![0.25; 64], Bytes(4), 16);
        assert!(many.received > many.received_fp32, "{many:?}");
        let text = "each rank receives 0.000 MB of codes per step instead of 0.000 MB in an fp32 ring (87.5 % less); \
                    residual norm 0.2500 to 0.2500";
        assert_eq!(of.text(), text);
        let of = CompressionUse::with_servers(vec![0.0, 1.5], Bytes(250_000), Bytes(400_000), 1_000_000);
        assert!(of.text().contains("and receives 0.400 MB of packed sums; residual norm"), "{}", of.text());
        let of = CompressionUse::with_servers(vec![0.0, 1.5], Bytes(250_000), Bytes(4_000_000), 1_000_000);
        let text = "each pushing rank sends 0.250 MB of codes per step instead of 4.000 MB in fp32 (93.8 % less) and \
                    receives 4.000 MB of fp32 weights; residual norm 0.0000 to 1.5000";
        assert_eq!(of.text(), text);
    }
}

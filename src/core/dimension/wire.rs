//! Element type of gradients in an exchange.

use crate::keyword_enum;

keyword_enum!(
    /// Element type of the gradients while they are exchanged.
    Wire {
        /// Unchanged.
        Fp32 = "fp32" | "float32" | "float",
        /// Rounded to half precision, half the bytes.
        Fp16 = "fp16" | "float16" | "half",
        /// Rounded to bfloat16, half the bytes.
        Bf16 = "bf16" | "bfloat16",
    }
);

impl Wire {
    /// Returns the bytes per element.
    pub fn bytes(self) -> u64 {
        match self {
            Wire::Fp32 => 4,
            Wire::Fp16 | Wire::Bf16 => 2,
        }
    }

    /// Formats as `fp16, added in fp32`; without the second part if nothing is rounded.
    pub fn with_sum(self, sum_dtype: Option<Wire>) -> String {
        match sum_dtype {
            Some(sum_dtype) if self != Wire::Fp32 => format!("{self}, added in {sum_dtype}"),
            _ => self.to_string(),
        }
    }
}

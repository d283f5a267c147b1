//! Element type of gradients in an exchange.

use crate::keyword_enum;

keyword_enum!(
    /// Element type of the gradients while they are exchanged.
    Wire {
        /// As they are.
        Fp32 = "fp32" | "float32" | "float",
        /// Rounded to half precision, half the bytes.
        Fp16 = "fp16" | "float16" | "half",
        /// Rounded to bfloat16, half the bytes.
        Bf16 = "bf16" | "bfloat16",
    }
);

impl Wire {
    /// Size of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Wire::Fp32 => 4,
            Wire::Fp16 | Wire::Bf16 => 2,
        }
    }

    /// `fp16, added in fp32`; without the second half where nothing is rounded.
    pub fn with_sum(self, sum_dtype: Option<Wire>) -> String {
        match sum_dtype {
            Some(sum_dtype) if self != Wire::Fp32 => format!("{self}, added in {sum_dtype}"),
            _ => self.to_string(),
        }
    }
}

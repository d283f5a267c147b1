//! Precision of the training step.

use crate::keyword_enum;

keyword_enum!(
    /// Precision of the training step.
    Dtype {
        /// IEEE single precision in every operation.
        Fp32 = "fp32" | "float32",
        /// Single precision, with TensorFloat-32 convolutions and matrix products if the device has them.
        Tf32 = "tf32",
        /// Half precision with autocast and dynamic loss scaling.
        Fp16 = "fp16" | "float16" | "half" | "amp",
        /// bfloat16 with autocast.
        Bf16 = "bf16" | "bfloat16",
    }
);

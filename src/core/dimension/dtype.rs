//! Precision of the training step.

use crate::keyword_enum;

keyword_enum!(
    /// Precision of the training step.
    Dtype {
        /// IEEE single precision in every operation.
        Fp32 = "fp32" | "float32",
        /// Single precision with TensorFloat-32 convolutions and products where the device has them.
        Tf32 = "tf32",
        /// Half precision by autocast, with dynamic loss scaling.
        Fp16 = "fp16" | "float16" | "half" | "amp",
        /// bfloat16 by autocast.
        Bf16 = "bf16" | "bfloat16",
    }
);

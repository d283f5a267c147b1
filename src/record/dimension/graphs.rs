//! CUDA graphs: whether the kernels of a pass are kept and given to the device all at once.

use crate::keyword_enum;

keyword_enum!(
    /// What is asked for; a record has what it came to.
    GraphChoice {
        /// A graph where there can be one.
        Auto = "auto",
        /// A graph, or an error.
        On = "on",
        /// Each kernel by itself.
        Off = "off",
    }
);

impl GraphChoice {
    /// What records say that are older than the choice.
    pub fn off() -> GraphChoice {
        GraphChoice::Off
    }

    /// Whether each kernel is given by itself.
    pub fn is_off(&self) -> bool {
        *self == GraphChoice::Off
    }
}

//! Use of CUDA graphs.

use crate::dimension::DeviceKind;
use crate::keyword_enum;

keyword_enum!(
    /// Requested use of CUDA graphs. A record contains `on` or `off`.
    GraphChoice {
        /// Use a graph if the run allows it.
        Auto = "auto",
        /// Fail if no graph can be captured.
        On = "on",
        /// Launch each kernel.
        Off = "off",
    }
);

impl GraphChoice {
    /// Returns the value for records that predate the option.
    pub fn off() -> GraphChoice {
        GraphChoice::Off
    }

    /// Returns the choice for `device`: a CPU has no graphs.
    pub fn on(self, device: DeviceKind) -> GraphChoice {
        if (device, self) == (DeviceKind::Cpu, GraphChoice::Auto) { GraphChoice::Off } else { self }
    }

    /// Returns true if each kernel is launched separately.
    pub fn is_off(&self) -> bool {
        *self == GraphChoice::Off
    }
}

//! Quantities with their unit in the type, so that no bare `f64` passes between modules.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $unit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            /// Prints the number with the caller's precision, then the unit.
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)?;
                formatter.write_str(concat!(" ", $unit))
            }
        }
    };
}

quantity!(
    /// Seconds of wall clock or of device time.
    Seconds, f64, "s"
);
quantity!(
    /// Bytes; in ringmark a megabyte is always 1e6 bytes and a gigabyte 1e9.
    Bytes, u64, "bytes"
);
/// Images or tokens per second, by the network's [`WorkUnit`](crate::dimension::WorkUnit); over all ranks unless the
/// name of the value states otherwise.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct UnitsPerSecond(pub f64);

quantity!(
    /// 1e9 bytes per second.
    GigabytesPerSecond, f64, "GB/s"
);

quantity!(
    /// 1e12 floating-point operations per second.
    TeraflopsPerSecond, f64, "TFLOP/s"
);

impl Bytes {
    /// Returns the number of megabytes, 1e6 bytes each.
    pub fn megabytes(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the number of gigabytes, 1e9 bytes each.
    pub fn gigabytes(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Seconds {
    /// Returns true if this is a plausible duration of a part of a run: not negative, and below 31 years. Longer times
    /// are corrupt data, and their sums could overflow.
    pub fn is_duration(self) -> bool {
        (0.0..1e9).contains(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_keeps_precision_and_adds_unit() {
        assert_eq!(format!("{:.2}", Seconds(0.125)), "0.12 s");
        assert_eq!(format!("{}", Bytes(102_228_128)), "102228128 bytes");
    }

    #[test]
    fn durations_are_finite_and_not_negative() {
        assert!(Seconds(0.0).is_duration() && Seconds(3600.0).is_duration());
        for seconds in [-1e-9, f64::NAN, f64::INFINITY, 1e300] {
            assert!(!Seconds(seconds).is_duration(), "{seconds}");
        }
    }

    #[test]
    fn json_is_a_plain_number() {
        let json = serde_json::to_string(&Seconds(0.5)).expect("a number serializes");
        assert_eq!(json, "0.5");
    }
}

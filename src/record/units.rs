//! Quantities with their unit in the type, so that no bare `f64` passes between rooms.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $unit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
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
    /// Bytes; a megabyte is 1e6 of them and a gigabyte 1e9 everywhere in ringmark.
    Bytes, u64, "bytes"
);
quantity!(
    /// Images trained in one second, over all ranks unless the name of the value says otherwise.
    ImagesPerSecond, f64, "images/s"
);

quantity!(
    /// 1e9 bytes in one second.
    GigabytesPerSecond, f64, "GB/s"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_keeps_the_precision_and_adds_the_unit() {
        assert_eq!(format!("{:.2}", Seconds(0.125)), "0.12 s");
        assert_eq!(format!("{}", Bytes(102_228_128)), "102228128 bytes");
        assert_eq!(format!("{:.1}", ImagesPerSecond(384.19)), "384.2 images/s");
    }

    #[test]
    fn json_is_the_bare_number() {
        let json = serde_json::to_string(&Seconds(0.5)).expect("a number serializes");
        assert_eq!(json, "0.5");
    }
}

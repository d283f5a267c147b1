//! What a reading is, and what can be read.

use ringmark_core::host::Quantity;

/// One value at one time.
pub struct Reading {
    /// What is read.
    pub quantity: Quantity,
    /// Of what.
    pub of: String,
    /// How much.
    pub value: Value,
}

/// What the number of a reading is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// The quantity itself.
    Now(f64),
    /// The quantity's sum over time since some moment: its rate is wanted.
    Total(f64),
    /// The same in joules, whose rate is power.
    Joules(f64),
    /// Two sums of one snapshot, of which the first is a part of the second: its share since the last reading is wanted. A
    /// clock beside the counter would be wrong by the time that the thread waits for a core between the two.
    Share { part: f64, whole: f64 },
}

/// Something that can be read again and again.
pub trait Source {
    /// Adds what it reads now.
    fn read(&mut self, readings: &mut Vec<Reading>);
}

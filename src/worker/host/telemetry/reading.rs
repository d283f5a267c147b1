//! Types of readings and their sources.

use ringmark_core::host::Quantity;

pub struct Reading {
    pub quantity: Quantity,
    /// Name of the component.
    pub instance: String,
    pub value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Current value of the quantity.
    Gauge(f64),
    /// Cumulative total of the quantity; recorded as its rate.
    Counter(f64),
    /// Cumulative total in joules; recorded as power.
    Joules(f64),
    /// Two cumulative totals from one snapshot, the first a part of the second; recorded as the share since the last
    /// reading. A clock instead of `whole` would be wrong by the time for which the thread waits for a core between the
    /// two reads.
    Share { part: f64, whole: f64 },
}

pub trait Source {
    /// Appends the current readings.
    fn read(&mut self, readings: &mut Vec<Reading>);
}

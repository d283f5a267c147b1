//! One rank of a run.
fn main() {}

//! The programs from the outside, one module a command.

mod extract;
mod sweep;

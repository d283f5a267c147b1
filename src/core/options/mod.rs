//! Options of the command line, declared once for both programs.

pub mod clap_binding;
pub mod help;
pub mod keyword_enum;
pub mod migration_hints;
pub mod option_table;
pub mod usage;
pub mod value;

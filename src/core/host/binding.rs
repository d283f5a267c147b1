//! Binding of ranks to processors: the choice, and its result for a rank.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keyword_enum;

keyword_enum!(
    /// Requested binding of ranks to processors. A record contains the resolved value.
    #[derive(Default)]
    BindChoice {
        /// NUMA nodes on hosts with several of them, unless the ranks are bound already.
        Auto = "auto",
        /// NUMA nodes.
        Numa = "numa",
        /// An equal part of the cores for each rank alone.
        Core = "core",
        /// No binding.
        // In records that predate the option.
        #[default]
        None = "none",
    }
);

impl BindChoice {
    /// Returns the choice that `auto` made if ranks have these bindings.
    pub fn resolve<'a>(self, bindings: impl IntoIterator<Item = &'a Option<Binding>>) -> BindChoice {
        let is_numa = |binding: &Binding| binding.mode == BindingMode::Numa;
        match self {
            BindChoice::Auto if bindings.into_iter().flatten().any(is_numa) => BindChoice::Numa,
            BindChoice::Auto => BindChoice::None,
            choice => choice,
        }
    }
}

keyword_enum!(
    /// Origin of a rank's binding.
    BindingMode {
        /// The rank bound itself to NUMA nodes.
        Numa = "numa",
        /// The rank bound itself to cores.
        Core = "core",
        /// The program that started the rank bound it.
        Launcher = "launcher",
    }
);

/// Processors to which a rank is bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Binding {
    /// Origin of the binding.
    pub mode: BindingMode,
    /// Processors in the kernel's format, such as `0-15,32-47`.
    pub processors: String,
    /// NUMA nodes of these processors, in the same format.
    pub nodes: String,
}

/// Formats the binding as `NUMA node 0, processors 0-15,32-47`.
impl fmt::Display for Binding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = if self.nodes.contains([',', '-']) { "NUMA nodes" } else { "NUMA node" };
        let origin = if self.mode == BindingMode::Launcher { " (bound by the launcher)" } else { "" };
        write!(formatter, "{nodes} {}, processors {}{origin}", self.nodes, self.processors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_resolved_from_the_bindings() {
        let bound = |mode| Some(Binding { mode, processors: "0-3".to_owned(), nodes: "0".to_owned() });
        let launcher = bound(BindingMode::Launcher);
        let resolve = |choice: BindChoice, bindings: &[Option<Binding>]| choice.resolve(bindings);
        assert_eq!(resolve(BindChoice::Auto, &[None, bound(BindingMode::Numa)]), BindChoice::Numa);
        assert_eq!(resolve(BindChoice::Auto, &[None, launcher.clone()]), BindChoice::None);
        assert_eq!(resolve(BindChoice::Core, &[launcher]), BindChoice::Core);
    }

    #[test]
    fn binding_is_text() {
        let text =
            |mode, nodes: &str| Binding { mode, processors: "0-3,8".to_owned(), nodes: nodes.to_owned() }.to_string();
        assert_eq!(text(BindingMode::Numa, "0"), "NUMA node 0, processors 0-3,8");
        assert_eq!(text(BindingMode::Launcher, "0,8"), "NUMA nodes 0,8, processors 0-3,8 (bound by the launcher)");
    }
}

//! A case: the shape of one launch, written `2n8g` (2 nodes, 8 GPUs on each).

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_value;

/// Nodes and processes per node; one process drives one GPU, or a fixed share of the CPU on a host without GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Case {
    /// Number of nodes, at least 1.
    pub nodes: u32,
    /// Processes on each node, at least 1.
    pub gpus_per_node: u32,
}

impl Case {
    /// The smallest case, the base of every speedup.
    pub const SINGLE: Case = Case { nodes: 1, gpus_per_node: 1 };

    /// DLPerf's six cases, in its order.
    pub const DLPERF: [Case; 6] = [
        Case { nodes: 1, gpus_per_node: 1 },
        Case { nodes: 1, gpus_per_node: 2 },
        Case { nodes: 1, gpus_per_node: 4 },
        Case { nodes: 1, gpus_per_node: 8 },
        Case { nodes: 2, gpus_per_node: 8 },
        Case { nodes: 4, gpus_per_node: 8 },
    ];

    /// Returns the world size: nodes x GPUs per node.
    pub fn ranks(self) -> u32 {
        self.nodes * self.gpus_per_node
    }
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}n{}g", self.nodes, self.gpus_per_node)
    }
}

impl FromStr for Case {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Case> {
        let parse = || -> Option<Case> {
            let (nodes, rest) = text.split_once('n')?;
            let digits = |part: &str| -> Option<u32> {
                if !part.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                part.parse().ok()
            };
            Some(Case { nodes: digits(nodes)?, gpus_per_node: digits(rest.strip_suffix('g')?)? })
        };
        let case =
            parse().with_context(|| format!("case {text:?} is unknown: write 1n2g for 1 node with 2 GPUs or ranks"))?;
        if case.nodes == 0 || case.gpus_per_node == 0 {
            bail!("case {text:?} has no ranks: use at least 1 node and 1 GPU per node");
        }
        if case.nodes.checked_mul(case.gpus_per_node).is_none_or(|ranks| ranks > 1 << 20) {
            bail!("case {text:?} has more than {} ranks", 1 << 20);
        }
        Ok(case)
    }
}

text_value!(Case);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_round_trips() {
        for text in ["1n1g", "2n8g", "16n8g", "128n16g"] {
            assert_eq!(text.parse::<Case>().expect("a case").to_string(), text);
        }
    }

    #[test]
    fn invalid_cases_are_rejected() {
        for text in
            ["", "8g", "2n", "2n8", "n8g", "2n8gg", "-1n1g", "+1n1g", "2n 8g", "2N8G", "0n1g", "1n0g", "99999n99999g"]
        {
            let error = text.parse::<Case>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn dlperf_ends_at_32_ranks() {
        assert_eq!(Case::DLPERF.map(Case::ranks), [1, 2, 4, 8, 16, 32]);
    }
}

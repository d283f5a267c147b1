//! Traffic of a network's gradient exchange and the error of each rank's results. measure.py's lines have only one size
//! and one error for all ranks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::bandwidth::nullable;
use crate::benchmark::compression::CompressionUse;
use crate::benchmark::strategy::{ServerUse, StrategyUse};
use crate::dimension::{Bytes, Strategy};

/// Traffic and errors with one strategy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GradientsUse {
    /// Bytes that each rank sends per step according to the backend's algorithm: a formula, not a measurement. Empty if
    /// servers and ranks count their traffic, in `strategy`.
    #[serde(default, alias = "asked_out_by_rank", skip_serializing_if = "Vec::is_empty")]
    pub expected_sent_by_rank: Vec<Bytes>,
    /// Bytes that each rank receives per step, likewise.
    #[serde(default, alias = "asked_in_by_rank", skip_serializing_if = "Vec::is_empty")]
    pub expected_received_by_rank: Vec<Bytes>,
    /// Weights that ranks own, or weights and counted traffic of servers; `None` with `all-reduce`.
    #[serde(default, alias = "kv_store", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<StrategyUse>,
    /// Statistics of the compression, if enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionUse>,
    /// Error of each rank in its worst iteration, `sum |got - expected| / sum |expected|`; that of the final weights if
    /// ranks do not wait for each other. Empty if nothing was checked; `null` in the file if it is not finite.
    #[serde(default, with = "nullable")]
    #[schemars(with = "Vec<Option<f64>>")]
    pub error_by_rank: Vec<f64>,
}

impl GradientsUse {
    /// Returns the log lines, each starting with `#`.
    pub fn lines(&self, store: Strategy) -> Vec<String> {
        let megabytes = |bytes: &Bytes| format!("{:.6}", bytes.megabytes());
        let each = |all: &[Bytes]| all.iter().map(megabytes).collect::<Vec<_>>().join(", ");
        let mut lines = Vec::new();
        if !self.expected_sent_by_rank.is_empty() {
            let (out, into) = (each(&self.expected_sent_by_rank), each(&self.expected_received_by_rank));
            lines
                .push(format!("{store}: traffic per step, by rank: out {out} MB, in {into} MB (formula, not counted)"));
        }
        if let Some(StrategyUse { servers, sent_by_rank, received_by_rank, .. }) = &self.strategy {
            if !sent_by_rank.is_empty() {
                let (out, into) = (each(sent_by_rank), each(received_by_rank));
                lines.push(format!(
                    "{store}: traffic per step, by rank: out {out} MB, in {into} MB (counted, with headers)"
                ));
            }
            for (number, ServerUse { host, received, sent, .. }) in servers.iter().enumerate() {
                let (out, into) = (megabytes(sent), megabytes(received));
                lines.push(format!("{store}: server {number} on host {host}: out {out} MB, in {into} MB"));
            }
        }
        lines.extend(self.compression.as_ref().map(|used| format!("{store}: {}", used.text())));
        if !self.error_by_rank.is_empty() {
            let errors: Vec<String> = self.error_by_rank.iter().map(|error| format!("{error:.6}")).collect();
            lines.push(format!("{store}: error by rank: {}", errors.join(", ")));
        }
        lines.iter().map(|line| format!("# {line}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_mark_counted_and_computed_bytes() {
        let requested = GradientsUse {
            expected_sent_by_rank: vec![Bytes(1_500_000), Bytes(500_000)],
            expected_received_by_rank: vec![Bytes(500_000), Bytes(1_500_000)],
            error_by_rank: vec![0.0, 0.25],
            ..GradientsUse::default()
        };
        assert_eq!(
            requested.lines(Strategy::Device),
            [
                "# device: traffic per step, by rank: out 1.500000, 0.500000 MB, in 0.500000, 1.500000 MB (formula, \
                 not counted)",
                "# device: error by rank: 0.000000, 0.250000",
            ]
        );
        let server = ServerUse {
            host: "s".to_owned(),
            parts: 1,
            weights: Bytes(8),
            received: Bytes(1_000_048),
            sent: Bytes(2_000_048),
        };
        let counted = StrategyUse {
            servers: vec![server],
            sent_by_rank: vec![Bytes(1_000_048)],
            received_by_rank: vec![Bytes(2_000_048)],
            ..StrategyUse::default()
        };
        let counted = GradientsUse { strategy: Some(counted), ..GradientsUse::default() };
        assert_eq!(
            counted.lines(Strategy::DistSync),
            [
                "# dist_sync: traffic per step, by rank: out 1.000048 MB, in 2.000048 MB (counted, with headers)",
                "# dist_sync: server 0 on host s: out 2.000048 MB, in 1.000048 MB",
            ]
        );
    }
}

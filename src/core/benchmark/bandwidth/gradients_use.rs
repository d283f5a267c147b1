//! What the exchange of a network's gradients moved, and how far each rank's results are from what is expected: beside
//! measure.py's lines, which have one size and one error for all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::bandwidth::nullable;
use crate::benchmark::compression::CompressionUse;
use crate::benchmark::kv_store::{KvStoreUse, ServerUse};
use crate::dimension::{Bytes, KvStore};

/// Of one kv-store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GradientsUse {
    /// What each rank sends in a step by what its backend is asked to do: a formula, not a measurement. Empty where servers
    /// and ranks count what they move, in `kv_store`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_out_by_rank: Vec<Bytes>,
    /// What each rank receives, as above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_in_by_rank: Vec<Bytes>,
    /// What owners hold, or what servers and ranks held and counted; `None` with `ring`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_store: Option<KvStoreUse>,
    /// What a code did, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionUse>,
    /// `sum |got - expected| / sum |expected|` on each rank, of its worst iteration; of the weights at the end where ranks do
    /// not wait for each other. Empty where nothing was checked, `null` in the file where it is not finite.
    #[serde(default, with = "nullable")]
    #[schemars(with = "Vec<Option<f64>>")]
    pub error_by_rank: Vec<f64>,
}

impl GradientsUse {
    /// What the log says of it, each line marked.
    pub fn lines(&self, store: KvStore) -> Vec<String> {
        let megabytes = |bytes: &Bytes| format!("{:.6}", bytes.megabytes());
        let each = |all: &[Bytes]| all.iter().map(megabytes).collect::<Vec<_>>().join(", ");
        let mut lines = Vec::new();
        if !self.asked_out_by_rank.is_empty() {
            let (out, into) = (each(&self.asked_out_by_rank), each(&self.asked_in_by_rank));
            lines.push(format!(
                "{store}: a step asks the backend to move, by rank: out {out} MB, in {into} MB (formula, not counted)"
            ));
        }
        if let Some(KvStoreUse { servers, sent_by_rank, received_by_rank, .. }) = &self.kv_store {
            if !sent_by_rank.is_empty() {
                let (out, into) = (each(sent_by_rank), each(received_by_rank));
                lines.push(format!(
                    "{store}: a step moves, by rank: out {out} MB, in {into} MB (counted, with headers)"
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
    fn lines_say_whether_bytes_were_counted() {
        let asked = GradientsUse {
            asked_out_by_rank: vec![Bytes(1_500_000), Bytes(500_000)],
            asked_in_by_rank: vec![Bytes(500_000), Bytes(1_500_000)],
            error_by_rank: vec![0.0, 0.25],
            ..GradientsUse::default()
        };
        assert_eq!(
            asked.lines(KvStore::Device),
            [
                "# device: a step asks the backend to move, by rank: out 1.500000, 0.500000 MB, in 0.500000, 1.500000 MB \
                 (formula, not counted)",
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
        let counted = KvStoreUse {
            servers: vec![server],
            sent_by_rank: vec![Bytes(1_000_048)],
            received_by_rank: vec![Bytes(2_000_048)],
            ..KvStoreUse::default()
        };
        let counted = GradientsUse { kv_store: Some(counted), ..GradientsUse::default() };
        assert_eq!(
            counted.lines(KvStore::DistSync),
            [
                "# dist_sync: a step moves, by rank: out 1.000048 MB, in 2.000048 MB (counted, with headers)",
                "# dist_sync: server 0 on host s: out 2.000048 MB, in 1.000048 MB",
            ]
        );
    }
}

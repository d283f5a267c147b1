//! Name of the backend in records and headers.

use crate::keyword_enum;

keyword_enum!(
    /// Backend that summed the values of several ranks.
    #[derive(Default)]
    BackendName {
        /// NVIDIA Collective Communications Library.
        Nccl = "nccl",
        /// Shared memory within a host, MPI between hosts.
        SharedMemory = "shared-memory",
        /// MPI through host memory.
        Mpi = "mpi",
        /// TCP between ranks and servers.
        Tcp = "tcp",
        /// No exchange between several ranks.
        None = "none",
        /// Single rank, without any exchange.
        Solo = "solo",
        /// Undecided when the record was written, or a name from another version.
        #[default]
        #[serde(other)]
        Unknown = "",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_names_of_other_versions_are_read() {
        let read = |text: &str| serde_json::from_str::<BackendName>(text).expect("any name");
        assert_eq!(read("\"shared-memory\""), BackendName::SharedMemory);
        assert_eq!(read("\"\""), BackendName::Unknown);
        assert_eq!(read("\"gloo\""), BackendName::Unknown);
        assert_eq!(serde_json::to_string(&BackendName::Unknown).expect("a name"), "\"\"");
    }
}

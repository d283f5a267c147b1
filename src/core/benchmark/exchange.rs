//! How gradients are exchanged, in training and in a bandwidth run alike: configuration and options.

use anyhow::ensure;

use crate::dimension::{Bytes, DeviceChoice, Wire};
use crate::{config_options, keyword_enum};

keyword_enum!(
    /// A choice of two.
    Switch {
        /// Done.
        On = "on",
        /// Not done.
        Off = "off",
    }
);

impl Switch {
    /// What records say that are older than the choice.
    pub fn off() -> Switch {
        Switch::Off
    }
}

keyword_enum!(
    /// What sums the gradients.
    BackendChoice {
        /// NCCL on CUDA, shared memory on the CPU.
        Auto = "auto",
        /// NCCL, on CUDA only.
        Nccl = "nccl",
        /// The ranks of a host from each other's memory, hosts among each other by MPI; on the CPU only.
        SharedMemory = "shared-memory",
        /// MPI, through host memory.
        Mpi = "mpi",
        /// No exchange: every rank trains alone, the baseline of what communication costs.
        None = "none",
    }
);

keyword_enum!(
    /// How NCCL sums.
    NcclAlgorithm {
        /// Rings, as DLPerf's Horovod test.
        Ring = "ring",
        /// What NCCL takes for the fastest at each size.
        Auto = "auto",
        /// Trees.
        Tree = "tree",
        /// In the switches, where they can add (NVLink SHARP).
        Nvls = "nvls",
    }
);

impl Default for NcclAlgorithm {
    /// What this benchmark measures.
    fn default() -> NcclAlgorithm {
        NcclAlgorithm::Ring
    }
}

impl NcclAlgorithm {
    /// The value of `NCCL_ALGO`; `None` leaves the choice to NCCL.
    pub fn variable(self) -> Option<&'static str> {
        match self {
            NcclAlgorithm::Ring => Some("Ring"),
            NcclAlgorithm::Auto => None,
            // Of all-reduce alone: without the prefix no algorithm is left to broadcast and reduce, which have rings only
            // (parseList and ncclTopoTuneModel in NCCL 2.28's graph/tuning.cc).
            NcclAlgorithm::Tree => Some("allreduce:tree"),
            // Within a host, and a tree of them between hosts.
            NcclAlgorithm::Nvls => Some("allreduce:nvls,nvlstree"),
        }
    }
}

config_options! {
    /// How gradients are exchanged, in training and in a bandwidth run alike.
    #[derive(Copy)]
    ExchangeConfig {
        /// What sums the gradients.
        #[serde(alias = "collective")]
        backend: BackendChoice = BackendChoice::Auto => option("backend", "NAME",
            "What sums the gradients; auto is NCCL on CUDA and shared memory on the CPU (MPI between hosts), none \
             exchanges nothing").aliases(&["collective"]),
        /// Element type of the exchanged gradients.
        wire: Wire = Wire::Fp32 => option("wire", "TYPE", "Element type of the gradients while they are exchanged")
            .flag("fp16-allreduce", "fp16").aliases(&["datatype"]),
        /// Size of a gradient bucket in MB (1e6 bytes of fp32); 0 makes every parameter a bucket.
        bucket_mb: f64 = 25.0 => option("bucket-mb", "MB",
            "Size of a gradient bucket in MB (1e6 bytes of fp32); 0 makes every parameter a bucket")
            .range(0.0..=100_000.0).aliases(&["fusion-threshold-mb", "bucket-cap-mb", "bucket-size"]),
        /// Longest chunk that one MPI call sums, in kB (1e3 bytes); 0 is a bucket at once.
        #[serde(alias = "piece_kb", default = "ExchangeConfig::first_chunk")]
        chunk_kb: u32 = 1000 => option("chunk-kb", "KB",
            "Longest chunk that one MPI call sums, in kB (1e3 bytes); 0 is a bucket at once")
            .range(0u32..=1_000_000).aliases(&["piece-kb"]),
        /// Longest bucket at the end of backward in MB (1e6 bytes of fp32): nothing is left to hide its exchange behind.
        /// 0 disables the limit.
        #[serde(default)]
        tail_mb: f64 = 1.0 => option("tail-mb", "MB",
            "Longest bucket at the end of backward in MB: its exchange cannot be hidden; 0 leaves it as long as it \
             comes").range(0.0..=100_000.0),
        /// How NCCL sums.
        #[serde(default)]
        nccl_algo: NcclAlgorithm = NcclAlgorithm::default() => option("nccl-algo", "NAME",
            "How NCCL sums: ring, as DLPerf's test, unless NCCL_ALGO is set; auto is NCCL's own choice"),
        /// Whether the ranks of a host add up first, and their sums go between the hosts; `None` leaves it to the backend. In a
        /// record what it came to: not there where servers or NCCL sum, or nobody, and in older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hierarchical: Option<Switch> = None => option("hierarchical", "ON|OFF",
            "On CPUs: on adds up within each host, then between hosts (--backend shared-memory); off is one all-reduce \
             over all ranks (--backend mpi)")
            .default_is("the backend's: on, of mpi off; NCCL goes over all ranks").flag("hierarchical-allreduce", "on"),
    }
}

impl ExchangeConfig {
    /// Of records that were written before there was a choice.
    fn first_chunk() -> u32 {
        4000
    }

    /// Size of a gradient bucket.
    pub fn bucket(&self) -> Bytes {
        Bytes((self.bucket_mb * 1e6) as u64)
    }

    /// Longest bucket at the end of backward; 0 is no limit.
    pub fn tail(&self) -> Bytes {
        Bytes((self.tail_mb * 1e6) as u64)
    }

    /// Refuses a backend that `device` rules out.
    pub fn check(&self, device: DeviceChoice) -> anyhow::Result<()> {
        ensure!(
            !(device == DeviceChoice::Cpu && self.backend == BackendChoice::Nccl),
            "--backend nccl needs a GPU, --device is cpu: choose --backend shared-memory, mpi or auto"
        );
        ensure!(
            !(device == DeviceChoice::Cuda && self.backend == BackendChoice::SharedMemory),
            "--backend shared-memory sums host memory, --device is cuda: choose --backend nccl or auto"
        );
        self.check_hierarchical(device)
    }
}

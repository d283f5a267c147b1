//! Options of the gradient exchange, shared by training and bandwidth runs.

use anyhow::ensure;

use crate::dimension::{Bytes, DeviceChoice, Wire};
use crate::{config_options, keyword_enum};

keyword_enum!(
    /// An option that is on or off.
    #[derive(Default)]
    Switch {
        /// Enabled.
        On = "on",
        /// Disabled.
        // In records that predate the option.
        #[default]
        Off = "off",
    }
);

keyword_enum!(
    /// Backend that sums the gradients.
    BackendChoice {
        /// NCCL on CUDA, shared memory on the CPU.
        Auto = "auto",
        /// NCCL, on CUDA only.
        Nccl = "nccl",
        /// Shared memory within a host, MPI between hosts; on the CPU only.
        SharedMemory = "shared-memory",
        /// MPI, through host memory.
        Mpi = "mpi",
        /// No exchange: every rank trains alone, as the baseline for the cost of communication.
        None = "none",
    }
);

keyword_enum!(
    /// Algorithm of NCCL's all-reduce.
    #[derive(Default)]
    NcclAlgorithm {
        /// Rings, as in DLPerf's Horovod test.
        #[default]
        Ring = "ring",
        /// NCCL's own choice at each size.
        Auto = "auto",
        /// Trees.
        Tree = "tree",
        /// Summation in the switches, if they support it (NVLink SHARP).
        Nvls = "nvls",
    }
);

impl NcclAlgorithm {
    /// Returns the value of `NCCL_ALGO`; `None` leaves the choice to NCCL.
    pub fn variable(self) -> Option<&'static str> {
        match self {
            NcclAlgorithm::Ring => Some("Ring"),
            NcclAlgorithm::Auto => None,
            // The prefix limits the choice to all-reduce: without it no algorithm is left for broadcast and reduce,
            // which have rings only (parseList and ncclTopoTuneModel in NCCL 2.28's graph/tuning.cc).
            NcclAlgorithm::Tree => Some("allreduce:tree"),
            // NVLS applies within a host; a tree connects the hosts.
            NcclAlgorithm::Nvls => Some("allreduce:nvls,nvlstree"),
        }
    }
}

config_options! {
    /// Options of the gradient exchange, shared by training and bandwidth runs.
    #[derive(Copy)]
    ExchangeConfig {
        /// Backend that sums the gradients.
        #[serde(alias = "collective")]
        backend: BackendChoice = BackendChoice::Auto => option("backend", "NAME",
            "All-reduce backend; auto is NCCL on CUDA and shared memory on the CPU (MPI between hosts), none \
             exchanges nothing").aliases(&["collective"]).set_in_baseline(),
        /// Element type of the exchanged gradients.
        wire: Wire = Wire::Fp32 => option("wire", "TYPE", "Type of gradients during the exchange")
            .flag("fp16-allreduce", "fp16").aliases(&["datatype"])
            .names_in_bandwidth('d', &["datatype", "dtype"]),
        /// Size of a gradient bucket in MB (1e6 bytes of fp32); 0 makes every parameter a bucket.
        bucket_mb: f64 = 25.0 => option("bucket-mb", "MB",
            "Size of a gradient bucket in MB (1e6 bytes of fp32); 0 makes every parameter a bucket")
            .range(0.0..=100_000.0).aliases(&["fusion-threshold-mb", "bucket-cap-mb", "bucket-size"]),
        /// Maximum chunk that one MPI call sums, in kB (1e3 bytes); 0 is a whole bucket.
        #[serde(alias = "piece_kb", default = "ExchangeConfig::first_chunk")]
        chunk_kb: u32 = 1000 => option("chunk-kb", "KB",
            "Largest chunk summed by one MPI call, in kB (1e3 bytes); 0 sums a whole bucket")
            .range(0u32..=1_000_000).aliases(&["piece-kb"]),
        /// Maximum bucket at the end of backward in MB (1e6 bytes of fp32): no computation is left to hide its
        /// exchange. 0 disables the limit.
        #[serde(default)]
        tail_mb: f64 = 1.0 => option("tail-mb", "MB",
            "Largest size of the last bucket of backward in MB, because its exchange cannot be hidden; 0 sets no \
             limit").range(0.0..=100_000.0),
        /// Algorithm of NCCL's all-reduce.
        #[serde(default)]
        nccl_algo: NcclAlgorithm = NcclAlgorithm::default() => option("nccl-algo", "NAME",
            "NCCL algorithm: ring, as in DLPerf's test, unless NCCL_ALGO is set; auto lets NCCL choose"),
        /// Hierarchical summation, first within each host and then between hosts; `None` is the backend's default. A
        /// record contains the resolved value; absent if servers, NCCL or no backend sums, and in older records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hierarchical: Option<Switch> = None => option("hierarchical", "ON|OFF",
            "Hierarchical reduction on CPUs: on sums within each host, then between hosts (--backend shared-memory); \
             off is one all-reduce over all ranks (--backend mpi)")
            .default_is("that of the backend: on, but off for mpi; NCCL sums over all \
                         ranks").flag("hierarchical-allreduce", "on").set_in_baseline(),
    }
}

impl ExchangeConfig {
    /// Default for records that predate the option.
    fn first_chunk() -> u32 {
        4000
    }

    /// Returns the size of a gradient bucket.
    pub fn bucket(&self) -> Bytes {
        Bytes((self.bucket_mb * 1e6) as u64)
    }

    /// Returns the maximum size of a bucket at the end of backward; 0 is no limit.
    pub fn tail(&self) -> Bytes {
        Bytes((self.tail_mb * 1e6) as u64)
    }

    /// Rejects a backend that `device` does not support.
    pub fn check(&self, device: DeviceChoice) -> anyhow::Result<()> {
        ensure!(
            !(device == DeviceChoice::Cpu && self.backend == BackendChoice::Nccl),
            "--backend nccl needs a GPU, but --device is cpu: use --backend shared-memory, mpi or auto"
        );
        ensure!(
            !(device == DeviceChoice::Cuda && self.backend == BackendChoice::SharedMemory),
            "--backend shared-memory sums in host memory, but --device is cuda: use --backend nccl or auto"
        );
        self.check_hierarchical(device)
    }
}

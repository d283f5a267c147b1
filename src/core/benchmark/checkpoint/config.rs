//! Options of a checkpoint run, each with its default.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::checkpoint::parts;
use crate::benchmark::optimizer::Optimizer;
use crate::benchmark::typed_size::TypedSize;
use crate::benchmark::{is_default, shared_options};
use crate::dimension::{Bytes, Case, DeviceChoice, Model};
use crate::host::BindChoice;
use crate::number_text::count;
use crate::options::option_table::OptionSpec;
use crate::options::value::ValueList;
use crate::{config_options, keyword_enum};

keyword_enum!(
    /// Ranks that write a checkpoint.
    Writers {
        /// Rank 0 writes the whole checkpoint.
        Rank0 = "rank-0",
        /// The first rank of every host writes the whole checkpoint.
        Host = "host",
        /// Every rank writes the whole checkpoint.
        Ranks = "ranks",
        /// Every rank writes its part of the checkpoint.
        Shards = "shards",
    }
);

keyword_enum!(
    /// Path of the bytes to the storage.
    FileIo {
        /// Through the page cache.
        Buffered = "buffered",
        /// Past the page cache (`O_DIRECT`).
        Direct = "direct",
    }
);

keyword_enum!(
    /// Work of the ranks while a checkpoint is written.
    WriteMode {
        /// None: all ranks wait for the slowest writer.
        Blocking = "blocking" | "sync",
        /// Matrix products, while a thread writes a copy of the checkpoint.
        Beside = "beside" | "async",
    }
);

impl Writers {
    /// Returns the number of pages of a checkpoint of `pages` that a rank writes, given its number among `ranks` and on its
    /// host.
    pub fn pages(self, pages: u64, rank: u32, ranks: u32, local_rank: u32) -> u64 {
        let is_writer = match self {
            Writers::Rank0 => rank == 0,
            Writers::Host => local_rank == 0,
            Writers::Ranks => true,
            Writers::Shards => {
                let Range { start, end } = parts::part(pages, rank, ranks);
                return end - start;
            }
        };
        if is_writer { pages } else { 0 }
    }
}

/// Momentum of `sgd` and `nag`, whose state a checkpoint contains.
const MOMENTUM: f64 = 0.9;

/// Bytes of a weight in fp32.
const FP32_BYTES: u64 = 4;

config_options! {
    /// One checkpoint run.
    CheckpointConfig {
        /// Folder of the files.
        folder: PathBuf = PathBuf::new() => option("folder", "FOLDER",
            "Folder for the files, required: on the storage to measure, with the same path on every host"),
        /// Network whose weights and state of the update give the size of a checkpoint.
        model: Model = Model::default() => option("model", "NAME",
            "Network whose checkpoint is written: its weights and the state of its update, in fp32"),
        /// Rule of the update, whose state is part of the checkpoint.
        optimizer: Optimizer = Optimizer::default() => option("optimizer", "NAME",
            "Update rule of --model: sgd and nag keep one array as large as the weights, adam and adamw two"),
        /// Size of a checkpoint instead of that of a network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<Bytes> = None => each([OptionSpec::for_value("size", "SIZE",
            "Size of a checkpoint instead of --model, in bytes or as 64M, 1G (steps of 1024)",
            |config: &Self| config.size.map(TypedSize),
            |config: &mut Self, TypedSize(size)| config.size = Some(size),
        )]).conflicts_with(&["model", "optimizer"]),
        /// Ranks that write.
        writers: ValueList<Writers> = ValueList(vec![Writers::Rank0, Writers::Shards]) => option("writers", "WHO,..",
            "Ranks that write: rank-0, host (the first rank of each) or ranks (all) write the whole, shards: each its part"),
        /// Files of each writer.
        files: ValueList<u32> = ValueList(vec![1]) => option("files", "N,..", "Files of each writer"),
        /// Path of the bytes to the storage.
        io: ValueList<FileIo> = ValueList(vec![FileIo::Buffered]) => option("io", "KIND,..",
            "Writing and reading through the page cache (buffered) or past it (direct, O_DIRECT)"),
        /// Work of the ranks meanwhile.
        mode: ValueList<WriteMode> = ValueList(vec![WriteMode::Blocking]) => option("mode", "NAME,..",
            "Ranks wait for the write (blocking), or compute matrix products while a thread writes a copy (beside)"),
        /// Measured checkpoints of each combination.
        iterations: u32 = 5 => option("iters", "N", "Measured checkpoints of each combination, excluding warm-up")
            .range(1u32..=100_000),
        /// Warm-up checkpoints of each combination, not measured.
        warmup: u32 = 1 => option("warmup", "N", "Warm-up checkpoints of each combination, not measured")
            .range(0u32..=100_000),
        /// Device that holds the checkpoint before it is written and after it is read.
        device: DeviceChoice = DeviceChoice::Auto => shared(shared_options::device).order(1),
        /// CPU threads of a rank, for its products.
        threads: Option<u32> = None => shared(shared_options::threads).order(1),
        /// Binding of ranks to processors. A record contains the resolved value; absent means none.
        #[serde(default, skip_serializing_if = "is_default")]
        bind: BindChoice = BindChoice::Auto => shared(shared_options::bind).order(1),
        /// File for the record (JSON), written by rank 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<PathBuf> = None => shared(shared_options::record),
    }
}

/// One value of each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Combination {
    /// Ranks that write.
    pub writers: Writers,
    /// Files of each writer.
    pub files: u32,
    /// Path of the bytes to the storage.
    pub io: FileIo,
    /// Work of the ranks meanwhile.
    pub mode: WriteMode,
}

impl fmt::Display for Combination {
    /// Formats as `rank-0, 1 file, buffered, blocking`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Combination { writers, files, io, mode } = self;
        write!(formatter, "{writers}, {}, {io}, {mode}", count(*files, "file"))
    }
}

impl CheckpointConfig {
    /// Returns the size of a whole checkpoint, rounded up to pages.
    ///
    /// A network has `4 x parameters x (1 + arrays of the update)` bytes: ResNet50 with momentum
    /// `4 x 25,557,032 x 2 = 204,456,256`, in 49,917 pages. Running statistics are left out: they are below 1 % of it.
    pub fn bytes(&self) -> Bytes {
        let of_model = || {
            let arrays = 1 + self.optimizer.state_names(MOMENTUM).len() as u64;
            FP32_BYTES * self.model.facts().parameters * arrays
        };
        Bytes(self.size.map_or_else(of_model, |size| size.0).div_ceil(parts::PAGE) * parts::PAGE)
    }

    /// Returns the bytes that all ranks of a case write for one checkpoint.
    pub fn written(&self, writers: Writers, case: Case) -> Bytes {
        let (ranks, pages) = (case.ranks(), self.bytes().0 / parts::PAGE);
        let of_rank = |rank| writers.pages(pages, rank, ranks, rank % case.gpus_per_node);
        Bytes((0..ranks).map(of_rank).sum::<u64>() * parts::PAGE)
    }

    /// Returns a text such as `resnet50_v1b with the state of nag`; the size without a network.
    pub fn content(&self) -> String {
        match self.size {
            Some(size) => format!("{} bytes", size.0),
            None => format!("{} with the state of {}", self.model, self.optimizer),
        }
    }

    /// Returns the combinations of the axes, in the order of measurement: the last axis changes fastest.
    pub fn combinations(&self) -> Vec<Combination> {
        let mut all = Vec::new();
        for &writers in &self.writers.0 {
            for &files in &self.files.0 {
                for &io in &self.io.0 {
                    all.extend(self.mode.0.iter().map(|&mode| Combination { writers, files, io, mode }));
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_counts_weights_and_state() {
        let bytes = |optimizer| CheckpointConfig { optimizer, ..CheckpointConfig::default() }.bytes().0;
        assert_eq!(bytes(Optimizer::Nag), 49_917 * 4096);
        let weights = 4 * Model::default().facts().parameters;
        assert_eq!(bytes(Optimizer::AdamW), (3 * weights).div_ceil(4096) * 4096);
        let typed = CheckpointConfig { size: Some(Bytes(5000)), ..CheckpointConfig::default() };
        assert_eq!((typed.bytes(), typed.content().as_str()), (Bytes(8192), "5000 bytes"));
    }

    /// Two hosts with two ranks each.
    #[test]
    fn ranks_write_the_whole_or_their_part() {
        let of_ranks = |writers: Writers| [0, 1, 2, 3].map(|rank| writers.pages(10, rank, 4, rank % 2));
        assert_eq!(of_ranks(Writers::Rank0), [10, 0, 0, 0]);
        assert_eq!(of_ranks(Writers::Host), [10, 0, 10, 0]);
        assert_eq!(of_ranks(Writers::Ranks), [10; 4]);
        assert_eq!(of_ranks(Writers::Shards), [2, 3, 2, 3]);
        let config = CheckpointConfig { size: Some(Bytes(10 * 4096)), ..CheckpointConfig::default() };
        let written = |writers| config.written(writers, Case { nodes: 2, gpus_per_node: 2 }).0 / 4096;
        assert_eq!([Writers::Rank0, Writers::Host, Writers::Ranks, Writers::Shards].map(written), [10, 20, 40, 10]);
    }

    #[test]
    fn combinations_are_a_product_of_the_axes() {
        let config = CheckpointConfig {
            files: ValueList(vec![1, 4]),
            mode: ValueList(vec![WriteMode::Blocking, WriteMode::Beside]),
            ..CheckpointConfig::default()
        };
        let all: Vec<String> = config.combinations().iter().map(Combination::to_string).collect();
        assert_eq!(all.len(), 8);
        assert_eq!(
            all[..3],
            [
                "rank-0, 1 file, buffered, blocking",
                "rank-0, 1 file, buffered, beside",
                "rank-0, 4 files, buffered, blocking"
            ]
        );
    }
}

//! Strategies for summing gradients and updating weights: all-reduce, the default, MXNet's kv-stores by their own names,
//! and shards. An axis of a sweep.

use std::borrow::Cow;

use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;

keyword_enum!(
    /// Strategy: method of summing gradients and updating weights, by MXNet's names.
    KvStore {
        /// All-reduce; every rank performs the same update.
        Ring = "ring" | "horovod" | "all-reduce" | "allreduce" | "ddp",
        /// Each rank receives the sum of its shard of every bucket, updates it and sends the weights: optimizer states
        /// are divided among the ranks, as in ZeRO stage 1.
        ShardOptimizer = "shard-optimizer" | "zero1" | "zero-1",
        /// Same as `ShardOptimizer`, but each rank also keeps only its shards of the gradients: ZeRO stage 2. A pass
        /// that `--accumulate` adds exchanges its own gradients.
        ShardGradients = "shard-gradients" | "zero2" | "zero-2",
        /// Each rank keeps only its shards of weights, gradients and optimizer states, and gathers the weights of a
        /// part of the network before forward and again before backward: ZeRO stage 3, PyTorch's FSDP.
        ShardWeights = "shard-weights" | "zero3" | "zero-3" | "fsdp" | "fsdp2",
        /// Same as `ShardWeights` among the ranks of a host. The hosts have copies, and add their gradients: PyTorch's
        /// `HYBRID_SHARD`.
        Hybrid = "hybrid" | "hsdp" | "hybrid-shard" | "hybrid_shard",
        /// Each rank sums and updates its shard in host memory; single host only.
        Local = "local" | "local_update_cpu" | "local_allreduce_cpu",
        /// Each bucket has an owner, balanced by size, that sums, updates and sends the weights.
        Device = "device" | "local_allreduce_device",
        /// Rank 0 sums, updates and sends the weights.
        Nccl = "nccl",
        /// Servers update once all workers have pushed.
        DistSync = "dist_sync" | "dist",
        /// Same as `DistSync`. In MXNet it sums the gradients of a host on a GPU instead of in host memory.
        DistDeviceSync = "dist_device_sync" | "dist_sync_device" | "dist_device",
        /// Servers update after every push.
        DistAsync = "dist_async",
        /// Same as `DistAsync`, but CPU ranks of one host sum their gradients before they push.
        DistDeviceAsync = "dist_device_async" | "dist_async_device",
    }
);

impl KvStore {
    /// Returns the value for records that predate this option.
    pub fn ring() -> KvStore {
        KvStore::Ring
    }

    /// Returns true if every rank updates all weights after an all-reduce: the default, which names omit.
    pub fn is_ring(&self) -> bool {
        *self == KvStore::Ring
    }

    /// Returns true if no rank holds the gradients of the whole network.
    pub fn shards_gradients(self) -> bool {
        self == KvStore::ShardGradients || self.shards_weights()
    }

    /// Returns true if no rank holds the weights of the whole network.
    pub fn shards_weights(self) -> bool {
        matches!(self, KvStore::ShardWeights | KvStore::Hybrid)
    }

    /// Returns true if the ranks divide the update of the weights among them.
    pub fn divides_update(self) -> bool {
        !self.has_servers() && !matches!(self, KvStore::Ring | KvStore::Nccl)
    }

    /// Returns true if separate processes hold the weights.
    pub fn has_servers(self) -> bool {
        matches!(self, KvStore::DistSync | KvStore::DistDeviceSync | KvStore::DistAsync | KvStore::DistDeviceAsync)
    }

    /// Returns true if workers do not wait for each other, so that they may compute with different versions of the
    /// weights.
    pub fn is_asynchronous(self) -> bool {
        matches!(self, KvStore::DistAsync | KvStore::DistDeviceAsync)
    }

    /// Returns the name for file names, whose parts are separated by `_`: `dist-sync`.
    pub fn file_name(self) -> Cow<'static, str> {
        match self.keyword().contains('_') {
            true => Cow::Owned(self.keyword().replace('_', "-")),
            false => Cow::Borrowed(self.keyword()),
        }
    }

    /// Parses a [`file_name`](Self::file_name).
    pub fn from_file_name(name: &str) -> Option<KvStore> {
        KvStore::ALL.iter().copied().find(|kv_store| kv_store.file_name() == name)
    }
}

keyword_enum!(
    /// Assignment of arrays to servers.
    KeyPlacement {
        /// Balanced by size: the largest array first, each to the server that holds least.
        Balanced = "balanced",
        /// MXNet's hash of the array's number.
        Hash = "hash",
    }
);

impl KeyPlacement {
    /// Returns the default.
    pub fn balanced() -> KeyPlacement {
        KeyPlacement::Balanced
    }

    /// Returns true for the default, which records omit.
    pub fn is_balanced(&self) -> bool {
        *self == KeyPlacement::Balanced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mxnet_names_are_accepted() {
        for (typed, store) in [
            ("local_allreduce_cpu", KvStore::Local),
            ("local_allreduce_device", KvStore::Device),
            ("local_update_cpu", KvStore::Local),
            ("horovod", KvStore::Ring),
            ("all-reduce", KvStore::Ring),
            ("zero1", KvStore::ShardOptimizer),
            ("zero2", KvStore::ShardGradients),
            ("fsdp", KvStore::ShardWeights),
            ("dist", KvStore::DistSync),
            ("dist_device", KvStore::DistDeviceSync),
            ("dist_sync_device", KvStore::DistDeviceSync),
            ("dist_async_device", KvStore::DistDeviceAsync),
        ] {
            assert_eq!(typed.parse::<KvStore>().expect("an alias"), store);
        }
        assert!(KvStore::DistAsync.is_asynchronous() && !KvStore::DistDeviceSync.is_asynchronous());
    }

    #[test]
    fn file_names_are_one_word_and_round_trip() {
        for kv_store in KvStore::ALL {
            assert!(!kv_store.file_name().contains('_'), "{kv_store}");
            assert_eq!(KvStore::from_file_name(&kv_store.file_name()), Some(*kv_store));
        }
        assert_eq!(KvStore::from_file_name("dist_sync"), None);
        assert_eq!(KvStore::from_file_name("horovod"), None, "no alias");
    }
}

//! Strategies for summing gradients and updating weights: all-reduce, the default, MXNet's kv-stores by their own names,
//! and shards. An axis of a sweep.

use std::borrow::Cow;

use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;

keyword_enum!(
    /// Strategy: method of summing gradients and updating weights, by MXNet's names.
    Strategy {
        /// All-reduce; every rank performs the same update.
        AllReduce = "all-reduce" | "ring" | "horovod" | "allreduce" | "ddp",
        /// Each rank receives the sum of its shard of every bucket, updates it and sends the weights: optimizer states
        /// are divided among the ranks, as in ZeRO stage 1.
        Zero1 = "zero1" | "zero-1" | "shard-optimizer",
        /// Same as `zero1`, but each rank also keeps only its shards of the gradients: ZeRO stage 2. A pass
        /// that `--accumulate` adds exchanges its own gradients.
        Zero2 = "zero2" | "zero-2" | "shard-gradients",
        /// Each rank keeps only its shards of weights, gradients and optimizer states, and gathers the weights of a
        /// part of the network before forward and again before backward: PyTorch's FSDP, ZeRO stage 3.
        Fsdp = "fsdp" | "fsdp2" | "zero3" | "zero-3" | "shard-weights",
        /// Same as `fsdp` among the ranks of a host. The hosts have copies, and add their gradients: PyTorch's
        /// `HYBRID_SHARD`.
        Hsdp = "hsdp" | "hybrid-shard" | "hybrid_shard" | "hybrid",
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

/// Collectives of a bucket in a step if every rank owns a part of each bucket among all ranks. An all-reduce consists of one
/// of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardCollectives {
    /// Reduce-scatters: one for each pass that exchanges its gradients.
    pub sums: u32,
    /// All-gathers during forward and backward, at most; 0 if weights are gathered after the update.
    pub gathers: u32,
}

impl Strategy {
    /// Returns the value for records that predate this option.
    pub fn all_reduce() -> Strategy {
        Strategy::AllReduce
    }

    /// Returns true if every rank updates all weights after an all-reduce: the default, which names omit.
    pub fn is_all_reduce(&self) -> bool {
        *self == Strategy::AllReduce
    }

    /// Returns true if no rank holds the gradients of the whole network.
    pub fn shards_gradients(self) -> bool {
        self == Strategy::Zero2 || self.shards_weights()
    }

    /// Returns true if no rank holds the weights of the whole network.
    pub fn shards_weights(self) -> bool {
        matches!(self, Strategy::Fsdp | Strategy::Hsdp)
    }

    /// Returns the collectives of a step of `passes`; `None` unless every rank owns a part of each bucket among all ranks.
    pub fn shard_collectives(self, passes: u32) -> Option<ShardCollectives> {
        match self {
            Strategy::Zero1 => Some(ShardCollectives { sums: 1, gathers: 0 }),
            Strategy::Zero2 => Some(ShardCollectives { sums: passes, gathers: 0 }),
            Strategy::Fsdp => Some(ShardCollectives { sums: passes, gathers: 2 * passes }),
            _ => None,
        }
    }

    /// Returns true if the ranks divide the update of the weights among them.
    pub fn divides_update(self) -> bool {
        !self.has_servers() && !matches!(self, Strategy::AllReduce | Strategy::Nccl)
    }

    /// Returns true if separate processes hold the weights.
    pub fn has_servers(self) -> bool {
        matches!(self, Strategy::DistSync | Strategy::DistDeviceSync | Strategy::DistAsync | Strategy::DistDeviceAsync)
    }

    /// Returns true if workers do not wait for each other, so that they may compute with different versions of the
    /// weights.
    pub fn is_asynchronous(self) -> bool {
        matches!(self, Strategy::DistAsync | Strategy::DistDeviceAsync)
    }

    /// Returns the name for file names, whose parts are separated by `_`: `dist-sync`.
    pub fn file_name(self) -> Cow<'static, str> {
        match self.keyword().contains('_') {
            true => Cow::Owned(self.keyword().replace('_', "-")),
            false => Cow::Borrowed(self.keyword()),
        }
    }

    /// Returns today's name of the strategy that an earlier version called `name`; any other text is returned unchanged.
    pub fn name_of_today(name: &str) -> String {
        name.parse().map_or_else(|_| name.to_owned(), |strategy: Strategy| strategy.to_string())
    }

    /// Returns the name in file names of version 0.1, if that was another one.
    pub fn earlier_file_name(self) -> Option<&'static str> {
        match self {
            Strategy::Zero1 => Some("shard-optimizer"),
            Strategy::Zero2 => Some("shard-gradients"),
            Strategy::Fsdp => Some("shard-weights"),
            Strategy::Hsdp => Some("hybrid"),
            _ => None,
        }
    }

    /// Parses a [`file_name`](Self::file_name), also of version 0.1.
    pub fn from_file_name(name: &str) -> Option<Strategy> {
        let is_name = |strategy: &Strategy| strategy.file_name() == name || strategy.earlier_file_name() == Some(name);
        Strategy::ALL.iter().copied().find(is_name)
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
            ("local_allreduce_cpu", Strategy::Local),
            ("local_allreduce_device", Strategy::Device),
            ("local_update_cpu", Strategy::Local),
            ("horovod", Strategy::AllReduce),
            ("dist", Strategy::DistSync),
            ("dist_device", Strategy::DistDeviceSync),
            ("dist_sync_device", Strategy::DistDeviceSync),
            ("dist_async_device", Strategy::DistDeviceAsync),
        ] {
            assert_eq!(typed.parse::<Strategy>().expect("an alias"), store);
        }
        assert!(Strategy::DistAsync.is_asynchronous() && !Strategy::DistDeviceSync.is_asynchronous());
    }

    #[test]
    fn names_of_version_0_1_are_accepted() {
        assert_eq!("ring".parse::<Strategy>().expect("an alias"), Strategy::AllReduce);
        for strategy in Strategy::ALL {
            if let Some(earlier) = strategy.earlier_file_name() {
                assert_eq!(earlier.parse::<Strategy>().expect("an alias"), *strategy);
                assert_eq!(Strategy::from_file_name(earlier), Some(*strategy));
            }
        }
    }

    #[test]
    fn file_names_are_one_word_and_round_trip() {
        for strategy in Strategy::ALL {
            assert!(!strategy.file_name().contains('_'), "{strategy}");
            assert_eq!(Strategy::from_file_name(&strategy.file_name()), Some(*strategy));
        }
        assert_eq!(Strategy::from_file_name("dist_sync"), None);
        assert_eq!(Strategy::from_file_name("horovod"), None, "no alias");
    }
}

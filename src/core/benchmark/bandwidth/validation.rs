//! Which values of a bandwidth run do not go together.

use std::ops::RangeInclusive;

use anyhow::ensure;

use crate::benchmark::bandwidth::config::{BandwidthConfig, OptimizerChoice};
use crate::benchmark::bandwidth::messages::{Growth, MAXIMUM_SIZES, Messages};
use crate::benchmark::exchange::BackendChoice;
use crate::dimension::{Bytes, Dtype, KvStore, Model, Operation, Reduction};
use crate::options::option_table::check_ranges;

/// Message sizes in bytes.
const SIZES: RangeInclusive<u64> = 4..=1 << 40;

impl BandwidthConfig {
    /// Refuses values outside their range and values that do not go together; the message names them.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        self.trace.check(self.iterations)?;
        self.exchange.check(self.device)?;
        ensure!(
            self.min_busbw.is_none() || self.exchange.backend != BackendChoice::None,
            "--min-busbw needs an exchange to measure: leave --backend none out"
        );
        ensure!(
            self.reduction == Reduction::default() || self.operation.reduces(),
            "--redop {} needs values that come together, --op {} only moves them: leave --redop out, or choose --op \
             all_reduce, reduce or reduce_scatter",
            self.reduction,
            self.operation
        );
        ensure!(
            self.root == 0 || self.operation.has_root(),
            "--root {}: --op {} has no root: leave --root out, or choose --op reduce or broadcast",
            self.root,
            self.operation
        );
        self.kv_store.check(&self.exchange, Dtype::Fp32, false)?;
        let (kv_store, compression) = (self.kv_store.kv_store, self.gradient_compression);
        compression.check(&self.exchange, kv_store, self.device)?;
        let Messages::Sizes { begin, end, growth } = self.messages else {
            ensure!(
                self.operation == Operation::AllReduce || kv_store == KvStore::Ring,
                "--op {} measures one operation, and --kv-store {kv_store} chooses operations itself: leave one of them \
                 out",
                self.operation
            );
            ensure!(
                self.operation == Operation::AllReduce && self.reduction == Reduction::Sum,
                "--model exchanges gradients as training does, by an all-reduce that sums: leave --op and --redop out, or \
                 choose sizes (-b, -e) in the place of --model"
            );
            ensure!(
                !kv_store.is_asynchronous() || self.optimizer != OptimizerChoice::None,
                "--kv-store {kv_store} needs --optimizer sgd: its servers update weights at every push, and without an optimizer \
                 there is nothing to do with one (MXNet: Updater needs to be set for async mode)"
            );
            return Ok(());
        };
        ensure!(
            compression.is_none(),
            "--gradient-compression {compression} codes the gradients of a network: give --model, as --model {}, or leave \
             --gradient-compression out",
            Model::default()
        );
        ensure!(
            kv_store == KvStore::Ring,
            "--kv-store {kv_store} exchanges the gradients of a network: give --model, as --model {}, or leave --kv-store out{}",
            Model::default(),
            if self.operation == Operation::AllReduce { "" } else { "; --op measures one operation by sizes" }
        );
        let in_range = |name: &str, size: Bytes| {
            let (low, high) = (SIZES.start(), SIZES.end());
            ensure!(SIZES.contains(&size.0), "--{name} {} is out of range: choose {low} to {high} bytes", size.0);
            Ok(())
        };
        in_range("begin", begin)?;
        ensure!(begin.0 <= end.0, "--end {end} is below --begin {begin}: give the smaller size to --begin (-b)");
        in_range("end", end)?;
        if let Growth::Increment(increment) = growth {
            in_range("increment", increment)?;
            let steps = (end.0 - begin.0) / increment.0;
            ensure!(
                steps < MAXIMUM_SIZES,
                "--increment {increment} makes {steps} sizes: choose a larger one, for {MAXIMUM_SIZES} at most"
            );
        }
        ensure!(
            self.optimizer == OptimizerChoice::None,
            "--optimizer {} needs weights to update: choose --model {}",
            self.optimizer,
            Model::default()
        );
        Ok(())
    }

    /// Refuses operations that need other numbers of ranks; the message contains a choice that works.
    pub fn validate_for(&self, ranks: u32) -> anyhow::Result<()> {
        ensure!(
            self.root < ranks,
            "--root {} is none of {ranks} ranks: choose 0 to {}",
            self.root,
            ranks.saturating_sub(1)
        );
        ensure!(
            matches!(self.messages, Messages::Gradients(_)) || !self.arrays_among(ranks).is_empty(),
            "--op {} gives each of {ranks} ranks a part of a multiple of 16 bytes: choose --end {} or more",
            self.operation,
            u64::from(ranks) * 16
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::benchmark::compression::GradientCompression;
    use crate::benchmark::kv_store::KvStoreConfig;
    use crate::benchmark::tests::{parse, typed};
    use crate::dimension::KeyPlacement;
    use crate::options::option_table::set;

    #[test]
    fn nccl_tests_short_options_are_understood() {
        let config: BandwidthConfig = parse("-b 8 -e 1G -f 4 -n 9 -w 1 -c 0");
        let messages = Messages::Sizes { begin: Bytes(8), end: Bytes(1 << 30), growth: Growth::Factor(4) };
        assert_eq!((config.messages, config.iterations, config.warmup, config.check), (messages, 9, 1, false));
    }

    #[test]
    fn measure_py_s_networks_are_understood_with_their_layers() {
        for (typed, model) in [
            ("--network resnet --num-layers 200", Model::MxnetResnet200),
            ("--network resnet", Model::MxnetResnet152),
            ("--network vgg --num-layers 16", Model::Vgg16),
            ("--network inception-v3", Model::MxnetInceptionV3),
            ("--model resnet50_v1b", Model::Resnet50V1b),
        ] {
            assert_eq!(parse::<BandwidthConfig>(typed).messages, Messages::Gradients(model));
        }
        let alone =
            typed::<BandwidthConfig>(["--num-layers", "50"].map(str::to_owned)).expect_err("refused").to_string();
        assert!(alone.contains("--network <NAME>"), "{alone}");
        let refused = |options: &[(&str, &str)]| {
            let mut config = BandwidthConfig::default();
            let set = options.iter().try_for_each(|(name, value)| set(&mut config, name, value));
            format!("{:#}", set.expect_err("refused"))
        };
        let unknown = [&[("network", "resnet"), ("num-layers", "51")][..], &[("network", "googlenet")]];
        expect![[r#"
            --num-layers 51: there is no mxnet-resnet-51: choose 50, 101, 152, 200
            --network googlenet: "googlenet" is none of MXNet's resnet, vgg, resnet-50, resnet-101, resnet-152, resnet-200, alexnet, inception-bn, inception-v3, lenet, mlp"#]].assert_eq(&unknown.map(refused).join("\n"));
    }

    fn sizes(begin: u64, end: u64, growth: Growth) -> BandwidthConfig {
        let messages = Messages::Sizes { begin: Bytes(begin), end: Bytes(end), growth };
        BandwidthConfig { messages, ..BandwidthConfig::default() }
    }

    #[test]
    fn values_that_do_not_go_together_are_refused_with_their_options() {
        let two = Growth::Factor(2);
        let sound = sizes(8, 64, two);
        let of = |operation, reduction, root| BandwidthConfig { operation, reduction, root, ..sound.clone() };
        let (none, all_reduce) = (OptimizerChoice::None, Operation::AllReduce);
        let gradients = Messages::Gradients(Model::Resnet50V1b);
        let by = |kv_store, messages, optimizer, operation| BandwidthConfig {
            kv_store: KvStoreConfig { kv_store, servers: None, key_placement: KeyPlacement::Balanced },
            messages,
            optimizer,
            operation,
            ..sound.clone()
        };
        let coded = |kv_store, messages| BandwidthConfig {
            gradient_compression: GradientCompression::TwoBit { threshold: 0.5 },
            ..by(kv_store, messages, none, all_reduce)
        };
        let refused = [
            sizes(64, 8, two),
            sizes(8, 64, Growth::Factor(1)),
            sizes(8, 64, Growth::Increment(Bytes(0))),
            sizes(4, 1 << 40, Growth::Increment(Bytes(4))),
            BandwidthConfig { iterations: 0, ..BandwidthConfig::default() },
            BandwidthConfig { optimizer: OptimizerChoice::Sgd, ..BandwidthConfig::default() },
            of(Operation::Broadcast, Reduction::Max, 0),
            of(Operation::AllGather, Reduction::Sum, 1),
            BandwidthConfig { messages: gradients, ..of(Operation::AllGather, Reduction::Sum, 0) },
            by(KvStore::Device, sound.messages, none, all_reduce),
            by(KvStore::Device, sound.messages, none, Operation::AllGather),
            by(KvStore::Local, gradients, none, Operation::AllGather),
            coded(KvStore::Ring, sound.messages),
            coded(KvStore::Device, gradients),
            by(KvStore::DistAsync, gradients, none, all_reduce),
        ];
        let error = |config: BandwidthConfig| config.validate().expect_err("refused").to_string();
        expect![[r#"
            --end 8 bytes is below --begin 64 bytes: give the smaller size to --begin (-b)
            --factor 1 is out of range: choose 2 to 1099511627776
            --increment 0 is out of range: choose 4 to 1099511627776 bytes
            --increment 4 bytes makes 274877906943 sizes: choose a larger one, for 10000 at most
            --iters 0 is out of range: choose 1 to 10000000
            --optimizer sgd needs weights to update: choose --model resnet50_v1b
            --redop max needs values that come together, --op broadcast only moves them: leave --redop out, or choose --op all_reduce, reduce or reduce_scatter
            --root 1: --op all_gather has no root: leave --root out, or choose --op reduce or broadcast
            --model exchanges gradients as training does, by an all-reduce that sums: leave --op and --redop out, or choose sizes (-b, -e) in the place of --model
            --kv-store device exchanges the gradients of a network: give --model, as --model resnet50_v1b, or leave --kv-store out
            --kv-store device exchanges the gradients of a network: give --model, as --model resnet50_v1b, or leave --kv-store out; --op measures one operation by sizes
            --op all_gather measures one operation, and --kv-store local chooses operations itself: leave one of them out
            --gradient-compression 2bit:0.5 codes the gradients of a network: give --model, as --model resnet50_v1b, or leave --gradient-compression out
            --gradient-compression 2bit:0.5 goes with --kv-store ring and dist_*, and --kv-store is device: its owners get sums, and codes cannot be added on the way. Choose --gradient-compression fp16 or bf16, or --kv-store ring or dist_sync
            --kv-store dist_async needs --optimizer sgd: its servers update weights at every push, and without an optimizer there is nothing to do with one (MXNet: Updater needs to be set for async mode)"#]].assert_eq(&refused.map(error).join("\n"));
        let accepted = [
            BandwidthConfig::default(),
            of(Operation::Reduce, Reduction::Avg, 1),
            // Servers decode.
            coded(KvStore::DistSync, gradients),
            by(KvStore::DistAsync, gradients, OptimizerChoice::Sgd, all_reduce),
        ];
        accepted.iter().for_each(|config| config.validate().expect("they go together"));
        let (rooted, gathered) =
            (of(Operation::Reduce, Reduction::Sum, 2), of(Operation::AllGather, Reduction::Sum, 0));
        let among =
            |(config, ranks): (&BandwidthConfig, u32)| config.validate_for(ranks).expect_err("refused").to_string();
        expect![[r#"
            --root 2 is none of 2 ranks: choose 0 to 1
            --op all_gather gives each of 8 ranks a part of a multiple of 16 bytes: choose --end 128 or more"#]]
        .assert_eq(&[(&rooted, 2), (&gathered, 8)].map(among).join("\n"));
        gathered.validate_for(4).expect("16 bytes each");
    }
}

//! Checks for conflicting options of a bandwidth run.

use std::ops::RangeInclusive;

use anyhow::ensure;

use crate::benchmark::bandwidth::config::{BandwidthConfig, LineFormat};
use crate::benchmark::bandwidth::messages::{Growth, MAXIMUM_SIZES, Messages};
use crate::benchmark::exchange::BackendChoice;
use crate::benchmark::optimizer::{Optimizer, OptimizerChoice};
use crate::dimension::{Bytes, Dtype, Model, Operation, Reduction, Strategy};
use crate::options::keyword_enum::KeywordEnum;
use crate::options::option_table::check_ranges;

/// Message sizes in bytes.
const SIZES: RangeInclusive<u64> = 4..=1 << 40;

impl BandwidthConfig {
    /// Refuses values outside their range and values that do not go together; the message names them.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        self.trace.check(self.iterations)?;
        self.exchange.check(self.device)?;
        if let Messages::Gradients(model) = self.messages {
            model.check_known()?;
        }
        ensure!(
            self.min_busbw.is_none() || self.exchange.backend != BackendChoice::None,
            "--min-busbw needs an exchange to measure: omit --backend none"
        );
        self.check_operation()?;
        ensure!(
            self.momentum.is_none() || self.optimizer.chosen().is_some_and(|rule| !rule.is_adam()),
            "--momentum {} does not apply to --optimizer {}: use --optimizer {}",
            self.momentum(),
            self.optimizer,
            Optimizer::alternatives(|rule| !rule.is_adam())
        );
        self.strategy.check(&self.exchange, Dtype::Fp32, false)?;
        self.gradient_compression.check(&self.exchange, self.strategy.strategy, self.device)?;
        match self.messages {
            Messages::Gradients(_) => self.check_gradients(),
            Messages::Sizes { begin, end, growth } => self.check_sizes(begin, end, growth),
        }
    }

    /// Refuses options that do not apply to the operation.
    fn check_operation(&self) -> anyhow::Result<()> {
        ensure!(
            self.reduction == Reduction::default() || self.operation.reduces(),
            "--redop {} does not apply to --op {}, which does not reduce: omit --redop, or use --op {}",
            self.reduction,
            self.operation,
            Operation::alternatives(Operation::reduces)
        );
        ensure!(
            self.root == 0 || self.operation.has_root(),
            "--root {} does not apply to --op {}: omit --root, or use --op {}",
            self.root,
            self.operation,
            Operation::alternatives(Operation::has_root)
        );
        ensure!(
            !self.pairs || (self.operation == Operation::SendReceive && self.exchange.backend != BackendChoice::None),
            "--pairs needs --op sendrecv and a backend: omit --pairs, or add --op sendrecv"
        );
        Ok(())
    }

    /// Refuses options that do not go together with the gradients of a network.
    fn check_gradients(&self) -> anyhow::Result<()> {
        let strategy = self.strategy.strategy;
        ensure!(
            !strategy.shards_gradients(),
            "--strategy {strategy} needs a network that computes: use ringmark sweep, or measure its operations by \
             sizes (--op reduce_scatter, --op all_gather)"
        );
        ensure!(
            self.operation == Operation::AllReduce || strategy == Strategy::AllReduce,
            "--op {} conflicts with --strategy {strategy}, which selects its operations: use only one of them",
            self.operation
        );
        ensure!(
            self.operation == Operation::AllReduce && self.reduction == Reduction::Sum,
            "--model sums gradients with all-reduce, as training does: omit --op and --redop, or use sizes (-b, \
             -e) instead of --model"
        );
        ensure!(
            !strategy.is_asynchronous() || self.optimizer != OptimizerChoice::None,
            "--strategy {strategy} needs an update rule, such as --optimizer sgd: its servers update weights at every push (MXNet: \
             Updater needs to be set for async mode)"
        );
        ensure!(
            !strategy.is_asynchronous() || !self.check || self.state_names().is_empty(),
            "--optimizer {} with --strategy {strategy}: the weights depend on the order of the pushes and cannot \
             be checked: add --check 0, or use --optimizer sgd without --momentum",
            self.optimizer
        );
        Ok(())
    }

    /// Refuses sizes out of range, and options that apply only to the gradients of a network.
    fn check_sizes(&self, begin: Bytes, end: Bytes, growth: Growth) -> anyhow::Result<()> {
        let (strategy, compression) = (self.strategy.strategy, self.gradient_compression);
        ensure!(
            self.format == LineFormat::Plain && self.disp_batches == 1,
            "--format and --disp-batches apply to the gradients of a network: add --model {}, or omit them",
            Model::default()
        );
        ensure!(
            compression.is_none(),
            "--gradient-compression {compression} needs the gradients of a network: add --model {}, or omit \
             --gradient-compression",
            Model::default()
        );
        ensure!(
            strategy == Strategy::AllReduce,
            "--strategy {strategy} needs the gradients of a network: add --model {}, or omit --strategy{}",
            Model::default(),
            if self.operation == Operation::AllReduce { "" } else { "; --op measures one operation by sizes" }
        );
        let in_range = |name: &str, size: Bytes| {
            let (low, high) = (SIZES.start(), SIZES.end());
            ensure!(SIZES.contains(&size.0), "--{name} {} is out of range: choose {low} to {high} bytes", size.0);
            Ok(())
        };
        in_range("begin", begin)?;
        ensure!(begin.0 <= end.0, "--end {end} is below --begin {begin}: use the smaller size for --begin (-b)");
        in_range("end", end)?;
        if let Growth::Increment(increment) = growth {
            in_range("increment", increment)?;
            let steps = (end.0 - begin.0) / increment.0;
            ensure!(
                steps < MAXIMUM_SIZES,
                "--increment {increment} makes {steps} sizes, the limit is {MAXIMUM_SIZES}: use a larger increment"
            );
        }
        ensure!(
            self.optimizer == OptimizerChoice::None,
            "--optimizer {} needs weights to update: add --model {}",
            self.optimizer,
            Model::default()
        );
        Ok(())
    }

    /// Refuses operations that need other numbers of ranks; the message contains a choice that works.
    pub fn validate_for(&self, ranks: u32) -> anyhow::Result<()> {
        ensure!(
            self.root < ranks,
            "--root {} is out of range for {ranks} ranks: choose 0 to {}",
            self.root,
            ranks.saturating_sub(1)
        );
        ensure!(
            matches!(self.messages, Messages::Gradients(_)) || !self.arrays_among(ranks).is_empty(),
            "--op {} needs at least 16 bytes for each of {ranks} ranks: choose --end {} or more",
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
    use crate::benchmark::strategy::StrategyConfig;
    use crate::benchmark::tests::{parse, typed};
    use crate::dimension::KeyPlacement;
    use crate::options::option_table::set;

    #[test]
    fn every_field_survives_worker_arguments() {
        crate::benchmark::tests::check_options::<BandwidthConfig>(&[]);
    }

    #[test]
    fn nccl_tests_short_options_are_accepted() {
        let config: BandwidthConfig = parse("-b 8 -e 1G -f 4 -n 9 -w 1 -c 0");
        let messages = Messages::Sizes { begin: Bytes(8), end: Bytes(1 << 30), growth: Growth::Factor(4) };
        assert_eq!((config.messages, config.iterations, config.warmup, config.check), (messages, 9, 1, false));
    }

    #[test]
    fn measure_py_networks_and_layers_are_accepted() {
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
            --num-layers 51: mxnet-resnet-51 does not exist: choose 50, 101, 152, 200
            --network googlenet: "googlenet" is not one of MXNet's resnet, vgg, resnet-50, resnet-101, resnet-152, resnet-200, alexnet, inception-bn, inception-v3, lenet, mlp"#]].assert_eq(&unknown.map(refused).join("\n"));
    }

    fn sizes(begin: u64, end: u64, growth: Growth) -> BandwidthConfig {
        let messages = Messages::Sizes { begin: Bytes(begin), end: Bytes(end), growth };
        BandwidthConfig { messages, ..BandwidthConfig::default() }
    }

    #[test]
    fn conflicting_options_are_rejected_by_name() {
        let two = Growth::Factor(2);
        let sound = sizes(8, 64, two);
        let of = |operation, reduction, root| BandwidthConfig { operation, reduction, root, ..sound.clone() };
        let (none, all_reduce) = (OptimizerChoice::None, Operation::AllReduce);
        let gradients = Messages::Gradients(Model::Resnet50V1b);
        let by = |strategy, messages, optimizer, operation| BandwidthConfig {
            strategy: StrategyConfig { strategy, servers: None, key_placement: KeyPlacement::Balanced },
            messages,
            optimizer,
            operation,
            ..sound.clone()
        };
        let coded = |strategy, messages| BandwidthConfig {
            gradient_compression: GradientCompression::TwoBit { threshold: 0.5 },
            ..by(strategy, messages, none, all_reduce)
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
            by(Strategy::Device, sound.messages, none, all_reduce),
            by(Strategy::Device, sound.messages, none, Operation::AllGather),
            by(Strategy::Local, gradients, none, Operation::AllGather),
            coded(Strategy::AllReduce, sound.messages),
            coded(Strategy::Device, gradients),
            by(Strategy::DistAsync, gradients, none, all_reduce),
            by(Strategy::DistAsync, gradients, OptimizerChoice::Adam, all_reduce),
            BandwidthConfig {
                momentum: Some(0.5),
                ..by(Strategy::AllReduce, gradients, OptimizerChoice::Adam, all_reduce)
            },
        ];
        let error = |config: BandwidthConfig| config.validate().expect_err("refused").to_string();
        expect![[r#"
            --end 8 bytes is below --begin 64 bytes: use the smaller size for --begin (-b)
            --factor 1 is out of range: choose 2 to 1099511627776
            --increment 0 is out of range: choose 4 to 1099511627776 bytes
            --increment 4 bytes makes 274877906943 sizes, the limit is 10000: use a larger increment
            --iters 0 is out of range: choose 1 to 10000000
            --optimizer sgd needs weights to update: add --model resnet50_v1b
            --redop max does not apply to --op broadcast, which does not reduce: omit --redop, or use --op all_reduce, reduce_scatter or reduce
            --root 1 does not apply to --op all_gather: omit --root, or use --op reduce or broadcast
            --model sums gradients with all-reduce, as training does: omit --op and --redop, or use sizes (-b, -e) instead of --model
            --strategy device needs the gradients of a network: add --model resnet50_v1b, or omit --strategy
            --strategy device needs the gradients of a network: add --model resnet50_v1b, or omit --strategy; --op measures one operation by sizes
            --op all_gather conflicts with --strategy local, which selects its operations: use only one of them
            --gradient-compression 2bit:0.5 needs the gradients of a network: add --model resnet50_v1b, or omit --gradient-compression
            --gradient-compression 2bit:0.5 is not supported with --strategy device (owners receive sums, and codes cannot be added): use --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync
            --strategy dist_async needs an update rule, such as --optimizer sgd: its servers update weights at every push (MXNet: Updater needs to be set for async mode)
            --optimizer adam with --strategy dist_async: the weights depend on the order of the pushes and cannot be checked: add --check 0, or use --optimizer sgd without --momentum
            --momentum 0.5 does not apply to --optimizer adam: use --optimizer sgd or nag"#]].assert_eq(&refused.map(error).join("\n"));
        let accepted = [
            BandwidthConfig::default(),
            of(Operation::Reduce, Reduction::Avg, 1),
            // Servers decode.
            coded(Strategy::DistSync, gradients),
            by(Strategy::DistAsync, gradients, OptimizerChoice::Sgd, all_reduce),
            BandwidthConfig { check: false, ..by(Strategy::DistAsync, gradients, OptimizerChoice::Nag, all_reduce) },
            BandwidthConfig {
                momentum: Some(0.5),
                ..by(Strategy::AllReduce, gradients, OptimizerChoice::Sgd, all_reduce)
            },
        ];
        accepted.iter().for_each(|config| config.validate().expect("they go together"));
        let (rooted, gathered) =
            (of(Operation::Reduce, Reduction::Sum, 2), of(Operation::AllGather, Reduction::Sum, 0));
        let among =
            |(config, ranks): (&BandwidthConfig, u32)| config.validate_for(ranks).expect_err("refused").to_string();
        expect![[r#"
            --root 2 is out of range for 2 ranks: choose 0 to 1
            --op all_gather needs at least 16 bytes for each of 8 ranks: choose --end 128 or more"#]]
        .assert_eq(&[(&rooted, 2), (&gathered, 8)].map(among).join("\n"));
        gathered.validate_for(4).expect("16 bytes each");
    }
}

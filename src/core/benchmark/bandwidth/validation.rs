//! Which values of a bandwidth run do not go together.

use std::ops::RangeInclusive;

use anyhow::ensure;

use crate::benchmark::bandwidth::config::{BandwidthConfig, OptimizerChoice};
use crate::benchmark::bandwidth::messages::{Growth, MAXIMUM_SIZES, Messages};
use crate::benchmark::exchange::BackendChoice;
use crate::benchmark::kv_store::KvStore;
use crate::dimension::{Bytes, Dtype, Model, Operation, Reduction};
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
                "--op {} measures one operation, and --kv-store {kv_store} says which ones exchange gradients: leave one of them \
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
    use clap::Parser;

    use super::*;
    use crate::benchmark::compression::GradientCompression;
    use crate::benchmark::kv_store::{KeyPlacement, KvStoreConfig};
    use crate::options::option_table::{Worker, set};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: Worker<BandwidthConfig>,
    }

    fn parse(arguments: &[String]) -> BandwidthConfig {
        let program = std::iter::once("worker".to_owned());
        let typed = Typed::try_parse_from(program.chain(arguments.iter().cloned())).expect("valid arguments");
        typed.options.apply(BandwidthConfig::default()).expect("valid values")
    }

    #[test]
    fn nccl_tests_short_options_are_understood() {
        let arguments = ["-b", "8", "-e", "1G", "-f", "4", "-n", "9", "-w", "1", "-c", "0"].map(str::to_owned);
        let config = parse(&arguments);
        let messages = Messages::Sizes { begin: Bytes(8), end: Bytes(1 << 30), growth: Growth::Factor(4) };
        assert_eq!((config.messages, config.iterations, config.warmup, config.check), (messages, 9, 1, false));
    }

    #[test]
    fn measure_py_s_networks_are_understood_with_their_layers() {
        for (typed, model) in [
            (vec!["--network", "resnet", "--num-layers", "200"], Model::MxnetResnet200),
            (vec!["--network", "resnet"], Model::MxnetResnet152),
            (vec!["--network", "vgg", "--num-layers", "16"], Model::Vgg16),
            (vec!["--network", "inception-v3"], Model::MxnetInceptionV3),
            (vec!["--model", "resnet50_v1b"], Model::Resnet50V1b),
        ] {
            let typed: Vec<String> = typed.into_iter().map(str::to_owned).collect();
            assert_eq!(parse(&typed).messages, Messages::Gradients(model));
        }
        let refused = |change: fn(&mut BandwidthConfig) -> anyhow::Result<()>| {
            format!("{:#}", change(&mut BandwidthConfig::default()).expect_err("refused"))
        };
        let alone = Typed::try_parse_from(["worker", "--num-layers", "50"]).err().expect("refused").to_string();
        assert!(alone.contains("--network <NAME>"), "{alone}");
        let unknown = refused(|config| {
            set(config, "network", "resnet")?;
            set(config, "num-layers", "51")
        });
        assert!(unknown.contains("51") && unknown.contains("50, 101, 152, 200"), "{unknown}");
        assert!(refused(|config| set(config, "network", "googlenet")).contains("inception-bn"));
    }

    fn sizes(begin: u64, end: u64, growth: Growth) -> BandwidthConfig {
        let messages = Messages::Sizes { begin: Bytes(begin), end: Bytes(end), growth };
        BandwidthConfig { messages, ..BandwidthConfig::default() }
    }

    #[test]
    fn each_range_names_its_option_and_the_value() {
        BandwidthConfig::default().validate().expect("defaults are in range");
        let error = |config: BandwidthConfig| config.validate().expect_err("out of range").to_string();
        assert!(error(sizes(64, 8, Growth::Factor(2))).contains("--end 8 bytes is below --begin 64 bytes"));
        assert!(error(sizes(8, 64, Growth::Factor(1))).contains("--factor 1"));
        assert!(error(sizes(8, 64, Growth::Increment(Bytes(0)))).contains("--increment 0"));
        assert!(error(BandwidthConfig { iterations: 0, ..BandwidthConfig::default() }).contains("--iters 0"));
        assert!(error(sizes(4, 1 << 40, Growth::Increment(Bytes(4)))).contains("makes"));
        let optimizer = BandwidthConfig { optimizer: OptimizerChoice::Sgd, ..BandwidthConfig::default() };
        assert!(error(optimizer).contains("--model"));
        let of = |operation, reduction, root| BandwidthConfig {
            operation,
            reduction,
            root,
            ..sizes(8, 64, Growth::Factor(2))
        };
        assert!(error(of(Operation::Broadcast, Reduction::Max, 0)).contains("--op broadcast only moves them"));
        assert!(error(of(Operation::AllGather, Reduction::Sum, 1)).contains("--op all_gather has no root"));
        of(Operation::Reduce, Reduction::Avg, 1).validate().expect("they go together");
        let gradients = Messages::Gradients(Model::Resnet50V1b);
        let gathered = BandwidthConfig { messages: gradients, ..of(Operation::AllGather, Reduction::Sum, 0) };
        assert!(error(gathered).contains("by an all-reduce that sums"));
        let by = |kv_store, messages, optimizer, operation| BandwidthConfig {
            kv_store: KvStoreConfig { kv_store, servers: None, key_placement: KeyPlacement::Balanced },
            messages,
            optimizer,
            operation,
            ..sizes(8, 64, Growth::Factor(2))
        };
        let (none, all_reduce) = (OptimizerChoice::None, Operation::AllReduce);
        let of_sizes = sizes(8, 64, Growth::Factor(2)).messages;
        let alone = error(by(KvStore::Device, of_sizes, none, all_reduce));
        assert!(alone.contains("--kv-store device exchanges the gradients of a network: give --model"), "{alone}");
        let operation = error(by(KvStore::Device, of_sizes, none, Operation::AllGather));
        assert!(operation.contains("--op measures one operation by sizes"), "{operation}");
        let operation = error(by(KvStore::Local, gradients, none, Operation::AllGather));
        assert!(operation.contains("--op all_gather measures one operation, and --kv-store local"), "{operation}");
        let coded = |kv_store, messages| BandwidthConfig {
            gradient_compression: GradientCompression::TwoBit { threshold: 0.5 },
            ..by(kv_store, messages, none, all_reduce)
        };
        assert!(
            error(coded(KvStore::Ring, of_sizes)).contains("2bit:0.5 codes the gradients of a network: give --model")
        );
        assert!(error(coded(KvStore::Device, gradients)).contains("--kv-store is device: its owners get sums"));
        coded(KvStore::DistSync, gradients).validate().expect("servers decode");
        let asynchronous = error(by(KvStore::DistAsync, gradients, none, all_reduce));
        assert!(asynchronous.contains("--kv-store dist_async needs --optimizer sgd"), "{asynchronous}");
        assert!(asynchronous.contains("MXNet: Updater needs to be set for async mode"), "{asynchronous}");
        by(KvStore::DistAsync, gradients, OptimizerChoice::Sgd, all_reduce).validate().expect("with an optimizer");
        let among = |config: BandwidthConfig, ranks| config.validate_for(ranks).expect_err("refused").to_string();
        assert!(
            among(of(Operation::Reduce, Reduction::Sum, 2), 2).contains("--root 2 is none of 2 ranks: choose 0 to 1")
        );
        assert!(among(of(Operation::AllGather, Reduction::Sum, 0), 8).contains("choose --end 128 or more"));
        of(Operation::AllGather, Reduction::Sum, 0).validate_for(4).expect("16 bytes each");
    }
}

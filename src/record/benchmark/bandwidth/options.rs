//! The options of a bandwidth run, each in one line: see [`crate::options::option_table`]. The short ones are nccl-tests'.

use std::ops::RangeInclusive;

use anyhow::{anyhow, ensure};

use crate::benchmark::bandwidth::config::{
    BandwidthConfig, Growth, MAXIMUM_SIZES, Messages, OptimizerChoice, TypedSize,
};
use crate::benchmark::exchange::{BackendChoice, ExchangeConfig};
use crate::benchmark::kv_store::{KvStore, KvStoreConfig};
use crate::dimension::dtype::Dtype;
use crate::dimension::model::Model;
use crate::dimension::operation::{Operation, Reduction};
use crate::dimension::units::{Bytes, GigabytesPerSecond};
use crate::option;
use crate::options::option_table::{OptionSpec, OptionValue, Options, check_ranges};
use crate::options::usage::usage;
use crate::trace::config::TraceConfig;

/// Message sizes in bytes.
const SIZES: RangeInclusive<u64> = 4..=1 << 40;

/// Options that say which sizes there are.
const SIZE_OPTIONS: &[&str] = &["begin", "end", "factor", "increment"];

/// Options that say what is reduced in another way than `--network`.
const NETWORK_OPTIONS: &[&str] = &["model", "begin", "end", "factor", "increment"];

impl Options for BandwidthConfig {
    const HEADING: &'static str = "Exchange";

    fn options() -> Vec<OptionSpec<BandwidthConfig>> {
        let mut options = vec![
            option!(operation, "op", "NAME", "What the ranks do, as nccl-tests' programs are called").for_worker(),
            option!(reduction, "redop", "NAME", "How values come together in an operation that reduces").short('o'),
            option!(root, "root", "RANK", "Rank that a reduce or a broadcast has for its root")
                .short('r')
                .range(0u32..=1_000_000),
            OptionSpec::of(
                "begin",
                "SIZE",
                "First message size: bytes, or with K, M, G in steps of 1024",
                begin,
                set_begin,
            )
            .short('b')
            .aliases(&["minbytes"]),
            OptionSpec::of("end", "SIZE", "Last message size", end, set_end).short('e').aliases(&["maxbytes"]),
            OptionSpec::of("factor", "N", "Each size is the one before times this", factor, set_factor)
                .short('f')
                .aliases(&["stepfactor"])
                .range(2u64..=1 << 40)
                .conflicts_with(&["increment"]),
            OptionSpec::of("increment", "SIZE", "Each size is the one before plus this", increment, set_increment)
                .short('i')
                .aliases(&["stepbytes"]),
            OptionSpec::of_value(
                "model",
                "NAME",
                "Exchange the gradients of this network in its buckets, instead of growing sizes",
                model,
                |config, model: Model| config.messages = Messages::Gradients(model),
            )
            .conflicts_with(SIZE_OPTIONS),
            OptionSpec::of(
                "network",
                "NAME",
                "The same by MXNet's name, as its measure.py: resnet, inception-bn, ..",
                |_| String::new(),
                set_network,
            )
            .conflicts_with(NETWORK_OPTIONS),
            OptionSpec::of("num-layers", "N", "Layers of that network", |_| String::new(), set_layers)
                .range(1u32..=1000)
                .requires("network"),
            option!(
                arrays,
                "arrays",
                "NAME",
                "Which gradients of the network: weights, those that measure.py counts, or all, as training exchanges"
            ),
            option!(
                iterations,
                "iters",
                "N",
                "Measured iterations of each size, warm-up excluded, as nccl-tests' -n; in sweep --iters includes it"
            )
            .range(1u32..=10_000_000)
            .short('n'),
            option!(warmup, "warmup", "N", "Iterations before them that no figure holds")
                .range(0u32..=10_000_000)
                .short('w')
                .aliases(&["warmup_iters"]),
            OptionSpec::of("check", "0|1", "Check every result on every rank, 1, or none, 0", check, set_check)
                .short('c')
                .aliases(&["test-results"]),
            option!(
                optimizer,
                "optimizer",
                "NAME",
                "What becomes of the gradients of --model: none, every rank gets their sum; sgd, measure.py's update of weights"
            ),
            option!(
                device,
                "device",
                "KIND",
                "Where to exchange; auto takes CUDA where all of it is there and says what is missing"
            ),
            option!(threads, "threads", "N", "CPU threads of a rank, for the optimizer")
                .range(1u32..=4096)
                .default_is("the host's cores divided among its ranks"),
            option!(
                min_busbw,
                "min-busbw",
                "GB/S",
                "Fail, by exit status 1, where the average bus bandwidth is below this"
            )
            .range(GigabytesPerSecond(0.0)..=GigabytesPerSecond(1e6)),
            option!(json, "json", "FILE", "Where rank 0 writes every sample (JSON)").for_worker(),
        ];
        let exchange = ExchangeConfig::options().into_iter();
        options.extend(exchange.map(|option| {
            let option = option.within(|config: &BandwidthConfig| &config.exchange, |config| &mut config.exchange);
            // Here it is the only type.
            if option.name() == "wire" { option.aliases(&["datatype", "dtype"]).short('d') } else { option }
        }));
        let kv_store = KvStoreConfig::options().into_iter();
        options.extend(kv_store.map(|option| {
            let option = option.within(|config: &BandwidthConfig| &config.kv_store, |config| &mut config.kv_store);
            if option.name() == "kv-store" { option.aliases(&["kvstore"]) } else { option }
        }));
        options.push(
            OptionSpec::of(
                "gradient-compression",
                "CODE",
                "Form in which the gradients of --model are exchanged: none, fp16 or bf16 (as --wire), 2bit or 2bit:THRESHOLD \
                 (measure.py's --gc-type), or topk:RATIO; the error is then what the code leaves out",
                |config: &BandwidthConfig| config.gradient_compression.shown(),
                |config, text| config.gradient_compression.set(&mut config.exchange, text),
            )
            .default_is("none"),
        );
        let trace = TraceConfig::options_of_spans();
        options.extend(
            trace.map(|option| option.within(|config: &BandwidthConfig| &config.trace, |config| &mut config.trace)),
        );
        options
    }
}

impl OptionValue for GigabytesPerSecond {
    fn text(&self) -> String {
        self.0.to_string()
    }

    fn parse(text: &str) -> anyhow::Result<GigabytesPerSecond> {
        f64::parse(text).map(GigabytesPerSecond)
    }
}

fn begin(config: &BandwidthConfig) -> String {
    match config.messages {
        Messages::Sizes { begin, .. } => begin.0.to_string(),
        Messages::Gradients(_) => String::new(),
    }
}

fn set_begin(config: &mut BandwidthConfig, text: &str) -> anyhow::Result<()> {
    let size = text.parse::<TypedSize>()?.0;
    if let Messages::Sizes { begin, end, .. } = &mut config.messages {
        *begin = size;
        // A begin beyond the default end, with no end beside it, means this size alone.
        *end = Bytes(end.0.max(size.0));
    }
    Ok(())
}

fn end(config: &BandwidthConfig) -> String {
    match config.messages {
        Messages::Sizes { end, .. } => end.0.to_string(),
        Messages::Gradients(_) => String::new(),
    }
}

fn set_end(config: &mut BandwidthConfig, text: &str) -> anyhow::Result<()> {
    let size = text.parse::<TypedSize>()?.0;
    if let Messages::Sizes { end, .. } = &mut config.messages {
        *end = size;
    }
    Ok(())
}

fn set_growth(config: &mut BandwidthConfig, new: Growth) {
    if let Messages::Sizes { growth, .. } = &mut config.messages {
        *growth = new;
    }
}

fn factor(config: &BandwidthConfig) -> String {
    match config.messages {
        Messages::Sizes { growth: Growth::Factor(factor), .. } => factor.to_string(),
        _ => String::new(),
    }
}

fn set_factor(config: &mut BandwidthConfig, text: &str) -> anyhow::Result<()> {
    set_growth(config, Growth::Factor(u64::parse(text)?));
    Ok(())
}

fn increment(config: &BandwidthConfig) -> String {
    match config.messages {
        Messages::Sizes { growth: Growth::Increment(increment), .. } => increment.0.to_string(),
        _ => String::new(),
    }
}

fn set_increment(config: &mut BandwidthConfig, text: &str) -> anyhow::Result<()> {
    set_growth(config, Growth::Increment(text.parse::<TypedSize>()?.0));
    Ok(())
}

fn model(config: &BandwidthConfig) -> Option<Model> {
    match config.messages {
        Messages::Gradients(model) => Some(model),
        Messages::Sizes { .. } => None,
    }
}

fn set_network(config: &mut BandwidthConfig, text: &str) -> anyhow::Result<()> {
    config.messages = Messages::Gradients(Model::of_mxnet(text)?);
    Ok(())
}

fn set_layers(config: &mut BandwidthConfig, text: &str) -> anyhow::Result<()> {
    let layers = u32::parse(text)?;
    // Alone it is looked at before there is a network.
    if let Messages::Gradients(model) = &mut config.messages {
        *model = model.with_layers(layers).map_err(usage)?;
    }
    Ok(())
}

fn check(config: &BandwidthConfig) -> String {
    u8::from(config.check).to_string()
}

fn set_check(config: &mut BandwidthConfig, text: &str) -> anyhow::Result<()> {
    config.check = match text {
        "0" => false,
        "1" => true,
        _ => return Err(anyhow!("choose 0 or 1")),
    };
    Ok(())
}

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

    /// Refuses what so many ranks cannot do; the message says what to choose.
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
    use crate::benchmark::bandwidth::config::Arrays;
    use crate::benchmark::compression::GradientCompression;
    use crate::benchmark::exchange::{NcclAlgorithm, Switch, Wire};
    use crate::benchmark::kv_store::KeyPlacement;
    use crate::dimension::device::DeviceChoice;
    use crate::options::option_table::{Worker, arguments};

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
    fn the_default_needs_no_arguments() {
        assert_eq!(arguments(&BandwidthConfig::default()), Vec::<String>::new());
        assert_eq!(parse(&[]), BandwidthConfig::default());
    }

    #[test]
    fn every_field_survives_the_way_to_the_worker() {
        let sizes = BandwidthConfig {
            operation: Operation::Reduce,
            reduction: Reduction::Max,
            root: 1,
            messages: Messages::Sizes { begin: Bytes(64), end: Bytes(640), growth: Growth::Increment(Bytes(64)) },
            arrays: Arrays::All,
            device: DeviceChoice::Cpu,
            threads: Some(3),
            exchange: ExchangeConfig {
                backend: BackendChoice::SharedMemory,
                wire: Wire::Bf16,
                bucket_mb: 1.5,
                chunk_kb: 250,
                tail_mb: 0.5,
                nccl_algo: NcclAlgorithm::Auto,
                hierarchical: Some(Switch::On),
            },
            kv_store: KvStoreConfig::default(),
            gradient_compression: GradientCompression::None,
            iterations: 7,
            warmup: 0,
            check: false,
            optimizer: OptimizerChoice::None,
            json: Some("a b.json".into()),
            min_busbw: Some(GigabytesPerSecond(2.5)),
            trace: TraceConfig { file: Some("d.json".into()), ..TraceConfig::default() },
        };
        assert_eq!(parse(&arguments(&sizes)), sizes);
        let messages = Messages::Gradients(Model::Resnet50V1b);
        let kv_store =
            KvStoreConfig { kv_store: KvStore::DistAsync, servers: Some(2), key_placement: KeyPlacement::Hash };
        let gradients = BandwidthConfig { messages, optimizer: OptimizerChoice::Sgd, kv_store, ..sizes };
        assert_eq!(parse(&arguments(&gradients)), gradients);
        let exchange = ExchangeConfig { wire: Wire::Fp32, ..gradients.exchange };
        let coded =
            BandwidthConfig { gradient_compression: GradientCompression::TopK { ratio: 0.25 }, exchange, ..gradients };
        assert_eq!(parse(&arguments(&coded)), coded);
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
            change(&mut BandwidthConfig::default()).expect_err("refused").to_string()
        };
        let alone = Typed::try_parse_from(["worker", "--num-layers", "50"]).err().expect("refused").to_string();
        assert!(alone.contains("--network <NAME>"), "{alone}");
        let unknown = refused(|config| {
            set_network(config, "resnet")?;
            set_layers(config, "51")
        });
        assert!(unknown.contains("51") && unknown.contains("50, 101, 152, 200"), "{unknown}");
        assert!(refused(|config| set_network(config, "googlenet")).contains("inception-bn"));
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

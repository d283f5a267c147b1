//! Expands axes into runs, and computes a rank's share of a host's cores on the CPU. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use anyhow::{anyhow, ensure};
use ringmark_core::benchmark::AUTO_BATCH_SIZE;
use ringmark_core::dimension::{BatchShape, BatchSize, Case, DeviceKind, Dtype, Model, Strategy, WorkUnit};
use ringmark_core::file::run_name::{Point, RunName};
use ringmark_core::manifest::STRATEGY;
use ringmark_core::number_text::count;

use crate::launch::cluster::hosts::Hosts;

/// Options that hold an axis: a comma separates its values.
pub const AXIS_OPTIONS: [&str; 7] =
    [MODEL, DTYPE, BATCH_SIZE, SEQUENCE_LENGTH, BATCH_FACTOR, BATCH_SIZES_THAT_FIT, STRATEGY];

/// Condition that stores the batch sizes found by trials.
pub const BATCH_SIZES_THAT_FIT: &str = "batch sizes that fit";

const MODEL: &str = "--model";

const DTYPE: &str = "--dtype";

const BATCH_SIZE: &str = "--batch-size";

const SEQUENCE_LENGTH: &str = "--sequence-length";

const BATCH_FACTOR: &str = "--batch-factor";

/// Batch sizes of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub enum BatchSizes {
    /// This size, unless a network has its own default.
    Default(u32),
    /// These sizes, each with every network and precision.
    Each(Vec<u32>),
    /// Samples of all ranks, the same in every case.
    Global(u32),
    /// Largest size that fits each network and precision, found by trials.
    Largest {
        /// Sizes found so far.
        found: BTreeMap<(Model, Dtype), u32>,
        /// Size of the first trial; placeholder until a size is found.
        first: u32,
    },
}

impl BatchSizes {
    /// Returns the sizes for one network and precision.
    pub fn for_point(&self, model: Model, dtype: Dtype) -> Vec<BatchSize> {
        let own = |size: &u32| model.facts().default_sequences().unwrap_or(*size);
        match self {
            BatchSizes::Default(size) => vec![BatchSize::PerRank(own(size))],
            BatchSizes::Each(sizes) => sizes.iter().copied().map(BatchSize::PerRank).collect(),
            BatchSizes::Global(samples) => vec![BatchSize::Global(*samples)],
            BatchSizes::Largest { found, first } => {
                vec![BatchSize::PerRank(found.get(&(model, dtype)).copied().unwrap_or_else(|| own(first)))]
            }
        }
    }

    /// Returns true if a network and precision have several sizes, some of which may run out of memory.
    pub fn has_several(&self) -> bool {
        matches!(self, BatchSizes::Each(sizes) if sizes.len() > 1)
    }

    /// Returns the values of `--batch-size` as given on the command line, or the defaults of `models`; empty for a global
    /// batch.
    pub fn texts(&self, models: &[Model]) -> Vec<String> {
        match self {
            BatchSizes::Default(_) => {
                let sizes = models.iter().flat_map(|model| self.for_point(*model, Dtype::Fp32)).map(BatchSize::number);
                sizes.collect::<BTreeSet<u32>>().iter().map(u32::to_string).collect()
            }
            BatchSizes::Each(sizes) => sizes.iter().map(u32::to_string).collect(),
            BatchSizes::Global(_) => Vec::new(),
            BatchSizes::Largest { .. } => vec![AUTO_BATCH_SIZE.to_owned()],
        }
    }

    /// Returns the sizes that trials found, in the manifest's form: `resnet18:fp32:48,..`; empty if there were no
    /// trials.
    fn found_text(&self) -> String {
        let BatchSizes::Largest { found, .. } = self else { return String::new() };
        let each = found.iter().map(|((model, dtype), batch_size)| format!("{model}:{dtype}:{batch_size}"));
        each.collect::<Vec<String>>().join(",")
    }

    /// Parses the manifest's form.
    pub fn parse_found(text: &str) -> anyhow::Result<BTreeMap<(Model, Dtype), u32>> {
        let one = |text: &str| -> Option<((Model, Dtype), u32)> {
            let mut parts = text.split(':');
            Some(((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?), parts.next()?.parse().ok()?))
        };
        let found: Option<_> = text.split(',').map(one).collect();
        found.ok_or_else(|| anyhow!("manifest is damaged: invalid {BATCH_SIZES_THAT_FIT}: {text:?}"))
    }
}

/// The axes of a sweep. Every list has at least one value, without duplicates.
#[derive(Debug, Clone, PartialEq)]
pub struct Axes {
    /// Networks.
    pub models: Vec<Model>,
    /// Precisions.
    pub dtypes: Vec<Dtype>,
    /// Images or sequences of an iteration.
    pub batch_sizes: BatchSizes,
    /// Tokens of a sequence, for language models; empty for each network's own length.
    pub sequence_lengths: Vec<u32>,
    /// Factors of the batch sizes of some networks.
    pub batch_factors: BTreeMap<Model, u32>,
    /// Methods of summing gradients and updating weights; only `all-reduce` for benchmarks that do not train.
    pub strategies: Vec<Strategy>,
    /// Numbers of nodes, and of ranks on each.
    pub cases: Vec<Case>,
    /// Runs of each point, at least 1.
    pub runs: u32,
}

impl Axes {
    /// Returns each network with every precision, batch size and strategy, in the order of the runs.
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        for &model in &self.models {
            for &dtype in &self.dtypes {
                for size in self.batch_sizes.for_point(model, dtype) {
                    let size = size.with_number(size.number() * self.batch_factors.get(&model).unwrap_or(&1));
                    for sequence_length in self.lengths_of(model) {
                        let batch = BatchShape { size, sequence_length };
                        points.extend(self.strategies.iter().map(|&strategy| Point { model, batch, dtype, strategy }));
                    }
                }
            }
        }
        points
    }

    /// Returns the lengths of sequences of a network; `None` for images.
    pub fn lengths_of(&self, model: Model) -> Vec<Option<u32>> {
        match self.sequence_lengths[..] {
            [] => vec![model.sequence_length(None)],
            _ if model.unit() == WorkUnit::Image => vec![None],
            _ => self.sequence_lengths.iter().copied().map(Some).collect(),
        }
    }

    /// Returns true if the run is omitted: a single rank does not communicate, so 1n1g of `all-reduce` is the base of every
    /// strategy of the sweep.
    pub fn is_left_to_all_reduce(&self, strategy: Strategy, case: Case) -> bool {
        !strategy.is_all_reduce() && case.ranks() == 1 && self.strategies.contains(&Strategy::AllReduce)
    }

    /// Returns every run in order: the run number is the innermost loop, the first field of this struct the outermost.
    pub fn runs(&self) -> Vec<RunName> {
        let mut runs = Vec::new();
        for Point { model, batch, dtype, strategy } in self.points() {
            for &case in self.cases.iter().filter(|case| !self.is_left_to_all_reduce(strategy, **case)) {
                let name = |run| RunName { baseline: false, case, model, batch, dtype, strategy, run };
                runs.extend((1..=self.runs).map(name));
            }
        }
        runs
    }

    /// Returns `1n2g run 1 of 3` or `1n2g b16 bf16 baseline, run 1 of 3`.
    pub fn title(&self, run: RunName) -> String {
        let comma = if run.baseline { "," } else { "" };
        format!("{}{comma} run {} of {}", self.point_title(run), run.run, self.runs)
    }

    /// Returns `1n2g` or `1n2g b16 bf16 baseline`; omits axes of one value.
    pub fn point_title(&self, run: RunName) -> String {
        let mut title = run.case.to_string();
        if self.models.len() > 1 {
            title += &format!(" {}", run.model);
        }
        if self.batch_sizes.has_several() {
            title += &format!(" b{}", run.batch.size.number());
        }
        if let (2.., Some(tokens)) = (self.sequence_lengths.len(), run.batch.sequence_length) {
            title += &format!(" s{tokens}");
        }
        if self.dtypes.len() > 1 {
            title += &format!(" {}", run.dtype);
        }
        if self.strategies.len() > 1 {
            title += &format!(" {}", run.strategy);
        }
        if run.baseline {
            title += " baseline";
        }
        title
    }

    /// Returns networks, precisions and batch sizes by option name, as stored in a manifest.
    pub fn settings(&self) -> [(&'static str, String); 6] {
        [
            (MODEL, joined(&self.models, ",")),
            (DTYPE, joined(&self.dtypes, ",")),
            (BATCH_SIZE, self.batch_sizes.texts(&self.models).join(",")),
            (SEQUENCE_LENGTH, joined(&self.sequence_lengths, ",")),
            (BATCH_FACTOR, self.factor_texts().join(",")),
            (BATCH_SIZES_THAT_FIT, self.batch_sizes.found_text()),
        ]
    }

    /// Returns the factors of the batch sizes as given on the command line.
    pub fn factor_texts(&self) -> Vec<String> {
        self.batch_factors.iter().map(|(model, factor)| format!("{model}={factor}")).collect()
    }

    /// Returns `b128_fp32` or `b1-2-4_fp32-bf16` for the name of a folder. Networks other than DLPerf's precede it,
    /// strategies other than `all-reduce` follow it.
    pub fn short_name(&self) -> String {
        let mut point = match self.batch_sizes {
            BatchSizes::Global(samples) => format!("g{samples}"),
            _ => format!("b{}", self.batch_sizes.texts(&self.models).join("-")),
        };
        if !self.sequence_lengths.is_empty() {
            point += &format!("_s{}", joined(&self.sequence_lengths, "-"));
        }
        point += &format!("_{}", joined(&self.dtypes, "-"));
        if self.strategies != [Strategy::AllReduce] {
            let strategies: Vec<_> = self.strategies.iter().map(|strategy| strategy.file_name()).collect();
            point += &format!("_{}", strategies.join("-"));
        }
        let models: Vec<&str> = self.models.iter().map(|model| model.facts().file_name).collect();
        if self.models == [Model::default()] { point } else { format!("{}_{point}", models.join("-")) }
    }
}

/// Joins all values with `separator`.
pub fn joined<T: Display>(values: &[T], separator: &str) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(separator)
}

/// Returns DLPerf's cases that fit the hosts, and all slots of all hosts. Adds all slots of 8, 16, .. hosts; of 1, 2, 4, .. if
/// none of DLPerf's cases uses several hosts.
pub fn default_cases(hosts: &Hosts, device: DeviceKind) -> Vec<Case> {
    let mut cases: Vec<Case> = Case::DLPERF.into_iter().filter(|case| hosts.can_run(*case)).collect();
    let all = hosts.all();
    let whole = hosts.full_case();
    if all.len() > 1 {
        let slots = whole.gpus_per_node;
        let first = if cases.iter().all(|case| case.nodes == 1) { 0 } else { 3 };
        let nodes = (first..).map(|power| 1_u32 << power).take_while(|nodes| *nodes as usize <= all.len());
        let more = nodes.map(|nodes| Case { nodes, gpus_per_node: slots });
        cases.extend(more.filter(|case| hosts.can_run(*case)).collect::<Vec<Case>>());
        cases.sort_by_key(|case| (case.ranks(), case.nodes));
        cases.dedup();
    }
    // The slots of a CPU host are its cores, which the ranks of any case share.
    let has_cores_only = hosts.is_default() && device == DeviceKind::Cpu;
    if !has_cores_only && !cases.contains(&whole) {
        cases.push(whole);
    }
    cases
}

/// A rank's share of a host's cores. On the CPU it acts as a device: it is the same in every case, so that a case of
/// more ranks has more devices and not smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreShare {
    /// Threads of a rank.
    pub threads: u32,
    /// Cores of the rank's host.
    pub cores: u32,
}

impl CoreShare {
    /// Computes the share on hosts with `cores` cores: the cores divided among the ranks of the largest of `cases`, but
    /// at most the `resumed` threads of a resumed sweep.
    pub fn new(cases: &[Case], cores: u32, resumed: Option<u32>) -> CoreShare {
        let most = cases.iter().map(|case| case.gpus_per_node).max().unwrap_or(1);
        let threads = (cores / most).max(1);
        CoreShare { threads: resumed.unwrap_or(threads).min(threads), cores }
    }

    /// Returns `each rank has 1 thread in every case; its host has 2 cores`.
    pub fn line(&self) -> String {
        let (threads, cores) = (count(self.threads, "thread"), count(self.cores, "core"));
        format!("each rank has {threads} in every case; its host has {cores}")
    }
}

/// Rejects repeated values, whose runs would overwrite each other's files. `advice` continues the sentence "list it
/// once".
pub fn reject_duplicates<T: PartialEq + Display>(option: &str, values: &[T], advice: &str) -> anyhow::Result<()> {
    for (index, value) in values.iter().enumerate() {
        ensure!(!values[..index].contains(value), "{option} lists {value} twice: list it once{advice}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn cases(text: &str) -> Vec<Case> {
        text.split(',').map(|case| case.parse().expect("a case")).collect()
    }

    fn axes(dtypes: &[Dtype], batch_sizes: &[u32]) -> Axes {
        Axes {
            models: vec![Model::Resnet50V1b],
            dtypes: dtypes.to_vec(),
            batch_sizes: BatchSizes::Each(batch_sizes.to_vec()),
            sequence_lengths: Vec::new(),
            batch_factors: BTreeMap::new(),
            strategies: vec![Strategy::AllReduce],
            cases: cases("1n1g,1n2g"),
            runs: 2,
        }
    }

    #[test]
    fn runs_are_the_product_with_the_last_axis_fastest() {
        let axes = axes(&[Dtype::Fp32, Dtype::Bf16], &[8, 16]);
        let names: Vec<String> = axes.runs().iter().map(RunName::to_string).collect();
        assert_eq!(names.len(), 2 * 2 * 2 * 2);
        assert_eq!(
            names[..5],
            [
                "1n1g/rn50_b8_fp32_1.log",
                "1n1g/rn50_b8_fp32_2.log",
                "1n2g/rn50_b8_fp32_1.log",
                "1n2g/rn50_b8_fp32_2.log",
                "1n1g/rn50_b16_fp32_1.log"
            ]
        );
        assert_eq!(names[8], "1n1g/rn50_b8_bf16_1.log");
    }

    #[test]
    fn largest_batch_is_found_per_network() {
        let found = BTreeMap::from([((Model::Resnet50V1b, Dtype::Bf16), 48)]);
        let axes = Axes {
            batch_sizes: BatchSizes::Largest { found: found.clone(), first: 8 },
            cases: cases("1n1g"),
            runs: 1,
            ..axes(&[Dtype::Fp32, Dtype::Bf16], &[])
        };
        let names: Vec<String> = axes.runs().iter().map(RunName::to_string).collect();
        assert_eq!(names, ["1n1g/rn50_b8_fp32_1.log", "1n1g/rn50_b48_bf16_1.log"]);
        assert_eq!(axes.short_name(), "bauto_fp32-bf16");
        let settings = axes.settings();
        assert_eq!(settings[2], ("--batch-size", "auto".to_owned()));
        assert_eq!(settings[5], ("batch sizes that fit", "resnet50_v1b:bf16:48".to_owned()));
        assert_eq!(BatchSizes::parse_found(&settings[5].1).expect("ours"), found);
        assert!(BatchSizes::parse_found("resnet50_v1b:bf16").is_err());
    }

    #[test]
    fn language_models_keep_their_default_batch_size() {
        let sizes = |batch_sizes: BatchSizes| {
            let axes = Axes {
                models: vec![Model::Resnet18, Model::Gpt2Small, Model::Resnet34],
                batch_sizes,
                ..axes(&[Dtype::Fp32], &[])
            };
            let points: Vec<_> = axes.points().iter().map(|point| point.batch.size.number()).collect();
            (points, axes.settings()[2].1.clone())
        };
        assert_eq!(sizes(BatchSizes::Default(8)), (vec![8, 4, 8], "4,8".to_owned()));
        assert_eq!(sizes(BatchSizes::Each(vec![8])), (vec![8, 8, 8], "8".to_owned()));
        let largest = BatchSizes::Largest { found: BTreeMap::new(), first: 8 };
        assert_eq!(sizes(largest), (vec![8, 4, 8], "auto".to_owned()));
    }

    #[test]
    fn factor_multiplies_the_batch_sizes_of_its_network() {
        let axes = Axes {
            models: vec![Model::MxnetAlexnet, Model::Resnet18],
            batch_factors: BTreeMap::from([(Model::MxnetAlexnet, 8)]),
            cases: cases("1n1g"),
            runs: 1,
            ..axes(&[Dtype::Fp32], &[1, 2])
        };
        let sizes: Vec<_> = axes.points().iter().map(|point| (point.model, point.batch.size.number())).collect();
        let (alexnet, resnet) = (Model::MxnetAlexnet, Model::Resnet18);
        assert_eq!(sizes, [(alexnet, 8), (alexnet, 16), (resnet, 1), (resnet, 2)]);
        assert_eq!(axes.settings()[4], ("--batch-factor", "mxnet-alexnet=8".to_owned()));
    }

    #[test]
    fn title_contains_only_varying_axes() {
        let title = |axes: &Axes, baseline: bool| {
            let run = axes.runs().pop().expect("runs");
            axes.title(RunName { baseline, ..run })
        };
        let one = axes(&[Dtype::Fp32], &[8]);
        expect!["1n2g run 2 of 2"].assert_eq(&title(&one, false));
        expect!["1n2g baseline, run 2 of 2"].assert_eq(&title(&one, true));
        expect!["1n2g b16 run 2 of 2"].assert_eq(&title(&axes(&[Dtype::Fp32], &[8, 16]), false));
        let both = axes(&[Dtype::Fp32, Dtype::Bf16], &[8, 16]);
        expect!["1n2g b16 bf16 run 2 of 2"].assert_eq(&title(&both, false));
        expect!["1n2g b16 bf16 baseline, run 2 of 2"].assert_eq(&title(&both, true));
        let networks = Axes { models: vec![Model::Resnet50V1b, Model::Resnet18], ..axes(&[Dtype::Fp32], &[8]) };
        expect!["1n2g resnet18 run 2 of 2"].assert_eq(&title(&networks, false));
        assert_eq!(networks.short_name(), "rn50-resnet18_b8_fp32");
        assert_eq!(networks.runs()[3].to_string(), "1n2g/rn50_b8_fp32_2.log");
        assert_eq!(networks.runs()[4].to_string(), "1n1g/resnet18_b8_fp32_1.log");
        assert_eq!((one.short_name(), both.short_name()), ("b8_fp32".to_owned(), "b8-16_fp32-bf16".to_owned()));
        assert_eq!(
            both.settings(),
            [
                ("--model", "resnet50_v1b"),
                ("--dtype", "fp32,bf16"),
                ("--batch-size", "8,16"),
                ("--sequence-length", ""),
                ("--batch-factor", ""),
                ("batch sizes that fit", "")
            ]
            .map(|(name, value)| (name, value.to_owned()))
        );
    }

    #[test]
    fn strategies_share_the_single_rank_run_of_all_reduce() {
        let strategies =
            |list: &[Strategy]| Axes { strategies: list.to_vec(), runs: 1, ..axes(&[Dtype::Fp32], &[8, 16]) };
        let names = |axes: &Axes| axes.runs().iter().map(RunName::to_string).collect::<Vec<_>>();
        let with_all_reduce = strategies(&[Strategy::DistSync, Strategy::AllReduce]);
        assert_eq!(
            names(&with_all_reduce),
            [
                "1n2g/rn50_b8_fp32_dist-sync_1.log",
                "1n1g/rn50_b8_fp32_1.log",
                "1n2g/rn50_b8_fp32_1.log",
                "1n2g/rn50_b16_fp32_dist-sync_1.log",
                "1n1g/rn50_b16_fp32_1.log",
                "1n2g/rn50_b16_fp32_1.log",
            ]
        );
        let points: Vec<Strategy> = with_all_reduce.points().iter().map(|point| point.strategy).collect();
        assert_eq!(points, [Strategy::DistSync, Strategy::AllReduce, Strategy::DistSync, Strategy::AllReduce]);
        let run: RunName = "1n2g/rn50_b16_fp32_dist-sync_1.log".parse().expect("a name");
        expect!["1n2g b16 dist_sync run 1 of 1"].assert_eq(&with_all_reduce.title(run));
        assert_eq!(with_all_reduce.short_name(), "b8-16_fp32_dist-sync-all-reduce");
        // Without ring, each has its own base; a single strategy appears in file names but not in titles.
        let alone = strategies(&[Strategy::Device]);
        assert_eq!(names(&alone)[..2], ["1n1g/rn50_b8_fp32_device_1.log", "1n2g/rn50_b8_fp32_device_1.log"]);
        let run: RunName = "1n2g/rn50_b16_fp32_device_1.log".parse().expect("a name");
        assert_eq!((alone.title(run), alone.short_name()), ("1n2g b16 run 1 of 1".into(), "b8-16_fp32_device".into()));
    }

    #[test]
    fn core_share_is_equal_in_every_case() {
        let threads = |list: &str, cores: u32, resumed| CoreShare::new(&cases(list), cores, resumed).threads;
        assert_eq!(threads("1n1g,1n2g", 2, None), 1);
        assert_eq!(threads("1n1g,1n2g,1n4g", 6, None), 1);
        assert_eq!(threads("1n1g,1n2g", 64, None), 32);
        assert_eq!(threads("1n1g", 8, None), 8);
        assert_eq!(threads("1n8g", 2, None), 1);
        // A sweep resumed with fewer cases keeps the share of its earlier runs; one that needs more threads differs.
        assert_eq!(threads("1n1g", 8, Some(2)), 2);
        assert_eq!(threads("1n8g", 8, Some(2)), 1);
        assert_eq!(
            CoreShare::new(&cases("1n2g"), 2, None).line(),
            "each rank has 1 thread in every case; its host has 2 cores"
        );
    }

    #[test]
    fn default_cases_end_with_all_slots() {
        let cases = |hosts: &str| {
            let cases = default_cases(&Hosts::parse_list(hosts).expect("a list"), DeviceKind::Cpu);
            cases.iter().map(Case::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(cases("a:8,b:8,c:8,d:8"), "1n1g 1n2g 1n4g 1n8g 2n8g 4n8g");
        assert_eq!(cases("a:8,b:8,c:8"), "1n1g 1n2g 1n4g 1n8g 2n8g 3n8g");
        assert_eq!(cases("a:8,b:8,c:8,d:8,e:8,f:8,g:8,h:8"), "1n1g 1n2g 1n4g 1n8g 2n8g 4n8g 8n8g");
        assert_eq!(cases("n[1-64]:8"), "1n1g 1n2g 1n4g 1n8g 2n8g 4n8g 8n8g 16n8g 32n8g 64n8g");
        assert_eq!(cases("a:8,b:8,c:4"), "1n1g 1n2g 1n4g 1n8g 2n8g 3n4g");
        assert_eq!(cases("localhost:16"), "1n1g 1n2g 1n4g 1n8g 1n16g");
        assert_eq!(cases("localhost:8"), "1n1g 1n2g 1n4g 1n8g");
        assert_eq!(cases("a:1,b:1"), "1n1g 2n1g");
        assert_eq!(cases("a:1,b:1,c:1"), "1n1g 2n1g 3n1g");
        assert_eq!(cases("a:4,b:4,c:4,d:4,e:4"), "1n1g 1n2g 1n4g 2n4g 4n4g 5n4g");
        assert_eq!(cases("a:6,b:6"), "1n1g 1n2g 1n4g 1n6g 2n6g");
    }

    #[test]
    fn default_cases_use_all_gpus_but_not_all_cores() {
        let largest = |slots, device| default_cases(&Hosts::this_machine(slots), device).last().map(Case::to_string);
        assert_eq!(largest(16, DeviceKind::Cuda).as_deref(), Some("1n16g"));
        assert_eq!(largest(64, DeviceKind::Cpu).as_deref(), Some("1n8g"));
        assert_eq!(largest(1, DeviceKind::Cpu).as_deref(), Some("1n1g"));
    }
}

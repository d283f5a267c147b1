//! Speeds of training by number of GPUs: DLPerf's, and those of PyTorch's DDP benchmark.

use std::collections::BTreeSet;

use ringmark_core::dimension::{BatchShape, Case, Dtype, Model, UnitsPerSecond};
use ringmark_core::file::run_name::Point;

use crate::read::analyze::published::PublishedRate;

#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Short name for a legend.
    pub name: &'static str,
    /// Publication: repository, file, commit.
    pub source: &'static str,
    /// Hardware and software of the measurement.
    pub setup: &'static str,
    /// Limitation that readers must consider, if any.
    pub caveat: Option<&'static str>,
    pub model: Model,
    /// Precision of the step.
    pub dtype: Dtype,
    pub batch_size: u32,
    /// True if images were read from disk, false if they were synthetic.
    pub reads_images: bool,
    pub cases: &'static [PublishedCase],
}

/// Conditions of a measured group that a published row may differ from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredConditions {
    /// Point of the sweep.
    pub point: Point,
    /// True if images were read from files; `None` without records.
    pub reads_images: Option<bool>,
}

impl Published {
    /// Returns the conditions in which the row differs from the most similar of the measured groups of its network, as
    /// `batch size 128 instead of 8`; empty if there is no difference.
    pub fn differences(&self, measured: &[MeasuredConditions]) -> Vec<String> {
        let input = |reads_images: bool| if reads_images { "images from disk" } else { "synthetic images" };
        let unlike = |own: &MeasuredConditions| {
            let pairs = [
                (BatchShape::per_rank(self.batch_size) != own.point.batch)
                    .then(|| format!("batch size {} instead of {}", self.batch_size, own.point.batch.numbers())),
                (self.dtype != own.point.dtype).then(|| format!("{} instead of {}", self.dtype, own.point.dtype)),
                own.reads_images
                    .filter(|reads_images| *reads_images != self.reads_images)
                    .map(|reads_images| format!("{} instead of {}", input(self.reads_images), input(reads_images))),
            ];
            pairs.into_iter().flatten().collect::<Vec<String>>()
        };
        let of_model = measured.iter().filter(|own| own.point.model == self.model);
        of_model.map(unlike).min_by_key(Vec::len).unwrap_or_default()
    }
}

#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedCase {
    /// Nodes, and GPUs per node.
    pub case: Case,
    /// Median speed over runs, all GPUs together.
    pub median: UnitsPerSecond,
    /// Speed of each run, or empty if only the median was published.
    pub runs: &'static [f64],
}

const SOURCE: &str = "Oneflow-Inc/DLPerf, MxNet/Classification/RN50v1b/README.md, commit a17cae58";

const SETUP: &str = "4 nodes of 8 Tesla V100-SXM2-16GB, MXNet 1.6.0, Horovod 0.19.5, NCCL 2.7.3, ImageNet from disk";

/// Returns a case; `runs` has the five runs if DLPerf printed them.
const fn case(nodes: u32, gpus_per_node: u32, median: f64, runs: &'static [f64]) -> PublishedCase {
    PublishedCase { case: Case { nodes, gpus_per_node }, median: UnitsPerSecond(median), runs }
}

/// DLPerf's two rows of ResNet50-v1b.
pub static DLPERF: [Published; 2] = [
    Published {
        name: "DLPerf V100 FP32 b128",
        source: SOURCE,
        setup: SETUP,
        caveat: None,
        model: Model::Resnet50V1b,
        dtype: Dtype::Fp32,
        batch_size: 128,
        reads_images: true,
        cases: &[
            case(1, 1, 384.19, &[385.23, 384.16, 384.19, 385.31, 384.04]),
            case(1, 2, 749.04, &[755.7, 749.04, 754.4, 740.66, 748.58]),
            case(1, 4, 1494.58, &[1498.84, 1492.14, 1501.75, 1494.58, 1494.29]),
            case(1, 8, 2556.03, &[2556.03, 2539.38, 2561.71, 2564.3, 2532.26]),
            case(2, 8, 4855.34, &[4924.15, 4850.36, 4843.76, 4855.34, 4866.14]),
            case(4, 8, 9579.74, &[9579.74, 9611.24, 9579.55, 9568.3, 9631.67]),
        ],
    },
    Published {
        name: "DLPerf V100 FP16 b256",
        source: SOURCE,
        setup: SETUP,
        caveat: Some(
            "this row measures the input pipeline on the CPUs, not the GPUs or the network: a node reads and decodes \
             no more than 2.6 to 2.9 k images/s, regardless of the number of GPUs",
        ),
        model: Model::Resnet50V1b,
        dtype: Dtype::Fp16,
        batch_size: 256,
        reads_images: true,
        cases: &[
            case(1, 1, 833.65, &[]),
            case(1, 2, 1373.55, &[]),
            case(1, 4, 2331.91, &[]),
            case(1, 8, 2908.88, &[]),
            case(2, 8, 5451.27, &[]),
            case(4, 8, 10565.55, &[]),
        ],
    },
];

const DDP_SOURCE: &str = "pytorch/pytorch, benchmarks/distributed/ddp/README.md, commit bf69c149";

const DDP_SETUP: &str =
    "2 nodes of 8 Tesla V100, 4 x 100 Gb/s InfiniBand, PyTorch 1.4.0a0, CUDA 10.0, NCCL, synthetic images";

const DDP_CAVEAT: &str = "the README shows whole images/s of one GPU, from which speed and speedup are computed";

/// Returns the cases of PyTorch's table; `rates` are the images/s of one GPU at the median iteration.
const fn ddp(rates: [f64; 5]) -> [PublishedCase; 5] {
    let [r1, r2, r4, r8, r16] = rates;
    [
        case(1, 1, r1, &[]),
        case(1, 2, 2.0 * r2, &[]),
        case(1, 4, 4.0 * r4, &[]),
        case(1, 8, 8.0 * r8, &[]),
        case(2, 8, 16.0 * r16, &[]),
    ]
}

/// Rows of PyTorch's DDP benchmark, fp32 and 32 images per GPU.
pub static DDP: [Published; 4] = {
    const fn row(model: Model, name: &'static str, cases: &'static [PublishedCase]) -> Published {
        Published {
            name,
            source: DDP_SOURCE,
            setup: DDP_SETUP,
            caveat: Some(DDP_CAVEAT),
            model,
            dtype: Dtype::Fp32,
            batch_size: 32,
            reads_images: false,
            cases,
        }
    }
    const RESNET50: [PublishedCase; 5] = ddp([319.0, 310.0, 310.0, 307.0, 306.0]);
    const RESNET101: [PublishedCase; 5] = ddp([187.0, 182.0, 182.0, 179.0, 178.0]);
    const RESNEXT50: [PublishedCase; 5] = ddp([217.0, 209.0, 208.0, 204.0, 203.0]);
    const RESNEXT101: [PublishedCase; 5] = ddp([75.0, 73.0, 72.0, 71.0, 71.0]);
    [
        row(Model::Resnet50V1b, "PyTorch DDP V100 resnet50", &RESNET50),
        row(Model::Resnet101, "PyTorch DDP V100 resnet101", &RESNET101),
        row(Model::Resnext50, "PyTorch DDP V100 resnext50_32x4d", &RESNEXT50),
        row(Model::Resnext101, "PyTorch DDP V100 resnext101_32x8d", &RESNEXT101),
    ]
};

/// Returns all rows.
pub fn all() -> impl Iterator<Item = &'static Published> {
    DLPERF.iter().chain(&DDP)
}

/// Returns the rates of these networks for JSON output.
pub fn rates(models: &BTreeSet<Model>) -> Vec<PublishedRate> {
    let of_row = |row: &'static Published| {
        row.cases.iter().map(|case| PublishedRate {
            model: row.model,
            dtype: row.dtype,
            batch_size: row.batch_size,
            case: case.case,
            units_per_second: case.median,
            hardware: row.setup.to_owned(),
            source: row.source.to_owned(),
        })
    };
    all().filter(|row| models.contains(&row.model)).flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmark_core::dimension::Strategy;
    use ringmark_core::stats::scaling::speedup;
    use ringmark_core::stats::summary::median;

    #[test]
    fn differences_are_those_of_the_most_similar_group() {
        let of_model = |model, dtype, batch_size, reads_images| {
            let point = Point { model, batch: BatchShape::per_rank(batch_size), dtype, strategy: Strategy::AllReduce };
            MeasuredConditions { point, reads_images }
        };
        let own = |dtype, batch_size, reads_images| of_model(Model::Resnet50V1b, dtype, batch_size, reads_images);
        let row = &DLPERF[0];
        assert_eq!(row.differences(&[own(Dtype::Fp32, 128, None)]), Vec::<String>::new());
        assert_eq!(row.differences(&[of_model(Model::Vgg16, Dtype::Bf16, 8, None)]).len(), 0);
        assert_eq!(
            row.differences(&[own(Dtype::Bf16, 8, Some(false)), own(Dtype::Fp32, 8, Some(false))]),
            ["batch size 128 instead of 8", "images from disk instead of synthetic images"]
        );
        assert_eq!(
            DDP[0].differences(&[own(Dtype::Bf16, 32, Some(true))]),
            ["fp32 instead of bf16", "synthetic images instead of images from disk"]
        );
    }

    #[test]
    fn published_rows_match_their_speedups() {
        for (row, speedups) in
            DLPERF.iter().zip([[1.0, 1.95, 3.89, 6.65, 12.64, 24.93], [1.0, 1.65, 2.8, 3.49, 6.54, 12.67]])
        {
            assert_eq!(row.cases.iter().map(|case| case.case).collect::<Vec<_>>(), Case::DLPERF);
            for (case, published) in row.cases.iter().zip(speedups) {
                let speedup = speedup(case.median, row.cases[0].median);
                assert_eq!((speedup * 100.0).round() / 100.0, published);
                assert_eq!(median(case.runs).unwrap_or(case.median.0), case.median.0);
            }
        }
    }
}

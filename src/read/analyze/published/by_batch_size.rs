//! Rates of training and inference by batch size on one device, from MXNet's performance page.

use std::collections::BTreeSet;

use ringmark_core::dimension::{Case, Dtype, Model, UnitsPerSecond};

use crate::read::analyze::published::{PublishedRate, Workload};

/// Columns of every table in the source. AlexNet was trained with [eight times](PublishedRow::batch_factor) as many
/// images.
pub const BATCH_SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Rows of every inference table in the source. Its VGG is VGG-11.
const SCORED: [Model; 6] = [
    Model::MxnetAlexnet,
    Model::Vgg11,
    Model::MxnetInceptionBn,
    Model::MxnetInceptionV3,
    Model::MxnetResnet50,
    Model::MxnetResnet152,
];

/// Rows of every training table in the source.
const TRAINED: [Model; 3] = [Model::MxnetAlexnet, Model::MxnetInceptionV3, Model::MxnetResnet50];

/// Tables of one device.
struct Published {
    hardware: &'static str,
    short: &'static str,
    /// Rows of [`SCORED`].
    inference: &'static [[f64; 6]],
    /// Rows of [`TRAINED`]; empty if the source has none.
    training: &'static [[f64; 6]],
}

const TABLES: [Published; 4] = [
    Published {
        hardware: "2 x Intel Xeon E5-2666 v3 (EC2 C4.8xlarge)",
        short: "C4.8xlarge",
        inference: &[
            [122.21, 224.83, 295.87, 389.08, 519.87, 626.25],
            [34.23, 51.02, 65.88, 77.78, 85.08, 87.63],
            [99.24, 138.88, 185.46, 212.96, 222.81, 221.66],
            [52.16, 66.76, 76.70, 84.00, 85.10, 84.36],
            [46.03, 52.27, 67.45, 69.26, 68.94, 67.69],
            [20.11, 24.82, 28.16, 29.70, 29.11, 28.70],
        ],
        training: &[],
    },
    Published {
        hardware: "Tesla K80, one of its two GPUs",
        short: "K80",
        inference: &[
            [202.66, 233.76, 367.91, 624.14, 1071.19, 1443.90],
            [70.76, 63.53, 78.16, 119.06, 195.83, 228.96],
            [74.91, 119.60, 164.41, 195.24, 256.06, 287.93],
            [42.61, 60.09, 72.30, 79.62, 99.38, 106.43],
            [70.94, 92.28, 116.68, 129.37, 160.40, 167.12],
            [24.87, 34.23, 44.76, 50.96, 66.51, 69.73],
        ],
        training: &[
            [230.69, 348.10, 457.28, 533.51, 582.36, 483.37],
            [9.81, 15.31, 20.48, 24.47, 28.46, 29.62],
            [13.83, 21.85, 29.58, 36.83, 43.60, 45.52],
        ],
    },
    Published {
        hardware: "Tesla M40",
        short: "M40",
        inference: &[
            [412.09, 743.49, 1155.43, 1606.87, 2070.97, 2694.91],
            [142.10, 212.21, 280.92, 332.76, 400.10, 466.95],
            [115.89, 205.31, 335.69, 491.12, 618.25, 624.27],
            [64.40, 108.06, 161.59, 224.22, 251.87, 258.59],
            [126.90, 202.17, 266.53, 317.20, 335.62, 373.35],
            [46.15, 75.05, 106.83, 128.67, 134.60, 152.71],
        ],
        training: &[
            [405.17, 606.32, 792.66, 1016.51, 1105.18, 1046.23],
            [14.35, 23.96, 37.38, 52.69, 62.35, 68.87],
            [21.56, 36.48, 52.96, 70.21, 83.13, 90.74],
        ],
    },
    Published {
        hardware: "Tesla P100",
        short: "P100",
        inference: &[
            [624.84, 1226.85, 1934.97, 2900.54, 4063.70, 4883.77],
            [294.6, 282.3, 399.3, 522.9, 755.3, 854.4],
            [139.82, 267.41, 463.38, 709.30, 949.22, 1197.74],
            [80.17, 142.63, 225.56, 319.52, 444.65, 493.72],
            [162.27, 278.02, 423.63, 529.34, 647.43, 713.17],
            [58.99, 102.95, 168.91, 210.10, 270.07, 294.17],
        ],
        training: &[
            [809.94, 1202.93, 1631.37, 1882.74, 2012.04, 1869.69],
            [15.14, 30.34, 50.59, 77.75, 111.11, 129.98],
            [27.20, 49.55, 78.31, 122.45, 156.79, 181.53],
        ],
    },
];

/// One row of a published table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedRow {
    /// Hardware of the measurement.
    pub hardware: &'static str,
    /// Short hardware name for tables with many rows.
    pub short: &'static str,
    /// Network.
    pub model: Model,
    /// Images per batch, divided by the column's batch size: 8 for the training of AlexNet, otherwise 1.
    pub batch_factor: u32,
    /// Images per second, one for each of [`BATCH_SIZES`].
    pub rates: [f64; 6],
}

impl PublishedRow {
    /// Returns the batch size of each rate.
    pub fn batch_sizes(&self) -> [u32; 6] {
        BATCH_SIZES.map(|size| size * self.batch_factor)
    }
}

/// Returns the publication of the tables.
pub fn source(workload: Workload) -> &'static str {
    match workload {
        Workload::Training => {
            "MXNet, docs/how_to/perf.md, commit 0a03417 (2016): FP32, train_imagenet.py --benchmark 1; cuDNN 5.1"
        }
        Workload::Inference => {
            "MXNet, docs/how_to/perf.md, commit 0a03417 (2016): FP32, benchmark_score.py; cuDNN 5.1 on GPUs"
        }
    }
}

fn networks(workload: Workload) -> &'static [Model] {
    match workload {
        Workload::Training => &TRAINED,
        Workload::Inference => &SCORED,
    }
}

/// Returns the published rows of these networks, grouped by hardware.
pub fn rows(workload: Workload, measured: &BTreeSet<Model>) -> Vec<PublishedRow> {
    let of_table = |&Published { hardware, short, inference, training }: &Published| {
        let rates = if workload == Workload::Training { training } else { inference };
        let row = move |(&model, &rates): (&Model, &[f64; 6])| {
            let is_larger = workload == Workload::Training && model == Model::MxnetAlexnet;
            PublishedRow { hardware, short, model, batch_factor: if is_larger { 8 } else { 1 }, rates }
        };
        networks(workload).iter().zip(rates).map(row)
    };
    TABLES.iter().flat_map(of_table).filter(|row| measured.contains(&row.model)).collect()
}

/// Returns the published rates of these networks for JSON output.
pub fn rates(workload: Workload, measured: &BTreeSet<Model>) -> Vec<PublishedRate> {
    let of_row = |row: PublishedRow| {
        row.batch_sizes().into_iter().zip(row.rates).map(move |(batch_size, rate)| PublishedRate {
            model: row.model,
            dtype: Dtype::Fp32,
            batch_size,
            case: Case::SINGLE,
            units_per_second: UnitsPerSecond(rate),
            hardware: row.hardware.to_owned(),
            source: source(workload).to_owned(),
        })
    };
    rows(workload, measured).into_iter().flat_map(of_row).collect()
}

/// Returns a note that none of the measured networks was published, with the networks that were.
pub fn none_published(workload: Workload) -> String {
    let known: Vec<String> = networks(workload).iter().map(Model::to_string).collect();
    format!("Published: none of these networks; MXNet's page has {}", known.join(", "))
}

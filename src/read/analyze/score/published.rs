//! Inference rates from MXNet's performance page. Numbers are as printed there; none was measured by ringmark.

use std::collections::BTreeSet;

use ringmark_core::dimension::{Dtype, ImagesPerSecond, Model};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Publication of the tables.
pub const SOURCE: &str =
    "MXNet, docs/how_to/perf.md, commit 0a03417 (2016): FP32, benchmark_score.py; cuDNN 5.1 on GPUs";

/// Columns of every table in the source.
pub const BATCH_SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Rows of every table in the source. Its VGG is VGG-11.
const MODELS: [Model; 6] = [
    Model::MxnetAlexnet,
    Model::Vgg11,
    Model::MxnetInceptionBn,
    Model::MxnetInceptionV3,
    Model::MxnetResnet50,
    Model::MxnetResnet152,
];

struct Published {
    hardware: &'static str,
    short: &'static str,
    rows: [[f64; 6]; 6],
}

const TABLES: [Published; 4] = [
    Published {
        hardware: "2 x Intel Xeon E5-2666 v3 (EC2 C4.8xlarge)",
        short: "C4.8xlarge",
        rows: [
            [122.21, 224.83, 295.87, 389.08, 519.87, 626.25],
            [34.23, 51.02, 65.88, 77.78, 85.08, 87.63],
            [99.24, 138.88, 185.46, 212.96, 222.81, 221.66],
            [52.16, 66.76, 76.70, 84.00, 85.10, 84.36],
            [46.03, 52.27, 67.45, 69.26, 68.94, 67.69],
            [20.11, 24.82, 28.16, 29.70, 29.11, 28.70],
        ],
    },
    Published {
        hardware: "Tesla K80, one of its two GPUs",
        short: "K80",
        rows: [
            [202.66, 233.76, 367.91, 624.14, 1071.19, 1443.90],
            [70.76, 63.53, 78.16, 119.06, 195.83, 228.96],
            [74.91, 119.60, 164.41, 195.24, 256.06, 287.93],
            [42.61, 60.09, 72.30, 79.62, 99.38, 106.43],
            [70.94, 92.28, 116.68, 129.37, 160.40, 167.12],
            [24.87, 34.23, 44.76, 50.96, 66.51, 69.73],
        ],
    },
    Published {
        hardware: "Tesla M40",
        short: "M40",
        rows: [
            [412.09, 743.49, 1155.43, 1606.87, 2070.97, 2694.91],
            [142.10, 212.21, 280.92, 332.76, 400.10, 466.95],
            [115.89, 205.31, 335.69, 491.12, 618.25, 624.27],
            [64.40, 108.06, 161.59, 224.22, 251.87, 258.59],
            [126.90, 202.17, 266.53, 317.20, 335.62, 373.35],
            [46.15, 75.05, 106.83, 128.67, 134.60, 152.71],
        ],
    },
    Published {
        hardware: "Tesla P100",
        short: "P100",
        rows: [
            [624.84, 1226.85, 1934.97, 2900.54, 4063.70, 4883.77],
            [294.6, 282.3, 399.3, 522.9, 755.3, 854.4],
            [139.82, 267.41, 463.38, 709.30, 949.22, 1197.74],
            [80.17, 142.63, 225.56, 319.52, 444.65, 493.72],
            [162.27, 278.02, 423.63, 529.34, 647.43, 713.17],
            [58.99, 102.95, 168.91, 210.10, 270.07, 294.17],
        ],
    },
];

/// One published rate, for JSON output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedRate {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Images per pass.
    pub batch_size: u32,
    /// Rate on one device.
    pub images_per_second: ImagesPerSecond,
    /// Hardware of the measurement.
    pub hardware: String,
    /// Publication: document, commit, year.
    pub source: String,
}

/// One row of a published table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedRow {
    /// Hardware of the measurement.
    pub hardware: &'static str,
    /// Short hardware name for tables with many rows.
    pub short: &'static str,
    /// Network.
    pub model: Model,
    /// Images per second, one for each of [`BATCH_SIZES`].
    pub rates: [f64; 6],
}

/// Returns the published rows of these networks, grouped by hardware.
pub fn rows(scored: &BTreeSet<Model>) -> Vec<PublishedRow> {
    let of_table = |table: &Published| {
        let rows = MODELS.into_iter().zip(table.rows).filter(|(model, _)| scored.contains(model));
        let Published { hardware, short, .. } = *table;
        rows.map(|(model, rates)| PublishedRow { hardware, short, model, rates }).collect::<Vec<_>>()
    };
    TABLES.iter().flat_map(of_table).collect()
}

/// Returns the published rates of these networks for JSON output.
pub fn rates(scored: &BTreeSet<Model>) -> Vec<PublishedRate> {
    let of_row = |row: PublishedRow| {
        BATCH_SIZES.into_iter().zip(row.rates).map(move |(batch_size, rate)| PublishedRate {
            model: row.model,
            dtype: Dtype::Fp32,
            batch_size,
            images_per_second: ImagesPerSecond(rate),
            hardware: row.hardware.to_owned(),
            source: SOURCE.to_owned(),
        })
    };
    rows(scored).into_iter().flat_map(of_row).collect()
}

/// Returns a note that none of the scored networks was published, with the networks that were.
pub fn none_published() -> String {
    let known: Vec<String> = MODELS.iter().map(Model::to_string).collect();
    format!("Published: none of these networks; MXNet's page has {}", known.join(", "))
}

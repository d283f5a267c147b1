//! Benchmarks of the jobs: short runs that are the same on all hosts.

use std::path::Path;

use ringmark_core::accept::Test;
use ringmark_core::benchmark::bandwidth::BandwidthConfig;
use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::bandwidth::messages::Growth;
use ringmark_core::benchmark::data_input::DataFiles;
use ringmark_core::benchmark::exchange::{ExchangeConfig, NcclAlgorithm, Switch};
use ringmark_core::benchmark::input::{InputConfig, ThreadCounts};
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::benchmark::{BenchmarkKind, RunLabel, RunProfile};
use ringmark_core::dimension::{Bytes, Case, DeviceChoice, DeviceKind, Dtype, Model};

/// Images that every host reads.
#[derive(Debug, Clone, PartialEq)]
pub struct TestData {
    /// Absolute paths.
    pub files: DataFiles,
    /// Threads that decode: the cores of the smallest host.
    pub threads: u32,
}

/// Returns the worker's command and options for `test` in `case`. The data are those of [`Test::Input`].
pub fn arguments(
    test: Test,
    case: Case,
    (device, choice): (DeviceKind, DeviceChoice),
    data: &TestData,
    record: &Path,
) -> Vec<String> {
    let record = Some(record.to_owned());
    match test {
        Test::Input => BenchmarkKind::Input.worker_command(&InputConfig { record, ..input(data) }),
        Test::Training => {
            let config = TrainConfig { device: choice, record, ..training(device) };
            let label = RunLabel { case, run: 1, profile: RunProfile::Full };
            [BenchmarkKind::Train.worker_command(&config), label.arguments()].concat()
        }
        Test::Exchange => {
            let config = BandwidthConfig { device: choice, json: record, ..exchange(device) };
            BenchmarkKind::Bandwidth.worker_command(&config)
        }
    }
}

/// Returns a training run of some seconds. Without overlap a rank's own time ends with backward, before it waits for others;
/// all ranks have the same batch, so that their fingerprints can be compared.
fn training(device: DeviceKind) -> TrainConfig {
    let exchange = ExchangeConfig { nccl_algo: NcclAlgorithm::Auto, ..ExchangeConfig::default() };
    let common = TrainConfig { overlap: Switch::Off, fingerprint: true, exchange, ..TrainConfig::default() };
    match device {
        DeviceKind::Cuda => TrainConfig { dtype: Dtype::Fp16, batch_size: 64, iterations: 60, warmup: 20, ..common },
        DeviceKind::Cpu => TrainConfig {
            model: Model::Resnet18,
            batch_size: 4,
            image_size: Some(64),
            iterations: 25,
            warmup: 5,
            ..common
        },
    }
}

/// Returns a pass from the disk and one from memory, of some seconds each.
fn input(data: &TestData) -> InputConfig {
    let TestData { files, threads } = data.clone();
    InputConfig {
        data: files,
        decode_threads: ThreadCounts(vec![threads]),
        batch_size: 32,
        seconds: 3,
        ..InputConfig::default()
    }
}

/// Returns an all-reduce at three sizes: one that latency limits, one between, and one that bandwidth limits.
fn exchange(device: DeviceKind) -> BandwidthConfig {
    let (begin, factor) = match device {
        DeviceKind::Cuda => (32 << 10, 64),
        DeviceKind::Cpu => (4 << 10, 32),
    };
    let messages =
        Messages::Sizes { begin: Bytes(begin), end: Bytes(begin * factor * factor), growth: Growth::Factor(factor) };
    let exchange = ExchangeConfig { nccl_algo: NcclAlgorithm::Auto, ..ExchangeConfig::default() };
    BandwidthConfig { messages, exchange, iterations: 20, warmup: 5, ..BandwidthConfig::default() }
}

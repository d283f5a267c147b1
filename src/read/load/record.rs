//! The record next to a log, for every benchmark: reading it, and its speeds, devices and software.

use std::collections::BTreeSet;
use std::io::{BufReader, ErrorKind};
use std::path::Path;

use anyhow::{Context, ensure};
use ringmark_core::benchmark::Record;
use ringmark_core::dimension::{Bytes, DeviceKind, Dtype, TeraflopsPerSecond, UnitsPerSecond, WorkUnit, device_peak};
use ringmark_core::file::atomic_file;
use ringmark_core::host::{Environment, RankPlace};

use crate::read::load::log;
use crate::read::load::problem::Problem;

/// Reads the record next to a log; returns `None` if there is none.
pub fn read_for_log<R: Record>(root: &Path, log: &Path) -> Result<Option<R>, Problem> {
    let path = log.with_extension("jsonl");
    match atomic_file::open(&root.join(&path)) {
        Ok(file) => R::read(BufReader::with_capacity(log::BLOCK, file))
            .map(Some)
            .context("the record cannot be used")
            .map_err(|error| Problem::from_error(&path, &error)),
        // A dangling link is a missing record, which is an error.
        Err(error) if error.kind() == ErrorKind::NotFound && !root.join(&path).is_symlink() => Ok(None),
        Err(error) => Err(Problem::in_file(&path, format!("the record cannot be read: {error}"))),
    }
}

/// Rejects impossible speeds. Below the lower limit a speed is rounded to 0, and later code divides by it; no hardware
/// reaches the upper limit.
pub fn check_speed(speed: UnitsPerSecond, unit: WorkUnit) -> anyhow::Result<()> {
    ensure!(
        (0.005..1e15).contains(&speed.0),
        "invalid speed: {:.2e} {}: the clock of the run is broken",
        speed.0,
        unit.per_second()
    );
    Ok(())
}

/// Returns the device names of these ranks.
pub fn device_names<'a>(ranks: impl IntoIterator<Item = &'a RankPlace>) -> BTreeSet<String> {
    ranks.into_iter().map(|rank| rank.device_name.clone()).collect()
}

/// Formats device names, on CPUs with the threads of a rank: `AMD EPYC, 1 to 2 threads per rank`.
pub fn devices_text(names: &BTreeSet<String>, threads: &BTreeSet<u32>, device: Option<DeviceKind>) -> String {
    let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(" / ");
    let is_cpu = device == Some(DeviceKind::Cpu);
    match (threads.first(), threads.last()) {
        (Some(1), Some(1)) if is_cpu => format!("{names}, 1 thread per rank"),
        (Some(least), Some(most)) if is_cpu && least == most => format!("{names}, {least} threads per rank"),
        (Some(least), Some(most)) if is_cpu => format!("{names}, {least} to {most} threads per rank"),
        _ => names,
    }
}

/// Returns the highest memory use of any rank, or `None` if the record has none.
pub fn peak_memory(of_ranks: &[Bytes]) -> Option<Bytes> {
    let most = of_ranks.iter().map(|bytes| bytes.0).max().filter(|most| *most > 0);
    most.map(Bytes)
}

/// Arithmetic rates of the devices, summed over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeviceRates {
    /// Measured rate of plain matrix products, on all ranks at once.
    pub matrix_product: Option<TeraflopsPerSecond>,
    /// Peak rate published by the manufacturer.
    pub published_peak: Option<TeraflopsPerSecond>,
}

impl DeviceRates {
    /// Sums the rates at precision `dtype`; `matrix_product` contains a rate for each rank, or none.
    pub fn new(ranks: &[RankPlace], matrix_product: &[TeraflopsPerSecond], dtype: Dtype) -> DeviceRates {
        let sum = |rates: Vec<TeraflopsPerSecond>| TeraflopsPerSecond(rates.iter().map(|rate| rate.0).sum());
        let is_whole = !ranks.is_empty() && matrix_product.len() == ranks.len();
        let peaks: Option<Vec<_>> = ranks.iter().map(|rank| device_peak::published(&rank.device_name, dtype)).collect();
        DeviceRates {
            matrix_product: is_whole.then(|| sum(matrix_product.to_vec())),
            published_peak: peaks.filter(|peaks| !peaks.is_empty()).map(sum),
        }
    }
}

/// Returns the versions of worker, libtorch and NCCL as text.
pub fn software(environment: &Environment) -> String {
    let versions = [
        ("ringmark-worker", Some(&environment.ringmark_version)),
        ("libtorch", Some(&environment.libtorch_version)),
        ("NCCL", environment.nccl_version.as_ref()),
    ];
    let version = |(name, version): &(&str, Option<&String>)| {
        Some(format!("{name} {}", version.filter(|version| !version.is_empty())?))
    };
    versions.iter().filter_map(version).collect::<Vec<_>>().join(", ")
}

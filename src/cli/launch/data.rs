//! Checks training data before a job starts, as far as this machine has them.

use std::path;

use anyhow::{Context, anyhow};
use ringmark_core::benchmark::data_input::{DataFiles, DataSource};
use ringmark_core::dimension::{ImageLimits, SampleSize};
use ringmark_core::file::run_name::MANIFEST;
use ringmark_core::options::usage::usage;
use ringmark_input::dataset::Dataset;

use crate::cli::launch::hosts::Machine;
use crate::launch::job::launcher::LaunchConfig;
use crate::output::message::print_error;

/// Returns the data with absolute paths: ranks on other hosts start in another folder.
pub(super) fn absolute(data: DataFiles) -> anyhow::Result<DataFiles> {
    data.try_map(|file| Ok(path::absolute(file)?))
}

/// Rejects files that contain no training data, and missing files if ranks run on this machine, of which a dry run only
/// warns. The doctor reports files that other hosts lack before a job starts. `option` is the option of `data`.
pub(super) fn check(
    option: &str,
    data: &DataFiles,
    size: SampleSize,
    machine: &Machine,
    launch: &LaunchConfig,
) -> anyhow::Result<()> {
    if let Some(missing) = data.paths().iter().find(|path| !path.exists()) {
        return check_here(
            machine,
            launch,
            format!("{option}: {} does not exist on this machine: correct the path", missing.display()),
        );
    }
    let DataSource::Read(paths) = data.source() else { return Ok(()) };
    if let Some(result) = paths.iter().find(|path| path.join(MANIFEST).exists()) {
        let what = format!("{option}: {} is a result folder of ringmark", result.display());
        return Err(usage(anyhow!("{what}: pass {}", expected(size))));
    }
    // Listing the images of a large folder takes long, and the ranks report what they find in it.
    match matches!(size, SampleSize::Tokens(_)) || paths.iter().all(|path| path.is_file()) {
        true => Dataset::open_samples(paths, size, ImageLimits::default())
            .map(drop)
            .context(option.to_owned())
            .map_err(usage),
        false => Ok(()),
    }
}

/// Rejects something that is `missing` on this machine if ranks run here; a dry run warns of it.
pub(super) fn check_here(machine: &Machine, launch: &LaunchConfig, missing: String) -> anyhow::Result<()> {
    match (machine.is_first_host(launch), launch.dry_run) {
        (false, _) => Ok(()),
        (true, true) => {
            print_error(&format!("warning: {missing}"));
            Ok(())
        }
        (true, false) => Err(usage(anyhow!(missing))),
    }
}

fn expected(size: SampleSize) -> &'static str {
    match size {
        SampleSize::Pixels(_) => ".rec files, a folder of images by class, or files of MNIST or CIFAR",
        SampleSize::Tokens(_) => "token files (.bin)",
    }
}

//! Environment of runs as text: times, hosts, devices, versions, variables and NCCL's choices. Options are in
//! [`crate::read::analyze::training::grouping::settings`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use ringmark_core::dimension::{Bytes, DeviceKind, Seconds};
use ringmark_core::host::{Environment, RankPlace};
use ringmark_core::number_text::gigabytes;

/// Distinct values by name; an environment variable keeps its name.
pub type EnvironmentText = BTreeMap<String, BTreeSet<String>>;

/// Name for the algorithm, protocol and channels that NCCL chose.
pub const NCCL_CHOSE: &str = "NCCL chose";

/// Name of the hosts.
pub const HOST: &str = "host";

/// Name of the devices' models.
pub const DEVICE_NAME: &str = "device name";

/// Name of ringmark's version.
pub const WORKER: &str = "ringmark-worker";

/// Name of libtorch's version.
pub const LIBTORCH: &str = "libtorch";

/// Name of MPI's version.
pub const MPI: &str = "MPI";

/// Name of NCCL's version.
pub const NCCL: &str = "NCCL";

/// Name of the driver's version.
pub const DRIVER: &str = "NVIDIA driver";

/// Value for a missing version.
pub const NONE: &str = "none";

/// Formats a time as UTC: `2026-11-21 19:17:43`. Returns `None` before 1970 and from the year 10000 on.
pub fn moment(time: Seconds) -> Option<String> {
    // The year 10000, which humantime does not format.
    const END: u64 = 253_402_300_800;
    let since = Duration::try_from_secs_f64(time.0).ok().filter(|since| since.as_secs() < END)?;
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH.checked_add(since)?).to_string();
    Some(text.replace('T', " ").replace('Z', ""))
}

/// Adds hosts, devices, threads and bindings of the ranks.
pub fn add_ranks<'a>(all: &mut EnvironmentText, ranks: impl IntoIterator<Item = &'a RankPlace>) {
    for rank in ranks {
        add(all, HOST, &rank.host);
        add(all, DEVICE_NAME, &rank.device_name);
        add(all, "threads per rank", &rank.threads.to_string());
        add(all, "binding", &rank.binding.as_ref().map(ToString::to_string).unwrap_or_default());
    }
}

/// Adds versions, hardware and variables, as recorded by rank 0.
pub fn add_environment(all: &mut EnvironmentText, environment: &Environment) {
    let absent = NONE.to_owned();
    for (name, word) in [
        (WORKER, &environment.ringmark_version),
        (LIBTORCH, &environment.libtorch_version),
        (MPI, &environment.mpi_version),
        (NCCL, environment.nccl_version.as_ref().unwrap_or(&absent)),
        (DRIVER, environment.driver_version.as_ref().unwrap_or(&absent)),
        ("system", &environment.system),
        ("processor", &environment.processor),
        ("instruction sets", &environment.instruction_sets.join(", ")),
        ("cores", &environment.cores.to_string()),
        ("memory", &gigabytes(environment.memory)),
        ("topology", &environment.topology.join(" | ")),
    ] {
        add(all, name, word);
    }
    environment.variables.iter().for_each(|(name, value)| add(all, name, value));
}

/// Adds NCCL's choices from the lines `lines`.
pub fn add_nccl(all: &mut EnvironmentText, lines: &[String]) {
    nccl_choices(lines).for_each(|choice| add(all, NCCL_CHOSE, choice));
}

/// Returns algorithm, protocol and channels of each line: `Ring, Simple, 24 channels` from
/// `AllReduce of 67108864 bytes: Ring, Simple, 24 channels`.
pub fn nccl_choices(lines: &[String]) -> impl Iterator<Item = &str> {
    lines.iter().filter_map(|line| Some(line.split_once(" bytes: ")?.1))
}

/// Adds a value unless it is empty.
pub fn add(all: &mut EnvironmentText, name: &str, word: &str) {
    if !word.is_empty() {
        all.entry(name.to_owned()).or_default().insert(word.to_owned());
    }
}

/// Describes the sizes of gradient buckets.
pub fn buckets(sizes: &[Bytes]) -> String {
    let megabytes = |size: &Bytes| format!("{:.1}", size.0 as f64 / 1e6);
    match sizes {
        [] => String::new(),
        [one] => format!("one of {} MB", megabytes(one)),
        several if several.len() <= 6 => format!("{} MB", several.iter().map(megabytes).collect::<Vec<_>>().join(", ")),
        many => format!(
            "{}, the largest of {} MB",
            many.len(),
            many.iter().max_by_key(|size| size.0).map(megabytes).unwrap_or_default()
        ),
    }
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

/// Returns the versions of worker, libtorch and NCCL as text.
pub fn software(environment: &Environment) -> String {
    let versions = [
        ("ringmark-worker", Some(&environment.ringmark_version)),
        ("libtorch", Some(&environment.libtorch_version)),
        (NCCL, environment.nccl_version.as_ref()),
    ];
    let version = |(name, version): &(&str, Option<&String>)| {
        Some(format!("{name} {}", version.filter(|version| !version.is_empty())?))
    };
    versions.iter().filter_map(version).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_times_are_none() {
        assert_eq!(moment(Seconds(1.7e9)).as_deref(), Some("2023-11-14 22:13:20"));
        assert_eq!(moment(Seconds(253_402_300_799.0)).as_deref(), Some("9999-12-31 23:59:59"));
        for wrong in [f64::NAN, -1.0, 253_402_300_800.0, 1e300, f64::INFINITY] {
            assert_eq!(moment(Seconds(wrong)), None);
        }
    }

    #[test]
    fn buckets_are_summarized() {
        let described = |sizes: &[u64]| buckets(&sizes.iter().map(|size| Bytes(*size)).collect::<Vec<_>>());
        assert_eq!(described(&[102_228_128]), "one of 102.2 MB");
        assert_eq!(described(&[26_046_368, 24_178_944]), "26.0, 24.2 MB");
        assert_eq!(described(&[4000; 161]), "161, the largest of 0.0 MB");
        assert_eq!(described(&[]), "");
    }
}

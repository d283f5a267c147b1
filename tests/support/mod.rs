//! Support shared by the suites: sandboxes, generated records, runs of the real worker, simulated hosts, virtual
//! GPUs, a browser, a pool of core tokens.

pub mod bandwidth;
pub mod browser;
pub mod built_worker;
pub mod cluster;
pub mod cluster_sweep;
pub mod core_tokens;
pub mod diff;
pub mod extract;
pub mod faulty_disk;
#[path = "../fuzz/targets.rs"]
pub mod fuzz_targets;
pub mod golden;
pub mod images;
pub mod imports;
pub mod interrupted_sweep;
pub mod memory_group;
pub mod model_cluster;
pub mod other_readers;
pub mod predictions;
pub mod prerequisite;
pub mod report;
pub mod runs;
pub mod safetensors;
pub mod sandbox;
pub mod scheduler;
pub mod schema;
pub mod scores;
pub mod shard_cluster;
pub mod strategy_cluster;
pub mod stub_driver;
pub mod temporary_folder;
pub mod valid_worker;
pub mod virtual_gpu;
pub mod virtual_time;
pub mod worker_run;

use std::fs;
use std::path::Path;

use nix::unistd::Pid;

pub use built_worker::worker;

/// Returns the processes with `folder` in their command line, and that command line, words separated by NUL.
pub fn processes_of(folder: &Path) -> Vec<(Pid, String)> {
    let mark = folder.to_str().expect("a plain name");
    let process = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((Pid::from_raw(number), fs::read_to_string(entry.path().join("cmdline")).ok()?))
    };
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    processes.filter_map(process).filter(|(_, line)| line.contains(mark)).collect()
}

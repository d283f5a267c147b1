//! Shared support of the suites: sandboxes, made-up records, simulated hosts, a browser, a pool of cores.

pub mod browser;
pub mod golden;
pub mod kv_store_cluster;
pub mod runs;
pub mod safetensors;
pub mod sandbox;
pub mod scheduler;
pub mod simulated_cluster;
pub mod sound_worker;
pub mod turn;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::Pid;

/// The program `ringmark-worker`, built once, as this test binary is: same profile, same target folder.
///
/// It is of another package than these tests, so cargo does not build it for them. The whole workspace is named because
/// one package alone would have its dependencies built again, with fewer features, as would programs without the tests.
pub fn worker() -> PathBuf {
    static WORKER: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder = Path::new(env!("CARGO_BIN_EXE_ringmark")).parent().expect("a program lies in a folder");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--bins", "--tests", "--target-dir"]);
        cargo.arg(folder.parent().expect("the profile's folder lies in the target folder"));
        // In the repository, where .cargo/config.toml says where libtorch is.
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        let output = cargo.output().expect("cargo starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        keep_folder_of_jobs();
        folder.join("ringmark-worker")
    };
    WORKER.get_or_init(build).clone()
}

/// Open MPI removes the folder of this host's jobs, if it is empty, when one ends, and another that begins just then fails.
fn keep_folder_of_jobs() {
    let host = nix::unistd::gethostname().expect("a host has a name").into_string().expect("a plain name");
    let host = host.split('.').next().unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("ompi.{host}.{}", nix::unistd::getuid()));
    fs::create_dir_all(folder.join("kept")).expect("a folder");
}

/// Processes with `folder` in their command line, and that command line, words separated by NUL.
pub fn processes_of(folder: &Path) -> Vec<(Pid, String)> {
    let mark = folder.to_str().expect("a plain name");
    let process = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((Pid::from_raw(number), fs::read_to_string(entry.path().join("cmdline")).ok()?))
    };
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    processes.filter_map(process).filter(|(_, line)| line.contains(mark)).collect()
}

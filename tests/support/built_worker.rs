//! The `ringmark-worker` program started by tests. It belongs to another package, so cargo does not build it for
//! them; scripts/test.sh does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use nix::unistd;

/// Returns the worker in this test binary's profile and target folder.
///
/// # Panics
///
/// If it is missing or older than its sources.
pub fn worker() -> PathBuf {
    static WORKER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || {
        let folder = Path::new(env!("CARGO_BIN_EXE_ringmark")).parent().expect("a program lies in a folder");
        let program = folder.join("ringmark-worker");
        // The whole workspace with its tests: a single package would rebuild its dependencies with fewer features.
        let release = if folder.ends_with("release") { " --release" } else { "" };
        check(&program).map_err(|error| {
            format!("{error}: run `cargo build --workspace --bins --tests{release}`, or scripts/test.sh")
        })?;
        keep_folder_of_jobs();
        Ok(program)
    };
    WORKER.get_or_init(find).clone().unwrap_or_else(|error| panic!("{error}"))
}

/// Checks that cargo built this worker from the current sources. `Err` is the reason if not.
pub fn check(program: &Path) -> Result<(), String> {
    let built = changed(program).ok_or_else(|| format!("{} is missing", program.display()))?;
    // Written by cargo: `PROGRAM: SOURCE SOURCE..`, for all packages of the workspace.
    let list = program.with_extension("d");
    let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let text = text.split_once(": ").map_or("", |(_, sources)| sources.trim_end()).replace("\\ ", "\0");
    let sources: Vec<PathBuf> = text.split(' ').map(|source| source.replace('\0', " ").into()).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/worker/main.rs");
    if !sources.contains(&root) {
        return Err(format!("{} was not built from {}", program.display(), root.display()));
    }
    match sources.iter().find(|source| changed(source).is_none_or(|changed| changed > built)) {
        Some(source) => Err(format!("{} is older than {}", program.display(), source.display())),
        None => Ok(()),
    }
}

fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|file| file.modified()).ok()
}

/// When a job ends, Open MPI removes the folder of this host's jobs if it is empty, and another job that starts at
/// that moment fails. A file in the folder prevents this.
fn keep_folder_of_jobs() {
    let host = unistd::gethostname().expect("a host has a name").into_string().expect("a plain name");
    let host = host.split('.').next().unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("ompi.{host}.{}", unistd::getuid()));
    fs::create_dir_all(folder.join("kept")).expect("a folder");
}

#[test]
fn a_worker_older_than_a_source_is_refused() {
    use std::time::Duration;
    let folder = tempfile::tempdir().expect("a folder");
    let (program, source) = (folder.path().join("ringmark-worker"), folder.path().join("a source.rs"));
    let file = |path: &Path, text: &str, age: u64| {
        fs::write(path, text).expect("written");
        let file = fs::File::options().append(true).open(path).expect("opened");
        file.set_modified(SystemTime::now() + Duration::from_secs(3600 - age)).expect("set");
    };
    let refusal = || check(&program).expect_err("refused").replace(&folder.path().display().to_string(), "DIR");
    assert_eq!(refusal(), "DIR/ringmark-worker is missing");
    file(&program, "", 1);
    assert_eq!(refusal(), "DIR/ringmark-worker.d: No such file or directory (os error 2)");
    let listed = source.display().to_string().replace(' ', "\\ ");
    file(&program.with_extension("d"), &format!("{}: {listed}\n", program.display()), 0);
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/worker/main.rs");
    assert_eq!(refusal(), format!("DIR/ringmark-worker was not built from {}", main.display()));
    file(&program.with_extension("d"), &format!("{}: {} {listed}\n", program.display(), main.display()), 0);
    assert_eq!(refusal(), "DIR/ringmark-worker is older than DIR/a source.rs");
    file(&source, "", 0);
    assert_eq!(refusal(), "DIR/ringmark-worker is older than DIR/a source.rs");
    file(&source, "", 1);
    file(&program, "", 1);
    file(&source, "", 2);
    assert_eq!(check(&program), Ok(()));
}

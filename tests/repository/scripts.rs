//! Scripts for developers that measure with simulated ranks or synthetic results.

use std::path::Path;
use std::process::Command;

use crate::support::prerequisite::not_tested;
use crate::support::sandbox::{ringmark, succeeds, words};

/// Runs a Python script in `scripts/dev`, and returns its output, or `None` without Python.
fn output_of(script: &str, arguments: &str) -> Option<String> {
    let mut command = Command::new("python3");
    if !command.arg("--version").output().is_ok_and(|output| output.status.success()) {
        not_tested("there is no python3");
        return None;
    }
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/dev").join(script)).args(words(arguments));
    let stdout = succeeds(&mut command);
    Some(stdout)
}

/// Measures the launcher with 16 simulated ranks, of which one stops.
fn measure_launcher(option: &str, name: &str) {
    let program = env!("CARGO_BIN_EXE_ringmark");
    let arguments = format!("--ranks 16 --seconds 2 --stall-timeout 20 --program {program} {option}");
    let Some(table) = output_of("measure_launcher.py", &arguments) else { return };
    let cells: Vec<&str> = table.lines().last().expect("a row").split('|').map(str::trim).collect();
    assert_eq!((cells[1], cells[8]), (name, "16"), "{table}");
}

#[test]
fn launcher_is_measured_with_simulated_ranks() {
    measure_launcher("", "16");
}

#[test]
fn launcher_is_measured_with_shared_connections() {
    measure_launcher("--shared", "16, shared");
}

#[test]
fn synthetic_result_passes_every_check() {
    let folder = tempfile::tempdir().expect("a folder");
    let result = folder.path().join("result");
    let Some(_) = output_of("make_large_result.py", &format!("1,16 2 30 {}", result.display())) else { return };
    succeeds(ringmark("check").arg(&result));
    let table = succeeds(ringmark("extract").arg(&result));
    assert!(table.contains("2n8g     16   2/2"), "{table}");
}

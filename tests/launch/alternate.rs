//! Tests of `ringmark alternate` with real sweeps.

use std::path::Path;
use std::process::Command;

use crate::support::sandbox::{Sandbox, fails, refused, ringmark, succeeds};

/// Prints four lines of iterations of 10 ms, then exits with status 3 if the file `fail` exists.
const PROGRAM: &str = "#!/bin/sh
for i in 1 2 3 4; do echo \"step $i took 10 ms\"; sleep 0.01; done
if [ -e \"$(dirname \"$0\")/fail\" ]; then exit 3; fi
";

/// Returns `ringmark alternate` of a sweep and a program, two rounds.
fn command(sandbox: &Sandbox, program: &Path, options: &[&str]) -> Command {
    let worker = sandbox.worker().display().to_string();
    let common =
        format!("--no-doctor --cases 1n1g --model lenet --batch-size 2 --warmup 1 --device cpu --worker {worker}");
    let theirs = format!("run {common} --lines '(?P<ms>[0-9]+) ms' -- {}", program.display());
    let mut command = ringmark("alternate --runs 2 --names own,theirs --out");
    command.arg(sandbox.path("out")).arg(format!("sweep {common} --iters 3 --cooldown 0")).arg(theirs);
    command.args(options);
    command
}

#[test]
fn sweeps_alternate_resume_and_are_compared() {
    let sandbox = Sandbox::real();
    let program = sandbox.write_program("train", PROGRAM);
    let fail = program.with_file_name("fail");
    std::fs::write(&fail, "").expect("a file");
    let failed = fails(&mut command(&sandbox, &program, &[]));
    let expected =
        format!("theirs failed: exit status: 1 in round 1 of 2; output: {}", sandbox.path("out/theirs.log").display());
    assert!(failed.contains(&expected) && failed.contains("--resume"), "{failed}");
    let refusal = refused(&mut command(&sandbox, &program, &[]), 2);
    assert!(refusal.contains("already contains results: add --resume"), "{refusal}");

    std::fs::remove_file(&fail).expect("removed");
    let done = succeeds(&mut command(&sandbox, &program, &["--resume"]));
    let rounds: Vec<&str> = done.lines().filter(|line| line.starts_with("round ")).collect();
    let expected = ["round 1 of 2: own", "round 1 of 2: theirs", "round 2 of 2: theirs", "round 2 of 2: own"];
    assert_eq!(rounds, expected);
    assert!(done.contains("  1n1g run 2 of 2: 200.0 images/s"), "{done}");
    let compared = format!("BASE  {}, 2 runs", sandbox.path("out/own").display());
    assert!(done.contains(&compared) && done.contains("program: ringmark -> "), "{done}");
}

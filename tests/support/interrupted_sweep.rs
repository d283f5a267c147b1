//! Sweeps of three runs that are interrupted and resumed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use ringmark_core::manifest::{Manifest, RunState};

use crate::support::sandbox::{Sandbox, ringmark, run, wait_until, words};

/// A hook that hangs in the middle of the second run, the first time.
pub const HANG_IN_SECOND: &str = "
if [ $name = 1n1g_2 ] && [ ! -e \"$folder/hung\" ]; then touch \"$folder/hung\"; sleep 1000; fi
";

pub const OPTIONS: &str = "--cases 1n1g --runs 3";

impl Sandbox {
    pub fn states(&self) -> Vec<RunState> {
        let manifest = Manifest::find(&self.path("out")).expect("readable").expect("present");
        manifest.runs.into_iter().map(|run| run.state).collect()
    }

    pub fn files(&self, case: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.path("out").join(case)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name")).collect()
    }

    pub fn start_hanging(&self) -> Child {
        self.hook(HANG_IN_SECOND);
        let error = File::create(self.path("stderr")).expect("created");
        let child = self.short_sweep(OPTIONS).stdout(Stdio::null()).stderr(error).spawn().expect("starts");
        wait_until("the second run begins", || self.path("hung").exists());
        child
    }

    /// Returns exit status and standard error of `ringmark extract` for the folder, with results elsewhere.
    pub fn extract(&self) -> (Option<i32>, String) {
        let (status, _, stderr) =
            run(ringmark("extract").arg(self.path("out")).arg("--out").arg(self.path("extracted")));
        (status, stderr)
    }
}

pub fn names(names: &str) -> BTreeSet<String> {
    words(names).map(str::to_owned).collect()
}

/// Checks for exit status 0 without messages, and returns the standard output.
pub fn succeeds_silently(command: &mut Command) -> String {
    let (status, stdout, stderr) = run(command);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    stdout
}

/// Returns the command from the last line of a sweep.
pub fn resume_command(stderr: &str) -> Command {
    let line = stderr.trim_end().lines().last().expect("a line");
    let (_, line) = line.split_once("resume with: ").expect(stderr);
    let words = shell_words::split(line).expect("words of a shell");
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

pub const THREE_RUNS: &str = "rn50_b8_fp32_1.jsonl rn50_b8_fp32_1.log rn50_b8_fp32_2.jsonl rn50_b8_fp32_2.log \
                          rn50_b8_fp32_3.jsonl rn50_b8_fp32_3.log";

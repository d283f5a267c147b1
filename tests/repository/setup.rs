//! Build of libtorch chosen by `scripts/setup.sh --which` for different machines, simulated by a stub of the driver.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::sandbox::{refused, run, words};
use crate::support::stub_driver;

/// A folder in which wheels are installed or will be installed.
struct Machine {
    folder: TempDir,
    path: String,
}

impl Machine {
    fn new() -> Machine {
        let path = std::env::var("PATH").expect("a path");
        Machine { folder: tempfile::tempdir().expect("a folder"), path }
    }

    /// Creates a folder with wheels from `index`, as setup.sh records it.
    fn with(set: &str, index: &str) -> Machine {
        let machine = Machine::new();
        let folder = machine.folder.path().join("venv");
        fs::create_dir(&folder).expect("made");
        fs::write(folder.join("ringmark-wheels"), format!("{set} {index}\n")).expect("written");
        machine
    }

    /// Lets `uname` report aarch64.
    fn is_aarch64(&mut self) {
        let program = self.folder.path().join("uname");
        fs::write(&program, "#!/bin/sh\necho aarch64\n").expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
        self.path = format!("{}:{}", self.folder.path().display(), self.path);
    }

    /// Returns `setup.sh --which` with these variables, some of which configure the stub.
    fn which(&self, variables: &str) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup.sh"));
        command.arg("--libtorch").arg(self.folder.path()).arg("--which");
        for variable in ["LIBTORCH", "RINGMARK_TORCH", "RINGMARK_TORCH_INDEX", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(variable);
        }
        command.env("LD_LIBRARY_PATH", stub_driver::folder()).env("PATH", &self.path);
        command.envs(words(variables).filter_map(|variable| variable.split_once('=')));
        command
    }

    fn chooses(&self, variables: &str, build: &str, reason: &str) {
        let (status, stdout, stderr) = run(&mut self.which(variables));
        assert_eq!((status, stdout), (Some(0), format!("{build}: {reason}\n")), "{variables}: {stderr}");
    }

    fn refuses(&self, variables: &str, reasons: &[&str]) {
        let output_text = refused(&mut self.which(variables), 1);
        assert!(reasons.iter().all(|reason| output_text.contains(reason)), "{variables}: {output_text}");
    }
}

#[test]
fn driver_and_gpus_select_the_cuda_build() {
    let machine = Machine::new();
    let both = [
        ("STUB_VERSION=13000 STUB_CAPABILITIES=90", "cu130", "driver CUDA 13.0, compute capability 9.0"),
        ("STUB_VERSION=13010 STUB_CAPABILITIES=75", "cu130", "driver CUDA 13.1, compute capability 7.5"),
        ("STUB_VERSION=13000 STUB_CAPABILITIES=70", "cu126", "driver CUDA 13.0, compute capability 7.0"),
        ("STUB_VERSION=13000 STUB_CAPABILITIES=90,70,90", "cu126", "driver CUDA 13.0, compute capability 7.0 9.0"),
        ("STUB_VERSION=12080 STUB_CAPABILITIES=90", "cu126", "driver CUDA 12.8, compute capability 9.0"),
        ("STUB_VERSION=12000 STUB_CAPABILITIES=80,80", "cu126", "driver CUDA 12.0, compute capability 8.0"),
        (
            "STUB_VERSION=12080 STUB_CAPABILITIES=80 RINGMARK_TORCH=cuda",
            "cu126",
            "driver CUDA 12.8, compute capability 8.0",
        ),
    ];
    for (variables, build, reason) in both {
        machine.chooses(variables, build, reason);
    }
}

#[test]
fn unsupported_machine_gets_build_requirements() {
    let machine = Machine::new();
    for (variables, what) in [
        ("STUB_VERSION=11080", "driver CUDA 11.8, compute capability 9.0"),
        ("STUB_VERSION=12080 STUB_CAPABILITIES=120", "driver CUDA 12.8, compute capability 12.0"),
        ("STUB_CAPABILITIES=70,100", "driver CUDA 13.0, compute capability 7.0 10.0"),
    ] {
        let needs = "cu130 needs a driver of CUDA 13.0 (580) or newer and compute capability 7.5";
        machine.refuses(variables, &[what, needs, "CUDA 12.0 (525)", "Update the driver", "RINGMARK_TORCH=cpu"]);
    }
}

#[test]
fn failing_driver_does_not_install_the_cpu_build() {
    let machine = Machine::new();
    for variables in ["STUB_INIT=999", "STUB_INIT=999 RINGMARK_TORCH=cuda"] {
        machine.refuses(variables, &["cuInit", "CUDA error 999 (CUDA_ERROR_UNKNOWN)", "RINGMARK_TORCH=cpu"]);
    }
    machine.refuses("STUB_INIT=803", &["CUDA error 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"]);
    machine.chooses("STUB_INIT=999 RINGMARK_TORCH=cpu", "cpu", "requested by RINGMARK_TORCH=cpu");
    machine.chooses("STUB_INIT=999 RINGMARK_TORCH=cu126", "cu126", "requested by RINGMARK_TORCH=cu126");
    // The installed build is kept, with a message.
    let reason = "already installed, but cuInit of the NVIDIA driver failed: CUDA error 999 (CUDA_ERROR_UNKNOWN)";
    Machine::with("cpu", "default").chooses("STUB_INIT=999", "cpu", reason);
}

#[test]
fn machine_without_gpu_gets_cpu_build_and_hint() {
    let machine = Machine::new();
    let fix = "if other hosts have GPUs, run RINGMARK_TORCH=cuda scripts/setup.sh";
    for (variables, why) in [
        ("STUB_CAPABILITIES=", "cuInit of the NVIDIA driver failed: CUDA error 100 (CUDA_ERROR_NO_DEVICE)"),
        ("STUB_INIT=34", "cuInit of the NVIDIA driver failed: CUDA error 34 (CUDA_ERROR_STUB_LIBRARY)"),
    ] {
        machine.chooses(variables, "cpu", &format!("{why}; {fix}"));
    }
    let requested = "RINGMARK_TORCH=cuda requests CUDA, and cuInit of the NVIDIA driver failed: CUDA error 100 \
                 (CUDA_ERROR_NO_DEVICE)";
    machine.chooses("STUB_CAPABILITIES= RINGMARK_TORCH=cuda", "cu130", requested);
}

#[test]
fn suitable_build_is_kept_and_unsuitable_replaced() {
    let cu126 = "https://download.pytorch.org/whl/cu126";
    let machine = "driver CUDA 13.0, compute capability";
    Machine::with("cuda", cu126).chooses("STUB_CAPABILITIES=90", "cu126", &format!("{machine} 9.0"));
    Machine::with("cuda", cu126).chooses("STUB_CAPABILITIES=100", "cu130", &format!("{machine} 10.0"));
    Machine::with("cuda", "default").chooses("STUB_CAPABILITIES=70", "cu126", &format!("{machine} 7.0"));
    Machine::with("cpu", "default").chooses("STUB_CAPABILITIES=90", "cu130", &format!("{machine} 9.0"));
    // The user's own index is left unchanged.
    let own = "https://wheels.example.org/cu128";
    Machine::with("cuda", own).chooses("STUB_CAPABILITIES=120", "given", "chosen by RINGMARK_TORCH_INDEX");
}

#[test]
fn unknown_build_is_rejected() {
    Machine::new().refuses("RINGMARK_TORCH=cu128", &["RINGMARK_TORCH=cu128: use cpu, cuda, cu130 or cu126"]);
}

/// The wheels of aarch64 lack kernels for Turing, and those for CUDA 12.6 are not on its index.
#[test]
fn aarch64_gets_its_own_builds() {
    let mut machine = Machine::new();
    machine.is_aarch64();
    let reason = "driver CUDA 13.0, compute capability 9.0";
    machine.chooses("STUB_VERSION=13000 STUB_CAPABILITIES=90", "cu130", reason);
    let needs = "cu130 needs a driver of CUDA 13.0 (580) or newer and compute capability 8.0 to 12.9";
    machine.refuses("STUB_VERSION=13000 STUB_CAPABILITIES=75", &["compute capability 7.5", needs]);
    machine.refuses("RINGMARK_TORCH=cu126", &["RINGMARK_TORCH=cu126: use cpu, cuda or cu130\n"]);
}

#[test]
fn build_shows_only_progress_and_errors() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/run_test.sh");
    let cargo = concat!(
        r"   Compiling a v1.0.0\n    Building [==>   ] 99/240: a, b \r    Building [===>  ] 101/240: b \r",
        r"    Building [===>  ] 102/240: b \rerror: could not compile `b`\n    Finished `release` profile in 1s\n"
    );
    let progress = format!("source <(sed -n '/^progress()/,/^}}/p' {})", script.display());
    let shown = |others: u8| {
        let script = format!("{progress}; printf '{cargo}' | progress {others}");
        run(Command::new("bash").args(["-c", &script]))
    };
    let line = "building: 101 of 240 crates\n";
    assert_eq!(shown(1), (Some(0), format!("{line}error: could not compile `b`\n"), String::new()));
    assert_eq!(shown(0), (Some(0), line.to_owned(), String::new()));
}

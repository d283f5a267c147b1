//! How many ranks a host takes where nobody said it: one a GPU, or one a core where there is none, as on this machine. A
//! host is asked by the ssh that the doctor and mpirun use.

use std::time::Duration;

use anyhow::{bail, ensure};
use ringmark_core::dimension::DeviceChoice;

use crate::launch::cluster::hosts::{Host, count_gpus};
use crate::launch::cluster::remote::Remote;
use crate::launch::cluster::ssh::SshOptions;
use crate::launch::cluster::ssh_failure;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{PROGRAMS, side_by_side};

/// What a host says of itself.
const SCRIPT: &str = "nvidia-smi -L 2>/dev/null; echo \"cores=$(nproc)\"";

/// ssh's own limit, and some for nvidia-smi.
const LIMIT: Duration = Duration::from_secs(14);

/// Whom to ask, and how.
#[derive(Debug)]
pub struct SlotsRequest<'a> {
    /// What the ranks are to use; without GPUs where it is the CPU.
    pub device: DeviceChoice,
    /// What this machine takes.
    pub here: u32,
    /// How others are reached.
    pub ssh: &'a SshOptions,
    /// Where this program runs.
    pub environment: &'a LaunchEnvironment,
}

impl SlotsRequest<'_> {
    /// Asks many hosts at a time for their number of ranks. An error names every host without an answer.
    pub fn ask(&self, names: &[&str]) -> anyhow::Result<Vec<u32>> {
        let answers = side_by_side(PROGRAMS, names, |name| self.ask_one(name));
        let (found, failed): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        let failed: Vec<String> =
            failed.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok(found.into_iter().flatten().collect())
    }

    /// Number of GPUs of a host that is not this machine; `None` if it does not answer.
    pub fn gpus_of(&self, name: &str) -> Option<u32> {
        let answer = self.remote(name).run(&["sh", "-c", SCRIPT], b"", LIMIT, &Interrupt::never()).ok()?;
        slots_in(&answer.stdout, self.device).map(|_| count_gpus(&answer.stdout, None))
    }

    fn remote(&self, name: &str) -> Remote {
        Remote::new(&Host { name: name.to_owned(), slots: 1 }, self.ssh, self.environment)
    }

    fn ask_one(&self, name: &str) -> anyhow::Result<u32> {
        let remote = self.remote(name);
        if remote.is_here() {
            return Ok(self.here);
        }
        let answer = remote.run(&["sh", "-c", SCRIPT], b"", LIMIT, &Interrupt::never())?;
        if let Some(slots) = slots_in(&answer.stdout, self.device) {
            return Ok(slots);
        }
        if answer.status.is_some_and(|status| status.success()) {
            bail!("host {name:?} has no number of slots, and does not say how many cores it has: write {name}:8");
        }
        let why = ssh_failure::explain(&answer, name, self.ssh.port);
        bail!("host {name:?} has no number of slots, and cannot be asked: {}: {}, or write {name}:8", why.what, why.fix)
    }
}

/// Of the script's output; a shell may have greeted before it.
fn slots_in(output: &str, device: DeviceChoice) -> Option<u32> {
    let cores = output.lines().find_map(|line| line.strip_prefix("cores="))?.parse().ok().filter(|cores| *cores > 0)?;
    match count_gpus(output, None) {
        gpus if gpus > 0 && device != DeviceChoice::Cpu => Some(gpus),
        _ => Some(cores),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_host_takes_a_rank_a_gpu_or_else_a_core() {
        let gpus = "Welcome\nGPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)\ncores=96\n";
        for (output, device, slots) in [
            (gpus, DeviceChoice::Auto, Some(2)),
            (gpus, DeviceChoice::Cpu, Some(96)),
            ("NVIDIA-SMI has failed\ncores=4\n", DeviceChoice::Auto, Some(4)),
            ("cores=\n", DeviceChoice::Auto, None),
            ("", DeviceChoice::Auto, None),
        ] {
            assert_eq!(slots_in(output, device), slots, "{output}");
        }
    }

    #[test]
    fn this_machine_is_not_asked_and_a_host_that_cannot_be_is_named() {
        let environment = LaunchEnvironment { host_name: "a".to_owned(), ..LaunchEnvironment::default() };
        // In the place of ssh, which would look for the host.
        let arguments = ["plm_rsh_agent", "/bin/false"].map(str::to_owned);
        let ssh = SshOptions::new(22, &arguments, &environment);
        let request = SlotsRequest { device: DeviceChoice::Cpu, here: 6, ssh: &ssh, environment: &environment };
        assert_eq!(request.ask(&["localhost", "a"]).expect("known"), [6, 6]);
        let error = request.ask(&["localhost", "192.0.2.8"]).expect_err("nobody there").to_string();
        expect![[r#"host "192.0.2.8" has no number of slots, and cannot be asked: a command cannot be run there (exit status: 1): see that `ssh -p 22 192.0.2.8 sh -c true` works: it needs a shell, or write 192.0.2.8:8"#]].assert_eq(&error);
    }
}

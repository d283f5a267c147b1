//! Determines the default number of ranks of a host: one for each GPU, or one for each core if there is none. Remote
//! hosts are queried over the same ssh as the doctor and mpirun use.

use std::process::Command;
use std::time::Duration;

use anyhow::bail;
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::host::host_list::compact;
use ringmark_core::number_text::count;
use ringmark_core::untrusted_text::printable;

use crate::launch::cluster::hosts::{Host, compact_with_slots};
use crate::launch::cluster::remote::{Remote, SshOptions};
use crate::launch::cluster::ssh_failure;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{MAX_PROGRAMS, in_parallel};

/// `nproc` counts hardware threads; cores with several of them are listed once for each. As in
/// [`ringmark_core::host::processors::Topology`], a single core counts its hardware threads.
const SCRIPT: &str = "nvidia-smi -L 2>/dev/null; \
    lists() { cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null; }; \
    threads=$(lists | wc -l); cores=$(lists | sort -u | wc -l); \
    [ \"$cores\" -gt 1 ] || { threads=1; cores=1; }; echo \"cores=$(($(nproc) * cores / threads))\"";

/// Timeout, which includes ssh's own and some time for nvidia-smi.
const QUERY_TIMEOUT: Duration = Duration::from_secs(14);

/// Processors of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processors {
    /// GPUs, as `nvidia-smi -L` lists them.
    pub gpus: u32,
    /// Name of the first GPU.
    pub gpu_name: Option<String>,
    /// Cores, each counted once however many hardware threads it has.
    pub cores: u32,
}

impl Processors {
    /// Counts the processors of this machine; GPUs only if `device` allows one.
    pub fn for_this_machine(device: DeviceChoice, environment: &LaunchEnvironment) -> Processors {
        let listing = if device == DeviceChoice::Cpu { String::new() } else { list_gpus() };
        let gpus = count_gpus(&listing, environment.visible_devices.as_deref());
        Processors { gpus, gpu_name: gpu_name(&listing), cores: environment.cores }
    }

    /// Parses the output of [`SCRIPT`]; a shell may have printed a greeting before it.
    fn parse(output: &str) -> Option<Processors> {
        let cores = output.lines().find_map(|line| line.strip_prefix("cores="))?.parse().ok();
        let (gpus, gpu_name) = (count_gpus(output, None), gpu_name(output));
        Some(Processors { gpus, gpu_name, cores: cores.filter(|cores| *cores > 0)? })
    }

    /// Returns the number of ranks: one for each GPU, or one for each core if there is none or `device` is the CPU.
    pub fn slots(&self, device: DeviceChoice) -> u32 {
        if self.gpus > 0 && device != DeviceChoice::Cpu { self.gpus } else { self.cores }
    }
}

/// Query for the processors of hosts.
#[derive(Debug)]
pub struct ProcessorsRequest<'a> {
    /// Processors of this machine, which is not queried.
    pub here: &'a Processors,
    /// Options for ssh to the other hosts.
    pub ssh: &'a SshOptions,
    /// Environment of this program.
    pub environment: &'a LaunchEnvironment,
}

impl ProcessorsRequest<'_> {
    /// Queries many hosts in parallel. The error names the hosts that did not reply, and has the reason of the first.
    pub fn query(&self, names: &[&str]) -> anyhow::Result<Vec<Processors>> {
        let mut found = Vec::new();
        let mut failed = Vec::new();
        for (name, answer) in names.iter().copied().zip(self.query_each(names)) {
            match answer {
                Ok(processors) => found.push(processors),
                Err(error) => failed.push((name, error)),
            }
        }
        match &failed[..] {
            [] => Ok(found),
            [(_, error)] => bail!("{error:#}"),
            [(_, error), ..] => bail!(
                "{} without a slot count cannot be queried: {}: write the slots of every host, as in {}\n{error:#}",
                count(failed.len(), "host"),
                compact(failed.iter().map(|(name, _)| *name)),
                compact_with_slots(names.iter().map(|name| (*name, 8)))
            ),
        }
    }

    /// Queries many hosts in parallel; `None` for those that do not reply. Fails if none of several does.
    pub fn query_reachable(&self, names: &[&str]) -> anyhow::Result<Vec<Option<Processors>>> {
        let answers = self.query_each(names);
        match answers.iter().any(Result::is_ok) {
            true => Ok(answers.into_iter().map(Result::ok).collect()),
            false => answers.into_iter().map(|answer| answer.map(Some)).collect(),
        }
    }

    fn query_each(&self, names: &[&str]) -> Vec<anyhow::Result<Processors>> {
        in_parallel(MAX_PROGRAMS, names, |name| self.query_one(name))
    }

    /// Queries one host.
    pub fn query_one(&self, name: &str) -> anyhow::Result<Processors> {
        let remote = Remote::new(&Host { name: name.to_owned(), slots: 1 }, self.ssh, self.environment);
        if remote.is_here() {
            return Ok(self.here.clone());
        }
        let answer = remote.run(&["sh", "-c", SCRIPT], b"", QUERY_TIMEOUT, &Interrupt::never())?;
        if let Some(processors) = Processors::parse(&answer.stdout) {
            return Ok(processors);
        }
        if answer.status.is_some_and(|status| status.success()) {
            bail!("host {name:?} has no slot count and did not report its cores: write {name}:8");
        }
        let why = ssh_failure::explain(&answer, name, self.ssh.port);
        bail!("host {name:?} has no slot count and cannot be queried: {}: {}, or write {name}:8", why.what, why.fix)
    }
}

/// Returns the output of `nvidia-smi -L`; empty if there is no driver.
fn list_gpus() -> String {
    match Command::new("nvidia-smi").arg("-L").output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => String::new(),
    }
}

/// Returns the name in the first line, `GPU 0: NVIDIA H200 (UUID: ..)`.
fn gpu_name(listing: &str) -> Option<String> {
    let first = listing.lines().find(|line| line.starts_with("GPU "))?;
    let (name, _) = first.split_once(": ")?.1.split_once(" (")?;
    Some(printable(name).into_owned())
}

/// Counts the GPUs in `listing` that CUDA_VISIBLE_DEVICES (`visible_devices`) does not hide.
fn count_gpus(listing: &str, visible_devices: Option<&str>) -> u32 {
    let present = listing.lines().filter(|line| line.starts_with("GPU ")).count();
    // CUDA stops at the first invalid entry.
    let visible = visible_devices
        .map_or(present, |list| list.split(',').take_while(|entry| !matches!(entry.trim(), "" | "-1")).count());
    u32::try_from(present.min(visible)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::host::processors::Topology;

    use super::*;

    #[test]
    fn slots_are_the_gpus_or_else_the_cores() {
        let gpus = "Welcome\nGPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)\ncores=96\n";
        for (output, device, slots) in [
            (gpus, DeviceChoice::Auto, Some(2)),
            (gpus, DeviceChoice::Cpu, Some(96)),
            ("NVIDIA-SMI has failed\ncores=4\n", DeviceChoice::Auto, Some(4)),
            ("cores=\n", DeviceChoice::Auto, None),
            ("", DeviceChoice::Auto, None),
        ] {
            assert_eq!(Processors::parse(output).map(|found| found.slots(device)), slots, "{output}");
            let name = output.contains("H100").then_some("NVIDIA H100");
            assert_eq!(Processors::parse(output).and_then(|found| found.gpu_name).as_deref(), name, "{output}");
        }
    }

    #[test]
    fn script_counts_the_cores_of_this_machine() {
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", SCRIPT]).env_remove("OMP_NUM_THREADS").output().expect("a shell");
        let found = Processors::parse(&String::from_utf8_lossy(&output.stdout)).expect("a number");
        assert_eq!(found.cores, Topology::read().cores());
    }

    #[test]
    fn only_remote_hosts_are_queried_for_slots() {
        let environment = LaunchEnvironment { host_name: "a".to_owned(), ..LaunchEnvironment::default() };
        // Replaces ssh, which would look up the host.
        let arguments = ["plm_rsh_agent", "/bin/false"].map(str::to_owned);
        let ssh = SshOptions::new(22, &arguments, &environment);
        let here = Processors { gpus: 0, gpu_name: None, cores: 6 };
        let request = ProcessorsRequest { here: &here, ssh: &ssh, environment: &environment };
        assert_eq!(request.query(&["localhost", "a"]).expect("known"), [here.clone(), here.clone()]);
        let error = request.query(&["localhost", "192.0.2.8"]).expect_err("unreachable host").to_string();
        expect![[r#"host "192.0.2.8" has no slot count and cannot be queried: remote command failed (exit status: 1): check that `ssh -p 22 192.0.2.8 sh -c true` works: the host needs a shell, or write 192.0.2.8:8"#]].assert_eq(&error);
        let reachable = request.query_reachable(&["localhost", "192.0.2.8"]).expect("one of them");
        assert_eq!(reachable, [Some(here.clone()), None]);
        assert!(request.query_reachable(&["192.0.2.8"]).is_err());
        assert_eq!(request.query_reachable(&[]).expect("no host"), []);
    }

    #[test]
    fn gpus_hidden_from_cuda_are_not_counted() {
        let listing = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n  MIG 1g.10gb Device 0\nGPU 1: NVIDIA H100\n";
        for (visible, count) in [(None, 2), (Some("0,1,2"), 2), (Some("1"), 1), (Some(""), 0), (Some("0,-1,1"), 1)] {
            assert_eq!(count_gpus(listing, visible), count, "{visible:?}");
        }
    }
}

//! Validation and recorded value of `--hierarchical`. On CPUs the option, which is Horovod's, selects a backend; NCCL
//! has no equivalent.

use anyhow::bail;

use crate::benchmark::exchange::{BackendChoice, ExchangeConfig, NcclAlgorithm, Switch};
use crate::dimension::{DeviceChoice, DeviceKind, Strategy};

impl ExchangeConfig {
    /// Refuses options that contradict `--hierarchical` or make it meaningless; the message names both.
    pub fn check_hierarchical(&self, device: DeviceChoice) -> anyhow::Result<()> {
        let Some(hierarchical) = self.hierarchical else { return Ok(()) };
        let algorithm = self.nccl_algo;
        let is_nccl = |backend| match backend {
            BackendChoice::Nccl => true,
            BackendChoice::Auto => device == DeviceChoice::Cuda,
            _ => false,
        };
        match (hierarchical, self.backend) {
            (_, BackendChoice::None) => bail!(
                "--hierarchical {hierarchical} conflicts with --backend none, which exchanges nothing: use only one \
                 of them"
            ),
            (Switch::On, BackendChoice::Mpi) => bail!(
                "--hierarchical on conflicts with --backend mpi, which is one MPI_Allreduce over all ranks: omit one \
                 of them, or use --backend shared-memory, which sums within each host first"
            ),
            (Switch::Off, BackendChoice::SharedMemory) => bail!(
                "--hierarchical off conflicts with --backend shared-memory, which sums within each host first: omit \
                 one of them, or use --backend mpi, which sums over all ranks at once"
            ),
            (Switch::On, backend) if is_nccl(backend) => bail!(
                "--hierarchical on does not apply to NCCL, which sums over all ranks with its own algorithm: omit \
                 --hierarchical, and use --nccl-algo (tree and nvls sum within each host)"
            ),
            (Switch::Off, backend) if is_nccl(backend) && algorithm != NcclAlgorithm::Ring => bail!(
                "--hierarchical off means one ring over all ranks, but --nccl-algo {algorithm} may not be a ring: use \
                 only one of them"
            ),
            _ => Ok(()),
        }
    }

    /// Returns the requested backend, or the one that `auto` selects for several ranks on this device.
    pub fn backend_on(&self, device: DeviceKind) -> BackendChoice {
        match (self.backend, device) {
            (BackendChoice::Auto, DeviceKind::Cuda) => BackendChoice::Nccl,
            (BackendChoice::Auto, DeviceKind::Cpu) if self.hierarchical == Some(Switch::Off) => BackendChoice::Mpi,
            (BackendChoice::Auto, DeviceKind::Cpu) => BackendChoice::SharedMemory,
            (chosen, _) => chosen,
        }
    }

    /// Resolves `--hierarchical` for the record. The result does not depend on the number of ranks, so that all cases
    /// of a sweep have the same value. For NCCL it is the requested value.
    pub fn on(self, device: DeviceKind, strategy: Strategy) -> ExchangeConfig {
        let hierarchical = match self.backend_on(device) {
            _ if strategy.has_servers() => None,
            BackendChoice::None => None,
            BackendChoice::SharedMemory => Some(Switch::On),
            BackendChoice::Mpi => Some(Switch::Off),
            BackendChoice::Nccl | BackendChoice::Auto => self.hierarchical,
        };
        ExchangeConfig { hierarchical, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(hierarchical: Option<Switch>, backend: BackendChoice) -> ExchangeConfig {
        ExchangeConfig { hierarchical, backend, ..ExchangeConfig::default() }
    }

    #[test]
    fn conflicting_options_are_both_named() {
        let (on, off, algorithm) = (Some(Switch::On), Some(Switch::Off), NcclAlgorithm::Tree);
        let (auto, cpu, cuda) = (DeviceChoice::Auto, DeviceChoice::Cpu, DeviceChoice::Cuda);
        for (config, device, words) in [
            (with(on, BackendChoice::None), auto, ["--hierarchical on", "--backend none"]),
            (with(off, BackendChoice::None), auto, ["--hierarchical off", "--backend none"]),
            (with(on, BackendChoice::Mpi), auto, ["--hierarchical on", "conflicts with --backend mpi"]),
            (
                with(off, BackendChoice::SharedMemory),
                cpu,
                ["--hierarchical off", "conflicts with --backend shared-memory"],
            ),
            (with(on, BackendChoice::Nccl), auto, ["--hierarchical on", "--nccl-algo"]),
            (with(on, BackendChoice::Auto), cuda, ["--hierarchical on", "--nccl-algo"]),
            (
                ExchangeConfig { nccl_algo: algorithm, ..with(off, BackendChoice::Auto) },
                cuda,
                ["--hierarchical off means one ring", "--nccl-algo tree"],
            ),
        ] {
            let error = config.check_hierarchical(device).expect_err("refused").to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        for (config, device) in [
            (with(on, BackendChoice::Auto), auto),
            (with(on, BackendChoice::SharedMemory), cpu),
            (with(off, BackendChoice::Mpi), cuda),
            (with(off, BackendChoice::Auto), cuda),
            (ExchangeConfig { nccl_algo: algorithm, ..with(off, BackendChoice::Auto) }, cpu),
            (with(None, BackendChoice::None), auto),
        ] {
            config.check_hierarchical(device).expect("they go together");
        }
    }

    #[test]
    fn record_contains_effective_hierarchy() {
        let (on, off) = (Some(Switch::On), Some(Switch::Off));
        let came_to =
            |requested, backend, device| with(requested, backend).on(device, Strategy::AllReduce).hierarchical;
        for (requested, backend, device, expected) in [
            (None, BackendChoice::Auto, DeviceKind::Cpu, on),
            (off, BackendChoice::Auto, DeviceKind::Cpu, off),
            (None, BackendChoice::SharedMemory, DeviceKind::Cpu, on),
            (None, BackendChoice::Mpi, DeviceKind::Cpu, off),
            (None, BackendChoice::Mpi, DeviceKind::Cuda, off),
            (None, BackendChoice::None, DeviceKind::Cpu, None),
            (None, BackendChoice::Auto, DeviceKind::Cuda, None),
            (off, BackendChoice::Nccl, DeviceKind::Cuda, off),
        ] {
            assert_eq!(came_to(requested, backend, device), expected, "{requested:?} {backend} {device}");
        }
        assert_eq!(with(None, BackendChoice::Auto).on(DeviceKind::Cpu, Strategy::DistSync).hierarchical, None);
        assert_eq!(with(None, BackendChoice::Auto).on(DeviceKind::Cpu, Strategy::Device).hierarchical, on);
    }
}

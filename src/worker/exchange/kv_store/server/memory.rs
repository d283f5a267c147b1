//! Checks that the shards of a server fit its memory before they are allocated: a process that the kernel kills for
//! lack of memory cannot report it.

use anyhow::{Error, Result, anyhow, ensure};
use ringmark_core::dimension::Bytes;
use ringmark_core::host::memory;

use crate::exchange::kv_store::formats::Formats;
use crate::exchange::kv_store::plan::PlannedPart;
use crate::exchange::kv_store::rendezvous::Membership;
use crate::exchange::kv_store::server::parameter_shard::ParameterShard;
use crate::job::memory as job_memory;

/// Memory left on a host after its ranks have allocated and before its servers have.
#[derive(Debug, Clone, Copy)]
pub struct FreeMemory {
    /// On the host, or in the control group of this process.
    host: Bytes,
    /// Left by the limits of this process; `None` without limits.
    process: Option<Bytes>,
}

/// Memory that a server needs, and the available one.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerMemory {
    /// Start of the message: this server or all servers of the host, and `need`.
    subject: String,
    needed: Bytes,
    available: Bytes,
    /// Arrays in addition to the pushes.
    contents: String,
    /// Workers that push.
    pushers: usize,
    /// Limit of this server.
    limit: Bytes,
}

impl FreeMemory {
    /// Reads the memory left now, between [`Membership::exchange`] and
    /// [`rendezvous::ready`](crate::exchange::kv_store::rendezvous::ready).
    pub fn read() -> FreeMemory {
        FreeMemory { host: memory::available(), process: job_memory::left_by_limits() }
    }
}

impl ServerMemory {
    /// Computes the need of server `number` for its parts of `plan`; several servers of a host add up theirs.
    pub fn new(
        free: FreeMemory,
        membership: &Membership,
        plan: &[PlannedPart],
        formats: Formats,
        number: usize,
    ) -> ServerMemory {
        let pushers = membership.pushers().len();
        let needed_by = |server: usize| -> u64 {
            let parts = plan.iter().filter(|part| part.server == server);
            parts.map(|part| ParameterShard::needed_bytes(part.elements.len(), formats, pushers)).sum()
        };
        let host = &membership.servers[number].host;
        let on_host = (0..).zip(&membership.servers).filter(|(_, server)| server.host == *host);
        let needs: Vec<u64> = on_host.map(|(server, _)| needed_by(server)).collect();
        let (own_need, all_need) = (needed_by(number), needs.iter().sum::<u64>());
        let limit = free.process.map_or(free.host.0, |process| process.0.min(free.host.0));
        // The server's own limit, if that is the lower one.
        let (subject, needed, available) = match needs.len() {
            2.. if own_need <= limit => {
                (format!("the {} servers on host {host} need", needs.len()), all_need, free.host.0)
            }
            _ => ("this server's parts of the weights need".to_owned(), own_need, limit),
        };
        ServerMemory {
            subject,
            needed: Bytes(needed),
            available: Bytes(available),
            contents: formats.state_names(),
            pushers,
            limit: Bytes(limit),
        }
    }

    /// Caps the address space, so that a later allocation beyond it fails instead of invoking the kernel's
    /// out-of-memory killer.
    ///
    /// # Errors
    ///
    /// Fails if the need exceeds the available memory.
    pub fn check(&self) -> Result<()> {
        ensure!(self.needed.0 <= self.available.0, "{}", self.message());
        job_memory::limit_to(self.limit);
        Ok(())
    }

    /// Returns `error`, reworded if it is a lack of memory: copies on their way to slow workers are not counted above.
    pub fn explain(&self, error: Error) -> Error {
        if job_memory::is_shortage(&error) { anyhow!("out of memory: {}", self.message()) } else { error }
    }

    fn message(&self) -> String {
        let gigabytes = |bytes: Bytes| format!("{:.2} GB", bytes.gigabytes());
        let workers = if self.pushers == 1 { "1 worker's".to_owned() } else { format!("{} workers'", self.pushers) };
        format!(
            "{} {} of memory for {} and {workers} pushes, {} is available: use more --servers, or hosts with \
             more memory (--server-hosts)",
            self.subject,
            gigabytes(self.needed),
            self.contents,
            gigabytes(self.available)
        )
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::benchmark::optimizer::Optimizer;
    use tch::Kind;

    use super::*;
    use crate::exchange::compression::packed_sums::PackedSums;
    use crate::exchange::kv_store::formats::{AnswerFormat, PushFormat};
    use crate::exchange::kv_store::rendezvous::{ServerFacts, WorkerFacts};

    /// Two workers, and servers on these hosts, each with a part of a million weights.
    fn memory(hosts: &[&str], host: u64, process: Option<u64>) -> ServerMemory {
        let worker = WorkerFacts { host: "a".to_owned(), summed: 1, lengths: Vec::new() };
        let server = |host: &&str| ServerFacts { host: (*host).to_owned(), token: 0, addresses: Vec::new() };
        let membership =
            Membership { workers: vec![worker.clone(), worker], servers: hosts.iter().map(server).collect() };
        let part = |server: usize| {
            let first = server * 1_000_000;
            PlannedPart { server, key: server, first: 0, elements: first..first + 1_000_000 }
        };
        let plan: Vec<PlannedPart> = (0..hosts.len()).map(part).collect();
        let free = FreeMemory { host: Bytes(host), process: process.map(Bytes) };
        ServerMemory::new(free, &membership, &plan, FORMATS, 0)
    }

    const FORMATS: Formats =
        Formats { push: PushFormat::Values(Kind::Float), answer: AnswerFormat::Weights, states: &["momenta"] };

    #[test]
    fn message_names_the_held_arrays() {
        let contents = |answer, states| Formats { answer, states, ..FORMATS }.state_names();
        expect!["weights, momenta, sums"].assert_eq(&contents(AnswerFormat::Weights, &["momenta"]));
        let adam = Optimizer::Adam.state_names(0.0);
        expect!["weights, first moments, second moments, sums"].assert_eq(&contents(AnswerFormat::Weights, adam));
        assert_eq!(contents(AnswerFormat::Weights, &[]), "weights, sums");
        expect!["sums, packed sums"].assert_eq(&contents(AnswerFormat::Sums(PackedSums::new(0.5, 2)), &[]));
    }

    #[test]
    fn server_needs_four_arrays_and_one_push_per_worker() {
        let memory = memory(&["s", "t"], 20_000_000, None);
        assert_eq!((memory.needed, memory.available), (Bytes(24_000_000), Bytes(20_000_000)));
        expect!["this server's parts of the weights need 0.02 GB of memory for weights, momenta, sums and 2 workers' pushes, 0.02 GB is available: use more --servers, or hosts with more memory (--server-hosts)"].assert_eq(&memory.check().expect_err("it does not fit").to_string());
    }

    #[test]
    fn servers_share_host_memory_and_have_own_limits() {
        let shared = memory(&["s", "s", "t"], 40_000_000, None);
        assert_eq!((shared.needed, shared.available), (Bytes(48_000_000), Bytes(40_000_000)));
        expect!["the 2 servers on host s need 0.05 GB of memory for weights, momenta, sums and 2 workers' pushes, 0.04 GB is available: use more --servers, or hosts with more memory (--server-hosts)"].assert_eq(&shared.message());
        let limited = memory(&["s", "s"], 1 << 40, Some(10_000_000));
        assert_eq!((limited.needed, limited.available), (Bytes(24_000_000), Bytes(10_000_000)));
    }

    #[test]
    fn failed_allocation_gets_the_same_message() {
        let memory = memory(&["s"], 1 << 40, None);
        let error = tch::Tensor::f_zeros([1_i64 << 60], (Kind::Uint8, tch::Device::Cpu)).expect_err("no host has it");
        let explain = memory.explain(error.into()).to_string();
        expect!["out of memory: this server's parts of the weights need 0.02 GB of memory for weights, momenta, sums and 2 workers' pushes, 1099.51 GB is available: use more --servers, or hosts with more memory (--server-hosts)"].assert_eq(&explain);
        expect!["no such file"].assert_eq(&memory.explain(anyhow!("no such file")).to_string());
    }
}

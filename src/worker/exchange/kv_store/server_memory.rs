//! Whether a server's parts of the weights fit the memory that it may take: asked before any of it is touched, because a
//! process that the kernel ends for want of memory cannot say so.

use anyhow::{Error, Result, anyhow, ensure};
use ringmark_record::dimension::units::Bytes;
use ringmark_record::host::memory;

use crate::exchange::kv_store::held_part::{Forms, HeldPart};
use crate::exchange::kv_store::meeting::Roster;
use crate::exchange::kv_store::plan::PlannedPart;
use crate::job::memory as job_memory;

/// What is left when the ranks of the host have theirs, before any server of it takes some.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLeft {
    /// On this host, or in this process's control group.
    host: Bytes,
    /// By the limits of this process alone; `None` without any.
    process: Option<Bytes>,
}

/// What a server needs, and what it may take of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerMemory {
    /// Of whom the figures are: `its parts of the weights`, or those of all servers of the host.
    whose: String,
    needed: Bytes,
    available: Bytes,
    /// For what, beside the pushes.
    held: &'static str,
    /// Workers that push.
    pushers: usize,
    /// What this server may take for itself.
    own: Bytes,
}

impl MemoryLeft {
    /// At this moment: after all have met, and before all are ready.
    pub fn read() -> MemoryLeft {
        MemoryLeft { host: memory::available(), process: job_memory::left_by_limits() }
    }
}

impl ServerMemory {
    /// Of server `number`, with the parts of `plan`. Of several on one host each counts what all of them need.
    pub fn of(left: MemoryLeft, roster: &Roster, plan: &[PlannedPart], forms: Forms, number: usize) -> ServerMemory {
        let pushers = roster.pushers().len();
        let needed_by = |server: usize| -> u64 {
            let parts = plan.iter().filter(|part| part.server == server);
            parts.map(|part| HeldPart::needed_bytes(part.elements.len(), forms, pushers)).sum()
        };
        let host = &roster.servers[number].host;
        let of_host = (0..).zip(&roster.servers).filter(|(_, server)| server.host == *host);
        let needs: Vec<u64> = of_host.map(|(server, _)| needed_by(server)).collect();
        let (own_need, all_need) = (needed_by(number), needs.iter().sum::<u64>());
        let own = left.process.map_or(left.host.0, |process| process.0.min(left.host.0));
        // Where its own limit is the narrower one, that is what is in the way.
        let (whose, needed, available) = match needs.len() {
            2.. if own_need <= own => {
                (format!("the {} servers of host {host} need", needs.len()), all_need, left.host.0)
            }
            _ => ("its parts of the weights need".to_owned(), own_need, own),
        };
        ServerMemory {
            whose,
            needed: Bytes(needed),
            available: Bytes(available),
            held: forms.held(),
            pushers,
            own: Bytes(own),
        }
    }

    /// Refuses, with a message for the user, what does not fit; from here on an allocation beyond what there is fails, and is
    /// no reason for the kernel to end a process.
    pub fn check(&self) -> Result<()> {
        ensure!(self.needed.0 <= self.available.0, "{}", self.message());
        job_memory::limit_to(self.own);
        Ok(())
    }

    /// The same error, in these words where it says that there is no memory left: what lies on its way to slow workers is
    /// not counted above.
    pub fn named(&self, error: Error) -> Error {
        if job_memory::is_shortage(&error) { anyhow!("out of memory: {}", self.message()) } else { error }
    }

    fn message(&self) -> String {
        let gigabytes = |bytes: Bytes| format!("{:.2} GB", bytes.0 as f64 / 1e9);
        let workers = if self.pushers == 1 { "a worker's".to_owned() } else { format!("{} workers'", self.pushers) };
        format!(
            "{} {} of memory for {} and {workers} pushes, {} are available: choose more --servers, or hosts with more memory \
             (--server-hosts)",
            self.whose,
            gigabytes(self.needed),
            self.held,
            gigabytes(self.available)
        )
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;
    use crate::exchange::codec::packed_sums::PackedSums;
    use crate::exchange::kv_store::held_part::{AnswerForm, PushForm};
    use crate::exchange::kv_store::meeting::{ServerFacts, WorkerFacts};

    /// Two workers, and servers on these hosts, each with a part of a million weights.
    fn memory(hosts: &[&str], host: u64, process: Option<u64>) -> ServerMemory {
        let worker = WorkerFacts { host: "a".to_owned(), summed: 1, lengths: Vec::new() };
        let server = |host: &&str| ServerFacts { host: (*host).to_owned(), token: 0, addresses: Vec::new() };
        let roster = Roster { workers: vec![worker.clone(), worker], servers: hosts.iter().map(server).collect() };
        let part = |server: usize| {
            let first = server * 1_000_000;
            PlannedPart { server, key: server, first: 0, elements: first..first + 1_000_000 }
        };
        let plan: Vec<PlannedPart> = (0..hosts.len()).map(part).collect();
        let left = MemoryLeft { host: Bytes(host), process: process.map(Bytes) };
        ServerMemory::of(left, &roster, &plan, FORMS, 0)
    }

    const FORMS: Forms = Forms { push: PushForm::Values(Kind::Float), answer: AnswerForm::Weights, has_momenta: true };

    #[test]
    fn the_words_are_of_what_is_held() {
        let held = |answer, has_momenta| Forms { answer, has_momenta, ..FORMS }.held();
        assert_eq!(held(AnswerForm::Weights, true), "weights, momenta, sums");
        assert_eq!(held(AnswerForm::Weights, false), "weights, sums");
        assert_eq!(held(AnswerForm::Sums(PackedSums::new(0.5, 2)), false), "sums, their packed copy");
    }

    #[test]
    fn a_server_needs_four_arrays_and_a_push_of_each_worker() {
        let memory = memory(&["s", "t"], 20_000_000, None);
        assert_eq!((memory.needed, memory.available), (Bytes(24_000_000), Bytes(20_000_000)));
        assert_eq!(
            memory.check().expect_err("it does not fit").to_string(),
            "its parts of the weights need 0.02 GB of memory for weights, momenta, sums and 2 workers' pushes, 0.02 GB are \
             available: choose more --servers, or hosts with more memory (--server-hosts)"
        );
    }

    #[test]
    fn servers_of_a_host_share_its_memory_and_each_has_its_own_limit() {
        let shared = memory(&["s", "s", "t"], 40_000_000, None);
        assert_eq!((shared.needed, shared.available), (Bytes(48_000_000), Bytes(40_000_000)));
        assert!(shared.message().starts_with("the 2 servers of host s need 0.05 GB"), "{}", shared.message());
        let limited = memory(&["s", "s"], 1 << 40, Some(10_000_000));
        assert_eq!((limited.needed, limited.available), (Bytes(24_000_000), Bytes(10_000_000)));
    }

    #[test]
    fn a_failed_allocation_says_the_same() {
        let memory = memory(&["s"], 1 << 40, None);
        let error = tch::Tensor::f_zeros([1_i64 << 60], (Kind::Uint8, tch::Device::Cpu)).expect_err("no host has it");
        let named = memory.named(error.into()).to_string();
        assert!(named.starts_with("out of memory: its parts of the weights need 0.02 GB"), "{named}");
        assert_eq!(memory.named(anyhow!("no such file")).to_string(), "no such file");
    }
}

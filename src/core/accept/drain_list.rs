//! The list of hosts to drain.

use std::collections::BTreeMap;

use crate::accept::verdict::{Fitness, Judged, Subject, Verdict};
use crate::host::host_list::compact;
use crate::shell;

/// Longest reason of a drained node, in characters.
const MAX_REASON: usize = 200;

impl Verdict {
    /// Returns `to drain: n[0,2]`, the hosts of the list; `None` if there are none.
    pub fn drain_line(&self) -> Option<String> {
        let hosts = self.hosts_to_drain();
        let names = compact(hosts.keys().map(|host| self.hosts[*host].name.as_str()));
        (!hosts.is_empty()).then(|| format!("to drain: {names}"))
    }

    /// Returns a line for each host that is unfit, that has an unfit GPU, or that is one of the two hosts of an unfit
    /// link: the command that drains it if `is_slurm`, otherwise its name.
    pub fn drain_list(&self, is_slurm: bool) -> String {
        let line = |(host, part): (usize, &Judged)| {
            let name = &self.hosts[host].name;
            if !is_slurm {
                return format!("{name}\n");
            }
            let cause = part.cause.map(|cause| format!(" {cause}:")).unwrap_or_default();
            let evidence = part.evidence.first().map_or("", |evidence| &evidence.text);
            let reason: String = format!("ringmark accept:{cause} {evidence}").chars().take(MAX_REASON).collect();
            let reason = format!("reason={}", reason.trim_end());
            let words = ["scontrol", "update", &format!("nodename={name}"), "state=drain", &reason].map(str::to_owned);
            shell::join(words) + "\n"
        };
        self.hosts_to_drain().into_iter().map(line).collect()
    }

    /// Returns the hosts to drain, each with the unfit part that is the reason.
    fn hosts_to_drain(&self) -> BTreeMap<usize, &Judged> {
        let unfit = self.hosts.iter().chain(&self.gpus).filter(|part| part.fitness == Fitness::Unfit);
        let mut reasons: BTreeMap<usize, &Judged> = BTreeMap::new();
        for part in unfit {
            if let Subject::Host(host) | Subject::Gpu(host, _) = part.subject {
                reasons.entry(host).or_insert(part);
            }
        }
        // One host of an unfit link is enough.
        for (host, link) in self.usable_together().1 {
            reasons.entry(host).or_insert(link);
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::accept::{Cause, Criteria, Evidence, Search, Stage};

    fn judged(subject: Subject, name: &str, fitness: Fitness, why: Option<(Cause, &str)>) -> Judged {
        Judged {
            subject,
            name: name.to_owned(),
            fitness,
            cause: why.map(|(cause, _)| cause),
            evidence: why.iter().map(|(_, text)| Evidence::of_text(Stage::Alone, (*text).to_owned())).collect(),
            cure: None,
        }
    }

    fn verdict() -> Verdict {
        let host = |number: usize, fitness, why| judged(Subject::Host(number), &format!("n{number}"), fitness, why);
        let low = "matrix rate \"low\"";
        Verdict {
            hosts: vec![
                host(0, Fitness::Fit, None),
                host(1, Fitness::Suspect, Some((Cause::Intermittent, "slow in 2 of 9 measurements"))),
                host(2, Fitness::Unfit, Some((Cause::Facts, "facts: ssh: no route to host"))),
            ],
            gpus: vec![judged(Subject::Gpu(0, 5), "n0 GPU 5", Fitness::Unfit, Some((Cause::Gpu, low)))],
            ..Search::new(Vec::new(), Criteria::default(), 1).verdict(&[], &[])
        }
    }

    #[test]
    fn drain_list_has_unfit_hosts_and_hosts_of_unfit_gpus() {
        assert_eq!(verdict().drain_line().as_deref(), Some("to drain: n[0,2]"));
        expect![[r#"
            n0
            n2
        "#]]
        .assert_eq(&verdict().drain_list(false));
        expect![[r#"
            scontrol update nodename=n0 state=drain 'reason=ringmark accept: gpu: matrix rate "low"'
            scontrol update nodename=n2 state=drain 'reason=ringmark accept: facts: facts: ssh: no route to host'
        "#]]
        .assert_eq(&verdict().drain_list(true));
    }
}

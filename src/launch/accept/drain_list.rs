//! The list of hosts to drain.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringmark_core::accept::{Fitness, Judged, Subject, Verdict};
use ringmark_core::shell;

use crate::launch::job::starter::Starter;
use crate::output;

/// Longest reason of a drained node, in characters.
const MAX_REASON: usize = 200;

/// Destination of the list of hosts to drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainList {
    /// The standard output.
    Printed,
    /// File that is written.
    File(PathBuf),
}

impl From<PathBuf> for DrainList {
    /// Converts the argument of `--drain-list`; `-` is the standard output.
    fn from(path: PathBuf) -> DrainList {
        if path == Path::new("-") { DrainList::Printed } else { DrainList::File(path) }
    }
}

impl DrainList {
    /// Writes the hosts that are unfit, and one of each two that an unfit link connects: commands that drain them if
    /// `starter` is Slurm, otherwise their names.
    pub fn write(&self, verdict: &Verdict, starter: Starter) -> anyhow::Result<()> {
        let text = drain_lines(verdict, matches!(starter, Starter::Slurm(_)));
        match self {
            DrainList::Printed => output::print(&text),
            DrainList::File(path) => output::write_file(path, &text),
        }
    }
}

fn drain_lines(verdict: &Verdict, is_slurm: bool) -> String {
    let unfit = verdict.hosts.iter().chain(&verdict.gpus).filter(|part| part.fitness == Fitness::Unfit);
    let mut reasons: BTreeMap<usize, &Judged> = BTreeMap::new();
    for part in unfit {
        if let Subject::Host(host) | Subject::Gpu(host, _) = part.subject {
            reasons.entry(host).or_insert(part);
        }
    }
    // One host of an unfit link is enough.
    for (host, link) in verdict.usable_together().1 {
        reasons.entry(host).or_insert(link);
    }
    let line = |(host, part): (usize, &Judged)| {
        let name = &verdict.hosts[host].name;
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
    reasons.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::accept::{Cause, Criteria, Evidence, Search, Stage};

    use super::*;
    use crate::launch::job::slurm::StepGpus;

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
        expect![[r#"
            n0
            n2
        "#]]
        .assert_eq(&drain_lines(&verdict(), false));
        expect![[r#"
            scontrol update nodename=n0 state=drain 'reason=ringmark accept: gpu: matrix rate "low"'
            scontrol update nodename=n2 state=drain 'reason=ringmark accept: facts: facts: ssh: no route to host'
        "#]]
        .assert_eq(&drain_lines(&verdict(), true));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("drain.sh");
        let starter = Starter::Slurm(StepGpus::Unknown);
        DrainList::from(file.clone()).write(&verdict(), starter).expect("written");
        assert!(std::fs::read_to_string(file).expect("written").starts_with("scontrol update nodename=n0 "));
    }
}

//! The printed verdict, and the list of hosts to drain.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringmark_core::accept::{Fitness, Judged, Stage, Subject, Verdict};
use ringmark_core::host::host_list::compact;
use ringmark_core::number_text::count;
use ringmark_core::shell;

use crate::launch::job::starter::Starter;
use crate::output;

/// Longest reason of a drained node, in characters.
const MAX_REASON: usize = 200;

/// Returns the verdict as text: a line for each host, GPU, link and switch that is not fit, the worst first, then a line
/// for the fleet.
pub fn text(verdict: &Verdict) -> String {
    let mut parts: Vec<&Judged> = parts(verdict).filter(|judged| is_bad(judged)).collect();
    parts.sort_by_key(|judged| std::cmp::Reverse(judged.fitness));
    let mut lines: Vec<String> = parts.into_iter().map(line).collect();
    lines.extend(not_tested(verdict));
    lines.extend(unfinished(verdict).map(|stages| format!("not complete: {stages}")));
    lines.push(summary(verdict));
    lines.join("\n")
}

/// Returns why the command fails; `None` if every host, GPU and link is fit.
pub fn failure(verdict: &Verdict) -> Option<String> {
    let bad = parts(verdict).filter(|judged| is_bad(judged)).count();
    let untested = untested_hosts(verdict).count();
    match (bad, untested) {
        (0, 0) => unfinished(verdict).map(|stages| format!("not complete: {stages}")),
        (0, untested) => Some(format!("{} not tested", count(untested, "host"))),
        (1, _) => Some("the fleet is not fit: see the line above".to_owned()),
        (bad, _) => Some(format!("the fleet is not fit: see the {bad} lines above")),
    }
}

/// Returns the judged parts of the fleet and the statements about all of it.
fn parts(verdict: &Verdict) -> impl Iterator<Item = &Judged> {
    let Verdict { hosts, gpus, links, switches, fleet, .. } = verdict;
    [switches, hosts, gpus, links, fleet].into_iter().flatten()
}

fn is_bad(judged: &Judged) -> bool {
    matches!(judged.fitness, Fitness::Unfit | Fitness::Suspect)
}

fn untested_hosts(verdict: &Verdict) -> impl Iterator<Item = &str> {
    let hosts = verdict.hosts.iter().filter(|host| host.fitness == Fitness::NotTested);
    hosts.map(|host| host.name.as_str())
}

/// Formats `b: unfit (gpu): EVIDENCE; fix: CURE`.
fn line(judged: &Judged) -> String {
    let cause = judged.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let evidence: Vec<&str> = judged.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    let mut line = format!("{}: {}{cause}: {}", judged.name, judged.fitness, evidence.join("; "));
    if let Some(cure) = &judged.cure {
        line += &format!("; fix: {cure}");
    }
    line
}

fn not_tested(verdict: &Verdict) -> Option<String> {
    let mut names = untested_hosts(verdict).peekable();
    names.peek()?;
    Some(format!("not tested: {}", compact(names)))
}

/// Lists the stages that are not complete.
fn unfinished(verdict: &Verdict) -> Option<String> {
    let stages: Vec<String> = verdict.unfinished.iter().map(Stage::to_string).collect();
    (!stages.is_empty()).then(|| stages.join(", "))
}

fn summary(verdict: &Verdict) -> String {
    let all = verdict.hosts.len();
    let fit = verdict.hosts.iter().filter(|host| host.fitness == Fitness::Fit).count();
    let mut counts = vec![format!("{fit} of {} fit", count(all, "host"))];
    let others = [(Fitness::Unfit, "unfit"), (Fitness::Suspect, "suspect"), (Fitness::NotTested, "not tested")];
    for (fitness, word) in others {
        let hosts = verdict.hosts.iter().filter(|host| host.fitness == fitness).count();
        counts.extend((hosts > 0).then(|| format!("{hosts} {word}")));
    }
    for (parts, noun) in [(&verdict.gpus, "GPU"), (&verdict.links, "link"), (&verdict.switches, "switch")] {
        let bad = parts.iter().filter(|part| is_bad(part)).count();
        counts.extend((bad > 0).then(|| match noun {
            "switch" if bad > 1 => format!("{bad} switches not fit"),
            noun => format!("{} not fit", count(bad, noun)),
        }));
    }
    format!("fleet: {}: {}; {}", verdict.fitness, counts.join(", "), count(verdict.rounds, "round"))
}

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
    /// Writes the hosts that are unfit: commands that drain them if `starter` is Slurm, otherwise their names.
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
    use ringmark_core::accept::{Cause, Evidence, Metric};

    use super::*;
    use crate::launch::job::slurm::StepGpus;

    fn judged(subject: Subject, name: &str, fitness: Fitness, why: Option<(Cause, &str, &str)>) -> Judged {
        let evidence = |text: &str| Evidence {
            stage: Stage::Alone,
            metric: Some(Metric::TrainingSpeed),
            values: vec![1.0],
            typical: Some(2.0),
            chance: Some(1e-6),
            text: text.to_owned(),
        };
        Judged {
            subject,
            name: name.to_owned(),
            fitness,
            cause: why.map(|(cause, ..)| cause),
            evidence: why.iter().map(|(_, text, _)| evidence(text)).collect(),
            cure: why.map(|(.., cure)| cure.to_owned()),
        }
    }

    fn verdict() -> Verdict {
        let host = |number: usize, fitness, why| judged(Subject::Host(number), &format!("n{number}"), fitness, why);
        let reason = "facts: ssh: no route to host";
        Verdict {
            kind: "ringmark-accept".to_owned(),
            schema: 1,
            fitness: Fitness::Unfit,
            hosts: vec![
                host(0, Fitness::Fit, None),
                host(1, Fitness::Suspect, Some((Cause::Intermittent, "slow in 2 of 9 measurements", "watch it"))),
                host(2, Fitness::Unfit, Some((Cause::Facts, reason, "start the host"))),
                host(3, Fitness::NotTested, None),
            ],
            gpus: vec![judged(
                Subject::Gpu(0, 5),
                "n0 GPU 5",
                Fitness::Unfit,
                Some((Cause::Gpu, "matrix rate \"low\"", "replace it")),
            )],
            links: vec![judged(
                Subject::Link(0, 3),
                "n0 - n3",
                Fitness::Unfit,
                Some((Cause::Link, "1.0 of 12.0 GB/s in 4 measurements", "check the cable")),
            )],
            switches: Vec::new(),
            fleet: Vec::new(),
            rounds: 9,
            unfinished: vec![Stage::Groups, Stage::Whole],
            smallest_defect: Some(0.05),
        }
    }

    #[test]
    fn worst_parts_come_first_and_the_fleet_last() {
        expect![[r#"
            n2: unfit (facts): facts: ssh: no route to host; fix: start the host
            n0 GPU 5: unfit (gpu): matrix rate "low"; fix: replace it
            n0 - n3: unfit (link): 1.0 of 12.0 GB/s in 4 measurements; fix: check the cable
            n1: suspect (intermittent): slow in 2 of 9 measurements; fix: watch it
            not tested: n3
            not complete: groups, whole
            fleet: unfit: 1 of 4 hosts fit, 1 unfit, 1 suspect, 1 not tested, 1 GPU not fit, 1 link not fit; 9 rounds"#]]
        .assert_eq(&text(&verdict()));
        expect!["the fleet is not fit: see the 4 lines above"].assert_eq(&failure(&verdict()).expect("not fit"));
    }

    #[test]
    fn untested_host_is_a_failure() {
        let (gpus, links) = (Vec::new(), Vec::new());
        let mut part = Verdict { gpus, links, ..verdict() };
        part.hosts.retain(|host| [Fitness::Fit, Fitness::NotTested].contains(&host.fitness));
        expect!["1 host not tested"].assert_eq(&failure(&part).expect("not complete"));
        part.hosts.truncate(1);
        expect!["not complete: groups, whole"].assert_eq(&failure(&part).expect("not complete"));
        part.unfinished.clear();
        assert_eq!(failure(&part), None);
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

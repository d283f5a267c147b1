//! The verdict as text.

use crate::accept::fleet::Stage;
use crate::accept::verdict::{Evidence, Fitness, Judged, StageUse, VERDICT, Verdict, Warning};
use crate::host::host_list::compact;
use crate::number_text::{count, four_digits, percent};

/// Number of warnings that the text lists.
const MAX_WARNINGS: usize = 10;

/// Detection limit above which the word `fit` alone would be misleading.
const MAX_LIMIT: f64 = 0.1;

impl Verdict {
    /// Returns a line for each host, GPU, link and switch that is not fit, the worst first, then the warnings, and last a
    /// line for the fleet. Hosts with the same defect share a line.
    pub fn text(&self) -> String {
        let mut lines = self.bad_lines();
        lines.extend(self.not_tested());
        lines.extend(self.warning_lines());
        lines.extend(self.unfinished_stages().map(|stages| format!("not complete: {stages}")));
        lines.extend(self.drift_line());
        lines.extend(self.stage_line());
        lines.extend(self.usable_line());
        lines.push(self.summary());
        lines.join("\n")
    }

    /// Returns why the command fails; `None` if every host, GPU and link is fit.
    pub fn failure(&self) -> Option<String> {
        match (self.bad_lines().len(), self.untested_hosts().count()) {
            (0, 0) => self.unfinished_stages().map(|stages| format!("not complete: {stages}")),
            (0, untested) => Some(format!("{} not tested", count(untested, "host"))),
            (1, _) => Some("the fleet is not fit: see the first line of the verdict".to_owned()),
            (bad, _) => Some(format!("the fleet is not fit: see the first {bad} lines of the verdict")),
        }
    }

    /// Returns everything that is suspect or unfit, the worst first.
    pub fn bad_parts(&self) -> Vec<&Judged> {
        let Verdict { hosts, gpus, links, switches, fleet, .. } = self;
        let all = [switches, hosts, gpus, links, fleet].into_iter().flatten();
        let mut parts: Vec<&Judged> = all.filter(|part| part.is_bad()).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.fitness));
        parts
    }

    /// Returns a line for each part that is not fit; hosts with the same defect share a line.
    fn bad_lines(&self) -> Vec<String> {
        let mut lines: Vec<(Vec<&str>, bool, String)> = Vec::new();
        for part in self.bad_parts() {
            let (is_host, text) = (part.subject.host().is_some(), defect(part));
            let same = |(_, of_host, known): &&mut (_, bool, String)| is_host && *of_host && *known == text;
            match lines.iter_mut().find(same) {
                Some((names, ..)) => names.push(&part.name),
                None => lines.push((vec![&part.name], is_host, text)),
            }
        }
        let line = |(names, is_host, text): (Vec<&str>, bool, String)| match is_host {
            true => format!("{}: {text}", compact(names)),
            false => format!("{}: {text}", names.concat()),
        };
        lines.into_iter().map(line).collect()
    }

    /// Returns lines of the first warnings.
    fn warning_lines(&self) -> Vec<String> {
        let line = |Warning { names, what, fix, .. }: &Warning| format!("warning: {names}: {what}; fix: {fix}");
        let mut lines: Vec<String> = self.warnings.iter().take(MAX_WARNINGS).map(line).collect();
        let more = self.warnings.len().saturating_sub(MAX_WARNINGS);
        lines.extend((more > 0).then(|| format!("{} in {VERDICT}", count(more, "more warning"))));
        lines
    }

    /// Returns a line of the hosts that were not tested, with the reason for the first, if there are any.
    pub fn not_tested(&self) -> Option<String> {
        let mut names = self.untested_hosts().peekable();
        names.peek()?;
        let untested = self.hosts.iter().find(|host| host.fitness == Fitness::NotTested);
        let reason = untested.and_then(|host| host.evidence.first()).map(|why| format!(": {}", why.text));
        Some(format!("not tested: {}{}", compact(names), reason.unwrap_or_default()))
    }

    /// Returns the names of the stages that are not complete, if there are any.
    pub fn unfinished_stages(&self) -> Option<String> {
        let stages: Vec<String> = self.unfinished.iter().map(Stage::to_string).collect();
        (!stages.is_empty()).then(|| stages.join(", "))
    }

    /// Returns the line of the stages: `stages: alone 4 rounds, 28 jobs, 0.6 min; ..`. `None` without a job.
    fn stage_line(&self) -> Option<String> {
        let text = |of: &StageUse| {
            let time = of.minutes().map(|minutes| format!(", {minutes} min")).unwrap_or_default();
            format!("{} {}, {}{time}", of.stage, count(of.rounds, "round"), count(of.jobs, "job"))
        };
        let stages: Vec<String> = self.stages.iter().map(text).collect();
        (!stages.is_empty()).then(|| format!("stages: {}", stages.join("; ")))
    }

    /// Returns the line of the host that became slowest in the soak; `None` without a soak.
    fn drift_line(&self) -> Option<String> {
        let largest = self.drift.iter().min_by(|one, other| one.speed.total_cmp(&other.speed))?;
        Some(format!("largest drift of {}: {}: {}", count(self.drift.len(), "host"), largest.name, largest.text()))
    }

    /// Returns a line of the hosts that one job can use, if unfit links connect fit hosts.
    pub fn usable_line(&self) -> Option<String> {
        let (usable, left_out) = self.usable_together();
        let names = |hosts: &[usize]| compact(hosts.iter().map(|host| self.hosts[*host].name.as_str()));
        let without: Vec<usize> = left_out.iter().map(|(host, _)| *host).collect();
        (!without.is_empty()).then(|| {
            format!(
                "usable in one job: {}: {}; without {}, because of unfit links",
                count(usable.len(), "host"),
                names(&usable),
                names(&without)
            )
        })
    }

    /// Returns the line for the fleet: `fleet: unfit: 6 of 8 hosts fit, 2 unfit; 22 rounds`.
    pub fn summary(&self) -> String {
        let fit = self.hosts.iter().filter(|host| host.fitness == Fitness::Fit).count();
        let fit = format!("{fit} of {} fit", count(self.hosts.len(), "host"));
        let counts: Vec<String> = [fit].into_iter().chain(self.not_fit()).collect();
        let advice =
            if self.high_limit().is_some() { "; to lower it, end other load on the hosts and repeat" } else { "" };
        let limit =
            |defect| format!("; detection limit {}: a host with a smaller loss may pass{advice}", percent(defect));
        let defect = self.smallest_defect.map(limit);
        let rounds = count(self.rounds, "round");
        format!("fleet: {}: {}; {rounds}{}", self.fitness_text(), counts.join(", "), defect.unwrap_or_default())
    }

    /// Returns the fitness of the fleet: `unfit`, `fit`, or `fit for losses of 41.0 % or more` if only large losses are
    /// detected.
    pub fn fitness_text(&self) -> String {
        match (self.fitness, self.high_limit()) {
            (Fitness::Fit, Some(limit)) => format!("{} for losses of {} or more", self.fitness, percent(limit)),
            _ => self.fitness.to_string(),
        }
    }

    fn high_limit(&self) -> Option<f64> {
        self.smallest_defect.filter(|limit| *limit > MAX_LIMIT)
    }

    /// Returns the numbers of hosts and parts that are not fit: `1 unfit`, `2 links not fit`.
    pub fn not_fit(&self) -> Vec<String> {
        let hosts = |fitness: Fitness| self.hosts.iter().filter(|host| host.fitness == fitness).count();
        let mut counts = Vec::new();
        let others = [(Fitness::Unfit, "unfit"), (Fitness::Suspect, "suspect"), (Fitness::NotTested, "not tested")];
        for (fitness, word) in others {
            counts.extend((hosts(fitness) > 0).then(|| format!("{} {word}", hosts(fitness))));
        }
        for (parts, noun) in [(&self.gpus, "GPU"), (&self.links, "link"), (&self.switches, "switch")] {
            let bad = parts.iter().filter(|part| part.is_bad()).count();
            counts.extend((bad > 0).then(|| match noun {
                "switch" if bad > 1 => format!("{bad} switches not fit"),
                noun => format!("{} not fit", count(bad, noun)),
            }));
        }
        counts
    }

    fn untested_hosts(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().filter(|host| host.fitness == Fitness::NotTested);
        hosts.map(|host| host.name.as_str())
    }
}

impl Judged {
    fn is_bad(&self) -> bool {
        matches!(self.fitness, Fitness::Unfit | Fitness::Suspect)
    }

    /// Returns the most important evidence, and how many more there are.
    pub fn evidence_text(&self) -> String {
        self.with_count(self.evidence.first().map(|first| first.text.clone()))
    }

    /// Returns the same for a table: `matrix-rate 29.4 % less: 422.8 of 599.2 TFLOP/s, 5 measurements, chance 1e-9; 4 more`.
    pub fn table_evidence(&self) -> String {
        let short = |evidence: &Evidence| match (evidence.metric, evidence.typical, evidence.median()) {
            (Some(metric), Some(typical), Some(median)) => format!(
                "{metric} {} less: {} of {} {}, {}{}",
                percent(1.0 - median / typical),
                four_digits(median),
                four_digits(typical),
                metric.unit(),
                count(evidence.values.len(), "measurement"),
                evidence.chance.map(|chance| format!(", chance {chance:.0e}")).unwrap_or_default()
            ),
            _ => evidence.text.clone(),
        };
        self.with_count(self.evidence.first().map(short))
    }

    fn with_count(&self, first: Option<String>) -> String {
        let more = self.evidence.len().saturating_sub(1);
        let more = (more > 0).then(|| format!("{more} more"));
        first.into_iter().chain(more).collect::<Vec<_>>().join("; ")
    }
}

/// Formats `unfit (gpu): EVIDENCE; fix: CURE`.
fn defect(judged: &Judged) -> String {
    let cause = judged.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
    let fix = judged.cure.as_ref().map(|cure| format!("; fix: {cure}")).unwrap_or_default();
    format!("{}{cause}: {}{fix}", judged.fitness, judged.evidence_text())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::accept::fleet::Metric;
    use crate::accept::verdict::{Cause, Subject};
    use crate::dimension::Seconds;
    use crate::stats::random::Random;

    fn judged(subject: Subject, name: &str, fitness: Fitness, why: Option<(Cause, &str, &str)>) -> Judged {
        let evidence = |text: &str| Evidence {
            stage: Stage::Alone,
            metric: Some(Metric::TrainingSpeed),
            values: vec![1.0, 0.9, 1.9],
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
                host(4, Fitness::Unfit, Some((Cause::Facts, reason, "start the host"))),
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
            stages: vec![
                StageUse { stage: Stage::Alone, rounds: 4, jobs: 12, time: Some(Seconds(90.0)) },
                StageUse { stage: Stage::Pairs, rounds: 5, jobs: 1, time: None },
            ],
            warnings: vec![Warning {
                hosts: vec![0, 1],
                names: "n[0-1]".to_owned(),
                what: "memlock: limited to 64 KiB".to_owned(),
                fix: "raise it".to_owned(),
            }],
            drift: Vec::new(),
            unfinished: vec![Stage::Groups, Stage::Whole],
            smallest_defect: Some(0.05),
            lowest_shares: Vec::new(),
        }
    }

    #[test]
    fn worst_parts_come_first_and_the_fleet_last() {
        expect![[r#"
            n[2,4]: unfit (facts): facts: ssh: no route to host; fix: start the host
            n0 GPU 5: unfit (gpu): matrix rate "low"; fix: replace it
            n0 - n3: unfit (link): 1.0 of 12.0 GB/s in 4 measurements; fix: check the cable
            n1: suspect (intermittent): slow in 2 of 9 measurements; fix: watch it
            not tested: n3
            warning: n[0-1]: memlock: limited to 64 KiB; fix: raise it
            not complete: groups, whole
            stages: alone 4 rounds, 12 jobs, 1.5 min; pairs 5 rounds, 1 job
            fleet: unfit: 1 of 5 hosts fit, 2 unfit, 1 suspect, 1 not tested, 1 GPU not fit, 1 link not fit; 9 rounds; detection limit 5.0 %: a host with a smaller loss may pass"#]]
        .assert_eq(&verdict().text());
        let short = verdict().bad_parts()[0].table_evidence();
        assert_eq!(short, "training-speed 50.0 % less: 1.000 of 2.000 samples/s, 3 measurements, chance 1e-6");
        expect!["the fleet is not fit: see the first 4 lines of the verdict"]
            .assert_eq(&verdict().failure().expect("not fit"));
    }

    #[test]
    fn fit_fleet_states_a_high_detection_limit() {
        let fit = |limit| Verdict { fitness: Fitness::Fit, smallest_defect: Some(limit), ..verdict() };
        assert_eq!(fit(0.05).fitness_text(), "fit");
        assert_eq!(fit(0.41).fitness_text(), "fit for losses of 41.0 % or more");
        let summary = fit(0.41).summary();
        let limit = "detection limit 41.0 %: a host with a smaller loss may pass; to lower it, end other load on the hosts and repeat";
        assert!(summary.ends_with(limit), "{summary}");
    }

    #[test]
    fn fit_hosts_without_an_unfit_link_are_usable_together() {
        let link = |one: usize, other: usize| {
            let subject = Subject::Link(one, other);
            judged(subject, &format!("n{one} - n{other}"), Fitness::Unfit, Some((Cause::Link, "slow", "check it")))
        };
        let hosts: Vec<Judged> =
            (0..5).map(|host| judged(Subject::Host(host), &format!("n{host}"), Fitness::Fit, None)).collect();
        let of_links = |links: Vec<Judged>| Verdict { hosts: hosts.clone(), gpus: Vec::new(), links, ..verdict() };
        // Host 2 has both links.
        let star = of_links(vec![link(1, 2), link(2, 4)]);
        expect!["usable in one job: 4 hosts: n[0-1,3-4]; without n2, because of unfit links"]
            .assert_eq(&star.usable_line().expect("a line"));
        let mut one = of_links(vec![link(1, 3)]);
        assert_eq!(one.usable_together().0, [0, 1, 2, 4], "the last one of equal hosts is left out");
        one.lowest_shares = [1.0, 0.83, 1.0, 0.97, 1.0].map(Some).to_vec();
        assert_eq!(one.usable_together().0, [0, 2, 3, 4], "the slower end is left out");
        let star = Verdict { lowest_shares: one.lowest_shares, ..star };
        assert_eq!(star.usable_together().0, [0, 1, 3, 4], "the number of links comes first");
        assert_eq!(of_links(Vec::new()).usable_line(), None);
    }

    /// Random links: no unfit link remains, no host is left out without one, and the names of the hosts do not depend on
    /// their order.
    #[test]
    fn usable_hosts_do_not_depend_on_their_order() {
        const HOSTS: usize = 9;
        let mut random = Random(7);
        for _ in 0..200 {
            let shares: Vec<f64> = (0..HOSTS).map(|_| 1.0 + 0.1 * random.normal()).collect();
            let pairs = (0..HOSTS).flat_map(|one| (0..one).map(move |other| (one, other)));
            let links: Vec<(usize, usize)> = pairs.filter(|_| random.normal() > 1.0).collect();
            let mut order: Vec<usize> = (0..HOSTS).collect();
            let names_in_order = |order: &[usize]| -> (Vec<usize>, Vec<usize>) {
                let place = |host: usize| order.iter().position(|of| *of == host).expect("listed");
                let link = |(one, other): &(usize, usize)| {
                    judged(Subject::Link(place(*one), place(*other)), "link", Fitness::Unfit, None)
                };
                let host = |host: usize| judged(Subject::Host(host), "host", Fitness::Fit, None);
                let verdict = Verdict {
                    hosts: (0..HOSTS).map(host).collect(),
                    gpus: Vec::new(),
                    links: links.iter().map(link).collect(),
                    lowest_shares: order.iter().map(|host| Some(shares[*host])).collect(),
                    ..verdict()
                };
                let (usable, left_out) = verdict.usable_together();
                let mut names = [usable, left_out.iter().map(|(place, _)| *place).collect()];
                for names in &mut names {
                    names.iter_mut().for_each(|place| *place = order[*place]);
                    names.sort_unstable();
                }
                names.into()
            };
            let (usable, left_out) = names_in_order(&order);
            assert!(!links.iter().any(|(one, other)| usable.contains(one) && usable.contains(other)), "{links:?}");
            for host in &left_out {
                assert!(links.iter().any(|(one, other)| [one, other].contains(&host)), "{host} {links:?}");
            }
            assert_eq!(usable.len() + left_out.len(), HOSTS);
            random.shuffle(&mut order);
            assert_eq!(names_in_order(&order), (usable, left_out), "{links:?} {shares:?}");
        }
    }

    #[test]
    fn untested_host_is_a_failure() {
        let (gpus, links) = (Vec::new(), Vec::new());
        let mut part = Verdict { gpus, links, ..verdict() };
        part.hosts.retain(|host| [Fitness::Fit, Fitness::NotTested].contains(&host.fitness));
        expect!["1 host not tested"].assert_eq(&part.failure().expect("not complete"));
        part.hosts.truncate(1);
        expect!["not complete: groups, whole"].assert_eq(&part.failure().expect("not complete"));
        part.unfinished.clear();
        assert_eq!(part.failure(), None);
    }
}

//! Checks of the network between the hosts: interface and links.

use ringmark_core::dimension::GigabytesPerSecond;

use crate::launch::cluster::interface::CommonNetwork;
use crate::launch::doctor::checks::finding::{Check, Finding, Findings, Outlier, outliers};
use crate::launch::doctor::host::HostFacts;
use crate::launch::doctor::links::{self, Link, LinkState};

/// Checks the links between the hosts. `network` has one place for each host number in `present`, in the same order.
pub fn check_links(hosts: &[HostFacts], network: &CommonNetwork, present: &[usize], links: &[Link]) -> Vec<Finding> {
    let mut findings = Findings { hosts, found: Vec::new() };
    let name = |number: usize| hosts[number].host.as_str();
    let place = |number: usize| present.binary_search(&number).ok().map(|index| &network.places[index]);
    let interface = |number: usize| place(number).map_or("", |place| place.interface.as_str());

    let rate = |(number, host): (usize, &HostFacts)| {
        let name = interface(number);
        let interfaces = &host.inspection.as_ref()?.interfaces;
        Some((number, interfaces.iter().find(|interface| interface.name == name)?.link_megabits?))
    };
    let rates: Vec<(usize, _)> = hosts.iter().enumerate().filter_map(rate).collect();
    for Outlier { number, value, usual, most } in outliers(&rates) {
        let what = format!("link on {} runs at {value} Mbit/s; {most} have {usual} Mbit/s", interface(number));
        let fix = "check cable and switch port, then the negotiated speed: ethtool";
        findings.warning(number, Check::Speed, what, fix);
    }

    let closed: Vec<(&Link, &String)> = links
        .iter()
        .filter_map(|link| match &link.state {
            LinkState::Closed(reason) => Some((link, reason)),
            LinkState::Open { .. } => None,
        })
        .collect();
    let pairs: Vec<(usize, usize)> = closed.iter().map(|(link, _)| (link.from, link.to)).collect();
    for (number, indices) in links::blame(&pairs) {
        let describe = |index: &usize| {
            let (link, reason) = closed[*index];
            format!("{} to {} ({reason})", name(link.from), name(link.to))
        };
        let what =
            format!("no connection on {network}: {}", indices.iter().map(describe).collect::<Vec<_>>().join(", "));
        let fix = "open all ports between the hosts (firewall, security group), or choose the network that connects \
            them with --interface";
        findings.error(number, Check::Links, what, fix);
    }

    for link in links {
        if let LinkState::Open { detour: Some(address), .. } = link.state {
            let what = format!(
                "packets to {} leave from {address}, not from {} ({})",
                name(link.to),
                interface(link.from),
                place(link.from).map_or(String::new(), |place| place.address.to_string())
            );
            let fix = "two interfaces are in the same network: put each in its own network, or check `ip route get`";
            findings.warning(link.from, Check::Links, what, fix);
        }
    }

    let slow: Vec<&Link> = links::slow_links(links).into_iter().map(|number| &links[number]).collect();
    let pairs: Vec<(usize, usize)> = slow.iter().map(|link| (link.from, link.to)).collect();
    let usual = links::typical_speed(links).unwrap_or_default();
    for (number, indices) in links::blame(&pairs) {
        let describe = |index: &usize| {
            let link = slow[*index];
            let speed = match link.state {
                LinkState::Open { speed: Some(speed), .. } => speed,
                _ => GigabytesPerSecond::default(),
            };
            format!("{} to {} {speed:.3}", name(link.from), name(link.to))
        };
        let slow_pairs: Vec<String> = indices.iter().map(describe).collect();
        let what = format!("slow links: {}; a quarter of all links reach {usual:.3} or more", slow_pairs.join(", "));
        let fix = "check cable, port and duplex (ethtool), other traffic, and the MTU: ping -M do -s 8972";
        findings.warning(number, Check::Speed, what, fix);
    }
    findings.found
}

/// Returns the finding for a host that does not have the chosen interface.
pub fn wrong_interface(hosts: &[HostFacts], number: usize, what: String) -> Finding {
    let mut findings = Findings { hosts, found: Vec::new() };
    let fix = "set --interface to a name that all hosts have, or to their common network, such as 10.77.0.0/24";
    findings.error(number, Check::Interface, what, fix);
    findings.found.remove(0)
}

/// Returns the finding that `setting` on host `number` conflicts with `--interface`.
pub fn conflicting_interface(hosts: &[HostFacts], number: usize, setting: &str) -> Finding {
    let mut findings = Findings { hosts, found: Vec::new() };
    let what = format!("Open MPI does not accept --interface together with {setting}");
    let fix = "remove that setting, or omit --interface";
    findings.error(number, Check::Interface, what, fix);
    findings.found.remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    fn link_findings(hosts: &[HostFacts], links: &[Link]) -> Vec<(String, Check, Severity, String)> {
        let present: Vec<usize> = (0..hosts.len()).collect();
        let findings = check_links(hosts, &network(hosts.len() as u8), &present, links);
        findings.into_iter().map(|found| (found.host, found.check, found.severity, found.what)).collect()
    }

    #[test]
    fn closed_link_is_reported_with_both_hosts() {
        let closed = |from, to| Link { from, to, state: LinkState::Closed("no answer within 3 s".to_owned()) };
        let links = [open(0, 1, None), closed(1, 2), closed(2, 0)];
        let what = "no connection on eth0, 10.77.0.0/24: b to c (no answer within 3 s), c to a (no answer within 3 s)";
        assert_eq!(
            link_findings(&hosts(3), &links),
            [("c".to_owned(), Check::Links, Severity::Error, what.to_owned())]
        );
    }

    #[test]
    fn slow_links_are_attributed_to_their_host() {
        for count in 3..6 {
            let bad = count - 1;
            let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            let speed = |from, to| if from == bad || to == bad { 0.012 } else { 0.118 };
            let links = pairs.filter(|(from, to)| from != to).map(|(from, to)| open(from, to, Some(speed(from, to))));
            let found = link_findings(&hosts(count as u8), &links.collect::<Vec<_>>());
            let [(host, Check::Speed, Severity::Warning, what)] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(host, ["c", "d", "e"][bad - 2]);
            assert!(what.starts_with(&format!("slow links: a to {host} 0.012 GB/s, ")), "{what}");
        }
    }

    #[test]
    fn slow_link_rate_and_detour_are_reported() {
        let mut hosts = hosts(3);
        inspection(&mut hosts, 1).interfaces[0].link_megabits = Some(100);
        let detour = Some(Ipv4Addr::new(10, 1, 0, 1));
        let state = LinkState::Open { latency: Seconds(0.00002), speed: None, detour };
        let found = link_findings(&hosts, &[Link { from: 0, to: 1, state }]);
        let what: Vec<(&str, &str)> = found.iter().map(|found| (found.0.as_str(), found.3.as_str())).collect();
        assert_eq!(
            what,
            [
                ("b", "link on eth0 runs at 100 Mbit/s; 2 of 3 hosts have 10000 Mbit/s"),
                ("a", "packets to b leave from 10.1.0.1, not from eth0 (10.77.0.1)"),
            ]
        );
    }
}

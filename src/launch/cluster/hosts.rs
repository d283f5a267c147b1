//! Hosts of a sweep and the number of ranks on each.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use ringmark_core::dimension::{Case, DeviceChoice};
use ringmark_core::host::host_list::{compact, items};
use ringmark_core::number_text::count;

/// Source of a list of hosts, as error messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSource {
    /// This machine, because no hosts are given.
    Default,
    /// Option `--hosts`.
    List,
    /// File of hosts.
    Hostfile(PathBuf),
    /// Job of a scheduler.
    Scheduler {
        /// Name of the job.
        job: String,
        /// Advice for getting more hosts.
        request: &'static str,
    },
}

impl fmt::Display for HostSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostSource::Default => formatter.write_str("the default (this machine)"),
            HostSource::List => formatter.write_str("--hosts"),
            HostSource::Hostfile(path) => write!(formatter, "the hostfile {}", path.display()),
            HostSource::Scheduler { job, .. } => formatter.write_str(job),
        }
    }
}

/// Number of host names in a message; the others are counted.
const MAX_NAMED: usize = 3;

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address for mpirun.
    pub name: String,
    /// Ranks on the host: GPUs, or equal shares of the CPU. At least 1, or 0 for a host that only runs servers.
    pub slots: u32,
}

impl fmt::Display for Host {
    /// Formats as in `--hosts`: `a:8`, or `s` for a host of servers alone.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slots {
            0 => formatter.write_str(&self.name),
            slots => write!(formatter, "{}:{slots}", self.name),
        }
    }
}

/// Returns `hosts`, followed by those of `server_hosts` that are not among them, with 0 slots.
pub fn with_server_hosts(hosts: &[Host], server_hosts: &[String]) -> Vec<Host> {
    let mut known: HashSet<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let others = server_hosts.iter().filter(|name| known.insert(name));
    hosts.iter().cloned().chain(others.map(|name| Host { name: name.clone(), slots: 0 })).collect()
}

/// Joins hosts and their slots as in `--hosts`: `node[01-64]:8,login:4`.
pub fn compact_with_slots<'a>(hosts: impl IntoIterator<Item = (&'a str, u32)>) -> String {
    let hosts: Vec<(&str, u32)> = hosts.into_iter().collect();
    let alike = hosts.chunk_by(|(_, slots), (_, next)| slots == next).flat_map(|alike| {
        let names = compact(alike.iter().map(|(name, _)| *name));
        items(&names).map(|name| format!("{name}:{}", alike[0].1)).collect::<Vec<_>>()
    });
    alike.collect::<Vec<_>>().join(",")
}

/// Hosts of a sweep in the order in which they are used, without duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    source: HostSource,
    hosts: Vec<Host>,
}

impl Hosts {
    /// Returns this machine alone, as `localhost`, which mpirun never reaches over ssh.
    pub fn this_machine(slots: u32) -> Hosts {
        Hosts { source: HostSource::Default, hosts: vec![Host { name: "localhost".to_owned(), slots }] }
    }

    /// Returns hosts from `source`. Rejects duplicate names.
    pub fn named(source: HostSource, hosts: Vec<Host>) -> anyhow::Result<Hosts> {
        let mut known = HashSet::new();
        for host in &hosts {
            if !known.insert(host.name.as_str()) {
                bail!("{source} lists host {} twice: list it once, with all its slots", host.name);
            }
        }
        Ok(Hosts { source, hosts })
    }

    /// Returns the hosts of the scheduler's `job`; `request` is the advice for getting more.
    pub fn allocated(job: String, request: &'static str, hosts: Vec<Host>) -> anyhow::Result<Hosts> {
        ensure!(!hosts.is_empty(), "{job} has no hosts");
        Hosts::named(HostSource::Scheduler { job, request }, hosts)
    }

    /// Returns the hosts in the order of `names`, followed by those that are not among them.
    pub fn sorted_like(mut self, names: &[String]) -> Hosts {
        let places: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
        self.hosts.sort_by_key(|host| places.get(host.name.as_str()).copied().unwrap_or(usize::MAX));
        self
    }

    /// Returns the advice for getting more hosts from the scheduler, if it chose them.
    fn request(&self) -> Option<&'static str> {
        match self.source {
            HostSource::Scheduler { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Rejects hosts that are not in `allocation`, and more slots than it has there.
    pub fn check_within(&self, allocation: &Hosts) -> anyhow::Result<()> {
        let (source, given) = (&self.source, &allocation.source);
        let there: HashMap<&str, &Host> = allocation.hosts.iter().map(|host| (host.name.as_str(), host)).collect();
        for Host { name, slots } in &self.hosts {
            let Some(there) = there.get(name.as_str()) else {
                bail!(
                    "{source} lists host {name}, but {given} has {}: omit {source}, or choose from these",
                    compact(allocation.hosts.iter().map(|host| host.name.as_str()))
                );
            };
            ensure!(
                *slots <= there.slots,
                "{source} gives host {name} {slots} slots, but {given} has {}: omit {source}, or {}",
                there.slots,
                allocation.request().unwrap_or("choose fewer"),
            );
        }
        Ok(())
    }

    /// True if the user named no host.
    pub fn is_default(&self) -> bool {
        self.source == HostSource::Default
    }

    /// Lists the hosts that run neither ranks of `cases` nor servers, with the case that would use them: `no case
    /// uses c: add 3n8g to --cases, or remove it from --hosts`.
    pub fn unused_line(&self, cases: &[Case], server_hosts: &[String]) -> Option<String> {
        let used = cases.iter().map(|case| self.for_case(*case).len()).max().unwrap_or(0);
        let unused = self.hosts[used..].iter().filter(|host| !server_hosts.contains(&host.name));
        let unused: Vec<&str> = unused.map(|host| host.name.as_str()).collect();
        let names = match unused.len() {
            0 => return None,
            1..=MAX_NAMED => unused.join(", "),
            _ => compact(unused.iter().copied()),
        };
        let them = if unused.len() == 1 { "it" } else { "them" };
        // The user cannot remove a scheduler's hosts.
        let removal = match self.request() {
            None => format!(", or remove {them} from {}", self.source),
            Some(_) => String::new(),
        };
        Some(format!("warning: no case uses {names}: add {} to --cases{removal}", self.full_case()))
    }

    /// Returns every host.
    pub fn all(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the hosts that `case` uses: the first of the list. There are fewer than it needs if it does not fit.
    pub fn for_case(&self, case: Case) -> &[Host] {
        let count = self.hosts.len().min(case.nodes as usize);
        &self.hosts[..count]
    }

    /// Returns the same hosts with `spare` in the place of the host named `lost`.
    pub fn with_spare(&self, lost: &str, spare: &Host) -> Hosts {
        let replace = |host: &Host| if host.name == lost { spare.clone() } else { host.clone() };
        Hosts { source: self.source.clone(), hosts: self.hosts.iter().map(replace).collect() }
    }

    /// Returns the case that uses every host, each with as many ranks as the smallest of them takes.
    pub fn full_case(&self) -> Case {
        let smallest = self.hosts.iter().map(|host| host.slots).min().unwrap_or(1);
        Case { nodes: u32::try_from(self.hosts.len()).unwrap_or(u32::MAX), gpus_per_node: smallest }
    }

    /// Returns true if `case` fits these hosts.
    pub fn can_run(&self, case: Case) -> bool {
        self.misfit(case).is_none()
    }

    /// Rejects the cases that do not fit, in one message that also lists the cases that do. Ranks on `device` may share
    /// cores, but not GPUs.
    pub fn check(&self, cases: &[Case], device: DeviceChoice) -> anyhow::Result<()> {
        let misfits: Vec<(MissingCapacity, String)> = cases.iter().filter_map(|case| self.misfit(*case)).collect();
        if misfits.is_empty() {
            return Ok(());
        }
        let mut fixes: Vec<String> = self.request().into_iter().map(str::to_owned).collect();
        let lacks = |wanted| self.request().is_none() && misfits.iter().any(|(misfit, _)| *misfit == wanted);
        let wanted = self.fitting_host_list(cases);
        // A hostfile together with --hosts is rejected.
        let instead = match self.source {
            HostSource::Hostfile(_) => "add hosts or slots to the file, or ",
            _ => "",
        };
        if lacks(MissingCapacity::Hosts) {
            fixes.push(format!("{instead}use --hosts {wanted}"));
        } else if lacks(MissingCapacity::Slots) {
            let too_small = cases.iter().filter(|case| !self.can_run(**case)).flat_map(|case| self.for_case(*case));
            let most = too_small.map(|host| host.slots).min().unwrap_or(1);
            fixes.push(match device {
                DeviceChoice::Cpu => format!("{instead}use --hosts {wanted} to oversubscribe cores"),
                DeviceChoice::Auto => {
                    format!("{instead}use --hosts {wanted} to oversubscribe cores, on hosts without GPUs")
                }
                DeviceChoice::Cuda => {
                    format!("{instead}choose cases with at most {}, one per GPU", count(most, "rank") + " per host")
                }
            });
        }
        let fitting: Vec<String> = cases.iter().filter(|case| self.can_run(**case)).map(Case::to_string).collect();
        if !fitting.is_empty() {
            fixes.push(format!("choose --cases {}", fitting.join(",")));
        }
        let faults: Vec<String> = misfits.into_iter().map(|(_, fault)| fault).collect();
        bail!("{}: {}", faults.join("\n"), fixes.join(", or "))
    }

    /// Returns a host list that all these cases would fit, in command-line form: the existing hosts, and placeholders.
    fn fitting_host_list(&self, cases: &[Case]) -> String {
        let nodes = cases.iter().map(|case| case.nodes as usize).max().unwrap_or(1);
        let slots = |host: usize| {
            let wanted = cases.iter().filter(|case| host < case.nodes as usize).map(|case| case.gpus_per_node);
            wanted.chain(self.hosts.get(host).map(|host| host.slots)).max().unwrap_or(1)
        };
        let name =
            |host: usize| self.hosts.get(host).map_or_else(|| format!("HOST{}", host + 1), |host| host.name.clone());
        let hosts: Vec<(String, u32)> =
            (0..nodes.max(self.hosts.len())).map(|host| (name(host), slots(host))).collect();
        compact_with_slots(hosts.iter().map(|(name, slots)| (name.as_str(), *slots)))
    }

    fn misfit(&self, case: Case) -> Option<(MissingCapacity, String)> {
        let Hosts { source, hosts, .. } = self;
        if hosts.len() < case.nodes as usize {
            let fault = format!("case {case} needs {} hosts, {source} has {}", case.nodes, hosts.len());
            return Some((MissingCapacity::Hosts, fault));
        }
        let small = self.for_case(case).iter().find(|host| host.slots < case.gpus_per_node)?;
        let fault =
            format!("case {case} needs {} slots per host, but {} has {}", case.gpus_per_node, small.name, small.slots);
        Some((MissingCapacity::Slots, fault))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingCapacity {
    Hosts,
    Slots,
}

#[cfg(test)]
impl Hosts {
    /// Parses a list such as `a:8,b:8`.
    pub fn parse_list(text: &str) -> anyhow::Result<Hosts> {
        crate::launch::cluster::typed_hosts::TypedHosts::parse(text)?.into_hosts_with_slots()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::options::keyword_enum::KeywordEnum;

    use super::*;

    fn cases(text: &str) -> Vec<Case> {
        text.split(',').map(|word| word.parse().expect("a case")).collect()
    }

    #[test]
    fn hosts_are_sorted_like_an_allocation() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let sorted = Hosts::parse_list("x:1,c:1,a:2,y:1").expect("hosts").sorted_like(&names);
        assert_eq!(sorted.all().iter().map(Host::to_string).collect::<Vec<_>>(), ["a:2", "c:1", "x:1", "y:1"]);
    }

    #[test]
    fn server_hosts_are_listed_once_without_slots() {
        let hosts = Hosts::parse_list("a:8,b:8").expect("a list");
        let servers = ["b", "s", "t", "s"].map(str::to_owned);
        let all = with_server_hosts(hosts.all(), &servers);
        let named: Vec<(&str, u32)> = all.iter().map(|host| (host.name.as_str(), host.slots)).collect();
        assert_eq!(named, [("a", 8), ("b", 8), ("s", 0), ("t", 0)]);
    }

    #[test]
    fn case_uses_the_first_hosts() {
        let hosts = Hosts::parse_list("a:8,b:8,c:4").expect("a list");
        assert_eq!(hosts.for_case("2n4g".parse().expect("a case")).len(), 2);
        for (case, fit) in [("1n8g", true), ("2n8g", true), ("3n4g", true), ("3n8g", false), ("4n1g", false)] {
            assert_eq!(hosts.can_run(case.parse().expect("a case")), fit, "{case}");
        }
    }

    #[test]
    fn unused_hosts_are_listed_in_one_line() {
        let line = |hosts: &str, list: &str, servers: &[&str]| {
            let servers: Vec<String> = servers.iter().map(|name| (*name).to_owned()).collect();
            Hosts::parse_list(hosts).expect("a list").unused_line(&cases(list), &servers)
        };
        assert_eq!(line("a:8,b:8", "1n1g,2n8g", &[]), None);
        expect!["warning: no case uses c: add 3n8g to --cases, or remove it from --hosts"]
            .assert_eq(&line("a:8,b:8,c:8", "1n1g,2n8g", &[]).expect("a line"));
        assert_eq!(line("a:8,b:8,c:8", "1n1g,2n8g", &["c"]), None);
        expect!["warning: no case uses n[2-6]: add 6n1g to --cases, or remove them from --hosts"]
            .assert_eq(&line("n[1-6]:1", "1n1g", &[]).expect("a line"));
        let allocated = Hosts::parse_list("a:8,b:8").expect("a list").hosts;
        let allocated = Hosts::allocated("the allocation".to_owned(), "ask for more", allocated).expect("hosts");
        let line = allocated.unused_line(&cases("1n8g"), &[]).expect("a line");
        expect!["warning: no case uses b: add 2n8g to --cases"].assert_eq(&line);
    }

    #[test]
    fn full_case_uses_the_smallest_slot_count() {
        let hosts = Hosts::parse_list("a:8,b:8,c:4").expect("a list");
        assert_eq!(hosts.full_case().to_string(), "3n4g");
        assert_eq!(Hosts::this_machine(2).full_case().to_string(), "1n2g");
    }

    #[test]
    fn cases_that_do_not_fit_are_listed_with_a_fix() {
        let source = HostSource::Hostfile(PathBuf::from("nodes"));
        let hosts = Hosts { source, ..Hosts::parse_list("a:8").expect("a list") };
        let error = hosts.check(&cases("1n1g,1n8g,2n8g"), DeviceChoice::Auto).expect_err("does not fit").to_string();
        expect!["case 2n8g needs 2 hosts, the hostfile nodes has 1: add hosts or slots to the file, or use --hosts a:8,HOST2:8, or choose --cases 1n1g,1n8g"].assert_eq(&error);
        let error = Hosts::this_machine(2)
            .check(&cases("1n4g,2n8g"), DeviceChoice::Auto)
            .expect_err("does not fit")
            .to_string();
        expect![[r"
            case 1n4g needs 4 slots per host, but localhost has 2
            case 2n8g needs 2 hosts, the default (this machine) has 1: use --hosts localhost:8,HOST2:8"]]
        .assert_eq(&error);
        hosts.check(&cases("1n1g,1n8g"), DeviceChoice::Auto).expect("cases fit");
        let many = Hosts::parse_list("node[1-64]:8,login:4").expect("a list");
        let error = many.check(&cases("64n9g,67n1g"), DeviceChoice::Auto).expect_err("does not fit").to_string();
        expect![[r#"
            case 64n9g needs 9 slots per host, but node1 has 8
            case 67n1g needs 67 hosts, --hosts has 65: use --hosts node[1-64]:9,login:4,HOST[66-67]:1"#]]
        .assert_eq(&error);
        let errors = DeviceChoice::ALL.iter().map(|device| many.check(&cases("64n9g"), *device).expect_err("9 ranks"));
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        expect![[r#"
            case 64n9g needs 9 slots per host, but node1 has 8: use --hosts node[1-64]:9,login:4 to oversubscribe cores, on hosts without GPUs
            case 64n9g needs 9 slots per host, but node1 has 8: use --hosts node[1-64]:9,login:4 to oversubscribe cores
            case 64n9g needs 9 slots per host, but node1 has 8: choose cases with at most 8 ranks per host, one per GPU"#]].assert_eq(&errors.join("\n"));
    }
}

//! Selects the network between the hosts: parses the user's choice, or ranks the candidates. Pure; connectivity is
//! measured elsewhere.

use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use anyhow::{anyhow, ensure};
use ipnet::Ipv4Net;
use ringmark_core::host::inspection;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::local::environment::is_internal;

/// A network interface, by name or by the network of its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterfaceChoice {
    /// Interface name such as `ib0`, the same on every host.
    Name(String),
    /// Network such as `10.77.0.0/24`, regardless of the interface's name on each host.
    Network(Ipv4Net),
}

impl FromStr for InterfaceChoice {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<InterfaceChoice> {
        if text.contains('/') {
            let network = text.parse::<Ipv4Net>();
            let network = network.map_err(|_| anyhow!("{text:?} is not a network: write it as 10.77.0.0/24"))?;
            return Ok(InterfaceChoice::Network(network.trunc()));
        }
        // The kernel's rule for interface names.
        let is_name = (1..=15).contains(&text.len()) && !text.contains([':', ',', '=', '^']);
        ensure!(
            is_name && !text.contains(char::is_whitespace),
            "{text:?} is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24"
        );
        Ok(InterfaceChoice::Name(text.to_owned()))
    }
}

impl fmt::Display for InterfaceChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceChoice::Name(name) => formatter.pad(name),
            InterfaceChoice::Network(network) => formatter.pad(&network.to_string()),
        }
    }
}

/// Networks of one host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostNetworks<'a> {
    /// Host name as the user gave it.
    pub host: &'a str,
    /// All interfaces.
    pub interfaces: &'a [inspection::Interface],
    /// Address that its name resolves to, if known.
    pub reached_at: Option<Ipv4Addr>,
}

/// A network that every host belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CommonNetwork {
    /// Network of all addresses; `None` if they are not in one network.
    #[schemars(with = "Option<String>")]
    pub network: Option<Ipv4Net>,
    /// Interface and address of each host, in the order of the hosts.
    pub places: Vec<HostAddress>,
    /// True if the hosts' names resolve to these addresses.
    pub is_named: bool,
}

/// A host's interface and address in a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostAddress {
    /// Name of the interface.
    pub interface: String,
    /// Address of the interface.
    pub address: Ipv4Addr,
}

impl CommonNetwork {
    /// Returns the value for mpirun and NCCL: the interface name if it is the same everywhere, otherwise the network.
    pub fn interface(&self) -> Option<InterfaceChoice> {
        let first = &self.places.first()?.interface;
        let is_common = self.places.iter().all(|place| place.interface == *first);
        if is_common { Some(InterfaceChoice::Name(first.clone())) } else { self.network.map(InterfaceChoice::Network) }
    }
}

impl fmt::Display for CommonNetwork {
    /// Formats as `eth0, 10.77.0.0/24`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&str> = self.places.iter().map(|place| place.interface.as_str()).collect();
        names.dedup();
        formatter.write_str(&names.join("/"))?;
        self.network.map_or(Ok(()), |network| write!(formatter, ", {network}"))
    }
}

/// Returns every network in which all `hosts` have distinct addresses, the best first: the one that the hosts' names
/// resolve to, then the fastest. Networks internal to a host do not count, unless its name resolves there. If the
/// prefixes show no common network, an interface with the same name on all hosts is a candidate.
pub fn candidates(hosts: &[HostNetworks]) -> Vec<CommonNetwork> {
    let mut networks: Vec<Ipv4Net> =
        hosts.iter().flat_map(|host| external_addresses(host).map(|(_, net)| net.trunc())).collect();
    networks.sort();
    networks.dedup();
    let mut found: Vec<CommonNetwork> = networks
        .into_iter()
        .filter_map(|network| common(hosts, Some(network), |_, address| network.contains(&address.addr())))
        .collect();
    if found.is_empty() {
        let mut names: Vec<&str> =
            hosts.iter().flat_map(|host| external_addresses(host).map(|(name, _)| name.name.as_str())).collect();
        names.sort_unstable();
        names.dedup();
        found =
            names.into_iter().filter_map(|name| common(hosts, None, |interface, _| interface.name == name)).collect();
    }
    let slowest = |network: &CommonNetwork| {
        let link = |(host, place): (&HostNetworks, &HostAddress)| {
            host.interfaces.iter().find(|interface| interface.name == place.interface)?.link_megabits
        };
        hosts.iter().zip(&network.places).map(link).min().flatten()
    };
    // A stable sort keeps the order of equals.
    found.sort_by_key(|network| (!network.is_named, std::cmp::Reverse(slowest(network))));
    // One network may appear with several prefixes.
    let mut distinct: Vec<CommonNetwork> = Vec::new();
    for network in found {
        if !distinct.iter().any(|earlier| earlier.places == network.places) {
            distinct.push(network);
        }
    }
    distinct
}

/// Returns the addresses of `host` on interfaces that lead out of it.
fn external_addresses<'a>(host: &'a HostNetworks) -> impl Iterator<Item = (&'a inspection::Interface, &'a Ipv4Net)> {
    let pairs = host
        .interfaces
        .iter()
        .flat_map(|interface| interface.addresses.iter().map(move |address| (interface, address)));
    pairs.filter(|(interface, address)| {
        let is_internal = interface.is_bridge || is_internal(&interface.name);
        interface.is_up && !interface.is_loopback && (!is_internal || host.reached_at == Some(address.addr()))
    })
}

/// Returns the names, without duplicates, of interfaces with an address that lead into a host but not out of it. MPI
/// would use them as well.
pub fn internal_interfaces<'a>(hosts: &[HostNetworks<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = hosts
        .iter()
        .flat_map(|host| {
            let is_open = |name: &str| external_addresses(host).any(|(interface, _)| interface.name == name);
            let others = host.interfaces.iter().filter(|interface| interface.is_up && !interface.is_loopback);
            others.filter(move |interface| !interface.addresses.is_empty() && !is_open(&interface.name))
        })
        .map(|interface| interface.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the network of the addresses that `is_in` accepts, if every host has a distinct one.
fn common(
    hosts: &[HostNetworks],
    network: Option<Ipv4Net>,
    is_in: impl Fn(&inspection::Interface, &Ipv4Net) -> bool,
) -> Option<CommonNetwork> {
    let place = |host: &HostNetworks| {
        let (interface, address) = external_addresses(host).find(|(interface, address)| is_in(interface, address))?;
        Some(HostAddress { interface: interface.name.clone(), address: address.addr() })
    };
    let places: Vec<HostAddress> = hosts.iter().map(place).collect::<Option<_>>()?;
    shared_address(&places).is_none().then(|| CommonNetwork { network, is_named: are_named(hosts, &places), places })
}

/// Returns true if the hosts' names, as far as their addresses are known, resolve to `places`.
fn are_named(hosts: &[HostNetworks], places: &[HostAddress]) -> bool {
    let mut known =
        hosts.iter().zip(places).filter_map(|(host, place)| Some((host.reached_at?, place.address))).peekable();
    known.peek().is_some() && known.all(|(reached, address)| reached == address)
}

/// Returns two hosts, by index, that have the same address.
fn shared_address(places: &[HostAddress]) -> Option<(usize, usize)> {
    let mut known: HashMap<Ipv4Addr, usize> = HashMap::new();
    places.iter().enumerate().find_map(|(second, place)| Some((known.insert(place.address, second)?, second)))
}

/// A fault of a host's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFault {
    /// Index of the host in the list that was examined.
    pub host: usize,
    /// Description of the fault, and of what the host has.
    pub what: String,
}

/// Returns the network that the user named, or a fault for every host that is not in it, with the alternatives.
pub fn resolve(interface: &InterfaceChoice, hosts: &[HostNetworks]) -> Result<CommonNetwork, Vec<NetworkFault>> {
    let place = |host: &HostNetworks| {
        let matches = |found: &&inspection::Interface| match interface {
            InterfaceChoice::Name(name) => found.name == *name,
            InterfaceChoice::Network(network) => {
                found.addresses.iter().any(|address| network.contains(&address.addr()))
            }
        };
        let found = host.interfaces.iter().find(matches);
        let available = || format!("available: {}", describe_interfaces(host.interfaces));
        let Some(found) = found else {
            return Err(match interface {
                InterfaceChoice::Name(name) => format!("interface {name} not found; {}", available()),
                InterfaceChoice::Network(network) => {
                    format!("no interface has an address in {network}; {}", available())
                }
            });
        };
        let is_in = |address: &&Ipv4Net| match interface {
            InterfaceChoice::Name(_) => true,
            InterfaceChoice::Network(network) => network.contains(&address.addr()),
        };
        let name = &found.name;
        match found.addresses.iter().find(is_in) {
            _ if !found.is_up => Err(format!("interface {name} is down; {}", available())),
            None => Err(format!("interface {name} has no IPv4 address; {}", available())),
            Some(_) if found.is_loopback && hosts.len() > 1 => {
                Err(format!("interface {name} only reaches the host itself; {}", available()))
            }
            Some(address) => Ok(HostAddress { interface: name.clone(), address: address.addr() }),
        }
    };
    let (mut places, mut faults) = (Vec::new(), Vec::new());
    for (index, host) in hosts.iter().enumerate() {
        match place(host) {
            Ok(place) => places.push(place),
            Err(what) => faults.push(NetworkFault { host: index, what }),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    if let Some((first, second)) = shared_address(&places) {
        let HostAddress { interface, address } = &places[second];
        let (first, interfaces) = (hosts[first].host, describe_interfaces(hosts[second].interfaces));
        let what = format!(
            "interface {interface} has address {address} on host {first} too, so it is local to each host; \
             available: {interfaces}"
        );
        return Err(vec![NetworkFault { host: second, what }]);
    }
    let network = match interface {
        InterfaceChoice::Network(network) => Some(*network),
        InterfaceChoice::Name(_) => None,
    };
    Ok(CommonNetwork { network, is_named: are_named(hosts, &places), places })
}

/// Formats every interface with its addresses: `eth0 10.77.0.2/24, lo 127.0.0.1/8`.
pub fn describe_interfaces(interfaces: &[inspection::Interface]) -> String {
    let describe = |interface: &inspection::Interface| {
        let mut parts = vec![interface.name.clone()];
        parts.extend(interface.addresses.iter().map(Ipv4Net::to_string));
        parts.extend((!interface.is_up).then(|| "(down)".to_owned()));
        parts.join(" ")
    };
    let all: Vec<String> = interfaces.iter().map(describe).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn interface(name: &str, addresses: &[&str]) -> inspection::Interface {
        inspection::Interface {
            name: name.to_owned(),
            addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
            is_up: true,
            is_loopback: name == "lo",
            ..inspection::Interface::default()
        }
    }

    /// A host's interfaces other than the loopback that all have, and the address that its name resolves to.
    type Given<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);

    fn with<T>(given: &[Given], use_it: impl FnOnce(&[HostNetworks]) -> T) -> T {
        let all: Vec<Vec<inspection::Interface>> = given
            .iter()
            .map(|(pairs, _)| {
                let others = pairs.iter().map(|(name, address)| interface(name, &[address]));
                others.chain([interface("lo", &["127.0.0.1/8"])]).collect()
            })
            .collect();
        let names = ["a", "b", "c"];
        let hosts: Vec<HostNetworks> = given
            .iter()
            .zip(&all)
            .zip(names)
            .map(|(((_, reached_at), interfaces), host)| HostNetworks {
                host,
                interfaces,
                reached_at: reached_at.map(|address| address.parse().expect("one")),
            })
            .collect();
        use_it(&hosts)
    }

    fn names(given: &[Given]) -> Vec<String> {
        with(given, |hosts| candidates(hosts).iter().map(CommonNetwork::to_string).collect())
    }

    #[test]
    fn interface_is_a_name_or_a_network() {
        let parse = |text: &str| text.parse::<InterfaceChoice>();
        assert_eq!(parse("ib0").expect("a name"), InterfaceChoice::Name("ib0".to_owned()));
        let network = parse("10.77.0.9/24").expect("a network");
        assert_eq!(network.to_string(), "10.77.0.0/24");
        let names = ["", "ib0,ib1", "=ib0", "^docker0", "an interface", "a-name-of-16-let"];
        let networks = ["10.77.0.0/33", "eth0/24", "fe80::1/64"];
        let errors = names.into_iter().chain(networks).map(|text| parse(text).expect_err(text).to_string());
        expect![[r#"
            "" is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24
            "ib0,ib1" is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24
            "=ib0" is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24
            "^docker0" is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24
            "an interface" is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24
            "a-name-of-16-let" is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24
            "10.77.0.0/33" is not a network: write it as 10.77.0.0/24
            "eth0/24" is not a network: write it as 10.77.0.0/24
            "fe80::1/64" is not a network: write it as 10.77.0.0/24"#]]
        .assert_eq(&errors.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn network_of_the_host_names_comes_first() {
        let a: &[(&str, &str)] = &[("docker0", "172.17.0.1/16"), ("eth0", "10.1.0.1/24"), ("ib0", "10.2.0.1/16")];
        let b: &[(&str, &str)] = &[("docker0", "172.17.0.1/16"), ("eth0", "10.1.0.2/24"), ("ib0", "10.2.0.2/16")];
        assert_eq!(names(&[(a, Some("10.1.0.1")), (b, Some("10.1.0.2"))]), ["eth0, 10.1.0.0/24", "ib0, 10.2.0.0/16"]);
        assert_eq!(names(&[(a, None), (b, Some("10.2.0.2"))]), ["ib0, 10.2.0.0/16", "eth0, 10.1.0.0/24"]);
        with(&[(a, None), (b, None)], |hosts| {
            let found = candidates(hosts);
            assert_eq!(found[0].interface(), Some(InterfaceChoice::Name("eth0".to_owned())));
            assert!(!found[0].is_named);
        });
    }

    #[test]
    fn fastest_network_comes_first_without_names() {
        let slow = interface("eth0", &["10.1.0.1/24"]);
        let fast = inspection::Interface { link_megabits: Some(100_000), ..interface("ib0", &["10.2.0.1/24"]) };
        let others = [interface("eth0", &["10.1.0.2/24"]), {
            inspection::Interface { link_megabits: Some(100_000), ..interface("ib0", &["10.2.0.2/24"]) }
        }];
        let hosts = [
            HostNetworks { host: "a", interfaces: &[slow, fast], reached_at: None },
            HostNetworks { host: "b", interfaces: &others, reached_at: None },
        ];
        assert_eq!(candidates(&hosts)[0].to_string(), "ib0, 10.2.0.0/24");
    }

    #[test]
    fn host_internal_networks_are_ignored() {
        // A bridge inside each host does not connect the two hosts, even if its addresses differ.
        let a: &[(&str, &str)] = &[("virbr0", "192.168.122.1/24")];
        let b: &[(&str, &str)] = &[("virbr0", "192.168.122.2/24")];
        assert_eq!(names(&[(a, None), (b, None)]), Vec::<String>::new());
        // A bridge that includes the host's own network card: the names resolve to it.
        assert_eq!(names(&[(a, Some("192.168.122.1")), (b, Some("192.168.122.2"))]), ["virbr0, 192.168.122.0/24"]);
        let down = [inspection::Interface { is_up: false, ..interface("eth0", &["10.1.0.1/24"]) }];
        assert_eq!(candidates(&[HostNetworks { host: "a", interfaces: &down, reached_at: None }]), []);
    }

    #[test]
    fn interface_names_may_differ_in_one_network() {
        let given: &[Given] = &[(&[("eth0", "10.1.0.1/24")], None), (&[("ens3", "10.1.0.2/24")], None)];
        with(given, |hosts| {
            let found = candidates(hosts);
            assert_eq!(found[0].to_string(), "eth0/ens3, 10.1.0.0/24");
            assert_eq!(found[0].interface().expect("a network").to_string(), "10.1.0.0/24");
        });
    }

    #[test]
    fn common_interface_name_works_without_common_prefix() {
        let given: &[Given] = &[(&[("eth0", "10.1.0.1/32")], None), (&[("eth0", "10.1.7.2/32")], None)];
        assert_eq!(names(given), ["eth0"]);
        let given: &[Given] = &[(&[("eth0", "10.1.0.1/32")], None), (&[("eth1", "10.1.7.2/32")], None)];
        assert_eq!(names(given), Vec::<String>::new());
    }

    fn refused(interface: &str, given: &[Given]) -> Vec<(usize, String)> {
        let faults = with(given, |hosts| {
            resolve(
                &interface.parse().expect(
                    "an \
                     interface",
                ),
                hosts,
            )
            .expect_err("refused")
        });
        faults.into_iter().map(|fault| (fault.host, fault.what)).collect()
    }

    #[test]
    fn wrong_interface_error_lists_the_available_ones() {
        let given: &[Given] = &[
            (&[("eth0", "10.1.0.1/24"), ("docker0", "172.17.0.1/16")], None),
            (&[("ens3", "10.1.0.2/24"), ("docker0", "172.17.0.1/16")], None),
        ];
        let available = "available: ens3 10.1.0.2/24, docker0 172.17.0.1/16, lo 127.0.0.1/8";
        assert_eq!(refused("eth0", given), [(1, format!("interface eth0 not found; {available}"))]);
        let faults = refused("10.9.0.0/16", given);
        assert_eq!(faults.len(), 2);
        assert_eq!(faults[1], (1, format!("no interface has an address in 10.9.0.0/16; {available}")));
        assert_eq!(refused("lo", given)[1], (1, format!("interface lo only reaches the host itself; {available}")));
        let shared = "interface docker0 has address 172.17.0.1 on host a too, so it is local to each host";
        assert_eq!(refused("docker0", given), [(1, format!("{shared}; {available}"))]);
        with(given, |hosts| {
            let network = resolve(&"10.1.0.0/24".parse().expect("a network"), hosts).expect("both are in it");
            assert_eq!(network.to_string(), "eth0/ens3, 10.1.0.0/24");
        });
        with(&given[..1], |hosts| {
            let network = resolve(&"lo".parse().expect("a name"), hosts).expect("loopback on a single host");
            assert_eq!(network.interface(), Some(InterfaceChoice::Name("lo".to_owned())));
        });
    }
}

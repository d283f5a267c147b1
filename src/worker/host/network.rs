//! Network interfaces of this host, and the choice of NCCL's.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use ipnet::Ipv4Net;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use ringmark_core::host::Interface;
use ringmark_core::host::inspection::INTERFACE_VARIABLE;
use ringmark_core::options::usage::usage;

/// Returns all interfaces, sorted by name.
pub fn interfaces() -> Result<Vec<Interface>> {
    let mut interfaces: BTreeMap<String, Interface> = BTreeMap::new();
    for entry in getifaddrs().context("cannot list the network interfaces")? {
        let name = entry.interface_name;
        let interface = interfaces.entry(name.clone()).or_insert_with(|| Interface {
            is_up: entry.flags.contains(InterfaceFlags::IFF_UP),
            is_loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
            is_bridge: Path::new("/sys/class/net").join(&name).join("bridge").exists(),
            link_megabits: link_megabits(&name),
            name,
            addresses: Vec::new(),
        });
        let four = |address: Option<nix::sys::socket::SockaddrStorage>| Some(address?.as_sockaddr_in()?.ip());
        if let (Some(address), Some(mask)) = (four(entry.address), four(entry.netmask)) {
            interface.addresses.extend(Ipv4Net::with_netmask(address, mask));
        }
    }
    Ok(interfaces.into_values().collect())
}

/// Returns the speed that the driver reports. Without a link it reports -1, or the file cannot be read.
fn link_megabits(name: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?.trim().parse().ok().filter(|speed| *speed > 0)
}

/// Returns the name of this host's interface in `network`, the value of [`INTERFACE_VARIABLE`].
pub fn interface_in(network: &str) -> Result<String> {
    let parsed: Ipv4Net = network.parse().map_err(|_| {
        usage(anyhow!("{INTERFACE_VARIABLE}={network} is not a network: use the form 10.77.0.0/24, or unset it"))
    })?;
    let interfaces = interfaces()?;
    let is_in = |interface: &&Interface| interface.addresses.iter().any(|address| parsed.contains(&address.addr()));
    interfaces.iter().find(is_in).map(|interface| interface.name.clone()).ok_or_else(|| {
        let all: Vec<String> = interfaces.iter().flat_map(described).collect();
        usage(anyhow!(
            "{INTERFACE_VARIABLE}={network}: this host has no address in that network, only {}",
            all.join(", ")
        ))
    })
}

fn described(interface: &Interface) -> Vec<String> {
    interface.addresses.iter().map(|address| format!("{} {address}", interface.name)).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn loopback_is_found_by_its_network() {
        assert_eq!(interface_in("127.0.0.0/8").expect("every host has one"), "lo");
        let error = format!("{:#}", interface_in("198.51.100.0/24").expect_err("a network for documents"));
        assert!(
            error.contains("198.51.100.0/24: this host has no address in that network, only ")
                && error.contains("lo 127.")
        );
        let error = format!("{:#}", interface_in("lo").expect_err("a name"));
        expect!["RINGMARK_INTERFACE=lo is not a network: use the form 10.77.0.0/24, or unset it"].assert_eq(&error);
        let loopback = interfaces().expect("there are some").into_iter().find(|interface| interface.name == "lo");
        let loopback = loopback.expect("every host has one");
        assert!(loopback.is_up && loopback.is_loopback && !loopback.is_bridge, "{loopback:?}");
    }
}

//! Messages between `ringmark doctor` and `ringmark-worker agent` on each host, one line of JSON each.
//!
//! The agent first sends an [`Inspection`]. Then it answers every [`Order`] with one [`Reply`], until its standard
//! input ends.

use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, GigabytesPerSecond, Seconds};

/// Variable that contains the network of NCCL's interface; the worker finds the interface's name on its own host.
pub const INTERFACE_VARIABLE: &str = "RINGMARK_INTERFACE";

/// Findings of the worker on its host, without training.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Inspection {
    /// Version of ringmark-worker.
    pub ringmark_version: String,
    /// Loaded libtorch.
    pub libtorch: Library,
    /// MPI library; the version is the text that the library reports.
    pub mpi: Library,
    /// NCCL, if CUDA can be used.
    pub nccl: Option<Library>,
    /// Every NCCL file that the process has loaded; more than one is a fault.
    pub nccl_copies: Vec<String>,
    /// Reason why CUDA cannot be used; `None` if it can.
    pub cuda_missing: Option<String>,
    /// Number of devices visible to CUDA.
    pub devices: u32,
    /// CUDA version of the driver, such as `13.0`.
    pub cuda_driver: Option<String>,
    /// CUDA version of the runtime that libtorch uses.
    pub cuda_runtime: Option<String>,
    /// All network interfaces.
    pub interfaces: Vec<Interface>,
    /// Processor name.
    pub processor: String,
    /// Cores that a process may use.
    pub cores: u32,
    /// Number of these cores in each NUMA node; empty from a worker that does not report it.
    #[serde(default)]
    pub cores_per_node: Vec<u32>,
    /// Hardware threads of a core.
    #[serde(default)]
    pub threads_per_core: u32,
    /// Memory that a process may still take; `None` from a worker that does not report it.
    #[serde(default)]
    pub available_memory: Option<Bytes>,
}

/// A library as actually loaded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Library {
    /// Version as reported by the library.
    pub version: String,
    /// Path of the loaded file.
    pub path: String,
    /// Size of the file, by which two builds of one version differ.
    pub bytes: Bytes,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// IPv4 addresses, each with the prefix length of its network.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<Ipv4Net>,
    /// True if the interface is up.
    pub is_up: bool,
    /// True if it reaches only the host itself.
    pub is_loopback: bool,
    /// True if it connects containers or virtual machines of the host.
    pub is_bridge: bool,
    /// Link speed in Mbit/s, if the device's driver reports it.
    pub link_megabits: Option<u32>,
}

/// A request to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Order {
    /// Report the time.
    Clock,
    /// Accept connections on this address from now on.
    Listen(Ipv4Addr),
    /// Connect to another agent and measure the link to it.
    Measure {
        /// Address of the other agent.
        to: SocketAddrV4,
        /// Duration of the transfer; `None` measures the latency only.
        send: Option<Seconds>,
    },
}

/// Reply of the agent to an [`Order`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Reply {
    /// Time in seconds since 1970 UTC.
    Clock(Seconds),
    /// Port at which connections are accepted.
    Listening(u16),
    /// Result of measuring the link.
    Measured {
        /// Source address of the packets.
        from: Ipv4Addr,
        /// Half of the median round-trip time of one byte.
        latency: Seconds,
        /// Throughput of one TCP connection.
        speed: Option<GigabytesPerSecond>,
    },
    /// Reason why the order failed.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_replies_are_one_line() {
        let order = Order::Measure { to: "10.77.0.2:40000".parse().expect("an address"), send: Some(Seconds(0.3)) };
        let line = serde_json::to_string(&order).expect("JSON");
        assert_eq!(line, "{\"Measure\":{\"to\":\"10.77.0.2:40000\",\"send\":0.3}}");
        assert_eq!(serde_json::from_str::<Order>(&line).expect("an order"), order);
        let reply = Reply::Failed("two\nlines".to_owned());
        let line = serde_json::to_string(&reply).expect("JSON");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Reply>(&line).expect("a reply"), reply);
    }

    #[test]
    fn address_keeps_its_prefix() {
        let address = "10.77.0.2/24".parse().expect("an address");
        let interface = Interface { name: "eth0".to_owned(), addresses: vec![address], ..Interface::default() };
        let json = serde_json::to_string(&interface).expect("JSON");
        assert!(json.contains("\"addresses\":[\"10.77.0.2/24\"]"), "{json}");
        assert_eq!(serde_json::from_str::<Interface>(&json).expect("an interface"), interface);
    }
}

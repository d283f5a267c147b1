//! What one host says of itself to `ringmark doctor`, and the orders it takes: the messages between launcher and
//! `ringmark-worker agent`, one line of JSON each. Not for what needs no worker to be found out, nor for judging it.
//!
//! The agent speaks first, an [`Inspection`]; then it answers every [`Order`] by one [`Reply`], until its standard
//! input ends.

use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, GigabytesPerSecond, Seconds};

/// The variable that names, as a network, the interface that NCCL is to use; the worker finds its name on its own host.
pub const INTERFACE_VARIABLE: &str = "RINGMARK_INTERFACE";

/// What the worker finds on its host without training.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Inspection {
    /// Version of ringmark-worker.
    pub ringmark_version: String,
    /// libtorch.
    pub libtorch: Library,
    /// MPI; the version is what the library says of itself.
    pub mpi: Library,
    /// NCCL, where CUDA can be used.
    pub nccl: Option<Library>,
    /// Every file of NCCL that the process holds; more than one is a fault.
    pub nccl_copies: Vec<String>,
    /// Why CUDA cannot be used, where it cannot.
    pub cuda_missing: Option<String>,
    /// Devices that CUDA shows.
    pub devices: u32,
    /// The CUDA version that the driver brings, as `13.0`.
    pub cuda_driver: Option<String>,
    /// The CUDA version of the runtime that libtorch uses.
    pub cuda_runtime: Option<String>,
    /// Every network interface.
    pub interfaces: Vec<Interface>,
    /// Processor name.
    pub processor: String,
    /// Processors that a process there may run on.
    pub cores: u32,
    /// Memory that a process there may still take; `None` of a worker that does not say.
    #[serde(default)]
    pub available_memory: Option<Bytes>,
}

/// A library as it was really loaded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Library {
    /// As the library reports it.
    pub version: String,
    /// The file.
    pub path: String,
    /// Its size, by which two builds of one version differ.
    pub bytes: Bytes,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    /// `eth0`.
    pub name: String,
    /// Its IPv4 addresses, each with the length of its network's prefix.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<Ipv4Net>,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it leads nowhere but to the host itself.
    pub is_loopback: bool,
    /// Whether it joins containers or virtual machines of the host.
    pub is_bridge: bool,
    /// Speed of the link in Mbit/s, where the driver of the device reports it.
    pub link_megabits: Option<u32>,
}

/// What the agent is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Order {
    /// Report the time.
    Clock,
    /// Take connections on this address from now on.
    Listen(Ipv4Addr),
    /// Connect to another agent and measure the link to it.
    Measure {
        /// Where it listens.
        to: SocketAddrV4,
        /// How long to send; only the latency where `None`.
        send: Option<Seconds>,
    },
}

/// What the agent answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Reply {
    /// Seconds since 1970 UTC.
    Clock(Seconds),
    /// Connections are taken at this port.
    Listening(u16),
    /// The link was measured.
    Measured {
        /// The address that the packets leave from.
        from: Ipv4Addr,
        /// Half the time of a byte there and back, median.
        latency: Seconds,
        /// What one TCP connection carried.
        speed: Option<GigabytesPerSecond>,
    },
    /// It could not be done, and why.
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
    fn an_address_keeps_its_prefix() {
        let address = "10.77.0.2/24".parse().expect("an address");
        let interface = Interface { name: "eth0".to_owned(), addresses: vec![address], ..Interface::default() };
        let json = serde_json::to_string(&interface).expect("JSON");
        assert!(json.contains("\"addresses\":[\"10.77.0.2/24\"]"), "{json}");
        assert_eq!(serde_json::from_str::<Interface>(&json).expect("an interface"), interface);
    }
}

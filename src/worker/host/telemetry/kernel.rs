//! Cores, memory, pressure and network cards, from the kernel's counters.

use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::host::Quantity;
use ringmark_core::host::kernel_file::{first_line, first_line_with, proc_kilobytes};

use crate::host::counters::{clock_mhz, core_times, number_in};
use crate::host::telemetry::reading::{Reading, Source, Value};

/// Sources of this host.
pub struct Kernel {
    cards: Vec<Card>,
}

/// Byte counters of a network card or port, in units of `unit` bytes.
struct Card {
    name: String,
    sent: PathBuf,
    received: PathBuf,
    unit: f64,
}

impl Kernel {
    pub fn new() -> Kernel {
        let sys = Path::new("/sys/class");
        let cards = ethernet(&sys.join("net")).into_iter().chain(infiniband(&sys.join("infiniband")));
        Kernel { cards: cards.collect() }
    }
}

/// Returns all interfaces except loopback.
fn ethernet(folder: &Path) -> Vec<Card> {
    let interfaces = names_in(folder).into_iter().filter(|name| name != "lo");
    let card = |name: String| {
        let statistics = folder.join(&name).join("statistics");
        Card { name, sent: statistics.join("tx_bytes"), received: statistics.join("rx_bytes"), unit: 1.0 }
    };
    interfaces.map(card).collect()
}

/// Returns the ports of InfiniBand and RoCE cards, such as `mlx5_0 port 1`. They count words of four bytes.
fn infiniband(folder: &Path) -> Vec<Card> {
    let mut cards = Vec::new();
    for device in names_in(folder) {
        let ports = folder.join(&device).join("ports");
        for port in names_in(&ports) {
            let counters = ports.join(&port).join("counters");
            cards.push(Card {
                name: format!("{device} port {port}"),
                sent: counters.join("port_xmit_data"),
                received: counters.join("port_rcv_data"),
                unit: 4.0,
            });
        }
    }
    cards
}

/// Returns the sorted names in a folder; empty if there is no such folder.
pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the seconds for which at least one process waited, from a file of /proc/pressure; `None` if the kernel does
/// not count them.
fn pressure(path: &str) -> Option<f64> {
    let some = first_line_with(path, "some ");
    let (_, total) = some.rsplit_once("total=")?;
    Some(total.parse::<f64>().ok()? / 1e6)
}

/// Returns the numbers of sent and retransmitted segments from /proc/net/snmp, which has a line of names, then one of
/// numbers.
fn segments(table: &str) -> Option<[f64; 2]> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let find = |wanted: &str| {
        let index = names.split_whitespace().position(|name| name == wanted)?;
        numbers.split_whitespace().nth(index)?.parse().ok()
    };
    Some([find("OutSegs")?, find("RetransSegs")?])
}

impl Source for Kernel {
    fn read(&mut self, readings: &mut Vec<Reading>) {
        let mut add = |quantity: Quantity, instance: &str, value: Value| {
            readings.push(Reading { quantity, instance: instance.to_owned(), value });
        };
        if let Some(clock) = clock_mhz() {
            add(Quantity::Clock, "cores", Value::Gauge(clock));
        }
        let times = core_times(&first_line("/proc/stat"));
        let (part, whole) = (times[..3].iter().sum(), times.iter().sum());
        add(Quantity::Utilization, "cores", Value::Share { part, whole });
        let [all, available] = ["MemTotal:", "MemAvailable:"].map(|key| proc_kilobytes("/proc/meminfo", key));
        add(Quantity::Memory, "host", Value::Gauge(all.saturating_sub(available) as f64 * 1024.0));
        let pressures = [
            (Quantity::CpuPressure, "/proc/pressure/cpu"),
            (Quantity::MemoryPressure, "/proc/pressure/memory"),
            (Quantity::IoPressure, "/proc/pressure/io"),
        ];
        for (quantity, path) in pressures {
            if let Some(waited) = pressure(path) {
                add(quantity, "host", Value::Counter(waited));
            }
        }
        for Card { name, sent, received, unit } in &self.cards {
            for (quantity, file) in [(Quantity::Sent, sent), (Quantity::Received, received)] {
                if let Some(count) = number_in(file) {
                    add(quantity, name, Value::Counter(count as f64 * unit));
                }
            }
        }
        if let Some([sent, again]) = segments(&fs::read_to_string("/proc/net/snmp").unwrap_or_default()) {
            add(Quantity::Segments, "TCP", Value::Counter(sent));
            add(Quantity::Retransmissions, "TCP", Value::Counter(again));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_segments_are_found_by_name() {
        let table =
            "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs OutSegs RetransSegs\nTcp: 1 20 30 4\nUdp: X\nUdp: 9\n";
        assert_eq!(segments(table), Some([30.0, 4.0]));
        assert_eq!(segments("Tcp: InSegs\nTcp: 20\n"), None);
        assert_eq!(segments(""), None);
    }

    #[test]
    fn ethernet_and_infiniband_cards_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let counters = folder.path().join("infiniband/mlx5_0/ports/1/counters");
        fs::create_dir_all(&counters).expect("a folder");
        for (name, words) in [("port_xmit_data", "100"), ("port_rcv_data", "25")] {
            fs::write(counters.join(name), format!("{words}\n")).expect("a file");
        }
        for name in ["lo", "eth0"] {
            fs::create_dir_all(folder.path().join("net").join(name)).expect("a folder");
        }
        let all = ethernet(&folder.path().join("net")).into_iter().chain(infiniband(&folder.path().join("infiniband")));
        let mut kernel = Kernel { cards: all.collect() };
        let names: Vec<&str> = kernel.cards.iter().map(|card| card.name.as_str()).collect();
        assert_eq!(names, ["eth0", "mlx5_0 port 1"]);
        let mut readings = Vec::new();
        kernel.read(&mut readings);
        let find = |wanted: Quantity| readings.iter().find(|reading| reading.quantity == wanted).map(|read| read.value);
        assert_eq!(
            [find(Quantity::Sent), find(Quantity::Received)],
            [Some(Value::Counter(400.0)), Some(Value::Counter(100.0))]
        );
    }
}

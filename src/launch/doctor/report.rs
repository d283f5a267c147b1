//! Formats the doctor's results: a table with a line for each host, then every finding with its fix. Pure.

use std::collections::HashMap;
use std::hash::Hash;

use ringmark_core::dimension::Seconds;
use ringmark_core::host::host_list::compact;
use ringmark_core::host::{HostLoad, InitialLoad, Inspection};
use ringmark_core::number_text::count;

use crate::launch::doctor::checks::finding::{Check, Finding, Severity, megabytes};
use crate::launch::doctor::examination::Examination;
use crate::launch::doctor::host::HostFacts;
use crate::launch::doctor::links::{Link, LinkState};
use crate::launch::doctor::probe::{Gpus, Port};

/// Maximum length of a GPU's name in a cell.
const MAX_GPU_NAME: usize = 14;

/// Columns in order.
const COLUMNS: [Check; 18] = [
    Check::Ssh,
    Check::Mpirun,
    Check::Worker,
    Check::Versions,
    Check::Load,
    Check::Numa,
    Check::Governor,
    Check::Gpus,
    Check::GpuState,
    Check::Topology,
    Check::Memlock,
    Check::SharedMemory,
    Check::Disk,
    Check::Clock,
    Check::Interface,
    Check::Links,
    Check::Speed,
    Check::Infiniband,
];

/// Maximum number of hosts that a finding lists individually.
const MAX_NAMED: usize = 16;

/// Returns the loads of the hosts on which other programs run.
pub fn busy(hosts: &[HostFacts]) -> Vec<HostLoad> {
    hosts.iter().filter(|host| host.is_busy()).filter_map(HostFacts::load).collect()
}

/// Describes the hosts on which other programs run; `None` if there are none.
pub fn busy_hosts(hosts: &[HostFacts]) -> Option<String> {
    let busy = busy(hosts);
    let InitialLoad { hosts, load, cores } = InitialLoad::from_hosts(busy.iter())?;
    let up_to = if busy.len() > 1 { "up to " } else { "" };
    Some(format!(
        "warning: {hosts}, load: {up_to}{load:.1} on {cores} cores: other processes are running, so figures may be unreliable\n    \
         fix: run `top` there to find them, then stop them or wait"
    ))
}

/// Returns a table of hosts and checks, split into several tables if it is wider than `width`.
pub fn table(examination: &Examination, width: usize) -> String {
    let index = ReportIndex::new(examination);
    let column = |check: &Check| {
        let cells = (0..examination.hosts.len()).map(|number| index.cell(number, *check));
        let mut column = vec![check.name().to_owned()];
        column.extend(cells);
        column
    };
    let mut hosts = vec!["host".to_owned()];
    hosts.extend(examination.hosts.iter().map(|host| host.host.clone()));

    let mut blocks: Vec<Vec<Vec<String>>> = Vec::new();
    let mut room = 0;
    // Without a network between hosts its columns are empty.
    let has_values = |column: &Vec<String>| examination.hosts.is_empty() || column[1..].iter().any(|cell| cell != "-");
    for column in COLUMNS.iter().map(column).filter(has_values) {
        // Columns are separated by two blanks.
        let needed = wide(&column) + 2;
        match blocks.last_mut().filter(|_| needed <= room) {
            Some(block) => {
                room -= needed;
                block.push(column);
            }
            None => {
                room = width.saturating_sub(wide(&hosts) + needed);
                blocks.push(vec![hosts.clone(), column]);
            }
        }
    }
    blocks.iter().map(|columns| aligned(columns)).collect::<Vec<_>>().join("\n\n")
}

/// Returns the length of the longest cell.
fn wide(column: &[String]) -> usize {
    column.iter().map(|cell| cell.chars().count()).max().unwrap_or_default()
}

fn aligned(columns: &[Vec<String>]) -> String {
    let cell = |row: usize| move |column: &Vec<String>| format!("{:1$}", column[row], wide(column));
    let line = |row: usize| columns.iter().map(cell(row)).collect::<Vec<_>>().join("  ").trim_end().to_owned();
    (0..columns[0].len()).map(line).collect::<Vec<_>>().join("\n")
}

/// Index of an examination by host number: a search for each cell takes too long for thousands of hosts.
struct ReportIndex<'a> {
    examination: &'a Examination,
    /// Checks with a finding; true if one is an error.
    findings: HashMap<(usize, Check), bool>,
    /// Links from and to each host.
    links: Vec<Vec<&'a Link>>,
}

impl<'a> ReportIndex<'a> {
    fn new(examination: &'a Examination) -> ReportIndex<'a> {
        let mut findings: HashMap<(usize, Check), bool> = HashMap::new();
        for Finding { number, check, severity, .. } in &examination.findings {
            *findings.entry((*number, *check)).or_default() |= *severity == Severity::Error;
        }
        let mut links: Vec<Vec<&Link>> = vec![Vec::new(); examination.hosts.len()];
        for link in &examination.network.links {
            links[link.from].push(link);
            if link.to != link.from {
                links[link.to].push(link);
            }
        }
        ReportIndex { examination, findings, links }
    }

    /// Returns `FAIL` or `warn` if there is a finding, `?` if nothing is known.
    fn cell(&self, number: usize, check: Check) -> String {
        match self.findings.get(&(number, check)) {
            Some(true) => "FAIL".to_owned(),
            Some(false) => "warn".to_owned(),
            None => value(self.examination, number, &self.links[number], check).unwrap_or_else(|| "?".to_owned()),
        }
    }
}

fn value(examination: &Examination, number: usize, links: &[&Link], check: Check) -> Option<String> {
    let host = &examination.hosts[number];
    let probe = host.probe.as_ref();
    let inspection = host.inspection.as_ref();
    let ok = || "ok".to_owned();
    match check {
        Check::Ssh if host.is_here => Some("here".to_owned()),
        Check::Ssh => host.ssh.map(|time| format!("{time:.2}")),
        Check::Mpirun | Check::Data => probe.map(|_| ok()),
        Check::Worker | Check::Versions => inspection.map(|_| ok()),
        Check::Load => host.load().map(|HostLoad { load, cores, .. }| format!("{load:.1} of {cores}")),
        Check::Numa => Some(inspection.map_or_else(|| "-".to_owned(), numa_nodes)),
        Check::Governor => {
            let governors = probe.map(|probe| probe.governors.join(", ")).filter(|governors| !governors.is_empty());
            Some(governors.unwrap_or_else(|| "-".to_owned()))
        }
        Check::Gpus | Check::GpuState | Check::Topology if !host.has_ranks() => Some("servers".to_owned()),
        Check::Gpus => gpus(host),
        Check::GpuState | Check::Topology => match &probe?.gpus {
            Gpus::Found(_) => Some(ok()),
            Gpus::None => Some("no GPU".to_owned()),
            Gpus::Unknown | Gpus::Hang | Gpus::Fail(_) => None,
        },
        Check::Memory => inspection?.available_memory.map(megabytes),
        Check::Memlock => probe.map(|probe| probe.memlock.map_or_else(|| "no limit".to_owned(), megabytes)),
        Check::SharedMemory => Some(megabytes(probe?.shared_memory?.free)),
        Check::Disk => Some(megabytes(probe?.results.or(probe?.temporary)?.free)),
        Check::Clock if host.is_here => Some("here".to_owned()),
        Check::Clock => host.clock_ahead.map(clock),
        Check::Interface => {
            let Some(place) = examination.network.place(number) else {
                return (examination.hosts.len() == 1).then(|| "-".to_owned());
            };
            Some(format!("{} {}", place.interface, place.address))
        }
        Check::Links => {
            let from_here = || links.iter().filter(|link| link.from == number);
            let open = from_here().filter(|link| link.is_open()).count();
            match from_here().count() {
                0 if examination.hosts.len() == 1 => Some("-".to_owned()),
                0 => None,
                all => Some(format!("{open} of {all}")),
            }
        }
        Check::Speed if examination.hosts.len() == 1 => Some("-".to_owned()),
        Check::Speed => slowest(links),
        Check::Infiniband => probe.map(|probe| match probe.ports.len() {
            0 => "none".to_owned(),
            all => format!("{} of {all} up", probe.ports.iter().filter(|port| Port::is_up(port)).count()),
        }),
    }
}

/// Formats NUMA nodes and hardware threads as `2 x 16 cores, SMT 2`; `-` if the host has one node and no SMT.
fn numa_nodes(inspection: &Inspection) -> String {
    let Inspection { cores_per_node, threads_per_core, .. } = inspection;
    if cores_per_node.len() < 2 && *threads_per_core < 2 {
        return "-".to_owned();
    }
    let nodes = grouped(cores_per_node.iter().map(|cores| (*cores, ()))).into_iter();
    let nodes: Vec<String> = nodes.map(|(cores, nodes)| format!("{} x {cores}", nodes.len())).collect();
    let threads = if *threads_per_core < 2 { String::new() } else { format!(", SMT {threads_per_core}") };
    format!("{} cores{threads}", nodes.join(" + "))
}

/// Formats the GPUs of a host as `8 x H100`.
fn gpus(host: &HostFacts) -> Option<String> {
    let gpus = match &host.probe.as_ref()?.gpus {
        Gpus::Found(gpus) => gpus,
        Gpus::None => return Some("no GPU".to_owned()),
        Gpus::Unknown | Gpus::Hang | Gpus::Fail(_) => return None,
    };
    let name = &gpus.first()?.name;
    let parts = name.split_whitespace().filter(|part| !["NVIDIA", "Tesla", "GeForce"].contains(part));
    // Memory and board are omitted.
    let mut short: Vec<&str> = Vec::new();
    for part in parts {
        if !short.is_empty() && (part.contains("GB") || ["PCIe", "HBM3", "SXM"].contains(&part)) {
            break;
        }
        short.push(part);
    }
    let short: String = short.join(" ").chars().take(MAX_GPU_NAME).collect();
    Some(format!("{} x {short}", gpus.len()))
}

/// Formats a clock offset in ms, or in s from 1 s on.
fn clock(ahead: Seconds) -> String {
    if ahead.0.abs() < 1.0 { format!("{:+.0} ms", ahead.0 * 1e3) } else { format!("{:+.1} s", ahead.0) }
}

/// Returns the lowest bandwidth of a host's links and the longest latency; only the latency if no bandwidth was
/// measured.
fn slowest(links: &[&Link]) -> Option<String> {
    let (mut least, mut longest) = (None, None);
    for link in links {
        if let LinkState::Open { latency, speed, .. } = &link.state {
            let is_more = |other: &Seconds| latency.0 > other.0;
            longest = Some(longest.filter(|other| !is_more(other)).unwrap_or(*latency));
            let speed = speed.map(|speed| speed.0);
            least = match (least, speed) {
                (Some(least), Some(speed)) => Some(f64::min(least, speed)),
                (least, speed) => least.or(speed),
            };
        }
    }
    let latency = format!("{:.0} us", longest?.0 * 1e6);
    Some(least.map_or(latency.clone(), |least| format!("{least:.2} GB/s, {latency}")))
}

/// Formats every finding with its fix, errors first. Hosts with the same fault share a line, and faults with the same
/// fix share the fix.
pub fn findings(findings: &[Finding]) -> Vec<String> {
    let mut order: Vec<&Finding> = findings.iter().collect();
    // A stable sort keeps the order of equals.
    order.sort_by_key(|finding| finding.severity == Severity::Warning);
    let mut paragraphs = Vec::new();
    let order = order.into_iter().map(|finding| ((finding.severity, finding.check, &finding.fix), finding));
    for ((severity, check, fix), these) in grouped(order) {
        let word = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut lines = Vec::new();
        for (what, hosts) in grouped(these.into_iter().map(|finding| (&finding.what, finding.host.as_str()))) {
            let hosts = if hosts.len() > MAX_NAMED { compact(hosts) } else { hosts.join(" ") };
            lines.push(format!("{word}: {hosts}, {}: {what}", check.name()));
        }
        lines.push(format!("    fix: {fix}"));
        paragraphs.push(lines.join("\n"));
    }
    paragraphs
}

/// Groups values by key, in the order in which the keys first appear.
fn grouped<K: Clone + Eq + Hash, V>(items: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in items {
        let place = *places.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[place].1.push(value);
    }
    groups
}

/// Returns `4 hosts: 1 error, 2 warnings`.
pub fn summary(examination: &Examination) -> String {
    let found = |severity| examination.findings.iter().filter(|finding| finding.severity == severity).count();
    let busy = usize::from(busy_hosts(&examination.hosts).is_some());
    format!(
        "{}: {}, {}, {:.1} s",
        count(examination.hosts.len(), "host"),
        count(found(Severity::Error), "error"),
        count(found(Severity::Warning) + busy, "warning"),
        examination.took.0
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use expect_test::expect;
    use ringmark_core::dimension::DeviceChoice;

    use super::*;
    use crate::launch::cluster::ssh_failure::SshFailure;
    use crate::launch::doctor::checks::fixtures::{gpu_hosts, h100, hosts, network, open, probe};
    use crate::launch::doctor::checks::{self, JobRequirements};
    use crate::launch::doctor::examination::{KIND, SCHEMA};
    use crate::launch::doctor::host::HostFacts;
    use crate::launch::doctor::network::NetworkFacts;
    use crate::launch::doctor::probe::Gpu;

    fn examination(hosts: Vec<HostFacts>) -> Examination {
        let requirements = JobRequirements {
            worker: Path::new("/w"),
            device: DeviceChoice::Auto,
            results: None,
            needed: &BTreeMap::new(),
            data: &[],
        };
        let count = hosts.len();
        let links = (0..count).map(|from| open(from, (from + 1) % count, Some(1.25)));
        Examination {
            kind: KIND,
            schema: SCHEMA,
            findings: checks::check_hosts(&hosts, &requirements),
            network: NetworkFacts {
                chosen: Some(network(count as u8)),
                reason: "the host names resolve to it".to_owned(),
                others: vec!["ib0, 10.2.0.0/16".to_owned()],
                left_out: vec!["docker0".to_owned()],
                present: (0..count).collect(),
                links: links.collect(),
                interface: None,
            },
            took: Seconds(2.345),
            hosts,
        }
    }

    fn broken() -> Examination {
        let mut hosts = gpu_hosts(3);
        hosts[0].is_here = true;
        let busy = Gpu { processes: vec!["python3 (process 7, 900 MiB)".to_owned()], ..h100(1) };
        probe(&mut hosts, 1).gpus = Gpus::Found(vec![h100(0), busy]);
        let refusal = SshFailure { what: "host unreachable".to_owned(), fix: "switch it on".to_owned() };
        hosts[2] = HostFacts { host: "c".to_owned(), slots: 2, refusal: Some(refusal), ..HostFacts::default() };
        examination(hosts)
    }

    #[test]
    fn numa_nodes_and_hardware_threads_are_a_cell() {
        let cell = |cores_per_node: &[u32], threads_per_core| {
            let cores_per_node = cores_per_node.to_vec();
            numa_nodes(&Inspection { cores_per_node, threads_per_core, ..Inspection::default() })
        };
        assert_eq!((cell(&[2], 1), cell(&[], 0)), ("-".to_owned(), "-".to_owned()));
        assert_eq!(cell(&[16, 16], 1), "2 x 16 cores");
        assert_eq!(cell(&[32], 2), "1 x 32 cores, SMT 2");
        assert_eq!(cell(&[6, 2, 6], 4), "2 x 6 + 1 x 2 cores, SMT 4");
    }

    #[test]
    fn table_has_a_row_per_host_and_a_column_per_check() {
        assert_eq!(
            table(&broken(), 120),
            "\
host  ssh     mpirun  worker  versions  load      GPUs      GPU state  topology  memlock   /dev/shm  disk   clock
a     here    ok      ok      ok        0.1 of 2  2 x H100  ok         ok        no limit  50 GB     50 GB  here
b     0.12 s  ok      ok      ok        0.1 of 2  2 x H100  warn       ok        no limit  50 GB     50 GB  +1 ms
c     FAIL    ?       ?       ?         ?         ?         ?          ?         ?         ?         ?      ?

host  interface       reaches  slowest link      IB
a     eth0 10.77.0.1  1 of 1   1.25 GB/s, 20 us  2 of 2 up
b     eth0 10.77.0.2  1 of 1   1.25 GB/s, 20 us  2 of 2 up
c     eth0 10.77.0.3  1 of 1   1.25 GB/s, 20 us  ?"
        );
    }

    #[test]
    fn gpu_columns_show_no_gpu_on_cpu_hosts() {
        let text = table(&examination(hosts(2)), 120);
        let line = text.lines().nth(1).expect("host a");
        assert_eq!(line.matches("no GPU").count(), 3, "{text}");
        assert!(!text.contains("FAIL") && !text.contains("warn") && !text.contains('?'), "{text}");
    }

    #[test]
    fn load_of_other_programs_is_reported() {
        let mut hosts = hosts(2);
        assert_eq!(busy_hosts(&hosts), None);
        probe(&mut hosts, 1).load = Some(7.0);
        let line = busy_hosts(&hosts).expect("seven threads on two cores");
        expect![[r#"
            warning: b, load: 7.0 on 2 cores: other processes are running, so figures may be unreliable
                fix: run `top` there to find them, then stop them or wait"#]]
        .assert_eq(&line);
        probe(&mut hosts, 0).load = Some(13.0);
        assert!(summary(&examination(hosts.clone())).contains(" 1 warning, "));
        let line = busy_hosts(&hosts).expect("both are busy");
        expect![[r#"
            warning: a,b, load: up to 13.0 on 2 cores: other processes are running, so figures may be unreliable
                fix: run `top` there to find them, then stop them or wait"#]]
        .assert_eq(&line);
        // The programs that caused the load average have ended.
        for number in [0, 1] {
            probe(&mut hosts, number).runnable = Some(1);
        }
        assert_eq!(busy_hosts(&hosts), None);
    }

    #[test]
    fn tables_fit_the_given_width() {
        for width in [40, 60, 80, 100] {
            let text = table(&broken(), width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            assert_eq!(text.split("\n\n").map(|block| block.lines().count()).max(), Some(4), "{text}");
        }
    }

    #[test]
    fn equal_findings_share_a_line_and_equal_fixes_too() {
        let mut examination = broken();
        let other = |number: usize, host: &str, what: &str| Finding {
            number,
            host: host.to_owned(),
            what: what.to_owned(),
            ..examination.findings[1].clone()
        };
        let what = examination.findings[1].what.clone();
        let more = [other(0, "a", &what), other(0, "a", "GPU 0: in use by other processes: vim")];
        examination.findings.extend(more);
        expect![[r"
            error: c, ssh: host unreachable
                fix: switch it on
            warning: b a, GPU state: GPU 1: in use by other processes: python3 (process 7, 900 MiB)
            warning: a, GPU state: GPU 0: in use by other processes: vim
                fix: wait for them or stop them: they distort every measurement"]]
        .assert_eq(&findings(&examination.findings).join("\n"));
        expect!["3 hosts: 1 error, 3 warnings, 2.3 s"].assert_eq(&summary(&examination));
        expect!["interface: eth0, 10.77.0.0/24 (the host names resolve to it); alternatives for --interface: ib0, 10.2.0.0/16; excluded: docker0, local to each host"].assert_eq(&examination.network.line().expect("several hosts"));
    }

    #[test]
    fn gpu_names_are_shortened() {
        for (name, short) in [
            ("NVIDIA H100 80GB HBM3", "1 x H100"),
            ("NVIDIA A100-SXM4-80GB", "1 x A100-SXM4-80GB"),
            ("Tesla V100-SXM2-16GB", "1 x V100-SXM2-16GB"),
            ("NVIDIA GeForce RTX 4090", "1 x RTX 4090"),
            ("NVIDIA RTX 6000 Ada Generation", "1 x RTX 6000 Ada G"),
        ] {
            let mut hosts = hosts(1);
            probe(&mut hosts, 0).gpus = Gpus::Found(vec![Gpu { name: name.to_owned(), ..h100(0) }]);
            assert_eq!(gpus(&hosts[0]).as_deref(), Some(short));
        }
    }
}

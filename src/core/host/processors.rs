//! Processors of a host: physical cores, their hardware threads and NUMA nodes, and the part of each rank.
//!
//! Linux numbers hardware threads and calls them processors; a core has one or, with SMT, several of them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nalgebra::DMatrix;

use crate::host::binding::{Binding, BindingMode};
use crate::host::kernel_file::{first_line, first_line_with};

/// Folder in which the kernel lists processors and NUMA nodes.
pub const SYSTEM: &str = "/sys/devices/system";

/// Set of numbers that the kernel writes as a list of ranges: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NumberSet(pub BTreeSet<u32>);

impl NumberSet {
    /// Parses a list; ignores what is not a number.
    pub fn parse(list: &str) -> NumberSet {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        };
        NumberSet(list.split(',').filter_map(range).flatten().collect())
    }

    fn read(path: impl AsRef<Path>) -> NumberSet {
        NumberSet::parse(&first_line(path))
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<u32> = self.0.iter().copied().collect();
        let ranges = numbers.chunk_by(|one, next| one + 1 == *next).map(|range| match range {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        });
        formatter.write_str(&ranges.collect::<Vec<_>>().join(","))
    }
}

/// Returns the NUMA nodes that the kernel lists in the folder `system`. Numbers may have gaps, such as 0 and 8.
pub fn numa_nodes(system: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(system.join("node")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Core {
    node: u32,
    /// Processors of the core that may be used.
    processors: BTreeSet<u32>,
}

/// Cores that a process may use, in the order of their NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    cores: Vec<Core>,
}

impl Topology {
    /// Reads the cores that this process may use.
    pub fn read() -> Topology {
        Topology::from_folder(Path::new(SYSTEM), &NumberSet::parse(&allowed_processors()))
    }

    /// Reads the online cores with processors in `allowed` from the kernel's folder `system`. A processor that the
    /// folder does not describe is a core of node 0. A machine with a single core counts its hardware threads, so that
    /// a small virtual machine has several ranks.
    pub fn from_folder(system: &Path, allowed: &NumberSet) -> Topology {
        let online = NumberSet::read(system.join("cpu/online"));
        let is_online = |processor: &u32| online.0.is_empty() || online.0.contains(processor);
        let mut rest: BTreeSet<u32> = allowed.0.iter().copied().filter(is_online).collect();
        let nodes = numa_nodes(system).into_iter();
        let nodes: Vec<_> =
            nodes.map(|node| (node, NumberSet::read(system.join(format!("node/node{node}/cpulist"))))).collect();
        let mut cores = Vec::new();
        while let Some(processor) = rest.pop_first() {
            let siblings = NumberSet::read(system.join(format!("cpu/cpu{processor}/topology/thread_siblings_list")));
            let mut processors: BTreeSet<u32> = rest.intersection(&siblings.0).copied().collect();
            rest.retain(|other| !processors.contains(other));
            processors.insert(processor);
            let node = nodes.iter().find(|(_, list)| list.0.contains(&processor)).map_or(0, |(node, _)| *node);
            cores.push(Core { node, processors });
        }
        if let [Core { node, processors }] = cores.as_slice()
            && *processors == online.0
        {
            let threads = processors.iter().map(|processor| (*node, BTreeSet::from([*processor])));
            cores = threads.map(|(node, processors)| Core { node, processors }).collect();
        }
        cores.sort();
        Topology { cores }
    }

    /// Returns the number of cores.
    pub fn cores(&self) -> u32 {
        self.cores.len() as u32
    }

    /// Returns all processors of the cores.
    pub fn processors(&self) -> NumberSet {
        NumberSet(self.cores.iter().flat_map(|core| &core.processors).copied().collect())
    }

    /// Returns the number of cores of each NUMA node.
    pub fn cores_per_node(&self) -> Vec<u32> {
        self.cores.chunk_by(|one, next| one.node == next.node).map(|cores| cores.len() as u32).collect()
    }

    /// Returns the largest number of processors of a core.
    pub fn threads_per_core(&self) -> u32 {
        self.cores.iter().map(|core| core.processors.len() as u32).max().unwrap_or(1)
    }

    /// Describes a binding to these cores.
    pub fn binding(&self, mode: BindingMode) -> Binding {
        let nodes = NumberSet(self.nodes().collect());
        Binding { mode, processors: self.processors().to_string(), nodes: nodes.to_string() }
    }

    /// Returns the part of rank `rank` of a host whose cores are divided among `ranks`, more than its own if other jobs
    /// have more. `near` contains the list of processors near the GPU of each rank of this job; empty if unknown.
    pub fn part(&self, near: &[String], rank: u32, ranks: u32) -> Part {
        let rank = rank as usize;
        let processors = NumberSet::parse(&near[rank]);
        let pool = self.filtered(|core| !core.processors.is_disjoint(&processors.0));
        let pool = if pool.cores.is_empty() { self.clone() } else { pool };
        let same = |others: &[String]| others.iter().filter(|other| **other == near[rank]).count() as u32;
        let proportional = (ranks * pool.cores()).div_ceil(self.cores().max(1));
        Part { pool, index: same(&near[..rank]), parts: same(near).max(proportional) }
    }

    fn nodes(&self) -> impl Iterator<Item = u32> {
        self.cores.iter().map(|core| core.node)
    }

    fn filtered(&self, is_included: impl Fn(&Core) -> bool) -> Topology {
        Topology { cores: self.cores.iter().filter(|core| is_included(core)).cloned().collect() }
    }
}

/// Part of a rank: one of several equal parts of cores.
#[derive(Debug)]
pub struct Part {
    /// All cores, or those near the rank's GPU.
    pub pool: Topology,
    /// Number of the part, from 0.
    pub index: u32,
    /// Number of parts.
    pub parts: u32,
}

impl Part {
    /// Returns the cores to which the rank is bound: those of the part, or all of the NUMA nodes that contain it. Parts
    /// that are not a multiple or a fraction of the nodes have cores of two nodes.
    pub fn cores(&self, mode: BindingMode) -> Topology {
        let Range { start, end } = part_range(self.pool.cores(), self.index, self.parts);
        let cores = self.pool.cores.get(start as usize..end as usize).unwrap_or_default().to_vec();
        let part = Topology { cores };
        if mode == BindingMode::Core {
            return part;
        }
        let nodes = NumberSet(part.nodes().collect());
        self.pool.filtered(|core| nodes.0.contains(&core.node))
    }
}

/// Returns true if a part of `parts` equal parts has cores of two NUMA nodes with these numbers of cores.
pub fn has_part_of_two_nodes(cores_per_node: &[u32], parts: u32) -> bool {
    let ends = cores_per_node.iter().scan(0, |end, cores| {
        *end += cores;
        Some(*end)
    });
    let (ends, all): (Vec<u32>, u32) = (ends.collect(), cores_per_node.iter().sum());
    let is_split = |part: &Range<u32>| ends.iter().any(|end| part.start < *end && *end < part.end);
    (0..parts).map(|index| part_range(all, index, parts)).any(|part| is_split(&part))
}

/// Returns the range of part `index` of `parts` equal parts of `all` cores: at least one core, and as many in each part.
fn part_range(all: u32, index: u32, parts: u32) -> Range<u32> {
    let parts = parts.max(1);
    let start = (u64::from(index) * u64::from(all) / u64::from(parts)) as u32;
    start..(start + (all / parts).max(1)).min(all)
}

/// Returns the processors that affinity permits to this process, in the kernel's format.
pub fn allowed_processors() -> String {
    first_line_with("/proc/self/status", "Cpus_allowed_list:")
}

/// Number of cores by affinity; 0 if not counted yet. Counting reads a file for each processor.
static CORES_BY_AFFINITY: AtomicU32 = AtomicU32::new(0);

/// Returns the number of cores that this process may use by affinity and the quota of its control group.
pub fn cores() -> u32 {
    if CORES_BY_AFFINITY.load(Ordering::Relaxed) == 0 {
        set_cores(&Topology::read());
    }
    processors().min(CORES_BY_AFFINITY.load(Ordering::Relaxed))
}

/// Sets the number of cores that affinity permits to this process after a change.
pub fn set_cores(topology: &Topology) {
    // Without cores, the kernel does not list the processors of a process.
    let cores = if topology.cores.is_empty() { u32::MAX } else { topology.cores() };
    CORES_BY_AFFINITY.store(cores, Ordering::Relaxed);
}

/// Returns the number of processors that this process may use by affinity and the quota of its control group.
pub fn processors() -> u32 {
    thread::available_parallelism().map_or(1, |number| u32::try_from(number.get()).unwrap_or(u32::MAX))
}

/// Instruction sets for products of bf16, as the kernel names them.
pub const BF16: [&str; 4] = ["avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"];

/// Other instruction sets on which the speed of libtorch depends, as the kernel names them.
const VECTORS: [&str; 6] = ["avx2", "fma", "avx512f", "avx512_vnni", "sve", "sve2"];

/// Returns those of [`VECTORS`] and [`BF16`] that this machine has; empty if the kernel does not list them.
pub fn instruction_sets() -> Vec<String> {
    listed_instruction_sets(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// Returns those of the first processor in `text`, the contents of /proc/cpuinfo.
fn listed_instruction_sets(text: &str) -> Vec<String> {
    let flags = text.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let flags: BTreeSet<&str> = flags.map(|line| line.split_whitespace().collect()).unwrap_or_default();
    VECTORS.into_iter().chain(BF16).filter(|name| flags.contains(name)).map(str::to_owned).collect()
}

/// Time for which [`core_speed`] measures.
const SPEED_TEST: Duration = Duration::from_millis(60);

/// Measures the speed of a core while all cores of this process work: that of products of fp32 matrices with 384 rows, in
/// 1e9 multiply-accumulates a second. Returns the mean of the best of each core. A product takes about 1 ms, so that some
/// are complete before another process gets the core.
pub fn core_speed() -> f64 {
    const ROWS: usize = 384;
    let best = || {
        let factor = DMatrix::from_element(ROWS, ROWS, 0.5_f32);
        let mut product = DMatrix::from_element(ROWS, ROWS, 0.0_f32);
        let start = Instant::now();
        let mut shortest = Duration::MAX;
        while start.elapsed() < SPEED_TEST || shortest == Duration::MAX {
            let start = Instant::now();
            product.gemm(1.0, &factor, &factor, 0.0);
            black_box(&product);
            shortest = shortest.min(start.elapsed());
        }
        ROWS.pow(3) as f64 / shortest.as_secs_f64() / 1e9
    };
    let cores = cores();
    let sum: f64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(best)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    });
    sum / f64::from(cores)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use expect_test::expect;

    use super::*;

    #[test]
    fn instruction_sets_are_those_of_the_first_processor() {
        let x86 =
            "processor\t: 0\nflags\t\t: fpu avx2 avx512_bf16 fma avx512f\n\nprocessor\t: 1\nflags\t\t: amx_bf16\n";
        assert_eq!(listed_instruction_sets(x86), ["avx2", "fma", "avx512f", "avx512_bf16"]);
        assert_eq!(listed_instruction_sets("Features\t: fp asimd bf16 sve\n"), ["sve", "bf16"]);
        assert_eq!(listed_instruction_sets(""), Vec::<String>::new());
    }

    /// Kernel's folder of a host with these online processors, NUMA nodes (number, processors) and cores with several
    /// hardware threads.
    struct Host {
        folder: tempfile::TempDir,
    }

    impl Host {
        fn new(online: &str, nodes: &[(u32, &str)], siblings: &[&str]) -> Host {
            let host = Host { folder: tempfile::tempdir().expect("a folder") };
            host.write("cpu/online", online);
            for (node, list) in nodes {
                host.write(&format!("node/node{node}/cpulist"), list);
            }
            for list in siblings {
                for processor in &NumberSet::parse(list).0 {
                    host.write(&format!("cpu/cpu{processor}/topology/thread_siblings_list"), list);
                }
            }
            host
        }

        fn write(&self, path: &str, text: &str) {
            let path: PathBuf = self.folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("created");
            fs::write(path, format!("{text}\n")).expect("written");
        }

        fn topology(&self, allowed: &str) -> Topology {
            Topology::from_folder(self.folder.path(), &NumberSet::parse(allowed))
        }
    }

    /// Two nodes of four cores with two hardware threads each, numbered as on most servers.
    fn two_nodes() -> Host {
        let siblings: Vec<String> = (0..8).map(|core| format!("{core},{}", core + 8)).collect();
        let siblings: Vec<&str> = siblings.iter().map(String::as_str).collect();
        Host::new("0-15", &[(0, "0-3,8-11"), (1, "4-7,12-15")], &siblings)
    }

    fn describe(topology: &Topology) -> String {
        let nodes = NumberSet(topology.nodes().collect());
        format!(
            "{} cores {:?} on {nodes} with {} threads: {}",
            topology.cores(),
            topology.cores_per_node(),
            topology.threads_per_core(),
            topology.processors()
        )
    }

    /// Lists the binding of every rank to nodes and to cores.
    fn bindings(topology: &Topology, ranks: u32, near: &[String]) -> String {
        let bound = |rank: u32, mode| {
            let binding = topology.part(near, rank, ranks).cores(mode).binding(mode);
            format!("{} on {}", binding.processors, binding.nodes)
        };
        let line = |rank: usize| {
            let [numa, core] = [BindingMode::Numa, BindingMode::Core].map(|mode| bound(rank as u32, mode));
            format!("{rank} of {ranks}: numa {numa}, core {core}\n")
        };
        (0..near.len()).map(line).collect()
    }

    #[test]
    fn number_sets_round_trip() {
        for list in ["0-3,8", "7", "", "0,2,4-5"] {
            assert_eq!(NumberSet::parse(list).to_string(), list);
        }
        assert_eq!(NumberSet::parse(" 1 - 2,x,4\n").to_string(), "1-2,4");
    }

    #[test]
    fn cores_are_counted_per_node_without_their_siblings() {
        let two = two_nodes();
        let one = Host::new("0-1", &[(0, "0-1")], &["0", "1"]);
        // The last node has only memory, as those of GPUs.
        let without_memory_or_cores = Host::new("0-3", &[(0, "0-1"), (1, "2-3"), (2, "")], &["0-1", "2-3"]);
        let power = Host::new("0-7", &[(0, "0-3"), (8, "4-7")], &["0-3", "4-7"]);
        let arm = Host::new("0-3", &[(0, "0-1"), (1, "2-3")], &[]);
        let offline = Host::new("0-1,4", &[(0, "0-1"), (1, "4")], &["0", "1", "4"]);
        let single = Host::new("0-1", &[(0, "0-1")], &["0-1"]);
        let nothing = Host { folder: tempfile::tempdir().expect("a folder") };
        let found = [
            two.topology("0-15"),
            // Of a container: one core of node 0, a core and a half of node 1.
            two.topology("3,11-13,4"),
            one.topology("0-1"),
            without_memory_or_cores.topology("0-3"),
            power.topology("0-7"),
            arm.topology("0-3"),
            // The kernel may allow processors that are not online.
            offline.topology("0-239"),
            single.topology("0-1"),
            nothing.topology("0-1"),
            two.topology(""),
        ];
        expect![[r#"
            8 cores [4, 4] on 0-1 with 2 threads: 0-15
            3 cores [1, 2] on 0-1 with 2 threads: 3-4,11-13
            2 cores [2] on 0 with 1 threads: 0-1
            2 cores [1, 1] on 0-1 with 2 threads: 0-3
            2 cores [1, 1] on 0,8 with 4 threads: 0-7
            4 cores [2, 2] on 0-1 with 1 threads: 0-3
            3 cores [2, 1] on 0-1 with 1 threads: 0-1,4
            2 cores [2] on 0 with 1 threads: 0-1
            2 cores [2] on 0 with 1 threads: 0-1
            0 cores [] on  with 1 threads: "#]]
        .assert_eq(&found.each_ref().map(describe).join("\n"));
    }

    #[test]
    fn ranks_get_equal_parts() {
        let topology = two_nodes().topology("0-15");
        let tables = [1, 2, 3, 4, 8].map(|ranks| bindings(&topology, ranks, &vec![String::new(); ranks as usize]));
        expect![[r#"
            0 of 1: numa 0-15 on 0-1, core 0-15 on 0-1
            0 of 2: numa 0-3,8-11 on 0, core 0-3,8-11 on 0
            1 of 2: numa 4-7,12-15 on 1, core 4-7,12-15 on 1
            0 of 3: numa 0-3,8-11 on 0, core 0-1,8-9 on 0
            1 of 3: numa 0-3,8-11 on 0, core 2-3,10-11 on 0
            2 of 3: numa 4-7,12-15 on 1, core 5-6,13-14 on 1
            0 of 4: numa 0-3,8-11 on 0, core 0-1,8-9 on 0
            1 of 4: numa 0-3,8-11 on 0, core 2-3,10-11 on 0
            2 of 4: numa 4-7,12-15 on 1, core 4-5,12-13 on 1
            3 of 4: numa 4-7,12-15 on 1, core 6-7,14-15 on 1
            0 of 8: numa 0-3,8-11 on 0, core 0,8 on 0
            1 of 8: numa 0-3,8-11 on 0, core 1,9 on 0
            2 of 8: numa 0-3,8-11 on 0, core 2,10 on 0
            3 of 8: numa 0-3,8-11 on 0, core 3,11 on 0
            4 of 8: numa 4-7,12-15 on 1, core 4,12 on 1
            5 of 8: numa 4-7,12-15 on 1, core 5,13 on 1
            6 of 8: numa 4-7,12-15 on 1, core 6,14 on 1
            7 of 8: numa 4-7,12-15 on 1, core 7,15 on 1
        "#]]
        .assert_eq(&tables.concat());
    }

    #[test]
    fn parts_of_two_nodes_are_found() {
        for (nodes, ranks, is_split) in [
            (&[4, 4][..], 2, false),
            (&[4, 4], 3, false),
            (&[16, 16], 3, true),
            (&[16, 16], 1, true),
            (&[6, 2], 2, true),
            (&[16], 3, false),
            (&[4, 4, 4, 4], 6, false),
            (&[6, 6, 6, 6], 5, true),
            (&[], 2, false),
        ] {
            assert_eq!(has_part_of_two_nodes(nodes, ranks), is_split, "{ranks} on {nodes:?}");
        }
    }

    #[test]
    fn one_rank_gets_the_part_of_the_largest_case() {
        let topology = two_nodes().topology("0-15");
        expect![[r#"
            0 of 4: numa 0-3,8-11 on 0, core 0-1,8-9 on 0
        "#]]
        .assert_eq(&bindings(&topology, 4, &[String::new()]));
    }

    #[test]
    fn more_ranks_than_cores_share_them() {
        let topology = two_nodes().topology("0-1,4");
        expect![[r#"
            0 of 4: numa 0-1 on 0, core 0 on 0
            1 of 4: numa 0-1 on 0, core 0 on 0
            2 of 4: numa 0-1 on 0, core 1 on 0
            3 of 4: numa 4 on 1, core 4 on 1
        "#]]
        .assert_eq(&bindings(&topology, 4, &vec![String::new(); 4]));
    }

    #[test]
    fn ranks_are_bound_near_their_gpus() {
        let topology = two_nodes().topology("0-15");
        let [first, second, unknown] = ["4-7,12-15", "0-3,8-11", ""].map(str::to_owned);
        let near = [first.clone(), second.clone(), first.clone(), second.clone()];
        // The second host has all GPUs on one node; the third one does not report the node of a GPU.
        let hosts = [&near[..], &[first.clone(), first.clone()], &[unknown, second]];
        let tables = hosts.map(|near| bindings(&topology, near.len() as u32, near));
        expect![[r#"
            0 of 4: numa 4-7,12-15 on 1, core 4-5,12-13 on 1
            1 of 4: numa 0-3,8-11 on 0, core 0-1,8-9 on 0
            2 of 4: numa 4-7,12-15 on 1, core 6-7,14-15 on 1
            3 of 4: numa 0-3,8-11 on 0, core 2-3,10-11 on 0

            0 of 2: numa 4-7,12-15 on 1, core 4-5,12-13 on 1
            1 of 2: numa 4-7,12-15 on 1, core 6-7,14-15 on 1

            0 of 2: numa 0-3,8-11 on 0, core 0-3,8-11 on 0
            1 of 2: numa 0-3,8-11 on 0, core 0-3,8-11 on 0
        "#]]
        .assert_eq(&tables.join("\n"));
    }
}

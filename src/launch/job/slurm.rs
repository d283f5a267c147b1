//! Reads a Slurm allocation (hosts and their slots), and builds srun's command line for a job in it. Allocations are
//! made with salloc or sbatch (scripts/slurm.sbatch).

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use anyhow::{Context, anyhow, ensure};
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::host::host_list::compact;
use ringmark_core::options::usage::usage;

use crate::launch::cluster::hosts::{Host, Hosts};
use crate::launch::cluster::remote::HOST;
use crate::launch::job::job_launch::{JobLaunch, MAX_HOSTS_ON_LINE, ServerRanks, nccl_interface};
use crate::launch::job::mpirun::TRANSPORTS;
use crate::launch::local::environment::LaunchEnvironment;

/// Variables with the allocation's requests by task, core, GPU and memory, which srun would repeat for every step. Each
/// case has its own number of ranks, so half of these would make Slurm reject it, or hide GPUs and cores from its
/// ranks.
const REQUEST_VARIABLES: [&str; 16] = [
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_EXACT",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_HINT",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_TRES_PER_TASK",
    "SRUN_CPUS_PER_TASK",
];

/// Selects the fence algorithm of Slurm's PMIx plugin. By default, Slurm 22.05 uses a tree for a fence without data, as
/// at the end of MPI_Init, and in a job of fewer hosts than TreeWidth (50) every host is its own root: no host waits,
/// and a rank still in MPI_Init gets a message that it cannot handle (a segmentation fault).
const FENCE: &str = "SLURM_PMIX_FENCE";

/// Options of a step that shares the allocation with other steps.
const SHARED_STEP: [&str; 4] = ["--cpu-bind=none", "--overcommit", "--overlap", "--mem=0"];

/// GPU request of a job step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepGpus {
    /// No request: the allocation has no GPUs that Slurm manages.
    Unknown,
    /// One GPU for each rank; every rank sees all GPUs of its host.
    OnePerRank,
    /// None of the allocation's GPUs.
    None,
}

/// An allocation made by salloc or sbatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// Job ID.
    job: String,
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq)]
struct Node {
    name: String,
    gpus: u32,
    /// Tasks on this node, if the user requested tasks.
    tasks: Option<u32>,
    cpus: u32,
}

impl Allocation {
    /// Reads the allocation from the environment and scontrol.
    pub fn read(environment: &LaunchEnvironment) -> anyhow::Result<Allocation> {
        let job = job_number(environment)?;
        let variables = &environment.scheduler;
        let list =
            variables.get("SLURM_JOB_NODELIST").context("SLURM_JOB_NODELIST is not set: salloc and sbatch set it")?;
        let gpus = gpus_by_node(&scontrol(&["show", "job", "--details", job])?, host_names)?;
        let nodes = nodes(host_names(list)?, &gpus, variables)?;
        Ok(Allocation { job: job.to_owned(), nodes })
    }

    /// Returns the hosts. Each takes as many ranks as it has GPUs in the allocation, unless `device` is the CPU; if no
    /// host has GPUs, as many as the allocation has tasks there; if no tasks were requested, as many as CPUs.
    pub fn hosts(&self, device: DeviceChoice) -> anyhow::Result<Hosts> {
        let by_gpu = self.gpus(device) == StepGpus::OnePerRank;
        let slots = |node: &Node| if by_gpu { node.gpus } else { node.tasks.unwrap_or(node.cpus) };
        let host = |node: &Node| Host { name: node.name.clone(), slots: slots(node) };
        // If other hosts have GPUs, a host without one takes no rank.
        let hosts = self.nodes.iter().map(host).filter(|host| host.slots > 0).collect();
        let job = format!("the Slurm allocation {}", self.job);
        Hosts::allocated(
            job,
            "request more from salloc or sbatch (--nodes, --gpus-per-node, \
             --ntasks-per-node)",
            hosts,
        )
    }

    /// Returns the GPU request of jobs on `device`.
    pub fn gpus(&self, device: DeviceChoice) -> StepGpus {
        match (self.nodes.iter().any(|node| node.gpus > 0), device) {
            (false, _) => StepGpus::Unknown,
            (true, DeviceChoice::Cpu) => StepGpus::None,
            (true, _) => StepGpus::OnePerRank,
        }
    }
}

/// Returns `hosts` in the order in which srun numbers their ranks: that of the allocation. Hosts outside of it stay last.
pub fn in_rank_order(hosts: Hosts, environment: &LaunchEnvironment) -> anyhow::Result<Hosts> {
    let Some(list) = environment.scheduler.get("SLURM_JOB_NODELIST") else { return Ok(hosts) };
    Ok(hosts.sorted_like(&host_names(list)?))
}

/// Returns the ID of the allocation that this process runs in.
pub fn job_number(environment: &LaunchEnvironment) -> anyhow::Result<&str> {
    environment.scheduler.get("SLURM_JOB_ID").map(String::as_str).ok_or_else(|| {
        usage(anyhow!(
            "--launcher slurm needs a Slurm allocation, but SLURM_JOB_ID is not set: use sbatch \
             (scripts/slurm.sbatch) or salloc; for a dry run without one, add --hosts node[01-64]:8"
        ))
    })
}

/// Options by which a job step gets its numbers of nodes, ranks and GPUs, which the launcher chooses for each case. A list of
/// hosts may replace the launcher's.
const LAYOUT_OPTIONS: [&str; 11] = [
    "--nodes",
    "--ntasks",
    "--ntasks-per-node",
    "-N",
    "-n",
    "--gpus",
    "-G",
    "--gpus-per-node",
    "--gpus-per-task",
    "--gres",
    "--tres-per-node",
];

/// Rejects arguments for srun that would contradict the case.
pub fn check_arguments(arguments: &[String]) -> anyhow::Result<()> {
    let is_layout = |argument: &&String| {
        let name = argument.split('=').next().unwrap_or_default();
        // A short option may contain its value.
        let is_same = |option: &&str| name == *option || (!name.starts_with("--") && name.starts_with(option));
        LAYOUT_OPTIONS.iter().any(is_same)
    };
    match arguments.iter().find(is_layout) {
        Some(option) => Err(usage(anyhow!(
            "--launcher-args: {option} contradicts what ringmark passes to srun for each case: omit it; --cases 2n8g sets \
             nodes, ranks and GPUs"
        ))),
        None => Ok(()),
    }
}

/// Returns the command line that launches `job` with srun: ranks in the order of Slurm's hosts, each host's ranks
/// together.
///
/// Variables are set by `env` in front of srun, which passes on its environment: `--export` accepts no value with a
/// comma.
pub fn command_line(job: &JobLaunch, gpus: StepGpus) -> Vec<String> {
    let JobLaunch { case, hosts, options, environment, .. } = job;
    let mut line = without_requests(environment);
    let mut add = |more: &[&str]| line.extend(more.iter().map(|argument| (*argument).to_owned()));

    if !environment.scheduler.contains_key(FENCE) {
        add(&[&format!("{FENCE}=ring")]);
    }
    add(&["OMPI_MCA_pml=ob1", &format!("OMPI_MCA_btl={TRANSPORTS}")]);
    if environment.container {
        let [parameter, value] = environment.open_mpi.no_single_copy();
        add(&[&format!("OMPI_MCA_{parameter}={value}")]);
    }
    if let Some(threads) = job.threads_per_rank() {
        add(&[&format!("OMP_NUM_THREADS={threads}")]);
    }
    if let Some(interface) = &options.interface {
        add(&[&format!("OMPI_MCA_btl_tcp_if_include={interface}"), &nccl_interface(interface)]);
    }

    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let processes = job.process_hosts();
    let all: BTreeSet<&str> = processes.iter().copied().collect();
    let gpus_per_host = format!("--gpus-per-node={}", case.gpus_per_node);
    add(&["srun", "--mpi=pmix"]);
    // Newer versions of Slurm refuse it with --distribution=arbitrary, which servers need.
    if job.servers.number == 0 {
        add(&[&format!("--nodes={}", all.len())]);
    }
    add(&[&format!("--ntasks={}", processes.len())]);
    match &job.servers {
        ServerRanks { number: 0, .. } => {
            let tasks_per_host = format!("--ntasks-per-node={}", case.gpus_per_node);
            let list = match names.len() {
                ..=MAX_HOSTS_ON_LINE => names.join(","),
                _ => compact(names.iter().copied()),
            };
            add(&[&tasks_per_host, &format!("--nodelist={list}"), "--distribution=block"]);
        }
        // One host for each process, in order. Slurm interprets a list with a slash as the name of a file.
        _ => {
            let list = match job.needs_hostfile() {
                false => processes.join(","),
                true => job.hostfile().display().to_string(),
            };
            add(&[&format!("--nodelist={list}"), "--distribution=arbitrary"]);
        }
    }
    add(&SHARED_STEP);
    match gpus {
        // No --gpu-bind: with "none" Slurm sets no device list, and ranks would see the GPUs of other jobs.
        StepGpus::OnePerRank if all.len() == names.len() => add(&[&gpus_per_host]),
        // --gpus-per-node requires the same number on every host, and hosts of servers may have none: the step gets the
        // GPUs of the allocation.
        StepGpus::Unknown | StepGpus::OnePerRank => {}
        StepGpus::None => add(&["--gres=none"]),
    }
    if job.servers.may_lose_ranks {
        add(&["--kill-on-bad-exit=0", "--wait=0", "--export=ALL"]);
    } else {
        add(&["--kill-on-bad-exit=1", "--export=ALL"]);
    }
    line.extend(options.arguments.iter().chain(&job.program).cloned());
    line
}

/// Returns the command that runs a shell command on a [`HOST`] of the allocation.
pub fn task_command(environment: &LaunchEnvironment) -> Vec<String> {
    let mut line = without_requests(environment);
    line.extend(["srun", "--nodes=1", "--ntasks=1", &format!("--nodelist={HOST}")].map(str::to_owned));
    line.extend(SHARED_STEP.iter().copied().chain(["--export=ALL", "sh", "-c"]).map(str::to_owned));
    line
}

/// Returns `env` with options that remove the allocation's requests.
fn without_requests(environment: &LaunchEnvironment) -> Vec<String> {
    let set = REQUEST_VARIABLES.iter().filter(|name| environment.scheduler.contains_key(**name));
    ["env"].into_iter().chain(set.flat_map(|name| ["-u", name])).map(str::to_owned).collect()
}

/// Expands `a[1-2],b` to a1, a2 and b.
fn host_names(list: &str) -> anyhow::Result<Vec<String>> {
    Ok(scontrol(&["show", "hostnames", list])?.lines().map(str::to_owned).collect())
}

fn scontrol(arguments: &[&str]) -> anyhow::Result<String> {
    let command = || format!("scontrol {}", arguments.join(" "));
    let Output { status, stdout, stderr } = Command::new("scontrol")
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start {}: put Slurm's commands on PATH", command()))?;
    ensure!(status.success(), "{} failed: {}", command(), String::from_utf8_lossy(&stderr).trim());
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Parses the GPUs of each node of a job from `scontrol show job --details`; `expand` turns a list of nodes into names.
fn gpus_by_node(
    details: &str,
    expand: impl Fn(&str) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<BTreeMap<String, u32>> {
    let mut found = BTreeMap::new();
    for line in details.lines() {
        let field = |key: &str| line.split_whitespace().find_map(|field| field.strip_prefix(key));
        if let (Some(list), Some(resources)) = (field("Nodes="), field("GRES=")) {
            for node in expand(list)? {
                *found.entry(node).or_insert(0) += count_gpus(resources);
            }
        }
    }
    Ok(found)
}

/// Counts GPUs: `gpu:a100:2(IDX:0,3),nic:1(IDX:0)` is 2.
fn count_gpus(resources: &str) -> u32 {
    let mut outside = String::new();
    let mut depth = 0;
    for character in resources.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 => outside.push(character),
            _ => {}
        }
    }
    let count = |resource: &str| resource.strip_prefix("gpu:")?.rsplit(':').next()?.parse::<u32>().ok();
    outside.split(',').filter_map(count).sum()
}

fn nodes(
    names: Vec<String>,
    gpus: &BTreeMap<String, u32>,
    variables: &BTreeMap<String, String>,
) -> anyhow::Result<Vec<Node>> {
    let by_node = |name: &str| {
        let numbers = variables.get(name).map(|text| numbers(text).with_context(|| format!("{name}={text}")));
        numbers.transpose()
    };
    // Slurm sets a task count even if none was requested; it is then meaningless.
    let requests_tasks = ["SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"].iter().any(|name| variables.contains_key(*name));
    let tasks = if requests_tasks { by_node("SLURM_TASKS_PER_NODE")? } else { None };
    let cpus = by_node("SLURM_JOB_CPUS_PER_NODE")?.unwrap_or_default();
    let node = |(index, name): (usize, String)| Node {
        gpus: gpus.get(&name).copied().unwrap_or(0),
        tasks: tasks.as_ref().and_then(|tasks| tasks.get(index).copied()),
        cpus: cpus.get(index).copied().unwrap_or(1),
        name,
    };
    Ok(names.into_iter().enumerate().map(node).collect())
}

/// Expands `2(x3),1` to 2, 2, 2 and 1: a number for each node.
fn numbers(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut all = Vec::new();
    for item in text.split(',') {
        let (number, times) = item.strip_suffix(')').and_then(|item| item.split_once("(x")).unwrap_or((item, "1"));
        let number: u32 = number.parse().with_context(|| format!("{item:?} is not a count"))?;
        let times: usize = times.parse().with_context(|| format!("{item:?} is not a number of nodes"))?;
        all.extend(std::iter::repeat_n(number, times));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::launch::job::job_launch::{JobFiles, StarterOptions};
    use crate::launch::job::starter::Starter;

    /// Output of Slurm 22.05 for `salloc -N2 --gpus=3`, shortened.
    const DETAILS: &str = "\
   NumNodes=2 NumCPUs=4 NumTasks=4 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   JOB_GRES=gpu:3
     Nodes=lau-1 CPU_IDs=2-3 Mem=0 GRES=gpu:2(IDX:0-1)
     Nodes=lau-2 CPU_IDs=2-3 Mem=0 GRES=gpu:1(IDX:0)
   MinCPUsNode=2 MinMemoryNode=0 MinTmpDiskNode=0";

    #[test]
    fn arguments_do_not_contradict_the_case() {
        let check = |text: &str| check_arguments(&shell_words::split(text).expect("words"));
        check("--mpi=pmix --network=sn_all --nice 5 --no-kill -v --nodelist=hosts -w a").expect("other options");
        let errors = ["--nodes=2", "-N 2", "-n16", "--ntasks-per-node 8", "-v --gpus=4"];
        let errors = errors.map(|text| format!("{:#}\n", check(text).expect_err(text)));
        expect![[r#"
            --launcher-args: --nodes=2 contradicts what ringmark passes to srun for each case: omit it; --cases 2n8g sets nodes, ranks and GPUs
            --launcher-args: -N contradicts what ringmark passes to srun for each case: omit it; --cases 2n8g sets nodes, ranks and GPUs
            --launcher-args: -n16 contradicts what ringmark passes to srun for each case: omit it; --cases 2n8g sets nodes, ranks and GPUs
            --launcher-args: --ntasks-per-node contradicts what ringmark passes to srun for each case: omit it; --cases 2n8g sets nodes, ranks and GPUs
            --launcher-args: --gpus=4 contradicts what ringmark passes to srun for each case: omit it; --cases 2n8g sets nodes, ranks and GPUs
        "#]].assert_eq(&errors.concat());
    }

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn allocation(gpus: &[u32], pairs: &[(&str, &str)]) -> Allocation {
        let names: Vec<String> = (1..=gpus.len()).map(|number| format!("n{number}")).collect();
        let gpus = names.iter().cloned().zip(gpus.iter().copied()).collect();
        Allocation { job: "7".to_owned(), nodes: nodes(names, &gpus, &variables(pairs)).expect("nodes") }
    }

    fn slots(allocation: &Allocation, device: DeviceChoice) -> Vec<(String, u32)> {
        let hosts = allocation.hosts(device).expect("hosts");
        let whole = hosts.for_case("9n1g".parse().expect("a case"));
        whole.iter().map(|host| (host.name.clone(), host.slots)).collect()
    }

    fn line(
        case: &str,
        gpus: StepGpus,
        environment: &LaunchEnvironment,
        change: impl FnOnce(&mut StarterOptions),
    ) -> String {
        line_with(ServerRanks::default(), case, gpus, environment, change)
    }

    fn line_with(
        servers: ServerRanks,
        case: &str,
        gpus: StepGpus,
        environment: &LaunchEnvironment,
        change: impl FnOnce(&mut StarterOptions),
    ) -> String {
        let mut options = StarterOptions::default();
        change(&mut options);
        let job = JobLaunch { servers, ..JobLaunch::example(case, "a:8,b:8", options, environment.clone()) };
        command_line(&job, gpus).join(" ")
    }

    #[test]
    fn task_runs_beside_others_without_the_requests_of_the_allocation() {
        let scheduler = variables(&[("SLURM_CPUS_PER_TASK", "4"), ("SLURM_JOB_ID", "7")]);
        let environment = LaunchEnvironment { scheduler, ..LaunchEnvironment::default() };
        expect!["env -u SLURM_CPUS_PER_TASK srun --nodes=1 --ntasks=1 --nodelist=HOST --cpu-bind=none --overcommit --overlap --mem=0 --export=ALL sh -c"].assert_eq(&task_command(&environment).join(" "));
    }

    #[test]
    fn job_is_one_srun_step() {
        assert_eq!(
            line("2n4g", StepGpus::OnePerRank, &LaunchEnvironment::default(), |_| ()),
            "env SLURM_PMIX_FENCE=ring OMPI_MCA_pml=ob1 OMPI_MCA_btl=^openib,ofi srun --mpi=pmix --nodes=2 --ntasks=8 \
             --ntasks-per-node=4 --nodelist=a,b --distribution=block --cpu-bind=none --overcommit --overlap --mem=0 \
             --gpus-per-node=4 --kill-on-bad-exit=1 --export=ALL /opt/worker train"
        );
        assert!(line("1n1g", StepGpus::None, &LaunchEnvironment::default(), |_| ()).contains(" --nodelist=a --dist"));
        assert!(line("1n1g", StepGpus::None, &LaunchEnvironment::default(), |_| ()).contains(" --gres=none --kill"));
        let unknown = line("1n1g", StepGpus::Unknown, &LaunchEnvironment::default(), |_| ());
        assert!(unknown.contains(" --mem=0 --kill"), "{unknown}");
    }

    #[test]
    fn long_host_lists_are_compact_or_in_a_file() {
        let list = (1..=8192).map(|host| format!("rack-node{host:04}:8")).collect::<Vec<_>>().join(",");
        let files = JobFiles { log: "/results/8192n8g/run.log".into(), record: "/run.jsonl".into() };
        let job = JobLaunch::example("8192n8g", &list, StarterOptions::default(), LaunchEnvironment::default());
        let mut job = JobLaunch { files, ..job };
        let line = |job: &JobLaunch| command_line(job, StepGpus::OnePerRank).join(" ");
        let ranks = line(&job);
        assert!(
            ranks.contains(" --nodes=8192 --ntasks=65536 --ntasks-per-node=8 --nodelist=rack-node[0001-8192] "),
            "{ranks}"
        );
        assert!(!Starter::Slurm(StepGpus::OnePerRank).reads_hostfile(&job.servers));

        job.servers.number = 128;
        let with_servers = line(&job);
        let list = " --ntasks=65664 --nodelist=/results/8192n8g/run.hosts --distribution=arbitrary ";
        assert!(with_servers.contains(list), "{with_servers}");
        assert!(with_servers.len() < 1 << 10, "{with_servers}");
        assert!(Starter::Slurm(StepGpus::OnePerRank).reads_hostfile(&job.servers));
        let text = job.hostfile_text().expect("many processes");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 65_664);
        assert_eq!(
            [lines[0], lines[7], lines[8], lines[65_536]],
            [1, 1, 2, 1].map(|host| format!("rack-node{host:04}"))
        );
    }

    #[test]
    fn servers_follow_ranks_on_shared_or_separate_hosts() {
        let line = |servers: ServerRanks| {
            line_with(servers, "2n2g", StepGpus::OnePerRank, &LaunchEnvironment::default(), |_| ())
        };
        let shared = line(ServerRanks { number: 3, ..ServerRanks::default() });
        assert!(
            shared.contains(
                " --ntasks=7 --nodelist=a,a,b,b,a,b,a --distribution=arbitrary --cpu-bind=none --overcommit \
                 --overlap --mem=0 --gpus-per-node=2 --kill-on-bad-exit=1 "
            ),
            "{shared}"
        );
        let own = ["s".to_owned(), "t".to_owned()].to_vec();
        let own = line(ServerRanks { number: 3, hosts: own, may_lose_ranks: true, ..ServerRanks::default() });
        assert!(
            own.contains(
                " --ntasks=7 --nodelist=a,a,b,b,s,t,s --distribution=arbitrary --cpu-bind=none --overcommit \
                 --overlap --mem=0 --kill-on-bad-exit=0 --wait=0 "
            ),
            "{own}"
        );
    }

    #[test]
    fn settings_reach_ranks_but_allocation_requests_do_not() {
        let scheduler = variables(&[
            ("SLURM_GPUS", "4"),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_HINT", "nomultithread"),
            ("SLURM_PMIX_FENCE", "mixed"),
        ]);
        let environment = LaunchEnvironment {
            scheduler,
            container: true,
            host_name: "a".to_owned(),
            cores: 6,
            ..LaunchEnvironment::default()
        };
        let line = line("1n2g", StepGpus::Unknown, &environment, |options| {
            options.interface = Some("ib0".parse().expect("an interface"));
            options.arguments = vec!["--mpi=pmix_v4".to_owned()];
        });
        assert!(
            line.starts_with(
                "env -u SLURM_GPUS -u SLURM_HINT OMPI_MCA_pml=ob1 OMPI_MCA_btl=^openib,ofi \
                 OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_NUM_THREADS=3 OMPI_MCA_btl_tcp_if_include=ib0 \
                 NCCL_SOCKET_IFNAME==ib0 srun "
            ),
            "{line}"
        );
        assert!(line.ends_with(" --export=ALL --mpi=pmix_v4 /opt/worker train"), "{line}");
    }

    #[test]
    fn gpus_are_parsed_from_scontrol_output() {
        let gpus = gpus_by_node(DETAILS, |list| Ok(vec![list.to_owned()])).expect("read");
        assert_eq!(gpus, [("lau-1".to_owned(), 2), ("lau-2".to_owned(), 1)].into());
        for (resources, count) in
            [("gpu:a100:2(IDX:0,3),nic:1(IDX:0)", 2), ("gpu:1", 1), ("gpu:a:1(IDX:0),gpu:b:2(IDX:1-2)", 3), ("", 0)]
        {
            assert_eq!(count_gpus(resources), count, "{resources}");
        }
    }

    #[test]
    fn slots_are_gpus_or_else_tasks_or_else_cpus() {
        let cpus = ("SLURM_JOB_CPUS_PER_NODE", "16(x2),8");
        let tasks = [cpus, ("SLURM_TASKS_PER_NODE", "2(x2),1"), ("SLURM_NTASKS", "5")];
        let named = |slots: [u32; 3]| -> Vec<(String, u32)> {
            slots.iter().zip(1..).map(|(slots, number)| (format!("n{number}"), *slots)).collect()
        };
        let with_gpus = allocation(&[8, 8, 4], &tasks);
        assert_eq!(slots(&with_gpus, DeviceChoice::Auto), named([8, 8, 4]));
        assert_eq!(slots(&with_gpus, DeviceChoice::Cpu), named([2, 2, 1]));
        assert_eq!(slots(&allocation(&[0, 0, 0], &tasks), DeviceChoice::Auto), named([2, 2, 1]));
        // Counted by Slurm, but not requested.
        assert_eq!(slots(&allocation(&[0, 0, 0], &tasks[..2]), DeviceChoice::Auto), named([16, 16, 8]));
        assert_eq!(slots(&allocation(&[8, 0], &tasks), DeviceChoice::Auto), [("n1".to_owned(), 8)]);
    }

    #[test]
    fn steps_request_gpus_only_if_slurm_manages_them() {
        for (gpus, device, wanted) in [
            (8, DeviceChoice::Auto, StepGpus::OnePerRank),
            (8, DeviceChoice::Cuda, StepGpus::OnePerRank),
            (8, DeviceChoice::Cpu, StepGpus::None),
            (0, DeviceChoice::Cuda, StepGpus::Unknown),
        ] {
            assert_eq!(allocation(&[gpus], &[]).gpus(device), wanted);
        }
    }

    #[test]
    fn malformed_count_list_is_rejected() {
        assert_eq!(numbers("2(x3),1").expect("a list"), [2, 2, 2, 1]);
        let errors = ["2(x)", "many"].map(|text| numbers(text).expect_err(text).to_string());
        expect![[r#"
            "2(x)" is not a number of nodes
            "many" is not a count"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn error_outside_an_allocation_names_sbatch_and_salloc() {
        let error = job_number(&LaunchEnvironment::default()).expect_err("none").to_string();
        expect!["--launcher slurm needs a Slurm allocation, but SLURM_JOB_ID is not set: use sbatch (scripts/slurm.sbatch) or salloc; for a dry run without one, add --hosts node[01-64]:8"].assert_eq(&error);
    }
}

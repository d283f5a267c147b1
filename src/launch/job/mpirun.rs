//! mpirun's command line (Open MPI 4.1 and 5) for a job: DLPerf's options, and those that a container or multithreaded
//! ranks need in addition.

use crate::launch::job::job_launch::{JobLaunch, ServerRanks, nccl_interface};

/// Open MPI's byte transfer layers. openib is excluded, as in Horovod. ofi only serves one-sided communication in
/// Open MPI 4 and 5 (`btl_ofi_mode`), and without a network it sleeps for a second before it gives up. Debian
/// excludes it in its configuration, which this setting replaces.
pub const TRANSPORTS: &str = "^openib,ofi";

/// Program by which mpirun starts its daemons on other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteShell {
    /// ssh with the job's port.
    Ssh,
    /// Grid Engine's `qrsh -inherit`, which Open MPI selects automatically inside a job.
    Qrsh,
}

/// Returns the command line that launches `job`, starting with `mpirun`: `gpus_per_node` ranks on each host, in the
/// order of the hosts.
pub fn command_line(job: &JobLaunch, shell: RemoteShell) -> Vec<String> {
    let JobLaunch { case, hosts, options, environment, .. } = job;
    let open_mpi = environment.open_mpi;
    let mut line: Vec<String> = Vec::new();
    let mut add = |more: &[&str]| line.extend(more.iter().map(|argument| (*argument).to_owned()));

    let on_hosts = |list: &dyn Fn() -> Vec<String>| match job.needs_hostfile() {
        false => ["-H".to_owned(), list().join(",")],
        true => ["--hostfile".to_owned(), job.hostfile().display().to_string()],
    };
    let slots = || hosts.iter().map(|host| format!("{}:{}", host.name, case.gpus_per_node)).collect();
    add(&["mpirun", "--allow-run-as-root", "--oversubscribe"]);
    match &job.servers {
        ServerRanks { number: 0, .. } => {
            let [option, value] = on_hosts(&slots);
            add(&["-np", &case.ranks().to_string(), &option, &value, "--bind-to", "none", "--map-by", "slot"]);
        }
        ServerRanks { number, may_lose_ranks, .. } => {
            // One entry per process: with slots, Open MPI would place servers between the ranks of their host and
            // number them so.
            let [option, value] = on_hosts(&|| job.process_hosts().into_iter().map(str::to_owned).collect());
            add(&["-np", &(case.ranks() + number).to_string(), &option, &value]);
            add(&["--bind-to", "none", "--map-by", "seq"]);
            if *may_lose_ranks {
                add(open_mpi.continue_after_exit());
            }
        }
    }

    // mpirun warns about a variable that is not set, and about one that is passed twice.
    for name in &environment.variables {
        if name != "NCCL_SOCKET_IFNAME" || options.interface.is_none() {
            add(&["-x", name]);
        }
    }
    if let Some(gpus) = &options.gpus {
        add(&["-x", &format!("CUDA_VISIBLE_DEVICES={gpus}")]);
    }
    if let Some(threads) = job.threads_per_rank() {
        add(&["-x", &format!("OMP_NUM_THREADS={threads}")]);
    }
    add(&["-mca", "pml", "ob1", "-mca", "btl", TRANSPORTS]);
    if shell == RemoteShell::Ssh {
        let ssh = format!("-p {} -q -o StrictHostKeyChecking=no", job.ssh_port);
        let [option, parameter] = open_mpi.ssh_arguments();
        add(&[option, parameter, &ssh]);
    }
    if environment.container {
        let [parameter, value] = open_mpi.no_single_copy();
        add(&["-mca", parameter, value]);
    }
    if let Some(interface) = &options.interface {
        let text = interface.to_string();
        let [option, parameter] = open_mpi.daemon_interface();
        add(&["-mca", "btl_tcp_if_include", &text, option, parameter, &text]);
        add(&["-x", &nccl_interface(interface)]);
    }
    line.extend(options.arguments.iter().chain(&job.program).cloned());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::job::job_launch::{JobFiles, StarterOptions};
    use crate::launch::local::environment::LaunchEnvironment;

    fn environment() -> LaunchEnvironment {
        let variables = vec!["PATH".to_owned()];
        LaunchEnvironment { variables, host_name: "a".to_owned(), cores: 6, ..LaunchEnvironment::default() }
    }

    /// Joins the arguments with blanks; `change` modifies the default options.
    fn line(
        case: &str,
        hosts: &str,
        environment: &LaunchEnvironment,
        change: impl FnOnce(&mut StarterOptions),
    ) -> String {
        let mut options = StarterOptions::default();
        change(&mut options);
        command_line(&JobLaunch::example(case, hosts, options, environment.clone()), RemoteShell::Ssh).join(" ")
    }

    fn plain(case: &str, hosts: &str) -> JobLaunch<'static> {
        JobLaunch::example(case, hosts, StarterOptions::default(), environment())
    }

    #[test]
    fn command_line_matches_dlperf() {
        assert_eq!(
            line("2n4g", "b:8,c:8", &environment(), |_| ()),
            "mpirun --allow-run-as-root --oversubscribe -np 8 -H b:4,c:4 --bind-to none --map-by slot -x PATH \
             -mca pml ob1 -mca btl ^openib,ofi -mca plm_rsh_args -p 22 -q -o StrictHostKeyChecking=no \
             /opt/worker train"
        );
    }

    #[test]
    fn servers_follow_ranks_on_shared_or_separate_hosts() {
        let line = |servers: ServerRanks| {
            command_line(&JobLaunch { servers, ..plain("2n2g", "b:2,c:2") }, RemoteShell::Ssh).join(" ")
        };
        let shared = line(ServerRanks { number: 3, ..ServerRanks::default() });
        assert!(shared.contains(" -np 7 -H b,b,c,c,b,c,b --bind-to none --map-by seq -x PATH"), "{shared}");
        let own = ["s".to_owned(), "t".to_owned()].to_vec();
        let own = line(ServerRanks { number: 3, hosts: own, may_lose_ranks: true, ..ServerRanks::default() });
        assert!(own.contains(" -np 7 -H b,b,c,c,s,t,s --bind-to none --map-by seq --continuous "), "{own}");
    }

    #[test]
    fn many_hosts_are_passed_in_a_hostfile() {
        let list = (1..=8192).map(|host| format!("gpu-partition-rack7-node{host:05}:8")).collect::<Vec<_>>().join(",");
        let files = JobFiles { log: "/results/8192n8g/run.log".into(), record: "/run.jsonl".into() };
        let mut job = JobLaunch { files, ..plain("8192n8g", &list) };
        let line = command_line(&job, RemoteShell::Ssh);
        assert!(line.iter().all(|argument| argument.len() < 1 << 12), "no argument grows with the hosts");
        let line = line.join(" ");
        assert!(
            line.contains(" -np 65536 --hostfile /results/8192n8g/run.hosts --bind-to none --map-by slot "),
            "{line}"
        );
        let text = job.hostfile_text().expect("many hosts");
        assert_eq!(text.lines().next(), Some("gpu-partition-rack7-node00001 slots=8"));
        assert_eq!(text.lines().count(), 8192);
        job.servers.number = 2;
        let line = command_line(&job, RemoteShell::Ssh).join(" ");
        assert!(
            line.contains(" -np 65538 --hostfile /results/8192n8g/run.hosts --bind-to none --map-by seq "),
            "{line}"
        );
        assert_eq!(job.hostfile_text().expect("many hosts").lines().count(), 65_538);
        // With servers the command line names processes instead of hosts.
        let mut few = JobLaunch { hosts: &job.hosts[..256], case: "256n8g".parse().expect("a case"), ..job };
        assert_eq!(few.hostfile_text().expect("many processes").lines().count(), 256 * 8 + 2);
        few.servers.number = 0;
        assert_eq!(few.hostfile_text(), None);
    }

    #[test]
    fn local_ranks_share_the_cores() {
        for (case, hosts, threads) in [
            ("1n1g", "localhost:8", Some(6)),
            ("1n4g", "localhost:8", Some(1)),
            ("1n8g", "a:8", Some(1)),
            ("1n2g", "b:8", None),
            ("2n2g", "a:8,b:8", None),
        ] {
            let line = line(case, hosts, &environment(), |_| ());
            match threads {
                Some(threads) => assert!(line.contains(&format!(" -x OMP_NUM_THREADS={threads} ")), "{line}"),
                None => assert!(!line.contains("OMP_NUM_THREADS"), "{line}"),
            }
        }
    }

    #[test]
    fn thread_count_and_ssh_port_reach_every_host() {
        let job = JobLaunch { threads: Some(3), ..plain("1n1g", "b:1") };
        assert!(command_line(&job, RemoteShell::Ssh).contains(&"OMP_NUM_THREADS=3".to_owned()));
        let job = JobLaunch { ssh_port: 2222, ..job };
        let line = command_line(&job, RemoteShell::Ssh).join(" ");
        assert!(line.contains("plm_rsh_args -p 2222 -q -o StrictHostKeyChecking=no"), "{line}");
        let line = command_line(&job, RemoteShell::Qrsh).join(" ");
        assert!(!line.contains("plm_rsh"), "{line}");
    }

    #[test]
    fn interface_option_overrides_the_variable() {
        let variables = ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "PATH"].map(str::to_owned).to_vec();
        let environment = LaunchEnvironment { variables, ..environment() };
        let line_with = |interface: &str| {
            let interface = interface.parse().expect("an interface");
            line("1n1g", "b:1", &environment, |options| options.interface = Some(interface))
        };
        let (line_with, with_network) = (line_with("ib0"), line_with("10.2.0.0/16"));
        assert!(line_with.contains(" -x NCCL_DEBUG -x PATH -mca"), "{line_with}");
        assert!(
            line_with.contains(
                "-mca btl_tcp_if_include ib0 -mca oob_tcp_if_include ib0 -x NCCL_SOCKET_IFNAME==ib0 /opt/worker"
            ),
            "{line_with}"
        );
        assert!(
            with_network.contains(
                "-mca btl_tcp_if_include 10.2.0.0/16 -mca oob_tcp_if_include 10.2.0.0/16 \
                 -x RINGMARK_INTERFACE=10.2.0.0/16 /opt/worker"
            ) && !with_network.contains("NCCL_SOCKET_IFNAME"),
            "{with_network}"
        );
        let line_without = line("1n1g", "b:1", &environment, |_| ());
        assert!(line_without.contains(" -x NCCL_SOCKET_IFNAME -x PATH"), "{line_without}");
    }

    #[test]
    fn container_option_and_launcher_args_are_passed_on() {
        let environment = LaunchEnvironment { container: true, ..environment() };
        let line = line("1n1g", "b:1", &environment, |options| {
            options.arguments = vec!["--report-bindings".to_owned()];
        });
        assert!(
            line.ends_with("-mca btl_vader_single_copy_mechanism none --report-bindings /opt/worker train"),
            "{line}"
        );
    }
}

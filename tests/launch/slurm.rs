//! Jobs in a real Slurm: slurmctld and slurmd on virtual hosts of this machine (scripts/dev/slurm_cluster.sh).

use std::fs;
use std::process::{Output, Stdio};

use nix::sys::signal::{Signal, kill};
use ringmark_core::accept::{Cause, Fitness};

use crate::support::cluster::{Cluster, succeed};
use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::sandbox::{Sandbox, has_pushed, wait_until};
use crate::support::scheduler::{SMALL, Scheduler, judged};
use crate::support::worker;
use crate::support::worker_run::process_of_rank;

#[test]
fn sweep_runs_under_slurm_and_leaves_no_process() {
    let Some(cluster) = Cluster::from_script("slurm_cluster.sh", 2) else { return };
    let slurm = Scheduler {
        cluster: &cluster,
        name: "slurm",
        run: "salloc --quiet --nodes=2 --gpus-per-node=2",
        starter: "srun",
    };
    check_batch_script(&slurm);
    check_late_starting_host(&slurm);
    slurm.programs_know_their_place();
    // srun returns the highest status of all ranks, including those that it killed because of this one, so its output
    // is checked.
    let log = slurm.failures_are_named();
    assert!(log.contains(&format!("srun: error: {}: task 3: Exited with exit code 7", cluster.host(2))), "{log}");
    slurm.no_rank_outlives_its_sweep();
    check_servers_as_tasks(&slurm);
    check_process_placement_from_a_file(&slurm);
    check_survival_of_a_lost_rank(&slurm);
}

/// The third host computes wrong gradients. The fourth loses its slurmd with its first job of a pair.
#[test]
fn accept_under_slurm_names_unfit_hosts() {
    let Some(cluster) = Cluster::from_script("slurm_cluster.sh", 4) else { return };
    let slurm = Scheduler {
        cluster: &cluster,
        name: "slurm",
        run: "salloc --quiet --no-kill --nodes=4 --ntasks-per-node=1",
        starter: "srun",
    };
    let topology = cluster.call(&["run", "scontrol", "show", "topology"]);
    succeed(&topology);
    let switches = tempfile::NamedTempFile::new().expect("a file");
    fs::write(switches.path(), &topology.stdout).expect("written");
    let names = [1, 2, 3, 4].map(|number| cluster.host(number));
    let [first, second, corrupt, lost] = names.each_ref().map(String::as_str);
    let script = format!(
        "case \"$(hostname) $record\" in
            {corrupt}\\ *_training.json) exec \"$folder/real\" $words --inject flip:3:0:20;;
            {lost}\\ *_exchange.json) kill $(cat {}/slurm/{lost}.pid);;
        esac
        exec \"$folder/real\" $words",
        cluster.state().display()
    );
    let tokens = take_all_cores();
    // Slurm numbers the ranks in its own order of the hosts.
    let hosts = format!("{lost}:1,{second}:1,{corrupt}:1,{first}:1");
    let file = switches.path().display().to_string();
    let (text, verdict) = slurm.accept(&script, &["--hosts", &hosts, "--switches", &file]);
    drop(tokens);
    let fit = |host| (host, Fitness::Fit, None);
    let unfit = |host, cause| (host, Fitness::Unfit, Some(cause));
    assert_eq!(
        judged(&verdict),
        [fit(first), fit(second), unfit(corrupt, Cause::Corruption), unfit(lost, Cause::Failure)],
        "{text}"
    );
    // The first job after slurmd was killed may have started already, and hang.
    assert!(
        text.contains(&format!("Slurm cannot start ranks on {lost}: Communication connection failure: ")),
        "{text}"
    );
    assert!(text.contains("facts: examining 4 hosts\ninterface: eth0"), "{text}");
    assert!(text.contains(", pairs: all-reduce, 1 job on 2 hosts") && text.contains(", whole: training, "), "{text}");
    for host in [corrupt, lost] {
        let drained = format!("scontrol update nodename={host} state=drain 'reason=ringmark accept: ");
        assert_eq!(text.lines().filter(|line| line.starts_with(&drained)).count(), 1, "{text}");
    }
}

/// Runs the real worker from the batch script for users.
fn check_batch_script(slurm: &Scheduler) {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = format!("--cases 1n1g,2n2g --iters 3 {SMALL}");
    let submit = "sbatch --wait --nodes=2 --gpus-per-node=2";
    let Output { status, stderr, .. } =
        slurm.submit(&sandbox, submit, "scripts/slurm.sbatch", &options).output().expect("starts");
    let output_text = fs::read_to_string(sandbox.path("ringmark-1.log")).unwrap_or_default();
    assert!(status.success(), "{output_text}\n{}", String::from_utf8_lossy(&stderr));

    // Hosts in Slurm's order, one GPU per rank, and the interface for MPI.
    for (case, hosts, gpus) in [("1n1g", vec![1], "0"), ("2n2g", vec![1, 1, 2, 2], "0,1")] {
        let record = slurm.record(&sandbox, &format!("results/slurm-1/{case}/mxnet-lenet_b2_fp32_1.jsonl"), &hosts);
        let variables = &record.header.environment.variables;
        assert_eq!(variables.get("CUDA_VISIBLE_DEVICES").map(String::as_str), Some(gpus), "{variables:?}");
        assert_eq!(variables.get("OMPI_MCA_btl_tcp_if_include").map(String::as_str), Some("eth0"), "{variables:?}");
    }
    assert!(sandbox.path("results/slurm-1/slurm-1_result.json").exists(), "{output_text}");
}

/// Simulates a busy host: until the first iteration, each answer of the second host's slurmstepd to its ranks is
/// delayed by 0.3 s, so they are still in MPI_Init when those of the first host could leave it.
fn check_late_starting_host(slurm: &Scheduler) {
    let _tokens = take_cores(4);
    let (worker, traced) = (worker(), tempfile::NamedTempFile::new().expect("a file"));
    let sandbox = Sandbox::new(&format!(
        "if [ \"$rank\" = 2 ]; then
            strace -f -p $PPID -e trace=writev -e inject=writev:delay_enter=300000 -o {} &
            while grep -q 'TracerPid:.0$' /proc/$PPID/status; do kill -0 $! || exit 9; sleep 0.1; done
            (until grep -q 'Batch.1.' \"${{record%.jsonl}}.log.part\"; do sleep 0.1; done; kill $!) &
        fi
        exec {} $words",
        traced.path().display(),
        worker.display()
    ));
    let options = format!("--cases 2n2g --iters 2 {SMALL}");
    succeed(&slurm.sweep(&sandbox, &options).output().expect("starts"));
    slurm.record(&sandbox, "out/2n2g/mxnet-lenet_b2_fp32_1.jsonl", &[1, 1, 2, 2]);
    let traced = fs::read_to_string(traced.path()).expect("strace's");
    assert!(traced.contains("(DELAYED)"), "slurmstepd answered by another call: {traced}");
}

/// Tests a dedicated server host, and servers on the ranks' hosts.
fn check_servers_as_tasks(slurm: &Scheduler) {
    for (case, servers, hosts) in [
        ("1n2g", format!("1 --server-hosts {}", slurm.cluster.host(2)), vec![1, 1]),
        ("2n1g", "2".to_owned(), vec![1, 2]),
    ] {
        let _tokens = take_cores(4);
        let sandbox = Sandbox::real();
        let options = format!("--cases {case} --iters 2 {SMALL} --strategy dist_sync --servers {servers}");
        succeed(&slurm.sweep(&sandbox, &options).output().expect("starts"));
        let record = slurm.record(&sandbox, &format!("out/{case}/mxnet-lenet_b2_fp32_dist-sync_1.jsonl"), &hosts);
        let traffic = record.end.as_ref().and_then(|end| end.strategy.as_ref()).expect("of servers");
        let on: Vec<&str> = traffic.servers.iter().map(|server| server.host.as_str()).collect();
        let wanted: &[usize] = if case == "1n2g" { &[2] } else { &[1, 2] };
        assert_eq!(on, wanted.iter().map(|number| slurm.cluster.host(*number)).collect::<Vec<_>>());
    }
}

/// Tests a file after `--nodelist` with the host of each process, one per line, as used for jobs with many processes.
fn check_process_placement_from_a_file(slurm: &Scheduler) {
    let _tokens = take_cores(4);
    let sandbox = Sandbox::real();
    let file = sandbox.path("run.hosts");
    let [first, second] = [1, 2].map(|number| slurm.cluster.host(number));
    fs::write(&file, format!("{second}\n{first}\n{first}\n{second}\n")).expect("written");
    let options = format!(
        "--cases 2n1g --iters 2 {SMALL} --strategy dist_sync --servers 2 --launcher-args --nodelist={}",
        file.display()
    );
    succeed(&slurm.sweep(&sandbox, &options).output().expect("starts"));
    let record = slurm.record(&sandbox, "out/2n1g/mxnet-lenet_b2_fp32_dist-sync_1.jsonl", &[2, 1]);
    let traffic = record.end.as_ref().and_then(|end| end.strategy.as_ref()).expect("of servers");
    let on: Vec<&str> = traffic.servers.iter().map(|server| server.host.as_str()).collect();
    assert_eq!(on, [first, second]);
}

fn check_survival_of_a_lost_rank(slurm: &Scheduler) {
    let _tokens = take_cores(3);
    let sandbox = Sandbox::real();
    // Rank 0 waits for no other rank, and rank 1 has not finished before it is killed.
    let options = format!("--cases 2n1g --iters 1000 {SMALL} --strategy dist_async --servers 1 --inject slow:1:5000");
    let mut command = slurm.sweep(&sandbox, &options);
    let mut sweep = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let log = "2n1g/mxnet-lenet_b2_fp32_dist-async_1.log";
    wait_until("rank 1 has pushed", || has_pushed(&sandbox.path("out"), 1));
    kill(process_of_rank(sandbox.folder.path(), 1), Signal::SIGKILL).expect("running process");
    assert_eq!(sweep.wait().expect("ended").code(), Some(1));
    let reason = sandbox.failure(log);
    assert!(reason.starts_with("rank 1 on host ") && reason.contains("the others continued without it"), "{reason}");
    assert!(sandbox.log(log).contains("Batch[1000]"), "rank 0 did all that it was asked for");
    wait_until("no process is left", || sandbox.left().is_empty());
}

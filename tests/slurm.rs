//! Jobs in a real Slurm: slurmctld and slurmd on hosts of this machine (scripts/slurm_cluster.sh).

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_record::benchmark::Record;
use ringmark_record::benchmark::train::record::RunRecord;

use crate::cluster::{Cluster, host};
use crate::sandbox::{HANGING, Sandbox, wait_until, words};
use crate::{processes_of, turn, worker};

const RINGMARK: &str = env!("CARGO_BIN_EXE_ringmark");

/// `ringmark sweep --launcher slurm` with this sandbox's worker, in an allocation of two hosts with two GPUs each.
fn sweep(cluster: &Cluster, sandbox: &Sandbox, options: &str) -> Command {
    let mut command = cluster.command(&["run", "salloc", "--quiet", "--nodes=2", "--gpus-per-node=2"]);
    command.args([RINGMARK, "sweep", "--launcher", "slurm", "--runs", "1", "--worker"]).arg(sandbox.worker());
    command.arg("--out").arg(sandbox.path("out")).args(words(options));
    command
}

/// Processes whose command line begins with `program` and names the sandbox.
fn processes(sandbox: &Sandbox, program: &str) -> Vec<Pid> {
    let all = processes_of(sandbox.folder.path()).into_iter();
    all.filter(|(_, line)| line.starts_with(&format!("{program}\0"))).map(|(process, _)| process).collect()
}

const LOG: &str = "2n2g/rn50_b128_fp32_1.log";

#[test]
fn slurm_runs_the_sweep_and_leaves_no_process() {
    let _turn = turn();
    let Some(cluster) = Cluster::made_by("slurm_cluster.sh", 2) else { return };
    the_batch_script_trains(&cluster);
    a_rank_that_fails_is_srun_s_failure(&cluster);
    no_rank_outlives_its_sweep(&cluster);
}

/// The real worker, from the script that users start from.
fn the_batch_script_trains(cluster: &Cluster) {
    let sandbox = Sandbox::real();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm.sbatch");
    let programs = worker().parent().expect("a program lies in a folder").to_owned();
    let mut command = cluster.command(&["run", "sbatch", "--wait", "--nodes=2", "--gpus-per-node=2"]);
    command
        .arg(script)
        .args(words("--cases 1n1g,2n2g --runs 1 --model resnet18 --batch-size 2 --image-size 32 --iters 3 --warmup 1"));
    command.args(words("--dtype fp32 --threads 1 --interface eth0 --worker")).arg(sandbox.worker());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", programs.display())).current_dir(sandbox.folder.path());
    let Output { status, stderr, .. } = command.output().expect("starts");
    let said = fs::read_to_string(sandbox.path("ringmark-1.log")).unwrap_or_default();
    assert!(status.success(), "{said}\n{}", String::from_utf8_lossy(&stderr));

    // Hosts in Slurm's order, as many GPUs as ranks, and the interface for MPI.
    for (case, hosts, gpus) in [("1n1g", vec![1], "0"), ("2n2g", vec![1, 1, 2, 2], "0,1")] {
        let record = sandbox.path(&format!("results/slurm-1/{case}/resnet18_b2_fp32_1.jsonl"));
        let record = RunRecord::read(&fs::read(record).expect(case)[..]).expect("a record");
        assert_eq!(record.failure(), None);
        let places: Vec<&str> = record.header.ranks.iter().map(|place| place.host.as_str()).collect();
        assert_eq!(places, hosts.iter().map(|number| host(*number)).collect::<Vec<_>>());
        let variables = &record.header.environment.variables;
        assert_eq!(variables.get("CUDA_VISIBLE_DEVICES").map(String::as_str), Some(gpus), "{variables:?}");
        assert_eq!(variables.get("OMPI_MCA_btl_tcp_if_include").map(String::as_str), Some("eth0"), "{variables:?}");
    }
    assert!(sandbox.path("results/slurm-1/slurm-1_result.json").exists(), "{said}");
}

fn a_rank_that_fails_is_srun_s_failure(cluster: &Cluster) {
    let sandbox = Sandbox::new("[ $rank = 3 ] && exit 7\nsleep 60");
    let output = sweep(cluster, &sandbox, "--cases 2n2g").output().expect("starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // srun has the highest status of all ranks, those included that it ended because of this one; its words tell.
    assert_eq!(sandbox.failure(LOG), "rank 3 of 4 ended with exit status 7");
    let said = sandbox.log(LOG);
    assert!(said.contains(&format!("srun: error: {}: task 3: Exited with exit code 7", host(2))), "{said}");
    wait_until("no rank is left", || sandbox.left().is_empty());

    // More ranks than GPUs are refused before anything starts.
    let output = sweep(cluster, &Sandbox::new("exit 1"), "--cases 2n4g").output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let slots = format!("case 2n4g needs 4 slots a host, {} has 2", host(1));
    assert!(said.contains(&slots), "{said}");
}

/// Ranks on two hosts that do not mind SIGTERM; only Slurm can reach those of the other host.
fn no_rank_outlives_its_sweep(cluster: &Cluster) {
    for (ending, reason) in [
        ("time", "timed out after 4 s; no rank has reported"),
        ("interrupt", "interrupted"),
        ("srun stopped", "interrupted"),
        ("srun killed", "srun was ended by signal 9"),
    ] {
        let sandbox = Sandbox::new(HANGING);
        let options = if ending == "time" { "--cases 2n2g --timeout 4" } else { "--cases 2n2g" };
        let mut command = sweep(cluster, &sandbox, options);
        let mut sweep = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        sandbox.wait_for_ranks(4);
        let signal = |program: &str, signal| {
            let first = *processes(&sandbox, program).first().expect(program);
            kill(first, signal).expect("it runs");
        };
        // srun has a child of its name, with a higher number.
        match ending {
            "interrupt" => signal(RINGMARK, Signal::SIGINT),
            "srun stopped" => {
                // It must be killed in the end, and its ranks by somebody else.
                signal("srun", Signal::SIGSTOP);
                signal(RINGMARK, Signal::SIGTERM);
            }
            "srun killed" => signal("srun", Signal::SIGKILL),
            _ => {}
        }
        assert_eq!(sweep.wait().expect("ended").code(), Some(1), "{ending}");
        assert_eq!(sandbox.failure(LOG), reason, "{ending}");
        wait_until("no rank is left", || sandbox.left().is_empty());
    }
}

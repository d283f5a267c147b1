//! Jobs in a real Slurm: slurmctld and slurmd on hosts of this machine (scripts/slurm_cluster.sh).

use std::fs;
use std::process::Output;

use crate::cluster::Cluster;
use crate::sandbox::Sandbox;
use crate::scheduler::{SMALL, Scheduler};
use crate::turn;

#[test]
fn slurm_runs_the_sweep_and_leaves_no_process() {
    let Some(cluster) = Cluster::made_by("slurm_cluster.sh", 2) else { return };
    let slurm = Scheduler {
        cluster: &cluster,
        name: "slurm",
        run: "salloc --quiet --nodes=2 --gpus-per-node=2",
        starter: "srun",
    };
    the_batch_script_trains(&slurm);
    // srun has the highest status of all ranks, those included that it ended because of this one; its words tell.
    let log = slurm.failures_are_named();
    assert!(log.contains(&format!("srun: error: {}: task 3: Exited with exit code 7", cluster.host(2))), "{log}");
    slurm.no_rank_outlives_its_sweep();
}

/// The real worker, from the script that users start from.
fn the_batch_script_trains(slurm: &Scheduler) {
    let _turn = turn();
    let sandbox = Sandbox::real();
    let options = format!("--cases 1n1g,2n2g --iters 3 {SMALL}");
    let submit = "sbatch --wait --nodes=2 --gpus-per-node=2";
    let Output { status, stderr, .. } =
        slurm.submit(&sandbox, submit, "scripts/slurm.sbatch", &options).output().expect("starts");
    let said = fs::read_to_string(sandbox.path("ringmark-1.log")).unwrap_or_default();
    assert!(status.success(), "{said}\n{}", String::from_utf8_lossy(&stderr));

    // Hosts in Slurm's order, as many GPUs as ranks, and the interface for MPI.
    for (case, hosts, gpus) in [("1n1g", vec![1], "0"), ("2n2g", vec![1, 1, 2, 2], "0,1")] {
        let record = slurm.record(&sandbox, "results/slurm-1", case, &hosts);
        let variables = &record.header.environment.variables;
        assert_eq!(variables.get("CUDA_VISIBLE_DEVICES").map(String::as_str), Some(gpus), "{variables:?}");
        assert_eq!(variables.get("OMPI_MCA_btl_tcp_if_include").map(String::as_str), Some("eth0"), "{variables:?}");
    }
    assert!(sandbox.path("results/slurm-1/slurm-1_result.json").exists(), "{said}");
}

//! Spare hosts in the place of lost ones.

use std::fs;
use std::time::Instant;

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::train::interruption::ReplacedHost;

use crate::support::cluster::{Cluster, succeed};
use crate::support::cluster_sweep::{Sweep, command, until_empty};
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{succeeds, wait_until};
use crate::support::worker_run::checksum;

/// The connections of a rank are closed once. Both hosts remain, and the run continues with the same weights. Open MPI may
/// connect again, so that a few iterations pass until the lost connection to mpirun ends the rank.
#[test]
fn run_continues_after_closed_connections() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let hosts =
        format!("--hosts {}:1,{}:1 --iters 200 --warmup 4 --checkpoint-every 100", cluster.host(1), cluster.host(2));
    let record = |out: &str, options: &str| {
        let out = folder.path().join(out);
        succeeds(&mut command(&cluster, "2n1g", &out, &format!("{hosts} {options}")));
        until_empty(&cluster);
        let path = out.join("2n1g/resnet18_b2_fp32_1.jsonl");
        RunRecord::read(&fs::read(path).expect("a record")[..]).expect("whole")
    };
    let restarted = record("out", "--inject link:105:1 --restarts 1");
    let [resumption] = restarted.header.resumptions.as_slice() else { panic!("{:?}", restarted.header.resumptions) };
    let interruption = resumption.interruption.as_ref().expect("started again by the launcher");
    assert_eq!((resumption.behind, interruption.replaced.len()), (100, 0), "{interruption:?}");
    assert_eq!(checksum(&restarted), checksum(&record("whole", "")));
}

/// The link of the second host fails. The first spare host does not exist, the second one takes its place; weights are
/// those of an undisturbed run.
#[test]
fn spare_host_continues_the_run_of_a_lost_host() {
    let Some(cluster) = Cluster::start(3) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second, spare) = (cluster.host(1), cluster.host(2), cluster.host(3));
    let missing = cluster.host(9);
    let hosts = format!("--hosts {first}:1,{second}:1 --checkpoint-every 5");
    let options = format!("{hosts} --restarts 1 --spare-hosts {missing},{spare}");
    let mut sweep = Sweep::start(&cluster, folder.path(), "2n1g", &options);
    sweep.reach();
    let checkpoint = sweep.out.join("2n1g/resnet18_b2_fp32_1.safetensors");
    wait_until("a checkpoint is written", || checkpoint.exists());
    let since = Instant::now();
    succeed(&cluster.call(&["on", "2", "ip", "link", "set", "eth0", "down"]));
    let outcome = sweep.end(since);
    assert_eq!(outcome.status, Some(0), "{}", outcome.last_line);
    let errors = sweep.errors();
    assert!(errors.contains(&format!("warning: spare host {missing} is skipped: it does not answer\n")), "{errors}");
    until_empty(&cluster);
    let record = |out: &str| {
        let path = folder.path().join(out).join("2n1g/resnet18_b2_fp32_1.jsonl");
        RunRecord::read(&fs::read(path).expect("a record")[..]).expect("whole")
    };
    let restarted = record("out");
    let ran_on: Vec<&str> = restarted.header.ranks.iter().map(|rank| rank.host.as_str()).collect();
    assert_eq!(ran_on, [&first, &spare]);
    let [resumption] = restarted.header.resumptions.as_slice() else { panic!("{:?}", restarted.header.resumptions) };
    let interruption = resumption.interruption.as_ref().expect("started again by the launcher");
    assert_eq!(interruption.replaced, [ReplacedHost { host: second.clone(), spare }]);
    assert!(interruption.cause.contains(&format!("on host {second} ")), "{interruption:?}");
    assert!(
        resumption.behind >= 5 && resumption.behind.is_multiple_of(5) && interruption.detection.0 >= 5.0,
        "{resumption:?}"
    );
    assert_eq!(resumption.changes.len(), 1, "{:?}", resumption.changes);

    succeed(&cluster.call(&["on", "2", "ip", "link", "set", "eth0", "up"]));
    wait_until("the host answers again", || cluster.call(&["run", "ssh", &second, "true"]).status.success());
    succeeds(&mut command(&cluster, "2n1g", &folder.path().join("whole"), &hosts));
    assert_eq!(checksum(&restarted), checksum(&record("whole")));
}

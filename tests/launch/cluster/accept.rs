//! `ringmark accept` on hosts with faults that do not depend on the speed of this machine. `scripts/dev/accept_faults.py` has
//! those that do.

use std::fs;

use ringmark_core::accept::{Cause, Fitness, Subject, VERDICT, Verdict};

use crate::support::cluster::{Cluster, succeed};
use crate::support::cluster_sweep::until_empty;
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{run, words};
use crate::support::worker;

/// Only a host or link without any speed counts as slow: the hosts share two cores.
const CRITERIA: &str = "smallest_defect = 0.95\nmissed = 0.1\nmax_repeats = 2\nstages = [\"alone\", \"pairs\"]\n";

#[test]
fn unreachable_host_and_cut_link_are_named() {
    let Some(cluster) = Cluster::start(5) else { return };
    let tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let (out, criteria) = (folder.path().join("out"), folder.path().join("accept.toml"));
    fs::write(&criteria, CRITERIA).expect("written");
    // Hosts are numbered from 1 by the script, and from 0 in the verdict.
    succeed(&cluster.call(&["on", "5", "ip", "link", "set", "eth0", "down"]));
    succeed(&cluster.call(&words("on 2 iptables -A OUTPUT -d 10.77.0.4 -j DROP").collect::<Vec<_>>()));
    let hosts: Vec<String> = (1..=5).map(|number| format!("{}:1", cluster.host(number))).collect();
    let mut accept = cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark"), "accept", "--device", "cpu"]);
    accept.arg("--hosts").arg(hosts.join(",")).arg("--worker").arg(worker()).arg("--out").arg(&out);
    accept.arg("--criteria").arg(&criteria).args(words("--stall-timeout 20 --drain-list -"));
    let (status, stdout, stderr) = run(&mut accept);
    drop(tokens);
    println!("{stdout}{stderr}");
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    until_empty(&cluster);
    let verdict: Verdict = serde_json::from_slice(&fs::read(out.join(VERDICT)).expect("written")).expect("a verdict");
    let host = &verdict.hosts[4];
    assert_eq!((host.fitness, host.cause), (Fitness::Unfit, Some(Cause::Facts)), "{stdout}");
    let link = verdict.links.iter().find(|link| link.subject == Subject::Link(1, 3)).expect("the cut link");
    assert_eq!(link.fitness, Fitness::Unfit, "{stdout}");
    let first = stdout.lines().find(|line| line.contains(": unfit (")).expect("a line");
    assert!(stdout.contains(&format!("\n{}\n", cluster.host(5))), "the list of hosts to drain: {stdout}");
    assert!(first.contains(&cluster.host(5)) || first.contains(&cluster.host(2)), "{stdout}");
}

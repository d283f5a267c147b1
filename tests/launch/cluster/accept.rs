//! `ringmark accept` on hosts with faults that do not depend on the speed of this machine. `scripts/dev/accept_faults.py` has
//! those that do.

use std::fs;

use ringmark_core::accept::{Cause, Fitness, Subject, VERDICT, Verdict};

use crate::support::cluster::{Cluster, succeed};
use crate::support::cluster_sweep::until_empty;
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{Sandbox, run, words};
use crate::support::worker;

/// Only a host or link without any speed counts as slow: the hosts share two cores.
const CRITERIA: &str = "smallest_defect = 0.95\nmissed = 0.1\nmax_repeats = 2\nstages = [\"alone\", \"pairs\"]\n";

/// The worker is copied to the hosts first: a host where that fails is named as well, and the others are tested.
#[test]
fn unreachable_host_and_cut_link_are_named() {
    let Some(cluster) = Cluster::start(5) else { return };
    let tokens = take_all_cores();
    let sandbox = Sandbox::new(&format!("exec {} $words", worker().display()));
    let [out, criteria, copy] = ["out", "accept.toml", "copy"].map(|name| sandbox.path(name));
    fs::write(&criteria, CRITERIA).expect("written");
    fs::create_dir(&copy).expect("made");
    let folder = copy.display().to_string();
    let on = |line: &str| succeed(&cluster.call(&[&["on"], &words(line).collect::<Vec<_>>()[..]].concat()));
    // Each host has its own disk for the copy.
    (1..=4).for_each(|host| on(&format!("{host} mount -t tmpfs none {folder}")));
    on(&format!("3 mount -o remount,ro {folder}"));
    // Hosts are numbered from 1 by the script, and from 0 in the verdict.
    on("5 ip link set eth0 down");
    on("2 iptables -A OUTPUT -d 10.77.0.4 -j DROP");
    let hosts: Vec<String> = (1..=5).map(|number| format!("{}:1", cluster.host(number))).collect();
    let mut accept = cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark"), "accept", "--device", "cpu"]);
    accept.arg("--hosts").arg(hosts.join(",")).arg("--worker").arg(sandbox.worker()).arg("--out").arg(&out);
    accept.arg("--criteria").arg(&criteria).args(words("--stall-timeout 20 --drain-list - --sync")).arg(&folder);
    let (status, stdout, stderr) = run(&mut accept);
    drop(tokens);
    println!("{stdout}{stderr}");
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    until_empty(&cluster);
    let verdict: Verdict = serde_json::from_slice(&fs::read(out.join(VERDICT)).expect("written")).expect("a verdict");
    for (host, reason) in [(2, "sync: cannot write "), (4, "ssh: host unreachable (ssh: connect to host ")] {
        let host = &verdict.hosts[host];
        assert_eq!((host.fitness, host.cause), (Fitness::Unfit, Some(Cause::Facts)), "{stdout}");
        assert!(host.evidence[0].text.starts_with(reason), "{host:?}");
    }
    let link = verdict.links.iter().find(|link| link.subject == Subject::Link(1, 3)).expect("the cut link");
    assert_eq!(link.fitness, Fitness::Unfit, "{stdout}");
    for host in [1, 2, 4] {
        assert!(stdout.contains(&format!("sync to {}:{folder}: 1 file, ", cluster.host(host))), "{stdout}");
    }
    assert!(
        sandbox.log("jobs/01_alone_001_training.log").contains(&format!(" {folder}/worker train ")),
        "the copy runs"
    );
    let unreachable = format!("sync to {}: host unreachable (ssh: connect to host ", cluster.host(5));
    assert!(stdout.contains(&unreachable), "{stdout}");
    // The host of the cut link that is slower alone is left out.
    let drained = [[2, 3, 5], [3, 4, 5]].map(|hosts| hosts.map(|host| format!("{}\n", cluster.host(host))).concat());
    assert!(stdout.contains("usable in one job: 2 hosts: "), "{stdout}");
    assert!(drained.iter().any(|hosts| stdout.contains(hosts)), "the list of hosts to drain: {stdout}");
    let first = stdout.lines().find(|line| line.contains(": unfit (")).expect("a line");
    assert!([2, 3, 5].iter().any(|host| first.contains(&cluster.host(*host))), "{stdout}");
}

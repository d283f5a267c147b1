//! The main use case on four hosts: a sweep from a hostfile, its results, and no leftover processes.

use std::fs;
use std::process::Command;

use crate::support::cluster::{Cluster, succeed};
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{succeeds, words};
use crate::support::worker;

#[test]
fn sweep_from_a_hostfile_prints_an_efficiency_table() {
    let Some(cluster) = Cluster::start(4) else { return };
    let tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let (hostfile, out) = (folder.path().join("hosts"), folder.path().join("out"));
    let lines: Vec<String> = (1..=4).map(|number| format!("{} slots=2\n", cluster.host(number))).collect();
    fs::write(&hostfile, lines.concat()).expect("written");

    // The number of slots is queried if not given: on the first host, which runs ringmark, and on the second by ssh.
    let options = folder.path().join("sweep.toml");
    let mut dry = cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark"), "sweep", "--dry-run", "--cases", "2n1g"]);
    dry.arg("--hosts")
        .arg(format!("{},{}", cluster.host(1), cluster.host(2)))
        .args(["--device", "cpu", "--worker"])
        .arg(worker());
    succeed(&dry.arg("--out").arg(&out).arg("--save-config").arg(&options).output().expect("starts"));
    let cores = ringmark_core::host::processors::cores();
    let output_text = fs::read_to_string(&options).expect("written");
    assert!(
        output_text.contains(&format!("\nhosts = \"{}:{cores},{}:{cores}\"\n", cluster.host(1), cluster.host(2))),
        "{output_text}"
    );

    let mut sweep =
        cluster.command(&["run", env!("CARGO_BIN_EXE_ringmark"), "sweep", "--cases", "1n1g,1n2g,2n2g,4n2g"]);
    sweep.arg("--hostfile").arg(&hostfile).arg("--worker").arg(worker()).arg("--out").arg(&out);
    sweep.args(words("--runs 1 --device cpu --model mxnet-lenet --batch-size 2 --iters 5 --warmup 1 --threads 1"));
    let output = sweep.output().expect("starts");
    drop(tokens);
    succeed(&output);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output_text.starts_with("interface: eth0, 10.77.0.0/24 (the host names resolve to it)\n"), "{output_text}");

    let table = succeeds(Command::new(env!("CARGO_BIN_EXE_ringmark")).arg("extract").arg(&out));
    println!("{table}");
    for (case, ranks) in [("1n1g", 1), ("1n2g", 2), ("2n2g", 4), ("4n2g", 8)] {
        let line = table.lines().find(|line| line.starts_with(case)).expect(case);
        let columns: Vec<&str> = line.split_whitespace().collect();
        // A mark after it indicates warnings.
        assert_eq!((columns[1], columns[2].trim_end_matches('!')), (ranks.to_string().as_str(), "1/1"), "{line}");
    }
    assert!(table.contains("efficiency"), "{table}");
}

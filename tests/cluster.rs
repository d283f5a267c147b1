//! Ranks on several hosts: network namespaces of this machine with sshd, real mpirun (scripts/cluster.sh).

use std::path::Path;
use std::process::{Command, Output};

use nix::unistd::Uid;
use ringmark_record::bandwidth::record::BandwidthRecord;
use ringmark_record::run::RunRecord;

use crate::{turn, worker};

/// Hosts that are taken down when the test ends, however it ends.
pub struct Cluster;

impl Cluster {
    /// `None`, with a word of why, where this user may not make hosts.
    pub fn up(hosts: u32) -> Option<Cluster> {
        if !Uid::effective().is_root() {
            eprintln!("not tested: hosts on one machine are made by root alone");
            return None;
        }
        succeed(&cluster(&["down"]));
        succeed(&cluster(&["up", &hosts.to_string()]));
        Some(Cluster)
    }

    /// Runs workers with so many ranks on each host, with `words`.
    fn worker(&self, ranks: &[u32], words: &[&str]) -> Output {
        let host = |(index, ranks): (usize, &u32)| format!("{}:{ranks}", host(index + 1));
        let hosts = ranks.iter().enumerate().map(host).collect::<Vec<_>>().join(",");
        let (all, program) = (ranks.iter().sum::<u32>().to_string(), worker());
        let mut command =
            vec!["run", "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", &all];
        command.extend(["-H", &hosts, "-x", "OMP_NUM_THREADS=1", "-mca", "btl", "^openib"]);
        command.push(program.to_str().expect("a name"));
        command.extend(words);
        cluster(&command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        cluster(&["down"]);
    }
}

/// The name of host `number`, from 1.
pub fn host(number: usize) -> String {
    format!("{}-{number}", std::env::var("CLUSTER_NAME").unwrap_or_else(|_| "ringmark".to_owned()))
}

/// The script's answer to `words`.
pub fn cluster(words: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/cluster.sh");
    Command::new(script).args(words).output().expect("the script starts")
}

/// Shows what `output` says where it is a failure.
pub fn succeed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn two_hosts_sum_exactly_and_train_as_one_does() {
    let _turn = turn();
    let Some(cluster) = Cluster::up(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();

    // Shared memory inside a host, MPI between the two; the last size is of many pieces, and the last case has ranks
    // without a counterpart on the other host.
    let cases: [(&[u32], &str); 5] =
        [(&[1, 1], "fp32"), (&[2, 2], "fp32"), (&[2, 2], "bf16"), (&[3, 3], "fp16"), (&[3, 1], "fp32")];
    for (ranks, wire) in cases {
        let json = path("bandwidth.json");
        let options =
            ["-b", "8", "-e", "2M", "-f", "512", "-n", "2", "-w", "1", "--device", "cpu", "--piece-kb", "100"];
        let words = [&["bandwidth", "--json", &json, "--wire", wire], &options[..]].concat();
        succeed(&cluster.worker(ranks, &words));
        let record = BandwidthRecord::read(std::fs::File::open(&json).expect("written")).expect("a record");
        let hosts: Vec<&str> = record.ranks.iter().map(|place| place.host.as_str()).collect();
        assert!(hosts.contains(&host(1).as_str()) && hosts.contains(&host(2).as_str()), "{hosts:?}");
        assert_eq!((record.collective.as_str(), record.failure), ("shared-memory", None));
        for result in &record.results {
            for (side, timing) in result.sides() {
                assert_eq!(timing.expect("both sides").wrong, Some(0), "{ranks:?} {wire} {side} {}", result.bytes);
            }
        }
    }

    // Two numbers have one sum, however they travel: the weights are equal to the last bit.
    let options =
        "--device cpu --batch-size 2 --image-size 32 --iters 3 --warmup 1 --threads 1 --lr 0.0001 --lr-warmup-iters 0";
    let checksum = |record: &String, output: &Output| {
        succeed(output);
        let text = std::fs::read(record).expect("written");
        let end = RunRecord::read(&text[..]).expect("a record").end.expect("an end");
        assert_eq!(end.failure, None);
        end.parameter_checksums[0].clone()
    };
    let (far, near) = (path("far.jsonl"), path("near.jsonl"));
    fn words<'a>(record: &'a str, options: &'a str) -> Vec<&'a str> {
        [vec!["train", "--record", record], options.split(' ').collect()].concat()
    }
    let across = checksum(&far, &cluster.worker(&[1, 1], &words(&far, options)));
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]);
    let within = command.arg(worker()).args(words(&near, options)).output().expect("mpirun starts");
    assert_eq!(across, checksum(&near, &within));
}

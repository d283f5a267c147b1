//! Ranks on several hosts: numerical results, and copies of the worker.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{BackendName, Operation};
use ringmark_core::options::keyword_enum::KeywordEnum;

use crate::support::cluster::{Cluster, succeed};
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{Sandbox, mpirun, wait_until, words};
use crate::support::worker_run::{AT_ONCE, apart};
use crate::support::{processes_of, safetensors, worker};

#[test]
fn sums_across_hosts_are_exact_and_training_matches() {
    let Some(cluster) = Cluster::start(3) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();

    // Shared memory within a host, MPI between hosts. The last size has many chunks. In the last case of two hosts
    // some ranks have no counterpart on the other host; of three hosts each adds a part.
    let cases: [(&[u32], &str); 5] =
        [(&[1, 1], "fp32"), (&[2, 2], "bf16"), (&[3, 1], "fp16"), (&[1, 1, 1], "fp32"), (&[1, 2, 2], "fp32")];
    for (ranks, wire) in cases {
        let json = path("bandwidth.json");
        let options =
            ["-b", "8", "-e", "2M", "-f", "512", "-n", "2", "-w", "1", "--device", "cpu", "--piece-kb", "100"];
        let words = [&["bandwidth", "--json", &json, "--wire", wire], &options[..]].concat();
        succeed(&cluster.worker(ranks, &words));
        let record = BandwidthRecord::read(BufReader::new(File::open(&json).expect("written"))).expect("a record");
        let hosts: Vec<&str> = record.ranks.iter().map(|place| place.host.as_str()).collect();
        let is_there = |(index, _): (usize, &u32)| hosts.contains(&cluster.host(index + 1).as_str());
        assert!(ranks.iter().enumerate().all(is_there), "{hosts:?}");
        assert_eq!((record.backend, record.failure), (BackendName::SharedMemory, None));
        for result in &record.results {
            for (side, timing) in result.sides() {
                assert_eq!(timing.expect("both sides").wrong, Some(0), "{ranks:?} {wire} {side} {}", result.bytes);
            }
        }
    }

    // Two numbers have one sum regardless of the path: the weights are equal to the last bit.
    let options = "--device cpu --model resnet18 --batch-size 2 --image-size 32 --iters 3 --warmup 1 --threads 1 --lr 0.0001 --lr-warmup-iters 0";
    let checksum = |record: &String, output: &Output| {
        succeed(output);
        let text = std::fs::read(record).expect("written");
        let end = RunRecord::read(&text[..]).expect("a record").end.expect("an end");
        assert_eq!(end.failure, None);
        end.parameter_checksums[0].clone()
    };
    let (far, near) = (path("far.jsonl"), path("near.jsonl"));
    fn train<'a>(record: &'a str, options: &'a str) -> Vec<&'a str> {
        [vec!["train", "--record", record], options.split(' ').collect()].concat()
    }
    let across = checksum(&far, &cluster.worker(&[1, 1], &train(&far, options)));
    let within = mpirun(2).arg(worker()).args(train(&near, options)).output().expect("mpirun starts");
    assert_eq!(across, checksum(&near, &within));
}

/// Shared memory within the hosts, MPI between them. The first host has a rank without a counterpart on the other;
/// the root is on the host with fewer ranks.
#[test]
fn every_operation_is_correct_on_two_hosts() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let is_right = |operation: &Operation, ranks: [u32; 2], wire: &str, reduction: &str, json: &Path| {
        let file = json.display();
        let mut all = format!("bandwidth --json {file} --op {operation} --wire {wire} --device cpu --chunk-kb 100");
        all += " -b 64 -e 700100 -i 350000 -n 2 -w 1";
        if operation.has_root() {
            all += &format!(" --root {}", ranks.iter().sum::<u32>() - 1);
        }
        if operation.reduces() {
            all += &format!(" --redop {reduction}");
        }
        succeed(&cluster.worker(&ranks, &words(&all).collect::<Vec<_>>()));
        let record = BandwidthRecord::read(BufReader::new(File::open(json).expect("written"))).expect("a record");
        assert_eq!((record.backend, record.failure), (BackendName::SharedMemory, None), "{all}");
        for result in &record.results {
            for (side, timing) in result.sides() {
                assert_eq!(timing.expect("both sides").wrong, Some(0), "{all}: {side} of {}", result.bytes);
            }
        }
    };
    // In parallel: half of each job is the start of its ranks by ssh.
    thread::scope(|scope| {
        for half in Operation::ALL.chunks(Operation::ALL.len().div_ceil(2)) {
            let is_right = &is_right;
            scope.spawn(move || {
                let folder = tempfile::tempdir().expect("a folder");
                let json = folder.path().join("bandwidth.json");
                half.iter().for_each(|operation| is_right(operation, [2, 1], "bf16", "max", &json));
                if half.contains(&Operation::AllReduce) {
                    is_right(&Operation::AllReduce, [2, 2], "fp32", "avg", &json);
                }
            });
        }
    });
}

#[test]
fn sums_between_hosts_use_fp32_and_round_once() {
    let Some(cluster) = Cluster::start(4) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let weights = |ranks: &[u32], rate: &str, options: &str| {
        let file = folder.path().join("weights").display().to_string();
        let all = format!(
            "train --device cpu --model resnet18 --batch-size 2 --image-size 32 --iters 1 --warmup 0 --threads 1 \
             --freeze-batch-norm {AT_ONCE} --lr {rate} --save {file} {options}"
        );
        let output = cluster.worker(ranks, &words(&all).collect::<Vec<_>>());
        succeed(&output);
        (safetensors::read(Path::new(&file)), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // A learning rate that moves the weights far beyond their own rounding.
    let hosts = &[1, 1, 1, 1];
    let ((start, _), (exact, _)) = (weights(&[1], "0", ""), weights(hosts, "1", ""));
    let error = |backend: &str, sums: &str| {
        let (rounded, output_text) = weights(hosts, "1", &format!("--wire fp16 --backend {backend}"));
        assert!(
            output_text.contains(&format!(" by {backend}, overlap on, wire fp16, added in {sums}\n")),
            "{output_text}"
        );
        apart(&rounded, &exact, &start)
    };
    let (ours, library) = (error("shared-memory", "fp32"), error("mpi", "fp16"));
    // Gradients are rounded before the exchange, by about 2^-12; their sums once, or after every addition.
    println!("error of gradients summed over 4 hosts in fp16: {ours:.2e}, by MPI_Allreduce {library:.2e}");
    assert!(ours < 0.92 * library && (1e-4..1e-3).contains(&ours), "{ours} {library}");
}

#[test]
fn hierarchical_and_flat_all_reduce_train_identically() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let weights = |ranks: &[u32], rate: &str, hierarchical: &str| {
        let file = folder.path().join("weights").display().to_string();
        let all = format!(
            "train --device cpu --model resnet18 --batch-size 2 --image-size 32 --iters 1 --warmup 0 --threads 1 \
             --freeze-batch-norm {AT_ONCE} --lr {rate} --save {file} --hierarchical {hierarchical}"
        );
        let output = cluster.worker(ranks, &words(&all).collect::<Vec<_>>());
        succeed(&output);
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        let backend = match (ranks, hierarchical) {
            ([1], _) => "solo",
            (_, "on") => "shared-memory",
            _ => "mpi",
        };
        assert!(output_text.contains(&format!(" by {backend}, overlap on")), "{output_text}");
        safetensors::read(Path::new(&file))
    };
    let start = weights(&[1], "0", "on");
    // Four addends are rounded differently in another order; two have only one sum, so with one rank per host the
    // results are equal.
    for (ranks, most) in [(&[2, 2][..], 1e-5), (&[1, 1], 0.0)] {
        let [on, off] = ["on", "off"].map(|hierarchical| weights(ranks, "1", hierarchical));
        let apart = apart(&off, &on, &start);
        assert!(apart <= most, "{ranks:?}: {apart}");
    }
}

#[test]
fn synced_copy_runs_on_a_bare_host() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let (first, second) = (cluster.host(1), cluster.host(2));
    let on = |host: &str, command: &str| succeed(&cluster.call(&["run", "ssh", host, command]));
    // The hosts share a disk: each gets its own folder for the copy, and the second host has neither libtorch nor the
    // program.
    let copy = sandbox.path("copy");
    let copy = copy.to_str().expect("a plain name");
    std::fs::create_dir(copy).expect("made");
    let libtorch = Path::new(env!("CARGO_MANIFEST_DIR")).join(".libtorch/torch/..").canonicalize().expect("set up");
    on(&first, &format!("mount -t tmpfs none {copy}"));
    on(&second, &format!("mount -t tmpfs none {copy} && mount -t tmpfs none {}", libtorch.display()));
    on(&second, &format!("mount --bind /dev/null {}", worker().display()));

    // Files of another owner, next to the copy and in its folders.
    let foreign = format!("{copy}/notes {copy}/torch/lib/notes {copy}/torch/own/notes");
    on(&second, &format!("mkdir -p {copy}/torch/lib {copy}/torch/own && echo kept | tee {foreign}"));

    let hosts = format!("{first}:1,{second}:1");
    let sync = |command: &str| {
        let words = ["run", env!("CARGO_BIN_EXE_ringmark"), command, "--device", "cpu", "--cases", "2n1g", "--worker"];
        let mut command = cluster.command(&words);
        command.arg(sandbox.worker()).args(["--hosts", &hosts, "--sync", copy, "--threads", "1"]);
        command
    };
    let training = words("--runs 1 --model mxnet-lenet --batch-size 2 --iters 3 --warmup 1");
    let output = sync("sweep").arg("--out").arg(sandbox.path("out")).args(training).output().expect("starts");
    succeed(&output);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    for host in [&first, &second] {
        let line = output_text.lines().find(|line| line.starts_with(&format!("sync to {host}:{copy}: "))).expect(host);
        assert!(line.contains(" files, ") && line.contains(" MB in "), "{line}");
    }
    let record = std::fs::read(sandbox.path("out/2n1g/mxnet-lenet_b2_fp32_1.jsonl")).expect("written");
    let hosts_of_ranks = RunRecord::read(&record[..]).expect("a record").header.ranks;
    assert_eq!(hosts_of_ranks.iter().map(|place| &place.host).collect::<Vec<_>>(), [&first, &second]);

    // Changes a byte in a library on one host without changing time and length: only the hash differs.
    let library = format!("{copy}/torch/lib/libgomp.so.1");
    let damage = "printf x | dd of=FILE bs=1 seek=64 conv=notrunc status=none && touch --reference=FILE.old FILE";
    on(&second, &format!("cp -p {library} {library}.old && {}", damage.replace("FILE", &library)));
    let small = words("-b 8 -e 8 -n 2 -w 1");
    let output = sync("bandwidth").arg("--out").arg(sandbox.path("small")).args(small).output().expect("starts");
    succeed(&output);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output_text.contains(&format!("# sync to {first}:{copy}: equal\n")), "{output_text}");
    assert!(output_text.contains(&format!("# sync to {second}:{copy}: 1 file, ")), "{output_text}");

    on(&second, &format!("test \"$(cat {foreign} | uniq -c | xargs)\" = '3 kept'"));

    // Errors name the host and the fix.
    on(&second, &format!("umount {copy} && mount -t tmpfs -o size=10m none {copy}"));
    let refused = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let full = refused(sync("bandwidth").arg("--out").arg(sandbox.path("full")).output().expect("starts"));
    assert!(full.contains(&format!("{second}: no space left in {copy}: free some space")), "{full}");
    on(&second, &format!("mount -o remount,ro {copy}"));
    let locked = refused(sync("bandwidth").arg("--out").arg(sandbox.path("locked")).output().expect("starts"));
    assert!(locked.contains(&format!("{second}: cannot write {copy} (")), "{locked}");

    // A copy that would take minutes is interrupted immediately on all hosts.
    on(&second, &format!("umount {copy} && mount -t tmpfs none {copy}"));
    succeed(&cluster.call(&["limit", "10mbit"]));
    let mut slow = sync("bandwidth");
    let slow = slow.arg("--out").arg(sandbox.path("slow")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let copies = || processes_of(sandbox.folder.path()).into_iter().filter(|(_, line)| line.starts_with("rsync\0"));
    wait_until("the copy starts", || copies().count() >= 3);
    let launcher = |(_, line): &(Pid, String)| line.starts_with(env!("CARGO_BIN_EXE_ringmark"));
    let (launcher, _) = processes_of(sandbox.folder.path()).into_iter().find(launcher).expect("running process");
    kill(launcher, Signal::SIGINT).expect("running process");
    let output = slow.expect("starts").wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output_text.contains("interrupted while copying"), "{output_text}");
    wait_until("no copy is left", || copies().count() == 0);
}

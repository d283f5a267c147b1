//! `--hierarchical` on real ranks, in training and in `bandwidth`: its values in records, and contradicting options.

use std::fs;

use expect_test::expect;
use ringmark_core::benchmark::exchange::Switch;

use crate::support::bandwidth::read;
use crate::support::core_tokens::take_all_cores;
use crate::support::runs::{Folder, record};
use crate::support::sandbox::{Sandbox, check_refusals, refused, ringmark, run, succeeds};
use crate::support::worker_run::{Run, checksum};

const TRAIN: &str = "--model mlp --image-size 28 --iters 2 --lr 0.001 --lr-warmup-iters 0";

#[test]
fn training_uses_and_records_the_requested_hierarchy() {
    let (on, off) = (Some(Switch::On), Some(Switch::Off));
    let train = |ranks: u32, options: &str, backend: &str, hierarchical: Option<Switch>| {
        let record = Run::ranks(ranks, &format!("{TRAIN} {options}")).finish().valid_record();
        let header = &record.header;
        assert_eq!(
            (header.backend.to_string().as_str(), header.config.exchange.hierarchical),
            (backend, hierarchical),
            "{options}"
        );
        record
    };
    let plain = train(3, "", "shared-memory", on);
    for options in ["--hierarchical on", "--hierarchical-allreduce"] {
        assert_eq!(checksum(&train(3, options, "shared-memory", on)), checksum(&plain), "{options}");
    }
    // `off` is equivalent to that backend, bit for bit.
    let [switched_off, by_mpi] = ["--hierarchical off", "--backend mpi"].map(|options| train(3, options, "mpi", off));
    assert_eq!(checksum(&switched_off), checksum(&by_mpi));
    for (ranks, options, backend, hierarchical) in [
        (3, "--backend none", "none", None),
        (2, "--hierarchical off --strategy device", "mpi", off),
        (2, "--hierarchical off --gradient-compression topk:0.5", "mpi", off),
        // A single rank has no other rank to add up with.
        (1, "--hierarchical off", "solo", off),
        (1, "--hierarchical on", "solo", on),
    ] {
        train(ranks, options, backend, hierarchical);
    }
    let served = Run::ranks(3, &format!("{TRAIN} --strategy dist_sync --servers 1")).finish().valid_record();
    assert_eq!(served.header.config.exchange.hierarchical, None, "servers sum");
}

#[test]
fn bandwidth_measures_both_hierarchies() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for (options, backend, expected) in [
        ("-b 100000 -e 100000", "shared-memory", Switch::On),
        ("-b 100000 -e 100000 --hierarchical off", "mpi", Switch::Off),
        ("--op all_gather -b 100000 -e 100000 --hierarchical off", "mpi", Switch::Off),
        ("--model lenet --strategy device --hierarchical off", "mpi", Switch::Off),
    ] {
        let path = sandbox.path("record.json");
        succeeds(sandbox.worker_ranks(2, &format!("-n 2 -w 1 {options}")).arg("--json").arg(&path));
        let record = read(&path);
        assert_eq!(
            (record.backend.to_string().as_str(), record.config.exchange.hierarchical),
            (backend, Some(expected)),
            "{options}"
        );
        fs::remove_file(path).expect("removed");
    }
}

#[test]
fn options_contradicting_hierarchical_are_rejected() {
    let sandbox = Sandbox::new("exit 1");
    let refuse = |command: &str, options: &str| {
        let mut command = ringmark(&format!("{command} --no-doctor --hosts localhost:2 {options}"));
        refused(command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")), 2)
    };
    let expected = expect![[r#"
        --hierarchical on --backend mpi
            error: --hierarchical on conflicts with --backend mpi, which is one MPI_Allreduce over all ranks: omit one of them, or use --backend shared-memory, which sums within each host first
        --hierarchical off --backend shared-memory
            error: --hierarchical off conflicts with --backend shared-memory, which sums within each host first: omit one of them, or use --backend mpi, which sums over all ranks at once
        --hierarchical off --backend none
            error: --hierarchical off conflicts with --backend none, which exchanges nothing: use only one of them
        --hierarchical on --device cuda
            error: --hierarchical on does not apply to NCCL, which sums over all ranks with its own algorithm: omit --hierarchical, and use --nccl-algo (tree and nvls sum within each host)
        --hierarchical off --device cuda --nccl-algo tree
            error: --hierarchical off means one ring over all ranks, but --nccl-algo tree may not be a ring: use only one of them
        --hierarchical on --strategy dist_sync --servers 1
            error: --hierarchical on does not apply to --strategy dist_sync, which sums on servers: omit --hierarchical (dist_sync and dist_device_* sum on each host before they push)
        --no-hierarchical-allreduce
            error: unexpected argument '--no-hierarchical-allreduce' found
            tip: --no-hierarchical-allreduce: `--hierarchical off` is one all-reduce over all ranks, on CPUs; NCCL's ring is one anyway
        --hierarchical auto
            error: invalid value 'auto' for '--hierarchical <ON|OFF>'
            [possible values: on, off]
    "#]];
    check_refusals(&expected, |options| {
        let [sweep, bandwidth] = ["sweep", "bandwidth --model mxnet-lenet"].map(|command| refuse(command, options));
        assert_eq!(bandwidth, sweep);
        sweep
    });
}

#[test]
fn old_records_get_hierarchy_from_backend() {
    let folder = |hierarchical: Option<Switch>| {
        let folder = Folder::new();
        for number in 1..=3 {
            let mut record = record("1n2g", number, 0.5 + f64::from(number) / 1e3);
            record.header.config.exchange.hierarchical = hierarchical;
            folder.run(&record);
        }
        folder
    };
    let diff = |base: &Folder, test: &Folder| run(ringmark("diff").args([base.path(), test.path()])).1;
    let (old, on, off) = (folder(None), folder(Some(Switch::On)), folder(Some(Switch::Off)));
    let same = diff(&old, &on);
    assert!(same.contains("No recorded setting differs"), "{same}");
    let other = diff(&old, &off);
    assert!(other.contains("  hierarchical: on -> off\n"), "{other}");
    let (_, table, _) = run(ringmark("extract").arg(off.path()));
    assert!(table.contains("fp32 on the wire, hierarchical off"), "{table}");
}

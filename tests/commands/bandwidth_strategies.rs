//! `ringmark bandwidth --model --strategy`: every strategy exchanges a network's gradients between real ranks and
//! servers; results, byte counts and lines are compared with their expected values.

use std::fs;

use expect_test::expect;
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, GradientsUse, lines};
use ringmark_core::benchmark::strategy::{ServerUse, StrategyUse};
use ringmark_core::dimension::{BackendName, Bytes};

use crate::support::bandwidth::read;
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{Sandbox, check_refusals, lines_with, refused, run, succeeds};

/// Runs two ranks and `servers` servers, and returns the record and output. Fails if a result is wrong.
fn run_successfully(sandbox: &Sandbox, servers: u32, options: &str) -> (BandwidthRecord, GradientsUse, String) {
    let path = sandbox.path("record.json");
    let servers_option = if servers > 0 { format!("--servers {servers}") } else { String::new() };
    let mut command = sandbox.worker_ranks(2 + servers, &format!("{options} {servers_option}"));
    let stdout = succeeds(command.arg("--json").arg(&path));
    let record = read(&path);
    assert_eq!((record.failure.as_deref(), record.ranks.len(), record.results.len()), (None, 2, 1), "{options}");
    fs::remove_file(path).expect("removed");
    let used = record.gradients.clone().expect("what the gradients did");
    for line in used.lines(record.config.strategy.strategy) {
        assert!(stdout.lines().any(|printed| printed == line), "{options}: {line} in {stdout}");
    }
    (record, used, stdout)
}

/// Checks measure.py's lines of two iterations; their error is only defined if all ranks are at the same step.
fn check_lines(record: &BandwidthRecord, stdout: &str, is_in_step: bool, what: &str) {
    let result = &record.results[0];
    let timing = result.sides().into_iter().find_map(|(_, timing)| timing).expect("one side");
    let printed: Vec<&str> = stdout.lines().filter(|line| line.starts_with("iter ")).collect();
    assert_eq!(printed, lines::iterations(result, 2, 1), "{what}");
    assert_eq!((printed.len(), timing.wrong), (2, Some(0)), "{what}");
    assert_eq!(timing.error.len(), if is_in_step { 2 } else { 0 }, "{what}");
    assert!(timing.error.iter().all(|error| *error < 1e-4), "{what}: {:?}", timing.error);
    let line = "# error of an iteration: n/a (ranks are not synchronized after an iteration; only the final weights \
                are checked)";
    assert_eq!(stdout.lines().any(|printed| printed == line), !is_in_step, "{what}: {stdout}");
    assert!(is_in_step || printed.iter().all(|line| line.ends_with("error -1.000000")), "{what}: {printed:?}");
}

/// Bytes of MXNet's LeNet, none of whose arrays is split.
const LENET: u64 = 1_724_320;

fn bytes(all: &[Bytes]) -> Vec<u64> {
    all.iter().map(|bytes| bytes.0).collect()
}

#[test]
fn strategies_give_every_rank_sums_or_weights() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for (servers, strategy) in [
        (0, "all-reduce"),
        (0, "zero1"),
        (0, "local"),
        (0, "device"),
        (0, "nccl"),
        (1, "dist_sync"),
        (2, "dist_sync --key-placement hash"),
        (2, "dist_device_sync"),
        (1, "dist_async"),
        (2, "dist_device_async"),
    ] {
        for optimizer in ["none", "sgd"] {
            let is_asynchronous = strategy.contains("async");
            // Asynchronous stores need an optimizer; the placement of keys does not affect the sum.
            if optimizer == "none" && (is_asynchronous || servers == 2) {
                continue;
            }
            let options = format!("--model mxnet-lenet -n 2 -w 2 --strategy {strategy} --optimizer {optimizer}");
            let (record, used, stdout) = run_successfully(&sandbox, servers, &options);
            // The ranks of a host sum first and push once, so they are at the same step anyway.
            check_lines(&record, &stdout, !strategy.starts_with("dist_async"), &options);
            expect!["num of arrays = 8, total size = 1.724320 MB"].assert_eq(&lines_with(&stdout, "num of arrays"));
            assert_eq!(used.error_by_rank.len(), 2, "{options}");
            assert!(used.error_by_rank.iter().all(|error| *error < 1e-4), "{options}: {used:?}");
            assert_eq!(record.backend == BackendName::Tcp, servers > 0, "{options}");
            let requested = [&used.expected_sent_by_rank, &used.expected_received_by_rank].map(|all| bytes(all));
            match strategy {
                // 2 (n-1)/n, or half of the gradients and half of the weights: the same for two ranks.
                "all-reduce" | "zero1" | "local" => {
                    assert_eq!(requested, [vec![LENET; 2], vec![LENET; 2]], "{options}")
                }
                // Rank 1 sends gradients and rank 0 sends weights.
                "nccl" => assert_eq!(requested, [vec![LENET; 2], vec![LENET; 2]], "{options}"),
                "device" => {
                    let sums: Vec<u64> = requested.iter().map(|of_ranks| of_ranks.iter().sum()).collect();
                    assert_eq!(sums, [2 * LENET; 2], "{options}");
                }
                _ => {
                    assert!(requested.iter().all(Vec::is_empty), "{options}: {requested:?}");
                    check_counted(used.strategy.as_ref().expect("servers"), servers, strategy);
                }
            }
        }
    }
}

#[test]
fn every_update_rule_is_checked() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for (servers, strategy) in [(0, "all-reduce"), (0, "zero1"), (0, "local"), (0, "device"), (1, "dist_sync")] {
        for optimizer in ["sgd --momentum 0.5", "nag", "adam", "adamw"] {
            let options = format!("--model mxnet-lenet -n 2 -w 2 --strategy {strategy} --optimizer {optimizer}");
            let (record, used, stdout) = run_successfully(&sandbox, servers, &options);
            check_lines(&record, &stdout, true, &options);
            assert!(used.error_by_rank.iter().all(|error| *error < 1e-4), "{options}: {used:?}");
        }
    }
    // The order of the pushes decides.
    let options = "--model mxnet-lenet -n 3 -w 2 --strategy dist_async --optimizer adam";
    let error = refused(&mut sandbox.worker_ranks(2, &format!("{options} --servers 1")), 2);
    assert!(error.contains("add --check 0, or use --optimizer sgd without --momentum"), "{error}");
    let (record, used, _) = run_successfully(&sandbox, 1, &format!("{options} --check 0"));
    assert_eq!(
        (record.results[0].in_place.as_ref().and_then(|timing| timing.wrong), used.error_by_rank.len()),
        (None, 0)
    );
}

/// Checks the bytes of a step counted by ranks and servers: a header of 24 bytes and the values of each of 8 arrays.
fn check_counted(used: &StrategyUse, servers: u32, strategy: &str) {
    assert_eq!(used.servers.len() as u32, servers, "{strategy}");
    let pushers = if strategy == "dist_async" { 2 } else { 1 };
    let moved = [bytes(&used.sent_by_rank), bytes(&used.received_by_rank)];
    for of_ranks in &moved {
        for (rank, moved) in of_ranks.iter().enumerate() {
            let expected = if rank < pushers { LENET..LENET + 500 } else { 0..1 };
            assert!(expected.contains(moved), "{strategy}: {used:?}");
        }
    }
    let of_servers = |bytes: fn(&ServerUse) -> Bytes| used.servers.iter().map(|server| bytes(server).0).sum::<u64>();
    assert!(of_servers(|server| server.received).abs_diff(moved[0].iter().sum()) <= 4, "{used:?}");
    assert!(of_servers(|server| server.sent).abs_diff(moved[1].iter().sum()) <= 4, "{used:?}");
}

#[test]
fn sliced_arrays_and_half_precision_are_exchanged() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = "--model resnet18 -n 2 -w 1 --optimizer sgd";
    let (record, used, stdout) = run_successfully(&sandbox, 2, &format!("{options} --strategy dist_sync"));
    check_lines(&record, &stdout, true, options);
    let servers = used.strategy.expect("servers").servers;
    assert!(servers[0].weights.0.abs_diff(servers[1].weights.0) < 1_000_000, "{servers:?}");
    for (servers, strategy) in [(0, "device"), (0, "local"), (1, "dist_sync")] {
        let (record, used, _) =
            run_successfully(&sandbox, servers, &format!("{options} --strategy {strategy} --wire bf16"));
        // Rounded to 8 bits before the sum.
        assert_eq!(record.results[0].element, "bfloat16");
        assert!(used.error_by_rank.iter().all(|error| (1e-4..1e-2).contains(error)), "{strategy}: {used:?}");
    }
}

#[test]
fn single_rank_has_error_without_rate() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for (processes, options) in [(1, "--strategy device"), (2, "--strategy dist_sync --servers 1")] {
        let options = format!("--model mxnet-lenet -n 1 -w 1 {options}");
        let stdout = succeeds(&mut sandbox.worker_ranks(processes, &options));
        let line = stdout.lines().find(|line| line.starts_with("iter 1, ")).expect("a line");
        assert!(line.ends_with(" sec, n/a GB/sec per gpu, error 0.000000"), "{line}");
    }
}

#[test]
fn launcher_starts_servers_and_records_their_traffic() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = "--hosts localhost:2 --network mlp -n 1 -w 1 --kvstore dist_async --servers 2 --optimizer sgd";
    let (status, stdout, stderr) = run(&mut sandbox.bandwidth(options));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let record = read(&sandbox.path("out").join("1n2g").join("bandwidth.json"));
    assert_eq!((record.ranks.len(), record.config.strategy.servers), (2, Some(2)));
    let used = record.gradients.expect("what the gradients did");
    assert_eq!(used.strategy.expect("servers").servers.len(), 2);
    expect!["# strategy dist_async: servers 2, arrays placed by balanced"]
        .assert_eq(&lines_with(&stdout, "# strategy dist_async:"));
}

#[test]
fn options_conflicting_with_strategy_are_rejected() {
    let sandbox = Sandbox::new("exit 1");
    check_refusals(
        &expect![[r#"
            --strategy device
                error: --strategy device needs the gradients of a network: add --model resnet50_v1b, or omit --strategy
            --op all_gather --strategy device
                error: --strategy device needs the gradients of a network: add --model resnet50_v1b, or omit --strategy; --op measures one operation by sizes
            --model vgg11 --op reduce --strategy device
                error: --op reduce conflicts with --strategy device, which selects its operations: use only one of them
            --model vgg11 --strategy dist_async
                error: --strategy dist_async needs an update rule, such as --optimizer sgd: its servers update weights at every push (MXNet: Updater needs to be set for async mode)
            --model vgg11 --strategy device --servers 2
                error: --servers 2 does not apply to --strategy device: omit --servers, or use --strategy dist_sync, dist_device_sync, dist_async or dist_device_async
            --model vgg11 --strategy device --backend none
                error: --strategy device conflicts with --backend none, which exchanges nothing: use only one of them
            --model vgg11 --server-hosts s
                error: --server-hosts s applies to --strategy dist_*, but --strategy is all-reduce: omit --server-hosts
            --model vgg11 --strategy device --cases 1n1g
                error: case 1n1g has one rank, which exchanges nothing: choose 2n1g or 1n2g (on a host with one slot, add --hosts localhost:2)
            --hosts a:1,b:1 --model vgg11 --strategy local
                error: --strategy local works on one host only, but case 2n1g has 2: use --strategy zero1 or dist_sync, or --cases with one host
        "#]],
        |options| refused(&mut sandbox.bandwidth(options), 2),
    );
    let dry =
        "--dry-run --verbose --hosts a:1,b:1 --cases 1n1g,2n1g --model vgg11 --strategy dist_sync --server-hosts s";
    let stdout = succeeds(&mut sandbox.bandwidth(dry));
    for servers in [1, 2] {
        assert!(stdout.contains(&format!("--strategy dist_sync --servers {servers}")), "{stdout}");
    }
    assert!(stdout.starts_with("# bandwidth, 1n1g 2n1g; gradients of VGG-11, 20 measured"), "{stdout}");
}

/// Words of the codes of LeNet's arrays at 16 values per word, and of the packed sums of one pushing rank at 20
/// values per word. The array of 400,000 values is split into three parts of 131,072 and one of 6,784.
const LENET_CODE: u64 = 4 * (32 + 2 + 1563 + 4 + 25_000 + 32 + 313 + 1);
const LENET_SUMS: u64 = 4 * (25 + 1 + 1250 + 3 + 3 * 6554 + 340 + 25 + 250 + 1);

#[test]
fn codes_have_their_own_bytes_and_error() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    for (servers, options) in [
        (0, "--strategy all-reduce --gradient-compression 2bit --bucket-mb 0 --tail-mb 0"),
        (1, "--strategy dist_sync --gradient-compression 2bit"),
        (1, "--strategy dist_sync --gradient-compression topk:0.5 --optimizer sgd"),
        (1, "--strategy dist_async --gradient-compression 2bit:0.01 --optimizer sgd"),
    ] {
        let options = format!("--model mxnet-lenet -n 3 -w 1 {options}");
        let (record, used, stdout) = run_successfully(&sandbox, servers, &options);
        let result = &record.results[0];
        let timing = result.sides().into_iter().find_map(|(_, timing)| timing).expect("one side");
        assert_eq!(timing.wrong, None, "{options}: what is left out is no mistake");
        assert!(used.error_by_rank.iter().all(|error| *error > 0.02 && *error < 3.0), "{options}: {used:?}");
        let code = used.compression.as_ref().expect("a code");
        assert!(code.residual_norm[0] > 0.0, "{options}: {code:?}");
        let form = record.config.gradient_compression.to_string();
        assert!(stdout.contains(&format!(" iterations, wire {form}, added in fp32, ")), "{options}: {stdout}");
        let counted = used.strategy.as_ref().map(|used| (bytes(&used.sent_by_rank), bytes(&used.received_by_rank)));
        match (servers, form.as_str()) {
            (0, _) => assert_eq!(
                (bytes(&used.expected_sent_by_rank), bytes(&used.expected_received_by_rank), code.received.0),
                (vec![LENET_CODE; 2], vec![LENET_CODE; 2], LENET_CODE)
            ),
            (_, "2bit:0.5") => {
                // One header for each of eight arrays; the array of 400,000 values is split into four parts.
                let (out, back) = (LENET_CODE + 11 * 24, LENET_SUMS + 11 * 24);
                assert_eq!(counted, Some((vec![out, 0], vec![back, 0])), "rank 0 pushes for both");
                assert_eq!((code.code.0, code.received.0), (LENET_CODE, LENET_SUMS));
            }
            // Weights are returned in fp32.
            _ => assert_eq!(code.received.0, LENET, "{options}: {code:?}"),
        }
    }
    let error = refused(&mut sandbox.worker_ranks(1, "-b 8 -e 64 --gradient-compression 2bit"), 2);
    expect!["error: --gradient-compression 2bit:0.5 needs the gradients of a network: add --model resnet50_v1b, or omit --gradient-compression"].assert_eq(&lines_with(&error, "2bit:0.5 needs the"));
}

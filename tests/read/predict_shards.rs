//! Tests of `ringmark predict` for sharded training: simulated clusters with an independent cost model, and the output.

use expect_test::expect;
use ringmark::read::analyze::prediction::evidence::Evidence;
use ringmark::read::analyze::prediction::model::predict;
use ringmark::read::analyze::prediction::step_parts::Limit;
use ringmark::read::benchmark::bandwidth::load as bandwidth;
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, bandwidth_files};
use ringmark_core::dimension::{Operation, Strategy, Wire};
use ringmark_core::options::keyword_enum::KeywordEnum;

use crate::support::bandwidth as fixtures;
use crate::support::model_cluster::ModelCluster;
use crate::support::predictions::{MEASURED, assert_covered, evidence};
use crate::support::runs::{Folder, record};
use crate::support::sandbox::{self, refused, ringmark};
use crate::support::shard_cluster::{Algorithm, ShardCluster};
use ringmark_core::stats::random::Random;

const STRATEGIES: [Strategy; 4] = [Strategy::Zero1, Strategy::Zero2, Strategy::Fsdp, Strategy::Hsdp];

const SHARDED: [Operation; 2] = [Operation::AllGather, Operation::ReduceScatter];

/// Latency in seconds and bandwidth in bytes per second between hosts.
const NETWORKS: [(f64, f64); 3] = [(20e-6, 12e9), (20e-6, 3e9), (60e-6, 1e9)];

fn clusters(strategy: Strategy, algorithm: Algorithm) -> [ShardCluster; 3] {
    NETWORKS.map(|network| ShardCluster { strategy, algorithm, network, memory: 20e9, jitter: 0.02, drift: 0.005 })
}

#[test]
fn band_covers_shards_with_every_algorithm() {
    for strategy in STRATEGIES {
        for algorithm in [Algorithm::Ring, Algorithm::Halving, Algorithm::Hosts] {
            let evidence = |_: &ShardCluster, sweep: &Folder| evidence(sweep, strategy);
            assert_covered(&format!("{strategy}, {algorithm:?}"), &clusters(strategy, algorithm), evidence, 0.2);
        }
    }
}

/// Hosts whose memory is slow, so that the exchange inside a host is exposed.
#[test]
fn band_covers_hybrid_shards_with_a_slow_exchange_inside_hosts() {
    for algorithm in [Algorithm::Ring, Algorithm::Hosts] {
        let slow = clusters(Strategy::Hsdp, algorithm).map(|cluster| ShardCluster { memory: 3e9, ..cluster });
        let evidence = |_: &ShardCluster, sweep: &Folder| evidence(sweep, Strategy::Hsdp);
        assert_covered(&format!("hybrid, {algorithm:?}, slow memory"), &slow, evidence, 0.25);
    }
}

/// Measures sizes from 8 bytes to 128 MB, each with a random error.
fn bandwidth_folder(cluster: &ShardCluster, operations: &[Operation]) -> Folder {
    let (folder, mut noise) = (Folder::new(), Random(7));
    for name in ["2n2g", "4n2g"] {
        let case = name.parse().expect("a case");
        for operation in operations {
            let all_reduce = if *operation == Operation::AllReduce { 2.0 } else { 1.0 };
            let result = |bytes: u64, noise: &mut Random| {
                let time = all_reduce * cluster.collective(case, bytes as f64) * (1.0 + 0.04 * noise.normal()).max(0.1);
                let mut result = fixtures::result(bytes, case.ranks(), 2, [None, Some(time)]);
                if operation.is_divided() {
                    result.count /= u64::from(case.ranks());
                }
                result
            };
            let results = (6..28).map(|power| result(1 << power, &mut noise)).collect();
            let made = fixtures::record(&record(name, 1, 0.1), results);
            let mut made = BandwidthRecord { backend: cluster.backend(), ..made };
            made.config.operation = *operation;
            let [_, file] = bandwidth_files(*operation);
            folder.write(&format!("{name}/{file}"), fixtures::text(&made));
        }
    }
    folder
}

/// Two numbers of hosts in a bandwidth result narrow the band.
#[test]
fn bandwidth_of_collectives_narrows_the_band_of_shards() {
    for strategy in STRATEGIES {
        let clusters = clusters(strategy, Algorithm::Ring);
        let measured = |cluster: &ShardCluster, sweep: &Folder| {
            let all_reduce = &[Operation::AllReduce][..];
            let operations = if strategy == Strategy::Hsdp { all_reduce } else { &SHARDED };
            let folder = bandwidth_folder(cluster, operations);
            let records = bandwidth::read(&folder.path()).expect("records").cases;
            evidence(sweep, strategy).with_bandwidth(&records).expect("the same backend")
        };
        assert_covered(&format!("{strategy}, with bandwidth"), &clusters, measured, 0.1);
        let cluster = &ShardCluster { jitter: 0.0, drift: 0.0, ..clusters[1] };
        let sweep = cluster.sweep(&MEASURED, 3);
        let width = |evidence: Evidence| {
            let step = predict(&evidence, "8n2g".parse().expect("a case")).expect("the level is there").step;
            step.high - step.low
        };
        let [with, without] = [width(measured(cluster, &sweep)), width(evidence(&sweep, strategy))];
        assert!(with < 0.8 * without, "{strategy}: {with} with bandwidth, {without} without");
    }
}

#[test]
fn assumptions_of_shards_are_explained() {
    let explained = |strategy, bandwidth_result: Option<&[Operation]>| {
        let cluster = ShardCluster { jitter: 0.0, drift: 0.0, ..clusters(strategy, Algorithm::Ring)[1] };
        let sweep = cluster.sweep(&MEASURED, 3);
        let folder = bandwidth_result.map(|operations| bandwidth_folder(&cluster, operations));
        let mut command = ringmark("predict --cases 8n2g --explain");
        command.arg(sweep.path()).args(["--strategy", strategy.keyword()]);
        if let Some(folder) = &folder {
            command.arg("--bandwidth").arg(folder.path());
        }
        let (_, stdout, stderr) = sandbox::run(&mut command);
        let (_, after) = stdout.split_once("efficiency over 1n1g of all-reduce\n").unwrap_or_default();
        let (assumptions, _) = after.split_once("range: both limits").unwrap_or_default();
        assumptions.replace("\n  ", " ") + &stderr
    };
    expect![[r#"
        strategy zero2: for each bucket a reduce-scatter of its gradients, which backward can hide, and an all-gather of its weights after the update, which nothing hides
        bytes that each rank sends per step, at most: 221.6 MB for 4n2g (measured), 237.4 MB for 8n2g
        update of a rank: that of 1n1g divided by the ranks; the rest of the optimizer phase is the all-gather
        no bandwidth result: the share of latency and the part that backward hides are unknown, so the range is wider; measure it: ringmark bandwidth --op all_gather,reduce_scatter --cases 2n2g, then --bandwidth FOLDER
        lower limit of the step: the exposed exchange is unchanged, as if all of it were copies inside a host; the wait for the slowest rank is unchanged
        upper limit of the step: latency alone limits it, or bandwidth of which backward already hides the maximum; the wait grows as the expected maximum over more ranks
        exchange algorithm: one ring over all ranks
        unchanged: compute and the rest of the step; the bandwidth of each host
    "#]].assert_eq(&explained(Strategy::Zero2, None));
    expect![[r#"
        strategy fsdp: for each bucket a reduce-scatter of its gradients, which backward can hide, and an all-gather of its weights in forward and again in backward, which compute can hide
        bytes that each rank sends per step, at most: 332.3 MB for 4n2g (measured), 356.1 MB for 8n2g
        update of a rank: that of 1n1g divided by the ranks; the rest of the optimizer phase is the start of the first all-gather
        exchange between hosts: 19.9 us per step, 2.55 GB/s, residual 4 %
        lower limit of the step: compute hides the same share of the exchange; the wait for the slowest rank is unchanged
        upper limit of the step: compute hides the same number of seconds; the wait grows as the expected maximum over more ranks
        exchange algorithm: one ring over all ranks
        unchanged: compute and the rest of the step; the bandwidth of each host
    "#]].assert_eq(&explained(Strategy::Fsdp, Some(&SHARDED)));
    expect![[r"
        error: --bandwidth has the times of all_reduce, but these runs used --strategy zero1, which needs all_gather,reduce_scatter: measure with --op all_gather,reduce_scatter
    "]].assert_eq(&explained(Strategy::Zero1, Some(&[Operation::AllReduce])));
    // Both have the same cost, but libraries implement each of them separately.
    expect![[r"
        error: --bandwidth has the times of all_gather for 2n2g, but these runs used --strategy zero1, which needs all_gather,reduce_scatter: measure with --op all_gather,reduce_scatter
    "]]
    .assert_eq(&explained(Strategy::Zero1, Some(&SHARDED[..1])));
    expect![[r#"
        strategy hsdp: between hosts, an all-reduce of every rank's part of each bucket, which backward can hide
        bytes that each host sends to others per step: 189.9 MB for 4n2g (measured), 221.6 MB for 8n2g
        exchange inside a host: for each bucket reduce-scatters and all-gathers, exposed as in 1n2g on any number of hosts; the update of a rank's part is unchanged
        no bandwidth result: the share of latency and the part that backward hides are unknown, so the range is wider; measure it: ringmark bandwidth --cases 2n2g, then --bandwidth FOLDER
        lower limit of the step: the exposed all-reduce is unchanged, as if all of it were copies inside a host; the wait for the slowest rank is unchanged
        upper limit of the step: latency alone limits it, or bandwidth of which backward already hides the maximum; the wait grows as the expected maximum over more ranks
        all-reduce algorithm: a ring over the hosts for each rank of a host, at the same time
        unchanged: compute, exchange inside a host, optimizer and the rest of the step; the bandwidth of each host
    "#]].assert_eq(&explained(Strategy::Hsdp, None));
    expect![[r#"
        strategy hsdp: between hosts, an all-reduce of every rank's part of each bucket, which backward can hide
        bytes that each host sends to others per step: 189.9 MB for 4n2g (measured), 221.6 MB for 8n2g
        exchange inside a host: for each bucket reduce-scatters and all-gathers, exposed as in 1n2g on any number of hosts; the update of a rank's part is unchanged
        all-reduce between hosts: 19.8 us per step, 2.52 GB/s, residual 4 %
        lower limit of the step: backward hides the same share of the all-reduce; the wait for the slowest rank is unchanged
        upper limit of the step: backward hides the same number of seconds; the wait grows as the expected maximum over more ranks
        all-reduce algorithm: a ring over the hosts for each rank of a host, at the same time
        unchanged: compute, exchange inside a host, optimizer and the rest of the step; the bandwidth of each host
    "#]].assert_eq(&explained(Strategy::Hsdp, Some(&[Operation::AllReduce])));
}

#[test]
fn losses_of_hybrid_shards_add_up() {
    let cluster = ShardCluster { jitter: 0.0, drift: 0.0, ..clusters(Strategy::Hsdp, Algorithm::Ring)[0] };
    let losses = |measured: &[&str]| {
        let evidence = evidence(&cluster.sweep(measured, 3), Strategy::Hsdp);
        let predicted = predict(&evidence, "8n2g".parse().expect("a case")).expect("the level is there");
        let seconds =
            |limit: Limit| predicted.losses.iter().filter(|loss| loss.0 == limit).map(|loss| loss.1).sum::<f64>();
        let all: f64 = predicted.losses.iter().map(|(_, seconds)| seconds).sum();
        let lost = predicted.step.mid - evidence.base_step();
        assert!((all - lost).abs() < 1e-9, "{:?} add up to {all} of {lost}", predicted.losses);
        [Limit::Host, Limit::Transfer].map(|limit| (1e6 * seconds(limit)).round())
    };
    let [of_rank, of_host] = [losses(&MEASURED), losses(&MEASURED[1..])];
    // Copies of the bucket that is gathered first and summed last: 2 x 6 MB / (20 GB/s). One host has the same.
    assert_eq!((of_rank[0], of_host[0]), (600.0, 0.0));
    assert!(of_rank[1] == of_host[1] && of_rank[1] > 1000.0, "{of_rank:?}, {of_host:?}");
}

/// One host shows the exchange within it; the efficiency is relative to it if no rank was measured alone.
#[test]
fn hybrid_shards_need_one_host_and_several() {
    let cluster = clusters(Strategy::Hsdp, Algorithm::Ring)[0];
    let refusal = |measured: &[&str]| {
        let sweep = cluster.sweep(measured, 1);
        refused(ringmark("predict --cases 8n2g --strategy hsdp").arg(sweep.path()), 1)
    };
    expect![[r"
        error: 8n2g cannot be predicted: 1n2g was not measured, and only one host shows the exchange inside a host, which does not grow with the number of hosts; measure: ringmark sweep --cases 1n2g --batch-size 4 --dtype fp32 --strategy hsdp
    "]].assert_eq(&refusal(&["1n1g", "2n2g", "4n2g"]));
    expect![[r#"
        error: 8n2g cannot be predicted: no multi-host case was measured, so the network between hosts is unknown; cases of one machine can only be measured; on two hosts, measure: ringmark sweep --cases 2n2g --batch-size 4 --dtype fp32 --strategy hsdp --hosts HOST1:2,HOST2:2
    "#]].assert_eq(&refusal(&["1n1g", "1n2g"]));
    let evidence = evidence(&cluster.sweep(&["1n2g", "2n2g"], 1), Strategy::Hsdp);
    let efficiency = predict(&evidence, "4n2g".parse().expect("a case")).expect("one host and several").efficiency;
    assert!(evidence.base.nodes == 1 && efficiency.high < 1.0, "{efficiency:?} over {}", evidence.base);
}

/// Sums between hosts keep fp32, once for all passes.
#[test]
fn hybrid_shards_send_fp32_between_hosts() {
    let cluster = clusters(Strategy::Hsdp, Algorithm::Ring)[0];
    let folder = Folder::new();
    for name in MEASURED {
        let mut made = cluster.record(name, 1, 14, &mut Random(1));
        made.header.config.accumulate = 2;
        made.header.config.exchange.wire = Wire::Bf16;
        folder.run(&made);
    }
    let evidence = evidence(&folder, Strategy::Hsdp);
    let megabytes = |case: &str| (evidence.whole_cost(case.parse().expect("a case")).bytes / 1e6).round();
    // Of 126.6 MB, 2 (H - 1) / H.
    assert_eq!(["1n2g", "2n2g", "4n2g", "8n2g"].map(megabytes), [0.0, 127.0, 190.0, 222.0]);
    let bandwidth_of = |wire| {
        let mut records =
            bandwidth::read(&bandwidth_folder(&cluster, &[Operation::AllReduce]).path()).expect("records").cases;
        records.iter_mut().for_each(|(_, record)| record.config.exchange.wire = wire);
        evidence.clone().with_bandwidth(&records)
    };
    assert!(bandwidth_of(Wire::Fp32).is_ok());
    expect!["the bandwidth of 2n2g does not apply to rn50_b4_fp32_hsdp_cpu: it sent bf16, but the runs sent fp32 between hosts: measure with --wire fp32"].assert_eq(&format!("{:#}", bandwidth_of(Wire::Bf16).expect_err("another wire type")));
}

#[test]
fn passes_multiply_the_bytes_of_shards() {
    let cluster = clusters(Strategy::Fsdp, Algorithm::Hosts)[0];
    let folder = Folder::new();
    for name in MEASURED {
        let mut made = cluster.record(name, 1, 14, &mut Random(1));
        made.header.config.accumulate = 2;
        folder.run(&made);
    }
    let megabytes =
        |case: &str| (evidence(&folder, Strategy::Fsdp).whole_cost(case.parse().expect("a case")).bytes / 1e6).round();
    // 126.6 MB of weights: in each of two passes a reduce-scatter and two all-gathers between hosts.
    assert_eq!(["2n2g", "4n2g", "8n2g"].map(megabytes), [380.0, 570.0, 665.0]);
}

/// Only the update of the single rank separates the update of a part from the gathers after it.
#[test]
fn shards_without_1n1g_are_rejected() {
    let cluster = clusters(Strategy::Zero1, Algorithm::Ring)[0];
    let sweep = cluster.sweep(&MEASURED[1..], 1);
    expect![[r#"
        not used: 1n1g: no run of 1n1g counts: speedup and efficiency are relative to 1n2g: sweep 1n1g as well
        error: rn50: strategy zero1 is not predicted from these runs: no run of 1n1g counts, and only its update separates the return of the weights from the optimizer's time: sweep 1n1g as well
    "#]].assert_eq(&refused(ringmark("predict").arg(sweep.path()), 2));
}

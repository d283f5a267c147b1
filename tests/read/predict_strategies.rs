//! Tests of `ringmark predict` for strategies other than all-reduce: simulated clusters with an independent cost model,
//! message by message, and rejected input.

use expect_test::expect;
use ringmark::read::analyze::prediction::evidence::Evidence;
use ringmark::read::analyze::prediction::exchange_pattern::ExchangePattern;
use ringmark::read::analyze::prediction::model::predict;
use ringmark::read::analyze::prediction::step_parts::Limit;
use ringmark_core::benchmark::compression::GradientCompression;
use ringmark_core::benchmark::strategy::StrategyConfig;
use ringmark_core::dimension::{Bytes, Case, Phase, Strategy};
use ringmark_core::stats::exchange_growth::BUSIEST_LINK;
use serde_json::Value;

use crate::support::model_cluster::ModelCluster;
use crate::support::predictions::{MEASURED, assert_covered, evidence, group_of};
use crate::support::runs::{Folder, long_record};
use crate::support::sandbox::{self, check_refusals, lines_with, refused, ringmark};
use crate::support::strategy_cluster::{Exchange, NETWORKS, StrategyCluster, TransferPath};
use ringmark_core::stats::random::Random;

fn case(name: &str) -> Case {
    name.parse().expect("a case")
}

/// Checks the bands of one exchange in the networks.
fn assert_exchange_covered(exchange: Exchange, most_off: f64) {
    let clusters = NETWORKS.map(|network| StrategyCluster { exchange, network, jitter: 0.02, drift: 0.005 });
    let evidence = |cluster: &StrategyCluster, sweep: &Folder| evidence(sweep, cluster.strategy());
    assert_covered(&format!("{exchange:?}"), &clusters, evidence, most_off);
}

#[test]
fn band_covers_owners_with_every_routing() {
    for (strategy, path) in [
        (Strategy::Device, TransferPath::Straight),
        (Strategy::Device, TransferPath::AtOnce),
        (Strategy::Device, TransferPath::Tree),
        (Strategy::Device, TransferPath::Chain),
        (Strategy::Nccl, TransferPath::Straight),
        (Strategy::Nccl, TransferPath::Tree),
    ] {
        // A chain is the extreme, and the middle is far from it.
        assert_exchange_covered(Exchange::Owners(strategy, path), if path == TransferPath::Chain { 0.7 } else { 0.3 });
    }
}

#[test]
fn band_covers_servers_with_every_placement() {
    for (number, has_own_hosts) in [(None, false), (None, true), (Some(1), true), (Some(2), true), (Some(2), false)] {
        assert_exchange_covered(Exchange::Servers(number, has_own_hosts), 0.3);
    }
}

/// Tests with one seed each, against clusters with a number of servers that was not measured.
#[test]
fn unmeasured_server_counts_are_predicted() {
    for network in NETWORKS {
        let cluster = |number| StrategyCluster {
            exchange: Exchange::Servers(Some(number), true),
            network,
            jitter: 0.02,
            drift: 0.005,
        };
        let measured = cluster(1).sweep(&MEASURED, 3);
        for servers in [2, 4] {
            let own = evidence(&measured, Strategy::DistSync);
            let pattern = own.pattern.clone().with_servers(servers).expect("fewer than arrays");
            let requested = Evidence { pattern, ..own };
            for next in ["4n2g", "8n2g"] {
                let prediction = predict(&requested, case(next)).expect("the level is there");
                assert_eq!(
                    prediction.reference,
                    Some(case("4n2g")),
                    "another number of servers is not what was measured"
                );
                let (band, truth) = (prediction.step, cluster(servers).truth(next));
                let what = format!("{network:?}, {servers} servers, {next}: {truth} in {band:?}");
                println!("{what}");
                assert!((band.low..=band.high).contains(&truth), "{what}");
            }
            // A single host has been measured, with its servers.
            assert_eq!(predict(&requested, case("1n2g")).expect("measured").reference, None);
        }
        let error = evidence(&measured, Strategy::DistSync).pattern.with_servers(13).expect_err("more than arrays");
        expect!["--servers 13: the network has only 12 arrays: use at most one server per array"]
            .assert_eq(&error.to_string());
    }
}

/// Creates runs of all-reduce, device, dist_sync, dist_async and local with one single rank of all-reduce.
fn several() -> Folder {
    let (network, mut noise) = (NETWORKS[1], Random(5));
    let of = |exchange| StrategyCluster { exchange, network, jitter: 0.0, drift: 0.0 };
    let device = of(Exchange::Owners(Strategy::Device, TransferPath::Tree));
    let folder = device.sweep(&MEASURED, 1);
    for name in &MEASURED[1..] {
        for run in 1..=5 {
            let served = of(Exchange::Servers(None, false)).record(name, run, 14, &mut noise);
            let mut all_reduce = device.record(name, run, 14, &mut noise);
            all_reduce.header.config.strategy = StrategyConfig::default();
            let mut asynchronous = served.clone();
            asynchronous.header.config.strategy.strategy = Strategy::DistAsync;
            let mut local = device.record("1n2g", run, 14, &mut noise);
            local.header.config.strategy.strategy = Strategy::Local;
            [served, all_reduce, asynchronous, local].iter().for_each(|record| folder.run(record));
        }
    }
    folder
}

fn single_spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_strategy_is_predicted_by_its_own_model() {
    let folder = several();
    let predict = |options: &[&str]| sandbox::run(ringmark("predict").arg(folder.path()).args(options));
    let (status, stdout, stderr) = predict(&["--cases", "8n2g", "--explain"]);
    assert_eq!(status, Some(0), "{stderr}");
    for strategy in ["dist_async", "local"] {
        assert!(stderr.contains(&format!("strategy {strategy} is not predicted from these runs: ")), "{stderr}");
    }
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
    let stdout = single_spaced(&stdout);
    // In the order of the tables: all-reduce, device, dist_sync.
    let middles: Vec<&str> = stdout.split("mid: ").skip(1).map(|rest| &rest[..8]).collect();
    assert_eq!(middles, ["the step", "the step", "from the"], "{stdout}");
    for sentence in [
        "measured: 1n1g (5 runs), 1n2g (5 runs), 2n2g (5 runs), 4n2g (5 runs); efficiency over 1n1g no bandwidth",
        "measured: 1n1g of all-reduce (5 runs), 1n2g (5 runs), 2n2g (5 runs), 4n2g (5 runs); efficiency over 1n1g of all-reduce strategy device: \
         buckets are sent directly to their owners, to several at the same time, and the weights are returned lower limit",
        "H - 1 times the bytes in and out of the owner's host (7 times for 8n2g, 3 for 4n2g)",
        // 102.12 MB of weights, of which the server that holds most has 0.264 and 0.150: a little more than 153.2 and
        // 178.7.
        "strategy dist_sync: one server per host, as measured, but at most one per array of the network, distributed over the hosts \
         of the ranks busiest link, per step in one direction: 156.1 MB for 4n2g with 4 servers (measured), 193.8 MB for 8n2g with \
         8 servers limits",
    ] {
        assert!(stdout.contains(sentence), "{sentence}: {stdout}");
    }

    let (_, stdout, _) = predict(&["--cases", "4n2g,8n2g", "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    let groups = json["groups"].as_array().expect("groups");
    let described: Vec<(&str, Value, Value, Value)> = groups
        .iter()
        .map(|group| {
            let grown = &group["predictions"][1];
            let strategy = group["strategy"].as_str().expect("a name");
            (strategy, group["base_strategy"].clone(), grown["servers"].clone(), grown["reference"].clone())
        })
        .collect();
    let reference = Value::from("4n2g");
    assert_eq!(
        described,
        [
            ("all-reduce", "all-reduce".into(), Value::Null, reference.clone()),
            ("device", "all-reduce".into(), Value::Null, reference.clone()),
            ("dist_sync", "all-reduce".into(), 8.into(), reference),
        ]
    );
    for group in groups {
        let base = evidence(&folder, Strategy::Device).case(case("1n1g")).expect("measured").step();
        let grown = &group["predictions"][1];
        let lost = grown["lost_seconds"].as_array().expect("a list").iter().flat_map(|one| one["seconds"].as_f64());
        let step = grown["seconds_per_iteration"]["mid"].as_f64().expect("a number");
        assert!((step - base - lost.sum::<f64>()).abs() < 1e-9, "the losses add up: {grown}");
    }
    assert_eq!(groups[1]["predictions"][1]["limited_by"], Limit::Exchange.text());

    // One strategy alone, and the same with another number of servers: the message asks for the measured one.
    let (status, stdout, stderr) = predict(&["--strategy", "dist_sync_device"]);
    assert_eq!(status, Some(2), "{stdout}");
    expect![[r"
        error: no run used --strategy dist_device_sync, and its cost cannot be derived from other strategies: the runs used all-reduce, local, device, dist_sync, dist_async; sweep these cases with --strategy dist_device_sync, or choose one that was measured
    "]].assert_eq(&stderr);
    let (status, stdout, stderr) = predict(&["--strategy", "dist_sync", "--servers", "2", "--json"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    let predictions = json["groups"][0]["predictions"].as_array().expect("a list");
    let cases = predictions
        .iter()
        .map(|one| (one["case"].as_str().expect("a case"), one["servers"].as_u64(), one["measured"].as_bool()));
    let requested = |case| (case, Some(2), Some(false));
    assert_eq!(cases.collect::<Vec<_>>(), ["4n2g", "8n2g", "16n2g", "32n2g"].map(requested));
    let (status, stdout, _) = predict(&["--strategy", "device", "--efficiency-below", "20%", "--backtest"]);
    assert_eq!(status, Some(0), "{stdout}");
    assert!(single_spaced(&stdout).contains("is inside the range"), "{stdout}");
}

#[test]
fn all_reduce_1n1g_has_no_servers() {
    let options = ["--strategy", "dist_sync", "--cases", "1n1g,8n2g"];
    let (_, stdout, _) = sandbox::run(ringmark("predict").arg(several().path()).args(options));
    let servers = |case: &str| {
        let rows = stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row.len() > 8 && row[0] == case).map(|row| row[2].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((servers("1n1g"), servers("8n2g")), (vec!["-".to_owned()], vec!["8".to_owned()]), "{stdout}");
}

#[test]
fn unpredictable_strategies_are_rejected_with_the_reason() {
    let folder = several();
    let error = |folder: &Folder, options: &[&str]| refused(ringmark("predict").arg(folder.path()).args(options), 2);
    let refuse = |options: &str| error(&folder, &options.split(' ').collect::<Vec<_>>());
    check_refusals(
        &expect![[r#"
            --strategy dist_async
                error: rn50_b4_fp32_dist-async_cpu: strategy dist_async is not predicted from these runs: its ranks do not wait for each other: the queueing time of a push at a server depends on when the other ranks push, which is unknown for larger cases, and images/s with stale weights are not comparable to those of a global batch
            --strategy local
                error: rn50_b4_fp32_local_cpu: strategy local is not predicted from these runs: it sums in the memory of one host, but predict extrapolates from several hosts
            --strategy device --servers 2
                error: --servers 2 applies to --strategy dist_sync and dist_device_sync, but these runs used device: omit --servers
            --servers 13
                error: --servers 13: the network has only 12 arrays: use at most one server per array
            --servers 0
                error: invalid value '0' for '--servers <N>': must be a whole number from 1 to 65536
            --servers 2 --backtest
                error: the argument '--servers <N>' cannot be used with '--backtest'
            --strategy nobody
                error: invalid value 'nobody' for '--strategy <NAME>'
                [possible values: all-reduce, zero1, zero2, fsdp, hsdp, local, device, nccl, dist_sync, dist_device_sync, dist_async, dist_device_async]
        "#]],
        refuse,
    );

    let coded = Folder::new();
    let cluster = StrategyCluster {
        exchange: Exchange::Owners(Strategy::Device, TransferPath::Tree),
        network: NETWORKS[0],
        jitter: 0.0,
        drift: 0.0,
    };
    for name in MEASURED {
        let mut made = cluster.record(name, 1, 14, &mut Random(1));
        made.header.config.strategy = StrategyConfig::default();
        made.header.config.gradient_compression = GradientCompression::TopK { ratio: 0.01 };
        coded.run(&made);
    }
    let refusal = error(&coded, &[]);
    expect![[r"
        error: rn50: strategy all-reduce is not predicted from these runs: with --gradient-compression topk:0.01 every rank receives and decodes the codes of all ranks, which no all-reduce model describes
    "]].assert_eq(&refusal);

    // No single rank, neither of this strategy nor of all-reduce.
    std::fs::remove_dir_all(folder.path().join("1n1g")).expect("removed");
    let without = error(&folder, &["--strategy", "device"]);
    expect!["error: rn50_b4_fp32_device_cpu: strategy device is not predicted from these runs: no run of 1n1g counts, and only its update separates the return of the weights from the optimizer's time: sweep 1n1g as well"].assert_eq(&lines_with(&without, "only its update"));
    let group = group_of(&folder, Strategy::DistSync);
    assert!(ExchangePattern::from_group(&group).is_ok(), "with servers nothing is derived from the update");

    // No records.
    for name in ["1n2g", "2n2g", "4n2g"] {
        for entry in std::fs::read_dir(folder.path().join(name)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                std::fs::remove_file(path).expect("removed");
            }
        }
    }
    let without = error(&folder, &["--strategy", "dist_sync", "--warmup", "2"]);
    expect!["error: rn50_b4_fp32_dist-sync: strategy dist_sync is not predicted from these runs: there are logs without records (.jsonl), and only records show the hidden part of an exchange"].assert_eq(&lines_with(&without, "there are logs"));
}

#[test]
fn strategy_without_valid_runs_is_rejected() {
    let cluster = StrategyCluster {
        exchange: Exchange::Owners(Strategy::Device, TransferPath::Tree),
        network: NETWORKS[0],
        jitter: 0.0,
        drift: 0.0,
    };
    let folder = Folder::new();
    for name in MEASURED {
        let mut made = cluster.record(name, 1, 14, &mut Random(1));
        let end = made.end.as_mut().expect("an end");
        end.failure = (made.header.config.strategy.strategy == Strategy::Device).then(|| "weights differ".to_owned());
        folder.run(&made);
    }
    let error = refused(ringmark("predict").arg(folder.path()).args(["--strategy", "device"]), 2);
    expect![[r#"
        not used: 1n2g/rn50_b4_fp32_device_1.jsonl: the run failed: weights differ: repeat it
        not used: 2n2g/rn50_b4_fp32_device_1.jsonl: the run failed: weights differ: repeat it
        not used: 4n2g/rn50_b4_fp32_device_1.jsonl: the run failed: weights differ: repeat it
        error: rn50_b4_fp32_device_cpu: strategy device is not predicted from these runs: no run of it counts
    "#]]
    .assert_eq(&error);
}

/// Writes a run of 12 arrays in equal slices, 48 MB together, with servers on these hosts in turn.
fn served_by(folder: &Folder, name: &str, number: Option<u32>, hosts: &[&str]) {
    let exchange = Exchange::Servers(number, false);
    let mut made =
        StrategyCluster { exchange, network: NETWORKS[0], jitter: 0.0, drift: 0.0 }.record(name, 1, 14, &mut Random(1));
    if case(name).ranks() > 1 {
        made.header.buckets = vec![Bytes(4_000_000); 12];
    }
    let used = made.end.as_mut().expect("an end").strategy.iter_mut();
    let servers = used.flat_map(|used| &mut used.servers);
    servers.zip(hosts.iter().cycle()).for_each(|(server, host)| server.host = (*host).to_owned());
    folder.run(&made);
}

#[test]
fn servers_keep_their_placement_in_larger_cases() {
    for (number, hosts, expected) in [
        // --server-hosts s,t: s and t have one server each for two hosts, and two for four.
        (None, &["s", "t"][..], [1.0, 2.0, 4.0]),
        (Some(2), &["s", "t"], [1.0, 2.0, 4.0]),
        (Some(2), &["s"], [2.0, 4.0, 8.0]),
        // All servers on the host of the first rank: the others push everything to it.
        (Some(2), &["host0"], [1.0, 3.0, 7.0]),
        // The default placement of a sweep.
        (Some(2), &["host0", "host1"], [1.0, 2.0, 4.0]),
        (None, &["host0", "host1", "host2", "host3"], [1.0, 1.5, 1.75]),
        // Hosts that have ranks only in the larger case.
        (None, &["host2", "host3"], [1.0, 2.0, 4.0]),
    ] {
        let folder = Folder::new();
        ["1n1g", "1n2g", "2n2g", "4n2g"].iter().for_each(|name| served_by(&folder, name, number, hosts));
        let pattern = ExchangePattern::from_group(&group_of(&folder, Strategy::DistSync)).expect("it can be predicted");
        let [two, four] = ["2n2g", "4n2g"].map(|name| pattern.measured_laws(case(name)));
        let laws = [two, four, pattern.laws(case("8n2g"))];
        let of_weights = laws.map(|laws| (laws.parts[BUSIEST_LINK] / 48e4).round() / 100.0);
        assert_eq!(of_weights, expected, "{number:?} on {hosts:?}");
    }
    let folder = Folder::new();
    ["1n1g", "1n2g", "2n2g", "4n2g"].iter().for_each(|name| served_by(&folder, name, None, &["s", "t"]));
    let (_, stdout, _) =
        sandbox::run(ringmark("predict --strategy dist_sync --cases 8n2g --explain").arg(folder.path()));
    let sentence = "distributed over at most 2 hosts without ranks, as measured busiest link, per step in one direction: 96.0 MB for \
                    4n2g with 4 servers (measured), 192.0 MB for 8n2g with 8 servers";
    assert!(single_spaced(&stdout).contains(sentence), "{stdout}");
}

#[test]
fn suggested_command_keeps_the_server_options() {
    let options = |number: Option<u32>, hosts: &[&str]| {
        let folder = Folder::new();
        ["1n1g", "1n2g", "2n2g"].iter().for_each(|name| served_by(&folder, name, number, hosts));
        let (status, _, stderr) =
            sandbox::run(ringmark("predict --strategy dist_sync --cases 4n4g").arg(folder.path()));
        assert_eq!(status, Some(1), "{stderr}");
        let (_, command) = stderr.trim_end().split_once("ringmark sweep --cases 1n4g,2n4g ").expect("a command");
        command.replace("--batch-size 4 --dtype fp32 --strategy dist_sync", "").trim_start().to_owned()
    };
    let hosts = "--hosts HOST1:4,HOST2:4";
    assert_eq!(options(Some(4), &["host0", "host1"]), format!("--servers 4 {hosts}"));
    assert_eq!(options(None, &["host0", "host1"]), hosts);
    assert_eq!(options(None, &["s", "t"]), format!("--server-hosts SERVER1,SERVER2 {hosts}"));
    assert_eq!(options(Some(4), &["s"]), format!("--servers 4 --server-hosts SERVER1 {hosts}"));
    assert_eq!(options(Some(4), &["host0"]), format!("--servers 4 --server-hosts HOST1 {hosts}"));
}

#[test]
fn other_server_counts_are_predicted_without_straggler_too() {
    let folder = Folder::new();
    for run in 1..=3 {
        folder.run(&long_record("1n1g", run, 0.5, |_| ()));
        let mut made = long_record("2n2g", run, 0.625, |iteration| {
            iteration.before_allreduce[3].0 *= 2.0;
            // Three ranks wait for the fourth.
            for rank in 0..3 {
                iteration.phases[Phase::ExposedAllreduce][rank].0 += 0.1;
            }
        });
        made.header.buckets = vec![Bytes(8_000_000); 12];
        made.header.config.strategy =
            StrategyConfig { strategy: Strategy::DistSync, servers: Some(2), ..StrategyConfig::default() };
        folder.run(&made);
    }
    let (status, stdout, stderr) =
        sandbox::run(ringmark("predict --servers 1 --strategy dist_sync").arg(folder.path()).arg("--json"));
    assert_eq!(status, Some(0), "{stderr}");
    let group = &serde_json::from_str::<Value>(&stdout).expect("JSON")["groups"][0];
    for predictions in ["predictions", "predictions_without_straggler"] {
        let cases = group[predictions].as_array().expect("a list").iter().flat_map(|one| one["case"].as_str());
        assert_eq!(cases.collect::<Vec<_>>(), ["2n2g", "4n2g", "8n2g", "16n2g"], "{predictions}");
    }
}

#[test]
fn mixed_server_placement_is_rejected() {
    let cluster =
        StrategyCluster { exchange: Exchange::Servers(Some(2), true), network: NETWORKS[0], jitter: 0.0, drift: 0.0 };
    let folder = Folder::new();
    for name in MEASURED {
        let mut made = cluster.record(name, 1, 14, &mut Random(1));
        let end = made.end.as_mut().expect("an end");
        end.strategy.iter_mut().for_each(|used| used.servers[0].host = "host0".to_owned());
        folder.run(&made);
    }
    let error = refused(ringmark("predict").arg(folder.path()).args(["--strategy", "dist_sync"]), 2);
    expect![[r#"
        error: rn50_b4_fp32_dist-sync_cpu: strategy dist_sync is not predicted from these runs: in 2n2g some servers share hosts with ranks and some do not: measure with all servers on one kind of host (--server-hosts)
    "#]].assert_eq(&error);
}

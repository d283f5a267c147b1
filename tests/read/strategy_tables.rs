//! Tests of several strategies in one folder: each has its own table with a common single rank, in every command that
//! reads runs; and of a real sweep over them.

use expect_test::expect;
use std::fs;

use ringmark::read::analyze::results::ResultFolder;
use ringmark::read::analyze::training::figures::TrainingGroup;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::strategy::gathers::GatherUse;
use ringmark_core::benchmark::strategy::{StrategyConfig, StrategyUse};
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{Bytes, Case, DeviceKind, Phase, Seconds, Strategy};
use serde_json::Value;

use crate::support::core_tokens::take_all_cores;
use crate::support::golden::assert_golden;
use crate::support::runs::{Folder, record};
use crate::support::sandbox::{Sandbox, lines_with, ringmark, run, succeeds, words};

fn of(strategy: Strategy, servers: Option<u32>, mut record: RunRecord) -> RunRecord {
    record.header.config.strategy = StrategyConfig { strategy, servers, ..StrategyConfig::default() };
    record
}

/// Creates runs of all-reduce and `other` on one and on two hosts, and a single rank of all-reduce: 0.5 s for the single rank, 0.6
/// and 0.7 s for all-reduce, 0.8 and 1.0 s for the other. Each host has one server.
fn two(other: Strategy) -> Folder {
    let folder = Folder::new();
    for (run, factor) in [(1, 1.0), (2, 1.002), (3, 0.997)] {
        folder.run(&record("1n1g", run, 0.5 * factor));
        for (case, hosts, all_reduce, step) in [("1n2g", 1, 0.6, 0.8), ("2n2g", 2, 0.7, 1.0)] {
            folder.run(&record(case, run, all_reduce * factor));
            let servers = other.has_servers().then_some(hosts);
            folder.run(&of(other, servers, record(case, run, step * factor)));
        }
    }
    folder
}

fn read(folder: &Folder) -> ResultFolder {
    ringmark::read::results::read_training(&folder.path(), None).expect("a folder of runs")
}

fn efficiencies(group: &TrainingGroup) -> Vec<(String, f64)> {
    let figures = |case: &ringmark::read::analyze::training::figures::TrainingCase| {
        (case.case.to_string(), (1e3 * case.figures.as_ref().expect("figures").efficiency).round() / 1e3)
    };
    group.cases.iter().map(figures).collect()
}

#[test]
fn each_strategy_has_a_table_relative_to_all_reduce_1n1g() {
    let folder = two(Strategy::DistSync);
    let result = read(&folder);
    assert_eq!(result.problems, []);
    let [all_reduce, servers] = result.training() else { panic!("two tables: {:?}", result.training()) };
    assert_eq!((all_reduce.label.as_str(), servers.label.as_str()), ("rn50_b4_fp32_cpu", "rn50_b4_fp32_dist-sync_cpu"));
    let of_cases =
        |list: &[(&str, f64)]| list.iter().map(|(case, value)| ((*case).to_owned(), *value)).collect::<Vec<_>>();
    assert_eq!(efficiencies(all_reduce), of_cases(&[("1n1g", 1.0), ("1n2g", 0.833), ("2n2g", 0.714)]));
    assert_eq!(efficiencies(servers), of_cases(&[("1n2g", 0.625), ("2n2g", 0.5)]));
    assert_eq!((servers.base, servers.base_text().as_deref()), (Some(Case::SINGLE), Some("1n1g of all-reduce")));
    assert_eq!(all_reduce.base_text().as_deref(), Some("1n1g"));

    for (format, file) in [("table", "strategies.txt"), ("csv", "strategies.csv")] {
        let stdout = succeeds(ringmark("extract").arg(folder.path()).args(["--format", format]));
        assert_golden(&format!("extract/{file}"), &stdout);
        assert!(stdout.lines().all(|line| format == "csv" || line.chars().count() <= 80), "{stdout}");
    }
    let (_, stdout, _) = run(ringmark("extract").arg(folder.path()).args(["--format", "json"]));
    let result: Value = serde_json::from_str(&stdout).expect("JSON");
    let conditions = |row: &Value| {
        [&row["strategy"], &row["base"], &row["base_strategy"]].map(|value| value.as_str().unwrap_or("-").to_owned())
    };
    let rows: Vec<[String; 3]> = result["rows"].as_array().expect("rows").iter().map(conditions).collect();
    let [of_all_reduce, of_servers] =
        [["-", "1n1g", "all-reduce"], ["dist_sync", "1n1g", "all-reduce"]].map(|row| row.map(str::to_owned));
    assert_eq!(rows, [vec![of_all_reduce; 3], vec![of_servers; 2]].concat());
}

/// Computation waits 10 ms for weights, a part of the exposed communication of these records.
#[test]
fn waits_for_weights_are_shown_with_their_cause() {
    let folder = Folder::new();
    let gather = |phase, bucket, wait| GatherUse {
        bucket,
        weights: [format!("layer{bucket}.0.weight"), format!("layer{bucket}.1.bias")],
        phase,
        gathers: 1.0,
        received: Bytes(8_000_000),
        gather: Seconds(0.0045),
        transfer: Seconds(0.004),
        wait: Seconds(wait),
        host: Seconds(0.0001),
    };
    for run in 1..=3 {
        folder.run(&record("1n1g", run, 0.48));
        let mut record = of(Strategy::Fsdp, None, record("1n2g", run, 0.5));
        let gathers = vec![
            gather(Phase::Forward, 0, 0.003),
            gather(Phase::Backward, 0, 0.002),
            gather(Phase::Backward, 1, 0.005),
        ];
        record.end.as_mut().expect("a whole record").strategy = Some(StrategyUse { gathers, ..StrategyUse::default() });
        folder.run(&record);
    }
    let stdout = succeeds(ringmark("extract").arg(folder.path()).args(["--format", "table"]));
    let from = stdout.find("Exposed communication").expect("a table");
    expect![[r#"
        Exposed communication of sharded weights by phase, median run

        case  forward  backward  sums  longest     cause
                   ms        ms    ms       ms
        ------------------------------------------------
        1n2g     3.00      7.00  55.3     5.00  transfer

        Where the scaling loss goes: step of each case minus that of 1n1g of all-reduce

        case               lost  compute  transfer  waiting  optimizer  other
        ---------------------------------------------------------------------
        1n2g          ms   20.9     15.7      65.3    0.000       1.31  -61.4
        96.0 %      ± ms  0.000    0.000     0.000    0.000      0.000  0.000
                images/s  0.638    0.478      1.99    0.000      0.040  -1.87
                 share %    100     75.0       313    0.000       6.25   -294

        note: 1n2g: the longest wait for weights, 5.00 ms in backward, is for bucket 1
        (layer1.0.weight to layer1.1.bias): its transfer takes 4.00 ms at 2.00 GB/s, and
        no computation hides it: use a larger batch or a faster link

        Meaning of the columns: --explain
    "#]]
    .assert_eq(&stdout[from..stdout.find("\nwarning").unwrap_or(stdout.len())]);
    let (_, stdout, _) = run(ringmark("extract").arg(folder.path()).args(["--format", "json"]));
    let result: Value = serde_json::from_str(&stdout).expect("JSON");
    let waits = &result["rows"][1]["weight_waits"];
    assert_eq!((waits["backward_seconds"].as_f64(), waits["cause"].as_str()), (Some(0.007), Some("transfer")));
    assert_eq!(waits["longest"]["bucket"].as_u64(), Some(1));
}

#[test]
fn own_1n1g_takes_precedence_over_all_reduce() {
    let folder = two(Strategy::DistSync);
    folder.run(&of(Strategy::DistSync, Some(1), record("1n1g", 1, 0.55)));
    let result = read(&folder);
    let groups = result.training();
    assert_eq!((groups.len(), groups[1].base_text().as_deref()), (2, Some("1n1g")));
    assert!((groups[1].cases[1].figures.as_ref().expect("figures").efficiency - 0.55 / 0.8).abs() < 1e-3);
    // Without all-reduce's single rank, the smallest case is the base, as everywhere.
    let folder = two(Strategy::Device);
    fs::remove_dir_all(folder.path().join("1n1g")).expect("removed");
    let result = read(&folder);
    let groups = result.training();
    assert_eq!(groups[1].base_text().as_deref(), Some("1n2g"));
}

#[test]
fn different_server_counts_have_separate_tables() {
    let folder = Folder::new();
    for (case, servers) in [("1n2g", 1), ("2n2g", 3)] {
        folder.run(&of(Strategy::DistSync, Some(servers), record(case, 1, 0.5)));
    }
    let labels: Vec<String> = read(&folder).training().iter().map(|group| group.label.clone()).collect();
    assert_eq!(labels, ["rn50_b4_fp32_dist-sync_cpu_servers=1", "rn50_b4_fp32_dist-sync_cpu_servers=3"]);
}

#[test]
fn old_file_names_without_strategy_are_read() {
    let folder = Folder::new();
    for case in ["1n1g", "1n2g"] {
        folder.run(&of(Strategy::Device, None, record(case, 1, 0.5)));
        for ending in ["log", "jsonl"] {
            let at = |name: &str| folder.path().join(case).join(format!("{name}.{ending}"));
            fs::rename(at("rn50_b4_fp32_device_1"), at("rn50_b4_fp32_1")).expect("it has that name");
        }
    }
    // It failed before writing its record.
    folder.log("1n2g/rn50_b4_fp32_2.log", &[]);
    let result = read(&folder);
    assert_eq!(result.problems.len(), 1, "{:?}", result.problems);
    let [group] = result.training() else { panic!("one table: {:?}", result.training()) };
    assert_eq!((group.label.as_str(), group.conditions.point.strategy), ("rn50", Strategy::Device));
    assert_eq!((group.base_text().as_deref(), group.cases[1].runs.len()), (Some("1n1g"), 2));
}

#[test]
fn diff_pairs_equal_strategies() {
    let diff = |base: &Folder, test: &Folder| run(ringmark("diff").args([base.path(), test.path()]));
    let (status, stdout, stderr) = diff(&two(Strategy::DistSync), &two(Strategy::DistSync));
    assert_eq!(
        (status, stdout.matches("2n2g").count(), stdout.contains("No recorded setting differs")),
        (Some(0), 2, true),
        "{stdout}{stderr}"
    );
    assert!(stdout.contains("strategy dist_sync") && stdout.contains("strategy all-reduce"), "{stdout}");

    // Results of one side only are not compared.
    let (_, stdout, stderr) = diff(&two(Strategy::DistSync), &two(Strategy::Device));
    assert_eq!(stdout.matches("2n2g").count(), 1, "{stdout}{stderr}");
    let only =
        |side: &str| stdout.lines().find(|line| line.starts_with(&format!("Only in {side}"))).unwrap_or_default();
    assert!(only("BASE").contains("strategy dist_sync") && only("TEST").contains("strategy device"), "{stdout}");

    // One strategy on each side is compared with the other, with a note.
    let alone = |strategy: Strategy| {
        let folder = Folder::new();
        (1..=3).for_each(|run| folder.run(&of(strategy, None, record("1n2g", run, 0.5 + f64::from(run) / 1e3))));
        folder
    };
    let (_, stdout, stderr) = diff(&alone(Strategy::AllReduce), &alone(Strategy::Device));
    assert!(stdout.contains("Differences\n\n  strategy: all-reduce -> device\n"), "{stdout}{stderr}");
}

#[test]
fn diff_compares_servers_only_in_common_cases() {
    let served = |cases: &[(&str, u32)]| {
        let folder = Folder::new();
        for (case, servers) in cases {
            for (run, step) in [(1, 0.5), (2, 0.501)] {
                folder.run(&of(Strategy::DistSync, Some(*servers), record(case, run, step)));
            }
        }
        folder
    };
    // One server per host, for two numbers of hosts and for one; always two; and three.
    let (one_a_host, of_one_case) = (served(&[("1n2g", 1), ("2n2g", 2)]), served(&[("2n2g", 2)]));
    let (two, three) = (served(&[("1n2g", 2), ("2n2g", 2)]), served(&[("2n2g", 3)]));
    for (base, test, what) in [
        (&one_a_host, &of_one_case, "No recorded setting differs"),
        (&of_one_case, &one_a_host, "No recorded setting differs"),
        (&two, &of_one_case, "No recorded setting differs"),
        (&one_a_host, &two, "Differences\n\n  servers: 1 / 2 -> 2\n"),
        (&one_a_host, &three, "Differences\n\n  servers: 2 -> 3\n"),
    ] {
        let (_, stdout, stderr) = run(ringmark("diff").args([base.path(), test.path()]));
        assert!(stdout.contains(what), "{what}: {stdout}{stderr}");
    }
}

#[test]
fn predict_uses_a_model_per_strategy() {
    let folder = two(Strategy::DistSync);
    let (status, stdout, stderr) = run(ringmark("predict").arg(folder.path()).args(["--cases", "4n2g"]));
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let rows: Vec<&str> = stdout.lines().filter(|line| line.starts_with("4n2g")).collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    expect!["ResNet50-v1b, fp32, batch size 4 per rank, strategy dist_sync"]
        .assert_eq(&lines_with(&stdout, ", strategy dist_sync"));
    expect!["one server per host"].assert_eq(&lines_with(&stdout, "one server per host"));
}

#[test]
fn report_shows_strategies_side_by_side() {
    let folder = two(Strategy::DistSync);
    let stdout = succeeds(ringmark("report").arg(folder.path()));
    for name in ["first: all-reduce\n", "first: dist_sync\n", "Comparison of strategies: "] {
        assert!(stdout.contains(name), "{name}: {stdout}");
    }
    expect![[r#"
        with them; sent: by a rank in a step. speedup, efficiency and loss are relative to 1n1g of
        speedup, efficiency and loss are relative to 1n1g of all-reduce, which all strategies share."#]]
    .assert_eq(&lines_with(&stdout, "relative to 1n1g"));
}

#[test]
fn real_sweep_over_strategies_is_read() {
    let sandbox = Sandbox::real();
    let mut command =
        ringmark("sweep --no-doctor --device cpu --model mlp --batch-size 2 --iters 4 --warmup 1 --threads 1");
    command.args(words("--hosts localhost:2 --cases 1n1g,1n2g --runs 1 --strategies all-reduce,device,dist_sync"));
    let out = sandbox.path("out");
    let tokens = take_all_cores();
    succeeds(command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(&out));
    drop(tokens);
    let read = |name: &str| {
        let text = fs::read(out.join("1n2g").join(name)).expect(name);
        RunRecord::read(&text[..]).expect("a record").header
    };
    for (name, strategy, servers) in [
        ("mxnet-mlp_b2_fp32_1.jsonl", Strategy::AllReduce, None),
        ("mxnet-mlp_b2_fp32_device_1.jsonl", Strategy::Device, None),
        ("mxnet-mlp_b2_fp32_dist-sync_1.jsonl", Strategy::DistSync, Some(1)),
    ] {
        let header = read(name);
        let used = header.config.strategy;
        assert_eq!((used.strategy, used.servers, header.ranks.len()), (strategy, servers, 2), "{name}");
        assert_eq!(header.ranks[0].device, DeviceKind::Cpu);
    }
    assert_eq!(fs::read_dir(out.join("1n1g")).expect("a folder").count(), 2, "all-reduce's log and record alone");
    let stdout = succeeds(ringmark("extract").arg(&out));
    assert!(stdout.contains("Comparison of strategies"), "{stdout}");
    assert_eq!(stdout.matches("relative to 1n1g of all-reduce").count(), 1, "{stdout}");
}

//! Tests of `ringmark predict`: a simulated cluster with known results, DLPerf's published rows, and rejected input.

use std::path::Path;
use std::process::Command;

use expect_test::expect;
use ringmark::read::analyze::prediction::evidence::Evidence;
use ringmark::read::analyze::prediction::exchange_pattern::ExchangePattern;
use ringmark::read::analyze::prediction::model::{Prediction, predict};
use ringmark::read::analyze::prediction::search;
use ringmark::read::analyze::prediction::step_parts::Limit;
use ringmark::read::analyze::published::scaling::DLPERF;
use ringmark::read::benchmark::bandwidth::load as bandwidth;
use ringmark::read::results;
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::optimizer::OptimizerChoice;
use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::dimension::{BackendName, Bytes, Case, DeviceKind, Model, Phase, Phases, Seconds, Wire};
use ringmark_core::file::run_name::Point;
use ringmark_core::number_text::thousands;
use ringmark_core::stats::allreduce_model::{Cost, Exchange};
use ringmark_core::stats::exchange_growth::Servers;
use ringmark_core::stats::summary::median;
use serde_json::Value;

use crate::support::bandwidth as fixtures;
use crate::support::model_cluster::ModelCluster;
use crate::support::runs::{Folder, long_record, record};
use crate::support::sandbox::{check_refusals, fails, lines_with, refused, ringmark, run, succeeds};
use crate::support::temporary_folder::without_folder;
use ringmark_core::stats::random::Random;

fn case(name: &str) -> Case {
    name.parse().expect("a case")
}

/// Returns `ringmark predict` for a folder, or for the published rows.
fn command(folder: Option<&Path>, options: &[&str]) -> Command {
    let mut command = ringmark("predict");
    command.args(folder).args(options);
    command
}

/// Returns the standard output without line breaks within sentences.
fn predicted(folder: &Folder, options: &[&str]) -> String {
    succeeds(&mut command(Some(&folder.path()), options)).replace("\n  ", " ")
}

/// A simulated cluster in which every time is known: backward fills four buckets, the ring reduces them one after the
/// other, and ranks that finish early wait. It shares only the time of one all-reduce with the model under test.
#[derive(Clone, Copy)]
struct AllReduceCluster {
    backend: BackendName,
    /// Seconds per step and bytes per second between hosts.
    between: (f64, f64),
    /// Relative deviation of a rank's compute time between iterations.
    jitter: f64,
    /// Relative deviation of all times between runs.
    drift: f64,
    /// Factor on the time of all-reduces between hosts, relative to latency and bandwidth.
    law: Law,
}

/// Factor by case and bytes.
type Law = fn(Case, f64) -> f64;

/// The cost model under test.
const AS_THE_MODEL: Law = |_, _| 1.0;

const INSIDE: (f64, f64) = (4e-6, 60e9);
const BUCKETS: [u64; 4] = [26_046_368, 26_255_360, 25_747_456, 24_178_944];
/// Share of backward after which each bucket is full.
const READY: [f64; 4] = [0.2, 0.45, 0.75, 1.0];
const FORWARD: f64 = 0.030;
const BACKWARD: f64 = 0.060;
const OPTIMIZER: f64 = 0.002;
const OTHER: f64 = 0.0005;
/// Slowdown of four ranks on one host.
const CROWDED: f64 = 1.06;

impl AllReduceCluster {
    fn allreduce(&self, case: Case, size: Bytes) -> f64 {
        let (latency, bandwidth) = if case.nodes == 1 { INSIDE } else { self.between };
        let Cost { steps, bytes } = Exchange::for_backend(self.backend, Bytes(0)).cost(case, &[size]);
        let law = if case.nodes == 1 { 1.0 } else { (self.law)(case, size.0 as f64) };
        law * (latency * steps + bytes / bandwidth)
    }
}

impl ModelCluster for AllReduceCluster {
    const OF_TRUTH: u32 = 400;
    const OF_RUN: u32 = 22;

    fn iteration(&self, case: Case, number: u32, slow: f64, noise: &mut Random) -> Iteration {
        let ranks = case.ranks() as usize;
        let crowded = slow * if case.gpus_per_node > 1 { CROWDED } else { 1.0 };
        let own: Vec<(f64, f64)> = (0..ranks)
            .map(|_| {
                let factor = crowded * (1.0 + self.jitter * noise.normal()).max(0.5);
                (FORWARD * factor, BACKWARD * factor)
            })
            .collect();
        let mut done: f64 = 0.0;
        for (size, ready) in BUCKETS.iter().zip(READY).filter(|_| ranks > 1) {
            let full = own.iter().map(|(forward, backward)| forward + ready * backward).fold(0.0, f64::max);
            done = full.max(done) + self.allreduce(case, Bytes(*size)) * slow;
        }
        let exposed: Vec<f64> = own.iter().map(|(forward, backward)| (done - forward - backward).max(0.0)).collect();
        let seconds = |of: &dyn Fn(usize) -> f64| (0..ranks).map(|rank| Seconds(of(rank))).collect::<Vec<_>>();
        Iteration {
            iteration: number,
            step: seconds(&|rank| own[rank].0 + own[rank].1 + exposed[rank] + OPTIMIZER + OTHER),
            phases: Phases::from_fn(|phase| match phase {
                Phase::Input => seconds(&|_| 0.0),
                Phase::Forward => seconds(&|rank| own[rank].0),
                Phase::Backward => seconds(&|rank| own[rank].1),
                Phase::ExposedAllreduce => seconds(&|rank| exposed[rank]),
                Phase::Optimizer => seconds(&|_| OPTIMIZER),
            }),
            before_allreduce: seconds(&|rank| own[rank].0 + READY[0] * own[rank].1),
            loss: vec![6.9; ranks],
            loss_scale: 1.0,
            skipped: false,
        }
    }

    fn drift(&self) -> f64 {
        self.drift
    }

    fn describe(&self, case: Case, made: &mut RunRecord) {
        made.header.buckets = BUCKETS.map(Bytes).into();
        made.header.backend = if case.ranks() == 1 { BackendName::Solo } else { self.backend };
    }
}

/// A cluster in which several ranks of a host wait for their images, for this many seconds in every step.
struct Starved(AllReduceCluster, f64);

impl Starved {
    fn starve(&self, case: Case, mut iteration: Iteration) -> Iteration {
        if case.gpus_per_node > 1 {
            iteration.step.iter_mut().chain(&mut iteration.phases[Phase::Input]).for_each(|time| time.0 += self.1);
        }
        iteration
    }
}

impl ModelCluster for Starved {
    const OF_TRUTH: u32 = AllReduceCluster::OF_TRUTH;
    const OF_RUN: u32 = AllReduceCluster::OF_RUN;

    fn iteration(&self, case: Case, number: u32, slow: f64, noise: &mut Random) -> Iteration {
        self.starve(case, self.0.iteration(case, number, slow, noise))
    }

    fn drift(&self) -> f64 {
        self.0.drift()
    }

    fn describe(&self, case: Case, made: &mut RunRecord) {
        self.0.describe(case, made);
    }

    fn record(&self, name: &str, run: u32, iterations: u32, noise: &mut Random) -> RunRecord {
        let made = self.0.record(name, run, iterations, noise);
        let iterations = made.iterations.into_iter().map(|iteration| self.starve(case(name), iteration)).collect();
        RunRecord { iterations, ..made }
    }
}

impl AllReduceCluster {
    /// Measures sizes from 8 bytes to 128 MB, each with a random error.
    fn bandwidth(&self, name: &str, error: f64, noise: &mut Random) -> BandwidthRecord {
        let result = |bytes: u64, noise: &mut Random| {
            let time = self.allreduce(case(name), Bytes(bytes)) * (1.0 + error * noise.normal()).max(0.1);
            fixtures::result(bytes, case(name).ranks(), 2, [None, Some(time)])
        };
        let results = (3..28).map(|power| result(1 << power, noise)).collect();
        BandwidthRecord { backend: self.backend, ..fixtures::record(&record(name, 1, 0.1), results) }
    }

    fn write_bandwidth(&self, folder: &Folder, cases: &[&str], seed: u64) {
        let mut noise = Random(seed);
        for name in cases {
            folder.write(&format!("{name}/bandwidth.json"), fixtures::text(&self.bandwidth(name, 0.04, &mut noise)));
        }
    }
}

fn evidence(sweep: &Folder, bandwidth_result: Option<&Folder>) -> Evidence {
    let result = results::read_training(&sweep.path(), None).expect("a folder of runs");
    assert_eq!(result.problems, []);
    let evidence = Evidence::from_group(&result.training()[0], ExchangePattern::AllReduce).expect("runs that count");
    let records = bandwidth_result.map(|folder| bandwidth::read(&folder.path()).expect("records").cases);
    evidence.with_bandwidth(&records.unwrap_or_default()).expect("the same backend")
}

const MEASURED: [&str; 4] = ["1n1g", "1n4g", "2n4g", "4n4g"];

/// Networks between hosts in which only the last bucket is exposed, the exchange takes about as long as backward, takes
/// much longer, or has the latency of Ethernet.
const NETWORKS: [(f64, f64); 4] = [(20e-6, 12e9), (20e-6, 3e9), (20e-6, 1e9), (60e-6, 6e9)];

#[test]
fn band_of_eight_hosts_contains_the_true_step() {
    let (mut inside, mut all) = (0, 0);
    for backend in [BackendName::Nccl, BackendName::SharedMemory] {
        for between in NETWORKS {
            for (jitter, drift) in [(0.0, 0.0), (0.02, 0.005)] {
                let cluster = AllReduceCluster { backend, between, jitter, drift, law: AS_THE_MODEL };
                let truth = cluster.truth("8n4g");
                for seed in if drift > 0.0 { 1..=5 } else { 1..=1 } {
                    let sweep = cluster.sweep(&MEASURED, seed);
                    let result = Folder::new();
                    cluster.write_bandwidth(&result, &["1n4g", "2n4g", "4n4g"], seed);
                    for bandwidth_result in [Some(&result), None] {
                        let evidence = evidence(&sweep, bandwidth_result);
                        let Prediction { step, .. } = predict(&evidence, case("8n4g")).expect("both levels are there");
                        let what = format!(
                            "{backend}, {between:?}, jitter {jitter}, seed {seed}, with bandwidth {}: {truth} in {step:?}",
                            bandwidth_result.is_some()
                        );
                        let is_inside = (step.low..=step.high).contains(&truth);
                        inside += u32::from(is_inside);
                        all += 1;
                        assert!(is_inside || drift > 0.0, "without noise the bounds are exact: {what}");
                        assert!(truth > 0.98 * step.low && truth < 1.02 * step.high, "never off by much: {what}");
                        // The band must not be so wide that it contains anything.
                        let width = (step.high - step.low) / step.mid;
                        assert!(width < if bandwidth_result.is_some() { 0.2 } else { 0.4 }, "{width}: {what}");
                    }
                }
            }
        }
    }
    assert!(f64::from(inside) >= 0.95 * f64::from(all), "{inside} of {all}");
}

/// Checks the table of docs/scale.md and the resulting step, far beyond the measured range.
#[test]
fn exchange_of_65536_ranks_matches_the_document() {
    let document = include_str!("../../docs/scale.md");
    let (large, gradients) = (case("8192n8g"), BUCKETS.iter().sum::<u64>() as f64);
    let buckets = BUCKETS.map(Bytes);
    let mut rows = Vec::new();
    for (backend, names, volume, formula) in [
        (BackendName::Nccl, "`nccl` (ring), `mpi`", "per rank: 2 (n-1)/n S", "2 (n-1) per bucket"),
        (BackendName::SharedMemory, "`shared-memory`", "per host: 2 (H-1)/H S", "2 (H-1) per bucket"),
    ] {
        let Cost { steps, bytes } = Exchange::for_backend(backend, Bytes(0)).cost(large, &buckets);
        let steps = thousands(steps, ',');
        rows.push(format!("| {names} | {:.1} MB {volume} | {steps}: {formula} |", bytes / 1e6));
    }
    let others = f64::from(large.ranks() - 1);
    let largest = *BUCKETS.iter().max().expect("buckets") as f64;
    for (what, bytes) in [("at the owner", others * largest), ("at rank 0", others * gradients)] {
        rows.push(format!("{} GB in, {what}", units_of_ten(bytes / 1e9)));
    }
    let servers = Servers {
        rank_hosts: large.nodes,
        pushers_per_host: 1,
        on_one_host: 1,
        is_rank_host: false,
        share: 1.0 / 128.0,
        parts: 0,
        parts_of_server: 0,
        pushed: gradients,
        pulled: gradients,
    };
    rows.push(format!("| `dist_sync`, 128 servers | {:.1} GB in, at each server", servers.busiest_link() / 1e9));
    for row in rows {
        assert!(document.contains(&row), "docs/scale.md has no {row:?}");
    }
    for backend in [BackendName::Nccl, BackendName::SharedMemory] {
        for between in [(20e-6, 12e9), (5e-6, 50e9)] {
            let cluster = AllReduceCluster { backend, between, jitter: 0.0, drift: 0.0, law: AS_THE_MODEL };
            let truth = cluster.iteration(large, 1, 1.0, &mut Random(1)).step[0].0;
            let sweep = cluster.sweep(&["1n1g", "1n8g", "2n8g", "4n8g"], 1);
            let result = Folder::new();
            cluster.write_bandwidth(&result, &["1n8g", "2n8g", "4n8g"], 1);
            let Prediction { step, .. } =
                predict(&evidence(&sweep, Some(&result)), large).expect("both levels are there");
            assert!(
                (0.999 * step.low..=1.001 * step.high).contains(&truth),
                "{backend}, {between:?}: {truth} in {step:?}"
            );
        }
    }
}

#[test]
fn language_models_are_predicted_in_tokens() {
    let folder = Folder::new();
    for (case, step) in [("1n1g", 0.5), ("1n2g", 0.53), ("2n2g", 0.56)] {
        for run in 1..=3 {
            let mut record = long_record(case, run, step * (1.0 + 0.01 * f64::from(run)), |_| ());
            let config = &mut record.header.config;
            (config.model, config.image_size, config.sequence_length) = (Model::Gpt2Small, None, Some(1024));
            folder.run(&record);
        }
    }
    let text = predicted(&folder, &["--cases", "4n2g"]);
    assert!(text.contains("tokens/s") && !text.contains("images"), "{text}");
    let json = succeeds(&mut command(Some(&folder.path()), &["--cases", "4n2g", "--json"]));
    assert!(json.contains("\"unit\": \"tokens\""), "{json}");
}

/// Formats a number as in `1,720.6`.
fn units_of_ten(value: f64) -> String {
    let tenths = (10.0 * value).round() as u64;
    format!("{}.{}", thousands((tenths / 10) as f64, ','), tenths % 10)
}

/// Simulates clusters whose cost grows in ways that the model lacks, with a bandwidth result of one multi-host case.
#[test]
fn bandwidth_of_one_host_count_does_not_narrow_the_band() {
    let laws: [(&str, Law); 6] = [
        ("each doubling of the hosts adds a fifth", |case, _| 1.0 + 0.2 * f64::from(case.nodes).log2()),
        ("each host takes a tenth of the bandwidth", |case, _| 1.0 + 0.1 * f64::from(case.nodes - 2)),
        ("a switch of four hosts, its uplink shared by two", |case, _| if case.nodes > 4 { 1.3 } else { 1.0 }),
        ("bandwidth needs large messages", |case, bytes| 1.0 + f64::from(case.ranks()) * 1e6 / (bytes + 1e6)),
        ("a tree for small messages", |case, bytes| {
            let hosts = f64::from(case.nodes);
            1.0 - (1.0 - hosts.log2() / (hosts - 1.0)) * 1e6 / (bytes + 1e6)
        }),
        ("hierarchical", |case, _| {
            let share = |members: u32| f64::from(members - 1) / f64::from(members);
            share(case.nodes) / share(case.ranks())
        }),
    ];
    for (name, law) in laws {
        let (mut inside, mut all, mut widths) = (0, 0, Vec::new());
        for between in [NETWORKS[1], NETWORKS[2], NETWORKS[3]] {
            let cluster = AllReduceCluster { backend: BackendName::Nccl, between, jitter: 0.02, drift: 0.005, law };
            let truths = [("4n4g", "8n4g"), ("2n4g", "4n4g")].map(|(of, next)| (of, next, cluster.truth(next)));
            for seed in 1..=10 {
                let sweep = cluster.sweep(&MEASURED, seed);
                for (of, next, truth) in truths {
                    // The predicted case was not measured.
                    if MEASURED.contains(&next) {
                        sweep.remove(next);
                    }
                    let result = Folder::new();
                    cluster.write_bandwidth(&result, &[of], seed);
                    let band = predict(&evidence(&sweep, Some(&result)), case(next)).expect("the level is there").step;
                    inside += u32::from((band.low..=band.high).contains(&truth));
                    all += 1;
                    widths.push((band.high - band.low) / band.mid);
                }
            }
        }
        let [width, widest] = [median(&widths).expect("some"), widths.iter().copied().fold(0.0, f64::max)];
        println!("{name}: {inside} of {all}, {width} wide, {widest} at most");
        assert!(f64::from(inside) >= 0.9 * f64::from(all), "{name}: {inside} of {all}");
        // The band must not be so wide that it contains anything.
        assert!(width < 0.8 && widest < 1.6, "{name}: {width} wide, {widest} at most");
    }
}

#[test]
fn bandwidth_of_one_host_count_asks_for_a_second() {
    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: NETWORKS[1],
        jitter: 0.0,
        drift: 0.0,
        law: AS_THE_MODEL,
    };
    let (sweep, result) = (cluster.sweep(&MEASURED, 1), Folder::new());
    cluster.write_bandwidth(&result, &["1n4g"], 1);
    let warnings = || lines_with(&predicted(&sweep, &["--bandwidth", path(&result)]), "warning: ");
    expect!["warning: --bandwidth does not apply to 8n4g: it has no case of several hosts with 4 ranks each: measure: ringmark bandwidth --cases 2n4g,4n4g --hosts .."].assert_eq(&warnings());
    cluster.write_bandwidth(&result, &["4n4g"], 1);
    expect!["warning: bandwidth between hosts was measured for 4n4g only, which does not narrow the range: measure a second case: ringmark bandwidth --cases 4n4g,2n4g --hosts .."].assert_eq(&warnings());
    cluster.write_bandwidth(&result, &["2n4g"], 1);
    expect![""].assert_eq(&warnings());
}

/// Simulates latency that backward hides now, but not with more hosts: a sweep alone does not show its size.
#[test]
fn high_latency_needs_a_bandwidth_result() {
    for between in [(150e-6, 6e9), (900e-6, 12e9)] {
        let cluster =
            AllReduceCluster { backend: BackendName::Nccl, between, jitter: 0.0, drift: 0.0, law: AS_THE_MODEL };
        let (truth, sweep, result) = (cluster.truth("8n4g"), cluster.sweep(&MEASURED, 1), Folder::new());
        cluster.write_bandwidth(&result, &["2n4g", "4n4g"], 1);
        let of = |result| predict(&evidence(&sweep, result), case("8n4g")).expect("both levels are there");
        let (with, without) = (of(Some(&result)), of(None));
        assert!((with.step.low..=with.step.high).contains(&truth), "{truth} in {with:?}");
        assert!(truth > without.step.high && truth < 1.02 * without.step.high, "{truth} in {without:?}");
    }
}

#[test]
fn limit_is_the_bottleneck_of_the_cluster() {
    let limit = |between, jitter| {
        let cluster = AllReduceCluster { backend: BackendName::Nccl, between, jitter, drift: 0.0, law: AS_THE_MODEL };
        let (sweep, result) = (cluster.sweep(&MEASURED, 3), Folder::new());
        cluster.write_bandwidth(&result, &["2n4g", "4n4g"], 3);
        predict(&evidence(&sweep, Some(&result)), case("8n4g")).expect("both levels are there").limit()
    };
    assert_eq!(limit((20e-6, 1e9), 0.0), Some(Limit::Bandwidth));
    assert_eq!(limit((900e-6, 12e9), 0.0), Some(Limit::Latency));
    assert_eq!(limit((5e-6, 100e9), 0.0), Some(Limit::Compute));
    assert_eq!(limit((5e-6, 100e9), 0.1), Some(Limit::Waiting));

    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: (5e-6, 100e9),
        jitter: 0.0,
        drift: 0.0,
        law: AS_THE_MODEL,
    };
    for (input, limited_by) in [(0.0, Limit::Compute), (0.01, Limit::Input)] {
        let starved = Starved(cluster, input);
        let predicted =
            predict(&evidence(&starved.sweep(&MEASURED, 3), None), case("8n4g")).expect("both levels are there");
        assert_eq!(predicted.limit(), Some(limited_by), "{:?}", predicted.losses);
        let of = |limit| predicted.losses.iter().find(|lost| lost.0 == limit).expect("a part").1;
        // The input wait of the recorded hosts is in no other part of the loss.
        assert!((of(Limit::Input) - input).abs() < 1e-9 && of(Limit::Rest).abs() < 1e-9, "{:?}", predicted.losses);
    }
}

#[test]
fn fit_recovers_latency_and_bandwidth() {
    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: (20e-6, 3e9),
        jitter: 0.0,
        drift: 0.0,
        law: AS_THE_MODEL,
    };
    let (sweep, result) = (cluster.sweep(&MEASURED, 1), Folder::new());
    cluster.write_bandwidth(&result, &["1n4g", "2n4g", "4n4g"], 1);
    let stdout = succeeds(&mut command(Some(&sweep.path()), &["--bandwidth", path(&result), "--json"]));
    let group = &serde_json::from_str::<Value>(&stdout).expect("JSON")["groups"][0];
    for (level, latency, bandwidth) in [("inside_host", 4e-6, 60.0), ("between_hosts", 20e-6, 3.0)] {
        let of = |field: &str| group["levels"][level][field].as_f64().expect("a number");
        assert!((of("latency_seconds") / latency - 1.0).abs() < 0.05, "{group}");
        assert!((of("bandwidth_gb_per_second") / bandwidth - 1.0).abs() < 0.05, "{group}");
        assert!((0.02..0.06).contains(&of("relative_residual")), "{group}");
    }
    let cases: Vec<&str> =
        group["predictions"].as_array().expect("a list").iter().flat_map(|one| one["case"].as_str()).collect();
    assert_eq!(cases, ["8n4g", "16n4g", "32n4g"], "twice, four and eight times the largest");
    for prediction in group["predictions"].as_array().expect("a list") {
        let of = |band: &str| ["low", "mid", "high"].map(|end| prediction[band][end].as_f64().expect("a number"));
        let ([slow, _, fast], [least, _, most]) = (of("units_per_second"), of("efficiency"));
        assert!(slow < fast && least < most && most <= 1.0, "{prediction}");
        let lost: f64 =
            prediction["lost_seconds"].as_array().expect("a list").iter().flat_map(|one| one["seconds"].as_f64()).sum();
        let base = evidence(&sweep, None).case(case("1n1g")).expect("measured").step();
        assert!((of("seconds_per_iteration")[1] - base - lost).abs() < 1e-9, "the losses add up: {prediction}");
    }
}

fn path(folder: &Folder) -> &'static str {
    // Leaked by a test, which ends soon.
    Box::leak(folder.path().to_str().expect("a plain name").to_owned().into_boxed_str())
}

#[test]
fn search_finds_the_first_case_below_the_efficiency() {
    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: (150e-6, 6e9),
        jitter: 0.0,
        drift: 0.0,
        law: AS_THE_MODEL,
    };
    let evidence = evidence(&cluster.sweep(&MEASURED, 1), None);
    let middle = |case: Case| predict(&evidence, case).expect("both levels are there").efficiency.mid;
    let measured = middle(case("4n4g"));
    for value in [measured - 0.02, measured - 0.05, measured - 0.2] {
        let under = search::under(&evidence, value).expect("both levels are there");
        let found = under.mid.expect("latency grows for ever");
        assert!(found.nodes > 4 && middle(found) < value, "{under:?}");
        assert!(middle(Case { nodes: found.nodes - 1, ..found }) >= value, "the one before is not: {under:?}");
        assert!(under.earliest.expect("before").nodes <= found.nodes);
        assert!(under.latest.is_none_or(|latest| latest.nodes >= found.nodes), "{under:?}");
    }
    // Measured cases come first: crowding alone costs 6 %.
    assert_eq!(search::under(&evidence, 0.97).expect("measured").mid, Some(case("1n4g")));
    let never = search::under(&evidence, 0.001).expect("both levels are there");
    assert_eq!((never.mid, never.last), (None, case("1024n4g")));
}

/// Writes logs like DLPerf's, with the `speeds` of every run by case.
fn dlperf_logs(row: &ringmark::read::analyze::published::scaling::Published) -> Folder {
    let folder = Folder::new();
    for published in row.cases {
        let medians = [published.median.0];
        let speeds = if published.runs.is_empty() { &medians[..] } else { published.runs };
        for (run, speed) in speeds.iter().enumerate() {
            let name = format!("{}/rn50_b{}_{}_{}.log", published.case, row.batch_size, row.dtype, run + 1);
            folder.log(&name, &[*speed; 120]);
        }
    }
    folder
}

/// Checks the figure in the README. FP32: every run that DLPerf published; FP16: its medians.
#[test]
fn backtest_predicts_dlperf_4n8g() {
    for (row, error) in DLPERF.iter().zip([-0.0087, -0.0027]) {
        let logs = dlperf_logs(row);
        let of_logs = search::backtest(&evidence(&logs, None)).expect("2n8g is there");
        let of_row = search::backtest(&Evidence::from_published(row)).expect("2n8g is there");
        for backtest in [&of_logs, &of_row] {
            assert_eq!((backtest.predicted.case, backtest.predicted.reference), (case("4n8g"), Some(case("2n8g"))));
            assert_eq!(backtest.from.len(), 5, "the case itself is not among them: {:?}", backtest.from);
            assert!((backtest.error() - error).abs() < 1e-4, "{}", backtest.error());
            assert!(backtest.is_inside(), "{backtest:?}");
        }
        let Prediction { step, .. } = of_row.predicted;
        assert!((step.high - step.low) / step.mid < 0.11, "{step:?}");

        // The check can fail: four nodes with a fifth lower performance are outside.
        let mut slower = Evidence::from_published(row);
        slower.cases.last_mut().expect("4n8g").runs.iter_mut().for_each(|run| run.step *= 1.25);
        assert!(!search::backtest(&slower).expect("2n8g is there").is_inside());
    }
    // Medians alone, one run per case.
    let mut medians = Evidence::from_published(&DLPERF[0]);
    for (case, published) in medians.cases.iter_mut().zip(DLPERF[0].cases) {
        case.runs.truncate(1);
        case.runs[0].step = 128.0 * f64::from(published.case.ranks()) / published.median.0;
    }
    let backtest = search::backtest(&medians).expect("2n8g is there");
    assert!((backtest.error() + 0.0135).abs() < 1e-4 && backtest.is_inside(), "{}", backtest.error());
    let step = backtest.predicted.step;
    // By hand: 400.62 ms on one node, 21.18 ms more on two, times 31/30 or 31/15.
    let one = 1024.0 / 2556.03;
    let added = 2048.0 / 4855.34 - one;
    assert!(
        (step.low - (one + added * 31.0 / 30.0)).abs() < 1e-9 && (step.high - (one + added * 31.0 / 15.0)).abs() < 1e-9
    );

    let stdout = succeeds(&mut command(None, &["--backtest"]));
    expect![[r#"
        images/s; the middle of the range is off by -0.9 %; the measured value is
        images/s; the middle of the range is off by -0.3 %; the measured value is"#]]
    .assert_eq(&lines_with(&stdout, "the middle of the range"));
    expect![[r#"
        warning: DLPerf V100 FP16 b256: this row measures the input pipeline on the
        warning: DLPerf V100 FP16 b256: only the median of 2n8g: the range does not"#]]
    .assert_eq(&lines_with(&stdout, "warning: "));
    stdout.lines().for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
}

#[test]
fn backtest_excludes_the_largest_case() {
    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: (20e-6, 3e9),
        jitter: 0.02,
        drift: 0.005,
        law: AS_THE_MODEL,
    };
    let (sweep, result) = (cluster.sweep(&MEASURED, 2), Folder::new());
    cluster.write_bandwidth(&result, &["2n4g", "4n4g"], 2);
    let stdout = predicted(&sweep, &["--bandwidth", path(&result), "--backtest"]);
    expect!["backtest: 4n4g predicted from 1n1g, 1n4g, 2n4g; measured: 545.8 images/s; the middle of the range is off by -1.4 %; the measured value is inside the range"].assert_eq(&lines_with(&stdout, "backtest: "));

    let stderr = fails(&mut command(Some(&cluster.sweep(&["1n1g", "1n4g", "2n4g"], 2).path()), &["--backtest"]));
    expect![[r#"
        error: 2n4g cannot be predicted: a backtest needs measured cases from which 2n4g can be predicted; without 2n4g, no multi-host case was measured, so the network between hosts is unknown; measure: ringmark sweep --cases 4n4g --batch-size 4 --dtype fp32 --hosts HOST1:4,HOST2:4,HOST3:4,HOST4:4
    "#]].assert_eq(&stderr);
}

#[test]
fn unmeasured_levels_are_not_predicted() {
    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: (20e-6, 3e9),
        jitter: 0.0,
        drift: 0.0,
        law: AS_THE_MODEL,
    };
    let one_host = evidence(&cluster.sweep(&["1n1g", "1n4g"], 1), None);
    let several = evidence(&cluster.sweep(&["1n1g", "1n4g", "1n8g", "2n4g"], 1), None);
    let refused = |evidence: &Evidence, name: &str| {
        let refusal = predict(evidence, case(name)).expect_err("never measured");
        (refusal.why, refusal.command)
    };
    for (evidence, name, why, command) in [
        (
            &one_host,
            "2n4g",
            "no multi-host case was measured, so the network between hosts is unknown",
            "--cases 2n4g --batch-size 4 --dtype fp32 --hosts HOST1:4,HOST2:4",
        ),
        (
            &one_host,
            "1n8g",
            "no host was measured with more than 4 ranks, and the contention of 8 ranks",
            "--cases 1n8g --batch-size 4",
        ),
        (&one_host, "1n2g", "no host was measured with 2 ranks, so their contention", "--cases 1n2g --batch-size 4"),
        (
            &several,
            "4n8g",
            "several hosts were measured (2n4g), but none with 8 ranks each",
            "--cases 2n8g --batch-size 4",
        ),
        (
            &several,
            "4n16g",
            "no host was measured with more than 8 ranks, and the contention of 16 ranks",
            "--cases 1n16g,2n16g --batch-size 4",
        ),
    ] {
        let (output_text, measure) = refused(evidence, name);
        assert!(output_text.starts_with(why), "{name}: {output_text}");
        assert!(measure.starts_with("ringmark sweep ") && measure.contains(command), "{name}: {measure}");
    }
    let point = Point { model: Model::Resnet18, ..one_host.point };
    let other = Evidence { point, ..one_host.clone() };
    let (_, measure) = refused(&other, "1n8g");
    expect!["ringmark sweep --cases 1n8g --model resnet18 --batch-size 4 --dtype fp32"].assert_eq(&measure);
    assert!(search::under(&one_host, 0.5).is_err(), "the search does not cross it either");

    let sweep = cluster.sweep(&["1n1g", "1n4g"], 1);
    let (status, stdout, stderr) = run(&mut command(Some(&sweep.path()), &["--cases", "1n4g,2n4g,8n4g"]));
    assert_eq!(status, Some(1));
    assert!(stdout.contains(" measured\n"), "what can be said is said: {stdout}");
    expect![[r#"
        error: 2n4g, 8n4g cannot be predicted: no multi-host case was measured, so the network between hosts is unknown; cases of one machine can only be measured; on two hosts, measure: ringmark sweep --cases 2n4g --batch-size 4 --dtype fp32 --hosts HOST1:4,HOST2:4
    "#]].assert_eq(&stderr);

    // The explanation is of most use without an answer.
    let (status, stdout, _) = run(&mut command(Some(&sweep.path()), &["--cases", "2n4g", "--explain"]));
    assert_eq!(status, Some(1));
    expect![[r#"
        ResNet50-v1b, fp32, batch size 4 per rank
        cpu: Processor of a laptop, 1 thread per rank
        64 pixels, nhwc, overlap on, fp32 on the wire
        20 measured + 2 warm-up iterations

        measured: 1n1g (5 runs), 1n4g (5 runs); efficiency over 1n1g
        a multi-host case is predicted from a measured multi-host case with as many
          ranks per host; contention between ranks of one host is measured, not
          predicted
    "#]]
    .assert_eq(&stdout);
}

#[test]
fn logs_without_a_single_host_case_are_rejected() {
    let folder = Folder::new();
    folder.log("2n8g/rn50_b128_fp32_1.log", &[4855.34; 120]);
    let (status, stdout, stderr) = run(&mut command(Some(&folder.path()), &["--cases", "4n8g"]));
    assert_eq!(status, Some(1));
    expect![[r#"
        not used: 1n1g: no run of 1n1g counts: speedup and efficiency are relative to 2n8g: sweep 1n1g as well
        error: 4n8g cannot be predicted: 1n8g was not measured, and without records the cost of several hosts is unknown; measure: ringmark sweep --cases 1n8g --batch-size 128 --dtype fp32
    "#]].assert_eq(&stderr);
    assert_eq!(stdout, "");
}

#[test]
fn prediction_repeats_warnings_and_shows_the_straggler_cost() {
    let folder = Folder::new();
    for run in 1..=3 {
        folder.run(&long_record("1n1g", run, 0.5, |_| ()));
        folder.run(&long_record("1n2g", run, 0.5, |_| ()));
        folder.run(&long_record("2n2g", run, 0.625, |iteration| {
            iteration.before_allreduce[3].0 *= 2.0;
            // Three ranks wait for the fourth.
            for rank in 0..3 {
                iteration.phases[Phase::ExposedAllreduce][rank].0 += 0.1;
            }
        }));
    }
    let stdout = predicted(&folder, &["--cases", "2n2g,4n2g"]);
    expect![[r#"
        Without the measured wait for rank 3 on host a:
        warning: 2n2g, 3 of 3 runs, for example run 1: rank 3 on host a is a straggler: in 100.0 % of the iterations, 2.00 times the others' compute time; the others waited 100 ms for it in each: check for other processes, a CPU quota, heat or a low clock, or exclude it"#]].assert_eq(&lines_with(&stdout, "rank 3 on host a"));
    let (_, stdout, _) = run(&mut command(Some(&folder.path()), &["--cases", "2n2g,4n2g", "--json"]));
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    let group = &json["groups"][0];
    assert_eq!((&json["kind"], &group["straggler"]), (&"ringmark-prediction".into(), &"rank 3 on host a".into()));
    let speed = |predictions: &Value, index: usize| -> (String, f64) {
        let prediction = &predictions[index];
        let case = prediction["case"].as_str().expect("a case").to_owned();
        (case, prediction["units_per_second"]["mid"].as_f64().expect("a number"))
    };
    let (with, without) = (speed(&group["predictions"], 1), speed(&group["predictions_without_straggler"], 0));
    assert_eq!((with.0.as_str(), without.0.as_str()), ("4n2g", "4n2g"), "what was measured is not foretold");
    assert!(without.1 > 1.05 * with.1, "{without:?} {with:?}");
}

#[test]
fn far_cases_and_single_runs_have_warnings() {
    let logs = dlperf_logs(&DLPERF[1]);
    let stdout = predicted(&logs, &["--cases", "32n8g,64n8g"]);
    expect![[r#"
        warning: 64n8g: more than 8 times the 32 measured ranks: effects of larger networks, such as links between switches, are not included
        warning: one run of 4n8g: the range does not include the spread of runs"#]].assert_eq(&lines_with(&stdout, "warning: "));
}

#[test]
fn bandwidth_result_must_match_the_runs() {
    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: (20e-6, 3e9),
        jitter: 0.0,
        drift: 0.0,
        law: AS_THE_MODEL,
    };
    let sweep = cluster.sweep(&["1n1g", "2n4g"], 1);
    let changed = |change: &dyn Fn(&mut BandwidthRecord)| {
        let mut made = cluster.bandwidth("2n4g", 0.0, &mut Random(1));
        change(&mut made);
        let folder = Folder::new();
        let mut bytes = Vec::new();
        made.write(&mut bytes).expect("an in-memory write succeeds");
        folder.write("2n4g/bandwidth.json", bytes);
        run(&mut command(Some(&sweep.path()), &["--bandwidth", path(&folder)]))
    };
    assert_eq!(changed(&|_| {}).0, Some(0));
    let on_gpus = |made: &mut BandwidthRecord| made.ranks.iter_mut().for_each(|rank| rank.device = DeviceKind::Cuda);
    let wrong = |made: &mut BandwidthRecord| made.results[3].in_place.as_mut().expect("measured").wrong = Some(5);
    let changes: [&dyn Fn(&mut BandwidthRecord); 4] = [
        &on_gpus,
        &|made| made.config.exchange.wire = Wire::Fp16,
        &|made| made.config.optimizer = OptimizerChoice::Sgd,
        &wrong,
    ];
    let errors = changes.map(|change| {
        let (status, _, stderr) = changed(change);
        assert_eq!(status, Some(2), "{stderr}");
        stderr
    });
    expect![[r#"
        error: the bandwidth of 2n4g does not apply to rn50: it was measured on cuda, but the runs used cpu: use the same device
        error: the bandwidth of 2n4g does not apply to rn50: it sent fp16, but the runs sent fp32: measure with --wire fp32
        error: the bandwidth of 2n4g does not apply to rn50: its times include the weight update: measure without --optimizer
        error: DIR/first contains no valid <case>/bandwidth.json: run ringmark bandwidth
          2n4g/bandwidth.json: 5 elements are wrong: fix that first
    "#]].assert_eq(&without_folder(&errors.concat()));
    // Times that do not fit a line cause a warning.
    let (_, stdout, _) = changed(&|made| {
        for (index, result) in made.results.iter_mut().enumerate().filter(|(index, _)| index % 2 == 0) {
            let timing = result.in_place.as_mut().expect("measured");
            timing.seconds.iter_mut().flatten().for_each(|time| time.0 *= 1.0 + index as f64);
        }
    });
    expect!["warning: latency and bandwidth between hosts fit the measured times with a residual of 65 %: the middle of the range is unreliable"].assert_eq(&lines_with(&stdout.replace("\n  ", " "), "residual"));
}

#[test]
fn usage_errors_exit_with_2() {
    let cluster = AllReduceCluster {
        backend: BackendName::Nccl,
        between: (20e-6, 3e9),
        jitter: 0.0,
        drift: 0.0,
        law: AS_THE_MODEL,
    };
    let (sweep, mpi, empty) = (cluster.sweep(&["1n1g", "2n4g"], 1), Folder::new(), Folder::new());
    AllReduceCluster { backend: BackendName::Mpi, ..cluster }.write_bandwidth(&mpi, &["2n4g"], 1);
    let refuse = |command: &str| {
        let command = command.replace("SWEEP", path(&sweep)).replace("EMPTY", path(&empty)).replace("MPI", path(&mpi));
        refused(&mut ringmark(&command), 2)
    };
    check_refusals(
        &expect![[r#"
            predict
                error: the following required arguments were not provided:
                <SWEEP>
                tip: pass the --out of a sweep of several cases: `ringmark predict results/rack7 --cases 16n8g`
            predict SWEEP --efficiency-below 80
                error: invalid value '80' for '--efficiency-below <PERCENT>': add the percent sign: 80%
            predict SWEEP --efficiency-below 100%
                error: invalid value '100%' for '--efficiency-below <PERCENT>': choose 1% to 99%, such as 80%
            predict SWEEP --bandwidth EMPTY
                error: DIR/first contains no valid <case>/bandwidth.json: run ringmark bandwidth
            predict SWEEP --bandwidth MPI
                error: the bandwidth of 2n4g does not apply to rn50: it was measured with mpi, but the runs used nccl: measure both with the same --backend
            predict /nowhere
                error: folder not found: /nowhere: pass the folder that a sweep wrote
        "#]],
        refuse,
    );
}

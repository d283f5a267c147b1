use expect_test::{Expect, expect};

use super::*;
use crate::benchmark::data_input::{DataInputUse, RankDataInput};
use crate::benchmark::exchange::BackendChoice;
use crate::benchmark::strategy::{LostRank, StrategyUse};
use crate::benchmark::train::config::TrainConfig;
use crate::benchmark::train::fingerprints::{FingerprintedValues, Fingerprints, RankDifference};
use crate::benchmark::train::interruption::Resumption;
use crate::benchmark::train::iteration::Iteration;
use crate::benchmark::train::record::{RunEnd, RunHeader};
use crate::benchmark::train::work_load::WorkDivision;
use crate::benchmark::warning::{Warning, WarningKind};
use crate::benchmark::{RunLabel, RunProfile};
use crate::dimension::{Augmentation, BackendName, Bytes, DeviceKind, Model, Phase, Phases, Seconds};
use crate::host::environment::{Environment, InitialLoad, RankPlace};
use crate::host::resource_use::{GpuUse, HostUse, RankUse};
use crate::validity::iterations::{trend, wall_clock};

const ITERATIONS: usize = 60;

/// Returns a record with the given number of ranks on each host: one thread per rank, 60 iterations of 100 ms with
/// 50 ms of own compute time, on idle hosts with four cores.
fn record(hosts: &[(&str, u32)]) -> RunRecord {
    let places = hosts.iter().flat_map(|(host, ranks)| (0..*ranks).map(move |local| (*host, local)));
    let ranks: Vec<RankPlace> =
        places.enumerate().map(|(rank, (host, local_rank))| RankPlace::on_cpu(rank as u32, local_rank, host)).collect();
    let each = |time: f64| vec![Seconds(time); ranks.len()];
    // Adds a little noise, reproducible by iteration number.
    let iteration = |iteration: usize| {
        let noise = 1.0 + 0.002 * ((iteration * 7 % 10) as f64 - 4.5);
        Iteration {
            iteration: iteration as u32,
            step: each(0.1 * noise),
            phases: Phases::from_fn(|phase| match phase {
                Phase::Input => each(0.0),
                Phase::Forward => each(0.03 * noise),
                Phase::Backward => each(0.05 * noise),
                Phase::ExposedAllreduce | Phase::Optimizer => each(0.01),
            }),
            before_allreduce: each(0.05 * noise),
            loss: vec![6.9; ranks.len()],
            loss_scale: 1.0,
            skipped: false,
        }
    };
    let elapsed = 0.1 * ITERATIONS as f64;
    let host_use = |(host, ranks): &(&str, u32)| HostUse {
        host: (*host).to_owned(),
        machine: format!("kernel of {host}"),
        cores: 4,
        cores_of_ranks: 4,
        elapsed: Seconds(elapsed),
        busy: Seconds(elapsed * (f64::from(*ranks) + 0.05)),
        ..HostUse::default()
    };
    let iterations: Vec<Iteration> = (1..=ITERATIONS).map(iteration).collect();
    let wall = Seconds(iterations.iter().map(|iteration| iteration.step[0].0).sum());
    RunRecord {
        end: Some(RunEnd {
            iterations: ITERATIONS as u32,
            wall,
            parameter_checksums: vec!["00ff".to_owned(); ranks.len()],
            peak_memory: vec![Bytes(1); ranks.len()],
            host_use: hosts.iter().map(host_use).collect(),
            rank_use: vec![RankUse { core_time: Seconds(elapsed), ..RankUse::default() }; ranks.len()],
            ..RunEnd::default()
        }),
        header: RunHeader {
            backend: BackendName::Mpi,
            buckets: vec![Bytes(8)],
            ..RunHeader::new(
                RunLabel { case: "1n2g".parse().expect("a case"), run: 1, profile: RunProfile::Full },
                Seconds(0.0),
                TrainConfig::default(),
                Environment::default(),
                ranks,
            )
        },
        iterations,
    }
}

const TWO: [(&str, u32); 2] = [("c", 2), ("d", 2)];

/// Multiplies the own compute time of `ranks` by `factor` in the selected iterations, and adjusts the waits of the
/// others.
fn slow_down(record: &mut RunRecord, ranks: &[usize], factor: f64, is_selected: impl Fn(u32) -> bool) {
    for iteration in record.iterations.iter_mut().filter(|iteration| is_selected(iteration.iteration)) {
        for rank in ranks {
            iteration.before_allreduce[*rank].0 *= factor;
        }
        for (rank, exposed) in iteration.phases[Phase::ExposedAllreduce].iter_mut().enumerate() {
            exposed.0 += if ranks.contains(&rank) { 0.0 } else { 0.05 * (factor - 1.0) };
        }
    }
}

fn end(record: &mut RunRecord) -> &mut RunEnd {
    record.end.as_mut().expect("an end")
}

/// Formats the warnings of a run, one per line.
fn shown(record: &RunRecord) -> String {
    let line = |warning: Warning| format!("{:?}, {}: {}", warning.kind, warning.about, warning.text);
    warnings(record, 10).into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check<const COUNT: usize>(records: [&RunRecord; COUNT], expected: &Expect) {
    expected.assert_eq(&records.map(shown).join("\n"));
}

#[test]
fn load_before_counts_for_runs_too_short_to_measure_it() {
    let mut record = record(&[("a", 2)]);
    record.header.environment.load_before = Some(InitialLoad { hosts: "a".to_owned(), load: 5.0, cores: 4 });
    assert!(!foreign_load(&record).expect("measured").is_before);
    assert_eq!(warnings(&record, 10), []);
    end(&mut record).host_use[0].elapsed = Seconds(0.2);
    let before = ForeignLoad { host: "a".to_owned(), share: 1.0, is_before: true };
    assert_eq!(foreign_load(&record), Some(before));
    check(
        [&record],
        &expect![
            "OtherLoad, hosts a: other processes ran on a before the first run (load 5.0 on 4 cores), and this run is too short to measure them: stop them, then repeat it"
        ],
    );
}

#[test]
fn ranks_with_other_values_are_named() {
    let differing = |ranks: &[u32]| {
        let mut record = record(&[("a", 2), ("b", 2), ("c", 2)]);
        let difference =
            RankDifference { values: FingerprintedValues::Gradients, iteration: 12, ranks: ranks.to_vec() };
        end(&mut record).fingerprints = Some(Fingerprints { difference: Some(difference), ..Fingerprints::default() });
        record
    };
    check(
        [&differing(&[3]), &differing(&[0, 4, 5]), &differing(&[0, 1, 2, 3, 4, 5])],
        &expect![[r#"
            Corruption, rank 3 on host b: rank 3 on host b differs from 5 other ranks in gradients in iteration 12: test the memory (ECC counters, a memory test), and replace the GPU or module
            Corruption, rank 0 on host a, host c: rank 0 on host a, host c differ from 3 other ranks in gradients in iteration 12: test the memory (ECC counters, a memory test), and replace the GPU or module
            Corruption, the run: the ranks differ in gradients in iteration 12, and no value has a majority: repeat the run with three or more ranks, or on each host alone"#]],
    );
}

#[test]
fn quiet_run_has_no_warnings() {
    for hosts in [&TWO[..], &[("a", 1)], &[("a", 4)]] {
        assert_eq!(warnings(&record(hosts), 10), []);
    }
}

#[test]
fn pause_of_a_short_run_is_not_a_wrong_clock() {
    let mut short = record(&TWO);
    let pause = |record: &mut RunRecord, steps: usize, pause: f64| {
        record.iterations.truncate(steps);
        let summed: f64 = record.iterations.iter().map(|iteration| iteration.step[0].0).sum();
        end(record).wall = Seconds(summed + pause);
        wall_clock(&record.iterations, record.end.as_ref().expect("an end")).is_some()
    };
    assert_eq!([0.1, 0.2].map(|time| pause(&mut short, 60, time)), [false, true]);
    assert_eq!([0.015, 0.025].map(|time| pause(&mut short, 2, time)), [false, true]);
}

#[test]
fn run_resumed_elsewhere_gets_a_warning() {
    let mut record = record(&TWO);
    let part = |changes: &[&str]| Resumption {
        behind: 40,
        started: Seconds(100.0),
        wall_before: Seconds(4.0),
        changes: changes.iter().copied().map(str::to_owned).collect(),
        interruption: None,
    };
    record.header.resumptions = vec![part(&[])];
    assert_eq!(warnings(&record, 10), []);
    record.header.resumptions.push(part(&["device 0 of c: old then, new now", "MPI: 4.1 then, 5.0 now"]));
    check(
        [&record],
        &expect![
            "Resumed, the run: the run was resumed after iteration 40 in a different environment (device 0 of c: old then, new now; MPI: 4.1 then, 5.0 now), so its figures mix both: repeat the run"
        ],
    );
}

#[test]
fn old_record_is_judged_by_available_values() {
    let mut old = record(&TWO);
    slow_down(&mut old, &[3], 2.0, |_| true);
    end(&mut old).host_use.clear();
    end(&mut old).rank_use.clear();
    old.iterations.iter_mut().for_each(|iteration| iteration.before_allreduce.clear());
    assert_eq!(warnings(&old, 10), []);
    end(&mut old).wall = Seconds(6.5);
    check(
        [&old],
        &expect![
            "WallClock, the run: rank 0's step times add up to 6.000 s, but the wall clock shows 6.500 s: one of the two clocks is wrong: do not use this result run"
        ],
    );
    // The run was interrupted, or has no iterations after warm-up.
    old.end = None;
    assert_eq!(warnings(&old, 10), []);
    assert_eq!(warnings(&record(&TWO), ITERATIONS), []);
    assert_eq!(warnings(&record(&TWO), ITERATIONS + 1), []);
}

#[test]
fn slow_ranks_and_hosts_are_named_without_waiting_ranks() {
    let mut slow = record(&TWO);
    slow_down(&mut slow, &[3], 1.93, |_| true);
    let mut host = record(&[("c", 4), ("d", 2)]);
    slow_down(&mut host, &[4, 5], 1.5, |_| true);
    let mut alone = host.clone();
    alone.header.config.exchange.backend = BackendChoice::None;
    let mut once = record(&TWO);
    slow_down(&mut once, &[1], 10.0, |iteration| iteration == 57);
    // Ranks that were slow in different iterations are reported one by one, also on the only host of the job.
    let mut apart = record(&[("c", 2)]);
    slow_down(&mut apart, &[0], 10.0, |iteration| iteration == 57);
    slow_down(&mut apart, &[1], 10.0, |iteration| iteration == 60);
    let mut at_times = record(&TWO);
    slow_down(&mut at_times, &[1], 2.0, |iteration| [20, 21, 22, 31, 40].contains(&iteration));
    // If the host has other load, the warning blames that load, unless the rank is always slow.
    let (mut busy_at_times, mut always) = (at_times.clone(), record(&TWO));
    slow_down(&mut always, &[1], 2.0, |_| true);
    for busy in [&mut busy_at_times, &mut always] {
        end(busy).host_use[0].busy = Seconds(6.0 * 2.9);
    }
    check(
        [&slow, &host, &alone, &once, &apart, &at_times, &busy_at_times, &always],
        &expect![[r#"
            Straggler, rank 3 on host d: rank 3 on host d is a straggler: in 100.0 % of the iterations, 1.93 times the others' compute time; the others waited 46.5 ms for it in each: check for other processes, a CPU quota, heat or a low clock, or exclude it
            Straggler, host d: host d is a straggler (ranks 4, 5): in 100.0 % of the iterations, 1.50 times the others' compute time; the others waited 25.0 ms for it in each: check for other processes, a CPU quota, heat or a low clock, or exclude it
            Straggler, host d: host d is a straggler (ranks 4, 5): in 100.0 % of the iterations, 1.50 times the others' compute time: check for other processes, a CPU quota, heat or a low clock, or exclude it
            SlowOnce, rank 1 on host c: rank 1 on host c was slow once: in iteration 57, 10.00 times the others' compute time; the others waited 450 ms for it: repeat the run; if this does not recur, the rank is not at fault
            SlowOnce, rank 0 on host c: rank 0 on host c was slow once: in iteration 57, 10.00 times the others' compute time; the others waited 450 ms for it: repeat the run; if this does not recur, the rank is not at fault
            SlowOnce, rank 1 on host c: rank 1 on host c was slow once: in iteration 60, 10.00 times the others' compute time; the others waited 450 ms for it: repeat the run; if this does not recur, the rank is not at fault
            SlowAtTimes, rank 1 on host c: rank 1 on host c is slow at times: in 10.0 % of the iterations (20-22, 31, 40), 2.00 times the others' compute time; the others waited 50.0 ms for it in each: check for other processes that run intermittently
            OtherLoad, host c: other processes used 22.5 % of host c's core time (0.9 of 4 cores): stop them, or repeat the run later
            Straggler, rank 1 on host c: rank 1 on host c is a straggler: in 100.0 % of the iterations, 2.00 times the others' compute time; the others waited 50.0 ms for it in each: check for other processes, a CPU quota, heat or a low clock, or exclude it
            OtherLoad, host c: other processes used 22.5 % of host c's core time (0.9 of 4 cores): stop them, or repeat the run later"#]],
    );
    let mut often = record(&TWO);
    slow_down(&mut often, &[1], 2.0, |iteration| iteration % 5 < 3);
    // The others need this time for the exchange anyway; CUDA graphs do not measure it.
    let with_exchange = |time: Seconds| {
        let mut record = slow.clone();
        let all = record.iterations.iter_mut().flat_map(|it| it.phases[Phase::ExposedAllreduce].iter_mut());
        all.for_each(|exposed| *exposed = time);
        record
    };
    assert_eq!(warnings(&with_exchange(Seconds(0.04)), 10), []);
    check(
        [&often, &with_exchange(Seconds(0.0))],
        &expect![[r#"
            SlowAtTimes, rank 1 on host c: rank 1 on host c is often slow: in 60.0 % of the iterations (11-12, 15-17, 20-22, 25-27, 30-32, ...), 2.00 times the others' compute time; the others waited 50.0 ms for it in each: check for other processes that run intermittently
            Straggler, rank 3 on host d: rank 3 on host d is a straggler: in 100.0 % of the iterations, 1.93 times the others' compute time: check for other processes, a CPU quota, heat or a low clock, or exclude it"#]],
    );
    // During warm-up any rank may be late.
    let mut early = record(&TWO);
    slow_down(&mut early, &[1], 10.0, |iteration| iteration <= 10);
    assert_eq!(warnings(&early, 10), []);
}

/// A slow disk is not a compute problem, and ranks that all wait are not stragglers.
#[test]
fn waiting_for_images_gets_a_warning() {
    let wait = |record: &mut RunRecord, ranks: &[usize], times: f64| {
        slow_down(record, ranks, 1.0 + times, |_| true);
        let all =
            record.iterations.iter_mut().flat_map(|iteration| iteration.phases[Phase::Input].iter_mut().enumerate());
        all.filter(|(rank, _)| ranks.contains(rank)).for_each(|(_, time)| time.0 += 0.05 * times);
    };
    let mut late = record(&TWO);
    wait(&mut late, &[2, 3], 0.9);
    let found = warnings(&late, 10);
    let [straggler, input] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((straggler.kind, straggler.about.as_str()), (WarningKind::Straggler, "host d"));
    let text = "1.90 times the others' compute time, 45.0 ms of it waiting for images; the others waited 45.0 ms \
                    for it in each: check the disk of its data, or raise --decode-threads, or exclude it";
    assert!(straggler.text.ends_with(text), "{}", straggler.text);
    assert!(input.text.starts_with("the ranks waited for images in 22.5 % of the step (22.5 ms of 100 ms): raise"));
    let mut tokens = late.clone();
    tokens.header.config.model = Model::Gpt2Small;
    assert!(
        shown(&tokens).contains("waited for tokens in") && !shown(&tokens).contains("images"),
        "{}",
        shown(&tokens)
    );
    // The time per image and stage on each rank identifies the slow stage.
    let mut of_stage = |read: [f64; 4], decode: [f64; 4]| {
        let rank = |(read, decode): (f64, f64)| RankDataInput {
            decoder: None,
            threads: 1,
            samples: 1000,
            skipped: 0,
            bytes: Bytes(1000),
            read: Seconds(read),
            decode: Seconds(decode),
            augment: Seconds(1.0),
        };
        let end = late.end.as_mut().expect("an end");
        end.input = Some(DataInputUse {
            what: "a folder of 2 classes".to_owned(),
            items: None,
            augmentation: Augmentation::None,
            ranks: read.into_iter().zip(decode).map(rank).collect(),
            skipped: Vec::new(),
        });
        warnings(&late, 10)[0].text.clone()
    };
    let disk = of_stage([0.1, 0.1, 51.9, 52.1], [4.0, 4.0, 4.5, 4.5]);
    let text = "waiting for images (a thread read one in 52.0 ms, elsewhere in 0.100 ms); the others waited 45.0 ms \
                    for it in each: check the disk of its data, or exclude it";
    assert!(disk.ends_with(text), "{disk}");
    let cores = of_stage([0.1, 0.1, 0.2, 0.2], [4.0, 4.0, 9.0, 9.0]);
    let text = "(a thread decoded one in 10.0 ms, elsewhere in 5.00 ms); the others waited 45.0 ms for it in each: \
                    raise --decode-threads, or stop other processes on its cores, or exclude it";
    assert!(cores.ends_with(text), "{cores}");
    let neither = of_stage([0.1; 4], [4.0, 4.0, 4.3, 4.3]);
    assert!(neither.ends_with("check the disk of its data, or raise --decode-threads, or exclude it"));
    // Without images to read, the warning about a single slow iteration must not mention waiting.
    let mut once = record(&TWO);
    slow_down(&mut once, &[1], 0.98, |_| true);
    slow_down(&mut once, &[1], 10.0, |iteration| iteration == 57);
    let mut all = record(&TWO);
    wait(&mut all, &[0, 1, 2, 3], 0.2);
    check(
        [&once, &all],
        &expect![[r#"
        SlowOnce, rank 1 on host c: rank 1 on host c was slow once: in iteration 57, 9.80 times the others' compute time; the others waited 449 ms for it: repeat the run; if this does not recur, the rank is not at fault
        Input, the run: the ranks waited for images in 10.0 % of the step (10.0 ms of 100 ms): raise --decode-threads, or store smaller images (ringmark pack --resize); --data synthetic measures the step without input"#]],
    );
    let mut little = record(&TWO);
    wait(&mut little, &[0, 1, 2, 3], 0.05);
    assert_eq!(warnings(&little, 10), []);
}

/// Twice the images in twice the time is not slow, and a slow rank with a smaller share delays no other rank.
#[test]
fn uneven_ranks_are_judged_by_time_per_image() {
    let divided = |samples: [u32; 4], slower: &[usize], times: f64| {
        let mut record = record(&TWO);
        let even = samples.iter().sum::<u32>() / 4;
        record.header.config.batch_size = even;
        record.header.work_division =
            Some(WorkDivision { weights: samples.map(f64::from).to_vec(), samples: samples.to_vec() });
        for (rank, samples) in samples.into_iter().enumerate() {
            slow_down(&mut record, &[rank], f64::from(samples) / f64::from(even), |_| true);
        }
        slow_down(&mut record, slower, times, |_| true);
        record
    };
    assert_eq!(warnings(&divided([16, 8, 4, 4], &[], 1.0), 10), []);
    // The rank is half as fast and has half the images.
    assert_eq!(warnings(&divided([10, 10, 10, 5], &[3], 2.0), 10), []);
    let too_slow = divided([10, 10, 10, 5], &[3], 3.0);
    check(
        [&too_slow],
        &expect![
            "Straggler, rank 3 on host d: rank 3 on host d is a straggler: in 100.0 % of the iterations, 3.00 times the others' compute time per image; the others waited 68.8 ms for it in each: check for other processes, a CPU quota, heat or a low clock, or give it less work (--work-load)"
        ],
    );
}

#[test]
fn crowded_hosts_name_no_stragglers() {
    let mut crowded = record(&TWO);
    slow_down(&mut crowded, &[3], 1.93, |_| true);
    end(&mut crowded).host_use[1].cores_of_ranks = 1;
    let mut threads = record(&[("a", 2)]);
    threads.header.ranks.iter_mut().for_each(|place| place.threads = 4);
    // The remaining ranks are still checked, without the crowded host.
    let mut neighbor = record(&[("c", 3), ("d", 3)]);
    slow_down(&mut neighbor, &[0, 3, 4, 5], 1.5, |_| true);
    end(&mut neighbor).host_use[1].cores_of_ranks = 2;
    // Two containers share a machine with four cores: three ranks in each are too many, although each container
    // sees four cores.
    let mut containers = record(&[("c", 3), ("d", 3)]);
    slow_down(&mut containers, &[0], 1.5, |_| true);
    end(&mut containers).host_use.iter_mut().for_each(|host| host.machine = "one".to_owned());
    // GPU ranks do not compute on the cores.
    let mut gpus = record(&TWO);
    slow_down(&mut gpus, &[3], 1.93, |_| true);
    gpus.header.ranks.iter_mut().for_each(|place| place.device = DeviceKind::Cuda);
    end(&mut gpus).host_use[1].cores_of_ranks = 1;
    check(
        [&crowded, &threads, &neighbor, &containers, &gpus],
        &expect![[r#"
        Oversubscribed, host d: the ranks of host d have 2 threads on 1 cores: slow ranks cannot be identified: use fewer ranks
        Oversubscribed, host a: the ranks of host a have 8 threads on 4 cores: slow ranks cannot be identified: use fewer ranks, or --threads 2
        Straggler, rank 0 on host c: rank 0 on host c is a straggler: in 100.0 % of the iterations, 1.50 times the others' compute time; the others waited 25.0 ms for it in each: check for other processes, a CPU quota, heat or a low clock, or exclude it
        Oversubscribed, host d: the ranks of host d have 3 threads on 2 cores: slow ranks cannot be identified: use fewer ranks
        Oversubscribed, hosts c,d: the ranks of hosts c,d on one machine have 6 threads on 4 cores: slow ranks cannot be identified: use fewer ranks
        Straggler, rank 3 on host d: rank 3 on host d is a straggler: in 100.0 % of the iterations, 1.93 times the others' compute time; the others waited 46.5 ms for it in each: check for other processes, a CPU quota, heat or a low clock, or exclude it"#]],
    );
}

/// Checks that the cost is not quadratic: a search through all hosts for every rank would take hours.
#[test]
fn thousands_of_hosts_take_linear_time() {
    let names: Vec<String> = (0..2048).map(|host| format!("node{host}")).collect();
    let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 8)).collect();
    let mut large = record(&hosts);
    end(&mut large).host_use.iter_mut().for_each(|host| (host.cores, host.cores_of_ranks) = (8, 8));
    slow_down(&mut large, &[9], 1.93, |_| true);
    end(&mut large).host_use[7].cores_of_ranks = 4;
    let of_ranks: Vec<usize> = (8192..12288).collect();
    slow_down(&mut large, &of_ranks, 2.0, |iteration| iteration == 57);
    slow_down(&mut large, &[8195], 2.0, |iteration| iteration == 57);
    let found = warnings(&large, 10);
    let about = |kind: WarningKind| -> Vec<&str> {
        found.iter().filter(|warning| warning.kind == kind).map(|warning| warning.about.as_str()).collect()
    };
    assert_eq!(about(WarningKind::Straggler), ["rank 9 on host node1"]);
    assert_eq!(about(WarningKind::Oversubscribed), ["host node7"]);
    assert_eq!(about(WarningKind::SlowOnce).len(), 512);
    let text = "host node1024 was slow once (ranks 8192, 8193, ";
    assert!(about(WarningKind::SlowOnce)[0] == "host node1024", "{:?}", found[1]);
    assert!(found.iter().any(|warning| warning.text.starts_with(text)));
}

#[test]
fn other_host_activity_gets_warnings() {
    let changes: [fn(&mut RunEnd); 8] = [
        |end| end.host_use[1].busy = Seconds(6.0 * 2.9),
        |end| end.host_use[0].steal = Seconds(0.6),
        |end| end.rank_use[2].throttled = Some(Seconds(3.0)),
        |end| end.rank_use[2..].iter_mut().for_each(|used| used.throttled = Some(Seconds(3.0))),
        |end| end.host_use[0].heat_events = Some(12),
        |end| {
            let gpu = GpuUse { slowed_for_heat: Some(Seconds(1.5)), temperature: [40.0, 88.0], ..GpuUse::default() };
            end.rank_use[1].gpu = Some(gpu);
        },
        |end| end.rank_use[1].gpu = Some(GpuUse { reasons: [0x4, 0x64], ..GpuUse::default() }),
        |end| (end.rank_use[3].major_faults, end.host_use[1].swapped_in) = (60, Bytes(4096)),
    ];
    let changed = changes.map(|change| {
        let mut changed = record(&TWO);
        change(end(&mut changed));
        changed
    });
    check(
        changed.each_ref(),
        &expect![[r#"
        OtherLoad, host d: other processes used 22.5 % of host d's core time (0.9 of 4 cores): stop them, or repeat the run later
        Steal, host c: the hypervisor gave 2.5 % of host c's core time to other virtual machines: use an instance with dedicated cores, or repeat the run
        Quota, rank 2 on host d: rank 2 on host d was throttled by the CPU quota of its control group for 3.0 s of core time in 6.0 s: raise or remove the quota (cpu.max, cpu.cfs_quota_us, a container's --cpus)
        Quota, host d: host d was throttled by the CPU quota of its control group for 3.0 s of core time in 6.0 s: raise or remove the quota (cpu.max, cpu.cfs_quota_us, a container's --cpus)
        Heat, host c: the cores of host c were throttled for heat 12 times: check the cooling, or use fewer threads
        Heat, rank 1 on host c: the GPU of rank 1 on host c was throttled for heat or power for 1.5 s of 6.0 s, at 88 degrees: check its cooling and power supply, or exclude it
        Heat, rank 1 on host c: the GPU of rank 1 on host c was throttled for heat or power and still was when the run ended (reasons 0x60), at 0 degrees: check its cooling and power supply, or exclude it
        Memory, rank 3 on host d: rank 3 on host d waited 60 times for memory from disk, and the host swaps: use a smaller --batch-size or fewer ranks, or free memory on the host"#]],
    );
}

#[test]
fn repeated_warnings_merge_into_worst_host() {
    let names: Vec<String> = (1..=64).map(|host| format!("node{host:02}")).collect();
    let hosts: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), 2)).collect();
    let found = |change: fn(&mut HostUse, f64)| {
        let mut changed = record(&hosts);
        for (number, host) in end(&mut changed).host_use.iter_mut().enumerate() {
            change(host, number as f64 / 64.0);
        }
        changed
    };
    let all = [
        found(|host, share| host.busy = Seconds(6.0 * (2.5 + share))),
        found(|host, share| host.steal = Seconds(1.0 + share)),
        found(|host, share| host.heat_events = Some((share * 640.0) as u64)),
        found(|host, _| host.cores_of_ranks = 1),
    ];
    check(
        all.each_ref(),
        &expect![[r#"
        OtherLoad, hosts node[01-64]: other processes used up to 37.1 % of the core time of hosts node[01-64] (node64: 1.5 of 4 cores): stop them, or repeat the run later
        Steal, hosts node[01-64]: the hypervisor gave up to 8.3 % (node64) of the core time of hosts node[01-64] to other virtual machines: use an instance with dedicated cores, or repeat the run
        Heat, hosts node[02-64]: the cores of hosts node[02-64] were throttled for heat up to 630 (node64) times: check the cooling, or use fewer threads
        Oversubscribed, hosts node[01-64]: the ranks of each of the hosts node[01-64] have 2 threads on 1 cores: slow ranks cannot be identified: use fewer ranks"#]],
    );
}

#[test]
fn normal_host_activity_gets_no_warning() {
    type Change = fn(&mut RunEnd);
    let changes: [Change; 7] = [
        // The kernel's counters are the same in all containers on it.
        |end| {
            for host in &mut end.host_use {
                (host.machine, host.busy) = ("one".to_owned(), Seconds(6.0 * 4.1));
            }
        },
        |end| end.host_use[0].steal = Seconds(0.2),
        |end| end.rank_use[2].throttled = Some(Seconds(0.05)),
        |end| end.host_use[0].heat_events = Some(2),
        // The power cap, which large GPUs reach normally, and idleness after the run.
        |end| end.rank_use[1].gpu = Some(GpuUse { reasons: [0x1, 0x5], ..GpuUse::default() }),
        // Programs are loaded from disk once.
        |end| end.rank_use[3].major_faults = 1000,
        |end| end.host_use[0].clock_mhz = Some([5000.0, 3000.0]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut changed = record(&TWO);
        change(end(&mut changed));
        assert_eq!(warnings(&changed, 10), [], "change {number}");
    }
}

#[test]
fn drift_gets_a_warning_and_noise_does_not() {
    let drifting = |total: f64| {
        let mut drifting = record(&TWO);
        for (index, iteration) in drifting.iterations.iter_mut().enumerate() {
            iteration.step.iter_mut().for_each(|step| step.0 *= 1.0 + total * index as f64 / ITERATIONS as f64);
        }
        end(&mut drifting).wall = Seconds(drifting.iterations.iter().map(|iteration| iteration.step[0].0).sum());
        drifting
    };
    let mut hot = drifting(0.2);
    end(&mut hot).host_use[1].clock_mhz = Some([3400.0, 2600.0]);
    check(
        [&drifting(0.2), &hot, &drifting(-0.2)],
        &expect![[r#"
        Drift, the run: the step became 12.1 % longer from the first to the last quarter of the run: check for heat and other load, and run longer to see if it settles
        Drift, the run: the step became 12.1 % longer from the first to the last quarter of the run (the clock of host d fell from 3400 to 2600 MHz): check for heat and other load, and run longer to see if it settles
        Drift, the run: the step became 13.6 % shorter from the first to the last quarter of the run: warm-up was too short, or another process ran at first: raise --warmup, or repeat the run"#]],
    );
    assert_eq!(warnings(&drifting(0.02), 10), []);

    // Normally distributed noise of 5 %, as a sum of twelve uniform values.
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for length in [40, 100] {
        let mut named = 0;
        for _ in 0..1000 {
            let steps: Vec<f64> =
                (0..length).map(|_| 0.1 + 0.005 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0)).collect();
            named += u32::from(trend(&steps).is_some());
        }
        assert!(named <= 2, "{named} of 1000 runs of {length} iterations");
    }
    // A burst in the middle is not a trend.
    let burst: Vec<f64> = (0..100).map(|index| if (30..60).contains(&index) { 0.2 } else { 0.1 }).collect();
    assert_eq!(trend(&burst), None);
    let worked: Vec<f64> =
        (0..100).map(|index| 0.1 + 0.002 * f64::from(index / 25) + 0.0001 * f64::from(index % 5)).collect();
    assert!((trend(&worked).expect("a drift") - 0.006 / 0.1002).abs() < 1e-9);
}

#[test]
fn costly_outliers_get_a_warning() {
    let with_outliers = |count: usize, factor: f64| {
        let mut record = record(&TWO);
        for iteration in record.iterations.iter_mut().skip(15).step_by(11).take(count) {
            iteration.step.iter_mut().for_each(|step| step.0 *= factor);
        }
        end(&mut record).wall = Seconds(record.iterations.iter().map(|iteration| iteration.step[0].0).sum());
        record
    };
    check(
        [&with_outliers(3, 3.0)],
        &expect![
            "Outliers, the run: 3 of 50 iterations took up to 3.0 times the median step, which lowers the mean speed by 10.7 %: repeat the run on an idle machine"
        ],
    );
    assert_eq!(warnings(&with_outliers(3, 1.2), 10), []);
}

#[test]
fn skipped_updates_after_scale_search_get_a_warning() {
    let mut skipping = record(&TWO);
    skipping.iterations[..10].iter_mut().for_each(|iteration| iteration.skipped = true);
    skipping.iterations[30].skipped = true;
    assert_eq!(warnings(&skipping, 10), []);
    skipping.iterations[30..33].iter_mut().for_each(|iteration| iteration.skipped = true);
    check(
        [&skipping],
        &expect![
            "Skipped, the run: 3 of 50 updates after warm-up were skipped because a gradient was not finite: lower --loss-scale or --lr"
        ],
    );
}

#[test]
fn invalid_run_has_one_reason() {
    let mut run = record(&TWO);
    run.header.config.iterations = ITERATIONS as u32;
    assert_eq!(invalidity(&run), None);
    let reason = |change: &dyn Fn(&mut RunRecord)| {
        let mut changed = run.clone();
        change(&mut changed);
        invalidity(&changed).map(|reason| reason.to_string()).unwrap_or_default()
    };
    let lost = LostRank { rank: 3, host: "d".to_owned(), iteration: 7 };
    let of_lost = |run: &mut RunRecord| {
        end(run).strategy = Some(StrategyUse { lost: vec![lost.clone()], ..StrategyUse::default() })
    };
    expect!["rank 3 on host d exited after iteration 7, and the others continued without it (--strategy all-reduce): the figures do not cover all ranks"]
        .assert_eq(&reason(&of_lost));
    expect!["only 59 of 60 iterations were completed"].assert_eq(&reason(&|run| drop(run.iterations.pop())));
    expect!["the loss of rank 2 is NaN in iteration 4: lower --lr or --loss-scale"]
        .assert_eq(&reason(&|run| run.iterations[3].loss[2] = f64::NAN));
    expect!["all updates (60) were skipped because of non-finite gradients: lower --loss-scale, or train longer"]
        .assert_eq(&reason(&|run| end(run).skipped_steps = 60));
    let of_weights = |run: &mut RunRecord| end(run).parameter_checksums[2] = "11aa".to_owned();
    expect!["rank 2 on host d ended with different weights than rank 0 (11aa and 00ff): gradients were not exchanged correctly"]
        .assert_eq(&reason(&of_weights));
    run.header.config.exchange.backend = BackendChoice::None;
    run.end.iter_mut().for_each(|end| end.parameter_checksums[2] = "11aa".to_owned());
    assert_eq!(invalidity(&run), None, "ranks without exchange have different weights");
}

#[test]
fn ranks_that_divide_the_update_may_be_more_efficient() {
    let record = record(&[("a", 1)]);
    let share = record.update_share(10).expect("iterations");
    assert!((share - 0.1).abs() < 1e-9 && record.update_share(ITERATIONS).is_none(), "{share}");
    let limits = [Strategy::AllReduce, Strategy::Nccl, Strategy::Zero1, Strategy::Hsdp]
        .map(|strategy| (1e3 * efficiency_limit(strategy, Some(share))).round());
    assert_eq!(limits, [1050.0, 1050.0, 1167.0, 1167.0]);
    assert!((efficiency_limit(Strategy::Hsdp, None) - 1.05).abs() < 1e-9);
}

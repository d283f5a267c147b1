//! Tests of `--trace` and `--profile-layers`: output of real runs in both formats, and the report's drawing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use expect_test::expect;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::Phase;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::trace::{ClockMethod, Direction, Lane, LayerKind, RankTrace, Span, Timeline, chrome};
use serde_json::Value;

use crate::support::cluster::{Cluster, succeed};
use crate::support::cluster_sweep;
use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::images::{noise, photographs};
use crate::support::sandbox::{Sandbox, fails, refused, ringmark, run, succeeds, wait_until};
use crate::support::temporary_folder::without_folder;
use crate::support::virtual_gpu::{RATE, SMALL, Virtual};
use crate::support::worker;
use crate::support::worker_run::{AT_ONCE, Run, losses};

const TRAIN: &str = "--model resnet18 --iters 4 --warmup 1";

fn timeline(path: &Path) -> Timeline {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    chrome::read(BufReader::new(file)).expect("a trace")
}

fn of_lane(rank: &RankTrace, is_of: impl Fn(Lane) -> bool) -> Vec<&Span> {
    rank.spans.iter().filter(|span| is_of(span.lane)).collect()
}

/// Checks that the spans of a lane are disjoint or nested.
fn assert_drawable(rank: &RankTrace) {
    let lanes: BTreeSet<Lane> = rank.spans.iter().map(|span| span.lane).collect();
    for lane in lanes {
        let mut open: Vec<&Span> = Vec::new();
        for span in of_lane(rank, |other| other == lane) {
            open.retain(|outer| outer.end_ns() > span.begin_ns);
            // Files contain nanoseconds as fractions of microseconds.
            let is_inside = open.last().is_none_or(|outer| span.end_ns() <= outer.end_ns() + 1);
            assert!(is_inside, "{lane:?} of rank {}: {span:?} is partly in {open:?}", rank.rank);
            open.push(span);
        }
    }
}

#[test]
fn operators_have_lanes_and_times() {
    let run = Run::ranks(2, &format!("{TRAIN} --trace-iterations 3-4")).variable("RINGMARK_PROFILE_OPERATORS", "1");
    let path = run.path("trace.json");
    let run = run.file("--trace", &path).finish();
    let timeline = timeline(&path);
    for rank in &timeline.ranks {
        assert_drawable(rank);
        let operators = of_lane(rank, |lane| matches!(lane, Lane::Operators(_)));
        let names: Vec<&str> = operators.iter().map(|span| span.name.as_str()).collect();
        let count = |name: &str| names.iter().filter(|known| **known == name).count();
        assert_eq!(count("aten::convolution_backward"), 2 * 20, "{names:?}");
    }
    let record = run.record.as_ref().expect("a record");
    let profile = record.end.as_ref().and_then(|end| end.operators.as_ref()).expect("a profile");
    assert_eq!((profile.passes, profile.device.len()), (4, 0));
    let convolution = profile.host.iter().find(|operator| operator.name == "aten::convolution_backward");
    let convolution = convolution.expect("a convolution");
    assert_eq!(convolution.calls, 20);
    assert!((0.0..profile.step.0).contains(&convolution.time.0), "{profile:?}");
    assert!(run.stdout.contains("\n# aten::convolution_backward"), "{}", run.stdout);
    assert!(run.stderr.is_empty(), "{}", run.stderr);
}

#[test]
fn trace_of_two_ranks_has_every_lane_on_one_clock() {
    let traced = Run::ranks(2, &format!("{TRAIN} --trace-iterations 3-4 --profile-layers"));
    let path = traced.path("trace.json");
    let traced = traced.file("--trace", &path).finish();
    let plain = Run::ranks(2, TRAIN).finish().valid_record();
    let timeline = timeline(&path);
    assert_eq!(timeline.exchange, "shared-memory");
    assert_eq!(timeline.ranks.len(), 2);
    for rank in &timeline.ranks {
        assert_drawable(rank);
        assert_eq!(rank.clock.method, ClockMethod::SameHost);
        let iterations: BTreeSet<u32> = rank.spans.iter().map(|span| span.iteration).collect();
        assert_eq!(iterations, BTreeSet::from([3, 4]));
        for iteration in iterations {
            let spans: Vec<&Span> = rank.spans.iter().filter(|span| span.iteration == iteration).collect();
            let names = |lane: Lane| -> Vec<&str> {
                spans.iter().filter(|span| span.lane == lane).map(|span| span.name.as_str()).collect()
            };
            let phases = Phase::ALL.iter().filter(|phase| phase.is_always()).map(|phase| phase.description());
            assert_eq!(names(Lane::Step), phases.collect::<Vec<_>>());
            // Backward visits every layer of forward, in reverse order.
            let layers = |direction: Direction| -> Vec<&str> {
                let own = |span: &&&Span| span.layer.is_some_and(|pass| pass.direction == direction);
                let mut names: Vec<&str> = spans.iter().filter(own).map(|span| span.name.as_str()).collect();
                names.dedup();
                names
            };
            let (forward, backward) = (layers(Direction::Forward), layers(Direction::Backward));
            assert!(forward.len() > 40, "{forward:?}");
            assert_eq!((forward[0], backward.last()), ("conv1", Some(&"conv1")), "{backward:?}");
            let set = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
            assert_eq!(set(forward), set(backward));
            // Every bucket is filled within backward, and summed.
            let phase =
                |name: &str| spans.iter().find(|span| span.lane == Lane::Step && span.name == name).expect(name);
            let backward = phase("backward");
            let buckets: Vec<&&Span> = spans.iter().filter(|span| matches!(span.lane, Lane::Bucket(_))).collect();
            assert!(buckets.len() > 1, "{buckets:?}");
            for bucket in buckets {
                assert!((backward.begin_ns..=backward.end_ns()).contains(&bucket.begin_ns), "{bucket:?} {backward:?}");
                let is_sum = |span: &&&Span| span.lane == Lane::Exchange && span.bucket == bucket.bucket;
                assert!(spans.iter().any(|span| is_sum(&span)), "{bucket:?}");
            }
        }
    }
    let record = traced.record.as_ref().expect("a record");
    assert_eq!(losses(record), losses(&plain), "a trace changes no result");
    let profile = record.end.as_ref().and_then(|end| end.layers.as_ref()).expect("a profile");
    assert_eq!(profile.passes, 4, "two ranks, two iterations");
    let convolutions = profile.layers.iter().filter(|layer| layer.kind == LayerKind::Convolution);
    let work =
        convolutions.map(|layer| (layer.forward.multiply_adds, layer.backward.multiply_adds)).collect::<Vec<_>>();
    assert_eq!(work.len(), 20);
    // The first layer's input needs no gradient.
    assert_eq!(work[0].0, work[0].1);
    assert!(work[1..].iter().all(|(forward, backward)| 2 * forward == *backward), "{work:?}");
    let inside: f64 = profile.layers.iter().map(|layer| layer.forward.time.0 + layer.backward.time.0).sum();
    assert!((0.0..=profile.step.expect("training").0).contains(&inside), "{profile:?}");
    assert!(traced.stdout.contains("# time per layer and rank: medians of 4 passes"), "{}", traced.stdout);
    assert!(traced.stdout.contains("# 20 x convolution"), "{}", traced.stdout);
}

/// Checks the rules of the format with a strict parser.
#[test]
fn horovod_timeline_has_a_process_per_gradient() {
    let traced = Run::ranks(2, &format!("{TRAIN} --trace-format horovod --trace-iterations 2"));
    let path = traced.path("timeline.json");
    let finished = traced.file("--trace", &path).finish();
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let text = fs::read_to_string(&path).expect("a file");
    let events: Vec<Value> = serde_json::from_str(&text).expect("an array of events");
    let mut names = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut ranks: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let (mut now, mut closed) = (0, Vec::new());
    for event in &events {
        let process = event["pid"].as_u64().expect("a process");
        let name = || event["name"].as_str().expect("a name").to_owned();
        if event["ph"] == "M" {
            if name() == "process_name" {
                names.insert(process, event["args"]["name"].as_str().unwrap_or_default().to_owned());
            }
            continue;
        }
        let at = event["ts"].as_u64().expect("whole microseconds");
        assert!(at >= now, "{event}");
        now = at;
        match event["ph"].as_str().expect("a phase") {
            "B" => open.entry(process).or_default().push(name()),
            "E" => closed.push(open.entry(process).or_default().pop().expect("it has begun")),
            "X" => assert!(ranks.entry(process).or_default().insert(name()), "{event}"),
            other => panic!("{other}: {event}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    // 62 arrays of ResNet-18, starting with the last layer's, and the process of the file itself.
    assert_eq!(names.len(), 63);
    assert_eq!((names[&1].as_str(), names[&62].as_str()), ("fc.bias", "conv1.weight"));
    assert!(ranks.len() == 62 && ranks.values().all(|ranks| ranks.len() == 2), "{ranks:?}");
    let count = |name: &str| closed.iter().filter(|other| *other == name).count();
    let expected =
        ["NEGOTIATE_ALLREDUCE", "ALLREDUCE", "SHARED_MEMORY_ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER"].map(count);
    assert_eq!(expected, [62; 4], "{closed:?}");
}

#[test]
fn servers_links_and_decode_threads_have_lanes() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = photographs(folder.path());
    let options = "--model resnet18 --image-size 32 --iters 6 --warmup 1 --lr-warmup-iters 0 --strategy dist_sync --servers 1 \
                   --decode-threads 2 --prefetch 1";
    let traced = Run::ranks(2, options);
    let path = traced.path("trace.json");
    let finished = traced.file("--trace", &path).file("--data", &data).finish();
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let timeline = timeline(&path);
    let [rank] = &timeline.ranks[..] else { panic!("one rank: {timeline:?}") };
    assert_drawable(rank);
    let of = |lane: Lane| of_lane(rank, |other| other == lane);
    let (pushes, pulls) = (of(Lane::Push(0)), of(Lane::Pull(0)));
    // A push may be recorded after its answer; it belongs to the iteration in which it began, and none is lost.
    assert_eq!(pushes.len(), pulls.len());
    let keys: BTreeSet<u32> = pushes.iter().filter_map(|span| span.bucket).collect();
    assert_eq!((keys, pushes.len() % 5), ((0..62).collect(), 0), "{} parts", pushes.len());
    assert!(pushes.iter().all(|span| span.name == "KVStoreDistDefaultPush" && span.bucket.is_some()));
    assert!(pulls.iter().all(|span| span.name == "KVStoreDistDefaultStoragePull"));
    let stages: BTreeSet<&str> =
        [0, 1].iter().flat_map(|thread| of(Lane::Decode(*thread))).map(|span| span.name.as_str()).collect();
    assert_eq!(stages, BTreeSet::from(["augment", "decode", "read"]));
}

#[test]
fn bandwidth_and_input_are_traced() {
    let _tokens = take_cores(2);
    let sandbox = Sandbox::real();
    let path = sandbox.path("trace.json");
    let sizes = "-b 1K -e 32K -f 32 -n 3 -w 1 --trace-iterations 2-3";
    succeeds(sandbox.worker_ranks(2, sizes).arg("--trace").arg(&path));
    let steps = |rank: &RankTrace| -> Vec<String> {
        of_lane(rank, |lane| lane == Lane::Step).iter().map(|span| span.name.clone()).collect()
    };
    let expected = ["1024 bytes", "1024 bytes, in place", "32768 bytes", "32768 bytes, in place"];
    let expected: Vec<String> = expected.iter().flat_map(|size| vec![format!("all-reduce of {size}"); 2]).collect();
    for rank in &timeline(&path).ranks {
        assert_eq!(steps(rank), expected, "rank {}", rank.rank);
        assert_drawable(rank);
    }

    let data = sandbox.path("images");
    fs::create_dir_all(data.join("one")).expect("made");
    (0..6).for_each(|number| noise(&data.join(format!("one/{number}.png")), 40));
    let options = "input --no-doctor --timeout 300 --model resnet18 --image-size 32 --batch-size 2 --cache warm --batches 12 \
                   --decode-threads 1 --trace --trace-iterations 1-10";
    let out = sandbox.path("out");
    let mut input = ringmark(options);
    succeeds(input.arg("--worker").arg(worker()).arg("--data").arg(&data).arg("--out").arg(&out));
    let timeline = timeline(&out.join("input.trace.json"));
    let [rank] = &timeline.ranks[..] else { panic!("one process: {timeline:?}") };
    assert_eq!(steps(rank), ["wait for a batch"; 10]);
    // The first batches were ready before the first iteration; the others were not.
    assert!(rank.spans.iter().any(|span| span.lane == Lane::Decode(0)), "{rank:?}");
    // A pass limited by time may end earlier.
    let options = options.replace("--batches 12", "--seconds 1").replace("1-10", "4000000-4000001");
    let out = sandbox.path("none");
    let mut input = ringmark(&options);
    succeeds(input.arg("--worker").arg(worker()).arg("--data").arg(&data).arg("--out").arg(&out));
    let log = fs::read_to_string(out.join("input.log")).expect("a log");
    let words = "# warning: no trace: no iteration of --trace-iterations 4000000-4000001 was run\n";
    assert!(log.contains(words) && !out.join("input.trace.json").exists(), "{log}");
    let error = refused(ringmark("bandwidth --hosts localhost:2 --trace-iterations 2").arg("--out").arg(&out), 2);
    expect![[r#"
        error: --trace-iterations applies to traced runs: add --trace
    "#]]
    .assert_eq(&error);
}

#[test]
fn sweep_traces_first_runs_and_report_draws_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let options = "sweep --no-doctor --device cpu --hosts localhost:2 --cases 1n1g,1n2g --runs 2 --trace-runs 1 --model \
                   resnet18 --batch-size 2 --image-size 32 --iters 4 --warmup 1 --threads 1";
    let (status, _, stderr) = {
        let _tokens = take_cores(2);
        run(ringmark(options).arg("--worker").arg(worker()).arg("--out").arg(&out))
    };
    assert_eq!(status, Some(0), "{stderr}");
    for case in ["1n1g", "1n2g"] {
        let trace = |run: u32| out.join(case).join(format!("resnet18_b2_fp32_{run}.trace.json"));
        assert_eq!(timeline(&trace(1)).ranks.len(), usize::from(case == "1n2g") + 1);
        assert!(!trace(2).exists());
        let record = trace(1).with_extension("").with_extension("jsonl");
        let record = RunRecord::read(BufReader::new(File::open(record).expect("a record"))).expect("a record");
        assert_eq!(record.header.config.trace.file.as_deref(), Some(trace(1).as_path()));
    }
    let page = folder.path().join("report.html");
    succeeds(ringmark("report").arg(&out).arg("-o").arg(&page));
    let page = fs::read_to_string(page).expect("a page");
    for words in
        ["Inside an iteration", "1n2g: limited by bucket ", "class=\"zoom\"", "rank 1: layer1.0.conv1 backward, "]
    {
        assert!(page.contains(words), "{words}");
    }
    // A truncated trace is reported, and the others are drawn.
    let damaged = out.join("1n1g/resnet18_b2_fp32_1.trace.json");
    let text = fs::read_to_string(&damaged).expect("a trace");
    fs::write(&damaged, &text[..text.len() / 2]).expect("written");
    let stderr = fails(ringmark("report").arg(&out).arg("-o").arg(folder.path().join("again.html")));
    assert!(stderr.contains("1n1g/resnet18_b2_fp32_1.trace.json: the trace cannot be used"), "{stderr}");
    let errors = [
        "--trace-iterations 2",
        "--trace-format horovod",
        "--trace-runs 1 --iters 4 --warmup 1 --trace-iterations 3-9",
        "--trace-runs 1 --iters 900 --trace-iterations 3-600",
    ]
    .map(|options| {
        let mut sweep = ringmark(&format!("sweep --no-doctor --device cpu --dry-run {options}"));
        refused(sweep.arg("--worker").arg(worker()).arg("--out").arg(folder.path().join("none")), 2)
    });
    expect![[r#"
        error: --trace-iterations applies to traced runs: add --trace-runs 1
        error: --trace-format horovod applies to traced runs: add --trace-runs 1
        error: --trace-iterations 3-9 is out of range: choose iterations from 1 to 4
        error: --trace-iterations 3-600 selects 598 iterations, but rank 0 can keep 100 in memory: choose fewer
    "#]]
    .assert_eq(&errors.concat());
}

/// Each stream of a GPU has a lane, and a wait for another stream is drawn.
#[test]
fn gpu_streams_have_separate_lanes() {
    let options = format!("{SMALL} {RATE} --iters 5 --warmup 1 --trace-iterations 3-4 --batch-size 4 {AT_ONCE}");
    for strategy in ["all-reduce", "nccl"] {
        let traced = Virtual::ranks(2, &format!("{options} --bucket-mb 4 --strategy {strategy}"));
        let path = traced.path("trace.json");
        let (finished, _) = traced.file("--trace", &path).finish();
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let timeline = timeline(&path);
        let buckets = finished.valid_record().header.buckets.len() as u32;
        for rank in &timeline.ranks {
            assert_drawable(rank);
            // The device clock was compared with the host's.
            assert!(rank.clock.first.residual_ns > 0 && rank.clock.last.residual_ns > 0, "{:?}", rank.clock);
            let iterations: BTreeSet<u32> = rank.spans.iter().map(|span| span.iteration).collect();
            assert_eq!(iterations, BTreeSet::from([3, 4]), "{strategy}");
            assert!(of_lane(rank, |lane| lane == Lane::Layers).iter().any(|span| span.name == "wait for the rest"));
            let sums: Vec<Option<u32>> = of_lane(rank, |lane| lane == Lane::Exchange)
                .iter()
                .filter(|span| span.iteration == 3 && span.name.contains("reduce"))
                .map(|span| span.bucket)
                .collect();
            assert_eq!(sums, (0..buckets).map(Some).collect::<Vec<_>>(), "{strategy}");
            let moved = of_lane(rank, |lane| lane == Lane::Exchange);
            let moved: Vec<_> = moved.iter().filter(|span| span.name == "broadcast").collect();
            assert_eq!(moved.len() as u32, if strategy == "nccl" { 2 * buckets } else { 0 });
            assert!(moved.iter().all(|span| span.bucket.is_none()), "{moved:?}");
        }
    }
}

#[test]
fn weight_transfers_have_no_bucket() {
    for strategy in ["local", "device"] {
        let traced = Run::ranks(2, &format!("{TRAIN} --strategy {strategy} --trace-iterations 3"));
        let path = traced.path("trace.json");
        let finished = traced.file("--trace", &path).finish();
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let timeline = timeline(&path);
        assert_eq!(timeline.strategy.map(|strategy| strategy.to_string()).as_deref(), Some(strategy));
        for rank in &timeline.ranks {
            assert_drawable(rank);
            let optimizer = of_lane(rank, |lane| lane == Lane::Step);
            let optimizer = optimizer.iter().find(|span| span.name == "optimizer").expect("a phase");
            let ends = rank.spans.iter().filter(|span| span.bucket.is_some()).map(|span| span.end_ns());
            let last = ends.max().expect("buckets");
            assert!(last <= optimizer.begin_ns + 1, "{strategy}: {last} {optimizer:?}");
            assert!(of_lane(rank, |lane| lane == Lane::Exchange).iter().any(|span| span.name == "move"), "{strategy}");
        }
    }
}

#[test]
fn unwritable_trace_is_reported_and_keeps_the_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let unfit = Run::ranks(2, TRAIN).file("--trace", &folder.path().join("none/trace.json")).finish();
    assert_eq!((unfit.status, &unfit.record), (Some(1), &None));
    assert!(unfit.stderr.contains("none/trace.json cannot be written"), "{}", unfit.stderr);
    assert!(!unfit.stdout.contains("Batch["), "{}", unfit.stdout);
    // The output folder is removed while the iterations run; the record is written nevertheless.
    let place = folder.path().join("taken away");
    fs::create_dir(&place).expect("made");
    let run = Run::single_rank("--model resnet18 --iters 60 --warmup 1").file("--trace", &place.join("trace.json"));
    let finished = run.finish_after(|stdout, _| {
        wait_until("iterations", || fs::read_to_string(stdout).is_ok_and(|text| text.contains("Batch[2]")));
        fs::remove_dir(&place).expect("it is empty");
    });
    let words = "# warning: no trace: ";
    let warning = finished.stdout.lines().find(|line| line.starts_with(words)).expect(words);
    expect!["# warning: no trace: DIR/taken away/trace.json cannot be written: No such file or directory (os error 2)"]
        .assert_eq(&without_folder(warning));
    finished.valid_record();
    // The number of iterations of an epoch is known only once the data are open.
    let data = photographs(folder.path());
    let epochs = Run::single_rank("--model resnet18 --epochs 1 --trace-iterations 90-91").file("--data", &data);
    let error = epochs.file("--trace", &folder.path().join("trace.json")).refusal(1);
    expect![[r#"
        error: --trace-iterations 90-91 is out of range: choose iterations from 1 to 3
    "#]]
    .assert_eq(&error);
    // Iterations of an earlier part of the run.
    let checkpoint = folder.path().join("checkpoint.safetensors");
    let run = |more: &str| {
        Run::single_rank(&format!("{TRAIN} --checkpoint-every 3 {more}")).file("--checkpoint", &checkpoint)
    };
    run("").finish().valid_record();
    for (range, left) in [("2-3", None), ("3-4", Some(4))] {
        let path = folder.path().join(format!("{range}.json"));
        let resumed = run(&format!("--trace-iterations {range}")).file("--from-checkpoint", &checkpoint);
        let resumed = resumed.file("--trace", &path).finish();
        let words = "# warning: no trace: iterations 2 to 3 were completed before the checkpoint (iteration 3)\n";
        assert_eq!(resumed.stdout.contains(words), left.is_none(), "{}", resumed.stdout);
        resumed.valid_record();
        let traced: BTreeSet<u32> = match left {
            Some(_) => timeline(&path).ranks[0].spans.iter().map(|span| span.iteration).collect(),
            None => BTreeSet::new(),
        };
        assert_eq!((path.exists(), traced), (left.is_some(), left.into_iter().collect()), "{range}");
    }
    // Scoring has no gradients, which Horovod's timeline shows.
    let error = refused(&mut ringmark("score --trace-runs 1 --trace-format horovod"), 2);
    expect![[r#"
        error: unexpected argument '--trace-format' found

        For more information, try '--help'.
    "#]]
    .assert_eq(&error);
}

#[test]
fn clocks_of_two_hosts_are_compared() {
    let Some(cluster) = Cluster::start(2) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let hosts = format!("--hosts {}:1,{}:1", cluster.host(1), cluster.host(2));
    let options = format!("{hosts} --iters 4 --warmup 1 --trace-runs 1");
    succeed(&cluster_sweep::command(&cluster, "2n1g", &out, &options).output().expect("starts"));
    let timeline = timeline(&out.join("2n1g/resnet18_b2_fp32_1.trace.json"));
    let methods: Vec<ClockMethod> = timeline.ranks.iter().map(|rank| rank.clock.method).collect();
    assert_eq!(methods, [ClockMethod::SameHost, ClockMethod::Ping]);
    // Both hosts are one machine with one clock: the measured offset is within the stated uncertainty.
    let clock = timeline.ranks[1].clock;
    for reading in [clock.first, clock.last] {
        assert!(reading.residual_ns > 0 && reading.ahead_ns.abs() <= reading.residual_ns + 1, "{clock:?}");
    }
    for rank in &timeline.ranks {
        assert_drawable(rank);
        let between = of_lane(rank, |lane| matches!(lane, Lane::Bucket(_)));
        assert!(between.iter().any(|span| span.name == "between hosts"), "{rank:?}");
    }
}

#[test]
fn score_traces_layers() {
    let _tokens = take_cores(1);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let options = "score --no-doctor --device cpu --hosts localhost:1 --cases 1n1g --runs 1 --trace-runs 1 --profile-layers \
                   --models resnet18 --batch-sizes 2 --image-size 32 --iters 3 --warmup 1 --threads 1 --trace-iterations 2";
    succeeds(ringmark(options).arg("--worker").arg(worker()).arg("--out").arg(&out));
    let timeline = timeline(&out.join("1n1g/resnet18_b2_fp32_1.trace.json"));
    let layers = of_lane(&timeline.ranks[0], |lane| lane == Lane::Layers);
    // Batch normalization is folded into the convolutions.
    assert!(layers.iter().all(|span| span.layer.is_some_and(|pass| pass.direction == Direction::Forward)));
    assert!(layers.iter().all(|span| span.layer.is_some_and(|pass| pass.kind != LayerKind::BatchNorm)), "{layers:?}");
    let log = fs::read_to_string(out.join("1n1g/resnet18_b2_fp32_1.log")).expect("a log");
    assert!(log.contains("# time per layer and rank: medians of 1 passes"), "{log}");
}

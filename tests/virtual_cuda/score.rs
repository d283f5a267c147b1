//! Tests `ringmark-worker score` on virtual GPUs: results with and without a CUDA graph or fused convolutions, and
//! fallbacks.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::score::{RectifiedConvolutions, ScoreRecord};
use ringmark_core::dimension::{DeviceKind, GraphChoice};
use serde_json::Value;

use crate::support::core_tokens::take_cores;
use crate::support::sandbox::{run, words};
use crate::support::virtual_gpu::variables;
use crate::support::worker;

/// Convolutions of ResNet-18 with ReLU: one in the stem, two in each of eight blocks.
const RECTIFIED: u32 = 17;

/// All convolutions of ResNet-18: three shortcuts have one without ReLU.
const CONVOLUTIONS: u32 = RECTIFIED + 3;

/// Output of a successful run.
struct Scored {
    log: String,
    record: ScoreRecord,
    races: u64,
    /// One line for each kernel and replay.
    calls: Vec<String>,
}

impl Scored {
    fn calls_of(&self, name: &str) -> usize {
        self.calls.iter().filter(|call| call.starts_with(&format!("{name} "))).count()
    }
}

/// Runs `score` for ResNet-18 with 2 warm-up and 3 timed passes; returns exit status, standard error, and the output
/// on success.
fn score(options: &str, settings: &[(&str, &str)]) -> (Option<i32>, String, Option<Scored>) {
    let _tokens = take_cores(1);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let mut command = Command::new(worker());
    command.args(words("score --model resnet18 --image-size 64 --batch-size 2 --iters 3 --threads 1"));
    let warmup = if options.contains("--warmup") { "" } else { "--warmup 2" };
    command
        .args(words(options))
        .args(words(warmup))
        .arg("--record")
        .arg(path("score.json"))
        .env("OMP_NUM_THREADS", "1");
    command.envs(variables()).env("VIRTUAL_CUDA_REPORT", path("report"));
    command.env("VIRTUAL_CUDA_CALLS", path("calls")).stdin(Stdio::null());
    command.envs(settings.iter().map(|(name, value)| (format!("VIRTUAL_CUDA_{name}"), value)));
    let (status, log, stderr) = run(&mut command);
    if status != Some(0) {
        return (status, stderr, None);
    }
    let record =
        ScoreRecord::read(BufReader::new(File::open(path("score.json")).expect("a record"))).expect("a record");
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let report: Value = serde_json::from_str(&text(&path("report"))).unwrap_or_default();
    let races = report["races"].as_u64().unwrap_or_default();
    let calls = text(&path("calls")).lines().map(str::to_owned).collect();
    (status, stderr, Some(Scored { log, record, races, calls }))
}

/// Runs `score` and asserts that the run is valid and free of races.
fn run_successfully(options: &str, settings: &[(&str, &str)]) -> Scored {
    let (_, stderr, scored) = score(options, settings);
    let scored = scored.unwrap_or_else(|| panic!("{options}: {stderr}"));
    assert_eq!((scored.races, scored.record.failure()), (0, None), "{options}: {stderr}");
    scored
}

fn assert_same(actual: &Scored, expected: &Scored, tolerance: f64, what: &str) {
    let (actual, expected) = (actual.record.confidence[0], expected.record.confidence[0]);
    assert!(expected > 0.0 && (actual - expected).abs() <= tolerance * expected, "{what}: {actual}, not {expected}");
}

#[test]
fn graph_matches_kernels_and_cpus() {
    for (options, tolerance) in [("--layout nhwc", 1e-5), ("--fold off", 1e-5), ("--dtype bf16", 0.05)] {
        let gpu = |more: &str| run_successfully(&format!("--device cuda {options} {more}"), &[]);
        let (graph, kernels) = (gpu(""), gpu("--graphs off"));
        assert_eq!(graph.record.ranks[0].device, DeviceKind::Cuda);
        assert_eq!(
            (graph.record.config.graphs, kernels.record.config.graphs),
            (GraphChoice::On, GraphChoice::Off),
            "{options}"
        );
        assert_same(&graph, &kernels, 1e-6, options);
        let cpu = run_successfully(&format!("--device cpu {options}"), &[]);
        assert_eq!((cpu.record.config.graphs, cpu.record.no_graph.is_none()), (GraphChoice::Off, true));
        assert_same(&graph, &cpu, tolerance, options);

        // One replay checks the capture, three are timed, one checks the output.
        assert_eq!((graph.calls_of("replay"), kernels.calls_of("replay")), (5, 0), "{options}");
        assert!(graph.log.contains("# timed passes: replayed CUDA graph"), "{}", graph.log);
        assert!(kernels.log.contains("# timed passes: separate kernel launches"), "{}", kernels.log);
    }
}

#[test]
fn graph_contains_every_kernel_of_a_pass() {
    let scored = run_successfully("--device cuda --graphs on --layout nhwc", &[]);
    let replays: Vec<&String> = scored.calls.iter().filter(|call| call.starts_with("replay ")).collect();
    let kernels: usize = words(replays[0]).nth(2).and_then(|count| count.parse().ok()).expect("a count");
    let start = scored.calls.iter().position(|call| call == replays[0]).expect("a replay");
    let of_a_replay = scored.calls[start + 1..].iter().take_while(|call| call.contains(" on stream ")).take(kernels);
    let convolutions = of_a_replay.filter(|call| call.contains("convolution")).count();
    assert_eq!(convolutions as u32, CONVOLUTIONS, "{:?}", &scored.calls[start..start + kernels]);
    assert!(kernels < CONVOLUTIONS as usize + 10, "{kernels}");
}

#[test]
fn uncapturable_pass_runs_kernel_by_kernel() {
    let expected = run_successfully("--device cuda --graphs off", &[]);
    let no_graph = |options: &str, settings: &[(&str, &str)], reason: &str| {
        let scored = run_successfully(&format!("--device cuda {options}"), settings);
        assert_eq!((scored.record.config.graphs, scored.calls_of("replay")), (GraphChoice::Off, 0), "{reason}");
        let recorded = scored.record.no_graph.as_deref().unwrap_or_default();
        assert!(recorded.contains(reason), "{recorded}");
        assert!(scored.log.contains(&format!("# warning: {recorded}")), "{}", scored.log);
        assert_same(&scored, &expected, 1e-6, reason);
    };
    let broken = "graph: libtorch: CUDA error: operation failed due to a previous error during capture";
    no_graph("", &[("BROKEN_CAPTURE", "1")], broken);
    no_graph("--warmup 0", &[], "--warmup is 0");
    no_graph("--profile-layers", &[], "layers are traced, which a replay cannot do");

    let (status, stderr, _) = score("--device cuda --graphs on", &[("BROKEN_CAPTURE", "1")]);
    assert!(status == Some(1) && stderr.contains("--graphs on: rank 0 cannot capture a CUDA graph: "), "{stderr}");
    let (status, stderr, _) = score("--device cpu --graphs on", &[]);
    assert!(status == Some(1) && stderr.contains("CUDA graphs need a GPU"), "{stderr}");
}

#[test]
fn cudnn_fuses_relu_and_sum_if_supported() {
    let run = |kind: &str| run_successfully("--device cuda --graphs off", &[("FUSED_CONVOLUTION", kind)]);
    let counted = |fused: u32| Some(RectifiedConvolutions { all: RECTIFIED, fused });
    let fused = run("kernel");
    assert_eq!(fused.record.rectified_convolutions, counted(RECTIFIED));
    let kernels = |scored: &Scored| {
        scored.calls_of("aten::cudnn_convolution_relu") + scored.calls_of("aten::cudnn_convolution_add_relu")
    };
    // 6 passes; the check before the first computes each convolution twice and times 8 calls.
    assert_eq!(kernels(&fused) as u32, (6 + 2 + 8) * RECTIFIED);
    let line = format!("# convolutions with fused bias, sum and ReLU (cuDNN): {RECTIFIED} of {RECTIFIED}");
    assert!(fused.log.contains(&line), "{}", fused.log);
    // Without a kernel the call fails at once; NaN is found by the comparison.
    for (kind, requested) in [("none", 0), ("nan", 2 * RECTIFIED)] {
        let plain = run(kind);
        assert_eq!((plain.record.rectified_convolutions, kernels(&plain) as u32), (counted(0), requested), "{kind}");
        assert_same(&plain, &fused, 1e-5, kind);
    }
    // Only folded convolutions are fused.
    assert_eq!(run_successfully("--device cuda --fold off", &[]).record.rectified_convolutions, None);
}

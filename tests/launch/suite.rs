//! Tests of PyTorch's DDP suite: `ringmark sweep --suite ddp`, and its results in `ringmark extract`. Resuming a suite
//! is tested in `resume`.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use expect_test::expect;
use ringmark::read::load::formats::pytorch_ddp::{DdpBenchmark, DdpFile, GroupResult};
use ringmark_core::benchmark::exchange::{BackendChoice, Switch};
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::{Record, RunProfile};
use ringmark_core::dimension::{BackendName, DeviceKind, Dtype, Model, Phase, Seconds};
use ringmark_core::file::run_name::RunName;
use serde_json::Value;

use crate::support::core_tokens::take_all_cores;
use crate::support::golden::assert_golden;
use crate::support::runs::{Folder, dlperf_log, record, rows_by_case};
use crate::support::sandbox::{Sandbox, refused, ringmark, run, succeeds, words};
use crate::support::temporary_folder::without_folder;
use crate::support::virtual_gpu;

#[test]
fn dry_run_prints_baselines_between_runs() {
    let sandbox = Sandbox::new("exit 1");
    let mut command = ringmark(
        "sweep --dry-run --verbose --suite ddp --model resnet50_v1b --cases 1n1g,2n8g --runs 2 --hosts a:8,b:8 --interface ib0",
    );
    command.args(words("--save /shared/weights"));
    command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    let stdout = succeeds(&mut command);
    let folder = sandbox.folder.path().to_str().expect("a plain name");
    assert_golden("dry_run_suite.txt", &stdout.replace(folder, "/FOLDER"));
    assert!(!sandbox.path("out").exists());

    // A single rank has a baseline if a backend is chosen for it.
    let (_, stdout, _) = run(command.args(words("--collective mpi")));
    let is_baseline = |line: &&str| line.contains(" --backend none ") && line.contains(" --case 1n1g ");
    assert_eq!(stdout.lines().filter(is_baseline).count(), 2, "{stdout}");
}

#[test]
fn suite_defaults_to_pytorch_networks_and_batch_size() {
    let sandbox = Sandbox::new("exit 1");
    let runs = |options: &str| {
        let mut command =
            ringmark(&format!("sweep --dry-run --verbose --suite ddp --cases 1n1g --runs 1 --no-doctor {options}"));
        command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        let stdout = succeeds(&mut command);
        let names = stdout.lines().filter_map(|line| line.split_once("/1n1g/")?.1.split_once("_1.jsonl"));
        names.map(|(name, _)| name.to_owned()).collect::<Vec<String>>()
    };
    let networks = ["rn50", "resnet101", "resnext50-32x4d", "resnext101-32x8d"];
    assert_eq!(runs("--profile dlperf --hosts a:1"), networks.map(|name| format!("{name}_b32_fp32")));
    assert_eq!(runs("--device cpu"), networks.map(|name| format!("{name}_b8_fp32")));
    assert_eq!(runs("--profile dlperf --hosts a:1 --batch-size 16 --model resnet18"), ["resnet18_b16_fp32"]);
}

#[test]
fn invalid_suite_is_rejected() {
    let error = refused(&mut ringmark("sweep --suite ddp --backend none --hosts localhost:2"), 2);
    expect![[r"
        error: --suite ddp already compares with --backend none: omit --backend none
    "]]
    .assert_eq(&error);
    for servers in ["--strategy dist_sync", "--strategies all-reduce,dist_sync", "--autotune-over strategy=dist_sync"] {
        let error = refused(&mut ringmark(&format!("sweep --suite llm --hosts localhost:2 --dry-run {servers}")), 2);
        expect![[r"
            error: --suite llm limits the norm of all gradients, which --strategy dist_sync does not support, because its servers update each part of an array alone: use --strategy all-reduce, zero1, zero2, fsdp, hsdp, local, device or nccl, or --model without --suite
        "]]
        .assert_eq(&error);
    }
    let error = refused(&mut ringmark("sweep --suite horovod"), 2);
    expect![[r#"
        error: invalid value 'horovod' for '--suite <NAME>'
          [possible values: ddp, llm]

        For more information, try '--help'.
    "#]]
    .assert_eq(&error);
}

#[test]
fn language_models_have_the_recipe_of_nanogpt() {
    let plan = |options: &str| {
        let arguments = format!("sweep --suite llm --runs 1 --cases 1n1g --no-doctor --dry-run --verbose {options}");
        let stdout = succeeds(&mut ringmark(&arguments));
        let of_rank =
            |line: &str| Some(line.split_once("ringmark-worker train ")?.1.split_once(" --record")?.0.to_owned());
        stdout.lines().filter_map(of_rank).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
        --model gpt2-124m --batch-size 4 --dtype bf16 --device cuda --sequence-length 1024 --lr 0.0006 --optimizer adamw --adam-beta2 0.95 --weight-decay 0.1 --weight-decay-on matrices --clip-norm 1
        --model llama-1b --batch-size 4 --dtype bf16 --device cuda --sequence-length 2048 --lr 0.0006 --optimizer adamw --adam-beta2 0.95 --weight-decay 0.1 --weight-decay-on matrices --clip-norm 1"#]].assert_eq(&plan("--hosts a:8 --device cuda"));
    expect!["--model gpt2-355m --batch-size 8 --dtype fp16 --device cuda --sequence-length 1024 --optimizer adamw --adam-beta2 0.95 --weight-decay 0.1 --weight-decay-on matrices --clip-norm 1"]
        .assert_eq(&plan("--hosts a:8 --device cuda --model gpt2-355m --lr 0.001 --batch-size 8 --dtype fp16"));
    let memory =
        refused(&mut ringmark("sweep --model llama-8b --device cpu --hosts localhost:2 --cases 1n2g --dry-run"), 2);
    assert!(
        memory.contains("1n2g with --batch-size 4 needs about 335.0 GB for the 2 ranks on this machine"),
        "{memory}"
    );
    let on_cpu = plan("--hosts a:2 --device cpu --profile cpu --threads 1");
    expect!["--model gpt2-124m --batch-size 4 --device cpu --iters 25 --warmup 5 --sequence-length 128 --threads 1 --lr 0.0006 --optimizer adamw --adam-beta2 0.95 --weight-decay 0.1 --weight-decay-on matrices --clip-norm 1"].assert_eq(&on_cpu);
}

#[test]
fn strategies_of_language_models_are_compared_and_resumed() {
    let sandbox = Sandbox::real();
    let sweep = |options: &str| {
        let mut sweep = ringmark(&format!(
            "sweep --suite llm --model gpt2-tiny --sequence-length 32 --cases 1n1g,1n2g --runs 1 --iters 4 --warmup 1 \
             --no-doctor --hosts localhost:2 --device cuda {options}"
        ));
        sweep.envs(virtual_gpu::variables()).env("PATH", virtual_gpu::program_path());
        sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        sweep
    };
    let tokens = take_all_cores();
    succeeds(&mut sweep(""));
    drop(tokens);
    let resumed = succeeds(&mut sweep("--resume"));
    assert!(resumed.contains("4 of 4 runs are finished"), "{resumed}");
    let tables = succeeds(ringmark("extract").arg(sandbox.path("out")));
    for strategy in ["all-reduce", "zero1", "fsdp"] {
        let is_row = |line: &str| line.split_whitespace().take(2).eq(["1n2g", strategy]);
        assert!(tables.lines().any(is_row), "{strategy}: {tables}");
    }
}

/// Creates two runs of 1n1g and 1n2g, and of 1n2g without communication, with steps `slower` times as long.
fn suite(slower: f64) -> Folder {
    suite_of(slower, &[1.0, 1.02])
}

/// Creates one run of each case for each factor in `noise`.
fn suite_of(slower: f64, noise: &[f64]) -> Folder {
    let folder = Folder::new();
    for (number, noise) in (1..).zip(noise) {
        folder.run(&record("1n1g", number, 0.5 * slower * noise));
        folder.run(&record("1n2g", number, 0.5625 * slower * noise));
        folder.run(&baseline(number, 0.5 * slower * noise));
    }
    folder
}

/// Creates a baseline without an all-reduce, whose ranks end with different weights.
fn baseline(number: u32, step: f64) -> RunRecord {
    let mut baseline = record("1n2g", number, step);
    baseline.header.config.exchange.backend = BackendChoice::None;
    baseline.header.backend = BackendName::None;
    for iteration in &mut baseline.iterations {
        iteration.phases[Phase::ExposedAllreduce].fill(Seconds(0.0));
    }
    baseline.end.as_mut().expect("an end").parameter_checksums[1] = "00fe".to_owned();
    baseline
}

/// Checks for exit status 0 and returns the standard output.
fn extract(folder: &Path, options: &str) -> String {
    let mut command = ringmark("extract");
    succeeds(command.arg(folder).args(words(options)).arg("--out").arg(folder))
}

fn benchmark(folder: &Path) -> DdpBenchmark {
    DdpFile::read(extract(folder, "--format pytorch-ddp").as_bytes()).expect("PyTorch's schema").benchmark
}

#[test]
fn other_networks_have_torchvision_names() {
    let folder = Folder::new();
    for number in [1, 2] {
        let mut other = record("1n1g", number, 0.125);
        other.header.config.model = Model::Resnet18;
        folder.run(&other);
    }
    assert_eq!(benchmark(&folder.path()).benchmark_results[0].model, "resnet18");
    assert!(extract(&folder.path(), "--format pytorch-ddp-lines").contains("Benchmark: resnet18 with batch size 4"));
}

#[test]
fn tables_show_the_cost_of_communication() {
    let folder = suite_of(1.0, &[1.0, 1.02, 1.01]);
    let table = extract(&folder.path(), "");
    assert_golden("extract/suite_table.txt", &table);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert_golden("extract/suite_lines.txt", &extract(&folder.path(), "--format pytorch-ddp-lines"));
    assert!(extract(&folder.path(), "--format markdown").contains("\n| 1n2g |             3/3 |"));

    let text = fs::read_to_string(folder.path().join("first_result.json")).expect("written");
    let result = rows_by_case(&serde_json::from_str(&text).expect("JSON"));
    assert_eq!(result["rn50"]["1n1g"]["without_communication"], Value::Null);
    let without = &result["rn50"]["1n2g"]["without_communication"];
    assert_eq!((&without["runs_counted"], &without["efficiency"]), (&Value::from(3), &Value::from(1.0)));
    // 0.5625 / 0.5 - 1.
    let is_cost = |cost: f64| (cost - 0.125).abs() < 1e-9;
    assert!(without["communication_cost"].as_f64().is_some_and(is_cost), "{without}");
    assert_eq!(without["runs"][1]["log"], "no-communication/1n2g/rn50_b4_fp32_2.log");
    let csv = fs::read_to_string(folder.path().join("first_result.csv")).expect("written");
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let field = |line: usize, column: &str| {
        let place = lines[0].iter().position(|name| *name == column).expect(column);
        lines[line][place]
    };
    assert!(field(2, "communication_cost").parse().is_ok_and(is_cost), "{csv}");
    assert_eq!((field(2, "runs_without_communication"), field(1, "runs_without_communication")), ("3", ""));
    assert_eq!(field(1, "communication_cost"), "");
}

#[test]
fn baseline_speed_covers_all_ranks() {
    let folder = suite(1.0);
    let mut uneven = baseline(3, 0.5);
    for iteration in &mut uneven.iterations {
        iteration.step = vec![Seconds(1.0), Seconds(0.25)];
    }
    folder.run(&uneven);
    extract(&folder.path(), "");
    let text = fs::read_to_string(folder.path().join("first_result.json")).expect("written");
    let result = rows_by_case(&serde_json::from_str(&text).expect("JSON"));
    // 4 / 1 + 4 / 0.25, although the log contains 8 / 1.
    assert_eq!(result["rn50"]["1n2g"]["without_communication"]["runs"][2]["dlperf_speed"], 20.0);
}

#[test]
fn baseline_problems_are_reported_separately() {
    let folder = suite(1.0);
    let with = record("1n2g", 3, 0.5);
    folder.run(&with);
    for extension in ["log", "jsonl"] {
        let path = |root: &Path| root.join(format!("1n2g/rn50_b4_fp32_3.{extension}"));
        fs::rename(path(&folder.path()), path(&folder.path().join("no-communication"))).expect("moved");
    }
    let mut long = baseline(4, 0.5);
    let last = long.iterations[5].clone();
    long.iterations.resize(24, last);
    for (number, iteration) in (1..).zip(&mut long.iterations) {
        iteration.iteration = number;
        iteration.before_allreduce[1].0 *= 2.0;
    }
    long.header.config.iterations = 24;
    long.end.as_mut().expect("an end").iterations = 24;
    long.header.run = 1;
    folder.run(&long);
    let (status, stdout, stderr) = run(ringmark("extract").arg(folder.path()));
    assert_eq!(status, Some(1));
    expect![[r"
        not in the figures: no-communication/1n2g/rn50_b4_fp32_3.jsonl: contains a run with communication (mpi), but is in a folder of runs without it: move it back
        not in the figures: 1n1g: no run of 1n1g counts: speedup and efficiency are relative to 1n2g: sweep 1n1g as well
        no files written: DIR/first is not a sweep folder: choose one with --out
        error: the figures of DIR/first are not complete: see the 2 messages above
    "]].assert_eq(&without_folder(&stderr));
    let warning = "warning: 1n2g baseline: rank 1 on host a is a straggler: in 100.0 % of the \
                   iterations, 2.00 times the others' compute time: check for";
    assert!(stdout.contains(warning), "{stdout}");
}

/// Returns the rows that PyTorch's `diff.py` prints, computed independently: groups by index except the first, the 75th
/// and 95th percentile of `test` by linear interpolation, and how much lower than `base` they are.
fn rows(base: &DdpBenchmark, test: &DdpBenchmark) -> Vec<String> {
    let percentile = |group: &GroupResult, share: f64| {
        let mut sorted = group.measurements.clone();
        sorted.sort_by(f64::total_cmp);
        let place = share * (sorted.len() - 1) as f64;
        let rest = place - place.floor();
        sorted[place.floor() as usize] * (1.0 - rest) + sorted[place.ceil() as usize] * rest
    };
    let mut rows = Vec::new();
    for (base, test) in base.benchmark_results.iter().zip(&test.benchmark_results) {
        assert_eq!((&base.model, base.batch_size), (&test.model, test.batch_size), "or it is skipped");
        for (one, other) in base.result.iter().zip(&test.result).skip(1) {
            assert_eq!(one.ranks, other.ranks, "or it is skipped");
            let figures = [0.75, 0.95].map(|share| {
                let (one, other) = (percentile(one, share), percentile(other, share));
                let change = -100.0 * (other - one) / one;
                format!("{other:.3}s {}/s {change:+.1}%", (f64::from(test.batch_size) / other) as u64)
            });
            rows.push(format!("{} GPUs: {}", one.ranks.len(), figures.join(" ")));
        }
    }
    rows
}

#[test]
fn pytorch_diff_detects_a_changed_step_time() {
    let (base, test) = (benchmark(&suite(1.0).path()), benchmark(&suite(1.1).path()));
    // 1n2g: 0.5625 x 1.1 x (1.03, 1.04, 1.05, 1.06) in the first run, 1.02 times that in the second, of two ranks each;
    // by numpy.percentile 0.584842 and 0.592697, 0.657948 and 0.668993.
    let expected = ["1 GPUs: 0.585s 6/s -10.0% 0.593s 6/s -10.0%", "2 GPUs: 0.658s 6/s -10.0% 0.669s 5/s -10.0%"];
    assert_eq!(rows(&base, &test), expected, "and the first group is skipped");

    assert_eq!((base.pytorch_version.as_str(), base.cuda_version.as_deref()), ("2.11.0", None));
    assert_eq!(base.distributed_backend, "mpi");
    // 25 MB in MiB.
    assert_eq!(base.bucket_size, 25e6 / 1_048_576.0);
    let ours = base.ours.expect("ours");
    assert_eq!(
        [ours.precision, ours.image_size, ours.device, ours.profile],
        ["fp32", "64", "Processor of a laptop", "full"].map(str::to_owned)
    );
    let [model] = &base.benchmark_results[..] else { panic!("one group of conditions") };
    assert_eq!((model.model.as_str(), model.batch_size), ("resnet50", 4));
    let places: Vec<(usize, usize)> =
        model.result.iter().map(|group| (group.ranks.len(), group.measurements.len())).collect();
    // Ranks, and two runs of four iterations each after warm-up: 1n1g is the same without and with communication.
    assert_eq!(places, [(1, 8), (1, 8), (2, 16)]);
    assert_eq!(model.result[0], model.result[1]);
    let ringmark = model.ringmark.as_ref().expect("ours");
    let [without] = &ringmark.without_communication[..] else { panic!("of 1n2g alone") };
    assert_eq!((ringmark.dtype, without.ranks.as_slice(), without.measurements.len()), (Dtype::Fp32, &[0, 1][..], 16));
}

/// libtorch's build has a CUDA version on every machine.
#[test]
fn cuda_version_is_exported_only_for_gpu_runs() {
    for (device, version) in [(DeviceKind::Cpu, None), (DeviceKind::Cuda, Some("13.0"))] {
        let folder = Folder::new();
        let mut run = record("1n1g", 1, 0.5);
        run.header.environment.cuda_version = Some("13.0".to_owned());
        run.header.ranks[0].device = device;
        folder.run(&run);
        assert_eq!(benchmark(&folder.path()).cuda_version.as_deref(), version);
    }
}

#[test]
fn exported_fields_match_pytorch_diff() {
    let folder = suite(1.0);
    let file: Value = serde_json::from_str(&extract(&folder.path(), "--format pytorch-ddp")).expect("JSON");
    let names = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ");
    // Each of these is printed in a column of width 20, except the results.
    assert_eq!(
        names(&file),
        "benchmark_results bucket_size cuda_version device distributed_backend image_size precision profile pytorch_version"
    );
    let model = &file["benchmark_results"][0];
    assert_eq!(names(model), "batch_size model result ringmark");
    assert_eq!(names(&model["result"][2]), "case measurements ranks");
}

#[test]
fn exported_files_differ_in_the_requested_settings() {
    let exported = |overlap: Switch, iterations: u32| {
        let folder = Folder::new();
        for number in [1, 2] {
            for case in ["1n1g", "1n2g"] {
                let mut run = record(case, number, 0.5);
                run.header.config.overlap = overlap;
                run.header.config.iterations = iterations;
                run.iterations.truncate(iterations as usize);
                let end = run.end.as_mut().expect("a whole record");
                end.iterations = iterations;
                end.wall = Seconds(run.iterations.iter().map(|iteration| iteration.step[0].0).sum());
                folder.run(&run);
            }
        }
        folder.write("suite.json", extract(&folder.path(), "--format pytorch-ddp"));
        (folder.path().join("suite.json"), folder)
    };
    let whole = record("1n1g", 1, 0.5).header.config.iterations;
    let (on, _of_on) = exported(Switch::On, whole);
    let differences = |other: &Path| succeeds(ringmark("diff").args([&on, other]));
    let (off, _of_off) = exported(Switch::Off, whole);
    let of_overlap = differences(&off);
    assert!(of_overlap.contains("overlap") && of_overlap.contains("on") && of_overlap.contains("off"), "{of_overlap}");
    let (short, _of_short) = exported(Switch::On, whole - 1);
    let of_iterations = differences(&short);
    let counts = [whole, whole - 1].map(|count| count.to_string());
    assert!(
        of_iterations
            .lines()
            .any(|line| line.contains("iterations") && counts.iter().all(|count| line.contains(count))),
        "{of_iterations}"
    );
    let same = differences(&on);
    assert!(!same.contains("overlap") && !same.contains("iterations"), "{same}");
}

#[test]
fn single_rank_baseline_is_the_first_group() {
    let folder = suite(1.0);
    let mut alone = record("1n1g", 1, 0.25);
    alone.header.config.exchange.backend = BackendChoice::None;
    folder.run(&alone);
    let first = &benchmark(&folder.path()).benchmark_results[0].result[0];
    assert_eq!((first.ranks.len(), first.measurements.len()), (1, 4));
    let lines = extract(&folder.path(), "--format pytorch-ddp-lines");
    let labels: Vec<&str> = lines.lines().filter_map(|line| Some(line.split_once(":  p50:")?.0)).collect();
    assert_eq!(
        labels,
        ["   1 GPUs --   no ddp", "   1 GPUs --    1M/1G", "   2 GPUs --   no ddp", "   2 GPUs --    1M/2G"]
    );
}

#[test]
fn each_condition_is_a_group_up_to_the_file_limit() {
    let folder = suite(1.0);
    let mut half = record("1n1g", 3, 0.25);
    half.header.config.dtype = Dtype::Bf16;
    half.header.profile = RunProfile::Quick;
    folder.run(&half);
    let file = benchmark(&folder.path());
    let dtypes: Vec<Dtype> =
        file.benchmark_results.iter().filter_map(|model| Some(model.ringmark.as_ref()?.dtype)).collect();
    assert_eq!(dtypes, [Dtype::Fp32, Dtype::Bf16]);
    let ours = file.ours.expect("ours");
    assert_eq!((ours.precision.as_str(), ours.profile.as_str()), ("bf16 / fp32", "full / quick"));

    let refused = |folder: &Folder, words: &str| {
        let (status, stdout, stderr) = run(ringmark("extract --format pytorch-ddp").arg(folder.path()));
        assert_eq!((status, stdout.as_str()), (Some(1), ""));
        assert!(stderr.contains(words), "{stderr}");
    };
    half.header.config.exchange.bucket_mb = 5.0;
    folder.run(&half);
    refused(&folder, "first has runs of several bucket sizes, but PyTorch's file contains one");
    let logs = Folder::new();
    logs.write("1n1g/rn50_b128_fp32_1.log", dlperf_log(&[100.0; 120]));
    refused(&logs, "rn50 has only logs: PyTorch's file needs the version and bucket size");
    // The lines can be produced from logs alone.
    let lines = extract(&logs.path(), "--format pytorch-ddp-lines");
    assert!(lines.contains("   1 GPUs --   no ddp:  p50:  1.280s     100/s"), "{lines}");
}

#[test]
fn first_group_is_empty_without_a_single_rank() {
    let folder = suite(1.0);
    fs::remove_dir_all(folder.path().join("1n1g")).expect("removed");
    let (status, stdout, _) = run(ringmark("extract --format pytorch-ddp").arg(folder.path()));
    assert_eq!(status, Some(1), "there is no 1n1g to compare with");
    let file = DdpFile::read(stdout.as_bytes()).expect("PyTorch's schema").benchmark;
    let groups = &file.benchmark_results[0].result;
    assert_eq!((groups[0].measurements.len(), groups[1].ranks.len(), groups.len()), (0, 2, 2));
}

#[test]
fn suite_with_real_worker_yields_all_outputs() {
    let sandbox = Sandbox::real();
    let out = sandbox.path("out");
    let training = "--device cpu --model mxnet-lenet --batch-size 2 --iters 4 --warmup 1 --threads 1";
    let mut sweep = ringmark(&format!("sweep --suite ddp --no-doctor --hosts localhost:2 --runs 1 {training}"));
    let tokens = take_all_cores();
    let (status, stdout, stderr) = run(sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(&out));
    drop(tokens);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let alone = "each run is followed by its baseline, a run without communication, except for 1n1g, where one rank has no communication";
    assert!(stdout.contains(alone), "{stdout}");

    let read = |name: &str| {
        let name: RunName = name.parse().expect("a name");
        RunRecord::read(BufReader::new(File::open(name.record(&out)).expect("there"))).expect("sound")
    };
    let with = read("1n2g/mxnet-lenet_b2_fp32_1.log");
    let without = read("no-communication/1n2g/mxnet-lenet_b2_fp32_1.log");
    assert_eq!((with.header.backend, without.header.backend), (BackendName::SharedMemory, BackendName::None));
    assert!(without.header.started > with.header.started);
    let weights = |record: &RunRecord| record.end.clone().expect("an end").parameter_checksums;
    assert_eq!(weights(&with)[0], weights(&with)[1]);
    assert_ne!(weights(&without)[0], weights(&without)[1], "each rank trained alone");
    assert!(!out.join("no-communication/1n1g").exists());

    // The lines of the sweep itself, under the other section.
    let lines = extract(&out, "--format pytorch-ddp-lines");
    let place = lines.find("Benchmark: ").expect("head, what was measured, the lines");
    assert_eq!(lines[place..].lines().filter(|line| line.contains(" GPUs -- ")).count(), 3, "{lines}");
    assert!(stdout.contains(&lines[place..]), "{stdout}\n{lines}");
    let head = "PyTorch distributed benchmark suite\n-----------------------------------\n\n* PyTorch version: 2.11";
    assert!(stdout.contains(head) && lines.contains(head), "{stdout}\n{lines}");
    let file = benchmark(&out);
    assert!(file.pytorch_version.starts_with("2.11"), "{}", file.pytorch_version);
    assert_eq!(file.distributed_backend, "shared-memory");
    let lengths: Vec<usize> = file.benchmark_results[0].result.iter().map(|group| group.measurements.len()).collect();
    assert_eq!(lengths, [3, 3, 6]);
    let steps = |record: &RunRecord| record.iterations[1].step[1].0;
    let ringmark = file.benchmark_results[0].ringmark.as_ref().expect("ours");
    assert!(ringmark.without_communication[0].measurements.contains(&steps(&without)));
    assert!(file.benchmark_results[0].result[2].measurements.contains(&steps(&with)));
    // The number of runs may be followed by a warning mark.
    let table = extract(&out, "");
    let (_, costs) =
        table.split_once("Step with communication, and of the same ranks without it").expect("the table of costs");
    assert!(costs.lines().any(|line| line.starts_with("1n2g ") && line.contains(" 1/1")), "{table}");
}

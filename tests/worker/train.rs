//! Tests of `ringmark-worker`: real training of real networks under real mpirun, at sizes that take seconds, with one
//! thread per rank.
//!
//! PyTorch's results for the same training are in `golden/ten_steps.json`, created by the Python script next to it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::benchmark::train::{FingerprintedValues, RankDifference, RunEnd, RunRecord, TrainConfig};
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::benchmark::{Record, RunProfile, SweepRecord};
use ringmark_core::dimension::{BackendName, DeviceKind, Dtype, Layout, Model, Phase};
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::core_tokens::take_cores;
use crate::support::other_readers::dlperf_speeds;
use crate::support::prerequisite::not_tested;
use crate::support::runs::rows_by_case;
use crate::support::safetensors::{self, Stored, Tensors};
use crate::support::sandbox::{mpirun, wait_until, words};
use crate::support::worker;
use crate::support::worker_run::{
    AT_ONCE, Run, apart, assert_no_rank_left, batch, checksum, checksums, gradient_step, in_folder, kept, losses,
    process_of_rank, small_init,
};

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/ten_steps.json")).expect("JSON")
}

/// Returns the names and shapes of torchvision's state_dict.
fn names() -> Vec<(String, Vec<usize>)> {
    serde_json::from_value(golden()["names"].take()).expect("names and shapes")
}

/// Writes weights that PyTorch's run used as well, to a file like torchvision's.
fn init() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| kept("hashed.safetensors", |path| safetensors::write(path, &safetensors::hashed(&names()))))
}

// --- against PyTorch, and weights in files
// ------------------------------------------------------------------------------

#[test]
fn losses_match_pytorch_in_both_layouts() {
    let golden = &golden()["ten_steps"];
    for layout in Layout::KEYWORDS {
        let options = format!("{} --layout {layout}", golden["options"].as_str().expect("options"));
        let losses = losses(&Run::single_rank(&options).file("--init", init()).valid_record());
        let expected: Vec<f64> = serde_json::from_value(golden["losses"][layout].clone()).expect("losses");
        assert_eq!((losses.len(), expected.len()), (10, 10));
        for (number, (loss, expected)) in losses.iter().zip(&expected).enumerate() {
            let difference = (loss - expected).abs() / expected;
            assert!(difference <= 1e-4, "{layout}, iteration {}: {loss}, PyTorch {expected}", number + 1);
        }
    }
}

#[test]
fn weights_round_trip_with_torchvision_names() {
    let run = Run::single_rank(&format!("--iters 2 {AT_ONCE}")).file("--init", init()).save();
    let trained = run.finish();
    let weights = trained.weights();
    let shapes = |tensors: &Tensors| -> BTreeSet<_> {
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape.clone())).collect()
    };
    assert_eq!(shapes(&weights), BTreeSet::from_iter(names()));
    assert_eq!(weights["bn1.num_batches_tracked"], Stored::integers(&[], &[2]));
    let first = safetensors::read(init());
    // The gradient of a bias may be below its last bit.
    for (name, tensor) in weights.iter().filter(|(name, tensor)| tensor.shape.len() > 1 || name.contains("running")) {
        assert!(tensor.bytes != first[name].bytes, "{name} was not trained");
    }

    // Nothing changes: learning rate 0, frozen running statistics. Each layout reads the other's file.
    let still = format!("--iters 1 --lr 0 --freeze-batch-norm {AT_ONCE}");
    for layout in Layout::KEYWORDS {
        let options = format!("{still} --layout {layout}");
        let again = Run::single_rank(&options).file("--init", &trained.saved()).save().finish();
        // Includes the number of batches: frozen statistics count none.
        for (name, tensor) in &again.weights() {
            assert!(tensor == &weights[name], "{name} of {layout}");
        }
        // A checksum covers memory, whose order depends on the layout.
        if *layout == "nhwc" {
            let before = trained.record.as_ref().expect("a record");
            assert_eq!(checksum(&again.valid_record()), checksum(before));
        }
    }
    let on = Run::single_rank(&format!("--iters 3 {AT_ONCE}")).file("--init", &trained.saved()).save().finish();
    assert_eq!(on.weights()["bn1.num_batches_tracked"], Stored::integers(&[], &[5]));
}

#[test]
fn weights_of_another_network_are_rejected_by_tensor_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.safetensors");
    let refused = || Run::single_rank("--iters 1").file("--init", &path).refusal(1);

    expect![[r#"
        error: cannot read DIR/bad.safetensors as safetensors: No such file or directory (os error 2)
    "#]]
    .assert_eq(&refused());
    // The pipe has no writer, and the device has no end.
    mkfifo(&path, Mode::S_IRWXU).expect("made");
    let errors = ["--init", "--from-checkpoint", "--data"]
        .map(|option| Run::single_rank("--iters 1").file(option, &path).refusal(1));
    expect![[r#"
        error: cannot read DIR/bad.safetensors as safetensors: not a regular file (a pipe, socket or device)
        error: cannot read DIR/bad.safetensors as safetensors: not a regular file (a pipe, socket or device)
        error: cannot read DIR/bad.safetensors as safetensors: not a regular file (a pipe, socket or device)
    "#]]
    .assert_eq(&errors.concat());
    fs::remove_file(&path).expect("there");
    symlink("/dev/zero", &path).expect("linked");
    expect![[r#"
        error: cannot read DIR/bad.safetensors as safetensors: not a regular file (a pipe, socket or device)
    "#]]
    .assert_eq(&refused());
    fs::remove_file(&path).expect("there");
    // Files of torch.save, current and before PyTorch 1.6.
    let errors = [&b"PK\x03\x04\x00\x00"[..], b"\x80\x02\x8a\x0al"].map(|head| {
        fs::write(&path, head).expect("written");
        refused()
    });
    expect![[r#"
        error: DIR/bad.safetensors is a PyTorch pickle, not safetensors: convert it in Python with safetensors.torch.save_file(torch.load("DIR/bad.safetensors"), "weights.safetensors"); from a checkpoint, save only its state_dict (often torch.load(..)["model"] or ["state_dict"])
        error: DIR/bad.safetensors is a PyTorch pickle, not safetensors: convert it in Python with safetensors.torch.save_file(torch.load("DIR/bad.safetensors"), "weights.safetensors"); from a checkpoint, save only its state_dict (often torch.load(..)["model"] or ["state_dict"])
    "#]].assert_eq(&errors.concat());

    let conv1 = |shape: [usize; 4]| Stored::floats(&shape, (0..shape.iter().product::<usize>()).map(|_| 0.5));
    let mut tensors = Tensors::from([("conv1.weight".to_owned(), conv1([64, 3, 7, 7]))]);
    safetensors::write(&path, &tensors);
    expect![[r#"
        error: DIR/bad.safetensors has no tensor bn1.weight: expected torchvision's resnet50
    "#]]
    .assert_eq(&refused());

    tensors.insert("conv1.weight".to_owned(), conv1([64, 3, 3, 3]));
    safetensors::write(&path, &tensors);
    expect![[r#"
        error: conv1.weight has shape [64, 3, 3, 3] in DIR/bad.safetensors, but [64, 3, 7, 7] in the model
    "#]]
    .assert_eq(&refused());

    let mut tensors = safetensors::read(init());
    tensors.insert("layer5.conv1.weight".to_owned(), conv1([1, 1, 1, 1]));
    safetensors::write(&path, &tensors);
    expect![[r#"
        error: DIR/bad.safetensors contains layer5.conv1.weight, which resnet50 does not have
    "#]]
    .assert_eq(&refused());
}

// --- several ranks
// ------------------------------------------------------------------------------------------------------

#[test]
fn ranks_have_equal_weights_with_every_backend() {
    let run = |ranks: u32, options: &str| {
        let options = format!("--model resnet18 --iters 2 --lr 0.0001 --lr-warmup-iters 0 {options}");
        Run::ranks(ranks, &options).file("--init", small_init()).valid_record()
    };
    let two = run(2, "");
    assert_eq!((two.header.backend, two.header.case.to_string().as_str()), (BackendName::SharedMemory, "1n2g"));
    // The sum of two numbers does not depend on the order: the results are bit-identical.
    for (options, buckets) in [
        ("--overlap off", 3),
        ("--backend mpi", 3),
        // Former names of --backend and --chunk-kb.
        ("--collective mpi --overlap off --piece-kb 100", 3),
        ("--tail-mb 0", 2),
        ("--bucket-mb 0", 62),
        ("--bucket-mb 100000 --tail-mb 0", 1),
    ] {
        let other = run(2, options);
        assert_eq!(checksum(&other), checksum(&two), "{options}");
        assert_eq!(other.header.buckets.len(), buckets, "{options}");
    }
    // The comparison can fail: another seed makes a difference.
    assert_ne!(checksum(&run(2, "--seed 1")), checksum(&two));

    // The sum of three or more numbers depends on the order, but shared memory adds in rank order: every run and every
    // bucket size gives the same sum.
    let four = run(4, "");
    assert_ne!(checksum(&four), checksum(&two));
    assert_eq!(checksum(&run(4, "--bucket-mb 1 --overlap off")), checksum(&four));

    // Rank 1 of seed 0 draws the batch of seed 1, and no other rank does.
    let first = &four.iterations[0].loss;
    assert_eq!(&first[..2], &two.iterations[0].loss[..]);
    let alone = run(1, "--seed 1");
    assert_eq!((alone.header.backend, alone.iterations[0].loss[0]), (BackendName::Solo, first[1]));
    assert!((1..4).all(|rank| !first[..rank].contains(&first[rank])), "{first:?}");
}

#[test]
fn autotune_is_recorded_and_keeps_the_result() {
    let options = "--iters 2 --lr 0.0001 --lr-warmup-iters 0 --model";
    for (model, more, trials) in
        [("resnet18", "--autotune", 6), ("mxnet-lenet --image-size 28", "--autotune --backend mpi", 9)]
    {
        let options = format!("{options} {model}");
        let plain = Run::ranks(2, &options).valid_record();
        assert_eq!(plain.header.tuning, None);
        let record = Run::ranks(2, &format!("{options} {more}")).valid_record();
        assert_eq!(checksum(&record), checksum(&plain), "{more}");
        let tuning = record.header.tuning.expect("a search");
        assert_eq!(tuning.trials.len(), trials, "{more}");
        assert!(tuning.trials.iter().all(|trial| trial.step.0 > 0.0), "{tuning:?}");
        let chosen = tuning.trials[tuning.chosen].bucket_mb;
        let requested = Run::ranks(2, &format!("{options} --bucket-mb {chosen}")).valid_record();
        assert_eq!(record.header.buckets, requested.header.buckets, "{chosen} MB chosen");
    }
}

#[test]
fn ranks_diverge_without_exchange_and_the_run_is_valid() {
    let options = format!("--model resnet18 --iters 2 {AT_ONCE}");
    let record = Run::ranks(2, &format!("{options} --backend none")).valid_record();
    assert_eq!(record.header.backend, BackendName::None);
    assert_ne!(checksums(&record)[0], checksums(&record)[1]);
    // Each rank trains as if alone, with the learning rate divided by the number of ranks.
    let alone = Run::single_rank(&format!("{options} --lr 0.002")).valid_record();
    assert_eq!(checksums(&record)[0], checksum(&alone));
}

#[test]
fn gradient_of_n_ranks_matches_global_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("batch.safetensors");
    safetensors::write(&data, &batch(4));
    let run = |ranks: u32, images: u32, options: &str| gradient_step(&data, ranks, 0, images, options);
    let start = safetensors::read(small_init());
    let joined = run(1, 4, "");
    for (name, tensor) in &joined {
        let kept = name.contains("running") || name.contains("tracked");
        assert_eq!(kept, tensor.bytes == start[name].bytes, "{name}");
    }
    let [two, four] = [(2, 2), (4, 1)].map(|(ranks, images)| run(ranks, images, ""));
    for (ranks, weights) in [(2, &two), (4, &four)] {
        let difference = apart(weights, &joined, &start);
        assert!(difference < 1e-4, "{ranks} ranks: {difference}");
    }
    // Half the batch gives a different gradient.
    let half = apart(&run(1, 2, ""), &joined, &start);
    assert!(half > 0.05, "{half}");

    // An fp16 significand has 11 bits: the difference is small, but not zero.
    let halves = run(2, 2, "--wire fp16");
    let difference = apart(&halves, &two, &start);
    assert!((1e-6..2e-3).contains(&difference), "{difference}");
}

// --- precision
// ----------------------------------------------------------------------------------------------------------

#[test]
fn fp16_overflow_skips_one_step() {
    let run = |options: &str| {
        let model = "--model mxnet-lenet --image-size 28 --dtype fp16 --loss-scale 128";
        Run::ranks(2, &format!("{model} --lr 0.001 {AT_ONCE} {options}")).valid_record()
    };
    let one = run("--iters 1");
    let skipped = run("--iters 2 --inject overflow:2");
    let going_on = run("--iters 3 --inject overflow:2");
    assert_eq!(checksum(&skipped), checksum(&one));
    assert_ne!(checksum(&going_on), checksum(&one));
    let flags = |record: &RunRecord| -> Vec<(bool, f64)> {
        record.iterations.iter().map(|iteration| (iteration.skipped, iteration.loss_scale)).collect()
    };
    assert_eq!(flags(&one), [(false, 128.0)]);
    assert_eq!(flags(&going_on), [(false, 128.0), (true, 128.0), (false, 64.0)]);
    let end = going_on.end.expect("an end");
    assert_eq!((end.skipped_steps, end.iterations), (1, 3));

    let options = format!("--model mxnet-lenet --image-size 28 --iters 1 --dtype fp16 --inject overflow:1 {AT_ONCE}");
    let finished = Run::single_rank(&options).finish();
    assert_eq!(finished.status, Some(1), "{}", finished.stderr);
    let failure = finished.record.expect("a record of what was done").failure().expect("a failure");
    expect!["all updates (1) were skipped because of non-finite gradients: lower --loss-scale, or train longer"]
        .assert_eq(&failure);
}

/// Threads share every sum of a step in the same way in each run.
#[test]
fn training_is_bit_reproducible() {
    for dtype in ["fp32", "bf16"] {
        let [one, other] = [(); 2].map(|()| {
            let record = Run::single_rank(&format!("--model resnet18 --iters 3 --threads 2 --dtype {dtype} {AT_ONCE}"))
                .valid_record();
            (losses(&record), checksum(&record).to_owned())
        });
        assert_eq!(one, other, "{dtype}");
    }
}

#[test]
fn half_precision_follows_fp32() {
    let run = |dtype: &str| {
        let model = "--model resnet18 --image-size 64 --loss-scale 128";
        losses(&Run::single_rank(&format!("{model} --iters 2 --lr 0.005 --dtype {dtype} {AT_ONCE}")).valid_record())
    };
    let exact = run("fp32");
    assert!(exact[1] < 0.9 * exact[0], "{exact:?} does not fall");
    for (dtype, tolerance) in [("bf16", 0.05), ("fp16", 0.01)] {
        let losses = run(dtype);
        assert_ne!(losses, exact);
        for (loss, exact) in losses.iter().zip(&exact) {
            assert!((loss - exact).abs() < tolerance * exact, "{dtype}: {loss}, fp32 {exact}");
        }
    }
}

#[test]
fn overflow_without_loss_scaler_fails_the_run() {
    let failures = [1, 2].map(|ranks| {
        let finished = Run::ranks(ranks, "--model resnet18 --iters 3 --inject overflow:2").finish();
        assert_eq!(finished.status, Some(1), "{}", finished.stderr);
        let failure = finished.record.expect("a record of what was done").failure().expect("a failure");
        let message = format!("error: the run failed: {failure}\n");
        assert!(finished.stderr.contains(&message), "{}", finished.stderr);
        failure
    });
    expect![[r#"
        the loss of rank 0 is NaN in iteration 3: lower --lr or --loss-scale
        the loss of rank 0 is NaN in iteration 3: lower --lr or --loss-scale"#]]
    .assert_eq(&failures.join("\n"));
}

// --- a rank that fails
// --------------------------------------------------------------------------------------------------

#[test]
fn failed_rank_ends_the_job_and_is_named() {
    let run = Run::ranks(2, "--model resnet18 --iters 100000 --inject fail:2:1");
    let finished = run.finish();
    let error = &finished.stderr;
    assert_eq!(finished.status, Some(1), "{error}");
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("UTF-8");
    let message = format!("rank 1 of 2 on host {host}: failure injected in iteration 2 (--inject)\n");
    assert!(error.contains(&message), "{error}");
    assert!(!error.contains("rank 0 of 2"), "{error}");
    // Rank 0 waits for rank 1 in its second all-reduce by then; 100000 iterations would take hours.
    assert!(finished.took < Duration::from_secs(600), "{:?}", finished.took);
    assert_eq!(finished.record, None);
    assert_no_rank_left(finished.folder.path());
}

#[test]
fn killed_rank_ends_the_job_and_is_named() {
    let run = Run::ranks(2, "--model resnet18 --iters 100000");
    let finished = run.finish_after(|stdout, folder| {
        wait_until("the second iteration comes", || {
            fs::read_to_string(stdout).is_ok_and(|text| text.contains("Batch[2]"))
        });
        kill(process_of_rank(folder, 1), Signal::SIGKILL).expect("it runs");
    });
    assert_ne!(finished.status, Some(0), "{}", finished.stderr);
    // The killed rank cannot report its end; mpirun does.
    assert!(finished.stderr.contains("process rank 1 with PID"), "{}", finished.stderr);
    assert_no_rank_left(finished.folder.path());
}

// --- records
// ----------------------------------------------------------------------------------------------------

#[test]
fn ranks_sharing_a_core_sleep_in_mpi_waits() {
    // The dynamic loader logs which function each library is bound to, in one file per process.
    let run = Run::ranks(2, "--iters 1").variable("LD_DEBUG", "bindings");
    let (log, folder) = (run.path("bindings"), run.path(""));
    let finished = run.variable("LD_DEBUG_OUTPUT", log).variable("OMPI_MCA_mpi_yield_when_idle", "1").finish();
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let logs = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    let logs = logs.filter(|log| log.file_name().to_string_lossy().starts_with("bindings."));
    let text: String = logs.map(|log| fs::read_to_string(log.path()).expect("text")).collect();
    let is_mpi_s = |line: &&str| line.contains("/libopen-pal.so") && line.contains("`sched_yield'");
    // mpirun uses the library as well, but none of our functions.
    let ours = text.lines().filter(is_mpi_s).filter(|line| line.contains("/worker [0]: ")).count();
    assert_eq!(ours, 2, "{:?}", text.lines().filter(is_mpi_s).collect::<Vec<_>>());
}

#[test]
fn record_is_complete_and_contains_no_secrets() {
    let mut run = Run::ranks(2, "--iters 6 --warmup 2 --case 1n2g --run 3 --quick --dtype bf16 --seed -4");
    let secret = "gc3v8tq1";
    run.command.env("AWS_SECRET", secret).env("OMPI_MCA_plm_rsh_args", format!("-i {secret}"));
    run.command.env("NCCL_ALGO", "Ring");
    let path = run.path("record.jsonl");
    let finished = run.finish_after(move |_, _| ());
    let raw = fs::read_to_string(&path).expect("a record");
    for text in [&finished.stdout, &finished.stderr, &raw] {
        assert!(!text.contains(secret) && !text.contains("AWS_SECRET"), "{text}");
    }
    let log = finished.stdout.clone();
    let record = finished.valid_record();

    let header = &record.header;
    assert_eq!((header.case.to_string().as_str(), header.run, header.profile), ("1n2g", 3, RunProfile::Quick));
    let config = &header.config;
    assert_eq!((config.batch_size, config.iterations, config.warmup, config.seed), (2, 6, 2, -4));
    assert_eq!((config.dtype, config.image_size, config.record.as_deref()), (Dtype::Bf16, Some(32), Some(&*path)));
    assert_eq!(header.buckets.iter().map(|bucket| bucket.0).sum::<u64>(), 102_228_128);
    let environment = &header.environment;
    assert!(environment.libtorch_version.starts_with("2.11.0"), "{environment:?}");
    assert!(environment.mpi_version.starts_with("Open MPI"), "{environment:?}");
    assert_eq!(environment.cuda_missing.as_deref(), Some("--device cpu was requested"));
    assert_eq!(environment.variables["NCCL_ALGO"], "Ring");
    assert_eq!(environment.variables["OMP_NUM_THREADS"], "1");
    for (rank, place) in header.ranks.iter().enumerate() {
        assert_eq!((place.rank as usize, place.local_rank as usize, place.threads), (rank, rank, 1));
        assert_eq!(place.device, DeviceKind::Cpu);
    }
    assert_ne!(header.ranks[0].process, header.ranks[1].process);

    let end = record.end.as_ref().expect("an end");
    assert_eq!((end.iterations, end.skipped_steps, end.peak_memory.len()), (6, 0, 2));
    // Weights, gradients and momenta alone take 307 MB.
    assert!(end.peak_memory.iter().all(|memory| (300_000_000..8_000_000_000).contains(&memory.0)), "{end:?}");
    let steps: f64 = record.iterations.iter().map(|iteration| iteration.step[0].0).sum();
    assert!(steps <= end.wall.0 && end.wall.0 < steps + 1.0, "{steps} {end:?}");
    let mut waited = 0.0;
    for iteration in &record.iterations {
        for rank in 0..2 {
            // No input is read.
            assert_eq!(iteration.phases[Phase::Input][rank].0, 0.0);
            let always = iteration.phases.iter().filter(|(phase, _)| phase.is_always());
            let parts: Vec<_> = always.map(|(_, times)| times).collect();
            assert!(parts.iter().all(|part| part[rank].0 > 0.0), "{iteration:?}");
            // The first bucket contains the last layers, the last one completes all gradients.
            let own = iteration.before_allreduce[rank].0;
            assert!(own > parts[0][rank].0 && own < parts[0][rank].0 + parts[1][rank].0, "{own}: {iteration:?}");
            let (sum, step) = (parts.iter().map(|part| part[rank].0).sum::<f64>(), iteration.step[rank].0);
            // The rest is the loop itself and a line of the log.
            assert!(sum <= step * (1.0 + 1e-9) && sum > 0.5 * step, "{sum} of {step}: {iteration:?}");
            waited += iteration.phases[Phase::ExposedAllreduce][rank].0;
        }
    }
    assert!(waited > 0.01 * steps, "an all-reduce of 102 MB takes time: {waited} of {steps}");
    let [host] = end.host_use.as_slice() else { panic!("{end:?}") };
    assert_eq!(host.host, header.ranks[0].host);
    assert!(host.cores >= 1 && (host.elapsed.0 - end.wall.0).abs() < 1.0, "{end:?}");
    assert_eq!(end.rank_use.len(), 2);
    for used in &end.rank_use {
        // One thread, in addition to MPI's sleeping threads; the counters have a resolution of 0.01 s.
        assert!(used.core_time.0 > 0.0 && used.core_time.0 < 1.5 * host.elapsed.0 + 0.1, "{end:?}");
    }

    assert_log_fits(&log, &record);
}

/// Checks the environment lines, then DLPerf's lines with the record's speeds.
fn assert_log_fits(log: &str, record: &RunRecord) {
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], concat!("# ringmark ", env!("CARGO_PKG_VERSION"), " ResNet50-v1b 1n2g run 3"));
    assert_eq!(lines[1], "# quick profile: for a first impression, not a reliable result");
    let first = lines.iter().position(|line| line.contains("Epoch[0]")).expect("an iteration");
    assert!(lines[..first].iter().all(|line| line.starts_with("# ")), "{log}");
    for part in [
        "# libtorch 2.11.0",
        "# CUDA not used: ",
        "# rank 1: host ",
        "# NCCL_ALGO=Ring",
        "# gradients: 102228128 bytes in",
    ] {
        assert!(lines[..first].iter().any(|line| line.starts_with(part)), "{part}: {log}");
    }
    let speeds = dlperf_speeds(log).expect("DLPerf's extractor reads every line");
    assert_eq!(speeds.len(), record.iterations.len());
    for (iteration, speed) in record.iterations.iter().zip(speeds) {
        let recorded = 4.0 / iteration.step[0].0;
        assert!((speed - recorded).abs() < 0.0051, "{speed} {recorded}");
    }
    let (counted, warmup) = (record.iterations.iter(), record.header.config.warmup as usize);
    let counted: Vec<f64> = counted.skip(warmup).map(|iteration| 4.0 / iteration.step[0].0).collect();
    let mean = counted.iter().sum::<f64>() / counted.len() as f64;
    let speed = record.speed(warmup).expect("iterations");
    let speed = format!("# speed: {:.2} images/s; rates by iteration: mean {mean:.2}, CV ", speed.0);
    let length = format!("# {} measured + {warmup} warm-up iterations in ", counted.len());
    for closing in [&speed, &length] {
        assert!(lines.iter().any(|line| line.starts_with(closing)), "{closing}: {log}");
    }
}

#[test]
fn sweep_of_the_real_worker_produces_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let ringmark = |options: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringmark"));
        command.args(words(options));
        command
    };
    let options = "sweep --device cpu --hosts localhost:2 --cases 1n1g,1n2g --runs 2 --model resnet18 --batch-size 2 \
                   --image-size 32 --iters 4 --warmup 1 --threads 1";
    let mut sweep = ringmark(options);
    sweep.arg("--worker").arg(in_folder(&folder)).arg("--out").arg(&out).env("OMP_NUM_THREADS", "1");
    let sweep = Run { command: sweep, folder, ranks: 2 }.finish();
    assert_eq!(sweep.status, Some(0), "{}", sweep.stderr);
    let extract = ringmark("extract").arg(&out).output().expect("starts");
    assert!(extract.status.success(), "{}", String::from_utf8_lossy(&extract.stderr));

    let result = fs::read_to_string(out.join("out_result.json")).expect("a result");
    let result = rows_by_case(&serde_json::from_str(&result).expect("JSON"));
    let median_of = |case: &str| {
        let speed = |run: u32| {
            let path = out.join(case).join(format!("resnet18_b2_fp32_{run}.jsonl"));
            let record = RunRecord::read(BufReader::new(File::open(path).expect("a record"))).expect("a record");
            assert_eq!((record.failure(), record.header.run, record.iterations.len()), (None, run, 4));
            record.speed(1).expect("iterations").0
        };
        (speed(1) + speed(2)) / 2.0
    };
    let single = median_of("1n1g");
    for case in ["1n1g", "1n2g"] {
        let figures = &result["resnet18"][case];
        let number = |name: &str| figures[name].as_f64().expect(name);
        assert_eq!(number("units_per_second"), median_of(case), "{figures}");
        assert_eq!(number("speedup_over_base"), median_of(case) / single, "{figures}");
        assert_eq!(figures["batch_size_per_device"], 2);
    }
}

/// Own compute time ends before the first sum, independent of the backend, or with backward.
#[test]
fn compute_time_is_measured_with_every_backend() {
    for options in ["--backend mpi", "--backend none", "--bucket-mb 1000"] {
        let record = Run::ranks(2, &format!("--model resnet18 --iters 3 {options}")).valid_record();
        for iteration in &record.iterations {
            let own = &iteration.before_allreduce;
            assert!(
                own.iter().zip(&iteration.phases[Phase::Forward]).all(|(own, forward)| own.0 > forward.0),
                "{iteration:?}"
            );
        }
    }
    for iteration in &Run::ranks(2, "--model resnet18 --iters 3 --overlap off").valid_record().iterations {
        for rank in 0..2 {
            let whole = iteration.phases[Phase::Forward][rank].0 + iteration.phases[Phase::Backward][rank].0;
            assert!((iteration.before_allreduce[rank].0 - whole).abs() < 1e-9, "{iteration:?}");
        }
    }
}

#[test]
fn straggler_is_named_in_log_record_and_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let mut sweep = Command::new(env!("CARGO_BIN_EXE_ringmark"));
    // Twenty times a rank's forward is more than other load on this machine adds to the other rank's.
    sweep.args(words(
        "sweep --device cpu --hosts localhost:2 --cases 1n2g --runs 1 --model resnet18 --batch-size 2 --image-size 32 \
         --iters 24 --warmup 4 --threads 1 --inject slow:1:2000",
    ));
    sweep.arg("--worker").arg(in_folder(&folder)).arg("--out").arg(&out).env("OMP_NUM_THREADS", "1");
    let sweep = Run { command: sweep, folder, ranks: 2 }.finish();
    assert_eq!(sweep.status, Some(0), "{}", sweep.stderr);

    let path = out.join("1n2g/resnet18_b2_fp32_1");
    let record = File::open(path.with_extension("jsonl")).expect("a record");
    let record = RunRecord::read(BufReader::new(record)).expect("a record");
    let end = record.end.as_ref().expect("an end");
    if end.host_use[0].cores_of_ranks < 2 {
        not_tested("two ranks take turns on one core");
        return;
    }
    let named: Vec<_> = end.warnings.iter().filter(|warning| warning.kind == WarningKind::Straggler).collect();
    let [warning] = named.as_slice() else { panic!("{:?}", record.iterations) };
    let about = format!("rank 1 on host {}", record.header.ranks[1].host);
    assert_eq!(warning.about, about);
    let text = &warning.text;
    assert!(text.starts_with(&format!("{about} is a straggler: in ")), "{text}");
    // The fast rank waits for the slow one.
    let exposed =
        |rank: usize| -> f64 { record.iterations.iter().map(|one| one.phases[Phase::ExposedAllreduce][rank].0).sum() };
    assert!(exposed(0) > exposed(1), "{} {}", exposed(0), exposed(1));

    let log = fs::read_to_string(path.with_extension("log")).expect("a log");
    assert!(log.contains(&format!("\n# warning: {text}\n")), "{log}");
    assert!(sweep.stdout.contains(&format!("\n    warning: {text}\n")), "{}", sweep.stdout);
    let extract = Command::new(env!("CARGO_BIN_EXE_ringmark")).arg("extract").arg(&out).output().expect("starts");
    let table = String::from_utf8(extract.stdout).expect("UTF-8");
    assert!(table.contains(&format!("\nwarning: 1n2g: {text}\n")), "{table}");
    let row = table.lines().find(|line| line.starts_with("1n2g")).expect("a row");
    assert_eq!(row.split_whitespace().nth(2), Some("1/1!"), "{table}");
    for output in [&log, &sweep.stdout, &table] {
        assert!(!output.contains("rank 0 on host"), "{output}");
    }
}

#[test]
fn flipped_bit_names_rank_and_iteration() {
    let run = |ranks: u32, more: &str| {
        let options = format!("--model mxnet-lenet --image-size 28 --iters 5 --fingerprint --overlap off {more}");
        Run::ranks(ranks, &options).valid_record().end.expect("an end")
    };
    let fingerprints = |end: &RunEnd| end.fingerprints.clone().expect("recorded");
    let good = run(3, "");
    let expected = fingerprints(&good);
    assert_eq!((expected.gradients.len(), expected.weights.len(), &expected.difference), (5, 5, &None));
    assert_ne!(expected.gradients[0], expected.gradients[1]);
    assert!(good.warnings.iter().all(|warning| warning.kind != WarningKind::Corruption), "{:?}", good.warnings);
    assert_eq!(fingerprints(&run(3, "--backend mpi")).gradients[..1], expected.gradients[..1], "the same batch");
    assert_eq!(fingerprints(&run(3, "")), expected, "repeats to the bit");

    let flipped = run(3, "--inject flip:3:1:20");
    let found = fingerprints(&flipped);
    let difference = |iteration, ranks: &[u32]| {
        Some(RankDifference { values: FingerprintedValues::Gradients, iteration, ranks: ranks.to_vec() })
    };
    assert_eq!(found.difference, difference(3, &[1]));
    assert_eq!((&found.gradients[..3], &found.weights[..2]), (&expected.gradients[..3], &expected.weights[..2]));
    let warning = flipped.warnings.iter().find(|warning| warning.kind == WarningKind::Corruption).expect("a warning");
    assert!(warning.about.starts_with("rank 1 on host "), "{warning:?}");
    assert!(warning.text.contains(" differs from 2 other ranks in gradients in iteration 3: "), "{warning:?}");

    assert_eq!(fingerprints(&run(2, "--inject flip:3:1:20")).difference, difference(3, &[0, 1]), "no majority");
    assert_eq!(fingerprints(&run(3, "--wire fp16 --inject flip:2:2:0")).difference, difference(2, &[2]));
}

// --- other networks, and other benchmarks
// -----------------------------------------------------------------------------

#[test]
fn other_network_is_named_in_log_and_record() {
    let finished = Run::ranks(2, "--iters 2 --model resnet18 --case 1n2g").finish();
    let title = concat!("# ringmark ", env!("CARGO_PKG_VERSION"), " ResNet-18 1n2g run 1\n");
    assert!(finished.stdout.starts_with(title), "{}", finished.stdout);
    let record = finished.valid_record();
    assert_eq!(record.header.config.model, Model::Resnet18);
    assert_eq!(record.header.buckets.iter().map(|bucket| bucket.0).sum::<u64>(), 4 * 11_689_512);
    checksum(&record);
    // Weights of another network are rejected at the first tensor that differs.
    let error = Run::single_rank("--iters 1 --model resnet18").file("--init", init()).refusal(1);
    expect![[r#"
        error: layer1.0.conv1.weight has shape [64, 64, 1, 1] in INIT, but [64, 64, 3, 3] in the model
    "#]]
    .assert_eq(&error.replace(&init().display().to_string(), "INIT"));
}

/// Runs `score` and reads its record; `program` starts this number of ranks of the worker.
fn score(mut program: Command, folder: &TempDir, ranks: u32, options: &str) -> (String, ScoreRecord) {
    let _tokens = take_cores(ranks);
    let path = folder.path().join("score.json");
    program.arg("score").args(words("--device cpu --threads 1 --image-size 32 --batch-size 2"));
    program.args(words(options)).arg("--record").arg(&path).env("OMP_NUM_THREADS", "1");
    let output = program.stdin(Stdio::null()).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = ScoreRecord::read(BufReader::new(File::open(path).expect("a record"))).expect("a record");
    (String::from_utf8(output.stdout).expect("UTF-8"), record)
}

#[test]
fn rank_memory_matches_the_estimate() {
    // bf16 uses smaller images: processors without bf16 instructions take minutes.
    for (model, options) in [
        (Model::Resnet18, "--batch-size 16 --image-size 224 --dtype fp32"),
        (Model::Resnet18, "--batch-size 16 --image-size 64 --dtype bf16"),
        (Model::Resnet50V1b, "--batch-size 8 --image-size 64 --dtype fp32"),
    ] {
        // Momenta are allocated by the first update, so that the second iteration uses as much memory as any later one.
        let options = format!("--model {model} --iters 2 {options}");
        let record = Run::single_rank(&options).finish().record.expect("a record");
        let size = record.header.config.sample_size();
        let TrainConfig { dtype, layout, batch_size, .. } = record.header.config;
        let facts = model.facts();
        let expected = facts
            .training_memory
            .at(dtype, layout.resolve(dtype, DeviceKind::Cpu), facts.size_ratio(size))
            .for_batch(batch_size)
            .0;
        let peak = record.end.expect("an end").peak_memory[0].0;
        assert!((peak..peak + peak / 2).contains(&expected), "{options}: {expected} expected, {peak} taken");
    }
}

#[test]
fn score_prints_mxnet_line_and_records_passes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, record) =
        score(Command::new(in_folder(&folder)), &folder, 1, "--model resnet18 --dtype bf16 --run 2 --quick");
    assert_eq!((record.failure(), record.label().run, record.label().profile), (None, 2, RunProfile::Quick));
    assert_eq!((record.config.iterations, record.config.warmup, record.config.model), (10, 5, Model::Resnet18));
    let [passes] = record.seconds.as_slice() else { panic!("{record:?}") };
    assert!(passes.len() == 10 && passes.iter().all(|pass| pass.0 > 0.0), "{record:?}");
    let elapsed: f64 = passes.iter().map(|pass| pass.0).sum();
    let line = format!("INFO:root:batch size  2, dtype bfloat16, images/sec: {:.6}", 10.0 * 2.0 / elapsed);
    for line in ["INFO:root:network: resnet18", "INFO:root:device: cpu(0)", &line] {
        assert!(log.lines().any(|printed| printed == line), "{line}: {log}");
    }
    let title = concat!("# ringmark ", env!("CARGO_PKG_VERSION"), " ResNet-18 inference 1n1g run 2\n# quick profile");
    assert!(log.starts_with(title), "{log}");
    assert_eq!((record.host_use.len(), record.rank_use.len(), record.peak_memory.len()), (1, 1, 1));
}

#[test]
fn ranks_score_concurrently() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = mpirun(2);
    command.arg(in_folder(&folder));
    let (log, record) = score(command, &folder, 2, "--iters 3 --warmup 0 --case 1n2g");
    assert_eq!((record.failure(), record.ranks.len(), record.seconds.len()), (None, 2, 2));
    let of_rank = |rank: usize| record.seconds[rank].iter().map(|pass| pass.0).sum::<f64>();
    let speed = record.speed().expect("passes").0;
    assert!((speed - 2.0 * 2.0 * 3.0 / of_rank(0).max(of_rank(1))).abs() < 1e-9, "{record:?}");
    assert!(log.contains("# images/sec counts the images of all 2 ranks"), "{log}");
    assert_eq!(log.matches("INFO:root:batch size").count(), 1, "{log}");
}

// --- rejected options, and linked libraries
// --------------------------------------------------------------------------------

#[test]
fn invalid_options_are_rejected_with_a_reason() {
    let errors = [
        ("--batch-size 0", 2),
        ("--iters 3 --warmup 3", 2),
        ("--backend nccl", 2),
        ("--dtype fp8", 2),
        ("--inject fail:9", 2),
        ("--dtype tf32", 1),
        // Situation of ranks that were started by another MPI's mpirun.
        ("--case 1n2g", 1),
    ]
    .map(|(options, status)| Run::single_rank(options).refusal(status));
    expect![[r#"
        error: --batch-size 0 is out of range: choose 1 to 65536
        error: --warmup 3 leaves none of --iters 3 to measure: choose a smaller --warmup
        error: --backend nccl needs a GPU, but --device is cpu: use --backend shared-memory, mpi or auto
        error: invalid value 'fp8' for '--dtype <TYPE>'
          tip: use fp32, tf32, fp16 or bf16
        error: invalid value 'fail:9' for '--inject <FAULT>': "fail:9" is not one of fail:ITERATION:RANK, overflow:ITERATION, flip:ITERATION:RANK:BIT, slow:RANK:PERCENT, kill:ITERATION:RANK, stop:ITERATION:RANK, link:ITERATION:RANK, random:MTBF:SEED:KINDS

        For more information, try '--help'.
        error: --dtype tf32 needs a GPU of compute capability 8.0 or higher, but this rank uses the CPU: use fp32 or bf16
        error: case 1n2g has 2 ranks, but MPI started 1: use the mpirun of the MPI library that ringmark-worker links (see ldd), or srun with its PMIx
    "#]].assert_eq(&errors.concat());
}

#[test]
fn missing_cuda_is_rejected_with_a_reason() {
    if Path::new("/dev/nvidiactl").exists() {
        not_tested("this machine has an NVIDIA driver");
        return;
    }
    let error = Run::single_rank("--device cuda").refused(1);
    assert!(error.starts_with("error: cannot use --device cuda: no NVIDIA driver (libcuda.so.1"), "{error}");
    let error = Run::single_rank("--device auto --backend nccl").refusal(1);
    expect![[r#"
        error: --backend nccl needs a GPU, but this rank uses the CPU: use shared-memory, mpi or auto
    "#]]
    .assert_eq(&error);
    let record = Run::single_rank("--device auto --model resnet18 --iters 1").valid_record();
    let missing = record.header.environment.cuda_missing.expect("a reason");
    assert!(missing.starts_with("no NVIDIA driver"), "{missing}");
}

#[test]
fn mismatched_batch_file_is_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("batch.safetensors");
    let refused = |tensors: &Tensors, options: &str| {
        safetensors::write(&path, tensors);
        Run::single_rank(&format!("--model resnet18 {options}")).file("--data", &path).refusal(1)
    };
    let error = refused(&batch(1), "--batch-size 2");
    expect![[r#"
        error: DIR/batch.safetensors has 1 images, but rank 0 needs 0 to 1: use a smaller --batch-size
    "#]]
    .assert_eq(&error);
    let error = refused(&batch(2), "--image-size 64");
    expect![[r#"
        error: DIR/batch.safetensors: images have shape [2, 3, 32, 32] and labels [2], expected (n, 3, 64, 64) and (n): set --image-size to match
    "#]].assert_eq(&error);
    let mut tensors = batch(2);
    tensors.insert("labels".to_owned(), Stored::integers(&[2], &[5, 1000]));
    let error = refused(&tensors, "");
    expect![[r#"
        error: labels range from 5 to 1000, expected 0 to 999
    "#]]
    .assert_eq(&error);
    tensors.remove("labels");
    let error = refused(&tensors, "");
    expect![[r#"
        error: DIR/batch.safetensors has no tensor "labels"
    "#]]
    .assert_eq(&error);
}

#[test]
fn programs_link_only_their_own_libraries() {
    let needed = |program: &Path| -> Vec<String> {
        let output = Command::new("readelf").arg("-d").arg(program).output().expect("binutils");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let name = |line: &str| Some(line.split_once("(NEEDED)")?.1.split_once('[')?.1.split_once(']')?.0.to_owned());
        text.lines().filter_map(name).collect()
    };
    let has = |libraries: &[String], name: &str| libraries.iter().any(|library| library.contains(name));
    let launcher = needed(Path::new(env!("CARGO_BIN_EXE_ringmark")));
    assert!(has(&launcher, "libc.so"), "{launcher:?}");
    for name in ["torch", "c10", "mpi", "cuda", "nccl", "stdc++"] {
        assert!(!has(&launcher, name), "{launcher:?}");
    }
    let worker = needed(&worker());
    assert!(has(&worker, "libtorch_cpu.so") && has(&worker, "libmpi.so"), "{worker:?}");
    for name in ["cuda", "nccl", "cudnn", "cublas"] {
        assert!(!has(&worker, name), "{worker:?}");
    }
}

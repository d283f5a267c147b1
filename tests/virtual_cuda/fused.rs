//! Training with fused kernels on virtual GPUs: results, and the kernels that a run selects. `kernels` tests each
//! kernel separately.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{BackendName, KernelsChoice};

use crate::support::virtual_gpu::{
    RATE, SAME_KERNELS, SMALL, Virtual, assert_near, assert_near_for_a_seed, difference, libraries,
};
use crate::support::worker_run::{AT_ONCE, Run, apart, checksum};

/// Exact fp32: a virtual GPU does not round to TF32. Fused kernels support TF32 and IEEE fp32.
const EXACT: &str = "--dtype tf32 --layout nhwc";

/// A network with bottlenecks, which have 1x1 convolutions with 64 inputs.
const BOTTLENECKS: &str = "--model resnet50 --image-size 64 --batch-size 4";

/// The same network with the least work, for tests of names and not of values.
const FEW_PIXELS: &str = "--model resnet50 --image-size 32 --batch-size 2";

fn kernels(record: &RunRecord) -> KernelsChoice {
    record.header.config.kernels
}

/// Returns the record of a successful run, its log, and the names of the kernels that it launched.
fn traced(run: Virtual) -> (RunRecord, String, String) {
    let calls = run.path("calls");
    let (finished, reports) = run.set("CALLS", calls.display()).finish();
    assert!(reports.iter().all(|report| report.races == 0), "{}", finished.stderr);
    let log = finished.stdout.clone();
    let text = fs::read_to_string(&calls).expect("calls");
    (finished.valid_record(), log, text)
}

#[test]
fn fused_kernels_match_cpus() {
    // The deeper network is chaotic after its first update: see below.
    let small = format!("{SMALL} --batch-size 4 --iters 3");
    let bottlenecks = format!("{BOTTLENECKS} --iters 1");
    for (ranks, model) in [(1, &small), (2, &small), (1, &bottlenecks)] {
        let options = format!("{model} {RATE} {AT_ONCE}");
        let is_near = |seed| {
            let options = format!("{options} --seed {seed}");
            let cpu = Run::ranks(ranks, &format!("--device cpu --dtype fp32 --layout nhwc {options}"))
                .finish()
                .valid_record();
            let gpu = Virtual::ranks(ranks, &format!("{EXACT} --kernels fused {options}")).valid_record();
            // Panics if the ranks' weights differ.
            checksum(&gpu);
            assert_eq!(gpu.header.backend, if ranks == 1 { BackendName::Solo } else { BackendName::Nccl });
            assert_eq!((kernels(&gpu), kernels(&cpu)), (KernelsChoice::Fused, KernelsChoice::Auto));
            difference(&gpu, &cpu) <= 1e-5
        };
        assert_near_for_a_seed(is_near, &format!("{ranks} ranks, {model}"));
    }
}

/// An update with a learning rate of 1 equals the gradient. A channel of the last layers has at least 64 values:
/// with few, 1 / sigma amplifies rounding errors. Rounding may also move a value across ReLU's corner. If it does
/// not, the gradient is within 1e-4 of its length (3e-6 for VGG-11). In the deeper networks it does for
/// every seed; there the limit is the difference that libtorch's kernels have on the same GPU.
#[test]
fn network_gradients_match_cpus() {
    for (model, size, batch) in [
        ("resnet50", 64, 16),
        ("resnext50_32x4d", 64, 16),
        ("vgg11_bn", 64, 16),
        ("inception_v3", 107, 8),
        // Normalizes the images with parameters.
        ("mxnet-resnet-50", 64, 16),
    ] {
        let is_near = |seed| {
            let options = format!("--model {model} --image-size {size} --batch-size {batch} --lr 1");
            let cpu = |options: &str| {
                let options =
                    format!("--device cpu --dtype fp32 --layout nhwc {options} --seed {seed} --iters 1 {AT_ONCE}");
                Run::single_rank(&options).save().finish().weights()
            };
            // The initial weights do not depend on the images.
            let first = format!("--model {model} --image-size {size} --batch-size 1 --lr 0 --freeze-batch-norm");
            let gpu = |kernels: &str| {
                let options = format!("{EXACT} --kernels {kernels} {options} --seed {seed} --iters 1 {AT_ONCE}");
                let (finished, reports) = Virtual::ranks(1, &options).save().finish();
                assert!(reports.iter().all(|report| report.races == 0), "{}", finished.stderr);
                finished.weights()
            };
            let (start, expected) = (cpu(&first), cpu(&options));
            let distance = apart(&gpu("fused"), &expected, &start);
            distance <= 1e-4 || distance <= 1.5 * apart(&gpu("libtorch"), &expected, &start)
        };
        assert_near_for_a_seed(is_near, model);
    }
}

#[test]
fn each_kernels_choice_runs_its_own_kernels() {
    let run = |choice: &str, options: &str| {
        let options = format!("--layout nhwc --iters 1 {AT_ONCE} --kernels {choice} {options}");
        traced(Virtual::single_rank(&options).variable(SAME_KERNELS.0, SAME_KERNELS.1))
    };
    let mut losses = Vec::new();
    for (choice, expected, has_norm, has_pointwise) in [
        ("libtorch", KernelsChoice::Libtorch, false, false),
        ("norm", KernelsChoice::Norm, true, false),
        ("fused", KernelsChoice::Fused, true, true),
        ("auto", KernelsChoice::Fused, true, true),
    ] {
        let (record, _, calls) = run(choice, &format!("{BOTTLENECKS} --dtype bf16"));
        assert_eq!(kernels(&record), expected);
        for (name, is_there) in [
            ("batch_norm_statistics", has_norm),
            ("batch_norm_apply_relu_max_pool", has_norm),
            ("batch_norm_gradients_sum_relu_two", has_norm),
            ("pointwise_apply_linear_64", has_pointwise),
            ("pointwise_gradients_relu_two", has_pointwise),
        ] {
            assert_eq!(calls.contains(name), is_there, "{choice}: {name}");
        }
        assert_eq!(calls.contains("aten::native_batch_norm"), !has_norm, "{choice}");
        losses.push(record.iterations[0].loss[0]);
    }
    // Values differ by the rounding of bf16, which has three digits.
    assert_near(losses[2], losses[1], 0.03, "fused against norm");
    assert_near(losses[1], losses[0], 0.03, "norm against libtorch");
    assert_eq!(losses[3], losses[2]);
    // Tensor cores do not support IEEE fp32. Products in TF32 are computed by cuBLAS, and there are none with a
    // shortcut.
    for (dtype, is_pointwise) in [("fp32", false), ("tf32", true)] {
        let (record, _, calls) = run("fused", &format!("{FEW_PIXELS} --dtype {dtype}"));
        assert_eq!(kernels(&record), KernelsChoice::Fused);
        let has = |name: &str| calls.contains(name);
        assert_eq!((has("pointwise_gradient_matrix"), has("pointwise_apply")), (is_pointwise, false), "{dtype}");
    }
    // The only layout of libtorch's kernels.
    let options = format!("{SMALL} --iters 1 --layout nchw");
    let (record, log, calls) = traced(Virtual::single_rank(&options));
    assert_eq!((kernels(&record), calls.contains("batch_norm_statistics")), (KernelsChoice::Libtorch, false));
    assert!(!log.contains("libtorch kernels"), "{log}");
    for choice in ["fused", "norm"] {
        let error = Virtual::single_rank(&format!("{options} --kernels {choice}")).refused(1);
        assert!(error.contains(&format!("--kernels {choice} needs --layout nhwc")), "{error}");
    }
}

#[test]
fn missing_compiler_falls_back_to_libtorch_kernels() {
    // Two files with the compiler's names that cannot be loaded, ahead of other installations.
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(libraries()).expect("a folder") {
        let path = entry.expect("an entry").path();
        symlink(&path, folder.path().join(path.file_name().expect("a name"))).expect("linked");
    }
    for name in ["libnvrtc.so.13", "libnvrtc.so.12"] {
        let path = folder.path().join(name);
        let _ = fs::remove_file(&path);
        fs::write(path, "").expect("written");
    }
    let run = |options: &str| {
        Virtual::ranks(2, &format!("{SMALL} --layout nhwc --iters 1 {AT_ONCE} {options}"))
            .variable("LD_LIBRARY_PATH", folder.path())
    };
    let reason = "NVRTC not found (libnvrtc.so of CUDA)";
    let (record, log, calls) = traced(run(""));
    let remark = format!("no fused kernels, using slower libtorch kernels: rank 0: {reason}");
    assert_eq!((kernels(&record), calls.contains("batch_norm_statistics")), (KernelsChoice::Libtorch, false));
    assert!(record.header.environment.cuda_remarks.contains(&remark), "{:?}", record.header.environment);
    assert!(log.contains(&remark), "{log}");
    let error = run("--kernels fused").refused(1);
    let message = format!("cannot use --kernels fused on rank 0: {reason}; use --kernels libtorch");
    assert!(error.contains(&message), "{error}");
}

#[test]
fn compiled_kernels_are_cached() {
    let cache = tempfile::tempdir().expect("a folder");
    let run = |options: &str, compiler: &str| {
        let options = format!("{SMALL} --layout nhwc --iters 1 {AT_ONCE} {options}");
        Virtual::single_rank(&options).variable("XDG_CACHE_HOME", cache.path()).variable("CXX", compiler)
    };
    let cubins = || {
        let folder = cache.path().join("ringmark/kernels");
        let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let names: Vec<String> = names.map(|name| name.into_string().expect("UTF-8")).collect();
        assert!(names.iter().all(|name| Path::new(name).extension().is_some_and(|end| end == "cubin")), "{names:?}");
        names.len()
    };
    let remark = "no fused kernels, using slower libtorch kernels: rank 0: NVRTC cannot compile the kernels";
    let (record, log, _) = traced(run("", "false"));
    assert!(log.contains(remark), "{log}");
    assert_eq!((kernels(&record), cubins()), (KernelsChoice::Libtorch, 0));
    let first = run("--dtype bf16", "c++").valid_record();
    assert_eq!((kernels(&first), cubins()), (KernelsChoice::Fused, 2));
    let second = run("--dtype bf16", "false").valid_record();
    assert_eq!((kernels(&second), checksum(&second)), (KernelsChoice::Fused, checksum(&first)));
    // Kernels for another type are compiled separately.
    assert_eq!(kernels(&run("--dtype fp32", "false").valid_record()), KernelsChoice::Libtorch);
    assert_eq!(cubins(), 2);
}

#[test]
fn layer_profile_matches_libtorch_kernels() {
    let rows = |choice: &str| {
        let options = format!("{FEW_PIXELS} --dtype bf16 --layout nhwc --iters 2 {AT_ONCE}");
        let record = Virtual::single_rank(&format!("{options} --profile-layers --kernels {choice}")).valid_record();
        let profile = record.end.expect("an end").layers.expect("layers");
        profile.layers.into_iter().map(|layer| layer.name).collect::<Vec<String>>()
    };
    let expected = rows("libtorch");
    assert!(expected.len() > 100, "{expected:?}");
    assert_eq!(rows("fused"), expected);
}

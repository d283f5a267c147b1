//! CUDA C on virtual GPUs. Programs in tests/programs/virtual_cuda/check compile kernels with the stand-in NVRTC and
//! launch them through the virtual driver: their own kernels, and each of the worker's. `steps` and `fused` run the
//! worker itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::sandbox::run;
use crate::support::virtual_gpu::libraries;

/// Orders of a block's threads between barriers, and of the blocks.
const ORDERS: [&str; 3] = ["forwards", "backwards", "shuffled"];

fn compile(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let check = root.join("tests/programs/virtual_cuda/check");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("virtual_kernels_{name}"));
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-Wall", "-Werror"]).arg("-o").arg(&program);
    compiler.arg(format!("-DKERNELS=\"{}\"", root.join("src/worker/kernels").display()));
    compiler.arg(format!("-DCHECK_FOLDER=\"{}\"", check.display()));
    compiler.arg(format!("-DKERNEL_CACHE=\"{}\"", env!("CARGO_TARGET_TMPDIR")));
    compiler.arg(check.join(format!("{name}.cpp")));
    compiler.args(["libcuda.so.1", "libnvrtc.so.13"].map(|library| libraries().join(library)));
    compiler.arg(format!("-Wl,-rpath,{}", libraries().display()));
    assert!(compiler.status().expect("there is a C++ compiler").success());
    program
}

/// Runs `case` of `program` with this order of threads; returns exit status, output and errors.
fn outcome(program: &Path, case: &str, order: &str) -> (Option<i32>, String, String) {
    run(Command::new(program).arg(case).env("VIRTUAL_CUDA_THREADS", order))
}

/// Returns output and errors of a case that must succeed.
fn output(program: &Path, case: &str, order: &str) -> (String, String) {
    let (status, stdout, stderr) = outcome(program, case, order);
    assert_eq!(status, Some(0), "{case}, {order}: {stderr}");
    (stdout, stderr)
}

/// Checks that a case succeeds without errors and has the same output in every order of threads; returns the output.
fn assert_same_in_every_order(program: &Path, case: &str) -> String {
    let [first, second, third] = ORDERS.map(|order| {
        let (stdout, stderr) = output(program, case, order);
        assert_eq!(stderr, "", "{case}, {order}");
        stdout
    });
    assert_eq!((&first, &first), (&second, &third), "{case}");
    first
}

fn check() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("check"))
}

#[test]
fn kernels_do_not_depend_on_thread_order() {
    for (case, expected) in [
        ("copy", "copied\n"),
        ("halves", "converted\n"),
        ("reverse", "reversed\n"),
        ("reverse_by_copy", "reversed\n"),
        ("streams", "launched\n"),
        ("graph", "replayed\n"),
    ] {
        assert_eq!(assert_same_in_every_order(check(), case), expected);
    }
    // A different block is last in each order.
    assert_eq!(assert_same_in_every_order(check(), "add_parts_of_blocks"), "CUDA_SUCCESS 1024\n");
    assert!(assert_same_in_every_order(check(), "sum").starts_with("sum 0x1."));
}

#[test]
fn kernel_errors_fail_the_launch() {
    for (case, reason) in [
        ("reverse_without_barrier", "of the shared memory, one of them writing, in no order"),
        ("rotate_without_barrier", "of the same tensor, one of them writing, in no order"),
        ("add_parts_without_fence", "of another block and thread 0 touch element"),
        ("add_parts_without_barrier", "of another block and thread 0 touch element"),
        ("add_parts_without_ticket", "of another block and thread 0 touch element"),
        ("barrier_of_half_the_threads", "128 of 256 threads end while others wait at the barrier of line"),
        ("barriers_at_two_places", "wait at the barriers of line"),
    ] {
        for order in ORDERS {
            let (stdout, stderr) = output(check(), case, order);
            assert!(stdout.starts_with("CUDA_ERROR_LAUNCH_FAILED"), "{case}, {order}: {stdout}");
            assert!(stderr.contains(&format!("{case}: block (")) && stderr.contains(reason), "{stderr}");
        }
    }
    let (stdout, stderr) = output(check(), "write_past_the_end", "forwards");
    assert_eq!(stdout, "CUDA_SUCCESS CUDA_ERROR_LAUNCH_FAILED\n");
    assert!(stderr.contains("thread 0 writes 4 bytes at 0x"), "{stderr}");
    assert_eq!(output(check(), "reverse_without_wait", "forwards").0, "wrong\n");
    // Shared memory is NaN at the start of every block.
    assert_eq!(output(check(), "read_what_no_thread_wrote", "forwards").0, "nan nan\n");
}

#[test]
fn thread_order_reveals_write_conflicts() {
    let [first, second, third] = ORDERS.map(|order| output(check(), "write_in_turns", order).0);
    assert!(first != second && second != third && first != third, "{first}, {second}, {third}");
}

#[test]
fn unsynchronized_streams_are_reported_as_race() {
    let (_, stderr) = output(check(), "streams_without_wait", "forwards");
    let races: Vec<&str> = stderr.lines().filter(|line| line.contains("race on device 0")).collect();
    // Half of the buffer; the other half was written by the same stream, which is not a race.
    assert_eq!(races.len(), 1, "{stderr}");
    assert!(races[0].contains("copy on stream 2 reads 1024 bytes") && races[0].contains("written by copy on stream 1"));
}

#[test]
fn driver_and_compiler_reject_invalid_calls() {
    let (stdout, _) = output(check(), "refusals", "forwards");
    let expected = "CUDA_ERROR_INVALID_VALUE CUDA_ERROR_INVALID_VALUE CUDA_ERROR_INVALID_HANDLE\nCUDA_ERROR_NOT_FOUND\n\
                    CUDA_ERROR_INVALID_IMAGE\nCUDA_ERROR_INVALID_CONTEXT\n";
    assert_eq!(stdout, expected);
    let (log, _) = output(check(), "compile_errors", "forwards");
    let reasons =
        ["kernels.cu:", "no_such_name", "invalid value for --gpu-architecture", "unrecognized option --no-such-option"];
    assert!(reasons.iter().all(|reason| log.contains(reason)), "{log}");
    let (status, _, stderr) = outcome(check(), "refusals", "sideways");
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("VIRTUAL_CUDA_THREADS=sideways is not forwards, backwards or shuffled"), "{stderr}");
}

/// Batch normalization, pooling and 1x1 convolutions are compared with their formulas in fp64, including NaN and
/// infinity. Results are identical in every order of threads and blocks, and when repeated.
#[test]
fn worker_kernels_match_their_formulas() {
    for (name, elements) in [("norm", &["HALF", "BFLOAT16", "FLOAT"][..]), ("pointwise", &["HALF", "BFLOAT16"])] {
        let program = compile(name);
        let folder = tempfile::tempdir().expect("a folder");
        for element in elements {
            let outputs = ORDERS.map(|order| {
                let mut command = Command::new(&program);
                command.arg(element).arg(folder.path()).env("VIRTUAL_CUDA_THREADS", order);
                let (status, stdout, stderr) = run(&mut command);
                assert_eq!((status, stderr.as_str()), (Some(0), ""), "{name}, {element}, {order}");
                stdout
            });
            assert!(outputs.iter().all(|output| output == &outputs[0]), "{name}: {outputs:?}");
        }
    }
}

//! Tests of `--gradient-compression` under real mpirun: codes train, are the same on every rank, and unsupported
//! combinations are rejected.

use std::path::{Path, PathBuf};

use expect_test::expect;
use ringmark_core::benchmark::compression::CompressionUse;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{BackendName, Bytes, Wire};

use crate::support::safetensors::{self, Stored, Tensors};
use crate::support::sandbox::{check_refusals, refused, ringmark};
use crate::support::worker_run::{Run, checksum};

/// Parameters of MXNet's multilayer perceptron.
const PARAMETERS: u64 = 109_386;

/// Creates images of ten linearly separable classes: each has a bright band in noise of half its height. The first
/// `different` images are repeated.
fn separable(folder: &Path, count: usize, different: usize) -> PathBuf {
    const SIDE: usize = 28;
    let pixel = |number: usize| {
        let number = number % (different * SIDE * SIDE);
        let (image, row) = (number / (SIDE * SIDE), number / SIDE % SIDE);
        let band = if row / 3 == image % 10 { 1.0 } else { 0.0 };
        band + 0.5 * safetensors::unit(number as u64)
    };
    let labels: Vec<i64> = (0..count).map(|image| (image % different % 10) as i64).collect();
    let path = folder.join("separable.safetensors");
    let images = Stored::floats(&[count, 1, SIDE, SIDE], (0..count * SIDE * SIDE).map(pixel));
    let labels = Stored::integers(&[count], &labels);
    safetensors::write(&path, &Tensors::from([("images".to_owned(), images), ("labels".to_owned(), labels)]));
    path
}

fn mlp(ranks: u32, options: &str) -> Run {
    Run::ranks(ranks, &format!("--model mxnet-mlp --image-size 28 --lr-warmup-iters 0 --weight-decay 0 {options}"))
}

fn used(record: &RunRecord) -> &CompressionUse {
    record.end.as_ref().and_then(|end| end.compression.as_ref()).expect("codes were exchanged")
}

#[test]
fn compressed_training_converges() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = separable(folder.path(), 64, 64);
    for model in ["mxnet-mlp", "mxnet-lenet"] {
        let mut ends = Vec::new();
        for code in ["none", "2bit:0.01", "topk:0.05"] {
            let options = format!(
                "--model {model} --image-size 28 --lr-warmup-iters 0 --weight-decay 0 --momentum 0.5 --batch-size 32 --lr 0.05 \
                 --iters 60 --gradient-compression {code}"
            );
            let record = Run::ranks(2, &options).file("--data", &data).finish().valid_record();
            let loss = |index: usize| record.header.global_loss(&record.iterations[index].loss).expect("ranks");
            let (first, last) = (loss(0), loss(59));
            assert!(last < 0.1 * first, "{model}, {code}: {first} became {last}");
            ends.push((checksum(&record).to_owned(), first));
        }
        // Each took a different path from the same start.
        assert!(ends[0].0 != ends[1].0 && ends[0].0 != ends[2].0 && ends[1].0 != ends[2].0, "{ends:?}");
        assert!(ends.iter().all(|(_, first)| *first == ends[0].1), "{ends:?}");
    }
}

#[test]
fn codes_do_not_depend_on_rank_or_backend() {
    let run = |ranks: u32, options: &str| {
        let options = format!("--iters 6 --lr 0.01 --batch-size 4 {options}");
        mlp(ranks, &options).finish().valid_record()
    };
    let ways = ["--backend mpi --overlap off --chunk-kb 1", "--backend mpi"];
    for code in ["2bit:0.001", "topk:0.02"] {
        let code = format!("--gradient-compression {code}");
        for (ranks, ways) in [(2, &ways[..1]), (3, &ways[..])] {
            // A valid run has the same weights on every rank.
            let first = run(ranks, &code);
            assert_eq!((first.header.backend, first.header.sum_dtype), (BackendName::SharedMemory, Some(Wire::Fp32)));
            for options in ways {
                assert_eq!(checksum(&run(ranks, &format!("{code} {options}"))), checksum(&first), "{code} {options}");
            }
        }
    }
    // All values with their indices are equivalent to the values: the sum of two numbers does not depend on the order.
    let plain = run(2, "");
    assert_eq!(checksum(&run(2, "--gradient-compression topk:1")), checksum(&plain));
    assert_ne!(checksum(&run(2, "--gradient-compression topk:0.9")), checksum(&plain));
    assert_eq!(plain.end.as_ref().and_then(|end| end.compression.as_ref()), None);
    // Half precision by either name, and one rank that sends nothing.
    let half = run(2, "--gradient-compression fp16");
    assert_eq!(checksum(&half), checksum(&run(2, "--wire fp16")));
    assert_eq!(half.header.config.exchange.wire, Wire::Fp16);
    let alone = run(1, "--gradient-compression 2bit");
    assert_eq!((alone.header.backend, checksum(&alone)), (BackendName::Solo, checksum(&run(1, ""))));
    assert_eq!(alone.end.expect("an end").compression, None);
}

/// Words of the codes of all arrays of the perceptron, with one word per 16 values.
const WORDS: u64 = 784 * 128 / 16 + 128 / 16 + 128 * 64 / 16 + 64 / 16 + 64 * 10 / 16 + 1;

/// Bytes of the headers of a push or a pull of its six arrays.
const HEADERS: u64 = 6 * 24;

/// Words of the packed sums of one pusher: 20 base-3 digits per word.
const SUM_WORDS: u64 = (784 * 128u64).div_ceil(20) + 7 + (128 * 64u64).div_ceil(20) + 4 + 32 + 1;

#[test]
fn servers_decode_pushed_codes() {
    let folder = tempfile::tempdir().expect("a folder");
    // Both ranks have the same batch, so that the sum on their host is twice the gradient of each, and its code with
    // twice the threshold is bit-identical to twice each rank's code with the threshold.
    let data = separable(folder.path(), 64, 32);
    let run = |processes: u32, options: &str| {
        let options = format!("--momentum 0.5 --batch-size 32 --lr 0.05 --iters 60 {options}");
        let record = mlp(processes, &options).file("--data", &data).finish().valid_record();
        let loss = |index: usize| record.header.global_loss(&record.iterations[index].loss).expect("ranks");
        let (first, last) = (loss(0), loss(59));
        assert!(last < 0.1 * first, "{options}: {first} became {last}");
        record
    };
    let all_reduce = checksum(&run(2, "--gradient-compression 2bit:0.01")).to_owned();
    for servers in [1, 2] {
        let record =
            run(2 + servers, &format!("--gradient-compression 2bit:0.02 --strategy dist_sync --servers {servers}"));
        assert_eq!(checksum(&record), all_reduce, "{servers}");
        // Rank 0 pushes for both.
        let of = used(&record);
        let (weights, sums) = (Bytes(4 * PARAMETERS), Bytes(4 * SUM_WORDS));
        assert_eq!((of.code, of.received, of.received_fp32), (Bytes(4 * WORDS), sums, weights));
        assert_eq!(of.sent_fp32, Some(weights));
        assert!(of.residual_norm[0] > 0.0 && of.residual_norm[1] == 0.0, "{of:?}");
        let strategy = record.end.as_ref().and_then(|end| end.strategy.as_ref()).expect("servers");
        assert_eq!(strategy.sent_by_rank, [Bytes(4 * WORDS + HEADERS), Bytes(0)]);
        assert_eq!(strategy.received_by_rank, [Bytes(4 * SUM_WORDS + HEADERS), Bytes(0)]);
        let received: u64 = strategy.servers.iter().map(|server| server.received.0).sum();
        assert_eq!(received, 4 * WORDS + HEADERS, "{strategy:?}");
    }
    // Top-k selects in each array with servers, but in each bucket with all-reduce: one bucket per array makes them
    // equal.
    let all_reduce = checksum(&run(2, "--gradient-compression topk:0.05 --bucket-mb 0 --tail-mb 0")).to_owned();
    let record = run(3, "--gradient-compression topk:0.05 --strategy dist_device_sync --servers 1");
    assert_eq!(checksum(&record), all_reduce);
    // Each rank pushes its own gradients.
    let record = run(3, "--gradient-compression 2bit:0.01 --strategy dist_async --servers 1");
    assert!(used(&record).residual_norm.iter().all(|norm| *norm > 0.0), "{:?}", used(&record));
    let strategy = record.end.as_ref().and_then(|end| end.strategy.as_ref()).expect("servers");
    assert_eq!(strategy.sent_by_rank, [Bytes(4 * WORDS + HEADERS); 2]);
    assert_eq!(strategy.servers[0].received, Bytes(2 * (4 * WORDS + HEADERS)));
}

#[test]
fn record_contains_code_sizes_and_residual() {
    let finished =
        mlp(2, "--iters 3 --batch-size 4 --gradient-compression 2bit:0.001 --bucket-mb 100 --tail-mb 0").finish();
    let log = finished.stdout.clone();
    let record = finished.valid_record();
    let of = used(&record);
    // One bucket, 16 values in 4 bytes.
    let code = Bytes(4 * PARAMETERS.div_ceil(16));
    assert_eq!((of.code, of.received, of.received_fp32), (code, code, Bytes(4 * PARAMETERS)));
    assert_eq!(of.residual_norm.len(), 2);
    assert!(of.residual_norm.iter().all(|norm| *norm > 0.0 && norm.is_finite()), "{of:?}");
    assert_ne!(of.residual_norm[0], of.residual_norm[1], "each rank has its own gradient");
    assert!(log.contains(&format!("\n# 2bit:0.001: {}\n", of.text())), "{log}");
    assert!(log.contains(", wire 2bit:0.001, added in fp32\n"), "{log}");
    // A threshold that no gradient reaches sends nothing: everything stays in the residual, and no weight changes.
    let high = mlp(2, "--iters 3 --batch-size 4 --gradient-compression 2bit:1e6").finish().valid_record();
    assert!(used(&high).residual_norm.iter().all(|norm| *norm > 0.0), "{high:?}");
    assert_eq!(checksum(&high), checksum(&mlp(2, "--iters 3 --batch-size 4 --lr 0").finish().valid_record()));
    // If everything is sent, the residual is zero.
    let all = mlp(2, "--iters 3 --batch-size 4 --gradient-compression topk:1").finish().valid_record();
    assert_eq!(used(&all).residual_norm, [0.0, 0.0]);
    assert_eq!(used(&all).code, Bytes(8 * PARAMETERS));
}

#[test]
fn non_finite_gradient_fails_the_run_with_its_index() {
    for code in ["2bit", "topk:0.1"] {
        for overlap in ["on", "off"] {
            let options = format!(
                "--iters 4 --batch-size 4 --overlap {overlap} --inject overflow:3 --gradient-compression {code}"
            );
            let error = mlp(2, &options).refused(1);
            let expected = "the gradient of rank 0 is not finite in bucket 0 of iteration 3 (value ";
            assert!(error.contains("rank 0 of 2 on host ") && error.contains(expected), "{error}");
            assert!(error.contains("rerun without --gradient-compression"), "{error}");
        }
        let options = format!(
            "--iters 4 --batch-size 4 --inject overflow:3 --gradient-compression {code} --strategy dist_sync --servers 1"
        );
        let error = mlp(3, &options).refused(1);
        let expected = "the gradient of rank 0 is not finite in key ";
        assert!(error.contains("rank 0 of 2 on host ") && error.contains(expected), "{error}");
        assert!(error.contains(" of iteration 3 (value "), "{error}");
    }
}

#[test]
fn unsupported_compression_is_rejected_at_start() {
    let refuse = |options: &str| refused(&mut ringmark(&format!("sweep --hosts localhost:2 --dry-run {options}")), 2);
    check_refusals(
        &expect![[r#"
            --gradient-compression 2bit:0
                error: invalid value '2bit:0' for '--gradient-compression <CODE>': 2bit threshold "0" is not a number above 0: use a threshold such as 0.5
            --gradient-compression 2bit:NaN
                error: invalid value '2bit:NaN' for '--gradient-compression <CODE>': 2bit threshold "NaN" is not a number above 0: use a threshold such as 0.5
            --gradient-compression topk:0
                error: invalid value 'topk:0' for '--gradient-compression <CODE>': topk ratio "0" is not above 0 and at most 1: use a ratio such as 0.01
            --gradient-compression topk:1.01
                error: invalid value 'topk:1.01' for '--gradient-compression <CODE>': topk ratio "1.01" is not above 0 and at most 1: use a ratio such as 0.01
            --gradient-compression 4bit
                error: invalid value '4bit' for '--gradient-compression <CODE>': unknown gradient compression "4bit": choose none, fp16, bf16, 2bit, 2bit:THRESHOLD or topk:RATIO
            --gradient-compression 2bit --backend none
                error: --gradient-compression 2bit:0.5 conflicts with --backend none, which exchanges nothing: use only one of them
            --gradient-compression fp16 --backend none
                error: --gradient-compression fp16: conflicts with --backend none, which exchanges nothing: use only one of them
            --gradient-compression 2bit --wire fp16
                error: --gradient-compression 2bit:0.5 conflicts with --wire fp16, because codes have their own format: omit --wire
            --gradient-compression fp16 --wire bf16
                error: --gradient-compression fp16: conflicts with --wire bf16: use only one of them
            --gradient-compression fp16 --wire fp32
                error: --wire fp32 conflicts with another option, which sets it to fp16: use only one of them
            --gradient-compression 2bit --dtype fp16
                error: --gradient-compression 2bit:0.5 needs finite gradients, but --dtype fp16 finds its loss scale by overflow: use --dtype bf16 or fp32
            --gradient-compression 2bit --autotune
                error: --gradient-compression 2bit:0.5 conflicts with --autotune, because trial steps leave a residual in the training that follows: set --bucket-mb instead
            --gradient-compression 2bit --device cuda
                error: --gradient-compression 2bit:0.5 runs in host memory: with --device cuda use --strategy dist_sync or dist_async, or --gradient-compression fp16 or bf16
            --gradient-compression 2bit --strategy local
                error: --gradient-compression 2bit:0.5 is not supported with --strategy local (MXNet ignores the compression and sends values): use --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync
            --gradient-compression 2bit --strategy device
                error: --gradient-compression 2bit:0.5 is not supported with --strategy device (owners receive sums, and codes cannot be added): use --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync
            --gradient-compression 2bit --strategy nccl
                error: --gradient-compression 2bit:0.5 is not supported with --strategy nccl (NCCL cannot add codes, and MXNet rejects them): use --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync
        "#]],
        refuse,
    );
}

//! Tests of language models under real mpirun: what is counted in tokens, and options that only they have.

use std::fs;

use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{AttentionKernel, BatchShape, BatchSize, Case, Phase, WorkUnit};
use serde_json::Value;

use crate::support::core_tokens;
use crate::support::sandbox::{Sandbox, ringmark, run, succeeds};
use crate::support::worker_run::{AT_ONCE, Run, apart, checksum, losses};

/// Options of a short run in which weights change visibly.
const SHORT: &str = "--iters 4 --batch-size 4 --sequence-length 32";

#[test]
fn speed_counts_the_tokens_of_all_ranks() {
    let finished = Run::ranks(2, &format!("--model gpt2-tiny {SHORT} --lr 0.05 {AT_ONCE}")).finish();
    let log = finished.stdout.clone();
    let record = finished.valid_record();
    let config = &record.header.config;
    assert_eq!((config.image_size, config.sequence_length, config.model.unit()), (None, Some(32), WorkUnit::Token));
    assert_eq!(config.batch().work(record.header.case), 2.0 * 4.0 * 32.0);
    let step = record.iterations[3].step.iter().map(|step| step.0).sum::<f64>() / 2.0;
    let speed = record.speed(3).expect("an iteration").0;
    assert!((speed * step / 256.0 - 1.0).abs() < 1e-9, "{speed} tokens/s in {step} s");
    assert_eq!(log.matches(" tokens/sec\tloss=").count(), 4, "{log}");
    // Uniform predictions of 256 bytes have a loss of 5.545; the network starts close to it.
    let losses = losses(&record);
    assert!((losses[0] - 256f64.ln()).abs() < 0.1 && losses[3] < losses[0], "{losses:?}");
}

#[test]
fn parts_and_recomputation_do_not_change_the_result() {
    for model in ["gpt2-tiny", "llama-tiny"] {
        let finished = |options: &str| Run::ranks(1, &format!("--model {model} {SHORT} {AT_ONCE} {options}")).save();
        let start = finished("--lr 0").finish().weights();
        let whole = finished("--lr 0.05").finish();
        let trained = whole.weights();
        let parts = finished("--lr 0.05 --accumulate 2").finish().weights();
        let difference = apart(&parts, &trained, &start);
        assert!(difference < 1e-3, "{model}: {difference}");
        let whole = whole.valid_record();
        let kernel = whole.end.as_ref().and_then(|end| end.attention);
        assert_eq!(kernel, Some(AttentionKernel::Flash), "that of libtorch on CPUs");
        let recomputed = finished("--lr 0.05 --recompute block").finish().valid_record();
        assert_eq!(checksum(&recomputed), checksum(&whole), "{model}: to the bit");
        let cost = |record: &RunRecord| record.end.as_ref().expect("an end").recompute.clone();
        let backward = recomputed.iterations.iter().map(|one| one.phases[Phase::Backward][0].0).fold(0.0, f64::max);
        let times = cost(&recomputed);
        assert!(times.len() == 1 && times[0].0 > 0.0 && times[0].0 < backward, "{times:?} of {backward} s");
        assert!(cost(&whole).is_empty());
    }
}

#[test]
fn global_batch_is_divided_among_the_ranks() {
    // Every rank has its own synthetic tokens, so that only sizes and rates can be compared.
    let record = |ranks: u32| {
        let options =
            "--model llama-tiny --iters 3 --global-batch 8 --micro-batch 3 --sequence-length 16 --lr-warmup-iters 0";
        Run::ranks(ranks, options).finish().valid_record()
    };
    for (ranks, part, accumulate) in [(1, 8, 3), (2, 4, 2)] {
        let record = record(ranks);
        let config = &record.header.config;
        assert_eq!((config.batch_size, config.batch().size), (part, BatchSize::Global(8)));
        assert_eq!((config.micro_batch, config.accumulate), (Some(3), accumulate));
        assert_eq!(config.batch().work(Case { nodes: 1, gpus_per_node: ranks }), 128.0);
        assert_eq!(config.learning_rate_at(3, ranks), 0.001, "the rate of a single rank");
    }
    let refused = Run::ranks(2, "--model llama-tiny --iters 3 --global-batch 7 --sequence-length 16").refused(1);
    assert!(
        refused.contains("--global-batch 7 cannot be divided equally among 2 ranks: choose a multiple of 2, such as 8"),
        "{refused}"
    );
}

#[test]
fn sweep_of_a_global_batch_is_read_as_strong_scaling() {
    let sandbox = Sandbox::real();
    let (out, worker) = (sandbox.path("out"), sandbox.worker());
    let mut sweep = ringmark(
        "sweep --model gpt2-tiny --cases 1n1g,1n2g --runs 2 --iters 6 --warmup 2 --no-doctor --device cpu \
         --global-batch 4 --micro-batch 1 --sequence-lengths 16,32 --clip-norm 1 --recompute block --hosts localhost:2",
    );
    let tokens = core_tokens::take_all_cores();
    let stdout = succeeds(sweep.arg("--worker").arg(worker).arg("--out").arg(&out));
    drop(tokens);
    assert!(out.join("1n2g/gpt2-tiny_g4_s16_fp32_2.jsonl").is_file(), "{stdout}");
    let (_, tables, _) = run(ringmark("extract --explain").arg(&out));
    assert!(tables.contains("GPT-2 tiny, fp32, global batch size 4 x 32 tokens"), "{tables}");
    assert!(tables.contains("tokens/s") && !tables.contains("images/s"), "{tables}");
    assert!(tables.contains("gradients clipped to norm 1, recompute block\n"), "{tables}");
    assert!(tables.contains("1n2g: backward computes activations again for "), "{tables}");
    let unwrapped = tables.replace('\n', " ");
    assert!(unwrapped.contains(" ms per step cannot be broken down with fewer than 3 runs per case"), "{tables}");
    let (_, page, _) = run(ringmark("report --format html").arg(&out));
    let is_interval = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    let has_interval = page.split("\u{b1} ").skip(1).any(is_interval);
    assert!(!page.contains("ideal step (1n1g / 2)") && !has_interval, "the same on the page");
    assert!(
        page.contains("efficiency: strong scaling") && tables.contains(" tokens, strong scaling in parts of 1\n"),
        "{tables}"
    );
    let (_, prometheus, _) = run(ringmark("extract --format prometheus").arg(&out));
    assert!(prometheus.contains("tokens_per_second") && !prometheus.contains("images_per_second"), "{prometheus}");
    let (_, checks, _) = run(ringmark("check").arg(&out));
    assert!(checks.contains("PASS    rules "), "{checks}");
    let (_, diff, _) = run(ringmark("diff").arg(&out).arg(&out));
    assert!(diff.contains("GPT-2 tiny, fp32, global batch size 4 x 16 tokens"), "{diff}");
    let result: Value = serde_json::from_slice(&fs::read(out.join("out_result.json")).expect("written")).expect("JSON");
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let ranks = row["ranks"].as_u64().expect("a number");
        assert_eq!((&row["unit"], row["global_batch_size"].as_u64()), (&"tokens".into(), Some(4)));
        assert_eq!(row["batch_size_per_device"].as_u64(), Some(4 / ranks));
        if ranks == 2 {
            // The ideal step of half of the batch is half as long.
            let loss = &row["scaling_loss"];
            let [base, step, efficiency] = ["base_seconds", "seconds", "efficiency"].map(|key| loss[key].as_f64());
            let speedup = row["speedup_over_base"].as_f64().expect("a base");
            let (base, step) = (base.expect("a step"), step.expect("a step"));
            assert!((base / step / efficiency.expect("a share") - 1.0).abs() < 1e-9, "{loss}");
            assert!((base / step * 2.0 / speedup - 1.0).abs() < 0.2, "{loss}: {speedup}");
        }
    }
    let csv = fs::read_to_string(out.join("out_result.csv")).expect("written");
    let head = csv.lines().next().expect("a head");
    assert!(head.contains("speed_tokens_per_s") && !head.contains("images"), "{head}");
    assert!(head.ends_with("global_batch_size,sequence_length"), "{head}");
    let by_formula = &rows[0]["arithmetic"]["by_formula"];
    let rate = |formula: &str| by_formula[formula]["teraflops_per_second"].as_f64().expect("a rate");
    // Positions and embedding of this network have the same size. Products exclude biases and normalizations.
    assert!(rate("palm") == rate("torchtitan") && rate("megatron") < rate("torchtitan"), "{by_formula}");
    // Recomputation repeats the forward pass of the blocks, a quarter of all products without embedding and head.
    let hardware = rows[0]["arithmetic"]["hardware"]["teraflops_per_second"].as_f64().expect("a rate");
    assert!(hardware > rate("megatron") && hardware < rate("megatron") * 4.0 / 3.0, "{hardware}: {by_formula}");
    let own = rows[0]["arithmetic"]["teraflops_per_second"].as_f64().expect("a rate");
    assert!((own / rate("megatron") - 1.0).abs() < 1e-12, "{own}: {by_formula}");
    assert_eq!(BatchShape { size: BatchSize::Global(4), sequence_length: Some(16) }.file_part(), "g4_s16");
}

#[test]
fn inference_counts_tokens() {
    let sandbox = Sandbox::real();
    let (out, worker) = (sandbox.path("out"), sandbox.worker());
    let mut score = ringmark(
        "score --models llama-tiny,mxnet-mlp --batch-sizes 1,2 --sequence-lengths 8,16 --iters 3 --warmup 1 --runs 1 \
         --no-doctor --device cpu",
    );
    succeeds(score.arg("--worker").arg(worker).arg("--out").arg(&out));
    let (_, tables, _) = run(ringmark("extract --explain").arg(&out));
    assert!(tables.contains("images/s by network") && tables.contains("tokens/s by network"), "{tables}");
    let result: Value = serde_json::from_slice(&fs::read(out.join("out_result.json")).expect("written")).expect("JSON");
    let lengths: Vec<_> =
        result["rows"].as_array().expect("rows").iter().map(|row| row["sequence_length"].as_u64()).collect();
    assert_eq!(lengths, [None, None, Some(8), Some(8), Some(16), Some(16)]);
    succeeds(ringmark("report").arg(&out));
}

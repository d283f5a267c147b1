//! Training of language models on token files: order, resumption, validation, messages, and learning like PyTorch.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use expect_test::expect;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::{EpochEnd, RunRecord};
use tempfile::TempDir;

use crate::support::core_tokens;
use crate::support::prerequisite::not_tested;
use crate::support::sandbox::{Sandbox, refused, ringmark, succeeds};
use crate::support::worker_run::{Run, checksum, losses};

/// Sequence length of most runs.
const LENGTH: usize = 16;

fn gpt2(ranks: u32, data: &Path, options: &str) -> Run {
    let length =
        if options.contains("--sequence-length") { String::new() } else { format!("--sequence-length {LENGTH}") };
    Run::ranks(ranks, &format!("--model gpt2-tiny --lr-warmup-iters 0 {length} {options}")).file("--data", data)
}

/// Writes bytes as tokens.
fn write(path: &Path, bytes: impl IntoIterator<Item = u8>) {
    fs::write(path, bytes.into_iter().flat_map(|byte| [byte, 0]).collect::<Vec<u8>>()).expect("written");
}

/// Writes this number of windows, plus a few tokens, of tokens that repeat irregularly.
fn windows(folder: &TempDir, name: &str, number: usize) -> PathBuf {
    let path = folder.path().join(name);
    write(&path, (0..number * LENGTH + 5).map(|index| (index * index / 3 % 199) as u8));
    path
}

fn global_losses(record: &RunRecord) -> Vec<f64> {
    record.iterations.iter().map(|one| record.header.global_loss(&one.loss).expect("ranks")).collect()
}

fn epochs(record: &RunRecord) -> &[EpochEnd] {
    &record.end.as_ref().expect("an end").epochs
}

#[track_caller]
fn close(one: &[f64], other: &[f64], tolerance: f64) {
    assert_eq!(one.len(), other.len());
    for (index, (one, other)) in one.iter().zip(other).enumerate() {
        assert!((one - other).abs() <= tolerance * other.abs(), "{one}, {other} at {index}");
    }
}

#[test]
fn ranks_split_the_windows_of_one_rank() {
    let folder = tempfile::tempdir().expect("a folder");
    let [data, other] = [windows(&folder, "train.bin", 10), windows(&folder, "val.bin", 5)];
    // Three steps an epoch, the last of which is filled up; the validation has a rank without sequences.
    let train = |ranks: u32, options: &str| {
        let batch = 4 / ranks;
        let options = format!("--epochs 3 --lr 0.5 --batch-size {batch} {options}");
        gpt2(ranks, &data, &options).file("--validate", &other).finish()
    };
    let alone = train(1, "");
    let output = alone.stdout.clone();
    let alone = alone.valid_record();
    assert_eq!(alone.iterations.len(), 9);
    let two = train(2, "").valid_record();
    close(&global_losses(&two), &global_losses(&alone), 1e-5);
    let unshuffled = train(1, "--shuffle off").valid_record();
    assert_ne!(global_losses(&unshuffled), global_losses(&alone));
    assert_eq!(checksum(&train(1, "--prefetch 1 --decode-threads 2").valid_record()), checksum(&alone));

    let last = epochs(&alone)[2].validation.expect("predicted");
    assert_eq!((last.samples, last.top_1, last.top_5), (5, None, None));
    let loss = last.loss.expect("finite");
    close(&[epochs(&two)[2].validation.expect("predicted").loss.expect("finite")], &[loss], 1e-5);
    let line = format!("; validation of 5 sequences: loss {loss:.4}, perplexity {:.4}, in ", loss.exp());
    assert!(output.contains(&line), "{output}");
    assert!(output.contains("# input: 10 sequences of a token file of uint16; rank 0: "), "{output}");
    // The validation of the same data as training, with the weights before training.
    let untrained = gpt2(1, &data, "--epochs 1 --lr 0 --batch-size 5").file("--validate", &data).finish();
    let untrained = untrained.valid_record();
    let [end] = epochs(&untrained) else { panic!("one epoch") };
    close(&[end.validation.expect("predicted").loss.expect("finite")], &[end.loss.expect("finite")], 1e-5);
}

/// Writes the index of a file of uint8 tokens with documents of these lengths, as Megatron-LM's `IndexedDataset` does.
fn write_index(path: &Path, documents: &[u32]) {
    const UINT8: u8 = 1;
    let count = documents.len() as u64;
    let starts = documents.iter().scan(0, |end, length| {
        *end += u64::from(*length);
        Some(*end - u64::from(*length))
    });
    let mut index = b"MMIDIDX\0\0".to_vec();
    index.extend(1_u64.to_le_bytes());
    index.push(UINT8);
    index.extend(count.to_le_bytes().into_iter().chain((count + 1).to_le_bytes()));
    index.extend(documents.iter().flat_map(|length| length.to_le_bytes()));
    index.extend(starts.flat_map(u64::to_le_bytes));
    index.extend((0..=count).flat_map(u64::to_le_bytes));
    fs::write(path, index).expect("written");
}

#[test]
fn megatron_files_train_like_nanogpt_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let nanogpt = windows(&folder, "train.bin", 10);
    let tokens: Vec<u8> = fs::read(&nanogpt).expect("tokens").chunks_exact(2).map(|token| token[0]).collect();
    let megatron = folder.path().join("text_document.bin");
    fs::write(&megatron, &tokens).expect("written");
    write_index(&folder.path().join("text_document.idx"), &[100, tokens.len() as u32 - 100]);
    let train = |data: &Path| gpt2(2, data, "--epochs 2 --lr 0.1 --batch-size 2").finish();
    let [own, other] = [train(&megatron), train(&nanogpt)];
    let output = own.stdout.clone();
    assert!(output.contains("# input: 10 sequences of a token file of uint8"), "{output}");
    assert_eq!(checksum(&own.valid_record()), checksum(&other.valid_record()));
}

#[test]
fn resumed_training_on_tokens_is_bit_identical() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = windows(&folder, "train.bin", 10);
    let [checkpoint, again] = ["checkpoint", "again"].map(|name| folder.path().join(name));
    for ranks in [1, 2] {
        let options = "--epochs 4 --lr 0.01 --optimizer adamw --batch-size 2 --checkpoint-every 4";
        let train = |file: &Path| gpt2(ranks, &data, options).file("--checkpoint", file);
        let whole = train(&again).finish().valid_record();
        let killed = gpt2(ranks, &data, &format!("{options} --inject fail:7:0")).file("--checkpoint", &checkpoint);
        killed.refused(1);
        let resumed = train(&again).file("--from-checkpoint", &checkpoint).finish().valid_record();
        assert_eq!(resumed.header.iterations_before(), 4);
        assert_eq!((checksum(&resumed), global_losses(&resumed)), (checksum(&whole), global_losses(&whole)));
        assert_eq!(epochs(&resumed), epochs(&whole));
    }
    // As many steps per epoch, but another number of sequences.
    let fewer = windows(&folder, "fewer.bin", 9);
    let options = "--epochs 4 --lr 0.01 --optimizer adamw --batch-size 2 --checkpoint-every 4";
    let other = gpt2(2, &fewer, options).file("--checkpoint", &again).file("--from-checkpoint", &checkpoint).refusal(1);
    expect!["--from-checkpoint DIR/checkpoint: saved with 10 sequences, but --data has 9 sequences: use the same data"]
        .assert_eq(&other);
}

#[test]
fn unsuitable_data_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = windows(&folder, "train.bin", 4);
    let large = folder.path().join("large.bin");
    fs::write(&large, [7, 0].repeat(40).into_iter().chain([0, 1]).chain([7, 0].repeat(40)).collect::<Vec<u8>>())
        .expect("written");
    let batch = folder.path().join("batch.safetensors");
    fs::write(&batch, "").expect("written");
    let image = Run::ranks(1, "--model resnet18 --iters 1 --batch-size 2").file("--data", &tokens);
    let refusals = [
        image.refusal(1),
        gpt2(1, folder.path(), "--iters 2").refusal(1),
        gpt2(1, &large, "--iters 9 --shuffle off --batch-size 1").refusal(1),
        gpt2(1, &tokens, "--iters 2 --sequence-length 100").refusal(1),
        gpt2(1, &batch, "--iters 2").refusal(2),
        gpt2(1, &tokens, "--iters 2 --augmentation crop").refusal(2),
        gpt2(1, &tokens, "--iters 2").file("--validate", &batch).refusal(2),
    ];
    expect![[r#"
        error: --data: DIR/train.bin has 138 bytes, not a multiple of 3073 (CIFAR-10) or 3074 (CIFAR-100): copy the file again, or use a language model for token files
        error: --data: DIR is not a token file, whose name ends with .bin: use files of nanoGPT or Megatron-LM, or a network of images
        error: DIR/large.bin, byte 80: token 256 is not one of the vocabulary, 0 to 255: use the tokenizer of the network, or a network with a larger vocabulary
        error: --data: DIR/train.bin has 69 tokens, fewer than the 101 of a window (--sequence-length 100 and the next token): use a shorter --sequence-length or a longer file
        error: --data DIR/batch.safetensors is a batch of images: use token files (.bin) with gpt2-tiny, a language model
        error: --augmentation does not apply to gpt2-tiny, a language model: omit it
        error: --validate DIR/batch.safetensors is a batch of images: use token files (.bin) with gpt2-tiny, a language model"#]].assert_eq(&refusals.map(|refusal| refusal.trim_end().to_owned()).join("\n"));
}

#[test]
fn sweep_counts_the_sequences_of_an_epoch() {
    let sandbox = Sandbox::real();
    let data = tempfile::tempdir().expect("a folder");
    let tokens = windows(&data, "train.bin", 12);
    let sweep = |options: &str| {
        let mut sweep = ringmark(&format!(
            "sweep --model gpt2-tiny --cases 1n1g,1n2g --runs 1 --epochs 2 --warmup 1 --no-doctor --device cpu \
             --batch-size 2 --hosts localhost:2 {options}"
        ));
        sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        sweep.arg("--data").arg(&tokens).arg("--validate").arg(&tokens);
        sweep
    };
    let error = refused(&mut sweep("--sequence-lengths 16,32"), 2);
    expect![[r#"
        error: --data with --epochs or --validate needs the same sequence length in all runs: add --sequence-length
    "#]]
    .assert_eq(&error);
    let core_tokens = core_tokens::take_all_cores();
    succeeds(&mut sweep("--sequence-length 16"));
    drop(core_tokens);
    for (case, iterations) in [("1n1g", 12), ("1n2g", 6)] {
        let text = fs::read(sandbox.path("out").join(case).join("gpt2-tiny_b2_s16_fp32_1.jsonl")).expect("a record");
        assert_eq!(RunRecord::read(&text[..]).expect("a record").iterations.len(), iterations, "{case}");
    }
    let tables = succeeds(ringmark("extract --explain").arg(sandbox.path("out")));
    assert!(tables.contains("case  epochs    loss  perplexity\n"), "{tables}");
    let result = fs::read(sandbox.path("out/out_result.json")).expect("written");
    let result: serde_json::Value = serde_json::from_slice(&result).expect("JSON");
    for row in result["rows"].as_array().expect("rows") {
        let [loss, perplexity] = ["loss", "perplexity"].map(|key| row["accuracy"][key].as_f64().expect("a number"));
        assert!((perplexity / loss.exp() - 1.0).abs() < 1e-9 && perplexity > 1.0, "{loss}: {perplexity}");
    }
    succeeds(ringmark("report").arg(sandbox.path("out")));
}

/// Returns the losses of a training in plain PyTorch, which `golden/learning.json` contains under `name`. If PyTorch can be
/// imported, runs it too and compares; with `UPDATE_EXPECT=1`, it replaces the file's losses.
fn pytorch_losses(name: &str, arguments: &[&str]) -> Vec<f64> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("tests/golden/learning.json");
    let all = fs::read_to_string(&file).expect("a file");
    let mut all: BTreeMap<String, Vec<f64>> = serde_json::from_str(&all).expect("losses");
    let python = root.join(".libtorch/venv/bin/python");
    // scripts/setup.sh installs the libraries of torch without its Python dependencies.
    let imports = Command::new(&python).args(["-c", "import torch"]).output();
    if imports.is_ok_and(|output| output.status.success()) {
        let _cores = core_tokens::take_cores(1);
        let output = Command::new(python).arg(root.join("tests/golden/learning.py")).args(arguments).output();
        let output = output.expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let live: Vec<f64> = serde_json::from_slice(&output.stdout).expect("losses");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            all.insert(name.to_owned(), live.clone());
            let lines: Vec<String> = all.iter().map(|(name, losses)| format!("  {name:?}: {losses:?}")).collect();
            fs::write(&file, format!("{{\n{}\n}}\n", lines.join(",\n"))).expect("written");
        }
        close(&live[..10], &all[name][..10], 1e-5);
    }
    all.remove(name).unwrap_or_else(|| panic!("{name} is missing: UPDATE_EXPECT=1, with PyTorch in .libtorch/venv"))
}

/// Returns the losses of ringmark, and those of PyTorch from the same initial weights, which the file of losses names
/// `name`.
fn both_losses(name: &str, model: &str, data: Option<&Path>, [length, batch, iterations]: [u32; 3]) -> [Vec<f64>; 2] {
    const RATE: &str = "0.003";
    let options =
        format!("--model {model} --sequence-length {length} --batch-size {batch} --seed 5 --lr-warmup-iters 0");
    let initial = Run::ranks(1, &format!("{options} --iters 1 --lr 0 --weight-decay 0 --momentum 0")).save().finish();
    let init = initial.saved();
    let run = Run::ranks(
        1,
        &format!(
            "{options} --iters {iterations} --optimizer adamw --adam-beta1 0.9 --adam-beta2 0.95 --weight-decay 0.1 \
             --lr {RATE}"
        ),
    );
    let run = match data {
        Some(data) => run.file("--data", data).file("--shuffle", Path::new("off")),
        None => run,
    };
    let own = losses(&run.file("--init", &init).finish().valid_record());
    let numbers = [length, batch, iterations].map(|number| number.to_string());
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (init, data) = (text(&init), data.map_or_else(|| "synthetic:5".to_owned(), text));
    let arguments = [vec![model, &init, &data], numbers.iter().map(String::as_str).collect(), vec![RATE]];
    [own, pytorch_losses(name, &arguments.concat())]
}

#[test]
fn ten_steps_match_pytorch() {
    for model in ["gpt2-tiny", "llama-tiny"] {
        let [own, pytorch] = both_losses(model, model, None, [32, 4, 10]);
        close(&own, &pytorch, 1e-4);
        assert!(own[9] < own[0] - 0.5, "{model}: {own:?}");
    }
}

/// Mean cross entropy of predictions by the frequency of each byte.
fn unigram_entropy(text: &[u8]) -> f64 {
    let mut counts = BTreeMap::<u8, f64>::new();
    text.iter().for_each(|byte| *counts.entry(*byte).or_default() += 1.0);
    let total = text.len() as f64;
    counts.values().map(|count| -count / total * (count / total).ln()).sum()
}

/// Trains on the license, which the snippet of the page on language models packs.
#[test]
fn text_is_learned_like_pytorch() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/language_models.md")).expect("a page");
    let (_, snippet) = page.split_once("```python\n").expect("a snippet");
    let (snippet, _) = snippet.split_once("```").expect("its end");
    let license = root.join("LICENSE");
    let text = fs::read(&license).expect("a text");
    let folder = tempfile::tempdir().expect("a folder");
    let [data, packed] = ["text.bin", "packed.bin"].map(|name| folder.path().join(name));
    write(&data, text.iter().copied());
    match Command::new("python3").arg("-c").arg(snippet).arg(&packed).arg(&license).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(fs::read(&packed).expect("packed") == fs::read(&data).expect("written"));
        }
        Err(_) => not_tested("there is no python3"),
    }

    let [own, pytorch] = both_losses("LICENSE", "gpt2-tiny", Some(&data), [64, 16, 200]);
    close(&own[..10], &pytorch[..10], 1e-4);
    let end = |losses: &[f64]| losses[losses.len() - 50..].iter().sum::<f64>() / 50.0;
    close(&[end(&own)], &[end(&pytorch)], 0.01);
    let entropy = unigram_entropy(&text);
    assert!(end(&own) < entropy - 0.4, "{} of {entropy}", end(&own));
}

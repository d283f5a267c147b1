//! Formats of the lines of known trainers, from the format strings in their sources.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use regex_lite::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::WorkUnit;
use crate::text_value;

/// Groups of a regular expression. `rank_` marks the rate of one rank; the other rates are those of all ranks.
pub const GROUPS: [&str; 11] = [
    "step",
    "s",
    "ms",
    "tokens_per_s",
    "rank_tokens_per_s",
    "images_per_s",
    "rank_images_per_s",
    "samples_per_s",
    "rank_samples_per_s",
    "loss",
    "batch",
];

/// A known trainer.
struct Trainer {
    name: &'static str,
    /// Unit of its work; `None` if it trains networks of any kind.
    unit: Option<WorkUnit>,
    /// Lines of an iteration. A line that matches the first begins the next iteration.
    lines: &'static [&'static str],
    /// A line as the trainer prints it.
    #[cfg(test)]
    example: &'static str,
}

macro_rules! trainers {
    ($($name:literal, $unit:expr => [$($line:literal),+] $example:literal)+) => {
        &[$(Trainer { name: $name, unit: $unit, lines: &[$($line),+], #[cfg(test)] example: $example }),+]
    };
}

/// Known trainers. Sources: torchtitan's `components/metrics.py` (tokens/s of one device), Megatron-LM's
/// `training/training.py`, nanoGPT's `train.py`, NeMo 2's `MegatronProgressPrinter`, nanotron's `trainer.py`,
/// DeepSpeed's `utils/timer.py` (samples of all ranks), Composer's `ConsoleLogger` with `SpeedMonitor` (llm-foundry),
/// PyTorch's `examples/imagenet/main.py`, Horovod's synthetic benchmarks, tf_cnn_benchmarks' `benchmark_cnn.py` (its rate is
/// the mean since the start, so it is not read), MLPerf's `tracked_stats`, and the dictionary that Hugging Face's `Trainer`
/// prints, which has no time.
static TRAINERS: &[Trainer] = trainers! {
    "torchtitan", Some(WorkUnit::Token) => [r"step:\s*(?P<step>\d+) .*?loss:\s*(?P<loss>[\d.naif+-]+).* tps: (?P<rank_tokens_per_s>[\d,]+)"]
        "[rank0]:[titan] INFO - \u{1b}[31mstep: 10  \u{1b}[32mloss:  7.0254  \u{1b}[38;2;180;60;0mgrad_norm:  1.5  \u{1b}[36mmemory: 35.12GiB(36.9%)  \u{1b}[34mtps: 5,762  tflops: 1.2  mfu: 33.1%"
    "megatron", Some(WorkUnit::Token) => [r"iteration\s+(?P<step>\d+)/\s*\d+ \|.*elapsed time per iteration \(ms\): (?P<ms>[\d.]+) \|(?:.*global batch size:\s*(?P<batch>\d+) \|)?(?:.*lm loss: (?P<loss>[\d.Enaif+-]+) \|)?"]
        " [2025-04-13 23:41:20] iteration       20/    1000 | consumed samples:          320 | elapsed time per iteration (ms): 820.7 | learning rate: 4.0E-05 | global batch size:    16 | lm loss: 1.072453E+01 | loss scale: 1.0 |"
    "nanogpt", Some(WorkUnit::Token) => [r"iter (?P<step>\d+): loss (?P<loss>[\d.naif+-]+), time (?P<ms>[\d.]+)ms"]
        "iter 10: loss 3.2051, time 83.51ms, mfu 12.30%"
    "nemo", Some(WorkUnit::Token) => [r"iteration \d+/\d+ \|.*?(?:global_batch_size: (?P<batch>\d+) \|.*?)?global_step: (?P<step>\d+) \|.*?reduced_train_loss: (?P<loss>[\d.naif+-]+) \|.*?train_step_timing in s: (?P<s>[\d.]+)"]
        "Training epoch 0, iteration 1/249 | lr: 3.922e-06 | global_batch_size: 8 | global_step: 1 | reduced_train_loss: 1.653 | train_step_timing in s: 2.505 | consumed_samples: 16"
    "nanotron", Some(WorkUnit::Token) => [r"iteration: (?P<step>\d+) / \d+ \|.*elapsed_time_per_iteration_ms: (?P<ms>[\d.]+[KMB]?) \|.*global_batch_size: .*lm_loss: (?P<loss>[\d.naif+-]+)"]
        "[default0]:06/01/2024 12:00:00 [INFO|DP=0|PP=0|TP=0|host]: iteration: 4 / 100 | consumed_tokens: 16.4K | elapsed_time_per_iteration_ms: 1.25K | tokens_per_sec: 3.28K | tokens_per_sec_per_gpu: 1.64K | global_batch_size: 16 | lm_loss: 10.9 | lr: 0.0003"
    "deepspeed", None => [r"global_step=(?P<step>\d+), RunningAvgSamplesPerSec=[\d.]+, CurrSamplesPerSec=(?P<samples_per_s>[\d.]+)"]
        "[2023-09-15 00:09:45,317] [INFO] [timer.py:260:stop] epoch=0/micro_step=20/global_step=20, RunningAvgSamplesPerSec=502.1679292031866, CurrSamplesPerSec=519.4063914924576, MemAllocated=0.14GB, MaxMemAllocated=0.23GB"
    "composer", None => [r"\[batch=(?P<step>\d+)/", r"loss/train/total: (?P<loss>[\d.naif+-]+)", r"throughput/samples_per_sec: (?P<samples_per_s>[\d.]+)"]
        "[batch=10/100]:\n\t Train loss/train/total: 10.8123\n\t Train throughput/samples_per_sec: 12.5\n[batch=11/100]:"
    "pytorch-imagenet", Some(WorkUnit::Image) => [r"Epoch: \[\d+\]\[\s*\d+/\d+\]\s+Time\s+(?P<s>[\d.]+) \(.*Loss (?P<loss>[\d.e+-]+) \("]
        "Epoch: [0][  11/5005]\tTime  0.245 (  0.512)\tData  0.001 (  0.101)\tLoss 6.9876e+00 (7.0012e+00)\tAcc@1   0.00 (  0.10)"
    "horovod", Some(WorkUnit::Image) => [r"Iter #(?P<step>\d+): (?P<rank_images_per_s>[\d.]+) img/sec per"]
        "Iter #3: 312.4 img/sec per GPU"
    "tf-cnn-benchmarks", Some(WorkUnit::Image) => [r"(?P<step>\d+)\timages/sec: [\d.]+.*?\t(?P<loss>[\d.naif+-]+)"]
        "10\timages/sec: 96.7 +/- 0.4 (jitter = 1.3)\t7.913"
    "mlperf", None => [r#":::MLLOG .*"key": "tracked_stats", "value": \{.*"throughput": (?P<samples_per_s>[\d.]+).*"step": (?P<step>\d+)"#]
        ":::MLLOG {\"namespace\": \"\", \"time_ms\": 1696565401886, \"event_type\": \"POINT_IN_TIME\", \"key\": \"tracked_stats\", \"value\": {\"throughput\": 5154.5}, \"metadata\": {\"file\": \"callbacks.py\", \"lineno\": 284, \"step\": 12}}"
    "hf-trainer", None => [r"^\{'loss': '?(?P<loss>[\d.naif+-]+)'?, "]
        "{'loss': 2.075, 'grad_norm': 1.5, 'learning_rate': 0.00023, 'epoch': 0.04}"
};

/// Format of a program's lines: the name of a known trainer, or a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct LineFormat(String);

impl LineFormat {
    /// Returns the names of the known trainers.
    pub fn names() -> Vec<&'static str> {
        TRAINERS.iter().map(|trainer| trainer.name).collect()
    }

    /// Returns the known trainer; `None` for a regular expression.
    fn trainer(&self) -> Option<&'static Trainer> {
        TRAINERS.iter().find(|trainer| trainer.name == self.0)
    }

    /// Returns the unit of the trainer's work if it is known.
    pub fn unit(&self) -> Option<WorkUnit> {
        match self.trainer() {
            Some(trainer) => trainer.unit,
            None if self.0.contains("tokens_per_s>") => Some(WorkUnit::Token),
            None => self.0.contains("images_per_s>").then_some(WorkUnit::Image),
        }
    }

    /// Returns the regular expressions of an iteration's lines.
    pub(super) fn patterns(&self) -> anyhow::Result<Vec<Regex>> {
        match self.trainer() {
            Some(trainer) => trainer.lines.iter().map(|line| pattern(line)).collect(),
            None => Ok(vec![pattern(&self.0)?]),
        }
    }
}

/// Compiles a regular expression with at least one of [`GROUPS`] and no other named group.
fn pattern(text: &str) -> anyhow::Result<Regex> {
    let known = LineFormat::names().join(", ");
    let regex = Regex::new(text)
        .with_context(|| format!("{text:?} is neither a known trainer ({known}) nor a regular expression"))?;
    let groups: Vec<&str> = regex.capture_names().flatten().collect();
    if let Some(other) = groups.iter().find(|group| !GROUPS.contains(group)) {
        bail!("unknown group {other:?} in {text:?}: choose from {}", GROUPS.join(", "));
    }
    ensure!(
        !groups.is_empty(),
        "{text:?} is neither a known trainer ({known}) nor a regular expression with a group such as (?P<ms>[\\d.]+); \
         groups: {}",
        GROUPS.join(", ")
    );
    Ok(regex)
}

impl fmt::Display for LineFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for LineFormat {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<LineFormat> {
        let format = LineFormat(text.to_owned());
        format.patterns()?;
        Ok(format)
    }
}

text_value!(LineFormat);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;

    use super::*;
    use crate::line::program::LineReader;

    #[test]
    fn lines_of_known_trainers_are_read() {
        let read = |Trainer { name, example, .. }: &Trainer| {
            let mut reader = LineReader::new(&LineFormat((*name).to_owned())).expect("a format");
            let found: Vec<_> = example.lines().filter_map(|line| reader.read(line, Duration::ZERO)).collect();
            let [iteration] = &found[..] else { panic!("{name}: {found:?}") };
            format!(
                "{name}: step {:?}, {:?}, loss {:?}, batch {:?}\n",
                iteration.step, iteration.timing, iteration.loss, iteration.batch
            )
        };
        expect![[r#"
            torchtitan: step Some(10), Some(RankUnits(5762.0)), loss Some(7.0254), batch None
            megatron: step Some(20), Some(Time(0.8207000000000001)), loss Some(10.72453), batch Some(16)
            nanogpt: step Some(10), Some(Time(0.08351)), loss Some(3.2051), batch None
            nemo: step Some(1), Some(Time(2.505)), loss Some(1.653), batch Some(8)
            nanotron: step Some(4), Some(Time(1.25)), loss Some(10.9), batch None
            deepspeed: step Some(20), Some(Samples(519.4063914924576)), loss None, batch None
            composer: step Some(10), Some(Samples(12.5)), loss Some(10.8123), batch None
            pytorch-imagenet: step None, Some(Time(0.245)), loss Some(6.9876), batch None
            horovod: step Some(3), Some(RankUnits(312.4)), loss None, batch None
            tf-cnn-benchmarks: step Some(10), None, loss Some(7.913), batch None
            mlperf: step Some(12), Some(Samples(5154.5)), loss None, batch None
            hf-trainer: step None, None, loss Some(2.075), batch None
        "#]]
        .assert_eq(&TRAINERS.iter().map(read).collect::<String>());
    }

    #[test]
    fn invalid_formats_are_refused() {
        let errors = ["nanoGPT", "(", r"took (?P<minutes>\d+)"]
            .map(|text| format!("{:#}", text.parse::<LineFormat>().expect_err(text)));
        expect![[r#"
            "nanoGPT" is neither a known trainer (torchtitan, megatron, nanogpt, nemo, nanotron, deepspeed, composer, pytorch-imagenet, horovod, tf-cnn-benchmarks, mlperf, hf-trainer) nor a regular expression with a group such as (?P<ms>[\d.]+); groups: step, s, ms, tokens_per_s, rank_tokens_per_s, images_per_s, rank_images_per_s, samples_per_s, rank_samples_per_s, loss, batch
            "(" is neither a known trainer (torchtitan, megatron, nanogpt, nemo, nanotron, deepspeed, composer, pytorch-imagenet, horovod, tf-cnn-benchmarks, mlperf, hf-trainer) nor a regular expression: found open group without closing ')'
            unknown group "minutes" in "took (?P<minutes>\\d+)": choose from step, s, ms, tokens_per_s, rank_tokens_per_s, images_per_s, rank_images_per_s, samples_per_s, rank_samples_per_s, loss, batch"#]]
        .assert_eq(&errors.join("\n"));
    }
}

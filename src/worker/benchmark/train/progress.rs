//! Output of rank 0 during the run: the environment, then DLPerf's line for every iteration, and a progress bar on a
//! terminal.

use std::io::{IsTerminal, stderr, stdout};

use indicatif::{ProgressBar, ProgressStyle};
use ringmark_core::benchmark::train::{Interruption, Iteration, Resumption, RunHeader, Trial, Tuning};
use ringmark_core::benchmark::{RunLabel, measured_and_warmup};
use ringmark_core::dimension::{UnitsPerSecond, WorkUnit};
use ringmark_core::line::dlperf::{self, Batch};
use ringmark_core::untrusted_text::printable_lines;

use crate::job::environment;
use crate::job::world::World;
use crate::measure::step_timer::Sample;

/// Output of rank 0; the other ranks print nothing.
pub struct Progress {
    is_printing: bool,
    work: f64,
    unit: WorkUnit,
    iterations_before: u32,
    /// Iterations of an epoch, if lines count epochs (`--epochs`).
    epoch_iterations: Option<u32>,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Prints the environment, then the iterations `before` a run was resumed, so that the log is complete.
    pub fn new(world: &World, header: &RunHeader, before: &[Iteration]) -> Progress {
        let is_printing = world.rank() == 0;
        let batch = header.config.batch();
        let (work, unit) = (batch.work(header.case), batch.unit());
        let iterations_before = header.iterations_before();
        let learning = &header.config.learning;
        let epoch_iterations = learning.epochs.and(learning.epoch_iterations);
        if !is_printing {
            return Progress { is_printing, work, unit, iterations_before, epoch_iterations, bar: None };
        }
        for line in environment_lines(header) {
            println!("# {}", printable_lines(&line));
        }
        for Iteration { iteration, step, loss, .. } in before {
            let batch = Batch::at_iteration(*iteration, epoch_iterations);
            println!("{}", dlperf::write(batch, UnitsPerSecond(work / step[0].0), unit, loss[0]));
        }
        if let Some(Resumption { behind, changes, interruption, .. }) = header.resumptions.last() {
            if *behind > 0 {
                println!("{}", dlperf::write_resumption(*behind));
            }
            interruption.iter().filter_map(Interruption::line).for_each(|line| println!("{line}"));
            changes.iter().for_each(|change| println!("# {}", printable_lines(change)));
        }
        // mpirun gives ranks a pseudo-terminal for standard output, but not for standard error.
        let bar = (stdout().is_terminal() && stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{bar:32} iteration {pos} of {len}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(u64::from(header.config.iterations))
                .with_position(iterations_before.into())
                .with_style(style)
        });
        Progress { is_printing, work, unit, iterations_before, epoch_iterations, bar }
    }

    /// Prints finished iterations and adds them to `samples`. Speed is all ranks' work over this rank's time: the
    /// ranks wait for each other in every iteration.
    pub fn show(&mut self, finished: Vec<Sample>, samples: &mut Vec<Sample>) {
        for sample in finished {
            samples.push(sample);
            if !self.is_printing {
                continue;
            }
            let iteration = self.iterations_before + samples.len() as u32;
            let batch = Batch::at_iteration(iteration, self.epoch_iterations);
            self.line(&dlperf::write(batch, UnitsPerSecond(self.work / sample.step), self.unit, sample.loss));
            self.bar.iter().for_each(|bar| bar.inc(1));
        }
    }

    /// Prints a line that is not an iteration, as a comment.
    pub fn print(&self, comment: &str) {
        if self.is_printing {
            self.line(&format!("# {comment}"));
        }
    }

    fn line(&self, line: &str) {
        let line = printable_lines(line);
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    pub fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn environment_lines(header: &RunHeader) -> Vec<String> {
    let RunHeader { config, environment, ranks, .. } = header;
    let label = RunLabel { case: header.case, run: header.run, profile: header.profile };
    let mut lines = environment::title_lines(environment, config.model.facts().title, label);
    lines.push(training(header));
    lines.extend(header.work_division.as_ref().map(|division| format!("work load: {}", division.text())));
    let exchanged: u64 = header.buckets.iter().map(|bytes| bytes.0).sum();
    lines.push(format!(
        "gradients: {} bytes in {} buckets by {}, overlap {}, wire {}",
        exchanged,
        header.buckets.len(),
        header.backend,
        config.overlap,
        header.config.gradient_compression.with_sum(header.config.exchange.wire, header.sum_dtype)
    ));
    lines.extend(config.strategy.line());
    if let Some(Tuning { trials, chosen }) = &header.tuning {
        for (index, Trial { bucket_mb, chunk_kb, tail_mb, step }) in trials.iter().enumerate() {
            let mark = if index == *chosen { ", chosen" } else { "" };
            lines.push(format!(
                "autotune: buckets of {bucket_mb} MB, tail of {tail_mb} MB, chunks of {chunk_kb} kB: {:.2} ms{mark}",
                step.0 * 1e3
            ));
        }
    }
    lines.extend(header.no_graph.iter().map(|reason| format!("graphs off: {reason}")));
    lines.extend(environment::lines(environment, ranks));
    lines
}

fn training(header: &RunHeader) -> String {
    let config = &header.config;
    let pixels = config.model.image_size(config.image_size).map(|size| format!(", {size} px, {}", config.layout));
    format!(
        "{}, {}{}, {} iterations",
        config.batch().per_process("rank"),
        config.dtype,
        pixels.unwrap_or_default(),
        measured_and_warmup(config.iterations - config.warmup, config.warmup)
    )
}

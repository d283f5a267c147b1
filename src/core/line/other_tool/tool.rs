//! Tools whose logs have no line per iteration, the windows of their rates, and the interface of their readers.

use crate::keyword_enum;
use crate::line::log_problem::LogProblem;

keyword_enum!(
    /// Benchmark whose lines are rates of several iterations.
    Tool {
        /// MXNet's callback `Speedometer`.
        Speedometer = "speedometer",
        /// Horovod's synthetic benchmarks.
        Horovod = "horovod",
        /// TensorFlow's `tf_cnn_benchmarks`.
        TfCnnBenchmarks = "tf_cnn_benchmarks",
    }
);

impl Tool {
    /// Returns the name for sentences.
    pub fn title(self) -> &'static str {
        match self {
            Tool::Speedometer => "MXNet's Speedometer",
            Tool::Horovod => "Horovod's synthetic benchmark",
            Tool::TfCnnBenchmarks => "tf_cnn_benchmarks",
        }
    }
}

/// Consecutive windows of iterations that the speeds of a log refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Tool that wrote the lines.
    pub tool: Tool,
    /// Iterations per window. `None` if the log does not contain it, as with tools that run their own warm-up before
    /// the first.
    pub iterations: Option<u32>,
    /// Ranks whose images are included in the speeds.
    pub ranks: u32,
    /// Images per rank and iteration, if the log contains it.
    pub batch_size: Option<u32>,
}

/// Reader of one tool's lines, in order.
pub trait ToolReader {
    /// Reads a line. Returns `None` unless it is a rate of this tool, and an error text if the rate is invalid.
    /// Relevant values of other lines are stored.
    fn read_line(&mut self, line: &str, number: u64) -> Option<Result<(), String>>;

    /// Returns the speed of every window in order, in images/s over all ranks; called after the last line.
    fn finish(&self) -> Result<(Vec<f64>, Windows), LogProblem>;
}

/// Returns the error text for a line called `name` that is not the expected one.
pub fn out_of_order(name: impl Fn(u64) -> String, number: u64, due: u64) -> String {
    let cause = if number < due { "two outputs in one log" } else { "lines are missing" };
    format!("expected {}, found {}: {cause}: repeat the run", name(due), name(number))
}

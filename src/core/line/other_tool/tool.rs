//! Which tool wrote a log that has no line an iteration, what its rates are of, and what is asked of its reader.

use crate::keyword_enum;
use crate::line::remark::Remark;

keyword_enum!(
    /// Benchmarks whose lines are rates of several iterations.
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
    /// In a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Tool::Speedometer => "MXNet's Speedometer",
            Tool::Horovod => "Horovod's synthetic benchmark",
            Tool::TfCnnBenchmarks => "tf_cnn_benchmarks",
        }
    }
}

/// What the speeds of a log are of, instead of single iterations: windows of them, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Whose lines they are.
    pub tool: Tool,
    /// Iterations in each. `None` where the log does not say, as of tools that run their own warm-up before the first.
    pub iterations: Option<u32>,
    /// Ranks whose images the speeds count.
    pub ranks: u32,
    /// Images a rank and iteration, where the log says.
    pub batch_size: Option<u32>,
}

/// Reads one tool's lines, one after another.
pub trait ToolReader {
    /// Whether a line is a rate of this tool, and what is wrong with it. What other lines say is kept where it matters.
    fn take(&mut self, line: &str, number: u64) -> Option<Result<(), String>>;

    /// After the last line: the speed of every window in order, in images/s over all ranks.
    fn finish(&self) -> Result<(Vec<f64>, Windows), Remark>;
}

/// That the line called `name` is not the one that is due.
pub fn out_of_order(name: impl Fn(u64) -> String, number: u64, due: u64) -> String {
    let cause = if number < due { "two outputs in one log" } else { "lines are missing" };
    format!("{} where {} is due: {cause}, repeat the run", name(number), name(due))
}

//! Logs of other tools whose lines are rates of several iterations. The meaning of the lines is taken from the tools'
//! sources; DLPerf's lines are in [`crate::line::dlperf`].

pub mod horovod;
pub mod speedometer;
pub mod tf_cnn_benchmarks;
pub mod tool;

use crate::line::log_problem::LogProblem;
use crate::line::other_tool::horovod::Horovod;
use crate::line::other_tool::speedometer::Speedometer;
use crate::line::other_tool::tf_cnn_benchmarks::TfCnnBenchmarks;
use crate::line::other_tool::tool::{Tool, ToolReader, Windows};
use crate::options::keyword_enum::KeywordEnum;

/// Reader of the lines of a log that are not in DLPerf's format.
#[derive(Debug, Default)]
pub struct OtherLines {
    speedometer: Speedometer,
    horovod: Horovod,
    tf_cnn_benchmarks: TfCnnBenchmarks,
    first: Option<Tool>,
}

impl OtherLines {
    /// Reads a line. If it is a rate, returns its tool and any problem with it; `None` for any other line.
    pub fn read_line(&mut self, line: &[u8], number: u64) -> Option<(Tool, Result<(), String>)> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end();
        let (tool, taken) =
            Tool::ALL.iter().find_map(|tool| Some((*tool, self.reader_mut(*tool).read_line(line, number)?)))?;
        let first = *self.first.get_or_insert(tool);
        let taken = if first == tool { taken } else { Err(mixed_log_error(tool.title(), first.title())) };
        Some((tool, taken))
    }

    /// Returns the tool whose rates are in the log.
    pub fn tool(&self) -> Option<Tool> {
        self.first
    }

    /// Returns the speeds of all windows in order, over all ranks; called after the last line. `None` if the log
    /// contains no tool's rate.
    pub fn finish(&mut self) -> Option<Result<(Vec<f64>, Windows), LogProblem>> {
        let tool = self.first?;
        Some(self.reader_mut(tool).finish())
    }

    fn reader_mut(&mut self, tool: Tool) -> &mut dyn ToolReader {
        match tool {
            Tool::Speedometer => &mut self.speedometer,
            Tool::Horovod => &mut self.horovod,
            Tool::TfCnnBenchmarks => &mut self.tf_cnn_benchmarks,
        }
    }
}

/// Returns the error text for a line of one writer in a log of another.
pub fn mixed_log_error(line: &str, log: &str) -> String {
    format!("a line of {line} in a log of {log}: use one log per output")
}

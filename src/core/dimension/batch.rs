//! Size of a batch: images or sequences of tokens, per rank or of all ranks.

use std::fmt;

use crate::dimension::{Case, WorkUnit};

/// Number of samples that an iteration trains on. A sample is an image or a sequence of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BatchSize {
    /// Samples of each rank: all ranks together have more in larger cases (weak scaling).
    PerRank(u32),
    /// Samples of all ranks together, which each rank has an equal part of (strong scaling).
    Global(u32),
}

impl BatchSize {
    /// Returns the number as given on the command line.
    pub const fn number(self) -> u32 {
        match self {
            BatchSize::PerRank(number) | BatchSize::Global(number) => number,
        }
    }

    /// Returns the samples of `ranks` ranks together.
    pub fn joined(self, ranks: u32) -> u64 {
        match self {
            BatchSize::PerRank(samples) => u64::from(samples) * u64::from(ranks),
            BatchSize::Global(samples) => samples.into(),
        }
    }

    /// Returns true for the samples of all ranks together.
    pub const fn is_global(self) -> bool {
        matches!(self, BatchSize::Global(_))
    }

    /// Returns a size of the same kind.
    pub const fn with_number(self, number: u32) -> BatchSize {
        match self {
            BatchSize::PerRank(_) => BatchSize::PerRank(number),
            BatchSize::Global(_) => BatchSize::Global(number),
        }
    }
}

/// A batch, as the part of a run's name that identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchShape {
    /// Tokens of a sample; `None` for images.
    pub sequence_length: Option<u32>,
    /// Number of samples.
    pub size: BatchSize,
}

impl BatchShape {
    /// Creates a batch of `images` images per rank.
    pub const fn per_rank(samples: u32) -> BatchShape {
        BatchShape { size: BatchSize::PerRank(samples), sequence_length: None }
    }

    /// Returns the samples of each of `ranks` ranks: their mean if they have different numbers.
    pub fn samples_per_rank(self, ranks: u32) -> f64 {
        self.size.joined(ranks) as f64 / f64::from(ranks)
    }

    /// Returns the images or tokens of a sample.
    pub fn units_per_sample(self) -> f64 {
        self.sequence_length.map_or(1.0, f64::from)
    }

    /// Returns the images or tokens that all ranks of `case` train on in an iteration.
    ///
    /// Two ranks with 8 sequences of 1024 tokens each have 16,384 tokens.
    pub fn work(self, case: Case) -> f64 {
        self.size.joined(case.ranks()) as f64 * self.units_per_sample()
    }

    /// Returns the unit of [`work`](BatchShape::work).
    pub const fn unit(self) -> WorkUnit {
        if self.sequence_length.is_some() { WorkUnit::Token } else { WorkUnit::Image }
    }

    /// Returns the part of a file name: `b8`, `g256` for all ranks, `b8_s1024` for sequences.
    pub fn file_part(self) -> String {
        let size = match self.size {
            BatchSize::PerRank(samples) => format!("b{samples}"),
            BatchSize::Global(samples) => format!("g{samples}"),
        };
        match self.sequence_length {
            None => size,
            Some(tokens) => format!("{size}_s{tokens}"),
        }
    }

    /// Parses the parts of a file name: the size, and the length of a sequence.
    pub fn from_file_parts(size: &str, sequence_length: Option<&str>) -> Option<BatchShape> {
        let number = |text: &str| text.parse().ok().filter(|number: &u32| *number > 0);
        let size = match size.split_at_checked(1)? {
            ("b", samples) => BatchSize::PerRank(number(samples)?),
            ("g", samples) => BatchSize::Global(number(samples)?),
            _ => return None,
        };
        let sequence_length = match sequence_length {
            None => None,
            Some(text) => Some(number(text.strip_prefix('s')?)?),
        };
        Some(BatchShape { size, sequence_length })
    }

    /// Returns `batch size 8 per GPU`, with `process` for the GPU, or `global batch size 256`.
    pub fn per_process(self, process: &str) -> String {
        match self.size {
            BatchSize::PerRank(_) => format!("{self} per {process}"),
            BatchSize::Global(_) => self.to_string(),
        }
    }

    /// Returns the number of samples and the length of a sequence: `8`, or `8 x 1024 tokens`.
    pub fn numbers(self) -> String {
        let samples = self.size.number();
        self.sequence_length.map_or_else(|| samples.to_string(), |tokens| format!("{samples} x {tokens} tokens"))
    }
}

impl fmt::Display for BatchShape {
    /// Formats as `batch size 8`, `batch size 8 x 1024 tokens` or `global batch size 256`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let global = if matches!(self.size, BatchSize::Global(_)) { "global " } else { "" };
        write!(formatter, "{global}batch size {}", self.numbers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_the_units_of_all_ranks() {
        let case = Case { nodes: 2, gpus_per_node: 2 };
        assert_eq!(BatchShape::per_rank(8).work(case), 32.0);
        let sequences = BatchShape { sequence_length: Some(1024), ..BatchShape::per_rank(8) };
        assert_eq!((sequences.work(case), sequences.unit()), (32_768.0, WorkUnit::Token));
        let global = BatchShape { size: BatchSize::Global(32), sequence_length: None };
        assert_eq!((global.work(Case::SINGLE), global.work(case)), (32.0, 32.0));
        assert_eq!((global.samples_per_rank(1), global.samples_per_rank(4)), (32.0, 8.0));
    }

    #[test]
    fn file_part_round_trips() {
        for (size, sequence_length, part, text) in [
            (BatchSize::PerRank(8), None, "b8", "batch size 8 per GPU"),
            (BatchSize::PerRank(8), Some(1024), "b8_s1024", "batch size 8 x 1024 tokens per GPU"),
            (BatchSize::Global(256), None, "g256", "global batch size 256"),
            (BatchSize::Global(256), Some(64), "g256_s64", "global batch size 256 x 64 tokens"),
        ] {
            let shape = BatchShape { size, sequence_length };
            assert_eq!((shape.file_part().as_str(), shape.per_process("GPU").as_str()), (part, text));
            let mut parts = part.split('_');
            assert_eq!(BatchShape::from_file_parts(parts.next().expect("a size"), parts.next()), Some(shape));
        }
        for (size, length) in [("8", None), ("b0", None), ("b", None), ("b8", Some("1024")), ("b8", Some("s0"))] {
            assert_eq!(BatchShape::from_file_parts(size, length), None, "{size} {length:?}");
        }
    }
}

//! Output of PyTorch's DDP benchmark (`benchmarks/distributed/ddp/benchmark.py`): percentiles of the iteration time and
//! the images per second of one rank, one line per group of ranks. Identical to the original, character for character.

use crate::dimension::{BackendName, Bytes, Case, DeviceKind, Model};
use crate::host::Environment;
use crate::host::environment::NUMA;
use crate::number_text::without_trailing_zeros;
use crate::stats::summary::{STEP_PERCENTS, percentile};

/// Header of PyTorch's benchmark, before its first block.
#[derive(Debug, Clone, PartialEq)]
pub struct Head<'a> {
    /// Version of libtorch.
    pub pytorch_version: &'a str,
    /// CUDA version, if ranks compute on CUDA.
    pub cuda_version: Option<&'a str>,
    /// Backend that sums the gradients.
    pub backend: BackendName,
    /// Size of a bucket.
    pub bucket: Bytes,
    /// Topology of the first host, by `nvidia-smi topo -m` or, without a GPU, hwloc.
    pub topology: &'a [String],
}

/// PyTorch's unit of the bucket size (`bucket_cap_mb * 1024 * 1024` bytes); ringmark's is MB.
pub const MEBIBYTE: f64 = 1_048_576.0;

impl<'a> Head<'a> {
    /// Creates the header for ranks on `device`, from the record of one of their runs. libtorch's build also has a CUDA
    /// version if nothing ran on CUDA.
    pub fn new(environment: &'a Environment, device: DeviceKind, backend: BackendName, bucket: Bytes) -> Head<'a> {
        Head {
            pytorch_version: &environment.libtorch_version,
            cuda_version: environment.cuda_version.as_deref().filter(|_| device == DeviceKind::Cuda),
            backend,
            bucket,
            topology: &environment.topology,
        }
    }

    /// Returns the lines, with an empty one at the end.
    pub fn lines(&self) -> Vec<String> {
        const RULE: &str = "-----------------------------------";
        let program = match self.topology.first() {
            Some(line) if line.starts_with(NUMA) => "/sys/devices/system/node",
            _ if self.cuda_version.is_some() => "nvidia-smi topo -m",
            _ => "lstopo-no-graphics",
        };
        let bucket = format!("{:.2}", self.bucket.0 as f64 / MEBIBYTE);
        let bucket = without_trailing_zeros(&bucket);
        let mut lines: Vec<String> = [RULE, "PyTorch distributed benchmark suite", RULE, ""].map(str::to_owned).into();
        lines.extend([
            format!("* PyTorch version: {}", self.pytorch_version),
            format!("* CUDA version: {}", self.cuda_version.unwrap_or("None")),
            format!("* Distributed backend: {}", self.backend),
            format!("* Maximum bucket size: {bucket}MB"),
            String::new(),
            format!("--- {program} ---"),
            String::new(),
        ]);
        lines.extend(self.topology.iter().cloned());
        lines.extend(self.topology.is_empty().then(|| "not recorded: neither program nor NUMA nodes".to_owned()));
        lines.extend([String::new(), "--------------------------".to_owned(), String::new()]);
        lines
    }
}

/// Returns the lines of one model after its title and column names. PyTorch's benchmark uses torchvision's name of the
/// model.
pub fn block(model: Model, batch_size: u32, lines: impl IntoIterator<Item = String>) -> Vec<String> {
    [title(model, batch_size), String::new(), header()].into_iter().chain(lines).collect()
}

fn title(model: Model, batch_size: u32) -> String {
    format!("Benchmark: {} with batch size {batch_size}", model.facts().source_name)
}

/// Returns the line of column names.
fn header() -> String {
    format!("{:22}{}", "", format!("{:>14}{:>10}", "sec/iter", "ex/sec").repeat(STEP_PERCENTS.len()))
}

/// Returns true if ranks of `case` exchange nothing: those of a baseline, and a single rank that has no baseline.
pub fn is_without_ddp(case: Case, is_baseline: bool, has_baseline: bool) -> bool {
    is_baseline || (case == Case::SINGLE && !has_baseline)
}

/// Returns the label of a case: `1M/8G`, or `no ddp` for ranks that exchange nothing.
pub fn label(case: Case, baseline: bool) -> String {
    match baseline {
        true => "  no ddp".to_owned(),
        false => format!("   {}M/{}G", case.nodes, case.gpus_per_node),
    }
}

/// Formats the line of these iteration times of all ranks, in seconds; `None` if there are none.
pub fn write(case: Case, baseline: bool, batch_size: u32, steps: &[f64]) -> Option<String> {
    let mut line = format!("{:4} GPUs -- {}:", case.ranks(), label(case, baseline));
    for percent in STEP_PERCENTS {
        let seconds = percentile(steps, percent.into())?;
        // Truncated instead of rounded, as PyTorch does.
        let examples = (f64::from(batch_size) / seconds) as u64;
        line.push_str(&format!("  p{percent:02}:  {seconds:.3}s  {examples:6}/s"));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn lines_match_pytorch() {
        // Copied from PyTorch's README.
        let shown = "                            sec/iter    ex/sec      sec/iter    ex/sec      sec/iter    ex/sec      sec/iter    ex/sec";
        assert_eq!(header(), shown);
        let case = |text: &str| text.parse::<Case>().expect("a case");
        let line = |text, baseline, step| write(case(text), baseline, 32, &[step]).expect("one");
        let shown = "   1 GPUs --   no ddp:  p50:  0.097s     329/s  p75:  0.097s     329/s  p90:  0.097s     329/s  p95:  0.097s     329/s";
        assert_eq!(line("1n1g", true, 0.0971), shown);
        let shown = "  16 GPUs --    2M/8G:  p50:  0.104s     306/s  p75:  0.104s     306/s  p90:  0.104s     306/s  p95:  0.104s     306/s";
        assert_eq!(line("2n8g", false, 0.1044), shown);
        let title = "Benchmark: resnet50 with batch size 32".to_owned();
        assert_eq!(
            block(Model::Resnet50V1b, 32, ["a line".to_owned()]),
            [title, String::new(), header(), "a line".to_owned()]
        );
    }

    #[test]
    fn header_matches_pytorch() {
        let topology = ["\tGPU0\tCPU Affinity".to_owned(), "GPU0\t X \t0-15".to_owned()];
        let head = Head {
            pytorch_version: "2.11.0",
            cuda_version: Some("13.0"),
            backend: BackendName::Nccl,
            bucket: Bytes(26_214_400),
            topology: &topology,
        };
        let shown = "-----------------------------------\nPyTorch distributed benchmark suite\n\
                     -----------------------------------\n\n* PyTorch version: 2.11.0\n* CUDA version: 13.0\n\
                     * Distributed backend: nccl\n* Maximum bucket size: 25MB\n\n--- nvidia-smi topo -m ---\n\n\
                     \tGPU0\tCPU Affinity\nGPU0\t X \t0-15\n\n--------------------------\n";
        assert_eq!(head.lines().join("\n"), shown);
        let on_cpu = Head { cuda_version: None, bucket: Bytes(25_000_000), topology: &[], ..head.clone() }.lines();
        assert!(on_cpu.contains(&"* CUDA version: None".to_owned()), "{on_cpu:?}");
        assert!(on_cpu.contains(&"* Maximum bucket size: 23.84MB".to_owned()), "{on_cpu:?}");
        let block = |head: &Head| head.lines()[9..].join("\n");
        let head = Head { cuda_version: None, ..head.clone() };
        expect![[r"
            --- lstopo-no-graphics ---

            not recorded: neither program nor NUMA nodes

            --------------------------
        "]]
        .assert_eq(&block(&Head { topology: &[], ..head.clone() }));
        let nodes = ["NUMA       node0  processors", "node0         10  0-1"].map(str::to_owned);
        expect![[r"
            --- /sys/devices/system/node ---

            NUMA       node0  processors
            node0         10  0-1

            --------------------------
        "]]
        .assert_eq(&block(&Head { topology: &nodes, ..head.clone() }));
    }

    #[test]
    fn percentiles_match_numpy() {
        // numpy.percentile([0.1, 0.2, 0.4, 0.3], [50, 75, 90, 95]) = 0.25, 0.325, 0.37, 0.385.
        let line = write(Case::SINGLE, false, 8, &[0.1, 0.2, 0.4, 0.3]).expect("four");
        let shown = "   1 GPUs --    1M/1G:  p50:  0.250s      32/s  p75:  0.325s      24/s  p90:  0.370s      21/s  p95:  0.385s      20/s";
        assert_eq!(line, shown);
        assert_eq!(write(Case::SINGLE, false, 8, &[]), None);
    }
}

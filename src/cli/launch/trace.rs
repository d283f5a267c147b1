//! `--trace` for commands whose job is a single run, and what its other options require.

use anyhow::ensure;
use clap::Args;
use ringmark_core::options::usage::usage;
use ringmark_core::trace::TraceConfig;

/// Option that traces every job.
#[derive(Debug, Args)]
pub struct TraceOption {
    /// Write a timeline of all ranks next to each record, named .trace.json instead of .json
    #[arg(long)]
    trace: bool,
}

impl TraceOption {
    /// Returns true if jobs are traced.
    pub fn into_is_traced(self, trace: &TraceConfig) -> anyhow::Result<bool> {
        check(self.trace, "--trace", trace).map_err(usage)?;
        Ok(self.trace)
    }
}

/// Rejects options of a trace if no trace is requested; `option` is the one that requests it.
pub fn check(is_traced: bool, option: &str, trace: &TraceConfig) -> anyhow::Result<()> {
    let TraceConfig { iterations, format, .. } = trace;
    ensure!(
        is_traced || trace.is_profiled() || iterations.is_none(),
        "--trace-iterations applies to traced runs: add {option}"
    );
    ensure!(
        is_traced || *format == TraceConfig::default().format,
        "--trace-format {format} applies to traced runs: add {option}"
    );
    Ok(())
}

//! The results folder: its default name, and its absolute path for other hosts.

use std::path::{self, Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;

/// Returns `results/<UTC date>T<time>Z_<what>`, the default folder of a command.
pub fn default_path(what: &str, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
    Path::new("results").join(format!("{time}_{what}"))
}

/// Returns `out` as an absolute path: ranks on other hosts start in another folder.
pub fn absolute(out: &Path) -> anyhow::Result<PathBuf> {
    path::absolute(out).with_context(|| format!("--out {}", out.display()))
}

/// Returns the line of a plan that names the folder.
pub fn line(out: &Path) -> String {
    format!("logs and records: {}", out.display())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn default_folder_contains_time_and_command() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_719_323);
        assert_eq!(default_path("bandwidth", time), Path::new("results/20251121T100203Z_bandwidth"));
    }
}

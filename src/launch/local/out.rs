//! The folder of results: its name where the user gave none, and its path as other hosts need it.

use std::path::{self, Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;

/// `results/<UTC date>T<time>Z_<what>`, for a command that is given no folder.
pub fn default_out(what: &str, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
    Path::new("results").join(format!("{time}_{what}"))
}

/// `out` as ranks need it, which on other hosts start in another folder.
pub fn absolute_out(out: &Path) -> anyhow::Result<PathBuf> {
    path::absolute(out).with_context(|| format!("--out {}", out.display()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_default_folder_tells_time_and_subject() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_719_323);
        assert_eq!(default_out("bandwidth", time), Path::new("results/20251121T100203Z_bandwidth"));
    }
}

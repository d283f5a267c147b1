//! Control and accounting of the kernel's page cache: drops files from it and counts the bytes read from storage.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::syncfs;
use ringmark_core::dimension::Bytes;

use crate::job::heartbeat;

/// Requests that the kernel drop the cached pages of these files. Dirty pages are written first, because the kernel
/// keeps them; it also keeps mapped pages and every page of a tmpfs. [`fetched`] shows whether it worked.
pub fn drop_pages(files: impl Iterator<Item = PathBuf>) -> Result<()> {
    let mut is_synced = false;
    for path in files {
        let drop = || -> Result<()> {
            let file = File::open(&path)?;
            if !is_synced {
                syncfs(&file)?;
            }
            Ok(posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?)
        };
        drop().with_context(|| format!("cannot drop the cached pages of {}", path.display()))?;
        is_synced = true;
        heartbeat::count_progress();
    }
    Ok(())
}

/// Returns the bytes that the kernel has fetched for this process from a disk or a file server; `None` if the kernel
/// does not count them.
pub fn fetched() -> Option<Bytes> {
    read_bytes(&fs::read_to_string("/proc/self/io").ok()?)
}

fn read_bytes(counters: &str) -> Option<Bytes> {
    counters.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok()).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_reads_are_read_bytes_not_rchar() {
        let counters = "rchar: 4321\nwchar: 0\nsyscr: 7\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 0\n";
        assert_eq!(read_bytes(counters), Some(Bytes(4096)));
        assert_eq!(read_bytes(""), None);
    }
}

//! The file system below a folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::statvfs::statvfs;
use ringmark_core::dimension::Bytes;

/// File systems that keep their files in memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Type, such as `ext4`, `nfs4` or `lustre`.
    pub kind: String,
    /// Device or server that is mounted.
    pub source: String,
}

impl FileSystem {
    /// Returns the file system of a folder that exists.
    pub fn of_folder(folder: &Path) -> Result<FileSystem> {
        let folder = folder.canonicalize()?;
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
        mounted_at(&mounts, &folder).with_context(|| format!("no file system is mounted at {}", folder.display()))
    }

    /// Returns true if its files are in memory, not on a disk or a server.
    pub fn is_in_memory(&self) -> bool {
        IN_MEMORY.contains(&self.kind.as_str())
    }
}

/// Returns the space below `folder` that is left for the files of this user.
pub fn free_space(folder: &Path) -> Result<Bytes> {
    let found = statvfs(folder)?;
    // The types of both fields depend on the platform.
    #[allow(clippy::unnecessary_cast)]
    Ok(Bytes(found.blocks_available() as u64 * found.fragment_size() as u64))
}

/// Returns the file system in `mounts` (the format of fstab) that contains `folder`: the last one with the longest path.
fn mounted_at(mounts: &str, folder: &Path) -> Option<FileSystem> {
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').map(unescape);
        let (source, target, kind) = (words.next()?, PathBuf::from(words.next()?), words.next()?);
        folder.starts_with(&target).then(|| (target.components().count(), FileSystem { kind, source }))
    });
    entries.max_by_key(|(length, _)| *length).map(|(_, file_system)| file_system)
}

/// Replaces the escapes of blanks in /proc/self/mounts.
fn unescape(word: &str) -> String {
    word.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
/dev/sda1 / ext4 rw,relatime 0 0
tmpfs /dev/shm tmpfs rw 0 0
server:/export /data nfs4 rw 0 0
/dev/sdb1 /data/my\\040disk xfs rw 0 0
/dev/sdc1 /data/my\\040disk btrfs rw 0 0
";

    #[test]
    fn longest_and_last_mount_contains_the_folder() {
        let found = |folder: &str| {
            let FileSystem { kind, source } = mounted_at(MOUNTS, Path::new(folder)).expect("a root");
            format!("{kind} of {source}")
        };
        assert_eq!(found("/home/a"), "ext4 of /dev/sda1");
        assert_eq!(found("/database"), "ext4 of /dev/sda1", "a name that begins like a mount");
        assert_eq!(found("/data/x"), "nfs4 of server:/export");
        assert_eq!(found("/data/my disk/x"), "btrfs of /dev/sdc1");
        assert!(mounted_at(MOUNTS, Path::new("/dev/shm/x")).expect("mounted").is_in_memory());
        assert_eq!(mounted_at("", Path::new("/")), None);
    }

    #[test]
    fn file_system_of_the_source_has_space() {
        FileSystem::of_folder(Path::new(".")).expect("a folder");
        assert!(free_space(Path::new(".")).expect("a folder").0 > 0);
        assert!(FileSystem::of_folder(Path::new("/none")).is_err());
    }
}

//! Control groups that limit the memory of a rank.

use std::fs;
use std::path::{Path, PathBuf};

/// A control group that limits the memory of its processes; removed on drop.
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group; `None` if this user may not create one, or the machine has none.
    pub fn new(name: &str, bytes: u64) -> Option<MemoryGroup> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        let folder = root.join(name);
        fs::create_dir_all(&folder).ok()?;
        let group = MemoryGroup(folder);
        fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }

    /// Returns the file to which a process writes its PID to join.
    pub fn processes(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

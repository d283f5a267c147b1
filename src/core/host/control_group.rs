//! Folders of this process's control groups, for versions 1 and 2.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

/// Returns this process's groups as listed by the kernel.
pub fn list() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Returns the folders that may contain the files of `controller`, from a [`list`] of groups: first the group itself,
/// then its ancestors up to the visible root. In a container with its own namespace that is the group itself.
pub fn folders(list: &str, controller: &str) -> Vec<PathBuf> {
    const ROOT: &str = "/sys/fs/cgroup";
    let mut folders = Vec::new();
    for line in list.lines() {
        // `0::/path` of version 2, `4:cpu,cpuacct:/path` of version 1.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mounts = match controllers {
            "" => ["", "unified"],
            _ if controllers.split(',').any(|name| name == controller) => [controller, controllers],
            _ => continue,
        };
        for group in iter::successors(Some(Path::new(path)), |group| group.parent()) {
            let below = group.strip_prefix("/").unwrap_or(group);
            folders.extend(mounts.map(|mount| Path::new(ROOT).join(mount).join(below)));
        }
    }
    folders.dedup();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_include_parents() {
        let found = |list: &str| -> Vec<String> {
            folders(list, "cpu")
                .iter()
                .map(|folder| folder.to_string_lossy().trim_end_matches('/').to_owned())
                .collect()
        };
        let second = found("0::/a/b\n");
        assert_eq!((second[0].as_str(), second.len()), ("/sys/fs/cgroup/a/b", 6));
        assert!(second.contains(&"/sys/fs/cgroup".to_owned()), "{second:?}");
        let first = found("5:memory:/m\n4:cpu,cpuacct:/a\n1:name=systemd:/\n");
        assert_eq!(first[..2], ["/sys/fs/cgroup/cpu/a", "/sys/fs/cgroup/cpu,cpuacct/a"]);
        assert!(first.contains(&"/sys/fs/cgroup/cpu".to_owned()) && first.len() == 4, "{first:?}");
        assert!(found("").is_empty());
    }
}

//! Results folder: locks it for one command at a time, and removes the leftovers of a killed one.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::{self, LOCK};
use ringmark_core::options::usage::usage;

use crate::launch::local::disk_error;
use crate::output::message::print_error;

/// An exclusive lock on a folder. It is released when the value is dropped, or when this process and the mpirun that it
/// started have ended for any reason: the kernel releases it.
///
/// On NFS it also excludes other hosts, unless the folder is mounted with `nolock` or `local_lock`; there, and on file
/// systems without locks, sweeps from two hosts are not excluded.
#[derive(Debug)]
pub struct FolderLock {
    folder: PathBuf,
    /// True if the folder was created for this lock.
    is_new: bool,
    file: File,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // A command that was rejected before its first job leaves no folder behind. A process that has opened the file
        // in the meantime detects its removal with `check_folder`.
        let is_empty = || fs::read_dir(&self.folder).is_ok_and(|entries| entries.count() == 1);
        if self.is_new && self.check_folder().is_ok() && is_empty() {
            let _ = fs::remove_file(self.folder.join(LOCK)).and_then(|()| fs::remove_dir(&self.folder));
        }
        // Closing is not enough if a child has inherited the file. If unlocking fails, the end of the process releases
        // the lock.
        let _ = self.file.unlock();
    }
}

impl FolderLock {
    /// Creates the folder if it does not exist, and locks it; fails if another command holds the lock. `host` is this
    /// machine.
    pub fn acquire(folder: &Path, host: &str) -> anyhow::Result<FolderLock> {
        ensure!(!folder.is_file(), usage(anyhow!("--out {} is a file: choose a folder", folder.display())));
        let is_new = !folder.exists();
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create folder {}: choose a writable --out", folder.display()))?;
        let not_written = |error: io::Error| {
            let fix = disk_error::fix(&error).unwrap_or("choose a writable --out");
            anyhow!("cannot write to folder {}: {error}: {fix}", folder.display())
        };
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(not_written)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use_error(folder, &mut file, host)),
            Err(TryLockError::Error(error)) => print_error(&format!(
                "warning: cannot lock folder {} ({error}): make sure that no other program writes to it",
                folder.display()
            )),
        }
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let holder = format!("{} {host} {now}\n", std::process::id());
        file.set_len(0).and_then(|()| file.write_all(holder.as_bytes())).map_err(not_written)?;
        // mpirun inherits it: a job that outlives a killed ringmark still writes, and must keep out the next command.
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty())).context("cannot pass the lock on to mpirun")?;
        Ok(FolderLock { folder: folder.to_owned(), is_new, file })
    }

    /// Fails if the folder is no longer the locked one: files of one sweep would end up in two folders.
    pub fn check_folder(&self) -> anyhow::Result<()> {
        let identity = |file: Metadata| (file.dev(), file.ino());
        let there = fs::metadata(self.folder.join(LOCK)).map(identity);
        ensure!(
            there.ok() == self.file.metadata().map(identity).ok(),
            "results folder {} was removed, renamed or replaced during the sweep: restore it",
            self.folder.display()
        );
        Ok(())
    }
}

/// Describes the process that holds the lock of `folder`, as far as `file` records it.
fn in_use_error(folder: &Path, file: &mut File, host: &str) -> anyhow::Error {
    let mut text = String::new();
    // The text is only used in the message.
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let fields: Vec<&str> = text.split_whitespace().collect();
    let out = folder.display();
    usage(match fields[..] {
        [process, there, since] => {
            let owner = format!("ringmark (process {process} on host {there}, since {since})");
            let number = process.parse().map(Pid::from_raw);
            if there == host && number.is_ok_and(|process| kill(process, None) == Err(nix::errno::Errno::ESRCH)) {
                anyhow!(
                    "--out {out} is still in use by a job of {owner}, which was killed: wait for its mpirun to exit, \
                     or stop it"
                )
            } else {
                anyhow!("--out {out} is in use by {owner}: wait for it to exit, or choose another folder")
            }
        }
        _ => anyhow!("--out {out} is in use by another ringmark: wait for it to exit, or choose another folder"),
    })
}

/// Returns the error for a folder in use: two results in one folder could not be separated later. `found` is what it
/// contains; `is_resumable` is true if the same command continues it with `--resume`.
pub fn used_error(out: &Path, found: impl Display, is_resumable: bool) -> anyhow::Error {
    let resume = if is_resumable { "add --resume to continue, " } else { "" };
    usage(anyhow!(
        "--out {} already contains {found}: {resume}choose another folder, or move this one away",
        out.display()
    ))
}

/// Renames files of a previous attempt so that no reader counts them.
pub fn rename_earlier(files: &[PathBuf]) -> anyhow::Result<()> {
    let there: Vec<&PathBuf> = files.iter().filter(|file| file.exists()).collect();
    let is_free = |attempt: &u32| files.iter().all(|file| !run_name::attempt_path(file, *attempt).exists());
    let attempt = (1..).find(is_free).context("too many earlier attempts")?;
    for file in there {
        fs::rename(file, run_name::attempt_path(file, attempt))
            .with_context(|| format!("cannot rename {} to keep it", file.display()))?;
    }
    Ok(())
}

/// Prepares a locked folder for the first job, and checks that the folder of every log is writable.
pub fn prepare<'a>(out: &Path, logs: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<()> {
    remove_part_files(out);
    let folders: BTreeSet<&Path> = logs.into_iter().filter_map(Path::parent).collect();
    for folder in folders {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create folder {}: choose a writable --out", folder.display()))?;
        remove_part_files(folder);
    }
    Ok(())
}

/// Removes the part files that killed writers left directly in `folder`. No other process may be writing there.
fn remove_part_files(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        if atomic_file::is_part(&file.path()) {
            // A part file that cannot be removed only takes disk space.
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::temporary_folder::without_folder;

    #[test]
    fn folder_lock_is_exclusive() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let lock = FolderLock::acquire(&out, "a").expect("folder is free");
        let error = format!("{:#}", FolderLock::acquire(&out, "a").expect_err("folder is locked"));
        let who = format!("{} is in use by ringmark (process {} on host a, since 2", out.display(), std::process::id());
        assert!(error.contains(&who), "{error}");
        drop(lock);
        assert!(!out.exists(), "unneeded folders are removed");
        let lock = FolderLock::acquire(&out, "a").expect("free again");
        fs::write(out.join("sweep.json"), "{}").expect("written");
        drop(lock);
        assert_eq!(fs::read_dir(&out).expect("kept").count(), 2);
        // An existing folder stays, even if empty.
        let lock = FolderLock::acquire(folder.path(), "a").expect("folder is free");
        fs::remove_dir_all(&out).expect("removed");
        drop(lock);
        assert!(folder.path().is_dir());
    }

    #[test]
    fn unnamed_lock_holder_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = FolderLock::acquire(folder.path(), "a").expect("folder is free");
        fs::write(folder.path().join(LOCK), "").expect("written");
        let error = format!("{:#}", FolderLock::acquire(folder.path(), "a").expect_err("folder is locked"));
        expect!["--out DIR is in use by another ringmark: wait for it to exit, or choose another folder"]
            .assert_eq(&without_folder(&error));
        // No process has this ID.
        fs::write(folder.path().join(LOCK), "2147483647 a 2025-11-21T10:02:03Z\n").expect("written");
        let error = format!("{:#}", FolderLock::acquire(folder.path(), "a").expect_err("folder is locked"));
        expect!["--out DIR is still in use by a job of ringmark (process 2147483647 on host a, since 2025-11-21T10:02:03Z), which was killed: wait for its mpirun to exit, or stop it"].assert_eq(&without_folder(&error));
        drop(lock);
    }

    #[test]
    fn earlier_attempts_are_renamed_with_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = ["run.log", "run.jsonl"].map(|name| folder.path().join(name));
        for attempt in 1..=3 {
            fs::write(&files[0], format!("{attempt}")).expect("written");
            rename_earlier(&files).expect("renamed");
            assert!(!files[0].exists());
        }
        for attempt in 1..=3 {
            let kept = fs::read_to_string(folder.path().join(format!("run.log.{attempt}"))).expect("kept");
            assert_eq!(kept, format!("{attempt}"));
        }
        rename_earlier(&files).expect("nothing to rename");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 3);
    }
}

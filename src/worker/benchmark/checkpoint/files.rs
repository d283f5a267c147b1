//! Files of a rank: written under a temporary name, synchronized and renamed, and removed in any case.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::{Deref, Range};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use ringmark_core::benchmark::checkpoint::{Combination, FileIo, RankCheckpoint, parts};
use ringmark_core::dimension::{Bytes, Seconds};

use crate::ffi::process::exit;
use crate::ffi::torch::host_array::HostArray;
use crate::job::{heartbeat, standard_error};

/// Bytes of one call that writes or reads.
const BLOCK: usize = 16 << 20;

/// Signals that end a job: by mpirun, Slurm, or Ctrl-C in a shell.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Added to the number of a signal in the exit status, as shells do.
const SIGNALED: i32 = 128;

/// Thread that removes the files of this process when a signal ends it.
pub struct FileCleaner(Arc<OnceLock<Arc<RankFiles>>>);

impl FileCleaner {
    /// Starts the thread. All other threads must start later, because they inherit that signals are blocked.
    pub fn start() -> Result<FileCleaner> {
        let files: Arc<OnceLock<Arc<RankFiles>>> = Arc::default();
        let signals: SigSet = ENDING.into_iter().collect();
        signals.thread_block().context("cannot block signals")?;
        let of_thread = Arc::clone(&files);
        thread::Builder::new().name("file cleaner".to_owned()).spawn(move || {
            let Ok(signal) = signals.wait() else { return };
            let _changing = of_thread.get().map(|files| {
                let changing = files.changing();
                // The process ends anyway.
                let _ = files.remove_all();
                changing
            });
            exit::immediately(SIGNALED + signal as i32)
        })?;
        Ok(FileCleaner(files))
    }

    /// Has `files` removed when a signal ends this process, or when the result is dropped.
    pub fn protect(&self, files: RankFiles) -> TemporaryFiles {
        let files = Arc::new(files);
        self.0.get_or_init(|| Arc::clone(&files));
        TemporaryFiles(files)
    }
}

/// Files of a rank that are removed when this is dropped.
pub struct TemporaryFiles(Arc<RankFiles>);

impl Deref for TemporaryFiles {
    type Target = RankFiles;

    fn deref(&self) -> &RankFiles {
        &self.0
    }
}

impl Drop for TemporaryFiles {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove_all() {
            standard_error::emit(&format!("warning: files in {} cannot be removed: {error}", self.0.folder.display()));
        }
    }
}

/// Times of writing, from the common start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WrittenFiles {
    write: Seconds,
    fsync: Seconds,
    total: Seconds,
}

impl WrittenFiles {
    /// Returns the measurements of a rank that copied and wrote `bytes`.
    pub fn with_copy(self, bytes: Bytes, copy: Seconds) -> RankCheckpoint {
        let WrittenFiles { write, fsync, total } = self;
        RankCheckpoint { bytes, copy, write, fsync, total, ..RankCheckpoint::default() }
    }
}

/// The files of a rank in the folder of a run.
pub struct RankFiles {
    folder: PathBuf,
    rank: u32,
    /// Locked while a file is created or renamed, and from the time when a signal ends the process.
    changing: Mutex<()>,
}

impl RankFiles {
    /// Returns the files in `folder`, which need not exist yet.
    pub fn new(folder: PathBuf, rank: u32) -> RankFiles {
        RankFiles { folder, rank, changing: Mutex::default() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the paths of a checkpoint in this number of files.
    pub fn paths(&self, files: u32) -> Vec<PathBuf> {
        (0..files).map(|number| self.folder.join(format!("{}{number}", self.prefix()))).collect()
    }

    fn prefix(&self) -> String {
        format!("rank-{}-", self.rank)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes `bytes` in equal files: each under a temporary name, in calls of [`BLOCK`] bytes, synchronized and renamed.
    /// Then synchronizes the folder. The total time is from `start`.
    pub fn write(&self, bytes: &HostArray, combination: Combination, start: Instant) -> Result<WrittenFiles> {
        let (mut write, mut fsync) = (0.0, 0.0);
        for (path, range) in self.parts_of(bytes, combination.files) {
            let part = path.with_extension("part");
            let write_file = || -> io::Result<()> {
                let begun = Instant::now();
                let changing = self.changing();
                let mut file = options(combination.io).write(true).create_new(true).open(&part)?;
                drop(changing);
                for block in blocks(range) {
                    bytes.send(block, &mut file)?;
                    heartbeat::count_progress();
                }
                let written = Instant::now();
                file.sync_all()?;
                drop(file);
                let _changing = self.changing();
                fs::rename(&part, &path)?;
                write += (written - begun).as_secs_f64();
                fsync += written.elapsed().as_secs_f64();
                Ok(())
            };
            write_file().with_context(|| format!("{} cannot be written", part.display()))?;
        }
        let begun = Instant::now();
        let sync = || File::open(&self.folder)?.sync_all();
        sync().with_context(|| format!("{} cannot be synchronized", self.folder.display()))?;
        fsync += begun.elapsed().as_secs_f64();
        Ok(WrittenFiles { write: Seconds(write), fsync: Seconds(fsync), total: seconds_since(start) })
    }

    /// Reads the files that [`write`](Self::write) wrote, in calls of [`BLOCK`] bytes.
    pub fn read(&self, bytes: &HostArray, combination: Combination) -> Result<()> {
        for (path, range) in self.parts_of(bytes, combination.files) {
            let read_file = || -> io::Result<()> {
                let mut file = options(combination.io).read(true).open(&path)?;
                for block in blocks(range) {
                    bytes.receive(block, &mut file)?;
                    heartbeat::count_progress();
                }
                Ok(())
            };
            read_file().with_context(|| format!("{} cannot be read", path.display()))?;
        }
        Ok(())
    }

    /// Returns each file's path and its range in `bytes`.
    fn parts_of(&self, bytes: &HostArray, files: u32) -> impl Iterator<Item = (PathBuf, Range<usize>)> {
        let pages = bytes.tensor().numel() as u64 / parts::PAGE;
        let range = move |file: u32| {
            let Range { start, end } = parts::part(pages, file, files);
            (start * parts::PAGE) as usize..(end * parts::PAGE) as usize
        };
        self.paths(files).into_iter().zip((0..files).map(range))
    }

    /// Removes the files of this rank.
    pub fn remove(&self) -> Result<()> {
        self.remove_own().with_context(|| format!("files in {} cannot be removed", self.folder.display()))
    }

    fn remove_own(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&self.prefix()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the files of this rank, and the folder if no other rank has files in it.
    fn remove_all(&self) -> io::Result<()> {
        self.remove_own()?;
        match fs::remove_dir(&self.folder) {
            Err(error) if !matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => Err(error),
            _ => Ok(()),
        }
    }
}

pub fn seconds_since(start: Instant) -> Seconds {
    Seconds(start.elapsed().as_secs_f64())
}

fn options(io: FileIo) -> OpenOptions {
    let mut options = File::options();
    if io == FileIo::Direct {
        options.custom_flags(OFlag::O_DIRECT.bits());
    }
    options
}

fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| start..(start + BLOCK).min(end))
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::checkpoint::{WriteMode, Writers};
    use tch::Device;

    use super::*;
    use crate::benchmark::checkpoint::state::CheckpointState;

    fn combination(files: u32, io: FileIo) -> Combination {
        Combination { writers: Writers::Rank0, files, io, mode: WriteMode::Blocking }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    #[test]
    fn files_contain_the_checkpoint_and_are_removed() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("run");
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("rank-31-0"), "of another rank").expect("written");
        let files = RankFiles::new(folder.clone(), 3);
        // A last block of one page.
        let mut state = CheckpointState::new(2 * (BLOCK as u64) / parts::PAGE + 1, Device::Cpu).expect("memory");
        let mut measured = Vec::new();
        for (number, (count, io)) in
            [(1, FileIo::Buffered), (3, FileIo::Buffered), (3, FileIo::Direct)].into_iter().enumerate()
        {
            state.change(number as u64).expect("changed");
            let start = Instant::now();
            let written = files.write(state.to_write(), combination(count, io), start);
            let Ok(written) = written else {
                assert_eq!(io, FileIo::Direct, "{written:?}");
                continue;
            };
            assert_eq!(names(&folder).len(), 1 + count as usize);
            let lengths = files.paths(count).iter().map(|path| path.metadata().expect("a file").len()).sum::<u64>();
            assert_eq!(lengths, state.bytes().0);
            state.clear_staging().expect("cleared");
            files.read(state.staging(), combination(count, io)).expect("read");
            assert!(state.is_restored().expect("equal sizes"), "{count} {io}");
            files.remove().expect("removed");
            assert_eq!(names(&folder), ["rank-31-0"]);
            measured.push(written.with_copy(state.bytes(), Seconds(0.5)));
        }
        for RankCheckpoint { write, fsync, total, copy, .. } in measured {
            assert!(write.0 > 0.0 && fsync.0 > 0.0 && total.0 >= write.0 + fsync.0 && copy.0 == 0.5);
        }
        drop(TemporaryFiles(Arc::new(files)));
        assert!(folder.exists(), "another rank has a file");
        fs::remove_file(folder.join("rank-31-0")).expect("removed");
        drop(TemporaryFiles(Arc::new(RankFiles::new(folder.clone(), 3))));
        assert!(!folder.exists());
    }

    #[test]
    fn shorter_file_is_an_error() {
        let parent = tempfile::tempdir().expect("a folder");
        let files = RankFiles::new(parent.path().to_owned(), 0);
        let state = CheckpointState::new(4, Device::Cpu).expect("memory");
        let one = combination(1, FileIo::Buffered);
        files.write(state.to_write(), one, Instant::now()).expect("written");
        File::options().write(true).open(&files.paths(1)[0]).expect("a file").set_len(9000).expect("shortened");
        let error = format!("{:#}", files.read(state.staging(), one).expect_err("too short"));
        assert!(error.contains("rank-0-0 cannot be read: failed to fill whole buffer"), "{error}");
        let error = format!(
            "{:#}",
            files
                .write(state.to_write(), combination(2, FileIo::Buffered), Instant::now())
                .map(drop)
                .and_then(|()| {
                    fs::remove_dir_all(parent.path())?;
                    files.write(state.to_write(), one, Instant::now()).map(drop)
                })
                .expect_err("no folder")
        );
        assert!(error.contains("rank-0-0.part cannot be written: "), "{error}");
    }
}

//! Writes the progress of a command into its folder once a second, on a separate thread: a full, slow or missing disk
//! neither ends nor delays the command.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ringmark_core::file::atomic_file;
use ringmark_core::progress::INTERVAL;

use crate::launch::sweep::live::latest::Latest;

/// Timeout for writing the final progress when the command ends. Watchers learn of the end from it, but a disk that
/// hangs must not block the command.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Writer of the progress file. Dropping it writes the file once more.
#[derive(Debug)]
pub struct StateFile {
    /// Dropping it wakes the thread.
    closing: Option<Sender<()>>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
}

impl StateFile {
    /// Starts writing changes of `latest` to `path`. If no thread can be started, nothing is written.
    pub fn open(path: PathBuf, latest: Latest) -> StateFile {
        let (closing, closed) = mpsc::channel::<()>();
        let (ending, ended) = mpsc::channel::<()>();
        let write = move || {
            let _ending = ending;
            let mut written = None;
            loop {
                let is_over =
                    closed.recv_timeout(Duration::from_secs_f64(INTERVAL.0)) != Err(RecvTimeoutError::Timeout);
                let now = latest.get();
                if let Some(progress) = now.filter(|now| written.as_ref() != Some(now)) {
                    // Write errors are ignored; see the module documentation.
                    let _ = atomic_file::replace(&path, progress.text().as_bytes());
                    written = Some(progress);
                }
                if is_over {
                    return;
                }
            }
        };
        // If no thread is started, the closure is dropped, which ends the wait below.
        let _ = thread::Builder::new().spawn(write);
        StateFile { closing: Some(closing), ended }
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        self.closing = None;
        // Either the thread has ended or the timeout has expired: nothing else to do.
        let _ = self.ended.recv_timeout(FINAL_WRITE_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringmark_core::file::run_name::PROGRESS;
    use ringmark_core::progress::Progress;

    use super::*;
    use crate::launch::sweep::live::lines::tests::progress;

    #[test]
    fn final_state_is_written_and_failures_are_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        let latest = Latest::default();
        let file = StateFile::open(folder.path().join(PROGRESS), latest.clone());
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "nothing was said");
        latest.set(progress());
        drop(StateFile::open(folder.path().join(PROGRESS), latest.clone()));
        assert_eq!(Progress::read_in(folder.path()).expect("written"), progress());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        drop(StateFile::open(folder.path().join("gone").join(PROGRESS), latest));
    }
}

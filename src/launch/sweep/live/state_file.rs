//! Writes where the command is into its folder, once a second, from a thread of its own: a disk that is full, slow or gone
//! neither ends nor delays what runs.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use ringmark_core::file::whole_file;
use ringmark_core::progress::INTERVAL;

use crate::launch::sweep::live::latest::Latest;

/// How long the end of the command waits for its last word to be written: whoever watches learns of the end by it, and a
/// disk that hangs must not keep the command.
const PATIENCE: Duration = Duration::from_secs(2);

/// Writes until it is dropped, and once more then.
#[derive(Debug)]
pub struct StateFile {
    /// Its end wakes the thread.
    closing: Option<Sender<()>>,
    /// Ends with the thread.
    ended: Receiver<()>,
}

impl StateFile {
    /// Writes what is new in `latest` to `path`. Where there is no thread for it, nothing is written.
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
                    // The module says why an error is none.
                    let _ = whole_file::replace(&path, progress.text().as_bytes());
                    written = Some(progress);
                }
                if is_over {
                    return;
                }
            }
        };
        // Dropped with the closure where there is no thread, which ends the wait below.
        let _ = thread::Builder::new().spawn(write);
        StateFile { closing: Some(closing), ended }
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        self.closing = None;
        // Ended or out of patience: there is nothing else to do.
        let _ = self.ended.recv_timeout(PATIENCE);
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
    fn the_last_word_is_written_and_no_failure_matters() {
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

//! Detection of failed ranks on this host. If mpirun continues after a failure (`--continuous`), ranks that wait in
//! shared memory are not notified in any other way.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::job::world::{self, World};

const INTERVAL: Duration = Duration::from_secs(1);

/// Another rank, identified by its file in /proc.
struct Peer {
    rank: u32,
    /// Refers to the same process even after its PID is reused.
    table: File,
}

/// Watches the other ranks of this host and ends this rank if one of them ends.
pub struct PeerWatch(Arc<AtomicBool>);

impl PeerWatch {
    /// Starts the watch. All ranks of the host call this together. `reason` states why no rank can continue alone.
    pub fn begin(world: &World, reason: &'static str) -> Result<PeerWatch> {
        let own = world.rank();
        let others = world.local_processes().into_iter().filter(|(rank, _)| *rank != own);
        let peers: Vec<Peer> = others.map(|(rank, process)| Peer::new(rank, process)).collect::<Result<_>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (name, host, is_over_in_thread) = (world.name(), world.host().to_owned(), is_over.clone());
        thread::Builder::new().spawn(move || {
            let ended = loop {
                thread::sleep(INTERVAL);
                if is_over_in_thread.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(peer) = peers.iter().find(|peer| peer.has_ended()) {
                    break peer.rank;
                }
            };
            thread::sleep(world::EXIT_DELAY);
            if !is_over_in_thread.load(Ordering::Relaxed) {
                world::exit_immediately(&name, &format!("rank {ended} on host {host} exited, and {reason}"), None);
            }
        })?;
        Ok(PeerWatch(is_over))
    }

    /// Stops the watch: this rank no longer depends on the others.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Peer {
    fn new(rank: u32, process: u32) -> Result<Peer> {
        let path = format!("/proc/{process}/stat");
        let table = File::open(&path).with_context(|| format!("cannot open {path} of rank {rank} on this host"))?;
        Ok(Peer { rank, table })
    }

    /// Returns true if the process has ended, including as a zombie.
    fn has_ended(&self) -> bool {
        let mut bytes = [0; 512];
        let Ok(length) = self.table.read_at(&mut bytes, 0) else { return true };
        // `number (name) state ...`; the name may contain parentheses.
        let text = String::from_utf8_lossy(&bytes[..length]);
        text.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn process_exit_is_detected_before_and_after_reaping() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("starts");
        let peer = Peer::new(1, child.id()).expect("it runs");
        assert!(!peer.has_ended());
        drop(child.stdin.take());
        while !peer.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(child.wait().expect("a child").success());
        assert!(peer.has_ended());
        assert!(Peer::new(1, child.id()).is_err());
    }
}

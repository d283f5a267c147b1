//! The end of other ranks of this host. Who waits for them in memory that they share hears of it from nobody where mpirun goes
//! on without a rank (`--continuous`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::job::world::{self, World};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Another rank, by the kernel's table of its process.
struct Peer {
    rank: u32,
    /// Stays that of this process when its number becomes another's.
    table: File,
}

/// Looks after the other ranks of this host, and ends this one where one of them ends.
pub struct PeerWatch(Arc<AtomicBool>);

impl PeerWatch {
    /// Begins; all ranks of the host call it together. `reason` is why none of them can go on alone.
    pub fn begin(world: &World, reason: &'static str) -> Result<PeerWatch> {
        let own = world.rank();
        let others = world.local_processes().into_iter().filter(|(rank, _)| *rank != own);
        let peers: Vec<Peer> = others.map(|(rank, process)| Peer::new(rank, process)).collect::<Result<_>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (name, host, is_over_there) = (world.name(), world.host().to_owned(), is_over.clone());
        thread::Builder::new().spawn(move || {
            let ended = loop {
                thread::sleep(INTERVAL);
                if is_over_there.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(peer) = peers.iter().find(|peer| peer.has_ended()) {
                    break peer.rank;
                }
            };
            thread::sleep(world::END_PATIENCE);
            if !is_over_there.load(Ordering::Relaxed) {
                world::end_at_once(&name, &format!("rank {ended} on host {host} has ended, and {reason}"), None);
            }
        })?;
        Ok(PeerWatch(is_over))
    }

    /// This rank needs nothing more of the others.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Peer {
    fn new(rank: u32, process: u32) -> Result<Peer> {
        let path = format!("/proc/{process}/stat");
        let table = File::open(&path).with_context(|| format!("{path} of rank {rank} on this host"))?;
        Ok(Peer { rank, table })
    }

    /// Whether its process is gone, or is there only until its parent asks for its status.
    fn has_ended(&self) -> bool {
        let mut bytes = [0; 512];
        let Ok(length) = self.table.read_at(&mut bytes, 0) else { return true };
        // `number (name) state ...`; the name may have brackets of its own.
        let text = String::from_utf8_lossy(&bytes[..length]);
        text.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen_before_and_after_its_status_is_taken() {
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

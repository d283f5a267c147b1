//! Losses of this rank that `--inject` requests: the process is killed or stops, or its connections are closed.

use std::fs;
use std::os::fd::RawFd;
use std::thread;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, Shutdown, SockaddrLike, SockaddrStorage, getpeername, shutdown};
use nix::unistd::Pid;
use ringmark_core::benchmark::train::{Fault, LossKind};

use crate::job::world::World;

/// Open files of this process, by number.
const OPEN_FILES: &str = "/proc/self/fd";

/// Starts the clock of the random loss in this attempt of the run, counted from 0, if that is a loss of this rank.
pub fn start_clock(fault: Option<Fault>, attempt: usize, world: &World) {
    let Some(Fault::Random(losses)) = fault else { return };
    let loss = losses.of_attempt(attempt as u32, world.ranks());
    if loss.rank == world.rank() {
        thread::spawn(move || {
            thread::sleep(loss.after);
            lose(loss.kind)
        });
    }
}

/// Loses this rank. Returns only if its connections are closed.
pub fn lose(kind: LossKind) -> Result<()> {
    match kind {
        LossKind::Kill => Ok(kill(Pid::this(), Signal::SIGKILL)?),
        LossKind::Stop => Ok(kill(Pid::this(), Signal::SIGSTOP)?),
        LossKind::Link => close_connections(),
    }
}

/// Closes all TCP connections of this process.
fn close_connections() -> Result<()> {
    for file in fs::read_dir(OPEN_FILES).context(OPEN_FILES)? {
        let number = file?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        let is_tcp = |file: &RawFd| {
            let peer = getpeername::<SockaddrStorage>(*file).ok();
            let family = peer.and_then(|address| address.family());
            matches!(family, Some(AddressFamily::Inet | AddressFamily::Inet6))
        };
        if let Some(connection) = number.filter(is_tcp) {
            // A connection that the other side has just closed.
            let _ = shutdown(connection, Shutdown::Both);
        }
    }
    Ok(())
}

//! Where this rank is, and the thread that tells the driver: on a connection and a thread of their own, so that it also
//! speaks while the rank is stuck in a collective. The rooms of the step set the phase; nothing here waits for them.
//!
//! The connection is the driver's life as well: where it ends before the rank is done, the driver is gone or has given
//! the job up, and the rank ends itself and the daemon that started it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, getppid};
use ringmark_record::heartbeat::{Driver, Heartbeat, INTERVAL, Message, Phase, WELCOME};
use ringmark_record::units::Seconds;

use crate::environment;
use crate::world;

/// What is sent and not acknowledged for so long will not arrive: the link to the driver is down. Its kernel
/// acknowledges even while the driver is stopped.
const LINK_PATIENCE: Duration = Duration::from_secs(8);

/// For one of the driver's addresses to answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// What the parent gets to end its ranks before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Iteration (32 bits), phase (8), bucket (24): one word, so that no reader sees half of a change.
static POSITION: AtomicU64 = AtomicU64::new(0);
static PIECES: AtomicU64 = AtomicU64::new(0);

/// The connection, once there is one.
static DRIVER: Mutex<Option<TcpStream>> = Mutex::new(None);
/// Set when this rank has said its last word: what happens to the connection then means nothing.
static IS_OVER: AtomicBool = AtomicBool::new(false);

const PHASES: [Phase; 11] = [
    Phase::Starting,
    Phase::Joining,
    Phase::Preparing,
    Phase::Connecting,
    Phase::Data,
    Phase::Ready,
    Phase::Forward,
    Phase::Backward,
    Phase::AllReduce { bucket: 0 },
    Phase::Optimizer,
    Phase::Finishing,
];

/// This rank is in `phase` of the same iteration now.
pub fn enter(phase: Phase) {
    enter_in((POSITION.load(Ordering::Relaxed) >> 32) as u32, phase);
}

/// This rank is in `phase` of `iteration` now.
pub fn enter_in(iteration: u32, phase: Phase) {
    let (name, bucket) = match phase {
        Phase::AllReduce { bucket } => (Phase::AllReduce { bucket: 0 }, bucket.min(0x00ff_ffff)),
        phase => (phase, 0),
    };
    let code = PHASES.iter().position(|known| *known == name).unwrap_or_default() as u64;
    POSITION.store(u64::from(iteration) << 32 | code << 24 | u64::from(bucket), Ordering::Relaxed);
}

/// A stretch of a sum has gone through, so that a slow network is told from a dead one.
pub fn piece_is_through() {
    PIECES.fetch_add(1, Ordering::Relaxed);
}

fn now() -> Heartbeat {
    let position = POSITION.load(Ordering::Relaxed);
    let phase = match PHASES[(position >> 24 & 0xff) as usize] {
        Phase::AllReduce { .. } => Phase::AllReduce { bucket: (position & 0x00ff_ffff) as u32 },
        phase => phase,
    };
    let processor_time = getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0, |usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds());
    Heartbeat {
        iteration: (position >> 32) as u32,
        phase,
        pieces: PIECES.load(Ordering::Relaxed),
        processor_time: Seconds(processor_time as f64 / 1e6),
        available_memory: environment::available_memory(),
    }
}

/// Tells `driver` where this rank is from now on, before MPI is there to ask: the rank's number is the launcher's.
pub fn begin(driver: Option<Driver>) {
    let Some(driver) = driver else { return };
    thread::spawn(move || {
        let hello = Message::Hello {
            token: driver.token,
            rank: environment::launched_rank(),
            host: environment::host_name(),
            process: std::process::id(),
        };
        match driver.addresses.iter().find_map(|address| connect(*address, &hello)) {
            Some(stream) => report(stream),
            // It trains all the same, and mpirun's words still reach the driver.
            None => world::complain(&format!(
                "ringmark-worker: none of the driver's addresses answers on host {}: a hang of this rank will not be named",
                environment::host_name()
            )),
        }
    });
}

/// This rank's last word.
pub fn end(message: &Message) {
    IS_OVER.store(true, Ordering::Relaxed);
    let driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut stream) = driver.as_ref() {
        // Whether it arrives or not, this rank ends.
        let _ = stream.write_all(message.line().as_bytes());
    }
}

/// A connection to a driver that knows this job; others may listen at the same address.
fn connect(address: SocketAddr, hello: &Message) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_PATIENCE).ok()?;
    stream.set_read_timeout(Some(CONNECT_PATIENCE)).ok()?;
    stream.set_write_timeout(Some(CONNECT_PATIENCE)).ok()?;
    stream.write_all(hello.line().as_bytes()).ok()?;
    let mut answer = [0; WELCOME.len() + 1];
    stream.read_exact(&mut answer).ok()?;
    (answer.strip_suffix(b"\n") == Some(WELCOME.as_bytes())).then_some(stream)
}

/// Reports until the connection or the process ends.
fn report(mut stream: TcpStream) {
    let prepared = setsockopt(&stream, sockopt::TcpUserTimeout, &(LINK_PATIENCE.as_millis() as u32)).is_ok()
        && stream.set_read_timeout(Some(Duration::from_secs_f64(INTERVAL.0))).is_ok();
    let Some(own) = stream.try_clone().ok().filter(|_| prepared) else { return };
    *DRIVER.lock().unwrap_or_else(PoisonError::into_inner) = Some(own);
    let mut nothing = [0; 64];
    loop {
        let line = Message::At(now()).line();
        let sent = {
            let driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
            if IS_OVER.load(Ordering::Relaxed) {
                return;
            }
            driver.as_ref().map(|mut driver| driver.write_all(line.as_bytes()))
        };
        // Sleeps for an interval, or wakes at once where the other end closes.
        let answered = match stream.read(&mut nothing) {
            Ok(length) => length > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted),
        };
        if !(answered && matches!(sent, Some(Ok(())))) {
            break;
        }
    }
    if !IS_OVER.load(Ordering::Relaxed) {
        end_without_driver();
    }
}

/// Ends this process and, where it is of Open MPI, the daemon that started it: cut off from mpirun, it would stay.
fn end_without_driver() {
    world::complain(&format!(
        "ringmark-worker: rank {} on host {} has lost the driver and ends",
        environment::launched_rank(),
        environment::host_name()
    ));
    let parent = getppid();
    if matches!(environment::program_of(parent.as_raw()).as_str(), "orted" | "mpirun" | "orterun" | "prterun" | "prted")
    {
        // Each may find that there is nobody left to signal.
        let _ = kill(parent, Signal::SIGTERM);
        thread::sleep(GRACE);
        if getppid() == parent {
            let _ = kill(parent, Signal::SIGKILL);
        }
    }
    let _ = kill(Pid::this(), Signal::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_set() {
        for (iteration, phase) in
            [(0, Phase::Starting), (7, Phase::AllReduce { bucket: 160 }), (u32::MAX, Phase::Finishing)]
        {
            enter_in(iteration, phase);
            let heartbeat = now();
            assert_eq!((heartbeat.iteration, heartbeat.phase), (iteration, phase));
        }
        enter(Phase::Backward);
        assert_eq!((now().iteration, now().phase), (u32::MAX, Phase::Backward));
        assert!(now().processor_time.0 > 0.0 && now().available_memory.0 > 0);
    }
}

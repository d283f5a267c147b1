//! Heartbeat: the position of this rank, and the thread that reports it to the launcher. The thread has its own
//! connection, so that reports continue while the rank is stuck in a collective. The modules of the step set the stage
//! and never wait for the thread.
//!
//! The connection also shows whether the launcher is alive: if it closes before the rank is done, the launcher has
//! failed or has given up the job, and the rank ends itself and the daemon that started it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, getppid};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::heartbeat::{LAUNCHER_VARIABLE, WELCOME};
use ringmark_core::host::{Heartbeat, LauncherAddress, MemoryShortage, Message, Stage, memory};

use crate::host::facts;
use crate::job::standard_error;

/// Time after which unacknowledged data counts as lost: the link to the launcher is down, or the launcher has been
/// suspended for minutes and its kernel's buffers are full.
const LINK_TIMEOUT: Duration = Duration::from_secs(8);

/// Interval between attempts to reconnect to the launcher after a network failure.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest interval between reports, even if the launcher requests a shorter one.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Timeout for connecting to one of the launcher's addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time that the parent daemon gets to end its ranks before it is killed.
const GRACE: Duration = Duration::from_secs(2);

static POSITION: Mutex<(u32, Stage)> = Mutex::new((0, Stage::Starting));
static PROGRESS: AtomicU64 = AtomicU64::new(0);
/// Number of live [`WaitGuard`] guards.
static WAITS: AtomicU32 = AtomicU32::new(0);
static LAST: Mutex<LastIteration> = Mutex::new(LastIteration { step: None, before_allreduce: None });

static LAUNCHER: Mutex<Option<TcpStream>> = Mutex::new(None);
/// True once this rank has sent its last message; later connection errors are irrelevant.
static IS_OVER: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy)]
struct LastIteration {
    step: Option<Seconds>,
    before_allreduce: Option<Seconds>,
}

/// Sets the stage within the current iteration.
pub fn enter(stage: Stage) {
    position().1 = stage;
}

/// Sets the stage and reports it immediately: the launcher must receive it even if this rank exits within the next
/// second.
pub fn enter_and_notify(stage: Stage) {
    enter(stage);
    let launcher = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut stream) = launcher.as_ref() {
        // If this fails the next report fails too, and handles the lost connection.
        let _ = stream.write_all(Message::At(now()).line().as_bytes());
    }
}

pub fn enter_in(iteration: u32, stage: Stage) {
    *position() = (iteration, stage);
}

/// Returns the iteration of the timed loop, counted from 1; 0 before the loop.
pub fn iteration() -> u32 {
    position().0
}

/// Sets the bucket of the current gradient exchange; does nothing in other stages.
pub fn enter_bucket(number: u32) {
    if let (_, Stage::Exchange { bucket: Some(bucket), .. }) = &mut *position() {
        *bucket = number;
    }
}

/// Never blocks for long: the reporting thread only copies the value.
fn position() -> MutexGuard<'static, (u32, Stage)> {
    POSITION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a completed gradient or chunk of a sum: a slow rank makes progress, a stuck one does not.
pub fn count_progress() {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
}

/// Sets the times of the last completed iteration, as in [`Heartbeat`].
pub fn time_iteration(step: Seconds, before_allreduce: Option<Seconds>) {
    *last() = LastIteration { step: Some(step), before_allreduce };
}

/// Never blocks for long: the reporting thread only copies the value.
fn last() -> MutexGuard<'static, LastIteration> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guard that marks this rank as waiting for others.
pub struct WaitGuard(());

/// Marks this rank as waiting for others until the guard is dropped, in addition to stages with [`Stage::waits`].
pub fn wait() -> WaitGuard {
    WAITS.fetch_add(1, Ordering::Relaxed);
    WaitGuard(())
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        WAITS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn now() -> Heartbeat {
    let (iteration, stage) = *position();
    let LastIteration { step, before_allreduce } = *last();
    let processor_time = getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0, |usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds());
    Heartbeat {
        iteration,
        stage,
        is_waiting: WAITS.load(Ordering::Relaxed) > 0 || stage.waits(),
        chunks: PROGRESS.load(Ordering::Relaxed),
        processor_time: Seconds(processor_time as f64 / 1e6),
        available_memory: memory::available(),
        step,
        before_allreduce,
    }
}

/// Returns the address of the launcher that started this rank; `None` without one.
pub fn launcher() -> Result<Option<LauncherAddress>> {
    let parse = |text: String| text.parse().with_context(|| format!("cannot parse {LAUNCHER_VARIABLE}"));
    facts::variable(LAUNCHER_VARIABLE).map(parse).transpose()
}

/// Starts the reports to `launcher`. MPI is not initialized yet, so the rank comes from the variables of mpirun or srun.
pub fn begin(launcher: Option<LauncherAddress>) {
    let Some(launcher) = launcher else { return };
    let hello = Message::Hello {
        token: launcher.token.clone(),
        rank: facts::launched_rank(),
        host: facts::host_name(),
        process: std::process::id(),
        out_of_memory: memory::out_of_memory_kills(),
    };
    let name = format!("warning: rank {} on host {}", facts::launched_rank(), facts::host_name());
    // The thread reads no environment variables, because libraries that are loaded at the same time may set some.
    thread::spawn(move || {
        let mut stream = find(&launcher, &hello);
        if stream.is_none() {
            // Training continues, and the launcher still receives mpirun's messages.
            standard_error::emit(&format!(
                "{name}: cannot reach the launcher: a hang of this process will not be reported"
            ));
        }
        while let Some(connection) = stream {
            stream = match report(connection) {
                ConnectionEnd::Over => return,
                ConnectionEnd::Closed => None,
                ConnectionEnd::Silent => find_again(&launcher, &hello),
            };
            if stream.is_none() && !IS_OVER.load(Ordering::Relaxed) {
                standard_error::emit(&format!("{name}: lost the connection to the launcher: exiting"));
                end_without_driver();
            }
        }
    });
}

enum ConnectionEnd {
    /// This rank has sent its last message.
    Over,
    /// The launcher has closed the connection or has failed.
    Closed,
    /// The network no longer delivers data.
    Silent,
}

pub fn end(message: &Message) {
    IS_OVER.store(true, Ordering::Relaxed);
    let launcher = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut stream) = launcher.as_ref() {
        // This rank ends even if the message does not arrive.
        let _ = stream.write_all(message.line().as_bytes());
    }
}

/// Sends the message that this rank has failed. If the launcher does not answer, MPI_Abort does not reach mpirun
/// either: then ends this process and its daemon.
pub fn end_with_failure(reason: String, shortage: Option<MemoryShortage>) {
    end(&Message::Failed { reason, shortage });
    let launcher = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner).take();
    if launcher.is_some_and(|stream| !is_answered(stream)) {
        end_without_driver();
    }
}

/// Returns true if the launcher closes the connection after this side has, which it does once it has read everything.
fn is_answered(mut stream: TcpStream) -> bool {
    if stream.shutdown(Shutdown::Write).and_then(|()| stream.set_read_timeout(Some(LINK_TIMEOUT))).is_err() {
        return false;
    }
    let mut nothing = [0; 64];
    loop {
        match stream.read(&mut nothing).map_err(|error| error.kind()) {
            Ok(0) | Err(ErrorKind::ConnectionReset) => return true,
            Ok(_) | Err(ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
}

/// Connects to a launcher with the token of this job; other programs may listen at the same address.
fn find(launcher: &LauncherAddress, hello: &Message) -> Option<TcpStream> {
    launcher.addresses.iter().find_map(|address| connect(*address, launcher, hello))
}

/// Reconnects after a network failure, so that a brief link outage does not end a run.
fn find_again(launcher: &LauncherAddress, hello: &Message) -> Option<TcpStream> {
    let lost = Instant::now();
    while lost.elapsed().as_secs_f64() < launcher.patience.0 {
        thread::sleep(RECONNECT_INTERVAL);
        if let Some(stream) = find(launcher, hello) {
            return Some(stream);
        }
    }
    None
}

fn connect(address: SocketAddr, launcher: &LauncherAddress, hello: &Message) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(CONNECT_TIMEOUT)).ok()?;
    stream.write_all(hello.line().as_bytes()).ok()?;
    let mut answer = [0; WELCOME.len() + 1];
    stream.read_exact(&mut answer).ok()?;
    setsockopt(&stream, sockopt::TcpUserTimeout, &(LINK_TIMEOUT.as_millis() as u32)).ok()?;
    // A timeout of 0 would mean none.
    let interval = Duration::from_secs_f64(launcher.interval.0).max(MIN_INTERVAL);
    stream.set_read_timeout(Some(interval)).ok()?;
    (answer.strip_suffix(b"\n") == Some(WELCOME.as_bytes())).then_some(stream)
}

fn report(mut stream: TcpStream) -> ConnectionEnd {
    *LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner) = stream.try_clone().ok();
    let mut nothing = [0; 64];
    loop {
        let line = Message::At(now()).line();
        let sent = {
            let launcher = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner);
            if IS_OVER.load(Ordering::Relaxed) {
                return ConnectionEnd::Over;
            }
            launcher.as_ref().map_or(Ok(()), |mut launcher| launcher.write_all(line.as_bytes()))
        };
        // Sleeps for an interval, but wakes at once if the launcher closes the connection.
        let answer = sent.and_then(|()| stream.read(&mut nothing));
        match answer.map_err(|error| error.kind()) {
            Ok(1..) | Err(ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => {
                return ConnectionEnd::Silent;
            }
            _ => return ConnectionEnd::Closed,
        }
    }
}

/// Ends this process and the Open MPI daemon that started it, which would keep running without mpirun.
fn end_without_driver() {
    let parent = getppid();
    if matches!(facts::program_of(parent.as_raw()).as_str(), "orted" | "mpirun" | "orterun" | "prterun" | "prted") {
        // The daemon ends its ranks first, this one too, and may then wait for mpirun: a process of its own session ends it.
        let script = format!("sleep {}; kill -KILL \"$0\"", GRACE.as_secs());
        let mut killer = Command::new("setsid");
        let killer = killer.args(["sh", "-c", &script, &parent.to_string()]);
        let _ = killer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        // The target may already have ended.
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
    fn heartbeat_position_round_trips() {
        for (iteration, stage) in [(0, Stage::Starting), (7, Stage::all_reduce(160)), (u32::MAX, Stage::Finishing)] {
            enter_in(iteration, stage);
            let heartbeat = now();
            assert_eq!((heartbeat.iteration, heartbeat.stage), (iteration, stage));
        }
        enter(Stage::all_reduce(0));
        enter_bucket(3);
        assert_eq!(now().stage, Stage::all_reduce(3));
        enter(Stage::Backward);
        enter_bucket(4);
        assert_eq!((now().iteration, now().stage), (u32::MAX, Stage::Backward));
        assert!(now().processor_time.0 > 0.0 && now().available_memory.0 > 0);
    }
}

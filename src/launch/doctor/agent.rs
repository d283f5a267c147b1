//! Launcher side of `ringmark-worker agent`: starts it on a host, sends orders and receives replies. The agent exits
//! when this value is dropped or this process ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringmark_core::dimension::DeviceChoice;
use ringmark_core::host::{Inspection, Order, Reply};

use crate::launch::cluster::remote::Remote;
use crate::launch::cluster::ssh_failure;
use crate::launch::local::child::{ChildProcess, EndPolicy, Pipes};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::{Interrupt, TICK};

/// Time allowed for a reply, in addition to the duration of the order itself.
const REPLY_MARGIN: Duration = Duration::from_secs(15);

/// Time allowed for the exit of an agent once its orders are closed. Grid Engine kills the whole job if the client of a task is
/// killed first.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// A started agent.
pub struct Agent {
    /// `None` once it is closed.
    orders: Option<ChildStdin>,
    replies: Receiver<String>,
    errors: Arc<Mutex<String>>,
    interrupt: Interrupt,
    child: ChildProcess,
}

/// Start parameters of an agent.
pub struct AgentStart<'a> {
    /// Path of the worker.
    pub worker: &'a Path,
    /// Devices to inspect.
    pub device: DeviceChoice,
    /// Environment of this process.
    pub environment: &'a LaunchEnvironment,
    /// Timeout for the inspection that the agent sends first.
    pub timeout: Duration,
}

impl Agent {
    /// Starts the worker on the host. `Err` contains its error output if it did not start.
    pub fn start(remote: &Remote, start: &AgentStart, interrupt: &Interrupt) -> Result<(Agent, Inspection), String> {
        let (worker, device) = (start.worker.display().to_string(), start.device.to_string());
        // mpirun passes LD_LIBRARY_PATH on as well, and it decides which libraries are loaded.
        let folders = start.environment.library_path.as_ref().map(|folders| format!("LD_LIBRARY_PATH={folders}"));
        let mut line: Vec<&str> = folders.iter().flat_map(|folders| ["env", folders.as_str()]).collect();
        line.extend([worker.as_str(), "agent", "--device", &device]);
        let (child, Pipes { stdin: orders, stdout, stderr }) =
            ChildProcess::start_piped(&mut remote.command(&line), EndPolicy::Kill)
                .map_err(|error| format!("{}: {error}", line[0]))?;
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || {
            // A shell start-up file may print a greeting first.
            let lines = BufReader::new(stdout).lines().map_while(Result::ok).filter(|line| line.starts_with('{'));
            lines.into_iter().try_for_each(|line| sender.send(line))
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let collected = Arc::clone(&errors);
        thread::spawn(move || {
            let (mut stderr, mut buffer) = (stderr, [0; 4096]);
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]);
                collected.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        let mut agent = Agent { orders: Some(orders), replies, errors, interrupt: interrupt.clone(), child };
        let line = agent.next_line(start.timeout)?;
        let inspection = serde_json::from_str(&line).map_err(|error| {
            format!(
                "reply does not match this version of ringmark: \
                 {error}"
            )
        })?;
        Ok((agent, inspection))
    }

    /// Sends `order`, which may take `time`, and waits for the reply. A failure that the agent reports is an error
    /// too.
    pub fn request(&mut self, order: &Order, time: Duration) -> Result<Reply, String> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        let mut send = || {
            let orders = self.orders.as_mut()?;
            orders.write_all(line.as_bytes()).and_then(|()| orders.flush()).ok()
        };
        if send().is_none() {
            return Err(format!("agent has exited: {}", self.errors()));
        }
        let line = self.next_line(time + REPLY_MARGIN)?;
        match serde_json::from_str(&line) {
            Ok(Reply::Failed(reason)) => Err(reason),
            Ok(reply) => Ok(reply),
            Err(error) => Err(format!("agent's reply does not match this version of ringmark: {error}")),
        }
    }

    /// Closes the orders, so that the agent exits.
    pub fn close(&mut self) {
        self.orders = None;
    }

    fn next_line(&mut self, timeout: Duration) -> Result<String, String> {
        let end = Instant::now() + timeout;
        while Instant::now() < end && !self.interrupt.is_set() {
            match self.replies.recv_timeout(TICK) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                // The output is closed: the agent is about to exit, or is not a working agent.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(TICK);
                    if let Ok(Some(status)) = self.child.try_wait() {
                        // Its last output may still be in transit.
                        thread::sleep(TICK);
                        let error = self.errors();
                        return Err(if error.is_empty() { format!("exited with {status}") } else { error });
                    }
                }
            }
        }
        Err(if self.interrupt.is_set() {
            "interrupted".to_owned()
        } else {
            format!("no reply within {} s", timeout.as_secs())
        })
    }

    /// Returns the last line of the standard error.
    fn errors(&self) -> String {
        ssh_failure::last_line(&self.errors.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.close();
        let end = Instant::now() + CLOSE_GRACE;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(TICK);
        }
    }
}

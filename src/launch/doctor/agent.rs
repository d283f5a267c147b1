//! The driver's end of `ringmark-worker agent`: starts it on a host, gives it orders, takes its replies. It ends when
//! this value goes, or this process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringmark_record::config::DeviceChoice;
use ringmark_record::inspection::{Inspection, Order, Reply};

use crate::launch::cluster::remote::{Remote, Running};
use crate::launch::cluster::ssh_failure;
use crate::launch::job::mpirun::Surroundings;
use crate::launch::job::process::Interrupt;

/// How often a waiting loop looks at the clock and the interrupt.
const TICK: Duration = Duration::from_millis(50);

/// How long an order may take beyond what it asks for.
const ANSWER: Duration = Duration::from_secs(15);

/// A started agent.
pub struct Agent {
    orders: ChildStdin,
    replies: Receiver<String>,
    complaints: Arc<Mutex<String>>,
    interrupt: Interrupt,
    running: Running,
}

impl Agent {
    /// Starts `worker` on the host; it has `patience` to tell what it found. `Err` says in its own words why it did
    /// not.
    pub fn start(
        remote: &Remote,
        worker: &Path,
        device: DeviceChoice,
        surroundings: &Surroundings,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<(Agent, Inspection), String> {
        let (worker, device) = (worker.display().to_string(), device.to_string());
        // mpirun hands it on as well, and it decides which libraries are found.
        let folders = surroundings.library_path.as_ref().map(|folders| format!("LD_LIBRARY_PATH={folders}"));
        let mut words: Vec<&str> = folders.iter().flat_map(|folders| ["env", folders.as_str()]).collect();
        words.extend([worker.as_str(), "agent", "--device", &device]);
        let mut running = Running::start(remote.command(&words)).map_err(|error| format!("{}: {error}", words[0]))?;
        let (Some(orders), Some(stdout), Some(stderr)) =
            (running.process.stdin.take(), running.process.stdout.take(), running.process.stderr.take())
        else {
            return Err("its streams are not there".to_owned());
        };
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || {
            // A start-up file of the shell may greet first.
            let lines = BufReader::new(stdout).lines().map_while(Result::ok).filter(|line| line.starts_with('{'));
            lines.into_iter().try_for_each(|line| sender.send(line))
        });
        let complaints = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&complaints);
        thread::spawn(move || {
            let (mut stderr, mut buffer) = (stderr, [0; 4096]);
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]);
                kept.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        let mut agent = Agent { orders, replies, complaints, interrupt: interrupt.clone(), running };
        let line = agent.next_line(patience)?;
        let inspection =
            serde_json::from_str(&line).map_err(|error| format!("it speaks otherwise than this ringmark: {error}"))?;
        Ok((agent, inspection))
    }

    /// Gives `order`, which may take `time`, and waits for the reply. A failure that the agent tells is an error too.
    pub fn ask(&mut self, order: &Order, time: Duration) -> Result<Reply, String> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        let given = self.orders.write_all(line.as_bytes()).and_then(|()| self.orders.flush());
        if given.is_err() {
            return Err(format!("its agent has ended: {}", self.complaints()));
        }
        let line = self.next_line(time + ANSWER)?;
        match serde_json::from_str(&line) {
            Ok(Reply::Failed(reason)) => Err(reason),
            Ok(reply) => Ok(reply),
            Err(error) => Err(format!("its agent speaks otherwise than this ringmark: {error}")),
        }
    }

    fn next_line(&mut self, patience: Duration) -> Result<String, String> {
        let end = Instant::now() + patience;
        while Instant::now() < end && !self.interrupt.asked() {
            match self.replies.recv_timeout(TICK) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                // Its output is closed: it is about to exit, or is not what it should be.
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(TICK);
                    if let Ok(Some(status)) = self.running.process.try_wait() {
                        // Its last words may still be on their way.
                        thread::sleep(TICK);
                        let words = self.complaints();
                        return Err(if words.is_empty() { format!("it ended with {status}") } else { words });
                    }
                }
            }
        }
        Err(if self.interrupt.asked() {
            "interrupted".to_owned()
        } else {
            format!("it says nothing for {} s", patience.as_secs())
        })
    }

    /// The last line of its standard error.
    fn complaints(&self) -> String {
        ssh_failure::last_words(&self.complaints.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

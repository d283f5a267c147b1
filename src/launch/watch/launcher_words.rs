//! What mpirun and srun say of a rank that ended, which its parent alone knows.

use nix::sys::signal::Signal;

/// How a rank ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// By a signal, number and name, as `9 (SIGKILL)`.
    Signal(String),
    /// With this exit status.
    Exit(i32),
}

/// Finds a rank's end in a line of Open MPI's mpirun, of which this is the most telling:
/// `mpirun noticed that process rank 1 with PID 77 on node b exited on signal 9 (Killed).`,
/// or of Slurm's srun: `srun: error: b: task 1: Killed`, `srun: error: b: tasks 1-2: Exited with exit code 3`.
pub fn death_in(line: &str) -> Option<(u32, Cause)> {
    if let Some((_, rest)) = line.split_once(" noticed that process rank ") {
        let rank = leading_number(rest)?;
        let (_, signal) = rest.split_once(" exited on signal ")?;
        return Some((rank, signal_number(leading_number(signal)?)));
    }
    let (_, rest) = line.strip_prefix("srun: error: ")?.split_once(": task")?;
    let rest = rest.strip_prefix('s').unwrap_or(rest);
    let (ranks, cause) = rest.trim_start().split_once(": ")?;
    let rank = leading_number(ranks)?;
    if let Some((_, code)) = cause.split_once("exit code ") {
        return Some((rank, Cause::Exit(leading_number(code)?)));
    }
    Some((rank, signal_in_words(cause)?))
}

fn leading_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

fn signal_number(number: i32) -> Cause {
    let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
    Cause::Signal(format!("{number} ({name})"))
}

/// Slurm prints strsignal's words, with `(core dumped)` behind some.
fn signal_in_words(words: &str) -> Option<Cause> {
    const WORDS: [(&str, Signal); 9] = [
        ("Killed", Signal::SIGKILL),
        ("Out Of Memory", Signal::SIGKILL),
        ("Terminated", Signal::SIGTERM),
        ("Segmentation fault", Signal::SIGSEGV),
        ("Aborted", Signal::SIGABRT),
        ("Bus error", Signal::SIGBUS),
        ("Illegal instruction", Signal::SIGILL),
        ("Floating point exception", Signal::SIGFPE),
        ("Interrupt", Signal::SIGINT),
    ];
    let (_, signal) = WORDS.iter().find(|(start, _)| words.starts_with(start))?;
    Some(signal_number(*signal as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_from_either_launcher() {
        let killed = Cause::Signal("9 (SIGKILL)".to_owned());
        for line in [
            "mpirun noticed that process rank 1 with PID 4711 on node b exited on signal 9 (Killed).",
            "srun: error: b: task 1: Killed",
            "srun: error: b: tasks 1-2: Killed",
            "srun: error: b: task 1: Out Of Memory",
        ] {
            assert_eq!(death_in(line), Some((1, killed.clone())), "{line}");
        }
        let crashed = Some((12, Cause::Signal("11 (SIGSEGV)".to_owned())));
        assert_eq!(death_in("srun: error: node7: task 12: Segmentation fault (core dumped)"), crashed);
        assert_eq!(death_in("srun: error: b: task 3: Exited with exit code 2"), Some((3, Cause::Exit(2))));
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in [
            "",
            "srun: error: Unable to allocate resources",
            "mpirun noticed that the job aborted, but has no info as to the process",
            "srun: error: b: task 1: something new",
            "Epoch[0] Batch[1]",
        ] {
            assert_eq!(death_in(line), None, "{line}");
        }
    }
}

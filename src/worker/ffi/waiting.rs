//! How a rank waits that shares its core with others: asleep.
//!
//! Open MPI's waiting ranks ask the network again and again. Told to leave their core to others (`mpi_yield_when_idle`),
//! they call `sched_yield` between two questions; this program's own one is found before the C library's.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::ffi::libraries::set_default;

/// Between two questions.
pub const PATIENCE: Duration = Duration::from_micros(50);

/// Open MPI's names of the parameter for users, and of what mpirun sets where a host has more ranks than slots.
const YIELDS: [&str; 2] = ["OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_mpi_oversubscribe"];

static SLEEPS: AtomicBool = AtomicBool::new(false);

/// Lets this rank sleep while MPI waits, where the user or mpirun asks it to leave its core to others, or where mpirun
/// started more ranks here than there are `cores`; first in every process.
///
/// A rank that mpirun bound has one core and shares it with nobody.
pub fn share_cores(cores: u32) {
    let ranks = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok().and_then(|size| size.parse::<u32>().ok());
    let is_bound = std::env::var_os("OMPI_MCA_orte_bound_at_launch").is_some();
    if ranks.is_some_and(|ranks| ranks > cores) && !is_bound {
        set_default(YIELDS[0], "1");
    }
    let first = YIELDS.iter().find_map(|name| std::env::var(name).ok());
    SLEEPS.store(first.is_some_and(|value| is_yes(&value)), Ordering::Relaxed);
}

/// As Open MPI reads a switch: a number that is not 0, or one of these words.
fn is_yes(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    value.parse::<i64>().map_or(["true", "t", "enabled", "yes", "y"].contains(&value.as_str()), |number| number != 0)
}

/// In the place of the C library's. Linux 6.18 leaves ranks that have work without a core for minutes, while others of
/// their host call the real one without end.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    if SLEEPS.load(Ordering::Relaxed) {
        thread::sleep(PATIENCE);
        return 0;
    }
    // SAFETY: takes nothing and cannot fail on Linux.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_as_open_mpi_reads_them() {
        assert!(["1", "true", " Yes", "2", "t"].into_iter().all(is_yes));
        assert!(!["0", "false", "no", "", "f", "off"].into_iter().any(is_yes));
    }
}

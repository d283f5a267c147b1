//! Memory limit of a rank, and the error message if its batch needs more.

use std::error::Error;
use std::fmt;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use ringmark_core::dimension::Bytes;
use ringmark_core::host::{MemoryShortage, memory};
use tch::Device;

use crate::ffi::torch::shim::{self, DeviceMemory};

/// Prefixes of the out-of-memory messages of libtorch's allocators and C++; in some of them the requested size follows.
const MESSAGES: [&str; 4] = [
    "CUDA out of memory. Tried to allocate ",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate ",
    "CUDA error: out of memory",
    "std::bad_alloc",
];

/// Messages of oneDNN, and of a thread that cannot start, with several possible causes, including a lack of memory.
const AMBIGUOUS_MESSAGES: [&str; 5] = [
    "Resource temporarily unavailable",
    "could not create a primitive",
    "could not execute a primitive",
    "could not create a memory",
    "could not generate a kernel",
];

/// Remaining memory below which a process counts as being at a limit: later allocations are small.
const NEAR_LIMIT: Bytes = Bytes(64 << 20);

/// Memory needed to report the error.
const REPORT_RESERVE: Bytes = Bytes(32 << 20);

/// Error of a rank that requested more memory than its device has left.
#[derive(Debug)]
pub struct NoMemoryLeft {
    pub shortage: MemoryShortage,
    /// Requested size if known, such as `1.5 GB`.
    requested: Option<String>,
}

impl fmt::Display for NoMemoryLeft {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "out of memory: {} in use", self.shortage)?;
        if let Some(requested) = &self.requested {
            write!(formatter, ", {requested} more requested")?;
        }
        formatter.write_str(": use a smaller --batch-size, or find the largest with `ringmark sweep --batch-size auto`")
    }
}

impl Error for NoMemoryLeft {}

/// Limits this process's allocations to `more` than now, so that they fail before the kernel's out-of-memory killer
/// acts.
pub fn limit_to(more: Bytes) {
    let own = memory::private().0 + more.0;
    // Without this limit the kernel's remains.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_DATA) {
        let _ = setrlimit(Resource::RLIMIT_DATA, soft.min(own), hard);
    }
}

/// Returns the memory that the limits of this process (`ulimit -d`, `ulimit -v`) leave; `None` without limits.
pub fn left_by_limits() -> Option<Bytes> {
    let left = |limit: Resource, taken: Bytes| {
        let (soft, _) = getrlimit(limit).ok()?;
        (soft != RLIM_INFINITY).then(|| soft.saturating_sub(taken.0))
    };
    let all = [left(Resource::RLIMIT_DATA, memory::private()), left(Resource::RLIMIT_AS, memory::mapped())];
    all.into_iter().flatten().min().map(Bytes)
}

pub fn is_shortage(error: &anyhow::Error) -> bool {
    message_in(&format!("{error:#}"), left_by_limits()).is_some()
}

/// Returns the out-of-memory message in `text`, if there is one. `left` is the memory left by limits.
fn message_in(text: &str, left: Option<Bytes>) -> Option<&'static str> {
    let is_at_limit = left.is_some_and(|left| left < NEAR_LIMIT);
    let unnamed = AMBIGUOUS_MESSAGES.iter().filter(|_| is_at_limit);
    MESSAGES.iter().chain(unnamed).find(|message| text.contains(**message)).copied()
}

/// Converts an out-of-memory error to [`NoMemoryLeft`]; returns other errors unchanged.
pub fn named(error: anyhow::Error, device: Device) -> anyhow::Error {
    let text = format!("{error:#}");
    let left = if device == Device::Cpu { left_by_limits() } else { None };
    let Some(message) = message_in(&text, left) else { return error };
    let shortage = match device {
        Device::Cuda(index) => shim::device_memory(index).ok().map(|DeviceMemory { free, total }| MemoryShortage {
            taken: Bytes(total.saturating_sub(free)),
            total: Bytes(total),
        }),
        _ => host_shortage(),
    };
    let requested = text.split(message).nth(1).and_then(requested_in);
    shortage.map_or(error, |shortage| NoMemoryLeft { shortage, requested }.into())
}

fn host_shortage() -> Option<MemoryShortage> {
    let (limit, _) = getrlimit(Resource::RLIMIT_DATA).ok()?;
    Some(MemoryShortage { taken: memory::private(), total: Bytes(limit) })
}

/// Returns the shortage behind a crash if the limit of private memory leaves almost nothing: libraries do not always
/// check whether an allocation succeeded. Raises that limit a little, to have memory for the error message. (An
/// `anyhow::Error` would take the lock of Rust's backtraces, which the crashed thread may hold.)
pub fn shortage_behind_crash() -> Option<NoMemoryLeft> {
    let (limit, hard) = getrlimit(Resource::RLIMIT_DATA).ok()?;
    setrlimit(Resource::RLIMIT_DATA, limit.saturating_add(REPORT_RESERVE.0).min(hard), hard).ok()?;
    let taken = memory::private();
    let is_at_limit = limit.saturating_sub(taken.0) < NEAR_LIMIT.0;
    let shortage = MemoryShortage { taken, total: Bytes(limit) };
    is_at_limit.then_some(NoMemoryLeft { shortage, requested: None })
}

/// Parses the size at the start of `text`: `20.00 MiB. GPU 0 ..` or `123 bytes. Error ..`.
fn requested_in(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = match words.next()?.trim_end_matches('.') {
        "bytes" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some(format!("{:.2} GB", number * unit / 1e9))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn requested_size_is_parsed_from_libtorch_error() {
        assert_eq!(
            requested_in("20.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which ..").as_deref(),
            Some("0.02 GB")
        );
        assert_eq!(requested_in("1500000000 bytes. Error code 12 (Cannot ..").as_deref(), Some("1.50 GB"));
        assert_eq!(requested_in("more than 1EB memory."), None);
    }

    #[test]
    fn libtorch_allocation_error_is_recognized() {
        let requested = 1_i64 << 60;
        let error = tch::Tensor::f_zeros([requested], (tch::Kind::Uint8, Device::Cpu)).expect_err("no host has it");
        let named = named(error.into(), Device::Cpu);
        let shortage = named.downcast_ref::<NoMemoryLeft>().expect("it is for memory");
        assert!(shortage.shortage.taken.0 > 0, "{shortage}");
        assert_eq!(shortage.requested.as_deref(), Some("1152921504.61 GB"), "{shortage}");
        let other = super::named(anyhow::anyhow!("no such file"), Device::Cpu);
        expect!["no such file"].assert_eq(&other.to_string());
    }

    #[test]
    fn ambiguous_errors_are_shortages_only_near_a_limit() {
        let text = "libtorch: could not create a primitive";
        let is_shortage = |left: Option<u64>| message_in(text, left.map(|left| Bytes(left << 20))).is_some();
        assert_eq!([Some(1), Some(100), None].map(is_shortage), [true, false, false]);
        assert!(message_in("std::bad_alloc", None).is_some());
    }
}

//! The memory that a rank may take, and what is said where its batch needs more.

use std::error::Error;
use std::fmt;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use ringmark_core::dimension::Bytes;
use ringmark_core::host::{MemoryShortage, memory};
use tch::Device;

use crate::ffi::torch::shim::{self, DeviceMemory};

/// How libtorch's allocators, and C++, begin to say that there is no memory; what was asked for follows in some.
const MESSAGES: [&str; 4] = [
    "CUDA out of memory. Tried to allocate ",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate ",
    "CUDA error: out of memory",
    "std::bad_alloc",
];

/// What oneDNN, and a thread that cannot start, say for want of memory, among other causes.
const UNNAMED: [&str; 5] = [
    "Resource temporarily unavailable",
    "could not create a primitive",
    "could not execute a primitive",
    "could not create a memory",
    "could not generate a kernel",
];

/// What a process has left at most where it has reached a limit of its memory: what lies behind that asks for small amounts.
const AT_THE_LIMIT: Bytes = Bytes(64 << 20);

/// What it takes to say so.
const TO_EXPLAIN: Bytes = Bytes(32 << 20);

/// A rank asked for more memory than its device has left.
#[derive(Debug)]
pub struct NoMemoryLeft {
    /// What its device had.
    pub shortage: MemoryShortage,
    /// What was asked for, where that is known: `1.5 GB`.
    asked: Option<String>,
}

impl fmt::Display for NoMemoryLeft {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "out of memory: {} are taken", self.shortage)?;
        if let Some(asked) = &self.asked {
            write!(formatter, ", {asked} more were asked for")?;
        }
        formatter.write_str(": choose a smaller --batch-size; `ringmark sweep --batch-size auto` finds the largest")
    }
}

impl Error for NoMemoryLeft {}

/// Lets this process's allocations fail when it has taken so much `more` than now, before the kernel has to end a process
/// for want of memory.
pub fn limit_to(more: Bytes) {
    let own = memory::private().0 + more.0;
    // Where there is no such limit, the kernel's remains.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_DATA) {
        let _ = setrlimit(Resource::RLIMIT_DATA, soft.min(own), hard);
    }
}

/// What the limits of this process leave it (`ulimit -d`, `ulimit -v`); `None` without any.
pub fn left_by_limits() -> Option<Bytes> {
    let left = |limit: Resource, taken: Bytes| {
        let (soft, _) = getrlimit(limit).ok()?;
        (soft != RLIM_INFINITY).then(|| soft.saturating_sub(taken.0))
    };
    let all = [left(Resource::RLIMIT_DATA, memory::private()), left(Resource::RLIMIT_AS, memory::mapped())];
    all.into_iter().flatten().min().map(Bytes)
}

/// Whether an error says that there is no memory left.
pub fn is_shortage(error: &anyhow::Error) -> bool {
    message_in(&format!("{error:#}"), left_by_limits()).is_some()
}

/// The words in `text` by which it says that there is no memory left, where so much is `left` by limits.
fn message_in(text: &str, left: Option<Bytes>) -> Option<&'static str> {
    let is_at_limit = left.is_some_and(|left| left < AT_THE_LIMIT);
    let unnamed = UNNAMED.iter().filter(|_| is_at_limit);
    MESSAGES.iter().chain(unnamed).find(|message| text.contains(**message)).copied()
}

/// The same error; as [`NoMemoryLeft`] where it says that `device` has no memory left.
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
    let asked = text.split(message).nth(1).and_then(asked_in);
    shortage.map_or(error, |shortage| NoMemoryLeft { shortage, asked }.into())
}

fn host_shortage() -> Option<MemoryShortage> {
    let (limit, _) = getrlimit(Resource::RLIMIT_DATA).ok()?;
    Some(MemoryShortage { taken: memory::private(), total: Bytes(limit) })
}

/// Why this process crashes, where its limit of private memory leaves next to nothing: libraries do not always look whether
/// they got what they asked for. Raises that limit a little, for what is still to be said. (An `anyhow::Error` would take the
/// lock of Rust's stack traces, which a thread that crashes may hold.)
pub fn shortage_behind_crash() -> Option<NoMemoryLeft> {
    let (limit, hard) = getrlimit(Resource::RLIMIT_DATA).ok()?;
    setrlimit(Resource::RLIMIT_DATA, limit.saturating_add(TO_EXPLAIN.0).min(hard), hard).ok()?;
    let taken = memory::private();
    let is_at_limit = limit.saturating_sub(taken.0) < AT_THE_LIMIT.0;
    let shortage = MemoryShortage { taken, total: Bytes(limit) };
    is_at_limit.then_some(NoMemoryLeft { shortage, asked: None })
}

/// The amount at the beginning of `text`: `20.00 MiB. GPU 0 ..` or `123 bytes. Error ..`.
fn asked_in(text: &str) -> Option<String> {
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
    fn what_libtorch_asked_for_is_read() {
        assert_eq!(
            asked_in("20.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which ..").as_deref(),
            Some("0.02 GB")
        );
        assert_eq!(asked_in("1500000000 bytes. Error code 12 (Cannot ..").as_deref(), Some("1.50 GB"));
        assert_eq!(asked_in("more than 1EB memory."), None);
    }

    #[test]
    fn libtorch_s_own_error_is_named() {
        let asked = 1_i64 << 60;
        let error = tch::Tensor::f_zeros([asked], (tch::Kind::Uint8, Device::Cpu)).expect_err("no host has it");
        let named = named(error.into(), Device::Cpu);
        let shortage = named.downcast_ref::<NoMemoryLeft>().expect("it is for memory");
        assert!(shortage.shortage.taken.0 > 0, "{shortage}");
        assert_eq!(shortage.asked.as_deref(), Some("1152921504.61 GB"), "{shortage}");
        let other = super::named(anyhow::anyhow!("no such file"), Device::Cpu);
        expect!["no such file"].assert_eq(&other.to_string());
    }

    #[test]
    fn what_onednn_does_not_name_is_a_shortage_at_a_limit_alone() {
        let text = "libtorch: could not create a primitive";
        let is_shortage = |left: Option<u64>| message_in(text, left.map(|left| Bytes(left << 20))).is_some();
        assert_eq!([Some(1), Some(100), None].map(is_shortage), [true, false, false]);
        assert!(message_in("std::bad_alloc", None).is_some());
    }
}

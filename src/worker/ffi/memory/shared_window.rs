//! Memory shared by the ranks of a host, with counters to wait on and sums that read other ranks' arrays directly.
//!
//! The memory is an anonymous file (`memfd_create`): nothing remains when the last rank ends, however it ends, and the
//! size of /dev/shm does not limit it. `exchange/backend/shared_memory/` assigns the parts to ranks.
//!
//! ```text
//! | counters | rank 0: small messages, wire, sums | rank 1: small messages, wire, sums | ...
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::ffi::memory::element::Element;
use crate::ffi::memory::streaming;
use crate::ffi::memory::sums::{self, Combination};

/// Number of counters that ranks can wait on.
pub const COUNTERS: usize = 1024;

/// Size of each rank's area for small messages.
pub const SMALL_BYTES: usize = 256 << 10;

const PAGE: usize = 4096;

/// Time for which a waiting rank polls a counter before it sleeps, if it has a core to itself.
const SPIN_TIME: Duration = Duration::from_micros(200);

/// Longest sleep before the counter is polled again: a safeguard, not part of the protocol.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// A counter that only increases (and wraps), alone in its cache line.
#[repr(C, align(64))]
struct Counter {
    count: AtomicU32,
    sleepers: AtomicU32,
}

/// Control data before the ranks' parts.
#[repr(C)]
struct Control {
    /// Random identifier of the window.
    mark: AtomicU64,
    counters: [Counter; COUNTERS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowLayout {
    pub ranks: usize,
    pub elements: usize,
    pub wire: Element,
    pub sums: Element,
    /// True if there is no separate wire: the values to sum are in the array of the sums.
    pub is_shared: bool,
}

impl WindowLayout {
    fn wire_offset(&self) -> usize {
        SMALL_BYTES
    }

    fn sums_offset(&self) -> usize {
        let wire = if self.is_shared { 0 } else { self.elements * self.wire.bytes() };
        self.wire_offset() + wire.next_multiple_of(PAGE)
    }

    /// Returns the size of one rank's part in bytes.
    fn part(&self) -> usize {
        self.sums_offset() + (self.elements * self.sums.bytes()).next_multiple_of(PAGE)
    }

    fn part_offset(&self, rank: usize) -> usize {
        size_of::<Control>().next_multiple_of(PAGE) + rank * self.part()
    }

    pub fn bytes(&self) -> usize {
        self.part_offset(self.ranks)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Array {
    /// Values to sum.
    Wire,
    Sums,
}

/// Arrays of a transfer between ranks: source and destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    pub from: Array,
    pub to: Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankArray {
    pub rank: usize,
    pub array: Array,
}

/// Location of a window's memory, for other processes to open.
#[derive(Debug, Clone, Copy)]
pub struct SharedFile {
    pub process: u32,
    pub descriptor: i32,
}

pub struct Window {
    layout: WindowLayout,
    own: usize,
    base: NonNull<u8>,
    /// True if each rank has its own cores, so that polling takes no time from other ranks.
    may_watch: bool,
    /// Keeps the file open for ranks that have not mapped it yet.
    file: File,
}

// SAFETY: the mapping exists until the process ends, and its counters are atomic.
unsafe impl Send for Window {}
// SAFETY: as above; callers of the methods, on any thread, guarantee that accesses to the arrays do not conflict.
unsafe impl Sync for Window {}

impl Window {
    /// Creates the window on rank 0 of the host. `mark` identifies it.
    pub fn create(layout: WindowLayout, mark: u64, may_watch: bool) -> Result<Window> {
        // SAFETY: the name is NUL-terminated; the result is checked and owned by the file alone.
        let file = unsafe {
            let descriptor = libc::memfd_create(c"ringmark".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(io::Error::last_os_error()).context("memfd_create");
            }
            File::from_raw_fd(descriptor)
        };
        file.set_len(layout.bytes() as u64)?;
        let window = Window::map(file, layout, 0, may_watch)?;
        window.control().mark.store(mark, Ordering::SeqCst);
        Ok(window)
    }

    /// Opens rank 0's window on rank `own` of the host.
    pub fn open(
        layout: WindowLayout,
        SharedFile { process, descriptor }: SharedFile,
        mark: u64,
        own: usize,
        may_watch: bool,
    ) -> Result<Window> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(true).open(&path).with_context(|| path.clone())?;
        let length = file.metadata()?.len();
        // In another PID namespace the number may belong to any process.
        ensure!(length == layout.bytes() as u64, "{path} is not the window of local rank 0");
        let window = Window::map(file, layout, own, may_watch)?;
        ensure!(window.control().mark.load(Ordering::SeqCst) == mark, "{path} is not the window of local rank 0");
        Ok(window)
    }

    fn map(file: File, layout: WindowLayout, own: usize, may_watch: bool) -> Result<Window> {
        // SAFETY: a new shared mapping of an open file, as long as the file; the result is checked.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mmap");
        }
        let base = NonNull::new(base.cast::<u8>()).context("mmap returned null")?;
        // SAFETY: advice on a mapping that was just created; failure is harmless.
        unsafe { libc::madvise(base.as_ptr().cast(), layout.bytes(), libc::MADV_HUGEPAGE) };
        let window = Window { layout, own, base, may_watch, file };
        window.allocate()?;
        Ok(window)
    }

    /// Allocates this rank's memory now: on the NUMA node where this rank runs, and with an error if it does not fit,
    /// instead of a SIGBUS on first touch.
    fn allocate(&self) -> Result<()> {
        let offset = if self.own == 0 { 0 } else { self.layout.part_offset(self.own) };
        let length = self.layout.part_offset(self.own + 1) - offset;
        loop {
            // SAFETY: an open file; the result is checked.
            let status = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, offset as i64, length as i64) };
            let error = io::Error::last_os_error();
            match status {
                0 => return Ok(()),
                _ if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return Err(error).with_context(|| format!("cannot allocate {length} bytes of shared memory")),
            }
        }
    }

    /// Returns the location by which [`open`](Window::open) finds this window.
    pub fn shared_file(&self) -> SharedFile {
        SharedFile { process: std::process::id(), descriptor: self.file.as_raw_fd() }
    }

    /// Returns this rank's array as a tensor, `[elements]`. The mapping is never removed, so the tensor is valid until
    /// the process ends.
    pub fn tensor(&self, array: Array) -> Tensor {
        self.tensor_of(array, self.own)
    }

    /// Returns another rank's array as a tensor; see [`tensor`](Window::tensor).
    pub fn tensor_of(&self, array: Array, rank: usize) -> Tensor {
        let length = self.layout.elements;
        let kind = self.kind(array);
        let data = self.address(array, rank, 0..length);
        // SAFETY: `length` elements of `kind`, contiguous, mapped until the process ends.
        unsafe { Tensor::from_blob(data, &[length as i64], &[1], kind, Device::Cpu) }
    }

    /// Adds one to `counter`. The rank that makes it `target` wakes the sleeping ones.
    pub fn arrive(&self, counter: usize, target: u32) {
        let counter = &self.control().counters[counter];
        let count = counter.count.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        if count == target && counter.sleepers.load(Ordering::SeqCst) > 0 {
            // SAFETY: an aligned word of a live mapping.
            unsafe { libc::syscall(libc::SYS_futex, counter.count.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
    }

    pub fn has_reached(&self, counter: usize, target: u32) -> bool {
        is_reached(self.control().counters[counter].count.load(Ordering::SeqCst), target)
    }

    pub fn wait(&self, counter: usize, target: u32) {
        if self.has_reached(counter, target) {
            return;
        }
        if self.may_watch {
            let start = Instant::now();
            while start.elapsed() < SPIN_TIME {
                for _ in 0..64 {
                    if self.has_reached(counter, target) {
                        return;
                    }
                    std::hint::spin_loop();
                }
            }
        }
        let counter = &self.control().counters[counter];
        counter.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            let count = counter.count.load(Ordering::SeqCst);
            if is_reached(count, target) {
                break;
            }
            let limit = libc::timespec { tv_sec: MAX_SLEEP.as_secs() as i64, tv_nsec: 0 };
            // Returns at once if the count has changed since; the loop checks again in any case.
            // SAFETY: an aligned word of a live mapping and a live timespec.
            unsafe { libc::syscall(libc::SYS_futex, counter.count.as_ptr(), libc::FUTEX_WAIT, count, &limit) };
        }
        counter.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Combines `elements` of every rank's `from`, in rank order, into the same elements of `to` on each of the
    /// `receivers`. `streaming` bypasses the caches: for sums that are not read soon, in memory that was not just read.
    ///
    /// The caller guarantees that no rank writes the sources, or accesses the receivers, at the same time.
    pub fn combine(
        &self,
        combination: Combination,
        Transfer { from, to }: Transfer,
        elements: Range<usize>,
        receivers: Range<usize>,
        streaming: bool,
    ) {
        let addresses = |array, ranks: Range<usize>| -> Vec<*mut u8> {
            ranks.map(|rank| self.address(array, rank, elements.clone()).cast_mut()).collect()
        };
        let sources = addresses(from, 0..self.layout.ranks);
        let receivers = addresses(to, receivers);
        // SAFETY: `address` checked the bounds of every array; the caller guarantees exclusive access.
        unsafe {
            let (from, to) = (self.element(from), self.element(to));
            sums::combine(combination, &sources, from, &receivers, to, elements.len(), streaming);
        }
    }

    /// Copies `elements` of this rank's `from`, times `factor`, to `to` on each of the `receivers`. The requirements
    /// are those of [`combine`](Window::combine).
    pub fn spread(&self, factor: f32, Transfer { from, to }: Transfer, elements: Range<usize>, receivers: &[usize]) {
        if receivers.is_empty() {
            return;
        }
        let combination = Combination { factor, ..Combination::SUM };
        let source = self.address(from, self.own, elements.clone()).cast_mut();
        let receivers: Vec<*mut u8> =
            receivers.iter().map(|rank| self.address(to, *rank, elements.clone()).cast_mut()).collect();
        // SAFETY: as in `combine`.
        unsafe {
            let (from, to) = (self.element(from), self.element(to));
            sums::combine(combination, &[source], from, &receivers, to, elements.len(), false);
        }
    }

    /// Copies `elements` of `source` to this rank's `to`, starting at element `start`. The requirements are those of
    /// [`combine`](Window::combine).
    pub fn fetch(&self, source: RankArray, elements: Range<usize>, to: Array, start: usize) {
        let RankArray { rank, array } = source;
        assert_eq!(self.element(array), self.element(to), "source and destination types differ");
        let length = elements.len();
        let place = |array| if self.layout.is_shared { Array::Sums } else { array };
        let is_apart = rank != self.own || place(array) != place(to);
        assert!(
            is_apart || start == elements.start || elements.end <= start || start + length <= elements.start,
            "cannot copy {elements:?} to {start} in the same array"
        );
        let source = self.address(array, rank, elements);
        let target = self.address(to, self.own, start..start + length).cast_mut();
        // SAFETY: `address` checked the bounds of both ranges, and the assertion that they are identical or disjoint;
        // arrays of different ranks do not overlap.
        unsafe { streaming::copy(source, target, length * self.element(to).bytes()) };
    }

    /// Copies `elements` of `source` to the same elements of `tensor`, which has the same length and type.
    pub fn read(&self, source: RankArray, elements: Range<usize>, tensor: &Tensor) -> Result<()> {
        let RankArray { rank, array } = source;
        let position = self.position(array, &elements, tensor)?;
        let bytes = elements.len() * self.element(array).bytes();
        let source = self.address(array, rank, elements);
        // SAFETY: both were checked to contain the elements. They are identical or disjoint: a tensor as long as the
        // array, at the same element, is either the array itself or other memory.
        unsafe { streaming::copy(source, position, bytes) };
        Ok(())
    }

    /// Copies `elements` of `tensor`, which has the length and type of this rank's `to`, to the same elements of `to`.
    pub fn write(&self, tensor: &Tensor, elements: Range<usize>, to: Array) -> Result<()> {
        let position = self.position(to, &elements, tensor)?;
        let bytes = elements.len() * self.element(to).bytes();
        let target = self.address(to, self.own, elements).cast_mut();
        // SAFETY: as in `read`.
        unsafe { streaming::copy(position.cast_const(), target, bytes) };
        Ok(())
    }

    /// Returns the address of `elements` in a tensor of the same length and type as `array`.
    fn position(&self, array: Array, elements: &Range<usize>, tensor: &Tensor) -> Result<*mut u8> {
        let is_like = tensor.kind() == self.kind(array) && tensor.numel() == self.layout.elements;
        ensure!(
            is_like && tensor.is_contiguous() && tensor.device() == Device::Cpu,
            "{tensor:?} does not match the {} elements of {:?} in the window",
            self.layout.elements,
            self.kind(array)
        );
        let offset = elements.start * self.element(array).bytes();
        Ok(tensor.data_ptr().wrapping_byte_add(offset).cast())
    }

    /// Copies `elements` of this rank's `from` to its area for small messages, at byte `offset`.
    pub fn post(&self, from: Array, elements: Range<usize>, offset: usize) {
        let bytes = elements.len() * self.element(from).bytes();
        let source = self.address(from, self.own, elements);
        let target = self.small(self.own, offset, bytes);
        // SAFETY: both were checked to contain `bytes`; arrays and small messages do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(source, target, bytes) };
    }

    /// Combines the values of type `from` that all ranks [posted](Window::post) at `offset` into `elements` of this
    /// rank's `to`.
    pub fn combine_posted(
        &self,
        combination: Combination,
        Transfer { from, to }: Transfer,
        elements: Range<usize>,
        offset: usize,
    ) {
        let bytes = elements.len() * self.element(from).bytes();
        let mut sources = [std::ptr::null_mut(); 64];
        let sources: &[*mut u8] = if self.layout.ranks <= sources.len() {
            for (rank, source) in sources.iter_mut().enumerate().take(self.layout.ranks) {
                *source = self.small(rank, offset, bytes);
            }
            &sources[..self.layout.ranks]
        } else {
            &(0..self.layout.ranks).map(|rank| self.small(rank, offset, bytes)).collect::<Vec<_>>()
        };
        let receiver = [self.address(to, self.own, elements.clone()).cast_mut()];
        // SAFETY: `small` and `address` checked the bounds; the caller guarantees exclusive access.
        unsafe {
            let (from, to) = (self.element(from), self.element(to));
            sums::combine(combination, sources, from, &receiver, to, elements.len(), false);
        }
    }

    fn kind(&self, array: Array) -> Kind {
        self.element(array).kind()
    }

    fn element(&self, array: Array) -> Element {
        match array {
            Array::Wire => self.layout.wire,
            Array::Sums => self.layout.sums,
        }
    }

    /// Returns the address of `elements` in a rank's array.
    fn address(&self, array: Array, rank: usize, elements: Range<usize>) -> *const u8 {
        assert!(elements.start <= elements.end && elements.end <= self.layout.elements, "{elements:?}");
        assert!(rank < self.layout.ranks, "rank {rank}");
        let start = match array {
            Array::Wire if !self.layout.is_shared => self.layout.wire_offset(),
            _ => self.layout.sums_offset(),
        };
        let offset = self.layout.part_offset(rank) + start + elements.start * self.element(array).bytes();
        // SAFETY: inside the mapping, as checked above.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn small(&self, rank: usize, offset: usize, bytes: usize) -> *mut u8 {
        assert!(rank < self.layout.ranks && offset + bytes <= SMALL_BYTES, "{bytes} bytes at {offset} of rank {rank}");
        // SAFETY: inside the mapping, as checked above.
        unsafe { self.base.as_ptr().add(self.layout.part_offset(rank) + offset) }
    }

    fn control(&self) -> &Control {
        // SAFETY: the mapping starts with a `Control`, which is valid for any bits; it lives as long as `self`.
        unsafe { self.base.cast::<Control>().as_ref() }
    }
}

/// Compares counters that wrap: `count` has reached `target` if it is ahead by less than half of the range.
fn is_reached(count: u32, target: u32) -> bool {
    count.wrapping_sub(target) < u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: WindowLayout =
        WindowLayout { ranks: 3, elements: 5000, wire: Element::BFloat16, sums: Element::Float, is_shared: false };

    const SUM: Transfer = Transfer { from: Array::Wire, to: Array::Sums };

    fn windows(layout: WindowLayout) -> Vec<Window> {
        let first = Window::create(layout, 7, false).expect("a window");
        let file = first.shared_file();
        let others: Vec<Window> =
            (1..layout.ranks).map(|own| Window::open(layout, file, 7, own, false).expect("rank 0's")).collect();
        std::iter::once(first).chain(others).collect()
    }

    #[test]
    fn ranks_sum_from_shared_memory() {
        let windows = windows(LAYOUT);
        for (rank, window) in windows.iter().enumerate() {
            let _ = window.tensor(Array::Wire).fill_((rank + 1) as i64);
        }
        windows[1].combine(Combination::SUM, SUM, 10..4990, 0..3, true);
        for window in &windows {
            let sums = window.tensor(Array::Sums);
            assert_eq!([9, 10, 4989, 4990].map(|index| sums.double_value(&[index])), [0.0, 6.0, 6.0, 0.0]);
        }
        windows[2].spread(2.0, SUM, 0..2, &[0]);
        assert_eq!(windows[0].tensor(Array::Sums).double_value(&[1]), 6.0);
    }

    #[test]
    fn ranks_copy_from_shared_memory() {
        let windows = windows(WindowLayout { wire: Element::Float, ..LAYOUT });
        for (rank, window) in windows.iter().enumerate() {
            let _ = window.tensor(Array::Wire).fill_((rank + 1) as i64);
        }
        windows[0].fetch(RankArray { rank: 2, array: Array::Wire }, 10..20, Array::Sums, 4000);
        let sums = windows[0].tensor(Array::Sums);
        assert_eq!([3999, 4000, 4009, 4010].map(|index| sums.double_value(&[index])), [0.0, 3.0, 3.0, 0.0]);
        let weights = Tensor::zeros([5000], (Kind::Float, Device::Cpu));
        windows[1].read(RankArray { rank: 0, array: Array::Sums }, 4000..4005, &weights).expect("it is like the sums");
        assert_eq!([3999, 4004, 4005].map(|index| weights.double_value(&[index])), [0.0, 3.0, 0.0]);
        windows[1].write(&weights, 4004..4006, Array::Sums).expect("it is like the sums");
        assert_eq!([4003, 4004].map(|index| windows[1].tensor(Array::Sums).double_value(&[index])), [0.0, 3.0]);
        let shorter = weights.narrow(0, 0, 10);
        assert!(windows[1].read(RankArray { rank: 0, array: Array::Sums }, 0..5, &shorter).is_err());
    }

    #[test]
    fn posted_messages_are_summed() {
        let windows = windows(WindowLayout { is_shared: true, wire: Element::Float, ..LAYOUT });
        for (rank, window) in windows.iter().enumerate() {
            let _ = window.tensor(Array::Sums).fill_((rank + 1) as i64);
            window.post(Array::Sums, 7..10, 128);
        }
        windows[0].combine_posted(Combination::SUM, Transfer { from: Array::Sums, to: Array::Sums }, 7..10, 128);
        let sums = windows[0].tensor(Array::Sums);
        assert_eq!([6, 7, 9, 10].map(|index| sums.double_value(&[index])), [1.0, 6.0, 6.0, 1.0]);
    }

    #[test]
    fn last_arrival_wakes_sleeping_ranks() {
        let start = Instant::now();
        let mut windows = windows(LAYOUT);
        let meet = |window: &Window| {
            for round in 1..=500 {
                window.arrive(3, 3 * round);
                window.wait(3, 3 * round);
            }
        };
        std::thread::scope(|scope| {
            for window in windows.drain(1..) {
                scope.spawn(move || meet(&window));
            }
            meet(&windows[0]);
        });
        // Without wake-ups each round would take all of `MAX_SLEEP`.
        assert!(start.elapsed() < Duration::from_secs(100));
        assert!(windows[0].has_reached(3, 1500) && !windows[0].has_reached(3, 1501));
        assert!(is_reached(2, u32::MAX - 1) && !is_reached(u32::MAX - 1, 2));
    }

    #[test]
    fn window_of_another_job_is_rejected() {
        let first = Window::create(LAYOUT, 7, false).expect("a window");
        let file = first.shared_file();
        let error = Window::open(LAYOUT, file, 8, 1, false).err().expect("another mark").to_string();
        assert!(error.contains("is not the window"), "{error}");
        assert!(Window::open(WindowLayout { ranks: 2, ..LAYOUT }, file, 7, 1, false).is_err());
    }
}

//! Loader of batches, which background threads prepare ahead of the steps that use them. The contents of a batch depend
//! only on the seed, not on the number or the timing of threads.
//!
//! A thread takes the next image of the next batch, then reads, decodes and augments it into the image's slot of the
//! batch. Memory is limited to the batches that are ahead plus the working memory of each thread.
//!
//! Items with random access are read in an [`Order`]. Records that can only be read sequentially are read in storage
//! order from a rank's own part ([`SequentialOrder`]): threads take slot and record together, one at a time, and decode
//! in parallel.

mod config;
mod image_fault;
pub mod order;
pub mod partial_batch;
pub mod sequential_order;
pub mod stage;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;

use crate::dataset::Dataset;
use crate::dataset::record_files::RecordStream;
pub use crate::loader::config::LoaderConfig;
use crate::loader::image_fault::ImageFault;
use crate::loader::order::{Order, SampleIndex};
use crate::loader::partial_batch::{ImageBatch, PartialBatch};
use crate::loader::sequential_order::SequentialOrder;
use crate::loader::stage::{Observer, StageTimes};
use crate::loader::worker::Worker;

/// Source of the batches of one rank.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    decoder: String,
}

/// State shared by the threads.
struct Shared {
    source: Source,
    config: LoaderConfig,
    state: Mutex<State>,
    /// Signaled when a batch has a free slot.
    may_begin: Condvar,
    /// Signaled when a batch is complete.
    is_whole: Condvar,
    observer: OnceLock<Observer>,
}

/// Source of the images.
enum Source {
    ByNumber(Arc<Dataset>, Order),
    Sequential(SequentialOrder, Mutex<RecordStream>),
}

impl Source {
    /// Returns the number of images of a step, padding excluded.
    fn batch_samples(&self, step: u64) -> u64 {
        match self {
            Source::ByNumber(_, order) => order.batch_samples(step),
            Source::Sequential(order, _) => order.batch_samples(step),
        }
    }
}

struct State {
    /// Batches in progress in step order; only the last may have images that no thread has taken.
    partial: VecDeque<PartialBatch>,
    /// Memory of used batches.
    free: Vec<BytesMut>,
    next_step: u64,
    times: StageTimes,
    is_over: bool,
}

/// An image to be made by a thread.
struct ImageTask {
    step: u64,
    slot: u64,
    pixels: BytesMut,
}

impl Loader {
    /// Starts with the batch of `first_step`, counted over all epochs, for items with random access.
    ///
    /// # Errors
    ///
    /// Fails if turbojpeg is requested and missing, or if the number of threads or batches is zero.
    pub fn start(dataset: Arc<Dataset>, order: Order, config: LoaderConfig, first_step: u64) -> Result<Loader> {
        Loader::with_source(Source::ByNumber(dataset, order), config, first_step)
    }

    /// Starts for records that can only be read sequentially.
    ///
    /// # Errors
    ///
    /// Fails like [`start`](Self::start), and if `order` belongs to another data set or has another number of images.
    pub fn start_sequential(
        dataset: &Dataset,
        order: SequentialOrder,
        config: LoaderConfig,
        first_step: u64,
    ) -> Result<Loader> {
        ensure!(
            order.samples() == config.samples,
            "order of {} images for batches of {}: use the same batch size",
            order.samples(),
            config.samples
        );
        let stream = order.stream(dataset, first_step)?;
        Loader::with_source(Source::Sequential(order, Mutex::new(stream)), config, first_step)
    }

    fn with_source(source: Source, config: LoaderConfig, first_step: u64) -> Result<Loader> {
        ensure!(config.threads > 0, "--decode-threads 0: at least one is needed");
        ensure!(config.ahead > 0, "--prefetch 0: at least one batch is needed");
        let workers: Vec<Worker> = (0..config.threads).map(|_| Worker::new(config)).collect::<Result<_>>()?;
        let decoder = workers[0].decoder();
        let bytes = config.item_bytes() * usize::try_from(config.samples).context("a batch of this size")?;
        // One more batch is in use by the current step.
        let free = (0..=config.ahead).map(|_| BytesMut::zeroed(bytes)).collect();
        let state = State {
            partial: VecDeque::new(),
            free,
            next_step: first_step,
            times: StageTimes::default(),
            is_over: false,
        };
        let shared = Arc::new(Shared {
            source,
            config,
            state: Mutex::new(state),
            may_begin: Condvar::new(),
            is_whole: Condvar::new(),
            observer: OnceLock::new(),
        });
        let mut loader = Loader { shared, threads: Vec::new(), decoder };
        for (number, mut worker) in (0..).zip(workers) {
            let shared = loader.shared.clone();
            let thread = thread::Builder::new().name(format!("decode {number}"));
            let run = move || shared.make(number, &mut worker);
            loader
                .threads
                .push(thread.spawn(run).with_context(|| format!("decode thread {number} cannot be started"))?);
        }
        Ok(loader)
    }

    /// Returns the name and version of the JPEG decoder.
    pub fn decoder(&self) -> &str {
        &self.decoder
    }

    /// Calls `observer` with the stages of each image from now on. Only the first observer is kept.
    pub fn observe(&self, observer: Observer) {
        self.shared.observer.get_or_init(|| observer);
    }

    /// Waits for the next batch. [`recycle`](Loader::recycle) returns its memory.
    ///
    /// # Errors
    ///
    /// Fails if an image of the batch cannot be read, does not match the network, or cannot be decoded and is not to be
    /// skipped, and if all its images were skipped.
    pub fn next_batch(&mut self) -> Result<ImageBatch> {
        let is_partial =
            |state: &mut State| !state.partial.front().is_some_and(PartialBatch::is_whole) && !state.is_over;
        let state = self.shared.is_whole.wait_while(self.shared.state(), is_partial);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let whole = state.partial.pop_front_if(|partial| partial.is_whole());
        drop(state);
        let partial = whole.context("a thread that decodes has panicked")?;
        let started = Instant::now();
        let batch = partial.finish(self.shared.config.item_bytes(), self.shared.config.on_bad_image);
        self.shared.state().times.collate += started.elapsed();
        batch
    }

    /// Takes back the memory of a used batch.
    pub fn recycle(&mut self, batch: ImageBatch) {
        self.shared.state().free.push(batch.pixels);
        self.shared.may_begin.notify_all();
    }

    /// Returns the time per stage since the start, of all threads and of the caller in
    /// [`next_batch`](Self::next_batch).
    pub fn times(&self) -> StageTimes {
        self.shared.state().times
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.may_begin.notify_all();
        // A thread that panicked has already printed its message.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs thread `number` until the loader is dropped.
    fn make(&self, number: u32, worker: &mut Worker) {
        let _end = PanicGuard(self);
        while let Some((mut task, read)) = self.read(worker) {
            let made = read.map_err(ImageFault::from_read).and_then(|draw| worker.make(draw, &mut task.pixels));
            if let Some(observer) = self.observer.get() {
                observer(number, worker.stages());
            }
            let mut state = self.state();
            state.times += worker.times();
            let partial = state.partial.iter_mut().find(|partial| partial.step == task.step);
            let is_whole = partial.is_some_and(|partial| partial.put(task.slot, task.pixels, made));
            drop(state);
            if is_whole {
                self.is_whole.notify_all();
            }
        }
    }

    /// Reads the next image; returns what its bytes are, or why they cannot be read. `None` if the loader is being
    /// dropped.
    fn read(&self, worker: &mut Worker) -> Option<(ImageTask, Result<SampleIndex>)> {
        match &self.source {
            Source::ByNumber(dataset, order) => {
                let task = self.take()?;
                let draw = order.draw(task.step, task.slot);
                let read = worker.read(|item| dataset.read(draw.item, item).map(|()| draw));
                Some((task, read))
            }
            Source::Sequential(order, stream) => {
                // A thread that waits for memory holds the lock; the others would wait for the same memory.
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                let task = self.take()?;
                let read = worker.read(|item| order.read(&mut stream, task.step, task.slot, item));
                Some((task, read))
            }
        }
    }

    /// Takes the next image, waiting for the memory of a batch. `None` if the loader is being dropped.
    fn take(&self) -> Option<ImageTask> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(partial) = state.partial.back_mut()
                && let Some((slot, pixels)) = partial.take(self.config.item_bytes())
            {
                return Some(ImageTask { step: partial.step, slot, pixels });
            }
            match state.free.pop() {
                Some(memory) => {
                    let step = state.next_step;
                    state.next_step += 1;
                    let partial = PartialBatch::new(step, self.source.batch_samples(step), self.config.samples, memory);
                    state.partial.push_back(partial);
                }
                None => state = self.may_begin.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// Guard that stops all threads if one panics, because its batch would never be complete.
struct PanicGuard<'a>(&'a Shared);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state().is_over = true;
            self.0.is_whole.notify_all();
            self.0.may_begin.notify_all();
        }
    }
}

#[cfg(test)]
mod bad_input_tests;
#[cfg(test)]
mod sequential_order_tests;
#[cfg(test)]
mod tests;

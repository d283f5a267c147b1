//! Batches of a data set, made by threads of their own ahead of the steps that use them. What a batch holds depends on the
//! seed alone: not on the number of threads, nor on which of them is first.
//!
//! A thread takes the next image of the next batch, reads, decodes and augments it into that image's place in the batch.
//! Memory is that of the batches which are ahead, and what each thread needs for one image.
//!
//! Items that can be read by number come in an [`Order`]. Records that can only be read in turn come as they are stored, of
//! a rank's own part ([`SequentialOrder`]): threads take place and record together, one after the other, and decode side by side.

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
use crate::loader::order::{Draw, Order};
use crate::loader::partial_batch::{ImageBatch, PartialBatch};
use crate::loader::sequential_order::SequentialOrder;
use crate::loader::stage::{Observer, StageTimes};
use crate::loader::worker::Worker;

/// Makes the batches of one rank.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    decoder: String,
}

/// What threads share.
struct Shared {
    source: Source,
    config: LoaderConfig,
    state: Mutex<State>,
    /// A batch has a place for it: threads wait for this.
    may_begin: Condvar,
    /// A batch is whole.
    is_whole: Condvar,
    observer: OnceLock<Observer>,
}

/// Where images come from.
enum Source {
    ByNumber(Arc<Dataset>, Order),
    Sequential(SequentialOrder, Mutex<RecordStream>),
}

impl Source {
    /// Images of a step that are none of those it is filled up with.
    fn images_of(&self, step: u64) -> u64 {
        match self {
            Source::ByNumber(_, order) => order.images_of(step),
            Source::Sequential(order, _) => order.images_of(step),
        }
    }
}

struct State {
    /// Batches that are begun, in the order of their steps; only the last may have images that nobody took.
    partial: VecDeque<PartialBatch>,
    /// Memory of batches that were used.
    free: Vec<BytesMut>,
    next_step: u64,
    times: StageTimes,
    is_over: bool,
}

/// An image that a thread is to make.
struct ImageTask {
    step: u64,
    slot: u64,
    pixels: BytesMut,
}

impl Loader {
    /// Of items that can be read by number. Begins with the batch of `first_step`, counted over all epochs.
    ///
    /// # Errors
    ///
    /// Where turbojpeg is asked for and missing, or threads or batches are none.
    pub fn start(dataset: Arc<Dataset>, order: Order, config: LoaderConfig, first_step: u64) -> Result<Loader> {
        Loader::with_source(Source::ByNumber(dataset, order), config, first_step)
    }

    /// Of records that can only be read in turn.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); where `order` is another data set's, or has another number of images.
    pub fn start_sequential(
        dataset: &Dataset,
        order: SequentialOrder,
        config: LoaderConfig,
        first_step: u64,
    ) -> Result<Loader> {
        ensure!(
            order.images() == config.images,
            "turns of {} images for batches of {}: make them for the same",
            order.images(),
            config.images
        );
        let stream = order.stream(dataset, first_step)?;
        Loader::with_source(Source::Sequential(order, Mutex::new(stream)), config, first_step)
    }

    fn with_source(source: Source, config: LoaderConfig, first_step: u64) -> Result<Loader> {
        ensure!(config.threads > 0, "--decode-threads 0: there must be one");
        ensure!(config.ahead > 0, "no batch may be made ahead: there must be one");
        let workers: Vec<Worker> = (0..config.threads).map(|_| Worker::new(config)).collect::<Result<_>>()?;
        let decoder = workers[0].decoder();
        let bytes = config.image_bytes() * usize::try_from(config.images).context("a batch of this size")?;
        // One more is with the step that uses it.
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

    /// Which library decodes JPEG, with its version.
    pub fn decoder(&self) -> &str {
        &self.decoder
    }

    /// From now on `observer` hears what threads do. The first one that is given stays.
    pub fn observe(&self, observer: Observer) {
        self.shared.observer.get_or_init(|| observer);
    }

    /// The next batch, as soon as it is whole. Its memory comes back by [`give_back`](Loader::give_back).
    ///
    /// # Errors
    ///
    /// Where one of its images cannot be read or does not suit the network, or is none and is not to be skipped; where none of
    /// them is one.
    pub fn next_batch(&mut self) -> Result<ImageBatch> {
        let is_partial =
            |state: &mut State| !state.partial.front().is_some_and(PartialBatch::is_whole) && !state.is_over;
        let state = self.shared.is_whole.wait_while(self.shared.state(), is_partial);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let whole = state.partial.pop_front_if(|partial| partial.is_whole());
        drop(state);
        let partial = whole.context("a thread that decodes has panicked")?;
        let started = Instant::now();
        let batch = partial.finish(self.shared.config.image_bytes(), self.shared.config.on_bad_image);
        self.shared.state().times.collate += started.elapsed();
        batch
    }

    /// Takes back the memory of a batch that is not needed any more.
    pub fn give_back(&mut self, batch: ImageBatch) {
        self.shared.state().free.push(batch.pixels);
        self.shared.may_begin.notify_all();
    }

    /// What threads, and the caller in [`next_batch`](Self::next_batch), did since the start.
    pub fn times(&self) -> StageTimes {
        self.shared.state().times
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.may_begin.notify_all();
        // One that panicked has said so.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of thread `number`.
    fn make(&self, number: u32, worker: &mut Worker) {
        let _end = EndOfThread(self);
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

    /// The next image, and what its bytes are, or why they cannot be read. `None` when the loader goes.
    fn read(&self, worker: &mut Worker) -> Option<(ImageTask, Result<Draw>)> {
        match &self.source {
            Source::ByNumber(dataset, order) => {
                let task = self.take()?;
                let draw = order.draw(task.step, task.slot);
                let read = worker.read(|item| dataset.read(draw.item, item).map(|()| draw));
                Some((task, read))
            }
            Source::Sequential(order, stream) => {
                // Who waits for memory here keeps the others waiting, who would wait for it too.
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                let task = self.take()?;
                let read = worker.read(|item| order.read(&mut stream, task.step, task.slot, item));
                Some((task, read))
            }
        }
    }

    /// The next image; waits for memory of a batch. `None` when the loader goes.
    fn take(&self) -> Option<ImageTask> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(partial) = state.partial.back_mut()
                && let Some((slot, pixels)) = partial.take(self.config.image_bytes())
            {
                return Some(ImageTask { step: partial.step, slot, pixels });
            }
            match state.free.pop() {
                Some(memory) => {
                    let step = state.next_step;
                    state.next_step += 1;
                    let partial = PartialBatch::new(step, self.source.images_of(step), self.config.images, memory);
                    state.partial.push_back(partial);
                }
                None => state = self.may_begin.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// A thread that panics leaves a batch that nobody finishes: all end.
struct EndOfThread<'a>(&'a Shared);

impl Drop for EndOfThread<'_> {
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

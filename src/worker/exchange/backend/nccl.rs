//! NCCL backend: rings on a separate stream, concurrent with backward.
//!
//! ```text
//! compute stream   ...backward of bucket 0 | E0 | backward of bucket 1 | E1 | (wait D) optimizer...
//!                                            \                           \      /
//! sum stream                         (wait E0) sum 0 ........... (wait E1) sum 1 | D
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, ensure};
use ringmark_core::dimension::{BackendName, Reduction};

use crate::exchange::backend::Backend;
use crate::exchange::collective::{Collective, Target, are_even};
use crate::exchange::memory::{Memory, UncopiedSums};
use crate::ffi::group::Buffers;
use crate::ffi::nccl::{Communicator, Nccl};
use crate::ffi::torch::stream::{Event, Stream};
use crate::job::heartbeat;
use crate::job::world::{self, World};
use crate::measure::mark::Mark;
use crate::measure::trace::recorder;

pub struct NcclBackend {
    communicator: Communicator,
    device: usize,
    /// Recorded when a bucket's gradients are complete. One event is enough: a stream waits for the last recording
    /// before the call to wait, regardless of later ones.
    ready: Event,
    done: Event,
    /// End events of pending collectives, oldest first.
    in_flight: VecDeque<Event>,
    /// Number of completed collectives.
    sums: usize,
    memory: Memory,
    uncopied: UncopiedSums,
    /// True while a CUDA graph is captured. A replay's sums are not counted.
    is_capturing: bool,
}

impl NcclBackend {
    /// Joins all ranks. MPI broadcasts NCCL's unique ID.
    pub fn new(nccl: Arc<Nccl>, world: &World, device: usize, memory: Memory) -> Result<NcclBackend> {
        let mut id = match world.rank() {
            0 => nccl.unique_id()?,
            _ => [0; _],
        };
        world.broadcast(&mut id);
        let _waiting = heartbeat::wait();
        let communicator = Communicator::new(nccl, device, world.rank(), world.ranks(), id)?;
        Ok(NcclBackend {
            communicator,
            device,
            ready: Event::new(device),
            done: Event::new(device),
            in_flight: VecDeque::new(),
            sums: 0,
            memory,
            uncopied: UncopiedSums::default(),
            is_capturing: false,
        })
    }

    /// Records an event on the stream of the sums if the iteration is traced.
    fn traced_mark(&self) -> Result<Option<Mark>> {
        if !recorder::is_on() {
            return Ok(None);
        }
        let mut event = Event::with_timing(self.device);
        event.record(self.communicator.stream())?;
        Ok(Some(Mark::Device(event)))
    }

    fn enqueue(&mut self, collective: &Collective) -> Result<()> {
        let NcclBackend { communicator, memory, .. } = self;
        let single_type_buffers = memory.single_type_buffers();
        let buffers = |target| match target {
            Target::Memory => single_type_buffers,
            Target::Tensor(tensor) => Buffers::in_place(tensor),
        };
        match collective {
            Collective::AllReduce { elements } => communicator.all_reduce(single_type_buffers, elements.clone()),
            Collective::Reduce { elements, root, .. } => {
                communicator.reduce(single_type_buffers, elements.clone(), *root)
            }
            Collective::ReduceScatter { parts } if are_even(parts) => {
                communicator.reduce_scatter(single_type_buffers, parts)
            }
            Collective::ReduceScatter { parts } => communicator.in_group(|communicator| {
                let mut owned = parts.iter().zip(0..).filter(|(part, _)| !part.is_empty());
                owned.try_for_each(|(part, owner)| communicator.reduce(single_type_buffers, part.clone(), owner))
            }),
            Collective::Broadcast { elements, root, target } => {
                communicator.broadcast(buffers(*target), elements.clone(), *root)
            }
            Collective::AllGather { parts, target } => {
                let buffers = buffers(*target);
                if are_even(parts) {
                    return communicator.all_gather(buffers, parts);
                }
                communicator.in_group(|communicator| {
                    let mut owned = parts.iter().zip(0..).filter(|(part, _)| !part.is_empty());
                    owned.try_for_each(|(part, owner)| communicator.broadcast(buffers, part.clone(), owner))
                })
            }
            Collective::AllToAll { parts } => {
                ensure!(!memory.in_place, "an all-to-all needs separate send and receive buffers");
                communicator.all_to_all(single_type_buffers, parts)
            }
            Collective::SendReceive { elements, neighbors } => {
                ensure!(!memory.in_place, "send and receive buffers must not overlap");
                communicator.send_receive(single_type_buffers, elements.clone(), *neighbors)
            }
        }
    }
}

impl Backend for NcclBackend {
    fn name(&self) -> BackendName {
        BackendName::Nccl
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn set_reduction(&mut self, reduction: Reduction) {
        self.communicator.set_reduction(reduction);
    }

    fn start_collective(&mut self, collective: &Collective) -> Result<()> {
        self.start_repeated(collective, 1)
    }

    fn start_repeated(&mut self, collective: &Collective, times: u32) -> Result<()> {
        self.ready.record(Stream::current(self.device)?)?;
        self.communicator.stream().wait_for(&self.ready)?;
        let begin = self.traced_mark()?;
        for _ in 0..times {
            self.enqueue(collective)?;
        }
        self.uncopied.add(self.sums + self.in_flight.len() + 1, collective);
        if let (Some(begin), Some(end)) = (begin, self.traced_mark()?) {
            recorder::record_exchange(collective.operation().text(), begin, end);
        }
        if !self.is_capturing {
            self.in_flight.push_back(self.communicator.stream().record_event()?);
        }
        Ok(())
    }

    fn set_capturing(&mut self, is_capturing: bool) {
        self.is_capturing = is_capturing;
        // A failed capture may have left pending sums.
        self.uncopied.clear();
    }

    fn check(&mut self) -> Result<usize> {
        if let Err(error) = self.communicator.check() {
            // If a rank failed, its broken connection gives the better error message: let it be reported first.
            thread::sleep(world::EXIT_DELAY);
            return Err(error);
        }
        while self.in_flight.front().map_or(Ok(false), Event::is_done)? {
            self.in_flight.pop_front();
            self.sums += 1;
        }
        Ok(self.sums)
    }

    fn finish(&mut self) -> Result<()> {
        if !self.is_capturing {
            self.check()?;
        }
        self.done.record(self.communicator.stream())?;
        Stream::current(self.device)?.wait_for(&self.done)?;
        self.uncopied.copy(&self.memory, usize::MAX)
    }

    fn finish_first(&mut self, count: usize) -> Result<()> {
        self.check()?;
        if let Some(last) = count.checked_sub(self.sums + 1) {
            let end = self.in_flight.get(last).context("a collective that was not started")?;
            Stream::current(self.device)?.wait_for(end)?;
        }
        self.uncopied.copy(&self.memory, count)
    }
}

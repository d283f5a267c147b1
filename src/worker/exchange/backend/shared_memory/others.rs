//! Collectives other than all-reduce through the window. They consist of pieces: a reduced piece is summed by its
//! worker and written to its owner, a moved piece is read from its owner by every rank.
//!
//! With several hosts, a piece's workers are the ranks with the same local rank on every host. A reduced piece goes by
//! MPI from each worker to the worker on the owner's host, which writes it to the owner. A moved piece goes by MPI from
//! the worker on the owner's host to the other workers, from which the ranks of their hosts read it. Point-to-point
//! messages go directly from rank to rank by MPI.

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::Tensor;

use crate::exchange::backend::shared_memory::between_hosts::NextStep;
use crate::exchange::backend::shared_memory::piece::{self, Piece, rank_in_group};
use crate::exchange::backend::shared_memory::work::{Fetch, PendingRange, Work};
use crate::exchange::backend::shared_memory::{SharedMemory, staged};
use crate::exchange::collective::{Collective, Route, Target};
use crate::ffi::group::Neighbors;
use crate::ffi::memory::shared_window::{Array, RankArray, Transfer};
use crate::ffi::mpi::Root;
use crate::job::world::RankLocation;

impl SharedMemory {
    fn own_location(&self) -> RankLocation {
        self.locations[self.global_rank as usize]
    }

    fn location(&self, rank: u32) -> Result<RankLocation> {
        ensure!((rank as usize) < self.locations.len(), "rank {rank} is out of range: {} ranks", self.locations.len());
        Ok(self.locations[rank as usize])
    }

    /// Starts a collective other than the bucketed all-reduce.
    pub(super) fn start_other(&mut self, collective: &Collective) -> Result<()> {
        self.is_shared = true;
        match collective {
            Collective::AllReduce { elements } => {
                let counter = self.next_counter()?;
                self.arrive_and_queue(counter, Work::Sum { elements: elements.clone(), small: None });
            }
            Collective::Reduce { elements, root, route } => {
                let pieces = piece::for_one_owner(elements, self.location(*root)?, self.shards);
                let counter = self.next_counter()?;
                self.arrive_and_queue(counter, Work::Reduce { pieces, route: *route });
            }
            Collective::ReduceScatter { parts } => {
                let pieces = piece::for_each_owner(parts, &self.locations, self.shards);
                let counter = self.next_counter()?;
                self.arrive_and_queue(counter, Work::Reduce { pieces, route: Route::Direct });
            }
            Collective::Broadcast { elements, root, target } => {
                let pieces = piece::for_one_owner(elements, self.location(*root)?, self.shards);
                self.start_move(pieces, target)?;
            }
            Collective::AllGather { parts, target } => {
                let pieces = piece::for_each_owner(parts, &self.locations, self.shards);
                self.start_move(pieces, target)?;
            }
            Collective::AllToAll { parts } => self.start_all_to_all(parts)?,
            Collective::SendReceive { elements, neighbors } => self.start_send_receive(elements, *neighbors)?,
        }
        self.advance(false)
    }

    /// Marks this rank as arrived and queues `work` until the other ranks of the host have arrived.
    fn arrive_and_queue(&mut self, counter: usize, work: Work) {
        self.arrive(counter);
        self.pending.push_back(PendingRange { counter, work });
    }

    fn start_move(&mut self, pieces: Vec<Piece>, target: &Target) -> Result<()> {
        let (from, output) = match target {
            Target::Memory => (self.input(), None),
            Target::Tensor(tensor) => {
                // Other ranks can only access the window.
                let own = pieces.iter().filter(|piece| piece.owner == self.own_location());
                own.into_iter().try_for_each(|piece| self.window.write(tensor, piece.elements.clone(), Array::Sums))?;
                (Array::Sums, Some(tensor.shallow_clone()))
            }
        };
        ensure!(
            from == Array::Sums || self.memory.wire.kind() == self.memory.sums.kind(),
            "source and destination types differ: {:?} and {:?}",
            self.memory.wire.kind(),
            self.memory.sums.kind()
        );
        let ready = self.next_counter()?;
        if self.between_hosts.is_none() {
            self.arrive_and_queue(ready, Work::Read { pieces, from, output });
            return Ok(());
        }
        let received = self.next_counter()?;
        self.arrive_and_queue(ready, Work::Send { pieces: pieces.clone(), from, received });
        self.pending.push_back(PendingRange { counter: received, work: Work::Read { pieces, from, output } });
        Ok(())
    }

    fn start_all_to_all(&mut self, parts: &[Range<usize>]) -> Result<()> {
        ensure!(!self.memory.in_place, "an all-to-all needs separate send and receive buffers");
        ensure!(parts.len() == self.locations.len(), "{} parts for {} ranks", parts.len(), self.locations.len());
        let own = parts[self.global_rank as usize].clone();
        ensure!(parts.iter().all(|part| part.len() == own.len()), "the parts of an all-to-all must have equal lengths");
        let counter = self.next_counter()?;
        let mut here = Vec::new();
        for (rank, part) in (0..).zip(parts) {
            let location = self.location(rank)?;
            if location.host == self.own_location().host {
                here.push(Fetch { rank: location.local_rank, elements: own.clone(), start: part.start });
            } else {
                self.send(counter, rank, part.clone())?;
                self.receive(counter, rank, part.clone())?;
            }
        }
        self.arrive_and_queue(counter, Work::Fetch { from: here });
        Ok(())
    }

    fn start_send_receive(&mut self, elements: &Range<usize>, Neighbors { next, previous }: Neighbors) -> Result<()> {
        ensure!(!self.memory.in_place, "send and receive buffers must not overlap");
        let counter = self.next_counter()?;
        let mut here = Vec::new();
        if let Some(next) = next
            && self.location(next)?.host != self.own_location().host
        {
            self.send(counter, next, elements.clone())?;
        }
        if let Some(previous) = previous {
            let location = self.location(previous)?;
            if location.host == self.own_location().host {
                here.push(Fetch { rank: location.local_rank, elements: elements.clone(), start: elements.start });
            } else {
                self.receive(counter, previous, elements.clone())?;
            }
        }
        self.arrive_and_queue(counter, Work::Fetch { from: here });
        Ok(())
    }

    fn send(&mut self, counter: usize, rank: u32, elements: Range<usize>) -> Result<()> {
        let chunks = self.chunks(elements);
        let Some(between) = &mut self.between_hosts else { return Ok(()) };
        for chunk in chunks {
            let request = between.communicator.start_send(self.memory.input(), chunk, rank as i32, counter as i32)?;
            between.push(counter, request, NextStep::Nothing);
        }
        Ok(())
    }

    fn receive(&mut self, counter: usize, rank: u32, elements: Range<usize>) -> Result<()> {
        let chunks = self.chunks(elements);
        let Some(between) = &mut self.between_hosts else { return Ok(()) };
        for chunk in chunks {
            let request = between.communicator.start_receive(&self.memory.sums, chunk, rank as i32, counter as i32)?;
            between.push(counter, request, NextStep::Nothing);
        }
        Ok(())
    }

    /// Performs `work`; all ranks of the host have arrived.
    pub(super) fn work(&mut self, counter: usize, work: Work) -> Result<()> {
        match work {
            Work::Sum { elements, small } => self.sum(counter, &elements, small),
            Work::Reduce { pieces, route } => {
                self.own_pieces(pieces).into_iter().try_for_each(|piece| self.reduce(counter, piece, route))
            }
            Work::Send { pieces, from, received } => self.send_pieces(counter, pieces, from, received),
            Work::Read { pieces, from, output } => {
                pieces.into_iter().try_for_each(|piece| self.read(piece, from, output.as_ref()))
            }
            Work::Fetch { from } => {
                for Fetch { rank, elements, start } in from {
                    self.window.fetch(RankArray { rank, array: Array::Wire }, elements, Array::Sums, start);
                }
                Ok(())
            }
        }
    }

    fn own_pieces(&self, mut pieces: Vec<Piece>) -> Vec<Piece> {
        pieces.retain(|piece| piece.worker == self.rank);
        pieces
    }

    fn reduce(&mut self, counter: usize, piece: Piece, route: Route) -> Result<()> {
        let Piece { elements, owner, worker } = piece;
        let receiver = owner.local_rank..owner.local_rank + 1;
        let arrays = Transfer { from: self.input(), to: Array::Sums };
        if self.between_hosts.is_none() {
            let streaming = self.streams(elements.len());
            if self.ranks > 1 || arrays.from != arrays.to {
                self.window.combine(self.combination, arrays, elements, receiver, streaming);
            }
            return Ok(());
        }
        let is_local = owner.host == self.own_location().host;
        let receivers = if is_local { self.receivers(receiver) } else { Vec::new() };
        let root =
            Root { rank: rank_in_group(owner.host, worker, &self.locations) as i32, direct: route == Route::Direct };
        for elements in self.chunks(elements) {
            self.stage_sum(elements.clone());
            if let Some(between) = &mut self.between_hosts
                && let Some(group) = &between.same_local_rank
            {
                let request = between.communicator.start_reduce(staged(&self.memory), elements.clone(), group, root)?;
                between.push(counter, request, NextStep::CopyToRanks { elements, receivers: receivers.clone() });
            }
            self.collect_completed(false)?;
        }
        Ok(())
    }

    fn send_pieces(&mut self, counter: usize, pieces: Vec<Piece>, from: Array, received: usize) -> Result<()> {
        let mut last = None;
        for Piece { elements, owner, worker } in self.own_pieces(pieces) {
            let is_local = owner.host == self.own_location().host;
            let tensor = match is_local {
                true => self.window.tensor_of(from, owner.local_rank),
                false => self.window.tensor(Array::Sums),
            };
            let root = rank_in_group(owner.host, worker, &self.locations) as i32;
            for elements in self.chunks(elements) {
                let Some(between) = &mut self.between_hosts else { continue };
                let Some(group) = &between.same_local_rank else { continue };
                let request = between.communicator.start_broadcast(&tensor, elements, group, root)?;
                if let Some(request) = last.replace(request) {
                    between.push(counter, request, NextStep::Nothing);
                }
                self.collect_completed(false)?;
            }
        }
        match (last, &mut self.between_hosts) {
            (Some(request), Some(between)) => between.push(counter, request, NextStep::Arrive { counter: received }),
            _ => self.arrive(received),
        }
        Ok(())
    }

    fn read(&mut self, piece: Piece, from: Array, output: Option<&Tensor>) -> Result<()> {
        let Piece { elements, owner, worker } = piece;
        let is_local = owner.host == self.own_location().host;
        let source = match is_local {
            true => RankArray { rank: owner.local_rank, array: from },
            false => RankArray { rank: worker, array: Array::Sums },
        };
        match output {
            Some(_) if owner == self.own_location() => Ok(()),
            Some(tensor) => self.window.read(source, elements, tensor),
            None if source == (RankArray { rank: self.rank, array: Array::Sums }) => Ok(()),
            None => {
                let start = elements.start;
                self.window.fetch(source, elements, Array::Sums, start);
                Ok(())
            }
        }
    }
}

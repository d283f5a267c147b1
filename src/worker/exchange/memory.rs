//! Input and output memory of a backend. Backends allocate it, because its location determines the speed.

use std::collections::VecDeque;
use std::ops::Range;

use anyhow::{Result, ensure};
use ringmark_core::dimension::Wire;
use ringmark_core::host::memory;
use tch::{Device, Tensor};

use crate::exchange::collective::Collective;
use crate::ffi::group::Buffers;
use crate::ffi::memory::element::Element;
use crate::job::world::World;

/// Size and types of a backend's memory.
#[derive(Debug, Clone, Copy)]
pub struct MemoryShape {
    /// Length of the wire and of the sums.
    pub elements: usize,
    /// Type of the input.
    pub wire: Element,
    /// Type of the sums: the wire's, or fp32.
    pub sums: Element,
    /// True if the input may share memory with the sums.
    pub in_place: bool,
}

impl MemoryShape {
    /// Returns the shape for gradients with wire type `wire`, summed to fp32: in place if the wire is fp32 too.
    pub fn gradients(elements: usize, wire: Wire) -> MemoryShape {
        let wire = Element::from(wire);
        MemoryShape { elements, wire, sums: Element::Float, in_place: wire == Element::Float }
    }

    /// Returns the shape for an array of the type `wire` with separate sums of the same type.
    pub fn array(elements: usize, wire: Wire) -> MemoryShape {
        let element = Element::from(wire);
        MemoryShape { elements, wire: element, sums: element, in_place: false }
    }

    /// Fails with a message for the user if this host does not have enough memory for all its ranks.
    pub fn check_fits(&self, world: &World) -> Result<()> {
        let wire = if self.in_place { 0 } else { self.wire.bytes() };
        let bytes = (self.elements * (wire + self.sums.bytes())) as f64;
        let (needed, available) = (bytes * f64::from(world.local_ranks()), memory::available().0 as f64);
        ensure!(
            needed <= available,
            "{} ranks on host {} need {:.1} GB of memory for their messages, but only {:.1} GB is available: use fewer \
             ranks per host, or smaller messages (bandwidth --end)",
            world.local_ranks(),
            world.host(),
            needed / 1e9,
            available / 1e9
        );
        Ok(())
    }
}

/// Returns a view of these elements of a flat tensor.
pub fn narrow(tensor: &Tensor, elements: &Range<usize>) -> Result<Tensor> {
    Ok(tensor.f_narrow(0, elements.start as i64, elements.len() as i64)?)
}

pub struct Memory {
    /// Input of this rank; the same tensor as `sums` if the shape is in place. Undefined after the sum.
    pub wire: Tensor,
    pub sums: Tensor,
    /// True if the next sums read `sums` instead of `wire`; both have the same type then.
    pub in_place: bool,
}

impl Memory {
    /// Allocates zeroed memory of this process.
    pub fn private(shape: MemoryShape, device: Device) -> Result<Memory> {
        let zeros = |element: Element| Tensor::f_zeros([shape.elements as i64], (element.kind(), device));
        let sums = zeros(shape.sums)?;
        let wire = if shape.in_place { sums.shallow_clone() } else { zeros(shape.wire)? };
        Ok(Memory { wire, sums, in_place: shape.in_place })
    }

    /// Returns the input of the next sums.
    pub fn input(&self) -> &Tensor {
        if self.in_place { &self.sums } else { &self.wire }
    }

    /// Returns input and output for a library that sums one type: half precision is summed in the wire itself.
    pub fn single_type_buffers(&self) -> Buffers<'_> {
        match self.wire.kind() == self.sums.kind() {
            true => Buffers { input: self.input(), output: &self.sums },
            false => Buffers::in_place(&self.wire),
        }
    }
}

/// Sums that a library left in [`single_type_buffers`](Memory::single_type_buffers) and that still have to be copied to
/// the memory's sums.
#[derive(Default)]
pub struct UncopiedSums {
    /// Number of the collective and its elements, in the order of the start.
    pending: VecDeque<(usize, Range<usize>)>,
}

impl UncopiedSums {
    /// Adds the sums of `collective`, which is the backend's collective `number`, if it has any.
    pub fn add(&mut self, number: usize, collective: &Collective) {
        if collective.operation().reduces() {
            self.pending.push_back((number, collective.span()));
        }
    }

    pub fn clear(&mut self) {
        self.pending.clear();
    }

    /// Copies the sums of the collectives up to number `last`.
    pub fn copy(&mut self, memory: &Memory, last: usize) -> Result<()> {
        let count = self.pending.iter().take_while(|(number, _)| *number <= last).count();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (_, elements) in self.pending.drain(..count) {
            match ranges.last_mut() {
                Some(before) if before.end == elements.start => before.end = elements.end,
                _ => ranges.push(elements),
            }
        }
        if memory.wire.kind() != memory.sums.kind() {
            for elements in ranges {
                narrow(&memory.sums, &elements)?.f_copy_(&narrow(&memory.wire, &elements)?)?;
            }
        }
        Ok(())
    }
}

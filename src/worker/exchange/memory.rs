//! The memory that a backend sums from and to. Backends make it, because where it lies decides how fast it is.

use std::ops::Range;

use anyhow::{Result, ensure};
use ringmark_core::dimension::Wire;
use ringmark_core::host::memory;
use tch::{Device, Tensor};

use crate::ffi::group::Buffers;
use crate::ffi::memory::element::Element;
use crate::job::world::World;

/// Size and types of a backend's memory.
#[derive(Debug, Clone, Copy)]
pub struct MemoryShape {
    /// Length of the wire and of the sums.
    pub elements: usize,
    /// Type of what is summed.
    pub wire: Element,
    /// Type of the sums: the wire's, or fp32.
    pub sums: Element,
    /// Whether what is summed may lie where the sums go.
    pub in_place: bool,
}

impl MemoryShape {
    /// Gradients on the wire `wire`, summed to fp32: in place where that is fp32 too.
    pub fn gradients(elements: usize, wire: Wire) -> MemoryShape {
        let wire = Element::from(wire);
        MemoryShape { elements, wire, sums: Element::Float, in_place: wire == Element::Float }
    }

    /// An array of the type `wire`, and its sums of the same type beside it.
    pub fn array(elements: usize, wire: Wire) -> MemoryShape {
        let element = Element::from(wire);
        MemoryShape { elements, wire: element, sums: element, in_place: false }
    }

    /// Refuses, with a message for the user, what the memory of this host cannot hold for all its ranks.
    pub fn check_fits(&self, world: &World) -> Result<()> {
        let wire = if self.in_place { 0 } else { self.wire.bytes() };
        let bytes = (self.elements * (wire + self.sums.bytes())) as f64;
        let (needed, available) = (bytes * f64::from(world.local_ranks()), memory::available().0 as f64);
        ensure!(
            needed <= available,
            "{} ranks of host {} need {:.1} GB of memory for their messages, {:.1} GB are available: choose fewer \
             ranks a host, or smaller messages (--end of a bandwidth run)",
            world.local_ranks(),
            world.host(),
            needed / 1e9,
            available / 1e9
        );
        Ok(())
    }
}

/// These elements of a flat tensor, in its memory.
pub fn narrow(tensor: &Tensor, elements: &Range<usize>) -> Result<Tensor> {
    Ok(tensor.f_narrow(0, elements.start as i64, elements.len() as i64)?)
}

/// One rank's memory, flat.
pub struct Memory {
    /// What this rank adds; the same tensor as `sums` where the shape says so. After the sum its content is undefined.
    pub wire: Tensor,
    /// The sums over all ranks.
    pub sums: Tensor,
    /// Whether the next sums start from what lies in `sums`, not in `wire`: both of one type then.
    pub in_place: bool,
}

impl Memory {
    /// Memory of this process alone, zero.
    pub fn private(shape: MemoryShape, device: Device) -> Result<Memory> {
        let zeros = |element: Element| Tensor::f_zeros([shape.elements as i64], (element.kind(), device));
        let sums = zeros(shape.sums)?;
        let wire = if shape.in_place { sums.shallow_clone() } else { zeros(shape.wire)? };
        Ok(Memory { wire, sums, in_place: shape.in_place })
    }

    /// What is summed.
    pub fn input(&self) -> &Tensor {
        if self.in_place { &self.sums } else { &self.wire }
    }

    /// From where to where a library goes that sums one type: half precision is summed on the wire itself.
    pub fn of_one_type(&self) -> Buffers<'_> {
        match self.wire.kind() == self.sums.kind() {
            true => Buffers { input: self.input(), output: &self.sums },
            false => Buffers::in_place(&self.wire),
        }
    }

    /// After a library summed [`of_one_type`](Memory::of_one_type): leaves the sums in `sums`.
    pub fn settle(&self) -> Result<()> {
        if self.wire.kind() != self.sums.kind() {
            self.sums.shallow_clone().f_copy_(&self.wire)?;
        }
        Ok(())
    }
}

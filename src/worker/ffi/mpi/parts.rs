//! Nonblocking sums between ranks: each rank receives its part from all ranks, adds in fp32, rounds once, and sends the
//! sums to all. This moves as many bytes as a ring, in two steps instead of `2 (ranks - 1)` dependent ones; and MPI
//! would round half precision after every addition.

use std::ffi::{c_int, c_void};

use anyhow::Result;
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::traits::Communicator;

use crate::ffi::memory::element::Element;
use crate::ffi::memory::sums::{self, Combination};
use crate::ffi::mpi::calls::Message;
use crate::ffi::mpi::calls::{Group, count, in_place, start};

/// Destination of a reduction.
#[derive(Debug, Clone, Copy)]
pub struct Root {
    pub rank: c_int,
    /// True if the root adds all values itself; otherwise every rank adds a part and sends it to the root.
    pub direct: bool,
}

/// Pending sum of one message, with one part of its values for each rank of a group.
pub struct PartSums {
    /// First value.
    position: *mut c_void,
    kind: ffi::MPI_Datatype,
    element: Element,
    /// Counts and displacements of the parts; MPI reads them until the requests are complete.
    counts: Vec<c_int>,
    starts: Vec<c_int>,
    own: usize,
    /// Counts and displacements of this rank's part, as received from every rank.
    received_counts: Vec<c_int>,
    received_starts: Vec<c_int>,
    received: Vec<u32>,
    combination: Combination,
    pub(super) is_added: bool,
    /// Destination of the sums; `None` is all ranks.
    root: Option<Root>,
    first: ffi::MPI_Comm,
    second: ffi::MPI_Comm,
}

impl PartSums {
    pub(super) fn new(
        message: Message,
        combination: Combination,
        ranks: &Group,
        root: Option<Root>,
    ) -> Result<PartSums> {
        let Message { position, kind, element, .. } = message;
        let length = message.count as usize;
        let (own, parts) = (ranks.first.rank() as usize, ranks.first.size() as usize);
        let border = |part: usize| match root {
            Some(Root { rank, direct: true }) => length * usize::from(part > rank as usize),
            _ => length * part / parts,
        };
        let borders: Vec<usize> = (0..=parts).map(border).collect();
        let lengths: Vec<usize> = borders.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let received_starts: Vec<usize> = (0..parts).map(|rank| rank * lengths[own]).collect();
        let to_counts = |numbers: &[usize]| numbers.iter().map(|number| count(*number)).collect::<Result<_>>();
        Ok(PartSums {
            position,
            kind,
            element,
            counts: to_counts(&lengths)?,
            starts: to_counts(&borders[..parts])?,
            own,
            received_counts: to_counts(&vec![lengths[own]; parts])?,
            received_starts: to_counts(&received_starts)?,
            received: vec![0; (lengths[own] * parts * element.bytes()).div_ceil(size_of::<u32>())],
            combination,
            is_added: false,
            root,
            first: ranks.first.as_raw(),
            second: ranks.second.as_raw(),
        })
    }

    /// Starts to send every part to its rank.
    pub fn exchange(&mut self) -> Result<ffi::MPI_Request> {
        let (counts, starts) = (self.counts.as_ptr(), self.starts.as_ptr());
        let (received_counts, received_starts) = (self.received_counts.as_ptr(), self.received_starts.as_ptr());
        let received = self.received.as_mut_ptr().cast();
        // SAFETY: the parts are in memory that the caller of `start_all_reduce` keeps, and in `received`, which is
        // large enough for one part from every rank; this value is boxed and outlives the request.
        start("MPI_Ialltoallv", |request| unsafe {
            ffi::MPI_Ialltoallv(
                self.position.cast_const(),
                counts,
                starts,
                self.kind,
                received,
                received_counts,
                received_starts,
                self.kind,
                self.first,
                request,
            )
        })
    }

    /// Adds the values of this rank's part, in rank order; the sums replace this rank's values.
    pub fn add(&mut self) {
        let (length, bytes) = (self.counts[self.own] as usize, self.element.bytes());
        let own = self.position.wrapping_byte_add(self.starts[self.own] as usize * bytes);
        let received: *mut u8 = self.received.as_mut_ptr().cast();
        let sources: Vec<*mut u8> =
            self.received_starts.iter().map(|start| received.wrapping_add(*start as usize * bytes)).collect();
        // SAFETY: `received` has `length` elements from every rank at these starts, aligned as its words or as
        // elements; `own` has as many elements. The two are disjoint, and the exchange no longer uses them.
        unsafe {
            let element = self.element;
            sums::combine(self.combination, &sources, element, &[own.cast()], element, length, false);
        }
        self.is_added = true;
    }

    /// Starts to send every rank's sums to all ranks or to the root; `None` if the sums are already in place.
    pub fn gather(&self) -> Result<Option<ffi::MPI_Request>> {
        let (counts, starts) = (self.counts.as_ptr(), self.starts.as_ptr());
        if let Some(Root { rank: root, direct }) = self.root {
            if direct {
                return Ok(None);
            }
            let own = self.position.wrapping_byte_add(self.starts[self.own] as usize * self.element.bytes());
            let from = if root as usize == self.own { in_place() } else { own.cast_const() };
            // SAFETY: as below; MPI writes only on the root.
            let request = start("MPI_Igatherv", |request| unsafe {
                ffi::MPI_Igatherv(
                    from,
                    self.counts[self.own],
                    self.kind,
                    self.position,
                    counts,
                    starts,
                    self.kind,
                    root,
                    self.second,
                    request,
                )
            })?;
            return Ok(Some(request));
        }
        // SAFETY: as in `exchange`; the parts do not overlap.
        let request = start("MPI_Iallgatherv", |request| unsafe {
            ffi::MPI_Iallgatherv(
                in_place(),
                0,
                self.kind,
                self.position,
                counts,
                starts,
                self.kind,
                self.second,
                request,
            )
        })?;
        Ok(Some(request))
    }
}

//! Sums between ranks, without waiting: each rank gets its part from all, adds in fp32, rounds once, and gives the sums to all.
//! As many bytes as a ring moves, in two steps instead of `2 (ranks - 1)` that wait for each other; and MPI would round
//! half precision after every addition.

use std::ffi::{c_int, c_void};

use anyhow::Result;
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::traits::Communicator;

use crate::ffi::memory::element::Element;
use crate::ffi::memory::sums::{self, Combination};
use crate::ffi::mpi::calls::Message;
use crate::ffi::mpi::calls::{Group, count, in_place, start};

/// Who gets the sums alone.
#[derive(Debug, Clone, Copy)]
pub struct Root {
    /// Of the group.
    pub rank: c_int,
    /// Whether it adds all by itself; otherwise every rank adds a part and sends it there.
    pub straight: bool,
}

/// The sum of values of one message: one part of them for each rank of a group.
pub struct PartSums {
    /// The first of them.
    position: *mut c_void,
    kind: ffi::MPI_Datatype,
    element: Element,
    /// Values of each part, and where it begins; MPI reads them until the requests are done.
    counts: Vec<c_int>,
    starts: Vec<c_int>,
    own: usize,
    /// The same of this rank's part, which comes from every rank.
    received_counts: Vec<c_int>,
    received_starts: Vec<c_int>,
    received: Vec<u32>,
    combination: Combination,
    pub(super) is_added: bool,
    /// Where not all get the sums.
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
            Some(Root { rank, straight: true }) => length * usize::from(part > rank as usize),
            _ => length * part / parts,
        };
        let borders: Vec<usize> = (0..=parts).map(border).collect();
        let lengths: Vec<usize> = borders.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let received_starts: Vec<usize> = (0..parts).map(|rank| rank * lengths[own]).collect();
        let of_mpi = |numbers: &[usize]| numbers.iter().map(|number| count(*number)).collect::<Result<_>>();
        Ok(PartSums {
            position,
            kind,
            element,
            counts: of_mpi(&lengths)?,
            starts: of_mpi(&borders[..parts])?,
            own,
            received_counts: of_mpi(&vec![lengths[own]; parts])?,
            received_starts: of_mpi(&received_starts)?,
            received: vec![0; (lengths[own] * parts * element.bytes()).div_ceil(size_of::<u32>())],
            combination,
            is_added: false,
            root,
            first: ranks.first.as_raw(),
            second: ranks.second.as_raw(),
        })
    }

    /// Every part to its rank.
    pub fn exchange(&mut self) -> Result<ffi::MPI_Request> {
        let (counts, starts) = (self.counts.as_ptr(), self.starts.as_ptr());
        let (received_counts, received_starts) = (self.received_counts.as_ptr(), self.received_starts.as_ptr());
        let received = self.received.as_mut_ptr().cast();
        // SAFETY: the parts lie in the memory that the caller of `start_all_reduce` keeps, and in `received`, which has
        // room for one from every rank; this value is boxed and lives as long as the request.
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

    /// Adds this rank's part, in the order of the ranks, and leaves the sums in its place.
    pub fn add(&mut self) {
        let (length, bytes) = (self.counts[self.own] as usize, self.element.bytes());
        let own = self.position.wrapping_byte_add(self.starts[self.own] as usize * bytes);
        let received: *mut u8 = self.received.as_mut_ptr().cast();
        let sources: Vec<*mut u8> =
            self.received_starts.iter().map(|start| received.wrapping_add(*start as usize * bytes)).collect();
        // SAFETY: `received` holds `length` elements from every rank at these starts, aligned as its words are or as elements
        // are; `own` is the place of as many; they lie apart, and the exchange is done with both.
        unsafe {
            let element = self.element;
            sums::combine(self.combination, &sources, element, &[own.cast()], element, length, false);
        }
        self.is_added = true;
    }

    /// Every rank's sums to all, or to the root; `None` where they are there.
    pub fn gather(&self) -> Result<Option<ffi::MPI_Request>> {
        let (counts, starts) = (self.counts.as_ptr(), self.starts.as_ptr());
        if let Some(Root { rank: root, straight }) = self.root {
            if straight {
                return Ok(None);
            }
            let own = self.position.wrapping_byte_add(self.starts[self.own] as usize * self.element.bytes());
            let from = if root as usize == self.own { in_place() } else { own.cast_const() };
            // SAFETY: as below; MPI writes on the root alone.
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
        // SAFETY: as in `exchange`; every part has its own place.
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

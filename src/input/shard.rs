//! The part of the items that a rank reads, following dmlc-core (src/io/input_split_base.cc,
//! indexed_recordio_split.cc). Every item is in exactly one part. All parts but the last have the same size; if there
//! are few items, the last parts are empty.

use std::fmt;
use std::ops::Range;

use anyhow::{Result, ensure};

use crate::format::record_io::ALIGNMENT;

/// One of several parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: u32,
}

impl Shard {
    /// The single part that contains everything.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };

    /// Returns part `index` of `count`, from 0.
    pub fn new(index: u32, count: u32) -> Result<Shard> {
        ensure!(index < count, "part {index} of {count} does not exist: parts are numbered from 0");
        Ok(Shard { index, count })
    }

    /// Returns the range of items in this part, for items that can be read by number: `ceil(items / parts)` each.
    pub fn item_range(self, items: u64) -> Range<u64> {
        self.steps(items, items.div_ceil(u64::from(self.count)))
    }

    /// Returns the range of bytes in this part of concatenated RecordIO files: `ceil(bytes / parts)` each, rounded up
    /// to a multiple of 4. Both ends are then moved to the next start of a record, so parts differ in their number of
    /// records.
    pub fn byte_range(self, bytes: u64) -> Range<u64> {
        self.steps(bytes, bytes.div_ceil(u64::from(self.count)).next_multiple_of(ALIGNMENT))
    }

    fn steps(self, all: u64, step: u64) -> Range<u64> {
        let end = |part: u32| step.saturating_mul(u64::from(part)).min(all);
        end(self.index)..end(self.index + 1)
    }
}

impl fmt::Display for Shard {
    /// Formats as `part 2 of 4`, from 0.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "part {} of {}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn parts(count: u32) -> impl Iterator<Item = Shard> {
        (0..count).map(move |index| Shard::new(index, count).expect("a part"))
    }

    #[test]
    fn parts_are_adjacent_and_complete() {
        for count in [1, 2, 3, 4, 7, 100] {
            for size in [1, 3, 4, 8, 10, 99, 1000, 1_281_167] {
                for part in [Shard::item_range, Shard::byte_range] {
                    let mut before = 0;
                    for range in parts(count).map(|one| part(one, size)) {
                        assert_eq!(range.start, before);
                        before = range.end;
                    }
                    assert_eq!(before, size);
                }
            }
        }
    }

    #[test]
    fn last_part_is_shorter_as_in_dmlc_core() {
        assert_eq!(parts(4).map(|part| part.item_range(10)).collect::<Vec<_>>(), [0..3, 3..6, 6..9, 9..10]);
        assert_eq!(parts(4).map(|part| part.item_range(2)).collect::<Vec<_>>(), [0..1, 1..2, 2..2, 2..2]);
        assert_eq!(parts(3).map(|part| part.byte_range(100)).collect::<Vec<_>>(), [0..36, 36..72, 72..100]);
        assert_eq!(Shard::WHOLE.byte_range(100), 0..100);
        expect!["part 2 of 2 does not exist: parts are numbered from 0"]
            .assert_eq(&Shard::new(2, 2).expect_err("too large").to_string());
    }
}

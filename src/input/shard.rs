//! Which part of the items a rank has, by the rules of dmlc-core (src/io/input_split_base.cc, indexed_recordio_split.cc): every
//! item is in exactly one part. Parts are of the same size but for the last; where there are few items, the last are empty.

use std::fmt;
use std::ops::Range;

use anyhow::{Result, ensure};

use crate::format::record_io::ALIGNMENT;

/// One of several parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    index: u32,
    count: u32,
}

impl Part {
    /// All there is.
    pub const WHOLE: Part = Part { index: 0, count: 1 };

    /// Part `index` of `count`, from 0.
    pub fn new(index: u32, count: u32) -> Result<Part> {
        ensure!(index < count, "there is no part {index} of {count}: they are numbered from 0");
        Ok(Part { index, count })
    }

    /// Of so many items that can be read by their number: `ceil(items / parts)` each.
    pub fn of_items(self, items: u64) -> Range<u64> {
        self.steps(items, items.div_ceil(u64::from(self.count)))
    }

    /// Of so many bytes of RecordIO files, one behind the other: `ceil(bytes / parts)` each, made a multiple of 4. Both ends
    /// then move on to the next record that begins there, so that parts differ in their number of records.
    pub fn of_bytes(self, bytes: u64) -> Range<u64> {
        self.steps(bytes, bytes.div_ceil(u64::from(self.count)).next_multiple_of(ALIGNMENT))
    }

    fn steps(self, all: u64, step: u64) -> Range<u64> {
        let end = |part: u32| step.saturating_mul(u64::from(part)).min(all);
        end(self.index)..end(self.index + 1)
    }
}

impl fmt::Display for Part {
    /// `part 2 of 4`, from 0.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "part {} of {}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn parts(count: u32) -> impl Iterator<Item = Part> {
        (0..count).map(move |index| Part::new(index, count).expect("a part"))
    }

    #[test]
    fn parts_lie_side_by_side_and_are_all() {
        for count in [1, 2, 3, 4, 7, 100] {
            for size in [1, 3, 4, 8, 10, 99, 1000, 1_281_167] {
                for part in [Part::of_items, Part::of_bytes] {
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
    fn the_last_part_is_shorter_as_dmlc_core_s_is() {
        assert_eq!(parts(4).map(|part| part.of_items(10)).collect::<Vec<_>>(), [0..3, 3..6, 6..9, 9..10]);
        assert_eq!(parts(4).map(|part| part.of_items(2)).collect::<Vec<_>>(), [0..1, 1..2, 2..2, 2..2]);
        assert_eq!(parts(3).map(|part| part.of_bytes(100)).collect::<Vec<_>>(), [0..36, 36..72, 72..100]);
        assert_eq!(Part::WHOLE.of_bytes(100), 0..100);
        expect!["there is no part 2 of 2: they are numbered from 0"]
            .assert_eq(&Part::new(2, 2).expect_err("too large").to_string());
    }
}

//! Division of a checkpoint among writers and files, in pages.

use std::ops::Range;

/// Bytes of a page, the unit of all parts: a multiple of the sector size of disks, which `O_DIRECT` requires.
pub const PAGE: u64 = 4096;

/// Returns part `index` of `pages` that are divided into `parts`, whose sizes differ by at most one page.
///
/// 10 pages in 4 parts: 0..2, 2..5, 5..7, 7..10.
pub fn part(pages: u64, index: u32, parts: u32) -> Range<u64> {
    let start = |index: u32| (u128::from(pages) * u128::from(index) / u128::from(parts)) as u64;
    start(index)..start(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_pages_once() {
        assert_eq!([0, 1, 2, 3].map(|index| part(10, index, 4)), [0..2, 2..5, 5..7, 7..10]);
        for (pages, parts) in [(49_916, 7), (u64::from(u32::MAX) << 20, 65_536)] {
            let all: Vec<_> = (0..parts).map(|index| part(pages, index, parts)).collect();
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((all[0].start, all[parts as usize - 1].end), (0, pages));
        }
    }
}

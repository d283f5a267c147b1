//! `.rec` files as one data set: read by number if each has its `.idx`, otherwise concatenated and split by bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use ringmark_core::dimension::ImageLimits;

use crate::byte_source::{ByteSource, Position};
use crate::dataset::item::{Item, ItemFormat};
use crate::format::image_record::ImageRecord;
use crate::format::index_file;
use crate::format::record_io::{self, Record, RecordHeads, RecordReader};
use crate::shard::Shard;

/// RecordIO files, in the order in which they were given.
#[derive(Debug)]
pub struct RecordFiles {
    files: Vec<Arc<ByteSource>>,
    /// Position of each record, if every file has an index.
    index: Option<Vec<RecordPosition>>,
    limits: ImageLimits,
}

/// Position of a record, from its index.
#[derive(Debug, Clone, Copy)]
struct RecordPosition {
    file: u32,
    key: u64,
    offset: u64,
}

/// Returns the path of the index of a `.rec` file: `train.idx` next to `train.rec`.
pub fn index_path(file: &Path) -> PathBuf {
    file.with_extension("idx")
}

impl RecordFiles {
    /// Opens the files and their indices. Fails if only some of the files have an index.
    pub fn open(paths: &[PathBuf], limits: ImageLimits) -> Result<RecordFiles> {
        let open = |path: &PathBuf| record_io::open(path).map(Arc::new);
        let files: Vec<Arc<ByteSource>> = paths.iter().map(open).collect::<Result<_>>()?;
        let with = paths.iter().find(|path| index_path(path).exists());
        let without = paths.iter().find(|path| !index_path(path).exists());
        let index = match (with, without) {
            (Some(with), Some(without)) => anyhow::bail!(
                "{} has an index ({}), but {} has none: create {}, or remove the others",
                with.display(),
                index_path(with).display(),
                without.display(),
                index_path(without).display()
            ),
            (Some(_), None) => Some(read_indices(&files)?),
            (None, _) => None,
        };
        Ok(RecordFiles { files, index, limits })
    }

    /// Returns in-memory files without an index.
    #[cfg(test)]
    fn from_sources(files: Vec<ByteSource>) -> RecordFiles {
        RecordFiles { files: files.into_iter().map(Arc::new).collect(), index: None, limits: ImageLimits::default() }
    }

    /// Returns the number of records, if there is an index.
    pub fn length(&self) -> Option<u64> {
        self.index.as_ref().map(|index| index.len() as u64)
    }

    /// Returns the total size of the files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.length()).sum()
    }

    /// Returns the paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.name())
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Reads record `number` by means of the index.
    pub fn read(&self, number: u64, item: &mut Item) -> Result<()> {
        let index = self.index.as_ref().with_context(|| {
            let file = self.files[0].name();
            format!(
                "{} has no index, so records cannot be read by number: create {}",
                file.display(),
                index_path(file).display()
            )
        })?;
        let place = usize::try_from(number).ok().filter(|place| *place < index.len());
        let place = place.with_context(|| format!("record {number} does not exist: there are {}", index.len()))?;
        let RecordPosition { file, key, offset } = index[place];
        let source = &self.files[file as usize];
        let next = index.get(place + 1).filter(|next| next.file == file).map_or(source.length(), |next| next.offset);
        let Item { buffer, .. } = item;
        source.ensure_not_shortened()?;
        let range = record_io::read_record(source, offset, next - offset, &self.limits, buffer)
            .with_context(|| format!("key {key} of {}", index_path(source.name()).display()))?;
        fill_item(item, source, offset, range)
    }

    /// Returns the records of a part, which is a range of bytes, in order.
    pub fn stream(&self, part: Shard) -> Result<RecordStream> {
        let Range { start, end } = part.byte_range(self.bytes());
        let (start, end) = (self.next_start(start)?, self.next_start(end)?);
        let mut all = Vec::new();
        let mut begin = 0;
        for file in &self.files {
            let range =
                start.clamp(begin, begin + file.length()) - begin..end.clamp(begin, begin + file.length()) - begin;
            if !range.is_empty() {
                all.push(FileSpan { file: file.clone(), begin, range });
            }
            begin += file.length();
        }
        let mut stream = RecordStream { all, remaining: Vec::new(), current: None, limits: self.limits };
        stream.restart(0)?;
        Ok(stream)
    }

    /// Returns the start of the next record at or after an offset in the concatenated files. The end of a file is the
    /// start of the next one.
    fn next_start(&self, offset: u64) -> Result<u64> {
        let mut begin = 0;
        for file in &self.files {
            if offset == begin {
                return Ok(offset);
            }
            if offset < begin + file.length() {
                return Ok(begin + record_io::next_record_start(file, offset - begin)?);
            }
            begin += file.length();
        }
        Ok(begin)
    }
}

fn read_indices(files: &[Arc<ByteSource>]) -> Result<Vec<RecordPosition>> {
    let mut index = Vec::new();
    for (file, source) in (0..).zip(files) {
        let entries = index_file::read(&index_path(source.name()), source.length())?;
        index.extend(entries.into_iter().map(|entry| RecordPosition { file, key: entry.key, offset: entry.offset }));
    }
    Ok(index)
}

/// Converts the record in `range` of the item's buffer into an item.
fn fill_item(item: &mut Item, source: &ByteSource, offset: u64, range: Range<usize>) -> Result<()> {
    let Item { buffer, labels, .. } = item;
    let record = ImageRecord::parse(&buffer[range.clone()]).with_context(|| source.location(offset).to_string())?;
    record.labels_into(labels);
    let (id, size) = (record.id, record.image.len());
    item.id = id;
    item.content = range.end - size..range.end;
    item.form = ItemFormat::Encoded;
    item.location.set(source.name(), Position::Byte(offset));
    Ok(())
}

/// Records of a part, across files. It can be restarted.
#[derive(Debug)]
pub struct RecordStream {
    all: Vec<FileSpan>,
    /// Remaining files in reverse order.
    remaining: Vec<FileSpan>,
    /// Reader of the current file, with the file's offset in the concatenated files.
    current: Option<(u64, RecordReader<Arc<ByteSource>>)>,
    limits: ImageLimits,
}

/// Range of a file that belongs to a part.
#[derive(Debug, Clone)]
struct FileSpan {
    file: Arc<ByteSource>,
    /// Total size of the files before it.
    begin: u64,
    /// Starts and ends at record boundaries.
    range: Range<u64>,
}

impl RecordStream {
    /// Reads the next record and returns its offset in the concatenated files; `None` after the last record.
    pub fn next(&mut self, item: &mut Item) -> Result<Option<u64>> {
        loop {
            if let Some((_, reader)) = &self.current {
                // The reader's buffer may hold records that have since been cut off.
                reader.source().ensure_not_shortened()?;
            }
            if let Some((begin, reader)) = &mut self.current
                && let Some(Record { offset, bytes }) = reader.next_record()?
            {
                item.buffer.clear();
                item.buffer.extend_from_slice(bytes);
                let range = 0..bytes.len();
                let begin = *begin + offset;
                return fill_item(item, reader.source(), offset, range).map(|()| Some(begin));
            }
            let Some(FileSpan { file, begin, range }) = self.remaining.pop() else { return Ok(None) };
            // The buffer of the previous file is reused.
            let reader = match self.current.take() {
                Some((_, reader)) => reader.on(file, range),
                None => RecordReader::new(file, range, self.limits),
            };
            self.current = Some((begin, reader));
        }
    }

    /// Seeks to record `number` of the part by reading the headers of the records before it.
    pub fn restart(&mut self, number: u64) -> Result<()> {
        self.remaining.clone_from(&self.all);
        self.remaining.reverse();
        if let Some((_, reader)) = &mut self.current {
            reader.end();
        }
        let mut before = number;
        while before > 0 {
            let span = self.remaining.last_mut().with_context(|| format!("a part has no record {number}"))?;
            let mut heads = RecordHeads::new(&span.file, span.range.clone());
            while before > 0 && heads.pass()? {
                before -= 1;
            }
            span.range.start = heads.offset();
            if span.range.is_empty() {
                self.remaining.pop();
            }
        }
        Ok(())
    }

    /// Counts the records of the part by their headers, which also checks that no record is cut off.
    pub fn count(&self) -> Result<u64> {
        let mut count = 0;
        for FileSpan { file, range, .. } in &self.all {
            let mut heads = RecordHeads::new(file, range.clone());
            while heads.pass()? {
                count += 1;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::image_record;
    use crate::format::record_io::MAGIC;

    /// Every third image contains the magic number, at positions that split its record and at one that does not.
    fn image(id: u64) -> Vec<u8> {
        let mut image = vec![b'x'; (id * 7 % 61) as usize];
        for at in [0, 4, 8, 21] {
            if id.is_multiple_of(3) && at <= image.len() {
                image.splice(at..at, MAGIC);
            }
        }
        image
    }

    fn file(name: &str, ids: Range<u64>) -> ByteSource {
        let (mut bytes, mut record) = (Vec::new(), Vec::new());
        for id in ids {
            image_record::write(id, &[id as f32], &image(id), &mut record);
            record_io::write_record(&record, &mut bytes).expect("an in-memory write succeeds");
        }
        ByteSource::from_memory(Path::new(name), bytes)
    }

    fn ids_of(files: &RecordFiles, part: Shard, image: fn(u64) -> Vec<u8>) -> Vec<u64> {
        let mut stream = files.stream(part).expect("a part");
        let (mut item, mut ids) = (Item::default(), Vec::new());
        while stream.next(&mut item).expect("read").is_some() {
            assert_eq!((item.labels.as_slice(), item.bytes()), (&[item.id as f32][..], image(item.id).as_slice()));
            ids.push(item.id);
        }
        ids
    }

    #[test]
    fn parts_cover_every_record_once() {
        let one = RecordFiles::from_sources(vec![file("a.rec", 0..97)]);
        let several =
            RecordFiles::from_sources(vec![file("a.rec", 0..40), file("b.rec", 40..41), file("c.rec", 41..97)]);
        for files in [one, several] {
            for count in [1, 3, 4, 7, 50, 200, 2000] {
                let mut all = Vec::new();
                let mut sizes = Vec::new();
                for index in 0..count {
                    let part = ids_of(&files, Shard::new(index, count).expect("a part"), image);
                    sizes.push(part.len());
                    all.extend(part);
                }
                assert!(all.iter().copied().eq(0..97), "{count} parts: {all:?}");
                assert!(count > 7 || sizes.iter().all(|size| *size > 0), "{sizes:?}");
            }
        }
    }

    #[test]
    fn part_is_counted_and_restarted_anywhere() {
        let files = RecordFiles::from_sources(vec![file("a.rec", 0..40), file("b.rec", 40..41), file("c.rec", 41..97)]);
        for count in [1, 3, 200] {
            let mut all = 0;
            for part in (0..count).map(|index| Shard::new(index, count).expect("a part")) {
                let ids = ids_of(&files, part, image);
                let mut stream = files.stream(part).expect("a part");
                assert_eq!(stream.count().expect("sound"), ids.len() as u64);
                let mut item = Item::default();
                for start in 0..=ids.len() {
                    stream.restart(start as u64).expect("there");
                    let mut found = Vec::new();
                    // Some passes stop before the end, to test restarting from the middle.
                    while found.len() < 50 && stream.next(&mut item).expect("read").is_some() {
                        found.push(item.id);
                    }
                    assert_eq!(found, ids[start..(start + 50).min(ids.len())]);
                }
                assert!(stream.restart(ids.len() as u64 + 1).is_err());
                all += ids.len();
            }
            assert_eq!(all, 97);
        }
    }

    #[test]
    fn parts_end_as_in_dmlc_core() {
        // Records of 40 bytes. Three parts of 120 bytes have 40 bytes each, so the second starts exactly there; four
        // parts have 32, so both ends are moved.
        let (mut bytes, mut record) = (Vec::new(), Vec::new());
        for id in 0..3 {
            image_record::write(id, &[id as f32], b"12345678", &mut record);
            record_io::write_record(&record, &mut bytes).expect("an in-memory write succeeds");
        }
        assert_eq!(bytes.len(), 120);
        let files = RecordFiles::from_sources(vec![ByteSource::from_memory(Path::new("a.rec"), bytes)]);
        let parts = |count| -> Vec<Vec<u64>> {
            let part = |index| ids_of(&files, Shard::new(index, count).expect("a part"), |_| b"12345678".to_vec());
            (0..count).map(part).collect()
        };
        assert_eq!(parts(3), [[0], [1], [2]]);
        assert_eq!(parts(4), [vec![0], vec![1], vec![2], vec![]]);
        assert_eq!(parts(2), [vec![0, 1], vec![2]]);
    }
}

//! `.rec` files as one dataset: by number where each has its `.idx`, otherwise one behind the other, in parts by bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use ringmark_core::dimension::ImageLimits;

use crate::byte_source::ByteSource;
use crate::dataset::item::{Form, Item};
use crate::format::image_record::ImageRecord;
use crate::format::index_file;
use crate::format::record_io::{self, Record, RecordHeads, RecordReader};
use crate::location::Position;
use crate::shard::Part;

/// Files in the order in which they were named.
#[derive(Debug)]
pub struct RecordFiles {
    files: Vec<Arc<ByteSource>>,
    /// Where each record begins, where every file has an index.
    index: Option<Vec<Located>>,
    limits: ImageLimits,
}

/// A record by its index.
#[derive(Debug, Clone, Copy)]
struct Located {
    file: u32,
    key: u64,
    offset: u64,
}

/// The index that belongs to a `.rec` file: `train.idx` beside `train.rec`.
pub fn index_of(file: &Path) -> PathBuf {
    file.with_extension("idx")
}

impl RecordFiles {
    /// Opens them, and their indices; one that is missing where another is there is an error.
    pub fn open(paths: &[PathBuf], limits: ImageLimits) -> Result<RecordFiles> {
        let open = |path: &PathBuf| record_io::open(path).map(Arc::new);
        let files: Vec<Arc<ByteSource>> = paths.iter().map(open).collect::<Result<_>>()?;
        let with = paths.iter().find(|path| index_of(path).exists());
        let without = paths.iter().find(|path| !index_of(path).exists());
        let index = match (with, without) {
            (Some(with), Some(without)) => anyhow::bail!(
                "{} has an index ({}), {} has none: make {}, or take the others away",
                with.display(),
                index_of(with).display(),
                without.display(),
                index_of(without).display()
            ),
            (Some(_), None) => Some(read_indices(&files)?),
            (None, _) => None,
        };
        Ok(RecordFiles { files, index, limits })
    }

    /// Files of bytes that are in memory, without an index.
    #[cfg(test)]
    fn of(files: Vec<ByteSource>) -> RecordFiles {
        RecordFiles { files: files.into_iter().map(Arc::new).collect(), index: None, limits: ImageLimits::default() }
    }

    /// Records, where an index says it.
    pub fn length(&self) -> Option<u64> {
        self.index.as_ref().map(|index| index.len() as u64)
    }

    /// Of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.length()).sum()
    }

    /// Where they lie.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.name())
    }

    /// How many they are.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Reads record `number` by the index.
    pub fn read(&self, number: u64, item: &mut Item) -> Result<()> {
        let index = self.index.as_ref().with_context(|| {
            let file = self.files[0].name();
            format!(
                "{} has no index, so no record can be read by its number: make {}",
                file.display(),
                index_of(file).display()
            )
        })?;
        let place = usize::try_from(number).ok().filter(|place| *place < index.len());
        let place = place.with_context(|| format!("there is no record {number}, but {}", index.len()))?;
        let Located { file, key, offset } = index[place];
        let source = &self.files[file as usize];
        let next = index.get(place + 1).filter(|next| next.file == file).map_or(source.length(), |next| next.offset);
        let Item { buffer, .. } = item;
        source.ensure_not_shortened()?;
        let range = record_io::read_record(source, offset, next - offset, &self.limits, buffer)
            .with_context(|| format!("key {key} of {}", index_of(source.name()).display()))?;
        take(item, source, offset, range)
    }

    /// The records of a part by bytes, one after the other.
    pub fn stream(&self, part: Part) -> Result<RecordStream> {
        let Range { start, end } = part.of_bytes(self.bytes());
        let (start, end) = (self.next_start(start)?, self.next_start(end)?);
        let mut all = Vec::new();
        let mut begin = 0;
        for file in &self.files {
            let range =
                start.clamp(begin, begin + file.length()) - begin..end.clamp(begin, begin + file.length()) - begin;
            if !range.is_empty() {
                all.push(Span { file: file.clone(), begin, range });
            }
            begin += file.length();
        }
        let mut stream = RecordStream { all, rest: Vec::new(), now: None, limits: self.limits };
        stream.restart(0)?;
        Ok(stream)
    }

    /// Where the next record begins at or behind a byte of all files, one behind the other; a file's end is the next one's
    /// beginning.
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

fn read_indices(files: &[Arc<ByteSource>]) -> Result<Vec<Located>> {
    let mut index = Vec::new();
    for (file, source) in (0..).zip(files) {
        let entries = index_file::read(&index_of(source.name()), source.length())?;
        index.extend(entries.into_iter().map(|entry| Located { file, key: entry.key, offset: entry.offset }));
    }
    Ok(index)
}

/// Makes an item of the record that lies in `range` of its buffer.
fn take(item: &mut Item, source: &ByteSource, offset: u64, range: Range<usize>) -> Result<()> {
    let Item { buffer, labels, .. } = item;
    let record = ImageRecord::parse(&buffer[range.clone()]).with_context(|| source.location(offset).to_string())?;
    record.labels_into(labels);
    let (id, size) = (record.id, record.image.len());
    item.id = id;
    item.content = range.end - size..range.end;
    item.form = Form::Encoded;
    item.location.set(source.name(), Position::Byte(offset));
    Ok(())
}

/// Records of a part, file after file, as often as it is restarted.
#[derive(Debug)]
pub struct RecordStream {
    all: Vec<Span>,
    /// The next file is the last one here.
    rest: Vec<Span>,
    /// With where its file begins in all of them.
    now: Option<(u64, RecordReader<Arc<ByteSource>>)>,
    limits: ImageLimits,
}

/// What a part has of a file.
#[derive(Debug, Clone)]
struct Span {
    file: Arc<ByteSource>,
    /// Bytes of the files before it.
    begin: u64,
    /// From the beginning of a record to that of another.
    range: Range<u64>,
}

impl RecordStream {
    /// Reads the next record; where it begins in all files, one behind the other, or `None` behind the last.
    pub fn next(&mut self, item: &mut Item) -> Result<Option<u64>> {
        loop {
            if let Some((_, reader)) = &self.now {
                // Its buffer may hold records that are not there any more.
                reader.source().ensure_not_shortened()?;
            }
            if let Some((begin, reader)) = &mut self.now
                && let Some(Record { offset, bytes }) = reader.next_record()?
            {
                item.buffer.clear();
                item.buffer.extend_from_slice(bytes);
                let range = 0..bytes.len();
                let begin = *begin + offset;
                return take(item, reader.source(), offset, range).map(|()| Some(begin));
            }
            let Some(Span { file, begin, range }) = self.rest.pop() else { return Ok(None) };
            // The buffer of a file that ended serves the next one.
            let reader = match self.now.take() {
                Some((_, reader)) => reader.on(file, range),
                None => RecordReader::new(file, range, self.limits),
            };
            self.now = Some((begin, reader));
        }
    }

    /// Goes to record `number` of the part, by the heads of those before it.
    pub fn restart(&mut self, number: u64) -> Result<()> {
        self.rest.clone_from(&self.all);
        self.rest.reverse();
        if let Some((_, reader)) = &mut self.now {
            reader.end();
        }
        let mut before = number;
        while before > 0 {
            let span = self.rest.last_mut().with_context(|| format!("a part has no record {number}"))?;
            let mut heads = RecordHeads::new(&span.file, span.range.clone());
            while before > 0 && heads.pass()? {
                before -= 1;
            }
            span.range.start = heads.offset();
            if span.range.is_empty() {
                self.rest.pop();
            }
        }
        Ok(())
    }

    /// How many there are, by their heads: each is whole then, as far as they say.
    pub fn count(&self) -> Result<u64> {
        let mut count = 0;
        for Span { file, range, .. } in &self.all {
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

    /// Of every third image the magic is in it, at places that split its record and at one that does not.
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
            record_io::write_record(&record, &mut bytes).expect("memory takes it");
        }
        ByteSource::of_memory(Path::new(name), bytes)
    }

    fn ids_of(files: &RecordFiles, part: Part, image: fn(u64) -> Vec<u8>) -> Vec<u64> {
        let mut stream = files.stream(part).expect("a part");
        let (mut item, mut ids) = (Item::default(), Vec::new());
        while stream.next(&mut item).expect("read").is_some() {
            assert_eq!((item.labels.as_slice(), item.bytes()), (&[item.id as f32][..], image(item.id).as_slice()));
            ids.push(item.id);
        }
        ids
    }

    #[test]
    fn every_record_comes_exactly_once_over_all_parts() {
        let one = RecordFiles::of(vec![file("a.rec", 0..97)]);
        let several = RecordFiles::of(vec![file("a.rec", 0..40), file("b.rec", 40..41), file("c.rec", 41..97)]);
        for files in [one, several] {
            for count in [1, 3, 4, 7, 50, 200, 2000] {
                let mut all = Vec::new();
                let mut sizes = Vec::new();
                for index in 0..count {
                    let part = ids_of(&files, Part::new(index, count).expect("a part"), image);
                    sizes.push(part.len());
                    all.extend(part);
                }
                assert!(all.iter().copied().eq(0..97), "{count} parts: {all:?}");
                assert!(count > 7 || sizes.iter().all(|size| *size > 0), "{sizes:?}");
            }
        }
    }

    #[test]
    fn a_part_is_counted_and_begun_anywhere() {
        let files = RecordFiles::of(vec![file("a.rec", 0..40), file("b.rec", 40..41), file("c.rec", 41..97)]);
        for count in [1, 3, 200] {
            let mut all = 0;
            for part in (0..count).map(|index| Part::new(index, count).expect("a part")) {
                let ids = ids_of(&files, part, image);
                let mut stream = files.stream(part).expect("a part");
                assert_eq!(stream.count().expect("sound"), ids.len() as u64);
                let mut item = Item::default();
                for start in 0..=ids.len() {
                    stream.restart(start as u64).expect("there");
                    let mut found = Vec::new();
                    // Not always to its end, from which it is begun again as well.
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
    fn a_part_ends_where_dmlc_core_s_does() {
        // Records of 40 bytes: parts of 120 bytes in 3 are 40, which is where the second begins; in 4 parts they are 32, so
        // that both ends move on.
        let (mut bytes, mut record) = (Vec::new(), Vec::new());
        for id in 0..3 {
            image_record::write(id, &[id as f32], b"12345678", &mut record);
            record_io::write_record(&record, &mut bytes).expect("memory takes it");
        }
        assert_eq!(bytes.len(), 120);
        let files = RecordFiles::of(vec![ByteSource::of_memory(Path::new("a.rec"), bytes)]);
        let parts = |count| -> Vec<Vec<u64>> {
            let part = |index| ids_of(&files, Part::new(index, count).expect("a part"), |_| b"12345678".to_vec());
            (0..count).map(part).collect()
        };
        assert_eq!(parts(3), [[0], [1], [2]]);
        assert_eq!(parts(4), [vec![0], vec![1], vec![2], vec![]]);
        assert_eq!(parts(2), [vec![0, 1], vec![2]]);
    }
}

//! Order of the records in the steps, for data that can only be read sequentially. Pure except for counting records.
//!
//! Parts are split by bytes, as in dmlc-core, so ranks have different numbers of records. Each rank counts its own
//! once, by their headers. On every rank, an epoch has as many steps as the longest part needs; a shorter part
//! continues from its own start. So every record counts exactly once per epoch, whatever the number of ranks.

use anyhow::{Context, Result, ensure};

use crate::dataset::Dataset;
use crate::dataset::item::Item;
use crate::dataset::record_files::RecordStream;
use crate::loader::order::SampleIndex;
use crate::shard::Shard;

/// A rank's part, and how its records are divided into steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequentialOrder {
    part: Shard,
    records: u64,
    samples: u64,
    steps: u64,
}

impl SequentialOrder {
    /// Counts the records of `part`, and divides them into steps of `samples`. An epoch has as many steps as this part
    /// needs, unless changed by [`with_steps`](Self::with_steps).
    ///
    /// # Errors
    ///
    /// Fails if a record's header is damaged or the last record is cut off (with file and offset), if the part has no
    /// record, or if the data can be read by number.
    pub fn new(dataset: &Dataset, part: Shard, samples: u64) -> Result<SequentialOrder> {
        ensure!(samples > 0, "a step without images reads nothing");
        let records = dataset.records(part)?.count()?;
        ensure!(
            records > 0,
            "{part} of {} has no record: start fewer ranks, or create an index for each file, so that single records \
             are distributed",
            dataset.description()
        );
        Ok(SequentialOrder { part, records, samples, steps: records.div_ceil(samples) })
    }

    /// Sets the number of steps that the longest part needs, for use by all ranks.
    ///
    /// # Errors
    ///
    /// Fails if it is less than this part needs.
    pub fn with_steps(self, steps: u64) -> Result<SequentialOrder> {
        ensure!(
            steps >= self.steps,
            "{steps} steps per epoch, but {} needs {} for its {} records: use the largest number of all ranks",
            self.part,
            self.steps,
            self.records
        );
        Ok(SequentialOrder { steps, ..self })
    }

    /// Repeats the records of the first `steps` steps: a data set that is partly in memory.
    pub fn repeating(self, steps: u64) -> SequentialOrder {
        let steps = steps.clamp(1, self.steps);
        SequentialOrder { steps, records: self.records.min(steps * self.samples), ..self }
    }

    /// Returns the steps per epoch.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of records of the part.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of images per step.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the number of images in a step that count: the rest only fill it up. Each record counts once per epoch.
    pub fn batch_samples(&self, step: u64) -> u64 {
        self.records.saturating_sub(step % self.steps * self.samples).min(self.samples)
    }

    /// Returns the stream of records, positioned at the first image of `step`, which is counted over all epochs.
    pub(super) fn stream(&self, dataset: &Dataset, step: u64) -> Result<RecordStream> {
        let mut stream = dataset.records(self.part)?;
        stream.restart(self.record(step, 0))?;
        Ok(stream)
    }

    fn record(&self, step: u64, slot: u64) -> u64 {
        (step % self.steps * self.samples + slot) % self.records
    }

    /// Reads image `slot` of `step` from a stream that has returned all images before it. The item drawn is the
    /// record's offset in all files, which does not depend on the number of ranks.
    pub(super) fn read(&self, stream: &mut RecordStream, step: u64, slot: u64, item: &mut Item) -> Result<SampleIndex> {
        let record = self.record(step, slot);
        if record == 0 {
            stream.restart(0)?;
        }
        let place = stream.next(item)?.with_context(|| {
            format!(
                "{} ends at record {record} of {}: its files were changed while being read",
                self.part, self.records
            )
        })?;
        Ok(SampleIndex { epoch: step / self.steps, item: place })
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing;

    #[test]
    fn steps_follow_the_longest_part() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rec");
        testing::write_records(&path, (0..7).map(|id| (id, vec![7; 100])), false);
        let dataset = Dataset::open(std::slice::from_ref(&path)).expect("opened");
        let orders = [0, 1, 2]
            .map(|index| SequentialOrder::new(&dataset, Shard::new(index, 3).expect("a part"), 2).expect("records"));
        assert_eq!(orders.map(|order| (order.records(), order.steps())), [(3, 2), (2, 1), (2, 1)]);
        let steps = orders.iter().map(SequentialOrder::steps).max().expect("three");
        let counted = orders.map(|order| {
            let order = order.with_steps(steps).expect("as many as the most");
            [0, 1, 2, 3].map(|step| order.batch_samples(step))
        });
        assert_eq!(counted, [[2, 1, 2, 1], [2, 0, 2, 0], [2, 0, 2, 0]]);
        // Records 0 and 1, then 2 and 0 again; when repeating a single step, only 0 and 1.
        let places =
            |order: &SequentialOrder| -> Vec<u64> { (0..6).map(|image| order.record(image / 2, image % 2)).collect() };
        assert_eq!(places(&orders[0]), [0, 1, 2, 0, 0, 1]);
        assert_eq!(places(&orders[0].repeating(1)), [0, 1, 0, 1, 0, 1]);
        assert_eq!(orders[0].repeating(5), orders[0]);
        let error = orders[0].with_steps(1).expect_err("too few").to_string();
        expect!["1 steps per epoch, but part 0 of 3 needs 2 for its 3 records: use the largest number of all ranks"]
            .assert_eq(&error);
        let error = SequentialOrder::new(&dataset, Shard::new(8, 9).expect("a part"), 2).expect_err("none").to_string();
        expect![
            "part 8 of 9 of 1 RecordIO file without index has no record: start fewer ranks, or create an index \
                 for each file, so that single records are distributed"
        ]
        .assert_eq(&error);
        std::fs::write(path.with_extension("idx"), "0\t0\n").expect("written");
        let dataset = Dataset::open(&[path]).expect("opened");
        let error = SequentialOrder::new(&dataset, Shard::WHOLE, 2).expect_err("by number").to_string();
        expect!["1 RecordIO file with index can be read by number: use an order of training"].assert_eq(&error);
    }
}

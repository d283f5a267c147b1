//! The record of an input run: one JSON document with the time of every batch on every host. Writer and parser, and the
//! selection of a host's best pass.

use anyhow::{bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::document_record::document_record;
use crate::benchmark::input::config::{InputConfig, PageCache};
use crate::benchmark::input::pass::{HostPass, InputPass};
use crate::dimension::{Augmentation, UnitsPerSecond};

document_record!(
    /// Record of a whole run.
    InputRecord, kind: "ringmark-input", schema: 1, title: "input record",
    iterations: |record| record.passes.len() as u32 => {
        config: InputConfig,
        setup {}
        /// Ranks, one per host.
        ranks,
        results {
            /// Usable cores of each host, by rank.
            cores: Vec<u32>,
            /// Description of the data: `2 RecordIO files with index`.
            what: String,
            /// Number of images in the data.
            items: u64,
            /// Statistics of the stored images; `None` for arrays of pixels.
            stored: Option<StoredImages>,
            /// Augmentation of each image.
            augmentation: Augmentation,
            /// Library that decoded JPEG, with its version; `None` for arrays of pixels.
            decoder: Option<String>,
            /// Passes in the order they ran.
            passes: Vec<InputPass>,
        }
        /// Resource use of every host during the run.
        host_use,
        /// Resource use of every rank during the run.
        rank_use,
        /// Warnings about the figures.
        warnings,
        end {}
    }
);

/// Stored images: means over an evenly spaced sample.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoredImages {
    /// Number of sampled images.
    #[serde(alias = "looked_at")]
    pub sampled: u64,
    /// Bytes per image.
    pub bytes: f64,
    /// Pixels per image.
    pub pixels: f64,
    /// Pixels of the shorter edge.
    pub shorter_edge: f64,
    /// Ratio of the longer edge to the shorter.
    pub aspect: f64,
}

/// One pass of a host and its speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling<'a> {
    /// Number of decoding threads.
    pub threads: u32,
    /// Speed of the host.
    pub speed: UnitsPerSecond,
    /// Measurements of the host in this pass.
    pub pass: &'a HostPass,
}

impl InputRecord {
    /// Returns the passes of host `rank` that really ran with the requested page cache.
    pub fn passes_of(&self, rank: usize, cache: PageCache) -> impl Iterator<Item = Ceiling<'_>> {
        let passes = self.passes.iter().filter(move |pass| pass.cache == cache);
        passes.filter_map(move |InputPass { threads, hosts, .. }| {
            let pass = hosts.get(rank).filter(|host| host.cache() == Some(cache))?;
            Some(Ceiling { threads: *threads, speed: pass.speed(self.config.batch_size)?, pass })
        })
    }

    /// Returns the fastest pass of host `rank`; `None` if no pass ran with this page cache.
    pub fn ceiling(&self, rank: usize, cache: PageCache) -> Option<Ceiling<'_>> {
        self.passes_of(rank, cache).max_by(|one, other| one.speed.0.total_cmp(&other.speed.0))
    }

    /// Returns the warm pass of host `rank` with the most threads that do not exceed its cores, or otherwise the one
    /// with the fewest threads. The second value is the speed per core: the speed divided by the smaller of threads and
    /// cores.
    pub fn busiest(&self, rank: usize) -> Option<(Ceiling<'_>, UnitsPerSecond)> {
        let cores = *self.cores.get(rank)?;
        let within = |ceiling: &Ceiling| ceiling.threads <= cores;
        let most = self.passes_of(rank, PageCache::Warm).filter(within).max_by_key(|ceiling| ceiling.threads);
        let least = || self.passes_of(rank, PageCache::Warm).min_by_key(|ceiling| ceiling.threads);
        let ceiling = most.or_else(least)?;
        Some((ceiling, UnitsPerSecond(ceiling.speed.0 / f64::from(ceiling.threads.min(cores).max(1)))))
    }

    fn check_results(&self) -> anyhow::Result<()> {
        let ranks = self.ranks.len();
        ensure!(self.cores.len() == ranks, "cores of {} hosts, expected {ranks}", self.cores.len());
        for InputPass { cache, threads, hosts } in &self.passes {
            ensure!(hosts.len() == ranks, "{cache} with {threads} threads: {} hosts, expected {ranks}", hosts.len());
            if let Some(time) = hosts.iter().flat_map(|host| &host.batches).find(|time| !time.is_duration()) {
                bail!("{cache} with {threads} threads: invalid batch time {time}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::benchmark::Record;
    use crate::dimension::{Bytes, Seconds};
    use crate::host::{Environment, RankPlace};

    /// Returns a pass of one batch: 128 images of 100 kB at this rate, read from disk or from memory.
    pub(crate) fn host_pass(speed: f64, from_disk: bool) -> HostPass {
        HostPass {
            batches: vec![Seconds(128.0 / speed)],
            images: 128,
            bytes: Bytes(12_800_000),
            from_disk: Some(Bytes(if from_disk { 12_800_000 } else { 0 })),
            read: Seconds(0.0128),
            decode: Seconds(0.256),
            augment: Seconds(0.064),
            collate: Seconds(0.000_128),
            ..HostPass::default()
        }
    }

    /// Returns a record with a host of 4 cores for each list of speeds: warm passes with 1, 2, 4, .. threads and a cold
    /// pass with 4 threads at the last speed.
    pub(crate) fn record(hosts: &[(&str, &[f64], f64)]) -> InputRecord {
        let warm = |power: usize| InputPass {
            cache: PageCache::Warm,
            threads: 1 << power,
            hosts: hosts.iter().map(|(_, speeds, _)| host_pass(speeds[power], false)).collect(),
        };
        let cold = InputPass {
            cache: PageCache::Cold,
            threads: 4,
            hosts: hosts.iter().map(|(.., cold)| host_pass(*cold, true)).collect(),
        };
        InputRecord {
            cores: vec![4; hosts.len()],
            what: "1 RecordIO file with index".to_owned(),
            items: 10_000,
            stored: Some(StoredImages {
                sampled: 128,
                bytes: 1e5,
                pixels: 187_500.0,
                shorter_edge: 375.0,
                aspect: 4.0 / 3.0,
            }),
            augmentation: Augmentation::Imagenet,
            decoder: Some("zune-jpeg 0.5".to_owned()),
            passes: std::iter::once(cold).chain((0..hosts[0].1.len()).map(warm)).collect(),
            ..InputRecord::new(
                Seconds(1.5),
                InputConfig { data: Some("a.rec".to_owned()).into(), ..InputConfig::default() },
                Environment::default(),
                (0..).zip(hosts).map(|(rank, (host, ..))| RankPlace::on_cpu(rank, 0, host)).collect(),
            )
        }
    }

    fn text(record: &InputRecord) -> String {
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("an in-memory write succeeds");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    #[test]
    fn record_round_trips_and_damage_is_named() {
        let record = record(&[("a", &[250.0], 100.0), ("b", &[250.0], 100.0)]);
        assert_eq!(InputRecord::read(text(&record).as_bytes()).expect("sound"), record);
        let error =
            |record: &InputRecord| format!("{:#}", InputRecord::read(text(record).as_bytes()).expect_err("refused"));
        let mut short = record.clone();
        short.passes[1].hosts.pop();
        assert_eq!(error(&short), "warm with 1 threads: 1 hosts, expected 2");
        let mut negative = record.clone();
        negative.passes[0].hosts[1].batches[0] = Seconds(-1.0);
        assert!(error(&negative).contains("invalid batch time -1 s"));
        assert!(error(&InputRecord { cores: vec![4], ..record }).contains("cores of 1 hosts, expected 2"));
    }

    #[test]
    fn ceiling_is_the_fastest_valid_pass_of_a_host() {
        let mut record = record(&[("a", &[250.0, 480.0, 900.0, 850.0], 300.0)]);
        let warm = record.ceiling(0, PageCache::Warm).expect("warm passes");
        assert_eq!((warm.threads, warm.speed), (4, UnitsPerSecond(900.0)));
        let (busiest, of_a_core) = record.busiest(0).expect("warm passes");
        assert_eq!((busiest.threads, of_a_core), (4, UnitsPerSecond(225.0)));
        assert_eq!(record.ceiling(0, PageCache::Cold).map(|cold| cold.speed), Some(UnitsPerSecond(300.0)));
        // With 8 threads on 4 cores, the speed per core is a quarter.
        record.passes.retain(|pass| pass.threads == 8);
        let (_, UnitsPerSecond(of_a_core)) = record.busiest(0).expect("warm passes");
        assert!((of_a_core - 850.0 / 4.0).abs() < 1e-9, "{of_a_core}");
        // A pass that was requested as cold but was not has no ceiling.
        record.passes[0].cache = PageCache::Cold;
        assert_eq!((record.ceiling(0, PageCache::Cold), record.busiest(0)), (None, None));
    }
}

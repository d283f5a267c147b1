//! Checks if hosts read and decode as many images as their devices need, and computes what would help if not. No I/O.
//!
//! The ceiling of a host is its fastest pass from memory. The images/s per core come from the pass with as many threads
//! as cores.
//!
//! - **More cores**: `ceil((need - ceiling) / images/s per core)`. This is valid while cores scale linearly; if the
//!   last threads of the table add little (memory, hyperthreads), more are needed.
//! - **Smaller stored images**: let `T = 1 / images/s per core` be the core time of an image, `d` the decoding part of
//!   it, and `T' = T x ceiling of those cores / need` the available time. Decoding may then take `d' = d - (T - T')`.
//!   Decoding time is roughly proportional to pixels, so stored images may have `pixels x d' / d`, and a shorter edge
//!   of `sqrt(pixels x d' / d / aspect)`, rounded down to a multiple of 8, the edge of a JPEG block. The times for
//!   reading and augmenting are assumed to stay the same although both shrink, so the size is conservative. If JPEG is
//!   decoded at a reduced scale, the time is not proportional and no size is given. A size below the network's input
//!   size is not given either.

use ringmark_core::benchmark::input::{Ceiling, InputRecord, PageCache};
use ringmark_core::dimension::{Scaling, UnitsPerSecond};
use ringmark_core::number_text::{marked, plural, thousands};
use ringmark_core::validity::disturbance;

use crate::read::benchmark::input::demand::{Basis, Demand};

/// Ratio of disk to memory speed below which the disk is the limit.
const AS_FAST: f64 = 0.95;

/// Relative difference below which two rates are considered equal, because they were measured on different days.
const TOLERANCE: f64 = 0.1;

/// Smallest number of batches of a pass that allows a verdict: the times of single batches vary with the images and with
/// prefetching.
const BATCHES: usize = 2;

/// Edge of a JPEG block in pixels.
const BLOCK: f64 = 8.0;

/// Capacity of the slowest host compared with the demand of its devices; at least one field is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Result for images in memory; `None` if no pass was from memory.
    pub memory: Option<FromMemory>,
    /// Result for images on disk; `None` if no pass was from the disk.
    pub disk: Option<FromDisk>,
}

/// Comparison of the demand with images that are in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct FromMemory {
    /// Name of the host.
    pub host: String,
    /// Fastest pass of the host.
    pub ceiling: UnitsPerSecond,
    /// Number of cores that the host has.
    pub cores: u32,
    /// Number of cores that it needs.
    pub cores_needed: CoresNeeded,
}

/// Cores needed for the demand of the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoresNeeded {
    /// Number of existing cores that are sufficient.
    Enough(u32),
    /// The existing cores are not sufficient.
    More {
        /// Number of additional cores.
        cores: u32,
        /// Alternative to more cores: the shorter edge of stored images in pixels. `None` if no size is sufficient or
        /// none is known.
        stored_edge: Option<u32>,
    },
}

/// Comparison of the demand with images that are only on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct FromDisk {
    /// Name of the host.
    pub host: String,
    /// Fastest pass of the host.
    pub ceiling: UnitsPerSecond,
    /// Rate of stored bytes at this ceiling.
    pub megabytes_per_second: f64,
    /// Rate of stored bytes that the devices need.
    pub needed_megabytes_per_second: f64,
    /// True if the disk is the limit and not the cores.
    pub is_disk: bool,
}

/// Compares a record with a demand; an error contains the reason why that is not possible.
pub fn verdict(record: &InputRecord, demand: &Demand) -> Result<Verdict, String> {
    let (own, size) = (record.config.image_size(), demand.image_size);
    if own != size {
        return Err(format!("trained with images of {size} px, but these have {own}: repeat with --image-size {size}"));
    }
    let lowest = |cache: PageCache| {
        let of_host = |rank: usize| record.ceiling(rank, cache).map(|ceiling| (rank, ceiling));
        let ceilings = (0..record.ranks.len()).filter_map(of_host);
        ceilings.min_by(|(_, one), (_, other)| one.speed.0.total_cmp(&other.speed.0))
    };
    let found = [PageCache::Warm, PageCache::Cold].map(lowest);
    let most = found.iter().flatten().map(|(_, ceiling)| ceiling.pass.batches.len()).max();
    if let Some(most) = most.filter(|most| *most < BATCHES) {
        return Err(format!(
            "a verdict needs {BATCHES} batches, but every pass measured {most}: repeat with --batches 20, or with a smaller \
             --batch-size"
        ));
    }
    let [memory, disk] = found.map(|found| found.filter(|(_, ceiling)| ceiling.pass.batches.len() >= BATCHES));
    let memory = memory.and_then(|(rank, ceiling)| from_memory(record, rank, &ceiling, demand));
    let disk = disk.map(|(rank, ceiling)| from_disk(record, rank, &ceiling, demand));
    if memory.is_none() && disk.is_none() {
        return Err("no pass read only from memory or only from disk, so the ceiling is unknown".to_owned());
    }
    if let (Basis::OneDevice { case, .. }, Some(FromMemory { ceiling, .. })) = (&demand.basis, &memory)
        && demand.per_device().0 > ceiling.0 * (1.0 - TOLERANCE)
    {
        return Err(format!(
            "{case} itself trained at {} images/s per device, the same as the input rate ({}): the demand of a device \
             is unknown; repeat {case} with synthetic images",
            thousands(demand.per_device().0, ','),
            thousands(ceiling.0, ',')
        ));
    }
    Ok(Verdict { memory, disk })
}

/// Returns the verdict as sentences.
pub fn lines(record: &InputRecord, demand: &Demand) -> Vec<String> {
    let shown = match verdict(record, demand) {
        Err(why) => vec![why],
        Ok(verdict) => {
            let several = record.ranks.len() > 1;
            let memory = verdict.memory.map(|memory| memory.text(demand, several));
            memory.into_iter().chain(verdict.disk.map(|disk| disk.text(demand, several))).collect()
        }
    };
    let is_disturbed = disturbance(record).is_some();
    shown.into_iter().map(|line| format!("{}: {}", demand.label, marked(line, is_disturbed))).collect()
}

/// Returns the name of the host if there are several.
fn name(host: &str, several: bool) -> String {
    if several { format!(" (slowest host: {host})") } else { String::new() }
}

fn from_memory(record: &InputRecord, rank: usize, ceiling: &Ceiling, demand: &Demand) -> Option<FromMemory> {
    let (busiest, of_a_core) = record.busiest(rank)?;
    let cores = *record.cores.get(rank)?;
    let cores_needed = if ceiling.speed >= demand.speed {
        CoresNeeded::Enough(((demand.speed.0 / of_a_core.0).ceil() as u32).clamp(1, cores))
    } else {
        let more = ((demand.speed.0 - ceiling.speed.0) / of_a_core.0).ceil();
        CoresNeeded::More { cores: more as u32, stored_edge: stored_edge(record, &busiest, cores, demand) }
    };
    Some(FromMemory { host: record.ranks[rank].host.clone(), ceiling: ceiling.speed, cores, cores_needed })
}

/// Returns the shorter edge in pixels at which stored images are decoded fast enough; `None` if there is none, or if it
/// is unknown.
fn stored_edge(record: &InputRecord, busiest: &Ceiling, cores: u32, demand: &Demand) -> Option<u32> {
    let stored = record.stored?;
    if record.config.images.decode_scaling != Scaling::Off {
        return None;
    }
    let used = f64::from(busiest.threads.min(cores));
    let [_, decode, ..] = busiest.pass.stages();
    // With more threads than cores, wall-clock time is longer than core time.
    let decode = decode * used / f64::from(busiest.threads);
    let (takes, may_take) = (used / busiest.speed.0, used / demand.speed.0);
    let left = (decode - (takes - may_take)) / decode;
    let edge = (stored.pixels * left / stored.aspect).sqrt();
    let edge = (edge / BLOCK).floor() * BLOCK;
    // NaN if no time is left for decoding.
    (edge >= f64::from(record.config.image_size())).then_some(edge as u32)
}

impl FromMemory {
    fn text(&self, demand: &Demand, several: bool) -> String {
        format!(
            "input ceiling {} images/s per host{}: {}; {}",
            thousands(self.ceiling.0, ','),
            name(&self.host, several),
            demand.text(),
            self.judgment(demand)
        )
    }

    /// Returns a text such as `18 more cores or images stored at 256 px`, with the training speed of devices that read
    /// images.
    pub fn judgment(&self, demand: &Demand) -> String {
        let needed = match self.cores_needed {
            CoresNeeded::Enough(needed) => format!("enough: {needed} of {} cores", self.cores),
            CoresNeeded::More { cores, stored_edge } => {
                let smaller = stored_edge.map(|edge| format!(" or images stored at {edge} px")).unwrap_or_default();
                format!("{} more core{}{smaller}", thousands(f64::from(cores), ','), plural(cores))
            }
        };
        needed + &self.reached(demand)
    }

    /// Returns the training speed of devices that read images.
    fn reached(&self, demand: &Demand) -> String {
        let Basis::OneDevice { trained, .. } = demand.basis else { return String::new() };
        let speed = thousands(trained.0, ',');
        let of_ceiling = trained.0 / self.ceiling.0;
        let why = match self.cores_needed {
            CoresNeeded::Enough(_) if trained.0 > demand.speed.0 * (1.0 - TOLERANCE) => return String::new(),
            CoresNeeded::Enough(_) => "not limited by the input",
            CoresNeeded::More { .. } if of_ceiling < 1.0 - TOLERANCE => {
                "below the input rate: another bottleneck also limited them"
            }
            CoresNeeded::More { .. } if of_ceiling > 1.0 + TOLERANCE => {
                "above the input rate: they used other hosts or images"
            }
            CoresNeeded::More { .. } => "equal to the input rate: the input was the limit",
        };
        format!("; they trained at {speed}, {why}")
    }
}

fn from_disk(record: &InputRecord, rank: usize, ceiling: &Ceiling, demand: &Demand) -> FromDisk {
    let rate = ceiling.pass.megabytes_per_second().unwrap_or_default();
    let warm = record.ceiling(rank, PageCache::Warm);
    FromDisk {
        host: record.ranks[rank].host.clone(),
        ceiling: ceiling.speed,
        megabytes_per_second: rate,
        needed_megabytes_per_second: rate * demand.speed.0 / ceiling.speed.0,
        is_disk: warm.is_none_or(|warm| ceiling.speed.0 < AS_FAST * warm.speed.0),
    }
}

impl FromDisk {
    fn text(&self, demand: &Demand, several: bool) -> String {
        let what = format!(
            "from disk {} images/s per host{} at {} MB/s",
            thousands(self.ceiling.0, ','),
            name(&self.host, several),
            thousands(self.megabytes_per_second, ',')
        );
        let need = match self.is_enough(demand) {
            true => String::new(),
            false => format!(": {}, {} MB/s", demand.text(), thousands(self.needed_megabytes_per_second, ',')),
        };
        format!("{what}{need}; {}", self.judgment(demand))
    }

    /// Returns true if the devices do not need more.
    pub fn is_enough(&self, demand: &Demand) -> bool {
        self.ceiling >= demand.speed
    }

    /// Returns a text with the conclusion: the disk is sufficient, or a remedy.
    pub fn judgment(&self, demand: &Demand) -> String {
        match (self.is_enough(demand), self.is_disk) {
            (true, _) => "enough",
            (false, true) => "a faster disk, enough memory for the files, or smaller files",
            (false, false) => "the cores are the limit, not the disk",
        }
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use ringmark_core::benchmark::input::config::InputConfig;
    use ringmark_core::benchmark::input::pass::{HostPass, InputPass};
    use ringmark_core::benchmark::input::record::StoredImages;
    use ringmark_core::dimension::{Bytes, Case, DeviceKind, Seconds};
    use ringmark_core::host::environment::{Environment, InitialLoad, RankPlace};

    use super::*;

    /// Pass over 1000 images of 110 kB in four batches; `decode` is the thread time for decoding an image, in ms.
    fn pass(cache: PageCache, threads: u32, speed: f64, decode: f64) -> InputPass {
        let bytes = 110_000_000;
        let host = HostPass {
            batches: vec![Seconds(250.0 / speed); 4],
            images: 1000,
            bytes: Bytes(bytes),
            from_disk: Some(Bytes(if cache == PageCache::Cold { bytes } else { 0 })),
            decode: Seconds(decode),
            ..HostPass::default()
        };
        InputPass { cache, threads, hosts: vec![host] }
    }

    /// Host with 14 cores: 2,740 images/s from memory with 14 threads, 195.7 per core; images of 500 x 400 px, of whose
    /// 5.11 ms 4.9 are for decoding.
    fn record() -> InputRecord {
        InputRecord {
            cores: vec![14],
            what: "1 RecordIO file with index".to_owned(),
            items: 100_000,
            stored: Some(StoredImages {
                sampled: 128,
                bytes: 110_000.0,
                pixels: 200_000.0,
                shorter_edge: 400.0,
                aspect: 1.25,
            }),
            augmentation: ringmark_core::dimension::Augmentation::Imagenet,
            decoder: Some("zune-jpeg".to_owned()),
            passes: vec![
                pass(PageCache::Cold, 14, 1210.0, 4.9),
                pass(PageCache::Warm, 1, 220.0, 4.4),
                pass(PageCache::Warm, 14, 2740.0, 4.9),
            ],
            ..InputRecord::new(
                Seconds(0.0),
                InputConfig { batch_size: 250, ..InputConfig::default() },
                Environment::default(),
                vec![RankPlace::on_cpu(0, 0, "a")],
            )
        }
    }

    fn demand(speed: f64) -> Demand {
        let speed = UnitsPerSecond(speed);
        Demand {
            label: "1n8g".to_owned(),
            devices: 8,
            kind: DeviceKind::Cuda,
            speed,
            image_size: 224,
            basis: Basis::Synthetic,
        }
    }

    /// Checks the printed lines for a record.
    fn check(record: &InputRecord, demand: &Demand, expected: &Expect) {
        expected.assert_eq(&lines(record, demand).join("\n"));
    }

    #[test]
    fn slow_host_gets_cores_and_image_size() {
        // (6150 - 2740) / 195.71 = 17.4. An image takes 5.109 ms of a core and may take 2.276, 2.833 less. Of the 4.9
        // ms for decoding 2.067 are left, 42.2 %; of 200,000 px, 84,400: sqrt(84,400 / 1.25) = 259.8.
        check(
            &record(),
            &demand(6150.0),
            &expect![[r#"
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,150; 18 more cores or images stored at 256 px
            1n8g: from disk 1,210 images/s per host at 133 MB/s: 8 GPUs need 6,150, 676 MB/s; a faster disk, enough memory for the files, or smaller files"#]],
        );
    }

    #[test]
    fn image_size_is_suggested_only_if_sufficient() {
        let first = |record: &InputRecord, speed: f64| lines(record, &demand(speed)).remove(0);
        let mut scaled = record();
        scaled.config.images.decode_scaling = Scaling::Allowed;
        let unknown = InputRecord { stored: None, ..record() };
        // 28 threads share 14 cores: the wall-clock time for decoding doubles.
        let turns = InputRecord { passes: vec![pass(PageCache::Warm, 28, 2740.0, 9.8)], ..record() };
        let shown = [
            // An image may take 1.556 ms, 3.55 less: 1.35 of 4.9 are left, which is 210 px, but the network takes 224.
            first(&record(), 9000.0),
            // The time left for decoding is negative.
            first(&record(), 90_000.0),
            first(&scaled, 6150.0),
            first(&unknown, 6150.0),
            first(&turns, 6150.0),
        ];
        expect![[r#"
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 9,000; 32 more cores
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 90,000; 446 more cores
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,150; 18 more cores
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,150; 18 more cores
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,150; 18 more cores or images stored at 256 px"#]]
        .assert_eq(&shown.join("\n"));
    }

    #[test]
    fn sufficient_rate_shows_the_required_cores() {
        let one = Demand { devices: 1, kind: DeviceKind::Cpu, ..demand(1000.0) };
        check(
            &record(),
            &one,
            &expect![[r#"
            1n8g: input ceiling 2,740 images/s per host: 1 CPU rank needs 1,000; enough: 6 of 14 cores
            1n8g: from disk 1,210 images/s per host at 133 MB/s; enough"#]],
        );
    }

    #[test]
    fn disk_is_named_only_if_it_is_the_limit() {
        let mut record = record();
        record.passes[0] = pass(PageCache::Cold, 14, 2700.0, 4.9);
        check(
            &record,
            &demand(6150.0),
            &expect![[r#"
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,150; 18 more cores or images stored at 256 px
            1n8g: from disk 2,700 images/s per host at 297 MB/s: 8 GPUs need 6,150, 676 MB/s; the cores are the limit, not the disk"#]],
        );
        record.passes.truncate(1);
        check(
            &record,
            &demand(6150.0),
            &expect![
                "1n8g: from disk 2,700 images/s per host at 297 MB/s: 8 GPUs need 6,150, 676 MB/s; a faster disk, \
                 enough memory for the files, or smaller files"
            ],
        );
        record.passes[0].hosts[0].from_disk = Some(Bytes(1));
        check(
            &record,
            &demand(6150.0),
            &expect!["1n8g: no pass read only from memory or only from disk, so the ceiling is unknown"],
        );
        check(
            &record,
            &Demand { image_size: 299, ..demand(1.0) },
            &expect!["1n8g: trained with images of 299 px, but these have 224: repeat with --image-size 299"],
        );
    }

    #[test]
    fn busy_host_and_single_batch_are_named() {
        let mut record = record();
        record.environment.load_before = Some(InitialLoad { hosts: "a".to_owned(), load: 7.0, cores: 14 });
        let marked = lines(&record, &demand(6150.0)).remove(0);
        assert!(marked.starts_with("1n8g: (input ceiling 2,740") && marked.ends_with("256 px)"), "{marked}");
        record.environment.load_before = None;
        record.passes.iter_mut().for_each(|pass| pass.hosts[0].batches.truncate(1));
        check(
            &record,
            &demand(6150.0),
            &expect![
                "1n8g: a verdict needs 2 batches, but every pass measured 1: repeat with --batches 20, or with a smaller \
                 --batch-size"
            ],
        );
    }

    #[test]
    fn lowest_host_sets_the_ceiling() {
        let mut record = record();
        record.ranks.push(RankPlace { rank: 1, host: "b".to_owned(), ..record.ranks[0].clone() });
        record.cores.push(14);
        for (pass, speed) in record.passes.iter_mut().zip([1210.0, 220.0, 2000.0]) {
            let other = self::pass(pass.cache, pass.threads, speed, 4.9).hosts.remove(0);
            pass.hosts.push(other);
        }
        check(
            &record,
            &demand(6150.0),
            &expect![[r#"
            1n8g: input ceiling 2,000 images/s per host (slowest host: b): 8 GPUs need 6,150; 30 more cores
            1n8g: from disk 1,210 images/s per host (slowest host: a) at 133 MB/s: 8 GPUs need 6,150, 676 MB/s; a faster disk, enough memory for the files, or smaller files"#]],
        );
    }

    /// DLPerf's FP16 row (batch 256, V100): 833.65 images/s on one GPU, 2,331.91 on 4, 2,908.88 on 8, 10,565.55 on 4
    /// hosts.
    #[test]
    fn demand_per_device_is_that_of_one_device() {
        let demand = |devices: u32, trained: f64| Demand {
            label: format!("1n{devices}g"),
            devices,
            basis: Basis::OneDevice { case: Case { nodes: 1, gpus_per_node: 1 }, trained: UnitsPerSecond(trained) },
            ..demand(833.65 * f64::from(devices))
        };
        let cases = [(1, 833.65), (2, 1373.55), (4, 2331.91), (8, 2908.88), (8, 5000.0)];
        let shown = cases.map(|(devices, trained)| lines(&record(), &demand(devices, trained)).remove(0));
        expect![[r#"
            1n1g: input ceiling 2,740 images/s per host: 1 GPU needs 834; enough: 5 of 14 cores
            1n2g: input ceiling 2,740 images/s per host: 2 GPUs need 1,667 (834 each, as in 1n1g); enough: 9 of 14 cores; they trained at 1,374, not limited by the input
            1n4g: input ceiling 2,740 images/s per host: 4 GPUs need 3,335 (834 each, as in 1n1g); 4 more cores or images stored at 360 px; they trained at 2,332, below the input rate: another bottleneck also limited them
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,669 (834 each, as in 1n1g); 21 more cores or images stored at 248 px; they trained at 2,909, equal to the input rate: the input was the limit
            1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,669 (834 each, as in 1n1g); 21 more cores or images stored at 248 px; they trained at 5,000, above the input rate: they used other hosts or images"#]].assert_eq(&shown.join("\n"));
        let starved = Demand { speed: UnitsPerSecond(21_600.0), ..demand(8, 2900.0) };
        expect!["1n1g itself trained at 2,700 images/s per device, the same as the input rate (2,740): the demand of a device is unknown; repeat 1n1g with synthetic images"].assert_eq(&verdict(&record(), &starved).expect_err("unknown"));
    }
}

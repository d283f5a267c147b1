//! Whether hosts read and decode as many images as their devices need, and what would help where they do not. Pure.
//!
//! A host's ceiling is its fastest pass from memory. Images/s of a core are those of the pass with as many threads as cores.
//!
//! - **More cores**: `ceil((need - ceiling) / images/s of a core)`. That holds while cores add up; where the last threads of the
//!   table bring little (memory, hyperthreads), more is needed.
//! - **Smaller stored images**: with `T = 1 / images/s of a core` the core time of an image, `d` its part for decoding, and
//!   `T' = T x ceiling of those cores / need` what it may take, decoding may take `d' = d - (T - T')`. Time of decoding is about
//!   proportional to pixels, so that stored images may have `pixels x d' / d`, and a shorter edge of
//!   `sqrt(pixels x d' / d / aspect)`, rounded down to a multiple of 8, the edge of a JPEG block. Reading and augmenting are
//!   taken to stay as they are, though both have less to do: the size is on the safe side. Where JPEG is decoded at a fraction
//!   of its size the time is not proportional, and no size is named; nor is one below the size that the network takes.

use ringmark_record::benchmark::input::config::PageCache;
use ringmark_record::benchmark::input::record::{Ceiling, InputRecord};
use ringmark_record::dimension::device::DeviceKind;
use ringmark_record::dimension::image_input::Scaling;
use ringmark_record::dimension::units::{ImagesPerSecond, thousands};

/// From the disk as fast as from memory: what is below this share is the disk's.
const AS_FAST: f64 = 0.95;

/// A JPEG's block.
const BLOCK: f64 = 8.0;

/// What the devices of one host take with synthetic images.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// `1n8g`, with its table's name where there are several.
    pub label: String,
    /// Of one host.
    pub devices: u32,
    /// What they are.
    pub kind: DeviceKind,
    /// Of one host.
    pub speed: ImagesPerSecond,
    /// Height and width of an image in pixels.
    pub image_size: u32,
}

impl Demand {
    /// `8 GPUs need 6,150`.
    fn text(&self) -> String {
        let what = match self.kind {
            DeviceKind::Cuda => "GPU",
            DeviceKind::Cpu => "CPU rank",
        };
        let (plural, need) = if self.devices == 1 { ("", "needs") } else { ("s", "need") };
        format!("{} {what}{plural} {need} {}", self.devices, thousands(self.speed.0, ','))
    }
}

/// What is said of a demand, from memory and from the disk: of the host that is lowest.
pub fn verdict(record: &InputRecord, demand: &Demand) -> Vec<String> {
    let (label, own, size) = (&demand.label, record.config.image_size(), demand.image_size);
    if own != size {
        return vec![format!(
            "{label}: trained with images of {size} px, and these have {own}: repeat with --image-size {size}"
        )];
    }
    let lowest = |cache: PageCache| {
        let of_host = |rank: usize| record.ceiling(rank, cache).map(|ceiling| (rank, ceiling));
        let ceilings = (0..record.ranks.len()).filter_map(of_host);
        ceilings.min_by(|(_, one), (_, other)| one.speed.0.total_cmp(&other.speed.0))
    };
    let warm = lowest(PageCache::Warm).map(|(rank, ceiling)| from_memory(record, rank, ceiling, demand));
    let cold = lowest(PageCache::Cold).map(|(rank, ceiling)| from_disk(record, rank, ceiling, demand));
    let lines: Vec<String> = [warm, cold].into_iter().flatten().map(|line| format!("{label}: {line}")).collect();
    match lines.is_empty() {
        true => vec![format!("{label}: no pass was from memory or from the disk alone, so that there is no ceiling")],
        false => lines,
    }
}

/// Which host, where there are several.
fn name(record: &InputRecord, rank: usize) -> String {
    match record.ranks.len() {
        1 => String::new(),
        _ => format!(" (host {}, the lowest)", record.ranks[rank].host),
    }
}

fn from_memory(record: &InputRecord, rank: usize, ceiling: Ceiling, demand: &Demand) -> String {
    let what = format!(
        "input ceiling {} images/s per host{}: {}",
        thousands(ceiling.speed.0, ','),
        name(record, rank),
        demand.text()
    );
    let Some((busiest, of_a_core)) = record.busiest(rank) else { return what };
    let cores = record.cores.get(rank).copied().unwrap_or(1);
    if ceiling.speed >= demand.speed {
        let needed = ((demand.speed.0 / of_a_core.0).ceil() as u32).clamp(1, cores);
        return format!("{what}; enough: {needed} of {cores} cores do it");
    }
    let more = ((demand.speed.0 - ceiling.speed.0) / of_a_core.0).ceil();
    let plural = if more == 1.0 { "" } else { "s" };
    let smaller = match stored_edge(record, &busiest, cores, demand) {
        Some(edge) => format!(" or images stored at {edge} px"),
        None => String::new(),
    };
    format!("{what}; {} more core{plural}{smaller}", thousands(more, ','))
}

/// Shorter edge at which stored images are decoded fast enough, in pixels; `None` where none is, or none is known.
fn stored_edge(record: &InputRecord, busiest: &Ceiling, cores: u32, demand: &Demand) -> Option<u32> {
    let stored = record.stored?;
    if record.config.images.decode_scaling != Scaling::Off {
        return None;
    }
    let used = f64::from(busiest.threads.min(cores));
    let [_, decode, ..] = busiest.pass.stages();
    // Threads that take turns on a core take longer by the clock than of the core.
    let decode = decode * used / f64::from(busiest.threads);
    let (takes, may_take) = (used / busiest.speed.0, used / demand.speed.0);
    let left = (decode - (takes - may_take)) / decode;
    let edge = (stored.pixels * left / stored.aspect).sqrt();
    let edge = (edge / BLOCK).floor() * BLOCK;
    // NaN where decoding has no time left.
    (edge >= f64::from(record.config.image_size())).then_some(edge as u32)
}

fn from_disk(record: &InputRecord, rank: usize, ceiling: Ceiling, demand: &Demand) -> String {
    let rate = ceiling.pass.megabytes_per_second().unwrap_or_default();
    let what = format!(
        "from the disk {} images/s per host{} at {} MB/s",
        thousands(ceiling.speed.0, ','),
        name(record, rank),
        thousands(rate, ',')
    );
    if ceiling.speed >= demand.speed {
        return format!("{what}; enough");
    }
    let needed = rate * demand.speed.0 / ceiling.speed.0;
    let warm = record.ceiling(rank, PageCache::Warm);
    let is_disk = warm.is_none_or(|warm| ceiling.speed.0 < AS_FAST * warm.speed.0);
    let help = if is_disk {
        "a faster disk, memory that holds the files, or smaller files"
    } else {
        "the cores are the limit, not the disk"
    };
    format!("{what}: {}, {} MB/s; {help}", demand.text(), thousands(needed, ','))
}

#[cfg(test)]
mod tests {
    use ringmark_record::benchmark::input::config::InputConfig;
    use ringmark_record::benchmark::input::pass::{HostPass, InputPass};
    use ringmark_record::benchmark::input::record::StoredImages;
    use ringmark_record::dimension::units::{Bytes, Seconds};
    use ringmark_record::host::environment::{Environment, RankPlace};

    use super::*;

    /// 1000 images of 110 kB in one batch, of whose thread time `decode` ms each are decoding.
    fn pass(cache: PageCache, threads: u32, speed: f64, decode: f64) -> InputPass {
        let bytes = 110_000_000;
        let host = HostPass {
            batches: vec![Seconds(1000.0 / speed)],
            images: 1000,
            bytes: Bytes(bytes),
            from_disk: Some(Bytes(if cache == PageCache::Cold { bytes } else { 0 })),
            decode: Seconds(decode),
            ..HostPass::default()
        };
        InputPass { cache, threads, hosts: vec![host] }
    }

    /// A host of 14 cores: from memory 2,740 images/s with 14 threads, 195.7 of a core; 500 x 400 px, decoded in 4.9 of the 5.11 ms
    /// of an image.
    fn record() -> InputRecord {
        InputRecord {
            kind: "ringmark-input".to_owned(),
            schema: 1,
            started: Seconds(0.0),
            config: InputConfig { batch_size: 1000, ..InputConfig::default() },
            environment: Environment::default(),
            ranks: vec![RankPlace {
                rank: 0,
                local_rank: 0,
                host: "a".to_owned(),
                device: DeviceKind::Cpu,
                device_name: "processor".to_owned(),
                threads: 1,
                process: 1,
            }],
            cores: vec![14],
            what: "1 RecordIO file with index".to_owned(),
            items: 100_000,
            stored: Some(StoredImages {
                looked_at: 128,
                bytes: 110_000.0,
                pixels: 200_000.0,
                shorter_edge: 400.0,
                aspect: 1.25,
            }),
            augmentation: ringmark_record::dimension::image_input::Augmentation::Imagenet,
            decoder: "zune-jpeg".to_owned(),
            passes: vec![
                pass(PageCache::Cold, 14, 1210.0, 4.9),
                pass(PageCache::Warm, 1, 220.0, 4.4),
                pass(PageCache::Warm, 14, 2740.0, 4.9),
            ],
            host_use: Vec::new(),
            rank_use: Vec::new(),
            warnings: Vec::new(),
            failure: None,
        }
    }

    fn demand(speed: f64) -> Demand {
        let speed = ImagesPerSecond(speed);
        Demand { label: "1n8g".to_owned(), devices: 8, kind: DeviceKind::Cuda, speed, image_size: 224 }
    }

    #[test]
    fn a_host_that_is_too_slow_is_told_cores_and_size() {
        // (6150 - 2740) / 195.71 = 17.4. An image takes 5.109 ms of a core and may take 2.276: 2.833 less, of 4.9 of decoding
        // 2.067 are left, 42.2 %, of 200,000 px 84,400: sqrt(84,400 / 1.25) = 259.8.
        assert_eq!(
            verdict(&record(), &demand(6150.0)),
            [
                "1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 6,150; 18 more cores or images stored at 256 px",
                "1n8g: from the disk 1,210 images/s per host at 133 MB/s: 8 GPUs need 6,150, 676 MB/s; a faster disk, memory that \
                 holds the files, or smaller files",
            ]
        );
    }

    #[test]
    fn a_size_is_named_only_where_it_is_enough() {
        let cores = "1n8g: input ceiling 2,740 images/s per host: 8 GPUs need 9,000; 32 more cores";
        // 1.556 ms may be taken, 3.55 less: 1.35 of 4.9 are left, which is 210 px, and the network takes 224.
        assert_eq!(verdict(&record(), &demand(9000.0))[0], cores);
        // Less than nothing is left.
        assert!(verdict(&record(), &demand(90_000.0))[0].ends_with("446 more cores"));
        let mut scaled = record();
        scaled.config.images.decode_scaling = Scaling::Allowed;
        assert!(verdict(&scaled, &demand(6150.0))[0].ends_with("18 more cores"));
        assert!(verdict(&InputRecord { stored: None, ..record() }, &demand(6150.0))[0].ends_with("18 more cores"));
        // 28 threads that take turns on 14 cores: by the clock decoding is twice as long.
        let turns = InputRecord { passes: vec![pass(PageCache::Warm, 28, 2740.0, 9.8)], ..record() };
        assert!(verdict(&turns, &demand(6150.0))[0].ends_with("18 more cores or images stored at 256 px"));
    }

    #[test]
    fn enough_is_said_with_the_cores_that_do_it() {
        let one = Demand { devices: 1, kind: DeviceKind::Cpu, ..demand(1000.0) };
        assert_eq!(
            verdict(&record(), &one),
            [
                "1n8g: input ceiling 2,740 images/s per host: 1 CPU rank needs 1,000; enough: 6 of 14 cores do it",
                "1n8g: from the disk 1,210 images/s per host at 133 MB/s; enough",
            ]
        );
    }

    #[test]
    fn the_disk_is_blamed_where_it_is_the_limit_and_nothing_is_claimed_without_a_pass() {
        let mut record = record();
        record.passes[0] = pass(PageCache::Cold, 14, 2700.0, 4.9);
        assert!(verdict(&record, &demand(6150.0))[1].ends_with("; the cores are the limit, not the disk"));
        record.passes.truncate(1);
        assert_eq!(verdict(&record, &demand(6150.0)).len(), 1);
        record.passes[0].hosts[0].from_disk = Some(Bytes(1));
        assert!(verdict(&record, &demand(6150.0))[0].contains("there is no ceiling"));
        let other = Demand { image_size: 299, ..demand(1.0) };
        assert_eq!(
            verdict(&record, &other),
            ["1n8g: trained with images of 299 px, and these have 224: repeat with --image-size 299"]
        );
    }

    #[test]
    fn of_several_hosts_the_lowest_counts() {
        let mut record = record();
        record.ranks.push(RankPlace { rank: 1, host: "b".to_owned(), ..record.ranks[0].clone() });
        record.cores.push(14);
        for (pass, speed) in record.passes.iter_mut().zip([1210.0, 220.0, 2000.0]) {
            let other = self::pass(pass.cache, pass.threads, speed, 4.9).hosts.remove(0);
            pass.hosts.push(other);
        }
        let lines = verdict(&record, &demand(6150.0));
        assert!(
            lines[0].starts_with("1n8g: input ceiling 2,000 images/s per host (host b, the lowest): 8 GPUs"),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("1n8g: from the disk 1,210 images/s per host (host a, the lowest) at 133 MB/s"),
            "{lines:?}"
        );
    }
}

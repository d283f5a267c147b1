//! Speed of one thread that reads and decodes. Photographs are those of `target/photographs` (scripts/dev/make_photographs.py);
//! without them, one JPEG file of their size is generated.

use std::fmt::{self, Display};
use std::path::Path;
use std::sync::LazyLock;

use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher};

fn main() {
    divan::main();
}

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

mod record_io {
    use super::*;
    use ringmark_core::dimension::ImageLimits;
    use ringmark_input::byte_source::ByteSource;
    use ringmark_input::format::record_io::{self, RecordReader, read_record, write_record};

    /// A file in the page cache, with records of the size of an ImageNet file.
    fn on_records(bencher: Bencher, body: impl Fn(&ByteSource, &[u64]) -> usize) {
        const RECORDS: usize = 2000;
        const BYTES: usize = 110_000;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rec");
        let (record, mut file, mut offsets) = (vec![0xa5; BYTES], Vec::new(), Vec::new());
        for _ in 0..RECORDS {
            offsets.push(file.len() as u64);
            write_record(&record, &mut file).expect("memory takes it");
        }
        std::fs::write(&path, &file).expect("written");
        let source = record_io::open(&path).expect("opened");
        bencher
            .counter(BytesCount::new(RECORDS * BYTES))
            .bench_local(|| assert_eq!(body(&source, &offsets), RECORDS * BYTES));
    }

    #[divan::bench(sample_count = 20, sample_size = 1)]
    fn in_order(bencher: Bencher) {
        on_records(bencher, |source, _| {
            let mut reader = RecordReader::from_source(source);
            let mut bytes = 0;
            while let Some(record) = reader.next_record().expect("read") {
                bytes += record.bytes.len();
            }
            bytes
        });
    }

    #[divan::bench(sample_count = 20, sample_size = 1)]
    fn by_offset(bencher: Bencher) {
        on_records(bencher, |source, offsets| {
            let mut buffer = Vec::new();
            let mut read = |offset: &u64| {
                read_record(source, *offset, 110_008, &ImageLimits::default(), &mut buffer).expect("read").len()
            };
            offsets.iter().map(&mut read).sum()
        });
    }
}

#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod image {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder};
    use ringmark_core::dimension::{Augmentation, DecoderChoice, ImageLimits, Scaling};
    use ringmark_input::augment::{Generator, Recipe};
    use ringmark_input::image::ImagePipeline;

    static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/photographs");
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let files: Vec<Vec<u8>> =
            entries.map(|entry| std::fs::read(entry.expect("an entry").path()).expect("a file")).collect();
        if files.is_empty() { vec![generated_image()] } else { files }
    });

    /// 500 x 375 pixels in about 110 KB: waves, finer from left to right.
    fn generated_image() -> Vec<u8> {
        let (width, height) = (500u16, 375u16);
        let value = |x: f64, y: f64, color: f64| {
            127.0
                + 80.0 * (x * x * 0.002 + color).sin() * (y * 0.05 * (1.0 + color)).cos()
                + 40.0 * (x * y * 0.02).sin()
        };
        let pixel = |index: usize| {
            let (x, y) = ((index % usize::from(width)) as f64, (index / usize::from(width)) as f64);
            [0.0, 0.5, 1.0].map(|color| value(x, y, color) as u8)
        };
        let rgb: Vec<u8> = (0..usize::from(width) * usize::from(height)).flat_map(pixel).collect();
        let mut file = Vec::new();
        Encoder::new(&mut file, 80).encode(&rgb, width, height, ColorType::Rgb).expect("a JPEG");
        file
    }

    #[derive(Debug, Clone, Copy)]
    struct Setting {
        decoder: DecoderChoice,
        scaling: Scaling,
        augmentation: Augmentation,
    }

    impl Display for Setting {
        fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
            write!(formatter, "{}, scaling {}, {}", self.decoder, self.scaling, self.augmentation)
        }
    }

    impl Setting {
        fn pipeline(self) -> anyhow::Result<ImagePipeline> {
            ImagePipeline::new(self.decoder, self.scaling, ImageLimits::default())
        }

        fn recipe(self) -> Recipe {
            match self.augmentation {
                Augmentation::None => Recipe::validation(Augmentation::Imagenet, 224),
                _ => Recipe::training(self.augmentation, 224),
            }
        }
    }

    /// All settings whose decoder this machine has.
    fn settings() -> impl Iterator<Item = Setting> {
        let decoders = [
            (DecoderChoice::Zune, Scaling::Off),
            (DecoderChoice::Turbojpeg, Scaling::Off),
            (DecoderChoice::Turbojpeg, Scaling::Allowed),
        ];
        let augmentations = [Augmentation::None, Augmentation::Imagenet, Augmentation::Mxnet1, Augmentation::Mxnet3];
        let of_decoder =
            move |(decoder, scaling)| augmentations.map(|augmentation| Setting { decoder, scaling, augmentation });
        decoders.into_iter().flat_map(of_decoder).filter(|setting| setting.pipeline().is_ok())
    }

    #[divan::bench(args = settings())]
    fn decode(bencher: Bencher, setting: Setting) {
        let (mut pipeline, recipe) = (setting.pipeline().expect("a decoder"), setting.recipe());
        bencher.counter(ItemsCount::of_iter(&*FILES)).bench_local(|| {
            for (index, file) in FILES.iter().enumerate() {
                let mut generator = Generator::for_image(1, 0, index as u64);
                pipeline.decode(file, &recipe, &mut generator).expect("an image");
            }
        });
    }

    #[divan::bench(args = settings())]
    fn decode_and_augment(bencher: Bencher, setting: Setting) {
        let (mut pipeline, recipe) = (setting.pipeline().expect("a decoder"), setting.recipe());
        let mut slot = vec![0; recipe.bytes()];
        bencher.counter(ItemsCount::of_iter(&*FILES)).bench_local(|| {
            for (index, file) in FILES.iter().enumerate() {
                let mut generator = Generator::for_image(1, 0, index as u64);
                let plan = pipeline.decode(file, &recipe, &mut generator).expect("an image");
                pipeline.augment(&plan, &mut slot).expect("room for it");
            }
        });
    }
}

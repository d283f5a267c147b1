//! Fuzz targets: every reader of bytes, and all computations on accepted input. No input may cause a panic, a hang, or
//! memory use out of proportion to its size. Written values must be read back unchanged.
//!
//! Used by the fuzzer (scripts/dev/fuzz.sh), and by a test that replays seeds and earlier findings of the fuzzer.

use std::path::Path;

use ringmark::launch::cluster::typed_hosts::TypedHosts;
use ringmark::launch::doctor::probe::Probe;
use ringmark::launch::job::gridengine;
use ringmark::launch::sweep::live::lines::lines as lines_of_progress;
use ringmark::launch::sweep::live::metrics;
use ringmark::read::analyze::comparison::side::{Side, SideKind};
use ringmark::read::analyze::comparison::verdicts::ComparedResults;
use ringmark::read::analyze::comparison::{collectives, pairing, pytorch, training};
use ringmark::read::analyze::prediction::evidence::Evidence;
use ringmark::read::analyze::prediction::exchange_pattern::ExchangePattern;
use ringmark::read::analyze::prediction::outlook::Outlook;
use ringmark::read::analyze::prediction::{model, search};
use ringmark::read::analyze::published::scaling::DLPERF;
use ringmark::read::analyze::results::{FolderRecords, ResultFolder, SweepGroups};
use ringmark::read::analyze::score;
use ringmark::read::analyze::score::result_json::ScoreResult;
use ringmark::read::analyze::training::figures;
use ringmark::read::analyze::training::result_json;
use ringmark::read::benchmark::bandwidth::load::BandwidthResult;
use ringmark::read::benchmark::checkpoint::CheckpointRecords;
use ringmark::read::benchmark::input::demand::{Basis, Demand};
use ringmark::read::benchmark::input::verdict;
use ringmark::read::extract::{ExtractFormat, Extras, render};
use ringmark::read::load::folder::{FoundRun, SweepFacts};
use ringmark::read::load::formats::nccl_tests::NcclTests;
use ringmark::read::load::formats::pytorch_ddp::DdpFile;
use ringmark::read::load::problem::Problem;
use ringmark::read::load::run::Run;
use ringmark::read::report;
use ringmark::read::show::comparison;
use ringmark::read::show::prediction::text as prediction;
use ringmark::read::show::text::{Medium, WIDTH};
use ringmark_core::benchmark::bandwidth::figures as bandwidth_figures;
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, lines};
use ringmark_core::benchmark::checkpoint::lines as checkpoint_lines;
use ringmark_core::benchmark::checkpoint::{CheckpointRecord, slow_hosts};
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::benchmark::input::lines as input_lines;
use ringmark_core::benchmark::score::{ScoreConfig, ScoreRecord};
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::{
    Augmentation, BatchShape, Case, DecoderChoice, DeviceKind, Dtype, ImageLimits, Model, Scaling, Strategy,
    UnitsPerSecond, WorkUnit,
};
use ringmark_core::file::run_name::RunName;
use ringmark_core::host::Message;
use ringmark_core::line::dlperf;
use ringmark_core::line::dlperf::LogLine;
use ringmark_core::line::log::{self, Log};
use ringmark_core::manifest::Manifest;
use ringmark_core::progress::Progress;
use ringmark_core::stats::comparison::Thresholds;
use ringmark_core::stats::comparison::Verdict;
use ringmark_core::stats::summary;
use ringmark_input::augment::{Generator, Recipe};
use ringmark_input::byte_source::ByteSource;
use ringmark_input::convert::{Conversion, Converter, Encoding};
use ringmark_input::format::idx_array::IdxArray;
use ringmark_input::format::image_record::{self, ImageRecord};
use ringmark_input::format::record_io::RecordReader;
use ringmark_input::format::token_index::TokenIndex;
use ringmark_input::format::{index_file as index, list_file as list, record_io as container};
use ringmark_input::image::ImagePipeline;

/// A reader and the processing of its output.
pub type Target = fn(&[u8]);

/// Targets by name, which is the name of their folder of seeds.
pub const TARGETS: [(&str, Target); 18] = [
    ("log", log),
    ("record", record),
    ("score", score),
    ("result", result),
    ("manifest", manifest),
    ("progress", progress),
    ("bandwidth", bandwidth),
    ("input", input),
    ("checkpoint", checkpoint),
    ("pytorch_ddp", pytorch_ddp),
    ("nccl_tests", nccl_tests),
    ("words", words),
    ("record_io", record_io),
    ("idx_array", idx_array),
    ("index_file", index_file),
    ("list_file", list_file),
    ("token_index", token_index),
    ("image", image),
];

/// Reads a log without a record, like DLPerf's.
fn log(bytes: &[u8]) {
    let found = found(RunName {
        baseline: false,
        case: Case::SINGLE,
        model: Model::default(),
        batch: BatchShape::per_rank(8),
        dtype: Dtype::Fp32,
        strategy: Strategy::AllReduce,
        run: 1,
    });
    let runs = [None, Some(0), Some(u32::MAX)].map(|warmup| {
        let log = log::read(&mut &bytes[..]).expect("memory can be read");
        Run::judge(&found, Ok(log), Ok(None), warmup)
    });
    show(runs.into());
}

/// Reads a record together with a log.
fn record(bytes: &[u8]) {
    let Ok(record) = RunRecord::read(bytes) else { return };
    let mut written = Vec::new();
    record.write(&mut written).expect("an in-memory write succeeds");
    let again = RunRecord::read(&written[..]).expect("what is written can be read");
    let mut rewritten = Vec::new();
    again.write(&mut rewritten).expect("an in-memory write succeeds");
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&rewritten));

    let header = &record.header;
    let config = &header.config;
    let name = RunName {
        baseline: false,
        case: header.case,
        model: config.model,
        batch: config.batch(),
        dtype: config.dtype,
        strategy: config.strategy.strategy,
        run: header.run,
    };
    let found = found(name);
    let mut text = String::new();
    for iteration in &record.iterations {
        let step = iteration.step.first().map_or(1.0, |step| step.0);
        text += &dlperf::write(
            dlperf::Batch::at_iteration(iteration.iteration, None),
            UnitsPerSecond(8.0 / step),
            WorkUnit::Image,
            7.0,
        );
        text += "\n";
    }
    let runs = [None, Some(0)].map(|warmup| {
        let log = log::read(&mut text.as_bytes()).expect("memory can be read");
        Run::judge(&found, Ok(log), Ok(Some(record.clone())), warmup)
    });
    for measured in runs.iter().filter_map(|run| Some(&run.outcome.as_ref().ok()?.figures)) {
        assert_eq!(measured.iteration_times().len(), record.iterations.len());
        assert_eq!(measured.pooled_steps().len(), (measured.timed - measured.warmup) * measured.ranks.len());
    }
    show(runs.into());
}

/// Reads a record of a scoring run, with an empty log.
fn score(bytes: &[u8]) {
    let Ok(record) = ScoreRecord::read(bytes) else { return };
    let mut written = Vec::new();
    record.write(&mut written).expect("an in-memory write succeeds");
    assert_eq!(ScoreRecord::read(&written[..]).expect("what is written can be read"), record);
    let ScoreConfig { model, dtype, .. } = record.config;
    let batch = record.config.batch();
    let (strategy, run) = (Strategy::AllReduce, record.run);
    let found = found(RunName { baseline: false, case: record.case, model, batch, dtype, strategy, run });
    let runs = vec![Run::judge(&found, Ok(Log::default()), Ok(Some(record)), None)];
    let mut problems = Vec::new();
    let groups = score::figures::groups(runs, &mut problems, &SweepFacts::default());
    let result = folder_of(SweepGroups::Score(groups), problems);
    let json = rendered(&result);
    compare(SideKind::Score, |side| score::side::add_result(side, ScoreResult::read(json.as_bytes())?))
        .expect("it reads its own JSON");
    report(result);
}

fn found(name: RunName) -> FoundRun {
    FoundRun { name, log: name.log(Path::new("")) }
}

fn explained() -> Extras<'static> {
    Extras { is_explained: true, ..Extras::default() }
}

fn show(runs: Vec<Run>) {
    let mut problems = Vec::new();
    let groups = figures::groups(runs, &mut problems, &SweepFacts::default());
    let result = folder_of(SweepGroups::Training(groups), problems);
    let evidence = |group| Evidence::from_group(group, ExchangePattern::from_group(group).ok()?);
    result.training().iter().filter_map(evidence).for_each(foresee);
    let json = rendered(&result);
    compare(SideKind::Training, |side| training::add_rows(side, result_json::read_rows(json.as_bytes())?))
        .expect("it reads its own JSON");
    report(result);
}

/// Returns a folder whose name must not become a script.
fn folder_of(sweep: SweepGroups, problems: Vec<Problem>) -> ResultFolder {
    ResultFolder::new("<script>".to_owned(), sweep, SweepFacts::default(), problems)
}

fn folder_of_records(benchmark: BenchmarkKind, records: impl FolderRecords) -> ResultFolder {
    let records: [(_, Box<dyn FolderRecords>); 1] = [(benchmark, Box::new(records))];
    ResultFolder { records: records.into(), ..folder_of(SweepGroups::Training(Vec::new()), Vec::new()) }
}

/// Renders a result in every format, and returns its JSON.
fn rendered(result: &ResultFolder) -> String {
    let text = |format| render(result, format, &explained()).expect("every result is shown");
    for format in [ExtractFormat::Table, ExtractFormat::Markdown, ExtractFormat::Csv] {
        text(format);
    }
    text(ExtractFormat::Json)
}

/// Checks that a page contains only its own script, regardless of the names in the files.
fn report(folder: ResultFolder) {
    let document = report::document(&[folder], true, &[]);
    for format in [report::ReportFormat::Markdown, report::ReportFormat::Table] {
        report::render(&document, format, 80);
    }
    let html = report::render(&document, report::ReportFormat::Html, 80);
    assert_eq!(html.matches("<script").count(), 1);
}

fn foresee(evidence: Evidence) {
    let largest = evidence.cases.last().map_or(evidence.base, |measured| measured.case);
    let cases = [Case { nodes: 2 * largest.nodes, ..largest }, Case { gpus_per_node: 2, ..largest }];
    let outlook = Outlook {
        predictions: cases.into_iter().map(|case| model::predict(&evidence, case)).collect(),
        without_straggler: Vec::new(),
        under: Some(search::under(&evidence, 0.9)),
        backtest: Some(search::backtest(&evidence)),
        evidence,
        caveat: None,
    };
    prediction::text(&[outlook], true);
}

/// Compares a result with itself, which must show no difference.
fn compare(kind: SideKind, take: impl FnOnce(&mut Side) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut side = Side::new(Path::new("fuzzed"), kind);
    take(&mut side)?;
    let Ok(pairing) = pairing::pair([&side, &side], false) else { return Ok(()) };
    let outcome = ComparedResults::new([&side, &side], pairing, Thresholds::default(), None);
    for (_, case) in outcome.cases() {
        assert!(!matches!(case.verdict, Verdict::Faster | Verdict::Slower), "{case:?}");
    }
    comparison::text(&outcome, Medium::Terminal { width: WIDTH, is_explained: true });
    comparison::text(&outcome, Medium::Markdown);
    serde_json::to_string(&outcome).expect("an in-memory write succeeds");
    Ok(())
}

/// Reads the JSON of `ringmark extract`.
fn result(bytes: &[u8]) {
    let _ = compare(SideKind::Training, |side| training::add_rows(side, result_json::read_rows(bytes)?));
}

/// Reads the progress of a command, then draws and serves it.
fn progress(bytes: &[u8]) {
    let Ok(progress) = Progress::read(bytes) else { return };
    assert_eq!(Progress::read(progress.text().as_bytes()).expect("what is written can be read"), progress);
    for (columns, rows) in [(0, 0), (40, 5), (200, 50)] {
        let lines = lines_of_progress(&progress, columns, rows);
        assert!(lines.iter().all(|line| line.chars().count() <= columns.max(2) && !line.contains(char::is_control)));
    }
    metrics::text(&progress);
}

fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::read(bytes) else { return };
    let written = serde_json::to_vec(&manifest).expect("an in-memory write succeeds");
    assert_eq!(Manifest::read(&written[..]).expect("what is written can be read"), manifest);
    assert_eq!(manifest.conditions.mismatches(&manifest.conditions), []);
    assert_eq!(manifest.ran_on.mismatches(&manifest.ran_on), []);
}

fn input(bytes: &[u8]) {
    let Ok(record) = InputRecord::read(bytes) else { return };
    let mut written = Vec::new();
    record.write(&mut written).expect("an in-memory write succeeds");
    InputRecord::read(&written[..]).expect("what is written can be read");
    for basis in [Basis::Synthetic, Basis::OneDevice { case: Case::SINGLE, trained: UnitsPerSecond(2908.88) }] {
        let demand = Demand {
            label: "1n8g".to_owned(),
            devices: 8,
            kind: DeviceKind::Cuda,
            speed: UnitsPerSecond(6669.2),
            image_size: record.config.image_size(),
            basis,
        };
        verdict::lines(&record, &demand);
    }
    input_lines::table(&record, true);
    report(folder_of_records(BenchmarkKind::Input, record));
}

fn checkpoint(bytes: &[u8]) {
    let Ok(record) = CheckpointRecord::read(bytes) else { return };
    let mut written = Vec::new();
    record.write(&mut written).expect("an in-memory write succeeds");
    CheckpointRecord::read(&written[..]).expect("what is written can be read");
    checkpoint_lines::table(&record, true);
    assert!(checkpoint_lines::warm_reads(&record).count() <= record.results.len());
    slow_hosts(&record);
    report(folder_of_records(BenchmarkKind::Checkpoint, CheckpointRecords(vec![(Case::SINGLE, record)])));
}

fn bandwidth(bytes: &[u8]) {
    let Ok(record) = BandwidthRecord::read(bytes) else { return };
    let _ = compare(SideKind::Collectives, |side| collectives::add_record(side, Path::new("fuzzed"), &record));
    let cases = [Case { nodes: 1, gpus_per_node: 8 }, Case { nodes: 2, gpus_per_node: 8 }];
    let records = cases.map(|case| (case, record.clone()));
    let _ = Evidence::from_published(&DLPERF[0]).with_bandwidth(&records).map(foresee);
    report(folder_of_records(
        BenchmarkKind::Bandwidth,
        BandwidthResult { cases: records.into(), problems: Vec::new() },
    ));
    let mut written = Vec::new();
    record.write(&mut written).expect("an in-memory write succeeds");
    BandwidthRecord::read(&written[..]).expect("what is written can be read");
    let (results, bus) = (&record.results, record.bus());
    bandwidth_figures::best_busbw(results, bus);
    bandwidth_figures::largest_busbw(results, bus);
    bandwidth_figures::wrong(results);
    lines::footer(results, bus);
    lines::spread(results);
    for result in results {
        lines::row(result, record.config.operands(), bus.ranks);
        for timing in result.sides().into_iter().filter_map(|(_, timing)| timing) {
            assert_eq!(timing.by_iteration().len() * timing.seconds.len(), timing.pooled().len());
        }
    }
}

fn nccl_tests(bytes: &[u8]) {
    let Ok(file) = NcclTests::read(bytes) else { return };
    let _ = compare(SideKind::Collectives, |side| collectives::add_nccl_tests(side, Path::new("fuzzed"), &file));
}

fn pytorch_ddp(bytes: &[u8]) {
    let Ok(file) = DdpFile::read(bytes) else { return };
    let _ = compare(SideKind::PytorchDdp, |side| pytorch::add(side, &file));
    let written = serde_json::to_vec(&file.benchmark).expect("an in-memory write succeeds");
    assert_eq!(DdpFile::read(&written[..]).expect("what is written can be read").benchmark, file.benchmark);
    for group in file.benchmark.benchmark_results.iter().flat_map(|model| &model.result) {
        for percent in summary::STEP_PERCENTS {
            summary::percentile(&group.measurements, f64::from(percent));
        }
    }
}

/// Parses lines and words of other programs and of users.
fn words(bytes: &[u8]) {
    dlperf::parse(bytes);
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let LogLine::Iteration { batch, speed, .. } = dlperf::parse(text) {
        let written = dlperf::write(batch, speed, WorkUnit::Image, 1.0);
        assert!(speed.0 < 0.005 || matches!(dlperf::parse(written), LogLine::Iteration { .. }));
    }
    if let Ok(case) = text.parse::<Case>() {
        assert_eq!(case.to_string().parse::<Case>().expect("a case"), case);
        assert!(case.ranks() > 0);
    }
    if let Ok(name) = text.parse::<RunName>() {
        assert_eq!(name.to_string(), text);
    }
    if let Ok(message) = Message::parse(text) {
        Message::parse(&message.line()).expect("what is written can be read");
    }
    if let Ok(hosts) = TypedHosts::parse(text).and_then(TypedHosts::into_hosts_with_slots) {
        assert!(hosts.full_case().ranks() > 0);
    }
    if let Ok(hosts) = gridengine::parse(text) {
        assert!(hosts.iter().all(|host| host.slots > 0));
    }
    Probe::parse(text);
}

/// Reads a `.rec` file; sequential reads, reads by offset and reads from the middle must return the same records.
fn record_io(bytes: &[u8]) {
    let source = ByteSource::from_memory(Path::new("fuzzed.rec"), bytes.to_vec());
    let mut reader = RecordReader::from_source(&source);
    let (mut buffer, mut written) = (Vec::new(), Vec::new());
    while let Ok(Some(record)) = reader.next_record() {
        let range = container::read_record(&source, record.offset, 0, &ImageLimits::default(), &mut buffer)
            .expect("it was read in turn");
        assert_eq!(&buffer[range], record.bytes);
        assert_eq!(container::next_record_start(&source, record.offset).expect("it is one"), record.offset);
        written.clear();
        container::write_record(record.bytes, &mut written).expect("it came from a file");
        let again = ByteSource::from_memory(Path::new("written.rec"), written.clone());
        let mut reader = RecordReader::from_source(&again);
        assert_eq!(reader.next_record().expect("sound").expect("one").bytes, record.bytes);
        if let Ok(image) = ImageRecord::parse(record.bytes) {
            let (mut labels, mut packed) = (Vec::new(), Vec::new());
            image.labels_into(&mut labels);
            image_record::write(image.id, &labels, image.image, &mut packed);
            assert_eq!(ImageRecord::parse(&packed).expect("what is written can be read").image, image.image);
        }
    }
    let mut start = 0;
    while let Ok(found) = container::next_record_start(&source, start)
        && found < source.length()
    {
        assert!(found >= start);
        let _ = container::read_record(&source, found, u64::MAX, &ImageLimits::default(), &mut buffer);
        start = found + 4;
    }
}

fn token_index(bytes: &[u8]) {
    let Ok(index) = TokenIndex::from_source(&ByteSource::from_memory(Path::new("fuzzed"), bytes.to_vec())) else {
        return;
    };
    assert!(index.bytes.is_multiple_of(index.kind.bytes.into()));
}

fn idx_array(bytes: &[u8]) {
    let Ok(array) = IdxArray::from_source(ByteSource::from_memory(Path::new("fuzzed"), bytes.to_vec())) else { return };
    let mut buffer = Vec::new();
    for index in [0, array.length() - 1] {
        array.read(index, &mut buffer).expect("all of them are there");
    }
    assert!(array.read(array.length(), &mut buffer).is_err());
}

fn index_file(bytes: &[u8]) {
    let length = 1 << 20;
    let Ok(entries) = index::parse(bytes, Path::new("fuzzed.idx"), length) else { return };
    assert!(entries.iter().all(|entry| entry.offset < length));
    let mut written = Vec::new();
    index::write(&entries, &mut written).expect("an in-memory write succeeds");
    assert_eq!(index::parse(&written, Path::new("written.idx"), length).expect("what is written can be read"), entries);
}

fn list_file(bytes: &[u8]) {
    let Ok(images) = list::parse(bytes, Path::new("fuzzed.lst")) else { return };
    let mut written = Vec::new();
    if list::write(&images, &mut written).is_err() {
        return;
    }
    let again = list::parse(&written, Path::new("written.lst")).expect("what is written can be read");
    let names = |images: &[list::ListedImage]| -> Vec<_> {
        images.iter().map(|image| (image.id, image.path.clone(), image.labels.len())).collect()
    };
    assert_eq!(names(&images), names(&again));
}

/// Decodes and augments an image file, then converts it and decodes the result.
fn image(bytes: &[u8]) {
    let augmentations = [Augmentation::None, Augmentation::Imagenet, Augmentation::Mxnet2, Augmentation::Mxnet3];
    let recipe = Recipe::training(augmentations[bytes.len() % augmentations.len()], 24);
    let decoder = [DecoderChoice::Zune, DecoderChoice::Turbojpeg][bytes.len() / 4 % 2];
    let scaling = [Scaling::Off, Scaling::Allowed][bytes.len() / 8 % 2];
    // Some machines have no turbojpeg.
    let Ok(mut pipeline) = ImagePipeline::new(decoder, scaling, ImageLimits::default()) else { return };
    let mut generator = Generator::for_image(0, 0, bytes.len() as u64);
    let Ok(plan) = pipeline.decode(bytes, &recipe, &mut generator) else { return };
    let mut slot = vec![0; recipe.bytes()];
    pipeline.augment(&plan, &mut slot).expect("the plan is of this image");
    let encoding =
        if bytes.len().is_multiple_of(3) { Encoding::Png(1) } else { Encoding::Jpeg(bytes.len() as u8 % 101) };
    let conversion = Conversion { is_cropped: bytes.len().is_multiple_of(2), shorter_edge: Some(16), encoding };
    let mut converter = Converter::new(conversion, ImageLimits::default()).expect("it is part of the program");
    let mut converted = Vec::new();
    // The edge of a long strip may exceed the limit.
    if converter.convert(bytes, &mut converted).is_ok() {
        pipeline.decode(&converted, &recipe, &mut generator).expect("what is written can be read");
    }
}

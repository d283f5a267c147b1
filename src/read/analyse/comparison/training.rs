//! Training runs as a side: the JSON that `ringmark extract` makes of a folder of logs and records.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, ensure};
use ringmark_record::benchmark::Profile;
use ringmark_record::benchmark::exchange::{ExchangeConfig, NcclAlgorithm};
use ringmark_record::benchmark::kv_store::KvStore;
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::device::DeviceKind;
use ringmark_record::dimension::dtype::Dtype;
use ringmark_record::dimension::units::Seconds;
use ringmark_record::file::schema;
use ringmark_record::options::keyword_enum::KeywordEnum;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::read::analyse::comparison::side::{NOT_KNOWN, RunFigures, Side, SideTable};
use crate::read::analyse::figures;
use crate::read::analyse::reliability::ReliabilityWarning;
use crate::read::analyse::result_json;
use crate::read::load::content::{RESULT, model_of};
use crate::read::load::environment::{EnvironmentText, moment};

/// Versions 1 and 2: `{"rn50": {"1n1g": {..}, ..}, ..}`.
type FirstResultFile = BTreeMap<String, BTreeMap<Case, ResultCase>>;

/// The keys of [`result_json`] that a comparison reads.
#[derive(Deserialize)]
struct ResultFile {
    rows: Vec<ResultRow>,
}

#[derive(Deserialize)]
struct ResultRow {
    group: String,
    case: Case,
    #[serde(flatten)]
    figures: ResultCase,
}

#[derive(Deserialize)]
struct ResultCase {
    /// Of version 2; in version 1 none was written.
    #[serde(default)]
    schema: u32,
    batch_size_per_device: u32,
    dtype: Option<Dtype>,
    device: Option<DeviceKind>,
    profile: Option<Profile>,
    base: Option<Case>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default, alias = "objections")]
    reliability_warnings: Vec<ReliabilityWarning>,
    #[serde(default)]
    runs: Vec<ResultRun>,
    #[serde(default)]
    settings: BTreeMap<String, Value>,
    #[serde(default, alias = "surroundings")]
    environment: EnvironmentText,
    without_communication: Option<ResultBaseline>,
}

#[derive(Deserialize)]
struct ResultBaseline {
    runs: Vec<ResultRun>,
    warnings: Vec<String>,
    #[serde(default, alias = "objections")]
    reliability_warnings: Vec<ReliabilityWarning>,
}

#[derive(Deserialize)]
struct ResultRun {
    run: u32,
    left_out: Option<String>,
    #[serde(rename = "started_unix_seconds", alias = "started")]
    started: Option<Seconds>,
    #[serde(rename = "images_per_second", alias = "images_over_time")]
    speed: Option<f64>,
    joules_per_image: Option<f64>,
    iteration_seconds: Option<ResultIterations>,
}

#[derive(Deserialize)]
struct ResultIterations {
    mean: f64,
    p50: f64,
    p75: f64,
    p90: f64,
    p95: f64,
}

/// Takes in the JSON of `ringmark extract`.
pub fn take_result(side: &mut Side, mut input: impl Read) -> anyhow::Result<()> {
    let mut text = Vec::new();
    input.read_to_end(&mut text).context("cannot be read")?;
    for (key, mut cases) in groups(&text)? {
        let model = model_of(&key).map(|model| model.facts().title.to_owned());
        cases.sort_by_key(|(case, _)| (case.ranks(), *case));
        let mut set = None;
        for (name, mut case) in cases {
            case.settings = completed(renamed(case.settings), case.device);
            case.environment = renamed(case.environment);
            take_case(side, set.get_or_insert_with(|| empty_set(model.clone(), &case)), name, case)?;
        }
        side.sets.extend(set.filter(|set| !set.cases.is_empty()));
    }
    Ok(())
}

/// A group under its name, with its cases.
type NamedGroup = (String, Vec<(Case, ResultCase)>);

/// In the order of the file.
fn groups(text: &[u8]) -> anyhow::Result<Vec<NamedGroup>> {
    /// No case is called so.
    #[derive(Deserialize)]
    struct Head {
        kind: Option<IgnoredAny>,
    }
    const NAME: &str = "result of ringmark extract";
    let head: Head = serde_json::from_slice(text).with_context(|| format!("not a {NAME}"))?;
    if head.kind.is_none() {
        let file: FirstResultFile = serde_json::from_slice(text).with_context(|| format!("not a {NAME}"))?;
        return Ok(file.into_iter().map(|(group, cases)| (group, cases.into_iter().collect())).collect());
    }
    let file: ResultFile = schema::read_document(text, RESULT, result_json::SCHEMA, NAME)?;
    let mut groups: Vec<NamedGroup> = Vec::new();
    for ResultRow { group, case, figures } in file.rows {
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, cases)) => cases.push((case, figures)),
            None => groups.push((group, vec![(case, figures)])),
        }
    }
    Ok(groups)
}

/// What version 1 called settings and facts of the environment, with what they are called now.
const RENAMED: [(&str, &str); 4] = [
    ("collective", "backend"),
    ("piece_kb", "chunk_kb"),
    ("sums by", "all-reduce by"),
    ("threads of a rank", "threads per rank"),
];

/// Version of the newest result without a kind.
const NEWEST_WITHOUT_KIND: u32 = 2;

/// Of logs without records, which may be of anything: not to be compared with what is known unless that is forced.
fn not_known() -> String {
    NOT_KNOWN.to_owned()
}

/// By the names of today.
fn renamed<T>(old: BTreeMap<String, T>) -> BTreeMap<String, T> {
    let today = |name: String| RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| (*new).to_owned());
    old.into_iter().map(|(name, value)| (today(name), value)).collect()
}

/// With what the exchange did before there was an option for it.
fn completed(mut settings: BTreeMap<String, Value>, device: Option<DeviceKind>) -> BTreeMap<String, Value> {
    if settings.contains_key("bucket_mb") {
        let ring = KvStore::Ring.keyword();
        for (option, value) in [
            ("tail_mb", Value::from(0)),
            ("nccl_algo", NcclAlgorithm::default().keyword().into()),
            ("kv_store", ring.into()),
        ] {
            settings.entry(option.to_owned()).or_insert(value);
        }
        let of = |option: &str| settings.get(option).and_then(Value::as_str);
        let exchange =
            of("backend").and_then(|backend| backend.parse().ok()).zip(of("kv_store").and_then(|it| it.parse().ok()));
        if let (None, Some((backend, kv_store)), Some(device)) = (of("hierarchical"), exchange, device) {
            let exchange = ExchangeConfig { backend, ..ExchangeConfig::default() }.on(device, kv_store);
            settings.extend(exchange.hierarchical.map(|it| ("hierarchical".to_owned(), it.keyword().into())));
        }
    }
    settings
}

/// All cases of a table have been run under the conditions of the first.
fn empty_set(model: Option<String>, case: &ResultCase) -> SideTable {
    let mut settings: BTreeMap<String, String> =
        case.settings.iter().map(|(name, value)| (name.clone(), word(value))).collect();
    for told_elsewhere in ["model", "batch_size", "dtype"] {
        settings.remove(told_elsewhere);
    }
    let image_size = settings.remove("image_size");
    if let Some(profile) = case.profile {
        settings.insert("profile".to_owned(), if profile == Profile::Quick { "quick" } else { "full" }.to_owned());
    }
    SideTable {
        must: vec![
            ("model", model),
            ("precision", case.dtype.map(|dtype| dtype.to_string())),
            ("batch size", Some(case.batch_size_per_device.to_string())),
            ("image size", Some(image_size.unwrap_or_else(not_known))),
            ("device", Some(case.device.map_or_else(not_known, |device| device.to_string()))),
        ],
        settings,
        ..SideTable::default()
    }
}

fn take_case(side: &mut Side, set: &mut SideTable, name: Case, case: ResultCase) -> anyhow::Result<()> {
    ensure!(
        case.dtype.is_some(),
        "{name} has no single runs: this is DLPerf's own result, which holds medians alone: give the folder of its logs"
    );
    let schema = case.schema;
    ensure!(
        schema <= NEWEST_WITHOUT_KIND,
        "result format {schema} where this ringmark reads up to {NEWEST_WITHOUT_KIND}: use the ringmark that wrote it"
    );
    let images = f64::from(case.batch_size_per_device) * f64::from(name.ranks());
    // No speedup is shown, so nobody needs to know what it would be relative to.
    let of_no_interest = case.base.and_then(figures::missing_base);
    let warnings = case.warnings.into_iter().filter(|warning| Some(warning) != of_no_interest.as_ref());
    let mut parts = vec![(name.to_string(), case.runs, warnings.collect(), case.reliability_warnings)];
    parts.extend(
        case.without_communication.map(|baseline| {
            (format!("{name} no-comm"), baseline.runs, baseline.warnings, baseline.reliability_warnings)
        }),
    );
    for (name, runs, warnings, reliability_warnings) in parts {
        let mut figures = Vec::new();
        for run in runs {
            match (&run.left_out, of_run(&run, images)) {
                (Some(why), _) => side.left_out.push(format!("{}: {why}", side.path.display())),
                (None, Some(run)) => figures.push(run),
                (None, None) => anyhow::bail!("run {} of {name} counts and has no speed above 0", run.run),
            }
            side.started.extend(run.started.filter(|_| run.left_out.is_none()).and_then(moment));
        }
        if !figures.is_empty() {
            let taken = set.case(&name);
            taken.reliability_warnings =
                reliability_warnings.into_iter().filter(|it| !it.is_of_scaling_alone).collect();
            (taken.runs, taken.warnings, taken.environment) = (figures, warnings, case.environment.clone());
        }
    }
    Ok(())
}

/// `None` where a time is none. A result of before the times of iterations were in it has the mean alone, of a rate that
/// was rounded.
fn of_run(run: &ResultRun, images: f64) -> Option<RunFigures> {
    let (mean, percentiles) = match &run.iteration_seconds {
        Some(times) => (times.mean, Some([times.p50, times.p75, times.p90, times.p95])),
        None => (images / run.speed?, None),
    };
    let figures = RunFigures::of(images / mean, Seconds(mean), percentiles)?;
    Some(RunFigures { joules_per_image: run.joules_per_image, ..figures })
}

/// A value without quotes; 25 and 25.0 are the same.
pub fn word(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

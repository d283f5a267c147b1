//! Training runs as a side: the JSON that `ringmark extract` makes of a folder of logs and records.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, ensure};
use ringmark_core::benchmark::Profile;
use ringmark_core::benchmark::exchange::{ExchangeConfig, NcclAlgorithm};
use ringmark_core::benchmark::kv_store::KvStore;
use ringmark_core::dimension::{Case, DeviceKind, Seconds};
use ringmark_core::file::schema;
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::read::analyse::comparison::side::{NOT_KNOWN, RunFigures, Side, SideTable};
use crate::read::analyse::figures;
use crate::read::analyse::result_json::{self, JsonRow, JsonRun};
use crate::read::load::content::{RESULT, model_of};
use crate::read::load::environment::moment;

/// What a message calls the file.
const NAME: &str = "result of ringmark extract";

/// Versions 1 and 2: `{"rn50": {"1n1g": {..}, ..}, ..}`.
type FirstResultFile = BTreeMap<String, BTreeMap<Case, Map<String, Value>>>;

/// Reads the rows of the JSON of `ringmark extract`, of every version.
pub fn read_rows(mut input: impl Read) -> anyhow::Result<Vec<JsonRow>> {
    #[derive(Deserialize)]
    struct Head {
        kind: Option<IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct ResultFile {
        rows: Vec<JsonRow>,
    }
    let mut text = Vec::new();
    input.read_to_end(&mut text).context("cannot be read")?;
    let head: Head = serde_json::from_slice(&text).with_context(|| format!("not a {NAME}"))?;
    if head.kind.is_some() {
        return Ok(schema::read_document::<ResultFile>(&text[..], RESULT, result_json::SCHEMA, NAME)?.rows);
    }
    let file: FirstResultFile = serde_json::from_slice(&text).with_context(|| format!("not a {NAME}"))?;
    let cases = file.into_iter().flat_map(|(group, cases)| cases.into_iter().map(move |case| (group.clone(), case)));
    cases.map(|(group, (case, fields))| first_row(group, case, fields)).collect()
}

/// A row of version 1 or 2.
fn first_row(group: String, case: Case, mut fields: Map<String, Value>) -> anyhow::Result<JsonRow> {
    ensure!(
        fields.contains_key("dtype"),
        "{case} has no single runs: this is DLPerf's own result, which holds medians alone: give the folder of its logs"
    );
    let schema = fields.get("schema").and_then(Value::as_u64).unwrap_or_default();
    ensure!(
        schema <= NEWEST_WITHOUT_KIND,
        "result format {schema} where this ringmark reads up to {NEWEST_WITHOUT_KIND}: use the ringmark that wrote it"
    );
    let model = model_of(&group).with_context(|| format!("no network is called {group}"))?;
    fields.extend([("model".to_owned(), model.keyword().into()), ("case".to_owned(), case.to_string().into())]);
    fields.insert("group".to_owned(), group.into());
    let row = serde_json::from_value(Value::Object(fields));
    let mut row: JsonRow = row.with_context(|| format!("not a {NAME}"))?;
    row.settings = renamed(row.settings);
    row.environment = renamed(row.environment);
    Ok(row)
}

/// Takes in the rows of a result.
pub fn take_rows(side: &mut Side, rows: Vec<JsonRow>) -> anyhow::Result<()> {
    let mut groups: Vec<(String, Vec<JsonRow>)> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|(known, _)| *known == row.group) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((row.group.clone(), vec![row])),
        }
    }
    for (_, mut rows) in groups {
        rows.sort_by_key(|row| (row.case.ranks(), row.case));
        let mut set = None;
        for mut row in rows {
            row.settings = completed(row.settings, row.device);
            take_row(side, set.get_or_insert_with(|| empty_set(&row)), row)?;
        }
        side.sets.extend(set.filter(|set: &SideTable| !set.cases.is_empty()));
    }
    Ok(())
}

/// What version 1 called settings and facts of the environment, with what they are called now.
const RENAMED: [(&str, &str); 4] = [
    ("collective", "backend"),
    ("piece_kb", "chunk_kb"),
    ("sums by", "all-reduce by"),
    ("threads of a rank", "threads per rank"),
];

/// Version of the newest result without a kind.
const NEWEST_WITHOUT_KIND: u64 = 2;

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
fn empty_set(row: &JsonRow) -> SideTable {
    let mut settings: BTreeMap<String, String> =
        row.settings.iter().map(|(name, value)| (name.clone(), word(value))).collect();
    for told_elsewhere in ["model", "batch_size", "dtype"] {
        settings.remove(told_elsewhere);
    }
    let image_size = settings.remove("image_size");
    if let Some(profile) = row.profile {
        settings.insert("profile".to_owned(), if profile == Profile::Quick { "quick" } else { "full" }.to_owned());
    }
    SideTable {
        must: vec![
            ("model", Some(row.model.facts().title.to_owned())),
            ("precision", Some(row.dtype.to_string())),
            ("batch size", Some(row.batch_size_per_device.to_string())),
            ("image size", Some(image_size.unwrap_or_else(not_known))),
            ("device", Some(row.device.map_or_else(not_known, |device| device.to_string()))),
        ],
        settings,
        ..SideTable::default()
    }
}

fn take_row(side: &mut Side, set: &mut SideTable, row: JsonRow) -> anyhow::Result<()> {
    let name = row.case;
    let images = f64::from(row.batch_size_per_device) * f64::from(name.ranks());
    // No speedup is shown, so nobody needs to know what it would be relative to.
    let of_no_interest = row.base.and_then(figures::missing_base);
    let warnings = row.warnings.into_iter().filter(|warning| Some(warning) != of_no_interest.as_ref());
    let mut parts = vec![(name.to_string(), row.runs, warnings.collect(), row.reliability_warnings)];
    parts.extend(
        row.without_communication.map(|baseline| {
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
            side.started.extend(run.started_unix_seconds.filter(|_| run.left_out.is_none()).and_then(moment));
        }
        if !figures.is_empty() {
            let taken = set.case(&name);
            taken.reliability_warnings =
                reliability_warnings.into_iter().filter(|it| !it.is_of_scaling_alone).collect();
            (taken.runs, taken.warnings, taken.environment) = (figures, warnings, row.environment.clone());
        }
    }
    Ok(())
}

/// `None` where a time is none. A result of before the times of iterations were in it has the mean alone, of a rate that
/// was rounded.
fn of_run(run: &JsonRun, images: f64) -> Option<RunFigures> {
    let (mean, percentiles) = match &run.iteration_seconds {
        Some(times) => (times.mean, Some(times.percentiles())),
        None => (images / run.images_per_second?.0, None),
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

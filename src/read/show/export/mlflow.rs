//! MLflow's file store (mlflow/store/tracking/file_store.py): an experiment for the result, with an MLflow run for each
//! counted run. Its folders `params`, `metrics` and `tags` contain one file per name; each line of a metric is
//! `milliseconds value step`; `meta.yaml` describes the run. Names are derived from the runs, so exporting a result
//! again replaces its earlier export.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::Seconds;
use ringmark_core::file::sha256;
use ringmark_core::untrusted_text::printable;
use serde::Serialize;
use serde_json::Value as Json;

use crate::read::load::environment::EnvironmentText;
use crate::read::show::export::figure::{ExportedSeries, RELIABILITY_WARNINGS};
use crate::read::show::export::time_line::{Period, TimeLine, milliseconds};

/// Length limit of MLflow for the value of a parameter or a tag.
const MAX_VALUE_LENGTH: usize = 5000;

/// `FINISHED` in mlflow/entities/run_status.py.
const FINISHED: u32 = 3;

/// MLflow experiment that contains the runs of a result.
pub struct Experiment {
    name: String,
    id: String,
    /// URI of the store's folder.
    store: String,
}

pub struct RunToExport<'a> {
    /// Path of the log relative to the result's folder.
    pub log: &'a Path,
    pub period: Period,
    pub series: &'a ExportedSeries,
    /// Options by their names in the record.
    pub options: BTreeMap<String, Json>,
    pub environment: EnvironmentText,
    /// Record with the losses of each iteration and epoch.
    pub record: Option<&'a RunRecord>,
}

impl RunToExport<'_> {
    /// Returns the run's name: `1n2g/rn50_b8_bf16_1`.
    fn name(&self) -> String {
        self.log.with_extension("").to_string_lossy().into_owned()
    }
}

/// Path of a file relative to the store's folder, and its content.
type File = (PathBuf, String);

impl Experiment {
    /// Creates the experiment for the result `name` in `store`, an absolute path.
    pub fn new(name: &str, store: &Path) -> Experiment {
        let name = format!("ringmark/{name}");
        // MLflow's own IDs have 18 digits; migrate-filestore stores the number in a database column, which limits its
        // size.
        let hash = sha256::hash_text(&name);
        let id = u64::from_str_radix(&hash[..14], 16).map(|number| format!("{:018}", 100_000_000_000_000_000 + number));
        Experiment { name, id: id.unwrap_or(hash), store: uri(store) }
    }

    /// Returns the metadata file of the experiment; `started` is the start of its first run.
    pub fn file(&self, started: Seconds) -> File {
        let Experiment { name, id, store } = self;
        let time = milliseconds(started);
        let meta = format!(
            "artifact_location: {location}\ncreation_time: {time}\nexperiment_id: {id}\nlast_update_time: {time}\nlifecycle_stage: \
             active\nname: {name}\n",
            location = quoted(&format!("{store}/{id}")),
            id = quoted(id),
            name = quoted(name),
        );
        (PathBuf::from(id).join("meta.yaml"), meta)
    }

    /// Returns the folder of a run relative to the store; the caller creates a folder `artifacts` in it.
    pub fn folder(&self, run: &RunToExport) -> PathBuf {
        Path::new(&self.id).join(self.run_id(run))
    }

    fn run_id(&self, run: &RunToExport) -> String {
        sha256::hash_text(&format!("{}\n{}\n{}", self.name, run.name(), run.period.start.0))[..32].to_owned()
    }

    /// Returns every file of a run except artifacts. `meta.yaml` is last, because MLflow ignores a run without it.
    pub fn run(&self, run: &RunToExport) -> Vec<File> {
        let (name, id, folder) = (run.name(), self.run_id(run), self.folder(run));
        let below = |kind: &str, name: &str| folder.join(kind).join(name);
        let short = |text: &str| text.chars().take(MAX_VALUE_LENGTH).collect::<String>();
        let options = run.options.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (below("params", name), short(&text))
        });
        let labels = run.series.labels.iter().filter(|(name, _)| !run.options.contains_key(*name));
        let labels = labels.map(|(name, value)| (below("params", name), short(value)));
        let environment = run.environment.iter().map(|(name, words)| {
            let words = words.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            (below("tags", &format!("ringmark.{}", tag_name(name))), short(&words))
        });
        let own =
            [("mlflow.runName", name.as_str()), ("mlflow.source.name", "ringmark"), ("mlflow.source.type", "LOCAL")];
        let own = own.map(|(name, value)| (below("tags", name), value.to_owned()));
        let reliability = run.series.detail(RELIABILITY_WARNINGS);
        let reliability = reliability.map(|reasons| (below("tags", "ringmark.reliability_warnings"), short(reasons)));
        let metrics = metrics(run).into_iter().map(|(name, lines)| (below("metrics", &name), lines));
        let mut files: Vec<File> =
            options.chain(labels).chain(environment).chain(own).chain(reliability).chain(metrics).collect();
        files.push((folder.join("meta.yaml"), self.meta(&id, &name, run.period)));
        files
    }

    fn meta(&self, id: &str, name: &str, period: Period) -> String {
        let (start, end) = (milliseconds(period.start), milliseconds(period.end));
        let (experiment, artifacts) = (quoted(&self.id), quoted(&format!("{}/{}/{id}/artifacts", self.store, self.id)));
        format!(
            "artifact_uri: {artifacts}\nend_time: {end}\nentry_point_name: ''\nexperiment_id: {experiment}\nlifecycle_stage: \
             active\nrun_id: {id}\nrun_name: {name}\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: {start}\nstatus: \
             {FINISHED}\ntags: []\nuser_id: ''\n",
            id = quoted(id),
            name = quoted(name),
        )
    }
}

/// Returns the run's figures at its end time; for training also loss and time of each iteration, and the validation of
/// each epoch.
fn metrics(run: &RunToExport) -> BTreeMap<String, String> {
    let mut metrics: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |name: &str, time: Seconds, value: f64, step: u32| {
        let line = format!("{} {} {step}\n", milliseconds(time), number(value));
        metrics.entry(name.to_owned()).or_default().push_str(&line);
    };
    for figure in &run.series.figures {
        add(&figure.name(), run.period.end, figure.value.number(), 0);
    }
    let Some(record) = run.record else { return metrics };
    let time_line = TimeLine::from_record(record);
    for (iteration, Period { start, end }) in record.iterations.iter().zip(&time_line.iterations) {
        add("iteration_seconds", *end, end.0 - start.0, iteration.iteration);
        add("loss", *end, record.header.global_loss(&iteration.loss).unwrap_or(f64::NAN), iteration.iteration);
    }
    for times in &time_line.epochs {
        let (step, validation) = (times.epoch.iteration, times.epoch.validation);
        add("epoch_loss", times.training.end, times.epoch.loss.unwrap_or(f64::NAN), step);
        if let Some(validation) = validation {
            let mut add = |name: &str, value: f64| add(name, times.validation.end, value, step);
            add("validation_loss", validation.loss.unwrap_or(f64::NAN));
            for (name, ratio) in
                [("validation_top_1_ratio", validation.top_1), ("validation_top_5_ratio", validation.top_5)]
            {
                if let Some(ratio) = ratio {
                    add(name, ratio);
                }
            }
        }
    }
    metrics
}

/// Formats a number for Python's `float`.
fn number(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { value.to_string() }
}

/// Replaces characters that MLflow does not allow in the name of a tag.
fn tag_name(name: &str) -> String {
    name.replace(|letter: char| !(letter.is_ascii_alphanumeric() || "_-. ".contains(letter)), "_")
}

/// Quotes text as a YAML string on one line.
fn quoted(text: &str) -> String {
    format!("'{}'", printable(text).replace('\'', "''"))
}

/// Returns the URI of an absolute path: `file:///a/b%20c`.
fn uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(byte);
    let text = |byte: &u8| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    format!("file://{}", path.as_os_str().as_bytes().iter().map(text).collect::<String>())
}

/// Returns the options of a run by their names in the record, without those that are `null`.
pub fn options(config: &impl Serialize) -> BTreeMap<String, Json> {
    let fields = serde_json::to_value(config).ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

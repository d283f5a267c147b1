//! A folder of MLflow's file store (mlflow/store/tracking/file_store.py): an experiment for the result, and in it a run for each
//! run that counts. A folder `params`, `metrics` and `tags` each with a file a name; a metric's lines are `milliseconds value
//! step`; `meta.yaml` says what the run is. Written again, a result takes the place of what it wrote before, because names follow
//! from the runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::Seconds;
use ringmark_core::file::sha256;
use ringmark_core::untrusted_text::printable;
use serde::Serialize;
use serde_json::Value as Json;

use crate::read::load::environment::EnvironmentText;
use crate::read::show::export::figure::{Series, Value};
use crate::read::show::export::time_line::{Period, TimeLine, milliseconds};

/// Most letters that MLflow takes as the value of a parameter or a tag.
const LONGEST: usize = 5000;

/// `FINISHED` in mlflow/entities/run_status.py.
const FINISHED: u32 = 3;

/// Where runs of a result go.
pub struct Experiment {
    name: String,
    id: String,
    /// The store's folder as a URI.
    store: String,
}

/// A run that counts.
pub struct RunToExport<'a> {
    /// Path of its log below the folder of the result.
    pub log: &'a Path,
    /// From when to when.
    pub period: Period,
    /// Its figures.
    pub series: &'a Series,
    /// What it was asked, by the names in its record.
    pub options: BTreeMap<String, Json>,
    /// What it ran on.
    pub environment: EnvironmentText,
    /// The course of training.
    pub record: Option<&'a RunRecord>,
}

impl RunToExport<'_> {
    /// `1n2g/rn50_b8_bf16_1`.
    fn name(&self) -> String {
        self.log.with_extension("").to_string_lossy().into_owned()
    }
}

/// A file below the store's folder, and what is in it.
type File = (PathBuf, String);

impl Experiment {
    /// For the result `name`, in the folder `store`, an absolute path.
    pub fn new(name: &str, store: &Path) -> Experiment {
        let name = format!("ringmark/{name}");
        // MLflow's own have 18 digits; the number has to fit into a column of a database, where migrate-filestore puts it.
        let hash = sha256::of_text(&name);
        let id = u64::from_str_radix(&hash[..14], 16).map(|number| format!("{:018}", 100_000_000_000_000_000 + number));
        Experiment { name, id: id.unwrap_or(hash), store: uri(store) }
    }

    /// The file that makes it one; `started` is when its first run began.
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

    /// Folder of a run below that of the store; a folder `artifacts` has to be in it.
    pub fn folder(&self, run: &RunToExport) -> PathBuf {
        Path::new(&self.id).join(self.run_id(run))
    }

    fn run_id(&self, run: &RunToExport) -> String {
        sha256::of_text(&format!("{}\n{}\n{}", self.name, run.name(), run.period.start.0))[..32].to_owned()
    }

    /// Every file of a run but for artifacts, the one last that makes it one.
    pub fn run(&self, run: &RunToExport) -> Vec<File> {
        let (name, id, folder) = (run.name(), self.run_id(run), self.folder(run));
        let below = |kind: &str, name: &str| folder.join(kind).join(name);
        let short = |text: &str| text.chars().take(LONGEST).collect::<String>();
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
        let metrics = metrics(run).into_iter().map(|(name, lines)| (below("metrics", &name), lines));
        let mut files: Vec<File> = options.chain(labels).chain(environment).chain(own).chain(metrics).collect();
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

/// The run's figures, as of its end; of training also loss and time of every iteration, and what was predicted behind every epoch.
fn metrics(run: &RunToExport) -> BTreeMap<String, String> {
    let mut metrics: BTreeMap<String, String> = BTreeMap::new();
    let mut add = |name: &str, time: Seconds, value: f64, step: u32| {
        let line = format!("{} {} {step}\n", milliseconds(time), number(value));
        metrics.entry(name.to_owned()).or_default().push_str(&line);
    };
    for figure in &run.series.figures {
        let value = match figure.value {
            Value::Float(number) => number,
            Value::Integer(number) => number as f64,
            Value::Flag(flag) => f64::from(u8::from(flag)),
        };
        add(&figure.name(), run.period.end, value, 0);
    }
    let Some(record) = run.record else { return metrics };
    let time_line = TimeLine::of(record);
    for (iteration, Period { start, end }) in record.iterations.iter().zip(&time_line.iterations) {
        add("iteration_seconds", *end, end.0 - start.0, iteration.iteration);
        add("loss", *end, record.header.joined_loss(&iteration.loss).unwrap_or(f64::NAN), iteration.iteration);
    }
    for times in &time_line.epochs {
        let (step, validation) = (times.epoch.iteration, times.epoch.validation);
        add("epoch_loss", times.training.end, times.epoch.loss.unwrap_or(f64::NAN), step);
        if let Some(validation) = validation {
            let mut add = |name: &str, value: f64| add(name, times.validation.end, value, step);
            add("validation_loss", validation.loss.unwrap_or(f64::NAN));
            add("validation_top_1_ratio", validation.top_1);
            add("validation_top_5_ratio", validation.top_5);
        }
    }
    metrics
}

/// As Python reads it.
fn number(value: f64) -> String {
    if value.is_nan() { "nan".to_owned() } else { value.to_string() }
}

/// What a tag may be called: letters, digits, and a few others.
fn tag_name(name: &str) -> String {
    name.replace(|letter: char| !(letter.is_ascii_alphanumeric() || "_-. ".contains(letter)), "_")
}

/// A text in YAML, on one line.
fn quoted(text: &str) -> String {
    format!("'{}'", printable(text).replace('\'', "''"))
}

/// `file:///a/b%20c` of an absolute path.
fn uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(byte);
    let text = |byte: &u8| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    format!("file://{}", path.as_os_str().as_bytes().iter().map(text).collect::<String>())
}

/// Options of a run, by their names in its record; those at `null` are left out.
pub fn options(config: &impl Serialize) -> BTreeMap<String, Json> {
    let fields = serde_json::to_value(config).ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
    fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

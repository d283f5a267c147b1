//! Training runs as one side of a comparison, from the JSON of `ringmark extract`.

use std::collections::BTreeMap;

use ringmark_core::benchmark::exchange::{ExchangeConfig, NcclAlgorithm};
use ringmark_core::dimension::{DeviceKind, Seconds, Strategy};
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde_json::Value;

use crate::read::analyze::comparison::side::{PROGRAM, RunFigures, Side, SideGroup};
use crate::read::analyze::result_row::RowRuns;
use crate::read::analyze::run_group;
use crate::read::analyze::training::result_json::{JsonRow, JsonRun};
use crate::read::load::environment::moment;

/// Adds the rows of a result to `side`.
pub fn add_rows(side: &mut Side, rows: Vec<JsonRow>) -> anyhow::Result<()> {
    let rank = |(known, _): (&String, &[JsonRow]), (own, _): (&String, &JsonRow)| (known == own).then_some(0);
    for (_, mut rows) in run_group::group(rows, |row| row.group.clone(), rank) {
        rows.sort_by_key(|row| (row.case.ranks(), row.case));
        let mut group = None;
        for mut row in rows {
            row.runs.settings = completed(row.runs.settings, row.head.device);
            // All cases of a table ran under the same conditions as the first.
            let table = group.get_or_insert_with(|| {
                let batch = Some(row.batch.shape());
                let (head, settings) = (&row.head, &row.runs.settings);
                SideGroup::from_runs((row.model, row.dtype), batch, head.device, head.profile, settings)
            });
            add_row(side, table, row)?;
        }
        side.groups.extend(group.filter(|group: &SideGroup| !group.cases.is_empty()));
    }
    Ok(())
}

/// Adds missing settings of the exchange, from before there was an option for them, and gives the strategy its names of
/// today. Another program has none.
fn completed(mut settings: BTreeMap<String, Value>, device: Option<DeviceKind>) -> BTreeMap<String, Value> {
    if settings.contains_key(PROGRAM) {
        return settings;
    }
    if settings.contains_key("bucket_mb") {
        let earlier = settings.remove("kv_store");
        settings.extend(earlier.map(|strategy| ("strategy".to_owned(), strategy)));
        for (option, value) in [
            ("tail_mb", Value::from(0)),
            ("nccl_algo", NcclAlgorithm::default().keyword().into()),
            ("strategy", Strategy::AllReduce.keyword().into()),
        ] {
            settings.entry(option.to_owned()).or_insert(value);
        }
        if let Some(Value::String(strategy)) = settings.get_mut("strategy") {
            *strategy = Strategy::name_of_today(strategy);
        }
        let of = |option: &str| settings.get(option).and_then(Value::as_str);
        let exchange =
            of("backend").and_then(|backend| backend.parse().ok()).zip(of("strategy").and_then(|it| it.parse().ok()));
        if let (None, Some((backend, strategy)), Some(device)) = (of("hierarchical"), exchange, device) {
            let exchange = ExchangeConfig { backend, ..ExchangeConfig::default() }.on(device, strategy);
            settings.extend(exchange.hierarchical.map(|it| ("hierarchical".to_owned(), it.keyword().into())));
        }
    }
    settings
}

fn add_row(side: &mut Side, group: &mut SideGroup, row: JsonRow) -> anyhow::Result<()> {
    let name = row.case;
    let work = row.batch.shape().work(name);
    let matrix_rate = row.figures.arithmetic.and_then(|it| it.matrix_product_teraflops_per_second);
    let RowRuns { warnings, runs, environment, .. } = row.runs;
    let mut parts = vec![(name.to_string(), runs, warnings, row.reliability.reliability_warnings)];
    parts.extend(
        row.without_communication.map(|baseline| {
            (format!("{name} baseline"), baseline.runs, baseline.warnings, baseline.reliability_warnings)
        }),
    );
    let hosts = Some(row.case.nodes);
    for (name, runs, warnings, reliability_warnings) in parts {
        let mut figures = Vec::new();
        for run in runs {
            match (&run.left_out, run_figures(&run, work)) {
                (Some(why), _) => side.left_out.push(format!("{}: {why}", side.path.display())),
                (None, Some(run)) => figures.push(run),
                (None, None) => anyhow::bail!("run {} of {name} counts but has no speed above 0", run.run),
            }
            side.started.extend(run.started_unix_seconds.filter(|_| run.left_out.is_none()).and_then(moment));
        }
        if !figures.is_empty() {
            let taken = group.case(&name);
            taken.reliability_warnings =
                reliability_warnings.into_iter().filter(|it| !it.is_of_scaling_alone).collect();
            (taken.runs, taken.warnings, taken.environment) = (figures, warnings, environment.clone());
            (taken.hosts, taken.matrix_rate) = (hosts, matrix_rate);
        }
    }
    Ok(())
}

/// Returns `None` if a time is invalid. Older results have no iteration times; the mean is then derived from the
/// rounded rate.
fn run_figures(run: &JsonRun, work: f64) -> Option<RunFigures> {
    let (mean, percentiles) = match &run.iteration_seconds {
        Some(times) => (times.mean, Some(times.percentiles())),
        None => (work / run.units_per_second?.0, None),
    };
    let figures = RunFigures::new(work / mean, Seconds(mean), percentiles)?;
    Some(RunFigures { joules_per_unit: run.joules_per_unit, ..figures })
}

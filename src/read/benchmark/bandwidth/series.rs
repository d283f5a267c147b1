//! Figures of collective operations, by message size, out of place and in place.

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, SideFigures};
use ringmark_core::dimension::Case;

use crate::read::analyze::reliability;
use crate::read::analyze::results::ResultFolder;
use crate::read::benchmark::bandwidth::load::BandwidthResult;
use crate::read::load::environment::{self, EnvironmentText};
use crate::read::show::export::figure::{self, ExportedSeries, Scope};

pub fn series(result: &ResultFolder) -> Vec<ExportedSeries> {
    let cases = result.records_of::<BandwidthResult>().into_iter().flat_map(|records| &records.cases);
    cases.flat_map(|(case, record)| record_series(&result.name, *case, record)).collect()
}

fn record_series(name: &str, case: Case, record: &BandwidthRecord) -> Vec<ExportedSeries> {
    let operands = record.config.operands();
    let mut environment = EnvironmentText::new();
    environment::add_environment(&mut environment, &record.environment);
    environment::add_ranks(&mut environment, &record.ranks);
    environment::add_nccl(&mut environment, &record.nccl);
    let warnings = reliability::record_warnings(case, case, record);
    let mut all = Vec::new();
    for message in &record.results {
        for (place, timing) in message.sides() {
            let figures = timing.and_then(|timing| SideFigures::new(message.bytes, timing, record.bus()));
            let Some(SideFigures { time, algbw, busbw, wrong, .. }) = figures else { continue };
            let labels = vec![
                ("result", name.to_owned()),
                ("benchmark", BenchmarkKind::Bandwidth.to_string()),
                ("operation", operands.operation.to_string()),
                ("reduction", operands.reduction_name()),
                ("case", case.to_string()),
                ("element", message.element.clone()),
                ("backend", record.backend.to_string()),
                ("strategy", record.config.strategy.strategy.to_string()),
                ("device", record.ranks.first().map(|rank| rank.device.to_string()).unwrap_or_default()),
                ("place", place.to_owned()),
                ("message_bytes", message.bytes.0.to_string()),
            ];
            let mut series = ExportedSeries::new(Scope::Message, labels, Some(record.started));
            series.describe(&environment);
            series.add(&figure::RANKS, Some(case.ranks()));
            series.add(&figure::MESSAGE, Some(message.bytes.0));
            series.add(&figure::CALL, Some(time.0));
            series.add(&figure::ALGORITHM_BANDWIDTH, Some(1e9 * algbw.0));
            series.add(&figure::BUS_BANDWIDTH, Some(1e9 * busbw.0));
            series.add(&figure::WRONG, wrong);
            series.add_reliability(&warnings);
            all.push(series);
        }
    }
    all
}

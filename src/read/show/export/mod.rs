//! Figures of a folder in the formats of other programs, for `ringmark extract --format`. No format computes a figure:
//! MLPerf's log has the values of a run's record, the others the same figures.
//!
//! | module | contents |
//! |---|---|
//! | [`figure`] | figures with unit, meaning and labels, the input of every format |
//! | [`runs`] | figures of training and inference, by case and by run |
//! | [`prometheus`] | Prometheus's text format |
//! | [`influx`] | InfluxDB's line protocol |
//! | [`time_line`] | start and end of each iteration and epoch of a run |
//! | [`mlflow`] | MLflow's file store |
//! | [`mllog`] | MLPerf's log lines |

use ringmark_core::keyword_enum;

pub mod figure;
pub mod influx;
pub mod mlflow;
pub mod mllog;
pub mod prometheus;
pub mod runs;
pub mod time_line;

keyword_enum!(
    /// Format of another program.
    ExportFormat {
        /// Prometheus's text exposition format, also valid as OpenMetrics: for node_exporter's textfile collector.
        Prometheus = "prometheus" | "openmetrics",
        /// InfluxDB's line protocol.
        Influx = "influx" | "influxdb",
        /// MLflow's file store.
        Mlflow = "mlflow",
        /// MLPerf's log lines, of runs that went by epochs.
        Mllog = "mllog",
    }
);

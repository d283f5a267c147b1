//! The figures of a folder in the formats of other programs, which `ringmark extract --format` prints or writes. All are made
//! of the same figures; none works anything out.
//!
//! | module | what it is for |
//! |---|---|
//! | [`figure`] | a figure, with its unit and meaning, and what it is of: what every format is made of |
//! | [`training`] | figures of training: of every case, and of every run |
//! | [`scoring`] | the same of inference |
//! | [`bandwidth`] | figures of collective operations, by message size |
//! | [`prometheus`] | Prometheus's text format |
//! | [`influx`] | InfluxDB's line protocol |
//! | [`time_line`] | when each iteration and epoch of a run began and ended |
//! | [`mlflow`] | a folder of MLflow's file store |
//! | [`mllog`] | MLPerf's log lines |

use ringmark_core::keyword_enum;

pub mod bandwidth;
pub mod figure;
pub mod influx;
pub mod mlflow;
pub mod mllog;
pub mod prometheus;
pub mod scoring;
pub mod time_line;
pub mod training;

keyword_enum!(
    /// Whose format it is.
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

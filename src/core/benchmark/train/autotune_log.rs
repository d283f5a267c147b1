//! Log of `--autotune-log`: the trials of a search as CSV in the columns of Horovod's autotune log
//! (`parameter_manager.cc`), so that programs that select these columns by name can read it. Columns that only ringmark
//! has follow them.

use std::io::Write;

use crate::benchmark::exchange::{ExchangeConfig, Switch};
use crate::benchmark::train::config::TrainConfig;
use crate::benchmark::train::record::{Trial, Tuning};
use crate::dimension::{Bytes, Seconds};

/// Horovod's columns, then ringmark's.
pub const HEADER: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
                          tensor_fusion_threshold,score,step_ms,tail_mb,chunk_kb,strategy,servers,wire,gradient_compression,\
                          overlap,nccl_algo";

/// A search; without trials only the header is written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AutotuneLog {
    /// Trials in the order they ran.
    pub rows: Vec<Row>,
    /// Index of the best trial; `None` while the search is running.
    pub best: Option<usize>,
}

/// One trial of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Configuration of the trial, with automatic choices resolved.
    pub config: TrainConfig,
    /// Size of all gradients of a step in fp32, independent of their wire format, so that scores rank steps.
    pub gradients: Bytes,
    /// Median step time of the slowest rank.
    pub step: Seconds,
}

impl AutotuneLog {
    /// Creates the log of a search for bucket, tail and chunk size within a run of `config`.
    pub fn for_sizes(config: &TrainConfig, gradients: Bytes, tuning: &Tuning) -> AutotuneLog {
        let row = |trial: &Trial| Row { config: config.with_sizes(trial), gradients, step: trial.step };
        AutotuneLog { rows: tuning.trials.iter().map(row).collect(), best: Some(tuning.chosen) }
    }

    /// Writes the whole log; the last row repeats the best one, as in Horovod.
    pub fn write(&self, output: &mut impl Write) -> anyhow::Result<()> {
        writeln!(output, "{HEADER}")?;
        for row in self.rows.iter().chain(self.best.and_then(|best| self.rows.get(best))) {
            writeln!(output, "{}", row.text())?;
        }
        Ok(())
    }
}

impl TrainConfig {
    /// Returns the configuration with the sizes of a trial.
    pub fn with_sizes(&self, trial: &Trial) -> TrainConfig {
        let Trial { bucket_mb, chunk_kb, tail_mb, .. } = *trial;
        let exchange = ExchangeConfig { bucket_mb, chunk_kb, tail_mb, ..self.exchange };
        TrainConfig { exchange, ..self.clone() }
    }
}

impl Row {
    /// Returns the gradient bytes per microsecond of a whole step (MB/s), Horovod's score.
    ///
    /// For 100 MB in a step of 0.25 s the score is `100e6 / 0.25e6 = 400`.
    pub fn score(&self) -> f64 {
        self.gradients.0 as f64 / (self.step.0 * 1e6)
    }

    /// Formats a row; the columns of features that ringmark does not have (torus, negotiation cache, cycle) are 0.
    fn text(&self) -> String {
        let TrainConfig { exchange, strategy, gradient_compression, overlap, .. } = &self.config;
        let ExchangeConfig { bucket_mb, tail_mb, chunk_kb, wire, nccl_algo, .. } = exchange;
        let is_hierarchical = exchange.hierarchical == Some(Switch::On);
        // Codes are gathered, values are reduced, both by the same backend.
        let [reduces, gathers] = [gradient_compression.is_none(), !gradient_compression.is_none()]
            .map(|is_done| u8::from(is_hierarchical && is_done));
        let (score, step_ms, servers) = (self.score(), self.step.0 * 1e3, strategy.server_ranks());
        format!(
            "{reduces},{gathers},0,0,0,{bucket_mb},{score:.3},{step_ms:.3},{tail_mb},{chunk_kb},{},{servers},{wire},\
             {gradient_compression},{overlap},{nccl_algo}",
            strategy.strategy
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::strategy::StrategyConfig;
    use crate::dimension::{DeviceKind, Strategy};

    #[test]
    fn columns_match_horovod_and_last_row_is_best() {
        let config = TrainConfig::default().on(DeviceKind::Cpu);
        let trial = |bucket_mb, step| Trial { bucket_mb, chunk_kb: 250, tail_mb: 0.5, step: Seconds(step) };
        let tuning = Tuning { trials: vec![trial(25.0, 0.25), trial(0.5, 0.2), trial(4.0, 0.21)], chosen: 1 };
        let mut log = AutotuneLog::for_sizes(&config, Bytes(100_000_000), &tuning);
        let text = |log: &AutotuneLog| {
            let mut text = Vec::new();
            log.write(&mut text).expect("written");
            String::from_utf8(text).expect("text")
        };
        let best = "1,0,0,0,0,0.5,500.000,200.000,0.5,250,all-reduce,0,fp32,none,on,ring\n";
        let expected = format!(
            "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
             tensor_fusion_threshold,score,step_ms,tail_mb,chunk_kb,strategy,servers,wire,gradient_compression,overlap,\
             nccl_algo\n\
             1,0,0,0,0,25,400.000,250.000,0.5,250,all-reduce,0,fp32,none,on,ring\n\
             {best}\
             1,0,0,0,0,4,476.190,210.000,0.5,250,all-reduce,0,fp32,none,on,ring\n\
             {best}"
        );
        assert_eq!(text(&log), expected);
        log.best = None;
        assert_eq!(text(&log).lines().count(), 4, "while it goes on");
        assert_eq!(text(&AutotuneLog::default()), format!("{HEADER}\n"));
    }

    #[test]
    fn flags_mark_hierarchical_settings() {
        let start = |change: fn(&mut TrainConfig)| {
            let mut config = TrainConfig::default();
            change(&mut config);
            let row = Row { config: config.on(DeviceKind::Cpu), gradients: Bytes(1), step: Seconds(1.0) };
            row.text().split(',').take(2).collect::<Vec<_>>().join(",")
        };
        assert_eq!(start(|_| {}), "1,0");
        assert_eq!(start(|config| config.exchange.hierarchical = Some(Switch::Off)), "0,0");
        assert_eq!(start(|config| config.gradient_compression = "2bit".parse().expect("a code")), "0,1");
        let servers = StrategyConfig { strategy: Strategy::DistSync, servers: Some(1), ..StrategyConfig::default() };
        let with_servers = TrainConfig { strategy: servers, ..TrainConfig::default() }.on(DeviceKind::Cpu);
        let row = Row { config: with_servers, gradients: Bytes(1), step: Seconds(1.0) }.text();
        assert!(row.starts_with("0,0,") && row.contains(",dist_sync,1,"), "{row}");
    }
}

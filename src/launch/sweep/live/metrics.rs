//! Progress of a command as Prometheus metrics. Pure functions.

use ringmark_core::dimension::{Bytes, Seconds, UnitsPerSecond, WorkUnit};
use ringmark_core::line::prometheus::{MetricFamily, MetricKind, Sample};
use ringmark_core::progress::{AllRanks, JobProgress, Progress, RankProgress};

type Labels = Vec<(&'static str, String)>;

/// Returns all metrics in Prometheus' text format.
pub fn text(progress: &Progress) -> String {
    families(progress).iter().map(MetricFamily::to_string).collect()
}

fn families(progress: &Progress) -> Vec<MetricFamily> {
    let command_family = |name, help, kind, value: Option<f64>| {
        let labels = vec![("benchmark", progress.benchmark.to_string())];
        family(name, help, kind, value.map(|value| Sample { labels, value }).into_iter().collect())
    };
    let (gauge, counter) = (MetricKind::Gauge, MetricKind::Counter);
    let jobs = progress.jobs;
    let mut families = vec![
        command_family(
            "ringmark_sweep_start_time_seconds",
            "Start time of the launcher since the Unix epoch.",
            gauge,
            Some(progress.started.0),
        ),
        command_family(
            "ringmark_sweep_seconds_left",
            "Estimated time until the last run ends; absent if unknown.",
            gauge,
            progress.left.map(|left| left.0),
        ),
        command_family("ringmark_sweep_runs", "Total runs of this launcher.", gauge, Some(jobs.of as f64)),
        command_family(
            "ringmark_runs_finished_total",
            "Finished runs of this launcher that count.",
            counter,
            Some(jobs.finished as f64),
        ),
    ];
    families.extend(progress.job.iter().flat_map(job_families));
    families
}

fn family(name: &str, help: &str, kind: MetricKind, samples: Vec<Sample>) -> MetricFamily {
    MetricFamily { name: name.to_owned(), help: help.to_owned(), unit: None, kind, samples }
}

fn job_families(job: &JobProgress) -> Vec<MetricFamily> {
    let labels = labels(job);
    let gauge = |name, help, samples| family(name, help, MetricKind::Gauge, samples);
    let run_family = |name, help, value: Option<f64>| {
        let sample = value.map(|value| Sample { labels: labels.clone(), value });
        gauge(name, help, sample.into_iter().collect())
    };
    let ranks_family = |name, help, value: &dyn Fn(&RankProgress) -> Option<f64>| {
        let sample = |rank: &RankProgress| {
            Some(Sample { labels: [&labels[..], &rank_labels(rank)].concat(), value: value(rank)? })
        };
        gauge(name, help, job.ranks.iter().filter_map(sample).collect())
    };
    let of_unit = |[images, tokens]: [&'static str; 2]| match job.unit {
        WorkUnit::Image => images,
        WorkUnit::Token => tokens,
    };
    let speed = |speed: Option<UnitsPerSecond>| speed.map(|speed| speed.0);
    let seconds = |seconds: Option<Seconds>| seconds.map(|seconds| seconds.0);
    let all_ranks_family =
        |name, help, value: &dyn Fn(&AllRanks) -> f64| run_family(name, help, job.all_ranks.as_ref().map(value));
    let stages = job.ranks.iter().map(|rank| Sample {
        labels: [&labels[..], &rank_labels(rank), &[("stage", rank.stage.clone())]].concat(),
        value: 1.0,
    });
    vec![
        run_family(
            of_unit(["ringmark_job_images_per_second", "ringmark_job_tokens_per_second"]),
            of_unit([
                "Images per second of all ranks in the last iteration.",
                "Tokens per second of all ranks in the last iteration.",
            ]),
            speed(job.units_per_second),
        ),
        run_family(
            of_unit(["ringmark_job_mean_images_per_second", "ringmark_job_mean_tokens_per_second"]),
            of_unit([
                "Mean images per second of all ranks in the current run, after warm-up.",
                "Mean tokens per second of all ranks in the current run, after warm-up.",
            ]),
            speed(job.mean_units_per_second),
        ),
        run_family("ringmark_job_elapsed_seconds", "Time since the start of the current run.", Some(job.elapsed.0)),
        run_family(
            "ringmark_job_iteration",
            "Current iteration of the slowest rank; 0 before the first.",
            Some(job.iteration.into()),
        ),
        run_family(
            "ringmark_job_iterations",
            "Total iterations of the current run, including warm-up.",
            job.iterations.map(f64::from),
        ),
        run_family(
            "ringmark_job_report_interval_seconds",
            "Interval between two reports of a rank; longer in jobs with many ranks.",
            Some(job.report_interval.0),
        ),
        all_ranks_family(
            "ringmark_job_ranks",
            "Ranks that have reported; only in jobs without metrics per rank.",
            &|all| all.ranks as f64,
        ),
        all_ranks_family(
            "ringmark_job_ranks_waiting",
            "Ranks that wait for other ranks; only in jobs without \
             metrics per rank.",
            &|all| all.waiting as f64,
        ),
        all_ranks_family(
            "ringmark_job_ranks_silent",
            "Ranks that have missed several reports; only in jobs without \
             metrics per rank.",
            &|all| all.silent as f64,
        ),
        ranks_family("ringmark_rank_iteration", "Current iteration; 0 before the first.", &|rank| {
            Some(rank.iteration.into())
        }),
        gauge("ringmark_rank_stage_info", "Current stage of the rank, or how it ended.", stages.collect()),
        ranks_family("ringmark_rank_waiting", "1 if the rank waits for other ranks, otherwise 0.", &|rank| {
            Some(f64::from(u8::from(rank.is_waiting)))
        }),
        ranks_family("ringmark_rank_step_seconds", "Duration of the last iteration.", &|rank| seconds(rank.step)),
        ranks_family(
            "ringmark_rank_before_allreduce_seconds",
            "Time of the last iteration before its first all-reduce, in which the rank waits for no other; the whole \
             iteration without communication.",
            &|rank| seconds(rank.before_allreduce),
        ),
        ranks_family(
            "ringmark_rank_seconds_since_report",
            "Time since the rank's last report; the interval is ringmark_job_report_interval_seconds.",
            &|rank| Some(rank.since_report.0),
        ),
        ranks_family("ringmark_rank_host_available_memory_bytes", "Available memory of the rank's host.", &|rank| {
            rank.available_memory.map(|Bytes(bytes)| bytes as f64)
        }),
    ]
}

fn labels(job: &JobProgress) -> Labels {
    let Some(run) = job.run else { return vec![("case", job.case.to_string()), ("run", job.title.clone())] };
    let mut labels = vec![
        ("model", run.model.to_string()),
        ("dtype", run.dtype.to_string()),
        ("batch_size", run.batch.size.number().to_string()),
        ("case", run.case.to_string()),
        ("strategy", run.strategy.to_string()),
        ("run", run.run.to_string()),
    ];
    if run.baseline {
        labels.push(("baseline", "1".to_owned()));
    }
    labels
}

fn rank_labels(rank: &RankProgress) -> Labels {
    let name = if rank.is_server { format!("server {}", rank.rank) } else { rank.rank.to_string() };
    vec![("rank", name), ("host", rank.host.clone())]
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::BenchmarkKind;

    use super::*;
    use crate::launch::sweep::live::lines::tests::{job, progress};

    #[test]
    fn every_metric_has_its_labels() {
        let text = text(&progress());
        let run =
            "model=\"resnet50_v1b\",dtype=\"fp32\",batch_size=\"8\",case=\"2n2g\",strategy=\"all-reduce\",run=\"3\"";
        for line in [
            "ringmark_sweep_seconds_left{benchmark=\"train\"} 370".to_owned(),
            "# TYPE ringmark_runs_finished_total counter\nringmark_runs_finished_total{benchmark=\"train\"} 2"
                .to_owned(),
            format!("# TYPE ringmark_job_images_per_second gauge\nringmark_job_images_per_second{{{run}}} 80.5"),
            format!("ringmark_job_iteration{{{run}}} 12"),
            format!("ringmark_rank_iteration{{{run},rank=\"3\",host=\"b\"}} 12"),
            format!("ringmark_rank_stage_info{{{run},rank=\"3\",host=\"b\",stage=\"backward\"}} 1"),
            format!("ringmark_rank_waiting{{{run},rank=\"0\",host=\"a\"}} 1"),
            format!("ringmark_rank_before_allreduce_seconds{{{run},rank=\"3\",host=\"b\"}} 0.381"),
            format!("ringmark_rank_iteration{{{run},rank=\"server 0\",host=\"b\"}} 0"),
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
    }

    #[test]
    fn unknown_metrics_are_omitted() {
        let begun = Progress::begin(BenchmarkKind::Score, "a".to_owned(), 7, Seconds(1.7e9));
        let text_of_begun = text(&begun);
        assert!(text_of_begun.contains("ringmark_runs_finished_total{benchmark=\"score\"} 0\n"), "{text_of_begun}");
        assert!(!text_of_begun.contains("seconds_left") && !text_of_begun.contains("ringmark_job_"), "{text_of_begun}");
        let job = JobProgress { run: None, ..job() };
        let text = text(&Progress { job: Some(job), ..begun });
        assert!(text.contains("ringmark_job_iteration{case=\"2n2g\",run=\"2n2g\"} 12\n"), "{text}");
    }
}

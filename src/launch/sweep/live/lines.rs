//! Formats the progress of a command as terminal lines: current run, speed, slowest rank, position of each host's
//! ranks. Pure.

use std::collections::{BTreeMap, HashMap};

use ringmark_core::dimension::{Seconds, UnitsPerSecond, WorkUnit};
use ringmark_core::number_text::{count, four_digits, marked, milliseconds, percent};
use ringmark_core::progress::{AllRanks, FinishedRun, JobProgress, Progress, RankProgress};
use ringmark_core::untrusted_text::printable_lines;

/// Maximum number of host lines; hosts with the slowest ranks are preferred.
const HOSTS: usize = 16;

/// A text of a line with its drop priority: if the line is too long, the largest number is dropped first, 0 never.
type LinePart = (u32, String);

/// Returns the lines for a terminal of this size: the [`headline`], and below it as many lines as fit.
pub fn lines(progress: &Progress, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = vec![headline(progress, columns)];
    if let (Some(job), None) = (&progress.job, &progress.end) {
        lines.extend(figures(job, columns));
        lines.extend(job.all_ranks.as_ref().map(|all| all_ranks(all, columns)));
        // The cursor occupies the last row.
        let room = rows.saturating_sub(lines.len() + 1).min(HOSTS);
        lines.extend(hosts(job, columns, room));
    }
    lines
}

/// Returns `run 3/10 - 1n2g - backward - 12/30 - 1.2 images/s ±4 % - run 0:40 - sweep about 6:10 left`; omits the
/// least important parts if that is longer than `columns`.
pub fn headline(progress: &Progress, columns: usize) -> String {
    let jobs = progress.jobs;
    let mut parts = vec![(0, format!("run {}/{}", jobs.number, jobs.of))];
    if let Some(job) = &progress.job {
        parts.push((0, job.title.clone()));
        parts.extend(job.stage.iter().map(|stage| (2, stage.clone())));
        if job.iteration > 0 {
            let of = job.iterations.map(|all| format!("/{all}")).unwrap_or_default();
            let word = if of.is_empty() { "iteration " } else { "" };
            parts.push((0, format!("{word}{}{of}", job.iteration)));
        }
        let (speed, margin) = speed(job);
        parts.extend(speed.map(|speed| (0, speed)));
        parts.extend(margin.map(|margin| (3, margin)));
        parts.push((4, format!("run {}", clock(job.elapsed))));
    }
    parts.extend(progress.left.map(|left| (1, format!("sweep about {} left", clock(left)))));
    fitted(parts, " - ", columns)
}

/// Returns the header of a sweep's table, whose titles have `width` columns; `first` is its first row.
pub fn table_head(first: &FinishedRun, width: usize) -> String {
    let top_1 = first.top_1.map_or("", |_| "   top-1");
    format!(
        "{:width$}  {:>10}  {:>7}  {:>10}{top_1}  {:>7}  result",
        "",
        first.unit.per_second(),
        "speedup",
        "efficiency",
        "seconds"
    )
}

/// Returns `1n2g run 1 of 2       20.50     1.71      85.4 %       12  ok`. Impossible efficiencies are in parentheses.
pub fn table_row(run: &FinishedRun, width: usize) -> String {
    let efficiency_text = |efficiency: f64| marked(percent(efficiency), run.has_impossible_efficiency);
    let none = || "-".to_owned();
    let speedup = run.speedup.map_or_else(none, |speedup| format!("{speedup:.2}"));
    let efficiency = run.efficiency.map_or_else(none, efficiency_text);
    let top_1 = run.top_1.map(|share| format!("  {:>6}", percent(share))).unwrap_or_default();
    let took = run.took.map_or_else(none, |took| format!("{:.0}", took.0));
    let result = if run.warnings == 0 { "ok".to_owned() } else { count(run.warnings, "warning") };
    let (title, speed) = (&run.title, four_digits(run.units_per_second.0));
    format!("{title:width$}  {speed:>10}  {speedup:>7}  {efficiency:>10}{top_1}  {took:>7}  {result}")
}

/// Returns the same figures as a line of its own: `1n2g run 1 of 2: 20.50 images/s, 12 s`.
pub fn table_line(run: &FinishedRun) -> String {
    let top_1 = run.top_1.map(|share| format!(", top-1 {}", percent(share))).unwrap_or_default();
    let took = run.took.map_or_else(|| "finished before".to_owned(), |took| format!("{:.0} s", took.0));
    format!("{}: {}{top_1}, {took}", run.title, units_per_second(run.units_per_second, run.unit))
}

/// Returns the mean speed so far, and the half-width of its 95 % confidence interval if that is below 100 %.
fn speed(job: &JobProgress) -> (Option<String>, Option<String>) {
    match (job.mean_units_per_second, job.units_per_second) {
        (Some(mean), _) => {
            let margin = job.margin.filter(|margin| *margin < 1.0);
            (Some(units_per_second(mean, job.unit)), margin.map(|margin| format!("\u{b1}{:.0} %", 100.0 * margin)))
        }
        (None, Some(last)) => (Some(units_per_second(last, job.unit) + " (warm-up)"), None),
        (None, None) => (None, None),
    }
}

/// Returns `now 20.80 images/s - step 402 ms - slowest: rank 11 on b, 381 ms of its own`.
fn figures(job: &JobProgress, columns: usize) -> Option<String> {
    let workers = || job.ranks.iter().filter(|rank| !rank.is_server);
    let mut parts = Vec::new();
    if let (Some(_), Some(now)) = (job.mean_units_per_second, job.units_per_second) {
        parts.push((1, format!("now {}", units_per_second(now, job.unit))));
    }
    let step = workers().filter_map(|rank| rank.step).max_by(|one, other| one.0.total_cmp(&other.0));
    parts.extend(step.map(|step| (2, format!("step {}", milliseconds(step)))));
    let slowest = JobProgress::slowest(workers());
    parts.extend(slowest.map(|(rank, time)| {
        (0, format!("slowest: rank {} on {}, {} of its own", rank.rank, rank.host, milliseconds(time)))
    }));
    (!parts.is_empty()).then(|| format!("  {}", fitted(parts, " - ", columns.saturating_sub(2))))
}

/// Returns `  all 65536 ranks on 8192 hosts  iteration 12-13  all-reduce 65528, backward 8  1 silent`.
fn all_ranks(all: &AllRanks, columns: usize) -> String {
    let [first, last] = all.iterations;
    let mut stages: Vec<(&String, &usize)> = all.stages.iter().collect();
    stages.sort_by(|one, other| other.1.cmp(one.1));
    let stages: Vec<String> = stages.into_iter().map(|(stage, ranks)| format!("{stage} {ranks}")).collect();
    let mut parts = vec![
        (0, format!("all {} ranks on {} hosts", all.ranks, all.hosts)),
        (2, format!("iteration {first}-{last}")),
        (3, stages.join(", ")),
    ];
    parts.extend((all.silent > 0).then(|| (1, format!("{} silent", all.silent))));
    format!("  {}", fitted(parts, "  ", columns.saturating_sub(2)))
}

/// Returns a line for each host, in the order of its ranks.
fn hosts(job: &JobProgress, columns: usize, room: usize) -> Vec<String> {
    let silence = job.silence();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut hosts: Vec<(&str, Vec<&RankProgress>)> = Vec::new();
    for rank in &job.ranks {
        let place = *places.entry(&rank.host).or_insert_with(|| {
            hosts.push((&rank.host, Vec::new()));
            hosts.len() - 1
        });
        hosts[place].1.push(rank);
    }
    let others = job.all_ranks.as_ref().map_or(0, |all| all.hosts.saturating_sub(hosts.len()));
    let width = hosts.iter().map(|(host, _)| host.chars().count()).max().unwrap_or_default();
    let is_full = hosts.len() > room || others > 0;
    let left_out = if is_full { hosts.len().saturating_sub(room.saturating_sub(1)) } else { 0 };
    if left_out > 0 {
        let slowness = |(_, ranks): &(&str, Vec<&RankProgress>)| {
            let since_report =
                ranks.iter().map(|rank| rank.since_report.0).filter(|since_report| *since_report > silence.0);
            let own = ranks.iter().filter_map(|rank| rank.before_allreduce).map(|time| time.0);
            (since_report.fold(0.0, f64::max), own.fold(0.0, f64::max))
        };
        let mut slowest: Vec<usize> = (0..hosts.len()).collect();
        slowest.sort_by(|one, other| {
            slowness(&hosts[*other]).partial_cmp(&slowness(&hosts[*one])).unwrap_or(one.cmp(other))
        });
        slowest.truncate(hosts.len() - left_out);
        let mut index = 0..;
        hosts.retain(|_| index.next().is_some_and(|index| slowest.contains(&index)));
    }
    let mut lines: Vec<String> =
        hosts.iter().map(|(host, ranks)| host_line(host, width, ranks, silence, columns)).collect();
    if left_out + others > 0 && room > 0 {
        lines.push(format!("  and {} more hosts", left_out + others));
    }
    lines
}

/// Returns `  b  8 ranks  iteration 12-13  backward 5, all-reduce 3  slowest rank 11, 381 ms`.
fn host_line(host: &str, width: usize, ranks: &[&RankProgress], silence: Seconds, columns: usize) -> String {
    let (servers, workers): (Vec<&RankProgress>, Vec<&RankProgress>) = ranks.iter().partition(|rank| rank.is_server);
    let count = |number: usize, what: &str| match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{number} {what}s")),
    };
    let counts: Vec<String> =
        [count(workers.len(), "rank"), count(servers.len(), "server")].into_iter().flatten().collect();
    let mut parts = vec![(0, format!("{host:width$}")), (2, counts.join(", "))];
    let iterations = workers.iter().map(|rank| rank.iteration);
    if let (Some(first), Some(last)) = (iterations.clone().min(), iterations.max())
        && last > 0
    {
        let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
        parts.push((1, format!("iteration {range}")));
    }
    let mut stages: BTreeMap<&str, usize> = BTreeMap::new();
    workers.iter().for_each(|rank| *stages.entry(&rank.stage).or_default() += 1);
    let stages: Vec<String> = match stages.len() {
        1 => stages.into_keys().map(str::to_owned).collect(),
        _ => stages.into_iter().map(|(stage, ranks)| format!("{stage} {ranks}")).collect(),
    };
    parts.extend((!stages.is_empty()).then(|| (3, stages.join(", "))));
    let slowest = JobProgress::slowest(workers.iter().copied());
    parts.extend(slowest.map(|(rank, time)| (1, format!("slowest rank {}, {}", rank.rank, milliseconds(time)))));
    let silent = ranks.iter().max_by(|one, other| one.since_report.0.total_cmp(&other.since_report.0));
    parts.extend(silent.filter(|rank| rank.since_report.0 > silence.0).map(|rank| {
        let kind = if rank.is_server { "server" } else { "rank" };
        (0, format!("{kind} {} silent for {:.0} s", rank.rank, rank.since_report.0))
    }));
    format!("  {}", fitted(parts, "  ", columns.saturating_sub(2)))
}

/// Joins the texts, dropping those that do not fit; truncates the line if the remaining ones are still too long.
fn fitted(mut parts: Vec<LinePart>, separator: &str, columns: usize) -> String {
    loop {
        let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
        // The margin follows its mean without a dash.
        let line = printable_lines(&texts.join(separator).replace(" - \u{b1}", " \u{b1}")).replace(['\n', '\t'], " ");
        let least = parts.iter().map(|(rank, _)| *rank).max().filter(|rank| *rank > 0);
        match least {
            Some(least) if line.chars().count() > columns => parts.retain(|(rank, _)| *rank != least),
            _ => return line.chars().take(columns).collect(),
        }
    }
}

fn units_per_second(speed: UnitsPerSecond, unit: WorkUnit) -> String {
    format!("{} {}", four_digits(speed.0), unit.per_second())
}

/// Formats a duration as `0:40` or `1:02:03`.
pub fn clock(Seconds(seconds): Seconds) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
pub(super) mod tests {
    use expect_test::expect;
    use ringmark_core::benchmark::BenchmarkKind;
    use ringmark_core::dimension::{Bytes, UnitsPerSecond};
    use ringmark_core::progress::{CommandEnd, JobCounts};

    use super::*;

    /// Returns a job in which rank 3, on the second of two hosts, is behind, and a server runs on the same host.
    pub fn job() -> JobProgress {
        let rank = |rank: u32, iteration, stage: &str, own| RankProgress {
            rank,
            is_server: false,
            host: if rank < 2 { "a" } else { "b" }.to_owned(),
            iteration,
            stage: stage.to_owned(),
            is_waiting: stage == "all-reduce",
            step: Some(Seconds(0.4)),
            before_allreduce: Some(Seconds(own)),
            since_report: Seconds(0.5),
            available_memory: Some(Bytes(1 << 33)),
        };
        let server = RankProgress {
            is_server: true,
            host: "b".to_owned(),
            step: None,
            before_allreduce: None,
            ..rank(0, 0, "waiting for pushes from workers", 0.0)
        };
        JobProgress {
            title: "2n2g".to_owned(),
            run: Some("2n2g/rn50_b8_fp32_3.log".parse().expect("a name")),
            case: "2n2g".parse().expect("a case"),
            elapsed: Seconds(40.0),
            iteration: 12,
            iterations: Some(30),
            warmup: 2,
            stage: Some("backward".to_owned()),
            units_per_second: Some(UnitsPerSecond(80.5)),
            mean_units_per_second: Some(UnitsPerSecond(79.0)),
            unit: WorkUnit::Image,
            margin: Some(0.04),
            report_interval: Seconds(1.0),
            all_ranks: None,
            ranks: vec![
                rank(0, 12, "all-reduce", 0.2),
                rank(1, 12, "all-reduce", 0.25),
                rank(2, 13, "forward", 0.3),
                rank(3, 12, "backward", 0.381),
                server,
            ],
        }
    }

    pub fn progress() -> Progress {
        let begun = Progress::begin(BenchmarkKind::Train, "a".to_owned(), 7, Seconds(1.7e9));
        let jobs = JobCounts { number: 3, of: 10, finished: 2 };
        Progress { jobs, left: Some(Seconds(370.0)), job: Some(job()), ..begun }
    }

    #[test]
    fn every_column_of_the_table_has_a_name() {
        let run = FinishedRun {
            title: "1n2g run 1 of 2".to_owned(),
            units_per_second: UnitsPerSecond(20.5),
            unit: WorkUnit::Image,
            speedup: Some(1.71),
            efficiency: Some(0.854),
            has_impossible_efficiency: false,
            took: Some(Seconds(12.3)),
            warnings: 0,
            top_1: None,
        };
        let warned = FinishedRun { warnings: 2, took: None, ..run.clone() };
        let impossible = FinishedRun { efficiency: Some(1.2), has_impossible_efficiency: true, ..run.clone() };
        let rows = [&run, &warned, &impossible].map(|run| table_row(run, 15)).join("\n");
        let text = [table_head(&run, 15), rows].join("\n");
        expect![[r"
                               images/s  speedup  efficiency  seconds  result
            1n2g run 1 of 2       20.50     1.71      85.4 %       12  ok
            1n2g run 1 of 2       20.50     1.71      85.4 %        -  2 warnings
            1n2g run 1 of 2       20.50     1.71   (120.0 %)       12  ok"]]
        .assert_eq(&text);
    }

    #[test]
    fn wide_terminal_shows_everything() {
        assert_eq!(
            lines(&progress(), 120, 24),
            [
                "run 3/10 - 2n2g - backward - 12/30 - 79.00 images/s ±4 % - run 0:40 - sweep about 6:10 left",
                "  now 80.50 images/s - step 400 ms - slowest: rank 3 on b, 381 ms of its own",
                "  a  2 ranks  iteration 12  all-reduce  slowest rank 1, 250 ms",
                "  b  2 ranks, 1 server  iteration 12-13  backward 1, forward 1  slowest rank 3, 381 ms",
            ]
        );
    }

    #[test]
    fn small_terminal_shows_the_most_important_parts() {
        assert_eq!(
            lines(&progress(), 66, 24),
            [
                "run 3/10 - 2n2g - 12/30 - 79.00 images/s - sweep about 6:10 left",
                "  now 80.50 images/s - slowest: rank 3 on b, 381 ms of its own",
                "  a  2 ranks  iteration 12  all-reduce  slowest rank 1, 250 ms",
                "  b  2 ranks, 1 server  iteration 12-13  slowest rank 3, 381 ms",
            ]
        );
        assert_eq!(
            lines(&progress(), 50, 24),
            [
                "run 3/10 - 2n2g - 12/30 - 79.00 images/s",
                "  slowest: rank 3 on b, 381 ms of its own",
                "  a  2 ranks  iteration 12  slowest rank 1, 250 ms",
                "  b  iteration 12-13  slowest rank 3, 381 ms",
            ]
        );
        for columns in 0..130 {
            let shown = lines(&progress(), columns, 24);
            assert!(shown.iter().all(|line| line.chars().count() <= columns.max(2)), "{columns}: {shown:?}");
        }
        for rows in 0..6 {
            assert!(lines(&progress(), 120, rows).len() <= rows.saturating_sub(1).max(2), "{rows}");
        }
        expect!["  and 2 more hosts"].assert_eq(&lines(&progress(), 120, 4)[2]);
    }

    #[test]
    fn only_hosts_with_the_slowest_ranks_are_shown() {
        let mut job = job();
        let one = job.ranks[0].clone();
        job.ranks = (0..40)
            .map(|rank| RankProgress {
                rank,
                host: format!("h{rank:02}"),
                before_allreduce: Some(Seconds(f64::from(rank * 7 % 40) / 100.0)),
                ..one.clone()
            })
            .collect();
        job.ranks[0].since_report = Seconds(7.2);
        let shown = hosts(&job, 120, HOSTS);
        assert_eq!((shown.len(), shown[15].as_str()), (HOSTS, "  and 25 more hosts"));
        expect!["  h00  1 rank  iteration 12  all-reduce  rank 0 silent for 7 s"].assert_eq(&shown[0]);
        // Rank 17 has 0.39.
        assert!(shown.iter().any(|line| line.starts_with("  h17 ")), "{shown:?}");
        let names: Vec<&str> = shown[..15].iter().map(|line| &line[2..5]).collect();
        assert!(names.is_sorted(), "{names:?}");
    }

    #[test]
    fn large_job_has_a_summary_line_and_its_worst_hosts() {
        let mut job = job();
        let one = job.ranks[0].clone();
        job.ranks =
            (0..4096).map(|rank| RankProgress { rank, host: format!("h{}", rank / 8), ..one.clone() }).collect();
        (job.report_interval, job.ranks[4000].since_report) = (Seconds(16.0), Seconds(90.0));
        job.ranks[9].since_report = Seconds(15.0);
        job.keep_slowest_hosts(32);
        let shown = lines(&Progress { job: Some(job), ..progress() }, 120, 24);
        expect!["  all 4096 ranks on 512 hosts  iteration 12-12  all-reduce 4096  1 silent"].assert_eq(&shown[2]);
        expect!["  h500  8 ranks  iteration 12  all-reduce  slowest rank 4007, 200 ms  rank 4000 silent for 90 s"]
            .assert_eq(&shown[6]);
        expect!["  and 508 more hosts"].assert_eq(&shown[7]);
    }

    #[test]
    fn unknown_values_are_not_shown() {
        let begun = JobProgress {
            iteration: 0,
            stage: None,
            units_per_second: None,
            mean_units_per_second: None,
            margin: None,
            ranks: Vec::new(),
            ..job()
        };
        let progress = Progress { left: None, job: Some(begun), ..progress() };
        assert_eq!(lines(&progress, 120, 24), ["run 3/10 - 2n2g - run 0:40"]);
        let of_input = JobProgress { iterations: None, ..job() };
        let progress = Progress { job: Some(of_input), ..progress };
        assert!(headline(&progress, 120).starts_with("run 3/10 - 2n2g - backward - iteration 12 - 79.00 images/s"));
        let ended = Progress { end: Some(CommandEnd { failure: None, is_interrupted: false }), ..progress };
        assert_eq!(lines(&ended, 120, 24).len(), 1);
    }

    #[test]
    fn control_characters_in_names_are_removed() {
        let mut job = job();
        (job.title, job.ranks[0].host) = ("a\u{1b}[2Jb".to_owned(), "c\nd".to_owned());
        let shown = lines(&Progress { job: Some(job), ..progress() }, 120, 24);
        assert!(shown.iter().all(|line| !line.contains(char::is_control)), "{shown:?}");
    }

    #[test]
    fn durations_are_rounded() {
        assert_eq!([40.0, 3723.0].map(|seconds| clock(Seconds(seconds))), ["0:40", "1:02:03"]);
        assert_eq!([0.00512, 0.381, 12.0].map(|s| milliseconds(Seconds(s))), ["5.12 ms", "381 ms", "12,000 ms"]);
    }
}

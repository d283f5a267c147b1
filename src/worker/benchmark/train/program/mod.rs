//! A run of another program (`ringmark run`): starts it on the ranks, reads its iterations from its output, and writes the
//! record of a training run. Phases inside an iteration are not visible from outside.

mod command;
mod process;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ringmark_core::benchmark::train::program::TO_THE_END;
use ringmark_core::benchmark::train::{
    Iteration, ProgramStart, ProgramUse, RunEnd, RunHeader, RunRecord, TimeSource, TrainConfig,
};
use ringmark_core::benchmark::{measured_and_warmup, warning};
use ringmark_core::dimension::{Phases, Seconds, UnitsPerSecond};
use ringmark_core::host::{BindChoice, LauncherAddress, Stage, unix_time};
use ringmark_core::line::dlperf::{self, Batch};
use ringmark_core::line::program::{LineReader, ProgramIteration};
use ringmark_core::shell;
use ringmark_core::stats::summary::median;
use ringmark_core::stats::warm_up::warm_up;
use ringmark_core::untrusted_text::printable_lines;
use ringmark_core::validity;
use serde::{Deserialize, Serialize};

use crate::benchmark::train::program::command::ProgramCommand;
use crate::benchmark::train::program::process::RunningProgram;
use crate::host::facts;
use crate::job::cores::CoreRequest;
use crate::job::session::{RequestedLabel, Session, SessionRequest};
use crate::job::world::World;
use crate::job::{environment, heartbeat, supervise};

/// Time in which a rank reports that it has ended the program, after the program of another rank failed.
const NOTICE: Duration = Duration::from_secs(3);

/// Runs one rank from start to end.
pub fn run(config: &TrainConfig, label: RequestedLabel, launcher: Option<LauncherAddress>) -> Result<()> {
    // A program that starts several ranks needs the cores of all of them.
    let bind = if config.program.start == ProgramStart::Rank { config.bind } else { BindChoice::None };
    let cores = CoreRequest { threads: config.threads, cores_divided_by: config.cores_divided_by, bind };
    let request = SessionRequest { computes: false, ..SessionRequest::without_sums(config.device, cores, launcher) };
    Session::run(request, |session| measure(config, label, session))
}

/// An iteration as a rank recorded it; several iterations of the program if it prints fewer lines.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct TimedLine {
    step: f64,
    loss: Option<f64>,
    /// Iterations of the program since the line before.
    iterations: f64,
    source: TimeSource,
    /// Seconds since the start of the program.
    arrival: f64,
}

/// Runs the program and writes the record. Returns the reason why the run is invalid, if any.
fn measure(config: &TrainConfig, label: RequestedLabel, session: &Session) -> Result<Option<String>> {
    let world = session.world;
    let config = config.on_ranks(world.ranks())?;
    let ranks = session.places()?;
    let config = TrainConfig { bind: config.bind.resolve(ranks.iter().map(|rank| &rank.binding)), ..config };
    let label = session.label(label, &ranks)?;
    let header = RunHeader::new(label, unix_time(), config, session.environment()?, ranks);
    session.print(&header_lines(&header));
    let command = ProgramCommand::new(&header.config.program, &header, session)?;
    let counters = session.start_counters()?;
    heartbeat::enter(Stage::Program);
    world.barrier();
    let own = if starts(&header, world) { follow(&command, &header, world)? } else { OwnLines::default() };
    world.sleeping_barrier();
    // Several ranks may have ended the program at once.
    while world.take_message() {}
    heartbeat::enter(Stage::Finishing);
    let counters = session.end_counters(counters)?;
    let all = world.gather_values(&own)?;
    let peak_memory = world.gather_values(&facts::peak_resident_of_children())?;
    let Some(first) = all.iter().position(|rank| !rank.lines.is_empty()) else {
        bail!(
            "the program printed no line with an iteration's time ({} expected): check --lines with a line of {}",
            header.config.program.lines,
            header
                .config
                .record
                .as_ref()
                .map_or("its output".into(), |record| record.with_extension("log").display().to_string())
        );
    };
    let end = RunEnd {
        peak_memory: if all.iter().all(|rank| rank.has_run) { peak_memory } else { Vec::new() },
        host_use: counters.hosts,
        rank_use: counters.ranks,
        ..RunEnd::default()
    };
    let record = record(header, &all, first, end);
    if world.rank() == 0 {
        print_lines(&record, if first == 0 { own.printed } else { 0 });
        summary_lines(&record).iter().for_each(|line| println!("# {}", printable_lines(line)));
        session.write(record.header.config.record.as_deref(), |output| record.write(output))?;
    }
    world.barrier();
    Ok(None)
}

/// Returns true if this rank starts a copy of the program.
fn starts(header: &RunHeader, world: &World) -> bool {
    match header.config.program.start {
        ProgramStart::Rank => true,
        ProgramStart::Host => world.local_rank() == 0,
        ProgramStart::Job => world.rank() == 0,
    }
}

/// Output of the program of one rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct OwnLines {
    has_run: bool,
    lines: Vec<TimedLine>,
    /// True if the program was ended after the requested iterations.
    is_ended: bool,
    first_line: f64,
    /// Iterations that rank 0 printed while the program ran.
    #[serde(skip)]
    printed: usize,
}

/// Runs the program of this rank to its end.
fn follow(command: &ProgramCommand, header: &RunHeader, world: &World) -> Result<OwnLines> {
    let config = &header.config;
    let wanted = if config.iterations == TO_THE_END { usize::MAX } else { config.iterations as usize };
    let mut reader = LineReader::new(&config.program.lines)?;
    let mut lines = Lines { header, last: None, own: OwnLines { has_run: true, ..OwnLines::default() } };
    let is_first = world.rank() == 0;
    let prefix = if config.program.start == ProgramStart::Job { String::new() } else { format!("{}: ", world.rank()) };
    let found = std::cell::Cell::new(0);
    let each = |time: Duration, line: &str| {
        println!("{}", dlperf::write_program_line(&format!("{prefix}{}", printable_lines(line))));
        heartbeat::count_progress();
        if let Some(iteration) = reader.read(line, time).filter(|_| found.get() < wanted) {
            lines.add(&iteration, is_first)?;
            found.set(lines.own.lines.len());
        }
        Ok(())
    };
    // The first rank with the requested lines decides for all, because all ranks iterate together.
    let is_over = || world.take_message() || (found.get() >= wanted && notify(world));
    let (status, is_ended) = RunningProgram::start(command)?.follow(each, is_over)?;
    if let Some(iteration) = reader.end().filter(|_| !is_ended) {
        lines.add(&iteration, is_first)?;
    }
    lines.own.is_ended = is_ended;
    if !status.success() && !is_ended && !is_notified_in_time(world) {
        bail!("{} {}", shell::join(&command.words), supervise::describe(status));
    }
    Ok(lines.own)
}

/// Sends all other ranks the request to end the program; returns true.
fn notify(world: &World) -> bool {
    (0..world.ranks()).filter(|rank| *rank != world.rank()).for_each(|rank| world.send(rank, 0));
    true
}

/// Returns true if another rank has ended the program, which ended this rank's too.
fn is_notified_in_time(world: &World) -> bool {
    let start = std::time::Instant::now();
    while start.elapsed() < NOTICE {
        if world.take_message() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Iterations of this rank so far.
struct Lines<'a> {
    header: &'a RunHeader,
    last: Option<ProgramIteration>,
    own: OwnLines,
}

impl Lines<'_> {
    /// Adds an iteration if its time is known: without a time in the line, the first line only starts the clock.
    fn add(&mut self, iteration: &ProgramIteration, is_printed: bool) -> Result<()> {
        let (config, case) = (&self.header.config, self.header.case);
        let (batch, joined) = (config.batch(), config.joined_batch(case.ranks()));
        if let Some(stated) = iteration.batch.filter(|stated| *stated != joined) {
            bail!(
                "the program states a global batch of {stated}, but {batch} on {case} is {joined}: correct --batch-size"
            );
        }
        if let Some(loss) = iteration.loss.filter(|loss| !loss.is_finite()) {
            bail!("the program's loss is {loss} in iteration {}", self.own.lines.len() + 1);
        }
        let last = self.last.replace(*iteration);
        let stride = last.and_then(|last| Some(iteration.step?.saturating_sub(last.step?)));
        let iterations = stride.filter(|stride| *stride > 0).unwrap_or(1) as f64;
        let since_last = last.map(|last| (iteration.arrival - last.arrival).as_secs_f64() / iterations);
        let (step, source) = match (iteration.timing, since_last) {
            (Some(timing), _) => {
                (timing.time(batch, case).0, if timing.is_time() { TimeSource::Times } else { TimeSource::Rates })
            }
            (None, Some(seconds)) => (seconds, TimeSource::Arrival),
            (None, None) => return Ok(()),
        };
        ensure!(step > 0.0 && step.is_finite(), "the time of iteration {} is {step} s", self.own.lines.len() + 1);
        let arrival = iteration.arrival.as_secs_f64();
        if self.own.lines.is_empty() {
            self.own.first_line = arrival;
        }
        self.own.lines.push(TimedLine { step, loss: iteration.loss, iterations, source, arrival });
        let number = self.own.lines.len() as u32;
        heartbeat::enter_in(number, Stage::Program);
        heartbeat::time_iteration(Seconds(step), None);
        if is_printed {
            println!("{}", iteration_line(self.header, number, step, iteration.loss));
            self.own.printed += 1;
        }
        Ok(())
    }
}

/// Formats DLPerf's line of an iteration.
fn iteration_line(header: &RunHeader, number: u32, step: f64, loss: Option<f64>) -> String {
    let batch = header.config.batch();
    let (number, speed) = (Batch::at_iteration(number, None), UnitsPerSecond(batch.work(header.case) / step));
    match loss {
        Some(loss) => dlperf::write(number, speed, batch.unit(), loss),
        None => dlperf::write_speed(number, speed, batch.unit()),
    }
}

/// Makes the record of the lines of all ranks. The times of ranks without as many lines are those of rank `first`.
fn record(header: RunHeader, all: &[OwnLines], first: usize, end: RunEnd) -> RunRecord {
    let of_first = &all[first].lines;
    let has_own = |rank: &&OwnLines| rank.lines.len() == of_first.len();
    let lines_of = |rank: usize| Some(&all[rank]).filter(has_own).map_or(of_first, |own| &own.lines);
    let iteration = |index: usize| {
        let by_rank = |value: fn(&TimedLine) -> f64| (0..all.len()).map(|rank| value(&lines_of(rank)[index])).collect();
        let step: Vec<f64> = by_rank(|line| line.step);
        let step: Vec<Seconds> = step.into_iter().map(Seconds).collect();
        Iteration {
            iteration: index as u32 + 1,
            phases: Phases::from_fn(|_| vec![Seconds(0.0); step.len()]),
            step,
            before_allreduce: Vec::new(),
            loss: by_rank(|line| line.loss.unwrap_or(f64::NAN)),
            loss_scale: 1.0,
            skipped: false,
        }
    };
    let iterations: Vec<Iteration> = (0..of_first.len()).map(iteration).collect();
    let steps: Vec<f64> = of_first.iter().map(|line| line.step).collect();
    let warmup = if header.config.program.finds_warmup { warm_up(&steps) as u32 } else { header.config.warmup };
    let strides: Vec<f64> = of_first.iter().skip(1).map(|line| line.iterations).collect();
    let later = of_first.get(1..).unwrap_or_default();
    let program = ProgramUse {
        source: of_first.last().map_or(TimeSource::Arrival, |line| line.source),
        iterations_per_line: median(&strides).unwrap_or(1.0),
        is_ended: all[first].is_ended,
        arrival: Seconds(of_first.last().map_or(0.0, |line| line.arrival) - all[first].first_line),
        claimed: Seconds(later.iter().map(|line| line.step * line.iterations).sum()),
        first_line: Seconds(all[first].first_line),
        ranks_with_lines: all.iter().filter(has_own).count() as u32,
    };
    let config = TrainConfig { iterations: iterations.len() as u32, warmup, ..header.config.clone() };
    let end = RunEnd { iterations: iterations.len() as u32, wall: program.arrival, program: Some(program), ..end };
    let mut record = RunRecord { header: RunHeader { config, ..header }, iterations, end: Some(end) };
    let warnings = validity::warnings(&record, warmup as usize);
    if let Some(end) = &mut record.end {
        end.warnings = warnings;
    }
    record
}

fn header_lines(header: &RunHeader) -> Vec<String> {
    let RunHeader { config, environment, ranks, .. } = header;
    let label = ringmark_core::benchmark::RunLabel { case: header.case, run: header.run, profile: header.profile };
    let mut lines = environment::title_lines(environment, config.model.facts().title, label);
    lines.push(format!("{}, {}", config.batch().per_process("rank"), config.dtype));
    lines.push(format!(
        "program, one per {}: {}; lines: {}",
        config.program.start,
        shell::join(&config.program.command.0),
        config.program.lines
    ));
    lines.extend(environment::lines(environment, ranks));
    lines.iter().map(|line| format!("# {line}")).collect()
}

/// Prints the iterations of which no line was printed while the program ran.
fn print_lines(record: &RunRecord, printed: usize) {
    for iteration in record.iterations.iter().skip(printed) {
        let loss = iteration.loss.first().copied().filter(|loss| loss.is_finite());
        println!("{}", iteration_line(&record.header, iteration.iteration, iteration.step[0].0, loss));
    }
}

fn summary_lines(record: &RunRecord) -> Vec<String> {
    let (config, Some(end)) = (&record.header.config, &record.end) else { return Vec::new() };
    let Some(program) = &end.program else { return Vec::new() };
    let found = if config.program.finds_warmup { " (found by MSER-5)" } else { "" };
    let source = match program.source {
        TimeSource::Times => "times in the program's lines",
        TimeSource::Rates => "work / rate in the program's lines",
        TimeSource::Arrival => "arrival of the program's lines",
    };
    let each = match program.iterations_per_line {
        1.0 => String::new(),
        number => format!(", each the mean of {number} iterations of the program"),
    };
    let mut lines = vec![
        format!(
            "{} iterations{found}{each}",
            measured_and_warmup(end.iterations.saturating_sub(config.warmup), config.warmup)
        ),
        format!(
            "times: {source}, of {} of {} ranks; {:.3} by their sum, {:.3} by arrival; first line after {:.3}",
            program.ranks_with_lines,
            record.header.ranks.len(),
            program.claimed,
            program.arrival,
            program.first_line
        ),
    ];
    let speed = record.speed(config.warmup as usize);
    lines.extend(speed.map(|speed| format!("speed: {:.2} {}", speed.0, config.batch().unit().per_second())));
    lines.extend(warning::lines(&end.warnings));
    lines
}

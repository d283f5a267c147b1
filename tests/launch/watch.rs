//! Progress of a running command: on its own terminal, watched from another process, and scraped. None of these
//! disturbs the command or later readers of the folder.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use expect_test::expect;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use ringmark_core::file::run_name::PROGRESS;
use ringmark_core::progress::{JobProgress, Progress};
use serde_json::Value;
use tempfile::{NamedTempFile, TempPath};

use crate::support::prerequisite::not_tested;
use crate::support::sandbox::{Sandbox, refused, ringmark, run, succeeds, wait_until, words};
use crate::support::schema;
use crate::support::temporary_folder::without_folder;

/// Hook that waits in the middle of the first run as long as the file `waits` exists.
const WAITING: &str = "while [ -e \"$folder/waits\" ]; do sleep 0.05; done";

/// A sweep with the real worker that runs until it is interrupted.
const ENDLESS: &str = "sweep --no-doctor --device cpu --model gpt2-tiny --batch-size 2 --sequence-length 16 --iters 1000000 \
                       --warmup 2 --threads 1 --cases 1n2g --runs 1 --hosts localhost:2";

/// A process that is ended with the test, including its children.
struct Running {
    child: Option<Child>,
    /// Standard output.
    printed: TempPath,
}

impl Running {
    fn start(command: &mut Command) -> Running {
        let (file, printed) = NamedTempFile::new().expect("a file").into_parts();
        // A process group of its own, so that it can be signaled with all processes that `script` starts.
        let command = command.stdin(Stdio::piped()).stdout(file).stderr(Stdio::piped()).process_group(0);
        Running { child: Some(command.spawn().expect("starts")), printed }
    }

    fn printed(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.printed).expect("readable")).into_owned()
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("running process");
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("running process");
    }

    fn type_in(&mut self, text: &str) {
        let child = self.child.as_mut().expect("running process");
        child.stdin.as_mut().expect("a pipe").write_all(text.as_bytes()).expect("typed");
    }

    /// Returns exit status, standard output and standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        let Output { status, stderr, .. } =
            self.child.take().expect("running process").wait_with_output().expect("exits");
        (status.code(), self.printed(), String::from_utf8_lossy(&stderr).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

impl Sandbox {
    /// Returns a sweep of two runs that waits in the first.
    fn waiting_sweep(&self, options: &str) -> Command {
        fs::write(self.path("waits"), "").expect("written");
        fs::write(self.path("hook"), WAITING).expect("written");
        self.short_sweep(&format!("--cases 1n1g --runs 2 {options}"))
    }

    fn release_worker(&self) {
        fs::remove_file(self.path("waits")).expect("waiting");
    }

    fn state(&self) -> Option<Progress> {
        Progress::read_in(&self.path("out")).ok()
    }

    /// Waits until the current job's progress satisfies `says`.
    fn wait_for_job(&self, what: &str, says: impl Fn(&JobProgress) -> bool) {
        wait_until(what, || self.state().and_then(|state| state.job).is_some_and(|job| says(&job)));
    }

    fn watch(&self, options: &str) -> Command {
        let mut command = ringmark("watch");
        command.arg(self.path("out")).args(words(options));
        command
    }
}

/// Sends a request and returns the response: status line and headers, and body.
fn request(method: &str, url: &str) -> (String, String) {
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL");
    let mut stream = TcpStream::connect(address).expect("listener accepts");
    write!(stream, "{method} /{path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// Checks `metrics` with Prometheus' own checker, if it is installed.
fn check_by_promtool(metrics: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = command.spawn() else {
        not_tested("there is no promtool (Debian's package prometheus)");
        return;
    };
    promtool.stdin.take().expect("a pipe").write_all(metrics.as_bytes()).expect("sent");
    let Output { status, stdout, stderr } = promtool.wait_with_output().expect("exits");
    let output_text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(status.success() && output_text.is_empty(), "{output_text}\n{metrics}");
}

#[test]
fn running_sweep_can_be_watched_and_scraped() {
    let sandbox = Sandbox::real();
    let tokens = crate::support::core_tokens::take_all_cores();
    let mut sweep = ringmark(&format!("{ENDLESS} --metrics-port 0"));
    sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    let sweep = Running::start(&mut sweep);
    sandbox.wait_for_job("both ranks have said how long a step takes", |job| {
        job.ranks.len() == 2 && job.ranks.iter().all(|rank| rank.iteration > 2 && rank.before_allreduce.is_some())
    });
    sandbox.wait_for_job("the launcher has a speed", |job| job.mean_units_per_second.is_some());

    let (status, stdout, stderr) = run(&mut sandbox.watch("--json"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let state: Value = serde_json::from_str(&stdout).expect("JSON");
    schema::check("progress", &state, "what watch says");
    assert_eq!((&state["benchmark"], &state["jobs"]["of"], &state["end"]), (&"train".into(), &1.into(), &Value::Null));
    let job = &state["job"];
    assert_eq!((&job["run"], &job["iterations"]), (&"1n2g/gpt2-tiny_b2_s16_fp32_1.log".into(), &1_000_000.into()));
    for rank in job["ranks"].as_array().expect("ranks") {
        let (step, own) = (rank["step"].as_f64().expect("a time"), rank["before_allreduce"].as_f64().expect("a time"));
        assert!(0.0 < own && own <= step, "{rank}");
    }

    let watch = Running::start(&mut sandbox.watch(""));
    let printed = sweep.printed();
    let url = printed.lines().find_map(|line| line.strip_prefix("metrics: ")).expect(&printed).to_owned();
    let (head, metrics) = request("GET", &url);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    let labels = "model=\"gpt2-tiny\",dtype=\"fp32\",batch_size=\"2\",case=\"1n2g\",strategy=\"all-reduce\",run=\"1\"";
    for name in ["ringmark_job_tokens_per_second", "ringmark_job_mean_tokens_per_second", "ringmark_job_iteration"] {
        assert!(metrics.contains(&format!("\n{name}{{{labels}}} ")), "{name}: {metrics}");
    }
    for rank in [0, 1] {
        let start = format!("\nringmark_rank_iteration{{{labels},rank=\"{rank}\",host=\"");
        assert!(metrics.contains(&start), "{start}: {metrics}");
    }
    check_by_promtool(&metrics);
    assert!(request("GET", &url.replace("metrics", "")).0.starts_with("HTTP/1.1 404 "));
    let (head, body) = request("HEAD", &url);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.is_empty(), "{head}\n\n{body}");

    wait_until("it is watched", || watch.printed().starts_with("run 1/1 - 1n2g - "));
    wait_until("it shows the speed", || watch.printed().contains(" tokens/s"));
    sweep.signal(Signal::SIGINT);
    drop(tokens);
    let (status, stdout, stderr) = sweep.end();
    assert_eq!(status, Some(130), "{stdout}{stderr}");
    let (status, stdout, stderr) = watch.end();
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains(") was interrupted in 1n2g run 1 of 1; 0 of 1 runs are complete\n"), "{stderr}");
    assert_eq!(sandbox.left(), Vec::<String>::new());
}

#[test]
fn watch_shows_the_end_and_does_not_affect_readers() {
    let sandbox = Sandbox::with_valid_worker();
    let sweep = Running::start(&mut sandbox.waiting_sweep(""));
    sandbox.wait_for_job("the first run is on its way", |job| job.iteration == 1);
    let watch = Running::start(&mut sandbox.watch(""));
    wait_until("it is watched", || watch.printed().starts_with("run 1/2 - 1n1g - 1/4 - "));
    let json = sandbox.path("state.json");
    let (status, stdout, stderr) = run(sandbox.watch("--json").arg(&json));
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
    let state = Progress::read(fs::File::open(&json).expect("written")).expect("its word");
    assert_eq!((state.jobs.number, state.jobs.of, state.jobs.finished), (1, 2, 0));
    sandbox.release_worker();
    let (status, stdout, stderr) = sweep.end();
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let (status, stdout, stderr) = watch.end();
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let table: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("run ")).collect();
    assert!(table[0].trim_start().starts_with("images/s  speedup  efficiency"), "{stdout}");
    assert!(table[1].starts_with("1n1g run 1 of 2  ") && table[2].starts_with("1n1g run 2 of 2  "), "{stdout}");
    assert!(table[7].starts_with("case  ranks  runs ") && table[10].starts_with("1n1g      1   2/2 "), "{stdout}");
    let [.., last] = table[..] else { panic!("{stdout}") };
    assert!(last.contains(" has ended: 2 of 2 runs finished in 0:"), "{stdout}");
    // A later call prints the same.
    let (status, late, _) = run(&mut sandbox.watch(""));
    assert_eq!((status, late), (Some(0), table.join("\n") + "\n"));
    // A resumed sweep without missing runs has the counts of the earlier one.
    let (status, stdout, stderr) = run(&mut sandbox.short_sweep("--cases 1n1g --runs 2 --resume"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let (status, late, _) = run(&mut sandbox.watch(""));
    assert!(status == Some(0) && late.contains(" has ended: 2 of 2 runs finished (2 of them earlier) in 0:"), "{late}");

    let out = sandbox.path("out");
    let read = || {
        ["extract", "check", "report", "diff"].map(|command| {
            let mut command = ringmark(command);
            command.arg(&out);
            if command.get_args().any(|argument| argument == "diff") {
                command.arg(&out);
            }
            run(&mut command)
        })
    };
    // The first call creates the files of extract.
    read();
    let with = read();
    fs::remove_file(out.join(PROGRESS)).expect("present");
    assert_eq!(read(), with);
    // A resumed sweep publishes its progress again.
    let (status, stdout, stderr) = run(&mut sandbox.short_sweep("--cases 1n1g --runs 3 --resume"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let state = sandbox.state().expect("its word");
    assert_eq!((state.jobs.number, state.jobs.of, state.jobs.finished), (3, 3, 3));
    let took: Vec<bool> = state.finished.iter().map(|run| run.took.is_some()).collect();
    assert_eq!((took, state.end.map(|end| end.failure)), (vec![false, false, true], Some(None)));
}

#[test]
fn unwritable_state_file_does_not_affect_the_sweep() {
    let sandbox = Sandbox::with_valid_worker();
    fs::create_dir_all(sandbox.path("out").join(PROGRESS).join("in the way")).expect("made");
    let (status, stdout, stderr) = run(&mut sandbox.short_sweep("--cases 1n1g --runs 1"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let error = refused(&mut sandbox.watch(""), 2);
    assert!(error.contains("no command runs in ") && error.contains(" (path is a folder): "), "{error}");
    // A folder without progress, for example of an older version.
    let error = refused(ringmark("watch").arg(sandbox.folder.path()), 2);
    assert!(error.contains("pass the --out of a command whose"), "{error}");
    let error = refused(ringmark("watch").arg(sandbox.path("nowhere")), 2);
    expect![[r"
        error: folder not found: DIR/nowhere: pass the --out of a command whose first run has begun
    "]]
    .assert_eq(&without_folder(&error));
    let error = refused(ringmark("watch").arg(sandbox.worker()), 2);
    assert!(error.contains(" is a file: pass the --out of a command"), "{error}");
}

#[test]
fn killed_launcher_is_reported_as_gone() {
    let sandbox = Sandbox::with_valid_worker();
    let sweep = Running::start(&mut sandbox.waiting_sweep(""));
    sandbox.wait_for_job("the first run is on its way", |job| job.iteration == 1);
    let watch = Running::start(&mut sandbox.watch(""));
    wait_until("it is watched", || watch.printed().starts_with("run 1/2 - "));
    sweep.signal(Signal::SIGKILL);
    sweep.end();
    let (status, stdout, stderr) = watch.end();
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    assert!(
        stderr.contains(" exited unexpectedly: no update for ") && stderr.contains("continue with --resume"),
        "{stderr}"
    );
    // Unlike the real worker, a script does not notice that the launcher's connection has closed.
    sandbox.release_worker();
    wait_until("no process is left", || sandbox.left().is_empty());

    // From another host the end of the process cannot be detected.
    let mut state = sandbox.state().expect("last update");
    state.host = "elsewhere".to_owned();
    fs::write(sandbox.path("out").join(PROGRESS), state.text()).expect("written");
    let watch = Running::start(&mut sandbox.watch(""));
    let words = "s: the launcher on elsewhere has stopped or the folder is not shared\n";
    wait_until("the silence is noticed", || watch.printed().contains(words));
    // Updates resume.
    state.updated.0 += 1.0;
    fs::write(sandbox.path("out").join(PROGRESS), state.text()).expect("written");
    let last_is = |start: &str| watch.printed().lines().last().is_some_and(|line| line.starts_with(start));
    wait_until("the update is shown", || last_is("run 1/2 - "));
    watch.signal(Signal::SIGINT);
    let (status, _, stderr) = watch.end();
    assert_eq!(status, Some(130));
    assert!(stderr.contains("interrupted; the sweep (started on elsewhere) continues"), "{stderr}");
}

#[test]
fn used_metrics_port_is_rejected_before_creating_files() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let sandbox = Sandbox::with_valid_worker();
    let error = refused(&mut sandbox.short_sweep(&format!("--cases 1n1g --runs 1 --metrics-port {port}")), 2);
    let words = format!("--metrics-port {port}: cannot listen on 127.0.0.1:{port}: ");
    assert!(error.contains(&words) && error.contains("choose another port"), "{error}");
    assert!(!sandbox.path("out").exists());
    let error = refused(&mut sandbox.short_sweep("--metrics-bind 0.0.0.0"), 2);
    assert!(error.contains("--metrics-port"), "{error}");
    // A dry run does not open the port.
    succeeds(&mut sandbox.short_sweep(&format!("--cases 1n1g --dry-run --metrics-port {port}")));
    assert!(!sandbox.path("out").exists());
}

/// Returns `command` in a shell on its own terminal with this many columns; the output goes to a pipe.
fn on_terminal(sandbox: &Sandbox, columns: u32, command: &Command, before: &str) -> Command {
    let line: Vec<&str> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|word| word.to_str().expect("UTF-8"))
        .collect();
    let script = format!("stty cols {columns} rows 20; {before}\nexec {}\n", shell_words(&line));
    fs::write(sandbox.path("script.sh"), script).expect("written");
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--flush", "--command"]);
    // `script` uses $SHELL. A shell that waits for the command would be killed by a typed ^C, and its status would be
    // returned.
    terminal.arg(format!("exec sh {}", sandbox.path("script.sh").display())).arg("/dev/null");
    terminal.env("TERM", "xterm").env_remove("NO_COLOR");
    terminal
}

fn shell_words(line: &[&str]) -> String {
    line.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

/// Returns each drawing of the first of two runs: a line padded to the width.
fn displayed_lines(output: &str) -> Vec<&str> {
    let pieces = output.split(['\r', '\n', '\u{1b}']);
    pieces.filter_map(|piece| Some(&piece[piece.find("run 1/2 - ")?..])).collect()
}

#[test]
fn terminal_lines_fit_and_are_cleared_at_the_end() {
    let sandbox = Sandbox::with_valid_worker();
    let sweep = sandbox.waiting_sweep("");
    let mut terminal = Running::start(&mut on_terminal(&sandbox, 44, &sweep, ""));
    let line = "run 1/2 - 1n1g - 1/4 - 20.50 images/s (warm-up)";
    wait_until("it is drawn", || {
        displayed_lines(&terminal.printed()).iter().any(|line_now| line_now.trim_end() == &line[..44])
    });
    terminal.type_in("\u{3}");
    let (status, output, _) = terminal.end();
    assert_eq!(status, Some(130), "{output}");
    let lines = displayed_lines(&output);
    // The terminal itself echoes the input.
    let is_whole = |line: &&str| line.trim_end_matches("^C").chars().count() == 44;
    assert!(lines.iter().all(is_whole), "{lines:?} in {output:?}");
    // No part of the last line is left, and the error comes last.
    let (_, end) = output.rsplit_once("run 1/2 - ").expect("drawn");
    assert!(end.contains("\u{1b}[2K"), "{end:?}");
    assert!(output.trim_end().ends_with("--resume"), "{output:?}");
    assert_eq!(sandbox.left(), Vec::<String>::new());
}

#[test]
fn narrowed_terminal_is_redrawn_at_its_width() {
    let sandbox = Sandbox::with_valid_worker();
    let sweep = sandbox.waiting_sweep("");
    let folder = sandbox.folder.path().display();
    let narrower = format!("(while [ ! -e {folder}/narrow ]; do sleep 0.05; done; stty -F /dev/tty cols 30) &");
    let terminal = Running::start(&mut on_terminal(&sandbox, 100, &sweep, &narrower));
    let width = || displayed_lines(&terminal.printed()).last().map_or(0, |line| line.chars().count());
    wait_until("it is drawn", || width() == 100);
    fs::write(sandbox.path("narrow"), "").expect("written");
    wait_until("it is drawn narrower", || width() == 30);
    sandbox.release_worker();
    let (status, output, _) = terminal.end();
    assert_eq!(status, Some(0), "{output}");
}

#[test]
fn terminal_without_cursor_or_colors_gets_plain_output() {
    let draw = |(name, value): (&str, &str)| {
        let sandbox = Sandbox::with_valid_worker();
        let sweep = sandbox.waiting_sweep("");
        let terminal = Running::start(on_terminal(&sandbox, 100, &sweep, "").env(name, value));
        sandbox.wait_for_job("the first run is on its way", |job| job.iteration == 1);
        sandbox.release_worker();
        let (status, output, _) = terminal.end();
        assert_eq!(status, Some(0), "{output}");
        output
    };
    let dumb = draw(("TERM", "dumb"));
    assert!(!dumb.contains('\u{1b}') && displayed_lines(&dumb).is_empty(), "{dumb:?}");
    const GREEN: &str = "\u{1b}[32m";
    let (plain, colored) = (draw(("NO_COLOR", "1")), draw(("CLICOLOR", "1")));
    assert!(!displayed_lines(&plain).is_empty() && !plain.contains(GREEN), "{plain:?}");
    assert!(!displayed_lines(&colored).is_empty() && colored.contains(GREEN), "{colored:?}");
}

/// Output that is not a terminal has no additional lines.
#[test]
fn pipe_gets_no_live_lines() {
    let sandbox = Sandbox::with_valid_worker();
    let (status, stdout, stderr) = run(&mut sandbox.short_sweep("--cases 1n1g --runs 1"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(!stdout.contains('\u{1b}') && !stdout.contains("run 1/1 - "), "{stdout}");
    let state = fs::read_to_string(sandbox.path("out").join(PROGRESS)).expect("last update");
    schema::check("progress", &serde_json::from_str(&state).expect("JSON"), "the state of a sweep that has ended");
    assert!(is_ignored(Path::new(PROGRESS)));
}

/// Returns true if .gitignore names the file.
fn is_ignored(name: &Path) -> bool {
    let list = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(".gitignore")).expect("present");
    list.lines().any(|line| Path::new(line) == name)
}

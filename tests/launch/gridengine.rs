//! Jobs in a real Grid Engine: sge_qmaster and sge_execd on virtual hosts of this machine
//! (scripts/dev/gridengine_cluster.sh).

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::accept::{Cause, Fitness};

use crate::support::cluster::{Cluster, succeed};
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{HANGING, Sandbox, wait_until};
use crate::support::scheduler::{RINGMARK, SMALL, Scheduler, judged, processes};

const SCRIPT: &str = "scripts/gridengine.sh";

#[test]
fn sweep_runs_under_grid_engine_and_leaves_no_process() {
    let Some(cluster) = Cluster::from_script("gridengine_cluster.sh", 2) else { return };
    let grid_engine = Scheduler {
        cluster: &cluster,
        name: "gridengine",
        run: "qrsh -now no -nostdin -cwd -V -pe mpi 4",
        starter: "mpirun",
    };
    check_script(&grid_engine);
    grid_engine.programs_know_their_place();
    grid_engine.failures_are_named();
    grid_engine.no_rank_outlives_its_sweep();
    check_stopped_rank(&grid_engine);
    check_deleted_job(&grid_engine);
    check_resume_after_deletion(&grid_engine);

    let (first, state) = (cluster.host(1), cluster.state());
    drop(cluster);
    assert!(!state.exists(), "{} is left", state.display());
    let namespaces = Command::new("ip").args(["netns", "list"]).output().expect("ip starts").stdout;
    assert!(!String::from_utf8_lossy(&namespaces).contains(&first), "a namespace is left");
}

/// Training on the third host fails. The fourth loses its sge_execd with its first job of a pair.
#[test]
fn accept_under_grid_engine_names_unfit_hosts() {
    let Some(cluster) = Cluster::from_script("gridengine_cluster.sh", 4) else { return };
    let grid_engine = Scheduler {
        cluster: &cluster,
        name: "gridengine",
        run: "qrsh -now no -nostdin -cwd -V -pe mpi 8",
        starter: "mpirun",
    };
    let names = [1, 2, 3, 4].map(|number| cluster.host(number));
    let [first, second, failing, lost] = names.each_ref().map(String::as_str);
    let script = format!(
        "case \"$(hostname) $record\" in
            {failing}\\ *_alone_*_training.json) exit 7;;
            {lost}\\ *_pairs_*) kill -9 $(cat {}/gridengine/execd/{lost}/execd.pid);;
        esac
        exec \"$folder/real\" $words",
        cluster.state().display()
    );
    let tokens = take_all_cores();
    let (text, verdict) = grid_engine.accept(&script, &[]);
    drop(tokens);
    let fit = |host| (host, Fitness::Fit, None);
    let unfit = |host| (host, Fitness::Unfit, Some(Cause::Failure));
    assert_eq!(judged(&verdict), [fit(first), fit(second), unfit(failing), unfit(lost)], "{text}");
    let failures = [2, 3].map(|host: usize| &verdict.hosts[host].evidence[0].text);
    assert!(failures[0].ends_with(" exited with status 7"), "{text}");
    assert!(failures[1].contains(&format!("Grid Engine cannot start ranks on {lost}: ")), "{text}");
    assert!(text.contains("facts: examining 4 hosts\n"), "{text}");
    assert!(text.contains(", alone: all-reduce, 3 jobs on 3 hosts") && text.contains(", whole: training, "), "{text}");
    assert!(!text.contains("cannot write log"), "{text}");
    assert!(text.contains(&format!("\n{failing}\n{lost}\n")), "the list of hosts to drain: {text}");
}

fn check_script(grid_engine: &Scheduler) {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = format!("--cases 1n1g,1n2g,2n2g --iters 3 {SMALL}");
    let Output { status, stderr, .. } =
        grid_engine.submit(&sandbox, "qsub -sync y -pe mpi 4", SCRIPT, &options).output().expect("starts");
    let output_text = fs::read_to_string(sandbox.path("ringmark-1.log")).unwrap_or_default();
    assert!(status.success(), "{output_text}\n{}", String::from_utf8_lossy(&stderr));
    for (case, hosts) in [("1n1g", vec![1]), ("1n2g", vec![1, 1]), ("2n2g", vec![1, 1, 2, 2])] {
        grid_engine.record(&sandbox, &format!("results/gridengine-1/{case}/mxnet-lenet_b2_fp32_1.jsonl"), &hosts);
    }
    assert!(sandbox.path("results/gridengine-1/gridengine-1_result.json").exists(), "{output_text}");
    check_cleanup(grid_engine, &sandbox);
}

fn check_stopped_rank(grid_engine: &Scheduler) {
    let sandbox = Sandbox::real();
    let tokens = take_all_cores();
    let options = format!("--cases 2n1g --iters 100000 --stall-timeout 10 {SMALL}");
    let sweep = grid_engine.sweep(&sandbox, &options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let rank = rank_in_the_loop(grid_engine, &sandbox, "out", 2);
    kill(rank, Signal::SIGSTOP).expect("running process");
    drop(tokens);
    let Output { status, stdout, stderr } = sweep.expect("starts").wait_with_output().expect("ended");
    let output_text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert_eq!(status.code(), Some(1), "{output_text}");
    let named = format!("rank 1 of 2 on host {} (process {rank}) has not reported for ", grid_engine.cluster.host(2));
    let failure = sandbox.failure("2n1g/mxnet-lenet_b2_fp32_1.log");
    assert!(failure.contains(&named), "{failure}");
    assert!(output_text.contains("resume with: ") && output_text.contains(" --resume"), "{output_text}");
    check_cleanup(grid_engine, &sandbox);
}

/// Deletes the script's job, with ranks that ignore SIGTERM, and then a job that is deleted without a warning.
fn check_deleted_job(grid_engine: &Scheduler) {
    let sandbox = Sandbox::new(HANGING);
    let job = submit(grid_engine, &sandbox, "--cases 2n2g");
    sandbox.wait_for_ranks(4);
    delete(grid_engine, &sandbox, &job);

    // Without a warning (-notify) Grid Engine kills the launcher immediately; then the ranks must detect its end.
    let sandbox = Sandbox::real();
    let tokens = take_all_cores();
    let batch = Scheduler { run: "qsub -terse -b y -j y -o /dev/null -cwd -V -pe mpi 4", ..*grid_engine };
    let options = format!("--cases 2n1g --iters 100000 --stall-timeout 10 {SMALL}");
    let job = number(batch.sweep(&sandbox, &options));
    rank_in_the_loop(grid_engine, &sandbox, "out", 2);
    drop(tokens);
    delete_and_wait(grid_engine, &sandbox, &job);
}

fn check_resume_after_deletion(grid_engine: &Scheduler) {
    let sandbox = Sandbox::real();
    let first_turn = take_all_cores();
    let job = submit(grid_engine, &sandbox, &format!("--cases 1n1g,2n1g --iters 1000 {SMALL}"));
    let out = format!("results/gridengine-{job}");
    wait_until("the first case is finished", || {
        sandbox.path(&format!("{out}/1n1g/mxnet-lenet_b2_fp32_1.log")).exists()
    });
    // Prevents it from ending before its job.
    kill(rank_in_the_loop(grid_engine, &sandbox, &out, 2), Signal::SIGSTOP).expect("running process");
    drop(first_turn);
    let output_text = delete(grid_engine, &sandbox, &job);

    let line = output_text.lines().find_map(|line| line.split_once("resume with: ")).expect("resume command").1;
    let command = shell_words::split(line).expect("a command line");
    let program = command.first().expect("a program");
    assert!(RINGMARK.ends_with(program), "{line}");
    let _tokens = take_all_cores();
    let mut again = grid_engine.in_a_job(RINGMARK);
    let output = again.args(&command[1..]).current_dir(sandbox.folder.path()).output().expect("starts");
    succeed(&output);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output_text.contains("1 of 2 runs are finished"), "{output_text}");
    grid_engine.record(&sandbox, &format!("{out}/2n1g/mxnet-lenet_b2_fp32_1.jsonl"), &[1, 2]);
    check_cleanup(grid_engine, &sandbox);
}

/// Submits the script for both hosts and returns the job number.
fn submit(grid_engine: &Scheduler, sandbox: &Sandbox, options: &str) -> String {
    number(grid_engine.submit(sandbox, "qsub -terse -pe mpi 4", SCRIPT, options))
}

/// Returns the number printed by `qsub -terse`.
fn number(mut qsub: Command) -> String {
    let output = qsub.output().expect("starts");
    succeed(&output);
    String::from_utf8(output.stdout).expect("a number").trim().to_owned()
}

/// Deletes the job, waits for its end, and returns the output of its sweep.
fn delete(grid_engine: &Scheduler, sandbox: &Sandbox, job: &str) -> String {
    delete_and_wait(grid_engine, sandbox, job);
    let output_text = fs::read_to_string(sandbox.path(&format!("ringmark-{job}.log"))).expect("the job's output");
    let last_words = ["interrupted in ", "\nresume with: "];
    assert!(last_words.iter().all(|words| output_text.contains(words)), "{output_text}");
    output_text
}

/// Deletes the job and waits for its end.
fn delete_and_wait(grid_engine: &Scheduler, sandbox: &Sandbox, job: &str) {
    succeed(&grid_engine.cluster.call(&["run", "qdel", job]));
    wait_until("the job ends", || !grid_engine.cluster.call(&["run", "qstat", "-j", job]).status.success());
    check_cleanup(grid_engine, sandbox);
}

/// Returns the rank of case 2n1g on host `number`, once the sweep in `out` has completed a few iterations.
fn rank_in_the_loop(grid_engine: &Scheduler, sandbox: &Sandbox, out: &str, number: usize) -> Pid {
    let worker = sandbox.worker().display().to_string();
    let is_there = |process: &Pid| {
        let name = Command::new("ip").args(["netns", "identify", &process.to_string()]).output();
        let name = name.expect("ip starts").stdout;
        String::from_utf8_lossy(&name).trim() == grid_engine.cluster.host(number)
    };
    let rank = || processes(sandbox, &worker).into_iter().find(is_there);
    let trains = || {
        let text =
            fs::read_to_string(sandbox.path(&format!("{out}/2n1g/mxnet-lenet_b2_fp32_1.log.part"))).unwrap_or_default();
        text.matches("Epoch[0] Batch[").count() >= 3
    };
    wait_until("the rank trains", || trains() && rank().is_some());
    rank().expect("running process")
}

/// Checks that no process of the sandbox is left on any host, and no file of its jobs in Grid Engine's folders.
fn check_cleanup(grid_engine: &Scheduler, sandbox: &Sandbox) {
    wait_until("no process is left", || sandbox.left().is_empty());
    for number in [1, 2] {
        let host = grid_engine.cluster.host(number);
        // The cluster keeps the folder of Open MPI's jobs.
        let of_jobs = format!("ompi.{host}.0");
        for (folder, kept) in [
            (format!("gridengine/execd/{host}/active_jobs"), None),
            (format!("{host}/tmp"), Some(of_jobs.as_str())),
            (format!("{host}/tmp/{of_jobs}"), Some("kept")),
        ] {
            let folder = grid_engine.cluster.state().join(folder);
            let is_left = |entry: fs::DirEntry| Some(entry.file_name()) != kept.map(OsString::from);
            wait_until("no file is left", || !fs::read_dir(&folder).expect("a folder").flatten().any(is_left));
        }
    }
}

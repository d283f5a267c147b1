//! Tests of `ringmark sweep`: rejected options, dry runs, and runs under real mpirun with a shell script in place of
//! the worker.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::benchmark::train::{Iteration, RunEnd, RunHeader, RunRecord, TrainConfig};
use ringmark_core::benchmark::{RunLabel, RunProfile};
use ringmark_core::dimension::{BackendName, Bytes, DeviceKind, Phases, Seconds};
use ringmark_core::host::{Environment, processors};
use ringmark_core::line::dlperf::{self, LogLine};
use ringmark_core::number_text::count;

use crate::support::golden::assert_golden;
use crate::support::runs::places;
use crate::support::sandbox::{
    HANGING, Sandbox, all_have_reported, check_refusals, copy_program, fails, refused, ringmark, run, succeeds,
    wait_until, without_estimates, words,
};
use crate::support::temporary_folder::without_folder;
use crate::support::virtual_gpu;

/// Script in which rank 0 produces a valid run of 12 iterations: 10.5 images/s in the two warm-up iterations and 20.5
/// afterwards.
const VALID_WORKER: &str = "
[ $rank = 0 ] || exit 0
for batch in 1 2 3 4 5 6 7 8 9 10 11 12; do
    speed=20.50; [ $batch -le 2 ] && speed=10.50
    printf 'INFO:root:Epoch[0] Batch[%d]\\tSpeed: %s samples/sec\\n' $batch $speed
done
echo \"words: $words\" >&2
cp \"$folder/record.jsonl\" \"$record\"
";

/// Creates a worker from `script`, and a record of a valid run next to it.
fn with_record(script: &str) -> Sandbox {
    let sandbox = Sandbox::new(script);
    sandbox.write_record(None);
    sandbox
}

impl Sandbox {
    fn write_record(&self, failure: Option<&str>) {
        let label = RunLabel { case: "1n1g".parse().expect("a case"), run: 1, profile: RunProfile::Full };
        let config =
            TrainConfig { batch_size: 8, iterations: 12, warmup: 2, ..TrainConfig::default().on(DeviceKind::Cpu) };
        let header = RunHeader {
            backend: BackendName::Solo,
            buckets: vec![Bytes(8)],
            ..RunHeader::new(label, Seconds(0.0), config, Environment::default(), places(1))
        };
        let end = RunEnd {
            failure: failure.map(str::to_owned),
            iterations: 12,
            wall: Seconds(1.0),
            parameter_checksums: vec!["00ff".to_owned()],
            ..RunEnd::default()
        };
        let speed = |iteration: u32| if iteration <= 2 { 10.5 } else { 20.5 };
        let iteration = |iteration| Iteration {
            iteration,
            step: vec![Seconds(8.0 / speed(iteration))],
            phases: Phases::from_fn(|_| vec![Seconds(0.0)]),
            before_allreduce: vec![Seconds(0.0)],
            loss: vec![7.0],
            loss_scale: 1.0,
            skipped: false,
        };
        let iterations = (1..=12).map(iteration).collect();
        let file = fs::File::create(self.path("record.jsonl")).expect("created");
        RunRecord { header, iterations, end: Some(end) }.write(file).expect("written");
    }

    /// Returns `ringmark sweep` with this worker and the folder `out`, with runs short enough for [`VALID_WORKER`].
    fn sweep(&self, options: &str) -> Command {
        let mut command = ringmark("sweep --no-doctor --iters 12 --warmup 2 --device cpu");
        command.arg("--worker").arg(self.worker()).arg("--out").arg(self.path("out")).args(words(options));
        command
    }
}

/// Returns the threads per rank on this machine if the largest case has two ranks, and the number of cores.
fn threads_of_two() -> (u32, u32) {
    let cores = processors::cores();
    ((cores / 2).max(1), cores)
}

#[test]
fn dry_run_prints_every_command_and_starts_nothing() {
    let sandbox = Sandbox::new("exit 1");
    let mut command = ringmark("sweep --dry-run --runs 1 --hosts a:8,b:8,c:8,d:8 --interface ib0 --dtype fp16");
    command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    // Only these variables appear on a command line; the last one prevents the option that is added in containers.
    command.env_clear().env("PATH", "/usr/bin:/bin").env("NCCL_DEBUG", "INFO");
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    let stdout = succeeds(&mut command);
    let folder = sandbox.folder.path().to_str().expect("a plain name");
    assert_golden("dry_run_4_hosts.txt", &stdout.replace(folder, "/FOLDER"));
    assert!(!sandbox.path("out").exists());
}

#[test]
fn long_dry_run_prints_the_plan() {
    let sandbox = Sandbox::new("exit 1");
    let printed = |options: &str| {
        let mut command = ringmark(
            "sweep --dry-run --hosts a:8,b:8,c:8,d:8 --interface ib0 --dtypes fp16,fp32,tf32,bf16 --device cuda",
        );
        command.args(words(options)).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        succeeds(&mut command)
    };
    let stdout = printed("");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines.contains(&"# 120 runs at 24 points"), "{stdout}");
    assert!(lines[0].starts_with("# sweep of ResNet50-v1b, 1n1g ") && stdout.contains("\n# time: about "), "{stdout}");
    assert_eq!(lines.iter().filter(|line| !line.starts_with('#')).count(), 1, "{stdout}");
    assert_eq!(lines.last(), Some(&"# and 119 more commands: --verbose prints them"), "{stdout}");
    let stdout = printed("--verbose");
    assert_eq!(stdout.lines().filter(|line| !line.starts_with('#')).count(), 120, "{stdout}");
    assert!(!stdout.contains("more commands"), "{stdout}");
}

#[test]
fn slurm_dry_run_prints_srun_commands_without_slurm() {
    let sandbox = Sandbox::new("exit 1");
    let mut command = ringmark("sweep --dry-run --runs 1 --hosts a:8,b:8,c:8,d:8 --interface ib0 --launcher slurm");
    command.args(["--launcher-args", "--label --time=9"]);
    command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("SLURM_GPUS_PER_TASK", "1");
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    let stdout = succeeds(&mut command);
    let folder = sandbox.folder.path().to_str().expect("a plain name");
    assert_golden("dry_run_slurm.txt", &stdout.replace(folder, "/FOLDER"));
}

#[test]
fn large_job_reads_its_hosts_from_a_file() {
    let (_, help, _) = run(&mut ringmark("sweep --help"));
    let help = words(&help).collect::<Vec<_>>().join(" ");
    assert!(help.contains("a:8,b:8 or node[01-64]:8") && help.contains("`node[01-64] slots=8`"), "{help}");
    let sandbox = Sandbox::new("exit 1");
    for (options, lists) in [
        ("--launcher slurm --servers 2", "--nodelist=OUT.hosts --distribution=arbitrary"),
        ("--servers 2", "--hostfile OUT.hosts --bind-to none --map-by seq"),
        ("--launcher slurm", "node38,node39,node40 --distribution=block"),
    ] {
        let options = format!("--hosts node[01-40]:8 --cases 40n8g --runs 1 --dry-run {options}");
        let strategy = if options.contains("--servers") { "dist_sync" } else { "all-reduce" };
        let mut sweep = sandbox.sweep(&format!("{options} --strategy {strategy}"));
        let stdout = succeeds(&mut sweep);
        let stem = sandbox.path("out/40n8g/rn50_b8_fp32_dist-sync_1").display().to_string();
        let line = stdout.replace(&stem, "OUT").replace('\'', "");
        assert!(line.contains(lists), "{lists}: {line}");
    }
}

#[test]
fn grid_engine_dry_run_leaves_remote_shell_to_open_mpi() {
    let sandbox = Sandbox::new("exit 1");
    let dry_run = |launcher: &str| {
        let options = "--device cuda --hosts a:8,b:8,c:8,d:8 --interface ib0 --dtype fp16";
        let mut command = ringmark(&format!("sweep --dry-run --runs 1 {options} --launcher {launcher}"));
        command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("NCCL_DEBUG", "INFO");
        succeeds(&mut command)
    };
    let by_ssh = " -mca plm_rsh_args '-p 22 -q -o StrictHostKeyChecking=no'";
    let by_mpirun = dry_run("mpirun");
    assert!(by_mpirun.contains(by_ssh), "{by_mpirun}");
    assert_eq!(dry_run("gridengine"), by_mpirun.replace(by_ssh, ""));
}

#[test]
fn scheduler_launcher_is_rejected_outside_a_job() {
    let sandbox = Sandbox::new("exit 1");
    for (launcher, place, script, variable) in [
        ("slurm", "needs a Slurm allocation", "slurm.sbatch", "SLURM_JOB_ID"),
        ("srun", "needs a Slurm allocation", "slurm.sbatch", "SLURM_JOB_ID"),
        ("gridengine", "needs a Grid Engine job", "gridengine.sh", "PE_HOSTFILE"),
        ("sge", "needs a Grid Engine job", "gridengine.sh", "PE_HOSTFILE"),
    ] {
        for hosts in ["", "--hosts a:1"] {
            let mut command = sandbox.sweep(&format!("--cases 1n1g --launcher {launcher} {hosts}"));
            let error = refused(command.env_remove(variable), 2);
            assert!(error.contains(place) && error.contains(script) && error.contains(variable), "{error}");
        }
    }
}

#[test]
fn dry_run_shows_rsync_commands() {
    let sandbox = Sandbox::new("exit 1");
    let folder = sandbox.folder.path().to_str().expect("a plain name");
    let mut command = sandbox.sweep("--cases 2n1g --runs 1 --hosts localhost:1,b:1 --sync /opt/rm --dry-run");
    let stdout = succeeds(&mut command);
    let lines: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("# ")).collect();
    // A script needs no libraries.
    assert!(lines[0].starts_with("mkdir -p /opt/rm && rsync "), "{stdout}");
    assert!(lines[0].ends_with(&format!("{folder}/./worker /opt/rm/")), "{stdout}");
    assert!(lines[1].starts_with("rsync ") && lines[1].ends_with(&format!("{folder}/./worker b:/opt/rm/")), "{stdout}");
    assert!(lines[2].contains(" /opt/rm/worker train "), "{stdout}");
    expect![[r"
        error: --sync opt is not an absolute path: working folders differ between hosts
    "]]
    .assert_eq(&refused(&mut sandbox.sweep("--cases 1n1g --hosts a:1 --sync opt"), 2));
}

#[test]
fn quick_dry_run_selects_the_cases_that_fit() {
    let sandbox = Sandbox::new("exit 1");
    let mut command = ringmark("sweep --dry-run --verbose --quick --device cpu --iters 9 --hosts localhost:2");
    let stdout = succeeds(command.arg("--worker").arg(sandbox.worker()));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 6 + 4, "{stdout}");
    assert!(lines[0].starts_with("# sweep of ResNet50-v1b, 1n1g 1n2g, 2 runs each: batch 4, fp32, "), "{stdout}");
    assert!(lines[1].starts_with("# logs and records: "), "{stdout}");
    assert!(lines[2].starts_with("# each rank has "), "{stdout}");
    expect!["# quick profile: for a first impression, not a reliable result"].assert_eq(lines[3]);
    // A single rank gets as many cores as each of two: otherwise the first result would look like half the efficiency.
    let (threads, _) = threads_of_two();
    let training = format!(" train --batch-size 4 --device cpu --iters 9 --warmup 2 --threads {threads} --record /");
    let variable = format!(" -x OMP_NUM_THREADS={threads} ");
    assert!(lines[4].starts_with("# memory: about ") && lines[4].ends_with(" available here"), "{stdout}");
    assert!(lines[5].starts_with("# time: about "), "{stdout}");
    for line in &lines[6..] {
        assert!(line.contains(&training) && line.contains(&variable), "{stdout}");
    }
    assert!(lines[9].contains("_b4_fp32/1n2g/rn50_b4_fp32_2.jsonl --case 1n2g --run 2 --quick"), "{stdout}");
}

#[test]
fn profile_sets_the_options_that_are_not_given() {
    let sandbox = Sandbox::new("exit 1");
    let dry_run = |options: &str| {
        let mut command = ringmark(&format!("sweep --dry-run --verbose --cases 1n1g --threads 1 {options}"));
        let stdout = succeeds(command.arg("--worker").arg(sandbox.worker()));
        let commands: Vec<String> = stdout.lines().filter(|it| !it.starts_with("# ")).map(str::to_owned).collect();
        let (_, training) = commands[0].split_once(" train ").expect("a rank's arguments");
        let (training, _) = training.split_once(" --threads 1").expect("the threads that were typed");
        (commands.len(), training.to_owned())
    };
    let with = |count: usize, training: &str| (count, training.to_owned());
    let cpu = with(3, "--batch-size 8 --device cpu --iters 25 --warmup 5");
    assert_eq!(dry_run("--device cpu --hosts localhost:1"), cpu);
    assert_eq!(dry_run("--device cpu --hosts localhost:1 --profile cpu"), cpu);
    assert_eq!(
        dry_run("--device cpu --hosts a:1 --iters 7 --runs 1"),
        with(1, "--batch-size 8 --device cpu --iters 7 --warmup 5")
    );
    // Other hosts may have GPUs.
    assert_eq!(dry_run("--hosts a:1 --model resnet18"), with(5, "--model resnet18"));
    assert_eq!(dry_run("--device cuda --hosts a:1"), with(5, "--device cuda"));
    assert_eq!(dry_run("--device cpu --hosts a:1 --profile dlperf"), with(5, "--device cpu"));
    let quick = with(2, "--batch-size 4 --device cpu --iters 12 --warmup 2");
    assert_eq!([dry_run("--device cpu --quick"), dry_run("--device cpu --profile quick")], [quick.clone(), quick]);
}

#[test]
fn oversized_job_is_rejected_before_creating_files() {
    let sandbox = Sandbox::new("exit 1");
    for dry_run in ["", "--dry-run"] {
        let options = format!("--hosts localhost:2 --cases 1n1g,1n2g --batch-size 60000 {dry_run}");
        let error = refused(&mut sandbox.sweep(&options), 2);
        assert!(error.contains("1n2g with --batch-size 60000 needs about "), "{error}");
        assert!(
            error.contains(" for the 2 ranks on this machine, which has ") && error.contains("choose --"),
            "{error}"
        );
        assert!(!sandbox.path("out").exists());
    }
}

#[test]
fn axes_form_an_ordered_product() {
    let sandbox = Sandbox::new("exit 1");
    let dry_run =
        |options: &str| without_estimates(&succeeds(&mut sandbox.sweep(&format!("--dry-run --hosts a:2 {options}"))));
    let stdout = dry_run("--verbose --cases 1n1g,1n2g --runs 2 --dtypes fp32,bf16 --batch-sizes 8,16");
    let record = |line: &str| {
        let (_, record) = line.split_once("/out/").expect("a record");
        record.split(' ').next().expect("a word").to_owned()
    };
    let commands = stdout.lines().filter(|line| !line.starts_with("# "));
    let records: Vec<String> = commands.map(record).collect();
    let mut expected = Vec::new();
    for (dtype, batch) in [("fp32", 8), ("fp32", 16), ("bf16", 8), ("bf16", 16)] {
        for case in ["1n1g", "1n2g"] {
            expected.extend([1, 2].map(|run| format!("{case}/rn50_b{batch}_{dtype}_{run}.jsonl")));
        }
    }
    assert_eq!(records, expected);
    let last = stdout.lines().last().expect("a line");
    assert!(last.contains(" train --batch-size 16 --dtype bf16 --device cpu "), "{last}");
    let options = dry_run("--cases 1n1g --runs 1 --optimizer adam --wd 0.1");
    assert!(options.contains("\n# options: --optimizer adam --weight-decay 0.1\n"), "{options}");
    let tokens = dry_run("--cases 1n1g --runs 1 --model gpt2-124m --sequence-length 64 --batch-size 1");
    assert!(tokens.contains("\n# note: this is SGD; --suite llm trains language models as nanoGPT does: "), "{tokens}");
    let stdout = dry_run("--cases 1n1g,1n2g --runs 2");
    let commands: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("# ")).collect();
    assert!(commands.len() == 1 && commands[0].contains(" --case 1n1g --run 1"), "{stdout}");
    assert!(stdout.ends_with("\n# and 3 more commands: --verbose prints them\n"), "{stdout}");
    let stdout = dry_run("--cases 1n1g --runs 2");
    assert!(stdout.ends_with("\n# and 1 more command: --verbose prints it\n"), "{stdout}");
    let (one, other) = ("--cases 1n1g --dtype bf16 --batch-size 16", "--cases 1n1g --dtypes bf16 --batch-sizes 16");
    assert_eq!(dry_run(one), dry_run(other));

    // The rows of MXNet's tables: AlexNet's batch is 8 times as large.
    let stdout = dry_run(
        "--verbose --cases 1n1g --runs 1 --models mxnet-alexnet,mxnet-resnet-50 --batch-sizes 1,2 --batch-factor mxnet-alexnet=8",
    );
    let commands = stdout.lines().filter(|line| !line.starts_with("# "));
    let records: Vec<String> = commands.map(record).collect();
    assert_eq!(records.len(), 4, "{records:?}");
    for (record, batch) in records.iter().zip(["_b8_", "_b16_", "_b1_", "_b2_"]) {
        assert!(record.contains(batch), "{records:?}");
    }
    let file = sandbox.path("axes.toml").display().to_string();
    let save =
        format!("--cases 1n1g --runs 1 --models mxnet-alexnet --batch-factor mxnet-alexnet=8 --save-config {file}");
    let typed = dry_run(&save);
    assert!(typed.contains(" --batch-size 64 "), "{typed}");
    assert_eq!(dry_run(&format!("--config {file}")), typed.replace(&format!("# wrote the options to {file}\n"), ""));

    // Servers are passed only to strategies that have servers.
    let stdout = dry_run("--verbose --cases 1n1g,1n2g --runs 1 --strategies all-reduce,local,dist_sync --servers 3");
    let commands: Vec<&str> = stdout.lines().filter(|line| !line.starts_with("# ")).collect();
    let records: Vec<String> = commands.iter().map(|line| record(line)).collect();
    let expected =
        ["1n1g/rn50_b8_fp32_1", "1n2g/rn50_b8_fp32_1", "1n2g/rn50_b8_fp32_local_1", "1n2g/rn50_b8_fp32_dist-sync_1"];
    assert_eq!(records, expected.map(|name| format!("{name}.jsonl")));
    let with_servers: Vec<bool> = commands.iter().map(|line| line.contains(" --servers 3")).collect();
    assert_eq!(with_servers, [false, false, false, true], "{stdout}");
    assert_eq!(
        dry_run("--cases 1n2g --strategy device --runs 1"),
        dry_run("--cases 1n2g --strategies local_allreduce_device --runs 1")
    );
}

#[test]
fn equivalent_options_of_other_programs_are_accepted() {
    let sandbox = Sandbox::new("exit 1");
    let dry_run = |options: &str| {
        let stdout = succeeds(&mut sandbox.sweep(&format!("--dry-run --runs 1 {options}")));
        without_estimates(&stdout).lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let ours = "--cases 1n2g --hosts a:2 --dtype fp16 --wire fp16 --bucket-mb 64 --weight-decay 0.5";
    let theirs = "--cases 1n2g -H a:2 --dtype float16 --fp16-allreduce --fusion-threshold-mb 64 --wd 0.5";
    assert_eq!(dry_run(theirs), dry_run(ours));
    assert_eq!(dry_run(&theirs.replace("float16", "amp")), dry_run(ours));
    let ours =
        "--cases 1n2g --hosts a:2 --launcher mpirun --strategy dist_sync --servers 1 --gradient-compression 2bit";
    let theirs = "--cases 1n2g --hosts a:2 --launcher ssh --strategy dist_sync --num-servers 1 --gc-type 2bit";
    assert_eq!(dry_run(theirs), dry_run(ours));
    let selected = dry_run("--cases 1n2g --hosts a:2 --gpus 0,2").concat();
    assert!(selected.contains(" -x CUDA_VISIBLE_DEVICES=0,2 "), "{selected}");
    // Without a number, a host gets one rank per core.
    let cores = processors::cores();
    let line = "--cases 1n1g --hosts localhost";
    assert_eq!(dry_run(line), dry_run(&format!("{line}:{cores}")));
    refused(&mut sandbox.sweep("--dry-run --cases 1n1g --wire bf16 --fp16-allreduce"), 2);
    // Agreement, and a binding by mpirun alone.
    for options in ["--bind core --launcher-args --bind-to=none", "--bind none --launcher-args --bind-to=core"] {
        dry_run(&format!("--cases 1n2g --hosts a:2 {options}"));
    }
    let error = refused(&mut ringmark("sweep --dry-run --hosts a:4 --device cuda --gpus 0,1"), 2);
    expect![[r#"
        error: --gpus lists 2 GPUs, but case 1n4g has 4 ranks on each host: list 4, or choose cases with at most 2
    "#]]
    .assert_eq(&error);
    // Eight GPUs per host are not the GPU with number 8.
    for (device, note) in [
        (
            "cpu",
            "warning: --gpus 8 has no effect: the ranks use the CPU; for 8 ranks use --hosts a:8 --cases 1n8g instead",
        ),
        ("cuda", "note: --gpus 8 is GPU number 8 (from 0) of every host; for 8 GPUs use --cases 1n8g instead"),
    ] {
        let options = format!("sweep --no-doctor --dry-run --cases 1n1g --hosts a:2 --gpus 8 --device {device}");
        let mut command = ringmark(&options);
        let (status, _, stderr) =
            run(command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")));
        assert_eq!((status, stderr.trim_end()), (Some(0), note));
    }
}

/// A machine without GPUs can plan for the GPUs of others.
#[test]
fn plan_names_the_source_of_the_slots() {
    let sandbox = Sandbox::new("exit 1");
    let plan = |options: &str| {
        let driver = sandbox.write_program("nvidia-smi", "#!/bin/sh\nexit 1\n");
        let folders = [driver.parent().expect("a folder").display().to_string(), env::var("PATH").expect("a PATH")];
        let mut command = ringmark(&format!("sweep --dry-run --device cuda --runs 1 {options}"));
        command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        let stdout = succeeds(command.env("PATH", folders.join(":")));
        let is_shown = |line: &&str| line.starts_with("# slots: ") || line.starts_with("# sweep of ");
        let shown = stdout.lines().filter(is_shown).map(|line| line.split(", 1 run").next().unwrap_or_default());
        shown.collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
        # sweep of ResNet50-v1b, 1n1g 1n2g 1n4g
        # slots: 4 on this machine, from --gpus; its driver lists no GPU
        # sweep of ResNet50-v1b, 1n1g 1n2g 1n4g"#]]
    .assert_eq(&[plan("--gpus 0,1,2,3"), plan("--hosts localhost:4")].join("\n"));
    let cores = processors::cores();
    assert!(
        plan("").contains(&format!("\n# slots: {cores} on this machine, one for each core, because ")),
        "{}",
        plan("")
    );
}

/// `--device auto` is resolved in the first line.
#[test]
fn first_line_names_the_device() {
    let sandbox = Sandbox::new("exit 1");
    for (script, device) in [("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'", "NVIDIA H200"), ("exit 1", "cpu")] {
        let driver = sandbox.write_program("nvidia-smi", &format!("#!/bin/sh\n{script}\n"));
        let folders = [driver.parent().expect("a folder").display().to_string(), env::var("PATH").expect("a PATH")];
        let mut command = ringmark("sweep --dry-run --cases 1n1g --runs 21");
        command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        let stdout = succeeds(command.env("PATH", folders.join(":")));
        assert!(stdout.lines().next().is_some_and(|line| line.contains(&format!(", device {device}, "))), "{stdout}");
    }
}

#[test]
fn invalid_options_exit_with_status_2() {
    let sandbox = with_record(VALID_WORKER);
    fs::write(sandbox.path("nodes"), "a slots=8\nb slots=many\n").expect("written");
    let refuse = |options: &str| {
        let mut command = ringmark(&format!("sweep {options} --out out"));
        let error = refused(command.current_dir(sandbox.folder.path()), 2);
        assert!(!sandbox.path("out").exists(), "{options}");
        error
    };
    check_refusals(
        &expect![[r#"
            --cases 1n1g,8g
                error: invalid value '8g' for '--cases <CASE,..>': case "8g" is unknown: write 1n2g for 1 node with 2 GPUs or ranks
                tip: did you mean `--cases 1n8g`?
            --cases 1n1g,1n1g
                error: --cases lists 1n1g twice: list it once, and set --runs for more runs
            --device cpu --dtype tf32
                error: --dtype tf32 needs a GPU of compute capability 8.0, and these ranks use the CPU: choose fp32 or bf16
            --hosts 4
                error: invalid value '4' for '--hosts <HOST:SLOTS,..>': 4 is a number, not a host name: write localhost:4 for 4 ranks on this machine, or name:4
            --hosts a:2 --cases 1n1g,1n2g --inject slow:5:50
                error: --inject slow:5:50: there is no rank 5: the largest case has 2 ranks, from 0
            --hosts a:2 --cases 1n1g,1n2g --inject fail:2:2
                error: --inject fail:2:2: there is no rank 2: the largest case has 2 ranks, from 0
            --hosts a:8:9
                error: invalid value 'a:8:9' for '--hosts <HOST:SLOTS,..>': "a:8:9" has two slot counts, 8 and 9: write one
            --gpus 0,x
                error: invalid value '0,x' for '--gpus <LIST>': list GPUs by number or UUID: 0,2
            --gpus 0,0
                error: invalid value '0,0' for '--gpus <LIST>': 0 is listed twice
            --hosts a:8;b:8
                error: invalid value 'a:8;b:8' for '--hosts <HOST:SLOTS,..>': separate hosts by commas: a:8,b:8
            --device cpu --bind core --launcher-args --bind-to=socket
                error: --bind core conflicts with --bind-to socket of --launcher-args, which takes precedence: omit one of them
            --launcher slurm --hosts a:1 --gpus 0
                error: --gpus: Slurm assigns the GPUs: request them from sbatch (--gpus-per-node)
            --launcher yarn
                error: invalid value 'yarn' for '--launcher <NAME>'
                [possible values: mpirun, slurm, gridengine]
            -np 2
                error: unexpected argument '-np' found
                tip: -np: use `--cases 1n2g` for 1 node with 2 ranks, one per GPU; `2n8g` is 2 nodes with 8 ranks each
            --nproc-per-node=4
                error: unexpected argument '--nproc-per-node' found
                tip: --nproc-per-node: use `--cases 1n4g` for 1 node with 4 ranks, one per GPU; `2n8g` is 2 nodes with 8 ranks each
            --launcher slurm --hosts a
                error: host "a" has no slot count: write a:8 for 8 ranks
            --hosts a:8 --cases 1n1g,1n8g,2n8g
                error: case 2n8g needs 2 hosts, --hosts has 1: use --hosts a:8,HOST2:8, or choose --cases 1n1g,1n8g
            --hostfile nodes
                error: the hostfile nodes, line 2: host b has "many" slots: write a number of at least 1
            --runs 0
                error: invalid value '0' for '--runs <N>': must be a whole number from 1 to 10000
            --cases 1n1g --batch-sizes 1,2,1
                error: --batch-sizes lists 1 twice: list it once
            --batch-sizes 4,x
                error: invalid value 'x' for '--batch-sizes <N,..>': must be a whole number from 1 to 65536
            --batch-factor alexnet=8
                error: --batch-factor alexnet=8: no run uses alexnet: add it to --models, or omit its factor
            --batch-factor 8
                error: invalid value '8' for '--batch-factor <NAME=N,..>': choose NAME=FACTOR, such as mxnet-alexnet=8
            --batch-factor resnet18=0
                error: invalid value 'resnet18=0' for '--batch-factor <NAME=N,..>': the factor "0" must be a whole number from 1 to 1024
            --model resnet18 --batch-size auto --batch-factor resnet18=2
                error: --batch-factor resnet18=2 conflicts with --batch-size auto, which finds the largest batch: use only one of them
            --batch-size -4
                error: invalid value '-4' for '--batch-size <N>': choose 1 to 65536, or auto
            --timeout 5w
                error: invalid value '5w' for '--timeout <SECONDS>': choose a time from 1s to 365d, such as 90s, 5m or 2h; a number alone is seconds
            --stall-timeout 5s
                error: invalid value '5s' for '--stall-timeout <SECONDS>': choose 6 to 31536000 seconds, also as 5m or 2h, or 0 to wait indefinitely
            --hosts node[1-2:8
                error: invalid value 'node[1-2:8' for '--hosts <HOST:SLOTS,..>': the brackets of "node[1-2:8" do not match: write node[1-64]:8 for 64 hosts
            --cases 1n1g --dtypes fp32,fp32
                error: --dtypes lists fp32 twice: list it once
            --cases 1n1g --dtypes fp32,fp8
                error: invalid value 'fp8' for '--dtypes <TYPE,..>'
                tip: use fp32, tf32, fp16 or bf16
            --cases 1n1g --dtypes fp32 --dtype bf16
                error: the argument '--dtypes <TYPE,..>' cannot be used with '--dtype <TYPE>'
            --cases 1n1g --batch-sizes 1 --batch-size 2
                error: the argument '--batch-sizes <N,..>' cannot be used with '--batch-size <N>'
            --cases 1n2g --strategies all-reduce,all-reduce
                error: --strategies lists all-reduce twice: list it once
            --cases 1n2g --strategies all-reduce --strategy all-reduce
                error: the argument '--strategies <NAME,..>' cannot be used with '--strategy <NAME>'
            --cases 1n2g --strategies all-reduce,redis
                error: invalid value 'redis' for '--strategies <NAME,..>'
                [possible values: all-reduce, zero1, zero2, fsdp, hsdp, local, device, nccl, dist_sync, dist_device_sync, dist_async, dist_device_async]
            --cases 1n2g --strategies all-reduce,device --servers 2
                error: --servers 2 does not apply to --strategy all-reduce: omit --servers, or use --strategy dist_sync, dist_device_sync, dist_async or dist_device_async
            --cases 1n2g --strategies all-reduce,device --server-hosts c
                error: --server-hosts c applies to --strategy dist_*, but --strategy is all-reduce,device: omit --server-hosts
            --cases 1n2g --strategies all-reduce,local --dtypes fp32,fp16
                error: --dtype fp16 is not supported with --strategy local, which updates parts of the weights apart from the loss scaler: use --dtype bf16, or --strategy all-reduce, zero1, zero2, fsdp, hsdp, device or nccl
            --cases 1n2g --strategies all-reduce,device --batch-size auto
                error: --batch-size auto finds the largest batch of one strategy, but --strategies has all-reduce,device: choose one with --strategy, or give --batch-size a number
            --cases 1n2g --strategies all-reduce,device --suite ddp
                error: --suite ddp supports one strategy, but --strategies has all-reduce,device: choose one with --strategy
            --hosts a:1,b:1,c:1 --cases 1n1g,3n1g --models resnet18,mlp --strategy dist_sync --servers 7
                note: --models mlp is read as mxnet-mlp
                error: 1n1g of mxnet-mlp: --servers 7: the network has only 6 arrays: use at most one server per array
            --hosts a:1,b:1,c:1,d:1,e:1,f:1,g:1 --cases 1n1g,7n1g --model mlp --strategies all-reduce,dist_sync
                note: --model mlp is read as mxnet-mlp
                error: 7n1g of mxnet-mlp: --servers 7: the network has only 6 arrays: use at most one server per array
            --hosts a:1,b:1 --cases 2n1g --strategies all-reduce,local
                error: --strategy local works on one host only, but case 2n1g has 2: use --strategy zero1 or dist_sync, or --cases with one host
            --cases 1n1g --strategies all-reduce,nccl
                error: --strategies all-reduce,nccl with --cases 1n1g: one rank exchanges nothing and runs as all-reduce, so nccl would have no run: add a case of several ranks, or omit all-reduce
            --batch-size 0
                error: --batch-size 0 is out of range: choose 1 to 65536
            --profile dlperf --warmup 120
                error: --warmup 120 leaves none of --iters 120 to measure: choose a smaller --warmup
            --profile full
                error: invalid value 'full' for '--profile <NAME>'
                tip: did you mean `--profile dlperf`?
            --profile cpu --quick
                error: the argument '--profile <NAME>' cannot be used with '--quick'
            --cases 1n1g --mpirun-args 'open
                error: --launcher-args "'open": missing closing quote
            --cases 1n1g --worker /nowhere/worker
                error: --worker /nowhere/worker is not a program: set it to the path of ringmark-worker
        "#]],
        refuse,
    );
    // The resolver adds its own words.
    let error = refuse("--hosts missing.invalid");
    assert!(
        error.contains("\"missing.invalid\" has no slot count and cannot be queried: host name cannot be"),
        "{error}"
    );
}

#[test]
fn missing_worker_is_reported_with_a_fix() {
    let sandbox = with_record(VALID_WORKER);
    let lonely = sandbox.path("ringmark");
    copy_program(env!("CARGO_BIN_EXE_ringmark"), &lonely);
    let mut command = Command::new(lonely);
    command.args(words("sweep --cases 1n1g")).env("PATH", "/usr/bin:/bin").current_dir(sandbox.folder.path());
    let error = refused(&mut command, 1);
    expect![[r"
        error: ringmark-worker not found next to this program or on PATH: build it with `cargo build --release` in ringmark's repository, or use --worker PATH
    "]].assert_eq(&error);
    assert!(!sandbox.path("results").exists());
}

#[test]
fn unwritable_folder_is_reported_before_the_first_job() {
    let sandbox = with_record(VALID_WORKER);
    let mut command = ringmark("sweep --cases 1n1g --out /dev/null/here");
    let error = refused(command.arg("--worker").arg(sandbox.worker()), 1);
    expect![[r"
        error: cannot create folder /dev/null/here: choose a writable --out: Not a directory (os error 20)
    "]]
    .assert_eq(&error);
}

#[test]
fn sweep_keeps_every_log_and_record() {
    let sandbox = with_record(VALID_WORKER);
    let (status, stdout, stderr) = run(&mut sandbox.sweep("--hosts localhost:2 --cases 1n1g,1n2g --runs 2"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let (threads, cores) = threads_of_two();
    let share = format!("\neach rank has {} in every case; its host has {cores} cores\n", count(threads, "thread"));
    assert!(stdout.contains(&share), "{stdout}");
    for (case, number) in [("1n1g", 1), ("1n1g", 2), ("1n2g", 1), ("1n2g", 2)] {
        let log = sandbox.log(&format!("{case}/rn50_b8_fp32_{number}.log"));
        let record = sandbox.path("out").join(case).join(format!("rn50_b8_fp32_{number}.jsonl"));
        assert!(record.is_file());
        assert!(log.starts_with("+ mpirun --allow-run-as-root "), "{log}");
        let words = format!(
            "words: train --batch-size 8 --device cpu --iters 12 --warmup 2 --threads {threads} --record {} --case {case} --run {number}\n",
            record.display()
        );
        assert!(log.contains(&words), "{log}");
        // mpirun forwards standard output as it is read, even partial lines, with standard error in between.
        let output = log.replacen(&words, "", 1);
        let iterations = output.lines().filter(|line| matches!(dlperf::parse(line), LogLine::Iteration { .. }));
        assert_eq!(iterations.count(), 12, "{log}");
        let result = format!("{case} run {number} of 2: 20.50 images/s, ");
        assert!(stdout.contains(&result), "{stdout}");
    }
    let out = sandbox.path("out").display().to_string();
    let (_, extracted, _) = run(ringmark("extract").arg(&out));
    let table = extracted.split("\n\n").nth(1).expect("a table");
    assert!(table.starts_with("case  ranks") && stdout.contains(&format!("\n\n{table}\n\n")), "{table}\n{stdout}");
    let program = env!("CARGO_BIN_EXE_ringmark");
    assert!(
        stdout.ends_with(&format!("all runs are in {out}; next: {program} report {out} -o {out}/report.html\n")),
        "{stdout}"
    );

    let error = refused(&mut sandbox.sweep("--hosts localhost:2 --cases 1n1g"), 2);
    expect![[r"
        error: --out DIR/out already contains a sweep (DIR/out/sweep.json): add --resume to continue, choose another folder, or move this one away
    "]].assert_eq(&without_folder(&error));
    fs::remove_file(sandbox.path("out/sweep.json")).expect("removed");
    let error = refused(&mut sandbox.sweep("--hosts localhost:2 --cases 1n1g"), 2);
    expect![[r"
        error: --out DIR/out already contains runs (DIR/out/1n1g/rn50_b8_fp32_1.log): choose another folder, or move this one away
    "]].assert_eq(&without_folder(&error));
}

#[test]
fn every_host_of_a_case_gets_its_share_of_ranks() {
    let local_rank = "echo \"rank $rank is number $OMPI_COMM_WORLD_LOCAL_RANK on its host\"";
    let sandbox = with_record(&format!("{local_rank}\n{VALID_WORKER}"));
    // Replacement of ssh that skips its five options, logs the host, and runs the command locally. Daemons of several
    // hosts on one machine would share their session folder and crash, so each gets its own.
    let agent = "shift 5; echo $1 >>\"$0.log\"; export TMPDIR=\"$0.$1\"; mkdir \"$TMPDIR\"; shift; sh -c \"$*\"";
    let agent = sandbox.write_program("agent", &format!("#!/bin/sh\n{agent}\n"));
    let mut sweep = sandbox.sweep("--hosts first:4,second:3,third:3 --cases 2n3g --runs 1 --mpirun-args");
    succeeds(sweep.arg(format!("-mca plm_rsh_agent {}", agent.display())));
    let hosts = fs::read_to_string(sandbox.path("agent.log")).expect("host was queried");
    assert_eq!(BTreeSet::from_iter(hosts.lines()), BTreeSet::from(["first", "second"]));
    let log = sandbox.log("2n3g/rn50_b8_fp32_1.log");
    for (rank, local_rank) in [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2)] {
        assert!(log.contains(&format!("\nrank {rank} is number {local_rank} on its host\n")), "{log}");
    }
}

#[test]
fn host_without_slots_is_queried_once() {
    let sandbox = Sandbox::new("exit 1");
    // Replacement of ssh that skips its options, logs host and query, and answers without GPUs.
    let agent = "while [ \"$1\" != first ]; do shift; done; echo \"$*\" >>\"$0.log\"; \
                 case \"$*\" in *nvidia-smi*) echo cores=2 ;; *) exit 1 ;; esac";
    let agent = sandbox.write_program("agent", &format!("#!/bin/sh\n{agent}\n"));
    for hosts in ["first", "first:2"] {
        let mut sweep = ringmark("sweep --no-doctor --cases 1n1g --runs 1 --hosts");
        sweep.arg(hosts).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        sweep.arg("--mpirun-args").arg(format!("-mca plm_rsh_agent {}", agent.display()));
        let _ = fs::remove_file(sandbox.path("agent.log"));
        fails(&mut sweep);
        let _ = fs::remove_dir_all(sandbox.path("out"));
        let requested = fs::read_to_string(sandbox.path("agent.log")).expect("host was queried");
        assert_eq!(requested.matches("nvidia-smi").count(), 1, "{hosts}: {requested}");
    }
}

#[test]
fn session_folder_failure_is_reported_with_a_fix() {
    let sandbox = Sandbox::with_valid_worker();
    // Even root cannot create a folder there.
    let stderr = fails(sandbox.short_sweep("--cases 1n1g --runs 1").env("TMPDIR", "/proc/none"));
    let failure = sandbox.failure("1n1g/rn50_b8_fp32_1.log");
    expect!["Open MPI cannot create its session folder /proc/none: No such file or directory: set TMPDIR to a writable folder on every host"].assert_eq(&failure);
    assert!(stderr.contains(&failure), "{stderr}");
}

#[test]
fn too_low_open_file_limit_is_reported() {
    let sandbox = Sandbox::with_valid_worker();
    sandbox.hook("ulimit -Sn >\"$folder/limit\"");
    let sweep = |limits: &str, options: &str| {
        let sweep = sandbox.short_sweep(options);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limits}")).arg(sweep.get_program()).args(sweep.get_args());
        let (status, _, stderr) = run(&mut limited);
        assert_eq!(status, Some(0), "{stderr}");
        let limit = fs::read_to_string(sandbox.path("limit")).expect("the worker ran");
        (limit.trim().to_owned(), stderr)
    };
    // 256 for everything else.
    let (limit, stderr) = sweep("100:1000", "--cases 1n2g --runs 1");
    assert_eq!((limit.as_str(), stderr.contains("warning")), ("258", false), "{stderr}");
    let (limit, stderr) = sweep("100:257", "--cases 1n2g --runs 2 --resume");
    assert_eq!(limit, "257");
    let warning = "warning: limit of 257 open files is too low for connections to 2 ranks, so some ranks are not \
        monitored: raise the limit (ulimit -Hn, LimitNOFILE=)\n";
    assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
}

#[test]
fn failed_rank_stops_the_sweep_and_keeps_results() {
    // mpirun prints nothing about a rank that exits before the others run.
    let both = "until [ -e \"$folder/started\" ]; do sleep 0.1; done";
    let failing = format!("[ $rank = 1 ] && {both} && echo 'rank 1 of 2: no memory' && exit 3");
    let waiting = "[ $OMPI_COMM_WORLD_SIZE = 2 ] && touch \"$folder/started\" && exec sleep 600";
    let sandbox = with_record(&format!("{failing}\n{waiting}\n{VALID_WORKER}"));
    let (status, stdout, stderr) = run(&mut sandbox.sweep("--hosts localhost:2 --cases 1n1g,1n2g --runs 1"));
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains("1n1g run 1 of 1: 20.50 images/s"), "{stdout}");
    expect!["rank 1 of 2 exited with status 3"].assert_eq(&sandbox.failure("1n2g/rn50_b8_fp32_1.log"));
    assert!(stderr.contains("    rank 1 of 2: no memory\n"), "{stderr}");
    let log = sandbox.path("out/1n2g/rn50_b8_fp32_1.log").display().to_string();
    let last = format!("\nerror: 1n2g run 1 of 1 failed: rank 1 of 2 exited with status 3\nlog: {log}\n");
    let (_, go_on) = stderr.split_once(&last).expect(&stderr);
    assert!(go_on.starts_with("completed runs are kept; resume with: ") && go_on.ends_with(" --resume\n"), "{stderr}");
    assert!(!sandbox.log("1n1g/rn50_b8_fp32_1.log").contains("run failed"));
}

#[test]
fn run_without_a_valid_record_fails() {
    let sandbox = Sandbox::new("echo nothing");
    let (status, ..) = run(&mut sandbox.sweep("--cases 1n1g"));
    assert_eq!(status, Some(1));
    let reason = sandbox.failure("1n1g/rn50_b8_fp32_1.log");
    expect![
        "mpirun exited with status 0, but rank 0 on localhost wrote no record DIR/out/1n1g/rn50_b8_fp32_1.jsonl here"
    ]
    .assert_eq(&without_folder(&reason));

    let sandbox = with_record(VALID_WORKER);
    sandbox.write_record(Some("loss is not finite"));
    let (status, ..) = run(&mut sandbox.sweep("--cases 1n1g"));
    assert_eq!(status, Some(1));
    expect!["loss is not finite"].assert_eq(&sandbox.failure("1n1g/rn50_b8_fp32_1.log"));
}

#[test]
fn hanging_run_is_killed_with_all_its_processes() {
    // The timeout grows until a rank has written output before it expires.
    let has_log = |seconds: u32| {
        let sandbox = Sandbox::new(HANGING);
        let options = format!("--hosts localhost:2 --cases 1n2g --timeout {seconds}");
        fails(&mut sandbox.sweep(&options));
        let words = format!("timed out after {seconds} s; no rank has reported");
        assert_eq!(sandbox.failure("1n2g/rn50_b8_fp32_1.log"), words);
        assert_eq!(sandbox.left(), Vec::<String>::new());
        sandbox.log("1n2g/rn50_b8_fp32_1.log").contains("\nbefore\n")
    };
    assert!([2, 8, 32, 128].into_iter().any(has_log));
}

#[test]
fn interrupted_sweep_leaves_no_process() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let sandbox = Sandbox::new(HANGING);
        let mut sweep = sandbox.sweep("--hosts localhost:2 --cases 1n2g");
        let mut sweep = sweep.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        sandbox.wait_for_ranks(2);
        kill(Pid::from_raw(sweep.id().cast_signed()), signal).expect("running process");
        assert_eq!(sweep.wait().expect("ended").code(), Some(128 + signal as i32));
        assert_eq!(sandbox.failure("1n2g/rn50_b8_fp32_1.log"), "interrupted");
        assert_eq!(sandbox.left(), Vec::<String>::new());
    }
}

#[test]
fn killed_mpirun_leaves_no_rank() {
    // The parent of a rank is mpirun.
    let sandbox = Sandbox::new(&format!("[ $rank = 1 ] && sleep 0.5 && kill -KILL $PPID\n{HANGING}"));
    fails(&mut sandbox.sweep("--hosts localhost:2 --cases 1n2g"));
    expect!["mpirun was killed by signal 9"].assert_eq(&sandbox.failure("1n2g/rn50_b8_fp32_1.log"));
    assert_eq!(sandbox.left(), Vec::<String>::new());
}

#[test]
fn killed_or_stopped_rank_is_reported_with_its_position() {
    // A crashing rank prints its stack to the log.
    let crashed = (Signal::SIGSEGV, "was killed by signal 11 (SIGSEGV) in iteration ");
    let stopped = (Signal::SIGSTOP, "no progress for 10 s: rank 1 of 2 on host ");
    let name = |(signal, words): (Signal, &str), device: &str| {
        let sandbox = Sandbox::real();
        let options = "--cases 1n2g --runs 1 --hosts localhost:2 --stall-timeout 10";
        let training =
            format!("--device {device} --model mxnet-lenet --batch-size 2 --iters 100000 --warmup 1 --threads 1");
        let mut sweep = ringmark(&format!("sweep --no-doctor {options} {training}"));
        sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        sweep.envs((device == "cuda").then(virtual_gpu::variables).into_iter().flatten());
        let tokens = crate::support::core_tokens::take_all_cores();
        let mut sweep = sweep.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        let log = sandbox.path("out/1n2g/mxnet-lenet_b2_fp32_1.log.part");
        wait_until("iterations are done", || {
            fs::read_to_string(&log).is_ok_and(|log| log.matches("Epoch[0] Batch[").count() > 2)
        });
        wait_until("both ranks have reported", || all_have_reported(&sandbox.path("out"), 2));
        let own = sandbox.worker().display().to_string();
        let is_rank_1 = |process: &Pid| {
            let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == b"OMPI_COMM_WORLD_RANK=1")
        };
        let ranks = crate::support::processes_of(sandbox.folder.path()).into_iter();
        let mut ranks = ranks.filter(|(_, line)| line.starts_with(&own)).map(|(process, _)| process);
        kill(ranks.find(is_rank_1).expect("rank 1"), signal).expect("running process");
        drop(tokens);
        assert_eq!(sweep.wait().expect("ended").code(), Some(1));
        let reason = sandbox.failure("1n2g/mxnet-lenet_b2_fp32_1.log");
        assert!(reason.contains("rank 1 of 2 on host ") && reason.contains(words), "{reason}");
        let log = sandbox.log("1n2g/mxnet-lenet_b2_fp32_1.log");
        assert_eq!(signal == Signal::SIGSEGV, log.contains("Signal: Segmentation fault (11)"), "{log}");
        assert!(signal == Signal::SIGSEGV || reason.contains("; rank 0 waits for it in iteration "), "{reason}");
        assert_eq!(sandbox.left(), Vec::<String>::new());
    };
    // In parallel: most of the time is spent waiting for the timeout.
    thread::scope(|scope| {
        for (fault, device) in [(crashed, "cpu"), (stopped, "cpu"), (stopped, "cuda")] {
            scope.spawn(move || name(fault, device));
        }
    });
}

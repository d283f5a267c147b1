//! `ringmark doctor` on this machine with the real worker, and on hosts with injected faults.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::cluster::{Cluster, succeed};
use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::sandbox::{
    Sandbox, check_refusals, copy_program, refused, ringmark, run, succeeds, wait_until, words,
};

impl Sandbox {
    /// Returns `ringmark doctor` with this sandbox's worker.
    fn doctor(&self, options: &str) -> Command {
        let mut command = ringmark("doctor");
        command.arg("--worker").arg(self.worker()).args(words(options));
        command
    }

    /// Returns the exit status and the JSON of an examination of this machine.
    fn examination(&self, options: &str) -> (Option<i32>, Value) {
        let mut command = self.doctor(options);
        let (status, stdout, stderr) = run(command.args(["--json", "-"]));
        (status, serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
    }

    /// The same with `script` as nvidia-smi, other programs of the sandbox, and the files of the kernel in its folder
    /// `root`.
    fn with_nvidia_smi(&self, script: &str, options: &str) -> (Option<i32>, Value) {
        self.write_program("nvidia-smi", &format!("#!/bin/sh\n{script}"));
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").expect("set"));
        let mut command = self.doctor(options);
        command.args(["--json", "-"]).env("PATH", path).env("RINGMARK_PROBE_ROOT", self.path("root"));
        let (status, stdout, stderr) = run(&mut command);
        (status, serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
    }
}

fn finding_texts(examination: &Value) -> Vec<&str> {
    let findings = examination["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["what"].as_str().expect("words")).collect()
}

// --- this machine ----------------------------------------------------------------------------------------------------

#[test]
fn doctor_reports_no_errors_on_this_machine() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    let (status, stdout, stderr) = run(&mut sandbox.doctor("--hosts localhost:1 --device cpu"));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    let line = stdout.lines().nth(1).expect("a host");
    assert!(line.starts_with("localhost  here  ok"), "{stdout}");
    let last = stdout.lines().last().expect("a line");
    assert!(last.starts_with("1 host: 0 errors, ") && last.ends_with(" s: a job can run on these hosts"), "{stdout}");

    let file = sandbox.path("health.json");
    let (status, ..) = run(sandbox.doctor("--hosts localhost:1 --device cpu --quick --json").arg(&file));
    assert_eq!(status, Some(0));
    let written: Value = serde_json::from_slice(&fs::read(file).expect("written")).expect("JSON");
    let (status, shown) = sandbox.examination("--hosts localhost:1 --device cpu --quick");
    assert_eq!(status, Some(0));
    for found in [&written["hosts"][0], &shown["hosts"][0]] {
        assert_eq!(found["inspection"]["libtorch"]["version"], "2.11.0");
        assert!(found["inspection"]["mpi"]["version"].as_str().expect("a version").starts_with("Open MPI"));
        assert_eq!(found["probe"]["worker"]["sha256"].as_str().expect("a hash").len(), 64);
        assert_eq!((&found["is_here"], &found["ssh_seconds"]), (&Value::Bool(true), &Value::Null));
    }
}

/// nvidia-smi for two H100 with a driver of 2024; the second GPU is busy and hot.
const TWO_GPUS: &str = r#"
case "$*" in
    *--query-gpu=*clocks_event_reasons*)
        [ -z "$old" ] || { echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2; }
        rows=1 ;;
    *--query-gpu=*) rows=1 ;;
    *--query-compute-apps=*) echo 'GPU-bb, 4711, 70000, /usr/bin/python3' ;;
    'topo -m') printf '\t\033[4mGPU0\tGPU1\033[0m\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n' ;;
    -L) printf 'GPU 0: NVIDIA H100\nGPU 1: NVIDIA H100\n' ;;
esac
[ -n "$rows" ] || exit 0
echo '0, GPU-aa, NVIDIA H100 80GB HBM3, 550.54.15, 81559, 0, 345, 1980, 0, 1980, 1980, 0x0000000000000001'
echo '1, GPU-bb, NVIDIA H100 80GB HBM3, 550.54.15, 81559, 70500, 1200, 1980, 4, 1980, 1980, 0x0000000000000020'
"#;

#[test]
fn gpus_are_parsed_from_old_and_new_nvidia_smi() {
    let _tokens = take_cores(1);
    for old in ["", "old=yes"] {
        let sandbox = Sandbox::real();
        let (_, found) = sandbox.with_nvidia_smi(&format!("{old}\n{TWO_GPUS}"), "--hosts localhost:2 --quick");
        let probe = &found["hosts"][0]["probe"];
        let gpus = &probe["gpus"]["answer"];
        assert_eq!((&gpus[0]["uuid"], &gpus[1]["slow_reasons"]), (&"GPU-aa".into(), &0x20.into()), "{probe}");
        assert_eq!(probe["topology"][1], "GPU0 X NV18", "{probe}");
        let texts = finding_texts(&found);
        for words in [
            "GPU 1: in use by other processes: /usr/bin/python3 (process 4711, 70000 MiB)",
            "GPU 1: clock is throttled: software thermal slowdown (1200 of 1980 MHz)",
            "GPU 1: 4 uncorrected ECC errors since the driver was loaded",
        ] {
            assert!(texts.contains(&words), "{words}: {texts:?}");
        }
        assert!(!texts.iter().any(|what| what.starts_with("GPU 0")), "{texts:?}");
    }
}

/// NVLink of two GPUs, as driver 550 prints it.
const NVLINKS: &str = r#"
case "$*" in
    'nvlink -s')
        printf 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n'
        printf 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n'
        exit ;;
esac
"#;

/// A kernel log with errors of a GPU.
const KERNEL_LOG: &str = "#!/bin/sh
cat <<'END'
[   12.345678] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023
[ 5013.000001] NVRM: Xid (PCI:0000:3b:00): 13, pid=4711, name=python3, Graphics Exception: ESR 0x404600=0x80000002
[ 5013.000002] NVRM: Xid (PCI:0000:3b:00): 13, pid=4711, name=python3, Graphics Exception: ESR 0x404608=0x80000002
[ 6000.000003] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
END
";

#[test]
fn links_kernel_log_and_kernel_files_are_read() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    sandbox.write_program("dmesg", KERNEL_LOG);
    let write = |file: &str, text: &str| {
        let path = sandbox.path("root").join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, format!("{text}\n")).expect("written");
    };
    for (device, symbol_errors) in [("mlx5_0", "0"), ("mlx5_1", "120"), ("mlx5_2", "0")] {
        for (file, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "InfiniBand"),
            ("rate", "400 Gb/sec (4X NDR)"),
            ("counters/symbol_error", symbol_errors),
            ("counters/link_downed", "0"),
        ] {
            write(&format!("sys/class/infiniband/{device}/ports/1/{file}"), text);
        }
    }
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance");
    write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave");
    write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 2023");
    let script = format!("{NVLINKS}{TWO_GPUS}");
    let (status, found) = sandbox.with_nvidia_smi(&script, "--hosts localhost:2 --quick");
    let texts = finding_texts(&found);
    assert_eq!(status, Some(1), "{texts:?}");
    for words in [
        "GPU 1: 1 NVLink links are active; 1 of 2 GPUs of this model have 2",
        "Xid 13 of the GPU at PCI 0000:3b:00 since boot, 2 times",
        "Xid 79 of the GPU at PCI 0000:3b:00 since boot: GPU has fallen off the bus",
        "port mlx5_1:1: symbol_error is 120; the median of 3 ports is 0",
        "governor powersave of the driver acpi-cpufreq keeps the processors at their lowest frequency",
        "GPUDirect RDMA is off: nvidia_peermem is not loaded, and the NVIDIA kernel module is not the open one",
    ] {
        assert!(texts.contains(&words), "{words}: {texts:?}");
    }
    fs::create_dir_all(sandbox.path("root/sys/module/nvidia_peermem")).expect("made");
    sandbox.write_program(
        "dmesg",
        "#!/bin/sh\necho 'dmesg: read kernel buffer failed: Operation not permitted' >&2\nexit 1\n",
    );
    sandbox.write_program("journalctl", &KERNEL_LOG.replace("79", "119"));
    let (_, found) = sandbox.with_nvidia_smi(&script, "--hosts localhost:2 --quick");
    let texts = finding_texts(&found);
    assert!(texts.contains(&"Xid 119 of the GPU at PCI 0000:3b:00 since boot: GSP RPC timeout"), "{texts:?}");
    assert!(!texts.iter().any(|what| what.starts_with("GPUDirect")), "{texts:?}");
}

#[test]
fn hanging_or_failing_nvidia_smi_is_reported() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    let start = Instant::now();
    let options = "--hosts localhost:1 --device cuda --quick";
    let (status, found) = sandbox.with_nvidia_smi("[ \"$1\" = -L ] || sleep 1000", options);
    assert!(start.elapsed() < Duration::from_secs(500), "{:?}", start.elapsed());
    assert_eq!((status, finding_texts(&found)), (Some(1), vec!["nvidia-smi did not respond within 8 s"]));
    // The other facts are available nevertheless.
    assert_eq!(found["hosts"][0]["inspection"]["libtorch"]["version"], "2.11.0");

    let (status, found) = sandbox.with_nvidia_smi("echo 'NVIDIA-SMI has failed'; exit 9", options);
    assert_eq!((status, finding_texts(&found)), (Some(1), vec!["nvidia-smi failed: NVIDIA-SMI has failed"]));
    let (status, found) = sandbox.with_nvidia_smi("exit 9", "--hosts localhost:1 --device cpu --quick");
    assert_eq!((status, finding_texts(&found)), (Some(0), Vec::new()));
}

#[test]
fn invalid_options_exit_with_status_2() {
    let sandbox = Sandbox::new("exit 1");
    let refuse = |options: &str| {
        let mut command = ringmark("doctor");
        if !options.contains("--worker") {
            command.arg("--worker").arg(sandbox.worker());
        }
        refused(command.args(words(options)), 2)
    };
    check_refusals(
        &expect![[r#"
            --interface ib0,ib1
                error: invalid value 'ib0,ib1' for '--interface <NAME|CIDR>': "ib0,ib1" is not an interface: write one name such as ib0, or a network such as 10.77.0.0/24
            --interface 10.77.0.0/40
                error: invalid value '10.77.0.0/40' for '--interface <NAME|CIDR>': "10.77.0.0/40" is not a network: write it as 10.77.0.0/24
            --worker /nowhere
                error: --worker /nowhere is not a program: set it to the path of ringmark-worker
        "#]],
        refuse,
    );
}

#[test]
fn host_with_unknown_slots_is_listed() {
    let sandbox = Sandbox::new("exit 1");
    let (status, found) = sandbox.examination("--hosts missing.invalid --device cpu --quick");
    assert_eq!((status, finding_texts(&found).len()), (Some(1), 1), "{found}");
    assert!(finding_texts(&found)[0].starts_with("host name cannot be resolved"), "{found}");
}

#[test]
fn unknown_interface_error_lists_the_available_ones() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    let (status, found) = sandbox.examination("--hosts localhost:1 --device cpu --quick --interface nosuch0");
    let texts = finding_texts(&found);
    assert_eq!((status, texts.len()), (Some(1), 1), "{texts:?}");
    assert!(texts[0].starts_with("interface nosuch0 not found; available: ") && texts[0].contains("lo 127.0.0.1/8"));
    // On a single host the loopback interface is accepted, by its network as well.
    for interface in ["lo", "127.0.0.0/8"] {
        let options = format!("--hosts localhost:1 --device cpu --quick --interface {interface}");
        let stdout = succeeds(&mut sandbox.doctor(&options));
        assert!(stdout.contains("\ninterface: lo"), "{stdout}");
    }
}

#[test]
fn sweep_does_not_start_if_the_doctor_finds_an_error() {
    let sandbox = Sandbox::new("echo 'no such library' >&2; exit 127");
    for command in ["sweep --cases 1n1g", "bandwidth"] {
        let out = sandbox.path(&command[..5]);
        let mut command = ringmark(&format!("{command} --hosts localhost:2 --device cpu"));
        let error = refused(command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(&out), 1);
        let worker = sandbox.worker().display().to_string();
        let what = format!("error: localhost, worker: {worker} does not start: no such library\n    fix: ");
        assert!(error.starts_with(&what), "{error}");
        assert!(error.contains("no job was started: run `ringmark doctor --hosts "), "{error}");
        assert!(!out.join("1n1g").exists());
    }
}

#[test]
fn unused_host_is_reported_and_checked() {
    let sandbox = Sandbox::new("exit 127");
    let output_text = "warning: no case uses missing.invalid: add 2n1g to --cases, or remove it from --hosts\n";
    let sweep = |options: &str| {
        let mut command = ringmark("sweep --cases 1n1g --hosts localhost:1,missing.invalid:1 --device cpu");
        run(command.args(words(options)).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")))
    };
    let (status, stdout, stderr) = sweep("");
    assert_eq!((status, stdout.as_str()), (Some(1), output_text), "{stderr}");
    let is_named =
        |line: &str| line.starts_with("error: missing.invalid, ") && line.contains("host name cannot be resolved");
    assert!(stderr.lines().any(is_named), "{stderr}");
    let (status, stdout, stderr) = sweep("--dry-run");
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains(&format!("# {output_text}")), "{stdout}");
}

#[test]
fn sweep_does_not_start_if_data_is_missing() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    let (out, there) = (sandbox.path("out"), sandbox.path("a b.rec"));
    // An empty record: magic number and length.
    fs::write(&there, [0x0a, 0x23, 0xd7, 0xce, 0, 0, 0, 0]).expect("written");
    let mut command = ringmark("sweep --hosts localhost:1 --cases 1n1g --device cpu --validate /nowhere/val.rec");
    let error =
        refused(command.arg("--data").arg(&there).arg("--worker").arg(sandbox.worker()).arg("--out").arg(&out), 2);
    assert_eq!(error, "error: --validate: /nowhere/val.rec does not exist on this machine: correct the path\n");
    assert!(!out.exists(), "{error}");
    // The doctor looks on every host.
    let doctor = run(&mut sandbox.doctor("--hosts localhost:1 --device cpu --quick --data /nowhere/val.rec"));
    assert!(
        doctor.1.contains("error: localhost, data: /nowhere/val.rec not found\n    fix: copy the data"),
        "{doctor:?}"
    );
    assert_eq!(doctor.0, Some(1));
    let mut doctor = sandbox.doctor("--hosts localhost:1 --device cpu --quick --json - --data");
    let (status, stdout, stderr) = run(doctor.arg(&there));
    let found: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    let data = &found["hosts"][0]["probe"]["data"];
    assert_eq!((status, data), (Some(0), &serde_json::json!([{ "state": "file", "size_bytes": 8 }])), "{stderr}");
}

#[test]
fn interrupted_doctor_leaves_no_process() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        // An agent that sends nothing and, like the real one, ends with its input.
        let sandbox = Sandbox::new("touch \"$folder/started.0\"; exec cat >/dev/null");
        let mut doctor = sandbox.doctor("--hosts localhost:1 --device cpu");
        let mut doctor = doctor.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        sandbox.wait_for_ranks(1);
        kill(Pid::from_raw(doctor.id().cast_signed()), signal).expect("running process");
        let status = doctor.wait().expect("ended");
        assert_eq!(status.code(), (signal != Signal::SIGKILL).then_some(128 + signal as i32));
        wait_until("no process is left", || sandbox.left().is_empty());
    }
}

#[test]
fn agent_executes_orders_and_exits_at_end_of_input() {
    let _tokens = take_cores(1);
    let sandbox = Sandbox::real();
    let mut agent = Command::new(sandbox.worker());
    agent.args(["agent", "--device", "cpu"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agent = agent.spawn().expect("starts");
    let mut orders = agent.stdin.take().expect("a pipe");
    let orders_text = "{\"Listen\":\"127.0.0.1\"}\n\"Clock\"\n{\"Listen\":\"198.51.100.1\"}\n";
    std::io::Write::write_all(&mut orders, orders_text.as_bytes()).expect("taken");
    drop(orders);
    let output = agent.wait_with_output().expect("exits");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(output.status.success() && lines.len() == 4, "{text}");
    assert_eq!(lines[0]["libtorch"]["version"], "2.11.0");
    assert!(lines[1]["Listening"].as_u64().expect("a port") > 0);
    assert!(lines[2]["Clock"].as_f64().expect("seconds") > 1.7e9);
    assert!(lines[3]["Failed"].as_str().expect("a reason").contains("cannot listen on address 198.51.100.1"));
}

// --- several hosts ---------------------------------------------------------------------------------------------------

/// Configuration file of Debian's Open MPI on a host.
const MPI_SETTINGS: &str = "/etc/openmpi/openmpi-mca-params.conf";

/// Four hosts, with the worker in a separate folder that can be changed on a single host.
struct TestHosts {
    sandbox: Sandbox,
    cluster: Cluster,
}

impl TestHosts {
    fn open() -> Option<TestHosts> {
        let cluster = Cluster::start(4)?;
        let sandbox = Sandbox::new("");
        copy_program(crate::support::worker(), sandbox.worker());
        Some(TestHosts { sandbox, cluster })
    }

    /// Runs `ringmark COMMAND` on the first host, without a chosen network. Returns the exit status and both outputs.
    fn ringmark(&self, command: &str) -> (Option<i32>, String) {
        let (program, worker) = (env!("CARGO_BIN_EXE_ringmark"), self.sandbox.worker().display().to_string());
        let mut line = vec!["run", program];
        line.extend(words(command));
        line.extend(["--worker", &worker, "--device", "cpu"]);
        let output = self.cluster.call(&line);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    /// Runs `breaking` on host `number`, checks that the doctor's quick part fails with exactly one error that
    /// contains `message`, and runs `mending`.
    fn fault(&self, number: usize, breaking: &str, mending: &str, options: &str, message: &str) {
        self.on(number, breaking);
        let start = Instant::now();
        let (status, text) = self.ringmark(&format!("doctor --quick {options}"));
        let took = start.elapsed().as_secs_f64();
        self.on(number, mending);
        let line = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        println!("{breaking} {options}: {took:.1} s until\n    {line}");
        assert_eq!(status, Some(1), "{text}");
        assert!(line.contains(message), "{breaking} {options}: {text}");
        let errors = text.lines().filter(|line| line.starts_with("error: ") && !line.ends_with(" would fail")).count();
        assert_eq!(errors, 1, "{text}");
    }

    fn host(&self, number: usize) -> String {
        self.cluster.host(number)
    }

    /// Returns the hosts as options.
    fn hosts(&self, numbers: &[usize]) -> String {
        let hosts: Vec<String> = numbers.iter().map(|number| format!("{}:1", self.host(*number))).collect();
        format!("--hosts {}", hosts.join(","))
    }

    /// Runs a shell command on a host, unless it is empty.
    fn on(&self, number: usize, line: &str) {
        if !line.is_empty() {
            succeed(&self.cluster.call(&["on", &number.to_string(), "sh", "-euc", line]));
        }
    }
}

#[test]
fn four_healthy_hosts_reach_each_other() {
    let Some(test_hosts) = TestHosts::open() else { return };
    let _tokens = take_all_cores();
    let all = test_hosts.hosts(&[1, 2, 3, 4]);
    // Every host has this bridge, and no host can be reached on it.
    let bridge = "ip link add docker0 type bridge; ip address add 172.17.0.1/16 dev docker0; ip link set docker0 up";
    (1..=4).for_each(|number| test_hosts.on(number, bridge));
    let (status, text) = test_hosts.ringmark(&format!("doctor {all}"));
    assert_eq!(status, Some(0), "{text}");
    let network = "interface: eth0, 10.77.0.0/24 (the host names resolve to it); excluded: docker0, local to each \
        host\n";
    assert!(text.contains(network), "{text}");
    for number in 1..=4 {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(&test_hosts.host(number))).collect();
        // Columns of a table that is wider than the terminal are printed below it.
        let row = lines.join("  ");
        assert!(row.contains(&format!("eth0 10.77.0.{number} ")), "{text}");
        assert_eq!(words(&row).nth(1) == Some("here"), number == 1, "{text}");
        // Other load may make a link slow, which is then reported.
        let is_slow = text.contains(&format!("warning: {}, slowest link: slow links: ", test_hosts.host(number)));
        let speed = if is_slow { " warn " } else { " GB/s, " };
        assert!(row.contains("3 of 3") && row.contains(speed) && row.ends_with(" none"), "{text}");
        assert_eq!(row.matches("no GPU").count(), 3, "{text}");
    }

    // A sweep passes the network to MPI and NCCL; a network given by its address is resolved to its name on each
    // host.
    let training = "--runs 1 --cases 2n1g --model mxnet-lenet --batch-size 2 --iters 3 --warmup 1 --threads 1";
    for (choice, command_line) in [
        ("", "_if_include eth0 -x NCCL_SOCKET_IFNAME==eth0 "),
        ("--interface 10.77.0.0/24", "_if_include 10.77.0.0/24 -x RINGMARK_INTERFACE=10.77.0.0/24 "),
    ] {
        let out = tempfile::tempdir().expect("a folder");
        let (status, text) =
            test_hosts.ringmark(&format!("sweep {all} {training} {choice} --out {}", out.path().display()));
        assert_eq!(status, Some(0), "{text}");
        let unused = format!("warning: no case uses {}, {}: add 4n1g", test_hosts.host(3), test_hosts.host(4));
        assert!(text.starts_with(&unused) && text.contains("\ninterface: eth0, 10.77.0.0/24 ("), "{text}");
        let log = fs::read_to_string(out.path().join("2n1g/mxnet-lenet_b2_fp32_1.log")).expect("a log");
        assert!(log.contains(command_line) && log.contains("\n# NCCL_SOCKET_IFNAME==eth0\n"), "{log}");
    }

    // If Open MPI is configured with excluded interfaces, no interface is passed to it: it would use none.
    let file = test_hosts.sandbox.path("mca-params.conf");
    let settings = fs::read_to_string(MPI_SETTINGS).unwrap_or_default();
    fs::write(&file, settings + "\nbtl_tcp_if_exclude = lo,docker0\n").expect("written");
    test_hosts.on(2, &format!("mount --bind {} {MPI_SETTINGS}", file.display()));
    let out = tempfile::tempdir().expect("a folder");
    let (status, text) = test_hosts.ringmark(&format!("sweep {all} {training} --out {}", out.path().display()));
    assert_eq!(status, Some(0), "{text}");
    let reason = "but Open MPI uses another setting: btl_tcp_if_exclude=lo,docker0 in ";
    assert!(text.contains(&format!("{reason}{MPI_SETTINGS} on {}", test_hosts.host(2))), "{text}");
    let log = fs::read_to_string(out.path().join("2n1g/mxnet-lenet_b2_fp32_1.log")).expect("a log");
    assert!(!log.contains("btl_tcp_if_include"), "{log}");
    let (status, text) = test_hosts.ringmark(&format!("doctor --quick {all} --interface eth0"));
    assert!(
        status == Some(1) && text.contains("Open MPI does not accept --interface together with btl_tcp_if_exclude"),
        "{text}"
    );
    test_hosts.on(2, &format!("umount -l {MPI_SETTINGS}"));

    // One link with a hundredth of the others' speed.
    test_hosts.on(3, "tc qdisc replace dev eth0 root tbf rate 20mbit burst 64k latency 50ms");
    let (status, text) = test_hosts.ringmark(&format!("doctor {all}"));
    assert_eq!(status, Some(0), "{text}");
    let start = format!("warning: {}, slowest link: slow links: ", test_hosts.host(3));
    let line = text.lines().find(|line| line.starts_with(&start));
    println!("20 Mbit/s on host 3:\n    {}", line.expect(&text));
}

#[test]
fn every_injected_fault_is_reported_with_its_fix() {
    let Some(test_hosts) = TestHosts::open() else { return };
    // Without core tokens: nothing is measured, and most of the time is spent waiting for hosts that do not answer.
    let (all, pair) = (test_hosts.hosts(&[1, 2, 3]), test_hosts.hosts(&[1, 2]));
    let worker = test_hosts.sandbox.worker().display().to_string();
    let (two, three) = (test_hosts.host(2), test_hosts.host(3));

    // Connection.
    let unknown = format!("{pair},no-such-host:1");
    test_hosts.fault(
        1,
        "",
        "",
        &unknown,
        "no-such-host, ssh: host name cannot be resolved (ssh: Could not resolve hostname",
    );
    test_hosts.fault(1, "", "", &format!("{pair},10.77.0.99:1"), "10.77.0.99, ssh: host unreachable (ssh: connect");
    test_hosts.fault(1, "", "", &format!("{pair} --ssh-port 2222"), &format!("{two}, ssh: no sshd listens on port"));
    let keys = format!("{}/{three}/authorized_keys", test_hosts.cluster.state().display());
    let no_keys = format!("mount --bind /dev/null {keys}");
    let refused = format!("{three}, ssh: sshd rejected the key (root@{three}: Permission denied (publickey).)");
    test_hosts.fault(3, &no_keys, &format!("umount {keys}"), &all, &refused);
    let sshd = format!("{}/{three}/sshd.pid", test_hosts.cluster.state().display());
    let silent = format!("{three}, ssh: sshd accepted the connection but did not respond");
    test_hosts.fault(3, &format!("kill -STOP $(cat {sshd})"), &format!("kill -CONT $(cat {sshd})"), &all, &silent);
    let orted =
        String::from_utf8(test_hosts.cluster.call(&["run", "sh", "-c", "command -v prted || command -v orted"]).stdout)
            .expect("a path");
    let orted = orted.trim();
    let daemon = orted.rsplit('/').next().expect("a name");
    let no_daemon = format!("{three}, mpirun: {daemon}, which mpirun starts on every host, is not on the PATH");
    test_hosts.fault(3, &format!("mount --bind /dev/null {orted}"), &format!("umount {orted}"), &all, &no_daemon);
    let namesake = format!("{three}, mpirun: host name is {two}, the same as on {two}");
    test_hosts.fault(3, &format!("hostname {two}"), &format!("hostname {three}"), &all, &namesake);

    // Program.
    let other = test_hosts.sandbox.path("other");
    let mut changed = fs::read(&worker).expect("a program");
    changed.push(0);
    fs::write(&other, changed).expect("written");
    test_hosts.on(1, &format!("chmod 755 {}", other.display()));
    let message = format!("{three}, worker: {worker} differs: SHA-256 is ");
    let (mount, unmount) = (format!("mount --bind {} {worker}", other.display()), format!("umount -l {worker}"));
    test_hosts.fault(3, &mount, &unmount, &all, &message);
    let folder = test_hosts.sandbox.folder.path().display().to_string();
    let missing = format!("{three}, worker: {worker} not found");
    test_hosts.fault(3, &format!("mount -t tmpfs none {folder}"), &format!("umount -l {folder}"), &all, &missing);
    let libraries = libtorch_folder(&worker);
    let message = format!("{three}, worker: {worker} does not start: error while loading shared libraries: lib");
    let (mount, unmount) = (format!("mount -t tmpfs none {libraries}"), format!("umount -l {libraries}"));
    test_hosts.fault(3, &mount, &unmount, &all, &message);

    // Network.
    for (interface, words) in [
        ("ib0", "interface ib0 not found; available: "),
        ("10.9.0.0/16", "no interface has an address in 10.9.0.0/16; available: "),
        ("lo", "interface lo only reaches the host itself; available: "),
    ] {
        test_hosts
            .on(2, "ip link add extra0 type bridge; ip address add 10.9.0.2/16 dev extra0; ip link set extra0 up");
        let (status, text) = test_hosts.ringmark(&format!("doctor --quick {pair} --interface {interface}"));
        test_hosts.on(2, "ip link delete extra0");
        let message = format!("error: {}, interface: {words}eth0 10.77.0.1/24, lo 127.0.0.1/8", test_hosts.host(1));
        assert!(status == Some(1) && text.contains(&message), "{text}");
    }
    let closed = format!("{three}, reaches: no connection on eth0, 10.77.0.0/24: {two} to {three} (No route to host");
    let route = "10.77.0.3/32";
    test_hosts.fault(
        2,
        &format!("ip route add unreachable {route}"),
        &format!("ip route delete {route}"),
        &all,
        &closed,
    );

    // Input data.
    let shelf = test_hosts.sandbox.path("shelf");
    fs::create_dir(&shelf).expect("made");
    let [data, shorter] = ["shelf/train.rec", "shorter.rec"].map(|name| test_hosts.sandbox.path(name));
    fs::write(&data, "abc").expect("written");
    fs::write(&shorter, "ab").expect("written");
    let (data, shorter, shelf) = (data.display(), shorter.display(), shelf.display());
    let read = format!("{all} --data {data}");
    let missing = format!("{three}, data: {data} not found");
    test_hosts.fault(3, &format!("mount -t tmpfs none {shelf}"), &format!("umount -l {shelf}"), &read, &missing);
    let one = test_hosts.host(1);
    let message = format!("{three}, data: {data} is a file of 2 bytes, but a file of 3 bytes on host {one}");
    test_hosts.fault(3, &format!("mount --bind {shorter} {data}"), &format!("umount -l {data}"), &read, &message);
    let message = format!(
        "{three}, data: {shelf} is a folder with 0 entries, but a folder with 1 entries on host \
         {one}"
    );
    let (mount, unmount) = (format!("mount -t tmpfs none {shelf}"), format!("umount -l {shelf}"));
    test_hosts.fault(3, &mount, &unmount, &format!("{all} --data {shelf}"), &message);

    // Output folders.
    let full = test_hosts.sandbox.path("full").display().to_string();
    let breaking = format!("mkdir {full}; mount -t tmpfs -o size=1m none {full}");
    let message = format!("{}, disk: only 1 MB free for results in {full}", test_hosts.host(1));
    test_hosts.fault(1, &breaking, &format!("umount {full}"), &format!("{all} --out {full}"), &message);
    test_hosts.on(2, "mount -o remount,size=1m /dev/shm");
    let (status, text) = test_hosts.ringmark(&format!("doctor --quick {all}"));
    let message = format!("warning: {two}, /dev/shm: /dev/shm has 1 MB free, but ranks may need 17 MB");
    assert!(status == Some(0) && text.contains(&message), "{text}");
    // InfiniBand, as presented by the kernel.
    let port = test_hosts.sandbox.path("class/infiniband/mlx5_0/ports/1");
    fs::create_dir_all(&port).expect("made");
    let port_says =
        [("state", "1: DOWN"), ("phys_state", "2: Polling"), ("link_layer", "InfiniBand"), ("rate", "10 Gb/sec")];
    port_says.iter().for_each(|(file, text)| fs::write(port.join(file), format!("{text}\n")).expect("written"));
    test_hosts.on(2, &format!("mount --bind {} /sys/class", test_hosts.sandbox.path("class").display()));
    let (status, text) = test_hosts.ringmark(&format!("doctor --quick {all}"));
    let message = "no InfiniBand or RoCE port is up: mlx5_0:1 DOWN (Polling)";
    assert!(status == Some(0) && text.contains(&format!("warning: {two}, IB: {message}")), "{text}");

    // An agent needs a moment to exit.
    wait_until("no agent is left", || test_hosts.sandbox.left().is_empty());
}

/// Returns the folder of the worker's libtorch.
fn libtorch_folder(worker: &str) -> String {
    let output = Command::new("ldd").arg(worker).output().expect("ldd starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let path = text.lines().find_map(|line| line.trim().strip_prefix("libtorch_cpu.so => ")?.split(' ').next());
    let path = Path::new(path.expect("the worker needs libtorch")).canonicalize().expect("present");
    path.parent().expect("a folder").display().to_string()
}

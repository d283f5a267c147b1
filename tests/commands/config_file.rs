//! Configuration files: `--dry-run --save-config` writes the complete sweep, and `--config` reads it back.

use std::fs;
use std::process::Command;

use expect_test::expect;

use crate::support::golden::assert_golden;
use crate::support::sandbox::{Sandbox, check_refusals, refused, ringmark, run, succeeds, without_estimates};

/// Returns `ringmark` with this sandbox's worker and an environment that does not affect command lines.
fn dry_run(sandbox: &Sandbox, options: &str) -> Command {
    let mut command = ringmark(options);
    command.current_dir(sandbox.folder.path()).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    command.args(["--dry-run", "--verbose", "--out", "out"]);
    command
}

/// Returns the output without this machine's available memory, which changes constantly.
fn printed(command: &mut Command) -> String {
    let (status, stdout, stderr) = run(command);
    let stderr = stderr.replace("note: --dtype half is read as fp16\n", "");
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    without_estimates(&stdout)
}

const SWEEP: &str = "sweep --worker ./worker --hosts a:8,b:8,c:8,d:8 --interface ib0 --dtype half --runs 1";

#[test]
fn saved_sweep_gives_the_same_commands() {
    let sandbox = Sandbox::new("exit 1");
    let typed = printed(&mut dry_run(&sandbox, SWEEP));
    let saved = printed(&mut dry_run(&sandbox, &format!("{SWEEP} --save-config sweep.toml")));
    assert_eq!(saved, format!("{typed}# wrote the options to sweep.toml\n"));
    let text = fs::read_to_string(sandbox.path("sweep.toml")).expect("written");
    assert_golden("sweep.toml", &text);
    assert_eq!(printed(&mut dry_run(&sandbox, "sweep --config sweep.toml")), typed);
    // Saving again gives the same file.
    printed(&mut dry_run(&sandbox, "sweep --config sweep.toml --save-config sweep.toml"));
    assert_eq!(fs::read_to_string(sandbox.path("sweep.toml")).expect("written"), text);
}

#[test]
fn all_launch_options_are_saved() {
    let sandbox = Sandbox::new("exit 1");
    fs::write(sandbox.path("nodes"), "a slots=2\nb slots=2\n").expect("written");
    let options = "sweep --hostfile nodes --worker ./worker --ssh-port 2222 --sync /tmp/copy --timeout 600 --stall-timeout 0 \
                   --no-doctor --cooldown 5 --suite ddp --cases 1n2g,2n2g --batch-sizes 4,8 --fp16-allreduce \
                   --freeze-batch-norm";
    let mut command = dry_run(&sandbox, options);
    command.args(["--launcher-args", "-x 'A B'", "--launcher-args", "-mca a b", "--save-config", "sweep.toml"]);
    let typed = printed(&mut command);
    let text = fs::read_to_string(sandbox.path("sweep.toml")).expect("written");
    for line in [
        "hosts = \"a:2,b:2\"",
        "worker = \"./worker\"",
        "ssh-port = 2222",
        "sync = \"/tmp/copy\"",
        "timeout = 600",
        "stall-timeout = 0",
        "no-doctor = true",
        "cooldown = 5",
        "suite = \"ddp\"",
        "cases = [\"1n2g\", \"2n2g\"]",
        "batch-sizes = [4, 8]",
        "wire = \"fp16\"",
        "freeze-batch-norm = true",
        "launcher-args = [\"-x 'A B'\", \"-mca a b\"]",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    for name in ["hostfile", "fp16-allreduce", "batch-size", "out", "dry-run", "save-config", "quick"] {
        assert!(!text.contains(&format!("\n{name} = ")), "{name}: {text}");
    }
    let from_file = printed(&mut dry_run(&sandbox, "sweep --config sweep.toml"));
    assert_eq!(format!("{from_file}# wrote the options to sweep.toml\n"), typed);
}

#[test]
fn values_that_were_not_given_are_comments() {
    let sandbox = Sandbox::new("exit 1");
    let saved = |options: &str| {
        let typed = printed(&mut dry_run(&sandbox, &format!("{options} --worker ./worker")));
        printed(&mut dry_run(&sandbox, &format!("{options} --worker ./worker --save-config config.toml")));
        let text = fs::read_to_string(sandbox.path("config.toml")).expect("written");
        let command = options.split(' ').next().expect("a command");
        assert_eq!(printed(&mut dry_run(&sandbox, &format!("{command} --config config.toml"))), typed);
        let fixed = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned);
        (fixed.collect::<Vec<_>>(), text)
    };
    let (fixed, text) = saved("sweep");
    assert_eq!(fixed, ["command = \"sweep\"", "worker = \"./worker\""], "{text}");
    for name in ["threads", "profile", "cases", "batch-size", "iters", "runs"] {
        assert!(text.contains(&format!("\n# {name} = ")), "{name}: {text}");
    }
    let (fixed, text) = saved("sweep --quick --threads 1 --model resnet18");
    let expected =
        ["command = \"sweep\"", "model = \"resnet18\"", "profile = \"quick\"", "threads = 1", "worker = \"./worker\""];
    assert!(
        fixed.len() == expected.len() && expected.iter().all(|line| fixed.iter().any(|found| found == line)),
        "{text}"
    );
}

#[test]
fn strategies_and_server_hosts_are_saved() {
    let sandbox = Sandbox::new("exit 1");
    let options = "sweep --worker ./worker --hosts a:1,b:1 --cases 2n1g --runs 1 --strategies all-reduce,dist_sync --servers 2 \
                   --server-hosts s,t";
    let typed = printed(&mut dry_run(&sandbox, options));
    assert!(typed.contains(" -H a,b,s,t "), "{typed}");
    printed(&mut dry_run(&sandbox, &format!("{options} --save-config sweep.toml")));
    let text = fs::read_to_string(sandbox.path("sweep.toml")).expect("written");
    for line in ["strategies = [\"all-reduce\", \"dist_sync\"]", "servers = 2", "server-hosts = [\"s\", \"t\"]"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains("\nstrategy = "), "{text}");
    assert_eq!(printed(&mut dry_run(&sandbox, "sweep --config sweep.toml")), typed);
    // The name in files of version 0.1.
    fs::write(sandbox.path("sweep.toml"), text.replace("\nstrategies = ", "\nkv-stores = ")).expect("written");
    assert_eq!(printed(&mut dry_run(&sandbox, "sweep --config sweep.toml")), typed);
}

#[test]
fn typed_options_override_the_file() {
    let sandbox = Sandbox::new("exit 1");
    let file = "hosts = \"localhost:1\"\nworker = \"./worker\"\ndevice = \"cpu\"\nruns = 2\ndtype = \"fp32\"\niters = 9\n\
                batch-size = 3\noverlap = \"off\"\n";
    fs::write(sandbox.path("sweep.toml"), file).expect("written");
    let commands = |options: &str| {
        let stdout = printed(&mut dry_run(&sandbox, &format!("sweep --config sweep.toml {options}")));
        stdout.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    let of_file = commands("");
    assert_eq!(of_file.len(), 2);
    assert!(of_file[0].contains(" --batch-size 3 ") && of_file[0].contains(" --iters 9 "), "{}", of_file[0]);
    assert!(commands("--batch-size 5").iter().all(|line| line.contains(" --batch-size 5 ")));
    // Both precisions: the file has one, and the two options exclude each other.
    assert_eq!(commands("--dtypes fp32,bf16").len(), 4);
    // A profile replaces the values that the file was filled with, and no others.
    let quick = commands("--quick");
    assert_eq!(quick.len(), 2);
    assert!(quick.iter().all(|line| line.contains(" --batch-size 4 ") && line.contains(" --iters 12 ")), "{quick:?}");
    assert!(quick.iter().all(|line| line.contains(" --overlap off ")), "{quick:?}");
}

#[test]
fn folder_of_config_file_can_be_resumed() {
    let sandbox = Sandbox::with_valid_worker();
    let file = "iters = 4\nwarmup = 1\ncases = [\"1n1g\"]\nruns = 2\ndevice = \"cpu\"\nhosts = \"localhost:2\"\n\
                no-doctor = true\nworker = \"./worker\"\nout = \"out\"\n";
    fs::write(sandbox.path("sweep.toml"), file).expect("written");
    let sweep = |options: &str| {
        let mut command = ringmark(&format!("sweep --config sweep.toml {options}"));
        succeeds(command.current_dir(sandbox.folder.path()))
    };
    sweep("");
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2"]);
    assert!(sweep("--resume --runs 3").contains("2 of 3 runs are finished"));
    assert_eq!(sandbox.ran(), ["1n1g_1", "1n1g_2", "1n1g_3"]);
}

#[test]
fn score_and_bandwidth_options_are_saved() {
    let sandbox = Sandbox::new("exit 1");
    for (command, line) in [
        ("score --device cpu --hosts localhost:1", "# batch-sizes = [1, 2, 4, 8, 16, 32]"),
        ("bandwidth --device cpu --hosts localhost:2 -e 1M", "# cases = \"1n2g\""),
    ] {
        let options = format!("{command} --worker ./worker");
        let typed = printed(&mut dry_run(&sandbox, &options));
        printed(&mut dry_run(&sandbox, &format!("{options} --save-config config.toml")));
        let text = fs::read_to_string(sandbox.path("config.toml")).expect("written");
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
        let name = command.split(' ').next().expect("a command");
        assert_eq!(printed(&mut dry_run(&sandbox, &format!("{name} --config config.toml"))), typed);
        let error = refused(dry_run(&sandbox, "sweep --config config.toml").env("HOME", "/"), 2);
        assert!(
            error.contains(&format!("config.toml: command = \"{name}\": the file is not for `ringmark sweep`")),
            "{error}"
        );
    }
}

#[test]
fn config_file_error_names_the_file() {
    let sandbox = Sandbox::new("exit 1");
    let refuse = |file: &str| {
        fs::write(sandbox.path("sweep.toml"), file.replace("\\n", "\n")).expect("written");
        refused(&mut dry_run(&sandbox, "sweep --config sweep.toml"), 2)
    };
    check_refusals(
        &expect![[r#"
            bach-size = 8
                error: sweep.toml: unexpected argument '--bach-size' found
                tip: a similar argument exists: '--batch-size'
            batch-size = "x"
                error: sweep.toml: invalid value 'x' for '--batch-size <N>': choose 1 to 65536, or auto
            dtype = "fp8"
                error: sweep.toml: invalid value 'fp8' for '--dtype <TYPE>'
                tip: use fp32, tf32, fp16 or bf16
            weight_decai = 8
                error: sweep.toml: unexpected argument '--weight-decai' found
                tip: a similar argument exists: '--weight-decay'
            np = 2
                error: sweep.toml: unexpected argument '--np' found
                tip: --np: use `--cases 1n2g` for 1 node with 2 ranks, one per GPU; `2n8g` is 2 nodes with 8 ranks each
            resume = true
                error: sweep.toml: resume: not allowed in a file: use the command-line option --resume
            hosts = 1979-05-27
                error: sweep.toml: hosts = 1979-05-27: expected a string, a number, true, or a list of them
            [train]\nruns = 1
                error: sweep.toml: [train]: the file has no sections: write every option on a line of its own, such as batch-size = 8
            runs = 1\nruns = 2
                error: sweep.toml: line 2 is not valid TOML: duplicate key
            resume = false\nruns =
                error: sweep.toml: line 2 is not valid TOML: string values must be quoted, expected literal string
        "#]],
        refuse,
    );
    let error = refused(&mut dry_run(&sandbox, "sweep --config none.toml"), 2);
    expect![[r#"
        error: none.toml: file not found: correct the path, or write one with --save-config
    "#]]
    .assert_eq(&error);
    let error = refused(ringmark("sweep --save-config sweep.toml").current_dir(sandbox.folder.path()), 2);
    assert!(error.contains("--dry-run"), "{error}");
}

//! Copies the program and the libraries that it needs to every host (`--sync FOLDER`), by rsync over the same ssh as
//! mpirun; files with equal hashes stay. libc, the C++ runtime and Open MPI are not copied: they belong to the host,
//! and Open MPI without its plugins is worse than none.
//!
//! A copy keeps the original layout: the program in the folder, libtorch and NVIDIA's libraries below it in the folders
//! of their packages. The program searches there first (`src/worker/build.rs`), and libtorch finds the others relative
//! to itself.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, ensure};
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::number_text::count;
use ringmark_core::options::usage::usage;
use ringmark_core::shell;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::remote::{Remote, SshOptions};
use crate::launch::cluster::ssh_failure::{self, SshFailure};
use crate::launch::local::child::{self, Answer, Call, EndPolicy};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{MAX_PROGRAMS, in_parallel};

/// Library that every worker links and that does not belong to the host.
const TORCH: &str = "libtorch_cpu.so";

/// Library loaded in addition if there is a GPU.
const TORCH_CUDA: &str = "libtorch_cuda.so";

/// Time that rsync has to remove its partial files before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A plan for a copy: sources and destination.
#[derive(Debug, Clone, PartialEq)]
pub struct Sync {
    /// Destination folder on every host.
    folder: PathBuf,
    /// Path of the program in that folder.
    worker: PathBuf,
    /// Sources for rsync's `--relative`: the part after `/./` is the path in the folder.
    sources: Vec<String>,
}

/// A copy to one host that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyFailure {
    /// Name of the host.
    pub host: String,
    /// Failure, with the message of rsync or ssh.
    pub what: String,
    /// Suggested fix.
    pub fix: String,
}

impl CopyFailure {
    /// Turns all failures into one error, which names every host.
    pub fn refuse(failures: &[CopyFailure]) -> anyhow::Result<()> {
        let lines: Vec<String> = failures.iter().map(CopyFailure::to_string).collect();
        ensure!(lines.is_empty(), "{}", lines.join("\n"));
        Ok(())
    }
}

impl fmt::Display for CopyFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}: {}", self.host, self.what, self.fix)
    }
}

impl Sync {
    /// Finds the files that `worker` needs for `device`. Runs only the loader, which lists them.
    pub fn plan(folder: &Path, worker: &Path, device: DeviceChoice) -> anyhow::Result<Sync> {
        check_folder(folder).map_err(usage)?;
        let name = worker.file_name().with_context(|| format!("{} is not a program", worker.display()))?;
        let libraries = linked_libraries(worker)?;
        let mut sources = vec![source(worker, worker.parent().unwrap_or(Path::new("/")))];
        if let Some(torch) = libraries.iter().find(|path| path.ends_with(TORCH)) {
            sources.extend(libraries_of_packages(torch, &libraries, device)?);
        }
        Ok(Sync { folder: folder.to_owned(), worker: folder.join(name), sources })
    }

    /// Returns the path of the copy, which jobs run.
    pub fn worker(&self) -> &Path {
        &self.worker
    }

    /// Returns the commands that copy to each host, ready to paste into a shell.
    pub fn command_lines(&self, hosts: &[Host], ssh: &SshOptions, environment: &LaunchEnvironment) -> Vec<String> {
        let line = |host: &Host| {
            let remote = Remote::new(host, ssh, environment);
            let line = shell::join(self.command(host, &remote));
            if remote.is_here() { format!("{} && {line}", self.mkdir_command()) } else { line }
        };
        hosts.iter().map(line).collect()
    }

    /// Copies to all `hosts` in parallel; `report` gets a line for each as soon as it is done. Returns the failures.
    pub fn run(
        &self,
        hosts: &[Host],
        ssh: &SshOptions,
        environment: &LaunchEnvironment,
        interrupt: &Interrupt,
        report: impl Fn(&str) + std::marker::Sync,
    ) -> anyhow::Result<Vec<CopyFailure>> {
        ensure!(
            environment.find("rsync").is_some(),
            "--sync needs rsync, which is not on PATH: install it (apt-get install rsync)"
        );
        let copy = |host: &Host| {
            let outcome = self.copy(host, ssh, environment, interrupt);
            if let Ok(done) = &outcome {
                report(&format!("sync to {}:{}: {done}", host.name, self.folder.display()));
            }
            outcome
        };
        let outcomes = in_parallel(MAX_PROGRAMS, hosts, copy);
        ensure!(!interrupt.is_set(), "interrupted while copying to the hosts");
        Ok(outcomes.into_iter().filter_map(Result::err).collect())
    }

    fn mkdir_command(&self) -> String {
        format!("mkdir -p {}", self.folder.display())
    }

    /// Returns rsync's command line for one host.
    fn command(&self, host: &Host, remote: &Remote) -> Vec<String> {
        let mut line: Vec<String> =
            ["rsync", "--recursive", "--relative", "--copy-links", "--perms", "--times", "--checksum", "--stats"]
                .map(str::to_owned)
                .into();
        // I/O timeout, in seconds.
        line.extend(["--timeout=300", "--no-human-readable"].map(str::to_owned));
        line.extend(["--exclude=*.a", "--exclude=libtorch_python.so"].map(str::to_owned));
        let folder = self.folder.display();
        let destination = match remote.ssh() {
            Some(ssh) => {
                line.extend(["--rsh".to_owned(), shell_words::join(ssh)]);
                line.push(format!("--rsync-path={} && rsync", self.mkdir_command()));
                format!("{}:{folder}/", host.name)
            }
            None => format!("{folder}/"),
        };
        line.extend(self.sources.iter().cloned());
        line.push(destination);
        line
    }

    /// Copies to one host; returns a summary.
    fn copy(
        &self,
        host: &Host,
        ssh: &SshOptions,
        environment: &LaunchEnvironment,
        interrupt: &Interrupt,
    ) -> Result<String, CopyFailure> {
        let failure = |what: String, fix: &str| CopyFailure { host: host.name.clone(), what, fix: fix.to_owned() };
        let remote = &Remote::new(host, ssh, environment);
        if remote.is_here() {
            fs::create_dir_all(&self.folder).map_err(|error| {
                let what = format!("cannot create {} ({error})", self.folder.display());
                failure(what, "choose a writable --sync folder")
            })?;
        }
        let mut line = self.command(host, remote);
        // rsync runs as a separate process and would continue if this one were killed.
        if let Some(program) = environment.find("setpriv") {
            line.splice(..0, [program.display().to_string(), "--pdeathsig=TERM".to_owned()]);
        }
        let mut command = Command::new(&line[0]);
        // English, because the output is parsed.
        command.args(&line[1..]).env("LC_ALL", "C");
        let call = Call { input: b"", timeout: None, policy: EndPolicy::Terminate(GRACE) };
        let answer = child::call(&mut command, call, interrupt).map_err(|error| {
            failure(format!("cannot run rsync ({error})"), "check the limit of processes on this machine (ulimit -u)")
        })?;
        let output = answer.stderr + &answer.stdout;
        if let Some(status) = answer.status.filter(|status| !status.success() && !interrupt.is_set()) {
            return Err(self.failure(host, status, &output, remote, ssh));
        }
        Ok(match transferred(&output) {
            Some((0, _)) => "equal".to_owned(),
            Some((files, bytes)) => {
                let seconds = answer.took.as_secs_f64();
                format!("{}, {:.1} MB in {seconds:.1} s", count(files, "file"), bytes as f64 / 1e6)
            }
            None => "done".to_owned(),
        })
    }

    /// Describes a failure on a host, and the fix.
    fn failure(&self, host: &Host, status: ExitStatus, output: &str, remote: &Remote, ssh: &SshOptions) -> CopyFailure {
        let folder = self.folder.display();
        let has = |texts: &[&str]| texts.iter().any(|text| output.contains(text));
        let failure = |what: String, fix: &str| CopyFailure { host: host.name.clone(), what, fix: fix.to_owned() };
        // The first line of standard error after ssh's warnings comes from the program that failed; rsync's last lines
        // only report the missing reply.
        let is_reason =
            |line: &&str| !line.trim().is_empty() && !line.starts_with("Warning:") && !line.starts_with("**");
        let reason = output.lines().find(is_reason).unwrap_or("no error message").trim();
        if has(&["rsync: command not found", "rsync: not found"]) {
            let what = "rsync not found, which --sync needs".to_owned();
            return failure(what, "install it there (apt-get install rsync)");
        }
        if has(&["No space left on device", "Disk quota exceeded"]) {
            return failure(format!("no space left in {folder}"), "free some space, or choose another --sync folder");
        }
        if has(&["mkdir: cannot create directory", "Permission denied (13)", "Read-only file system"]) {
            let fix = "choose a --sync folder that is writable on every host";
            return failure(format!("cannot write {folder} ({reason})"), fix);
        }
        // No rsync replied on the host.
        if !remote.is_here() && (status.code() == Some(255) || has(&["(0 bytes received so far)"])) {
            let ssh_lines: Vec<&str> = output.lines().filter(|line| !line.starts_with("rsync")).collect();
            let answer = Answer { status: Some(status), stderr: ssh_lines.join("\n"), ..Answer::default() };
            let SshFailure { what, fix } = ssh_failure::explain(&answer, &host.name, ssh.port);
            return failure(what, &fix);
        }
        let what = format!("cannot copy to {folder}: {reason} (rsync, {status})");
        failure(what, "run the command that --dry-run prints")
    }
}

/// Checks that the folder is safe in shells and command lines on several hosts.
fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let text = folder.to_str().unwrap_or_default();
    let shown = folder.display();
    ensure!(folder.is_absolute(), "--sync {shown} is not an absolute path: working folders differ between hosts");
    let is_plain = text.chars().all(|character| character.is_ascii_alphanumeric() || "/._-+@".contains(character));
    ensure!(is_plain, "--sync {shown} may contain only letters, digits and ._-+@: shells on the hosts parse it");
    let is_deep = folder.components().any(|part| matches!(part, Component::Normal(_)));
    ensure!(is_deep, "--sync {shown} must be a dedicated folder, such as /tmp/ringmark");
    Ok(())
}

/// Returns all libraries that the loader resolves for `program`, with real paths; none for a script.
fn linked_libraries(program: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd, which lists libraries")?;
    if !output.status.success() {
        // ldd has the same exit status for every error; the first bytes identify an ELF program.
        let mut first = [0; 4];
        let is_elf = fs::File::open(program)
            .and_then(|mut file| file.read_exact(&mut first))
            .is_ok_and(|()| &first == b"\x7fELF");
        ensure!(!is_elf, "ldd {} failed: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
        return Ok(BTreeSet::new());
    }
    libraries_in(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("cannot copy {} to the hosts", program.display()))
}

/// Extracts the paths from ldd's output.
fn libraries_in(listing: &str) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for line in listing.lines() {
        let Some((name, place)) = line.trim().split_once(" => ") else { continue };
        ensure!(!place.starts_with("not found"), "library {name} not found on this machine: rebuild the worker here");
        let path = place.split(" (0x").next().unwrap_or(place);
        found.insert(normalize(Path::new(path)));
    }
    Ok(found)
}

/// Removes `..` from a path: `/a/b/../c` is `/a/c`. The loader reports such paths between packages.
fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop()
        } else {
            plain.push(part);
            true
        };
    }
    plain
}

/// Returns the sources for libtorch and the other `libraries` in its packages. Unless `device` is the CPU, includes
/// everything that it may load at run time.
fn libraries_of_packages(
    torch: &Path,
    libraries: &BTreeSet<PathBuf>,
    device: DeviceChoice,
) -> anyhow::Result<Vec<String>> {
    // site-packages, which contains torch/lib, or the folder of an unpacked zip, which contains libtorch/lib.
    let folder = torch.parent().unwrap_or(torch);
    let packages = folder.ancestors().nth(2).with_context(|| format!("{} is not inside a package", torch.display()))?;
    if device == DeviceChoice::Cpu || !folder.join(TORCH_CUDA).is_file() {
        let own = libraries.iter().filter(|path| path.starts_with(packages));
        return Ok(own.map(|path| source(path, packages)).collect());
    }
    let mut folders = BTreeSet::from([folder.to_owned()]);
    let siblings = fs::read_dir(packages.join("nvidia")).into_iter().flatten().flatten();
    folders.extend(siblings.map(|package| package.path().join("lib")).filter(|folder| folder.is_dir()));
    Ok(folders.iter().map(|path| source(path, packages)).collect())
}

/// Returns `path` with rsync's `/./` mark between `base` and the rest, which is the path of the copy.
fn source(path: &Path, base: &Path) -> String {
    let place = path.strip_prefix(base).unwrap_or(path);
    format!("{}/./{}", base.display().to_string().trim_end_matches('/'), place.display())
}

/// Parses the numbers of files and bytes that rsync reports as transferred.
fn transferred(output: &str) -> Option<(u64, u64)> {
    let number = |key: &str| {
        let value = output.lines().find_map(|line| line.strip_prefix(key))?;
        value.trim().split(' ').next()?.replace(',', "").parse().ok()
    };
    Some((number("Number of regular files transferred:")?, number("Total transferred file size:")?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use expect_test::expect;

    use super::*;

    /// ldd's output for a worker, shortened.
    const LISTING: &str = "\
	linux-vdso.so.1 (0x00007f2eb2cb9000)
	libgomp.so.1 => /p/torch/lib/libgomp.so.1 (0x00007f2eb1600000)
	libmpi.so.40 => /lib/x86_64-linux-gnu/libmpi.so.40 (0x00007f2eb1cc1000)
	libtorch_cpu.so => /p/torch/lib/libtorch_cpu.so (0x00007f2e9be00000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f2eb2cbb000)
	libcudart.so.13 => /p/torch/lib/../../nvidia/cu13/lib/libcudart.so.13 (0x00007f2e9b000000)
";

    fn sync() -> Sync {
        let sources = vec!["/build/./worker".to_owned(), "/p/./torch/lib/libtorch_cpu.so".to_owned()];
        Sync { folder: "/opt/rm".into(), worker: "/opt/rm/worker".into(), sources }
    }

    fn host(name: &str) -> Host {
        Host { name: name.to_owned(), slots: 1 }
    }

    fn ssh() -> SshOptions {
        SshOptions::new(2222, &[], &environment())
    }

    fn environment() -> LaunchEnvironment {
        LaunchEnvironment { host_name: "a".to_owned(), ..LaunchEnvironment::default() }
    }

    #[test]
    fn package_libraries_are_copied_and_system_ones_not() {
        let libraries = libraries_in(LISTING).expect("a listing");
        let torch = Path::new("/p/torch/lib/libtorch_cpu.so");
        let sources = libraries_of_packages(torch, &libraries, DeviceChoice::Auto).expect("a layout");
        assert_eq!(
            sources,
            ["/p/./nvidia/cu13/lib/libcudart.so.13", "/p/./torch/lib/libgomp.so.1", "/p/./torch/lib/libtorch_cpu.so"]
        );
        let error = libraries_in("\tlibc10.so => not found\n").expect_err("missing").to_string();
        expect!["library libc10.so not found on this machine: rebuild the worker here"].assert_eq(&error);
    }

    #[test]
    fn cuda_libraries_are_copied_unless_device_is_cpu() {
        let packages = tempfile::tempdir().expect("a folder");
        let place = |path: &str| packages.path().join(path);
        for file in
            ["torch/lib/libtorch_cpu.so", "torch/lib/libtorch_cuda.so", "nvidia/nccl/lib/x", "nvidia/cu13/lib/x"]
        {
            fs::create_dir_all(place(file).parent().expect("a folder")).expect("made");
            fs::write(place(file), "").expect("written");
        }
        let torch = place("torch/lib/libtorch_cpu.so");
        let libraries = BTreeSet::from([torch.clone(), PathBuf::from("/lib/libc.so.6")]);
        let sources = |device| libraries_of_packages(&torch, &libraries, device).expect("a layout");
        let at = |path: &str| format!("{}/./{path}", packages.path().display());
        assert_eq!(sources(DeviceChoice::Auto), ["nvidia/cu13/lib", "nvidia/nccl/lib", "torch/lib"].map(at));
        assert_eq!(sources(DeviceChoice::Cpu), ["torch/lib/libtorch_cpu.so"].map(at));
    }

    #[test]
    fn each_host_gets_its_own_rsync_command() {
        assert_eq!(
            sync().command_lines(&[host("a"), host("b")], &ssh(), &environment()),
            [
                "mkdir -p /opt/rm && rsync --recursive --relative --copy-links --perms --times --checksum --stats \
                 --timeout=300 --no-human-readable '--exclude=*.a' --exclude=libtorch_python.so /build/./worker \
                 /p/./torch/lib/libtorch_cpu.so /opt/rm/",
                "rsync --recursive --relative --copy-links --perms --times --checksum --stats --timeout=300 --no-human-readable \
                 '--exclude=*.a' --exclude=libtorch_python.so --rsh 'ssh -p 2222 -x -T -o '\\''BatchMode=yes'\\'' -o \
                 '\\''ConnectTimeout=5'\\'' -o '\\''StrictHostKeyChecking=no'\\''' '--rsync-path=mkdir -p /opt/rm && rsync' \
                 /build/./worker /p/./torch/lib/libtorch_cpu.so b:/opt/rm/"
            ]
        );
    }

    #[test]
    fn sync_folder_must_be_absolute_and_shell_safe() {
        check_folder(Path::new("/tmp/ringmark-1.0")).expect("fine");
        let errors = ["bin", "/a b", "/"].map(|folder| check_folder(Path::new(folder)).expect_err(folder).to_string());
        expect![[r#"
            --sync bin is not an absolute path: working folders differ between hosts
            --sync /a b may contain only letters, digits and ._-+@: shells on the hosts parse it
            --sync / must be a dedicated folder, such as /tmp/ringmark"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn sync_failures_name_the_host_and_the_fix() {
        let failure = |status: i32, output: &str| {
            let remote = Remote::new(&host("b"), &ssh(), &environment());
            sync().failure(&host("b"), ExitStatus::from_raw(status << 8), output, &remote, &ssh()).to_string()
        };
        let missing = failure(127, "bash: line 1: rsync: command not found\nrsync: connection unexpectedly closed\n");
        expect!["b: rsync not found, which --sync needs: install it there (apt-get install rsync)"].assert_eq(&missing);
        let full = failure(
            11,
            "  1,234  3%  1.0MB/s\nrsync: [receiver] write failed on \"/opt/rm/x\": No space left on device (28)\n",
        );
        expect!["b: no space left in /opt/rm: free some space, or choose another --sync folder"].assert_eq(&full);
        let denied = failure(12, "Warning: x\nmkdir: cannot create directory '/opt/rm': Permission denied\n");
        expect!["b: cannot write /opt/rm (mkdir: cannot create directory '/opt/rm': Permission denied): choose a --sync folder that is writable on every host"].assert_eq(&denied);
        let away = failure(255, "ssh: connect to host b port 2222: No route to host\nrsync error: unexplained\n");
        expect!["b: host unreachable (ssh: connect to host b port 2222: No route to host): check power, cable, address (getent hosts b) and firewall (port 2222)"].assert_eq(&away);
        let unknown =
            "ssh: Could not resolve hostname b\nrsync: connection unexpectedly closed (0 bytes received so far)";
        let unknown = failure(12, unknown);
        expect!["b: host name cannot be resolved (ssh: Could not resolve hostname b): correct the name in --hosts, or add it to DNS or /etc/hosts"].assert_eq(&unknown);
        expect!["b: cannot copy to /opt/rm: some files vanished (rsync, exit status: 23): run the command that --dry-run prints"]
            .assert_eq(&failure(23, "some files vanished\n"));
    }

    #[test]
    fn rsync_summary_is_parsed() {
        let summary =
            "Number of files: 9\nNumber of regular files transferred: 3\nTotal transferred file size: 12,345 bytes\n";
        assert_eq!(transferred(summary), Some((3, 12_345)));
        assert_eq!(transferred("rsync: killed"), None);
    }
}

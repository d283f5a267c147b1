//! Explains why ssh failed, from its own output: the cause and the fix. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::local::child::Answer;

/// A failure of the connection to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SshFailure {
    /// Failure, with ssh's own message.
    pub what: String,
    /// Suggested fix.
    pub fix: String,
}

/// Parts of ssh's messages, the meaning of each, and its fix. `HOST` and `PORT` are placeholders.
const FAILURES: [(&[&str], &str, &str); 10] = [
    (
        &["failed sending task to execd"],
        "Grid Engine cannot start a task there",
        "check sge_execd on the host (qhost -h HOST)",
    ),
    (&["srun: error: "], "Slurm cannot start a task there", "check slurmd on the host (scontrol show node HOST)"),
    (
        &["banner exchange"],
        "sshd accepted the connection but did not respond",
        "sshd hangs, or the network drops its packets: log in at the console",
    ),
    (
        &["Could not resolve hostname"],
        "host name cannot be resolved",
        "correct the name in --hosts, or add it to DNS or /etc/hosts",
    ),
    (&["Connection refused"], "no sshd listens on port PORT", "start sshd, or set its port with --ssh-port"),
    (
        &["Connection timed out", "Operation timed out", "No route to host", "Network is unreachable", "Host is down"],
        "host unreachable",
        "check power, cable, address (getent hosts HOST) and firewall (port PORT)",
    ),
    (
        &["Permission denied", "Too many authentication failures"],
        "sshd rejected the key",
        "install your public key (ssh-copy-id -p PORT HOST), then check that `ssh -p PORT HOST true` does not prompt",
    ),
    (
        &["Host key verification failed"],
        "host key does not match known_hosts",
        "if the host was reinstalled, remove the old key: ssh-keygen -R HOST",
    ),
    (
        &["Connection reset", "Connection closed", "kex_exchange_identification"],
        "sshd closed the connection",
        "check its log (journalctl -u ssh) for MaxStartups, AllowUsers, hosts.deny or a full process table",
    ),
    (
        &["UNPROTECTED PRIVATE KEY", "bad permissions"],
        "ssh ignores a private key that others can read",
        "run chmod 600 on the private key",
    ),
];

/// Start of ssh's warning about a changed key. ssh continues in spite of it, as mpirun's does.
const KEY_CHANGED: &str = "REMOTE HOST IDENTIFICATION HAS CHANGED";

/// Explains `answer`, the output of a failed command.
pub fn explain(answer: &Answer, host: &str, port: u16) -> SshFailure {
    let fill = |text: &str| text.replace("HOST", host).replace("PORT", &port.to_string());
    // The first match counts: more specific entries come first.
    let line_of = |parts: &[&str]| answer.stderr.lines().find(|line| parts.iter().any(|part| line.contains(part)));
    let found = FAILURES.iter().find(|(parts, ..)| line_of(parts).is_some());
    let line = match found.and_then(|(parts, ..)| line_of(parts)) {
        Some(line) => line.trim().to_owned(),
        None => last_line(&answer.stderr),
    };
    let (what, fix) = match (found, answer.status) {
        (Some((_, what, fix)), _) => (fill(what), fill(fix)),
        (None, None) => (
            format!("remote command did not finish within {:.0} s", answer.took.as_secs_f64()),
            fill("check what delays `ssh -p PORT HOST true`: an unresponsive home folder or a shell start-up file"),
        ),
        (None, Some(status)) => (
            format!("remote command failed ({status})"),
            fill("check that `ssh -p PORT HOST sh -c true` works: the host needs a shell"),
        ),
    };
    let what = if line.is_empty() { what } else { format!("{what} ({line})") };
    SshFailure { what, fix }
}

/// Returns the warning of an ssh that connected, if it printed one.
pub fn warning(stderr: &str, host: &str) -> Option<SshFailure> {
    stderr.contains(KEY_CHANGED).then(|| SshFailure {
        what: "host key has changed; ssh continues only because mpirun's ssh does".to_owned(),
        fix: format!(
            "if the host was reinstalled, remove the old key (ssh-keygen -R {host}); if not, find out which host \
             replies"
        ),
    })
}

/// Returns the last informative line; ssh's notice of a new host key is not one.
pub fn last_line(stderr: &str) -> String {
    let is_informative = |line: &&str| !line.is_empty() && !line.starts_with("Warning: Permanently added");
    stderr.lines().map(str::trim).rfind(is_informative).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use expect_test::expect;

    use super::*;

    fn failed(stderr: &str) -> SshFailure {
        let status = Some(ExitStatus::from_raw(255 << 8));
        explain(&Answer { status, stderr: stderr.to_owned(), ..Answer::default() }, "node7", 2222)
    }

    #[test]
    fn scheduler_that_starts_no_task_is_explained() {
        let failed = |stderr: &str| {
            let answer =
                Answer { status: Some(ExitStatus::from_raw(1 << 8)), stderr: stderr.to_owned(), ..Answer::default() };
            let SshFailure { what, fix } = explain(&answer, "b", 22);
            format!("{what}: {fix}")
        };
        let srun = "srun: error: Task launch for StepId=4.0 failed on node b: Communication connection failure\n\
            srun: error: Application launch failed: Communication connection failure\nsrun: Job step aborted\n";
        expect!["Slurm cannot start a task there (srun: error: Task launch for StepId=4.0 failed on node b: Communication connection failure): check slurmd on the host (scontrol show node b)"].assert_eq(&failed(srun));
        let qrsh = "error: executing task of job 2 failed: failed sending task to execd@b: got send error\nerror: commlib error\n";
        expect!["Grid Engine cannot start a task there (error: executing task of job 2 failed: failed sending task to execd@b: got send error): check sge_execd on the host (qhost -h b)"].assert_eq(&failed(qrsh));
    }

    #[test]
    fn ssh_failures_are_explained_with_a_fix() {
        let failures = [
            "ssh: Could not resolve hostname node7: Name or service not known",
            "ssh: connect to host node7 port 2222: Connection refused",
            "ssh: connect to host node7 port 2222: Connection timed out",
            "ssh: connect to host node7 port 2222: No route to host",
            "root@node7: Permission denied (publickey).",
            "Host key verification failed.",
            "kex_exchange_identification: read: Connection reset by peer",
            "Connection timed out during banner exchange",
        ]
        .map(|words| {
            let SshFailure { what, fix } = failed(&format!("Warning: Permanently added node7\n{words}\n"));
            format!("{what}: {fix}")
        });
        expect![[r#"
            host name cannot be resolved (ssh: Could not resolve hostname node7: Name or service not known): correct the name in --hosts, or add it to DNS or /etc/hosts
            no sshd listens on port 2222 (ssh: connect to host node7 port 2222: Connection refused): start sshd, or set its port with --ssh-port
            host unreachable (ssh: connect to host node7 port 2222: Connection timed out): check power, cable, address (getent hosts node7) and firewall (port 2222)
            host unreachable (ssh: connect to host node7 port 2222: No route to host): check power, cable, address (getent hosts node7) and firewall (port 2222)
            sshd rejected the key (root@node7: Permission denied (publickey).): install your public key (ssh-copy-id -p 2222 node7), then check that `ssh -p 2222 node7 true` does not prompt
            host key does not match known_hosts (Host key verification failed.): if the host was reinstalled, remove the old key: ssh-keygen -R node7
            sshd closed the connection (kex_exchange_identification: read: Connection reset by peer): check its log (journalctl -u ssh) for MaxStartups, AllowUsers, hosts.deny or a full process table
            sshd accepted the connection but did not respond (Connection timed out during banner exchange): sshd hangs, or the network drops its packets: log in at the console"#]].assert_eq(&failures.join("\n"));
    }

    #[test]
    fn hanging_or_missing_shell_is_not_a_network_failure() {
        let hung = Answer { took: Duration::from_secs(12), ..Answer::default() };
        expect!["remote command did not finish within 12 s"].assert_eq(&explain(&hung, "b", 22).what);
        let failure = failed("sh: not found");
        expect!["remote command failed (exit status: 255) (sh: not found)"].assert_eq(&failure.what);
    }

    #[test]
    fn changed_host_key_is_a_warning() {
        assert_eq!(warning("Warning: Permanently added", "b"), None);
        let warning = warning("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n", "b").expect("key has changed");
        expect![
            "if the host was reinstalled, remove the old key (ssh-keygen -R b); if not, find out which host replies"
        ]
        .assert_eq(&warning.fix);
    }
}

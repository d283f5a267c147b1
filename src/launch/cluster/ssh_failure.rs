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
const FAILURES: [(&[&str], &str, &str); 8] = [
    (
        &["banner exchange"],
        "sshd accepted the connection but did not respond",
        "its sshd hangs, or something between drops its packets: log in at its console",
    ),
    (
        &["Could not resolve hostname"],
        "its name is unknown here",
        "correct the name in --hosts, or add it to DNS or /etc/hosts",
    ),
    (
        &["Connection refused"],
        "it is there, but no sshd listens on port PORT",
        "start sshd there, or give its port with --ssh-port",
    ),
    (
        &["Connection timed out", "Operation timed out", "No route to host", "Network is unreachable", "Host is down"],
        "it cannot be reached",
        "see that it is on and cabled, that its address is right (getent hosts HOST) and no firewall drops port PORT",
    ),
    (
        &["Permission denied", "Too many authentication failures"],
        "sshd rejected the key",
        "put your public key there (ssh-copy-id -p PORT HOST), then see that `ssh -p PORT HOST true` asks for nothing",
    ),
    (
        &["Host key verification failed"],
        "its host key is not the one that we know",
        "if the host was reinstalled, forget the old key: ssh-keygen -R HOST",
    ),
    (
        &["Connection reset", "Connection closed", "kex_exchange_identification"],
        "its sshd closes the connection",
        "read its log (journalctl -u ssh): MaxStartups, AllowUsers and hosts.deny do that, and a full process table",
    ),
    (
        &["UNPROTECTED PRIVATE KEY", "bad permissions"],
        "ssh does not use a key that others can read",
        "chmod 600 on the private key",
    ),
];

/// Start of ssh's warning about a changed key. ssh continues in spite of it, as mpirun's does.
const CHANGED: &str = "REMOTE HOST IDENTIFICATION HAS CHANGED";

/// Explains `answer`, the output of a failed command.
pub fn explain(answer: &Answer, host: &str, port: u16) -> SshFailure {
    let fill = |text: &str| text.replace("HOST", host).replace("PORT", &port.to_string());
    let line = last_line(&answer.stderr);
    // The first match counts: more specific entries come first.
    let fits = |(parts, _, _): &&(&[&str], &str, &str)| parts.iter().any(|part| answer.stderr.contains(part));
    let (what, fix) = match (FAILURES.iter().find(fits), answer.status) {
        (Some((_, what, fix)), _) => (fill(what), fill(fix)),
        (None, None) => (
            format!("a command run there does not end within {:.0} s", answer.took.as_secs_f64()),
            fill(
                "see what holds up `ssh -p PORT HOST true`: a home folder that hangs, or a start-up file of the shell",
            ),
        ),
        (None, Some(status)) => (
            format!("a command cannot be run there ({status})"),
            fill("see that `ssh -p PORT HOST sh -c true` works: it needs a shell"),
        ),
    };
    let what = if line.is_empty() { what } else { format!("{what} ({line})") };
    SshFailure { what, fix }
}

/// Returns the warning of an ssh that connected, if it printed one.
pub fn warning(stderr: &str, host: &str) -> Option<SshFailure> {
    stderr.contains(CHANGED).then(|| SshFailure {
        what: "its host key has changed since we saw it last, and ssh only goes on because mpirun's does".to_owned(),
        fix: format!(
            "if the host was reinstalled, forget the old key (ssh-keygen -R {host}); if not, find out which host answers"
        ),
    })
}

/// Returns the last informative line; ssh's notice of a new host key is not one.
pub fn last_line(stderr: &str) -> String {
    let says_something = |line: &&str| !line.is_empty() && !line.starts_with("Warning: Permanently added");
    stderr.lines().map(str::trim).rfind(says_something).unwrap_or_default().to_owned()
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
    fn each_of_ssh_s_failures_has_its_meaning_and_fix() {
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
            its name is unknown here (ssh: Could not resolve hostname node7: Name or service not known): correct the name in --hosts, or add it to DNS or /etc/hosts
            it is there, but no sshd listens on port 2222 (ssh: connect to host node7 port 2222: Connection refused): start sshd there, or give its port with --ssh-port
            it cannot be reached (ssh: connect to host node7 port 2222: Connection timed out): see that it is on and cabled, that its address is right (getent hosts node7) and no firewall drops port 2222
            it cannot be reached (ssh: connect to host node7 port 2222: No route to host): see that it is on and cabled, that its address is right (getent hosts node7) and no firewall drops port 2222
            sshd rejected the key (root@node7: Permission denied (publickey).): put your public key there (ssh-copy-id -p 2222 node7), then see that `ssh -p 2222 node7 true` asks for nothing
            its host key is not the one that we know (Host key verification failed.): if the host was reinstalled, forget the old key: ssh-keygen -R node7
            its sshd closes the connection (kex_exchange_identification: read: Connection reset by peer): read its log (journalctl -u ssh): MaxStartups, AllowUsers and hosts.deny do that, and a full process table
            sshd accepted the connection but did not respond (Connection timed out during banner exchange): its sshd hangs, or something between drops its packets: log in at its console"#]].assert_eq(&failures.join("\n"));
    }

    #[test]
    fn a_shell_that_hangs_or_is_missing_is_no_fault_of_the_network() {
        let hung = Answer { took: Duration::from_secs(12), ..Answer::default() };
        expect!["a command run there does not end within 12 s"].assert_eq(&explain(&hung, "b", 22).what);
        let failure = failed("sh: not found");
        expect!["a command cannot be run there (exit status: 255) (sh: not found)"].assert_eq(&failure.what);
    }

    #[test]
    fn a_changed_host_key_is_a_warning() {
        assert_eq!(warning("Warning: Permanently added", "b"), None);
        let warning = warning("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n", "b").expect("it has");
        expect![
            "if the host was reinstalled, forget the old key (ssh-keygen -R b); if not, find out which host answers"
        ]
        .assert_eq(&warning.fix);
    }
}

//! Why ssh failed, from its own output: what is wrong, and what to do about it. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::local::child::Answer;

/// What is wrong between us and a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SshFailure {
    /// What failed, with ssh's own message.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// Parts of ssh's messages, what each of them means, and its fix. `HOST` and `PORT` stand for the host's.
const FAILURES: [(&[&str], &str, &str); 8] = [
    (
        &["banner exchange"],
        "it takes the connection and does not answer",
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
        "sshd does not take our key",
        "put your public key there (ssh-copy-id -p PORT HOST), then see that `ssh -p PORT HOST true` asks for nothing",
    ),
    (
        &["Host key verification failed"],
        "its host key is not the one that we know",
        "if the host was installed anew, forget the old key: ssh-keygen -R HOST",
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

/// What ssh's warning of a changed key begins with. It goes on all the same, as mpirun's does.
const CHANGED: &str = "REMOTE HOST IDENTIFICATION HAS CHANGED";

/// Explains `answer`, which did not bring what was asked for.
pub fn explain(answer: &Answer, host: &str, port: u16) -> SshFailure {
    let fill = |text: &str| text.replace("HOST", host).replace("PORT", &port.to_string());
    let line = last_line(&answer.stderr);
    // The first that fits: what is more specific stands above.
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

/// What ssh warned of while it came through.
pub fn warning(stderr: &str, host: &str) -> Option<SshFailure> {
    stderr.contains(CHANGED).then(|| SshFailure {
        what: "its host key has changed since we saw it last, and ssh only goes on because mpirun's does".to_owned(),
        fix: format!(
            "if the host was installed anew, forget the old key (ssh-keygen -R {host}); if not, ask who answers"
        ),
    })
}

/// The last line that says something; ssh's notice that it has met the host is not one.
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
        for (words, what, fix) in [
            ("ssh: Could not resolve hostname node7: Name or service not known", "its name is unknown", "/etc/hosts"),
            ("ssh: connect to host node7 port 2222: Connection refused", "no sshd listens on port 2222", "--ssh-port"),
            (
                "ssh: connect to host node7 port 2222: Connection timed out",
                "it cannot be reached",
                "getent hosts node7",
            ),
            ("ssh: connect to host node7 port 2222: No route to host", "it cannot be reached", "no firewall drops"),
            ("root@node7: Permission denied (publickey).", "does not take our key", "ssh-copy-id -p 2222 node7"),
            ("Host key verification failed.", "is not the one that we know", "ssh-keygen -R node7"),
            ("kex_exchange_identification: read: Connection reset by peer", "closes the connection", "MaxStartups"),
            ("Connection timed out during banner exchange", "takes the connection and does not answer", "sshd hangs"),
        ] {
            let failure = failed(&format!("Warning: Permanently added node7\n{words}\n"));
            assert!(failure.what.contains(what) && failure.fix.contains(fix), "{failure:?}");
            let last = words.lines().last().expect("a line");
            assert!(failure.what.ends_with(&format!(" ({last})")), "{failure:?}");
        }
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
        expect!["if the host was installed anew, forget the old key (ssh-keygen -R b); if not, ask who answers"]
            .assert_eq(&warning.fix);
    }
}

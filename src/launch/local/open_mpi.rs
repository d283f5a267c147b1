//! Options and parameters of Open MPI by version: version 5 starts ranks by PRRTE and renamed some of them.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

use nix::unistd::Uid;

/// Parameters of versions 4 and 5 for single-copy shared memory, which a container's seccomp rules forbid.
pub const SINGLE_COPY: [&str; 2] = ["btl_vader_single_copy_mechanism", "smsc"];

/// Parameters of versions 4 and 5 for the program used instead of ssh, each with the prefix of its variable.
pub const SSH_AGENT: [(&str, &str); 2] = [("OMPI_MCA_", "plm_rsh_agent"), ("PRTE_MCA_", "plm_ssh_agent")];

/// Open MPI, as far as its options differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenMpi {
    /// Version 4, and any whose version is unknown.
    #[default]
    Four,
    /// Version 5 and later.
    Five,
}

impl OpenMpi {
    /// Returns the version of program `mpirun`.
    pub fn of_program(mpirun: &Path) -> OpenMpi {
        let answer = Command::new(mpirun).arg("--version").stdin(Stdio::null()).output();
        answer.map_or(OpenMpi::default(), |answer| OpenMpi::from_version(&String::from_utf8_lossy(&answer.stdout)))
    }

    /// Parses the output of `mpirun --version`, such as `mpirun (Open MPI) 5.0.7`.
    pub fn from_version(text: &str) -> OpenMpi {
        let version = text.split_once("(Open MPI) ").and_then(|(_, version)| version.split_once('.'));
        match version.and_then(|(major, _)| major.parse::<u32>().ok()) {
            Some(5..) => OpenMpi::Five,
            _ => OpenMpi::Four,
        }
    }

    /// Daemon that mpirun starts on other hosts.
    pub fn daemon(self) -> &'static str {
        self.choose("orted", "prted")
    }

    /// Option and parameter for the arguments of ssh.
    pub fn ssh_arguments(self) -> [&'static str; 2] {
        self.choose(["-mca", "plm_rsh_args"], ["--prtemca", "plm_ssh_args"])
    }

    /// Option and parameter for the interface that the daemons use; ranks use `btl_tcp_if_include` in every version.
    pub fn daemon_interface(self) -> [&'static str; 2] {
        self.choose(["-mca", "oob_tcp_if_include"], ["--prtemca", "prte_if_include"])
    }

    /// Parameter that disables [single-copy shared memory](SINGLE_COPY), and its value.
    pub fn no_single_copy(self) -> [&'static str; 2] {
        self.choose([SINGLE_COPY[0], "none"], [SINGLE_COPY[1], "^cma"])
    }

    /// Options with which the other ranks continue when one ends, by a signal or with any exit status.
    pub fn continue_after_exit(self) -> &'static [&'static str] {
        self.choose(&["--continuous"], &["--continuous", "--prtemca", "state_base_error_non_zero_exit", "0"])
    }

    /// Prefix of the session folder in the temporary folder.
    fn session_prefix(self) -> &'static str {
        self.choose("ompi", "prte")
    }

    fn choose<T>(self, four: T, five: T) -> T {
        match self {
            OpenMpi::Four => four,
            OpenMpi::Five => five,
        }
    }
}

/// A folder in this machine's session folder of Open MPI, removed when the value is dropped. An mpirun that ends removes the
/// session folder if it is empty, and one that starts at that moment fails.
#[derive(Debug)]
pub struct SessionGuard(PathBuf);

impl SessionGuard {
    /// Creates the folder, for a machine called `host_name`; `None` if that is not possible.
    pub fn create(open_mpi: OpenMpi, temporary: &Path, host_name: &str) -> Option<SessionGuard> {
        let host = host_name.split('.').next().unwrap_or(host_name);
        let session = format!("{}.{host}.{}", open_mpi.session_prefix(), Uid::effective());
        let folder = temporary.join(session).join(format!("ringmark-{}", process::id()));
        // Open MPI uses the folder only if no one else may write to it.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
        Some(SessionGuard(folder))
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
        // Fails if another mpirun uses it.
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_folder_exists_while_it_is_guarded() {
        let temporary = tempfile::tempdir().expect("a folder");
        let session = temporary.path().join(format!("ompi.a.{}", Uid::effective()));
        let guards = [1, 2].map(|_| SessionGuard::create(OpenMpi::Four, temporary.path(), "a.example.org"));
        assert!(session.is_dir() && guards.iter().all(Option::is_some));
        drop(guards);
        assert!(!session.exists());
    }

    #[test]
    fn version_is_parsed_from_the_output_of_mpirun() {
        for (text, expected) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to ..", OpenMpi::Four),
            ("mpirun (Open MPI) 5.0.7\n", OpenMpi::Five),
            ("mpirun (Open MPI) 10.0.0rc1", OpenMpi::Five),
            ("HYDRA build details:\n    Version: 4.2.0", OpenMpi::Four),
            ("", OpenMpi::Four),
        ] {
            assert_eq!(OpenMpi::from_version(text), expected, "{text}");
        }
    }
}

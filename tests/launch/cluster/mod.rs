//! Tests on several hosts, which are network namespaces of this machine with sshd, with real mpirun
//! (scripts/dev/cluster.sh).

mod accept;
mod faults;
mod ranks;
mod restarts;
mod servers;
mod sweep;

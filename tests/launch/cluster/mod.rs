//! Several hosts: network namespaces of this machine with sshd, real mpirun (scripts/cluster.sh).

mod faults;
mod ranks;
mod servers;
mod sweep;

//! Sweeps and their environment: hosts, schedulers, faults, interruptions.

mod accept;
mod alternate;
mod batch_without_memory;
mod cluster;
mod doctor;
mod goodput;
mod gridengine;
mod hostile;
mod program;
mod restarts;
mod resume;
mod resume_disk;
mod resume_training;
mod server_faults;
mod slurm;
mod suite;
mod sweep;
mod watch;

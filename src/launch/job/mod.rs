//! Launch of one job: its command line, processes, log and record.
//!
//! | module | contents |
//! |---|---|
//! | [`job_launch`] | launch of one job: shape, hosts, program, files |
//! | [`starter`] | the program that starts the ranks: mpirun, alone or in a Grid Engine job, or Slurm's srun |
//! | [`mpirun`] | mpirun's command line |
//! | [`gridengine`] | the hosts of a Grid Engine job |
//! | [`slurm`] | the hosts of an allocation, and srun's command line |
//! | [`launcher`] | creates launches from programs and hosts |
//! | [`run_launch`] | runs a launch with its log and record |
//! | [`process`] | starts a job, passes on its output, ends its processes |
//! | [`watch`] | progress of the ranks, cause of a failure, detection of hangs |

pub mod gridengine;
pub mod job_launch;
pub mod launcher;
pub mod mpirun;
pub mod process;
pub mod run_launch;
pub mod slurm;
pub mod starter;
pub mod watch;

//! Launch of one job: its command line, processes, log and record.
//!
//! | module | contents |
//! |---|---|
//! | [`request`] | one job: shape, hosts, program, files |
//! | [`starter`] | the program that starts the ranks: mpirun, alone or in a Grid Engine job, or Slurm's srun |
//! | [`mpirun`] | mpirun's command line |
//! | [`gridengine`] | the hosts of a Grid Engine job |
//! | [`slurm`] | the hosts of an allocation, and srun's command line |
//! | [`launcher`] | creates jobs from programs and hosts |
//! | [`planned`] | runs a job with its log and record |
//! | [`process`] | starts a job, passes on its output, ends its processes |
//! | [`watch`] | progress of the ranks, cause of a failure, detection of hangs |

pub mod gridengine;
pub mod launcher;
pub mod mpirun;
pub mod planned;
pub mod process;
pub mod request;
pub mod slurm;
pub mod starter;
pub mod watch;

//! One launch: its command line, its processes, its log and record. Not for which jobs there are.
//!
//! | module | what it is for |
//! |---|---|
//! | [`request`] | one job: shape, hosts, program, files |
//! | [`starter`] | what starts the ranks of a job: mpirun, alone or in a job of Grid Engine, or Slurm's srun |
//! | [`mpirun`] | mpirun's command line |
//! | [`gridengine`] | the hosts of a job of Grid Engine |
//! | [`slurm`] | the hosts of an allocation, and srun's command line |
//! | [`launcher`] | makes jobs: programs, hosts |
//! | [`planned`] | runs a job with its log and record |
//! | [`process`] | starts one job, hands out its lines, ends all of it |
//! | [`watch`] | where the ranks of a job are, which one died and of what, whether it hangs |

pub mod gridengine;
pub mod launcher;
pub mod mpirun;
pub mod planned;
pub mod process;
pub mod request;
pub mod slurm;
pub mod starter;
pub mod watch;

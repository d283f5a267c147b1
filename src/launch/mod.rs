//! Decides what to run where, starts it through mpirun or srun, watches it, keeps what it wrote. Not for figures: those are
//! read from the files.
//!
//! | room | what it is for |
//! |---|---|
//! | [`hosts`] | the machines and how many ranks each takes |
//! | [`starter`] | what starts the ranks of a job: mpirun or Slurm's srun |
//! | [`mpirun`] | case, hosts and configuration turned into mpirun's command line; starts nothing |
//! | [`slurm`] | the hosts of an allocation, and srun's command line |
//! | [`sync`] | copies the program and its libraries to the hosts |
//! | [`remote`] | runs a command on a host, here or by mpirun's ssh |
//! | [`process`] | starts one job, hands out its lines, ends all of it |
//! | [`watch`] | where the ranks of a job are, which one died and of what, whether it hangs |
//! | [`job`] | a planned job with its log and record: what the commands below have in common |
//! | [`folder`] | the folder of results: held by one command, old attempts put aside, its errors with their cures |
//! | [`ledger`] | a sweep's manifest while it runs, and what of an earlier sweep still counts |
//! | [`progress`] | what the terminal shows of a training run while it goes, and of a sweep |
//! | [`doctor`] | looks at every host before a job does |
//! | [`interface`] | which network the hosts use among themselves |
//! | [`sweep`] | plans every training run, then runs them |
//! | [`suite`] | PyTorch's DDP suite: its cases, the runs without communication, its lines |
//! | [`bandwidth`] | all-reduce alone, once a case |

pub mod bandwidth;
pub mod doctor;
pub mod folder;
pub mod hosts;
pub mod interface;
pub mod job;
pub mod ledger;
pub mod mpirun;
pub mod process;
pub mod progress;
pub mod remote;
pub mod slurm;
pub mod starter;
pub mod suite;
pub mod sweep;
pub mod sync;
pub mod watch;

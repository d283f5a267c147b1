//! Readers for result folders and files, with validation.
//!
//! | module | content |
//! |---|---|
//! | [`content`] | recognition of files by benchmark |
//! | [`folder`] | discovery of runs and other files in a folder |
//! | [`log`] | reading a log line by line |
//! | [`record`] | the record next to a log, for every benchmark |
//! | [`run`] | a run, from its log and record, with its figures or the reason why it does not count |
//! | [`training`] | figures of a training run |
//! | [`score`] | figures of a scoring run |
//! | [`checked_run`] | properties of a run that the rules of its sweep check |
//! | [`integrity`] | comparison of a sweep's files with their hashes |
//! | [`iteration_times`] | mean times of an iteration and of its phases, by rank |
//! | [`trace`] | traces next to the logs of runs |
//! | [`device_rates`] | arithmetic rates of devices |
//! | [`environment`] | hosts, devices and software of runs, as text |
//! | [`formats`] | result files of other benchmarks |
//! | [`problem`] | reasons why a file or run is excluded from the figures |

pub mod checked_run;
pub mod content;
pub mod device_rates;
pub mod environment;
pub mod folder;
pub mod formats;
pub mod integrity;
pub mod iteration_times;
pub mod log;
pub mod problem;
pub mod record;
pub mod run;
pub mod score;
pub mod trace;
pub mod training;

//! JSON of nccl-tests (`all_reduce_perf -J FILE` and the other programs), formats 1 to 3 and the known fields of later
//! ones.
//!
//! Format 2 added the times of single iterations (`-P`), and format 3 the number of skipped iterations; the other
//! fields have not changed. If a test fails, its file ends early, and the remaining fields are `null` or absent.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use anyhow::{Context, ensure};
use ringmark_core::host::environment;
use ringmark_core::stats::busbw::Bus;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Known formats. Later ones are accepted, since formats have only added fields so far.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=3;

/// A complete file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NcclTests {
    /// Format version.
    pub version: u32,
    /// Local time, `2025-11-21 19:31:18`.
    pub start_time: Option<String>,
    /// Command line; the first word is the program, which determines the collective.
    pub args: Vec<String>,
    /// `NAME=VALUE`, limited to the variables that [`environment::is_allowed`] accepts: the file contains the whole
    /// environment, including secrets.
    #[serde(default)]
    pub env: Vec<String>,
    /// As returned by `ncclGetVersion`: 22809 is 2.28.9.
    pub nccl_version: u32,
    /// `None` if the test failed before writing it.
    pub config: Option<Config>,
    /// Messages in the order of measurement; with `-N` each size appears once per cycle.
    #[serde(default)]
    pub results: Vec<Message>,
    /// Last errors reported by NCCL; empty strings if there were none.
    #[serde(default)]
    pub errors: Vec<String>,
}

/// Options and devices of a test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Config {
    /// Threads per process.
    pub nthreads: u32,
    /// GPUs per thread.
    pub ngpus: u32,
    /// First device of each process, regardless of how many GPUs the process uses.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// Options by their names in the file.
    #[serde(flatten)]
    pub options: BTreeMap<String, Value>,
}

/// First GPU of a process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Device {
    /// Communicator of the device, if several run at once.
    pub group: i32,
    /// Host of the process.
    pub hostname: String,
    /// Marketing name.
    pub device_info: String,
}

/// Measurement of one message size.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Message {
    /// Size in bytes.
    pub size: u64,
    /// Element type: `float`, `half`, `bfloat16`.
    #[serde(rename = "type")]
    pub element: String,
    /// Reduction, for example `sum`; `none` if the collective does not reduce.
    pub redop: String,
    /// Root rank, padded with blanks; -1 if the collective has none.
    pub root: String,
    /// Timing with separate input and output buffers.
    pub out_of_place: Option<Timing>,
    /// Timing with the output in the input buffer.
    pub in_place: Option<Timing>,
    /// Single iterations, with `-P`.
    pub out_of_place_per_iter: Option<Iterations>,
    /// Single iterations, with `-P`.
    pub in_place_per_iter: Option<Iterations>,
}

/// Means over iterations and ranks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Timing {
    /// Microseconds; `None` if `-C` replaced it with CPU time.
    #[serde(default, deserialize_with = "number")]
    pub time: Option<f64>,
    /// Algorithm bandwidth: size over time, in GB/s.
    #[serde(default, deserialize_with = "number")]
    pub alg_bw: Option<f64>,
    /// Bus bandwidth, in GB/s.
    #[serde(default, deserialize_with = "number")]
    pub bus_bw: Option<f64>,
    /// Number of wrong elements; `None` if results were not checked.
    #[serde(default, deserialize_with = "number")]
    pub nwrong: Option<f64>,
}

/// Times of single iterations.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Iterations {
    /// Number of first iterations excluded from the program's own statistics.
    #[serde(default)]
    pub skipped_iterations: usize,
    /// Microseconds of each iteration on the slowest GPU, including skipped ones.
    pub times_us: Vec<f64>,
}

/// Deserializes a number; nccl-tests writes NaN as the string `nan`.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Number(f64),
        Word(String),
    }
    let read = Option::<Number>::deserialize(deserializer)?;
    Ok(read.map(|read| match read {
        Number::Number(number) => number,
        Number::Word(word) => word.parse().unwrap_or(f64::NAN),
    }))
}

impl NcclTests {
    /// Reads a file. Errors name the field, or the line of invalid JSON.
    pub fn read(input: impl Read) -> anyhow::Result<NcclTests> {
        let mut file: NcclTests = serde_json::from_reader(input).context("not an nccl-tests file")?;
        ensure!(!file.args.is_empty(), "not an nccl-tests file: args is empty, so its collective is unknown");
        file.env.retain(|variable| environment::is_allowed(variable.split('=').next().unwrap_or_default()));
        Ok(file)
    }

    /// Returns the collective: `all_reduce` for `build/all_reduce_perf`.
    pub fn collective(&self) -> &str {
        let program = self.args[0].rsplit('/').next().unwrap_or_default();
        let program = program.strip_suffix("_mpi").unwrap_or(program);
        program.strip_suffix("_perf").unwrap_or(program)
    }

    /// Returns the bytes that [`Timing::alg_bw`] and [`Timing::bus_bw`] count for a message of `size` bytes among
    /// `ranks` ranks; `None` for an unknown collective (nccl-tests, `doc/PERFORMANCE.md` and `GetBw` of every
    /// collective).
    pub fn counted(&self, size: u64, ranks: u32) -> Option<[f64; 2]> {
        let (size, ranks) = (size as f64, ranks.max(1));
        let others = f64::from(ranks - 1) / f64::from(ranks);
        Some(match self.collective() {
            "gather" | "scatter" => [size, others * size],
            "hypercube" => [others * size, others * size],
            name => [size, Bus { operation: name.parse().ok()?, ranks }.factor().0 * size],
        })
    }

    /// Returns the NCCL version as `2.28.9`, in the encoding used since NCCL 2.9.
    pub fn nccl(&self) -> String {
        let version = self.nccl_version;
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }

    /// Returns the allowed environment variables by name.
    pub fn variables(&self) -> BTreeMap<&str, &str> {
        self.env.iter().filter_map(|variable| variable.split_once('=')).collect()
    }
}

impl Config {
    /// Returns the number of ranks of each communicator.
    pub fn ranks(&self) -> u32 {
        let group = self.devices.first().map(|device| device.group);
        let processes = self.devices.iter().filter(|device| Some(device.group) == group).count() as u32;
        processes.saturating_mul(self.nthreads).saturating_mul(self.ngpus)
    }

    /// Returns the number of communicators that run at once.
    pub fn groups(&self) -> usize {
        self.devices.iter().map(|device| device.group).collect::<BTreeSet<_>>().len()
    }

    /// Returns the hosts of all communicators.
    pub fn hosts(&self) -> BTreeSet<&str> {
        self.devices.iter().map(|device| device.hostname.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes with two GPUs each, on two hosts; format 3, measured with `-P 1`.
    const FILE: &str = r#"{"version":3,"start_time":"2026-07-09 10:00:00","args":["build\/all_reduce_perf_mpi","-g","2"],
        "env":["HOME=\/root","AWS_SECRET_ACCESS_KEY=x","NCCL_ALGO=Ring"],"nccl_version":22809,"config":{"nthreads":1,
        "ngpus":2,"minimum_bytes":8,"maximum_bytes":16,"step_factor":2,"warmup_iters":1,"iterations":3,"validation":1,
        "devices":[{"rank":0,"group":0,"pid":7,"hostname":"a","device":0,"device_hex":"0000:01:00","device_info":"V100"},
        {"rank":2,"group":0,"pid":8,"hostname":"b","device":0,"device_hex":"0000:01:00","device_info":"V100"}]},
        "results":[{"size":8,"count":2,"type":"float","redop":"sum","root":"    -1","out_of_place":{"time":12.500000,
        "alg_bw":0.000640,"bus_bw":0.000960,"nwrong":0.000000},"out_of_place_per_iter":{"skipped_iterations":1,
        "min_us":11.0,"times_us":[20.0,12.0,13.0]},"in_place":{"time":"nan","alg_bw":0.0,"bus_bw":0.0,"nwrong":null},
        "actual_iterations":3,"experiment_name":""},{"size":16,"count":4,"type":"float","redop":"sum","root":"    -1",
        "out_of_place":null}],"out_of_bounds":{"count":0,"okay":"true"},"errors":[""],"end_time":"2026-07-09 10:00:09"}"#;

    #[test]
    fn nccl_tests_file_is_read() {
        let file = NcclTests::read(FILE.as_bytes()).expect("sound");
        assert_eq!((file.collective(), file.nccl().as_str()), ("all_reduce", "2.28.9"));
        let of_four = |program: &str| NcclTests { args: vec![program.to_owned()], ..file.clone() }.counted(100, 4);
        assert_eq!(of_four("all_reduce_perf"), Some([100.0, 150.0]));
        assert_eq!(of_four("alltoall_perf"), Some([100.0, 75.0]));
        assert_eq!(of_four("hypercube_perf"), Some([75.0, 75.0]));
        assert_eq!(of_four("broadcast_perf"), Some([100.0, 100.0]));
        assert_eq!(of_four("alltoallv_perf"), None);
        assert_eq!(file.variables().into_iter().collect::<Vec<_>>(), [("NCCL_ALGO", "Ring")], "no secrets");
        let config = file.config.as_ref().expect("it is there");
        assert_eq!((config.ranks(), config.hosts().len(), config.groups()), (4, 2, 1));
        let [first, cut_off] = &file.results[..] else { panic!("two sizes") };
        let out_of_place = first.out_of_place.as_ref().expect("measured");
        assert_eq!((out_of_place.time, out_of_place.nwrong), (Some(12.5), Some(0.0)));
        assert_eq!(first.out_of_place_per_iter.as_ref().expect("with -P").times_us, [20.0, 12.0, 13.0]);
        let in_place = first.in_place.as_ref().expect("measured");
        assert!(in_place.time.is_some_and(f64::is_nan) && in_place.nwrong.is_none());
        assert_eq!((&cut_off.out_of_place, &cut_off.in_place), (&None, &None));
    }

    /// Covers a file of format 1, and one that ends before the configuration.
    #[test]
    fn older_and_incomplete_files_are_read() {
        let first = FILE.replace("\"version\":3", "\"version\":1").replace("\"skipped_iterations\":1,", "");
        assert_eq!(NcclTests::read(first.as_bytes()).expect("sound").results.len(), 2);
        let short = r#"{"version":1,"start_time":"x","args":["alltoall_perf"],"env":[],"nccl_version":22605}"#;
        let short = NcclTests::read(short.as_bytes()).expect("sound");
        assert_eq!((short.collective(), short.nccl().as_str()), ("alltoall", "2.26.5"));
        assert_eq!((short.config, short.results.len()), (None, 0));
    }

    #[test]
    fn other_content_is_rejected() {
        let error = |text: &str| format!("{:#}", NcclTests::read(text.as_bytes()).expect_err("refused"));
        assert!(error("{}").contains("version"));
        assert!(error(&FILE.replace("\"time\":12.500000", "\"time\":inf")).contains("line 6"), "{}", error("{"));
        assert!(error(&FILE.replace("[\"build\\/all_reduce_perf_mpi\",\"-g\",\"2\"]", "[]")).contains("args is empty"));
    }
}

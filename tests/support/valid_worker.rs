//! A worker that produces valid runs immediately: a shell script under real mpirun, for tests of the launcher and the
//! readers.

use std::fs::{self, File};
use std::process::Command;

use ringmark_core::benchmark::train::{Iteration, RunEnd, RunHeader, RunRecord, TrainConfig};
use ringmark_core::dimension::{BackendName, DeviceChoice, DeviceKind, Seconds};
use ringmark_core::host::RankPlace;

use crate::support::runs;
use crate::support::sandbox::{Sandbox, ringmark, words};

/// Script in which rank 0 produces a valid run of 4 iterations and logs its name. A test's `hook` script gets `$name`
/// (`1n1g_2`, a baseline's `none_1n2g_2`) and the path of the record.
const VALID_WORKER: &str = "
[ $rank = 0 ] || exit 0
case=$(basename \"$(dirname \"$record\")\")
run=${record##*_}
run=${run%.jsonl}
name=${case}_$run
exchange=auto
case \"$record\" in */no-communication/*) name=none_$name; exchange=none;; esac
echo $name >>\"$folder/ran\"
line() { printf 'INFO:root:Epoch[0] Batch[%d]\\tSpeed: 20.50 samples/sec\\n' $1; }
line 1
if [ -f \"$folder/hook\" ]; then . \"$folder/hook\"; fi
line 2
line 3
line 4
device=$(cat \"$folder/device\")
change=\"s/\\\"case\\\":\\\"1n1g\\\",\\\"run\\\":1/\\\"case\\\":\\\"$case\\\",\\\"run\\\":$run/; s/DEVICE/$device/\"
stem=${record##*/}
batch=${stem#rn50_b}
dtype=${batch#*_}
rest=${dtype#*_}
strategy=all-reduce
case $rest in *_*) strategy=$(echo \"${rest%_*}\" | tr - _);; esac
change=\"$change; s/\\\"strategy\\\":\\\"all-reduce\\\"/\\\"strategy\\\":\\\"$strategy\\\"/\"
change=\"$change; s/\\\"batch_size\\\":128/\\\"batch_size\\\":${batch%%_*}/\"
change=\"$change; s/\\\"dtype\\\":\\\"fp32\\\"/\\\"dtype\\\":\\\"${dtype%%_*}\\\"/\"
started=$(($(wc -l <\"$folder/ran\") * 10))
change=\"$change; s/\\\"started\\\":0.0/\\\"started\\\":$started.0/\"
change=\"$change; s/\\\"backend\\\":\\\"auto\\\"/\\\"backend\\\":\\\"$exchange\\\"/\"
sed \"$change\" \"$folder/ranks_$OMPI_COMM_WORLD_SIZE.jsonl\" >\"$record\" || exit 1
";

impl Sandbox {
    /// Creates a sandbox with the worker [`VALID_WORKER`].
    pub fn with_valid_worker() -> Sandbox {
        let sandbox = Sandbox::new(VALID_WORKER);
        for ranks in [1, 2] {
            let file = File::create(sandbox.path(&format!("ranks_{ranks}.jsonl"))).expect("created");
            record(ranks).write(file).expect("written");
        }
        fs::write(sandbox.path("device"), "processor").expect("written");
        sandbox
    }

    /// Returns `ringmark sweep` with this worker and the folder `out`, with runs of the length of [`VALID_WORKER`]'s.
    pub fn short_sweep(&self, options: &str) -> Command {
        let mut command = ringmark("sweep --no-doctor --iters 4 --warmup 1 --device cpu --hosts localhost:2");
        command.arg("--worker").arg(self.worker()).arg("--out").arg(self.path("out")).args(words(options));
        command
    }

    pub fn hook(&self, script: &str) {
        fs::write(self.path("hook"), script).expect("written");
    }

    /// Returns the runs for which the worker was started, in order.
    pub fn ran(&self) -> Vec<String> {
        fs::read_to_string(self.path("ran")).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

/// Creates the record that [`VALID_WORKER`] adapts.
fn record(ranks: u32) -> RunRecord {
    let RunRecord { header, mut iterations, end } = runs::record(&format!("1n{ranks}g"), 1, 0.5 / 1.06);
    // The last iteration takes 0.5 s.
    let steady = iterations.split_off(5).remove(0);
    let iterations: Vec<Iteration> = (1..=4).map(|iteration| Iteration { iteration, ..steady.clone() }).collect();
    let config = TrainConfig {
        iterations: 4,
        warmup: 1,
        device: DeviceChoice::Cpu,
        ..TrainConfig::default().on(DeviceKind::Cpu)
    };
    let place = |place| RankPlace { device_name: "DEVICE".to_owned(), ..place };
    RunRecord {
        header: RunHeader {
            case: "1n1g".parse().expect("a case"),
            started: Seconds(0.0),
            backend: BackendName::Solo,
            config,
            ranks: header.ranks.into_iter().map(place).collect(),
            ..header
        },
        end: end.map(|end| RunEnd { iterations: 4, wall: Seconds(4.0 * iterations[0].step[0].0), ..end }),
        iterations,
    }
}

//! Options of `ringmark input`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use ringmark_core::benchmark::input::{InputConfig, InputRecord};
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::options::clap_binding::LauncherOptions;
use ringmark_core::options::option_table;
use ringmark_core::options::usage::usage;

use crate::cli::launch::config_file::ConfigFileOptions;
use crate::cli::launch::data;
use crate::cli::launch::hosts::{LaunchOptions, Machine};
use crate::cli::launch::trace::TraceOption;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmarks::input::InputRun;
use crate::read::benchmark::input::against;
use crate::read::results;

const INPUT_EXAMPLES: &str = "\
Examples:
  ringmark input --data imagenet/train.rec
      images/s by threads on this machine, from the disk and from memory, and the time of each stage
  ringmark input --data /share/imagenet/train.rec --hosts a:8,b:8,c:8,d:8 --against results/rack7
      all hosts at once, and whether that is enough for the GPUs of a sweep with synthetic images
  ringmark input --data imagenet/train --decode-threads 16 --cache warm --decoder turbojpeg
      a single number of threads and another decoder
  ringmark input --data imagenet/train.rec --batches 200 --cache cold --decode-threads 4
      MXNet's train_imagenet.py --test-io 1 --data-nthreads 4

Exit status 1: it failed, or the doctor found an error; 2: a usage error, or --out is in use; 130: Ctrl-C.";

/// Options of `ringmark input`.
#[derive(Debug, Args)]
#[command(after_help = INPUT_EXAMPLES)]
pub struct InputOptions {
    /// Options file. Must be the first field, because other fields consume the values that they parse.
    #[command(flatten)]
    config_file: ConfigFileOptions,
    /// Launch options.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Folder for input.log and input.json [default: results/TIME_input]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Compare with the demand of this training result
    ///
    /// Folder of a sweep with synthetic images.
    #[arg(long, value_name = "RESULT")]
    against: Option<PathBuf>,
    /// Trace option.
    #[command(flatten)]
    trace: TraceOption,
    /// Options passed to every host.
    #[command(flatten)]
    input: LauncherOptions<InputConfig>,
}

impl InputOptions {
    /// Fills in defaults and checks the options.
    pub fn into_config(self) -> anyhow::Result<InputRun> {
        let input = self.input.apply(InputConfig::default())?;
        input.validate().map_err(usage)?;
        let data = data::absolute(input.data.clone()).map_err(usage)?;
        let input = InputConfig { data, ..input };
        let machine = Machine::read(DeviceChoice::Cpu, None);
        let mut launch = self.launch.into_config(&machine)?;
        data::check("--data", &input.data, input.model.sample_size(input.image_size, None), &machine, &launch)?;
        let filled_in = option_table::filled_in(&input);
        launch.save_config = self.config_file.into_saved::<InputConfig>("input", &launch.hosts, filled_in);
        let out = self.out.unwrap_or_else(|| results_folder::default_path("input", SystemTime::now()));
        let is_traced = self.trace.into_is_traced(&input.trace)?;
        Ok(InputRun { launch, out, against: self.against, is_traced, input })
    }
}

/// Returns a function that compares a record with the demand of the sweep in `folder`, as sentences.
pub fn judge(folder: &Path) -> anyhow::Result<impl Fn(&InputRecord) -> Vec<String> + use<>> {
    against::judge(folder, |folder: &Path| results::read_training(folder, None))
}

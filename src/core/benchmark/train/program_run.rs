//! Options of `ringmark run`, and the training run that they describe.

use crate::benchmark::shared_options;
use crate::benchmark::train::config::TrainConfig;
use crate::benchmark::train::program::{CommandLine, ProgramConfig, ProgramStart, TO_THE_END};
use crate::config_options;
use crate::dimension::{DeviceChoice, Dtype, Model};
use crate::host::BindChoice;
use crate::line::program::LineFormat;

/// Default of an option that must be given.
const REQUIRED: &str = "";

config_options! {
    /// Options of `ringmark run`, which measures a program.
    ProgramRun {
        /// Network.
        model: Model = Model::OtherImages => option("model", "NAME",
            "Network of the program: one that ringmark knows, or images or tokens for any other")
            .default_is("images; tokens with --sequence-length"),
        /// Images or sequences per rank and iteration.
        batch_size: u32 = 1 => option("batch-size", "N",
            "Images or sequences per rank and iteration of the program (required, or --global-batch)")
            .range(1u32..=65_536).default_is(REQUIRED),
        /// Images or sequences of all ranks.
        global_batch: Option<u32> = None => option("global-batch", "N",
            "Images or sequences of all ranks in an iteration, the same in every case (strong scaling)")
            .range(1u32..=16_777_216).aliases(&["global-batch-size"]).conflicts_with(&["batch-size"]),
        /// Precision.
        dtype: Dtype = Dtype::Fp32 => shared(shared_options::dtype),
        /// Device of the ranks.
        device: DeviceChoice = DeviceChoice::Auto => shared(shared_options::device),
        /// Number of the program's lines after which it is ended.
        iterations: u32 = TO_THE_END => option("iters", "N",
            "End the program after N lines of iterations, including warm-up").range(1u32..=TO_THE_END)
            .default_is("at its own end"),
        /// Number of first lines that the figures exclude.
        warmup: u32 = 0 => option("warmup", "N", "Warm-up lines, not measured")
            .default_is("found from the times, by MSER-5"),
        /// Tokens of a sequence.
        sequence_length: Option<u32> = None => option("sequence-length", "TOKENS",
            "Tokens of a sequence, for language models").range(1u32..=131_072).aliases(&["seq-len", "seq-length"]),
        /// CPU threads of a rank.
        threads: Option<u32> = None => shared(shared_options::threads),
        /// Binding of ranks to processors.
        bind: BindChoice = BindChoice::Auto => shared(shared_options::bind),
        /// Number of copies of the program.
        start: ProgramStart = ProgramStart::Rank => option("start", "PER",
            "Copies of the program: one per rank, with RANK, WORLD_SIZE, MASTER_ADDR and so on; one per host, for torchrun \
             or accelerate; or one for the job, for deepspeed, horovodrun, mpirun or srun").default_is("as the program needs"),
        /// Lines that describe iterations.
        lines: LineFormat = LineFormat::default() => option("lines", "FORMAT",
            "Lines of the program's iterations (required): a trainer (megatron, nanogpt, torchtitan, ..) or a regular expression with \
             named groups for step, s, ms, tokens_per_s, images_per_s, loss").default_is(REQUIRED),
    }
}

impl ProgramRun {
    /// Returns the training run of `command`. `is_warmup_given` is false if the warm-up is to be found.
    pub fn into_train(self, command: CommandLine, is_warmup_given: bool) -> TrainConfig {
        let ProgramRun { model, batch_size, global_batch, dtype, device, iterations, warmup, .. } = self;
        let ProgramRun { sequence_length, threads, bind, start, lines, .. } = self;
        let program = ProgramConfig { command, start, lines, finds_warmup: !is_warmup_given };
        let train =
            TrainConfig { model, batch_size, global_batch, dtype, device, iterations, ..TrainConfig::default() };
        TrainConfig { warmup, sequence_length, threads, bind, program, ..train }
    }
}

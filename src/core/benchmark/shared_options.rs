//! Options that several benchmarks share, each declared once. A configuration takes one with `shared(function)`.

use std::path::PathBuf;

use crate::benchmark::DEFAULT_IMAGE_SIZE;
use crate::dimension::{DeviceChoice, Dtype, LayoutChoice};
use crate::host::BindChoice;
use crate::options::option_table::OptionSpec;

/// Defines a function for each option, which makes it of the references to a field.
macro_rules! shared_options {
    ($($function:ident: $type:ty => option($name:literal, $value_name:literal, $help:literal)
        $(.$method:ident $arguments:tt)*;)+) => {
        $(pub(super) fn $function<C: 'static>(
            get: fn(&C) -> &$type,
            get_mut: fn(&mut C) -> &mut $type,
        ) -> OptionSpec<C> {
            OptionSpec::for_field($name, $value_name, $help, get, get_mut)$(.$method $arguments)*
        })+
    };
}

shared_options! {
    dtype: Dtype => option("dtype", "TYPE", "Precision; fp32 is IEEE; TF32 is used only with tf32");
    device: DeviceChoice => option("device", "KIND",
        "Device of the ranks; auto uses CUDA if there is a GPU, otherwise the CPU; a GPU that cannot be used is an error");
    layout: LayoutChoice => option("layout", "NAME",
        "Memory layout: channels_last or contiguous; auto is nchw for fp32 on GPUs, nhwc elsewhere")
        .resolved_from("auto");
    image_size: Option<u32> => option("image-size", "PIXELS", "Height and width of an image")
        .range(1u32..=4096).default_is(DEFAULT_IMAGE_SIZE).resolved_from("");
    sequence_length: Option<u32> => option("sequence-length", "TOKENS", "Tokens of a sequence")
        .range(1u32..=131_072).aliases(&["seq-len", "seq-length"])
        .set_by_profile("1024 for GPT-2, 2048 for Llama, on CPUs 128");
    threads: Option<u32> => option("threads", "N", "CPU threads per rank").range(1u32..=4096)
        .default_is("the host's physical cores divided by its ranks; in a sweep, by those of its largest case");
    cores_divided_by: Option<u32> => option("cores-divided-by", "RANKS",
        "Without --threads: a rank's part of the host's cores, the same in every case of a sweep")
        .range(1u32..=65_536).for_worker().default_is("the ranks on the host");
    bind: BindChoice => option("bind", "TO",
        "Bind ranks and servers to NUMA nodes (on GPUs to the GPU's node) or each rank to cores of its own; auto is numa \
         on hosts with several nodes, unless mpirun or srun has bound the ranks").free_on_resume().resolved_from("auto");
    seed: i64 => option("seed", "N", "Seed of the weights (the same on every device) and, plus the rank, of the data");
    record: Option<PathBuf> => option("record", "FILE", "File for the record (JSON), written by rank 0").for_worker();
}

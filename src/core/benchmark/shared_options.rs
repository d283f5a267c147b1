//! Options for a rank's share of the host's cores, common to all benchmarks that run a network.

use crate::host::BindChoice;
use crate::options::option_table::OptionSpec;

/// Returns the `--threads` option.
pub fn threads<C: 'static>(get: fn(&C) -> &Option<u32>, get_mut: fn(&mut C) -> &mut Option<u32>) -> OptionSpec<C> {
    OptionSpec::for_field("threads", "N", "CPU threads per rank", get, get_mut)
        .range(1u32..=4096)
        .default_is("the host's physical cores divided by its ranks; in a sweep, by those of its largest case")
}

/// Returns the `--cores-divided-by` option.
pub fn divided_by<C: 'static>(get: fn(&C) -> &Option<u32>, get_mut: fn(&mut C) -> &mut Option<u32>) -> OptionSpec<C> {
    let help = "Without --threads: a rank's part of the host's cores, the same in every case of a sweep";
    OptionSpec::for_field("cores-divided-by", "RANKS", help, get, get_mut)
        .range(1u32..=65_536)
        .for_worker()
        .default_is("the ranks on the host")
}

/// Returns the `--bind` option.
pub fn bind<C: 'static>(get: fn(&C) -> &BindChoice, get_mut: fn(&mut C) -> &mut BindChoice) -> OptionSpec<C> {
    let help = "Bind ranks and servers to NUMA nodes (on GPUs to the GPU's node) or each rank to cores of its own; auto \
                is numa on hosts with several nodes, unless mpirun or srun has bound the ranks";
    OptionSpec::for_field("bind", "TO", help, get, get_mut).free_on_resume().resolved_from("auto")
}

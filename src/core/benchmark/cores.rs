//! Options for a rank's share of the host's cores, common to all benchmarks that run a network.

use crate::options::option_table::OptionSpec;

/// Returns the `--threads` option.
pub fn threads<C: 'static>(get: fn(&C) -> &Option<u32>, get_mut: fn(&mut C) -> &mut Option<u32>) -> OptionSpec<C> {
    OptionSpec::for_field("threads", "N", "CPU threads per rank", get, get_mut)
        .range(1u32..=4096)
        .default_is("the host's cores divided by its ranks; in a sweep, by those of its largest case")
}

/// Returns the `--cores-divided-by` option.
pub fn divided_by<C: 'static>(get: fn(&C) -> &Option<u32>, get_mut: fn(&mut C) -> &mut Option<u32>) -> OptionSpec<C> {
    let help = "Without --threads: a rank's part of the host's cores, the same in every case of a sweep";
    OptionSpec::for_field("cores-divided-by", "RANKS", help, get, get_mut)
        .range(1u32..=65_536)
        .for_worker()
        .default_is("the ranks on the host")
}

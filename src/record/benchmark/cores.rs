//! What a rank gets of its host's cores: the options of every benchmark that runs a network.

use crate::options::option_table::OptionSpec;

/// A field of a configuration, to read and to write.
type Field<C> = (fn(&C) -> &Option<u32>, fn(&mut C) -> &mut Option<u32>);

/// `--threads` and `--cores-divided-by`, of the fields that hold them.
pub fn options<C: 'static>(threads: Field<C>, cores_divided_by: Field<C>) -> [OptionSpec<C>; 2] {
    [
        OptionSpec::of_field("threads", "N", "CPU threads of a rank", threads.0, threads.1)
            .range(1u32..=4096)
            .default_is("the host's cores divided by the ranks on it, of a sweep by those of its largest case"),
        OptionSpec::of_field(
            "cores-divided-by",
            "RANKS",
            "Without --threads: a rank's part of the host's cores, the same in every case of a sweep",
            cores_divided_by.0,
            cores_divided_by.1,
        )
        .range(1u32..=65_536)
        .for_worker()
        .default_is("the ranks on the host"),
    ]
}

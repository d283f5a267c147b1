//! libFuzzer entry point: passes its input to the parser selected by RINGMARK_FUZZ_TARGET. Built by scripts/dev/fuzz.sh.

#![no_main]

mod targets;

use std::env;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<targets::Target> = LazyLock::new(|| {
    let requested = env::var("RINGMARK_FUZZ_TARGET").unwrap_or_default();
    let known = targets::TARGETS.iter().find(|(name, _)| *name == requested);
    known.unwrap_or_else(|| panic!("RINGMARK_FUZZ_TARGET {requested:?} is no target")).1
});

fuzz_target!(|data: &[u8]| TARGET(data));

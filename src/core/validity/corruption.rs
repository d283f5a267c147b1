//! Warning about ranks that compute other values than the others.

use crate::benchmark::train::{RankDifference, RunEnd};
use crate::benchmark::warning::{Warning, WarningKind};
use crate::host::RankPlace;
use crate::number_text::count;
use crate::validity::subject::{RUN, subjects, warning};

/// Warns about the first difference between the ranks of a run with `--fingerprint`.
pub(super) fn corruption(ranks: &[RankPlace], end: &RunEnd) -> Option<Warning> {
    let RankDifference { values, iteration, ranks: differing } = end.fingerprints.as_ref()?.difference.as_ref()?;
    let others = ranks.len() - differing.len().min(ranks.len());
    if others == 0 {
        let text = format!(
            "the ranks differ in {values} in iteration {iteration}, and no value has a majority: repeat the run with \
             three or more ranks, or on each host alone"
        );
        return Some(warning(WarningKind::Corruption, RUN, text));
    }
    let named = subjects(ranks, |rank| differing.contains(&(rank as u32)));
    let names: Vec<String> = named.into_iter().map(|(name, _)| name).collect();
    let (names, differ) = (names.join(", "), if names.len() == 1 { "differs" } else { "differ" });
    let text = format!(
        "{names} {differ} from {} in {values} in iteration {iteration}: test the memory (ECC counters, a memory test), \
         and replace the GPU or module",
        count(others, "other rank")
    );
    Some(warning(WarningKind::Corruption, names, text))
}

//! Reader for folders of `ringmark bandwidth`: `<case>/bandwidth.json`, and the records of other operations next to it.

use std::path::Path;

use anyhow::{anyhow, ensure};
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::bandwidth::{BANDWIDTH_RECORD, BandwidthRecord, bandwidth_files, figures};
use ringmark_core::dimension::{Case, Operation};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::options::usage::usage;

use crate::read::benchmark::cases::{cases_in, read_case};
use crate::read::load::problem::Problem;

/// Bandwidth records of a folder.
#[derive(Debug, Default)]
pub struct BandwidthResult {
    /// Records, sorted by ranks, then nodes, then operations.
    pub cases: Vec<(Case, BandwidthRecord)>,
    /// Unusable records, with reasons.
    pub problems: Vec<Problem>,
}

/// Reads the records below `root` whose sums are correct. Fails if there is none.
pub fn read(root: &Path) -> anyhow::Result<BandwidthResult> {
    let mut result = find(root)?;
    let problems = &mut result.problems;
    result.cases.retain(|(case, record)| match figures::wrong(&record.results) {
        None | Some(0) => true,
        Some(wrong) => {
            problems.push(Problem::in_file(
                path(*case, record.config.operation),
                format!("{wrong} elements are wrong: fix that first"),
            ));
            false
        }
    });
    if result.cases.is_empty() {
        let problems: String = result.problems.iter().map(|problem| format!("\n  {problem}")).collect();
        let what =
            format!("{} contains no valid <case>/{BANDWIDTH_RECORD}: run ringmark bandwidth{problems}", root.display());
        return Err(usage(anyhow!(what)));
    }
    Ok(result)
}

/// Reads the records below `root`, including incorrect sums. Returns an empty result for a folder of other results.
pub fn find(root: &Path) -> anyhow::Result<BandwidthResult> {
    let cases = cases_in(root, BenchmarkKind::Bandwidth)?;
    let mut result = BandwidthResult::default();
    for (case, operation) in
        cases.iter().flat_map(|case| Operation::ALL.iter().map(move |operation| (*case, *operation)))
    {
        let path = path(case, operation);
        if !root.join(&path).exists() {
            continue;
        }
        match read_operation(&root.join(&path), case, operation) {
            Ok(record) => result.cases.push((case, record)),
            Err(error) => result.problems.push(Problem::in_file(path, format!("{error:#}"))),
        }
    }
    Ok(result)
}

/// Returns the path of a record below the folder.
pub fn path(case: Case, operation: Operation) -> String {
    let [_, record] = bandwidth_files(operation);
    format!("{case}/{record}")
}

fn read_operation(path: &Path, case: Case, operation: Operation) -> anyhow::Result<BandwidthRecord> {
    let record: BandwidthRecord = read_case(path, case)?;
    ensure!(
        record.config.operation == operation,
        "contains the bandwidth of {}, but its file name states another operation: restore the original name",
        record.config.operation
    );
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use ringmark_core::benchmark::bandwidth::config::BandwidthConfig;
    use ringmark_core::dimension::Seconds;
    use ringmark_core::host::environment::{Environment, RankPlace};

    fn write(root: &Path, case: &str, ranks: u32, failure: Option<&str>) {
        let ranks = (0..ranks).map(|rank| RankPlace::on_cpu(rank, rank, "a")).collect();
        let mut record =
            BandwidthRecord::new(Seconds(1.7e9), BandwidthConfig::default(), Environment::default(), ranks);
        record.failure = failure.map(str::to_owned);
        fs::create_dir_all(root.join(case)).expect("a folder");
        record.write(fs::File::create(root.join(case).join(BANDWIDTH_RECORD)).expect("a file")).expect("written");
    }

    #[test]
    fn valid_cases_are_read_and_the_others_reported() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let root = folder.path();
        let error = read(root).expect_err("nothing there").to_string();
        assert!(error.contains("contains no valid"), "{error}");
        write(root, "2n2g", 4, None);
        write(root, "1n2g", 2, None);
        write(root, "1n4g", 2, None);
        write(root, "4n2g", 8, Some("1 of 8 bytes wrong"));
        fs::create_dir_all(root.join("8n2g")).expect("a folder");
        fs::write(root.join("8n2g").join(BANDWIDTH_RECORD), "{\"kind\":").expect("written");
        let result = read(root).expect("two are sound");
        assert_eq!(result.cases.iter().map(|(case, _)| case.to_string()).collect::<Vec<_>>(), ["1n2g", "2n2g"]);
        let problems: Vec<String> = result.problems.iter().map(ToString::to_string).collect();
        for (problem, start) in problems.iter().zip([
            "1n4g/bandwidth.json: contains 2 ranks",
            "4n2g/bandwidth.json: the run failed: 1 of 8 bytes wrong",
            "8n2g/bandwidth.json: the record cannot be used: the bandwidth record is damaged",
        ]) {
            assert!(problem.starts_with(start), "{problem}");
        }
        assert_eq!(problems.len(), 3);
    }
}

//! Parsers of other programs for ringmark's logs and tables: DLPerf, superbenchmark and CloudAI.

/// Returns the speeds that DLPerf's extractor finds: every line that contains `Epoch[0] Batch[` must match `Speed:
/// (\d+.\d+) samples/sec`.
pub fn dlperf_speeds(log: &str) -> Option<Vec<f64>> {
    let number = |line: &str| -> Option<f64> {
        let (_, rest) = line.split_once("Speed: ")?;
        let (number, _) = rest.split_once(" samples/sec")?;
        let (whole, decimals) = number.split_once('.')?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits(whole) && digits(decimals) { number.parse().ok() } else { None }
    };
    log.lines().filter(|line| line.contains("Epoch[0] Batch[")).map(number).collect()
}

/// Returns the out-of-place bus bandwidths that superbenchmark's nccl-bw finds: in the lines between the last
/// `out-of-place` and the last `Out of bounds values`, at the position of the first such column, counted from the end
/// of the header.
pub fn superbenchmark(output: &str) -> Vec<&str> {
    let lines: Vec<&str> = output.lines().collect();
    let last = |mark: &str| lines.iter().rposition(|line| line.contains(mark)).expect("it is there");
    let table = &lines[last("out-of-place") + 1..last("Out of bounds values")];
    let is_head = |line: &&&str| line.contains("time") && line.contains("busbw");
    let head: Vec<&str> = table.iter().find(is_head).expect("a head")[1..].split_whitespace().collect();
    let from_end = head.len() - head.iter().position(|word| *word == "busbw").expect("a column");
    let is_row = |words: &Vec<&str>| words.first().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
    let rows = table.iter().map(|line| line.split_whitespace().collect::<Vec<&str>>()).filter(is_row);
    rows.map(|words| words[words.len() - from_end]).collect()
}

/// Returns the bandwidths in CloudAI's report of an NCCL test: from every line that starts with a digit and has
/// thirteen columns.
pub fn cloudai(output: &str) -> Vec<&str> {
    let rows = output.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let is_row = |words: &Vec<&str>| words.len() == 13 && words[0].starts_with(|first: char| first.is_ascii_digit());
    rows.filter(is_row).map(|words| words[11]).collect()
}

//! The language of comments, messages, help, documents and scripts: plain technical English (docs/contributing.md).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;

/// A pattern that is rejected, and the advice for a replacement.
struct Rule {
    pattern: &'static LazyLock<Regex>,
    /// True if the rule applies only to summary lines of doc comments.
    is_of_summaries: bool,
    advice: &'static str,
}

macro_rules! pattern {
    ($name:ident, $pattern:literal) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($pattern).expect("a regular expression"));
    };
}

pattern!(
    FRAGMENT,
    r"^(What|Of|Whether|Where|Who|Whoever|How|For|With|Without|In|By|Beside|Behind|From|Not|Every one|Those|That which)\b"
);
pattern!(
    PERSON,
    r"(?i)\b(who|whoever|whom|nobody|everybody|hears?|heard|tells?|told|(takes?|took) (its|their|his) leave|says? (so|that|it|whether|what|which))\b"
);
pattern!(
    IDIOM,
    r"(?i)\b(behind the (last|first)|that there (is|are)|what there is|take[ns]? up again|is taken up|in turns|wants? of memory|comes? of it|goes on beside|stands? (there|in the|beside)|lies? (there|beside)|quotable|not to be quoted)\b"
);

pattern!(
    ARCHAISM,
    r"(?i)\b(mend(s|ed)?|anew|hence|thus|thereby|whereby|taken up again|goes? on with|says? (what|which|why|how))\b"
);
pattern!(RIDDLE, r"fn (\w*_)?(what|who|whom|nobody|strangers?|said|told|heard|s)(_\w*)?\(\)");

// Placeholders of formats, names of hosts that do not exist, and people.
pattern!(
    EXCEPTIONS,
    r"(?i)\{\w+[^}]*\}|\b(people|persons?|users?|engineers?|readers?|anyone|everyone|those|one) who\b"
);

const RULES: [Rule; 5] = [
    Rule {
        pattern: &FRAGMENT,
        is_of_summaries: true,
        advice: "begin with a verb (Returns, Starts) or a noun; a condition is \"True if\"",
    },
    Rule {
        pattern: &PERSON,
        is_of_summaries: false,
        advice: "programs are not people: contains, reports, exits, replies",
    },
    Rule { pattern: &IDIOM, is_of_summaries: false, advice: "use the words of NCCL's or PyTorch's documentation" },
    Rule { pattern: &ARCHAISM, is_of_summaries: false, advice: "use fix, again, resume, report" },
    Rule {
        pattern: &RIDDLE,
        is_of_summaries: false,
        advice: "name a test by the fact that it checks: truncated_header_is_rejected",
    },
];

/// Prose in one line of a file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    number: usize,
    text: &'a str,
    is_summary: bool,
}

/// Returns the lines of prose of a file: all of a Markdown page except code, otherwise comments and long literals.
fn prose<'a>(path: &str, text: &'a str) -> Vec<Line<'a>> {
    let mut found = Vec::new();
    let mut is_code = false;
    let mut was_comment = false;
    let mut was_test = false;
    // True inside a literal that a backslash continues on the next line.
    let mut is_continued = false;
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        let mut add = |text: &'a str, is_summary: bool| found.push(Line { number, text: text.trim(), is_summary });
        if path.ends_with(".md") {
            is_code ^= line.starts_with("```");
            if !is_code {
                add(line, false);
            }
            continue;
        }
        let marks: &[&str] =
            if path.ends_with(".sh") || path.ends_with(".py") { &["#"] } else { &["///", "//!", "//"] };
        match marks.iter().find_map(|mark| line.strip_prefix(mark)) {
            Some(comment) => {
                let is_doc = line.starts_with("///") || line.starts_with("//!");
                add(comment, is_doc && !was_comment);
                was_comment = true;
            }
            None => {
                was_comment = false;
                if line.starts_with("fn ") && was_test {
                    add(line, false);
                }
                // Escaped quotes do not matter: a part of a literal is prose as well.
                line.split('"')
                    .skip(usize::from(!is_continued))
                    .step_by(2)
                    .filter(|literal| literal.len() >= 25)
                    .for_each(|text| add(text, false));
                is_continued = path.ends_with(".rs") && line.ends_with('\\');
                was_test = line.starts_with("#[test]") || was_test && line.starts_with("#[");
            }
        }
    }
    found
}

/// Returns the violations of a file, one per line.
fn violations(path: &str, text: &str) -> Vec<String> {
    let lines = prose(path, text);
    let broken = |line: &Line| {
        let text = EXCEPTIONS.replace_all(line.text, "");
        let applies = |rule: &&Rule| (!rule.is_of_summaries || line.is_summary) && rule.pattern.is_match(&text);
        let (number, text) = (line.number, line.text);
        RULES.iter().find(applies).map(|rule| format!("{path}:{number}: {text}\n    {}", rule.advice))
    };
    lines.iter().filter_map(broken).collect()
}

/// Returns the files of the repository that contain prose; results are data, and golden files are program output.
fn files() -> Vec<String> {
    let listed = Command::new("git").args(["ls-files"]).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("git");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let is_prose = |path: &&str| {
        let ending = Path::new(path).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        ["rs", "cpp", "h", "cu", "md", "sh", "py"].contains(&ending)
            && !path.starts_with("tests/golden/")
            && (!path.starts_with("results/") || path.ends_with("README.md"))
            // This file contains the rejected words.
            && *path != "tests/repository/language.rs"
    };
    listed.lines().filter(is_prose).map(str::to_owned).collect()
}

#[test]
fn repository_is_written_in_plain_english() {
    let read = |path: &String| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default();
    let found: Vec<String> = files().iter().flat_map(|path| violations(path, &read(path))).collect();
    assert!(found.is_empty(), "{} lines:\n{}", found.len(), found.join("\n"));
}

#[test]
fn each_rule_finds_its_violation() {
    let found = |path: &str, text: &str| violations(path, text).len();
    assert_eq!(found("a.rs", "/// What a rank has to do.\nfn work() {}"), 1);
    assert_eq!(found("a.rs", "/// Pending work.\n/// In the order of ranks.\nfn work() {}"), 0);
    assert_eq!(found("a.rs", "bail!(\"rank {rank} took its leave before the others\");"), 1);
    assert_eq!(found("a.md", "Nobody is told.\n```\nnobody\n```\n"), 1);
    assert_eq!(found("a.sh", "# The rank is taken up again.\necho what"), 1);
    assert_eq!(found("a.rs", "/// Returns the rank.\nfn rank() {}"), 0);
    assert_eq!(found("a.rs", "#[test]\nfn what_is_no_record_is_said() {"), 1);
    assert_eq!(found("a.rs", "#[test]\nfn truncated_header_is_rejected() {"), 0);
    assert_eq!(found("a.rs", "bail!(\"the file is damaged: mend it, or remove it\");"), 1);
    assert_eq!(found("a.rs", "bail!(\"the file {path} is damaged: \\\n    it tells nobody of the ranks\");"), 1);
}

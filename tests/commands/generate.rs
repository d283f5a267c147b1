//! `-h`, `ringmark completions` and `ringmark man`: results in the terminal, the shells and in man.

use std::fs;
use std::process::Command;

use expect_test::expect;

use crate::support::built_worker;
use crate::support::golden::assert_golden;
use crate::support::sandbox::{refused, ringmark, run, succeeds};
use crate::support::temporary_folder::without_folder;

/// Returns bash's completions for these words.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let words: Vec<String> = words.iter().map(|word| shell_words::quote(word).into_owned()).collect();
    let program = format!(
        "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}; _ringmark ringmark {} {}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words[last],
        words[last - 1],
    );
    let (status, stdout, stderr) = run(Command::new("bash").args(["--norc", "-c", &program]));
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{stdout}");
    stdout.lines().map(str::to_owned).collect()
}

/// Maximum number of options that `-h` lists.
const SHORT_HELP: usize = 27;

#[test]
fn short_help_has_few_options_and_examples() {
    let commands = [
        "",
        "sweep",
        "run",
        "score",
        "bandwidth",
        "input",
        "watch",
        "doctor",
        "extract",
        "check",
        "diff",
        "report",
        "predict",
        "pack",
    ];
    let mut all = String::new();
    let mut add = |name: &str, command: &mut Command| {
        let (status, help, stderr) = run(command.arg("-h").env("COLUMNS", "100"));
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{name}");
        let is_option = |line: &&str| line.starts_with("  ") && line.trim_start().starts_with('-');
        let options = help.lines().filter(is_option).count();
        assert!(options <= SHORT_HELP && help.contains("\nExamples:\n"), "{name}: {options} options\n{help}");
        all += &format!("$ {name}\n{help}\n");
    };
    for command in commands {
        add(format!("ringmark {command}").trim_end(), &mut ringmark(command));
    }
    add("ringmark-worker train", Command::new(built_worker::worker()).arg("train"));
    assert_golden("help.txt", &all);
}

#[test]
fn long_help_has_every_option_and_example() {
    let (_, help, _) = run(&mut ringmark("sweep --help"));
    let unwrapped = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["--models <", "--inject <", "--suite ddp", "Exit status 1: ", "[possible values: dlperf, cpu, quick]"]
    {
        assert!(unwrapped.contains(text), "{text}: {help}");
    }
    let (_, short, _) = run(&mut ringmark("sweep -h"));
    assert!(short.lines().count() < 60 && help.lines().count() > 300, "{short}");
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = succeeds(&mut ringmark("completions bash"));
    assert_eq!(offered(&script, &["ringmark", "swe"]), ["sweep"]);
    assert_eq!(offered(&script, &["ringmark", "sweep", "--dty"]), ["--dtypes", "--dtype"]);
    assert_eq!(offered(&script, &["ringmark", "sweep", "--dtype", "b"]), ["bf16"]);
    assert_eq!(offered(&script, &["ringmark", "run-w"]), [""], "hidden commands are not offered");
}

#[test]
fn shells_have_scripts_and_unknown_ones_an_error() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = succeeds(&mut ringmark(&format!("completions {shell}")));
        assert!(script.contains("ringmark") && script.contains("hostfile"), "{shell}: {script}");
    }
    let error = refused(&mut ringmark("completions tcsh"), 2);
    assert!(error.contains("tcsh") && error.contains("zsh"), "{error}");
}

#[test]
fn every_command_has_a_man_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    let (status, stdout, stderr) = run(ringmark("man").arg(&pages));
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
    for (page, word) in [("ringmark.1", "sweep"), ("ringmark-sweep.1", "hostfile"), ("ringmark-extract.1", "warmup")] {
        let text = fs::read_to_string(pages.join(page)).expect(page);
        assert!(text.starts_with(".") && text.contains(".TH") && text.contains(word), "{page}: {text}");
        assert!(text.contains("Examples:"), "{page}: {text}");
    }
    assert!(!pages.join("ringmark-run-with-parent.1").exists());

    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let error = refused(ringmark("man").arg(&file), 1);
    expect![[r"
        error: the pages cannot be written to DIR/file: File exists (os error 17)
    "]]
    .assert_eq(&without_folder(&error));
}

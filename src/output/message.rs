//! Printing to the standard output and standard error. Everything printed is in files as well, so write errors (a
//! full disk, a closed pipe) are ignored. On a terminal verdicts are colored unless `NO_COLOR` is set.

use std::io::{self, Write};

use console::{Color, Style};
use ringmark_core::number_text::count;
use ringmark_core::untrusted_text::printable_lines;

/// Words that are verdicts, with their colors.
const VERDICTS: [(&str, Color); 8] = [
    ("error:", Color::Red),
    ("failed:", Color::Red),
    ("FAIL", Color::Red),
    ("UNKNOWN", Color::Yellow),
    ("PASS", Color::Green),
    ("warning:", Color::Yellow),
    ("warn", Color::Yellow),
    ("ok", Color::Green),
];

/// Destination and prefix of a command's messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Printer {
    /// Prefix of every line.
    pub mark: &'static str,
    /// True if messages go to the standard error because the standard output is used for something else.
    pub to_error: bool,
}

impl Printer {
    /// Prints one or more lines.
    pub fn line(&self, text: &str) {
        let marked = |line: &str| match self.mark {
            "" => line.to_owned(),
            mark => format!("{mark}{line}").trim_end().to_owned(),
        };
        let text = text.split('\n').map(marked).collect::<Vec<_>>().join("\n");
        if self.to_error { print_error(&text) } else { print_line(&text) }
    }
}

/// Prints a line to the standard output.
pub fn print_line(text: &str) {
    // See the module documentation.
    let _ = writeln!(io::stdout(), "{}", colored(text));
}

/// Prints the commands of a dry run: all of them, or the first one and the number of the others.
pub fn print_commands(commands: impl ExactSizeIterator<Item = String>, prints_all: bool) {
    let more = if prints_all { 0 } else { commands.len().saturating_sub(1) };
    let printed = commands.len() - more;
    commands.take(printed).for_each(|command| print_line(&command));
    if more > 0 {
        let them = if more == 1 { "it" } else { "them" };
        print_line(&format!("# and {}: --verbose prints {them}", count(more, "more command")));
    }
}

/// Prints a line to the standard error.
pub fn print_error(text: &str) {
    // See the module documentation.
    let _ = writeln!(io::stderr(), "{}", with_colors(text, console::colors_enabled_stderr()));
}

/// Colors the verdicts in `text` if the standard output shows colors.
pub fn colored(text: &str) -> String {
    with_colors(text, console::colors_enabled())
}

fn with_colors(text: &str, are_shown: bool) -> String {
    let text = &printable_lines(text);
    if !are_shown {
        return text.to_string();
    }
    let piece = |piece: &str| {
        let word = piece.trim_end_matches([' ', '\n']);
        let Some((_, color)) = VERDICTS.iter().find(|(verdict, _)| *verdict == word) else { return piece.to_owned() };
        let style = Style::new().fg(*color).force_styling(true);
        format!("{}{}", style.apply_to(word), &piece[word.len()..])
    };
    text.split_inclusive([' ', '\n']).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_verdicts_are_colored() {
        let text = "warning: a  FAIL\n  error: not ok, a warning\nwarn";
        assert_eq!(
            with_colors(text, true),
            "\u{1b}[33mwarning:\u{1b}[0m a  \u{1b}[31mFAIL\u{1b}[0m\n  \u{1b}[31merror:\u{1b}[0m not ok, a \
             warning\n\u{1b}[33mwarn\u{1b}[0m"
        );
        assert_eq!(with_colors(text, false), text);
    }
}

//! Words of command lines, and their quoting for a shell.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// Quotes `word` if a shell needs it.
pub fn quote(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_=/,.+:@%^".contains(letter);
    // zsh expands a leading `=`.
    match !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

/// Joins the words of a command line.
pub fn join(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    words.into_iter().map(|word| quote(word.as_ref()).into_owned()).collect::<Vec<_>>().join(" ")
}

/// A command line, program first. Options are those of the program itself: the words from `--` on belong to another program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandWords {
    own: Vec<OsString>,
    /// Empty, or `--` and the words after it.
    rest: Vec<OsString>,
}

impl<W: Into<OsString>> FromIterator<W> for CommandWords {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> CommandWords {
        let mut own: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let rest = own.split_off(own.iter().position(|word| word == "--").unwrap_or(own.len()));
        CommandWords { own, rest }
    }
}

impl fmt::Display for CommandWords {
    /// Formats the command line for a shell.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&join(self.texts()))
    }
}

impl CommandWords {
    /// Returns the words before those of another program.
    pub fn own(&self) -> &[OsString] {
        &self.own
    }

    /// Returns all words.
    pub fn words(&self) -> impl Iterator<Item = &OsString> {
        self.own.iter().chain(&self.rest)
    }

    /// Returns all words as text.
    pub fn texts(&self) -> Vec<String> {
        self.words().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Returns the word after the program.
    pub fn subcommand(&self) -> Option<&str> {
        self.own.get(1)?.to_str()
    }

    /// Returns true if the option is given, with a value or without.
    pub fn has(&self, option: &str) -> bool {
        self.own.iter().any(|word| after_name(word, option).is_some())
    }

    /// Returns the value of an option.
    pub fn value(&self, option: &str) -> Option<String> {
        let mut words = self.own.iter();
        let inline = words.find_map(|word| after_name(word, option))?;
        inline.or_else(|| Some(words.next()?.to_string_lossy().into_owned()))
    }

    /// Replaces the own words.
    pub fn with_own(self, own: Vec<OsString>) -> CommandWords {
        CommandWords { own, ..self }
    }

    /// Replaces the program.
    pub fn with_program(mut self, name: impl Into<OsString>) -> CommandWords {
        if let Some(program) = self.own.first_mut() {
            *program = name.into();
        }
        self
    }

    /// Appends an option with its value.
    pub fn with(mut self, option: &str, value: impl Into<OsString>) -> CommandWords {
        self.own.extend([option.into(), value.into()]);
        self
    }

    /// Replaces an option in its place, or appends it.
    pub fn set(self, option: &str, value: impl Into<OsString>) -> CommandWords {
        let place = self.own.iter().position(|word| after_name(word, option).is_some());
        let mut command = self.without(option);
        let place = place.unwrap_or(command.own.len());
        command.own.splice(place..place, [option.into(), value.into()]);
        command
    }

    /// Appends a flag unless it is given.
    pub fn with_flag(mut self, flag: &str) -> CommandWords {
        if !self.has(flag) {
            self.own.push(flag.into());
        }
        self
    }

    /// Inserts words after the subcommand, before which no option is accepted.
    pub fn with_first(mut self, words: impl IntoIterator<Item = impl Into<OsString>>) -> CommandWords {
        let place = self.own.len().min(2);
        self.own.splice(place..place, words.into_iter().map(Into::into));
        self
    }

    /// Takes the words of another program from `earlier` unless there are some.
    pub fn with_rest_of(self, earlier: &CommandWords) -> CommandWords {
        let rest = if self.rest.is_empty() { earlier.rest.clone() } else { self.rest };
        CommandWords { rest, ..self }
    }

    /// Removes an option with its value.
    pub fn without(mut self, option: &str) -> CommandWords {
        let mut is_value = false;
        self.own.retain(|word| {
            let was_option = std::mem::replace(&mut is_value, word == option);
            !was_option && after_name(word, option).is_none()
        });
        self
    }

    /// Removes a flag.
    pub fn without_flag(mut self, flag: &str) -> CommandWords {
        self.own.retain(|word| word != flag);
        self
    }
}

/// Returns the part of `word` after `=` if it is this option; `None` in it if the value would be the next word.
fn after_name(word: &OsStr, option: &str) -> Option<Option<String>> {
    match word.as_encoded_bytes().strip_prefix(option.as_bytes())? {
        [] => Some(None),
        [b'=', value @ ..] => Some(Some(String::from_utf8_lossy(value).into_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_if_necessary() {
        let words = ["srun", "--models=a,b", "A=B==c", "", "=ls", "a b=c", "node[1-2]:8", "it's", "$HOME", "*", "~"];
        let line = r"srun --models=a,b A=B==c '' '=ls' 'a b=c' 'node[1-2]:8' 'it'\''s' '$HOME' '*' '~'";
        assert_eq!(join(words), line);
    }

    #[test]
    fn options_are_those_of_the_program_itself() {
        let command: CommandWords = "ringmark run --out=a --repeat 1n1g --resume -- p --out b".split(' ').collect();
        assert_eq!((command.subcommand(), command.value("--out").as_deref()), (Some("run"), Some("a")));
        assert_eq!(command.value("--repeat").as_deref(), Some("1n1g"));
        assert!(command.has("--resume") && !command.has("--re") && command.value("-o").is_none());
        let edited = command.clone().without("--repeat").without("--out").with("--out", "x y").with_flag("--resume");
        assert_eq!(edited.to_string(), "ringmark run --resume --out 'x y' -- p --out b");
        let short: CommandWords = ["/bin/ringmark", "run"].into_iter().collect();
        let whole =
            short.with_flag("--resume").with_first(["--lines=a"]).with_program("ringmark").with_rest_of(&command);
        assert_eq!(whole.to_string(), "ringmark run --lines=a --resume -- p --out b");
        assert_eq!(command.clone().set("--repeat", "2n1g").value("--repeat").as_deref(), Some("2n1g"));
        assert_eq!(command.set("--out", "c").without_flag("--resume").own()[2..], ["--out", "c", "--repeat", "1n1g"]);
    }
}

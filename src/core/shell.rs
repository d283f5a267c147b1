//! Quoting of commands that are printed for a shell.

use std::borrow::Cow;
use std::ffi::OsStr;

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

/// Splits a command line before `--`, which the words of another program follow.
pub fn split_program<W: AsRef<OsStr>>(words: &[W]) -> (&[W], &[W]) {
    words.split_at(words.iter().position(|word| word.as_ref() == "--").unwrap_or(words.len()))
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
}

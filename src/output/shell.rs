//! Quoting of commands that are printed for a shell.

use std::borrow::Cow;

/// Quotes `word` only if a shell needs it. Unlike `shell_words::quote`, it leaves `--models=a,b` as it is.
pub fn quote(word: &str) -> Cow<'_, str> {
    let without = word.replace('=', "");
    // zsh expands a leading `=`.
    let is_plain = !without.is_empty() && !word.starts_with('=') && shell_words::quote(&without) == without;
    if is_plain { Cow::Borrowed(word) } else { shell_words::quote(word) }
}

/// Joins the words of a command line.
pub fn join(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    words.into_iter().map(|word| quote(word.as_ref()).into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_if_necessary() {
        let words = ["srun", "--models=a,b", "A=B==c", "", "=ls", "a b=c", "node[1-2]:8", "it's"];
        assert_eq!(join(words), r"srun --models=a,b A=B==c '' '=ls' 'a b=c' 'node[1-2]:8' 'it'\''s'");
        assert_eq!(shell_words::split(&join(words)).expect("valid"), words);
    }
}

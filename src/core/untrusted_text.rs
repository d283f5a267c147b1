//! Text from files, hosts and the network, made safe for a terminal, a log or a page. This module alone decides which
//! characters are shown; escaping for a format such as Markdown or HTML is done elsewhere.

use std::borrow::Cow;

/// Replacement for a character that is not printable.
const REPLACEMENT: char = '\u{fffd}';

/// Returns true for a character that can control a terminal, end a line, or change the order in which text is shown.
pub fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            // Arabic letter mark, left-to-right and right-to-left marks, line and paragraph separators, embeddings,
            // overrides and isolates: Unicode's bidirectional controls.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
            // Invisible: byte order mark, tags, interlinear annotations, and noncharacters.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns one line of text: spaces for tabs and line ends, and a replacement character for anything not printable.
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |_| false)
}

/// Same as [`printable`], but keeps tabs and line ends.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |letter| matches!(letter, '\n' | '\t'))
}

fn replaced(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_replaced = |letter: char| is_unprintable(letter) && !is_kept(letter);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|letter| match letter {
        letter if !is_replaced(letter) => letter,
        '\n' | '\t' | '\r' => ' ',
        _ => REPLACEMENT,
    });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_are_replaced() {
        for letter in ['\0', '\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}', '\u{61c}', '\u{feff}'] {
            assert_eq!(printable(&format!("a{letter}b")), "a\u{fffd}b", "{letter:?}");
            assert_eq!(printable_lines(&format!("a{letter}b")), "a\u{fffd}b", "{letter:?}");
        }
        assert_eq!(printable("a\tb\r\nc"), "a b  c");
        assert_eq!(printable_lines("a\tb\r\nc"), "a\tb \nc");
        let plain = "Gr\u{f6}\u{df}e \u{5d0}\u{5d1} \u{4e2d} \u{1f600} caf\u{65}\u{301}";
        assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
    }
}

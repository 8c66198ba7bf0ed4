//! Escapes untrusted text for printing.

use std::borrow::Cow;
use std::fmt::Write;

/// Makes untrusted text, such as a name in a file, safe to print. Characters that control the terminal, break the line
/// or change the writing direction are escaped as in Rust (`\n`, `\u{1b}`); backslashes are not. Text without such
/// characters is returned as it is, without a copy.
///
/// ```
/// assert_eq!(polygrad_core::printable("conv1.weight"), "conv1.weight");
/// assert_eq!(polygrad_core::printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if steers(char) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "{}", char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    Cow::Owned(escaped)
}

/// Control characters (C0, DEL, C1), line and paragraph separators, and marks that change the writing direction or are
/// invisible.
fn steers(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(char, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_not_copied() {
        for name in ["", "layers.0.fc1/weight", "Größe", "重み", "a b", r"C:\x", "'\""] {
            assert!(matches!(printable(name), Cow::Borrowed(same) if same == name), "{name}");
        }
    }

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        for (name, shown) in [
            ("a\nb\r\tc", r"a\nb\r\tc"),
            ("\u{1b}]0;title\u{7}", r"\u{1b}]0;title\u{7}"),
            ("\u{9b}2J\u{7f}\0", r"\u{9b}2J\u{7f}\u{0}"),
            ("gpj\u{202e}.exe\u{200b}\u{2028}", r"gpj\u{202e}.exe\u{200b}\u{2028}"),
            ("é\n重", r"é\n重"),
        ] {
            assert_eq!(printable(name), shown);
            assert!(!printable(name).chars().any(steers));
        }
    }
}

//! Text of strangers made safe to print: any process chooses its own comm and argv, and a terminal obeys what it reads.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal or a reader's eye can be led astray by this character.
///
/// Control characters move the cursor and begin escape sequences (C1 ones too: U+009B is a whole `ESC [`), the bidirectional
/// controls change the order of what stands beside them, and the others are not seen at all.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text in one line, with each deceptive character written as an escape.
#[must_use]
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_deceptive(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The same JSON document with each deceptive character inside its strings written as `\uXXXX`.
///
/// JSON's own rules escape only U+0000 to U+001F; the line breaks and tabs between tokens stay as they are.
#[must_use]
pub(crate) fn json(document: &str) -> Cow<'_, str> {
    let is_token_space = |c: char| matches!(c, '\n' | '\r' | '\t');
    if !document.contains(|c| is_deceptive(c) && !is_token_space(c)) {
        return Cow::Borrowed(document);
    }
    let mut shown = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if is_deceptive(c) && !is_token_space(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_of_any_script_stays_as_it_is() {
        for text in ["node", "a b\\c", "größe", "日本語", "🦀"] {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(visible("\x1b]0;root\x07\x1b[2J"), r"\u{1b}]0;root\u{7}\u{1b}[2J");
        assert_eq!(visible("a\nb\tc\rd\x7f"), r"a\nb\tc\rd\u{7f}");
        assert_eq!(visible("\u{9b}31m"), r"\u{9b}31m");
    }

    #[test]
    fn what_an_eye_would_not_see_is_shown_instead() {
        assert_eq!(visible("gpj.\u{202e}exe"), r"gpj.\u{202e}exe");
        assert_eq!(visible("no\u{200b}de\u{e0041}"), r"no\u{200b}de\u{e0041}");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({"comm": "\u{9b}2J\u{202e}\u{e0041}\x1b\n", "ok": "é"});
        for document in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let safe = json(&document);
            assert!(!safe.contains(|c| is_deceptive(c) && c != '\n'), "{safe}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        }
    }
}

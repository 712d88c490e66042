//! Escapes untrusted text. Processes choose their own comm and argv, and terminals interpret control sequences.

use std::borrow::Cow;
use std::fmt::Write;

/// Control characters start escape sequences (U+009B alone is `ESC [`), bidirectional controls reorder text, and the
/// others are invisible.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e01ef}')
}

/// Replaces deceptive characters and line breaks with escapes such as `\u{1b}` and `\n`.
pub fn escape(text: &str) -> Cow<'_, str> {
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

/// Replaces deceptive characters inside the strings of a JSON document with `\uXXXX`. The value stays the same.
pub fn json(document: &str) -> Cow<'_, str> {
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
    fn ordinary_text_is_unchanged() {
        for text in ["node", "a b\\c", "größe", "日本語", "🦀"] {
            assert_eq!(escape(text), text);
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("\x1b]0;root\x07\x1b[2J"), r"\u{1b}]0;root\u{7}\u{1b}[2J");
        assert_eq!(escape("a\nb\tc\rd\x7f"), r"a\nb\tc\rd\u{7f}");
        assert_eq!(escape("\u{9b}31m"), r"\u{9b}31m");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(escape("gpj.\u{202e}exe"), r"gpj.\u{202e}exe");
        assert_eq!(escape("no\u{200b}de\u{e0041}"), r"no\u{200b}de\u{e0041}");
        // A terminal and we might disagree about its columns.
        assert_eq!(escape("\u{2764}\u{fe0f}"), "\u{2764}\\u{fe0f}");
    }

    #[test]
    fn escaped_json_has_same_value() {
        let value = serde_json::json!({"comm": "\u{9b}2J\u{202e}\u{e0041}\x1b\n", "ok": "é"});
        for document in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let safe = json(&document);
            assert!(!safe.contains(|c| is_deceptive(c) && c != '\n'), "{safe}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
        }
    }
}

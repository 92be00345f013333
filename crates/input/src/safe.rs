//! Text of others (names, messages, answers of servers) without what a terminal obeys.

use std::fmt::Write as _;

/// The text with each control character escaped as JSON writes it (`\n`, `\u001b`), so that JSON stays JSON, and each character that changes
/// the direction or the line of the text after it. Characters for which `stays` is true are left as they are.
#[must_use]
pub fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if !is_obeyed(c) || stays(c) => safe.push(c),
            '\n' | '\r' | '\t' => safe.extend(c.escape_default()),
            // All of them have four digits.
            _ => _ = write!(safe, "\\u{:04x}", u32::from(c)),
        }
    }
    safe
}

/// Whether a character is not shown but obeyed: control characters, separators of lines, and bidirectional controls.
fn is_obeyed(c: char) -> bool {
    let is_bidirectional = matches!(
        c,
        '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_bidirectional
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_turns_the_reading_direction_is_escaped() {
        assert_eq!(escaped("a\u{202e}b\u{2066}\u{200f}é", |_| false), "a\\u202eb\\u2066\\u200fé");
        assert_eq!(escaped("a\u{202e}\n\r", |c| c == '\n'), "a\\u202e\n\\r");
    }

    #[test]
    fn json_with_such_text_stays_json() {
        let name = "\u{7f}\u{85}\u{2028}\u{1b}\n\u{202e}";
        let json = serde_json::to_string(name).unwrap();
        let safe = escaped(&json, |_| false);
        assert!(!safe.contains(is_obeyed));
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), name);
    }
}

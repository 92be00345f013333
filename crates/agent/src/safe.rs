//! Text of others (names, messages, answers of servers) without what a terminal obeys.

/// The text with each control character escaped as Rust writes it (`\n`, `\u{1b}`), and each character that changes the direction or the line
/// of the text after it. Characters for which `stays` is true are left as they are.
#[must_use]
pub fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match is_obeyed(c) && !stays(c) {
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
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
        assert_eq!(
            escaped("a\u{202e}b\u{2066}\u{200f}é", |_| false),
            "a\\u{202e}b\\u{2066}\\u{200f}é"
        );
        assert_eq!(escaped("a\u{202e}\n\r", |c| c == '\n'), "a\\u{202e}\n\\r");
    }
}

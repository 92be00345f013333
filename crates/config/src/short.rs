//! Text of others that a message quotes.

use std::borrow::Cow;

/// Most characters of a quoted text.
const MOST: usize = 300;

/// The beginning of a foreign text, for a message: at most 300 characters, and `…` if there are more. A value of a megabyte is no line
/// of a log.
#[must_use]
pub fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MOST) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        let whole = "é".repeat(MOST);
        assert_eq!(short(&whole), whole);
        assert_eq!(short(&format!("{whole}é")), format!("{whole}…"));
    }
}

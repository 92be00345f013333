//! Widths and outlines of text in the embedded font.

use std::fmt::Write;
use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Fonts for browsers: the embedded one, or fonts of about its width.
pub(crate) const FAMILY: &str = "Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif";

static DATA: &[u8] = include_bytes!("../font/Roboto-Regular-subset.ttf");
static FACE: LazyLock<Option<Face<'static>>> = LazyLock::new(|| Face::parse(DATA, 0).ok());

/// The width of a text.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| advance(c) * size).sum()
}

/// By how much a character moves on, in parts of the font's size.
fn advance(c: char) -> f64 {
    let Some(face) = FACE.as_ref() else { return 0.55 };
    let advance = face.glyph_hor_advance(glyph(face, c)).unwrap_or(0);
    f64::from(advance) / f64::from(face.units_per_em())
}

/// A character's glyph; the box where the font has none.
fn glyph(face: &Face, c: char) -> GlyphId {
    face.glyph_index(c).unwrap_or(GlyphId(0))
}

/// A text as a path, from the origin to the right.
pub(crate) fn outlines(text: &str, size: f64) -> String {
    let mut path = Outlines { path: String::new(), x: 0.0, scale: 0.0 };
    if let Some(face) = FACE.as_ref() {
        path.scale = size / f64::from(face.units_per_em());
        for c in text.chars() {
            face.outline_glyph(glyph(face, c), &mut path);
            path.x += advance(c) * size;
        }
    }
    path.path
}

struct Outlines {
    path: String,
    x: f64,
    scale: f64,
}

impl Outlines {
    fn add(&mut self, command: char, points: &[(f32, f32)]) {
        self.path.push(command);
        for (x, y) in points {
            let (x, y) = (self.x + f64::from(*x) * self.scale, -f64::from(*y) * self.scale);
            let _ = write!(self.path, "{x:.2} {y:.2} ");
        }
    }
}

impl OutlineBuilder for Outlines {
    fn move_to(&mut self, x: f32, y: f32) {
        self.add('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.add('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.add('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.add('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.path.push('Z');
    }
}

/// A text that is no wider than that: its end is left out if need be.
pub(crate) fn fitted(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let room = room - width("…", size);
    let mut used = 0.0;
    let kept = text.chars().take_while(|c| {
        used += advance(*c) * size;
        used <= room
    });
    format!("{}…", kept.collect::<String>().trim_end())
}

/// A text in lines that are no wider than that, broken between words.
pub(crate) fn wrapped(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} {word}"), size) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, size, room)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_what_our_texts_need() {
        let face = FACE.as_ref().expect("the embedded font is a font");
        for c in "parda: β ≤ 30 ms ±10 % × µs – … “quoted” §5.4 − äöüßé ∞ ²".chars()
        {
            assert!(face.glyph_index(c).is_some(), "{c}");
        }
    }

    #[test]
    fn wider_text_is_wider() {
        assert!(width("iiii", 10.0) < width("mmmm", 10.0));
        assert_eq!(width("", 10.0), 0.0);
        assert!((width("kvm-01", 26.0) - 2.0 * width("kvm-01", 13.0)).abs() < 1e-9);
    }

    #[test]
    fn text_is_cut_where_there_is_no_room_and_wrapped_between_words() {
        assert_eq!(fitted("short", 10.0, 100.0), "short");
        let cut = fitted("a name that goes on for ever", 10.0, 60.0);
        assert!(cut.ends_with('…') && width(&cut, 10.0) <= 60.0, "{cut}");
        assert_eq!(fitted("anything", 10.0, 0.0), "…");
        let lines = wrapped("one two three four five", 10.0, 50.0);
        assert!(lines.len() > 1 && lines.iter().all(|l| width(l, 10.0) <= 50.0), "{lines:?}");
        assert_eq!(lines.join(" "), "one two three four five");
    }

    #[test]
    fn letters_have_outlines_and_blanks_have_none() {
        assert!(outlines("x", 10.0).starts_with('M'));
        assert_eq!(outlines(" ", 10.0), "");
        assert_ne!(
            outlines("\u{10FFFF}", 10.0),
            "",
            "a box stands for what the font does not have"
        );
    }
}

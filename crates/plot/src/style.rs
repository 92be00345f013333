//! Styles of series: colours, dashes and marks that can be told apart.

use std::fmt::Write;

/// Okabe and Ito's palette, which the colour-blind can tell apart; without its yellow, which white swallows.
/// M. Okabe, K. Ito: Color Universal Design, 2008.
const PALETTE: [&str; 7] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];

/// Dashes, used when the colours repeat.
const DASHES: [&str; 3] = ["none", "6 2.5", "2 2"];

const SHAPES: [Shape; 7] = [
    Shape::Circle,
    Shape::Polygon { corners: 4, turn: 0.125 },
    Shape::Polygon { corners: 3, turn: 0.0 },
    Shape::Polygon { corners: 4, turn: 0.0 },
    Shape::Polygon { corners: 3, turn: 0.5 },
    Shape::Polygon { corners: 5, turn: 0.0 },
    Shape::Polygon { corners: 6, turn: 0.0 },
];

/// Style of all series of one name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Style {
    pub(crate) colour: &'static str,
    pub(crate) dash: &'static str,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Circle,
    Polygon { corners: u8, turn: f64 },
}

impl Style {
    /// Style of the series with this position in the legend.
    pub(crate) fn of(place: usize) -> Style {
        let round = place / PALETTE.len();
        Style {
            colour: PALETTE[place % PALETTE.len()],
            dash: DASHES[round % DASHES.len()],
            shape: SHAPES[(place % SHAPES.len() + round) % SHAPES.len()],
        }
    }

    /// The path of a mark.
    pub(crate) fn mark(&self, x: f64, y: f64, radius: f64) -> String {
        let mut path = String::new();
        match self.shape {
            Shape::Circle => {
                let _ = write!(
                    path,
                    "M{:.1} {y:.1}a{radius} {radius} 0 1 0 {d:.1} 0a{radius} {radius} 0 1 0 -{d:.1} 0Z",
                    x - radius,
                    d = 2.0 * radius
                );
            }
            Shape::Polygon { corners, turn } => {
                // With few corners a polygon looks smaller than it is wide.
                let radius = radius * if corners < 5 { 1.25 } else { 1.1 };
                for corner in 0..corners {
                    let angle =
                        (f64::from(corner) / f64::from(corners) + turn) * std::f64::consts::TAU;
                    let (px, py) = (x + radius * angle.sin(), y - radius * angle.cos());
                    let _ = write!(path, "{}{px:.1} {py:.1}", if corner == 0 { 'M' } else { 'L' });
                }
                path.push('Z');
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_hosts_look_different_without_their_colours_or_without_their_marks() {
        let styles: Vec<Style> = (0..12).map(Style::of).collect();
        for (i, a) in styles.iter().enumerate() {
            for b in &styles[..i] {
                assert_ne!((a.colour, a.dash), (b.colour, b.dash));
                assert_ne!((a.dash, a.mark(0.0, 0.0, 3.0)), (b.dash, b.mark(0.0, 0.0, 3.0)));
            }
        }
    }

    #[test]
    fn any_number_of_series_has_a_style() {
        assert_ne!(Style::of(usize::MAX).colour, "");
    }
}

//! Rendering of figures as PNG.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg;

use crate::draw::{Letters, svg};
use crate::figure::Figure;

/// Pixels of the PNG per unit of the SVG, for print and dense screens.
const DENSITY: f32 = 2.0;
/// Longest side of a PNG in pixels. Larger figures are rendered at a lower density.
const LARGEST: f32 = 16_000.0;

/// A figure that could not be rendered. The cause is a bug or a lack of memory, never the data.
#[derive(Debug)]
pub struct PngError(String);

impl std::fmt::Display for PngError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "cannot draw the PNG: {}", self.0)
    }
}

impl std::error::Error for PngError {}

impl Figure {
    /// The figure as a PNG on white, with two pixels for each unit of the SVG.
    pub fn png(&self) -> Result<Vec<u8>, PngError> {
        let wrong = |e: &dyn std::fmt::Display| PngError(e.to_string());
        let svg = svg(self, Letters::Outlines);
        let tree = usvg::Tree::from_str(&svg, &usvg::Options::default()).map_err(|e| wrong(&e))?;
        let size = tree.size();
        let density = DENSITY.min(LARGEST / size.width().max(size.height()));
        let pixels = |side: f32| (side * density).ceil() as u32;
        let mut pixmap = Pixmap::new(pixels(size.width()), pixels(size.height()))
            .ok_or_else(|| wrong(&"it is too large"))?;
        resvg::render(&tree, Transform::from_scale(density, density), &mut pixmap.as_mut());
        pixmap.encode_png().map_err(|e| wrong(&e))
    }
}

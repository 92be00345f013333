#![forbid(unsafe_code)]
//! Charts for reports, as SVG and as PNG, and self-contained HTML pages around them.
//!
//! A [`Figure`] is a stack of panels over one common axis, as the papers draw windows, latencies and throughput over
//! time. It knows nothing of clusters: whoever has data puts it into series. [`Figure::svg`] and [`Figure::png`] draw it,
//! [`Page`] puts figures between headings, prose and tables. `examples/page.rs` shows all of it.
//!
//! Both pictures come from the same drawing. In the SVG text is text; for the PNG it is outlines of an embedded font, so
//! that a machine without fonts draws the same.
//!
//! | file | subject |
//! | --- | --- |
//! | `figure` | what is to be drawn |
//! | `digest` | many hosts as a band; no more points than a screen has |
//! | `scale` | ranges, ticks, and from values to places |
//! | `number` | numbers for people |
//! | `style` | colours, dashes and marks that can be told apart |
//! | `font` | how wide text is, and its outlines |
//! | `layout` | where everything goes |
//! | `draw` | the picture |
//! | `alt` | the picture in words |
//! | `png` | from the drawing to pixels |
//! | `page` | the HTML page |

mod alt;
mod digest;
mod draw;
mod figure;
mod font;
mod layout;
mod number;
mod page;
mod png;
mod scale;
mod style;

pub use figure::{Across, Data, Figure, Level, Note, Panel, Series, Span, Tile, Upright};
pub use number::{brief, number};
pub use page::{Cell, Page, Table};
pub use png::PngError;

#![forbid(unsafe_code)]
//! Charts for reports as SVG, and self-contained HTML pages around them.
//!
//! A [`Figure`] is a stack of panels over one common axis, as the papers draw windows, latencies and throughput over
//! time. The crate is independent of clusters. [`Figure::svg`] draws it with `plotters`, [`html`] puts figures
//! between text.
//!
//! | file | subject |
//! | --- | --- |
//! | `figure` | content of a figure, and the same in words |
//! | `axis` | ranges, ticks, and from values to places |
//! | `draw` | the picture |
//! | `page` | the HTML page |
//! | `number` | numbers for people |

mod axis;
mod draw;
mod figure;
mod number;
mod page;

pub use figure::{Across, Figure, Level, Panel, PlotSeries, SeriesData};
pub use number::{brief, number};
pub use page::{PagePart, html};

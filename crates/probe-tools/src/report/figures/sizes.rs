//! Chart of latency over IO size.

use parda_plot::{Across, Figure, Panel};

use super::{curve, narrow};
use crate::report::confidence;
use crate::report::words::parts;
use parda_probe::{Point, ProbeDocument, Purpose};

/// Chart of latency over IO size, with the fitted line.
pub(crate) fn sizes(document: &ProbeDocument) -> Option<(String, Figure)> {
    let mut points: Vec<&Point> =
        document.points.iter().filter(|p| p.purpose == Purpose::Size).collect();
    points.sort_by_key(|p| p.load.mix.size);
    let first = points.first()?;
    let [_, reads, random] = parts(&first.load.mix);
    let kib = |p: &Point| p.load.mix.size as f64 / 1024.0;
    let name = format!("{reads}, {random}, {} outstanding", first.load.outstanding);
    let mut panel = curve(
        Panel::new("Mean latency", "ms"),
        &name,
        &points,
        kib,
        |p| p.all.mean_ms,
        confidence::latency,
    );
    if let (Some(line), Some(last)) = (&document.findings.size_line, points.last()) {
        let at = |x: f64| (x, line.fixed_ms.value + line.ms_per_kib.value * x);
        // Measured points are marks, and the model is a line.
        for series in panel.series.iter_mut().filter(|s| s.name == name) {
            if let parda_plot::Data::Line(points) = &series.data {
                series.data = parda_plot::Data::Marks(points.clone());
            }
        }
        panel = panel.line("m · size + C", vec![at(0.0), at(kib(last))]);
    }
    let across = Across::Numbers("size of an IO, KiB".to_owned());
    Some(("size".to_owned(), narrow("Latency against size", across).panel(panel)))
}

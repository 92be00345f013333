//! Latency and bandwidth over reads × randomness × size (SPEED'08 figure 2).

use parda_plot::{Across, Figure, Panel};

use super::{curve, narrow, range};
use crate::report::confidence;
use crate::report::words::{mb_per_s, parts};
use parda_probe::{Mix, Point, ProbeDocument, Purpose};

/// A chart for each size, all with the same axes: latency and bandwidth over randomness, a line for each percentage of
/// reads.
pub(crate) fn mixes(document: &ProbeDocument) -> Vec<(String, Figure)> {
    let points: Vec<&Point> =
        document.points.iter().filter(|p| p.purpose == Purpose::Mix).collect();
    let latencies = range(points.iter().map(|p| p.all.mean_ms));
    let bandwidths = range(points.iter().map(|p| mb_per_s(p.all.bytes_per_s)));
    let mut sizes: Vec<u64> = points.iter().map(|p| p.load.mix.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut reads: Vec<u32> = points.iter().map(|p| p.load.mix.read_percent).collect();
    reads.sort_unstable_by(|a, b| b.cmp(a));
    reads.dedup();
    let figure = |of: u64| {
        let mut latency = Panel::new("Mean latency", "ms").log();
        let mut bandwidth = Panel::new("Bandwidth", "MB/s").log();
        (latency.room, bandwidth.room) = (latencies, bandwidths);
        for part in &reads {
            let mut line: Vec<&Point> = points
                .iter()
                .copied()
                .filter(|p| p.load.mix.size == of && p.load.mix.read_percent == *part)
                .collect();
            if line.is_empty() {
                continue;
            }
            line.sort_by_key(|p| p.load.mix.random_percent);
            let [_, name, _] = parts(&line[0].load.mix);
            let random = |p: &Point| f64::from(p.load.mix.random_percent);
            latency = curve(latency, &name, &line, random, |p| p.all.mean_ms, confidence::latency);
            let mb = |p: &Point| mb_per_s(p.all.bytes_per_s);
            bandwidth = curve(bandwidth, &name, &line, random, mb, |_| None);
        }
        let [size, ..] = parts(&Mix { size: of, read_percent: 100, random_percent: 100 });
        let outstanding = points.first().map_or(0, |p| p.load.outstanding);
        let across = Across::Numbers("random, % of IOs".to_owned());
        let mut figure = narrow(format!("{size}, {outstanding} outstanding"), across)
            .panel(latency)
            .panel(bandwidth);
        figure.room = Some((0.0, 100.0));
        (format!("mix-{}", size.replace(' ', "")), figure)
    };
    sizes.into_iter().map(figure).collect()
}

//! Latency of reads beside that of writes.

use crate::findings::Asymmetry;
use crate::load::{Load, Mix};
use crate::point::Point;

/// Reads and writes of one size, randomness and depth; where several were run, the deepest, where
/// a cache's first help is used up.
pub(super) fn asymmetry(points: &[Point]) -> Option<Asymmetry> {
    let with = |point: &Point, read_percent: u32| {
        let Load { mix, outstanding } = point.load;
        let load = Load { mix: Mix { read_percent, ..mix }, outstanding };
        points.iter().find(|other| other.load == load && other.all.ios > 0)
    };
    let both = points.iter().filter_map(|point| Some((with(point, 100)?, with(point, 0)?)));
    let (reads, writes) = both.max_by_key(|(reads, _)| reads.load.outstanding)?;
    Some(Asymmetry {
        outstanding: reads.load.outstanding,
        latency_ratio: writes.all.mean_ms / reads.all.mean_ms,
        iops_ratio: writes.all.iops / reads.all.iops,
    })
}

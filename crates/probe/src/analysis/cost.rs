//! Cost of an IO, from the target's throughput of random reads and writes alone, small and large.

use crate::findings::{Curve, KindCost};

/// Size of the small IOs, in bytes: the size of `iops_reads` and `iops_writes` in the configuration.
const SMALL: u64 = 4096;

/// `None` without sweeps of 4 KiB and of a larger size, of both reads and writes, all at random offsets.
pub(super) fn cost(curves: &[Curve]) -> Option<KindCost> {
    let of = |read_percent: u32| {
        let alone = curves.iter().filter(|curve| {
            (curve.mix.read_percent, curve.mix.random_percent) == (read_percent, 100)
        });
        let small = alone.clone().find(|curve| curve.mix.size == SMALL)?;
        let large = alone.max_by_key(|curve| curve.mix.size)?;
        let (iops, bytes) = (small.peak_iops.value, large.mix.size.checked_sub(SMALL)?);
        // Time of the bytes beyond 4 KiB. No array moves fewer bytes the larger its IOs are.
        let more = 1.0 / large.peak_iops.value - 1.0 / iops;
        let bandwidth = (bytes as f64 / more).max(SMALL as f64 * iops);
        (bytes > 0 && more > 0.0).then_some((iops, bandwidth))
    };
    let ((iops_reads, bandwidth_reads), (iops_writes, bandwidth_writes)) = (of(100)?, of(0)?);
    Some(KindCost { iops_reads, bandwidth_reads, iops_writes, bandwidth_writes })
}

//! Workloads: the IOs of a client, their offsets and their times, drawn by chance.

use std::time::Duration;

use bytesize::ByteSize;
use parda_config::{Amount, Error};
use parda_control::Bytes;

use crate::keys::{HotKeys, WorkloadKeys};

/// Size of a sector in bytes. Sizes of disks and IOs are multiples of it.
const SECTOR: u64 = 512;

/// Largest number of outstanding IOs of an open loop. A guest's queue is finite: further arrivals
/// wait outside, as a mere count, until an IO completes.
pub const OPEN_LOOP_DEPTH: u32 = 1024;

/// Allowed rates of an open loop, in IOs per second. The least is about one in a quarter of an hour,
/// the most one per microsecond.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e6;

/// The workload of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Sizes of the IOs, smallest first. All are multiples of the smallest.
    pub sizes: Vec<SizePart>,
    /// Percentage of reads, a whole number; the rest are writes.
    pub read_percent: f64,
    /// Percentage of the IOs that are no reads that are trims, a whole number; the rest are writes.
    pub trim_percent: f64,
    /// Percentage of random IOs, a whole number; the rest are sequential.
    pub random_percent: f64,
    /// Whether sequential IOs continue the last IO of either direction, as in Iometer. Otherwise they
    /// continue the last one of their own direction, as in fio.
    pub one_stream: bool,
    /// Hot part of the disk, if random IOs are not uniform.
    pub hot: Option<Hot>,
    /// Times of the IOs: closed or open loop.
    pub demand: ArrivalRule,
    /// Bursts, if the client does not work all the time.
    pub bursts: Option<Bursts>,
}

/// One of the sizes of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePart {
    /// Size of the IOs.
    pub size: Bytes,
    /// Percentage of IOs of this size, 1 to 100.
    pub percent: u32,
}

/// A part of the disk that is used more than the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// Size of the hot part at the disk's beginning, as a percentage of the disk: a whole number, 1 to
    /// 99.
    pub part_percent: f64,
    /// Percentage of random IOs that begin in the hot part, a whole number. The others begin in the
    /// rest.
    pub hits_percent: f64,
}

/// Rule for the times of IOs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalRule {
    /// A closed loop: each completion starts the next IO.
    Closed {
        /// Number of outstanding IOs, constant.
        outstanding: u32,
    },
    /// An open loop: IOs arrive regardless of completions, up to [`OPEN_LOOP_DEPTH`] outstanding.
    Open {
        /// Mean arrivals per second. Times between arrivals are exponential: a Poisson process.
        rate: f64,
    },
}

/// Alternating work and rest of a client, from its start on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// Duration of a burst of work.
    pub on: Duration,
    /// Duration of the rest after it, in which no IO begins.
    pub off: Duration,
}

impl Bursts {
    /// Ends and beginnings of bursts of a client that works from `start` to `end`, without those two
    /// times. Each item is the time, and whether the client works from then on.
    pub fn edges(self, start: Duration, end: Duration) -> impl Iterator<Item = (Duration, bool)> {
        let turn = move |&(at, works): &(Duration, bool)| {
            Some((at + if works { self.on } else { self.off }, !works))
        };
        std::iter::successors(turn(&(start, true)), turn).take_while(move |(at, _)| *at < end)
    }

    /// Whether the client works throughout the time between two moments, both counted from its start.
    #[must_use]
    pub fn works_throughout(&self, from: Duration, to: Duration) -> bool {
        let cycle = (self.on + self.off).as_nanos();
        let into = from.as_nanos() % cycle;
        into + to.saturating_sub(from).as_nanos() <= self.on.as_nanos()
    }
}

impl Workload {
    /// Checks a workload. `error` makes an error about one of its keys; `""` stands for the whole
    /// workload.
    pub(crate) fn check(
        written: &WorkloadKeys,
        error: &dyn Fn(&str, &str) -> Error,
    ) -> Result<Workload, Error> {
        let percent = |key: &str, amount: Option<Amount>| {
            let amount = amount.ok_or_else(|| error("", &format!("must have `{key}`")))?;
            whole(amount, 0.0..=100.0)
                .ok_or_else(|| error(key, "must be a whole percentage, 0% to 100%"))
        };
        let workload = Workload {
            sizes: sizes(written, error)?,
            read_percent: percent("read", written.read)?,
            trim_percent: written.trim.map_or(Ok(0.0), |trim| percent("trim", Some(trim)))?,
            random_percent: percent("random", written.random)?,
            one_stream: written.one_stream.unwrap_or(false),
            hot: written.hot.map(|hot| self::hot(hot, error)).transpose()?,
            demand: demand(written, error)?,
            bursts: bursts(written, error)?,
        };
        if workload.hot.is_some() && workload.random_percent == 0.0 {
            return Err(error("hot", "is where random IOs go, and none are random"));
        }
        if workload.trim_percent > 0.0 && workload.read_percent == 100.0 {
            return Err(error("trim", "is a part of the IOs that are no reads, and all are reads"));
        }
        Ok(workload)
    }

    /// Checks that a disk of this size suits the workload: an IO fits into its hot part and into the
    /// rest. The error is a message.
    pub(crate) fn fits(&self, disk: Bytes) -> Result<(), &'static str> {
        let largest = self.sizes.iter().map(|part| part.size.0).max().unwrap_or(0);
        if !disk.0.is_multiple_of(SECTOR) || disk.0 < largest {
            return Err("must be a multiple of 512 bytes and hold one IO");
        }
        let hot = self.hot_grains(disk);
        if self.hot.is_some() && (hot == 0 || hot >= self.places(disk, Bytes(largest))) {
            return Err("is too small to have a hot part: it and the rest must hold one IO");
        }
        Ok(())
    }

    /// Unit of offsets: the smallest size.
    #[must_use]
    pub fn grain(&self) -> Bytes {
        self.sizes.first().map_or(Bytes(SECTOR), |part| part.size)
    }

    /// Number of offsets for an IO of this size on a disk: one at each grain where the IO fits.
    #[must_use]
    pub fn places(&self, disk: Bytes, size: Bytes) -> u64 {
        (disk.0.saturating_sub(size.0)) / self.grain().0 + 1
    }

    /// Number of grains of the hot part; of the whole disk if there is none.
    #[must_use]
    pub fn hot_grains(&self, disk: Bytes) -> u64 {
        let grains = disk.0 / self.grain().0;
        // Exact: percentages are whole numbers.
        let part = self.hot.map_or(100, |hot| hot.part_percent as u64);
        (u128::from(grains) * u128::from(part) / 100) as u64
    }
}

/// The percentage, if it is a whole number in this range.
fn whole(amount: Amount, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
    Some(amount.percent()).filter(|p| range.contains(p) && p.fract() == 0.0)
}

fn sizes(
    written: &WorkloadKeys,
    error: &dyn Fn(&str, &str) -> Error,
) -> Result<Vec<SizePart>, Error> {
    let checked = |key: &str, size: ByteSize| {
        let ok = size.as_u64() > 0 && size.as_u64().is_multiple_of(SECTOR);
        let error = || error(key, "must be a multiple of 512 bytes, and not 0");
        if ok { Ok(Bytes(size.as_u64())) } else { Err(error()) }
    };
    let mix = match (written.size, &written.sizes) {
        (Some(size), None) => {
            return Ok(vec![SizePart { size: checked("size", size)?, percent: 100 }]);
        }
        (None, Some(mix)) => mix,
        (Some(_), Some(_)) => return Err(error("sizes", "stands in place of `size`: give one")),
        (None, None) => return Err(error("", "must have `size`, or `sizes` for several")),
    };
    let mut sizes = Vec::with_capacity(mix.len());
    for (name, amount) in mix {
        let key = format!("sizes.{name}");
        let size = name.parse().map_err(|_| error(&key, "must be a size, such as \"4KiB\""))?;
        let size = checked(&key, size)?;
        let percent = whole(*amount, 1.0..=100.0);
        let percent = percent.ok_or_else(|| error(&key, "must be a whole percentage, 1% to 100%"));
        sizes.push(SizePart { size, percent: percent? as u32 });
    }
    sizes.sort_by_key(|part| part.size.0);
    if sizes.iter().map(|part| part.percent).sum::<u32>() != 100 {
        return Err(error("sizes", "must make 100% together"));
    }
    if sizes.windows(2).any(|two| two[0].size == two[1].size) {
        return Err(error("sizes", "has the same size twice"));
    }
    if sizes.iter().any(|part| !part.size.0.is_multiple_of(sizes[0].size.0)) {
        return Err(error("sizes", "must be multiples of the smallest"));
    }
    Ok(sizes)
}

fn hot(written: HotKeys, error: &dyn Fn(&str, &str) -> Error) -> Result<Hot, Error> {
    let percent = |key: &str, amount, most: f64| {
        let message = format!("must be a whole percentage, 1% to {most}%");
        whole(amount, 1.0..=most).ok_or_else(|| error(key, &message))
    };
    Ok(Hot {
        part_percent: percent("hot.part", written.part, 99.0)?,
        hits_percent: percent("hot.hits", written.hits, 100.0)?,
    })
}

fn demand(
    written: &WorkloadKeys,
    error: &dyn Fn(&str, &str) -> Error,
) -> Result<ArrivalRule, Error> {
    match (written.outstanding, written.rate) {
        (Some(0), None) => Err(error("outstanding", "must be at least 1")),
        (Some(outstanding), None) => Ok(ArrivalRule::Closed { outstanding }),
        (None, Some(rate)) if RATES.contains(&rate) => Ok(ArrivalRule::Open { rate }),
        (None, Some(_)) => Err(error("rate", "must be 0.001 to 1000000 IOs a second")),
        (Some(_), Some(_)) => {
            Err(error("rate", "makes an open loop, in place of `outstanding`: give one"))
        }
        (None, None) => Err(error("", "must have `outstanding`, or `rate` for an open loop")),
    }
}

fn bursts(
    written: &WorkloadKeys,
    error: &dyn Fn(&str, &str) -> Error,
) -> Result<Option<Bursts>, Error> {
    let (on, off) = match (written.on, written.off) {
        (None, None) => return Ok(None),
        (Some(on), Some(off)) => (on, off),
        (Some(_), None) => return Err(error("on", "means nothing without `off`")),
        (None, Some(_)) => return Err(error("off", "means nothing without `on`")),
    };
    for (key, length) in [("on", on), ("off", off)] {
        if length < Duration::from_millis(1) {
            return Err(error(key, "must be at least 1ms"));
        }
    }
    Ok(Some(Bursts { on, off }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_stretch_lies_within_one_burst_or_does_not() {
        let bursts = Bursts { on: ms(2000), off: ms(8000) };
        for (from, to, works) in [
            (0, 2000, true),
            (0, 2001, false),
            (500, 1500, true),
            (1500, 2500, false),
            (2000, 2000, true),
            (2000, 3000, false),
            (10_000, 12_000, true),
            (31_000, 32_000, true),
            (1000, 11_000, false),
        ] {
            assert_eq!(bursts.works_throughout(ms(from), ms(to)), works, "{from} to {to}");
        }
    }

    #[test]
    fn places_and_the_hot_part_are_counted_in_the_smallest_size() {
        let part = |size, percent| SizePart { size: Bytes(size), percent };
        let workload = Workload {
            sizes: vec![part(4096, 70), part(16384, 30)],
            read_percent: 100.0,
            random_percent: 100.0,
            hot: Some(Hot { part_percent: 25.0, hits_percent: 90.0 }),
            demand: ArrivalRule::Closed { outstanding: 1 },
            one_stream: false,
            trim_percent: 0.0,
            bursts: None,
        };
        let disk = Bytes(16 * 4096 + 512);
        assert_eq!(workload.places(disk, Bytes(4096)), 16);
        assert_eq!(workload.places(disk, Bytes(16384)), 13);
        assert_eq!(workload.hot_grains(disk), 4);
        assert_eq!(workload.fits(disk), Ok(()));
        assert!(workload.fits(Bytes(3 * 4096)).is_err(), "no room for the larger");
        assert!(workload.fits(Bytes(4 * 4096)).is_err(), "no room for it but in the hot part");
    }
}

//! What a VM does to its disk: the IOs, where they go, and when.

use std::time::Duration;

use bytesize::ByteSize;
use parda_config::Error;
use parda_control::Bytes;

use crate::amount::Amount;
use crate::file;

/// The smallest addressable unit of a disk here, and what sizes of disks and IOs are multiples of.
pub(crate) const SECTOR: u64 = 512;

/// How many IOs of an open loop are under way at most. A guest's queue is not endless: what
/// arrives beyond waits outside, as a mere number, until one comes back.
pub const OPEN_LOOP_DEPTH: u32 = 1024;

/// The rates of an open loop, in IOs a second: from one in a quarter of an hour to one in a
/// microsecond.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1e6;

/// What a VM's client does.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The sizes of its IOs, smallest first; all are multiples of the smallest.
    pub sizes: Vec<SizePart>,
    /// Reads in percent of IOs, a whole number; the rest are writes.
    pub read_percent: f64,
    /// Random in percent of IOs, a whole number; the rest follow the one before.
    pub random_percent: f64,
    /// Whether those that are not random follow the last IO of either direction, as Iometer has
    /// it, and not the last of their own, as fio does.
    pub one_stream: bool,
    /// Where the random ones go, if not anywhere alike.
    pub hot: Option<Hot>,
    /// When it does the next.
    pub demand: Demand,
    /// When it does any, if not always.
    pub bursts: Option<Bursts>,
}

/// One of the sizes of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePart {
    /// The size.
    pub size: Bytes,
    /// How many of a hundred IOs have it, 1 to 100.
    pub percent: u32,
}

/// A part of the disk that is used more than the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// How much of the disk it is, from its beginning, in percent: a whole number, 1 to 99.
    pub part_percent: f64,
    /// How many of the random IOs begin there, in percent, a whole number; the others begin in the
    /// rest.
    pub hits_percent: f64,
}

/// When a client does its next IO.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// A closed loop: as soon as one comes back.
    Closed {
        /// So many are under way, always.
        outstanding: u32,
    },
    /// An open loop: whatever has come back, up to [`OPEN_LOOP_DEPTH`].
    Open {
        /// A second, on average. The times between arrivals are exponential: a Poisson process.
        rate: f64,
    },
}

/// A client that works and rests by turns, from its start on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursts {
    /// How long it works.
    pub on: Duration,
    /// How long it then begins nothing.
    pub off: Duration,
}

impl Bursts {
    /// The edges of the bursts of a client that works from `start` to `end`, but for these: when,
    /// and whether it works from then on.
    pub fn edges(self, start: Duration, end: Duration) -> impl Iterator<Item = (Duration, bool)> {
        let turn = move |&(at, works): &(Duration, bool)| {
            Some((at + if works { self.on } else { self.off }, !works))
        };
        std::iter::successors(turn(&(start, true)), turn).take_while(move |(at, _)| *at < end)
    }

    /// Whether it works all the time between two moments, both from its start.
    #[must_use]
    pub fn works_throughout(&self, from: Duration, to: Duration) -> bool {
        let cycle = (self.on + self.off).as_nanos();
        let into = from.as_nanos() % cycle;
        into + to.saturating_sub(from).as_nanos() <= self.on.as_nanos()
    }
}

impl Workload {
    /// The workload as it is written, if it makes sense. `error` is an error about a key of it;
    /// `""` is all of it.
    pub(crate) fn check(
        written: &file::Workload,
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
            random_percent: percent("random", written.random)?,
            one_stream: written.one_stream.unwrap_or(false),
            hot: written.hot.map(|hot| self::hot(hot, error)).transpose()?,
            demand: demand(written, error)?,
            bursts: bursts(written, error)?,
        };
        if workload.hot.is_some() && workload.random_percent == 0.0 {
            return Err(error("hot", "is where random IOs go, and none are random"));
        }
        Ok(workload)
    }

    /// Whether a disk of this size can be used so: it holds an IO, and so do its hot part and the
    /// rest. Otherwise what is wrong with it.
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

    /// Where IOs lie is counted in this: the smallest size.
    #[must_use]
    pub fn grain(&self) -> Bytes {
        self.sizes.first().map_or(Bytes(SECTOR), |part| part.size)
    }

    /// How many places a disk has for an IO of this size: one at each grain, as long as it fits.
    #[must_use]
    pub fn places(&self, disk: Bytes, size: Bytes) -> u64 {
        (disk.0.saturating_sub(size.0)) / self.grain().0 + 1
    }

    /// How many grains the hot part of a disk has; all if there is none.
    #[must_use]
    pub fn hot_grains(&self, disk: Bytes) -> u64 {
        let grains = disk.0 / self.grain().0;
        // Exact: percentages are whole.
        let part = self.hot.map_or(100, |hot| hot.part_percent as u64);
        (u128::from(grains) * u128::from(part) / 100) as u64
    }
}

/// The percentage, if it is a whole one in this range.
fn whole(amount: Amount, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
    Some(amount.percent()).filter(|p| range.contains(p) && p.fract() == 0.0)
}

fn sizes(
    written: &file::Workload,
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

fn hot(written: file::Hot, error: &dyn Fn(&str, &str) -> Error) -> Result<Hot, Error> {
    let percent = |key: &str, amount, most: f64| {
        let message = format!("must be a whole percentage, 1% to {most}%");
        whole(amount, 1.0..=most).ok_or_else(|| error(key, &message))
    };
    Ok(Hot {
        part_percent: percent("hot.part", written.part, 99.0)?,
        hits_percent: percent("hot.hits", written.hits, 100.0)?,
    })
}

fn demand(written: &file::Workload, error: &dyn Fn(&str, &str) -> Error) -> Result<Demand, Error> {
    match (written.outstanding, written.rate) {
        (Some(0), None) => Err(error("outstanding", "must be at least 1")),
        (Some(outstanding), None) => Ok(Demand::Closed { outstanding }),
        (None, Some(rate)) if RATES.contains(&rate) => Ok(Demand::Open { rate }),
        (None, Some(_)) => Err(error("rate", "must be 0.001 to 1000000 IOs a second")),
        (Some(_), Some(_)) => {
            Err(error("rate", "makes an open loop, in place of `outstanding`: give one"))
        }
        (None, None) => Err(error("", "must have `outstanding`, or `rate` for an open loop")),
    }
}

fn bursts(
    written: &file::Workload,
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
            demand: Demand::Closed { outstanding: 1 },
            one_stream: false,
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

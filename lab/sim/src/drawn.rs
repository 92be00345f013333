//! IOs drawn at random, and the gaps between the arrivals of an open loop.

use parda_array::{ArrayIo, Bytes, IoKind, LunId};
use parda_control::Span;
use parda_workload::{ArrivalRule, Workload};

/// Random source of a workload's IOs.
#[derive(Debug)]
pub(crate) struct Drawn {
    workload: Workload,
    lun: LunId,
    sizes: Vec<Size>,
    /// First size: the only one of most workloads.
    only: Size,
    /// Granularity of offsets, in bytes.
    grain: u64,
    /// End of the hot part of the disk, in grains.
    hot_places: u64,
    random: fastrand::Rng,
    /// Next offsets of its sequential reads and its sequential writes. Each follows the last IO of
    /// its direction, as in fio. Alternatively the first entry follows the last IO of either
    /// direction, as in Iometer.
    streams: [u64; 2],
}

/// One of the workload's IO sizes.
#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u64,
    grains: u64,
    /// Number of possible places for an IO of this size.
    places: u64,
    /// Cumulative percentage: of this size and all sizes before.
    up_to: u32,
}

impl Drawn {
    pub(crate) fn new(
        workload: &Workload,
        lun: LunId,
        disk: parda_control::Bytes,
        random: fastrand::Rng,
    ) -> Drawn {
        let workload = workload.clone();
        let grain = workload.grain().0;
        let mut up_to = 0;
        let size = |part: &parda_workload::SizePart| {
            up_to += part.percent;
            let places = workload.places(disk, part.size);
            Size { bytes: part.size.0, grains: part.size.0 / grain, places, up_to }
        };
        let sizes: Vec<Size> = workload.sizes.iter().map(size).collect();
        Drawn {
            lun,
            only: sizes[0],
            sizes,
            grain,
            hot_places: workload.hot_grains(disk),
            random,
            streams: [0; 2],
            workload,
        }
    }

    /// Next IO, at random.
    pub(crate) fn draw(&mut self) -> ArrayIo {
        let read = self.percent(self.workload.read_percent);
        let trim = !read && self.percent(self.workload.trim_percent);
        let random = self.percent(self.workload.random_percent);
        let Size { bytes, grains, places, .. } = self.size();
        let stream = if self.workload.one_stream { 0 } else { usize::from(read) };
        let next = self.streams[stream];
        let place = if random {
            self.anywhere(places)
        } else if next < places {
            next
        } else {
            0
        };
        self.streams[stream] = place + grains;
        ArrayIo {
            lun: self.lun,
            kind: match (read, trim) {
                (true, _) => IoKind::Read,
                (false, true) => IoKind::Trim,
                (false, false) => IoKind::Write,
            },
            offset: Bytes(place * self.grain),
            len: Bytes(bytes),
        }
    }

    /// Time until the next arrival of an open loop: exponential, which makes a Poisson process.
    /// `None` for a closed loop.
    pub(crate) fn gap(&mut self) -> Option<Span> {
        let rate = match self.workload.demand {
            ArrivalRule::Open { rate } => rate,
            ArrivalRule::Closed { .. } => return None,
        };
        // In (0, 1], so that the logarithm is finite.
        let uniform = 1.0 - self.random.f64();
        Some(Span((-uniform.ln() * 1e9 / rate).round() as u64))
    }

    /// Size of the next IO. With only one size, no number is drawn.
    fn size(&mut self) -> Size {
        if self.sizes.len() == 1 {
            return self.only;
        }
        let drawn = self.random.u32(..100);
        self.sizes.iter().find(|size| drawn < size.up_to).copied().unwrap_or(self.only)
    }

    /// One of `places` places, at random.
    fn anywhere(&mut self, places: u64) -> u64 {
        let Some(hot) = self.workload.hot else { return self.random.u64(..places) };
        if self.percent(hot.hits_percent) {
            self.random.u64(..self.hot_places)
        } else {
            self.random.u64(self.hot_places..places)
        }
    }

    /// True with a probability of `percent`.
    fn percent(&mut self, percent: f64) -> bool {
        percent > 0.0 && f64::from(self.random.u32(..100)) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_workload::{Hot, SizePart};

    fn of(workload: Workload, disk: u64) -> Drawn {
        let disk = parda_control::Bytes(disk);
        Drawn::new(&workload, LunId(3), disk, fastrand::Rng::with_seed(7))
    }

    fn part(kib: u64, percent: u32) -> SizePart {
        SizePart { size: parda_control::Bytes::kib(kib), percent }
    }

    fn workload(read_percent: f64, random_percent: f64) -> Workload {
        Workload {
            sizes: vec![part(4, 100)],
            read_percent,
            random_percent,
            hot: None,
            demand: ArrivalRule::Closed { outstanding: 8 },
            one_stream: false,
            trim_percent: 0.0,
            bursts: None,
        }
    }

    fn client(read_percent: f64, random_percent: f64) -> Drawn {
        of(workload(read_percent, random_percent), 10 * 4096 + 512)
    }

    #[test]
    fn a_stream_goes_round_and_round() {
        let mut client = client(100.0, 0.0);
        let offsets: Vec<u64> = (0..12).map(|_| client.draw().offset.0 / 4096).collect();
        assert_eq!(offsets, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
    }

    #[test]
    fn the_mix_is_what_it_should_be_and_all_of_it_lies_on_the_disk() {
        let mut client = client(67.0, 100.0);
        let mut reads = 0;
        let mut places = [0; 10];
        for _ in 0..10_000 {
            let io = client.draw();
            reads += u32::from(io.kind == IoKind::Read);
            assert_eq!((io.lun, io.len, io.offset.0 % 4096), (LunId(3), Bytes(4096), 0));
            places[(io.offset.0 / 4096) as usize] += 1;
        }
        assert!((6500..6900).contains(&reads), "{reads}");
        assert!(places.iter().all(|n| (850..1150).contains(n)), "{places:?}");
    }

    #[test]
    fn of_what_is_not_read_so_much_is_trimmed() {
        let mut client = of(Workload { trim_percent: 30.0, ..workload(50.0, 100.0) }, 1 << 20);
        let mut counts = [0; 3];
        (0..10_000).for_each(|_| counts[client.draw().kind as usize] += 1);
        for (count, should) in counts.into_iter().zip([5000, 3500, 1500]) {
            assert!((should - 200..should + 200).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn in_one_stream_each_io_follows_the_last_of_either_direction() {
        let mut client = of(Workload { one_stream: true, ..workload(50.0, 0.0) }, 10 * 4096);
        let drawn: Vec<ArrayIo> = (0..100).map(|_| client.draw()).collect();
        let reads = drawn.iter().filter(|io| io.kind == IoKind::Read).count();
        assert!((30..70).contains(&reads), "{reads}");
        assert!(drawn.iter().zip(0..).all(|(io, i)| io.offset.0 == i % 10 * 4096));
    }

    #[test]
    fn what_is_not_random_follows_the_one_before_of_its_direction() {
        let mut client = client(50.0, 30.0);
        let mut after = [0; 2];
        let mut followed = 0;
        for _ in 0..10_000 {
            let io = client.draw();
            let (stream, place) = (usize::from(io.kind == IoKind::Read), io.offset.0 / 4096);
            followed += u32::from(place == after[stream]);
            after[stream] = (place + 1) % 10;
        }
        // 70 % of them, and a tenth of the others by chance.
        assert!((7100..7500).contains(&followed), "{followed}");
    }

    #[test]
    fn sizes_come_as_often_as_they_should_and_every_io_fits_on_the_disk() {
        let disk = 64 * 4096 + 512;
        let mix = vec![part(4, 70), part(16, 20), part(64, 10)];
        let mut client = of(Workload { sizes: mix, ..workload(100.0, 100.0) }, disk);
        let mut counts = [0; 3];
        for _ in 0..10_000 {
            let io = client.draw();
            counts[[4, 16, 64].iter().position(|kib| io.len.0 == kib << 10).unwrap()] += 1;
            assert!(io.offset.0.is_multiple_of(4096) && io.offset.0 + io.len.0 <= disk, "{io:?}");
        }
        for (count, should) in counts.into_iter().zip([7000, 2000, 1000]) {
            assert!((should - 150..should + 150).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn a_stream_of_several_sizes_has_no_holes() {
        let mix = vec![part(4, 50), part(16, 50)];
        let mut client = of(Workload { sizes: mix, ..workload(100.0, 0.0) }, 40 * 4096);
        let (mut after, mut rounds) = (0, 0);
        for _ in 0..1000 {
            let io = client.draw();
            if io.offset.0 != after {
                assert!(io.offset.0 == 0 && after + io.len.0 > 40 * 4096, "{io:?} after {after}");
                rounds += 1;
            }
            after = io.offset.0 + io.len.0;
        }
        assert!((50..80).contains(&rounds), "{rounds}");
    }

    #[test]
    fn the_hot_part_gets_its_hits_and_the_rest_the_others() {
        let hot = Some(Hot { part_percent: 10.0, hits_percent: 90.0 });
        let mut client = of(Workload { hot, ..workload(100.0, 100.0) }, 1000 * 4096);
        let mut counts = [0; 1000];
        for _ in 0..100_000 {
            counts[(client.draw().offset.0 / 4096) as usize] += 1;
        }
        let hits: i32 = counts[..100].iter().sum();
        assert!((89_700..90_300).contains(&hits), "{hits}");
        // All places of each part equally: 900 and 11 each.
        assert!(counts[..100].iter().all(|n| (760..1040).contains(n)), "{counts:?}");
        assert!(counts[100..].iter().all(|n| (1..32).contains(n)), "{counts:?}");
    }

    #[test]
    fn an_open_loop_is_a_poisson_process() {
        let demand = ArrivalRule::Open { rate: 500.0 };
        let mut client = of(Workload { demand, ..workload(100.0, 100.0) }, 1 << 20);
        // Arrivals in each of a thousand seconds: mean and variance are both 500.
        let (mut at, mut counts) = (0, vec![0.0; 1000]);
        loop {
            at += client.gap().unwrap().0;
            match counts.get_mut((at / 1_000_000_000) as usize) {
                Some(count) => *count += 1.0,
                None => break,
            }
        }
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / n;
        // Three standard deviations: 3·√(500/1000) of the mean and 3·500·√(2/1000) of the variance.
        assert!((mean - 500.0_f64).abs() < 2.1, "{mean}");
        assert!((variance - 500.0_f64).abs() < 67.0, "{variance}");
    }

    #[test]
    fn a_closed_loop_waits_for_no_time_and_draws_for_none() {
        let (mut one, mut other) = (client(50.0, 50.0), client(50.0, 50.0));
        for _ in 0..100 {
            assert_eq!(one.gap(), None);
            assert_eq!(one.draw(), other.draw());
        }
    }
}

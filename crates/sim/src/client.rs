//! What a VM does: a closed loop that keeps so many IOs under way on its disk.

use parda_array::{ArrayIo, Bytes, IoKind, LunId};
use parda_scenario::{Vm, Workload};

/// A VM's client.
#[derive(Debug)]
pub(crate) struct Client {
    workload: Workload,
    lun: LunId,
    /// How many IOs its disk has room for, one after the other.
    places: u64,
    random: fastrand::Rng,
    /// Where its sequential reads and its sequential writes go on: after the last of the same
    /// direction, as fio's do.
    streams: [u64; 2],
}

impl Client {
    pub(crate) fn new(vm: &Vm, lun: LunId, random: fastrand::Rng) -> Client {
        let places = vm.disk.0 / vm.workload.size.0;
        Client { workload: vm.workload, lun, places, random, streams: [0; 2] }
    }

    /// How many IOs it keeps under way.
    pub(crate) fn outstanding(&self) -> u32 {
        self.workload.outstanding
    }

    /// Its next IO.
    pub(crate) fn draw(&mut self) -> ArrayIo {
        let Workload { size, read_percent, random_percent, .. } = self.workload;
        let read = self.percent(read_percent);
        let random = self.percent(random_percent);
        let stream = usize::from(read);
        let place = if random { self.random.u64(..self.places) } else { self.streams[stream] };
        self.streams[stream] = if place + 1 < self.places { place + 1 } else { 0 };
        ArrayIo {
            lun: self.lun,
            kind: if read { IoKind::Read } else { IoKind::Write },
            offset: Bytes(place * size.0),
            len: Bytes(size.0),
        }
    }

    /// True in so many of a hundred cases.
    fn percent(&mut self, percent: f64) -> bool {
        percent > 0.0 && f64::from(self.random.u32(..100)) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parda_control::Shares;

    fn client(read_percent: f64, random_percent: f64) -> Client {
        let size = parda_control::Bytes(4096);
        let workload = Workload { size, read_percent, random_percent, outstanding: 8 };
        let disk = parda_control::Bytes(10 * 4096 + 512);
        let vm = Vm { name: "db".to_owned(), shares: Shares(1), burst: 0.0, disk, workload };
        Client::new(&vm, LunId(3), fastrand::Rng::with_seed(7))
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
}

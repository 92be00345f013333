//! Values of one object for each second of the last hour, in little memory.

use std::collections::VecDeque;

use super::quantity::UNKNOWN;

/// Seconds of a minute.
const MINUTE: u64 = 60;

/// Minutes that are kept: an hour, and the one that is being filled.
const KEPT: usize = 61;

/// N quantities for each second. A minute in which nothing changes, as that of an idle disk, takes a few bytes.
#[derive(Debug, Default)]
pub(super) struct Series<const N: usize> {
    /// Number of the first minute.
    first: u64,
    minutes: VecDeque<Minute<N>>,
}

#[derive(Debug)]
enum Minute<const N: usize> {
    /// The same values in the seconds from `from` to before `to`; those of other seconds are not known.
    Same {
        from: u8,
        to: u8,
        values: [u16; N],
    },
    Each(Box<[[u16; N]; MINUTE as usize]>),
}

impl<const N: usize> Series<N> {
    /// Adds the values of a second. Seconds that are skipped are not known.
    pub(super) fn push(&mut self, second: u64, values: [u16; N]) {
        let (minute, at) = (second / MINUTE, (second % MINUTE) as u8);
        if self.minutes.is_empty() || self.end() + KEPT as u64 <= minute {
            self.minutes.clear();
            self.first = minute;
        }
        while self.end() <= minute {
            if self.minutes.len() == KEPT {
                self.minutes.pop_front();
                self.first += 1;
            }
            self.minutes.push_back(Minute::Same { from: 0, to: 0, values: [UNKNOWN; N] });
        }
        let place = minute.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(minute) = place.and_then(|place| self.minutes.get_mut(place)) {
            minute.set(at, values);
        }
    }

    /// Values of a second.
    pub(super) fn at(&self, second: u64) -> [u16; N] {
        let minute = (second / MINUTE).checked_sub(self.first);
        let minute = minute.and_then(|at| self.minutes.get(usize::try_from(at).ok()?));
        minute.map_or([UNKNOWN; N], |minute| minute.at((second % MINUTE) as u8))
    }

    /// The minute after the last one.
    fn end(&self) -> u64 {
        self.first + self.minutes.len() as u64
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let each = self.minutes.iter().filter(|minute| matches!(minute, Minute::Each(_))).count();
        self.minutes.capacity() * size_of::<Minute<N>>()
            + each * size_of::<[[u16; N]; MINUTE as usize]>()
    }

    /// Whether the series has no values since this second.
    pub(super) fn is_over(&self, since: u64) -> bool {
        self.end() * MINUTE <= since
    }
}

impl<const N: usize> Minute<N> {
    fn at(&self, second: u8) -> [u16; N] {
        match self {
            Minute::Same { from, to, values } if (*from..*to).contains(&second) => *values,
            Minute::Same { .. } => [UNKNOWN; N],
            Minute::Each(each) => each[usize::from(second)],
        }
    }

    fn set(&mut self, second: u8, new: [u16; N]) {
        match self {
            Minute::Same { from, to, values } if from == to => {
                (*from, *to, *values) = (second, second + 1, new);
            }
            Minute::Same { to, values, .. } if *to == second && *values == new => *to += 1,
            Minute::Same { .. } => {
                let mut each = Box::new(std::array::from_fn(|at| self.at(at as u8)));
                each[usize::from(second)] = new;
                *self = Minute::Each(each);
            }
            Minute::Each(each) => each[usize::from(second)] = new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000 * MINUTE + 7;

    #[test]
    fn each_second_is_as_it_was_pushed_and_all_others_are_unknown() {
        let mut random = fastrand::Rng::with_seed(15);
        let mut series = Series::<2>::default();
        let mut pushed = std::collections::BTreeMap::new();
        let mut second = START;
        for _ in 0..5000 {
            let values = [random.u16(1..3), random.u16(1..3)];
            series.push(second, values);
            pushed.insert(second, values);
            second += if random.u8(..) == 0 { random.u64(1..200) } else { 1 };
        }
        for at in second - 3600..second + 100 {
            assert_eq!(series.at(at), pushed.get(&at).copied().unwrap_or_default(), "{at}");
        }
        assert!(series.minutes.len() <= KEPT);
    }

    #[test]
    fn what_does_not_change_takes_a_few_bytes() {
        let mut series = Series::<5>::default();
        (0..7200).for_each(|i| series.push(START + i, [1, 1, 0, 0, 0]));
        assert!(series.minutes.iter().all(|minute| matches!(minute, Minute::Same { .. })));
        assert!(size_of::<Minute<5>>() <= 16);
        assert_eq!(series.at(START + 7199), [1, 1, 0, 0, 0]);
        assert_eq!(series.at(START + 7200), [0; 5]);
        assert_eq!(series.at(START), [0; 5], "it is more than an hour ago");
    }

    #[test]
    fn a_series_begins_anew_after_a_long_gap() {
        let mut series = Series::<1>::default();
        series.push(START, [7]);
        assert!(!series.is_over(START) && series.is_over(START + 60));
        series.push(START + 100_000, [9]);
        assert_eq!((series.at(START + 100_000), series.minutes.len()), ([9], 1));
        series.push(START, [3]);
        assert_eq!(series.at(START), [0], "what is older than all is left out");
    }
}

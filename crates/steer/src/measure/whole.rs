//! Consistent copies of per-CPU counters that change while they are copied.
//!
//! Each CPU counts its changes twice: before a change (`begun`, the last field) and after it (`ended`,
//! the first). A copy is consistent if `begun`, read after it, equals `ended`, read before it. Three
//! copies one after the other have that order, independent of the order within one.
//!
//! The copies of two CPUs may be some time apart. An IO that was issued on one CPU and completed on
//! another between them counts as outstanding. So all are taken within [`AT_ONCE`], even if another
//! program takes the processor in the meantime.

use super::layout::Versioned;

/// Largest number of attempts. A CPU that changes its counters between any two copies does far more
/// than 100,000 IOPS.
const TRIES: usize = 100;
/// Longest time for the copies of all CPUs, in ns.
const AT_ONCE: u64 = 1_000_000;

/// Takes copies with `copy` until each CPU's copy is consistent, all at the returned time of `clock`,
/// in ns. `None` without success.
pub(super) fn whole<T: Copy, E>(
    mut clock: impl FnMut() -> u64,
    mut copy: impl FnMut() -> Result<Vec<Versioned<T>>, E>,
) -> Result<Option<(u64, Vec<T>)>, E> {
    let mut begun = clock();
    let (mut before, mut middle) = (copy()?, copy()?);
    let mut found: Vec<Option<T>> = vec![None; middle.len()];
    for _ in 0..TRIES {
        let after = copy()?;
        for (cpu, found) in found.iter_mut().enumerate().filter(|(_, found)| found.is_none()) {
            if before[cpu].ended == after[cpu].begun {
                *found = Some(middle[cpu].counters);
            }
        }
        let now = clock();
        if now - begun > AT_ONCE {
            begun = now;
            (before, middle) = (copy()?, copy()?);
            found.fill(None);
        } else if found.iter().all(Option::is_some) {
            return Ok(Some((now, found.into_iter().flatten().collect())));
        } else {
            (before, middle) = (middle, after);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(ended: u64, counters: u64, begun: u64) -> Versioned<u64> {
        Versioned { ended, counters, begun }
    }

    #[test]
    fn a_copy_in_the_middle_of_a_change_is_not_taken() {
        // A change is half done in the second copy.
        let rest = [copied(5, 50, 5); 3];
        let mut copies = [copied(4, 40, 4), copied(4, 50, 5)].into_iter().chain(rest);
        let got = whole::<_, ()>(|| 7, || Ok(vec![copies.next().unwrap()]));
        assert_eq!(got, Ok(Some((7, vec![50]))));
    }

    #[test]
    fn what_never_rests_is_given_up() {
        let mut n = 0;
        let copy = || {
            n += 1;
            Ok(vec![copied(n, n, n + 1)])
        };
        assert_eq!(whole::<_, ()>(|| 7, copy), Ok(None));
    }

    #[test]
    fn copies_of_two_cpus_are_of_one_time() {
        // One CPU issues, the other completes, an IO each millisecond. A change of the second is
        // half done in the third copy, and the copying program is away after it.
        let time = std::cell::Cell::new(0);
        let mut number = 0;
        let copy = || {
            number += 1;
            time.set(time.get() + if number == 4 { 300_000_000 } else { 10_000 });
            let ios = time.get() / 1_000_000;
            let half = u64::from(number == 3);
            Ok(vec![copied(ios, ios, ios), copied(ios, ios, ios + half)])
        };
        let got = whole::<_, ()>(|| time.get(), copy).unwrap().unwrap();
        assert_eq!(got, (300_060_000, vec![300, 300]));
    }
}

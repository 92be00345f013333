//! Consistent copies of per-CPU counters that change while they are copied.
//!
//! Each CPU counts its changes twice: before a change (`begun`, the last field) and after it
//! (`ended`, the first). A copy is consistent if `begun`, read after it, equals `ended`, read
//! before it. Three copies one after the other have that order, whatever the order within one.

use super::layout::Versioned;

/// Largest number of attempts. A CPU that changes its counters between any two copies does far more
/// than 100,000 IOPS.
const TRIES: usize = 100;

/// Takes copies with `copy` until that of each CPU is consistent. `None` if one never is.
pub(super) fn whole<T: Copy, E>(
    mut copy: impl FnMut() -> Result<Vec<Versioned<T>>, E>,
) -> Result<Option<Vec<T>>, E> {
    let (mut before, mut middle) = (copy()?, copy()?);
    let mut found: Vec<Option<T>> = vec![None; middle.len()];
    for _ in 0..TRIES {
        let after = copy()?;
        for (cpu, found) in found.iter_mut().enumerate().filter(|(_, found)| found.is_none()) {
            if before[cpu].ended == after[cpu].begun {
                *found = Some(middle[cpu].counters);
            }
        }
        if found.iter().all(Option::is_some) {
            return Ok(Some(found.into_iter().flatten().collect()));
        }
        (before, middle) = (middle, after);
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
        let got = whole::<_, ()>(|| Ok(vec![copies.next().unwrap()]));
        assert_eq!(got, Ok(Some(vec![50])));
    }

    #[test]
    fn what_never_rests_is_given_up() {
        let mut n = 0;
        let got = whole::<_, ()>(|| {
            n += 1;
            Ok(vec![copied(n, n, n + 1)])
        });
        assert_eq!(got, Ok(None));
    }
}

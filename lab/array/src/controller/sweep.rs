//! A set of stripes whose members leave in ascending order, round and round (C-SCAN).
//! elevator).

use alloc::vec::Vec;

/// Set of stripe numbers: a bitmap, as long as the highest number inserted.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    words: Vec<u64>,
    /// Stripe at which the next search begins.
    at: u64,
}

impl Sweep {
    pub(super) fn insert(&mut self, stripe: u64) {
        let (word, bit) = split(stripe);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// Removes the next stripe for which `may` is true. Others are passed over, and come again in the next round.
    pub(super) fn take(&mut self, may: impl Fn(u64) -> bool) -> Option<u64> {
        let ahead = self.find(self.at, u64::MAX, &may);
        let stripe = ahead.or_else(|| self.find(0, self.at, &may))?;
        let (word, bit) = split(stripe);
        self.words[word] &= !bit;
        self.at = stripe + 1;
        Some(stripe)
    }

    /// The first stripe in `from..to` for which `may` is true.
    fn find(&self, from: u64, to: u64, may: impl Fn(u64) -> bool) -> Option<u64> {
        let mut from = from;
        loop {
            let stripe = self.first(from).filter(|stripe| *stripe < to)?;
            if may(stripe) {
                return Some(stripe);
            }
            from = stripe + 1;
        }
    }

    fn first(&self, from: u64) -> Option<u64> {
        let (first, bit) = split(from);
        let rest = |(word, bits): (usize, &u64)| {
            let bits = if word == first { bits & bit.wrapping_neg() } else { *bits };
            (bits != 0).then(|| word as u64 * 64 + u64::from(bits.trailing_zeros()))
        };
        self.words.iter().enumerate().skip(first).find_map(rest)
    }
}

/// Index of a stripe's word in the bitmap, and its bit there.
fn split(stripe: u64) -> (usize, u64) {
    ((stripe / 64) as usize, 1 << (stripe % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        /// Same stripes in the same order as from a sorted set.
        #[test]
        fn goes_round_as_a_sorted_set_does(
            steps in prop::collection::vec(
                prop_oneof![
                    (0..300_u64).prop_map(Some),
                    (0..2_000_000_u64).prop_map(Some),
                    Just(None),
                ],
                1..200,
            ),
            barred in 1..7_u64,
        ) {
            let mut sweep = Sweep::default();
            let mut oracle = BTreeSet::new();
            let mut at = 0;
            for step in steps {
                match step {
                    Some(stripe) => {
                        sweep.insert(stripe);
                        oracle.insert(stripe);
                    }
                    None => {
                        let may = |stripe: u64| stripe % 7 != barred;
                        let mut round = oracle.range(at..).chain(oracle.range(..at));
                        let next = round.find(|stripe| may(**stripe)).copied();
                        prop_assert_eq!(sweep.take(may), next);
                        if let Some(stripe) = next {
                            oracle.remove(&stripe);
                            at = stripe + 1;
                        }
                    }
                }
            }
        }
    }
}

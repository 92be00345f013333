//! Which slots are read in a period, and among which a host looks for one of its own: those at the
//! front that are in use, and a few more for hosts that come. The others are read now and then.

/// Slots come in groups of so many, so that a host that comes or goes seldom changes how much is read.
const GROUP: u32 = 8;

/// So many slots at least are free among those that are read, for hosts that come.
const SPARE: u32 = 4;

/// All slots are read once in so many looks: a host of an earlier version, or one whose slot was
/// configured, may have come to a slot beyond those that are read.
pub(crate) const ALL_EVERY: u64 = 8;

/// Among how many slots at the front a host looks for one, if so many of all `slots` are in use.
pub(crate) fn choice(used: u32, slots: u32) -> u32 {
    (used + SPARE).next_multiple_of(GROUP).min(slots)
}

/// How many slots are read at the front, if so many of all `slots` are in use and `last` is the last
/// one of them.
///
/// A host that reads all and takes a slot takes one that the others read.
#[must_use]
pub fn reach(used: u32, last: Option<u32>, slots: u32) -> u32 {
    let last = last.map_or(0, |last| (last + 1).next_multiple_of(GROUP));
    choice(used, slots).max(last).min(slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_hosts_are_read_with_little() {
        assert_eq!(reach(0, None, 64), 8);
        assert_eq!(reach(4, Some(7), 64), 8);
        assert_eq!(reach(5, Some(7), 64), 16);
        assert_eq!(reach(32, Some(39), 64), 40);
        assert_eq!(reach(1, Some(63), 64), 64);
        assert_eq!(reach(3, Some(2), 4), 4);
    }

    proptest! {
        /// Whoever takes a slot among those that [`choice`] names takes one that is read by others that
        /// see as many in use, and finds a free one there unless all are in use.
        #[test]
        fn a_slot_that_is_taken_is_read(slots in 1_u32..1025, used in 0_u32..1025, last in 0_u32..1024) {
            let used = used.min(slots);
            let last = (used > 0).then(|| last.clamp(used - 1, slots - 1));
            let read = reach(used, last, slots);
            prop_assert!(choice(used, slots) <= read && read <= slots);
            prop_assert!(choice(used, slots) > used || used == slots);
            prop_assert!(last.is_none_or(|last| last < read));
        }
    }
}

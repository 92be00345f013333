//! The number of slots that are read in a period, and among which a host chooses its own. They are the slots in use,
//! which are at the front, and a few free ones for new hosts. The others are read every [`ALL_EVERY`] looks.

/// Granularity of the number of slots that are read, so that a host that comes or goes seldom changes it.
const GROUP: u32 = 8;

/// Least number of free slots among those that are read, for new hosts.
const SPARE: u32 = 4;

/// Number of looks of which one reads all slots. A host of an earlier version, or with a configured slot, may have a
/// slot beyond the usual reach.
pub(crate) const ALL_EVERY: u64 = 8;

/// Number of slots at the front among which a host chooses its own. `used` of all `slots` are in use.
pub(crate) fn choice(used: u32, slots: u32) -> u32 {
    (used + SPARE).next_multiple_of(GROUP).min(slots)
}

/// Number of slots at the front that are read. `used` of all `slots` are in use, and `last` is the last of these.
///
/// A new host reads all slots, and chooses a slot that the others read.
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
        /// A slot taken among those that [`choice`] names is read by others that see as many in use. A free slot is
        /// among them unless all are in use.
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

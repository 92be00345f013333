//! Counters of datagrams, and the reasons why some are refused.

use std::fmt;

/// Reason why a datagram that was received is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// It does not begin with parda's magic.
    Foreign,
    /// The datagram or its record has another format version.
    OtherVersion,
    /// It is shorter than its length field says, or than the shortest datagram.
    Truncated,
    /// It is longer than its length field says, or than the longest datagram.
    Oversized,
    /// It is signed with a key that this host does not have.
    UnknownKey,
    /// Its signature is wrong: it was forged, or damaged on the way.
    Forged,
    /// Its lengths contradict each other; or its signature is right, and its record has values that no host may send.
    Malformed,
    /// It is about another volume.
    OtherVolume,
    /// It, or a later datagram of its run, was heard before: it is replayed, duplicated or late.
    Replayed,
    /// Its run has not yet echoed this one: the host has just started, does not hear us, or the datagram is a
    /// recording.
    Unproven,
    /// Its run is new, and as many runs as can be remembered are known.
    Crowded,
}

impl Refused {
    /// All reasons, in the order of their declaration: `Refused as usize` is the index.
    pub const ALL: [Refused; 11] = [
        Refused::Foreign,
        Refused::OtherVersion,
        Refused::Truncated,
        Refused::Oversized,
        Refused::UnknownKey,
        Refused::Forged,
        Refused::Malformed,
        Refused::OtherVolume,
        Refused::Replayed,
        Refused::Unproven,
        Refused::Crowded,
    ];

    /// Name of the reason in an agent's status, and which datagrams it is of, for the log.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Refused::Foreign => ("foreign", "that are not parda's"),
            Refused::OtherVersion => ("other_version", "of another format version"),
            Refused::Truncated => ("truncated", "that were cut short"),
            Refused::Oversized => ("oversized", "that were too long"),
            Refused::UnknownKey => {
                ("unknown_key", "signed with a key that this host does not have")
            }
            Refused::Forged => ("forged", "with a wrong signature"),
            Refused::Malformed => ("malformed", "that say what no host may say"),
            Refused::OtherVolume => ("other_volume", "about another volume"),
            Refused::Replayed => ("replayed", "that were replayed, duplicated or late"),
            Refused::Unproven => {
                ("unproven", "of hosts that have not shown that they hear this one")
            }
            Refused::Crowded => ("crowded", "of more hosts than can be remembered"),
        }
    }

    /// Name of the reason in an agent's status.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// Whether the log has a line on it. Not for [`Refused::Unproven`]: every host begins so in its first periods.
    pub(super) fn is_logged(self) -> bool {
        self != Refused::Unproven
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().1)
    }
}

/// Numbers of datagrams since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounters {
    /// Datagrams that the kernel took, one for each destination and period.
    pub sent: u64,
    /// Datagrams that the kernel did not take.
    pub unsent: u64,
    /// Datagrams received and believed.
    pub heard: u64,
    /// Datagrams of our own that came back, by multicast or because the list of peers has our address.
    pub own: u64,
    refused: [u64; Refused::ALL.len()],
}

impl DatagramCounters {
    /// Number of datagrams refused for a reason.
    #[must_use]
    pub fn refused(&self, why: Refused) -> u64 {
        self.refused[why as usize]
    }

    pub(super) fn refuse(&mut self, why: Refused) {
        self.refused[why as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_apart_and_has_a_name_of_its_own() {
        let mut counters = DatagramCounters::default();
        let mut names = std::collections::BTreeSet::new();
        for (i, why) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, i);
            assert!(names.insert(why.name()));
            counters.refuse(why);
        }
        assert!(Refused::ALL.into_iter().all(|why| counters.refused(why) == 1));
    }
}

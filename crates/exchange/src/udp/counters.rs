//! What is counted of datagrams.

use std::fmt;

/// Reason why a datagram that came in counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// It is no datagram of parda.
    Foreign,
    /// Its datagram or its record has another format version.
    OtherVersion,
    /// It is shorter than it says, or than any can be.
    Truncated,
    /// It is longer than it says, or than any can be.
    Oversized,
    /// It is signed with a key that this host does not have.
    UnknownKey,
    /// Its signature is wrong: it was forged, or damaged on the way.
    Forged,
    /// Its signature is right, or its lengths contradict each other, and it says what no host may say.
    Malformed,
    /// It is about another volume.
    OtherVolume,
    /// It was heard before, or one that was sent after it was: replayed, duplicated or late.
    Replayed,
    /// Its run has not yet shown that it hears this one: a host that starts, one that does not hear us, or a
    /// recording.
    Unproven,
    /// More hosts than can be remembered.
    Crowded,
}

impl Refused {
    /// All reasons, in the order in which a receiver looks for them.
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

    /// Name of the reason in an agent's status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refused::Foreign => "foreign",
            Refused::OtherVersion => "other_version",
            Refused::Truncated => "truncated",
            Refused::Oversized => "oversized",
            Refused::UnknownKey => "unknown_key",
            Refused::Forged => "forged",
            Refused::Malformed => "malformed",
            Refused::OtherVolume => "other_volume",
            Refused::Replayed => "replayed",
            Refused::Unproven => "unproven",
            Refused::Crowded => "crowded",
        }
    }

    /// Whether the log has a line on it. A host that starts is not yet proven in its first periods.
    pub(super) fn is_logged(self) -> bool {
        self != Refused::Unproven
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Foreign => "that are not parda's",
            Refused::OtherVersion => "of another format version",
            Refused::Truncated => "that were cut short",
            Refused::Oversized => "that were too long",
            Refused::UnknownKey => "signed with a key that this host does not have",
            Refused::Forged => "with a wrong signature",
            Refused::Malformed => "that say what no host may say",
            Refused::OtherVolume => "about another volume",
            Refused::Replayed => "that were replayed, duplicated or late",
            Refused::Unproven => "of hosts that have not shown that they hear this one",
            Refused::Crowded => "of more hosts than can be remembered",
        })
    }
}

/// Datagrams since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounters {
    /// Handed to the kernel, one for each destination and period.
    pub sent: u64,
    /// Not taken by the kernel.
    pub unsent: u64,
    /// Heard, and counted for what they say.
    pub heard: u64,
    /// Our own, which came back: by multicast, or as we are among our own peers.
    pub own: u64,
    /// Of another live host with our name.
    pub duplicate_hosts: u64,
    refused: [u64; Refused::ALL.len()],
}

impl DatagramCounters {
    /// How many were refused for a reason.
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

//! Counters of datagrams, and the reasons why some are refused.

use std::collections::BTreeMap;
use std::fmt;

use strum::VariantArray;

/// Reason why a datagram that was received is refused. As text: which datagrams it is of, for the log.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Refused {
    /// The datagram does not begin with parda's magic.
    #[error("that are not parda's")]
    Foreign,
    /// The datagram or its record has another format version.
    #[error("of another format version")]
    OtherVersion,
    /// The datagram is shorter than its length field, or than the shortest datagram.
    #[error("that were cut short")]
    Truncated,
    /// The datagram is longer than its length field, or than the longest datagram.
    #[error("that were too long")]
    Oversized,
    /// The datagram is signed with a key that this host does not have.
    #[error("signed with a key that this host does not have")]
    UnknownKey,
    /// Its signature is wrong: it was forged, or damaged on the way.
    #[error("with a wrong signature")]
    Forged,
    /// Its lengths contradict each other; or its signature is right, and its record has values that no host may send.
    #[error("that say what no host may say")]
    Malformed,
    /// The datagram is about another volume.
    #[error("about another volume")]
    OtherVolume,
    /// The datagram, or a later one of its run, was heard before: it is replayed, duplicated or late.
    #[error("that were replayed, duplicated or late")]
    Replayed,
    /// The run has not yet echoed this one. Its host has just started, does not hear us, or the datagram is a
    /// recording.
    #[error("of hosts that have not shown that they hear this one")]
    Unproven,
    /// Its run is new, and as many runs as can be remembered are known.
    #[error("of more hosts than can be remembered")]
    Crowded,
}

impl Refused {
    /// Name of the reason in an agent's status.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the log has a line on it. Not for [`Refused::Unproven`]: every host begins so in its first periods.
    pub(super) fn is_logged(self) -> bool {
        self != Refused::Unproven
    }
}

/// A host that is heard and has not shown that it hears this one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OneWay {
    /// Name of the host.
    pub host: String,
    /// Address that its last datagram came from.
    pub from: String,
    /// Whether this host sends to that address.
    pub is_peer: bool,
}

impl fmt::Display for OneWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OneWay { host, from, is_peer } = self;
        match is_peer {
            true => write!(
                f,
                "host {host} sends from {from} and has not shown that it hears this host: it gets no datagram of this host, \
                 or cannot read any"
            ),
            false => write!(
                f,
                "host {host} sends from {from}, which is not in this host's `peers`: it does not hear this host, and does not count"
            ),
        }
    }
}

/// The state of an exchange over UDP. Datagrams are counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DatagramStanding {
    /// Datagrams that the kernel took, one for each destination and period.
    pub sent: u64,
    /// Datagrams that the kernel did not take.
    pub unsent: u64,
    /// Datagrams received and believed.
    pub heard: u64,
    /// Datagrams of our own that came back, by multicast or because the list of peers has our address.
    pub own: u64,
    /// Hosts that are heard now and have not shown that they hear this one.
    pub unproven: usize,
    /// Number of those that had time to show it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub one_way_hosts: usize,
    /// The first of these.
    #[cfg_attr(feature = "serde", serde(default))]
    pub one_way: Vec<OneWay>,
    /// Number of keys in force.
    pub keys: usize,
    /// Datagrams that counted for nothing, by the name of the reason.
    pub refused: BTreeMap<String, u64>,
}

impl DatagramStanding {
    /// The state before anything was heard: each reason has a count.
    pub(super) fn new() -> DatagramStanding {
        let refused = Refused::VARIANTS.iter().map(|why| (why.name().to_owned(), 0));
        DatagramStanding { refused: refused.collect(), ..DatagramStanding::default() }
    }

    pub(super) fn refuse(&mut self, why: Refused) {
        // Without memory of its own, as a flood may bring many.
        if let Some(count) = self.refused.get_mut(why.name()) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_apart_and_has_a_name_of_its_own() {
        let mut standing = DatagramStanding::new();
        assert_eq!(standing.refused.len(), Refused::VARIANTS.len());
        for (i, why) in Refused::VARIANTS.iter().enumerate() {
            assert_eq!(*why as usize, i);
            standing.refuse(*why);
        }
        assert!(standing.refused.values().all(|count| *count == 1));
    }
}
